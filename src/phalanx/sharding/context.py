"""The mesh in force on this thread: `with mesh:`, `set_mesh`, `use_mesh`, and how to ask for it.

Builds on `core.config`, whose context holds the mesh, so that programs traced under different meshes are told apart.
Functions that take bare specs ask here for the mesh to read them over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from phalanx.core.config import state
from phalanx.core.errors import ArgumentTypeError, ShardingError
from phalanx.engine.frames import boundaries
from phalanx.sharding.mesh import AbstractMesh, Mesh, replace_mesh
from phalanx.sharding.shardings import NamedSharding, Sharding
from phalanx.sharding.spec import PartitionSpec


def get_mesh() -> Mesh:
    """The mesh of devices in force on this thread.

    Returns:
      The mesh; one without axes where none was set.

    Examples:
      >>> from phalanx.sharding import make_mesh, set_mesh
      >>> with set_mesh(make_mesh((1,), ("data",))):
      ...     get_mesh().axis_names
      ('data',)
    """
    mesh = state.context.mesh
    return mesh if isinstance(mesh, Mesh) else Mesh(np.empty((), dtype=object), ())


def get_abstract_mesh() -> AbstractMesh:
    """The axes in force on this thread.

    Returns:
      The mesh without its devices; one without axes where none was set.

    Examples:
      >>> with use_abstract_mesh(AbstractMesh((4, 2), ("data", "model"))):
      ...     get_abstract_mesh().shape["model"]
      2
    """
    mesh = state.context.mesh
    return AbstractMesh((), ()) if mesh is None else mesh.abstract_mesh


@boundaries
class set_mesh:
    """Put a mesh in force on this thread from now on, or for the length of a `with` block.

    Args:
      mesh: the mesh; None puts none in force.

    Raises:
      ArgumentTypeError: the argument is no mesh.
      ShardingError: a function that is being compiled would change the mesh.

    Examples:
      >>> import phalanx.sharding
      >>> with set_mesh(phalanx.sharding.make_mesh((1,), ("data",))) as mesh:
      ...     get_mesh() is mesh
      True
      >>> get_mesh().empty
      True
    """

    def __init__(self, mesh: Mesh | AbstractMesh | None) -> None:
        _check_mesh(mesh, "set_mesh")
        self._mesh = mesh
        self._outer = replace_mesh(mesh)

    def __enter__(self) -> Mesh | AbstractMesh | None:
        return self._mesh

    def __exit__(self, *exc_info: object) -> None:
        state.context = state.context.replace(mesh=self._outer)


@contextlib.contextmanager
def use_mesh(mesh: Mesh | AbstractMesh) -> Iterator[Mesh | AbstractMesh]:
    """Put a mesh in force on this thread for the length of a `with` block.

    Args:
      mesh: the mesh.

    Yields:
      The mesh.

    Raises:
      ArgumentTypeError: the argument is no mesh.
      ShardingError: a function that is being compiled would change the mesh.

    Examples:
      >>> with use_mesh(AbstractMesh((4,), ("data",))):
      ...     get_abstract_mesh().axis_names
      ('data',)
    """
    _check_mesh(mesh, "use_mesh")
    with set_mesh(mesh):
        yield mesh


use_abstract_mesh = use_mesh  # its name where a mesh without devices is put in force


def to_sharding(spec: Any, *, where: str) -> Sharding:
    """Read a sharding, or a bare spec over the mesh in force; `where` is the argument by its path, for the error.

    Args:
      spec: a sharding, or a `PartitionSpec`.
      where: the argument by its path, for the error.

    Returns:
      The sharding.

    Raises:
      ShardingError: there is no mesh in force, or the spec does not fit it.
      ArgumentTypeError: the argument is neither.

    Examples:
      >>> with use_mesh(AbstractMesh((4,), ("data",))):
      ...     to_sharding(PartitionSpec("data"), where="f, argument x").shard_shape((8,))
      (2,)
    """
    if isinstance(spec, Sharding):
        return spec
    if not isinstance(spec, PartitionSpec):
        raise ArgumentTypeError(
            where,
            expected="a Sharding, or a PartitionSpec over the mesh in force",
            got=f"{spec!r} of type {type(spec).__name__}",
            mend="give NamedSharding(mesh, PartitionSpec(...))",
        )
    return over_mesh(spec, state.context.mesh, where)


def over_mesh(spec: PartitionSpec, mesh: Mesh | AbstractMesh | None, where: str) -> NamedSharding:
    """A bare spec as a sharding over a mesh, which there must be."""
    if mesh is None or mesh.empty:
        raise ShardingError(
            where,
            expected="a sharding, or a mesh in force for a bare spec",
            got=spec,
            mend="give NamedSharding(mesh, spec), or call inside `with mesh:` or after set_mesh(mesh)",
        )
    return NamedSharding(mesh, spec, where=where)


def _check_mesh(mesh: Any, where: str) -> None:
    if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
        raise ArgumentTypeError(
            where,
            expected="a Mesh or an AbstractMesh",
            got=f"{mesh!r} of type {type(mesh).__name__}",
            mend="make one with make_mesh(sizes, names)",
        )
