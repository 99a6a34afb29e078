"""Arrays as strings: `array_repr` and `array_str`, with NumPy's print options."""

from __future__ import annotations

import numpy as np

from phalanx.typing import ArrayLike


def array_repr(
    arr: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The representation of an array as a string, with its type.

    Args:
      arr: an array.
      max_line_width: in characters; this and the other options default to NumPy's print options.
      precision: digits after the point.
      suppress_small: print numbers close to 0 as 0.

    Returns:
      The text.

    Examples:
      >>> jnp.array_repr(jnp.arange(2))
      'Array([0, 1], dtype=int32)'
    """
    with np.printoptions(**_options(max_line_width, precision, suppress_small)):
        return repr(arr)


def array_str(
    a: ArrayLike, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The elements of an array as a string.

    Args:
      a: an array.
      max_line_width, precision, suppress_small: as in `array_repr`.

    Returns:
      The text.

    Examples:
      >>> jnp.array_str(jnp.arange(2))
      '[0 1]'
    """
    return np.array_str(np.asarray(a), max_line_width, precision, suppress_small)


def _options(width: int | None, precision: int | None, suppress: bool | None) -> dict:
    found = {"linewidth": width, "precision": precision, "suppress": suppress}
    return {k: v for k, v in found.items() if v is not None}
