"""`custom_linear_solve`: the solution of a linear system, differentiated by the implicit function theorem.

Derivatives use the equation that the solution satisfies instead of the steps of the solver, so that the solver may be
any algorithm. From A x = b follows A x' = b' - A' x: the JVP is one more solve with the same matrix. The transpose of
b -> x is a solve with the transposed matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import (
    Effects,
    Jaxpr,
    RuleError,
    ShapedArray,
    ShardingRule,
    Zero,
    add_tangents,
    format_code_position,
    instantiate,
    is_linear,
    join_sharding_rules,
    no_effects,
    program_sharding_rule,
    pvary_to,
    run_jaxpr,
    union_varying,
)
from phalanx.lax.control_flow.control_flow_tracing import leaf_avals, split_by_sizes, stage_body
from phalanx.runtime.lowering import LoweringContext
from phalanx.transforms.batching import AxisData, batch_jaxpr
from phalanx.transforms.call_primitives import HigherOrder
from phalanx.transforms.forward_mode import jvp_flat
from phalanx.transforms.jvp_and_vjp import vjp
from phalanx.transforms.structure_checks import check_same_types
from phalanx.tree import PyTreeDef, tree_flatten, tree_unflatten
from phalanx.typing import ArrayLike, PyTree


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
            solution = list(x[:num])
            _, moved = jvp_flat(lambda *c: run_jaxpr(matvec, *c, *solution), groups[0], dots[0], "custom_linear_solve")
            b_dot = [add_tangents(b, _negate(m)) for b, m in zip(b_dot, moved)]
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
        cts = [instantiate(c) for c in x_bars[: sizes[4]]]
        # The transposed system swaps the roles of matvec and its transpose, so that it can be transposed again.
        matvec_t, solve_t = transposed
        b_bars = self(
            *groups[1],
            *groups[0],
            *groups[3],
            *groups[2],
            *cts,
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
        moved = axis.to_fronts(args, dims)
        groups = split_by_sizes(moved, sizes)
        mapped = split_by_sizes([d is not None for d in dims], sizes)
        groups[4] = [x if m else axis.to_front(x, None) for x, m in zip(groups[4], mapped[4])]
        # A mapped matrix gives a mapped solution even for a shared right-hand side, so b is always mapped.
        b_mapped = [True] * sizes[4]
        num = sizes[4]
        new_matvec, _ = batch_jaxpr(matvec, axis, [*mapped[0], *b_mapped], True)
        new_solve, _ = batch_jaxpr(solve, axis, [*mapped[2], *b_mapped], True)
        jaxprs, consts = [new_matvec, None, new_solve, None], [groups[0], groups[1], groups[2], groups[3]]
        if transposed is not None:
            jaxprs[1], _ = batch_jaxpr(transposed[0], axis, [*mapped[1], *b_mapped], True)
            jaxprs[3], _ = batch_jaxpr(transposed[1], axis, [*mapped[3], *b_mapped], True)
        consts = [[*(p.consts if p is not None else ()), *c] for p, c in zip(jaxprs, consts)]
        hoisted = [p.hoist() if p is not None else None for p in jaxprs]
        new_sizes = (*(len(c) for c in consts), num)
        out = self(
            *(c for group in consts for c in group),
            *groups[4],
            matvec=hoisted[0],
            transposed=None if transposed is None else (hoisted[1], hoisted[3]),
            solve=hoisted[2],
            sizes=new_sizes,
        )
        return out, [0] * len(out)


linear_solve_p = LinearSolve()


def _negate(t: ArrayLike | Zero) -> Any:
    return t if type(t) is Zero else -t


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
    label = lambda path: f"custom_linear_solve, result{path} of matvec = {format_code_position(matvec)}"
    check_same_types(label, tree, avals, forward.out_tree, forward.jaxpr.out_avals, b_label)
    solver = stage_body(lambda c: solve(matvec, c), in_tree, avals, "custom_linear_solve solve")
    out_tree = solver.out_tree
    result = tree_unflatten(out_tree, list(solver.jaxpr.out_avals))
    solution = result[0] if has_aux else result
    flat_solution, solution_tree = tree_flatten(solution)
    solve_label = lambda path: f"custom_linear_solve, solution{path} returned by solve = {format_code_position(solve)}"
    check_same_types(solve_label, tree, avals, solution_tree, flat_solution, b_label)
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
    return tree_unflatten(out_tree, out)


def _transpose_matvec(matvec: Callable, tree: PyTreeDef, avals: Sequence[ShapedArray]) -> Callable:
    """The transpose of a linear function of pytrees."""

    def transposed(ct: PyTree) -> PyTree:
        zeros = tree_unflatten(tree, [pvary_to(instantiate(Zero(a)), a) for a in avals])
        _, pull = vjp(matvec, zeros)
        return pull(ct)[0]

    return transposed
