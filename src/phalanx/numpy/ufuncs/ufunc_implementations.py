"""Implementations of the ufuncs that are more than one primitive.

Each takes operands of one dtype, and of one shape or of rank 0. `ufunc_table` refers to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.numpy.operands import SCALAR_KINDS, as_array, broadcast_to_shape, cast, to_numpy_scalar
from phalanx.transforms import vmap
from phalanx.typing import Array


def common_dtype(*xs: Any) -> Any:
    """The common dtype of the operands: that of the first one that is not a Python scalar."""
    for x in xs:
        if hasattr(x, "dtype"):
            return dtypes.canonicalize_dtype(x.dtype)
    return promotion.result_type(xs[0])


def constant(value: float, *xs: Any) -> Any:
    """A number in the common dtype of the operands."""
    return to_numpy_scalar(value, common_dtype(*xs))


def select_where(predicate: Array, x: Array, y: Array) -> Any:
    """`x` where the predicate holds, otherwise `y`. Each may be a scalar; the result has the dtype of the arrays."""
    if type(x) in SCALAR_KINDS or type(y) in SCALAR_KINDS:
        both = type(x) in SCALAR_KINDS and type(y) in SCALAR_KINDS
        dtype = promotion.result_type(x, y) if both else common_dtype(x, y)
        x, y = (to_numpy_scalar(v, dtype) if type(v) in SCALAR_KINDS else v for v in (x, y))
    return lax.select_n_p(predicate, y, x)


def isnan(x: Array) -> Array:
    """Whether elements are not a number."""
    return lax.ne_p(x, x)


def isinf(x: Array) -> Array:
    """Whether elements are infinite."""
    if common_dtype(x).kind == "c":
        return lax.or_p(isinf(lax.real_p(x)), isinf(lax.imag_p(x)))
    return lax.eq_p(lax.abs_p(x), constant(np.inf, x))


def all_false(x: Array) -> Array:
    """False everywhere: no integer is infinite or not a number."""
    return lax.full(np.shape(x), False, np.dtype(bool))


def all_true(x: Array) -> Array:
    """True everywhere."""
    return lax.full(np.shape(x), True, np.dtype(bool))


def identity(x: Array) -> Any:
    """The operand as an array."""
    return as_array(x)


def to_bool(x: Array) -> Array:
    """Whether elements differ from zero."""
    dtype = common_dtype(x)
    return x if dtype == np.bool_ else lax.ne_p(x, to_numpy_scalar(0, dtype))


def squared_magnitudes(x: Array) -> Array:
    """Squared absolute values, without the square root of `abs`."""
    return lax.square(lax.real(x)) + lax.square(lax.imag(x)) if x.dtype.kind == "c" else lax.square(x)


def signbit(x: Array) -> Array:
    """Whether the sign bit is set, that of negative zero included."""
    dtype = common_dtype(x)
    if dtype.kind in "bu":
        return all_false(x)
    if dtype.kind == "i" or dtypes.issubdtype(dtype, np.integer):
        return lax.lt_p(x, to_numpy_scalar(0, dtype))
    # The sign bit also distinguishes -0.0 and negative NaNs.
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{8 * dtype.itemsize}"))
    return lax.lt_p(bits, bits.dtype.type(0))


def rint(x: Array) -> Array:
    """The nearest integer, halves to even."""
    if common_dtype(x).kind == "c":
        return lax.complex(rint(lax.real_p(x)), rint(lax.imag_p(x)))
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def trunc(x: Array) -> Array:
    """The integer part."""
    return select_where(lax.lt_p(x, constant(0, x)), lax.ceil_p(x), lax.floor_p(x))


def angle(x: Array) -> Array:
    """The argument of a complex number."""
    if common_dtype(x).kind == "c":
        return lax.atan2_p(lax.imag_p(x), lax.real_p(x))
    return lax.atan2_p(constant(0, x), x)


def sinc(x: Array) -> Array:
    """sin(pi x) / (pi x); near 0 by its Taylor series, so that derivatives of all orders are correct there."""
    # The divisor is replaced near 0, so that the unselected branch has finite derivatives.
    t = x * np.pi
    # Below 1e-2 the first term that the series omits, t**8 / 9!, is less than 3e-22, which float64 does not resolve.
    near = lax.lt_p(lax.abs_p(t), to_numpy_scalar(1e-2, lax.abs_p(t).dtype))
    # The product of a complex infinity and a number is NaN.
    at_infinity = lax.eq_p(lax.abs_p(x), to_numpy_scalar(np.inf, lax.abs_p(x).dtype))
    far = select_where(near | at_infinity, 1.0, t)
    s = lax.square(select_where(near, t, 0.0))
    out = select_where(near, 1 - s * (1 / 6) * (1 - s * (1 / 20) * (1 - s * (1 / 42))), lax.sin_p(far) / far)
    return select_where(at_infinity, 0.0, out)


def spacing(x: Array) -> Array:
    """The distance to the next float away from 0."""
    # The exponent is lowered by the size of the mantissa in the bits of the number: a subtraction of neighbours would
    # flush a subnormal result to 0.
    dtype = common_dtype(x)
    info, holder = dtypes.finfo(dtype), np.dtype(f"uint{8 * dtype.itemsize}")
    whole = lax.bitcast_convert_type(lax.stop_gradient(lax.abs_p(x)), holder)
    mantissa, one = holder.type(info.nmant), holder.type(1)
    is_half, is_negative = dtype == np.float16, signbit(x)
    if is_half:
        # NumPy takes the distance to the next greater number for this dtype, which has a lower exponent below -2**n.
        whole = lax.sub_p(whole, lax.convert_element_type(lax.and_p(is_negative, lax.gt_p(whole, one)), holder))
    exponent = lax.shift_right_logical(whole, mantissa)
    least = lax.max_p(exponent, one)
    normal = lax.shift_left(lax.sub_p(lax.max_p(exponent, mantissa), mantissa), mantissa)
    subnormal = lax.shift_left(one, lax.sub_p(lax.min_p(least, mantissa), one))
    step = lax.bitcast_convert_type(select_where(lax.gt_p(exponent, mantissa), normal, subnormal), dtype)
    step = select_where(lax.eq_p(whole, np.asarray(info.max, dtype).view(holder)[()]), np.inf, step)
    # As NumPy's, the spacing of a negative number is negative.
    step = step if is_half else select_where(is_negative, lax.neg_p(step), step)
    return select_where(lax.is_finite_p(x), step, np.nan)


def i0(x: Array) -> Array:
    """The modified Bessel function of order 0."""
    # The slope of |x| at 0 is a convention; that of the function is 0.
    size = select_where(lax.eq_p(x, constant(0, x)), 0, lax.abs_p(x))
    return lax.mul_p(lax.exp_p(size), lax.bessel_i0e(x))


def population_count(x: Array) -> Array:
    """The number of set bits of the magnitude."""
    if common_dtype(x).kind == "b":
        return cast(x, np.dtype(np.uint8))
    return cast(lax.population_count(lax.abs_p(x) if common_dtype(x).kind == "i" else x), np.dtype(np.uint8))


def logical(op: Callable[..., Array]) -> Any:
    """A logical operation on operands that are first compared with 0."""

    def body(*xs: Any) -> Any:
        return op(*[to_bool(x) for x in xs])

    return body


def floor_divide_int(x: Array, y: Array) -> Array:
    """The quotient rounded down."""
    q = lax.div_p(x, y)
    dtype = common_dtype(x, y)
    if dtype.kind == "u":
        return q
    # XLA rounds towards zero: subtract 1 if the signs differ and the division is not exact.
    exact = lax.eq_p(lax.mul_p(q, y), x)
    same_sign = lax.eq_p(lax.lt_p(x, to_numpy_scalar(0, dtype)), lax.lt_p(y, to_numpy_scalar(0, dtype)))
    return select_where(lax.or_p(exact, same_sign), q, lax.sub_p(q, to_numpy_scalar(1, dtype)))


def divmod_float(x: Array, y: Array) -> tuple:
    """The floored quotient and the remainder with the sign of the divisor."""
    dtype = common_dtype(x, y)
    zero = to_numpy_scalar(0, dtype)
    r = lax.rem_p(x, y)
    q = lax.div_p(lax.sub_p(x, r), y)
    adjust = lax.and_p(lax.ne_p(r, zero), lax.ne_p(lax.lt_p(r, zero), lax.lt_p(y, zero)))
    r = select_where(adjust, lax.add_p(r, y), r)
    # The quotient of x - r by y is an integer up to rounding.
    q = rint(select_where(adjust, lax.sub_p(q, to_numpy_scalar(1, dtype)), q))
    # By definition x // 0 equals x / 0: infinite, or NaN for x = 0. The remainder computed above would make it NaN.
    return select_where(lax.eq_p(y, zero), lax.div_p(x, y), q), r


def remainder(x: Array, y: Array) -> Array:
    """The remainder with the sign of the divisor."""
    dtype, r = common_dtype(x, y), lax.rem_p(x, y)
    if dtype.kind != "u":
        zero = to_numpy_scalar(0, dtype)
        adjust = lax.and_p(lax.ne_p(r, zero), lax.ne_p(lax.lt_p(r, zero), lax.lt_p(y, zero)))
        r = select_where(adjust, lax.add_p(r, y), r)
    return _zero_where_zero(r, y, dtype)


def fmod(x: Array, y: Array) -> Array:
    """The remainder with the sign of the dividend."""
    return _zero_where_zero(lax.rem_p(x, y), y, common_dtype(x, y))


def _zero_where_zero(out: None, y: Array, dtype: np.dtype) -> Any:
    # NumPy's integer remainder by 0 is 0, XLA's is the dividend.
    if dtype.kind in "iu" or dtypes.issubdtype(dtype, np.integer):
        zero = to_numpy_scalar(0, dtype)
        return select_where(lax.eq_p(y, zero), zero, out)
    return out


def power_int(x: Array, y: Array) -> Array:
    """x ** y for integers, by squaring; 0 for negative exponents unless x is 1 or -1.

    Exact where the power fits, and modulo the range of the dtype for exponents below 64.
    """
    dtype = common_dtype(x, y)
    one, zero = to_numpy_scalar(1, dtype), to_numpy_scalar(0, dtype)
    out = lax.full(np.broadcast_shapes(np.shape(x), np.shape(y)), 1, dtype)
    exponent, base = y, x
    # Square and multiply. If x**y is representable, y is below the number of bits, or x is 0, 1 or -1, whose powers
    # repeat with period 2: as many steps as the bit length of the width suffice. Narrow types take six, too, so that
    # powers which do not fit wrap around as in NumPy.
    for _ in range(max(6, (8 * dtype.itemsize).bit_length())):
        # Multiply the powers x**(2**k) whose bit k is set in the exponent.
        out = select_where(lax.ne_p(lax.and_p(exponent, one), zero), lax.mul_p(out, x), out)
        exponent = lax.shift_right_logical_p(exponent, one)
        x = lax.mul_p(x, x)
    out = select_where(lax.and_p(lax.ne_p(exponent, zero), lax.eq_p(x, zero)), zero, out)
    if dtype.kind == "i":
        out = select_where(lax.or_p(lax.ge_p(y, zero), lax.eq_p(lax.abs_p(base), one)), out, zero)
    return out


def hypot(x: Array, y: Array) -> Array:
    """sqrt(x^2 + y^2), scaled by the larger operand so that the squares do not overflow."""
    x, y = lax.abs_p(x), lax.abs_p(y)
    big, small = lax.max_p(x, y), lax.min_p(x, y)
    # At 0 and at infinity the ratio is undefined: the larger operand is the result.
    plain = lax.and_p(lax.is_finite_p(big), lax.ne_p(big, constant(0, big)))
    ratio = lax.div_p(small, select_where(plain, big, 1))
    length = lax.mul_p(big, lax.sqrt_p(lax.add_p(lax.mul_p(ratio, ratio), constant(1, big))))
    return select_where(plain, length, select_where(lax.or_p(isinf(x), isinf(y)), np.inf, big))


def logaddexp(x: Array, y: Array, exp: Callable[..., Array], scale: float) -> Any:
    """log(exp(x) + exp(y)) / scale, of the exponential of any base and the logarithm of the base."""
    big = lax.max_p(x, y)
    # `max` and `abs` have second derivatives of zero where x = y, which this function does not have.
    is_x = lax.eq_p(x, big)
    d = select_where(is_x, lax.sub_p(y, x), lax.sub_p(x, y))
    # The difference of equal infinities is NaN and counts as 0. That of a NaN operand propagates, with its derivative.
    is_same = lax.and_p(lax.eq_p(x, y), isinf(x))
    d, big = select_where(is_same, 0, d), select_where(is_same, big, select_where(is_x, x, y))
    log = lax.log1p_p(exp(d))
    return lax.add_p(big, log if scale == 1.0 else lax.div_p(log, constant(scale, log)))


def heaviside(x: Array, h: Array) -> Array:
    """0 for x < 0, 1 for x > 0, and `h` for x == 0."""
    zero = constant(0, x, h)
    shape = np.broadcast_shapes(np.shape(x), np.shape(h))
    x, h = broadcast_to_shape(x, shape), broadcast_to_shape(h, shape)
    return select_where(isnan(x), x, select_where(lax.lt_p(x, zero), zero, select_where(lax.gt_p(x, zero), 1, h)))


def gcd(x: Array, y: Array) -> Array:
    """The greatest common divisor, by Euclid's algorithm on each element."""
    dtype = common_dtype(x, y)
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    x, y = (
        lax.abs_p(broadcast_to_shape(v, shape)) if dtype.kind == "i" else broadcast_to_shape(v, shape) for v in (x, y)
    )
    zero = to_numpy_scalar(0, dtype)

    def one(x: Array, y: Array) -> Any:
        return lax.while_loop(lambda xy: lax.ne_p(xy[1], zero), lambda xy: (xy[1], lax.rem_p(*xy)), (x, y))[0]

    # `vmap` of a scalar loop: all elements iterate together until the last one has finished.
    for _ in shape:
        one = vmap(one)
    return one(x, y)


def lcm(x: Array, y: Array) -> Array:
    """The least common multiple."""
    dtype = common_dtype(x, y)
    if dtype.kind == "i":
        x, y = lax.abs_p(x), lax.abs_p(y)
    d = gcd(x, y)
    zero = to_numpy_scalar(0, dtype)
    return select_where(lax.eq_p(d, zero), zero, lax.mul_p(x, lax.div_p(y, select_where(lax.eq_p(d, zero), 1, d))))


def select_ignoring_nan(precedes: Callable[..., Array]) -> Callable[..., Array]:
    """The selection of the operand that precedes the other one in an order, or that is not NaN."""
    return lambda x, y: select_where(lax.or_p(isnan(y), precedes(x, y)), x, y)


def compare_complex(strict: Callable[..., Array], with_equal: Callable[..., Array]) -> Any:
    """A comparison by real part, then imaginary part."""

    def body(x: Array, y: Array) -> Any:
        xr, yr = lax.real(x), lax.real(y)
        return lax.or_p(strict(xr, yr), lax.and_p(lax.eq_p(xr, yr), with_equal(lax.imag(x), lax.imag(y))))

    return body
