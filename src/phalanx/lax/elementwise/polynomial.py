"""Evaluation of polynomials by Horner's rule, unrolled or as a `scan`.

For programs of users; the library itself does not call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, DTypeError, get_aval
from phalanx.lax.control_flow.scan import scan
from phalanx.lax.elementwise.arithmetic import add, mul
from phalanx.lax.elementwise.convert_element_type import convert_element_type
from phalanx.lax.elementwise.elementwise_builders import dtype_kind
from phalanx.lax.shape import broadcast_in_dim
from phalanx.lax.shape.concatenate import stack, unstack
from phalanx.lax.shape.iota_and_full import full_like
from phalanx.typing import Array, ArrayLike


def polynomial(x: ArrayLike, coeffs: Sequence[Any], *, unroll: int | None = None) -> Any:
    """Evaluate a polynomial: num[*s], coefficients num[*s] or num[] -> num[*s].

    Args:
      x: integer, floating or complex array.
      coeffs: the coefficients from the highest power to the lowest, as a sequence or along the first dimension of an
        array; they are converted to the dtype of `x`.
      unroll: the number of terms in each iteration of a loop; None or 0 for no loop.

    Returns:
      An array of the shape and dtype of `x`; 0 without coefficients.

    Raises:
      ArgumentError: `unroll` is negative.
      DTypeError: a coefficient is complex and `x` is not.
      ShapeError: a coefficient has another shape than `x`.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.polynomial(2.0, [1, 0, 3]))
      7.0
    """
    aval = get_aval(x)
    x = convert_element_type(x, aval.dtype)
    if unroll is not None and unroll < 0:
        raise ArgumentError(
            "lax.polynomial unroll", expected="None or at least 0", got=unroll, fix="leave unroll out for no loop"
        )
    terms = [_term(c, aval.dtype) for c in (unstack(coeffs) if hasattr(coeffs, "ndim") else coeffs)]
    y = full_like(x, 0)
    # Unrolled by default: XLA fuses the steps, and a loop pays for few terms only where code size matters.
    if not unroll or unroll >= len(terms):
        for term in terms:
            y = add(mul(y, x), term)
        return y
    whole = [c if get_aval(c).ndim else broadcast_in_dim(c, aval.shape, ()) for c in terms]
    return scan(lambda y, c: (add(mul(y, x), c), None), y, stack(whole), unroll=unroll)[0]


def _term(c: Array, dtype: np.dtype) -> Any:
    if dtype_kind(get_aval(c).dtype) == "complex" and dtype_kind(dtype) != "complex":
        raise DTypeError(
            "lax.polynomial coeffs",
            expected=f"real coefficients, as x is {dtype}",
            got=get_aval(c).str_short(),
            fix="convert x to a complex dtype",
        )
    return convert_element_type(c, dtype)
