"""`verify`: reading an artifact from an untrusted source without calling it.

A child process parses the StableHLO inside. If the bytes crash the native parser, only the child ends, and this process
raises an error. Builds on `artifact_reader`, `safety_checks` and `engine.isolated_parser`; users and the command line
call it.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.engine import ArtifactError, custom_call_targets
from phalanx.engine.isolated_parser import Parsed, parse_isolated
from phalanx.export import artifact_reader
from phalanx.export.artifact_reader import deserialize
from phalanx.export.exported import Exported
from phalanx.export.exported_program import check_main
from phalanx.export.safety_checks import DisabledSafetyCheck, uncallable_targets
from phalanx.symbolic.simplex import limit_work


class ParsedProgram(NamedTuple):
    """A program of an artifact, and the parser's report on it."""

    exported: Exported
    parsed: Parsed
    where: str  # "the program", "derivative 1", ...


def verify(blob: bytes | bytearray | memoryview, *, seconds: float = 60.0) -> Exported:
    """Read an artifact of unknown origin; no bytes can crash or block this process.

    The checks of `deserialize` are made for the program and all its derivatives. A child process with limits on time
    and memory parses their StableHLO, which `deserialize` leaves to the first call. The types of each program must
    agree with its header, and it may only call kernels that are stable and that this installation has. The checks
    do not make the program trustworthy: calling the result executes it.

    Args:
      blob: the bytes of the artifact.
      seconds: the time limit of the parser.

    Returns:
      The `Exported`.

    Raises:
      ArtifactError: a check failed.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx import export
      >>> blob = export.export(phalanx.jit(jnp.sin))(phalanx.ShapeDtypeStruct((4,), "float32")).serialize()
      >>> export.verify(blob).fun_name
      'sin'
    """
    programs = parse_programs(blob, seconds=seconds)
    for program in programs:
        _check_kernels(program)
    return programs[0].exported


def parse_programs(
    blob: bytes | bytearray | memoryview, *, seconds: float = 60.0, with_text: bool = False
) -> list[ParsedProgram]:
    """The program of an artifact and its derivatives in order, each parsed in a child process.

    Raises:
      ArtifactError: the bytes are not a complete artifact, or a program cannot be parsed or disagrees with its header.
    """
    with limit_work(artifact_reader.MAX_WORK):  # shared, since a file may nest many derivatives
        orders = [deserialize(blob)]
        # Derivatives are checked as well, since `grad` of the result would run them.
        while orders[-1].has_vjp():
            orders.append(orders[-1].vjp())
    parsed = parse_isolated([e.mlir_module_serialized for e in orders], seconds=seconds, with_text=with_text)
    for e, p in zip(orders, parsed, strict=True):
        check_main(e, p.signature)
    places = ["the program", *(f"derivative {i}" for i in range(1, len(orders)))]
    return [ParsedProgram(*fields) for fields in zip(orders, parsed, places, strict=True)]


def _check_kernels(program: ParsedProgram) -> None:
    """Refuse a program that calls unstable kernels, or LAPACK kernels that this installation lacks.

    Raises:
      ArtifactError: the program calls such a kernel.
    """
    called, disabled = program.parsed.custom_calls, program.exported.disabled_safety_checks
    if unstable := uncallable_targets(called, disabled):
        raise ArtifactError(
            f"verify of {program.where}",
            expected="only custom calls with a stability guarantee",
            got=f"calls of {', '.join(unstable)}",
            fix="export it again without them, or with DisabledSafetyCheck.custom_call for kernels that you trust",
        )
    # Only the CPU has its kernels inside of jaxlib; a GPU's come with a plugin that need not be installed.
    if "cpu" not in program.exported.platforms or DisabledSafetyCheck.platform() in disabled:
        return
    allowed = {check.is_custom_call() for check in disabled}
    lapack = {name for name in called if name.startswith("lapack_") and name not in allowed}
    missing = sorted(lapack - set(custom_call_targets.known_targets("cpu"))) if lapack else []
    if missing:
        raise ArtifactError(
            f"verify of {program.where}",
            expected="kernels that this installation has",
            got=f"calls of {', '.join(missing)}",
            fix="upgrade jaxlib to the release that the program was exported with, or a newer one",
        )
