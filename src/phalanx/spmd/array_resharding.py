"""Resharding of concrete arrays.

There are four methods, of which the first applicable one is used: reuse the buffers as they are; copy the same shards
to other devices or memories; assemble new shards on the host, if the devices differ or their memory is the host's; or
run a compiled program with the collectives that `sharding.reshard_plan` plans. While the program runs, a device needs
memory for its shards of source and result, and for one additional shard.

Only compiled programs move data between processes. An uncommitted array of one process is a value that every process
has: each takes its shards from its own.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core import RuleError, ShardingError, physical_aval, trace_to_jaxpr
from phalanx.engine import Cache, buffers, compiler, memoize, unguarded_transfer
from phalanx.runtime import Array, ArrayType, Layout, compiled_program, deleted_error, transfer, wrap_buffer
from phalanx.sharding import Index, NamedSharding, Sharding, UnreducedKind, reorder_devices


def reshard(arrays: Sequence[Array], shardings: Sequence[Sharding], donate: Sequence[bool]) -> list[Array]:
    """Reshard arrays, with as few programs and transfers as possible for all of them.

    Args:
      arrays: arrays with live buffers.
      shardings: the sharding of each result.
      donate: for each array, whether its buffers may be reused.

    Returns:
      Committed arrays; an array that already has its sharding shares its buffers with the result.

    Raises:
      ArgumentError: an array was deleted or donated.
      ShardingError: shards that are needed are on devices of another process.
    """
    out: list[Any] = [None] * len(arrays)
    groups: dict[Any, list[int]] = defaultdict(list)
    arrays = list(arrays)
    for i, (x, sharding) in enumerate(zip(arrays, shardings, strict=True)):
        if buffers.is_deleted(x._buffer):
            raise deleted_error(x)
        method = _choose_method(x, sharding)
        if x._type.layout is not None and method[0] is not _reuse_buffers:
            arrays[i] = lay_out(x, None)
            if donate[i]:
                x.delete()
        groups[method].append(i)
    for (move, *_), numbers in groups.items():
        wanted = [ArrayType(arrays[i].aval, shardings[i], True, arrays[i]._type.layout) for i in numbers]
        moved = move([arrays[i] for i in numbers], wanted, [donate[i] for i in numbers])
        for i, y in zip(numbers, moved, strict=True):
            out[i] = y
    return out


def _choose_method(x: Array, sharding: Sharding) -> tuple:
    """The method to reshard an array, with a key that is equal for arrays that can be resharded together."""
    held, ndim = x.sharding, physical_aval(x.aval).ndim
    # Cheapest first: no copy, then copies of whole shards, and collectives or the host only where shards change.
    if held is sharding or held.is_equivalent_to(sharding, ndim):
        return (_reuse_buffers,)
    if held.unreduced_over or sharding.unreduced_over:
        _check_terms(held, sharding)
        is_in_place = held._device_assignment == sharding._device_assignment
        return (_exchange, sharding._device_assignment) if is_in_place else (_reduce_first,)
    is_local = x.is_fully_addressable and sharding.is_fully_addressable
    if not is_local and held.device_set != sharding.device_set:
        if x.is_fully_addressable and not x.committed:
            return (_assemble_from_own,)
        raise ShardingError(
            "device_put",
            expected="a sharding over the devices that the array is on, since it does not move to devices of other "
            "processes",
            got=f"{held} and {sharding}",
            fix="run a jitted function over all devices, or make the array from host values in each process with "
            "make_array_from_process_local_data",
        )
    # Shard `n` of one sharding equals shard `n` of the other, for all `n`.
    if held.num_devices == sharding.num_devices and held.tiling(ndim).is_equal(sharding.tiling(ndim)):
        if is_local or held._device_assignment == sharding._device_assignment:
            return (_copy_shards,)
    if held.device_set == sharding.device_set and reorder_devices(
        held, sharding._device_assignment, ndim
    ).is_equivalent_to(sharding, ndim):
        return (_reorder_buffers,)
    if held.device_set != sharding.device_set or (is_local and x._buffer.platform() == "cpu"):
        return (_assemble,)
    in_place = held.with_memory_kind(sharding.non_default_memory_kind).is_equivalent_to(held, ndim)
    return (_exchange, sharding._device_assignment) if in_place else (_exchange_and_copy,)


def _check_terms(held: Sharding, sharding: Sharding) -> None:
    """Refuse to make terms of a maximum or minimum, which come from a reduction only."""
    spec = sharding.spec if isinstance(sharding, NamedSharding) else None
    if spec is None or spec.unreduced_kind in (None, UnreducedKind.sum):
        return
    before = held.spec if isinstance(held, NamedSharding) else None
    if before is None or before.unreduced_kind is not spec.unreduced_kind or not spec.unreduced <= before.unreduced:
        raise RuleError(
            "device_put",
            expected=f"an array that is unreduced by {spec.unreduced_kind.name} over these axes already",
            got=f"{held} and {sharding}",
            fix="reduce with out_sharding=, as in lax.reduce_max(x, axes, out_sharding=spec) inside phalanx.jit",
        )


def _reuse_buffers(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """Reuse buffers under another sharding with the same placement."""
    out = [
        x if x._type is t and not d else wrap_buffer(buffers.with_sharding(x._share(), t.buffer_aval, t.sharding), t)
        for x, t, d in zip(arrays, types, donate, strict=True)
    ]
    _give_up_donated(arrays, donate)
    return out


def _give_up_donated(arrays: Sequence[Array], donate: Sequence[bool]) -> None:
    """Make donated arrays unusable whose buffers the results share; deleting the buffers would delete the results."""
    for x in itertools.compress(arrays, donate):
        x._give_up()


def _reorder_buffers(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """Reuse buffers in another order of the devices."""
    out = [wrap_buffer(buffers.reorder_shards(x._buffer, t.sharding), t) for x, t in zip(arrays, types, strict=True)]
    _give_up_donated(arrays, donate)
    return out


def _has_same_devices(x: Array, wanted: ArrayType) -> bool:
    """Whether an array stays on its devices, so that resharding it is no transfer."""
    return len(x.sharding.device_set) > 1 and x.sharding.device_set == wanted.sharding.device_set


def _copy_shards(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """Copy the same shards to other devices, or to another memory of the same devices."""
    # Always copy: if a shard stays on its device and its buffer were shared, deleting one array would delete the other.
    # Donation in jaxlib's copy is not an alternative: on CPU devices it leaves the new array with freed memory.
    with unguarded_transfer(all(map(_has_same_devices, arrays, types))):
        sent = buffers.copy_to_devices(
            [x._buffer for x in arrays], [t.sharding for t in types], semantics=buffers.CopySemantics.ALWAYS_COPY
        )
    for x in itertools.compress(arrays, donate):
        x.delete()
    return list(map(wrap_buffer, sent, types))


def _exchange_and_copy(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """Reshard into another memory by way of the default memory, since programs compute there."""
    # Three steps, each of which frees the arrays of the previous one, unless the caller still has them: to the default
    # memory, to the new shards, to the other memory.
    near = reshard(arrays, [x.sharding.with_memory_kind(None) for x in arrays], donate)
    cut = reshard(near, [t.sharding.with_memory_kind(None) for t in types], list(map(operator.is_not, near, arrays)))
    return reshard(cut, [t.sharding for t in types], [True] * len(cut))


def _reduce_first(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """Reshard from or to terms of a sum on other devices: values, not terms, are sent."""
    values = reshard(arrays, [x.sharding.summed for x in arrays], donate)
    # Nothing is donated, since each step may return the buffers of its operands.
    keep = [False] * len(values)
    return reshard(reshard(values, [t.sharding.summed for t in types], keep), [t.sharding for t in types], keep)


# --- one compiled program for the exchange ---

_programs: Cache[tuple, Any] = Cache("spmd.reshard_programs", 1024)


def _exchange(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """Reshard on the same devices by a compiled program."""
    key = (tuple([x._type for x in arrays]), tuple(types), tuple(donate))
    compiled = _programs.get(key)
    if compiled is None:
        compiled = _programs[key] = compile_exchange([x._type for x in arrays], types, donate)
    # XLA may schedule the collectives of several arrays at once and hold buffers for all of them.
    if len(arrays) > 1 and not _fits_memory(compiled):
        return [_exchange([x], [t], [d])[0] for x, t, d in zip(arrays, types, donate, strict=True)]
    # The program is compiled for the devices in the order of the target, so the list of an operand's shards may have to
    # be put in that order. No data is moved.
    operands = [
        x._buffer
        if x.sharding._device_assignment == sharding._device_assignment
        else buffers.reorder_shards(x._buffer, sharding)
        for x, sharding in zip(arrays, compiled.lowered.in_shardings, strict=True)
    ]
    moved = [wrap_buffer(x._buffer, t) for x, t in zip(compiled(operands), types, strict=True)]
    for x in itertools.compress(arrays, donate):
        # XLA reuses a donated buffer only if the shards have equal sizes; otherwise it is still alive.
        if not x.is_deleted():
            x.delete()
    return moved


def compile_exchange(
    held: Sequence[ArrayType], wanted: Sequence[ArrayType], donate: Sequence[bool]
) -> compiled_program.CompiledProgram:
    """Compile the identity function between shardings over the same devices.

    Args:
      held: the types of the arrays.
      wanted: the types of the results, over devices in one order.
      donate: for each operand, whether its buffers may be reused.

    Returns:
      The program. The caller checks its memory.
    """
    devices = wanted[0].sharding._device_assignment
    avals = [physical_aval(t.aval).drop_sharding() for t in held]
    sources = [reorder_devices(t.sharding, devices, aval.ndim) for t, aval in zip(held, avals, strict=True)]
    return compiled_program.lower(
        trace_to_jaxpr(lambda *xs: list(xs), avals, "reshard"),
        devices,
        sources,
        [t.sharding for t in wanted],
        donated=[i for i, given_up in enumerate(donate) if given_up],
        name="reshard",
        committed=True,
        # The source is an argument of the program and stays alive, so it is resharded in slices whatever its size.
        slice_threshold=0,
    ).compile()


def _fits_memory(compiled: compiled_program.CompiledProgram) -> bool:
    """Whether a program needs no more memory than its operands, its results and one additional shard."""
    lowered = compiled.lowered
    avals = [t.aval for t in compiled.out_types]  # the operands have the same types: the function is the identity
    ends = [*zip(lowered.in_shardings, avals, strict=True), *zip(lowered.out_shardings, avals, strict=True)]
    # The documented limit is one shard in addition to source and result. The 4096 bytes are XLA's constant overhead,
    # which dominates in small programs.
    largest = max(math.prod(s.shard_shape(a.shape)) * a.dtype.itemsize for s, a in ends)
    return compiler.memory_stats(compiled.executable).temp_size_in_bytes <= largest + 4096


# --- new shards, assembled on the host ---


def _assemble(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """Assemble new shards on the host, reading each needed shard once."""
    out = []
    for x, t, given_up in zip(arrays, types, donate, strict=True):
        out.append(_assemble_one(x, t))
        # Freed now rather than after the loop, so that at most one array is in memory twice.
        if given_up:
            x.delete()
    return out


def _assemble_from_own(arrays: Sequence[Array], types: Sequence[ArrayType], donate: Sequence[bool]) -> list[Array]:
    """Make arrays over several processes of values that each process has."""
    return [transfer.from_numpy(x._assemble(), t) for x, t in zip(arrays, types, strict=True)]


def _assemble_one(x: Array, wanted: ArrayType) -> Array:
    shape, aval = physical_aval(x.aval).shape, wanted.buffer_aval
    plan = _plan(x.sharding, wanted.sharding, shape)
    held = buffers.shards(x._live())
    views = {number: buffers.to_host(held[number]) for number in plan.sources}
    made, fresh = [], len(plan.parts) == len(plan.order)
    for part in plan.parts:
        # A new shard that lies within an old one is a view of it, without a copy.
        if len(part) == 1 and (view := views[part[0][0]][part[0][1]]).shape == plan.part_shape:
            made.append(view)
            fresh = False
            continue
        whole = buffers.aligned(plan.part_shape, aval.dtype)
        if aval.shape != shape:
            whole.fill(0)  # the padding
        for number, source, target in part:
            whole[target] = views[number][source]
        made.append(whole)
    # If every new shard is a new array on one device, the buffer may use its memory. A view of an old shard, or a shard
    # for two devices, must be copied.
    new_shards = [made[number] for number in plan.order]
    with unguarded_transfer(_has_same_devices(x, wanted)):
        buffer = buffers.put_shards(aval, wanted.sharding, new_shards, plan.devices, wanted.committed, may_alias=fresh)
    return wrap_buffer(buffer, wanted)


class _Plan(NamedTuple):
    """A plan to assemble new shards from old ones.

    Args:
      sources: the numbers of the old shards that are read.
      parts: for each distinct new shard, the old shards that it overlaps: their number, the slice to read, and the
        slice of the new shard to write.
      part_shape: the shape of a new shard.
      order, devices: for each device, the index of its new shard in `parts`.
    """

    sources: list[int]
    parts: list[list[tuple[int, Index, Index]]]
    part_shape: tuple[int, ...]
    order: list[int]
    devices: list[Any]


@memoize("spmd.reshard_plans", 1024)
def _plan(held: Sharding, wanted: Sharding, shape: tuple[int, ...]) -> _Plan:
    old_shards = [(i, _box(s.index, shape)) for i, s in enumerate(held.shards(shape)) if s.replica_id == 0]
    shards = wanted.shards(shape)
    boxes = [_box(s.index, shape) for s in shards]
    numbers = {box: i for i, box in enumerate(dict.fromkeys(boxes))}  # replicas share one part
    parts = [_overlaps(box, old_shards) for box in numbers]
    return _Plan(
        sources=sorted({number for part in parts for number, _, _ in part}),
        parts=parts,
        part_shape=wanted.shard_shape(shape),
        order=[numbers[box] for box in boxes],
        devices=[shard.device for shard in shards],
    )


def _overlaps(box: tuple, old_shards: list) -> list[tuple[int, Index, Index]]:
    """The old shards that overlap a new one, with the slices to read and to write; one alone if it contains the new."""
    found = []
    for number, shard in old_shards:
        common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, shard, strict=True)]
        if common == list(box) or all(start < stop for start, stop in common):
            source = tuple([slice(a - s, b - s) for (a, b), (s, _) in zip(common, shard, strict=True)])
            target = tuple([slice(a - s, b - s) for (a, b), (s, _) in zip(common, box, strict=True)])
            if common == list(box):
                return [(number, source, target)]
            found.append((number, source, target))
    return found


def _box(index: Index, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple([s.indices(size)[:2] for s, size in zip(index, shape, strict=True)])


def move(x: Array, wanted: ArrayType) -> Array:
    """Reshard one array to a type that differs in the sharding only."""
    moved = reshard([x], [wanted.sharding], [False])[0]
    return moved if moved._type is wanted else wrap_buffer(moved._buffer, wanted)


def lay_out(x: Array, layout: Layout | None) -> Array:
    """Copy an array into another memory layout, None for the default one, unless it has that."""
    held = x._type
    if held.layout == layout:
        return x
    wanted = ArrayType(held.aval, held.sharding, held.committed, layout)
    return wrap_buffer(_compile_lay_out(held, wanted)([x._live()])[0]._buffer, wanted)


@memoize("spmd.layout_programs", 1024)
def _compile_lay_out(held: ArrayType, wanted: ArrayType) -> compiled_program.CompiledProgram:
    """Compile the identity function between two layouts."""
    aval = physical_aval(held.aval).drop_sharding()
    return compiled_program.lower(
        trace_to_jaxpr(lambda x: [x], [aval], "lay_out"),
        held.sharding._device_assignment,
        [held.sharding],
        [held.sharding],
        name="lay_out",
        committed=held.committed,
        layouts=((held.layout,), (wanted.layout,)),
    ).compile()


transfer.general_transfers.provide(move=move, lay_out=lay_out)
