"""Families: how an elementwise operation is declared in one line.

`unary`, `binary` and `compare` make a primitive of a StableHLO operation, the dtypes it takes, and its derivative. The
tables of `elementwise` and `special` are made with them. `match` is what lets a Python scalar meet an array.

A derivative is `LINEAR` or `ZERO`, or one function for each operand: from the tangent `t` of that operand, the operands
and the result to the tangent of the result. Only operands whose tangent is not zero are asked.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from phalanx.core.primitive import LINEAR, ZERO, Primitive, Roles, Undefined
from phalanx.core.tangent import Zero, add_tangents, is_linear
from phalanx.engine.mlir import hlo, per_context
from phalanx.lax.broadcast import ELEMENTWISE, broadcast_in_dim_p, dim_names, unbroadcast


class Kinds:
    """Kinds of dtypes that an operation takes.

    Args:
      words: how messages call them.
      members: some of bool, signed, unsigned, float, complex.
    """

    __slots__ = ("members", "words")

    def __init__(self, words: str, *members: str):
        self.words = words
        self.members = frozenset(members)


INEXACT = Kinds("a floating or complex dtype", "float", "complex")
FLOATING = Kinds("a floating dtype", "float")
COMPLEX = Kinds("a complex dtype", "complex")
NUMBER = Kinds("an integer, floating or complex dtype", "signed", "unsigned", "float", "complex")
SIGNED = Kinds("a signed integer, floating or complex dtype", "signed", "float", "complex")
REAL = Kinds("an integer or floating dtype", "signed", "unsigned", "float")
INTEGER = Kinds("an integer dtype", "signed", "unsigned")
BITS = Kinds("an integer or boolean dtype", "bool", "signed", "unsigned")
ORDERED = Kinds("a boolean, integer or floating dtype", "bool", "signed", "unsigned", "float")
EQUATED = Kinds("any dtype", "bool", "signed", "unsigned", "float", "complex", "extended")
ANY = Kinds("any numeric or boolean dtype", "bool", "signed", "unsigned", "float", "complex")

_bases = (
    ("bool", np.bool_), ("signed", np.signedinteger), ("unsigned", np.unsignedinteger), ("float", np.floating),
    ("complex", np.complexfloating),
)  # fmt: skip


@functools.cache
def kind_of(dtype: Any) -> str:
    """Which of bool, signed, unsigned, float, complex, extended a dtype is."""
    return next((kind for kind, base in _bases if dtypes.issubdtype(dtype, base)), "extended")


def check_kind(where: str, x: Any, kinds: Kinds) -> None:
    """Refuse an operand of another kind of dtype."""
    if kind_of(x.dtype) not in kinds.members:
        raise DTypeError(
            where,
            expected=f"an operand of {kinds.words}",
            got=x.str_short(),
            mend="convert it with lax.convert_element_type, or call the phalanx.numpy function, which promotes",
        )


def check_same_dtypes(where: str, avals: Sequence[ShapedArray]) -> None:
    """Refuse operands of different dtypes."""
    first = avals[0].dtype
    if any(a.dtype != first for a in avals):
        raise DTypeError(
            where,
            expected="operands of equal dtypes",
            got=", ".join(a.str_short() for a in avals),
            mend="convert one with lax.convert_element_type, or call the phalanx.numpy function, which promotes",
        )


def common_shape(where: str, avals: Sequence[ShapedArray]) -> tuple:
    """The shape of operands that all have it or rank 0."""
    shape: tuple = ()
    for a in avals:
        if a.shape and a.shape != shape:
            if shape:
                raise ShapeError(
                    where,
                    expected="operands of equal shapes, or of rank 0",
                    got=", ".join(a.str_short() for a in avals),
                    mend="broadcast one with lax.broadcast_in_dim, or call phalanx.numpy, which broadcasts",
                )
            shape = a.shape
    return shape


# Operations whose names Python keeps for itself.
_public_names = {name: f"bitwise_{name}" for name in ("and", "or", "xor", "not")}


def public_name(primitive: Primitive) -> str:
    """What users call the operation."""
    return _public_names.get(primitive.name, primitive.name)


class Elementwise(Primitive):
    """What all elementwise operations share; a subclass brings its operation, dtypes and derivative."""

    scalars_broadcast = True
    operation: Any = None
    kinds: Kinds = ANY

    def out_dtype(self, dtype: Any) -> Any:
        """The dtype of the result for operands of `dtype`."""
        return dtype

    def result(self, *avals: Any, **params: Any) -> Any:
        where = f"lax.{public_name(self)}"
        for a in avals:
            check_kind(where, a, self.kinds)
        check_same_dtypes(where, avals)
        shape = common_shape(where, avals)
        dtype = self.out_dtype(avals[0].dtype)
        if not isinstance(accuracy := params.get("accuracy"), Tolerance | AccuracyMode | None):
            raise ArgumentTypeError(
                f"{where} accuracy",
                expected="None, a lax.Tolerance or a lax.AccuracyMode",
                got=repr(accuracy),
                mend="write for example lax.AccuracyMode.HIGHEST",
            )
        return ShapedArray(shape, dtype, all(a.weak_type for a in avals) and dtype != np.bool_)

    def roles(self, *avals: Any, **params: Any) -> Roles:
        names = dim_names(max(a.ndim for a in avals))
        return Roles([names if a.ndim else [] for a in avals], [names])

    def lower(self, ctx: Any, *operands: Any, accuracy: Any = None) -> Any:
        if accuracy is None:
            return ctx.op(self.operation, *operands)
        return self.operation(*operands, result_accuracy=accuracy.attribute()).result

    batch = ELEMENTWISE


def shaped_like(t: Any, y: Any) -> Any:
    """A tangent of rank 0 repeated to the shape of the result whose tangent it is."""
    shape = aval_of(y).shape
    return broadcast_in_dim_p(t, shape=shape, dims=()) if shape and not t.ndim else t


def derived_jvp(*derivatives: Callable | Undefined) -> Callable:
    """A `jvp` rule: the sum of what each operand's tangent contributes."""

    def jvp(self: Primitive, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
        y = self(*primals, **params)
        y_dot: Any = None
        for derivative, t in zip(derivatives, tangents, strict=True):
            if type(t) is not Zero:
                if isinstance(derivative, Undefined):
                    _refuse_derivative(self, derivative)
                term = derivative(t, *primals, y)
                y_dot = term if y_dot is None else add_tangents(y_dot, term)
        return y, y_dot if type(y_dot) is Zero else shaped_like(y_dot, y)

    return jvp


def _refuse_derivative(primitive: Primitive, derivative: Undefined) -> None:
    derivative.rule = "jvp"
    derivative.__get__(primitive, type(primitive))()


def linear_in(*cotangents: Callable | None) -> Callable:
    """A `transpose` rule: for each operand its cotangent, from `y_bar` and the operands; None if never linear."""

    def transpose(self: Primitive, y_bar: Any, *operands: Any, **params: Any) -> tuple:
        return tuple(
            unbroadcast(rule(y_bar, *operands), x) if is_linear(x) and rule is not None else None
            for rule, x in zip(cotangents, operands, strict=True)
        )

    return transpose


def declare(name: str, base: type, doc: str, **members: Any) -> Any:
    """Make a primitive: a subclass of `base` with these members, and its instance."""
    title = "".join(word.capitalize() for word in name.split("_"))
    members = {k: v for k, v in members.items() if v is not None}
    return type(base)(
        title, (base,), {"__doc__": doc, "__module__": "phalanx.lax.elementwise", "name": name, **members}
    )()


def unary(
    name: str, operation: Any, kinds: Kinds, derivative: Any, *, transpose: Callable | None = None,
    lower: Callable | None = None, out_dtype: Callable | None = None, by_pieces: bool = False,
) -> Any:  # fmt: skip
    """Declare an elementwise operation of one operand.

    Args:
      name: what programs call it.
      operation: the StableHLO or CHLO operation; None where `lower` emits it.
      kinds: the dtypes it takes.
      derivative: LINEAR, ZERO, or a function of (t, x, y).
      transpose: a function of (y_bar, x) for linear operations.
      lower: the `lower` rule, where one operation is not enough.
      out_dtype: the dtype of the result from that of the operand, where they differ.
      by_pieces: whether several devices must be told to do their own piece each.
    """
    jvp = derivative if derivative in (LINEAR, ZERO) else derived_jvp(derivative)
    return declare(
        name, Elementwise, f"The elementwise operation {name}.", operation=operation, kinds=kinds, jvp=jvp, lower=lower,
        transpose=linear_in(transpose) if transpose else None,
        out_dtype=(lambda self, dtype: out_dtype(dtype)) if out_dtype else None, by_pieces=by_pieces,
    )  # fmt: skip


def binary(
    name: str, operation: Any, kinds: Kinds, dx: Any, dy: Any = None, *, transposes: Sequence[Callable | None] = (),
    lower: Callable | None = None, out_dtype: Callable | None = None, by_pieces: bool = False,
) -> Any:  # fmt: skip
    """Declare an elementwise operation of two operands.

    Args:
      name: what programs call it.
      operation: the StableHLO or CHLO operation; None where `lower` emits it.
      kinds: the dtypes it takes.
      dx: LINEAR (jointly), ZERO, or a function of (t, x, y, z), or Undefined with the reason.
      dy: likewise for the second operand.
      transposes: for each operand a function of (y_bar, x, y), or None where the operation is not linear in it.
      lower: the `lower` rule, where one operation is not enough.
      out_dtype: the dtype of the result from that of the operands, where they differ.
      by_pieces: whether several devices must be told to do their own piece each.
    """
    return declare(
        name, Elementwise, f"The elementwise operation {name}.", operation=operation, kinds=kinds, lower=lower,
        jvp=dx if dx in (LINEAR, ZERO) else derived_jvp(dx, dy),
        transpose=linear_in(*transposes) if transposes else None,
        out_dtype=(lambda self, dtype: out_dtype(dtype)) if out_dtype else None, by_pieces=by_pieces,
    )  # fmt: skip


@per_context
def _direction(direction: str) -> Any:
    return hlo.ComparisonDirectionAttr.get(direction)


@per_context
def _comparison(dtype: Any, total: bool) -> Any:
    kind = {"bool": "UNSIGNED", "unsigned": "UNSIGNED", "signed": "SIGNED", "extended": "UNSIGNED"}.get(kind_of(dtype))
    return hlo.ComparisonTypeAttr.get(kind or ("TOTALORDER" if total else "FLOAT"))


def emit_compare(x: Any, y: Any, direction: str, dtype: Any, total: bool = False) -> Any:
    """The IR of a comparison of operands of `dtype`; `total` orders NaNs and signed zeros too."""
    return hlo.compare(x, y, _direction(direction), compare_type=_comparison(dtype, total))


def compare(name: str, direction: str, kinds: Kinds, total: bool = False) -> Any:
    """Declare a comparison: any[*s], any[*s] -> bool[*s].

    Args:
      name: what programs call it.
      direction: EQ, NE, LT, LE, GT or GE.
      kinds: the dtypes it takes.
      total: order NaNs and signed zeros too.
    """

    def lower(self: Any, ctx: Any, x: Any, y: Any) -> Any:
        dtype = ctx.avals_in[0].dtype
        if kind_of(dtype) == "extended":
            return _compare_keys(ctx, x, y, direction)
        return ctx.op(
            hlo.CompareOp, x, y, comparison_direction=_direction(direction), compare_type=_comparison(dtype, total)
        )

    primitive = binary(name, None, kinds, ZERO, lower=lower, out_dtype=lambda dtype: np.dtype(bool))
    type(primitive).takes_keys = "extended" in kinds.members
    return primitive


def _compare_keys(ctx: Any, x: Any, y: Any, direction: str) -> Any:
    """Random keys are equal where all their numbers, in the hidden last dimension, are."""
    out = ctx.aval_out
    words = emit_compare(x, y, direction, np.dtype("uint32"))
    if direction == "EQ":
        return ctx.reduce(hlo.AndOp, words, init=True, dims=(out.ndim,))
    return ctx.reduce(hlo.OrOp, words, init=False, dims=(out.ndim,))


# What a Python scalar may become beside an array: never a kind that loses its value.
SCALARS = frozenset((int, float, complex, bool))
_scalar_kinds = {
    bool: ("bool",),
    int: ("signed", "unsigned", "float", "complex"),
    float: ("float", "complex"),
    complex: ("complex",),
}
_weak_scalars = {"bool": bool, "signed": int, "float": float, "complex": complex}


def match(*operands: Any) -> list:
    """Give Python scalars the dtype of the arrays beside them, where that keeps their value.

    Scalars stay as they are where there is no array, or where none of its dtype can stand for them: the operation's own
    check then names both types.
    """
    for x in operands:
        if type(x) not in SCALARS:
            break
    else:
        return list(operands)
    aval = aval_of(x)
    return [scalar_like(x, aval) if type(x) in SCALARS else x for x in operands]


def match_two(x: Any, y: Any) -> tuple:
    """`match` for the two operands of a binary operation."""
    if type(y) not in SCALARS:
        return scalar_like(x, aval_of(y)), y
    return (x, y) if type(x) in SCALARS else (x, scalar_like(y, aval_of(x)))


def scalar_like(x: Any, aval: ShapedArray) -> Any:
    """A Python scalar as one of the dtype (and weakness) of `aval`, or as it is if it cannot be."""
    key = (aval, type(x))
    maker = _scalar_makers.get(key)
    if maker is None:
        maker = _scalar_makers[key] = _scalar_maker(aval, type(x))
    return maker(x)


_scalar_makers: dict[tuple, Callable] = {}


def _scalar_maker(aval: ShapedArray, scalar: type) -> Callable:
    kind = kind_of(aval.dtype)
    if kind not in _scalar_kinds[scalar]:
        return lambda x: x
    return _weak_scalars[kind] if aval.weak_type and kind in _weak_scalars else aval.dtype.type


@per_context
def _accuracy_mode(name: str, atol: float, rtol: float, ulps: int) -> Any:
    return hlo.ResultAccuracyAttr.get(atol, rtol, ulps, name)


class AccuracyMode(enum.Enum):
    """How exact the compiler must make a transcendental function: the best it has, or its default.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.exp(0.0, accuracy=lax.AccuracyMode.HIGHEST))
      1.0
    """

    HIGHEST = 1
    DEFAULT = 2

    def attribute(self) -> Any:
        """The MLIR attribute."""
        return _accuracy_mode(self.name, 0.0, 0.0, 0)


class Tolerance:
    """How exact the compiler must make a transcendental function, where it has a choice.

    Args:
      atol: absolute error.
      rtol: relative error.
      ulps: error in units in the last place.

    Examples:
      >>> from phalanx import lax
      >>> lax.Tolerance(atol=1e-6)
      Tolerance(atol=1e-06, rtol=0.0, ulps=0)
    """

    __slots__ = ("atol", "rtol", "ulps")

    def __init__(self, atol: float = 0.0, rtol: float = 0.0, ulps: int = 0):
        self.atol, self.rtol, self.ulps = atol, rtol, ulps
        if min(self._key()) < 0 or not any(self._key()):
            raise ArgumentError(
                "lax.Tolerance", expected="errors of at least 0, one of them above", got=self, mend="allow some error"
            )

    def attribute(self) -> Any:
        """The MLIR attribute."""
        return _accuracy_mode("TOLERANCE", self.atol, self.rtol, self.ulps)

    def _key(self) -> tuple:
        return (self.atol, self.rtol, self.ulps)

    def __eq__(self, other: object) -> bool:
        return type(other) is Tolerance and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Tolerance(atol={self.atol}, rtol={self.rtol}, ulps={self.ulps})"
