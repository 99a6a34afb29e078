"""What may stand as an operand of `nn`'s functions, and the dimensions that an `axis` argument means.

Builds on `core` and `lax`; called by the other files of this folder only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import AxisError

Axis = int | Sequence[int] | None


def inexact(x: Any) -> Any:
    """`x` with a floating dtype: integers and booleans are converted, all others left as they are."""
    aval = aval_of(x)
    if dtypes.issubdtype(aval.dtype, np.inexact):
        return x if hasattr(x, "aval") or type(x) is np.ndarray else lax.convert_element_type(x, aval.dtype)
    return lax.convert_element_type(x, dtypes.to_inexact_dtype(aval.dtype))


def dim_of(where: str, axis: int, ndim: int) -> int:
    """The dimension that an axis means, counted from the front."""
    if not -ndim <= axis < ndim:
        raise AxisError(
            f"{where} axis", expected=f"an axis in [-{ndim}, {ndim})", got=axis, mend="name a dimension it has"
        )
    return axis + ndim if axis < 0 else axis


def dims_of(where: str, axis: Axis, ndim: int) -> tuple[int, ...]:
    """The dimensions that an axis, several, or None for all, mean."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, int | np.integer):
        return (dim_of(where, int(axis), ndim),)
    return tuple(sorted({dim_of(where, int(a), ndim) for a in axis}))


def spread(y: Any, shape: tuple, dims: tuple) -> Any:
    """A reduction over `dims` repeated to the shape it came from."""
    return lax.broadcast_in_dim(y, shape, tuple(d for d in range(len(shape)) if d not in dims))


def total(x: Any, dims: tuple) -> Any:
    """The sum over `dims`; numbers of fewer than 32 bits are summed in 32, where small ones still count."""
    dtype = x.dtype
    if dtype.itemsize >= 4:
        return lax.reduce_sum(x, dims)
    return lax.convert_element_type(lax.reduce_sum(lax.convert_element_type(x, np.float32), dims), dtype)


def masked(x: Any, where: Any, fill: Any) -> Any:
    """`x` where a mask that broadcasts to it holds, else `fill`; all of `x` without a mask."""
    if where is None:
        return x
    aval = aval_of(x)
    where = lax.broadcast_like(lax.convert_element_type(where, bool), x)
    return lax.select(where, x, lax.full(aval.shape, fill, aval.dtype))
