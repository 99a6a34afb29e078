"""`custom_remat`: a function that decides itself what `checkpoint` saves of it, and how it is recomputed.

Inside a `checkpoint` the call is a `custom_jvp` function. Its rule computes the result by `f_fwd`, whose residuals are
marked as saved by every policy, and again from them by `f_rem`; the tangent is the transpose of `f_bwd`. Partial
evaluation takes the first result in the forward pass, and the second one in the recomputation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import (
    ArgumentTypeError,
    Eqn,
    Primitive,
    ShapedArray,
    ShardingRule,
    Var,
    Zero,
    check_function,
    dtypes,
    format_code_position,
    get_aval,
    instantiate,
    merge_lists,
    normalize_positions,
    parse_positions,
    select_flagged,
    select_unflagged,
    state,
    vector_space,
)
from phalanx.custom_rules.custom_jvp_and_vjp import custom_jvp
from phalanx.custom_rules.rule_arguments import bind_positional
from phalanx.engine import api_boundary
from phalanx.transforms import AxisData, Policy, linear_transpose, positional_parameters, residual_p
from phalanx.transforms.flat_function import function_name, wraps
from phalanx.tree import tree_flatten, tree_map


class Rematerialized(Primitive, name="rematerialized"):
    """A result, and the same result as the recomputation makes it: any[*shape], any[*shape] -> any[*shape]."""

    def abstract_eval(self, first: ShapedArray, again: ShapedArray) -> ShapedArray:
        return first

    def sharding_rule(self, first: ShapedArray, again: ShapedArray) -> ShardingRule:
        names = range(first.ndim)
        return ShardingRule([names, names], [names])

    def lower(self, ctx: Any, first: Any, again: Any) -> Any:
        return first

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple:
        moved = tangents[0] if type(tangents[0]) is Zero else self(*map(instantiate, tangents))
        return self(*primals), moved

    def transpose(self, y_bar: Any, first: Any, again: Any) -> tuple:
        return y_bar, None

    def batch_axis(self, axis: AxisData, args: Sequence[Any], dims: Sequence[int | None]) -> tuple:
        return self(*map(axis.to_front, args, dims)), 0

    @staticmethod
    def partial_eval_eqn(eqn: Eqn, unknown: Sequence[bool], policy: Policy) -> tuple[Eqn | None, Eqn, Sequence[Var]]:
        """The forward pass takes the first operand, the recomputation the second one."""
        first, again = eqn.invars
        known = None if any(unknown) else eqn.replace(invars=[first, first])
        return known, eqn.replace(invars=[again, again]), []


rematerialized_p = Rematerialized()


def custom_remat(
    f: Callable,
    f_fwd: Callable,
    f_rem: Callable,
    f_bwd: Callable,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable:
    """A function with its own rule for what `checkpoint` saves of it and how it is recomputed.

    Args:
      f: the function. Outside of `checkpoint`, only this one is called and differentiated.
      f_fwd: `f_fwd(policy, *args)` returns `(result, residuals)` in the forward pass, where `policy` is the one of the
        `checkpoint`. All residuals are saved, whatever the policy says; None saves nothing.
      f_rem: `f_rem(residuals, *args)` returns `(result, saved)` in the backward pass, from recomputed arguments.
      f_bwd: `f_bwd(saved, cotangent)` returns a tuple with the cotangent of each argument that is not static, or None
        for one that is zero; linear in `cotangent`.
      static_argnums, static_argnames: arguments that are no arrays. They are passed to `f`, `f_fwd` and `f_rem`, each
        in its place.

    Returns:
      A function with the value of `f`.

    Raises:
      ArgumentTypeError: a function is not callable; in a call, `f_bwd` does not return one cotangent for each argument.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> sin = phalanx.custom_remat(  # saves its slope
      ...     jnp.sin,
      ...     lambda policy, x: (jnp.sin(x), jnp.cos(x)),
      ...     lambda slope, x: (jnp.sin(x), slope),
      ...     lambda slope, y_bar: (slope * y_bar,),
      ... )
      >>> float(phalanx.grad(phalanx.checkpoint(lambda x: sin(sin(x))))(0.0))
      1.0
    """
    for name, function in dict(f=f, f_fwd=f_fwd, f_rem=f_rem, f_bwd=f_bwd).items():
        check_function(f"custom_remat, argument {name}", function)
    numbers = parse_positions("custom_remat, argument static_argnums", static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)

    @api_boundary
    @wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args = bind_positional(f, args, kwargs, "make the parameters of a function with custom_remat positional")
        policy = state.context.checkpoint_policy
        if policy is None:
            return f(*args)
        where = "custom_remat, argument static_argnums"
        static = normalize_positions(where, numbers, len(args), static_argnums, "list positions of arguments")
        parameters = positional_parameters(f) if names else ()
        is_static = [i in static or parameters[i : i + 1] in [[n] for n in names] for i in range(len(args))]
        complete = functools.partial(merge_lists, is_static, select_flagged(args, is_static))

        def derive(primals: tuple, tangents: tuple) -> tuple:
            y, residuals = f_fwd(policy, *complete(primals))
            again, saved = f_rem(tree_map(residual_p, residuals), *complete(primals))
            y_dot = _transpose_backward(f_bwd, saved, y, primals, tangents)
            return tree_map(rematerialized_p, y, again), y_dot

        def call(*others: Any) -> Any:
            return f(*complete(others))

        call.__name__ = function_name(f)
        function = custom_jvp(call)
        function.defjvp(derive)
        return function(*select_unflagged(args, is_static))

    return wrapped


def _transpose_backward(f_bwd: Callable, saved: Any, y: Any, primals: tuple, tangents: tuple) -> Any:
    """The tangent of the result: the transpose of the backward rule, applied to the tangents of the arguments."""
    flat = [tree_flatten(x)[0] for x in primals]

    def backward(y_bar: Any) -> list:
        bars = f_bwd(saved, y_bar)
        if not isinstance(bars, tuple | list) or len(bars) != len(primals):
            raise ArgumentTypeError(
                f"custom_remat, the result of f_bwd = {format_code_position(f_bwd)}",
                expected=f"a tuple of {len(primals)} cotangents, one for each argument",
                got=repr(bars),
                fix="return a tuple, with None for an argument whose cotangent is zero",
            )
        out: list = []
        for x, bar, leaves in zip(primals, bars, flat, strict=True):
            given = [None] * len(leaves) if bar is None else tree_flatten(x)[1].flatten_up_to(bar)
            out += [
                vector_space.zeros(get_aval(leaf)) if b is None else b
                for leaf, b in zip(leaves, given, strict=True)
                if get_aval(leaf).to_tangent().dtype != dtypes.float0
            ]
        return out

    moved = [t for t in tree_flatten(tangents)[0] if get_aval(t).dtype != dtypes.float0]
    (y_dot,) = linear_transpose(backward, y)(moved)
    return y_dot
