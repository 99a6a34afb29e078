"""`linear_call`: a linear function whose transpose the user gives, instead of the one derived from its operations.

A call is a primitive that holds the function's program; its transpose is a call of the user's function, whose own
transpose is the first function again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ShapeError, TreeError, check_function
from phalanx.core.jaxpr import Jaxpr, run_program
from phalanx.core.source import code_position
from phalanx.core.tangent import Zero, add_tangents, instantiate
from phalanx.core.trace import stage
from phalanx.transforms.batching import Axis, batch_program, mapped_function
from phalanx.transforms.calls import ProgramCall
from phalanx.transforms.forward import jvp_flat
from phalanx.transforms.functions import FlatFunction
from phalanx.tree import tree_flatten, tree_unflatten

# The transpose as a function of flat residuals and flat cotangents; it is staged when it is wanted.
Back = Callable[[Sequence[Any], Sequence[Any]], list]


class LinearCall(ProgramCall, name="linear_call"):
    """A call of a function linear in its last operands: (*residuals, *linear) -> results of `fun`."""

    program = "fun"

    def jvp(self, primals: Any, tangents: Any, *, fun: Jaxpr, back: Back, num_residuals: int) -> tuple:
        n = num_residuals
        params = {"fun": fun, "back": back, "num_residuals": n}
        y = self(*primals, **params)
        y_dot = [Zero.like(v) for v in y]
        if any(type(t) is not Zero for t in tangents[n:]):
            y_dot = self(*primals[:n], *map(instantiate, tangents[n:]), **params)
        if any(type(t) is not Zero for t in tangents[:n]):
            _, moved = jvp_flat(lambda *r: run_program(fun, *r, *primals[n:]), primals[:n], tangents[:n], self.name)
            y_dot = list(map(add_tangents, y_dot, moved))
        return y, y_dot

    def transpose(self, y_bars: Any, *operands: Any, fun: Jaxpr, back: Back, num_residuals: int) -> tuple:
        n = num_residuals
        residuals, cts = operands[:n], [instantiate(c) for c in y_bars]
        program = stage(
            lambda *xs: back(xs[:n], xs[n:]), [aval_of(x) for x in (*residuals, *cts)], f"transpose({fun.debug_name})"
        )
        k = len(program.consts)
        given = [*program.consts, *residuals, *cts]

        def forth(residuals: Sequence[Any], xs: Sequence[Any]) -> list:
            return run_program(fun, *residuals[k:], *xs)

        return (*[None] * n, *self(*given, fun=program.hoist(), back=forth, num_residuals=k + n))

    def batch_axis(self, axis: Axis, args: Any, dims: Any, *, fun: Jaxpr, back: Back, num_residuals: int) -> tuple:
        n = num_residuals
        mapped = [d is not None for d in dims[:n]]
        linear = list(map(axis.to_front, args[n:], dims[n:]))
        program, _ = batch_program(fun, axis, [*mapped, *[True] * len(linear)], True)
        k = len(program.consts)

        def mapped_back(residuals: Sequence[Any], cts: Sequence[Any]) -> list:
            one = lambda *xs: back(xs[:n], xs[n:])
            return mapped_function(one, [*mapped, *[True] * len(cts)], axis, self.name)(*residuals[k:], *cts)

        given = [*program.consts, *axis.to_fronts(args[:n], dims[:n]), *linear]
        out = self(*given, fun=program.hoist(), back=mapped_back, num_residuals=k + n)
        return out, [0] * len(out)


linear_call_p = LinearCall()


def linear_call(fun: Callable, fun_transpose: Callable, residual_args: Any, linear_args: Any) -> Any:
    """Call a linear function that has the transpose you give.

    Args:
      fun: `fun(residuals, xs)`, linear in `xs`.
      fun_transpose: `fun_transpose(residuals, cotangents)`, linear in the cotangents of the result, of which it makes
        those of `xs`.
      residual_args: what both functions read, a pytree of arrays.
      linear_args: `xs`, a pytree of arrays.

    Returns:
      The result of `fun`. Derivatives by `residual_args` are those of `fun`.

    Raises:
      ArgumentTypeError: a function is not callable.
      TreeError: the transpose gives another structure than that of `linear_args`.
      ShapeError: it gives cotangents of other shapes or dtypes.

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
    function = FlatFunction(fun, tree_flatten((residual_args, linear_args))[1])
    program = stage(function, [aval_of(x) for x in (*residuals, *xs)], function.__name__)
    k = len(program.consts)
    avals = [aval_of(x).to_tangent() for x in xs]

    def back(held: Sequence[Any], cts: Sequence[Any]) -> list:
        out = fun_transpose(tree_unflatten(residual_tree, held[k:]), tree_unflatten(function.out_tree, cts))
        return _checked(f"the transpose {code_position(fun_transpose)}", out, tree, avals)

    given = [*program.consts, *residuals, *xs]
    out = linear_call_p(*given, fun=program.hoist(), back=back, num_residuals=k + len(residuals))
    return tree_unflatten(function.out_tree, out)


def _checked(where: str, out: Any, tree: Any, avals: Sequence[ShapedArray]) -> list:
    """The flat cotangents that a user's transpose gave, None standing for a zero."""
    flat, found = tree_flatten(out, is_leaf=lambda x: x is None)
    if found != tree:
        raise TreeError(
            where,
            expected=f"the structure of the linear arguments, {tree}",
            got=str(found),
            mend="return a cotangent for each leaf of the linear arguments",
        )
    for x, aval in zip(flat, avals, strict=True):
        got = aval if x is None else aval_of(x)
        if (got.shape, got.dtype) != (aval.shape, aval.dtype):
            raise ShapeError(
                where,
                expected=f"a cotangent {aval.str_short()}, that of a linear argument",
                got=got.str_short(),
                mend="return cotangents of the shapes and dtypes of the linear arguments",
            )
    return [instantiate(Zero(aval)) if x is None else x for x, aval in zip(flat, avals, strict=True)]
