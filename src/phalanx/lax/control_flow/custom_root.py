"""`custom_root`: a root of a function, differentiated by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from phalanx.core import dtypes, get_aval, run_jaxpr, trace_to_jaxpr
from phalanx.custom_rules import custom_jvp
from phalanx.lax.control_flow.control_flow_tracing import leaf_avals
from phalanx.lax.control_flow.custom_linear_solve import custom_linear_solve
from phalanx.lax.optimization_barrier import stop_gradient
from phalanx.transforms.flat_function import FlatFunction, function_name
from phalanx.transforms.jvp_and_vjp import linearize
from phalanx.tree import tree_flatten, tree_map, tree_unflatten
from phalanx.typing import ArrayLike, PyTree


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
    closed, consts = _convert_closure(f, initial_guess)
    frozen = [stop_gradient(c) for c in consts]
    found = stop_gradient(solve(lambda x: closed(x, *frozen), stop_gradient(initial_guess)))
    guess, *aux = found if has_aux else (found,)

    @custom_jvp
    def root(solution: PyTree, params: list) -> PyTree:
        return solution

    @root.defjvp
    def root_jvp(primals: tuple, tangents: tuple) -> tuple:
        # f(x, p) = 0 gives  (df/dx) x' = -(df/dp) p'.
        solution, params = root(*primals), primals[1]
        _, push = linearize(lambda p: closed(solution, *p), params)
        rhs = tree_map(lambda t: -t, push(tangents[1]))
        _, along = linearize(lambda x: closed(x, *params), solution)
        return solution, custom_linear_solve(along, rhs, tangent_solve, lambda vec, y: tangent_solve(vec, y))

    solution = root(guess, consts)
    return (solution, *aux) if has_aux else solution


def _convert_closure(f: Callable, example: PyTree) -> tuple[Callable, list]:
    """`f` with the differentiable values that it closes over as further arguments, and these values."""
    leaves, tree = tree_flatten((example,))
    function = FlatFunction(f, tree)
    jaxpr = trace_to_jaxpr(function, leaf_avals(leaves), function_name(f))
    differentiable = [dtypes.issubdtype(get_aval(c).dtype, np.inexact) for c in jaxpr.consts]
    consts = [c for c, m in zip(jaxpr.consts, differentiable) if m]

    def converted(x: PyTree, *given: ArrayLike) -> PyTree:
        values = iter(given)
        held = [next(values) if m else c for c, m in zip(jaxpr.consts, differentiable)]
        return tree_unflatten(function.out_tree, run_jaxpr(jaxpr.replace(consts=held), *tree_flatten(x)[0]))

    return converted, consts
