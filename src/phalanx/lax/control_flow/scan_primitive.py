"""The primitive `scan` and all its rules.

Most rules start with a fixpoint over the carry: which carried values have tangents, are mapped, or are unknown. The
derived body is then called with its operands regrouped as (constants, carry, stacked inputs).

Reverse mode: linearization turns a scan into a primal scan, which stacks the residuals of all iterations, and a linear
scan over them. A residual that is the same in every iteration is computed once, outside of the loop. Transposing the
linear scan gives a scan in the opposite direction, which carries the cotangents of the carry and adds up the
cotangents of the constants. `scan.py` binds the primitive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import (
    Effects,
    Eqn,
    Jaxpr,
    Literal,
    RuleError,
    ShapedArray,
    ShardingRule,
    Slot,
    Zero,
    add_tangents,
    cached_on_jaxpr,
    dce_jaxpr,
    discharge_jaxpr,
    dtypes,
    effects as fx,
    fill_flagged,
    get_aval,
    instantiate,
    is_linear,
    is_varying,
    join_sharding_rules,
    join_tangents,
    merge_lists,
    physical_aval,
    program_sharding_rule,
    read_values,
    remove_dead_code,
    run_jaxpr,
    select_flagged,
    select_unflagged,
    split_tangents,
    trace_to_jaxpr,
    union_varying,
    vector_space,
)
from phalanx.engine.mlir import hlo
from phalanx.lax.control_flow.control_flow_tracing import (
    fixpoint,
    permute_inputs_outputs,
    restore_inputs,
    split_by_sizes,
    unify_carry_varying,
)
from phalanx.lax.control_flow.while_loop import emit_while
from phalanx.runtime import LoweringContext, result_memories
from phalanx.symbolic import bounds, is_symbolic, max_dim
from phalanx.transforms import (
    AxisData,
    DivisibleCall,
    Division,
    LinearTrace,
    PartialEvalJaxprs,
    Policy,
    batch_jaxpr,
    front_dims,
    jvp_jaxpr,
    linearize_jaxpr,
    move_mapped_dim,
    partial_eval_inner_jaxpr,
    take_logs,
    transpose_jaxpr,
)
from phalanx.typing import ArrayLike, DimSize


class ScanLayout(NamedTuple):
    """How the operands of a scan are grouped, and how its iterations run."""

    num_consts: int
    num_carry: int
    length: Any
    reverse: bool
    unroll: int

    def split(self, items: Sequence[Any]) -> tuple[list, list, list]:
        """One item per operand, divided into items of the constants, of the carry and of the stacked inputs."""
        c, n = self.num_consts, self.num_consts + self.num_carry
        return list(items[:c]), list(items[c:n]), list(items[n:])


class Scan(DivisibleCall, name="scan"):
    """A loop over stacked inputs: (*constants, *carry, *xs) -> (*carry, *ys), `jaxpr` being one iteration."""

    def sharding_rule(self, *avals: Any, jaxpr: Jaxpr, layout: ScanLayout) -> ShardingRule:
        body, carry = program_sharding_rule(jaxpr), layout.num_carry
        consts = layout.num_consts
        once = object()  # the dimension of the iterations, which are sequential and cannot be sharded
        operands = [(once, *n) if i >= consts + carry else n for i, n in enumerate(body.operands)]
        results = [(once, *n) if i >= carry else n for i, n in enumerate(body.results)]
        stacked = ShardingRule(operands, results, body.reduced, {*body.whole, once})
        count = len(operands)
        part = (stacked, range(count), range(count, count + len(results)))
        carried = [(consts + i, count + i) for i in range(carry)]
        return join_sharding_rules(avals, self.abstract_eval(jaxpr=jaxpr, layout=layout), [part], carried=carried)

    def abstract_eval(self, *avals: Any, jaxpr: Jaxpr, layout: ScanLayout) -> list:
        carry, ys = jaxpr.out_avals[: layout.num_carry], jaxpr.out_avals[layout.num_carry :]
        return [*carry, *(y.with_dim(0, layout.length) for y in ys)]

    def update_varying(self, avals: Sequence[Any], params: dict) -> dict:
        jaxpr, layout = params["jaxpr"], params["layout"]
        if not is_varying(avals, jaxpr.out_avals):
            return params
        c, n = layout.num_consts, layout.num_carry
        body = unify_carry_varying(jaxpr, avals, c, n)
        # Operands are retyped to vary over the axes of the whole loop where this does not change the results. The
        # cotangent of an operand that does not vary is summed over devices, which would happen in every iteration.
        axes = union_varying(body.in_avals)
        apart = [a.with_varying(axes) if a.to_tangent().dtype == a.dtype else a for a in body.in_avals]
        wider = unify_carry_varying(body, [*apart[:c], *body.in_avals[c : c + n], *apart[c + n :]], c, n)
        return params | {"jaxpr": wider if wider.out_avals == body.out_avals else body}

    def effects(self, *avals: Any, jaxpr: Jaxpr, layout: ScanLayout) -> Effects:
        return jaxpr.effects

    def memories(self, held: Sequence[str | None], *, jaxpr: Jaxpr, layout: ScanLayout) -> list[str | None]:
        return result_memories(jaxpr, held)

    def lower(self, ctx: LoweringContext, *operands: Any, jaxpr: Jaxpr, layout: ScanLayout) -> list:
        return _lower_scan(ctx, operands, jaxpr, layout)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Jaxpr, layout: ScanLayout) -> tuple:
        nz_consts, nz_init, nz_xs = layout.split([type(t) is not Zero for t in tangents])
        num_ys = len(jaxpr.outvars) - layout.num_carry

        def step(nz_carry: list[bool]) -> tuple:
            derived, has = jvp_jaxpr(jaxpr, [*nz_consts, *nz_carry, *nz_xs], [*nz_carry, *([False] * num_ys)])
            return (derived, has), has[: layout.num_carry]

        (derived, has), nz_carry = fixpoint(nz_init, step)
        consts, init, xs = layout.split(primals)
        consts_dot, init_dot, xs_dot = layout.split(tangents)
        init_dot = [instantiate(t) for t in select_flagged(init_dot, nz_carry)]
        consts_dot, xs_dot = select_flagged(consts_dot, nz_consts), select_flagged(xs_dot, nz_xs)
        # The derived body takes all primals, then all tangents; a scan groups them by constants, carry and inputs.
        groups = [len(consts), len(init), len(xs), len(consts_dot), len(init_dot), len(xs_dot)]
        outs = [layout.num_carry, num_ys, len(init_dot), sum(has) - len(init_dot)]
        body = permute_inputs_outputs(derived, groups, [0, 3, 1, 4, 2, 5], outs, [0, 2, 1, 3])
        joint = layout._replace(num_consts=len(derived.consts) + groups[0] + groups[3], num_carry=groups[1] + groups[4])
        out = self(*derived.consts, *consts, *consts_dot, *init, *init_dot, *xs, *xs_dot, jaxpr=body, layout=joint)
        carry, carry_dot, ys, ys_dot = split_by_sizes(out, [outs[0], outs[2], outs[1], outs[3]])
        return [*carry, *ys], join_tangents(self.abstract_eval(jaxpr=jaxpr, layout=layout), has, [*carry_dot, *ys_dot])

    def linearize(self, trace: LinearTrace, primals: Sequence[Any], tangents: Sequence[Any], params: dict) -> tuple:
        jaxpr, layout = params["jaxpr"], params["layout"]
        nz_consts, nz_init, nz_xs = layout.split([type(t) is not Zero for t in tangents])
        num_ys = len(jaxpr.outvars) - layout.num_carry

        def step(nz_carry: list[bool]) -> tuple:
            linearized = linearize_jaxpr(jaxpr, [*nz_consts, *nz_carry, *nz_xs], [*nz_carry, *([False] * num_ys)])
            return linearized, linearized.nonzero[: layout.num_carry]

        # A carry may get its tangent in the first iteration only, so the body is linearized for the fixpoint.
        linearized, nz_carry = fixpoint(nz_init, step)
        primal = linearized.primal.hoist()
        forward = layout._replace(num_consts=layout.num_consts + len(linearized.primal.consts))
        # The residuals as variables of the primal body: an input of the body, or an output after the user's.
        inputs = [None if f is None else primal.invars[f + len(linearized.primal.consts)] for f in linearized.forwarded]
        returned = iter(primal.outvars[len(jaxpr.outvars) :])
        residual_vars = [next(returned) if v is None else v for v in inputs]
        out, residuals, invariant = _run_forward(
            self, primal, forward, [*linearized.primal.consts, *primals], residual_vars, len(jaxpr.outvars)
        )

        # The linear body takes (constants, residuals, tangents). Residuals that are the same in every iteration become
        # constants of the linear scan; the others are stacked inputs.
        linear = linearized.linear.hoist()
        consts_dot, init_dot, xs_dot = layout.split(tangents)
        consts_dot, xs_dot = select_flagged(consts_dot, nz_consts), select_flagged(xs_dot, nz_xs)
        init_dot = [instantiate(t) for t in select_flagged(init_dot, nz_carry)]
        extra, n = len(linearized.linear.consts), len(consts_dot) + len(init_dot)
        lead, res, before, after = split_by_sizes(linear.invars, [extra, len(residuals), n, len(xs_dot)])
        steady, moving = select_flagged(res, invariant), select_unflagged(res, invariant)
        out_dot = self(
            *linearized.linear.consts,
            *select_flagged(residuals, invariant),
            *consts_dot,
            *init_dot,
            *select_unflagged(residuals, invariant),
            *xs_dot,
            jaxpr=linear.replace(invars=[*lead, *steady, *before, *moving, *after]),
            layout=layout._replace(num_consts=extra + len(steady) + len(consts_dot), num_carry=len(init_dot)),
        )
        return out, join_tangents(self.abstract_eval(jaxpr=jaxpr, layout=layout), linearized.nonzero, out_dot)

    def discharge(
        self, args: Sequence[Any], slots: Sequence[Slot | None], params: dict
    ) -> tuple[list, Sequence[Slot], Sequence[Any]]:
        """References among the constants become values that the loop carries; among the stacked inputs, results."""
        jaxpr, layout = params["jaxpr"], params["layout"]
        pure, written = discharge_jaxpr(jaxpr, slots)
        is_written = [slot in written for slot in slots]
        (consts, init, xs), (carried, _, _) = layout.split(read_values(args, slots)), layout.split(is_written)
        in_consts, in_carry, in_xs = layout.split(pure.invars)
        count, is_const = len(jaxpr.outvars), [n in slots[: layout.num_consts] for n in written]
        finals = pure.outvars[count:]
        body = pure.replace(
            invars=[
                *pure.constvars,
                *select_unflagged(in_consts, carried),
                *_in_order(in_consts, slots, written),
                *in_carry,
                *in_xs,
            ],
            outvars=[*select_flagged(finals, is_const), *pure.outvars[:count], *select_unflagged(finals, is_const)],
            constvars=(),
            consts=(),
        )
        held = select_unflagged(consts, carried)
        wide = layout._replace(num_consts=len(pure.consts) + len(held), num_carry=layout.num_carry + sum(is_const))
        out = self(*pure.consts, *held, *_in_order(consts, slots, written), *init, *xs, jaxpr=body, layout=wide)
        n = sum(is_const)
        return out[n : n + count], written, merge_lists(is_const, out[:n], out[n + count :])

    def divide(self, params: dict, unknown: Sequence[bool], policy: Policy) -> Division | None:
        return _divide_scan(params["jaxpr"], params["layout"], unknown, policy)

    def transpose(self, y_bars: Sequence[Any], *operands: Any, jaxpr: Jaxpr, layout: ScanLayout) -> tuple:
        lin_consts, lin_carry, lin_xs = layout.split([is_linear(x) for x in operands])
        consts, init, xs = layout.split(operands)
        # A tangent whose initial value is an instantiated zero is a known operand, although its carry is linear.
        if any(not lin and get_aval(x).to_tangent().dtype == dtypes.float0 for x, lin in zip(init, lin_carry)):
            raise RuleError(
                "reverse-mode differentiation of scan",
                expected="a carry that is linear in the differentiated values",
                got="a carry with an integer value among them",
                fix="this is an error in a transformation of phalanx; please report it with the program",
            )
        all_carried = [True] * layout.num_carry
        # Cotangents of the carry are instantiated: a zero at the end of the loop may be nonzero one iteration earlier.
        carry_bars = [instantiate(c) for c in y_bars[: layout.num_carry]]
        nz_ys, ys_bars = split_tangents(y_bars[layout.num_carry :])
        # All cotangents are instantiated, so that the body of the transposed scan has the same types in each iteration.
        derived, _ = transpose_jaxpr(jaxpr, [*lin_consts, *all_carried, *lin_xs], [*all_carried, *nz_ys], True)
        res_consts, res_xs = select_unflagged(consts, lin_consts), select_unflagged(xs, lin_xs)
        # The cotangent of a constant is the sum over all iterations, accumulated in a carry that starts at zero.
        zeros = [vector_space.zeros(x.aval.to_tangent()) for x in select_flagged(consts, lin_consts)]
        body = _accumulating(derived, len(res_consts), len(res_xs), len(zeros), layout.num_carry)
        # The transposed scan runs from the last iteration to the first.
        backward = ScanLayout(
            len(derived.consts) + len(res_consts),
            len(zeros) + layout.num_carry,
            layout.length,
            not layout.reverse,
            layout.unroll,
        )
        out = self(*derived.consts, *res_consts, *zeros, *carry_bars, *ys_bars, *res_xs, jaxpr=body, layout=backward)
        # The logs of the iterations are stacked, as they are the last outputs of the body.
        out = take_logs(derived, out)
        const_bars, init_bars, xs_bars = split_by_sizes(out, [len(zeros), layout.num_carry, sum(lin_xs)])
        return (
            *fill_flagged(lin_consts, const_bars),
            *(c if lin else None for c, lin in zip(init_bars, lin_carry)),
            *fill_flagged(lin_xs, xs_bars),
        )

    def batch_axis(
        self, axis: AxisData, args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: Jaxpr, layout: ScanLayout
    ) -> tuple:
        m_consts, m_init, m_xs = layout.split([d is not None for d in dims])
        num_ys = len(jaxpr.outvars) - layout.num_carry

        def step(m_carry: list[bool]) -> tuple:
            derived, out = batch_jaxpr(jaxpr, axis, [*m_consts, *m_carry, *m_xs], [*m_carry, *([False] * num_ys)])
            return (derived, out), out[: layout.num_carry]

        (derived, out_mapped), m_carry = fixpoint(m_init, step)
        consts, init, xs = layout.split(list(zip(args, dims)))
        moved = [
            *(axis.to_front(x, d) if d is not None else x for x, d in consts),
            *(axis.to_front(x, d) if m else x for (x, d), m in zip(init, m_carry)),
            *(move_mapped_dim(x, d, axis.size, 1, axis.split) if d is not None else x for x, d in xs),
        ]
        # Stacked inputs keep their leading dimension for the iterations, so their mapped dimension is the second.
        wide = layout._replace(num_consts=layout.num_consts + len(derived.consts))
        out = self(*derived.consts, *moved, jaxpr=derived.hoist(), layout=wide)
        return out, front_dims(m_carry) + [1 if m else None for m in out_mapped[layout.num_carry :]]

    @staticmethod
    def dce(eqn: Eqn, used: Sequence[bool]) -> Eqn | None:
        """The loop without unused results, and without the carry that only these needed."""
        jaxpr, layout = eqn.params["jaxpr"], eqn.params["layout"]
        used_ys = list(used[layout.num_carry :])

        def step(carry: list[bool]) -> tuple:
            smaller, kept = dce_jaxpr(jaxpr, [*carry, *used_ys])
            return (smaller, kept), layout.split(kept)[1]

        (smaller, kept), carry = fixpoint(used[: layout.num_carry], step)
        if not any(carry) and not any(used_ys) and not smaller.effects:
            return None
        k_consts, k_carry, k_xs = layout.split(kept)
        # A carried value that is returned but not read stays an input of the body.
        smaller, kept = restore_inputs(jaxpr, smaller, kept, [*k_consts, *carry, *k_xs])
        return eqn.replace(
            invars=select_flagged(eqn.invars, kept),
            outvars=select_flagged(eqn.outvars, [*carry, *used_ys]),
            params={"jaxpr": smaller, "layout": layout._replace(num_consts=sum(k_consts), num_carry=sum(carry))},
            effects=smaller.effects,
        )


scan_p = Scan()


def _in_order(items: Sequence[Any], slots: Sequence[Slot | None], numbers: Sequence[Slot]) -> list:
    """The items of constants that are references with these numbers, in the order of the numbers."""
    found = dict(zip(slots, items, strict=False))  # the constants come first among the operands
    return [found[n] for n in numbers if n in found]


def _run_forward(
    scan: Scan, primal: Jaxpr, layout: ScanLayout, values: Sequence[Any], residual_vars: Sequence[Any], num_outputs: int
) -> tuple[list, list, list[bool]]:
    """Run a primal scan that returns the residuals of all iterations.

    A residual is a stacked input, a constant of the loop, computed from constants alone (then it is computed once,
    outside), or different in each iteration (then the loop stacks it).

    Args:
      scan: the primitive.
      primal: the body, whose outputs are followed by residuals.
      layout, values: the layout of the scan, and its operands.
      residual_vars: the variable of each residual in the body.
      num_outputs: the number of outputs of the body before its residuals.

    Returns:
      The outputs of the scan; the residuals; and for each residual whether it is the same in every iteration.
    """
    # Residuals that are operands of the scan already, and need not be returned by it.
    consts, carry, xs = layout.split(primal.invars)
    position: dict[Any, Any] = dict(zip((*consts, *xs), (*values[: len(consts)], *values[len(values) - len(xs) :])))
    const_set = set(consts)
    loop_invariant = _depends_only_on(primal, const_set)
    invariant = [type(v) is Literal or v in loop_invariant for v in residual_vars]
    outside = [v for v, inv in zip(residual_vars, invariant) if inv and v not in const_set]
    # Equations with effects belong to the iterations, and dead code elimination would keep them here.
    pure = [eqn for eqn in primal.eqns if not eqn.effects]
    preamble = remove_dead_code(Jaxpr(consts, pure, outside, debug_name=primal.debug_name))
    computed = iter(run_jaxpr(preamble, *values[: len(consts)]) if outside else [])
    stacked = [v for v, inv in zip(residual_vars, invariant) if not inv and v not in position]
    # Without the residuals that are computed outside, the equations for them may be dead.
    body = remove_dead_code(primal.replace(outvars=[*primal.outvars[:num_outputs], *stacked]))
    out = scan(*values, jaxpr=body, layout=layout)
    fresh = iter(out[num_outputs:])
    residuals = [
        position[v] if v in position else next(computed if inv else fresh) for v, inv in zip(residual_vars, invariant)
    ]
    return out[:num_outputs], residuals, invariant


def _depends_only_on(jaxpr: Jaxpr, sources: set) -> set:
    """The variables that can be computed from `sources` alone."""
    known = set(sources)
    for eqn in jaxpr.eqns:
        # An equation with an effect must run in every iteration.
        if not eqn.effects and all(type(a) is Literal or a in known for a in eqn.invars):
            known.update(eqn.outvars)
    return known


@cached_on_jaxpr
def _accumulating(derived: Jaxpr, num_res_consts: int, num_res_xs: int, num_consts: int, num_carry: int) -> Jaxpr:
    """The body of a transposed scan.

    The transposed jaxpr of one iteration maps (residual constants, residual xs, carry cotangents, ys cotangents) to the
    cotangents of (linear constants, carry, linear xs). The body returned here is that of a scan: it takes (constants;
    accumulated cotangents of the linear constants, carry cotangents; ys cotangents, residual xs), and adds the
    cotangents of the constants to the accumulators.
    """

    consts = [v.aval for v in derived.constvars]
    avals = derived.in_avals
    res_consts, res_xs, carry, ys = split_by_sizes(
        avals, [num_res_consts, num_res_xs, num_carry, len(avals) - num_res_consts - num_res_xs - num_carry]
    )
    sums = derived.out_avals[:num_consts]

    def body(*args: Any) -> list:
        captured, rc, held, cts, yc, rx = split_by_sizes(
            args, [len(consts), len(res_consts), len(sums), len(carry), len(ys), len(res_xs)]
        )
        out = run_jaxpr(derived.replace(consts=captured), *rc, *rx, *cts, *yc)
        return [*(add_tangents(a, b) for a, b in zip(held, out)), *out[num_consts:]]

    return trace_to_jaxpr(body, [*consts, *res_consts, *sums, *carry, *ys, *res_xs], derived.debug_name).hoist()


@cached_on_jaxpr
def _divide_scan(jaxpr: Jaxpr, layout: ScanLayout, unknown: Sequence[bool], policy: Policy) -> Division | None:
    """Divide a scan; None if no work is known."""
    u_consts, u_init, u_xs = layout.split(unknown)
    num_ys = len(jaxpr.outvars) - layout.num_carry

    def step(u_carry: list[bool]) -> tuple[PartialEvalJaxprs, list[bool]]:
        parts = partial_eval_inner_jaxpr(jaxpr, [*u_consts, *u_carry, *u_xs], policy, [*u_carry, *([False] * num_ys)])
        return parts, [not k for k in parts.known_outputs[: layout.num_carry]]

    parts, u_carry = fixpoint(u_init, step)
    if not parts.known.eqns and not any(parts.known_outputs):
        return None
    # A known initial value of an unknown carry is an operand of the unknown loop only.
    known_inputs = [not u for u in (*u_consts, *u_carry, *u_xs)]
    number_of = dict(zip(parts.known.invars, [i for i, k in enumerate(known_inputs) if k]))
    num_known = sum(parts.known_outputs)
    c, n = layout.num_consts, layout.num_consts + layout.num_carry
    # For each residual the operand that it equals, or None if the known loop stacks it, as it does for the carry.
    residual_inputs: list[int | None] = []
    for v in parts.known.outvars[num_known:]:
        i = None if type(v) is Literal else number_of.get(v)
        residual_inputs.append(None if i is not None and c <= i < n else i)
    invariant = [i is not None and i < c for i in residual_inputs]
    stacked = [v for v, i in zip(parts.known.outvars[num_known:], residual_inputs) if i is None]
    res = parts.unknown.invars[: len(residual_inputs)]
    steady, moving = select_flagged(res, invariant), select_unflagged(res, invariant)
    # The unknown loop carries the unknown values, and the values that a policy makes it recompute.
    w_carry = parts.unknown_outputs[: layout.num_carry]
    t_consts, _, t_xs = layout.split(parts.unknown_inputs)
    consts, carry, xs = (
        select_flagged(v, t) for v, t in zip(layout.split(jaxpr.invars), (t_consts, w_carry, t_xs), strict=True)
    )

    def unknown_operands(operands: Sequence[Any], stacked: Sequence[Any]) -> list:
        fresh = iter(stacked)
        residuals = [next(fresh) if i is None else operands[i] for i in residual_inputs]
        taken = select_flagged(operands, [*t_consts, *w_carry, *t_xs])
        constants, rest = select_flagged(residuals, invariant), select_unflagged(residuals, invariant)
        return [*constants, *taken[: len(taken) - sum(t_xs)], *rest, *taken[len(taken) - sum(t_xs) :]]

    return Division(
        known={
            "jaxpr": parts.known.replace(outvars=[*parts.known.outvars[:num_known], *stacked]),
            "layout": layout._replace(num_consts=c - sum(u_consts), num_carry=layout.num_carry - sum(u_carry)),
        },
        unknown={
            "jaxpr": parts.unknown.replace(invars=[*steady, *consts, *carry, *moving, *xs]),
            "layout": layout._replace(num_consts=len(steady) + len(consts), num_carry=len(carry)),
        },
        known_inputs=known_inputs,
        known_outputs=parts.known_outputs,
        unknown_outputs=parts.unknown_outputs,
        residuals=[v.aval.with_dim(0, layout.length) for v in stacked],
        unknown_operands=unknown_operands,
    )


def _lower_scan(ctx: LoweringContext, operands: Sequence[Any], jaxpr: Jaxpr, layout: ScanLayout) -> list:
    """Lower a scan to a while loop over a counter, the carry, and buffers for the stacked results."""
    consts, init, xs = layout.split(operands)
    const_avals, carry_avals, x_avals = layout.split(jaxpr.in_avals)
    # Stacked arrays need at least one row: the loop body is compiled, and slices a row, even if it never runs.
    num_rows = layout.length
    if is_symbolic(num_rows) and bounds(num_rows)[0] < 1:
        num_rows = max_dim(num_rows, 1)
        xs = [
            _resize_rows(ctx, x, a.with_shape((layout.length, *a.shape)), num_rows)
            for x, a in zip(xs, x_avals, strict=True)
        ]
    stacked_avals = [a.with_shape((num_rows, *a.shape)) for a in jaxpr.out_avals[layout.num_carry :]]
    xs_avals = [a.with_shape((num_rows, *a.shape)) for a in x_avals]
    counter = ShapedArray((), np.dtype("int32"))
    buffers = [ctx.inline(lambda a=a: [vector_space.zeros(a)], avals=[])[0] for a in map(physical_aval, stacked_avals)]
    # `steps` loop iterations of `unroll` scan iterations each; the remaining ones follow after the loop.
    unroll = 1 if is_symbolic(layout.length) else max(1, min(layout.unroll, layout.length or 1))
    steps, rest = divmod(layout.length, unroll)
    carried = [*consts, *xs, *init, *buffers]
    n_fixed = len(consts) + len(xs)

    def iterate(i: Any, values: Sequence[Any], times: int) -> list:
        held, rows, state = split_by_sizes(values, [len(consts), len(xs), len(values)])
        for k in range(times):
            at = i if k == 0 else hlo.AddOp(i, ctx.constant(np.int32(k))).result
            state = _emit_iteration(ctx, jaxpr, layout, at, held, zip(rows, xs_avals), state, stacked_avals)
        return [*held, *rows, *state]

    # A fully unrolled scan needs no loop, and an empty one returns its initial carry and the empty buffers.
    if steps == 1 and unroll == layout.length:
        out = iterate(ctx.constant(np.int32(0)), carried, unroll)
    elif is_symbolic(steps) or steps:

        def body(i: Any, values: Sequence[Any]) -> tuple[Any, list]:
            after = iterate(i, values, unroll)
            return hlo.AddOp(i, ctx.constant(np.int32(unroll))).result, after

        def condition(i: Any, values: Sequence[Any]) -> Any:
            return hlo.compare(i, ctx.size(steps * unroll, counter), hlo.ComparisonDirectionAttr.get("LT"))

        avals = [counter, *const_avals, *xs_avals, *carry_avals, *stacked_avals]
        start = [ctx.constant(np.int32(0)), *carried]
        out = emit_while(ctx, avals, start, fx.ordered(jaxpr.effects), condition, body)[1:]
    else:
        out = carried
    if rest:
        out = iterate(ctx.constant(np.int32(steps * unroll)), out, rest)
    carry, ys = out[n_fixed : n_fixed + layout.num_carry], out[n_fixed + layout.num_carry :]
    if num_rows is not layout.length:
        ys = [_resize_rows(ctx, y, a, layout.length) for y, a in zip(ys, stacked_avals, strict=True)]
    return [*carry, *ys]


def _resize_rows(ctx: LoweringContext, x: ArrayLike, aval: ShapedArray, length: DimSize) -> Any:
    """`x` with `length` rows: zeros are appended, or rows cut off at the end."""
    aval = physical_aval(aval)
    out = aval.with_shape((length, *aval.shape[1:]))
    zeros = [0] * aval.ndim
    if bounds(length - aval.shape[0])[0] >= 0:
        fill = ctx.constant(0, ShapedArray((), aval.dtype))
        return ctx.pad(x, fill, zeros, [length - aval.shape[0], *zeros[1:]], zeros, out)
    return ctx.slice(x, zeros, out.shape, [1] * aval.ndim, out)


def _emit_iteration(
    ctx: LoweringContext,
    jaxpr: Jaxpr,
    layout: ScanLayout,
    i: Any,
    consts: list,
    xs: Iterable[tuple[Any, ShapedArray]],
    state: list,
    stacked_avals: Sequence[ShapedArray],
) -> list:
    """Lower one iteration of a scan: slice the stacked inputs, call the body, store the stacked results.

    Args:
      ctx, jaxpr, layout: the lowering context, and the parameters of the scan.
      i: the counter.
      consts: the constants of the body.
      xs: the stacked inputs and their types.
      state: the carry, then the buffers of the stacked results, whose types are `stacked_avals`.

    Returns:
      The carry and the buffers after the iteration.
    """
    # The counter always increases; a reversed scan reads and writes the rows from the end.
    if layout.reverse:
        i = hlo.SubtractOp(ctx.size(layout.length - 1, ShapedArray((), np.dtype("int32"))), i).result

    def start(ndim: int) -> list:
        return [i, *([ctx.constant(np.int32(0))] * (ndim - 1))]

    slices = []
    for x, aval in ((x, physical_aval(a)) for x, a in xs):
        row = ctx.dynamic_slice(x, aval.shape, start(aval.ndim), aval.with_shape((1, *aval.shape[1:])))
        slices.append(ctx.reshape(row, aval.with_shape(aval.shape[1:])))
    out = ctx.emit(jaxpr, [*consts, *state[: layout.num_carry], *slices], "while", "body")
    stored = []
    for buffer, y, aval in zip(state[layout.num_carry :], out[layout.num_carry :], map(physical_aval, stacked_avals)):
        row = ctx.reshape(y, aval.with_shape((1, *aval.shape[1:])))
        stored.append(hlo.DynamicUpdateSliceOp(buffer, row, start(aval.ndim)).result)
    return [*out[: layout.num_carry], *stored]
