"""`custom_vmap`: functions with a user-defined batching rule.

A call is a primitive that holds the jaxpr of the function and the user's rule; it differs from an ordinary call in its
batching rule only. `lax.control_flow.scan` defines the rule that maps one example after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import Jaxpr, TraceError, check_function, format_code_position, state
from phalanx.custom_rules.rule_arguments import check_pair
from phalanx.engine.traceback_filtering import api_boundary_class
from phalanx.transforms import AxisData, TransformedCall, check_same_structure, front_dims, function_name, trace_flat
from phalanx.tree import tree_broadcast, tree_leaves, tree_unflatten
from phalanx.typing import DimSize, PyTree


class CustomVmapCall(TransformedCall, name="custom_vmap_call"):
    """A call of a function with a custom batching rule: (*constants, *inputs) -> results of `fun`."""

    program = "fun"

    def batch_axis(
        self,
        axis: AxisData,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        fun: Jaxpr,
        rule: Callable,
        num_consts: int,
    ) -> tuple:
        if any(d is not None for d in dims[:num_consts]):
            raise TraceError(
                "vmap of a custom_vmap function",
                expected="a function that does not close over mapped values",
                got="one that closes over a mapped value, which its rule does not receive",
                fix="pass the value as an argument of the function",
            )
        mapped = [d is not None for d in dims[num_consts:]]
        out, out_mapped = rule(axis.size, mapped, axis.to_fronts(args, dims)[num_consts:])
        return out, front_dims(out_mapped)


custom_vmap_call_p = CustomVmapCall()


@api_boundary_class
class custom_vmap:
    """A function with a custom batching rule.

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
        """Set the batching rule.

        Args:
          vmap_rule: `vmap_rule(axis_size, in_batched, *args) -> (result, out_batched)`, with mapped dimensions in
            front; `in_batched` and `out_batched` are pytrees of bools.

        Returns:
          The rule, so that this method can be used as a decorator.
        """
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any, **kwargs: Any) -> PyTree:
        if self.vmap_rule is None:
            raise TraceError(
                f"call of {format_code_position(self.fun)}",
                expected="a custom_vmap function with a batching rule",
                got="one without a rule",
                fix="define the rule with def_vmap",
            )
        # Eagerly there is no `vmap` that could need the rule.
        if state.trace is None:
            return self.fun(*args, **kwargs)
        call = functools.partial(self.fun, **kwargs)
        leaves, function, jaxpr = trace_flat(call, args, function_name(self.fun), written=self.fun)
        tree, out_tree = function.in_tree, function.out_tree

        def rule(size: DimSize, mapped: Sequence[bool], xs: Sequence[Any]) -> tuple[list, list[bool]]:
            where = f"vmap rule {format_code_position(self.vmap_rule)} of {function_name(self.fun)}"
            result = self.vmap_rule(size, list(tree_unflatten(tree, mapped)), *tree_unflatten(tree, xs))
            result, out_batched = check_pair(where, result, "(result, out_batched)")
            check_same_structure(
                lambda path: f"{where}, result{path}",
                out_tree,
                result,
                lambda path: f"the result{path} of {format_code_position(self.fun)}",
                "return a result with the structure that the function returns",
            )
            return tree_leaves(result), tree_leaves(tree_broadcast(out_batched, result))

        bind = functools.partial(custom_vmap_call_p, fun=jaxpr.hoist(), rule=rule, num_consts=len(jaxpr.consts))
        return tree_unflatten(out_tree, bind(*jaxpr.consts, *leaves))
