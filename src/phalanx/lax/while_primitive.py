"""The primitives `while` and `while_each`, with every rule; and the emission of a StableHLO loop, which `scan` shares.

Its length is not known, so that what has tangents runs the whole loop again and nothing is transposed. `loops.py` binds
it. A `vmap` of a loop of small values is `while_each`, which does not make devices wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import effects as fx
from phalanx.core.aval import aval_of
from phalanx.core.effects import Effects, no_effects
from phalanx.core.errors import RuleError
from phalanx.core.flags import chosen
from phalanx.core.jaxpr import Eqn, Jaxpr, Var, derivation, eliminate_dead_code, named_axes, run_program
from phalanx.core.primitive import Primitive, Roles, joint_varying
from phalanx.core.roles import joined_roles, program_roles
from phalanx.core.tangent import Zero, instantiate, join_tangents, split_tangents
from phalanx.core.trace import stage
from phalanx.core.varying import retyped, staged_for, varies
from phalanx.engine.mlir import hlo
from phalanx.lax.bodies import fixpoint, groups_of, keep_inputs, permuted, settled_loop
from phalanx.lax.broadcast import broadcast_in_dim
from phalanx.lax.named_axes import refuse_divergence
from phalanx.lax.reductions import reduce_or
from phalanx.lax.select import select_n
from phalanx.runtime.lowering import ORDER_TOKEN
from phalanx.runtime.pieces import is_told_by_text
from phalanx.transforms.batching import Axis, batch_program, front_dims, vmap_flat
from phalanx.transforms.forward import jvp_program
from phalanx.transforms.linear import LinearTrace
from phalanx.transforms.partial_eval import Policy, everything_saveable, split_program


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
    all_avals = [*([ORDER_TOKEN] * count), *avals]
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
            # What a loop never writes is the same on devices that run it for different times.
            kept = [False] * b + [v is out for v, out in zip(body.invars[b:], body.outvars, strict=True)]
            in_body = [a if k else a.with_varying(a.varying | axes) for a, k in zip(body.in_avals, kept, strict=True)]
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
        joint = permuted(derived, groups, [0, 2, 1, 3], [len(init), len(init_dot)], [0, 1])
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
        later = trace.record(self, args, params)
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
        if policy is everything_saveable:
            eqn = eqn.replace(outvars=[Var(v.aval) if k else v for v, k in zip(eqn.outvars, carry_known)])
        return known, eqn, []

    def transpose(self, y_bars: Any, *operands: Any, **_: Any) -> tuple:
        raise RuleError(
            "reverse-mode differentiation of while_loop (or fori_loop with traced bounds)",
            expected="a loop whose length is known while tracing",
            got="one that ends when its condition says so",
            mend="use scan, fori_loop with static bounds, or forward mode (jvp, jacfwd)",
        )

    def batch_axis(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple:
        mapped = [d is not None for d in dims]
        if _is_small(params["body"], params["cond"]) and _ends_by_example(axis, mapped, **params):
            params |= {
                name: _untyped(params[name]) for name in ("cond", "body")
            }  # The roles say how results are split.
            out = while_each_p(*axis.to_fronts(args, dims), levels=(tuple(mapped),), **params)
            return out, [0] * len(out)
        return self.mapped(axis, args, dims, **params)

    def mapped(
        self, axis: Axis, args: Any, dims: Any, *, cond: Jaxpr, body: Jaxpr, num_cond_consts: int, num_body_consts: int
    ) -> tuple:
        """The results as one loop for all examples, and their mapped dimensions; as `batch_axis`."""
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
        in_cond = [axis.to_front(x, d) if d is not None else x for x, d in in_cond]
        in_body = [axis.to_front(x, d) if d is not None else x for x, d in in_body]
        init = [axis.to_front(x, d) if m else x for (x, d), m in zip(init, m_carry)]
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
        return out, front_dims(m_carry)

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
        smaller, kept = keep_inputs(body, smaller, kept, [*kept[:b], *carry])
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

_SMALL = 4096  # elements; weights that someone may have split have more


class WhileEach(Primitive, name="while_each", multiple=True):
    """Loops of small values, one for each element of the dimensions `e`: any[*e, *dims] each -> any[*e, *dims] each.

    What a `vmap` of `while` is where the condition is the example's own. The parameters are those of the one loop;
    `levels` says for each `vmap`, innermost first, which operands it maps, and their mapped dimensions stand in front.
    Over several devices each runs until its own elements are done.
    """

    holds_program = True
    by_pieces = True
    batch = None
    transpose = While.transpose

    def result(self, *avals: Any, levels: tuple, body: Jaxpr, **_: Any) -> list:
        shape = tuple(reversed(_sizes([a.shape for a in avals], levels)))
        axes = joint_varying(avals)
        return [a.with_shape((*shape, *a.shape)).with_varying(a.varying | axes) for a in body.out_avals]

    def roles(self, *avals: Any, levels: tuple, body: Jaxpr, **_: Any) -> Roles:
        front = range(len(levels) - 1, -1, -1)
        mapped = [[n for n in front if levels[n][i]] for i in range(len(avals))]
        within = [[(i, d) for d in range(a.ndim - len(m))] for i, (a, m) in enumerate(zip(avals, mapped, strict=True))]
        after = [[(len(avals) + i, d) for d in range(v.aval.ndim)] for i, v in enumerate(body.outvars)]
        return Roles(
            [[*front, *own] for front, own in zip(mapped, within, strict=True)],
            [[*front, *own] for own in after],
            whole={name for own in (*within, *after) for name in own},
        )

    def lower(self, ctx: Any, *operands: Any, levels: tuple, **params: Any) -> list:
        def one_loop(axis: Axis, xs: Any, dims: Any) -> tuple:
            return while_p.mapped(axis, xs, dims, **params)

        return ctx.inline(lambda *xs: _nested(one_loop, xs, levels), *operands)

    def jvp(self, primals: Any, tangents: Any, *, levels: tuple, **params: Any) -> tuple:
        nonzero, given = split_tangents(tangents)
        has: list[bool] = []

        def one(*xs: Any) -> list:
            x = xs[: len(primals)]
            out, out_dot = while_p.jvp(x, join_tangents([aval_of(v) for v in x], nonzero, xs[len(x) :]), **params)
            has[:], nonzero_dot = split_tangents(out_dot)
            return [*out, *nonzero_dot]

        wide = [(*level, *chosen(level, nonzero)) for level in levels]
        out = _nested(lambda axis, xs, dims: vmap_flat(one, xs, dims, axis), [*primals, *given], wide)
        count = len(params["body"].outvars)
        return out[:count], join_tangents([aval_of(y) for y in out[:count]], has, out[count:])

    def split(self, trace: LinearTrace, args: Any, params: dict) -> list:
        """As for `while`: the primal part runs now."""
        known_in, known, smaller = _known_each(params, [trace.is_unknown(x) for x in args])
        ready = iter(self(*chosen(args, known_in), **smaller) if any(known) else ())
        later = trace.record(self, args, params)
        return [next(ready) if k else x for x, k in zip(later, known, strict=True)]

    def split_eqn(self, eqn: Eqn, unknown: Sequence[bool], policy: Policy) -> tuple:
        """The known part of the loops, and the whole of them, which waits."""
        known_in, known, smaller = _known_each(eqn.params, unknown)
        if not any(known):
            return None, eqn, []
        ins, outs = chosen(eqn.invars, known_in), chosen(eqn.outvars, known)
        first = eqn.replace(invars=ins, outvars=outs, params=smaller)
        if policy is everything_saveable:
            eqn = eqn.replace(outvars=[Var(v.aval) if k else v for v, k in zip(eqn.outvars, known, strict=True)])
        return first, eqn, []

    def batch_axis(self, axis: Axis, args: Any, dims: Any, *, levels: tuple, **params: Any) -> tuple:
        out = self(*axis.to_fronts(args, dims), levels=(*levels, tuple([d is not None for d in dims])), **params)
        return out, [0] * len(out)


while_each_p = WhileEach()


@derivation
def _is_small(body: Jaxpr, cond: Jaxpr) -> bool:
    """Whether a loop reads and carries small values only, none of them split, and its text says all that it does.

    Larger ones may be split themselves, over devices that then work on each example together.
    """
    avals = [*cond.in_avals, *body.in_avals]
    is_small = all(not a.is_symbolic and a.size <= _SMALL for a in avals)
    is_split = any(a.sharding is not None and a.sharding.spec.axes for a in avals)
    programs = (cond, body)
    return is_small and not is_split and all(not (p.effects or named_axes(p)) and is_told_by_text(p) for p in programs)


def _untyped(program: Jaxpr) -> Jaxpr:
    """A program of small values whose types say nothing of Explicit axes."""
    if all(a.sharding is None for a in (*program.in_avals, *program.out_avals)):
        return program
    return staged_for(program, [a.unsharded() for a in program.in_avals])


def _ends_by_example(
    axis: Axis, mapped: Sequence[bool], cond: Jaxpr, body: Jaxpr, num_cond_consts: int, **_: Any
) -> bool:
    """Whether the condition is another one for each example."""
    m_cond, m_rest = mapped[:num_cond_consts], mapped[num_cond_consts:]
    count = len(body.outvars)
    m_body, m_init = m_rest[: len(m_rest) - count], m_rest[len(m_rest) - count :]
    step = lambda m_carry: batch_program(body, axis, [*m_body, *m_carry], m_carry)
    _, m_carry = fixpoint(m_init, step)
    return batch_program(cond, axis, [*m_cond, *m_carry])[1][0]


def _sizes(shapes: Sequence[tuple], levels: Sequence[Sequence[bool]]) -> list:
    """The number of examples of each level."""
    found = []
    for n, level in enumerate(levels):
        i = next(i for i, is_mapped in enumerate(level) if is_mapped)
        found.append(shapes[i][sum(outer[i] for outer in levels[n + 1 :])])
    return found


def _nested(innermost: Callable, xs: Sequence[Any], levels: Sequence[Sequence[bool]]) -> list:
    """Map over all levels, the outermost first; `innermost` takes an axis, operands and their mapped dimensions."""
    axis = Axis(_sizes([aval_of(x).shape for x in xs], levels)[-1])
    dims = front_dims(levels[-1])
    if len(levels) == 1:
        out, out_dims = innermost(axis, xs, dims)
    else:
        out, out_dims = vmap_flat(lambda *ys: _nested(innermost, ys, levels[:-1]), xs, dims, axis)
    return [axis.to_front(y, d) for y, d in zip(out, out_dims, strict=True)]


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
    smaller, kept = keep_inputs(body, smaller, kept, [*([k and not u for k, u in zip(kept[:b], u_body)]), *known])
    keep_cond = cond.replace(invars=[*cond.invars[:c], *chosen(cond.invars[c:], known)])
    return (
        [*([True] * c), *kept],
        known,
        {"cond": keep_cond, "body": smaller, "num_cond_consts": c, "num_body_consts": sum(kept[:b])},
    )


def _known_each(params: dict, unknown: Sequence[bool]) -> tuple[list[bool], list[bool], dict]:
    """`_known_while` of mapped loops; nothing is known where unknown operands alone have a mapped dimension."""
    one = {name: value for name, value in params.items() if name != "levels"}
    known_in, known, smaller = _known_while(one, unknown)
    levels = tuple([tuple(chosen(level, known_in)) for level in params["levels"]])
    if not all(any(level) for level in levels):
        known = [False] * len(known)
    return known_in, known, smaller | {"levels": levels}


def _split_while(params: dict, unknown: Sequence[bool]) -> tuple[Callable, list[bool]]:
    known_in, carry_known, smaller = _known_while(params, unknown)
    if not any(carry_known):
        return (lambda prim, args: []), [True] * len(carry_known)
    return (lambda prim, args: prim(*chosen(args, known_in), **smaller)), [not k for k in carry_known]
