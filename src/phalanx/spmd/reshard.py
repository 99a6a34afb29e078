"""Resharding: arrays that are on devices already, brought to other shardings.

Four roads, the first that fits: the buffers are right as they are; the same pieces go to other devices or memories;
pieces are put together anew by the host, where the devices differ or where their memory is the host's; one compiled
program moves what must move between the devices that hold the array, along the route that `sharding.route` plans. A
device needs memory for its parts of the source and of the target, and for one part more. `placement` and, by its seat,
`runtime.placement` call `reshard`.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core.aval import ShapedArray
from phalanx.core.errors import ShardingError
from phalanx.core.trace import stage
from phalanx.engine import buffers, compiler
from phalanx.runtime import dispatch, placement
from phalanx.runtime.array import Array, ArrayType, deleted_error
from phalanx.runtime.lowering import physical_aval
from phalanx.sharding import Sharding
from phalanx.sharding.tiling import Index


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
    dead = placement.from_numpy(np.zeros(()), ArrayType(ShapedArray((), np.dtype(bool)), placement.default_sharding()))
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
    if len(arrays) > 1 and not _is_lean(compiled):
        return [_exchange([x], [t], [d])[0] for x, t, d in zip(arrays, types, donate, strict=True)]
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
      The program. What several arrays keep in memory on the way is checked by the caller.
    """
    devices = wanted[0].sharding._device_assignment
    avals = [physical_aval(t.aval).unsharded() for t in held]
    sources = [t.sharding.in_order(devices, aval.ndim) for t, aval in zip(held, avals, strict=True)]
    program = stage(lambda *xs: list(xs), avals, "reshard")
    lowered = dispatch.lower(
        program,
        devices,
        sources,
        [t.sharding for t in wanted],
        donated=[i for i, given_up in enumerate(donate) if given_up],
        name="reshard",
        committed=True,
        sliced_from=0,
    )
    return lowered.compile()


def _is_lean(compiled: dispatch.CompiledProgram) -> bool:
    """Whether a program needs no more memory than its operands, its results and one part more."""
    lowered = compiled.lowered
    avals = lowered.program.in_avals
    ends = [*zip(lowered.in_shardings, avals, strict=True), *zip(lowered.out_shardings, avals, strict=True)]
    largest = max(math.prod(s.shard_shape(a.shape)) * a.dtype.itemsize for s, a in ends)
    allowed = largest + 4096  # Small programs keep some bytes of their own.
    return compiler.memory_stats(compiled.executable).temp_size_in_bytes <= allowed


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
        whole = buffers.aligned(plan.part_shape, aval.dtype)
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


def _box(index: Index, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple([s.indices(size)[:2] for s, size in zip(index, shape, strict=True)])


def move(x: Array, wanted: ArrayType) -> Array:
    """One array brought to a type that differs from its own in the sharding, for `runtime.placement`."""
    moved = reshard([x], [wanted.sharding], [False])[0]
    return moved if moved._type is wanted else Array(moved._buffer, wanted)


placement.mover.take(move=move)
