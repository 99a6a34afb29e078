"""`GlobalDeviceArray`, the array over a mesh of programs of 2022: a way to make and to recognise the one `Array`.

Builds on `spmd.placement`, which assembles the pieces; the attributes of old arrays are those of
`numpy.legacy_views`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.engine.frames import guard as _guard
from phalanx.runtime import placement
from phalanx.runtime.array import Array
from phalanx.runtime.array import Shard as Shard
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.spmd.placement import make_array_from_callback, make_array_from_single_device_arrays


class _Recognising(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Array)


class GlobalDeviceArray(metaclass=_Recognising):
    """Make an array over a mesh of pieces that lie on its devices; what is made is an `Array`.

    Args:
      global_shape: shape of the whole array.
      global_mesh: the mesh.
      mesh_axes: which axes of the mesh cut which dimension: a `PartitionSpec`, or a sequence of its entries.
      device_buffers: for each device of this process, the piece on it.

    Examples:
      >>> import numpy as np, phalanx
      >>> mesh = phalanx.make_mesh((4,), ("x",))
      >>> whole = np.arange(8)
      >>> gda = GlobalDeviceArray.from_callback((8,), mesh, ["x"], lambda index: whole[index])
      >>> isinstance(gda, GlobalDeviceArray), gda.mesh_axes, gda.local_data(1).tolist()
      (True, PartitionSpec('x'), [2, 3])
    """

    def __new__(  # type: ignore[misc]  # this class names what the one Array is made of
        cls, global_shape: Sequence[int], global_mesh: Mesh, mesh_axes: Any, device_buffers: Sequence[Array]
    ) -> Array:
        return make_array_from_single_device_arrays(global_shape, _sharding(global_mesh, mesh_axes), device_buffers)

    @classmethod
    def from_callback(
        cls, global_shape: Sequence[int], global_mesh: Mesh, mesh_axes: Any, data_callback: Callable[[Any], Any]
    ) -> Array:
        """Make an array whose pieces a function gives.

        Args:
          global_shape, global_mesh, mesh_axes: as for the class.
          data_callback: called once for each piece that a device of this process holds, with a tuple of slices of the
            whole array; gives the values.

        Returns:
          The array.
        """
        return make_array_from_callback(global_shape, _sharding(global_mesh, mesh_axes), data_callback)

    @classmethod
    def from_batched_callback(
        cls, global_shape: Sequence[int], global_mesh: Mesh, mesh_axes: Any, data_callback: Callable[[Any], Any]
    ) -> Array:
        """Make an array whose pieces a function gives all at once.

        Args:
          global_shape, global_mesh, mesh_axes: as for the class.
          data_callback: called with the indices of this process's devices, gives as many pieces.

        Returns:
          The array.
        """
        sharding = _sharding(global_mesh, mesh_axes)
        places = sharding.addressable_devices_indices_map(global_shape)
        pieces = data_callback(list(places.values()))
        put = [placement.put(x, placement.on_device(d)) for d, x in zip(places, pieces, strict=True)]
        return make_array_from_single_device_arrays(global_shape, sharding, put)

    @classmethod
    def from_batched_callback_with_devices(
        cls, global_shape: Sequence[int], global_mesh: Mesh, mesh_axes: Any, data_callback: Callable[[Any], Any]
    ) -> Array:
        """Make an array of pieces that a function puts on their devices itself.

        Args:
          global_shape, global_mesh, mesh_axes: as for the class.
          data_callback: called with a list of pairs, an index and the tuple of this process's devices that hold it;
            gives the arrays on all these devices, in that order.

        Returns:
          The array.
        """
        sharding = _sharding(global_mesh, mesh_axes)
        holders: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}
        for device, index in sharding.addressable_devices_indices_map(global_shape).items():
            key = tuple([(part.start, part.stop) for part in index])
            holders.setdefault(key, (index, []))[1].append(device)
        pieces = data_callback([(index, tuple(devices)) for index, devices in holders.values()])
        return make_array_from_single_device_arrays(global_shape, sharding, pieces)


def get_shard_indices(global_shape: Sequence[int], global_mesh: Mesh, mesh_axes: Any) -> dict[Any, Any]:
    """The slices of the whole array that each device holds.

    Args:
      global_shape, global_mesh, mesh_axes: as for `GlobalDeviceArray`.

    Returns:
      A tuple of slices for every device.

    Examples:
      >>> import phalanx
      >>> mesh = phalanx.make_mesh((1,), ("x",))
      >>> list(get_shard_indices((4, 2), mesh, ["x"]).values())
      [(slice(None, None, None), slice(None, None, None))]
    """
    return _sharding(global_mesh, mesh_axes).devices_indices_map(global_shape)


def get_shard_shape(global_shape: Sequence[int], global_mesh: Mesh, mesh_axes: Any) -> tuple[int, ...]:
    """Shape of the piece that each device holds.

    Args:
      global_shape, global_mesh, mesh_axes: as for `GlobalDeviceArray`.

    Returns:
      The shape.

    Examples:
      >>> import phalanx
      >>> get_shard_shape((4, 2), phalanx.make_mesh((1,), ("x",)), ["x"])
      (4, 2)
    """
    return _sharding(global_mesh, mesh_axes).shard_shape(global_shape)


def _sharding(mesh: Mesh, mesh_axes: Any) -> NamedSharding:
    spec = mesh_axes if isinstance(mesh_axes, PartitionSpec) else PartitionSpec(*mesh_axes)
    return NamedSharding(mesh, spec, where="GlobalDeviceArray, mesh_axes")


_guard(globals())
