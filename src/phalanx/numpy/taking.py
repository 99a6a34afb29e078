"""Taking and putting: take, take_along_axis, put_along_axis, nonzero, argwhere, choose and compress.

Built on the gather and scatter of `lax`, and on `indexing` and `at`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, ConcretizationTypeError, DTypeError, ShapeError
from phalanx.numpy.bodies import choose as _choose
from phalanx.numpy.bodies import to_bool
from phalanx.numpy.creation import array
from phalanx.numpy.operands import (
    broadcast_operands,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axis,
    cast,
    concrete,
    host_operand,
    operand,
    refuse_out,
)
from phalanx.numpy.shapes import ravel, resize
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import max_dim, static_size

_MODES = (None, "fill", "clip", "wrap", "drop", "promise_in_bounds")


def check_mode(mode: Any, where: str) -> None:
    """Refuse a mode that is none.

    Raises:
      ArgumentError: there is no such mode.
    """
    if mode not in ("fill", "clip", "drop", "promise_in_bounds", None) and not isinstance(mode, lax.GatherScatterMode):
        raise ArgumentError(
            f"{where}, argument mode", expected="'fill', 'drop', 'clip' or 'promise_in_bounds'", got=repr(mode),
            mend="use one of these",
        )  # fmt: skip


def take(
    a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str | None = None,
    unique_indices: bool = False, indices_are_sorted: bool = False, fill_value: Any = None,
) -> Any:  # fmt: skip
    """Elements, or slices along an axis, at given positions.

    Args:
      a: an array or nested lists of numbers.
      indices: integers; negative ones count from the end.
      axis: the axis; None to ravel first.
      out: must be None.
      mode: for indices out of bounds: `"fill"` (the default), `"clip"`, which makes negative ones 0, `"wrap"` or
        `"promise_in_bounds"`.
      unique_indices: a promise that makes the derivative faster.
      indices_are_sorted: a promise that makes it faster.
      fill_value: for `"fill"`: NaN, or the lowest or largest integer, by default.

    Returns:
      An array of the dtype of `a`, with the dimensions of `indices` in place of the axis.

    Raises:
      ArgumentError: there is no such mode, or `out` is given.
      AxisError: there is no such axis.
      DTypeError: the indices are no integers.

    Examples:
      >>> jnp.take(jnp.array([10, 20, 30]), jnp.array([2, 0])).tolist()
      [30, 10]
    """
    refuse_out(out, "take")
    if mode not in _MODES:
        raise ArgumentError(
            "take, argument mode", expected="'fill', 'clip', 'wrap' or 'promise_in_bounds'", got=repr(mode),
            mend="use one of these",
        )  # fmt: skip
    a, indices = (np.asarray(x) if isinstance(x, list | tuple) else x for x in (a, indices))
    a, indices = operand(a, "take"), host_operand(indices, "take")
    if axis is not None:
        axis = canonical_axis(axis, a.ndim, "take")
    return _take(a, indices, axis, mode, unique_indices, indices_are_sorted, fill_value)


@eager_program(static_argnames=("axis", "mode", "unique", "is_sorted", "fill_value"))
def _take(a: Any, indices: Any, axis: int | None, mode: Any, unique: bool, is_sorted: bool, fill_value: Any) -> Any:
    if not dtypes.issubdtype(indices.dtype, np.integer):
        if indices.dtype != np.bool_:
            raise DTypeError(
                "take, argument indices", expected="integers", got=str(indices.dtype), mend="use .astype(int)"
            )
        indices = cast(indices, np.dtype(np.int32))
    if axis is None:
        a, axis = lax.reshape(a, (math.prod(a.shape),)) if a.ndim != 1 else a, 0
    n = a.shape[axis]
    if mode == "wrap":
        from phalanx.numpy.ufuncs import remainder

        indices, mode = remainder(indices, n), "promise_in_bounds"
    elif mode == "clip":  # as in NumPy, negative ones do not count from the end then
        indices = lax.max(indices, np.zeros((), indices.dtype)[()])
    from phalanx.numpy.indexing import READ_MODES, gathered, index_vectors

    batch = indices.shape
    vectors = index_vectors([indices], (n,), (False,), batch)
    if isinstance(vectors, np.ndarray) and type(n) is int:
        vectors = np.where(vectors < 0, vectors + n, vectors).astype(vectors.dtype)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + len(batch), a.ndim + len(batch) - 1)), collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )  # fmt: skip
    sizes = tuple(1 if i == axis else d for i, d in enumerate(a.shape))
    options = {"fill_value": fill_value} if mode in (None, "fill") else {}
    return gathered(
        a, vectors, numbers, sizes, unique_indices=unique, indices_are_sorted=is_sorted,
        mode=READ_MODES["fill" if mode is None else mode], **options,
    )  # fmt: skip


def take_along_axis(
    arr: Any, indices: Any, axis: int | None = -1, mode: Any = None, fill_value: Any = None, *,
    wrap_negative_indices: bool = True,
) -> Any:  # fmt: skip
    """For each element of `indices`, the element of `arr` at that position along an axis.

    Args:
      arr: an array or a scalar.
      indices: integers; the other dimensions broadcast with those of `arr`.
      axis: the axis; None to ravel first.
      mode: for indices out of bounds: `"fill"` (the default), `"clip"` or `"promise_in_bounds"`.
      fill_value: for `"fill"`.
      wrap_negative_indices: whether negative indices count from the end; else they are out of bounds.

    Returns:
      An array of the dtype of `arr`, as long along the axis as `indices`; the other dimensions broadcast.

    Raises:
      ArgumentError: there is no such mode.
      AxisError: there is no such axis.
      DTypeError: the indices are no integers.
      ShapeError: the ranks differ, or other dimensions do not broadcast.

    Examples:
      >>> jnp.take_along_axis(jnp.array([[1, 2], [3, 4]]), jnp.array([[1], [0]]), 1).tolist()
      [[2], [3]]
    """
    check_mode(mode, "take_along_axis")
    if not wrap_negative_indices:
        from phalanx.numpy.at import not_wrapped

        indices = not_wrapped(operand(indices, "take_along_axis"), mode)
    return _take_along_axis(arr, indices, axis, mode, fill_value)


@eager_program(static_argnames=("axis", "mode", "fill_value"))
def _take_along_axis(arr: Any, indices: Any, axis: int | None, mode: Any, fill_value: Any) -> Any:
    x, indices, axis = _along(arr, indices, axis, "take_along_axis")
    from phalanx.numpy.indexing import READ_MODES, gathered, normalized

    n = x.shape[axis]
    indices = normalized(indices, n, False)
    rank = x.ndim
    others = [i for i in range(rank) if i != axis]
    shape = tuple(broadcast_shapes(x.shape[i : i + 1], indices.shape[i : i + 1])[0] for i in others)
    full = tuple(indices.shape[axis] if i == axis else shape[others.index(i)] for i in range(rank))
    # A dimension of size 1 in `arr` is dropped rather than repeated; one in `indices` is repeated, being small.
    batching = tuple(i for i in others if x.shape[i] != 1)
    collapsed = tuple(i for i in range(rank) if i not in batching)
    indices = broadcast_to_shape(indices, full)
    vectors = lax.expand_dims(indices, (rank,))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=collapsed, start_index_map=(axis,), operand_batching_dims=batching,
        start_indices_batching_dims=batching,
    )  # fmt: skip
    mode = "fill" if mode is None else mode
    options = {"fill_value": fill_value} if mode == "fill" else {}
    return gathered(x, vectors, numbers, (1,) * rank, mode=READ_MODES.get(mode, mode), **options)


def _along(arr: Any, indices: Any, axis: int | None, name: str) -> tuple:
    x, indices = operand(arr, name), operand(indices, name)
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise DTypeError(
            f"{name}, argument indices", expected="integers", got=str(indices.dtype), mend="use .astype(int)"
        )
    if axis is None:
        x, axis = lax.reshape(x, (math.prod(x.shape),)) if x.ndim != 1 else x, 0
    if indices.ndim != x.ndim:
        raise ShapeError(
            f"{name}, argument indices", expected=f"rank {x.ndim}, that of the array", got=indices.shape,
            mend="add dimensions of size 1 to the indices",
        )  # fmt: skip
    return x, indices, canonical_axis(axis, x.ndim, name)


def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = True, *, mode: str | None = None
) -> Any:
    """A copy of `arr` with the elements at given positions along an axis replaced.

    Args:
      arr: an array.
      indices: integers; the other dimensions broadcast with those of `arr`.
      values: what to put; broadcasts with the indices.
      axis: the axis; None to ravel first.
      inplace: must be False, since arrays do not change.
      mode: for indices out of bounds: `"drop"` (the default), `"clip"` or `"promise_in_bounds"`.

    Returns:
      An array of the shape and dtype of `arr`.

    Raises:
      ArgumentError: `inplace` is True.
      DTypeError: the indices are no integers.
      ShapeError: the ranks differ, or other dimensions do not broadcast.

    Examples:
      >>> jnp.put_along_axis(jnp.zeros((1, 2)), jnp.array([[1]]), 5.0, 1, inplace=False).tolist()
      [[0.0, 5.0]]
    """
    refuse_inplace(inplace, "put_along_axis")
    return _put_along_axis(arr, indices, values, axis, mode)


def refuse_inplace(inplace: bool, name: str) -> None:
    """Refuse to write into an array.

    Raises:
      ArgumentError: `inplace` is True.
    """
    if inplace:
        raise ArgumentError(
            f"{name}, argument inplace", expected="False, since arrays do not change", got=True,
            mend="give inplace=False and use the returned array",
        )  # fmt: skip


@eager_program(static_argnames=("axis", "mode"))
def _put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None, mode: Any) -> Any:
    original = operand(arr, "put_along_axis")
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
    index[axis] = indices
    from phalanx.numpy.at import At

    chosen: Any = At(x)[tuple(index)]
    out = chosen.set(values, mode=mode)
    return out if out.shape == original.shape else lax.reshape(out, original.shape)


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Any:
    """A copy of `a` with the elements at given positions of the raveled array replaced.

    Args:
      a: an array or nested lists of numbers.
      ind: integers.
      v: what to put, repeated or cut to be as many.
      mode: for indices out of bounds: `"drop"` (the default), `"wrap"` or `"clip"`.
      inplace: must be False, since arrays do not change.

    Returns:
      An array of the shape and dtype of `a`.

    Raises:
      ArgumentError: `inplace` is True, or there is no such mode.

    Examples:
      >>> jnp.put(jnp.zeros(3), jnp.array([1]), 5.0, inplace=False).tolist()
      [0.0, 5.0, 0.0]
    """
    refuse_inplace(inplace, "put")
    x, ind, v = (array(y) if isinstance(y, list | tuple) else operand(y, "put") for y in (a, ind, v))
    ind, v = ravel(ind), ravel(v)
    if not ind.size or not v.size:
        return x
    v = resize(v, ind.shape) if v.shape != ind.shape else v
    flat = ravel(x)
    if mode == "wrap":
        ind, mode = ind % flat.shape[0], "drop"
    elif mode == "clip":
        from phalanx.numpy.rounding import clip

        ind, mode = clip(ind, 0, flat.shape[0] - 1), "promise_in_bounds"
    return lax.reshape(flat.at[ind].set(v, mode=mode), x.shape)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Any:
    """A copy of `arr` with the elements under a mask replaced by values in turn.

    Args:
      arr: an array or nested lists of numbers.
      mask: as many booleans, or numbers that are compared with 0.
      vals: what to put, repeated where it is too short.
      inplace: must be False, since arrays do not change.

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
    x, mask, vals = (array(y) if isinstance(y, list | tuple) else operand(y, "place") for y in (arr, mask, vals))
    mask = ravel(to_bool(mask))
    if not vals.size:
        return x
    positions = lax.cumsum(cast(mask, np.dtype(np.int32)), axis=0) - 1
    values = resize(vals, (x.size,))
    chosen = take(values, positions, mode="clip")
    return lax.reshape(_choose(mask, cast(chosen, x.dtype), ravel(x)), x.shape)


def known_mask(mask: Any, name: str) -> np.ndarray:
    """The values that decide the shape of a result.

    Raises:
      ConcretizationTypeError: they are traced.
    """
    known = concrete(mask)
    if known is None:
        raise ConcretizationTypeError(
            f"{name}, the number of results", expected="a mask that is known while tracing, as it decides the shape",
            got=mask.describe() if hasattr(mask, "describe") else str(mask), mend="give size=, a bound on the number",
        )  # fmt: skip
    return known


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple:
    """The positions of the elements that are not 0, one array for each dimension.

    Args:
      a: of rank 1 or more.
      size: how many to give; needed where `a` is traced.
      fill_value: for places beyond the last position, 0 by default; or one for each dimension.

    Returns:
      A tuple of vectors of integers, for the positions in row-major order.

    Raises:
      ConcretizationTypeError: `a` is traced and `size` is not given.
      ShapeError: `a` is a scalar.

    Examples:
      >>> jnp.nonzero(jnp.array([0, 5, 0, 7]))[0].tolist()
      [1, 3]
    """
    x = host_operand(np.asarray(a) if isinstance(a, list | tuple) else a, "nonzero")
    if not x.ndim:
        raise ShapeError("nonzero", expected="an array of rank 1 or more", got="a scalar", mend="use atleast_1d")
    if size is None:
        index_dtype = dtypes.canonicalize_dtype(np.int64)
        return tuple(array(i.astype(index_dtype)) for i in np.nonzero(known_mask(x, "nonzero")))
    return tuple(_nonzero(x, static_size(size), fill_value))


@eager_program(static_argnames=("size",))
def _nonzero(x: Any, size: int, fill_value: Any) -> list:
    dtype = dtypes.canonicalize_dtype(np.int64)
    mask = lax.reshape(to_bool(x), (math.prod(x.shape),)) if x.ndim != 1 else to_bool(x)
    fills = fill_value if isinstance(fill_value, tuple) else (0 if fill_value is None else fill_value,) * x.ndim
    total = mask.shape[0]
    if size == 0 or (type(total) is int and total == 0):
        return [broadcast_to_shape(cast(operand(f, "nonzero"), dtype), (size,)) for f in fills]
    ranks = lax.cumsum(cast(mask, dtype), axis=0)
    # The k-th position is the number of places before which fewer than k elements were found.
    counts = lax.full((size,), 0, dtype).at[ranks].add(dtype.type(1), mode="drop")
    flat = lax.cumsum(counts, axis=0)
    found = lax.slice_in_dim(ranks, total - 1, total)
    valid = lax.broadcast_in_dim(found, (size,), (0,)) > lax.iota(dtype, size)
    out = []
    rest = flat
    for d in reversed(x.shape):
        places = cast(max_dim(d, 1), dtype)
        out.append(lax.rem(rest, places))
        rest = lax.div(rest, places)
    out.reverse()
    return [
        _choose(valid, i, broadcast_to_shape(cast(operand(f, "nonzero"), dtype), (size,)))
        for i, f in zip(out, fills, strict=True)
    ]


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The positions of the elements of the raveled array that are not 0.

    Args:
      a, size, fill_value: as in `nonzero`; a scalar counts as one element.

    Returns:
      A vector of integers.

    Raises:
      ConcretizationTypeError: `a` is traced and `size` is not given.

    Examples:
      >>> jnp.flatnonzero(jnp.array([[0, 5], [0, 7]])).tolist()
      [1, 3]
    """
    x = host_operand(np.asarray(a) if isinstance(a, list | tuple) else a, "flatnonzero")
    return nonzero(x.reshape(-1), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The positions of the elements that are not 0, one row each.

    Args:
      a, size, fill_value: as in `nonzero`.

    Returns:
      int[found, rank].

    Raises:
      ConcretizationTypeError: `a` is traced and `size` is not given.

    Examples:
      >>> jnp.argwhere(jnp.array([[0, 5], [0, 7]])).tolist()
      [[0, 1], [1, 1]]
    """
    from phalanx.numpy.joining import stack

    x = host_operand(a, "argwhere")
    found = nonzero(x if x.ndim else x.reshape(1), size=size, fill_value=fill_value)
    if x.ndim == 0:
        return lax.full((found[0].shape[0], 0), 0, found[0].dtype)
    return stack(list(found), axis=1)


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """The elements of `arr` where a condition holds.

    Args:
      condition: booleans, raveled.
      arr: as many elements, raveled.
      size: how many to give; needed where the mask is traced.
      fill_value: for places beyond the last.

    Returns:
      A vector of the dtype of `arr`.

    Raises:
      ConcretizationTypeError: the mask is traced and `size` is not given.

    Examples:
      >>> jnp.extract(jnp.array([True, False, True]), jnp.array([1, 2, 3])).tolist()
      [1, 3]
    """
    condition = host_operand(np.asarray(condition) if isinstance(condition, list | tuple) else condition, "extract")
    return compress(condition.reshape(-1), ravel(arr), size=size, fill_value=fill_value)


def compress(
    condition: Any, a: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0, out: None = None
) -> Any:
    """The slices along an axis where a condition holds.

    Args:
      condition: a vector of booleans, no longer than the axis.
      a: an array or nested lists of numbers.
      axis: the axis; None to ravel first.
      size: how many to give; needed where the condition is traced.
      fill_value: for places beyond the last.
      out: must be None.

    Returns:
      An array of the dtype of `a`, along the axis as long as the condition holds or `size`.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.
      ConcretizationTypeError: the condition is traced and `size` is not given.
      ShapeError: the condition is no vector.

    Examples:
      >>> jnp.compress(jnp.array([True, False]), jnp.array([[1, 2], [3, 4]]), axis=0).tolist()
      [[1, 2]]
    """
    refuse_out(out, "compress")
    x = array(a) if isinstance(a, list | tuple) else operand(a, "compress")
    condition = host_operand(np.asarray(condition) if isinstance(condition, list | tuple) else condition, "compress")
    if condition.ndim != 1:
        raise ShapeError("compress, argument condition", expected="a vector", got=condition.shape, mend="ravel it")
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim, "compress")
    (found,) = nonzero(condition, size=size, fill_value=condition.shape[0] + x.shape[axis])
    return take(x, found, axis, mode="fill", fill_value=fill_value)


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """For each element of `a`, the element of the array in `choices` that it names.

    Args:
      a: integers.
      choices: a sequence of arrays that broadcast with `a`.
      out: must be None.
      mode: for numbers out of bounds, `"wrap"` or `"clip"`; `"raise"` needs values that are known.

    Returns:
      An array of the broadcast shape.

    Raises:
      ArgumentError: a number is out of bounds and `mode` is `"raise"`, or `out` is given.
      ConcretizationTypeError: `a` is traced and `mode` is `"raise"`.

    Examples:
      >>> jnp.choose(jnp.array([1, 0]), [jnp.array([1, 2]), jnp.array([3, 4])], mode="clip").tolist()
      [3, 2]
    """
    from phalanx.numpy.joining import stack
    from phalanx.numpy.rounding import clip

    refuse_out(out, "choose")
    index = host_operand(a, "choose")
    parts = [operand(c, "choose") for c in choices]
    if mode == "raise":
        known = known_mask(index, "choose")
        if np.any((known < 0) | (known >= len(parts))):
            raise ArgumentError(
                "choose, argument a", expected=f"numbers from 0 to {len(parts) - 1}", got=known.tolist(),
                mend="give mode='clip' or mode='wrap'",
            )  # fmt: skip
    index = index % len(parts) if mode == "wrap" else clip(index, 0, len(parts) - 1)
    index, *parts = broadcast_operands("choose", index, *parts)
    return lax.squeeze(take_along_axis(stack(parts), lax.expand_dims(index, (0,)), 0, mode="promise_in_bounds"), (0,))
