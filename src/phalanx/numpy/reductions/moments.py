"""Means, variances and standard deviations over axes; covariance and correlation matrices.

Half precision is computed in float32. With a `where` mask, the divisor is the number of included elements.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, DTypeError, ShapeError, dtypes, promotion
from phalanx.lax.collectives.named_axes import split_axis_names
from phalanx.numpy.operands import (
    broadcast_to_shape,
    canonical_axes,
    cast,
    promote_inexact,
    refuse_out,
    to_numpy_scalar,
    to_operand,
    to_static_int,
)
from phalanx.numpy.products.matrix_products import dot
from phalanx.numpy.reductions.array_reductions import _FLOAT32, _static, is_half, num_reduced_elements, sum
from phalanx.numpy.shapes.joining import concatenate
from phalanx.numpy.shapes.reshaping import squeeze
from phalanx.numpy.ufuncs.rounding import clip
from phalanx.numpy.ufuncs.ufunc_implementations import squared_magnitudes, to_bool
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, Axis, DTypeLike


def _mean_dtypes(x: Array, dtype: np.dtype, name: str) -> tuple[Any, Any]:
    """The dtypes of the computation and of the result of a mean: half precision is widened unless it is requested."""
    result = dtypes.to_inexact_dtype(x.dtype) if dtype is None else dtypes.requested_dtype(dtype, name)
    if not dtypes.issubdtype(result, np.inexact):
        return dtypes.to_inexact_dtype(result), result
    return (_FLOAT32 if is_half(result) and dtype is None else result), result


def _count(
    where: ArrayLike | None, shape: tuple, axes: tuple, names: tuple, dtype: np.dtype, keepdims: bool, name: str
) -> Any:
    """The number of elements that are averaged: a float, or an array if there is a mask."""
    if where is None:
        n = num_reduced_elements(shape, axes) * math.prod(map(lax.axis_size, names))
        return float(n) if type(n) is int else n
    mask = broadcast_to_shape(to_bool(to_operand(where, name)), shape)
    return sum(cast(mask, dtype), axis=(*axes, *names), keepdims=keepdims)


@_static
def mean(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Arithmetic mean over axes.

    Args:
      a, axis, dtype, out, keepdims, where: as in `sum`.

    Returns:
      The means, with the reduced axes removed, in floating point unless `dtype` is given; NaN for no elements.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.mean(jnp.array([1.0, 2.0, 6.0])).item()
      3.0
    """
    refuse_out(out, "mean")
    x = to_operand(a, "mean")
    axis, names = split_axis_names(axis)
    axes = canonical_axes(axis, x.ndim, "mean")
    # The sum is accumulated in `compute`, which is at least float32.
    compute, result = _mean_dtypes(x, dtype, "mean")
    x = cast(x, compute) if x.dtype != compute else x
    n = _count(where, x.shape, axes, names, compute, keepdims, "mean")
    y = sum(x, axis=(*axes, *names), dtype=compute, keepdims=keepdims, where=where) / n
    return y if y.dtype == result else cast(y, result)


@_static
def var(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: ArrayLike = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: ArrayLike | None = None,
) -> Array:
    """Variance over axes.

    Args:
      a: array or scalar.
      axis: axis or axes to reduce, or None for all; may include names of mapped axes in scope.
      dtype: dtype of the computation and of the result.
      out: must be None; arrays are immutable.
      ddof: delta degrees of freedom: the divisor is the number of elements minus `ddof`.
      keepdims: keep the reduced dimensions with size 1.
      where: boolean mask, broadcastable to the shape of `a`, of the elements to include.
      mean: precomputed mean, with the reduced dimensions kept.
      correction: alias of `ddof`.

    Returns:
      Real numbers, with the reduced axes removed.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.var(jnp.array([1.0, 3.0])).item()
      1.0
    """
    return _variance("var", a, axis, dtype, out, ddof if correction is None else correction, keepdims, where, mean)


def _variance(
    name: str,
    a: Array,
    axis: Axis,
    dtype: np.dtype,
    out: None,
    ddof: ArrayLike,
    keepdims: bool,
    where: ArrayLike | None,
    mean: ArrayLike | None,
) -> Any:
    refuse_out(out, name)
    x = to_operand(a, name)
    axis, names = split_axis_names(axis)
    axes = canonical_axes(axis, x.ndim, name)
    over = (*axes, *names)
    compute, result = _mean_dtypes(x, dtype, name)
    if x.dtype.kind == "c" and compute.kind != "c":
        raise ArgumentError(
            f"{name}, argument dtype",
            expected=f"a complex dtype for the deviations of {x.dtype}, from which the result is real",
            got=str(result),
            fix="omit dtype, and convert the result",
        )
    x = cast(x, compute) if x.dtype != compute else x
    n = _count(where, x.shape, axes, names, _to_real_dtype(compute), keepdims, name)
    if mean is None:
        # The mean keeps the reduced dimensions, to be subtracted from the operand.
        n_kept = n if where is None else _count(where, x.shape, axes, names, _to_real_dtype(compute), True, name)
        mean = sum(x, axis=over, keepdims=True, where=where) / (n_kept if where is None else cast(n_kept, x.dtype))
    else:
        mean = to_operand(mean, name)
        mean = cast(mean, mean.dtype if mean.dtype.kind == "c" else compute)
        x = cast(x, mean.dtype)
    # Two passes: E[x^2] - E[x]^2 in one pass would cancel catastrophically for data far from 0.
    centered = x - mean
    if where is not None:  # so that a NaN among excluded elements does not reach the derivative
        centered = lax.select(broadcast_to_shape(where, centered.shape), centered, lax.full_like(centered, 0))
    # With fewer elements than `ddof` the divisor is 0, so that the result is NaN or infinite, as in NumPy.
    divisor = n - ddof if ddof else n
    if isinstance(divisor, float | np.generic) and divisor < 0:
        divisor = 0.0
    elif ddof and type(divisor) is not float and hasattr(divisor, "aval"):
        divisor = lax.max(divisor, to_numpy_scalar(0, divisor.dtype))
    y = sum(squared_magnitudes(centered), axis=over, keepdims=keepdims, where=where) / divisor
    if dtype is None:
        result = _to_real_dtype(result)
    return y if y.dtype == result else cast(y, result)


def _to_real_dtype(dtype: np.dtype) -> Any:
    return np.dtype(f"float{4 * dtype.itemsize}") if dtype.kind == "c" else dtype


@_static
def std(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: ArrayLike = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: ArrayLike | None = None,
) -> Array:
    """Standard deviation over axes.

    Args:
      a, axis, dtype, out, ddof, keepdims, where, mean, correction: as in `var`.

    Returns:
      Real numbers, with the reduced axes removed.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.
      DTypeError: `dtype` is not inexact.

    Examples:
      >>> jnp.std(jnp.array([1.0, 3.0])).item()
      1.0
    """
    if dtype is not None and not dtypes.issubdtype(dtype, np.inexact):
        raise DTypeError(
            "std, argument dtype",
            expected="an inexact dtype",
            got=dtype,
            fix="pass dtype='float32', or leave dtype out",
        )
    ddof = ddof if correction is None else correction
    return lax.sqrt(_variance("std", a, axis, dtype, out, ddof, keepdims, where, mean))


def average(
    a: ArrayLike, axis: Axis = None, weights: ArrayLike | None = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """Weighted mean over axes.

    Args:
      a: array or scalar.
      axis: axis or tuple of axes; None for all.
      weights: array of the shape of `a`, or of the reduced dimensions; equal weights by default.
      returned: also return the sums of the weights.
      keepdims: keep the reduced dimensions with size 1.

    Returns:
      The means, with the reduced axes removed; with `returned`, a pair of them and the sums of the weights.

    Raises:
      AxisError: an axis is out of range.
      ShapeError: the weights have the wrong shape.

    Examples:
      >>> jnp.average(jnp.array([1.0, 2.0]), weights=jnp.array([3.0, 1.0])).item()
      1.25
    """
    out = _average(a, weights, axis, keepdims)
    return out if returned else out[0]


@eager_jit(static_argnames=("axis", "keepdims"))
def _average(a: Array, weights: Array, axis: Axis, keepdims: bool) -> tuple:
    x = to_operand(a, "average")
    axes = canonical_axes(axis, x.ndim, "average")
    if weights is None:
        y = mean(x, axis=axes, keepdims=keepdims)
        return y, lax.full(y.shape, num_reduced_elements(x.shape, axes), y.dtype)
    w = to_operand(weights, "average")
    if w.shape != x.shape:
        wanted = tuple(x.shape[i] for i in axes)
        if w.shape != wanted or axis is None:
            raise ShapeError(
                "average, argument weights",
                expected=f"the shape {x.shape}, or that of the axes, {wanted}",
                got=w.shape,
                fix="broadcast the weights with phalanx.numpy.broadcast_to(weights, a.shape)",
            )
        order = np.argsort(axes)
        w = lax.broadcast_in_dim(lax.transpose(w, order), x.shape, tuple(np.sort(axes)))
    dtype = dtypes.to_inexact_dtype(promotion.result_type(x, w))
    w = cast(w, dtype)
    total = sum(w, axis=axes, keepdims=keepdims)
    return sum(cast(x, dtype) * w, axis=axes, keepdims=keepdims) / total, total


_eager = eager_jit(static_argnames=("rowvar", "bias", "ddof"))


@_eager
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Covariance matrix of variables.

    Args:
      m: variables in rows, observations in columns.
      y: additional variables, in the same layout.
      rowvar: whether variables are rows; False if they are columns.
      bias: divide by the number n of observations instead of n - 1.
      ddof: delta degrees of freedom: divide by n - ddof; overrides `bias`.
      fweights: integer frequency of each observation.
      aweights: relative weights of the observations.
      dtype: dtype of the computation and of the result.

    Returns:
      num[n, n] for n variables, num[] for one.

    Raises:
      DTypeError: `dtype` is not inexact.
      ShapeError: the rank of an operand is above 2, or the number of weights is wrong.

    Examples:
      >>> jnp.cov(jnp.array([[0.0, 1.0], [1.0, 0.0]])).tolist()
      [[0.5, -0.5], [-0.5, 0.5]]
    """
    x = _join_variables([to_operand(v, "cov") for v in (m, y) if v is not None], rowvar, dtype)
    ddof = (0 if bias else 1) if ddof is None else to_static_int(ddof, "cov, argument ddof")
    weights = [_check_weights(w, x.shape[1]) for w in (fweights, aweights) if w is not None]
    if not weights:
        divisor: Any = x.shape[1] - ddof
        # With fewer observations than `ddof` the covariance is undefined: dividing 0 by 0 gives NaN.
        divisor = 0.0 if isinstance(divisor, int | float) and divisor < 0 else divisor
        centered = x - mean(x, axis=1)[:, None]
        weighted = centered
    else:
        w = functools.reduce(operator.mul, weights)
        total = sum(w)
        divisor = total - ddof
        if ddof and aweights is not None:
            # Reliability weights: ddof counts effective observations, sum(w a) / sum(w).
            divisor = total - ddof * sum(w * weights[-1]) / total
        w = w[None]
        centered = x - (sum(x * w, axis=1) / total)[:, None]
        weighted = centered * w
    return squeeze(dot(weighted, lax.conj(centered.T) if x.dtype.kind == "c" else centered.T) / divisor)


def _join_variables(parts: list, rowvar: bool, dtype: DTypeLike | None) -> Array:
    """The variables of all operands as rows, num[variables, observations]."""
    if dtype is not None:
        dtype = dtypes.requested_dtype(dtype, "cov")
        if not dtypes.issubdtype(dtype, np.inexact):
            raise DTypeError(
                "cov, argument dtype",
                expected="an inexact dtype",
                got=str(dtype),
                fix="pass dtype='float32', or leave dtype out",
            )
        parts = [cast(v, dtype) for v in parts]
    rows = []
    for v in promote_inexact("cov", *parts):
        if v.ndim > 2:
            raise ShapeError(
                "cov", expected="a matrix of observations", got=v.shape, fix="reshape it to [variables, observations]"
            )
        v = v if v.ndim == 2 else lax.reshape(v, (1, math.prod(v.shape)))
        # A single row is one variable in either layout, as in NumPy.
        rows.append(v if rowvar or v.shape[0] == 1 else v.T)
    return concatenate(rows, 0) if len(rows) > 1 else rows[0]


def _check_weights(w: ArrayLike, num_observations: int) -> Array:
    w = to_operand(w, "cov")
    if w.ndim != 1 or w.shape[0] != num_observations:
        raise ShapeError(
            "cov, argument weights",
            expected=f"a vector of {num_observations}",
            got=w.shape,
            fix=f"pass one weight for each of the {num_observations} observations",
        )
    return lax.abs(w)


@_eager
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: DTypeLike | None = None) -> Array:
    """Matrix of Pearson correlation coefficients.

    Args:
      x, y, rowvar: as `m`, `y` and `rowvar` in `cov`.
      dtype: inexact dtype of the result; by default promoted from `x` and `y`.

    Returns:
      num[n, n] for n variables, num[] for one, from -1 to 1.

    Raises:
      DTypeError: `dtype` is not inexact.
      ShapeError: the rank of an operand is above 2.

    Examples:
      >>> round(jnp.corrcoef(jnp.array([[0.0, 1.0], [1.0, 0.0]]))[0, 1].item(), 5)
      -1.0
    """
    c = cov(x, y, rowvar, dtype=dtype)
    # One variable correlates perfectly with itself; the quotient is NaN if its variance is 0 or NaN.
    if not c.ndim:
        return c / c
    d = lax.sqrt(lax.real(c.diagonal()) if c.dtype.kind == "c" else c.diagonal())
    c = c / d[:, None] / d[None, :]
    # Rounding may exceed the bounds of a correlation.
    if c.dtype.kind == "c":
        return lax.complex(clip(lax.real(c), -1, 1), clip(lax.imag(c), -1, 1))
    return clip(c, -1, 1)
