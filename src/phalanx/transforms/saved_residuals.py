"""`saved_residuals` and `print_saved_residuals`: the values that a derivative saves from the forward pass.

The answer is read off `linearize_jaxpr`, which decides the residuals of every linearization.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from phalanx.core import Atom, Jaxpr, Literal, ShapedArray, format_code_position, format_source
from phalanx.transforms.flat_function import format_argument, positional_parameters, trace_flat
from phalanx.transforms.linearize_jaxpr import linearize_jaxpr
from phalanx.tree import tree_flatten_with_path


def saved_residuals(fun: Callable, *args: Any, **kwargs: Any) -> list[tuple[ShapedArray, str]]:
    """The residuals of a function: the values that its derivative saves from the forward pass.

    Args:
      fun: a function of arrays or pytrees of them.
      args, kwargs: its arguments, or `ShapeDtypeStruct`s of their shapes and dtypes.

    Returns:
      The type of each residual, and a description of its origin.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> kept = saved_residuals(phalanx.checkpoint(lambda x: jnp.sin(jnp.cos(x))), 1.0)
      >>> [origin for _, origin in kept]
      ['from the argument x']
    """
    call = lambda args, kwargs: fun(*args, **kwargs)
    leaves, _, jaxpr = trace_flat(call, (args, kwargs), format_code_position(fun))
    linearized = linearize_jaxpr(jaxpr, [True] * len(leaves))
    primal, names = linearized.primal, positional_parameters(fun)
    places = zip(primal.invars, tree_flatten_with_path((args, kwargs))[0], strict=True)
    origin = {v: f"from the argument {format_argument(path, names)}" for v, (path, _) in places}
    computed = iter(primal.outvars[len(jaxpr.outvars) :])
    # Forwarded residuals are inputs of the primal jaxpr; the others follow its outputs.
    kept = dict.fromkeys(next(computed) if f is None else primal.invars[f] for f in linearized.forwarded)
    # In the order of the program: literals, constants, arguments, results.
    made = [*primal.constvars, *primal.invars, *(v for eqn in primal.eqns for v in eqn.outvars)]
    position = {v: i for i, v in enumerate(made)}
    in_order = sorted(kept, key=lambda v: position.get(v, -1))
    return [(v.aval, origin.get(v) or _origin(primal, v)) for v in in_order]


def print_saved_residuals(fun: Callable, *args: Any, **kwargs: Any) -> None:
    """Print the residuals of a function, one line for each array that its derivative saves.

    Args:
      fun: a function of arrays or pytrees of them.
      args, kwargs: its arguments, or `ShapeDtypeStruct`s of their shapes and dtypes.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> print_saved_residuals(phalanx.checkpoint(lambda x: jnp.sin(jnp.cos(x))), 1.0)
      f32[] from the argument x
    """
    for aval, origin in saved_residuals(fun, *args, **kwargs):
        sys.stdout.write(f"{aval.strip_weak_type().str_short()} {origin}\n")


def _origin(jaxpr: Jaxpr, value: Atom) -> str:
    """Describe where a residual comes from: a constant, or the operation that computes it and its line."""
    if type(value) is Literal:
        return f"from the literal {value.value}"
    if value in jaxpr.constvars:
        return "from a constant"
    eqn = next(eqn for eqn in jaxpr.eqns if value in eqn.outvars)
    # The result of a call is described by the operation inside that computes it.
    inner = eqn.params.get(getattr(eqn.primitive, "program", ""))
    if type(inner) is Jaxpr and len(inner.outvars) == len(eqn.outvars):
        result = inner.outvars[eqn.outvars.index(value)]
        if any(result in e.outvars for e in inner.eqns):
            return _origin(inner, result)
    operation = f"named {eqn.params['name']!r}" if eqn.primitive.name == "name" else f"output of {eqn.primitive.name}"
    return f"{operation} from {format_source(eqn.source)}"
