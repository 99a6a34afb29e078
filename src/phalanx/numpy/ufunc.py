"""What a ufunc is: a function that plans how operands of given types meet, once, and then follows the plan.

The plan for arrays whose dtypes and shapes already fit is the primitive itself, so that such a call is a look-up and a
bind; any other plan runs as one program when called eagerly. `ufuncs.py` holds the tables that this file turns into
functions, `operators.py` the operators of arrays, which share the plans.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, DTypeError
from phalanx.core.primitive import Primitive
from phalanx.core.trace import stage
from phalanx.engine.frames import as_boundary, hide_frames
from phalanx.numpy.operands import (
    SCALAR_KINDS,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    check_rank_promotion,
    kind_of,
    refuse_out,
    result_dtype,
    scalar_of,
    unwrapped,
)
from phalanx.runtime.array import Array
from phalanx.runtime.dispatch import Call, eager_program, explain_failure, prepare
from phalanx.runtime.placement import scalar_array

CLASS_NAMES = {"b": "boolean", "i": "integer", "f": "real floating", "c": "complex", "x": "random key"}


def class_of(dtype: Any) -> str:
    """The class of a dtype: b, i, f or c; x for an extended one."""
    kind = dtype.kind
    if kind in "bifc":
        return kind
    if kind == "u":
        return "i"
    if dtypes.issubdtype(dtype, dtypes.extended):
        return "x"
    return "f" if dtypes.issubdtype(dtype, np.floating) else "i"


def same(dtype: Any) -> Any:
    """Compute in the dtype that the operands promote to."""
    return dtype


inexact = dtypes.to_inexact_dtype


def bools_as_ints(dtype: Any) -> Any:
    """Compute in that dtype, with booleans as the default integer."""
    return dtypes.canonicalize_dtype(np.int64) if dtype == np.bool_ else dtype


class Rule:
    """How a ufunc treats dtypes.

    Args:
      name: the ufunc.
      classes: the classes of dtypes it takes.
      compute: from the promoted dtype to the one it computes in.
      functions: the primitive or function for a class of dtypes, `""` for the classes not named.
      strong: whether the result has a strong type even where all operands are weak.
    """

    __slots__ = ("classes", "compute", "functions", "name", "strong")

    def __init__(
        self, name: str, classes: str, compute: Callable, functions: Mapping[str, Callable], strong: bool = False
    ):
        self.name, self.classes, self.compute, self.functions, self.strong = name, classes, compute, functions, strong

    def choose(self, dtype: Any) -> tuple[Callable, Any]:
        """The function for a promoted dtype, and the dtype it computes in.

        Raises:
          DTypeError: the ufunc does not take this dtype.
        """
        found = class_of(dtype)
        if found not in self.classes:
            wanted = " or ".join(CLASS_NAMES[c] for c in self.classes)
            raise DTypeError(
                self.name, expected=f"{wanted} operands", got=str(dtype), mend="convert the operand with .astype"
            )
        to = self.compute(dtype)
        functions = self.functions
        if dtypes.issubdtype(to, np.unsignedinteger) and "u" in functions:
            return functions["u"], to
        return functions.get(class_of(to)) or functions[""], to


class _Step:
    """What a plan does to one operand: bring it to a dtype and a shape, where these are not None."""

    __slots__ = ("dtype", "shape", "weak")

    def __init__(self, dtype: Any, weak: bool, shape: tuple | None):
        self.dtype, self.weak, self.shape = dtype, weak, shape

    def __call__(self, x: Any) -> Any:
        if self.dtype is not None:
            x = cast(x, self.dtype, self.weak)
        return x if self.shape is None else broadcast_to_shape(x, self.shape)


class _Plan:
    """A function and the steps that prepare its operands."""

    __slots__ = ("function", "steps")

    def __init__(self, function: Callable, steps: tuple):
        self.function, self.steps = function, steps


@eager_program(static_argnames=("plan",))
def _follow(plan: _Plan, *xs: Any) -> Any:
    return plan.function(*[x if step is None else step(x) for step, x in zip(plan.steps, xs)])


def plan(rule: Rule, xs: tuple, kinds: tuple) -> Callable:
    """Decide how operands of these types are brought together."""
    if all(k in SCALAR_KINDS for k in kinds):
        dtype, weak = result_dtype(xs)
    else:
        dtype, weak = result_dtype([x if k in SCALAR_KINDS else k for x, k in zip(xs, kinds)])
    function, to = rule.choose(dtype)
    direct = isinstance(function, Primitive)
    shapes = [() if k in SCALAR_KINDS else k.shape for k in kinds]
    shape = broadcast_shapes(*shapes, where=rule.name)
    check_rank_promotion(rule.name, shapes)
    steps = tuple(_step(k, to, weak, shape, direct) for k in kinds)
    arrays = tuple(s if type(s) is _Step else None for s in steps)
    if not direct:
        function = functools.partial(_typed, function, weak and not rule.strong)
    if not direct or any(arrays):
        function = functools.partial(_follow, _Plan(function, arrays))
    # Python scalars are converted outside of the program, which gets them as NumPy ones.
    return _with_scalars(function, tuple(None if type(s) is _Step else s for s in steps))


def _typed(function: Callable, weak: bool, *xs: Any) -> Any:
    """A composite function of operands of one type; that of its result would hang on its constants."""
    out = function(*xs)
    return tuple(_as_weak(y, weak) for y in out) if type(out) is tuple else _as_weak(out, weak)


def _as_weak(x: Any, weak: bool) -> Any:
    return x if x.dtype == np.bool_ else cast(x, x.dtype, weak)


def _step(kind: Any, to: Any, weak: bool, shape: tuple, direct: bool) -> Any:
    if kind in SCALAR_KINDS:
        if dtypes.canonicalize_dtype(kind) == to:
            return None
        if weak and to == dtypes.canonicalize_dtype(float):
            return float
        if weak and to == dtypes.canonicalize_dtype(complex):
            return complex
        return functools.partial(_as_scalar, dtype=to)
    dtype = to if kind.dtype != to else None
    own = kind.shape
    target = None if own == shape or (direct and not own) else shape
    return None if dtype is None and target is None else _Step(dtype, weak, target)


def _as_scalar(x: Any, dtype: Any) -> Any:
    return scalar_of(x, dtype)


def _with_scalars(function: Callable, steps: tuple) -> Callable:
    """The primitive, with Python scalars converted on the way."""
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


def _meets(dtype: Any, scalar: Any, kind: type) -> bool:
    """Whether a scalar may be placed in its own dtype before it meets an array of `dtype`, losing nothing."""
    if kind is int:
        return dtype.kind in "ifcb" and -128 <= scalar <= 127
    return (kind in SCALAR_KINDS and dtypes.canonicalize_dtype(kind) == dtype) or (
        issubclass(kind, np.generic) and np.dtype(kind) == dtype
    )


def _refuse(name: str, out: Any, where: Any) -> None:
    refuse_out(out, name)
    raise ArgumentError(
        f"{name}, argument where", expected="None, since arrays do not change", got=str(where),
        mend=f"choose with phalanx.numpy.where(mask, {name}(...), other)",
    )  # fmt: skip


def _slow_kind(x: Any, name: str) -> tuple[Any, Any]:
    x = unwrapped(x)
    return x, kind_of(x, name)


class Shortcuts(dict):
    """The direct calls of a function of arrays that gives an array, by the types of the arrays and the context.

    Looking one up compiles it where it is missing, with no `KeyError` that would show in the user's errors. It is None
    where calling the function is more than one execution with one result.

    Args:
      fun: the function.
      name: what it is called in messages and profiles.
    """

    def __init__(self, fun: Callable, name: str):
        self.fun, self.name = fun, name

    def __missing__(self, key: tuple) -> Call | None:
        *types, context = key
        call = None
        if not context.disable_jit:
            program = stage(lambda *xs: [self.fun(*xs)], [t.aval for t in types], self.name)
            call = prepare(program, types, self.name)
        self[key] = call = call if call is not None and call.is_direct else None
        return call


def unary(rule: Rule) -> Callable:
    """The ufunc of one operand that a rule describes."""
    plans: dict[tuple, Callable] = {}
    name = rule.name

    def ufunc(x: Any, /, *, out: None = None, where: None = None) -> Any:
        try:
            if out is not None or where is not None:
                _refuse(name, out, where)
            if state.trace is None and type(x) is Array and (way := shortcuts[x._type, state.context]) is not None:
                try:
                    return Array(way.run([x._buffer]).consume_with_handlers(way.handlers)[0], way.out_types[0])
                except Exception as error:
                    explain_failure(error, (x,))
                    raise
            kind = getattr(x, "aval", None)
            if kind is None:
                kind = type(x)
                if kind not in SCALAR_KINDS:
                    x, kind = _slow_kind(x, name)
            key = (kind, state.context)
            run = plans.get(key)
            if run is None:
                run = plans[key] = plan(rule, (x,), (kind,))
            return run(x)
        except Exception as error:
            hide_frames(error)
            raise

    shortcuts = Shortcuts(ufunc, name)
    ufunc.nin, ufunc.nout, ufunc.rule = 1, 1, rule  # type: ignore[attr-defined]
    return ufunc


def binary(rule: Rule) -> Callable:
    """The ufunc of two operands that a rule describes."""
    plans: dict[tuple, Callable] = {}
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
            key = (left, right, state.context)
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
      out, where: must be None.

    Returns:
      The result for each element{shapes}.

    Raises:
      ArgumentError: `out` or `where` is given.
      DTypeError: an operand has a dtype outside: {classes}.

    Examples:
      {example}
    """


def elementwise(rule: Rule, parameters: str, home: str, doc: str, example: str) -> Callable:
    """The ufunc that a rule describes, under the names that its operands have.

    Args:
      rule: how it treats dtypes.
      parameters: the name of its one operand or of its two; `"/"` after them where these cannot be given by name.
      home: the module that shows it.
      doc: what it gives.
      example: a use and its result, as doctest has them.
    """
    names = tuple(parameters.removesuffix("/").split())
    one = len(names) == 1
    function: Any = unary(rule) if one else binary(rule)
    code = function.__code__
    # Renamed, not wrapped: a call within a call would cost a tenth of an eager operation.
    function.__code__ = code.replace(
        co_varnames=names + code.co_varnames[len(names) :],
        co_posonlyargcount=len(names) if parameters.endswith("/") else 0,
    )
    function.__name__ = function.__qualname__ = rule.name
    function.__module__ = home
    function.__doc__ = _DOC.format(
        doc=doc, example=example, args=f"{names[0]}: an array or a scalar." if one else
        f"{', '.join(names)}: arrays or scalars that broadcast to one shape.",
        shapes="" if one else ", in the broadcast shape", classes=", ".join(CLASS_NAMES[c] for c in rule.classes),
    )  # fmt: skip
    return as_boundary(function)


def is_operand(x: Any) -> bool:
    """Whether an operator takes `x`, or leaves it to `x` to know what to do."""
    return isinstance(x, np.ndarray | np.generic | bool | int | float | complex) or hasattr(x, "__phalanx_array__")


def at_once(function: Callable, name: str) -> Callable:
    """A function of two arrays that runs at once; it gives None where there is more to do than one execution."""
    shortcuts = Shortcuts(function, name)

    def run(x: Any, y: Any) -> Any:
        way = shortcuts[x._type, y._type, state.context]
        if way is None:
            return None
        try:
            out = way.run([x._buffer, y._buffer]).consume_with_handlers(way.handlers)
        except Exception as error:
            explain_failure(error, (x, y))
            raise
        return Array(out[0], way.out_types[0])

    return run


def operators_of(ufunc: Callable) -> tuple[Callable, Callable]:
    """The operator and the reflected operator that share a binary ufunc's plans."""
    return _operator(ufunc), _reflected(ufunc)


def _operator(ufunc: Callable) -> Callable:
    rule, plans = ufunc.rule, ufunc.plans  # type: ignore[attr-defined]
    eagerly = at_once(ufunc, rule.name)

    def operator(self: Any, other: Any) -> Any:
        try:
            if state.trace is None and type(self) is Array:
                kind = type(other)
                met = other if kind is Array else scalar_array(other) if _meets(self.dtype, other, kind) else None
                if met is not None and (out := eagerly(self, met)) is not None:
                    return out
            b = getattr(other, "aval", None)
            if b is None:
                b = type(other)
                if b not in SCALAR_KINDS:
                    return ufunc(self, other) if is_operand(other) else NotImplemented
            a = self.aval
            key = (a, b, state.context)
            run = plans.get(key)
            if run is None:
                run = plans[key] = plan(rule, (self, other), (a, b))
            return run(self, other)
        except Exception as error:
            hide_frames(error)
            raise

    return as_boundary(operator)


def _reflected(ufunc: Callable) -> Callable:
    rule, plans = ufunc.rule, ufunc.plans  # type: ignore[attr-defined]

    def reflected(self: Any, other: Any) -> Any:
        b = type(other)
        if b not in SCALAR_KINDS:
            return ufunc(other, self) if hasattr(other, "aval") or is_operand(other) else NotImplemented
        a = self.aval
        key = (b, a, state.context)
        run = plans.get(key)
        if run is None:
            run = plans[key] = plan(rule, (other, self), (b, a))
        return run(other, self)

    return reflected
