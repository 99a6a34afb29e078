"""Collectives in StableHLO: replica groups among the devices of a mesh, and the operations that run among them.

Inside a `shard_map`, the module being lowered has a `ManualRegion`: the mesh and its manual axes. The replica groups of
a collective follow from these and the axes of the collective. `spmd` enters manual regions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ShapedArray, UnboundAxisError
from phalanx.engine.mlir import hlo, i64, ir, sdy
from phalanx.runtime import LoweringContext, sdy_sharding
from phalanx.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from phalanx.typing import ArrayLike


class ManualRegion:
    """The manual region of a program: inside a `shard_map`, operations run on each device separately.

    Args:
      mesh: the mesh.
      axes: its manual axes.
      devices: the devices in the order of partition numbers; None for the order of the mesh.
    """

    def __init__(self, mesh: Mesh | AbstractMesh, axes: frozenset, devices: Sequence[Any] | None):
        self.mesh, self.axes = mesh, axes
        numbers = np.arange(mesh.size, dtype=np.int64)
        self.is_in_order = devices is None or isinstance(mesh, AbstractMesh) or tuple(devices) == mesh.flat_devices
        if not self.is_in_order:
            place = {device: number for number, device in enumerate(devices)}
            numbers = np.array([place[device] for device in mesh.flat_devices], np.int64)
        self.numbers = numbers.reshape(mesh.axis_sizes)  # partition numbers, by position in the mesh
        # While the partitioner handles some axes, partition-id is not available inside the region. The index of this
        # device along each manual axis is then an operand of the region, i32[1].
        self.places: dict[Any, Any] = {}
        self.replicas: dict[tuple, ReplicaGroups] = {}  # cache, by axes and groups

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ManualRegion) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        """The key under which functions lowered in equal regions are shared."""
        return (self.mesh, self.axes) if self.is_whole else (id(self),)

    @property
    def is_whole(self) -> bool:
        """Whether all axes of more than one device are manual."""
        return all(size == 1 or name in self.axes for name, size in self.mesh.shape.items())

    def groups(self, axes: tuple) -> np.ndarray:
        """Groups of partitions whose positions differ only along `axes`: i64[groups, members]."""
        dims = [self.mesh.axis_names.index(name) for name in axes]
        members = math.prod(self.mesh.axis_sizes[d] for d in dims)
        return np.ascontiguousarray(np.moveaxis(self.numbers, dims, range(-len(dims), 0)).reshape(-1, members))


class ReplicaGroups:
    """The groups of devices that take part in one collective.

    Args:
      groups: partition numbers, i64[groups, members]; smaller groups are padded with -1.
    """

    def __init__(self, groups: np.ndarray):
        self.groups = groups
        self.attribute = ir.DenseElementsAttr.get(groups)

    @classmethod
    def of(cls, ctx: LoweringContext, name: str, axes: tuple, groups: tuple | None) -> ReplicaGroups:
        """The replica groups of a collective over `axes`.

        Raises:
          UnboundAxisError: the program is not lowered inside a `shard_map` over these axes.
        """
        manual = _manual(ctx, name, axes)
        # Programs repeat the same collectives, and building the attribute takes longer than the look-up.
        found = manual.replicas.get((axes, groups))
        if found is None:
            # Rows are the groups over whole axes; user groups divide each of them by positions along the axis.
            rows = manual.groups(axes)
            if groups is not None:
                longest = max(map(len, groups))
                rows = np.array([[*row[list(g)], *[-1] * (longest - len(g))] for row in rows for g in groups], np.int64)
            found = manual.replicas[axes, groups] = cls(rows)
        return found

    @property
    def count(self) -> int:
        """The number of devices in the largest group."""
        return self.groups.shape[1]

    def _attributes(self, ctx: LoweringContext) -> dict:
        # A global id is replica * partitions + partition. Programs have one replica, so it is the partition number.
        return {
            "replica_groups": self.attribute,
            "channel_handle": _channel(ctx),
            "use_global_device_ids": ir.UnitAttr.get(),
        }

    def _reduction(
        self, ctx: LoweringContext, operation: str, x: ArrayLike, result: Any, combine: Any, attributes: dict
    ) -> Any:
        """An operation with a region that combines two elements."""
        op = ir.Operation.create(
            operation, results=[result], operands=[x], attributes=self._attributes(ctx) | attributes, regions=1
        )
        element = ir.RankedTensorType.get([], ir.RankedTensorType(x.type).element_type)
        block = op.regions[0].blocks.append(element, element)
        with ir.InsertionPoint(block):
            both = ir.Operation.create(
                combine.OPERATION_NAME, results=[element], operands=list(block.arguments)
            ).results[0]
            ir.Operation.create("stablehlo.return", operands=[both])
        return op.results[0]

    def all_reduce(self, ctx: LoweringContext, x: ArrayLike, combine: Any) -> Any:
        """Combine the values of all devices by an operation such as `hlo.AddOp`."""
        if self.count == 1:
            return x
        return self._reduction(ctx, "stablehlo.all_reduce", x, x.type, combine, {})

    def all_gather(self, ctx: LoweringContext, x: ArrayLike, dim: int) -> Any:
        """Stack the values of all devices along a new dimension."""
        shape = list(ir.RankedTensorType(x.type).shape)
        x = _reshape(x, [*shape[:dim], 1, *shape[dim:]])
        if self.count == 1:
            return x
        return ir.Operation.create(
            "stablehlo.all_gather",
            results=[_like(x, [*shape[:dim], self.count, *shape[dim:]])],
            operands=[x],
            attributes=self._attributes(ctx) | {"all_gather_dim": i64(dim)},
        ).results[0]

    def reduce_scatter(self, ctx: LoweringContext, x: ArrayLike, dim: int) -> Any:
        """This device's slice of the sum over all devices."""
        shape = list(ir.RankedTensorType(x.type).shape)
        if self.count > 1:
            result = _like(x, [*shape[:dim], 1, *shape[dim + 1 :]])
            x = self._reduction(ctx, "stablehlo.reduce_scatter", x, result, hlo.AddOp, {"scatter_dimension": i64(dim)})
        return _reshape(x, [*shape[:dim], *shape[dim + 1 :]])

    def all_to_all(self, ctx: LoweringContext, x: ArrayLike, split: int, concat: int) -> Any:
        """Send slice `j` along `split` to device `j`; stack the received slices along `concat`."""
        if self.count > 1:
            x = ir.Operation.create(
                "stablehlo.all_to_all",
                results=[x.type],
                operands=[x],
                attributes={
                    "split_dimension": i64(split),
                    "concat_dimension": i64(split),
                    "split_count": i64(self.count),
                    "replica_groups": self.attribute,
                    "channel_handle": _channel(ctx),
                },
            ).results[0]
        # StableHLO concatenates the received slices along `split`; the transposition moves them to `concat`.
        order = [d for d in range(ir.RankedTensorType(x.type).rank) if d != split]
        order.insert(concat, split)
        return x if order == sorted(order) else hlo.transpose(x, order)

    def permute(self, ctx: LoweringContext, x: ArrayLike, pairs: tuple) -> Any:
        """Send the value of each device to another one, by pairs (source, target) of positions in the group."""
        if self.count == 1 and pairs:
            return x
        table = [(row[source], row[target]) for row in self.groups for source, target in pairs]
        return ir.Operation.create(
            "stablehlo.collective_permute",
            results=[x.type],
            operands=[x],
            attributes={
                "source_target_pairs": ir.DenseElementsAttr.get(np.array(table, np.int64).reshape(-1, 2)),
                "channel_handle": _channel(ctx),
            },
        ).results[0]


def run_on_one_device_per_group(
    ctx: LoweringContext, emit: Callable, operands: Sequence[Any], results: Sequence[ShapedArray]
) -> list:
    """Lower operations that one device of each group runs, where a group are the devices along the non-manual axes.

    All devices of a group receive the results: the devices that do not run the operations have zeros, and the results
    are summed over the group.

    Args:
      ctx: the context of a program whose region is manual over some axes of the mesh, but not over all.
      emit: from IR values to IR values.
      operands: IR values, which are replicated within a group.
      results: the types of the results; at least one.

    Returns:
      The IR values of the results.
    """
    module, outer = ctx.module, ctx.module.manual
    mesh, kept = outer.mesh, tuple(name for name in outer.mesh.axis_names if name not in outer.axes)
    inner = ManualRegion(mesh, frozenset(mesh.axis_names), module.device_assignment)
    types = [ctx.type(a) for a in results]

    def whole(values: Sequence[Any]) -> Any:
        replicated = NamedSharding(mesh, PartitionSpec())
        ranks = (ir.RankedTensorType(getattr(x, "type", x)).rank for x in values)
        return sdy.TensorShardingPerValueAttr.get([sdy_sharding(module, replicated, rank) for rank in ranks])

    axes = sdy.ManualAxesAttr.get([ir.StringAttr.get(str(name)) for name in kept])
    op = sdy.ManualComputationOp(types, operands, whole(operands), whole(types), axes)
    block = op.body.blocks.append(*[x.type for x in operands])
    groups = inner.groups(kept)
    is_first = np.zeros(mesh.size, np.int32)
    is_first[groups[:, 0]] = 1
    # Constants cannot be shared across the boundary of the region.
    constants, ctx.constants, module.manual = ctx.constants, {}, inner
    with ir.InsertionPoint(block):
        choice = hlo.CaseOp(types, _entry_of_device(ctx, is_first), num_branches=2)
        ctx.region([], choice, lambda: [ctx.constant(np.zeros(a.shape, a.dtype), a) for a in results], 0)
        ctx.region([], choice, lambda: emit(*block.arguments), 1)
        shared = ReplicaGroups(groups)
        # Devices that skip the operations have zeros, so the sum is the result of the device that runs them.
        sums = [hlo.OrOp if a.dtype == bool else hlo.AddOp for a in results]
        out = [shared.all_reduce(ctx, x, add) for x, add in zip(choice.results, sums)]
        sdy.ReturnOp(out)
    ctx.constants, module.manual = constants, outer
    return list(op.results)


def _entry_of_device(ctx: LoweringContext, table: np.ndarray) -> Any:
    """The entry of a table i32[partitions] for the current device: i32[]."""
    number = hlo.convert(ctx.type(ShapedArray((), np.dtype(np.int32))), hlo.partition_id())
    return _reshape(hlo.dynamic_slice(ctx.constant(table), [number], [1]), [])


def axis_index_of_device(ctx: LoweringContext, name: str, axis: Any) -> Any:
    """The index of the current device along a mesh axis: i32[]."""
    manual = _manual(ctx, name, (axis,))
    dim = manual.mesh.axis_names.index(axis)
    scalar = ShapedArray((), np.dtype(np.int32))
    if manual.mesh.axis_sizes[dim] == 1:
        return ctx.constant(np.int32(0), scalar)
    # Inside a partially manual region partition-id is not available, and the index is an operand of the region.
    if not manual.is_whole:
        return _reshape(manual.places[axis], [])
    sizes = manual.mesh.axis_sizes
    # In mesh order the index follows from the partition number; otherwise it is looked up in a table.
    if manual.is_in_order:
        number = hlo.convert(ctx.type(scalar), hlo.partition_id())
        along = hlo.divide(number, ctx.constant(np.int32(math.prod(sizes[dim + 1 :])), scalar))
        return hlo.remainder(along, ctx.constant(np.int32(sizes[dim]), scalar))
    places = np.empty(manual.mesh.size, np.int32)
    places[manual.numbers.reshape(-1)] = np.indices(sizes)[dim].reshape(-1)
    return _entry_of_device(ctx, places)


def _manual(ctx: LoweringContext, name: str, axes: tuple) -> ManualRegion:
    manual = ctx.module.manual
    if manual is None or not manual.axes.issuperset(axes):
        raise UnboundAxisError(
            f"lax.{name} over {', '.join(map(repr, axes))}",
            expected="a program inside the vmap or shard_map that binds these axes",
            got="a program outside of it",
            fix=f"call it under vmap(..., axis_name={axes[0]!r})",
        )
    return manual


def _channel(ctx: LoweringContext) -> Any:
    # Type 1 is DEVICE_TO_DEVICE. Without a channel XLA would read the groups as replicas instead of partitions.
    return hlo.ChannelHandle.get(next(ctx.module.channels), 1)


def _like(x: ArrayLike, shape: Sequence[int]) -> Any:
    return ir.RankedTensorType.get(shape, ir.RankedTensorType(x.type).element_type)


def _reshape(x: ArrayLike, shape: Sequence[int]) -> Any:
    return hlo.reshape(_like(x, shape), x)
