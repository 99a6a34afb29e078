"""Summation over dimensions: `reduce_sum`, the transpose of `broadcast_in_dim`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import LINEAR, ArgumentError, DTypeError, Primitive, ShapedArray, ShardingRule, dtypes, state
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.shape import (
    batch_dim_after_removal,
    broadcast_in_dim_p,
    canonicalize_dims,
    check_dims,
    dim_names,
    drop_dims,
    shift_past_batch,
)
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike, ShardingLike


class ReduceSum(Primitive, name="reduce_sum"):
    """Sum of `x` over the dimensions `dims`: num[*kept, *summed] -> num[*kept]."""

    def abstract_eval(self, x: ShapedArray, *, dims: tuple) -> Any:
        check_dims("lax.reduce_sum axes", dims, x.ndim)
        if x.dtype == np.bool_ or dtypes.issubdtype(x.dtype, dtypes.extended):
            raise DTypeError(
                "lax.reduce_sum",
                expected="numbers",
                got=x.str_short(),
                fix="convert the operand with lax.convert_element_type(x, 'int32')",
            )
        return x.with_shape(drop_dims(x.shape, dims))

    def sharding_rule(self, x: ShapedArray, *, dims: tuple) -> ShardingRule:
        names = dim_names(x.ndim)
        return ShardingRule([names], [drop_dims(names, dims)], reduced={names[d]: "sum" for d in dims})

    def lower(self, ctx: LoweringContext, x: ir.Value, *, dims: tuple) -> Any:
        (aval,) = ctx.avals_in
        if aval.dtype.itemsize == 2 and dtypes.issubdtype(aval.dtype, np.floating):
            _check_16_bits(aval, dims)
        return ctx.reduce(hlo.AddOp, x, init=0, dims=dims)

    jvp = LINEAR

    def transpose(self, y_bar: Array, x: Array, *, dims: tuple) -> tuple:
        return (broadcast_in_dim_p(y_bar, shape=x.shape, dims=drop_dims(range(x.ndim), dims)),)

    def batch(self, x: Array, b: int, *, dims: tuple) -> tuple:
        return self(x, dims=shift_past_batch(dims, b)), batch_dim_after_removal(dims, b)


reduce_sum_p = ReduceSum()


def _check_16_bits(aval: ShapedArray, dims: tuple) -> None:
    """Refuse a sum of more than one 16-bit number, where `allow_f16_reductions` is off."""
    if not state.context.allow_f16_reductions and any(aval.shape[d] != 1 for d in dims):
        raise ArgumentError(
            "lax.reduce_sum",
            expected="numbers of at least 32 bits; 16-bit sums are not allowed, since allow_f16_reductions is False",
            got=aval.str_short(),
            fix="sum in float32: jnp.sum(x, dtype='float32')",
        )


def unbroadcast(x_bar: ArrayLike, x: ArrayLike) -> Any:
    """Sum the cotangent of an operand of rank 0 that was broadcast against an operand of higher rank."""
    return reduce_sum_p(x_bar, dims=tuple(range(x_bar.ndim))) if not x.ndim and x_bar.ndim else x_bar


def reduce_sum(operand: ArrayLike, axes: Sequence[int], *, out_sharding: ShardingLike | None = None) -> Any:
    """Sum over some dimensions: num[*kept, *summed] -> num[*kept].

    Args:
      operand: integer, floating or complex array.
      axes: the dimensions to sum over.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

    Returns:
      The sums, in the dtype of `operand`.

    Raises:
      AxisError: an axis is out of bounds or repeated.
      DTypeError: `operand` is boolean.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.reduce_sum(jnp.ones((2, 3)), (1,)).tolist()
      [3.0, 3.0]
    """
    dims = canonicalize_dims(axes)
    if out_sharding is not None:
        return call_with_out_sharding(
            lambda x: reduce_sum_p(x, dims=dims), (operand,), out_sharding, "lax.reduce_sum, out_sharding"
        )
    return reduce_sum_p(operand, dims=dims)
