"""`linear_call`: a linear function with a user-defined transpose.

A call is a primitive that holds the jaxpr of the function. Its transpose is a call of the user's transpose function,
whose own transpose is the original function again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import (
    Jaxpr,
    ShapedArray,
    ShapeError,
    Zero,
    add_tangents,
    check_function,
    format_code_position,
    get_aval,
    instantiate,
    run_jaxpr,
    trace_to_jaxpr,
)
from phalanx.transforms import (
    AxisData,
    CallPrimitive,
    batch_function,
    batch_jaxpr,
    check_same_structure,
    function_name,
    jvp_flat,
    trace_flat,
)
from phalanx.tree import PyTreeDef, tree_flatten, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import PyTree

# The transpose as a function of flat residuals and flat cotangents; it is traced when a transpose is needed.
Transpose = Callable[[Sequence[Any], Sequence[Any]], list]


class LinearCall(CallPrimitive, name="linear_call"):
    """A call of a function that is linear in its last operands: (*residuals, *linear) -> results of `fun`."""

    program = "fun"

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, fun: Jaxpr, back: Transpose, num_residuals: int
    ) -> tuple:
        n = num_residuals
        call = functools.partial(self, fun=fun, back=back, num_residuals=n)
        y = call(*primals)
        y_dot = [Zero.like(v) for v in y]
        if any(type(t) is not Zero for t in tangents[n:]):
            y_dot = call(*primals[:n], *map(instantiate, tangents[n:]))
        if any(type(t) is not Zero for t in tangents[:n]):
            _, moved = jvp_flat(lambda *r: run_jaxpr(fun, *r, *primals[n:]), primals[:n], tangents[:n], self.name)
            y_dot = list(map(add_tangents, y_dot, moved))
        return y, y_dot

    def transpose(
        self, y_bars: Sequence[Any], *operands: Any, fun: Jaxpr, back: Transpose, num_residuals: int
    ) -> tuple:
        n = num_residuals
        # Constants of the traced transpose become leading residuals; `original` skips them.
        residuals, cts = operands[:n], [instantiate(c) for c in y_bars]
        avals = [get_aval(x) for x in (*residuals, *cts)]
        jaxpr = trace_to_jaxpr(lambda *xs: back(xs[:n], xs[n:]), avals, f"transpose({fun.debug_name})")
        k = len(jaxpr.consts)

        def original(residuals: Sequence[Any], xs: Sequence[Any]) -> list:
            return run_jaxpr(fun, *residuals[k:], *xs)

        operands = (*jaxpr.consts, *residuals, *cts)
        return (*[None] * n, *self(*operands, fun=jaxpr.hoist(), back=original, num_residuals=k + n))

    def batch_axis(
        self,
        axis: AxisData,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        fun: Jaxpr,
        back: Transpose,
        num_residuals: int,
    ) -> tuple:
        n = num_residuals
        mapped = [d is not None for d in dims[:n]]
        linear = list(map(axis.to_front, args[n:], dims[n:]))
        jaxpr, _ = batch_jaxpr(fun, axis, [*mapped, *[True] * len(linear)], True)
        k = len(jaxpr.consts)

        def batched_back(residuals: Sequence[Any], cts: Sequence[Any]) -> list:
            one = lambda *xs: back(xs[:n], xs[n:])
            return batch_function(one, [*mapped, *[True] * len(cts)], axis, self.name)(*residuals[k:], *cts)

        operands = [*jaxpr.consts, *axis.to_fronts(args[:n], dims[:n]), *linear]
        out = self(*operands, fun=jaxpr.hoist(), back=batched_back, num_residuals=k + n)
        return out, [0] * len(out)


linear_call_p = LinearCall()


def linear_call(fun: Callable, fun_transpose: Callable, residual_args: PyTree, linear_args: PyTree) -> PyTree:
    """Call a linear function whose transpose is given by the caller.

    Args:
      fun: `fun(residuals, xs)`, linear in `xs`.
      fun_transpose: `fun_transpose(residuals, cotangents)` returns the cotangents of `xs`; linear in the cotangents of
        the result.
      residual_args: the residuals, which both functions read; a pytree of arrays.
      linear_args: `xs`, a pytree of arrays.

    Returns:
      The result of `fun`. Its derivative with respect to `residual_args` is that of `fun`.

    Raises:
      ArgumentTypeError: a function is not callable.
      TreeError: the transpose returns a pytree that does not have the structure of `linear_args`.
      ShapeError: the transpose returns a cotangent of another shape or dtype.

    Examples:
      >>> import phalanx
      >>> halve = lambda r, x: x / r
      >>> f = lambda x: linear_call(halve, lambda r, y_bar: y_bar * 100, 2.0, x)
      >>> float(f(8.0)), float(phalanx.grad(f)(8.0))
      (4.0, 100.0)
    """
    check_function("linear_call, argument fun", fun)
    check_function("linear_call, argument fun_transpose", fun_transpose)
    residuals, residual_tree = tree_flatten(residual_args)
    xs, tree = tree_flatten(linear_args)
    leaves, function, jaxpr = trace_flat(fun, (residual_args, linear_args), function_name(fun))
    k = len(jaxpr.consts)  # the leading residuals, which `fun` closes over and the user's transpose does not receive
    avals = [get_aval(x).to_tangent() for x in xs]

    def back(held: Sequence[Any], cts: Sequence[Any]) -> list:
        out = fun_transpose(tree_unflatten(residual_tree, held[k:]), tree_unflatten(function.out_tree, cts))
        return _check_transposed(fun_transpose, out, tree, avals)

    bind = functools.partial(linear_call_p, fun=jaxpr.hoist(), back=back, num_residuals=k + len(residuals))
    return tree_unflatten(function.out_tree, bind(*jaxpr.consts, *leaves))


def _check_transposed(fun_transpose: Callable, out: PyTree, tree: PyTreeDef, avals: Sequence[ShapedArray]) -> list:
    """The flat cotangents that the user's transpose returned; None in their pytree is a zero."""
    where = lambda path: f"linear_call, the result{path} of fun_transpose = {format_code_position(fun_transpose)}"
    flat, found = tree_flatten(out, is_leaf=lambda x: x is None)
    if found != tree:
        fix = "return a cotangent, or None, for each leaf of linear_args"
        check_same_structure(where, tree, found, lambda path: f"linear_args{path}", fix)
    for i, (x, aval) in enumerate(zip(flat, avals, strict=True)):
        got = aval if x is None else get_aval(x)
        if (got.shape, got.dtype) != (aval.shape, aval.dtype):
            path = leaf_path(tree_unflatten(tree, range(len(flat))), i)
            raise ShapeError(
                where(path),
                expected=f"a cotangent {aval.str_short()} for linear_args{path}",
                got=got.str_short(),
                fix="return cotangents of the shapes and dtypes of linear_args",
            )
    return [instantiate(Zero(aval)) if x is None else x for x, aval in zip(flat, avals, strict=True)]
