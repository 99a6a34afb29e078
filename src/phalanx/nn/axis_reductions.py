"""Operands and axes of the functions of `nn`: conversion to floating dtypes, `axis` arguments, masked reductions.

Builds on `core` and `lax`; called by the other files of this folder only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import AxisError, dtypes, get_aval
from phalanx.typing import ArrayLike

Axis = int | Sequence[int] | None


def as_inexact(x: ArrayLike) -> Any:
    """Convert integers and booleans to a floating dtype; other dtypes are not changed."""
    aval = get_aval(x)
    if dtypes.issubdtype(aval.dtype, np.inexact):
        # Host scalars become arrays, which have a shape and a dtype.
        return x if hasattr(x, "aval") or type(x) is np.ndarray else lax.convert_element_type(x, aval.dtype)
    return lax.convert_element_type(x, dtypes.to_inexact_dtype(aval.dtype))


def resolve_dim(where: str, axis: int, ndim: int) -> int:
    """Resolve an axis, which may be negative, to a dimension."""
    if not -ndim <= axis < ndim:
        raise AxisError(
            f"{where} axis",
            expected=f"an axis in [-{ndim}, {ndim})",
            got=axis,
            fix=f"pass an axis from {-ndim} to {ndim - 1}",
        )
    return axis + ndim if axis < 0 else axis


def resolve_dims(where: str, axis: Axis, ndim: int) -> tuple[int, ...]:
    """Resolve an `axis` argument to dimensions: one axis, several, or None for all."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, int | np.integer):
        return (resolve_dim(where, int(axis), ndim),)
    return tuple(sorted({resolve_dim(where, int(a), ndim) for a in axis}))


def broadcast_reduced(y: ArrayLike, shape: tuple, dims: tuple) -> Any:
    """Broadcast the result of a reduction over `dims` back to the shape of the operand."""
    return lax.broadcast_in_dim(y, shape, tuple(d for d in range(len(shape)) if d not in dims))


def sum_widened(x: ArrayLike, dims: tuple) -> Any:
    """Sum over `dims`. Dtypes narrower than 32 bits are summed in float32, where small addends are not lost."""
    dtype = x.dtype
    # In bfloat16, a running sum of 256 no longer changes when 1 is added.
    if dtype.itemsize >= 4:
        return lax.reduce_sum(x, dims)
    return lax.convert_element_type(lax.reduce_sum(lax.convert_element_type(x, np.float32), dims), dtype)


def apply_mask(x: ArrayLike, where: ArrayLike | None, fill: ArrayLike) -> Any:
    """Replace the elements of `x` outside a mask, which broadcasts to it, by `fill`; no change if the mask is None."""
    if where is None:
        return x
    aval = get_aval(x)
    where = lax.broadcast_like(lax.convert_element_type(where, bool), x)
    return lax.select(where, x, lax.full(aval.shape, fill, aval.dtype))
