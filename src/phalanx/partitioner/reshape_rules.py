"""Partitioned lowering of `reshape`, which keeps dimensions sharded that the number of devices does not divide.

Shardy passes a sharding through a reshape only if the devices divide the leading one of the dimensions that are merged
or split. Otherwise each device would receive the whole array. Where elements change device, the reshape is a move of
elements (`move_lowering`). Elsewhere, and where moves are left to XLA, the leading dimension is padded to sizes that
the devices divide and reshaped in place, and the padding is cut off behind it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from phalanx.core import Primitive, ShapedArray
from phalanx.engine.mlir import ir
from phalanx.lax.indexing.static_slice import pad
from phalanx.lax.shape.reshape import group_reshaped_dims
from phalanx.partitioner.dim_sharding import find_dim_sharding
from phalanx.partitioner.merged_dims import unmerge
from phalanx.partitioner.move_lowering import DimGroup, Move
from phalanx.partitioner.move_plans import emit_move
from phalanx.partitioner.move_schedule import Run
from phalanx.partitioner.workarounds import is_active
from phalanx.runtime import Array, LoweringContext
from phalanx.symbolic import is_constant_shape


class _Padded(NamedTuple):
    """The shapes of a reshape whose leading dimensions are padded."""

    before: list[int]
    after: list[int]


def lower_reshape(
    ctx: LoweringContext, primitive: Primitive, x: ir.Value, *, shape: tuple
) -> ir.Value | list[ir.Value]:
    """Lower `reshape` for several devices."""
    aval = ctx.avals_in[0]
    if not ctx.module.has_uneven or not is_constant_shape((*aval.shape, *shape)) or 0 in aval.shape:
        return primitive.lower(ctx, x, shape=shape)
    if ctx.module.moves and (found := unmerge(ctx, x)) is not None:  # a reshape of a reshape is one
        x, aval = found[0], aval.with_shape(found[1].before)
    x, aval = _move_groups(ctx, x, aval, shape)
    padded = _pad_shapes(ctx, x, aval.shape, shape)
    if aval.shape == shape:
        return x
    if padded is None or not is_active("uneven_reshape"):
        return primitive.lower(ctx, x, shape=shape)

    def reshape_padded(x: Array) -> Array:
        zero = np.zeros((), x.dtype)
        widths = [(0, n - size, 0) for n, size in zip(padded.before, x.shape, strict=True)]
        y = primitive(pad(x, zero, widths), shape=tuple(padded.after))
        return pad(y, zero, [(0, size - n, 0) for n, size in zip(padded.after, shape, strict=True)])

    # The rule is applied to the reshape inside, too, and finds it even.
    return ctx.inline(reshape_padded, x, avals=[aval])


def _move_groups(ctx: LoweringContext, x: ir.Value, aval: ShapedArray, shape: tuple) -> tuple[ir.Value, ShapedArray]:
    """Reshape the groups of dimensions whose elements change device; returns the value and its type."""
    groups = list(group_reshaped_dims(aval.shape, shape))
    for old, new in reversed(groups):  # later groups first, so that the positions of earlier ones stay
        before = aval.shape
        sources, targets = ([s[d] for d in dims if s[d] > 1] for dims, s in ((old, before), (new, shape)))
        # Dimensions of size 1 come and go in place.
        if sources == targets:
            between = aval.with_shape((*before[: old.start], *shape[new.start : new.stop], *before[old.stop :]))
            x, aval = x if between.shape == before else ctx.reshape(x, between), between
            continue
        slim, between, final = (
            aval.with_shape((*before[: old.start], *dims, *before[old.stop :]))
            for dims in (sources, targets, shape[new.start : new.stop])
        )
        source = x if slim.shape == before else ctx.reshape(x, slim)
        dims = [DimGroup(old.start, len(sizes)) for sizes in (sources, targets)]
        unit = math.gcd(*(group.num_inner(a.shape) for group, a in zip(dims, (slim, between), strict=True)))
        move = Move((Run(0, math.prod(sources) // unit, 0, 0),), 1, ((source, dims[0]),), dims[1])
        if (y := emit_move(ctx, move, between)) is not None:
            x, aval = y if final.shape == between.shape else ctx.reshape(y, final), final
    return x, aval


def _pad_shapes(ctx: LoweringContext, x: ir.Value, before: tuple, shape: tuple) -> _Padded | None:
    """The shapes with padding; None if no dimension is split unevenly, or padding would cost more than it saves."""
    padded = _Padded(list(before), list(shape))
    for old, new in group_reshaped_dims(before, shape):
        sources, targets = ([d for d in dims if s[d] > 1] for dims, s in ((old, before), (new, shape)))
        if len(sources) == len(targets) == 1 or not sources:
            continue
        (first, *_), (to, *_) = sources, targets
        if (found := find_dim_sharding(ctx.module, x, first)) is None:
            continue
        size, inner = (math.prod([before[d] for d in dims]) for dims in (sources, sources[1:]))
        parts, new_inner = found.parts, size // shape[to]
        step = parts * math.lcm(inner, new_inner)  # both leading dimensions are then multiples of the parts
        total = -(-size // step) * step
        # Twice the padding of the buffer is still less than a replica on each device.
        if total != size and total <= 2 * -(-before[first] // parts) * parts * inner:
            padded.before[first], padded.after[to] = total // inner, total // new_inner
    return padded if padded != (list(before), list(shape)) else None
