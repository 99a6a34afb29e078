"""Calls: primitives that run one program on all their operands, and the rules that such primitives share.

Each rule derives a program from the one that the call holds and calls that in turn, so that whatever a call means (it
is compiled as one, its inner values are not kept) holds for its derivatives, too. A primitive says in `call` and
`derived` how a derived program is called; the rules are the same for all. `remat` and `spmd.primitive` build on this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from phalanx.core.effects import Effects
from phalanx.core.flags import chosen, filled, merged, others
from phalanx.core.jaxpr import Eqn, Jaxpr, Var, eliminate_dead_code, run_program
from phalanx.core.primitive import Primitive, Roles
from phalanx.core.roles import program_roles
from phalanx.core.tangent import Zero, is_linear, join_tangents, split_tangents
from phalanx.core.varying import retyped, varies
from phalanx.runtime.memories import result_memories
from phalanx.transforms.batching import Axis, batch_program, front_dims
from phalanx.transforms.forward import jvp_program
from phalanx.transforms.linear import LinearTrace, transpose_program
from phalanx.transforms.linearization import linearize_program
from phalanx.transforms.partial_eval import Policy, Split, everything_saveable, has_known_work, split_held


class ProgramCall(Primitive):
    """A call of a program: (*inputs) -> its outputs.

    Class attributes:
      program: the name of the parameter that is the program; it has no constants.
    """

    multiple = True
    holds_program = True
    says_shardings = True
    batch = None
    program: ClassVar[str] = "jaxpr"

    def roles(self, *avals: Any, **params: Any) -> Roles:
        return program_roles(params[self.program])

    def result(self, *avals: Any, **params: Any) -> list:
        return params[self.program].out_avals

    def effects(self, *avals: Any, **params: Any) -> Effects:
        return params[self.program].effects

    def settle(self, avals: Sequence[Any], params: dict) -> dict:
        """The call with a program for operands that vary over more mesh axes."""
        program = params[self.program]
        settled = retyped(program, avals) if varies(avals) else program
        return params if settled is program else params | {self.program: settled}

    def run(self, *args: Any, **params: Any) -> list:
        return run_program(params[self.program], *args)

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> list:
        return ctx.emit(params[self.program], operands)

    def memories(self, held: Sequence[str | None], **params: Any) -> list[str | None]:
        return result_memories(params[self.program], held)


class DerivedCall(ProgramCall):
    """A call whose derivatives, transpose and batched form are those of its program.

    What is asked of single inputs and outputs (`wishes`) goes with them into the calls of derived programs.
    """

    def wishes(self, params: dict) -> tuple[Sequence[Any], Sequence[Any]]:
        """What is asked of each input and of each output; nothing unless a subclass says so."""
        program = params[self.program]
        return [None] * len(program.invars), [None] * len(program.outvars)

    def widened(self, wish: Any, axis: Axis) -> Any:
        """What is asked of a value that has got a mapped dimension in front."""
        return wish

    def kept(self, wish: Any) -> Any:
        """The wish for an input that is read again after the call."""
        return wish

    def derived(self, params: dict, program: Jaxpr, ins: Sequence[Any], outs: Sequence[Any], change: str) -> dict:
        """The parameters of a call of a program made from this one.

        Args:
          params: those of this call.
          program: the derived program.
          ins, outs: what is asked of its inputs and outputs.
          change: "jvp", "primal", "linear", "transpose", "vmap", "known", "unknown", or "smaller" for less of the same.
        """
        return params | {self.program: program}

    def call(self, args: Sequence[Any], params: dict) -> list:
        """Call a derived program, which may have constants, on the current trace."""
        return run_program(params[self.program], *args)

    def _call(self, params: dict, program: Jaxpr, args: Sequence[Any], ins: Any, outs: Any, change: str) -> list:
        return self.call(args, self.derived(params, program, ins, outs, change))

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple:
        program, (ins, outs) = params[self.program], self.wishes(params)
        nonzero, given = split_tangents(tangents)
        derived, has = jvp_program(program, nonzero)
        wishes = [*ins, *chosen(ins, nonzero)], [*outs, *chosen(outs, has)]
        out = self._call(params, derived, [*primals, *given], *wishes, "jvp")
        count = len(program.outvars)
        return out[:count], join_tangents(program.out_avals, has, out[count:])

    def linearize(self, trace: LinearTrace, primals: Sequence[Any], tangents: Sequence[Any], params: dict) -> tuple:
        program, (ins, outs) = params[self.program], self.wishes(params)
        nonzero, given = split_tangents(tangents)
        halves = linearize_program(program, nonzero)
        count = len(program.outvars)
        kept = [None] * (len(halves.primal.outvars) - count)
        again = {f for f in halves.forwarded if f is not None}
        first = [self.kept(w) if i in again else w for i, w in enumerate(ins)]
        out = self._call(params, halves.primal, primals, first, [*outs, *kept], "primal")
        returned = iter(out[count:])
        residuals = [next(returned) if f is None else primals[f] for f in halves.forwarded]
        wishes = [*[None] * len(residuals), *chosen(ins, nonzero)], chosen(outs, halves.nonzero)
        out_dot = self._call(params, halves.linear, [*residuals, *given], *wishes, "linear")
        return out[:count], join_tangents(program.out_avals, halves.nonzero, out_dot)

    def transpose(self, y_bars: Sequence[Any], *operands: Any, **params: Any) -> tuple:
        ins, outs = self.wishes(params)
        linear, nonzero = [is_linear(x) for x in operands], [type(c) is not Zero for c in y_bars]
        derived, has = transpose_program(params[self.program], linear, nonzero)
        args = [*others(operands, linear), *chosen(y_bars, nonzero)]
        wishes = [*others(ins, linear), *chosen(outs, nonzero)], chosen(chosen(ins, linear), has)
        x_bars = self._call(params, derived, args, *wishes, "transpose")
        return tuple(filled(linear, filled(has, x_bars)))

    def batch_axis(self, axis: Axis, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple:
        mapped = [d is not None for d in dims]
        derived, out_mapped = batch_program(params[self.program], axis, mapped)
        ins, outs = (
            [self.widened(w, axis) if m else w for w, m in zip(wishes, which, strict=True)]
            for wishes, which in zip(self.wishes(params), (mapped, out_mapped), strict=True)
        )
        return self._call(params, derived, axis.to_fronts(args, dims), ins, outs, "vmap"), front_dims(out_mapped)


class DivisibleCall(DerivedCall):
    """A call that may become a call of a part of its program."""

    def call(self, args: Sequence[Any], params: dict) -> list:
        program = params[self.program]
        return self(*program.consts, *args, **params | {self.program: program.hoist()})

    def parts(self, params: dict, unknown: Sequence[bool], policy: Policy) -> Split:
        """The program in two parts; a subclass may say what the second one may compute again."""
        return split_held(params[self.program], unknown, policy)

    def _halves(self, params: dict, parts: Split, unknown: Sequence[bool]) -> tuple[dict, dict]:
        """The parameters of the calls of both parts."""
        ins, outs = self.wishes(params)
        between = [None] * len(parts.residuals)
        wishes = others(ins, unknown), [*chosen(outs, parts.known_outputs), *between]
        known = self.derived(params, parts.known, *wishes, "known")
        wishes = [*between, *chosen(ins, parts.unknown_inputs)], chosen(outs, parts.unknown_outputs)
        return known, self.derived(params, parts.unknown, *wishes, "unknown")

    def split(self, trace: LinearTrace, args: Sequence[Any], params: dict) -> list:
        unknown = [trace.is_unknown(x) for x in args]
        if all(unknown) or not has_known_work(params[self.program], unknown):
            return trace.record(self, args, params)
        parts = self.parts(params, unknown, everything_saveable)
        known, waiting = self._halves(params, parts, unknown)
        ready = self.call(others(args, unknown), known)
        count = sum(parts.known_outputs)
        later = trace.record(self, [*ready[count:], *chosen(args, parts.unknown_inputs)], waiting)
        return merged(parts.known_outputs, ready[:count], later)

    def split_eqn(self, eqn: Eqn, unknown: Sequence[bool], policy: Policy) -> tuple:
        """The two halves of an equation inside a program that is split, and the residuals between them."""
        parts = self.parts(eqn.params, unknown, policy)
        known, waiting = self._halves(eqn.params, parts, unknown)
        residuals = [Var(a) for a in parts.residuals]
        first = eqn.replace(
            invars=others(eqn.invars, unknown),
            outvars=[*chosen(eqn.outvars, parts.known_outputs), *residuals],
            params=known,
            effects=parts.known.effects,
        )
        second = eqn.replace(
            invars=[*residuals, *chosen(eqn.invars, parts.unknown_inputs)],
            outvars=chosen(eqn.outvars, parts.unknown_outputs),
            params=waiting,
            effects=parts.unknown.effects,
        )
        return first if first.outvars or first.effects else None, second, residuals

    def dce(self, eqn: Eqn, used: Sequence[bool]) -> Eqn | None:
        """The call without the outputs nobody reads and the inputs that only these needed."""
        smaller, kept = eliminate_dead_code(eqn.params[self.program], used)
        if not any(used) and not smaller.effects:
            return None
        ins, outs = self.wishes(eqn.params)
        return eqn.replace(
            invars=chosen(eqn.invars, kept),
            outvars=chosen(eqn.outvars, used),
            params=self.derived(eqn.params, smaller, chosen(ins, kept), chosen(outs, used), "smaller"),
            effects=smaller.effects,
        )
