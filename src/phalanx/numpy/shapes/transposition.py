"""Reordering, adding and removing axes."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx import lax
from phalanx.core import ShapeError
from phalanx.numpy.operands import as_array, canonical_axes, canonical_axis, to_operand
from phalanx.typing import Array, ArrayLike, Axis


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
    if axes is None:
        order = tuple(range(n - 1, -1, -1))
    else:
        order = canonical_axes(tuple(axes), n, "transpose")
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
    return tuple(axis) if isinstance(axis, tuple | list) else (axis,)


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

    Examples:
      >>> jnp.squeeze(jnp.zeros((1, 3, 1))).shape
      (3,)
    """
    a = to_operand(a, "squeeze")
    if axis is None:
        axes = tuple(i for i, d in enumerate(a.shape) if d == 1)
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
