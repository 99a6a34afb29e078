"""Summary statistics of samples: mode, ranks, and the standard error of the mean.

Builds on the sorting and the reductions of `numpy`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import dtypes
from phalanx.numpy.operands import as_array, canonical_axis, cast, promote_inexact, to_operand
from phalanx.numpy.sorting.sort_and_search import index_dtype
from phalanx.numpy.ufuncs.ufunc_implementations import isnan, select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_choice, to_inexact_array
from phalanx.typing import Array, ArrayLike


class ModeResult(NamedTuple):
    """The most frequent values, and their numbers of occurrences."""

    mode: Any
    count: Any


def _along(a: Array, axis: int | None, name: str) -> tuple:
    x = as_array(to_operand(a, f"stats.{name}"))
    return (jnp.ravel(x), 0) if axis is None else (x, canonical_axis(axis, x.ndim, f"stats.{name}"))


def _runs(x: Array, axis: int) -> tuple:
    """For sorted values, the position of each one, and the start and end of its run of equal values."""
    n = x.shape[axis]
    position = lax.broadcasted_iota(index_dtype(), x.shape, axis)
    right, left = lax.slice_in_dim(x, 1, n, axis=axis), lax.slice_in_dim(x, 0, n - 1, axis=axis)
    differs = lax.ne(right, left) & lax.bitwise_not(isnan(right) & isnan(left))
    no_padding = [(0, 0, 0)] * x.ndim
    begins, ends = (
        lax.pad(differs, np.True_, [*no_padding[:axis], side, *no_padding[axis + 1 :]])
        for side in ((1, 0, 0), (0, 1, 0))
    )
    # The start of a run is the last position at or before each element where a run begins; likewise the end.
    start = lax.cummax(select_where(begins, position, 0), axis=axis)
    end = lax.cummin(select_where(ends, position, n - 1), axis=axis, reverse=True)
    return position, start, end, begins


@eager_jit(static_argnames=("axis", "nan_policy", "keepdims"))
def mode(a: ArrayLike, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent value along an axis; the smallest one if several are equally frequent.

    Args:
      a: an array.
      axis: the axis; None to flatten the array first.
      nan_policy: `"propagate"` to count NaN like other values, or `"omit"` to ignore it.
      keepdims: whether to keep the axis with size 1.

    Returns:
      A ModeResult (mode, count), both without the axis; NaN and 0 if there are no elements.

    Raises:
      ArgumentError: `nan_policy` is unknown.
      AxisError: the axis is out of bounds.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import stats
      >>> stats.mode(jnp.array([3, 1, 3, 2])).mode.item()
      3
    """
    check_choice("stats.mode", "nan_policy", nan_policy, ("propagate", "omit"))
    array = as_array(to_operand(a, "stats.mode"))
    x, axis = _along(array, axis, "mode")
    kept_shape = (1,) * array.ndim if x is not array and keepdims else None
    if x.shape[axis] == 0:
        (x,) = promote_inexact("stats.mode", x)
        shape = tuple(1 if i == axis else d for i, d in enumerate(x.shape))
        values, counts = lax.full(shape, np.nan, x.dtype), lax.full(shape, 0, index_dtype())
    else:
        x = jnp.sort(x, axis=axis)
        position, start, _, _ = _runs(x, axis)
        # At the last element of a run this is the length of the run. The first maximum thus ends the first longest run,
        # which has the smallest of the most frequent values.
        length = position - start + 1
        # NaN sorts to the end, so it forms one run, which is ignored by its length 0.
        length = select_where(isnan(x), 0, length) if nan_policy == "omit" else length
        index = jnp.argmax(length, axis=axis, keepdims=True)
        values, counts = jnp.take_along_axis(x, index, axis), jnp.take_along_axis(length, index, axis)
    if keepdims:
        return ModeResult(*(v if kept_shape is None else lax.reshape(v, kept_shape) for v in (values, counts)))
    return ModeResult(lax.squeeze(values, (axis,)), lax.squeeze(counts, (axis,)))


@eager_jit(static_argnames=("method", "axis", "nan_policy"))
def rankdata(a: ArrayLike, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Array:
    """The ranks of the elements, from 1.

    Args:
      a: an array.
      method: the rank of equal elements: the `"average"`, `"min"` or `"max"` of their ranks; `"dense"` for consecutive
        ranks of distinct values; or `"ordinal"` for distinct ranks in order of position.
      axis: the axis; None to flatten the array first.
      nan_policy: must be `"propagate"`: one NaN makes all ranks NaN.

    Returns:
      The ranks, in floating point for `"average"` and for floating-point `a`, else integers.

    Raises:
      ArgumentError: `method` or `nan_policy` is unknown.
      AxisError: the axis is out of bounds.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import stats
      >>> stats.rankdata(jnp.array([30, 10, 20, 20])).tolist()
      [4.0, 1.0, 2.5, 2.5]
    """
    check_choice("stats.rankdata", "nan_policy", nan_policy, ("propagate",))
    check_choice("stats.rankdata", "method", method, ("average", "min", "max", "dense", "ordinal"))
    x, axis = _along(a, axis, "rankdata")
    float_dtype = dtypes.canonicalize_dtype(np.float64)
    if x.shape[axis] == 0:
        return lax.full(x.shape, 0, float_dtype)
    # Ranks are computed in sorted order; the inverse permutation moves each one back to the position of its element.
    order = jnp.argsort(x, axis=axis, stable=True)
    position, start, end, begins = _runs(jnp.take_along_axis(x, order, axis), axis)
    ranks = {
        "ordinal": lambda: position + 1,
        "min": lambda: start + 1,
        "max": lambda: end + 1,
        "dense": lambda: lax.cumsum(cast(begins, position.dtype), axis=axis),
        "average": lambda: cast(start + end + 2, float_dtype) / 2,
    }[method]()
    ranks = jnp.take_along_axis(ranks, jnp.argsort(order, axis=axis), axis)
    if not dtypes.issubdtype(x.dtype, np.inexact):
        return ranks
    return jnp.where(jnp.any(isnan(x), axis=axis, keepdims=True), np.nan, cast(ranks, float_dtype))


@eager_jit(static_argnames=("axis", "ddof", "nan_policy", "keepdims"))
def sem(
    a: ArrayLike, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False
) -> Array:
    """The standard error of the mean along an axis.

    Args:
      a: an array.
      axis: the axis; None for all elements.
      ddof: the number subtracted from the number of elements in the estimate of the standard deviation.
      nan_policy: `"propagate"`, or `"omit"` to ignore NaN.
      keepdims: whether to keep the reduced dimensions with size 1.

    Returns:
      The error, without the axis.

    Raises:
      ArgumentError: `nan_policy` is unknown.
      AxisError: the axis is out of bounds.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import stats
      >>> round(stats.sem(jnp.array([1.0, 2.0, 3.0])).item(), 4)
      0.5774
    """
    check_choice("stats.sem", "nan_policy", nan_policy, ("propagate", "omit"))
    x = to_inexact_array("stats.sem", a)
    if nan_policy == "omit":
        count = jnp.sum(lax.bitwise_not(isnan(x)), axis=axis, keepdims=keepdims)
        return jnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / lax.sqrt(cast(count, x.dtype))
    n = x.size if axis is None else x.shape[canonical_axis(axis, x.ndim, "stats.sem")]
    return jnp.std(x, axis, ddof=ddof, keepdims=keepdims) / lax.sqrt(cast(n, x.dtype))
