"""The mesh of an exported program, and the choice of a mesh of other sizes for a call.

The shardings of a program name the axes of its mesh, so the program runs on other numbers of devices if the mesh is
declared with other sizes. The body of a `shard_map` has the shapes of shards, and its collectives list devices:
it fixes the sizes of the axes of its mesh. `exporting` records the axes; `exported` and `call_exported` choose the mesh
of a call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx.core import ShardingError
from phalanx.engine.mlir import ir, sdy
from phalanx.export.exported_program import ExportedProgram, ProgramAxis


class DeclaredMesh(NamedTuple):
    """A mesh as a module declares it.

    Args:
      sizes: the size of each axis by name.
      order: for each position of the mesh the number of a partition; empty if they are in order.
    """

    sizes: dict[str, int]
    order: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.sizes.values())


def read_mesh(attribute: ir.Attribute) -> DeclaredMesh:
    """Read the attribute of a mesh."""
    mesh = sdy.MeshAttr(attribute)
    return DeclaredMesh({axis.name: axis.size for axis in map(sdy.MeshAxisAttr, mesh.axes)}, tuple(mesh.device_ids))


def choose_mesh_sizes(
    exported: ExportedProgram, available: Mapping[Any, int] | None, num_devices: int, where: str
) -> dict[str, int] | None:
    """Choose the sizes of the mesh axes of a program for a number of devices.

    Args:
      exported: the program.
      available: the sizes of the axes of the caller's mesh, if it has one.
      num_devices: the number of devices of the call.
      where: the operation, for errors.

    Returns:
      The sizes on the caller's mesh, and 1 for axes that it lacks. None for the mesh of the export, if it has as
      many devices and no other one is possible, and for a program for one device, which names no mesh.

    Raises:
      ShardingError: the program cannot run on that number of devices.
    """
    if exported.nr_devices == 1:
        return None
    try:
        return _fit_sizes(exported, available, num_devices, where)
    except ShardingError:
        if num_devices == exported.nr_devices:
            return None
        raise


def _fit_sizes(
    exported: ExportedProgram, available: Mapping[Any, int] | None, num_devices: int, where: str
) -> dict[str, int]:
    axes = exported.mesh_axes or ()
    names = [axis.name for axis in axes]
    found = {str(name): size for name, size in (available or {}).items()}
    sizes = found if num_devices > 1 and found.keys() & set(names) else {}
    sizes = sizes | {name: 1 for name in names if name not in sizes}  # in the order of the caller's mesh
    if not axes or math.prod(sizes.values()) != num_devices:
        reason = "" if exported.devices_fixed_by is None else f", since {exported.devices_fixed_by}"
        raise ShardingError(
            where,
            expected=f"arguments over {exported.nr_devices} devices, as it was exported for{reason}"
            + (f", or over a mesh with the axes {', '.join(map(_describe, axes))}" if axes else ""),
            got=f"a program for {num_devices}" + (f" over {_format_sizes(found)}" if found else ""),
            fix="place the arguments with device_put(x, NamedSharding(mesh, spec)) on such a mesh"
            + ("" if axes else ", or export the function again with shardings over one mesh"),
        )
    for axis in axes:
        if axis.fixed_by is not None and sizes[axis.name] != axis.size:
            raise ShardingError(
                where,
                expected=f"a mesh with {axis.name}={axis.size}, the size that {axis.fixed_by} was exported with",
                got=_format_sizes(sizes),
                fix=f"call it on a mesh with {axis.name}={axis.size}, or export the function again with this mesh",
            )
    return sizes


def _describe(axis: ProgramAxis) -> str:
    """The name of an axis, its size if that is fixed, and what fixes or names it."""
    name = axis.name if axis.fixed_by is None else f"{axis.name}={axis.size}"
    by = axis.fixed_by or axis.named_by
    return name if by is None else f"{name} ({by})"


def _format_sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
