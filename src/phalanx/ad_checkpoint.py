"""Rematerialisation under its old module name, and what differentiation keeps from the forward pass, shown to the user.

`checkpoint` is `transforms.remat`. `print_saved_residuals` shows what a policy saves, as `transforms.linearization`
decides.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.jaxpr import Eqn, Jaxpr, Literal
from phalanx.core.source import code_position, summary
from phalanx.core.trace import stage
from phalanx.engine.frames import guard as _guard
from phalanx.transforms.functions import FlatFunction
from phalanx.transforms.linearization import linearize_program
from phalanx.transforms.offload import Offloadable as Offloadable
from phalanx.transforms.offload import Recompute as Recompute
from phalanx.transforms.offload import Saveable as Saveable
from phalanx.transforms.remat import checkpoint as checkpoint
from phalanx.transforms.remat import checkpoint_name as checkpoint_name
from phalanx.transforms.remat import checkpoint_policies as checkpoint_policies
from phalanx.transforms.remat import remat as remat
from phalanx.tree import keystr, tree_flatten, tree_flatten_with_path


def saved_residuals(fun: Callable, *args: Any, **kwargs: Any) -> list[tuple[ShapedArray, str]]:
    """What the derivative of a function keeps from computing its value.

    Args:
      fun: a function of arrays or pytrees of them.
      args, kwargs: its arguments, or `ShapeDtypeStruct`s like them.

    Returns:
      The type of each value, and where it is from.
    """
    leaves, tree = tree_flatten((args, kwargs))
    function = FlatFunction(lambda args, kwargs: fun(*args, **kwargs), tree)
    program = stage(function, [aval_of(x) for x in leaves], code_position(fun))
    halves = linearize_program(program, [True] * len(leaves))
    primal = halves.primal
    names, paths = _positional(fun), [path for path, _ in tree_flatten_with_path((args, kwargs))[0]]
    origin = {v: f"the argument {_argument(path, names)}" for v, path in zip(primal.invars, paths, strict=True)}
    computed = iter(primal.outvars[len(program.outvars) :])
    kept = [next(computed) if f is None else primal.invars[f] for f in halves.forwarded]
    return [(v.aval, origin.get(v) or _origin(primal, v)) for v in dict.fromkeys(kept)]


def print_saved_residuals(fun: Callable, *args: Any, **kwargs: Any) -> None:
    """Print what the derivative of a function keeps from computing its value, one line for each array.

    Args:
      fun: a function of arrays or pytrees of them.
      args, kwargs: its arguments, or `ShapeDtypeStruct`s like them.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> print_saved_residuals(phalanx.checkpoint(lambda x: jnp.sin(jnp.cos(x))), 1.0)
      ~f32[] from the argument x
    """
    for aval, origin in saved_residuals(fun, *args, **kwargs):
        sys.stdout.write(f"{aval.str_short()} from {origin}\n")


def _positional(fun: Callable) -> list[str]:
    """The names of a function's positional parameters, as far as they can be told."""
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _argument(path: tuple, names: list[str]) -> str:
    """The path of an argument among (args, kwargs), as it is called there."""
    (which, first), rest = (path[0].idx, path[1]), keystr(path[2:])
    if which == 1:
        return f"{first.key}{rest}"
    return f"{names[first.idx]}{rest}" if first.idx < len(names) else f"args[{first.idx}]{rest}"


def _origin(program: Jaxpr, value: Any) -> str:
    if type(value) is Literal:
        return f"the constant {value.value}"
    if value in program.constvars:
        return "a constant"
    eqn = next(eqn for eqn in program.eqns if value in eqn.outvars)
    inner = eqn.params.get(getattr(eqn.primitive, "program", None))
    if type(inner) is Jaxpr and len(inner.outvars) == len(eqn.outvars):
        result = inner.outvars[eqn.outvars.index(value)]
        if any(result in e.outvars for e in inner.eqns):
            return _origin(inner, result)
    return f"{_operation(eqn)} at {summary(eqn.source)}"


def _operation(eqn: Eqn) -> str:
    name = eqn.params.get("name")
    return f"{name!r}, a name given" if eqn.primitive.name == "name" else eqn.primitive.name


_guard(globals())
