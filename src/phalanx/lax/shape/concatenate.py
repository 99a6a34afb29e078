"""Joining arrays along a dimension, `concatenate`, or a new one, `stack`, and their inverses `split` and `unstack`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from phalanx.core import (
    LINEAR,
    ArgumentError,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    Tracer,
    get_aval,
    instantiate,
    is_linear,
)
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise import check_same_dtypes, match_scalars
from phalanx.lax.indexing.static_slice import slice_p
from phalanx.lax.shape.broadcast import add_dim
from phalanx.lax.shape.dims import (
    canonicalize_shape,
    check_dims,
    dim_names,
    drop_dims,
    insert_dim,
    resolve_dims,
    shift_past_batch,
)
from phalanx.lax.shape.transpose import move_dim
from phalanx.lax.subbyte import narrow_from_bytes, widen_to_bytes
from phalanx.runtime import Array, LoweringContext
from phalanx.typing import ArrayLike, DimSize, Shape


def join_operands(operands: Sequence, mapped: Sequence, dim: int) -> tuple[list, int, int]:
    """Move the mapped dimension of operands to one position; return them, the position, and `dim` shifted past it."""
    b, size = next((d, x.shape[d]) for x, d in zip(operands, mapped, strict=True) if d is not None)
    aligned = [add_dim(x, b, size) if d is None else move_dim(x, d, b) for x, d in zip(operands, mapped, strict=True)]
    return aligned, b, dim + (dim >= b)


def _part_bounds(shape: tuple, dim: int, start: DimSize, size: DimSize) -> tuple[tuple, tuple]:
    """The first and the last indices, exclusive, of a part along one dimension."""
    starts = tuple([start if d == dim else 0 for d in range(len(shape))])
    return starts, tuple([start + size if d == dim else n for d, n in enumerate(shape)])


def _emit_part(ctx: LoweringContext, x: ir.Value, dim: int, start: DimSize, part: ShapedArray) -> Any:
    """Emit the part of the operand of type `part` that begins at `start` along a dimension."""
    bounds = _part_bounds(ctx.avals_in[0].shape, dim, start, part.shape[dim])
    return ctx.slice(x, *bounds, [1] * part.ndim, part)


class Concatenate(Primitive, name="concatenate"):
    """Concatenate arrays along dimension `dim`."""

    def abstract_eval(self, *xs: Any, dim: int) -> Any:
        where = "lax.concatenate"
        if not xs:
            raise ArgumentError(
                f"{where} operands",
                expected="at least one array",
                got="none",
                fix="pass a sequence of at least one array",
            )
        check_same_dtypes(where, xs)
        first = xs[0]
        check_dims(f"{where} dimension", (dim,), first.ndim)
        rest = drop_dims(first.shape, (dim,))
        for x in xs:
            if x.ndim != first.ndim or drop_dims(x.shape, (dim,)) != rest:
                raise ShapeError(
                    where,
                    expected=f"operands that differ only in dimension {dim}",
                    got=", ".join(x.str_short() for x in xs),
                    fix=f"pad, slice or reshape the operands so that only dimension {dim} differs",
                )
        total = sum(x.shape[dim] for x in xs)
        return ShapedArray(
            (*first.shape[:dim], total, *first.shape[dim + 1 :]), first.dtype, all(x.weak_type for x in xs)
        )

    def sharding_rule(self, *xs: Any, dim: int) -> ShardingRule:
        names = dim_names(xs[0].ndim)
        # The joined dimension is a separate factor in each operand and in the result: none can be
        # sharded without communication, but each is resized to the other.
        operands = [[*names[:dim], f"part{i}", *names[dim + 1 :]] for i in range(len(xs))]
        parts = [f"part{i}" for i in range(len(xs))]
        return ShardingRule(operands, [names], whole=[names[dim], *parts], resized=dict.fromkeys(parts, (names[dim],)))

    def lower(self, ctx: LoweringContext, *xs: Any, dim: int) -> Any:
        return emit_concatenate(ctx, xs, ctx.avals_in, dim)

    jvp = LINEAR

    def transpose(self, y_bar: Array, *xs: Any, dim: int) -> tuple:
        # The cotangent of each operand is its slice of the cotangent of the result.
        sizes = [x.shape[dim] if is_linear(x) else get_aval(x).shape[dim] for x in xs]
        parts = [_part_bounds(y_bar.shape, dim, stop - n, n) for n, stop in zip(sizes, itertools.accumulate(sizes))]
        return tuple(
            slice_p(y_bar, starts=starts, stops=stops, strides=None) if is_linear(x) else None
            for x, (starts, stops) in zip(xs, parts, strict=True)
        )

    def batch(self, *args: Any, dim: int) -> tuple:
        n = len(args) // 2
        operands, b, dim = join_operands(args[:n], args[n:], dim)
        return self(*operands, dim=dim), b


def emit_concatenate(ctx: LoweringContext, xs: Sequence[Any], avals: Sequence[ShapedArray], dim: int) -> Any:
    """Emit a concatenation; elements narrower than a byte are widened for it."""
    wide, _ = widen_to_bytes(ctx, xs, avals)
    return narrow_from_bytes(ctx, [hlo.concatenate(wide, dim)], ctx.avals_out)[0]


concatenate_p = Concatenate()


class Split(Primitive, name="split", multiple=True):
    """Split `x` along dimension `dim` into consecutive parts of the given sizes."""

    def abstract_eval(self, x: ShapedArray, *, sizes: tuple, dim: int) -> list:
        check_dims("lax.split axis", (dim,), x.ndim)
        if sum(sizes) != x.shape[dim] or any(isinstance(n, int) and n < 0 for n in sizes):
            raise ShapeError(
                "lax.split sizes",
                expected=f"sizes that add up to {x.shape[dim]}, dimension {dim} of {x.str_short()}",
                got=sizes,
                fix="pass the size of every part",
            )
        return [x.with_shape((*x.shape[:dim], n, *x.shape[dim + 1 :])) for n in sizes]

    def sharding_rule(self, x: ShapedArray, *, sizes: tuple, dim: int) -> ShardingRule:
        names = dim_names(x.ndim)
        results = [[*names[:dim], f"part{i}", *names[dim + 1 :]] for i in range(len(sizes))]
        parts = tuple([f"part{i}" for i in range(len(sizes))])
        return ShardingRule([names], results, whole=[names[dim], *parts], resized={names[dim]: parts})

    def lower(self, ctx: LoweringContext, x: ir.Value, *, sizes: tuple, dim: int) -> list:
        return [
            _emit_part(ctx, x, dim, stop - n, out)
            for n, stop, out in zip(sizes, itertools.accumulate(sizes), ctx.avals_out, strict=True)
        ]

    jvp = LINEAR

    def transpose(self, y_bars: Array, x: Array, *, sizes: tuple, dim: int) -> tuple:
        return (concatenate_p(*map(instantiate, y_bars), dim=dim),)

    def batch(self, x: Array, b: int, *, sizes: tuple, dim: int) -> tuple:
        ys = self(x, sizes=sizes, dim=dim + (dim >= b))
        return ys, [b] * len(ys)


split_p = Split()


def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Any:
    """Concatenate arrays along a dimension.

    Args:
      operands: arrays of one dtype whose shapes differ at most in `dimension`.
      dimension: the dimension to concatenate along.

    Returns:
      The concatenated array.

    Raises:
      ShapeError: other sizes differ.
      DTypeError: the dtypes differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.concatenate([jnp.arange(2), jnp.arange(3)], 0).tolist()
      [0, 1, 0, 1, 2]
    """
    operands = tuple(operands)
    # A single array is returned without a copy.
    if len(operands) == 1 and isinstance(operands[0], Array | Tracer):
        check_dims("lax.concatenate dimension", (dimension,), operands[0].ndim)
        return operands[0]
    return concatenate_p(*operands, dim=int(dimension))


def split(operand: ArrayLike, sizes: Shape, axis: int = 0) -> list:
    """Split an array into consecutive parts along a dimension.

    Args:
      operand: the array.
      sizes: the sizes of the parts, whose sum is the size of the dimension.
      axis: the dimension; a negative one counts from the end.

    Returns:
      A list of arrays.

    Raises:
      ShapeError: the sum of the sizes is not the size of the dimension.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> [y.tolist() for y in lax.split(jnp.arange(3), (1, 2))]
      [[0], [1, 2]]
    """
    (dim,) = resolve_dims("lax.split axis", (axis,), get_aval(operand).ndim)
    return split_p(operand, sizes=canonicalize_shape(sizes), dim=dim)


class Stack(Primitive, name="stack"):
    """Stack arrays of one shape along a new dimension `dim`."""

    def abstract_eval(self, *xs: Any, dim: int) -> Any:
        where = "lax.stack"
        if not xs:
            raise ArgumentError(
                f"{where} operands",
                expected="at least one array",
                got="none",
                fix="pass a sequence of at least one array",
            )
        check_same_dtypes(where, xs)
        first = xs[0]
        check_dims(f"{where} axis", (dim,), first.ndim + 1)
        if any(x.shape != first.shape for x in xs):
            raise ShapeError(
                where,
                expected="operands of equal shapes",
                got=", ".join(x.str_short() for x in xs),
                fix=f"broadcast the operands to one shape, such as {first.shape}, with lax.broadcast_in_dim",
            )
        return ShapedArray(insert_dim(first.shape, dim, len(xs)), first.dtype, all(x.weak_type for x in xs))

    def sharding_rule(self, *xs: Any, dim: int) -> ShardingRule:
        names = dim_names(xs[0].ndim)
        return ShardingRule([names] * len(xs), [insert_dim(names, dim, "new")], whole=["new"])

    def lower(self, ctx: LoweringContext, *xs: Any, dim: int) -> Any:
        # A new dimension of size 1 in each operand, then one concatenation.
        avals = [a.with_shape(insert_dim(a.shape, dim, 1)) for a in ctx.avals_in]
        parts = [ctx.reshape(x, a) for x, a in zip(xs, avals, strict=True)]
        return parts[0] if len(parts) == 1 else emit_concatenate(ctx, parts, avals, dim)

    jvp = LINEAR

    def transpose(self, y_bar: Array, *xs: Any, dim: int) -> tuple:
        bars = unstack_p(y_bar, dim=dim)
        return tuple(bar if is_linear(x) else None for bar, x in zip(bars, xs, strict=True))

    def batch(self, *args: Any, dim: int) -> tuple:
        n = len(args) // 2
        operands, b, _ = join_operands(args[:n], args[n:], dim)
        # The mapped dimension stays before the new one if it was before it.
        return (self(*operands, dim=dim + 1), b) if b <= dim else (self(*operands, dim=dim), b + 1)


stack_p = Stack()


class Unstack(Primitive, name="unstack", multiple=True):
    """Split `x` into the slices at each position of dimension `dim`, without that dimension."""

    def abstract_eval(self, x: ShapedArray, *, dim: int) -> list:
        check_dims("lax.unstack axis", (dim,), x.ndim)
        return [x.with_shape(drop_dims(x.shape, (dim,)))] * x.shape[dim]

    def sharding_rule(self, x: ShapedArray, *, dim: int) -> ShardingRule:
        names = dim_names(x.ndim)
        return ShardingRule([names], [drop_dims(names, (dim,))] * x.shape[dim], whole=[names[dim]])

    def lower(self, ctx: LoweringContext, x: ir.Value, *, dim: int) -> list:
        parts = [a.with_shape(insert_dim(a.shape, dim, 1)) for a in ctx.avals_out]
        pieces = [_emit_part(ctx, x, dim, i, part) for i, part in enumerate(parts)]
        return [ctx.reshape(piece, out) for piece, out in zip(pieces, ctx.avals_out, strict=True)]

    jvp = LINEAR

    def transpose(self, y_bars: Array, x: Array, *, dim: int) -> tuple:
        return (stack_p(*map(instantiate, y_bars), dim=dim),)

    def batch(self, x: Array, b: int, *, dim: int) -> tuple:
        (inner,) = shift_past_batch((dim,), b)
        ys = self(x, dim=inner)
        return ys, [b - (inner < b)] * len(ys)


unstack_p = Unstack()


def stack(operands: Sequence[Array], axis: int = 0) -> Any:
    """Stack arrays of one shape along a new dimension.

    Args:
      operands: arrays of one shape and dtype.
      axis: the position of the new dimension in the result; a negative one counts from its end.

    Returns:
      An array with the new dimension.

    Raises:
      ShapeError: the shapes differ.
      DTypeError: the dtypes differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.stack([jnp.arange(2), jnp.arange(2)]).tolist()
      [[0, 1], [0, 1]]
    """
    operands = match_scalars(*operands)
    if not operands:
        return stack_p(dim=0)
    (dim,) = resolve_dims("lax.stack axis", (axis,), get_aval(operands[0]).ndim + 1)
    return stack_p(*operands, dim=dim)


def unstack(x: ArrayLike, axis: int = 0) -> tuple:
    """Split an array into the slices at each position of a dimension.

    Args:
      x: the array.
      axis: the dimension; a negative one counts from the end.

    Returns:
      A tuple of arrays without that dimension.

    Raises:
      AxisError: there is no such dimension.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> [int(y) for y in lax.unstack(jnp.arange(3))]
      [0, 1, 2]
    """
    (dim,) = resolve_dims("lax.unstack axis", (axis,), get_aval(x).ndim)
    return tuple(unstack_p(x, dim=dim))
