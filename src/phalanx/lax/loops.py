"""Loops: `scan`, `while_loop`, `fori_loop` and `map`, with every rule.

A loop's rules look for a fixpoint over its carry: which parts have tangents, are mapped, are unknown. What a linearised
`scan` needs from its forward pass is stacked by iteration, except what does not change from one to the next.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import dtypes
from phalanx.core import effects as fx
from phalanx.core.aval import ShapedArray, aval_of, token_aval
from phalanx.core.config import state
from phalanx.core.dims import is_symbolic
from phalanx.core.effects import Effects, no_effects
from phalanx.core.errors import ArgumentError, ArgumentTypeError, RuleError, ShardingError
from phalanx.core.explicit import num_parts
from phalanx.core.jaxpr import Eqn, Jaxpr, Literal, Var, eliminate_dead_code, run_program
from phalanx.core.lowering import physical_aval
from phalanx.core.primitive import Primitive, Roles, joint_varying
from phalanx.core.roles import joined_roles, program_roles
from phalanx.core.tangent import Zero, add_tangents, conform_all, instantiate, is_linear, vector_space
from phalanx.core.trace import Tracer, stage
from phalanx.core.varying import retyped, settled_loop, varies, widened
from phalanx.engine.mlir import hlo
from phalanx.lax.arithmetic import add
from phalanx.lax.bodies import check_same_types, chosen, groups_of, leaf_avals, stage_body
from phalanx.lax.broadcast import broadcast_in_dim
from phalanx.lax.comparison import lt
from phalanx.lax.named_axes import refuse_divergence
from phalanx.lax.reductions import reduce_or
from phalanx.lax.select import select_n
from phalanx.lax.shape import concatenate, reshape
from phalanx.lax.sizes import size as as_number
from phalanx.lax.slicing import slice_in_dim
from phalanx.lax.unrolled import runs_in_python, scan_in_python, while_in_python
from phalanx.transforms.batching import Axis, batch_program, to_dim, to_front, vmap
from phalanx.transforms.custom_batching import loops
from phalanx.transforms.forward import jvp_program
from phalanx.transforms.linear import LinearTrace, transpose_program
from phalanx.transforms.linearization import join_tangents, linearize_program
from phalanx.transforms.partial_eval import Policy, Split, everything_saveable, split_program
from phalanx.tree import tree_flatten, tree_map, tree_unflatten


def fixpoint(carry: Sequence[bool], step: Callable[[list[bool]], tuple[Any, Sequence[bool]]]) -> tuple[Any, list[bool]]:
    """Widen a property of the carry until the loop body preserves it.

    Args:
      carry: the property of the initial values.
      step: from the property of the carry at entry, something derived and the property at exit.

    Returns:
      What was derived at the fixpoint, and the property.
    """
    held = list(carry)
    while True:
        derived, after = step(held)
        wider = [a or b for a, b in zip(held, after)]
        if wider == held:
            return derived, held
        held = wider


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
        body = _permuted(derived, groups, [0, 3, 1, 4, 2, 5], outs, [0, 2, 1, 3])
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
        primal = halves.primal.derive("hoisted", halves.primal.hoist)
        forward = layout._replace(num_consts=layout.num_consts + len(halves.primal.consts))
        values = [*halves.primal.consts, *primals]
        inputs = [None if f is None else primal.invars[f + len(halves.primal.consts)] for f in halves.forwarded]
        returned = iter(primal.outvars[len(jaxpr.outvars) :])
        residual_vars = [next(returned) if v is None else v for v in inputs]
        out, residuals, invariant = _run_forward(self, primal, forward, values, residual_vars, len(jaxpr.outvars))

        linear = halves.linear.derive("hoisted", halves.linear.hoist)
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
            return trace.record(self, [trace.atom(x) for x in args], tuple(leaf_avals(args)), params)
        out = self(*chosen(args, plan.known_inputs), jaxpr=plan.known, layout=plan.known_layout)
        num_ready = len(out) - len(plan.stacked_avals)
        atoms = [trace.atom(x) for x in plan.waiting_args(args, out[num_ready:])]
        bound = {"jaxpr": plan.unknown, "layout": plan.unknown_layout}
        later = iter(trace.record(self, atoms, tuple(a.aval for a in atoms), bound))
        ready = iter(out[:num_ready])
        return [next(later) if u else next(ready) for u in plan.unknown_outputs]

    def split_eqn(self, eqn: Eqn, unknown: Sequence[bool], policy: Policy) -> tuple:
        """The two halves of an equation inside a program that is split, and the residuals between them."""
        plan = _split_scan(eqn.params["jaxpr"], eqn.params["layout"], unknown, policy)
        if plan is None:
            return None, eqn, []
        stacked = [Var(a) for a in plan.stacked_avals]
        known_out = [v for v, u in zip(eqn.outvars, plan.unknown_outputs) if not u]
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
            *(to_front(x, d, axis.size, axis.split) if d is not None else x for x, d in consts),
            *(to_front(x, d, axis.size, axis.split) if m else x for (x, d), m in zip(init, m_carry)),
            *(to_dim(x, d, axis.size, 1, axis.split) if d is not None else x for x, d in xs),
        ]
        hoisted = derived.derive("hoisted", derived.hoist)
        wide = layout._replace(num_consts=layout.num_consts + len(derived.consts))
        out = self(*derived.consts, *moved, jaxpr=hoisted, layout=wide)
        out_dims = [0 if m else None for m in m_carry] + [1 if m else None for m in out_mapped[layout.num_carry :]]
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
        smaller, kept = _keep_inputs(jaxpr, smaller, kept, [*k_consts, *carry, *k_xs])
        outs = [*carry, *used_ys]
        return eqn.replace(
            invars=chosen(eqn.invars, kept),
            outvars=chosen(eqn.outvars, outs),
            params={"jaxpr": smaller, "layout": layout._replace(num_consts=sum(k_consts), num_carry=sum(carry))},
            effects=smaller.effects,
        )


scan_p = Scan()


def _keep_inputs(
    whole: Jaxpr, smaller: Jaxpr, kept: Sequence[bool], wanted: Sequence[bool]
) -> tuple[Jaxpr, list[bool]]:
    if list(kept) == list(wanted):
        return smaller, list(kept)
    return smaller.replace(invars=chosen(whole.invars, wanted)), list(wanted)


def _permuted(
    program: Jaxpr, in_sizes: Sequence[int], in_order: Sequence[int], out_sizes: Sequence[int], out_order: Sequence[int]
) -> Jaxpr:
    """A program with its constants in front and its inputs and outputs regrouped."""
    key = ("permuted", tuple(in_sizes), tuple(in_order), tuple(out_sizes), tuple(out_order))

    def make() -> Jaxpr:
        ins, outs = groups_of(program.invars, in_sizes), groups_of(program.outvars, out_sizes)
        return program.replace(
            invars=[*program.constvars, *(v for i in in_order for v in ins[i])],
            outvars=[v for i in out_order for v in outs[i]],
            constvars=(),
            consts=(),
        )

    return program.derive(key, make)


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
    body = primal.replace(outvars=[*primal.outvars[:num_outputs], *stacked])
    body, _ = eliminate_dead_code(body, [True] * len(body.outvars), instantiate=True)
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
    part = Jaxpr(inputs, program.eqns, outputs, debug_name=program.debug_name)
    smaller, _ = eliminate_dead_code(part, [True] * len(outputs), instantiate=True)
    return smaller


def _accumulating(derived: Jaxpr, num_res_consts: int, num_res_xs: int, num_consts: int, num_carry: int) -> Jaxpr:
    """The body of a transposed scan.

    The derived program takes (residual constants, residual xs, carry cotangents, ys cotangents) and gives the
    cotangents of (linear constants, carry, linear xs). The body takes (constants; sums for the linear constants,
    carry cotangents; ys cotangents, residual xs), and adds the new cotangents of the constants to the sums.
    """

    def make() -> Jaxpr:
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

    return derived.derive(("accumulating", num_res_consts, num_res_xs, num_consts, num_carry), make)


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


def _split_scan(jaxpr: Jaxpr, layout: Layout, unknown: Sequence[bool], policy: Policy) -> _ScanSplit | None:
    """Split a scan by which operands are unknown; None where nothing can be done early."""
    key = ("split_scan", layout, tuple(unknown), policy)
    return jaxpr.derive(key, lambda: (_make_scan_split(jaxpr, layout, unknown, policy),))[0]


def _make_scan_split(jaxpr: Jaxpr, layout: Layout, unknown: Sequence[bool], policy: Policy) -> _ScanSplit | None:
    u_consts, u_init, u_xs = layout.split(unknown)
    num_ys = len(jaxpr.outvars) - layout.num_carry

    def step(u_carry: list[bool]) -> tuple[Split, list[bool]]:
        parts = split_program(
            jaxpr, [*u_consts, *u_carry, *u_xs], unknown_outputs=[*u_carry, *([False] * num_ys)], policy=policy
        )
        return parts, parts.unknown_outputs[: layout.num_carry]

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
    res, taken = parts.unknown.invars[: len(residual_inputs)], parts.unknown.invars[len(residual_inputs) :]
    steady, moving = chosen(res, invariant), [v for v, inv in zip(res, invariant) if not inv]
    t_consts = layout.split(parts.unknown_inputs)[0]
    m = sum(t_consts) + sum(u_carry)
    return _ScanSplit(
        known=parts.known.replace(outvars=[*parts.known.outvars[:num_known], *stacked]),
        known_layout=layout._replace(num_consts=c - sum(u_consts), num_carry=layout.num_carry - sum(u_carry)),
        known_inputs=known_inputs,
        stacked_avals=[v.aval.with_dim(0, layout.length) for v in stacked],
        unknown=parts.unknown.replace(invars=[*steady, *taken[:m], *moving, *taken[m:]]),
        unknown_layout=layout._replace(num_consts=len(steady) + sum(t_consts), num_carry=sum(u_carry)),
        unknown_inputs=parts.unknown_inputs,
        unknown_outputs=parts.unknown_outputs,
        residual_inputs=residual_inputs,
        invariant=invariant,
    )


def _lower_scan(ctx: Any, operands: Sequence[Any], jaxpr: Jaxpr, layout: Layout) -> list:
    """Emit a scan as a while loop over a counter, the carry and the stacked results."""
    consts, init, xs = layout.split(operands)
    const_avals, carry_avals, x_avals = layout.split(jaxpr.in_avals)
    y_avals = jaxpr.out_avals[layout.num_carry :]
    stacked_avals = [a.with_shape((layout.length, *a.shape)) for a in y_avals]
    xs_avals = [a.with_shape((layout.length, *a.shape)) for a in x_avals]
    counter = ShapedArray((), np.dtype("int32"))
    buffers = [ctx.inline(lambda a=a: [vector_space.zeros(a)], avals=[])[0] for a in stacked_avals]
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
    return out[n_fixed:]


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


def emit_while(
    ctx: Any, avals: Sequence[Any], init: Sequence[Any], ordered: Sequence[Any], condition: Callable, body: Callable
) -> list:
    """Emit a while loop over a first value and others, order tokens being carried along.

    Args:
      ctx: where to emit.
      avals: the types of all loop values.
      init: their initial IR values.
      ordered: the ordered effects of the body.
      condition: (first, others) -> predicate.
      body: (first, others) -> (first, others).

    Returns:
      The final values.
    """
    count = len(ordered)
    all_avals = [*([token_aval] * count), *avals]
    start = [*(ctx.token(e) for e in ordered), *init]
    op = hlo.WhileOp([ctx.type(a) for a in all_avals], start)
    outer = dict(ctx.tokens)

    def run_condition(*args: Any) -> Any:
        return condition(args[count], args[count + 1 :])

    def run_body(*args: Any) -> list:
        ctx.tokens.update(zip(ordered, args))
        first, others = body(args[count], args[count + 1 :])
        return [*(ctx.tokens[e] for e in ordered), first, *others]

    ctx.region(all_avals, op, run_condition, 0)
    ctx.region(all_avals, op, run_body, 1)
    ctx.tokens = outer
    ctx.tokens.update(zip(ordered, op.results))
    return list(op.results)[count:]


class While(Primitive, name="while", multiple=True):
    """A loop while a condition holds: (*condition constants, *body constants, *carry) -> carry."""

    holds_program = True
    says_shardings = True
    batch = None

    def roles(self, *avals: Any, cond: Jaxpr, body: Jaxpr, num_cond_consts: int, num_body_consts: int) -> Roles:
        sizes = [num_cond_consts, num_body_consts, len(body.outvars)]
        in_cond, in_body, carry = groups_of(range(len(avals)), sizes)
        asked = program_roles(cond)
        condition = Roles(asked.operands, [], asked.reduced, asked.whole)  # nothing comes out of it
        after = range(len(avals), len(avals) + len(carry))
        parts = [(condition, [*in_cond, *carry], []), (program_roles(body), [*in_body, *carry], after)]
        # How often it runs must not depend on the piece, and a carry that is a part would be read as if it were whole.
        carried = list(zip(carry, after))
        return joined_roles(avals, body.out_avals, parts, carried=carried, reduces=False)

    def result(self, *avals: Any, cond: Jaxpr, body: Jaxpr, num_cond_consts: int, num_body_consts: int) -> list:
        return body.out_avals

    def settle(self, avals: Sequence[Any], params: dict) -> dict:
        cond, body = params["cond"], params["body"]
        if not varies(avals, body.out_avals, cond.out_avals):
            return params
        c, b = params["num_cond_consts"], params["num_body_consts"]
        in_cond, in_body, count = list(avals[:c]), list(avals[c:]), len(body.outvars)
        while True:
            body = settled_loop(body, in_body, b, count)
            cond = retyped(cond, [*in_cond, *body.out_avals])
            axes = cond.out_avals[0].varying
            in_body = [a.with_varying(a.varying | axes) for a in body.in_avals]
            if in_body == body.in_avals:
                break
        refuse_divergence("while_loop, the condition", axes, (cond, body))
        return params | {"cond": cond, "body": body}

    def effects(self, *avals: Any, cond: Jaxpr, body: Jaxpr, **_: Any) -> Effects:
        return cond.effects | body.effects

    def lower(
        self, ctx: Any, *operands: Any, cond: Jaxpr, body: Jaxpr, num_cond_consts: int, num_body_consts: int
    ) -> list:
        c, n = num_cond_consts, num_cond_consts + num_body_consts
        avals = [*cond.in_avals[:c], *body.in_avals]

        def split(values: Sequence[Any]) -> tuple:
            return values[:c], values[c:n], values[n:]

        def condition(first: Any, others: Sequence[Any]) -> Any:
            in_cond, _, carry = split([first, *others])
            return ctx.emit(cond, [*in_cond, *carry])[0]

        def step(first: Any, others: Sequence[Any]) -> tuple:
            in_cond, in_body, carry = split([first, *others])
            out = [*in_cond, *in_body, *ctx.emit(body, [*in_body, *carry])]
            return out[0], out[1:]

        return emit_while(ctx, avals, operands, fx.ordered(body.effects), condition, step)[n:]

    def jvp(
        self, primals: Any, tangents: Any, *, cond: Jaxpr, body: Jaxpr, num_cond_consts: int, num_body_consts: int
    ) -> tuple:
        sizes = [num_cond_consts, num_body_consts, len(body.outvars)]
        in_cond, in_body, init = groups_of(primals, sizes)
        _, body_dot, init_dot = groups_of(tangents, sizes)
        nz_body = [type(t) is not Zero for t in body_dot]

        def step(nz_carry: list[bool]) -> tuple:
            return jvp_program(body, [*nz_body, *nz_carry], nz_carry)

        derived, nz_carry = fixpoint([type(t) is not Zero for t in init_dot], step)
        init_dot = [instantiate(t) for t in chosen(init_dot, nz_carry)]
        body_dot = chosen(body_dot, nz_body)
        groups = [len(in_body), len(init), len(body_dot), len(init_dot)]
        joint = _permuted(derived, groups, [0, 2, 1, 3], [len(init), len(init_dot)], [0, 1])
        wide = cond.derive(
            ("wide", tuple(nz_carry)),
            lambda: cond.replace(
                invars=[*cond.invars, *(Var(a.to_tangent()) for a in chosen(body.out_avals, nz_carry))]
            ),
        )
        out = self(
            *in_cond,
            *derived.consts,
            *in_body,
            *body_dot,
            *init,
            *init_dot,
            cond=wide,
            body=joint,
            num_cond_consts=num_cond_consts,
            num_body_consts=len(derived.consts) + len(in_body) + len(body_dot),
        )
        return out[: len(init)], join_tangents(body.out_avals, nz_carry, out[len(init) :])

    def split(self, trace: LinearTrace, args: Any, params: dict) -> list:
        """What is known runs now; the part with tangents runs the whole loop again, since its length is not known."""
        early, waiting = _split_while(params, [trace.is_unknown(x) for x in args])
        ready = iter(early(self, args))
        atoms = [trace.atom(x) for x in args]
        later = trace.record(self, atoms, tuple(a.aval for a in atoms), params)
        return [x if u else next(ready) for x, u in zip(later, waiting)]

    def split_eqn(self, eqn: Eqn, unknown: Sequence[bool], policy: Policy) -> tuple:
        """The known part of the loop, and the whole of it, which waits."""
        params = eqn.params
        known_in, carry_known, smaller = _known_while(params, unknown)
        if not any(carry_known):
            return None, eqn, []
        known = eqn.replace(
            invars=chosen(eqn.invars, known_in),
            outvars=chosen(eqn.outvars, carry_known),
            params=smaller,
            effects=no_effects,
        )
        fresh = [Var(v.aval) if k else v for v, k in zip(eqn.outvars, carry_known)]
        return known, eqn.replace(outvars=fresh), []

    def transpose(self, y_bars: Any, *operands: Any, **_: Any) -> tuple:
        raise RuleError(
            "reverse-mode differentiation of while_loop (or fori_loop with traced bounds)",
            expected="a loop whose length is known while tracing",
            got="one that ends when its condition says so",
            mend="use scan, fori_loop with static bounds, or forward mode (jvp, jacfwd)",
        )

    def batch_axis(
        self, axis: Axis, args: Any, dims: Any, *, cond: Jaxpr, body: Jaxpr, num_cond_consts: int, num_body_consts: int
    ) -> tuple:
        sizes = [num_cond_consts, num_body_consts, len(body.outvars)]
        mapped = [d is not None for d in dims]
        m_cond, m_body, m_init = groups_of(mapped, sizes)

        def step(m_carry: list[bool]) -> tuple:
            derived, out = batch_program(body, axis, [*m_body, *m_carry], m_carry)
            predicate, (by_example,) = batch_program(cond, axis, [*m_cond, *m_carry])
            if by_example:
                out = [True] * len(out)
            return (derived, predicate, by_example), out

        (derived, predicate, by_example), m_carry = fixpoint(m_init, step)
        if by_example:
            derived, _ = batch_program(body, axis, [*m_body, *m_carry], True)
        in_cond, in_body, init = groups_of(list(zip(args, dims)), sizes)
        in_cond = [to_front(x, d, axis.size, axis.split) if d is not None else x for x, d in in_cond]
        in_body = [to_front(x, d, axis.size, axis.split) if d is not None else x for x, d in in_body]
        init = [to_front(x, d, axis.size, axis.split) if m else x for (x, d), m in zip(init, m_carry)]
        if by_example:
            predicate, derived = _while_any(predicate, derived, len(in_cond), len(in_body))
            in_body = [*in_cond, *in_body]
        in_cond, in_body = [*predicate.consts, *in_cond], [*derived.consts, *in_body]
        out = self(
            *in_cond,
            *in_body,
            *init,
            cond=predicate.hoist(),
            body=derived.hoist(),
            num_cond_consts=len(in_cond),
            num_body_consts=len(in_body),
        )
        return out, [0 if m else None for m in m_carry]

    @staticmethod
    def dce(eqn: Eqn, used: Sequence[bool]) -> Eqn | None:
        """The loop without the carry that neither its condition nor a wanted result needs."""
        params = eqn.params
        cond, body = params["cond"], params["body"]
        c, b = params["num_cond_consts"], params["num_body_consts"]
        if not any(used) and not (cond.effects | body.effects):
            return None
        _, cond_reads = eliminate_dead_code(cond, [True])
        wanted = [u or r for u, r in zip(used, cond_reads[c:])]

        def step(carry: list[bool]) -> tuple:
            smaller, kept = eliminate_dead_code(body, carry)
            return (smaller, kept), kept[b:]

        (smaller, kept), carry = fixpoint(wanted, step)
        if all(carry):
            return eqn
        smaller, kept = _keep_inputs(body, smaller, kept, [*kept[:b], *carry])
        keep_in = [*([True] * c), *kept]
        return eqn.replace(
            invars=chosen(eqn.invars, keep_in),
            outvars=chosen(eqn.outvars, carry),
            params={
                "cond": cond.replace(invars=[*cond.invars[:c], *chosen(cond.invars[c:], carry)]),
                "body": smaller,
                "num_cond_consts": c,
                "num_body_consts": sum(kept[:b]),
            },
        )


while_p = While()


def _while_any(predicate: Jaxpr, body: Jaxpr, num_cond: int, num_body: int) -> tuple[Jaxpr, Jaxpr]:
    """The condition and body of a loop that runs while any example wants to, keeping the others as they are.

    Returns:
      The condition (its constants, carry) and the body (constants of the condition, its own, carry).
    """
    carry = body.out_avals
    cond_avals, body_avals = predicate.in_avals[:num_cond], body.in_avals[:num_body]

    def condition(*args: Any) -> list:
        return [reduce_or(run_program(predicate, *args)[0], (0,))]

    def step(*args: Any) -> list:
        in_cond, in_body, held = groups_of(args, [num_cond, num_body, len(carry)])
        (active,) = run_program(predicate, *in_cond, *held)
        after = run_program(body, *in_body, *held)
        return [
            select_n(broadcast_in_dim(active, aval.shape, (0,)), old, new) for aval, old, new in zip(carry, held, after)
        ]

    return (
        stage(condition, [*cond_avals, *carry], predicate.debug_name),
        stage(step, [*cond_avals, *body_avals, *carry], body.debug_name),
    )


def _known_while(params: dict, unknown: Sequence[bool]) -> tuple[list[bool], list[bool], dict]:
    """The part of a while loop that unknown operands do not touch: which operands, which carry, its parameters."""
    cond, body = params["cond"], params["body"]
    c, b = params["num_cond_consts"], params["num_body_consts"]
    u_cond, u_body, u_init = groups_of(unknown, [c, b, len(body.outvars)])

    def step(u_carry: list[bool]) -> tuple:
        parts = split_program(body, [*u_body, *u_carry], unknown_outputs=u_carry)
        return parts, parts.unknown_outputs

    _, u_carry = fixpoint(u_init, step)
    _, reads = eliminate_dead_code(cond, [True])
    if any(r and u for r, u in zip(reads, [*u_cond, *u_carry])):
        u_carry = [True] * len(u_carry)
    known = [not u for u in u_carry]
    smaller, kept = eliminate_dead_code(body, known)
    smaller, kept = _keep_inputs(body, smaller, kept, [*([k and not u for k, u in zip(kept[:b], u_body)]), *known])
    keep_cond = cond.replace(invars=[*cond.invars[:c], *chosen(cond.invars[c:], known)])
    return (
        [*([True] * c), *kept],
        known,
        {"cond": keep_cond, "body": smaller, "num_cond_consts": c, "num_body_consts": sum(kept[:b])},
    )


def _split_while(params: dict, unknown: Sequence[bool]) -> tuple[Callable, list[bool]]:
    known_in, carry_known, smaller = _known_while(params, unknown)
    if not any(carry_known):
        return (lambda prim, args: []), [True] * len(carry_known)
    return (lambda prim, args: prim(*chosen(args, known_in), **smaller)), [not k for k in carry_known]


def scan(
    f: Callable,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple:
    """A loop over the leading dimension of arrays, compiled once however long it is.

    Args:
      f: one iteration, `(carry, x) -> (carry, y)`.
      init: the first carry, a pytree; its types must not change from one iteration to the next.
      xs: the inputs, a pytree of arrays with one leading dimension, or None.
      length: the number of iterations, needed where `xs` is None.
      reverse: run from the last input to the first (results keep the order of the inputs).
      unroll: how many iterations to put in one step of the compiled loop; True for all.

    Returns:
      `(carry, ys)`: the last carry, and the stacked `y`s.

    Raises:
      ArgumentError: inputs of different lengths, or none and no `length`.
      TreeError, ArgumentTypeError: the carry changes its structure or its types.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> total, sums = phalanx.lax.scan(lambda c, x: (c + x, c + x), 0.0, jnp.arange(4.0))
      >>> float(total), sums.tolist()
      (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    if not callable(f):
        raise ArgumentTypeError("scan, argument f", expected="a function", got=repr(f), mend="pass the loop's body")
    return _scan(f, None, init, xs, length, reverse, unroll)


def _scan(f: Callable, adapt: Any, init: Any, xs: Any, length: Any, reverse: bool, unroll: int | bool) -> tuple:
    """`scan` of the body that `adapt` makes of a user's function (see `stage_body`)."""
    xs_flat, xs_tree = tree_flatten(xs)
    size = _scan_length(xs_flat, length)
    if isinstance(unroll, bool):
        unroll = max(size, 1) if unroll else 1
    if unroll < 1:
        raise ArgumentError("scan, argument unroll", expected="a positive int", got=str(unroll), mend="give 1 or more")
    if runs_in_python(size) and not is_symbolic(size) and size:
        return scan_in_python(f if adapt is None else adapt(f), init, xs, size, reverse)
    init_flat, init_tree = tree_flatten(init)
    _check_whole(xs_flat)
    x_avals = [a.without_dim(0) for a in leaf_avals(xs_flat)]
    in_tree = tree_flatten((tree_unflatten(init_tree, init_flat), tree_unflatten(xs_tree, xs_flat)))[1]

    def make(avals: Sequence[ShapedArray]) -> Any:
        body = stage_body(f, in_tree, [*avals, *x_avals], "scan body", adapt)
        shown = tree_unflatten(body.out_tree, list(body.program.out_avals))
        if not isinstance(shown, tuple | list) or len(shown) != 2:
            raise ArgumentTypeError(
                "scan, the result of f", expected="a pair (carry, y)", got=str(body.out_tree), mend="return (carry, y)"
            )
        return body, *tree_flatten(shown[0]), tree_flatten(shown[1])[1]

    init_flat, in_avals, (body, carry_avals, carry_tree, y_tree) = promote_carry(init_flat, make)
    check_same_types("scan, the carry that f returns", init_tree, in_avals, carry_tree, carry_avals, "init")
    layout = Layout(len(body.consts), len(init_flat), size, bool(reverse), int(unroll))
    out = scan_p(*body.consts, *init_flat, *xs_flat, jaxpr=body.program, layout=layout)
    n = len(init_flat)
    return tree_unflatten(init_tree, out[:n]), tree_unflatten(y_tree, out[n:])


def promote_carry(init: Sequence[Any], make: Callable) -> tuple[list, list, Any]:
    """Stage a loop body for a carry of the types that it keeps.

    Initial values whose dtype is weak and whose carry comes back stronger are converted. Inside a `shard_map` the carry
    varies over all mesh axes that it comes back varying over; the body is staged again for that, since what it
    differentiates depends on which values devices share. Values that are over no mesh, and whose carry comes back over
    one, are brought to how it comes back.

    Args:
      init: the initial values.
      make: from the types of the carry to (body, types of the carry it returns, ...).

    Returns:
      The initial values, converted where needed, the types of the carry, and what `make` gave.
    """
    avals = leaf_avals(init)
    made = make(avals)
    after = made[1]
    if len(after) != len(avals):
        return list(init), avals, made
    wider = [b if _gives_way(a, b) else a for a, b in zip(avals, after)]
    if wider != avals:
        init = [vector_space.convert(x, w.dtype) if w is not a else x for x, a, w in zip(init, avals, wider)]
        made = make(leaf_avals(init))
    avals = leaf_avals(init)
    placed = [_over_mesh_of(a, b) for a, b in zip(avals, made[1])]
    if placed != avals:
        init, avals = conform_all(init, placed), placed
        made = make(avals)
    while (varying := widened(avals, made[1])) != avals:
        avals, made = varying, make(varying)
    return list(init), avals, made


def _gives_way(aval: ShapedArray, after: ShapedArray) -> bool:
    """Whether an initial value is weak and takes the type that its carry comes back with, without losing its kind."""
    if not aval.weak_type or aval.matches(after) or aval.shape != after.shape:
        return False
    is_number = dtypes.issubdtype(after.dtype, np.number)
    return is_number and dtypes.promote_pair(aval.dtype, True, after.dtype, after.weak_type)[0] == after.dtype


def _over_mesh_of(aval: ShapedArray, after: ShapedArray) -> ShapedArray:
    """The type of a carry that is over no mesh, as one that lies as it comes back."""
    if aval.sharding is not None or after.sharding is None or aval.shape != after.shape:
        return aval
    return aval.update(sharding=after.sharding)


def _check_whole(xs: Sequence[Any]) -> None:
    """Refuse inputs whose iterations lie on different devices by their types."""
    for i, aval in enumerate(leaf_avals(xs)):
        if aval.sharding is not None and num_parts(aval.sharding.mesh, aval.sharding.spec.dims[0]) > 1:
            raise ShardingError(
                f"scan, xs leaf {i}",
                expected="a leading dimension that is not split, since each device runs all iterations",
                got=aval.str_short(),
                mend="reshard it with phalanx.reshard, leaving the leading dimension whole",
            )


def _scan_length(xs: Sequence[Any], length: Any) -> Any:
    sizes: dict[Any, int] = {}
    for i, x in enumerate(xs):
        aval = aval_of(x)
        if not aval.ndim:
            raise ArgumentError(
                f"scan, xs leaf {i}",
                expected="an array with a leading dimension",
                got=aval.str_short(),
                mend="close over values that are the same in each iteration",
            )
        sizes.setdefault(aval.shape[0], i)
    if length is not None:
        length = operator.index(length) if not hasattr(length, "is_symbolic_dim") else length
        sizes.setdefault(length, -1)
    if len(sizes) != 1:
        shown = ", ".join(f"{s} ({'length' if i < 0 else f'leaf {i}'})" for s, i in sizes.items())
        raise ArgumentError(
            "scan, argument xs",
            expected="leading dimensions of one size" if sizes else "inputs, or a length",
            got=shown or "neither",
            mend="make the leading dimensions agree" if sizes else "pass length=",
        )
    return next(iter(sizes))


def while_loop(cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
    """A loop while a condition holds.

    Args:
      cond_fun: from the carry to a boolean scalar.
      body_fun: from the carry to the next one, of the same structure and types.
      init_val: the first carry, a pytree.

    Returns:
      The carry for which the condition no longer holds. It cannot be differentiated in reverse mode.

    Raises:
      ArgumentTypeError: the condition is no boolean scalar, or the carry changes its types.
      TreeError: the carry changes its structure.

    Examples:
      >>> import phalanx
      >>> int(phalanx.lax.while_loop(lambda x: x < 10, lambda x: 2 * x, 1))
      16
    """
    for name, fun in (("cond_fun", cond_fun), ("body_fun", body_fun)):
        if not callable(fun):
            raise ArgumentTypeError(
                f"while_loop, argument {name}", expected="a function", got=repr(fun), mend="pass one"
            )
    if state.context.disable_jit and runs_in_python(goes_on := cond_fun(init_val)):
        return while_in_python(cond_fun, body_fun, init_val, goes_on)
    flat, tree = tree_flatten(init_val)
    in_tree = tree_flatten((init_val,))[1]

    def make(avals: Sequence[ShapedArray]) -> tuple:
        body = stage_body(body_fun, in_tree, avals, "while_loop body")
        after = body.program.out_avals
        if not varies(avals, after):
            return body, after
        # Devices that differ in the condition run on for different times, so that nothing in the carry stays shared.
        over = joint_varying(
            stage_body(cond_fun, in_tree, widened(avals, after), "while_loop condition").program.out_avals
        )
        return body, [a.with_varying(a.varying | over) for a in after]

    flat, avals, (body, after) = promote_carry(flat, make)
    check_same_types("while_loop, the result of body_fun", tree, avals, body.out_tree, after, "init_val")
    cond = stage_body(cond_fun, in_tree, avals, "while_loop condition")
    check_predicate("while_loop, the result of cond_fun", cond.program.out_avals)
    out = while_p(
        *cond.consts,
        *body.consts,
        *flat,
        cond=cond.program,
        body=body.program,
        num_cond_consts=len(cond.consts),
        num_body_consts=len(body.consts),
    )
    return tree_unflatten(tree, out)


def check_predicate(what: str, avals: Sequence[ShapedArray]) -> None:
    """Refuse a condition that is not one boolean scalar."""
    if len(avals) != 1 or avals[0].shape != () or avals[0].dtype != np.bool_:
        raise ArgumentTypeError(
            what,
            expected="a boolean scalar",
            got=", ".join(a.str_short() for a in avals) or "nothing",
            mend="compare, or reduce with .any() or .all()",
        )


def fori_loop(lower: Any, upper: Any, body_fun: Callable, init_val: Any, *, unroll: int | bool | None = None) -> Any:
    """A counted loop.

    Args:
      lower: the first index.
      upper: one past the last index.
      body_fun: `(i, carry) -> carry`, of the same structure and types.
      init_val: the first carry.
      unroll: as in `scan`; only for bounds known while tracing.

    Returns:
      The last carry. With bounds known while tracing the loop is a `scan` and can be differentiated in either mode.

    Examples:
      >>> import phalanx
      >>> int(phalanx.lax.fori_loop(0, 5, lambda i, x: x + i, 0))
      10
    """
    if not callable(body_fun):
        raise ArgumentTypeError(
            "fori_loop, argument body_fun", expected="a function", got=repr(body_fun), mend="pass one"
        )
    lower, upper = as_number(lower), as_number(upper)
    dtype, weak = _index_dtype(lower, upper)
    if all(not isinstance(b, Tracer) or b.concrete is not None for b in (lower, upper)):
        start, stop = operator.index(lower), operator.index(upper)
        first = start if weak else np.asarray(start, dtype)[()]
        return _scan(body_fun, _counted, (first, init_val), None, max(stop - start, 0), False, unroll or 1)[0][1]
    if unroll is not None and unroll is not False:
        raise ArgumentError(
            "fori_loop, argument unroll",
            expected="bounds that are known while tracing",
            got="traced bounds",
            mend="leave unroll out, or give static bounds",
        )
    low, high = (b if weak else vector_space.convert(b, dtype) for b in (lower, upper))
    return while_loop(
        lambda c: lt(c[0], c[1]), lambda c: (add(c[0], 1), c[1], body_fun(c[0], c[2])), (low, high, init_val)
    )[2]


def _counted(body_fun: Callable) -> Callable:
    """One iteration of a counted loop as that of a scan; the index counts on in the dtype it has."""

    def step(carry: tuple, _: Any) -> tuple:
        i, x = carry
        return (add(i, 1), body_fun(i, x)), None

    return step


def _index_dtype(lower: Any, upper: Any) -> tuple[Any, bool]:
    """The dtype in which a loop counts, and whether it is weak.

    Raises:
      ArgumentTypeError: a bound is no integer scalar.
    """
    for name, b in (("lower", lower), ("upper", upper)):
        aval = aval_of(b)
        if aval.shape != () or aval.dtype.kind not in "iu":
            raise ArgumentTypeError(
                f"fori_loop, argument {name}", expected="an integer scalar", got=aval.str_short(), mend="convert it"
            )
    return dtypes.result_type(lower, upper, return_weak_type=True)


def map(f: Callable, xs: Any, *, batch_size: int | None = None) -> Any:
    """Apply a function to each element along the leading dimension, one after the other.

    Args:
      f: a function of one element.
      xs: a pytree of arrays with one leading dimension.
      batch_size: apply it to this many elements at once (by `vmap`), the rest after them.

    Returns:
      The stacked results.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.lax.map(lambda x: x * x, jnp.arange(3)).tolist()
      [0, 1, 4]
    """
    if batch_size is None:
        return _scan(f, _mapped, (), xs, None, False, 1)[1]
    leaves, tree = tree_flatten(xs)
    size = _scan_length(leaves, None)
    whole = size // batch_size * batch_size
    parts = []
    if whole:
        blocks = [
            reshape(slice_in_dim(x, 0, whole), (whole // batch_size, batch_size, *aval_of(x).shape[1:])) for x in leaves
        ]
        out = _scan(f, _mapped_blocks, (), tree_unflatten(tree, blocks), None, False, 1)[1]
        parts.append(tree_map(lambda y: reshape(y, (whole, *y.shape[2:])), out))
    if whole < size or not parts:
        parts.append(vmap(f)(tree_unflatten(tree, [slice_in_dim(x, whole, size) for x in leaves])))
    return parts[0] if len(parts) == 1 else tree_map(lambda *ys: concatenate(ys, 0), *parts)


def _mapped(f: Callable) -> Callable:
    """A function of elements as the body of a scan."""
    return lambda _, x: ((), f(x))


def _mapped_blocks(f: Callable) -> Callable:
    """The same for a function of blocks of elements."""
    return _mapped(vmap(f))


class _Loops:
    map = staticmethod(map)


loops.take(_Loops)
