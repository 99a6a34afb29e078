"""Resharding inside programs: collectives that bring a value from one sharding to another.

A sharding constraint is lowered to a custom call, followed by the plain `sdy.sharding_constraint`. When XLA's
partitioner comes to the call, the shardings before and after are known, and it calls back into `_Reshard.split`, which
answers with a module of collectives. `sharding.reshard_plan` plans them such that no device ever holds more than its
shards of source and result, and one shard more.

Without the call, XLA would reshard with a single collective, and where no single collective suffices it would replicate
the whole array on every device. It still does so where there is no constraint: between the iterations of a loop whose
carry changes its sharding, and before operations whose operands have different shardings, except elementwise ones
(`align_operands`).

An all-to-all needs buffers for the shard that is sent and for the shard that is received. For intermediate values that
is no extra memory, since the source is freed first. An argument of the program is not freed, so a large argument is
resharded by a loop over slices of the array. A slice of a shard is contiguous if the sizes allow it, and small enough
for a cache.

Called by the lowering of programs, inside an MLIR context.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import ShapedArray, ShardingRule, state
from phalanx.engine import HloSharding, PartitionedCall, dense_constant, hlo, i64, ir, sdy
from phalanx.runtime.custom_partitioning_calls import PartitionedCalls, make_sdy_sharding_rule
from phalanx.runtime.shard_programs import (
    build_shard_program,
    constant_index,
    emit_collective,
    partition_number,
    reshape,
    shape_of,
    table_entry,
    type_like,
)
from phalanx.runtime.shardy import sdy_sharding
from phalanx.runtime.uneven_padding import add_padding, remove_padding
from phalanx.sharding import (
    UNCONSTRAINED,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    Tiling,
    hlo_to_tiling,
    replica_ids,
)
from phalanx.sharding.reshard_plan import ReshardPlan, plan_reshard

# An argument is resharded in slices if its shards, before or after, have this many bytes. For smaller ones the extra
# memory does not matter, and each slice costs a synchronization of all devices.
SLICED_FROM = 128 * 1024
# A device's part of a slice has at most this many bytes, unless that takes more than `_MAX_SLICES` slices.
_SLICE_BYTES, _MAX_SLICES = 1024 * 1024, 8


def reshard_to(ctx: Any, x: ir.Value, aval: ShapedArray, sharding: Sharding) -> Any:
    """Emit a sharding constraint on a value of a physical type, and the resharding that it needs.

    The resharding is left to XLA in exported programs, whose processes cannot call back; inside a `shard_map` over some
    of the axes, where the partitioner does not number all devices. An uneven value is padded around the resharding.
    """
    module = ctx.module
    attribute = sdy_sharding(module, sharding, aval.ndim)
    is_uneven = sharding.padded_shape(aval.shape) != aval.shape
    module.has_uneven |= is_uneven
    held = module.typed_shardings.get(x) or module.inferred_shardings.get(x)
    is_unreduced = held is not None and bool(held.unreduced_over)
    if sharding.unreduced_over and (between := _find_step_to_terms(module, x, held, sharding)) is not None:
        x = sdy.ShardingConstraintOp(x, sdy_sharding(module, between, aval.ndim)).result
    if not (
        is_unreduced
        or sharding.unreduced_over
        or module.is_portable
        or module.manual is not None
        or _needs_no_call(module, x, aval, sharding)
    ):
        # Uneven shards differ in shape among devices, which the collectives of one program cannot express.
        padded = ShapedArray(_pad_for(aval.shape, [s for s in (held, sharding) if s is not None]), aval.dtype)
        if padded.shape == aval.shape:
            x = _emit_reshard(ctx, x, aval, sharding)
        else:
            is_stated = x in module.known_shardings or x in module.typed_shardings
            x = add_padding(ctx, x, aval.shape, padded)
            # Otherwise Shardy may let XLA reshard, by way of a replica, where the value is padded or cut. One that was
            # only inferred is left open where Shardy can join it with the target, since that sends less.
            if held is not None and (is_stated or not _are_compatible(held, sharding)):
                x = sdy.ShardingConstraintOp(x, sdy_sharding(module, held, aval.ndim)).result
            x = _emit_reshard(ctx, x, padded, sharding)
            x = remove_padding(sdy.ShardingConstraintOp(x, attribute).result, aval.shape)
    x = sdy.ShardingConstraintOp(x, attribute).result
    if not isinstance(sharding, NamedSharding) or (
        isinstance(sharding.mesh, Mesh) and not sharding.spec.has_unconstrained
    ):
        module.known_shardings[x] = module.inferred_shardings[x] = sharding
        if sharding.unreduced_over:
            module.typed_shardings[x] = sharding
    return x


def state_sharding(ctx: Any, x: ir.Value, aval: ShapedArray, sharding: Sharding) -> Any:
    """Emit a sharding constraint on a value that is expected to have the sharding already.

    Shardy propagates it like that of a result of the program: to an uneven value by way of its padding, and late.
    """
    padded = aval.with_shape(sharding.padded_shape(aval.shape))
    attribute = sdy_sharding(ctx.module, sharding, aval.ndim)
    if padded.shape == aval.shape:
        x = sdy.ShardingConstraintOp(x, attribute).result
    else:
        x = sdy.ShardingConstraintOp(add_padding(ctx, x, aval.shape, padded), attribute).result
        x = remove_padding(x, aval.shape)
    ctx.module.known_shardings[x] = ctx.module.inferred_shardings[x] = sharding
    return x


def _pad_for(shape: tuple[int, ...], shardings: Sequence[Sharding]) -> tuple[int, ...]:
    """The smallest shape that all these shardings divide evenly."""
    padded = functools.reduce(lambda padded, sharding: sharding.padded_shape(padded), shardings, shape)
    return shape if padded == shape else _pad_for(padded, shardings)


def _find_step_to_terms(module: Any, x: ir.Value, held: Any, sharding: NamedSharding) -> NamedSharding | None:
    """The sharding by way of which a value becomes unreduced over further axes; None if there is a direct way.

    Shardy aborts the process if it would have to leave terms where an operation adds up others. So the sharding before
    must be stated, by a constraint or a parameter, and terms over other axes must have been added up.
    """
    kept = held.spec.unreduced & sharding.spec.unreduced if isinstance(held, NamedSharding) else frozenset()
    is_stated = x in module.typed_shardings or x in module.arguments
    if is_stated and (kept == sharding.spec.unreduced or not held.unreduced_over):
        return None
    kind = sharding.spec.unreduced_kind if kept else None
    return sharding.with_spec(sharding.spec.update(unreduced=kept, unreduced_kind=kind))


def align_operands(ctx: Any, operands: list, aval_of: Callable[[int], ShapedArray]) -> tuple[list, Any]:
    """Insert resharding calls for operands of an elementwise operation with incompatible inferred shardings.

    The result is expected to have the sharding of the operand that is sharded over the most axes, broadcasts last. The
    other operands get a resharding call without a target: the partitioner decides on it, and if it gives all operands
    the same sharding, the call does nothing.

    Args:
      ctx: the lowering context.
      operands: IR values of one shape.
      aval_of: returns the physical type of an operand, given its number.

    Returns:
      The operands, and the inferred sharding of the result, or None.
    """
    module = ctx.module
    held = [s if isinstance(s := module.inferred_shardings.get(x), NamedSharding) else None for x in operands]
    is_whole = lambda x: isinstance(x.owner, ir.Block) or x.owner.name != "stablehlo.broadcast_in_dim"
    known = [(is_whole(x), len(s.spec.axes), s) for x, s in zip(operands, held, strict=True) if s is not None]
    kept = max(known, key=lambda it: it[:2])[2] if known else None
    if kept is None or module.is_portable or module.manual is not None:
        return operands, kept

    def align(i: int, x: ir.Value, s: Any) -> ir.Value:
        if s is None or s.mesh is not kept.mesh or _are_compatible(s, kept):
            return x
        aval = aval_of(i)
        # The partitioner would replicate uneven operands.
        is_even = _pad_for(aval.shape, [s, kept]) == aval.shape
        return _emit_reshard(ctx, x, aval, kept) if is_even else reshard_to(ctx, x, aval, kept)

    return [align(i, x, s) for i, (x, s) in enumerate(zip(operands, held, strict=True))], kept


def _are_compatible(a: Sharding, b: Sharding) -> bool:
    """Whether two shardings over one mesh use no axis for different dimensions, or axes of one in a different order."""
    if a is b:
        return True
    if not isinstance(a, NamedSharding) or not isinstance(b, NamedSharding) or a.mesh is not b.mesh:
        return False
    ndim = max(len(a.spec), len(b.spec))
    pairs = list(zip(a.axes(ndim), b.axes(ndim), strict=True))
    where = [{axis: d for d, pair in enumerate(pairs) for axis in pair[i]} for i in (0, 1)]
    return all(where[1].get(axis, d) == d for axis, d in where[0].items()) and all(
        x[: len(y)] == y[: len(x)] for x, y in pairs
    )


def _needs_no_call(module: Any, x: ir.Value, aval: ShapedArray, sharding: Sharding) -> bool:
    """Whether a plain constraint suffices, since a resharding call costs 5 ms of compilation.

    It does if nothing is resharded, or on a mesh with one axis, where XLA itself uses a single collective.
    """
    held = module.inferred_shardings.get(x)
    if module.names_requests or aval.is_symbolic:
        return aval.is_symbolic
    if held is sharding:
        return True
    if not isinstance(sharding, NamedSharding):
        return False
    is_held = (
        isinstance(held, NamedSharding)
        and held.mesh is sharding.mesh
        and held.spec.canonical == sharding.spec.canonical
    )
    # An argument gets a call even on such a mesh, since XLA would not reshard it in slices.
    is_row = sum(size > 1 for size in sharding.mesh.axis_sizes) == 1 and len(module.meshes) == 1
    return is_held or (is_row and x not in module.arguments)


def _emit_reshard(ctx: Any, x: ir.Value, aval: ShapedArray, sharding: Sharding) -> Any:
    sizes = sharding.mesh.axis_sizes if isinstance(sharding, NamedSharding) else ()
    dims: list[list[Hashable]] = [[d] for d in range(aval.ndim)]
    operands, factors = [x], [dims]
    if isinstance(sharding, NamedSharding) and sharding.spec.has_unconstrained:
        # The constraint must propagate to the constrained dimensions only, and the operand's sharding to the open
        # ones only. So the two have different factors. The constraint must still propagate to the producer of the
        # operand, which is therefore passed a second time, behind a barrier against backward propagation.
        entries = sharding.spec.axes_per_dim(aval.ndim)
        factors.append([[d if e is UNCONSTRAINED else (d, "held")] for d, e in enumerate(entries)])
        operands = [sdy.PropagationBarrierOp(x, sdy.PropagationDirection.BACKWARD).result, x]
    slice_threshold = ctx.module.slice_threshold if x in ctx.module.arguments else None
    factor_sizes = {key: n for d, n in enumerate(aval.shape) for key in (d, (d, "held"))}
    text = f"{aval.str_short()} {sizes} {slice_threshold}"
    return _calls.emit(
        ctx,
        text,
        _Reshard(aval, sizes, slice_threshold),
        operands,
        [aval],
        make_sdy_sharding_rule([*factors, dims], len(operands), factor_sizes),
    )[0]


def fill_unconstrained(sharding: Sharding, held: Sharding | None, ndim: int) -> Sharding:
    """Replace unconstrained dimensions by the value's present sharding, unless its axes are used otherwise."""
    if not isinstance(sharding, NamedSharding) or not sharding.spec.has_unconstrained:
        return sharding
    present = held.axes(ndim) if isinstance(held, NamedSharding) and held.mesh is sharding.mesh else [()] * ndim
    free = [axes or None if not set(sharding.spec.axes).intersection(axes) else None for axes in present]
    entries = [axes if entry is UNCONSTRAINED else entry for entry, axes in zip(sharding.spec.partitions, free)]
    return sharding.with_spec(PartitionSpec(*entries))


def infer_result_sharding(held: Sequence[Any], rule: ShardingRule) -> NamedSharding | None:
    """Predict the sharding of an operation's result from the known shardings of its operands, or return None."""
    known = [s if isinstance(s, NamedSharding) else None for s in held]
    first = next((s for s in known if s is not None), None)
    if any(s is not None and s.spec.unreduced for s in known):
        return None
    axes: dict[Any, tuple] = {}
    for s, names in zip(known, rule.operands, strict=True):
        if s is not None and (first is None or s.mesh is not first.mesh or len(s.spec) > len(names)):
            # Shardings over two meshes, or of the words of random keys, which have one dimension more than the keys.
            return None
        for name, cut in zip(names, s.axes(len(names)) if s is not None else ()):
            if cut and name not in rule.whole:
                axes.setdefault(name, cut)
    if first is None:
        return None
    dims: list[tuple] = []
    for name in rule.results[0]:
        # An axis shards one dimension of an array only: the first that asks for it, as in Shardy's propagation.
        dims.append(tuple([a for a in axes.get(name, ()) if not any(a in taken for taken in dims)]))
    return first.with_spec(PartitionSpec.of_dims(dims))


class _Reshard:
    """One resharding call, with the answers to the partitioner's questions about it.

    Args:
      aval: the type of the value.
      axis_sizes: the axis sizes of the mesh on which both shardings are probably defined.
      slice_threshold: bytes of a shard from which an argument is resharded in slices; None for other values.
    """

    def __init__(self, aval: ShapedArray, axis_sizes: tuple[int, ...], slice_threshold: int | None):
        self.aval, self.axis_sizes, self.slice_threshold = aval, axis_sizes, slice_threshold
        self.context = state.context
        self._answers: dict[tuple, PartitionedCall] = {}

    def split(self, operands: Sequence[HloSharding], results: Sequence[HloSharding]) -> PartitionedCall:
        """Answer with the collectives that reshard the value; uneven shardings are left to XLA."""
        question = *operands, *results
        if question not in self._answers:  # the layers of a model have equal calls
            self._answers[question] = self._answer(operands, results)
        return self._answers[question]

    def _answer(self, operands: Sequence[HloSharding], results: Sequence[HloSharding]) -> PartitionedCall:
        *others, held = operands
        (wanted,), shape = results, self.aval.shape
        count = max([len(s.tile_assignment_devices()) for s in (held, wanted) if s.is_tiled()], default=1)
        first, last = [hlo_to_tiling(s, count, self.aval.ndim) for s in (held, wanted)]
        # Uneven shards differ in shape among devices, which a collective of one program cannot express.
        if all(n % a == n % b == 0 for n, a, b in zip(shape, first.parts, last.parts, strict=True)):
            plan = plan_reshard(first, last, self.axis_sizes)
            return PartitionedCall(
                _make_module_text(self.aval, plan, self._slices(plan), len(others)), [held] * len(operands), [wanted]
            )
        part = [-(-n // parts) for n, parts in zip(shape, last.parts, strict=True)]
        return PartitionedCall(
            _build_module(self.aval, part, part, len(others), lambda x: x), [wanted] * len(operands), [wanted]
        )

    def _slices(self, plan: ReshardPlan) -> _Slices | None:
        """Choose the first dimension with enough elements in each part; None if no dimension has two."""
        nbytes = self.aval.size * self.aval.dtype.itemsize // min(math.prod(plan.tilings[i].parts) for i in (0, -1))
        if self.slice_threshold is None or nbytes < self.slice_threshold or plan.num_slices == 1:
            return None
        inner = [size // cut for size, cut in zip(self.aval.shape, plan.divisors, strict=True)]
        count = min(max(plan.num_slices, -(-nbytes // _SLICE_BYTES)), _MAX_SLICES)
        dim = next((d for d, size in enumerate(inner) if size >= count), inner.index(max(inner)))
        return _Slices(dim, plan.divisors[dim], max(inner[dim] // count, 1)) if inner[dim] > 1 else None


_calls = PartitionedCalls("phalanx.reshard")


class _Slices(NamedTuple):
    """The dimension to slice, the largest number of parts it is divided into, and the elements of a part in a slice."""

    dim: int
    cuts: int
    size: int


def _make_module_text(aval: ShapedArray, plan: ReshardPlan, slices: _Slices | None, unread: int) -> str:
    """The text of the module that computes a device's shard of the result from its shard of the source."""
    source, target = [_part(aval.shape, plan.tilings[i]) for i in (0, -1)]
    if slices is None:
        return _build_module(aval, source, target, unread, lambda x: _emit_plan(x, plan.tilings))
    return _build_module(aval, source, target, unread, lambda x: _emit_sliced(x, aval, target, plan, slices))


def _build_module(
    aval: ShapedArray, source: Sequence[int], target: Sequence[int], unread: int, body: Callable[[Any], Any]
) -> str:
    avals = [aval.with_shape(tuple(source))] * (1 + unread)
    return build_shard_program(avals, aval.with_shape(tuple(target)), lambda *xs: body(xs[unread]))


def _part(shape: Sequence[int], tiling: Tiling) -> list[int]:
    return [n // parts for n, parts in zip(shape, tiling.parts, strict=True)]


def _emit_sliced(x: ir.Value, aval: ShapedArray, target: Sequence[int], plan: ReshardPlan, slices: _Slices) -> Any:
    """Emit a loop that reshards one slice after the other."""
    at, cuts, size = slices
    tilings = [_with_whole_dim(t, at + 1) for t in plan.tilings]
    # The sliced dimension becomes two: the parts of its finest division, and the elements within a part. A slice takes
    # the same elements of every part, so it is a slice of the array with the same sharding.
    inner = aval.shape[at] // cuts
    divided = [
        [*part[:at], cuts // tiling.parts[at], inner, *part[at + 1 :]]
        for part, tiling in [(_part(aval.shape, plan.tilings[i]), plan.tilings[i]) for i in (0, -1)]
    ]
    carry = [ir.RankedTensorType.get([], ir.IntegerType.get_signless(32)), x.type, type_like(x, target)]
    zeros = hlo.constant(dense_constant(np.broadcast_to(np.zeros((), aval.dtype), target)))
    loop = hlo.WhileOp(carry, [constant_index(0), x, zeros])
    test, body = (region.blocks.append(*carry) for region in loop.regions)
    with ir.InsertionPoint(test):
        below, kind = hlo.ComparisonDirectionAttr.get("LT"), hlo.ComparisonTypeAttr.get("SIGNED")
        hlo.return_([hlo.compare(test.arguments[0], constant_index(-(-inner // size)), below, compare_type=kind)])
    with ir.InsertionPoint(body):
        i, before, after = body.arguments
        # If the slices do not divide the dimension, the last one overlaps the one before.
        starts = [constant_index(0)] * len(divided[0])
        starts[at + 1] = hlo.multiply(i, constant_index(size))
        sizes = [size if d == at + 1 else n for d, n in enumerate(divided[0])]
        piece = _emit_plan(hlo.dynamic_slice(reshape(before, divided[0]), starts, sizes), tilings)
        filled = hlo.dynamic_update_slice(reshape(after, divided[1]), piece, starts)
        hlo.return_([hlo.add(i, constant_index(1)), before, reshape(filled, target)])
    return loop.results[2]


def _with_whole_dim(tiling: Tiling, dim: int) -> Tiling:
    return Tiling((*tiling.parts[:dim], 1, *tiling.parts[dim:]), np.insert(tiling.coordinates, dim, 0, axis=1))


def _emit_plan(x: ir.Value, tilings: Sequence[Tiling]) -> Any:
    """Emit the collectives between consecutive tilings of a plan, applied to a device's shard."""
    for before, after in zip(tilings[:-1], tilings[1:], strict=True):
        pairs = list(enumerate(zip(before.parts, after.parts, strict=True)))
        more, less = [d for d, (b, a) in pairs if a > b], [d for d, (b, a) in pairs if a < b]
        # The kind of step follows from the numbers of shards (see `plan_reshard`): if they only grow it is a slice, if
        # they only shrink a gather, if both happens an all-to-all, and if none changes a permutation.
        if not less:
            x = _emit_slice(x, before, after) if more else _emit_permute(x, before, after)
        elif not more:
            for d in less:
                x, before = _emit_all_gather(x, before, d, before.parts[d] // after.parts[d])
        else:
            # The plan exchanges one pair of dimensions per step.
            (source,), (target,) = less, more
            x = _emit_all_to_all(x, before, source, target, before.parts[source] // after.parts[source])
    return x


def _emit_slice(x: ir.Value, before: Tiling, after: Tiling) -> Any:
    """Slice a device's new shard out of its old one."""
    ratio = np.array(after.parts) // np.array(before.parts)
    shape = [n // int(r) for n, r in zip(shape_of(x), ratio, strict=True)]
    # A device's new shard is part of its old one: the remainder is the position within it.
    starts = (after.coordinates % ratio) * np.array(shape)
    number = partition_number()
    return hlo.dynamic_slice(x, [table_entry(starts[:, d], number) for d in range(len(shape))], shape)


def _emit_permute(x: ir.Value, before: Tiling, after: Tiling) -> Any:
    """Permute shards among devices; a device that already holds its new shard keeps it."""
    numbers = [np.ravel_multi_index(tuple(t.coordinates.T), t.parts) for t in (before, after)]
    # Devices with equal shard numbers are replicas. Pair the remaining sources and targets in the order of the shards.
    stay = numbers[0] == numbers[1]
    moved = [np.nonzero(~stay)[0][np.argsort(n[~stay], kind="stable")] for n in numbers]
    pairs = np.concatenate([np.stack(p, axis=1) for p in ([np.nonzero(stay)[0]] * 2, moved)])
    return emit_collective(
        "collective_permute",
        x,
        shape_of(x),
        {"source_target_pairs": ir.DenseElementsAttr.get(pairs[np.argsort(pairs[:, 0])].astype(np.int64))},
    )


def _emit_all_gather(x: ir.Value, before: Tiling, dim: int, ratio: int) -> tuple[Any, Tiling]:
    """All-gather consecutive parts of a dimension; returns the new tiling as well."""
    after, shape = _join(before, dim, ratio), shape_of(x)
    shape[dim] *= ratio
    attributes = {
        "all_gather_dim": i64(dim),
        "replica_groups": _groups(before, after, dim, ratio),
        "use_global_device_ids": ir.UnitAttr.get(),
    }
    return emit_collective("all_gather", x, shape, attributes), after


def _emit_all_to_all(x: ir.Value, before: Tiling, source: int, target: int, ratio: int) -> Any:
    """All-to-all: divide shards along dimension `target`, and join them along dimension `source`."""
    shape = shape_of(x)
    shape[source] *= ratio
    shape[target] //= ratio
    attributes = {
        "split_dimension": i64(target),
        "concat_dimension": i64(source),
        "split_count": i64(ratio),
        "replica_groups": _groups(before, _join(before, source, ratio), source, ratio),
    }
    return emit_collective("all_to_all", x, shape, attributes)


def _join(tiling: Tiling, dim: int, ratio: int) -> Tiling:
    """The tiling in which `ratio` consecutive parts of a dimension are one."""
    ratios = [ratio if d == dim else 1 for d in range(len(tiling.parts))]
    parts = tuple([n // r for n, r in zip(tiling.parts, ratios, strict=True)])
    return Tiling(parts, tiling.coordinates // np.array(ratios))


def _groups(before: Tiling, after: Tiling, dim: int, ratio: int) -> ir.Attribute:
    """The groups of devices whose parts of a dimension are joined, in their order: i64[groups, ratio]."""
    # Replicas form separate groups: each group gathers one copy of every part.
    found, replicas = defaultdict(list), replica_ids(before)
    # In the order of their parts, which is the order in which the collective concatenates.
    for device in np.argsort(before.coordinates[:, dim], kind="stable").tolist():
        found[(*after.coordinates[device].tolist(), replicas[device])].append(device)
    groups = np.array(sorted(found.values()), np.int64)
    assert groups.shape[1] == ratio, "a plan gathers and exchanges the most minor axes of a dimension only"
    return ir.DenseElementsAttr.get(groups)
