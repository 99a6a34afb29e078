"""Moves inside programs: values brought from one sharding to another, by stops on the way and in slices.

Wherever a program says how a value lies, it is emitted as a call that the partitioner asks us about, and only then
constrained. By then it is settled how the value lies before and after, whether it comes from an argument, a loop or an
operation, and each device is told what to send, step by step, as `sharding.route` plans. By itself, XLA moves a value
in one step, and by way of a whole replica on each device where it finds none. So it does still where nobody says how a
value lies: where a loop gives a carry back lying otherwise than it came, and where operations that are not done element
by element bring together what lies differently.

XLA holds what an all-to-all sends and what it receives in memory of their own, a part each. Inside a program that is no
more than it may: the source goes before the result comes. But arguments stay as long as the program runs. So a large
one is moved by a loop over slices of the array, each of which goes all the way. Every device's part of a slice is
contiguous where the sizes allow it, and that of a large array small enough for a cache.

Builds on routes and partitioned calls; called by the lowering of programs, inside an MLIR context.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core.aval import ShapedArray
from phalanx.core.config import state
from phalanx.core.primitive import Roles
from phalanx.engine import mlir
from phalanx.engine.mlir import dense_constant, func, hlo, i64, ir, sdy
from phalanx.engine.partitioner import HloSharding, Split
from phalanx.runtime.partitioned_calls import PartitionedCalls, spread
from phalanx.runtime.shardy import sdy_sharding
from phalanx.sharding.hlo import tiling_of_hlo
from phalanx.sharding.mesh import Mesh
from phalanx.sharding.route import Route, route
from phalanx.sharding.shardings import NamedSharding, Sharding
from phalanx.sharding.spec import UNCONSTRAINED, PartitionSpec
from phalanx.sharding.tiling import Tiling, replica_ids

# Bytes of a device's part of the larger end from which an argument is moved in slices: a part more of less is nothing,
# and every slice costs a meeting of all devices.
SLICED_FROM = 128 * 1024
# Bytes of a device's part of a slice at most, as long as there are no more slices than that.
_SLICE_BYTES, _MOST = 1024 * 1024, 8


def bring(ctx: Any, x: Any, aval: ShapedArray, sharding: Sharding) -> Any:
    """Emit that a value, of this physical type, lies as a sharding says, and how it gets there.

    How is left to XLA where other processes run the program, which know nobody to ask; where each device runs it by
    itself along some axes, since the partitioner then says no number of a device; and for what is cut unevenly.
    """
    module = ctx.module
    lying = sdy_sharding(module, sharding, aval.ndim)
    if not (module.is_portable or module.manual is not None or _is_plain(module, x, aval, sharding)):
        x = _moved(ctx, x, aval, sharding)
    x = sdy.ShardingConstraintOp(x, lying).result
    if not isinstance(sharding, NamedSharding) or (
        isinstance(sharding.mesh, Mesh) and not sharding.spec.has_unconstrained
    ):
        module.lies[x] = module.expected[x] = sharding
    return x


def brought_together(ctx: Any, operands: list, aval_of: Callable[[int], ShapedArray]) -> tuple[list, Any]:
    """The operands of what is done element by element, where some are expected to lie in ways that exclude each other.

    The result will lie as the operand that is split most, if it is whole. Others get a way that leads where they are
    wanted. It is not said where that is: the partitioner knows better, and where it finds them alike nothing moves.

    Args:
      ctx: where the program is emitted.
      operands: IR values of one shape.
      aval_of: gives the physical type of an operand, by number.

    Returns:
      The operands; how the result is expected to lie, None where nothing tells.
    """
    module = ctx.module
    held = [s if isinstance(s := module.expected.get(x), NamedSharding) else None for x in operands]
    is_whole = lambda x: not isinstance(x.owner, ir.Operation) or x.owner.name != "stablehlo.broadcast_in_dim"
    known = [(is_whole(x), len(s.spec.axes), s) for x, s in zip(operands, held, strict=True) if s is not None]
    kept = max(known, key=lambda it: it[:2])[2] if known else None
    if kept is None or module.is_portable or module.manual is not None:
        return operands, kept
    clashing = [_clash(s, kept) for s in held]
    return [_moved(ctx, x, aval_of(i), kept) if clashing[i] else x for i, x in enumerate(operands)], kept


def _clash(a: Any, b: NamedSharding) -> bool:
    """Whether no array lies both ways: an axis splits different dimensions, or one dimension in another order."""
    if not isinstance(a, NamedSharding) or a is b or a.mesh is not b.mesh:
        return False
    ndim = max(len(a.spec), len(b.spec))
    pairs = list(zip(a.axes(ndim), b.axes(ndim), strict=True))
    where = [{axis: d for d, pair in enumerate(pairs) for axis in pair[i]} for i in (0, 1)]
    moved = any(where[1].get(axis, d) != d for axis, d in where[0].items())
    return moved or any(x[: len(y)] != y[: len(x)] for x, y in pairs)


def _is_plain(module: Any, x: Any, aval: ShapedArray, sharding: Sharding) -> bool:
    """Whether XLA need not ask, which takes it 5 ms: a value stays, or XLA moves it as well, among devices in a row."""
    held = module.expected.get(x)
    if aval.is_symbolic or held is sharding:
        return True
    if not isinstance(sharding, NamedSharding):
        return False
    if (
        isinstance(held, NamedSharding)
        and held.mesh is sharding.mesh
        and held.spec.canonical == sharding.spec.canonical
    ):
        return True
    entries = sharding.spec.padded(aval.ndim)
    if any(e is not UNCONSTRAINED and n % sharding.mesh.num_parts(e) for n, e in zip(aval.shape, entries, strict=True)):
        return True
    is_row = sum(size > 1 for size in sharding.mesh.axis_sizes) == 1 and len(module.meshes) == 1
    return is_row and x not in module.arguments


def _moved(ctx: Any, x: Any, aval: ShapedArray, sharding: Sharding) -> Any:
    sizes: tuple[int, ...] = ()
    dims: list[list[Hashable]] = [[d] for d in range(aval.ndim)]
    operands, factors = [x], [dims]
    if isinstance(sharding, NamedSharding):
        sizes = sharding.mesh.axis_sizes
        if sharding.spec.has_unconstrained:
            # What is said must not be mixed with how the value lies, which is to reach the open dimensions only. As
            # what it is made from is to lie as said unless it says more, it stands again behind what lets nothing by.
            entries = sharding.spec.padded(aval.ndim)
            factors.append([[d if e is UNCONSTRAINED else (d, "held")] for d, e in enumerate(entries)])
            operands = [sdy.PropagationBarrierOp(x, sdy.PropagationDirection.BACKWARD).result, x]
    sliced_from = ctx.module.sliced_from if x in ctx.module.arguments else None
    factor_sizes = {key: n for d, n in enumerate(aval.shape) for key in (d, (d, "held"))}
    rule = spread([*factors, dims], len(operands), factor_sizes)
    move = _Move(aval, sizes, sliced_from)
    return _calls.emit(ctx, f"{aval.str_short()} {sizes} {sliced_from}", move, operands, [aval], rule)[0]


def completed(sharding: Sharding, held: Sharding | None, ndim: int) -> Sharding:
    """The sharding with dimensions that were left open as they are, as far as their axes are free."""
    if not isinstance(sharding, NamedSharding) or not sharding.spec.has_unconstrained:
        return sharding
    used = set(sharding.spec.axes)
    entries = list(sharding.spec)
    for dim, entry in enumerate(entries):
        if entry is not UNCONSTRAINED:
            continue
        entries[dim] = None
        if isinstance(held, NamedSharding) and held.mesh is sharding.mesh:
            axes = held.axes(ndim)[dim]
            if not used.intersection(axes):
                entries[dim] = axes
    return sharding.with_spec(PartitionSpec(*entries))


def passed_on(held: Sequence[Any], roles: Roles) -> NamedSharding | None:
    """How the result of an operation is expected to lie, by how its operands lie as far as that is known."""
    known = [s if isinstance(s, NamedSharding) else None for s in held]
    first = next((s for s in known if s is not None), None)
    axes: dict[Any, tuple] = {}
    for s, names in zip(known, roles.operands, strict=True):
        if s is not None and (first is None or s.mesh is not first.mesh or len(s.spec) > len(names)):
            return None  # of another mesh, or split along the words of random keys
        for name, cut in zip(names, s.axes(len(names)) if s is not None else ()):
            if cut and name not in roles.whole:
                axes.setdefault(name, cut)
    if first is None:
        return None
    dims: list[tuple] = []
    for name in roles.results[0]:
        taken = {a for d in dims for a in d}
        dims.append(tuple([a for a in axes.get(name, ()) if a not in taken]))
    return first.with_spec(PartitionSpec.of_dims(dims))


class _Move:
    """What the partitioner's question about one move is answered from.

    Args:
      aval: the type of the value.
      axis_sizes: of the mesh that its ends are likely said over.
      sliced_from: bytes of a part from which it goes in slices; None for a value that need not stay.
    """

    def __init__(self, aval: ShapedArray, axis_sizes: tuple[int, ...], sliced_from: int | None):
        self.aval, self.axis_sizes, self.sliced_from = aval, axis_sizes, sliced_from
        self.context = state.context
        self._answers: dict[tuple, Split] = {}

    def split(self, operands: Sequence[HloSharding], results: Sequence[HloSharding]) -> Split:
        """Say what each device sends and in which order; what is cut unevenly is left to XLA."""
        question = *operands, *results
        if question not in self._answers:  # The layers of a model ask the same.
            self._answers[question] = self._planned(operands, results)
        return self._answers[question]

    def _planned(self, operands: Sequence[HloSharding], results: Sequence[HloSharding]) -> Split:
        *others, held = operands
        (wanted,), shape = results, self.aval.shape
        count = max([len(s.tile_assignment_devices()) for s in (held, wanted) if s.is_tiled()], default=1)
        first, last = [tiling_of_hlo(s, count, self.aval.ndim) for s in (held, wanted)]
        if all(n % a == n % b == 0 for n, a, b in zip(shape, first.parts, last.parts, strict=True)):
            road = route(first, last, self.axis_sizes)
            text = _program(self.aval, road, self._slices(road), len(others))
            return Split(text, [held] * len(operands), [wanted])
        part = [-(-n // parts) for n, parts in zip(shape, last.parts, strict=True)]
        unmoved = _text(self.aval, part, part, len(others), lambda x: x)
        return Split(unmoved, [wanted] * len(operands), [wanted])

    def _slices(self, road: Route) -> _Slices | None:
        """Slice the first dimension that has as many elements within its finest cut; None where none has two."""
        least = min(math.prod(road.stops[i].parts) for i in (0, -1))
        nbytes = math.prod(self.aval.shape) * self.aval.dtype.itemsize // least
        if self.sliced_from is None or nbytes < self.sliced_from or road.slices == 1:
            return None
        inner = [size // cut for size, cut in zip(self.aval.shape, road.cuts, strict=True)]
        count = min(max(road.slices, -(-nbytes // _SLICE_BYTES)), _MOST)
        dim = next((d for d, size in enumerate(inner) if size >= count), inner.index(max(inner)))
        return _Slices(dim, road.cuts[dim], max(inner[dim] // count, 1)) if inner[dim] > 1 else None


_calls = PartitionedCalls("phalanx.moves")


class _Slices(NamedTuple):
    """The dimension to slice, into how many parts it is cut on the way, and how much of each part goes at a time."""

    dim: int
    cuts: int
    size: int


def _program(aval: ShapedArray, road: Route, slices: _Slices | None, unread: int) -> str:
    """The text of the program by which a device gets its part of the result from its part of the source."""
    source, target = [_part(aval.shape, road.stops[i]) for i in (0, -1)]
    if slices is None:
        return _text(aval, source, target, unread, lambda x: _along(x, road.stops))
    return _text(aval, source, target, unread, lambda x: _in_slices(x, aval, target, road, slices))


def _text(
    aval: ShapedArray, source: Sequence[int], target: Sequence[int], unread: int, body: Callable[[Any], Any]
) -> str:
    with mlir.make_context(), ir.Location.unknown():
        module = ir.Module.create()
        types = [ir.RankedTensorType.get(shape, mlir.dtype_to_ir(aval.dtype)) for shape in (source, target)]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", ir.FunctionType.get(types[:1] * (1 + unread), types[1:]))
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp([body(block.arguments[unread])])
        return module.operation.get_asm(enable_debug_info=True)  # Without it, XLA takes its lines for the user's.


def _part(shape: Sequence[int], tiling: Tiling) -> list[int]:
    return [n // parts for n, parts in zip(shape, tiling.parts, strict=True)]


def _in_slices(x: Any, aval: ShapedArray, target: Sequence[int], road: Route, slices: _Slices) -> Any:
    """A loop that carries one slice after the other all the way to the result."""
    at, cuts, size = slices
    stops = [_with_whole_dim(stop, at + 1) for stop in road.stops]
    # Each part stands as its finest cuts and what is within each, slices of which are the same part of every piece.
    inner = aval.shape[at] // cuts
    divided = [
        [*part[:at], cuts // stop.parts[at], inner, *part[at + 1 :]]
        for part, stop in [(_part(aval.shape, road.stops[i]), road.stops[i]) for i in (0, -1)]
    ]
    whole, index = _like(x, target), ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    zeros = hlo.constant(dense_constant(np.broadcast_to(np.zeros((), aval.dtype), target)))
    carry = [index, x.type, whole]
    loop = hlo.WhileOp(carry, [_number(0), x, zeros])
    test, body = (region.blocks.append(*carry) for region in loop.regions)
    with ir.InsertionPoint(test):
        below, kind = hlo.ComparisonDirectionAttr.get("LT"), hlo.ComparisonTypeAttr.get("SIGNED")
        hlo.return_([hlo.compare(test.arguments[0], _number(-(-inner // size)), below, compare_type=kind)])
    with ir.InsertionPoint(body):
        i, before, after = body.arguments
        # Where they do not divide, the last slice starts as late as it can and brings some elements again.
        starts = [_number(0)] * len(divided[0])
        starts[at + 1] = hlo.multiply(i, _number(size))
        sizes = [size if d == at + 1 else n for d, n in enumerate(divided[0])]
        piece = _along(hlo.dynamic_slice(_reshape(before, divided[0]), starts, sizes), stops)
        filled = hlo.dynamic_update_slice(_reshape(after, divided[1]), piece, starts)
        hlo.return_([hlo.add(i, _number(1)), before, _reshape(filled, target)])
    return loop.results[2]


def _with_whole_dim(tiling: Tiling, dim: int) -> Tiling:
    parts = (*tiling.parts[:dim], 1, *tiling.parts[dim:])
    return Tiling(parts, np.insert(tiling.coordinates, dim, 0, axis=1))


def _along(x: Any, stops: Sequence[Tiling]) -> Any:
    """A device's part of a value, carried from stop to stop."""
    for before, after in zip(stops[:-1], stops[1:], strict=True):
        pairs = list(enumerate(zip(before.parts, after.parts, strict=True)))
        more, less = [d for d, (b, a) in pairs if a > b], [d for d, (b, a) in pairs if a < b]
        if not less:
            x = _cut(x, before, after) if more else _permuted(x, before, after)
        elif not more:
            for d in less:
                x, before = _gathered(x, before, d, before.parts[d] // after.parts[d])
        else:
            (source,), (target,) = less, more
            x = _exchanged(x, before, source, target, before.parts[source] // after.parts[source])
    return x


def _cut(x: Any, before: Tiling, after: Tiling) -> Any:
    """The device's own part of what it has."""
    ratio = np.array(after.parts) // np.array(before.parts)
    shape = [n // int(r) for n, r in zip(_shape(x), ratio, strict=True)]
    starts = (after.coordinates % ratio) * np.array(shape)
    number = hlo.convert(ir.RankedTensorType.get([], ir.IntegerType.get_signless(32)), hlo.partition_id())
    return hlo.dynamic_slice(x, [_entry(starts[:, d], number) for d in range(len(shape))], shape)


def _entry(table: np.ndarray, number: Any) -> Any:
    if not table.any():
        return _number(0)
    entry = hlo.dynamic_slice(hlo.constant(dense_constant(table.astype(np.int32))), [number], [1])
    return _reshape(entry, [])


def _permuted(x: Any, before: Tiling, after: Tiling) -> Any:
    """The part that a device has afterwards, sent by one that has it; by itself, where it has it already."""
    numbers = [np.ravel_multi_index(tuple(t.coordinates.T), t.parts) for t in (before, after)]
    stay = numbers[0] == numbers[1]
    pairs = np.stack([np.nonzero(stay)[0]] * 2, axis=1)
    moved = [np.nonzero(~stay)[0][np.argsort(n[~stay], kind="stable")] for n in numbers]
    pairs = np.concatenate([pairs, np.stack(moved, axis=1)])
    attributes = {"source_target_pairs": ir.DenseElementsAttr.get(pairs[np.argsort(pairs[:, 0])].astype(np.int64))}
    return _collective("collective_permute", x, _shape(x), attributes)


def _gathered(x: Any, before: Tiling, dim: int, ratio: int) -> tuple[Any, Tiling]:
    """Parts that follow each other along a dimension, joined; and how they lie then."""
    shape, coordinates, parts = _shape(x), before.coordinates.copy(), list(before.parts)
    coordinates[:, dim] //= ratio
    parts[dim] //= ratio
    shape[dim] *= ratio
    attributes = {
        "all_gather_dim": i64(dim),
        "replica_groups": _groups(before, coordinates, dim, ratio),
        "use_global_device_ids": ir.UnitAttr.get(),
    }
    return _collective("all_gather", x, shape, attributes), Tiling(tuple(parts), coordinates)


def _exchanged(x: Any, before: Tiling, source: int, target: int, ratio: int) -> Any:
    """Parts that follow each other along one dimension, cut along another, joined along the first."""
    coordinates = before.coordinates.copy()
    coordinates[:, source] //= ratio
    shape = _shape(x)
    shape[source] *= ratio
    shape[target] //= ratio
    attributes = {
        "split_dimension": i64(target),
        "concat_dimension": i64(source),
        "split_count": i64(ratio),
        "replica_groups": _groups(before, coordinates, source, ratio),
    }
    return _collective("all_to_all", x, shape, attributes)


def _groups(before: Tiling, joined: np.ndarray, dim: int, ratio: int) -> ir.Attribute:
    """The devices whose parts are joined along a dimension, in their order: i64[groups, ratio]."""
    found, replicas = defaultdict(list), replica_ids(before)
    for device in np.argsort(before.coordinates[:, dim], kind="stable").tolist():
        found[(*joined[device].tolist(), replicas[device])].append(device)
    groups = np.array(sorted(found.values()), np.int64)
    assert groups.shape[1] == ratio, "a route joins the most minor cuts"
    return ir.DenseElementsAttr.get(groups)


def _collective(name: str, x: Any, shape: Sequence[int], attributes: dict) -> Any:
    attributes["channel_handle"] = hlo.ChannelHandle.get(1, 1)  # XLA numbers them anew.
    return ir.Operation.create(f"stablehlo.{name}", [_like(x, shape)], [x], attributes).results[0]


def _shape(x: Any) -> list[int]:
    return list(ir.RankedTensorType(x.type).shape)


def _like(x: Any, shape: Sequence[int]) -> Any:
    return ir.RankedTensorType.get(shape, ir.RankedTensorType(x.type).element_type)


def _reshape(x: Any, shape: Sequence[int]) -> Any:
    return hlo.reshape(_like(x, shape), x)


def _number(n: int) -> Any:
    return hlo.constant(dense_constant(np.array(n, np.int32)))
