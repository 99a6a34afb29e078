"""Dispatch of ufuncs: from the types of the operands to a plan, which is then a dictionary lookup.

A plan brings the operands to one dtype and shape and calls a primitive or a function from `ufunc_implementations`. If
the operands need no conversion, the plan is the primitive itself, so that a call costs a lookup and a `bind`. Any other
plan runs as one compiled program when called eagerly. `ufunc_table` declares the ufuncs; `array_methods` builds the
operators of arrays, which share the plans.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from phalanx.core import DTypeError, Primitive, UnsupportedArgumentError, current_scope, dtypes, state, trace_to_jaxpr
from phalanx.engine import Cache, hide_frames, mark_api_boundary
from phalanx.numpy.operands import (
    SCALAR_KINDS,
    aval_or_scalar_type,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    check_rank_promotion,
    refuse_out,
    result_dtype,
    to_numpy_scalar,
    unwrap_array_like,
)
from phalanx.runtime import Array, CompiledCall, compile_call, eager_jit, explain_failure, scalar_array
from phalanx.typing import ArrayLike, DTypeLike

CLASS_NAMES = {"b": "boolean", "i": "integer", "f": "real floating", "c": "complex", "x": "random key"}


def dtype_class(dtype: DTypeLike) -> str:
    """The class of a dtype in the tables: b, i, f or c, and x for extended dtypes such as random keys."""
    kind = dtype.kind
    if kind in "bifc":
        return kind
    if kind == "u":
        return "i"
    if dtypes.issubdtype(dtype, dtypes.extended):
        return "x"
    return "f" if dtypes.issubdtype(dtype, np.floating) else "i"


def keep_dtype(dtype: DTypeLike) -> Any:
    """Compute in the promoted dtype."""
    return dtype


to_inexact = dtypes.to_inexact_dtype


def promote_bools(dtype: DTypeLike) -> Any:
    """Compute in the promoted dtype, with booleans as the default integer dtype."""
    return dtypes.canonicalize_dtype(np.int64) if dtype == np.bool_ else dtype


class UfuncRule:
    """The dtypes that a ufunc accepts and the function it calls for each.

    Args:
      name: name of the ufunc.
      classes: the accepted classes of dtypes, as letters (see `dtype_class`).
      compute: maps the promoted dtype to the dtype of the computation.
      functions: the primitive or implementation per class; the key `""` is the default.
      strong: whether the result has a strong type even if all operands are weak.
    """

    __slots__ = ("classes", "compute", "functions", "name", "strong")

    def __init__(
        self, name: str, classes: str, compute: Callable, functions: Mapping[str, Callable], strong: bool = False
    ):
        self.name, self.classes, self.compute, self.functions, self.strong = name, classes, compute, functions, strong

    def choose(self, dtype: np.dtype) -> tuple[Callable, Any]:
        """The function for a promoted dtype, and the dtype of the computation.

        Raises:
          DTypeError: the ufunc does not accept this dtype.
        """
        if dtype_class(dtype) not in self.classes:
            wanted = " or ".join(CLASS_NAMES[c] for c in self.classes)
            raise DTypeError(
                self.name, expected=f"{wanted} operands", got=str(dtype), fix="convert the operand with .astype"
            )
        to = self.compute(dtype)
        functions = self.functions
        if dtypes.issubdtype(to, np.unsignedinteger) and "u" in functions:
            return functions["u"], to
        return functions.get(dtype_class(to)) or functions[""], to


class _Step:
    """The conversion of one operand in a plan: a cast and a broadcast, each of which may be None."""

    __slots__ = ("dtype", "shape", "weak")

    def __init__(self, dtype: np.dtype, weak: bool, shape: tuple | None):
        self.dtype, self.weak, self.shape = dtype, weak, shape

    def __call__(self, x: Array) -> Any:
        if self.dtype is not None:
            x = cast(x, self.dtype, self.weak)
        return x if self.shape is None else broadcast_to_shape(x, self.shape)


class _Plan:
    """A function and the steps that prepare its operands."""

    __slots__ = ("function", "steps")

    def __init__(self, function: Callable, steps: tuple):
        self.function, self.steps = function, steps


@eager_jit(static_argnames=("plan",))
def _follow(plan: _Plan, *xs: Any) -> Any:
    return plan.function(*[x if step is None else step(x) for step, x in zip(plan.steps, xs)])


def plan(rule: UfuncRule, xs: tuple, kinds: tuple) -> Callable:
    """Plan a call with operands of these types: conversions, and the primitive or implementation to call."""
    # Arrays take part in promotion by their abstract values, Python scalars by themselves.
    dtype, weak = result_dtype([x if k in SCALAR_KINDS else k for x, k in zip(xs, kinds)])
    function, to = rule.choose(dtype)
    # A primitive broadcasts operands of rank 0 by itself.
    direct = isinstance(function, Primitive)
    shapes = [() if k in SCALAR_KINDS else k.shape for k in kinds]
    shape = broadcast_shapes(*shapes, where=rule.name)
    check_rank_promotion(rule.name, shapes)
    steps = tuple(_step(k, to, weak, shape, direct) for k in kinds)
    arrays = tuple(s if type(s) is _Step else None for s in steps)
    if not direct:
        function = functools.partial(_call_with_weak_type, function, weak and not rule.strong)
    # A primitive whose operands need no conversion is called directly, without a plan in between.
    if not direct or any(arrays):
        function = functools.partial(_follow, _Plan(function, arrays))
    # Python scalars are converted outside of the program, which gets them as NumPy ones.
    return _with_scalars(function, tuple(None if type(s) is _Step else s for s in steps))


def _call_with_weak_type(function: Callable, weak: bool, *xs: Any) -> Any:
    """Call an implementation and fix the weak type of its result, which would otherwise depend on its constants."""
    out = function(*xs)
    return tuple(_as_weak(y, weak) for y in out) if type(out) is tuple else _as_weak(out, weak)


def _as_weak(x: Array, weak: bool) -> Any:
    return x if x.dtype == np.bool_ else cast(x, x.dtype, weak)


def _step(kind: DTypeLike | tuple[DTypeLike, ...], to: Any, weak: bool, shape: tuple, direct: bool) -> Any:
    # A Python scalar passes unchanged if its default dtype is right. A weak result keeps it a Python number of the
    # promoted kind, so that the type stays weak; otherwise it becomes a NumPy scalar of the dtype.
    if kind in SCALAR_KINDS:
        if dtypes.canonicalize_dtype(kind) == to:
            return None
        if weak and to == dtypes.canonicalize_dtype(float):
            return float
        if weak and to == dtypes.canonicalize_dtype(complex):
            return complex
        return functools.partial(to_numpy_scalar, dtype=to)
    dtype = to if kind.dtype != to else None
    target = None if kind.shape == shape or (direct and not kind.shape) else shape
    return None if dtype is None and target is None else _Step(dtype, weak, target)


def _with_scalars(function: Callable, steps: tuple) -> Callable:
    """A function with a conversion of each Python scalar before the call."""
    if not any(steps):
        return function
    if len(steps) == 1:
        (convert,) = steps
        return lambda x: function(convert(x))
    left, right = steps
    if left is None:
        return lambda x, y: function(x, right(y))
    if right is None:
        return lambda x, y: function(left(x), y)
    return lambda x, y: function(left(x), right(y))


def _is_lossless_scalar(dtype: np.dtype, scalar: Any, kind: type) -> bool:
    """Whether a scalar and an array of `dtype` can take the direct path: the scalar converts without loss."""
    if kind is int:
        # A small integer is exact in every dtype, and its type does not depend on its value.
        return dtype.kind in "ifcb" and -128 <= scalar <= 127
    return (kind in SCALAR_KINDS and dtypes.canonicalize_dtype(kind) == dtype) or (
        issubclass(kind, np.generic) and np.dtype(kind) == dtype
    )


def _refuse(name: str, out: None, where: ArrayLike | None) -> None:
    refuse_out(out, name)
    raise UnsupportedArgumentError(
        f"{name}, argument where",
        expected="None, since arrays do not change",
        got=str(where),
        fix=f"choose with phalanx.numpy.where(mask, {name}(...), other)",
    )


def _slow_kind(x: Array, name: str) -> tuple[Any, Any]:
    x = unwrap_array_like(x)
    return x, aval_or_scalar_type(x, name)


def cache_eager_calls(fun: Callable, name: str) -> Cache:
    """A cache of compiled eager calls of a function, by the types of its array arguments and the context.

    A missing entry is compiled when it is looked up. That happens inside the cache and not in a handler of `KeyError`,
    which would show up as the context of errors that the user's arguments cause. An entry is None if a call of the
    function is more than one execution, so that there is no direct path.

    Args:
      fun: a function of arrays that returns one array.
      name: its name in errors and profiles.
    """

    def compile_for(key: tuple) -> CompiledCall | None:
        *types, context = key
        if context.disable_jit:
            return None
        program = trace_to_jaxpr(lambda *xs: [fun(*xs)], [t.aval for t in types], name)
        call = compile_call(program, types, name)
        return call if call.is_direct else None

    return Cache("numpy.eager_ufuncs", 4096, make=compile_for)


def make_unary_ufunc(rule: UfuncRule) -> Callable:
    """Make the ufunc of one operand that a rule describes."""
    plans: Cache[tuple, Callable] = Cache("numpy.ufunc_plans", 4096)
    name = rule.name

    def ufunc(x: Array, /, *, out: None = None, where: None = None) -> Any:
        try:
            if out is not None or where is not None:
                _refuse(name, out, where)
            # The direct path: one dictionary lookup and one execution, without tracing, dispatch or a plan.
            if (
                state.trace is None
                and type(x) is Array
                and (call := find_call((x._type, current_scope().context))) is not None
            ):
                try:
                    return call.run_one([x._buffer])
                except Exception as error:
                    explain_failure(error, (x,))
                    raise
            # The part of the operand that the plan depends on: its abstract value, or the class of a Python scalar.
            kind = getattr(x, "aval", None)
            if kind is None:
                kind = type(x)
                if kind not in SCALAR_KINDS:
                    x, kind = _slow_kind(x, name)
            key = (kind, current_scope().context)
            run = plans.get(key)
            if run is None:
                run = plans[key] = plan(rule, (x,), (kind,))
            return run(x)
        except Exception as error:
            hide_frames(error)
            raise

    find_call = cache_eager_calls(ufunc, name).get
    ufunc.nin, ufunc.nout, ufunc.rule = 1, 1, rule  # type: ignore[attr-defined]
    return ufunc


def make_binary_ufunc(rule: UfuncRule) -> Callable:
    """Make the ufunc of two operands that a rule describes."""
    plans: Cache[tuple, Callable] = Cache("numpy.ufunc_plans", 4096)
    name = rule.name

    def ufunc(x1: Any, x2: Any, /, *, out: None = None, where: None = None) -> Any:
        try:
            if out is not None or where is not None:
                _refuse(name, out, where)
            left = getattr(x1, "aval", None)
            if left is None:
                left = type(x1)
                if left not in SCALAR_KINDS:
                    x1, left = _slow_kind(x1, name)
            right = getattr(x2, "aval", None)
            if right is None:
                right = type(x2)
                if right not in SCALAR_KINDS:
                    x2, right = _slow_kind(x2, name)
            key = (left, right, current_scope().context)
            run = plans.get(key)
            if run is None:
                run = plans[key] = plan(rule, (x1, x2), (left, right))
            return run(x1, x2)
        except Exception as error:
            hide_frames(error)
            raise

    ufunc.nin, ufunc.nout, ufunc.rule, ufunc.plans = 2, 1, rule, plans  # type: ignore[attr-defined]
    return ufunc


_DOC = """{doc}

    Args:
      {args}
      out, where: must be None; arrays are immutable.

    Returns:
      The elementwise result{shapes}.

    Raises:
      UnsupportedArgumentError: `out` or `where` is given.
      DTypeError: the dtype of an operand is not one of: {classes}.

    Examples:
      {example}
    """


def make_ufunc(rule: UfuncRule, parameters: str, home: str, doc: str, example: str) -> Callable:
    """Make a public ufunc: with its name, parameter names and documentation.

    Args:
      rule: the dtypes and functions of the ufunc.
      parameters: names of the operands, separated by spaces; `"/"` at the end makes them positional-only.
      home: name of the public module.
      doc: first line of the documentation.
      example: a doctest of it.
    """
    names = tuple(parameters.removesuffix("/").split())
    one = len(names) == 1
    function: Any = make_unary_ufunc(rule) if one else make_binary_ufunc(rule)
    # The parameter names of NumPy are part of the API: some are positional-only, some are keywords.
    code = function.__code__
    # The parameters are renamed in the code object. A wrapper would cost a tenth of an eager operation.
    function.__code__ = code.replace(
        co_varnames=names + code.co_varnames[len(names) :],
        co_posonlyargcount=len(names) if parameters.endswith("/") else 0,
    )
    function.__name__ = function.__qualname__ = rule.name
    function.__module__ = home
    function.__doc__ = _DOC.format(
        doc=doc,
        example=example,
        args=f"{names[0]}: an array or a scalar."
        if one
        else f"{', '.join(names)}: arrays or scalars that broadcast to one shape.",
        shapes="" if one else ", in the broadcast shape",
        classes=", ".join(CLASS_NAMES[c] for c in rule.classes),
    )
    return mark_api_boundary(function)


def is_operand(x: ArrayLike) -> bool:
    """Whether an operator accepts `x`; otherwise it returns NotImplemented, and Python asks the type of `x`."""
    if isinstance(x, np.ndarray | np.generic | bool | int | float | complex):
        return True
    return hasattr(x, "__phalanx_array__") or hasattr(x, "__jax_array__")


def make_eager_binary(function: Callable, name: str) -> Callable:
    """A direct call of a function of two concrete arrays. It returns None if one execution is not enough."""
    find_call = cache_eager_calls(function, name).get

    def run(x: Array, y: Array) -> Any:
        call = find_call((x._type, y._type, current_scope().context))
        if call is None:
            return None
        try:
            return call.run_one([x._buffer, y._buffer])
        except Exception as error:
            explain_failure(error, (x, y))
            raise

    return run


def make_operators(ufunc: Callable) -> tuple[Callable, Callable]:
    """The operator and the reflected operator of a binary ufunc, which share its plans."""
    return _make_operator(ufunc), _make_reflected_operator(ufunc)


def _make_operator(ufunc: Callable) -> Callable:
    rule, plans = ufunc.rule, ufunc.plans  # type: ignore[attr-defined]
    eagerly = make_eager_binary(ufunc, rule.name)

    def operator(self: Array, other: object) -> Any:
        try:
            # The direct path for two arrays, or an array and a scalar that converts without loss.
            if state.trace is None and type(self) is Array:
                kind = type(other)
                operand = (
                    other
                    if kind is Array
                    else scalar_array(other)
                    if _is_lossless_scalar(self.dtype, other, kind)
                    else None
                )
                if operand is not None and (out := eagerly(self, operand)) is not None:
                    return out
            b = getattr(other, "aval", None)
            if b is None:
                b = type(other)
                if b not in SCALAR_KINDS:
                    return ufunc(self, other) if is_operand(other) else NotImplemented
            key = (self.aval, b, current_scope().context)
            run = plans.get(key)
            if run is None:
                run = plans[key] = plan(rule, (self, other), key[:2])
            return run(self, other)
        except Exception as error:
            hide_frames(error)
            raise

    return mark_api_boundary(operator)


def _make_reflected_operator(ufunc: Callable) -> Callable:
    rule, plans = ufunc.rule, ufunc.plans  # type: ignore[attr-defined]

    def reflected(self: Array, other: object) -> Any:
        b = type(other)
        if b not in SCALAR_KINDS:
            return ufunc(other, self) if hasattr(other, "aval") or is_operand(other) else NotImplemented
        key = (b, self.aval, current_scope().context)
        run = plans.get(key)
        if run is None:
            run = plans[key] = plan(rule, (other, self), key[:2])
        return run(other, self)

    return reflected
