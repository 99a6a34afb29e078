"""Custom derivatives by closures: `custom_gradient`, and `closure_convert` for functions that close over traced values.

Builds on `rules`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.flags import chosen, merged, others
from phalanx.core.jaxpr import run_program
from phalanx.core.trace import Tracer, stage
from phalanx.custom_derivatives.rules import custom_vjp
from phalanx.engine.frames import boundary
from phalanx.transforms.functions import FlatFunction, function_name
from phalanx.tree import tree_flatten, tree_unflatten


def custom_gradient(fun: Callable) -> Callable:
    """A function that returns its value together with its gradient function.

    Args:
      fun: takes arrays and returns `(result, vjp)`, where `vjp(cotangent)` gives the cotangents of the arguments.

    Returns:
      A function that returns the result and differentiates as `vjp` says.

    Examples:
      >>> import phalanx
      >>> f = phalanx.custom_gradient(lambda x: (x * x, lambda y_bar: 10 * y_bar))
      >>> float(phalanx.grad(f)(3.0))
      10.0
    """

    @boundary
    @functools.wraps(fun)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        held: list = []

        def primal(*xs: Any) -> Any:
            return fun(*xs, **kwargs)[0]

        def fwd(*xs: Any) -> tuple:
            out, rule = fun(*xs, **kwargs)
            leaves, tree = tree_flatten(out)
            program = stage(
                lambda *c: tree_flatten(_as_tuple(rule(tree_unflatten(tree, c)), len(xs)))[0],
                [aval_of(x).to_tangent() for x in leaves],
                "custom_gradient",
            )
            held[:] = [program.replace(consts=())]
            return out, program.consts

        def bwd(consts: Any, ct: Any) -> Any:
            flat = run_program(held[0].replace(consts=consts), *tree_flatten(ct)[0])
            return tree_unflatten(tree_flatten(tuple(args))[1], flat)

        function = custom_vjp(primal)
        function.defvjp(fwd, bwd)
        return function(*args)

    return with_gradient


def _as_tuple(x: Any, count: int) -> tuple:
    return tuple(x) if isinstance(x, tuple | list) and len(x) == count else (x,)


def closure_convert(fun: Callable, *example_args: Any) -> tuple[Callable, list]:
    """A function without closed-over traced values, and these as further arguments.

    Args:
      fun: a function that may close over values of a transformation around it.
      example_args: arguments of the types it will be called with.

    Returns:
      `(converted, consts)`, such that `converted(*args, *consts)` is `fun(*args)`.

    Examples:
      >>> import phalanx
      >>> f, consts = phalanx.closure_convert(lambda x: 2.0 * x, 1.0)
      >>> float(f(3.0, *consts))
      6.0
    """
    leaves, tree = tree_flatten(example_args)
    function = FlatFunction(fun, tree)
    program = stage(function, [aval_of(x) for x in leaves], function_name(fun))
    hoistable = [isinstance(c, Tracer) and dtypes.issubdtype(c.dtype, np.inexact) for c in program.consts]
    consts = chosen(program.consts, hoistable)

    def converted(*args: Any) -> Any:
        count = len(args) - len(consts)
        values = merged(hoistable, args[count:], others(program.consts, hoistable))
        flat_args, _ = tree_flatten(args[:count])
        return tree_unflatten(function.out_tree, run_program(program.replace(consts=values), *flat_args))

    return converted, consts
