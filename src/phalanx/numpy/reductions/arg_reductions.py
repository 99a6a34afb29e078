"""Indices of extreme elements: `argmax` and `argmin`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ShapeError, dtypes
from phalanx.numpy.operands import flatten_without_axis, refuse_out, to_operand
from phalanx.numpy.reductions.array_reductions import _static, restore_reduced_dims
from phalanx.typing import Array, ArrayLike


@_static
def argmax(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Index of the maximum along an axis; the first one of equal elements.

    Args:
      a: array or scalar.
      axis: the axis; None for an index into the flattened array.
      out: must be None; arrays are immutable.
      keepdims: keep the reduced dimension with size 1.

    Returns:
      Indices in the default integer dtype, with the axis removed.

    Raises:
      ArgumentError: `out` is given.
      AxisError: an axis is out of range.
      ShapeError: the array is empty.

    Examples:
      >>> jnp.argmax(jnp.array([3, 9, 5])).item()
      1
    """
    return _arg_extreme("argmax", a, axis, out, keepdims, lax.argmax)


@_static
def argmin(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Index of the minimum along an axis; the first one of equal elements.

    Args:
      a, axis, out, keepdims: as in `argmax`.

    Returns:
      Indices in the default integer dtype, with the axis removed.

    Raises:
      ArgumentError: `out` is given.
      AxisError: an axis is out of range.
      ShapeError: the array is empty.

    Examples:
      >>> jnp.argmin(jnp.array([3, 9, 5])).item()
      0
    """
    return _arg_extreme("argmin", a, axis, out, keepdims, lax.argmin)


def _arg_extreme(name: str, a: Array, axis: int | None, out: None, keepdims: bool | None, op: Callable) -> Any:
    refuse_out(out, name)
    x = to_operand(a, name)
    dims = x.shape
    x, position = flatten_without_axis(x, axis, name)
    if type(x.shape[position]) is int and x.shape[position] == 0:
        raise ShapeError(
            name, expected="at least one element", got=f"an array of shape {dims}", fix="check x.size before the call"
        )
    y = op(x, position, dtypes.canonicalize_dtype(np.int64))
    if keepdims:
        y = restore_reduced_dims(y, dims, tuple(range(len(dims))) if axis is None else (position,))
    return y
