"""Adding, removing and repeating slices along an axis: `append`, `insert`, `delete`, `repeat`.

A repetition by one static count is a broadcast, one by a count per element a gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, Tracer
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.indexing.take import take
from phalanx.numpy.operands import (
    broadcast_to_shape,
    canonical_axis,
    cast,
    concrete_or_none,
    flatten_without_axis,
    require_concrete,
    to_host_operand,
    to_operand,
    unwrap_array_like,
)
from phalanx.numpy.shapes.joining import concatenate, split_at_bounds
from phalanx.numpy.shapes.reshaping import moveaxis, ravel, reshape
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic, max_dim, static_size
from phalanx.typing import Array, ArrayLike, DimSize, ShardingLike


def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """Append values to the end of an array.

    Args:
      arr, values: arrays or nested lists of numbers whose other dimensions are equal.
      axis: the axis; None flattens both arrays first.

    Returns:
      The joined array, in the promoted dtype of both.

    Raises:
      AxisError: an axis is out of range.
      ShapeError: ranks or other dimensions differ.

    Examples:
      >>> jnp.append(jnp.arange(2), 9).tolist()
      [0, 1, 9]
    """
    arr, values = (array(x) if isinstance(x, list | tuple) else to_operand(x, "append") for x in (arr, values))
    return concatenate([arr, values], axis)


def insert(arr: ArrayLike, obj: ArrayLike | slice | Sequence[int], values: ArrayLike, axis: int | None = None) -> Array:
    """Insert values before given indices, which must be concrete.

    Args:
      arr: an array or nested lists of numbers.
      obj: an integer, a slice or integers: indices into the original array.
      values: values to insert, cast to the dtype of `arr`; they broadcast to the inserted slices.
      axis: the axis; None flattens the array first.

    Returns:
      The array with the values inserted.

    Raises:
      ArgumentError: an index is out of bounds.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.insert(jnp.array([1, 3]), 1, 2).tolist()
      [1, 2, 3]
    """
    arr = array(arr) if isinstance(arr, list | tuple) else to_operand(arr, "insert")
    values = array(values) if isinstance(values, list | tuple) else to_operand(values, "insert")
    arr, axis = flatten_without_axis(arr, axis, "insert")
    n = arr.shape[axis]
    values = (
        reshape(values, (1,) * (arr.ndim - values.ndim) + tuple(values.shape)) if values.ndim < arr.ndim else values
    )
    values = cast(values, arr.dtype)
    if isinstance(obj, Tracer):
        return _insert_at_traced(arr, obj, values, axis)
    where = np.arange(n)[obj] if isinstance(obj, slice) else _concretize_indices(obj, "insert")
    _check_bounds("insert", where, n, n)
    # A single index inserts all values at one position.
    if where.ndim == 0 or where.size == 1:
        at = int(where.reshape(()))
        at = at + n if at < 0 else at
        if where.ndim == 0 and np.ndim(obj) == 0:
            values = moveaxis(values, 0, axis)
        values = broadcast_to_shape(values, (*arr.shape[:axis], values.shape[axis], *arr.shape[axis + 1 :]))
        first, rest = split_at_bounds(arr, (0, at, n), axis)
        return concatenate([first, values, rest], axis)
    values = broadcast_to_shape(values, (*arr.shape[:axis], len(where), *arr.shape[axis + 1 :]))
    # For each position of the result, its position in the array joined with the new values: one gather from that
    # builds the result.
    source = np.insert(np.arange(n, dtype=np.int32), where.astype(int), n + np.arange(len(where)))
    return take(concatenate([arr, values], axis), source, axis, mode="clip")


def _insert_at_traced(arr: Array, obj: Array, values: Array, axis: int) -> Array:
    """Insert at positions that are known when the program runs; the size of the result depends on their number only."""
    n, is_single = arr.shape[axis], obj.ndim == 0
    if is_single:
        values = moveaxis(values, 0, axis)
    num = values.shape[axis] if is_single or obj.size == 1 else obj.shape[0]
    values = broadcast_to_shape(values, (*arr.shape[:axis], num, *arr.shape[axis + 1 :]))
    at = broadcast_to_shape(ravel(lax.select(obj < 0, obj + n, obj)).astype("int32"), (num,))
    # A stable sort of the old positions behind the new ones puts each value in front of the element it precedes.
    places = lax.iota("int32", num + n)
    order = lax.sort((concatenate([at, lax.iota("int32", n)], 0), places), num_keys=1)[1]
    return take(concatenate([values, arr], axis), order, axis, mode="clip")


def _concretize_indices(obj: ArrayLike | slice | Sequence[int], where: str) -> np.ndarray:
    return require_concrete(
        np.asarray(obj) if isinstance(obj, list | tuple | range) else obj,
        f"{where}, argument obj",
        expected="indices that are known while tracing",
        fix="mark the argument they come from as static",
    )


def delete(
    arr: ArrayLike,
    obj: ArrayLike | slice | Sequence[int],
    axis: int | None = None,
    *,
    assume_unique_indices: bool = False,
) -> Array:
    """Delete elements or slices at given indices.

    Args:
      arr: an array or nested lists of numbers.
      obj: an integer, a slice, integers or a boolean mask; concrete unless `assume_unique_indices`.
      axis: the axis; None flattens the array first.
      assume_unique_indices: promise that the integers are in bounds and distinct; they may then be traced.

    Returns:
      The array without the deleted elements.

    Raises:
      ArgumentError: an index is out of bounds.
      AxisError: an axis is out of range.
      ConcretizationTypeError: `obj` is a traced array and `assume_unique_indices` is False.
      ShapeError: the length of the mask differs from that of the axis.

    Examples:
      >>> jnp.delete(jnp.arange(4), 1).tolist()
      [0, 2, 3]
    """
    arr = array(arr) if isinstance(arr, list | tuple) else to_operand(arr, "delete")
    arr, axis = flatten_without_axis(arr, axis, "delete")
    n = arr.shape[axis]
    obj = unwrap_array_like(obj)
    known = isinstance(obj, list | tuple | slice) or concrete_or_none(obj) is not None
    if not known and (assume_unique_indices or obj.ndim == 0):
        return take(arr, _complement(obj, n), axis, mode="clip")
    if is_symbolic(n):
        return _delete_symbolic(arr, obj, axis)
    where = obj if isinstance(obj, slice) else _concretize_indices(obj, "delete")
    if not isinstance(where, slice) and where.dtype != bool:
        _check_bounds("delete", where, n, n - 1)
        where = where.astype(int)
    elif not isinstance(where, slice) and where.shape != (n,):
        raise ShapeError(
            "delete, argument obj",
            expected=f"a mask of shape {(n,)}",
            got=where.shape,
            fix=f"pass a mask with {n} elements, or the axis it belongs to with axis=",
        )
    # The kept indices are known on the host, so that the result is one gather.
    return take(arr, np.delete(np.arange(n, dtype=np.int32), where), axis, mode="clip")


def _check_bounds(name: str, where: np.ndarray, n: DimSize, last: Array) -> None:
    bad = None if is_symbolic(n) or where.dtype == bool else (where < -n) | (where > last)
    if bad is not None and np.any(bad):
        raise ArgumentError(
            f"{name}, argument obj",
            expected=f"indices from {-n} to {last}",
            got=where[bad].ravel()[0].item(),
            fix=f"pass indices from {-n} to {last}",
        )


def _delete_symbolic(arr: Array, obj: ArrayLike | slice | Sequence[int], axis: int) -> Any:
    """`delete` along an axis of symbolic length.

    The length of the result must be one expression that holds for all sizes. It is the length minus the number of
    distinct indices, so they must be concrete; and -1 and 3 could denote the same element for some size, so all must
    be counted from the same end.
    """
    known = None if isinstance(obj, slice) else np.unique(_concretize_indices(obj, "delete"))
    if known is None or known.dtype == bool or (known.size and known[0] < 0 <= known[-1]):
        raise ArgumentError(
            "delete along a symbolic length",
            expected="indices counted from one end, which are the same for every size",
            got=repr(obj),
            fix="concatenate the slices that are to stay",
        )
    return take(arr, _complement(known, arr.shape[axis]), axis, mode="clip")


@eager_jit(static_argnames=("n",))
def _complement(obj: ArrayLike | slice | Sequence[int], n: int) -> Any:
    """The indices from 0 to n - 1 that are not in `obj`, whose entries are distinct.

    The k-th remaining index is k plus the number of deleted indices before it: with sorted `obj`, those entries with
    `obj[j] - j <= k`.
    """
    obj = ravel(to_operand(obj, "delete"))
    obj = lax.sort(obj + n * (obj < 0).astype(obj.dtype))
    m = obj.shape[0]
    place = lax.iota(np.dtype(np.int32), n - m)
    shift = (obj - lax.iota(obj.dtype, m))[None, :] <= place[:, None].astype(obj.dtype)
    return place + lax.reduce_sum(shift.astype("int32"), (1,))


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
