"""Partitioned lowering of a reversal of several split dimensions, some of them unevenly, as one move of blocks.

One reversal after the other would send each element once for each dimension. Along a dimension, rounds in which each
device sends one buffer and receives one, possibly its own, have widths that add up to the size of a shard
(`move_schedule`). So the products of such rounds over the dimensions send a shard, as XLA does where sizes are even.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence

import numpy as np

from phalanx.core import ShapedArray
from phalanx.engine import dense_constant, hlo, ir
from phalanx.partitioner.dim_sharding import find_dim_sharding
from phalanx.partitioner.move_plans import may_plan
from phalanx.partitioner.move_schedule import Round, Run, find_pieces, split_into_rounds
from phalanx.partitioner.per_shard import FactorCall, FactorSharding, partition_groups
from phalanx.runtime import (
    LoweringContext,
    PartitionedCalls,
    aval_of,
    build_shard_program,
    constant_index,
    emit_collective,
    partition_number,
    select_first,
    shape_of,
    table_entry,
    type_like,
)

_calls = PartitionedCalls("phalanx.reversal")
_MOST_PARTS = 64  # of a dimension, beyond which the search for rounds takes long


def reverse_together(ctx: LoweringContext, x: ir.Value, dims: Sequence[int]) -> ir.Value | None:
    """Reverse dimensions of an array together; None unless several are split, and one of them unevenly."""
    aval = aval_of(x) if may_plan(ctx.module, ctx.aval_out, [ctx.avals_in[0].shape]) else None
    if aval is None:
        return None
    dims = [d for d in dims if aval.shape[d] > 1]
    found = {d: s.parts for d in dims if (s := find_dim_sharding(ctx.module, x, d)) is not None}
    is_even = all(aval.shape[d] % parts == 0 for d, parts in found.items())
    if len(found) < 2 or is_even or max(found.values()) > _MOST_PARTS:
        return None
    key = ir.InsertionPoint.current.block, "reversal", x, *dims
    if key not in ctx.module.emitted_moves:
        call = _ReversalCall(aval, dims)
        text = f"{aval.str_short()} {tuple(dims)}"
        (ctx.module.emitted_moves[key],) = _calls.emit(ctx, text, call, [x], [aval], call.sdy_rule())
    return ctx.module.emitted_moves[key]


class _ReversalCall(FactorCall):
    """A reversal as a custom call.

    Args:
      aval: the type of the array.
      dims: the dimensions.
    """

    def __init__(self, aval: ShapedArray, dims: Sequence[int]):
        self.aval, self.dims = aval, tuple(dims)
        names = list(range(aval.ndim))
        super().__init__([(aval, names), (aval, names)], 1, {*names}, of_operands={*dims})

    def lower_shards(
        self, shapes: Sequence[tuple[int, ...]], factors: dict[Hashable, FactorSharding], regions: np.ndarray
    ) -> str:
        """See `FactorCall.lower_shards`."""
        shard = self.aval.with_shape(shapes[0])
        whole = FactorSharding(1, np.zeros(len(regions), np.int64))
        found = [factors.get(d, whole) for d in self.dims]
        groups = partition_groups(factors, {*self.dims}, regions)
        return build_shard_program([shard], shard, lambda x: self._emit(x, found, groups))

    def _emit(self, x: ir.Value, factors: Sequence[FactorSharding], groups: np.ndarray) -> ir.Value:
        shape, number = shape_of(x), partition_number()
        rounds = []
        for d, factor in zip(self.dims, factors, strict=True):
            n, block = self.aval.shape[d], shape[d]
            pieces = find_pieces([Run(0, n, 0, n - 1)], -1, [block], block, factor.parts)
            rounds.append(list(split_into_rounds(pieces, -1, factor.parts)))
        # Shards are shorter than buffers at their ends, and a device without a piece writes behind its result.
        most = [0] * len(shape)
        for d, found in zip(self.dims, rounds, strict=True):
            most[d] = max([r.width for r in found])
        zero = hlo.constant(dense_constant(np.zeros((), self.aval.dtype)))
        none = [0] * len(shape)
        source = hlo.pad(x, zero, most, none, none)
        y = hlo.broadcast_in_dim(type_like(x, [n + m for n, m in zip(shape, most, strict=True)]), zero, [])
        for chosen in itertools.product(*rounds):
            widths, lows, targets = list(shape), [constant_index(0)] * len(shape), [constant_index(0)] * len(shape)
            counts = {}
            for d, factor, r in zip(self.dims, factors, chosen, strict=True):
                low, target, count = (np.full(factor.parts, n) for n in (0, shape[d], 0))
                for p in r.pieces:
                    low[p.sender] = p.source - (r.width - 1) + most[d]
                    target[p.receiver], count[p.receiver] = p.target, p.length
                widths[d] = r.width
                lows[d], targets[d] = (table_entry(t[factor.coordinates], number) for t in (low, target))
                if {*count.tolist()} - {0, r.width}:
                    counts[d] = table_entry(count[factor.coordinates], number)
            buffer = hlo.reverse(hlo.dynamic_slice(source, lows, widths), list(self.dims))
            pairs = _find_pairs(chosen, factors, groups)
            if any(sender != receiver for sender, receiver in pairs):
                attribute = ir.DenseElementsAttr.get(np.array(pairs, np.int64))
                buffer = emit_collective("collective_permute", buffer, widths, {"source_target_pairs": attribute})
            if counts:
                buffer = select_first(counts, buffer, hlo.dynamic_slice(y, targets, widths))
            y = hlo.dynamic_update_slice(y, buffer, targets)
        return hlo.slice(y, none, shape, [1] * len(shape))


def _find_pairs(
    chosen: Sequence[Round], factors: Sequence[FactorSharding], groups: np.ndarray
) -> list[tuple[int, int]]:
    """The partitions that send blocks in a round of each dimension, and those that receive them."""
    receivers = [{p.sender: p.receiver for p in r.pieces} for r in chosen]
    pairs = []
    for group in groups.tolist():
        partitions = {tuple(int(f.coordinates[p]) for f in factors): p for p in group}
        for at, sender in partitions.items():
            if all(i in found for i, found in zip(at, receivers, strict=True)):
                target = tuple(found[i] for i, found in zip(at, receivers, strict=True))
                pairs.append((sender, partitions[target]))
    return pairs
