"""Sorting and searching: sort, argsort, lexsort, partition, searchsorted, digitize.

Built on `lax.sort` and `lax.top_k`.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.numpy.operands import as_array, canonical_axis, cast, operand, promote
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_symbolic, static_size

INT32 = np.dtype(np.int32)


@eager_program(static_argnames=("k", "axis", "mode", "sorted"))
def top_k(a: Any, k: int, /, *, axis: int = -1, mode: str = "largest", sorted: bool = True) -> tuple:
    """The largest or smallest elements along an axis, and where they are.

    Args:
      a: a boolean, integer or floating array; NaN counts as largest.
      k: how many.
      axis: the axis.
      mode: `"largest"` or `"smallest"`.
      sorted: whether they must be in order, which they are in any case.

    Returns:
      The elements, the largest or smallest first, and their positions; of equal ones the first comes first.

    Raises:
      ArgumentError: there is no such mode, or `k` is larger than the axis or negative.
      AxisError: there is no such axis.
      DTypeError: `a` is complex.

    Examples:
      >>> [x.tolist() for x in jnp.top_k(jnp.array([3, 1, 2]), 2, mode="smallest")]
      [[1, 2], [1, 2]]
    """
    if mode not in ("largest", "smallest"):
        raise ArgumentError("top_k, argument mode", expected="'largest' or 'smallest'", got=repr(mode),
                            mend="choose one of them")  # fmt: skip
    x, dim = _prepared(a, operator.index(axis), "top_k")
    if mode == "largest":
        return lax.top_k(x, k, axis=dim)
    # The most and the least of the same elements: what is no array of numbers in order is refused alike.
    lax.top_k_p.result(aval_of(x), k=static_size(k), dim=dim)
    ordered = lax.sort_key_val(x, lax.broadcasted_iota(INT32, x.shape, dim), dim)
    values, positions = (lax.slice_in_dim(y, 0, k, axis=dim) for y in ordered)
    return values, positions


def _prepared(a: Any, axis: int | None, name: str) -> tuple[Any, int]:
    x = operand(a, name)
    if axis is None:
        return (lax.reshape(x, (math.prod(x.shape),)) if x.ndim != 1 else x), 0
    return x, canonical_axis(axis, x.ndim, name)


def _refuse_kind(kind: Any, order: Any, name: str) -> None:
    if order is not None:
        raise ArgumentError(
            f"{name}, argument order", expected="None, as arrays have no fields", got=order, mend="leave it out"
        )
    if kind is not None:
        raise ArgumentError(f"{name}, argument kind", expected="None", got=repr(kind), mend="use stable=")


@eager_program(static_argnames=("axis", "kind", "order", "stable", "descending"))
def sort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    """The elements in order along an axis, NaN last.

    Args:
      a: an array or a scalar; complex numbers are ordered by their real parts first.
      axis: the axis; None to ravel first.
      kind: must be None.
      order: must be None.
      stable: keep the order of equal elements.
      descending: the largest first.

    Returns:
      An array of the shape of `a`, or a vector where no axis is given.

    Raises:
      ArgumentError: `kind` or `order` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.sort(jnp.array([3, 1, 2])).tolist()
      [1, 2, 3]
    """
    _refuse_kind(kind, order, "sort")
    x, axis = _prepared(a, axis, "sort")
    y = lax.sort(x, dimension=axis, is_stable=stable)
    return lax.rev(y, (axis,)) if descending else y


def index_dtype() -> Any:
    """The dtype of positions: the default integer."""
    return dtypes.canonicalize_dtype(np.int64)


@eager_program(static_argnames=("axis", "kind", "order", "stable", "descending"))
def argsort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: Any = None,
) -> Any:
    """The positions that put the elements in order along an axis.

    Args:
      a, axis, kind, order, stable, descending: as in `sort`.
      dtype: an integer dtype for the positions, the default one if None.

    Returns:
      Positions along the axis, in the shape of `a`.

    Raises:
      ArgumentError: `kind` or `order` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.argsort(jnp.array([3, 1, 2])).tolist()
      [1, 2, 0]
    """
    _refuse_kind(kind, order, "argsort")
    x, axis = _prepared(a, axis, "argsort")
    dtype = index_dtype() if dtype is None else dtypes.requested_dtype(dtype, "argsort")
    places = lax.broadcasted_iota(dtype, x.shape, axis)
    if not descending:
        return lax.sort((x, places), dimension=axis, is_stable=stable, num_keys=1)[1]
    # Reversed before and after, so that equal elements keep their order.
    x = lax.rev(x, (axis,)) if stable else x
    places = lax.rev(places, (axis,)) if stable else places
    return lax.rev(lax.sort((x, places), dimension=axis, is_stable=stable, num_keys=1)[1], (axis,))


@eager_program
def sort_complex(a: Any) -> Any:
    """The elements in order along the last axis, as complex numbers.

    Args:
      a: numbers; complex ones are ordered by their real parts, then by the imaginary ones.

    Returns:
      Complex numbers in the shape of `a`.

    Examples:
      >>> jnp.sort_complex(jnp.array([2.0, 1.0])).tolist()
      [(1+0j), (2+0j)]
    """
    x = sort(operand(a, "sort_complex"), 0 if np.ndim(a) == 1 else -1)
    wide = dtypes.to_inexact_dtype(x.dtype)
    if wide.kind == "c":
        return x
    return cast(x, np.dtype(np.complex128 if wide == np.float64 else np.complex64))


@eager_program(static_argnames=("axis", "batch_size"))
def lexsort(keys: Any, axis: int = -1, *, batch_size: int = 16) -> Any:
    """The positions that sort by several keys, the last being the most important.

    Args:
      keys: a sequence of arrays of one shape, or an array whose first dimension counts them.
      axis: along which to sort.
      batch_size: how many keys are compared at once; more of them are sorted by in turn, as compiling takes long else.

    Returns:
      Positions along the axis, in the shape of a key.

    Raises:
      ArgumentError: there are no keys, or `batch_size` is below 1.
      AxisError: there is no such axis.
      ShapeError: shapes of keys differ.

    Examples:
      >>> jnp.lexsort((jnp.array([1, 0, 2]), jnp.array([0, 0, 0]))).tolist()
      [1, 0, 2]
    """
    parts = [
        operand(k, "lexsort")
        for k in (list(keys) if not hasattr(keys, "aval") else [keys[i] for i in range(keys.shape[0])])
    ]
    if not parts:
        raise ArgumentError("lexsort, argument keys", expected="at least one key", got="none", mend="give one")
    if len({k.shape for k in parts}) > 1:
        raise ShapeError(
            "lexsort, argument keys", expected="keys of one shape", got=[k.shape for k in parts], mend="broadcast"
        )
    if not parts[0].ndim:
        return as_array(np.zeros((), index_dtype()))
    axis = canonical_axis(axis, parts[0].ndim, "lexsort")
    if batch_size < 1:
        raise ArgumentError("lexsort, argument batch_size", expected="at least 1", got=batch_size, mend="leave it out")
    places, rest = lax.broadcasted_iota(index_dtype(), parts[0].shape, axis), parts
    while rest:  # The least important first; what is sorted later keeps their order among equals.
        now, rest = rest[:batch_size], rest[batch_size:]
        places, *rest = lax.sort((*now[::-1], places, *rest), axis, num_keys=len(now))[len(now) :]
    return places


@eager_program(static_argnames=("kth", "axis"))
def partition(a: Any, kth: int, axis: int = -1) -> Any:
    """The elements along an axis with the k-th in its sorted place, smaller ones before it.

    Args:
      a: an array.
      kth: a position along the axis.
      axis: the axis; None to ravel first.

    Returns:
      An array of the shape of `a`, or a vector where no axis is given.

    Raises:
      ArgumentError: there is no such position.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.partition(jnp.array([3, 1, 2]), 0)[0].item()
      1
    """
    x, axis = _prepared(a, axis, "partition")
    _check_kth(kth, x.shape[axis], "partition")
    return lax.sort(x, dimension=axis)


@eager_program(static_argnames=("kth", "axis"))
def argpartition(a: Any, kth: int, axis: int = -1) -> Any:
    """The positions that give `partition`.

    Args:
      a, kth, axis: as in `partition`.

    Returns:
      Positions along the axis, in the default integer dtype.

    Raises:
      ArgumentError: there is no such position.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.argpartition(jnp.array([3, 1, 2]), 0)[0].item()
      1
    """
    x, axis = _prepared(a, axis, "argpartition")
    _check_kth(kth, x.shape[axis], "argpartition")
    return argsort(x, axis)


def _check_kth(kth: int, n: Any, name: str) -> None:
    if type(n) is int and not -n <= kth < n:
        raise ArgumentError(f"{name}, argument kth", expected=f"a number from {-n} to {n - 1}", got=kth, mend="cut it")


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Any:
    """Where elements would be inserted into a sorted vector to keep it sorted.

    Args:
      a: a sorted vector.
      v: what to insert, an array or a scalar.
      side: `"left"` to come before equal elements, `"right"` to come after.
      sorter: positions that sort `a`, if it is not sorted.
      method: `"scan"` (binary search), `"scan_unrolled"`, `"sort"` or `"compare_all"`.

    Returns:
      int32 positions from 0 to the length of `a`, in the shape of `v`.

    Raises:
      ArgumentError: there is no such side or method.
      ShapeError: `a` is no vector.

    Examples:
      >>> jnp.searchsorted(jnp.array([1, 3, 5]), jnp.array([3, 4])).tolist()
      [1, 2]
    """
    if side not in ("left", "right"):
        raise ArgumentError("searchsorted, argument side", expected="'left' or 'right'", got=repr(side), mend="use one")
    if method not in ("scan", "scan_unrolled", "sort", "compare_all"):
        raise ArgumentError(
            "searchsorted, argument method", expected="'scan', 'scan_unrolled', 'sort' or 'compare_all'",
            got=repr(method), mend="leave it out",
        )  # fmt: skip
    return _searchsorted(a, v, sorter, side, method)


@eager_program(static_argnames=("side", "method"))
def _searchsorted(a: Any, v: Any, sorter: Any, side: str, method: str) -> Any:
    x, v = promote("searchsorted", operand(a, "searchsorted"), operand(v, "searchsorted"))
    if x.ndim != 1:
        raise ShapeError("searchsorted, argument a", expected="a vector", got=x.shape, mend="ravel it")
    x = x[operand(sorter, "searchsorted")] if sorter is not None else x
    n = x.shape[0]
    shape = v.shape
    if type(n) is int and n == 0:
        return lax.full(shape, 0, INT32)
    if method == "compare_all":
        left = lax.broadcast_in_dim(x, (n, *shape), (0,))
        right = lax.broadcast_in_dim(v, (n, *shape), tuple(range(1, len(shape) + 1)))
        before = _before(left, right, side)
        return lax.reduce_sum(cast(before, INT32), (0,))
    if method == "sort":
        return _by_sorting(x, v, side)
    return _binary_search(x, v, side, method == "scan_unrolled")


def _before(x: Any, v: Any, side: str) -> Any:
    """Whether an element of `a` stands before the place of `v`, NaN being the largest."""
    from phalanx.numpy.ufuncs import less, less_equal

    plain = less(x, v) if side == "left" else less_equal(x, v)
    if not dtypes.issubdtype(x.dtype, np.inexact):
        return plain
    nan_v = lax.ne(v, v)
    nan_x = lax.ne(x, x)
    at_nan = lax.bitwise_not(nan_x) if side == "left" else lax.full(np.shape(x), True, np.dtype(bool))
    return lax.select_n(nan_v, plain, at_nan)


def _binary_search(x: Any, v: Any, side: str, unroll: bool) -> Any:
    n = x.shape[0]
    shape = v.shape
    low, high = lax.full(shape, 0, INT32), lax.full(shape, n, INT32)
    levels = 31 if is_symbolic(n) else max(1, int(n).bit_length())  # as many as int32 positions may need

    if unroll:
        bounds = (low, high)
        for _ in range(levels):
            bounds = _step_to_end(bounds, x, v, side, shape)
        return bounds[1]

    return lax.fori_loop(0, levels, lambda i, bounds: _step_to_end(bounds, x, v, side, shape), (low, high))[1]


def _step_to_end(bounds: tuple, x: Any, v: Any, side: str, shape: tuple) -> tuple:
    """One halving of the interval [low, high) of candidates."""
    low, high = bounds
    middle = lax.shift_right_logical(low + high, lax.full(shape, 1, INT32))
    open_ = lax.lt(low, high)
    before = _before(x.at[middle].get(mode="clip"), v, side)
    low_next = lax.select_n(before & open_, low, middle + 1)
    high_next = lax.select_n(~before & open_, high, middle)
    return low_next, high_next


def _by_sorting(x: Any, v: Any, side: str) -> Any:
    """Sort the two together: the place of an element is its rank less that among the elements themselves."""
    n = x.shape[0]
    flat = lax.reshape(v, (math.prod(v.shape),))
    m = flat.shape[0]
    first, second = (flat, x) if side == "left" else (x, flat)
    both = lax.concatenate([first, second], 0)
    order = argsort(both, 0)
    ranks = lax.full((n + m,), 0, INT32).at[order].set(lax.iota(INT32, n + m))
    own = lax.full((m,), 0, INT32).at[argsort(flat, 0)].set(lax.iota(INT32, m))
    found = (ranks[:m] if side == "left" else ranks[n:]) - own
    return lax.reshape(found, v.shape)


def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Any:
    """The number of the bin that each element falls into.

    Args:
      x: real numbers, of any shape.
      bins: the borders, increasing or decreasing.
      right: whether a bin holds its right border.
      method: as in `searchsorted`.

    Returns:
      int32 in the shape of `x`: 0 before the first border, their number after the last.

    Raises:
      ShapeError: `bins` is no vector.

    Examples:
      >>> jnp.digitize(jnp.array([0.5, 1.5]), jnp.array([0.0, 1.0, 2.0])).tolist()
      [1, 2]
    """
    return _digitize(x, bins, bool(right), method or "scan")


@eager_program(static_argnames=("right", "method"))
def _digitize(x: Any, bins: Any, right: bool, method: str) -> Any:
    x, bins = operand(x, "digitize"), operand(bins, "digitize")
    if bins.ndim != 1:
        raise ShapeError("digitize, argument bins", expected="a vector", got=bins.shape, mend="ravel it")
    if bins.shape[0] == 0:
        return lax.full(x.shape, 0, INT32)
    side, other = ("left", "right") if right else ("right", "left")
    up = _searchsorted(bins, x, None, side, method)
    down = bins.shape[0] - _searchsorted(lax.rev(bins, (0,)), x, None, other, method)
    return lax.select_n(bins[0] <= bins[-1], down, up)
