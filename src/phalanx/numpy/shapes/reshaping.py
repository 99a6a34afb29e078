"""Reshaping, broadcasting and transposition: `reshape`, `broadcast_to`, `transpose`, `expand_dims` and relatives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ShapeError, UnsupportedArgumentError, is_sequence
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.operands import (
    as_array,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    to_operand,
)
from phalanx.typing import Array, ArrayLike, Axis, Shape, ShardingLike


def reshape(
    a: ArrayLike, shape: Shape, order: str = "C", *, copy: bool | None = None, out_sharding: ShardingLike | None = None
) -> Array:
    """Give an array another shape with the same elements.

    Args:
      a: array or scalar.
      shape: an int or a tuple of ints; one entry may be -1 and is then inferred.
      order: `"C"` (last index varies fastest) or `"F"` (first index varies fastest).
      copy: accepted for compatibility; arrays are immutable.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      The reshaped array.

    Raises:
      ArgumentError: `order` is not supported.
      ArgumentTypeError: an entry of `shape` is not an integer.
      ShapeError: the number of elements would change.

    Examples:
      >>> jnp.reshape(jnp.arange(6), (2, -1)).tolist()
      [[0, 1, 2], [3, 4, 5]]
    """
    if out_sharding is not None:
        change = functools.partial(reshape, shape=shape, order=order)
        return call_with_out_sharding(change, (to_operand(a, "reshape"),), out_sharding, "reshape, out_sharding")
    a = to_operand(a, "reshape")
    new = shape if type(shape) is tuple else canonical_shape(shape, "reshape")
    own = a.shape
    if -1 in new or not all(type(d) is int for d in new):
        new = _infer_size(own, new)
    if order != "C":
        return _reshape_fortran(a, new, order)
    if new == own:
        return a if hasattr(a, "aval") else array(a)  # type: ignore[return-value]
    if math.prod(new) != math.prod(own):
        raise ShapeError(
            "reshape, argument shape",
            expected=f"a shape of {math.prod(own)} elements, as {own} has",
            got=new,
            fix="use -1 for one dimension to have it found",
        )
    return lax.reshape(a, new)


def _infer_size(own: tuple, new: tuple) -> tuple:
    """The new shape with -1 replaced by the inferred size."""
    new = canonical_shape(new, "reshape")
    unknown = [i for i, d in enumerate(new) if type(d) is int and d == -1]
    if not unknown:
        return new
    rest = math.prod(d for i, d in enumerate(new) if i not in unknown)
    total = math.prod(own)
    if len(unknown) > 1 or (type(rest) is int and type(total) is int and (total % rest if rest else total)):
        raise ShapeError(
            "reshape, argument shape",
            expected=f"one -1, and a divisor of {total} elements in the other dimensions",
            got=new,
            fix="give each dimension but one",
        )
    found = total // rest if not (type(rest) is int and rest == 0) else 0
    return (*new[: unknown[0]], found, *new[unknown[0] + 1 :])


# Fortran order: reverse the dimensions, reshape to the reversed shape, and reverse again.
def _reshape_fortran(a: Array, new: tuple, order: str) -> Any:
    if order != "F":
        raise UnsupportedArgumentError(
            "reshape, argument order",
            expected="'C' or 'F'",
            got=repr(order),
            fix="pass order='C' or order='F'; order='A' does not exist here",
        )
    return transpose(reshape(transpose(a), new[::-1]))


def ravel(a: ArrayLike, order: str = "C", *, out_sharding: ShardingLike | None = None) -> Array:
    """Flatten an array to one dimension.

    Args:
      a: array or scalar.
      order: `"C"`, or `"F"` to let the first index vary fastest; `"K"` is `"C"`.
      out_sharding: sharding of the result, as in `reshape`.

    Returns:
      A vector.

    Raises:
      ArgumentError: `order` is not supported.

    Examples:
      >>> jnp.ravel(jnp.zeros((2, 2))).tolist()
      [0.0, 0.0, 0.0, 0.0]
    """
    a = to_operand(a, "ravel")
    return reshape(a, (math.prod(a.shape),), "C" if order == "K" else order, out_sharding=out_sharding)


def broadcast_to(array: ArrayLike, shape: Shape, *, out_sharding: ShardingLike | None = None) -> Array:
    """Broadcast an array to a shape.

    Args:
      array: an array or a scalar.
      shape: an int or a tuple of ints.
      out_sharding: sharding of the result, as in `reshape`.

    Returns:
      An array of the same shape.

    Raises:
      ShapeError: the array does not broadcast to the shape.

    Examples:
      >>> jnp.broadcast_to(jnp.arange(2), (2, 2)).tolist()
      [[0, 1], [0, 1]]
    """
    x = to_operand(array, "broadcast_to")
    if out_sharding is not None:
        return call_with_out_sharding(
            lambda x: broadcast_to(x, shape), (x,), out_sharding, "broadcast_to, out_sharding"
        )
    shape = canonical_shape(shape, "broadcast_to")
    if x.shape == shape:
        return as_array(x)
    lead = len(shape) - x.ndim
    if lead < 0 or any(d not in (1, s) for d, s in zip(x.shape, shape[lead:], strict=True)):
        raise ShapeError(
            "broadcast_to, argument shape",
            expected=f"a shape that {x.shape} broadcasts to",
            got=shape,
            fix="reshape the array first, or add dimensions with x[:, None]",
        )
    return broadcast_to_shape(x, shape)


def broadcast_arrays(*args: Any) -> list:
    """Broadcast arrays against each other.

    Args:
      args: arrays or scalars.

    Returns:
      A list of arrays.

    Raises:
      ShapeError: the shapes do not broadcast.

    Examples:
      >>> [a.shape for a in jnp.broadcast_arrays(jnp.zeros((3, 1)), jnp.zeros(2))]
      [(3, 2), (3, 2)]
    """
    xs = [to_operand(x, "broadcast_arrays") for x in args]
    shape = broadcast_shapes(*[np.shape(x) for x in xs], where="broadcast_arrays")
    return [as_array(broadcast_to_shape(x, shape)) for x in xs]


def atleast_1d(*arys: Any) -> Any:
    """View inputs as arrays of rank 1 or more.

    Args:
      arys: arrays or scalars; a single list is converted to an array.

    Returns:
      An array; a list of arrays for several inputs.

    Examples:
      >>> jnp.atleast_1d(3.0).shape
      (1,)
    """
    return _atleast("atleast_1d", arys, lambda x: lax.reshape(x, (1,)) if x.ndim == 0 else x)


def atleast_2d(*arys: Any) -> Any:
    """View inputs as arrays of rank 2 or more.

    Args:
      arys: as in `atleast_1d`; a vector becomes a row.

    Returns:
      An array; a list of arrays for several inputs.

    Examples:
      >>> jnp.atleast_2d(jnp.zeros(3)).shape
      (1, 3)
    """
    return _atleast("atleast_2d", arys, lambda x: lax.reshape(x, (1, *(x.shape or (1,)))) if x.ndim < 2 else x)


def atleast_3d(*arys: Any) -> Any:
    """View inputs as arrays of rank 3 or more.

    Args:
      arys: as in `atleast_1d`; a vector of length n becomes [1, n, 1], a matrix [m, n, 1].

    Returns:
      An array; a list of arrays for several inputs.

    Examples:
      >>> jnp.atleast_3d(jnp.zeros(3)).shape
      (1, 3, 1)
    """

    def grow(x: Array) -> Any:
        shapes = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}
        return lax.reshape(x, shapes[x.ndim]) if x.ndim < 3 else x

    return _atleast("atleast_3d", arys, grow)


def _atleast(name: str, arys: tuple, grow: Callable[..., Array]) -> Any:
    if len(arys) == 1 and isinstance(arys[0], tuple | list):
        arys = (array(arys[0]),)
    out = [as_array(grow(to_operand(x, name))) for x in arys]
    return out[0] if len(out) == 1 else out


def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Permute the dimensions of an array; by default, reverse them.

    Args:
      a: array or scalar.
      axes: for each dimension of the result, the one of `a` it comes from.

    Returns:
      The array with its dimensions rearranged.

    Raises:
      AxisError: an axis is out of range, or is given twice.
      ShapeError: the number of axes differs from the rank.

    Examples:
      >>> jnp.transpose(jnp.array([[1, 2], [3, 4]])).tolist()
      [[1, 3], [2, 4]]
    """
    a = to_operand(a, "transpose")
    n = a.ndim
    order = tuple(range(n - 1, -1, -1)) if axes is None else canonical_axes(tuple(axes), n, "transpose")
    if len(order) != n:
        raise ShapeError(
            "transpose, argument axes",
            expected=f"{n} axes for an array of rank {n}",
            got=tuple(axes),
            fix="name each dimension exactly once",
        )
    return lax.transpose(a, order) if order != tuple(range(n)) else as_array(a)


permute_dims = transpose


def matrix_transpose(x: ArrayLike, /) -> Array:
    """Transpose the last two dimensions.

    Args:
      x: num[*batch, m, n].

    Returns:
      num[*batch, n, m].

    Raises:
      ShapeError: the rank is below 2.

    Examples:
      >>> jnp.matrix_transpose(jnp.array([[1, 2]])).tolist()
      [[1], [2]]
    """
    x = to_operand(x, "matrix_transpose")
    if x.ndim < 2:
        raise ShapeError(
            "matrix_transpose",
            expected="an array of rank 2 or more",
            got=f"an array of shape {x.shape}",
            fix="add a dimension with x[:, None]",
        )
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Interchange two axes.

    Args:
      a: an array.
      axis1, axis2: the axes.

    Returns:
      The array with its dimensions rearranged.

    Raises:
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.swapaxes(jnp.zeros((2, 3)), 0, 1).shape
      (3, 2)
    """
    a = to_operand(a, "swapaxes")
    order = list(range(a.ndim))
    i, j = canonical_axis(axis1, a.ndim, "swapaxes"), canonical_axis(axis2, a.ndim, "swapaxes")
    order[i], order[j] = order[j], order[i]
    return lax.transpose(a, tuple(order)) if i != j else as_array(a)


def moveaxis(a: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Move axes to new positions; the other axes keep their order.

    Args:
      a: an array.
      source: the axis or axes to move.
      destination: their positions in the result.

    Returns:
      The array with its dimensions rearranged.

    Raises:
      AxisError: an axis is out of range, or is given twice.
      ShapeError: `source` and `destination` have different lengths.

    Examples:
      >>> jnp.moveaxis(jnp.zeros((2, 3, 4)), 0, -1).shape
      (3, 4, 2)
    """
    a = to_operand(a, "moveaxis")
    n = a.ndim
    src, dst = canonical_axes(_tuple(source), n, "moveaxis"), canonical_axes(_tuple(destination), n, "moveaxis")
    if len(src) != len(dst):
        raise ShapeError(
            "moveaxis, argument destination",
            expected=f"{len(src)} axes, as many as in source",
            got=destination,
            fix="give one destination for each source",
        )
    order = [i for i in range(n) if i not in src]
    # Insert the moved axes in order of their destinations, so that earlier insertions do not shift later ones.
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return lax.transpose(a, tuple(order)) if order != list(range(n)) else as_array(a)


def _tuple(axis: Axis) -> tuple:
    return tuple(axis) if is_sequence(axis) else (axis,)


def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """Move an axis before another one.

    Args:
      a: an array.
      axis: the axis to move.
      start: the axis of `a` before which it is placed.

    Returns:
      The array with its dimensions rearranged.

    Raises:
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.rollaxis(jnp.zeros((2, 3, 4)), 2).shape
      (4, 2, 3)
    """
    a = to_operand(a, "rollaxis")
    axis = canonical_axis(axis, a.ndim, "rollaxis")
    start = start if start == a.ndim else canonical_axis(start, a.ndim, "rollaxis, argument start")
    return moveaxis(a, axis, start - (axis < start))


def expand_dims(a: ArrayLike, axis: Axis) -> Array:
    """Insert axes of size 1 at given positions of the result.

    Args:
      a: array or scalar.
      axis: position or positions of the new axes.

    Returns:
      The array with its dimensions rearranged.

    Raises:
      AxisError: an axis is out of range, or is given twice.

    Examples:
      >>> jnp.expand_dims(jnp.zeros(3), 0).shape
      (1, 3)
    """
    a = to_operand(a, "expand_dims")
    axes = _tuple(axis)
    places = canonical_axes(axes, a.ndim + len(axes), "expand_dims")
    return lax.expand_dims(a, places) if places else as_array(a)


def squeeze(a: ArrayLike, axis: Axis = None) -> Array:
    """Remove axes of size 1: all of them, or given ones.

    Args:
      a: array or scalar.
      axis: the axis or axes to remove; all of size 1 if None.

    Returns:
      The array with its dimensions rearranged.

    Raises:
      AxisError: an axis is out of range.
      ShapeError: the size of a given axis is not 1.
      InconclusiveDimensionOperation: `axis` is None and a symbolic size may be 1.

    Examples:
      >>> jnp.squeeze(jnp.zeros((1, 3, 1))).shape
      (3,)
    """
    a = to_operand(a, "squeeze")
    if axis is None:
        # The comparison is an error if a symbolic size may be 1, since the rank would depend on it.
        axes = tuple(i for i, d in enumerate(a.shape) if d == 1 or (type(d) is not int and not d > 1))
    else:
        axes = canonical_axes(axis, a.ndim, "squeeze")
        for i in axes:
            if a.shape[i] != 1:
                raise ShapeError(
                    "squeeze, argument axis",
                    expected="dimensions of size 1",
                    got=f"axis {i} of shape {a.shape}",
                    fix="index the dimension, or leave it out",
                )
    return lax.squeeze(a, axes) if axes else as_array(a)
