"""Writing an exported program and its derivatives as an artifact.

Builds on `artifact_format` for the bytes, and on `tree_serialization` and `type_serialization` for the fields of the
header; `Exported.serialize` calls it.
"""

from __future__ import annotations

from typing import Any

from phalanx.core import ArgumentError
from phalanx.export.artifact_format import join_artifact
from phalanx.export.exported_program import ExportedProgram
from phalanx.export.tree_serialization import write_tree
from phalanx.export.type_serialization import write_aval, write_shardings


def write_artifact(exported: ExportedProgram, vjp_order: int = 0) -> bytearray:
    """Write an artifact with `vjp_order` derivatives nested inside it; see `Exported.serialize`."""
    where = f"serialize of exported {exported.fun_name}, argument vjp_order"
    if type(vjp_order) is not int or vjp_order < 0:
        raise ArgumentError(
            where, expected="an int, 0 or more", got=vjp_order, fix="pass vjp_order=1 to include the gradient"
        )
    orders = [exported]
    while len(orders) <= vjp_order and orders[-1].has_vjp():
        orders.append(orders[-1].vjp())
    if len(orders) <= vjp_order:
        raise ArgumentError(
            where,
            expected=f"at most {len(orders) - 1}, the number of derivatives in the file it was read from",
            got=vjp_order,
            fix="export the function again from its source: an artifact cannot be differentiated further",
        )
    out = bytearray()
    # From the innermost artifact outwards: each one contains the next derivative as bytes.
    for program in reversed(orders):
        out = join_artifact(_header(program), program.mlir_module_serialized, out)
    return out


def _header(e: ExportedProgram) -> dict[str, Any]:
    meshes: list[list[Any]] = []  # filled by `write_shardings`
    in_shardings, out_shardings = (
        write_shardings(shardings, avals, e.nr_devices, meshes)
        for shardings, avals in ((e.in_shardings, e.in_avals), (e.out_shardings, e.out_avals))
    )
    return {
        "name": e.fun_name,
        "convention": e.calling_convention_version,
        "platforms": e.platforms,
        "devices": e.nr_devices,
        "parameters": e.parameters,
        "constraints": e.constraints,
        "in_tree": write_tree(e.in_tree),
        "out_tree": write_tree(e.out_tree),
        "in": list(map(write_aval, e.in_avals)),
        "out": list(map(write_aval, e.out_avals)),
        "kept": None if len(e.module_kept_var_idx) == len(e.in_avals) else e.module_kept_var_idx,
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        "meshes": meshes,
        "mesh_axes": None if e.mesh_axes is None else [axis[:3] for axis in e.mesh_axes],
        "axes_named_by": None if e.mesh_axes is None else [axis.named_by for axis in e.mesh_axes],
        "devices_fixed_by": e.devices_fixed_by,
        "ordered_effects": e.ordered_effects,
        "unordered_effects": e.unordered_effects,
        "disabled_checks": [check.text for check in e.disabled_safety_checks],
    }
