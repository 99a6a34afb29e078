"""`value_and_grad` and `grad`: gradients of scalar functions in reverse mode.

Builds on `jvp_and_vjp`; adds the selection of arguments by `argnums` and the checks that a gradient is defined, which
`jacobian` shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    AbstractRef,
    ArgumentTypeError,
    ConversionError,
    DTypeError,
    RefError,
    ShapedArray,
    ShapeError,
    check_function,
    dtypes,
    format_code_position,
    get_aval,
    get_aval_of_argument,
    is_sequence,
    normalize_positions,
    parse_positions,
)
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.transforms.flat_function import FlatFunction, format_argument, function_name, positional_parameters, wraps
from phalanx.transforms.jvp_and_vjp import finalize_tangents, linearize_flat
from phalanx.transforms.transpose_jaxpr import transpose_flat
from phalanx.tree import PyTreeDef, tree_flatten, tree_flatten_with_path, tree_unflatten
from phalanx.tree.key_paths import SequenceKey
from phalanx.typing import AxisName, PyTree


def value_and_grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[AxisName] = (),
) -> Callable:
    """A function that returns the value and the gradient of a scalar function.

    Args:
      fun: a function whose result is a scalar (with `has_aux`, a pair of a scalar and anything).
      argnums: the positional argument, or arguments, to differentiate with respect to.
      has_aux: whether `fun` returns `(result, aux)`.
      holomorphic: whether `fun` is a holomorphic function of complex arguments.
      allow_int: whether arguments may be integers; their gradients have dtype `float0`.
      reduce_axes: accepted for compatibility; not read.

    Returns:
      A function of the same arguments that returns `(value, gradient)`; the value is `(result, aux)` if `has_aux`, the
      gradient a tuple if `argnums` is a sequence.

    Raises:
      DTypeError: an argument or the result has a dtype that cannot be differentiated as requested.
      ShapeError: the result is not a scalar.

    Examples:
      >>> import phalanx
      >>> value, gradient = phalanx.value_and_grad(lambda x: x**3)(2.0)
      >>> float(value), float(gradient)
      (8.0, 12.0)
    """
    check_function("grad or value_and_grad, argument fun", fun)

    @api_boundary
    @wraps(fun)
    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple:
        # The arguments outside `argnums` are closed over, so they are constants of the differentiated function.
        wanted, rest = select_argnums(args, argnums)
        flat, tree = tree_flatten(wanted)
        check_inputs("grad", fun, args, argnums, flat, holomorphic=holomorphic, allow_int=allow_int)
        function = FlatFunction(lambda *c: fun(*rest(c), **kwargs), tree, has_aux=has_aux, written=fun)
        out, jaxpr, nonzero, aux = linearize_flat(function, flat, function_name(fun))
        _check_scalar(fun, out, function.out_tree, holomorphic)
        # The result does not depend on the arguments if it has no tangent; all gradients are then zero.
        cts = [np.ones((), get_aval(out[0]).dtype)[()]] if nonzero[0] else []
        bars = finalize_tangents(transpose_flat(jaxpr, jaxpr.consts, cts), [get_aval(x) for x in flat])
        grads = tree_unflatten(tree, bars)
        value = (out[0], aux) if has_aux else out[0]
        return value, tuple(grads) if is_sequence(argnums) else grads[0]

    return value_and_gradient


def grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[AxisName] = (),
) -> Callable:
    """A function that returns the gradient of a scalar function.

    Outside of `jit` the values are concrete while `fun` runs: Python control flow may depend on them (`if x > 0`,
    `int(x)`, an index), and `x.item()` and printing work. Converting a value to a Python number to compute with, as
    `float(x)` or `math.sin(x)` do, would lose the derivative and raises an error; `float(lax.stop_gradient(x))` works.

    Args:
      fun, argnums, has_aux, holomorphic, allow_int, reduce_axes: as in `value_and_grad`.

    Returns:
      A function of the same arguments that returns the gradient, or `(gradient, aux)` if `has_aux`.

    Raises:
      DTypeError, ShapeError: as `value_and_grad`.

    Examples:
      >>> import phalanx
      >>> float(phalanx.grad(lambda x: x**3)(2.0))
      12.0
    """
    both = value_and_grad(fun, argnums, has_aux=has_aux, holomorphic=holomorphic, allow_int=allow_int)

    @api_boundary
    @wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> PyTree:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return gradient


def _argnum_positions(args: tuple, argnums: int | Sequence[int]) -> list[int]:
    fix = "pass the differentiated arguments by position, or change argnums"
    positions = normalize_positions("argnums", parse_positions("argnums", argnums), len(args), argnums, fix)
    if not 0 < len({*positions}) == len(positions):
        expected, fix = "at least one position, each of them once", "name the differentiated arguments"
        raise ConversionError("argnums", expected=expected, got=repr(argnums), fix=fix)
    return positions


def select_argnums(args: tuple, argnums: int | Sequence[int]) -> tuple[tuple, Callable[[Sequence[PyTree]], list]]:
    """The arguments to differentiate with respect to, and a function that replaces them in the argument list."""
    wanted = _argnum_positions(args, argnums)

    def fill(values: Sequence[PyTree]) -> list:
        full = list(args)
        for n, x in zip(wanted, values, strict=True):
            full[n] = x
        return full

    return tuple(args[n] for n in wanted), fill


def check_inputs(
    transform: str,
    fun: Callable,
    args: tuple,
    argnums: int | Sequence[int],
    flat: Sequence[Any],
    *,
    holomorphic: bool,
    allow_int: bool = False,
    is_forward: bool = False,
) -> None:
    """Refuse arguments of dtypes that cannot be differentiated as requested.

    Args:
      transform: the name of the transformation, for errors.
      fun, args, argnums: the function, its positional arguments and the differentiated ones.
      flat: the leaves of the differentiated arguments.
      holomorphic, allow_int: as in `value_and_grad`.
      is_forward: whether columns of a Jacobian are computed in forward mode, for which complex arguments are refused.
    """
    for i, x in enumerate(flat):

        def where(i: int = i) -> str:
            positions = _argnum_positions(args, argnums)
            path = tree_flatten_with_path(tuple(args[n] for n in positions))[0][i][0]
            # As in the pair of all positional and keyword arguments.
            whole = (SequenceKey(0), SequenceKey(positions[path[0].idx]), *path[1:])
            name = format_argument(whole, positional_parameters(fun))
            return f"{transform} of {format_code_position(fun)}, argument {name}"

        aval: Any = get_aval_of_argument(x, where)
        if isinstance(aval, AbstractRef):
            raise RefError(
                where(),
                expected="an array",
                got=f"a mutable array reference, {aval.str_short()}, whose gradient must be added to a reference",
                fix="use vjp, and bind a reference for the gradient: f_vjp.with_refs(grad_ref)(cotangent)",
            )
        if holomorphic:
            check_dtype_kind(aval, np.complexfloating, where, "convert the argument to complex64, or drop holomorphic")
            continue
        if not allow_int:
            fix = "convert the argument to float32, "
            fix += "or choose others by argnums" if is_forward else "choose others by argnums, or pass allow_int=True"
            check_dtype_kind(aval, np.inexact, where, fix)
        if is_forward:
            check_not_complex(aval, where, "direction", "use jvp or jacrev")


def check_not_complex(aval: ShapedArray, where: Callable[[], str], each: str, instead: str) -> None:
    """Refuse a complex type where a Jacobian has one direction, or one row, for each element."""
    if dtypes.issubdtype(aval.dtype, np.complexfloating):
        raise DTypeError(
            where(),
            expected=f"a real dtype, since one {each} for each element gives half of a complex derivative",
            got=aval.str_short(),
            fix=f"pass holomorphic=True if the function is holomorphic, else {instead}",
        )


def _check_scalar(fun: Callable, out: list, tree: PyTreeDef, holomorphic: bool) -> None:
    """Refuse a result that is not one scalar of a dtype that can be differentiated."""
    where = f"grad, the result of {format_code_position(fun)}"
    if len(out) != 1 or tree.num_nodes != 1:
        types = ", ".join(get_aval(x).str_short() for x in out)
        raise ArgumentTypeError(
            where,
            expected="one scalar",
            got=f"a pytree of {len(out)} leaves{types and f': {types}'}",
            fix="return a scalar; with has_aux=True it may return (scalar, aux)",
        )
    aval = get_aval(out[0])
    if aval.shape != ():
        raise ShapeError(
            where,
            expected="a scalar",
            got=aval.str_short(),
            fix="reduce it with .sum() or .mean(), or use jacrev, jacfwd or vjp for array results",
        )
    if holomorphic:
        check_dtype_kind(aval, np.complexfloating, lambda: where, "drop holomorphic, or return a complex value")
    else:
        fix = "return a real value (for complex functions use holomorphic=True, vjp or jvp)"
        check_dtype_kind(aval, np.floating, lambda: where, fix)


_KINDS = {
    np.complexfloating: "a complex dtype, since holomorphic=True",
    np.floating: "a real floating-point dtype",
    np.inexact: "a real or complex floating-point dtype",
}


def check_dtype_kind(aval: ShapedArray, kind: type, where: Callable[[], str], fix: str) -> None:
    """Refuse a dtype that is not a subtype of `kind`."""
    # `where` is called for the error only: computing the path of every leaf in advance takes quadratic time.
    if dtypes.is_extended(aval.dtype) or not dtypes.issubdtype(aval.dtype, kind):
        raise DTypeError(where(), expected=_KINDS[kind], got=aval.str_short(), fix=fix)
