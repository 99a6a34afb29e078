"""The scaled and the complex error function, and the integrals of Dawson, Fresnel and Owen.

Each function selects between two expansions by the size of its argument. The argument of the expansion that is not
selected is replaced by a constant, so that no NaN or overflow reaches the derivative. Builds on
`elementwise_algorithm`.

Source: Weideman (1994), doi:10.1137/0731077 (complex numbers); Owen (1956), doi:10.1214/aoms/1177728074; DLMF 7.
"""

from __future__ import annotations

import math

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.custom_rules import custom_jvp
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import to_complex, to_inexact_array
from phalanx.scipy.special.elementwise_algorithm import (
    elementwise,
    evaluate_polynomial,
    incomplete_gamma_fraction,
    repeat,
    with_derivative,
)
from phalanx.typing import Array, ArrayLike

_ROOT_PI = math.sqrt(math.pi)


@elementwise("100.0", "0.005642")
@with_derivative(lambda x, y: 2 * x * y - 2 / _ROOT_PI)
def erfcx(x: Array) -> Array:
    """The scaled complementary error function exp(x^2) erfc(x), which does not underflow."""
    size = lax.abs(x)
    small = size < 2
    u, v = jnp.where(small, size, 0), jnp.where(small, 2, size)
    # For small x the product is accurate; for large x both factors overflow and underflow.
    near = lax.exp(u * u) * lax.erfc(u)
    far = v / _ROOT_PI * incomplete_gamma_fraction(0.5, v * v, 30)
    value = jnp.where(small, near, jnp.where(v > 1e8, 1 / (_ROOT_PI * v), far))
    return jnp.where(x < 0, 2 * lax.exp(x * x) - value, value)


@elementwise("1.0", "0.5381")
@with_derivative(lambda x, y: 1 - 2 * x * y)
def dawsn(x: Array) -> Array:
    """Dawson's integral, exp(-x^2) times the integral of exp(t^2) from 0 to x."""
    size = lax.abs(x)
    small = size < 6.5
    u, v = jnp.where(small, size, 1), jnp.where(small, 7, size)
    z = u * u

    def term(k: Array, state: tuple) -> tuple:
        power = state[0] * z / k
        return power, state[1] + power / (2 * k + 1)

    # The factor exp(-z) is in the first term, so that all terms are positive and none overflows.
    front = lax.exp(-z)
    _, total = repeat(140, term, (front, front))
    inverse = 1 / (2 * v * v)
    _, tail = repeat(
        20,
        lambda k, s: (s[0] * (2 * k - 1) * inverse, s[1] + s[0] * (2 * k - 1) * inverse),
        (lax.full_like(v, 1), lax.full_like(v, 1)),
    )
    value = jnp.where(small, u * total, tail / (2 * v))
    return jnp.where(x < 0, -value, jnp.where(x != x, np.nan, value))


def _weideman(n: int) -> tuple:
    """The scale and the coefficients, highest power first, of Weideman's rational approximation of order n."""
    m = 2 * n
    k = np.arange(-m + 1, m)
    scale = math.sqrt(n / math.sqrt(2))
    t = scale * np.tan(k * np.pi / m / 2)
    f = np.concatenate([[0.0], np.exp(-t * t) * (scale**2 + t * t)])
    return scale, np.real(np.fft.fft(np.fft.fftshift(f)))[1 : n + 1][::-1] / (2 * m)


_SCALE, _COEFFICIENTS = _weideman(48)


@with_derivative(lambda z, w: 2j / _ROOT_PI - 2 * z * w)
def _wofz(z: Array) -> Array:
    # w(-z) = 2 exp(-z^2) - w(z) reduces the lower half-plane to the upper one.
    below = lax.imag(z) < 0
    u = jnp.where(below, -z, z)
    far = lax.abs(u) > 8
    v = jnp.where(far, 1j, u)
    down = _SCALE - 1j * v
    inside = 2 * evaluate_polynomial(_COEFFICIENTS, (_SCALE + 1j * v) / down) / (down * down) + 1 / _ROOT_PI / down
    v = jnp.where(far, u, 10j)
    # The continued fraction i / sqrt(pi) / (z - (1/2) / (z - 1 / (z - (3/2) / ...))), from its last term (DLMF 7.9.3).
    tail = repeat(20, lambda k, t: (21 - k) / 2 / (v - t), v * 0)
    value = jnp.where(far, 1j / _ROOT_PI / (v - tail), inside)
    return jnp.where(below, 2 * lax.exp(-z * z) - value, value)


@eager_jit
def wofz(z: ArrayLike) -> Array:
    """The Faddeeva function, exp(-z^2) erfc(-i z).

    Args:
      z: complex numbers.

    Returns:
      The value for each element, complex.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.wofz(1j).real.item(), 4)
      0.4276
    """
    return _wofz(to_complex(to_inexact_array("wofz", z)))


@custom_jvp
def _fresnel(x: Array) -> tuple:
    size = lax.abs(x)
    small = size < 1.5
    u = jnp.where(small, size, 1)
    t = math.pi / 2 * u * u

    def term(k: Array, state: tuple) -> tuple:
        """Add term k of the power series of S and C: C is the sum of (-1)^k t^2k x / (2k)! / (4k + 1)."""
        even, s, c = state
        even = -even * t * t / (2 * k * (2 * k - 1))
        return even, s + even * t / ((2 * k + 1) * (4 * k + 3)), c + even / (4 * k + 1)

    _, s_near, c_near = repeat(16, term, (u, u * t / 3, u))
    v = jnp.where(small | (size == np.inf), 2, size)
    # C + i S = (1 + i)/2 (1 - exp(i pi x^2 / 2) w(sqrt(pi)/2 (1 + i) x)). The angle is reduced modulo 2 pi before the
    # sine and cosine, which are inaccurate for large arguments.
    angle = math.pi / 2 * lax.rem(v * v, lax.full_like(v, 4))
    half = v * (_ROOT_PI / 2)
    both = 0.5 * (1 + 1j) * (1 - lax.complex(lax.cos(angle), lax.sin(angle)) * _wofz(lax.complex(half, half)))
    s, c = jnp.where(small, s_near, lax.imag(both)), jnp.where(small, c_near, lax.real(both))
    s, c = (jnp.where(size == np.inf, 0.5, part) for part in (s, c))
    s, c = (jnp.where(x != x, np.nan, jnp.where(x < 0, -part, part)) for part in (s, c))
    return s, c


@_fresnel.defjvp
def _fresnel_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    angle = math.pi / 2 * x * x
    return _fresnel(x), (lax.sin(angle) * x_dot, lax.cos(angle) * x_dot)


@elementwise("1.0", "[0.4383, 0.7799]", result="(S, C)")
def fresnel(x: Array) -> tuple:
    """The integrals of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x."""
    return _fresnel(x)


_NODES, _WEIGHTS = (v.tolist() for v in np.polynomial.legendre.leggauss(40))


def _ndtr(x: Array) -> Array:
    return 0.5 * lax.erfc(-x * math.sqrt(0.5))


@custom_jvp
def _owens_t(h: Array, a: Array) -> Array:
    h, size = lax.abs(h), lax.abs(a)
    # T(h, a) for a > 1 follows from T(a h, 1 / a), so the interval of integration is never longer than 1.
    large = size > 1
    p, q = jnp.where(large, h * jnp.where(size == np.inf, 1, size), h), jnp.where(large, 1 / size, size)
    # The integrand underflows beyond 9 / p, so the quadrature nodes are spent on the interval before.
    end = lax.min(q, jnp.where(p > 0, 9 / jnp.where(p > 0, p, 1), q))
    total = h * 0
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        t = end * (0.5 * (node + 1))
        total = total + weight * lax.exp(-0.5 * p * p * (1 + t * t)) / (1 + t * t)
    inner = total * end / (4 * math.pi)
    one, both = _ndtr(-h), _ndtr(-p)
    outer = (one + both) / 2 - one * both - inner
    outer = jnp.where(size == np.inf, one / 2, outer)
    value = jnp.where(h == 0, lax.atan(size) / (2 * math.pi), jnp.where(large, outer, inner))
    return jnp.where(a < 0, -value, jnp.where((a != a) | (h != h), np.nan, value))


@_owens_t.defjvp
def _owens_t_jvp(primals: tuple, tangents: tuple) -> tuple:
    (h, a), (h_dot, a_dot) = primals, tangents
    by_a = lax.exp(-0.5 * h * h * (1 + a * a)) / (2 * math.pi * (1 + a * a))
    by_h = -lax.exp(-0.5 * h * h) / math.sqrt(2 * math.pi) * lax.erf(a * h * math.sqrt(0.5)) / 2
    return _owens_t(h, a), by_h * h_dot + by_a * a_dot


@elementwise("1.0, 2.0", "0.0785")
def owens_t(h: Array, a: Array) -> Array:
    """Owen's T function: the probability of X > h and 0 < Y < a X, for independent standard normal X and Y."""
    return _owens_t(h, a)
