"""Set operations: `unique`, `union1d`, `intersect1d`, `setdiff1d`, `setxor1d`, `isin`.

All are based on sorting: equal elements become adjacent, and the first of each group is kept. The number of results
depends on the values, so that traced operands need `size`, a static bound on it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, state
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.indexing.where import nonzero, where
from phalanx.numpy.operands import (
    as_array,
    broadcast_to_shape,
    cast,
    flatten_without_axis,
    from_list,
    promote,
    require_concrete,
    to_host_operand,
    to_operand,
)
from phalanx.numpy.shapes.joining import concatenate
from phalanx.numpy.shapes.reshaping import moveaxis, ravel
from phalanx.numpy.sorting.sort_and_search import argsort, searchsorted, sort
from phalanx.numpy.ufuncs.ufunc_table import isnan
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic, min_dim
from phalanx.typing import Array, ArrayLike


def _to_operand(x: Array, name: str) -> Any:
    return to_host_operand(from_list(x), name)


class UniqueAllResult(NamedTuple):
    """Result of `unique_all`."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    """Result of `unique_counts`."""

    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    """Result of `unique_inverse`."""

    values: Any
    inverse_indices: Any


def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Any:
    """Sorted unique elements of an array, or unique slices along an axis.

    Args:
      ar: an array or nested lists of numbers.
      return_index: also return the index of the first occurrence of each.
      return_inverse: also return, for each element of `ar`, its index in the result.
      return_counts: also return the number of occurrences of each.
      axis: the axis; None flattens the array first.
      equal_nan: whether NaN equals NaN.
      size: static length of the result, which is truncated or padded; required when `ar` is traced.
      fill_value: value of the padding entries; the smallest element by default.
      sorted: accepted for compatibility; the result is always sorted.

    Returns:
      The unique elements or slices; with flags, a tuple of them and the requested arrays, in the order of the flags.

    Raises:
      AxisError: an axis is out of range.
      ConcretizationTypeError: `ar` is traced and `size` is not given.

    Examples:
      >>> jnp.unique(jnp.array([3, 1, 3])).tolist()
      [1, 3]
    """
    x = _to_operand(ar, "unique")
    if size is None:
        require_concrete(
            x,
            "unique, the number of results",
            expected="an array that is known while tracing, as it decides the shape",
            fix="give size=, a bound on the number",
        )
    # The values of NumPy data are known while tracing, and so is the number of results.
    if size is None and state.trace is not None and isinstance(x, np.ndarray):
        found: Any = np.unique(x, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
        return tuple(map(array, found)) if isinstance(found, tuple) else as_array(found)
    flat, dim = flatten_without_axis(as_array(x), axis, "unique")
    rows, mask, order, group = _group(flat, dim, equal_nan)
    # Padding entries start one past the end, where `_take_starts` recognises them.
    # One entry more than requested shows where the last group ends.
    (ends,) = nonzero(mask, size=None if size is None else size + 1, fill_value=rows.shape[0])
    starts = ends if size is None else ends[:size]
    results = [moveaxis(_take_starts(rows, starts, fill_value, size is not None), 0, dim)]
    if return_index:
        results.append(_first_of_each(order, group, starts))
    if return_inverse:
        inverse = lax.full(group.shape, 0, group.dtype).at[order].set(group)
        results.append(inverse.reshape(x.shape) if axis is None else inverse)
    if return_counts:
        results.append(_count(ends, rows.shape[0])[: starts.shape[0]])
    return results[0] if len(results) == 1 else tuple(results)


@eager_jit(static_argnames=("axis", "equal_nan"))
def _group(x: Array, axis: int, equal_nan: bool) -> tuple:
    """Sort the slices along an axis, and group equal ones.

    Returns:
      The sorted slices, a mask of the first slice of each group, the sorting order, and the number of each one's group.
    """
    x = moveaxis(x, axis, 0)
    n = x.shape[0]
    dtype = dtypes.canonicalize_dtype(np.int64)
    if x.ndim == 1:
        # Complex numbers with a NaN in either part are one group, at the end.
        whole = where(isnan(x), np.nan, x) if equal_nan and x.dtype.kind == "c" else x
        order = argsort(whole)
        rows = x[order]
        keys = lax.reshape(whole[order], (n, 1))
    else:
        flat = lax.reshape(x, (n, math.prod(x.shape[1:])))
        columns = [flat[:, i] for i in range(flat.shape[1])]
        places = lax.iota(dtype, n)
        # Slices are compared lexicographically: each column is a sort key.
        order = lax.sort((*columns, places), num_keys=max(len(columns), 1))[-1] if columns else places
        rows = x[order]
        keys = flat[order]
    if n == 0:
        return rows, lax.full((0,), False, np.dtype(bool)), order, lax.full((0,), 0, dtype)
    # A slice begins a group if it differs from its predecessor in any column.
    before, after = keys[:-1], keys[1:]
    differ = lax.ne(before, after)
    # NaNs are adjacent after sorting; comparing each with itself finds them.
    if equal_nan and dtypes.issubdtype(x.dtype, np.inexact):
        differ = differ & ~(lax.ne(before, before) & lax.ne(after, after))
    mask = concatenate([lax.full((min_dim(n, 1),), True, np.dtype(bool)), lax.reduce_or(differ, (1,))], 0)
    # The number of group starts so far numbers the groups.
    return rows, mask, order, lax.cumsum(cast(mask, dtype), axis=0) - 1


@eager_jit(static_argnames=("padded",))
def _take_starts(rows: Array, starts: Array, fill_value: ArrayLike | None, padded: bool) -> Any:
    fill = None if fill_value is None else cast(to_operand(fill_value, "unique"), rows.dtype)
    if not rows.shape[0]:
        shape = (starts.shape[0], *rows.shape[1:])
        return lax.full(shape, 0 if fill is None else fill, rows.dtype) if padded else rows
    found = rows.at[starts].get(mode="clip")
    beyond = lax.reshape(lax.ge(starts, cast(rows.shape[0], starts.dtype)), (starts.shape[0],) + (1,) * (rows.ndim - 1))
    return where(beyond, found[:1] if fill is None else fill, found) if padded else found


@eager_jit
def _first_of_each(order: Array, group: Array, starts: Array) -> Any:
    """The original index of the first slice of each group; padding entries repeat the first group's."""
    if not order.shape[0]:
        return starts
    # The sort is stable, so the first sorted slice of a group is also the first one in the original order.
    return order.at[where(starts >= order.shape[0], 0, starts)].get(mode="clip")


@eager_jit(static_argnames=("n",))
def _count(starts: Array, n: int) -> Any:
    # A group ends where the next one starts; padding entries start at n and therefore count 0.
    return concatenate([starts[1:], lax.full((min_dim(1, starts.shape[0]),), n, starts.dtype)], 0) - starts


def unique_all(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueAllResult:
    """Unique elements with first indices, inverse indices and counts; NaNs are distinct.

    Args:
      x: array, which is flattened.
      size, fill_value: as in `unique`.

    Returns:
      A UniqueAllResult (values, indices, inverse_indices, counts).

    Raises:
      ConcretizationTypeError: `x` is traced and `size` is not given.

    Examples:
      >>> jnp.unique_all(jnp.array([3, 1, 3])).counts.tolist()
      [1, 2]
    """
    return UniqueAllResult(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueCountsResult:
    """Unique elements and their counts; NaNs are distinct.

    Args:
      x: array, which is flattened.
      size, fill_value: as in `unique`.

    Returns:
      A UniqueCountsResult (values, counts).

    Raises:
      ConcretizationTypeError: `x` is traced and `size` is not given.

    Examples:
      >>> jnp.unique_counts(jnp.array([3, 1, 3])).counts.tolist()
      [1, 2]
    """
    return UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueInverseResult:
    """Unique elements and the inverse indices that reconstruct the input; NaNs are distinct.

    Args:
      x: array of any shape.
      size, fill_value: as in `unique`.

    Returns:
      A UniqueInverseResult (values, inverse_indices); the indices have the shape of `x`.

    Raises:
      ConcretizationTypeError: `x` is traced and `size` is not given.

    Examples:
      >>> jnp.unique_inverse(jnp.array([3, 1, 3])).inverse_indices.tolist()
      [1, 0, 1]
    """
    return UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Unique elements; NaNs are distinct.

    Args:
      x: array, which is flattened.
      size, fill_value: as in `unique`.

    Returns:
      A sorted vector.

    Raises:
      ConcretizationTypeError: `x` is traced and `size` is not given.

    Examples:
      >>> jnp.unique_values(jnp.array([3, 1, 3])).tolist()
      [1, 3]
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


def union1d(ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Set union: sorted unique elements that are in either of two arrays.

    Args:
      ar1, ar2: arrays, which are flattened.
      size, fill_value: as in `unique`.

    Returns:
      A sorted vector without duplicates.

    Raises:
      ConcretizationTypeError: an operand is traced and `size` is not given.

    Examples:
      >>> jnp.union1d(jnp.array([1, 2]), jnp.array([2, 3])).tolist()
      [1, 2, 3]
    """
    both = concatenate([ravel(_to_operand(ar1, "union1d")), ravel(_to_operand(ar2, "union1d"))])
    return unique(both, size=size, fill_value=fill_value)


def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
) -> Array:
    """Whether each element is contained in a set of values.

    Args:
      element: an array or nested lists of numbers.
      test_elements: the values to test against.
      assume_unique: accepted for compatibility; the result does not depend on it.
      invert: test for absence instead.
      method: `"auto"`, `"compare_all"`, `"binary_search"` or `"sort"`.

    Returns:
      Booleans with the shape of `element`.

    Examples:
      >>> jnp.isin(jnp.array([1, 2, 3]), jnp.array([2])).tolist()
      [False, True, False]
    """
    return _isin(_to_operand(element, "isin"), _to_operand(test_elements, "isin"), bool(invert), method)


@eager_jit(static_argnames=("invert", "method"))
def _isin(x: Array, among: Array, invert: bool, method: str) -> Any:
    x, among = promote("isin", x, among)
    among = ravel(among)
    m = among.shape[0]
    if m == 0:
        return lax.full(x.shape, invert, np.dtype(bool))
    # Comparing with few elements is faster than sorting and searching.
    if method == "compare_all" or (method == "auto" and not is_symbolic(m) and m <= 64):
        pairs = (*x.shape, m)
        left = lax.broadcast_in_dim(x, pairs, tuple(range(x.ndim)))
        found = lax.reduce_or(lax.eq(left, broadcast_to_shape(among, pairs)), (x.ndim,))
    else:
        ordered = sort(among)
        found = lax.eq(ordered.at[searchsorted(ordered, x)].get(mode="clip"), x)
    return lax.bitwise_not(found) if invert else found


def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """Set intersection: sorted unique elements that are in both of two arrays.

    Args:
      ar1, ar2: arrays or nested lists of numbers, which are flattened.
      assume_unique: promise that neither array contains duplicates, which saves work.
      return_indices: also return the indices of the elements in both arrays.
      size: static length of the result, which is truncated or padded; required under tracing.
      fill_value: value of the padding entries.

    Returns:
      A sorted vector; with `return_indices`, a tuple of it and the indices into both arrays.

    Raises:
      ConcretizationTypeError: an operand is traced and `size` is not given.

    Examples:
      >>> jnp.intersect1d(jnp.array([1, 2, 3]), jnp.array([2, 3, 4])).tolist()
      [2, 3]
    """
    x, y = (ravel(_to_operand(v, "intersect1d")) for v in (ar1, ar2))
    x, y = map(as_array, promote("intersect1d", x, y))
    order, first = _find_common(x, y)
    (found,) = nonzero(first, size=size, fill_value=first.shape[0])
    return _intersection(x, y, order, found, fill_value, return_indices, size is not None)


@eager_jit
def _find_common(x: Array, y: Array) -> tuple:
    """The sorting order of `x`, and a mask of the sorted elements that begin a group and are also in `y`."""
    order = argsort(x)
    rows = x[order]
    # The first element always begins a group; `min_dim` covers the empty array.
    first = lax.full((min_dim(1, rows.shape[0]),), True, np.dtype(bool))
    new = concatenate([first, lax.ne(rows[1:], rows[:-1])], 0)
    return order, new & _isin(rows, y, False, "auto")


@eager_jit(static_argnames=("return_indices", "padded"))
def _intersection(
    x: Array, y: Array, order: Array, found: Array, fill_value: ArrayLike | None, return_indices: bool, padded: bool
) -> Any:
    n = order.shape[0]
    if n == 0:
        values = _take_starts(x, found, fill_value, padded)
        return (values, found, found) if return_indices else values
    beyond = lax.ge(found, cast(n, found.dtype))
    places = order.at[found].get(mode="clip")
    values = x[places]
    if padded:
        fill = (
            where(beyond, 0, values)[:1] if fill_value is None else cast(to_operand(fill_value, "intersect1d"), x.dtype)
        )
        values = where(beyond, fill, values)
    if not return_indices:
        return values
    other = argsort(y)
    in_y = other[searchsorted(y[other], x[places])]
    return values, where(beyond, n, places), where(beyond, y.shape[0], in_y)


def setdiff1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Set difference: sorted unique elements of the first array that are not in the second.

    Args:
      ar1, ar2: arrays, which are flattened.
      assume_unique: promise that `ar1` contains no duplicates; its order is then kept.
      size: static length of the result, which is truncated or padded; required under tracing.
      fill_value: value of the padding entries; 0 by default.

    Returns:
      A vector.

    Raises:
      ConcretizationTypeError: an operand is traced and `size` is not given.

    Examples:
      >>> jnp.setdiff1d(jnp.array([1, 2, 3]), jnp.array([2])).tolist()
      [1, 3]
    """
    x = ravel(_to_operand(ar1, "setdiff1d"))
    if size is None:
        x = x if assume_unique else unique(x)
        return x[isin(x, ar2, invert=True)]
    rows, mask = (x, True) if assume_unique else _group(x, 0, True)[:2]
    (found,) = nonzero(isin(rows, ar2, invert=True) & mask, size=size, fill_value=rows.shape[0])
    return _take_starts(as_array(rows), found, 0 if fill_value is None else fill_value, True)


def setxor1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Symmetric set difference: sorted unique elements that are in exactly one of two arrays.

    Args:
      ar1, ar2: arrays, which are flattened.
      assume_unique: promise that neither array contains duplicates, which saves work.
      size: static length of the result, which is truncated or padded; required under tracing.
      fill_value: value of the padding entries; the smallest element by default.

    Returns:
      A vector.

    Raises:
      NonConcreteBooleanIndexError: an operand is traced and `size` is not given.

    Examples:
      >>> jnp.setxor1d(jnp.array([1, 2]), jnp.array([2, 3])).tolist()
      [1, 3]
    """
    x, y = (ravel(_to_operand(v, "setxor1d")) for v in (ar1, ar2))
    if size is None:
        # NaN equals nothing, so that a NaN of either array is in the result: make each array unique separately first.
        x, y = (x, y) if assume_unique else (unique(x), unique(y))
        return sort(concatenate([x[isin(x, y, invert=True)], y[isin(y, x, invert=True)]]))
    both = concatenate([x, y])
    alone = concatenate([isin(x, y, invert=True), isin(y, x, invert=True)])
    order = argsort(both)
    rows, alone = both[order], alone[order]
    new = concatenate([lax.full((min_dim(1, rows.shape[0]),), True, np.dtype(bool)), lax.ne(rows[1:], rows[:-1])], 0)
    (found,) = nonzero(new & alone, size=size, fill_value=rows.shape[0])
    return _take_starts(rows, found, fill_value, True)
