"""The error function and its relatives: the normal distribution and its quantile; scaled and complex error functions;
the integrals of Dawson, Fresnel and Owen.

Each function selects between two expansions by the size of its argument. The argument of the expansion that is not
selected is replaced by a constant, so that no NaN or overflow reaches the derivative. `special_ufuncs` makes the
public functions of the normal distribution and its quantiles. Builds on `elementwise_algorithm`.

Source: Wichura (1988), Algorithm AS 241, doi:10.2307/2347330 (quantiles);
Weideman (1994), doi:10.1137/0731077 (complex numbers); Owen (1956), doi:10.1214/aoms/1177728074; DLMF 7.
"""

from __future__ import annotations

import math

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.numpy.operands import cast, to_numpy_scalar
from phalanx.numpy.ufuncs.ufunc_implementations import common_dtype, select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import to_complex, to_inexact_array
from phalanx.scipy.special.elementwise_algorithm import (
    elementwise,
    evaluate_polynomial,
    incomplete_gamma_fraction,
    repeat,
    sum_terms,
    with_derivatives,
)
from phalanx.typing import Array, ArrayLike

_ROOT_PI = math.sqrt(math.pi)


def ndtr(x: Array) -> Array:
    """The distribution function of the standard normal distribution.

    Near 0 it is computed from `erf`, and in the tails from `erfc`, whose small values are accurate.
    """
    w = x * math.sqrt(0.5)
    tail = 0.5 * lax.erfc(lax.abs(w))
    return select_where(lax.abs(w) < math.sqrt(0.5), 0.5 + 0.5 * lax.erf(w), select_where(w > 0, 1 - tail, tail))


def log_ndtr(x: Array) -> Array:
    """The logarithm of `ndtr`."""
    # log(ndtr(x)) in the middle; far below 0 the asymptotic series of Mills' ratio, whose terms are 1, -1, 3, -15, ...
    # times 1 / x^2k; far above 0 the first term of log(1 - ndtr(-x)).
    low = -10.0 if common_dtype(x).itemsize <= 4 else -20.0
    far = lax.lt_p(x, to_numpy_scalar(low, common_dtype(x)))
    high = lax.gt_p(x, to_numpy_scalar(5.0 if common_dtype(x).itemsize <= 4 else 8.0, common_dtype(x)))
    plain = lax.log(ndtr(select_where(far | high, 0, x)))
    t = select_where(far, x, low)
    inverse = 1 / lax.square(t)
    series = 1 + inverse * (-1 + inverse * (3 + inverse * (-15 + inverse * (105 - inverse * 945))))
    asymptotic = -0.5 * lax.square(t) - lax.log(-t) - 0.5 * math.log(2 * math.pi) + lax.log(series)
    above = lax.neg_p(ndtr(lax.neg_p(select_where(high, x, 0))))
    return select_where(far, asymptotic, select_where(high, above, plain))


# Numerators and denominators of the rational functions of PPND16, from the highest power: for the central part, the
# tails, and the far tails.
# fmt: off
_MIDDLE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)
_OUTER = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)
_END = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)
# fmt: on


def _fraction(coefficients: tuple, x: Array) -> Array:
    upper, lower = coefficients
    return evaluate_polynomial(upper, x) / evaluate_polynomial(lower, x)


def ndtri(p: Array) -> Array:
    """The quantile of the standard normal distribution, the inverse of `ndtr`."""
    dtype = common_dtype(p)
    p = cast(p, np.dtype(np.float32)) if dtype.itemsize < 4 else p
    q = p - 0.5
    # The bounds 0.425 and 5 are from AS 241, between which each rational function is accurate.
    central = abs(q) <= 0.425
    near = _near_quantile(select_where(central, q, 0))
    far = _far_quantile(-lax.log(select_where(central, 0.25, lax.min(p, 1 - p))))
    return cast(select_where(central, near, select_where(q < 0, -far, far)), dtype)


def _near_quantile(q: Array) -> Array:
    """The quantile of the standard normal distribution at 1/2 + q, for |q| <= 0.425."""
    return q * _fraction(_MIDDLE, 0.180625 - q * q)


def _far_quantile(surprise: Array) -> Array:
    """The magnitude of the quantile whose tail probability is exp(-surprise), for probabilities up to 0.075."""
    r = lax.sqrt(surprise)
    far = select_where(r <= 5, _fraction(_OUTER, r - 1.6), _fraction(_END, select_where(r < np.inf, r, 5) - 5))
    return select_where(r < np.inf, far, r)  # keeps NaN, the result for numbers outside of [0, 1]


def erfcinv(y: Array) -> Array:
    """The inverse of the complementary error function."""
    dtype = common_dtype(y)
    y = cast(y, np.dtype(np.float32)) if dtype.itemsize < 4 else y
    central = abs(y - 1) <= 0.85
    near = _near_quantile(select_where(central, 0.5 - y / 2, 0))
    # log(2) - log(y) and not -log(y / 2), since y / 2 may underflow.
    far = _far_quantile(math.log(2) - lax.log(select_where(central, 0.1, lax.min(y, 2 - y))))
    return cast(select_where(central, near, select_where(y < 1, far, -far)) * math.sqrt(0.5), dtype)


@elementwise("100.0", "0.005642")
@with_derivatives(lambda x_dot, y, x: (2 * x * y - 2 / _ROOT_PI) * x_dot)
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
@with_derivatives(lambda x_dot, y, x: (1 - 2 * x * y) * x_dot)
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
    tail = sum_terms(20, lambda k: (2 * k - 1) / (2 * v * v), lax.full_like(v, 1))
    value = jnp.where(small, u * total, tail / (2 * v))
    return jnp.where(x < 0, -value, jnp.where(x != x, np.nan, value))


def _weideman(n: int) -> tuple:
    """The scale and the coefficients, highest power first, of Weideman's rational approximation of order n."""
    m, scale = 2 * n, math.sqrt(n / math.sqrt(2))
    t = scale * np.tan(np.arange(-m + 1, m) * np.pi / m / 2)
    f = np.concatenate([[0.0], np.exp(-t * t) * (scale**2 + t * t)])
    return scale, np.real(np.fft.fft(np.fft.fftshift(f)))[1 : n + 1][::-1] / (2 * m)


# Order 48 has a relative error below 3e-14 in the upper half-plane up to |z| = 8; beyond, a continued fraction is used.
_SCALE, _COEFFICIENTS = _weideman(48)


@with_derivatives(lambda z_dot, w, z: (2j / _ROOT_PI - 2 * z * w) * z_dot)
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


@elementwise("1.0", "[0.4383, 0.7799]", result="(S, C)")
@with_derivatives(lambda x_dot, y, x: (lax.sin(math.pi / 2 * x * x) * x_dot, lax.cos(math.pi / 2 * x * x) * x_dot))
def fresnel(x: Array) -> tuple:
    """The integrals of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x."""
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
    return tuple(jnp.where(x != x, np.nan, jnp.where(x < 0, -part, part)) for part in (s, c))


_NODES, _WEIGHTS = (v.tolist() for v in np.polynomial.legendre.leggauss(40))


@elementwise("1.0, 2.0", "0.0785")
@with_derivatives(
    lambda h_dot, y, h, a: (
        -lax.exp(-0.5 * h * h) / math.sqrt(2 * math.pi) * lax.erf(a * h * math.sqrt(0.5)) / 2 * h_dot
    ),
    lambda a_dot, y, h, a: lax.exp(-0.5 * h * h * (1 + a * a)) / (2 * math.pi * (1 + a * a)) * a_dot,
)
def owens_t(h: Array, a: Array) -> Array:
    """Owen's T function: the probability of X > h and 0 < Y < a X, for independent standard normal X and Y."""
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
    one, both = ndtr(-h), ndtr(-p)
    outer = jnp.where(size == np.inf, one / 2, (one + both) / 2 - one * both - inner)
    value = jnp.where(h == 0, lax.atan(size) / (2 * math.pi), jnp.where(large, outer, inner))
    return jnp.where(a < 0, -value, jnp.where((a != a) | (h != h), np.nan, value))
