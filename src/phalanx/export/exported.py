"""`Exported`: a compiled function as a value that can be saved, called, and differentiated.

The data are in `ExportedProgram`. This file adds the methods that depend on other files of the package: calls
(`call_exported`), bytes (`artifact_writer`) and shardings (`type_serialization`). `exporting` and `artifact_reader`
make instances.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from phalanx.core import ShapedArray
from phalanx.engine import HloSharding, api_boundary_class, mlir, stablehlo
from phalanx.export.artifact_writer import write_artifact
from phalanx.export.call_exported import make_call
from phalanx.export.exported_program import ExportedProgram
from phalanx.export.program_mesh import choose_mesh_sizes
from phalanx.export.type_serialization import StoredSharding, to_hlo_sharding, with_devices
from phalanx.sharding import Mesh, Sharding
from phalanx.typing import PyTree

minimum_supported_calling_convention_version: Final = 1
maximum_supported_calling_convention_version: Final = 1


# `eq=False` in the base class: programs are compared by identity, as keys of compiled calls.
@final
@api_boundary_class
class Exported(ExportedProgram):
    """A function exported by `export`, or read from an artifact by `deserialize`.

    Args:
      fun_name: the name of the function.
      in_tree, out_tree: the structures of `(args, kwargs)` and of the result.
      in_avals, out_avals: the type of each leaf; dimensions may be symbolic.
      in_shardings, out_shardings: for each leaf a `NamedSharding` over an `AbstractMesh`, an `HloSharding`, or None.
      nr_devices: the number of devices that the program is partitioned over.
      platforms: the platforms that it was lowered for.
      ordered_effects, unordered_effects: the names of its effects.
      disabled_safety_checks: the checks that were disabled at export.
      mlir_module_serialized: the program as a portable StableHLO artifact.
      calling_convention_version: the version of the argument order of its `main`.
      module_kept_var_idx: the indices of the flat arguments that its `main` takes; unused ones are dropped.
      parameters: the names of the positional parameters, for error messages.
      constraints: the constraints between dimension variables, which every call checks.
      mesh_axes: the axes of the mesh that the program was exported for, and which of their sizes it fixes; None if the
        program is for one device, names several meshes or other shardings, or comes from an older artifact.
      devices_fixed_by: why a program for several devices has no `mesh_axes`, and runs on as many devices only; None
        otherwise, and in older artifacts.

    Examples:
      >>> import phalanx
      >>> from phalanx import export
      >>> exported = export.export(phalanx.jit(lambda x: x + 1))(phalanx.ShapeDtypeStruct((3,), "float32"))
      >>> exported.out_avals
      (ShapedArray(float32[3]),)
    """

    @property
    def in_shardings_hlo(self) -> tuple[HloSharding | None, ...]:
        """The sharding of each leaf of the arguments in XLA's form, or None."""
        return _hlo_shardings(self.in_shardings, self.in_avals)

    @property
    def out_shardings_hlo(self) -> tuple[HloSharding | None, ...]:
        """The sharding of each leaf of the result in XLA's form, or None."""
        return _hlo_shardings(self.out_shardings, self.out_avals)

    def in_shardings_jax(self, mesh: Mesh) -> tuple[Sharding | None, ...]:
        """The sharding of each leaf of the arguments over the devices of `mesh`, or None.

        Args:
          mesh: a mesh that the program can be called on: with the axes of `mesh_axes`, or with `nr_devices` devices.

        Returns:
          A tuple with one entry for each leaf.

        Raises:
          ShardingError: the program cannot run on that mesh.
        """
        return self._with_devices(self.in_shardings, mesh)

    def out_shardings_jax(self, mesh: Mesh) -> tuple[Sharding | None, ...]:
        """The sharding of each leaf of the result over the devices of `mesh`, or None.

        Args:
          mesh: as for `in_shardings_jax`.

        Returns:
          A tuple with one entry for each leaf.

        Raises:
          ShardingError: the program cannot run on that mesh.
        """
        return self._with_devices(self.out_shardings, mesh)

    def _with_devices(self, shardings: Sequence[StoredSharding], mesh: Mesh) -> tuple[Sharding | None, ...]:
        where = f"shardings of exported {self.fun_name}, argument mesh"
        sizes = choose_mesh_sizes(self, mesh.shape, mesh.size, where)
        return tuple(with_devices(s, mesh, sizes) for s in shardings)

    def mlir_module(self) -> str:
        """The program as StableHLO text.

        Returns:
          The text of the module.
        """
        return str(stablehlo.deserialize(self.mlir_module_serialized, mlir.make_context()))

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """Write the function to bytes; docs/export-format.md describes the format.

        Args:
          vjp_order: how many orders of reverse-mode derivatives to include.

        Returns:
          The bytes, which `deserialize` reads.

        Raises:
          ArgumentError: `vjp_order` is negative, or larger than the number of available derivatives.
          TreeSerializationError: the arguments or results contain a container class that is not registered.
        """
        return write_artifact(self, vjp_order)

    def call(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Call the function on arrays, or on traced values inside `jit`, `grad`, `vmap` and other exports.

        The program runs on the mesh of the arguments, which may have other sizes than that of the export, or on one
        device (see `mesh_axes`).

        Args:
          *args, **kwargs: the arguments.

        Returns:
          The result of the function.

        Raises:
          TreeError: the arguments have another structure.
          ArgumentTypeError: an argument has another dtype.
          ShapeError: an argument has a shape that the program does not support.
          PlatformError: the program was not lowered for the current platform.
          ShardingError: the program cannot run on as many devices as the arguments have, or on their mesh.
        """
        return self._call(args, kwargs)

    call_exported = call

    @functools.cached_property
    def _call(self) -> Callable[[tuple[Any, ...], dict[str, Any]], PyTree]:
        return make_call(self)


def _hlo_shardings(shardings: Sequence[StoredSharding], avals: Sequence[ShapedArray]) -> tuple[HloSharding | None, ...]:
    return tuple(to_hlo_sharding(s, a) for s, a in zip(shardings, avals, strict=True))
