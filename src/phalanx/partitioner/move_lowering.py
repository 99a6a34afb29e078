"""Partitioned lowering of operations that only move elements along a dimension that is split unevenly.

XLA resizes and shifts uneven shards by several permutes, each of a buffer that is large enough for any device. Here
such an operation is one custom call, whose program sends each element once, in rounds planned by `move_schedule`. Where
one move follows another, as in `concatenate([x[k:], x[:k]])`, the two are one call.

Left to XLA are moves that keep each element in its place of its shard, artifacts that other consumers compile (a call
of Phalanx plans them, see `linked_programs`), and moves that take too many rounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import ShapedArray
from phalanx.engine import dense_constant, hlo, ir
from phalanx.partitioner.dim_sharding import Dimension
from phalanx.partitioner.move_schedule import Piece, Run, find_pieces, schedule_rounds
from phalanx.partitioner.per_shard import FactorCall, FactorSharding, partition_groups
from phalanx.runtime import (
    PartitionedCalls,
    build_shard_program,
    constant_index,
    emit_collective,
    partition_number,
    reshape,
    select_first,
    shape_of,
    table_entry,
    type_like,
)

calls = PartitionedCalls("phalanx.move")
_MOVED = "moved"  # the name of the divided dimension


class DimGroup(NamedTuple):
    """Consecutive dimensions whose elements are moved together: the first one is divided among devices.

    Args:
      dim: the position of the first one.
      length: the number of dimensions; more than one where a reshape merges or splits them.
    """

    dim: int
    length: int = 1

    def num_inner(self, shape: Sequence[int]) -> int:
        """The number of elements for each index of the first dimension."""
        return math.prod(shape[self.dim + 1 : self.dim + self.length])


class Move(NamedTuple):
    """An operation that moves elements.

    Args:
      runs, stride: the elements, see `move_schedule`, counted in units of equally many.
      operands: for each operand, the value and the dimensions.
      result: the dimensions of the result.
      fill: a scalar for elements that no run has.
      dtype: the dtype, if the move was emitted.
    """

    runs: tuple[Run, ...]
    stride: int
    operands: tuple[tuple[ir.Value, DimGroup], ...]
    result: DimGroup
    fill: ir.Value | None = None
    dtype: np.dtype | None = None

    def count_elements(self, shape: Sequence[int]) -> Move:
        """The move with runs counted in elements, for a result of some shape.

        Two reshapes may count in different units, in which they cannot be one move.
        """
        unit = math.gcd(self.result.num_inner(shape), *(group.num_inner(shape_of(x)) for x, group in self.operands))
        if unit == 1:
            return self
        assert self.stride == 1, "reshapes only have units of several elements, and keep the order"
        runs = [Run(run.start * unit, run.length * unit, run.operand, run.source * unit) for run in self.runs]
        return self._replace(runs=tuple(runs))

    def sources_of(self, d: int) -> list[Dimension]:
        """The dimensions of operands that become a dimension of the result, or the leading part of one."""
        first, count = self.result
        if first < d < first + count:
            return []
        return [
            (x, group.dim if d == first else d if d < first else d - count + group.length) for x, group in self.operands
        ]


def read_through(move: Move, moves: dict[ir.Value, Move]) -> Move:
    """The move with the operands of the moves that compute its operands, where the two are one move."""
    if move.result.length > 1:
        return move
    earlier = [moves.get(x) for x, _ in move.operands]
    earlier = [
        m.count_elements(shape_of(x)) if m is not None and m.result == group and m.fill is None else None
        for m, (x, group) in zip(earlier, move.operands, strict=True)
    ]
    strides = {move.stride * (1 if m is None else m.stride) for m in earlier}
    if not any(earlier) or len(strides) > 1:
        return move
    operands: dict[tuple[ir.Value, DimGroup], int] = {}
    runs: list[Run] = []
    for run in move.runs:
        m = earlier[run.operand]
        if m is None:
            parts = [run._replace(operand=operands.setdefault(move.operands[run.operand], len(operands)))]
        else:
            number = lambda i, m=m: operands.setdefault(m.operands[i], len(operands))
            parts = [r._replace(operand=number(r.operand)) for r in _compose(run, move.stride, m.runs, m.stride)]
        runs.extend(parts)
    (stride,) = strides
    return move._replace(runs=join_runs(runs, stride), stride=stride, operands=tuple(operands))


def _compose(run: Run, stride: int, runs: Sequence[Run], inner: int) -> list[Run]:
    """The runs, of the operands of a first move, that a run of a second one takes from its result."""
    found = []
    for start, count, operand, source in sorted(runs):
        # The positions of `run` whose sources are in this run of the first move.
        ends = [start - run.source, start + count - 1 - run.source]
        first, last = (
            (-(-ends[0] // stride), ends[1] // stride) if stride > 0 else (-(ends[1] // -stride), -ends[0] // -stride)
        )
        first, last = max(first, 0), min(last, run.length - 1)
        if first <= last:
            at = run.source + stride * first
            found.append(Run(run.start + first, last - first + 1, operand, source + inner * (at - start)))
    return sorted(found)


def join_runs(runs: Sequence[Run], stride: int) -> tuple[Run, ...]:
    """Sorted runs, consecutive ones joined."""
    joined: list[Run] = []
    for run in sorted(runs):
        last = joined[-1] if joined else None
        if last is not None and run == Run(
            last.start + last.length, run.length, last.operand, last.source + stride * last.length
        ):
            joined[-1] = last._replace(length=last.length + run.length)
        else:
            joined.append(run)
    return tuple(joined)


class MoveCall(FactorCall):
    """A move as a custom call.

    Args:
      move: the move.
      aval: the type of the result.
      is_divided: for each operand, whether it is divided along its dimension. Devices hold others whole.
    """

    def __init__(self, move: Move, aval: ShapedArray, is_divided: Sequence[bool]):
        self.move = move._replace(operands=tuple([(None, group) for _, group in move.operands]), fill=None)
        self.is_divided = is_divided
        self.avals = [aval.with_shape(tuple(shape_of(x))) for x, _ in move.operands]
        self.aval_out, self.has_fill = aval, move.fill is not None
        groups = [*(group for _, group in move.operands), move.result]
        inner = [group.num_inner(a.shape) for a, group in zip([*self.avals, aval], groups, strict=True)]
        self.unit = math.gcd(*inner)
        self.inner = [n // self.unit for n in inner]  # units for each index of the dimension
        names = [self._names(i, a, g) for i, (a, g) in enumerate(zip([*self.avals, aval], groups, strict=True))]
        tensors: list[tuple[ShapedArray, Sequence[Hashable]]] = list(zip([*self.avals, aval], names, strict=True))
        if self.has_fill:
            tensors.insert(-1, (ShapedArray((), aval.dtype), ()))
        divisible = {n for dims in names for n in dims if n == _MOVED or (isinstance(n, tuple) and n[0] == "kept")}
        super().__init__(tensors, len(tensors) - 1, divisible, of_operands={_MOVED})
        self.text = f"{[a.str_short() for a, _ in tensors]} {self.move} {self.is_divided}"

    def _names(self, number: int, aval: ShapedArray, group: DimGroup) -> list[Hashable]:
        moved = _MOVED if number == len(self.avals) or self.is_divided[number] else ("own", number, 0)
        inner = [("own", number, d) for d in range(1, group.length)]
        after = aval.ndim - group.dim - group.length
        return [*(("kept", d) for d in range(group.dim)), moved, *inner, *(("kept", -d) for d in range(after, 0, -1))]

    def blocks(self, parts: int) -> tuple[list[int | None], int]:
        """The number of units of a shard of each operand, None if it is whole, and of the result."""
        sizes = [a.shape[g.dim] for a, (_, g) in zip(self.avals, self.move.operands, strict=True)]
        blocks = [
            -(-n // parts) * inner if d else None
            for n, inner, d in zip(sizes, self.inner, self.is_divided, strict=False)
        ]
        return blocks, -(-self.aval_out.shape[self.move.result.dim] // parts) * self.inner[-1]

    def find_pieces(self, parts: int) -> tuple[Piece, ...]:
        """The pieces of the move among a number of shards."""
        return tuple(find_pieces(self.move.runs, self.move.stride, *self.blocks(parts), parts))

    def lower_shards(
        self, shapes: Sequence[tuple[int, ...]], factors: dict[Hashable, FactorSharding], regions: np.ndarray
    ) -> str:
        """See `FactorCall.lower_shards`."""
        factor = factors.get(_MOVED, FactorSharding(1, np.zeros(len(regions), np.int64)))
        groups = partition_groups(factors, {_MOVED}, regions)
        *ins, out = [aval.with_shape(shape) for (aval, _), shape in zip(self.tensors, shapes, strict=True)]
        return build_shard_program(ins, out, lambda *xs: self._emit(xs, shapes[-1], factor, groups))

    def _emit(
        self, operands: Sequence[ir.Value], shape: Sequence[int], factor: FactorSharding, groups: np.ndarray
    ) -> ir.Value:
        # Shards of three dimensions: those before the moved one, its units, and the elements of a unit.
        flat = []
        for x, (_, group), inner in zip(operands, self.move.operands, self.inner, strict=False):
            before, held = math.prod(shape_of(x)[: group.dim]), shape_of(x)[group.dim] * inner
            flat.append(reshape(x, [before, held, math.prod(shape_of(x)) // (before * held)]))
        offsets = [0, *itertools.accumulate(shape_of(x)[1] for x in flat)]
        source = flat[0] if len(flat) == 1 else hlo.concatenate(flat, 1)
        pieces = self.find_pieces(factor.parts)
        stays = [[p for p in pieces if p.sender == p.receiver == i] for i in range(factor.parts)]
        steps: list[tuple[int, list[Piece], list[tuple[int, int]]]] = []
        for kept in itertools.zip_longest(*stays):
            found = [p for p in kept if p is not None]
            steps.append((max(p.length for p in found), found, []))
        for width, moved in schedule_rounds(pieces, self.move.stride, factor.parts):
            steps.append((width, moved, [(g[p.sender], g[p.receiver]) for g in groups for p in moved]))
        before, _, after = shape_of(source)
        _, block = self.blocks(factor.parts)
        room = max([width for width, *_ in steps], default=0)  # behind the result, for what a device need not keep
        zero = hlo.constant(dense_constant(np.zeros((), self.aval_out.dtype)))
        fill = operands[-1] if self.has_fill else zero
        y = hlo.broadcast_in_dim(type_like(source, [before, block + room, after]), fill, [])
        number = partition_number()
        for width, found, pairs in steps:
            extent = (width - 1) * abs(self.move.stride) + 1
            lows, targets, counts = (np.full(factor.parts, n) for n in (0, block, 0))
            for p in found:
                lows[p.sender] = offsets[p.operand] + p.source - (extent - 1 if self.move.stride < 0 else 0)
                targets[p.receiver], counts[p.receiver] = p.target, p.length
            low, high = max(0, -int(lows.min())), max(0, int(lows.max()) + extent - offsets[-1])
            buffer = hlo.pad(source, zero, [0, low, 0], [0, high, 0], [0] * 3) if low or high else source
            lows, targets, counts = (table[factor.coordinates] for table in (lows + low, targets, counts))
            buffer = _slice_at(buffer, table_entry(lows, number), extent)
            if abs(self.move.stride) > 1:
                buffer = hlo.slice(buffer, [0] * 3, shape_of(buffer), [1, abs(self.move.stride), 1])
            if self.move.stride < 0:
                buffer = hlo.reverse(buffer, [1])
            if pairs:
                pairs_attribute = ir.DenseElementsAttr.get(np.array(pairs, np.int64))
                buffer = emit_collective(
                    "collective_permute", buffer, shape_of(buffer), {"source_target_pairs": pairs_attribute}
                )
            at = table_entry(targets, number)
            if {*counts.tolist()} - {0, width}:
                buffer = select_first({1: table_entry(counts, number)}, buffer, _slice_at(y, at, width))
            y = hlo.dynamic_update_slice(y, buffer, [constant_index(0), at, constant_index(0)])
        return reshape(hlo.slice(y, [0] * 3, [before, block, after], [1] * 3), shape)


def _slice_at(x: ir.Value, start: ir.Value, size: int) -> Any:
    """The slice of the middle dimension that begins at a position."""
    before, _, after = shape_of(x)
    return hlo.dynamic_slice(x, [constant_index(0), start, constant_index(0)], [before, size, after])
