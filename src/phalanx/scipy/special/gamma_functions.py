"""Implementations of the gamma and beta functions, and of functions that are computed from them.

Builds on `lax`; `special_ufuncs` and `combinatorial_functions` define the public functions.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from phalanx import lax
from phalanx.numpy.operands import to_numpy_scalar
from phalanx.numpy.ufuncs.ufunc_implementations import common_dtype, isnan, select_where
from phalanx.typing import Array


def gammasgn(x: Array) -> Array:
    """The sign of the gamma function, NaN at its poles."""
    floor = lax.floor(x)
    is_odd = lax.rem(lax.abs(floor), lax.full_like(floor, 2)) != 0
    is_below_zero = 1 / x < 0  # includes -0.0
    sign = select_where(is_below_zero & (is_odd | (x == 0)), to_numpy_scalar(-1, common_dtype(x)), lax.full_like(x, 1))
    return select_where(((x < 0) & (x == floor)) | isnan(x), np.nan, sign)


def gamma(x: Array) -> Array:
    """The gamma function of real or complex numbers."""
    return lax.exp(loggamma(x)) if common_dtype(x).kind == "c" else gammasgn(x) * lax.exp(lax.lgamma(x))


def loggamma(x: Array) -> Array:
    """The principal branch of the logarithm of the gamma function."""
    if common_dtype(x).kind != "c":
        return select_where(x < 0, np.nan, lax.lgamma_p(x))
    below = lax.imag(x) < 0
    z = select_where(below, lax.conj(x), x)
    # For a real part below 1/2 by reflection, on the branch that is continuous in the upper half-plane.
    left = lax.real(z) < 0.5
    right = _stirling(select_where(left, 1 - z, z))
    waves = math.pi * (0.5 - z) * 1j - math.log(2) + lax.log1p(-lax.exp(2j * math.pi * z))
    value = select_where(left, math.log(math.pi) - waves - right, right)
    return select_where(below, lax.conj(value), value)


def _stirling(z: Array) -> Array:
    """log(gamma(z)) for a real part of at least 1/2: Stirling's series at z + 10, and the recurrence back to z."""
    steps = 10
    passed = functools.reduce(lambda total, k: total + lax.log(z + k), range(1, steps), lax.log(z))
    z = z + steps
    coefficients = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
    series = lax.full_like(z, coefficients[0])
    for c in coefficients[1:]:
        series = series / (z * z) + c
    return (z - 0.5) * lax.log(z) - z + 0.5 * math.log(2 * math.pi) + series / z - passed


def log_gamma_ratio(z: Array, m: Array) -> Array:
    """log|gamma(z + m) / gamma(z)|.

    For large z the difference of two `lgamma` cancels, so Stirling's series of both is subtracted term by term.
    """
    bound = 10.0 if common_dtype(z).itemsize <= 4 else 100.0
    large = (z >= bound) & (z + m >= bound)
    x, step = select_where(large, z, bound), select_where(large, m, 0)
    y = x + step
    rest = [(1 / 12 - (1 / 360 - 1 / (1260 * t * t)) / (t * t)) / t for t in (x, y)]
    far = (x - 0.5) * lax.log1p(step / x) + step * (lax.log(y) - 1) + rest[1] - rest[0]
    return select_where(large, far, lax.lgamma_p(z + m) - lax.lgamma_p(z))


def is_gamma_pole(x: Array) -> Array:
    """Whether the gamma function has a pole at x: 0, -1, -2, ..."""
    return (x <= 0) & (x == lax.floor_p(x)) & (x > -np.inf)


def _sign_and_log_beta(a: Array, b: Array) -> tuple:
    """The sign of the beta function, and the logarithm of its magnitude."""
    a, b = lax.min_p(a, b), lax.max_p(a, b)
    # For an integer 0 < b < 1 - a, both gamma(a) and gamma(a + b) have a pole, and their ratio is finite by reflection.
    turned = is_gamma_pole(a) & (b > 0) & (b == lax.floor_p(b)) & (b < 1 - a)
    odd = lax.rem_p(select_where(turned, b, 0), to_numpy_scalar(2, common_dtype(b))) != 0
    a = select_where(turned, 1 - a - b, a)
    diverges = is_gamma_pole(a) | is_gamma_pole(b) | ((b == np.inf) & (a <= 0))
    vanishes = ((b == np.inf) & (a > 0) & (a < np.inf)) | (is_gamma_pole(a + b) & ~diverges)
    x, y = (select_where(diverges | vanishes, 1, v) for v in (lax.min_p(a, b), lax.max_p(a, b)))
    log = select_where(diverges, np.inf, select_where(vanishes, -np.inf, lax.lgamma_p(x) - log_gamma_ratio(y, x)))
    sign = select_where(turned & odd, -1, gammasgn(x) * gammasgn(y) * gammasgn(x + y))
    return select_where(diverges & (b == np.inf) & ~is_gamma_pole(a), gammasgn(a), sign), log


def betaln(a: Array, b: Array) -> Array:
    """The logarithm of the magnitude of the beta function."""
    return _sign_and_log_beta(a, b)[1]


def beta(a: Array, b: Array) -> Array:
    """The beta function."""
    sign, log = _sign_and_log_beta(a, b)
    return sign * lax.exp_p(log)
