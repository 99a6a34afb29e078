"""The gamma and beta functions, and functions of them: factorials, binomial coefficients, rising factorials and others.

Builds on `lax`; `special_ufuncs` makes the public ufuncs of `gamma`, `gammasgn`, `loggamma`, `beta` and `betaln`.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError
from phalanx.numpy.operands import align_ranks, broadcast_operands, cast, to_numpy_scalar
from phalanx.numpy.ufuncs.ufunc_implementations import common_dtype, isnan, select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_real, to_inexact_operands
from phalanx.scipy.special.elementwise_algorithm import evaluate_polynomial
from phalanx.typing import Array, ArrayLike


def gammasgn(x: Array) -> Array:
    """The sign of the gamma function, NaN at its poles."""
    floor = lax.floor(x)
    is_odd = lax.rem(lax.abs(floor), lax.full_like(floor, 2)) != 0
    # The reciprocal is negative for -0.0 too.
    is_negative = (1 / x < 0) & (is_odd | (x == 0))
    sign = select_where(is_negative, to_numpy_scalar(-1, common_dtype(x)), lax.full_like(x, 1))
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
    passed = functools.reduce(lambda total, k: total + lax.log(z + k), range(1, 10), lax.log(z))
    z = z + 10
    series = evaluate_polynomial((-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12), 1 / (z * z))
    return (z - 0.5) * lax.log(z) - z + 0.5 * math.log(2 * math.pi) + series / z - passed


def log_gamma_ratio(z: Array, m: Array) -> Array:
    """log|gamma(z + m) / gamma(z)|.

    For large z the difference of two `lgamma` cancels, so Stirling's series of both is subtracted term by term.
    """
    bound = 10.0 if common_dtype(z).itemsize <= 4 else 100.0
    large = (z >= bound) & (z + m >= bound)
    x, step = select_where(large, z, bound), select_where(large, m, 0)
    rest = [(1 / 12 - (1 / 360 - 1 / (1260 * t * t)) / (t * t)) / t for t in (x, x + step)]
    far = (x - 0.5) * lax.log1p(step / x) + step * (lax.log(x + step) - 1) + rest[1] - rest[0]
    return select_where(large, far, lax.lgamma_p(z + m) - lax.lgamma_p(z))


def is_gamma_pole(x: Array) -> Array:
    """Whether the gamma function has a pole at x: 0, -1, -2, ..."""
    return (x <= 0) & (x == lax.floor_p(x)) & (x > -np.inf)


def _order(a: Array, b: Array) -> tuple[Array, Array]:
    """The smaller and the larger number, by a choice: `min` and `max` have no second derivatives where a = b."""
    return select_where(a > b, b, a), select_where(a > b, a, b)


def _sign_and_log_beta(a: Array, b: Array) -> tuple:
    """The sign of the beta function, and the logarithm of its magnitude."""
    a, b = _order(a, b)
    # For an integer 0 < b < 1 - a, both gamma(a) and gamma(a + b) have a pole, and their ratio is finite by reflection.
    turned = is_gamma_pole(a) & (b > 0) & (b == lax.floor_p(b)) & (b < 1 - a)
    odd = lax.rem_p(select_where(turned, b, 0), to_numpy_scalar(2, common_dtype(b))) != 0
    a = select_where(turned, 1 - a - b, a)
    diverges = is_gamma_pole(a) | is_gamma_pole(b) | ((b == np.inf) & (a <= 0))
    vanishes = ((b == np.inf) & (a > 0) & (a < np.inf)) | (is_gamma_pole(a + b) & ~diverges)
    x, y = (select_where(diverges | vanishes, 1, v) for v in _order(a, b))
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


@eager_jit
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The regularised incomplete beta function.

    Args:
      a, b: the parameters.
      x: the upper end of the integral, from 0 to 1.

    Returns:
      The value for each element, in the broadcast shape.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.betainc(2.0, 3.0, 0.5).item(), 4)
      0.6875
    """
    a, b, x = broadcast_operands("betainc", *to_inexact_operands("betainc", a, b, x))
    # As a grows to infinity (or b shrinks to 0), the beta distribution becomes a point mass at 1, and in the opposite
    # limits at 0. Its distribution function is then a step function of x.
    at_one, at_zero = (b == 0) | (a == np.inf), (a == 0) | (b == np.inf)
    inside = ~(at_one | at_zero) & (x >= 0) & (x <= 1)
    value = lax.betainc(*(select_where(inside, v, 0.5) for v in (a, b, x)))
    step = cast(select_where(at_one, x >= 1, x > 0), value.dtype)
    has_limit = (at_one ^ at_zero) & (a >= 0) & (b >= 0) & (x >= 0) & (x <= 1)
    return select_where(inside, value, select_where(has_limit, step, np.nan))


@eager_jit
def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """The n-th derivative of the digamma function.

    Args:
      n: the order of the derivative.
      x: the points.

    Returns:
      The value for each element, in the broadcast shape.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.polygamma(1, 1.0).item(), 4)
      1.6449
    """
    return lax.polygamma(*broadcast_operands("polygamma", *to_inexact_operands("polygamma", n, x)))


@eager_jit(static_argnames=("exact",))
def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """The factorial, 0 for negative numbers.

    Args:
      n: the numbers.
      exact: must be False.

    Returns:
      The value for each element, in floating point.

    Raises:
      ArgumentError: `exact` is True.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.factorial(5).item())
      120
    """
    _check_inexact("factorial", exact)
    (x,) = to_inexact_operands("factorial", n)
    return select_where(x < 0, 0, lax.exp(lax.lgamma(select_where(x < 0, 0, x) + 1)))


@eager_jit(static_argnames=("repetition", "exact"))
def comb(N: ArrayLike, k: ArrayLike, *, exact: bool = False, repetition: bool = False) -> Array:
    """The number of ways to choose k of N items.

    Args:
      N: the number of items.
      k: the number of chosen items.
      exact: must be False.
      repetition: whether an item may be chosen more than once.

    Returns:
      The binomial coefficient for each element, in floating point.

    Raises:
      ArgumentError: `exact` is True.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.comb(5, 2).item(), 3)
      10.0
    """
    _check_inexact("comb", exact)
    n, k = broadcast_operands("comb", *align_ranks(*to_inexact_operands("comb", N, k)))
    n = n + k - 1 if repetition else n
    inside = (k >= 0) & (n >= k) & (n >= 0)
    n, k = select_where(inside, n, 1), select_where(inside, k, 0)
    # n over k = 1 / ((n + 1) B(n - k + 1, k + 1)), by logarithms to avoid overflow.
    return select_where(inside, lax.exp(-betaln(n - k + 1, k + 1) - lax.log1p(n)), 0)


@eager_jit(static_argnames=("d",))
def multigammaln(a: ArrayLike, d: int) -> Array:
    """The logarithm of the multivariate gamma function.

    Args:
      a: the points.
      d: the dimension.

    Returns:
      The value for each element.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.multigammaln(3.0, 2).item(), 4)
      1.5502
    """
    (a,) = to_inexact_operands("multigammaln", a)
    halves = (np.arange(d) / 2).astype(a.dtype)
    terms = lax.lgamma(jnp.subtract(*align_ranks(lax.expand_dims(a, (a.ndim,)), halves)))
    return jnp.sum(terms, axis=-1) + a.dtype.type(0.25 * d * (d - 1) * math.log(math.pi))


@eager_jit
def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """The rising factorial gamma(z + m) / gamma(z).

    Args:
      z, m: arrays or scalars that broadcast to one shape.

    Returns:
      The value for each element.

    Raises:
      DTypeError: an operand is complex.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.poch(2.0, 3.0).item(), 3)
      24.0
    """
    z, m = to_inexact_operands("poch", z, m)
    check_real("poch", z)
    start, end = is_gamma_pole(z), is_gamma_pole(z + m)
    # Both gamma functions have a pole, and their ratio is finite by reflection.
    turned = start & end
    odd = lax.rem(select_where(turned, lax.abs(m), 0), to_numpy_scalar(2, m.dtype)) != 0
    x = select_where(turned, 1 - z - m, select_where(start | end, 1, z))
    sign = select_where(turned, select_where(odd, -1, to_numpy_scalar(1, x.dtype)), gammasgn(x + m) * gammasgn(x))
    value = sign * lax.exp(log_gamma_ratio(x, m))
    is_one = (m == 0) & (start | (lax.abs(z) == np.inf))  # Elsewhere `value` is 1, and has a derivative in m.
    return select_where(is_one, 1, select_where(start & ~end, 0, select_where(end & ~start, np.inf, value)))


def _check_inexact(name: str, exact: bool) -> None:
    if exact:
        raise ArgumentError(f"{name}, argument exact", expected="False", got=True, fix=f"use math.{name} on ints")
