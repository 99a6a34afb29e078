"""`jvp`, `vjp`, `linearize` and `linear_transpose`: derivatives of functions of pytrees.

Each function flattens and checks its arguments, and calls `jvp_trace`, `linear_trace` and `transpose_jaxpr`. Reverse
mode is linearization followed by transposition of the linear jaxpr.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentTypeError,
    DTypeError,
    Jaxpr,
    Ref,
    RefError,
    ShapedArray,
    ShapeError,
    Tracer,
    Zero,
    as_shape_struct,
    check_ref_aliases,
    dtypes,
    enter_transform,
    format_code_position,
    get_aval,
    instantiate,
    join_tangents,
    localize_refs,
    read_p,
    remove_dead_code,
    run_jaxpr,
    select_flagged,
    state,
    vector_space,
    write_p,
)
from phalanx.runtime.array import Array
from phalanx.transforms.backward_logs import check_logs
from phalanx.transforms.flat_function import FlatFunction, function_name, label_of, positional_parameters, trace_flat
from phalanx.transforms.jvp_trace import JVPTrace, JVPTracer, jvp_flat
from phalanx.transforms.linear_trace import LinearTrace, finish_linear
from phalanx.transforms.structure_checks import PathLabel, broadcast_flags, check_same_structure
from phalanx.transforms.transpose_jaxpr import add_transpose, transpose_flat
from phalanx.transforms.vjp_function import DidntWant, DontWant, GradRef, GradValue, VjpFunction
from phalanx.tree import Partial, PyTreeDef, tree_flatten, tree_map, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import ArrayLike, AxisName, PyTree


class LinearMap:
    """A linear jaxpr with the pytree structures around it.

    It is compared by identity, so that it can be static data of a pytree node (the `Partial` that users get).

    Args:
      jaxpr: tangents of the inputs -> tangents of the outputs that have one. Its constants are passed at each call.
      function: the name and line of the function that was linearized, for errors.
      in_tree, out_tree: the structures of the arguments and of the result.
      nonzero: for each output, whether it has a tangent.
      ins, outs: the primal arguments and results, or variables of their types.
    """

    __slots__ = ("function", "in_avals", "in_tree", "is_ref", "jaxpr", "nonzero", "out_avals", "out_tree")

    is_ref: list[bool]  # for each input, whether it is the initial value of a mutable array reference

    def __init__(
        self,
        jaxpr: Jaxpr,
        function: str,
        in_tree: PyTreeDef,
        out_tree: PyTreeDef,
        nonzero: Sequence[bool],
        ins: Sequence[Any],
        outs: Sequence[Any],
    ):
        self.jaxpr, self.function, self.nonzero = jaxpr.replace(consts=()), function, nonzero
        self.in_tree, self.out_tree = in_tree, out_tree
        self.in_avals, self.out_avals = [get_aval(x) for x in ins], [get_aval(x) for x in outs]


def linearize_flat(function: FlatFunction, primals: Sequence[Any], name: str) -> tuple:
    """Run a flat function and record the linear jaxpr of its tangents.

    Returns:
      The flat results, the linear jaxpr, which results have a tangent, and the auxiliary output.
    """
    out, jaxpr, nonzero = _record_tangents(_strip_aux_tangents(function), primals, name)
    return out, jaxpr, nonzero, function.aux


def _record_tangents(fun: Callable[..., list], primals: Sequence[Any], name: str) -> tuple[list, Jaxpr, list[bool]]:
    linear = LinearTrace(state.trace, name)
    trace = JVPTrace(linear, name)

    def add_tangent(primal: ArrayLike) -> Any:
        # Integers have a float0 tangent, which is always zero; they get an input of the linear jaxpr but no tracer.
        tangent = linear.new_input(get_aval(primal).to_tangent())
        return primal if tangent.aval.dtype == dtypes.float0 else JVPTracer(trace, primal, tangent)

    with enter_transform("jvp"):
        pairs = trace.run(fun, map(add_tangent, primals), trace.unpair)
    jaxpr, nonzero = finish_linear(linear, [t for _, t in pairs])
    return [p for p, _ in pairs], jaxpr, nonzero


def _strip_aux_tangents(function: FlatFunction) -> Callable[..., list]:
    """The function, with the tangents of its auxiliary output dropped: only the result is differentiated."""
    if not function.has_aux:
        return function

    def run(*inputs: Any) -> list:
        out, trace = function(*inputs), state.trace
        is_own = lambda x: type(x) is JVPTracer and x._trace is trace
        function.aux = tree_map(lambda x: x.primal if is_own(x) else x, function.aux)
        return out

    return run


def _linearize_at(
    fun: Callable, primals: tuple, has_aux: bool, derivative: Callable[[LinearMap, list, list], Any]
) -> tuple:
    """The result of `fun`, the function that `derivative` makes of its linear jaxpr, and the auxiliary output if any.

    That function is made from the flat primals and the residuals. It is a pytree whose leaves are the residuals, so
    that it can be returned from a `jit`.
    """
    flat, tree = tree_flatten(primals)
    function = FlatFunction(fun, tree, has_aux=has_aux)
    is_ref = [isinstance(x, Ref) for x in flat]
    if any(is_ref):
        name, path = function_name(fun), label_of(primals, {}, lambda: positional_parameters(fun))
        check_ref_aliases(f"differentiation of {name}", flat, (), path)
        out, jaxpr, nonzero, aux, flat = _linearize_with_refs(function, flat, is_ref, name)
    else:
        out, jaxpr, nonzero, aux = linearize_flat(function, flat, function_name(fun))
    linear = LinearMap(jaxpr, format_code_position(fun), tree, function.out_tree, nonzero, flat, out)
    linear.is_ref = is_ref
    result = tree_unflatten(function.out_tree, out), derivative(linear, flat, list(jaxpr.consts))
    return (*result, aux) if has_aux else result


def _linearize_with_refs(function: FlatFunction, primals: Sequence[Any], is_ref: Sequence[bool], name: str) -> tuple:
    """`linearize_flat` with respect to the initial values of references among the arguments, which it also returns.

    The function's writes are made in the references; the tangents of their final values are dropped.
    """
    call, values = localize_refs(_strip_aux_tangents(function), primals, is_ref)
    out, jaxpr, nonzero = _record_tangents(call, values, name)
    count = len(out) - sum(is_ref)
    for ref, value in zip(select_flagged(primals, is_ref), out[count:], strict=True):
        write_p(ref, value)
    kept = sum(nonzero[:count])
    jaxpr = remove_dead_code(jaxpr.replace(outvars=jaxpr.outvars[:kept]))
    return out[:count], jaxpr, nonzero[:count], function.aux, values


def jvp(fun: Callable, primals: Sequence[PyTree], tangents: Sequence[PyTree], has_aux: bool = False) -> tuple:
    """Jacobian-vector product: the value of a function and its directional derivative (forward mode).

    Args:
      fun: a function of arrays or pytrees of arrays.
      primals: the arguments, a tuple or list.
      tangents: the direction, with the structure and shapes of `primals` and the tangent dtypes.
      has_aux: whether `fun` returns `(result, aux)`.

    Returns:
      `(result, tangent)`, with `aux` third if `has_aux`.

    Raises:
      ArgumentTypeError: `primals` or `tangents` is not a tuple or list.
      TreeError: their structures differ.
      ShapeError, DTypeError: a tangent does not have the shape or the tangent dtype of its primal.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> y, y_dot = phalanx.jvp(lambda x: x**2, (3.0,), (1.0,))
      >>> float(y), float(y_dot)
      (9.0, 6.0)
    """
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise ArgumentTypeError(
                f"jvp of {format_code_position(fun)}, argument {name}",
                expected="a tuple or list with one entry for each argument of the function",
                got=f"a {type(given).__name__}",
                fix=f"wrap it in a tuple: ({name[:-1]},)",
            )
    flat, tree = tree_flatten(tuple(primals))
    flat_dot = check_vectors(
        tuple(tangents),
        tree,
        [get_aval(p).to_tangent() for p in flat],
        lambda path: f"jvp of {format_code_position(fun)}, tangents{path}",
        lambda path: f"primals{path}",
        "pass one tangent for each leaf of primals",
    )
    # Python numbers remain such where their dtype allows it, as those among the primals do.
    given = tree_flatten(tuple(tangents))[0]
    flat_dot = [
        x if type(x) in (float, complex) and get_aval(x) is get_aval(p) else t
        for p, t, x in zip(flat, flat_dot, given, strict=True)
    ]
    function = FlatFunction(fun, tree, has_aux=has_aux)
    with enter_transform("jvp"):
        out, out_dot = jvp_flat(_strip_aux_tangents(function), flat, flat_dot, function_name(fun))
    # A tangent that the function passes through is returned as the user gave it, such as a NumPy scalar.
    dots = [
        finalize_tangent(t, a) if type(t) is Zero or get_aval(t).dtype != a.to_tangent().dtype else t
        for t, a in zip(out_dot, map(get_aval, out), strict=True)
    ]
    result = tuple(tree_unflatten(function.out_tree, leaves) for leaves in (out, dots))
    return (*result, function.aux) if has_aux else result


def check_vectors(
    given: PyTree,
    tree: PyTreeDef,
    spaces: Sequence[ShapedArray],
    where: PathLabel,
    source: PathLabel,
    fix: str,
    *,
    ignores_integers: bool = False,
) -> list:
    """The leaves of tangents or cotangents, in the form that derivative rules expect.

    Args:
      given: the pytree that the user passed.
      tree, spaces: the structure that it must have, and the type of each leaf.
      where, source: name a place in `given`, and the same place in the value whose structure it must have.
      fix: the remedy for a wrong structure.
      ignores_integers: whether a vector that belongs to an integer may have any dtype, as `tree.map(ones_like, result)`
        makes it. It has no effect.

    Raises:
      TreeError: `given` has another structure.
      ShapeError, DTypeError: a leaf has another shape or dtype.
    """
    flat, found = tree_flatten(given)
    if found != tree:
        check_same_structure(where, tree, given, source, fix)
    for i, (space, x) in enumerate(zip(spaces, flat, strict=True)):
        if ignores_integers and space.dtype == dtypes.float0 and get_aval(x).shape == space.shape:
            continue
        _check_vector(space, x, lambda i=i: leaf_path(given, i), where, source)
    return [_as_vector(x, a) for a, x in zip(spaces, flat, strict=True)]


def _as_vector(x: Any, want: ShapedArray) -> Any:
    """A tangent or cotangent for a rule: Python scalars become NumPy scalars of the right dtype, `float0` a `Zero`."""
    # A value of an integer carries no numbers; rules expect the symbolic zero instead.
    if want.dtype == dtypes.float0:
        return Zero(want)
    if isinstance(x, int | float | complex):
        return np.asarray(x, want.dtype)[()]
    is_weak = getattr(x, "weak_type", False) and x.dtype != want.dtype
    return vector_space.convert(x, want.dtype) if is_weak else x


def finalize_tangent(t: ArrayLike | Zero, primal: ShapedArray) -> Any:
    """A tangent for the user: an array, weakly typed where its primal is; `float0` zeros for an integer primal."""
    want = primal.to_tangent()
    if want.dtype == dtypes.float0:
        return np.zeros(want.shape, want.dtype)
    t = instantiate(t)
    if isinstance(t, (Array, Tracer)) and t.weak_type == primal.weak_type:
        return t
    return vector_space.as_type(t, want.dtype, primal.weak_type)


def finalize_tangents(ts: Sequence[Any], primals: Sequence[ShapedArray]) -> list:
    """The tangents of several primals, as `finalize_tangent` gives each."""
    return [finalize_tangent(t, a) for t, a in zip(ts, primals, strict=True)]


def _check_vector(
    want: ShapedArray, given: ArrayLike, path: Callable[[], str], where: PathLabel, source: PathLabel
) -> None:
    """Refuse a tangent or cotangent of another type; weakly typed ones are converted later."""
    got = get_aval(given)
    if got.shape == want.shape and (got.dtype == want.dtype or converts_weakly(got, want)):
        return
    of_integers = " (a float0 zero, since it belongs to an integer)" if want.dtype == dtypes.float0 else ""
    raise (DTypeError if got.shape == want.shape else ShapeError)(
        where(path()),
        expected=f"a value of type {want.str_short()} for {source(path())}{of_integers}",
        got=got.str_short(),
        fix="convert it with .astype" if got.shape == want.shape else f"pass a value of shape {list(want.shape)}",
    )


def converts_weakly(got: ShapedArray, want: ShapedArray) -> bool:
    """Whether a tangent is a Python number, or weakly typed otherwise, and of the kind of the wanted dtype."""
    kinds = np.floating, np.complexfloating, np.integer
    return got.weak_type and any(
        dtypes.issubdtype(got.dtype, kind) and dtypes.issubdtype(want.dtype, kind) for kind in kinds
    )


def linearize(fun: Callable, *primals: PyTree, has_aux: bool = False) -> tuple:
    """The value of a function and its derivative at that point, as a linear function that can be called repeatedly.

    Args:
      fun: a function of arrays or pytrees of arrays.
      primals: the arguments.
      has_aux: whether `fun` returns `(result, aux)`.

    Returns:
      `(result, f_jvp)`, with `aux` third if `has_aux`; `f_jvp(*tangents)` is the tangent of the result, computed
      without evaluating `fun` again.

    Examples:
      >>> import phalanx
      >>> y, f_jvp = phalanx.linearize(lambda x: x * x, 3.0)
      >>> float(f_jvp(1.0))
      6.0
    """
    return _linearize_at(
        fun,
        primals,
        has_aux,
        lambda linear, _, consts: Partial(functools.partial(_apply_linear, linear.jaxpr, linear), consts),
    )


def _apply_linear(jaxpr: Jaxpr, linear: LinearMap, consts: Sequence[Any], *tangents: PyTree) -> PyTree:
    # The jaxpr is the first argument, where users who inspect the function look for it (`f_jvp.func.args[0]`).
    flat = check_vectors(
        tangents,
        linear.in_tree,
        [a.to_tangent() for a in linear.in_avals],
        lambda path: f"linearize of {linear.function}, tangents{path}",
        lambda path: f"primals{path}",
        "pass one tangent for each argument that the function was linearized at",
    )
    out_dot = run_jaxpr(jaxpr.replace(consts=list(consts)), *map(instantiate, flat))
    out = join_tangents(linear.out_avals, linear.nonzero, out_dot)
    return tree_unflatten(linear.out_tree, finalize_tangents(out, linear.out_avals))


def vjp(
    fun: Callable,
    *primals: PyTree,
    has_aux: bool = False,
    reduce_axes: Sequence[AxisName] = (),
    saveable_args: PyTree = True,
) -> tuple:
    """Vector-Jacobian product: the value of a function and its transposed derivative (reverse mode).

    Args:
      fun: a function of arrays or pytrees of arrays.
      primals: the arguments.
      has_aux: whether `fun` returns `(result, aux)`.
      reduce_axes: accepted for compatibility; not read.
      saveable_args: whether `f_vjp` may keep the arguments that it needs, as a prefix of the tuple of arguments; others
        must be put into `f_vjp.args_res` before the call.

    Returns:
      `(result, f_vjp)`, with `aux` third if `has_aux`; `f_vjp(cotangent)` is a tuple with a cotangent for each
      argument.

    Raises:
      TreeError: the cotangent does not have the structure of the result.
      ShapeError, DTypeError: a cotangent does not have the shape or the tangent dtype of its result.

    Examples:
      >>> import phalanx
      >>> y, f_vjp = phalanx.vjp(lambda a, b: a * b, 2.0, 3.0)
      >>> [float(x) for x in f_vjp(1.0)]
      [3.0, 2.0]
    """

    def derivative(linear: LinearMap, args: list, residuals: list) -> VjpFunction:
        if saveable_args is True:
            saveable = [True] * len(args)
        else:
            where = f"vjp of {format_code_position(fun)}, argument saveable_args"
            saveable = broadcast_flags(saveable_args, primals, where)
        return VjpFunction.of(functools.partial(_apply_vjp, linear), linear.in_tree, args, residuals, saveable)

    return _linearize_at(fun, primals, has_aux, derivative)


def _apply_vjp(
    linear: LinearMap, consts: Sequence[Any], targets: tuple, cotangents: tuple, want_logs: bool
) -> tuple[Any, dict]:
    """The cotangents of the arguments, in their structure, and the logs of the backward pass."""
    if len(cotangents) != 1:
        raise ArgumentTypeError(
            f"the vjp function of {linear.function}",
            expected="one argument, a cotangent with the structure of the result",
            got=f"{len(cotangents)} arguments",
            fix="pass the cotangents of several results as one tuple",
        )
    cts = _check_cotangents(linear, cotangents[0], [a.to_cotangent() for a in linear.out_avals], "vjp")
    # Results without a tangent do not depend on the inputs; their cotangents are ignored.
    cts = select_flagged(cts, linear.nonzero)
    for v, x in zip(linear.jaxpr.constvars, consts, strict=True):
        if not get_aval(x).matches(v.aval):
            raise ArgumentTypeError(
                f"the vjp function of {linear.function}, args_res",
                expected=f"the argument at which the function was differentiated, of type {v.aval.str_short()}",
                got=get_aval(x).str_short(),
                fix="put that argument into args_res before the call",
            )
    if targets or any(linear.is_ref):
        bars, logs = _add_to_targets(linear, consts, targets, cts)
    elif want_logs:
        none, every = [None] * len(linear.in_avals), [True] * len(linear.in_avals)
        found, logs = add_transpose(linear.jaxpr, consts, cts, none, every)
        bars = finalize_tangents(found, linear.in_avals)
    else:
        bars, logs = finalize_tangents(transpose_flat(linear.jaxpr, consts, cts), linear.in_avals), {}
    if want_logs:
        check_logs(f"the vjp function of {linear.function}, with_logs", logs)
    return tree_unflatten(linear.in_tree, bars), logs


def _add_to_targets(linear: LinearMap, consts: Sequence[Any], targets: tuple, cts: Sequence[Any]) -> tuple[list, dict]:
    """The gradients, where those with a reference as their target are added to it, and the logs."""
    where = f"vjp of {linear.function}"
    goals, tree = tree_flatten(targets)
    if targets and tree != linear.in_tree:
        fix = "pass a reference, GradValue() or DontWant() for each leaf of the arguments; None is no leaf"
        label = lambda path: f"{where}, argument{path} of with_refs"
        check_same_structure(label, linear.in_tree, targets, lambda path: f"the arguments{path}", fix)
    goals = goals if targets else [GradValue()] * len(linear.is_ref)
    for i, (goal, aval, of_ref) in enumerate(zip(goals, linear.in_avals, linear.is_ref, strict=True)):
        path = lambda i=i: leaf_path(tree_unflatten(linear.in_tree, goals), i)
        goal_aval = aval.to_tangent().strip_weak_type()
        if isinstance(goal, Ref) and not goal.aval.inner_aval.matches(aval.to_cotangent()):
            raise RefError(
                f"{where}, argument{path()} of with_refs",
                expected=f"a reference to an array of type {goal_aval.str_short()}, as the gradient has",
                got=goal.aval.str_short(),
                fix=f"make it with new_ref(jnp.zeros({aval.shape}, {str(goal_aval.dtype)!r}))",
            )
        if of_ref and not isinstance(goal, Ref | DontWant):
            raise RefError(
                f"{where}, argument{path()}",
                expected="a reference that the gradient of a reference is added to, in place",
                got="no such reference",
                fix="bind one with `with_refs`, as in f_vjp.with_refs(grad_ref)(ct), or pass DontWant() for it: the "
                "gradient must be accumulated into a ref",
            )
    refs = [goal if isinstance(goal, Ref) else None for goal in goals]
    sums = [None if ref is None else read_p(ref) for ref in refs]
    bars, logs = add_transpose(linear.jaxpr, consts, cts, sums, [type(goal) is not DontWant for goal in goals])
    out: list[Any] = []
    for goal, ref, bar, aval in zip(goals, refs, bars, linear.in_avals, strict=True):
        if ref is not None:
            write_p(ref, bar)
            out.append(GradRef())
        else:
            out.append(DidntWant() if type(goal) is DontWant else finalize_tangent(bar, aval))
    return out, logs


def _check_cotangents(linear: LinearMap, cotangent: PyTree, spaces: Sequence[ShapedArray], transform: str) -> list:
    """The leaves of a cotangent with the structure of the result and leaves of the given types."""
    return check_vectors(
        cotangent,
        linear.out_tree,
        spaces,
        lambda path: f"{transform} of {linear.function}, cotangent{path}",
        lambda path: f"the result{path}",
        "pass one cotangent for each leaf of the result",
        ignores_integers=True,
    )


def linear_transpose(fun: Callable, *primals: PyTree, reduce_axes: Sequence[AxisName] = ()) -> Callable:
    """The transpose of a function that is linear in its arguments, without evaluating it.

    Args:
      fun: a linear function.
      primals: arguments of the right types, such as `ShapeDtypeStruct`s; their values are not read.
      reduce_axes: accepted for compatibility; not read.

    Returns:
      A function from a cotangent of the result to a tuple of cotangents of the arguments.

    Examples:
      >>> import phalanx
      >>> [float(x) for x in phalanx.linear_transpose(lambda x: 3 * x, 1.0)(2.0)]
      [6.0]
    """
    flat, function, jaxpr = trace_flat(fun, tree_map(as_shape_struct, primals), function_name(fun))
    linear = LinearMap(jaxpr, format_code_position(fun), function.in_tree, function.out_tree, [], flat, jaxpr.outvars)
    return Partial(functools.partial(_apply_transpose, linear), list(jaxpr.consts))


def _apply_transpose(linear: LinearMap, consts: Sequence[Any], cotangent: PyTree) -> tuple:
    cts = _check_cotangents(linear, cotangent, linear.out_avals, "linear_transpose")
    # Unlike a gradient, a transpose keeps the dtype of its inputs, integers included.
    x_bars = zip(transpose_flat(linear.jaxpr, consts, cts), linear.in_avals, strict=True)
    dense = [(np.zeros(a.shape, a.dtype) if type(x) is Zero else x, a) for x, a in x_bars]
    return tree_unflatten(linear.in_tree, [vector_space.as_type(x, a.dtype, a.weak_type) for x, a in dense])
