"""Kin of the error function: scaled, of complex numbers, and the integrals of Dawson, Fresnel and Owen.

Builds on `elementwise`; `special` shows them.

Source: Weideman (1994), doi:10.1137/0731077 (complex numbers); Owen (1956), doi:10.1214/aoms/1177728074; DLMF 7.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import promotion
from phalanx.custom_derivatives import custom_jvp
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import as_array, cast, operand, promote_inexact
from phalanx.runtime.dispatch import eager_program
from phalanx.scipy.elementwise import elementwise, gamma_fraction, polynomial, times

_ROOT_PI = math.sqrt(math.pi)


@custom_jvp
def _erfcx(x: Any) -> Any:
    size = lax.abs(x)
    small = size < 2
    u, v = where(small, size, 0), where(small, 2, size)
    near = lax.exp(u * u) * lax.erfc(u)
    far = v / _ROOT_PI * gamma_fraction(0.5, v * v, 30)
    value = where(small, near, where(v > 1e8, 1 / (_ROOT_PI * v), far))
    return where(x < 0, 2 * lax.exp(x * x) - value, value)


@_erfcx.defjvp
def _erfcx_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    y = _erfcx(x)
    return y, (2 * x * y - 2 / _ROOT_PI) * x_dot


@elementwise("100.0", "0.005642")
def erfcx(x: Any) -> Any:
    """exp(x^2) times the complementary error function, which does not underflow."""
    return _erfcx(x)


@custom_jvp
def _dawsn(x: Any) -> Any:
    size = lax.abs(x)
    small = size < 6.5
    u, v = where(small, size, 1), where(small, 7, size)
    z = u * u

    def term(k: Any, state: tuple) -> tuple:
        power = state[0] * z / k
        return power, state[1] + power / (2 * k + 1)

    # Scaled at the start, so that all terms are positive and none overflows.
    front = lax.exp(-z)
    _, total = times(140, term, (front, front))
    inverse = 1 / (2 * v * v)
    _, tail = times(20, lambda k, s: (s[0] * (2 * k - 1) * inverse, s[1] + s[0] * (2 * k - 1) * inverse),
                    (lax.full_like(v, 1), lax.full_like(v, 1)))  # fmt: skip
    value = where(small, u * total, tail / (2 * v))
    return where(x < 0, -value, where(x != x, np.nan, value))


@_dawsn.defjvp
def _dawsn_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    y = _dawsn(x)
    return y, (1 - 2 * x * y) * x_dot


@elementwise("1.0", "0.5381")
def dawsn(x: Any) -> Any:
    """Dawson's integral, exp(-x^2) times the integral of exp(t^2) from 0 to x."""
    return _dawsn(x)


def _weideman(n: int) -> tuple:
    """The scale and the coefficients, from the highest, of the rational approximation of order n."""
    m = 2 * n
    k = np.arange(-m + 1, m)
    scale = math.sqrt(n / math.sqrt(2))
    t = scale * np.tan(k * np.pi / m / 2)
    f = np.concatenate([[0.0], np.exp(-t * t) * (scale**2 + t * t)])
    return scale, np.real(np.fft.fft(np.fft.fftshift(f)))[1 : n + 1][::-1] / (2 * m)


_SCALE, _COEFFICIENTS = _weideman(48)


@custom_jvp
def _wofz(z: Any) -> Any:
    below = lax.imag(z) < 0
    u = where(below, -z, z)
    far = lax.abs(u) > 8
    v = where(far, 1j, u)
    down = _SCALE - 1j * v
    inside = 2 * polynomial(_COEFFICIENTS, (_SCALE + 1j * v) / down) / (down * down) + 1 / _ROOT_PI / down
    v = where(far, u, 10j)
    # w(z) = i / sqrt(pi) / (z - (1/2) / (z - 1 / (z - (3/2) / ...))), from its end (DLMF 7.9.3)
    tail = times(20, lambda k, t: (21 - k) / 2 / (v - t), v * 0)
    value = where(far, 1j / _ROOT_PI / (v - tail), inside)
    return where(below, 2 * lax.exp(-z * z) - value, value)


@_wofz.defjvp
def _wofz_jvp(primals: tuple, tangents: tuple) -> tuple:
    (z,), (z_dot,) = primals, tangents
    w = _wofz(z)
    return w, (2j / _ROOT_PI - 2 * z * w) * z_dot


@eager_program
def wofz(z: Any) -> Any:
    """The function of Faddeeva, exp(-z^2) times the complementary error function of -i z.

    Args:
      z: complex numbers.

    Returns:
      The value for each element, complex.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.wofz(1j).real.item(), 4)
      0.4276
    """
    (x,) = promote_inexact("wofz", operand(z, "wofz"))
    return _wofz(cast(as_array(x), promotion.result_type(x, np.complex64)))


@custom_jvp
def _fresnel(x: Any) -> tuple:
    size = lax.abs(x)
    small = size < 1.5
    u = where(small, size, 1)
    t = math.pi / 2 * u * u

    def term(k: Any, state: tuple) -> tuple:
        """Of sums over (-1)^k t^2k x / (2k)! / (4k + 1), and the same with 2k + 1 in place of 2k."""
        even, s, c = state
        even = -even * t * t / (2 * k * (2 * k - 1))
        return even, s + even * t / ((2 * k + 1) * (4 * k + 3)), c + even / (4 * k + 1)

    _, s_near, c_near = times(16, term, (u, u * t / 3, u))
    v = where(small | (size == np.inf), 2, size)
    # C + i S = (1 + i)/2 (1 - exp(i pi x^2 / 2) w(sqrt(pi)/2 (1 + i) x)); the angle is reduced by whole turns.
    angle = math.pi / 2 * lax.rem(v * v, lax.full_like(v, 4))
    half = v * (_ROOT_PI / 2)
    both = 0.5 * (1 + 1j) * (1 - lax.complex(lax.cos(angle), lax.sin(angle)) * _wofz(lax.complex(half, half)))
    s, c = where(small, s_near, lax.imag(both)), where(small, c_near, lax.real(both))
    s, c = (where(size == np.inf, 0.5, part) for part in (s, c))
    s, c = (where(x != x, np.nan, where(x < 0, -part, part)) for part in (s, c))
    return s, c


@_fresnel.defjvp
def _fresnel_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    angle = math.pi / 2 * x * x
    return _fresnel(x), (lax.sin(angle) * x_dot, lax.cos(angle) * x_dot)


@elementwise("1.0", "[0.4383, 0.7799]", gives="(S, C)")
def fresnel(x: Any) -> tuple:
    """The integrals of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x."""
    return _fresnel(x)


_NODES, _WEIGHTS = (v.tolist() for v in np.polynomial.legendre.leggauss(40))


def _ndtr(x: Any) -> Any:
    return 0.5 * lax.erfc(-x * math.sqrt(0.5))


@custom_jvp
def _owens_t(h: Any, a: Any) -> Any:
    h, size = lax.abs(h), lax.abs(a)
    large = size > 1
    p, q = where(large, h * where(size == np.inf, 1, size), h), where(large, 1 / size, size)
    # Where the exponential is already nothing, there is nothing to integrate.
    end = lax.min(q, where(p > 0, 9 / where(p > 0, p, 1), q))
    total = h * 0
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        t = end * (0.5 * (node + 1))
        total = total + weight * lax.exp(-0.5 * p * p * (1 + t * t)) / (1 + t * t)
    inner = total * end / (4 * math.pi)
    one, both = _ndtr(-h), _ndtr(-p)
    outer = (one + both) / 2 - one * both - inner
    outer = where(size == np.inf, one / 2, outer)
    value = where(h == 0, lax.atan(size) / (2 * math.pi), where(large, outer, inner))
    return where(a < 0, -value, where((a != a) | (h != h), np.nan, value))


@_owens_t.defjvp
def _owens_t_jvp(primals: tuple, tangents: tuple) -> tuple:
    (h, a), (h_dot, a_dot) = primals, tangents
    by_a = lax.exp(-0.5 * h * h * (1 + a * a)) / (2 * math.pi * (1 + a * a))
    by_h = -lax.exp(-0.5 * h * h) / math.sqrt(2 * math.pi) * lax.erf(a * h * math.sqrt(0.5)) / 2
    return _owens_t(h, a), by_h * h_dot + by_a * a_dot


@elementwise("1.0, 2.0", "0.0785")
def owens_t(h: Any, a: Any) -> Any:
    """Owen's T function: the probability of X > h and 0 < Y < a X, for independent standard normal X and Y."""
    return _owens_t(h, a)
