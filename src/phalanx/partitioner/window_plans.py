"""Windows along dimensions that are split unevenly, computed by each device from the elements that they contain.

XLA exchanges halos of shards of equal size, and gathers a dimension whose windows begin in other shards than those that
hold their results. Here each device receives the elements of its windows in a buffer, by one move (`move_plans`). The
devices are then a dimension of their own, and the operation has windows within the buffers only.

Called by `window_rules`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from phalanx.engine import ir
from phalanx.lax.indexing.static_slice import pad, slice_p
from phalanx.lax.shape.reshape import reshape_p
from phalanx.partitioner.dim_sharding import find_dim_sharding
from phalanx.partitioner.move_lowering import DimGroup, Move
from phalanx.partitioner.move_plans import count_moved, emit_local, may_plan, plan_direct
from phalanx.partitioner.move_schedule import Run
from phalanx.partitioner.resizing import with_size
from phalanx.partitioner.workarounds import is_active
from phalanx.runtime import LoweringContext, aval_of, shape_of


class _Window(NamedTuple):
    """A window along one dimension: its size, stride, padding before it, and the dilations of elements and of it."""

    size: int
    stride: int
    low: int
    base: int
    dilation: int

    @property
    def extent(self) -> int:
        """The number of positions from its first element to its last one."""
        return (self.size - 1) * self.dilation + 1

    @property
    def is_trivial(self) -> bool:
        """Whether each result is the element at its position."""
        return self == (1, 1, 0, 1, 1)


_FIELDS = {  # by the names of parameters
    "window_dimensions": "size",
    "window_strides": "stride",
    "base_dilation": "base",
    "window_dilation": "dilation",
}


class _Buffers(NamedTuple):
    """The elements of a dimension that each device receives.

    Args:
      width: the number of positions in a device's buffer.
      held: the number of elements that it receives at most; they have `width` positions after they are dilated.
      runs, stride: the move of the elements, to `held` for each device.
      spread: the move of the dilated elements to their positions; None if they are not dilated.
    """

    width: int
    held: int
    runs: tuple[Run, ...]
    stride: int = 1
    spread: tuple[int, tuple[Run, ...]] | None = None

    def count_sent(self, parts: int, n: int) -> int:
        """The number of elements of a dimension of `n` that a device sends, or receives."""
        return count_moved(self.runs, self.stride, parts, n, parts * self.held)


def _find_buffers(starts: Sequence[int], width: int, n: int, base: int = 1) -> _Buffers:
    """Buffers of the positions from each device's first one on, of a dimension of `n` elements that are dilated."""
    spans = []
    for start in starts:
        first = max(-(-start // base), 0)
        spans.append((first, max(first, min(-(-(start + width) // base), n))))
    placed = list(enumerate(zip(starts, spans, strict=True)))
    if base == 1:
        runs = [Run(i * width + lo - start, hi - lo, 0, lo) for i, (start, (lo, hi)) in placed if hi > lo]
        return _Buffers(width, width, tuple(runs))
    held = max([hi - lo for lo, hi in spans])
    runs = [Run(i * held, hi - lo, 0, lo) for i, (_, (lo, hi)) in placed if hi > lo]
    spread = [
        Run(i * width + lo * base - start, (hi - lo - 1) * base + 1, 0, i * held * base)
        for i, (start, (lo, hi)) in placed
        if hi > lo
    ]
    return _Buffers(width, held, tuple(runs), 1, (base, tuple(spread)))


class _Plan(NamedTuple):
    """Windows along one dimension within buffers.

    Args:
      parts: the number of devices.
      window: the window within a buffer.
      block: the number of its windows.
      buffers: of the elements.
      sources: buffers of an element for each window, where windows are scattered to the elements.
      results: the move of such results from the buffers to the elements.
    """

    parts: int
    window: _Window
    block: int
    buffers: _Buffers
    sources: _Buffers | None = None
    results: tuple[Run, ...] = ()


def _plan_reduction(w: _Window, n: int, out: int, parts: int, block: int) -> _Plan:
    """Plan the windows of `block` results for each device."""
    if w.size == w.base == 1:  # elements at a stride: those between them are not sent
        first, stop = -(-max(w.low, 0) // w.stride), min((n - 1 + w.low) // w.stride + 1, out)
        ends = [(max(i * block, first), min((i + 1) * block, stop)) for i in range(parts)]
        runs = [Run(lo, hi - lo, 0, lo * w.stride - w.low) for lo, hi in ends if hi > lo]
        return _Plan(parts, _Window(1, 1, 0, 1, 1), block, _Buffers(block, block, tuple(runs), w.stride))
    # Elements behind the last window are not sent.
    last = (out - 1) * w.stride - w.low + w.extent
    width = (block - 1) * w.stride + w.extent
    starts = [i * block * w.stride - w.low for i in range(parts)]
    buffers = _find_buffers(starts, width, min(n, -(-last // w.base)), w.base)
    return _Plan(parts, w._replace(low=0, base=1), block, buffers)


def _plan_scatter(w: _Window, n: int, out: int, parts: int) -> _Plan:
    """Plan the windows that each device's elements are in."""
    share = -(-n // parts)
    firsts = [max(-(-(i * share - w.extent + 1 + w.low) // w.stride), 0) for i in range(parts)]
    stops = [min((min((i + 1) * share, n) - 1 + w.low) // w.stride + 1, out) for i in range(parts)]
    block = max(1, *(stop - first for first, stop in zip(firsts, stops, strict=True)))
    starts = [first * w.stride - w.low for first in firsts]
    width = (block - 1) * w.stride + w.extent
    sources = [
        Run(i * block, stop - first, 0, first)
        for i, (first, stop) in enumerate(zip(firsts, stops, strict=True))
        if stop > first
    ]
    results = []
    for i, start in enumerate(starts):
        lo, hi = max(i * share, start), min((i + 1) * share, n, start + width)
        if hi > lo:
            results.append(Run(lo, hi - lo, 0, i * width + lo - start))
    buffers = _find_buffers(starts, width, n)
    return _Plan(parts, w._replace(low=0), block, buffers, _Buffers(block, block, tuple(sources)), tuple(results))


def _find_plans(
    ctx: LoweringContext,
    operands: Sequence[ir.Value],
    params: Mapping[str, Any],
    n_of: Sequence[int],
    out_of: Sequence[int],
    choose: Callable[[_Window, int, int, int, int], _Plan],
) -> dict[int, _Plan]:
    """The plans by dimension, if one of those with windows is split unevenly; otherwise none."""
    shapes = [shape_of(x) for x in operands]
    if not is_active("uneven_windows") or not all(may_plan(ctx.module, aval_of(x), shapes) for x in operands):
        return {}
    ones = (1,) * len(n_of)
    columns = {field: params.get(name, ones) for name, field in _FIELDS.items()}
    columns["low"] = [low for low, _ in params["padding"]]
    plans, is_uneven = {}, False
    for d, (n, out) in enumerate(zip(n_of, out_of, strict=True)):
        window = _Window(**{field: column[d] for field, column in columns.items()})
        found = next((s for x in operands if (s := find_dim_sharding(ctx.module, x, d)) is not None), None)
        if found is None or window.is_trivial or n < 2 or out < 2:
            continue
        plan = choose(window, n, out, found.parts, d)
        if plan.buffers.count_sent(found.parts, n) < n:
            plans[d] = plan
            is_uneven |= bool(n % found.parts or out % found.parts)
    return plans if is_uneven else {}


def reduce_in_buffers(
    ctx: LoweringContext,
    operands: Sequence[tuple[ir.Value, ir.Value]],
    rest: Sequence[ir.Value],
    params: Mapping[str, Any],
    apply: Callable[..., Any],
) -> list[ir.Value] | None:
    """Lower a reduction over windows within buffers.

    Args:
      ctx: the lowering context.
      operands: the operands, each with the scalar that padding is read as.
      rest: other operands.
      params: the parameters of the windows.
      apply: applies the reduction to arrays with other parameters of the windows.

    Returns:
      The results; None if no dimension with windows is split unevenly, or gathering it sends no more.
    """
    out, n_of = ctx.avals_out[0].shape, shape_of(operands[0][0])

    def choose(w: _Window, n: int, m: int, parts: int, d: int) -> _Plan:
        # Results may be computed for their own shards, or where their windows begin, and then be moved.
        share = -(-m // parts)
        blocks = [share, max(share, -(-(-(-n // parts) * w.base) // w.stride))]
        row = [math.prod(with_size(shape, d, 1)) for shape in (n_of, out)]

        def count_bytes(plan: _Plan) -> int:
            results = count_moved((Run(0, m, 0, 0),), 1, parts, parts * plan.block, m)
            sent = sum([aval_of(x).dtype.itemsize for x, _ in operands]) * plan.buffers.count_sent(parts, n) * row[0]
            return sent + sum([a.dtype.itemsize for a in ctx.avals_out]) * results * row[1]

        return min([_plan_reduction(w, n, m, parts, block) for block in blocks], key=count_bytes)

    plans = _find_plans(ctx, [x for x, _ in operands], params, n_of, out, choose)
    if not plans:
        return None
    moved = []
    for x, fill in operands:
        for d, plan in plans.items():
            if (x := _emit_buffers(ctx, x, d, fill, plan.buffers, plan.parts)) is None:
                return None
        moved.append(x)
    params = _split_params(params, plans)

    def reduce(*args: Any) -> list:
        xs, others = args[: len(moved)], args[len(moved) :]
        y = apply(*[_split(x, plans) for x in xs], *others, **params)
        whole = [_merge(v, plans) for v in (y if isinstance(y, list | tuple) else [y])]
        return [cut_to(v, out) for v in whole]

    return ctx.inline(reduce, *moved, *rest, avals=[*map(aval_of, moved), *map(aval_of, rest)])


def cut_to(y: Any, shape: Sequence[int]) -> Any:
    """The leading elements of `y`: a result without the elements that belong to added ones."""
    return slice_p(y, starts=(0,) * y.ndim, stops=tuple(shape), strides=None)


def scatter_in_buffers(
    ctx: LoweringContext,
    source: ir.Value,
    x: ir.Value,
    fills: tuple[ir.Value, ir.Value],
    params: Mapping[str, Any],
    apply: Callable[..., Any],
) -> ir.Value | None:
    """Lower an operation that scatters an element for each window within buffers.

    Args:
      ctx: the lowering context.
      source: the elements.
      x: the array with the windows; the result has its shape.
      fills: the scalars that elements of `source` and `x` beyond their ends are read as.
      params, apply: as in `reduce_in_buffers`.

    Returns:
      The result; None as there.
    """
    n_of, out_of = shape_of(x), shape_of(source)
    choose = lambda w, n, m, parts, _: _plan_scatter(w, n, m, parts)
    plans = _find_plans(ctx, [x, source], params, n_of, out_of, choose)
    if not plans:
        return None
    for d, plan in plans.items():
        assert plan.sources is not None, "elements are scattered"
        source, x = (
            _emit_buffers(ctx, v, d, fill, buffers, plan.parts)
            for v, fill, buffers in zip((source, x), fills, (plan.sources, plan.buffers), strict=True)
        )
        if source is None or x is None:
            return None
    params = _split_params(params, plans)
    scatter = lambda source, x: _merge(apply(_split(source, plans), _split(x, plans), **params), plans)
    (y,) = ctx.inline(scatter, source, x, avals=[aval_of(source), aval_of(x)])
    for d, plan in plans.items():
        aval = aval_of(y).with_shape(with_size(shape_of(y), d, n_of[d]))
        y = emit_local(ctx, Move(plan.results, 1, ((y, DimGroup(d)),), DimGroup(d), fills[0]), aval, plan.parts)
    return y


def _emit_buffers(
    ctx: LoweringContext, x: ir.Value, d: int, fill: ir.Value, buffers: _Buffers, parts: int
) -> ir.Value | None:
    """Emit buffers along a dimension; None if that takes too many rounds."""
    aval = aval_of(x)
    held, wide = (aval.with_shape(with_size(aval.shape, d, parts * n)) for n in (buffers.held, buffers.width))
    plan = plan_direct(ctx, Move(buffers.runs, buffers.stride, ((x, DimGroup(d)),), DimGroup(d), fill), held, parts)
    if plan is None or buffers.spread is None:
        return None if plan is None else plan.emit()
    base, runs = buffers.spread
    shape = with_size(aval.shape, d, parts * buffers.held * base)

    def dilate(x: Any, fill: Any) -> Any:
        singled = reshape_p(x, shape=(*x.shape[: d + 1], 1, *x.shape[d + 1 :]))
        return reshape_p(
            pad(singled, fill, [(0, (base - 1) * (i == d + 1), 0) for i in range(singled.ndim)]), shape=shape
        )

    (x,) = ctx.inline(dilate, plan.emit(), fill, avals=[held, aval_of(fill)])
    return emit_local(ctx, Move(runs, 1, ((x, DimGroup(d)),), DimGroup(d), fill), wide, parts)


def _split(x: Any, plans: Mapping[int, _Plan]) -> Any:
    """An array with a dimension of devices before each one of buffers."""
    sizes = [(plans[d].parts, n // plans[d].parts) if d in plans else (n,) for d, n in enumerate(x.shape)]
    return reshape_p(x, shape=tuple(itertools.chain(*sizes)))


def _merge(x: Any, plans: Mapping[int, _Plan]) -> Any:
    """An array without these dimensions."""
    sizes, shape = iter(x.shape), []
    for d in range(x.ndim - len(plans)):
        shape.append(next(sizes) * (next(sizes) if d in plans else 1))
    return reshape_p(x, shape=tuple(shape))


def _split_params(params: Mapping[str, Any], plans: Mapping[int, _Plan]) -> dict[str, Any]:
    """The parameters of windows within buffers, of which devices have none."""
    split = {}
    for name, entries in params.items():
        found = []
        for d, entry in enumerate(entries):
            if (plan := plans.get(d)) is None:
                found.append(entry)
            else:
                w = plan.window
                found += [(0, 0), (0, 0)] if name == "padding" else [1, getattr(w, _FIELDS[name])]
        split[name] = tuple(found)
    return split
