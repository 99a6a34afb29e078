"""`GSPMDSharding`: a placement as XLA describes it, and the conversion of a program's shardings into ours.

XLA may choose placements that no `PartitionSpec` over the user's mesh expresses; these become a `GSPMDSharding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.engine import Cache, Device, DeviceList, HloSharding
from phalanx.sharding.base_sharding import Sharding, intern_sharding, memoize_method
from phalanx.sharding.hlo_conversion import hlo_to_tiling, tiling_to_hlo, tiling_to_spec
from phalanx.sharding.mesh import Mesh
from phalanx.sharding.named_sharding import NamedSharding
from phalanx.sharding.partition_spec import AxisName
from phalanx.sharding.single_device_sharding import SingleDeviceSharding
from phalanx.sharding.tiling import Tiling


class GSPMDSharding(Sharding):
    """A sharding defined by XLA's tile assignment.

    Args:
      devices: the devices in the order of the program's partitions.
      hlo_sharding: the tile assignment, in partition numbers.
      memory_kind: memory kind of the devices; the default memory if not given.

    Raises:
      ShardingError: the devices do not have this memory kind.

    Examples:
      >>> import phalanx
      >>> sharding = GSPMDSharding(phalanx.devices(), HloSharding.replicate())
      >>> sharding.is_fully_replicated, sharding.shard_shape((4, 2))
      (True, (4, 2))
    """

    __slots__ = ("_device_assignment", "_internal_device_list", "hlo_sharding")
    _fields = ("_device_assignment", "hlo_sharding")
    hlo_sharding: HloSharding

    def __new__(
        cls, devices: Sequence[Device], hlo_sharding: HloSharding, memory_kind: str | None = None
    ) -> GSPMDSharding:
        devices = tuple(devices)
        key = (cls, devices, hlo_sharding, memory_kind)
        found: GSPMDSharding | None = _shardings.get(key)
        if found is not None:
            return found
        is_replicated = len(devices) == 1 or hlo_sharding.is_replicated()
        slots = {"_device_assignment": devices, "_internal_device_list": DeviceList(devices)}
        return intern_sharding(
            _shardings,
            key,
            devices,
            cls.__name__,
            hlo_sharding=hlo_sharding,
            is_fully_replicated=is_replicated,
            **slots,
        )

    @classmethod
    def replicated(cls, devices: Sequence[Device]) -> GSPMDSharding:
        """The sharding that replicates an array, of any number of dimensions, on all devices."""
        return cls(devices, HloSharding.replicate())

    def with_dim(self, position: int, axes: AxisName | tuple[AxisName, ...] = None) -> Sharding:
        """See `Sharding.with_dim`."""
        if self.is_fully_replicated or isinstance(axes, (str, tuple)):
            return super().with_dim(position, axes)
        hlo = self.hlo_sharding
        # The tile assignment has a dimension for each array dimension and one for each subgroup.
        ndim = hlo.num_dimensions() - len(hlo.subgroup_types()) - bool(hlo.replicate_on_last_tile_dim())
        tiling = self.tiling(ndim)
        parts = (*tiling.parts[:position], 1, *tiling.parts[position:])
        wider = Tiling(parts, np.insert(tiling.coordinates, position, 0, axis=1))
        return GSPMDSharding(self._device_assignment, tiling_to_hlo(wider), self.non_default_memory_kind)

    @memoize_method
    def tiling(self, ndim: int) -> Tiling:
        """See `Sharding.tiling`."""
        return hlo_to_tiling(self.hlo_sharding, self.num_devices, ndim)

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> HloSharding:
        return self.hlo_sharding

    def __repr__(self) -> str:
        return self._format(f"{len(self._device_assignment)} devices, {self.hlo_sharding}")


def from_hlo_sharding(hlo: HloSharding, devices: Sequence[Device], mesh: Mesh | None, ndim: int) -> Sharding:
    """Convert the sharding of a compiled program's parameter or result, if possible to a spec over a mesh.

    Args:
      hlo: the sharding of a parameter or result.
      devices: the devices of the program in the order of its partitions.
      mesh: the mesh, if any; it may list the same devices in another order.
      ndim: number of dimensions of the array.

    Returns:
      A `NamedSharding` over `mesh` if a spec over it is equivalent; a `SingleDeviceSharding` if there is one device and
      no mesh with it; a `GSPMDSharding` otherwise.

    Examples:
      >>> from phalanx.sharding import make_mesh
      >>> mesh = make_mesh((1,), ("x",))
      >>> from_hlo_sharding(HloSharding.replicate(), list(mesh.devices.flat), mesh, ndim=2).spec
      P()
    """
    devices = tuple(devices)
    if mesh is None or mesh.device_set != frozenset(devices):
        return SingleDeviceSharding(devices[0]) if len(devices) == 1 else GSPMDSharding(devices, hlo)
    # Compared in the mesh's device order, since a program may number its partitions in another one.
    tiled = GSPMDSharding(devices, hlo)
    spec = tiling_to_spec(tiled.tiling_in_order(mesh.flat_devices, ndim), mesh.axis_names, mesh.axis_sizes)
    return tiled if spec is None else NamedSharding(mesh, spec)


def reorder_devices(sharding: Sharding, devices: Sequence[Device], ndim: int) -> Sharding:
    """The same placement described with the devices in another order, such as that of a program's partitions.

    Args:
      sharding: the sharding.
      devices: its devices in the other order.
      ndim: number of dimensions of the array.

    Returns:
      An equivalent sharding whose device order is `devices`.

    Examples:
      >>> from phalanx.sharding import make_mesh, P
      >>> sharding = NamedSharding(make_mesh((2,), ("x",)), P("x"))
      >>> backwards = sharding._device_assignment[::-1]
      >>> reorder_devices(sharding, backwards, ndim=1).tiling(1).coordinates.tolist()
      [[1], [0]]
    """
    order = tuple(devices)
    if sharding._device_assignment == order:
        return sharding
    return GSPMDSharding(order, tiling_to_hlo(sharding.tiling_in_order(order, ndim)), sharding.non_default_memory_kind)


_shardings: Cache[Any, GSPMDSharding] = Cache("sharding.gspmd_shardings", weak="values")
