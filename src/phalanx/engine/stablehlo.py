"""StableHLO as a portable format: writing and reading versioned bytes, refining symbolic shapes, interpreting,
and the same program in HLO.

Builds on the bindings of the StableHLO dialect; `spmd`, `export` and `plan` call it.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from jaxlib import _jax

from phalanx.engine.errors import PhalanxError
from phalanx.engine.mlir import hlo, ir

_BYTECODE_MAGIC = b"ML\xefR"


class ArtifactError(PhalanxError, ValueError):
    """Bytes that should hold a portable program do not.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> from phalanx import export
      >>> try:
      ...     export.deserialize(b"nothing")
      ... except ArtifactError as error:
      ...     print(error.expected)
      bytes that start as an exported program
    """


def current_version() -> str:
    """Give the version of StableHLO that programs are built in, as in "1.14.0"."""
    return hlo.get_current_version()


def minimum_version() -> str:
    """Give the oldest version of StableHLO that can still be read and written."""
    return hlo.get_minimum_version()


def version_for_weeks(weeks: int) -> str:
    """Give the newest version that readers of a given age understand.

    Args:
      weeks: 0, 4, 12, or any number up to the compatibility window; the next longer promise is taken.

    Returns:
      The version, for `serialize`.

    Examples:
      >>> version_for_weeks(0) == current_version()
      True
    """
    requirement = hlo.StablehloCompatibilityRequirement
    if weeks <= 0:
        return hlo.get_version_from_compatibility_requirement(requirement.NONE)
    if weeks <= 4:
        return hlo.get_version_from_compatibility_requirement(requirement.WEEK_4)
    if weeks <= 12:
        return hlo.get_version_from_compatibility_requirement(requirement.WEEK_12)
    return hlo.get_version_from_compatibility_requirement(requirement.MAX)


def serialize(module: Any, version: str | None = None) -> bytes:
    """Write a module as a portable artifact.

    Args:
      module: the MLIR module; Shardy's annotations are written beside the versioned operations.
      version: the version of StableHLO to write; None for the current one.

    Returns:
      The artifact's bytes.

    Raises:
      XlaRuntimeError: the program has an operation that this version does not know.
    """
    return _jax.mlir.serialize_portable_artifact(module, version or current_version(), True)


def deserialize(artifact: bytes, context: ir.Context) -> Any:
    """Read a portable artifact.

    Args:
      artifact: bytes from `serialize`, of this or another version.
      context: the context in which the module is made.

    Returns:
      The MLIR module.

    Raises:
      ArtifactError: the bytes are no artifact, or of a version that is not supported.
    """
    said: list[str] = []

    def listen(diagnostic: Any) -> bool:
        try:
            said.append(diagnostic.message)
        except RuntimeError:  # bytes of a damaged file in it, which are no text
            said.append("with a message that is no text")
        return True

    module = None
    if artifact.startswith(_BYTECODE_MAGIC):
        # The dialect's own reader keeps the GIL, which a handler written in Python needs.
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
            got=f"{len(artifact)} bytes that are none ({said[0] if said else 'they do not start as one'})",
            mend="check that the file is whole, or read it with a newer jaxlib",
        )
    return module


def main_signature(module: Any) -> tuple[list[str], list[str]] | None:
    """Give the types that `main` of a module takes and gives, as MLIR writes them; None where there is none."""
    for op in module.body.operations:
        if op.operation.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == "main":
            kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
            return list(map(str, kind.inputs)), list(map(str, kind.results))
    return None


def custom_calls(module: Any) -> list[str]:
    """Give the names of the kernels that a module calls, sorted, each once."""
    found: set[str] = set()

    def visit(op: Any) -> Any:
        if op.name == "stablehlo.custom_call":
            found.add(ir.StringAttr(op.attributes["call_target_name"]).value)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return sorted(found)


def refine_shapes(module: Any, context: ir.Context, *, check_assertions: bool = True, use_shardy: bool = True) -> Any:
    """Work out all static shapes of a program with symbolic ones whose `main` has static arguments.

    Args:
      module: the MLIR module.
      context: the context in which the result is made.
      check_assertions: whether shape assertions that fail are errors; they are dropped otherwise.
      use_shardy: whether the annotations are Shardy's.

    Returns:
      The refined module.

    Raises:
      XlaRuntimeError: a shape stays unknown, or an assertion fails; the text holds its message.
    """
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    refined = _jax.mlir.refine_polymorphic_shapes(
        buffer.getvalue(),
        enable_shape_assertions=check_assertions,
        validate_static_shapes=True,
        enable_shardy=use_shardy,
    )
    return ir.Module.parse(refined, context)


def interpret(module: Any, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """Run a program in StableHLO's reference interpreter: slow, and an oracle that shares no code with XLA.

    Args:
      module: the MLIR module; only operations of StableHLO.
      arguments: one array per parameter of `main`.

    Returns:
      One array per result.
    """
    from phalanx.engine.mlir import dense_constant

    with module.context:
        results = hlo.eval_module(module, [dense_constant(np.asarray(argument)) for argument in arguments])
        return [np.array(result) for result in results]


def to_hlo(module: Any) -> Any:
    """Translate a module to HLO as it is before any pass, as jaxlib's `XlaComputation`."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return _jax.mlir.mlir_module_to_xla_computation(buffer.getvalue(), use_tuple_args=False, return_tuple=False)


def to_hlo_text(module: Any) -> str:
    """Print a module as HLO, as it is before any pass."""
    return to_hlo(module).as_hlo_text()


def cost_analysis(module: Any, device: Any) -> dict[str, Any]:
    """Give XLA's estimate of a program's work before it is compiled, by name ("flops", "bytes accessed", ...)."""
    return _jax.hlo_module_cost_analysis(device.client, to_hlo(module).as_hlo_module())
