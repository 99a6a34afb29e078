"""Rounding to decimals, clipping, and replacing what is not a number."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError
from phalanx.numpy.bodies import choose, isnan
from phalanx.numpy.bodies import rint as _rint
from phalanx.numpy.operands import as_array, cast, operand, refuse_out, scalar_of
from phalanx.numpy.ufuncs import maximum, minimum
from phalanx.runtime.dispatch import eager_program


@eager_program(static_argnames=("decimals", "out"))
def round(a: Any, decimals: int = 0, out: None = None) -> Any:
    """Round to a number of decimals, halves to even.

    Args:
      a: numbers.
      decimals: how many; negative ones round tens and more.
      out: must be None.

    Returns:
      An array of the shape and dtype of `a`.

    Raises:
      ArgumentError: `a` is of booleans, or `out` is given.

    Examples:
      >>> jnp.round(jnp.array([1.25, 2.5]), 0).tolist()
      [1.0, 2.0]
    """
    refuse_out(out, "round")
    x = operand(a, "round")
    decimals = operator.index(decimals)
    if x.dtype == np.bool_:
        raise ArgumentError("round", expected="numbers", got="booleans", mend="convert with .astype")
    if dtypes.issubdtype(x.dtype, np.integer):
        if decimals >= 0:
            return as_array(x)
        factor = scalar_of(10**-decimals, x.dtype)
        return lax.mul(_halves_to_even(x, factor), factor)
    if decimals == 0:
        return _rint(x)
    own, weak = x.dtype, getattr(x, "weak_type", False)
    x = cast(x, np.dtype(np.float32)) if own.itemsize <= 2 and own.kind != "c" else x
    factor = scalar_of(10.0 ** abs(decimals), x.dtype)
    y = lax.div(_rint(lax.mul(x, factor)), factor) if decimals > 0 else lax.mul(_rint(lax.div(x, factor)), factor)
    return cast(y, own, weak)


def _halves_to_even(x: Any, factor: Any) -> Any:
    """The integer quotient, rounded to nearest."""
    from phalanx.numpy.ufuncs import floor_divide, remainder

    q, r = floor_divide(x, factor), remainder(x, factor)
    twice = r * 2
    up = (twice > factor) | ((twice == factor) & (q % 2 == 1))
    return q + up.astype(q.dtype)


around = round


def clip(
    arr: Any = None, /, min: Any = None, max: Any = None, *, a: Any = None, a_min: Any = None, a_max: Any = None
) -> Any:
    """Limit the elements to an interval.

    Args:
      arr: real numbers.
      min, max: the bounds, arrays or scalars that broadcast with `arr`; None for no bound.
      a, a_min, a_max: older names of these.

    Returns:
      An array of the broadcast shape, in the dtype that all promote to; where the bounds are crossed, the upper one.

    Raises:
      ArgumentError: an operand is complex.

    Examples:
      >>> jnp.clip(jnp.array([1, 5, 9]), 2, 6).tolist()
      [2, 5, 6]
    """
    arr = a if arr is None else arr
    return _clip(arr, a_min if min is None else min, a_max if max is None else max)


@eager_program
def _clip(x: Any, low: Any, high: Any) -> Any:
    x = operand(x, "clip")
    for bound in (x, low, high):
        if bound is not None and getattr(getattr(bound, "dtype", None), "kind", "") == "c":
            raise ArgumentError("clip", expected="real numbers", got="complex ones", mend="clip the parts")
    if type(low) in (int, float) and type(high) in (int, float) and getattr(x, "aval", None) is not None:
        plain = dtypes.issubdtype(x.dtype, np.inexact) or (
            type(low) is int and type(high) is int and x.dtype.kind == "i"
        )
        if plain and low <= high:
            return lax.clamp(scalar_of(low, x.dtype), x, scalar_of(high, x.dtype))
    if low is not None:
        x = maximum(low, x)
    if high is not None:
        x = minimum(high, x)
    return as_array(x)


@eager_program(static_argnames=("copy",))
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Replace NaN by 0 and infinities by the largest finite numbers, or by given values.

    Args:
      x: numbers; the parts of complex ones are treated each by itself, integers left alone.
      copy: a hint, since arrays do not change.
      nan: what to put for NaN.
      posinf, neginf: what to put for the infinities.

    Returns:
      An array of the shape and dtype of `x`.

    Examples:
      >>> jnp.nan_to_num(jnp.array([jnp.nan, 1.0])).tolist()
      [0.0, 1.0]
    """
    x = operand(x, "nan_to_num")
    if not dtypes.issubdtype(x.dtype, np.inexact):
        return as_array(x)
    if x.dtype.kind == "c":
        parts = [nan_to_num(p, True, nan, posinf, neginf) for p in (lax.real(x), lax.imag(x))]
        return lax.complex(*parts)
    info = dtypes.finfo(x.dtype)
    posinf = info.max if posinf is None else posinf
    neginf = info.min if neginf is None else neginf
    x = choose(isnan(x), _like(nan, x), x)
    x = choose(lax.eq(x, scalar_of(np.inf, x.dtype)), _like(posinf, x), x)
    return choose(lax.eq(x, scalar_of(-np.inf, x.dtype)), _like(neginf, x), x)


def _like(value: Any, x: Any) -> Any:
    return cast(value, x.dtype) if hasattr(value, "aval") else scalar_of(value, x.dtype)
