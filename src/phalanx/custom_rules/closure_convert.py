"""`closure_convert` and `custom_gradient`: custom derivatives of functions that close over traced values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core import (
    Tracer,
    dtypes,
    format_code_position,
    get_aval,
    merge_lists,
    run_jaxpr,
    select_flagged,
    select_unflagged,
    trace_to_jaxpr,
)
from phalanx.custom_rules.custom_jvp_and_vjp import custom_vjp
from phalanx.custom_rules.rule_arguments import check_pair
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.transforms import check_same_structure
from phalanx.transforms.flat_function import function_name, trace_flat, wraps
from phalanx.tree import tree_flatten, tree_leaves, tree_structure, tree_unflatten
from phalanx.typing import PyTree


def custom_gradient(fun: Callable | None = None, *, with_logs: bool = False) -> Callable:
    """Define a custom reverse-mode derivative by a function that returns its value and its VJP function.

    Args:
      fun: takes arrays and returns `(result, vjp)`, where `vjp(cotangent)` returns the cotangents of the arguments. If
        omitted, `custom_gradient` returns a decorator.
      with_logs: whether `vjp` returns `(cotangents, logs)`, as a `bwd` rule of `custom_vjp.defvjp_with_logs` does.

    Returns:
      A function that returns the result; its derivative in reverse mode is `vjp`.

    Examples:
      >>> import phalanx
      >>> f = phalanx.custom_gradient(lambda x: (x * x, lambda y_bar: 10 * y_bar))
      >>> float(phalanx.grad(f)(3.0))
      10.0
    """

    if fun is None:
        return functools.partial(custom_gradient, with_logs=with_logs)

    @api_boundary
    @wraps(fun)
    def with_gradient(*args: Any, **kwargs: Any) -> PyTree:
        # The VJP function closes over traced values. It is staged in the forward pass, and its constants are the
        # residuals; `bwd` runs the jaxpr that `fwd` has left in `staged`.
        staged: list = []
        where = f"the vjp function of {format_code_position(fun)}"

        def fwd(*xs: Any) -> tuple:
            out, rule = fun(*xs, **kwargs)
            leaves, tree = tree_flatten(out)
            result_trees: list = []

            def flat_rule(*c: Any) -> list:
                found = rule(tree_unflatten(tree, c))
                cotangents, logs = check_pair(where, found, "(cotangents, logs)") if with_logs else (found, None)
                flat, result_tree = tree_flatten((_as_tuple(cotangents, len(xs)), logs))
                result_trees.append(result_tree)
                return flat

            jaxpr = trace_to_jaxpr(flat_rule, [get_aval(x).to_tangent() for x in leaves], "custom_gradient")
            staged[:] = [jaxpr.replace(consts=()), result_trees[0]]
            return out, jaxpr.consts

        def bwd(consts: list, ct: PyTree) -> PyTree:
            flat = run_jaxpr(staged[0].replace(consts=consts), *tree_leaves(ct))
            cotangents, logs = tree_unflatten(staged[1], flat)
            cotangents = tree_unflatten(tree_structure(args), tree_leaves(cotangents))
            return (cotangents, logs) if with_logs else cotangents

        function = custom_vjp(lambda *xs: fun(*xs, **kwargs)[0])
        (function.defvjp_with_logs if with_logs else function.defvjp)(fwd, bwd)
        return function(*args)

    return with_gradient


def _as_tuple(x: PyTree, count: int) -> tuple:
    return tuple(x) if isinstance(x, tuple | list) and len(x) == count else (x,)


def closure_convert(fun: Callable, *example_args: PyTree) -> tuple[Callable, list]:
    """Convert the traced values that a function closes over into further arguments.

    Args:
      fun: a function that may close over values of an enclosing transformation.
      example_args: arguments of the types that it will be called with.

    Returns:
      `(converted, consts)`, such that `converted(*args, *consts)` equals `fun(*args)`; `args` have the structure of
      `example_args`.

    Examples:
      >>> import phalanx
      >>> f, consts = phalanx.closure_convert(lambda x: 2.0 * x, 1.0)
      >>> float(f(3.0, *consts))
      6.0
    """
    name, tree = function_name(fun), tree_structure(example_args)
    _, function, jaxpr = trace_flat(fun, example_args, name)
    # Only differentiable traced values become arguments; all other constants stay in the closure.
    hoistable = [isinstance(c, Tracer) and dtypes.issubdtype(c.dtype, np.inexact) for c in jaxpr.consts]
    consts = select_flagged(jaxpr.consts, hoistable)

    def converted(*args: Any) -> PyTree:
        count = len(args) - len(consts)
        check_same_structure(
            lambda path: f"converted {name}, args{path}",
            tree,
            tree_structure(args[:count]),
            lambda path: f"example_args{path}",
            "call converted(*args, *consts), with arguments like example_args",
        )
        values = merge_lists(hoistable, args[count:], select_unflagged(jaxpr.consts, hoistable))
        return tree_unflatten(function.out_tree, run_jaxpr(jaxpr.replace(consts=values), *tree_leaves(args[:count])))

    return converted, consts
