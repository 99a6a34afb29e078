"""Partial evaluation: dividing a jaxpr into a part that can run now and a part that must wait for unknown inputs.

`partial_eval_jaxpr` visits the equations of a jaxpr once and gives each to the known jaxpr, the unknown one, or both.
Values that the unknown jaxpr reads from the known one are residuals. It serves the call-like primitives (`jit`,
`checkpoint`, `scan`, `while`, `cond`). Their inner jaxprs are divided once for each set of unknown inputs and each
policy; the results are cached on the inner jaxprs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import (
    ArgumentTypeError,
    Atom,
    Eqn,
    Identity,
    Jaxpr,
    Literal,
    Var,
    broadcast_flag,
    dce_jaxpr,
    no_effects,
    preserve_wide_types,
    remove_dead_code,
    select_flagged,
    select_unflagged,
)
from phalanx.transforms.offload import Offloadable, Verdict, to_memory_p

# A policy decides whether a known result may be a residual: (primitive, *avals, **params) -> bool, or `Offloadable`
# to save it in another memory.
Policy = Callable[..., Any]


def everything_saveable(*_: Any, **__: Any) -> bool:
    """The checkpoint policy that saves every residual, so that nothing is recomputed.

    Args:
      *_, **__: the operation; not read.

    Returns:
      True.

    Examples:
      >>> everything_saveable()
      True
    """
    return True


class Residual(Identity, name="residual"):
    """The identity, which marks a value that every checkpoint policy saves: any[*shape] -> any[*shape]."""


residual_p = Residual()


class PartialEvalJaxprs(NamedTuple):
    """A jaxpr divided by partial evaluation.

    Attributes:
      known: known inputs -> known outputs, then residuals.
      unknown: residuals, then the inputs it reads (see `unknown_inputs`) -> unknown outputs.
      unknown_outputs: for each output of the whole, whether the unknown jaxpr computes it.
      known_outputs: for each output of the whole, whether the known jaxpr computes it; both may be true.
      unknown_inputs: for each input of the whole, whether the unknown jaxpr reads it.
      residuals: the types of the residuals.
    """

    known: Jaxpr
    unknown: Jaxpr
    unknown_outputs: list[bool]
    known_outputs: list[bool]
    unknown_inputs: list[bool]
    residuals: list


def partial_eval_jaxpr(
    jaxpr: Jaxpr,
    unknown: Sequence[bool],
    *,
    instantiated_inputs: Sequence[bool] | bool = False,
    unknown_outputs: Sequence[bool] | bool = False,
    instantiated_outputs: Sequence[bool] | bool = False,
    policy: Policy = everything_saveable,
) -> PartialEvalJaxprs:
    """Divide a jaxpr by which inputs are unknown.

    Args:
      jaxpr: a jaxpr without constants.
      unknown: for each input, whether its value is unknown now.
      instantiated_inputs: for each input, whether the unknown jaxpr may read it even if it is known.
      unknown_outputs: for each output, whether it must count as unknown.
      instantiated_outputs: for each output, whether the unknown jaxpr must return it even if it is known.
      policy: which known values may be residuals; the unknown jaxpr recomputes the others.

    Returns:
      Both jaxprs, cached on `jaxpr`.
    """
    options = (
        tuple(unknown),
        broadcast_flag(instantiated_inputs, jaxpr.invars),
        broadcast_flag(unknown_outputs, jaxpr.outvars),
        broadcast_flag(instantiated_outputs, jaxpr.outvars),
        policy,
    )
    with preserve_wide_types(jaxpr):
        return jaxpr.derive(("partial_eval", *options), lambda: _PartialEvaluator(jaxpr, *options).evaluate())


def partial_eval_inner_jaxpr(
    jaxpr: Jaxpr, unknown: Sequence[bool], policy: Policy, unknown_outputs: Sequence[bool] | bool = False
) -> PartialEvalJaxprs:
    """Divide the jaxpr of a call-like equation, for a `partial_eval_eqn` rule.

    Under a policy, the unknown jaxpr may read every input and computes every output. Otherwise a value would become a
    residual only because it crosses the boundary of a call or of an iteration, although the policy does not save it.
    Dead code elimination removes the outputs that turn out to be unused.
    """
    recomputes = policy is not everything_saveable
    return partial_eval_jaxpr(
        jaxpr,
        unknown,
        instantiated_inputs=recomputes,
        instantiated_outputs=recomputes,
        unknown_outputs=unknown_outputs,
        policy=policy,
    )


class _PartialEvaluator:
    """One pass over the equations of a jaxpr.

    Invariant: every variable seen so far is known, available in the unknown jaxpr, or both. A known variable that the
    unknown jaxpr reads and that is not available becomes a residual. An equation with known operands whose results the
    policy refuses to save is given to both jaxprs: the second copy recomputes the results, and so needs its operands
    available in turn.
    """

    def __init__(
        self,
        jaxpr: Jaxpr,
        unknown: Sequence[bool],
        instantiated: Sequence[bool],
        unknown_outputs: Sequence[bool],
        instantiated_outputs: Sequence[bool],
        policy: Policy,
    ):
        self.jaxpr = jaxpr
        self.policy = policy
        self.want_unknown = unknown_outputs
        self.want_instantiated = instantiated_outputs
        self.unknown = set(select_flagged(jaxpr.invars, unknown))
        # In the unknown jaxpr, without being a residual.
        self.available = self.unknown.union(select_flagged(jaxpr.invars, instantiated))
        self.residuals: dict[Var, None] = {}
        self.known_eqns: list[Eqn] = []
        self.unknown_eqns: list[Eqn] = []
        self.unknown_in = unknown

    def evaluate(self) -> PartialEvalJaxprs:
        for eqn in self.jaxpr.eqns:
            self.assign(eqn)
        jaxpr = self.jaxpr
        out_unknown = [
            w or (type(v) is not Literal and v in self.unknown)
            for v, w in zip(jaxpr.outvars, self.want_unknown, strict=True)
        ]
        out_instantiated = [u or w for u, w in zip(out_unknown, self.want_instantiated, strict=True)]
        unknown_outvars = select_flagged(jaxpr.outvars, out_instantiated)
        for v in unknown_outvars:
            self.make_available(v)
        unknown = self._unknown_jaxpr(unknown_outvars)
        read = set(unknown.invars)
        residuals = [v for v in self.residuals if v in read]
        known_in = select_unflagged(jaxpr.invars, self.unknown_in)
        known_out = [*select_unflagged(jaxpr.outvars, out_unknown), *residuals]
        reads = [v in read and v not in self.residuals for v in jaxpr.invars]
        unknown.invars = [*residuals, *select_flagged(jaxpr.invars, reads)]
        return PartialEvalJaxprs(
            known=remove_dead_code(_make_jaxpr(known_in, self.known_eqns, known_out, jaxpr.debug_name)),
            unknown=unknown,
            unknown_outputs=out_instantiated,
            known_outputs=[not u for u in out_unknown],
            unknown_inputs=reads,
            residuals=[v.aval for v in residuals],
        )

    def _unknown_jaxpr(self, outvars: list) -> Jaxpr:
        inputs = [*self.residuals, *(v for v in self.jaxpr.invars if v in self.available)]
        jaxpr = _make_jaxpr(inputs, self.unknown_eqns, outvars, self.jaxpr.debug_name)
        smaller, used = dce_jaxpr(jaxpr, [True] * len(outvars))
        # Residuals that only dead equations read are pruned; unknown inputs stay, since callers pass them.
        keep = [u or v in self.unknown for v, u in zip(inputs, used, strict=True)]
        return smaller.replace(invars=select_flagged(inputs, keep))

    def assign(self, eqn: Eqn) -> None:
        """Give one equation to the known jaxpr, the unknown jaxpr, or both."""
        is_unknown = [type(a) is not Literal and a in self.unknown for a in eqn.invars]
        rule = eqn.primitive.partial_eval_eqn
        if not any(is_unknown):
            verdict = self._may_save(eqn)
            if verdict or rule is None:
                self.known_eqns.append(eqn)
                if isinstance(verdict, Offloadable):
                    self._offload(eqn, verdict)
                elif not verdict:  # recomputed in the unknown jaxpr
                    self._assign_unknown(eqn, known=set(eqn.outvars))
                return
            # A call that may not be saved as a whole is divided, so that the policy decides on the operations inside.
        elif all(is_unknown):
            rule = None
        # Some operands are known and some are not: a call-like equation may divide, any other one waits.
        if rule is not None:
            known, unknown, residuals = rule(eqn, is_unknown, self.policy)
            if known is None and not any(is_unknown):  # a call that stays whole is computed twice
                known = eqn
            self.known_eqns += [known] if known else []
            self.residuals.update(dict.fromkeys(residuals))
            self._assign_unknown(unknown, set(residuals), set(known.outvars) if known else set())
        else:
            self._assign_unknown(eqn)

    def _assign_unknown(self, eqn: Eqn, residuals: Set[Var] = frozenset(), known: Set[Var] = frozenset()) -> None:
        """Append an equation to the unknown jaxpr.

        Args:
          eqn: the equation.
          residuals: its operands that are residuals already.
          known: its results that the known jaxpr computes as well.
        """
        for atom in eqn.invars:
            if type(atom) is not Literal and atom not in residuals:
                self.make_available(atom)
        self.unknown_eqns.append(eqn)
        self.unknown.update(v for v in eqn.outvars if v not in known)
        self.available.update(eqn.outvars)

    def _may_save(self, eqn: Eqn) -> bool | np.bool_ | Verdict | Offloadable | None:
        # An effect must not happen twice, so such an equation is never recomputed.
        if self.policy is everything_saveable or eqn.effects or eqn.primitive is residual_p:
            return True
        verdict = self.policy(eqn.primitive, *(a.aval for a in eqn.invars), **eqn.params)
        if not isinstance(verdict, bool | np.bool_ | Verdict | Offloadable | None):
            raise ArgumentTypeError(
                f"checkpoint, the result of the policy for {eqn.primitive.name}",
                expected="True, False or an Offloadable",
                got=repr(verdict),
                fix="pass the policy itself: save_only_these_names and similar functions must be called with names, as "
                "in policy=save_only_these_names('x')",
            )
        return verdict

    def _offload(self, eqn: Eqn, memory: Offloadable) -> None:
        """Save the results of an equation in another memory, from which the unknown jaxpr copies them back."""
        for v in eqn.outvars:
            saved = Var(v.aval)
            self.known_eqns.append(Eqn(to_memory_p, [v], [saved], memory._asdict(), eqn.source))
            self.residuals[saved] = None
            back = {"src": memory.dst, "dst": memory.src}
            self.unknown_eqns.append(Eqn(to_memory_p, [saved], [v], back, eqn.source))
            self.available.add(v)

    def make_available(self, atom: Atom) -> None:
        """Ensure that the unknown jaxpr can read a variable, as a residual if in no other way."""
        if type(atom) is not Literal and atom not in self.available:
            self.residuals[atom] = None


def _make_jaxpr(invars: Sequence[Var], eqns: Sequence[Eqn], outvars: Sequence[Atom], name: str) -> Jaxpr:
    """A jaxpr without constants, with the effects of its equations."""
    return Jaxpr(invars, eqns, outvars, effects=no_effects.union(*(e.effects for e in eqns)), debug_name=name)


def has_known_work(jaxpr: Jaxpr, unknown: Sequence[bool]) -> bool:
    """Whether some equation or output does not depend on the unknown inputs."""
    dependent = {v for v, u in zip(jaxpr.invars, unknown, strict=True) if u}
    for eqn in jaxpr.eqns:
        if any(type(a) is Var and a in dependent for a in eqn.invars):
            dependent.update(eqn.outvars)
        else:
            return True
    return any(v not in dependent for v in jaxpr.outvars)
