"""Which sizes of mesh axes a function reads as Python numbers while it is traced for an export.

Such a number becomes part of the program, which then is not the one that a mesh of other sizes would need. So does the
number of devices of the process (`device_count()`, `len(devices())`), which fixes all axes. `exporting` traces inside
`watch_mesh_sizes` and marks the axes that were read as fixed. Outside of an export no attribute is replaced, and a read
costs nothing more.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from phalanx.core import current_scope, state_extra
from phalanx.engine import Device, api_boundary, client, is_internal
from phalanx.sharding import Mesh, NamedSharding
from phalanx.sharding.mesh import NamedAxes

# The attributes and methods whose values depend on sizes of axes: of a mesh, or of a sharding.
_OF_MESHES = ("shape", "shape_tuple", "size", "axis_sizes", "num_parts")
_OF_DEVICES = ("devices", "flat_devices", "device_ids", "device_list", "device_set", "local_devices")
_OF_SHARDINGS = (
    *("num_devices", "device_set", "addressable_devices", "is_fully_replicated", "shard_shape", "padded_shape"),
    *("shards", "addressable_shards", "devices_indices_map", "addressable_devices_indices_map", "tiling"),
)
# Those that depend on the axes in the spec only.
_OF_SPECS = {"is_fully_replicated", "shard_shape", "padded_shape"}
_BOUNDARY = api_boundary(lambda: None).__code__  # of the wrapper that public functions have
_lock = threading.RLock()  # while one thread exports, the reads of others pass through unrecorded


class MeshSizeReads:
    """The sizes that were read: a field of the context, so that nothing traced before is taken from a cache."""

    def __init__(self) -> None:
        # By axis, the attribute that was read, and the file and line that read it; None stands for all axes.
        self.lines: dict[Any, str] = {}

    def record(self, axes: Any, name: str, frame: FrameType | None) -> None:
        """Record that a user's line, the innermost one from `frame` outwards, read the size of some axes."""
        while frame is not None and is_internal(frame.f_code):
            frame = frame.f_back
        line = "an unknown line" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        for axis in axes:
            self.lines.setdefault(axis, f"{name} at {line}")

    def observe_count(self, name: str, found: Any) -> Any:
        """Record a call of the user that counts the devices or processes, or watch the list of devices that it gets."""
        frame: Any = sys._getframe(2)  # the caller of the function
        if frame.f_code is _BOUNDARY:
            frame = frame.f_back
        if is_internal(frame.f_code):
            return found
        if isinstance(found, list):
            return _WatchedList(found, lambda: self.record([None], f"{name}()", sys._getframe(2)))
        self.record([None], f"{name}()", frame)
        return found


@contextlib.contextmanager
def watch_mesh_sizes() -> Iterator[MeshSizeReads]:
    """Record the mesh sizes that the user's code reads on this thread inside a `with` block."""
    reads = MeshSizeReads()
    watched = [
        (cls, name)
        for cls, names in ((NamedAxes, _OF_MESHES), (Mesh, _OF_DEVICES), (NamedSharding, _OF_SHARDINGS))
        for name in names
    ]
    with _lock:
        held = [vars(cls).get(name) for cls, name in watched]
        for cls, name in watched:
            setattr(cls, name, _WatchedAttribute(name, inspect.getattr_static(cls, name, None)))
        observed = client.count_observer.set(reads.observe_count)
        try:
            with state_extra(mesh_size_reads=reads):
                yield reads
        finally:
            client.count_observer.reset(observed)
            for (cls, name), attribute in zip(watched, held, strict=True):
                if attribute is None:
                    delattr(cls, name)
                else:
                    setattr(cls, name, attribute)


class _WatchedAttribute:
    """Takes the place of an attribute of meshes or shardings.

    A descriptor with `__set__` comes before the attributes of instances.

    Args:
      name: the name of the attribute.
      held: the descriptor that it replaces; None for an attribute of instances.
    """

    def __init__(self, name: str, held: Any):
        self.name, self.held = name, held

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        if owner is None:
            return self.held
        values = getattr(owner, "__dict__", {})  # shardings have slots
        if self.name in values:
            value = values[self.name]
        elif self.held is not None:
            value = self.held.__get__(owner, cls)
        else:
            raise AttributeError(f"{type(owner).__name__!r} object has no attribute {self.name!r}")
        reads: MeshSizeReads | None = current_scope().context.mesh_size_reads
        frame = sys._getframe(1)
        if reads is None or is_internal(frame.f_code):
            return value
        if isinstance(owner, NamedSharding):
            spec = owner.spec
            axes = (*spec.axes, *spec.unreduced) if self.name in _OF_SPECS else owner.mesh.axis_names
            reads.record(axes, f"sharding.{self.name}", frame)
            return value
        if (watch := _WATCHED_VALUES.get(self.name)) is not None:
            return watch(value, lambda axes, name: reads.record(axes or owner.axis_names, name, sys._getframe(2)))
        reads.record(owner.axis_names, f"mesh.{self.name}", frame)
        return value

    def __set__(self, owner: Any, value: Any) -> None:
        if hasattr(self.held, "__set__"):  # the slot of a sharding
            self.held.__set__(owner, value)
        else:
            vars(owner)[self.name] = value


Record = Callable[[Any, str], None]  # of axes, none for all of a mesh, and of the name of an attribute


class _WatchedSizes(OrderedDict[Any, int]):
    """The sizes of axes by name, which records what is read. The names are no sizes."""

    def __init__(self, sizes: OrderedDict[Any, int], record: Record):
        super().__init__(sizes)
        self._record = record

    def __getitem__(self, axis: Any) -> int:
        self._record([axis], f"mesh.shape[{axis!r}]")
        return super().__getitem__(axis)

    def get(self, axis: Any, default: Any = None) -> Any:
        self._record([axis], f"mesh.shape.get({axis!r})")
        return super().get(axis, default)

    def values(self) -> Any:
        self._record([], "mesh.shape.values()")
        return super().values()

    def items(self) -> Any:
        self._record([], "mesh.shape.items()")
        return super().items()

    def copy(self) -> Any:
        self._record([], "mesh.shape.copy()")
        return OrderedDict(super().items())

    def __eq__(self, other: object) -> bool:
        self._record([], "mesh.shape")
        return OrderedDict(super().items()) == other

    __hash__ = None  # type: ignore[assignment]


def _watch_num_parts(num_parts: Callable[[Any], int], record: Record) -> Callable[[Any], int]:
    def watched(axes: Any) -> int:
        axes = tuple(axes)
        if axes:
            record(axes, "mesh.num_parts")
        return num_parts(axes)

    return watched


class _WatchedDevices:
    """The devices of a mesh. A single one, which may be asked for its platform, tells no size; all else is recorded.

    Args:
      devices: an array, tuple or flat iterator.
      record: called for a read.
    """

    def __init__(self, devices: Any, record: Record):
        self._devices, self._record = devices, record

    __class__ = property(lambda self: type(self._devices))  # type: ignore[assignment]  # isinstance sees an array

    def _read(self) -> Any:
        self._record([], "mesh.devices")
        return self._devices

    def __getitem__(self, index: Any) -> Any:
        found = self._devices[index]
        return found if isinstance(found, Device) else _WatchedDevices(found, self._record)

    def __getattr__(self, name: str) -> Any:
        if name == "flat":
            return _WatchedDevices(self._devices.flat, self._record)
        return getattr(self._devices if name in ("ndim", "dtype") else self._read(), name)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray[Any, Any]:
        return np.array(self._read(), dtype=object)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __eq__(self, other: object) -> Any:
        return self._read() == other

    __hash__ = None  # type: ignore[assignment]


class _WatchedList(list[Device]):
    """The devices of the process, which records what depends on their number; one of them tells no number.

    Args:
      devices: the devices.
      record: called for a read.
    """

    def __init__(self, devices: list[Device], record: Callable[[], None]):
        super().__init__(devices)
        self._record = record

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and index.stop is None:
            self._record()
        return super().__getitem__(index)

    def __len__(self) -> int:
        self._record()
        return super().__len__()

    def __iter__(self) -> Iterator[Device]:
        self._record()
        return super().__iter__()

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray[Any, Any]:
        return np.array([*self], dtype=object)

    def __add__(self, other: Any) -> Any:
        return [*self] + other

    def __eq__(self, other: object) -> bool:
        return [*self] == other

    __hash__ = None  # type: ignore[assignment]


_WATCHED_VALUES: dict[str, Callable[[Any, Record], Any]] = {
    "shape": _WatchedSizes,
    "num_parts": _watch_num_parts,
    "devices": _WatchedDevices,
    "flat_devices": _WatchedDevices,
}
