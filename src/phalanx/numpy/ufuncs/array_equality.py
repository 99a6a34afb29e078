"""Equality of arrays: `isclose`, `allclose`, `array_equal`, `array_equiv`."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.operands import as_array, broadcast_operands, promote, to_operand
from phalanx.numpy.ufuncs import ufunc_table
from phalanx.numpy.ufuncs.ufunc_implementations import isinf, isnan
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike


@eager_jit
def isclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> Array:
    """Whether elements are equal within a tolerance: |a - b| <= atol + rtol |b|.

    Args:
      a, b: arrays that broadcast.
      rtol: relative tolerance.
      atol: absolute tolerance.
      equal_nan: whether NaN equals NaN.

    Returns:
      Booleans with the broadcast shape.

    Raises:
      ShapeError: the shapes do not broadcast.

    Examples:
      >>> jnp.isclose(jnp.array([1.0, 2.0]), jnp.array([1.0, 2.1])).tolist()
      [True, False]
    """
    x, y = promote("isclose", to_operand(a, "isclose"), to_operand(b, "isclose"))
    if not dtypes.issubdtype(x.dtype, np.inexact):
        if x.dtype.kind == "b" or dtypes.is_extended(x.dtype):
            return ufunc_table.equal(x, y)
        # The tolerance is fractional, so that integers are compared in floating point.
        x, y = (v.astype(dtypes.to_inexact_dtype(v.dtype)) for v in (as_array(x), as_array(y)))
    x, y = broadcast_operands("isclose", x, y)
    bound = ufunc_table.add(atol, ufunc_table.multiply(rtol, lax.abs(y)))
    close = ufunc_table.less_equal(lax.abs(lax.sub(x, y)), bound)
    # The tolerance of an infinite operand is infinite: infinities are close only if they are equal.
    infinite = lax.bitwise_or(isinf(x), isinf(y))
    out = ufunc_table.logical_or(lax.eq(x, y), ufunc_table.logical_and(close, lax.bitwise_not(infinite)))
    both_nan = lax.bitwise_and(isnan(x), isnan(y))
    return ufunc_table.logical_or(out, ufunc_table.logical_and(both_nan, equal_nan))


@eager_jit
def allclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> Array:
    """Whether all elements are equal within a tolerance.

    Args:
      a, b, rtol, atol, equal_nan: as in `isclose`.

    Returns:
      bool[].

    Raises:
      ShapeError: the shapes do not broadcast.

    Examples:
      >>> jnp.allclose(jnp.array([1.0, 2.0]), jnp.array([1.0, 2.0])).item()
      True
    """
    close = isclose(a, b, rtol, atol, equal_nan)
    return lax.reduce_and(close, tuple(range(close.ndim)))


def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """Whether two arrays have the same shape and elements.

    Args:
      a1, a2: arrays, scalars or nested lists of numbers.
      equal_nan: whether NaN equals NaN.

    Returns:
      bool[]; False if the shapes differ or an operand cannot be converted to an array.

    Examples:
      >>> jnp.array_equal(jnp.arange(3), jnp.arange(3)).item()
      True
    """
    try:
        x, y = (array(v) if isinstance(v, list | tuple) else to_operand(v, "array_equal") for v in (a1, a2))
    # As in NumPy, data that are not numeric are not equal to anything.
    except (TypeError, ValueError):
        return as_array(np.asarray(False))
    if x.shape != y.shape:
        return as_array(np.asarray(False))
    return _all_equal(x, y, equal_nan)


@eager_jit(static_argnames=("equal_nan",))
def _all_equal(x: Array, y: Array, equal_nan: bool) -> Any:
    same = ufunc_table.equal(x, y)
    if equal_nan:
        same = ufunc_table.logical_or(same, ufunc_table.logical_and(ufunc_table.isnan(x), ufunc_table.isnan(y)))
    return lax.reduce_and(same, tuple(range(same.ndim)))


def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Whether two arrays broadcast to the same elements.

    Args:
      a1, a2: arrays, scalars or nested lists of numbers.

    Returns:
      bool[]; False if the shapes do not broadcast.

    Examples:
      >>> jnp.array_equiv(jnp.ones(3), 1.0).item()
      True
    """
    x, y = (array(v) if isinstance(v, list | tuple) else to_operand(v, "array_equiv") for v in (a1, a2))
    try:
        x, y = broadcast_operands("array_equiv", x, y)
    except ValueError:
        return as_array(np.asarray(False))
    return _all_equal(x, y, False)
