"""The `jit` primitive: a call of a program inside another, with all its rules.

Each rule derives a new program from the one it holds and binds that, so that any transformation of a compiled function
is again compiled as one. Shardings that the inner function declared travel with their inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core import dispatch
from phalanx.core.effects import Effects
from phalanx.core.jaxpr import Eqn, Jaxpr, Var, eliminate_dead_code
from phalanx.core.primitive import Primitive, Roles
from phalanx.core.roles import program_roles
from phalanx.core.tangent import Zero, conform_all, is_linear
from phalanx.core.varying import settled_call
from phalanx.lax.constraint import constrain
from phalanx.spmd.resolution import resolve_inner
from phalanx.transforms.batching import batch_program, to_front
from phalanx.transforms.forward import jvp_program
from phalanx.transforms.linear import LinearTrace, transpose_program
from phalanx.transforms.linearization import join_tangents, linearize_program, split_tangents
from phalanx.transforms.partial_eval import has_known_work, split_program


class Options(NamedTuple):
    """What the user asked of one compiled function, leaf by leaf.

    in_shardings, out_shardings: for each leaf a sharding, or None where it is left open.
    donated: for each input, whether its buffer may be reused.
    inline: whether calls inside other programs are spliced in.
    keep_unused: whether unused inputs stay parameters.
    """

    in_shardings: tuple
    out_shardings: tuple
    donated: tuple
    inline: bool = False
    keep_unused: bool = False

    def derived(self, ins: Sequence[Any], outs: Sequence[Any], donated: Sequence[bool] | None = None) -> Options:
        """The options of a program derived from this one."""
        return self._replace(
            in_shardings=tuple(ins),
            out_shardings=tuple(outs),
            donated=(False,) * len(ins) if donated is None else tuple(donated),
        )

    @classmethod
    def open(cls, program: Jaxpr) -> Options:
        """No wishes."""
        return cls((None,) * len(program.invars), (None,) * len(program.outvars), (False,) * len(program.invars))


def bind_program(program: Jaxpr, args: Sequence[Any], *, name: str, options: Options) -> list:
    """Call a program on the current trace, its constants as leading inputs."""
    if program.derive("typed", lambda: any(a.sharding is not None for a in program.in_avals)):
        args = conform_all(args, program.in_avals)
    consts = program.consts
    if consts:
        options = options._replace(
            in_shardings=(None,) * len(consts) + options.in_shardings, donated=(False,) * len(consts) + options.donated
        )
        program = program.derive("hoisted", program.hoist)
    return jit_p(*consts, *args, jaxpr=program, name=name, options=options)


class JitCall(Primitive, name="jit", multiple=True):
    """A call of a compiled function: (*inputs) -> outputs of `jaxpr`."""

    holds_program = True
    says_shardings = True
    settle = settled_call("jaxpr")

    def placing(self, *, options: Options, **_: Any) -> tuple:
        return options.in_shardings + options.out_shardings

    def result(self, *avals: Any, jaxpr: Jaxpr, name: str, options: Options) -> list:
        return jaxpr.out_avals

    def effects(self, *avals: Any, jaxpr: Jaxpr, name: str, options: Options) -> Effects:
        return jaxpr.effects

    def roles(self, *avals: Any, jaxpr: Jaxpr, name: str, options: Options) -> Roles:
        return program_roles(jaxpr)

    def run(self, *args: Any, jaxpr: Jaxpr, name: str, options: Options) -> list:
        types = tuple([dispatch.concrete_type(x) for x in args])
        call = jaxpr.derive(("run", types, options), lambda: _prepare(jaxpr, types, name, options))
        return call(args)

    def lower(self, ctx: Any, *operands: Any, jaxpr: Jaxpr, name: str, options: Options) -> list:
        ins = [constrain(ctx, x, a, s) for x, a, s in zip(operands, jaxpr.in_avals, options.in_shardings, strict=True)]
        out = ctx.call(jaxpr, ins, name)
        return [constrain(ctx, x, a, s) for x, a, s in zip(out, jaxpr.out_avals, options.out_shardings, strict=True)]

    def jvp(self, primals: Any, tangents: Any, *, jaxpr: Jaxpr, name: str, options: Options) -> tuple:
        nonzero, given = split_tangents(tangents)
        derived, has = jvp_program(jaxpr, nonzero)
        wishes = options.derived(
            options.in_shardings + _where(options.in_shardings, nonzero),
            options.out_shardings + _where(options.out_shardings, has),
        )
        out = bind_program(derived, [*primals, *given], name=f"jvp({name})", options=wishes)
        count = len(jaxpr.outvars)
        return out[:count], join_tangents(jaxpr.out_avals, has, out[count:])

    def linearize(self, trace: LinearTrace, primals: Any, tangents: Any, params: dict) -> tuple:
        jaxpr, name, options = params["jaxpr"], params["name"], params["options"]
        nonzero, given = split_tangents(tangents)
        halves = linearize_program(jaxpr, nonzero)
        count = len(jaxpr.outvars)
        primal_options = options.derived(
            options.in_shardings,
            options.out_shardings + (None,) * (len(halves.primal.outvars) - count),
            options.donated,
        )
        out = bind_program(halves.primal, primals, name=name, options=primal_options)
        returned = iter(out[count:])
        residuals = [next(returned) if f is None else primals[f] for f in halves.forwarded]
        linear_options = options.derived(
            (None,) * len(residuals) + _where(options.in_shardings, nonzero),
            _where(options.out_shardings, halves.nonzero),
        )
        out_dot = bind_program(halves.linear, [*residuals, *given], name=f"linear({name})", options=linear_options)
        return out[:count], join_tangents(jaxpr.out_avals, halves.nonzero, out_dot)

    def split(self, trace: LinearTrace, args: Any, params: dict) -> list:
        jaxpr, name, options = params["jaxpr"], params["name"], params["options"]
        unknown = [trace.is_unknown(x) for x in args]
        if all(unknown) or not has_known_work(jaxpr, unknown):
            return trace.record(self, [trace.atom(x) for x in args], tuple(jaxpr.in_avals), params)
        parts = split_program(jaxpr, unknown)
        ins, outs = options.in_shardings, options.out_shardings
        known_options = options.derived(
            _where(ins, [not u for u in unknown]), _where(outs, parts.known_outputs) + (None,) * len(parts.residuals)
        )
        known_args = [x for x, u in zip(args, unknown, strict=True) if not u]
        out_known = bind_program(parts.known, known_args, name=f"known({name})", options=known_options)
        num_known = sum(parts.known_outputs)
        residuals = out_known[num_known:]
        unknown_options = options.derived(
            (None,) * len(residuals) + _where(ins, parts.unknown_inputs), _where(outs, parts.unknown_outputs)
        )
        unknown_args = [x for x, t in zip(args, parts.unknown_inputs, strict=True) if t]
        atoms = [trace.atom(x) for x in (*residuals, *unknown_args)]
        bound = dict(jaxpr=parts.unknown, name=name, options=unknown_options)
        out_unknown = iter(trace.record(self, atoms, tuple(parts.unknown.in_avals), bound))
        out_known_iter = iter(out_known[:num_known])
        return [next(out_known_iter) if k else next(out_unknown) for k in parts.known_outputs]

    def split_eqn(self, eqn: Eqn, unknown: Sequence[bool], policy: Any) -> tuple:
        """The two halves of an equation inside a program that is split, and the residuals between them."""
        params = eqn.params
        jaxpr, options = params["jaxpr"], params["options"]
        parts = split_program(jaxpr, unknown, policy=policy)
        residuals = [Var(a) for a in parts.residuals]
        known_out = [v for v, k in zip(eqn.outvars, parts.known_outputs, strict=True) if k]
        known_in = [a for a, u in zip(eqn.invars, unknown, strict=True) if not u]
        ins, outs = options.in_shardings, options.out_shardings
        known_options = options.derived(
            _where(ins, [not u for u in unknown]), _where(outs, parts.known_outputs) + (None,) * len(residuals)
        )
        known = eqn.replace(
            invars=known_in,
            outvars=[*known_out, *residuals],
            params=params | {"jaxpr": parts.known, "options": known_options},
            effects=parts.known.effects,
        )
        unknown_options = options.derived(
            (None,) * len(residuals) + _where(ins, parts.unknown_inputs), _where(outs, parts.unknown_outputs)
        )
        unknown_in = [a for a, t in zip(eqn.invars, parts.unknown_inputs, strict=True) if t]
        unknown_out = [v for v, u in zip(eqn.outvars, parts.unknown_outputs, strict=True) if u]
        waiting = eqn.replace(
            invars=[*residuals, *unknown_in],
            outvars=unknown_out,
            params=params | {"jaxpr": parts.unknown, "options": unknown_options},
            effects=parts.unknown.effects,
        )
        return known if known.outvars or known.effects else None, waiting, residuals

    def transpose(self, y_bars: Any, *operands: Any, jaxpr: Jaxpr, name: str, options: Options) -> tuple:
        linear = [is_linear(x) for x in operands]
        nonzero = [type(c) is not Zero for c in y_bars]
        derived, has = transpose_program(jaxpr, linear, nonzero)
        given = [x for x, lin in zip(operands, linear, strict=True) if not lin]
        cts = [c for c in y_bars if type(c) is not Zero]
        ins = options.in_shardings
        wishes = options.derived(
            _where(ins, [not lin for lin in linear]) + _where(options.out_shardings, nonzero),
            _where(_where(ins, linear), has),
        )
        out = iter(bind_program(derived, [*given, *cts], name=f"transpose({name})", options=wishes))
        present = iter(has)
        return tuple((next(out) if next(present) else None) if lin else None for lin in linear)

    def batch_axis(self, axis: Any, args: Any, dims: Any, *, jaxpr: Jaxpr, name: str, options: Options) -> tuple:
        mapped = [d is not None for d in dims]
        derived, out_mapped = batch_program(jaxpr, axis, mapped)
        moved = [to_front(x, d, axis.size, axis.split) if d is not None else x for x, d in zip(args, dims, strict=True)]

        def widen(shardings: Sequence[Any], which: Sequence[bool]) -> list:
            return [
                s.with_leading_dim(axis.spmd_name) if s is not None and m else s
                for s, m in zip(shardings, which, strict=True)
            ]

        wishes = options.derived(widen(options.in_shardings, mapped), widen(options.out_shardings, out_mapped))
        out = bind_program(derived, moved, name=f"vmap({name})", options=wishes)
        return out, [0 if m else None for m in out_mapped]

    batch = None

    @staticmethod
    def dce(eqn: Eqn, used: Sequence[bool]) -> Eqn | None:
        """The call without the outputs nobody reads and the inputs that only these needed."""
        smaller, kept = eliminate_dead_code(eqn.params["jaxpr"], used)
        if not any(used) and not smaller.effects:
            return None
        options = eqn.params["options"]
        wishes = options.derived(
            _where(options.in_shardings, kept), _where(options.out_shardings, used), _where(options.donated, kept)
        )
        return eqn.replace(
            invars=[a for a, k in zip(eqn.invars, kept, strict=True) if k],
            outvars=[v for v, u in zip(eqn.outvars, used, strict=True) if u],
            params=eqn.params | {"jaxpr": smaller, "options": wishes},
            effects=smaller.effects,
        )


jit_p = JitCall()


def _where(items: Sequence[Any], flags: Sequence[bool]) -> tuple:
    return tuple(x for x, f in zip(items, flags, strict=True) if f)


def _prepare(jaxpr: Jaxpr, types: Sequence[Any], name: str, options: Options) -> dispatch.Call:
    devices, in_shardings, committed = resolve_inner(jaxpr, types, options.in_shardings, options.out_shardings, name)
    lowered = dispatch.lower(
        jaxpr,
        devices,
        in_shardings,
        options.out_shardings,
        name=name,
        committed=committed,
        donated=[i for i, d in enumerate(options.donated) if d],
        keep_unused=options.keep_unused,
    )
    return dispatch.Call(lowered.compile(), dispatch.moves(types, lowered))
