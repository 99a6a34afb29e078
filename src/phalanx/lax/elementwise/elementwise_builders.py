"""Builders of elementwise primitives: `unary`, `binary` and `compare`, which declare a primitive in one row.

A row has the name, the StableHLO operation, the dtypes it accepts, and the derivative. A derivative is `LINEAR`,
`ZERO`, or one function for each operand, from the tangent `t` of that operand, the operands and the result to a term of
the tangent of the result; an operand whose tangent is a symbolic zero contributes no term. `match_scalars` converts
Python scalars to the dtype of the arrays beside them.

Builds on `shape.broadcast`; `elementwise_primitives`, `special` and `incomplete_gamma_beta` are declared with it.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from phalanx.core import (
    LINEAR,
    ZERO,
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    Undefined,
    Zero,
    add_tangents,
    dtypes,
    get_aval,
    is_linear,
)
from phalanx.engine import Cache, cached_per_context, hlo, ir, memoize
from phalanx.lax.reductions.reduce_sum import unbroadcast
from phalanx.lax.shape import ELEMENTWISE, broadcast_in_dim_p, dim_names
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike, DTypeLike

Rule: TypeAlias = Callable[..., Any]
"""A derivative rule: `LINEAR`, `ZERO`, or a function of the tangent, the operands and the result."""


class DtypeKinds:
    """A set of kinds of dtypes.

    Args:
      words: its description in error messages.
      members: the kinds: bool, signed, unsigned, float, complex, extended.
    """

    __slots__ = ("members", "words")

    def __init__(self, words: str, *members: str):
        self.words = words
        self.members = frozenset(members)


INEXACT = DtypeKinds("a floating or complex dtype", "float", "complex")
FLOATING = DtypeKinds("a floating dtype", "float")
COMPLEX = DtypeKinds("a complex dtype", "complex")
NUMBER = DtypeKinds("an integer, floating or complex dtype", "signed", "unsigned", "float", "complex")
SIGNED = DtypeKinds("a signed integer, floating or complex dtype", "signed", "float", "complex")
REAL = DtypeKinds("an integer or floating dtype", "signed", "unsigned", "float")
INTEGER = DtypeKinds("an integer dtype", "signed", "unsigned")
BITS = DtypeKinds("an integer or boolean dtype", "bool", "signed", "unsigned")
ORDERED = DtypeKinds("a boolean, integer or floating dtype", "bool", "signed", "unsigned", "float")
EQUATED = DtypeKinds("any dtype", "bool", "signed", "unsigned", "float", "complex", "extended")
ANY = DtypeKinds("any numeric or boolean dtype", "bool", "signed", "unsigned", "float", "complex")

_bases = (
    ("bool", np.bool_),
    ("signed", np.signedinteger),
    ("unsigned", np.unsignedinteger),
    ("float", np.floating),
    ("complex", np.complexfloating),
)


@memoize("lax.dtype_kinds", 256)
def dtype_kind(dtype: DTypeLike) -> str:
    """Return the kind of a dtype: bool, signed, unsigned, float, complex, or extended."""
    return next((kind for kind, base in _bases if dtypes.issubdtype(dtype, base)), "extended")


def check_dtype_kind(where: str, x: ArrayLike, kinds: DtypeKinds) -> None:
    """Check that the dtype of an operand is of one of these kinds."""
    if dtype_kind(x.dtype) not in kinds.members:
        raise DTypeError(
            where,
            expected=f"an operand of {kinds.words}",
            got=x.str_short(),
            fix="convert it with lax.convert_element_type, or call the phalanx.numpy function, which promotes",
        )


def check_same_dtypes(where: str, avals: Sequence[ShapedArray]) -> None:
    """Check that operands have the same dtype."""
    first = avals[0].dtype
    if any(a.dtype != first for a in avals):
        raise DTypeError(
            where,
            expected="operands of equal dtypes",
            got=", ".join(a.str_short() for a in avals),
            fix="convert one with lax.convert_element_type, or call the phalanx.numpy function, which promotes",
        )


def common_shape(where: str, avals: Sequence[ShapedArray]) -> tuple:
    """Return the common shape of operands, each of which has this shape or rank 0."""
    shape: tuple = ()
    for a in avals:
        if a.shape and a.shape != shape:
            if shape:
                raise ShapeError(
                    where,
                    expected="operands of equal shapes but for dimensions of size 1, or of rank 0",
                    got=", ".join(a.str_short() for a in avals),
                    fix="broadcast one with lax.broadcast_in_dim, or call phalanx.numpy, which broadcasts",
                )
            shape = a.shape
    return shape


def apply_broadcast(primitive: Primitive, *operands: Any) -> Any:
    """Apply a primitive to operands whose dimensions of size 1 are broadcast against the other operands.

    Public functions call it while they handle the `ShapeError` of the primitive, so that operands of equal shapes, the
    usual case, cost no check. The error is raised again if the shapes do not broadcast.
    """
    avals = [get_aval(x) for x in operands]
    if len({a.ndim for a in avals if a.ndim}) != 1:
        raise
    shape = []
    for sizes in zip(*[a.shape for a in avals if a.ndim], strict=True):
        longer = {n for n in sizes if n != 1}
        if len(longer) > 1:
            raise
        shape.append(longer.pop() if longer else 1)
    dims = tuple(range(len(shape)))
    return primitive(
        *[
            x if not a.ndim or a.shape == tuple(shape) else broadcast_in_dim_p(x, shape=tuple(shape), dims=dims)
            for x, a in zip(operands, avals, strict=True)
        ]
    )


# Operations whose names are keywords of Python.
_public_names = {name: f"bitwise_{name}" for name in ("and", "or", "xor", "not")}


def public_name(primitive: Primitive) -> str:
    """Return the name of the public function of a primitive."""
    return _public_names.get(primitive.name, primitive.name)


class Elementwise(Primitive):
    """Base of elementwise primitives; a subclass defines the StableHLO operation, the dtypes and the derivative."""

    # Operands of rank 0 are broadcast by the lowering, so that rules need not create full arrays of constants.
    broadcasts_scalars = True
    operation: Any = None
    kinds: DtypeKinds = ANY

    def out_dtype(self, dtype: np.dtype) -> Any:
        """Return the dtype of the result for operands of `dtype`."""
        return dtype

    def abstract_eval(self, *avals: Any, **params: Any) -> Any:
        where = f"lax.{public_name(self)}"
        for a in avals:
            check_dtype_kind(where, a, self.kinds)
        check_same_dtypes(where, avals)
        shape = common_shape(where, avals)
        dtype = self.out_dtype(avals[0].dtype)
        if not isinstance(accuracy := params.get("accuracy"), Tolerance | AccuracyMode | None):
            raise ArgumentTypeError(
                f"{where} accuracy",
                expected="None, a lax.Tolerance or a lax.AccuracyMode",
                got=repr(accuracy),
                fix="pass accuracy=lax.AccuracyMode.HIGHEST",
            )
        return ShapedArray(shape, dtype, all(a.weak_type for a in avals) and dtype != np.bool_)

    def sharding_rule(self, *avals: Any, **params: Any) -> ShardingRule:
        names = dim_names(max(a.ndim for a in avals))
        return ShardingRule([names if a.ndim else [] for a in avals], [names])

    def lower(self, ctx: LoweringContext, *operands: Any, accuracy: Tolerance | AccuracyMode | None = None) -> Any:
        if accuracy is None:
            return ctx.op(self.operation, *operands)
        return self.operation(*operands, result_accuracy=accuracy.attribute()).result

    batch = ELEMENTWISE


def broadcast_tangent(t: ArrayLike, y: ArrayLike) -> Any:
    """Broadcast a tangent of rank 0 to the shape of the result `y`."""
    shape = get_aval(y).shape
    return broadcast_in_dim_p(t, shape=shape, dims=()) if shape and not t.ndim else t


def derive_jvp(*derivatives: Callable | Undefined) -> Callable:
    """Make a `jvp` rule: the sum of the terms of all operands whose tangent is not a symbolic zero."""

    def jvp(self: Primitive, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
        y = self(*primals, **params)
        # Terms are added one by one, without a zero to start from, which would be an operation of its own.
        y_dot: Any = None
        for derivative, t in zip(derivatives, tangents, strict=True):
            if type(t) is not Zero:
                if isinstance(derivative, Undefined):
                    _refuse_derivative(self, derivative)
                term = derivative(t, *primals, y)
                y_dot = term if y_dot is None else add_tangents(y_dot, term)
        return y, y_dot if type(y_dot) is Zero else broadcast_tangent(y_dot, y)

    return jvp


def _refuse_derivative(primitive: Primitive, derivative: Undefined) -> None:
    # `Undefined` is a descriptor that raises when it is called as a rule; here it stands for the rule of one operand.
    derivative.rule = "jvp"
    derivative.__get__(primitive, type(primitive))()


def derive_transpose(*cotangents: Callable | None) -> Callable:
    """Make a `transpose` rule from a function of (`y_bar`, operands) for each operand, None if never linear in it."""

    def transpose(self: Primitive, y_bar: Array, *operands: Any, **params: Any) -> tuple:
        return tuple(
            [
                unbroadcast(rule(y_bar, *operands), x) if is_linear(x) and rule is not None else None
                for rule, x in zip(cotangents, operands)
            ]
        )

    return transpose


def declare_primitive(name: str, base: type, doc: str, **members: Any) -> Any:
    """Define a primitive: a subclass of `base` with these members; return its instance."""
    # The class is created as if by a class statement, so that the holes in its rules are checked.
    title = "".join(word.capitalize() for word in name.split("_"))
    # A rule that is not given is inherited from the base class.
    members = {k: v for k, v in members.items() if v is not None}
    frame = sys._getframe()
    while frame.f_back and frame.f_globals is globals():  # Errors about missing rules name the declaring module.
        frame = frame.f_back
    return type(base)(
        title, (base,), {"__doc__": doc, "__module__": frame.f_globals["__name__"], "name": name, **members}
    )()


def unary(
    name: str,
    operation: Callable[..., Any] | None,
    kinds: DtypeKinds,
    derivative: Rule | Undefined,
    *,
    transpose: Callable | None = None,
    lower: Callable | None = None,
    out_dtype: Callable | None = None,
) -> Any:
    """Declare an elementwise operation of one operand.

    Args:
      name: the name of the primitive.
      operation: the StableHLO or CHLO operation; None if `lower` is given.
      kinds: the dtypes of the operands.
      derivative: LINEAR, ZERO, or a function of (t, x, y).
      transpose: a function of (y_bar, x) for linear operations.
      lower: the `lower` rule, if it is not a single operation.
      out_dtype: from the dtype of the operand to the dtype of the result, if they differ.
    """
    jvp = derivative if derivative in (LINEAR, ZERO) else derive_jvp(derivative)
    return declare_primitive(
        name,
        Elementwise,
        f"The elementwise operation {name}.",
        operation=operation,
        kinds=kinds,
        jvp=jvp,
        lower=lower,
        transpose=derive_transpose(transpose) if transpose else None,
        out_dtype=(lambda self, dtype: out_dtype(dtype)) if out_dtype else None,
    )


def binary(
    name: str,
    operation: Callable[..., Any] | None,
    kinds: DtypeKinds,
    dx: Rule | Undefined,
    dy: Rule | Undefined | None = None,
    *,
    transposes: Sequence[Callable | None] = (),
    lower: Callable | None = None,
    out_dtype: Callable | None = None,
    linear_in: Sequence[Sequence[int]] | None = None,
) -> Any:
    """Declare an elementwise operation of two operands.

    Args:
      name: the name of the primitive.
      operation: the StableHLO or CHLO operation; None if `lower` is given.
      kinds: the dtypes of the operands.
      dx: LINEAR (in both operands jointly), ZERO, a function of (t, x, y, z), or Undefined with the reason.
      dy: the same for the second operand.
      transposes: for each operand a function of (y_bar, x, y), or None if the operation is not linear in it.
      lower: the `lower` rule, if it is not a single operation.
      out_dtype: from the dtype of the operands to the dtype of the result, if they differ.
      linear_in: as in `Primitive`.
    """
    return declare_primitive(
        name,
        Elementwise,
        f"The elementwise operation {name}.",
        operation=operation,
        kinds=kinds,
        lower=lower,
        jvp=dx if dx in (LINEAR, ZERO) else derive_jvp(dx, dy),
        transpose=derive_transpose(*transposes) if transposes else None,
        linear_in=linear_in,
        out_dtype=(lambda self, dtype: out_dtype(dtype)) if out_dtype else None,
    )


@cached_per_context
def _direction(direction: str) -> Any:
    return hlo.ComparisonDirectionAttr.get(direction)


@cached_per_context
def _comparison(dtype: np.dtype, total: bool) -> Any:
    kind = {"bool": "UNSIGNED", "unsigned": "UNSIGNED", "signed": "SIGNED", "extended": "UNSIGNED"}.get(
        dtype_kind(dtype)
    )
    return hlo.ComparisonTypeAttr.get(kind or ("TOTALORDER" if total else "FLOAT"))


def emit_compare(x: ArrayLike, y: ArrayLike, direction: str, dtype: DTypeLike, total: bool = False) -> Any:
    """Emit a comparison of operands of `dtype`; `total` selects the total order, with NaNs and signed zeros."""
    return hlo.compare(x, y, _direction(direction), compare_type=_comparison(dtype, total))


def compare(name: str, direction: str, kinds: DtypeKinds, total: bool = False) -> Any:
    """Declare a comparison: any[*s], any[*s] -> bool[*s].

    Args:
      name: the name of the primitive.
      direction: EQ, NE, LT, LE, GT or GE.
      kinds: the dtypes of the operands.
      total: whether to compare by the total order of IEEE 754, in which NaNs and signed zeros are ordered.
    """

    def lower(self: Primitive, ctx: LoweringContext, x: ir.Value, y: ir.Value) -> Any:
        dtype = ctx.avals_in[0].dtype
        if isinstance(dtype, dtypes.KeyDtype):
            return _compare_keys(ctx, x, y, direction)
        return ctx.op(
            hlo.CompareOp, x, y, comparison_direction=_direction(direction), compare_type=_comparison(dtype, total)
        )

    primitive = binary(name, None, kinds, ZERO, lower=lower, out_dtype=lambda dtype: np.dtype(bool))
    type(primitive).takes_keys = "extended" in kinds.members
    return primitive


def _compare_keys(ctx: LoweringContext, x: ir.Value, y: ir.Value, direction: str) -> Any:
    """Compare random keys, which are equal if all words are: the words are a hidden last dimension of the operands."""
    out = ctx.aval_out
    # Operands are the words of keys, in one more dimension than the result.
    words = emit_compare(x, y, direction, np.dtype("uint32"))
    if direction == "EQ":
        return ctx.reduce(hlo.AndOp, words, init=True, dims=(out.ndim,))
    return ctx.reduce(hlo.OrOp, words, init=False, dims=(out.ndim,))


# The kinds of dtypes to which a Python scalar is converted beside an array: only kinds that keep its value.
SCALARS = frozenset((int, float, complex, bool))
_scalar_kinds = {
    bool: ("bool",),
    int: ("signed", "unsigned", "float", "complex"),
    float: ("float", "complex"),
    complex: ("complex",),
}
_weak_scalars = {"bool": bool, "signed": int, "float": float, "complex": complex}


def match_scalars(*operands: Any) -> list:
    """Convert Python scalars to the dtype of the arrays beside them, where that keeps their value.

    Scalars are not converted if there is no array, or if its dtype cannot represent them. In the latter case the type
    rule of the operation raises an error that names both types.
    """
    # The first operand that is not a Python scalar determines the dtype of all scalars.
    for x in operands:
        if type(x) not in SCALARS:
            break
    else:
        return list(operands)
    aval = get_aval(x)
    return [scalar_like(x, aval) if type(x) in SCALARS else x for x in operands]


def match_scalar_pair(x: ArrayLike, y: ArrayLike) -> tuple:
    """`match_scalars` for two operands; a fast path of eager binary operations."""
    if type(y) not in SCALARS:
        return scalar_like(x, get_aval(y)), y
    return (x, y) if type(x) in SCALARS else (x, scalar_like(y, get_aval(x)))


def scalar_like(x: ArrayLike, aval: ShapedArray) -> Any:
    """Convert a Python scalar to the dtype and weak type of `aval`; return it unchanged if the dtype cannot hold it."""
    # Conversions are cached by type: this is on the path of every eager operation with a Python scalar.
    key = (aval, type(x))
    maker = _scalar_makers.get(key)
    if maker is None:
        maker = _scalar_makers[key] = _scalar_maker(aval, type(x))
    return maker(x)


_scalar_makers: Cache[tuple, Callable] = Cache("lax.scalar_makers", 4096)


def _scalar_maker(aval: ShapedArray, scalar: type) -> Callable:
    kind = dtype_kind(aval.dtype)
    # A float beside an integer array stays a float: the type rule rejects the pair rather than truncate it.
    if kind not in _scalar_kinds[scalar]:
        return lambda x: x
    return _weak_scalars[kind] if aval.weak_type and kind in _weak_scalars else aval.dtype.type


@cached_per_context
def _accuracy_mode(name: str, atol: float, rtol: float, ulps: int) -> Any:
    return hlo.ResultAccuracyAttr.get(atol, rtol, ulps, name)


class AccuracyMode(enum.Enum):
    """The accuracy required of a transcendental function: the highest available, or the default of the compiler.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.exp(0.0, accuracy=lax.AccuracyMode.HIGHEST))
      1.0
    """

    HIGHEST = 1
    DEFAULT = 2

    def attribute(self) -> Any:
        """Return the MLIR attribute."""
        return _accuracy_mode(self.name, 0.0, 0.0, 0)


class Tolerance:
    """The error allowed to a transcendental function, by which the compiler chooses an implementation.

    Args:
      atol: the absolute error.
      rtol: the relative error.
      ulps: the error in units in the last place.

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
                "lax.Tolerance",
                expected="non-negative errors, at least one of them positive",
                got=self,
                fix="pass for example atol=1e-6",
            )

    def attribute(self) -> Any:
        """Return the MLIR attribute."""
        return _accuracy_mode("TOLERANCE", self.atol, self.rtol, self.ulps)

    def _key(self) -> tuple:
        return (self.atol, self.rtol, self.ulps)

    def __eq__(self, other: object) -> bool:
        return type(other) is Tolerance and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Tolerance(atol={self.atol}, rtol={self.rtol}, ulps={self.ulps})"
