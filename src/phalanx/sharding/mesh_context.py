"""The current mesh of a thread: `set_mesh`, `use_mesh`, `get_mesh`, and the resolution of bare specs over it.

The mesh is a field of the context in `core.config`. The context is part of every cache key, so that a function is
traced again under another mesh. Functions that accept a bare `PartitionSpec` call `to_sharding`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentTypeError,
    ConversionError,
    ShapedArray,
    ShardingError,
    enter_block,
    leave_block,
    set_without_block,
    state,
    state_extra,
    type_shardings,
)
from phalanx.engine.traceback_filtering import api_boundary_class
from phalanx.sharding.base_sharding import Sharding
from phalanx.sharding.mesh import AbstractMesh, Mesh, check_mesh_change
from phalanx.sharding.named_sharding import NamedSharding
from phalanx.sharding.partition_spec import PartitionSpec


def get_mesh() -> Mesh:
    """The current mesh of this thread.

    Returns:
      The mesh; a mesh without axes if none was set, or if the current mesh is abstract.

    Examples:
      >>> from phalanx.sharding import make_mesh, set_mesh
      >>> with set_mesh(make_mesh((1,), ("data",))):
      ...     get_mesh().axis_names
      ('data',)
    """
    mesh = state.context.mesh
    return mesh if isinstance(mesh, Mesh) else Mesh(np.empty((), dtype=object), ())


def get_abstract_mesh() -> AbstractMesh:
    """The current mesh of this thread, without its devices.

    Returns:
      The mesh; a mesh without axes if none was set.

    Examples:
      >>> with use_abstract_mesh(AbstractMesh((4, 2), ("data", "model"))):
      ...     get_abstract_mesh().shape["model"]
      2
    """
    mesh = state.context.mesh
    return AbstractMesh((), ()) if mesh is None else mesh.abstract_mesh


def get_placement_mesh() -> Mesh | None:
    """The mesh over whose devices new arrays are replicated: that of `set_mesh`.

    A block `with mesh:`, as older programs have it, only resolves bare specs.

    Returns:
      The mesh, or None.

    Examples:
      >>> from phalanx.sharding import make_mesh, set_mesh
      >>> with set_mesh(make_mesh((1,), ("data",))):
      ...     get_placement_mesh() is get_mesh()
      True
    """
    held: Mesh | None = state.context.placement_mesh
    return held


@api_boundary_class
class set_mesh:
    """Set the current mesh of this thread, permanently or for the duration of a `with` block.

    Args:
      mesh: the mesh; None to unset it.

    Raises:
      ArgumentTypeError: the argument is not a mesh.
      ShardingError: called inside a function that is being compiled.

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
        # Set at construction, so that `set_mesh(mesh)` works without a `with` block.
        self._outer = {name: set_without_block(name, value) for name, value in self._fields().items()}

    def __enter__(self) -> Mesh | AbstractMesh | None:
        for name, value in self._outer.items():
            set_without_block(name, value)
        enter_block(self, self._fields())
        return self._mesh

    def _fields(self) -> dict[str, Any]:
        """The fields of the context that it sets."""
        mesh = check_mesh_change(self._mesh)
        return {"mesh": mesh, "placement_mesh": mesh if isinstance(mesh, Mesh) else None}

    def __exit__(self, *exc_info: object) -> None:
        leave_block(self)


@contextlib.contextmanager
def use_mesh(mesh: Mesh | AbstractMesh) -> Iterator[Mesh | AbstractMesh]:
    """Set the current mesh of this thread for the duration of a `with` block.

    Args:
      mesh: the mesh.

    Yields:
      The mesh.

    Raises:
      ArgumentTypeError: the argument is not a mesh.
      ShardingError: called inside a function that is being compiled.

    Examples:
      >>> with use_mesh(AbstractMesh((4,), ("data",))):
      ...     get_abstract_mesh().axis_names
      ('data',)
    """
    _check_mesh(mesh, "use_mesh")
    # Unlike set_mesh, a use_mesh that is never entered changes nothing.
    with set_mesh(mesh):
        yield mesh


@contextlib.contextmanager
def use_abstract_mesh(mesh: Mesh | AbstractMesh) -> Iterator[Mesh | AbstractMesh]:
    """Set the current mesh of this thread for the duration of a `with` block, also inside compiled functions.

    Inside a compiled function the mesh must have as many devices as the one outside, such as the same mesh with other
    axis types; `reshard` moves an array whose type is over one of them to the other.

    Args:
      mesh: the mesh.

    Yields:
      The mesh.

    Raises:
      ArgumentTypeError: the argument is not a mesh.
      ShardingError: called inside a compiled function, with another number of devices.

    Examples:
      >>> with use_abstract_mesh(AbstractMesh((4,), ("data",))):
      ...     get_abstract_mesh().axis_names
      ('data',)
    """
    _check_mesh(mesh, "use_abstract_mesh")
    fields = {"mesh": check_mesh_change(mesh, within_trace=True)}
    # Outside of compiled functions, the axes are those of the devices of `set_mesh`.
    held = get_placement_mesh()
    if state.trace is None and held is not None and isinstance(mesh, AbstractMesh) and mesh.size == held.size:
        fields = dict.fromkeys(("mesh", "placement_mesh"), mesh.on(held.flat_devices))
    with state_extra(**fields):
        yield mesh


def to_sharding(spec: Sharding | PartitionSpec, *, where: str) -> Sharding:
    """Resolve a bare `PartitionSpec` over the current mesh; a sharding is returned as it is.

    Args:
      spec: a sharding, or a `PartitionSpec`.
      where: path of the argument for the error message.

    Returns:
      The sharding.

    Raises:
      ShardingError: there is no current mesh, or the spec does not fit it.
      ConversionError: `spec` is neither a sharding nor a `PartitionSpec`.

    Examples:
      >>> with use_mesh(AbstractMesh((4,), ("data",))):
      ...     to_sharding(PartitionSpec("data"), where="f, argument x").shard_shape((8,))
      (2,)
    """
    if isinstance(spec, Sharding):
        return spec
    if not isinstance(spec, PartitionSpec):
        raise ConversionError(
            where,
            expected="a Sharding, or a PartitionSpec over the current mesh",
            got=f"{spec!r} of type {type(spec).__name__}",
            fix="pass NamedSharding(mesh, PartitionSpec(...))",
        )
    return spec_to_sharding(spec, state.context.mesh, where)


def spec_to_sharding(spec: PartitionSpec, mesh: Mesh | AbstractMesh | None, where: str) -> NamedSharding:
    """Pair a bare spec with a mesh.

    Raises:
      ShardingError: there is no mesh, or the spec does not fit it.
    """
    if mesh is None or mesh.empty:
        raise ShardingError(
            where,
            expected="a sharding, or a current mesh to resolve a bare spec",
            got=spec,
            fix="pass NamedSharding(mesh, spec), or call the function inside `with mesh:` or after set_mesh(mesh)",
        )
    return NamedSharding(mesh, spec, where=where)


def _complete_type_sharding(aval: ShapedArray) -> NamedSharding:
    """The sharding of a type; without Explicit axes, that of a value which is not split over the mesh in context."""
    held: NamedSharding | None = aval.type_sharding
    return held or NamedSharding(get_abstract_mesh(), PartitionSpec.of_dims([()] * aval.ndim))


type_shardings.provide(
    complete=_complete_type_sharding, resolve=lambda sharding, where: to_sharding(sharding, where=where)
)


def _check_mesh(mesh: object, where: str) -> None:
    if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
        raise ArgumentTypeError(
            where,
            expected="a Mesh or an AbstractMesh",
            got=f"{mesh!r} of type {type(mesh).__name__}",
            fix="create a mesh with phalanx.make_mesh(axis_sizes, axis_names)",
        )
