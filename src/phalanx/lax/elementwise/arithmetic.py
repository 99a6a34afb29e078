"""Public functions of arithmetic, rounding and powers, of complex numbers and of bits.

Their primitives are in `elementwise_primitives`.
"""

from __future__ import annotations

import enum
import operator
from typing import Any

from phalanx.core import ShapeError
from phalanx.lax.elementwise import elementwise_primitives as p
from phalanx.lax.elementwise.convert_element_type import convert_element_type
from phalanx.lax.elementwise.elementwise_builders import SCALARS, apply_broadcast, match_scalar_pair
from phalanx.lax.elementwise.wrappers import binary_wrapper, unary_wrapper
from phalanx.typing import ArrayLike, DTypeLike


class RoundingMethod(enum.IntEnum):
    """The rounding of halves in `round`.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.round(2.5, lax.RoundingMethod.TO_NEAREST_EVEN)), float(lax.round(2.5))
      (2.0, 3.0)
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


add = binary_wrapper(p.add_p, "Sum", "1, 2", "3")
sub = binary_wrapper(p.sub_p, "Difference", "3, 2", "1")
div = binary_wrapper(p.div_p, "Quotient; integers are divided with truncation towards zero", "-5, 3", "-1")
rem = binary_wrapper(p.rem_p, "Remainder of the truncating division, with the sign of x", "-5, 3", "-2")
max = binary_wrapper(
    p.max_p, "The larger element, NaN if either is NaN; complex numbers are ordered lexicographically", "1, 2", "2"
)
min = binary_wrapper(
    p.min_p, "The smaller element, NaN if either is NaN; complex numbers are ordered lexicographically", "1, 2", "1"
)
mulhi = binary_wrapper(p.mulhi_p, "The high half of the product in twice the width", "1 << 20, 1 << 20", "256")
neg = unary_wrapper(p.neg_p, "Negative of each element", "3", "-3")
abs = unary_wrapper(p.abs_p, "Absolute value of each element", "-3", "3", result="real")
sign = unary_wrapper(p.sign_p, "x / |x|, and 0 where x is 0", "-3", "-1")
square = unary_wrapper(p.square_p, "x * x", "3", "9")
floor = unary_wrapper(p.floor_p, "The largest integer of at most x", "1.5", "1.0")
ceil = unary_wrapper(p.ceil_p, "The smallest integer of at least x", "1.5", "2.0")


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Any:
    """Product: num[*s], num[*s] -> num[*s].

    Args:
      x: integer, floating or complex array, or one of rank 0.
      y: array of the same dtype and shape, or of rank 0; a Python scalar is converted to the dtype of the other.
      out_dtype: the dtype of the product, to which both operands are converted first.

    Returns:
      An array of the common shape and dtype.

    Raises:
      DTypeError: the dtypes differ or are not numeric.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.mul(3, 2))
      6
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_scalar_pair(x, y)
    if out_dtype is not None:
        x, y = convert_element_type(x, out_dtype), convert_element_type(y, out_dtype)
    try:
        return p.mul_p(x, y)
    except ShapeError:
        return apply_broadcast(p.mul_p, x, y)


def reciprocal(x: ArrayLike) -> Any:
    """1 / x: inexact[*s] -> inexact[*s].

    Args:
      x: floating or complex array.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      ArgumentError: `x` is an integer array.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.reciprocal(4.0))
      0.25
    """
    return p.integer_pow_p(x, y=-1)


def one_minus_square(x: ArrayLike) -> Any:
    """1 - x^2 without cancellation near 1 and -1: num[*s] -> num[*s].

    Args:
      x: integer, floating or complex array.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      DTypeError: `x` is boolean.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.one_minus_square(0.5)), int(lax.one_minus_square(2))
      (0.75, -3)
    """
    # (1 - x) (1 + x): both factors are exact near the ends, where x^2 would be rounded to 1.
    return p.mul_p(p.one_minus(x), p.add_number(x, 1))


def integer_pow(x: ArrayLike, y: int) -> Any:
    """x^y for a Python integer y, by repeated squaring: num[*s] -> num[*s].

    Args:
      x: integer, floating or complex array.
      y: the exponent, non-negative for an integer array.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      ArgumentError: `y` is negative for an integer array.
      DTypeError: `x` is boolean.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.integer_pow(2, 10))
      1024
    """
    return p.integer_pow_p(x, y=operator.index(y))


def pow(x: ArrayLike, y: ArrayLike) -> Any:
    """Power: inexact[*s], inexact or int[*s] -> inexact[*s].

    Args:
      x: the base: a floating or complex array, or one of rank 0.
      y: the exponent: of the dtype of `x` or an integer dtype, and of the same shape or of rank 0.

    Returns:
      An array of the common shape and the dtype of `x`.

    Raises:
      DTypeError: the dtypes differ, or `x` is not inexact.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.pow(2.0, 3.0))
      8.0
    """
    # An integer exponent keeps its dtype, and is not converted to the dtype of the base.
    if type(x) in SCALARS or (type(y) is not int and type(y) in SCALARS):
        x, y = match_scalar_pair(x, y)
    try:
        return p.pow_p(x, y)
    except ShapeError:
        return apply_broadcast(p.pow_p, x, y)


def round(x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """Round to the nearest integer: float[*s] -> float[*s].

    Args:
      x: floating array.
      rounding_method: the rounding of halves: away from zero, or to the even neighbour.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      DTypeError: `x` is not floating.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.round(2.5)), float(lax.round(2.5, lax.RoundingMethod.TO_NEAREST_EVEN))
      (3.0, 2.0)
    """
    return p.round_p(x, rounding_method=int(RoundingMethod(rounding_method)))


nextafter = binary_wrapper(
    p.nextafter_p,
    "The next representable number after x1 in the direction of x2",
    "1.0, 2.0",
    "1.0000001...",
    x1="the starting point",
    x2="the direction",
)


real = unary_wrapper(p.real_p, "Real part of each element", "1 + 2j", "1.0", result="float")
imag = unary_wrapper(p.imag_p, "Imaginary part of each element", "1 + 2j", "2.0", result="float")
complex = binary_wrapper(
    p.complex_p, "Complex numbers with real part x and imaginary part y", "1.0, 2.0", "(1+2j)", result="complex"
)
conj = unary_wrapper(p.conj_p, "Complex conjugate of each element", "1 + 2j", "(1-2j)", result="complex")


bitwise_and = binary_wrapper(p.and_p, "Bitwise and", "6, 5", "4")
bitwise_or = binary_wrapper(p.or_p, "Bitwise or", "6, 5", "7")
bitwise_xor = binary_wrapper(p.xor_p, "Bitwise exclusive or", "6, 5", "3")
bitwise_not = unary_wrapper(p.not_p, "Bitwise complement", "0", "-1")
shift_left = binary_wrapper(p.shift_left_p, "x shifted left by y bits", "3, 2", "12")
shift_right_arithmetic = binary_wrapper(
    p.shift_right_arithmetic_p, "x shifted right by y bits, filled with the sign bit", "6, 2", "1"
)
shift_right_logical = binary_wrapper(
    p.shift_right_logical_p, "x shifted right by y bits, filled with zeros", "6, 2", "1"
)
population_count = unary_wrapper(p.population_count_p, "The number of one bits", "7", "3")
clz = unary_wrapper(p.clz_p, "The number of leading zero bits", "1", "31")
