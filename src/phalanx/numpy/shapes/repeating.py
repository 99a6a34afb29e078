"""`repeat`: by a broadcast for one static count, by a gather for a count per element."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.numpy.indexing.take import take
from phalanx.numpy.operands import (
    broadcast_to_shape,
    canonical_axis,
    cast,
    require_concrete,
    to_host_operand,
    to_operand,
)
from phalanx.numpy.shapes.reshaping import ravel, reshape
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import max_dim, static_size
from phalanx.typing import Array, ArrayLike, ShardingLike


def repeat(
    a: ArrayLike,
    repeats: ArrayLike,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Repeat each element along an axis.

    Args:
      a: array or scalar.
      repeats: number of repetitions, or one number per element along the axis.
      axis: the axis; None flattens the array first.
      total_repeat_length: static length of the result; required when `repeats` is traced.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      An array with the repetitions along the axis.

    Raises:
      ArgumentError: a number of `repeats` is negative.
      AxisError: an axis is out of range.
      ConcretizationTypeError: `repeats` is traced and `total_repeat_length` is not given.
      ShapeError: the number of `repeats` differs from the length of the axis.

    Examples:
      >>> jnp.repeat(jnp.array([1, 2]), 2).tolist()
      [1, 1, 2, 2]
    """
    a = to_operand(a, "repeat")
    if out_sharding is not None:
        again = lambda x: repeat(x, repeats, axis, total_repeat_length=total_repeat_length)
        return call_with_out_sharding(again, (a,), out_sharding, "repeat, out_sharding")
    if isinstance(repeats, list | tuple):
        repeats = np.asarray(repeats)
    if axis is None:
        a, axis = ravel(a), 0
    a = reshape(a, (1,)) if a.ndim == 0 else a
    axis = canonical_axis(axis, a.ndim, "repeat")
    if (isinstance(repeats, int) and repeats >= 0) or getattr(repeats, "is_symbolic_dim", False):
        if total_repeat_length is None:
            return _repeat_all(a, repeats, axis)
        repeats = lax.full((a.shape[axis],), repeats, np.dtype(np.int32))
    if total_repeat_length is None:
        return _repeat_concrete(a, repeats, axis)
    return _repeat_to_length(a, to_operand(repeats, "repeat"), axis, static_size(total_repeat_length))


def _repeat_concrete(a: Array, repeats: Any, axis: int) -> Any:
    """Repeat by concrete counts, which determine the shape."""
    known = require_concrete(
        to_host_operand(repeats, "repeat"),
        "repeat, argument repeats",
        expected="values that are known while tracing, as they decide the shape",
        fix="give total_repeat_length, or mark the argument it comes from as static",
    )
    if known.dtype.kind not in "iub" or (known < 0).any():
        raise ArgumentError(
            "repeat, argument repeats",
            expected="integers >= 0",
            got=repeats,
            fix="pass non-negative integers, for example with repeats.clip(0)",
        )
    if known.size == 1:
        return _repeat_all(a, int(known.reshape(())), axis)
    if known.size != a.shape[axis]:
        raise ShapeError(
            "repeat, argument repeats",
            expected=f"{a.shape[axis]} numbers, one for each element",
            got=known.shape,
            fix="give one number, or one for each",
        )
    positions = np.repeat(np.arange(a.shape[axis], dtype=np.int32), known.reshape(-1))
    return take(a, positions, axis, mode="clip", indices_are_sorted=True)


@eager_jit(static_argnames=("repeats", "axis"))
def _repeat_all(a: Array, repeats: int, axis: int) -> Any:
    dims = a.shape
    # Broadcasting into a new dimension and merging it keeps the axis shardable; a gather would not.
    wide = (*dims[: axis + 1], repeats, *dims[axis + 1 :])
    out = lax.broadcast_in_dim(a, wide, tuple(i for i in range(len(wide)) if i != axis + 1))
    return lax.reshape(out, (*dims[:axis], dims[axis] * repeats, *dims[axis + 1 :]))


@eager_jit(static_argnames=("axis", "length"))
def _repeat_to_length(a: Array, repeats: Any, axis: int, length: int) -> Any:
    n = a.shape[axis]
    repeats = broadcast_to_shape(repeats, (n,))
    ends = lax.cumsum(repeats, axis=0)
    # `ends[i]` is the output position after the last copy of element i. Output position k holds a copy of element i if
    # exactly i elements end at or before k, so i is a cumulative count of the ends. A scatter-add counts them in O(n).
    steps = lax.full((length,), 0, np.dtype(np.int32)).at[ends].add(1)
    positions = lax.min_p(lax.cumsum(steps, axis=0), cast(max_dim(n - 1, 0), np.dtype(np.int32)))
    return take(a, positions, axis, mode="clip", indices_are_sorted=True)
