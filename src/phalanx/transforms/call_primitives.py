"""Base classes of call-like primitives, which apply a jaxpr to all of their operands.

Every rule derives a jaxpr from the one that the call holds, and calls that in turn. Properties of a call (it is
compiled as one function, its intermediate values are rematerialized) therefore hold for its derivatives and its batched
form, too. A primitive defines in `derive_params` and `bind_call` how a derived jaxpr is called; the rules are shared.
`checkpoint_and_remat`, `custom_rules` and `spmd.jit_primitive` build on these classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from phalanx.core import (
    REF_TYPES,
    Effects,
    Eqn,
    Jaxpr,
    Primitive,
    Ref,
    RefCell,
    RefError,
    ShapedArray,
    ShardingRule,
    Slot,
    Var,
    Zero,
    check_not_batched,
    dce_jaxpr,
    discharge_jaxpr,
    fill_flagged,
    in_turn,
    is_linear,
    is_varying,
    join_tangents,
    local_refs,
    merge_lists,
    program_sharding_rule,
    read_values,
    retype_jaxpr,
    run_jaxpr,
    select_flagged,
    select_unflagged,
    split_tangents,
    state,
    write_effect,
    write_p,
)
from phalanx.runtime import LoweringContext, result_memories
from phalanx.transforms.backward_logs import count_logs, take_logs
from phalanx.transforms.batching import AxisData, batch_jaxpr, front_dims
from phalanx.transforms.jvp_trace import jvp_jaxpr
from phalanx.transforms.linear_trace import LinearTrace
from phalanx.transforms.linearize_jaxpr import linearize_jaxpr
from phalanx.transforms.partial_eval import (
    PartialEvalJaxprs,
    Policy,
    everything_saveable,
    has_known_work,
    partial_eval_inner_jaxpr,
)
from phalanx.transforms.transpose_jaxpr import transpose_jaxpr


class HigherOrder(Primitive):
    """Base of primitives whose result types over Explicit axes come from the jaxprs that they hold.

    An operand may be a mutable array reference (`core.mutable_arrays`). One that belongs to an outer trace stays an
    operand. For references of the current trace, `discharge` applies the operation to their values.
    """

    multiple = True
    call_like = True
    typed_sharding_rule = True

    def __call__(self, *args: Any, **params: Any) -> Any:
        if REF_TYPES.isdisjoint(map(type, args)):
            return super().__call__(*args, **params)
        if refs := local_refs(args):
            if state.trace is None:
                return in_turn(refs, lambda: self._apply_to_refs(refs, args, params))
            return self._apply_to_refs(refs, args, params)
        if state.trace is not None and state.trace.is_batched and write_effect in self.effects(**params):
            for x in args:
                if isinstance(x, Ref):
                    check_not_batched(x)
        return super().__call__(*args, **params)

    bind = __call__

    def _apply_to_refs(self, refs: Sequence[RefCell], args: Sequence[Any], params: dict) -> Any:
        """Apply the operation to the values of references of the current trace, and write the results into them."""
        slots = {id(ref): Slot(n, ref.is_view) for n, ref in enumerate(refs)}
        out, written, values = self.discharge(args, [slots.get(id(x)) for x in args], params)
        for slot, value in zip(written, values, strict=True):
            refs[slot.number].value = value
            refs[slot.number].own()
        return out

    def bind_on_values(self, args: Sequence[Any], params: dict) -> list:
        """Apply the operation to the values of its references, which may belong to an outer trace."""
        refs = list({id(x): x for x in args if isinstance(x, Ref)}.values())
        slots = {id(ref): Slot(n) for n, ref in enumerate(refs)}
        out, written, values = self.discharge(args, [slots.get(id(x)) for x in args], params)
        for slot, value in zip(written, values, strict=True):
            write_p(refs[slot.number], value)
        return out

    def discharge(
        self, args: Sequence[Any], slots: Sequence[Slot | None], params: dict
    ) -> tuple[list, Sequence[Slot], Sequence[Any]]:
        """Apply the operation to the values of references.

        Args:
          args: the operands.
          slots: for each operand, the slot of the reference that it is, or None for any other operand.
          params: the parameters.

        Returns:
          The results, the slots of the references that are written, and their final values.
        """
        raise RefError(
            f"primitive {self.name}",
            expected="a function that neither takes nor closes over mutable array references",
            got=", ".join(x.aval.str_short() for x, n in zip(args, slots, strict=True) if n is not None),
            fix="read the references before the call, and write its results into them afterwards",
        )


class Division(NamedTuple):
    """A call divided into a known call, which can run now, and an unknown call, which waits for unknown operands.

    Attributes:
      known, unknown: the parameters of the two calls.
      known_inputs: for each operand, whether the known call takes it.
      known_outputs, unknown_outputs: for each result, whether that call computes it.
      residuals: the types of the residuals, which the known call returns after its results.
      unknown_operands: `(operands, residuals)`, returns the operands of the unknown call.
    """

    known: dict
    unknown: dict
    known_inputs: Sequence[bool]
    known_outputs: Sequence[bool]
    unknown_outputs: Sequence[bool]
    residuals: Sequence[ShapedArray]
    unknown_operands: Callable[[Sequence[Any], Sequence[Any]], list]


class DivisibleCall(HigherOrder):
    """A call that partial evaluation divides into a known call, an unknown call and the residuals between them."""

    def divide(self, params: dict, unknown: Sequence[bool], policy: Policy) -> Division | None:
        """Divide a call by which operands are unknown; None if no part of it can run now."""
        raise NotImplementedError  # defined by each subclass

    def bind_call(self, args: Sequence[Any], params: dict) -> list:
        """Call a derived jaxpr on the current trace."""
        return self(*args, **params)

    def partial_eval(self, trace: LinearTrace, args: Sequence[Any], params: dict) -> list:
        division = self.divide(params, [trace.is_unknown(x) for x in args], everything_saveable)
        if division is None:
            return trace.record(self, args, params)
        known = self.bind_call(select_flagged(args, division.known_inputs), division.known)
        # The known call returns its results first, and then the residuals.
        count = sum(division.known_outputs)
        recorded = trace.record(self, division.unknown_operands(args, known[count:]), division.unknown)
        return merge_lists(division.known_outputs, known[:count], recorded)

    def partial_eval_eqn(
        self, eqn: Eqn, unknown: Sequence[bool], policy: Policy
    ) -> tuple[Eqn | None, Eqn, Sequence[Var]]:
        """Divide an equation: the known equation or None, the unknown one, and the residuals between them."""
        division = self.divide(eqn.params, unknown, policy)
        if division is None:
            return None, eqn, []
        residuals = [Var(a) for a in division.residuals]
        known = eqn.replace(
            invars=select_flagged(eqn.invars, division.known_inputs),
            outvars=[*select_flagged(eqn.outvars, division.known_outputs), *residuals],
            params=division.known,
            effects=self.effects(**division.known),
        )
        waiting = eqn.replace(
            invars=division.unknown_operands(eqn.invars, residuals),
            outvars=select_flagged(eqn.outvars, division.unknown_outputs),
            params=division.unknown,
            effects=self.effects(**division.unknown),
        )
        # A call without results or effects would only cost its overhead.
        return known if known.outvars or known.effects else None, waiting, residuals


class CallPrimitive(HigherOrder):
    """A call of a jaxpr: (*inputs) -> its outputs.

    Class attributes:
      program: the name of the parameter that holds the jaxpr, which has no constants.
    """

    program: ClassVar[str] = "jaxpr"

    def sharding_rule(self, *avals: ShapedArray, **params: Any) -> ShardingRule:
        return program_sharding_rule(params[self.program])

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list:
        return params[self.program].out_avals

    def effects(self, *avals: ShapedArray, **params: Any) -> Effects:
        return params[self.program].effects

    def update_varying(self, avals: Sequence[ShapedArray], params: dict) -> dict:
        """The parameters of the call for operands that vary over more mesh axes: its jaxpr is retyped."""
        jaxpr = params[self.program]
        retyped = retype_jaxpr(jaxpr, avals) if is_varying(avals) else jaxpr
        return params if retyped is jaxpr else params | {self.program: retyped}

    def run(self, *args: Any, **params: Any) -> list:
        return run_jaxpr(params[self.program], *args)

    def lower(self, ctx: LoweringContext, *operands: Any, **params: Any) -> list:
        return ctx.emit(params[self.program], operands)

    def memories(self, held: Sequence[str | None], **params: Any) -> list[str | None]:
        return result_memories(params[self.program], held)


class TransformedCall(CallPrimitive):
    """A call whose derivatives, transpose and batched form are calls of the transformed jaxpr.

    Options that the user gave for single inputs and outputs, such as shardings and donation, travel with them into the
    calls of derived jaxprs: `input_output_options` reads them, `derive_params` writes them.
    """

    def discharge(
        self, args: Sequence[Any], slots: Sequence[Slot | None], params: dict
    ) -> tuple[list, Sequence[Slot], Sequence[Any]]:
        jaxpr = params[self.program]
        pure, written = discharge_jaxpr(jaxpr, slots)
        ins, outs = self.input_output_options(params)
        values, ins, extra = self.read_refs(args, slots, written, ins)
        out = self._bind(params, pure, values, ins, [*outs, *extra], "discharge")
        count = len(jaxpr.outvars)
        return out[:count], written, out[count:]

    def read_refs(
        self, args: Sequence[Any], slots: Sequence[Slot | None], written: Sequence[Slot], ins: Sequence[Any]
    ) -> tuple[list, Sequence[Any], Sequence[Any]]:
        """The operands with the values of references, the options of the inputs, and of the final values."""
        return read_values(args, slots), ins, [None] * len(written)

    def input_output_options(self, params: dict) -> tuple[Sequence[Any], Sequence[Any]]:
        """The option of each input and of each output; None for all unless a subclass overrides this."""
        jaxpr = params[self.program]
        return [None] * len(jaxpr.invars), [None] * len(jaxpr.outvars)

    def batch_option(self, option: Any, axis: AxisData) -> Any:
        """The option of a value that gets a mapped dimension in front."""
        return option

    def residual_option(self, option: Any) -> Any:
        """The option of an input that is read again after the call, since it is a residual."""
        return option

    def derive_params(
        self, params: dict, jaxpr: Jaxpr, ins: Sequence[Any], outs: Sequence[Any], transform: str
    ) -> dict:
        """The parameters of a call of a derived jaxpr.

        Args:
          params: the parameters of this call.
          jaxpr: the derived jaxpr.
          ins, outs: the options of its inputs and outputs.
          transform: "jvp", "primal", "linear", "transpose", "vmap", "known", "unknown", "smaller" after dead code
            elimination, or "discharge" for a call on the values of references.
        """
        return params | {self.program: jaxpr}

    def bind_call(self, args: Sequence[Any], params: dict) -> list:
        """Call a derived jaxpr, which may have constants, on the current trace."""
        return run_jaxpr(params[self.program], *args)

    def _bind(
        self, params: dict, jaxpr: Jaxpr, args: Sequence[Any], ins: Sequence[Any], outs: Sequence[Any], transform: str
    ) -> list:
        return self.bind_call(args, self.derive_params(params, jaxpr, ins, outs, transform))

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple:
        jaxpr, (ins, outs) = params[self.program], self.input_output_options(params)
        nonzero, given = split_tangents(tangents)
        derived, has = jvp_jaxpr(jaxpr, nonzero)
        options = [*ins, *select_flagged(ins, nonzero)], [*outs, *select_flagged(outs, has)]
        out = self._bind(params, derived, [*primals, *given], *options, "jvp")
        count = len(jaxpr.outvars)
        return out[:count], join_tangents(jaxpr.out_avals, has, out[count:])

    def linearize(
        self, trace: LinearTrace, primals: Sequence[Any], tangents: Sequence[Any], params: dict
    ) -> tuple[list, list]:
        jaxpr, (ins, outs) = params[self.program], self.input_output_options(params)
        nonzero, given = split_tangents(tangents)
        derived = linearize_jaxpr(jaxpr, nonzero)
        count = len(jaxpr.outvars)
        # The user said nothing about residuals, so the compiler chooses their shardings.
        residual_outs = [None] * (len(derived.primal.outvars) - count)
        # An input that is also a residual is read after the call, so its buffer must not be donated.
        forwarded = {f for f in derived.forwarded if f is not None}
        primal_ins = [self.residual_option(option) if i in forwarded else option for i, option in enumerate(ins)]
        out = self._bind(params, derived.primal, primals, primal_ins, [*outs, *residual_outs], "primal")
        returned = iter(out[count:])
        residuals = [next(returned) if f is None else primals[f] for f in derived.forwarded]
        options = [*[None] * len(residuals), *select_flagged(ins, nonzero)], select_flagged(outs, derived.nonzero)
        out_dot = self._bind(params, derived.linear, [*residuals, *given], *options, "linear")
        return out[:count], join_tangents(jaxpr.out_avals, derived.nonzero, out_dot)

    def transpose(self, y_bars: Sequence[Any], *operands: Any, **params: Any) -> tuple:
        ins, outs = self.input_output_options(params)
        linear, nonzero = [is_linear(x) for x in operands], [type(c) is not Zero for c in y_bars]
        derived, has = transpose_jaxpr(params[self.program], linear, nonzero)
        args = [*select_unflagged(operands, linear), *select_flagged(y_bars, nonzero)]
        given = [*select_unflagged(ins, linear), *select_flagged(outs, nonzero)]
        returned = [*select_flagged(select_flagged(ins, linear), has), *[None] * count_logs(derived)]
        x_bars = take_logs(derived, self._bind(params, derived, args, given, returned, "transpose"))
        return tuple(fill_flagged(linear, fill_flagged(has, x_bars)))

    def batch_axis(self, axis: AxisData, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple:
        mapped = [d is not None for d in dims]
        derived, out_mapped = batch_jaxpr(params[self.program], axis, mapped)
        ins, outs = (
            [self.batch_option(option, axis) if m else option for option, m in zip(options, which, strict=True)]
            for options, which in zip(self.input_output_options(params), (mapped, out_mapped), strict=True)
        )
        return self._bind(params, derived, axis.to_fronts(args, dims), ins, outs, "vmap"), front_dims(out_mapped)


class PartialEvalCall(TransformedCall, DivisibleCall):
    """A transformed call that partial evaluation divides, as it divides the jaxpr of the call."""

    def bind_call(self, args: Sequence[Any], params: dict) -> list:
        jaxpr = params[self.program]
        return self(*jaxpr.consts, *args, **params | {self.program: jaxpr.hoist()})

    def partial_eval_parts(self, params: dict, unknown: Sequence[bool], policy: Policy) -> PartialEvalJaxprs:
        """The known and the unknown part of the jaxpr; a subclass may choose the residuals by a policy of its own."""
        return partial_eval_inner_jaxpr(params[self.program], unknown, policy)

    def partial_eval(self, trace: LinearTrace, args: Sequence[Any], params: dict) -> list:
        unknown = [trace.is_unknown(x) for x in args]
        # Without known work, dividing the call would only add the overhead of an empty one.
        if all(unknown) or not has_known_work(params[self.program], unknown):
            return trace.record(self, args, params)
        return super().partial_eval(trace, args, params)

    def divide(self, params: dict, unknown: Sequence[bool], policy: Policy) -> Division | None:
        parts = self.partial_eval_parts(params, unknown, policy)
        ins, outs = self.input_output_options(params)
        between = [None] * len(parts.residuals)
        known = select_unflagged(ins, unknown), [*select_flagged(outs, parts.known_outputs), *between]
        waiting = [*between, *select_flagged(ins, parts.unknown_inputs)], select_flagged(outs, parts.unknown_outputs)
        return Division(
            known=self.derive_params(params, parts.known, *known, "known"),
            unknown=self.derive_params(params, parts.unknown, *waiting, "unknown"),
            known_inputs=[not u for u in unknown],
            known_outputs=parts.known_outputs,
            unknown_outputs=parts.unknown_outputs,
            residuals=parts.residuals,
            unknown_operands=lambda args, residuals: [*residuals, *select_flagged(args, parts.unknown_inputs)],
        )

    def dce(self, eqn: Eqn, used: Sequence[bool]) -> Eqn | None:
        """The call without unused outputs, and without the inputs that only these needed."""
        smaller, kept = dce_jaxpr(eqn.params[self.program], used)
        if not any(used) and not smaller.effects:
            return None
        ins, outs = self.input_output_options(eqn.params)
        options = select_flagged(ins, kept), select_flagged(outs, used)
        return eqn.replace(
            invars=select_flagged(eqn.invars, kept),
            outvars=select_flagged(eqn.outvars, used),
            params=self.derive_params(eqn.params, smaller, *options, "smaller"),
            effects=smaller.effects,
        )
