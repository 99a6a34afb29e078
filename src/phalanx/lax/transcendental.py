"""Exponentials, logarithms, circular and hyperbolic functions, roots: the public functions over `elementwise`."""

from __future__ import annotations

from typing import Any

from phalanx.lax.elementwise import (
    acos_p,
    acosh_p,
    asin_p,
    asinh_p,
    atan2_p,
    atan_p,
    atanh_p,
    cbrt_p,
    cos_p,
    cosh_p,
    exp2_p,
    exp_p,
    expm1_p,
    log1p_p,
    log_p,
    logistic_p,
    rsqrt_p,
    sin_p,
    sinh_p,
    sqrt_p,
    tan_p,
    tanh_p,
)
from phalanx.lax.family import SCALARS, AccuracyMode, Tolerance, match_two

Accuracy = Tolerance | AccuracyMode | None


def exp(x: Any, *, accuracy: Accuracy = None) -> Any:
    """e to the power of each element: inexact[*s] -> inexact[*s].

    Args:
      x: floating or complex array.
      accuracy: how exact the compiler must be, a `Tolerance` or `AccuracyMode`.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      DTypeError: `x` is of another dtype.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.exp(0.0))
      1.0
    """
    return exp_p(x) if accuracy is None else exp_p(x, accuracy=accuracy)


def exp2(x: Any, *, accuracy: Accuracy = None) -> Any:
    """2 to the power of each element: inexact[*s] -> inexact[*s].

    Args:
      x, accuracy: as in `exp`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.exp2(3.0))
      8.0
    """
    return exp2_p(x) if accuracy is None else exp2_p(x, accuracy=accuracy)


def expm1(x: Any, *, accuracy: Accuracy = None) -> Any:
    """exp(x) - 1, exact also for small x: inexact[*s] -> inexact[*s].

    Args:
      x, accuracy: as in `exp`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.expm1(0.0))
      0.0
    """
    return expm1_p(x) if accuracy is None else expm1_p(x, accuracy=accuracy)


def log(x: Any, *, accuracy: Accuracy = None) -> Any:
    """Natural logarithm of each element: inexact[*s] -> inexact[*s].

    Args:
      x, accuracy: as in `exp`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.log(1.0))
      0.0
    """
    return log_p(x) if accuracy is None else log_p(x, accuracy=accuracy)


def log1p(x: Any, *, accuracy: Accuracy = None) -> Any:
    """log(1 + x), exact also for small x: inexact[*s] -> inexact[*s].

    Args:
      x, accuracy: as in `exp`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.log1p(0.0))
      0.0
    """
    return log1p_p(x) if accuracy is None else log1p_p(x, accuracy=accuracy)


def logistic(x: Any, *, accuracy: Accuracy = None) -> Any:
    """The logistic function 1 / (1 + exp(-x)): inexact[*s] -> inexact[*s].

    Args:
      x, accuracy: as in `exp`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.logistic(0.0))
      0.5
    """
    return logistic_p(x) if accuracy is None else logistic_p(x, accuracy=accuracy)


def sin(x: Any, *, accuracy: Accuracy = None) -> Any:
    """Sine of each element, in radians: inexact[*s] -> inexact[*s].

    Args:
      x, accuracy: as in `exp`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.sin(0.0))
      0.0
    """
    return sin_p(x) if accuracy is None else sin_p(x, accuracy=accuracy)


def cos(x: Any, *, accuracy: Accuracy = None) -> Any:
    """Cosine of each element, in radians: inexact[*s] -> inexact[*s].

    Args:
      x, accuracy: as in `exp`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.cos(0.0))
      1.0
    """
    return cos_p(x) if accuracy is None else cos_p(x, accuracy=accuracy)


def tan(x: Any, *, accuracy: Accuracy = None) -> Any:
    """Tangent of each element, in radians: inexact[*s] -> inexact[*s].

    Args:
      x, accuracy: as in `exp`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.tan(0.0))
      0.0
    """
    return tan_p(x) if accuracy is None else tan_p(x, accuracy=accuracy)


def asin(x: Any) -> Any:
    """Arc sine, in radians: inexact[*s] -> inexact[*s].

    Args:
      x: floating or complex array.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      DTypeError: `x` is of another dtype.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.asin(0.0))
      0.0
    """
    return asin_p(x)


def acos(x: Any) -> Any:
    """Arc cosine, in radians: inexact[*s] -> inexact[*s].

    Args:
      x: as in `asin`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.acos(1.0))
      0.0
    """
    return acos_p(x)


def atan(x: Any) -> Any:
    """Arc tangent, in radians: inexact[*s] -> inexact[*s].

    Args:
      x: as in `asin`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.atan(0.0))
      0.0
    """
    return atan_p(x)


def sinh(x: Any) -> Any:
    """Hyperbolic sine: inexact[*s] -> inexact[*s].

    Args:
      x: as in `asin`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.sinh(0.0))
      0.0
    """
    return sinh_p(x)


def cosh(x: Any) -> Any:
    """Hyperbolic cosine: inexact[*s] -> inexact[*s].

    Args:
      x: as in `asin`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.cosh(0.0))
      1.0
    """
    return cosh_p(x)


def tanh(x: Any, *, accuracy: Accuracy = None) -> Any:
    """Hyperbolic tangent: inexact[*s] -> inexact[*s].

    Args:
      x, accuracy: as in `exp`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.tanh(0.0))
      0.0
    """
    return tanh_p(x) if accuracy is None else tanh_p(x, accuracy=accuracy)


def asinh(x: Any) -> Any:
    """Inverse hyperbolic sine: inexact[*s] -> inexact[*s].

    Args:
      x: as in `asin`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.asinh(0.0))
      0.0
    """
    return asinh_p(x)


def acosh(x: Any) -> Any:
    """Inverse hyperbolic cosine: inexact[*s] -> inexact[*s].

    Args:
      x: as in `asin`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.acosh(1.0))
      0.0
    """
    return acosh_p(x)


def atanh(x: Any) -> Any:
    """Inverse hyperbolic tangent: inexact[*s] -> inexact[*s].

    Args:
      x: as in `asin`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.atanh(0.0))
      0.0
    """
    return atanh_p(x)


def atan2(x: Any, y: Any) -> Any:
    """The angle of the point with ordinate x and abscissa y, in radians: inexact[*s], inexact[*s] -> inexact[*s].

    Args:
      x: the ordinate: a floating or complex array, or one of rank 0.
      y: the abscissa: of the same dtype and shape, or of rank 0.

    Returns:
      An array of the common shape and dtype.

    Raises:
      DTypeError: the dtypes differ, or the operation does not take them.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.atan2(0.0, 1.0))
      0.0
    """
    if type(x) in SCALARS or type(y) in SCALARS:
        x, y = match_two(x, y)
    return atan2_p(x, y)


def sqrt(x: Any, *, accuracy: Accuracy = None) -> Any:
    """Square root of each element: inexact[*s] -> inexact[*s].

    Args:
      x, accuracy: as in `exp`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.sqrt(4.0))
      2.0
    """
    return sqrt_p(x) if accuracy is None else sqrt_p(x, accuracy=accuracy)


def rsqrt(x: Any, *, accuracy: Accuracy = None) -> Any:
    """1 / sqrt(x): inexact[*s] -> inexact[*s].

    Args:
      x, accuracy: as in `exp`, as are the result and the errors.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.rsqrt(4.0))
      0.5
    """
    return rsqrt_p(x) if accuracy is None else rsqrt_p(x, accuracy=accuracy)


def cbrt(x: Any, *, accuracy: Accuracy = None) -> Any:
    """Cube root of each element: float[*s] -> float[*s].

    Args:
      x: floating array.
      accuracy: how exact the compiler must be, a `Tolerance` or `AccuracyMode`.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      DTypeError: `x` is of another dtype.

    Examples:
      >>> from phalanx import lax
      >>> round(float(lax.cbrt(8.0)), 5)
      2.0
    """
    return cbrt_p(x) if accuracy is None else cbrt_p(x, accuracy=accuracy)
