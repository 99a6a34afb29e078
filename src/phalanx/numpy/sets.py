"""Sets: unique elements, unions, differences, membership.

The number of results depends on the values, so under tracing a bound on it, `size`, must be given.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.config import state
from phalanx.core.errors import ConcretizationTypeError
from phalanx.numpy.creation import array
from phalanx.numpy.joining import concatenate
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import (
    as_array,
    broadcast_to_shape,
    canonical_axis,
    cast,
    concrete,
    host_operand,
    operand,
    promote,
)
from phalanx.numpy.shapes import moveaxis, ravel
from phalanx.numpy.sorting import argsort, sort
from phalanx.numpy.taking import nonzero
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_symbolic, min_dim


def _listed(x: Any, name: str) -> Any:
    return host_operand(np.asarray(x) if isinstance(x, list | tuple) else x, name)


class UniqueAllResult(NamedTuple):
    """What `unique_all` gives."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    """What `unique_counts` gives."""

    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    """What `unique_inverse` gives."""

    values: Any
    inverse_indices: Any


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None, *, equal_nan: bool = True, size: int | None = None, fill_value: Any = None,
    sorted: bool = True,
) -> Any:  # fmt: skip
    """The different elements, or slices along an axis, in order.

    Args:
      ar: an array or nested lists of numbers.
      return_index: give the position of the first of each too.
      return_inverse: give for each element of `ar` its position in the result too.
      return_counts: give the number of each too.
      axis: the axis; None to ravel first.
      equal_nan: whether NaN equals NaN.
      size: how many to give; needed where `ar` is traced.
      fill_value: for places beyond the last, the smallest element by default.
      sorted: whether the order matters; the result is in order anyway.

    Returns:
      The elements or slices, as many as differ or `size`; in a tuple with what the flags ask for, in their order.

    Raises:
      AxisError: there is no such axis.
      ConcretizationTypeError: `ar` is traced and `size` is not given.

    Examples:
      >>> jnp.unique(jnp.array([3, 1, 3])).tolist()
      [1, 3]
    """
    x = _listed(ar, "unique")
    if size is None and concrete(x) is None:
        raise ConcretizationTypeError(
            "unique, the number of results", expected="an array that is known while tracing, as it decides the shape",
            got=x.describe() if hasattr(x, "describe") else str(x), mend="give size=, a bound on the number",
        )  # fmt: skip
    if size is None and state.trace is not None and isinstance(x, np.ndarray):
        return _unique_on_host(x, return_index, return_inverse, return_counts, axis, equal_nan)
    x = as_array(x)
    flat = axis is None
    shape = x.shape
    x, axis = (ravel(x), 0) if flat else (x, canonical_axis(axis, x.ndim, "unique"))
    rows, mask, order, group = _grouped(x, axis, equal_nan)
    (starts,) = nonzero(mask, size=size, fill_value=rows.shape[0])
    out = _chosen(rows, starts, fill_value, size is not None)
    results = [moveaxis(out, 0, axis)]
    if return_index:
        results.append(_first_of_each(order, group, starts))
    if return_inverse:
        inverse = lax.full(group.shape, 0, group.dtype).at[order].set(group)
        results.append(inverse.reshape(shape) if flat else inverse)
    if return_counts:
        results.append(_counted(starts, rows.shape[0]))
    return results[0] if len(results) == 1 else tuple(results)


def _unique_on_host(x: np.ndarray, *options: Any) -> Any:
    """The different elements of NumPy data, whose number is so known while tracing."""
    *wanted, axis, equal_nan = options
    unique: Any = np.unique  # NumPy's stubs know literal flags only
    found = unique(x, *wanted, axis=axis, equal_nan=equal_nan)
    if not isinstance(found, tuple):
        return as_array(found)
    return tuple(array(v) for v in found)


@eager_program(static_argnames=("axis", "equal_nan"))
def _grouped(x: Any, axis: int, equal_nan: bool) -> tuple:
    """The slices along an axis in order, where a new one begins, the order, and the number of each one's group."""
    x = moveaxis(x, axis, 0)
    n = x.shape[0]
    dtype = dtypes.canonicalize_dtype(np.int64)
    if x.ndim == 1:
        order = argsort(x)
        rows = x[order]
        keys = lax.reshape(rows, (n, 1))
    else:
        flat = lax.reshape(x, (n, math.prod(x.shape[1:])))
        columns = [flat[:, i] for i in range(flat.shape[1])]
        places = lax.iota(dtype, n)
        order = lax.sort((*columns, places), num_keys=max(len(columns), 1))[-1] if columns else places
        rows = x[order]
        keys = flat[order]
    if n == 0:
        return rows, lax.full((0,), False, np.dtype(bool)), order, lax.full((0,), 0, dtype)
    before, after = keys[:-1], keys[1:]
    differ = lax.ne(before, after)
    if equal_nan and dtypes.issubdtype(x.dtype, np.inexact):
        differ = differ & ~(lax.ne(before, before) & lax.ne(after, after))
    new = lax.reduce_or(differ, (1,))
    mask = concatenate([lax.full((min_dim(n, 1),), True, np.dtype(bool)), new], 0)
    group = lax.cumsum(cast(mask, dtype), axis=0) - 1
    return rows, mask, order, group


@eager_program(static_argnames=("padded",))
def _chosen(rows: Any, starts: Any, fill_value: Any, padded: bool) -> Any:
    fill = None if fill_value is None else cast(operand(fill_value, "unique"), rows.dtype)
    if not rows.shape[0]:
        fill = 0 if fill is None else fill
        return lax.full((starts.shape[0], *rows.shape[1:]), fill, rows.dtype) if padded else rows
    found = rows.at[starts].get(mode="clip")
    if not padded:
        return found
    fill = found[:1] if fill is None else fill
    beyond = lax.reshape(lax.ge(starts, cast(rows.shape[0], starts.dtype)), (starts.shape[0],) + (1,) * (rows.ndim - 1))
    return where(beyond, fill, found)


@eager_program
def _first_of_each(order: Any, group: Any, starts: Any) -> Any:
    """The position of the first slice of each group; places beyond repeat the first group's."""
    if not order.shape[0]:
        return starts
    return order.at[where(starts >= order.shape[0], 0, starts)].get(mode="clip")


@eager_program(static_argnames=("n",))
def _counted(starts: Any, n: int) -> Any:
    ends = concatenate([starts[1:], lax.full((min_dim(1, starts.shape[0]),), n, starts.dtype)], 0)
    return ends - starts


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAllResult:
    """The different elements, their first positions, the inverse and their numbers; as `unique`, NaN differing.

    Args:
      x: an array, raveled.
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


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCountsResult:
    """The different elements and their numbers.

    Args:
      x: an array, raveled; NaN differs from NaN.
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


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverseResult:
    """The different elements and for each element its position among them.

    Args:
      x: an array; NaN differs from NaN.
      size, fill_value: as in `unique`.

    Returns:
      A UniqueInverseResult (values, inverse_indices), the latter of the shape of `x`.

    Raises:
      ConcretizationTypeError: `x` is traced and `size` is not given.

    Examples:
      >>> jnp.unique_inverse(jnp.array([3, 1, 3])).inverse_indices.tolist()
      [1, 0, 1]
    """
    return UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The different elements.

    Args:
      x: an array, raveled; NaN differs from NaN.
      size, fill_value: as in `unique`.

    Returns:
      A vector in ascending order.

    Raises:
      ConcretizationTypeError: `x` is traced and `size` is not given.

    Examples:
      >>> jnp.unique_values(jnp.array([3, 1, 3])).tolist()
      [1, 3]
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The elements that are in one of two arrays.

    Args:
      ar1, ar2: arrays, raveled.
      size, fill_value: as in `unique`.

    Returns:
      A vector in ascending order, nothing twice.

    Raises:
      ConcretizationTypeError: an operand is traced and `size` is not given.

    Examples:
      >>> jnp.union1d(jnp.array([1, 2]), jnp.array([2, 3])).tolist()
      [1, 2, 3]
    """
    both = concatenate([ravel(_listed(ar1, "union1d")), ravel(_listed(ar2, "union1d"))])
    return unique(both, size=size, fill_value=fill_value)


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"
) -> Any:
    """Whether each element is among others.

    Args:
      element: an array or nested lists of numbers.
      test_elements: the others.
      assume_unique: a promise that nothing stands twice; the result is the same.
      invert: whether it is not among them.
      method: `"auto"`, `"compare_all"`, `"binary_search"` or `"sort"`.

    Returns:
      Booleans of the shape of `element`.

    Examples:
      >>> jnp.isin(jnp.array([1, 2, 3]), jnp.array([2])).tolist()
      [False, True, False]
    """
    return _isin(_listed(element, "isin"), _listed(test_elements, "isin"), bool(invert), method)


@eager_program(static_argnames=("invert", "method"))
def _isin(x: Any, among: Any, invert: bool, method: str) -> Any:
    x, among = promote("isin", x, among)
    shape = x.shape
    flat, among = ravel(x), ravel(among)
    m = among.shape[0]
    if m == 0:
        return lax.full(shape, invert, np.dtype(bool))
    if method in ("compare_all",) or (method == "auto" and not is_symbolic(m) and m <= 64):
        left = lax.broadcast_in_dim(flat, (flat.shape[0], m), (0,))
        found = lax.reduce_or(lax.eq(left, broadcast_to_shape(among, (flat.shape[0], m))), (1,))
    else:
        from phalanx.numpy.sorting import searchsorted

        ordered = sort(among)
        place = searchsorted(ordered, flat)
        found = lax.eq(ordered.at[place].get(mode="clip"), flat)
    found = lax.bitwise_not(found) if invert else found
    return lax.reshape(found, shape)


def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False, *, size: int | None = None,
    fill_value: Any = None,
) -> Any:  # fmt: skip
    """The elements that are in both of two arrays, in order.

    Args:
      ar1, ar2: arrays or nested lists of numbers, raveled.
      assume_unique: a promise that nothing stands twice in either, which needs no check.
      return_indices: give the positions in both too.
      size: how many to give; needed under tracing.
      fill_value: for places beyond the last.

    Returns:
      A vector in ascending order; with `return_indices` in a tuple with the positions in both.

    Raises:
      ConcretizationTypeError: an operand is traced and `size` is not given.

    Examples:
      >>> jnp.intersect1d(jnp.array([1, 2, 3]), jnp.array([2, 3, 4])).tolist()
      [2, 3]
    """
    x, y = (ravel(_listed(v, "intersect1d")) for v in (ar1, ar2))
    x, y = promote("intersect1d", x, y)
    x, y = (array(v) if not hasattr(v, "aval") else v for v in (x, y))
    order, first = _common(x, y)
    (found,) = nonzero(first, size=size, fill_value=first.shape[0])
    return _intersection(x, y, order, found, fill_value, return_indices, size is not None)


@eager_program
def _common(x: Any, y: Any) -> tuple:
    """The order of x, and where in it an element begins that y has too."""
    order = argsort(x)
    rows = x[order]
    n = rows.shape[0]
    new = concatenate([lax.full((min_dim(1, n),), True, np.dtype(bool)), lax.ne(rows[1:], rows[:-1])], 0)
    return order, new & _isin(rows, y, False, "auto")


@eager_program(static_argnames=("return_indices", "padded"))
def _intersection(x: Any, y: Any, order: Any, found: Any, fill_value: Any, return_indices: bool, padded: bool) -> Any:
    n = order.shape[0]
    if n == 0:
        values = _chosen(x, found, fill_value, padded)
        return (values, found, found) if return_indices else values
    beyond = lax.ge(found, cast(n, found.dtype))
    places = order.at[found].get(mode="clip")
    values = x[places]
    if padded:
        fill = where(beyond, 0, values)[:1] if fill_value is None else cast(operand(fill_value, "intersect1d"), x.dtype)
        values = where(beyond, fill, values)
    if not return_indices:
        return values
    from phalanx.numpy.sorting import searchsorted

    other = argsort(y)
    in_y = other[searchsorted(y[other], x[places])]
    return values, where(beyond, n, places), where(beyond, y.shape[0], in_y)


def setdiff1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """The elements of the first array that are not in the second, in order.

    Args:
      ar1, ar2: arrays, raveled.
      assume_unique: nothing stands twice in `ar1`; its order is then kept.
      size: how many to give; needed under tracing.
      fill_value: for places beyond the last, 0 by default.

    Returns:
      A vector.

    Raises:
      ConcretizationTypeError: an operand is traced and `size` is not given.

    Examples:
      >>> jnp.setdiff1d(jnp.array([1, 2, 3]), jnp.array([2])).tolist()
      [1, 3]
    """
    x = ravel(_listed(ar1, "setdiff1d"))
    if size is None:
        x = x if assume_unique else unique(x)
        return x[isin(x, ar2, invert=True)]
    rows, mask = (x, True) if assume_unique else _grouped(x, 0, True)[:2]
    (found,) = nonzero(isin(rows, ar2, invert=True) & mask, size=size, fill_value=rows.shape[0])
    return _chosen(as_array(rows), found, 0 if fill_value is None else fill_value, True)


def setxor1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """The elements that are in just one of two arrays, in order.

    Args:
      ar1, ar2: arrays, raveled.
      assume_unique: a promise that nothing stands twice in either, which needs no check.
      size: how many to give; needed under tracing.
      fill_value: for places beyond the last, the smallest element by default.

    Returns:
      A vector.

    Raises:
      NonConcreteBooleanIndexError: an operand is traced and `size` is not given.

    Examples:
      >>> jnp.setxor1d(jnp.array([1, 2]), jnp.array([2, 3])).tolist()
      [1, 3]
    """
    x, y = (ravel(_listed(v, "setxor1d")) for v in (ar1, ar2))
    if size is None:
        # Each by itself first: NaN equals nothing, and so one that is in both arrays is alone in each.
        x, y = (x, y) if assume_unique else (unique(x), unique(y))
        return sort(concatenate([x[isin(x, y, invert=True)], y[isin(y, x, invert=True)]]))
    both = concatenate([x, y])
    alone = concatenate([isin(x, y, invert=True), isin(y, x, invert=True)])
    order = argsort(both)
    rows, alone = both[order], alone[order]
    new = concatenate([lax.full((min_dim(1, rows.shape[0]),), True, np.dtype(bool)), lax.ne(rows[1:], rows[:-1])], 0)
    (found,) = nonzero(new & alone, size=size, fill_value=rows.shape[0])
    return _chosen(rows, found, fill_value, True)
