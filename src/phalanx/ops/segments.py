"""Reductions over segments: elements with the same number are summed, multiplied, or compared.

Builds on the scattering updates of `numpy`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, ConcretizationTypeError, DTypeError, ShapeError
from phalanx.core.trace import Tracer
from phalanx.lax import GatherScatterMode
from phalanx.lax.explicit import laid_out
from phalanx.lax.faces import named
from phalanx.symbolic import static_size

_DOC = """{words}.

Args:
  data: num[*n, *rest].
  segment_ids: int[*n], which segment each element belongs to. Elements of numbers outside of [0, num_segments) are
    dropped, unless `mode` says otherwise.
  num_segments: how many segments there are; by default one more than the largest number, which must be known then.
  indices_are_sorted, unique_indices: promises that let the compiler do better.
  bucket_size: reduce this many elements at a time and then the results, for accuracy.
  mode: what to do with numbers outside, as in `x.at[...].add`, where negative ones count as outside too.
  out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

Returns:
  num[num_segments, *rest].

Raises:
  ShapeError: `segment_ids` has not the leading dimensions of `data`.
  DTypeError: the numbers are no integers.
  ConcretizationTypeError: `num_segments` is left out and `segment_ids` is traced.
  ArgumentError: `num_segments` is negative, `bucket_size` is below 1, or there is no such `mode`.

Examples:
  >>> {name}(jnp.array([3.0, 2.0, 5.0]), jnp.array([0, 0, 2])).tolist()
  {value}
"""


def _over_segments(name: str, update: str, words: str, value: str) -> Any:
    """Make a function that reduces segments by an update of `at`; `value` is what its example gives."""

    def function(
        data: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode: Any = None,
        out_sharding: Any = None,
    ) -> Any:
        def reduce(data: Any, ids: Any) -> Any:
            return _reduce(name, update, data, ids, num_segments, bucket_size, mode, promises)

        promises = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices}
        data, segment_ids = jnp.asarray(data), jnp.asarray(segment_ids)
        return laid_out(reduce, (data, segment_ids), out_sharding, f"{name}, out_sharding")

    return named(function, name, _DOC.format(words=words, name=name, value=value))


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


_NEUTRAL: dict[str, Callable] = {
    "add": lambda dtype: 0,
    "multiply": lambda dtype: 1,
    "max": dtypes.lowest,
    "min": dtypes.highest,
}
_JOIN = {"add": jnp.sum, "multiply": jnp.prod, "max": jnp.max, "min": jnp.min}


def _reduce(
    where: str, update: str, data: Any, ids: Any, count: int | None, bucket_size: int | None, mode: Any, promises: dict
) -> Any:
    _check(where, data, ids)
    count = _number_of(where, ids, count)
    rest = data.shape[ids.ndim :]
    size = math.prod(ids.shape)
    data, ids = data.reshape(size, *rest), ids.reshape(size)
    if ids.dtype.itemsize < 4:  # It may not hold `count`.
        ids = ids.astype(np.int32)
    how = GatherScatterMode.from_any(mode)
    if how is GatherScatterMode.CLIP:
        ids = jnp.clip(ids, 0)
    elif how is GatherScatterMode.FILL_OR_DROP:  # In an index, negative numbers would count from the end.
        ids = jnp.where(ids < 0, count, ids)
    neutral = _NEUTRAL[update](data.dtype)
    if bucket_size is None:
        start = jnp.full((count, *rest), neutral, data.dtype)
        return getattr(start.at[ids], update)(data, mode=how, **promises)
    if bucket_size < 1:
        raise ArgumentError(
            f"{where}, bucket_size", expected="at least 1", got=bucket_size, mend="leave it out for one bucket"
        )
    buckets = jnp.arange(size) // bucket_size
    start = jnp.full((-(-size // bucket_size), count, *rest), neutral, data.dtype)
    parts = getattr(start.at[buckets, ids], update)(data, mode=how, **promises)
    return _JOIN[update](parts, axis=0).astype(data.dtype)


def _check(where: str, data: Any, ids: Any) -> None:
    if not dtypes.issubdtype(ids.dtype, np.integer):
        raise DTypeError(
            f"{where}, segment_ids", expected="integers", got=aval_of(ids).str_short(), mend="convert them with astype"
        )
    if data.shape[: ids.ndim] != ids.shape:
        raise ShapeError(
            f"{where}, segment_ids",
            expected=f"a number for each element along the leading dimensions of {aval_of(data).str_short()}",
            got=aval_of(ids).str_short(),
            mend="give one number for each row of data",
        )


def _number_of(where: str, ids: Any, count: int | None) -> int:
    if count is None:
        if isinstance(ids, Tracer) and ids.concrete is None:
            raise ConcretizationTypeError(
                f"{where}, num_segments",
                expected="a number, since the shape of the result depends on it",
                got=f"None, with traced segment_ids, {aval_of(ids).str_short()}",
                mend="pass num_segments",
            )
        return int(np.max(np.asarray(ids), initial=-1)) + 1
    if count < 0:
        raise ArgumentError(f"{where}, num_segments", expected="at least 0", got=count, mend="pass a size")
    return static_size(count)
