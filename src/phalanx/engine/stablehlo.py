"""StableHLO as a portable format: versioned serialization, refinement of symbolic shapes, interpretation, and
conversion to HLO.

Builds on jaxlib's bindings of the StableHLO dialect.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from jaxlib import _jax
from jaxlib._hlo import HloPrintOptions

from phalanx.engine.defining_module import public_in
from phalanx.engine.error_record import PhalanxError
from phalanx.engine.mlir import dense_constant, hlo, ir, walk_operations

# The first bytes of MLIR's bytecode (mlir.llvm.org/docs/BytecodeFormat). Other bytes would be parsed as MLIR text.
_BYTECODE_MAGIC = b"ML\xefR"


@public_in("phalanx.export")
class ArtifactError(PhalanxError, ValueError):
    """Bytes are not a valid portable program.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> from phalanx import export
      >>> try:
      ...     export.deserialize(b"nothing")
      ... except ArtifactError as error:
      ...     print(error.expected)
      bytes that start as an exported program
    """


def current_version() -> str:
    """The version of StableHLO in which modules are built, such as "1.14.0"."""
    return hlo.get_current_version()


def minimum_version() -> str:
    """The oldest version of StableHLO that can be read and written."""
    return hlo.get_minimum_version()


def version_for_weeks(weeks: int) -> str:
    """The newest version that readers of a given age understand.

    Args:
      weeks: 0, 4, 12, or any number up to the compatibility window; it is rounded up to the next guarantee.

    Returns:
      The version, for `serialize`.

    Examples:
      >>> version_for_weeks(0) == current_version()
      True
    """
    requirement = hlo.StablehloCompatibilityRequirement
    guarantees = {0: requirement.NONE, 4: requirement.WEEK_4, 12: requirement.WEEK_12}
    return hlo.get_version_from_compatibility_requirement(
        next((guarantees[age] for age in guarantees if weeks <= age), requirement.MAX)
    )


def serialize(module: Any, version: str | None = None) -> bytes:
    """Serialize a module as a portable artifact.

    Args:
      module: the MLIR module; Shardy's annotations are stored besides the versioned operations.
      version: the version of StableHLO to write; None for the current one.

    Returns:
      The artifact's bytes.

    Raises:
      XlaRuntimeError: the module has an operation that this version does not have.
    """
    return _jax.mlir.serialize_portable_artifact(module, version or current_version(), True)


def deserialize(artifact: bytes, context: ir.Context) -> Any:
    """Deserialize a portable artifact.

    Args:
      artifact: bytes from `serialize`, of this or another version.
      context: the context of the new module.

    Returns:
      The MLIR module.

    Raises:
      ArtifactError: the bytes are not an artifact, or one of an unsupported version.
    """
    said: list[str] = []

    def listen(diagnostic: Any) -> bool:
        try:
            said.append(diagnostic.message)
        except RuntimeError:  # the message quotes bytes of a damaged file that are not text
            said.append("with a message that is no text")
        return True

    module = None
    if artifact.startswith(_BYTECODE_MAGIC):
        # The reader of the dialect's bindings holds the GIL, which a handler written in Python needs.
        handler = context.attach_diagnostic_handler(listen)
        try:
            module = hlo.deserialize_portable_artifact(context, artifact)
        except ValueError as error:
            said.append(str(error))
        finally:
            handler.detach()
    if module is None:
        raise ArtifactError(
            "portable artifact",
            expected=f"a program in StableHLO {minimum_version()} to {current_version()}",
            got=f"{len(artifact)} other bytes ({said[0] if said else 'without the first bytes of an artifact'})",
            fix="check that the file is complete, or read it with a newer jaxlib",
        )
    return module


def main_signature(module: Any) -> tuple[list[str], list[str]] | None:
    """The types of the parameters and results of a module's `main`, as MLIR text; None if there is no `main`."""
    for op in module.body.operations:
        if op.operation.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == "main":
            kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
            return list(map(str, kind.inputs)), list(map(str, kind.results))
    return None


def custom_calls(module: Any) -> list[str]:
    """The names of the kernels that a module calls, sorted."""
    calls = (op for op in walk_operations(module.operation) if op.name == "stablehlo.custom_call")
    return sorted({ir.StringAttr(op.attributes["call_target_name"]).value for op in calls})


def refine_shapes(module: Any, context: ir.Context, *, check_assertions: bool = True, use_shardy: bool = True) -> Any:
    """Compute the static shapes of a program with symbolic shapes whose `main` has static arguments.

    Args:
      module: the MLIR module.
      context: the context of the new module.
      check_assertions: whether failing shape assertions are errors; otherwise they are dropped.
      use_shardy: whether the sharding annotations are Shardy's.

    Returns:
      The refined module.

    Raises:
      XlaRuntimeError: a shape remains unknown, or an assertion fails; the text has its message.
    """
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return ir.Module.parse(
        _jax.mlir.refine_polymorphic_shapes(
            buffer.getvalue(),
            enable_shape_assertions=check_assertions,
            validate_static_shapes=True,
            enable_shardy=use_shardy,
        ),
        context,
    )


def interpret(module: Any, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """Run a module in StableHLO's reference interpreter, which is slow and shares no code with XLA.

    Args:
      module: the MLIR module, of StableHLO operations only.
      arguments: one array for each parameter of `main`.

    Returns:
      One array for each result.
    """
    with module.context:
        return list(map(np.array, hlo.eval_module(module, [dense_constant(np.asarray(x)) for x in arguments])))


def to_hlo(module: Any) -> Any:
    """Convert a module to HLO before any pass, as jaxlib's `XlaComputation`."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return _jax.mlir.mlir_module_to_xla_computation(buffer.getvalue(), use_tuple_args=False, return_tuple=False)


def to_hlo_text(module: Any, debug_info: bool = False) -> str:
    """Format a module as HLO before any pass, with the names and source lines of the operations if `debug_info`."""
    options = HloPrintOptions.short_parsable()
    options.print_metadata = debug_info
    return to_hlo(module).as_hlo_module().to_string(options)


def cost_analysis(module: Any, device: Any) -> dict[str, Any]:
    """XLA's estimate of a module's work before compiling, by name ("flops", "bytes accessed", ...)."""
    return _jax.hlo_module_cost_analysis(device.client, to_hlo(module).as_hlo_module())
