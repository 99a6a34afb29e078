"""Plans of moves along a dimension that is split unevenly: what is sent for a move, and how it is emitted.

A move may be sent as it is. It may also be cheaper to send what its operand is computed from (`_plan_leaves`), to move
these values instead (`_plan_elementwise`), or to compute its operand in the size that these were moved from
(`_plan_from_size`). `emit_move` takes the plan that sends least, or leaves the move to XLA as `move_lowering` says.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from phalanx.core import ShapedArray
from phalanx.engine import hlo, ir
from phalanx.lax.subbyte import byte_aval
from phalanx.partitioner.dim_sharding import Dimension, find_dim_sharding, kept_as
from phalanx.partitioner.move_lowering import DimGroup, Move, MoveCall, calls, join_runs, read_through
from phalanx.partitioner.move_schedule import Piece, Run, find_pieces, is_worthwhile, most_moved, schedule_rounds
from phalanx.partitioner.resizing import find_leaves, resize, with_size
from phalanx.partitioner.workarounds import is_active
from phalanx.runtime import LoweringContext, ModuleContext, shape_of, type_like
from phalanx.symbolic import is_constant_shape


class Plan(NamedTuple):
    """How a move is emitted.

    Args:
      sent: the number of bytes in the buffers that a device sends, along the whole of the other dimensions.
      emit: emits it.
      is_local: whether all elements stay in their place, so that XLA may do it as well.
      is_emitted: whether the same move has been emitted before.
    """

    sent: int
    emit: Callable[[], ir.Value]
    is_local: bool = False
    is_emitted: bool = False


def emit_move(ctx: LoweringContext, move: Move, aval: ShapedArray) -> ir.Value | None:
    """Emit a move of elements along a dimension that is split unevenly.

    Args:
      ctx: the lowering context.
      move: the move.
      aval: the physical type of the result.

    Returns:
      The result; None if XLA should partition the operation.
    """
    plan = plan_move(ctx, move, aval)
    return None if plan is None or plan.is_local else plan.emit()


def plan_move(ctx: LoweringContext, move: Move, aval: ShapedArray, *, is_inner: bool = False) -> Plan | None:
    """Plan a move as in `emit_move`; None if XLA should partition it.

    Args:
      ctx, move, aval: as there.
      is_inner: whether it is part of a plan, so that there is no search for what its operand is computed from. A search
        in each of a chain of moves would take exponentially long.
    """
    module = ctx.module
    shapes = [shape_of(x) for x, _ in move.operands]
    if not may_plan(module, aval, shapes) or aval.shape[move.result.dim] < 2:
        return None
    direct = move._replace(dtype=aval.dtype)
    move = read_through(direct, module.moves)
    found = [find_dim_sharding(module, x, group.dim) for x, group in move.operands]
    parts = next((s.parts for s in found if s is not None), 1)
    sizes = [shape_of(x)[group.dim] for x, group in move.operands]
    if all(n % parts == 0 for n in (*sizes, aval.shape[move.result.dim])):
        return None
    plans = [plan_direct(ctx, move, aval, parts)]
    if not is_inner and (plans[0] is None or plans[0].sent):
        plans += [plan(ctx, move, aval, parts) for plan in (_plan_leaves, _plan_elementwise, _plan_from_size)]
    best = min((plan for plan in plans if plan is not None), key=lambda plan: plan.sent, default=None)
    if best is None:
        return None

    def emit() -> ir.Value:
        y = best.emit()
        module.moves[y] = move
        return y

    return best._replace(emit=emit, is_local=move is direct and not best.sent and best is plans[0])


def may_plan(module: ModuleContext, aval: ShapedArray, shapes: Sequence[Sequence[int]]) -> bool:
    """Whether moves of operands of some shapes to a result are planned."""
    sizes = *aval.shape, *itertools.chain(*shapes)
    return (
        module.has_uneven
        and not module.is_portable
        and module.manual is None
        and is_constant_shape(sizes)
        and 0 not in sizes
        and byte_aval(aval) is aval
        and is_active("uneven_moves")
    )


def plan_direct(ctx: LoweringContext, move: Move, aval: ShapedArray, parts: int) -> Plan | None:
    """Plan a move as it is, of shards of a number of parts; None if it takes too many rounds."""
    call = MoveCall(move, aval, [find_dim_sharding(ctx.module, x, group.dim) is not None for x, group in move.operands])
    pieces = call.find_pieces(parts)
    if not is_worthwhile(schedule_rounds(pieces, move.stride, parts), pieces):
        return None

    key = ir.InsertionPoint.current.block, call.text, *move.operands, move.fill

    def emit() -> ir.Value:
        if (y := ctx.module.emitted_moves.get(key)) is None:
            operands = [x for x, _ in move.operands] + ([] if move.fill is None else [move.fill])
            (y,) = calls.emit(ctx, call.text, call, operands, [aval], call.sdy_rule())
            ctx.module.moves[y], ctx.module.emitted_moves[key] = move, y
        return y

    units = aval.shape[move.result.dim] * call.inner[-1]
    return Plan(most_moved(pieces) * _num_bytes(aval) // units, emit, is_emitted=key in ctx.module.emitted_moves)


class _Windows(NamedTuple):
    """A buffer in which each device has consecutive indices of a dimension.

    Args:
      width: their number.
      firsts: for each device the first one.
      runs: the move of those that are read to the buffer.
    """

    width: int
    firsts: list[int]
    runs: tuple[Run, ...]

    def shift(self, device: int) -> int:
        """How far behind its place in the dimension an index of a device is in the buffer."""
        return device * self.width - self.firsts[device]


def _find_windows(spans: Sequence[tuple[int, int, int]], read: Sequence[tuple[int, int, int]], parts: int) -> _Windows:
    """The windows that hold spans of indices, each with its device and its ends, of which only some are read."""
    firsts, stops = ([find(spans, i) for i in range(parts)] for find in (_first_index, _stop_index))
    width = max(stop - first for first, stop in zip(firsts, stops, strict=True))
    ends = [(_first_index(read, i), _stop_index(read, i)) for i in range(parts)]
    runs = [Run(i * width + lo - firsts[i], hi - lo, 0, lo) for i, (lo, hi) in enumerate(ends) if hi > lo]
    return _Windows(width, firsts, tuple(runs))


def _first_index(spans: Sequence[tuple[int, int, int]], device: int) -> int:
    return min([min(ends) for i, *ends in spans if i == device], default=0)


def _stop_index(spans: Sequence[tuple[int, int, int]], device: int) -> int:
    return max([max(ends) + 1 for i, *ends in spans if i == device], default=0)


def _plan_windows(
    ctx: LoweringContext, windows: _Windows, x: ir.Value, d: int, aval: ShapedArray, parts: int
) -> Plan | None:
    """Plan the windows of a value along a dimension; `aval` has its dtype."""
    wide = aval.with_shape(with_size(shape_of(x), d, parts * windows.width))
    return plan_direct(ctx, Move(windows.runs, 1, ((x, DimGroup(d)),), DimGroup(d)), wide, parts)


def emit_local(ctx: LoweringContext, move: Move, aval: ShapedArray, parts: int) -> ir.Value:
    """Emit a move that sends nothing."""
    plan = plan_direct(ctx, move._replace(runs=join_runs(move.runs, move.stride)), aval, parts)
    assert plan is not None and not plan.sent, "the windows hold all that a device needs"
    return plan.emit()


def _plan_leaves(ctx: LoweringContext, move: Move, aval: ShapedArray, parts: int) -> Plan | None:
    """Plan to send what the operand is computed from: a repeated row is sent once, and repeated where it is needed.

    Devices receive windows of equal size along the dimension that is divided, and compute the operand in them. Rows of
    which a device needs padding only are not sent.
    """
    (x, group), *others = move.operands
    leaves = _other_leaves(x, group.dim)
    if others or not leaves:
        return None
    call = MoveCall(move, aval, [True])
    ((held,), block), (inner, _) = call.blocks(parts), call.inner
    assert held is not None
    is_read = np.any(_find_read(x, group).reshape(inner, -1), axis=1)
    placed, spans = [], []
    read: list[tuple[int, int, int]] = []
    for p in call.find_pieces(parts):
        at, last = p.sender * held + p.source, p.length - 1
        placed.append((p, at))
        spans.append((p.receiver, at // inner, (at + move.stride * last) // inner))
        # The first and last units that are read are among the first and last `inner` ones, or none is.
        steps = np.arange(min(p.length, inner))
        ends = [
            units[is_read[units % inner]][:1] // inner
            for units in (at + move.stride * s for s in (steps, last - steps))
        ]
        read += [(p.receiver, int(ends[0][0]), int(ends[1][0]))] if ends[0].size else []
    windows = _find_windows(spans, read, parts)
    if windows.width * inner > 2 * (held + inner):  # as where the first and last elements are needed together
        return None
    plans: dict[Dimension, Plan] = {}
    for leaf, d in leaves:
        if (plan := _plan_windows(ctx, windows, leaf, d, aval, parts)) is None:
            return None
        plans[leaf, d] = plan
    runs = [Run(p.receiver * block + p.target, p.length, 0, at + windows.shift(p.receiver) * inner) for p, at in placed]

    def emit() -> ir.Value:
        rows = resize(x, group.dim, parts * windows.width, lambda leaf, d: plans[leaf, d].emit())
        return emit_local(ctx, move._replace(runs=tuple(runs), operands=((rows, group),)), aval, parts)

    return Plan(sum([plan.sent for plan in plans.values()]), emit)


def _find_read(x: ir.Value, group: DimGroup) -> np.ndarray:
    """For the elements of each index of a group's first dimension, whether they are computed from leaves."""
    if group.length == 1:
        return np.ones((), bool)
    op, inner = x.owner, slice(group.dim + 1, group.dim + group.length)
    if not isinstance(op, ir.Block) and op.name == "stablehlo.pad":
        low, high, interior = (
            list(op.attributes[name])[inner] for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
        )
        if not any(interior) and min((*low, *high), default=0) >= 0:
            return np.pad(_find_read(op.operands[0], group), list(zip(low, high, strict=True)))
    if not isinstance(op, ir.Block) and op.name == "stablehlo.reshape" and (d := kept_as(x, group.dim)) is not None:
        sources = [DimGroup(d, n) for n in range(1, len(shape_of(op.operands[0])) - d + 1)]
        size = group.num_inner(shape_of(x))
        found = next((g for g in sources if g.num_inner(shape_of(op.operands[0])) == size), None)
        if found is not None:
            return _find_read(op.operands[0], found).reshape(shape_of(x)[inner])
    return np.ones(shape_of(x)[inner], bool)


def _plan_elementwise(ctx: LoweringContext, move: Move, aval: ShapedArray, parts: int) -> Plan | None:
    """Plan a move of an elementwise function of moved arrays as that function of their moves."""
    (x, group), *others = move.operands
    leaves = _other_leaves(x, group.dim)
    if others or not leaves or move.fill is not None or not move.result.length == group.length == 1:
        return None
    plans: dict[Dimension, Plan] = {}
    for leaf, d in leaves:
        again = move._replace(operands=((leaf, DimGroup(d)),), result=DimGroup(d))
        is_divided = find_dim_sharding(ctx.module, leaf, d) is not None
        moved = aval.with_shape(with_size(shape_of(leaf), d, aval.shape[group.dim]))
        if is_divided:
            plan = plan_move(ctx, again, moved, is_inner=True)
        else:  # what devices hold whole may be read from what it was moved from, which they hold as well
            plan = plan_direct(ctx, read_through(again._replace(dtype=aval.dtype), ctx.module.moves), moved, parts)
        if plan is None:
            return None
        plans[leaf, d] = plan
    return Plan(
        sum([plan.sent for plan in plans.values()]),
        lambda: resize(x, group.dim, aval.shape[group.dim], lambda leaf, d: plans[leaf, d].emit()),
    )


def _plan_from_size(ctx: LoweringContext, move: Move, aval: ShapedArray, parts: int) -> Plan | None:
    """Plan a move of a function of moved arrays from the size that these were moved from."""
    (x, group), *others = move.operands
    found = None if others or group.length > 1 or _is_leaf(x, group.dim) else find_parts(ctx, x, group.dim)
    if found is None or found.size < shape_of(x)[group.dim]:
        return None
    resized, inner = plan_in_size(ctx, found, x, group.dim), move.result.num_inner(aval.shape)
    if resized is None or inner > 1:
        return None
    blocks = -(-found.size // parts), -(-aval.shape[move.result.dim] // parts)
    pieces = tuple(find_pieces(move.runs, move.stride, blocks[:1], blocks[1], parts))
    if not is_worthwhile(schedule_rounds(pieces, move.stride, parts), pieces):
        return None

    def emit() -> ir.Value:
        plan = plan_direct(ctx, move._replace(operands=((resized.emit(), group),)), aval, parts)
        assert plan is not None, "the rounds were found worthwhile"
        return plan.emit()

    return Plan(resized.sent + most_moved(pieces) * _num_bytes(aval) // aval.shape[move.result.dim], emit)


def _is_leaf(x: ir.Value, dim: int) -> bool:
    return find_leaves(x, dim) in (None, [(x, dim)])


def _other_leaves(x: ir.Value, dim: int) -> list[Dimension]:
    """The leaves of a value if all have its dtype, and the value is not one itself; otherwise none."""
    leaves = find_leaves(x, dim) or []
    element = ir.RankedTensorType(x.type).element_type
    alike = all(ir.RankedTensorType(leaf.type).element_type == element for leaf, _ in leaves)
    return leaves if alike and leaves != [(x, dim)] else []


def _num_bytes(aval: ShapedArray) -> int:
    return math.prod(aval.shape) * aval.dtype.itemsize


class Parts(NamedTuple):
    """What a value is computed from along a dimension.

    Args:
      parts: the number of shards.
      moved: the leaves that are results of moves of one operand, with these moves.
      size: the largest size of an operand.
      sent: the number of bytes that the moves send.
    """

    parts: int
    moved: dict[Dimension, Move]
    size: int
    sent: int


def find_parts(ctx: LoweringContext, x: ir.Value, dim: int) -> Parts | None:
    """Find the moves from which a value is computed; None if there are none, or other divided arrays."""
    module, moved, sent, sharding = ctx.module, {}, 0, None
    for leaf, d in find_leaves(x, dim) or []:
        found = find_dim_sharding(module, leaf, d)
        move = module.moves.get(leaf)
        if move is None:
            if found is not None:
                return None
            continue
        if len(move.operands) > 1 or not move.operands[0][1] == move.result == DimGroup(d):
            return None
        plan = plan_leaf(ctx, move, leaf, d, shape_of(leaf)[d])
        if plan is None:
            return None
        sharding = found or sharding
        moved[leaf, d] = move
        sent += plan.sent
    if sharding is None:
        return None
    size = max([shape_of(move.operands[0][0])[move.result.dim] for move in moved.values()])
    return Parts(sharding.parts, moved, size, sent)


def plan_leaf(ctx: LoweringContext, move: Move, leaf: ir.Value, d: int, size: int) -> Plan | None:
    """Plan the move of a leaf, with a result of some size."""
    return plan_move(ctx, move, ShapedArray(with_size(shape_of(leaf), d, size), move.dtype), is_inner=True)


def plan_in_size(ctx: LoweringContext, found: Parts, x: ir.Value, dim: int) -> Plan | None:
    """Plan a value in the size of the operands, with arbitrary elements behind its end."""
    plans: dict[Dimension, Plan | None] = {}
    for (leaf, d), move in found.moved.items():
        source = move.operands[0][0]
        is_cut = move.runs == (Run(0, shape_of(leaf)[d], 0, 0),) and move.stride == 1
        if is_cut and shape_of(source)[d] == found.size:
            plans[leaf, d] = Plan(0, lambda source=source: source)
        else:
            plans[leaf, d] = plan_leaf(ctx, move, leaf, d, found.size)
    if None in plans.values():
        return None

    def emit_leaf(leaf: ir.Value, d: int) -> ir.Value:
        if (plan := plans.get((leaf, d))) is not None:
            return plan.emit()
        shape = shape_of(leaf)
        first = hlo.slice(leaf, [0] * len(shape), with_size(shape, d, 1), [1] * len(shape))
        rest = type_like(leaf, with_size(shape, d, found.size - shape[d]))
        return hlo.concatenate([leaf, hlo.broadcast_in_dim(rest, first, range(len(shape)))], d)

    # Where a leaf is cut out of a value in that size, what this value is computed from is sent in any case.
    found_plans = [plan for plan in plans.values() if plan is not None]
    has_cut = any(not plan.sent for plan in found_plans)
    sent = sum([plan.sent for plan in found_plans if not (has_cut and plan.is_emitted)])
    return Plan(sent, lambda: resize(x, dim, found.size, emit_leaf))


def plan_in_windows(ctx: LoweringContext, found: Parts, x: ir.Value, dim: int) -> Plan | None:
    """Plan a value from windows of the operands of its moves: each device receives what its shard is computed from."""
    parts = found.parts
    pieces: dict[Dimension, list[Piece]] = {}
    spans: dict[Dimension, list[tuple[int, int, int]]] = defaultdict(list)
    held: dict[Dimension, int] = {}
    for (leaf, d), move in found.moved.items():
        ((source, group),) = move.operands
        at = source, group.dim
        held[at] = -(-shape_of(source)[group.dim] // parts)
        pieces[leaf, d] = find_pieces(move.runs, move.stride, [held[at]], -(-shape_of(leaf)[d] // parts), parts)
        for p in pieces[leaf, d]:
            first = p.sender * held[at] + p.source
            spans[at].append((p.receiver, first, first + move.stride * (p.length - 1)))
    windows = {at: _find_windows(ends, ends, parts) for at, ends in spans.items()}
    plans: dict[Dimension, Plan | None] = {}
    for (leaf, _), move in found.moved.items():
        ((source, group),) = move.operands
        at = source, group.dim
        assert move.dtype is not None, "the move was emitted"
        is_narrow = windows[at].width <= 2 * (held[at] + 1)
        aval = ShapedArray(tuple(shape_of(leaf)), move.dtype)
        plans[at] = _plan_windows(ctx, windows[at], *at, aval, parts) if is_narrow else None
    found_plans = [plan for plan in plans.values() if plan is not None]
    if len(found_plans) < len(plans):
        return None
    emitted: dict[Dimension, ir.Value] = {}

    def emit_leaf(leaf: ir.Value, d: int) -> ir.Value:
        if (move := found.moved.get((leaf, d))) is None:
            return leaf
        ((source, group),), size = move.operands, shape_of(leaf)[d]
        at, block = (source, group.dim), -(-size // parts)
        if at not in emitted and (plan := plans[at]) is not None:
            emitted[at] = plan.emit()
        runs = [
            Run(
                p.receiver * block + p.target,
                p.length,
                0,
                p.sender * held[at] + p.source + windows[at].shift(p.receiver),
            )
            for p in pieces[leaf, d]
        ]
        assert move.dtype is not None, "the move was emitted"
        local = move._replace(runs=tuple(runs), operands=((emitted[at], group),))
        y = emit_local(ctx, local, ShapedArray(tuple(shape_of(leaf)), move.dtype), parts)
        ctx.module.moves[y] = move  # as which an operation on the result may be planned
        return y

    return Plan(sum([plan.sent for plan in found_plans]), lambda: resize(x, dim, shape_of(x)[dim], emit_leaf))


def count_moved(runs: Sequence[Run], stride: int, parts: int, size: int, out: int) -> int:
    """The number of elements that a device sends for a move, from an operand to a result of some sizes."""
    return most_moved(find_pieces(runs, stride, [-(-size // parts)], -(-out // parts), parts))
