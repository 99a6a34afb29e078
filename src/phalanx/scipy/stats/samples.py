"""Statistics of samples: the most frequent value, ranks, the standard error of the mean.

Builds on the sorting and the reductions of `numpy`; `stats` shows them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError
from phalanx.numpy.bodies import choose, isnan
from phalanx.numpy.mapping import where
from phalanx.numpy.nan_reductions import nanstd
from phalanx.numpy.operands import as_array, canonical_axis, cast, operand, promote_inexact
from phalanx.numpy.reductions import any, argmax, std, sum
from phalanx.numpy.shapes import ravel
from phalanx.numpy.sorting import argsort, index_dtype, sort
from phalanx.numpy.taking import take_along_axis
from phalanx.runtime.dispatch import eager_program


class ModeResult(NamedTuple):
    """The most frequent values, and how often they occur."""

    mode: Any
    count: Any


def _check_policy(policy: str, known: tuple, name: str) -> None:
    if policy not in known:
        raise ArgumentError(
            f"stats.{name}, argument nan_policy", expected=" or ".join(map(repr, known)), got=repr(policy),
            mend="use one of these",
        )  # fmt: skip


def _along(a: Any, axis: int | None, name: str) -> tuple:
    x = as_array(operand(a, f"stats.{name}"))
    return (ravel(x), 0) if axis is None else (x, canonical_axis(axis, x.ndim, f"stats.{name}"))


def _runs(x: Any, axis: int) -> tuple:
    """Of sorted values: each one's place, and the places where the run of equals that it is in begins and ends."""
    n = x.shape[axis]
    place = lax.broadcasted_iota(index_dtype(), x.shape, axis)
    right, left = lax.slice_in_dim(x, 1, n, axis=axis), lax.slice_in_dim(x, 0, n - 1, axis=axis)
    changes = lax.ne(right, left) & lax.bitwise_not(isnan(right) & isnan(left))
    edge = [(0, 0, 0)] * x.ndim
    begins, ends = (lax.pad(changes, np.True_, [*edge[:axis], e, *edge[axis + 1 :]]) for e in ((1, 0, 0), (0, 1, 0)))
    start = lax.cummax(choose(begins, place, 0), axis=axis)
    end = lax.cummin(choose(ends, place, n - 1), axis=axis, reverse=True)
    return place, start, end, begins


@eager_program(static_argnames=("axis", "nan_policy", "keepdims"))
def mode(a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent value along an axis, the smallest of those that are equally frequent.

    Args:
      a: an array.
      axis: the axis; None to ravel first.
      nan_policy: `"propagate"`: NaN counts like other values; or `"omit"`: it does not count.
      keepdims: keep the axis, of size 1.

    Returns:
      A ModeResult (mode, count), both without the axis; NaN and 0 where there are no elements.

    Raises:
      ArgumentError: there is no such policy.
      AxisError: there is no such axis.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import stats
      >>> stats.mode(jnp.array([3, 1, 3, 2])).mode.item()
      3
    """
    _check_policy(nan_policy, ("propagate", "omit"), "mode")
    given = as_array(operand(a, "stats.mode"))
    x, axis = _along(given, axis, "mode")
    kept = (1,) * given.ndim if x is not given and keepdims else None
    if x.shape[axis] == 0:
        (x,) = promote_inexact("stats.mode", x)
        shape = tuple(1 if i == axis else d for i, d in enumerate(x.shape))
        values, counts = lax.full(shape, np.nan, x.dtype), lax.full(shape, 0, index_dtype())
    else:
        x = sort(x, axis=axis)
        place, start, _, _ = _runs(x, axis)
        length = place - start + 1
        length = choose(isnan(x), 0, length) if nan_policy == "omit" else length
        found = argmax(length, axis=axis, keepdims=True)
        values, counts = take_along_axis(x, found, axis), take_along_axis(length, found, axis)
    if keepdims:
        return ModeResult(*(v if kept is None else lax.reshape(v, kept) for v in (values, counts)))
    return ModeResult(lax.squeeze(values, (axis,)), lax.squeeze(counts, (axis,)))


@eager_program(static_argnames=("method", "axis", "nan_policy"))
def rankdata(a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Any:
    """The ranks of the elements, from 1.

    Args:
      a: an array.
      method: for equal elements: `"average"`, `"min"` or `"max"` of their ranks; `"dense"`: one each, without gaps;
        `"ordinal"`: ranks in order of place.
      axis: the axis; None to ravel first.
      nan_policy: must be `"propagate"`: all ranks are NaN where an element is.

    Returns:
      The ranks, in floating point for `"average"` and for floating-point `a`, else integers.

    Raises:
      ArgumentError: there is no such method or policy.
      AxisError: there is no such axis.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import stats
      >>> stats.rankdata(jnp.array([30, 10, 20, 20])).tolist()
      [4.0, 1.0, 2.5, 2.5]
    """
    _check_policy(nan_policy, ("propagate",), "rankdata")
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ArgumentError(
            "stats.rankdata, argument method", expected="'average', 'min', 'max', 'dense' or 'ordinal'",
            got=repr(method), mend="use one of these",
        )  # fmt: skip
    x, axis = _along(a, axis, "rankdata")
    real = dtypes.canonicalize_dtype(np.float64)
    if x.shape[axis] == 0:
        return lax.full(x.shape, 0, real)
    order = argsort(x, axis=axis, stable=True)
    place, start, end, begins = _runs(take_along_axis(x, order, axis), axis)
    ranks = {
        "ordinal": lambda: place + 1, "min": lambda: start + 1, "max": lambda: end + 1,
        "dense": lambda: lax.cumsum(cast(begins, place.dtype), axis=axis),
        "average": lambda: cast(start + end + 2, real) / 2,
    }[method]()  # fmt: skip
    ranks = take_along_axis(ranks, argsort(order, axis=axis), axis)
    if not dtypes.issubdtype(x.dtype, np.inexact):
        return ranks
    bad = any(isnan(x), axis=axis, keepdims=True)
    return where(bad, np.nan, cast(ranks, real))


@eager_program(static_argnames=("axis", "ddof", "nan_policy", "keepdims"))
def sem(a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Any:
    """The standard error of the mean along an axis.

    Args:
      a: an array.
      axis: the axis; None for all elements.
      ddof: what is subtracted from the number of elements to estimate the standard deviation.
      nan_policy: `"propagate"`, or `"omit"`: without NaN.
      keepdims: keep the reduced dimensions, of size 1.

    Returns:
      The error, without the axis.

    Raises:
      ArgumentError: there is no such policy.
      AxisError: there is no such axis.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import stats
      >>> round(stats.sem(jnp.array([1.0, 2.0, 3.0])).item(), 4)
      0.5774
    """
    _check_policy(nan_policy, ("propagate", "omit"), "sem")
    (x,) = promote_inexact("stats.sem", as_array(operand(a, "stats.sem")))
    if nan_policy == "omit":
        count = sum(lax.bitwise_not(isnan(x)), axis=axis, keepdims=keepdims)
        return nanstd(x, axis, ddof=ddof, keepdims=keepdims) / lax.sqrt(cast(count, x.dtype))
    n = x.size if axis is None else x.shape[canonical_axis(axis, x.ndim, "stats.sem")]
    return std(x, axis, ddof=ddof, keepdims=keepdims) / lax.sqrt(cast(n, x.dtype))
