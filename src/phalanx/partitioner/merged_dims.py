"""Operations on an array whose uneven leading dimension a reshape has merged with others, done before the merge.

A reshape of 17 rows of 6 over 8 devices to 102 elements moves elements, since shards of 3 rows become shards of 13
elements. Where the elements are then added up or reshaped again, nothing has to move: elementwise operations give the
same before the merge, a reduction over the merged dimension is one over its parts, and a reshape of a reshape is one.
`unmerge` emits a value again with the dimensions before the merge; XLA drops operations without a use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.engine import hlo, ir
from phalanx.partitioner.dim_sharding import find_dim_sharding, replicate_dims
from phalanx.partitioner.move_lowering import DimGroup
from phalanx.partitioner.resizing import emit_again, is_elementwise
from phalanx.runtime import LoweringContext, shape_of, type_like

_MOST_OPERATIONS = 64  # that are emitted again


class _Merge(NamedTuple):
    """A merge of dimensions: the shapes before and after it, and the dimensions before and after."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    group: DimGroup
    merged: DimGroup

    @property
    def dim(self) -> int:
        """The leading dimension after the merge, which is divided."""
        return self.merged.dim


def unmerge(ctx: LoweringContext, x: ir.Value) -> tuple[ir.Value, _Merge] | None:
    """The value with the dimensions before a merge that moved its elements; None if there is no such merge."""
    module = ctx.module
    order, merge = _find_operations(ctx, x)
    if merge is None:
        return None
    built: dict[ir.Value, ir.Value] = {}
    for value in order:
        if (found := _merge_of(module.moves.get(value), value)) is not None:
            if found != merge:
                return None
            built[value] = module.moves[value].operands[0][0]
        elif is_elementwise(value):
            built[value] = emit_again(value, [built.get(o, o) for o in value.owner.operands], merge.before)
        elif find_dim_sharding(module, value, merge.dim) is None:
            built[value] = _reshape_whole(ctx, value, merge)
        else:
            return None
    return built[x], merge


def _find_operations(ctx: LoweringContext, x: ir.Value) -> tuple[list[ir.Value], _Merge | None]:
    """The values from which `x` is computed elementwise, operands first, and the first merge among them."""
    shape, merge = shape_of(x), None
    order: dict[ir.Value, None] = {}
    pending = [(x, False)]
    while pending and len(order) < _MOST_OPERATIONS:
        value, is_ready = pending.pop()
        if is_ready:
            order[value] = None
        elif value not in order:
            merge = merge or _merge_of(ctx.module.moves.get(value), value)
            pending.append((value, True))
            if is_elementwise(value):
                pending.extend((o, False) for o in value.owner.operands if shape_of(o) == shape)
    return list(order), None if pending else merge


def _merge_of(move: Any, y: ir.Value) -> _Merge | None:
    if move is None or len(move.operands) != 1 or move.operands[0][1].length == move.result.length == 1:
        return None
    ((x, group),) = move.operands
    before, after = tuple(shape_of(x)), tuple(shape_of(y))
    is_whole = move.fill is None and move.stride == 1 and np.prod(before) == np.prod(after)
    return _Merge(before, after, group, move.result) if is_whole and len(move.runs) == 1 else None


def _reshape_whole(ctx: LoweringContext, x: ir.Value, merge: _Merge) -> ir.Value:
    """Reshape a value that each device holds whole; kept so, or it might be divided by the merged dimension."""
    x = replicate_dims(ctx, x, [merge.dim])
    return hlo.reshape(type_like(x, merge.before), x)


def sum_unmerged(ctx: LoweringContext, out: Any) -> None:
    """Let a reduction or product over a merged dimension, with results `out`, be one over the dimensions before."""
    last = out[-1] if isinstance(out, list | tuple) and out else out
    op = last.owner if isinstance(last, ir.Value) else None
    if op is None or isinstance(op, ir.Block):
        return
    if op.name == "stablehlo.reduce":
        dims = list(op.attributes["dimensions"])
        if (merge := _unmerge_operands(ctx, op, [dims] * len(op.results))) is not None:
            op.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(_replace_dims(dims, merge))
    elif op.name == "stablehlo.dot_general":
        numbers = hlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        contracted = [list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)]
        batch = [list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)]
        # Both operands are reshaped, so the merged dimension must be at one position, with no dimension behind it.
        if (
            len(contracted[0]) == 1
            and not any(batch)
            and contracted[0] == contracted[1]
            and (merge := _unmerge_operands(ctx, op, contracted)) is not None
        ):
            inner = _replace_dims(contracted[0], merge)
            op.attributes["dot_dimension_numbers"] = hlo.DotDimensionNumbers.get([], [], inner, inner)


def _unmerge_operands(ctx: LoweringContext, op: ir.Operation, dims: Sequence[Sequence[int]]) -> _Merge | None:
    """Replace the operands of an operation that combines all elements along a merged dimension.

    Args:
      ctx: the lowering context.
      op: the operation.
      dims: for each of its first operands, the dimensions that it combines.

    Returns:
      The merge; None if the operands are unchanged, since they come from no merge or from different ones.
    """
    operands = list(op.operands)[: len(dims)]
    with ir.InsertionPoint(op):
        found = [unmerge(ctx, x) for x in operands]
        merge = next((f[1] for f in found if f is not None), None)
        if merge is None or merge.merged.length > 1 or any(merge.dim not in d for d in dims):
            return None
        unmerged = []
        for x, f in zip(operands, found, strict=True):
            if f is not None and f[1] == merge:
                unmerged.append(f[0])
            elif f is None and shape_of(x) == list(merge.after) and find_dim_sharding(ctx.module, x, merge.dim) is None:
                unmerged.append(_reshape_whole(ctx, x, merge))
            else:
                return None
    for i, x in enumerate(unmerged):
        op.operands[i] = x
    return merge


def _replace_dims(dims: Sequence[int], merge: _Merge) -> list[int]:
    more = merge.group.length - 1
    others = [d + more * (d > merge.dim) for d in dims if d != merge.dim]
    return sorted([*others, *range(merge.dim, merge.dim + more + 1)])
