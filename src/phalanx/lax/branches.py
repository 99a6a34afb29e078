"""Branches: `cond` and `switch`, with every rule.

All branches take the same operands: their constants are put together, and a rule that gives one branch more results
(residuals) gives the others zeros in their place. Under a mapped predicate every branch runs and the results are chosen
element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from phalanx.core import effects as fx
from phalanx.core import promotion
from phalanx.core.aval import ShapedArray, aval_at, aval_of
from phalanx.core.effects import Effects, no_effects
from phalanx.core.errors import ArgumentError, ArgumentTypeError, TreeError
from phalanx.core.flags import chosen
from phalanx.core.jaxpr import Eqn, Jaxpr, Var, derivation, eliminate_dead_code, run_program
from phalanx.core.primitive import Primitive, Roles, joint_varying
from phalanx.core.roles import joined_roles, program_roles
from phalanx.core.tangent import Zero, is_linear, join_tangents, split_tangents, vector_space
from phalanx.core.trace import stage
from phalanx.core.varying import returning, retyped, varies
from phalanx.engine.mlir import hlo
from phalanx.lax.bodies import check_same_types, leaf_avals, stage_body
from phalanx.lax.broadcast import broadcast_in_dim
from phalanx.lax.comparison import clamp, eq
from phalanx.lax.convert import convert_element_type
from phalanx.lax.family import kind_of
from phalanx.lax.named_axes import refuse_divergence
from phalanx.lax.select import select_n
from phalanx.lax.unrolled import runs_in_python
from phalanx.runtime.lowering import ORDER_TOKEN
from phalanx.transforms.batching import Axis, batch_program, front_dims
from phalanx.transforms.forward import jvp_program
from phalanx.transforms.linear import LinearTrace, transpose_program
from phalanx.transforms.linearization import linearize_program
from phalanx.transforms.partial_eval import Policy, everything_saveable, split_held
from phalanx.tree import tree_flatten, tree_unflatten


class Cond(Primitive, name="cond", multiple=True):
    """A choice among programs: (index, *operands) -> results of `branches[index]`."""

    holds_program = True
    says_shardings = True
    batch = None

    def roles(self, index: Any, *avals: Any, branches: tuple) -> Roles:
        count = len(avals) + 1
        reads, gives = range(1, count), range(count, count + len(branches[0].outvars))
        parts = [(program_roles(b), reads, gives) for b in branches]
        return joined_roles([index, *avals], branches[0].out_avals, parts)

    def result(self, index: Any, *avals: Any, branches: tuple) -> list:
        return branches[0].out_avals

    def settle(self, avals: Sequence[Any], params: dict) -> dict:
        branches = params["branches"]
        index, operands = avals[0], avals[1:]
        if not varies(avals, *(b.out_avals for b in branches)):
            return params
        refuse_divergence("cond or switch, the choice", index.varying, branches)
        # Where devices take different branches nothing inside is shared, so that no branch waits for other devices.
        operands = [a.with_varying(a.varying | index.varying) for a in operands]
        branches = [retyped(b, operands) for b in branches]
        outs = [
            column[0].with_varying(joint_varying((index, *column))) for column in zip(*(b.out_avals for b in branches))
        ]
        return params | {"branches": tuple(returning(b, outs) for b in branches)}

    def effects(self, *avals: Any, branches: tuple) -> Effects:
        return no_effects.union(*(b.effects for b in branches))

    def lower(self, ctx: Any, index: Any, *operands: Any, branches: tuple) -> list:
        ordered = fx.ordered(no_effects.union(*(b.effects for b in branches)))
        types = [*(ctx.type(ORDER_TOKEN) for _ in ordered), *(ctx.type(v.aval) for v in branches[0].outvars)]
        before = {e: ctx.token(e) for e in ordered}
        op = hlo.CaseOp(types, index, num_branches=len(branches))
        for i, branch in enumerate(branches):
            ctx.tokens.update(before)

            def body(branch: Jaxpr = branch) -> list:
                out = ctx.emit(branch, operands)
                return [*(ctx.tokens[e] for e in ordered), *out]

            ctx.region([], op, body, i)
        ctx.tokens.update(zip(ordered, op.results))
        return list(op.results)[len(ordered) :]

    def jvp(self, primals: Any, tangents: Any, *, branches: tuple) -> tuple:
        index, *operands = primals
        nonzero, given = split_tangents(tangents[1:])
        want = _joined([jvp_program(b, nonzero)[1] for b in branches])
        derived = [jvp_program(b, nonzero, want)[0] for b in branches]
        out = _bind(self, index, derived, [*operands, *given])
        count = len(branches[0].outvars)
        return out[:count], join_tangents(branches[0].out_avals, want, out[count:])

    def linearize(self, trace: LinearTrace, primals: Any, tangents: Any, params: dict) -> tuple:
        branches = params["branches"]
        index, *operands = primals
        nonzero, given = split_tangents(tangents[1:])
        want = _joined([linearize_program(b, nonzero).nonzero for b in branches])
        halves = [linearize_program(b, nonzero, want) for b in branches]
        count = len(branches[0].outvars)
        # A residual that is an operand stays one; the others of all branches are put side by side.
        computed = [[v.aval for v in h.primal.outvars[count:]] for h in halves]
        out = _bind(self, index, [_padded(h.primal, count, i, computed) for i, h in enumerate(halves)], operands)
        residuals = out[count:]
        linear = [_reading(h.linear, h.forwarded, leaf_avals(operands), i, computed) for i, h in enumerate(halves)]
        out_dot = _bind(self, index, linear, [*operands, *residuals, *given])
        return out[:count], join_tangents(branches[0].out_avals, want, out_dot)

    def split(self, trace: LinearTrace, args: Any, params: dict) -> list:
        branches = params["branches"]
        unknown = [trace.is_unknown(x) for x in args]
        plan = _split_cond(branches, unknown, everything_saveable)
        if plan is None:
            return trace.record(self, args, params)
        known, waiting, unknown_outputs, num_residuals = plan
        out = self(*chosen(args, [not u for u in unknown]), branches=known)
        num_ready = len(out) - num_residuals
        later = iter(trace.record(self, [*args, *out[num_ready:]], {"branches": waiting}))
        ready = iter(out[:num_ready])
        return [next(later) if u else next(ready) for u in unknown_outputs]

    def split_eqn(self, eqn: Eqn, unknown: Sequence[bool], policy: Policy) -> tuple:
        """The two halves of an equation inside a program that is split, and the residuals between them."""
        plan = _split_cond(eqn.params["branches"], unknown, policy)
        if plan is None:
            return None, eqn, []
        known, waiting, unknown_outputs, num_residuals = plan
        again = unknown_outputs if policy is everything_saveable else [True] * len(unknown_outputs)
        residuals = [Var(v.aval) for v in known[0].outvars[len(known[0].outvars) - num_residuals :]]
        first = eqn.replace(
            invars=chosen(eqn.invars, [not u for u in unknown]),
            outvars=[*(v for v, u in zip(eqn.outvars, unknown_outputs) if not u), *residuals],
            params={"branches": known},
            effects=no_effects,
        )
        second = eqn.replace(
            invars=[*eqn.invars, *residuals], outvars=chosen(eqn.outvars, again), params={"branches": waiting}
        )
        return first, second, residuals

    def transpose(self, y_bars: Any, index: Any, *operands: Any, branches: tuple) -> tuple:
        linear = [is_linear(x) for x in operands]
        nonzero = [type(c) is not Zero for c in y_bars]
        derived = [transpose_program(b, linear, nonzero, True)[0] for b in branches]
        given = [x for x, lin in zip(operands, linear) if not lin]
        out = iter(_bind(self, index, derived, [*given, *(c for c in y_bars if type(c) is not Zero)]))
        return (None, *(next(out) if lin else None for lin in linear))

    def batch_axis(self, axis: Axis, args: Any, dims: Any, *, branches: tuple) -> tuple:
        (index, *operands), (index_dim, *operand_dims) = args, dims
        mapped = [d is not None for d in operand_dims]
        moved = axis.to_fronts(operands, operand_dims)
        if index_dim is not None:
            return self._choose_each(axis, axis.to_front(index, index_dim), moved, mapped, branches)
        out_mapped = _joined([batch_program(b, axis, mapped)[1] for b in branches])
        derived = [batch_program(b, axis, mapped, out_mapped)[0] for b in branches]
        return _bind(self, index, derived, moved), front_dims(out_mapped)

    def _choose_each(self, axis: Axis, index: Any, operands: list, mapped: list[bool], branches: tuple) -> tuple:
        """Run every branch on all examples and choose for each."""
        outs = []
        for branch in branches:
            derived, _ = batch_program(branch, axis, mapped, True)
            outs.append(run_program(derived, *operands))
        which = eq(index, np.int32(1)) if len(branches) == 2 else index
        chosen = [select_n(broadcast_in_dim(which, aval_of(cases[0]).shape, (0,)), *cases) for cases in zip(*outs)]
        return chosen, [0] * len(chosen)

    @staticmethod
    def dce(eqn: Eqn, used: Sequence[bool]) -> Eqn | None:
        """The choice without the results nobody reads and the operands that no branch reads."""
        branches = eqn.params["branches"]
        if not any(used) and not any(b.effects for b in branches):
            return None
        kept = _joined([eliminate_dead_code(b, used)[1] for b in branches])
        smaller = []
        for b in branches:
            part, _ = eliminate_dead_code(b, used)
            smaller.append(part.replace(invars=chosen(b.invars, kept)))
        return eqn.replace(
            invars=[eqn.invars[0], *chosen(eqn.invars[1:], kept)],
            outvars=chosen(eqn.outvars, used),
            params={"branches": tuple(smaller)},
        )


cond_p = Cond()


def _joined(flags: Sequence[Sequence[bool]]) -> list[bool]:
    return [any(column) for column in zip(*flags)]


def _bind(primitive: Cond, index: Any, branches: Sequence[Jaxpr], operands: Sequence[Any]) -> list:
    """Choose among programs whose constants are put together as leading operands."""
    sets = [b.consts for b in branches]
    if any(sets):
        branches = [_with_constants(b, i, sets) for i, b in enumerate(branches)]
    return primitive(index, *(c for s in sets for c in s), *operands, branches=tuple(branches))


def _with_constants(branch: Jaxpr, i: int, sets: Sequence[Sequence[Any]]) -> Jaxpr:
    """A branch that takes the constants of all branches, of which it reads its own."""
    leading = []
    for j, held in enumerate(sets):
        leading.extend(branch.constvars if j == i else (Var(aval_of(c)) for c in held))
    return branch.replace(invars=[*leading, *branch.invars], constvars=(), consts=())


def _padded(branch: Jaxpr, count: int, i: int, residuals: Sequence[Sequence[ShapedArray]]) -> Jaxpr:
    """A branch that returns the residuals of all branches, zeros for those that are not its own."""

    def fun(*args: Any) -> list:
        captured, inputs = args[: len(branch.constvars)], args[len(branch.constvars) :]
        out = run_program(branch.replace(consts=list(captured)), *inputs)
        extra = []
        for j, avals in enumerate(residuals):
            extra.extend(out[count:] if j == i else map(vector_space.zeros, avals))
        return [*out[:count], *extra]

    program = stage(fun, [*(v.aval for v in branch.constvars), *branch.in_avals], branch.debug_name)
    n = len(branch.constvars)
    return program.replace(
        invars=program.invars[n:],
        constvars=[*program.constvars, *program.invars[:n]],
        consts=[*program.consts, *branch.consts],
    )


def _reading(
    linear: Jaxpr,
    forwarded: Sequence[int | None],
    operands: Sequence[ShapedArray],
    i: int,
    residuals: Sequence[Sequence[ShapedArray]],
) -> Jaxpr:
    """A linear branch that takes (operands, residuals of all branches, tangents) and reads what is its own."""
    operand_vars = [Var(a) for a in operands]
    num = len(forwarded)
    res_vars, tangents = linear.invars[:num], linear.invars[num:]
    own = [v for v, f in zip(res_vars, forwarded) if f is None]
    others: list[Var] = []
    for j, avals in enumerate(residuals):
        others.extend(own if j == i else (Var(a) for a in avals))
    # Forwarded residuals are the operands themselves.
    alias = {v: operand_vars[f] for v, f in zip(res_vars, forwarded) if f is not None}
    eqns = [e.replace(invars=[alias.get(a, a) if type(a) is Var else a for a in e.invars]) for e in linear.eqns]
    outvars = [alias.get(a, a) if type(a) is Var else a for a in linear.outvars]
    return linear.replace(invars=[*operand_vars, *others, *tangents], eqns=eqns, outvars=outvars)


def _split_cond(branches: tuple, unknown: Sequence[bool], policy: Policy) -> tuple | None:
    """Split a choice by which operands are unknown; None where its index is, or where nothing can be done early.

    Returns:
      The known branches (outputs, then residuals of all), the waiting ones (index aside, all operands, then residuals),
      for each output whether it waits, and the number of residuals.
    """
    if unknown[0]:
        return None
    u_ops = list(unknown[1:])
    known_outputs = [split_held(b, u_ops, policy).known_outputs for b in branches]
    waits = [not all(column) for column in zip(*known_outputs)]
    parts = [split_held(b, u_ops, policy, waits) for b in branches]
    num_known = len(waits) - sum(waits)
    if all(not p.known.eqns for p in parts) and not num_known:
        return None
    residuals = [[v.aval for v in p.known.outvars[num_known:]] for p in parts]
    known = tuple(_padded(p.known, num_known, i, residuals) for i, p in enumerate(parts))
    waiting = []
    for i, p in enumerate(parts):
        count = len(p.residuals)
        own, taken = p.unknown.invars[:count], iter(p.unknown.invars[count:])
        operand_vars = [next(taken) if t else Var(v.aval) for v, t in zip(branches[i].invars, p.unknown_inputs)]
        extra: list[Var] = []
        for j, avals in enumerate(residuals):
            extra.extend(own if j == i else (Var(a) for a in avals))
        waiting.append(p.unknown.replace(invars=[*operand_vars, *extra]))
    return known, tuple(waiting), waits, sum(map(len, residuals))


# What tells `operand=None`, an argument, from none given.
NO_OPERAND: Final = object()


def switch(index: Any, branches: Sequence[Callable], *operands: Any, operand: Any = NO_OPERAND) -> Any:
    """Call one of several functions, chosen when the program runs.

    Args:
      index: an integer scalar, clamped to the number of branches.
      branches: functions of the operands with results of the same structure and types.
      operands: their arguments.
      operand: the one argument, in the older spelling.

    Returns:
      The result of `branches[index](*operands)`.

    Raises:
      ArgumentTypeError: the index is no integer scalar, or results differ in type.
      TreeError: results differ in structure.

    Examples:
      >>> import phalanx
      >>> int(phalanx.lax.switch(1, [lambda x: x, lambda x: 2 * x], 5))
      10
    """
    if operand is not NO_OPERAND:
        operands = (operand,)
    branches = list(branches)
    if not branches or not all(map(callable, branches)):
        raise ArgumentError(
            "switch, argument branches", expected="at least one function", got=repr(branches), mend="pass functions"
        )
    aval = aval_at(index, lambda: "switch, argument index")
    if aval.shape != () or aval.dtype.kind not in "iu":
        raise ArgumentTypeError(
            "switch, argument index", expected="an integer scalar", got=aval.str_short(), mend="convert or reduce it"
        )
    if len(branches) == 1:
        return branches[0](*operands)
    number = clamp(np.int32(0), convert_element_type(index, np.dtype("int32")), np.int32(len(branches) - 1))
    return choose("switch", number, branches, operands, names=[f"branches[{i}]" for i in range(len(branches))])


def cond(pred: Any, true_fun: Callable, false_fun: Callable, *operands: Any, operand: Any = NO_OPERAND) -> Any:
    """Call one of two functions, chosen when the program runs.

    Args:
      pred: a boolean or numeric scalar.
      true_fun, false_fun: functions of the operands with results of the same structure and types.
      operands: their arguments.
      operand: the one argument, in the older spelling.

    Returns:
      The result of the chosen function.

    Raises:
      ArgumentTypeError: `pred` is no scalar, or results differ in type.
      TreeError: results differ in structure.

    Examples:
      >>> import phalanx
      >>> int(phalanx.lax.cond(True, lambda x: x + 1, lambda x: x - 1, 5))
      6
    """
    if operand is not NO_OPERAND:
        operands = (operand,)
    if len(operands) == 2 and callable(operands[1]) and callable(false_fun) and not callable(true_fun):
        # The oldest spelling, with an operand before each function.
        x, f, y, g = true_fun, false_fun, *operands
        return cond(pred, lambda x, y: f(x), lambda x, y: g(y), x, y)
    if not (callable(true_fun) and callable(false_fun)):
        raise ArgumentTypeError(
            "cond, arguments true_fun and false_fun",
            expected="two functions",
            got=f"{true_fun!r} and {false_fun!r}",
            mend="write cond(pred, true_fun, false_fun, *operands)",
        )
    aval = aval_at(pred, lambda: "cond, argument pred")
    if aval.shape != () or aval.dtype.kind not in "biuf":
        raise ArgumentTypeError(
            "cond, argument pred",
            expected="a boolean scalar",
            got=aval.str_short(),
            mend="reduce it with .any() or .all(), or choose elementwise with where",
        )
    number = convert_element_type(convert_element_type(pred, np.dtype(bool)), np.dtype("int32"))
    return choose("cond", number, [false_fun, true_fun], operands, names=("false_fun", "true_fun"), reference=1)


def choose(
    what: str,
    number: Any,
    functions: Sequence[Callable],
    operands: tuple,
    *,
    names: Sequence[str],
    reference: int = 0,
    primitive: Cond = cond_p,
) -> Any:
    """Bind a choice among functions.

    Args:
      what: the public function, for messages.
      number: which function to call.
      functions: functions of the operands.
      operands: trees of arrays.
      names: what each function is called in messages.
      reference: number of the function whose result those of the others must be like.
      primitive: that chooses.

    Returns:
      The result of the chosen function.
    """
    if primitive is cond_p and runs_in_python(number):
        return functions[int(number)](*operands)
    leaves, tree = tree_flatten(operands)
    avals = leaf_avals(leaves)
    bodies = [stage_body(f, tree, avals, f"{what} {n}") for f, n in zip(functions, names)]
    first = bodies[reference]
    programs = _unweakened([b.program for b in bodies])
    for body, program, name in zip(bodies, programs, names):
        if body.out_tree != first.out_tree:
            raise TreeError(
                f"{what}, the result of {name}",
                expected=f"the structure of that of {names[reference]}, {first.out_tree}",
                got=str(body.out_tree),
                mend="return the same structure from each function",
            )
        check_same_types(
            f"{what}, the result of {name}",
            first.out_tree,
            programs[reference].out_avals,
            body.out_tree,
            program.out_avals,
            f"the result of {names[reference]}",
        )
    sets = [b.consts for b in bodies]
    # Derived, not made anew: an eager choice finds its compiled program again by the branches themselves.
    types = tuple(tuple(map(aval_of, consts)) for consts in sets)
    opened = tuple([_opened(p, i, types) for i, p in enumerate(programs)])
    out = primitive(number, *(c for s in sets for c in s), *leaves, branches=opened)
    return tree_unflatten(first.out_tree, out)


@derivation
def _opened(program: Jaxpr, number: int, types: tuple) -> Jaxpr:
    """Branch `number` as a program that takes the constants of all branches before the operands."""
    if not any(types):
        return program
    count = len(types[number])
    leading = [v for j, avals in enumerate(types) for v in (program.invars[:count] if j == number else map(Var, avals))]
    return program.replace(invars=[*leading, *program.invars[count:]])


def _unweakened(programs: Sequence[Jaxpr]) -> list[Jaxpr]:
    """Programs whose results agree where promotion makes weak ones those of the others: the weak ones are converted."""
    if len({len(p.outvars) for p in programs}) != 1:
        return list(programs)
    wanted = [_common_type(column) for column in zip(*(p.out_avals for p in programs))]
    out = []
    for p in programs:
        moved = [w if w is not None and a.weak_type and not a.matches(w) else None for a, w in zip(p.out_avals, wanted)]
        if not any(moved):
            out.append(p)
            continue

        def fun(*args: Any, p: Jaxpr = p, moved: list = moved) -> list:
            results = zip(run_program(p, *args), moved)
            return [x if w is None else vector_space.as_type(x, w.dtype, w.weak_type) for x, w in results]

        key = ("unweakened", tuple(wanted))
        out.append(p.derive(key, lambda p=p, fun=fun: stage(fun, p.in_avals, p.debug_name).hoist()))
    return out


def _common_type(avals: Sequence[ShapedArray]) -> ShapedArray | None:
    """The type of a result in all branches, if weak types explain how they differ."""
    strong = [a for a in avals if not a.weak_type]
    first = avals[0]
    if len(strong) == len(avals) or any(a.shape != first.shape or kind_of(a.dtype) == "extended" for a in avals):
        return None
    dtype, weak = first.dtype, first.weak_type
    for a in avals[1:]:
        dtype, weak = promotion.promote_pair(dtype, weak, a.dtype, a.weak_type)
    if any(a.dtype != dtype for a in strong):
        return None
    return strong[0] if strong else first.update(dtype=dtype, weak_type=weak)
