"""Partitioned lowering of `reshape`, which keeps dimensions sharded that the number of devices does not divide.

Shardy passes a sharding through a reshape only if the devices divide the leading one of the dimensions that are merged
or split. Otherwise each device would receive the whole array. Padded to sizes that they divide, the leading dimension
is reshaped in place, and the padding is cut off behind it: devices exchange a few elements at the ends of their shards,
or none.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from phalanx.core import Primitive
from phalanx.engine.mlir import ir
from phalanx.lax.indexing.static_slice import pad
from phalanx.lax.shape.reshape import group_reshaped_dims
from phalanx.partitioner.dim_sharding import find_dim_sharding
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
    padded = _pad_shapes(ctx, x, shape)
    if padded is None or not is_active("uneven_reshape"):
        return primitive.lower(ctx, x, shape=shape)

    def reshape_padded(x: Array) -> Array:
        zero = np.zeros((), x.dtype)
        widths = [(0, n - size, 0) for n, size in zip(padded.before, x.shape, strict=True)]
        y = primitive(pad(x, zero, widths), shape=tuple(padded.after))
        return pad(y, zero, [(0, size - n, 0) for n, size in zip(padded.after, shape, strict=True)])

    return ctx.inline(reshape_padded, x)  # the rule is applied to the reshape inside, too, and finds it even


def _pad_shapes(ctx: LoweringContext, x: ir.Value, shape: tuple) -> _Padded | None:
    """The shapes with padding; None if no dimension is split unevenly, or padding would cost more than it saves."""
    before = ctx.avals_in[0].shape
    if not ctx.module.has_uneven or not is_constant_shape((*before, *shape)) or 0 in before:
        return None
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
