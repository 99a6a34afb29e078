"""The `shard_map` primitive: a program that every device of a mesh runs on its own pieces of the arrays.

Specs say how an array falls into pieces. Each rule derives a new per-device program from the one it holds and binds
that, with specs for what came in addition: a residual stands along the axes over which it varies. Where `check` is set,
types inside keep account of the axes that values vary over (see `core.varying`), so that cotangents are summed where a
value was shared; where it is not, every device differentiates for itself, as the members of a `vmap` do, and what the
specs leave out is summed at the boundary. `spmd.shard_map` binds it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import effects as fx
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state, state_extra
from phalanx.core.errors import ShardingError
from phalanx.core.explicit import with_axes
from phalanx.core.flags import chosen, filled, merged, others
from phalanx.core.jaxpr import Eqn, Jaxpr, Literal, Var, named_axes, run_program
from phalanx.core.primitive import Roles
from phalanx.core.tangent import Zero, is_linear, join_tangents, split_tangents
from phalanx.core.trace import stage
from phalanx.core.varying import returning, retyped
from phalanx.engine.mlir import ir, sdy
from phalanx.lax.arithmetic import div
from phalanx.lax.bodies import groups_of
from phalanx.lax.collectives import psum
from phalanx.lax.constraint import sharding_constraint_p
from phalanx.lax.replicas import Manual
from phalanx.lax.shape import reshape_p
from phalanx.runtime import dispatch
from phalanx.runtime.lowering import ORDER_TOKEN, physical_aval
from phalanx.runtime.shardy import sdy_sharding
from phalanx.sharding import UNCONSTRAINED, AxisType, Mesh, NamedSharding, PartitionSpec
from phalanx.spmd.manual_roles import per_device_roles
from phalanx.transforms.batching import Axis, batch_program, front_dims
from phalanx.transforms.calls import DivisibleCall
from phalanx.transforms.forward import jvp_program
from phalanx.transforms.linear import LinearTrace, transpose_program
from phalanx.transforms.linearization import linearize_program
from phalanx.transforms.partial_eval import Split, everything_saveable, has_known_work, split_held

WHOLE = PartitionSpec()


class View(NamedTuple):
    """The per-device view of a mesh.

    mesh: the mesh.
    manual: the axes along which each device runs by itself; the partitioner keeps the others.
    check: whether types keep account of what varies.
    """

    mesh: Any
    manual: frozenset
    check: bool

    @classmethod
    def of(cls, params: dict) -> View:
        """That of an equation's parameters."""
        return cls(params["mesh"], params["manual"], params["check"])

    def scope(self) -> Any:
        """A block in which collectives know the manual axes, and constraints the mesh."""
        outer = [axis for axis in state.context.axes or () if axis[0] not in self.manual]
        own = [(name, size, self.check) for name, size in self.mesh.shape.items() if name in self.manual]
        return state_extra(mesh=self.inner_mesh, axes=(*outer, *own))

    @property
    def inner_mesh(self) -> Any:
        """The mesh as it is inside."""
        return self.mesh.with_axis_types(dict.fromkeys(self.manual, AxisType.Manual))

    def parts(self, axes: Any) -> int:
        """Into how many pieces these axes split a dimension."""
        return self.mesh.num_parts(axes)

    def cuts(self, spec: PartitionSpec, ndim: int) -> list[tuple]:
        """For each dimension of an array the axes of several devices over which it is in pieces."""
        return [tuple([a for a in axes if self.mesh.shape[a] > 1]) for axes in spec.padded(ndim)]

    def entering(self, aval: ShapedArray, spec: PartitionSpec) -> ShapedArray:
        """The type of one device's piece."""
        shape = tuple(n // self.parts(axes) for n, axes in zip(aval.shape, spec.padded(aval.ndim), strict=True))
        piece = aval.with_shape(shape)
        mesh = self.inner_mesh.abstract_mesh
        if mesh.explicit_axes and aval.sharding is not None:
            kept = [tuple(a for a in axes if a not in self.manual) for axes in aval.sharding.spec.dims]
            piece = with_axes(piece, mesh, kept)
        return piece.with_varying(piece.varying.union(spec.axes)) if self.check else piece

    def leaving(self, piece: ShapedArray, spec: PartitionSpec) -> ShapedArray:
        """The type of the array of which each device has a piece."""
        shape = tuple(n * self.parts(axes) for n, axes in zip(piece.shape, spec.padded(piece.ndim), strict=True))
        whole = piece.with_shape(shape).with_varying(piece.varying - self.manual)
        mesh = self.mesh.abstract_mesh
        if not mesh.explicit_axes:
            return whole
        inside = piece.sharding.spec.dims if piece.sharding is not None else ((),) * piece.ndim
        split = zip(spec.padded(piece.ndim), inside, strict=True)
        return with_axes(whole, mesh, [tuple(a for a in (*o, *i) if a in mesh.explicit_axes) for o, i in split])

    def spec_of_residual(self, piece: ShapedArray) -> PartitionSpec:
        """How a value inside leaves for a later part of the program: whole if devices share it, else piece by piece.

        Pieces stand along the first dimension; a scalar gets one for that (see `_stacking`).
        """
        axes = self.ordered(piece.varying & self.manual if self.check else self.manual)
        return PartitionSpec(axes) if axes else WHOLE

    def missing(self, spec: PartitionSpec) -> tuple:
        """The manual axes that a spec does not name."""
        return self.ordered(self.manual.difference(spec.axes))

    def ordered(self, axes: Collection) -> tuple:
        """Axes in the order of the mesh."""
        return tuple(name for name in self.mesh.axis_names if name in axes)


def bind(program: Jaxpr, args: Sequence[Any], ins: Sequence[Any], outs: Sequence[Any], view: View) -> list:
    """Run a per-device program on arrays, its constants in front, the same for all devices."""
    ins = (*(WHOLE for _ in program.consts), *ins)
    hoisted = program.hoist()
    return shard_map_p(*program.consts, *args, jaxpr=hoisted, in_specs=ins, out_specs=tuple(outs), **view._asdict())


def record_linear(
    trace: LinearTrace, program: Jaxpr, args: Sequence[Any], ins: Sequence[Any], outs: Sequence[Any], view: View
) -> list:
    """`bind` for a program that is linear as a whole, so that nothing in it is looked for that could run at once."""
    if not any(map(trace.is_unknown, args)):
        return bind(program, args, ins, outs, view)
    ins = (*(WHOLE for _ in program.consts), *ins)
    params = {"jaxpr": program.hoist(), "in_specs": ins, "out_specs": tuple(outs)}
    return trace.record(shard_map_p, [*program.consts, *args], params | view._asdict())


class ShardMap(DivisibleCall, name="shard_map"):
    """A program run by each device: (*arrays) -> arrays whose pieces `jaxpr` computes from pieces."""

    def placing(self, *, mesh: Any, **_: Any) -> tuple:
        return (NamedSharding(mesh, WHOLE),)

    def reads(self, *, mesh: Any, in_specs: tuple, **_: Any) -> list:
        return [NamedSharding(mesh, spec) for spec in in_specs]

    def roles(self, *avals: Any, jaxpr: Jaxpr, in_specs: tuple, out_specs: tuple, **layout: Any) -> Roles:
        view = View(**layout)
        ins = [view.cuts(spec, a.ndim) for spec, a in zip(in_specs, jaxpr.in_avals, strict=True)]
        outs = [view.cuts(spec, a.ndim) for spec, a in zip(out_specs, jaxpr.out_avals, strict=True)]
        roles = per_device_roles(jaxpr, ins, outs, is_tracked=view.check)
        for name in view.manual:
            roles.axes.pop(name, None)
        return roles

    def result(self, *avals: Any, jaxpr: Jaxpr, out_specs: tuple, mesh: Any, manual: frozenset, check: bool, **_: Any):
        view = View(mesh, manual, check)
        return [view.leaving(a, s) for a, s in zip(jaxpr.out_avals, out_specs, strict=True)]

    def settle(self, avals: Sequence[Any], params: dict) -> dict:
        view, jaxpr = View.of(params), params["jaxpr"]
        program = retyped(jaxpr, [view.entering(a, s) for a, s in zip(avals, params["in_specs"], strict=True)])
        if view.check:  # Each result varies over just the axes that its spec joins, and so does its cotangent.
            outs = zip(program.out_avals, params["out_specs"], strict=True)
            program = returning(program, [a.with_varying(a.varying.union(s.axes)) for a, s in outs])
        return params | {"jaxpr": program}

    def wishes(self, params: dict) -> tuple:
        """For each input and output its spec."""
        return params["in_specs"], params["out_specs"]

    def derived(self, params: dict, program: Jaxpr, ins: Sequence[Any], outs: Sequence[Any], change: str) -> dict:
        return params | {"jaxpr": program, "in_specs": tuple(ins), "out_specs": tuple(outs)}

    def run(self, *args: Any, jaxpr: Jaxpr, **layout: Any) -> list:
        types = tuple([dispatch.concrete_type(x) for x in args])
        key = ("run", types, tuple(layout.values()), state.context)
        return jaxpr.derive(key, lambda: _prepare(self, jaxpr, types, layout))(args)

    def lower(self, ctx: Any, *operands: Any, jaxpr: Jaxpr, mesh: Any, manual: frozenset, **specs: Any) -> list:
        module, outer = ctx.module, ctx.module.manual
        if mesh.size != module.num_partitions:
            raise _other_mesh(mesh, module.num_partitions)
        axes = manual | outer.axes if outer is not None else manual
        module.manual = Manual(mesh, axes, module.device_assignment)
        if outer is not None:
            module.manual.places.update(outer.places)
        try:
            if View(mesh, manual, False).parts(manual) == 1:
                return ctx.emit(jaxpr, operands)
            return _manual_computation(ctx, operands, jaxpr, mesh, manual, specs["in_specs"], specs["out_specs"])
        finally:
            module.manual = outer

    def jvp(self, primals: Any, tangents: Any, *, jaxpr: Jaxpr, in_specs: tuple, out_specs: tuple, **layout: Any):
        view = View(**layout)
        nonzero, given = split_tangents(tangents)
        with view.scope():
            derived, has = jvp_program(jaxpr, nonzero)
        ins, outs = [*in_specs, *chosen(in_specs, nonzero)], [*out_specs, *chosen(out_specs, has)]
        out = bind(derived, [*primals, *given], ins, outs, view)
        count = len(jaxpr.outvars)
        return out[:count], join_tangents(self._results(jaxpr, out_specs, view), has, out[count:])

    def _results(self, jaxpr: Jaxpr, out_specs: tuple, view: View) -> list:
        return self.result(jaxpr=jaxpr, out_specs=out_specs, **view._asdict())

    def linearize(self, trace: LinearTrace, primals: Any, tangents: Any, params: dict) -> tuple:
        view, jaxpr, ins, outs = View.of(params), params["jaxpr"], params["in_specs"], params["out_specs"]
        nonzero, given = split_tangents(tangents)
        with view.scope():
            halves = linearize_program(jaxpr, nonzero)
        count = len(jaxpr.outvars)
        specs = [view.spec_of_residual(v.aval) for v in halves.primal.outvars[count:]]
        out = bind(_stacking(halves.primal, count, specs), primals, ins, [*outs, *specs], view)
        computed = iter(zip(out[count:], specs, strict=True))
        # A residual that is an operand stays one, with the operand's spec.
        residuals = [(*next(computed), True) if f is None else (primals[f], ins[f], False) for f in halves.forwarded]
        linear = _unstacking(halves.linear, [is_new and bool(spec.axes) for _, spec, is_new in residuals])
        out_dot = record_linear(
            trace,
            linear,
            [*(x for x, _, _ in residuals), *given],
            [*(s for _, s, _ in residuals), *chosen(ins, nonzero)],
            chosen(outs, halves.nonzero),
            view,
        )
        return out[:count], join_tangents(self._results(jaxpr, outs, view), halves.nonzero, out_dot)

    def split(self, trace: LinearTrace, args: Any, params: dict) -> list:
        unknown = [trace.is_unknown(x) for x in args]
        if all(unknown) or not has_known_work(params["jaxpr"], unknown):
            return trace.record(self, args, params)
        halves = _split(params, unknown, everything_saveable)
        ready = self(*others(args, unknown), **halves.known)
        count = sum(halves.parts.known_outputs)
        later = trace.record(self, halves.waiting_args(args, ready[count:]), halves.waiting)
        return merged(halves.parts.known_outputs, ready[:count], later)

    def split_eqn(self, eqn: Eqn, unknown: Sequence[bool], policy: Any) -> tuple:
        """The two halves of an equation inside a program that is split, and the residuals between them."""
        halves = _split(eqn.params, unknown, policy)
        parts, known, view = halves.parts, halves.known, View.of(eqn.params)
        count = sum(parts.known_outputs)
        pieces = zip(known["jaxpr"].out_avals[count:], known["out_specs"][count:], strict=True)
        residuals = [Var(view.leaving(a, s)) for a, s in pieces]
        first = eqn.replace(
            invars=others(eqn.invars, unknown),
            outvars=[*chosen(eqn.outvars, parts.known_outputs), *residuals],
            params=known,
            effects=parts.known.effects,
        )
        second = eqn.replace(
            invars=halves.waiting_args(eqn.invars, residuals),
            outvars=chosen(eqn.outvars, parts.unknown_outputs),
            params=halves.waiting,
            effects=parts.unknown.effects,
        )
        return first if first.outvars or first.effects else None, second, residuals

    def transpose(
        self, y_bars: Any, *operands: Any, jaxpr: Jaxpr, in_specs: tuple, out_specs: tuple, **layout: Any
    ) -> tuple:
        view = View(**layout)
        linear = [is_linear(x) for x in operands]
        nonzero = [type(c) is not Zero for c in y_bars]
        cts, outs, ins = chosen(y_bars, nonzero), chosen(out_specs, nonzero), chosen(in_specs, linear)
        with view.scope():
            derived, has = transpose_program(jaxpr, linear, nonzero)
            ins = chosen(ins, has)
            if not view.check:
                derived = _sharing_out(derived, [len(operands) - sum(linear), len(cts)], outs, ins, view)
        out = bind(derived, [*others(operands, linear), *cts], [*others(in_specs, linear), *outs], ins, view)
        return tuple(filled(linear, filled(has, out)))

    def batch_axis(
        self, axis: Axis, args: Any, dims: Any, *, jaxpr: Jaxpr, in_specs: tuple, out_specs: tuple, **layout: Any
    ) -> tuple:
        view = View(**layout)
        mapped = [d is not None for d in dims]
        name = None if axis.name in view.manual else axis.name
        split = _split_by(axis, view, name is not None and name in named_axes(jaxpr))
        kept = tuple(a for a in axis.split if a not in view.manual)
        inner = Axis(axis.size // view.parts(split), name, axis.spmd_name, kept)
        wider = [
            a.with_varying(a.varying.union(split)) if m and view.check else a for a, m in zip(jaxpr.in_avals, mapped)
        ]
        with view.scope():
            derived, out_mapped = batch_program(retyped(jaxpr, wider), inner, mapped)
        moved = inner.to_fronts(args, dims)
        ins, outs = (
            [PartitionSpec(split or None, *s) if m else s for s, m in zip(specs, which, strict=True)]
            for specs, which in ((in_specs, mapped), (out_specs, out_mapped))
        )
        for spec in (*ins, *outs):
            _check_split(spec, split)
        moved = _pinned(moved, mapped, axis, view)
        return _pinned(bind(derived, moved, ins, outs, view), out_mapped, axis, view), front_dims(out_mapped)


shard_map_p = ShardMap()


def _stacking(program: Jaxpr, count: int, specs: Sequence[PartitionSpec]) -> Jaxpr:
    """A program whose scalar results after the first `count` have a dimension of size 1 where their spec splits it."""
    scalars = [bool(s.axes) and not v.aval.ndim for v, s in zip(program.outvars[count:], specs, strict=True)]
    if not any(scalars):
        return program

    def fun(*xs: Any) -> list:
        out = run_program(program, *xs)
        rest = [reshape_p(x, shape=(1,)) if is_scalar else x for x, is_scalar in zip(out[count:], scalars, strict=True)]
        return [*out[:count], *rest]

    key = ("stacking", count, tuple(specs))
    return program.derive(key, lambda: stage(fun, program.in_avals, program.debug_name))


def _unstacking(program: Jaxpr, stacked: Sequence[bool]) -> Jaxpr:
    """A program that takes scalars among its first inputs with the dimension of size 1 that they were given."""
    flags = [f and not v.aval.ndim for v, f in zip(program.invars, stacked)]
    if not any(flags):
        return program
    flags += [False] * (len(program.invars) - len(flags))
    avals = [a.with_shape((1,)) if f else a for a, f in zip(program.in_avals, flags, strict=True)]

    def fun(*xs: Any) -> list:
        plain = [reshape_p(x, shape=()) if f else x for x, f in zip(xs, flags, strict=True)]
        return run_program(program, *plain)

    return program.derive(("unstacking", tuple(flags)), lambda: stage(fun, avals, program.debug_name))


class _Halves(NamedTuple):
    """A per-device program in two parts.

    parts: the programs.
    known, waiting: the parameters with which they are bound.
    forwarded: for each residual, the number of the operand that it is, or None where the known part returns it.
    """

    parts: Split
    known: dict
    waiting: dict
    forwarded: list

    def waiting_args(self, args: Sequence[Any], computed: Sequence[Any]) -> list:
        """The operands of the waiting part: residuals, then the operands that it reads."""
        fresh = iter(computed)
        residuals = [next(fresh) if f is None else args[f] for f in self.forwarded]
        return [*residuals, *chosen(args, self.parts.unknown_inputs)]


def _split(params: dict, unknown: Sequence[bool], policy: Any) -> _Halves:
    """Split an equation by which operands are unknown."""
    key = ("halves", tuple(unknown), policy, params["in_specs"], params["out_specs"])
    return params["jaxpr"].derive(key, lambda: _make_halves(params, unknown, policy))


def _make_halves(params: dict, unknown: Sequence[bool], policy: Any) -> _Halves:
    view, ins, outs = View.of(params), params["in_specs"], params["out_specs"]
    with view.scope():
        parts = split_held(params["jaxpr"], unknown, policy)
    count = sum(parts.known_outputs)
    numbers = [i for i, u in enumerate(unknown) if not u]
    place = dict(zip(parts.known.invars, numbers, strict=True))
    residuals = parts.known.outvars[count:]
    forwarded = [None if type(v) is Literal else place.get(v) for v in residuals]
    computed = [v for v, f in zip(residuals, forwarded, strict=True) if f is None]
    specs = tuple(view.spec_of_residual(v.aval) for v in computed)
    known = parts.known.replace(outvars=[*parts.known.outvars[:count], *computed])
    fresh = iter(specs)
    all_specs = [(next(fresh), True) if f is None else (ins[f], False) for f in forwarded]
    stacked = [is_new and bool(s.axes) for s, is_new in all_specs]
    between = tuple([spec for spec, _ in all_specs])
    first = {
        "jaxpr": _stacking(known, count, specs).hoist(),
        "in_specs": tuple(others(ins, unknown)),
        "out_specs": (*chosen(outs, parts.known_outputs), *specs),
    }
    second = {
        "jaxpr": _unstacking(parts.unknown, stacked).hoist(),
        "in_specs": (*between, *chosen(ins, parts.unknown_inputs)),
        "out_specs": tuple(chosen(outs, parts.unknown_outputs)),
    }
    return _Halves(parts, params | first, params | second, forwarded)


def _sharing_out(program: Jaxpr, sizes: Sequence[int], cts: Sequence, outs: Sequence, view: View) -> Jaxpr:
    """A transposed program whose shared cotangents are dealt out to the devices, and summed where they leave.

    Where types keep no account, a result that all devices share is the mean of what they have, and an operand that they
    share is used by each of them.
    """

    def fun(*xs: Any) -> list:
        given = [div(c, c.dtype.type(view.parts(view.missing(s)))) for c, s in zip(xs[sizes[0] :], cts, strict=True)]
        out = run_program(program, *xs[: sizes[0]], *given)
        return [psum(x, view.missing(s)) if view.missing(s) else x for x, s in zip(out, outs, strict=True)]

    key = ("sharing_out", *sizes, tuple(cts), tuple(outs), view)
    return program.derive(key, lambda: stage(fun, program.in_avals, program.debug_name))


def _split_by(axis: Axis, view: View, is_used: bool) -> tuple:
    """The manual axes that take a mapped dimension; none where collectives want all its members on each device."""
    return () if is_used else tuple(name for name in _spmd_names(axis) if name in view.manual)


def _spmd_names(axis: Axis) -> tuple:
    names = axis.spmd_name or ()
    return tuple(names) if isinstance(names, tuple | list) else (names,)


def _pinned(values: Sequence[Any], mapped: Sequence[bool], axis: Axis, view: View) -> list:
    """Values whose leading dimension, where it is mapped, lies over the axes of the partitioner that are to take it."""
    kept = view.mesh.auto_axes
    names = tuple(name for name in _spmd_names(axis) if name in kept and name not in view.manual)
    if not names or axis.size % view.parts(names):
        return list(values)

    def pin(x: Any) -> Any:
        open_dims = [UNCONSTRAINED] * (aval_of(x).ndim - 1)
        return sharding_constraint_p(x, sharding=NamedSharding(view.mesh, PartitionSpec(names, *open_dims)))

    return [pin(x) if m else x for x, m in zip(values, mapped, strict=True)]


def _check_split(spec: PartitionSpec, split: tuple) -> None:
    if len(set(spec.axes)) != len(spec.axes):
        raise ShardingError(
            f"vmap(..., spmd_axis_name={split!r}) of a shard_map",
            expected="mesh axes that its specs do not name",
            got=PartitionSpec(*spec[1:]),
            mend="split the mapped dimension along another axis, or leave spmd_axis_name out",
        )


def _prepare(primitive: ShardMap, jaxpr: Jaxpr, types: tuple, layout: dict) -> dispatch.Call:
    """Compile one call on concrete arrays, each staying where it is if that is on the devices of the mesh."""
    mesh = layout["mesh"]
    if not isinstance(mesh, Mesh):
        raise ShardingError(
            "shard_map",
            expected="a mesh of devices to run on",
            got=mesh,
            mend="make one with phalanx.make_mesh; an AbstractMesh will do under jit, with arguments on as many "
            "devices",
        )
    program = stage(lambda *xs: primitive(*xs, jaxpr=jaxpr, **layout), [t.aval for t in types], jaxpr.debug_name)
    ins = []
    for t, spec in zip(types, layout["in_specs"], strict=True):
        held = t.sharding
        is_there = held is not None and len(mesh.flat_devices) > 1 and held.device_set == mesh.device_set
        ins.append(held if is_there else NamedSharding(mesh, spec))
    is_whole = layout["manual"].issuperset(mesh.axis_names)
    outs = [NamedSharding(mesh, s) if is_whole else None for s in layout["out_specs"]]
    lowered = dispatch.lower(program, mesh.flat_devices, ins, outs, name=jaxpr.debug_name, committed=True)
    return dispatch.Call(lowered.compile(), dispatch.moves(types, lowered))


def _manual_computation(
    ctx: Any, operands: Sequence[Any], jaxpr: Jaxpr, mesh: Any, manual: frozenset, in_specs: tuple, out_specs: tuple
) -> list:
    """Emit a per-device program in Shardy's form."""
    module = ctx.module
    ordered = fx.ordered(jaxpr.effects)
    is_open = not module.manual.is_whole

    def shardings(variables: Sequence[Var], specs: Sequence[PartitionSpec]) -> Any:
        tokens = [sdy_sharding(module, NamedSharding(mesh, WHOLE), 0) for _ in ordered]
        each = []
        for v, spec in zip(variables, specs, strict=True):
            ndim = physical_aval(v.aval).ndim
            each.append(sdy_sharding(module, NamedSharding(mesh, spec), ndim, open_dims=range(ndim) if is_open else ()))
        return sdy.TensorShardingPerValueAttr.get([*tokens, *each])

    view = View(mesh, manual, False)
    token = [ctx.type(ORDER_TOKEN)] * len(ordered)
    results = [view.leaving(a, s) for a, s in zip(map(physical_aval, jaxpr.out_avals), out_specs, strict=True)]
    places = _places(ctx, mesh, manual, named_axes(jaxpr)) if is_open else []
    count, invars = len(places), [*(v for v, *_ in places), *jaxpr.invars]
    op = sdy.ManualComputationOp(
        [*token, *map(ctx.type, results)],
        [*map(ctx.token, ordered), *(x for _, x, _, _ in places), *operands],
        shardings(invars, [*(s for _, _, s, _ in places), *in_specs]),
        shardings(jaxpr.outvars, out_specs),
        sdy.ManualAxesAttr.get([ir.StringAttr.get(str(name)) for name in view.ordered(manual)]),
    )
    piece = ctx.type(ShapedArray((1,), np.dtype(np.int32)))
    block = op.body.blocks.append(*token, *([piece] * count), *(ctx.type(a) for a in jaxpr.in_avals))
    constants, tokens = ctx.constants, dict(ctx.tokens)
    ctx.constants = {}
    with ir.InsertionPoint(block):
        tokens_in, places_in, arguments = groups_of(block.arguments, [len(ordered), count, len(jaxpr.invars)])
        ctx.tokens.update(zip(ordered, tokens_in, strict=True))
        module.manual.places.update((name, x) for (*_, name), x in zip(places, places_in, strict=True))
        out = ctx.emit(jaxpr, arguments)
        sdy.ReturnOp([*map(ctx.token, ordered), *out])
    ctx.constants, ctx.tokens = constants, tokens
    ctx.tokens.update(zip(ordered, op.results, strict=False))
    return list(op.results)[len(ordered) :]


def _places(ctx: Any, mesh: Any, manual: frozenset, names: frozenset) -> list:
    """What tells a device its place along manual axes: variable, value, spec and axis of each operand for that."""
    kind = np.dtype(np.int32)
    found = []
    for name in mesh.axis_names:
        size = mesh.shape[name]
        if name in manual and name in names and size > 1:
            numbers = ctx.constant(np.arange(size, dtype=kind))
            found.append((Var(ShapedArray((size,), kind)), numbers, PartitionSpec(name), name))
        elif name in ctx.module.manual.places:
            found.append((Var(ShapedArray((1,), kind)), ctx.module.manual.places[name], WHOLE, name))
    return found


def _other_mesh(mesh: Any, count: int) -> ShardingError:
    return ShardingError(
        "lowering of a shard_map",
        expected=f"a mesh of the {count} device{'s' if count > 1 else ''} that the program runs on",
        got=mesh,
        mend="call it under jit with arguments on the mesh, or give the mesh of the program",
    )
