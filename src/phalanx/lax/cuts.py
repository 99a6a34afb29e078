"""Cuts: along which dimensions a value is split, as far as what has been emitted before it tells.

XLA settles shardings after a program is emitted; but what it settles follows from the shardings of inputs and from
constraints, and most dimensions are those of an input. The lowering of convolutions asks, since the ways that are best
along the batch and along space exclude each other, and since XLA counts what replicas have too often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.engine.mlir import hlo, ir, sdy
from phalanx.runtime.shardy import sdy_whole
from phalanx.sharding import NamedSharding


class Cut(NamedTuple):
    """By which sharding, of a value it comes from, and over which of its axes a dimension is split."""

    sharding: NamedSharding
    axes: tuple

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return self.sharding.mesh.num_parts(self.axes)

    @property
    def has_replicas(self) -> bool:
        """Whether devices may have the same of what is split: along one axis no two have."""
        return self.sharding.mesh.size not in self.sharding.mesh.shape.values()


def cut_of(module: Any, x: Any, dim: int) -> Cut | None:
    """How the IR value `x` is known to be split along `dim`; None where nothing tells that it is."""
    seen: set = set()
    left = [(x, dim)]
    while left:
        place = left.pop()
        if place in seen or place in module.uncut:
            continue
        seen.add(place)
        value, d = place
        known, expected = module.lies.get(value), module.expected.get(value)
        for sharding in (known, expected):
            if isinstance(sharding, NamedSharding):
                cut = Cut(sharding, sharding.axes(len(_shape(value)))[d])
                if cut.parts > 1:
                    return cut
        if known is None:
            left.extend(_sources(value, d))
    module.uncut |= seen
    return None


def leaves_some_empty(size: int, parts: int) -> bool:
    """Whether so few elements are left for the last of so many devices that it has none."""
    return (parts - 1) * -(-size // parts) >= size


def set_apart(ctx: Any, x: Any) -> Any:
    """A value that one element is written into, made before it is.

    A device that does not have the element writes what it reads at another place, and XLA, which reads it where the
    value is made, may forget a step of that, or that places out of bounds are moved. What loops carry is made.
    """
    of = x.owner.owner if isinstance(x.owner, ir.Block) else x.owner
    is_made = of.name in ("stablehlo.while", "stablehlo.constant")
    return x if is_made or not ctx.module.is_split else hlo.optimization_barrier([x])


def whole(ctx: Any, x: Any, dims: Sequence[int]) -> Any:
    """A value that nothing splits along these dimensions, where the partitioner splits what is emitted."""
    if not ctx.module.is_split or ctx.module.is_portable:
        return x
    ndim = len(_shape(x))
    return sdy.ShardingConstraintOp(x, sdy_whole(ndim, tuple([d for d in range(ndim) if d not in dims]))).result


def _shape(x: Any) -> list:
    return list(ir.RankedTensorType(x.type).shape)


def _sources(x: Any, d: int) -> list:
    """The dimensions of operands that dimension `d` of a value is."""
    op = x.owner
    if isinstance(op, ir.Block):  # what a loop starts with
        loop = op.owner
        return [(loop.operands[x.arg_number], d)] if loop.name == "stablehlo.while" else []
    if (follow := _FOLLOWED.get(op.name)) is not None:
        source = follow(op, d)
        return [] if source is None else [(op.operands[0], source)]
    if (follow := _OF_SEVERAL.get(op.name)) is not None:
        return follow(op, d)
    rank = len(_shape(x))
    return [(o, d) for o in op.operands if isinstance(o.type, ir.RankedTensorType) and len(_shape(o)) == rank]


def _of_reshape(op: Any, d: int) -> int | None:
    before, after = _shape(op.operands[0]), _shape(op.results[0])
    same = (b for b, n in enumerate(before) if n == after[d] and math.prod(before[:b]) == math.prod(after[:d]))
    return next(same, None)


def _of_broadcast(op: Any, d: int) -> int | None:
    dims = list(op.attributes["broadcast_dimensions"])
    return dims.index(d) if d in dims else None


def _of_reduce(op: Any, d: int) -> int:
    gone = {*op.attributes["dimensions"]}
    return [b for b in range(len(_shape(op.operands[0]))) if b not in gone][d]


def _of_convolution(op: Any, d: int) -> int | None:
    numbers = hlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    outs = [numbers.output_batch_dimension, *numbers.output_spatial_dimensions]
    ins = [numbers.input_batch_dimension, *numbers.input_spatial_dimensions]
    return dict(zip(outs, ins, strict=True)).get(d)


def _of_dot(op: Any, d: int) -> list:
    numbers = hlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    sides = [
        (list(numbers.lhs_batching_dimensions), list(numbers.lhs_contracting_dimensions)),
        (list(numbers.rhs_batching_dimensions), list(numbers.rhs_contracting_dimensions)),
    ]
    if d < len(sides[0][0]):
        return [(x, batch[d]) for x, (batch, _) in zip(op.operands, sides, strict=True)]
    free = [
        (x, b)
        for x, (batch, summed) in zip(op.operands, sides, strict=True)
        for b in range(len(_shape(x)))
        if b not in batch and b not in summed
    ]
    return [free[d - len(sides[0][0])]]


def _of_gather(op: Any, d: int) -> list:
    numbers = hlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    x, indices = op.operands
    offset = list(numbers.offset_dims)
    if d in offset:
        gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
        return [(x, [b for b in range(len(_shape(x))) if b not in gone][offset.index(d)])]
    outside = [b for b in range(len(_shape(op.results[0]))) if b not in offset]
    own = [b for b in range(len(_shape(indices))) if b != numbers.index_vector_dim]
    return [(indices, own[outside.index(d)])]


def _of_call(op: Any, d: int) -> list:
    """Most calls that the partitioner asks us about are done element by element."""
    shape = _shape(op.results[0])
    return [(o, d) for o in op.operands if isinstance(o.type, ir.RankedTensorType) and _shape(o) == shape]


_FOLLOWED = {
    "stablehlo.reshape": _of_reshape,
    "stablehlo.transpose": lambda op, d: op.attributes["permutation"][d],
    "stablehlo.broadcast_in_dim": _of_broadcast,
    "stablehlo.reduce": _of_reduce,
    "stablehlo.convolution": _of_convolution,
}
_OF_SEVERAL = {"stablehlo.dot_general": _of_dot, "stablehlo.gather": _of_gather, "stablehlo.custom_call": _of_call}
