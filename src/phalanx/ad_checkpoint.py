"""Rematerialisation under its old module name: `checkpoint`, its policies, and what is kept, shown to the user.

`checkpoint` is `transforms.remat`, whose `name` marks what policies speak of. `print_saved_residuals` shows what
differentiation keeps from the forward pass, as `transforms.linearization` decides.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError
from phalanx.core.jaxpr import Eqn, Jaxpr, Literal
from phalanx.core.primitive import Primitive
from phalanx.core.source import code_position, summary
from phalanx.core.trace import stage
from phalanx.engine.frames import guard as _guard
from phalanx.transforms.functions import FlatFunction
from phalanx.transforms.linearization import linearize_program
from phalanx.transforms.offload import Offloadable as Offloadable
from phalanx.transforms.offload import Recompute as Recompute
from phalanx.transforms.offload import Saveable as Saveable
from phalanx.transforms.partial_eval import Policy, everything_saveable
from phalanx.transforms.remat import checkpoint as checkpoint
from phalanx.transforms.remat import checkpoint_name as checkpoint_name
from phalanx.transforms.remat import name_p, nothing_saveable
from phalanx.transforms.remat import remat as remat
from phalanx.tree import keystr, tree_flatten, tree_flatten_with_path


def _policy_on_names(keeps: Callable[[str | None], Any]) -> Policy:
    """The policy that asks this of the name of a value; None where it has none."""

    def policy(primitive: Primitive, *_: Any, **params: Any) -> Any:
        return keeps(params["name"] if primitive is name_p else None)

    return policy


class CheckpointPolicies:
    """The policies for `checkpoint(policy=...)`, each a predicate on an operation whose result might be kept.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> policy = phalanx.checkpoint_policies.everything_saveable
      >>> f = phalanx.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=policy)
      >>> float(phalanx.grad(f)(0.0))
      1.0
    """

    everything_saveable = staticmethod(everything_saveable)
    nothing_saveable = staticmethod(nothing_saveable)

    @staticmethod
    def dots_saveable(primitive: Primitive, *_: Any, **__: Any) -> bool:
        """Keep the results of matrix products and convolutions."""
        return primitive.name in ("dot_general", "conv_general_dilated")

    checkpoint_dots = dots_saveable

    @staticmethod
    def dots_with_no_batch_dims_saveable(primitive: Primitive, *_: Any, **params: Any) -> bool:
        """Keep the results of matrix products without batch dimensions."""
        return primitive.name == "dot_general" and not any(params["dimension_numbers"][1])

    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    @functools.cache
    def save_only_these_names(*names: str) -> Policy:
        """Keep values marked with one of these names by `checkpoint_name`."""
        return _policy_on_names(lambda name: name in names)

    @staticmethod
    @functools.cache
    def save_any_names_but_these(*names: str) -> Policy:
        """Keep values marked with any name but these."""
        return _policy_on_names(lambda name: name is not None and name not in names)

    @staticmethod
    @functools.cache
    def save_anything_except_these_names(*names: str) -> Policy:
        """Keep everything but values marked with these names."""
        return _policy_on_names(lambda name: name not in names)

    @staticmethod
    @functools.cache
    def save_from_both_policies(first: Policy, second: Policy) -> Policy:
        """Keep what either policy keeps, where it is if either of them says so."""

        def policy(primitive: Primitive, *avals: Any, **params: Any) -> Any:
            verdicts = [p(primitive, *avals, **params) for p in (first, second)]
            return next((v for v in verdicts if v and not isinstance(v, Offloadable)), verdicts[0] or verdicts[1])

        return policy

    @staticmethod
    def save_and_offload_only_these_names(
        *,
        names_which_can_be_saved: Sequence[str],
        names_which_can_be_offloaded: Sequence[str],
        offload_src: str,
        offload_dst: str,
    ) -> Policy:
        """Keep values marked with some names where they are, those with others in another memory."""
        saved, offloaded = tuple(names_which_can_be_saved), tuple(names_which_can_be_offloaded)
        if both := sorted({*saved} & {*offloaded}):
            raise ArgumentError(
                "save_and_offload_only_these_names",
                expected="each name among those saved or those offloaded",
                got=f"{', '.join(map(repr, both))} among both",
                mend="take it out of one of them",
            )
        return _saved_or_offloaded(saved, offloaded, Offloadable(offload_src, offload_dst))

    @staticmethod
    @functools.cache
    def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
        """Keep the results of matrix products without batch dimensions, in another memory."""
        memory = Offloadable(offload_src, offload_dst)

        def policy(primitive: Primitive, *avals: Any, **params: Any) -> Any:
            return memory if CheckpointPolicies.dots_with_no_batch_dims_saveable(primitive, *avals, **params) else False

        return policy


@functools.cache
def _saved_or_offloaded(saved: tuple, offloaded: tuple, memory: Offloadable) -> Policy:
    return _policy_on_names(lambda name: memory if name in offloaded else name in saved)


checkpoint_policies = CheckpointPolicies()


def saved_residuals(fun: Callable, *args: Any, **kwargs: Any) -> list[tuple[ShapedArray, str]]:
    """What the derivative of a function keeps from computing its value.

    Args:
      fun: a function of arrays or pytrees of them.
      args, kwargs: its arguments, or `ShapeDtypeStruct`s like them.

    Returns:
      The type of each value, and where it is from.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> kept = saved_residuals(phalanx.checkpoint(lambda x: jnp.sin(jnp.cos(x))), 1.0)
      >>> [origin for _, origin in kept]
      ['the argument x']
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
