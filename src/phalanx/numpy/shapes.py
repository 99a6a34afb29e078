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
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, ConcretizationTypeError, ShapeError
from phalanx.lax.explicit import laid_out
from phalanx.numpy.creation import array, band_mask
from phalanx.numpy.operands import (
    broadcast_operands,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    cast,
    concrete,
    host_operand,
    operand,
)
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_symbolic, max_dim, min_dim, static_size


def shape(a: Any) -> tuple:
    """The dimensions of an array.

    Examples:
      >>> jnp.shape(jnp.zeros((2, 3)))
      (2, 3)
    """
    return np.shape(a) if isinstance(a, list | tuple) else operand(a, "shape").shape


def ndim(a: Any) -> int:
    """The rank of an array.

    Examples:
      >>> jnp.ndim(jnp.zeros((2, 3)))
      2
    """
    return len(shape(a))


def size(a: Any, axis: Any = None) -> int:
    """The number of elements, or of those along axes.

    Examples:
      >>> jnp.size(jnp.zeros((2, 3)))
      6
    """
    dims = shape(a)
    return math.prod(dims[i] for i in canonical_axes(axis, len(dims), "size"))


def isscalar(element: Any) -> bool:
    """Whether something is a scalar: a Python number, or an array of rank 0.

    Examples:
      >>> jnp.isscalar(3.0), jnp.isscalar(jnp.zeros(1))
      (True, False)
    """
    if isinstance(element, np.ndarray):
        return element.ndim == 0
    return (hasattr(element, "aval") and element.ndim == 0) or np.isscalar(element)


def iterable(y: Any) -> bool:
    """Whether something can be iterated over.

    Examples:
      >>> jnp.iterable(jnp.zeros(2)), jnp.iterable(jnp.zeros(()))
      (True, False)
    """
    if hasattr(y, "aval"):
        return y.ndim > 0
    return np.iterable(y)


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex.

    Examples:
      >>> jnp.iscomplexobj(jnp.zeros(2))
      False
    """
    if x is None:
        return False
    return dtypes.issubdtype(getattr(x, "dtype", None) or np.asarray(x).dtype, np.complexfloating)


def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex.

    Examples:
      >>> jnp.isrealobj(jnp.zeros(2))
      True
    """
    return not iscomplexobj(x)


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None, out_sharding: Any = None) -> Any:
    """The same elements in another shape.

    Args:
      a: an array or a scalar.
      shape: an int or a tuple; one entry may be -1, to be found from the others.
      order: `"C"`, or `"F"` to let the first index vary fastest.
      copy: ignored, since arrays do not change.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of that shape, in the dtype of `a`.

    Raises:
      ShapeError: the number of elements differs.
      ArgumentError: `order` is not supported.

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

    Raises:
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

    Examples:
      >>> [a.shape for a in jnp.broadcast_arrays(jnp.zeros((3, 1)), jnp.zeros(2))]
      [(3, 2), (3, 2)]
    """
    xs = [operand(x, "broadcast_arrays") for x in args]
    return [_as_array(x) for x in broadcast_operands("broadcast_arrays", *xs)]


def atleast_1d(*arys: Any) -> Any:
    """Arrays with rank 1 or more.

    Examples:
      >>> jnp.atleast_1d(3.0).shape
      (1,)
    """
    return _atleast("atleast_1d", arys, lambda x: lax.reshape(x, (1,)) if x.ndim == 0 else x)


def atleast_2d(*arys: Any) -> Any:
    """Arrays with rank 2 or more.

    Examples:
      >>> jnp.atleast_2d(jnp.zeros(3)).shape
      (1, 3)
    """
    return _atleast("atleast_2d", arys, lambda x: lax.reshape(x, (1, *(x.shape or (1,)))) if x.ndim < 2 else x)


def atleast_3d(*arys: Any) -> Any:
    """Arrays with rank 3 or more.

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

    Examples:
      >>> jnp.flip(jnp.arange(3)).tolist()
      [2, 1, 0]
    """
    m = operand(m, "flip")
    return lax.rev(m, canonical_axes(axis, m.ndim, "flip"))


def fliplr(m: Any) -> Any:
    """The second dimension reversed.

    Examples:
      >>> jnp.fliplr(jnp.array([[1, 2]])).tolist()
      [[2, 1]]
    """
    return flip(m, 1)


def flipud(m: Any) -> Any:
    """The first dimension reversed.

    Examples:
      >>> jnp.flipud(jnp.array([1, 2])).tolist()
      [2, 1]
    """
    return flip(m, 0)


@eager_program(static_argnames=("k", "axes"))
def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """Rotated by `k` quarter turns in the plane of two axes.

    Raises:
      AxisError: the two axes are the same.

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


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None, out_sharding: Any = None
) -> Any:
    """Each element repeated along an axis.

    Args:
      a: an array or a scalar.
      repeats: how often: a number, or one for each element along the axis.
      axis: the axis; None to ravel first.
      total_repeat_length: the length of the result, needed where `repeats` is traced.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array, along the axis as long as all repetitions together.

    Raises:
      ConcretizationTypeError: `repeats` is traced and the length is not given.

    Examples:
      >>> jnp.repeat(jnp.array([1, 2]), 2).tolist()
      [1, 1, 2, 2]
    """
    a = operand(a, "repeat")
    if out_sharding is not None:
        again = lambda x: repeat(x, repeats, axis, total_repeat_length=total_repeat_length)
        return laid_out(again, (a,), out_sharding, "repeat, out_sharding")
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
        return _repeat_known(a, repeats, axis)
    return _repeat_to_length(a, operand(repeats, "repeat"), axis, static_size(total_repeat_length))


def _repeat_known(a: Any, repeats: Any, axis: int) -> Any:
    """The elements repeated as often as numbers say that decide the shape."""
    known = concrete(host_operand(repeats, "repeat"))
    if known is None:
        raise ConcretizationTypeError(
            "repeat, argument repeats", expected="values that are known while tracing, as they decide the shape",
            got=f"{repeats.describe() if hasattr(repeats, 'describe') else repeats}",
            mend="give total_repeat_length, or mark the argument it comes from as static",
        )  # fmt: skip
    if known.dtype.kind not in "iub" or (known < 0).any():
        raise ArgumentError("repeat, argument repeats", expected="integers >= 0", got=repeats, mend="check the numbers")
    if known.size == 1:
        return _repeat_all(a, int(known.reshape(())), axis)
    if known.size != a.shape[axis]:
        raise ShapeError(
            "repeat, argument repeats", expected=f"{a.shape[axis]} numbers, one for each element", got=known.shape,
            mend="give one number, or one for each",
        )  # fmt: skip
    return _take_at(a, np.repeat(np.arange(a.shape[axis], dtype=np.int32), known.reshape(-1)), axis)


@eager_program(static_argnames=("repeats", "axis"))
def _repeat_all(a: Any, repeats: int, axis: int) -> Any:
    dims = a.shape
    wide = (*dims[: axis + 1], repeats, *dims[axis + 1 :])
    out = lax.broadcast_in_dim(a, wide, tuple(i for i in range(len(wide)) if i != axis + 1))
    return lax.reshape(out, (*dims[:axis], dims[axis] * repeats, *dims[axis + 1 :]))


def _take_at(a: Any, positions: Any, axis: int) -> Any:
    from phalanx.numpy.taking import take

    return take(a, positions, axis, mode="clip", indices_are_sorted=True)


@eager_program(static_argnames=("axis", "length"))
def _repeat_to_length(a: Any, repeats: Any, axis: int, length: int) -> Any:
    n = a.shape[axis]
    repeats = broadcast_to_shape(repeats, (n,))
    ends = lax.cumsum(repeats, axis=0)
    # An element begins where those before it end: count the ends that each place has passed.
    steps = lax.full((length,), 0, np.dtype(np.int32)).at[ends].add(1)
    return _take_at(a, lax.min_p(lax.cumsum(steps, axis=0), cast(max_dim(n - 1, 0), np.dtype(np.int32))), axis)


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


@eager_program(static_argnames=("k",))
def tril(m: Any, k: int = 0) -> Any:
    """The matrix with zeros above a diagonal.

    Examples:
      >>> jnp.tril(jnp.ones((2, 2))).tolist()
      [[1.0, 0.0], [1.0, 1.0]]
    """
    return _triangle(m, k, "ge", "tril")


@eager_program(static_argnames=("k",))
def triu(m: Any, k: int = 0) -> Any:
    """The matrix with zeros below a diagonal.

    Examples:
      >>> jnp.triu(jnp.ones((2, 2))).tolist()
      [[1.0, 1.0], [0.0, 1.0]]
    """
    return _triangle(m, k - 1, "lt", "triu")


def _triangle(m: Any, k: int, how: str, name: str) -> Any:
    m = operand(m, name)
    if m.ndim < 2:
        if m.ndim == 0:
            raise ShapeError(name, expected="an array of rank 1 or more", got="a scalar", mend="reshape it to (1, 1)")
        m = lax.broadcast_in_dim(m, (m.shape[0], m.shape[0]), (1,))
    mask = band_mask(m.shape[-2:], k, how)
    mask = broadcast_to_shape(mask, m.shape)
    return lax.select_n_p(mask, m.dtype.type(0), m)


@eager_program(static_argnames=("k",))
def diag(v: Any, k: int = 0) -> Any:
    """The diagonal of a matrix, or the matrix with a given diagonal.

    Raises:
      ShapeError: the rank is neither 1 nor 2.

    Examples:
      >>> jnp.diag(jnp.array([1, 2])).tolist()
      [[1, 0], [0, 2]]
    """
    v = operand(v, "diag")
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ShapeError("diag", expected="a vector or a matrix", got=f"an array of shape {v.shape}", mend="ravel it")
    n = v.shape[0] + abs(k)
    if k:
        v = lax.pad(v, v.dtype.type(0), ((max(0, k), max(0, -k), 0),))
    wide = lax.broadcast_in_dim(v, (n, n), (1,))
    return lax.select_n_p(band_mask((n, n), k, "eq"), v.dtype.type(0), wide)


def diagflat(v: Any, k: int = 0) -> Any:
    """The matrix with all elements of an array as its diagonal.

    Examples:
      >>> jnp.diagflat(jnp.ones((1, 2))).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    return diag(ravel(v), k)


@eager_program(static_argnames=("offset", "axis1", "axis2"))
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonals of the matrices along two axes, as the last dimension.

    Raises:
      ShapeError: the rank is below 2.

    Examples:
      >>> jnp.diagonal(jnp.array([[1, 2], [3, 4]])).tolist()
      [1, 4]
    """
    a = operand(a, "diagonal")
    if a.ndim < 2:
        raise ShapeError(
            "diagonal", expected="an array of rank 2 or more", got=f"an array of shape {a.shape}", mend="reshape it"
        )
    a = moveaxis(a, (axis1, axis2), (-2, -1))
    rows, columns = a.shape[-2:]
    first_row, first_column = max(0, -offset), max(0, offset)
    n = max_dim(0, min_dim(rows - first_row, columns - first_column))
    if n == 0:
        return lax.full((*a.shape[:-2], 0), 0, a.dtype)
    # Cut to whole rows of the flat matrix: there the diagonal has a constant stride, so no gather is needed.
    flat = lax.reshape(a, (*a.shape[:-2], rows * columns))
    start = first_row * columns + first_column
    stop = start + (n - 1) * (columns + 1) + 1
    return lax.slice_in_dim(flat, start, stop, columns + 1, axis=flat.ndim - 1)


@eager_program(static_argnames=("offset", "axis1", "axis2", "dtype"))
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    """The sum of a diagonal.

    Examples:
      >>> jnp.trace(jnp.array([[1, 2], [3, 4]])).item()
      5
    """
    from phalanx.numpy.reductions import sum

    return sum(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """A vector without its leading and trailing zeros; the values must be known.

    Examples:
      >>> jnp.trim_zeros(jnp.array([0, 1, 0])).tolist()
      [1]
    """
    value = np.asarray(filt)
    nonzero = np.flatnonzero(value != 0)
    first = int(nonzero[0]) if len(nonzero) else len(value)
    last = int(nonzero[-1]) + 1 if len(nonzero) else len(value)
    first = first if "f" in trim.lower() else 0
    last = last if "b" in trim.lower() else len(value)
    return array(filt)[first:last]
