"""Derivatives as users ask for them: `jvp`, `vjp`, `grad`, `linearize`, `jacfwd`, `jacrev`, `hessian` and kin.

Each flattens its arguments, checks them, and calls `forward` and `linear`; nothing here knows an operation. The reverse
mode is linearisation followed by a transposition of the linear program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_at, aval_of
from phalanx.core.config import state
from phalanx.core.errors import (
    ArgumentTypeError,
    DTypeError,
    ShapeError,
    TreeError,
    check_function,
    is_sequence,
    places,
    positions,
)
from phalanx.core.flags import chosen, merged, others
from phalanx.core.jaxpr import Jaxpr, run_program
from phalanx.core.source import code_position
from phalanx.core.tangent import Zero, instantiate, vector_space
from phalanx.core.trace import Tracer, stage
from phalanx.engine.frames import boundary
from phalanx.runtime.array import Array
from phalanx.symbolic import is_constant_shape
from phalanx.transforms import batching
from phalanx.transforms.forward import JVPTrace, JVPTracer, jvp_flat
from phalanx.transforms.functions import FlatFunction, function_name
from phalanx.transforms.linear import LinearTrace, finish_linear, transpose_flat
from phalanx.tree import Partial, tree_flatten, tree_leaves, tree_map, tree_unflatten
from phalanx.tree.paths import leaf_path


class LinearMap:
    """A linear program with the trees around it; compared by identity so that it can sit in a pytree's structure.

    Args:
      program: with its constants still to come: tangents of the inputs -> those tangents of the outputs that have one.
      in_tree, out_tree: the structures of the arguments and the result.
      nonzero: for each output, whether it has a tangent.
      ins, outs: the primal arguments and results, or variables of their types.
    """

    __slots__ = ("in_avals", "in_tree", "nonzero", "out_avals", "out_tree", "program")

    def __init__(self, program: Jaxpr, in_tree: Any, out_tree: Any, nonzero: Sequence[bool], ins: Any, outs: Any):
        self.program, self.nonzero = program.replace(consts=()), nonzero
        self.in_tree, self.out_tree = in_tree, out_tree
        self.in_avals, self.out_avals = [aval_of(x) for x in ins], [aval_of(x) for x in outs]


def _linearize(function: FlatFunction, primals: Sequence[Any], name: str) -> tuple:
    """Run a flat function, recording the linear program of its tangents."""
    linear = LinearTrace(state.trace, name)
    trace = JVPTrace(linear, name)

    def paired(primal: Any) -> Any:
        tangent = linear.new_input(aval_of(primal).to_tangent())
        return primal if tangent.aval.dtype == dtypes.float0 else JVPTracer(trace, primal, tangent)

    pairs = trace.run(_dropping_tangents(function), map(paired, primals), trace.unpair)
    program, nonzero = finish_linear(linear, [t for _, t in pairs])
    return [p for p, _ in pairs], program, nonzero, function.aux


def _dropping_tangents(function: FlatFunction) -> Callable:
    """The function, whose auxiliary values are not differentiated."""
    if not function.has_aux:
        return function

    def run(*inputs: Any) -> list:
        out, trace = function(*inputs), state.trace
        is_own = lambda x: type(x) is JVPTracer and x._trace is trace
        function.aux = tree_map(lambda x: x.primal if is_own(x) else x, function.aux)
        return out

    return run


def _linearized(fun: Callable, primals: tuple, has_aux: bool, apply: Callable) -> tuple:
    """The result of a function, its linear program as a function that `apply` runs, and `aux` where there is one."""
    flat, tree = tree_flatten(primals)
    function = FlatFunction(fun, tree, has_aux=has_aux)
    out, program, nonzero, aux = _linearize(function, flat, function_name(fun))
    held = LinearMap(program, tree, function.out_tree, nonzero, flat, out)
    result = tree_unflatten(function.out_tree, out), Partial(functools.partial(apply, held), list(program.consts))
    return (*result, aux) if has_aux else result


def jvp(fun: Callable, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> tuple:
    """The value of a function and its derivative along a direction (forward mode).

    Args:
      fun: a function of arrays or pytrees of them.
      primals: the arguments, a tuple or list.
      tangents: the direction, of the same structure, shapes and tangent dtypes.
      has_aux: whether `fun` returns `(result, aux)`.

    Returns:
      `(result, tangent)`, with `aux` third if `has_aux`.

    Raises:
      ArgumentTypeError: `primals` or `tangents` is no tuple or list.
      TreeError: their structures differ.
      ShapeError, DTypeError: a tangent has not the shape or dtype of its primal.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> y, y_dot = phalanx.jvp(lambda x: x**2, (3.0,), (1.0,))
      >>> float(y), float(y_dot)
      (9.0, 6.0)
    """
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise ArgumentTypeError(
                f"jvp, argument {what}",
                expected="a tuple or list of arguments",
                got=f"a {type(given).__name__}",
                mend=f"wrap it: ({what[:-1]},)",
            )
    flat, tree = tree_flatten(tuple(primals))
    spaces, mend = [aval_of(p).to_tangent() for p in flat], "give one tangent for each primal leaf"
    flat_dot = _vectors(tuple(tangents), tree, spaces, "jvp, tangents", "primals", mend)
    function = FlatFunction(fun, tree, has_aux=has_aux)
    out, out_dot = jvp_flat(_dropping_tangents(function), flat, flat_dot, function_name(fun))
    dots = _tangents_out(out_dot, [aval_of(y) for y in out])
    result = tree_unflatten(function.out_tree, out), tree_unflatten(function.out_tree, dots)
    return (*result, function.aux) if has_aux else result


def _vectors(given: Any, tree: Any, spaces: Sequence[ShapedArray], where: str, like: str, mend: str) -> list:
    """The leaves of tangents or cotangents, refused unless they have this structure and are of these spaces.

    Args:
      given: what the user gave.
      tree, spaces: the structure, and the type of each leaf.
      where, like, mend: what the user calls it, what has that structure, and what to do, for messages.
    """
    flat, found = tree_flatten(given)
    if found != tree:
        raise TreeError(where, expected=f"the structure of {like}, {tree}", got=str(found), mend=mend)
    for i, (space, x) in enumerate(zip(spaces, flat, strict=True)):
        _check_type(space, x, lambda i=i: f"{where}{leaf_path(given, i)}")
    return [_as_tangent(x, a) for a, x in zip(spaces, flat, strict=True)]


def _as_tangent(x: Any, want: ShapedArray) -> Any:
    """A tangent or cotangent as the rules want it: Python scalars become NumPy ones of the right dtype."""
    if isinstance(x, np.ndarray | Array | Tracer) and x.dtype == dtypes.float0:
        return Zero(want)
    if isinstance(x, int | float | complex) and want.dtype != dtypes.float0:
        return np.asarray(x, want.dtype)[()]
    if getattr(x, "weak_type", False) and x.dtype != want.dtype:
        return vector_space.convert(x, want.dtype)
    return x


def _tangent_out(t: Any, primal: ShapedArray) -> Any:
    """A tangent as users see it: an array, weakly typed where its primal is; `float0` zeros for integers."""
    want = primal.to_tangent()
    if want.dtype == dtypes.float0:
        return np.zeros(want.shape, want.dtype)
    t = instantiate(t)
    if isinstance(t, Array | Tracer) and t.weak_type == primal.weak_type:
        return t
    return vector_space.as_type(t, want.dtype, primal.weak_type)


def _tangents_out(ts: Sequence[Any], primals: Sequence[ShapedArray]) -> list:
    return [_tangent_out(t, a) for t, a in zip(ts, primals, strict=True)]


def _check_type(want: ShapedArray, given: Any, where: Callable[[], str]) -> None:
    """Refuse a tangent or cotangent that has not the type of its space; weak types are converted later."""
    got = aval_of(given)
    if got.shape == want.shape and (got.dtype == want.dtype or (got.weak_type and want.dtype != dtypes.float0)):
        return
    float0 = " (float0 zeros for integers)" if want.dtype == dtypes.float0 else ""
    raise (DTypeError if got.shape == want.shape else ShapeError)(
        where(),
        expected=f"a value of type {want.str_short()}",
        got=got.str_short(),
        mend=f"give values of the shapes and dtypes of the primals{float0}",
    )


def linearize(fun: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """The value of a function and its derivative at that point, as a linear function to be used many times.

    Args:
      fun: a function of arrays or pytrees of them.
      primals: the arguments.
      has_aux: whether `fun` returns `(result, aux)`.

    Returns:
      `(result, f_jvp)`, with `aux` third if `has_aux`; `f_jvp(*tangents)` gives the tangent of the result without
      computing `fun` again.

    Examples:
      >>> import phalanx
      >>> y, f_jvp = phalanx.linearize(lambda x: x * x, 3.0)
      >>> float(f_jvp(1.0))
      6.0
    """
    return _linearized(fun, primals, has_aux, _apply_linear)


def _apply_linear(held: LinearMap, consts: Sequence[Any], *tangents: Any) -> Any:
    spaces, mend = [a.to_tangent() for a in held.in_avals], "give one tangent for each argument that was linearised"
    flat = _vectors(tangents, held.in_tree, spaces, "the linear function's arguments", "the primals", mend)
    inputs = list(map(instantiate, flat))
    zeros = [Zero(a.to_tangent()) for a in others(held.out_avals, held.nonzero)]
    out = merged(held.nonzero, run_program(held.program.replace(consts=list(consts)), *inputs), zeros)
    return tree_unflatten(held.out_tree, _tangents_out(out, held.out_avals))


def vjp(fun: Callable, *primals: Any, has_aux: bool = False, reduce_axes: Any = ()) -> tuple:
    """The value of a function and its derivative transposed (reverse mode).

    Args:
      fun: a function of arrays or pytrees of them.
      primals: the arguments.
      has_aux: whether `fun` returns `(result, aux)`.
      reduce_axes: taken for compatibility.

    Returns:
      `(result, f_vjp)`, with `aux` third if `has_aux`; `f_vjp(cotangent)` gives a tuple with a cotangent for each
      argument.

    Raises:
      TreeError: the cotangent has not the structure of the result.
      ShapeError, DTypeError: a cotangent has not the shape or dtype of its result.

    Examples:
      >>> import phalanx
      >>> y, f_vjp = phalanx.vjp(lambda a, b: a * b, 2.0, 3.0)
      >>> [float(x) for x in f_vjp(1.0)]
      [3.0, 2.0]
    """
    return _linearized(fun, primals, has_aux, _apply_vjp)


def _apply_vjp(held: LinearMap, consts: Sequence[Any], *cotangents: Any) -> tuple:
    if len(cotangents) != 1:
        raise ArgumentTypeError(
            "the vjp function",
            expected="one argument, of the structure of the result",
            got=f"{len(cotangents)} arguments",
            mend="put the cotangents of several results into one tuple",
        )
    spaces = [a.to_tangent() for a in held.out_avals]
    cts = _checked_cotangents(held, cotangents[0], spaces, "the vjp function's argument")
    bars = transpose_flat(held.program, consts, chosen(cts, held.nonzero))
    return tree_unflatten(held.in_tree, _tangents_out(bars, held.in_avals))


def _checked_cotangents(held: LinearMap, cotangent: Any, spaces: Sequence[ShapedArray], what: str) -> list:
    """The leaves of a cotangent that has the structure of the result and leaves of the given types."""
    return _vectors(
        cotangent, held.out_tree, spaces, what, "the result", "give one cotangent for each leaf of the result"
    )


def value_and_grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
) -> Callable:
    """A function that gives both the value and the gradient of a scalar function.

    Args:
      fun: a function whose result is a scalar (with `has_aux`, a pair of that and anything).
      argnums: the argument, or arguments, to differentiate with respect to.
      has_aux: whether `fun` returns `(result, aux)`.
      holomorphic: whether `fun` is a holomorphic function of complex arguments.
      allow_int: whether arguments may be integers, with `float0` gradients.
      reduce_axes: taken for compatibility.

    Returns:
      A function of the same arguments that returns `(value, gradient)`; the value is `(result, aux)` if `has_aux`, the
      gradient a tuple if `argnums` is a sequence.

    Raises:
      DTypeError: an argument or the result has a dtype that cannot be differentiated as asked.
      ShapeError: the result is not a scalar.

    Examples:
      >>> import phalanx
      >>> value, gradient = phalanx.value_and_grad(lambda x: x**3)(2.0)
      >>> float(value), float(gradient)
      (8.0, 12.0)
    """
    check_function("grad or value_and_grad, argument fun", fun)

    @boundary
    @functools.wraps(fun)
    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple:
        wanted, rest = choose(args, argnums)
        flat, tree = tree_flatten(wanted)
        _check_inputs("grad", wanted, flat, holomorphic, allow_int)
        function = FlatFunction(lambda *c: fun(*rest(c), **kwargs), tree, has_aux=has_aux, written=fun)
        out, program, nonzero, aux = _linearize(function, flat, function_name(fun))
        _check_grad_output(fun, out, function.out_tree, holomorphic)
        cts = [np.ones((), aval_of(out[0]).dtype)[()]] if nonzero[0] else []
        bars = _tangents_out(transpose_flat(program, program.consts, cts), [aval_of(x) for x in flat])
        grads = tree_unflatten(tree, bars)
        gradient = tuple(grads) if is_sequence(argnums) else grads[0]
        return ((out[0], aux) if has_aux else out[0]), gradient

    return value_and_gradient


def grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
) -> Callable:
    """A function that gives the gradient of a scalar function.

    Called at once, the function knows its values: Python may decide by them (`if x > 0`, `int(x)`, an index), show
    them and take them (`x.item()`). A Python number to compute with, such as `float(x)` or `math.sin(x)`, would lose
    the derivative, and is an error; `lax.stop_gradient(x)` has one.

    Args:
      fun, argnums, has_aux, holomorphic, allow_int: as in `value_and_grad`.

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

    @boundary
    @functools.wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return gradient


def choose(args: tuple, argnums: int | Sequence[int]) -> tuple[tuple, Callable]:
    """The arguments to differentiate, and how to put new values of them among the others."""
    mend = "pass the differentiated arguments by position, or change argnums"
    wanted = places("argnums", positions("argnums", argnums), len(args), argnums, mend)

    def fill(chosen: Sequence[Any]) -> list:
        full = list(args)
        for n, x in zip(wanted, chosen, strict=True):
            full[n] = x
        return full

    return tuple(args[n] for n in wanted), fill


def _check_inputs(
    name: str, args: tuple, flat: Sequence[Any], holomorphic: bool, allow_int: bool = False, is_forward: bool = False
) -> None:
    """Refuse arguments, whose leaves are `flat`, of dtypes that cannot be differentiated as asked."""
    for i, x in enumerate(flat):
        where = lambda i=i: f"{name}, argument{leaf_path(args, i)}"
        aval = aval_at(x, where)
        if holomorphic:
            _check_kind(aval, np.complexfloating, where, "convert the argument to complex64, or drop holomorphic")
            continue
        if not allow_int:
            ways = "choose others by argnums" if is_forward else "choose others by argnums, or pass allow_int=True"
            _check_kind(aval, np.inexact, where, f"convert the argument to float32, {'or ' * is_forward}{ways}")
        if is_forward:
            _refuse_complex(aval, where, "direction", "use jvp or jacrev")


def _refuse_complex(aval: ShapedArray, where: Callable[[], str], each: str, instead: str) -> None:
    if dtypes.issubdtype(aval.dtype, np.complexfloating):
        raise DTypeError(
            where(),
            expected=f"a real dtype, since a {each} for each element tells half of a complex derivative",
            got=aval.str_short(),
            mend=f"pass holomorphic=True if the function is holomorphic, else {instead}",
        )


def _check_grad_output(fun: Callable, out: list, tree: Any, holomorphic: bool) -> None:
    where = f"grad, the result of {code_position(fun)}"
    if len(out) != 1 or tree.num_nodes != 1:
        raise ArgumentTypeError(
            where,
            expected="one scalar",
            got=f"a tree of {len(out)} leaves, {tree}",
            mend="return a scalar; with has_aux=True further values may come second",
        )
    aval = aval_of(out[0])
    if aval.shape != ():
        raise ShapeError(
            where,
            expected="a scalar",
            got=aval.str_short(),
            mend="reduce it with .sum() or .mean(), or use jacrev, jacfwd or vjp for array results",
        )
    if holomorphic:
        _check_kind(aval, np.complexfloating, lambda: where, "drop holomorphic, or return a complex value")
    else:
        mend = "return a real value (for complex functions use holomorphic=True, vjp or jvp)"
        _check_kind(aval, np.floating, lambda: where, mend)


_KINDS = {
    np.complexfloating: "a complex dtype, since holomorphic=True",
    np.floating: "a real floating-point dtype",
    np.inexact: "a real or complex floating-point dtype",
}


def _check_kind(aval: ShapedArray, kind: Any, where: Callable[[], str], mend: str) -> None:
    # Where it is, is worked out for the message only: the path of each of many leaves would cost their square.
    if dtypes.is_extended(aval.dtype) or not dtypes.issubdtype(aval.dtype, kind):
        raise DTypeError(where(), expected=_KINDS[kind], got=aval.str_short(), mend=mend)


def jacfwd(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable:
    """The Jacobian of a function, a column for each input element (forward mode).

    Args:
      fun: a function of arrays to arrays (or pytrees).
      argnums, has_aux, holomorphic: as in `grad`.

    Returns:
      A function that gives, for each leaf of the result and each leaf of the arguments, an array of shape
      `(*result.shape, *argument.shape)`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.jacfwd(lambda x: x**2)(jnp.arange(2.0)).tolist()
      [[0.0, 0.0], [0.0, 2.0]]
    """
    check_function("jacfwd, argument fun", fun)

    @boundary
    @functools.wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        wanted, fill = choose(args, argnums)
        flat, tree = tree_flatten(wanted)
        _check_inputs("jacfwd", wanted, flat, holomorphic, is_forward=True)
        result, push, *aux = linearize(
            functools.wraps(fun)(lambda *c: fun(*fill(c), **kwargs)), *wanted, has_aux=has_aux
        )
        columns = _map_basis(lambda *t: push(*tree_unflatten(tree, t)), flat, -1)

        def split(column: Any) -> Any:
            whole = tree_unflatten(tree, _pieces(column, flat, -1))
            return tuple(whole) if is_sequence(argnums) else whole[0]

        jac = tree_map(split, columns)
        return (jac, *aux) if has_aux else jac

    return jacobian


def jacrev(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable:
    """The Jacobian of a function, a row for each result element (reverse mode).

    Args:
      fun: a function of arrays to arrays (or pytrees).
      argnums, has_aux, holomorphic, allow_int: as in `grad`.

    Returns:
      A function that gives, for each leaf of the result and each leaf of the arguments, an array of shape
      `(*result.shape, *argument.shape)`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.jacrev(lambda x: x**2)(jnp.arange(2.0)).tolist()
      [[0.0, 0.0], [0.0, 2.0]]
    """
    check_function("jacrev, argument fun", fun)

    @boundary
    @functools.wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        wanted, fill = choose(args, argnums)
        _check_inputs("jacrev", wanted, tree_leaves(wanted), holomorphic, allow_int)
        result, pull, *aux = vjp(functools.wraps(fun)(lambda *c: fun(*fill(c), **kwargs)), *wanted, has_aux=has_aux)
        flat, tree = tree_flatten(result)
        for i, y in enumerate(flat):
            where = lambda i=i: f"jacrev, the result{leaf_path(result, i)}"
            if holomorphic:
                _check_kind(aval_of(y), np.complexfloating, where, "drop holomorphic, or return a complex value")
            else:
                _refuse_complex(aval_of(y), where, "row", "use vjp, or return y.real and y.imag")
        rows = _map_basis(lambda *c: pull(tree_unflatten(tree, c)), flat, 0)
        leaves, order = tree_flatten(rows if is_sequence(argnums) else rows[0])
        # From the pieces of each argument's leaf to a tree of arguments for each leaf of the result.
        jac = [tree_unflatten(order, row) for row in zip(*(_pieces(r, flat, 0) for r in leaves), strict=True)]
        jac = tree_unflatten(tree, jac if leaves else [tree_unflatten(order, [])] * len(flat))
        return (jac, *aux) if has_aux else jac

    return jacobian


def hessian(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable:
    """The Hessian of a scalar function: forward over reverse mode.

    Args:
      fun, argnums, has_aux, holomorphic: as in `grad`.

    Returns:
      A function that gives the matrix of second derivatives, as a tree of trees for pytree arguments.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.hessian(lambda x: (x**3).sum())(jnp.ones(2)).tolist()
      [[6.0, 0.0], [0.0, 6.0]]
    """
    inner = jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic)
    return jacfwd(inner, argnums, has_aux=has_aux, holomorphic=holomorphic)


def _map_basis(fun: Callable, leaves: Sequence[Any], out_dim: int) -> Any:
    """Map a function of arrays like these over the standard basis; the mapped dimension of results is at `out_dim`."""
    basis = _basis(leaves)
    function = FlatFunction(fun, tree_flatten(tuple(basis))[1])
    size = basis[0].shape[0] if basis else 0
    out, dims = batching.vmap_flat(function, basis, [0] * len(basis), batching.Axis(size), "jacobian")
    moved = [batching.to_dim(x, d, size, out_dim % (np.ndim(x) + (d is None))) for x, d in zip(out, dims, strict=True)]
    return tree_unflatten(function.out_tree, [_tangent_out(x, aval_of(x)) for x in moved])


def _basis(leaves: Sequence[Any]) -> list:
    """The standard basis of a list of arrays, stacked: for each leaf an array [total, *leaf.shape]."""
    avals = [aval_of(x) for x in leaves]
    total = sum(a.size for a in avals)
    basis, start = [], 0
    for aval in avals:
        size = aval.size
        dtype = dtypes.to_inexact_dtype(aval.dtype)
        if is_constant_shape((total, size)):
            block = np.zeros((total, size), dtype)
            block[np.arange(start, start + size), np.arange(size)] = 1
            basis.append(block.reshape((total, *aval.shape)))
        else:
            basis.append(vector_space.unit_vectors(total, start, aval.shape, dtype))
        start += size
    return basis


def _pieces(x: Any, leaves: Sequence[Any], dim: int) -> list:
    """An array cut along its first (0) or last (-1) dimension, which becomes the dimensions of each leaf."""
    pieces, start = [], 0
    for aval in map(aval_of, leaves):
        part = slice(start, start + aval.size)
        if dim == 0:
            pieces.append(x[part].reshape((*aval.shape, *x.shape[1:])))
        else:
            pieces.append(x[..., part].reshape((*x.shape[:-1], *aval.shape)))
        start += aval.size
    return pieces


def linear_transpose(fun: Callable, *primals: Any, reduce_axes: Any = ()) -> Callable:
    """The transpose of a function that is linear in its arguments, never evaluating it.

    Args:
      fun: a linear function.
      primals: arguments of the right types; their values are not used, so `ShapeDtypeStruct`s do.
      reduce_axes: taken for compatibility.

    Returns:
      A function from a cotangent of the result to a tuple of cotangents of the arguments.

    Examples:
      >>> import phalanx
      >>> [float(x) for x in phalanx.linear_transpose(lambda x: 3 * x, 1.0)(2.0)]
      [6.0]
    """
    flat, tree = tree_flatten(primals)
    function = FlatFunction(fun, tree)
    program = stage(function, [aval_of(x) for x in flat], function_name(fun))
    held = LinearMap(program, tree, function.out_tree, [], flat, program.outvars)
    return Partial(functools.partial(_apply_transpose, held), list(program.consts))


def _apply_transpose(held: LinearMap, consts: Sequence[Any], cotangent: Any) -> tuple:
    cts = _checked_cotangents(held, cotangent, held.out_avals, "the transposed function's argument")
    arrays = []
    for x, a in zip(transpose_flat(held.program, consts, cts), held.in_avals, strict=True):
        value = np.zeros(a.shape, a.dtype) if type(x) is Zero else x
        arrays.append(vector_space.as_type(value, a.dtype, a.weak_type))
    return tree_unflatten(held.in_tree, arrays)
