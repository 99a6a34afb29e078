"""Conversion between dtypes: `convert_element_type`, `bitcast_convert_type`, `reduce_precision`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    LINEAR,
    ZERO,
    ArgumentError,
    DTypeError,
    Literal,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    StagedTracer,
    StagingTrace,
    Tracer,
    Zero,
    dtypes,
    get_aval,
    host_scalar,
    state,
)
from phalanx.core.aval import get_scalar_aval
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise.elementwise_builders import (
    FLOATING,
    Elementwise,
    check_dtype_kind,
    dtype_kind,
    emit_compare,
)
from phalanx.lax.shape import ELEMENTWISE, dim_names, move_dim
from phalanx.runtime import Array, LoweringContext, put
from phalanx.runtime.transfer import default_placement
from phalanx.symbolic import Dim, arrays, is_constant_shape
from phalanx.typing import ArrayLike, DTypeLike


class ConvertElementType(Primitive, name="convert_element_type"):
    """Convert the elements of `x`: any[*s] -> dtype[*s]."""

    linear_in = ((0,),)

    def stage(self, trace: StagingTrace, args: Sequence[Any], params: dict) -> Any:
        # A converted constant is a constant, so that programs have no equation for it.
        x, dtype = args[0], params["dtype"]
        if type(x) is StagedTracer:
            constant = x._var if x._trace is trace and type(x._var) is Literal else None
        else:
            constant = Literal(x, aval) if (aval := get_scalar_aval(x)) else None
        if constant and (y := _convert_constant(constant, dtype)):
            value, aval = y[0], ShapedArray((), dtype, params["weak_type"])
            # As a Python scalar, where it has this type, the value is weak also when the equation is evaluated.
            if aval.weak_type and get_scalar_aval(scalar := value.item()) == aval:
                value = scalar
            return trace.literal(value, aval)
        if type(x) is np.ndarray and (aval := get_aval(x)).dtype == dtype and not params["weak_type"]:
            return StagedTracer(trace, aval, trace.constant(x))
        return trace.record(self, args, params)

    def abstract_eval(self, x: ShapedArray, *, dtype: np.dtype, weak_type: bool) -> Any:
        if dtype_kind(x.dtype) == "extended" or dtype_kind(dtype) == "extended":
            raise DTypeError(
                "lax.convert_element_type",
                expected="numbers",
                got=f"{x.str_short()} to {dtype}",
                fix="use phalanx.random.key_data or wrap_key_data for random keys",
            )
        return ShapedArray(x.shape, dtype, weak_type, x.type_sharding)

    sharding_rule = Elementwise.sharding_rule

    def lower(self, ctx: LoweringContext, x: ir.Value, *, dtype: np.dtype, weak_type: bool) -> Any:
        aval = ctx.avals_in[0]
        # A change of the weak type alone needs no code.
        if aval.dtype == dtype:
            return x
        if dtype == np.bool_:
            return emit_compare(x, ctx.constant(np.zeros((), aval.dtype), aval.strip_weak_type()), "NE", aval.dtype)
        if dtype_kind(aval.dtype) == "complex" and dtype_kind(dtype) != "complex":
            x = hlo.real(x)
        return ctx.op(hlo.ConvertOp, x)

    def jvp(self, primals: Sequence[Array], tangents: Sequence[Array], *, dtype: np.dtype, weak_type: bool) -> tuple:
        y = self(*primals, dtype=dtype, weak_type=weak_type)
        aval = get_aval(y).to_tangent()
        if aval.dtype == dtypes.float0:
            return y, Zero(aval)
        return y, self(*tangents, dtype=aval.dtype, weak_type=False)

    def transpose(self, y_bar: Array, x: Array, *, dtype: np.dtype, weak_type: bool) -> tuple:
        return (self(y_bar, dtype=x.dtype, weak_type=x.aval.weak_type),)

    batch = ELEMENTWISE


convert_element_type_p = ConvertElementType()


def _convert_constant(x: Literal, dtype: Any) -> tuple | None:
    """The value in another dtype, in a tuple; None where NumPy and XLA may differ, or there is no such value."""
    kinds, value = (dtype_kind(x.aval.dtype), dtype_kind(dtype)), x.value
    if "extended" in kinds or (kinds[0] == "complex" and kinds[1] not in ("complex", "bool")):
        return None
    if kinds[0] == "float" and kinds[1] in ("signed", "unsigned"):
        limits = dtypes.iinfo(dtype)
        if not limits.min <= float(value) <= limits.max:  # also a NaN
            return None
    with np.errstate(over="ignore"):
        return (host_scalar(value, x.aval.dtype).astype(dtype)[()],)


class BitcastConvertType(Primitive, name="bitcast_convert_type"):
    """Reinterpret the bits of `x` as another dtype; a trailing dimension holds the parts of the wider elements."""

    def abstract_eval(self, x: ShapedArray, *, dtype: np.dtype) -> Any:
        where = "lax.bitcast_convert_type"
        old, new = bit_width(x.dtype), bit_width(dtype)
        if (dtype_kind(x.dtype) == "bool") != (dtype_kind(dtype) == "bool") or "complex" in (
            dtype_kind(x.dtype),
            dtype_kind(dtype),
        ):
            raise DTypeError(
                where,
                expected="integer or floating dtypes, or bool to bool",
                got=f"{x.str_short()} to {dtype}",
                fix="convert with lax.convert_element_type, or take lax.real and lax.imag first",
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
                fix=f"reshape the operand so that its last dimension has size {new // old}",
            )
        return ShapedArray(x.shape[:-1], dtype)

    def sharding_rule(self, x: ShapedArray, *, dtype: np.dtype) -> ShardingRule:
        out = self.abstract_eval(x, dtype=dtype)
        names = dim_names(max(x.ndim, out.ndim))
        return ShardingRule([names[: x.ndim]], [names[: out.ndim]], whole=names[min(x.ndim, out.ndim) :])

    def lower(self, ctx: LoweringContext, x: ir.Value, *, dtype: np.dtype) -> Any:
        (aval,) = ctx.avals_in
        if aval.ndim != ctx.aval_out.ndim and not is_constant_shape(aval.shape):
            # StableHLO's shape refinement does not support a bitcast that changes the rank, so it is emitted as shifts.
            return (_emit_narrowing_bitcast if aval.ndim < ctx.aval_out.ndim else _emit_widening_bitcast)(ctx, x, aval)
        return hlo.bitcast_convert(ctx.type(ctx.aval_out), x)

    jvp = ZERO

    def batch(self, x: Array, b: int, *, dtype: np.dtype) -> tuple:
        # The last dimension may be the one that changes with the width, so that the mapped dimension moves to the
        # front.
        return self(move_dim(x, b, 0), dtype=dtype), 0


def _emit_narrowing_bitcast(ctx: LoweringContext, x: ir.Value, aval: ShapedArray) -> Any:
    """Split the bits of each element into narrower elements, the lowest bits first."""
    out = ctx.aval_out
    old, new = bit_width(aval.dtype), bit_width(out.dtype)
    wide, narrow = (aval.update(dtype=np.dtype(f"uint{n}"), weak_type=False) for n in (old, new))
    x = hlo.bitcast_convert(ctx.type(wide), x)
    parts = []
    for i in range(old // new):
        part = ctx.op(hlo.ShiftRightLogicalOp, x, ctx.constant(i * new, wide), aval=wide)
        parts.append(ctx.reshape(ctx.op(hlo.ConvertOp, part, aval=narrow), narrow.with_shape((*aval.shape, 1))))
    return hlo.bitcast_convert(ctx.type(out), hlo.concatenate(parts, aval.ndim))


def _emit_widening_bitcast(ctx: LoweringContext, x: ir.Value, aval: ShapedArray) -> Any:
    """Join the bits of the elements along the last dimension into one wider element."""
    out = ctx.aval_out
    old, new = bit_width(aval.dtype), bit_width(out.dtype)
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


def bit_width(dtype: DTypeLike) -> int:
    """Return the width of a dtype in bits."""
    kind = dtype_kind(dtype)
    if kind in ("signed", "unsigned"):
        return int(dtypes.iinfo(dtype).bits)
    return int(dtypes.finfo(dtype).bits) if kind == "float" else dtype.itemsize * 8


class ReducePrecision(Primitive, name="reduce_precision"):
    """Round `x` to fewer exponent and mantissa bits, without changing the dtype."""

    def abstract_eval(self, x: ShapedArray, *, exponent_bits: int, mantissa_bits: int) -> Any:
        check_dtype_kind("lax.reduce_precision", x, FLOATING)
        if exponent_bits < 1 or mantissa_bits < 0:
            raise ArgumentError(
                "lax.reduce_precision",
                expected="exponent_bits of at least 1 and mantissa_bits of at least 0",
                got=(exponent_bits, mantissa_bits),
                fix="pass the bits of a floating dtype, such as 8 and 7 for bfloat16",
            )
        return x

    sharding_rule = Elementwise.sharding_rule

    def lower(self, ctx: LoweringContext, x: ir.Value, *, exponent_bits: int, mantissa_bits: int) -> Any:
        return hlo.reduce_precision(x, exponent_bits, mantissa_bits)

    # The derivative of rounding is 0 almost everywhere; treated as linear, tangents and cotangents are rounded alike.
    jvp = LINEAR

    def transpose(self, y_bar: Array, x: Array, *, exponent_bits: int, mantissa_bits: int) -> tuple:
        return (self(y_bar, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits),)

    batch = ELEMENTWISE


reduce_precision_p = ReducePrecision()


def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike) -> Any:
    """Convert the elements of an array: any[*s] -> new_dtype[*s].

    Args:
      operand: the array.
      new_dtype: the new dtype; 64-bit dtypes become 32-bit ones unless `enable_x64` is on.

    Returns:
      The converted array. Floats are truncated to integers, complex arrays lose their imaginary part with NumPy's
      ComplexWarning, and bool is the comparison with zero.

    Raises:
      DTypeError: one of the dtypes is a key dtype, or `operand` is a Python complex number and the dtype is real.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.convert_element_type(2.75, "int32"))
      2
    """
    dtype = dtypes.canonicalize_dtype(new_dtype)
    kind = type(operand)
    # Ordered by frequency: this function is on the path of nearly every operation of `numpy`.
    if kind is Array or isinstance(operand, Tracer):
        if operand.dtype == dtype and not operand.weak_type:
            return operand
    elif kind is Dim:
        return convert_element_type(arrays.value(operand), dtype)
    elif kind is not np.ndarray or not operand.ndim:
        return convert_host_scalar(operand, dtype)
    if operand.dtype.kind == "c":
        dtypes.check_conversion(operand, operand.dtype, dtype)
    return convert_element_type_p(operand, dtype=dtype, weak_type=False)


def as_type(x: ArrayLike, dtype: DTypeLike, weak_type: bool) -> Any:
    """Convert a number or an array to an array of exactly this dtype and weak type."""
    if isinstance(x, Array | Tracer) and x.dtype == dtype and x.weak_type == weak_type:
        return x
    # Eagerly, a host value is converted by NumPy and transferred, without a compiled program.
    if state.trace is None and not isinstance(x, Array):
        x = np.asarray(x).astype(dtype)
        sharding, committed = default_placement()
        return put(x, sharding, ShapedArray(x.shape, dtype, weak_type), committed)
    return convert_element_type_p(x, dtype=dtype, weak_type=weak_type)


def convert_host_scalar(x: ArrayLike, dtype: DTypeLike) -> Any:
    """Convert a host scalar to an array of a dtype; NumPy converts it, which needs no compiled program."""
    value = np.asarray(x)
    if value.dtype.kind == "c" and dtype_kind(dtype) != "complex":
        dtypes.check_conversion(x, value.dtype, dtype)
        value = value.real if dtype != np.bool_ else value != 0
    value = value.astype(dtype)[()]
    return put(value) if state.trace is None else convert_element_type_p(value, dtype=dtype, weak_type=False)


def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Any:
    """Reinterpret the bits of an array as another dtype.

    Args:
      operand: the array.
      new_dtype: the new dtype.

    Returns:
      An array of the same shape if the widths are equal. A narrower `new_dtype` adds a last dimension with the parts of
      each element, lowest bits first; a wider one removes the last dimension, which must hold all parts of an element.

    Raises:
      DTypeError: one dtype is complex, or one of them is bool.
      ShapeError: the last dimension has not the size of a wider element.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> hex(int(lax.bitcast_convert_type(jnp.float32(1.0), "uint32")))
      '0x3f800000'
    """
    return bitcast_convert_type_p(operand, dtype=dtypes.canonicalize_dtype(new_dtype))


def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round an array to the precision of a narrower floating type: float[*s] -> float[*s].

    Args:
      operand: floating array.
      exponent_bits: the number of exponent bits, at least 1.
      mantissa_bits: the number of mantissa bits.

    Returns:
      The rounded values in the dtype of `operand`. The compiler does not optimize the rounding away.

    Raises:
      DTypeError: `operand` is not floating.
      ArgumentError: a number of bits is out of range.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.reduce_precision(1.1, exponent_bits=8, mantissa_bits=7))
      1.1015625
    """
    return reduce_precision_p(operand, exponent_bits=int(exponent_bits), mantissa_bits=int(mantissa_bits))


def in_full_precision(fun: Callable) -> Callable:
    """Wrap `fun` to compute operands of fewer than 32 bits in float32; its iterations need that precision."""

    def wide(*operands: Any) -> Any:
        dtype = operands[0].dtype
        if bit_width(dtype) >= 32:
            return fun(*operands)
        single = np.dtype("float32")
        out = fun(*(convert_element_type_p(x, dtype=single, weak_type=False) for x in operands))
        return convert_element_type_p(out, dtype=dtype, weak_type=False)

    return wide
