"""`SingleDeviceSharding`: an array that is stored on one device."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.engine import Cache, Device, DeviceList, HloSharding, api_boundary_class
from phalanx.sharding.base_sharding import Sharding, intern_sharding, memoize_method
from phalanx.sharding.mesh import Mesh
from phalanx.sharding.tiling import Tiling

_REPLICATED = HloSharding.replicate()


@api_boundary_class
class SingleDeviceSharding(Sharding):
    """A sharding that stores the full array on one device.

    Args:
      device: the device.
      memory_kind: memory kind of the device; its default memory if not given.

    Raises:
      ShardingError: the device does not have this memory kind.

    Examples:
      >>> import phalanx
      >>> SingleDeviceSharding(phalanx.devices()[0]).shard_shape((4, 2))
      (4, 2)
    """

    __slots__ = ("_device_assignment", "_internal_device_list", "device")
    _fields = ("device",)
    device: Device

    def __new__(cls, device: Device, memory_kind: str | None = None) -> SingleDeviceSharding:
        key = (cls, device, memory_kind)
        found: SingleDeviceSharding | None = _shardings.get(key)
        if found is not None:
            return found
        slots = {"_device_assignment": (device,), "_internal_device_list": DeviceList((device,))}
        return intern_sharding(
            _shardings, key, (device,), cls.__name__, device=device, is_fully_replicated=True, **slots
        )

    @memoize_method
    def tiling(self, ndim: int) -> Tiling:
        """See `Sharding.tiling`."""
        return Tiling((1,) * ndim, np.zeros((1, ndim), np.int64))

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> HloSharding:
        return _REPLICATED

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (Mesh([self.device], ("device",)), self.non_default_memory_kind)

    def __repr__(self) -> str:
        return self._format(f"device={self.device!r}")


def _unpickle(mesh: Mesh, memory_kind: str | None) -> SingleDeviceSharding:
    """Unpickle a sharding. Meshes find their devices by id in another process, so the device is stored in a mesh."""
    return SingleDeviceSharding(mesh.flat_devices[0], memory_kind)


_shardings: Cache[Any, SingleDeviceSharding] = Cache("sharding.single_device_shardings", weak="values")
