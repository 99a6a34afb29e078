"""Checks and conversions of arguments that many functions of this package share.

Builds on `numpy.operands`; every subpackage calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, DTypeError, promotion
from phalanx.numpy.operands import as_array, cast, promote_inexact, to_operand
from phalanx.typing import Array, ArrayLike


def check_choice(where: str, argument: str, value: object, choices: Sequence[object]) -> None:
    """Check that an argument is one of some values.

    Raises:
      ArgumentError: it is not.
    """
    if value not in choices:
        raise ArgumentError(
            f"{where}, argument {argument}",
            expected=" or ".join(map(repr, choices)),
            got=repr(value),
            fix=f"pass {argument}={choices[0]!r}",
        )


def check_real(where: str, x: Array) -> None:
    """Check that an array is real.

    Raises:
      DTypeError: it is complex.
    """
    if x.dtype.kind == "c":
        raise DTypeError(where, expected="real numbers", got=str(x.dtype), fix="pass x.real and x.imag separately")


def to_inexact_operands(where: str, *xs: ArrayLike) -> list[Any]:
    """Convert operands to arrays or host scalars of one floating-point or complex dtype."""
    # `to_operand` first: Python scalars become weakly typed arrays inside a trace, so that they have `ndim` and `at`.
    return promote_inexact(where, *(to_operand(x, where) for x in xs))


def to_inexact_array(where: str, x: ArrayLike) -> Array:
    """Convert one operand to an array of a floating-point or complex dtype."""
    return as_array(to_inexact_operands(where, x)[0])


def to_complex(x: Array) -> Array:
    """Convert an array to the complex dtype of its precision."""
    return x if x.dtype.kind == "c" else cast(x, promotion.join_dtypes(x.dtype, np.complex64))


def int32_zero() -> Array:
    """The initial value of a loop counter."""
    return as_array(cast(0, np.dtype(np.int32)))
