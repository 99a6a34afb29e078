"""Attributes of the array classes `ShardedDeviceArray` and `GlobalDeviceArray` of older JAX versions.

`array_methods` installs them on `Array`. `interpreters.pxla` and `experimental.global_device_array` export the class
under its old names.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from phalanx.core import ShardingError
from phalanx.runtime.array import Array
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.sharding.sharding_spec import ShardingSpec, Unstacked


class _Views:
    """The attributes of `ShardedDeviceArray` and `GlobalDeviceArray`, copied to `Array` below."""

    shape: tuple[int, ...]
    ndim: int
    sharding: Any
    addressable_shards: list[Any]

    @property
    def sharding_spec(self) -> Any:
        """The sharding as a `ShardingSpec`: shards over an unnamed grid of devices.

        A dimension that a mesh axis splits into single elements, as `pmap` does, is `Unstacked`: `indices` and
        `device_buffers` then leave it out, as they did in older versions.
        """
        spec = ShardingSpec.of(self.sharding, self.ndim)
        entries = [
            Unstacked(self.shape[d]) if d in self._unstacked_dims else entry for d, entry in enumerate(spec.sharding)
        ]
        return ShardingSpec(entries, spec.mesh_mapping)

    @property
    def _unstacked_dims(self) -> list[int]:
        """The dimensions of which every shard holds one element."""
        if not isinstance(self.sharding, NamedSharding):
            return []
        shard_shape = self.sharding.shard_shape(self.shape)
        return [d for d, axes in enumerate(self.sharding.axes(self.ndim)) if len(axes) == 1 and shard_shape[d] == 1]

    @property
    def indices(self) -> tuple[Any, ...]:
        """The index of each device's shard in the global array, in the order of `device_buffers`."""
        unstacked = self._unstacked_dims
        indices = [shard.index for shard in self.sharding.shards(self.shape)]
        return tuple([tuple([s.start or 0 if d in unstacked else s for d, s in enumerate(index)]) for index in indices])

    @property
    def device_buffers(self) -> list[Any]:
        """The addressable shards, each an array on its device."""
        unstacked = self._unstacked_dims
        at = tuple([0 if d in unstacked else slice(None) for d in range(self.ndim)])
        return [shard.data[at] if unstacked else shard.data for shard in self.addressable_shards]

    @property
    def device_buffer(self) -> Any:
        """The first addressable shard; for an array on one device, the array itself."""
        return self.device_buffers[0]

    @property
    def one_replica_buffer_indices(self) -> list[int]:
        """Positions of the `device_buffers` that together hold each element exactly once."""
        return [i for i, shard in enumerate(self.addressable_shards) if shard.replica_id == 0]

    local_shards = property(attrgetter("addressable_shards"))

    def local_data(self, index: int) -> Any:
        """The addressable shard number `index`."""
        return self.addressable_shards[index].data

    @property
    def mesh(self) -> Mesh:
        """The mesh over which the array is sharded."""
        # An array is on devices, so that its mesh is not abstract.
        return self._require_named_sharding().mesh  # type: ignore[return-value]

    @property
    def mesh_axes(self) -> PartitionSpec:
        """The mesh axes over which each dimension is sharded."""
        return self._require_named_sharding().spec

    def _require_named_sharding(self) -> NamedSharding:
        if isinstance(self.sharding, NamedSharding):
            return self.sharding
        raise ShardingError(
            "mesh of an array",
            expected="an array that is sharded over a mesh",
            got=self.sharding,
            fix="place it with device_put(x, NamedSharding(mesh, spec)), or read x.sharding",
        )


for _name, _view in vars(_Views).items():
    if not _name.startswith("__"):
        setattr(Array, _name, _view)
