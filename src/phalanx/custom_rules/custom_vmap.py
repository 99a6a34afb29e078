"""`custom_vmap`: functions with a user-defined batching rule.

A call is a primitive that holds the jaxpr of the function and the user's rule; it differs from an ordinary call in its
batching rule only. `lax.control_flow.scan` defines the rule that maps one example after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import (
    Jaxpr,
    TraceError,
    UndefinedRuleError,
    Zero,
    check_function,
    fill_flagged,
    format_code_position,
    instantiate,
    join_tangents,
    select_flagged,
    split_tangents,
    state,
)
from phalanx.custom_rules.rule_arguments import bind_positional, check_pair, forward_rule_setter
from phalanx.engine.traceback_filtering import api_boundary_class
from phalanx.transforms import AxisData, TransformedCall, check_same_structure, front_dims, function_name, trace_flat
from phalanx.transforms.jvp_trace import jvp_flat, jvp_jaxpr
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

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, fun: Jaxpr, rule: Callable, num_consts: int
    ) -> tuple:
        """A call of the derivative of the function, with the derivative of the user's rule as its rule."""
        nonzero, given = split_tangents(tangents)
        if any(nonzero[:num_consts]):  # The rule has no tangents for values that the function closes over.
            return super().jvp(primals, tangents, fun=fun, rule=rule, num_consts=num_consts)
        derived, has = jvp_jaxpr(fun, nonzero)
        moving = nonzero[num_consts:]

        def rule_of_derivative(size: DimSize, mapped: Sequence[bool], operands: Sequence[Any]) -> tuple:
            count = len(moving)
            # A primal and its tangent are mapped both or neither.
            dots, dots_mapped = fill_flagged(moving, operands[count:]), fill_flagged(moving, mapped[count:])
            both = [m or bool(d) for m, d in zip(mapped[:count], dots_mapped, strict=True)]

            def align(x: Any, is_mapped: bool, want: bool) -> Any:
                return AxisData(size).to_front(x, None) if want and not is_mapped else x

            xs = list(map(align, operands[:count], mapped[:count], both))
            x_dots = map(align, dots, dots_mapped, [b and t is not None for b, t in zip(both, dots, strict=True)])
            out_mapped: list[bool] = []

            def apply(*xs: Any) -> list:
                out, out_mapped[:] = rule(size, both, xs)
                return out

            tangents = [Zero.like(x) if t is None else t for x, t in zip(xs, x_dots, strict=True)]
            out, out_dot = jvp_flat(apply, xs, tangents, "jvp of a custom_vmap function")
            dense = map(instantiate, select_flagged(out_dot, has))
            return [*out, *dense], [*out_mapped, *select_flagged(out_mapped, has)]

        params = {"fun": derived.hoist(), "rule": rule_of_derivative, "num_consts": len(derived.consts) + num_consts}
        out = self(*derived.consts, *primals, *given, **params)
        count = len(fun.outvars)
        return out[:count], join_tangents(fun.out_avals, has, out[count:])


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

    __getattr__ = forward_rule_setter

    def __call__(self, *args: Any, **kwargs: Any) -> PyTree:
        args = bind_positional(self.fun, args, kwargs, "make the parameters of a custom_vmap function positional")
        if self.vmap_rule is None:
            raise UndefinedRuleError(
                f"call of {format_code_position(self.fun)}",
                expected="a custom_vmap function with a batching rule",
                got="one without a rule",
                fix="define the rule with def_vmap",
            )
        # Eagerly there is no `vmap` that could need the rule.
        if state.trace is None:
            return self.fun(*args)
        leaves, function, jaxpr = trace_flat(self.fun, args, function_name(self.fun), written=self.fun)
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
