"""Bodies of the ufuncs that are more than one operation.

Each takes operands that already have one dtype, and one shape or rank 0; `ufuncs.py` names them in its tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.numpy.operands import SCALAR_KINDS, as_array, broadcast_to_shape, cast, scalar_of
from phalanx.transforms import vmap


def dtype_of(*xs: Any) -> Any:
    """The dtype that the operands share: that of the first which is no Python scalar."""
    for x in xs:
        if hasattr(x, "dtype"):
            return dtypes.canonicalize_dtype(x.dtype)
    return promotion.result_type(xs[0])


def choose(predicate: Any, x: Any, y: Any) -> Any:
    """`x` where the predicate holds, else `y`; each of the three may have rank 0."""
    if type(x) in SCALAR_KINDS or type(y) in SCALAR_KINDS:
        both = type(x) in SCALAR_KINDS and type(y) in SCALAR_KINDS
        dtype = promotion.result_type(x, y) if both else dtype_of(x, y)
        x, y = (scalar_of(v, dtype) if type(v) in SCALAR_KINDS else v for v in (x, y))
    return lax.select_n_p(predicate, y, x)


def isnan(x: Any) -> Any:
    """Whether elements are not a number."""
    return lax.ne_p(x, x)


def isinf(x: Any) -> Any:
    """Whether elements are infinite."""
    dtype = dtype_of(x)
    if dtype.kind == "c":
        return lax.or_p(isinf(lax.real_p(x)), isinf(lax.imag_p(x)))
    return lax.eq_p(lax.abs_p(x), scalar_of(np.inf, dtype))


def isfinite_complex(x: Any) -> Any:
    """Whether both parts are finite."""
    return lax.and_p(lax.is_finite_p(lax.real_p(x)), lax.is_finite_p(lax.imag_p(x)))


def isposinf(x: Any) -> Any:
    """Whether elements are plus infinity."""
    return lax.eq_p(x, scalar_of(np.inf, dtype_of(x)))


def isneginf(x: Any) -> Any:
    """Whether elements are minus infinity."""
    return lax.eq_p(x, scalar_of(-np.inf, dtype_of(x)))


def all_false(x: Any) -> Any:
    """False everywhere: no integer is infinite or not a number."""
    return lax.full(np.shape(x), False, np.dtype(bool))


def all_true(x: Any) -> Any:
    """True everywhere."""
    return lax.full(np.shape(x), True, np.dtype(bool))


def identity(x: Any) -> Any:
    """The operand as an array."""
    return as_array(x)


def to_bool(x: Any) -> Any:
    """Whether elements differ from zero."""
    dtype = dtype_of(x)
    return x if dtype == np.bool_ else lax.ne_p(x, scalar_of(0, dtype))


def signbit(x: Any) -> Any:
    """Whether the sign bit is set, that of negative zero included."""
    dtype = dtype_of(x)
    if dtype.kind in "bu":
        return all_false(x)
    if dtype.kind == "i" or dtypes.issubdtype(dtype, np.integer):
        return lax.lt_p(x, scalar_of(0, dtype))
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{8 * dtype.itemsize}"))
    return lax.lt_p(bits, bits.dtype.type(0))


def log10(x: Any) -> Any:
    """Logarithm to base 10."""
    return _over(lax.log_p(x), np.log(10.0))


def deg2rad(x: Any) -> Any:
    """Degrees to radians."""
    return lax.mul_p(x, scalar_of(np.pi / 180, dtype_of(x)))


def rad2deg(x: Any) -> Any:
    """Radians to degrees."""
    return lax.mul_p(x, scalar_of(180 / np.pi, dtype_of(x)))


def _over(x: Any, y: float) -> Any:
    return lax.div_p(x, scalar_of(y, dtype_of(x)))


def reciprocal(x: Any) -> Any:
    """One over each element."""
    return lax.div_p(scalar_of(1, dtype_of(x)), x)


def rint(x: Any) -> Any:
    """The nearest integer, halves to even."""
    if dtype_of(x).kind == "c":
        return lax.complex(rint(lax.real_p(x)), rint(lax.imag_p(x)))
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def trunc(x: Any) -> Any:
    """The integer part."""
    return choose(lax.lt_p(x, scalar_of(0, dtype_of(x))), lax.ceil_p(x), lax.floor_p(x))


def imag_of_real(x: Any) -> Any:
    """Zero."""
    return lax.full(np.shape(x), 0, dtype_of(x))


def angle(x: Any) -> Any:
    """The argument of a complex number."""
    if dtype_of(x).kind == "c":
        return lax.atan2_p(lax.imag_p(x), lax.real_p(x))
    return lax.atan2_p(scalar_of(0, dtype_of(x)), x)


def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x), by its series near 0, so that all derivatives there are right."""
    t = x * np.pi
    near = lax.lt_p(lax.abs_p(t), scalar_of(1e-2, lax.abs_p(t).dtype))
    far = choose(near, 1.0, t)
    s = lax.square(choose(near, t, 0.0))
    return choose(near, 1 - s * (1 / 6) * (1 - s * (1 / 20) * (1 - s * (1 / 42))), lax.sin_p(far) / far)


def i0(x: Any) -> Any:
    """The modified Bessel function of order 0."""
    x = lax.abs_p(x)
    return lax.mul_p(lax.exp_p(x), lax.bessel_i0e(x))


def spacing(x: Any) -> Any:
    """The distance to the next float away from 0."""
    dtype = dtype_of(x)
    away = choose(signbit(x), -np.inf, np.inf)
    step = lax.sub_p(lax.nextafter_p(x, cast(away, dtype)), x)
    return choose(lax.is_finite_p(x), step, np.nan)


def population_count(x: Any) -> Any:
    """The number of set bits of the magnitude."""
    if dtype_of(x).kind == "b":
        return cast(x, np.dtype(np.uint8))
    return cast(lax.population_count(lax.abs_p(x) if dtype_of(x).kind == "i" else x), np.dtype(np.uint8))


def not_real(x: Any) -> Any:
    """Whether the imaginary part is not 0."""
    return lax.ne_p(lax.imag_p(x), scalar_of(0, lax.imag_p(x).dtype))


def is_real(x: Any) -> Any:
    """Whether the imaginary part is 0."""
    return lax.eq_p(lax.imag_p(x), scalar_of(0, lax.imag_p(x).dtype))


# Two operands


def logical(op: Any) -> Any:
    """A logical operation over elements that are first compared with 0."""

    def body(*xs: Any) -> Any:
        return op(*[to_bool(x) for x in xs])

    return body


def floor_divide_int(x: Any, y: Any) -> Any:
    """The quotient rounded down."""
    q = lax.div_p(x, y)
    dtype = dtype_of(x, y)
    if dtype.kind == "u":
        return q
    exact = lax.eq_p(lax.mul_p(q, y), x)
    same_sign = lax.eq_p(lax.lt_p(x, scalar_of(0, dtype)), lax.lt_p(y, scalar_of(0, dtype)))
    return choose(lax.or_p(exact, same_sign), q, lax.sub_p(q, scalar_of(1, dtype)))


def floor_divide_float(x: Any, y: Any) -> Any:
    """The quotient rounded down, consistent with the remainder."""
    return divmod_float(x, y)[0]


def divmod_float(x: Any, y: Any) -> tuple:
    """The floored quotient and the remainder with the sign of the divisor."""
    dtype = dtype_of(x, y)
    zero = scalar_of(0, dtype)
    r = lax.rem_p(x, y)
    q = lax.div_p(lax.sub_p(x, r), y)
    adjust = lax.and_p(lax.ne_p(r, zero), lax.ne_p(lax.lt_p(r, zero), lax.lt_p(y, zero)))
    r = choose(adjust, lax.add_p(r, y), r)
    q = rint(choose(adjust, lax.sub_p(q, scalar_of(1, dtype)), q))
    by_zero = lax.eq_p(y, zero)
    return choose(by_zero, lax.div_p(x, y), q), r


def remainder(x: Any, y: Any) -> Any:
    """The remainder with the sign of the divisor."""
    dtype = dtype_of(x, y)
    if dtype.kind not in "u":
        zero = scalar_of(0, dtype)
        r = lax.rem_p(x, y)
        adjust = lax.and_p(lax.ne_p(r, zero), lax.ne_p(lax.lt_p(r, zero), lax.lt_p(y, zero)))
        out = choose(adjust, lax.add_p(r, y), r)
    else:
        out = lax.rem_p(x, y)
    return _zero_where_zero(out, y, dtype)


def fmod(x: Any, y: Any) -> Any:
    """The remainder with the sign of the dividend."""
    return _zero_where_zero(lax.rem_p(x, y), y, dtype_of(x, y))


def _zero_where_zero(out: Any, y: Any, dtype: Any) -> Any:
    # NumPy's integer remainder by 0 is 0, XLA's is the dividend.
    if dtype.kind in "iu" or dtypes.issubdtype(dtype, np.integer):
        zero = scalar_of(0, dtype)
        return choose(lax.eq_p(y, zero), zero, out)
    return out


def power_int(x: Any, y: Any) -> Any:
    """x ** y for integers, by squaring, exact where the power fits; 0 for negative exponents unless x is 1 or -1."""
    dtype = dtype_of(x, y)
    one, zero = scalar_of(1, dtype), scalar_of(0, dtype)
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    out = lax.full(shape, 1, dtype)
    signed = dtype.kind == "i"
    # A power that fits has an exponent below the width, or a base of 0, 1 or -1, whose powers have period 2.
    bits = 8 * dtype.itemsize
    exponent, base = y, x
    for _ in range(bits.bit_length()):
        odd = lax.ne_p(lax.and_p(exponent, one), zero)
        out = choose(odd, lax.mul_p(out, x), out)
        exponent = lax.shift_right_logical_p(exponent, one)
        x = lax.mul_p(x, x)
    rest = lax.and_p(lax.ne_p(exponent, zero), lax.eq_p(x, zero))
    out = choose(rest, zero, out)
    if signed:
        unit = lax.eq_p(lax.abs_p(base), one)
        out = choose(lax.or_p(lax.ge_p(y, zero), unit), out, zero)
    return out


def hypot(x: Any, y: Any) -> Any:
    """The length of (x, y), without overflow on the way."""
    x, y = lax.abs_p(x), lax.abs_p(y)
    big, small = lax.max_p(x, y), lax.min_p(x, y)
    dtype = dtype_of(big)
    plain = lax.and_p(lax.is_finite_p(big), lax.ne_p(big, scalar_of(0, dtype)))
    ratio = lax.div_p(small, choose(plain, big, 1))
    length = lax.mul_p(big, lax.sqrt_p(lax.add_p(lax.mul_p(ratio, ratio), scalar_of(1, dtype))))
    infinite = lax.or_p(isinf(x), isinf(y))
    return choose(plain, length, choose(infinite, np.inf, big))


def logaddexp(x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y))."""
    return _logaddexp(x, y, lax.exp_p, 1.0)


def logaddexp2(x: Any, y: Any) -> Any:
    """log2(2 ** x + 2 ** y)."""
    return _logaddexp(x, y, lax.exp2_p, float(np.log(2)))


def _logaddexp(x: Any, y: Any, exp: Any, scale: float) -> Any:
    big = lax.max_p(x, y)
    d = lax.sub_p(x, y)
    if dtype_of(d).kind == "c":
        small = lax.min_p(x, y)
        d = lax.sub_p(small, big)
        d = choose(isnan(d), 0, d)
    else:
        # Equal infinities differ by NaN; where an operand is NaN, so is `big`.
        d = lax.neg_p(lax.abs_p(choose(isnan(d), 0, d)))
    log = lax.log1p_p(exp(d))
    return lax.add_p(big, log if scale == 1.0 else _over(log, scale))


def heaviside(x: Any, h: Any) -> Any:
    """0 below 0, 1 above it, `h` at it."""
    zero = scalar_of(0, dtype_of(x, h))
    shape = np.broadcast_shapes(np.shape(x), np.shape(h))
    x, h = broadcast_to_shape(x, shape), broadcast_to_shape(h, shape)
    return choose(isnan(x), x, choose(lax.lt_p(x, zero), zero, choose(lax.gt_p(x, zero), 1, h)))


def copysign(x: Any, y: Any) -> Any:
    """The magnitude of x with the sign of y."""
    x = lax.abs_p(x)
    return choose(signbit(y), lax.neg_p(x), x)


def gcd(x: Any, y: Any) -> Any:
    """The greatest common divisor, by Euclid's algorithm on each element."""
    dtype = dtype_of(x, y)
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    x, y = (
        lax.abs_p(broadcast_to_shape(v, shape)) if dtype.kind == "i" else broadcast_to_shape(v, shape) for v in (x, y)
    )
    zero = scalar_of(0, dtype)

    def one(x: Any, y: Any) -> Any:
        return lax.while_loop(lambda xy: lax.ne_p(xy[1], zero), lambda xy: (xy[1], lax.rem_p(*xy)), (x, y))[0]

    for _ in shape:
        one = vmap(one)
    return one(x, y)


def lcm(x: Any, y: Any) -> Any:
    """The least common multiple."""
    dtype = dtype_of(x, y)
    if dtype.kind == "i":
        x, y = lax.abs_p(x), lax.abs_p(y)
    d = gcd(x, y)
    zero = scalar_of(0, dtype)
    return choose(lax.eq_p(d, zero), zero, lax.mul_p(x, lax.div_p(y, choose(lax.eq_p(d, zero), 1, d))))


def fmax(x: Any, y: Any) -> Any:
    """The larger of two, ignoring NaN."""
    return choose(lax.or_p(isnan(y), lax.gt_p(x, y)), x, y)


def fmin(x: Any, y: Any) -> Any:
    """The smaller of two, ignoring NaN."""
    return choose(lax.or_p(isnan(y), lax.lt_p(x, y)), x, y)


def arctan2_complex(x: Any, y: Any) -> Any:
    """The complex arc tangent of x / y, -i log((y + i x) / sqrt(x^2 + y^2))."""
    return -1j * lax.log_p((y + x * 1j) / lax.sqrt_p(x * x + y * y))


def compare_complex(strict: Any, with_equal: Any) -> Any:
    """A comparison by real part, then imaginary part."""

    def body(x: Any, y: Any) -> Any:
        xr, yr = lax.real(x), lax.real(y)
        tie = lax.and_p(lax.eq_p(xr, yr), with_equal(lax.imag(x), lax.imag(y)))
        return lax.or_p(strict(xr, yr), tie)

    return body
