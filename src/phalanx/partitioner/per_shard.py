"""Per-shard lowering: an operation that each device runs on its shards of the operands.

XLA partitions most operations along their parallel dimensions by itself, but gathers the operands of some, such as
Fourier transforms, `top_k`, and loops under `vmap`. `lower_per_shard` emits such an operation as a custom call. The
call carries a sharding rule for Shardy, derived from the primitive's own `sharding_rule`. When XLA's partitioner comes
to the call, it calls back into `_PerShardCall.split`, which lowers the operation again for operands of the shard's
shape. Where a dimension that is summed over is sharded, each device computes a partial sum, and an all-reduce follows.

Called by `phalanx.partitioner.partitioned_lowering`; builds on `phalanx.runtime.custom_partitioning_calls`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from phalanx.core import Eqn, Jaxpr, ShapedArray, ShardingRule, Var, infer_results, physical_aval, state
from phalanx.engine import HloSharding, PartitionedCall, dense_constant, hlo, ir
from phalanx.lax.control_flow.while_loop import WhileEach
from phalanx.runtime import (
    LoweringContext,
    PartitionedCalls,
    lower_jaxpr_to_module,
    make_sdy_sharding_rule,
    partition_number,
    select_first,
    shape_of,
    table_entry,
)
from phalanx.sharding import Tiling, hlo_to_tiling, manual_coordinates, tiling_to_hlo

if TYPE_CHECKING:
    from collections.abc import Hashable

_calls = PartitionedCalls("phalanx.per_shard")


def lower_per_shard(ctx: LoweringContext, eqn: Eqn, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """Emit an operation of a partitioned program as a call that each device runs on its shards."""
    # With some axes manual, the partitioner numbers only the partitions of the other axes, so that the replica groups
    # of an all-reduce cannot be written down.
    call = _PerShardCall(eqn, ctx.module.platform, may_all_reduce=ctx.module.manual is None)
    program = call.jaxpr_for([aval.shape for aval in call.avals_in])
    text = f"{program}\nsums: {sorted(map(str, call.summed))}"
    return _calls.emit(ctx, text, call, operands, call.avals_out, call.sdy_rule())


class FactorCall:
    """A custom call whose dimensions are divided by name, with the answers to the partitioner's questions about it.

    Args:
      tensors: the physical type and the dimension names of each operand, then of each result.
      num_operands: the number of operands.
      divisible: names of dimensions that may be divided among devices, in all tensors alike; others are gathered.
      of_operands: names whose division the shardings of the operands decide; those of the results do not matter.
    """

    def __init__(
        self,
        tensors: Sequence[tuple[ShapedArray, Sequence[Hashable]]],
        num_operands: int,
        divisible: Set[Hashable],
        of_operands: Set[Hashable] = frozenset(),
    ):
        self.context = state.context
        self.tensors, self.num_operands = tensors, num_operands
        self.divisible, self.of_operands = divisible, of_operands

    def lower_shards(
        self, shapes: Sequence[tuple[int, ...]], factors: dict[Hashable, FactorSharding], regions: np.ndarray
    ) -> str:
        """The text of the module that each device runs on its shards.

        Args:
          shapes: the shape of a shard of each tensor.
          factors: how names are divided, as far as they are.
          regions: for each partition, the number of its position along the manual axes.
        """
        raise NotImplementedError

    def sdy_rule(self) -> ir.Attribute:
        """The sharding rule for Shardy: a factor for each name; factors that are not divisible need replication."""
        sizes: dict[Hashable, int] = {}
        rows = []
        for aval, names in self.tensors:
            # The same indivisible name may have different sizes in different operands, hence a factor for each size.
            keys = [name if name in self.divisible else (name, n) for name, n in zip(names, aval.shape, strict=True)]
            sizes |= {key: max(n, sizes.get(key, 0)) for key, n in zip(keys, aval.shape, strict=True)}
            rows.append([[key] for key in keys])
        return make_sdy_sharding_rule(
            rows, self.num_operands, sizes, need_replication_factors=[key for key in sizes if key not in self.divisible]
        )

    def split(self, operands: Sequence[HloSharding], results: Sequence[HloSharding]) -> PartitionedCall:
        """Answer how the call is partitioned, given the shardings that XLA has found for its operands and results."""
        given = [*operands, *results]
        num_devices = max([len(s.tile_assignment_devices()) for s in given if s.is_tiled()], default=1)
        # Inside a `shard_map` over some axes, XLA's shardings also contain the coordinates along the manual axes, which
        # the answer must repeat.
        manual = next((m for m in (manual_coordinates(s, num_devices) for s in given) if m is not None), None)
        tilings = [hlo_to_tiling(s, num_devices, a.ndim) for s, (a, _) in zip(given, self.tensors, strict=True)]
        # XLA's shardings may conflict, for example where two operands were sharded by different constraints. The answer
        # states shardings that agree, and XLA reshards the operands to them.
        # Shards are divided among the devices of one position along the manual axes; without such axes, among all.
        regions = np.zeros(num_devices, np.int64) if manual is None else manual
        factors = _choose_factor_shardings(self, tilings, regions)
        whole = FactorSharding(1, np.zeros(num_devices, np.int64))
        shardings, shapes = [], []
        for aval, names in self.tensors:
            found = [factors.get(name, whole) for name in names]
            parts = tuple([f.parts for f in found])
            # The reshape serves scalars, whose coordinates are an array of shape (num_devices, 0).
            wanted = Tiling(parts, np.array([f.coordinates for f in found], np.int64).reshape(-1, num_devices).T)
            # XLA reshards between shardings in the same notation more cheaply, so prefer an object that it passed.
            same = (s for s, t in zip(given, tilings, strict=True) if t.is_equal(wanted))
            shardings.append(next(same, None) or tiling_to_hlo(wanted, manual))
            shapes.append(tuple([-(-size // n) for size, n in zip(aval.shape, parts, strict=True)]))
        num = self.num_operands
        return PartitionedCall(self.lower_shards(shapes, factors, regions), shardings[:num], shardings[num:])


class _PerShardCall(FactorCall):
    """One operation that is lowered per shard.

    Args:
      eqn: an application of the operation.
      platform: where it runs.
      may_all_reduce: whether partial sums of several devices may be added up.
    """

    def __init__(self, eqn: Eqn, platform: str, may_all_reduce: bool):
        self.eqn = eqn
        self.platform = platform
        self.avals_out = [v.aval for v in eqn.outvars]
        # The lowering has broadcast scalar operands of elementwise operations to the shape of the result.
        shape = self.avals_out[0].shape if eqn.primitive.broadcasts_scalars else ()
        self.avals_in = [a.aval if a.aval.shape else a.aval.with_shape(shape) for a in eqn.invars]
        rule: ShardingRule = eqn.primitive.sharding_rule(*self.avals_in, **eqn.params)
        names = {n for names in (*rule.operands, *rule.results) for n in names}
        sums = {n for n, reduction in rule.reduced.items() if may_all_reduce and reduction == "sum"}
        self.summed = sums - rule.whole
        tensors: list[tuple[ShapedArray, Sequence[Hashable]]] = []
        logical = [*zip(self.avals_in, rule.operands), *zip(self.avals_out, rule.results)]
        for i, (aval, dims) in enumerate(logical):
            physical = physical_aval(aval)  # a random key has one dimension more, for its words
            tensors.append((physical, [*dims, *(("words", i, d) for d in range(physical.ndim - aval.ndim))]))
        # Only sums are reduced across devices. A dimension that is reduced otherwise is gathered, as are dimensions
        # that the sharding rule excludes.
        super().__init__(tensors, len(self.avals_in), (names - rule.whole - rule.reduced.keys()) | self.summed)

    def jaxpr_for(self, shapes: Sequence[tuple[int, ...]]) -> Jaxpr:
        """The jaxpr of the operation alone, for operands of these physical shapes."""
        avals = tuple([a.with_shape(shape[: a.ndim]) for a, shape in zip(self.avals_in, shapes, strict=True)])
        ins = list(map(Var, avals))
        # The results of the shard follow from its operands by the type rule, since parameters do not contain sizes of
        # parallel dimensions.
        outs = list(map(Var, infer_results(self.eqn.primitive, avals, self.eqn.params)))
        return Jaxpr(ins, [self.eqn.replace(invars=ins, outvars=outs)], outs)

    def lower_shards(
        self, shapes: Sequence[tuple[int, ...]], factors: dict[Hashable, FactorSharding], regions: np.ndarray
    ) -> str:
        """See `FactorCall.lower_shards`."""
        num = self.num_operands
        padded: dict[Hashable, np.ndarray] = {}  # for each partition, the number of elements that are not padding
        for (aval, names), shape in zip(self.tensors[:num], shapes, strict=False):
            for size, n, name in zip(aval.shape, shape, names, strict=True):
                if name in factors and n * factors[name].parts > size:
                    padded[name] = np.clip(size - factors[name].coordinates * n, 0, n)
        module = self._lower_to_module(shapes[:num], padded)
        for i, (aval, names) in enumerate(self.tensors[:num]):
            for dim, name in enumerate(names):
                if name in self.summed & padded.keys():
                    _clear_padding(module, i, aval.dtype, dim, padded[name])
        if self.summed & factors.keys():
            _all_reduce_results(module, partition_groups(factors, self.summed, regions))
        return str(module)

    def _lower_to_module(self, shapes: Sequence[tuple[int, ...]], padded: dict[Hashable, np.ndarray]) -> ir.Module:
        """Lower the operation for operands of these shapes; loops do not run for elements that are padding."""
        program = self.jaxpr_for(shapes)
        lower = functools.partial(lower_jaxpr_to_module, platform=self.platform, name="per_shard")
        if not isinstance(self.eqn.primitive, WhileEach) or not padded:
            return lower(program).module
        # The loop of an element that is padding might never end.
        (eqn,) = program.eqns
        num_mapped = len(eqn.params["levels"])
        module = lower(_with_mask(program, eqn.outvars[0].aval.shape[:num_mapped])).module
        for dim, name in enumerate(self.tensors[self.num_operands][1][:num_mapped]):
            if name in padded:
                _clear_padding(module, 0, np.dtype(bool), dim, padded[name])
        _fill_first(module)
        return module


class FactorSharding(NamedTuple):
    """The number of parts that a dimension is divided into, and for each device the part that it holds."""

    parts: int
    coordinates: np.ndarray


def _choose_factor_shardings(
    call: FactorCall, tilings: Sequence[Tiling], regions: np.ndarray
) -> dict[Hashable, FactorSharding]:
    """Choose a sharding for each divisible name: the largest tensor that is sharded along it decides.

    A choice that conflicts with an earlier one (see `_are_compatible`) is dropped, and that dimension is gathered.
    """
    # Large tensors are the expensive ones to reshard, so they choose first.
    candidates: list[tuple[int, Hashable, FactorSharding]] = []
    for i, ((aval, names), tiling) in enumerate(zip(call.tensors, tilings, strict=True)):
        nbytes = math.prod(aval.shape) * aval.dtype.itemsize
        for name, parts, coordinates in zip(names, tiling.parts, tiling.coordinates.T, strict=True):
            if parts > 1 and name in call.divisible and (i < call.num_operands or name not in call.of_operands):
                candidates.append((nbytes, name, FactorSharding(parts, coordinates)))
    chosen: dict[Hashable, FactorSharding] = {}
    for _, name, factor in sorted(candidates, key=lambda candidate: -candidate[0]):
        if name not in chosen and _are_compatible([*chosen.values(), factor], regions):
            chosen[name] = factor
    return chosen


def _are_compatible(factors: Sequence[FactorSharding], regions: np.ndarray) -> bool:
    """Whether each combination of parts is held by the same number of devices."""
    # Otherwise the factors together would not be a sharding: some parts would be held by no device, or by more than
    # others.
    num_groups = math.prod(f.parts for f in factors) * len(np.unique(regions))
    _, counts = np.unique(np.stack([regions, *(f.coordinates for f in factors)]), axis=1, return_counts=True)
    return len(counts) == num_groups and len(set(counts.tolist())) == 1


def partition_groups(factors: dict[Hashable, FactorSharding], summed: set[Hashable], regions: np.ndarray) -> np.ndarray:
    """The partitions that hold the parts along some names, but the same part along all others: i64[groups, members].

    These are, for the names that are summed over, the partitions with the partial sums of one result.
    """
    kept = [f for name, f in factors.items() if name not in summed]
    partial = [f for name, f in factors.items() if name in summed]
    # Sort devices by result, then by partial sum. Devices left equal are replicas, of which each group takes one.
    order = np.lexsort((*(f.coordinates for f in (*partial, *kept)), regions))
    members = math.prod(f.parts for f in partial)
    results = math.prod(f.parts for f in kept) * len(np.unique(regions))
    return order.reshape(results, members, -1).swapaxes(1, 2).reshape(-1, members)


def _clear_padding(module: ir.Module, number: int, dtype: np.dtype, dim: int, held: np.ndarray) -> None:
    """Make the `main` function of a module read an operand as zero behind the elements that a device holds.

    A dimension that is summed over is padded where the devices do not divide it. Zeros add nothing to the sum.

    Args:
      module: the module.
      number, dtype: the number of the operand, and its dtype.
      dim: the dimension.
      held: for each partition the number of elements along the dimension that are not padding.
    """
    with module.context, ir.Location.unknown():
        block = _find_main(module).regions[0].blocks[0]
        x = block.arguments[number]
        with ir.InsertionPoint(block.operations[0]):
            zero = hlo.constant(dense_constant(np.broadcast_to(np.zeros((), dtype), shape_of(x))))
            cleared = select_first({dim: table_entry(held, partition_number())}, x, zero)
        x.replace_all_uses_except(cleared, cleared.owner.operation)


def _with_mask(program: Jaxpr, shape: tuple[int, ...]) -> Jaxpr:
    """A program of one `while_each` with a mask as first input, which tells for which elements loops run."""
    (eqn,) = program.eqns
    mask = Var(ShapedArray(shape, np.dtype(bool)))
    masked = eqn.replace(invars=[mask, *eqn.invars], params=eqn.primitive.with_mask(**eqn.params))
    return Jaxpr([mask, *program.invars], [masked], program.outvars)


def _fill_first(module: ir.Module) -> None:
    """Remove the first input of the `main` function of a module, which reads True everywhere."""
    with module.context, ir.Location.unknown():
        main = _find_main(module)
        block = main.regions[0].blocks[0]
        with ir.InsertionPoint(block.operations[0]):
            shape = ir.RankedTensorType(block.arguments[0].type).shape
            block.arguments[0].replace_all_uses_with(hlo.constant(dense_constant(np.ones(shape, bool))))
        block.erase_argument(0)
        found = ir.TypeAttr(main.attributes["function_type"]).value
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(found.inputs[1:], found.results))
        if "arg_attrs" in main.attributes:
            main.attributes["arg_attrs"] = ir.ArrayAttr.get(list(main.attributes["arg_attrs"])[1:])


def _find_main(module: ir.Module) -> Any:
    return next(op for op in module.body.operations if op.attributes["sym_name"].value == "main")


def _all_reduce_results(module: ir.Module, groups: np.ndarray) -> None:
    """Make the `main` function of a module return the sums of its results over groups of partitions."""
    with module.context, ir.Location.unknown():
        last = list(_find_main(module).regions[0].blocks[0].operations)[-1]
        for i, value in enumerate(last.operands):
            attributes = {
                "replica_groups": ir.DenseElementsAttr.get(np.ascontiguousarray(groups)),
                "channel_handle": hlo.ChannelHandle.get(i + 1, 1),  # XLA assigns new numbers
                "use_global_device_ids": ir.UnitAttr.get(),
            }
            with ir.InsertionPoint(last):
                total = ir.Operation.create(
                    "stablehlo.all_reduce", results=[value.type], operands=[value], attributes=attributes, regions=1
                )
            element = ir.RankedTensorType.get([], ir.RankedTensorType(value.type).element_type)
            with ir.InsertionPoint(total.regions[0].blocks.append(element, element)) as inner:
                hlo.return_([hlo.add(*inner.block.arguments)])
            last.operands[i] = total.results[0]
