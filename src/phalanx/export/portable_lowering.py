"""Lowering to a portable StableHLO module that other processes can call.

The body of the program becomes a private function, whose arguments are: the index of the platform (if there are
several), the dimension variables, the order tokens, and the arrays. `main`, the function that callers see, takes only
the platform index and the arrays; it computes the dimension variables from the shapes of the arrays, checks them, and
creates the tokens. A program without dimension variables and tokens is `main` itself. Builds on `runtime.lowering`;
`exporting` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from phalanx.core import Jaxpr, ShapedArray, Tracer, dce_jaxpr, dtypes, effects, leak_error
from phalanx.engine import func, hlo, i64, ir, mlir, pause_collector, stablehlo
from phalanx.export.dim_solver import Solution, check_constraint_variables, solve_inputs
from phalanx.export.equation_records import write_equation
from phalanx.export.program_mesh import DeclaredMesh, read_mesh
from phalanx.export.safety_checks import DisabledSafetyCheck, check_custom_calls
from phalanx.lax.elementwise import emit_compare
from phalanx.random.prng_keys import key_data
from phalanx.runtime import (
    ORDER_TOKEN,
    PLATFORM,
    LoweringContext,
    ModuleContext,
    dynamic_shapes,
    emit_function,
    make_dict_array,
    sharding_attributes,
)
from phalanx.sharding import Sharding

BODY: Final = "_wrapped_main"
COMPATIBLE_WEEKS: Final = 12  # readers with a StableHLO up to this much older can read the artifact


class PortableProgram(NamedTuple):
    """The bytes of a portable program, the indices of the inputs that it takes, and the meshes that it declares."""

    artifact: bytes
    kept: tuple[int, ...]
    meshes: list[DeclaredMesh]


def lower_portable(
    program: Jaxpr,
    platforms: Sequence[str],
    *,
    name: str,
    devices: tuple[Any, ...],
    in_shardings: Sequence[Sharding | None],
    out_shardings: Sequence[Sharding | None],
    keep_unused: bool,
    disabled: Sequence[DisabledSafetyCheck],
    names: Callable[[int], str],
) -> PortableProgram:
    """Lower a program to a portable artifact.

    Args:
      program: the jaxpr; its constants become part of the artifact.
      platforms: the platforms to lower for.
      name: the name of the function.
      devices: the devices in partition order.
      in_shardings, out_shardings: for each input and output a sharding, or None to let the compiler choose.
      keep_unused: whether to keep inputs that the program does not read.
      disabled: safety checks to skip.
      names: maps the index of an input to its name in error messages.

    Raises:
      CustomCallError: the program calls kernels with no stability guarantee.
      ArgumentError: the shapes of the inputs do not determine a dimension variable.
    """
    program, kept = _remove_unused(program, keep_unused)
    program = program.replace(consts=[_host_value(c) for c in program.consts])
    # The garbage collector would scan the many short-lived wrappers of MLIR operations again and again.
    with pause_collector(), mlir.make_context(), ir.Location.unknown():
        # Before lowering, so that a variable without a defining argument is an error that names the arguments.
        solution = solve_inputs(program.in_avals, f"export of {name}", lambda i: names(kept[i]))
        check_constraint_variables(program.in_avals, solution, f"export of {name}")
        variables = sorted(solution.variables)
        module = ModuleContext(
            _symbol(name), platforms, len(devices), variables=variables, is_portable=True, devices=devices
        )
        module.write_equation = write_equation
        # Locations are part of the serialized module, and would reveal paths of the exporting machine.
        module.location = _no_location  # type: ignore[assignment]  # called like `Locations`
        if module.variables or effects.ordered(program.effects):
            main = _emit_entry(module, program, emit_function(module, program, BODY), solution, name)
        else:
            main = emit_function(module, program, "main", is_public=True)
        if len(devices) > 1:
            in_attributes = sharding_attributes(module, program.invars, [in_shardings[i] for i in kept])
            no_attributes: list[dict[str, Any]] = [{}] * (
                len(main.arguments) - len(program.invars)
            )  # of the platform index
            main.attributes["arg_attrs"] = make_dict_array([*no_attributes, *in_attributes])
            out_attributes = sharding_attributes(module, program.outvars, out_shardings)
            main.attributes["res_attrs"] = make_dict_array(out_attributes)
        # After lowering, since a lowering rule decides which kernels an operation calls.
        check_custom_calls(module.module, program, disabled, name)
        artifact = stablehlo.serialize(module.module, stablehlo.version_for_weeks(COMPATIBLE_WEEKS))
        meshes = list(map(read_mesh, module.meshes))
        mlir.clear_context_caches()  # they keep the program's constants alive
    return PortableProgram(artifact, kept, meshes)


def _symbol(name: str) -> str:
    return "jit_" + "".join(c if c.isalnum() or c == "_" else "_" for c in name)


def _no_location(*_: object) -> Any:
    """An artifact carries no source locations, which would reveal paths of the exporting machine."""
    return ir.Location.unknown()


def _remove_unused(program: Jaxpr, keep_unused: bool) -> tuple[Jaxpr, tuple[int, ...]]:
    """Remove dead equations and unused inputs; return the indices of the inputs that are left."""
    if keep_unused:
        return program, tuple(range(len(program.invars)))
    smaller, used = dce_jaxpr(program, [True] * len(program.outvars))
    # An unused input with symbolic dimensions stays, since `main` may read a dimension variable from its shape.
    used = [u or v.aval.is_symbolic for u, v in zip(used, program.invars, strict=True)]
    needed = [v for v, u in zip(program.invars, used, strict=True) if u]
    return smaller.replace(invars=needed), tuple(i for i, u in enumerate(used) if u)


def _host_value(constant: Any) -> np.ndarray[Any, Any]:
    """A constant of the program as host data; random keys become their raw uint32 data."""
    if isinstance(constant, Tracer):
        raise leak_error(constant)
    constant = key_data(constant) if dtypes.is_extended(constant.dtype) else constant
    return np.asarray(constant)


def _emit_entry(module: ModuleContext, program: Jaxpr, body: Any, solution: Solution, name: str) -> Any:
    """Emit `main`, which computes the dimension variables and tokens and calls the body."""
    platform = [(name, kind) for name, kind in module.leading if name == PLATFORM]
    in_types = [*[kind for _, kind in platform], *[module.type(v.aval) for v in program.invars]]
    out_types = [module.type(v.aval) for v in program.outvars]
    with ir.InsertionPoint(module.module.body):  # an operation outside of any block is freed twice
        main = func.FuncOp("main", ir.FunctionType.get(in_types, out_types))
    main.attributes["sym_visibility"] = ir.StringAttr.get("public")
    module.symbols.insert(main)
    ordered = effects.ordered(program.effects)
    with ir.InsertionPoint(main.add_entry_block()):
        ctx = LoweringContext(module)
        arrays = list(main.arguments)[len(platform) :]
        ctx.leading = {name: v for (name, _), v in zip(platform, main.arguments, strict=False)}
        leading = {**ctx.leading, **_emit_variables(ctx, arrays, solution, name)}
        tokens = [ctx.token(effect) for effect in ordered]
        types = [module.type(ORDER_TOKEN)] * len(ordered) + out_types
        call = func.CallOp(types, ir.FlatSymbolRefAttr.get(body.name.value), [*leading.values(), *tokens, *arrays])
        func.ReturnOp(list(call.results)[len(ordered) :])
    return main


def _emit_variables(ctx: LoweringContext, arrays: Sequence[Any], solution: Solution, name: str) -> dict[str, Any]:
    """Emit the dimension variables as functions of the arrays' sizes, and the checks of constraints on them."""
    # Inside `main`, a size is known under the name of its variable in the solver's scope.
    for e in solution.equations:
        ctx.leading[str(e.size)] = _emit_dimension_size(ctx, arrays[e.argument], e.position)
    for check in solution.checks:
        value = ctx.size(check.dim)
        if check.divisor is not None:
            value = ctx.op(hlo.RemOp, value, ctx.size(check.divisor), aval=dynamic_shapes.SCALAR)
        is_zero = check.is_zero or check.divisor is not None
        holds = emit_compare(value, ctx.size(0), "EQ" if is_zero else "GE", dynamic_shapes.SCALAR.dtype)
        _emit_assertion(ctx, holds, f"call of exported {name}: {check.text}", [ctx.size(v) for v in check.values])
    return {variable: ctx.size(solution.variables[variable]) for variable in ctx.module.variables}


def _emit_assertion(ctx: LoweringContext, holds: Any, message: str, values: Sequence[Any]) -> None:
    """Emit a check that fails during shape refinement if `holds` is false; `{0}` in `message` is the first value."""
    attributes = {"has_side_effect": ir.BoolAttr.get(True), "error_message": ir.StringAttr.get(message)}
    dynamic_shapes.custom_call(ctx, "shape_assertion", [holds, *values], [], attributes)


def _emit_dimension_size(ctx: LoweringContext, x: Any, dim: int) -> Any:
    """Emit the size of a dimension of an IR value, an i64 scalar."""
    narrow = ShapedArray((), np.dtype(np.int32))
    found = ctx.op(hlo.GetDimensionSizeOp, x, aval=narrow, dimension=i64(dim))
    return ctx.op(hlo.ConvertOp, found, aval=dynamic_shapes.SCALAR)
