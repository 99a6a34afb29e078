"""Cumulative sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, dtypes
from phalanx.numpy.operands import canonical_axis, cast, flatten_without_axis, refuse_out, to_operand
from phalanx.numpy.reductions.array_reductions import _static
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, DTypeLike


def _cumulative(
    name: str, a: Array, axis: int | None, dtype: np.dtype, out: None, op: Callable, promote: bool = False
) -> Any:
    refuse_out(out, name)
    x = to_operand(a, name)
    x, axis = flatten_without_axis(x, axis, name)
    if dtype is not None:
        x = cast(x, dtypes.requested_dtype(dtype, name))
    elif x.dtype.kind == "b" or (x.dtype.kind in "iu" and promote):
        wide = dtypes.canonicalize_dtype(np.uint64 if x.dtype.kind == "u" else np.int64)
        x = cast(x, wide) if wide.itemsize > x.dtype.itemsize or x.dtype.kind == "b" else x
    # `lax` accumulates in the dtype of the operand.
    y = op(x, axis=axis)
    return cast(y, y.dtype)


@_static
def cumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    """Cumulative sum along an axis, or of the flattened array.

    Args:
      a: array or scalar.
      axis: the axis; None flattens the array first.
      dtype: dtype of the computation and of the result; booleans are summed as integers by default.
      out: must be None; arrays are immutable.

    Returns:
      An array of the shape of `a`; a vector if `axis` is None.

    Raises:
      ArgumentError: `out` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.cumsum(jnp.array([1, 2, 3])).tolist()
      [1, 3, 6]
    """
    return _cumulative("cumsum", a, axis, dtype, out, lax.cumsum)


@_static
def cumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    """Cumulative product along an axis, or of the flattened array.

    Args:
      a, axis, dtype, out: as in `cumsum`.

    Returns:
      An array of the shape of `a`; a vector if `axis` is None.

    Raises:
      ArgumentError: `out` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.cumprod(jnp.array([1, 2, 3])).tolist()
      [1, 2, 6]
    """
    return _cumulative("cumprod", a, axis, dtype, out, lax.cumprod)


@eager_jit(static_argnames=("axis", "dtype", "include_initial"))
def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Cumulative sum along an axis, optionally preceded by 0.

    Args:
      x: array of rank 1 or more.
      axis: the axis; optional for a vector.
      dtype: dtype of the computation and of the result; small integers use the default integer dtype by default.
      include_initial: prepend 0 along the axis.

    Returns:
      An array of the shape of `x`; one element longer along the axis with `include_initial`.

    Raises:
      ArgumentError: `axis` is None and the rank is not 1.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.cumulative_sum(jnp.array([1, 2]), include_initial=True).tolist()
      [0, 1, 3]
    """
    return _with_initial("cumulative_sum", x, axis, dtype, include_initial, lax.cumsum, 0)


@eager_jit(static_argnames=("axis", "dtype", "include_initial"))
def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Cumulative product along an axis, optionally preceded by 1.

    Args:
      x, axis, dtype: as in `cumulative_sum`.
      include_initial: prepend 1 along the axis.

    Returns:
      An array of the shape of `x`; one element longer along the axis with `include_initial`.

    Raises:
      ArgumentError: `axis` is None and the rank is not 1.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.cumulative_prod(jnp.array([2, 3]), include_initial=True).tolist()
      [1, 2, 6]
    """
    return _with_initial("cumulative_prod", x, axis, dtype, include_initial, lax.cumprod, 1)


def _with_initial(
    name: str, x: Array, axis: int | None, dtype: np.dtype, include: bool, op: Callable, first: int
) -> Any:
    x = to_operand(x, name)
    if axis is None and x.ndim != 1:
        raise ArgumentError(
            f"{name}, argument axis",
            expected="an axis, since the rank is not 1",
            got=None,
            fix="pass axis=, or flatten the array",
        )
    axis = canonical_axis(0 if axis is None else axis, x.ndim, name)
    y = _cumulative(name, x, axis, dtype, None, op, promote=True)
    # The initial element is the neutral element, so that the result has one element more.
    if include:
        dims = (*y.shape[:axis], 1, *y.shape[axis + 1 :])
        y = lax.concatenate([lax.full(dims, first, y.dtype), y], axis)
    return y
