"""Segment reductions: the elements of an array with equal segment ids are reduced to one.

Builds on the scattering updates of `numpy`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.core import ArgumentError, ConcretizationTypeError, DTypeError, ShapeError, Tracer, dtypes, get_aval
from phalanx.lax import GatherScatterMode
from phalanx.lax.elementwise import set_name_and_doc
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.symbolic import static_size
from phalanx.typing import Array, ShardingLike

_DOC = """{words}.

Args:
  data: num[*n, *rest].
  segment_ids: int[*n], the segment of each element. Elements with ids outside [0, num_segments) are dropped, unless
    `mode` is given.
  num_segments: the number of segments; if None, one more than the largest id, which must be concrete.
  indices_are_sorted, unique_indices: promises that allow faster code; the result is undefined if they do not hold.
  bucket_size: the number of elements to reduce at a time, before the partial results are reduced, for accuracy.
  mode: the treatment of ids out of bounds, as in `x.at[...].add`; negative ids are out of bounds.
  out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

Returns:
  num[num_segments, *rest].

Raises:
  ShapeError: the shape of `segment_ids` is not a prefix of the shape of `data`.
  DTypeError: `segment_ids` are not integers.
  ConcretizationTypeError: `num_segments` is None and `segment_ids` is traced.
  ArgumentError: `num_segments` is negative, `bucket_size` is below 1, or `mode` is unknown.

Examples:
  >>> {name}(jnp.array([3.0, 2.0, 5.0]), jnp.array([0, 0, 2])).tolist()
  {value}
"""


def _over_segments(name: str, update: str, words: str, value: str) -> Any:
    """Make a segment reduction from an update of `x.at`; `value` is the output of its example."""

    def function(
        data: Array,
        segment_ids: Array,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode: str | GatherScatterMode | None = None,
        out_sharding: ShardingLike | None = None,
    ) -> Any:
        def reduce(data: Array, ids: Array) -> Any:
            return _reduce(name, update, data, ids, num_segments, bucket_size, mode, promises)

        promises = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices}
        data, segment_ids = jnp.asarray(data), jnp.asarray(segment_ids)
        return call_with_out_sharding(reduce, (data, segment_ids), out_sharding, f"{name}, out_sharding")

    return set_name_and_doc(function, name, _DOC.format(words=words, name=name, value=value))


segment_sum = _over_segments("segment_sum", "add", "Sum of the elements of each segment", "[5.0, 0.0, 5.0]")
segment_prod = _over_segments(
    "segment_prod", "multiply", "Product of the elements of each segment, 1 for an empty one", "[6.0, 1.0, 5.0]"
)
segment_max = _over_segments(
    "segment_max",
    "max",
    "Largest element of each segment, the least value of the dtype for an empty one",
    "[3.0, -inf, 5.0]",
)
segment_min = _over_segments(
    "segment_min",
    "min",
    "Smallest element of each segment, the greatest value of the dtype for an empty one",
    "[2.0, inf, 5.0]",
)


# The neutral element of each update, and the reduction that joins the results of buckets.
_NEUTRAL: dict[str, Callable] = {
    "add": lambda dtype: 0,
    "multiply": lambda dtype: 1,
    "max": dtypes.lowest,
    "min": dtypes.highest,
}
_JOIN: dict[str, Callable[..., Any]] = {"add": jnp.sum, "multiply": jnp.prod, "max": jnp.max, "min": jnp.min}


def _reduce(
    where: str,
    update: str,
    data: Array,
    ids: Any,
    count: int | None,
    bucket_size: int | None,
    mode: str | GatherScatterMode | None,
    promises: dict,
) -> Any:
    data = _align(where, data, ids)
    count = _count_segments(where, ids, count)
    rest = data.shape[ids.ndim :]
    size = math.prod(ids.shape)
    data, ids = data.reshape(size, *rest), ids.reshape(size)
    if ids.dtype.itemsize < 4:  # a narrower dtype may not hold `count`
        ids = ids.astype(np.int32)
    # `x.at` counts negative indices from the end, while a negative id is out of bounds.
    how = GatherScatterMode.from_any(mode)
    if how is GatherScatterMode.CLIP:
        ids = jnp.clip(ids, 0)
    elif how is GatherScatterMode.FILL_OR_DROP:  # a negative index would count from the end
        ids = jnp.where(ids < 0, count, ids)
    # Segments without elements keep the neutral element.
    neutral = _NEUTRAL[update](data.dtype)
    if bucket_size is None:
        start = jnp.full((count, *rest), neutral, data.dtype)
        return getattr(start.at[ids], update)(data, mode=how, **promises)
    if bucket_size < 1:
        raise ArgumentError(
            f"{where}, bucket_size",
            expected="at least 1",
            got=bucket_size,
            fix="leave bucket_size out to reduce in one step",
        )
    # Each bucket is reduced to its own row of segments first; short sums lose less precision.
    buckets = jnp.arange(size) // bucket_size
    start = jnp.full((-(-size // bucket_size), count, *rest), neutral, data.dtype)
    at: Any = start.at[buckets, ids]
    return _JOIN[update](getattr(at, update)(data, mode=how, **promises), axis=0).astype(data.dtype)


def _align(where: str, data: Array, ids: Array) -> Array:
    """Check the segment ids, and broadcast a scalar or leading dimensions of size 1 to one element for each id."""
    if not dtypes.issubdtype(ids.dtype, np.integer):
        raise DTypeError(
            f"{where}, segment_ids",
            expected="integers",
            got=get_aval(ids).str_short(),
            fix="convert them with segment_ids.astype('int32')",
        )
    leading = data.shape[: ids.ndim]
    if leading == ids.shape:
        return data
    if leading and (len(leading) < ids.ndim or any(n not in (1, size) for n, size in zip(leading, ids.shape))):
        raise ShapeError(
            f"{where}, segment_ids",
            expected=f"a number for each element along the leading dimensions of {get_aval(data).str_short()}",
            got=get_aval(ids).str_short(),
            fix="give one segment id for each row of data",
        )
    return jnp.broadcast_to(data, (*ids.shape, *data.shape[ids.ndim :]))


def _count_segments(where: str, ids: Array, count: int | None) -> int:
    if count is None:
        if isinstance(ids, Tracer) and ids.concrete is None:
            raise ConcretizationTypeError(
                f"{where}, num_segments",
                expected="a number, since the shape of the result depends on it",
                got=f"None, with traced segment_ids, {get_aval(ids).str_short()}",
                fix="pass num_segments, the number of segments, as a Python int",
            )
        return int(np.max(np.asarray(ids), initial=-1)) + 1
    if count < 0:
        raise ArgumentError(
            f"{where}, num_segments",
            expected="at least 0",
            got=count,
            fix="pass the number of segments, or None to infer it",
        )
    return static_size(count)
