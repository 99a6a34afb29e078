"""Shardings: how an array lies on devices. Base class, over a mesh, on one device, and as XLA has it.

Builds on `mesh.py`, `spec.py`, `tiling.py` and `hlo.py`. Every room above holds shardings, and the engine reads their
underscored attributes. All are interned, so that equality is identity and hashing costs nothing; two spellings of one
placement share their `canonical` sharding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

import numpy as np

from phalanx.core.errors import ArgumentTypeError, ShardingError
from phalanx.engine.buffers import ShardingBase
from phalanx.engine.client import DeviceList
from phalanx.engine.frames import boundaries, boundary
from phalanx.engine.interned import Interned
from phalanx.engine.partitioner import HloSharding
from phalanx.sharding.hlo import hlo_of_axes, hlo_of_tiling, spec_of_tiling, tiling_of_hlo
from phalanx.sharding.mesh import AbstractMesh, Device, Mesh, is_local
from phalanx.sharding.spec import UNCONSTRAINED, UNSPECIFIED, PartitionSpec, check_rank, check_spec
from phalanx.sharding.tiling import Index, Tiling, indices, mixed_radix, part_size, replica_ids

_MEMO_SIZE = 256
M = TypeVar("M", bound=Callable[..., Any])


def _remembered(make: M) -> M:
    """Keep what a method of a sharding gives for each of its arguments; shapes may also be lists."""

    @functools.wraps(make)
    def method(self: Sharding, *args: Any) -> Any:
        try:
            return self._memo[make, *args]
        except KeyError:
            return self._keep((make, *args), make(self, *args))
        except TypeError:
            return method(self, *map(tuple, args))

    return cast(M, method)


class ShardIndex(NamedTuple):
    """One device's part of an array: the device, the slices it holds, and how many devices before it hold the same.

    Args:
      device: the device.
      index: a tuple of slices, one for each dimension.
      replica_id: how many devices before it hold the same.

    Examples:
      >>> import phalanx
      >>> (part,) = SingleDeviceSharding(phalanx.devices()[0]).shards((4, 2))
      >>> part.index, part.replica_id
      ((slice(None, None, None), slice(None, None, None)), 0)
    """

    device: Device
    index: Index  # type: ignore[assignment]  # the field's name for it; nobody searches this tuple
    replica_id: int


class Sharding(ShardingBase):
    """How an array lies on devices. All shardings have these attributes and methods.

    `is` and `==` mean the same, and a sharding is a cheap dictionary key; `is_equivalent_to` compares placements.

    Examples:
      >>> from phalanx.sharding import AbstractMesh, P
      >>> sharding = NamedSharding(AbstractMesh((2,), ("data",)), P())
      >>> isinstance(sharding, Sharding), sharding.is_fully_replicated
      (True, True)
    """

    __slots__ = ("__weakref__", "_memo", "is_fully_replicated", "memory_kind")
    _fields: ClassVar[tuple[str, ...]]  # what it is made of, besides the memory kind
    _memo: dict[Any, Any]
    memory_kind: str | None
    is_fully_replicated: bool  # whether every device holds the whole array
    _internal_device_list: DeviceList  # the devices in the engine's form
    _device_assignment: tuple[Device, ...]  # the devices in the order in which partitions are numbered

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """All is done in `__new__`, once for each interned sharding."""

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> HloSharding:
        """XLA's form, for an array of that rank."""
        raise NotImplementedError

    @boundary
    def with_memory_kind(self, kind: str | None) -> Self:
        """The same placement in another memory of the same devices.

        Args:
          kind: such as `"device"` or `"pinned_host"`; None is the default memory.

        Returns:
          A sharding.

        Raises:
          ShardingError: the devices have no such memory.
        """
        return type(self)(*[getattr(self, name) for name in self._fields], kind)

    @property
    def canonical(self) -> Self:
        """The one sharding for all spellings of this placement: a key for what depends on the placement only."""
        is_named = self.memory_kind is not None and self.memory_kind == _default_memory(self)
        return self.with_memory_kind(None) if is_named else self

    @property
    @_remembered
    def device_set(self) -> frozenset[Device]:
        """The devices without their order."""
        return frozenset(self._device_assignment)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self._device_assignment)

    @property
    @_remembered
    def addressable_devices(self) -> frozenset[Device]:
        """The devices of this process."""
        return frozenset(filter(is_local, self._device_assignment))

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are of this process."""
        return len(self.addressable_devices) == self.num_devices

    def tiling(self, ndim: int) -> Tiling:
        """Which part of an array each device holds.

        Args:
          ndim: number of dimensions of the array.

        Returns:
          Number of parts per dimension, and the coordinates of each device's part.

        Raises:
          ShardingError: the sharding is for arrays of higher rank.
        """
        raise NotImplementedError  # each kind of sharding has its own

    def shard_shape(self, global_shape: Sequence[int], *, where: str | None = None) -> tuple[int, ...]:
        """Shape of the part that one device holds.

        Args:
          global_shape: shape of the whole array.
          where: the argument by its path, for the error.

        Returns:
          The shape of each part.

        Raises:
          ShardingError: a dimension cannot be cut evenly, or the sharding is for arrays of higher rank.
        """
        shape = tuple(global_shape)
        if (found := self._memo.get(shape)) is not None:
            return found
        where = where or f"sharding of an array of shape {shape}"
        self._check_rank(len(shape), f"an array of shape {shape}", where)
        sizes = [
            size if cut == 1 else part_size(size, cut, dim, by=self._cut_by(dim), where=where)
            for dim, (size, cut) in enumerate(zip(shape, self.tiling(len(shape)).parts, strict=True))
        ]
        return self._keep(shape, tuple(sizes))

    @_remembered
    def shards(self, global_shape: Sequence[int]) -> tuple[ShardIndex, ...]:
        """Device, index and replica id of every part of an array of that shape, in the order of the devices.

        Args:
          global_shape: shape of the whole array.

        Returns:
          A `ShardIndex` for each device.

        Raises:
          ShardingError: as `shard_shape`.
        """
        part_shape, tiling = self.shard_shape(global_shape), self.tiling(len(global_shape))
        rows = zip(self._device_assignment, indices(tiling, global_shape, part_shape), replica_ids(tiling), strict=True)
        return tuple([ShardIndex(*row) for row in rows])

    @_remembered
    def runs(self, global_shape: Sequence[int]) -> tuple[int, ...] | None:
        """How the parts of an array of that shape lie one after another in row-major memory.

        Args:
          global_shape: shape of the whole array.

        Returns:
          The positions of the devices in the order of their parts; None where a part is not one run of elements, or
          where several devices hold it.
        """
        part_shape, tiling = self.shard_shape(global_shape), self.tiling(len(global_shape))
        innermost = max((dim for dim, count in enumerate(tiling.parts) if count > 1), default=0)
        if math.prod(tiling.parts) != self.num_devices or any(size > 1 for size in part_shape[:innermost]):
            return None
        return tuple(tiling.order.tolist())

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """The slices of an array of that shape that each device holds, `slice(None)` for dimensions that are not cut.

        Args:
          global_shape: shape of the whole array.

        Returns:
          For each device a tuple of slices, one for each dimension.

        Raises:
          ShardingError: as `shard_shape`.
        """
        return {shard.device: shard.index for shard in self.shards(global_shape)}

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """As `devices_indices_map`, for the devices of this process.

        Args:
          global_shape: shape of the whole array.

        Returns:
          For each of these devices a tuple of slices, one for each dimension.
        """
        local = self.addressable_devices
        return {shard.device: shard.index for shard in self.shards(global_shape) if shard.device in local}

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether two shardings place an array of that rank alike, on the same devices in the same order.

        Args:
          other: another sharding.
          ndim: number of dimensions of the array.

        Returns:
          True if so; then a buffer of one is a buffer of the other.
        """
        if self is other or self.canonical is other.canonical:
            return True
        if self._device_assignment != other._device_assignment or _memory(self) != _memory(other):
            return False
        return self.tiling(ndim).is_equal(other.tiling(ndim))

    def in_order(self, devices: Sequence[Device], ndim: int) -> Sharding:
        """The same placement with its devices in another order, as a program numbers its partitions."""
        order = tuple(devices)
        if self._device_assignment == order:
            return self
        return GSPMDSharding(order, hlo_of_tiling(self._tiling_in_order(order, ndim)), self.memory_kind)

    def _tiling_in_order(self, devices: tuple[Device, ...], ndim: int) -> Tiling:
        tiling = self.tiling(ndim)
        place = {device: at for at, device in enumerate(self._device_assignment)}
        return Tiling(tiling.parts, tiling.coordinates[[place[device] for device in devices]])

    def with_dim(self, position: int, axes: Any = None) -> Sharding:
        """The sharding of an array with one more dimension, as `vmap` makes it.

        Args:
          position: where the new dimension stands.
          axes: the mesh axis or tuple of axes that cut it; None leaves it whole, UNCONSTRAINED to the compiler. Only a
            `NamedSharding` can say anything but None.

        Raises:
          ShardingError: an axis is not of the mesh, or cuts another dimension already.
        """
        if isinstance(axes, (str, tuple)):
            raise ShardingError(
                "vmap of an array with a sharding, spmd_axis_name",
                expected="a NamedSharding, which has axes",
                got=self,
                mend="give NamedSharding(mesh, PartitionSpec(...))",
            )
        return self

    def as_type(self, ndim: int) -> NamedSharding | None:
        """What belongs to the type of an array: what is split over the Explicit axes of a mesh, one entry a dimension.

        None where no axis is Explicit.
        """
        return None

    def _printed(self, what: str) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind!r}"
        return f"{type(self).__name__}({what}{memory})"

    def _cut_by(self, dim: int) -> str:
        """How a dimension is cut, in words."""
        return f"{self._to_xla_hlo_sharding(dim + 1)} cuts it"

    def _check_rank(self, ndim: int, what: str, where: str) -> None:
        """Reject an array of too low a rank."""

    def _keep(self, key: tuple, value: Any) -> Any:
        if len(self._memo) >= _MEMO_SIZE:
            self._memo.clear()
        self._memo[key] = value
        return value


@boundaries
class NamedSharding(Sharding):
    """An array cut over the named axes of a mesh.

    Args:
      mesh: the devices, or an `AbstractMesh`, with which the sharding describes but cannot place.
      spec: which axes cut which dimension.
      memory_kind: the memory of the devices, the default one if not given.

    Raises:
      ShardingError: the spec does not fit the mesh, or the devices have no such memory.
      ArgumentTypeError: an argument is no mesh or no spec.

    Examples:
      >>> from phalanx.sharding import AbstractMesh, P
      >>> sharding = NamedSharding(AbstractMesh((4, 2), ("data", "model")), P("data", None))
      >>> sharding.shard_shape((512, 64))
      (128, 64)
    """

    __slots__ = _fields = ("mesh", "spec")
    mesh: Mesh | AbstractMesh
    spec: PartitionSpec

    def __new__(
        cls, mesh: Mesh | AbstractMesh, spec: PartitionSpec, memory_kind: str | None = None, *, where: str | None = None
    ) -> NamedSharding:
        if isinstance(spec, PartitionSpec):
            key = (cls, mesh, spec._entries, memory_kind)
            if (found := _shardings.get(key)) is not None:
                return found
        _check_named(mesh, spec, where or "NamedSharding")
        devices = mesh.flat_devices if isinstance(mesh, Mesh) else ()
        is_whole = all(axes is not UNCONSTRAINED and all(mesh.shape[a] == 1 for a in axes) for axes in spec.dims)
        return _interned(key, devices, where or "NamedSharding", mesh=mesh, spec=spec, is_fully_replicated=is_whole)

    @property
    @_remembered
    def canonical(self) -> NamedSharding:
        """As `Sharding.canonical`."""
        placed = super().canonical if isinstance(self.mesh, Mesh) else self
        return placed.with_spec(self.spec.canonical)

    @property
    def _concrete_mesh(self) -> Mesh:
        if isinstance(self.mesh, Mesh):
            return self.mesh
        raise ShardingError(
            "devices of a sharding",
            expected="a sharding over a Mesh of devices",
            got=self,
            mend="build the sharding over a Mesh, for example phalanx.make_mesh(...), to place data with it",
        )

    @property
    def _internal_device_list(self) -> DeviceList:
        return self._concrete_mesh.device_list

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        return self._concrete_mesh.flat_devices

    @property
    def device_set(self) -> frozenset[Device]:
        """The devices without their order."""
        return self._concrete_mesh.device_set

    @property
    def num_devices(self) -> int:
        """Number of devices of the mesh."""
        return self.mesh.size

    def axes(self, ndim: int) -> tuple[tuple[Any, ...], ...]:
        """The axes that cut each dimension of an array, from major to minor.

        Raises:
          ShardingError: the spec is longer than `ndim`, or leaves a dimension to the compiler.
        """
        check_rank(self.spec, ndim, f"an array of {ndim} dimensions", where="NamedSharding")
        if self.spec.has_unconstrained:
            raise ShardingError(
                "NamedSharding",
                expected="a spec that says where each part of an array is",
                got=self.spec,
                mend="use PartitionSpec.UNCONSTRAINED only in with_sharding_constraint",
            )
        return self.spec.padded(ndim)

    @_remembered
    def tiling(self, ndim: int) -> Tiling:
        """As `Sharding.tiling`."""
        shape, dims = self.mesh.shape, self.axes(ndim)
        sizes = tuple(shape.values())
        at = dict(zip(shape, np.indices(sizes).reshape(len(sizes), -1), strict=True))
        coordinates = np.zeros((self.mesh.size, ndim), np.int64)
        for dim, axes in enumerate(dims):
            coordinates[:, dim] = mixed_radix([at[axis] for axis in axes], [shape[axis] for axis in axes])
        return Tiling(tuple(map(self.mesh.num_parts, dims)), coordinates)

    @_remembered
    def _to_xla_hlo_sharding(self, num_dimensions: int) -> HloSharding:
        return hlo_of_axes(self.mesh, self.axes(num_dimensions))

    def update(self, *, mesh: Any = None, spec: Any = None, memory_kind: Any = UNSPECIFIED) -> NamedSharding:
        """The same sharding but for what is given.

        Args:
          mesh, spec, memory_kind: as for the class; the sharding's own where not given.

        Returns:
          The new sharding.
        """
        kind = self.memory_kind if memory_kind is UNSPECIFIED else memory_kind
        return NamedSharding(self.mesh if mesh is None else mesh, self.spec if spec is None else spec, kind)

    def with_spec(self, spec: PartitionSpec) -> NamedSharding:
        """Another spec over the same mesh, in the same memory.

        Args:
          spec: the spec.

        Returns:
          The new sharding.
        """
        return NamedSharding(self.mesh, spec, self.memory_kind)

    @property
    def replicated(self) -> NamedSharding:
        """The sharding over the same mesh under which each device holds the whole array."""
        return self.with_spec(_WHOLE)

    def with_dim(self, position: int, axes: Any = None) -> NamedSharding:
        """As `Sharding.with_dim`."""
        where = "spmd_axis_name of a vmap, or axis_resources of an xmap"
        for axis in axes if isinstance(axes, tuple) else (axes,):
            if axis is not None and axis in self.spec.axes:
                raise ShardingError(
                    where,
                    expected="mesh axes that no sharding inside names",
                    got=f"{axis!r} for the mapped dimension and in {self.spec}",
                    mend="split the mapped dimension along another axis, or take this one out of the spec",
                )
        axes = axes[0] if isinstance(axes, tuple) and len(axes) == 1 else axes
        entries = list(self.spec) + [None] * (position - len(self.spec))
        spec = PartitionSpec(*entries[:position], axes, *entries[position:])
        return NamedSharding(self.mesh, spec, self.memory_kind, where=where)

    def without_dim(self, position: int) -> NamedSharding:
        """The sharding of an array without the dimension at `position`."""
        entries = list(self.spec)
        return self.with_spec(PartitionSpec(*entries[:position], *entries[position + 1 :]))

    def as_type(self, ndim: int) -> NamedSharding | None:
        """As `Sharding.as_type`."""
        return self._type(ndim) if self.mesh.explicit_axes else None

    @_remembered
    def _type(self, ndim: int) -> NamedSharding:
        dims = [tuple([a for a in axes if a in self.mesh.explicit_axes]) for axes in self.axes(ndim)]
        return NamedSharding(self.mesh.abstract_mesh, PartitionSpec.of_dims(dims))

    def _cut_by(self, dim: int) -> str:
        axes = self.spec.dims[dim]
        names = " and ".join([f"{axis!r} ({self.mesh.shape[axis]})" for axis in axes])
        return f"{self.spec} cuts it over {names}"

    def _check_rank(self, ndim: int, what: str, where: str) -> None:
        check_rank(self.spec, ndim, what, where=where)

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedSharding, (self.mesh, self.spec, self.memory_kind)

    def __repr__(self) -> str:
        return self._printed(f"{self.mesh!r}, {self.spec!r}")


@boundaries
class SingleDeviceSharding(Sharding):
    """An array that lies whole on one device.

    Args:
      device: the device.
      memory_kind: its memory, the default one if not given.

    Raises:
      ShardingError: the device has no such memory.

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
        if (found := _shardings.get(key)) is not None:
            return found
        held = {"_device_assignment": (device,), "_internal_device_list": DeviceList((device,))}
        return _interned(key, (device,), cls.__name__, device=device, is_fully_replicated=True, **held)

    @_remembered
    def tiling(self, ndim: int) -> Tiling:
        """As `Sharding.tiling`."""
        return Tiling((1,) * ndim, np.zeros((1, ndim), np.int64))

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> HloSharding:
        return _REPLICATED

    def __reduce__(self) -> tuple[Any, ...]:
        return _single_on_mesh, (Mesh([self.device], ("device",)), self.memory_kind)

    def __repr__(self) -> str:
        return self._printed(repr(self.device))


class GSPMDSharding(Sharding):
    """A tile assignment as XLA has it, for placements that no `PartitionSpec` over a mesh expresses.

    Args:
      devices: the devices in the order in which partitions are numbered.
      hlo_sharding: which partition holds which part.
      memory_kind: the memory of the devices, the default one if not given.

    Raises:
      ShardingError: the devices have no such memory.

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
        if (found := _shardings.get(key)) is not None:
            return found
        is_whole = len(devices) == 1 or hlo_sharding.is_replicated()
        held = {"_device_assignment": devices, "_internal_device_list": DeviceList(devices)}
        return _interned(key, devices, cls.__name__, hlo_sharding=hlo_sharding, is_fully_replicated=is_whole, **held)

    @classmethod
    def replicated(cls, devices: Sequence[Device]) -> GSPMDSharding:
        """The sharding under which each device holds the whole of an array of any rank."""
        return cls(devices, _REPLICATED)

    def with_dim(self, position: int, axes: Any = None) -> Sharding:
        """As `Sharding.with_dim`."""
        if self.is_fully_replicated or isinstance(axes, (str, tuple)):
            return super().with_dim(position, axes)
        hlo = self.hlo_sharding
        ndim = hlo.num_dimensions() - len(hlo.subgroup_types()) - bool(hlo.replicate_on_last_tile_dim())
        tiling = self.tiling(ndim)
        parts = (*tiling.parts[:position], 1, *tiling.parts[position:])
        wider = Tiling(parts, np.insert(tiling.coordinates, position, 0, axis=1))
        return GSPMDSharding(self._device_assignment, hlo_of_tiling(wider), self.memory_kind)

    @_remembered
    def tiling(self, ndim: int) -> Tiling:
        """As `Sharding.tiling`."""
        return tiling_of_hlo(self.hlo_sharding, self.num_devices, ndim)

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> HloSharding:
        return self.hlo_sharding

    def __repr__(self) -> str:
        return self._printed(f"{len(self._device_assignment)} devices, {self.hlo_sharding}")


def from_hlo_sharding(hlo: HloSharding, devices: Sequence[Device], mesh: Mesh | None, ndim: int) -> Sharding:
    """Give what a compiled program chose back as a sharding, over a mesh where one can say it.

    Args:
      hlo: the sharding of a parameter or result.
      devices: the devices of the program, in the order in which partitions are numbered.
      mesh: the mesh to say it over, if any; its devices may stand in another order than the program's.
      ndim: number of dimensions of the array.

    Returns:
      A `NamedSharding` over `mesh`; a `SingleDeviceSharding` where there is one device and no mesh; otherwise a
      `GSPMDSharding`, since no spec over this mesh says it.

    Examples:
      >>> from phalanx.sharding import make_mesh
      >>> mesh = make_mesh((1,), ("x",))
      >>> from_hlo_sharding(HloSharding.replicate(), list(mesh.devices.flat), mesh, ndim=2).spec
      PartitionSpec()
    """
    devices = tuple(devices)
    if mesh is None or mesh.device_set != frozenset(devices):
        return SingleDeviceSharding(devices[0]) if len(devices) == 1 else GSPMDSharding(devices, hlo)
    tiled = GSPMDSharding(devices, hlo)
    spec = spec_of_tiling(tiled._tiling_in_order(mesh.flat_devices, ndim), mesh.axis_names, mesh.axis_sizes)
    return tiled if spec is None else NamedSharding(mesh, spec)


_REPLICATED = HloSharding.replicate()
_WHOLE = PartitionSpec()
_shardings: Interned[Any] = Interned()


def _interned(key: tuple, devices: Sequence[Device], where: str, **attributes: Any) -> Any:
    """The sharding with a key, from its class to its memory kind; made with these attributes if there is none yet."""
    cls, *_, memory_kind = key
    _check_memory(devices, memory_kind, where)

    def make() -> Sharding:
        sharding = ShardingBase.__new__(cls)
        ShardingBase.__init__(sharding)
        for name, value in (attributes | {"_memo": {}, "memory_kind": memory_kind}).items():
            setattr(sharding, name, value)
        return sharding

    return _shardings.intern(key, make)


def _single_on_mesh(mesh: Mesh, memory_kind: str | None) -> SingleDeviceSharding:
    return SingleDeviceSharding(mesh.flat_devices[0], memory_kind)


def _default_memory(sharding: Sharding) -> str | None:
    return sharding._internal_device_list.default_memory_kind


def _memory(sharding: Sharding) -> str | None:
    return sharding.memory_kind or _default_memory(sharding)


def _check_named(mesh: Any, spec: Any, where: str) -> None:
    if not isinstance(mesh, (Mesh, AbstractMesh)) or not isinstance(spec, PartitionSpec):
        raise ArgumentTypeError(
            where,
            expected="a Mesh or AbstractMesh and a PartitionSpec",
            got=f"{type(mesh).__name__} and {type(spec).__name__}",
            mend="call NamedSharding(mesh, PartitionSpec(...))",
        )
    check_spec(spec, mesh.shape, where=where)


def _check_memory(devices: Sequence[Device], kind: str | None, where: str) -> None:
    if kind is None or not devices:
        return
    kinds = [memory.kind for memory in devices[0].addressable_memories()]
    if kinds and kind not in kinds:
        raise ShardingError(
            where,
            expected=f"a memory kind of {devices[0].device_kind} devices ({', '.join(map(repr, kinds))})",
            got=f"memory_kind={kind!r}",
            mend="name one of these, or leave memory_kind out",
        )
