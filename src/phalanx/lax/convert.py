"""Changing element types: `convert_element_type`, `bitcast_convert_type`, `reduce_precision`."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.core.primitive import LINEAR, ZERO, Primitive, Roles
from phalanx.core.tangent import Zero
from phalanx.core.trace import Tracer
from phalanx.engine.mlir import hlo
from phalanx.lax.broadcast import ELEMENTWISE, dim_names, move_dim
from phalanx.lax.family import FLOATING, check_kind, emit_compare, kind_of
from phalanx.runtime.array import Array
from phalanx.runtime.placement import put
from phalanx.symbolic import Dim, arrays, is_constant_shape


class ConvertElementType(Primitive, name="convert_element_type"):
    """`x` with its elements converted: any[*s] -> dtype[*s]."""

    def result(self, x: Any, *, dtype: Any, weak_type: bool) -> Any:
        if kind_of(x.dtype) == "extended" or kind_of(dtype) == "extended":
            raise DTypeError(
                "lax.convert_element_type",
                expected="numbers",
                got=f"{x.str_short()} to {dtype}",
                mend="use phalanx.random.key_data or wrap_key_data for random keys",
            )
        return ShapedArray(x.shape, dtype, weak_type, x.sharding)

    def roles(self, x: Any, **_: Any) -> Roles:
        return Roles([dim_names(x.ndim)], [dim_names(x.ndim)])

    def lower(self, ctx: Any, x: Any, *, dtype: Any, weak_type: bool) -> Any:
        aval = ctx.avals_in[0]
        if aval.dtype == dtype:
            return x
        if dtype == np.bool_:
            return emit_compare(x, ctx.constant(np.zeros((), aval.dtype), aval.strengthened()), "NE", aval.dtype)
        if kind_of(aval.dtype) == "complex" and kind_of(dtype) != "complex":
            x = hlo.real(x)
        return ctx.op(hlo.ConvertOp, x)

    def jvp(self, primals: Any, tangents: Any, *, dtype: Any, weak_type: bool) -> tuple:
        y = self(*primals, dtype=dtype, weak_type=weak_type)
        aval = aval_of(y).to_tangent()
        if aval.dtype == dtypes.float0:
            return y, Zero(aval)
        return y, self(*tangents, dtype=aval.dtype, weak_type=False)

    def transpose(self, y_bar: Any, x: Any, *, dtype: Any, weak_type: bool) -> tuple:
        return (self(y_bar, dtype=x.dtype, weak_type=x.aval.weak_type),)

    batch = ELEMENTWISE


convert_element_type_p = ConvertElementType()


class BitcastConvertType(Primitive, name="bitcast_convert_type"):
    """The bits of `x` read as another dtype; a trailing dimension makes up for different widths."""

    def result(self, x: Any, *, dtype: Any) -> Any:
        where = "lax.bitcast_convert_type"
        old, new = bits_of(x.dtype), bits_of(dtype)
        if (kind_of(x.dtype) == "bool") != (kind_of(dtype) == "bool") or "complex" in (
            kind_of(x.dtype),
            kind_of(dtype),
        ):
            raise DTypeError(
                where,
                expected="integer or floating dtypes, or bool to bool",
                got=f"{x.str_short()} to {dtype}",
                mend="convert with lax.convert_element_type, or take lax.real and lax.imag first",
            )
        if old == new:
            return ShapedArray(x.shape, dtype)
        if old > new:
            return ShapedArray((*x.shape, old // new), dtype)
        if not x.ndim or x.shape[-1] != new // old:
            raise ShapeError(
                where,
                expected=f"a last dimension of size {new // old} to fill the wider dtype",
                got=f"{x.str_short()} to {dtype}",
                mend="reshape the operand",
            )
        return ShapedArray(x.shape[:-1], dtype)

    def roles(self, x: Any, *, dtype: Any) -> Roles:
        out = self.result(x, dtype=dtype)
        names = dim_names(max(x.ndim, out.ndim))
        whole = names[min(x.ndim, out.ndim) :]
        return Roles([names[: x.ndim]], [names[: out.ndim]], whole=whole)

    def lower(self, ctx: Any, x: Any, *, dtype: Any) -> Any:
        (aval,) = ctx.avals_in
        if aval.ndim != ctx.aval_out.ndim and not is_constant_shape(aval.shape):
            # The refinement of shapes knows no change of width: it is written with shifts.
            return (_taken_apart if aval.ndim < ctx.aval_out.ndim else _put_together)(ctx, x, aval)
        return hlo.bitcast_convert(ctx.type(ctx.aval_out), x)

    jvp = ZERO

    def batch(self, x: Any, b: int, *, dtype: Any) -> tuple:
        return self(move_dim(x, b, 0), dtype=dtype), 0


def _taken_apart(ctx: Any, x: Any, aval: ShapedArray) -> Any:
    """The bits of each element as several narrower ones, the lowest first."""
    out = ctx.aval_out
    old, new = bits_of(aval.dtype), bits_of(out.dtype)
    wide, narrow = (aval.update(dtype=np.dtype(f"uint{n}"), weak_type=False) for n in (old, new))
    x = hlo.bitcast_convert(ctx.type(wide), x)
    parts = []
    for i in range(old // new):
        part = ctx.op(hlo.ShiftRightLogicalOp, x, ctx.constant(i * new, wide), aval=wide)
        parts.append(ctx.reshape(ctx.op(hlo.ConvertOp, part, aval=narrow), narrow.with_shape((*aval.shape, 1))))
    return hlo.bitcast_convert(ctx.type(out), hlo.concatenate(parts, aval.ndim))


def _put_together(ctx: Any, x: Any, aval: ShapedArray) -> Any:
    """The bits of the elements along the last dimension as one wider element."""
    out = ctx.aval_out
    old, new = bits_of(aval.dtype), bits_of(out.dtype)
    narrow, wide = aval.update(dtype=np.dtype(f"uint{old}"), weak_type=False), out.update(dtype=np.dtype(f"uint{new}"))
    x = hlo.bitcast_convert(ctx.type(narrow), x)
    total = ctx.constant(0, wide)
    one = narrow.with_shape((*aval.shape[:-1], 1))
    for i in range(new // old):
        starts, limits = [0] * (aval.ndim - 1), aval.shape[:-1]
        part = ctx.slice(x, [*starts, i], [*limits, i + 1], [1] * aval.ndim, one)
        part = ctx.op(hlo.ConvertOp, ctx.reshape(part, narrow.with_shape(out.shape)), aval=wide)
        part = ctx.op(hlo.ShiftLeftOp, part, ctx.constant(i * old, wide), aval=wide)
        total = ctx.op(hlo.OrOp, total, part, aval=wide)
    return hlo.bitcast_convert(ctx.type(out), total)


bitcast_convert_type_p = BitcastConvertType()


def bits_of(dtype: Any) -> int:
    """The width of a dtype's elements in bits."""
    kind = kind_of(dtype)
    if kind in ("signed", "unsigned"):
        return int(dtypes.iinfo(dtype).bits)
    return int(dtypes.finfo(dtype).bits) if kind == "float" else dtype.itemsize * 8


class ReducePrecision(Primitive, name="reduce_precision"):
    """`x` rounded to fewer exponent and mantissa bits, in its own dtype."""

    def result(self, x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
        check_kind("lax.reduce_precision", x, FLOATING)
        if exponent_bits < 1 or mantissa_bits < 0:
            raise ArgumentError(
                "lax.reduce_precision",
                expected="exponent_bits of at least 1 and mantissa_bits of at least 0",
                got=(exponent_bits, mantissa_bits),
                mend="take the bits of a floating type",
            )
        return x

    def roles(self, x: Any, **_: Any) -> Roles:
        return Roles([dim_names(x.ndim)], [dim_names(x.ndim)])

    def lower(self, ctx: Any, x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
        return hlo.reduce_precision(x, exponent_bits, mantissa_bits)

    # Rounding is meant to be invisible to derivatives: tangents and cotangents are rounded likewise.
    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, exponent_bits: int, mantissa_bits: int) -> tuple:
        return (self(y_bar, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits),)

    batch = ELEMENTWISE


reduce_precision_p = ReducePrecision()


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """Convert the elements of an array: any[*s] -> new_dtype[*s].

    Args:
      operand: the array.
      new_dtype: the dtype wanted; with 64-bit types off, 64-bit ones mean their 32-bit counterparts.

    Returns:
      The converted array: floats go to integers by cutting the fraction off, complex numbers to real ones by dropping
      the imaginary part, anything to bool by comparing it with zero.

    Raises:
      DTypeError: one of the dtypes is that of random keys.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.convert_element_type(2.75, "int32"))
      2
    """
    dtype = dtypes.canonicalize_dtype(new_dtype)
    kind = type(operand)
    if kind is Array or isinstance(operand, Tracer):
        if operand.dtype == dtype and not operand.weak_type:
            return operand
    elif kind is Dim:
        return convert_element_type(arrays.value(operand), dtype)
    elif kind is not np.ndarray or not operand.ndim:
        return host_scalar(operand, dtype)
    return convert_element_type_p(operand, dtype=dtype, weak_type=False)


def as_type(x: Any, dtype: Any, weak_type: bool) -> Any:
    """Any number or array as an array of exactly this dtype, weakly typed or not."""
    if isinstance(x, Array | Tracer) and x.dtype == dtype and x.weak_type == weak_type:
        return x
    if state.trace is None and not isinstance(x, Array):
        x = np.asarray(x).astype(dtype)
        return put(x, aval=ShapedArray(x.shape, dtype, weak_type))
    return convert_element_type_p(x, dtype=dtype, weak_type=weak_type)


def host_scalar(x: Any, dtype: Any) -> Any:
    """A scalar from the host as an array of a dtype: converted by NumPy, which needs no compiled program."""
    value = np.asarray(x)
    if value.dtype.kind == "c" and kind_of(dtype) != "complex":
        value = value.real if dtype != np.bool_ else value != 0
    value = value.astype(dtype)[()]
    if state.trace is None:
        return put(value)
    return convert_element_type_p(value, dtype=dtype, weak_type=False)


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """Read the bits of an array as another dtype, without converting its values.

    Args:
      operand: the array.
      new_dtype: the dtype to read.

    Returns:
      An array of the same shape for dtypes of one width; with a trailing dimension more for a narrower `new_dtype`,
      and one less, which must hold the pieces of one element, for a wider one. The lowest bits come first.

    Raises:
      DTypeError: one dtype is complex, or one of them is bool.
      ShapeError: the last dimension does not fill a wider dtype.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> hex(int(lax.bitcast_convert_type(jnp.float32(1.0), "uint32")))
      '0x3f800000'
    """
    return bitcast_convert_type_p(operand, dtype=dtypes.canonicalize_dtype(new_dtype))


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round an array to what a narrower floating type holds: float[*s] -> float[*s].

    Args:
      operand: floating array.
      exponent_bits: bits of the exponent kept, at least 1.
      mantissa_bits: bits of the mantissa kept.

    Returns:
      The rounded values in the dtype of `operand`, which the compiler will not optimise away.

    Raises:
      DTypeError: `operand` is not floating.
      ArgumentError: a number of bits is out of range.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.reduce_precision(1.1, exponent_bits=8, mantissa_bits=7))
      1.1015625
    """
    return reduce_precision_p(operand, exponent_bits=int(exponent_bits), mantissa_bits=int(mantissa_bits))
