"""`GlobalDeviceArray`, the former class of arrays over a mesh, constructs `Array`s; `isinstance` accepts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.engine.traceback_filtering import guard_namespace as _guard
from phalanx.runtime import Array, Shard as Shard, transfer
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.spmd.make_array import make_array_from_callback, make_array_from_single_device_arrays


# A metaclass, because `isinstance(x, C)` looks up `__instancecheck__` on the type of `C`.
class _ArrayCheck(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Array)


class GlobalDeviceArray(metaclass=_ArrayCheck):
    """Create an `Array` over a mesh from its shards.

    Args:
      global_shape: shape of the unsharded array.
      global_mesh: the mesh.
      mesh_axes: a `PartitionSpec`, or a sequence of its entries.
      device_buffers: the shard on each device of this process.

    Examples:
      >>> import numpy as np, phalanx
      >>> mesh = phalanx.make_mesh((4,), ("x",))
      >>> whole = np.arange(8)
      >>> gda = GlobalDeviceArray.from_callback((8,), mesh, ["x"], lambda index: whole[index])
      >>> isinstance(gda, GlobalDeviceArray), gda.mesh_axes, gda.local_data(1).tolist()
      (True, P('x',), [2, 3])
    """

    def __new__(  # type: ignore[misc]  # the constructor returns an instance of another class
        cls,
        global_shape: Sequence[int],
        global_mesh: Mesh,
        mesh_axes: PartitionSpec | Sequence[Any],
        device_buffers: Sequence[Array],
    ) -> Array:
        return make_array_from_single_device_arrays(global_shape, _sharding(global_mesh, mesh_axes), device_buffers)

    @classmethod
    def from_callback(
        cls,
        global_shape: Sequence[int],
        global_mesh: Mesh,
        mesh_axes: PartitionSpec | Sequence[Any],
        data_callback: Callable[[Any], Any],
    ) -> Array:
        """Create an array from a function that computes its shards.

        Args:
          global_shape, global_mesh, mesh_axes: as for the class.
          data_callback: a function from a tuple of slices of the unsharded array to the values in it, called once for
            each distinct shard on the devices of this process.

        Returns:
          The array.
        """
        return make_array_from_callback(global_shape, _sharding(global_mesh, mesh_axes), data_callback)

    @classmethod
    def from_batched_callback(
        cls,
        global_shape: Sequence[int],
        global_mesh: Mesh,
        mesh_axes: PartitionSpec | Sequence[Any],
        data_callback: Callable[[Any], Any],
    ) -> Array:
        """Create an array from a function that computes all shards in one call.

        Args:
          global_shape, global_mesh, mesh_axes: as for the class.
          data_callback: called with a list of tuples of slices, one for each device of this process; returns a list of
            shards.

        Returns:
          The array.
        """
        sharding = _sharding(global_mesh, mesh_axes)
        indices = sharding.addressable_devices_indices_map(global_shape)
        pairs = zip(indices, data_callback(list(indices.values())), strict=True)
        # The callback returns host values; each goes to its device before the array is assembled.
        shards = [transfer.put(x, transfer.single_device_sharding(device)) for device, x in pairs]
        return make_array_from_single_device_arrays(global_shape, sharding, shards)

    @classmethod
    def from_batched_callback_with_devices(
        cls,
        global_shape: Sequence[int],
        global_mesh: Mesh,
        mesh_axes: PartitionSpec | Sequence[Any],
        data_callback: Callable[[Any], Any],
    ) -> Array:
        """Create an array from a function that transfers the shards to their devices itself.

        Args:
          global_shape, global_mesh, mesh_axes: as for the class.
          data_callback: called with a list of pairs: a tuple of slices, and the tuple of this process's devices that
            hold this shard; returns the arrays on all these devices, in that order.

        Returns:
          The array.
        """
        sharding = _sharding(global_mesh, mesh_axes)
        holders: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}
        for device, index in sharding.addressable_devices_indices_map(global_shape).items():
            # Slices are not hashable before Python 3.12.
            key = tuple([(part.start, part.stop) for part in index])
            holders.setdefault(key, (index, []))[1].append(device)
        shards = data_callback([(index, tuple(devices)) for index, devices in holders.values()])
        return make_array_from_single_device_arrays(global_shape, sharding, shards)


def get_shard_indices(
    global_shape: Sequence[int], global_mesh: Mesh, mesh_axes: PartitionSpec | Sequence[Any]
) -> dict[Any, Any]:
    """The slices of the unsharded array that each device holds.

    Args:
      global_shape, global_mesh, mesh_axes: as for `GlobalDeviceArray`.

    Returns:
      A dict from device to tuple of slices.

    Examples:
      >>> import phalanx
      >>> mesh = phalanx.make_mesh((1,), ("x",))
      >>> list(get_shard_indices((4, 2), mesh, ["x"]).values())
      [(slice(None, None, None), slice(None, None, None))]
    """
    return _sharding(global_mesh, mesh_axes).devices_indices_map(global_shape)


def get_shard_shape(
    global_shape: Sequence[int], global_mesh: Mesh, mesh_axes: PartitionSpec | Sequence[Any]
) -> tuple[int, ...]:
    """Shape of the shard that each device holds.

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


def _sharding(mesh: Mesh, mesh_axes: PartitionSpec | Sequence[Any]) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*mesh_axes), where="GlobalDeviceArray, mesh_axes")


_guard(globals())
