"""Reversal of the order of elements along dimensions: `rev`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import LINEAR, Primitive, ShapedArray, ShardingRule
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.shape.dims import canonicalize_dims, check_dims, dim_names, shift_past_batch
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike


class Rev(Primitive, name="rev"):
    """Reverse the order of the elements of `x` along `dims`."""

    def abstract_eval(self, x: ShapedArray, *, dims: tuple) -> Any:
        check_dims("lax.rev dimensions", dims, x.ndim)
        return x

    def sharding_rule(self, x: ShapedArray, *, dims: tuple) -> ShardingRule:
        names = dim_names(x.ndim)
        turned = [names[d] for d in dims]
        return ShardingRule([names], [names], whole=turned, resized={n: (n,) for n in turned})

    def lower(self, ctx: LoweringContext, x: ir.Value, *, dims: tuple) -> Any:
        return hlo.reverse(x, list(dims))

    jvp = LINEAR

    def transpose(self, y_bar: Array, x: Array, *, dims: tuple) -> tuple:
        return (self(y_bar, dims=dims),)

    def batch(self, x: Array, b: int, *, dims: tuple) -> tuple:
        return self(x, dims=shift_past_batch(dims, b)), b


rev_p = Rev()


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Any:
    """Reverse the order of the elements along some dimensions.

    Args:
      operand: the array.
      dimensions: the dimensions to reverse.

    Returns:
      An array of the same shape.

    Raises:
      AxisError: a dimension is out of bounds or repeated.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.rev(jnp.arange(3), (0,)).tolist()
      [2, 1, 0]
    """
    return rev_p(operand, dims=canonicalize_dims(dimensions))
