"""Polynomials with coefficients that are numbers or arrays, by Horner's rule.

Builds on `arithmetic` and, where a loop is asked for, on `loops`; called by users and by approximations of functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, DTypeError
from phalanx.lax.arithmetic import add, mul
from phalanx.lax.broadcast import broadcast_in_dim
from phalanx.lax.convert import convert_element_type
from phalanx.lax.creation import full_like
from phalanx.lax.family import kind_of
from phalanx.lax.loops import scan
from phalanx.lax.shape import stack, unstack


def polynomial(x: Any, coeffs: Sequence[Any], *, unroll: int | None = None) -> Any:
    """The value of a polynomial: num[*s], coefficients num[*s] or num[] -> num[*s].

    Args:
      x: integer, floating or complex array.
      coeffs: the coefficients, that of the highest power first, which are converted to the dtype of `x`; or an array of
        them along its first dimension.
      unroll: how many terms an iteration of a loop takes; None or 0 for no loop.

    Returns:
      An array of the shape and dtype of `x`; 0 where there are no coefficients.

    Raises:
      ArgumentError: `unroll` is negative.
      DTypeError: a coefficient is complex and `x` is not.
      ShapeError: a coefficient has another shape than `x`.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.polynomial(2.0, [1, 0, 3]))
      7.0
    """
    aval = aval_of(x)
    x = convert_element_type(x, aval.dtype)
    if unroll is not None and unroll < 0:
        raise ArgumentError("lax.polynomial unroll", expected="None or at least 0", got=unroll, mend="leave it out")
    terms = [_term(c, aval.dtype) for c in (unstack(coeffs) if hasattr(coeffs, "ndim") else coeffs)]
    y = full_like(x, 0)
    if not unroll or unroll >= len(terms):
        for term in terms:
            y = add(mul(y, x), term)
        return y
    whole = [c if aval_of(c).ndim else broadcast_in_dim(c, aval.shape, ()) for c in terms]
    return scan(lambda y, c: (add(mul(y, x), c), None), y, stack(whole), unroll=unroll)[0]


def _term(c: Any, dtype: Any) -> Any:
    if kind_of(aval_of(c).dtype) == "complex" and kind_of(dtype) != "complex":
        raise DTypeError("lax.polynomial coeffs", expected=f"real coefficients, as x is {dtype}",
                         got=aval_of(c).str_short(), mend="convert x to a complex dtype")  # fmt: skip
    return convert_element_type(c, dtype)
