"""Rounding to decimals, clipping, and replacement of NaN and infinities."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, dtypes
from phalanx.numpy.operands import as_array, cast, refuse_out, to_numpy_scalar, to_operand
from phalanx.numpy.ufuncs.ufunc_implementations import isnan, rint as _rint, select_where
from phalanx.numpy.ufuncs.ufunc_table import floor_divide, maximum, minimum, remainder
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike


@eager_jit(static_argnames=("decimals", "out"))
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """Round to a number of decimals; halves round to even.

    Args:
      a: numbers.
      decimals: number of decimals; negative numbers round to tens, hundreds and so on.
      out: must be None; arrays are immutable.

    Returns:
      An array of the shape and dtype of `a`.

    Raises:
      ArgumentError: `a` is of booleans, or `out` is given.

    Examples:
      >>> jnp.round(jnp.array([1.25, 2.5]), 0).tolist()
      [1.0, 2.0]
    """
    refuse_out(out, "round")
    x = to_operand(a, "round")
    decimals = operator.index(decimals)
    if x.dtype == np.bool_:
        raise ArgumentError("round", expected="numbers", got="booleans", fix="convert the operand with .astype(int)")
    if dtypes.issubdtype(x.dtype, np.integer):
        if decimals >= 0:
            return as_array(x)
        factor = to_numpy_scalar(10**-decimals, x.dtype)
        return lax.mul(_divide_to_even(x, factor), factor)
    if decimals == 0:
        return _rint(x)
    own, weak = x.dtype, getattr(x, "weak_type", False)
    # In float16, 10**decimals overflows from decimals = 5 on.
    x = cast(x, np.dtype(np.float32)) if own.itemsize <= 2 and own.kind != "c" else x
    factor = to_numpy_scalar(10.0 ** abs(decimals), x.dtype)
    # Dividing by 10**d is more accurate than multiplying by its inexact inverse.
    y = lax.div(_rint(lax.mul(x, factor)), factor) if decimals > 0 else lax.mul(_rint(lax.div(x, factor)), factor)
    return cast(y, own, weak)


def _divide_to_even(x: Array, factor: Array) -> Any:
    """The integer quotient, rounded to the nearest integer, halves to even."""
    q, r = floor_divide(x, factor), remainder(x, factor)
    # Compare the remainder with half the divisor without leaving the integers.
    twice = r * 2
    up = (twice > factor) | ((twice == factor) & (q % 2 == 1))
    return q + up.astype(q.dtype)


around = round


def clip(
    arr: ArrayLike | None = None,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    *,
    a: ArrayLike | None = None,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
) -> Array:
    """Clip the elements to an interval.

    Args:
      arr: real numbers.
      min, max: the bounds, arrays or scalars that broadcast with `arr`; None for no bound.
      a, a_min, a_max: former names of `arr`, `min` and `max`.

    Returns:
      An array of the broadcast shape, in the promoted dtype; `max` wins where it is below `min`.

    Raises:
      ArgumentError: an operand is complex.

    Examples:
      >>> jnp.clip(jnp.array([1, 5, 9]), 2, 6).tolist()
      [2, 5, 6]
    """
    return _clip(a if arr is None else arr, a_min if min is None else min, a_max if max is None else max)


@eager_jit
def _clip(x: Array, low: Array, high: Array) -> Any:
    x = to_operand(x, "clip")
    for bound in (x, low, high):
        if bound is not None and getattr(getattr(bound, "dtype", None), "kind", "") == "c":
            raise ArgumentError(
                "clip", expected="real numbers", got="complex ones", fix="clip x.real and x.imag separately"
            )
    if type(low) in (int, float) and type(high) in (int, float) and getattr(x, "aval", None) is not None:
        plain = dtypes.issubdtype(x.dtype, np.inexact) or (
            type(low) is int and type(high) is int and x.dtype.kind == "i"
        )
        # `lax.clamp` is one operation, but undefined for crossed bounds, and does not promote.
        if plain and low <= high:
            return lax.clamp(to_numpy_scalar(low, x.dtype), x, to_numpy_scalar(high, x.dtype))
    if low is not None:
        x = maximum(low, x)
    if high is not None:
        x = minimum(high, x)
    return as_array(x)


@eager_jit(static_argnames=("copy",))
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Array:
    """Replace NaN by 0 and infinities by the largest finite numbers, or by given values.

    Args:
      x: numbers; real and imaginary parts are treated separately, integers are unchanged.
      copy: accepted for compatibility; arrays are immutable.
      nan: replacement for NaN.
      posinf, neginf: replacements for the infinities.

    Returns:
      An array of the shape and dtype of `x`; where several conditions hold, the last one counts.

    Examples:
      >>> jnp.nan_to_num(jnp.array([jnp.nan, 1.0])).tolist()
      [0.0, 1.0]
    """
    x = to_operand(x, "nan_to_num")
    if not dtypes.issubdtype(x.dtype, np.inexact):
        return as_array(x)
    if x.dtype.kind == "c":
        parts = [nan_to_num(p, True, nan, posinf, neginf) for p in (lax.real(x), lax.imag(x))]
        return lax.complex(*parts)
    info = dtypes.finfo(x.dtype)
    posinf = info.max if posinf is None else posinf
    neginf = info.min if neginf is None else neginf
    x = select_where(isnan(x), _cast_like(nan, x), x)
    x = select_where(lax.eq(x, to_numpy_scalar(np.inf, x.dtype)), _cast_like(posinf, x), x)
    return select_where(lax.eq(x, to_numpy_scalar(-np.inf, x.dtype)), _cast_like(neginf, x), x)


def _cast_like(value: Any, x: Array) -> Any:
    return cast(value, x.dtype) if hasattr(value, "aval") else to_numpy_scalar(value, x.dtype)
