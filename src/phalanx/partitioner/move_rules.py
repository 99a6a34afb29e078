"""Partitioned lowering of `rev`, `slice`, `split`, `pad` and `concatenate`, which move elements along dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from phalanx.core import Primitive, ShapedArray
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.shape.reshape import reshape_p
from phalanx.lax.windows.window_shape import crop_negative_padding
from phalanx.partitioner.dim_sharding import find_dim_sharding, replicate_dims, trace_dim_sharding
from phalanx.partitioner.move_lowering import DimGroup, Move
from phalanx.partitioner.move_plans import emit_move
from phalanx.partitioner.move_schedule import Run
from phalanx.partitioner.resizing import with_size
from phalanx.partitioner.reversal_lowering import reverse_together
from phalanx.partitioner.workarounds import is_active
from phalanx.runtime import LoweringContext, aval_of
from phalanx.symbolic import is_constant_shape


def lower_rev(ctx: LoweringContext, primitive: Primitive, x: ir.Value, *, dims: tuple) -> Any:
    """Lower `rev` for several devices."""
    if (together := reverse_together(ctx, x, dims)) is not None:
        return together
    aval, rest = ctx.avals_in[0], []
    for d in dims:
        n = aval.shape[d]
        y = _emit_run(ctx, x, d, Run(0, n, 0, n - 1), aval, stride=-1) if is_constant_shape((n,)) else None
        x = x if y is None else y
        rest += [d] if y is None else []
    if not rest:
        return x
    y = primitive.lower(ctx, x, dims=tuple(rest))
    if ctx.module.has_uneven and len(rest) == 1 and is_constant_shape(aval.shape):
        # Reversed again, as in derivatives of a reversal, it is its operand, which devices may hold whole.
        n, group = aval.shape[rest[0]], DimGroup(rest[0])
        ctx.module.moves[y] = Move((Run(0, n, 0, n - 1),), -1, ((x, group),), group, dtype=aval.dtype)
    return y


def lower_slice(
    ctx: LoweringContext, primitive: Primitive, x: ir.Value, *, starts: tuple, stops: tuple, strides: tuple | None
) -> Any:
    """Lower `slice` for several devices."""
    if strides is None and not ctx.module.has_uneven:
        return primitive.lower(ctx, x, starts=starts, stops=stops, strides=strides)
    aval, out = ctx.avals_in[0], ctx.aval_out
    config = list(zip(starts, stops, strides or (1,) * aval.ndim, strict=True))
    cut = [d for d, n in enumerate(aval.shape) if config[d] != (0, n, 1)]
    if not cut:
        return primitive.lower(ctx, x, starts=starts, stops=stops, strides=strides)
    whole = [d for d in cut if find_dim_sharding(ctx.module, x, d) is None] if x not in ctx.module.moves else []
    if 0 < len(whole) < len(cut) and is_constant_shape((*aval.shape, *out.shape)):
        first = [c if d in whole else (0, n, 1) for d, (c, n) in enumerate(zip(config, aval.shape, strict=True))]
        x, aval = _cut(ctx, x, aval, first)  # so that less is moved
        config = [(0, aval.shape[d], 1) if d in whole else c for d, c in enumerate(config)]
        cut = [d for d in cut if d not in whole]
    for d in cut:
        if out.shape[d] == 1:  # XLA fails on a stride past the only element, where shards are uneven.
            config[d] = (starts[d], starts[d] + 1, 1)
        start, _, stride = config[d]
        run, between = Run(0, out.shape[d], 0, start), aval.with_shape(with_size(aval.shape, d, out.shape[d]))
        y = _emit_run(ctx, x, d, run, between, stride)
        if y is not None:
            x, aval, config[d] = y, between, (0, out.shape[d], 1)
    if x in ctx.module.moves and aval.shape == out.shape:
        return x
    starts, stops, steps = zip(*config, strict=True)
    y = ctx.slice(x, starts, stops, steps, out)
    if ctx.module.has_uneven and len(cut) == 1 and is_constant_shape((*aval.shape, *out.shape, *config[cut[0]])):
        # A concatenation of parts of one array, as of a single row and the others, is one move.
        run = Run(0, out.shape[cut[0]], 0, config[cut[0]][0])
        group = DimGroup(cut[0])
        ctx.module.moves[y] = Move((run,), config[cut[0]][2], ((x, group),), group, dtype=aval.dtype)
    return y


def _cut(
    ctx: LoweringContext, x: ir.Value, aval: ShapedArray, config: Sequence[tuple[int, int, int]]
) -> tuple[ir.Value, ShapedArray]:
    """A slice, by start, stop and stride of each dimension, and its type."""
    out = aval.with_shape(tuple([len(range(*c)) for c in config]))
    key = ir.InsertionPoint.current.block, "cut", x, *config  # the same moves of the same slices are emitted once
    if key not in ctx.module.emitted_moves:
        starts, stops, steps = zip(*config, strict=True)
        ctx.module.emitted_moves[key] = ctx.slice(x, starts, stops, steps, out)
    return ctx.module.emitted_moves[key], out


def lower_split(ctx: LoweringContext, primitive: Primitive, x: ir.Value, *, sizes: tuple, dim: int) -> list:
    """Lower `split` for several devices."""
    plain: list[Any] = []
    found = []
    for i, (end, out) in enumerate(zip(itertools.accumulate(sizes), ctx.avals_out, strict=True)):
        y = _emit_run(ctx, x, dim, Run(0, sizes[i], 0, end - sizes[i]), out)
        if y is None:
            plain = plain or primitive.lower(ctx, x, sizes=sizes, dim=dim)
            y = plain[i]
        found.append(y)
    return found


def lower_concatenate(ctx: LoweringContext, primitive: Primitive, *xs: ir.Value, dim: int) -> Any:
    """Lower `concatenate` for several devices."""
    sizes = [aval.shape[dim] for aval in ctx.avals_in]
    if is_constant_shape(sizes):
        parts = [(x, n) for x, n in zip(xs, sizes, strict=True) if n]
        starts = itertools.accumulate((n for _, n in parts), initial=0)
        runs = tuple([Run(start, n, i, 0) for i, (start, (_, n)) in enumerate(zip(starts, parts, strict=False))])
        operands = tuple([(x, DimGroup(dim)) for x, _ in parts])
        if runs and (y := emit_move(ctx, Move(runs, 1, operands, DimGroup(dim)), ctx.aval_out)) is not None:
            return y
    return primitive.lower(ctx, *xs, dim=dim)


def lower_pad(ctx: LoweringContext, primitive: Primitive, x: ir.Value, value: ir.Value, *, config: tuple) -> ir.Value:
    """Lower `pad` for several devices; avoids "interior_padding" and "negative_padding"."""
    low, high, interior = zip(*config, strict=True) if config else ((), (), ())
    aval = ctx.avals_in[0]
    if is_constant_shape((*aval.shape, *low, *high, *interior)) and 0 not in aval.shape:
        # There is nothing inside a single element, whose padding XLA would reshard by way of a replica.
        interior = tuple([0 if n == 1 else count for n, count in zip(aval.shape, interior, strict=True)])
        if ctx.module.has_uneven and x not in ctx.module.moves and min((*low, *high), default=0) < 0:
            # What is cut off dimensions that are not split need not be moved along others.
            ends = [(max(-lo, 0), n - max(-hi, 0)) for n, lo, hi in zip(aval.shape, low, high, strict=True)]
            is_cut = [
                interior[d] == 0 and first < last and find_dim_sharding(ctx.module, x, d) is None
                for d, (first, last) in enumerate(ends)
            ]
            cuts = [(*e, 1) if c else (0, n, 1) for e, c, n in zip(ends, is_cut, aval.shape, strict=True)]
            x, aval = _cut(ctx, x, aval, cuts)
            low, high = (
                tuple([max(n, 0) if c else n for n, c in zip(widths, is_cut, strict=True)]) for widths in (low, high)
            )
        if any(interior) and is_active("interior_padding"):
            x, shape = _interleave(ctx, x, value, aval, interior)
            high, interior = tuple(h - n for h, n in zip(high, interior, strict=True)), (0,) * len(shape)
            aval = aval.with_shape(shape)
        for d in range(aval.ndim) if not any(interior) else ():
            if low[d] or high[d]:
                padded = aval.with_shape(with_size(aval.shape, d, aval.shape[d] + low[d] + high[d]))
                first, cut = max(-low[d], 0), max(-low[d], 0) + max(-high[d], 0)
                run = Run(max(low[d], 0), aval.shape[d] - cut, 0, first)
                y = _emit_run(ctx, x, d, run, padded, fill=value if max(low[d], high[d]) > 0 else None)
                if y is not None:
                    x, aval = y, padded
                    low, high = ((*widths[:d], 0, *widths[d + 1 :]) for widths in (low, high))
        if min((*low, *high), default=0) < 0 and not any(interior) and is_active("negative_padding"):
            starts, stops, padding = crop_negative_padding(aval.shape, tuple(zip(low, high)), [1] * aval.ndim)
            x = hlo.slice(x, starts, stops, [1] * aval.ndim)
            low, high = zip(*padding, strict=True)
    if x in ctx.module.moves and not any((*low, *high, *interior)):
        return x
    return ctx.pad(x, value, low, high, interior, ctx.aval_out)


def _emit_run(
    ctx: LoweringContext,
    x: ir.Value,
    d: int,
    run: Run,
    aval: ShapedArray,
    stride: int = 1,
    fill: ir.Value | None = None,
) -> ir.Value | None:
    """Emit the move of one run along a dimension; None if XLA should partition it."""
    if not ctx.module.has_uneven or not is_constant_shape((*run, stride)) or run.length < 1:
        return None
    return emit_move(ctx, Move((run,), stride, ((x, DimGroup(d)),), DimGroup(d), fill), aval)


def _interleave(
    ctx: LoweringContext, x: ir.Value, value: ir.Value, aval: ShapedArray, interior: Sequence[int]
) -> tuple[ir.Value, tuple]:
    """Put `interior[d]` values after each element along dimension `d`; returns the result and its shape.

    Each element gets a dimension of size 1, which is padded at its end and merged back.
    """
    x = pad_after_elements(ctx, x, value, aval, interior)
    shape = tuple([n * (count + 1) for n, count in zip(aval.shape, interior, strict=True)])
    # An equation of its own, to which the rule of `reshape` is applied.
    (x,) = ctx.inline(lambda v: reshape_p(v, shape=shape), x, avals=[aval_of(x)])
    return x, shape


def pad_after_elements(
    ctx: LoweringContext, x: ir.Value, value: ir.Value, aval: ShapedArray, interior: Sequence[int]
) -> ir.Value:
    """Add a dimension of size 1 after each dimension `d`, and pad it by `interior[d]` values.

    In even programs, Shardy would divide fewer elements than devices together with their padding, and XLA would reach
    this by way of a replica. So few elements are held whole.
    """
    singled = [n for size in aval.shape for n in (size, 1)]
    added = [n for count in interior for n in (0, count)]
    padded = aval.with_shape(tuple([n + more for n, more in zip(singled, added, strict=True)]))
    few = []
    if not ctx.module.has_uneven:
        found = [trace_dim_sharding(ctx.module, x, d) if count else None for d, count in enumerate(interior)]
        few = [d for d, s in enumerate(found) if s is not None and aval.shape[d] < s.parts]
    x = ctx.reshape(replicate_dims(ctx, x, few), aval.with_shape(tuple(singled)))
    x = ctx.pad(x, value, [0] * len(added), added, [0] * len(added), padded)
    return replicate_dims(ctx, x, [i for d in few for i in (2 * d, 2 * d + 1)])
