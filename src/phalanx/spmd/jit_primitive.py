"""The `jit` primitive: a call of a compiled function inside another program.

Each rule derives a new jaxpr from the called one and binds the primitive again with the result, so that every
transformation of a compiled function is itself one compiled function. Shardings that the inner function declares stay
attached to their inputs and outputs through all transformations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core import Jaxpr, Slot, conform_all, state
from phalanx.lax.optimization_barrier import copy_p
from phalanx.lax.sharding_constraint import check_devices, constrain
from phalanx.runtime import compiled_program, eager_dispatch
from phalanx.sharding import Sharding
from phalanx.spmd.auto_resolution import refuse_auto
from phalanx.spmd.jit_diagnostics import COMPILING, LOWERING, log_stage, warn_unused_donations
from phalanx.spmd.sharding_resolution import prefer_declared_shardings, resolve_shardings
from phalanx.transforms import AxisData, PartialEvalCall


class Options(NamedTuple):
    """The options of one compiled function, broadcast to the leaves of its inputs and outputs.

    in_shardings, out_shardings: the declared sharding of each leaf, or None.
    donated: for each input, whether its buffer may be reused.
    inline: whether to inline calls of the function into other programs.
    keep_unused: whether unused inputs remain parameters.
    moves_committed: whether committed arguments are moved to the declared shardings instead of being refused.
    communication: the collectives that a program of this function alone may have; None for the configured ones.
    layouts: the declared memory layouts of the inputs and of the outputs, for a program of this function alone.
    """

    in_shardings: tuple
    out_shardings: tuple
    donated: tuple
    inline: bool = False
    keep_unused: bool = False
    moves_committed: bool = False
    communication: str | None = None
    layouts: tuple[tuple, tuple] | None = None


def bind_program(program: Jaxpr, args: Sequence[Any], *, name: str, options: Options) -> list:
    """Bind the `jit` primitive on the current trace. Constants of the jaxpr become leading inputs."""
    refuse_auto((*options.in_shardings, *options.out_shardings), f"jit of {name}")
    # Over Explicit axes an operand may have lost its sharding in a rule; give it the type that the jaxpr expects.
    if program.derive("typed", lambda: any(a.type_sharding is not None for a in program.in_avals)):
        args = conform_all(args, program.in_avals)
    consts = program.consts
    if consts:
        options = options._replace(
            in_shardings=(None,) * len(consts) + options.in_shardings, donated=(False,) * len(consts) + options.donated
        )
        # Constants become inputs, which keeps large arrays out of the lowered module.
        program = program.hoist()
    return jit_p(*consts, *args, jaxpr=program, name=name, options=options)


class JitCall(PartialEvalCall, name="jit"):
    """A call of a compiled function: (*inputs) -> outputs of `jaxpr`."""

    def target_shardings(self, *, options: Options, **_: Any) -> tuple:
        return options.in_shardings + options.out_shardings

    names_like_operands = True

    def printed_params(self, params: dict) -> dict:
        """The name, the jaxpr, and the options in which it differs from a plain `jit`."""
        options = params["options"]._asdict()
        chosen = {name: value for name, value in options.items() if (any(value) if type(value) is tuple else value)}
        return super().printed_params({"name": params["name"], "jaxpr": params["jaxpr"], **chosen})

    def scope_name(self, params: dict) -> str:
        return f"jit({params['name']})"

    def run(self, *args: Any, jaxpr: Jaxpr, name: str, options: Options) -> list:
        types = tuple([eager_dispatch.concrete_type(x) for x in args])
        call = jaxpr.derive(("run", types, options), lambda: _prepare(jaxpr, types, name, options))
        return eager_dispatch.check_values(name, call(args))

    def lower(self, ctx: Any, *operands: Any, jaxpr: Jaxpr, name: str, options: Options) -> list:
        for option in ("in_shardings", "out_shardings"):
            for sharding in getattr(options, option):
                check_devices(ctx, sharding, f"jit of {name}, {option}")
        inputs = zip(operands, ctx.avals_in, options.in_shardings, strict=True)
        out = ctx.call(jaxpr, [constrain(ctx, *each) for each in inputs], name)
        return [constrain(ctx, *each) for each in zip(out, ctx.avals_out, options.out_shardings, strict=True)]

    def input_output_options(self, params: dict) -> tuple:
        """For each input and output, a pair of its declared sharding and whether it is donated."""
        options = params["options"]
        return list(zip(options.in_shardings, options.donated, strict=True)), [
            (s, False) for s in options.out_shardings
        ]

    def read_refs(
        self, args: Sequence[Any], slots: Sequence[Slot | None], written: Sequence[Slot], ins: Sequence[Any]
    ) -> tuple[list, Sequence[Any], Sequence[Any]]:
        """Eagerly, a reference that is written gives its buffer to the program, and keeps its sharding."""
        if state.trace is not None:
            return super().read_refs(args, slots, written, ins)
        values, options, shardings = list(args), list(ins), {}
        for i, (ref, slot) in enumerate(zip(args, slots, strict=True)):
            if slot is None:
                continue
            values[i] = value = ref.value
            if slot in written:
                values[i] = copy_p(value) if ref.is_shared else value
                shardings[slot] = value.sharding if value.committed else None
                options[i] = ((ins[i] or (None,))[0], True)
        return values, options, [(shardings[n], False) for n in written]

    def batch_option(self, option: tuple[Sharding | None, bool], axis: AxisData) -> tuple[Sharding | None, bool]:
        sharding, donated = option
        return sharding and sharding.with_dim(0, axis.spmd_name), donated

    def residual_option(self, option: tuple[Sharding | None, bool] | None) -> tuple[Sharding | None, bool] | None:
        # The residual is read again later, so its buffer must not be reused.
        return option and (option[0], False)

    def derive_params(self, params: dict, program: Jaxpr, ins: Sequence[Any], outs: Sequence[Any], change: str) -> dict:
        keeps_buffers = change in ("primal", "smaller", "vmap", "discharge")
        options = params["options"]._replace(
            in_shardings=tuple([option and option[0] for option in ins]),
            out_shardings=tuple([option and option[0] for option in outs]),
            donated=tuple([bool(option and option[1] and keeps_buffers) for option in ins]),
        )
        return params | {"jaxpr": program, "options": options}

    def bind_call(self, args: Sequence[Any], params: dict) -> list:
        return bind_program(params["jaxpr"], args, name=params["name"], options=params["options"])


jit_p = JitCall()


def _prepare(jaxpr: Jaxpr, types: Sequence[Any], name: str, options: Options) -> compiled_program.CompiledCall:
    """Compile an eager call for arguments of the given types."""
    declared = options.in_shardings
    devices, in_shardings, committed = resolve_shardings(
        jaxpr,
        prefer_declared_shardings(types, declared) if options.moves_committed else types,
        declared,
        options.out_shardings,
        lambda i: f"{name}, input {i}",
        lambda i: f"{name}, result {i}",
    )
    with log_stage(LOWERING, name, jaxpr.in_avals):
        lowered = compiled_program.lower(
            jaxpr,
            devices,
            in_shardings,
            options.out_shardings,
            name=name,
            committed=committed,
            donated=[i for i, d in enumerate(options.donated) if d],
            keep_unused=options.keep_unused,
            communication=options.communication,
        )
    with log_stage(COMPILING, name, jaxpr.in_avals):
        program = lowered.compile()
    warn_unused_donations(name, lambda i: f"input {i}", jaxpr.in_avals, program)
    moves = compiled_program.plan_transfers(types, lowered, lambda i: f"{name}, input {i}")
    return compiled_program.CompiledCall(program, moves)
