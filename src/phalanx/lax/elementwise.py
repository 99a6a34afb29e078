"""The tables of elementwise primitives: one line an operation, with its StableHLO operation, dtypes and derivative.

Public functions over them are in `arithmetic`, `transcendental` and `special`; operations that need an algorithm of
their own are declared in `special` and `incomplete`. In a derivative, `t` is the tangent of the operand, `x` and `y`
are the operands and the last argument is the result.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx.core import tangent
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, DTypeError
from phalanx.core.primitive import LINEAR, ZERO, Undefined
from phalanx.engine.mlir import chlo, hlo
from phalanx.lax.convert import bits_of, convert_element_type_p
from phalanx.lax.family import (
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
    Elementwise,
    binary,
    check_kind,
    common_shape,
    compare,
    derived_jvp,
    emit_compare,
    kind_of,
    match,
    unary,
)
from phalanx.lax.select import select_n_p


def times(t: Any, c: Any) -> Any:
    """A tangent times a Python number."""
    return mul_p(*match(t, c))


def scaled(x: Any, c: Any) -> Any:
    """`x` times a Python number; `x` may be a host scalar too."""
    return mul_p(*match(_host(x), c))


def plus(x: Any, c: Any) -> Any:
    """`x` plus a Python number."""
    return add_p(*match(_host(x), c))


def one_minus(x: Any) -> Any:
    """1 - x."""
    return sub_p(*match(1, _host(x)))


def like(x: Any, c: Any) -> Any:
    """A Python number as a scalar of the dtype of `x`."""
    return aval_of(x).dtype.type(c)


def _host(x: Any) -> Any:
    """A Python scalar as a NumPy one, so that it leads a `match`."""
    return like(x, x) if isinstance(x, int | float | complex) else x


def is_complex(x: Any) -> bool:
    """Whether an operand is complex."""
    return kind_of(aval_of(x).dtype) == "complex"


def real_dtype(dtype: Any) -> Any:
    """The dtype of the parts of complex numbers; any other dtype as it is."""
    return {"complex64": np.dtype("float32"), "complex128": np.dtype("float64")}.get(dtype.name, dtype)


def complex_dtype(dtype: Any) -> Any:
    """The dtype of complex numbers with parts of `dtype`.

    Raises:
      DTypeError: there is none.
    """
    if dtype not in (np.float32, np.float64):
        raise DTypeError("lax.complex", expected="parts of float32 or float64", got=dtype,
                         mend="convert them with lax.convert_element_type(x, 'float32')")  # fmt: skip
    return np.dtype("complex128" if dtype == np.float64 else "complex64")


# Arithmetic. The tangent of a sum needs no zeros for the operand without one, hence the two columns of `add`.

add_p = binary("add", hlo.AddOp, NUMBER, lambda t, x, y, z: t, lambda t, x, y, z: t,
               transposes=(lambda z_bar, x, y: z_bar, lambda z_bar, x, y: z_bar))  # fmt: skip
sub_p = binary("sub", hlo.SubtractOp, NUMBER, lambda t, x, y, z: t, lambda t, x, y, z: neg_p(t),
               transposes=(lambda z_bar, x, y: z_bar, lambda z_bar, x, y: neg_p(z_bar)))  # fmt: skip
mul_p = binary("mul", hlo.MulOp, NUMBER, lambda t, x, y, z: mul_p(t, y), lambda t, x, y, z: mul_p(x, t),
               transposes=(lambda z_bar, x, y: mul_p(z_bar, y), lambda z_bar, x, y: mul_p(x, z_bar)))  # fmt: skip
div_p = binary("div", hlo.DivOp, NUMBER, lambda t, x, y, z: div_p(t, y),
               lambda t, x, y, z: neg_p(mul_p(t, div_p(z, y))),
               transposes=(lambda z_bar, x, y: div_p(z_bar, y), None))  # fmt: skip
neg_p = unary("neg", hlo.NegOp, NUMBER, LINEAR, transpose=lambda y_bar, x: neg_p(y_bar))


def truncated_quotient(x: Any, y: Any) -> Any:
    """x / y without its fraction: the whole number of times that `rem` takes y away."""
    q = div_p(x, y)
    return mul_p(sign_p(q), floor_p(abs_p(q)))


rem_p = binary("rem", hlo.RemOp, REAL, lambda t, x, y, z: t,
               lambda t, x, y, z: neg_p(mul_p(t, truncated_quotient(x, y))))  # fmt: skip


def share_of_larger(x: Any, y: Any) -> Any:
    """The derivative of max(x, y) by x: 1, 0, or a half each where both are equal."""
    if is_complex(x):
        larger = max_p(x, y)
        mine = select_n_p(eq_p(x, larger), like(x, 0), like(x, 1))
        return div_p(mine, select_n_p(eq_p(x, y), like(x, 1), like(x, 2)))
    tie = select_n_p(eq_p(x, y), like(x, 0), like(x, 0.5))
    return select_n_p(gt_p(x, y), tie, like(x, 1))


def lower_extreme(operation: Any, direction: str) -> Any:
    """The `lower` rule of max or min: complex numbers are ordered by their real, then their imaginary parts."""

    def lower(self: Any, ctx: Any, x: Any, y: Any) -> Any:
        dtype = ctx.avals_in[0].dtype
        if kind_of(dtype) != "complex":
            return operation(x, y).result
        part = real_dtype(dtype)
        real_x, real_y, imag_x, imag_y = hlo.real(x), hlo.real(y), hlo.imag(x), hlo.imag(y)
        tie = hlo.and_(emit_compare(real_x, real_y, "EQ", part), emit_compare(imag_x, imag_y, direction, part))
        wins = hlo.or_(emit_compare(real_x, real_y, direction, part), tie)
        return hlo.select(hlo.or_(wins, emit_compare(x, x, "NE", dtype)), x, y)

    return lower


max_p = binary("max", hlo.MaxOp, ANY, lambda t, x, y, z: mul_p(t, share_of_larger(x, y)),
               lambda t, x, y, z: mul_p(t, share_of_larger(y, x)), lower=lower_extreme(hlo.MaxOp, "GT"))  # fmt: skip
min_p = binary("min", hlo.MinOp, ANY, lambda t, x, y, z: mul_p(t, share_of_larger(y, x)),
               lambda t, x, y, z: mul_p(t, share_of_larger(x, y)), lower=lower_extreme(hlo.MinOp, "LT"))  # fmt: skip


def abs_dot(t: Any, x: Any, y: Any) -> Any:
    """For real x the sign carries over, as 1 at 0; |x| of a complex x grows by the part of t along x."""
    if is_complex(x):
        return real_p(mul_p(t, conj_p(sign_p(x))))
    return mul_p(t, select_n_p(lt_p(x, like(x, 0)), like(x, 1), like(x, -1)))


def sign_dot(t: Any, x: Any, y: Any) -> Any:
    """x/|x| of a complex x turns by the part of t across x."""
    size = abs_p(x)
    size = select_n_p(eq_p(size, like(size, 0)), size, like(size, 1))
    across = imag_p(mul_p(conj_p(y), t))
    return mul_p(y, complex_p(like(size, 0), div_p(across, size)))


def lower_sign(self: Any, ctx: Any, x: Any) -> Any:
    """Unsigned numbers have no sign operation: theirs is x != 0."""
    aval = ctx.avals_in[0]
    if kind_of(aval.dtype) != "unsigned":
        return hlo.sign(x)
    return hlo.minimum(x, ctx.constant(1, aval.strengthened()))


class Sign(Elementwise, name="sign"):
    """x / |x|, and 0 where x is 0."""

    kinds = NUMBER
    lower = lower_sign
    _turning = derived_jvp(sign_dot)

    def jvp(self, primals: Any, tangents: Any) -> tuple:
        return self._turning(primals, tangents) if is_complex(primals[0]) else ZERO(self, primals, tangents)


sign_p = Sign()
abs_p = unary("abs", hlo.AbsOp, SIGNED, abs_dot, out_dtype=real_dtype)

floor_p = unary("floor", hlo.FloorOp, FLOATING, ZERO)
ceil_p = unary("ceil", hlo.CeilOp, FLOATING, ZERO)
is_finite_p = unary("is_finite", hlo.IsFiniteOp, FLOATING, ZERO, out_dtype=lambda dtype: np.dtype(bool))
nextafter_p = binary("nextafter", chlo.NextAfterOp, FLOATING, ZERO)


class Round(Elementwise, name="round"):
    """x rounded to a whole number; halves go away from zero (method 0) or to the even neighbour (method 1)."""

    kinds = FLOATING
    jvp = ZERO

    def lower(self, ctx: Any, x: Any, *, rounding_method: int) -> Any:
        return hlo.round_nearest_even(x) if rounding_method else hlo.round_nearest_afz(x)


round_p = Round()


# Powers and roots.

square_p = unary("square", chlo.SquareOp, NUMBER, lambda t, x, y: mul_p(t, scaled(x, 2)),
                 lower=lambda self, ctx, x: hlo.multiply(x, x))  # fmt: skip
sqrt_p = unary("sqrt", hlo.SqrtOp, INEXACT, lambda t, x, y: div_p(times(t, 0.5), y))
rsqrt_p = unary("rsqrt", hlo.RsqrtOp, INEXACT, lambda t, x, y: mul_p(t, scaled(div_p(y, x), -0.5)))
cbrt_p = unary("cbrt", hlo.CbrtOp, FLOATING, lambda t, x, y: div_p(t, scaled(square_p(y), 3)))


class IntegerPow(Elementwise, name="integer_pow"):
    """x to the power of a Python integer, by repeated squaring."""

    kinds = NUMBER

    def result(self, x: Any, *, y: int) -> Any:
        check_kind("lax.integer_pow", x, NUMBER)
        if y < 0 and kind_of(x.dtype) in ("signed", "unsigned"):
            raise ArgumentError(
                "lax.integer_pow y",
                expected=f"an exponent of at least 0 for {x.str_short()}",
                got=y,
                mend="convert the base to a floating dtype",
            )
        return x

    def lower(self, ctx: Any, x: Any, *, y: int) -> Any:
        aval = ctx.aval_out.strengthened()
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

    def jvp(self, primals: Any, tangents: Any, *, y: int) -> tuple:
        (x,), (t,) = primals, tangents
        z = self(x, y=y)
        if y == 0:
            return z, tangent.Zero.like(z)
        slope = x if y == 2 else self(x, y=y - 1)
        return z, t if y == 1 else mul_p(t, scaled(slope, y))


integer_pow_p = IntegerPow()


def pow_dx(t: Any, x: Any, y: Any, z: Any) -> Any:
    """y x^(y-1), which is 0 for y = 0 even where x^(-1) is not finite."""
    if isinstance(y, int | float | complex | np.generic):
        return times(t, 0) if y == 0 else mul_p(t, mul_p(pow_p(x, like(x, y - 1)), like(x, y)))
    dtype = aval_of(x).dtype
    exponent = y if aval_of(y).dtype == dtype else convert_element_type_p(y, dtype=dtype, weak_type=False)
    safe = select_n_p(eq_p(exponent, like(x, 0)), exponent, like(x, 1))
    slope = mul_p(exponent, pow_p(x, sub_p(safe, like(x, 1))))
    return mul_p(t, slope)


def pow_dy(t: Any, x: Any, y: Any, z: Any) -> Any:
    """x^y log(x), which is 0 where x is 0 and y is positive."""
    at_zero = eq_p(x, like(x, 0))
    return mul_p(t, mul_p(log_p(select_n_p(at_zero, x, like(x, 1))), z))


class Pow(Elementwise, name="pow"):
    """x to the power y: inexact[*s], inexact or int[*s] -> inexact[*s]."""

    jvp = derived_jvp(pow_dx, pow_dy)

    def result(self, x: Any, y: Any) -> Any:
        check_kind("lax.pow x", x, INEXACT)
        if kind_of(y.dtype) not in ("signed", "unsigned"):
            return Elementwise.result(self, x, y)
        return ShapedArray(common_shape("lax.pow", (x, y)), x.dtype, x.weak_type and y.weak_type)

    def lower(self, ctx: Any, x: Any, y: Any) -> Any:
        if ctx.avals_in[1].dtype != ctx.aval_out.dtype:
            y = hlo.convert(ctx.type(ctx.aval_out), y)
        return hlo.power(x, y)


pow_p = Pow()


# Exponentials, logarithms, circular and hyperbolic functions.

LN2 = math.log(2)


def lower_exp2(self: Any, ctx: Any, x: Any, accuracy: Any = None) -> Any:
    """exp(x log 2)."""
    return exp_p.lower(ctx, hlo.multiply(x, ctx.constant(LN2, ctx.aval_out.strengthened())), accuracy=accuracy)


def lower_log2(self: Any, ctx: Any, x: Any, accuracy: Any = None) -> Any:
    """log(x) / log 2, which is whole for most powers of 2."""
    return hlo.divide(log_p.lower(ctx, x, accuracy=accuracy), ctx.constant(LN2, ctx.aval_out.strengthened()))


exp_p = unary("exp", hlo.ExpOp, INEXACT, lambda t, x, y: mul_p(t, y))
exp2_p = unary("exp2", None, INEXACT, lambda t, x, y: mul_p(t, scaled(y, LN2)),
               lower=lower_exp2)  # fmt: skip
expm1_p = unary("expm1", hlo.Expm1Op, INEXACT, lambda t, x, y: mul_p(t, plus(y, 1)))
log_p = unary("log", hlo.LogOp, INEXACT, lambda t, x, y: div_p(t, x))
log2_p = unary("log2", None, INEXACT, lambda t, x, y: div_p(t, scaled(x, LN2)), lower=lower_log2)
log1p_p = unary("log1p", hlo.Log1pOp, INEXACT, lambda t, x, y: div_p(t, plus(x, 1)))
logistic_p = unary("logistic", hlo.LogisticOp, INEXACT, lambda t, x, y: mul_p(t, mul_p(y, one_minus(y))))
sin_p = unary("sin", hlo.SineOp, INEXACT, lambda t, x, y: mul_p(t, cos_p(x)))
cos_p = unary("cos", hlo.CosineOp, INEXACT, lambda t, x, y: neg_p(mul_p(t, sin_p(x))))
tan_p = unary("tan", hlo.TanOp, INEXACT, lambda t, x, y: mul_p(t, plus(square_p(y), 1)))
asin_p = unary("asin", chlo.AsinOp, INEXACT, lambda t, x, y: mul_p(t, rsqrt_p(one_minus(square_p(x)))))
acos_p = unary("acos", chlo.AcosOp, INEXACT, lambda t, x, y: neg_p(mul_p(t, rsqrt_p(one_minus(square_p(x))))))
atan_p = unary("atan", chlo.AtanOp, INEXACT, lambda t, x, y: div_p(t, plus(square_p(x), 1)))
sinh_p = unary("sinh", chlo.SinhOp, INEXACT, lambda t, x, y: mul_p(t, cosh_p(x)))
cosh_p = unary("cosh", chlo.CoshOp, INEXACT, lambda t, x, y: mul_p(t, sinh_p(x)))
tanh_p = unary("tanh", hlo.TanhOp, INEXACT, lambda t, x, y: mul_p(t, one_minus(square_p(y))))
asinh_p = unary("asinh", chlo.AsinhOp, INEXACT, lambda t, x, y: mul_p(t, rsqrt_p(plus(square_p(x), 1))))
acosh_p = unary("acosh", chlo.AcoshOp, INEXACT,
                lambda t, x, y: mul_p(t, mul_p(rsqrt_p(plus(x, -1)), rsqrt_p(plus(x, 1)))))  # fmt: skip
atanh_p = unary("atanh", chlo.AtanhOp, INEXACT, lambda t, x, y: div_p(t, one_minus(square_p(x))))


def radius(x: Any, y: Any) -> Any:
    """x^2 + y^2."""
    return add_p(square_p(x), square_p(y))


atan2_p = binary("atan2", hlo.Atan2Op, INEXACT, lambda t, x, y, z: mul_p(t, div_p(y, radius(x, y))),
                 lambda t, x, y, z: neg_p(mul_p(t, div_p(x, radius(x, y)))))  # fmt: skip


# Error function and gamma family, as far as CHLO has them.

TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def erf_slope(x: Any) -> Any:
    """2/sqrt(pi) exp(-x^2)."""
    return scaled(exp_p(neg_p(square_p(x))), TWO_OVER_ROOT_PI)


erf_p = unary("erf", chlo.ErfOp, FLOATING, lambda t, x, y: mul_p(t, erf_slope(x)), by_pieces=True)
erfc_p = unary("erfc", chlo.ErfcOp, FLOATING, lambda t, x, y: neg_p(mul_p(t, erf_slope(x))))
erf_inv_p = unary("erf_inv", chlo.ErfInvOp, FLOATING,
                  lambda t, x, y: mul_p(t, scaled(exp_p(square_p(y)), 1 / TWO_OVER_ROOT_PI)))  # fmt: skip
lgamma_p = unary("lgamma", chlo.LgammaOp, FLOATING, lambda t, x, y: mul_p(t, digamma_p(x)))
digamma_p = unary("digamma", chlo.DigammaOp, FLOATING, lambda t, x, y: mul_p(t, polygamma_p(like(x, 1), x)))
polygamma_p = binary("polygamma", chlo.PolygammaOp, FLOATING,
                     Undefined("polygamma is defined for whole orders m; stop the gradient at m"),
                     lambda t, m, x, y: mul_p(t, polygamma_p(plus(m, 1), x)))  # fmt: skip
zeta_p = binary("zeta", chlo.ZetaOp, FLOATING,
                Undefined("no closed form is known; stop the gradient at the exponent x"),
                lambda t, x, q, y: neg_p(mul_p(t, mul_p(x, zeta_p(plus(x, 1), q)))))  # fmt: skip


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


def lower_mulhi(self: Any, ctx: Any, x: Any, y: Any) -> Any:
    """The high half of the product: of the wider type where there is one, else of four products of halves."""
    aval = ctx.aval_out.strengthened()
    bits = bits_of(aval.dtype)
    if bits < 64:
        signed = "int" if kind_of(aval.dtype) == "signed" else "uint"
        wide = aval.with_dtype(np.dtype(f"{signed}{max(8, bits) * 2}"))
        product = hlo.multiply(hlo.convert(ctx.type(wide), x), hlo.convert(ctx.type(wide), y))
        high = hlo.shift_right_logical(product, ctx.constant(bits, wide))
        return hlo.convert(ctx.type(aval), high)
    return _mulhi_64(ctx, aval, x, y)


def _mulhi_64(ctx: Any, aval: Any, x: Any, y: Any) -> Any:
    """Source: Warren, Hacker's Delight, 2nd ed., section 8-2."""
    half, mask = ctx.constant(32, aval), ctx.constant(0xFFFFFFFF, aval)
    signed = kind_of(aval.dtype) == "signed"
    up = hlo.shift_right_arithmetic if signed else hlo.shift_right_logical
    x0, x1, y0, y1 = hlo.and_(x, mask), up(x, half), hlo.and_(y, mask), up(y, half)
    middle = hlo.add(hlo.multiply(x1, y0), hlo.shift_right_logical(hlo.multiply(x0, y0), half))
    low = hlo.add(hlo.multiply(x0, y1), hlo.and_(middle, mask))
    return hlo.add(hlo.add(hlo.multiply(x1, y1), up(middle, half)), up(low, half))


mulhi_p = binary("mulhi", None, INTEGER, ZERO, lower=lower_mulhi)


# Comparisons. The last three order all floating values: -NaN < -inf < -0 < 0 < inf < NaN.

eq_p = compare("eq", "EQ", EQUATED)
ne_p = compare("ne", "NE", EQUATED)
lt_p = compare("lt", "LT", ORDERED)
le_p = compare("le", "LE", ORDERED)
gt_p = compare("gt", "GT", ORDERED)
ge_p = compare("ge", "GE", ORDERED)
eq_to_p = compare("eq_to", "EQ", ORDERED, total=True)
lt_to_p = compare("lt_to", "LT", ORDERED, total=True)
le_to_p = compare("le_to", "LE", ORDERED, total=True)


# Complex numbers. A cotangent pairs with a tangent by Re(x_bar x_dot), as for holomorphic functions; hence the signs.

real_p = unary("real", hlo.RealOp, COMPLEX, LINEAR, out_dtype=real_dtype,
               transpose=lambda y_bar, x: complex_p(y_bar, like(y_bar, 0)))  # fmt: skip
imag_p = unary("imag", hlo.ImagOp, COMPLEX, LINEAR, out_dtype=real_dtype,
               transpose=lambda y_bar, x: complex_p(like(y_bar, 0), neg_p(y_bar)))  # fmt: skip
complex_p = binary("complex", hlo.ComplexOp, FLOATING, LINEAR, out_dtype=complex_dtype,
                   transposes=(lambda z_bar, x, y: real_p(z_bar),
                               lambda z_bar, x, y: neg_p(imag_p(z_bar))))  # fmt: skip


def conj_bar(y_bar: Any, x: Any) -> Any:
    """The conjugate again, and only its real part for an operand that was real."""
    return conj_p(y_bar) if is_complex(x) else real_p(y_bar)


def lower_conj(self: Any, ctx: Any, x: Any) -> Any:
    """A real operand becomes a complex number without imaginary part."""
    aval = ctx.avals_in[0].strengthened()
    if kind_of(aval.dtype) != "complex":
        return hlo.complex(x, ctx.constant(0, aval))
    return hlo.complex(hlo.real(x), hlo.negate(hlo.imag(x)))


conj_p = unary("conj", None, INEXACT, LINEAR, transpose=conj_bar, lower=lower_conj,
               out_dtype=lambda dtype: dtype if kind_of(dtype) == "complex" else complex_dtype(dtype))  # fmt: skip
