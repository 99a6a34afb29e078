"""`export`: trace a jitted function and lower it to an `Exported`.

Builds on the stages of `spmd` for tracing, on `portable_lowering` for the program, and on `exported` for the result.
The derivative is exported the same way, at its first use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import numpy as np

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    Context,
    ConversionError,
    Eqn,
    Jaxpr,
    ShapeDtypeStruct,
    ShardingError,
    TraceError,
    effects,
    iterate_jaxprs,
    run_jaxpr,
    state,
    state_extra,
)
from phalanx.engine import client
from phalanx.export.call_exported import call_exported_p
from phalanx.export.exported import Exported, maximum_supported_calling_convention_version
from phalanx.export.exported_program import ProgramAxis, cotangent_aval, is_differentiable
from phalanx.export.mesh_size_reads import watch_mesh_sizes
from phalanx.export.portable_lowering import lower_portable
from phalanx.export.program_mesh import DeclaredMesh
from phalanx.export.safety_checks import DisabledSafetyCheck, format_line
from phalanx.export.type_serialization import without_devices
from phalanx.lax import full
from phalanx.runtime import ArrayType, is_abstract, named_sharding, on_abstract_devices, on_devices
from phalanx.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding, use_mesh
from phalanx.spmd import jit
from phalanx.spmd.shard_map_primitive import shard_map_p
from phalanx.spmd.sharding_resolution import resolve_shardings
from phalanx.spmd.stages import Traced
from phalanx.symbolic import is_symbolic
from phalanx.transforms import vjp
from phalanx.typing import Array

PLATFORMS: Final = ("cpu", "cuda", "rocm", "tpu")


def export(
    fun_jit: Callable[..., Any],
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (),
    mesh: Mesh | AbstractMesh | None = None,
) -> Callable[..., Exported]:
    """Export a jitted function, so that another process can call it.

    Args:
      fun_jit: a function made by `jit`, or an array function such as `jnp.cos`.
      platforms: the platforms to lower for, from "cpu", "cuda", "rocm" and "tpu"; by default the platform of this
        process.
      disabled_checks: safety checks to skip.
      mesh: the mesh to export for; its devices need not be attached. Specs such as `P("data")` in the function and in
        the types of the arguments name its axes. The program can be called on other sizes, too (`Exported.mesh_axes`).

    Returns:
      A function of the same arguments as `fun_jit` that returns the `Exported`. The arguments are arrays, or
      `ShapeDtypeStruct`s whose dimensions may be symbolic (see `symbolic_args_specs`).

    Raises:
      ArgumentTypeError: `fun_jit` was not made by `jit`, or `mesh` is no mesh with axes.
      ArgumentError: a platform does not exist, or is given twice.
      ShardingError: raised by the returned function if the shardings of the function are over another mesh.
      CustomCallError: raised by the returned function if the program calls kernels with no stability guarantee.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx import export
      >>> exported = export.export(phalanx.jit(jnp.sin))(phalanx.ShapeDtypeStruct((4,), "float32"))
      >>> again = export.deserialize(exported.serialize())
      >>> again.in_avals, float(again.call(jnp.zeros(4))[0])
      ((ShapedArray(float32[4]),), 0.0)
    """
    trace = getattr(fun_jit, "trace", None)
    if not callable(trace):
        raise ConversionError(
            "export, argument fun_jit",
            expected="a function made by jit",
            got=f"{fun_jit!r} of type {type(fun_jit).__name__}",
            fix="export(phalanx.jit(f))(...)",
        )
    # Checked here and not in the returned function, so that the error is at the line with the mistake.
    platforms, disabled = _check_platforms(platforms), _check_disabled(disabled_checks)
    if mesh is not None and (not isinstance(mesh, Mesh | AbstractMesh) or mesh.empty):
        raise ArgumentTypeError(
            "export, argument mesh",
            expected="a Mesh or AbstractMesh with axes, or None",
            got=f"{mesh!r} of type {type(mesh).__name__}",
            fix="create one, as in AbstractMesh((4,), ('data',))",
        )

    def exporter(*args: Any, **kwargs: Any) -> Exported:
        with nullcontext() if mesh is None else use_mesh(mesh.abstract_mesh):
            with watch_mesh_sizes() as reads:
                traced = trace(*args, **kwargs)
            return export_traced(traced, reads.lines)

    def export_traced(traced: Traced, sizes_read: Mapping[Any, str]) -> Exported:
        if traced.is_open:
            raise TraceError(
                f"export of {traced.fun_name}",
                expected="a function that closes over no traced value",
                got="one that closes over a value of an enclosing transformation",
                fix="pass that value as an argument",
            )
        return _export(traced, platforms, disabled, mesh=mesh, sizes_read=sizes_read)

    return exporter


def default_export_platform() -> str:
    """The platform that `export` lowers for by default: the platform of the default devices.

    Returns:
      "cpu" or "cuda".

    Examples:
      >>> default_export_platform() in ("cpu", "cuda")
      True
    """
    return client.platform_name(client.default_backend())


def _check_platforms(platforms: Sequence[str] | None) -> tuple[str, ...]:
    where = "export, argument platforms"
    if platforms is None:
        return (default_export_platform(),)
    if isinstance(platforms, str):
        raise ArgumentTypeError(
            where, expected="a list of names", got=f"the name {platforms!r}", fix=f"pass platforms=[{platforms!r}]"
        )
    names = tuple(map(client.platform_name, platforms))
    if not names:
        raise ArgumentError(
            where, expected="at least one platform", got="none", fix="omit it to export for the default platform"
        )
    if len(set(names)) < len(names) or not set(names) <= set(PLATFORMS):
        raise ArgumentError(
            where,
            expected=f"some of {', '.join(PLATFORMS)}, each once",
            got=repr(tuple(platforms)),
            fix="remove names that are unknown or repeated; 'gpu' denotes 'cuda'",
        )
    return names


def _check_disabled(checks: Sequence[DisabledSafetyCheck]) -> tuple[DisabledSafetyCheck, ...]:
    if isinstance(checks, list | tuple) and all(isinstance(check, DisabledSafetyCheck) for check in checks):
        return tuple(checks)
    raise ArgumentTypeError(
        "export, argument disabled_checks",
        expected="a list of checks",
        got=checks,
        fix="pass disabled_checks=[DisabledSafetyCheck.custom_call(name)], or [DisabledSafetyCheck.platform()]",
    )


def _export(
    traced: Traced,
    platforms: tuple[str, ...],
    disabled: tuple[DisabledSafetyCheck, ...],
    parameters: Sequence[str] = (),
    mesh: Mesh | AbstractMesh | None = None,
    *,
    sizes_read: Mapping[Any, str],
    primal: _MeshAxes | None = None,
) -> Exported:
    """Lower a traced function.

    Args:
      traced: the function.
      platforms, disabled, mesh: as for `export`.
      parameters: the names of its parameters where its signature does not have them, as for a derivative.
      sizes_read: by axis, what read its size; None stands for all axes.
      primal: for a derivative, what `_find_mesh_axes` found in the function that it is of.
    """
    traced = traced.resolve_auto()
    name, program, options, call = traced.fun_name, traced.program, traced.options, traced._call
    place = _choose_placement(program)
    types = [ArrayType(t.aval, place(t.sharding), t.committed) for t in traced.argument_types()]
    declared, out_declared = (list(map(place, s)) for s in (options.in_shardings, options.out_shardings))
    devices, in_shardings, _ = resolve_shardings(
        program,
        types,
        declared,
        out_declared,
        lambda i: f"export of {name}, argument {call.path(i)}",
        lambda i: f"export of {name}, result{traced.result_path(i)}",
        absent=None if mesh is None else on_abstract_devices(NamedSharding(mesh.abstract_mesh, PartitionSpec())),
    )
    # Names of whole parameters for messages about the structure; `paths` names flat leaves, as a derivative's
    # parameters.
    signature_names = [call.signature.name_of(call.position(i)) for i in range(len(call.dynamic()[0]))]
    paths = parameters or [call.path(i) for i in range(len(program.in_avals))]
    results = [traced.result_path(i) for i in range(len(program.out_avals))]
    if mesh is not None and len(devices) != mesh.size:
        given = [d or (t.sharding if t.committed else None) for d, t in zip(declared, types, strict=True)]
        named = _name_shardings(program, zip(given, paths), zip(out_declared, results))
        what = next(what for s, what in named if s.num_devices == len(devices))
        raise ShardingError(
            f"export of {name}, argument mesh",
            expected=f"a mesh of {len(devices)} devices, as {what}",
            got=mesh.abstract_mesh,
            fix="name only the axes in the shardings, as in jit(f, in_shardings=P('data'))",
        )
    portable = lower_portable(
        program,
        platforms,
        name=name,
        devices=devices,
        in_shardings=in_shardings,
        out_shardings=out_declared,
        keep_unused=options.keep_unused,
        disabled=disabled,
        names=call.path,
    )
    # A result over Explicit mesh axes has a sharding in its type, which belongs to the export like a declared one.
    out_shardings = [
        on_devices(a.type_sharding, devices) if s is None else s
        for s, a in zip(out_declared, program.out_avals, strict=True)
    ]
    in_avals, out_avals = (tuple(a.drop_sharding() for a in avals) for avals in (program.in_avals, program.out_avals))
    in_stored, out_stored = (
        tuple(without_devices(s, len(devices), a) for s, a in zip(shardings, avals, strict=True))
        for shardings, avals in ((in_shardings, in_avals), (out_shardings, out_avals))
    )
    named = _name_shardings(program, zip(in_stored, paths), zip(out_stored, results))
    found = _name_primal_lines(_find_mesh_axes(program, named, portable.meshes, devices, sizes_read), primal)
    cotangents = [f"cotangent of result{path}" for path in results]
    context = state.context  # of the user's call, in which the derivative is traced, too
    return Exported(
        fun_name=name,
        in_tree=traced.in_tree,
        in_avals=in_avals,
        out_tree=traced.out_tree,
        out_avals=out_avals,
        in_shardings=in_stored,
        out_shardings=out_stored,
        nr_devices=len(devices),
        platforms=platforms,
        ordered_effects=tuple(e.name for e in effects.ordered(program.effects)),
        unordered_effects=tuple(sorted(e.name for e in program.effects if not e.ordered)),
        disabled_safety_checks=disabled,
        mlir_module_serialized=portable.artifact,
        calling_convention_version=maximum_supported_calling_convention_version,
        module_kept_var_idx=portable.kept,
        parameters=tuple(parameters or signature_names),
        constraints=tuple(next((d.scope.texts for a in in_avals for d in a.shape if is_symbolic(d)), ())),
        mesh_axes=found.axes,
        devices_fixed_by=found.devices_fixed_by,
        # The derivative is traced and lowered at its first use; most exports are never differentiated.
        _get_vjp=functools.cache(
            lambda: _export_vjp(
                name,
                program,
                in_shardings,
                out_shardings,
                platforms,
                disabled,
                [*paths, *cotangents],
                sizes_read,
                context,
                found,
            )
        ),
    )


def _choose_placement(program: Jaxpr) -> Callable[[Any], Any]:
    """A function that puts shardings over abstract meshes on the devices that a program names, or on placeholders.

    An export must not depend on attached devices, except where the function does, such as a `shard_map` over a `Mesh`.
    """
    named = named_sharding(program)

    def place(sharding: Any) -> Any:
        if named is None or not is_abstract(sharding) or sharding.mesh.size != named.num_devices:
            return on_abstract_devices(sharding)
        return on_devices(sharding, named._device_assignment)

    return place


class _MeshAxes(NamedTuple):
    """The axes of the one mesh that all shardings of a program name; None if there is no such mesh, and the reason."""

    axes: tuple[ProgramAxis, ...] | None
    devices_fixed_by: str | None = None


def _name_shardings(
    program: Jaxpr, ins: Iterable[tuple[Any, str]], outs: Iterable[tuple[Any, str]]
) -> list[tuple[Any, str]]:
    """The shardings that a program names, and what they are of.

    Args:
      program: the jaxpr.
      ins, outs: the shardings of its arguments and results, with the paths of these.
    """
    named = [(s, f"the sharding of argument {path}") for s, path in ins]
    named += [(s, f"the sharding of result{path}") for s, path in outs]
    for eqn in _equations(program):
        if (find := eqn.primitive.target_shardings) is not None:
            named += [(s, f"{eqn.primitive.name} at {format_line(eqn.source)}") for s in find(**eqn.params)]
    return [(s, what) for s, what in named if s is not None]


def _equations(program: Jaxpr) -> list[Eqn]:
    return [eqn for jaxpr in iterate_jaxprs(program) for eqn in jaxpr.eqns]


def _find_mesh_axes(
    program: Jaxpr,
    named: Sequence[tuple[Any, str]],
    declared: Sequence[DeclaredMesh],
    devices: tuple[Any, ...],
    sizes_read: Mapping[Any, str],
) -> _MeshAxes:
    """Find the axes of the mesh of a program, and what fixes their sizes.

    Args:
      program: the jaxpr.
      named: the shardings that it names, and what they are of.
      declared: the meshes that the module declares.
      devices: its devices in partition order.
      sizes_read: by axis, what read its size; None stands for all axes.
    """
    if not declared:
        unnamed = [what for s, what in named if not isinstance(s, NamedSharding | SingleDeviceSharding)]
        return _MeshAxes(None, f"{unnamed[0]} names no axes of a mesh" if unnamed else None)
    equations = _equations(program)
    fixed = {**sizes_read}
    for eqn in equations:
        if eqn.primitive is call_exported_p and eqn.params["exported"].nr_devices > 1:
            axes = eqn.params["exported"].mesh_axes
            if axes is None:
                return _MeshAxes(None, f"the exported program at {format_line(eqn.source)} is for as many")
            fixed |= {axis.name: axis.fixed_by for axis in axes if axis.fixed_by is not None}
    if (reason := _find_second_mesh(named, declared, devices)) is not None:
        return _MeshAxes(None, reason)
    for eqn in equations:
        if eqn.primitive is shard_map_p:
            fixed |= dict.fromkeys(eqn.params["mesh"].axis_names, f"shard_map at {format_line(eqn.source)}")
    named_by = {axis: what for s, what in reversed(named) for axis in s.spec.axes}
    sizes = declared[0].sizes.items()
    return _MeshAxes(tuple([ProgramAxis(n, k, fixed.get(n, fixed.get(None)), named_by.get(n)) for n, k in sizes]))


def _name_primal_lines(found: _MeshAxes, primal: _MeshAxes | None) -> _MeshAxes:
    """Name the lines of a function in what was found in its derivative, whose calls have the line of the export."""
    if primal is None:
        return found
    fixed = {axis.name: axis.fixed_by for axis in primal.axes or ()}
    axes = found.axes and tuple(
        [axis._replace(fixed_by=axis.fixed_by and (fixed.get(axis.name) or axis.fixed_by)) for axis in found.axes]
    )
    return _MeshAxes(axes, found.devices_fixed_by and (primal.devices_fixed_by or found.devices_fixed_by))


def _find_second_mesh(
    named: Sequence[tuple[Any, str]], declared: Sequence[DeclaredMesh], devices: tuple[Any, ...]
) -> str | None:
    """Why shardings, and what they are of, do not name the axes of one mesh in the order of its devices; None if so."""
    for s, what in named:
        if not isinstance(s, NamedSharding):
            return f"{what} names no axes of a mesh"
        if not all(type(a) is str for a in s.mesh.axis_names):
            return f"{what} names axes that are no strings"
        if len(declared) > 1 and s.mesh.shape_tuple != named[0][0].mesh.shape_tuple:
            return f"{what} names another mesh than {named[0][1]}"
        if len(declared) > 1 and not is_abstract(s) and s._device_assignment != devices:
            return f"{what} has the devices in another order than the program"
    return "its meshes have the devices in different orders" if len(declared) > 1 or declared[0].order else None


def _export_vjp(
    name: str,
    program: Jaxpr,
    in_shardings: Sequence[Sharding | None],
    out_shardings: Sequence[Sharding | None],
    platforms: tuple[str, ...],
    disabled: tuple[DisabledSafetyCheck, ...],
    parameters: Sequence[str],
    sizes_read: Mapping[Any, str],
    context: Context,
    primal: _MeshAxes,
) -> Exported:
    """Export the pullback of `program` as a function of its flat arguments followed by the flat cotangents.

    It is traced in the context of the export, since custom rules of users may read the mesh. Only inputs and outputs
    with a derivative go through `vjp`; the others are closed over, and their cotangents are arrays of False
    (`cotangent_aval`).
    """
    num_args = len(program.invars)
    diff_args = [i for i, a in enumerate(program.in_avals) if is_differentiable(a)]
    diff_results = [i for i, a in enumerate(program.out_avals) if is_differentiable(a)]

    def backward(*args: Array) -> tuple[Array, ...]:
        def forward(*primals: Array) -> tuple[Array, ...]:
            inputs = list(args[:num_args])
            for i, x in zip(diff_args, primals, strict=True):
                inputs[i] = x
            out = run_jaxpr(program, *inputs)
            return tuple(out[i] for i in diff_results)

        pullback = vjp(forward, *(args[i] for i in diff_args))[1]
        x_bars = iter(pullback(tuple(args[num_args + i] for i in diff_results)))
        return tuple(next(x_bars) if is_differentiable(a) else full(a.shape, False, np.bool_) for a in program.in_avals)

    backward.__name__ = f"{name}_vjp"
    avals = [*program.in_avals, *map(cotangent_aval, program.out_avals)]
    shapes = [
        ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type, sharding=s)
        for a, s in zip(avals, [*in_shardings, *out_shardings], strict=True)
    ]
    with state_extra(**vars(context) | {"is_forked": state.context.is_forked}):
        with watch_mesh_sizes() as reads:
            traced = jit(backward, out_shardings=tuple(in_shardings)).trace(*shapes)
        return _export(traced, platforms, disabled, parameters, sizes_read={**reads.lines, **sizes_read}, primal=primal)
