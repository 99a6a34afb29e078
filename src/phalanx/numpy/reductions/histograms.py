"""Counts of values: `bincount` by a scatter-add, histograms by a binary search for the bin of each element."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, UnsupportedArgumentError, dtypes
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.creation.ranges import linspace
from phalanx.numpy.indexing.where import where
from phalanx.numpy.operands import cast, from_list, promote_inexact, require_concrete, to_host_operand, to_operand
from phalanx.numpy.reductions.array_reductions import max, min, sum
from phalanx.numpy.shapes.joining import stack
from phalanx.numpy.sorting.sort_and_search import searchsorted
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic, static_size
from phalanx.typing import Array, ArrayLike, ShardingLike

Bins: TypeAlias = int | ArrayLike
"""A number of bins, or their edges."""


def bincount(
    x: ArrayLike,
    weights: ArrayLike | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Count the occurrences of each integer from 0.

    Args:
      x: vector of non-negative integers or booleans; negative integers count as 0.
      weights: weights of the elements; 1 by default.
      minlength: minimum length of the result.
      length: static length of the result; required when `x` is traced. Larger integers are dropped.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      num[length]: counts, or sums of weights in their dtype.

    Raises:
      ConcretizationTypeError: `x` is traced and `length` is not given.
      ShapeError: `x` is not a vector of integers.

    Examples:
      >>> jnp.bincount(jnp.array([0, 2, 2])).tolist()
      [1, 0, 2]
    """
    x = to_host_operand(from_list(x), "bincount")
    x = x.astype(np.int32) if x.dtype == np.bool_ else x
    if x.ndim != 1 or not dtypes.issubdtype(x.dtype, np.integer):
        raise ShapeError(
            "bincount",
            expected="a vector of integers",
            got=f"{x.dtype} of shape {x.shape}",
            fix="flatten and convert it with x.ravel().astype(int)",
        )
    if length is None:
        known = require_concrete(
            x,
            "bincount, the length of the result",
            expected="numbers that are known while tracing",
            fix="pass length=, the number of bins",
        )
        # The result is as long as the largest integer requires.
        length = int(known.max()) + 1 if known.size else 0
    if out_sharding is not None and weights is None:
        # Sharded as `x`, so that each device may count its own elements and keep the counts as its term.
        weights = lax.full_like(x, 1, dtypes.canonicalize_dtype(np.int64))
    size = builtins.max(length, minlength if is_symbolic(minlength) else operator.index(minlength))
    count = lambda x, *given: _bincount(x, given[0] if given else None, size)
    return call_with_out_sharding(
        count, (x,) if weights is None else (x, weights), out_sharding, "bincount, out_sharding"
    )


@eager_jit(static_argnames=("length",))
def _bincount(x: Array, weights: Array, length: int) -> Any:
    one = np.ones((), dtypes.canonicalize_dtype(np.int64))[()]
    weights = one if weights is None else to_operand(weights, "bincount")
    dtype = dtypes.canonicalize_dtype(weights.dtype)
    # A negative index would count from the end: negative integers are clipped to 0, as in JAX.
    x = lax.max(x, x.dtype.type(0)) if x.dtype.kind == "i" else x
    return lax.full((length,), 0, dtype).at[x].add(weights, mode="drop")


def histogram_bin_edges(
    a: ArrayLike,
    bins: Bins | Sequence[Bins] = 10,
    range: Sequence[ArrayLike] | None = None,
    weights: ArrayLike | None = None,
) -> Array:
    """Edges of the bins of a histogram.

    Args:
      a: array of any shape.
      bins: number of bins, or their edges.
      range: lower and upper edge of all bins; the extremes of `a` by default.
      weights: ignored.

    Returns:
      A vector of `bins + 1` edges, in the inexact dtype of `a`.

    Raises:
      UnsupportedArgumentError: `bins` is a string.
      ShapeError: there are no edges.

    Examples:
      >>> jnp.histogram_bin_edges(jnp.array([0.0, 4.0]), 4).tolist()
      [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    if isinstance(bins, str):
        raise UnsupportedArgumentError(
            "histogram, argument bins",
            expected="a number or borders",
            got=repr(bins),
            fix="pass the number of bins or a vector of edges; named estimators are not supported",
        )
    x = array(a) if isinstance(a, list | tuple) else to_operand(a, "histogram")
    if isinstance(bins, list | tuple) or getattr(bins, "ndim", 0) == 1:
        edges = array(bins, dtypes.to_inexact_dtype(x.dtype))
        if edges.shape[0] == 0:
            raise ShapeError("histogram, argument bins", expected="edges", got="none", fix="pass two edges or more")
        return edges
    return _edges(x, range, static_size(bins))


@eager_jit(static_argnames=("bins",))
def _edges(x: Array, range: Any, bins: int) -> Any:
    (x,) = promote_inexact("histogram", x)
    if range is None:
        low, high = (min(x), max(x)) if x.size else (x.dtype.type(0), x.dtype.type(1))
    else:
        low, high = (cast(to_operand(v, "histogram"), x.dtype) for v in range)
    # The bins of a constant array cover a range of width 1 around its value, as in NumPy.
    low, high = where(low == high, low - 0.5, low), where(low == high, high + 0.5, high)
    return linspace(low, high, bins + 1, dtype=x.dtype)


def histogram(
    a: ArrayLike,
    bins: Bins | Sequence[Bins] = 10,
    range: Sequence[ArrayLike] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
    out_sharding: ShardingLike | None = None,
) -> tuple:
    """Histogram: the number of elements in each bin, and the bin edges.

    Args:
      a: array of any shape.
      bins: number of bins, or their edges.
      range: lower and upper edge of all bins; the extremes of `a` by default.
      weights: weights of the elements; 1 by default.
      density: normalize the histogram so that its integral is 1.
      out_sharding: sharding of the counts, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      A pair: the vector of counts, and the vector of edges, in the inexact dtype of `a` and `weights`.

    Raises:
      ArgumentError: `bins` is a string.
      ShapeError: the shape of the weights differs from that of `a`.

    Examples:
      >>> jnp.histogram(jnp.array([0.0, 1.0, 4.0]), 2)[0].tolist()
      [2.0, 1.0]
    """
    x = array(a) if isinstance(a, list | tuple) else to_operand(a, "histogram")
    given = () if weights is None else (to_operand(weights, "histogram"),)
    if weights is not None and given[0].shape != x.shape:
        raise ShapeError(
            "histogram, argument weights",
            expected=f"shape {x.shape}, one for each element",
            got=given[0].shape,
            fix="broadcast them with phalanx.numpy.broadcast_to(weights, a.shape)",
        )
    operands = promote_inexact("histogram", x, *given)
    edges = histogram_bin_edges(operands[0], bins, range)
    fill = lambda x, *given: _histogram(x, edges, given[0] if given else None, bool(density))
    return call_with_out_sharding(fill, operands, out_sharding, "histogram, out_sharding"), edges


@eager_jit(static_argnames=("density",))
def _histogram(x: Array, edges: Array, weights: Array, density: bool) -> Any:
    weights = lax.full(x.shape, 1, x.dtype) if weights is None else weights
    n = edges.shape[0]
    i = searchsorted(edges, x, side="right")
    # The last bin includes its right edge.
    i = where(x == edges[-1], cast(n - 1, np.dtype(np.int32)), i)
    # The first and the last entry count the elements outside of all bins.
    counts = lax.full((n + 1,), 0, weights.dtype).at[i].add(weights)[1:-1]
    if not density:
        return counts
    return counts / (edges[1:] - edges[:-1]) / sum(counts)


def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: Bins | Sequence[Bins] = 10,
    range: Sequence[ArrayLike] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple:
    """Two-dimensional histogram of points given by two coordinate vectors.

    Args:
      x, y: coordinates of the points, vectors of equal length.
      bins: number of bins or edges of both axes, or a pair of these.
      range: (lower, upper) edge per axis; the extreme coordinates by default.
      weights: weights of the points; 1 by default.
      density: normalize the histogram so that its integral is 1.

    Returns:
      A tuple: counts num[m, n], the m + 1 edges along `x`, and the n + 1 edges along `y`.

    Raises:
      ArgumentError: the bins of an axis are a string, or `range` does not have two entries.
      ShapeError: `x` and `y` have different lengths.

    Examples:
      >>> jnp.histogram2d(jnp.array([0.0, 1.0]), jnp.array([0.0, 1.0]), 2)[0].tolist()
      [[1, 0], [0, 1]]
    """
    if (isinstance(bins, list | tuple) and len(bins) not in (1, 2)) or getattr(bins, "ndim", 0) == 1:
        bins = [bins, bins]  # type: ignore[list-item]
    sample = stack([to_operand(x, "histogram2d"), to_operand(y, "histogram2d")], axis=1)
    counts, edges = histogramdd(sample, bins, range, weights, density)
    return counts, edges[0], edges[1]


def histogramdd(
    sample: ArrayLike,
    bins: Bins | Sequence[Bins] = 10,
    range: Sequence[ArrayLike] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple:
    """Multi-dimensional histogram of points given as rows.

    Args:
      sample: num[points, d].
      bins: number of bins or edges of all axes, or a sequence with one of these per axis.
      range: (lower, upper) edge per axis; the extreme coordinates by default.
      weights: weights of the points; 1 by default.
      density: normalize the histogram so that its integral is 1.

    Returns:
      A pair: the counts, of rank d, and a list of d vectors of edges.

    Raises:
      ArgumentError: the bins of an axis are a string, or `bins` or `range` has the wrong length.
      ShapeError: `sample` is not a matrix.

    Examples:
      >>> jnp.histogramdd(jnp.array([[0.0, 0.0], [1.0, 1.0]]), 2)[0].shape
      (2, 2)
    """
    x = array(sample) if isinstance(sample, list | tuple) else to_operand(sample, "histogramdd")
    if x.ndim != 2:
        raise ShapeError(
            "histogramdd, argument sample",
            expected="a matrix of points in rows",
            got=x.shape,
            fix="stack the coordinate vectors with phalanx.numpy.stack([x, y], axis=1)",
        )
    d = x.shape[1]
    bins = [bins] * d if isinstance(bins, int | str) or (getattr(bins, "ndim", None) == 1) else list(bins)  # type: ignore[list-item]
    bins = bins * d if len(bins) == 1 and d > 1 else bins
    if len(bins) != d or (range is not None and len(range) != d):
        raise ArgumentError(
            "histogramdd, argument bins",
            expected=f"{d} entries",
            got=len(bins),
            fix=f"pass one entry of bins and of range for each of the {d} coordinates",
        )
    edges = [histogram_bin_edges(x[:, i], b, None if range is None else range[i]) for i, b in enumerate(bins)]
    return _histogramdd(x, edges, weights, bool(density)), edges


@eager_jit(static_argnames=("density",))
def _histogramdd(x: Array, edges: Sequence[Any], weights: Array, density: bool) -> Any:
    (x,) = promote_inexact("histogramdd", x)
    places, sizes = [], []
    for i, e in enumerate(edges):
        column = x[:, i]
        e = cast(e, x.dtype)
        place = searchsorted(e, column, side="right")
        # The last bin includes its right edge.
        places.append(where(column == e[-1], place - 1, place))
        sizes.append(e.shape[0] + 1)
    ones = lax.full((x.shape[0],), 1, dtypes.canonicalize_dtype(int))
    weights = ones if weights is None else to_operand(weights, "histogramdd")
    # One scatter-add over all coordinates; the margins of each dimension hold the outliers.
    counts = lax.full(tuple(sizes), 0, weights.dtype).at[tuple(places)].add(weights)[(slice(1, -1),) * len(sizes)]
    if density:
        counts = counts / sum(counts)
        for i, e in enumerate(edges):
            counts = counts / (e[1:] - e[:-1]).reshape(tuple(-1 if i == j else 1 for j in builtins.range(len(edges))))
    return counts
