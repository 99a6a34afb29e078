"""The normal distribution function, its logarithm and its inverse, and the inverse of the complementary error function.

Builds on `lax`; `special_ufuncs` defines the public functions.

Source: Wichura (1988), Algorithm AS 241, doi:10.2307/2347330 (inverse).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from phalanx import lax
from phalanx.numpy.operands import cast, to_numpy_scalar
from phalanx.numpy.ufuncs.ufunc_implementations import common_dtype, select_where
from phalanx.typing import Array


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
    upper, lower = (functools.reduce(lambda y, c: y * x + c, row[1:], row[0]) for row in coefficients)
    return upper / lower


def ndtri(p: Array) -> Array:
    """The quantile of the standard normal distribution, the inverse of `ndtr`."""
    dtype = common_dtype(p)
    p = cast(p, np.dtype(np.float32)) if dtype.itemsize < 4 else p
    q = p - 0.5
    # The bounds 0.425 and 5 are those of AS 241, between which each rational function is accurate.
    central = abs(q) <= 0.425
    near = _near_quantile(select_where(central, q, 0))
    far = _far_quantile(-lax.log(select_where(central, 0.25, lax.min(p, 1 - p))))
    return cast(select_where(central, near, select_where(q < 0, -far, far)), dtype)


def _near_quantile(q: Array) -> Array:
    """The quantile of the standard normal distribution at 1/2 + q, for |q| <= 0.425."""
    return q * _fraction(_MIDDLE, 0.180625 - q * q)


def _far_quantile(surprise: Array) -> Array:
    """The magnitude of the quantile whose tail probability is exp(-minus_log_tail), for probabilities up to 0.075."""
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
