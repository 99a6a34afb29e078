"""`while_loop`: a loop that runs while a condition holds; the primitives `while` and `while_each` with all their rules.

The condition and the body are traced for the types of the carry. The number of iterations is unknown, so residuals
cannot be stacked: linearization runs the whole loop again for the tangents, and there is no transpose. `emit_while`
lowers the loops of other primitives too.

`vmap` of a loop whose condition depends on the example would run all examples until the last one ends, and would make
devices wait for each other in every iteration. Loops over small values are therefore batched to `while_each`, which
is lowered per shard: each device runs until its own examples are done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    REF_TYPES,
    AbstractRef,
    ArgumentError,
    ArgumentTypeError,
    Effects,
    Eqn,
    Jaxpr,
    Primitive,
    RefError,
    RuleError,
    ShapedArray,
    ShardingRule,
    Slot,
    Var,
    Zero,
    cached_on_jaxpr,
    check_effect,
    check_function,
    check_not_written,
    dce_jaxpr,
    discharge_jaxpr,
    effects as fx,
    format_code_position,
    get_aval,
    instantiate,
    is_varying,
    join_sharding_rules,
    join_tangents,
    named_axes,
    no_effects,
    program_sharding_rule,
    read_values,
    retrace_jaxpr,
    retype_jaxpr,
    run_jaxpr,
    select_flagged,
    split_tangents,
    state,
    trace_to_jaxpr,
    union_varying,
    widen_varying,
)
from phalanx.engine.mlir import hlo
from phalanx.lax.collectives.named_axes import check_no_divergence
from phalanx.lax.control_flow.control_flow_tracing import (
    check_carry,
    fixpoint,
    permute_inputs_outputs,
    promote_carry,
    restore_inputs,
    split_by_sizes,
    stage_body,
    unify_carry_varying,
)
from phalanx.lax.control_flow.python_control_flow import runs_in_python, while_in_python
from phalanx.lax.elementwise import select_n
from phalanx.lax.reductions.reduction_family import reduce_or
from phalanx.lax.shape import broadcast_in_dim
from phalanx.runtime import ORDER_TOKEN, LoweringContext, is_identified_by_text
from phalanx.transforms import (
    AxisData,
    HigherOrder,
    LinearTrace,
    Policy,
    batch_jaxpr,
    everything_saveable,
    front_dims,
    jvp_jaxpr,
    partial_eval_jaxpr,
    vmap_flat,
)
from phalanx.tree import PyTreeDef, tree_flatten, tree_unflatten, treedef_is_leaf
from phalanx.typing import ArrayLike, PyTree


def emit_while(
    ctx: LoweringContext,
    avals: Sequence[Any],
    init: Sequence[Any],
    ordered: Sequence[Any],
    condition: Callable,
    body_jaxpr: Callable,
) -> list:
    """Lower a while loop whose condition and body get the first value apart from the others.

    The tokens of ordered effects are carried in front of the values.

    Args:
      ctx: the lowering context.
      avals: the types of all loop values.
      init: their initial IR values.
      ordered: the ordered effects of the body.
      condition: (first, others) -> predicate.
      body: (first, others) -> (first, others).

    Returns:
      The final values.
    """
    count = len(ordered)
    all_avals = [*([ORDER_TOKEN] * count), *avals]
    # Tokens order effects across iterations: each iteration starts from the tokens of the one before.
    op = hlo.WhileOp([ctx.type(a) for a in all_avals], [*(ctx.token(e) for e in ordered), *init])
    outer = dict(ctx.tokens)

    def run_condition(*args: Any) -> Any:
        return condition(args[count], args[count + 1 :])

    def run_body(*args: Any) -> list:
        ctx.tokens.update(zip(ordered, args))
        first, others = body_jaxpr(args[count], args[count + 1 :])
        return [*(ctx.tokens[e] for e in ordered), first, *others]

    ctx.region(all_avals, op, run_condition, 0)
    ctx.region(all_avals, op, run_body, 1)
    ctx.tokens = outer | dict(zip(ordered, op.results))
    return list(op.results)[count:]


class _RepeatedLoop(Primitive):
    """A loop of unknown length, whose partial evaluation runs the known part first and then the whole loop again.

    There are no residuals: values of single iterations cannot be stacked, since their number is unknown. The second
    loop recomputes the known carry along with the unknown one.
    """

    def _known_part(self, params: dict, unknown: Sequence[bool]) -> tuple[list[bool], list[bool], dict]:
        """The operands, the carry and the parameters of the part that is independent of unknown operands."""
        return _known_while(params, unknown)

    def partial_eval(self, trace: LinearTrace, args: Sequence[Any], params: dict) -> list:
        known_in, known, smaller = self._known_part(params, [trace.is_unknown(x) for x in args])
        values = iter(self(*select_flagged(args, known_in), **smaller) if any(known) else ())
        recorded = trace.record(self, args, params)
        return [next(values) if k else x for x, k in zip(recorded, known, strict=True)]

    def partial_eval_eqn(self, eqn: Eqn, unknown: Sequence[bool], policy: Policy) -> tuple:
        """Divide an equation: the known part of the loop or None, the whole loop, and no residuals."""
        known_in, known, smaller = self._known_part(eqn.params, unknown)
        if not any(known):
            return None, eqn, []
        ins, outs = select_flagged(eqn.invars, known_in), select_flagged(eqn.outvars, known)
        first = eqn.replace(invars=ins, outvars=outs, params=smaller, effects=no_effects)
        if policy is everything_saveable:
            # The known results come from the first loop; the second one gets unused variables for them.
            eqn = eqn.replace(outvars=[Var(v.aval) if k else v for v, k in zip(eqn.outvars, known, strict=True)])
        return first, eqn, []


class While(_RepeatedLoop, HigherOrder, name="while"):
    """A loop while a condition holds: (*condition constants, *body constants, *carry) -> carry."""

    def sharding_rule(
        self, *avals: Any, cond_jaxpr: Jaxpr, body_jaxpr: Jaxpr, cond_nconsts: int, body_nconsts: int
    ) -> ShardingRule:
        in_cond, in_body, carry = split_by_sizes(
            range(len(avals)), [cond_nconsts, body_nconsts, len(body_jaxpr.outvars)]
        )
        cond_rule = program_sharding_rule(cond_jaxpr)
        condition = ShardingRule(cond_rule.operands, [], cond_rule.reduced, cond_rule.whole)
        after = range(len(avals), len(avals) + len(carry))
        parts = [(condition, [*in_cond, *carry], []), (program_sharding_rule(body_jaxpr), [*in_body, *carry], after)]
        # All shards must run the same number of iterations, and partial sums must not be carried: `reduces=False`.
        return join_sharding_rules(avals, body_jaxpr.out_avals, parts, carried=list(zip(carry, after)), reduces=False)

    def abstract_eval(
        self, *avals: Any, cond_jaxpr: Jaxpr, body_jaxpr: Jaxpr, cond_nconsts: int, body_nconsts: int
    ) -> list:
        return body_jaxpr.out_avals

    def update_varying(self, avals: Sequence[Any], params: dict) -> dict:
        cond_jaxpr, body_jaxpr = params["cond_jaxpr"], params["body_jaxpr"]
        if not is_varying(avals, body_jaxpr.out_avals, cond_jaxpr.out_avals):
            return params
        c, b = params["cond_nconsts"], params["body_nconsts"]
        in_cond, in_body, count = list(avals[:c]), list(avals[c:]), len(body_jaxpr.outvars)
        # The carry may make the condition vary, which in turn makes the carry vary: iterate to a fixpoint.
        while True:
            body_jaxpr = unify_carry_varying(body_jaxpr, in_body, b, count)
            cond_jaxpr = retype_jaxpr(cond_jaxpr, [*in_cond, *body_jaxpr.out_avals])
            axes = cond_jaxpr.out_avals[0].varying
            # A carried value that the body returns unchanged does not depend on the number of iterations.
            kept = [False] * b + [v is out for v, out in zip(body_jaxpr.invars[b:], body_jaxpr.outvars, strict=True)]
            in_body = [
                a if k else a.with_varying(a.varying | axes) for a, k in zip(body_jaxpr.in_avals, kept, strict=True)
            ]
            if in_body == body_jaxpr.in_avals:
                break
        check_no_divergence("while_loop, the result of cond_fun", axes, (cond_jaxpr, body_jaxpr))
        return params | {"cond_jaxpr": cond_jaxpr, "body_jaxpr": body_jaxpr}

    def effects(self, *avals: Any, cond_jaxpr: Jaxpr, body_jaxpr: Jaxpr, **_: Any) -> Effects:
        return cond_jaxpr.effects | body_jaxpr.effects

    def lower(
        self,
        ctx: LoweringContext,
        *operands: Any,
        cond_jaxpr: Jaxpr,
        body_jaxpr: Jaxpr,
        cond_nconsts: int,
        body_nconsts: int,
    ) -> list:
        c, n = cond_nconsts, cond_nconsts + body_nconsts

        def split(values: Sequence[Any]) -> tuple:
            return values[:c], values[c:n], values[n:]

        def condition(first: Any, others: Sequence[Any]) -> Any:
            in_cond, _, carry = split([first, *others])
            return ctx.emit(cond_jaxpr, [*in_cond, *carry], "while", "cond")[0]

        def step(first: Any, others: Sequence[Any]) -> tuple:
            in_cond, in_body, carry = split([first, *others])
            out = [*in_cond, *in_body, *ctx.emit(body_jaxpr, [*in_body, *carry], "while", "body")]
            return out[0], out[1:]

        avals = [*cond_jaxpr.in_avals[:c], *body_jaxpr.in_avals]
        return emit_while(ctx, avals, operands, fx.ordered(body_jaxpr.effects), condition, step)[n:]

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        cond_jaxpr: Jaxpr,
        body_jaxpr: Jaxpr,
        cond_nconsts: int,
        body_nconsts: int,
    ) -> tuple:
        sizes = [cond_nconsts, body_nconsts, len(body_jaxpr.outvars)]
        in_cond, in_body, init = split_by_sizes(primals, sizes)
        _, body_dot, init_dot = split_by_sizes(tangents, sizes)
        nz_body, body_dot = split_tangents(body_dot)

        derived, nz_carry = fixpoint(
            [type(t) is not Zero for t in init_dot],
            lambda nz_carry: jvp_jaxpr(body_jaxpr, [*nz_body, *nz_carry], nz_carry),
        )
        init_dot = [instantiate(t) for t in select_flagged(init_dot, nz_carry)]
        joint = permute_inputs_outputs(
            derived,
            [len(in_body), len(init), len(body_dot), len(init_dot)],
            [0, 2, 1, 3],
            [len(init), len(init_dot)],
            [0, 1],
        )
        # The condition of the derived loop ignores the tangents in the carry.
        wide = cond_jaxpr.derive(
            ("wide", tuple(nz_carry)),
            lambda: cond_jaxpr.replace(
                invars=[
                    *cond_jaxpr.invars,
                    *(Var(a.to_tangent()) for a in select_flagged(body_jaxpr.out_avals, nz_carry)),
                ]
            ),
        )
        out = self(
            *in_cond,
            *derived.consts,
            *in_body,
            *body_dot,
            *init,
            *init_dot,
            cond_jaxpr=wide,
            body_jaxpr=joint,
            cond_nconsts=cond_nconsts,
            body_nconsts=len(derived.consts) + len(in_body) + len(body_dot),
        )
        return out[: len(init)], join_tangents(body_jaxpr.out_avals, nz_carry, out[len(init) :])

    def partial_eval(self, trace: LinearTrace, args: Sequence[Any], params: dict) -> list:
        # The loop runs twice, but its writes must happen once: it gets values, and the known ones are written.
        if not REF_TYPES.isdisjoint(map(type, args)):
            return self.bind_on_values(args, params)
        return super().partial_eval(trace, args, params)

    def partial_eval_eqn(self, eqn: Eqn, unknown: Sequence[bool], policy: Policy) -> tuple:
        if any(isinstance(a.aval, AbstractRef) for a in eqn.invars):
            raise RefError(
                "differentiation of while_loop (or fori_loop with traced bounds) in a rematerialized function",
                expected="a loop without mutable array references from outside",
                got=", ".join(a.aval.str_short() for a in eqn.invars if isinstance(a.aval, AbstractRef)),
                fix="carry the value through the loop, and write it into the reference afterwards",
            )
        return super().partial_eval_eqn(eqn, unknown, policy)

    def discharge(
        self, args: Sequence[Any], slots: Sequence[Slot | None], params: dict
    ) -> tuple[list, Sequence[Slot], Sequence[Any]]:
        """References that the body writes become carried values, which the condition may read."""
        cond_jaxpr, body_jaxpr = params["cond_jaxpr"], params["body_jaxpr"]
        c, b = params["cond_nconsts"], params["body_nconsts"]
        check_not_written("while_loop, cond_fun", cond_jaxpr)
        pure_body, written = discharge_jaxpr(body_jaxpr, slots[c:])
        pure_cond, _ = discharge_jaxpr(cond_jaxpr, [*slots[:c], *[None] * (len(args) - c - b)], ())
        values = read_values(args, slots)

        def divide(items: Sequence[Any], numbers: Sequence[Slot | None]) -> tuple[list, list]:
            """Items of constants: those that stay, and items of the carried references, None where there is none."""
            found = {n: x for x, n in zip(items, numbers, strict=True) if n in written}
            return [x for x, n in zip(items, numbers, strict=True) if n not in written], [found.get(n) for n in written]

        in_cond, cond_carry = divide(pure_cond.invars[:c], slots[:c])
        in_body, body_carry = divide(pure_body.invars[:b], slots[c : c + b])
        count = len(body_jaxpr.outvars)
        fresh = [v or Var(new.aval) for v, new in zip(cond_carry, body_carry, strict=True)]
        cond_consts, _ = divide(values[:c], slots[:c])
        body_consts, start = divide(values[c : c + b], slots[c : c + b])
        out = self(
            *pure_cond.consts,
            *cond_consts,
            *pure_body.consts,
            *body_consts,
            *start,
            *values[c + b :],
            cond_jaxpr=_open(pure_cond, [*in_cond, *fresh, *pure_cond.invars[c:]], pure_cond.outvars),
            body_jaxpr=_open(
                pure_body,
                [*in_body, *body_carry, *pure_body.invars[b:]],
                [*pure_body.outvars[count:], *pure_body.outvars[:count]],
            ),
            cond_nconsts=len(pure_cond.consts) + len(cond_consts),
            body_nconsts=len(pure_body.consts) + len(body_consts),
        )
        return out[len(written) :], written, out[: len(written)]

    def transpose(self, y_bars: Sequence[Any], *operands: Any, **_: Any) -> tuple:
        raise RuleError(
            "reverse-mode differentiation of while_loop (or fori_loop with traced bounds)",
            expected="a loop with a number of iterations that is known while tracing",
            got="one that ends when its condition is false",
            fix="use scan, fori_loop with static bounds, or forward mode (jvp, jacfwd)",
        )

    def batch_axis(self, axis: AxisData, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple:
        mapped = [d is not None for d in dims]
        # Weights and other large operands may be sharded over devices that work on each example together.
        if params["body_jaxpr"].effects and _condition_is_mapped(axis, mapped, **params):
            check_not_written("vmap of while_loop with a mapped condition, body_fun", params["body_jaxpr"])
        if _is_small(params["body_jaxpr"], params["cond_jaxpr"]) and _condition_is_mapped(axis, mapped, **params):
            # The sharding rule of `while_each` determines the sharding of results.
            params |= {name: _drop_shardings(params[name]) for name in ("cond_jaxpr", "body_jaxpr")}
            out = while_each_p(*axis.to_fronts(args, dims), levels=(tuple(mapped),), **params)
            return out, [0] * len(out)
        return self.batch_jointly(axis, args, dims, **params)

    def batch_jointly(
        self,
        axis: AxisData,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        cond_jaxpr: Jaxpr,
        body_jaxpr: Jaxpr,
        cond_nconsts: int,
        body_nconsts: int,
    ) -> tuple:
        """Batch to one loop, which runs until the last example is done; arguments and result as in `batch_axis`."""
        sizes = [cond_nconsts, body_nconsts, len(body_jaxpr.outvars)]
        m_cond, m_body, m_init = split_by_sizes([d is not None for d in dims], sizes)

        def step(m_carry: list[bool]) -> tuple:
            derived, out = batch_jaxpr(body_jaxpr, axis, [*m_body, *m_carry], m_carry)
            predicate, (by_example,) = batch_jaxpr(cond_jaxpr, axis, [*m_cond, *m_carry])
            # Examples end in different iterations, so every carried value depends on the example.
            if by_example:
                out = [True] * len(out)
            return (derived, predicate, by_example), out

        (derived, predicate, by_example), m_carry = fixpoint(m_init, step)
        in_cond, in_body, init = split_by_sizes(axis.to_fronts(args, dims), sizes)
        init = [axis.to_front(x, None) if m and not was else x for x, was, m in zip(init, m_init, m_carry)]
        if by_example:
            if check_effect in cond_jaxpr.effects | body_jaxpr.effects:
                raise batched_check_error()
            predicate, derived = _while_any(predicate, derived, len(in_cond), len(in_body))
            in_body = [*in_cond, *in_body]
        in_cond, in_body = [*predicate.consts, *in_cond], [*derived.consts, *in_body]
        out = self(
            *in_cond,
            *in_body,
            *init,
            cond_jaxpr=predicate.hoist(),
            body_jaxpr=derived.hoist(),
            cond_nconsts=len(in_cond),
            body_nconsts=len(in_body),
        )
        return out, front_dims(m_carry)

    @staticmethod
    def dce(eqn: Eqn, used: Sequence[bool]) -> Eqn | None:
        """The loop without carried values that neither its condition nor a used result needs."""
        params = eqn.params
        cond_jaxpr, body_jaxpr = params["cond_jaxpr"], params["body_jaxpr"]
        c, b = params["cond_nconsts"], params["body_nconsts"]
        if not any(used) and not (cond_jaxpr.effects | body_jaxpr.effects):
            return None
        # The condition runs in every iteration, so what it reads is needed even if no result is used.
        _, cond_reads = dce_jaxpr(cond_jaxpr, [True])

        def step(carry: list[bool]) -> tuple:
            smaller, kept = dce_jaxpr(body_jaxpr, carry)
            return (smaller, kept), kept[b:]

        # The carry needed is a fixpoint: a kept value may read further ones in the next iteration.
        (smaller, kept), carry = fixpoint([u or r for u, r in zip(used, cond_reads[c:])], step)
        if all(carry):
            return eqn
        smaller, kept = restore_inputs(body_jaxpr, smaller, kept, [*kept[:b], *carry])
        return eqn.replace(
            invars=[*eqn.invars[:c], *select_flagged(eqn.invars[c:], kept)],
            outvars=select_flagged(eqn.outvars, carry),
            params={
                "cond_jaxpr": cond_jaxpr.replace(
                    invars=[*cond_jaxpr.invars[:c], *select_flagged(cond_jaxpr.invars[c:], carry)]
                ),
                "body_jaxpr": smaller,
                "cond_nconsts": c,
                "body_nconsts": sum(kept[:b]),
            },
        )


while_p = While()


def _open(jaxpr: Jaxpr, invars: Sequence[Var], outvars: Sequence[Any]) -> Jaxpr:
    """A jaxpr with its constants as leading inputs, and with other inputs and outputs."""
    return jaxpr.replace(invars=[*jaxpr.constvars, *invars], outvars=outvars, constvars=(), consts=())


# The largest operand of a `while_each`, in elements. Larger operands, such as weights, may be sharded themselves.
_SMALL = 4096


class WhileEach(_RepeatedLoop, name="while_each", multiple=True):
    """Independent loops over small values, one per element of the batch dimensions `e`: any[*e, *d] -> any[*e, *d].

    This is `vmap` of a `while` whose condition depends on the example. The parameters are the ones of a loop and
    `levels`: for each `vmap`, innermost first, which operands it maps. Mapped dimensions are in front. Each device runs
    until its own examples are done.
    """

    call_like = True
    transpose = While.transpose

    def abstract_eval(self, *avals: Any, levels: tuple, body_jaxpr: Jaxpr, **_: Any) -> list:
        shape = _level_sizes([a.shape for a in avals], levels)[::-1]
        axes = union_varying(avals)
        return [a.with_shape((*shape, *a.shape)).with_varying(a.varying | axes) for a in body_jaxpr.out_avals]

    def sharding_rule(self, *avals: Any, levels: tuple, body_jaxpr: Jaxpr, **_: Any) -> ShardingRule:
        front = range(len(levels) - 1, -1, -1)
        mapped = [[n for n in front if levels[n][i]] for i in range(len(avals))]
        within = [[(i, d) for d in range(a.ndim - len(m))] for i, (a, m) in enumerate(zip(avals, mapped, strict=True))]
        after = [[(len(avals) + i, d) for d in range(v.aval.ndim)] for i, v in enumerate(body_jaxpr.outvars)]
        return ShardingRule(
            [[*front, *own] for front, own in zip(mapped, within, strict=True)],
            [[*front, *own] for own in after],
            whole={name for own in (*within, *after) for name in own},
        )

    def lower(self, ctx: LoweringContext, *operands: Any, levels: tuple, **params: Any) -> list:
        def one_loop(axis: AxisData, xs: Any, dims: Sequence[int | None]) -> tuple:
            return while_p.batch_jointly(axis, xs, dims, **params)

        return ctx.inline(lambda *xs: _vmap_levels(one_loop, xs, levels), *operands)

    def with_mask(self, *, levels: tuple, cond_jaxpr: Jaxpr, cond_nconsts: int, **params: Any) -> dict[str, Any]:
        """The parameters of the loops that take a mask bool[*e] as first operand, and run where it is True."""

        def condition(mask: Any, *args: Any) -> list:
            return [select_n(mask, mask, run_jaxpr(cond_jaxpr, *args)[0])]

        masked = trace_to_jaxpr(
            condition, [ShapedArray((), np.dtype(bool)), *cond_jaxpr.in_avals], cond_jaxpr.debug_name
        )
        return params | {
            "levels": tuple([(True, *level) for level in levels]),
            "cond_jaxpr": masked,
            "cond_nconsts": cond_nconsts + 1,
        }

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, levels: tuple, **params: Any) -> tuple:
        nonzero, given = split_tangents(tangents)
        has: list[bool] = []

        def one(*xs: Any) -> list:
            x = xs[: len(primals)]
            out, out_dot = while_p.jvp(x, join_tangents([get_aval(v) for v in x], nonzero, xs[len(x) :]), **params)
            has[:], nonzero_dot = split_tangents(out_dot)
            return [*out, *nonzero_dot]

        wide = [(*level, *select_flagged(level, nonzero)) for level in levels]
        out = _vmap_levels(lambda axis, xs, dims: vmap_flat(one, xs, dims, axis), [*primals, *given], wide)
        count = len(params["body_jaxpr"].outvars)
        return out[:count], join_tangents([get_aval(y) for y in out[:count]], has, out[count:])

    def _known_part(self, params: dict, unknown: Sequence[bool]) -> tuple[list[bool], list[bool], dict]:
        """The part of one loop; nothing is known if only unknown operands have some mapped dimension."""
        known_in, known, smaller = _known_while(params, unknown)
        levels = tuple([tuple(select_flagged(level, known_in)) for level in params["levels"]])
        if not all(any(level) for level in levels):
            known = [False] * len(known)
        return known_in, known, smaller | {"levels": levels}

    def batch_axis(
        self, axis: AxisData, args: Sequence[Any], dims: Sequence[int | None], *, levels: tuple, **params: Any
    ) -> tuple:
        out = self(*axis.to_fronts(args, dims), levels=(*levels, tuple([d is not None for d in dims])), **params)
        return out, [0] * len(out)


while_each_p = WhileEach()


def batched_check_error() -> ArgumentError:
    """The error for checks in a loop that goes on for examples that have ended."""
    return ArgumentError(
        "checkify of a while loop under vmap",
        expected="a loop that ends for all examples at once",
        got="checkify-of-vmap-of-while, whose checks would also see examples that have ended",
        fix="apply vmap to the checked function: vmap(checkify(f))",
    )


@cached_on_jaxpr
def _is_small(body_jaxpr: Jaxpr, cond_jaxpr: Jaxpr) -> bool:
    """Whether a loop reads and carries only small, unsharded values, without effects and collectives."""
    avals = [*cond_jaxpr.in_avals, *body_jaxpr.in_avals]
    return (
        all(not a.is_symbolic and a.size <= _SMALL for a in avals)
        and not any(a.type_sharding is not None and a.type_sharding.spec.axes for a in avals)
        and all(not (p.effects or named_axes(p)) and is_identified_by_text(p) for p in (cond_jaxpr, body_jaxpr))
    )


def _drop_shardings(jaxpr: Jaxpr) -> Jaxpr:
    """A jaxpr without shardings over Explicit axes in its types."""
    if all(a.type_sharding is None for a in (*jaxpr.in_avals, *jaxpr.out_avals)):
        return jaxpr
    return retrace_jaxpr(jaxpr, [a.drop_sharding() for a in jaxpr.in_avals])


def _condition_is_mapped(
    axis: AxisData, mapped: Sequence[bool], cond_jaxpr: Jaxpr, body_jaxpr: Jaxpr, cond_nconsts: int, body_nconsts: int
) -> bool:
    """Whether the condition depends on the example."""
    m_cond, m_body, m_init = split_by_sizes(mapped, [cond_nconsts, body_nconsts, len(body_jaxpr.outvars)])
    _, m_carry = fixpoint(m_init, lambda m_carry: batch_jaxpr(body_jaxpr, axis, [*m_body, *m_carry], m_carry))
    return batch_jaxpr(cond_jaxpr, axis, [*m_cond, *m_carry])[1][0]


def _level_sizes(shapes: Sequence[tuple], levels: Sequence[Sequence[bool]]) -> list:
    """The size of the mapped axis of each level."""
    # Any mapped operand has it. Mapped dimensions of outer levels are in front of this level's.
    first = [list(level).index(True) for level in levels]
    return [shapes[i][sum(outer[i] for outer in levels[n + 1 :])] for n, i in enumerate(first)]


def _vmap_levels(innermost: Callable, xs: Sequence[Any], levels: Sequence[Sequence[bool]]) -> list:
    """Map over all levels, the outermost first; `innermost(axis, operands, dims)` batches the loop itself."""
    # The axis of a level has no name: loops with collectives are never batched to `while_each` (see `_is_small`).
    axis = AxisData(_level_sizes([get_aval(x).shape for x in xs], levels)[-1])
    dims = front_dims(levels[-1])
    if len(levels) == 1:
        out, out_dims = innermost(axis, xs, dims)
    else:
        out, out_dims = vmap_flat(lambda *ys: _vmap_levels(innermost, ys, levels[:-1]), xs, dims, axis)
    return [axis.to_front(y, d) for y, d in zip(out, out_dims, strict=True)]


def _while_any(predicate: Jaxpr, body_jaxpr: Jaxpr, num_cond: int, num_body: int) -> tuple[Jaxpr, Jaxpr]:
    """The condition and body of a loop that runs while the condition of any example holds.

    The body updates only the examples whose condition holds.

    Returns:
      The condition (its constants, carry) and the body (constants of the condition, constants of the body, carry).
    """
    carry = body_jaxpr.out_avals
    cond_avals, body_avals = predicate.in_avals[:num_cond], body_jaxpr.in_avals[:num_body]

    def condition(*args: Any) -> list:
        return [reduce_or(run_jaxpr(predicate, *args)[0], (0,))]

    def step(*args: Any) -> list:
        in_cond, in_body, held = split_by_sizes(args, [num_cond, num_body, len(carry)])
        (active,) = run_jaxpr(predicate, *in_cond, *held)
        return [
            select_n(broadcast_in_dim(active, aval.shape, (0,)), old, new)
            for aval, old, new in zip(carry, held, run_jaxpr(body_jaxpr, *in_body, *held))
        ]

    return (
        trace_to_jaxpr(condition, [*cond_avals, *carry], predicate.debug_name),
        trace_to_jaxpr(step, [*cond_avals, *body_avals, *carry], body_jaxpr.debug_name),
    )


def _known_while(params: dict, unknown: Sequence[bool]) -> tuple[list[bool], list[bool], dict]:
    """The part of a while loop that is independent of unknown operands: its operands, its carry, its parameters."""
    cond_jaxpr, body_jaxpr = params["cond_jaxpr"], params["body_jaxpr"]
    c, b = params["cond_nconsts"], params["body_nconsts"]
    u_cond, u_body, u_init = split_by_sizes(unknown, [c, b, len(body_jaxpr.outvars)])

    def step(u_carry: list[bool]) -> tuple:
        parts = partial_eval_jaxpr(body_jaxpr, [*u_body, *u_carry], unknown_outputs=u_carry)
        return parts, parts.unknown_outputs

    # If the condition is unknown, so is the number of iterations, and with it every carried value.
    _, u_carry = fixpoint(u_init, step)
    _, reads = dce_jaxpr(cond_jaxpr, [True])
    if any(r and u for r, u in zip(reads, [*u_cond, *u_carry])):
        u_carry = [True] * len(u_carry)
    known = [not u for u in u_carry]
    smaller, kept = dce_jaxpr(body_jaxpr, known)
    smaller, kept = restore_inputs(
        body_jaxpr, smaller, kept, [*([k and not u for k, u in zip(kept[:b], u_body)]), *known]
    )
    keep_cond = cond_jaxpr.replace(invars=[*cond_jaxpr.invars[:c], *select_flagged(cond_jaxpr.invars[c:], known)])
    return (
        [*([True] * c), *kept],
        known,
        {"cond_jaxpr": keep_cond, "body_jaxpr": smaller, "cond_nconsts": c, "body_nconsts": sum(kept[:b])},
    )


def while_loop(
    cond_fun: Callable[[PyTree], ArrayLike], body_fun: Callable[[PyTree], PyTree], init_val: PyTree
) -> PyTree:
    """Repeat a function while a condition holds.

    Args:
      cond_fun: from the carry to a boolean scalar.
      body_fun: from the carry to the next carry, of the same structure and types.
      init_val: the initial carry, a pytree.

    Returns:
      The first carry for which the condition is false. A `while_loop` cannot be differentiated in reverse mode.

    Raises:
      ArgumentTypeError: the condition does not return a boolean scalar, or the body changes the types of the carry.
      TreeError: the body changes the structure of the carry.

    Examples:
      >>> import phalanx
      >>> int(phalanx.lax.while_loop(lambda x: x < 10, lambda x: 2 * x, 1))
      16
    """
    for name, fun in (("cond_fun", cond_fun), ("body_fun", body_fun)):
        check_function(f"while_loop, argument {name}", fun)
    label = lambda path: f"while_loop, result{path} of body_fun = {format_code_position(body_fun)}"
    return bind_while(cond_fun, body_fun, init_val, label)


def bind_while(
    cond_fun: Callable[[PyTree], ArrayLike],
    body_fun: Callable[[PyTree], PyTree],
    init_val: PyTree,
    result_label: Callable[[str], str],
    num_counters: int = 0,
) -> PyTree:
    """Trace a condition and a body and bind `while_p`.

    Args:
      cond_fun, body_fun, init_val: as in `while_loop`.
      result_label: names a place in the user's part of the returned carry, for errors.
      num_counters: how many scalars are carried in front of the user's part.
    """
    if state.context.disable_jit and runs_in_python(goes_on := cond_fun(init_val)):
        return while_in_python(cond_fun, body_fun, init_val, goes_on)
    flat, tree = tree_flatten(init_val)
    in_tree = tree_flatten((init_val,))[1]

    def make(avals: Sequence[ShapedArray]) -> tuple:
        body = stage_body(body_fun, in_tree, avals, "while_loop body")
        after = body.jaxpr.out_avals
        if not is_varying(avals, after):
            return body, after
        # Devices whose conditions differ run different numbers of iterations, so every value that the body changes
        # varies over the axes that the condition varies over.
        axes = union_varying(
            stage_body(cond_fun, in_tree, widen_varying(avals, after), "while_loop condition").jaxpr.out_avals
        )
        carried = zip(after, body.jaxpr.invars[len(body.consts) :], body.jaxpr.outvars, strict=True)
        return body, [a if v_in is v_out else a.with_varying(a.varying | axes) for a, v_in, v_out in carried]

    flat, avals, (body, after) = promote_carry(flat, make)
    check_carry(
        result_label, lambda path: f"init_val{path}", (tree, avals), (body.out_tree, after), num_counters=num_counters
    )
    # The condition is traced last, for the final types of the carry.
    condition = stage_body(cond_fun, in_tree, avals, "while_loop condition")
    _check_predicate(cond_fun, condition.jaxpr.out_avals, condition.out_tree)
    out = while_p(
        *condition.consts,
        *body.consts,
        *flat,
        cond_jaxpr=condition.jaxpr,
        body_jaxpr=body.jaxpr,
        cond_nconsts=len(condition.consts),
        body_nconsts=len(body.consts),
    )
    return tree_unflatten(tree, out)


def _check_predicate(cond_fun: Callable, avals: Sequence[ShapedArray], tree: PyTreeDef) -> None:
    """Refuse a condition that does not return one boolean scalar."""
    if not treedef_is_leaf(tree) or avals[0].shape != () or avals[0].dtype != np.bool_:
        types = ", ".join(a.str_short() for a in avals) or "no arrays"
        raise ArgumentTypeError(
            f"while_loop, the result of cond_fun = {format_code_position(cond_fun)}",
            expected="a boolean scalar",
            got=types if treedef_is_leaf(tree) else f"a {type(tree_unflatten(tree, avals)).__name__} of {types}",
            fix="return a comparison, or reduce the result with .any() or .all()",
        )
