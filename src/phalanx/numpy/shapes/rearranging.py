"""Rearranging and repeating elements: `flip`, `rot90`, `roll`, `tile`, `resize`, `trim_zeros`."""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.operands import (
    as_array,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    cast,
    to_operand,
    widen_indices,
)
from phalanx.numpy.shapes.reshaping import _tuple, ravel, reshape, swapaxes
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic, max_dim
from phalanx.typing import Array, ArrayLike, Axis, Shape


def flip(m: ArrayLike, axis: Axis = None) -> Array:
    """Reverse the order of elements along axes.

    Args:
      m: an array.
      axis: axis or tuple of axes; None for all.

    Returns:
      An array of the shape of `m`.

    Raises:
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.flip(jnp.arange(3)).tolist()
      [2, 1, 0]
    """
    m = to_operand(m, "flip")
    return lax.rev(m, canonical_axes(axis, m.ndim, "flip"))


def fliplr(m: ArrayLike) -> Array:
    """Reverse the order of elements along the second axis.

    Args:
      m: array of rank 2 or more.

    Returns:
      An array of the shape of `m`.

    Raises:
      AxisError: the rank is below 2.

    Examples:
      >>> jnp.fliplr(jnp.array([[1, 2]])).tolist()
      [[2, 1]]
    """
    return flip(m, 1)


def flipud(m: ArrayLike) -> Array:
    """Reverse the order of elements along the first axis.

    Args:
      m: array of rank 1 or more.

    Returns:
      An array of the shape of `m`.

    Raises:
      AxisError: `m` is a scalar.

    Examples:
      >>> jnp.flipud(jnp.array([1, 2])).tolist()
      [2, 1]
    """
    return flip(m, 0)


@eager_jit(static_argnames=("k", "axes"))
def rot90(m: ArrayLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> Array:
    """Rotate an array by 90 degrees in the plane of two axes.

    Args:
      m: array of rank 2 or more.
      k: number of rotations, from the first axis towards the second.
      axes: the two axes of the plane.

    Returns:
      The rotated array; the two dimensions are interchanged for odd `k`.

    Raises:
      AxisError: the two axes are equal, or one is out of range.

    Examples:
      >>> jnp.rot90(jnp.array([[1, 2], [3, 4]])).tolist()
      [[2, 4], [1, 3]]
    """
    m = to_operand(m, "rot90")
    a, b = canonical_axes(tuple(axes), m.ndim, "rot90")
    k = k % 4
    # A rotation is a transposition and a reversal; two rotations are two reversals.
    if k == 0:
        return as_array(m)
    if k == 2:
        return flip(m, (a, b))
    return flip(swapaxes(m, a, b), a if k == 1 else b)


@eager_jit(static_argnames=("axis",))
def roll(a: ArrayLike, shift: ArrayLike | Sequence[int], axis: Axis = None) -> Array:
    """Roll elements along axes; elements shifted past the end reappear at the start.

    Args:
      a: array or scalar.
      shift: number of positions, or one number per axis.
      axis: the axis or axes; None rolls the flattened array.

    Returns:
      An array of the shape of `a`.

    Raises:
      AxisError: an axis is out of range.
      ShapeError: the number of shifts differs from the number of axes.

    Examples:
      >>> jnp.roll(jnp.arange(4), 1).tolist()
      [3, 0, 1, 2]
    """
    a = to_operand(a, "roll")
    if not isinstance(shift, int | tuple | list) and not is_symbolic(shift):
        shift = to_operand(shift, "roll")
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), a.shape)
    axes = [canonical_axis(i, a.ndim, "roll") for i in _tuple(axis)]
    shifts = shift if isinstance(shift, tuple | list) else [shift] * len(axes)
    if getattr(shift, "ndim", 0):
        shifts = [shift[i] for i in range(shift.shape[0])] if shift.shape[0] != 1 else [shift[0]] * len(axes)
    axes = axes * len(shifts) if len(axes) == 1 else axes
    if len(shifts) != len(axes):
        raise ShapeError(
            "roll, argument shift",
            expected=f"{len(axes)} shifts, one for each axis",
            got=shift,
            fix=f"pass {len(axes)} shifts, or one integer for all axes",
        )
    for s, i in zip(shifts, axes, strict=True):
        a = _roll_one(a, s, i)
    return as_array(a)


def _roll_one(a: Array, shift: ArrayLike | Sequence[int], axis: int) -> Any:
    n = a.shape[axis]
    if type(n) is int and n == 0:
        return a
    if isinstance(shift, int) or is_symbolic(shift):
        # A static shift is a concatenation of two slices.
        cut = -shift % max_dim(n, 1)
        if type(cut) is int and cut == 0:
            return a
        pieces = [lax.slice_in_dim(a, cut, n, axis=axis), lax.slice_in_dim(a, 0, cut, axis=axis)]
        return lax.concatenate(pieces, axis)
    shift = to_operand(shift, "roll")
    if shift.ndim:
        raise ShapeError(
            "roll, argument shift",
            expected="an integer for each axis",
            got=f"{shift.shape} for axis {axis}",
            fix="pass one integer, or a vector of one for each axis",
        )
    # A traced shift is a dynamic slice of the array joined with itself.
    shift = widen_indices(cast(shift, np.int32) if shift.dtype == bool else shift, n)
    size = cast(n, shift.dtype)
    start = lax.rem(lax.sub(size, lax.rem(shift, size)), size)
    return lax.dynamic_slice_in_dim(lax.concatenate([a, a], axis), start, n, axis)


@eager_jit(static_argnames=("reps",))
def tile(A: ArrayLike, reps: int | Sequence[int]) -> Array:
    """Tile an array: repeat it along each axis.

    Args:
      A: an array or a scalar.
      reps: number of repetitions along each axis.

    Returns:
      An array of shape `A.shape * reps`; the shorter of the two is extended by leading ones.

    Examples:
      >>> jnp.tile(jnp.arange(2), 2).tolist()
      [0, 1, 0, 1]
    """
    a = to_operand(A, "tile")
    counts = tuple(operator.index(r) if not hasattr(r, "is_symbolic_dim") else r for r in _tuple(reps))
    dims = (1,) * (len(counts) - a.ndim) + a.shape
    counts = (1,) * (len(dims) - len(counts)) + counts
    # One broadcast with a new dimension before each repeated one, then one reshape.
    groups = [(d,) if type(r) is int and r == 1 else (r, d) for d, r in zip(dims, counts, strict=True)]
    wide = tuple(n for group in groups for n in group)
    # The dimensions of `a` are the last ones of their groups.
    places = tuple(end - 1 for end in itertools.accumulate(map(len, groups)))[len(dims) - a.ndim :]
    out = lax.broadcast_in_dim(a, wide, places) if len(wide) > a.ndim else a
    final = tuple(d * r for d, r in zip(dims, counts, strict=True))
    return lax.reshape(out, final) if out.shape != final else as_array(out)


@eager_jit(static_argnames=("new_shape",))
def resize(a: ArrayLike, new_shape: Shape) -> Array:
    """Change the shape, repeating or truncating the flattened elements to fill it.

    Args:
      a: array or scalar, which is flattened.
      new_shape: an int or a tuple of ints.

    Returns:
      An array of the new shape; zeros if `a` is empty.

    Raises:
      ArgumentError: a size is negative.

    Examples:
      >>> jnp.resize(jnp.arange(3), (2, 2)).tolist()
      [[0, 1], [2, 0]]
    """
    new = canonical_shape(new_shape, "resize")
    if builtins.any(type(n) is int and n < 0 for n in new):
        raise ArgumentError(
            "resize, argument new_shape",
            expected="sizes of 0 or more",
            got=new,
            fix="compute all sizes; -1 is not inferred as in reshape",
        )
    flat = ravel(a)
    total, own = math.prod(new), flat.shape[0]
    if own == 0:
        return lax.full(new, 0, flat.dtype)
    if is_symbolic(total) or is_symbolic(own) or total > own:
        flat = tile(flat, max_dim(-(-total // own), 1))
    return reshape(lax.slice_in_dim(flat, 0, total) if flat.shape[0] != total else flat, new)


def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: Axis = None) -> Array:
    """Trim leading and trailing zeros; the values must be concrete.

    Args:
      filt: array with concrete values.
      trim: `"f"` for the front, `"b"` for the back, `"fb"` for both.
      axis: axis or axes to trim along; None for all.

    Returns:
      The slice of `filt` that bounds its nonzero elements.

    Raises:
      AxisError: an axis is out of range.
      ConcretizationTypeError: `filt` is traced.

    Examples:
      >>> jnp.trim_zeros(jnp.array([0, 1, 0])).tolist()
      [1]
    """
    x = array(filt)
    box = [slice(None)] * x.ndim
    value = np.asarray(x)
    # The bounding box of the nonzero elements.
    places = np.argwhere(value) if x.ndim else value
    for i in canonical_axes(axis, x.ndim, "trim_zeros"):
        first, last = (places[:, i].min(), places[:, i].max() + 1) if len(places) else (x.shape[i], 0)
        box[i] = slice(int(first) if "f" in trim.lower() else 0, int(last) if "b" in trim.lower() else None)
    return x[tuple(box)]
