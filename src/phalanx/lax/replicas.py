"""Replicas: collectives in StableHLO, among the devices of a mesh.

Inside a `shard_map` the module that is being emitted knows the mesh and its manual axes (`Manual`); from these and the
axes of a collective follow the groups of devices that take part together. Called by the lowering of `named_axes`,
`collectives` and `exchanges`; `spmd` sets the stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray
from phalanx.core.errors import UnboundAxisError
from phalanx.engine.mlir import hlo, i64, ir, sdy
from phalanx.runtime.shardy import sdy_sharding
from phalanx.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec


class Manual:
    """Where in a mesh the program that is being emitted runs on one device at a time.

    Args:
      mesh: the mesh.
      axes: those of its axes that are manual.
      devices: in the order in which partitions are numbered; None where the order of the mesh will do.
    """

    def __init__(self, mesh: Mesh | AbstractMesh, axes: frozenset, devices: Sequence[Any] | None):
        self.mesh, self.axes = mesh, axes
        numbers = np.arange(mesh.size, dtype=np.int64)
        self.is_in_order = devices is None or isinstance(mesh, AbstractMesh) or tuple(devices) == mesh.flat_devices
        if not self.is_in_order:
            place = {device: number for number, device in enumerate(devices)}
            numbers = np.array([place[device] for device in mesh.flat_devices], np.int64)
        self.numbers = numbers.reshape(mesh.axis_sizes)  # of the partitions, by position in the mesh
        # Where the partitioner keeps some axes it knows no number of a partition: the place of this device along a
        # manual axis is then an operand, i32[1].
        self.places: dict[Any, Any] = {}
        self.replicas: dict[tuple, Replicas] = {}  # found already, by axes and groups

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manual) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        """What programs emitted here depend on, so that those emitted alike are shared."""
        return (self.mesh, self.axes) if self.is_whole else (id(self),)

    @property
    def is_whole(self) -> bool:
        """Whether no axis of more than one device is left to the partitioner."""
        return all(size == 1 or name in self.axes for name, size in self.mesh.shape.items())

    def groups(self, axes: tuple) -> np.ndarray:
        """The partitions that differ in their positions along `axes` only: i64[groups, members]."""
        dims = [self.mesh.axis_names.index(name) for name in axes]
        members = math.prod(self.mesh.axis_sizes[d] for d in dims)
        return np.ascontiguousarray(np.moveaxis(self.numbers, dims, range(-len(dims), 0)).reshape(-1, members))


class Replicas:
    """The groups of devices among which one collective runs.

    Args:
      groups: numbers of partitions, i64[groups, members]; rows of smaller groups end in -1.
    """

    def __init__(self, groups: np.ndarray):
        self.groups = groups
        self.attribute = ir.DenseElementsAttr.get(groups)

    @classmethod
    def of(cls, ctx: Any, name: str, axes: tuple, groups: tuple | None) -> Replicas:
        """Those of a collective over `axes`.

        Raises:
          UnboundAxisError: the program that is being emitted does not run under a `shard_map` over these axes.
        """
        manual = _manual(ctx, name, axes)
        found = manual.replicas.get((axes, groups))
        if found is None:
            rows = manual.groups(axes)
            if groups is not None:
                longest = max(map(len, groups))
                parts = [[*row[list(g)], *[-1] * (longest - len(g))] for row in rows for g in groups]
                rows = np.array(parts, np.int64)
            found = manual.replicas[axes, groups] = cls(rows)
        return found

    @property
    def count(self) -> int:
        """How many devices take part together at most."""
        return self.groups.shape[1]

    def _attributes(self, ctx: Any) -> dict:
        return {
            "replica_groups": self.attribute,
            "channel_handle": _channel(ctx),
            "use_global_device_ids": ir.UnitAttr.get(),
        }

    def _combining(self, ctx: Any, operation: str, x: Any, result: Any, combine: Any, attributes: dict) -> Any:
        """An operation with a region in which two elements are combined."""
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

    def all_reduce(self, ctx: Any, x: Any, combine: Any) -> Any:
        """Combine what all have by an operation such as `hlo.AddOp`."""
        if self.count == 1:
            return x
        return self._combining(ctx, "stablehlo.all_reduce", x, x.type, combine, {})

    def all_gather(self, ctx: Any, x: Any, dim: int) -> Any:
        """What all have, side by side along a new dimension."""
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

    def reduce_scatter(self, ctx: Any, x: Any, dim: int) -> Any:
        """This device's slice of the sum of what all have."""
        shape = list(ir.RankedTensorType(x.type).shape)
        if self.count > 1:
            result = _like(x, [*shape[:dim], 1, *shape[dim + 1 :]])
            x = self._combining(ctx, "stablehlo.reduce_scatter", x, result, hlo.AddOp, {"scatter_dimension": i64(dim)})
        return _reshape(x, [*shape[:dim], *shape[dim + 1 :]])

    def all_to_all(self, ctx: Any, x: Any, split: int, concat: int) -> Any:
        """Slice `j` along `split` goes to device `j`; what arrives stands along `concat`."""
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
        order = [d for d in range(ir.RankedTensorType(x.type).rank) if d != split]
        order.insert(concat, split)
        return x if order == sorted(order) else hlo.transpose(x, order)

    def permute(self, ctx: Any, x: Any, pairs: tuple) -> Any:
        """Send what each has to another, by pairs (from, to) of places in the group."""
        if self.count == 1 and pairs:
            return x
        table = [(row[here], row[there]) for row in self.groups for here, there in pairs]
        return ir.Operation.create(
            "stablehlo.collective_permute",
            results=[x.type],
            operands=[x],
            attributes={
                "source_target_pairs": ir.DenseElementsAttr.get(np.array(table, np.int64).reshape(-1, 2)),
                "channel_handle": _channel(ctx),
            },
        ).results[0]


def by_one_of_each_group(ctx: Any, emit: Callable, operands: Sequence[Any], results: Sequence[ShapedArray]) -> list:
    """Emit operations that one of the devices runs which the partitioner keeps together; all get its results.

    Args:
      ctx: of a program that runs on each device by itself along some axes of its mesh, but not along all.
      emit: takes IR values and gives IR values.
      operands: IR values, which each of these devices gets whole.
      results: types of what `emit` gives; at least one.

    Returns:
      IR values.
    """
    module, outer = ctx.module, ctx.module.manual
    mesh, kept = outer.mesh, tuple(name for name in outer.mesh.axis_names if name not in outer.axes)
    inner = Manual(mesh, frozenset(mesh.axis_names), module.device_assignment)
    types = [ctx.type(a) for a in results]

    def whole(values: Sequence[Any]) -> Any:
        ranks = [ir.RankedTensorType(getattr(x, "type", x)).rank for x in values]
        each = [sdy_sharding(module, NamedSharding(mesh, PartitionSpec()), rank) for rank in ranks]
        return sdy.TensorShardingPerValueAttr.get(each)

    axes = sdy.ManualAxesAttr.get([ir.StringAttr.get(str(name)) for name in kept])
    op = sdy.ManualComputationOp(types, operands, whole(operands), whole(types), axes)
    block = op.body.blocks.append(*[x.type for x in operands])
    groups = inner.groups(kept)
    is_first = np.zeros(mesh.size, np.int32)
    is_first[groups[:, 0]] = 1
    constants, ctx.constants, module.manual = ctx.constants, {}, inner
    with ir.InsertionPoint(block):
        choice = hlo.CaseOp(types, _entry_of_device(ctx, is_first), num_branches=2)
        ctx.region([], choice, lambda: [ctx.constant(np.zeros(a.shape, a.dtype), a) for a in results], 0)
        ctx.region([], choice, lambda: emit(*block.arguments), 1)
        shared = Replicas(groups)
        # All others have zeros, so that sums are what the one has.
        sums = [hlo.OrOp if a.dtype == bool else hlo.AddOp for a in results]
        out = [shared.all_reduce(ctx, x, add) for x, add in zip(choice.results, sums)]
        sdy.ReturnOp(out)
    ctx.constants, module.manual = constants, outer
    return list(op.results)


def _entry_of_device(ctx: Any, table: np.ndarray) -> Any:
    """The entry of a table i32[devices] for the device that runs the program: i32[]."""
    number = hlo.convert(ctx.type(ShapedArray((), np.dtype(np.int32))), hlo.partition_id())
    return _reshape(hlo.dynamic_slice(ctx.constant(table), [number], [1]), [])


def place_of_device(ctx: Any, name: str, axis: Any) -> Any:
    """The position of this device along a mesh axis: i32[]."""
    manual = _manual(ctx, name, (axis,))
    dim = manual.mesh.axis_names.index(axis)
    scalar = ShapedArray((), np.dtype(np.int32))
    if manual.mesh.axis_sizes[dim] == 1:
        return ctx.constant(np.int32(0), scalar)
    if not manual.is_whole:
        return _reshape(manual.places[axis], [])
    number = hlo.convert(ctx.type(scalar), hlo.partition_id())
    sizes = manual.mesh.axis_sizes
    if manual.is_in_order:
        along = hlo.divide(number, ctx.constant(np.int32(math.prod(sizes[dim + 1 :])), scalar))
        return hlo.remainder(along, ctx.constant(np.int32(sizes[dim]), scalar))
    places = np.empty(manual.mesh.size, np.int32)
    places[manual.numbers.reshape(-1)] = np.indices(sizes)[dim].reshape(-1)
    return _reshape(hlo.dynamic_slice(ctx.constant(places), [number], [1]), [])


def _manual(ctx: Any, name: str, axes: tuple) -> Manual:
    manual = ctx.module.manual
    if manual is None or not manual.axes.issuperset(axes):
        shown = ", ".join(map(repr, axes))
        raise UnboundAxisError(
            f"lax.{name} over {shown}",
            expected="a function whose vmap gives these axes their members",
            got="a program that runs outside of it",
            mend=f"run it under vmap(..., axis_name={axes[0]!r})",
        )
    return manual


def _channel(ctx: Any) -> Any:
    return hlo.ChannelHandle.get(next(ctx.module.channels), 1)


def _like(x: Any, shape: Sequence[int]) -> Any:
    return ir.RankedTensorType.get(shape, ir.RankedTensorType(x.type).element_type)


def _reshape(x: Any, shape: Sequence[int]) -> Any:
    return hlo.reshape(_like(x, shape), x)
