"""Tracing functions to jaxprs, and dividing and pruning jaxprs, in the protocols of JAX's `partial_eval`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import (
    Eqn,
    Jaxpr,
    RuleError,
    ShapedArray,
    Var,
    dce_jaxpr as _dce_jaxpr,
    get_aval,
    select_flagged,
    state,
    trace_to_jaxpr,
)
from phalanx.extend.rule_tables import Rule, RuleTable
from phalanx.extend.wrapped_functions import WrappedFun
from phalanx.transforms.linear_trace import LinearTrace
from phalanx.transforms.partial_eval import partial_eval_jaxpr


class PartialVal(tuple[ShapedArray | None, Any]):
    """A value that is known, or only its type.

    Examples:
      >>> PartialVal.known(3).is_known(), PartialVal.unknown(get_aval(3)).is_known()
      (True, False)
    """

    __slots__ = ()

    def __new__(cls, pair: tuple[ShapedArray | None, Any]) -> PartialVal:
        """Make it from a type, or None, and a value, or None.

        Args:
          pair: the type of an unknown value, and the known value.
        """
        return super().__new__(cls, pair)  # type: ignore[type-var]

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        """A known value.

        Args:
          const: the value.

        Returns:
          The partial value.
        """
        return cls((None, const))

    @classmethod
    def unknown(cls, aval: ShapedArray) -> PartialVal:
        """An unknown value.

        Args:
          aval: its type.

        Returns:
          The partial value.
        """
        return cls((aval, None))

    def is_known(self) -> bool:
        """Whether the value is known.

        Returns:
          True or False.
        """
        return self[0] is None

    def get_known(self) -> Any:
        """The value, if it is known.

        Returns:
          The value, or None.
        """
        return self[1] if self.is_known() else None

    def get_aval(self) -> ShapedArray:
        """The type of the value.

        Returns:
          The type.
        """
        return get_aval(self[1]) if self[0] is None else self[0]


def _callable(fun: WrappedFun | Callable[..., Any]) -> Callable[..., Any]:
    return fun.call_wrapped if isinstance(fun, WrappedFun) else fun


def trace_to_jaxpr_dynamic(
    fun: WrappedFun | Callable[..., Sequence[Any]], in_avals: Sequence[ShapedArray], **_: Any
) -> tuple[Jaxpr, list[ShapedArray], list[Any]]:
    """Trace a function of flat arguments and results to a jaxpr.

    Args:
      fun: the function.
      in_avals: the types of the arguments.

    Returns:
      The jaxpr, the types of the results, and the values of the constants that the function closed over.

    Examples:
      >>> import phalanx
      >>> jaxpr, out_avals, consts = trace_to_jaxpr_dynamic(lambda x: [x + 1], [get_aval(1.0)])
      >>> phalanx.core.eval_jaxpr(jaxpr, consts, 2.0)[0].item(), out_avals
      (3.0, [ShapedArray(float32[], weak_type=True)])
    """
    jaxpr = trace_to_jaxpr(_callable(fun), list(in_avals), getattr(fun, "__name__", "fn"))
    return jaxpr, jaxpr.out_avals, jaxpr.consts


def trace_to_jaxpr_nounits(
    fun: WrappedFun | Callable[..., Sequence[Any]],
    pvals: Sequence[PartialVal],
    instantiate: bool | Sequence[bool] = False,
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """Evaluate a function as far as its arguments are known, and trace the rest.

    Args:
      fun: a function of flat arguments and results.
      pvals: the arguments.
      instantiate: for each result (or one bool for all), whether it counts as unknown even if it is known.

    Returns:
      The jaxpr from the unknown arguments to the unknown results, the results, and the values of the constants of the
      jaxpr.

    Examples:
      >>> f = lambda x, y: [x * 2, x * y]
      >>> jaxpr, results, _ = trace_to_jaxpr_nounits(
      ...     f, [PartialVal.known(3), PartialVal.unknown(get_aval(1))]
      ... )
      >>> int(results[0].get_known()), results[1].is_known(), len(jaxpr.eqns)
      (6, False, 1)
    """
    trace = LinearTrace(state.trace, getattr(fun, "__name__", "fn"))
    inputs = (p.get_known() if p.is_known() else trace.new_input(p.get_aval()) for p in map(PartialVal, pvals))
    results = trace.run(_callable(fun), inputs, lambda x: x)
    flags = [instantiate] * len(results) if isinstance(instantiate, bool) else instantiate
    unknown = [flag or trace.is_unknown(x) for x, flag in zip(results, flags, strict=True)]
    jaxpr = trace.finish(select_flagged(results, unknown))
    out = [PartialVal.unknown(get_aval(x)) if u else PartialVal.known(x) for x, u in zip(results, unknown, strict=True)]
    return jaxpr, out, jaxpr.consts


def abstract_eval_fun(
    fun: Callable[..., Any], *avals: ShapedArray, debug_info: Any = None, **params: Any
) -> list[ShapedArray]:
    """The types of the results of a function of flat arguments and results.

    Args:
      fun: the function.
      avals: the types of its arguments.
      debug_info: accepted as in JAX.
      **params: its keyword arguments.

    Returns:
      The types.
    """
    return trace_to_jaxpr(lambda *xs: fun(*xs, **params), list(avals)).out_avals


def close_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """A jaxpr without constants as a closed one: itself.

    Args:
      jaxpr: the jaxpr.

    Returns:
      The jaxpr.
    """
    return jaxpr


def convert_constvars_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """A jaxpr with its constants as leading inputs.

    Args:
      jaxpr: the jaxpr.

    Returns:
      The jaxpr without constants.
    """
    return jaxpr.hoist()


def dce_jaxpr(
    jaxpr: Jaxpr, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool]]:
    """Remove the equations and inputs that the used outputs do not need.

    Args:
      jaxpr: the jaxpr.
      used_outputs: for each output, whether it is used.
      instantiate: for each input (or one bool for all), whether it is kept even if nothing reads it.

    Returns:
      The smaller jaxpr, and for each input whether it was kept.

    Examples:
      >>> import phalanx
      >>> program = phalanx.make_jaxpr(lambda x, y: (x + 1, y * 2))(1, 2)
      >>> smaller, used = dce_jaxpr(program.jaxpr, [True, False])
      >>> len(smaller.eqns), used
      (1, [True, False])
    """
    smaller, used = _dce_jaxpr(jaxpr, tuple(used_outputs))
    flags = [instantiate] * len(used) if isinstance(instantiate, bool) else instantiate
    kept = [u or i for u, i in zip(used, flags, strict=True)]
    return (smaller if kept == used else smaller.replace(invars=select_flagged(jaxpr.invars, kept))), kept


def prune_closed_jaxpr_outputs(jaxpr: Jaxpr, prune: Sequence[bool]) -> Jaxpr:
    """A jaxpr without some of its outputs, and with all of its inputs.

    Args:
      jaxpr: the jaxpr.
      prune: for each output, whether it is removed.

    Returns:
      The smaller jaxpr.
    """
    return jaxpr.replace(outvars=[v for v, p in zip(jaxpr.outvars, prune, strict=True) if not p])


def move_binders_to_back(jaxpr: Jaxpr, to_move: Sequence[bool]) -> Jaxpr:
    """A jaxpr with some of its inputs moved behind the others.

    Args:
      jaxpr: the jaxpr.
      to_move: for each input, whether it is moved.

    Returns:
      The jaxpr.
    """
    stay = [not m for m in to_move]
    return jaxpr.replace(invars=[*select_flagged(jaxpr.invars, stay), *select_flagged(jaxpr.invars, to_move)])


def partial_eval_jaxpr_nounits(
    jaxpr: Jaxpr, unknowns: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, Jaxpr, list[bool], list[ShapedArray]]:
    """Divide a jaxpr into a part that can run now and a part that waits for unknown inputs.

    Args:
      jaxpr: the jaxpr.
      unknowns: for each input, whether it is unknown.
      instantiate: for each output (or one bool for all), whether it counts as unknown.

    Returns:
      The known jaxpr, known inputs -> (known outputs, residuals); the unknown one, (residuals, unknown inputs) ->
      unknown outputs; for each output whether it is unknown; and the types of the residuals.
    """
    parts = partial_eval_jaxpr(jaxpr, unknowns, unknown_outputs=instantiate)
    return parts.known, parts.unknown, list(parts.unknown_outputs), list(parts.residuals)


def _call_dce_rule(_: Any, rule: Rule, eqn: Eqn, used: Sequence[bool], /) -> Eqn | None:
    return rule(list(used), eqn)[1]


def _show_dce_rule(primitive: Any, attribute: str, used: Sequence[bool], eqn: Eqn, /) -> tuple[list[bool], Eqn | None]:
    smaller = getattr(primitive, attribute)(eqn, list(used))
    read = set() if smaller is None else {id(v) for v in smaller.invars}
    return [id(v) in read for v in eqn.invars], smaller


def _call_partial_eval_rule(
    _: Any, rule: Rule, eqn: Eqn, unknown: Sequence[bool], policy: Any, /
) -> tuple[Any, Any, Any]:
    known, waiting, _unknown, instantiated, residuals = rule(policy, list(unknown), [True] * len(unknown), eqn)
    if waiting is None or not all(instantiated):
        raise RuleError(
            f"partial_eval_jaxpr_custom_rules[{eqn.primitive}]",
            expected="an equation that computes all results of the unknown part",
            got="none, or one that leaves results to the known part only",
            fix="return inst_out=[True, ...], or remove the rule: an equation without one waits for its operands",
        )
    return known, waiting, [v for v in residuals if isinstance(v, Var)]


def _show_partial_eval_rule(primitive: Any, attribute: str, *_: Any) -> Any:
    raise RuleError(
        f"partial_eval_jaxpr_custom_rules[{primitive}]",
        expected="a rule that a program registered",
        got="the one of Phalanx, whose residuals have another form",
        fix="divide the jaxpr with partial_eval_jaxpr_nounits",
    )


class _NoTable(dict[Any, Any]):
    """A table that takes no rules, since the mechanism that would read them does not exist here."""

    def __setitem__(self, primitive: Any, rule: Any) -> None:
        raise RuleError(
            f"custom_partial_eval_rules[{primitive}]",
            expected="no such rule",
            got=repr(rule),
            fix="partial evaluation divides jaxprs here: register the rule in partial_eval_jaxpr_custom_rules",
        )


dce_rules = RuleTable("dce", _call_dce_rule, _show_dce_rule)
"""Rules of dead code elimination: `rule(used_outputs, eqn)` returns the used inputs and a smaller equation, or None."""

partial_eval_jaxpr_custom_rules = RuleTable("partial_eval_eqn", _call_partial_eval_rule, _show_partial_eval_rule)
"""Rules that divide an equation: `rule(policy, unknown, instantiated, eqn)` returns its parts."""

custom_partial_eval_rules = _NoTable()
"""Empty: setting an entry raises."""
