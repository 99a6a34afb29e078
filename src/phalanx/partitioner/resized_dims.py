"""Operations on several parts of an array, done where its elements are.

Shards of `x[1:]` may begin at other elements than those of `x`, so that each of its elements has to be sent. An
operation on `x[1:]` and `x[:-1]` would send all elements twice. Here both are moved to the larger size first, in which
their shards hold the rows that they hold in `x`: the elements behind the end are arbitrary. The operation runs there,
and its result is moved once, or not at all if it is added up along the dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.engine import dense_constant, hlo, i64, ir
from phalanx.lax.subbyte import byte_aval
from phalanx.partitioner.move_lowering import DimGroup, Move
from phalanx.partitioner.move_plans import (
    Parts,
    Plan,
    count_moved,
    find_parts,
    plan_in_size,
    plan_in_windows,
    plan_leaf,
)
from phalanx.partitioner.move_schedule import Run
from phalanx.partitioner.resizing import is_elementwise, resize
from phalanx.runtime import LoweringContext, aval_of, shape_of

_MONOIDS = {f"stablehlo.{name}" for name in ("add", "and", "maximum", "minimum", "multiply", "or")}


def compute_resized(ctx: LoweringContext, out: Any) -> Any:
    """Do an operation with results `out` in another size, if that sends fewer elements; returns its results."""
    if not isinstance(out, ir.Value) or isinstance(out.owner, ir.Block):
        return out
    op = out.owner
    if op.name == "stablehlo.reduce":
        (body,) = op.regions[0].blocks
        if len(op.operands) == 2 and len(body.operations) == 2 and body.operations[0].name in _MONOIDS:
            _mask_operands(ctx, op, [op.operands[1]], [list(op.attributes["dimensions"])])
    elif op.name == "stablehlo.dot_general":
        numbers = hlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        avals = list(map(aval_of, op.operands))
        if numbers.lhs_contracting_dimensions and not any(byte_aval(a) is not a for a in avals):
            zeros = [hlo.constant(dense_constant(np.zeros((), aval.dtype))) for aval in avals]
            _mask_operands(ctx, op, zeros, [numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions])
    elif is_elementwise(out) and len(op.operands) > 1:
        for d, size in enumerate(shape_of(out)):
            if size > 1 and (y := _compute_once(ctx, out, d)) is not None:
                return y
    return out


def _compute_once(ctx: LoweringContext, y: ir.Value, dim: int) -> ir.Value | None:
    """Emit an elementwise operation on several moved arrays in the larger one of their sizes before and after.

    The result is moved afterwards if that is the size before, otherwise the operands before. None if the moves as they
    are send no more.
    """
    found = find_parts(ctx, y, dim)
    if found is None or len(found.moved) < 2:
        return None
    shape, size = shape_of(y), shape_of(y)[dim]
    if found.size < size:
        return _compute_from_larger(ctx, found, y, dim)
    resized, kept = plan_in_size(ctx, found, y, dim), Run(0, size, 0, 0)
    dtype = aval_of(y).dtype
    sent = count_moved([kept], 1, found.parts, found.size, size) * math.prod(shape) // size * dtype.itemsize
    if resized is None:
        return None
    windows = plan_in_windows(ctx, found, y, dim)
    if windows is not None and windows.sent < min(found.sent, resized.sent + sent):
        return windows.emit()
    if resized.sent + sent >= found.sent:
        return None
    x = resized.emit()
    move = Move((kept,), 1, ((x, DimGroup(dim)),), DimGroup(dim), dtype=dtype)
    plan = plan_leaf(ctx, move, y, dim, size)
    return None if plan is None else plan.emit()


def _compute_from_larger(ctx: LoweringContext, found: Parts, y: ir.Value, dim: int) -> ir.Value | None:
    """Emit an elementwise operation on moved arrays that grow: each operand is brought to the larger size first."""
    lifted: dict[tuple, Plan] = {}
    sent = 0
    for (leaf, d), move in found.moved.items():
        assert move.dtype is not None, "the move was emitted"
        (source, group), *_ = move.operands
        size, shape = shape_of(leaf)[d], shape_of(source)
        key = source, d, size
        if key not in lifted:
            # With a fill, so that the move of the leaf is not made one with this one.
            zero = hlo.constant(dense_constant(np.zeros((), move.dtype)))
            grown = Move((Run(0, shape[d], 0, 0),), 1, ((source, group),), group, zero, move.dtype)
            if (plan := plan_leaf(ctx, grown, leaf, d, size)) is None:
                return None
            lifted[key] = plan
            sent += plan.sent
        others = math.prod(shape_of(leaf)) // size
        sent += count_moved(move.runs, move.stride, found.parts, size, size) * others * move.dtype.itemsize
    if sent >= found.sent:
        return None
    operands: dict[tuple, ir.Value] = {}

    def emit_leaf(leaf: ir.Value, d: int) -> ir.Value:
        move = found.moved.get((leaf, d))
        if move is None:
            return leaf
        (source, group), *_ = move.operands
        key = source, d, shape_of(leaf)[d]
        if key not in operands:
            operands[key] = lifted[key].emit()
        plan = plan_leaf(ctx, move._replace(operands=((operands[key], group),)), leaf, d, shape_of(leaf)[d])
        return leaf if plan is None else plan.emit()

    return resize(y, dim, shape_of(y)[dim], emit_leaf)


def _mask_operands(
    ctx: LoweringContext, op: ir.Operation, fills: Sequence[ir.Value], dims: Sequence[Sequence[int]]
) -> None:
    """Replace operands of an operation that combines all elements along a dimension by their values in another size.

    Args:
      ctx: the lowering context.
      op: the operation.
      fills: for each of its first operands, a scalar that does not change the result.
      dims: for each of them, the dimensions that are combined.
    """
    for places in zip(*dims, strict=True):
        size, resized, sent, more = shape_of(op.operands[0])[places[0]], [], 0, set()
        for x, d in zip(op.operands, places, strict=False):
            found = find_parts(ctx, x, d)
            plan = None if found is None or found.size < size else plan_in_size(ctx, found, x, d)
            if found is not None and plan is not None:
                resized.append((plan, d))
                sent += found.sent - plan.sent
                more.add(found.size)
        if len(resized) < len(places) or sent <= 0 or len(more) > 1:
            continue
        with ir.InsertionPoint(op):
            for i, ((plan, d), fill) in enumerate(zip(resized, fills, strict=True)):
                op.operands[i] = _keep_first(plan.emit(), d, size, fill)


def _keep_first(x: ir.Value, d: int, size: int, fill: ir.Value) -> ir.Value:
    """The first elements of a value along a dimension, and a scalar behind them."""
    numbers = ir.RankedTensorType.get(shape_of(x), ir.IntegerType.get_signless(32))
    limit = hlo.constant(dense_constant(np.full(shape_of(x), size, np.int32)))
    below, kind = hlo.ComparisonDirectionAttr.get("LT"), hlo.ComparisonTypeAttr.get("SIGNED")
    is_kept = hlo.compare(hlo.iota(numbers, i64(d)), limit, below, compare_type=kind)
    return hlo.select(is_kept, x, hlo.broadcast_in_dim(x.type, fill, []))
