"""Broadcasting: `broadcast_in_dim`, the functions written with it, and the batching rule of elementwise primitives."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    LINEAR,
    AxisError,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    StagingTrace,
    dtypes,
    get_aval,
    registry,
)
from phalanx.core.aval import get_scalar_aval
from phalanx.engine.mlir import ir
from phalanx.lax.shape.dims import canonicalize_dims, canonicalize_shape, check_dims, dim_names, drop_dims, insert_dim
from phalanx.lax.shape.transpose import move_dim
from phalanx.lax.sharding.out_sharding import call_with_out_sharding, reshard_p
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike, DimSize, Shape, ShardingLike


class BroadcastInDim(Primitive, name="broadcast_in_dim"):
    """Broadcast `x`: its dimension `i`, of the size of the result or 1, becomes dimension `dims[i]` of the result."""

    def stage(self, trace: StagingTrace, args: Sequence[Any], params: dict) -> Any:
        # A constant scalar that is broadcast to no dimensions is itself.
        if not params["shape"] and (aval := get_scalar_aval(args[0])):
            return trace.literal(args[0], aval)
        return trace.record(self, args, params)

    def abstract_eval(self, x: ShapedArray, *, shape: tuple, dims: tuple) -> Any:
        where = "lax.broadcast_in_dim"
        if len(dims) != x.ndim:
            raise ShapeError(
                where,
                expected=f"{x.ndim} broadcast dimensions, one for each dimension of {x.str_short()}",
                got=dims,
                fix="list for each dimension of the operand its position in the result",
            )
        check_dims(f"{where} broadcast_dimensions", dims, len(shape))
        if list(dims) != sorted(dims):
            raise AxisError(
                f"{where} broadcast_dimensions",
                expected="increasing dimensions",
                got=dims,
                fix="transpose the operand with lax.transpose first",
            )
        for d, size in zip(dims, x.shape, strict=True):
            if size != shape[d] and size != 1:
                raise ShapeError(
                    where,
                    expected=f"a size of 1 or {shape[d]} to become dimension {d} of {shape}",
                    got=x.str_short(),
                    fix=f"pass a shape with {size} in dimension {d}, or reshape the operand",
                )
        return x.with_shape(shape)

    def sharding_rule(self, x: ShapedArray, *, shape: tuple, dims: tuple) -> ShardingRule:
        results = dim_names(len(shape))
        operand = [results[d] if n == shape[d] else f"one{d}" for d, n in zip(dims, x.shape, strict=True)]
        return ShardingRule([operand], [results], whole=set(operand) - set(results))

    def lower(self, ctx: LoweringContext, x: ir.Value, *, shape: tuple, dims: tuple) -> Any:
        return ctx.broadcast(x, ctx.aval_out, dims)

    jvp = LINEAR

    def transpose(self, y_bar: Array, x: Array, *, shape: tuple, dims: tuple) -> tuple:
        # The cotangent is summed over new dimensions and over repeated dimensions of size 1; the latter are restored.
        ones = [d for d, n in zip(dims, x.shape) if n != shape[d]]
        if not ones and len(dims) == len(shape):
            return (y_bar,)
        summed = tuple([d for d in range(len(shape)) if d not in dims or d in ones])
        # Each of the two primitives is the other's transpose: the registry keeps their files from importing each other.
        x_bar = registry["reduce_sum"](y_bar, dims=summed)
        if ones:
            kept = tuple(i for i, d in enumerate(dims) if d not in ones)
            x_bar = broadcast_in_dim_p(x_bar, shape=x.shape, dims=kept)
        return (x_bar,)

    def batch(self, x: Array, b: int, *, shape: tuple, dims: tuple) -> tuple:
        b_out = dims[b - 1] + 1 if b else 0
        rest = [d + (d >= b_out) for d in dims]
        dims = (*rest[:b], b_out, *rest[b:])
        return self(x, shape=insert_dim(shape, b_out, x.shape[b]), dims=dims), b_out


broadcast_in_dim_p = BroadcastInDim()


def add_dim(x: ArrayLike, dim: int, size: DimSize) -> Any:
    """Broadcast `x` along a new dimension at position `dim`."""
    shape = insert_dim(get_aval(x).shape, dim, size)
    if get_aval(x).dtype == dtypes.float0:
        return np.zeros(shape, dtypes.float0)
    return broadcast_in_dim_p(x, shape=shape, dims=drop_dims(range(len(shape)), (dim,)))


def zeros(aval: ShapedArray) -> Any:
    """Return zeros of a type."""
    if aval.dtype == dtypes.float0:
        return np.zeros(aval.shape, dtypes.float0)
    zero = aval.dtype.type(0)
    y = broadcast_in_dim_p(zero, shape=aval.shape, dims=()) if aval.shape else zero
    if aval.type_sharding is None:
        return y
    if reductions := aval.manual_reductions:
        mesh = aval.type_sharding.mesh
        return registry["pcast"](y, mesh=mesh, reductions=tuple(reductions.items()), over=aval.varying)
    return reshard_p(y, sharding=aval.type_sharding)


def ELEMENTWISE(self: Primitive, *args: Any, **params: Any) -> tuple:
    """The batching rule of elementwise primitives, whose operands have the common shape or rank 0.

    The mapped dimension is moved to one position `b` in all operands of full rank. A mapped operand of rank 0 has rank
    1 here, and is broadcast along all other dimensions.
    """
    operands, mapped = args[: len(args) // 2], args[len(args) // 2 :]
    if len(operands) == 1:
        return self(*operands, **params), mapped[0]
    shapes = [get_aval(x).shape for x in operands]
    ranks = [len(s) - (d is not None) for s, d in zip(shapes, mapped, strict=True)]
    rank = max(ranks)
    whole = [i for i, r in enumerate(ranks) if r == rank]
    # The first mapped operand of full rank determines where the mapped dimension is; moving others to it is cheaper
    # than moving all to the front.
    leader = next((i for i in whole if mapped[i] is not None), None)
    if leader is None:  # only scalars are mapped
        size = next(s[d] for s, d in zip(shapes, mapped, strict=True) if d is not None)
        b, shape = 0, (size, *shapes[whole[0]])
    else:
        b, shape = mapped[leader], shapes[leader]
    aligned = []
    for x, r, d in zip(operands, ranks, mapped, strict=True):
        if d is None:
            others = drop_dims(range(rank + 1), (b,))
            aligned.append(broadcast_in_dim_p(x, shape=shape, dims=others) if r else x)
        elif r == rank:
            aligned.append(move_dim(x, d, b))
        else:
            aligned.append(broadcast_in_dim_p(x, shape=shape, dims=(b,)))
    return self(*aligned, **params), b


def broadcast_in_dim(
    operand: ArrayLike, shape: Shape, broadcast_dimensions: Sequence[int], *, out_sharding: ShardingLike | None = None
) -> Any:
    """Broadcast an array along new dimensions and dimensions of size 1: any[*s] -> any[*shape].

    Args:
      operand: the array.
      shape: the shape of the result.
      broadcast_dimensions: for each dimension of `operand` its position in the result, in increasing order.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

    Returns:
      An array of shape `shape`.

    Raises:
      ShapeError: the size of a dimension of `operand` is neither 1 nor the size of the result.
      AxisError: `broadcast_dimensions` are not increasing positions in `shape`.

    Examples:
      >>> from phalanx import lax
      >>> lax.broadcast_in_dim(2.0, (3,), ()).shape
      (3,)
    """
    if out_sharding is not None:
        repeat = functools.partial(broadcast_in_dim, shape=shape, broadcast_dimensions=broadcast_dimensions)
        return call_with_out_sharding(repeat, (operand,), out_sharding, "lax.broadcast_in_dim, out_sharding")
    shape, dims = canonicalize_shape(shape), canonicalize_dims(broadcast_dimensions)
    # A broadcast to the same shape is the operand itself.
    if getattr(operand, "shape", None) == shape and len(dims) == len(shape) and hasattr(operand, "aval"):
        return operand
    return broadcast_in_dim_p(operand, shape=shape, dims=dims)


def broadcast(operand: ArrayLike, sizes: Shape, *, out_sharding: ShardingLike | None = None) -> Any:
    """Broadcast an array along new leading dimensions: any[*s] -> any[*sizes, *s].

    Args:
      operand: the array.
      sizes: the sizes of the new dimensions.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

    Returns:
      An array of shape `(*sizes, *operand.shape)`.

    Examples:
      >>> from phalanx import lax
      >>> lax.broadcast(1.0, (2, 3)).shape
      (2, 3)
    """
    sizes = canonicalize_shape(sizes)
    shape = (*sizes, *get_aval(operand).shape)
    return broadcast_in_dim(operand, shape, tuple(range(len(sizes), len(shape))), out_sharding=out_sharding)


def broadcast_to_rank(x: ArrayLike, rank: int) -> Any:
    """Add leading dimensions of size 1 up to a rank.

    Args:
      x: the array.
      rank: the rank of the result, at least the rank of `x`.

    Returns:
      An array of rank `rank`.

    Raises:
      ShapeError: `x` has a higher rank.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.broadcast_to_rank(jnp.ones(3), 3).shape
      (1, 1, 3)
    """
    ndim = get_aval(x).ndim
    if ndim > rank:
        raise ShapeError(
            "lax.broadcast_to_rank",
            expected=f"an array of rank at most {rank}",
            got=get_aval(x).str_short(),
            fix=f"pass a rank of at least {ndim}, or squeeze the array",
        )
    return x if ndim == rank else broadcast(x, (1,) * (rank - ndim))


def broadcast_like(arr: ArrayLike, like_arr: ArrayLike) -> Any:
    """Broadcast an array to the shape of another, by NumPy's rule.

    Args:
      arr: the array, whose shape is broadcast to the last dimensions of `like_arr`.
      like_arr: the array with the shape of the result.

    Returns:
      An array of the shape of `like_arr` and the dtype of `arr`.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.broadcast_like(jnp.ones(3), jnp.ones((2, 3))).shape
      (2, 3)
    """
    return broadcast_to_shape(arr, get_aval(like_arr).shape)


def broadcast_to_shape(x: ArrayLike, shape: tuple) -> Any:
    """Broadcast an array to a shape, aligned at the last dimension."""
    old = get_aval(x).shape
    return x if old == shape else broadcast_in_dim(x, shape, tuple(range(len(shape) - len(old), len(shape))))


def broadcast_shapes(*shapes: Any) -> tuple:
    """Return the common shape to which shapes broadcast, by NumPy's rule.

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
    # Equal shapes are the common case of eager operations.
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
                fix="reshape or transpose the operands so that each size is equal or 1",
            )
        common.append(size)
    return tuple(common)
