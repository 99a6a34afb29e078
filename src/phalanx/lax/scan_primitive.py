"""The primitive `scan`, with every rule.

A rule looks for a fixpoint over the carry: which parts have tangents, are mapped, are unknown. What a linearised `scan`
needs from its forward pass is stacked by iteration, except what does not change from one to the next. `loops.py` binds
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import dtypes
from phalanx.core import effects as fx
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.effects import Effects
from phalanx.core.errors import RuleError
from phalanx.core.flags import chosen
from phalanx.core.jaxpr import Eqn, Jaxpr, Literal, Var, derivation, eliminate_dead_code, run_program, without_dead_code
from phalanx.core.primitive import Primitive, Roles, joint_varying
from phalanx.core.roles import joined_roles, program_roles
from phalanx.core.tangent import Zero, add_tangents, instantiate, is_linear, join_tangents, vector_space
from phalanx.core.trace import stage
from phalanx.core.varying import varies
from phalanx.engine.mlir import hlo
from phalanx.lax.bodies import fixpoint, groups_of, keep_inputs, permuted, settled_loop
from phalanx.lax.while_primitive import emit_while
from phalanx.runtime.lowering import physical_aval
from phalanx.runtime.memories import result_memories
from phalanx.symbolic import bounds, is_symbolic, max_dim
from phalanx.transforms.batching import Axis, batch_program, front_dims, to_dim
from phalanx.transforms.forward import jvp_program
from phalanx.transforms.linear import LinearTrace, transpose_program
from phalanx.transforms.linearization import linearize_program
from phalanx.transforms.partial_eval import Policy, Split, everything_saveable, split_held


class Layout(NamedTuple):
    """How the operands of a scan are grouped, and how it runs."""

    num_consts: int
    num_carry: int
    length: Any
    reverse: bool
    unroll: int

    def split(self, items: Sequence[Any]) -> tuple[list, list, list]:
        """Constants, carry and stacked inputs."""
        c, n = self.num_consts, self.num_consts + self.num_carry
        return list(items[:c]), list(items[c:n]), list(items[n:])


class Scan(Primitive, name="scan", multiple=True):
    """A loop over stacked inputs: (*constants, *carry, *xs) -> (*carry, *ys), `jaxpr` being one iteration."""

    holds_program = True
    says_shardings = True
    batch = None

    def roles(self, *avals: Any, jaxpr: Jaxpr, layout: Layout) -> Roles:
        body, carry = program_roles(jaxpr), layout.num_carry
        consts = layout.num_consts
        once = object()  # the iterations, one after the other
        operands = [(once, *n) if i >= consts + carry else n for i, n in enumerate(body.operands)]
        results = [(once, *n) if i >= carry else n for i, n in enumerate(body.results)]
        stacked = Roles(operands, results, body.reduced, {*body.whole, once})
        count = len(operands)
        part = (stacked, range(count), range(count, count + len(results)))
        carried = [(consts + i, count + i) for i in range(carry)]
        return joined_roles(avals, self.result(jaxpr=jaxpr, layout=layout), [part], carried=carried)

    def result(self, *avals: Any, jaxpr: Jaxpr, layout: Layout) -> list:
        carry, ys = jaxpr.out_avals[: layout.num_carry], jaxpr.out_avals[layout.num_carry :]
        return [*carry, *(y.with_dim(0, layout.length) for y in ys)]

    def settle(self, avals: Sequence[Any], params: dict) -> dict:
        jaxpr, layout = params["jaxpr"], params["layout"]
        if not varies(avals, jaxpr.out_avals):
            return params
        c, n = layout.num_consts, layout.num_carry
        body = settled_loop(jaxpr, avals, c, n)
        # The cotangent of an operand that varies as the loop does is summed after the loop, not in each iteration.
        axes = joint_varying(body.in_avals)
        apart = [a.with_varying(axes) if a.to_tangent().dtype == a.dtype else a for a in body.in_avals]
        wider = settled_loop(body, [*apart[:c], *body.in_avals[c : c + n], *apart[c + n :]], c, n)
        return params | {"jaxpr": wider if wider.out_avals == body.out_avals else body}

    def effects(self, *avals: Any, jaxpr: Jaxpr, layout: Layout) -> Effects:
        return jaxpr.effects

    def memories(self, held: Sequence[str | None], *, jaxpr: Jaxpr, layout: Layout) -> list[str | None]:
        return result_memories(jaxpr, held)

    def lower(self, ctx: Any, *operands: Any, jaxpr: Jaxpr, layout: Layout) -> list:
        return _lower_scan(ctx, operands, jaxpr, layout)

    def jvp(self, primals: Any, tangents: Any, *, jaxpr: Jaxpr, layout: Layout) -> tuple:
        nonzero = [type(t) is not Zero for t in tangents]
        nz_consts, nz_init, nz_xs = layout.split(nonzero)
        num_ys = len(jaxpr.outvars) - layout.num_carry

        def step(nz_carry: list[bool]) -> tuple:
            derived, has = jvp_program(jaxpr, [*nz_consts, *nz_carry, *nz_xs], [*nz_carry, *([False] * num_ys)])
            return (derived, has), has[: layout.num_carry]

        (derived, has), nz_carry = fixpoint(nz_init, step)
        consts, init, xs = layout.split(primals)
        consts_dot, init_dot, xs_dot = layout.split(tangents)
        init_dot = [instantiate(t) for t in chosen(init_dot, nz_carry)]
        consts_dot, xs_dot = chosen(consts_dot, nz_consts), chosen(xs_dot, nz_xs)
        # The derived body takes all primals, then all tangents; a scan wants constants, carry and xs together.
        groups = [len(consts), len(init), len(xs), len(consts_dot), len(init_dot), len(xs_dot)]
        outs = [layout.num_carry, num_ys, len(init_dot), sum(has) - len(init_dot)]
        body = permuted(derived, groups, [0, 3, 1, 4, 2, 5], outs, [0, 2, 1, 3])
        joint = layout._replace(num_consts=len(derived.consts) + groups[0] + groups[3], num_carry=groups[1] + groups[4])
        out = self(*derived.consts, *consts, *consts_dot, *init, *init_dot, *xs, *xs_dot, jaxpr=body, layout=joint)
        carry, carry_dot, ys, ys_dot = groups_of(out, [outs[0], outs[2], outs[1], outs[3]])
        avals = self.result(jaxpr=jaxpr, layout=layout)
        return [*carry, *ys], join_tangents(avals, has, [*carry_dot, *ys_dot])

    def linearize(self, trace: LinearTrace, primals: Any, tangents: Any, params: dict) -> tuple:
        jaxpr, layout = params["jaxpr"], params["layout"]
        nonzero = [type(t) is not Zero for t in tangents]
        nz_consts, nz_init, nz_xs = layout.split(nonzero)
        num_ys = len(jaxpr.outvars) - layout.num_carry

        def step(nz_carry: list[bool]) -> tuple:
            halves = linearize_program(jaxpr, [*nz_consts, *nz_carry, *nz_xs], [*nz_carry, *([False] * num_ys)])
            return halves, halves.nonzero[: layout.num_carry]

        halves, nz_carry = fixpoint(nz_init, step)
        primal = halves.primal.hoist()
        forward = layout._replace(num_consts=layout.num_consts + len(halves.primal.consts))
        values = [*halves.primal.consts, *primals]
        inputs = [None if f is None else primal.invars[f + len(halves.primal.consts)] for f in halves.forwarded]
        returned = iter(primal.outvars[len(jaxpr.outvars) :])
        residual_vars = [next(returned) if v is None else v for v in inputs]
        out, residuals, invariant = _run_forward(self, primal, forward, values, residual_vars, len(jaxpr.outvars))

        linear = halves.linear.hoist()
        num_res = len(residuals)
        consts_dot, init_dot, xs_dot = layout.split(tangents)
        consts_dot, xs_dot = chosen(consts_dot, nz_consts), chosen(xs_dot, nz_xs)
        init_dot = [instantiate(t) for t in chosen(init_dot, nz_carry)]
        extra = len(halves.linear.consts)
        order = [i for i, inv in enumerate(invariant) if inv], [i for i, inv in enumerate(invariant) if not inv]
        body_in = linear.invars
        lead, res, rest = body_in[:extra], body_in[extra : extra + num_res], body_in[extra + num_res :]
        c, n = len(consts_dot), len(consts_dot) + len(init_dot)
        body = linear.replace(
            invars=[*lead, *(res[i] for i in order[0]), *rest[:n], *(res[i] for i in order[1]), *rest[n:]]
        )
        backward_layout = layout._replace(num_consts=extra + len(order[0]) + c, num_carry=len(init_dot))
        out_dot = self(
            *halves.linear.consts,
            *(residuals[i] for i in order[0]),
            *consts_dot,
            *init_dot,
            *(residuals[i] for i in order[1]),
            *xs_dot,
            jaxpr=body,
            layout=backward_layout,
        )
        return out, join_tangents(self.result(jaxpr=jaxpr, layout=layout), halves.nonzero, out_dot)

    def split(self, trace: LinearTrace, args: Any, params: dict) -> list:
        jaxpr, layout = params["jaxpr"], params["layout"]
        unknown = [trace.is_unknown(x) for x in args]
        plan = _split_scan(jaxpr, layout, unknown, everything_saveable)
        if plan is None:
            return trace.record(self, args, params)
        out = self(*chosen(args, plan.known_inputs), jaxpr=plan.known, layout=plan.known_layout)
        num_ready = len(out) - len(plan.stacked_avals)
        given = plan.waiting_args(args, out[num_ready:])
        bound = {"jaxpr": plan.unknown, "layout": plan.unknown_layout}
        later = iter(trace.record(self, given, bound))
        ready = iter(out[:num_ready])
        return [next(later) if u else next(ready) for u in plan.unknown_outputs]

    def split_eqn(self, eqn: Eqn, unknown: Sequence[bool], policy: Policy) -> tuple:
        """The two halves of an equation inside a program that is split, and the residuals between them."""
        plan = _split_scan(eqn.params["jaxpr"], eqn.params["layout"], unknown, policy)
        if plan is None:
            return None, eqn, []
        stacked = [Var(a) for a in plan.stacked_avals]
        known_out = chosen(eqn.outvars, plan.known_outputs)
        known = eqn.replace(
            invars=chosen(eqn.invars, plan.known_inputs),
            outvars=[*known_out, *stacked],
            params={"jaxpr": plan.known, "layout": plan.known_layout},
            effects=plan.known.effects,
        )
        waiting = eqn.replace(
            invars=plan.waiting_args(eqn.invars, stacked),
            outvars=chosen(eqn.outvars, plan.unknown_outputs),
            params={"jaxpr": plan.unknown, "layout": plan.unknown_layout},
            effects=plan.unknown.effects,
        )
        return known, waiting, stacked

    def transpose(self, y_bars: Any, *operands: Any, jaxpr: Jaxpr, layout: Layout) -> tuple:
        linear = [is_linear(x) for x in operands]
        lin_consts, lin_carry, lin_xs = layout.split(linear)
        consts, init, xs = layout.split(operands)
        # A tangent that starts at zero is a known initial value of a carry that is linear all the same.
        if any(not lin and aval_of(x).to_tangent().dtype == dtypes.float0 for x, lin in zip(init, lin_carry)):
            raise RuleError(
                "reverse-mode differentiation of scan",
                expected="a carry that is linear in the differentiated values",
                got="one that mixes them with others",
                mend="this is a fault of a transformation; report it",
            )
        linear = [*lin_consts, *([True] * layout.num_carry), *lin_xs]
        carry_bars = [instantiate(c) for c in y_bars[: layout.num_carry]]
        ys_bars = list(y_bars[layout.num_carry :])
        nz_ys = [type(c) is not Zero for c in ys_bars]
        derived, _ = transpose_program(jaxpr, linear, [*([True] * layout.num_carry), *nz_ys], True)
        res_consts = [x for x, lin in zip(consts, lin_consts) if not lin]
        res_xs = [x for x, lin in zip(xs, lin_xs) if not lin]
        const_avals = [x.aval.to_tangent() for x, lin in zip(consts, lin_consts) if lin]
        zeros = [vector_space.zeros(a) for a in const_avals]
        body = _accumulating(derived, len(res_consts), len(res_xs), len(zeros), layout.num_carry)
        backward = Layout(
            len(derived.consts) + len(res_consts),
            len(zeros) + layout.num_carry,
            layout.length,
            not layout.reverse,
            layout.unroll,
        )
        out = self(
            *derived.consts,
            *res_consts,
            *zeros,
            *carry_bars,
            *chosen(ys_bars, nz_ys),
            *res_xs,
            jaxpr=body,
            layout=backward,
        )
        const_bars, init_bars, xs_bars = groups_of(out, [len(zeros), layout.num_carry, sum(lin_xs)])
        for_consts, for_xs = iter(const_bars), iter(xs_bars)
        return (
            *(next(for_consts) if lin else None for lin in lin_consts),
            *(c if lin else None for c, lin in zip(init_bars, lin_carry)),
            *(next(for_xs) if lin else None for lin in lin_xs),
        )

    def batch_axis(self, axis: Axis, args: Any, dims: Any, *, jaxpr: Jaxpr, layout: Layout) -> tuple:
        mapped = [d is not None for d in dims]
        m_consts, m_init, m_xs = layout.split(mapped)
        num_ys = len(jaxpr.outvars) - layout.num_carry

        def step(m_carry: list[bool]) -> tuple:
            derived, out = batch_program(jaxpr, axis, [*m_consts, *m_carry, *m_xs], [*m_carry, *([False] * num_ys)])
            return (derived, out), out[: layout.num_carry]

        (derived, out_mapped), m_carry = fixpoint(m_init, step)
        consts, init, xs = layout.split(list(zip(args, dims)))
        moved = [
            *(axis.to_front(x, d) if d is not None else x for x, d in consts),
            *(axis.to_front(x, d) if m else x for (x, d), m in zip(init, m_carry)),
            *(to_dim(x, d, axis.size, 1, axis.split) if d is not None else x for x, d in xs),
        ]
        hoisted = derived.hoist()
        wide = layout._replace(num_consts=layout.num_consts + len(derived.consts))
        out = self(*derived.consts, *moved, jaxpr=hoisted, layout=wide)
        out_dims = front_dims(m_carry) + [1 if m else None for m in out_mapped[layout.num_carry :]]
        return out, out_dims

    @staticmethod
    def dce(eqn: Eqn, used: Sequence[bool]) -> Eqn | None:
        """The loop without the results nobody reads and the carry that only these needed."""
        jaxpr, layout = eqn.params["jaxpr"], eqn.params["layout"]
        used_ys = list(used[layout.num_carry :])

        def step(carry: list[bool]) -> tuple:
            smaller, kept = eliminate_dead_code(jaxpr, [*carry, *used_ys])
            return (smaller, kept), layout.split(kept)[1]

        (smaller, kept), carry = fixpoint(used[: layout.num_carry], step)
        if not any(carry) and not any(used_ys) and not smaller.effects:
            return None
        k_consts, k_carry, k_xs = layout.split(kept)
        # A carry that is wanted but not read stays an input of the body.
        smaller, kept = keep_inputs(jaxpr, smaller, kept, [*k_consts, *carry, *k_xs])
        outs = [*carry, *used_ys]
        return eqn.replace(
            invars=chosen(eqn.invars, kept),
            outvars=chosen(eqn.outvars, outs),
            params={"jaxpr": smaller, "layout": layout._replace(num_consts=sum(k_consts), num_carry=sum(carry))},
            effects=smaller.effects,
        )


scan_p = Scan()


def _run_forward(
    scan: Scan, primal: Jaxpr, layout: Layout, values: Sequence[Any], residual_vars: Sequence[Any], num_outputs: int
) -> tuple[list, list, list[bool]]:
    """Run a loop so that the residuals of all iterations come out.

    Returns:
      The outputs; the residuals, stacked where they change; and for each whether it does not change.
    """
    consts, carry, xs = layout.split(primal.invars)
    position: dict[Any, Any] = dict(zip((*consts, *xs), (*values[: len(consts)], *values[len(values) - len(xs) :])))
    const_set = set(consts)
    steady = _depends_only_on(primal, const_set)
    invariant = [type(v) is Literal or v in steady for v in residual_vars]
    outside = [v for v, inv in zip(residual_vars, invariant) if inv and v not in const_set]
    computed = iter(run_program(_outside(primal, consts, outside), *values[: len(consts)]) if outside else [])
    stacked = [v for v, inv in zip(residual_vars, invariant) if not inv and v not in position]
    body = without_dead_code(primal.replace(outvars=[*primal.outvars[:num_outputs], *stacked]))
    out = scan(*values, jaxpr=body, layout=layout)
    fresh = iter(out[num_outputs:])
    residuals = []
    for v, inv in zip(residual_vars, invariant):
        if v in position:
            residuals.append(position[v])
        else:
            residuals.append(next(computed) if inv else next(fresh))
    return out[:num_outputs], residuals, invariant


def _depends_only_on(program: Jaxpr, sources: set) -> set:
    """The variables that can be computed from `sources` alone."""
    known = set(sources)
    for eqn in program.eqns:
        if not eqn.effects and all(type(a) is Literal or a in known for a in eqn.invars):
            known.update(eqn.outvars)
    return known


def _outside(program: Jaxpr, inputs: Sequence[Var], outputs: Sequence[Any]) -> Jaxpr:
    """The program that computes some variables from some inputs."""
    return without_dead_code(Jaxpr(inputs, program.eqns, outputs, debug_name=program.debug_name))


@derivation
def _accumulating(derived: Jaxpr, num_res_consts: int, num_res_xs: int, num_consts: int, num_carry: int) -> Jaxpr:
    """The body of a transposed scan.

    The derived program takes (residual constants, residual xs, carry cotangents, ys cotangents) and gives the
    cotangents of (linear constants, carry, linear xs). The body takes (constants; sums for the linear constants,
    carry cotangents; ys cotangents, residual xs), and adds the new cotangents of the constants to the sums.
    """

    consts = [v.aval for v in derived.constvars]
    avals = derived.in_avals
    res_consts, res_xs, carry, ys = groups_of(
        avals, [num_res_consts, num_res_xs, num_carry, len(avals) - num_res_consts - num_res_xs - num_carry]
    )
    sums = derived.out_avals[:num_consts]

    def body(*args: Any) -> list:
        captured, rc, held, cts, yc, rx = groups_of(
            args, [len(consts), len(res_consts), len(sums), len(carry), len(ys), len(res_xs)]
        )
        out = run_program(derived.replace(consts=captured), *rc, *rx, *cts, *yc)
        return [*(add_tangents(a, b) for a, b in zip(held, out)), *out[num_consts:]]

    return stage(body, [*consts, *res_consts, *sums, *carry, *ys, *res_xs], derived.debug_name).hoist()


class _ScanSplit(NamedTuple):
    """How a scan is split: the two bodies and how their operands are put together."""

    known: Jaxpr
    known_layout: Layout
    known_inputs: list[bool]  # for each operand, whether the known loop takes it
    stacked_avals: list
    unknown: Jaxpr
    unknown_layout: Layout
    unknown_inputs: list[bool]  # for each operand, whether the waiting loop takes it
    unknown_outputs: list[bool]
    known_outputs: list[bool]
    residual_inputs: list[int | None]  # for each residual, the operand that it is, or None where it is stacked
    invariant: list[bool]  # for each residual, whether it is a constant of the loop

    def waiting_args(self, args: Sequence[Any], stacked: Sequence[Any]) -> list:
        """The operands of the waiting loop, given the stacked residuals."""
        fresh = iter(stacked)
        residuals = [next(fresh) if i is None else args[i] for i in self.residual_inputs]
        steady = chosen(residuals, self.invariant)
        moving = [r for r, inv in zip(residuals, self.invariant) if not inv]
        taken = chosen(args, self.unknown_inputs)
        n = self.unknown_layout.num_consts - len(steady) + self.unknown_layout.num_carry
        return [*steady, *taken[:n], *moving, *taken[n:]]


@derivation
def _split_scan(jaxpr: Jaxpr, layout: Layout, unknown: Sequence[bool], policy: Policy) -> _ScanSplit | None:
    """Split a scan by which operands are unknown; None where nothing can be done early."""
    u_consts, u_init, u_xs = layout.split(unknown)
    num_ys = len(jaxpr.outvars) - layout.num_carry

    def step(u_carry: list[bool]) -> tuple[Split, list[bool]]:
        parts = split_held(jaxpr, [*u_consts, *u_carry, *u_xs], policy, [*u_carry, *([False] * num_ys)])
        return parts, [not k for k in parts.known_outputs[: layout.num_carry]]

    parts, u_carry = fixpoint(u_init, step)
    if not parts.known.eqns and not any(parts.known_outputs):
        return None
    # A known initial value whose carry is unknown goes to the waiting loop as it is.
    known_inputs = [not u for u in (*u_consts, *u_carry, *u_xs)]
    number_of = dict(zip(parts.known.invars, [i for i, k in enumerate(known_inputs) if k]))
    num_known = sum(parts.known_outputs)
    c, n = layout.num_consts, layout.num_consts + layout.num_carry
    residual_inputs: list[int | None] = []
    for v in parts.known.outvars[num_known:]:
        i = None if type(v) is Literal else number_of.get(v)
        residual_inputs.append(None if i is not None and c <= i < n else i)
    invariant = [i is not None and i < c for i in residual_inputs]
    stacked = [v for v, i in zip(parts.known.outvars[num_known:], residual_inputs) if i is None]
    res = parts.unknown.invars[: len(residual_inputs)]
    steady, moving = chosen(res, invariant), [v for v, inv in zip(res, invariant) if not inv]
    # What the waiting loop carries, it takes: the unknown, and what a policy has it compute again.
    w_carry = parts.unknown_outputs[: layout.num_carry]
    t_consts, _, t_xs = layout.split(parts.unknown_inputs)
    consts, carry, xs = (
        chosen(v, t) for v, t in zip(layout.split(jaxpr.invars), (t_consts, w_carry, t_xs), strict=True)
    )
    return _ScanSplit(
        known=parts.known.replace(outvars=[*parts.known.outvars[:num_known], *stacked]),
        known_layout=layout._replace(num_consts=c - sum(u_consts), num_carry=layout.num_carry - sum(u_carry)),
        known_inputs=known_inputs,
        stacked_avals=[v.aval.with_dim(0, layout.length) for v in stacked],
        unknown=parts.unknown.replace(invars=[*steady, *consts, *carry, *moving, *xs]),
        unknown_layout=layout._replace(num_consts=len(steady) + len(consts), num_carry=len(carry)),
        unknown_inputs=[*t_consts, *w_carry, *t_xs],
        unknown_outputs=parts.unknown_outputs,
        known_outputs=parts.known_outputs,
        residual_inputs=residual_inputs,
        invariant=invariant,
    )


def _lower_scan(ctx: Any, operands: Sequence[Any], jaxpr: Jaxpr, layout: Layout) -> list:
    """Emit a scan as a while loop over a counter, the carry and the stacked results."""
    consts, init, xs = layout.split(operands)
    const_avals, carry_avals, x_avals = layout.split(jaxpr.in_avals)
    y_avals = jaxpr.out_avals[layout.num_carry :]
    room = layout.length  # of the loop's arrays: one iteration slices a row, even if none is ever run
    if is_symbolic(room) and bounds(room)[0] < 1:
        room = max_dim(room, 1)
        xs = [_resized(ctx, x, a.with_shape((layout.length, *a.shape)), room) for x, a in zip(xs, x_avals, strict=True)]
    stacked_avals = [a.with_shape((room, *a.shape)) for a in y_avals]
    xs_avals = [a.with_shape((room, *a.shape)) for a in x_avals]
    counter = ShapedArray((), np.dtype("int32"))
    numbers = map(physical_aval, stacked_avals)
    buffers = [ctx.inline(lambda a=a: [vector_space.zeros(a)], avals=[])[0] for a in numbers]
    emit = _Iteration(ctx, jaxpr, layout, xs_avals, stacked_avals)
    ordered = fx.ordered(jaxpr.effects)
    unroll = 1 if is_symbolic(layout.length) else max(1, min(layout.unroll, layout.length or 1))
    steps, rest = divmod(layout.length, unroll)
    carried = [*consts, *xs, *init, *buffers]
    avals = [*const_avals, *xs_avals, *carry_avals, *stacked_avals]
    n_fixed = len(consts) + len(xs)

    def iterate(i: Any, values: Sequence[Any], times: int) -> list:
        fixed, state = list(values[:n_fixed]), list(values[n_fixed:])
        for k in range(times):
            at = i if k == 0 else hlo.AddOp(i, ctx.constant(np.int32(k))).result
            state = emit(at, fixed[: len(consts)], fixed[len(consts) :], state)
        return [*fixed, *state]

    if steps == 1 and unroll == layout.length:
        out = iterate(ctx.constant(np.int32(0)), carried, unroll)
    elif is_symbolic(steps) or steps:

        def body(i: Any, values: Sequence[Any]) -> tuple[Any, list]:
            after = iterate(i, values, unroll)
            return hlo.AddOp(i, ctx.constant(np.int32(unroll))).result, after

        def condition(i: Any, values: Sequence[Any]) -> Any:
            return hlo.compare(i, ctx.size(steps * unroll, counter), hlo.ComparisonDirectionAttr.get("LT"))

        start = ctx.constant(np.int32(0))
        out = emit_while(ctx, [counter, *avals], [start, *carried], ordered, condition, body)[1:]
    else:
        out = carried
    if rest:
        out = iterate(ctx.constant(np.int32(steps * unroll)), out, rest)
    carry, ys = out[n_fixed : n_fixed + layout.num_carry], out[n_fixed + layout.num_carry :]
    if room is not layout.length:
        ys = [_resized(ctx, y, a, layout.length) for y, a in zip(ys, stacked_avals, strict=True)]
    return [*carry, *ys]


def _resized(ctx: Any, x: Any, aval: ShapedArray, length: Any) -> Any:
    """`x` with `length` rows instead of those it has: zeros are added, or rows cut off, at the end."""
    own = physical_aval(aval)
    out = own.with_shape((length, *own.shape[1:]))
    none = [0] * own.ndim
    if bounds(length - own.shape[0])[0] >= 0:
        zero = ctx.constant(0, ShapedArray((), own.dtype))
        return ctx.pad(x, zero, none, [length - own.shape[0], *none[1:]], none, out)
    return ctx.slice(x, none, out.shape, [1] * own.ndim, out)


class _Iteration:
    """Emits one iteration of a scan: slices the stacked inputs, runs the body, stores the results."""

    def __init__(self, ctx: Any, jaxpr: Jaxpr, layout: Layout, xs_avals: Sequence[Any], stacked_avals: Sequence[Any]):
        self.ctx, self.jaxpr, self.layout = ctx, jaxpr, layout
        self.xs_avals, self.stacked_avals = xs_avals, stacked_avals

    def __call__(self, i: Any, consts: list, xs: list, state: list) -> list:
        ctx, layout = self.ctx, self.layout
        carry, buffers = state[: layout.num_carry], state[layout.num_carry :]
        if layout.reverse:
            i = hlo.SubtractOp(ctx.size(layout.length - 1, ShapedArray((), np.dtype("int32"))), i).result
        slices = [self._slice(x, a, i) for x, a in zip(xs, self.xs_avals)]
        out = ctx.emit(self.jaxpr, [*consts, *carry, *slices])
        stored = [self._store(b, y, a, i) for b, y, a in zip(buffers, out[layout.num_carry :], self.stacked_avals)]
        return [*out[: layout.num_carry], *stored]

    def _start(self, ndim: int, i: Any) -> list:
        return [i, *([self.ctx.constant(np.int32(0))] * (ndim - 1))]

    def _slice(self, x: Any, aval: ShapedArray, i: Any) -> Any:
        aval = physical_aval(aval)
        row = aval.with_shape((1, *aval.shape[1:]))
        piece = self.ctx.dynamic_slice(x, aval.shape, self._start(aval.ndim, i), row)
        return self.ctx.reshape(piece, aval.with_shape(aval.shape[1:]))

    def _store(self, buffer: Any, y: Any, aval: ShapedArray, i: Any) -> Any:
        aval = physical_aval(aval)
        piece = self.ctx.reshape(y, aval.with_shape((1, *aval.shape[1:])))
        return hlo.DynamicUpdateSliceOp(buffer, piece, self._start(aval.ndim, i)).result
