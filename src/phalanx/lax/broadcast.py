"""Repeating and summing: `broadcast_in_dim`, `reduce_sum` and `transpose`, on which the rules of all others stand.

The first two are each other's transposes, so they live in one file. Here too is the derived batching rule of
elementwise operations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import AxisError, DTypeError, ShapeError
from phalanx.core.primitive import LINEAR, Primitive, Roles
from phalanx.engine.mlir import hlo
from phalanx.lax.explicit import laid_out, reshard_p


def dim_names(ndim: int, prefix: str = "d") -> list[str]:
    """Names for the dimensions of an array, equal for equal positions."""
    return [f"{prefix}{i}" for i in range(ndim)]


def keep(items: Sequence, dims: Sequence[int]) -> tuple:
    """The items at all positions but `dims`."""
    return tuple(item for i, item in enumerate(items) if i not in dims)


def insert(shape: Sequence, dim: int, size: Any) -> tuple:
    """A shape with one more dimension, at `dim`."""
    return (*shape[:dim], size, *shape[dim:])


def static_dims(dims: Any) -> tuple[int, ...]:
    """Positions as a tuple of ints, from any iterable of integers."""
    return dims if type(dims) is tuple else tuple(int(d) for d in dims)


def static_shape(shape: Any) -> tuple:
    """A shape as a tuple, from any iterable of integers or symbolic dimensions, or from one of them.

    Args:
      shape: the iterable, or one size.

    Returns:
      The tuple.

    Examples:
      >>> static_shape([2, 3]), static_shape(4)
      ((2, 3), (4,))
    """
    if type(shape) is tuple:
        return shape
    if isinstance(shape, int | np.integer) or getattr(shape, "is_symbolic_dim", False):
        return (shape,)
    return tuple(shape)


def check_dims(where: str, dims: Sequence[int], ndim: int) -> None:
    """Refuse positions outside `[0, ndim)` and positions given twice."""
    if len(set(dims)) == len(dims) and all(0 <= d < ndim for d in dims):
        return
    raise AxisError(
        where,
        expected=f"different dimensions in [0, {ndim})",
        got=tuple(dims),
        mend="name each dimension once, counted from the front",
    )


class BroadcastInDim(Primitive, name="broadcast_in_dim"):
    """An array repeated: dimension `i` of `x`, of size 1 or full, becomes dimension `dims[i]` of the result."""

    def result(self, x: Any, *, shape: tuple, dims: tuple) -> Any:
        where = "lax.broadcast_in_dim"
        if len(dims) != x.ndim:
            raise ShapeError(
                where,
                expected=f"one broadcast dimension for each of the {x.ndim} of {x.str_short()}",
                got=dims,
                mend="say for each dimension of the operand where it goes",
            )
        check_dims(f"{where} broadcast_dimensions", dims, len(shape))
        if list(dims) != sorted(dims):
            raise AxisError(
                f"{where} broadcast_dimensions",
                expected="increasing dimensions",
                got=dims,
                mend="transpose the operand first",
            )
        for d, size in zip(dims, x.shape, strict=True):
            if size != shape[d] and size != 1:
                raise ShapeError(
                    where,
                    expected=f"a size of 1 or {shape[d]} to become dimension {d} of {shape}",
                    got=x.str_short(),
                    mend="reshape the operand, or choose another shape",
                )
        return x.with_shape(shape)

    def roles(self, x: Any, *, shape: tuple, dims: tuple) -> Roles:
        results = dim_names(len(shape))
        operand = [results[d] if n == shape[d] else f"one{d}" for d, n in zip(dims, x.shape, strict=True)]
        return Roles([operand], [results], whole=set(operand) - set(results))

    def lower(self, ctx: Any, x: Any, *, shape: tuple, dims: tuple) -> Any:
        return ctx.broadcast(x, ctx.aval_out, dims)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, shape: tuple, dims: tuple) -> tuple:
        ones = [d for d, n in zip(dims, x.shape, strict=True) if n != shape[d]]
        summed = tuple(d for d in range(len(shape)) if d not in dims or d in ones)
        if not summed:
            return (y_bar,)
        x_bar = reduce_sum_p(y_bar, dims=summed)
        if ones:
            kept = tuple(i for i, d in enumerate(dims) if d not in ones)
            x_bar = broadcast_in_dim_p(x_bar, shape=x.shape, dims=kept)
        return (x_bar,)

    def batch(self, x: Any, b: int, *, shape: tuple, dims: tuple) -> tuple:
        b_out = dims[b - 1] + 1 if b else 0
        rest = [d + (d >= b_out) for d in dims]
        dims = (*rest[:b], b_out, *rest[b:])
        return self(x, shape=insert(shape, b_out, x.shape[b]), dims=dims), b_out


broadcast_in_dim_p = BroadcastInDim()


class ReduceSum(Primitive, name="reduce_sum"):
    """Sum of `x` over the dimensions `dims`: num[*kept, *summed] -> num[*kept]."""

    def result(self, x: Any, *, dims: tuple) -> Any:
        check_dims("lax.reduce_sum axes", dims, x.ndim)
        if x.dtype == np.bool_ or dtypes.issubdtype(x.dtype, dtypes.extended):
            raise DTypeError(
                "lax.reduce_sum",
                expected="numbers",
                got=x.str_short(),
                mend="convert them with lax.convert_element_type(x, 'int32')",
            )
        return x.with_shape(keep(x.shape, dims))

    def roles(self, x: Any, *, dims: tuple) -> Roles:
        names = dim_names(x.ndim)
        return Roles([names], [keep(names, dims)], reduced={names[d]: "sum" for d in dims})

    def lower(self, ctx: Any, x: Any, *, dims: tuple) -> Any:
        return ctx.reduce(hlo.AddOp, x, init=0, dims=dims)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, dims: tuple) -> tuple:
        return (broadcast_in_dim_p(y_bar, shape=x.shape, dims=keep(range(x.ndim), dims)),)

    def batch(self, x: Any, b: int, *, dims: tuple) -> tuple:
        return self(x, dims=skip_batch(dims, b)), batch_of_kept(dims, b)


reduce_sum_p = ReduceSum()


def skip_batch(dims: tuple, b: int) -> tuple:
    """Positions in an array without the mapped dimension `b`, as positions in the array with it."""
    return tuple(d + (d >= b) for d in dims)


def batch_of_kept(dims: tuple, b: int) -> int:
    """Where the mapped dimension `b` is after the dimensions `dims` (counted without it) were removed."""
    return b - sum(d < b for d in dims)


class Transpose(Primitive, name="transpose"):
    """Dimensions reordered: dimension `i` of the result is dimension `permutation[i]` of `x`."""

    def result(self, x: Any, *, permutation: tuple) -> Any:
        if sorted(permutation) != list(range(x.ndim)):
            raise AxisError(
                "lax.transpose permutation",
                expected=f"each of the {x.ndim} dimensions of {x.str_short()} once",
                got=permutation,
                mend="list every dimension from 0 up, in the new order",
            )
        return x.with_shape(tuple([x.shape[d] for d in permutation]))

    def roles(self, x: Any, *, permutation: tuple) -> Roles:
        names = dim_names(x.ndim)
        return Roles([names], [[names[d] for d in permutation]])

    def lower(self, ctx: Any, x: Any, *, permutation: tuple) -> Any:
        return ctx.op(hlo.TransposeOp, x, permutation=list(permutation))

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, permutation: tuple) -> tuple:
        inverse = sorted(range(len(permutation)), key=permutation.__getitem__)
        return (self(y_bar, permutation=tuple(inverse)),)

    def batch(self, x: Any, b: int, *, permutation: tuple) -> tuple:
        return self(x, permutation=(b, *skip_batch(permutation, b))), 0


transpose_p = Transpose()


def move_dim(x: Any, source: int, target: int) -> Any:
    """`x` with one dimension moved, the others in their order."""
    if source == target:
        return x
    order = [d for d in range(x.ndim) if d != source]
    order.insert(target, source)
    return transpose_p(x, permutation=tuple(order))


def add_dim(x: Any, dim: int, size: Any) -> Any:
    """`x` repeated along one new dimension at `dim`."""
    shape = insert(aval_of(x).shape, dim, size)
    if aval_of(x).dtype == dtypes.float0:
        return np.zeros(shape, dtypes.float0)
    return broadcast_in_dim_p(x, shape=shape, dims=keep(range(len(shape)), (dim,)))


def unbroadcast(x_bar: Any, x: Any) -> Any:
    """The cotangent of an operand of rank 0 that met one of higher rank: the sum over all of it."""
    if x_bar.ndim and not x.ndim:
        return reduce_sum_p(x_bar, dims=tuple(range(x_bar.ndim)))
    return x_bar


def zeros(aval: ShapedArray) -> Any:
    """Zeros of a type."""
    if aval.dtype == dtypes.float0:
        return np.zeros(aval.shape, dtypes.float0)
    zero = aval.dtype.type(0)
    y = broadcast_in_dim_p(zero, shape=aval.shape, dims=()) if aval.shape else zero
    return y if aval.sharding is None else reshard_p(y, sharding=aval.sharding)


def ELEMENTWISE(self: Primitive, *args: Any, **params: Any) -> tuple:
    """The batching rule of an operation in which operands of rank 0 may meet operands of one common shape."""
    operands, mapped = args[: len(args) // 2], args[len(args) // 2 :]
    if len(operands) == 1:
        return self(*operands, **params), mapped[0]
    shapes = [aval_of(x).shape for x in operands]
    ranks = [len(s) - (d is not None) for s, d in zip(shapes, mapped, strict=True)]
    rank = max(ranks)
    whole = [i for i, r in enumerate(ranks) if r == rank]
    leader = next((i for i in whole if mapped[i] is not None), None)
    if leader is None:  # only scalars are mapped
        size = next(s[d] for s, d in zip(shapes, mapped, strict=True) if d is not None)
        b, shape = 0, (size, *shapes[whole[0]])
    else:
        b, shape = mapped[leader], shapes[leader]
    aligned = []
    for x, r, d in zip(operands, ranks, mapped, strict=True):
        if d is None:
            others = keep(range(rank + 1), (b,))
            aligned.append(broadcast_in_dim_p(x, shape=shape, dims=others) if r else x)
        elif r == rank:
            aligned.append(move_dim(x, d, b))
        else:
            aligned.append(broadcast_in_dim_p(x, shape=shape, dims=(b,)))
    return self(*aligned, **params), b


def broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Any, *, out_sharding: Any = None) -> Any:
    """Repeat an array along new dimensions and along dimensions of size 1: any[*s] -> any[*shape].

    Args:
      operand: the array.
      shape: the shape of the result.
      broadcast_dimensions: for each dimension of `operand`, in increasing order, which one of the result it becomes.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of shape `shape`.

    Raises:
      ShapeError: a dimension of `operand` is neither 1 nor of the size it should become.
      AxisError: `broadcast_dimensions` are not increasing positions in `shape`.

    Examples:
      >>> from phalanx import lax
      >>> lax.broadcast_in_dim(2.0, (3,), ()).shape
      (3,)
    """
    if out_sharding is not None:
        repeat = functools.partial(broadcast_in_dim, shape=shape, broadcast_dimensions=broadcast_dimensions)
        return laid_out(repeat, (operand,), out_sharding, "lax.broadcast_in_dim, out_sharding")
    shape, dims = static_shape(shape), static_dims(broadcast_dimensions)
    if getattr(operand, "shape", None) == shape and len(dims) == len(shape) and hasattr(operand, "aval"):
        return operand
    return broadcast_in_dim_p(operand, shape=shape, dims=dims)


def broadcast(operand: Any, sizes: Any, *, out_sharding: Any = None) -> Any:
    """Repeat an array along new leading dimensions: any[*s] -> any[*sizes, *s].

    Args:
      operand: the array.
      sizes: the sizes of the new dimensions.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of shape `(*sizes, *operand.shape)`.

    Examples:
      >>> from phalanx import lax
      >>> lax.broadcast(1.0, (2, 3)).shape
      (2, 3)
    """
    sizes = static_shape(sizes)
    shape = (*sizes, *aval_of(operand).shape)
    return broadcast_in_dim(operand, shape, tuple(range(len(sizes), len(shape))), out_sharding=out_sharding)


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """Give an array leading dimensions of size 1 up to a rank.

    Args:
      x: the array.
      rank: the rank of the result, at least that of `x`.

    Returns:
      An array of rank `rank`.

    Raises:
      ShapeError: `x` has a higher rank.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.broadcast_to_rank(jnp.ones(3), 3).shape
      (1, 1, 3)
    """
    ndim = aval_of(x).ndim
    if ndim > rank:
        raise ShapeError(
            "lax.broadcast_to_rank",
            expected=f"an array of rank at most {rank}",
            got=aval_of(x).str_short(),
            mend="ask for a higher rank, or squeeze the array",
        )
    return x if ndim == rank else broadcast(x, (1,) * (rank - ndim))


def broadcast_like(arr: Any, like_arr: Any) -> Any:
    """Repeat an array to the shape of another, by NumPy's rule.

    Args:
      arr: the array; its shape ends like that of `like_arr`, but for sizes of 1.
      like_arr: the array whose shape is wanted.

    Returns:
      An array of the shape of `like_arr` and the dtype of `arr`.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.broadcast_like(jnp.ones(3), jnp.ones((2, 3))).shape
      (2, 3)
    """
    shape, ndim = aval_of(like_arr).shape, aval_of(arr).ndim
    return broadcast_in_dim(arr, shape, tuple(range(len(shape) - ndim, len(shape))))


def broadcast_shapes(*shapes: Any) -> tuple:
    """The shape that arrays of these shapes have together, by NumPy's rule.

    Args:
      *shapes: tuples of ints or symbolic dimensions.

    Returns:
      The common shape.

    Raises:
      ShapeError: two shapes differ in a dimension where neither is 1.

    Examples:
      >>> from phalanx import lax
      >>> lax.broadcast_shapes((2, 1), (3,))
      (2, 3)
    """
    first = shapes[0] if shapes else ()
    if all(s is first or s == first for s in shapes):
        return tuple(first)
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    common = []
    for sizes in zip(*padded, strict=True):
        others = [n for n in sizes if not (type(n) is int and n == 1)]
        size = others[0] if others else 1
        if any(n != size for n in others):
            raise ShapeError(
                "shapes to broadcast",
                expected="sizes that are equal or 1 in each dimension",
                got=", ".join(map(str, shapes)),
                mend="reshape or transpose the operands",
            )
        common.append(size)
    return tuple(common)


def transpose(operand: Any, permutation: Any) -> Any:
    """Reorder the dimensions of an array.

    Args:
      operand: the array.
      permutation: for each dimension of the result, which one of `operand` it is.

    Returns:
      The array with `shape[i] == operand.shape[permutation[i]]`.

    Raises:
      AxisError: `permutation` is not one.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.transpose(jnp.ones((2, 3)), (1, 0)).shape
      (3, 2)
    """
    permutation = static_dims(permutation)
    if permutation == tuple(range(len(permutation))) and hasattr(operand, "aval") and operand.ndim == len(permutation):
        return operand
    return transpose_p(operand, permutation=permutation)


def reduce_sum(operand: Any, axes: Any, *, out_sharding: Any = None) -> Any:
    """Sum over some dimensions: num[*kept, *summed] -> num[*kept].

    Args:
      operand: array of numbers.
      axes: the dimensions to sum over.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      The sums, in the dtype of `operand`.

    Raises:
      AxisError: an axis is out of bounds or given twice.
      DTypeError: `operand` is boolean.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.reduce_sum(jnp.ones((2, 3)), (1,)).tolist()
      [3.0, 3.0]
    """
    dims = static_dims(axes)
    if out_sharding is not None:
        return laid_out(lambda x: reduce_sum_p(x, dims=dims), (operand,), out_sharding, "lax.reduce_sum, out_sharding")
    return reduce_sum_p(operand, dims=dims)
