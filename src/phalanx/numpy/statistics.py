"""Statistics: quantiles, covariance, histograms, counts.

Built on `reductions` and `sorting`.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, ConcretizationTypeError, DTypeError, ShapeError
from phalanx.lax.explicit import laid_out
from phalanx.numpy.creation import array
from phalanx.numpy.joining import concatenate
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import (
    broadcast_to_shape,
    canonical_axes,
    cast,
    concrete,
    host_operand,
    operand,
    promote_inexact,
    refuse_out,
)
from phalanx.numpy.ranges import linspace
from phalanx.numpy.reductions import any as any_of
from phalanx.numpy.reductions import max, mean, min, sum
from phalanx.numpy.shapes import moveaxis, ravel
from phalanx.numpy.sorting import searchsorted, sort
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import static_size

# Where the quantile q of n elements lies between them, counted from 0: n q + alpha + q (1 - alpha - beta) - 1 with a
# pair of R. J. Hyndman and Y. Fan, Sample Quantiles in Statistical Packages (1996); and what chooses an element there.
_METHODS = {
    "linear": (1, 1), "lower": (1, 1), "higher": (1, 1), "midpoint": (1, 1), "nearest": (1, 1), "hazen": (0.5, 0.5),
    "weibull": (0, 0), "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
    "interpolated_inverted_cdf": (0, 1), "inverted_cdf": (0, 1), "averaged_inverted_cdf": (0, 1),
    "closest_observation": (-0.5, 1.5),
}  # fmt: skip
_static = eager_program(
    static_argnames=("axis", "out", "overwrite_input", "method", "keepdims", "rowvar", "bias", "ddof")
)


@_static
def quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """The values below which given fractions of the elements lie.

    Args:
      a: real numbers.
      q: the fractions, from 0 to 1; its dimensions come first in the result.
      axis: an axis, a tuple of them, or None for all.
      out: must be None.
      overwrite_input: must be False.
      method: between two elements: `"linear"`, `"lower"`, `"higher"`, `"midpoint"` or `"nearest"`; or one of NumPy's
        other estimates: `"inverted_cdf"`, `"averaged_inverted_cdf"`, `"closest_observation"`, `"hazen"`, `"weibull"`,
        `"interpolated_inverted_cdf"`, `"median_unbiased"`, `"normal_unbiased"`.
      keepdims: keep the reduced dimensions, of size 1.
      weights: how often each element counts, of the shape of `a` or of the size of the axis; for `"inverted_cdf"` only.

    Returns:
      Floating-point numbers: the dimensions of `q`, then those of `a` without the axes; NaN where an element is.

    Raises:
      ArgumentError: there is no such method, it takes no weights, or `out` or `overwrite_input` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements, or the weights have another shape.

    Examples:
      >>> jnp.quantile(jnp.array([1.0, 2.0, 3.0]), 0.5).item()
      2.0
    """
    return _quantile("quantile", a, q, axis, out, overwrite_input, method, keepdims, False, weights)


@_static
def nanquantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """Quantiles of the elements that are not NaN.

    Args:
      a, q, axis, out, overwrite_input, method, keepdims, weights: as in `quantile`.

    Returns:
      Floating-point numbers in the shape that `quantile` gives; NaN where all elements are.

    Raises:
      ArgumentError: there is no such method, it takes no weights, or `out` or `overwrite_input` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements, or the weights have another shape.

    Examples:
      >>> jnp.nanquantile(jnp.array([1.0, jnp.nan, 3.0]), 0.5).item()
      2.0
    """
    return _quantile("nanquantile", a, q, axis, out, overwrite_input, method, keepdims, True, weights)


@_static
def percentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """Quantiles at given percentages.

    Args:
      a, axis, out, overwrite_input, method, keepdims, weights: as in `quantile`.
      q: the percentages, from 0 to 100.

    Returns:
      Floating-point numbers in the shape that `quantile` gives; NaN where an element is.

    Raises:
      ArgumentError: there is no such method, it takes no weights, or `out` or `overwrite_input` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements, or the weights have another shape.

    Examples:
      >>> jnp.percentile(jnp.array([1.0, 2.0, 3.0]), 50).item()
      2.0
    """
    (q,) = promote_inexact("percentile", operand(q, "percentile"))
    return _quantile("percentile", a, q / 100, axis, out, overwrite_input, method, keepdims, False, weights)


@_static
def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """Percentiles of the elements that are not NaN.

    Args:
      a, axis, out, overwrite_input, method, keepdims, weights: as in `quantile`.
      q: the percentages, from 0 to 100.

    Returns:
      Floating-point numbers in the shape that `quantile` gives; NaN where all elements are.

    Raises:
      ArgumentError: there is no such method, it takes no weights, or `out` or `overwrite_input` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements, or the weights have another shape.

    Examples:
      >>> jnp.nanpercentile(jnp.array([1.0, jnp.nan, 3.0]), 50).item()
      2.0
    """
    (q,) = promote_inexact("nanpercentile", operand(q, "nanpercentile"))
    return _quantile("nanpercentile", a, q / 100, axis, out, overwrite_input, method, keepdims, True, weights)


def _quantile(
    name: str, a: Any, q: Any, axis: Any, out: Any, overwrite: bool, method: str, keepdims: bool, skip_nan: bool,
    weights: Any = None,
) -> Any:  # fmt: skip
    refuse_out(out, name)
    if overwrite:
        raise ArgumentError(f"{name}, argument overwrite_input", expected="False", got=True, mend="leave it out")
    if method not in _METHODS:
        raise ArgumentError(f"{name}, argument method", expected=" or ".join(map(repr, _METHODS)), got=repr(method),
                            mend="use one of these")  # fmt: skip
    if weights is not None and method != "inverted_cdf":
        raise ArgumentError(f"{name}, argument weights", expected="None, unless method is 'inverted_cdf'",
                            got=f"weights for {method!r}", mend="pass method='inverted_cdf'")  # fmt: skip
    x, q = operand(a, name), operand(q, name)
    (x,) = promote_inexact(name, x)
    (q,) = promote_inexact(name, q)
    dims, axes = x.shape, canonical_axes(axis, x.ndim, name)
    if builtins.any(type(dims[i]) is int and dims[i] == 0 for i in axes):
        raise ShapeError(name, expected="at least one element", got=dims, mend="check the size")
    columns = _columns(x, axes)
    nan = lax.ne(columns, columns)
    if weights is None:
        columns = sort(columns, 0)
    else:
        weights = _columns(broadcast_to_shape(_along(weights, axes, dims, name), dims), axes).astype(x.dtype)
        if skip_nan:
            weights = where(nan, 0, weights)
        columns, weights = lax.sort((columns, weights), dimension=0, num_keys=1)
    n, rest = columns.shape[0], columns.shape[1:]
    wide = (*q.shape, *rest)
    if skip_nan:
        last = sum(cast(lax.bitwise_not(nan), x.dtype), axis=0) - 1
    else:
        last = lax.full(rest, n - 1, x.dtype)
    q_wide = lax.broadcast_in_dim(cast(q, x.dtype), wide, tuple(range(q.ndim)))
    last = broadcast_to_shape(last, wide)
    y = (
        _chosen(columns, q_wide, lax.max(last, x.dtype.type(0)), q.ndim, method)
        if weights is None
        else _weighted(columns, weights, q_wide, q.ndim)
    )
    bad = (
        (lax.lt(last, last.dtype.type(0)) if skip_nan else broadcast_to_shape(any_of(nan, 0), wide))
        | (q_wide < 0)
        | (q_wide > 1)
    )
    y = where(bad, np.nan, y)
    y = cast(y, y.dtype)
    return with_kept(y, q.ndim, dims, axes) if keepdims else y


def _columns(x: Any, axes: tuple) -> Any:
    """An array with the dimensions `axes` as one, in front."""
    n = math.prod(x.shape[i] for i in axes)
    x = moveaxis(x, axes, tuple(range(len(axes))))
    return lax.reshape(x, (n, *x.shape[len(axes) :]))


def _along(weights: Any, axes: tuple, dims: tuple, name: str) -> Any:
    """Weights of elements, or of places along one axis, so that they broadcast with the array."""
    weights = operand(weights, f"{name}, argument weights")
    if weights.shape == dims:
        return weights
    if len(axes) != 1 or weights.shape != (dims[axes[0]],):
        raise ShapeError(f"{name}, argument weights", expected=f"the shape {dims}, or the size of the one axis",
                         got=weights.shape, mend="give a weight for each element")  # fmt: skip
    return lax.reshape(weights, tuple(d if i == axes[0] else 1 for i, d in enumerate(dims)))


def _chosen(columns: Any, q: Any, last: Any, lead: int, method: str) -> Any:
    """The quantiles `q` of sorted columns, of which the elements up to `last` count."""
    alpha, beta = _METHODS[method]
    position = q * last if alpha == beta == 1 else (last + 1) * q + (alpha - 1 + q * (1 - alpha - beta))
    zero = lax.full_like(last, 0)
    if method == "closest_observation":  # of two as close, the one of even rank counted from 1
        low = lax.floor(position)
        low = where((low == position) & (low % 2 == 1), low, low + 1)
        return _row(columns, lax.clamp(zero, low, last), lead)
    position = lax.clamp(zero, position, last)
    low, high = lax.floor(position), lax.ceil(position)
    if method == "averaged_inverted_cdf":
        high = lax.min(where(low == position, low + 1, high), last)
        low = where(low == position, low, high)
        # Before the first element there is nothing to average with.
        high = where((last + 1) * q < 1, low, high)
    values = [_row(columns, i, lead) for i in (low, high)]
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
    # Written so that equal neighbours, infinite ones included, give themselves.
    return where(weight == 0, values[0], values[0] * (1 - weight) + values[1] * weight)


def _weighted(columns: Any, weights: Any, q: Any, lead: int) -> Any:
    """The first element of sorted columns up to which the part `q` of all weight lies."""
    share = lax.cumsum(weights, axis=0)
    share = share / share[-1:]
    n, rest = share.shape[0], share.shape[1:]
    share = lax.reshape(share, (n, *(1,) * lead, *rest))
    return _row(columns, sum((share < q[None]) | (share == 0), axis=0), lead)


def with_kept(y: Any, lead: int, dims: tuple, axes: tuple) -> Any:
    """A result with leading dimensions of its own, and the reduced dimensions back."""
    kept = tuple(1 if i in axes else d for i, d in enumerate(dims))
    return lax.reshape(y, (*y.shape[:lead], *kept))


def _row(x: Any, i: Any, lead: int) -> Any:
    """The elements of the sorted rows at positions that may differ for each column."""
    from phalanx.numpy.taking import take_along_axis

    n = x.shape[0]
    i = lax.clamp(np.int32(0), cast(i, np.dtype(np.int32)), cast(n - 1, np.dtype(np.int32)))
    rest = x.shape[1:]
    flat = lax.reshape(i, (math.prod(i.shape[:lead]), *rest))
    return lax.reshape(take_along_axis(x, flat, 0, mode="promise_in_bounds"), i.shape)


@_static
def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """The median along axes.

    Args:
      a, axis, out, overwrite_input, keepdims: as in `quantile`.

    Returns:
      Floating-point numbers, without the axes; NaN where an element is.

    Raises:
      ArgumentError: `out` or `overwrite_input` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements.

    Examples:
      >>> jnp.median(jnp.array([1.0, 9.0, 2.0])).item()
      2.0
    """
    return _quantile("median", a, 0.5, axis, out, overwrite_input, "midpoint", keepdims, False)


@_static
def nanmedian(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """The median along axes of the elements that are not NaN.

    Args:
      a, axis, out, overwrite_input, keepdims: as in `quantile`.

    Returns:
      Floating-point numbers, without the axes; NaN where all elements are.

    Raises:
      ArgumentError: `out` or `overwrite_input` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements.

    Examples:
      >>> jnp.nanmedian(jnp.array([1.0, jnp.nan, 9.0, 2.0])).item()
      2.0
    """
    return _quantile("nanmedian", a, 0.5, axis, out, overwrite_input, "midpoint", keepdims, True)


@_static
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: Any = None,
    aweights: Any = None, dtype: Any = None,
) -> Any:  # fmt: skip
    """The covariance matrix.

    Args:
      m: variables in rows, observations in columns.
      y: more variables.
      rowvar: False where variables are in columns.
      bias: divide by the number of observations rather than one less.
      ddof: what to subtract from the number of observations, in place of `bias`.
      fweights: how often each observation counts.
      aweights: weights of the observations.
      dtype: that of the result and of the computation.

    Returns:
      num[n, n] for n variables, num[] for one.

    Raises:
      DTypeError: `dtype` is not inexact.
      ShapeError: the rank of an operand is above 2, or weights are not one for each observation.

    Examples:
      >>> jnp.cov(jnp.array([[0.0, 1.0], [1.0, 0.0]])).tolist()
      [[0.5, -0.5], [-0.5, 0.5]]
    """
    parts = [operand(v, "cov") for v in (m, y) if v is not None]
    if dtype is not None:
        dtype = dtypes.requested_dtype(dtype, "cov")
        if not dtypes.issubdtype(dtype, np.inexact):
            raise DTypeError("cov, argument dtype", expected="an inexact dtype", got=str(dtype), mend="leave it out")
        parts = [cast(v, dtype) for v in parts]
    parts = list(promote_inexact("cov", *parts))
    for v in parts:
        if v.ndim > 2:
            raise ShapeError("cov", expected="a matrix of observations", got=v.shape, mend="reshape it")
    parts = [v if v.ndim == 2 else lax.reshape(v, (1, math.prod(v.shape))) for v in parts]
    parts = [parts[0].T if not rowvar and parts[0].shape[0] != 1 else parts[0],
             *(v.T if not rowvar and v.shape[0] != 1 else v for v in parts[1:])]  # fmt: skip
    x = concatenate(parts, 0) if len(parts) > 1 else parts[0]
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights = None
    for w in (fweights, aweights):
        if w is None:
            continue
        w = operand(w, "cov")
        if w.ndim != 1 or w.shape[0] != x.shape[1]:
            raise ShapeError(
                "cov, argument weights", expected=f"a vector of {x.shape[1]}", got=w.shape, mend="ravel it"
            )
        weights = lax.abs(w) if weights is None else weights * lax.abs(w)
    if weights is None:
        average, total = mean(x, axis=1), x.shape[1]
        divisor: Any = total - ddof
        divisor = 0.0 if isinstance(divisor, int | float) and divisor < 0 else divisor  # so that the result is NaN
        centered = x - average[:, None]
        right = centered
    else:
        total = sum(weights)
        average = sum(x * weights, axis=1) / total
        divisor = total - ddof
        if ddof and aweights is not None:
            divisor = total - ddof * sum(weights * lax.abs(operand(aweights, "cov"))) / total
        centered = x - average[:, None]
        right = centered * weights
    from phalanx.numpy.contraction import dot

    product = dot(right, lax.conj(centered.T) if x.dtype.kind == "c" else centered.T)
    from phalanx.numpy.shapes import squeeze

    return squeeze(product / divisor)


@_static
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Any:
    """The matrix of correlation coefficients.

    Args:
      x, y, rowvar: as `m`, `y` and `rowvar` in `cov`.
      dtype: an inexact one for the result, that of `x` and `y` by default.

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
    if not c.ndim:
        return c / c
    d = lax.sqrt(lax.real(c.diagonal()) if c.dtype.kind == "c" else c.diagonal())
    c = c / d[:, None] / d[None, :]
    from phalanx.numpy.rounding import clip

    if c.dtype.kind == "c":
        return lax.complex(clip(lax.real(c), -1, 1), clip(lax.imag(c), -1, 1))
    return clip(c, -1, 1)


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None, out_sharding: Any = None
) -> Any:
    """How often each number from 0 occurs.

    Args:
      x: a vector of integers from 0, or of booleans.
      weights: what each counts.
      minlength: the least length of the result.
      length: its length; needed where `x` is traced.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      num[length]: integers, or numbers of the dtype of the weights.

    Raises:
      ConcretizationTypeError: `x` is traced and `length` is not given.
      ShapeError: `x` is no vector of integers.

    Examples:
      >>> jnp.bincount(jnp.array([0, 2, 2])).tolist()
      [1, 0, 2]
    """
    x = host_operand(np.asarray(x) if isinstance(x, list | tuple) else x, "bincount")
    x = x.astype(np.int32) if x.dtype == np.bool_ else x
    if x.ndim != 1 or not dtypes.issubdtype(x.dtype, np.integer):
        raise ShapeError(
            "bincount", expected="a vector of integers", got=f"{x.dtype} of shape {x.shape}", mend="ravel it"
        )
    if length is None:
        known = concrete(x)
        if known is None:
            raise ConcretizationTypeError(
                "bincount, the length of the result", expected="numbers that are known while tracing",
                got=x.describe() if hasattr(x, "describe") else str(x), mend="give length=",
            )  # fmt: skip
        length = int(known.max()) + 1 if known.size else 0
    count = lambda x, *given: _bincount(x, given[0] if given else None, builtins.max(length, minlength))
    return laid_out(count, (x,) if weights is None else (x, weights), out_sharding, "bincount, out_sharding")


@eager_program(static_argnames=("length",))
def _bincount(x: Any, weights: Any, length: int) -> Any:
    if weights is None:
        weights = np.ones((), dtypes.canonicalize_dtype(np.int64))[()]
    else:
        weights = operand(weights, "bincount")
    dtype = dtypes.canonicalize_dtype(weights.dtype)
    x = lax.max(x, x.dtype.type(0)) if x.dtype.kind == "i" else x
    return lax.full((length,), 0, dtype).at[x].add(weights, mode="drop")


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The borders of the bins of a histogram.

    Args:
      a: numbers of any shape.
      bins: the number of bins, or their borders.
      range: the outer borders; the smallest and the largest element by default.
      weights: do not move the borders.

    Returns:
      A vector of one border more than there are bins.

    Raises:
      ArgumentError: `bins` is a text.

    Examples:
      >>> jnp.histogram_bin_edges(jnp.array([0.0, 4.0]), 4).tolist()
      [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    if isinstance(bins, str):
        raise ArgumentError(
            "histogram, argument bins", expected="a number or borders", got=repr(bins), mend="give a number"
        )
    x = array(a) if isinstance(a, list | tuple) else operand(a, "histogram")
    if isinstance(bins, list | tuple) or getattr(bins, "ndim", 0) == 1:
        return array(bins)
    return _edges(x, range, static_size(bins))


@eager_program(static_argnames=("bins",))
def _edges(x: Any, range: Any, bins: int) -> Any:
    (x,) = promote_inexact("histogram", x)
    if range is None:
        low, high = (min(x), max(x)) if x.size else (x.dtype.type(0), x.dtype.type(1))
    else:
        low, high = (cast(operand(v, "histogram"), x.dtype) for v in range)
    low, high = where(low == high, low - 0.5, low), where(low == high, high + 0.5, high)
    return linspace(low, high, bins + 1, dtype=x.dtype)


def histogram(
    a: Any,
    bins: Any = 10,
    range: Any = None,
    weights: Any = None,
    density: bool | None = None,
    out_sharding: Any = None,
) -> tuple:
    """How many elements fall into each bin, and the borders of the bins.

    Args:
      a: numbers of any shape.
      bins: the number of bins, or their borders.
      range: the outer borders; the smallest and the largest element by default.
      weights: what each element counts, 1 by default.
      density: divide so that the integral is 1.
      out_sharding: how the numbers lie, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      A vector of one number for each bin, and the vector of borders.

    Raises:
      ArgumentError: `bins` is a text.
      ShapeError: the weights have another shape than `a`.

    Examples:
      >>> jnp.histogram(jnp.array([0.0, 1.0, 4.0]), 2)[0].tolist()
      [2.0, 1.0]
    """
    x = array(a) if isinstance(a, list | tuple) else operand(a, "histogram")
    edges = histogram_bin_edges(x, bins, range, weights)
    fill = lambda x, *given: _histogram(x, edges, given[0] if given else None, bool(density))
    operands = (x,) if weights is None else (x, weights)
    return laid_out(fill, operands, out_sharding, "histogram, out_sharding"), edges


@eager_program(static_argnames=("density",))
def _histogram(x: Any, edges: Any, weights: Any, density: bool) -> Any:
    flat, edges_in = promote_inexact("histogram", ravel(x), edges)
    if weights is None:
        weights = lax.full(flat.shape, 1, flat.dtype)
    else:
        weights = operand(weights, "histogram")
        if weights.shape != x.shape:
            raise ShapeError(
                "histogram, argument weights", expected=f"shape {x.shape}, one for each element", got=weights.shape,
                mend="broadcast them",
            )  # fmt: skip
        weights = ravel(weights)
    n = edges_in.shape[0]
    i = searchsorted(edges_in, flat, side="right")
    i = where(flat == edges_in[-1], cast(n - 1, np.dtype(np.int32)), i)
    counts = lax.full((n + 1,), 0, weights.dtype).at[i].add(weights)[1:-1]
    if density:
        widths = edges_in[1:] - edges_in[:-1]
        counts = counts / widths / sum(counts)
    return counts


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple:
    """A histogram of pairs: the counts and the borders along both axes.

    Args:
      x, y: vectors of one length, the coordinates of the points.
      bins: the number of bins or the borders of both axes, or a pair of these.
      range: a pair of outer borders for each axis; the extreme coordinates by default.
      weights: what each point counts, 1 by default.
      density: divide so that the integral is 1.

    Returns:
      num[m, n], the m + 1 borders along `x`, and the n + 1 along `y`.

    Raises:
      ArgumentError: the bins of an axis are a text, or there are not two of `range`.
      ShapeError: `x` and `y` have different lengths.

    Examples:
      >>> jnp.histogram2d(jnp.array([0.0, 1.0]), jnp.array([0.0, 1.0]), 2)[0].tolist()
      [[1, 0], [0, 1]]
    """
    from phalanx.numpy.joining import stack

    if (isinstance(bins, list | tuple) and len(bins) not in (1, 2)) or getattr(bins, "ndim", 0) == 1:
        bins = [bins, bins]
    sample = stack([operand(x, "histogram2d"), operand(y, "histogram2d")], axis=1)
    counts, edges = histogramdd(sample, bins, range, weights, density)
    return counts, edges[0], edges[1]


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple:
    """A histogram of points, the rows of an array: the counts and the list of borders along each axis.

    Args:
      sample: num[points, d].
      bins: the number of bins or the borders of all axes, or a sequence of these for each.
      range: a pair of outer borders for each axis; the extreme coordinates by default.
      weights: what each point counts, 1 by default.
      density: divide so that the integral is 1.

    Returns:
      An array of rank d, and a list of d vectors of borders.

    Raises:
      ArgumentError: the bins of an axis are a text, or `bins` or `range` are not as many as axes.
      ShapeError: `sample` is no matrix.

    Examples:
      >>> jnp.histogramdd(jnp.array([[0.0, 0.0], [1.0, 1.0]]), 2)[0].shape
      (2, 2)
    """
    x = array(sample) if isinstance(sample, list | tuple) else operand(sample, "histogramdd")
    if x.ndim != 2:
        raise ShapeError(
            "histogramdd, argument sample", expected="a matrix of points in rows", got=x.shape, mend="stack"
        )
    d = x.shape[1]
    bins = [bins] * d if isinstance(bins, int) or (getattr(bins, "ndim", None) == 1) else list(bins)
    bins = bins * d if len(bins) == 1 and d > 1 else bins
    if len(bins) != d or (range is not None and len(range) != d):
        raise ArgumentError("histogramdd, argument bins", expected=f"{d} entries", got=len(bins), mend="give one each")
    edges = [histogram_bin_edges(x[:, i], b, None if range is None else range[i]) for i, b in enumerate(bins)]
    return _histogramdd(x, edges, weights, bool(density)), edges


@eager_program(static_argnames=("density",))
def _histogramdd(x: Any, edges: Sequence[Any], weights: Any, density: bool) -> Any:
    (x,) = promote_inexact("histogramdd", x)
    places, sizes = [], []
    for i, e in enumerate(edges):
        column = x[:, i]
        e = cast(e, x.dtype)
        place = searchsorted(e, column, side="right")
        places.append(where(column == e[-1], place - 1, place))
        sizes.append(e.shape[0] + 1)
    dtype = dtypes.canonicalize_dtype(int)
    weights = lax.full((x.shape[0],), 1, dtype) if weights is None else operand(weights, "histogramdd")
    counts = lax.full(tuple(sizes), 0, weights.dtype).at[tuple(places)].add(weights)
    counts = counts[(slice(1, -1),) * len(sizes)]
    if density:
        counts = counts / sum(counts)
        for i, e in enumerate(edges):
            shape = tuple(-1 if i == j else 1 for j in builtins.range(len(edges)))
            counts = counts / (e[1:] - e[:-1]).reshape(shape)
    return counts
