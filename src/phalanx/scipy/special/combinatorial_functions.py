"""Factorials, binomial coefficients, rising factorials, and other functions of the gamma function that are not ufuncs.

Builds on `gamma_functions`.
"""

from __future__ import annotations

import math

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError
from phalanx.numpy.operands import broadcast_operands, cast, to_numpy_scalar
from phalanx.numpy.ufuncs.ufunc_implementations import select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_real, to_inexact_operands
from phalanx.scipy.special.gamma_functions import betaln, gammasgn, is_gamma_pole, log_gamma_ratio
from phalanx.typing import Array, ArrayLike


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
    return select_where(inside, value, select_where((at_one & at_zero) | ~((x >= 0) & (x <= 1)), np.nan, step))


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
    n, k = to_inexact_operands("comb", N, k)
    n = n + k - 1 if repetition else n
    inside = (k >= 0) & (n >= k) & (n >= 0)
    n, k = select_where(inside, n, 1), select_where(inside, k, 0)
    # n over k = 1 / ((n + 1) B(n - k + 1, k + 1)), by logarithms to avoid overflow.
    value = lax.exp(-betaln(n - k + 1, k + 1) - lax.log1p(n))
    return select_where(inside, value, 0)


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
    terms = lax.lgamma(jnp.subtract(lax.expand_dims(a, (a.ndim,)), halves))
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
    return select_where(m == 0, 1, select_where(start & ~end, 0, select_where(end & ~start, np.inf, value)))


def _check_inexact(name: str, exact: bool) -> None:
    if exact:
        raise ArgumentError(f"{name}, argument exact", expected="False", got=True, fix=f"use math.{name} on ints")
