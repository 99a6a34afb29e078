"""Repetition of a whole array along each dimension: `tile`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import LINEAR, Primitive, ShapedArray, ShapeError, ShardingRule
from phalanx.engine.mlir import ir
from phalanx.lax.reductions.reduce_sum import reduce_sum_p
from phalanx.lax.shape.dims import canonicalize_shape, insert_dim
from phalanx.lax.shape.reshape import reshape_p
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike


class Tile(Primitive, name="tile"):
    """Repeat `x` `reps[i]` times along dimension `i`."""

    def abstract_eval(self, x: ShapedArray, *, reps: tuple) -> Any:
        if len(reps) != x.ndim:
            raise ShapeError(
                "lax.tile reps",
                expected=f"a count for each of the {x.ndim} dimensions of {x.str_short()}",
                got=reps,
                fix=f"pass {x.ndim} counts, 1 for dimensions that are not repeated",
            )
        return x.with_shape(tuple([n * r for n, r in zip(x.shape, reps, strict=True)]))

    def sharding_rule(self, x: ShapedArray, *, reps: tuple) -> ShardingRule:
        old = [f"d{i}" if r == 1 else f"old{i}" for i, r in enumerate(reps)]
        new = [f"d{i}" if r == 1 else f"new{i}" for i, r in enumerate(reps)]
        return ShardingRule([old], [new], whole=set(old) ^ set(new))

    def lower(self, ctx: LoweringContext, x: ir.Value, *, reps: tuple) -> Any:
        aval = ctx.avals_in[0]
        # Broadcast to [r0, n0, r1, n1, ...], then merge each pair of dimensions.
        pairs = tuple(n for pair in zip(reps, aval.shape, strict=True) for n in pair)
        wide = ctx.broadcast(x, aval.with_shape(pairs), tuple(range(1, 2 * aval.ndim, 2)))
        return ctx.reshape(wide, ctx.aval_out)

    jvp = LINEAR

    def transpose(self, y_bar: Array, x: Array, *, reps: tuple) -> tuple:
        pairs = tuple(n for pair in zip(reps, x.shape, strict=True) for n in pair)
        return (reduce_sum_p(reshape_p(y_bar, shape=pairs), dims=tuple(range(0, 2 * x.ndim, 2))),)

    def batch(self, x: Array, b: int, *, reps: tuple) -> tuple:
        return self(x, reps=insert_dim(reps, b, 1)), b


tile_p = Tile()


def tile(operand: ArrayLike, reps: Sequence[int]) -> Any:
    """Repeat a whole array along each dimension.

    Args:
      operand: the array.
      reps: the number of repetitions along each dimension.

    Returns:
      An array of shape `operand.shape[i] * reps[i]`.

    Raises:
      ShapeError: `reps` has not one entry for each dimension.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.tile(jnp.arange(2), (2,)).tolist()
      [0, 1, 0, 1]
    """
    return tile_p(operand, reps=canonicalize_shape(reps))
