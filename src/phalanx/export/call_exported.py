"""Calls of exported programs: checks of the arguments, the function behind `Exported.call`, and its primitive.

Errors name an argument as the user wrote it.

A call is one equation of the calling program. Its lowering rule links the functions of the artifact into the calling
module (`module_linking`). Reverse-mode derivatives use the derivative in the artifact. Builds on `exported_program`;
`exported` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentTypeError,
    ConversionError,
    Effect,
    Effects,
    Primitive,
    RuleError,
    ShapedArray,
    ShapeError,
    ShardingError,
    ShardingRule,
    TreeError,
    Undefined,
    effects,
    format_source,
    get_aval,
    is_extended,
    physical_aval,
)
from phalanx.custom_rules import SymbolicZero, custom_vjp
from phalanx.engine.mlir import func, ir
from phalanx.export.exported_program import ExportedProgram, cotangent_aval, is_differentiable
from phalanx.export.module_linking import convert_values, link_artifact
from phalanx.export.program_mesh import choose_mesh_sizes, read_mesh
from phalanx.export.safety_checks import DisabledSafetyCheck, PlatformError
from phalanx.export.type_serialization import StoredSharding, with_devices
from phalanx.lax import full, reshard_p
from phalanx.lax.control_flow.scan import map as map_sequentially
from phalanx.lax.shape import batched_sharding_rule
from phalanx.lax.sharding.out_sharding import drop_type_sharding
from phalanx.lax.sharding_constraint import constrain
from phalanx.runtime.lowering import LoweringContext
from phalanx.runtime.reshard_lowering import state_sharding
from phalanx.sharding import Mesh, NamedSharding
from phalanx.spmd import jit
from phalanx.symbolic import evaluate, is_symbolic, same_dim
from phalanx.tree import equality_errors, tree_flatten, tree_unflatten
from phalanx.typing import Array, PyTree

_OTHER_ARGUMENTS = "pass the arguments that it was exported for; defaults and static ones are not part of an artifact"


def not_an_array_error(exported: ExportedProgram, leaves: Sequence[object]) -> ArgumentTypeError:
    """The error for the first of `leaves` that is not an array."""
    for name, x in zip(exported.argument_names, leaves, strict=True):
        try:
            get_aval(x)
        except ArgumentTypeError as error:
            return ArgumentTypeError(
                f"call of exported {exported.fun_name}, argument {name}",
                expected=error.expected,
                got=error.got,
                fix="convert it with phalanx.numpy.asarray",
            )
    raise AssertionError("called although every leaf is an array")


def structure_error(exported: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TreeError:
    """The error for arguments with another structure than the exported ones; it names the first difference."""
    where = f"call of exported {exported.fun_name}"
    positional, named = exported.in_tree.children()
    structures, keys = positional.children(), named.node_data()[1]
    names = list(map(exported.parameter_name, range(len(structures))))
    if len(args) != len(structures):
        plural = "" if len(structures) == 1 else "s"
        expected = f"{len(structures)} positional argument{plural} ({', '.join(names)})"
        return TreeError(where, expected=expected, got=str(len(args)), fix=_OTHER_ARGUMENTS)
    if set(kwargs) != set(keys):
        expected = f"the keyword arguments {', '.join(keys)}" if keys else "no keyword arguments"
        return TreeError(where, expected=expected, got=", ".join(sorted(kwargs)) or "none", fix=_OTHER_ARGUMENTS)
    by_name = [*zip(names, structures, args), *((key, s, kwargs[key]) for key, s in zip(keys, named.children()))]
    return next(
        error
        for name, structure, arg in by_name
        for error in equality_errors(structure, arg, what=f"{where}, argument {name}")
    )


def check_avals(exported: ExportedProgram, avals: Sequence[ShapedArray]) -> None:
    """Check the number, dtypes and static dimensions of the flat arguments.

    Raises:
      TreeError: there are more or fewer arguments than the program takes.
      ConversionError: an argument has another dtype.
      ShapeError: an argument has another rank or static dimension.
    """
    where = f"call of exported {exported.fun_name}"
    if len(avals) != len(exported.in_avals):
        expected = f"{len(exported.in_avals)} arrays"
        raise TreeError(where, expected=expected, got=str(len(avals)), fix=_OTHER_ARGUMENTS)
    for i, (got, declared) in enumerate(zip(avals, exported.in_avals, strict=True)):
        expected = f"an array of type {declared.str_short()}"
        if got.dtype != declared.dtype:
            raise ConversionError(
                f"{where}, argument {exported.argument_names[i]}",
                expected=expected,
                got=got.str_short(),
                fix="make keys with random.key(seed, impl=...) or random.wrap_key_data"
                if is_extended(declared.dtype)
                else f"convert it with astype({declared.dtype.name!r})",
            )
        # Symbolic dimensions are checked together below, since one variable may be in several arguments.
        if got.ndim != declared.ndim or not all(
            is_symbolic(m) or same_dim(n, m) for n, m in zip(got.shape, declared.shape, strict=True)
        ):
            raise ShapeError(
                f"{where}, argument {exported.argument_names[i]}",
                expected=expected,
                got=got.str_short(),
                fix="pass an array of that shape, or export the function for this shape",
            )


def infer_result_avals(exported: ExportedProgram, avals: Sequence[ShapedArray]) -> list[ShapedArray]:
    """The types of the results for arguments of these types.

    Raises:
      TreeError, ConversionError, ShapeError: as in `check_avals`; also sizes that violate a constraint.
    """
    check_avals(exported, avals)
    if not exported.uses_shape_variables:
        return list(exported.out_avals)
    # The same solution is emitted into `main`, so tracing and execution agree on the sizes that are accepted.
    solution = exported.solution
    sizes = solution.sizes([a.shape for a in avals])
    for check in solution.checks:
        if check.holds(sizes) is False:  # None: symbolic sizes for which it may hold; checked when they are known
            expected, _, got = check.message(sizes).removeprefix("expected ").partition(", got ")
            raise ShapeError(
                f"call of exported {exported.fun_name}, argument {exported.argument_names[check.argument]}",
                expected=expected,
                got=got,
                fix="pass arguments whose sizes fit each other and the constraints of the export",
            )
    values = {name: evaluate(dim, sizes) for name, dim in solution.variables.items()}
    return [a.with_shape([evaluate(d, values) for d in a.shape]) for a in exported.out_avals]


def make_call(exported: ExportedProgram) -> Callable[[tuple[Any, ...], dict[str, Any]], PyTree]:
    """The function of `(args, kwargs)` behind `exported.call`, whose derivative is the one in the artifact."""

    def primal(*leaves: Array) -> list[Array]:
        return list(call_exported_p(*leaves, exported=exported))

    def forward(*primals: Any) -> tuple[Any, list[Array]]:
        leaves = [p.value for p in primals]
        return function(*leaves), leaves  # `function` and not `primal`, so that it can be differentiated again

    def backward(leaves: Sequence[Array], cotangents: Sequence[Array | SymbolicZero]) -> tuple[Array | None, ...]:
        dense = (
            # The exported derivative takes an array for every cotangent, also zeros for results that were not used.
            full(c.aval.shape, 0, cotangent_aval(a).dtype) if isinstance(c, SymbolicZero) else c
            for a, c in zip(exported.out_avals, cotangents, strict=True)
        )
        grads = exported.vjp().call(*leaves, *dense)
        return tuple(g if is_differentiable(a) else None for a, g in zip(exported.in_avals, grads, strict=True))

    function = custom_vjp(primal)
    function.defvjp(forward, backward, symbolic_zeros=True)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> PyTree:
        leaves, tree = tree_flatten((args, kwargs))
        if tree != exported.in_tree:
            raise structure_error(exported, args, kwargs)
        try:
            is_typed = any(get_aval(x).type_sharding is not None for x in leaves)
        except ArgumentTypeError:
            raise not_an_array_error(exported, leaves) from None
        if not is_typed:
            return tree_unflatten(exported.out_tree, function(*leaves))
        return tree_unflatten(exported.out_tree, call_typed(*leaves))

    # Compiled as a whole: between the call and `_reshard_results`, no type says that a result is a sum of terms.
    @jit
    def call_typed(*leaves: Any) -> list[Array]:
        # Artifacts record shardings over Explicit mesh axes per argument, and not in types. Types therefore lose them
        # before the call, and the types of the results regain those of the artifact.
        return _reshard_results(exported, function(*map(drop_type_sharding, leaves)), leaves)

    return call


def _reshard_results(exported: ExportedProgram, results: Sequence[Array], leaves: Sequence[Array]) -> list[Array]:
    """Give results the exported sharding in their types, where it names Explicit axes of the program's mesh."""
    out = []
    mesh = next(s.mesh for x in leaves if (s := get_aval(x).type_sharding) is not None)
    sizes = choose_mesh_sizes(exported, mesh.shape, mesh.size, f"call of exported {exported.fun_name}")
    for y, stored in zip(results, exported.out_shardings, strict=True):
        if isinstance(stored, NamedSharding) and (sizes or stored.mesh.shape) == mesh.shape:
            if set(stored.spec.axes) <= set(mesh.explicit_axes):
                y = reshard_p(y, sharding=NamedSharding(mesh, stored.spec))
        out.append(y)
    return out


_effects: dict[tuple[str, bool], Effect] = {
    (e.name, e.ordered): e
    for e in (effects.io_effect, effects.ordered_io_effect, effects.debug_effect, effects.ordered_debug_effect)
}


class CallExported(Primitive, name="call_exported", multiple=True):
    """A call of an exported program: (*arrays) -> its results."""

    takes_keys = True

    def abstract_eval(self, *avals: ShapedArray, exported: ExportedProgram) -> list[ShapedArray]:
        return infer_result_avals(exported, avals)

    def effects(self, *avals: ShapedArray, exported: ExportedProgram) -> Effects:
        keys = [*((n, True) for n in exported.ordered_effects), *((n, False) for n in exported.unordered_effects)]
        return frozenset(_effects.setdefault(key, Effect(key[0], ordered=key[1])) for key in keys)

    def sharding_rule(self, *avals: ShapedArray, exported: ExportedProgram) -> ShardingRule:
        # An artifact does not record how the program maps dimensions, so each dimension is a factor that is replicated.
        return batched_sharding_rule(avals, [a.ndim for a in exported.out_avals])

    def lower(self, ctx: LoweringContext, *operands: Any, exported: ExportedProgram) -> list[Any]:
        platform = _platform_index(exported, ctx.platform)
        avals, outs = ctx.avals_in, ctx.avals_out
        mesh, sizes = _choose_mesh(ctx, exported)
        other_mesh = None if sizes is None else mesh
        # Shapes are specialized at the call. Inside another symbolic export they stay symbolic, until that one is
        # called.
        kept = [avals[i] for i in exported.module_kept_var_idx]
        is_refined = exported.uses_shape_variables and not any(a.is_symbolic for a in kept)
        placed = [None if mesh is None else with_devices(stored, mesh, sizes) for stored in exported.in_shardings]
        ctx.module.has_uneven |= any(
            s is not None and not a.is_symbolic and s.padded_shape(a.shape) != a.shape
            for s, a in zip(placed, avals, strict=True)
        )
        name, function_type, expected, names_shardings = ctx.module.add_function(
            # The functions are linked once for each program and argument types, however often it is called.
            ("exported", exported, tuple(kept)),
            exported.fun_name,
            lambda name: link_artifact(
                ctx,
                exported,
                name,
                kept if is_refined else None,
                platform,
                other_mesh,
                [placed[i] for i in exported.module_kept_var_idx],
            ),
        )
        ins = _constrain_all(ctx, operands, avals, exported.in_shardings, mesh, sizes)
        ins = [ins[i] for i in exported.module_kept_var_idx]
        if len(exported.platforms) > 1 and not is_refined:
            # A refined program has the platform index as a constant, which removes the branches of other platforms.
            ins = [ctx.constant(np.int32(platform)), *ins]
        # A static type of the caller converts to a dynamic type of the program, and back for the results.
        ins = convert_values(ins, function_type.inputs)
        results = func.CallOp(function_type.results, ir.FlatSymbolRefAttr.get(name), ins).results
        results = convert_values(results, [ctx.type(a) for a in outs])
        for x, stored, sharding in zip(results, exported.out_shardings, expected, strict=True):
            if sharding is not None:
                ctx.module.inferred_shardings[x] = sharding
            if mesh is not None and isinstance(stored, NamedSharding) and stored.unreduced_over:
                # The function states that they are terms. To state another sharding first would add them up.
                ctx.module.typed_shardings[x] = with_devices(stored, mesh, sizes)
        if names_shardings or mesh is None or ctx.module.names_requests:
            return _constrain_all(ctx, results, outs, exported.out_shardings, mesh, sizes)
        # As in a program that is compiled here, results like arguments are expected to be sharded like them already.
        alike = set(zip(exported.in_avals, exported.in_shardings, strict=True))
        is_alike = [pair in alike for pair in zip(exported.out_avals, exported.out_shardings, strict=True)]
        return _constrain_all(ctx, results, outs, exported.out_shardings, mesh, sizes, is_alike)

    jvp = Undefined("an artifact holds its reverse-mode derivative only; use grad or vjp, which call it")

    def batch_axis(
        self, axis: Any, args: Any, dims: Any, *, exported: ExportedProgram
    ) -> tuple[list[Array], list[int]]:
        if exported.ordered_effects:
            raise RuleError(
                f"vmap of exported {exported.fun_name}",
                expected="a program without ordered effects",
                got=", ".join(exported.ordered_effects),
                fix="call it inside phalanx.lax.map instead of vmap",
            )
        mapped = [d is not None for d in dims]
        moved = [axis.to_front(x, d) if m else x for x, d, m in zip(args, dims, mapped, strict=True)]

        def call_one(xs: Sequence[Array]) -> list[Array]:
            slices = iter(xs)
            return list(
                self(*(next(slices) if m else x for x, m in zip(moved, mapped, strict=True)), exported=exported)
            )

        # The program has no batching rule, so the elements are computed one after the other.
        out = map_sequentially(call_one, [x for x, m in zip(moved, mapped, strict=True) if m])
        return out, [0] * len(exported.out_avals)


call_exported_p = CallExported()


def _platform_index(exported: ExportedProgram, platform: str) -> int:
    if platform in exported.platforms:
        return exported.platforms.index(platform)
    if DisabledSafetyCheck.platform() in exported.disabled_safety_checks:
        return 0
    raise PlatformError(
        f"call of exported {exported.fun_name}",
        expected=f"one of the platforms that it was exported for: {', '.join(exported.platforms)}",
        got=platform,
        fix=f"place the arguments on one of these, or export it with platforms=[{platform!r}, ...]",
    )


def _choose_mesh(ctx: LoweringContext, exported: ExportedProgram) -> tuple[Mesh | None, dict[str, int] | None]:
    """The mesh of a call, None for a program for one device; and the sizes of its axes, None for the exported ones."""
    if exported.nr_devices == 1:
        return None, None
    module = ctx.module
    if module.manual is not None and (inside := module.manual.axes.intersection(_named_axes(exported))):
        raise ShardingError(
            f"call of exported {exported.fun_name}, at {format_source(ctx.eqn.source)}",
            expected="a call outside of a shard_map over axes of the mesh that the program was exported for, here "
            + ", ".join(sorted(inside)),
            got="a call inside of it",
            fix="call it on the arrays outside, or export the function without shardings, for one device",
        )
    meshes = map(read_mesh, module.meshes)
    declared = next((m for m in meshes if m.size == module.num_partitions), None)
    sizes = choose_mesh_sizes(
        exported,
        None if declared is None else declared.sizes,
        module.num_partitions,
        f"call of exported {exported.fun_name}",
    )
    devices = np.array(module.device_assignment)
    if sizes is None:
        return Mesh(devices, ("devices",)), None
    if declared is not None and declared.order:
        devices = devices[list(declared.order)]
    return Mesh(devices.reshape(tuple(sizes.values())), tuple(sizes)), sizes


def _named_axes(exported: ExportedProgram) -> set[Any]:
    """The mesh axes that the shardings of arguments and results name."""
    named = (*exported.in_shardings, *exported.out_shardings)
    return {axis for s in named if isinstance(s, NamedSharding) for axis in s.spec.axes}


def _constrain_all(
    ctx: LoweringContext,
    values: Sequence[Any],
    avals: Sequence[ShapedArray],
    shardings: Sequence[StoredSharding],
    mesh: Mesh | None,
    sizes: Mapping[str, int] | None,
    are_expected: Sequence[bool] | None = None,
) -> list[Any]:
    """Constrain IR values to the shardings of the export, over the devices of the calling program."""
    if mesh is None or mesh.size == 1:
        return list(values)
    out = []
    for x, aval, stored, is_expected in zip(
        values, avals, shardings, are_expected or [False] * len(values), strict=True
    ):
        sharding = with_devices(stored, mesh, sizes)
        if is_expected and sharding is not None and not sharding.unreduced_over:
            out.append(state_sharding(ctx, x, physical_aval(aval), sharding))
        else:
            out.append(constrain(ctx, x, aval, sharding))
    return out
