"""Shardings of single dimensions: which dimensions of an emitted value are sharded, and constraints on them.

XLA decides shardings after a program is emitted, by propagation from the shardings of the inputs and from constraints.
The rules of this package must often know earlier whether a dimension will be sharded: a convolution, for example, is
partitioned in one way along the batch and in another along space. `find_dim_sharding` predicts it. It follows a
dimension backwards through the operations emitted so far until it meets a value whose sharding is known.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from phalanx.engine.mlir import hlo, ir, sdy
from phalanx.partitioner.workarounds import is_active
from phalanx.runtime import LoweringContext, ModuleContext, sdy_replicated
from phalanx.sharding import NamedSharding

Dimension = tuple[ir.Value, int]  # one dimension of an emitted value


class DimSharding(NamedTuple):
    """The sharding of one dimension: the axes it is sharded over, and the sharding of the value they come from."""

    sharding: NamedSharding
    axes: tuple

    @property
    def parts(self) -> int:
        """The number of parts."""
        return self.sharding.mesh.num_parts(self.axes)

    @property
    def has_replicas(self) -> bool:
        """Whether two devices may hold the same part; on a mesh with one axis of several devices none do."""
        return self.sharding.mesh.size not in self.sharding.mesh.shape.values()


def find_dim_sharding(module: ModuleContext, x: ir.Value, dim: int) -> DimSharding | None:
    """Return the predicted sharding of dimension `dim` of `x`, or None if it is not known to be sharded."""
    # Dimensions that lead to no sharding are remembered for the whole module: in a deep model many values lead back to
    # the same inputs, and each search would otherwise walk through all layers before it.
    visited: set[Dimension] = set()
    pending = [(x, dim)]
    while pending:
        place = pending.pop()
        if place in visited or place in module.unsharded_dims:
            continue
        visited.add(place)
        value, d = place
        known, inferred = module.known_shardings.get(value), module.inferred_shardings.get(value)
        for sharding in (known, inferred):
            if isinstance(sharding, NamedSharding):
                found = DimSharding(sharding, sharding.axes(len(_shape(value)))[d])
                if found.parts > 1:
                    return found
        if known is None and value in module.moves:
            pending.extend(module.moves[value].sources_of(d))
        elif known is None:
            pending.extend(source_dims(value, d, module.has_uneven))
    module.unsharded_dims |= visited
    return None


def trace_dim_sharding(module: ModuleContext, x: ir.Value, dim: int) -> DimSharding | None:
    """Return the sharding of the input dimension that dimension `dim` of `x` is a part of, or None.

    `find_dim_sharding` may err, since its callers only prefer one way to lower an operation. Here a dimension is
    followed through operations that keep its elements on their devices, also into inner functions, and no further.
    """
    visited: set[tuple] = set()
    pending: list[_Place] = [(x, dim, (), 0)]
    while pending:
        place = value, d, _, whole = pending.pop()
        if place in visited:
            continue
        visited.add(place)
        known = module.known_shardings.get(value)
        if known is None and isinstance(value.owner, ir.Block):  # of an inner function, for whose operands it was found
            known = module.inferred_shardings.get(value)
        if isinstance(known, NamedSharding):
            found = DimSharding(known, known.axes(len(_shape(value)))[d])
            if found.parts > 1 and whole % found.parts == 0:
                return found
        if known is None:
            pending.extend(_kept_places(module, *place))
    return None


# A dimension of a value, the calls that it is inside of, and a number that the devices must divide.
_Place = tuple[ir.Value, int, tuple, int]


def _kept_places(module: ModuleContext, value: ir.Value, d: int, calls: tuple, whole: int) -> list[_Place]:
    """The dimensions that are kept as dimension `d` of a value, also of arguments of the calls it is inside of."""
    op = value.owner
    if isinstance(op, ir.Block):
        if op.owner.name == "stablehlo.while":
            return [(op.owner.operands[value.arg_number], d, calls, whole)]
        return [(calls[-1].operands[value.arg_number], d, calls[:-1], whole)] if calls else []
    if op.name == "func.call":
        function = module.symbols[op.attributes["callee"].value]
        last = list(function.regions[0].blocks[0].operations)[-1]
        return [(last.operands[ir.OpResult(value).result_number], d, (*calls, op), whole)]
    move = module.moves.get(value)
    sources = _kept_dims(op, ir.OpResult(value).result_number, d) if move is None else move.sources_of(d)
    if op.name == "stablehlo.reshape" and any(_shape(o)[source] > _shape(value)[d] for o, source in sources):
        whole = math.gcd(whole, _shape(value)[d])  # the leading one of the parts that a dimension is split into
    return [(o, source, calls, whole) for o, source in sources]


# Operations whose results are parts of one operand, or have it as a part, and those with a result for each operand.
_OF_FIRST_OPERAND = {
    f"stablehlo.{name}" for name in "slice dynamic_slice pad reverse reduce_window scatter select_and_scatter".split()
}
_OF_EACH_OPERAND = {"stablehlo.sort", "stablehlo.optimization_barrier"}


def _kept_dims(op: ir.Operation, number: int, d: int) -> list[Dimension]:
    """The dimensions of operands that are kept as dimension `d` of result `number`."""
    if op.name == "stablehlo.while":  # the initial value, and what an iteration makes of it
        last = list(op.regions[1].blocks[0].operations)[-1]
        return [(op.operands[number], d), (last.operands[number], d)]
    if op.name in _OF_EACH_OPERAND:
        return [(op.operands[number], d)]
    if op.name == "stablehlo.dynamic_update_slice":
        return [(o, d) for o in list(op.operands)[:2] if _shape(o)[d] == _shape(op.results[0])[d]]
    if op.name in _OF_FIRST_OPERAND:
        return [(op.operands[0], d)]
    if op.name in _SOURCE_OF_DIM or op.name in _SOURCES_OF_DIM:
        return source_dims(op.results[number], d, has_uneven=True)
    tensors = [o for o in op.operands if isinstance(o.type, ir.RankedTensorType)]
    if op.name == "stablehlo.concatenate":
        return [(o, d) for o in tensors]
    if len(op.regions):  # such as a conditional, or a shard_map
        return []
    return [(o, d) for o in tensors if _shape(o) == _shape(op.results[number])]


def has_empty_shards(size: int, parts: int) -> bool:
    """Whether a dimension of this size, divided into this many parts, leaves the last part empty."""
    return (parts - 1) * -(-size // parts) >= size


def materialize(ctx: LoweringContext, x: ir.Value) -> ir.Value:
    """Return `x` behind an optimization barrier, unless it is a loop carry or a constant.

    See the workaround "single_element_update".
    """
    op = x.owner.owner if isinstance(x.owner, ir.Block) else x.owner
    return x if op.name in ("stablehlo.while", "stablehlo.constant") else hlo.optimization_barrier([x])


def separate_fill(ctx: LoweringContext, x: ir.Value, fill: Hashable) -> ir.Value:
    """Return `x`, behind an optimization barrier if an earlier operation reads its padding as something else.

    `fill` identifies what the padding is read as.

    See the workaround "shared_fill".
    """
    if ctx.module.fills.setdefault(x, fill) == fill or not is_active("shared_fill"):
        return x
    return hlo.optimization_barrier([x])


def replicate_dims(ctx: LoweringContext, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    """Constrain `x` to be replicated along `dims`; the other dimensions are left to the partitioner."""
    if ctx.module.is_portable or not dims:
        return x
    return sdy.ShardingConstraintOp(x, sdy_replicated(len(_shape(x)), tuple(_other_dims(x, dims)))).result


def _shape(x: ir.Value) -> list[int]:
    return list(ir.RankedTensorType(x.type).shape)


def source_dims(x: ir.Value, d: int, has_uneven: bool) -> list[Dimension]:
    """Return the dimensions of operands that become dimension `d` of `x`, or in uneven programs its leading part."""
    op = x.owner
    if isinstance(op, ir.Block):  # an argument of a loop body: follow the initial value, whose sharding the loop keeps
        loop = op.owner
        return [(loop.operands[x.arg_number], d)] if loop.name == "stablehlo.while" else []
    if op.name == "stablehlo.reshape" and has_uneven and (source := _first_source_of_reshape(op, d)) is not None:
        return [(op.operands[0], source)]
    if (find := _SOURCE_OF_DIM.get(op.name)) is not None:
        source = find(op, d)
        return [] if source is None else [(op.operands[0], source)]
    if (find := _SOURCES_OF_DIM.get(op.name)) is not None:
        return find(op, d)
    tensors = [o for o in op.operands if isinstance(o.type, ir.RankedTensorType)]
    alike = [o for o in tensors if len(_shape(o)) == len(_shape(x))]
    if op.name != "stablehlo.custom_call":
        return [(o, d) for o in alike]
    # Most custom calls of Phalanx are elementwise; others, such as top_k, keep parallel dimensions in their place.
    is_kept = lambda o: _shape(o)[d] == _shape(x)[d] if has_uneven else _shape(o) == _shape(op.results[0])
    return [(o, d) for o in alike if is_kept(o)]


def kept_as(x: ir.Value, d: int) -> int | None:
    """The dimension of the operand of a broadcast or reshape that is kept as dimension `d` of its result."""
    return _SOURCE_OF_DIM[x.owner.name](x.owner, d)


def _source_of_reshape(op: ir.Operation, d: int) -> int | None:
    before, after = _shape(op.operands[0]), _shape(op.results[0])
    # A dimension survives a reshape if it has the same size and the same number of elements before it.
    same = (b for b, n in enumerate(before) if n == after[d] and math.prod(before[:b]) == math.prod(after[:d]))
    return next(same, None)


def _first_source_of_reshape(op: ir.Operation, d: int) -> int | None:
    """The leading one of the dimensions that are merged or split, if `d` is their leading dimension in the result."""
    before, after = _shape(op.operands[0]), _shape(op.results[0])
    sources = (b for b, n in enumerate(before) if n > 1 and math.prod(before[:b]) == math.prod(after[:d]))
    return next(sources, None) if after[d] > 1 else None


def _source_of_broadcast(op: ir.Operation, d: int) -> int | None:
    return next((b for b, place in enumerate(op.attributes["broadcast_dimensions"]) if place == d), None)


def _other_dims(x: ir.Value, dims: Iterable[int]) -> list[int]:
    """The dimensions of `x` that are not among `dims`."""
    return sorted({*range(len(_shape(x)))}.difference(dims))


def _source_of_convolution(op: ir.Operation, d: int) -> int | None:
    numbers = hlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    sources = dict(zip(numbers.output_spatial_dimensions, numbers.input_spatial_dimensions, strict=True))
    return (sources | {numbers.output_batch_dimension: numbers.input_batch_dimension}).get(d)


def _sources_of_dot_general(op: ir.Operation, d: int) -> list[Dimension]:
    numbers = hlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    lhs, rhs = op.operands
    # Dimensions of the result: the batching ones, the free ones of lhs, the free ones of rhs (StableHLO).
    batch = list(zip(numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions, strict=True))
    if d < len(batch):
        return [(lhs, batch[d][0]), (rhs, batch[d][1])]
    free = [
        *((lhs, b) for b in _other_dims(lhs, [*numbers.lhs_batching_dimensions, *numbers.lhs_contracting_dimensions])),
        *((rhs, b) for b in _other_dims(rhs, [*numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions])),
    ]
    return [free[d - len(batch)]]


def _sources_of_gather(op: ir.Operation, d: int) -> list[Dimension]:
    numbers = hlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    x, indices = op.operands
    offset = list(numbers.offset_dims)
    # Offset dimensions are the window in the operand, the others are the batch of indices, both in order (StableHLO).
    if d in offset:
        kept = _other_dims(x, [*numbers.collapsed_slice_dims, *numbers.operand_batching_dims])
        return [(x, kept[offset.index(d)])]
    batch = _other_dims(indices, [numbers.index_vector_dim])
    place = batch[_other_dims(op.results[0], offset).index(d)]
    of_operand = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    return [(indices, place)] + ([(x, of_operand[place])] if place in of_operand else [])


_SOURCE_OF_DIM = {
    "stablehlo.reshape": _source_of_reshape,
    "stablehlo.transpose": lambda op, d: op.attributes["permutation"][d],
    "stablehlo.broadcast_in_dim": _source_of_broadcast,
    "stablehlo.reduce": lambda op, d: _other_dims(op.operands[0], op.attributes["dimensions"])[d],
    "stablehlo.convolution": _source_of_convolution,
}
_SOURCES_OF_DIM = {"stablehlo.dot_general": _sources_of_dot_general, "stablehlo.gather": _sources_of_gather}
