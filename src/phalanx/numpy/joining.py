"""Joining and splitting: concatenate, stack, block, split, append, insert, delete.

Built on `lax.concatenate` and slices.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.numpy.creation import array
from phalanx.numpy.operands import (
    broadcast_to_shape,
    canonical_axis,
    cast,
    concrete,
    integer,
    operand,
    promote,
    refuse_out,
)
from phalanx.numpy.shapes import atleast_1d, atleast_2d, atleast_3d, ravel, reshape
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_symbolic, max_dim


def _parts(arrays: Any, where: str) -> list:
    """The arrays of a sequence; of an array, the pieces along its first dimension."""
    if hasattr(arrays, "aval") or isinstance(arrays, np.ndarray):
        x = operand(arrays, where)
        if not x.ndim:
            raise ShapeError(where, expected="a sequence of arrays", got="a single number", mend="put it into a list")
        return [x[i] for i in range(x.shape[0])]
    parts = [array(x) if isinstance(x, list | tuple) else x for x in arrays]
    if not parts:
        raise ArgumentError(where, expected="at least one array", got="none", mend="give a non-empty sequence")
    return parts


def _common(parts: list, dtype: Any, where: str) -> list:
    parts = promote(where, *parts)
    return parts if dtype is None else [cast(x, dtype) for x in parts]


def _requested(dtype: Any, where: str) -> Any:
    return None if dtype is None else dtypes.requested_dtype(dtype, where)


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Any:
    """Arrays joined along a dimension.

    Args:
      arrays: a sequence of arrays whose other dimensions agree.
      axis: the dimension; None to ravel them first.
      dtype: the dtype, else the common one.

    Returns:
      An array that holds them one after the other, as long along the dimension as all together.

    Raises:
      ArgumentError: there are no arrays.
      AxisError: there is no such axis.
      ShapeError: other dimensions, or ranks, differ.

    Examples:
      >>> jnp.concatenate([jnp.zeros(1), jnp.ones(2)]).tolist()
      [0.0, 1.0, 1.0]
    """
    return _concatenate(_parts(arrays, "concatenate"), axis, _requested(dtype, "concatenate"))


@eager_program(static_argnames=("axis", "dtype"))
def _concatenate(parts: list, axis: int | None, dtype: Any) -> Any:
    parts = _common(parts, dtype, "concatenate")
    if axis is None:
        parts, axis = [ravel(x) for x in parts], 0
    first = parts[0].shape
    axis = canonical_axis(axis, len(first), "concatenate")
    for i, x in enumerate(parts):
        dims = x.shape
        if len(dims) != len(first) or dims[:axis] != first[:axis] or dims[axis + 1 :] != first[axis + 1 :]:
            raise ShapeError(
                f"concatenate, array {i}", expected=f"the shape {first} of array 0, but for axis {axis}", got=dims,
                mend="reshape or broadcast the arrays to agree",
            )  # fmt: skip
    if len(parts) == 1:
        return parts[0] if hasattr(parts[0], "aval") else array(parts[0])
    return lax.concatenate(parts, axis)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Arrays joined along a dimension: the array API's name of `concatenate`.

    Args:
      arrays, axis: as in `concatenate`.

    Returns:
      An array that holds them one after the other.

    Raises:
      ArgumentError: there are no arrays.
      AxisError: there is no such axis.
      ShapeError: other dimensions, or ranks, differ.

    Examples:
      >>> jnp.concat([jnp.zeros(1), jnp.ones(1)]).tolist()
      [0.0, 1.0]
    """
    return concatenate(arrays, axis)


def stack(arrays: Any, axis: int = 0, out: None = None, dtype: Any = None) -> Any:
    """Arrays of one shape joined along a new dimension.

    Args:
      arrays: a sequence of arrays of one shape, or an array, whose first dimension is then moved.
      axis: where the new dimension stands in the result.
      out: must be None.
      dtype: the dtype, else the common one.

    Returns:
      An array of one rank more.

    Raises:
      ArgumentError: there are no arrays, or `out` is given.
      AxisError: there is no such place.
      ShapeError: shapes differ.

    Examples:
      >>> jnp.stack([jnp.zeros(2), jnp.ones(2)]).tolist()
      [[0.0, 0.0], [1.0, 1.0]]
    """
    refuse_out(out, "stack")
    if (hasattr(arrays, "aval") or isinstance(arrays, np.ndarray)) and dtype is None:
        from phalanx.numpy.shapes import moveaxis

        return moveaxis(arrays, 0, axis)
    return _stack(_parts(arrays, "stack"), axis, _requested(dtype, "stack"))


@eager_program(static_argnames=("axis", "dtype"))
def _stack(parts: list, axis: int, dtype: Any) -> Any:
    parts = _common(parts, dtype, "stack")
    dims = np.shape(parts[0])
    for i, x in enumerate(parts):
        if np.shape(x) != dims:
            raise ShapeError(
                f"stack, array {i}", expected=f"the shape {dims} of array 0", got=np.shape(x), mend="broadcast first"
            )
    axis = canonical_axis(axis, len(dims) + 1, "stack")
    new = (*dims[:axis], 1, *dims[axis:])
    parts = [lax.reshape(operand(x, "stack"), new) for x in parts]
    return lax.concatenate(parts, axis) if len(parts) > 1 else parts[0]


def unstack(x: Any, /, *, axis: int = 0) -> tuple:
    """The pieces along a dimension.

    Args:
      x: of rank 1 or more.
      axis: the dimension to take apart.

    Returns:
      A tuple of arrays without that dimension.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> [a.tolist() for a in jnp.unstack(jnp.array([[1, 2], [3, 4]]))]
      [[1, 2], [3, 4]]
    """
    return tuple(_unstack(operand(x, "unstack"), axis))


@eager_program(static_argnames=("axis",))
def _unstack(x: Any, axis: int) -> list:
    axis = canonical_axis(axis, x.ndim, "unstack")
    return [lax.squeeze(lax.slice_in_dim(x, i, i + 1, axis=axis), (axis,)) for i in range(x.shape[axis])]


def vstack(tup: Any, dtype: Any = None) -> Any:
    """Rows joined: along the first dimension, vectors becoming rows.

    Args:
      tup: a sequence of arrays, whose dimensions but the first agree.
      dtype: the dtype, else the common one.

    Returns:
      An array of rank 2 or more.

    Raises:
      ArgumentError: there are no arrays.
      ShapeError: shapes disagree.

    Examples:
      >>> jnp.vstack([jnp.zeros(2), jnp.ones(2)]).shape
      (2, 2)
    """
    return concatenate(_each(atleast_2d, tup, "vstack"), 0, dtype)


def hstack(tup: Any, dtype: Any = None) -> Any:
    """Columns joined: along the second dimension, vectors along their only one.

    Args:
      tup: a sequence of arrays, whose dimensions but the second (of vectors, the first) agree.
      dtype: the dtype, else the common one.

    Returns:
      An array of rank 1 or more.

    Raises:
      ArgumentError: there are no arrays.
      ShapeError: shapes disagree.

    Examples:
      >>> jnp.hstack([jnp.zeros(2), jnp.ones(1)]).tolist()
      [0.0, 0.0, 1.0]
    """
    parts = _each(atleast_1d, tup, "hstack")
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1, dtype)


def dstack(tup: Any, dtype: Any = None) -> Any:
    """Arrays joined along the third dimension.

    Args:
      tup: a sequence of arrays; vectors of n become [1, n, 1], matrices [m, n, 1].
      dtype: the dtype, else the common one.

    Returns:
      An array of rank 3 or more.

    Raises:
      ArgumentError: there are no arrays.
      ShapeError: shapes disagree.

    Examples:
      >>> jnp.dstack([jnp.zeros(2), jnp.ones(2)]).shape
      (1, 2, 2)
    """
    return concatenate(_each(atleast_3d, tup, "dstack"), 2, dtype)


def column_stack(tup: Any) -> Any:
    """Vectors as the columns of a matrix.

    Args:
      tup: a sequence of vectors or matrices with as many rows.

    Returns:
      A matrix.

    Raises:
      ArgumentError: there are no arrays.
      ShapeError: shapes disagree.

    Examples:
      >>> jnp.column_stack([jnp.zeros(2), jnp.ones(2)]).tolist()
      [[0.0, 1.0], [0.0, 1.0]]
    """
    parts = [operand(x, "column_stack") for x in _parts(tup, "column_stack")]
    parts = [reshape(x, (math.prod(x.shape), 1)) if x.ndim < 2 else x for x in parts]
    return concatenate(parts, 1)


def _each(grow: Any, tup: Any, where: str) -> list:
    return [grow(x) for x in _parts(tup, where)]


def block(arrays: Any) -> Any:
    """Nested lists of arrays joined: the innermost along the last dimension.

    Args:
      arrays: an array, or lists of them nested equally deep.

    Returns:
      An array; a list of depth d, the innermost being of depth 1, is joined along axis -d.

    Raises:
      ArgumentError: a list is empty.
      ShapeError: shapes disagree.

    Examples:
      >>> jnp.block([[jnp.ones((1, 1)), jnp.zeros((1, 1))]]).tolist()
      [[1.0, 0.0]]
    """
    depth, rank = _block_depth(arrays)
    return _block(arrays, max(depth, rank), depth)


def _block_depth(x: Any) -> tuple[int, int]:
    if isinstance(x, list):
        if not x:
            raise ArgumentError("block", expected="lists that are not empty", got="[]", mend="leave it out")
        found = [_block_depth(v) for v in x]
        return found[0][0] + 1, max(r for _, r in found)
    return 0, operand(x, "block").ndim


def _block(x: Any, rank: int, depth: int) -> Any:
    if isinstance(x, list):
        return concatenate([_block(v, rank, depth - 1) for v in x], axis=-depth)
    x = operand(x, "block")
    x = reshape(x, (1,) * (rank - x.ndim) + tuple(x.shape)) if x.ndim < rank else x
    return x if hasattr(x, "aval") else array(x)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list:
    """Pieces along a dimension, of nearly equal size or cut at given places.

    Args:
      ary: of rank 1 or more.
      indices_or_sections: the number of pieces, or the positions to cut before.
      axis: the dimension.

    Returns:
      A list of arrays; where the size is no multiple of the number, the first ones have one element more.

    Raises:
      ArgumentError: the number of pieces is below 1.
      AxisError: there is no such axis.

    Examples:
      >>> [a.tolist() for a in jnp.array_split(jnp.arange(5), 2)]
      [[0, 1, 2], [3, 4]]
    """
    return _split("array_split", ary, indices_or_sections, axis)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list:
    """Pieces along a dimension, of equal size or cut at given places.

    Args:
      ary: of rank 1 or more.
      indices_or_sections: the number of pieces, or the positions to cut before.
      axis: the dimension.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the size is no multiple of the number of pieces, or that is below 1.
      AxisError: there is no such axis.

    Examples:
      >>> [a.tolist() for a in jnp.split(jnp.arange(4), 2)]
      [[0, 1], [2, 3]]
    """
    return _split("split", ary, indices_or_sections, axis)


def vsplit(ary: Any, indices_or_sections: Any) -> list:
    """Pieces along the first dimension.

    Args:
      ary: of rank 1 or more.
      indices_or_sections: the number of pieces, or the positions to cut before.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the size is no multiple of the number of pieces, or that is below 1.

    Examples:
      >>> len(jnp.vsplit(jnp.zeros((4, 2)), 2))
      2
    """
    return _split("vsplit", ary, indices_or_sections, 0)


def hsplit(ary: Any, indices_or_sections: Any) -> list:
    """Pieces along the second dimension, or the only one.

    Args:
      ary: of rank 1 or more.
      indices_or_sections: the number of pieces, or the positions to cut before.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the size is no multiple of the number of pieces, or that is below 1.

    Examples:
      >>> len(jnp.hsplit(jnp.zeros((2, 4)), 2))
      2
    """
    ary = operand(ary, "hsplit")
    return _split("hsplit", ary, indices_or_sections, 1 if ary.ndim > 1 else 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list:
    """Pieces along the third dimension.

    Args:
      ary: of rank 3 or more.
      indices_or_sections: the number of pieces, or the positions to cut before.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the size is no multiple of the number of pieces, or that is below 1.
      AxisError: the rank is below 3.

    Examples:
      >>> len(jnp.dsplit(jnp.zeros((1, 2, 4)), 2))
      2
    """
    return _split("dsplit", ary, indices_or_sections, 2)


def _split(where: str, ary: Any, indices_or_sections: Any, axis: int) -> list:
    ary = operand(ary, where)
    axis = canonical_axis(axis, ary.ndim, where)
    size = ary.shape[axis]
    given = indices_or_sections
    if isinstance(given, list | tuple) or getattr(given, "ndim", 0):
        cuts = [int(i) for i in given]
        cuts = [max(0, min(i + size if i < 0 else i, size)) for i in cuts]
        bounds = [0, *cuts, size]
    else:
        n = integer(given, f"{where}, argument indices_or_sections")
        if n <= 0:
            raise ArgumentError(f"{where}, argument indices_or_sections", expected="1 or more", got=n, mend="give 1")
        each, more = size // n, size % n
        if more != 0 and where != "array_split":
            raise ArgumentError(
                f"{where}, argument indices_or_sections", expected=f"a divisor of {size}, the size of axis {axis}",
                got=n, mend="use array_split for pieces of unequal size",
            )  # fmt: skip
        bounds = [0]
        for i in range(n):
            bounds.append(bounds[-1] + each + (i < more))
    return _cut(ary, tuple(bounds), axis)


@eager_program(static_argnames=("bounds", "axis"))
def _cut(x: Any, bounds: tuple, axis: int) -> list:
    pieces = list(zip(bounds[:-1], bounds[1:], strict=True))
    return [lax.slice_in_dim(x, a, max_dim(a, b), axis=axis) for a, b in pieces]


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Values joined at the end; raveled first where no axis is given.

    Args:
      arr, values: arrays or nested lists of numbers; along an axis, with other dimensions that agree.
      axis: the dimension; None to ravel both first.

    Returns:
      An array of the dtype that both promote to.

    Raises:
      AxisError: there is no such axis.
      ShapeError: other dimensions, or ranks, differ.

    Examples:
      >>> jnp.append(jnp.arange(2), 9).tolist()
      [0, 1, 9]
    """
    arr, values = (array(x) if isinstance(x, list | tuple) else operand(x, "append") for x in (arr, values))
    if axis is None:
        return concatenate([ravel(arr), ravel(values)], 0)
    return concatenate([arr, values], axis)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """Values inserted before given positions, which must be known.

    Args:
      arr: an array or nested lists of numbers.
      obj: an integer, a slice, or integers, counted before anything is inserted.
      values: what to insert, converted to the dtype of `arr`; broadcasts to the slices at these positions.
      axis: the dimension; None to ravel first.

    Returns:
      An array, longer along the axis by the number of what is inserted.

    Raises:
      ArgumentError: a position is out of bounds.
      AxisError: there is no such axis.
      ConcretizationTypeError: `obj` is traced.

    Examples:
      >>> jnp.insert(jnp.array([1, 3]), 1, 2).tolist()
      [1, 2, 3]
    """
    arr = array(arr) if isinstance(arr, list | tuple) else operand(arr, "insert")
    values = array(values) if isinstance(values, list | tuple) else operand(values, "insert")
    if axis is None:
        arr, axis = ravel(arr), 0
    axis = canonical_axis(axis, arr.ndim, "insert")
    n = arr.shape[axis]
    values = (
        reshape(values, (1,) * (arr.ndim - values.ndim) + tuple(values.shape)) if values.ndim < arr.ndim else values
    )
    values = cast(values, arr.dtype)
    where = np.arange(n)[obj] if isinstance(obj, slice) else _known_positions(obj, "insert")
    _check_positions("insert", where, n, n)
    single = where.ndim == 0 or where.size == 1
    if single:
        at = int(where.reshape(()))
        at = at + n if at < 0 else at
        if where.ndim == 0 and np.ndim(obj) == 0:
            from phalanx.numpy.shapes import moveaxis

            values = moveaxis(values, 0, axis)
        count = values.shape[axis]
        values = broadcast_to_shape(values, (*arr.shape[:axis], count, *arr.shape[axis + 1 :]))
        first, rest = _cut(arr, (0, at, n), axis)
        return concatenate([first, values, rest], axis)
    where = np.where(where < 0, where + n, where)
    order = np.argsort(where, kind="stable")
    places = np.empty(len(where), np.int64)
    places[order] = where[order] + np.arange(len(where))
    old = np.ones(n + len(where), bool)
    old[places] = False
    values = broadcast_to_shape(values, (*arr.shape[:axis], len(where), *arr.shape[axis + 1 :]))
    source = np.empty(n + len(where), np.int32)
    source[old] = np.arange(n)
    source[places] = n + np.arange(len(where))
    from phalanx.numpy.taking import take

    return take(concatenate([arr, values], axis), source, axis, mode="clip")


def _known_positions(obj: Any, where: str) -> np.ndarray:
    known = concrete(np.asarray(obj) if isinstance(obj, list | tuple | range) else obj)
    if known is None:
        from phalanx.core.errors import ConcretizationTypeError

        raise ConcretizationTypeError(
            f"{where}, argument obj", expected="positions that are known while tracing", got=str(obj),
            mend="mark the argument they come from as static",
        )  # fmt: skip
    return known


def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Any:
    """The array without given positions, which must be known unless they are unique.

    Args:
      arr: an array or nested lists of numbers.
      obj: an integer, a slice, integers, or a mask.
      axis: the dimension; None to ravel first.
      assume_unique_indices: the integers differ and are in bounds, so they may be traced.

    Returns:
      An array, shorter along the axis by the number of what is left out.

    Raises:
      ArgumentError: a position is out of bounds.
      AxisError: there is no such axis.
      ConcretizationTypeError: `obj` is traced, is not one integer, and nothing is promised of it.
      ShapeError: a mask is not as long as the axis.

    Examples:
      >>> jnp.delete(jnp.arange(4), 1).tolist()
      [0, 2, 3]
    """
    arr = array(arr) if isinstance(arr, list | tuple) else operand(arr, "delete")
    if axis is None:
        arr, axis = ravel(arr), 0
    axis = canonical_axis(axis, arr.ndim, "delete")
    n = arr.shape[axis]
    from phalanx.numpy.taking import take

    if not isinstance(obj, slice) and concrete(np.asarray(obj) if isinstance(obj, list | tuple) else obj) is None:
        if assume_unique_indices or obj.ndim == 0:
            return take(arr, _others(obj, n), axis, mode="clip")
    if is_symbolic(n):
        return _delete_symbolic(arr, obj, axis)
    keep = np.ones(n, bool)
    where = obj if isinstance(obj, slice) else _known_positions(obj, "delete")
    if not isinstance(where, slice) and where.dtype != bool:
        _check_positions("delete", where, n, n - 1)
        where = where.astype(int)
    elif not isinstance(where, slice) and where.shape != (n,):
        raise ShapeError("delete, argument obj", expected=f"a mask of shape {(n,)}", got=where.shape, mend="give axis=")
    keep[where] = False
    return take(arr, np.flatnonzero(keep).astype(np.int32), axis, mode="clip")


def _check_positions(name: str, where: np.ndarray, n: Any, last: Any) -> None:
    bad = None if is_symbolic(n) or where.dtype == bool else (where < -n) | (where > last)
    if bad is not None and np.any(bad):
        raise ArgumentError(
            f"{name}, argument obj", expected=f"positions from {-n} to {last}", got=where[bad].ravel()[0].item(),
            mend="leave it out",
        )  # fmt: skip


def _delete_symbolic(arr: Any, obj: Any, axis: int) -> Any:
    """`delete` along a symbolic length: what is left is as many fewer only if no position stands twice."""
    known = None if isinstance(obj, slice) else np.unique(_known_positions(obj, "delete"))
    if known is None or known.dtype == bool or (known.size and known[0] < 0 <= known[-1]):
        raise ArgumentError(
            "delete along a symbolic length", expected="positions counted from one end, the same for every size",
            got=repr(obj), mend="concatenate the slices that are to stay",
        )  # fmt: skip
    from phalanx.numpy.taking import take

    return take(arr, _others(known, arr.shape[axis]), axis, mode="clip")


@eager_program(static_argnames=("n",))
def _others(obj: Any, n: int) -> Any:
    """The positions that are not in `obj`, all different."""
    obj = ravel(operand(obj, "delete"))
    obj = obj + n * (obj < 0).astype(obj.dtype)
    obj = lax.sort(obj)
    m = obj.shape[0]
    place = lax.iota(np.dtype(np.int32), n - m)
    shift = (obj - lax.iota(obj.dtype, m))[None, :] <= place[:, None].astype(obj.dtype)
    return place + lax.reduce_sum(shift.astype("int32"), (1,))
