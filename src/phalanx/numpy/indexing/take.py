"""Taking and putting elements: `take`, `take_along_axis`, `put`, `place`, `compress`, `choose`.

Reads are one gather. Updates go through `x.at[...]`. The number of results of `compress` and `extract` depends on
values, so that under tracing their `size` must be given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, UnsupportedArgumentError
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.indexing.array_indexing import At, disable_wrapping
from phalanx.numpy.indexing.index_expression import check_mode
from phalanx.numpy.indexing.read_plans import READ_MODES, gather_or_empty, normalize_index, stack_index_vectors
from phalanx.numpy.indexing.where import concrete_mask, nonzero
from phalanx.numpy.operands import (
    broadcast_operands,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axis,
    cast,
    check_integers,
    check_vector,
    flatten_without_axis,
    from_list,
    refuse_inplace,
    refuse_out,
    to_host_operand,
    to_operand,
)
from phalanx.numpy.shapes.joining import stack
from phalanx.numpy.shapes.rearranging import resize
from phalanx.numpy.shapes.reshaping import ravel
from phalanx.numpy.ufuncs.rounding import clip
from phalanx.numpy.ufuncs.ufunc_implementations import select_where as _choose, to_bool
from phalanx.numpy.ufuncs.ufunc_table import remainder
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike

_MODES = (None, "fill", "clip", "wrap", "drop", "promise_in_bounds")


def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Take elements, or slices along an axis, at given indices.

    Args:
      a: an array or nested lists of numbers.
      indices: integers; negative ones count from the end.
      axis: the axis; None flattens the array first.
      out: must be None; arrays are immutable.
      mode: handling of out-of-bounds indices: `"fill"` (the default), `"clip"` (negative ones become 0),
        `"wrap"` or `"promise_in_bounds"`.
      unique_indices: promise that the indices do not repeat, which makes the derivative faster.
      indices_are_sorted: promise that the indices are sorted, which makes the gather faster.
      fill_value: value for `"fill"`; by default NaN, the lowest signed or the largest unsigned integer.

    Returns:
      An array in which the axis is replaced by the dimensions of `indices`.

    Raises:
      ArgumentError: `mode` is unknown, or `out` is given.
      AxisError: an axis is out of range.
      DTypeError: the indices are not integers.

    Examples:
      >>> jnp.take(jnp.array([10, 20, 30]), jnp.array([2, 0])).tolist()
      [30, 10]
    """
    refuse_out(out, "take")
    if mode not in _MODES:
        error = UnsupportedArgumentError if mode == "raise" else ArgumentError
        raise error(
            "take, argument mode",
            expected="'fill', 'clip', 'wrap' or 'promise_in_bounds'",
            got=repr(mode),
            fix="pass one of these modes; mode='raise' would depend on values",
        )
    a, indices = to_operand(from_list(a), "take"), to_host_operand(from_list(indices), "take")
    if axis is not None:
        axis = canonical_axis(axis, a.ndim, "take")
    return _take(a, indices, axis, mode, unique_indices, indices_are_sorted, fill_value)


@eager_jit(static_argnames=("axis", "mode", "unique", "is_sorted", "fill_value"))
def _take(
    a: Array,
    indices: Array,
    axis: int | None,
    mode: str | lax.GatherScatterMode | None,
    unique: bool,
    is_sorted: bool,
    fill_value: ArrayLike | None,
) -> Any:
    indices = cast(indices, np.dtype(np.int32)) if indices.dtype == np.bool_ else indices
    check_integers("take, argument indices", indices)
    a, axis = flatten_without_axis(a, axis, "take")
    n = a.shape[axis]
    if mode == "wrap":
        indices, mode = remainder(indices, n), "promise_in_bounds"
    elif mode == "clip":  # as in NumPy, negative indices do not count from the end in this mode: they become 0
        indices = lax.max(indices, np.zeros((), indices.dtype)[()])
    batch = indices.shape
    # Traced negative indices are resolved on the device, host indices here.
    vectors = stack_index_vectors([indices], (n,), (False,), batch)
    if isinstance(vectors, np.ndarray) and type(n) is int:
        vectors = np.where(vectors < 0, vectors + n, vectors).astype(vectors.dtype)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + len(batch), a.ndim + len(batch) - 1)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    # The gather reads whole slices across the other dimensions.
    sizes = tuple(1 if i == axis else d for i, d in enumerate(a.shape))
    options = {"fill_value": fill_value} if mode in (None, "fill") else {}
    return gather_or_empty(
        a,
        vectors,
        numbers,
        sizes,
        unique_indices=unique,
        indices_are_sorted=is_sorted,
        mode=READ_MODES["fill" if mode is None else mode],
        **options,
    )


@eager_jit(static_argnames=("axis", "mode", "fill_value", "wrap_negative_indices"))
def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str | lax.GatherScatterMode | None = None,
    fill_value: ArrayLike | None = None,
    *,
    wrap_negative_indices: bool = True,
) -> Array:
    """Take one element along an axis per element of an index array.

    Args:
      arr: an array or a scalar.
      indices: integers of the rank of `arr`; the other dimensions broadcast.
      axis: the axis; None flattens the array first.
      mode: handling of out-of-bounds indices: `"fill"` (the default), `"clip"` or `"promise_in_bounds"`.
      fill_value: value for `"fill"`.
      wrap_negative_indices: whether negative indices count from the end; otherwise they are out of bounds.

    Returns:
      An array of the broadcast shape of `arr` and `indices`, as long as `indices` along the axis.

    Raises:
      ArgumentError: `mode` is unknown.
      AxisError: an axis is out of range.
      DTypeError: the indices are not integers.
      ShapeError: the ranks differ, or the other dimensions do not broadcast.

    Examples:
      >>> jnp.take_along_axis(jnp.array([[1, 2], [3, 4]]), jnp.array([[1], [0]]), 1).tolist()
      [[2], [3]]
    """
    if mode == "one_hot":
        return _take_by_comparison(*_along(arr, indices, axis, "take_along_axis"))
    check_mode(mode, "take_along_axis")
    if not wrap_negative_indices:
        indices = disable_wrapping(to_operand(indices, "take_along_axis"), mode)
    x, indices, axis = _along(arr, indices, axis, "take_along_axis")
    indices = normalize_index(indices, x.shape[axis], False)
    rank = x.ndim
    others = [i for i in range(rank) if i != axis]
    # All dimensions but `axis` broadcast between the array and the indices.
    shape = tuple(broadcast_shapes(x.shape[i : i + 1], indices.shape[i : i + 1])[0] for i in others)
    full = tuple(indices.shape[axis] if i == axis else shape[others.index(i)] for i in range(rank))
    # A dimension of size 1 in `arr` is dropped rather than repeated; one in `indices` is repeated, being small.
    # Batching dimensions keep the rows of the array and of the indices together, also when they are sharded.
    batching = tuple(i for i in others if x.shape[i] != 1)
    collapsed = tuple(i for i in range(rank) if i not in batching)
    # Batching dimensions of a gather must have equal sizes in both operands.
    vectors = lax.expand_dims(broadcast_to_shape(indices, full), (rank,))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=collapsed,
        start_index_map=(axis,),
        operand_batching_dims=batching,
        start_indices_batching_dims=batching,
    )
    mode = "fill" if mode is None else mode
    options = {"fill_value": fill_value} if mode == "fill" else {}
    return gather_or_empty(x, vectors, numbers, (1,) * rank, mode=READ_MODES.get(mode, mode), **options)


def _take_by_comparison(x: Array, indices: Array, axis: int) -> Array:
    """Select elements by comparing all positions with the indices, without a gather; 0 for an index out of bounds."""
    size = x.shape[axis]
    rows = lax.expand_dims(lax.transpose(x, [*[i for i in range(x.ndim) if i != axis], axis]), (axis,))
    places = lax.expand_dims(normalize_index(indices, size, False), (x.ndim,))
    shape = broadcast_shapes(rows.shape, (*places.shape[:-1], size))
    chosen = lax.eq(broadcast_to_shape(places, shape), lax.broadcasted_iota(places.dtype, shape, x.ndim))
    kept = lax.select(chosen, broadcast_to_shape(rows, shape), lax.full(shape, 0, x.dtype))
    return (lax.reduce_or if x.dtype == np.bool_ else lax.reduce_sum)(kept, (x.ndim,))


def _along(arr: Array, indices: Array, axis: int | None, name: str) -> tuple:
    x, indices = to_operand(arr, name), to_operand(indices, name)
    check_integers(f"{name}, argument indices", indices)
    x, axis = flatten_without_axis(x, axis, name)
    if indices.ndim != x.ndim:
        raise ShapeError(
            f"{name}, argument indices",
            expected=f"rank {x.ndim}, that of the array",
            got=indices.shape,
            fix="add dimensions of size 1 to the indices",
        )
    return x, indices, axis


@eager_jit(static_argnames=("axis", "inplace", "mode"))
def put_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None,
    inplace: bool = True,
    *,
    mode: str | None = None,
) -> Array:
    """A copy of `arr` with elements at given indices along an axis replaced.

    Args:
      arr: an array.
      indices: integers of the rank of `arr`; the other dimensions broadcast.
      values: new values, which broadcast with the indices.
      axis: the axis; None flattens the array first.
      inplace: must be False; arrays are immutable.
      mode: handling of out-of-bounds indices: `"drop"` (the default), `"clip"` or `"promise_in_bounds"`.

    Returns:
      An array of the shape and dtype of `arr`.

    Raises:
      ArgumentError: `inplace` is True.
      DTypeError: the indices are not integers.
      ShapeError: the ranks differ, or the other dimensions do not broadcast.

    Examples:
      >>> jnp.put_along_axis(jnp.zeros((1, 2)), jnp.array([[1]]), 5.0, 1, inplace=False).tolist()
      [[0.0, 5.0]]
    """
    refuse_inplace(inplace, "put_along_axis")
    original = to_operand(arr, "put_along_axis")
    x, indices, axis = _along(original, indices, axis, "put_along_axis")
    shape = tuple(
        indices.shape[i] if i == axis else broadcast_shapes((d,), indices.shape[i : i + 1])[0]
        for i, d in enumerate(x.shape)
    )
    indices = broadcast_to_shape(indices, shape)
    index = [
        lax.broadcasted_iota(indices.dtype, tuple(d if i == j else 1 for j, d in enumerate(shape)), i)
        for i in range(x.ndim)
    ]
    # The other dimensions are indexed by iotas, which become batching dimensions of the scatter.
    index[axis] = indices
    out = At(x)[tuple(index)].set(values, mode=mode)
    return out if out.shape == original.shape else lax.reshape(out, original.shape)


def put(a: ArrayLike, ind: Any, v: ArrayLike, mode: str | None = None, *, inplace: bool = True) -> Array:
    """A copy of `a` with elements at given flat indices replaced.

    Args:
      a: an array or nested lists of numbers.
      ind: integers.
      v: new values, repeated or truncated to the number of indices.
      mode: handling of out-of-bounds indices: `"drop"` (the default), `"wrap"` or `"clip"`.
      inplace: must be False; arrays are immutable.

    Returns:
      An array of the shape and dtype of `a`.

    Raises:
      ArgumentError: `inplace` is True, or `mode` is unknown.

    Examples:
      >>> jnp.put(jnp.zeros(3), jnp.array([1]), 5.0, inplace=False).tolist()
      [0.0, 5.0, 0.0]
    """
    refuse_inplace(inplace, "put")
    x, ind, v = (array(y) if isinstance(y, list | tuple) else to_operand(y, "put") for y in (a, ind, v))
    ind, v = ravel(ind), ravel(v)
    if not ind.size or not v.size:
        return x
    # Values are repeated or truncated to the number of indices, as in NumPy.
    v = resize(v, ind.shape) if v.shape != ind.shape else v
    flat = ravel(x)
    if mode == "wrap":
        ind, mode = ind % flat.shape[0], "drop"
    elif mode == "clip":
        ind, mode = clip(ind, 0, flat.shape[0] - 1), "promise_in_bounds"
    return lax.reshape(flat.at[ind].set(v, mode=mode), x.shape)


def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Array:
    """A copy of `arr` with the elements selected by a mask replaced, in order.

    Args:
      arr: an array or nested lists of numbers.
      mask: booleans (or numbers compared with 0) with as many elements as `arr`.
      vals: new values, repeated if there are too few.
      inplace: must be False; arrays are immutable.

    Returns:
      An array of the shape and dtype of `arr`.

    Raises:
      ArgumentError: `inplace` is True.

    Examples:
      >>> jnp.place(
      ...     jnp.zeros(3), jnp.array([True, False, True]), jnp.array([1.0, 2.0]), inplace=False
      ... ).tolist()
      [1.0, 0.0, 2.0]
    """
    refuse_inplace(inplace, "place")
    x, mask, vals = (array(y) if isinstance(y, list | tuple) else to_operand(y, "place") for y in (arr, mask, vals))
    mask = ravel(to_bool(mask))
    if not vals.size:
        return x
    # The k-th selected element receives the k-th value: its rank among the selected elements is a cumulative sum.
    positions = lax.cumsum(cast(mask, np.dtype(np.int32)), axis=0) - 1
    # The number of selected elements is at most the size of the array.
    chosen = take(resize(vals, (x.size,)), positions, mode="clip")
    return lax.reshape(_choose(mask, cast(chosen, x.dtype), ravel(x)), x.shape)


def extract(condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0) -> Array:
    """Elements of an array where a condition holds.

    Args:
      condition: booleans, which are flattened.
      arr: array with as many elements, which is flattened.
      size: static length of the result, which is truncated or padded; required when the mask is traced.
      fill_value: value of the padding entries.

    Returns:
      A vector in the dtype of `arr`.

    Raises:
      ConcretizationTypeError: the mask is traced and `size` is not given.

    Examples:
      >>> jnp.extract(jnp.array([True, False, True]), jnp.array([1, 2, 3])).tolist()
      [1, 3]
    """
    condition = to_host_operand(from_list(condition), "extract")
    return compress(condition.reshape(-1), ravel(arr), size=size, fill_value=fill_value)


def compress(
    condition: ArrayLike,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
    out: None = None,
) -> Array:
    """Slices of an array along an axis where a condition holds.

    Args:
      condition: vector of booleans, at most as long as the axis.
      a: an array or nested lists of numbers.
      axis: the axis; None flattens the array first.
      size: static length of the result, which is truncated or padded; required when the condition is traced.
      fill_value: value of the padding entries.
      out: must be None; arrays are immutable.

    Returns:
      An array with the selected slices along the axis.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.
      ConcretizationTypeError: the condition is traced and `size` is not given.
      ShapeError: the condition is not a vector.

    Examples:
      >>> jnp.compress(jnp.array([True, False]), jnp.array([[1, 2], [3, 4]]), axis=0).tolist()
      [[1, 2]]
    """
    refuse_out(out, "compress")
    x = array(a) if isinstance(a, list | tuple) else to_operand(a, "compress")
    condition = to_host_operand(from_list(condition), "compress")
    check_vector("compress, argument condition", condition)
    x, axis = flatten_without_axis(x, axis, "compress")
    (found,) = nonzero(condition, size=size, fill_value=condition.shape[0] + x.shape[axis])
    return take(x, found, axis, mode="fill", fill_value=fill_value)


def choose(a: ArrayLike, choices: Sequence[ArrayLike] | ArrayLike, out: None = None, mode: str = "raise") -> Array:
    """Select elements from several arrays: `choices[a[i]][i]` for each index i.

    Args:
      a: integers.
      choices: sequence of arrays that broadcast with `a`.
      out: must be None; arrays are immutable.
      mode: handling of out-of-bounds numbers: `"wrap"`, `"clip"`, or `"raise"`, which requires concrete values.

    Returns:
      An array of the broadcast shape.

    Raises:
      ArgumentError: a number is out of bounds and `mode` is `"raise"`, or `out` is given.
      ConcretizationTypeError: `a` is traced and `mode` is `"raise"`.

    Examples:
      >>> jnp.choose(jnp.array([1, 0]), [jnp.array([1, 2]), jnp.array([3, 4])], mode="clip").tolist()
      [3, 2]
    """
    refuse_out(out, "choose")
    index = to_host_operand(a, "choose")
    parts = [to_operand(c, "choose") for c in choices]
    if mode == "raise":
        known = concrete_mask(index, "choose")
        if np.any((known < 0) | (known >= len(parts))):
            raise ArgumentError(
                "choose, argument a",
                expected=f"numbers from 0 to {len(parts) - 1}",
                got=known.tolist(),
                fix="give mode='clip' or mode='wrap'",
            )
    # Out-of-bounds numbers have been rejected, wrapped or clipped, so that the gather needs no bounds checks.
    index = index % len(parts) if mode == "wrap" else clip(index, 0, len(parts) - 1)
    index, *parts = broadcast_operands("choose", index, *parts)
    return lax.squeeze(take_along_axis(stack(parts), lax.expand_dims(index, (0,)), 0, mode="promise_in_bounds"), (0,))
