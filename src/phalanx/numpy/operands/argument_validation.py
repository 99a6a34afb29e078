"""Checks of arguments that many functions share: one of a few names, a vector, integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.core import ArgumentError, DTypeError, ShapeError, dtypes
from phalanx.typing import Array


def check_choice(where: str, value: object, choices: Sequence[str | None]) -> None:
    """Check that an argument is one of a few strings, or None if that is one of them.

    Raises:
      ArgumentError: it is not.
    """
    if value not in choices:
        argument, names = where.rpartition(" ")[2], [repr(c) for c in choices if c is not None]
        raise ArgumentError(
            where,
            expected=f"{', '.join(names[:-1])} or {names[-1]}",
            got=repr(value),
            fix=f"pass {' or '.join(f'{argument}={name}' for name in names[:2])}",
        )


def check_vector(where: str, x: Array) -> None:
    """Check that an operand has rank 1.

    Raises:
      ShapeError: it has another rank.
    """
    if x.ndim != 1:
        raise ShapeError(
            where, expected="a vector", got=x.shape, fix="flatten it with .ravel(), or map over rows with phalanx.vmap"
        )


def check_integers(where: str, x: Array) -> None:
    """Check that an operand is of integers.

    Raises:
      DTypeError: it has another dtype.
    """
    if not dtypes.issubdtype(x.dtype, np.integer):
        raise DTypeError(where, expected="integers", got=str(x.dtype), fix="convert the indices with .astype(int)")
