"""Shardings as attributes of the Shardy dialect, with which modules are annotated.

Builds on the engine's MLIR bindings; called by the lowering of programs, inside an MLIR context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ShardingError
from phalanx.engine import Device, cached_per_context, ir, sdy
from phalanx.sharding import (
    UNCONSTRAINED,
    AbstractMesh,
    AxisName,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    UnreducedKind,
    check_rank,
)


def sdy_sharding(module: Any, sharding: Sharding, ndim: int, *, open_dims: Sequence[int] = ()) -> ir.Attribute:
    """Convert a sharding to Shardy, declaring its mesh in the module.

    Args:
      module: the module's state: the `module` itself, `meshes` (the symbol of each declared mesh) and
        `device_assignment` (the devices in partition order; None if the order of the mesh is right).
      sharding, ndim: the sharding, and the rank of the array.
      open_dims: dimensions that the partitioner may shard further, besides the unconstrained ones.

    Raises:
      ShardingError: the spec is longer than `ndim`, or the mesh has other devices than the program.
    """
    name = _declare_mesh(module, sharding.mesh) if isinstance(sharding, NamedSharding) else ""
    return to_sdy(sharding, ndim, name, open_dims=open_dims)


def sdy_type(module: Any, sharding: NamedSharding, ndim: int) -> ir.Attribute:
    """Convert the sharding in an array's type: the partitioner may shard further, except over Explicit axes."""
    explicit = sharding.mesh.explicit_axes
    if len(explicit) == len(sharding.mesh.axis_names):
        return sdy_sharding(module, sharding, ndim)
    sharding = sharding.with_spec(sharding.spec.select_axes(explicit, ndim))
    return to_sdy(
        sharding,
        ndim,
        _declare_mesh(module, sharding.mesh),
        open_dims=range(ndim),
        whole=[a for a in explicit if a not in sharding.spec.axes and a not in sharding.spec.unreduced],
    )


def _declare_mesh(module: Any, mesh: Mesh | AbstractMesh) -> str:
    """Declare a mesh in the module on first use; returns its symbol."""
    attribute = to_sdy_mesh(mesh, module.device_assignment)
    name = module.meshes.get(attribute)
    if name is None:
        name = module.meshes[attribute] = f"mesh_{len(module.meshes)}" if module.meshes else "mesh"
        with ir.InsertionPoint.at_block_begin(module.module.body):
            sdy.MeshOp(name, attribute)
    return name


def to_sdy_mesh(mesh: Mesh | AbstractMesh, devices: Sequence[Device] | None = None) -> ir.Attribute:
    """Convert a mesh, with device ids if their order differs from the program's `devices`.

    Raises:
      ShardingError: the mesh has other devices than the program.
    """
    axes = [sdy.MeshAxisAttr.get(str(name), size) for name, size in mesh.shape.items()]
    if devices is None or isinstance(mesh, AbstractMesh) or tuple(devices) == mesh.flat_devices:
        return sdy.MeshAttr.get(axes)
    # Partitions are numbered in the order of the program's devices, but a mesh may have them in another order.
    place = {device: at for at, device in enumerate(devices)}
    if place.keys() != mesh.device_set:
        raise ShardingError(
            "lowering of a program",
            expected=f"meshes over the {len(place)} devices that the program runs on",
            got=str(mesh),
            fix="use meshes of the same devices for all arguments and constraints of the program",
        )
    return sdy.MeshAttr.get(axes, [place[device] for device in mesh.flat_devices])


def to_sdy(
    sharding: Sharding,
    ndim: int,
    mesh_name: str = "mesh",
    *,
    open_dims: Sequence[int] = (),
    whole: Sequence[AxisName] = (),
) -> ir.Attribute:
    """Convert a sharding over a mesh declared as `mesh_name`; the axes `whole` must not shard any other dimension."""
    if isinstance(sharding, NamedSharding):
        check_rank(sharding.spec, ndim, f"an array of {ndim} dimensions", where="NamedSharding")
        dims = [
            sdy.DimensionShardingAttr.get(
                [] if axes is UNCONSTRAINED else [sdy.AxisRefAttr.get(str(axis)) for axis in axes],
                axes is not UNCONSTRAINED and dim not in open_dims,
            )
            for dim, axes in enumerate(sharding.spec.axes_per_dim(ndim))
        ]
        replicated = [sdy.AxisRefAttr.get(str(axis)) for axis in whole]
        # In the order of the mesh, as Shardy requires.
        terms = [sdy.AxisRefAttr.get(str(axis)) for axis in sharding.mesh.axis_names if axis in sharding.spec.unreduced]
        return sdy.TensorShardingAttr.get(mesh_name, dims, replicated, terms, **_reduction_op(sharding.spec))
    if isinstance(sharding, GSPMDSharding) and not sharding.is_fully_replicated:
        return _tiled_sharding(sharding, ndim)
    return sdy_replicated(ndim, tuple(open_dims))


def _reduction_op(spec: PartitionSpec) -> dict[str, Any]:
    """The argument of a Shardy sharding that says how the terms of an unreduced array are combined."""
    kind = spec.unreduced_kind
    if kind is None or kind is UnreducedKind.sum:
        return {}
    if not hasattr(sdy, "ReductionOp"):
        raise ShardingError(
            "lowering of an unreduced array",
            expected="terms of a sum; other kinds need jaxlib 0.11 or later",
            got=spec,
            fix="upgrade jaxlib, or reduce the array inside a shard_map with lax.pmax or lax.pmin",
        )
    return {"reduction_op": getattr(sdy.ReductionOp, kind.name.upper())}


@cached_per_context
def sdy_replicated(ndim: int, open_dims: tuple[int, ...] = ()) -> ir.Attribute:
    """The replicated sharding, except for dimensions that the partitioner may shard."""
    # No axis is named, so any mesh fits; this one has no axes and needs no declaration.
    return sdy.TensorShardingAttr.get(
        sdy.MeshAttr.get([]), [sdy.DimensionShardingAttr.get([], dim not in open_dims) for dim in range(ndim)]
    )


def _tiled_sharding(sharding: GSPMDSharding, ndim: int) -> ir.Attribute:
    """A mesh with one axis for each sharded dimension, and one for the replicas."""
    tiling = sharding.tiling(ndim)
    names = [f"_dim_{dim}" for dim in range(ndim)]
    cut = [dim for dim in range(ndim) if tiling.parts[dim] > 1]
    axes = [sdy.MeshAxisAttr.get(names[dim], tiling.parts[dim]) for dim in cut]
    replicas = sharding.num_devices // int(np.prod(tiling.parts))
    axes += [sdy.MeshAxisAttr.get("_replicas", replicas)] if replicas > 1 else []
    # As in `tiling_to_hlo`: devices sorted by the shard they hold are the devices of that mesh in row-major order.
    order = tiling.order.tolist()
    mesh = sdy.MeshAttr.get(axes, [] if order == sorted(order) else order)
    refs = [[sdy.AxisRefAttr.get(names[dim])] if dim in cut else [] for dim in range(ndim)]
    return sdy.TensorShardingAttr.get(mesh, [sdy.DimensionShardingAttr.get(ref, True) for ref in refs])
