"""The types of an artifact's `main` function, which must be the types that its header declares.

Builds on `exported_program`; calls and `verify` check every program they read.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.core import ShapedArray, physical_aval
from phalanx.engine import ArtifactError, mlir
from phalanx.export.exported_program import ExportedProgram
from phalanx.symbolic import is_symbolic


def check_main(exported: ExportedProgram, signature: tuple[Sequence[str], Sequence[str]] | None) -> None:
    """Refuse a program whose `main` does not have the types in its header.

    Args:
      exported: the fields of the header.
      signature: the types of the arguments and results of `main`, as MLIR prints them; None if there is no `main`.

    Raises:
      ArtifactError: the types differ.
    """
    with mlir.make_context():
        ins = [_format_type(exported.in_avals[i]) for i in exported.module_kept_var_idx]
        outs = list(map(_format_type, exported.out_avals))
    if len(exported.platforms) > 1:
        ins.insert(0, "tensor<i32>")  # the index of the platform
    if signature is None or (ins, outs) != (list(signature[0]), list(signature[1])):
        raise ArtifactError(
            f"program of exported {exported.fun_name}",
            expected=f"a main of type {_format_signature(ins, outs)}, as its header declares",
            got="no main" if signature is None else _format_signature(*signature),
            fix="export the function again: this file was not written by phalanx",
        )


def _format_type(aval: ShapedArray) -> str:
    physical = physical_aval(aval)
    sizes = [f"{'?' if is_symbolic(d) else d}x" for d in physical.shape]
    return f"tensor<{''.join(sizes)}{mlir.dtype_to_ir(physical.dtype)}>"


def _format_signature(ins: Sequence[str], outs: Sequence[str]) -> str:
    return f"({', '.join(ins)}) -> ({', '.join(outs)})"
