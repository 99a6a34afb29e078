"""Custom derivatives: functions that bring their own rule for forward or reverse mode.

`custom_jvp` and `custom_vjp` calls are primitives whose parameters are flat functions. Run at once they call the
function; under differentiation they call the user's rule; staged they hold the function's program; batched they map
function and rule alike. A `custom_vjp` leaves in the linear program one equation whose transpose is the user's `bwd`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.effects import Effects
from phalanx.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    RuleError,
    ShapeError,
    TraceError,
    TreeError,
    check_function,
)
from phalanx.core.jaxpr import Jaxpr, run_program
from phalanx.core.primitive import Primitive, Roles, Undefined
from phalanx.core.roles import program_roles
from phalanx.core.source import code_position
from phalanx.core.tangent import Zero, instantiate, is_linear, vector_space
from phalanx.core.trace import StagingTrace, Tracer, stage
from phalanx.core.varying import settled_call
from phalanx.engine.frames import boundaries, boundary
from phalanx.transforms.batching import Axis, batch_program, to_front, vmap_flat
from phalanx.tree import tree_flatten, tree_map, tree_unflatten, treedef_is_leaf


class SymbolicZero:
    """A tangent that is known to be zero, as rules with `symbolic_zeros=True` see it.

    Args:
      aval: the type of the tangent.
    """

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval.str_short()})"


def zero_from_primal(x: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangent of a primal value, as an array or symbolic."""
    zero = Zero.like(x)
    return SymbolicZero(zero.aval) if symbolic_zeros else instantiate(zero)


def run_flat(fun: Any, *args: Any) -> list:
    """Call a flat function, which may be a program."""
    return run_program(fun, *args) if type(fun) is Jaxpr else list(fun(*args))


class _CustomCall(Primitive):
    """What the calls of `custom_jvp` and `custom_vjp` share: `fun` is a flat function, or its program once staged."""

    multiple = True
    holds_program = True
    says_shardings = True
    settle = settled_call("fun")
    batch = None

    def roles(self, *avals: Any, fun: Jaxpr, **rules: Any) -> Roles:
        return program_roles(fun)

    def result(self, *avals: Any, fun: Any, **rules: Any) -> list:
        return fun.out_avals

    def effects(self, *avals: Any, fun: Any, **rules: Any) -> Effects:
        return fun.effects

    def run(self, *args: Any, fun: Any, **rules: Any) -> list:
        return run_flat(fun, *args)

    def lower(self, ctx: Any, *operands: Any, fun: Jaxpr, **rules: Any) -> list:
        return ctx.emit(fun, operands)

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
        if any(type(t) is not Zero for t in tangents[:num_consts]):
            raise _closed_over("custom_jvp")
        return rule(primals[num_consts:], tangents[num_consts:])

    def batch_axis(self, axis: Axis, args: Any, dims: Any, *, fun: Any, rule: Callable, num_consts: int) -> tuple:
        moved, mapped, batched, out_mapped = _batch_call(axis, args, dims, fun)

        def batched_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple:
            count = len(primals)
            nonzero = [type(t) is not Zero for t in tangents]
            flat = [*primals, *(t for t in tangents if type(t) is not Zero)]
            ins = mapped[num_consts:]
            dims_in = [0 if m else None for m in (*ins, *(m for m, nz in zip(ins, nonzero, strict=True) if nz))]
            shown: list[bool] = []

            def one(*xs: Any) -> list:
                given = iter(xs[count:])
                dots = [next(given) if nz else Zero.like(p) for p, nz in zip(xs, nonzero, strict=False)]
                out, out_dot = rule(list(xs[:count]), dots)
                shown[:] = [type(t) is not Zero for t in out_dot]
                return [*out, *(t for t in out_dot if type(t) is not Zero)]

            out, out_dims = vmap_flat(one, flat, dims_in, axis, "custom_jvp")
            results = len(shown)
            ys = [
                to_front(x, d, axis.size, axis.split) if m else x
                for x, d, m in zip(out, out_dims, out_mapped, strict=False)
            ]
            dots = iter(zip(out[results:], out_dims[results:], strict=True))
            y_dots: list[Any] = []
            for y, m, has in zip(ys, out_mapped, shown, strict=True):
                if not has:
                    y_dots.append(Zero.like(y))
                else:
                    t, d = next(dots)
                    y_dots.append(to_front(t, d, axis.size, axis.split) if m else t)
            return ys, y_dots

        out = self(*moved, fun=batched, rule=batched_rule, num_consts=num_consts)
        return out, [0 if m else None for m in out_mapped]


def _closed_over(kind: str) -> TraceError:
    return TraceError(
        f"differentiation of a {kind} function",
        expected="a function that does not close over differentiated values",
        got="one that does, so that its rule cannot say how they matter",
        mend="pass the value as an argument, or use closure_convert",
    )


def _batch_call(axis: Axis, args: Any, dims: Any, fun: Any) -> tuple:
    """Arguments with mapped dimensions in front, which are mapped, the batched function, which results are mapped."""
    moved = [to_front(x, d, axis.size, axis.split) if d is not None else x for x, d in zip(args, dims, strict=True)]
    mapped = [d is not None for d in dims]
    if type(fun) is not Jaxpr:
        avals = [aval_of(x) for x in moved]
        inner = [a.with_shape(a.shape[1:]) if m else a for a, m in zip(avals, mapped, strict=True)]
        if _may_look(moved):
            return moved, mapped, _mapped_function(fun, mapped, axis), [True] * _count_results(fun, inner)
        fun = stage(fun, inner, getattr(fun, "__name__", "fn"))
    batched, out_mapped = batch_program(fun, axis, mapped, True)
    return moved, mapped, batched, out_mapped


def _may_look(args: Sequence[Any]) -> bool:
    """Whether a function run on these values may look at them, so that staging it would lose something."""
    return all(not isinstance(x, Tracer) or x.concrete is not None for x in args)


def _count_results(fun: Callable, avals: Sequence[ShapedArray]) -> int:
    return len(stage(fun, avals, "shape").outvars)


def _mapped_function(fun: Callable, mapped: Sequence[bool], axis: Axis) -> Callable:
    def batched(*xs: Any) -> list:
        out, out_dims = vmap_flat(fun, xs, [0 if m else None for m in mapped], axis)
        return [to_front(x, d, axis.size, axis.split) for x, d in zip(out, out_dims, strict=True)]

    return batched


custom_jvp_call_p = CustomJVPCall()


class CustomVJPCall(_CustomCall, name="custom_vjp_call"):
    """A call of a function with its own reverse derivative: (*constants, *inputs) -> results of `fun`."""

    def jvp(self, primals: Any, tangents: Any, *, fun: Any, fwd: Callable, bwd: Callable, num_consts: int) -> tuple:
        if any(type(t) is not Zero for t in tangents[:num_consts]):
            raise _closed_over("custom_vjp")
        primals, tangents = primals[num_consts:], tangents[num_consts:]
        perturbed = tuple(type(t) is not Zero for t in tangents)
        out, residuals = fwd(primals, perturbed)
        given = [t for t in tangents if type(t) is not Zero]
        out_avals = tuple(aval_of(x).to_tangent() for x in out)
        live = [i for i, a in enumerate(out_avals) if a.dtype != dtypes.float0]
        if not live:
            return out, [Zero(a) for a in out_avals]
        out_dot = custom_linear_p(
            *residuals, *given, bwd=bwd, num_residuals=len(residuals), perturbed=perturbed, out_avals=out_avals
        )
        return out, [Zero(a) if a.dtype == dtypes.float0 else t for t, a in zip(out_dot, out_avals, strict=True)]

    def batch_axis(
        self, axis: Axis, args: Any, dims: Any, *, fun: Any, fwd: Callable, bwd: Callable, num_consts: int
    ) -> tuple:
        moved, mapped, batched, out_mapped = _batch_call(axis, args, dims, fun)
        ins = mapped[num_consts:]
        residual_mapped: list[bool] = []

        def batched_fwd(primals: Sequence[Any], perturbed: tuple) -> tuple:
            counts: list[int] = []

            def one(*xs: Any) -> list:
                out, residuals = fwd(xs, perturbed)
                counts.append(len(out))
                return [*out, *residuals]

            flat, flat_dims = vmap_flat(one, primals, [0 if m else None for m in ins], axis, "custom_vjp")
            n = counts[0]
            out = [to_front(x, d, axis.size, axis.split) for x, d in zip(flat[:n], flat_dims[:n], strict=True)]
            residual_mapped[:] = [d is not None for d in flat_dims[n:]]
            residuals = [
                x if d is None else to_front(x, d, axis.size, axis.split)
                for x, d in zip(flat[n:], flat_dims[n:], strict=True)
            ]
            return out, residuals

        def batched_bwd(residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple) -> list:
            return _batch_bwd(bwd, axis, residuals, cts, perturbed, residual_mapped, ins)

        out = self(*moved, fun=batched, fwd=batched_fwd, bwd=batched_bwd, num_consts=num_consts)
        return out, [0 if m else None for m in out_mapped]


def _batch_bwd(
    bwd: Callable,
    axis: Axis,
    residuals: Sequence[Any],
    cts: Sequence[Any],
    perturbed: tuple,
    residual_mapped: Sequence[bool],
    in_mapped: Sequence[bool],
) -> list:
    """Map a backward rule; cotangents of inputs that are not mapped are summed over the examples."""
    count = len(residuals)
    present = [type(c) is not Zero for c in cts]
    shapes = [c.aval.with_shape(c.aval.shape[1:]) if type(c) is Zero else None for c in cts]
    shown: list[bool] = []

    def one(*xs: Any) -> list:
        given = iter(xs[count:])
        full = [next(given) if a is None else Zero(a) for a in shapes]
        out = bwd(list(xs[:count]), full, perturbed)
        shown[:] = [type(x) is not Zero for x in out]
        return [x for x in out if type(x) is not Zero]

    flat = [*residuals, *(c for c in cts if type(c) is not Zero)]
    dims_in = [0 if m else None for m in residual_mapped] + [0] * sum(present)
    out, out_dims = vmap_flat(one, flat, dims_in, axis, "custom_vjp")
    pairs = iter(zip(out, out_dims, strict=True))
    result: list[Any] = []
    for has, m in zip(shown, in_mapped, strict=True):
        if not has:
            result.append(Zero(ShapedArray((), dtypes.float0)))
            continue
        x, d = next(pairs)
        x = to_front(x, d, axis.size, axis.split)
        result.append(x if m else vector_space.sum(x, 0))
    return result


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
        chosen = [x for x, p in zip(x_bars, perturbed, strict=True) if p]
        return (*([None] * num_residuals), *chosen)

    def batch_axis(
        self, axis: Axis, args: Any, dims: Any, *, bwd: Callable, num_residuals: int, perturbed: tuple, out_avals: tuple
    ) -> tuple:
        moved = [
            to_front(x, d, axis.size, axis.split) if i >= num_residuals or d is not None else x
            for i, (x, d) in enumerate(zip(args, dims, strict=True))
        ]
        residual_mapped = [d is not None for d in dims[:num_residuals]]
        ins = [True] * len(perturbed)

        def batched_bwd(residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple) -> list:
            return _batch_bwd(bwd, axis, residuals, cts, perturbed, residual_mapped, ins)

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
    if not kwargs:
        try:
            signature = inspect.signature(fun)
        except (TypeError, ValueError):
            return args
        if len(args) == len(signature.parameters):
            return args
    else:
        signature = inspect.signature(fun)
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


class _CustomFunction:
    """What `custom_jvp` and `custom_vjp` objects share: the function and its arguments without derivatives."""

    __call__: Callable

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        check_function(f"{type(self).__name__}, argument fun", fun)
        functools.update_wrapper(self, fun)
        self.fun = fun
        nondiff = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        if nondiff_argnames:
            names = list(inspect.signature(fun).parameters)
            nondiff = tuple(sorted({*nondiff, *(names.index(n) for n in nondiff_argnames)}))
        self.nondiff_argnums = nondiff

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _split(self, args: tuple) -> tuple[list, list, Callable]:
        """Static arguments, dynamic ones, and a function that calls `fun` on new dynamic ones."""
        places = {n % len(args) for n in self.nondiff_argnums if n < len(args)}
        for i in sorted(places):
            if any(isinstance(x, Tracer) for x in tree_flatten(args[i])[0]) and not callable(args[i]):
                raise ArgumentTypeError(
                    f"{type(self).__name__} of {code_position(self.fun)}, argument {i}",
                    expected="a value that is not traced, since it is in nondiff_argnums",
                    got=repr(args[i]),
                    mend="pass it as a differentiable argument and return a zero derivative for it",
                )
        static = [args[i] for i in sorted(places)]
        dynamic = [x for i, x in enumerate(args) if i not in places]

        def call(fun: Callable, values: Sequence[Any]) -> Any:
            given = iter(values)
            return fun(*(args[i] if i in places else next(given) for i in range(len(args))))

        return static, dynamic, call


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

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable | None = None
        self.symbolic_zeros = False

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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = _resolve(self.fun, args, kwargs)
        if self.jvp is None:
            raise TraceError(
                f"call of {code_position(self.fun)}",
                expected="a custom_jvp function with a rule",
                got="none",
                mend="define it with defjvp or defjvps",
            )
        if state.trace is None:
            return self.fun(*args)
        static, dynamic, call = self._split(args)
        leaves, tree = tree_flatten(dynamic)
        trees: list = []

        def fun(*xs: Any) -> list:
            out, out_tree = tree_flatten(call(self.fun, tree_unflatten(tree, xs)))
            trees[:] = [out_tree]
            return out

        fun.__name__ = self.fun.__name__ if hasattr(self.fun, "__name__") else "custom_jvp"
        rule = functools.partial(self._apply_rule, static, tree, trees)
        out = custom_jvp_call_p(*leaves, fun=fun, rule=rule, num_consts=0)
        return tree_unflatten(trees[0], out)

    def _apply_rule(
        self, static: list, tree: Any, trees: list, primals: Sequence[Any], tangents: Sequence[Any]
    ) -> tuple:
        if self.symbolic_zeros:
            shown = [SymbolicZero(t.aval) if type(t) is Zero else t for t in tangents]
        else:
            shown = [instantiate(t) for t in tangents]
        result = self.jvp(*static, tuple(tree_unflatten(tree, primals)), tuple(tree_unflatten(tree, shown)))
        where = f"jvp rule of {code_position(self.fun)}"
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise ArgumentTypeError(
                where, expected="a pair (result, tangent)", got=repr(result), mend="return (result, tangent)"
            )
        out, out_tree = tree_flatten(result[0])
        trees[:] = [out_tree]
        out_dot = _derivative_leaves(result[1], result[0])
        if out_dot is None:
            raise TreeError(
                where,
                expected=f"a tangent with the structure of the result, {out_tree}",
                got=str(tree_flatten(result[1])[1]),
                mend="return one tangent for each leaf of the result",
            )
        return out, [_checked_tangent(where, y, t) for y, t in zip(out, out_dot, strict=True)]


def _derivative_leaves(given: Any, like: Any) -> list | None:
    """What a rule returned for each leaf of `like`, None standing for zeros; None if the structures differ."""
    leaves, tree = tree_flatten(given, is_leaf=lambda x: x is None or type(x) is SymbolicZero)
    try:
        places = [tree_flatten(place) for place in tree.flatten_up_to(like)]
    except (ValueError, TypeError):
        return None
    if any(x is not None and not treedef_is_leaf(place) for x, (_, place) in zip(leaves, places, strict=True)):
        return None
    return [x for x, (under, _) in zip(leaves, places, strict=True) for _ in under]


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

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Callable | None = None
        self.bwd: Callable | None = None
        self.symbolic_zeros = False

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Set the rules: `fwd(*args) -> (result, residuals)`, `bwd(*nondiff, residuals, cotangent) -> cotangents`."""
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = _resolve(self.fun, args, kwargs)
        if self.fwd is None or self.bwd is None:
            raise TraceError(
                f"call of {code_position(self.fun)}",
                expected="a custom_vjp function with rules",
                got="none",
                mend="define them with defvjp",
            )
        if state.trace is None:
            return self.fun(*args)
        static, dynamic, call = self._split(args)
        leaves, tree = tree_flatten(dynamic)
        trees: list = []
        residual_trees: list = []

        def fun(*xs: Any) -> list:
            out, out_tree = tree_flatten(call(self.fun, tree_unflatten(tree, xs)))
            trees[:] = [out_tree]
            return out

        def fwd(xs: Sequence[Any], perturbed: tuple) -> tuple:
            if self.symbolic_zeros:
                xs = [_CustomPrimal(x, p) for x, p in zip(xs, perturbed, strict=True)]
            result = call(self.fwd, tree_unflatten(tree, xs))
            if not isinstance(result, tuple | list) or len(result) != 2:
                raise ArgumentTypeError(
                    f"fwd rule of {code_position(self.fun)}",
                    expected="a pair (result, residuals)",
                    got=repr(result),
                    mend="return (result, residuals)",
                )
            out, out_tree = tree_flatten(result[0])
            residuals, residual_tree = tree_flatten(result[1])
            trees[:] = [out_tree]
            residual_trees[:] = [residual_tree]
            return out, residuals

        def bwd(residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple) -> list:
            return self._apply_bwd(static, tree, trees[0], residual_trees[0], leaf_avals, residuals, cts)

        leaf_avals = [aval_of(x) for x in leaves]
        fun.__name__ = self.fun.__name__ if hasattr(self.fun, "__name__") else "custom_vjp"
        out = custom_vjp_call_p(*leaves, fun=fun, fwd=fwd, bwd=bwd, num_consts=0)
        return tree_unflatten(trees[0], out)

    def _apply_bwd(
        self,
        static: list,
        tree: Any,
        out_tree: Any,
        residual_tree: Any,
        avals: Sequence[ShapedArray],
        residuals: Sequence[Any],
        cts: Sequence[Any],
    ) -> list:
        shown = [SymbolicZero(c.aval) if self.symbolic_zeros and type(c) is Zero else instantiate(c) for c in cts]
        result = self.bwd(*static, tree_unflatten(residual_tree, residuals), tree_unflatten(out_tree, shown))
        where = f"bwd rule of {code_position(self.fun)}"
        arguments = tree_unflatten(tree, avals)
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
        for i, (x_bar, argument) in enumerate(zip(result, arguments, strict=True)):
            out.extend(_flat_cotangents(f"{where}, cotangent {i}", x_bar, argument))
        return out


def _flat_cotangents(where: str, x_bar: Any, argument: Any) -> list:
    """The flat cotangents of one argument."""
    avals, tree = tree_flatten(argument)
    flat = _derivative_leaves(x_bar, argument)
    if flat is None:
        raise TreeError(
            where,
            expected=f"the structure of the argument, {tree}",
            got=str(tree_flatten(x_bar)[1]),
            mend="return a cotangent for each leaf of the argument",
        )
    return [_checked_cotangent(where, a, c) for a, c in zip(avals, flat, strict=True)]


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


class _CustomPrimal:
    """A primal with the fact whether it is differentiated, as `fwd` sees it with `symbolic_zeros=True`."""

    __slots__ = ("perturbed", "value")

    def __init__(self, value: Any, perturbed: bool):
        self.value, self.perturbed = value, perturbed


def custom_gradient(fun: Callable) -> Callable:
    """A function that returns its value together with its gradient function.

    Args:
      fun: takes arrays and returns `(result, vjp)`, where `vjp(cotangent)` gives the cotangents of the arguments.

    Returns:
      A function that returns the result and differentiates as `vjp` says.

    Examples:
      >>> import phalanx
      >>> f = phalanx.custom_gradient(lambda x: (x * x, lambda y_bar: 10 * y_bar))
      >>> float(phalanx.grad(f)(3.0))
      10.0
    """

    @boundary
    @functools.wraps(fun)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        held: list = []

        def primal(*xs: Any) -> Any:
            return fun(*xs, **kwargs)[0]

        def fwd(*xs: Any) -> tuple:
            out, rule = fun(*xs, **kwargs)
            leaves, tree = tree_flatten(out)
            program = stage(
                lambda *c: tree_flatten(_as_tuple(rule(tree_unflatten(tree, c)), len(xs)))[0],
                [aval_of(x).to_tangent() for x in leaves],
                "custom_gradient",
            )
            held[:] = [program.replace(consts=())]
            return out, program.consts

        def bwd(consts: Any, ct: Any) -> Any:
            flat = run_program(held[0].replace(consts=consts), *tree_flatten(ct)[0])
            return tree_unflatten(tree_flatten(tuple(args))[1], flat)

        function = custom_vjp(primal)
        function.defvjp(fwd, bwd)
        return function(*args)

    return with_gradient


def _as_tuple(x: Any, count: int) -> tuple:
    return tuple(x) if isinstance(x, tuple | list) and len(x) == count else (x,)


def closure_convert(fun: Callable, *example_args: Any) -> tuple[Callable, list]:
    """A function without closed-over traced values, and these as further arguments.

    Args:
      fun: a function that may close over values of a transformation around it.
      example_args: arguments of the types it will be called with.

    Returns:
      `(converted, consts)`, such that `converted(*args, *consts)` is `fun(*args)`.

    Examples:
      >>> import phalanx
      >>> f, consts = phalanx.closure_convert(lambda x: 2.0 * x, 1.0)
      >>> float(f(3.0, *consts))
      6.0
    """
    leaves, tree = tree_flatten(example_args)
    trees: list = []

    def flat(*xs: Any) -> list:
        out, out_tree = tree_flatten(fun(*tree_unflatten(tree, xs)))
        trees.append(out_tree)
        return out

    program = stage(flat, [aval_of(x) for x in leaves], getattr(fun, "__name__", "fn"))
    hoistable = [isinstance(c, Tracer) and dtypes.issubdtype(c.dtype, dtypes.inexact) for c in program.consts]
    consts = [c for c, h in zip(program.consts, hoistable, strict=True) if h]

    def converted(*args: Any) -> Any:
        count = len(args) - len(consts)
        given = iter(args[count:])
        values = [next(given) if h else c for c, h in zip(program.consts, hoistable, strict=True)]
        flat_args, _ = tree_flatten(args[:count])
        return tree_unflatten(trees[0], run_program(program.replace(consts=values), *flat_args))

    return converted, consts
