"""What the array classes of older programs had, as views of the one `Array`.

`operators` loads them with the methods, which arrays get in the same way. `interpreters.pxla` and
`experimental.global_device_array` give the classes their old names.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from phalanx.core.errors import ShardingError
from phalanx.runtime.array import Array
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec


class _Views:
    """The attributes of `ShardedDeviceArray` and of `GlobalDeviceArray`."""

    shape: tuple[int, ...]
    ndim: int
    sharding: Any
    addressable_shards: list[Any]

    @property
    def sharding_spec(self) -> Any:
        """How the array is cut over a box of devices without names, a `ShardingSpec`.

        A dimension that an axis of the mesh cuts into single elements, as `pmap` does, is `Unstacked`: `indices` and
        `device_buffers` are without it, as they were when programs read them.
        """
        from phalanx.interpreters.sharding_spec import ShardingSpec, Unstacked

        spec = ShardingSpec.of(self.sharding, self.ndim)
        entries = [Unstacked(self.shape[d]) if d in self._rows else entry for d, entry in enumerate(spec.sharding)]
        return ShardingSpec(entries, spec.mesh_mapping)

    @property
    def _rows(self) -> list[int]:
        """The dimensions that are unstacked."""
        if not isinstance(self.sharding, NamedSharding):
            return []
        piece = self.sharding.shard_shape(self.shape)
        return [d for d, axes in enumerate(self.sharding.axes(self.ndim)) if len(axes) == 1 and piece[d] == 1]

    @property
    def indices(self) -> tuple[Any, ...]:
        """What of the whole array each device holds, in the order of `device_buffers`."""
        rows = self._rows
        places = [shard.index for shard in self.sharding.shards(self.shape)]
        return tuple([tuple([s.start or 0 if d in rows else s for d, s in enumerate(place)]) for place in places])

    @property
    def device_buffers(self) -> list[Any]:
        """The pieces on this process's devices, each an array on its device."""
        rows = self._rows
        at = tuple([0 if d in rows else slice(None) for d in range(self.ndim)])
        return [shard.data[at] if rows else shard.data for shard in self.addressable_shards]

    @property
    def device_buffer(self) -> Any:
        """The piece on this process's first device: of an array on one device the array itself."""
        return self.device_buffers[0]

    @property
    def one_replica_buffer_indices(self) -> list[int]:
        """Numbers of those of `device_buffers` that together are the whole array once."""
        return [i for i, shard in enumerate(self.addressable_shards) if shard.replica_id == 0]

    local_shards = property(attrgetter("addressable_shards"))

    def local_data(self, index: int) -> Any:
        """The piece on this process's device number `index`."""
        return self.addressable_shards[index].data

    @property
    def mesh(self) -> Mesh:
        """The mesh that the array lies over."""
        return self._named().mesh  # type: ignore[return-value]  # an array lies on devices, so its mesh has some

    @property
    def mesh_axes(self) -> PartitionSpec:
        """Which axes of the mesh cut which dimension."""
        return self._named().spec

    def _named(self) -> NamedSharding:
        if isinstance(self.sharding, NamedSharding):
            return self.sharding
        raise ShardingError(
            "mesh of an array",
            expected="an array that lies over a mesh",
            got=self.sharding,
            mend="place it with device_put(x, NamedSharding(mesh, spec)), or read x.sharding",
        )


for _name, _view in vars(_Views).items():
    if not _name.startswith("__"):
        setattr(Array, _name, _view)
