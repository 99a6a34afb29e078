"""Calling an exported program: the checks of the arguments, and the primitive with its rules.

A call is one operation of whatever program it stands in. Its lowering reads the portable program, gives it the shapes
at hand, and puts its functions beside those of the calling program. Builds on `exported`, `checks` and the primitives
of `core`; `Exported.call` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import effects
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.dtypes import is_extended
from phalanx.core.effects import Effect, Effects
from phalanx.core.errors import ArgumentTypeError, RuleError, ShapeError, ShardingError, TreeError
from phalanx.core.primitive import Primitive, Roles, Undefined
from phalanx.custom_derivatives import SymbolicZero, custom_vjp
from phalanx.engine import stablehlo, targets
from phalanx.engine.mlir import func, hlo, ir
from phalanx.export import types
from phalanx.export.checks import DisabledSafetyCheck, PlatformError, check_callable
from phalanx.export.exported import Exported, cotangent_type, has_derivative
from phalanx.export.verification import check_main
from phalanx.lax import full, reshard_p
from phalanx.lax.constraint import constrain
from phalanx.lax.explicit import open_type
from phalanx.lax.loops import map as map_one_by_one
from phalanx.sharding import GSPMDSharding, Mesh, NamedSharding
from phalanx.symbolic import evaluate, is_symbolic, same_dim
from phalanx.tree import equality_errors, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

_effects: dict[tuple[str, bool], Effect] = {
    (e.name, e.ordered): e
    for e in (effects.io_effect, effects.ordered_io_effect, effects.debug_effect, effects.ordered_debug_effect)
}


def caller(exported: Exported) -> Callable[[tuple, dict], Any]:
    """The function behind `exported.call`: it checks the tree, and has the exported derivative as its own."""

    def primal(*leaves: Any) -> list:
        return call_exported_p(*leaves, exported=exported)

    def forward(*primals: Any) -> tuple:
        leaves = [p.value for p in primals]
        return function(*leaves), leaves  # itself, for derivatives of higher order

    def backward(leaves: Sequence[Any], cotangents: Sequence[Any]) -> tuple:
        given = (
            full(c.aval.shape, 0, cotangent_type(a).dtype) if isinstance(c, SymbolicZero) else c
            for a, c in zip(exported.out_avals, cotangents, strict=True)
        )
        grads = exported.vjp().call(*leaves, *given)
        return tuple(g if has_derivative(a) else None for a, g in zip(exported.in_avals, grads, strict=True))

    function = custom_vjp(primal)
    function.defvjp(forward, backward, symbolic_zeros=True)

    def call(args: tuple, kwargs: dict) -> Any:
        leaves, tree = tree_flatten((args, kwargs))
        if tree != exported.in_tree:
            raise _other_tree(exported, args, kwargs)
        try:
            mesh = next((s.mesh for x in leaves if (s := aval_of(x).sharding) is not None), None)
        except ArgumentTypeError:
            raise _no_array(exported, leaves) from None
        if mesh is None:
            results = function(*leaves)
        else:  # How the program splits its arguments is its own affair; how its results lie is known where it says so.
            results = _split_as_exported(exported, function(*map(open_type, leaves)), mesh)
        return tree_unflatten(exported.out_tree, results)

    return call


def _split_as_exported(exported: Exported, results: Sequence[Any], mesh: Any) -> list:
    """Results whose types say how they lie over the Explicit axes of `mesh`, if it has the axes of the export."""
    out = []
    for y, stored in zip(results, exported.out_shardings, strict=True):
        if isinstance(stored, NamedSharding) and stored.mesh.shape == mesh.shape:
            if set(stored.spec.axes) <= set(mesh.explicit_axes):
                y = reshard_p(y, sharding=NamedSharding(mesh, stored.spec))
        out.append(y)
    return out


_AS_ARRAY = "convert it with phalanx.numpy.asarray"


def _no_array(exported: Exported, leaves: Sequence[Any]) -> ArgumentTypeError:
    """The error for the first argument that is no array."""
    for name, x in zip(argument_names(exported), leaves, strict=True):
        try:
            aval_of(x)
        except ArgumentTypeError as error:
            where = f"call of exported {exported.fun_name}, argument {name}"
            return ArgumentTypeError(where, expected=error.expected, got=error.got, mend=_AS_ARRAY)
    raise AssertionError("one of them is none")


def _other_tree(exported: Exported, args: tuple, kwargs: dict) -> TreeError:
    """The error for arguments of another structure: the first place where they differ, by its path."""
    where = f"call of exported {exported.fun_name}"
    positional, named = exported.in_tree.children()
    wanted, keys = positional.children(), named.node_data()[1]
    if len(args) != len(wanted):
        return TreeError(
            where,
            expected=f"{len(wanted)} positional argument{'' if len(wanted) == 1 else 's'} "
            f"({', '.join(_parameter(exported, i) for i in range(len(wanted)))})",
            got=str(len(args)),
            mend="pass the arguments that it was exported for; defaults and static ones are not part of an artifact",
        )
    if set(kwargs) != set(keys):
        return TreeError(
            where,
            expected=f"the keyword arguments {', '.join(keys)}" if keys else "no keyword arguments",
            got=", ".join(sorted(kwargs)) or "none",
            mend="pass the arguments that it was exported for; defaults and static ones are not part of an artifact",
        )
    names = [_parameter(exported, i) for i in range(len(wanted))]
    parts = [*zip(names, wanted, args), *((key, s, kwargs[key]) for key, s in zip(keys, named.children()))]
    found = (e for name, s, arg in parts for e in equality_errors(s, arg, what=f"{where}, argument {name}"))
    return next(found)


def _parameter(exported: Exported, i: int) -> str:
    return exported.parameters[i] if i < len(exported.parameters) else f"args[{i}]"


def _argument(exported: Exported, path: Any) -> str:
    """What the user calls the part of `(args, kwargs)` at `path`."""
    name = path[1].key if path[0].idx == 1 else _parameter(exported, path[1].idx)
    return f"{name}{keystr(path[2:])}"


def argument_names(exported: Exported) -> list[str]:
    """What the user calls each flat argument."""
    stand_ins = tree_unflatten(exported.in_tree, [0] * len(exported.in_avals))
    return [_argument(exported, path) for path, _ in tree_flatten_with_path(stand_ins)[0]]


def _result_types(exported: Exported, avals: Sequence[ShapedArray]) -> list[ShapedArray]:
    """The types of the results for arguments of these types, which are checked."""
    where = f"call of exported {exported.fun_name}"
    if len(avals) != len(exported.in_avals):
        raise TreeError(
            where,
            expected=f"{len(exported.in_avals)} arrays",
            got=str(len(avals)),
            mend="pass the arguments that it was exported for",
        )
    for i, (got, wanted) in enumerate(zip(avals, exported.in_avals, strict=True)):
        if got.dtype != wanted.dtype:
            raise ArgumentTypeError(
                f"{where}, argument {argument_names(exported)[i]}",
                expected=f"an array of type {wanted.str_short()}",
                got=got.str_short(),
                mend="make keys with random.key(seed, impl=...) or random.wrap_key_data"
                if is_extended(wanted.dtype)
                else "convert it with astype",
            )
        if got.ndim != wanted.ndim or not all(
            is_symbolic(m) or same_dim(n, m) for n, m in zip(got.shape, wanted.shape, strict=True)
        ):
            raise ShapeError(
                f"{where}, argument {argument_names(exported)[i]}",
                expected=f"an array of type {wanted.str_short()}",
                got=got.str_short(),
                mend="give it the shape of the export, or export for this shape",
            )
    if not exported.uses_shape_variables:
        return list(exported.out_avals)
    solution = exported._solution
    sizes = solution.sizes([a.shape for a in avals])
    for check in solution.checks:
        if check.holds(sizes) is False:
            raise ShapeError(
                f"{where}, argument {argument_names(exported)[check.argument]}",
                expected=(text := check.message(sizes)).partition(", got ")[0].removeprefix("expected "),
                got=text.partition(", got ")[2],
                mend="give arguments whose sizes fit each other and the constraints of the export",
            )
    values = {name: evaluate(dim, sizes) for name, dim in solution.variables.items()}
    return [a.with_shape([evaluate(d, values) for d in a.shape]) for a in exported.out_avals]


class CallExported(Primitive, name="call_exported", multiple=True):
    """A call of a program from an artifact: (*arrays) -> its results."""

    takes_keys = True

    def result(self, *avals: ShapedArray, exported: Exported) -> list[ShapedArray]:
        return _result_types(exported, avals)

    def effects(self, *avals: ShapedArray, exported: Exported) -> Effects:
        named = [*((n, True) for n in exported.ordered_effects), *((n, False) for n in exported.unordered_effects)]
        return frozenset(_effects.setdefault(key, Effect(key[0], ordered=key[1])) for key in named)

    def roles(self, *avals: ShapedArray, exported: Exported) -> Roles:
        # What the program does to each dimension is not written in the artifact.
        operands = [[("operand", i, d) for d in range(a.ndim)] for i, a in enumerate(avals)]
        outs = [[("result", i, d) for d in range(a.ndim)] for i, a in enumerate(exported.out_avals)]
        return Roles(operands, outs, whole=[name for names in (*operands, *outs) for name in names])

    def lower(self, ctx: Any, *operands: Any, exported: Exported) -> list:
        platform = _platform_number(exported, ctx.platform)
        count = ctx.module.num_partitions
        if exported.nr_devices not in (1, count):
            raise ShardingError(
                f"call of exported {exported.fun_name}",
                expected=f"arguments over {exported.nr_devices} devices, as it was exported for",
                got=f"a program for {count}",
                mend="place the arguments with device_put(x, NamedSharding(mesh, spec)) on a mesh of that many devices",
            )
        avals, outs = ctx.avals_in, ctx.avals_out
        taken = [avals[i] for i in exported.module_kept_var_idx]
        is_refined = exported.uses_shape_variables and not any(a.is_symbolic for a in taken)
        function = ctx.module.add_function(
            ("exported", exported, tuple(taken)),
            exported.fun_name,
            lambda name: _insert(ctx, exported, name, taken if is_refined else None, platform),
        )
        ins = _constrained(ctx, operands, avals, exported.in_shardings, exported.nr_devices)
        ins = [ins[i] for i in exported.module_kept_var_idx]
        if len(exported.platforms) > 1 and not is_refined:
            ins = [ctx.constant(np.int32(platform)), *ins]
        results = _called(ctx, function, ins, outs)
        return _constrained(ctx, results, outs, exported.out_shardings, exported.nr_devices)

    jvp = Undefined("an artifact holds its reverse derivative only; use grad or vjp, which call it")

    def batch_axis(self, axis: Any, args: Any, dims: Any, *, exported: Exported) -> tuple:
        if exported.ordered_effects:
            raise RuleError(
                f"vmap of exported {exported.fun_name}",
                expected="a program without ordered effects",
                got=", ".join(exported.ordered_effects),
                mend="call it in a lax.map",
            )
        mapped = [d is not None for d in dims]
        moved = [axis.to_front(x, d) if m else x for x, d, m in zip(args, dims, mapped, strict=True)]

        def one(xs: Sequence[Any]) -> list:
            each = iter(xs)
            return self(*(next(each) if m else x for x, m in zip(moved, mapped, strict=True)), exported=exported)

        # The program is for one array, and nothing can be put into it: its calls follow one another.
        out = map_one_by_one(one, [x for x, m in zip(moved, mapped, strict=True) if m])
        return out, [0] * len(exported.out_avals)

    batch = None


call_exported_p = CallExported()


def _platform_number(exported: Exported, platform: str) -> int:
    if platform in exported.platforms:
        return exported.platforms.index(platform)
    if DisabledSafetyCheck.platform() in exported.disabled_safety_checks:
        return 0
    raise PlatformError(
        f"call of exported {exported.fun_name}",
        expected=f"one of the platforms that it was exported for: {', '.join(exported.platforms)}",
        got=platform,
        mend=f"place the arguments on one of these, or export it with platforms=[{platform!r}, ...]",
    )


def _constrained(ctx: Any, values: Sequence[Any], avals: Sequence[Any], shardings: Sequence[Any], count: int) -> list:
    """Values that lie as the program was exported for."""
    if count == 1:
        return list(values)
    out = []
    for x, aval, sharding in zip(values, avals, shardings, strict=True):
        if isinstance(sharding, NamedSharding):
            sharding = types.placed(sharding, Mesh(ctx.module.device_assignment, ("devices",)))
        elif sharding is not None:
            sharding = GSPMDSharding(ctx.module.device_assignment, sharding)
        out.append(constrain(ctx, x, aval, sharding))
    return out


def _called(ctx: Any, function: Any, ins: Sequence[Any], outs: Sequence[ShapedArray]) -> list:
    """The results of calling a function whose types may be less exact than those of the values here."""
    name, kind = function
    ins = [x if x.type == t else hlo.convert(t, x) for x, t in zip(ins, kind.inputs, strict=True)]
    results = func.CallOp(kind.results, ir.FlatSymbolRefAttr.get(name), ins).results
    types = [ctx.type(a) for a in outs]
    return [y if y.type == t else hlo.convert(t, y) for y, t in zip(results, types, strict=True)]


def _refined(exported: Exported, inner: Any, avals: Sequence[ShapedArray], ctx: Any, platform: int) -> Any:
    """The module for arguments of these static types, its shapes static in turn."""
    old = next(op for op in inner.body.operations if ir.StringAttr(op.attributes["sym_name"]).value == "main")
    ir.SymbolTable.set_symbol_name(old, "_symbolic_main")
    old.attributes["sym_visibility"] = ir.StringAttr.get("private")
    for attribute in ("arg_attrs", "res_attrs"):
        if attribute in old.attributes:
            del old.attributes[attribute]
    kind = ir.FunctionType(ir.TypeAttr(old.attributes["function_type"]).value)
    with ir.InsertionPoint(inner.body), ir.Location.unknown():
        main = func.FuncOp("main", ir.FunctionType.get([ctx.type(a) for a in avals], kind.results))
        main.attributes["sym_visibility"] = ir.StringAttr.get("public")
        with ir.InsertionPoint(main.add_entry_block()):
            wanted = kind.inputs[len(kind.inputs) - len(avals) :]
            ins = [x if x.type == t else hlo.convert(t, x) for x, t in zip(main.arguments, wanted, strict=True)]
            if len(exported.platforms) > 1:
                number = ir.DenseElementsAttr.get(np.array(platform, np.int32))
                ins = [hlo.ConstantOp(number).result, *ins]
            call = func.CallOp(kind.results, ir.FlatSymbolRefAttr.get("_symbolic_main"), ins)
            func.ReturnOp(list(call.results))
    return stablehlo.refine_shapes(inner, ctx.module.context)


def _insert(ctx: Any, exported: Exported, name: str, avals: Any, platform: int) -> tuple[str, Any]:
    """Put the functions of the artifact beside those of the program: the name of its `main` there, and its type."""
    module = ctx.module
    inner = stablehlo.deserialize(exported.mlir_module_serialized, module.context)
    check_main(exported, stablehlo.main_signature(inner))
    if avals is not None:
        inner = _refined(exported, inner, avals, ctx, platform)
    if not module.is_portable:
        _require_kernels(exported, inner, module.platform)
    number = sum(1 for key, _ in module.functions if type(key) is tuple and key[0] == "exported")
    main = _rename(module, inner, f"{name}_exported_{number}")
    kind = None
    for op in inner.body.operations:
        operation = op.operation
        if operation.name == "sdy.mesh":
            if operation.attributes["sym_name"] not in _meshes(module):
                with ir.InsertionPoint.at_block_begin(module.module.body):
                    operation.clone()
            continue
        for attribute in ("arg_attrs", "res_attrs"):
            if attribute in operation.attributes:
                del operation.attributes[attribute]  # constraints around the call say the same
        operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
        if ir.StringAttr(operation.attributes["sym_name"]).value == main:
            kind = ir.FunctionType(ir.TypeAttr(operation.attributes["function_type"]).value)
        with ir.InsertionPoint(module.module.body):
            module.symbols.insert(operation.clone())
    return main, kind


def _require_kernels(exported: Exported, inner: Any, platform: str) -> None:
    """Register the kernels that a program calls and this installation has; the engine names any other."""
    called = stablehlo.custom_calls(inner)
    check_callable(called, exported.disabled_safety_checks, exported.fun_name)
    here = targets.known_targets(platform) if called else []
    for target in called:
        if target in here:
            targets.require(target, platform)


def _rename(module: Any, inner: Any, prefix: str) -> str:
    """Give the symbols of a module names that nothing else has, and meshes the names that they have already."""
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


def _meshes(module: Any) -> list:
    operations = (op.operation for op in module.module.body.operations)
    return [op.attributes["sym_name"] for op in operations if op.name == "sdy.mesh"]
