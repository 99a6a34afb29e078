"""Stacking along a new dimension, `stack`, and its inverse `unstack`. Each is the transpose of the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import (
    LINEAR,
    ArgumentError,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    get_aval,
    instantiate,
    is_linear,
)
from phalanx.engine.mlir import ir
from phalanx.lax.elementwise import check_same_dtypes, match_scalars
from phalanx.lax.shape.concatenate import emit_concatenate, join_operands
from phalanx.lax.shape.dims import check_dims, dim_names, drop_dims, insert_dim, resolve_dims, shift_past_batch
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike


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
        aval = ctx.avals_in[0]
        starts, stops = [0] * aval.ndim, list(aval.shape)
        pieces = []
        for i, out in enumerate(ctx.avals_out):
            starts[dim], stops[dim] = i, i + 1
            piece = ctx.slice(x, starts, stops, [1] * aval.ndim, out.with_shape(insert_dim(out.shape, dim, 1)))
            pieces.append(ctx.reshape(piece, out))
        return pieces

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
