"""Lowering for other processes: a traced function as a portable StableHLO module.

The body of the program is a private function that takes, in this order, the number of the platform (where there are
several), the dimension variables, the order tokens, and the arrays. `main` is what a caller sees: it takes the platform
number and the arrays, works the variables out of the arrays' shapes, checks them, and makes the tokens. A program that
needs none of this is `main` itself. Builds on `runtime.lowering`; `exported` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from phalanx.core import dtypes, effects
from phalanx.core.aval import ShapedArray
from phalanx.core.jaxpr import Jaxpr, eliminate_dead_code
from phalanx.core.trace import Tracer, collector_paused, leak_error
from phalanx.engine import mlir, stablehlo
from phalanx.engine.mlir import func, hlo, i64, ir
from phalanx.export.checks import DisabledSafetyCheck, check_custom_calls
from phalanx.export.solving import Solution, solve
from phalanx.lax.family import emit_compare
from phalanx.random.keys import key_data
from phalanx.runtime import dynamic
from phalanx.runtime.lowering import (
    ORDER_TOKEN,
    PLATFORM,
    LoweringContext,
    ModuleContext,
    dictionaries,
    emit_function,
    sharding_attributes,
)
from phalanx.symbolic import is_symbolic

BODY: Final = "_wrapped_main"
COMPATIBLE_WEEKS: Final = 12  # Readers up to this age can read what is written.


class Portable(NamedTuple):
    """A portable program: its bytes, and the numbers of the inputs that it takes."""

    artifact: bytes
    kept: tuple[int, ...]


def lower_portable(
    program: Jaxpr,
    platforms: Sequence[str],
    *,
    name: str,
    devices: tuple,
    in_shardings: Sequence[Any],
    out_shardings: Sequence[Any],
    keep_unused: bool,
    disabled: Sequence[DisabledSafetyCheck],
    names: Callable[[int], str],
) -> Portable:
    """Lower a program to a portable artifact.

    Args:
      program: the program; its constants become part of the artifact.
      platforms: those it is for.
      name: the function's name.
      devices: in partition order.
      in_shardings, out_shardings: for each input and output a sharding, or None to leave it open.
      keep_unused: keep inputs that nothing reads.
      disabled: safety checks that the caller takes upon himself.
      names: what the user calls input `i`.

    Raises:
      CustomCallError: the program calls kernels without a promise.
      ArgumentError: the shapes of the inputs do not tell a dimension variable.
    """
    program, kept = _needed(program, keep_unused)
    program = program.replace(consts=[_host_value(c) for c in program.consts])
    sharded = len(devices) > 1
    with collector_paused(), mlir.make_context(), ir.Location.unknown():
        solution = solve_inputs(program.in_avals, f"export of {name}", lambda i: names(kept[i]))
        module = ModuleContext(platforms, len(devices), variables=sorted(solution.variables), is_portable=True)
        module.location = _no_location  # type: ignore[assignment]  # called like `Locations`
        module.device_assignment = devices
        operation = module.module.operation
        operation.attributes["sym_name"] = ir.StringAttr.get(_symbol(name))
        operation.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(_I32(), len(devices))
        operation.attributes["mhlo.num_replicas"] = ir.IntegerAttr.get(_I32(), 1)
        if module.variables or effects.ordered(program.effects):
            body = emit_function(module, program, BODY)
            main = _emit_entry(module, program, body, solution, name)
        else:
            main = emit_function(module, program, "main", is_public=True)
        if sharded:
            shown = [in_shardings[i] for i in kept]
            _annotate(module, main, "arg_attrs", program.invars, shown, len(main.arguments) - len(program.invars))
            _annotate(module, main, "res_attrs", program.outvars, out_shardings, 0)
        check_custom_calls(module.module, disabled, name)
        artifact = stablehlo.serialize(module.module, stablehlo.version_for_weeks(COMPATIBLE_WEEKS))
        mlir.forget_attributes()  # The constants of the program are in this context.
    return Portable(artifact, kept)


def solve_inputs(avals: Sequence[Any], where: str, names: Callable[[int], str]) -> Solution:
    """The dimension variables in the types of inputs, solved for."""
    facts = next((d.scope.facts for a in avals for d in a.shape if is_symbolic(d)), [])
    return solve(avals, facts, where, names)


def _I32() -> Any:
    return ir.IntegerType.get_signless(32)


def _symbol(name: str) -> str:
    return "jit_" + "".join(c if c.isalnum() or c == "_" else "_" for c in name)


def _no_location(*_: Any) -> Any:
    """Where operations came from stays here: paths of this machine are nobody else's business."""
    return ir.Location.unknown()


def _needed(program: Jaxpr, keep_unused: bool) -> tuple[Jaxpr, tuple[int, ...]]:
    """The program without what its outputs do not need, and the numbers of the inputs that it still takes."""
    if keep_unused:
        return program, tuple(range(len(program.invars)))
    smaller, used = eliminate_dead_code(program, [True] * len(program.outvars))
    # What tells a dimension variable stays.
    used = [u or v.aval.is_symbolic for u, v in zip(used, program.invars, strict=True)]
    needed = [v for v, u in zip(program.invars, used, strict=True) if u]
    return smaller.replace(invars=needed), tuple(i for i, u in enumerate(used) if u)


def _host_value(constant: Any) -> np.ndarray:
    """What a program closed over, as it stands in the artifact."""
    if isinstance(constant, Tracer):
        raise leak_error(constant)
    if dtypes.is_extended(constant.dtype):
        constant = key_data(constant)
    return np.asarray(constant)


def _emit_entry(module: ModuleContext, program: Jaxpr, body: Any, solution: Solution, name: str) -> Any:
    """Emit `main`, which makes what the body takes besides the arrays."""
    platform = [(name, kind) for name, kind in module.leading if name == PLATFORM]
    in_types = [*[kind for _, kind in platform], *[module.type(v.aval) for v in program.invars]]
    out_types = [module.type(v.aval) for v in program.outvars]
    with ir.InsertionPoint(module.module.body):  # An operation that is not inside one would be freed twice.
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
        callee = ir.FlatSymbolRefAttr.get(body.name.value)
        call = func.CallOp(types, callee, [*leading.values(), *tokens, *arrays])
        func.ReturnOp(list(call.results)[len(ordered) :])
    return main


def _emit_variables(ctx: LoweringContext, arrays: Sequence[Any], solution: Solution, name: str) -> dict[str, Any]:
    """The dimension variables worked out of the arrays' sizes, in the order of functions, and the checks of them."""
    for e in solution.equations:
        ctx.leading[str(e.size)] = _dimension_size(ctx, arrays[e.argument], e.position)
    for check in solution.checks:
        value = ctx.size(check.dim)
        if check.divisor is not None:
            value = ctx.op(hlo.RemOp, value, ctx.size(check.divisor), aval=dynamic.SCALAR)
        is_zero = check.is_zero or check.divisor is not None
        holds = emit_compare(value, ctx.size(0), "EQ" if is_zero else "GE", dynamic.SCALAR.dtype)
        _assertion(ctx, holds, f"call of exported {name}: {check.text}", [ctx.size(v) for v in check.values])
    return {variable: ctx.size(solution.variables[variable]) for variable in ctx.module.variables}


def _assertion(ctx: Any, holds: Any, message: str, values: Sequence[Any]) -> None:
    """Refuse, when shapes are refined, sizes for which `holds` is false; `{0}` in the message is the first value."""
    attributes = {"has_side_effect": ir.BoolAttr.get(True), "error_message": ir.StringAttr.get(message)}
    dynamic.custom_call(ctx, "shape_assertion", [holds, *values], [], attributes)


def _dimension_size(ctx: Any, x: Any, dim: int) -> Any:
    """The size of a dimension of an IR value as an i64 scalar."""
    narrow = ShapedArray((), np.dtype(np.int32))
    found = ctx.op(hlo.GetDimensionSizeOp, x, aval=narrow, dimension=i64(dim))
    return ctx.op(hlo.ConvertOp, found, aval=dynamic.SCALAR)


def _annotate(
    module: ModuleContext, main: Any, attribute: str, variables: Sequence[Any], shardings: Sequence[Any], skipped: int
) -> None:
    found = [{}] * skipped + sharding_attributes(module, variables, shardings)
    main.attributes[attribute] = dictionaries(found)
