"""Permutations of dimensions, `transpose` and `move_dim`, and of the entries along them, `rev`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import LINEAR, AxisError, Primitive, ShapedArray, ShardingRule
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.shape.dims import canonicalize_dims, check_dims, dim_names, shift_past_batch
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike


class Transpose(Primitive, name="transpose"):
    """Permute dimensions: dimension `i` of the result is dimension `permutation[i]` of `x`."""

    def abstract_eval(self, x: ShapedArray, *, permutation: tuple) -> Any:
        if sorted(permutation) != list(range(x.ndim)):
            raise AxisError(
                "lax.transpose permutation",
                expected=f"each of the {x.ndim} dimensions of {x.str_short()} once",
                got=permutation,
                fix=f"pass a permutation of {tuple(range(x.ndim))}",
            )
        return x.with_shape(tuple([x.shape[d] for d in permutation]))

    def sharding_rule(self, x: ShapedArray, *, permutation: tuple) -> ShardingRule:
        names = dim_names(x.ndim)
        return ShardingRule([names], [[names[d] for d in permutation]])

    def lower(self, ctx: LoweringContext, x: ir.Value, *, permutation: tuple) -> Any:
        return ctx.op(hlo.TransposeOp, x, permutation=list(permutation))

    jvp = LINEAR

    def transpose(self, y_bar: Array, x: Array, *, permutation: tuple) -> tuple:
        # The inverse permutation.
        inverse = sorted(range(len(permutation)), key=permutation.__getitem__)
        return (self(y_bar, permutation=tuple(inverse)),)

    def batch(self, x: Array, b: int, *, permutation: tuple) -> tuple:
        return self(x, permutation=(b, *shift_past_batch(permutation, b))), 0


transpose_p = Transpose()


def move_dim(x: ArrayLike, source: int, target: int) -> Any:
    """Move one dimension of `x`; the others keep their order."""
    if source == target:
        return x
    order = [d for d in range(x.ndim) if d != source]
    order.insert(target, source)
    return transpose_p(x, permutation=tuple(order))


def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Any:
    """Permute the dimensions of an array.

    Args:
      operand: the array.
      permutation: for each dimension of the result, the dimension of `operand`.

    Returns:
      The array with `shape[i] == operand.shape[permutation[i]]`.

    Raises:
      AxisError: `permutation` is not a permutation of the dimensions.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.transpose(jnp.ones((2, 3)), (1, 0)).shape
      (3, 2)
    """
    permutation = canonicalize_dims(permutation)
    if permutation == tuple(range(len(permutation))) and hasattr(operand, "aval") and operand.ndim == len(permutation):
        return operand
    return transpose_p(operand, permutation=permutation)


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
