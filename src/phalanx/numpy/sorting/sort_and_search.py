"""Sorting and searching: `sort`, `argsort`, `lexsort`, `partition`, `top_k`, `searchsorted`, `digitize`."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ArgumentTypeError, ShapeError, UnsupportedArgumentError, dtypes, get_aval
from phalanx.numpy.operands import (
    as_array,
    canonical_axis,
    cast,
    check_choice,
    check_vector,
    flatten_without_axis,
    promote,
    to_operand,
)
from phalanx.numpy.ufuncs.ufunc_table import less, less_equal
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic, static_size
from phalanx.typing import Array, ArrayLike, DimSize, DTypeLike

INT32 = np.dtype(np.int32)


@eager_jit(static_argnames=("k", "axis", "mode", "sorted"))
def top_k(a: ArrayLike, k: int, /, *, axis: int = -1, mode: str = "largest", sorted: bool = True) -> tuple:
    """The k largest or smallest elements along an axis, and their indices.

    Args:
      a: boolean, integer or floating-point array; NaN is the largest value.
      k: number of elements.
      axis: the axis.
      mode: `"largest"` or `"smallest"`.
      sorted: accepted for compatibility; the result is always sorted.

    Returns:
      A pair: the elements, with the most extreme one first, and their indices; ties keep their order.

    Raises:
      ArgumentError: `mode` is unknown, or `k` is negative or larger than the axis.
      AxisError: an axis is out of range.
      DTypeError: `a` is complex.

    Examples:
      >>> [x.tolist() for x in jnp.top_k(jnp.array([3, 1, 2]), 2, mode="smallest")]
      [[1, 2], [1, 2]]
    """
    check_choice("top_k, argument mode", mode, ("largest", "smallest"))
    x, dim = _prepare(a, operator.index(axis), "top_k")
    if mode == "largest":
        return tuple(lax.top_k(x, k, axis=dim))
    # There is no smallest-k primitive. The type rule of `top_k` still checks the operand and `k`.
    lax.top_k_p.abstract_eval(get_aval(x), k=static_size(k), dim=dim)
    ordered = lax.sort_key_val(x, lax.broadcasted_iota(INT32, x.shape, dim), dim)
    values, positions = (lax.slice_in_dim(y, 0, k, axis=dim) for y in ordered)
    return values, positions


def _prepare(a: Array, axis: int | None, name: str) -> tuple[Any, int]:
    return flatten_without_axis(to_operand(a, name), axis, name)


def _check_kind(kind: DTypeLike | tuple[DTypeLike, ...], order: Array, name: str) -> None:
    if order is not None:
        raise UnsupportedArgumentError(
            f"{name}, argument order",
            expected="None, as arrays have no fields",
            got=order,
            fix="leave order out, or sort by several keys with phalanx.numpy.lexsort",
        )
    if kind is not None:
        raise UnsupportedArgumentError(
            f"{name}, argument kind",
            expected="None",
            got=repr(kind),
            fix="leave kind out; pass stable=True or stable=False",
        )


@eager_jit(static_argnames=("axis", "kind", "order", "stable", "descending"))
def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """Sort the elements along an axis in ascending order; NaNs are last.

    Args:
      a: array or scalar; complex numbers are ordered by real part, then imaginary part.
      axis: the axis; None flattens the array first.
      kind: must be None; use `stable`.
      order: must be None; arrays have no fields.
      stable: keep the order of equal elements.
      descending: sort in descending order.

    Returns:
      An array of the shape of `a`; a vector if `axis` is None.

    Raises:
      UnsupportedArgumentError: `kind` or `order` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.sort(jnp.array([3, 1, 2])).tolist()
      [1, 2, 3]
    """
    _check_kind(kind, order, "sort")
    x, axis = _prepare(a, axis, "sort")
    # Descending order reverses the result: `lax.sort` is ascending with NaNs last.
    y = lax.sort(x, dimension=axis, is_stable=stable)
    return lax.rev(y, (axis,)) if descending else y


def index_dtype() -> Any:
    """The dtype of indices: the default integer dtype."""
    return dtypes.canonicalize_dtype(np.int64)


@eager_jit(static_argnames=("axis", "kind", "order", "stable", "descending"))
def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: DTypeLike | None = None,
) -> Array:
    """Indices that sort the elements along an axis.

    Args:
      a, axis, kind, order, stable, descending: as in `sort`.
      dtype: integer dtype of the indices; the default integer dtype if None.

    Returns:
      Indices along the axis, with the shape of `a`.

    Raises:
      ArgumentError: `kind` or `order` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.argsort(jnp.array([3, 1, 2])).tolist()
      [1, 2, 0]
    """
    _check_kind(kind, order, "argsort")
    x, axis = _prepare(a, axis, "argsort")
    dtype = index_dtype() if dtype is None else dtypes.requested_dtype(dtype, "argsort")
    places = lax.broadcasted_iota(dtype, x.shape, axis)
    if not descending:
        return lax.sort((x, places), dimension=axis, is_stable=stable, num_keys=1)[1]
    # Reversed before and after, so that equal elements keep their order.
    x, places = (lax.rev(v, (axis,)) if stable else v for v in (x, places))
    return lax.rev(lax.sort((x, places), dimension=axis, is_stable=stable, num_keys=1)[1], (axis,))


@eager_jit
def sort_complex(a: ArrayLike) -> Array:
    """Sort along the last axis, as complex numbers.

    Args:
      a: numbers; complex ones are ordered by their real parts, then by the imaginary ones.

    Returns:
      Complex numbers in the shape of `a`.

    Examples:
      >>> jnp.sort_complex(jnp.array([2.0, 1.0])).tolist()
      [(1+0j), (2+0j)]
    """
    x = sort(to_operand(a, "sort_complex"), 0 if np.ndim(a) == 1 else -1)
    wide = dtypes.to_inexact_dtype(x.dtype)
    if wide.kind == "c":
        return x
    return cast(x, np.dtype(np.complex128 if wide == np.float64 else np.complex64))


@eager_jit(static_argnames=("axis", "batch_size"))
def lexsort(keys: Any, axis: int = -1, *, batch_size: int = 16) -> Array:
    """Indices that sort by several keys; the last key is the primary one.

    Args:
      keys: a sequence of arrays of one shape, or an array whose first dimension counts them.
      axis: along which to sort.
      batch_size: how many keys are compared at once; more of them are sorted by in turn, as compiling takes long else.

    Returns:
      Positions along the axis, in the shape of a key.

    Raises:
      ArgumentError: there are no keys, or `batch_size` is below 1.
      AxisError: an axis is out of range.
      ShapeError: shapes of keys differ.

    Examples:
      >>> jnp.lexsort((jnp.array([1, 0, 2]), jnp.array([0, 0, 0]))).tolist()
      [1, 0, 2]
    """
    parts = [to_operand(k, "lexsort") for k in keys]
    if not parts:
        raise ArgumentTypeError(
            "lexsort, argument keys", expected="at least one key", got="none", fix="pass a non-empty sequence of keys"
        )
    if len({k.shape for k in parts}) > 1:
        raise ShapeError(
            "lexsort, argument keys",
            expected="keys of one shape",
            got=[k.shape for k in parts],
            fix="broadcast the keys with phalanx.numpy.broadcast_arrays",
        )
    if not parts[0].ndim:
        return as_array(np.zeros((), index_dtype()))
    axis = canonical_axis(axis, parts[0].ndim, "lexsort")
    if batch_size < 1:
        raise ArgumentError(
            "lexsort, argument batch_size",
            expected="at least 1",
            got=batch_size,
            fix="pass batch_size=1 or more, or leave it out to sort by all keys at once",
        )
    places, rest = lax.broadcasted_iota(index_dtype(), parts[0].shape, axis), parts
    while rest:  # least significant keys first: the sort is stable, so that later keys take precedence
        now, rest = rest[:batch_size], rest[batch_size:]
        places, *rest = lax.sort((*now[::-1], places, *rest), axis, num_keys=len(now))[len(now) :]
    return places


@eager_jit(static_argnames=("kth", "axis"))
def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """Partially sort along an axis: element `kth` is in sorted position, smaller ones precede it.

    Args:
      a: an array.
      kth: index along the axis.
      axis: the axis; None flattens the array first.

    Returns:
      An array of the shape of `a`; a vector if `axis` is None.

    Raises:
      ArgumentError: `kth` is out of range.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.partition(jnp.array([3, 1, 2]), 0)[0].item()
      1
    """
    x, axis = _prepare(a, axis, "partition")
    _check_kth(kth, x.shape[axis], "partition")
    # XLA has no selection algorithm on all platforms. A sorted array is partitioned at every position.
    return lax.sort(x, dimension=axis)


@eager_jit(static_argnames=("kth", "axis"))
def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """Indices that partition the elements along an axis.

    Args:
      a, kth, axis: as in `partition`.

    Returns:
      Indices along the axis, as int32.

    Raises:
      ArgumentError: `kth` is out of range.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.argpartition(jnp.array([3, 1, 2]), 0)[0].item()
      1
    """
    x, axis = _prepare(a, axis, "argpartition")
    _check_kth(kth, x.shape[axis], "argpartition")
    return lax.convert_element_type(argsort(x, axis), np.int32)


def _check_kth(kth: int, n: DimSize, name: str) -> None:
    if type(n) is int and not -n <= kth < n:
        raise ArgumentError(
            f"{name}, argument kth",
            expected=f"a number from {-n} to {n - 1}",
            got=kth,
            fix="pass an index within the axis",
        )


@eager_jit(static_argnames=("side", "method"))
def searchsorted(
    a: ArrayLike, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None, *, method: str = "scan"
) -> Array:
    """Indices at which values would be inserted into a sorted vector to keep it sorted.

    Args:
      a: sorted vector.
      v: values to insert, an array or a scalar.
      side: `"left"` for the first suitable index, `"right"` for the last.
      sorter: indices that sort `a`, if it is not sorted.
      method: `"scan"` (binary search), `"scan_unrolled"`, `"sort"` or `"compare_all"`.

    Returns:
      int32 indices from 0 to the length of `a`, with the shape of `v`.

    Raises:
      ArgumentError: `side` or `method` is unknown.
      ShapeError: `a` is not a vector.

    Examples:
      >>> jnp.searchsorted(jnp.array([1, 3, 5]), jnp.array([3, 4])).tolist()
      [1, 2]
    """
    check_choice("searchsorted, argument side", side, ("left", "right"))
    check_choice("searchsorted, argument method", method, ("scan", "scan_unrolled", "sort", "compare_all"))
    x, v = promote("searchsorted", to_operand(a, "searchsorted"), to_operand(v, "searchsorted"))
    check_vector("searchsorted, argument a", x)
    x = x[to_operand(sorter, "searchsorted")] if sorter is not None else x
    n = x.shape[0]
    shape = v.shape
    if type(n) is int and n == 0:
        return lax.full(shape, 0, INT32)
    if method == "compare_all":
        # The insertion point is the number of elements that precede the value.
        left = lax.broadcast_in_dim(x, (n, *shape), (0,))
        right = lax.broadcast_in_dim(v, (n, *shape), tuple(range(1, len(shape) + 1)))
        return lax.reduce_sum(cast(_before(left, right, side), INT32), (0,))
    if method == "sort":
        return _search_by_sorting(x, v, side)
    return _binary_search(x, v, side, method == "scan_unrolled")


def _before(x: Array, v: Array, side: str) -> Any:
    """Whether `x` precedes the insertion point of `v`; NaN is the largest value."""
    plain = less(x, v) if side == "left" else less_equal(x, v)
    if not dtypes.issubdtype(x.dtype, np.inexact):
        return plain
    # All numbers precede NaN; another NaN does so for the side "right" only.
    at_nan = lax.eq(x, x) if side == "left" else lax.full(np.shape(x), True, np.dtype(bool))
    return lax.select_n(lax.ne(v, v), plain, at_nan)


def _binary_search(x: Array, v: Array, side: str, unroll: bool) -> Any:
    n = x.shape[0]
    shape = v.shape
    low, high = lax.full(shape, 0, INT32), lax.full(shape, n, INT32)
    levels = 31 if is_symbolic(n) else max(1, int(n).bit_length())  # enough for any int32 size

    def halve(_: Any, bounds: tuple) -> tuple:
        """Halve the interval [low, high) of candidates."""
        low, high = bounds
        middle = lax.shift_right_logical(low + high, lax.full(shape, 1, INT32))
        open_ = lax.lt(low, high)
        before = _before(x.at[middle].get(mode="clip"), v, side)
        # Elements that have converged (low == high) do not move any more.
        return lax.select_n(before & open_, low, middle + 1), lax.select_n(~before & open_, high, middle)

    return lax.fori_loop(0, levels, halve, (low, high), unroll=unroll)[1]


def _search_by_sorting(x: Array, v: Array, side: str) -> Any:
    """Search by sorting both vectors together: the insertion point is the rank in the union minus the rank in `v`."""
    n = x.shape[0]
    flat = lax.reshape(v, (math.prod(v.shape),))
    m = flat.shape[0]
    # The sort is stable: of equal elements, the ones from the first operand get the lower ranks.
    first, second = (flat, x) if side == "left" else (x, flat)
    order = argsort(lax.concatenate([first, second], 0), 0)
    ranks = lax.full((n + m,), 0, INT32).at[order].set(lax.iota(INT32, n + m))
    # Ranks of the values among themselves.
    own = lax.full((m,), 0, INT32).at[argsort(flat, 0)].set(lax.iota(INT32, m))
    return lax.reshape((ranks[:m] if side == "left" else ranks[n:]) - own, v.shape)


def digitize(
    x: ArrayLike, bins: ArrayLike | Sequence[ArrayLike], right: bool = False, *, method: str | None = None
) -> Array:
    """Index of the bin to which each element belongs.

    Args:
      x: real numbers, of any shape.
      bins: monotonically increasing or decreasing bin edges.
      right: whether the bins include their right edge.
      method: as in `searchsorted`.

    Returns:
      int32 with the shape of `x`: 0 before the first edge, `len(bins)` after the last.

    Raises:
      ShapeError: `bins` is not a vector.

    Examples:
      >>> jnp.digitize(jnp.array([0.5, 1.5]), jnp.array([0.0, 1.0, 2.0])).tolist()
      [1, 2]
    """
    return _digitize(x, bins, bool(right), method or "scan")


@eager_jit(static_argnames=("right", "method"))
def _digitize(x: Array, bins: ArrayLike | Sequence[ArrayLike], right: bool, method: str) -> Any:
    x, bins = to_operand(x, "digitize"), to_operand(bins, "digitize")
    check_vector("digitize, argument bins", bins)
    if bins.shape[0] == 0:
        return lax.full(x.shape, 0, INT32)
    side = "left" if right else "right"
    # Decreasing edges are searched in reverse; which case holds may be known only at run time.
    up = searchsorted(bins, x, side, method=method)
    down = bins.shape[0] - searchsorted(lax.rev(bins, (0,)), x, side, method=method)
    return lax.select_n(bins[0] <= bins[-1], down, up)
