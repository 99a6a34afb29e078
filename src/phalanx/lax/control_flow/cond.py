"""`cond` and `switch`: conditional calls, with the primitive and all its rules.

All branches take the same operands and return the same types. Operands are therefore the constants of all branches,
each of which ignores the others' constants; and where linearization gives one branch residuals, the other branches
return zeros in their place. With a mapped index all branches run, and the results are selected elementwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    Effects,
    Eqn,
    Jaxpr,
    Literal,
    ShapedArray,
    ShardingRule,
    Slot,
    Var,
    cached_on_jaxpr,
    check_not_written,
    dce_jaxpr,
    discharge_jaxpr,
    effects as fx,
    fill_flagged,
    format_code_position,
    get_aval,
    get_aval_of_argument,
    is_linear,
    is_varying,
    join_sharding_rules,
    join_tangents,
    no_effects,
    program_sharding_rule,
    promotion,
    read_values,
    retype_jaxpr,
    run_jaxpr,
    select_flagged,
    select_unflagged,
    split_tangents,
    trace_to_jaxpr,
    union_varying,
    vary_outputs,
    vector_space,
)
from phalanx.engine.mlir import hlo
from phalanx.lax.collectives.named_axes import check_no_divergence
from phalanx.lax.control_flow.control_flow_tracing import as_array, check_refs, leaf_avals, split_by_sizes, stage_body
from phalanx.lax.control_flow.python_control_flow import runs_in_python
from phalanx.lax.elementwise import clamp, convert_element_type, dtype_kind, eq, select_n
from phalanx.lax.shape import broadcast_in_dim
from phalanx.runtime import ORDER_TOKEN, LoweringContext
from phalanx.transforms import (
    AxisData,
    DivisibleCall,
    Division,
    LinearTrace,
    Policy,
    batch_jaxpr,
    check_same_types,
    drop_logs,
    front_dims,
    jvp_jaxpr,
    linearize_jaxpr,
    partial_eval_inner_jaxpr,
    transpose_jaxpr,
)
from phalanx.tree import tree_flatten, tree_unflatten
from phalanx.typing import ArrayLike, PyTree


class Cond(DivisibleCall, name="cond"):
    """A conditional call: (index, *operands) -> results of `branches[index]`."""

    def sharding_rule(self, index: ShapedArray, *avals: Any, branches: tuple) -> ShardingRule:
        count = len(avals) + 1
        reads, gives = range(1, count), range(count, count + len(branches[0].outvars))
        parts = [(program_sharding_rule(b), reads, gives) for b in branches]
        return join_sharding_rules([index, *avals], branches[0].out_avals, parts)

    def abstract_eval(self, index: ShapedArray, *avals: Any, branches: tuple) -> list:
        return branches[0].out_avals

    def update_varying(self, avals: Sequence[Any], params: dict) -> dict:
        branches = params["branches"]
        index, operands = avals[0], avals[1:]
        if not is_varying(avals, *(b.out_avals for b in branches)):
            return params
        check_no_divergence("cond or switch, the choice", index.varying, branches)
        # Devices may take different branches, so every value inside varies over the axes of the index; otherwise a
        # transposed branch would wait in a collective for devices that do not run it.
        operands = [a.with_varying(a.varying | index.varying) for a in operands]
        branches = [retype_jaxpr(b, operands) for b in branches]
        outs = [
            column[0].with_varying(union_varying((index, *column))) for column in zip(*(b.out_avals for b in branches))
        ]
        return params | {"branches": tuple(vary_outputs(b, outs) for b in branches)}

    def effects(self, *avals: Any, branches: tuple) -> Effects:
        return no_effects.union(*(b.effects for b in branches))

    def lower(self, ctx: LoweringContext, index: ArrayLike, *operands: Any, branches: tuple) -> list:
        ordered = fx.ordered(no_effects.union(*(b.effects for b in branches)))
        types = [*(ctx.type(ORDER_TOKEN) for _ in ordered), *(ctx.type(v.aval) for v in branches[0].outvars)]
        before = {e: ctx.token(e) for e in ordered}
        op = hlo.CaseOp(types, index, num_branches=len(branches))
        for i, branch in enumerate(branches):
            # Each branch starts from the tokens before the call; the call returns the tokens of the branch that ran.
            ctx.tokens.update(before)

            def body(branch: Jaxpr = branch, name: str = f"branch_{i}_fun") -> list:
                out = ctx.emit(branch, operands, "cond", name)
                return [*(ctx.tokens[e] for e in ordered), *out]

            ctx.region([], op, body, i)
        ctx.tokens.update(zip(ordered, op.results))
        return list(op.results)[len(ordered) :]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, branches: tuple) -> tuple:
        index, *operands = primals
        nonzero, given = split_tangents(tangents[1:])
        # All branches return a tangent for every result that has one in some branch.
        want = _any_branch([jvp_jaxpr(b, nonzero)[1] for b in branches])
        out = _bind(self, index, [jvp_jaxpr(b, nonzero, want)[0] for b in branches], [*operands, *given])
        count = len(branches[0].outvars)
        return out[:count], join_tangents(branches[0].out_avals, want, out[count:])

    def linearize(self, trace: LinearTrace, primals: Sequence[Any], tangents: Sequence[Any], params: dict) -> tuple:
        branches = params["branches"]
        index, *operands = primals
        nonzero, given = split_tangents(tangents[1:])
        want = _any_branch([linearize_jaxpr(b, nonzero).nonzero for b in branches])
        linearized = [linearize_jaxpr(b, nonzero, want) for b in branches]
        count = len(branches[0].outvars)
        # A residual that equals an operand is read from there. The computed residuals of all branches are concatenated.
        computed = [[v.aval for v in lin.primal.outvars[count:]] for lin in linearized]
        primal = [_return_all_residuals(lin.primal, count, i, computed) for i, lin in enumerate(linearized)]
        out = _bind(self, index, primal, operands)
        linear = [
            _read_all_residuals(lin.linear, lin.forwarded, leaf_avals(operands), i, computed)
            for i, lin in enumerate(linearized)
        ]
        out_dot = _bind(self, index, linear, [*operands, *out[count:], *given])
        return out[:count], join_tangents(branches[0].out_avals, want, out_dot)

    def discharge(
        self, args: Sequence[Any], slots: Sequence[Slot | None], params: dict
    ) -> tuple[list, Sequence[Slot], Sequence[Any]]:
        """All branches return the final values of the references that some branch writes."""
        branches = params["branches"]
        written = sorted({n for b in branches for n in discharge_jaxpr(b, slots[1:])[1]})
        index, *operands = read_values(args, slots)
        out = _bind(self, index, [discharge_jaxpr(b, slots[1:], written)[0] for b in branches], operands)
        count = len(branches[0].outvars)
        return out[:count], written, out[count:]

    def divide(self, params: dict, unknown: Sequence[bool], policy: Policy) -> Division | None:
        # An unknown index leaves nothing to run now: it decides which known work is needed.
        return None if unknown[0] else _divide_branches(params["branches"], unknown, policy)

    def transpose(self, y_bars: Sequence[Any], index: ArrayLike, *operands: Any, branches: tuple) -> tuple:
        linear = [is_linear(x) for x in operands]
        nonzero, given = split_tangents(y_bars)
        derived = [drop_logs(transpose_jaxpr(b, linear, nonzero, True)[0], "cond or switch") for b in branches]
        out = _bind(self, index, derived, [*select_unflagged(operands, linear), *given])
        return (None, *fill_flagged(linear, out))

    def batch_axis(self, axis: AxisData, args: Sequence[Any], dims: Sequence[int | None], *, branches: tuple) -> tuple:
        (index, *operands), (index_dim, *operand_dims) = args, dims
        mapped = [d is not None for d in operand_dims]
        moved = axis.to_fronts(operands, operand_dims)
        # The index depends on the example, so no single branch can be called for all of them.
        if index_dim is not None:
            return self._choose_each(axis, axis.to_front(index, index_dim), moved, mapped, branches)
        out_mapped = _any_branch([batch_jaxpr(b, axis, mapped)[1] for b in branches])
        derived = [batch_jaxpr(b, axis, mapped, out_mapped)[0] for b in branches]
        return _bind(self, index, derived, moved), front_dims(out_mapped)

    def _choose_each(
        self, axis: AxisData, index: ArrayLike, operands: list, mapped: list[bool], branches: tuple
    ) -> tuple:
        """Run every branch on all examples, and select the result of each example."""
        for branch in branches:
            check_not_written("vmap of cond or switch with a mapped choice, a branch", branch)
        outs = [run_jaxpr(batch_jaxpr(b, axis, mapped, True)[0], *operands) for b in branches]
        # `select_n` takes a boolean for two cases, and an integer for more.
        which = eq(index, np.int32(1)) if len(branches) == 2 else index
        chosen = [select_n(broadcast_in_dim(which, get_aval(cases[0]).shape, (0,)), *cases) for cases in zip(*outs)]
        return chosen, [0] * len(chosen)

    @staticmethod
    def dce(eqn: Eqn, used: Sequence[bool]) -> Eqn | None:
        """The call without unused results and without operands that no branch reads."""
        branches = eqn.params["branches"]
        if not any(used) and not any(b.effects for b in branches):
            return None
        kept = _any_branch([dce_jaxpr(b, used)[1] for b in branches])
        smaller = [dce_jaxpr(b, used)[0].replace(invars=select_flagged(b.invars, kept)) for b in branches]
        return eqn.replace(
            invars=[eqn.invars[0], *select_flagged(eqn.invars[1:], kept)],
            outvars=select_flagged(eqn.outvars, used),
            params={"branches": tuple(smaller)},
        )


cond_p = Cond()


def _any_branch(flags: Sequence[Sequence[bool]]) -> list[bool]:
    """For each position, whether the flag is set for any branch."""
    return [any(column) for column in zip(*flags)]


def _bind(primitive: Cond, index: ArrayLike, branches: Sequence[Jaxpr], operands: Sequence[Any]) -> list:
    """Bind the primitive on branches with constants: the constants of all branches become leading operands."""
    return bind_branches(primitive, index, [b.hoist() for b in branches], [b.consts for b in branches], operands)


def bind_branches(
    primitive: Cond, index: ArrayLike, branches: Sequence[Jaxpr], consts: Sequence[Sequence[Any]], operands: Sequence
) -> list:
    """Bind the primitive on branches that take their own constants before the operands."""
    # `_take_all_constants` is cached on the jaxprs: an eager `cond` is compiled once per tuple of branches.
    types = tuple([tuple(map(get_aval, held)) for held in consts])
    taking_all = tuple([_take_all_constants(b, i, types) for i, b in enumerate(branches)])
    return primitive(index, *itertools.chain(*consts), *operands, branches=taking_all)


def _own_among_all(own: Sequence[Var], number: int, types: Sequence[Sequence[ShapedArray]]) -> list[Var]:
    """The variables of branch `number`, and unused variables in the places of the other branches, of these types."""
    return [v for i, avals in enumerate(types) for v in (own if i == number else map(Var, avals))]


@cached_on_jaxpr
def _take_all_constants(jaxpr: Jaxpr, number: int, types: tuple) -> Jaxpr:
    """Branch `number` as a jaxpr that takes the constants of all branches before the operands."""
    if not any(types):
        return jaxpr
    own, inputs = split_by_sizes(jaxpr.invars, [len(types[number]), len(jaxpr.invars)])
    return jaxpr.replace(invars=[*_own_among_all(own, number, types), *inputs])


def _return_all_residuals(branch: Jaxpr, count: int, i: int, residuals: Sequence[Sequence[ShapedArray]]) -> Jaxpr:
    """Branch `i` as a jaxpr that returns the residuals of all branches: its own, and zeros for the others."""

    def fun(*args: Any) -> list:
        captured, inputs = split_by_sizes(args, [len(branch.constvars), len(branch.invars)])
        out = run_jaxpr(branch.replace(consts=captured), *inputs)
        others = (out[count:] if j == i else map(vector_space.zeros, avals) for j, avals in enumerate(residuals))
        return [*out[:count], *itertools.chain(*others)]

    jaxpr = trace_to_jaxpr(fun, [*(v.aval for v in branch.constvars), *branch.in_avals], branch.debug_name)
    n = len(branch.constvars)
    return jaxpr.replace(
        invars=jaxpr.invars[n:], constvars=[*jaxpr.constvars, *jaxpr.invars[:n]], consts=[*jaxpr.consts, *branch.consts]
    )


def _read_all_residuals(
    linear: Jaxpr,
    forwarded: Sequence[int | None],
    operands: Sequence[ShapedArray],
    i: int,
    residuals: Sequence[Sequence[ShapedArray]],
) -> Jaxpr:
    """Linear branch `i` as a jaxpr (operands, residuals of all branches, tangents) -> tangents of the results."""
    operand_vars = [Var(a) for a in operands]
    res_vars, tangents = split_by_sizes(linear.invars, [len(forwarded), len(linear.invars)])
    computed = _own_among_all([v for v, f in zip(res_vars, forwarded) if f is None], i, residuals)
    # Forwarded residuals are the operands themselves.
    alias = {v: operand_vars[f] for v, f in zip(res_vars, forwarded) if f is not None}
    eqns = [e.replace(invars=[alias.get(a, a) if type(a) is Var else a for a in e.invars]) for e in linear.eqns]
    outvars = [alias.get(a, a) if type(a) is Var else a for a in linear.outvars]
    return linear.replace(invars=[*operand_vars, *computed, *tangents], eqns=eqns, outvars=outvars)


def _divide_branches(branches: tuple, unknown: Sequence[bool], policy: Policy) -> Division | None:
    """Divide a conditional call whose index is known; None if no branch has known work.

    The known branches return the residuals of all branches, and the unknown ones take all operands.
    """
    u_ops = list(unknown[1:])
    known_outputs = [partial_eval_inner_jaxpr(b, u_ops, policy).known_outputs for b in branches]
    waits = [not all(column) for column in zip(*known_outputs)]
    # An output that is unknown in one branch is made unknown in all of them, so that the calls match.
    parts = [partial_eval_inner_jaxpr(b, u_ops, policy, waits) for b in branches]
    num_known = len(waits) - sum(waits)
    if all(not p.known.eqns for p in parts) and not num_known:
        return None
    residuals = [[v.aval for v in p.known.outvars[num_known:]] for p in parts]
    known = tuple(_return_all_residuals(p.known, num_known, i, residuals) for i, p in enumerate(parts))
    waiting = []
    for i, p in enumerate(parts):
        count = len(p.residuals)
        own, taken = p.unknown.invars[:count], iter(p.unknown.invars[count:])
        operand_vars = [next(taken) if t else Var(v.aval) for v, t in zip(branches[i].invars, p.unknown_inputs)]
        waiting.append(p.unknown.replace(invars=[*operand_vars, *_own_among_all(own, i, residuals)]))
    return Division(
        known={"branches": known},
        unknown={"branches": tuple(waiting)},
        known_inputs=[not u for u in unknown],
        known_outputs=[not w for w in waits],
        unknown_outputs=parts[0].unknown_outputs,
        residuals=list(itertools.chain(*residuals)),
        unknown_operands=lambda operands, saved: [*operands, *saved],
    )


# Distinguishes `operand=None`, which passes None to the branches, from no `operand` argument.
NO_OPERAND: Final = object()


def switch(index: ArrayLike, branches: Sequence[Callable], *operands: Any, operand: PyTree = NO_OPERAND) -> PyTree:
    """Call one of several functions, selected by an index when the program runs.

    Args:
      index: an integer scalar; it is clamped to the valid range.
      branches: functions of the operands, with results of the same structure and types.
      operands: the arguments of the functions.
      operand: the single argument of the functions, as older programs pass it.

    Returns:
      The result of `branches[index](*operands)`.

    Raises:
      ArgumentTypeError: the index is not an integer scalar, or results differ in type.
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
            "switch, argument branches",
            expected="at least one function",
            got=repr(branches),
            fix="pass a list of functions of the operands",
        )
    aval = get_aval_of_argument(index, lambda: "switch, argument index")
    if aval.shape != () or aval.dtype.kind not in "iu":
        raise ArgumentTypeError(
            "switch, argument index",
            expected="an integer scalar",
            got=aval.str_short(),
            fix="convert it with .astype(int)",
        )
    # Clamping makes the only branch unconditional.
    if len(branches) == 1:
        return branches[0](*operands)
    number = clamp(np.int32(0), convert_element_type(index, np.dtype("int32")), np.int32(len(branches) - 1))
    return bind_cond("switch", number, branches, operands, names=[f"branches[{i}]" for i in range(len(branches))])


def cond(
    pred: ArrayLike, true_fun: Callable, false_fun: Callable, *operands: Any, operand: PyTree = NO_OPERAND
) -> PyTree:
    """Call one of two functions, selected by a predicate when the program runs.

    Args:
      pred: a boolean or numeric scalar.
      true_fun, false_fun: functions of the operands, with results of the same structure and types.
      operands: the arguments of the functions.
      operand: the single argument of the functions, as older programs pass it.

    Returns:
      The result of the selected function.

    Raises:
      ArgumentTypeError: `pred` is not a scalar, or results differ in type.
      TreeError: results differ in structure.

    Examples:
      >>> import phalanx
      >>> int(phalanx.lax.cond(True, lambda x: x + 1, lambda x: x - 1, 5))
      6
    """
    if operand is not NO_OPERAND:
        operands = (operand,)
    if len(operands) == 2 and callable(operands[1]) and callable(false_fun) and not callable(true_fun):
        # The oldest signature: cond(pred, true_operand, true_fun, false_operand, false_fun).
        x, f, y, g = true_fun, false_fun, *operands
        return cond(pred, lambda x, y: f(x), lambda x, y: g(y), x, y)
    if not (callable(true_fun) and callable(false_fun)):
        raise ArgumentTypeError(
            "cond, arguments true_fun and false_fun",
            expected="two functions",
            got=f"{true_fun!r} and {false_fun!r}",
            fix="write cond(pred, true_fun, false_fun, *operands)",
        )
    aval = get_aval_of_argument(pred, lambda: "cond, argument pred")
    if aval.shape != () or aval.dtype.kind not in "biuf":
        raise ArgumentTypeError(
            "cond, argument pred",
            expected="a boolean scalar",
            got=aval.str_short(),
            fix="reduce it with .any() or .all(), or select elementwise with jnp.where",
        )
    number = convert_element_type(convert_element_type(pred, np.dtype(bool)), np.dtype("int32"))
    return bind_cond("cond", number, [false_fun, true_fun], operands, names=("false_fun", "true_fun"), reference=1)


def bind_cond(
    name: str,
    number: ArrayLike,
    functions: Sequence[Callable],
    operands: tuple,
    *,
    names: Sequence[str],
    reference: int = 0,
    primitive: Cond = cond_p,
) -> Any:
    """Trace functions and bind them as the branches of a conditional call.

    Args:
      name: the public function, for errors.
      number: the index of the function to call.
      functions: functions of the operands.
      operands: pytrees of arrays.
      names: the parameter of each function, for errors.
      reference: the index of the function whose result the others must match.
      primitive: `cond_p`, or a primitive derived from it.

    Returns:
      The result of the selected function.
    """
    if primitive is cond_p and runs_in_python(number):
        return functions[int(number)](*operands)
    leaves, tree = tree_flatten(operands)
    avals = leaf_avals(leaves)
    bodies = [stage_body(f, tree, avals, f"{name} {n}") for f, n in zip(functions, names)]
    check_refs(name, operands, bodies)
    first = bodies[reference]
    jaxprs = _promote_weak_results([b.jaxpr for b in bodies])
    source = lambda path: f"the result{path} of {names[reference]} = {format_code_position(functions[reference])}"
    for body, jaxpr, parameter, function in zip(bodies, jaxprs, names, functions):
        check_same_types(
            lambda path, p=parameter, f=function: f"{name}, result{path} of {p} = {format_code_position(f)}",
            first.out_tree,
            jaxprs[reference].out_avals,
            body.out_tree,
            jaxpr.out_avals,
            source,
        )
    # The choice by platform must be lowered, since a platform may have no branch.
    forwarded = _forwarded_operands(jaxprs, len(leaves)) if primitive is cond_p else [None] * len(first.jaxpr.outvars)
    kept = tuple([i is None for i in forwarded])
    smaller = jaxprs if all(kept) else [_select_outputs(j, kept) for j in jaxprs]
    # Without results and effects there is nothing to call.
    has_work = any(kept) or any(j.effects for j in smaller)
    computed = iter(bind_branches(primitive, number, smaller, [b.consts for b in bodies], leaves) if has_work else ())
    out = [next(computed) if i is None else as_array(leaves[i]) for i in forwarded]
    return tree_unflatten(first.out_tree, out)


def _forwarded_operands(branches: Sequence[Jaxpr], count: int) -> list[int | None]:
    """For each result the number of the operand that all branches return for it, or None.

    Args:
      branches: jaxprs that take their own constants before the operands.
      count: the number of operands.
    """
    returned = [_returned_operands(b, count) for b in branches]
    return [column[0] if len({*column}) == 1 else None for column in zip(*returned, strict=True)]


@cached_on_jaxpr
def _returned_operands(branch: Jaxpr, count: int) -> list[int | None]:
    """For each result of a branch the number of the operand that it is, or None."""
    number_of = {v: i for i, v in enumerate(branch.invars[len(branch.invars) - count :])}
    return [None if type(v) is Literal else number_of.get(v) for v in branch.outvars]


@cached_on_jaxpr
def _select_outputs(jaxpr: Jaxpr, kept: Sequence[bool]) -> Jaxpr:
    """The jaxpr with some of its outputs."""
    return jaxpr.replace(outvars=select_flagged(jaxpr.outvars, kept))


def _promote_weak_results(jaxprs: Sequence[Jaxpr]) -> list[Jaxpr]:
    """Convert weakly typed results to the type that promotion gives for the results of all branches."""
    if len({len(p.outvars) for p in jaxprs}) != 1:
        return list(jaxprs)
    wanted = [_common_type(column) for column in zip(*(p.out_avals for p in jaxprs))]
    return [_convert_weak_results(p, wanted) for p in jaxprs]


@cached_on_jaxpr
def _convert_weak_results(jaxpr: Jaxpr, wanted: Sequence[ShapedArray | None]) -> Jaxpr:
    """The jaxpr with each weakly typed result converted to its wanted type, if it has one."""
    moved = [w if w is not None and a.weak_type and not a.matches(w) else None for a, w in zip(jaxpr.out_avals, wanted)]
    if not any(moved):
        return jaxpr

    def fun(*args: Any) -> list:
        results = zip(run_jaxpr(jaxpr, *args), moved)
        return [x if w is None else vector_space.as_type(x, w.dtype, w.weak_type) for x, w in results]

    return trace_to_jaxpr(fun, jaxpr.in_avals, jaxpr.debug_name).hoist()


def _common_type(avals: Sequence[ShapedArray]) -> ShapedArray | None:
    """The promoted type of a result in all branches; None if the branches differ in more than weak types."""
    strong = [a for a in avals if not a.weak_type]
    first = avals[0]
    if len(strong) == len(avals) or any(a.shape != first.shape or dtype_kind(a.dtype) == "extended" for a in avals):
        return None
    dtype, weak = first.dtype, first.weak_type
    for a in avals[1:]:
        dtype, weak = promotion.promote_pair(dtype, weak, a.dtype, a.weak_type)
    if any(a.dtype != dtype for a in strong):
        return None
    return strong[0] if strong else first.update(dtype=dtype, weak_type=weak)
