"""Partitioned lowering of reductions over sliding windows."""

from __future__ import annotations

from typing import Any

from phalanx.core import Primitive, ShapedArray
from phalanx.engine.mlir import ir
from phalanx.lax.windows.reduce_window import WINDOW, window_sharding_rule
from phalanx.partitioner.dim_sharding import find_dim_sharding, has_empty_shards, replicate_dims
from phalanx.partitioner.per_shard import lower_per_shard
from phalanx.partitioner.workarounds import is_active
from phalanx.runtime.lowering import LoweringContext
from phalanx.symbolic import is_constant_shape


def lower_reduce_window(
    ctx: LoweringContext, primitive: Primitive, *args: ir.Value, **params: Any
) -> ir.Value | list[ir.Value]:
    """Lower a windowed reduction for several devices.

    With several operands, or where windows skip elements of a dilated dimension, it is lowered per shard. Otherwise the
    dimensions of `_dims_to_replicate` are constrained to be replicated in operands and results.
    """
    # The other parameters, such as the jaxpr of the reduction, are not part of the window.
    window = {name: params[name] for name in WINDOW if name in params}
    num_operands = len(ctx.avals_out)
    is_dilated = any(s > 1 and d > 1 for s, d in zip(params["window_strides"], params["base_dilation"], strict=True))
    if not ctx.module.is_portable and (
        (num_operands > 1 and is_active("variadic_windows")) or (is_dilated and is_active("strided_dilated_windows"))
    ):
        return lower_per_shard(ctx, ctx.eqn, args)
    dims = _dims_to_replicate(ctx, args[0], window) if is_active("window_spatial_sharding") else []
    operands = [replicate_dims(ctx, x, dims) for x in args[:num_operands]]
    # Initial values are scalars, which are replicated anyway.
    out = primitive.lower(ctx, *operands, *args[num_operands:], **params)
    return [replicate_dims(ctx, y, dims) for y in out] if primitive.multiple else replicate_dims(ctx, out, dims)


def _dims_to_replicate(ctx: LoweringContext, x: ir.Value, window: dict[str, Any]) -> list[int]:
    """The dimensions with a window that are not known to be sharded, or would leave a device without a result."""
    aval, y = ctx.avals_in[0], ctx.avals_out[0]
    if not is_constant_shape((*aval.shape, *y.shape)):
        return []
    rule = window_sharding_rule(1, aval, window)
    dims = []
    # A dimension that is known to be sharded is left to XLA, whose halo exchange is correct for it.
    for d, name in enumerate(rule.operands[0]):
        if name in rule.whole:
            found = find_dim_sharding(ctx.module, x, d)
            if found is None or (has_empty_shards(y.shape[d], found.parts) and not _are_adjacent(window, d)):
                dims.append(d)
    return dims


def _are_adjacent(window: dict[str, Any], d: int) -> bool:
    """Whether the windows along a dimension cover it exactly: no gaps, no overlap, no padding, no dilation."""
    size, stride, pads, *dilations = (sizes[d] for sizes in window.values())
    return size == stride and not any(pads) and set(dilations) <= {1}


def windows_overlap(
    source: ShapedArray, x: ShapedArray, *, window_dimensions: tuple, window_strides: tuple, **_: object
) -> bool:
    """Whether windows of a `select_and_scatter_add` overlap: then it is lowered per shard."""
    return any(n > stride for n, stride in zip(window_dimensions, window_strides, strict=True))
