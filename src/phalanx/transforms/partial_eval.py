"""Partial evaluation: splitting a program into what can run now and what must wait.

`split_program` walks a program once and deals its equations out to a known program and an unknown one; values that
cross are residuals. It serves the call-like primitives (jit, remat, scan, while, cond), whose inner programs are split
once for each question and kept on the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from phalanx.core.effects import no_effects
from phalanx.core.errors import ArgumentTypeError
from phalanx.core.flags import chosen, each, others
from phalanx.core.jaxpr import Eqn, Jaxpr, Literal, Var, eliminate_dead_code, without_dead_code
from phalanx.transforms.offload import Offloadable, Verdict, to_memory_p

# A policy decides whether a known result may be kept as a residual: (primitive, *avals, **params) -> bool,
# or `Offloadable` where it may be kept in another memory.
Policy = Callable[..., Any]


def everything_saveable(*_: Any, **__: Any) -> bool:
    """Keep every known value that the unknown part needs.

    Args:
      *_, **__: the operation; not read.

    Returns:
      True.

    Examples:
      >>> everything_saveable()
      True
    """
    return True


class Split(NamedTuple):
    """A program in two parts.

    known: known inputs -> known outputs, then residuals.
    unknown: residuals, then the inputs it reads (see `unknown_inputs`) -> unknown outputs.
    unknown_outputs: for each output of the whole, whether the unknown part computes it.
    known_outputs: for each output of the whole, whether the known part computes it; both may be true.
    unknown_inputs: for each input of the whole, whether the unknown part takes it.
    residuals: the types of the residuals.
    """

    known: Jaxpr
    unknown: Jaxpr
    unknown_outputs: list[bool]
    known_outputs: list[bool]
    unknown_inputs: list[bool]
    residuals: list


def split_program(
    program: Jaxpr,
    unknown: Sequence[bool],
    *,
    instantiated_inputs: Sequence[bool] | bool = False,
    unknown_outputs: Sequence[bool] | bool = False,
    instantiated_outputs: Sequence[bool] | bool = False,
    policy: Policy = everything_saveable,
) -> Split:
    """Split a program by which inputs are unknown.

    Args:
      program: a program without constants.
      unknown: for each input, whether its value is unknown now.
      instantiated_inputs: for each input, whether the unknown part may read it even if known, instead of a residual.
      unknown_outputs: for each output, whether it must count as unknown.
      instantiated_outputs: for each output, whether the unknown part must compute or pass it even if known.
      policy: which known values may be residuals; the others are computed again in the unknown part.

    Returns:
      The two parts, kept on the program for the next time the same is asked.
    """
    options = (
        tuple(unknown),
        each(instantiated_inputs, program.invars),
        each(unknown_outputs, program.outvars),
        each(instantiated_outputs, program.outvars),
        policy,
    )
    return program.derive(("split", *options), lambda: _Splitter(program, *options).split())


def split_held(
    program: Jaxpr, unknown: Sequence[bool], policy: Policy, unknown_outputs: Sequence[bool] | bool = False
) -> Split:
    """Split a program that an equation holds, for a `split_eqn` rule.

    Where a policy says what may be kept, the unknown part may read every input and computes every output, so that
    nothing is kept because it crosses the border of a call or an iteration; what nobody needs goes as dead code.
    """
    again = policy is not everything_saveable
    return split_program(
        program,
        unknown,
        instantiated_inputs=again,
        instantiated_outputs=again,
        unknown_outputs=unknown_outputs,
        policy=policy,
    )


class _Splitter:
    """One walk over a program. A variable may be known, available in the unknown part, or both."""

    def __init__(
        self,
        program: Jaxpr,
        unknown: Any,
        instantiated: Any,
        unknown_outputs: Any,
        instantiated_outputs: Any,
        policy: Policy,
    ):
        self.program = program
        self.policy = policy
        self.want_unknown = unknown_outputs
        self.want_instantiated = instantiated_outputs
        self.unknown: set[Var] = set()
        self.available: set[Var] = set()  # in the unknown part, without being a residual
        self.residuals: dict[Var, None] = {}
        self.known_eqns: list[Eqn] = []
        self.unknown_eqns: list[Eqn] = []
        self.unknown_in = unknown
        for v, is_unknown, inst in zip(program.invars, unknown, instantiated, strict=True):
            if is_unknown:
                self.unknown.add(v)
            if is_unknown or inst:
                self.available.add(v)

    def split(self) -> Split:
        for eqn in self.program.eqns:
            self.deal(eqn)
        program = self.program
        out_unknown = [
            w or (type(v) is not Literal and v in self.unknown)
            for v, w in zip(program.outvars, self.want_unknown, strict=True)
        ]
        out_instantiated = [u or w for u, w in zip(out_unknown, self.want_instantiated, strict=True)]
        unknown_outvars = chosen(program.outvars, out_instantiated)
        for v in unknown_outvars:
            self.make_available(v)
        unknown = self._unknown_part(unknown_outvars)
        read = set(unknown.invars)
        residuals = [v for v in self.residuals if v in read]
        known_outputs = [not u for u in out_unknown]
        known_in, known_out = others(program.invars, self.unknown_in), chosen(program.outvars, known_outputs)
        known = Jaxpr(known_in, self.known_eqns, [*known_out, *residuals], debug_name=program.debug_name)
        takes = [v in read and v not in self.residuals for v in program.invars]
        unknown.invars = [*residuals, *chosen(program.invars, takes)]
        return Split(
            without_dead_code(known), unknown, out_instantiated, known_outputs, takes, [v.aval for v in residuals]
        )

    def _unknown_part(self, outvars: list) -> Jaxpr:
        inputs = [*self.residuals, *(v for v in self.program.invars if v in self.available)]
        effects = no_effects.union(*(e.effects for e in self.unknown_eqns)) if self.unknown_eqns else no_effects
        part = Jaxpr(inputs, self.unknown_eqns, outvars, effects=effects, debug_name=self.program.debug_name)
        smaller, used = eliminate_dead_code(part, [True] * len(outvars))
        # Residuals that only dead equations wanted are pruned; unknown inputs stay, since callers pass them.
        keep = [u or v in self.unknown for v, u in zip(inputs, used, strict=True)]
        return smaller.replace(invars=chosen(inputs, keep))

    def deal(self, eqn: Eqn) -> None:
        """Give one equation to the known part, the unknown part, or both."""
        is_unknown = [type(a) is not Literal and a in self.unknown for a in eqn.invars]
        if not any(is_unknown):
            self.known_eqns.append(eqn)
            verdict = self._may_save(eqn)
            if isinstance(verdict, Offloadable):
                self._offload(eqn, verdict)
            elif not verdict:  # It is computed again.
                self._give_to_unknown(eqn, known=set(eqn.outvars))
            return
        rule = eqn.primitive.split_eqn
        if rule is not None and not all(is_unknown):
            known, unknown, residuals = rule(eqn, is_unknown, self.policy)
            if known is not None:
                self.known_eqns.append(known)
            self.residuals.update(dict.fromkeys(residuals))
            self._give_to_unknown(unknown, set(residuals), set() if known is None else set(known.outvars))
            return
        self._give_to_unknown(eqn)

    def _give_to_unknown(self, eqn: Eqn, residuals: Set[Var] = frozenset(), known: Set[Var] = frozenset()) -> None:
        """Let an equation wait, which reads these residuals and computes these known values again."""
        for atom in eqn.invars:
            if type(atom) is not Literal and atom not in residuals:
                self.make_available(atom)
        self.unknown_eqns.append(eqn)
        self.unknown.update(v for v in eqn.outvars if v not in known)
        self.available.update(eqn.outvars)

    def _may_save(self, eqn: Eqn) -> Any:
        if self.policy is everything_saveable or eqn.effects:
            return True
        verdict = self.policy(eqn.primitive, *(a.aval for a in eqn.invars), **eqn.params)
        if not isinstance(verdict, bool | np.bool_ | Verdict | Offloadable | None):
            raise ArgumentTypeError(
                "checkpoint, what the policy says of an operation",
                expected="True, False or an Offloadable",
                got=repr(verdict),
                mend="give the policy itself: save_only_these_names and its kin are called with names to get one",
            )
        return verdict

    def _offload(self, eqn: Eqn, memory: Offloadable) -> None:
        """Keep the results of an equation in another memory, whence the unknown part takes them."""
        for v in eqn.outvars:
            far = Var(v.aval)
            there = {"src": memory.src, "dst": memory.dst}
            back = {"src": memory.dst, "dst": memory.src}
            self.known_eqns.append(Eqn(to_memory_p, [v], [far], there, eqn.source))
            self.residuals[far] = None
            self.unknown_eqns.append(Eqn(to_memory_p, [far], [v], back, eqn.source))
            self.available.add(v)

    def make_available(self, atom: Any) -> None:
        """See that the unknown part can read a variable: as a residual, if in no other way."""
        if type(atom) is not Literal and atom not in self.available:
            self.residuals[atom] = None


def has_known_work(jaxpr: Jaxpr, unknown: Sequence[bool]) -> bool:
    """Whether some equation does not depend on the unknown inputs."""
    waiting = {v for v, u in zip(jaxpr.invars, unknown, strict=True) if u}
    for eqn in jaxpr.eqns:
        if any(type(a) is Var and a in waiting for a in eqn.invars):
            waiting.update(eqn.outvars)
        else:
            return True
    return any(v not in waiting for v in jaxpr.outvars)
