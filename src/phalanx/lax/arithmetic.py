"""Arithmetic, rounding and powers: the public functions over the tables of `elementwise`."""

from __future__ import annotations

import enum
import operator
from typing import Any

from phalanx.lax.convert import convert_element_type
from phalanx.lax.elementwise import (
    abs_p,
    add_p,
    ceil_p,
    div_p,
    floor_p,
    integer_pow_p,
    max_p,
    min_p,
    mul_p,
    mulhi_p,
    neg_p,
    nextafter_p,
    pow_p,
    rem_p,
    round_p,
    sign_p,
    square_p,
    sub_p,
)
from phalanx.lax.family import SCALARS, match_two


class RoundingMethod(enum.IntEnum):
    """Where `round` takes halves."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def add(x: Any, y: Any) -> Any:
    """Sum: num[*s], num[*s] -> num[*s].

    Args:
      x: integer, floating or complex array, or one of rank 0.
      y: array of the same dtype and shape, or of rank 0; a Python scalar takes the dtype of the other.

    Returns:
      An array of the common shape and dtype.

    Raises:
      DTypeError: the dtypes differ, or the operation does not take them.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.add(1, 2))
      3
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return add_p(x, y)


def sub(x: Any, y: Any) -> Any:
    """Difference: num[*s], num[*s] -> num[*s].

    Args:
      x, y: as in `add`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.sub(3, 2))
      1
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return sub_p(x, y)


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
    return mul_p(x, y)


def div(x: Any, y: Any) -> Any:
    """Quotient; that of integers is cut off towards zero: num[*s], num[*s] -> num[*s].

    Args:
      x, y: as in `add`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.div(-5, 3))
      -1
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return div_p(x, y)


def rem(x: Any, y: Any) -> Any:
    """Remainder of the division that `div` does, with the sign of x: num[*s], num[*s] -> num[*s].

    Args:
      x: integer or floating array, or one of rank 0.
      y: array of the same dtype and shape, or of rank 0; a Python scalar takes the dtype of the other.

    Returns:
      An array of the common shape and dtype.

    Raises:
      DTypeError: the dtypes differ, or the operation does not take them.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.rem(-5, 3))
      -2
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return rem_p(x, y)


def neg(x: Any) -> Any:
    """Negative of each element: num[*s] -> num[*s].

    Args:
      x: integer, floating or complex array.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      DTypeError: `x` is of another dtype.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.neg(3))
      -3
    """
    return neg_p(x)


def abs(x: Any) -> Any:
    """Absolute value of each element: num[*s] -> real[*s].

    Args:
      x: signed integer, floating or complex array.

    Returns:
      An array of the shape of `x`, with the dtype of its parts if it is complex.

    Raises:
      DTypeError: `x` is of another dtype.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.abs(-3))
      3
    """
    return abs_p(x)


def sign(x: Any) -> Any:
    """x / |x|, and 0 where x is 0: num[*s] -> num[*s].

    Args:
      x: as in `neg`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.sign(-3))
      -1
    """
    return sign_p(x)


def max(x: Any, y: Any) -> Any:
    """The larger element; of complex ones the lexicographically larger, and NaN wins: any[*s], any[*s] -> any[*s].

    Args:
      x: boolean, integer, floating or complex array, or one of rank 0.
      y: array of the same dtype and shape, or of rank 0; a Python scalar takes the dtype of the other.

    Returns:
      An array of the common shape and dtype.

    Raises:
      DTypeError: the dtypes differ, or the operation does not take them.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.max(1, 2))
      2
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return max_p(x, y)


def min(x: Any, y: Any) -> Any:
    """The smaller element; of complex ones the lexicographically smaller, and NaN wins: any[*s], any[*s] -> any[*s].

    Args:
      x, y: as in `max`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.min(1, 2))
      1
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return min_p(x, y)


def square(x: Any) -> Any:
    """x * x: num[*s] -> num[*s].

    Args:
      x: as in `neg`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.square(3))
      9
    """
    return square_p(x)


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
    return integer_pow_p(x, y=-1)


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
    return integer_pow_p(x, y=operator.index(y))


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
    return pow_p(x, y)


def floor(x: Any) -> Any:
    """The largest whole number not above x: float[*s] -> float[*s].

    Args:
      x: floating array.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      DTypeError: `x` is of another dtype.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.floor(1.5))
      1.0
    """
    return floor_p(x)


def ceil(x: Any) -> Any:
    """The smallest whole number not below x: float[*s] -> float[*s].

    Args:
      x: as in `floor`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.ceil(1.5))
      2.0
    """
    return ceil_p(x)


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
    return round_p(x, rounding_method=int(RoundingMethod(rounding_method)))


def nextafter(x1: Any, x2: Any) -> Any:
    """The next value that the dtype has after x1, towards x2: float[*s], float[*s] -> float[*s].

    Args:
      x1: floating array, or one of rank 0.
      x2: array of the same dtype and shape, or of rank 0; a Python scalar takes the dtype of the other.

    Returns:
      An array of the common shape and dtype.

    Raises:
      DTypeError: the dtypes differ, or the operation does not take them.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.nextafter(1.0, 2.0)) > 1.0
      True
    """
    if type(x1) in SCALARS or type(x2) in SCALARS:
        x1, x2 = match_two(x1, x2)
    return nextafter_p(x1, x2)


def mulhi(x: Any, y: Any) -> Any:
    """The high half of the double-width product: int[*s], int[*s] -> int[*s].

    Args:
      x: integer array, or one of rank 0.
      y: array of the same dtype and shape, or of rank 0; a Python scalar takes the dtype of the other.

    Returns:
      An array of the common shape and dtype.

    Raises:
      DTypeError: the dtypes differ, or the operation does not take them.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.mulhi(1 << 20, 1 << 20))
      256
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return mulhi_p(x, y)
