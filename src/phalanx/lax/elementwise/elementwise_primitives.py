"""Elementwise primitives, one row each: the name, the StableHLO operation, the dtypes, and the derivative.

The public functions are in `arithmetic`, `comparison`, `special` and `transcendental`; primitives that are algorithms
are declared in `special` and `incomplete_gamma_beta`. The arguments of a derivative are the tangent `t` of one operand,
all operands, and the result: `(t, x, y)` of an operation on `x`, `(t, x, y, z)` of one on `x` and `y`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    LINEAR,
    ZERO,
    ArgumentError,
    DTypeError,
    Primitive,
    ShapedArray,
    Undefined,
    dtypes,
    get_aval,
    tangent,
)
from phalanx.engine.mlir import chlo, hlo, ir
from phalanx.lax.elementwise.convert_element_type import bit_width, convert_element_type_p
from phalanx.lax.elementwise.elementwise_builders import (
    ANY,
    BITS,
    COMPLEX,
    EQUATED,
    FLOATING,
    INEXACT,
    INTEGER,
    NUMBER,
    ORDERED,
    REAL,
    SIGNED,
    AccuracyMode,
    Elementwise,
    Tolerance,
    binary,
    check_dtype_kind,
    common_shape,
    compare,
    declare_primitive,
    derive_jvp,
    dtype_kind,
    emit_compare,
    match_scalars,
    unary,
)
from phalanx.lax.elementwise.select import select_n_p
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike, DTypeLike


def scale_tangent(t: ArrayLike, c: complex) -> Any:
    """Multiply a tangent by a Python number."""
    return mul_p(*match_scalars(t, c))


def scale_by(x: ArrayLike, c: complex) -> Any:
    """Multiply `x`, which may be a host scalar, by a Python number."""
    return mul_p(*match_scalars(_as_host_scalar(x), c))


def add_number(x: ArrayLike, c: complex) -> Any:
    """Add a Python number to `x`."""
    return add_p(*match_scalars(_as_host_scalar(x), c))


def one_minus(x: ArrayLike) -> Any:
    """1 - x."""
    return sub_p(*match_scalars(1, _as_host_scalar(x)))


def constant_like(x: ArrayLike, c: complex) -> Any:
    """Convert a Python number to a scalar of the dtype of `x`."""
    return get_aval(x).dtype.type(c)


def _as_host_scalar(x: Array) -> Any:
    """Convert a Python scalar to a NumPy one, so that `match_scalars` takes its dtype."""
    return constant_like(x, x) if isinstance(x, int | float | complex) else x


def is_complex(x: ArrayLike) -> bool:
    """Whether an operand is complex."""
    return dtype_kind(get_aval(x).dtype) == "complex"


def real_dtype(dtype: DTypeLike) -> Any:
    """Return the dtype of the real part of a complex dtype; other dtypes are not changed."""
    return {"complex64": np.dtype("float32"), "complex128": np.dtype("float64")}.get(dtype.name, dtype)


def complex_dtype(dtype: DTypeLike) -> Any:
    """Return the complex dtype whose real part is of `dtype`.

    Raises:
      DTypeError: there is no such dtype.
    """
    if dtype not in (np.float32, np.float64):
        raise DTypeError(
            "lax.complex",
            expected="parts of float32 or float64",
            got=dtype,
            fix="convert them with lax.convert_element_type(x, 'float32')",
        )
    return np.dtype("complex128" if dtype == np.float64 else "complex64")


# Arithmetic. `add` and `sub` have a derivative for each operand rather than LINEAR, which would instantiate a symbolic
# zero of the other tangent.

add_p = binary(
    "add",
    hlo.AddOp,
    NUMBER,
    lambda t, x, y, z: t,
    lambda t, x, y, z: t,
    transposes=(lambda z_bar, x, y: z_bar, lambda z_bar, x, y: z_bar),
    linear_in=((0, 1),),
)
sub_p = binary(
    "sub",
    hlo.SubtractOp,
    NUMBER,
    lambda t, x, y, z: t,
    lambda t, x, y, z: neg_p(t),
    transposes=(lambda z_bar, x, y: z_bar, lambda z_bar, x, y: neg_p(z_bar)),
    linear_in=((0, 1),),
)
mul_p = binary(
    "mul",
    hlo.MulOp,
    NUMBER,
    lambda t, x, y, z: mul_p(t, y),
    lambda t, x, y, z: mul_p(x, t),
    transposes=(lambda z_bar, x, y: mul_p(z_bar, y), lambda z_bar, x, y: mul_p(x, z_bar)),
    linear_in=((0,), (1,)),
)
# d(x / y) / dy = -(x / y) / y, from the result z.
div_p = binary(
    "div",
    hlo.DivOp,
    NUMBER,
    lambda t, x, y, z: div_p(t, y),
    lambda t, x, y, z: neg_p(mul_p(t, div_p(z, y))),
    transposes=(lambda z_bar, x, y: div_p(z_bar, y), None),
    linear_in=((0,),),
)
neg_p = unary("neg", hlo.NegOp, NUMBER, LINEAR, transpose=lambda y_bar, x: neg_p(y_bar))


def truncated_quotient(x: ArrayLike, y: ArrayLike) -> Any:
    """The quotient x / y rounded towards zero, by which `rem` multiplies y."""
    q = div_p(x, y)
    return mul_p(sign_p(q), floor_p(abs_p(q)))


# rem(x, y) = x - y q with the truncated quotient q, which is locally constant.
rem_p = binary(
    "rem", hlo.RemOp, REAL, lambda t, x, y, z: t, lambda t, x, y, z: neg_p(mul_p(t, truncated_quotient(x, y)))
)


def max_slope(x: ArrayLike, y: ArrayLike) -> Any:
    """The derivative of max(x, y) with respect to x: 1, 0, or 1/2 where both are equal."""
    if is_complex(x):
        larger = max_p(x, y)
        is_larger = select_n_p(eq_p(x, larger), constant_like(x, 0), constant_like(x, 1))
        return div_p(is_larger, select_n_p(eq_p(x, y), constant_like(x, 1), constant_like(x, 2)))
    tie = select_n_p(eq_p(x, y), constant_like(x, 0), constant_like(x, 0.5))
    return select_n_p(gt_p(x, y), tie, constant_like(x, 1))


def lower_max_or_min(operation: Callable[..., Any], direction: str) -> Any:
    """Make the `lower` rule of max or min, which orders complex numbers by the real, then by the imaginary part."""

    def lower(self: Primitive, ctx: LoweringContext, x: ir.Value, y: ir.Value) -> Any:
        dtype = ctx.avals_in[0].dtype
        if dtype_kind(dtype) != "complex":
            return operation(x, y).result
        part = real_dtype(dtype)
        real_x, real_y, imag_x, imag_y = hlo.real(x), hlo.real(y), hlo.imag(x), hlo.imag(y)
        tie = hlo.and_(emit_compare(real_x, real_y, "EQ", part), emit_compare(imag_x, imag_y, direction, part))
        # NaN wins: a comparison of x with itself detects it.
        wins = hlo.or_(emit_compare(real_x, real_y, direction, part), tie)
        return hlo.select(hlo.or_(wins, emit_compare(x, x, "NE", dtype)), x, y)

    return lower


# Where both operands are equal, each receives half of the tangent.
max_p = binary(
    "max",
    hlo.MaxOp,
    ANY,
    lambda t, x, y, z: mul_p(t, max_slope(x, y)),
    lambda t, x, y, z: mul_p(t, max_slope(y, x)),
    lower=lower_max_or_min(hlo.MaxOp, "GT"),
)
min_p = binary(
    "min",
    hlo.MinOp,
    ANY,
    lambda t, x, y, z: mul_p(t, max_slope(y, x)),
    lambda t, x, y, z: mul_p(t, max_slope(x, y)),
    lower=lower_max_or_min(hlo.MinOp, "LT"),
)


def abs_dot(t: ArrayLike, x: ArrayLike, y: ArrayLike) -> Any:
    """t sign(x) for real x, with slope 1 at 0; the component of t in the direction of x for complex x."""
    if is_complex(x):
        return real_p(mul_p(t, conj_p(sign_p(x))))
    return mul_p(t, select_n_p(lt_p(x, constant_like(x, 0)), constant_like(x, 1), constant_like(x, -1)))


def sign_dot(t: ArrayLike, x: ArrayLike, y: ArrayLike) -> Any:
    """The rotation of x / |x| for complex x: i y times the component of t perpendicular to x, over |x|."""
    size = abs_p(x)
    size = select_n_p(eq_p(size, constant_like(size, 0)), size, constant_like(size, 1))
    across = imag_p(mul_p(conj_p(y), t))
    return mul_p(y, complex_p(constant_like(size, 0), div_p(across, size)))


def lower_sign(self: Primitive, ctx: LoweringContext, x: ir.Value) -> Any:
    """StableHLO has no sign of unsigned numbers; min(x, 1) is x != 0."""
    aval = ctx.avals_in[0]
    if dtype_kind(aval.dtype) != "unsigned":
        return hlo.sign(x)
    return hlo.minimum(x, ctx.constant(1, aval.strip_weak_type()))


_rotate = derive_jvp(sign_dot)


def sign_jvp(self: Primitive, primals: Sequence[Array], tangents: Sequence[Array]) -> tuple:
    """The rotation of complex numbers; zero for real ones, whose sign is locally constant."""
    return (_rotate if is_complex(primals[0]) else ZERO)(self, primals, tangents)


sign_p = declare_primitive(
    "sign", Elementwise, "x / |x|, and 0 where x is 0.", kinds=NUMBER, lower=lower_sign, jvp=sign_jvp
)
abs_p = unary("abs", hlo.AbsOp, SIGNED, abs_dot, out_dtype=real_dtype)

floor_p = unary("floor", hlo.FloorOp, FLOATING, ZERO)
ceil_p = unary("ceil", hlo.CeilOp, FLOATING, ZERO)
is_finite_p = unary("is_finite", hlo.IsFiniteOp, FLOATING, ZERO, out_dtype=lambda dtype: np.dtype(bool))
nextafter_p = binary("nextafter", chlo.NextAfterOp, FLOATING, ZERO)


def lower_round(self: Primitive, ctx: LoweringContext, x: ir.Value, *, rounding_method: int) -> Any:
    """Halves are rounded away from zero (method 0) or to the even neighbour (method 1)."""
    return hlo.round_nearest_even(x) if rounding_method else hlo.round_nearest_afz(x)


round_p = unary("round", None, FLOATING, ZERO, lower=lower_round)


# Powers and roots.

square_p = unary(
    "square",
    chlo.SquareOp,
    NUMBER,
    lambda t, x, y: mul_p(t, scale_by(x, 2)),
    lower=lambda self, ctx, x: hlo.multiply(x, x),
)
# Derivatives use the result y where that saves an evaluation: 1 / (2 y), -y / (2 x), 1 / (3 y^2).
sqrt_p = unary("sqrt", hlo.SqrtOp, INEXACT, lambda t, x, y: div_p(scale_tangent(t, 0.5), y))
rsqrt_p = unary("rsqrt", hlo.RsqrtOp, INEXACT, lambda t, x, y: mul_p(t, scale_by(div_p(y, x), -0.5)))
cbrt_p = unary("cbrt", hlo.CbrtOp, FLOATING, lambda t, x, y: div_p(t, scale_by(square_p(y), 3)))


class IntegerPow(Elementwise, name="integer_pow"):
    """x to the power of a Python integer, by repeated squaring."""

    kinds = NUMBER

    def abstract_eval(self, x: ShapedArray, *, y: int) -> Any:
        check_dtype_kind("lax.integer_pow", x, NUMBER)
        if y < 0 and dtype_kind(x.dtype) in ("signed", "unsigned"):
            raise ArgumentError(
                "lax.integer_pow y",
                expected=f"an exponent of at least 0 for {x.str_short()}",
                got=y,
                fix="convert the base with lax.convert_element_type(x, 'float32')",
            )
        return x

    def lower(self, ctx: LoweringContext, x: ir.Value, *, y: int) -> Any:
        aval = ctx.aval_out.strip_weak_type()
        # Binary powering: log2(y) squarings, and one product for each further one bit of the exponent.
        power, rest, factor = None, abs(y), x
        while rest:
            if rest & 1:
                power = factor if power is None else hlo.multiply(power, factor)
            rest >>= 1
            if rest:
                factor = hlo.multiply(factor, factor)
        if power is None:
            return ctx.constant(1, aval)
        return hlo.divide(ctx.constant(1, aval), power) if y < 0 else power

    def jvp(self, primals: Sequence[Array], tangents: Sequence[Array], *, y: int) -> tuple:
        (x,), (t,) = primals, tangents
        z = self(x, y=y)
        if y == 0:
            return z, tangent.Zero.like(z)
        slope = x if y == 2 else self(x, y=y - 1)
        return z, t if y == 1 else mul_p(t, scale_by(slope, y))


integer_pow_p = IntegerPow()


def pow_dx(t: ArrayLike, x: ArrayLike, y: ArrayLike, z: ArrayLike) -> Any:
    """t y x^(y-1), where y = 0 gives 0 even if x^(-1) is not finite; its derivative in y is x^(-1) elsewhere."""
    # A constant exponent needs no select for y = 0.
    if isinstance(y, int | float | complex | np.generic):
        return (
            scale_tangent(t, 0) if y == 0 else mul_p(t, mul_p(pow_p(x, constant_like(x, y - 1)), constant_like(x, y)))
        )
    dtype = get_aval(x).dtype
    exponent = y if get_aval(y).dtype == dtype else convert_element_type_p(y, dtype=dtype, weak_type=False)
    size = abs_p(x)
    is_singular = lt_p(size, constant_like(size, float(dtypes.finfo(dtype).tiny)))
    is_singular = and_p(is_singular, eq_p(exponent, constant_like(x, 0)))
    safe = select_n_p(is_singular, exponent, constant_like(x, 1))
    return mul_p(t, mul_p(exponent, pow_p(x, sub_p(safe, constant_like(x, 1)))))


def pow_dy(t: ArrayLike, x: ArrayLike, y: ArrayLike, z: ArrayLike) -> Any:
    """t x^y log(x), where x = 0 gives 0 for positive y."""
    return mul_p(t, mul_p(log_p(select_n_p(eq_p(x, constant_like(x, 0)), x, constant_like(x, 1))), z))


class Pow(Elementwise, name="pow"):
    """x to the power y: inexact[*s], inexact or int[*s] -> inexact[*s]."""

    jvp = derive_jvp(pow_dx, pow_dy)

    def abstract_eval(self, x: ShapedArray, y: ShapedArray) -> Any:
        check_dtype_kind("lax.pow x", x, INEXACT)
        if dtype_kind(y.dtype) not in ("signed", "unsigned"):
            return Elementwise.abstract_eval(self, x, y)
        return ShapedArray(common_shape("lax.pow", (x, y)), x.dtype, x.weak_type and y.weak_type)

    def lower(self, ctx: LoweringContext, x: ir.Value, y: ir.Value) -> Any:
        y = hlo.convert(ctx.type(ctx.aval_out), y) if ctx.avals_in[1].dtype != ctx.aval_out.dtype else y
        return hlo.power(x, y)


pow_p = Pow()


# Exponentials, logarithms, circular and hyperbolic functions.

LN2 = math.log(2)


def lower_exp2(
    self: Primitive, ctx: LoweringContext, x: ir.Value, accuracy: Tolerance | AccuracyMode | None = None
) -> Any:
    """exp(x log 2)."""
    return exp_p.lower(ctx, hlo.multiply(x, ctx.constant(LN2, ctx.aval_out.strip_weak_type())), accuracy=accuracy)


def lower_log2(
    self: Primitive, ctx: LoweringContext, x: ir.Value, accuracy: Tolerance | AccuracyMode | None = None
) -> Any:
    """log(x) / log 2, which is exact for most powers of 2."""
    return hlo.divide(log_p.lower(ctx, x, accuracy=accuracy), ctx.constant(LN2, ctx.aval_out.strip_weak_type()))


# The derivatives of exp, exp2, logistic, tan and tanh are polynomials of the result y. That of expm1 is not computed as
# y + 1, which is 0 where y rounds to -1; that of tanh is (1 + y) (1 - y), since 1 - y^2 cancels where y is near 1.
exp_p = unary("exp", hlo.ExpOp, INEXACT, lambda t, x, y: mul_p(t, y))
exp2_p = unary("exp2", None, INEXACT, lambda t, x, y: mul_p(t, scale_by(y, LN2)), lower=lower_exp2)
expm1_p = unary("expm1", hlo.Expm1Op, INEXACT, lambda t, x, y: mul_p(t, exp_p(x)))
log_p = unary("log", hlo.LogOp, INEXACT, lambda t, x, y: div_p(t, x))
log2_p = unary("log2", None, INEXACT, lambda t, x, y: div_p(t, scale_by(x, LN2)), lower=lower_log2)
log1p_p = unary("log1p", hlo.Log1pOp, INEXACT, lambda t, x, y: div_p(t, add_number(x, 1)))
logistic_p = unary("logistic", hlo.LogisticOp, INEXACT, lambda t, x, y: mul_p(t, mul_p(y, one_minus(y))))
sin_p = unary("sin", hlo.SineOp, INEXACT, lambda t, x, y: mul_p(t, cos_p(x)))
cos_p = unary("cos", hlo.CosineOp, INEXACT, lambda t, x, y: neg_p(mul_p(t, sin_p(x))))
tan_p = unary("tan", hlo.TanOp, INEXACT, lambda t, x, y: mul_p(t, add_number(square_p(y), 1)))
asin_p = unary("asin", chlo.AsinOp, INEXACT, lambda t, x, y: mul_p(t, rsqrt_p(one_minus(square_p(x)))))
acos_p = unary("acos", chlo.AcosOp, INEXACT, lambda t, x, y: neg_p(mul_p(t, rsqrt_p(one_minus(square_p(x))))))
atan_p = unary("atan", chlo.AtanOp, INEXACT, lambda t, x, y: div_p(t, add_number(square_p(x), 1)))
sinh_p = unary("sinh", chlo.SinhOp, INEXACT, lambda t, x, y: mul_p(t, cosh_p(x)))
cosh_p = unary("cosh", chlo.CoshOp, INEXACT, lambda t, x, y: mul_p(t, sinh_p(x)))
tanh_p = unary("tanh", hlo.TanhOp, INEXACT, lambda t, x, y: mul_p(t, mul_p(add_number(y, 1), one_minus(y))))
asinh_p = unary("asinh", chlo.AsinhOp, INEXACT, lambda t, x, y: mul_p(t, rsqrt_p(add_number(square_p(x), 1))))
# sqrt(x - 1) sqrt(x + 1) rather than sqrt(x^2 - 1), which cancels near 1 and overflows for large x.
acosh_p = unary(
    "acosh",
    chlo.AcoshOp,
    INEXACT,
    lambda t, x, y: mul_p(t, mul_p(rsqrt_p(add_number(x, -1)), rsqrt_p(add_number(x, 1)))),
)
atanh_p = unary("atanh", chlo.AtanhOp, INEXACT, lambda t, x, y: div_p(t, one_minus(square_p(x))))


def sum_of_squares(x: ArrayLike, y: ArrayLike) -> Any:
    """x^2 + y^2."""
    return add_p(square_p(x), square_p(y))


# x is the ordinate and y the abscissa: the angle changes by (y dx - x dy) / (x^2 + y^2).
atan2_p = binary(
    "atan2",
    hlo.Atan2Op,
    INEXACT,
    lambda t, x, y, z: mul_p(t, div_p(y, sum_of_squares(x, y))),
    lambda t, x, y, z: neg_p(mul_p(t, div_p(x, sum_of_squares(x, y)))),
)


# Error, gamma and zeta functions that are CHLO operations.

TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def erf_slope(x: ArrayLike) -> Any:
    """2/sqrt(pi) exp(-x^2)."""
    return scale_by(exp_p(neg_p(square_p(x))), TWO_OVER_ROOT_PI)


erf_p = unary("erf", chlo.ErfOp, FLOATING, lambda t, x, y: mul_p(t, erf_slope(x)))
erfc_p = unary("erfc", chlo.ErfcOp, FLOATING, lambda t, x, y: neg_p(mul_p(t, erf_slope(x))))
erf_inv_p = unary(
    "erf_inv", chlo.ErfInvOp, FLOATING, lambda t, x, y: mul_p(t, scale_by(exp_p(square_p(y)), 1 / TWO_OVER_ROOT_PI))
)
lgamma_p = unary("lgamma", chlo.LgammaOp, FLOATING, lambda t, x, y: mul_p(t, digamma_p(x)))
# The m-th derivative of digamma is polygamma of order m, whose derivative is the next order.
digamma_p = unary("digamma", chlo.DigammaOp, FLOATING, lambda t, x, y: mul_p(t, polygamma_p(constant_like(x, 1), x)))
polygamma_p = binary(
    "polygamma",
    chlo.PolygammaOp,
    FLOATING,
    Undefined("polygamma is defined for integer orders m; apply lax.stop_gradient to m"),
    lambda t, m, x, y: mul_p(t, polygamma_p(add_number(m, 1), x)),
)
zeta_p = binary(
    "zeta",
    chlo.ZetaOp,
    FLOATING,
    Undefined("no closed form is known; apply lax.stop_gradient to the exponent x"),
    lambda t, x, q, y: neg_p(mul_p(t, mul_p(x, zeta_p(add_number(x, 1), q)))),
)


# Bits.

and_p = binary("and", hlo.AndOp, BITS, ZERO)
or_p = binary("or", hlo.OrOp, BITS, ZERO)
xor_p = binary("xor", hlo.XorOp, BITS, ZERO)
not_p = unary("not", hlo.NotOp, BITS, ZERO)
shift_left_p = binary("shift_left", hlo.ShiftLeftOp, INTEGER, ZERO)
shift_right_arithmetic_p = binary("shift_right_arithmetic", hlo.ShiftRightArithmeticOp, INTEGER, ZERO)
shift_right_logical_p = binary("shift_right_logical", hlo.ShiftRightLogicalOp, INTEGER, ZERO)
population_count_p = unary("population_count", hlo.PopulationCountOp, INTEGER, ZERO)
clz_p = unary("clz", hlo.ClzOp, INTEGER, ZERO)


def lower_mulhi(self: Primitive, ctx: LoweringContext, x: ir.Value, y: ir.Value) -> Any:
    """The high half of the product: in the wider dtype if there is one, else from four products of halves."""
    aval = ctx.aval_out.strip_weak_type()
    bits = bit_width(aval.dtype)
    if bits < 64:
        # The product of two n-bit numbers fits in 2n bits.
        signed = "int" if dtype_kind(aval.dtype) == "signed" else "uint"
        wide = aval.with_dtype(np.dtype(f"{signed}{max(8, bits) * 2}"))
        product = hlo.multiply(hlo.convert(ctx.type(wide), x), hlo.convert(ctx.type(wide), y))
        return hlo.convert(ctx.type(aval), hlo.shift_right_logical(product, ctx.constant(bits, wide)))
    return _mulhi_64(ctx, aval, x, y)


def _mulhi_64(ctx: LoweringContext, aval: ShapedArray, x: ir.Value, y: ir.Value) -> Any:
    """The high half of a 128-bit product from products of 32-bit halves.

    Source: Warren, Hacker's Delight, 2nd ed., section 8-2.
    """
    half, mask = ctx.constant(32, aval), ctx.constant(0xFFFFFFFF, aval)
    signed = dtype_kind(aval.dtype) == "signed"
    up = hlo.shift_right_arithmetic if signed else hlo.shift_right_logical
    x0, x1, y0, y1 = hlo.and_(x, mask), up(x, half), hlo.and_(y, mask), up(y, half)
    middle = hlo.add(hlo.multiply(x1, y0), hlo.shift_right_logical(hlo.multiply(x0, y0), half))
    low = hlo.add(hlo.multiply(x0, y1), hlo.and_(middle, mask))
    return hlo.add(hlo.add(hlo.multiply(x1, y1), up(middle, half)), up(low, half))


mulhi_p = binary("mulhi", None, INTEGER, ZERO, lower=lower_mulhi)


# Comparisons. The last three use the total order of floating-point numbers: -NaN < -inf < -0 < 0 < inf < NaN.

eq_p = compare("eq", "EQ", EQUATED)
ne_p = compare("ne", "NE", EQUATED)
lt_p = compare("lt", "LT", ORDERED)
le_p = compare("le", "LE", ORDERED)
gt_p = compare("gt", "GT", ORDERED)
ge_p = compare("ge", "GE", ORDERED)
eq_to_p = compare("eq_to", "EQ", ORDERED, total=True)
lt_to_p = compare("lt_to", "LT", ORDERED, total=True)
le_to_p = compare("le_to", "LE", ORDERED, total=True)


# Complex numbers. Cotangents pair with tangents by Re(x_bar x_dot), without conjugation, as in JAX. The transpose of
# `imag` therefore has a negative sign.

real_p = unary(
    "real",
    hlo.RealOp,
    COMPLEX,
    LINEAR,
    out_dtype=real_dtype,
    transpose=lambda y_bar, x: complex_p(y_bar, constant_like(y_bar, 0)),
)
imag_p = unary(
    "imag",
    hlo.ImagOp,
    COMPLEX,
    LINEAR,
    out_dtype=real_dtype,
    transpose=lambda y_bar, x: complex_p(constant_like(y_bar, 0), neg_p(y_bar)),
)
complex_p = binary(
    "complex",
    hlo.ComplexOp,
    FLOATING,
    LINEAR,
    out_dtype=complex_dtype,
    transposes=(lambda z_bar, x, y: real_p(z_bar), lambda z_bar, x, y: neg_p(imag_p(z_bar))),
)


def conj_bar(y_bar: ArrayLike, x: ArrayLike) -> Any:
    """The conjugate of the cotangent, of which a real operand receives the real part."""
    return conj_p(y_bar) if is_complex(x) else real_p(y_bar)


def lower_conj(self: Primitive, ctx: LoweringContext, x: ir.Value) -> Any:
    """A real operand is converted to a complex number of imaginary part 0."""
    aval = ctx.avals_in[0].strip_weak_type()
    if dtype_kind(aval.dtype) != "complex":
        return hlo.complex(x, ctx.constant(0, aval))
    return hlo.complex(hlo.real(x), hlo.negate(hlo.imag(x)))


conj_p = unary(
    "conj",
    None,
    INEXACT,
    LINEAR,
    transpose=conj_bar,
    lower=lower_conj,
    out_dtype=lambda dtype: dtype if dtype_kind(dtype) == "complex" else complex_dtype(dtype),
)
