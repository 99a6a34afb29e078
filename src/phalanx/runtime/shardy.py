"""Shardings as attributes of the Shardy dialect, with which programs are annotated.

Builds on the engine's MLIR bindings; called by the lowering of programs, inside an MLIR context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.errors import ShardingError
from phalanx.engine.mlir import ir, per_context, sdy
from phalanx.sharding.mesh import AbstractMesh, Device, Mesh
from phalanx.sharding.shardings import GSPMDSharding, NamedSharding, Sharding
from phalanx.sharding.spec import UNCONSTRAINED, AxisName, check_rank


def sdy_sharding(module: Any, sharding: Sharding, ndim: int, *, open_dims: Sequence[int] = ()) -> ir.Attribute:
    """A sharding as Shardy has it, its mesh declared in the module.

    Args:
      module: what the functions of the module share: the `module` itself, `meshes` (the symbol of each mesh declared
        so far) and `device_assignment` (the devices in the order in which partitions are numbered; None where the
        order of the mesh will do).
      sharding, ndim: the sharding, and the rank of the array.
      open_dims: dimensions that the compiler may cut further, besides the unconstrained ones.

    Raises:
      ShardingError: the spec is longer than `ndim`, or the mesh is of other devices than the program.
    """
    name = _declared_mesh(module, sharding.mesh) if isinstance(sharding, NamedSharding) else ""
    return to_sdy(sharding, ndim, name, open_dims=open_dims)


def sdy_type(module: Any, sharding: NamedSharding, ndim: int) -> ir.Attribute:
    """The sharding in an array's type as Shardy has it: the compiler may cut further, but not over Explicit axes."""
    explicit = sharding.mesh.explicit_axes
    if len(explicit) == len(sharding.mesh.axis_names):
        return sdy_sharding(module, sharding, ndim)
    free = [axis for axis in explicit if axis not in sharding.spec.axes]
    return to_sdy(sharding, ndim, _declared_mesh(module, sharding.mesh), open_dims=range(ndim), whole=free)


def _declared_mesh(module: Any, mesh: Mesh | AbstractMesh) -> str:
    """The symbol of a mesh, declared in the module on first use."""
    attribute = to_sdy_mesh(mesh, module.device_assignment)
    name = module.meshes.get(attribute)
    if name is None:
        name = module.meshes[attribute] = f"mesh_{len(module.meshes)}" if module.meshes else "mesh"
        with ir.InsertionPoint.at_block_begin(module.module.body):
            sdy.MeshOp(name, attribute)
    return name


def to_sdy_mesh(mesh: Mesh | AbstractMesh, devices: Sequence[Device] | None = None) -> ir.Attribute:
    """A mesh as Shardy has it, with device ids where their order differs from the program's `devices`.

    Raises:
      ShardingError: the mesh is of other devices than the program.
    """
    axes = [sdy.MeshAxisAttr.get(str(name), size) for name, size in mesh.shape.items()]
    if devices is None or isinstance(mesh, AbstractMesh) or tuple(devices) == mesh.flat_devices:
        return sdy.MeshAttr.get(axes)
    place = {device: at for at, device in enumerate(devices)}
    if place.keys() != mesh.device_set:
        raise ShardingError(
            "lowering of a program",
            expected=f"meshes over the {len(place)} devices that the program runs on",
            got=mesh,
            mend="use one set of devices for all arguments, constraints and meshes of a program",
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
    """As `sdy_sharding`, for a mesh declared as `mesh_name` already, over whose axes `whole` nothing more is cut."""
    if isinstance(sharding, NamedSharding):
        check_rank(sharding.spec, ndim, f"an array of {ndim} dimensions", where="NamedSharding")
        dims = []
        for dim, axes in enumerate(sharding.spec.padded(ndim)):
            refs = [sdy.AxisRefAttr.get(str(axis)) for axis in axes] if axes is not UNCONSTRAINED else []
            is_closed = axes is not UNCONSTRAINED and dim not in open_dims
            dims.append(sdy.DimensionShardingAttr.get(refs, is_closed))
        return sdy.TensorShardingAttr.get(mesh_name, dims, [sdy.AxisRefAttr.get(str(axis)) for axis in whole])
    if isinstance(sharding, GSPMDSharding) and not sharding.is_fully_replicated:
        return _tiled(sharding, ndim)
    return sdy_whole(ndim, tuple(open_dims))


@per_context
def sdy_whole(ndim: int, open_dims: tuple[int, ...] = ()) -> ir.Attribute:
    """What is whole but for the dimensions that the compiler may cut, as Shardy has it."""
    dims = [sdy.DimensionShardingAttr.get([], dim not in open_dims) for dim in range(ndim)]
    # Nothing names an axis, so any mesh will do: one without axes, written in place.
    return sdy.TensorShardingAttr.get(sdy.MeshAttr.get([]), dims)


def _tiled(sharding: GSPMDSharding, ndim: int) -> ir.Attribute:
    """One mesh axis per dimension that is cut, and one for the replicas."""
    tiling = sharding.tiling(ndim)
    names = [f"_dim_{dim}" for dim in range(ndim)]
    cut = [dim for dim in range(ndim) if tiling.parts[dim] > 1]
    axes = [sdy.MeshAxisAttr.get(names[dim], tiling.parts[dim]) for dim in cut]
    replicas = sharding.num_devices // int(np.prod(tiling.parts))
    if replicas > 1:
        axes.append(sdy.MeshAxisAttr.get("_replicas", replicas))
    # As in `hlo_of_tiling`, devices sorted by the part they hold are the devices of that mesh in row-major order.
    order = tiling.order.tolist()
    mesh = sdy.MeshAttr.get(axes, [] if order == sorted(order) else order)
    refs = [[sdy.AxisRefAttr.get(names[dim])] if dim in cut else [] for dim in range(ndim)]
    return sdy.TensorShardingAttr.get(mesh, [sdy.DimensionShardingAttr.get(ref, True) for ref in refs])
