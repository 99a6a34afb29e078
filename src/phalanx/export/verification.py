"""Artifacts of unknown origin: all that can be said of one without calling it, and without trusting its bytes.

The programs in it are parsed by a child process, so that one that crashes the parser is an error. Builds on `format`,
`checks` and the engine's `isolated`; `export.verify` and the command line call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from phalanx.core.aval import ShapedArray
from phalanx.engine import mlir, targets
from phalanx.engine.isolated import Parsed, parse_isolated
from phalanx.engine.stablehlo import ArtifactError
from phalanx.export.checks import DisabledSafetyCheck, uncallable_targets
from phalanx.export.exported import Exported
from phalanx.export.format import deserialize
from phalanx.runtime.lowering import physical_aval
from phalanx.symbolic import is_symbolic


class Examined(NamedTuple):
    """A program of an artifact, and what the parser found in it."""

    exported: Exported
    parsed: Parsed
    where: str  # "the program", "derivative 1", ...


def verify(blob: bytes | bytearray | memoryview, *, seconds: float = 60.0) -> Exported:
    """Read an artifact of unknown origin: nothing in its bytes can crash or stall this process.

    Whatever `deserialize` checks is checked for the program and all its derivatives; a child process, with bounds on
    time and memory, parses the StableHLO in them, which `deserialize` leaves to the first call; and it must fit the
    header, call promised kernels only, and such as this installation has. Calling what comes back still runs a
    stranger's program.

    Args:
      blob: the bytes.
      seconds: what parsing may take.

    Returns:
      The `Exported`.

    Raises:
      ArtifactError: something of this does not hold.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx import export
      >>> blob = export.export(phalanx.jit(jnp.sin))(phalanx.ShapeDtypeStruct((4,), "float32")).serialize()
      >>> export.verify(blob).fun_name
      'sin'
    """
    programs = examine(blob, seconds=seconds)
    for program in programs:
        _check_kernels(program)
    return programs[0].exported


def examine(blob: bytes | bytearray | memoryview, *, seconds: float = 60.0, with_text: bool = False) -> list[Examined]:
    """The program of an artifact and its derivatives, in order, each parsed in a child process.

    Raises:
      ArtifactError: the bytes are no whole artifact, or a program is none, or is not of the types in its header.
    """
    found = [deserialize(blob)]
    while found[-1].has_vjp():
        found.append(found[-1].vjp())
    parsed = parse_isolated([e.mlir_module_serialized for e in found], seconds=seconds, with_text=with_text)
    for e, p in zip(found, parsed, strict=True):
        check_main(e, p.signature)
    places = ["the program", *(f"derivative {i}" for i in range(1, len(found)))]
    return [Examined(*parts) for parts in zip(found, parsed, places, strict=True)]


def check_main(exported: Exported, signature: tuple[Sequence[str], Sequence[str]] | None) -> None:
    """Refuse a program whose `main` is not of the types that its header says.

    Args:
      exported: the header.
      signature: the types that `main` takes and gives, as texts; None where there is no `main`.

    Raises:
      ArtifactError: they are others.
    """
    number = ["tensor<i32>"] if len(exported.platforms) > 1 else []
    with mlir.make_context():
        ins = [*number, *(_type_text(exported.in_avals[i]) for i in exported.module_kept_var_idx)]
        outs = list(map(_type_text, exported.out_avals))
    if signature is None or (ins, outs) != (list(signature[0]), list(signature[1])):
        raise ArtifactError(
            f"program of exported {exported.fun_name}",
            expected=f"a main of type {_arrow(ins, outs)}, as the header says",
            got="none" if signature is None else _arrow(*signature),
            mend="export it again: the file was not written by phalanx",
        )


def _type_text(aval: ShapedArray) -> str:
    """A type as MLIR writes it."""
    physical = physical_aval(aval)
    sizes = [f"{'?' if is_symbolic(d) else d}x" for d in physical.shape]
    return f"tensor<{''.join(sizes)}{mlir.dtype_to_ir(physical.dtype)}>"


def _arrow(ins: Sequence[str], outs: Sequence[str]) -> str:
    return f"({', '.join(ins)}) -> ({', '.join(outs)})"


def _check_kernels(program: Examined) -> None:
    """Refuse a program that calls kernels without a promise, or kernels that are not here.

    Raises:
      ArtifactError: it does.
    """
    called, disabled = program.parsed.custom_calls, program.exported.disabled_safety_checks
    bad = uncallable_targets(called, disabled)
    if bad:
        raise ArtifactError(
            f"verify of {program.where}",
            expected="only custom calls that are promised to stay",
            got=f"calls of {', '.join(bad)}",
            mend="export it again without them, or with DisabledSafetyCheck.custom_call for kernels you vouch for",
        )
    if "cpu" not in program.exported.platforms or DisabledSafetyCheck.platform() in disabled:
        return
    allowed = {check.is_custom_call() for check in disabled}
    lapack = {name for name in called if name.startswith("lapack_") and name not in allowed}
    missing = sorted(lapack - set(targets.known_targets("cpu"))) if lapack else []
    if missing:
        raise ArtifactError(
            f"verify of {program.where}",
            expected="kernels that this installation has",
            got=f"calls of {', '.join(missing)}",
            mend="use a newer jaxlib",
        )
