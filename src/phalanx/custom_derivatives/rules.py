"""Custom derivatives: functions that bring their own rule for forward or reverse mode, `custom_jvp` and `custom_vjp`.

Builds on the primitives in `calls`: what users write is flattened here, and what their rules return is checked.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    ShapeError,
    TraceError,
    TreeError,
    check_function,
    positions,
)
from phalanx.core.flags import chosen, merged, others
from phalanx.core.source import code_position
from phalanx.core.tangent import Zero, instantiate, vector_space
from phalanx.core.trace import Tracer
from phalanx.custom_derivatives.calls import custom_jvp_call_p, custom_vjp_call_p
from phalanx.custom_derivatives.functions import by_position, pair_of
from phalanx.engine.frames import boundaries
from phalanx.transforms.functions import function_name
from phalanx.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten, treedef_is_leaf


class SymbolicZero(Zero):
    """A tangent that is known to be zero, as rules with `symbolic_zeros=True` see it.

    Args:
      aval: the type of the tangent.

    Examples:
      >>> type(zero_from_primal(1.0, symbolic_zeros=True)).__name__
      'SymbolicZero'
    """

    __slots__ = ()


def zero_from_primal(x: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangent of a primal value, as an array or symbolic.

    Args:
      x: the value.
      symbolic_zeros: whether the zero is a `SymbolicZero`.

    Returns:
      The zero.

    Examples:
      >>> float(zero_from_primal(2.0))
      0.0
    """
    zero = Zero.like(x)
    return SymbolicZero(zero.aval) if symbolic_zeros else instantiate(zero)


class _Call:
    """One call of a custom function: a flat function of the leaves of those arguments that may have derivatives.

    Args:
      function: the custom function.
      args: its arguments, all by position.
    """

    residual_tree: Any = None  # that of what `fwd` kept, once that is known

    def __init__(self, function: _CustomFunction, args: tuple):
        places = {n % len(args) for n in function.nondiff_argnums if n < len(args)}
        for i in sorted(places):
            if not function.holds_traced and _is_traced(args[i]) and not callable(args[i]):
                raise ArgumentTypeError(
                    f"{type(function).__name__} of {code_position(function.fun)}, argument {i}",
                    expected="a value that is not traced, since it is in nondiff_argnums",
                    got=repr(args[i]),
                    mend="pass it as a differentiable argument and return a zero derivative for it",
                )
        self.fun, self.__name__ = function.fun, function_name(function.fun)
        self.is_static = [i in places for i in range(len(args))]
        self._static = chosen(args, self.is_static)
        self.leaves, self.tree = tree_flatten(others(args, self.is_static))
        self.out_tree: Any = None
        self.num_diff = len(self.leaves)
        if function.holds_traced and _is_traced(self._static):
            # What is traced goes into the call beside the others, to be mapped and staged as they are.
            self._static, self._static_tree = tree_flatten(self._static)
            self._is_traced = [isinstance(x, Tracer) for x in self._static]
            self.leaves += map(_without_derivative, chosen(self._static, self._is_traced))

    def static(self, leaves: Sequence[Any] = ()) -> list:
        """The arguments without derivative, with those of the leaves that are theirs."""
        traced = leaves[self.num_diff :]
        if not traced:
            return self._static
        return tree_unflatten(self._static_tree, merged(self._is_traced, traced, others(self._static, self._is_traced)))

    def apply(self, fun: Any, leaves: Sequence[Any]) -> Any:
        """What a function of all arguments gives for other leaves."""
        diff = tree_unflatten(self.tree, leaves[: self.num_diff])
        return fun(*merged(self.is_static, self.static(leaves), diff))

    def __call__(self, *leaves: Any) -> list:
        out, self.out_tree = tree_flatten(self.apply(self.fun, leaves))
        return out


def _is_traced(tree: Any) -> bool:
    return any(isinstance(x, Tracer) for x in tree_leaves(tree))


def _without_derivative(x: Any) -> Any:
    """`x` as a constant to differentiation of any order."""
    rule = lambda xs, _: ([_without_derivative(*xs)], [Zero(aval_of(x).to_tangent())])
    return custom_jvp_call_p(x, fun=lambda x: [x], rule=rule, num_consts=0)[0]


@boundaries
class _CustomFunction:
    """What `custom_jvp` and `custom_vjp` objects share: the function, its arguments without derivatives, the call."""

    rules: ClassVar[tuple[str, ...]]  # the attributes that hold the rules
    setters: ClassVar[str]  # what defines them, for messages
    holds_traced: ClassVar[bool] = False  # whether an argument without derivative may be traced

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        check_function(f"{type(self).__name__}, argument fun", fun)
        functools.update_wrapper(self, fun)
        self.fun = fun
        nondiff = positions(f"{type(self).__name__}, argument nondiff_argnums", nondiff_argnums)
        if nondiff_argnames:
            names = list(inspect.signature(fun).parameters)
            nondiff = tuple(sorted({*nondiff, *(names.index(n) for n in nondiff_argnames)}))
        self.nondiff_argnums = nondiff
        self.symbolic_zeros = False
        self.__dict__.update(dict.fromkeys(self.rules))

    def _bind(self, call: _Call) -> list:
        """Bind the primitive on the leaves of a call."""
        raise NotImplementedError  # each binds its own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = by_position(self.fun, args, kwargs, "make the parameters of custom-rule functions positional")
        if any(getattr(self, rule) is None for rule in self.rules):
            raise TraceError(
                f"call of {code_position(self.fun)}",
                expected=f"a {type(self).__name__} function with a rule",
                got="none",
                mend=f"define it with {self.setters}",
            )
        if state.trace is None:
            return self.fun(*args)
        call = _Call(self, args)
        out = self._bind(call)
        return tree_unflatten(call.out_tree, out)

    def _shown(self, zero: Any) -> Any:
        """A tangent or cotangent as the user's rules see it."""
        return SymbolicZero(zero.aval) if self.symbolic_zeros and type(zero) is Zero else instantiate(zero)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


@boundaries
class custom_jvp(_CustomFunction):
    """A function with its own forward derivative.

    Args:
      fun: the function.
      nondiff_argnums, nondiff_argnames: arguments without derivative, passed first to the rule; of any kind, traced
        arrays too.

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
        """Set the rule: `jvp(*nondiff, primals, tangents) -> (result, tangent)`.

        Args:
          jvp: the rule.
          symbolic_zeros: whether tangents that are known to be zero come as `SymbolicZero`.

        Returns:
          The rule, so that this serves as a decorator.
        """
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """Set one rule for each argument: `jvp(tangent, result, *primals) -> tangent`; None for a zero derivative.

        Args:
          *jvps: the rules, in the order of the arguments.
        """
        if self.nondiff_argnums:
            raise ArgumentError(
                "defjvps", expected="no nondiff_argnums", got=str(self.nondiff_argnums), mend="use defjvp"
            )

        def jvp(primals: tuple, tangents: tuple) -> tuple:
            y = self(*primals)
            terms = [rule(t, y, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule is not None]
            if not terms:
                return y, tree_map(lambda v: instantiate(Zero.like(v)), y)
            return y, tree_map(lambda *ts: functools.reduce(lambda a, b: a + b, ts), *terms)

        self.defjvp(jvp)

    def _bind(self, call: _Call) -> list:
        rule = functools.partial(self._apply_rule, call)
        return custom_jvp_call_p(*call.leaves, fun=call, rule=rule, num_consts=0)

    def _apply_rule(self, call: _Call, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple:
        diff, moved = primals[: call.num_diff], tangents[: call.num_diff]
        shown = tree_unflatten(call.tree, [self._shown(t) for t in moved])
        where = f"jvp rule of {code_position(self.fun)}"
        result = self.jvp(*call.static(primals), tuple(tree_unflatten(call.tree, diff)), tuple(shown))
        y, y_dot = pair_of(where, result, "(result, tangent)")
        out, call.out_tree = tree_flatten(y)
        mend = "return one tangent for each leaf of the result"
        out_dot = _derivative_leaves(where, y_dot, y, "a tangent with the structure of the result", mend)
        return out, [_checked_tangent(where, x, t) for x, t in zip(out, out_dot, strict=True)]


def _derivative_leaves(where: str, given: Any, like: Any, expected: str, mend: str) -> list:
    """What a rule returned for each leaf of `like`, None standing for zeros."""
    leaves, tree = tree_flatten(given, is_leaf=lambda x: x is None or type(x) is SymbolicZero)
    try:
        places = [tree_flatten(place) for place in tree.flatten_up_to(like)]
    except (ValueError, TypeError):
        places = None
    if places is None or any(x is not None and not treedef_is_leaf(of) for x, (_, of) in zip(leaves, places)):
        wanted, got = tree_flatten(like)[1], tree_flatten(given)[1]
        raise TreeError(where, expected=f"{expected}, {wanted}", got=str(got), mend=mend)
    return [x for x, (under, _) in zip(leaves, places) for _ in under]


def _checked_tangent(where: str, primal: Any, t: Any) -> Any:
    want = aval_of(primal).to_tangent()
    if t is None or type(t) is SymbolicZero:
        return Zero(want)
    got = aval_of(t)
    if want.dtype == dtypes.float0:
        return Zero(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        if got.weak_type and got.shape == want.shape:
            return vector_space.convert(t, want.dtype)
        raise ArgumentTypeError(
            where,
            expected=f"a tangent of type {want.str_short()} for a result of that type",
            got=got.str_short(),
            mend="convert the tangent to the shape and dtype of its result",
        )
    return t


@boundaries
class custom_vjp(_CustomFunction):
    """A function with its own reverse derivative.

    Args:
      fun: the function.
      nondiff_argnums, nondiff_argnames: arguments without derivative, passed first to `bwd`; none of them traced.

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

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Set the rules: `fwd(*args) -> (result, residuals)`, `bwd(*nondiff, residuals, cotangent) -> cotangents`.

        `optimize_remat` changes nothing: what of `fwd` a rematerialised program does not need is always left out.

        Args:
          fwd, bwd: the two functions.
          symbolic_zeros: whether `fwd` gets each primal as a `CustomVJPPrimal`, and cotangents known to be zero come as
            `SymbolicZero`.
          optimize_remat: taken for compatibility.
        """
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros

    def _bind(self, call: _Call) -> list:
        def fwd(xs: Sequence[Any], perturbed: tuple) -> tuple:
            if self.symbolic_zeros:
                xs = [CustomVJPPrimal(x, p) for x, p in zip(xs, perturbed, strict=True)]
            where = f"fwd rule of {code_position(self.fun)}"
            out, residuals = pair_of(where, call.apply(self.fwd, xs), "(result, residuals)")
            out, call.out_tree = tree_flatten(out)
            residuals, call.residual_tree = tree_flatten(residuals)
            return out, residuals

        bwd = functools.partial(self._apply_bwd, call, tree_unflatten(call.tree, [aval_of(x) for x in call.leaves]))
        return custom_vjp_call_p(*call.leaves, fun=call, fwd=fwd, bwd=bwd, num_consts=0)

    def _apply_bwd(
        self, call: _Call, arguments: Sequence[Any], residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple
    ) -> list:
        """The flat cotangents of the arguments, whose types stand in their places."""
        shown = tree_unflatten(call.out_tree, [self._shown(c) for c in cts])
        result = self.bwd(*call.static(), tree_unflatten(call.residual_tree, residuals), shown)
        where = f"bwd rule of {code_position(self.fun)}"
        if isinstance(result, list):
            result = tuple(result)
        if not isinstance(result, tuple) or len(result) != len(arguments):
            raise TreeError(
                where,
                expected=f"a tuple of {len(arguments)} cotangents, one for each differentiable argument",
                got=f"{type(result).__name__} of {len(result)}" if isinstance(result, tuple) else repr(result),
                mend="return a tuple with a cotangent (or None) for each argument",
            )
        out: list[Any] = []
        mend = "return a cotangent for each leaf of the argument"
        for i, (x_bar, argument) in enumerate(zip(result, arguments, strict=True)):
            here = f"{where}, cotangent {i}"
            flat = _derivative_leaves(here, x_bar, argument, "the structure of the argument", mend)
            out += [_checked_cotangent(here, a, c) for a, c in zip(tree_leaves(argument), flat, strict=True)]
        return out


def _checked_cotangent(where: str, aval: ShapedArray, c: Any) -> Any:
    want = aval.to_tangent()
    if c is None or type(c) is SymbolicZero or want.dtype == dtypes.float0:
        return Zero(want)
    got = aval_of(c)
    if got.shape != want.shape:
        raise ShapeError(
            where,
            expected=f"type {want.str_short()}, that of the argument",
            got=got.str_short(),
            mend="return cotangents of the shapes of the arguments",
        )
    return c if got.dtype == want.dtype else vector_space.convert(c, want.dtype)


class CustomVJPPrimal:
    """A primal with the fact whether it is differentiated, as `fwd` sees it with `symbolic_zeros=True`.

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


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """The primal values that `fwd` got with `symbolic_zeros=True`.

    Args:
      tree: a pytree whose leaves are of `CustomVJPPrimal`.

    Returns:
      The same pytree of their values.

    Raises:
      ArgumentTypeError: a leaf is something else.

    Examples:
      >>> custom_vjp_primal_tree_values({"w": CustomVJPPrimal(2.0, perturbed=True)})
      {'w': 2.0}
    """
    for leaf in tree_flatten(tree)[0]:
        if not isinstance(leaf, CustomVJPPrimal):
            raise ArgumentTypeError(
                "custom_vjp_primal_tree_values",
                expected="arguments of a fwd rule that was set with symbolic_zeros=True",
                got=repr(leaf),
                mend="pass symbolic_zeros=True to defvjp, or read the values as they are",
            )
    return tree_map(lambda leaf: leaf.value, tree)
