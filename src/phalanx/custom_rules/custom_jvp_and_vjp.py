"""`custom_jvp` and `custom_vjp`: functions with user-defined derivative rules.

The arguments of a call are flattened and bound to the primitives of `custom_jvp_and_vjp_calls`; the pytrees that the
user's rules return are checked and flattened in turn.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from phalanx.core import (
    AbstractRef,
    ArgumentError,
    ArgumentTypeError,
    Ref,
    RefError,
    ShapedArray,
    ShapeError,
    Tracer,
    TreeError,
    UndefinedRuleError,
    UnexpectedTracerError,
    Zero,
    check_function,
    check_ref_aliases,
    convert_outputs,
    dtypes,
    format_code_position,
    get_aval,
    get_aval_of_argument,
    instantiate,
    merge_lists,
    parse_positions,
    select_flagged,
    select_unflagged,
    state,
    vector_space,
)
from phalanx.custom_rules.custom_jvp_and_vjp_calls import custom_jvp_call_p, custom_vjp_call_p
from phalanx.custom_rules.custom_vjp_forward import optimize_forward
from phalanx.custom_rules.rule_arguments import bind_positional, check_pair, forward_rule_setter
from phalanx.engine.traceback_filtering import api_boundary_class
from phalanx.runtime.transfer import scalar_array
from phalanx.transforms import PathLabel, check_same_structure, function_name, positional_parameters, record_logs
from phalanx.transforms.flat_function import label_of
from phalanx.transforms.jvp_and_vjp import converts_weakly
from phalanx.tree import all_leaves, tree_flatten, tree_leaves, tree_map, tree_unflatten, treedef_is_leaf
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import ArrayLike, PyTree


class SymbolicZero(Zero):
    """A tangent known to be zero, passed to rules that were defined with `symbolic_zeros=True`.

    Args:
      aval: the type of the tangent.

    Examples:
      >>> type(zero_from_primal(1.0, symbolic_zeros=True)).__name__
      'SymbolicZero'
    """

    __slots__ = ()


def zero_from_primal(val: PyTree, symbolic_zeros: bool = False) -> PyTree:
    """The zero tangent of a primal value, or the tree of zero tangents of a tree of values.

    Args:
      val: the value, or a tree of values.
      symbolic_zeros: whether to return a `SymbolicZero` instead of an array of zeros.

    Returns:
      The zero tangents, in the structure of `val`.

    Examples:
      >>> float(zero_from_primal(2.0))
      0.0
    """
    make = (lambda zero: SymbolicZero(zero.aval)) if symbolic_zeros else instantiate
    return tree_map(lambda leaf: make(Zero.like(leaf)), val)


class _Call:
    """One call of a custom function, as a flat function of the leaves of its differentiable arguments.

    Args:
      function: the custom function.
      args: its arguments, all positional.
    """

    residual_tree: Any = None  # the structure of the residuals, once `fwd` has run

    def __init__(self, function: _CustomFunction, args: tuple):
        # Positions may be negative, counted from the last argument.
        places = {n % len(args) for n in function.nondiff_argnums if n < len(args)}
        for i in sorted(places):
            if not function.holds_traced and _is_traced(args[i]) and not callable(args[i]):
                name = f"{type(function).__name__} of {format_code_position(function.fun)}"
                raise UnexpectedTracerError(
                    f"{name}, argument {dict(enumerate(positional_parameters(function.fun))).get(i, i)}",
                    expected="a value that is not traced, since the argument is in nondiff_argnums",
                    got=repr(args[i]),
                    fix="pass it as a differentiable argument and return a zero derivative for it",
                )
        self.fun, self.__name__ = function.fun, function_name(function.fun)
        self.is_static = [i in places for i in range(len(args))]
        self._static = select_flagged(args, self.is_static)
        self.leaves, self.tree = tree_flatten(select_unflagged(args, self.is_static))
        self.out_tree: Any = None
        self.num_diff = len(self.leaves)
        if function.holds_traced and _is_traced(self._static):
            # Traced leaves become operands, so that vmap and staging apply to them; their derivative is zero.
            self._static, self._static_tree = tree_flatten(self._static)
            self._is_traced = [isinstance(x, Tracer) for x in self._static]
            self.leaves += map(_without_derivative, select_flagged(self._static, self._is_traced))
            self._static = [None if traced else x for x, traced in zip(self._static, self._is_traced, strict=True)]

    def take_leaves(self) -> list:
        """The operands of the call, which it holds no longer: rules may outlive the trace of the operands."""
        leaves, self.leaves = self.leaves, []
        return leaves

    def nondiff_args(self, leaves: Sequence[Any] = ()) -> list:
        """The arguments in `nondiff_argnums`; the traced ones among them are read from `leaves`."""
        if len(leaves) <= self.num_diff:
            return self._static
        untraced = select_unflagged(self._static, self._is_traced)
        return tree_unflatten(self._static_tree, merge_lists(self._is_traced, leaves[self.num_diff :], untraced))

    def apply(self, fun: Any, leaves: Sequence[Any]) -> Any:
        """Call a function of all arguments with the given leaves, as arrays even where they are Python scalars."""
        diff = tree_unflatten(self.tree, map(scalar_array, leaves[: self.num_diff]))
        return fun(*merge_lists(self.is_static, self.nondiff_args(leaves), diff))

    def __call__(self, *leaves: Any) -> list:
        result = self.apply(self.fun, leaves)
        out, self.out_tree = tree_flatten(result)
        out = convert_outputs(out, lambda i: f" of {self.__name__}{leaf_path(result, i)}")
        return out

    def flatten_result(self, result: PyTree, where: str) -> list:
        """The leaves of the result that the rule `where` computed, with the structure that the function gives it.

        Raises:
          TreeError: the function has run, and its result has another structure.
        """
        known = self.out_tree  # None if the rule runs in place of the function
        out, self.out_tree = tree_flatten(result)
        if known is not None:
            check_same_structure(
                lambda path: f"{where}, result{path}",
                known,
                self.out_tree,
                lambda path: f"the result{path} of the function",
                "return the result with the structure that the function gives it",
            )
        return out


def _is_traced(tree: PyTree) -> bool:
    return any(isinstance(x, Tracer) for x in tree_leaves(tree))


def _without_derivative(x: ArrayLike) -> Any:
    """`x`, whose derivatives of every order are zero."""
    aval = get_aval(x).to_tangent()
    rule = lambda xs, _: ([_without_derivative(*xs)], [Zero(aval)])
    return custom_jvp_call_p(x, fun=lambda x: [x], rule=rule, num_consts=0)[0]


@api_boundary_class
class _CustomFunction:
    """Base class of `custom_jvp` and `custom_vjp`."""

    rules: ClassVar[tuple[str, ...]]  # the attributes that hold the rules
    setters: ClassVar[str]  # the methods that define the rules, for errors
    holds_traced: ClassVar[bool] = False  # whether an argument in nondiff_argnums may be traced

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        check_function(f"{type(self).__name__}, argument fun", fun)
        functools.update_wrapper(self, fun)
        self.fun = fun
        nondiff = parse_positions(f"{type(self).__name__}, argument nondiff_argnums", nondiff_argnums)
        if nondiff_argnames:
            names = list(inspect.signature(fun).parameters)
            nondiff = tuple(sorted({*nondiff, *(names.index(n) for n in nondiff_argnames)}))
        self.nondiff_argnums = nondiff
        self.symbolic_zeros = False
        self.__dict__.update(dict.fromkeys(self.rules))

    def _bind(self, call: _Call) -> list:
        """Bind the primitive on the leaves of a call."""
        raise NotImplementedError  # defined by each subclass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = bind_positional(self.fun, args, kwargs, "make the parameters of a function with custom rules positional")
        if any(getattr(self, rule) is None for rule in self.rules):
            raise UndefinedRuleError(
                f"call of {format_code_position(self.fun)}",
                expected=f"a {type(self).__name__} function with a derivative rule",
                got="one without a rule",
                fix=f"define the rule with {self.setters}",
            )
        # Eagerly no transformation needs the rules.
        if state.trace is None:
            return self.fun(*args)
        call = _Call(self, args)
        if any(isinstance(x, Ref) for x in call.leaves):
            path = label_of(args, {}, lambda: positional_parameters(self.fun))
            check_ref_aliases(f"call of {format_code_position(self.fun)}", call.leaves, (), path)
        out = self._bind(call)  # which sets `out_tree`
        return tree_unflatten(call.out_tree, out)

    def _expose(self, t: ArrayLike | Zero) -> Any:
        """A tangent or cotangent in the form that the user's rules expect."""
        return SymbolicZero(t.aval) if self.symbolic_zeros and type(t) is Zero else instantiate(t)

    __getattr__ = forward_rule_setter

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


@api_boundary_class
class custom_jvp(_CustomFunction):
    """A function with a custom forward-mode derivative.

    Args:
      fun: the function.
      nondiff_argnums, nondiff_argnames: arguments without a derivative, which are passed first to the rule. They may be
        of any type, and may be traced arrays.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> @phalanx.custom_jvp
      ... def f(x):
      ...     return x * x
      >>> @f.defjvp
      ... def f_jvp(primals, tangents):
      ...     (x,), (x_dot,) = primals, tangents
      ...     return f(x), 10 * x_dot
      >>> float(phalanx.grad(f)(3.0))
      10.0
    """

    rules, setters, holds_traced = ("jvp",), "defjvp or defjvps", True
    jvp: Callable | None

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        """Set the derivative rule.

        Args:
          jvp: `jvp(*nondiff, primals, tangents) -> (result, tangent)`.
          symbolic_zeros: whether tangents known to be zero are passed as `SymbolicZero`.

        Returns:
          The rule, so that this method can be used as a decorator.
        """
        check_function("defjvp, argument jvp", jvp)
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """Set one derivative rule for each argument.

        Args:
          *jvps: for each argument a function `jvp(tangent, result, *primals) -> tangent`, or None if the derivative is
            zero.
        """
        if self.nondiff_argnums:
            raise ArgumentError(
                "defjvps",
                expected="a function without nondiff_argnums",
                got=f"nondiff_argnums={self.nondiff_argnums}",
                fix="define one rule for all arguments with defjvp",
            )

        def jvp(primals: tuple, tangents: tuple) -> tuple:
            y = self(*primals)
            terms = [rule(t, y, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule is not None]
            if not terms:
                return y, tree_map(lambda v: instantiate(Zero.like(v)), y)
            return y, tree_map(lambda *ts: functools.reduce(lambda a, b: a + b, ts), *terms)

        self.defjvp(jvp)

    def _bind(self, call: _Call) -> list:
        rule: Any = functools.partial(self._apply_rule, call)
        rule.owner = self  # whose rules jaxprs are printed with
        return custom_jvp_call_p(*call.take_leaves(), fun=call, rule=rule, num_consts=0)

    def _apply_rule(self, call: _Call, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple:
        diff, moved = list(primals[: call.num_diff]), tangents[: call.num_diff]
        # As in JAX, Python scalars reach the rule unchanged in eager `jvp`, and otherwise with a dtype.
        if state.trace is not None or any(isinstance(x, Tracer) for x in (*diff, *moved)):
            diff = list(map(scalar_array, diff))
        exposed = tree_unflatten(call.tree, [self._expose(t) for t in moved])
        where = f"jvp rule {format_code_position(self.jvp)} of {function_name(self.fun)}"
        result = self.jvp(*call.nondiff_args(primals), tuple(tree_unflatten(call.tree, diff)), tuple(exposed))
        y, y_dot = check_pair(where, result, "(result, tangent)")
        out = call.flatten_result(y, where)
        fix = "return one tangent for each leaf of the result"
        label, source = (lambda path: f"{where}, tangent{path}"), (lambda path: f"the result{path}")
        out_dot = _derivative_leaves(label, y_dot, y, source, fix)

        def mismatch(i: int, want: ShapedArray, got: ShapedArray) -> ArgumentTypeError:
            return ArgumentTypeError(
                label(leaf_path(y, i)),
                expected=f"type {want.str_short()}, as {source(leaf_path(y, i))} has",
                got=got.str_short(),
                fix="convert the tangent to the shape and dtype of its result",
            )

        tangents_of = zip(_avals_of(f"{where}, result", y, out), out_dot, strict=True)
        return out, [
            _check_derivative(a, t, False, lambda i=i: label(leaf_path(y, i)), functools.partial(mismatch, i))
            for i, (a, t) in enumerate(tangents_of)
        ]


def _avals_of(where: str, tree: PyTree, leaves: Sequence[Any]) -> list[ShapedArray]:
    """The types of the leaves of a tree that a rule returned; `where` names the tree in errors."""
    return [get_aval_of_argument(x, lambda i=i: f"{where}{leaf_path(tree, i)}") for i, x in enumerate(leaves)]


def _derivative_leaves(where: PathLabel, given: PyTree, like: PyTree, source: PathLabel, fix: str) -> list:
    """The derivative that a rule returned for each leaf of `like`, where None for a subtree means zeros.

    Args:
      where: names a place in `given`, for errors.
      given: the tangents or cotangents.
      like: the primal values, or their types.
      source: names a place in `like`.
      fix: the remedy for a wrong structure.

    Raises:
      TreeError: `given` does not have the structure of `like`.
    """
    leaves, tree = tree_flatten(given, is_leaf=lambda x: x is None or type(x) is SymbolicZero)
    # None for a subtree of `like` stands for zeros of all its leaves, so `given` may be a prefix of `like` there only.
    places: list | None
    try:
        places = [tree_flatten(place) for place in tree.flatten_up_to(like)]
    except (ValueError, TypeError):
        places = None
    if places is None or any(x is not None and not treedef_is_leaf(of) for x, (_, of) in zip(leaves, places)):
        check_same_structure(where, tree_flatten(like)[1], tree, source, fix)
    return [x for x, (under, _) in zip(leaves, places or []) for _ in under]


def _check_derivative(
    aval: ShapedArray,
    x: Any,
    converts: bool,
    where: Callable[[], str],
    error: Callable[[ShapedArray, ShapedArray], Exception],
) -> Any:
    """The tangent or cotangent that a rule returned for one leaf, in the tangent dtype of the leaf.

    Args:
      aval: the type of the leaf.
      x: the derivative; None or a `SymbolicZero` for zeros.
      converts: whether derivatives of other dtypes are converted; weakly typed ones of the same kind always are.
      where: names the derivative in errors.
      error: makes the error for a wrong type, from the type it should have and the one it has.
    """
    want = aval.to_tangent()
    if x is None or type(x) is SymbolicZero or want.dtype == dtypes.float0:
        return Zero(want)
    got = get_aval_of_argument(x, where)
    if got.shape != want.shape or not (got.dtype == want.dtype or converts or converts_weakly(got, want)):
        raise error(want, got)
    return x if got.dtype == want.dtype else vector_space.convert(x, want.dtype)


@api_boundary_class
class custom_vjp(_CustomFunction):
    """A function with a custom reverse-mode derivative.

    Args:
      fun: the function.
      nondiff_argnums, nondiff_argnames: arguments without a derivative, which are passed first to `bwd`. They must
        not be traced.

    Examples:
      >>> import phalanx
      >>> @phalanx.custom_vjp
      ... def f(x):
      ...     return x * x
      >>> f.defvjp(lambda x: (f(x), x), lambda x, y_bar: (10 * y_bar,))
      >>> float(phalanx.grad(f)(3.0))
      10.0
    """

    rules, setters = ("fwd", "bwd"), "defvjp"
    fwd: Callable | None
    bwd: Callable | None
    with_logs = optimize_remat = False

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Set the derivative rules.

        Args:
          fwd: `fwd(*args) -> (result, residuals)`.
          bwd: `bwd(*nondiff, residuals, cotangent) -> cotangents`, a tuple with a cotangent for each differentiable
            argument.
          symbolic_zeros: whether `fwd` receives each primal as a `CustomVJPPrimal`, and `bwd` cotangents known to be
            zero as `SymbolicZero`.
          optimize_remat: whether the function itself runs, not `fwd`, where nothing reads the residuals, as in the
            first pass of `remat`. It pays off where `fwd` costs more than the function for other reasons than dead
            code, such as a kernel that also stores residuals.
        """
        check_function("defvjp, argument fwd", fwd)
        check_function("defvjp, argument bwd", bwd)
        self.fwd, self.bwd, self.symbolic_zeros, self.with_logs = fwd, bwd, symbolic_zeros, False
        self.optimize_remat = optimize_remat

    def defvjp_with_logs(
        self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False
    ) -> None:
        """Set derivative rules of which `bwd` also returns values for `f_vjp.with_logs`.

        Args:
          fwd, symbolic_zeros, optimize_remat: as in `defvjp`.
          bwd: `bwd(*nondiff, residuals, cotangent) -> (cotangents, logs)`; `logs` is a dict of pytrees, or None.

        Examples:
          >>> import phalanx
          >>> f = phalanx.custom_vjp(lambda x: x * x)
          >>> f.defvjp_with_logs(lambda x: (f(x), x), lambda x, y_bar: ((2 * x * y_bar,), {"y_bar": y_bar}))
          >>> (x_bar,), logs = phalanx.vjp(f, 3.0)[1].with_logs(1.0)
          >>> float(x_bar), float(logs["y_bar"])
          (6.0, 1.0)
        """
        self.defvjp(fwd, bwd, symbolic_zeros, optimize_remat)
        self.with_logs = True

    def _bind(self, call: _Call) -> list:
        def fwd(xs: Sequence[Any], perturbed: tuple) -> tuple:
            if self.symbolic_zeros:
                xs = [CustomVJPPrimal(scalar_array(x), p) for x, p in zip(xs, perturbed, strict=True)]
            where = f"fwd rule {format_code_position(self.fwd)} of {function_name(self.fun)}"
            result, residuals = check_pair(where, call.apply(self.fwd, xs), "(result, residuals)")
            out = call.flatten_result(result, where)
            _avals_of(f"{where}, result", result, out)
            leaves, call.residual_tree = tree_flatten(residuals)
            _avals_of(f"{where}, residuals", residuals, leaves)
            _check_residual_refs(where, leaves, xs)
            return out, leaves

        # The derivative of a reference, where it has one, is that of its value.
        avals = [a.inner_aval if type(a) is AbstractRef else a for a in map(get_aval, call.leaves)]
        bwd: Any = functools.partial(self._apply_bwd, call, tree_unflatten(call.tree, avals))
        bwd.owner = self  # whose rules jaxprs are printed with
        rule = optimize_forward(call, fwd) if self.optimize_remat else fwd
        return custom_vjp_call_p(*call.take_leaves(), fun=call, fwd=rule, bwd=bwd, num_consts=0)

    def _apply_bwd(
        self, call: _Call, arguments: Sequence[Any], residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple
    ) -> list:
        """The flat cotangents of the arguments; `arguments` holds the type of each leaf in its place."""
        exposed = tree_unflatten(call.out_tree, [self._expose(c) for c in cts])
        result = self.bwd(*call.nondiff_args(), tree_unflatten(call.residual_tree, residuals), exposed)
        where = f"bwd rule {format_code_position(self.bwd)} of {function_name(self.fun)}"
        if self.with_logs:
            result, logs = check_pair(where, result, "(cotangents, logs)")
            if not isinstance(logs, dict | None):
                raise ArgumentTypeError(
                    f"{where}, logs", expected="None or a dict", got=repr(logs), fix="name each log: {'name': value}"
                )
            record_logs(logs or {})
        if not isinstance(result, tuple | list) or len(result) != len(arguments):
            raise TreeError(
                where,
                expected=f"a tuple of {len(arguments)} cotangents, one for each differentiable argument",
                got=f"tuple of {len(result)}" if isinstance(result, tuple | list) else repr(result),
                fix="return a tuple with a cotangent (or None) for each argument",
            )

        def argument(i: int, path: str) -> str:
            names = [name for n, name in enumerate(positional_parameters(self.fun)) if n not in self.nondiff_argnums]
            return f"argument {dict(enumerate(names)).get(i, i)}{path}"

        def place(i: int, n: int) -> str:
            return f"{where}, the cotangent of {argument(i, leaf_path(arguments[i], n))}"

        def mismatch(i: int, n: int, want: ShapedArray, got: ShapedArray) -> ShapeError:
            return ShapeError(
                place(i, n),
                expected=f"type {want.str_short()}, as the argument has",
                got=got.str_short(),
                fix=f"return a cotangent of shape {list(want.shape)}",
            )

        out: list[Any] = []
        fix = "return a cotangent for each leaf of the argument"
        for i, (x_bar, primal) in enumerate(zip(result, arguments, strict=True)):
            source = functools.partial(argument, i)
            # Paths are formatted only for an error: walking the argument for each leaf would take quadratic time.
            label = lambda path, source=source: f"{where}, the cotangent of {source(path)}"
            primal_leaves, tree = tree_flatten(primal)
            # An array may stand for a tree of one leaf, such as a module with one parameter.
            if len(primal_leaves) == 1 and not isinstance(x_bar, SymbolicZero | None) and all_leaves([x_bar]):
                x_bar = tree_unflatten(tree, [x_bar])
            leaves = zip(primal_leaves, _derivative_leaves(label, x_bar, primal, source, fix), strict=True)
            out += [
                _check_derivative(a, c, True, functools.partial(place, i, n), functools.partial(mismatch, i, n))
                for n, (a, c) in enumerate(leaves)
            ]
        return out


def _check_residual_refs(where: str, residuals: Sequence[Any], args: Sequence[Any]) -> None:
    """Refuse a reference among the residuals that is no argument of the `fwd` rule of a custom_vjp function."""
    for x in residuals:
        if isinstance(x, Ref) and not any(x is a for a in args):
            raise RefError(
                f"{where}, the residuals",
                expected="arrays, and references among the arguments of the custom_vjp fwd function",
                got=f"another mutable array reference, {x.aval.str_short()}",
                fix="return the value of the reference, or pass the reference as an argument",
            )


class CustomVJPPrimal:
    """A primal that `fwd` receives with `symbolic_zeros=True`, marked by whether it is differentiated.

    Args:
      value: the primal.
      perturbed: whether it is differentiated.

    Examples:
      >>> CustomVJPPrimal(2.0, perturbed=True).value
      2.0
    """

    __slots__ = ("perturbed", "value")

    def __init__(self, value: Any, perturbed: bool):
        self.value, self.perturbed = value, perturbed


def custom_vjp_primal_tree_values(tree: PyTree) -> Any:
    """The values of the primals that `fwd` receives with `symbolic_zeros=True`.

    Args:
      tree: a pytree of `CustomVJPPrimal`s.

    Returns:
      The pytree of their values.

    Raises:
      ArgumentTypeError: a leaf is not a `CustomVJPPrimal`.

    Examples:
      >>> custom_vjp_primal_tree_values({"w": CustomVJPPrimal(2.0, perturbed=True)})
      {'w': 2.0}
    """
    for leaf in tree_flatten(tree)[0]:
        if not isinstance(leaf, CustomVJPPrimal):
            raise ArgumentTypeError(
                "custom_vjp_primal_tree_values",
                expected="arguments of a fwd rule that was defined with symbolic_zeros=True",
                got=repr(leaf),
                fix="pass symbolic_zeros=True to defvjp, or use the arguments directly",
            )
    return tree_map(lambda leaf: leaf.value, tree)
