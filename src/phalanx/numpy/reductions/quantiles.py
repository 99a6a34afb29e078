"""Quantiles, percentiles and medians over axes, by sorting.

The reduced axes are flattened to one leading axis, which is sorted. A quantile interpolates between the two elements
around a fractional position. NaNs sort to the end, so that a count of the numbers gives the last position.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.numpy.indexing.take import take_along_axis
from phalanx.numpy.indexing.where import where
from phalanx.numpy.operands import broadcast_to_shape, canonical_axes, cast, promote_inexact, refuse_out, to_operand
from phalanx.numpy.reductions.array_reductions import any as any_of, restore_reduced_dims, sum
from phalanx.numpy.shapes.reshaping import moveaxis
from phalanx.numpy.sorting.sort_and_search import sort
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, Axis, ShardingLike

# (alpha, beta) of each estimator: the quantile q of n sorted elements is at the position, counted from 0,
#   n q + alpha + q (1 - alpha - beta) - 1.
# Source: R. J. Hyndman and Y. Fan, Sample Quantiles in Statistical Packages (1996), doi:10.2307/2684934.
_METHODS = {
    "linear": (1, 1),
    "lower": (1, 1),
    "higher": (1, 1),
    "midpoint": (1, 1),
    "nearest": (1, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
    "interpolated_inverted_cdf": (0, 1),
    "inverted_cdf": (0, 1),
    "averaged_inverted_cdf": (0, 1),
    "closest_observation": (-0.5, 1.5),
}
_static = eager_jit(static_argnames=("axis", "out", "overwrite_input", "method", "keepdims", "out_sharding"))


@_static
def quantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """Quantiles of the elements over axes.

    Args:
      a: array of real numbers.
      q: probabilities from 0 to 1; the dimensions of `q` come first in the result.
      axis: axis or tuple of axes; None for all.
      out: must be None; arrays are immutable.
      overwrite_input: must be False.
      method: interpolation between two elements: `"linear"`, `"lower"`, `"higher"`, `"midpoint"` or `"nearest"`; or
        another of NumPy's estimators: `"inverted_cdf"`, `"averaged_inverted_cdf"`, `"closest_observation"`, `"hazen"`,
        `"weibull"`, `"interpolated_inverted_cdf"`, `"median_unbiased"`, `"normal_unbiased"`.
      keepdims: keep the reduced dimensions with size 1.
      weights: weights of the shape of `a`, or a vector along the axis; only with `method="inverted_cdf"`.

    Returns:
      Floating-point numbers with the dimensions of `q`, then the remaining dimensions of `a`; NaN propagates.

    Raises:
      ArgumentError: `method` is unknown or does not support weights, or `out` or `overwrite_input` is given.
      AxisError: an axis is out of range.
      ShapeError: the array is empty, or the weights have the wrong shape.

    Examples:
      >>> jnp.quantile(jnp.array([1.0, 2.0, 3.0]), 0.5).item()
      2.0
    """
    return _quantile("quantile", a, q, axis, out, overwrite_input, method, keepdims, False, weights)


@_static
def nanquantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """Quantiles over axes, ignoring NaN.

    Args:
      a, q, axis, out, overwrite_input, method, keepdims, weights: as in `quantile`.

    Returns:
      Floating-point numbers, shaped as by `quantile`; NaN where all elements are NaN.

    Raises:
      ArgumentError: `method` is unknown or does not support weights, or `out` or `overwrite_input` is given.
      AxisError: an axis is out of range.
      ShapeError: the array is empty, or the weights have the wrong shape.

    Examples:
      >>> jnp.nanquantile(jnp.array([1.0, jnp.nan, 3.0]), 0.5).item()
      2.0
    """
    return _quantile("nanquantile", a, q, axis, out, overwrite_input, method, keepdims, True, weights)


@_static
def percentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Percentiles of the elements over axes.

    Args:
      a, axis, out, overwrite_input, method, keepdims, weights: as in `quantile`.
      q: percentages from 0 to 100.
      out_sharding: sharding of the result, a `Sharding` or `PartitionSpec`; inferred from the operands by default.

    Returns:
      Floating-point numbers, shaped as by `quantile`; NaN propagates.

    Raises:
      ArgumentError: `method` is unknown or does not support weights, or `out` or `overwrite_input` is given.
      AxisError: an axis is out of range.
      ShapeError: the array is empty, or the weights have the wrong shape.

    Examples:
      >>> jnp.percentile(jnp.array([1.0, 2.0, 3.0]), 50).item()
      2.0
    """
    (q,) = promote_inexact("percentile", to_operand(q, "percentile"))
    refuse_out(out, "percentile")
    find = lambda a, q, *given: _quantile(
        "percentile", a, q, axis, None, overwrite_input, method, keepdims, False, *given
    )
    operands = (to_operand(a, "percentile"), q / 100, *(() if weights is None else (weights,)))
    return call_with_out_sharding(find, operands, out_sharding, "percentile, out_sharding")


@_static
def nanpercentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """Percentiles over axes, ignoring NaN.

    Args:
      a, axis, out, overwrite_input, method, keepdims, weights: as in `quantile`.
      q: percentages from 0 to 100.

    Returns:
      Floating-point numbers, shaped as by `quantile`; NaN where all elements are NaN.

    Raises:
      ArgumentError: `method` is unknown or does not support weights, or `out` or `overwrite_input` is given.
      AxisError: an axis is out of range.
      ShapeError: the array is empty, or the weights have the wrong shape.

    Examples:
      >>> jnp.nanpercentile(jnp.array([1.0, jnp.nan, 3.0]), 50).item()
      2.0
    """
    (q,) = promote_inexact("nanpercentile", to_operand(q, "nanpercentile"))
    return _quantile("nanpercentile", a, q / 100, axis, out, overwrite_input, method, keepdims, True, weights)


def _quantile(
    name: str,
    a: Array,
    q: Array,
    axis: Axis,
    out: None,
    overwrite: bool,
    method: str,
    keepdims: bool,
    skip_nan: bool,
    weights: Array | None = None,
) -> Any:
    refuse_out(out, name)
    _check_options(name, overwrite, method, weights)
    (x,) = promote_inexact(name, to_operand(a, name))
    (q,) = promote_inexact(name, to_operand(q, name))
    dims, axes = x.shape, canonical_axes(axis, x.ndim, name)
    if builtins.any(type(dims[i]) is int and dims[i] == 0 for i in axes):
        raise ShapeError(name, expected="at least one element", got=dims, fix="check x.size before the call")
    columns = _flatten_axes(x, axes)
    nan = lax.ne(columns, columns)
    if weights is None:
        columns = sort(columns, 0)
    else:
        weights = broadcast_to_shape(_align_weights(weights, axes, dims, name), dims)
        weights = _flatten_axes(weights, axes).astype(x.dtype)
        # A weight of 0 removes a NaN from the empirical distribution.
        weights = where(nan, 0, weights) if skip_nan else weights
        columns, weights = lax.sort((columns, weights), dimension=0, num_keys=1)
    n, rest = columns.shape[0], columns.shape[1:]
    wide = (*q.shape, *rest)
    # The position of the last number: NaNs are sorted behind it.
    last = sum(cast(lax.bitwise_not(nan), x.dtype), axis=0) - 1 if skip_nan else lax.full(rest, n - 1, x.dtype)
    last = broadcast_to_shape(last, wide)
    q_wide = lax.broadcast_in_dim(cast(q, x.dtype), wide, tuple(range(q.ndim)))
    if weights is None:
        y = _interpolate(columns, q_wide, lax.max(last, x.dtype.type(0)), q.ndim, method)
    else:
        y = _find_weighted(columns, weights, q_wide, q.ndim)
    # No numbers at all, a NaN that is not skipped, or a probability outside of [0, 1] give NaN.
    undefined = lax.lt(last, last.dtype.type(0)) if skip_nan else broadcast_to_shape(any_of(nan, 0), wide)
    y = where(undefined | (q_wide < 0) | (q_wide > 1), np.nan, y)
    y = cast(y, y.dtype)
    return restore_reduced_dims(y, (*q.shape, *dims), tuple(q.ndim + i for i in axes)) if keepdims else y


def _check_options(name: str, overwrite: bool, method: str, weights: ArrayLike | None) -> None:
    if overwrite:
        raise ArgumentError(
            f"{name}, argument overwrite_input",
            expected="False",
            got=True,
            fix="leave overwrite_input out; the input is never changed",
        )
    if method not in _METHODS:
        raise ArgumentError(
            f"{name}, argument method",
            expected=" or ".join(map(repr, _METHODS)),
            got=repr(method),
            fix="pass one of the listed methods, for example method='linear'",
        )
    if weights is not None and method != "inverted_cdf":
        raise ArgumentError(
            f"{name}, argument weights",
            expected="None, unless method is 'inverted_cdf'",
            got=f"weights for {method!r}",
            fix="pass method='inverted_cdf', or leave the weights out",
        )


def _flatten_axes(x: Array, axes: tuple) -> Any:
    """Flatten the dimensions `axes` to one leading dimension."""
    n = math.prod(x.shape[i] for i in axes)
    x = moveaxis(x, axes, tuple(range(len(axes))))
    return lax.reshape(x, (n, *x.shape[len(axes) :]))


def _align_weights(weights: Array, axes: tuple, dims: tuple, name: str) -> Any:
    """Reshape weights of elements, or of positions along one axis, to broadcast with the array."""
    weights = to_operand(weights, f"{name}, argument weights")
    if weights.shape == dims:
        return weights
    if len(axes) != 1 or weights.shape != (dims[axes[0]],):
        raise ShapeError(
            f"{name}, argument weights",
            expected=f"the shape {dims}, or the size of the one axis",
            got=weights.shape,
            fix="give a weight for each element",
        )
    return lax.reshape(weights, tuple(d if i == axes[0] else 1 for i, d in enumerate(dims)))


def _interpolate(columns: Array, q: Array, last: Array, lead: int, method: str) -> Any:
    """The quantiles `q` of sorted columns.

    Args:
      columns: num[n, *rest], sorted along the first dimension.
      q: probabilities, float[*q, *rest].
      last: position of the last number in each column; NaNs follow.
      lead: rank of the probabilities that the user passed.
      method: key of `_METHODS`.
    """
    alpha, beta = _METHODS[method]
    # For the default estimator the formula reduces to q (n - 1), which is exact at q = 0 and q = 1.
    position = q * last if alpha == beta == 1 else (last + 1) * q + (alpha - 1 + q * (1 - alpha - beta))
    zero = lax.full_like(last, 0)
    if method == "closest_observation":  # ties go to the element with an even 1-based rank
        low = lax.floor(position)
        low = where((low == position) & (low % 2 == 1), low, low + 1)
        return _take_rows(columns, lax.clamp(zero, low, last), lead)
    position = lax.clamp(zero, position, last)
    low, high = lax.floor(position), lax.ceil(position)
    if method == "averaged_inverted_cdf":
        high = lax.min(where(low == position, low + 1, high), last)
        low = where(low == position, low, high)
        # Below the first step of the empirical distribution there is no element to average with.
        high = where((last + 1) * q < 1, low, high)
    values = [_take_rows(columns, i, lead) for i in (low, high)]
    weight = position - low
    match method:
        case "lower":
            return values[0]
        case "higher" | "inverted_cdf":
            return values[1]
        case "midpoint" | "averaged_inverted_cdf":
            return (values[0] + values[1]) * 0.5
        case "nearest":
            return where((weight < 0.5) | ((weight == 0.5) & (low % 2 == 0)), values[0], values[1])
    # Not `low + weight * (high - low)`: the difference of two equal infinities is NaN.
    return where(weight == 0, values[0], values[0] * (1 - weight) + values[1] * weight)


def _find_weighted(columns: Array, weights: Array, q: Array, lead: int) -> Any:
    """The quantiles `q` of weighted, sorted columns: the first element whose cumulative weight reaches `q`."""
    # The empirical distribution function at each sorted element.
    share = lax.cumsum(weights, axis=0)
    share = share / share[-1:]
    share = lax.expand_dims(share, tuple(range(1, lead + 1)))
    return _take_rows(columns, sum((share < q[None]) | (share == 0), axis=0), lead)


def _take_rows(x: Array, i: Array | int, lead: int) -> Any:
    """The elements of sorted columns at positions that may differ per column."""
    i = lax.clamp(np.int32(0), cast(i, np.dtype(np.int32)), cast(x.shape[0] - 1, np.dtype(np.int32)))
    # All probabilities share one gather along the sorted axis.
    flat = lax.reshape(i, (math.prod(i.shape[:lead]), *x.shape[1:]))
    return lax.reshape(take_along_axis(x, flat, 0, mode="promise_in_bounds"), i.shape)


@_static
def median(
    a: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """Median over axes.

    Args:
      a, axis, out, overwrite_input, keepdims: as in `quantile`.

    Returns:
      Floating-point numbers, with the reduced axes removed; NaN propagates.

    Raises:
      ArgumentError: `out` or `overwrite_input` is given.
      AxisError: an axis is out of range.
      ShapeError: the array is empty.

    Examples:
      >>> jnp.median(jnp.array([1.0, 9.0, 2.0])).item()
      2.0
    """
    return _quantile("median", a, 0.5, axis, out, overwrite_input, "midpoint", keepdims, False)


@_static
def nanmedian(
    a: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """Median over axes, ignoring NaN.

    Args:
      a, axis, out, overwrite_input, keepdims: as in `quantile`.

    Returns:
      Floating-point numbers, with the reduced axes removed; NaN where all elements are NaN.

    Raises:
      ArgumentError: `out` or `overwrite_input` is given.
      AxisError: an axis is out of range.
      ShapeError: the array is empty.

    Examples:
      >>> jnp.nanmedian(jnp.array([1.0, jnp.nan, 9.0, 2.0])).item()
      2.0
    """
    return _quantile("nanmedian", a, 0.5, axis, out, overwrite_input, "midpoint", keepdims, True)
