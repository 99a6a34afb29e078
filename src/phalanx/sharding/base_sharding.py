"""`Sharding`: the interface of all shardings, which describe how the shards of an array are placed on devices.

A subclass provides `tiling`, the device order and XLA's form; everything else (shard shapes, slices, replica ids,
equivalence) is derived from the tiling here. Shardings are interned: equal shardings are the same object, so that
comparison is by identity and hashing is cheap. Different spellings of one placement are different objects with the same
`canonical` sharding. jaxlib's `ShardingBase` prescribes the attributes with a leading underscore.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

from phalanx.core import ShardingError
from phalanx.engine import Cache, Device, DeviceList, HloSharding, ShardingBase, api_boundary
from phalanx.sharding.mesh import is_local
from phalanx.sharding.partition_spec import AxisName
from phalanx.sharding.tiling import Index, Tiling, index_shape, indices, replica_ids, shard_size

# Memoized results per sharding. Programs with many array shapes would otherwise make the table grow without limit.
_MEMO_SIZE = 256
M = TypeVar("M", bound=Callable[..., Any])
S = TypeVar("S", bound="Sharding")


def memoize_method(method: M) -> M:
    """Memoize a method of a sharding per arguments; lists among the arguments are treated as tuples."""

    @functools.wraps(method)
    def wrapper(self: Sharding, *args: Any) -> Any:
        try:
            return self._memo[method, *args]
        except KeyError:
            return self._memoize((method, *args), method(self, *args))
        except TypeError:  # an unhashable shape
            return wrapper(self, *map(tuple, args))

    return cast(M, wrapper)


class ShardIndex(NamedTuple):
    """The shard of an array on one device.

    Args:
      device: the device.
      index: the slices of the unsharded array that the device holds, one for each dimension.
      replica_id: number of preceding devices that hold the same shard.
      shape: the shape of the shard.

    Examples:
      >>> import phalanx
      >>> from phalanx.sharding import SingleDeviceSharding
      >>> (shard,) = SingleDeviceSharding(phalanx.devices()[0]).shards((4, 2))
      >>> shard.index, shard.replica_id, shard.shape
      ((slice(None, None, None), slice(None, None, None)), 0, (4, 2))
    """

    device: Device
    index: Index  # type: ignore[assignment]  # shadows tuple.index, which has no use for this record
    replica_id: int
    shape: tuple[int, ...]


class Sharding(ShardingBase):
    """Describes how the shards of an array are placed on devices. Base class of all shardings.

    Equality is identity. To compare placements independently of their spelling, use `is_equivalent_to`.

    Examples:
      >>> from phalanx.sharding import AbstractMesh, NamedSharding, P
      >>> sharding = NamedSharding(AbstractMesh((2,), ("data",)), P())
      >>> isinstance(sharding, Sharding), sharding.is_fully_replicated
      (True, True)
    """

    __slots__ = ("__weakref__", "_memo", "is_fully_replicated", "memory_kind", "non_default_memory_kind")
    _fields: ClassVar[tuple[str, ...]]  # names of the constructor's arguments except the memory kind
    _memo: dict[Any, Any]
    memory_kind: str | None  # that holds the array; None if the devices have only one kind, or are not attached
    non_default_memory_kind: str | None  # None for the default memory, however it was given
    is_fully_replicated: bool  # whether every device holds the full array
    _internal_device_list: DeviceList  # the devices as jaxlib's list
    _device_assignment: tuple[Device, ...]  # the devices in the order of a program's partitions

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Does nothing: `__new__` initializes a sharding once, before it is interned."""

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> HloSharding:
        """XLA's form of the sharding, for an array with this number of dimensions."""
        raise NotImplementedError

    @api_boundary
    def with_memory_kind(self, kind: str | None) -> Self:
        """The same placement in another memory of the same devices.

        Args:
          kind: a memory kind such as `"device"` or `"pinned_host"`; None for the default memory.

        Returns:
          A sharding.

        Raises:
          ShardingError: the devices do not have this memory kind.
        """
        return type(self)(*[getattr(self, name) for name in self._fields], kind)

    @property
    def canonical(self) -> Self:
        """The representative of all spellings of this placement, for use in cache keys."""
        return self

    @property
    def unreduced_over(self) -> tuple[Any, ...]:
        """The mesh, axes and kind of the combination of terms that devices hold instead of values; () for values."""
        return ()

    @property
    def summed(self) -> Sharding:
        """The sharding of the values that the terms of an unreduced array add up to."""
        return self

    @property
    @memoize_method
    def device_set(self) -> frozenset[Device]:
        """The set of all devices."""
        return frozenset(self._device_assignment)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self._device_assignment)

    @property
    @memoize_method
    def addressable_devices(self) -> frozenset[Device]:
        """The devices of this process."""
        return frozenset(self._addressable_device_assignment)

    @property
    def _addressable_device_assignment(self) -> tuple[Device, ...]:
        """The devices of this process, in the order of a program's partitions."""
        return tuple(filter(is_local, self._device_assignment))

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process owns all devices."""
        return len(self.addressable_devices) == self.num_devices

    def tiling(self, ndim: int) -> Tiling:
        """The shard of each device.

        Args:
          ndim: number of dimensions of the array.

        Returns:
          The number of shards along each dimension, and the coordinates of each device's shard.

        Raises:
          ShardingError: the sharding requires an array with more dimensions.
        """
        raise NotImplementedError

    def shard_shape(self, global_shape: Sequence[int], *, where: str | None = None) -> tuple[int, ...]:
        """Shape of the largest shard of an array.

        Where the number of shards does not divide the size of a dimension, the last shards are smaller, or empty.

        Args:
          global_shape: shape of the unsharded array.
          where: path of the argument for the error message.

        Returns:
          The shape of a shard.

        Raises:
          ShardingError: the sharding requires an array with more dimensions; or it is unreduced, and the number of
            shards does not divide the size of a dimension.
        """
        shape = tuple(global_shape)
        found: tuple[int, ...] | None = self._memo.get(shape)
        if found is not None:
            return found
        where = where or f"sharding of an array of shape {shape}"
        self._check_rank(len(shape), f"an array of shape {shape}", where)
        if self.unreduced_over:
            self.check_even(shape, where)  # Shardy ends the process for uneven terms
        parts = self.tiling(len(shape)).parts
        return cast(
            tuple[int, ...], self._memoize(shape, tuple([n if k == 1 else -(-n // k) for n, k in zip(shape, parts)]))
        )

    @memoize_method
    def padded_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the buffers of an array, which are padded at the end so that all shards have the same size.

        Args:
          global_shape: shape of the unsharded array.

        Returns:
          The shape, with each size rounded up to a multiple of its number of shards; symbolic sizes are unchanged.
        """
        shape = tuple(global_shape)
        if self.is_fully_replicated:
            return shape
        if self.unreduced_over:
            self.check_even(shape, f"unreduced array of shape {shape}")
        parts = self._num_parts(len(shape))
        return tuple([-(-n // k) * k if k > 1 and isinstance(n, int) else n for n, k in zip(shape, parts)])

    def check_even(self, global_shape: Sequence[int], where: str) -> None:
        """Raise ShardingError unless all shards of an array have the same size.

        Args:
          global_shape: shape of the unsharded array.
          where: path of the argument, or name of the operation, for the error message.
        """
        self._check_rank(len(global_shape), f"an array of shape {tuple(global_shape)}", where)
        for dim, (size, parts) in enumerate(zip(global_shape, self._num_parts(len(global_shape)), strict=True)):
            if size % parts:
                shard_size(size, parts, dim, by=self._describe_split(dim), where=where)

    def _num_parts(self, ndim: int) -> Sequence[int]:
        """The number of shards along each dimension; 1 where the compiler chooses."""
        return self.tiling(ndim).parts

    @memoize_method
    def shards(self, global_shape: Sequence[int]) -> tuple[ShardIndex, ...]:
        """The shards of an array: device, slices and replica id of each, in device order.

        Args:
          global_shape: shape of the unsharded array.

        Returns:
          A `ShardIndex` for each device.

        Raises:
          ShardingError: as `shard_shape`.
        """
        shape, tiling = self.shard_shape(global_shape), self.tiling(len(global_shape))
        slices = indices(tiling, global_shape, shape)
        # With shards of one size, which is usual, a shape does not have to be computed for each.
        is_even = self.padded_shape(global_shape) == tuple(global_shape)
        shapes = [shape] * len(slices) if is_even else [index_shape(index, global_shape) for index in slices]
        rows = zip(self._device_assignment, slices, replica_ids(tiling), shapes, strict=True)
        return tuple(map(ShardIndex._make, rows))  # faster than calls with a field each

    @memoize_method
    def addressable_shards(self, global_shape: Sequence[int]) -> tuple[ShardIndex, ...]:
        """Like `shards`, restricted to the devices of this process.

        Args:
          global_shape: shape of the unsharded array.

        Returns:
          A `ShardIndex` for each device of this process.
        """
        local = self.addressable_devices
        return tuple([shard for shard in self.shards(global_shape) if shard.device in local])

    @memoize_method
    def contiguous_order(self, global_shape: Sequence[int]) -> tuple[int, ...] | None:
        """The order of the devices in which their shards concatenate to the row-major buffer of the unsharded array.

        Args:
          global_shape: shape of the unsharded array, padded if its shards are.

        Returns:
          Positions of the devices; None if a shard is not contiguous in the buffer, or has replicas.
        """
        shape, tiling = self.shard_shape(global_shape), self.tiling(len(global_shape))
        innermost = max((dim for dim, parts in enumerate(tiling.parts) if parts > 1), default=0)
        if math.prod(tiling.parts) != self.num_devices or any(size > 1 for size in shape[:innermost]):
            return None
        return tuple(tiling.order.tolist())

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """The slices of the unsharded array that each device holds.

        Args:
          global_shape: shape of the unsharded array.

        Returns:
          For each device a tuple with a slice for each dimension, `slice(None)` for dimensions that are not split.

        Raises:
          ShardingError: as `shard_shape`.
        """
        return {shard.device: shard.index for shard in self.shards(global_shape)}

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """Like `devices_indices_map`, restricted to the devices of this process.

        Args:
          global_shape: shape of the unsharded array.

        Returns:
          For each device of this process a tuple with a slice for each dimension.
        """
        return {shard.device: shard.index for shard in self.addressable_shards(global_shape)}

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether two shardings place every shard of an array on the same device, with devices in the same order.

        Args:
          other: another sharding.
          ndim: number of dimensions of the array.

        Returns:
          True if a buffer with one sharding can be used as a buffer with the other.
        """
        # Interning makes the common case a pointer comparison; only different kinds of shardings compare tilings.
        if self is other or self.canonical is other.canonical:
            return True
        if (
            self._device_assignment != other._device_assignment
            or self.non_default_memory_kind != other.non_default_memory_kind
            or self.unreduced_over != other.unreduced_over
        ):
            return False
        return self.tiling(ndim).is_equal(other.tiling(ndim))

    def tiling_in_order(self, devices: Sequence[Device], ndim: int) -> Tiling:
        """The tiling of this sharding with the devices listed in another order, such as that of a program's partitions.

        Args:
          devices: the devices of the sharding in the other order.
          ndim: number of dimensions of the array.

        Returns:
          The tiling; row `i` of its coordinates belongs to `devices[i]`.
        """
        tiling = self.tiling(ndim)
        position = {device: i for i, device in enumerate(self._device_assignment)}
        return Tiling(tiling.parts, tiling.coordinates[[position[device] for device in devices]])

    def with_dim(self, position: int, axes: AxisName | tuple[AxisName, ...] = None) -> Sharding:
        """The sharding of an array with an additional dimension, as `vmap` inserts it.

        Args:
          position: position of the new dimension.
          axes: the mesh axis, or tuple of axes, that splits the new dimension; None if it is not split, UNCONSTRAINED
            if the compiler chooses. Only a `NamedSharding` has axes.

        Returns:
          The new sharding.

        Raises:
          ShardingError: an axis is unknown to the mesh or splits another dimension.
        """
        if isinstance(axes, (str, tuple)):
            raise ShardingError(
                "vmap of an array with a sharding, spmd_axis_name",
                expected="a NamedSharding, which has axes",
                got=self,
                fix="use NamedSharding(mesh, PartitionSpec(...)) as the sharding of the array",
            )
        return self

    def type_sharding(self, ndim: int) -> Sharding | None:
        """The component of the sharding that belongs to the type of an array: its splits over Explicit mesh axes.

        Args:
          ndim: number of dimensions of the array.

        Returns:
          A `NamedSharding` over the abstract mesh with an entry for each dimension; None if no axis is Explicit.
        """
        return None

    def _format(self, what: str) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"{type(self).__name__}({what}{memory})"

    def _describe_split(self, dim: int) -> str:
        """The reason why a dimension is split, as a clause for error messages."""
        return f"{self._to_xla_hlo_sharding(dim + 1)} splits it"

    def _check_rank(self, ndim: int, what: str, where: str) -> None:
        """Reject an array with fewer dimensions than the sharding requires."""

    def _memoize(self, key: tuple[Any, ...], value: object) -> Any:
        # Dropping everything is simpler than evicting entries, and rare.
        if len(self._memo) >= _MEMO_SIZE:
            self._memo.clear()
        self._memo[key] = value
        return value


def intern_sharding(
    table: Cache[Any, S], key: tuple[Any, ...], devices: Sequence[Device], where: str, **attributes: object
) -> S:
    """The sharding with a key, constructed from `attributes` if it does not exist yet.

    Args:
      table: the sharding objects of one class.
      key: the class, its arguments, and the memory kind as last element.
      devices: the devices, to validate the memory kind.
      where: path of the argument for the error message.
      **attributes: values of the slots of the class.

    Returns:
      The sharding, an instance of `key[0]`.

    Raises:
      ShardingError: the devices do not have this memory kind.
    """
    cls, *arguments, memory_kind = key
    _check_memory_kind(devices, memory_kind, where)
    if memory_kind is not None and devices and memory_kind == devices[0].default_memory().kind:
        memory_kind = None  # a different spelling of the same placement

    def make() -> S:
        sharding = ShardingBase.__new__(cls)
        ShardingBase.__init__(sharding)
        for name, value in (attributes | {"_memo": {}, "non_default_memory_kind": memory_kind}).items():
            setattr(sharding, name, value)
        # An attribute, since jaxlib reads it twice in each transfer. Placeholder devices have no memories.
        is_attached = bool(devices) and hasattr(devices[0], "default_memory")
        default = sharding._internal_device_list.default_memory_kind if is_attached else None
        sharding.memory_kind = memory_kind or default
        return cast(S, sharding)

    return table.get_or_make((cls, *arguments, memory_kind), make)


def _check_memory_kind(devices: Sequence[Device], kind: str | None, where: str) -> None:
    if kind is None or not devices:
        return
    kinds = [memory.kind for memory in devices[0].addressable_memories()]
    if kinds and kind not in kinds:
        raise ShardingError(
            where,
            expected=f"a memory kind of {devices[0].device_kind} devices ({', '.join(map(repr, kinds))})",
            got=f"memory_kind={kind!r}",
            fix=f"pass memory_kind={kinds[0]!r}, or omit memory_kind to use the default memory",
        )
