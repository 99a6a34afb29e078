"""Derivatives as users ask for them: `jvp`, `vjp`, `grad`, `linearize`, `jacfwd`, `jacrev`, `hessian` and kin.

Each flattens its arguments, checks them, and calls `forward` and `linear`; nothing here knows an operation. The reverse
mode is linearisation followed by a transposition of the linear program.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.array import Array
from phalanx.core.aval import ShapedArray, aval_at, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TreeError
from phalanx.core.jaxpr import run_program
from phalanx.core.source import code_position
from phalanx.core.tangent import Zero, instantiate, vector_space
from phalanx.core.trace import Tracer, check_outputs, stage
from phalanx.engine.frames import boundary
from phalanx.transforms import batching
from phalanx.transforms.forward import JVPTrace, JVPTracer, jvp_flat
from phalanx.transforms.linear import LinearTrace, finish_linear, transpose_flat
from phalanx.tree import Partial, keystr, tree_flatten, tree_flatten_with_path, tree_map, tree_unflatten


class FlatFunction:
    """A function of a pytree of arguments, as one of flat arguments and flat results.

    Args:
      fun: the function.
      in_tree: the structure of `args`.
      kwargs: keyword arguments passed as they are.
      has_aux: whether it returns a pair of results and other values.
    """

    __slots__ = ("aux", "fun", "has_aux", "in_tree", "kwargs", "out_tree")

    def __init__(self, fun: Callable, in_tree: Any, kwargs: dict | None = None, has_aux: bool = False):
        self.fun = fun
        self.in_tree = in_tree
        self.kwargs = kwargs or {}
        self.has_aux = has_aux
        self.out_tree: Any = None
        self.aux: Any = None

    def __call__(self, *leaves: Any) -> list:
        out = self.fun(*tree_unflatten(self.in_tree, leaves), **self.kwargs)
        if self.has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise ArgumentTypeError(
                    f"the result of {code_position(self.fun)}",
                    expected="a pair (result, aux), since has_aux=True",
                    got=f"{type(out).__name__}",
                    mend="return (result, aux), or drop has_aux",
                )
            out, self.aux = out
        flat, self.out_tree = tree_flatten(out)
        check_outputs(flat, lambda i: keystr(tree_flatten_with_path(out)[0][i][0]))
        return flat


def _linearize(fun: Callable, primals: Sequence[Any], name: str, aux: Callable[[], Any] | None = None) -> tuple:
    """Run a flat function, recording the linear program of its tangents."""
    linear = LinearTrace(state.trace, name)
    trace = JVPTrace(linear, name)
    inputs = []
    for p in primals:
        aval = aval_of(p).to_tangent()
        tangent = linear.new_input(aval)
        inputs.append(p if aval.dtype == dtypes.float0 else JVPTracer(trace, p, tangent))
    before = state.trace
    state.trace = trace
    try:
        outputs = fun(*inputs)
        pairs = [trace.unpair(x) for x in outputs]
    finally:
        state.trace = before
        trace.alive = False
    kept = _strip_aux(trace, aux)
    program, nonzero = finish_linear(linear, [t for _, t in pairs])
    return [p for p, _ in pairs], program, nonzero, kept


def _strip_aux(trace: JVPTrace, aux: Callable[[], Any] | None) -> Any:
    """The auxiliary values with their tangents dropped."""
    if aux is None:
        return None
    return tree_map(lambda x: x.primal if type(x) is JVPTracer and x._trace is trace else x, aux())


def _name(fun: Callable) -> str:
    return getattr(fun, "__name__", None) or type(fun).__name__


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
    flat_dot, dot_tree = tree_flatten(tuple(tangents))
    if tree != dot_tree:
        raise TreeError(
            "jvp, argument tangents",
            expected=f"the structure of primals, {tree}",
            got=str(dot_tree),
            mend="give one tangent for each primal leaf",
        )
    spaces = [aval_of(p).to_tangent() for p in flat]
    for i, (space, t) in enumerate(zip(spaces, flat_dot, strict=True)):
        _check_type(space, t, lambda i=i: f"jvp, tangents{_path(tuple(primals), i)}")
    flat_dot = [Zero(a) if _is_float0(t) else _as_tangent(t, a) for a, t in zip(spaces, flat_dot, strict=True)]
    function = FlatFunction(fun, tree, has_aux=has_aux)
    aux: list = []

    def run(*xs: Any) -> list:
        out = function(*xs)
        leaves, aux_tree = tree_flatten(function.aux)
        aux.append(aux_tree)
        return [*out, *leaves]

    out, out_dot = jvp_flat(run if has_aux else function, flat, flat_dot, _name(fun))
    count = function.out_tree.num_leaves
    result = (
        tree_unflatten(function.out_tree, out[:count]),
        tree_unflatten(function.out_tree, _tangents_out(out_dot[:count], [aval_of(y) for y in out[:count]])),
    )
    return (*result, tree_unflatten(aux[0], out[count:])) if has_aux else result


def _as_tangent(x: Any, want: ShapedArray) -> Any:
    """A tangent or cotangent as the rules want it: Python scalars become NumPy ones of the right dtype."""
    if isinstance(x, int | float | complex) and want.dtype != dtypes.float0:
        return np.asarray(x, want.dtype)[()]
    if getattr(x, "weak_type", False) and x.dtype != want.dtype:
        return vector_space.convert(x, want.dtype)
    return x


def _path(tree: Any, i: int) -> str:
    return keystr(tree_flatten_with_path(tree)[0][i][0])


def _is_float0(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == dtypes.float0


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
    flat, tree = tree_flatten(primals)
    function = FlatFunction(fun, tree, has_aux=has_aux)
    out, program, nonzero, aux = _linearize(function, flat, _name(fun), (lambda: function.aux) if has_aux else None)
    apply = functools.partial(
        _apply_linear,
        _Held(
            program.replace(consts=()),
            tree,
            function.out_tree,
            nonzero,
            [aval_of(p) for p in flat],
            [aval_of(x) for x in out],
        ),
    )
    result = tree_unflatten(function.out_tree, out), Partial(apply, list(program.consts))
    return (*result, aux) if has_aux else result


class _Held:
    """A linear program with the trees around it; compared by identity so that it can sit in a pytree's structure."""

    __slots__ = ("in_avals", "in_tree", "nonzero", "out_avals", "out_tree", "program")

    def __init__(self, program: Any, in_tree: Any, out_tree: Any, nonzero: list, in_avals: list, out_avals: list):
        self.program, self.in_tree, self.out_tree = program, in_tree, out_tree
        self.nonzero, self.in_avals, self.out_avals = nonzero, in_avals, out_avals


def _apply_linear(held: _Held, consts: Sequence[Any], *tangents: Any) -> Any:
    flat, tree = tree_flatten(tangents)
    if tree != held.in_tree:
        raise TreeError(
            "the linear function's arguments",
            expected=f"the structure of the primals, {held.in_tree}",
            got=str(tree),
            mend="give one tangent for each argument that was linearised",
        )
    spaces = [a.to_tangent() for a in held.in_avals]
    for i, (space, t) in enumerate(zip(spaces, flat, strict=True)):
        _check_type(space, t, lambda i=i: f"the linear function's arguments{_path(tangents, i)}")
    inputs = [instantiate(Zero(a)) if _is_float0(t) else _as_tangent(t, a) for a, t in zip(spaces, flat, strict=True)]
    computed = iter(run_program(held.program.replace(consts=list(consts)), *inputs))
    out = [next(computed) if nz else Zero(a.to_tangent()) for nz, a in zip(held.nonzero, held.out_avals, strict=True)]
    return tree_unflatten(held.out_tree, _tangents_out(out, held.out_avals))


def vjp(fun: Callable, *primals: Any, has_aux: bool = False, reduce_axes: Any = ()) -> tuple:
    """The value of a function and its derivative transposed (reverse mode).

    Args:
      fun: a function of arrays or pytrees of them.
      primals: the arguments.
      has_aux: whether `fun` returns `(result, aux)`.

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
    flat, tree = tree_flatten(primals)
    function = FlatFunction(fun, tree, has_aux=has_aux)
    out, program, nonzero, aux = _linearize(function, flat, _name(fun), (lambda: function.aux) if has_aux else None)
    held = _Held(
        program.replace(consts=()),
        tree,
        function.out_tree,
        nonzero,
        [aval_of(p) for p in flat],
        [aval_of(x) for x in out],
    )
    result = tree_unflatten(function.out_tree, out), Partial(functools.partial(_apply_vjp, held), list(program.consts))
    return (*result, aux) if has_aux else result


def _apply_vjp(held: _Held, consts: Sequence[Any], *cotangents: Any) -> tuple:
    if len(cotangents) != 1:
        raise ArgumentTypeError(
            "the vjp function",
            expected="one argument, of the structure of the result",
            got=f"{len(cotangents)} arguments",
            mend="put the cotangents of several results into one tuple",
        )
    (cotangent,) = cotangents
    cts = _checked_cotangents(held, cotangent, [a.to_tangent() for a in held.out_avals], "the vjp function's argument")
    cts = [c for c, nz in zip(cts, held.nonzero, strict=True) if nz]
    return tree_unflatten(held.in_tree, _tangents_out(transpose_flat(held.program, consts, cts), held.in_avals))


def _checked_cotangents(held: _Held, cotangent: Any, spaces: Sequence[ShapedArray], what: str) -> list:
    """The leaves of a cotangent that has the structure of the result and leaves of the given types."""
    flat, tree = tree_flatten(cotangent)
    if tree != held.out_tree:
        raise TreeError(
            what,
            expected=f"the structure of the result, {held.out_tree}",
            got=str(tree),
            mend="give one cotangent for each leaf of the result",
        )
    for i, (space, c) in enumerate(zip(spaces, flat, strict=True)):
        _check_type(space, c, lambda i=i: f"{what}{_path(cotangent, i)}")
    return [_as_tangent(c, a) for c, a in zip(flat, spaces, strict=True)]


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

    Returns:
      A function of the same arguments that returns `(value, gradient)`; the value is `(result, aux)` if `has_aux`, the
      gradient a tuple if `argnums` is a sequence.

    Raises:
      DTypeError: an argument or the result has a dtype that cannot be differentiated as asked.
      ArgumentError: the result is not a scalar.

    Examples:
      >>> import phalanx
      >>> value, gradient = phalanx.value_and_grad(lambda x: x**3)(2.0)
      >>> float(value), float(gradient)
      (8.0, 12.0)
    """
    _check_callable(fun, "value_and_grad")

    @boundary
    @functools.wraps(fun)
    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple:
        chosen, rest = _choose(fun, args, argnums)
        flat, tree = tree_flatten(chosen)
        for i, x in enumerate(flat):
            _check_grad_input(x, holomorphic, allow_int, lambda i=i: f"grad, argument{_path(chosen, i)}")
        function = FlatFunction(lambda *c: fun(*rest(c), **kwargs), tree, has_aux=has_aux)
        out, program, nonzero, aux = _linearize(function, flat, _name(fun), (lambda: function.aux) if has_aux else None)
        _check_grad_output(fun, out, function.out_tree, holomorphic)
        aval = aval_of(out[0])
        seed = np.ones((), aval.dtype)[()]
        cts = [seed] if nonzero[0] else []
        bars = _tangents_out(transpose_flat(program, program.consts, cts), [aval_of(x) for x in flat])
        grads = tree_unflatten(tree, bars)
        gradient = tuple(grads) if _is_sequence(argnums) else grads[0]
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

    Args:
      fun, argnums, has_aux, holomorphic, allow_int: as in `value_and_grad`.

    Returns:
      A function of the same arguments that returns the gradient, or `(gradient, aux)` if `has_aux`.

    Raises:
      DTypeError, ArgumentError: as `value_and_grad`.

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


def _check_callable(fun: Any, what: str) -> None:
    if not callable(fun):
        raise ArgumentTypeError(
            f"{what}, argument fun",
            expected="a function",
            got=f"{fun!r} of type {type(fun).__name__}",
            mend="pass the function itself",
        )


def _is_sequence(argnums: Any) -> bool:
    return hasattr(argnums, "__iter__")


def _choose(fun: Callable, args: tuple, argnums: int | Sequence[int]) -> tuple[tuple, Callable]:
    """The arguments to differentiate, and how to put new values of them among the others."""
    given: Any = argnums if _is_sequence(argnums) else (argnums,)
    wanted = tuple(operator.index(n) for n in given)
    count = len(args)
    for n in wanted:
        if not -count <= n < count:
            raise ArgumentError(
                "argnums",
                expected=f"positions below {count}, the number of positional arguments",
                got=repr(argnums),
                mend="pass the differentiated arguments by position, or change argnums",
            )
    places = [n % count for n in wanted]

    def fill(chosen: Sequence[Any]) -> list:
        full = list(args)
        for n, x in zip(places, chosen, strict=True):
            full[n] = x
        return full

    return tuple(args[n] for n in places), fill


def _check_grad_input(x: Any, holomorphic: bool, allow_int: bool, where: Callable[[], str]) -> None:
    aval = aval_at(x, where)
    if holomorphic:
        if not dtypes.issubdtype(aval.dtype, np.complexfloating):
            raise DTypeError(
                where(),
                expected="a complex dtype, since holomorphic=True",
                got=aval.str_short(),
                mend="convert the argument to complex64, or drop holomorphic",
            )
        return
    if (
        dtypes.issubdtype(aval.dtype, dtypes.extended)
        or dtypes.issubdtype(aval.dtype, np.integer)
        or aval.dtype == np.bool_
    ):
        if not allow_int:
            raise DTypeError(
                where(),
                expected="a real or complex floating-point dtype",
                got=aval.str_short(),
                mend="convert the argument to float32, choose others by argnums, or pass allow_int=True",
            )


def _check_forward_input(x: Any, holomorphic: bool, where: Callable[[], str]) -> None:
    _check_grad_input(x, holomorphic, False, where)
    if not holomorphic and dtypes.issubdtype(aval_of(x).dtype, np.complexfloating):
        raise DTypeError(
            where(),
            expected="a real dtype, since a direction for each element tells half of a complex derivative",
            got=aval_of(x).str_short(),
            mend="pass holomorphic=True if the function is holomorphic, else use jvp or jacrev",
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
        raise _not_scalar(where, aval)
    if holomorphic:
        if not dtypes.issubdtype(aval.dtype, np.complexfloating):
            raise DTypeError(
                where,
                expected="a complex dtype, since holomorphic=True",
                got=aval.str_short(),
                mend="drop holomorphic, or return a complex value",
            )
    elif not dtypes.issubdtype(aval.dtype, np.floating):
        raise DTypeError(
            where,
            expected="a real floating-point dtype",
            got=aval.str_short(),
            mend="return a real value (for complex functions use holomorphic=True, vjp or jvp)",
        )


class _NotScalarError(ArgumentError, TypeError):
    """The result of a differentiated function is no scalar."""


def _not_scalar(where: str, aval: ShapedArray) -> ArgumentError:
    return _NotScalarError(
        where,
        expected="a scalar",
        got=aval.str_short(),
        mend="reduce it with .sum() or .mean(), or use jacrev, jacfwd or vjp for array results",
    )


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
    _check_callable(fun, "jacfwd")

    @boundary
    @functools.wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen, fill = _choose(fun, args, argnums)
        flat, tree = tree_flatten(chosen)
        for i, x in enumerate(flat):
            _check_forward_input(x, holomorphic, lambda i=i: f"jacfwd, argument{_path(chosen, i)}")
        result, push, *aux = linearize(lambda *c: fun(*fill(c), **kwargs), *chosen, has_aux=has_aux)
        columns = batching_vmap(lambda *t: push(*tree_unflatten(tree, t)), _basis(flat), -1)
        jac = tree_map(lambda y, c: _split_last(c, aval_of(y).shape, flat, tree, argnums), result, columns)
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
    _check_callable(fun, "jacrev")

    @boundary
    @functools.wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen, fill = _choose(fun, args, argnums)
        for i, x in enumerate(tree_flatten(chosen)[0]):
            _check_grad_input(x, holomorphic, allow_int, lambda i=i: f"jacrev, argument{_path(chosen, i)}")
        result, pull, *aux = vjp(lambda *c: fun(*fill(c), **kwargs), *chosen, has_aux=has_aux)
        flat, tree = tree_flatten(result)
        rows = batching_vmap(lambda *c: pull(tree_unflatten(tree, c)), _basis(flat), 0)
        rows = rows if _is_sequence(argnums) else rows[0]
        pieces = tree_map(lambda r: _split_first(r, flat), rows)
        order = tree_flatten(rows)[1]
        jac = [tree_unflatten(order, [p[i] for p in order.flatten_up_to(pieces)]) for i in range(len(flat))]
        jac = tree_unflatten(tree, jac)
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


def batching_vmap(fun: Callable, basis: list, out_dim: int) -> Any:
    """Map a function over a stacked basis, with the mapped dimension of each result at `out_dim`."""
    trees: list = []

    def flat_fun(*xs: Any) -> list:
        out, tree = tree_flatten(fun(*xs))
        trees.append(tree)
        return out

    size = basis[0].shape[0] if basis else 0
    out, dims = batching.vmap_flat(flat_fun, basis, [0] * len(basis), batching.Axis(size), "jacobian")
    moved = [batching.to_dim(x, d, size, out_dim % (np.ndim(x) + (d is None))) for x, d in zip(out, dims, strict=True)]
    return tree_unflatten(trees[0], [_tangent_out(x, aval_of(x)) for x in moved])


def _basis(leaves: Sequence[Any]) -> list:
    """The standard basis of a list of arrays, stacked: for each leaf an array [total, *leaf.shape]."""
    avals = [aval_of(x) for x in leaves]
    sizes = [a.size for a in avals]
    total = sum(sizes)
    basis, start = [], 0
    for aval, size in zip(avals, sizes, strict=True):
        block = np.zeros((total, size), dtypes.to_inexact_dtype(aval.dtype))
        block[np.arange(start, start + size), np.arange(size)] = 1
        basis.append(block.reshape((total, *aval.shape)))
        start += size
    return basis


def _split_last(columns: Any, shape: tuple, flat: Sequence[Any], tree: Any, argnums: Any) -> Any:
    pieces, start = [], 0
    for x in flat:
        aval = aval_of(x)
        pieces.append(columns[..., start : start + aval.size].reshape((*shape, *aval.shape)))
        start += aval.size
    whole = tree_unflatten(tree, pieces)
    return tuple(whole) if _is_sequence(argnums) else whole[0]


def _split_first(rows: Any, flat: Sequence[Any]) -> list:
    pieces, start = [], 0
    for y in flat:
        aval = aval_of(y)
        pieces.append(rows[start : start + aval.size].reshape((*aval.shape, *rows.shape[1:])))
        start += aval.size
    return pieces


def linear_transpose(fun: Callable, *primals: Any, reduce_axes: Any = ()) -> Callable:
    """The transpose of a function that is linear in its arguments, never evaluating it.

    Args:
      fun: a linear function.
      primals: arguments of the right types; their values are not used, so `ShapeDtypeStruct`s do.

    Returns:
      A function from a cotangent of the result to a tuple of cotangents of the arguments.

    Examples:
      >>> import phalanx
      >>> [float(x) for x in phalanx.linear_transpose(lambda x: 3 * x, 1.0)(2.0)]
      [6.0]
    """
    flat, tree = tree_flatten(primals)
    function = FlatFunction(fun, tree)
    program = stage(function, [aval_of(x) for x in flat], _name(fun))
    held = _Held(program.replace(consts=()), tree, function.out_tree, [], program.in_avals, program.out_avals)
    return Partial(functools.partial(_apply_transpose, held), list(program.consts))


def _apply_transpose(held: _Held, consts: Sequence[Any], cotangent: Any) -> tuple:
    cts = _checked_cotangents(held, cotangent, held.out_avals, "the transposed function's argument")
    x_bars = [
        np.zeros(a.shape, a.dtype) if type(x) is Zero else x
        for x, a in zip(transpose_flat(held.program, consts, cts), held.in_avals, strict=True)
    ]
    arrays = [vector_space.as_type(x, a.dtype, a.weak_type) for x, a in zip(x_bars, held.in_avals, strict=True)]
    return tree_unflatten(held.in_tree, arrays)


def fwd_and_bwd(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, jitted: bool = False) -> tuple:
    """The forward and backward halves of `vjp` as two functions.

    Args:
      fun: a function.
      argnums: the arguments whose cotangents are wanted.
      has_aux: whether `fun` returns `(result, aux)`.
      jitted: must be False; wrap the two functions in `jit` where wanted.

    Returns:
      `(forward, backward)`: `forward(*args)` gives `(result, residuals)`, `backward(residuals, cotangent)` the
      cotangents.
    """
    if jitted:
        raise ArgumentError("fwd_and_bwd, argument jitted", expected="False", got="True", mend="wrap the two in jit")

    def forward(*args: Any) -> tuple:
        chosen, fill = _choose(fun, args, argnums)
        return vjp(lambda *c: fun(*fill(c)), *chosen, has_aux=has_aux)

    def backward_half(residuals: Callable, cotangent: Any) -> Any:
        cts = residuals(cotangent)
        return cts if _is_sequence(argnums) else cts[0]

    return forward, backward_half
