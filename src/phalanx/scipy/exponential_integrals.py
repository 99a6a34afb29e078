"""Integrals of exp(-t)/t, sin(t)/t, log(t)/(1 - t) and their kin.

By power series where these do not cancel, and by continued fractions. Builds on `elementwise`; `special` shows them.

Source: DLMF 6.6, 6.12, 8.19 (exponential integrals), 25.12 (dilogarithm).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.custom_derivatives import custom_jvp
from phalanx.numpy.mapping import where
from phalanx.scipy.elementwise import elementwise, gamma_fraction, polynomial, times


@custom_jvp
def _expn(n: Any, x: Any) -> Any:
    inside = (x > 0) & (x < np.inf) & (n >= 1)
    small = inside & (x < 1)
    u = where(small, x, 0.5)

    def term(k: Any, state: tuple) -> tuple:
        m = k - 1  # from 0
        power, total = state
        gap = m - n + 1
        total = total + where(gap == 0, 0, power / where(gap == 0, 1, gap))
        return power * -u / k, total

    _, total = times(30, term, (lax.full_like(u, 1), u * 0))
    whole = where(inside, n, 1)
    odd = lax.rem(whole - 1, lax.full_like(whole, 2)) == 1
    peak = where(odd, -1, 1) * lax.exp((whole - 1) * lax.log(u) - lax.lgamma(whole))
    near = peak * (lax.digamma(whole) - lax.log(u)) - total
    v = where(inside & (x >= 1), x, 2)
    far = lax.exp(-v) * gamma_fraction(1 - whole, v, 90 if x.dtype == np.float64 else 30)
    value = where(small, near, far)
    value = where(n == 0, lax.exp(-x) / x, value)
    at_zero = where(n > 1, 1 / where(n > 1, n - 1, 1), np.inf)
    value = where(x == 0, at_zero, where(x == np.inf, 0, value))
    return where((x < 0) | (n < 0) | (n != lax.floor(n)) | (x != x), np.nan, value)


@_expn.defjvp
def _expn_jvp(primals: tuple, tangents: tuple) -> tuple:
    # A function of whole numbers n, so that nothing changes with them.
    (n, x), (_, x_dot) = primals, tangents
    before = where(n >= 1, _expn(lax.max(n - 1, n * 0), x), lax.exp(-x) * (1 + 1 / x) / x)
    return _expn(n, x), -before * x_dot


@elementwise("2, 1.0", "0.1485", n="whole numbers from 0", x="real numbers from 0", outside="NaN outside of the domain")
def expn(n: Any, x: Any) -> Any:
    """The integral of exp(-x t) / t^n from 1 to infinity."""
    return _expn(n, x)


@custom_jvp
def _expi(x: Any) -> Any:
    size = lax.abs(x)
    mid = (x > 0) & (x < 40)
    u = where(mid, x, 1)
    term = lambda k, state: (state[0] * u / k, state[1] + state[0] * u / (k * k))
    _, total = times(140, term, (lax.full_like(u, 1), u * 0))
    near = np.euler_gamma + lax.log(u) + total
    v = where(x >= 40, x, 40)
    series = lambda k, state: (state[0] * k / v, state[1] + state[0] * k / v)
    _, tail = times(36, series, (lax.full_like(v, 1), lax.full_like(v, 1)))
    far = lax.exp(v) / v * tail
    value = where(x < 0, -_expn(lax.full_like(x, 1), size), where(mid, near, far))
    return where(x == 0, -np.inf, where(x == np.inf, np.inf, where(x != x, np.nan, value)))


@_expi.defjvp
def _expi_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    return _expi(x), lax.exp(x) / x * x_dot


@elementwise("1.0", "1.8951")
def expi(x: Any) -> Any:
    """The integral of exp(t) / t up to x, its principal value for x > 0."""
    return _expi(x)


@elementwise("1.0", "0.2194", x="real numbers from 0", outside="NaN below 0")
def exp1(x: Any) -> Any:
    """The integral of exp(-t) / t from x to infinity."""
    return _expn(lax.full_like(x, 1), x)


@custom_jvp
def _sici(x: Any) -> tuple:
    size = lax.abs(x)
    small = size < 4
    u = where(small, size, 1)
    z = u * u

    def term(k: Any, state: tuple) -> tuple:
        """Of sums over (-1)^k x^2k / (2k)! / 2k, and the same with 2k + 1."""
        power, si, ci = state
        power = -power * z / (2 * k * (2 * k - 1))
        return power, si + power * u / ((2 * k + 1) * (2 * k + 1)), ci + power / (2 * k)

    _, si_near, ci_near = times(18, term, (lax.full_like(u, 1), u, u * 0))
    ci_near = ci_near + np.euler_gamma + lax.log(u)
    v = where(small | (size == np.inf), 4, size)
    # E1(i x) = -Ci(x) + i (Si(x) - pi / 2)
    turn = lax.complex(lax.cos(v), -lax.sin(v))
    e = turn * gamma_fraction(0.0, lax.complex(v * 0, v), 60)
    si = where(small, si_near, math.pi / 2 + lax.imag(e))
    ci = where(small, ci_near, -lax.real(e))
    si, ci = where(size == np.inf, math.pi / 2, si), where(size == np.inf, 0, ci)
    ci = where(size == 0, -np.inf, where(x == -np.inf, np.nan, ci))
    return where(x != x, np.nan, where(x < 0, -si, si)), where(x != x, np.nan, ci)


@_sici.defjvp
def _sici_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    safe = where(x == 0, 1, x)
    return _sici(x), (where(x == 0, 1, lax.sin(x) / safe) * x_dot, lax.cos(x) / x * x_dot)


@elementwise(
    "1.0",
    "[0.9461, 0.3374]",
    gives="(the sine integral, the cosine integral)",
    x="real numbers; of negative ones, the real part of the second",
)
def sici(x: Any) -> tuple:
    """The integrals of sin(t) / t from 0, and of cos(t) / t up to x from infinity."""
    return _sici(x)


# Bernoulli's numbers B_2k over (2k + 1)!, from the highest.
_DEBYE = [b / math.factorial(2 * k + 1) for k, b in enumerate(
    (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330), start=1
)][::-1]  # fmt: skip


@custom_jvp
def _spence(x: Any) -> Any:
    high = x > 1.5
    safe = where((x > 0) & (x < np.inf), x, 1)
    y = where(high, 1 / safe, safe)  # the value there is -log(x)^2 / 2 less the one at y
    low = y < 0.5
    z = where(low, 1 - y, y)
    w = -lax.log(z)
    near = w - w * w / 4 + w * (w * w) * polynomial(_DEBYE, w * w)
    value = where(low, math.pi**2 / 6 - lax.log(y) * lax.log(z) - near, near)
    value = where(high, -0.5 * lax.square(lax.log(safe)) - value, value)
    value = where(x == 0, math.pi**2 / 6, where(x == np.inf, -np.inf, value))
    return where(x >= 0, value, np.nan)


@_spence.defjvp
def _spence_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    gap = 1 - x
    safe = where(gap == 0, 1, gap)
    return _spence(x), where(gap == 0, -1, lax.log(x) / safe) * x_dot


@elementwise("0.0", "1.6449", x="real numbers from 0", outside="NaN below 0")
def spence(x: Any) -> Any:
    """The dilogarithm of 1 - x: the integral of log(t) / (1 - t) from 1 to x."""
    return _spence(x)
