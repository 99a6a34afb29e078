"""Linking: the functions of an exported program become private functions of the module that calls it.

`link_artifact` parses the artifact, specializes a program with symbolic shapes to the shapes at the call, gives its
symbols unique names, and copies its functions. Builds on `engine.stablehlo`; the lowering rule in `call_exported` calls
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ShapedArray
from phalanx.engine import custom_call_targets, func, hlo, ir, stablehlo
from phalanx.export.equation_records import read_equation
from phalanx.export.exported_program import ExportedProgram, check_main
from phalanx.export.safety_checks import check_callable
from phalanx.runtime import LoweringContext, ModuleContext
from phalanx.runtime.lowering import special_lowering
from phalanx.runtime.shardy import to_sdy_mesh
from phalanx.sharding import Mesh, Sharding

_ARGUMENT_ATTRIBUTES = ("arg_attrs", "res_attrs")


def link_artifact(
    ctx: LoweringContext,
    exported: ExportedProgram,
    name: str,
    avals: Sequence[ShapedArray] | None,
    platform: int,
    mesh: Mesh | None,
    shardings: Sequence[Sharding | None],
) -> tuple[str, Any, Sequence[Sharding | None], bool]:
    """Add the functions of an exported program to the module of `ctx`.

    Args:
      ctx: the context of the calling operation.
      exported: the program.
      name: a prefix for the names of its functions.
      avals: the static types of the arguments to specialize symbolic shapes to, or None.
      platform: the index of the platform in `exported.platforms`.
      mesh: the mesh to run on, None for that of the export.
      shardings: of its arguments on the devices of the call.

    Returns:
      The name of the function that was `main`, its MLIR function type, the shardings expected of its results, and
      whether its operations may name shardings.

    Raises:
      ArtifactError: `main` does not have the types in the header.
      CustomCallError: the program calls kernels that must not run in this process.
    """
    module = ctx.module
    inner = stablehlo.deserialize(exported.mlir_module_serialized, module.context)
    check_main(exported, stablehlo.main_signature(inner))
    if avals is not None:
        inner = _refine(exported, inner, avals, ctx, platform)
    # A portable program runs elsewhere, and its kernels are checked there.
    if not module.is_portable:
        _require_kernels(exported, inner, module.platform)
    # A number in the prefix keeps the names of several exported programs with equal function names apart.
    number = sum(1 for key, _ in module.functions if type(key) is tuple and key[0] == "exported")
    if mesh is not None:
        _replace_mesh(inner, to_sdy_mesh(mesh, module.device_assignment))
    main = _rename_symbols(module, inner, f"{name}_exported_{number}")
    function_type = None
    functions: dict[str, ir.Operation] = {}
    # Operations are cloned and not moved, since they belong to another module; both are in the same MLIR context.
    for op in inner.body.operations:
        operation = op.operation
        if operation.name == "sdy.mesh":
            if operation.attributes["sym_name"] not in _mesh_names(module):
                # A mesh must precede the shardings that refer to it.
                with ir.InsertionPoint.at_block_begin(module.module.body):
                    operation.clone()
            continue
        _remove_argument_attributes(operation)  # the caller constrains the operands and results instead
        operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
        if ir.StringAttr(operation.attributes["sym_name"]).value == main:
            function_type = ir.FunctionType(ir.TypeAttr(operation.attributes["function_type"]).value)
        with ir.InsertionPoint(module.module.body):
            clone = operation.clone()
            module.symbols.insert(clone)
        functions[ir.StringAttr(clone.attributes["sym_name"]).value] = clone
    if module.is_partitioned and not module.is_portable and module.manual is None and mesh is not None:
        return main, function_type, *special_lowering.lower_linked(ctx, main, functions, shardings, mesh, read_equation)
    return main, function_type, [None] * len(exported.out_avals), True


def _refine(
    exported: ExportedProgram, inner: Any, avals: Sequence[ShapedArray], ctx: LoweringContext, platform: int
) -> Any:
    """Specialize the module to static argument types.

    StableHLO's shape refinement starts from the types of `main`, so a new `main` with static types is put in front of
    the old one and calls it; refinement then propagates static shapes through the whole program.
    """
    old = next(op for op in inner.body.operations if ir.StringAttr(op.attributes["sym_name"]).value == "main")
    ir.SymbolTable.set_symbol_name(old, "_symbolic_main")
    old.attributes["sym_visibility"] = ir.StringAttr.get("private")
    _remove_argument_attributes(old)
    old_type = ir.FunctionType(ir.TypeAttr(old.attributes["function_type"]).value)
    with ir.InsertionPoint(inner.body), ir.Location.unknown():
        main = func.FuncOp("main", ir.FunctionType.get([ctx.type(a) for a in avals], old_type.results))
        main.attributes["sym_visibility"] = ir.StringAttr.get("public")
        with ir.InsertionPoint(main.add_entry_block()):
            ins = convert_values(main.arguments, old_type.inputs[len(old_type.inputs) - len(avals) :])
            if len(exported.platforms) > 1:
                number = ir.DenseElementsAttr.get(np.array(platform, np.int32))
                ins = [hlo.ConstantOp(number).result, *ins]
            call = func.CallOp(old_type.results, ir.FlatSymbolRefAttr.get("_symbolic_main"), ins)
            func.ReturnOp(list(call.results))
    return stablehlo.refine_shapes(inner, ctx.module.context)


def convert_values(values: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Convert IR values to types that differ in static and dynamic dimensions only."""
    return [x if x.type == t else hlo.convert(t, x) for x, t in zip(values, types, strict=True)]


def _remove_argument_attributes(operation: Any) -> None:
    for attribute in _ARGUMENT_ATTRIBUTES:
        if attribute in operation.attributes:
            del operation.attributes[attribute]


def _require_kernels(exported: ExportedProgram, inner: Any, platform: str) -> None:
    """Register the custom-call targets of a program that this installation has; XLA reports any other by name."""
    targets = stablehlo.custom_calls(inner)
    check_callable(targets, exported.disabled_safety_checks, exported.fun_name)
    for target in set(targets).intersection(custom_call_targets.known_targets(platform) if targets else ()):
        custom_call_targets.require(target, platform)


def _replace_mesh(inner: Any, attribute: ir.Attribute) -> None:
    """Declare another mesh, which has the axes that the shardings of the module name."""
    for op in inner.body.operations:
        if op.operation.name == "sdy.mesh":
            op.operation.attributes["mesh"] = attribute


def _rename_symbols(module: ModuleContext, inner: Any, prefix: str) -> str:
    """Prefix the symbols of `inner`, except meshes that the calling module has already; return the name of `main`."""
    main = ""
    for op in inner.body.operations:
        old = ir.StringAttr(op.attributes["sym_name"]).value
        new = f"{prefix}_{old}"
        if op.operation.name == "sdy.mesh":
            new = module.meshes.setdefault(op.operation.attributes["mesh"], new)
        elif old == "main":
            main = new
        ir.SymbolTable.replace_all_symbol_uses(old, new, inner.operation)
        ir.SymbolTable.set_symbol_name(op, new)
    return main


def _mesh_names(module: ModuleContext) -> list[Any]:
    operations = (op.operation for op in module.module.body.operations)
    return [op.attributes["sym_name"] for op in operations if op.name == "sdy.mesh"]
