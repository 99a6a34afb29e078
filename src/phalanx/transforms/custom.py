"""Custom derivatives: functions that bring their own rule for forward or reverse mode.

`custom_jvp` and `custom_vjp` calls are primitives whose parameters are flat functions. Run at once they call the
function; under differentiation they call the user's rule; staged they hold the function's program; batched they map
function and rule alike. A `custom_vjp` leaves in the linear program one equation whose transpose is the user's `bwd`.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    RuleError,
    ShapeError,
    TraceError,
    TreeError,
    check_function,
)
from phalanx.core.flags import chosen, merged, others
from phalanx.core.jaxpr import Jaxpr, run_program
from phalanx.core.primitive import Primitive, Undefined
from phalanx.core.source import code_position
from phalanx.core.tangent import Zero, instantiate, is_linear, vector_space
from phalanx.core.trace import StagingTrace, Tracer, stage
from phalanx.engine.frames import boundaries
from phalanx.transforms.batching import Axis, batch_program, front_dims, mapped_function, vmap_flat
from phalanx.transforms.calls import ProgramCall
from phalanx.transforms.functions import function_name, pair_of
from phalanx.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten, treedef_is_leaf


class SymbolicZero(Zero):
    """A tangent that is known to be zero, as rules with `symbolic_zeros=True` see it.

    Args:
      aval: the type of the tangent.
    """

    __slots__ = ()


class _CustomCall(ProgramCall):
    """What the calls of `custom_jvp` and `custom_vjp` share: `fun` is a flat function, or its program once staged."""

    program = "fun"

    def run(self, *args: Any, fun: Any, **rules: Any) -> list:
        return run_program(fun, *args) if type(fun) is Jaxpr else list(fun(*args))

    def stage(self, trace: StagingTrace, args: Sequence[Any], params: dict) -> list:
        """Record the call with the function's program, constants in front."""
        fun = params["fun"]
        if type(fun) is not Jaxpr:
            program = stage(fun, [aval_of(x) for x in args], getattr(fun, "__name__", self.name))
            count = len(program.consts)
            args = [*program.consts, *args]
            params = params | {"fun": program.hoist(), "num_consts": count}
        atoms = [trace.atom(x) for x in args]
        return trace.record(self, atoms, tuple(a.aval for a in atoms), params)


class CustomJVPCall(_CustomCall, name="custom_jvp_call"):
    """A call of a function with its own derivative: (*constants, *inputs) -> results of `fun`."""

    def jvp(self, primals: Any, tangents: Any, *, fun: Any, rule: Callable, num_consts: int) -> tuple:
        _check_closed_over("custom_jvp", tangents[:num_consts])
        return rule(primals[num_consts:], tangents[num_consts:])

    def batch_axis(self, axis: Axis, args: Any, dims: Any, *, fun: Any, rule: Callable, num_consts: int) -> tuple:
        moved, mapped, batched = _batch_call(axis, args, dims, fun)
        ins = front_dims(mapped[num_consts:])

        def batched_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple:
            count = len(primals)

            def one(*xs: Any) -> list:
                out, out_dot = rule(list(xs[:count]), list(xs[count:]))
                return [*out, *out_dot]

            pairs = _vmap(one, [*primals, *tangents], [*ins, *ins], axis, "custom_jvp")
            results = len(pairs) // 2
            ys = list(itertools.starmap(axis.to_front, pairs[:results]))
            dots = zip(ys, pairs[results:], strict=True)
            return ys, [Zero.like(y) if type(t) is Zero else axis.to_front(t, d) for y, (t, d) in dots]

        out = self(*moved, fun=batched, rule=batched_rule, num_consts=num_consts)
        return out, [0] * len(out)


def _check_closed_over(kind: str, tangents: Sequence[Any]) -> None:
    if any(type(t) is not Zero for t in tangents):
        raise TraceError(
            f"differentiation of a {kind} function",
            expected="a function that does not close over differentiated values",
            got="one that does, so that its rule cannot say how they matter",
            mend="pass the value as an argument, or use closure_convert",
        )


def _batch_call(axis: Axis, args: Any, dims: Any, fun: Any) -> tuple:
    """Arguments with mapped dimensions in front, which of them are mapped, and the function of many examples."""
    moved, mapped = axis.to_fronts(args, dims), [d is not None for d in dims]
    if type(fun) is not Jaxpr and all(not isinstance(x, Tracer) or x.concrete is not None for x in moved):
        # A function that may look at its arguments is not staged, by which it would lose sight of them.
        return moved, mapped, mapped_function(fun, mapped, axis)
    if type(fun) is not Jaxpr:
        avals = [aval_of(x) if d is None else aval_of(x).without_dim(d) for x, d in zip(args, dims, strict=True)]
        fun = stage(fun, avals, function_name(fun))
    return moved, mapped, batch_program(fun, axis, mapped, True)[0]


def _vmap(fun: Callable, args: Sequence[Any], dims: Sequence[Any], axis: Axis, name: str) -> list[tuple[Any, Any]]:
    """Map a flat function that takes and gives symbolic zeros among its values: the results with their dimensions."""
    has = [type(x) is not Zero for x in args]
    zeros = [
        Zero(x.aval if d is None else x.aval.without_dim(d))
        for x, d in zip(others(args, has), others(dims, has), strict=True)
    ]
    found: list = []

    def dense(*xs: Any) -> list:
        found[:] = fun(*merged(has, xs, zeros))
        return [x for x in found if type(x) is not Zero]

    pairs = zip(*vmap_flat(dense, chosen(args, has), chosen(dims, has), axis, name), strict=True)
    return merged([type(x) is not Zero for x in found], pairs, [(x, None) for x in found if type(x) is Zero])


custom_jvp_call_p = CustomJVPCall()


class CustomVJPCall(_CustomCall, name="custom_vjp_call"):
    """A call of a function with its own reverse derivative: (*constants, *inputs) -> results of `fun`."""

    def jvp(self, primals: Any, tangents: Any, *, fun: Any, fwd: Callable, bwd: Callable, num_consts: int) -> tuple:
        _check_closed_over("custom_vjp", tangents[:num_consts])
        primals, tangents = primals[num_consts:], tangents[num_consts:]
        perturbed = tuple(type(t) is not Zero for t in tangents)
        out, residuals = fwd(primals, perturbed)
        out_avals = tuple(aval_of(x).to_tangent() for x in out)
        if all(a.dtype == dtypes.float0 for a in out_avals):
            return out, [Zero(a) for a in out_avals]
        given = chosen(tangents, perturbed)
        out_dot = custom_linear_p(
            *residuals, *given, bwd=bwd, num_residuals=len(residuals), perturbed=perturbed, out_avals=out_avals
        )
        return out, [Zero(a) if a.dtype == dtypes.float0 else t for t, a in zip(out_dot, out_avals, strict=True)]

    def batch_axis(
        self, axis: Axis, args: Any, dims: Any, *, fun: Any, fwd: Callable, bwd: Callable, num_consts: int
    ) -> tuple:
        moved, mapped, batched = _batch_call(axis, args, dims, fun)
        ins = mapped[num_consts:]
        residual_dims: list[int | None] = []

        def batched_fwd(primals: Sequence[Any], perturbed: tuple) -> tuple:
            counts: list[int] = []

            def one(*xs: Any) -> list:
                out, residuals = fwd(xs, perturbed)
                counts.append(len(out))
                return [*out, *residuals]

            flat, found = vmap_flat(one, primals, front_dims(ins), axis, "custom_vjp")
            n = counts[0]
            residual_dims[:] = front_dims([d is not None for d in found[n:]])
            return list(map(axis.to_front, flat[:n], found[:n])), axis.to_fronts(flat[n:], found[n:])

        def batched_bwd(residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple) -> list:
            return _batch_bwd(bwd, axis, residuals, cts, perturbed, residual_dims, ins)

        out = self(*moved, fun=batched, fwd=batched_fwd, bwd=batched_bwd, num_consts=num_consts)
        return out, [0] * len(out)


def _batch_bwd(
    bwd: Callable,
    axis: Axis,
    residuals: Sequence[Any],
    cts: Sequence[Any],
    perturbed: tuple,
    residual_dims: Sequence[int | None],
    in_mapped: Sequence[bool],
) -> list:
    """Map a backward rule; cotangents of inputs that are not mapped are summed over the examples."""
    count = len(residuals)
    pairs = _vmap(
        lambda *xs: bwd(list(xs[:count]), list(xs[count:]), perturbed),
        [*residuals, *cts],
        [*residual_dims, *[0] * len(cts)],
        axis,
        "custom_vjp",
    )
    x_bars = [x if type(x) is Zero else axis.to_front(x, d) for x, d in pairs]
    return [x if m or type(x) is Zero else vector_space.sum(x, 0) for x, m in zip(x_bars, in_mapped, strict=True)]


custom_vjp_call_p = CustomVJPCall()


class CustomLinear(Primitive, name="custom_linear", multiple=True):
    """What a `custom_vjp` call leaves in a linear program: (*residuals, *tangents) -> tangents; it has a transpose."""

    holds_program = True
    says_shardings = True
    roles = Undefined("what it does to tangents is known by its transpose only")
    batch = None
    lower = Undefined("a custom_vjp function has no forward derivative; use custom_jvp, or reverse mode (grad, vjp)")
    jvp = Undefined(
        "the linear part of a custom_vjp function is known by its transpose only; differentiate its bwd instead"
    )

    def result(self, *avals: Any, bwd: Callable, num_residuals: int, perturbed: tuple, out_avals: tuple) -> list:
        return list(out_avals)

    def run(self, *args: Any, **params: Any) -> list:
        raise forward_mode_error()

    def transpose(
        self, cts: Any, *operands: Any, bwd: Callable, num_residuals: int, perturbed: tuple, out_avals: tuple
    ) -> tuple:
        residuals, given = operands[:num_residuals], operands[num_residuals:]
        if not all(map(is_linear, given)):
            raise RuleError(
                "transpose of a custom_vjp function",
                expected="linear tangents",
                got="a known one",
                mend="this is a fault of a transformation; report it",
            )
        x_bars = bwd(list(residuals), list(cts), perturbed)
        return (*[None] * num_residuals, *chosen(x_bars, perturbed))

    def batch_axis(
        self, axis: Axis, args: Any, dims: Any, *, bwd: Callable, num_residuals: int, perturbed: tuple, out_avals: tuple
    ) -> tuple:
        n = num_residuals
        moved = [*axis.to_fronts(args[:n], dims[:n]), *map(axis.to_front, args[n:], dims[n:])]
        residual_dims = front_dims([d is not None for d in dims[:n]])
        ins = [True] * len(perturbed)

        def batched_bwd(residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple) -> list:
            return _batch_bwd(bwd, axis, residuals, cts, perturbed, residual_dims, ins)

        wide = tuple(a.with_shape((axis.size, *a.shape)) for a in out_avals)
        out = self(*moved, bwd=batched_bwd, num_residuals=num_residuals, perturbed=perturbed, out_avals=wide)
        return out, [0] * len(out)


def forward_mode_error() -> TraceError:
    """The error for forward mode through a function that has a reverse rule only."""
    return TraceError(
        "forward-mode differentiation (jvp)",
        expected="functions with a forward derivative",
        got="a custom_vjp function, which has a reverse one only",
        mend="give it a custom_jvp rule, or differentiate in reverse mode (grad, vjp, jacrev)",
    )


custom_linear_p = CustomLinear()


def _resolve(fun: Callable, args: tuple, kwargs: dict) -> tuple:
    """Positional arguments with defaults and keywords put in their places."""
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):
        if kwargs:
            raise
        return args
    if not kwargs and len(args) == len(signature.parameters):
        return args
    bound = signature.bind(*args, **kwargs)
    keyword_only = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    named = [name for name in bound.arguments if signature.parameters[name].kind in keyword_only]
    bound.apply_defaults()
    if named:
        raise ArgumentTypeError(
            f"call of {code_position(fun)}",
            expected="arguments that can be given by position",
            got=f"keyword-only {', '.join(named)}",
            mend="make the parameters of custom-rule functions positional",
        )
    return bound.args


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
            if any(isinstance(x, Tracer) for x in tree_flatten(args[i])[0]) and not callable(args[i]):
                raise ArgumentTypeError(
                    f"{type(function).__name__} of {code_position(function.fun)}, argument {i}",
                    expected="a value that is not traced, since it is in nondiff_argnums",
                    got=repr(args[i]),
                    mend="pass it as a differentiable argument and return a zero derivative for it",
                )
        self.fun, self.__name__ = function.fun, function_name(function.fun)
        self.is_static = [i in places for i in range(len(args))]
        self.static = chosen(args, self.is_static)
        self.leaves, self.tree = tree_flatten(others(args, self.is_static))
        self.out_tree: Any = None

    def apply(self, fun: Any, leaves: Sequence[Any]) -> Any:
        """What a function of all arguments gives for other leaves."""
        return fun(*merged(self.is_static, self.static, tree_unflatten(self.tree, leaves)))

    def __call__(self, *leaves: Any) -> list:
        out, self.out_tree = tree_flatten(self.apply(self.fun, leaves))
        return out


class _CustomFunction:
    """What `custom_jvp` and `custom_vjp` objects share: the function, its arguments without derivatives, the call."""

    rules: ClassVar[tuple[str, ...]]  # the attributes that hold the rules
    setters: ClassVar[str]  # what defines them, for messages

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        check_function(f"{type(self).__name__}, argument fun", fun)
        functools.update_wrapper(self, fun)
        self.fun = fun
        nondiff = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
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
        args = _resolve(self.fun, args, kwargs)
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
      nondiff_argnums, nondiff_argnames: arguments without derivative, passed first to the rule.

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

    rules, setters = ("jvp",), "defjvp or defjvps"
    jvp: Callable | None

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        """Set the rule: `jvp(*nondiff, primals, tangents) -> (result, tangent)`."""
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """Set one rule for each argument: `jvp(tangent, result, *primals) -> tangent`; None for a zero derivative."""
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
        shown = tree_unflatten(call.tree, [self._shown(t) for t in tangents])
        where = f"jvp rule of {code_position(self.fun)}"
        result = self.jvp(*call.static, tuple(tree_unflatten(call.tree, primals)), tuple(shown))
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
      nondiff_argnums, nondiff_argnames: arguments without derivative, passed first to `bwd`.

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
        result = self.bwd(*call.static, tree_unflatten(call.residual_tree, residuals), shown)
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
    """A primal with the fact whether it is differentiated, as `fwd` sees it with `symbolic_zeros=True`."""

    __slots__ = ("perturbed", "value")

    def __init__(self, value: Any, perturbed: bool):
        self.value, self.perturbed = value, perturbed
