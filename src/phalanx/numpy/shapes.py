"""Shape manipulation: reshape, transpose, broadcast, flip, roll, repeat and what is made of them.

Built on `lax`; each is one or two operations. Joining and splitting are in `joining.py`, padding in `padding.py`.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.lax.explicit import laid_out
from phalanx.numpy.creation import array
from phalanx.numpy.operands import (
    broadcast_operands,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    cast,
    operand,
)
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_symbolic, max_dim


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None, out_sharding: Any = None) -> Any:
    """The same elements in another shape.

    Args:
      a: an array or a scalar.
      shape: an int or a tuple; one entry may be -1, to be found from the others.
      order: `"C"`, or `"F"` to let the first index vary fastest.
      copy: a hint, since arrays do not change.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of that shape, in the dtype of `a`.

    Raises:
      ArgumentError: `order` is not supported.
      ArgumentTypeError: an entry of `shape` is no integer.
      ShapeError: the number of elements differs.

    Examples:
      >>> jnp.reshape(jnp.arange(6), (2, -1)).tolist()
      [[0, 1, 2], [3, 4, 5]]
    """
    if out_sharding is not None:
        change = functools.partial(reshape, shape=shape, order=order)
        return laid_out(change, (operand(a, "reshape"),), out_sharding, "reshape, out_sharding")
    a = operand(a, "reshape")
    new = shape if type(shape) is tuple else canonical_shape(shape, "reshape")
    own = a.shape
    if -1 in new or not all(type(d) is int for d in new):
        new = _inferred(own, new)
    if order != "C":
        return _reshape_fortran(a, new, order)
    if new == own:
        return a if hasattr(a, "aval") else array(a)
    if math.prod(new) != math.prod(own):
        raise _size_error(own, new)
    return lax.reshape(a, new)


def _size_error(own: tuple, new: tuple) -> ShapeError:
    return ShapeError(
        "reshape, argument shape", expected=f"a shape of {math.prod(own)} elements, as {own} has", got=new,
        mend="use -1 for one dimension to have it found",
    )  # fmt: skip


def _inferred(own: tuple, new: tuple) -> tuple:
    """The new shape with its -1 found."""
    new = canonical_shape(new, "reshape")
    unknown = [i for i, d in enumerate(new) if type(d) is int and d == -1]
    if not unknown:
        return new
    rest = math.prod(d for i, d in enumerate(new) if i not in unknown)
    total = math.prod(own)
    if len(unknown) > 1 or (type(rest) is int and type(total) is int and (total % rest if rest else total)):
        raise ShapeError(
            "reshape, argument shape", expected=f"one -1, and a divisor of {total} elements in the other dimensions",
            got=new, mend="give each dimension but one",
        )  # fmt: skip
    found = total // rest if not (type(rest) is int and rest == 0) else 0
    return (*new[: unknown[0]], found, *new[unknown[0] + 1 :])


def _reshape_fortran(a: Any, new: tuple, order: str) -> Any:
    if order != "F":
        raise ArgumentError("reshape, argument order", expected="'C' or 'F'", got=repr(order), mend="leave it out")
    return transpose(reshape(transpose(a), new[::-1]))


def ravel(a: Any, order: str = "C", *, out_sharding: Any = None) -> Any:
    """All elements in one dimension.

    Args:
      a: an array or a scalar.
      order: `"C"`, or `"F"` to let the first index vary fastest; `"K"` is `"C"`.
      out_sharding: how the result lies, as in `reshape`.

    Returns:
      A vector.

    Raises:
      ArgumentError: `order` is not supported.

    Examples:
      >>> jnp.ravel(jnp.zeros((2, 2))).tolist()
      [0.0, 0.0, 0.0, 0.0]
    """
    a = operand(a, "ravel")
    return reshape(a, (math.prod(a.shape),), "C" if order == "K" else order, out_sharding=out_sharding)


def transpose(a: Any, axes: Sequence[int] | None = None) -> Any:
    """The array with its dimensions in another order, reversed by default.

    Args:
      a: an array or a scalar.
      axes: for each dimension of the result, the one of `a` it comes from.

    Returns:
      An array of the same elements.

    Raises:
      AxisError: an axis does not exist, or is given twice.
      ShapeError: there are not as many axes as dimensions.

    Examples:
      >>> jnp.transpose(jnp.array([[1, 2], [3, 4]])).tolist()
      [[1, 3], [2, 4]]
    """
    a = operand(a, "transpose")
    n = a.ndim
    if axes is None:
        order = tuple(range(n - 1, -1, -1))
    else:
        order = canonical_axes(tuple(axes), n, "transpose")
        if len(order) != n:
            raise ShapeError(
                "transpose, argument axes", expected=f"{n} axes for an array of rank {n}", got=tuple(axes),
                mend="name each dimension once",
            )  # fmt: skip
    return lax.transpose(a, order) if order != tuple(range(n)) else _as_array(a)


permute_dims = transpose


def _as_array(a: Any) -> Any:
    return a if hasattr(a, "aval") else array(a)


def matrix_transpose(x: Any, /) -> Any:
    """The last two dimensions exchanged.

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
    x = operand(x, "matrix_transpose")
    if x.ndim < 2:
        raise ShapeError(
            "matrix_transpose", expected="an array of rank 2 or more", got=f"an array of shape {x.shape}",
            mend="add a dimension with x[:, None]",
        )  # fmt: skip
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Two dimensions exchanged.

    Args:
      a: an array.
      axis1, axis2: the two.

    Returns:
      An array of the same elements.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> jnp.swapaxes(jnp.zeros((2, 3)), 0, 1).shape
      (3, 2)
    """
    a = operand(a, "swapaxes")
    order = list(range(a.ndim))
    i, j = canonical_axis(axis1, a.ndim, "swapaxes"), canonical_axis(axis2, a.ndim, "swapaxes")
    order[i], order[j] = order[j], order[i]
    return lax.transpose(a, tuple(order)) if i != j else _as_array(a)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Dimensions moved to other places, the others keeping their order.

    Args:
      a: an array.
      source: the dimensions to move, one or several.
      destination: their places in the result.

    Returns:
      An array of the same elements.

    Raises:
      AxisError: an axis does not exist, or is given twice.
      ShapeError: the two have different lengths.

    Examples:
      >>> jnp.moveaxis(jnp.zeros((2, 3, 4)), 0, -1).shape
      (3, 4, 2)
    """
    a = operand(a, "moveaxis")
    n = a.ndim
    src, dst = canonical_axes(_tuple(source), n, "moveaxis"), canonical_axes(_tuple(destination), n, "moveaxis")
    if len(src) != len(dst):
        raise ShapeError(
            "moveaxis, argument destination", expected=f"{len(src)} axes, as many as in source", got=destination,
            mend="give one destination for each source",
        )  # fmt: skip
    order = [i for i in range(n) if i not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return lax.transpose(a, tuple(order)) if order != list(range(n)) else _as_array(a)


def _tuple(axis: Any) -> tuple:
    return tuple(axis) if isinstance(axis, tuple | list) else (axis,)


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """One dimension moved before another.

    Args:
      a: an array.
      axis: the dimension to move.
      start: before which to put it, counted in `a`.

    Returns:
      An array of the same elements.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> jnp.rollaxis(jnp.zeros((2, 3, 4)), 2).shape
      (4, 2, 3)
    """
    a = operand(a, "rollaxis")
    axis = canonical_axis(axis, a.ndim, "rollaxis")
    start = start if start == a.ndim else canonical_axis(start, a.ndim, "rollaxis, argument start")
    return moveaxis(a, axis, start - (axis < start))


def expand_dims(a: Any, axis: Any) -> Any:
    """New dimensions of size 1 at the given places of the result.

    Args:
      a: an array or a scalar.
      axis: one place or several.

    Returns:
      An array of the same elements.

    Raises:
      AxisError: a place does not exist, or is given twice.

    Examples:
      >>> jnp.expand_dims(jnp.zeros(3), 0).shape
      (1, 3)
    """
    a = operand(a, "expand_dims")
    axes = _tuple(axis)
    places = canonical_axes(axes, a.ndim + len(axes), "expand_dims")
    return lax.expand_dims(a, places) if places else _as_array(a)


def squeeze(a: Any, axis: Any = None) -> Any:
    """Dimensions of size 1 taken away: all, or the given ones.

    Args:
      a: an array or a scalar.
      axis: dimensions of size 1; all there are if None.

    Returns:
      An array of the same elements.

    Raises:
      AxisError: there is no such axis.
      ShapeError: a given dimension has another size.

    Examples:
      >>> jnp.squeeze(jnp.zeros((1, 3, 1))).shape
      (3,)
    """
    a = operand(a, "squeeze")
    if axis is None:
        axes = tuple(i for i, d in enumerate(a.shape) if d == 1)
    else:
        axes = canonical_axes(axis, a.ndim, "squeeze")
        for i in axes:
            if a.shape[i] != 1:
                raise ShapeError(
                    "squeeze, argument axis", expected="dimensions of size 1", got=f"axis {i} of shape {a.shape}",
                    mend="index the dimension, or leave it out",
                )  # fmt: skip
    return lax.squeeze(a, axes) if axes else _as_array(a)


def broadcast_to(array: Any, shape: Any, *, out_sharding: Any = None) -> Any:
    """The array repeated to fill a shape, by NumPy's rules.

    Args:
      array: an array or a scalar.
      shape: an int or a tuple of them.
      out_sharding: how the result lies, as in `reshape`.

    Returns:
      An array of that shape.

    Raises:
      ShapeError: the array does not broadcast to the shape.

    Examples:
      >>> jnp.broadcast_to(jnp.arange(2), (2, 2)).tolist()
      [[0, 1], [0, 1]]
    """
    x = operand(array, "broadcast_to")
    if out_sharding is not None:
        return laid_out(lambda x: broadcast_to(x, shape), (x,), out_sharding, "broadcast_to, out_sharding")
    shape = canonical_shape(shape, "broadcast_to")
    if x.shape == shape:
        return _as_array(x)
    lead = len(shape) - x.ndim
    if lead < 0 or any(d not in (1, s) for d, s in zip(x.shape, shape[lead:], strict=True)):
        raise ShapeError(
            "broadcast_to, argument shape", expected=f"a shape that {x.shape} broadcasts to", got=shape,
            mend="reshape the array first",
        )  # fmt: skip
    return broadcast_to_shape(x, shape)


def broadcast_arrays(*args: Any) -> list:
    """Arrays repeated to one common shape.

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
    xs = [operand(x, "broadcast_arrays") for x in args]
    return [_as_array(x) for x in broadcast_operands("broadcast_arrays", *xs)]


def atleast_1d(*arys: Any) -> Any:
    """Arrays with rank 1 or more.

    Args:
      arys: arrays or scalars; a list as the only one is an array.

    Returns:
      An array; a list of them for several.

    Examples:
      >>> jnp.atleast_1d(3.0).shape
      (1,)
    """
    return _atleast("atleast_1d", arys, lambda x: lax.reshape(x, (1,)) if x.ndim == 0 else x)


def atleast_2d(*arys: Any) -> Any:
    """Arrays with rank 2 or more.

    Args:
      arys: as in `atleast_1d`; a vector becomes a row.

    Returns:
      An array; a list of them for several.

    Examples:
      >>> jnp.atleast_2d(jnp.zeros(3)).shape
      (1, 3)
    """
    return _atleast("atleast_2d", arys, lambda x: lax.reshape(x, (1, *(x.shape or (1,)))) if x.ndim < 2 else x)


def atleast_3d(*arys: Any) -> Any:
    """Arrays with rank 3 or more.

    Args:
      arys: as in `atleast_1d`; a vector of n becomes [1, n, 1], a matrix [m, n, 1].

    Returns:
      An array; a list of them for several.

    Examples:
      >>> jnp.atleast_3d(jnp.zeros(3)).shape
      (1, 3, 1)
    """

    def grow(x: Any) -> Any:
        shapes = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}
        return lax.reshape(x, shapes[x.ndim]) if x.ndim < 3 else x

    return _atleast("atleast_3d", arys, grow)


def _atleast(name: str, arys: tuple, grow: Any) -> Any:
    if len(arys) == 1 and isinstance(arys[0], tuple | list):
        arys = (array(arys[0]),)
    out = [_as_array(grow(operand(x, name))) for x in arys]
    return out[0] if len(out) == 1 else out


def flip(m: Any, axis: Any = None) -> Any:
    """The order of elements reversed along axes.

    Args:
      m: an array.
      axis: an axis, a tuple of them, or None for all.

    Returns:
      An array of the shape of `m`.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> jnp.flip(jnp.arange(3)).tolist()
      [2, 1, 0]
    """
    m = operand(m, "flip")
    return lax.rev(m, canonical_axes(axis, m.ndim, "flip"))


def fliplr(m: Any) -> Any:
    """The second dimension reversed.

    Args:
      m: of rank 2 or more.

    Returns:
      An array of the shape of `m`.

    Raises:
      AxisError: the rank is below 2.

    Examples:
      >>> jnp.fliplr(jnp.array([[1, 2]])).tolist()
      [[2, 1]]
    """
    return flip(m, 1)


def flipud(m: Any) -> Any:
    """The first dimension reversed.

    Args:
      m: of rank 1 or more.

    Returns:
      An array of the shape of `m`.

    Raises:
      AxisError: `m` is a scalar.

    Examples:
      >>> jnp.flipud(jnp.array([1, 2])).tolist()
      [2, 1]
    """
    return flip(m, 0)


@eager_program(static_argnames=("k", "axes"))
def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """Rotated by `k` quarter turns in the plane of two axes.

    Args:
      m: of rank 2 or more.
      k: how many quarter turns, from the first axis towards the second.
      axes: the two axes of the plane.

    Returns:
      An array with the two dimensions exchanged for odd `k`.

    Raises:
      AxisError: the two axes are the same, or one does not exist.

    Examples:
      >>> jnp.rot90(jnp.array([[1, 2], [3, 4]])).tolist()
      [[2, 4], [1, 3]]
    """
    m = operand(m, "rot90")
    a, b = canonical_axes(tuple(axes), m.ndim, "rot90")
    k = k % 4
    if k == 0:
        return _as_array(m)
    if k == 2:
        return flip(m, (a, b))
    return flip(swapaxes(m, a, b), a if k == 1 else b)


@eager_program(static_argnames=("axis",))
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Elements moved along axes, those that fall off coming back at the start.

    Args:
      a: an array or a scalar.
      shift: by how much, for each axis.
      axis: the axes; None to roll the raveled array.

    Returns:
      An array of the shape of `a`.

    Raises:
      AxisError: there is no such axis.
      ShapeError: there are not as many shifts as axes.

    Examples:
      >>> jnp.roll(jnp.arange(4), 1).tolist()
      [3, 0, 1, 2]
    """
    a = operand(a, "roll")
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), a.shape)
    axes = [canonical_axis(i, a.ndim, "roll") for i in _tuple(axis)]
    shifts = shift if isinstance(shift, tuple | list) else [shift] * len(axes)
    if getattr(shift, "ndim", 0):
        shifts = [shift[i] for i in range(shift.shape[0])] if shift.shape[0] > 1 else [shift[0]] * len(axes)
    axes = axes * len(shifts) if len(axes) == 1 else axes
    if len(shifts) != len(axes):
        raise ShapeError(
            "roll, argument shift", expected=f"{len(axes)} shifts, one for each axis", got=shift, mend="give as many"
        )
    for s, i in zip(shifts, axes, strict=True):
        a = _roll_one(a, s, i)
    return _as_array(a)


def _roll_one(a: Any, shift: Any, axis: int) -> Any:
    n = a.shape[axis]
    if type(n) is int and n == 0:
        return a
    if isinstance(shift, int) or is_symbolic(shift):
        cut = -shift % max_dim(n, 1)
        if type(cut) is int and cut == 0:
            return a
        pieces = [lax.slice_in_dim(a, cut, n, axis=axis), lax.slice_in_dim(a, 0, cut, axis=axis)]
        return lax.concatenate(pieces, axis)
    size = cast(n, shift.dtype)
    start = lax.rem(lax.sub(size, lax.rem(shift, size)), size)
    return lax.dynamic_slice_in_dim(lax.concatenate([a, a], axis), start, n, axis)


@eager_program(static_argnames=("reps",))
def tile(A: Any, reps: Any) -> Any:
    """The array laid side by side with itself.

    Args:
      A: an array or a scalar.
      reps: how often along each dimension.

    Returns:
      An array whose dimensions are those of `A` times `reps`, the shorter of the two being led by ones.

    Examples:
      >>> jnp.tile(jnp.arange(2), 2).tolist()
      [0, 1, 0, 1]
    """
    a = operand(A, "tile")
    counts = tuple(operator.index(r) if not hasattr(r, "is_symbolic_dim") else r for r in _tuple(reps))
    dims = (1,) * (len(counts) - a.ndim) + a.shape
    counts = (1,) * (len(dims) - len(counts)) + counts
    lead = len(dims) - a.ndim
    wide: list = []
    places = []
    for i, (d, r) in enumerate(zip(dims, counts, strict=True)):
        if not (type(r) is int and r == 1):
            wide.append(r)
        if i >= lead:
            places.append(len(wide))
            wide.append(d)
        elif type(r) is int and r == 1:
            wide.append(1)
    out = lax.broadcast_in_dim(a, tuple(wide), tuple(places)) if len(wide) > a.ndim else a
    final = tuple(d * r for d, r in zip(dims, counts, strict=True))
    return lax.reshape(out, final) if out.shape != final else _as_array(out)


@eager_program(static_argnames=("new_shape",))
def resize(a: Any, new_shape: Any) -> Any:
    """The elements in another shape, repeated or cut to fill it.

    Args:
      a: an array or a scalar, raveled.
      new_shape: an int or a tuple of them.

    Returns:
      An array of that shape; zeros where `a` has no elements.

    Raises:
      ArgumentError: a size is negative.

    Examples:
      >>> jnp.resize(jnp.arange(3), (2, 2)).tolist()
      [[0, 1], [2, 0]]
    """
    new = canonical_shape(new_shape, "resize")
    if builtins.any(type(n) is int and n < 0 for n in new):
        raise ArgumentError("resize, argument new_shape", expected="sizes of 0 or more", got=new, mend="give all sizes")
    flat = ravel(a)
    total, own = math.prod(new), flat.shape[0]
    if own == 0:
        return lax.full(new, 0, flat.dtype)
    if is_symbolic(total) or is_symbolic(own) or total > own:
        flat = tile(flat, max_dim(-(-total // own), 1))
    return reshape(lax.slice_in_dim(flat, 0, total) if flat.shape[0] != total else flat, new)


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """The array without the zeros at its ends; the values must be known.

    Args:
      filt: an array whose values are known.
      trim: `"f"` for the front, `"b"` for the back, `"fb"` for both.
      axis: along which to cut, an axis, a tuple of them, or None for all.

    Returns:
      The smallest box of `filt` that holds all elements that are not 0.

    Raises:
      AxisError: there is no such axis.
      ConcretizationTypeError: `filt` is traced.

    Examples:
      >>> jnp.trim_zeros(jnp.array([0, 1, 0])).tolist()
      [1]
    """
    x = array(filt)
    box = [slice(None)] * x.ndim
    value = np.asarray(x)
    places = np.argwhere(value) if x.ndim else value
    for i in canonical_axes(axis, x.ndim, "trim_zeros"):
        first, last = (places[:, i].min(), places[:, i].max() + 1) if len(places) else (x.shape[i], 0)
        box[i] = slice(int(first) if "f" in trim.lower() else 0, int(last) if "b" in trim.lower() else None)
    return x[tuple(box)]
