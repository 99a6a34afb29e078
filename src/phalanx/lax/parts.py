"""Complex numbers and their parts: the public functions over the tables of `elementwise`."""

from __future__ import annotations

from typing import Any

from phalanx.lax.elementwise import complex_p, conj_p, imag_p, real_p
from phalanx.lax.family import SCALARS, match_two


def real(x: Any) -> Any:
    """Real part of each element: complex[*s] -> float[*s].

    Args:
      x: complex array.

    Returns:
      An array of the shape of `x` and the dtype of its parts.

    Raises:
      DTypeError: `x` is of another dtype.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.real(1 + 2j))
      1.0
    """
    return real_p(x)


def imag(x: Any) -> Any:
    """Imaginary part of each element: complex[*s] -> float[*s].

    Args:
      x: as in `real`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.imag(1 + 2j))
      2.0
    """
    return imag_p(x)


def complex(x: Any, y: Any) -> Any:
    """Complex numbers with real part x and imaginary part y: float[*s], float[*s] -> complex[*s].

    Args:
      x: floating array, or one of rank 0.
      y: array of the same dtype and shape, or of rank 0; a Python scalar takes the dtype of the other.

    Returns:
      A complex array of the common shape.

    Raises:
      DTypeError: the dtypes differ, or the operation does not take them.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> lax.complex(1.0, 2.0).item()
      (1+2j)
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return complex_p(x, y)


def conj(x: Any) -> Any:
    """Complex conjugate of each element: inexact[*s] -> complex[*s].

    Args:
      x: floating or complex array.

    Returns:
      A complex array of the shape of `x`.

    Raises:
      DTypeError: `x` is of another dtype.

    Examples:
      >>> from phalanx import lax
      >>> lax.conj(1 + 2j).item()
      (1-2j)
    """
    return conj_p(x)
