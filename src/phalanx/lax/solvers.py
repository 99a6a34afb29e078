"""Solvers with derivatives of their own: `custom_linear_solve` and `custom_root`.

Both differentiate the equation that the result solves instead of the steps that found it (the implicit function
theorem), so that any algorithm may stand in `solve`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.effects import Effects, no_effects
from phalanx.core.errors import RuleError
from phalanx.core.jaxpr import Jaxpr, run_program
from phalanx.core.primitive import Primitive, Roles, joint_varying
from phalanx.core.roles import joined_roles, program_roles
from phalanx.core.tangent import Zero, add_tangents, instantiate, is_linear
from phalanx.core.trace import stage
from phalanx.core.varying import varied
from phalanx.custom_derivatives import custom_jvp
from phalanx.lax.barrier import stop_gradient
from phalanx.lax.bodies import check_same_types, groups_of, leaf_avals, stage_body
from phalanx.transforms.autodiff import linearize, vjp
from phalanx.transforms.batching import Axis, batch_program
from phalanx.transforms.forward import jvp_flat
from phalanx.transforms.functions import FlatFunction, function_name
from phalanx.tree import tree_flatten, tree_map, tree_unflatten


class LinearSolve(Primitive, name="custom_linear_solve", multiple=True):
    """The solution x of `matvec(x) = b`: (*constants of the four programs, *b) -> x, and what `solve` adds."""

    holds_program = True
    says_shardings = True
    batch = None

    def roles(self, *avals: Any, matvec: Jaxpr, solve: Jaxpr, sizes: tuple, **_: Any) -> Roles:
        in_matvec, _, in_solve, _, b = groups_of(range(len(avals)), sizes)
        x = range(len(avals), len(avals) + len(solve.outvars))
        parts = [(program_roles(solve), [*in_solve, *b], x), (program_roles(matvec), [*in_matvec, *x[: len(b)]], b)]
        return joined_roles(avals, solve.out_avals, parts)

    def result(self, *avals: Any, matvec: Jaxpr, solve: Jaxpr, **_: Any) -> list:
        axes = joint_varying(avals)
        return [a.with_varying(axes) for a in solve.out_avals]

    def effects(self, *avals: Any, solve: Jaxpr, **_: Any) -> Effects:
        return no_effects | solve.effects

    def lower(self, ctx: Any, *operands: Any, matvec: Jaxpr, transposed: Any, solve: Jaxpr, sizes: tuple) -> list:
        groups = groups_of(operands, sizes)
        return ctx.emit(solve, [*groups[2], *groups[4]])

    def jvp(self, primals: Any, tangents: Any, *, matvec: Jaxpr, transposed: Any, solve: Jaxpr, sizes: tuple) -> tuple:
        params = {"matvec": matvec, "transposed": transposed, "solve": solve, "sizes": sizes}
        x = self(*primals, **params)
        num = sizes[4]
        groups, dots = groups_of(primals, sizes), groups_of(tangents, sizes)
        b_dot = dots[4]
        if any(type(t) is not Zero for t in dots[0]):
            # A x = b gives A x' = b' - A' x.
            solution = list(x[:num])
            _, moved = jvp_flat(
                lambda *c: run_program(matvec, *c, *solution), groups[0], dots[0], "custom_linear_solve"
            )
            b_dot = [add_tangents(b, _negated(m)) for b, m in zip(b_dot, moved)]
        if all(type(t) is Zero for t in b_dot):
            return x, [Zero.like(v) for v in x]
        x_dot = self(*(c for g in groups[:4] for c in g), *map(instantiate, b_dot), **params)
        return x, [*x_dot[:num], *(Zero.like(v) for v in x[num:])]

    def transpose(
        self, x_bars: Any, *operands: Any, matvec: Jaxpr, transposed: Any, solve: Jaxpr, sizes: tuple
    ) -> tuple:
        if transposed is None:
            raise RuleError(
                "reverse-mode differentiation of custom_linear_solve",
                expected="a transpose_solve function",
                got="none",
                mend="pass transpose_solve, or symmetric=True where matvec is its own transpose",
            )
        groups = groups_of(operands, sizes)
        assert not any(is_linear(x) for g in groups[:4] for x in g), "only the right-hand side is linear"
        cts = [instantiate(c) for c in x_bars[: sizes[4]]]
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
        self, axis: Axis, args: Any, dims: Any, *, matvec: Jaxpr, transposed: Any, solve: Jaxpr, sizes: tuple
    ) -> tuple:
        moved = axis.to_fronts(args, dims)
        groups = groups_of(moved, sizes)
        mapped = groups_of([d is not None for d in dims], sizes)
        groups[4] = [x if m else axis.to_front(x, None) for x, m in zip(groups[4], mapped[4])]
        b_mapped = [True] * sizes[4]
        num = sizes[4]
        new_matvec, _ = batch_program(matvec, axis, [*mapped[0], *b_mapped], True)
        new_solve, _ = batch_program(solve, axis, [*mapped[2], *b_mapped], True)
        programs, consts = [new_matvec, None, new_solve, None], [groups[0], groups[1], groups[2], groups[3]]
        if transposed is not None:
            programs[1], _ = batch_program(transposed[0], axis, [*mapped[1], *b_mapped], True)
            programs[3], _ = batch_program(transposed[1], axis, [*mapped[3], *b_mapped], True)
        consts = [[*(p.consts if p is not None else ()), *c] for p, c in zip(programs, consts)]
        hoisted = [p.hoist() if p is not None else None for p in programs]
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


def _negated(t: Any) -> Any:
    return t if type(t) is Zero else -t


def custom_linear_solve(
    matvec: Callable,
    b: Any,
    solve: Callable,
    transpose_solve: Callable | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """The solution of a linear system, differentiated through the system and not through the solver.

    Args:
      matvec: a linear function, `x -> A x`, on pytrees of the structure of `b`.
      b: the right-hand side.
      solve: `(matvec, b) -> x`.
      transpose_solve: `(matvec of the transpose, b) -> x`, needed for reverse mode unless `symmetric`.
      symmetric: whether `matvec` is its own transpose.
      has_aux: whether `solve` returns `(x, aux)`.

    Returns:
      `x`, or `(x, aux)`; `aux` is not differentiated.

    Raises:
      TreeError, ArgumentTypeError: `matvec` or `solve` gives another structure or other types than `b`.

    Examples:
      >>> import phalanx
      >>> solve = lambda b: phalanx.lax.custom_linear_solve(
      ...     lambda x: 2 * x, b, lambda _, c: c / 2, symmetric=True
      ... )
      >>> float(phalanx.grad(solve)(3.0))
      0.5
    """
    leaves, tree = tree_flatten(b)
    avals = [_strong(a) for a in leaf_avals(leaves)]
    in_tree = tree_flatten((b,))[1]
    forward = stage_body(matvec, in_tree, avals, "custom_linear_solve matvec")
    check_same_types(
        "custom_linear_solve, the result of matvec", tree, avals, forward.out_tree, forward.program.out_avals, "b"
    )
    solver = stage_body(lambda c: solve(matvec, c), in_tree, avals, "custom_linear_solve solve")
    out_tree = solver.out_tree
    shown = tree_unflatten(out_tree, list(solver.program.out_avals))
    solution = shown[0] if has_aux else shown
    flat_solution, solution_tree = tree_flatten(solution)
    check_same_types("custom_linear_solve, the result of solve", tree, avals, solution_tree, flat_solution, "b")
    transposed, matvec_t, solve_t = None, [], []
    if symmetric or transpose_solve is not None:
        # Each device solves its own system, also where they share the right-hand side: what they find is summed later.
        axes = joint_varying([*avals, *leaf_avals(forward.consts), *leaf_avals(solver.consts)])
        avals = [a.with_varying(axes) for a in avals]
        vec = matvec if symmetric else _transposed(matvec, tree, avals)
        back = solve if symmetric else transpose_solve
        body_m = stage_body(vec, in_tree, avals, "custom_linear_solve transposed matvec")
        body_s = stage_body(lambda c: back(vec, c), in_tree, avals, "custom_linear_solve transpose_solve")
        transposed = (body_m.program, body_s.program)
        matvec_t, solve_t = body_m.consts, body_s.consts
    sizes = (len(forward.consts), len(matvec_t), len(solver.consts), len(solve_t), len(leaves))
    out = linear_solve_p(
        *forward.consts,
        *matvec_t,
        *solver.consts,
        *solve_t,
        *leaves,
        matvec=forward.program,
        transposed=transposed,
        solve=solver.program,
        sizes=sizes,
    )
    return tree_unflatten(out_tree, out)


def _strong(aval: ShapedArray) -> ShapedArray:
    return aval.strengthened()


def _transposed(matvec: Callable, tree: Any, avals: Sequence[ShapedArray]) -> Callable:
    """The transpose of a linear function on trees."""

    def transposed(ct: Any) -> Any:
        zeros = tree_unflatten(tree, [varied(instantiate(Zero(a)), a) for a in avals])
        _, pull = vjp(matvec, zeros)
        return pull(ct)[0]

    return transposed


def custom_root(
    f: Callable, initial_guess: Any, solve: Callable, tangent_solve: Callable, has_aux: bool = False
) -> Any:
    """A root of a function, differentiated through the equation and not through the solver.

    Args:
      f: the function whose root is sought, on pytrees.
      initial_guess: where to start.
      solve: `(f, initial_guess) -> root`.
      tangent_solve: `(linear function, y) -> x`, solves the linearised equation.
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
    closed, consts = _converted(f, initial_guess)
    held = [stop_gradient(c) for c in consts]
    found = stop_gradient(solve(lambda x: closed(x, *held), stop_gradient(initial_guess)))
    guess, *aux = found if has_aux else (found,)

    @custom_jvp
    def root(solution: Any, params: list) -> Any:
        return solution

    @root.defjvp
    def root_jvp(primals: tuple, tangents: tuple) -> tuple:
        solution, params = root(*primals), primals[1]
        _, push = linearize(lambda p: closed(solution, *p), params)
        rhs = tree_map(lambda t: -t, push(tangents[1]))
        _, along = linearize(lambda x: closed(x, *params), solution)
        return solution, custom_linear_solve(along, rhs, tangent_solve, lambda vec, y: tangent_solve(vec, y))

    solution = root(guess, consts)
    return (solution, *aux) if has_aux else solution


def _converted(f: Callable, example: Any) -> tuple[Callable, list]:
    """`f` with the differentiable values it closes over as further arguments."""
    leaves, tree = tree_flatten((example,))
    function = FlatFunction(f, tree)
    program = stage(function, leaf_avals(leaves), function_name(f))
    moving = [dtypes.issubdtype(aval_of(c).dtype, np.inexact) for c in program.consts]
    consts = [c for c, m in zip(program.consts, moving) if m]

    def converted(x: Any, *given: Any) -> Any:
        values = iter(given)
        held = [next(values) if m else c for c, m in zip(program.consts, moving)]
        return tree_unflatten(function.out_tree, run_program(program.replace(consts=held), *tree_flatten(x)[0]))

    return converted, consts
