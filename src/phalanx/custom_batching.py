"""Custom batching: functions that say themselves how they are mapped over many examples.

A `custom_vmap` call is a primitive that holds the function's program and the user's rule; only its batching rule
differs from an ordinary call. `sequential_vmap` is the rule that runs one example after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.aval import aval_of
from phalanx.core.config import state
from phalanx.core.errors import TraceError, TreeError, check_function
from phalanx.core.flags import chosen, merged, others
from phalanx.core.jaxpr import Jaxpr
from phalanx.core.source import code_position
from phalanx.core.trace import stage
from phalanx.custom_derivatives.functions import pair_of
from phalanx.engine.frames import boundaries
from phalanx.engine.frames import guard as _guard
from phalanx.engine.seat import Seat
from phalanx.transforms.batching import Axis, front_dims
from phalanx.transforms.calls import DerivedCall
from phalanx.transforms.functions import FlatFunction, function_name
from phalanx.tree import tree_broadcast, tree_flatten, tree_unflatten

# map(f, xs): the loop over a leading dimension, which lax has.
loops = Seat(taken_by="phalanx.lax")


class CustomVmapCall(DerivedCall, name="custom_vmap_call"):
    """A call of a function with its own batching rule: (*constants, *inputs) -> results of `fun`."""

    program = "fun"

    def batch_axis(self, axis: Axis, args: Any, dims: Any, *, fun: Jaxpr, rule: Callable, num_consts: int) -> tuple:
        if any(d is not None for d in dims[:num_consts]):
            raise TraceError(
                "vmap of a custom_vmap function",
                expected="a function that does not close over mapped values",
                got="one that does, so that its rule cannot say how they matter",
                mend="pass the value as an argument",
            )
        mapped = [d is not None for d in dims[num_consts:]]
        out, out_mapped = rule(axis.size, mapped, axis.to_fronts(args, dims)[num_consts:])
        return out, front_dims(out_mapped)


custom_vmap_call_p = CustomVmapCall()


@boundaries
class custom_vmap:
    """A function with its own batching rule.

    Args:
      fun: the function.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> @phalanx.custom_batching.custom_vmap
      ... def f(x):
      ...     return x + 1
      >>> @f.def_vmap
      ... def f_vmap(axis_size, in_batched, x):
      ...     return x + 10, in_batched[0]
      >>> phalanx.vmap(f)(jnp.zeros(2)).tolist()
      [10.0, 10.0]
    """

    def __init__(self, fun: Callable):
        check_function("custom_vmap, argument fun", fun)
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.vmap_rule: Callable | None = None

    def def_vmap(self, vmap_rule: Callable) -> Callable:
        """Set the rule: `rule(axis_size, in_batched, *args) -> (result, out_batched)`, mapped dimensions in front.

        Args:
          vmap_rule: the rule.

        Returns:
          The rule, so that this serves as a decorator.
        """
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.vmap_rule is None:
            raise TraceError(
                f"call of {code_position(self.fun)}",
                expected="a custom_vmap function with a rule",
                got="none",
                mend="define it with def_vmap",
            )
        if state.trace is None:
            return self.fun(*args, **kwargs)
        leaves, tree = tree_flatten(args)
        function = FlatFunction(functools.partial(self.fun, **kwargs), tree, written=self.fun)
        program = stage(function, [aval_of(x) for x in leaves], function_name(self.fun))
        out_tree = function.out_tree

        def rule(size: Any, mapped: Sequence[bool], xs: Sequence[Any]) -> tuple[list, list[bool]]:
            where = f"vmap rule of {code_position(self.fun)}"
            result = self.vmap_rule(size, list(tree_unflatten(tree, mapped)), *tree_unflatten(tree, xs))
            result = pair_of(where, result, "(result, out_batched)")
            out, got_tree = tree_flatten(result[0])
            if got_tree != out_tree:
                raise TreeError(
                    where,
                    expected=f"a result of structure {out_tree}",
                    got=str(got_tree),
                    mend="return what fun returns",
                )
            return out, tree_flatten(tree_broadcast(result[1], result[0]))[0]

        consts = program.consts
        out = custom_vmap_call_p(*consts, *leaves, fun=program.hoist(), rule=rule, num_consts=len(consts))
        return tree_unflatten(out_tree, out)


def sequential_vmap(fun: Callable) -> custom_vmap:
    """A function whose `vmap` runs one example after the other.

    Args:
      fun: the function.

    Returns:
      A `custom_vmap` of the function.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.vmap(phalanx.custom_batching.sequential_vmap(lambda x: x * 2))(jnp.arange(3)).tolist()
      [0, 2, 4]
    """
    function = custom_vmap(fun)

    @function.def_vmap
    def rule(axis_size: Any, in_batched: list, *args: Any) -> tuple:
        leaves, tree = tree_flatten(args)
        flags = tree_flatten(tuple(in_batched))[0]

        def one(xs: Sequence[Any]) -> Any:
            return fun(*tree_unflatten(tree, merged(flags, xs, others(leaves, flags))))

        out = loops.map(one, chosen(leaves, flags))
        return out, tree_unflatten(tree_flatten(out)[1], [True] * len(tree_flatten(out)[0]))

    return function


_guard(globals())
