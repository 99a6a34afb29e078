"""Which sizes of mesh axes a function reads as Python numbers while it is traced for an export.

Such a number becomes part of the program, which then is not the one that a mesh of other sizes would need. `exporting`
traces inside `watch_mesh_sizes` and marks the axes that were read as fixed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from phalanx.core import current_scope, state_extra
from phalanx.engine import is_internal
from phalanx.sharding.mesh import NamedAxes

_ATTRIBUTES = ("shape", "shape_tuple", "size", "axis_sizes", "devices", "device_ids", "flat_devices")
_lock = threading.RLock()  # while one thread exports, the reads of others pass through unrecorded


class MeshSizeReads:
    """The sizes that were read: a field of the context, so that nothing traced before is taken from a cache."""

    def __init__(self) -> None:
        self.lines: dict[Any, str] = {}  # by axis, the attribute of the mesh, and the file and line that read it

    def record(self, axes: Any, name: str, frame: FrameType) -> None:
        """Record that a user's line read the size of some axes."""
        line = f"mesh.{name} at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        for axis in axes:
            self.lines.setdefault(axis, line)


@contextlib.contextmanager
def watch_mesh_sizes() -> Iterator[MeshSizeReads]:
    """Record the mesh sizes that the user's code reads on this thread inside a `with` block."""
    reads = MeshSizeReads()
    with _lock:
        held = {name: vars(NamedAxes).get(name) for name in _ATTRIBUTES}
        for name, attribute in held.items():
            setattr(NamedAxes, name, _WatchedAttribute(name, attribute))
        try:
            with state_extra(mesh_size_reads=reads):
                yield reads
        finally:
            for name, attribute in held.items():
                if attribute is None:
                    delattr(NamedAxes, name)
                else:
                    setattr(NamedAxes, name, attribute)


class _WatchedAttribute:
    """Takes the place of an attribute of meshes. A descriptor with `__set__` comes before the attributes of instances.

    Args:
      name: the name of the attribute.
      held: the property that it replaces; None for an attribute of instances.
    """

    def __init__(self, name: str, held: Any):
        self.name, self.held = name, held

    def __get__(self, mesh: Any, owner: type | None = None) -> Any:
        if mesh is None:
            return self.held
        values = vars(mesh)
        if self.name in values:
            value = values[self.name]
        elif self.held is not None:
            value = self.held.__get__(mesh, owner)
        else:
            raise AttributeError(f"{type(mesh).__name__!r} object has no attribute {self.name!r}")
        reads: MeshSizeReads | None = current_scope().context.mesh_size_reads
        frame = sys._getframe(1)
        if reads is None or is_internal(frame.f_code):
            return value
        if self.name == "shape":  # its keys are no sizes
            return _WatchedSizes(value, reads.record)
        reads.record(mesh.axis_names, self.name, frame)
        return value

    def __set__(self, mesh: Any, value: Any) -> None:
        vars(mesh)[self.name] = value


class _WatchedSizes(OrderedDict[Any, int]):
    """The sizes of axes by name, which records what is read."""

    def __init__(self, sizes: OrderedDict[Any, int], record: Callable[[Any, str, FrameType], None]):
        super().__init__(sizes)
        self._record = record

    def __getitem__(self, axis: Any) -> int:
        self._record([axis], f"shape[{axis!r}]", sys._getframe(1))
        return super().__getitem__(axis)

    def get(self, axis: Any, default: Any = None) -> Any:
        self._record([axis], f"shape.get({axis!r})", sys._getframe(1))
        return super().get(axis, default)

    def values(self) -> Any:
        self._record(self, "shape.values()", sys._getframe(1))
        return super().values()

    def items(self) -> Any:
        self._record(self, "shape.items()", sys._getframe(1))
        return super().items()
