"""The elementwise functions, one table row each.

A row gives the name, the kinds of dtypes that it accepts (b boolean, i integer, f floating, c complex, x random key),
the dtype in which it computes, the primitive or implementation (overridden per kind by keywords), one line of
documentation, and an example with its result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import DTypeError, dtypes
from phalanx.numpy.operands import cast, promote_inexact, refuse_out, to_operand
from phalanx.numpy.ufuncs import ufunc_implementations
from phalanx.numpy.ufuncs.ufunc_dispatch import (
    UfuncRule,
    dtype_class,
    keep_dtype,
    make_binary_ufunc,
    make_ufunc,
    promote_bools,
    to_inexact,
)
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, DimSize

# The results of these have a strong type even for weak operands, as in JAX.
_STRONG = {"log10", "spacing"}


def _row(
    name: str,
    classes: str,
    compute: Callable,
    function: Callable[..., object],
    doc: str,
    example: str,
    result: str,
    *,
    parameters: str,
    **by_class: Any,
) -> Any:
    rule = UfuncRule(name, classes, compute, {"": function, **by_class}, name in _STRONG)
    return make_ufunc(rule, parameters, __name__, doc, f">>> jnp.{name}({example}).tolist()\n      {result}")


_unary, _binary = (functools.partial(_row, parameters=names) for names in ("x /", "x1 x2 /"))


_p, _b = lax, ufunc_implementations

sin = _unary("sin", "bifc", to_inexact, _p.sin_p, "Sine.", "0.0", "0.0")
cos = _unary("cos", "bifc", to_inexact, _p.cos_p, "Cosine.", "0.0", "1.0")
tan = _unary("tan", "bifc", to_inexact, _p.tan_p, "Tangent.", "0.0", "0.0")
arcsin = _unary("arcsin", "bifc", to_inexact, _p.asin_p, "Inverse sine.", "0.0", "0.0")
arccos = _unary("arccos", "bifc", to_inexact, _p.acos_p, "Inverse cosine.", "1.0", "0.0")
arctan = _unary("arctan", "bifc", to_inexact, _p.atan_p, "Inverse tangent.", "0.0", "0.0")
sinh = _unary("sinh", "bifc", to_inexact, _p.sinh_p, "Hyperbolic sine.", "0.0", "0.0")
cosh = _unary("cosh", "bifc", to_inexact, _p.cosh_p, "Hyperbolic cosine.", "0.0", "1.0")
tanh = _unary("tanh", "bifc", to_inexact, _p.tanh_p, "Hyperbolic tangent.", "0.0", "0.0")
arcsinh = _unary("arcsinh", "bifc", to_inexact, _p.asinh_p, "Inverse hyperbolic sine.", "0.0", "0.0")
arccosh = _unary("arccosh", "bifc", to_inexact, _p.acosh_p, "Inverse hyperbolic cosine.", "1.0", "0.0")
arctanh = _unary("arctanh", "bifc", to_inexact, _p.atanh_p, "Inverse hyperbolic tangent.", "0.0", "0.0")
exp = _unary("exp", "bifc", to_inexact, _p.exp_p, "Exponential.", "0.0", "1.0")
exp2 = _unary("exp2", "bifc", to_inexact, _p.exp2_p, "Power of 2.", "3.0", "8.0")
expm1 = _unary("expm1", "bifc", to_inexact, _p.expm1_p, "exp(x) - 1, exact near 0.", "0.0", "0.0")
log = _unary("log", "bifc", to_inexact, _p.log_p, "Natural logarithm.", "1.0", "0.0")
log1p = _unary("log1p", "bifc", to_inexact, _p.log1p_p, "log(1 + x), exact near 0.", "0.0", "0.0")
log2 = _unary("log2", "bifc", to_inexact, _p.log2_p, "Logarithm to base 2.", "1.0", "0.0")
log10 = _unary(
    "log10",
    "bifc",
    to_inexact,
    lambda x: _p.div_p(_p.log_p(x), _b.constant(np.log(10.0), x)),
    "Logarithm to base 10.",
    "1.0",
    "0.0",
)
sqrt = _unary("sqrt", "bifc", to_inexact, _p.sqrt_p, "Square root.", "9.0", "3.0")
cbrt = _unary("cbrt", "bif", to_inexact, _p.cbrt_p, "Cube root.", "0.0", "0.0")
square = _unary("square", "bifc", promote_bools, _p.square_p, "Square.", "3", "9")
reciprocal = _unary(
    "reciprocal", "bifc", to_inexact, lambda x: _p.div_p(_b.constant(1, x), x), "Reciprocal, 1 / x.", "4.0", "0.25"
)
negative = _unary("negative", "ifc", keep_dtype, _p.neg_p, "Negation.", "3", "-3")
positive = _unary("positive", "bifc", keep_dtype, _b.identity, "Unary plus: the elements unchanged.", "3", "3")
absolute = _unary("absolute", "bifc", keep_dtype, _p.abs_p, "Absolute value.", "-3", "3", b=_b.identity, u=_b.identity)
fabs = _unary("fabs", "bif", to_inexact, _p.abs_p, "Absolute value, in floating point.", "-3", "3.0")
sign = _unary("sign", "ifc", keep_dtype, _p.sign_p, "Sign: -1, 0 or 1; x / |x| for complex numbers.", "-3", "-1")
signbit = _unary("signbit", "bif", keep_dtype, _b.signbit, "Whether the sign bit is set.", "-0.0", "True")
floor = _unary("floor", "bif", keep_dtype, _p.floor_p, "Round down.", "1.5", "1.0", b=_b.identity, i=_b.identity)
ceil = _unary("ceil", "bif", keep_dtype, _p.ceil_p, "Round up.", "1.5", "2.0", b=_b.identity, i=_b.identity)
trunc = _unary(
    "trunc",
    "bif",
    keep_dtype,
    _b.trunc,
    "Round towards 0.",
    "-1.5",
    "-1.0",
    parameters="x",
    b=_b.identity,
    i=_b.identity,
)
rint = _unary("rint", "bifc", to_inexact, _b.rint, "Round to the nearest integer, halves to even.", "2.5", "2.0")
conjugate = _unary("conjugate", "bifc", keep_dtype, _b.identity, "Complex conjugate.", "1 + 2j", "(1-2j)", c=_p.conj)
real = _unary("real", "bifc", keep_dtype, _b.identity, "Real part.", "1 + 2j", "1.0", c=_p.real_p)
imag = _unary(
    "imag",
    "bifc",
    keep_dtype,
    lambda x: _p.full(np.shape(x), 0, _b.common_dtype(x)),
    "Imaginary part.",
    "1 + 2j",
    "2.0",
    c=_p.imag_p,
)
isnan = _unary(
    "isnan",
    "bifc",
    keep_dtype,
    _b.isnan,
    "Whether elements are not a number.",
    "0.0",
    "False",
    b=_b.all_false,
    i=_b.all_false,
)
isinf = _unary(
    "isinf",
    "bifc",
    keep_dtype,
    _b.isinf,
    "Whether elements are infinite.",
    "jnp.inf",
    "True",
    b=_b.all_false,
    i=_b.all_false,
)
isfinite = _unary(
    "isfinite",
    "bifc",
    keep_dtype,
    _p.is_finite_p,
    "Whether elements are neither infinite nor NaN.",
    "0.0",
    "True",
    b=_b.all_true,
    i=_b.all_true,
    c=lambda x: _p.and_p(_p.is_finite_p(_p.real_p(x)), _p.is_finite_p(_p.imag_p(x))),
)
isposinf = _unary(
    "isposinf",
    "bif",
    keep_dtype,
    lambda x: _p.eq_p(x, _b.constant(np.inf, x)),
    "Whether elements are plus infinity.",
    "jnp.inf",
    "True",
    b=_b.all_false,
    i=_b.all_false,
)
isneginf = _unary(
    "isneginf",
    "bif",
    keep_dtype,
    lambda x: _p.eq_p(x, _b.constant(-np.inf, x)),
    "Whether elements are minus infinity.",
    "jnp.inf",
    "False",
    b=_b.all_false,
    i=_b.all_false,
)
isreal = _unary(
    "isreal",
    "bifc",
    keep_dtype,
    _b.all_true,
    "Whether the imaginary part is 0.",
    "1j",
    "False",
    parameters="x",
    c=lambda x: _p.eq_p(_p.imag_p(x), _b.constant(0, _p.imag_p(x))),
)
iscomplex = _unary(
    "iscomplex",
    "bifc",
    keep_dtype,
    _b.all_false,
    "Whether the imaginary part is not 0.",
    "1j",
    "True",
    parameters="x",
    c=lambda x: _p.ne_p(_p.imag_p(x), _b.constant(0, _p.imag_p(x))),
)
logical_not = _unary(
    "logical_not",
    "bifc",
    keep_dtype,
    lambda x: _p.eq_p(x, _b.constant(0, x)),
    "Whether elements are 0.",
    "0",
    "True",
    b=_p.not_p,
)
invert = _unary("invert", "bi", keep_dtype, _p.not_p, "Bitwise inversion.", "0", "-1")
bitwise_count = _unary(
    "bitwise_count", "bi", keep_dtype, _b.population_count, "Number of set bits of the absolute value.", "5", "2"
)
deg2rad = _unary(
    "deg2rad",
    "bifc",
    to_inexact,
    lambda x: _p.mul_p(x, _b.constant(np.pi / 180, x)),
    "Degrees to radians.",
    "0.0",
    "0.0",
)
rad2deg = _unary(
    "rad2deg",
    "bifc",
    to_inexact,
    lambda x: _p.mul_p(x, _b.constant(180 / np.pi, x)),
    "Radians to degrees.",
    "0.0",
    "0.0",
)
sinc = _unary("sinc", "bifc", to_inexact, _b.sinc, "sin(pi x) / (pi x).", "0.0", "1.0")
i0 = _unary(
    "i0",
    "bif",
    to_inexact,
    _b.i0,
    "The modified Bessel function of the first kind, order 0.",
    "jnp.nan",
    "nan",
    parameters="x",
)
spacing = _unary(
    "spacing",
    "bif",
    to_inexact,
    _b.spacing,
    "Distance to the next floating-point number away from 0.",
    "1.0",
    "1.1920928955078125e-07",
)

add = _binary("add", "bifc", keep_dtype, _p.add_p, "Sum.", "1, 2", "3", b=_p.or_p)
subtract = _binary("subtract", "ifc", keep_dtype, _p.sub_p, "Difference.", "1, 2", "-1")
multiply = _binary("multiply", "bifc", keep_dtype, _p.mul_p, "Product.", "2, 3", "6", b=_p.and_p)
divide = _binary("divide", "bifc", to_inexact, _p.div_p, "Quotient, in floating point.", "3, 2", "1.5")
floor_divide = _binary(
    "floor_divide",
    "bif",
    promote_bools,
    lambda x, y: _b.divmod_float(x, y)[0],
    "Quotient rounded towards minus infinity.",
    "-3, 2",
    "-2",
    i=_b.floor_divide_int,
)
remainder = _binary(
    "remainder", "bif", promote_bools, _b.remainder, "Remainder with the sign of the divisor.", "-3, 2", "1"
)
fmod = _binary("fmod", "bif", promote_bools, _b.fmod, "Remainder with the sign of the dividend.", "-3, 2", "-1")
float_power = _binary("float_power", "bifc", to_inexact, _p.pow_p, "Power, in floating point.", "2, 3", "8.0")
maximum = _binary(
    "maximum", "bifc", keep_dtype, _p.max_p, "Maximum of two operands; NaN propagates.", "1, 2", "2", b=_p.or_p
)
minimum = _binary(
    "minimum", "bifc", keep_dtype, _p.min_p, "Minimum of two operands; NaN propagates.", "1, 2", "1", b=_p.and_p
)
fmax = _binary(
    "fmax",
    "bifc",
    keep_dtype,
    _b.select_ignoring_nan(_p.gt_p),
    "Maximum of two operands, ignoring NaN.",
    "1.0, jnp.nan",
    "1.0",
    parameters="x1 x2",
    b=_p.or_p,
    i=_p.max_p,
    c=_b.select_ignoring_nan(_b.compare_complex(_p.gt_p, _p.gt_p)),
)
fmin = _binary(
    "fmin",
    "bifc",
    keep_dtype,
    _b.select_ignoring_nan(_p.lt_p),
    "Minimum of two operands, ignoring NaN.",
    "1.0, jnp.nan",
    "1.0",
    parameters="x1 x2",
    b=_p.and_p,
    i=_p.min_p,
    c=_b.select_ignoring_nan(_b.compare_complex(_p.lt_p, _p.lt_p)),
)
arctan2 = _binary(
    "arctan2",
    "bifc",
    to_inexact,
    _p.atan2_p,
    "Angle of the point with ordinate x1 and abscissa x2.",
    "0.0, 1.0",
    "0.0",
    # The complex arc tangent of x / y is -i log((y + i x) / sqrt(x^2 + y^2)).
    c=lambda x, y: -1j * _p.log_p((y + x * 1j) / _p.sqrt_p(x * x + y * y)),
)
hypot = _binary(
    "hypot", "bif", to_inexact, _b.hypot, "Length of the vector (x1, x2), without overflow.", "3.0, 4.0", "5.0"
)
logaddexp = _binary(
    "logaddexp",
    "bifc",
    to_inexact,
    functools.partial(_b.logaddexp, exp=_p.exp_p, scale=1.0),
    "log(exp(x1) + exp(x2)), without overflow.",
    "-jnp.inf, 1.0",
    "1.0",
)
logaddexp2 = _binary(
    "logaddexp2",
    "bifc",
    to_inexact,
    functools.partial(_b.logaddexp, exp=_p.exp2_p, scale=float(np.log(2))),
    "log2(2**x1 + 2**x2), without overflow.",
    "-jnp.inf, 1.0",
    "1.0",
)
heaviside = _binary(
    "heaviside",
    "bif",
    to_inexact,
    _b.heaviside,
    "Step function: 0 for x1 < 0, 1 for x1 > 0, x2 for x1 == 0.",
    "0.0, 0.5",
    "0.5",
)
copysign = _binary(
    "copysign",
    "bif",
    to_inexact,
    lambda x, y: _b.select_where(_b.signbit(y), _p.neg_p(_p.abs_p(x)), _p.abs_p(x)),
    "Absolute value of x1 with the sign of x2.",
    "3.0, -1.0",
    "-3.0",
)
nextafter = _binary(
    "nextafter", "bif", to_inexact, _p.nextafter_p, "Next floating-point number after x1 towards x2.", "1.0, 1.0", "1.0"
)
gcd = _binary("gcd", "i", keep_dtype, _b.gcd, "Greatest common divisor.", "12, 18", "6", parameters="x1 x2")
lcm = _binary("lcm", "i", keep_dtype, _b.lcm, "Least common multiple.", "4, 6", "12", parameters="x1 x2")
bitwise_and = _binary("bitwise_and", "bi", keep_dtype, _p.and_p, "Bitwise and.", "6, 3", "2")
bitwise_or = _binary("bitwise_or", "bi", keep_dtype, _p.or_p, "Bitwise or.", "6, 3", "7")
bitwise_xor = _binary("bitwise_xor", "bi", keep_dtype, _p.xor_p, "Bitwise exclusive or.", "6, 3", "5")
left_shift = _binary("left_shift", "bi", promote_bools, _p.shift_left_p, "Bits shifted to the left.", "3, 1", "6")
right_shift = _binary(
    "right_shift",
    "bi",
    promote_bools,
    _p.shift_right_arithmetic_p,
    "Bits shifted to the right, keeping the sign.",
    "6, 1",
    "3",
)
equal = _binary("equal", "bifcx", keep_dtype, _p.eq_p, "Whether x1 == x2.", "1, 1", "True")
not_equal = _binary("not_equal", "bifcx", keep_dtype, _p.ne_p, "Whether x1 != x2.", "1, 1", "False")
less = _binary(
    "less", "bifc", keep_dtype, _p.lt_p, "Whether x1 < x2.", "1, 2", "True", c=_b.compare_complex(_p.lt_p, _p.lt_p)
)
less_equal = _binary(
    "less_equal",
    "bifc",
    keep_dtype,
    _p.le_p,
    "Whether x1 <= x2.",
    "1, 2",
    "True",
    c=_b.compare_complex(_p.lt_p, _p.le_p),
)
greater = _binary(
    "greater", "bifc", keep_dtype, _p.gt_p, "Whether x1 > x2.", "1, 2", "False", c=_b.compare_complex(_p.gt_p, _p.gt_p)
)
greater_equal = _binary(
    "greater_equal",
    "bifc",
    keep_dtype,
    _p.ge_p,
    "Whether x1 >= x2.",
    "1, 2",
    "False",
    c=_b.compare_complex(_p.gt_p, _p.ge_p),
)
logical_and = _binary(
    "logical_and",
    "bifc",
    keep_dtype,
    _b.logical(_p.and_p),
    "Logical and: whether both operands are nonzero.",
    "1, 0",
    "False",
    b=_p.and_p,
)
logical_or = _binary(
    "logical_or",
    "bifc",
    keep_dtype,
    _b.logical(_p.or_p),
    "Logical or: whether an operand is nonzero.",
    "1, 0",
    "True",
    b=_p.or_p,
)
logical_xor = _binary(
    "logical_xor",
    "bifc",
    keep_dtype,
    _b.logical(_p.xor_p),
    "Logical exclusive or: whether exactly one operand is nonzero.",
    "1, 0",
    "True",
    b=_p.xor_p,
)
_power_arrays = _binary("power", "bifc", promote_bools, _p.pow_p, "Power.", "2, 3", "8", i=_b.power_int)
_divmod_arrays = make_binary_ufunc(UfuncRule("divmod", "bif", promote_bools, {"": _b.divmod_float}))

abs = absolute
acos, acosh, asin, asinh, atan, atanh, atan2 = arccos, arccosh, arcsin, arcsinh, arctan, arctanh, arctan2
conj = conjugate
bitwise_invert = bitwise_not = invert
bitwise_left_shift, bitwise_right_shift = left_shift, right_shift
degrees, radians = rad2deg, deg2rad
mod = remainder
true_divide = divide


# The types of exponents that are known while tracing.
STATIC_EXPONENTS = frozenset((int, *(np.dtype(code).type for code in np.typecodes["AllInteger"])))


def power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Power x1 ** x2, elementwise; an integer of Python or NumPy as exponent is evaluated by repeated multiplication.

    Args:
      x1: the base.
      x2: the exponent.

    Returns:
      The elementwise result, in the broadcast shape.

    Examples:
      >>> jnp.power(jnp.array([1.0, 2.0, 3.0]), 2).tolist()
      [1.0, 4.0, 9.0]
    """
    if type(x2) is np.ndarray and x2.ndim == 0 and x2.dtype.kind in "iu":
        x2 = x2[()]
    if type(x2) in STATIC_EXPONENTS and getattr(x1, "aval", None) is not None:
        kind = x1.aval.dtype.kind
        # A static integer exponent needs no logarithm: the power and its derivative are exact also for negative bases.
        # As in JAX, the dtype of a NumPy integer does not take part in promotion.
        if kind in "fcV" or (kind in "iu" and x2 >= 0):
            return lax.integer_pow_p(x1, y=int(x2))
    return _power_arrays(x1, x2)


power.plans, power.rule = _power_arrays.plans, _power_arrays.rule  # type: ignore[attr-defined]
power.nin, power.nout = 2, 1  # type: ignore[attr-defined]
pow = power


def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple:
    """Floored quotient and remainder, elementwise.

    Args:
      x1: the dividend.
      x2: the divisor, which broadcasts with `x1`.

    Returns:
      A pair of arrays: the results of `floor_divide` and `remainder`.

    Raises:
      DTypeError: an operand is complex.

    Examples:
      >>> [a.tolist() for a in jnp.divmod(7, 3)]
      [2, 1]
    """
    if _is_integer(x1) and _is_integer(x2):
        return floor_divide(x1, x2), remainder(x1, x2)
    return _divmod_arrays(x1, x2)


def _is_integer(x: Array) -> bool:
    dtype = getattr(x, "dtype", None)
    return isinstance(x, int) if dtype is None else dtype.kind in "biu"


@eager_jit(static_argnames=("deg",))
def angle(z: ArrayLike, deg: bool = False) -> Array:
    """Angle (argument) of complex numbers.

    Args:
      z: real or complex numbers.
      deg: return degrees instead of radians.

    Returns:
      Floating-point numbers in [-pi, pi], or in degrees.

    Examples:
      >>> float(jnp.angle(1.0 + 0j))
      0.0
    """
    (z,) = promote_inexact("angle", z)
    out = ufunc_implementations.angle(z)
    return rad2deg(out) if deg else out


@eager_jit
def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 * 2**x2, without intermediate overflow.

    Args:
      x1: floating-point numbers.
      x2: integers.

    Returns:
      Floating-point numbers in the broadcast shape.

    Raises:
      DTypeError: `x2` is not integer, or `x1` is complex.

    Examples:
      >>> float(jnp.ldexp(1.5, 4))
      24.0
    """
    x1, x2 = to_operand(x1, "ldexp"), to_operand(x2, "ldexp")
    for x, classes, wanted in (x1, "bif", "real numbers"), (x2, "bi", "integers"):
        if dtype_class(x.dtype) not in classes:
            raise DTypeError(
                "ldexp",
                expected=f"{wanted} as {'x1' if x is x1 else 'x2'}",
                got=str(x.dtype),
                fix=f"convert it with .astype({'float' if x is x1 else 'int'})",
            )
    dtype = to_inexact(x1.dtype)
    x1, x2 = cast(x1, dtype), cast(x2, np.dtype(np.int32)) if x2.dtype.itemsize < 4 else x2
    # XLA would multiply constant factors first: jit(lambda x: x * 2.0**100 * 2.0**100) of 0 is NaN.
    x2 = lax.optimization_barrier(x2)
    # 2**x2 may overflow although the result does not. Three factors of at most 2**limit, each a normal number, reach
    # from the smallest subnormal to the largest number of every dtype.
    limit = 1022 if dtype == np.float64 else 126 if dtype.itemsize == 4 or dtype.name == "bfloat16" else 14
    for _ in range(3):
        step = minimum(maximum(x2, -limit) if x2.dtype.kind == "i" else x2, limit)
        x1 = x1 * _power_of_two(step, dtype)
        x2 = x2 - step
    return x1  # type: ignore[return-value]


def _power_of_two(n: DimSize, dtype: np.dtype) -> Any:
    """2**n exactly, by setting the exponent bits; n must be the exponent of a normal number."""
    mantissa = {"float64": 52, "float32": 23, "bfloat16": 7, "float16": 10}[dtype.name]
    bias = (1 << (8 * dtype.itemsize - mantissa - 2)) - 1
    return lax.bitcast_convert_type((n + bias).astype(f"int{8 * dtype.itemsize}") << mantissa, dtype)


@eager_jit
def frexp(x: ArrayLike, /) -> tuple:
    """Decompose numbers into a mantissa in [0.5, 1) and an exponent: x = mantissa * 2**exponent.

    Args:
      x: real numbers.

    Returns:
      A pair: floating-point mantissas and int32 exponents; zeros and non-finite numbers have exponent 0.

    Raises:
      DTypeError: `x` is complex.

    Examples:
      >>> [float(a) for a in jnp.frexp(6.0)]
      [0.75, 3.0]
    """
    (x,) = promote_inexact("frexp", to_operand(x, "frexp"))
    dtype = x.dtype
    if dtype.kind == "c":
        raise DTypeError("frexp", expected="real numbers", got=str(dtype), fix="take the real and the imaginary part")
    mantissa = {"float64": 52, "float32": 23, "bfloat16": 7, "float16": 10}[dtype.name]
    width = 8 * dtype.itemsize
    bias = (1 << (width - mantissa - 2)) - 1
    # Subnormal numbers have no exponent bits of their own: scale them to normal numbers first.
    scale = mantissa + 2
    small = absolute(x) < dtype.type(dtypes.finfo(dtype).tiny)
    x = ufunc_implementations.select_where(small, x * dtype.type(2.0**scale), x)
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{width}"))
    exponent = ((bits >> mantissa) & ((1 << (width - 1 - mantissa)) - 1)) - (bias - 1)
    # 2**-exponent may be subnormal, so multiply by two factors near its square root. Products with powers of two are
    # exact, and differentiable, which the manipulation of exponent bits is not.
    half = exponent >> 1
    value = x * _power_of_two(-half, dtype) * _power_of_two(half - exponent, dtype)
    plain = logical_and(isfinite(x), x != 0)
    exponent = exponent.astype("int32") - ufunc_implementations.select_where(small, np.int32(scale), np.int32(0))
    return ufunc_implementations.select_where(plain, value, x), ufunc_implementations.select_where(
        plain, exponent, np.int32(0)
    )


@eager_jit
def modf(x: ArrayLike, /, out: None = None) -> tuple:
    """Fractional and integer parts, both with the sign of x.

    Args:
      x: numbers.
      out: must be None; arrays are immutable.

    Returns:
      A pair of floating-point arrays in the shape of `x`.

    Raises:
      UnsupportedArgumentError: `out` is given.

    Examples:
      >>> [float(a) for a in jnp.modf(2.5)]
      [0.5, 2.0]
    """
    refuse_out(out, "modf")
    (x,) = promote_inexact("modf", to_operand(x, "modf"))
    whole = trunc(x)
    # The remainder has the sign of x, also where it is 0; it is NaN for an infinite x, whose fractional part is 0.
    part = ufunc_implementations.select_where(isinf(x), copysign(cast(0, x.dtype), x), fmod(x, 1))
    return cast(part, x.dtype, whole.aval.weak_type), whole
