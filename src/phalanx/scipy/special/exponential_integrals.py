"""Exponential integrals, sine and cosine integrals, and the dilogarithm.

They are computed by power series for small arguments, where these do not cancel, and by continued fractions or
asymptotic series for large ones. Builds on `elementwise_algorithm`.

Source: DLMF 6.6, 6.12, 8.19 (exponential integrals), 25.12 (dilogarithm).
"""

from __future__ import annotations

import math

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.scipy.special.elementwise_algorithm import (
    elementwise,
    evaluate_polynomial,
    incomplete_gamma_fraction,
    repeat,
    sum_terms,
    with_derivatives,
)
from phalanx.typing import Array


# n is an integer, so there is no derivative with respect to it.
@with_derivatives(
    None,
    lambda x_dot, y, n, x: -jnp.where(n >= 1, _expn(lax.max(n - 1, n * 0), x), lax.exp(-x) * (1 + 1 / x) / x) * x_dot,
)
def _expn(n: Array, x: Array) -> Array:
    inside = (x > 0) & (x < np.inf) & (n >= 1)
    small = inside & (x < 1)
    u = jnp.where(small, x, 0.5)

    def term(k: Array, state: tuple) -> tuple:
        power, total = state
        gap = k - n  # the index of the term, counted from 0, is k - 1
        return power * -u / k, total + jnp.where(gap == 0, 0, power / jnp.where(gap == 0, 1, gap))

    _, total = repeat(30, term, (lax.full_like(u, 1), u * 0))
    whole = jnp.where(inside, n, 1)
    odd = lax.rem(whole - 1, lax.full_like(whole, 2)) == 1
    # The logarithmic term of the series, (-x)^(n - 1) / (n - 1)! (digamma(n) - log(x)).
    peak = jnp.where(odd, -1, 1) * lax.exp((whole - 1) * lax.log(u) - lax.lgamma(whole))
    near = peak * (lax.digamma(whole) - lax.log(u)) - total
    v = jnp.where(inside & (x >= 1), x, 2)
    far = lax.exp(-v) * incomplete_gamma_fraction(1 - whole, v, 90 if x.dtype == np.float64 else 30)
    value = jnp.where(n == 0, lax.exp(-x) / x, jnp.where(small, near, far))
    at_zero = jnp.where(n > 1, 1 / jnp.where(n > 1, n - 1, 1), np.inf)
    value = jnp.where(x == 0, at_zero, jnp.where(x == np.inf, 0, value))
    return jnp.where((x < 0) | (n < 0) | (n != lax.floor(n)) | (x != x), np.nan, value)


@elementwise(
    "2, 1.0", "0.1485", n="nonnegative integers", x="nonnegative real numbers", outside="NaN outside of the domain"
)
def expn(n: Array, x: Array) -> Array:
    """The integral of exp(-x t) / t^n from 1 to infinity."""
    return _expn(n, x)


@elementwise("1.0", "1.8951")
@with_derivatives(lambda x_dot, y, x: lax.exp(x) / x * x_dot)
def expi(x: Array) -> Array:
    """The integral of exp(t) / t from -infinity to x; the principal value for x > 0."""
    mid = (x > 0) & (x < 40)
    u = jnp.where(mid, x, 1)
    term = lambda k, state: (state[0] * u / k, state[1] + state[0] * u / (k * k))
    _, total = repeat(140, term, (lax.full_like(u, 1), u * 0))
    # Ei(x) = gamma + log(x) + sum of x^k / (k k!); all terms are positive.
    near = np.euler_gamma + lax.log(u) + total
    v = jnp.where(x >= 40, x, 40)
    far = lax.exp(v) / v * sum_terms(36, lambda k: k / v, lax.full_like(v, 1))
    value = jnp.where(x < 0, -_expn(lax.full_like(x, 1), lax.abs(x)), jnp.where(mid, near, far))
    return jnp.where(x == 0, -np.inf, jnp.where(x == np.inf, np.inf, jnp.where(x != x, np.nan, value)))


@elementwise("1.0", "0.2194", x="nonnegative real numbers", outside="NaN for negative numbers")
def exp1(x: Array) -> Array:
    """The integral of exp(-t) / t from x to infinity."""
    return _expn(lax.full_like(x, 1), x)


@elementwise(
    "1.0",
    "[0.9461, 0.3374]",
    result="(the sine integral, the cosine integral)",
    x="real numbers; the second result for a negative number is the real part",
)
@with_derivatives(
    lambda x_dot, y, x: (jnp.where(x == 0, 1, lax.sin(x) / jnp.where(x == 0, 1, x)) * x_dot, lax.cos(x) / x * x_dot)
)
def sici(x: Array) -> tuple:
    """The integrals of sin(t) / t from 0 to x, and of cos(t) / t from infinity to x."""
    size = lax.abs(x)
    small = size < 4
    u = jnp.where(small, size, 1)
    z = u * u

    def term(k: Array, state: tuple) -> tuple:
        """Add term k of the power series of Si and Ci: Ci - gamma - log(x) is the sum of (-1)^k x^2k / (2k)! / 2k."""
        power, si, ci = state
        power = -power * z / (2 * k * (2 * k - 1))
        return power, si + power * u / ((2 * k + 1) * (2 * k + 1)), ci + power / (2 * k)

    _, si_near, ci_near = repeat(18, term, (lax.full_like(u, 1), u, u * 0))
    ci_near = ci_near + np.euler_gamma + lax.log(u)
    v = jnp.where(small | (size == np.inf), 4, size)
    # E1(i x) = -Ci(x) + i (Si(x) - pi / 2)
    # E1(z) = exp(-z) times the continued fraction, with z = i x.
    turn = lax.complex(lax.cos(v), -lax.sin(v))
    e = turn * incomplete_gamma_fraction(0.0, lax.complex(v * 0, v), 60)
    si = jnp.where(small, si_near, math.pi / 2 + lax.imag(e))
    ci = jnp.where(small, ci_near, -lax.real(e))
    si, ci = jnp.where(size == np.inf, math.pi / 2, si), jnp.where(size == np.inf, 0, ci)
    ci = jnp.where(size == 0, -np.inf, jnp.where(x == -np.inf, np.nan, ci))
    return jnp.where(x != x, np.nan, jnp.where(x < 0, -si, si)), jnp.where(x != x, np.nan, ci)


# The Bernoulli numbers B_2k divided by (2k + 1)!, highest power first.
_DEBYE = [
    b / math.factorial(2 * k + 1)
    for k, b in enumerate(
        (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330), start=1
    )
][::-1]


@elementwise("0.0", "1.6449", x="nonnegative real numbers", outside="NaN for negative numbers")
@with_derivatives(lambda x_dot, y, x: jnp.where(x == 1, -1, lax.log(x) / jnp.where(x == 1, 1, 1 - x)) * x_dot)
def spence(x: Array) -> Array:
    """The dilogarithm of 1 - x: the integral of log(t) / (1 - t) from 1 to x."""
    high = x > 1.5
    safe = jnp.where((x > 0) & (x < np.inf), x, 1)
    y = jnp.where(high, 1 / safe, safe)  # spence(x) = -log(x)^2 / 2 - spence(1 / x)
    low = y < 0.5
    z = jnp.where(low, 1 - y, y)
    w = -lax.log(z)
    near = w - w * w / 4 + w * (w * w) * evaluate_polynomial(_DEBYE, w * w)
    value = jnp.where(low, math.pi**2 / 6 - lax.log(y) * lax.log(z) - near, near)
    value = jnp.where(high, -0.5 * lax.square(lax.log(safe)) - value, value)
    value = jnp.where(x == 0, math.pi**2 / 6, jnp.where(x == np.inf, -np.inf, value))
    return jnp.where(x >= 0, value, np.nan)
