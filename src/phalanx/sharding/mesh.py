"""Mesh and AbstractMesh: devices arranged in a box with named axes.

Builds on the error records and the engine's devices. Meshes are interned, so that equality is identity and a mesh is
a cheap dictionary key. `shardings.py` pairs them with specs, `context.py` holds the current one.
"""

from __future__ import annotations

import enum
import functools
import math
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ShardingError
from phalanx.engine.client import DeviceList
from phalanx.engine.client import devices as all_devices
from phalanx.engine.frames import boundaries
from phalanx.engine.interned import Interned
from phalanx.sharding.spec import AxisName

Device = Any


class AxisType(enum.Enum):
    """How the dimensions split along a mesh axis are treated: by the partitioner, by the types, or by the user.

    Examples:
      >>> mesh = AbstractMesh((2,), ("data",), axis_types=(AxisType.Explicit,))
      >>> mesh.axis_types[0] is AxisType("Explicit")
      True
    """

    Auto = "Auto"
    Explicit = "Explicit"
    Manual = "Manual"

    def __repr__(self) -> str:
        return self.name


def _axes_of_type(kind: AxisType) -> cached_property[tuple[AxisName, ...]]:
    def axes(mesh: _Axes) -> tuple[AxisName, ...]:
        return tuple([name for name, of in zip(mesh.axis_names, mesh.axis_types, strict=True) if of is kind])

    axes.__doc__ = f"The axes of type {kind!r}."
    return cached_property(axes)


def _are_all_of_type(*kinds: AxisType) -> property:
    words = " or ".join(map(repr, kinds))
    return property(
        lambda mesh: bool(mesh.axis_types) and {*mesh.axis_types} <= {*kinds},
        doc=f"Whether there are axes, all of type {words}.",
    )


class _Axes:
    """Named axes with sizes and types: what `Mesh` and `AbstractMesh` share."""

    axis_names: tuple[AxisName, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]
    _made_of: Any  # the arguments of the class

    @cached_property
    def shape(self) -> OrderedDict[AxisName, int]:
        """Size of each axis, by name, in order."""
        return OrderedDict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def shape_tuple(self) -> tuple[tuple[AxisName, int], ...]:
        """Pairs of axis name and size, in order."""
        return tuple(self.shape.items())

    @cached_property
    def size(self) -> int:
        """Number of devices."""
        return int(np.prod(self.axis_sizes, dtype=np.int64)) if self.axis_names else 0

    @property
    def empty(self) -> bool:
        """Whether there is no axis: the mesh one gets where none was set."""
        return not self.axis_names

    auto_axes = _axes_of_type(AxisType.Auto)
    explicit_axes = _axes_of_type(AxisType.Explicit)
    manual_axes = _axes_of_type(AxisType.Manual)
    are_all_axes_auto = _are_all_of_type(AxisType.Auto)
    are_all_axes_explicit = _are_all_of_type(AxisType.Explicit)
    are_all_axes_manual = _are_all_of_type(AxisType.Manual)
    are_all_axes_explicit_or_manual = _are_all_of_type(AxisType.Explicit, AxisType.Manual)

    def num_parts(self, axes: Iterable[AxisName]) -> int:
        """Into how many parts these axes together split a dimension."""
        return math.prod([self.shape[axis] for axis in axes])

    def update(self, **given: Any) -> Self:
        """The same mesh but for the arguments of the class that are given."""
        return type(self)(**(self._made_of | {name: x for name, x in given.items() if x is not None}))

    def with_axis_types(self, types: dict[AxisName, AxisType]) -> Self:
        """The same mesh, some of its axes with another type."""
        pairs = zip(self.axis_names, self.axis_types, strict=True)
        return self.update(axis_types=tuple([types.get(name, of) for name, of in pairs]))

    update_axis_types = with_axis_types

    def __repr__(self) -> str:
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape.items())
        types = "" if len(self.auto_axes) == len(self.axis_names) else f", axis_types={self.axis_types}"
        return f"{type(self).__name__}({axes}{types})"


@dataclass(frozen=True)
class AbstractDevice:
    """What is known of the devices of an `AbstractMesh`.

    Args:
      device_kind: the model, as `device_kind` of a device says it.
      num_cores: how many cores each has, where it matters.
      platform: such as "cpu", "cuda" or "tpu": for which programs over the mesh are lowered.

    Examples:
      >>> AbstractDevice("H200", platform="cuda").platform
      'cuda'
    """

    device_kind: str
    num_cores: int | None = None
    platform: str | None = None


@boundaries
class AbstractMesh(_Axes):
    """The shape of a mesh without devices: enough to trace and to write shardings, not to place data.

    Args:
      axis_sizes: size of each axis.
      axis_names: name of each axis.
      axis_types: type of each axis, all `AxisType.Auto` if not given.
      abstract_device: what is known of the devices; a mesh of which it is known is another mesh.

    Raises:
      ArgumentError: lengths disagree, or a name stands twice.

    Examples:
      >>> mesh = AbstractMesh((4, 2), ("data", "model"))
      >>> mesh, mesh.size, mesh is AbstractMesh((4, 2), ("data", "model"))
      (AbstractMesh('data': 4, 'model': 2), 8, True)
    """

    def __new__(
        cls,
        axis_sizes: Sequence[int],
        axis_names: AxisName | Sequence[AxisName],
        axis_types: AxisType | Sequence[AxisType] | None = None,
        *,
        abstract_device: AbstractDevice | None = None,
    ) -> AbstractMesh:
        sizes = tuple(map(int, axis_sizes))
        names, types = _checked_axes(len(sizes), axis_names, axis_types, where=cls.__name__)
        if any(size < 1 for size in sizes):
            raise ArgumentError(
                cls.__name__, expected="axes of at least one device", got=f"sizes {sizes}", mend="drop the empty axes"
            )
        key = (cls, sizes, names, types, abstract_device)
        if (found := _meshes.get(key)) is not None:
            return found
        mesh = object.__new__(cls)
        mesh.axis_sizes, mesh.axis_names, mesh.axis_types, mesh._device = key[1:]
        mesh._concrete = weakref.WeakSet()
        return _meshes.intern(key, lambda: mesh)

    _concrete: weakref.WeakSet[Mesh]
    _device: AbstractDevice | None

    @property
    def abstract_device(self) -> AbstractDevice | None:
        """What is known of the devices: what was given, or what those are of the meshes that have these axes."""
        if self._device is not None:
            return self._device
        firsts = [mesh.flat_devices[0] for mesh in self._concrete]
        found = {AbstractDevice(d.device_kind, getattr(d, "num_cores", None), d.platform) for d in firsts}
        return found.pop() if len(found) == 1 else None

    def __repr__(self) -> str:
        return super().__repr__()[:-1] + (f", abstract_device={self._device})" if self._device else ")")

    @property
    def concrete(self) -> Mesh | None:
        """The mesh of devices that has these axes, where there is just one so far."""
        return next(iter(self._concrete)) if len(self._concrete) == 1 else None

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """This mesh: it has no devices to drop."""
        return self

    @property
    def _made_of(self) -> dict[str, Any]:
        axes = {"axis_sizes": self.axis_sizes, "axis_names": self.axis_names, "axis_types": self.axis_types}
        return axes | {"abstract_device": self._device}

    def on(self, devices: Sequence[Device]) -> Mesh:
        """The mesh of these axes over as many devices, in row-major order."""
        return Mesh(np.array(devices, dtype=object).reshape(self.axis_sizes), self.axis_names, self.axis_types)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(AbstractMesh, **self._made_of), ()


@boundaries
class Mesh(_Axes):
    """Devices in a box with one named axis per dimension.

    Args:
      devices: array of devices with one dimension per axis; a list stands for its array.
      axis_names: name of each axis; one name stands for a tuple of one.
      axis_types: type of each axis, all `AxisType.Auto` if not given.

    Raises:
      ArgumentError: numbers of names and dimensions disagree, or a name or a device stands twice.

    Examples:
      >>> import numpy as np, phalanx.engine.client
      >>> mesh = Mesh(np.array(phalanx.engine.client.devices()[:1]).reshape(1, 1), ("data", "model"))
      >>> mesh, mesh.shape["data"], mesh.size
      (Mesh('data': 1, 'model': 1), 1, 1)
    """

    devices: np.ndarray[Any, Any]

    def __new__(
        cls,
        devices: Any,
        axis_names: AxisName | Sequence[AxisName],
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> Mesh:
        if not isinstance(devices, np.ndarray):
            devices = np.array(devices, dtype=object)
        names, types = _checked_axes(devices.ndim, axis_names, axis_types, where=cls.__name__)
        flat = tuple(devices.flat) if names else ()
        key = (cls, flat, devices.shape, names, types)
        if (found := _meshes.get(key)) is not None:
            return found
        if len(set(flat)) != len(flat) or (names and not flat):
            raise ArgumentError(
                "Mesh",
                expected="each device once, and at least one",
                got=f"{len(flat)} devices of which {len(set(flat))} are different",
                mend="pass each device of phalanx.devices() at most once",
            )
        mesh = object.__new__(cls)
        mesh.devices = devices.copy() if names else np.empty((), dtype=object)
        mesh.devices.setflags(write=False)
        mesh.axis_names, mesh.axis_types = names, types
        mesh.axis_sizes = devices.shape if names else ()
        mesh.flat_devices = flat
        return _meshes.intern(key, lambda: mesh)

    flat_devices: tuple[Device, ...]
    """All devices in row-major order: the order in which partitions of a program are numbered."""

    @cached_property
    def device_list(self) -> DeviceList:
        """The devices in the engine's own form."""
        return DeviceList(self.flat_devices)

    @cached_property
    def device_set(self) -> frozenset[Device]:
        """The devices without their order."""
        return frozenset(self.flat_devices)

    @cached_property
    def device_ids(self) -> np.ndarray[Any, Any]:
        """Ids of the devices: i64[*axis_sizes]."""
        ids = np.array([device.id for device in self.flat_devices], dtype=np.int64)
        return ids.reshape(self.axis_sizes) if self.axis_names else ids

    @cached_property
    def local_devices(self) -> tuple[Device, ...]:
        """The devices of this process, in order."""
        return tuple(filter(is_local, self.flat_devices))

    @cached_property
    def is_multi_process(self) -> bool:
        """Whether devices of more than one process take part."""
        return len({device.process_index for device in self.flat_devices}) > 1

    @cached_property
    def local_mesh(self) -> Mesh:
        """The smallest sub-box that holds this process's devices.

        Raises:
          ShardingError: the box would hold devices of another process too.
        """
        if self.empty or not self.is_multi_process:
            return self
        local = set(self.local_devices)
        mine = np.array([device in local for device in self.flat_devices]).reshape(self.axis_sizes)
        if not mine.any():
            raise ShardingError(
                "Mesh.local_mesh",
                expected="a mesh with devices of this process",
                got=f"{self!r} with none",
                mend="use the mesh in the processes that take part in it",
            )
        box = tuple([slice(found.min(), found.max() + 1) for found in np.nonzero(mine)])
        if not mine[box].all():
            raise ShardingError(
                "Mesh.local_mesh",
                expected="this process's devices to fill a box of the mesh",
                got=f"devices at {np.argwhere(mine).tolist()} of {self!r}",
                mend="lay out the mesh with mesh_utils.create_device_mesh or create_hybrid_device_mesh",
            )
        return Mesh(self.devices[box], self.axis_names, self.axis_types)

    @cached_property
    def abstract_mesh(self) -> AbstractMesh:
        """The same axes without the devices."""
        mesh = AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)
        mesh._concrete.add(self)
        return mesh

    @property
    def _made_of(self) -> dict[str, Any]:
        return {"devices": self.devices, "axis_names": self.axis_names, "axis_types": self.axis_types}

    def __getitem__(self, axes: AxisName | tuple[AxisName, ...]) -> Mesh:
        """The sub-mesh of the axes given, in the order given, at the first position along all others."""
        names = axes if isinstance(axes, tuple) else (axes,)
        for name in names:
            if name not in self.shape or names.count(name) > 1:
                raise ShardingError(
                    "Mesh[...]",
                    expected=f"each of the axes {self.axis_names} at most once",
                    got=repr(axes),
                    mend=f"name only axes of {self!r}, none twice",
                )
        positions = [self.axis_names.index(name) for name in names]
        corner = tuple([slice(None) if name in names else 0 for name in self.axis_names])
        order = np.argsort(np.argsort(positions)).tolist()
        return Mesh(self.devices[corner].transpose(order), names, tuple([self.axis_types[p] for p in positions]))

    def __enter__(self) -> Mesh:
        state.outer_meshes.append(replace_mesh(self, by_block=True))
        return self

    def __exit__(self, *exc_info: object) -> None:
        state.context = state.context.replace(mesh=state.outer_meshes.pop())

    def __reduce__(self) -> tuple[Any, ...]:
        platforms = tuple([(device.platform, device.id) for device in self.flat_devices])
        return _mesh_of_ids, (platforms, self.devices.shape, self.axis_names, self.axis_types)


def _mesh_of_ids(
    ids: tuple[tuple[str, int], ...], shape: tuple[int, ...], names: tuple[AxisName, ...], types: tuple[AxisType, ...]
) -> Mesh:
    """Find the devices of a pickled mesh again."""
    found = {(d.platform, d.id): d for platform in {platform for platform, _ in ids} for d in all_devices(platform)}
    missing = [number for number in ids if number not in found]
    if missing:
        raise ShardingError(
            "unpickling a Mesh",
            expected="the devices it was made of",
            got=f"a system without {missing[0][0]} device {missing[0][1]}",
            mend="start with as many devices as the mesh was made of",
        )
    devices = np.array([found[number] for number in ids], dtype=object)
    return Mesh(devices.reshape(shape) if names else np.empty((), dtype=object), names, types)


_meshes: Interned[Any] = Interned()


def is_local(device: Device) -> bool:
    """Whether a device is of this process."""
    return device.process_index == device.client.process_index()


def replace_mesh(mesh: Any, by_block: bool = False) -> Any:
    """Put a mesh in force and give the former one; refused where the program at hand would be half of each.

    A block `with mesh:` may stand inside a compiled function, as it did in older programs, where the mesh only says
    over which axes bare specs are read: where the types of values tell nothing of it.
    """
    outer = state.context.mesh
    mesh = None if mesh is None or mesh.empty else mesh
    if mesh is outer:
        return outer
    trace = state.trace
    while trace is not None and not trace.compiles:
        trace = trace.parent
    in_types = not by_block or any(t is not AxisType.Auto for m in (outer, mesh) if m is not None for t in m.axis_types)
    if trace is not None and in_types:
        raise ShardingError(
            "changing the mesh inside a compiled function",
            expected=f"the mesh it was called under, {outer or 'none'!s}",
            got="no mesh" if mesh is None else mesh,
            mend="enter the mesh around the call, or name it in NamedSharding(mesh, spec) or shard_map(..., mesh=mesh)",
        )
    state.context = state.context.replace(mesh=mesh)
    return outer


def _checked_axes(
    ndim: int,
    axis_names: AxisName | Iterable[AxisName],
    axis_types: AxisType | Iterable[AxisType] | None,
    *,
    where: str,
) -> tuple[tuple[AxisName, ...], tuple[AxisType, ...]]:
    names = tuple(axis_names) if isinstance(axis_names, (tuple, list)) else (axis_names,)
    if len(names) != ndim:
        raise ArgumentError(
            where,
            expected=f"one axis name per dimension, {ndim} in all",
            got=f"axis names {names}",
            mend="reshape the devices, or name each of their dimensions",
        )
    if len(set(names)) != len(names) or None in names:
        raise ArgumentError(
            where, expected="axis names that differ, none of them None", got=f"{names}", mend="rename the axes"
        )
    if axis_types is None:
        return names, (AxisType.Auto,) * ndim
    types = (axis_types,) * ndim if isinstance(axis_types, AxisType) else tuple(axis_types)
    if len(types) != ndim or not all(isinstance(of, AxisType) for of in types):
        raise ArgumentError(
            where,
            expected=f"one AxisType per axis, {ndim} in all",
            got=f"axis_types={axis_types!r}",
            mend="pass axis_types=(AxisType.Auto, ...), or leave it out",
        )
    return names, types
