"""`Mesh` and `AbstractMesh`: an n-dimensional array of devices with a name for each axis.

Meshes are interned: two equal meshes are the same object, so that comparisons are by identity and a mesh is a cheap
dictionary key. `named_sharding.py` pairs meshes with specs; `mesh_context.py` manages the current mesh of a thread.
"""

from __future__ import annotations

import enum
import functools
import math
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    ShardingError,
    check_allowed,
    current_scope,
    disallow_mesh_context_manager,
    enter_block,
    leave_block,
    state,
)
from phalanx.engine import Cache, api_boundary_class
from phalanx.engine.client import Device, DeviceList, devices as all_devices
from phalanx.sharding.partition_spec import AxisName


class AxisType(enum.Enum):
    """How computations are partitioned over a mesh axis.

    `Auto`: XLA's partitioner decides. `Explicit`: shardings over the axis are part of the types of arrays. `Manual`:
    the program is written for one device, as inside `shard_map`.

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
    def axes(mesh: NamedAxes) -> tuple[AxisName, ...]:
        return tuple([name for name, of in zip(mesh.axis_names, mesh.axis_types, strict=True) if of is kind])

    axes.__doc__ = f"Names of the axes of type {kind!r}."
    return cached_property(axes)


def _are_all_of_type(*kinds: AxisType) -> property:
    words = " or ".join(map(repr, kinds))
    return property(
        lambda mesh: bool(mesh.axis_types) and {*mesh.axis_types} <= {*kinds},
        doc=f"Whether there are axes, all of type {words}.",
    )


class NamedAxes:
    """Named axes with sizes and types: the base class of `Mesh` and `AbstractMesh`."""

    axis_names: tuple[AxisName, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]
    _init_args: dict[str, Any]  # the keyword arguments that reconstruct the mesh

    @cached_property
    def shape(self) -> OrderedDict[AxisName, int]:
        """Mapping from axis name to axis size, in axis order."""
        # An OrderedDict compares the order of axes, too: meshes of 2 x 4 and 4 x 2 devices differ.
        return OrderedDict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def shape_tuple(self) -> tuple[tuple[AxisName, int], ...]:
        """Pairs of axis name and axis size, in axis order."""
        return tuple(self.shape.items())

    @cached_property
    def size(self) -> int:
        """Number of devices."""
        return int(np.prod(self.axis_sizes, dtype=np.int64)) if self.axis_names else 0

    @property
    def empty(self) -> bool:
        """Whether the mesh has no axes, like the current mesh before any was set."""
        return not self.axis_names

    @property
    def is_scalar(self) -> bool:
        """Whether the mesh is one device without axes."""
        return not self.axis_names and any(d is not None for d in getattr(self, "flat_devices", ()))

    auto_axes = _axes_of_type(AxisType.Auto)
    explicit_axes = _axes_of_type(AxisType.Explicit)
    manual_axes = _axes_of_type(AxisType.Manual)
    are_all_axes_auto = _are_all_of_type(AxisType.Auto)
    are_all_axes_explicit = _are_all_of_type(AxisType.Explicit)
    are_all_axes_manual = _are_all_of_type(AxisType.Manual)
    are_all_axes_explicit_or_manual = _are_all_of_type(AxisType.Explicit, AxisType.Manual)

    def axes_in_types(self, axes: Iterable[AxisName]) -> tuple[AxisName, ...]:
        """The axes that types name: without axes of size 1 under `remove_size_one_mesh_axis_from_type`."""
        is_removing = current_scope().context.remove_size_one_mesh_axis_from_type
        return tuple([axis for axis in axes if self.shape[axis] > 1]) if is_removing else tuple(axes)

    def num_parts(self, axes: Iterable[AxisName]) -> int:
        """Number of shards of a dimension that is split over all these axes."""
        return math.prod([self.shape[axis] for axis in axes])

    def update(self, **changes: object) -> Self:
        """A copy of the mesh with some of the class's arguments replaced; None keeps an argument."""
        return type(self)(**(self._init_args | {name: x for name, x in changes.items() if x is not None}))

    def with_axis_types(self, types: Mapping[AxisName, AxisType]) -> Self:
        """A copy of the mesh with other types for some of its axes."""
        pairs = zip(self.axis_names, self.axis_types, strict=True)
        return self.update(axis_types=tuple([types.get(name, of) for name, of in pairs]))

    update_axis_types = with_axis_types

    def __str__(self) -> str:
        axes = "".join(f"{name!r}: {size}, " for name, size in self.shape.items()) or "(), "
        return f"{type(self).__name__}({axes}axis_types={self.axis_types})"


@dataclass(frozen=True)
class AbstractDevice:
    """Description of the hardware behind an `AbstractMesh`.

    Args:
      device_kind: the hardware model, in the form of a device's `device_kind` attribute.
      num_cores: number of cores of each device, if relevant.
      platform: target platform for lowering programs over the mesh, such as "cpu", "cuda" or "tpu".

    Examples:
      >>> AbstractDevice("H200", platform="cuda").platform
      'cuda'
    """

    device_kind: str
    num_cores: int | None = None
    platform: str | None = None

    def __repr__(self) -> str:
        return f"AbstractDevice(device_kind={self.device_kind}, num_cores={self.num_cores}, platform={self.platform})"


@api_boundary_class
class AbstractMesh(NamedAxes):
    """The shape of a mesh without its devices: sufficient for tracing and for writing shardings, not for placing data.

    Args:
      axis_sizes: size of each axis.
      axis_names: name of each axis.
      axis_types: type of each axis; `AxisType.Auto` for all of them by default.
      abstract_device: description of the hardware. Meshes with different descriptions are different meshes.

    Raises:
      ArgumentError: the lengths of the arguments disagree, or an axis name is repeated.

    Examples:
      >>> mesh = AbstractMesh((4, 2), ("data", "model"))
      >>> mesh, mesh.size, mesh is AbstractMesh((4, 2), ("data", "model"))
      (AbstractMesh('data': 4, 'model': 2, axis_types=(Auto, Auto)), 8, True)
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
        names, types = _check_axes(len(sizes), axis_names, axis_types, where=cls.__name__)
        if any(size < 1 for size in sizes):
            raise ArgumentError(
                cls.__name__, expected="axes of size at least 1", got=f"sizes {sizes}", fix="drop the axes of size 0"
            )
        key = (cls, sizes, names, types, abstract_device)
        found: AbstractMesh | None = _abstract_meshes.get(key)
        if found is not None:
            return found
        mesh = object.__new__(cls)
        mesh.axis_sizes, mesh.axis_names, mesh.axis_types, mesh._device = key[1:]
        mesh._concrete = weakref.WeakSet()
        return _abstract_meshes.get_or_make(key, lambda: mesh)

    _concrete: weakref.WeakSet[Mesh]
    _device: AbstractDevice | None

    @property
    def abstract_device(self) -> AbstractDevice | None:
        """Description of the hardware: the constructor's argument, else that of the live meshes with these axes.

        None if these meshes have different kinds of devices.
        """
        if self._device is not None:
            return self._device
        firsts = [mesh.flat_devices[0] for mesh in self._concrete]
        # The first device of each mesh represents it, since a mesh has devices of one kind.
        found = {AbstractDevice(d.device_kind, getattr(d, "num_cores", None), d.platform) for d in firsts}
        return found.pop() if len(found) == 1 else None

    def __str__(self) -> str:
        device = "" if self._device is None else repr(self._device).replace("AbstractDevice(", ", ")[:-1]
        return f"{super().__str__()[:-1]}{device})"

    __repr__ = __str__

    @property
    def concrete(self) -> Mesh | None:
        """The `Mesh` with these axes, if exactly one is alive."""
        return next(iter(self._concrete)) if len(self._concrete) == 1 else None

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """This mesh itself; the counterpart of `Mesh.abstract_mesh`."""
        return self

    @property
    def _init_args(self) -> dict[str, Any]:
        axes = {"axis_sizes": self.axis_sizes, "axis_names": self.axis_names, "axis_types": self.axis_types}
        return axes | {"abstract_device": self._device}

    def on(self, devices: Sequence[Device]) -> Mesh:
        """The mesh with these axes over the given devices, which are laid out in row-major order."""
        return Mesh(np.array(devices, dtype=object).reshape(self.axis_sizes), self.axis_names, self.axis_types)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(AbstractMesh, **self._init_args), ()


@api_boundary_class
class Mesh(NamedAxes):
    """An n-dimensional array of devices with one named axis per dimension.

    Args:
      devices: array (or nested list) of devices with one dimension per axis.
      axis_names: name of each axis; a single name is accepted for a mesh of one axis.
      axis_types: type of each axis; `AxisType.Auto` for all of them by default.

    Raises:
      ArgumentError: the number of names differs from the number of dimensions, or a name or device is repeated.

    Examples:
      >>> import numpy as np, phalanx.engine.client
      >>> mesh = Mesh(np.array(phalanx.engine.client.devices()[:1]).reshape(1, 1), ("data", "model"))
      >>> mesh, mesh.shape["data"], mesh.size
      (Mesh(axis_sizes=(1, 1), axis_names=('data', 'model'), axis_types=(Auto, Auto)), 1, 1)
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
        names, types = _check_axes(devices.ndim, axis_names, axis_types, where=cls.__name__)
        flat = tuple(devices.flat) if names else ()
        # The shape is part of the key because `flat` loses it.
        key = (cls, flat, devices.shape, names, types)
        found: Mesh | None = _meshes.get(key)
        if found is not None:
            return found
        if (other := next((d for d in flat if not hasattr(d, "platform")), None)) is not None:
            raise ArgumentTypeError(
                "Mesh, argument devices",
                expected="an array of devices",
                got=f"one with {other!r}",
                fix=f"pass np.array(phalanx.devices()).reshape({devices.shape}), or make_mesh({devices.shape}, names)",
            )
        if len(set(flat)) != len(flat) or (names and not flat):
            raise ArgumentError(
                "Mesh",
                expected="at least one device, and no device twice",
                got=f"{len(flat)} devices of which {len(set(flat))} are distinct",
                fix="pass each device of phalanx.devices() at most once",
            )
        mesh = object.__new__(cls)
        # An interned mesh is shared by everyone who asks for it, so its array of devices must not change.
        mesh.devices = devices.copy() if names else np.empty((), dtype=object)
        mesh.devices.setflags(write=False)
        mesh.axis_names, mesh.axis_types = names, types
        mesh.axis_sizes = devices.shape if names else ()
        mesh.flat_devices = flat
        return _meshes.get_or_make(key, lambda: mesh)

    flat_devices: tuple[Device, ...]
    """All devices in row-major order, which is the order of a program's partitions."""

    @cached_property
    def device_list(self) -> DeviceList:
        """The devices as jaxlib's `DeviceList`."""
        return DeviceList(self.flat_devices)

    @cached_property
    def device_set(self) -> frozenset[Device]:
        """The set of all devices."""
        return frozenset(self.flat_devices)

    @cached_property
    def device_ids(self) -> np.ndarray[Any, Any]:
        """Ids of the devices: i64[*axis_sizes]."""
        ids = np.array([device.id for device in self.flat_devices], dtype=np.int64)
        return ids.reshape(self.axis_sizes) if self.axis_names else ids

    @cached_property
    def local_devices(self) -> tuple[Device, ...]:
        """The devices of this process, in row-major order."""
        return tuple(filter(is_local, self.flat_devices))

    @cached_property
    def is_multi_process(self) -> bool:
        """Whether the devices belong to more than one process."""
        return len({device.process_index for device in self.flat_devices}) > 1

    @cached_property
    def local_mesh(self) -> Mesh:
        """The sub-mesh of this process's devices.

        Raises:
          ShardingError: these devices are not a contiguous sub-array of the mesh, or there are none.
        """
        if self.empty or not self.is_multi_process:
            return self
        # The bounding box of this process's devices must contain no other device, or it would not be a mesh of its own.
        local = set(self.local_devices)
        mine = np.array([device in local for device in self.flat_devices]).reshape(self.axis_sizes)
        if not mine.any():
            raise ShardingError(
                "Mesh.local_mesh",
                expected="a mesh with devices of this process",
                got=f"{self} with none",
                fix="access local_mesh only in processes that own devices of the mesh",
            )
        box = tuple([slice(found.min(), found.max() + 1) for found in np.nonzero(mine)])
        if not mine[box].all():
            raise ShardingError(
                "Mesh.local_mesh",
                expected="this process's devices to form a contiguous sub-array of the mesh",
                got=f"devices at {np.argwhere(mine).tolist()} of {self}",
                fix="arrange the devices with mesh_utils.create_device_mesh or create_hybrid_device_mesh",
            )
        return Mesh(self.devices[box], self.axis_names, self.axis_types)

    @cached_property
    def abstract_mesh(self) -> AbstractMesh:
        """The same axes without the devices."""
        mesh = AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)
        # Weakly: an interned abstract mesh must not keep device meshes alive.
        mesh._concrete.add(self)
        return mesh

    @property
    def _init_args(self) -> dict[str, Any]:
        return {"devices": self.devices, "axis_names": self.axis_names, "axis_types": self.axis_types}

    def __repr__(self) -> str:
        axes = ("axis_sizes", "axis_names", "axis_types")
        return f"Mesh({', '.join(f'{name}={getattr(self, name)}' for name in axes)})"

    def __getitem__(self, axes: AxisName | tuple[AxisName, ...]) -> Mesh:
        """The sub-mesh of the given axes, in that order, at index 0 of all other axes."""
        names = axes if isinstance(axes, tuple) else (axes,)
        for name in names:
            if name not in self.shape or names.count(name) > 1:
                raise ShardingError(
                    "Mesh[...]",
                    expected=f"each of the axes {self.axis_names} at most once",
                    got=repr(axes),
                    fix=f"index with distinct axis names of {self}",
                )
        positions = [self.axis_names.index(name) for name in names]
        corner = tuple([slice(None) if name in names else 0 for name in self.axis_names])
        # The rank of each position: indexing keeps the remaining axes in mesh order, and they are wanted as named.
        order = np.argsort(np.argsort(positions)).tolist()
        return Mesh(self.devices[corner].transpose(order), names, tuple([self.axis_types[p] for p in positions]))

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that runs inside `with mesh:`; the mesh is a decorator."""

        @functools.wraps(function)
        def on_mesh(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return on_mesh

    def __enter__(self) -> Mesh:
        if disallow_mesh_context_manager.value:
            check_allowed("disallow_mesh_context_manager", "`with mesh:`")
        enter_block(self, {"mesh": check_mesh_change(self, in_with_block=True)})
        return self

    def __exit__(self, *exc_info: object) -> None:
        leave_block(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Devices cannot be pickled; their platforms and ids identify them in another process.
        platforms = tuple([(device.platform, device.id) for device in self.flat_devices])
        return _mesh_from_ids, (platforms, self.devices.shape, self.axis_names, self.axis_types)


def _mesh_from_ids(
    ids: tuple[tuple[str, int], ...], shape: tuple[int, ...], names: tuple[AxisName, ...], types: tuple[AxisType, ...]
) -> Mesh:
    """Unpickle a mesh: find the devices of this process with the pickled platforms and ids."""
    found = {(d.platform, d.id): d for platform in {platform for platform, _ in ids} for d in all_devices(platform)}
    missing = [number for number in ids if number not in found]
    if missing:
        raise ShardingError(
            "unpickling a Mesh",
            expected="the devices of the pickled mesh",
            got=f"a system without {missing[0][0]} device {missing[0][1]}",
            fix="start the process with at least as many devices as the mesh has",
        )
    devices = np.array([found[number] for number in ids], dtype=object)
    return Mesh(devices.reshape(shape) if names else np.empty((), dtype=object), names, types)


_abstract_meshes: Cache[Any, AbstractMesh] = Cache("sharding.abstract_meshes", weak="values")
_meshes: Cache[Any, Mesh] = Cache("sharding.meshes", weak="values")


def is_local(device: Device) -> bool:
    """Whether this process owns the device."""
    return bool(device.process_index == device.client.process_index())


def check_mesh_change(
    mesh: Mesh | AbstractMesh | None, in_with_block: bool = False, within_trace: bool = False
) -> Mesh | AbstractMesh | None:
    """Check that a mesh may become the current one; returns it, and None for a mesh without axes.

    Inside a compiled function the mesh cannot change, because one program would then mix the shardings of two meshes.
    The exception is a block `with mesh:` over Auto axes, which older programs use inside compiled functions: types do
    not depend on Auto axes, so the mesh only resolves bare specs.

    Args:
      mesh: the new mesh; None, or a mesh without axes, for none.
      in_with_block: whether the caller is a `with mesh:` block.
      within_trace: whether the mesh may change inside a compiled function to another one of as many devices.

    Returns:
      The mesh, or None.

    Raises:
      ShardingError: the mesh would change inside a compiled function.
    """
    outer: Mesh | AbstractMesh | None = state.context.mesh
    mesh = None if mesh is None or mesh.empty else mesh
    if mesh is outer:
        return mesh
    # Transformations such as grad and vmap may run under any mesh; only a trace that compiles fixes it.
    trace = state.trace
    while trace is not None and not trace.compiles:
        trace = trace.parent
    meshes = [m for m in (outer, mesh) if m is not None]
    affects_types = not in_with_block or any(t is not AxisType.Auto for m in meshes for t in m.axis_types)
    if within_trace and len({m.size for m in meshes}) == 1:
        affects_types = False  # Each type names its own mesh, and all of them number the same devices.
    if trace is not None and affects_types:
        raise ShardingError(
            "changing the mesh inside a compiled function",
            expected=f"the mesh that was current at the call, {outer or 'none'!s}",
            got="no mesh" if mesh is None else str(mesh),
            fix="enter the mesh around the call, or name it in NamedSharding(mesh, spec) or shard_map(..., mesh=mesh)",
        )
    return mesh


def _check_axes(
    ndim: int,
    axis_names: AxisName | Iterable[AxisName],
    axis_types: AxisType | Iterable[AxisType] | None,
    *,
    where: str,
) -> tuple[tuple[AxisName, ...], tuple[AxisType, ...]]:
    """Validate the axis names and types of a mesh with `ndim` dimensions, and fill in the default types."""
    names = tuple(axis_names) if isinstance(axis_names, (tuple, list)) else (axis_names,)
    if len(names) != ndim:
        raise ArgumentError(
            where,
            expected=f"one axis name per dimension, {ndim} in all",
            got=f"axis names {names}",
            fix="reshape the array of devices, or give a name for each of its dimensions",
        )
    if len(set(names)) != len(names) or None in names:
        raise ArgumentError(
            where,
            expected="distinct axis names, none of them None",
            got=f"{names}",
            fix="rename the repeated axes, for example to ('data', 'model')",
        )
    # Auto is the default of the classes; `make_mesh` defaults to Explicit.
    if axis_types is None:
        return names, (AxisType.Auto,) * ndim
    types = (axis_types,) * ndim if isinstance(axis_types, AxisType) else tuple(axis_types)
    if len(types) != ndim or not all(isinstance(of, AxisType) for of in types):
        raise ArgumentError(
            where,
            expected=f"one AxisType per axis, {ndim} in all",
            got=f"axis_types={axis_types!r}",
            fix="pass axis_types=(AxisType.Auto, ...), or leave it out",
        )
    return names, types
