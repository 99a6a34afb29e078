"""Comparisons of whole arrays: allclose, isclose, array_equal."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.numpy import ufuncs
from phalanx.numpy.bodies import isinf, isnan
from phalanx.numpy.creation import array
from phalanx.numpy.operands import as_array, broadcast_operands, operand, promote
from phalanx.runtime.dispatch import eager_program


@eager_program
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether elements are equal up to a tolerance: |a - b| <= atol + rtol |b|.

    Args:
      a, b: arrays that broadcast.
      rtol: relative tolerance.
      atol: absolute tolerance.
      equal_nan: whether NaN equals NaN.

    Returns:
      Booleans in the broadcast shape.

    Raises:
      ShapeError: the shapes do not broadcast.

    Examples:
      >>> jnp.isclose(jnp.array([1.0, 2.0]), jnp.array([1.0, 2.1])).tolist()
      [True, False]
    """
    x, y = promote("isclose", operand(a, "isclose"), operand(b, "isclose"))
    if not dtypes.issubdtype(x.dtype, np.inexact):
        if x.dtype.kind == "b":
            return ufuncs.equal(x, y)
        x, y = (v.astype(dtypes.to_inexact_dtype(v.dtype)) for v in (as_array(x), as_array(y)))
    x, y = broadcast_operands("isclose", x, y)
    bound = ufuncs.add(atol, ufuncs.multiply(rtol, lax.abs(y)))
    close = ufuncs.less_equal(lax.abs(lax.sub(x, y)), bound)
    infinite = lax.bitwise_or(isinf(x), isinf(y))
    out = ufuncs.logical_or(lax.eq(x, y), ufuncs.logical_and(close, lax.bitwise_not(infinite)))
    both_nan = lax.bitwise_and(isnan(x), isnan(y))
    return ufuncs.logical_or(out, ufuncs.logical_and(both_nan, equal_nan))


@eager_program
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether all elements are equal up to a tolerance.

    Args:
      a, b, rtol, atol, equal_nan: as in `isclose`.

    Returns:
      bool[], an array.

    Raises:
      ShapeError: the shapes do not broadcast.

    Examples:
      >>> jnp.allclose(jnp.array([1.0, 2.0]), jnp.array([1.0, 2.0])).item()
      True
    """
    close = isclose(a, b, rtol, atol, equal_nan)
    return lax.reduce_and(close, tuple(range(close.ndim)))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether two arrays have the same shape and elements.

    Args:
      a1, a2: arrays, scalars or nested lists of numbers.
      equal_nan: whether NaN equals NaN.

    Returns:
      bool[], an array; False where the shapes differ or an operand is no array.

    Examples:
      >>> jnp.array_equal(jnp.arange(3), jnp.arange(3)).item()
      True
    """
    try:
        x, y = (array(v) if isinstance(v, list | tuple) else operand(v, "array_equal") for v in (a1, a2))
    except (TypeError, ValueError):
        return as_array(np.asarray(False))
    if x.shape != y.shape:
        return as_array(np.asarray(False))
    return _all_equal(x, y, equal_nan)


@eager_program(static_argnames=("equal_nan",))
def _all_equal(x: Any, y: Any, equal_nan: bool) -> Any:
    same = ufuncs.equal(x, y)
    if equal_nan:
        same = ufuncs.logical_or(same, ufuncs.logical_and(ufuncs.isnan(x), ufuncs.isnan(y)))
    return lax.reduce_and(same, tuple(range(same.ndim)))


def array_equiv(a1: Any, a2: Any) -> Any:
    """Whether two arrays broadcast to the same elements.

    Args:
      a1, a2: arrays, scalars or nested lists of numbers.

    Returns:
      bool[], an array; False where the shapes do not broadcast.

    Examples:
      >>> jnp.array_equiv(jnp.ones(3), 1.0).item()
      True
    """
    x, y = (array(v) if isinstance(v, list | tuple) else operand(v, "array_equiv") for v in (a1, a2))
    try:
        x, y = broadcast_operands("array_equiv", x, y)
    except ValueError:
        return as_array(np.asarray(False))
    return _all_equal(x, y, False)
