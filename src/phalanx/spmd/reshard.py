"""Resharding: arrays that are on devices already, brought to other shardings.

Four roads, the first that fits: the buffers are right as they are; the same pieces go to other devices or memories;
pieces are put together anew by the host, where the devices differ or where their memory is the host's; one compiled
program moves what must move between the devices that hold the array. None builds a whole array on a device that will
not keep it. `placement` and, by its seat, `core.placement` call `reshard`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import dispatch
from phalanx.core import placement as core_placement
from phalanx.core.array import Array, ArrayType, deleted_error
from phalanx.core.aval import ShapedArray
from phalanx.core.errors import ShardingError
from phalanx.core.lowering import physical_aval
from phalanx.core.trace import stage
from phalanx.engine import buffers, compiler
from phalanx.lax.constraint import sharding_constraint_p
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec, Sharding
from phalanx.sharding.hlo import spec_of_tiling
from phalanx.sharding.tiling import Index, prime_factors

# A compiled move may hold, besides one device's parts of its operands and results, this many times their bytes.
TEMPORARY_BYTES = 2

_Axes = tuple[int, ...]  # numbers of mesh axes of prime size


def reshard(arrays: Sequence[Array], shardings: Sequence[Sharding], donate: Sequence[bool]) -> list[Array]:
    """Bring arrays to shardings, as few programs and transfers as possible for all of them.

    Args:
      arrays: arrays with live buffers.
      shardings: where each is to be.
      donate: whether each one's buffers may be given up.

    Returns:
      Committed arrays; those that are right already share their buffers with what was given.

    Raises:
      ArgumentError: an array was deleted or donated.
      ShardingError: devices of another process hold parts that this one would need.
    """
    out: list[Any] = [None] * len(arrays)
    roads: dict[Any, list[int]] = defaultdict(list)
    for i, (x, sharding) in enumerate(zip(arrays, shardings, strict=True)):
        if x._buffer.is_deleted():
            raise deleted_error(x)
        roads[_road(x, sharding)].append(i)
    for (move, *_), numbers in roads.items():
        chosen = [arrays[i] for i in numbers]
        wanted = [ArrayType(arrays[i].aval, shardings[i], True) for i in numbers]
        for i, moved in zip(numbers, move(chosen, wanted, [donate[i] for i in numbers]), strict=True):
            out[i] = moved
    return out


def _road(x: Array, sharding: Sharding) -> tuple:
    """How an array gets there, and what arrays that go together have in common."""
    held, ndim = x.sharding, physical_aval(x.aval).ndim
    if held is sharding or held.is_equivalent_to(sharding, ndim):
        return (_rename,)
    if _has_same_pieces(held, sharding, ndim):
        return (_send,)
    if held.device_set == sharding.device_set and held.in_order(sharding._device_assignment, ndim).is_equivalent_to(
        sharding, ndim
    ):
        return (_reorder,)
    if held.device_set != sharding.device_set or (x.is_fully_addressable and x._buffer.platform() == "cpu"):
        return (_assemble,)
    in_place = held.with_memory_kind(sharding.memory_kind).is_equivalent_to(held, ndim)
    return (_exchange, sharding._device_assignment) if in_place else (_exchange_and_send,)


def _has_same_pieces(held: Sharding, wanted: Sharding, ndim: int) -> bool:
    """Whether piece `n` of one is piece `n` of the other, for all `n`."""
    return held.num_devices == wanted.num_devices and held.tiling(ndim).is_equal(wanted.tiling(ndim))


def _rename(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """The same buffers under another name of the same placement."""
    out = []
    for x, t, given_up in zip(arrays, types, donate, strict=True):
        if x._type is t and not given_up:
            out.append(x)
            continue
        out.append(Array(buffers.with_sharding(x._buffer, physical_aval(t.aval), t.sharding), t))
        if given_up:
            # Deleting the buffer would delete it under its new name too, so the array gets a dead one instead.
            x._buffer = _dead_buffer()
    return out


@functools.cache
def _dead_buffer() -> Any:
    dead = core_placement.from_numpy(
        np.zeros(()), ArrayType(ShapedArray((), np.dtype(bool)), core_placement.default_sharding())
    )
    dead.delete()
    return dead._buffer


def _reorder(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """The same buffers, listed in another order of the devices."""
    out = []
    for x, t, given_up in zip(arrays, types, donate, strict=True):
        out.append(Array(buffers.reorder_shards(x._buffer, t.sharding), t))
        if given_up:
            x._buffer = _dead_buffer()
    return out


def _send(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """The same pieces on other devices, or in another memory of the same ones."""
    # A piece that stays where it is must be copied: shared, it would be deleted together with the other array. And on
    # CPU devices jaxlib's own donation leaves the new array with memory that is freed.
    always = buffers.CopySemantics.ALWAYS_COPY
    sent = buffers.copy_to_devices([x._buffer for x in arrays], [t.sharding for t in types], semantics=always)
    for x, given_up in zip(arrays, donate, strict=True):
        if given_up:
            x.delete()
    return list(map(Array, sent, types))


def _exchange_and_send(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """Other pieces in another memory: exchanged in the devices' default one, since programs compute there."""
    near = reshard(arrays, [x.sharding.with_memory_kind(None) for x in arrays], donate)
    own = [x is not y for x, y in zip(near, arrays, strict=True)]
    cut = reshard(near, [t.sharding.with_memory_kind(None) for t in types], own)
    return reshard(cut, [t.sharding for t in types], [True] * len(cut))


# --- one compiled program for the exchange ---

_programs: dict[tuple, Any] = {}


def _exchange(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """Other pieces on the same devices."""
    key = (tuple([x._type for x in arrays]), tuple(types), tuple(donate))
    compiled = _programs.get(key)
    if compiled is None:
        compiled = _programs[key] = compile_exchange([x._type for x in arrays], types, donate)
    if not _is_lean(compiled):
        if len(arrays) > 1:
            return [_exchange([x], [t], [d])[0] for x, t, d in zip(arrays, types, donate, strict=True)]
        if arrays[0].is_fully_addressable:
            return _assemble(arrays, types, donate)
    operands = []
    for x, sharding in zip(arrays, compiled.lowered.in_shardings, strict=True):
        same_order = x.sharding._device_assignment == sharding._device_assignment
        operands.append(x._buffer if same_order else buffers.reorder_shards(x._buffer, sharding))
    moved = [Array(x._buffer, t) for x, t in zip(compiled(operands), types, strict=True)]
    for x, given_up in zip(arrays, donate, strict=True):
        if given_up and not x.is_deleted():  # XLA could not reuse it: its part and the result's differ in size.
            x.delete()
    return moved


def compile_exchange(
    held: Sequence[ArrayType], wanted: Sequence[ArrayType], donate: Sequence[bool]
) -> dispatch.CompiledProgram:
    """Compile the identity between shardings over the same devices.

    Args:
      held: the types of the arrays as they are.
      wanted: their types as they are to be, over devices in one order.
      donate: whether each operand's buffers may be reused.

    Returns:
      The program. What it keeps in memory on the way is checked by the caller.
    """
    devices = wanted[0].sharding._device_assignment
    avals = [physical_aval(t.aval) for t in held]
    sources = [t.sharding.in_order(devices, aval.ndim) for t, aval in zip(held, avals, strict=True)]
    roads = [_stops(s, t.sharding, aval.shape) for s, t, aval in zip(sources, wanted, avals, strict=True)]

    def move(*xs: Any) -> list:
        out = []
        for x, road in zip(xs, roads, strict=True):
            for sharding in road:
                x = sharding_constraint_p(x, sharding=sharding)
            out.append(x)
        return out

    program = stage(move, avals, "reshard")
    donated = [i for i, given_up in enumerate(donate) if given_up]
    shardings = [t.sharding for t in wanted]
    lowered = dispatch.lower(program, devices, sources, shardings, donated=donated, name="reshard", committed=True)
    return lowered.compile()


def _is_lean(compiled: dispatch.CompiledProgram) -> bool:
    """Whether a program stays within the memory that a move may take."""
    lowered = compiled.lowered
    avals = lowered.program.in_avals
    ends = [*zip(lowered.in_shardings, avals, strict=True), *zip(lowered.out_shardings, avals, strict=True)]
    parts = sum(math.prod(s.shard_shape(a.shape)) * a.dtype.itemsize for s, a in ends)
    allowed = TEMPORARY_BYTES * parts + 4096  # Small programs keep some bytes of their own.
    return compiler.memory_stats(compiled.executable).temp_size_in_bytes <= allowed


def _stops(held: Sharding, wanted: Sharding, shape: tuple[int, ...]) -> list[NamedSharding]:
    """Shardings to pass through, since the partitioner goes by way of a full replica where it sees no direct road.

    All is said over axes of prime size. First the axes that only `wanted` has cut the parts smaller, which costs
    nothing; then axes go from dimension to dimension, each step one all-to-all; then parts change places; and at last,
    on the way to `wanted` itself, the axes that it has not are gathered. No stop has larger parts than both ends.
    """
    devices = wanted._device_assignment
    base = next((s.mesh for s in (wanted, held) if isinstance(s, NamedSharding)), None)
    sizes = [p for size in (base.axis_sizes if base else (len(devices),)) for p in prime_factors(size)]
    names = [f"p{axis}" for axis in range(len(sizes))]
    ends = []
    for sharding in (held, wanted):
        spec = spec_of_tiling(sharding._tiling_in_order(devices, len(shape)), range(len(sizes)), sizes)
        if spec is None:
            return []
        ends.append([tuple(axes) for axes in spec.padded(len(shape))])
    stops = _path(ends[0], ends[1], sizes)
    if any(size % math.prod(sizes[a] for a in axes) for stop in stops for size, axes in zip(shape, stop, strict=True)):
        return []
    mesh = Mesh(np.array(devices, dtype=object).reshape(sizes), names)
    return [NamedSharding(mesh, PartitionSpec(*[tuple(names[a] for a in axes) for axes in stop])) for stop in stops]


def _path(held: list[_Axes], wanted: list[_Axes], sizes: Sequence[int]) -> list[list[_Axes]]:
    """The axes that cut each dimension at each stop, both ends left out."""
    at_first = {axis for axes in held for axis in axes}
    at_last = {axis for axes in wanted for axis in axes}
    here = [old + tuple(a for a in new if a not in at_first) for old, new in zip(held, wanted, strict=True)]
    goal = [new + tuple(a for a in old if a not in at_last) for old, new in zip(held, wanted, strict=True)]
    stops = [held, here]
    while (step := _largest_step(here, goal, sizes)) is not None:
        source, target, moving = step
        here = list(here)
        here[source] = tuple(a for a in here[source] if a not in moving)
        here[target] += moving
        stops.append(here)
    stops += [goal, wanted]
    path = [stop for before, stop in itertools.pairwise(stops) if stop != before]
    return path[:-1] if path and path[-1] == wanted else path


def _largest_step(here: list[_Axes], goal: list[_Axes], sizes: Sequence[int]) -> tuple[int, int, _Axes] | None:
    """Two dimensions, and the most minor axes of the first that the second lacks; by number, not yet by name."""
    counts = [[Counter(sizes[a] for a in axes) for axes in stop] for stop in (here, goal)]
    best: tuple[int, int, Counter] | None = None
    for source in range(len(here)):
        surplus = counts[0][source] - counts[1][source]
        for target in range(len(here)):
            both = surplus & (counts[1][target] - counts[0][target])
            if both and (best is None or both.total() > best[2].total()):
                best = (source, target, both)
    if best is None:
        return None
    source, target, left = best
    moving = []
    for axis in reversed(here[source]):
        if left[sizes[axis]] > 0:
            left[sizes[axis]] -= 1
            moving.append(axis)
    return source, target, tuple(reversed(moving))


# --- pieces put together anew ---


def _assemble(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """Other pieces on other devices, by way of the host: each piece that is needed is read once."""
    out = []
    for x, t, given_up in zip(arrays, types, donate, strict=True):
        if not (x.is_fully_addressable and t.sharding.is_fully_addressable):
            raise ShardingError(
                "device_put",
                expected="shardings over the same devices, for an array that other processes hold parts of",
                got=f"{x.sharding} and {t.sharding}",
                mend="choose a sharding over the devices that the array is on",
            )
        out.append(_assembled(x, t))
        if given_up:
            x.delete()
    return out


def _assembled(x: Array, wanted: ArrayType) -> Array:
    aval = physical_aval(x.aval)
    plan = _plan(x.sharding, wanted.sharding, aval.shape)
    held = buffers.shards(x._live())
    views = {number: buffers.to_host(held[number]) for number in plan.sources}
    made = []
    for part in plan.parts:
        if len(part) == 1:
            ((number, source, _),) = part
            made.append(views[number][source])
            continue
        whole = _aligned(plan.part_shape, aval.dtype)
        for number, source, target in part:
            whole[target] = views[number][source]
        made.append(whole)
    pieces = [made[number] for number in plan.order]
    fresh = all(len(part) > 1 for part in plan.parts) and len(plan.parts) == len(plan.order)
    buffer = buffers.put_shards(aval, wanted.sharding, pieces, plan.devices, wanted.committed, may_alias=fresh)
    return Array(buffer, wanted)


class _Plan(NamedTuple):
    """How parts are put together.

    sources: numbers of the pieces that are read.
    parts: for each different part, the piece's number, what to read of it and where to write that.
    part_shape: the shape of each.
    order, devices: for each device the number of its part.
    """

    sources: list[int]
    parts: list[list[tuple[int, Index, Index]]]
    part_shape: tuple[int, ...]
    order: list[int]
    devices: list[Any]


@functools.lru_cache(maxsize=1024)
def _plan(held: Sharding, wanted: Sharding, shape: tuple[int, ...]) -> _Plan:
    pieces = [(i, _box(s.index, shape)) for i, s in enumerate(held.shards(shape)) if s.replica_id == 0]
    boxes: dict[tuple, int] = {}
    order, parts, devices = [], [], []
    for shard in wanted.shards(shape):
        box = _box(shard.index, shape)
        if box not in boxes:
            boxes[box] = len(parts)
            parts.append(_overlaps(box, pieces))
        order.append(boxes[box])
        devices.append(shard.device)
    sources = sorted({number for part in parts for number, _, _ in part})
    return _Plan(sources, parts, wanted.shard_shape(shape), order, devices)


def _overlaps(box: tuple, pieces: list) -> list[tuple[int, Index, Index]]:
    """What to copy of which piece, and where to in the part within `box`; one piece where it holds all of it."""
    found = []
    for number, piece in pieces:
        common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, piece, strict=True)]
        if common == list(box) or all(start < stop for start, stop in common):
            source = tuple([slice(a - s, b - s) for (a, b), (s, _) in zip(common, piece, strict=True)])
            target = tuple([slice(a - s, b - s) for (a, b), (s, _) in zip(common, box, strict=True)])
            if common == list(box):
                return [(number, source, target)]
            found.append((number, source, target))
    return found


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """New memory that starts where XLA's CPU devices want it, so that they take it as it is."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


_ALIGNMENT = 64


def _box(index: Index, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple([s.indices(size)[:2] for s, size in zip(index, shape, strict=True)])


class _Mover:
    """What `core.placement` asks this room for."""

    @staticmethod
    def move(x: Array, wanted: ArrayType) -> Array:
        """One array brought to a type that differs from its own in the sharding."""
        moved = reshard([x], [wanted.sharding], [False])[0]
        return moved if moved._type is wanted else Array(moved._buffer, wanted)


core_placement.mover.take(_Mover)
