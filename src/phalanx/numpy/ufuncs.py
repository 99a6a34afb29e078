"""The element-by-element functions, as tables.

A row gives a name, the classes of dtypes it takes (b boolean, i integer, f floating, c complex), the dtype it computes
in, its primitive or body (by class where these differ), one line of documentation and an example with its result.
Built on `ufunc`, which turns rows into functions, and on `bodies`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.errors import DTypeError
from phalanx.numpy import bodies
from phalanx.numpy.operands import cast, operand, promote_inexact, refuse_out
from phalanx.numpy.ufunc import Rule, binary, bools_as_ints, class_of, elementwise, inexact, same
from phalanx.runtime.dispatch import eager_program

# As in JAX; it decides what these give together with a narrower array.
_STRONG = {"log10", "spacing"}


def _row(
    name: str, classes: str, compute: Callable, function: Any, doc: str, example: str, result: str, *, parameters: str,
    **by_class: Any,
) -> Any:  # fmt: skip
    rule = Rule(name, classes, compute, {"": function, **by_class}, name in _STRONG)
    return elementwise(rule, parameters, __name__, doc, f">>> jnp.{name}({example}).tolist()\n      {result}")


_unary, _binary = (functools.partial(_row, parameters=names) for names in ("x /", "x1 x2 /"))


_p, _b = lax, bodies

# fmt: off
sin = _unary("sin", "bifc", inexact, _p.sin_p, "Sine.", "0.0", "0.0")
cos = _unary("cos", "bifc", inexact, _p.cos_p, "Cosine.", "0.0", "1.0")
tan = _unary("tan", "bifc", inexact, _p.tan_p, "Tangent.", "0.0", "0.0")
arcsin = _unary("arcsin", "bifc", inexact, _p.asin_p, "Inverse sine.", "0.0", "0.0")
arccos = _unary("arccos", "bifc", inexact, _p.acos_p, "Inverse cosine.", "1.0", "0.0")
arctan = _unary("arctan", "bifc", inexact, _p.atan_p, "Inverse tangent.", "0.0", "0.0")
sinh = _unary("sinh", "bifc", inexact, _p.sinh_p, "Hyperbolic sine.", "0.0", "0.0")
cosh = _unary("cosh", "bifc", inexact, _p.cosh_p, "Hyperbolic cosine.", "0.0", "1.0")
tanh = _unary("tanh", "bifc", inexact, _p.tanh_p, "Hyperbolic tangent.", "0.0", "0.0")
arcsinh = _unary("arcsinh", "bifc", inexact, _p.asinh_p, "Inverse hyperbolic sine.", "0.0", "0.0")
arccosh = _unary("arccosh", "bifc", inexact, _p.acosh_p, "Inverse hyperbolic cosine.", "1.0", "0.0")
arctanh = _unary("arctanh", "bifc", inexact, _p.atanh_p, "Inverse hyperbolic tangent.", "0.0", "0.0")
exp = _unary("exp", "bifc", inexact, _p.exp_p, "Exponential.", "0.0", "1.0")
exp2 = _unary("exp2", "bifc", inexact, _p.exp2_p, "Power of 2.", "3.0", "8.0")
expm1 = _unary("expm1", "bifc", inexact, _p.expm1_p, "exp(x) - 1, exact near 0.", "0.0", "0.0")
log = _unary("log", "bifc", inexact, _p.log_p, "Natural logarithm.", "1.0", "0.0")
log1p = _unary("log1p", "bifc", inexact, _p.log1p_p, "log(1 + x), exact near 0.", "0.0", "0.0")
log2 = _unary("log2", "bifc", inexact, _p.log2_p, "Logarithm to base 2.", "1.0", "0.0")
log10 = _unary("log10", "bifc", inexact, _b.log10, "Logarithm to base 10.", "1.0", "0.0")
sqrt = _unary("sqrt", "bifc", inexact, _p.sqrt_p, "Square root.", "9.0", "3.0")
cbrt = _unary("cbrt", "bif", inexact, _p.cbrt_p, "Cube root.", "0.0", "0.0")
square = _unary("square", "bifc", bools_as_ints, _p.square_p, "The product with itself.", "3", "9")
reciprocal = _unary("reciprocal", "bifc", inexact, _b.reciprocal, "One over each element.", "4.0", "0.25")
negative = _unary("negative", "ifc", same, _p.neg_p, "The opposite.", "3", "-3")
positive = _unary("positive", "bifc", same, _b.identity, "The elements as they are.", "3", "3")
absolute = _unary("absolute", "bifc", same, _p.abs_p, "Magnitude.", "-3", "3", b=_b.identity, u=_b.identity)
fabs = _unary("fabs", "bif", inexact, _p.abs_p, "Magnitude, as floating point.", "-3", "3.0")
sign = _unary("sign", "ifc", same, _p.sign_p, "-1, 0 or 1; x / |x| for complex.", "-3", "-1")
signbit = _unary("signbit", "bif", same, _b.signbit, "Whether the sign bit is set.", "-0.0", "True")
floor = _unary("floor", "bif", same, _p.floor_p, "Round down.", "1.5", "1.0", b=_b.identity, i=_b.identity)
ceil = _unary("ceil", "bif", same, _p.ceil_p, "Round up.", "1.5", "2.0", b=_b.identity, i=_b.identity)
trunc = _unary("trunc", "bif", same, _b.trunc, "Round towards 0.", "-1.5", "-1.0", parameters="x",
               b=_b.identity, i=_b.identity)
rint = _unary("rint", "bifc", inexact, _b.rint, "Round to the nearest integer, halves to even.", "2.5", "2.0")
conjugate = _unary("conjugate", "bifc", same, _b.identity, "Complex conjugate.", "1 + 2j", "(1-2j)", c=_p.conj)
real = _unary("real", "bifc", same, _b.identity, "Real part.", "1 + 2j", "1.0", c=_p.real_p)
imag = _unary("imag", "bifc", same, _b.imag_of_real, "Imaginary part.", "1 + 2j", "2.0", c=_p.imag_p)
isnan = _unary("isnan", "bifc", same, _b.isnan, "Whether elements are not a number.", "0.0", "False",
               b=_b.all_false, i=_b.all_false)
isinf = _unary("isinf", "bifc", same, _b.isinf, "Whether elements are infinite.", "jnp.inf", "True",
               b=_b.all_false, i=_b.all_false)
isfinite = _unary("isfinite", "bifc", same, _p.is_finite_p, "Whether elements are neither infinite nor NaN.", "0.0",
                  "True", b=_b.all_true, i=_b.all_true, c=_b.isfinite_complex)
isposinf = _unary("isposinf", "bif", same, _b.isposinf, "Whether elements are plus infinity.", "jnp.inf", "True",
                  b=_b.all_false, i=_b.all_false)
isneginf = _unary("isneginf", "bif", same, _b.isneginf, "Whether elements are minus infinity.", "jnp.inf", "False",
                  b=_b.all_false, i=_b.all_false)
isreal = _unary("isreal", "bifc", same, _b.all_true, "Whether the imaginary part is 0.", "1j", "False",
                 parameters="x", c=_b.is_real)
iscomplex = _unary("iscomplex", "bifc", same, _b.all_false, "Whether the imaginary part is not 0.", "1j", "True",
                   parameters="x", c=_b.not_real)
logical_not = _unary("logical_not", "bifc", same, lambda x: lax.eq_p(x, bodies.dtype_of(x).type(0)),
                     "Whether elements are 0.", "0", "True", b=_p.not_p)
invert = _unary("invert", "bi", same, _p.not_p, "The bits inverted.", "0", "-1")
bitwise_count = _unary("bitwise_count", "bi", same, _b.population_count, "The number of set bits of the magnitude.",
                       "5", "2")
deg2rad = _unary("deg2rad", "bifc", inexact, _b.deg2rad, "Degrees to radians.", "0.0", "0.0")
rad2deg = _unary("rad2deg", "bifc", inexact, _b.rad2deg, "Radians to degrees.", "0.0", "0.0")
sinc = _unary("sinc", "bifc", inexact, _b.sinc, "sin(pi x) / (pi x).", "0.0", "1.0")
i0 = _unary("i0", "bif", inexact, _b.i0, "The modified Bessel function of the first kind, order 0.", "jnp.nan", "nan",
            parameters="x")
spacing = _unary("spacing", "bif", inexact, _b.spacing, "The distance to the next float away from 0.", "1.0",
                 "1.1920928955078125e-07")

add = _binary("add", "bifc", same, _p.add_p, "The sum.", "1, 2", "3", b=_p.or_p)
subtract = _binary("subtract", "ifc", same, _p.sub_p, "The difference.", "1, 2", "-1")
multiply = _binary("multiply", "bifc", same, _p.mul_p, "The product.", "2, 3", "6", b=_p.and_p)
divide = _binary("divide", "bifc", inexact, _p.div_p, "The quotient, in floating point.", "3, 2", "1.5")
floor_divide = _binary("floor_divide", "bif", bools_as_ints, _b.floor_divide_float, "The quotient rounded down.",
                       "-3, 2", "-2", i=_b.floor_divide_int)
remainder = _binary("remainder", "bif", bools_as_ints, _b.remainder, "The remainder with the divisor's sign.",
                    "-3, 2", "1")
fmod = _binary("fmod", "bif", bools_as_ints, _b.fmod, "The remainder with the dividend's sign.", "-3, 2", "-1")
float_power = _binary("float_power", "bifc", inexact, _p.pow_p, "The power, in floating point.", "2, 3", "8.0")
maximum = _binary("maximum", "bifc", same, _p.max_p, "The larger, NaN if one is.", "1, 2", "2", b=_p.or_p)
minimum = _binary("minimum", "bifc", same, _p.min_p, "The smaller, NaN if one is.", "1, 2", "1", b=_p.and_p)
fmax = _binary("fmax", "bifc", same, _b.fmax, "The larger, ignoring NaN.", "1.0, jnp.nan", "1.0",
               parameters="x1 x2", b=_p.or_p, i=_p.max_p)
fmin = _binary("fmin", "bifc", same, _b.fmin, "The smaller, ignoring NaN.", "1.0, jnp.nan", "1.0",
               parameters="x1 x2", b=_p.and_p, i=_p.min_p)
arctan2 = _binary("arctan2", "bifc", inexact, _p.atan2_p, "The angle of the point (y, x).", "0.0, 1.0", "0.0",
                  c=_b.arctan2_complex)
hypot = _binary("hypot", "bif", inexact, _b.hypot, "The length of (x, y).", "3.0, 4.0", "5.0")
logaddexp = _binary("logaddexp", "bifc", inexact, _b.logaddexp, "log(exp(x) + exp(y)).", "-jnp.inf, 1.0", "1.0")
logaddexp2 = _binary("logaddexp2", "bifc", inexact, _b.logaddexp2, "log2(2**x + 2**y).", "-jnp.inf, 1.0", "1.0")
heaviside = _binary("heaviside", "bif", inexact, _b.heaviside, "0 below 0, 1 above, `y` at 0.", "0.0, 0.5", "0.5")
copysign = _binary("copysign", "bif", inexact, _b.copysign, "|x| with the sign of y.", "3.0, -1.0", "-3.0")
nextafter = _binary("nextafter", "bif", inexact, _p.nextafter_p, "The next float from x towards y.", "1.0, 1.0", "1.0")
gcd = _binary("gcd", "i", same, _b.gcd, "The greatest common divisor.", "12, 18", "6", parameters="x1 x2")
lcm = _binary("lcm", "i", same, _b.lcm, "The least common multiple.", "4, 6", "12", parameters="x1 x2")
bitwise_and = _binary("bitwise_and", "bi", same, _p.and_p, "The bits set in both.", "6, 3", "2")
bitwise_or = _binary("bitwise_or", "bi", same, _p.or_p, "The bits set in one or both.", "6, 3", "7")
bitwise_xor = _binary("bitwise_xor", "bi", same, _p.xor_p, "The bits set in one only.", "6, 3", "5")
left_shift = _binary("left_shift", "bi", bools_as_ints, _p.shift_left_p, "The bits moved up.", "3, 1", "6")
right_shift = _binary("right_shift", "bi", bools_as_ints, _p.shift_right_arithmetic_p, "The bits moved down.", "6, 1",
                      "3")
equal = _binary("equal", "bifcx", same, _p.eq_p, "Whether x == y.", "1, 1", "True")
not_equal = _binary("not_equal", "bifcx", same, _p.ne_p, "Whether x != y.", "1, 1", "False")
less = _binary("less", "bifc", same, _p.lt_p, "Whether x < y.", "1, 2", "True",
               c=_b.compare_complex(_p.lt_p, _p.lt_p))
less_equal = _binary("less_equal", "bifc", same, _p.le_p, "Whether x <= y.", "1, 2", "True",
                     c=_b.compare_complex(_p.lt_p, _p.le_p))
greater = _binary("greater", "bifc", same, _p.gt_p, "Whether x > y.", "1, 2", "False",
                  c=_b.compare_complex(_p.gt_p, _p.gt_p))
greater_equal = _binary("greater_equal", "bifc", same, _p.ge_p, "Whether x >= y.", "1, 2", "False",
                        c=_b.compare_complex(_p.gt_p, _p.ge_p))
logical_and = _binary("logical_and", "bifc", same, _b.logical(_p.and_p), "Whether both are not 0.", "1, 0", "False",
                      b=_p.and_p)
logical_or = _binary("logical_or", "bifc", same, _b.logical(_p.or_p), "Whether one is not 0.", "1, 0", "True",
                     b=_p.or_p)
logical_xor = _binary("logical_xor", "bifc", same, _b.logical(_p.xor_p), "Whether just one is not 0.", "1, 0", "True",
                      b=_p.xor_p)
_power_arrays = _binary("power", "bifc", bools_as_ints, _p.pow_p, "The power.", "2, 3", "8", i=_b.power_int)
_divmod_arrays = binary(Rule("divmod", "bif", bools_as_ints, {"": _b.divmod_float}))
# fmt: on

abs = absolute
acos, acosh, asin, asinh, atan, atanh, atan2 = arccos, arccosh, arcsin, arcsinh, arctan, arctanh, arctan2
conj = conjugate
bitwise_invert = bitwise_not = invert
bitwise_left_shift, bitwise_right_shift = left_shift, right_shift
degrees, radians = rad2deg, deg2rad
mod = remainder
true_divide = divide


def power(x1: Any, x2: Any, /) -> Any:
    """The power x1 ** x2; a Python integer exponent becomes repeated multiplication.

    Args:
      x1: the base.
      x2: the exponent.

    Returns:
      The result for each element, in the broadcast shape.

    Examples:
      >>> jnp.power(jnp.array([1.0, 2.0, 3.0]), 2).tolist()
      [1.0, 4.0, 9.0]
    """
    if type(x2) is int:
        aval = getattr(x1, "aval", None)
        if aval is not None:
            kind = aval.dtype.kind
            if kind in "fc" or (kind in "iu" and x2 >= 0) or kind == "V":
                return lax.square_p(x1) if x2 == 2 else lax.integer_pow(x1, x2)
    return _power_arrays(x1, x2)


power.plans, power.rule = _power_arrays.plans, _power_arrays.rule  # type: ignore[attr-defined]
power.nin, power.nout = 2, 1  # type: ignore[attr-defined]
pow = power


def divmod(x1: Any, x2: Any, /) -> tuple:
    """The floored quotient and the remainder.

    Args:
      x1: the dividend.
      x2: the divisor; broadcasts with it.

    Returns:
      A pair of arrays, as `floor_divide` and `remainder` give them.

    Raises:
      DTypeError: an operand is complex.

    Examples:
      >>> [a.tolist() for a in jnp.divmod(7, 3)]
      [2, 1]
    """
    if _is_integer(x1) and _is_integer(x2):
        return floor_divide(x1, x2), remainder(x1, x2)
    return _divmod_arrays(x1, x2)


def _is_integer(x: Any) -> bool:
    dtype = getattr(x, "dtype", None)
    return isinstance(x, int) if dtype is None else dtype.kind in "biu"


@eager_program(static_argnames=("deg",))
def angle(z: Any, deg: bool = False) -> Any:
    """The argument of complex numbers.

    Args:
      z: real or complex numbers.
      deg: give degrees.

    Returns:
      Floating-point numbers from -pi to pi, or in degrees.

    Examples:
      >>> float(jnp.angle(1.0 + 0j))
      0.0
    """
    (z,) = promote_inexact("angle", z)
    out = bodies.angle(z)
    return rad2deg(out) if deg else out


@eager_program
def ldexp(x1: Any, x2: Any, /) -> Any:
    """x1 * 2**x2, exact.

    Args:
      x1: floating-point numbers.
      x2: integers.

    Returns:
      Floating-point numbers in the broadcast shape.

    Raises:
      DTypeError: `x2` is of no integers, or `x1` is complex.

    Examples:
      >>> float(jnp.ldexp(1.5, 4))
      24.0
    """
    x1, x2 = operand(x1, "ldexp"), operand(x2, "ldexp")
    for x, classes, wanted in (x1, "bif", "real numbers"), (x2, "bi", "integers"):
        if class_of(x.dtype) not in classes:
            raise DTypeError("ldexp", expected=f"{wanted} as {'x1' if x is x1 else 'x2'}", got=str(x.dtype),
                             mend="convert them with .astype")  # fmt: skip
    dtype = inexact(x1.dtype)
    x1, x2 = cast(x1, dtype), cast(x2, np.dtype(np.int32)) if x2.dtype.itemsize < 4 else x2
    # Three factors of at most 2**126 reach from the smallest subnormal to the largest number of every float dtype.
    limit = 1022 if dtype == np.float64 else 126 if dtype.itemsize == 4 or dtype.name == "bfloat16" else 14
    for _ in range(3):
        step = maximum(x2, -limit) if x2.dtype.kind == "i" else x2
        step = minimum(step, limit)
        x1 = x1 * _power_of_two(step, dtype)
        x2 = x2 - step
    return x1


def _power_of_two(n: Any, dtype: Any) -> Any:
    """2**n with exact bits, for exponents of normal numbers."""
    mantissa = {"float64": 52, "float32": 23, "bfloat16": 7, "float16": 10}[dtype.name]
    bias = (1 << (8 * dtype.itemsize - mantissa - 2)) - 1
    bits = (n + bias).astype(f"int{8 * dtype.itemsize}") << mantissa
    return lax.bitcast_convert_type(bits, dtype)


@eager_program
def frexp(x: Any, /) -> tuple:
    """Mantissa in [0.5, 1) and exponent: x = mantissa * 2**exponent.

    Args:
      x: real numbers.

    Returns:
      A pair of floating-point mantissas and int32 exponents; of 0 and what is not finite, itself and 0.

    Raises:
      DTypeError: `x` is complex.

    Examples:
      >>> [float(a) for a in jnp.frexp(6.0)]
      [0.75, 3.0]
    """
    (x,) = promote_inexact("frexp", operand(x, "frexp"))
    dtype = x.dtype
    if dtype.kind == "c":
        raise DTypeError("frexp", expected="real numbers", got=str(dtype), mend="take the real and the imaginary part")
    mantissa = {"float64": 52, "float32": 23, "bfloat16": 7, "float16": 10}[dtype.name]
    width = 8 * dtype.itemsize
    bias = (1 << (width - mantissa - 2)) - 1
    scale = mantissa + 2
    small = absolute(x) < np.finfo(np.float32).tiny if dtype.itemsize < 8 else absolute(x) < np.finfo(np.float64).tiny
    if dtype == np.float16:
        small = absolute(x) < np.finfo(np.float16).tiny
    x = bodies.choose(small, x * dtype.type(2.0**scale), x)
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{width}"))
    exponent = ((bits >> mantissa) & ((1 << (width - 1 - mantissa)) - 1)) - (bias - 1)
    kept = bits & ~(((1 << (width - 1 - mantissa)) - 1) << mantissa)
    value = lax.bitcast_convert_type(kept | ((bias - 1) << mantissa), dtype)
    plain = logical_and(isfinite(x), x != 0)
    exponent = exponent.astype("int32") - bodies.choose(small, np.int32(scale), np.int32(0))
    return bodies.choose(plain, value, x), bodies.choose(plain, exponent, np.int32(0))


@eager_program
def modf(x: Any, /, out: None = None) -> tuple:
    """Fractional and integer parts, both with the sign of x.

    Args:
      x: numbers.
      out: must be None.

    Returns:
      A pair of floating-point arrays in the shape of `x`.

    Raises:
      ArgumentError: `out` is given.

    Examples:
      >>> [float(a) for a in jnp.modf(2.5)]
      [0.5, 2.0]
    """
    refuse_out(out, "modf")
    (x,) = promote_inexact("modf", operand(x, "modf"))
    whole = trunc(x)
    part = copysign(bodies.choose(isinf(whole), 0, x - whole), x)
    return cast(part, x.dtype, whole.aval.weak_type), whole
