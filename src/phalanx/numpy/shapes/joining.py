"""Joining of arrays (`concatenate`, `stack`, `block` and their variants), and the reverse, splitting along an axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, dtypes
from phalanx.numpy.creation.array_creation import array, promote_parts, stack_operands
from phalanx.numpy.indexing.array_indexing import unstack_dim
from phalanx.numpy.operands import as_array, canonical_axis, refuse_out, to_operand, to_static_int
from phalanx.numpy.shapes.reshaping import atleast_1d, atleast_2d, atleast_3d, moveaxis, ravel, reshape
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import max_dim
from phalanx.typing import Array, ArrayLike, DTypeLike


def _to_sequence(arrays: Sequence[ArrayLike] | ArrayLike, where: str) -> list:
    """The arrays to join: the elements of a sequence, or the slices of an array along its first dimension."""
    if hasattr(arrays, "aval") or isinstance(arrays, np.ndarray):
        x = to_operand(arrays, where)
        if not x.ndim:
            raise ShapeError(where, expected="a sequence of arrays", got="a single number", fix="put it into a list")
        parts = [x[i] for i in range(x.shape[0])]
    else:
        parts = [array(x) if isinstance(x, list | tuple) else x for x in arrays]
    if not parts:
        raise ArgumentError(where, expected="at least one array", got="none", fix="pass a non-empty sequence of arrays")
    return parts


def _canonicalize(dtype: np.dtype, where: str) -> Any:
    return None if dtype is None else dtypes.requested_dtype(dtype, where)


def concatenate(arrays: Sequence[ArrayLike] | ArrayLike, axis: int | None = 0, dtype: DTypeLike | None = None) -> Array:
    """Join arrays along an existing axis.

    Args:
      arrays: sequence of arrays whose other dimensions are equal.
      axis: the axis; None flattens the arrays first.
      dtype: dtype of the result; by default the arrays' promoted dtype.

    Returns:
      The joined array; its length along the axis is the sum of the lengths.

    Raises:
      ArgumentError: the sequence is empty.
      AxisError: an axis is out of range.
      ShapeError: ranks or other dimensions differ.

    Examples:
      >>> jnp.concatenate([jnp.zeros(1), jnp.ones(2)]).tolist()
      [0.0, 1.0, 1.0]
    """
    return _concatenate(_to_sequence(arrays, "concatenate"), axis, _canonicalize(dtype, "concatenate"))


@eager_jit(static_argnames=("axis", "dtype"))
def _concatenate(parts: list, axis: int | None, dtype: np.dtype) -> Any:
    parts = promote_parts(parts, dtype, "concatenate")
    if axis is None:
        parts, axis = [ravel(x) for x in parts], 0
    first = parts[0].shape
    if not first:
        raise ShapeError(
            "concatenate, array 0",
            expected="at least one dimension, along which the arrays are joined",
            got=first,
            fix="pass axis=None, or join scalars with jnp.stack or jnp.array",
        )
    axis = canonical_axis(axis, len(first), "concatenate")
    for i, x in enumerate(parts):
        dims = x.shape
        if len(dims) != len(first) or dims[:axis] != first[:axis] or dims[axis + 1 :] != first[axis + 1 :]:
            raise ShapeError(
                f"concatenate, array {i}",
                expected=f"the shape {first} of array 0, but for axis {axis}",
                got=dims,
                fix="reshape or broadcast the arrays to agree",
            )
    return lax.concatenate(parts, axis) if len(parts) > 1 else as_array(parts[0])


def concat(arrays: Sequence[ArrayLike] | ArrayLike, /, *, axis: int | None = 0) -> Array:
    """Join arrays along an existing axis: the array API's name for `concatenate`.

    Args:
      arrays, axis: as in `concatenate`.

    Returns:
      The joined array.

    Raises:
      ArgumentError: the sequence is empty.
      AxisError: an axis is out of range.
      ShapeError: ranks or other dimensions differ.

    Examples:
      >>> jnp.concat([jnp.zeros(1), jnp.ones(1)]).tolist()
      [0.0, 1.0]
    """
    return concatenate(arrays, axis)


def stack(
    arrays: Sequence[ArrayLike] | ArrayLike, axis: int = 0, out: None = None, dtype: DTypeLike | None = None
) -> Array:
    """Join arrays of equal shape along a new axis.

    Args:
      arrays: sequence of arrays of equal shape, or an array, which is unstacked along its first dimension.
      axis: position of the new axis in the result.
      out: must be None; arrays are immutable.
      dtype: dtype of the result; by default the arrays' promoted dtype.

    Returns:
      An array with one more dimension.

    Raises:
      ArgumentError: the sequence is empty, or `out` is given.
      AxisError: the axis is out of range.
      ShapeError: the shapes differ.

    Examples:
      >>> jnp.stack([jnp.zeros(2), jnp.ones(2)]).tolist()
      [[0.0, 0.0], [1.0, 1.0]]
    """
    refuse_out(out, "stack")
    # Stacking the slices of an array moves its first axis; unstacking it would emit one slice per element.
    if (hasattr(arrays, "aval") or isinstance(arrays, np.ndarray)) and dtype is None:
        return moveaxis(arrays, 0, axis)
    return stack_operands(_to_sequence(arrays, "stack"), axis, _canonicalize(dtype, "stack"))


def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple:
    """Split an array into its slices along an axis.

    Args:
      x: array of rank 1 or more.
      axis: the axis to split along.

    Returns:
      A tuple of arrays without that axis.

    Raises:
      AxisError: an axis is out of range.

    Examples:
      >>> [a.tolist() for a in jnp.unstack(jnp.array([[1, 2], [3, 4]]))]
      [[1, 2], [3, 4]]
    """
    return tuple(unstack_dim(to_operand(x, "unstack"), axis))


def vstack(tup: Sequence[ArrayLike] | ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays vertically: along the first axis, after turning vectors into rows.

    Args:
      tup: sequence of arrays that agree in all dimensions but the first.
      dtype: dtype of the result; by default the arrays' promoted dtype.

    Returns:
      An array of rank 2 or more.

    Raises:
      ArgumentError: the sequence is empty.
      ShapeError: the shapes do not agree.

    Examples:
      >>> jnp.vstack([jnp.zeros(2), jnp.ones(2)]).shape
      (2, 2)
    """
    return concatenate(_map(atleast_2d, tup, "vstack"), 0, dtype)


def hstack(tup: Sequence[ArrayLike] | ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays horizontally: along the second axis, or the first for vectors.

    Args:
      tup: sequence of arrays that agree in all dimensions but the second (for vectors, the first).
      dtype: dtype of the result; by default the arrays' promoted dtype.

    Returns:
      An array of rank 1 or more.

    Raises:
      ArgumentError: the sequence is empty.
      ShapeError: the shapes do not agree.

    Examples:
      >>> jnp.hstack([jnp.zeros(2), jnp.ones(1)]).tolist()
      [0.0, 0.0, 1.0]
    """
    parts = _map(atleast_1d, tup, "hstack")
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1, dtype)


def dstack(tup: Sequence[ArrayLike] | ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays along the third axis.

    Args:
      tup: sequence of arrays; a vector of length n becomes [1, n, 1], a matrix [m, n, 1].
      dtype: dtype of the result; by default the arrays' promoted dtype.

    Returns:
      An array of rank 3 or more.

    Raises:
      ArgumentError: the sequence is empty.
      ShapeError: the shapes do not agree.

    Examples:
      >>> jnp.dstack([jnp.zeros(2), jnp.ones(2)]).shape
      (1, 2, 2)
    """
    return concatenate(_map(atleast_3d, tup, "dstack"), 2, dtype)


def column_stack(tup: Sequence[ArrayLike] | ArrayLike) -> Array:
    """Stack vectors as the columns of a matrix.

    Args:
      tup: sequence of vectors or matrices with equal numbers of rows.

    Returns:
      A matrix.

    Raises:
      ArgumentError: the sequence is empty.
      ShapeError: the shapes do not agree.

    Examples:
      >>> jnp.column_stack([jnp.zeros(2), jnp.ones(2)]).tolist()
      [[0.0, 1.0], [0.0, 1.0]]
    """
    parts = [to_operand(x, "column_stack") for x in _to_sequence(tup, "column_stack")]
    return concatenate([reshape(x, (math.prod(x.shape), 1)) if x.ndim < 2 else x for x in parts], 1)


def _map(grow: Callable[..., Array], tup: Sequence[ArrayLike] | ArrayLike, where: str) -> list:
    return [grow(x) for x in _to_sequence(tup, where)]


def block(arrays: Sequence[ArrayLike] | ArrayLike) -> Array:
    """Assemble an array from nested lists of blocks.

    Args:
      arrays: an array, or nested lists of arrays of equal depth.

    Returns:
      The assembled array: innermost lists are concatenated along the last axis, the next level along the axis before.

    Raises:
      ArgumentError: a list is empty.
      ShapeError: the shapes do not agree.

    Examples:
      >>> jnp.block([[jnp.ones((1, 1)), jnp.zeros((1, 1))]]).tolist()
      [[1.0, 0.0]]
    """
    depth, rank = _block_depth(arrays)
    return _block(arrays, max(depth, rank), depth)


def _block_depth(x: Array) -> tuple[int, int]:
    if isinstance(x, list):
        if not x:
            raise ArgumentError(
                "block",
                expected="lists that are not empty",
                got="[]",
                fix="remove the empty list from the nested lists",
            )
        found = [_block_depth(v) for v in x]
        return found[0][0] + 1, max(r for _, r in found)
    return 0, to_operand(x, "block").ndim


def _block(x: Array, rank: int, depth: int) -> Any:
    if isinstance(x, list):
        return concatenate([_block(v, rank, depth - 1) for v in x], axis=-depth)
    x = to_operand(x, "block")
    return as_array(reshape(x, (1,) * (rank - x.ndim) + tuple(x.shape)))


def array_split(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike, axis: int = 0) -> list:
    """Split an array along an axis into parts of nearly equal size, or at given indices.

    Args:
      ary: array of rank 1 or more.
      indices_or_sections: number of parts, or sorted indices before which to split.
      axis: the axis to split along.

    Returns:
      A list of arrays; if the parts cannot be equal, the first ones have one element more.

    Raises:
      ArgumentError: the number of parts is below 1.
      AxisError: an axis is out of range.

    Examples:
      >>> [a.tolist() for a in jnp.array_split(jnp.arange(5), 2)]
      [[0, 1, 2], [3, 4]]
    """
    return _split("array_split", ary, indices_or_sections, axis)


def split(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike, axis: int = 0) -> list:
    """Split an array along an axis into equal parts, or at given indices.

    Args:
      ary: array of rank 1 or more.
      indices_or_sections: number of parts, or sorted indices before which to split.
      axis: the axis to split along.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the number of parts is below 1 or does not divide the size of the axis.
      AxisError: an axis is out of range.

    Examples:
      >>> [a.tolist() for a in jnp.split(jnp.arange(4), 2)]
      [[0, 1], [2, 3]]
    """
    return _split("split", ary, indices_or_sections, axis)


def vsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list:
    """Split an array along its first axis.

    Args:
      ary: array of rank 1 or more.
      indices_or_sections: number of parts, or sorted indices before which to split.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the number of parts is below 1 or does not divide the size of the axis.

    Examples:
      >>> len(jnp.vsplit(jnp.zeros((4, 2)), 2))
      2
    """
    return _split("vsplit", ary, indices_or_sections, 0)


def hsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list:
    """Split an array along its second axis, or the first for a vector.

    Args:
      ary: array of rank 1 or more.
      indices_or_sections: number of parts, or sorted indices before which to split.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the number of parts is below 1 or does not divide the size of the axis.

    Examples:
      >>> len(jnp.hsplit(jnp.zeros((2, 4)), 2))
      2
    """
    ary = to_operand(ary, "hsplit")
    return _split("hsplit", ary, indices_or_sections, 1 if ary.ndim > 1 else 0)


def dsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list:
    """Split an array along its third axis.

    Args:
      ary: array of rank 3 or more.
      indices_or_sections: number of parts, or sorted indices before which to split.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the number of parts is below 1 or does not divide the size of the axis.
      AxisError: the rank is below 3.

    Examples:
      >>> len(jnp.dsplit(jnp.zeros((1, 2, 4)), 2))
      2
    """
    return _split("dsplit", ary, indices_or_sections, 2)


def _split(where: str, ary: Any, indices_or_sections: int | Sequence[int] | ArrayLike, axis: int) -> list:
    ary = to_operand(ary, where)
    axis = canonical_axis(axis, ary.ndim, where)
    size = ary.shape[axis]
    given = indices_or_sections
    if isinstance(given, list | tuple) or getattr(given, "ndim", 0):
        cuts = [max(0, min(i + size if i < 0 else i, size)) for i in map(int, given)]
        bounds = [0, *cuts, size]
    else:
        n = to_static_int(given, f"{where}, argument indices_or_sections")
        if n <= 0:
            raise ArgumentError(
                f"{where}, argument indices_or_sections",
                expected="1 or more",
                got=n,
                fix="pass a positive number of parts, or a list of indices",
            )
        # The first `more` parts are one element longer.
        each, more = size // n, size % n
        if more != 0 and where != "array_split":
            raise ArgumentError(
                f"{where}, argument indices_or_sections",
                expected=f"a divisor of {size}, the size of axis {axis}",
                got=n,
                fix="use array_split for pieces of unequal size",
            )
        bounds = [i * each + min(i, more) for i in range(n + 1)]
    return split_at_bounds(ary, tuple(bounds), axis)


@eager_jit(static_argnames=("bounds", "axis"))
def split_at_bounds(x: ArrayLike, bounds: tuple, axis: int) -> list:
    """The slices of `x` between successive bounds along an axis."""
    return [lax.slice_in_dim(x, a, max_dim(a, b), axis=axis) for a, b in itertools.pairwise(bounds)]
