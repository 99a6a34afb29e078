"""`custom_linear_solve` and `custom_root`: solutions of equations, differentiated by the implicit function theorem.

Derivatives use the equation that the solution satisfies instead of the steps of the solver, so that the solver may be
any algorithm. From A x = b follows A x' = b' - A' x: the JVP is one more solve with the same matrix. The transpose of
b -> x is a solve with the transposed matrix. The tangent of a root solves a linear system, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    Effects,
    Jaxpr,
    RuleError,
    ShapedArray,
    ShardingRule,
    Zero,
    add_tangents,
    dtypes,
    format_code_position,
    get_aval,
    instantiate,
    is_linear,
    join_sharding_rules,
    merge_lists,
    no_effects,
    program_sharding_rule,
    pvary_to,
    run_jaxpr,
    select_flagged,
    select_unflagged,
    trace_to_jaxpr,
    union_varying,
)
from phalanx.custom_rules import custom_jvp
from phalanx.lax.control_flow.control_flow_tracing import leaf_avals, split_by_sizes, stage_body
from phalanx.lax.optimization_barrier import stop_gradient
from phalanx.runtime.lowering import LoweringContext
from phalanx.transforms import (
    AxisData,
    FlatFunction,
    HigherOrder,
    batch_jaxpr,
    check_same_types,
    function_name,
    jvp_flat,
    linearize,
    vjp,
)
from phalanx.tree import PyTreeDef, tree_flatten, tree_map, tree_unflatten
from phalanx.typing import PyTree


class LinearSolve(HigherOrder, name="custom_linear_solve"):
    """The solution x of `matvec(x) = b`: (*constants of the four jaxprs, *b) -> (*x, *aux).

    `sizes` holds the number of constants of matvec, transposed matvec, solve and transposed solve, and of leaves of b.
    """

    def sharding_rule(self, *avals: Any, matvec: Jaxpr, solve: Jaxpr, sizes: tuple, **_: Any) -> ShardingRule:
        in_matvec, _, in_solve, _, b = split_by_sizes(range(len(avals)), sizes)
        x = range(len(avals), len(avals) + len(solve.outvars))
        parts = [
            (program_sharding_rule(solve), [*in_solve, *b], x),
            (program_sharding_rule(matvec), [*in_matvec, *x[: len(b)]], b),
        ]
        return join_sharding_rules(avals, solve.out_avals, parts)

    def abstract_eval(self, *avals: Any, matvec: Jaxpr, solve: Jaxpr, **_: Any) -> list:
        axes = union_varying(avals)
        return [a.with_varying(axes) for a in solve.out_avals]

    def effects(self, *avals: Any, solve: Jaxpr, **_: Any) -> Effects:
        return no_effects | solve.effects

    def lower(
        self, ctx: LoweringContext, *operands: Any, matvec: Jaxpr, transposed: Any, solve: Jaxpr, sizes: tuple
    ) -> list:
        groups = split_by_sizes(operands, sizes)
        return ctx.emit(solve, [*groups[2], *groups[4]])

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        matvec: Jaxpr,
        transposed: Any,
        solve: Jaxpr,
        sizes: tuple,
    ) -> tuple:
        params = {"matvec": matvec, "transposed": transposed, "solve": solve, "sizes": sizes}
        x = self(*primals, **params)
        num = sizes[4]
        groups, dots = split_by_sizes(primals, sizes), split_by_sizes(tangents, sizes)
        b_dot = dots[4]
        if any(type(t) is not Zero for t in dots[0]):
            # The right-hand side b' - A' x, where A' x is the derivative of matvec in its constants.
            _, moved = jvp_flat(lambda *c: run_jaxpr(matvec, *c, *x[:num]), groups[0], dots[0], "custom_linear_solve")
            b_dot = [b if type(m) is Zero else add_tangents(b, -m) for b, m in zip(b_dot, moved)]
        # Neither the matrix nor b moves, so the solution does not either: a solve with zeros would be wasted.
        if all(type(t) is Zero for t in b_dot):
            return x, [Zero.like(v) for v in x]
        # The tangent is a solution of the same system, which also makes it transposable.
        x_dot = self(*(c for g in groups[:4] for c in g), *map(instantiate, b_dot), **params)
        return x, [*x_dot[:num], *(Zero.like(v) for v in x[num:])]

    def transpose(
        self, x_bars: Sequence[Any], *operands: Any, matvec: Jaxpr, transposed: Any, solve: Jaxpr, sizes: tuple
    ) -> tuple:
        if transposed is None:
            raise RuleError(
                "reverse-mode differentiation of custom_linear_solve",
                expected="a custom_linear_solve with a transpose_solve function",
                got="one without it",
                fix="pass transpose_solve=, or symmetric=True if matvec is its own transpose",
            )
        groups = split_by_sizes(operands, sizes)
        assert not any(is_linear(x) for g in groups[:4] for x in g), "only the right-hand side is linear"
        # The transposed system swaps the roles of matvec and its transpose, so that it can be transposed again.
        matvec_t, solve_t = transposed
        b_bars = self(
            *groups[1],
            *groups[0],
            *groups[3],
            *groups[2],
            *map(instantiate, x_bars[: sizes[4]]),
            matvec=matvec_t,
            transposed=(matvec, solve),
            solve=solve_t,
            sizes=(sizes[1], sizes[0], sizes[3], sizes[2], sizes[4]),
        )
        return (*(None for g in groups[:4] for _ in g), *b_bars[: sizes[4]])

    def batch_axis(
        self,
        axis: AxisData,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        matvec: Jaxpr,
        transposed: Any,
        solve: Jaxpr,
        sizes: tuple,
    ) -> tuple:
        *consts, b = split_by_sizes(axis.to_fronts(args, dims), sizes)
        *mapped, b_mapped = split_by_sizes([d is not None for d in dims], sizes)
        # A mapped matrix gives a mapped solution even for a shared right-hand side, so b is always mapped.
        b = [x if m else axis.to_front(x, None) for x, m in zip(b, b_mapped)]
        # In the order of `sizes`; without a transposed system there is no second and no fourth jaxpr.
        matvec_t, solve_t = transposed or (None, None)
        derived = [
            None if p is None else batch_jaxpr(p, axis, [*m, *([True] * len(b))], True)[0]
            for p, m in zip((matvec, matvec_t, solve, solve_t), mapped)
        ]
        consts = [[*(() if p is None else p.consts), *c] for p, c in zip(derived, consts)]
        matvec, matvec_t, solve, solve_t = (None if p is None else p.hoist() for p in derived)
        out = self(
            *itertools.chain(*consts),
            *b,
            matvec=matvec,
            transposed=None if transposed is None else (matvec_t, solve_t),
            solve=solve,
            sizes=(*map(len, consts), len(b)),
        )
        return out, [0] * len(out)


linear_solve_p = LinearSolve()


def custom_linear_solve(
    matvec: Callable,
    b: PyTree,
    solve: Callable,
    transpose_solve: Callable | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> PyTree:
    """The solution of a linear system; derivatives use the system, not the steps of the solver.

    Args:
      matvec: a linear function `x -> A x` of pytrees with the structure of `b`.
      b: the right-hand side, a pytree of arrays.
      solve: `(matvec, b) -> x`.
      transpose_solve: `(transposed matvec, b) -> x`, required for reverse mode unless `symmetric`.
      symmetric: whether `matvec` is its own transpose.
      has_aux: whether `solve` returns `(x, aux)`.

    Returns:
      `x`, or `(x, aux)`; `aux` is not differentiated.

    Raises:
      TreeError, ArgumentTypeError: the result of `matvec` or `solve` differs from `b` in structure or types.

    Examples:
      >>> import phalanx
      >>> solve = lambda b: phalanx.lax.custom_linear_solve(
      ...     lambda x: 2 * x, b, lambda _, c: c / 2, symmetric=True
      ... )
      >>> float(phalanx.grad(solve)(3.0))
      0.5
    """
    leaves, tree = tree_flatten(b)
    avals = [a.strip_weak_type() for a in leaf_avals(leaves)]
    in_tree = tree_flatten((b,))[1]
    forward = stage_body(matvec, in_tree, avals, "custom_linear_solve matvec")
    b_label = lambda path: f"b{path}"
    check_same_types(
        lambda path: f"custom_linear_solve, result{path} of matvec = {format_code_position(matvec)}",
        tree,
        avals,
        forward.out_tree,
        forward.jaxpr.out_avals,
        b_label,
    )
    solver = stage_body(lambda c: solve(matvec, c), in_tree, avals, "custom_linear_solve solve")
    result = tree_unflatten(solver.out_tree, list(solver.jaxpr.out_avals))
    flat_solution, solution_tree = tree_flatten(result[0] if has_aux else result)
    check_same_types(
        lambda path: f"custom_linear_solve, solution{path} returned by solve = {format_code_position(solve)}",
        tree,
        avals,
        solution_tree,
        flat_solution,
        b_label,
    )
    transposed, matvec_t, solve_t = None, [], []
    if symmetric or transpose_solve is not None:
        # If a constant of the system varies between devices, so does the solution: the transposed right-hand side gets
        # the varying axes of the whole system.
        axes = union_varying([*avals, *leaf_avals(forward.consts), *leaf_avals(solver.consts)])
        avals = [a.with_varying(axes) for a in avals]
        vec = matvec if symmetric else _transpose_matvec(matvec, tree, avals)
        back = solve if symmetric else transpose_solve
        body_m = stage_body(vec, in_tree, avals, "custom_linear_solve transposed matvec")
        body_s = stage_body(lambda c: back(vec, c), in_tree, avals, "custom_linear_solve transpose_solve")
        transposed = (body_m.jaxpr, body_s.jaxpr)
        matvec_t, solve_t = body_m.consts, body_s.consts
    sizes = (len(forward.consts), len(matvec_t), len(solver.consts), len(solve_t), len(leaves))
    out = linear_solve_p(
        *forward.consts,
        *matvec_t,
        *solver.consts,
        *solve_t,
        *leaves,
        matvec=forward.jaxpr,
        transposed=transposed,
        solve=solver.jaxpr,
        sizes=sizes,
    )
    return tree_unflatten(solver.out_tree, out)


def _transpose_matvec(matvec: Callable, tree: PyTreeDef, avals: Sequence[ShapedArray]) -> Callable:
    """The transpose of a linear function of pytrees."""

    def transposed(ct: PyTree) -> PyTree:
        zeros = tree_unflatten(tree, [pvary_to(instantiate(Zero(a)), a) for a in avals])
        return vjp(matvec, zeros)[1](ct)[0]

    return transposed


def custom_root(
    f: Callable, initial_guess: PyTree, solve: Callable, tangent_solve: Callable, has_aux: bool = False
) -> PyTree:
    """A root of a function; derivatives use the equation that the root solves, not the steps of the solver.

    Args:
      f: the function whose root is computed, from pytrees to pytrees of the same structure.
      initial_guess: the starting point for `solve`.
      solve: `(f, initial_guess) -> root`.
      tangent_solve: `(g, y) -> x`, solves `g(x) = y` for a linear function `g`.
      has_aux: whether `solve` returns `(root, aux)`.

    Returns:
      The root, or `(root, aux)`.

    Examples:
      >>> import phalanx
      >>> def newton(f, x):
      ...     for _ in range(9):
      ...         x = x - f(x) / (2 * x)
      ...     return x
      >>> def root(a):
      ...     return phalanx.lax.custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
      >>> round(float(phalanx.grad(root)(4.0)), 4)
      0.25
    """
    # The values that `f` closes over are the parameters of the equation, by which the root is differentiated.
    leaves, tree = tree_flatten(initial_guess)
    closed, out_avals, consts = _convert_closure(f, (initial_guess,), leaf_avals(leaves))
    frozen = [stop_gradient(c) for c in consts]
    found = stop_gradient(solve(lambda x: closed(x, *frozen), stop_gradient(initial_guess)))
    guess, *aux = found if has_aux else (found,)

    def solve_tangent(x: PyTree, y: PyTree) -> PyTree:
        along = linearize(f, x)[1]
        return custom_linear_solve(along, y, tangent_solve, lambda vec, y: tangent_solve(vec, y))

    # What `tangent_solve` closes over, too: the rule must not see tracers that have tangents.
    avals = [*leaf_avals(tree_flatten(guess)[0]), *out_avals]
    tangent, _, held = _convert_closure(solve_tangent, (guess, tree_unflatten(tree, leaves)), avals)

    @custom_jvp
    def root(solution: PyTree, params: list, held: list) -> PyTree:
        return solution

    @root.defjvp
    def root_jvp(primals: tuple, tangents: tuple) -> tuple:
        # f(x, p) = 0 gives  (df/dx) x' = -(df/dp) p'.
        solution, (_, params, held) = root(*primals), primals
        _, push = linearize(lambda p: closed(solution, *p), params)
        return solution, tangent(solution, tree_map(lambda t: -t, push(tangents[1])), *held)

    solution = root(guess, consts, held)
    return (solution, *aux) if has_aux else solution


def _convert_closure(
    f: Callable, examples: tuple, avals: Sequence[ShapedArray]
) -> tuple[Callable, Sequence[ShapedArray], list]:
    """`f` with the differentiable values that it closes over as further arguments, its result types and these values.

    Args:
      f: the function.
      examples: arguments with the structure of its arguments.
      avals: the types of the leaves of its arguments.
    """
    count, function = len(examples), FlatFunction(f, tree_flatten(examples)[1])
    jaxpr = trace_to_jaxpr(function, avals, function_name(f))
    differentiable = [dtypes.issubdtype(get_aval(c).dtype, np.inexact) for c in jaxpr.consts]

    def converted(*args: Any) -> PyTree:
        held = merge_lists(differentiable, args[count:], select_unflagged(jaxpr.consts, differentiable))
        leaves = tree_flatten(args[:count])[0]
        return tree_unflatten(function.out_tree, run_jaxpr(jaxpr.replace(consts=held), *leaves))

    return converted, jaxpr.out_avals, select_flagged(jaxpr.consts, differentiable)
