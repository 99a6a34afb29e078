"""The `shard_map` primitive: a jaxpr that every device of a mesh runs on its shards of the arrays.

Its parameters are the per-device jaxpr and a spec for each input and output. Each rule derives a new per-device jaxpr
and binds the primitive with it; values that a rule adds get specs, too: a residual is split over the axes over which it
varies.

With `check`, types track the mesh axes over which values vary (see `core.varying_manual_axes`). The cotangent of a
value that is equal on several devices is then the sum of the cotangents on these devices, and the transposed jaxpr
contains the sum. Without `check` every device differentiates independently, like the rows of a `vmap`, and cotangents
are summed at the boundary over the axes that are missing in their specs (see `_sum_at_boundary`).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import (
    Jaxpr,
    Literal,
    ShapedArray,
    ShardingError,
    ShardingRule,
    Var,
    Zero,
    effects as fx,
    fill_flagged,
    format_source,
    get_aval,
    is_linear,
    join_tangents,
    named_axes,
    physical_aval,
    retype_jaxpr,
    run_jaxpr,
    select_flagged,
    select_unflagged,
    split_tangents,
    state,
    state_extra,
    trace_to_jaxpr,
    vary_outputs,
)
from phalanx.engine.mlir import ir, sdy
from phalanx.lax.collectives.all_reduce import psum
from phalanx.lax.collectives.replica_groups import ManualRegion
from phalanx.lax.control_flow.control_flow_tracing import split_by_sizes
from phalanx.lax.elementwise import div
from phalanx.lax.shape import reshape_p
from phalanx.lax.sharding_constraint import constrain, is_over_program, sharding_constraint_p
from phalanx.runtime import ORDER_TOKEN, compiled_program, device_names, eager_dispatch, sdy_sharding
from phalanx.sharding import UNCONSTRAINED, AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from phalanx.spmd.shard_map_sharding_rule import per_device_sharding_rule
from phalanx.transforms import (
    AxisData,
    Division,
    LinearTrace,
    PartialEvalCall,
    Policy,
    batch_jaxpr,
    drop_logs,
    front_dims,
    jvp_jaxpr,
    linearize_jaxpr,
    partial_eval_inner_jaxpr,
    transpose_jaxpr,
)

REPLICATED = PartitionSpec()


class View(NamedTuple):
    """The parameters that describe which axes of a mesh a `shard_map` maps over.

    mesh: the mesh.
    manual: names of the axes that are mapped over. XLA partitions the per-device program over the other axes.
    check: whether types track the axes over which values vary.
    """

    mesh: Any
    manual: frozenset
    check: bool

    @classmethod
    def of(cls, params: dict) -> View:
        """The view in the parameters of an equation."""
        return cls(params["mesh"], params["manual"], params["check"])

    def scope(self) -> Any:
        """A context manager under which collectives may use the manual axes, and constraints the mesh."""
        outer = [axis for axis in state.context.axes or () if axis[0] not in self.manual]
        tracked = self.mesh.axes_in_types(self.manual) if self.check else ()
        own = [(name, size, name in tracked) for name, size in self.mesh.shape.items() if name in self.manual]
        return state_extra(mesh=self.inner_mesh, axes=(*outer, *own))

    @property
    def inner_mesh(self) -> Any:
        """The mesh inside the per-device program, where the mapped axes have type Manual."""
        return self.mesh.with_axis_types(dict.fromkeys(self.manual, AxisType.Manual))

    def split_axes(self, spec: PartitionSpec, ndim: int) -> list[tuple]:
        """For each dimension of an array the axes of size greater than 1 that split it."""
        return [tuple([a for a in axes if self.mesh.shape[a] > 1]) for axes in spec.axes_per_dim(ndim)]

    def shard_type(self, aval: ShapedArray, spec: PartitionSpec) -> ShapedArray:
        """The type of a shard, given the type of the unsharded array."""
        split = zip(aval.shape, spec.axes_per_dim(aval.ndim), strict=True)
        shard = aval.with_shape(tuple(n // self.mesh.num_parts(axes) for n, axes in split))
        mesh = self.inner_mesh.abstract_mesh
        inside = PartitionSpec()
        if mesh.explicit_axes and aval.type_sharding is not None:
            inside = aval.type_sharding.spec.select_axes(mesh.explicit_axes, aval.ndim)
        if self.check and not spec.is_partitions_only:
            inside = PartitionSpec.of_dims(inside.axes_per_dim(aval.ndim), **spec.reductions)
        if inside is not REPLICATED:
            shard = shard.update(sharding=NamedSharding(mesh, inside))
        return shard.with_varying(shard.varying.union(mesh.axes_in_types(spec.axes))) if self.check else shard

    def global_type(self, shard: ShapedArray, spec: PartitionSpec) -> ShapedArray:
        """The type of the unsharded array, given the type of its shards."""
        outside, mesh = spec.axes_per_dim(shard.ndim), self.mesh.abstract_mesh
        shape = tuple(map(operator.mul, shard.shape, map(self.mesh.num_parts, outside)))
        whole = shard.with_shape(shape).with_varying(shard.varying - self.manual)
        if not mesh.explicit_axes:
            return whole
        inside = shard.type_sharding.spec.dims if shard.type_sharding is not None else ((),) * shard.ndim
        split = zip(outside, inside, strict=True)
        dims = PartitionSpec.of_dims([(*o, *i) for o, i in split], **spec.reductions)
        explicit = mesh.axes_in_types(mesh.explicit_axes)
        return whole.update(sharding=NamedSharding(mesh, dims.select_axes(explicit, shard.ndim)))

    def residual_spec(self, shard: ShapedArray) -> PartitionSpec:
        """The spec with which a residual leaves the forward pass and enters the backward pass.

        A residual that is equal on all devices is replicated. Otherwise the residuals of the devices are concatenated
        along dimension 0, which `_expand_scalars` adds to scalars.
        """
        axes = self.sort_axes(shard.varying & self.manual if self.check else self.manual)
        reductions = shard.manual_reductions if self.check else {}
        return PartitionSpec(axes, **reductions) if axes else PartitionSpec(**reductions)

    def missing(self, spec: PartitionSpec) -> tuple:
        """The manual axes that are missing in a spec, along which values and their cotangents are equal."""
        return self.sort_axes(self.manual.difference(spec.axes, spec.unreduced, spec.reduced))

    def sort_axes(self, axes: Collection) -> tuple:
        """The axes in mesh order."""
        return tuple(name for name in self.mesh.axis_names if name in axes)


def bind_shard_map(program: Jaxpr, args: Sequence[Any], ins: Sequence[Any], outs: Sequence[Any], view: View) -> list:
    """Bind the primitive. Constants of the jaxpr become leading, replicated inputs."""
    ins = (*(REPLICATED for _ in program.consts), *ins)
    return shard_map_p(
        *program.consts, *args, jaxpr=program.hoist(), in_specs=ins, out_specs=tuple(outs), **view._asdict()
    )


def record_linear(
    trace: LinearTrace, program: Jaxpr, args: Sequence[Any], ins: Sequence[Any], outs: Sequence[Any], view: View
) -> list:
    """Bind the primitive for a linear program, or record it as a whole if an operand is an unknown tangent.

    Partial evaluation would find nothing to compute: every equation of a linear program depends on the tangents.
    """
    if not any(map(trace.is_unknown, args)):
        return bind_shard_map(program, args, ins, outs, view)
    ins = (*(REPLICATED for _ in program.consts), *ins)
    params = {"jaxpr": program.hoist(), "in_specs": ins, "out_specs": tuple(outs)}
    return trace.record(shard_map_p, [*program.consts, *args], params | view._asdict())


class ShardMap(PartialEvalCall, name="shard_map"):
    """A program run by each device: (*arrays) -> arrays whose shards `jaxpr` computes from shards of the inputs."""

    def target_shardings(self, *, mesh: Mesh | AbstractMesh, **_: Any) -> tuple:
        return (NamedSharding(mesh, REPLICATED),)

    def operand_shardings(self, *, mesh: Mesh | AbstractMesh, in_specs: tuple, **_: Any) -> list:
        return [NamedSharding(mesh, spec) for spec in in_specs]

    def sharding_rule(
        self, *avals: Any, jaxpr: Jaxpr, in_specs: tuple, out_specs: tuple, **layout: Any
    ) -> ShardingRule:
        view = View(**layout)
        ins = [view.split_axes(spec, a.ndim) for spec, a in zip(in_specs, jaxpr.in_avals, strict=True)]
        outs = [view.split_axes(spec, a.ndim) for spec, a in zip(out_specs, jaxpr.out_avals, strict=True)]
        roles = per_device_sharding_rule(jaxpr, ins, outs, is_tracked=view.check)
        # Collectives over the manual axes happen inside the region; callers must not see them as uses of these axes.
        for name in view.manual:
            roles.axes.pop(name, None)
        return roles

    def abstract_eval(
        self,
        *avals: Any,
        jaxpr: Jaxpr,
        out_specs: tuple,
        mesh: Mesh | AbstractMesh,
        manual: frozenset,
        check: bool,
        **_: Any,
    ):
        return list(map(View(mesh, manual, check).global_type, jaxpr.out_avals, out_specs))

    def update_varying(self, avals: Sequence[Any], params: dict) -> dict:
        view, jaxpr = View.of(params), params["jaxpr"]
        # Operands may vary over more axes than those that the jaxpr was traced with, for example after batching.
        program = retype_jaxpr(jaxpr, [view.shard_type(a, s) for a, s in zip(avals, params["in_specs"], strict=True)])
        if view.check:  # The cotangent of a result must vary over exactly the axes in its spec, like the result.
            outs = zip(program.out_avals, params["out_specs"], strict=True)
            program = vary_outputs(program, [a.with_varying(a.varying.union(s.axes)) for a, s in outs])
        return params | {"jaxpr": program}

    def input_output_options(self, params: dict) -> tuple:
        """The spec of each input and output."""
        return params["in_specs"], params["out_specs"]

    def derive_params(self, params: dict, program: Jaxpr, ins: Sequence[Any], outs: Sequence[Any], change: str) -> dict:
        return params | {"jaxpr": program, "in_specs": tuple(ins), "out_specs": tuple(outs)}

    def run(self, *args: Any, jaxpr: Jaxpr, **layout: Any) -> list:
        types = tuple([eager_dispatch.concrete_type(x) for x in args])
        # The executable is stored on the jaxpr, so that it is freed together with it.
        key = ("run", types, tuple(layout.values()), state.context)
        call = jaxpr.derive(key, lambda: _prepare(self, jaxpr, types, layout))
        return eager_dispatch.check_values(f"shard_map of {jaxpr.debug_name}", call(args))

    def lower(
        self, ctx: Any, *operands: Any, jaxpr: Jaxpr, mesh: Mesh | AbstractMesh, manual: frozenset, **specs: Any
    ) -> list:
        module, outer = ctx.module, ctx.module.manual
        if not is_over_program(module, NamedSharding(mesh, REPLICATED)):
            devices, count = module.device_assignment, module.num_partitions
            raise ShardingError(
                f"lowering of the shard_map at {format_source(ctx.eqn.source)}",
                expected=f"a mesh of the {count} device{'s' if count > 1 else ''} of the program"
                + (f", {device_names(devices)}" if devices is not None and mesh.size == count else ""),
                got=str(mesh),
                fix="call the function under jit with arguments on its mesh, or pass the mesh of the program to "
                "shard_map",
            )
        if module.names_requests and outer is None and not set(mesh.axis_names) - manual:
            # XLA would name the collectives for `in_specs` after the operations that compute the operands.
            given = zip(operands, ctx.avals_in, specs["in_specs"], strict=True)
            operands = tuple([constrain(ctx, x, aval, NamedSharding(mesh, spec)) for x, aval, spec in given])
        module.manual = ManualRegion(mesh, manual if outer is None else manual | outer.axes, module.device_assignment)
        # Positions along the axes of surrounding shard_maps stay readable inside.
        if outer is not None:
            module.manual.places.update(outer.places)
        try:
            # Over one device shards and arrays are the same, and XLA has nothing to partition.
            if mesh.num_parts(manual) == 1:
                return ctx.emit(jaxpr, operands)
            return _manual_computation(ctx, operands, jaxpr, mesh, manual, specs["in_specs"], specs["out_specs"])
        finally:
            module.manual = outer

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        jaxpr: Jaxpr,
        in_specs: tuple,
        out_specs: tuple,
        **layout: Any,
    ):
        view = View(**layout)
        nonzero, given = split_tangents(tangents)
        with view.scope():
            derived, has = jvp_jaxpr(jaxpr, nonzero)
        # A tangent is sharded like its primal.
        ins, outs = [*in_specs, *select_flagged(in_specs, nonzero)], [*out_specs, *select_flagged(out_specs, has)]
        out = bind_shard_map(derived, [*primals, *given], ins, outs, view)
        results = self.abstract_eval(jaxpr=jaxpr, out_specs=out_specs, **layout)
        return out[: len(results)], join_tangents(results, has, out[len(results) :])

    def linearize(self, trace: LinearTrace, primals: Sequence[Any], tangents: Sequence[Any], params: dict) -> tuple:
        view, jaxpr, ins, outs = View.of(params), params["jaxpr"], params["in_specs"], params["out_specs"]
        nonzero, given = split_tangents(tangents)
        with view.scope():
            halves = linearize_jaxpr(jaxpr, nonzero)
        count = len(jaxpr.outvars)
        specs = [view.residual_spec(v.aval) for v in halves.primal.outvars[count:]]
        out = bind_shard_map(_expand_scalars(halves.primal, count, specs), primals, ins, [*outs, *specs], view)
        computed = iter(zip(out[count:], specs, strict=True))
        # A residual that is one of the operands is read from there, with the operand's spec.
        residuals = [(*next(computed), True) if f is None else (primals[f], ins[f], False) for f in halves.forwarded]
        out_dot = record_linear(
            trace,
            _squeeze_scalars(halves.linear, [is_new and bool(spec.axes) for _, spec, is_new in residuals]),
            [*(x for x, _, _ in residuals), *given],
            [*(s for _, s, _ in residuals), *select_flagged(ins, nonzero)],
            select_flagged(outs, halves.nonzero),
            view,
        )
        return out[:count], join_tangents(self.abstract_eval(**params), halves.nonzero, out_dot)

    def divide(self, params: dict, unknown: Sequence[bool], policy: Policy) -> Division:
        key = ("division", tuple(unknown), policy, params["in_specs"], params["out_specs"])
        return params["jaxpr"].derive(key, lambda: _divide(params, unknown, policy))

    def transpose(
        self, y_bars: Sequence[Any], *operands: Any, jaxpr: Jaxpr, in_specs: tuple, out_specs: tuple, **layout: Any
    ) -> tuple:
        view = View(**layout)
        linear = [is_linear(x) for x in operands]
        nonzero = [type(c) is not Zero for c in y_bars]
        cts, outs = select_flagged(y_bars, nonzero), [s.to_ct_spec() for s in select_flagged(out_specs, nonzero)]
        with view.scope():
            derived, has = transpose_jaxpr(jaxpr, linear, nonzero)
            derived = drop_logs(derived, "shard_map")
            # Operands whose cotangent is zero get no output.
            ins = [spec.to_ct_spec() for spec in select_flagged(select_flagged(in_specs, linear), has)]
            if not view.check:
                derived = _sum_at_boundary(derived, [len(operands) - sum(linear), len(cts)], outs, ins, view)
        args, specs = select_unflagged(operands, linear), select_unflagged(in_specs, linear)
        out = bind_shard_map(derived, [*args, *cts], [*specs, *outs], ins, view)
        return tuple(fill_flagged(linear, fill_flagged(has, out)))

    def batch_axis(
        self,
        axis: AxisData,
        args: Sequence[Any],
        dims: Sequence[Any],
        *,
        jaxpr: Jaxpr,
        in_specs: tuple,
        out_specs: tuple,
        **layout: Any,
    ) -> tuple:
        view = View(**layout)
        mapped = [d is not None for d in dims]
        # A manual axis of the same name shadows the mapped axis for collectives inside.
        name = None if axis.name in view.manual else axis.name
        # Collectives over the mapped axis need all rows on each device, so the rows are not split then.
        is_used = name is not None and name in named_axes(jaxpr)
        split = () if is_used else tuple(a for a in axis.split or axis.spmd_name or () if a in view.manual)
        kept = tuple(a for a in axis.split if a not in view.manual)
        # Each device maps over the rows in its shard only.
        inner = AxisData(axis.size // view.mesh.num_parts(split), name, axis.spmd_name, kept)
        # Rows on different devices differ, so mapped values vary over the axes that split them.
        wider = [
            a.with_varying(a.varying.union(split)) if m and view.check else a for a, m in zip(jaxpr.in_avals, mapped)
        ]
        with view.scope():
            derived, out_mapped = batch_jaxpr(retype_jaxpr(jaxpr, wider), inner, mapped)
        # With all mapped dimensions in front, every spec gets its new entry at position 0.
        moved = inner.to_fronts(args, dims)
        ins, outs = (
            [_with_leading(s, split) if m else s for s, m in zip(specs, which, strict=True)]
            for specs, which in ((in_specs, mapped), (out_specs, out_mapped))
        )
        repeated = next((spec for spec in (*ins, *outs) if len(set(spec.axes)) != len(spec.axes)), None)
        if repeated is not None:
            raise ShardingError(
                f"vmap(..., spmd_axis_name={split!r}) of a shard_map",
                expected="mesh axes that are not in its specs",
                got=PartitionSpec(*repeated.partitions[1:]),
                fix="choose another mesh axis for the mapped dimension, or leave spmd_axis_name out",
            )
        out = bind_shard_map(derived, _constrain_mapped(moved, mapped, axis, view), ins, outs, view)
        return _constrain_mapped(out, out_mapped, axis, view), front_dims(out_mapped)


shard_map_p = ShardMap()


def _with_leading(spec: PartitionSpec, axes: tuple) -> PartitionSpec:
    """The spec of an array with an additional leading dimension, split over `axes`."""
    return spec.update(partitions=(axes or None, *spec.partitions))


def _expand_scalars(program: Jaxpr, count: int, specs: Sequence[PartitionSpec]) -> Jaxpr:
    """Add a dimension of size 1 to the residuals (results after the first `count`) that are scalars and not replicated.

    Residuals of the devices are concatenated along dimension 0, which scalars do not have.
    """
    scalars = [bool(s.axes) and not v.aval.ndim for v, s in zip(program.outvars[count:], specs, strict=True)]
    if not any(scalars):
        return program

    def fun(*xs: Any) -> list:
        out = run_jaxpr(program, *xs)
        rest = zip(out[count:], scalars, strict=True)
        return [*out[:count], *(reshape_p(x, shape=(1,)) if is_scalar else x for x, is_scalar in rest)]

    return program.derive(
        ("stacking", count, tuple(specs)), lambda: trace_to_jaxpr(fun, program.in_avals, program.debug_name)
    )


def _squeeze_scalars(program: Jaxpr, expanded: Sequence[bool]) -> Jaxpr:
    """The counterpart of `_expand_scalars`: remove the dimension of size 1 from inputs that are expanded scalars."""
    flags = [f and not v.aval.ndim for v, f in zip(program.invars, expanded)]
    if not any(flags):
        return program
    # `expanded` covers the residuals, which come first.
    flags += [False] * (len(program.invars) - len(flags))
    avals = [a.with_shape((1,)) if f else a for a, f in zip(program.in_avals, flags, strict=True)]

    def fun(*xs: Any) -> list:
        return run_jaxpr(program, *(reshape_p(x, shape=()) if f else x for x, f in zip(xs, flags, strict=True)))

    return program.derive(("unstacking", tuple(flags)), lambda: trace_to_jaxpr(fun, avals, program.debug_name))


def _divide(params: dict, unknown: Sequence[bool], policy: Policy) -> Division:
    """Divide the jaxpr of an equation, and expand the residuals that are scalars of single devices."""
    view, ins, outs = View.of(params), params["in_specs"], params["out_specs"]
    with view.scope():
        parts = partial_eval_inner_jaxpr(params["jaxpr"], unknown, policy)
    count = sum(parts.known_outputs)
    # A residual that is an input of the known jaxpr need not be returned from it and stored twice.
    place = dict(zip(parts.known.invars, select_unflagged(range(len(unknown)), unknown), strict=True))
    residuals = parts.known.outvars[count:]
    forwarded = [None if type(v) is Literal else place.get(v) for v in residuals]
    computed = [v for v, f in zip(residuals, forwarded, strict=True) if f is None]
    specs = tuple(view.residual_spec(v.aval) for v in computed)
    known = parts.known.replace(outvars=[*parts.known.outvars[:count], *computed])
    fresh = iter(specs)
    between = [next(fresh) if f is None else ins[f] for f in forwarded]
    # Whether `_expand_scalars` applied to the residual; operands keep their shape.
    expanded = [f is None and bool(s.axes) for s, f in zip(between, forwarded, strict=True)]
    first: dict[str, Any] = {
        "jaxpr": _expand_scalars(known, count, specs).hoist(),
        "in_specs": tuple(select_unflagged(ins, unknown)),
        "out_specs": (*select_flagged(outs, parts.known_outputs), *specs),
    }
    second = {
        "jaxpr": _squeeze_scalars(parts.unknown, expanded).hoist(),
        "in_specs": (*between, *select_flagged(ins, parts.unknown_inputs)),
        "out_specs": tuple(select_flagged(outs, parts.unknown_outputs)),
    }

    def unknown_operands(operands: Sequence[Any], saved: Sequence[Any]) -> list:
        fresh = iter(saved)
        given = (next(fresh) if f is None else operands[f] for f in forwarded)
        return [*given, *select_flagged(operands, parts.unknown_inputs)]

    return Division(
        known=params | first,
        unknown=params | second,
        known_inputs=[not u for u in unknown],
        known_outputs=parts.known_outputs,
        unknown_outputs=parts.unknown_outputs,
        residuals=[view.global_type(a, s) for a, s in zip(first["jaxpr"].out_avals[count:], specs, strict=True)],
        unknown_operands=unknown_operands,
    )


def _sum_at_boundary(program: Jaxpr, sizes: Sequence[int], cts: Sequence, outs: Sequence, view: View) -> Jaxpr:
    """Without `check`: scale cotangents that enter a transposed jaxpr, and sum cotangents that leave it.

    Types do not track which values are equal on several devices, so two conventions apply at the boundary. A result
    that is replicated over n devices is treated as the mean of their values: each device receives 1/n of its cotangent.
    An operand that is replicated over devices is used by each of them: its cotangent is the sum of theirs.

    Args:
      program: the transposed per-device jaxpr.
      sizes: number of inputs that are not cotangents, and number of cotangents.
      cts: specs of the cotangents that enter.
      outs: specs of the cotangents that leave.
      view: the mesh and its manual axes.
    """

    def fun(*xs: Any) -> list:
        # lax.div requires both operands to have the same dtype.
        given = [
            div(c, c.dtype.type(view.mesh.num_parts(view.missing(s)))) for c, s in zip(xs[sizes[0] :], cts, strict=True)
        ]
        out = run_jaxpr(program, *xs[: sizes[0]], *given)
        return [psum(x, view.missing(s)) if view.missing(s) else x for x, s in zip(out, outs, strict=True)]

    return program.derive(
        ("sharing_out", *sizes, tuple(cts), tuple(outs), view),
        lambda: trace_to_jaxpr(fun, program.in_avals, program.debug_name),
    )


def _constrain_mapped(values: Sequence[Any], mapped: Sequence[bool], axis: AxisData, view: View) -> list:
    """Constrain mapped leading dimensions to be split over the Auto axes in `spmd_axis_name`."""
    names = tuple(name for name in axis.spmd_name or () if name in view.mesh.auto_axes and name not in view.manual)
    if not names or axis.size % view.mesh.num_parts(names):
        return list(values)

    def split_leading(x: Any) -> Any:
        open_dims = [UNCONSTRAINED] * (get_aval(x).ndim - 1)
        return sharding_constraint_p(x, sharding=NamedSharding(view.mesh, PartitionSpec(names, *open_dims)))

    return [split_leading(x) if m else x for x, m in zip(values, mapped, strict=True)]


def _prepare(primitive: ShardMap, jaxpr: Jaxpr, types: tuple, layout: dict) -> compiled_program.CompiledCall:
    """Compile an eager call. The program itself reshards arguments that are on the devices of the mesh already."""
    mesh = layout["mesh"]
    if not isinstance(mesh, Mesh):
        # The arguments tell the devices of an abstract mesh.
        meshes = [t.sharding.mesh for t in types if isinstance(t.sharding, NamedSharding)]
        mesh = next((m for m in meshes if isinstance(m, Mesh) and m.abstract_mesh is mesh), mesh)
        layout = layout | {"mesh": mesh}
    if not isinstance(mesh, Mesh):
        raise ShardingError(
            "shard_map",
            expected="a mesh of devices for an eager call",
            got=str(mesh),
            fix="make one with phalanx.make_mesh; an AbstractMesh will do for arguments over a Mesh with its axes",
        )
    program = trace_to_jaxpr(
        lambda *xs: primitive(*xs, jaxpr=jaxpr, **layout), [t.aval for t in types], jaxpr.debug_name
    )
    is_there = [t.sharding is not None and mesh.size > 1 and t.sharding.device_set == mesh.device_set for t in types]
    ins = [t.sharding if i else NamedSharding(mesh, s) for i, t, s in zip(is_there, types, layout["in_specs"])]
    is_whole = layout["manual"].issuperset(mesh.axis_names)
    outs = [NamedSharding(mesh, s) if is_whole else None for s in layout["out_specs"]]
    lowered = compiled_program.lower(program, mesh.flat_devices, ins, outs, name=jaxpr.debug_name, committed=True)
    moves = compiled_program.plan_transfers(types, lowered, lambda i: f"shard_map, argument {i}")
    return compiled_program.CompiledCall(lowered.compile(), moves)


def _manual_computation(
    ctx: Any,
    operands: Sequence[Any],
    jaxpr: Jaxpr,
    mesh: Mesh | AbstractMesh,
    manual: frozenset,
    in_specs: tuple,
    out_specs: tuple,
) -> list:
    """Lower the primitive to `sdy.manual_computation`, whose region is the per-device program.

    If the partitioner keeps some mesh axes (`is_open`), the program cannot compute the position of a device along the
    manual axes from its partition number. The positions are then passed as additional operands (see
    `_position_operands`).
    """
    module = ctx.module
    ordered = fx.ordered(jaxpr.effects)
    # Some axes are not manual: XLA partitions the region over them, and dimensions must stay open for that.
    is_open = not module.manual.is_whole

    def sharding(v: Var, spec: PartitionSpec) -> Any:
        ndim = physical_aval(v.aval).ndim
        return sdy_sharding(module, NamedSharding(mesh, spec), ndim, open_dims=range(ndim) if is_open else ())

    def shardings(variables: Sequence[Var], specs: Sequence[PartitionSpec]) -> Any:
        tokens = [sdy_sharding(module, NamedSharding(mesh, REPLICATED), 0) for _ in ordered]
        return sdy.TensorShardingPerValueAttr.get([*tokens, *map(sharding, variables, specs)])

    view = View(mesh, manual, False)
    token = [ctx.type(ORDER_TOKEN)] * len(ordered)
    results = [view.global_type(a, s) for a, s in zip(map(physical_aval, jaxpr.out_avals), out_specs, strict=True)]
    places = _position_operands(ctx, mesh, manual, named_axes(jaxpr)) if is_open else []
    count, invars = len(places), [*(v for v, *_ in places), *jaxpr.invars]
    kept = _find_dropped_terms(in_specs, out_specs)
    outvars = [*jaxpr.outvars, *(jaxpr.invars[i] for i in kept)]
    results += [view.global_type(physical_aval(jaxpr.in_avals[i]), in_specs[i]) for i in kept]
    op = sdy.ManualComputationOp(
        [*token, *map(ctx.type, results)],
        [*map(ctx.token, ordered), *(x for _, x, _, _ in places), *operands],
        shardings(invars, [*(s for _, _, s, _ in places), *in_specs]),
        shardings(outvars, [*out_specs, *(in_specs[i] for i in kept)]),
        sdy.ManualAxesAttr.get([ir.StringAttr.get(str(name)) for name in view.sort_axes(manual)]),
    )
    position_type = ctx.type(ShapedArray((1,), np.dtype(np.int32)))
    block = op.body.blocks.append(*token, *([position_type] * count), *(ctx.type(a) for a in jaxpr.in_avals))
    # Constants that are emitted inside the region cannot be used after it, so it has a separate table.
    constants, tokens = ctx.constants, dict(ctx.tokens)
    ctx.constants = {}
    with ir.InsertionPoint(block):
        # Block arguments: tokens of ordered effects, positions, then the shards.
        tokens_in, places_in, arguments = split_by_sizes(block.arguments, [len(ordered), count, len(jaxpr.invars)])
        ctx.tokens.update(zip(ordered, tokens_in, strict=True))
        module.manual.places.update((name, x) for (*_, name), x in zip(places, places_in, strict=True))
        out = ctx.emit(jaxpr, arguments)
        sdy.ReturnOp([*map(ctx.token, ordered), *out, *(arguments[i] for i in kept)])
    ctx.constants, ctx.tokens = constants, tokens
    ctx.tokens.update(zip(ordered, op.results, strict=False))
    return list(op.results)[len(ordered) : len(op.results) - len(kept)]


def _find_dropped_terms(in_specs: Sequence[PartitionSpec], out_specs: Sequence[PartitionSpec]) -> list[int]:
    """The numbers of operands to return as well, without use, so that Shardy accepts a `manual_computation`.

    Shardy of jaxlib 0.12 refuses the operation if an operand is unreduced over an axis and no result is, although the
    region may sum over the axis.
    """
    stated = frozenset[Any]().union(*[spec.unreduced for spec in out_specs])
    kept = []
    for i, spec in enumerate(in_specs):
        if not spec.unreduced <= stated:
            kept.append(i)
            stated |= spec.unreduced
    return kept


def _position_operands(ctx: Any, mesh: Mesh | AbstractMesh, manual: frozenset, names: frozenset) -> list:
    """Operands from which a device reads its position along manual axes: variable, value, spec and axis name of each.

    The operand for an axis of size n is `arange(n)` split over the axis, so that each device receives its position.
    """
    kind, places = np.dtype(np.int32), ctx.module.manual.places
    found = []
    for name, size in mesh.shape.items():
        if name in manual and name in names and size > 1:
            numbers = ctx.constant(np.arange(size, dtype=kind))
            found.append((Var(ShapedArray((size,), kind)), numbers, PartitionSpec(name), name))
        # A position that a surrounding shard_map received as an operand is passed on.
        elif name in places:
            found.append((Var(ShapedArray((1,), kind)), places[name], REPLICATED, name))
    return found
