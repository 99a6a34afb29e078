"""Partitioned lowering of reductions over sliding windows, and of cumulative ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import Primitive, ShapedArray
from phalanx.engine.mlir import ir
from phalanx.lax.indexing.static_slice import pad
from phalanx.lax.optimization_barrier import optimization_barrier
from phalanx.lax.reductions.cumulative import Cumulative
from phalanx.lax.windows.reduce_window import WINDOW, window_sharding_rule, worst
from phalanx.partitioner.dim_sharding import find_dim_sharding, has_empty_shards, replicate_dims, separate_fill
from phalanx.partitioner.per_shard import lower_per_shard
from phalanx.partitioner.window_plans import cut_to, reduce_in_buffers, scatter_in_buffers
from phalanx.partitioner.workarounds import is_active
from phalanx.runtime import Array, LoweringContext
from phalanx.symbolic import is_constant_shape

_IDEMPOTENT = {"and", "max", "min", "or"}


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
    if _skips_elements(params) and not ctx.module.is_portable and is_active("window_padding"):
        return lower_per_shard(ctx, ctx.eqn, args)
    if (planned := _reduce_in_buffers(ctx, primitive, args, params, window)) is not None:
        return planned if primitive.multiple else planned[0]
    if num_operands == 1:
        args = (separate_fill(ctx, args[0], args[1:] or primitive.name), *args[1:])
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


def _reduce_in_buffers(
    ctx: LoweringContext, primitive: Primitive, args: Sequence[ir.Value], params: dict[str, Any], window: dict[str, Any]
) -> list[ir.Value] | None:
    num_operands = len(ctx.avals_out)
    rest = args[num_operands:]
    fills = rest or [_constant(ctx, type(primitive).identity(ctx.aval_out.dtype), ctx.aval_out)]  # type: ignore[attr-defined]
    others = {name: value for name, value in params.items() if name not in window}
    operands = list(zip(args[:num_operands], fills, strict=True))
    return reduce_in_buffers(ctx, operands, rest, window, lambda *xs, **window: primitive(*xs, **others, **window))


def _constant(ctx: LoweringContext, value: Any, like: ShapedArray) -> ir.Value:
    """A scalar that windows read as padding."""
    return ctx.constant(np.asarray(value).astype(like.dtype), ShapedArray((), like.dtype))


def lower_select_and_gather_add(
    ctx: LoweringContext, primitive: Primitive, t: ir.Value, x: ir.Value, *, comparison: str, **window: Any
) -> ir.Value | None:
    """Lower `select_and_gather_add` for several devices where windows are in buffers; otherwise returns None."""
    operands = [(v, fill) for v, fill in zip((t, x), _fills(ctx, comparison), strict=True)]
    apply = lambda t, x, **window: primitive(t, x, comparison=comparison, **window)
    found = reduce_in_buffers(ctx, operands, [], window, apply)
    return None if found is None else found[0]


def lower_select_and_scatter_add(
    ctx: LoweringContext, primitive: Primitive, source: ir.Value, x: ir.Value, *, comparison: str, **window: Any
) -> ir.Value | None:
    """Lower `select_and_scatter_add` for several devices where windows are in buffers; otherwise returns None."""
    apply = lambda source, x, **window: primitive(source, x, comparison=comparison, **window)
    return scatter_in_buffers(ctx, source, x, _fills(ctx, comparison), window, apply)


def _fills(ctx: LoweringContext, comparison: str) -> tuple[ir.Value, ir.Value]:
    """What is added for padding, and the value that loses every comparison."""
    first, x = ctx.avals_in
    return _constant(ctx, 0, first), _constant(ctx, worst(comparison, x.dtype), x)


def _skips_elements(params: Mapping[str, Any]) -> bool:
    """Whether windows of any function contain padding, and the result depends on how often the initial value counts."""
    if "program" not in params or {eqn.primitive.name for eqn in params["program"].eqns} <= _IDEMPOTENT:
        return False
    return any(map(any, params["padding"])) or any(d > 1 for d in params["base_dilation"])


class EvenWindows(NamedTuple):
    """How windows along a dimension that is split unevenly become windows over shards of equal size.

    Args:
      more: the number of elements that are added at the end.
      high: the padding behind them.
    """

    more: int
    high: int


def find_even_windows(
    ctx: LoweringContext,
    x: ir.Value,
    d: int,
    sizes: tuple[int, int],
    window: tuple[int, int, int],
    padding: tuple[int, int],
) -> EvenWindows | None:
    """Find the windows at the next sizes that the devices divide; None if there are none, or sizes are even.

    XLA gathers the operand where a device holds no window, and sends whole shards where those of the results begin at
    other windows. The elements that are added are read as padding is, so the windows of the smaller size have the same
    results.

    Args:
      ctx: the lowering context.
      x, d: the operand, and the dimension.
      sizes: of the operand, and of the result.
      window: its size, stride and dilation.
      padding: the padding at both ends.
    """
    found = find_dim_sharding(ctx.module, x, d)
    n, out = sizes
    if found is None or out < 2 or n < 2 or not (n % found.parts or out % found.parts):
        return None
    even, even_out = (-(-size // found.parts) * found.parts for size in sizes)
    size, stride, dilation = window
    if stride == 1 and even_out < even:  # a window for each element, of whose results the leading ones are then moved
        even_out = even
    high = (size - 1) * dilation + 1 + (even_out - 1) * stride - padding[0] - even
    # Windows that leave less than a stride at the end are as many without it.
    return EvenWindows(even - n, max(high, 0)) if high > -stride and is_active("uneven_windows") else None


def fill_shards(x: Array, fill: Any, more: Mapping[int, int]) -> Any:
    """`x` with elements of value `fill` added at the end of dimensions, by their numbers, so that shards are even.

    Behind a barrier, since XLA would fold them into the padding of windows, and read beyond the shards.
    """
    return optimization_barrier(pad(x, fill, [(0, more.get(d, 0), 0) for d in range(x.ndim)]))


def lower_cumulative(ctx: LoweringContext, primitive: Cumulative, x: ir.Value, *, dim: int, reverse: bool) -> Any:
    """Lower a cumulative reduction for several devices: over shards of equal size, filled with the neutral element."""
    aval = ctx.aval_out
    found = find_dim_sharding(ctx.module, x, dim) if ctx.module.has_uneven and is_constant_shape(aval.shape) else None
    more = -aval.shape[dim] % found.parts if found is not None and aval.shape[dim] > 1 else 0
    if not more or not is_active("uneven_windows"):
        x = separate_fill(ctx, x, primitive.name)
        return primitive.lower(ctx, x, dim=dim, reverse=reverse)

    fill = np.asarray(type(primitive).initial(aval.dtype)).astype(aval.dtype)
    even = aval.with_shape(tuple([n + (more if d == dim else 0) for d, n in enumerate(aval.shape)]))
    # Reductions in both directions share the filled operand, which XLA may gather.
    key = ir.InsertionPoint.current.block, x, dim, fill.tobytes()
    if key not in ctx.module.filled:
        (ctx.module.filled[key],) = ctx.inline(lambda x: fill_shards(optimization_barrier(x), fill, {dim: more}), x)
    x = ctx.module.filled[key]
    accumulate = lambda x: cut_to(primitive(x, dim=dim, reverse=reverse), aval.shape)
    return ctx.inline(accumulate, x, avals=[even])


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
            if (
                found is None
                or (has_empty_shards(y.shape[d], found.parts) and not _are_adjacent(window, d))
                or _has_wide_holes(window, d, aval.shape[d], found.parts)
            ):
                dims.append(d)
    return dims


def _has_wide_holes(window: dict[str, Any], d: int, size: int, parts: int) -> bool:
    """Whether XLA exchanges too small halos along a dimension: of dilated windows, or single elements, with holes."""
    has_holes = window["base_dilation"][d] > 1 and is_active("strided_dilated_windows")
    return has_holes and (window["window_dilation"][d] > 1 or size <= parts)


def _are_adjacent(window: dict[str, Any], d: int) -> bool:
    """Whether the windows along a dimension cover it exactly: no gaps, no overlap, no padding, no dilation."""
    size, stride, pads, *dilations = (sizes[d] for sizes in window.values())
    return size == stride and not any(pads) and set(dilations) <= {1}


def windows_overlap(
    source: ShapedArray, x: ShapedArray, *, window_dimensions: tuple, window_strides: tuple, **_: object
) -> bool:
    """Whether windows of a `select_and_scatter_add` overlap: then it is lowered per shard."""
    return any(n > stride for n, stride in zip(window_dimensions, window_strides, strict=True))
