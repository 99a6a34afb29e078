"""The `jit` primitive: a call of a program inside another, with all its rules.

Each rule derives a new program from the one it holds and binds that, so that any transformation of a compiled function
is again compiled as one. Shardings that the inner function declared travel with their inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core.jaxpr import Jaxpr
from phalanx.core.tangent import conform_all
from phalanx.lax.constraint import constrain
from phalanx.runtime import dispatch
from phalanx.spmd.observation import warn_of_vain_donations
from phalanx.spmd.resolution import loosened, resolve_inner
from phalanx.transforms.batching import Axis
from phalanx.transforms.calls import DivisibleCall


class Options(NamedTuple):
    """What the user asked of one compiled function, leaf by leaf.

    in_shardings, out_shardings: for each leaf a sharding, or None where it is left open.
    donated: for each input, whether its buffer may be reused.
    inline: whether calls inside other programs are spliced in.
    keep_unused: whether unused inputs stay parameters.
    brings: whether inputs go to their shardings from wherever they are, even if the user has put them there.
    """

    in_shardings: tuple
    out_shardings: tuple
    donated: tuple
    inline: bool = False
    keep_unused: bool = False
    brings: bool = False

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
        program = program.hoist()
    return jit_p(*consts, *args, jaxpr=program, name=name, options=options)


class JitCall(DivisibleCall, name="jit"):
    """A call of a compiled function: (*inputs) -> outputs of `jaxpr`."""

    def placing(self, *, options: Options, **_: Any) -> tuple:
        return options.in_shardings + options.out_shardings

    def run(self, *args: Any, jaxpr: Jaxpr, name: str, options: Options) -> list:
        types = tuple([dispatch.concrete_type(x) for x in args])
        call = jaxpr.derive(("run", types, options), lambda: _prepare(jaxpr, types, name, options))
        return call(args)

    def lower(self, ctx: Any, *operands: Any, jaxpr: Jaxpr, name: str, options: Options) -> list:
        wishes = zip(operands, ctx.avals_in, options.in_shardings, strict=True)
        out = ctx.call(jaxpr, [constrain(ctx, x, aval, s) for x, aval, s in wishes], name)
        wishes = zip(out, ctx.avals_out, options.out_shardings, strict=True)
        return [constrain(ctx, x, aval, s) for x, aval, s in wishes]

    def wishes(self, params: dict) -> tuple:
        """For each leaf its sharding and whether it is donated."""
        options = params["options"]
        ins = zip(options.in_shardings, options.donated, strict=True)
        return list(ins), [(s, False) for s in options.out_shardings]

    def widened(self, wish: Any, axis: Axis) -> Any:
        sharding, donated = wish
        return sharding and sharding.with_dim(0, axis.spmd_name), donated

    def kept(self, wish: Any) -> Any:
        return wish and (wish[0], False)

    def derived(self, params: dict, program: Jaxpr, ins: Sequence[Any], outs: Sequence[Any], change: str) -> dict:
        name, same_buffers = params["name"], change in ("primal", "smaller", "vmap")
        options = params["options"]._replace(
            in_shardings=tuple([w and w[0] for w in ins]),
            out_shardings=tuple([w and w[0] for w in outs]),
            donated=tuple([bool(w and w[1] and same_buffers) for w in ins]),
        )
        is_named = change in ("primal", "smaller", "unknown")
        return {"jaxpr": program, "name": name if is_named else f"{change}({name})", "options": options}

    def call(self, args: Sequence[Any], params: dict) -> list:
        return bind_program(params["jaxpr"], args, name=params["name"], options=params["options"])


jit_p = JitCall()


def _prepare(jaxpr: Jaxpr, types: Sequence[Any], name: str, options: Options) -> dispatch.Call:
    declared = options.in_shardings
    held = loosened(types, declared) if options.brings else types
    devices, in_shardings, committed = resolve_inner(jaxpr, held, declared, options.out_shardings, name)
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
    program = lowered.compile()
    warn_of_vain_donations(name, lambda i: f"input {i}", jaxpr.in_avals, program)
    return dispatch.Call(program, dispatch.moves(types, lowered))
