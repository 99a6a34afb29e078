"""Operations on bits: the public functions over the tables of `elementwise`."""

from __future__ import annotations

from typing import Any

from phalanx.lax.elementwise import (
    and_p,
    clz_p,
    not_p,
    or_p,
    population_count_p,
    shift_left_p,
    shift_right_arithmetic_p,
    shift_right_logical_p,
    xor_p,
)
from phalanx.lax.family import SCALARS, match_two


def bitwise_and(x: Any, y: Any) -> Any:
    """Bits set in both: bits[*s], bits[*s] -> bits[*s].

    Args:
      x: boolean or integer array, or one of rank 0.
      y: array of the same dtype and shape, or of rank 0; a Python scalar takes the dtype of the other.

    Returns:
      An array of the common shape and dtype.

    Raises:
      DTypeError: the dtypes differ, or the operation does not take them.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.bitwise_and(6, 5))
      4
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return and_p(x, y)


def bitwise_or(x: Any, y: Any) -> Any:
    """Bits set in either: bits[*s], bits[*s] -> bits[*s].

    Args:
      x, y: as in `bitwise_and`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.bitwise_or(6, 5))
      7
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return or_p(x, y)


def bitwise_xor(x: Any, y: Any) -> Any:
    """Bits set in one only: bits[*s], bits[*s] -> bits[*s].

    Args:
      x, y: as in `bitwise_and`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.bitwise_xor(6, 5))
      3
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return xor_p(x, y)


def bitwise_not(x: Any) -> Any:
    """Bits that are not set: bits[*s] -> bits[*s].

    Args:
      x: boolean or integer array.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      DTypeError: `x` is of another dtype.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.bitwise_not(0))
      -1
    """
    return not_p(x)


def shift_left(x: Any, y: Any) -> Any:
    """Bits moved up, zeros coming in: int[*s], int[*s] -> int[*s].

    Args:
      x: integer array, or one of rank 0.
      y: by how many bits: of the same dtype and shape, or of rank 0.

    Returns:
      An array of the common shape and dtype.

    Raises:
      DTypeError: the dtypes differ, or the operation does not take them.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.shift_left(3, 2))
      12
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return shift_left_p(x, y)


def shift_right_arithmetic(x: Any, y: Any) -> Any:
    """Bits moved down, the sign coming in: int[*s], int[*s] -> int[*s].

    Args:
      x, y: as in `shift_left`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.shift_right_arithmetic(6, 2))
      1
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return shift_right_arithmetic_p(x, y)


def shift_right_logical(x: Any, y: Any) -> Any:
    """Bits moved down, zeros coming in: int[*s], int[*s] -> int[*s].

    Args:
      x, y: as in `shift_left`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.shift_right_logical(6, 2))
      1
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return shift_right_logical_p(x, y)


def population_count(x: Any) -> Any:
    """The number of bits that are set: int[*s] -> int[*s].

    Args:
      x: integer array.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      DTypeError: `x` is of another dtype.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.population_count(7))
      3
    """
    return population_count_p(x)


def clz(x: Any) -> Any:
    """The number of zero bits before the first one: int[*s] -> int[*s].

    Args:
      x: as in `population_count`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> int(lax.clz(1))
      31
    """
    return clz_p(x)
