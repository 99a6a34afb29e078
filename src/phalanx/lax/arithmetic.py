"""Arithmetic, rounding and powers: the public functions over the tables of `elementwise`."""

from __future__ import annotations

import enum
import operator
from typing import Any

from phalanx.lax import elementwise as p
from phalanx.lax.convert import convert_element_type
from phalanx.lax.faces import one, two
from phalanx.lax.family import SCALARS, match_two


class RoundingMethod(enum.IntEnum):
    """Where `round` takes halves.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.round(2.5, lax.RoundingMethod.TO_NEAREST_EVEN)), float(lax.round(2.5))
      (2.0, 3.0)
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


# fmt: off
add = two(p.add_p, "Sum", "1, 2", "3")
sub = two(p.sub_p, "Difference", "3, 2", "1")
div = two(p.div_p, "Quotient; that of integers is cut off towards zero", "-5, 3", "-1")
rem = two(p.rem_p, "Remainder of the division that `div` does, with the sign of x", "-5, 3", "-2")
max = two(p.max_p, "The larger element; of complex ones the lexicographically larger, and NaN wins", "1, 2", "2")
min = two(p.min_p, "The smaller element; of complex ones the lexicographically smaller, and NaN wins", "1, 2", "1")
mulhi = two(p.mulhi_p, "The high half of the double-width product", "1 << 20, 1 << 20", "256")
neg = one(p.neg_p, "Negative of each element", "3", "-3")
abs = one(p.abs_p, "Absolute value of each element", "-3", "3", result="real")
sign = one(p.sign_p, "x / |x|, and 0 where x is 0", "-3", "-1")
square = one(p.square_p, "x * x", "3", "9")
floor = one(p.floor_p, "The largest whole number not above x", "1.5", "1.0")
ceil = one(p.ceil_p, "The smallest whole number not below x", "1.5", "2.0")
# fmt: on


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """Product: num[*s], num[*s] -> num[*s].

    Args:
      x: integer, floating or complex array, or one of rank 0.
      y: array of the same dtype and shape, or of rank 0; a Python scalar takes the dtype of the other.
      out_dtype: multiply in this dtype instead, to which both are converted first.

    Returns:
      An array of the common shape and dtype.

    Raises:
      DTypeError: the dtypes differ, or the operation does not take them.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.mul(3, 2))
      6
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    if out_dtype is not None:
        x, y = convert_element_type(x, out_dtype), convert_element_type(y, out_dtype)
    return p.mul_p(x, y)


def reciprocal(x: Any) -> Any:
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


def one_minus_square(x: Any) -> Any:
    """1 - x^2, exact also near 1 and -1: num[*s] -> num[*s].

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
    return p.mul_p(p.one_minus(x), p.plus(x, 1))


def integer_pow(x: Any, y: int) -> Any:
    """A power with a Python integer as exponent, by repeated multiplication: num[*s] -> num[*s].

    Args:
      x: integer, floating or complex array.
      y: the exponent, at least 0 for an integer array.

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


def pow(x: Any, y: Any) -> Any:
    """Power: inexact[*s], inexact or int[*s] -> inexact[*s].

    Args:
      x: the base: a floating or complex array, or one of rank 0.
      y: the exponent: of the dtype of `x` or an integer dtype, and of the same shape or of rank 0.

    Returns:
      An array of the common shape and the dtype of `x`.

    Raises:
      DTypeError: the operation does not take these dtypes.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.pow(2.0, 3.0))
      8.0
    """
    if type(x) in SCALARS or (type(y) is not int and type(y) in SCALARS):
        x, y = match_two(x, y)
    return p.pow_p(x, y)


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """The nearest whole number: float[*s] -> float[*s].

    Args:
      x: floating array.
      rounding_method: where halves go: away from zero, or to the even neighbour.

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


nextafter = two(p.nextafter_p, "The next value that the dtype has after x1, towards x2", "1.0, 2.0", "1.0000001...",
                x1="where to start", x2="where to go")  # fmt: skip
