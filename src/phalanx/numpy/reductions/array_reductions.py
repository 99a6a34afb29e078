"""Reductions over axes: `sum`, `prod`, `max`, `any`, `argmax`, `cumsum` and their relatives.

Functions that combine elements share `_reduce`. Sums and products of half-precision numbers are accumulated in
float32. Axes may include names of mapped axes, over which a collective reduces (`lax.psum`, `lax.pmax`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, dtypes
from phalanx.lax.collectives.named_axes import split_axis_names
from phalanx.numpy.operands import (
    as_array,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    cast,
    flatten_without_axis,
    refuse_out,
    to_numpy_scalar,
    to_operand,
)
from phalanx.numpy.ufuncs.ufunc_implementations import to_bool
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, Axis, DTypeLike

_static = eager_jit(static_argnames=("axis", "dtype", "out", "keepdims", "promote_integers", "ddof", "correction"))
_FLOAT32 = np.dtype(np.float32)


def is_half(dtype: DTypeLike) -> bool:
    """Whether a dtype is a floating-point dtype of at most 16 bits, whose sums are accumulated in float32."""
    return dtype.itemsize <= 2 and dtype.kind in "fV" and dtypes.issubdtype(dtype, np.floating)


def restore_reduced_dims(x: Array, shape: tuple, axes: tuple) -> Array:
    """Restore the reduced dimensions of `x` with size 1, given the shape before the reduction."""
    return lax.reshape(x, tuple(1 if i in axes else d for i, d in enumerate(shape)))


def apply_where_mask(x: Array, where: ArrayLike | None, fill: ArrayLike, name: str) -> Array:
    """Replace the elements that a `where` mask excludes by `fill`, the neutral element of the reduction."""
    if where is None:
        return x
    mask = to_bool(to_operand(where, f"{name}, argument where"))
    return lax.select_n_p(broadcast_to_shape(mask, x.shape), to_numpy_scalar(fill, x.dtype), x)


_COLLECTIVES = {"sum": lax.psum, "max": lax.pmax, "min": lax.pmin, "any": lax.pmax, "all": lax.pmin}


def _reduce(
    name: str,
    a: Array,
    axis: Axis,
    dtype: np.dtype,
    out: None,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
    op: Callable,
    neutral: Callable,
    combine: Callable | None,
    promote: bool = False,
) -> Any:
    """Common implementation of the reductions.

    Args:
      name, a, axis, dtype, out, keepdims, initial, where: as in the public function.
      op: reduces an array over dimensions.
      neutral: the neutral element for a dtype.
      combine: merges the result with `initial`.
      promote: compute integers in the default integer dtype if that is wider.
    """
    refuse_out(out, name)
    x = to_operand(a, name)
    own = x.dtype
    if dtype is not None:
        dtype = dtypes.requested_dtype(dtype, name)
        x = cast(x, dtype)
    # Small integers overflow in sums and products: as in NumPy, they are widened to the default integer dtype.
    elif promote and own.kind in "biu":
        wide = dtypes.canonicalize_dtype(np.uint64 if own.kind == "u" else np.int64)
        x = cast(x, wide) if wide.itemsize > own.itemsize or own.kind == "b" else x
    result = x.dtype
    # Half-precision accumulation would lose small terms; who asks for it with `dtype` gets it.
    if dtype is None and is_half(result) and name in ("sum", "prod"):
        x = cast(x, _FLOAT32)
    x = apply_where_mask(x, where, neutral(x.dtype), name)
    axis, names = split_axis_names(axis) if name in _COLLECTIVES else (axis, ())
    axes = canonical_axes(axis, x.ndim, name)
    # An extremum of no elements is undefined, unless `initial` gives it.
    if initial is None and name in ("max", "min"):
        _check_not_empty(name, x.shape, axes)
    # Over named axes only, there is nothing to reduce on this device.
    y = op(x, axes) if axes else (as_array(x))
    y = _COLLECTIVES[name](y, names) if names else y
    if keepdims and axes:
        y = restore_reduced_dims(y, x.shape, axes)
    if initial is not None:
        y = combine(y, cast(initial, y.dtype) if hasattr(initial, "dtype") else to_numpy_scalar(initial, y.dtype))
    return cast(y, result)


def _check_not_empty(name: str, shape: tuple, axes: tuple) -> None:
    for i in axes:
        if type(shape[i]) is int and shape[i] == 0:
            raise ShapeError(
                name,
                expected="at least one element along the reduced dimensions",
                got=f"an array of shape {shape}",
                fix="pass initial=, the result for no elements",
            )


def _with_boolean_case(numbers: Callable, booleans: Callable) -> Callable:
    """An operation with another implementation for booleans: StableHLO adds and multiplies numbers only."""
    return lambda x, *rest: (booleans if x.dtype == np.bool_ else numbers)(x, *rest)


_sum, _add = _with_boolean_case(lax.reduce_sum, lax.reduce_or), _with_boolean_case(lax.add, lax.bitwise_or)
_prod, _mul = _with_boolean_case(lax.reduce_prod, lax.reduce_and), _with_boolean_case(lax.mul, lax.bitwise_and)


@_static
def sum(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Sum of the elements over axes.

    Args:
      a: array or scalar.
      axis: axis or axes to reduce, or None for all; may include names of mapped axes in scope.
      dtype: dtype of the computation and of the result.
      out: must be None; arrays are immutable.
      keepdims: keep the reduced dimensions with size 1.
      initial: starting value of the reduction.
      where: boolean mask, broadcastable to the shape of `a`, of the elements to include.
      promote_integers: compute in the default integer dtype if that is wider than an integer operand's.

    Returns:
      The sums, with the reduced axes removed.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.sum(jnp.array([[1, 2], [3, 4]]), axis=0).tolist()
      [4, 6]
    """
    return _reduce("sum", a, axis, dtype, out, keepdims, initial, where, _sum, lambda d: 0, _add, promote_integers)


@_static
def prod(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Product of the elements over axes.

    Args:
      a, dtype, out, keepdims, initial, where, promote_integers: as in `sum`.
      axis: axis or tuple of axes; None for all.

    Returns:
      The products, with the reduced axes removed.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.prod(jnp.array([2, 3, 4])).item()
      24
    """
    return _reduce("prod", a, axis, dtype, out, keepdims, initial, where, _prod, lambda d: 1, _mul, promote_integers)


@_static
def max(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Maximum of the elements over axes.

    Args:
      a, axis, out, keepdims, where: as in `sum`.
      initial: lower bound of the result, and its value when there are no elements.

    Returns:
      The maxima, with the reduced axes removed; NaN propagates.

    Raises:
      ArgumentError: `where` is given without `initial`, or `out` is given.
      AxisError: an axis is out of range.
      ShapeError: there are no elements to reduce and `initial` is not given.

    Examples:
      >>> jnp.max(jnp.array([[1, 5], [3, 4]]), axis=1).tolist()
      [5, 4]
    """
    _check_initial("max", where, initial)
    op = _with_boolean_case(lax.reduce_max, lax.reduce_or)
    return _reduce("max", a, axis, None, out, keepdims, initial, where, op, dtypes.lowest, lax.max)


@_static
def min(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Minimum of the elements over axes.

    Args:
      a, axis, out, keepdims, where: as in `sum`.
      initial: upper bound of the result, and its value when there are no elements.

    Returns:
      The minima, with the reduced axes removed; NaN propagates.

    Raises:
      ArgumentError: `where` is given without `initial`, or `out` is given.
      AxisError: an axis is out of range.
      ShapeError: there are no elements to reduce and `initial` is not given.

    Examples:
      >>> jnp.min(jnp.array([[1, 5], [3, 4]]), axis=1).tolist()
      [1, 3]
    """
    _check_initial("min", where, initial)
    op = _with_boolean_case(lax.reduce_min, lax.reduce_and)
    return _reduce("min", a, axis, None, out, keepdims, initial, where, op, dtypes.highest, lax.min)


amax, amin = max, min


@_static
def minmax(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> tuple:
    """Minimum and maximum of the elements over axes.

    Args:
      a, axis, out, keepdims, where: as in `sum`.
      initial: starting value of both reductions, or a pair with one for each.

    Returns:
      A pair of the minima and the maxima, with the reduced axes removed; NaN propagates.

    Raises:
      ArgumentError: `where` is given without `initial`, or `out` is given.
      AxisError: an axis is out of range.
      ShapeError: there are no elements to reduce and `initial` is not given.

    Examples:
      >>> [x.tolist() for x in jnp.minmax(jnp.array([[1, 5], [3, 4]]), axis=1)]
      [[1, 3], [5, 4]]
    """
    refuse_out(out, "minmax")
    _check_initial("minmax", where, initial)
    low, high = initial if isinstance(initial, tuple) else (initial, initial)
    return min(a, axis, None, keepdims, low, where), max(a, axis, None, keepdims, high, where)


def _check_initial(name: str, where: ArrayLike | None, initial: ArrayLike | None) -> None:
    if where is not None and initial is None:
        raise ArgumentError(
            f"{name}, argument initial",
            expected="a value where no element takes part, since where is given",
            got="None",
            fix="pass initial=, the result where the mask excludes all elements",
        )


@_static
def all(
    a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Array:
    """Whether all elements over axes are nonzero.

    Args:
      a, axis, out, keepdims, where: as in `sum`.

    Returns:
      Booleans, with the reduced axes removed; True for no elements.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.all(jnp.array([True, False])).item()
      False
    """
    x = to_bool(to_operand(a, "all"))
    return _reduce("all", x, axis, None, out, keepdims, None, where, lax.reduce_and, lambda d: True, None)


@_static
def any(
    a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Array:
    """Whether any element over axes is nonzero.

    Args:
      a, axis, out, keepdims, where: as in `sum`.

    Returns:
      Booleans, with the reduced axes removed; False for no elements.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.any(jnp.array([True, False])).item()
      True
    """
    x = to_bool(to_operand(a, "any"))
    return _reduce("any", x, axis, None, out, keepdims, None, where, lax.reduce_or, lambda d: False, None)


def num_reduced_elements(shape: tuple, axes: tuple) -> Any:
    """The number of elements that are reduced to one."""
    return math.prod(shape[i] for i in axes)


@_static
def ptp(a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array:
    """Peak-to-peak range over axes: maximum minus minimum.

    Args:
      a, axis, out, keepdims: as in `max`.

    Returns:
      The ranges, with the reduced axes removed.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.
      ShapeError: the array is empty.

    Examples:
      >>> jnp.ptp(jnp.array([3, 7, 5])).item()
      4
    """
    refuse_out(out, "ptp")
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)


@_static
def count_nonzero(a: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """Number of nonzero elements over axes.

    Args:
      a, axis, keepdims: as in `sum`.

    Returns:
      The counts in the default integer dtype, with the reduced axes removed.

    Raises:
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.count_nonzero(jnp.array([0, 1, 2])).item()
      2
    """
    return sum(to_bool(to_operand(a, "count_nonzero")), axis, dtypes.canonicalize_dtype(int), keepdims=keepdims)


@_static
def argmax(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Index of the maximum along an axis; the first one of equal elements.

    Args:
      a: array or scalar.
      axis: the axis; None for an index into the flattened array.
      out: must be None; arrays are immutable.
      keepdims: keep the reduced dimension with size 1.

    Returns:
      Indices in the default integer dtype, with the axis removed.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.
      ShapeError: the array is empty.

    Examples:
      >>> jnp.argmax(jnp.array([3, 9, 5])).item()
      1
    """
    return _arg_extreme("argmax", a, axis, out, keepdims, lax.argmax)


@_static
def argmin(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Index of the minimum along an axis; the first one of equal elements.

    Args:
      a, axis, out, keepdims: as in `argmax`.

    Returns:
      Indices in the default integer dtype, with the axis removed.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.
      ShapeError: the array is empty.

    Examples:
      >>> jnp.argmin(jnp.array([3, 9, 5])).item()
      0
    """
    return _arg_extreme("argmin", a, axis, out, keepdims, lax.argmin)


def _arg_extreme(name: str, a: Array, axis: int | None, out: None, keepdims: bool | None, op: Callable) -> Any:
    refuse_out(out, name)
    x = to_operand(a, name)
    dims = x.shape
    x, position = flatten_without_axis(x, axis, name)
    if type(x.shape[position]) is int and x.shape[position] == 0:
        raise ShapeError(
            name, expected="at least one element", got=f"an array of shape {dims}", fix="check x.size before the call"
        )
    y = op(x, position, dtypes.canonicalize_dtype(np.int64))
    if keepdims:
        y = restore_reduced_dims(y, dims, tuple(range(len(dims))) if axis is None else (position,))
    return y


def _cumulative(
    name: str, a: Array, axis: int | None, dtype: np.dtype, out: None, op: Callable, promote: bool = False
) -> Any:
    refuse_out(out, name)
    x = to_operand(a, name)
    x, axis = flatten_without_axis(x, axis, name)
    if dtype is not None:
        x = cast(x, dtypes.requested_dtype(dtype, name))
    elif x.dtype.kind == "b" or (x.dtype.kind in "iu" and promote):
        wide = dtypes.canonicalize_dtype(np.uint64 if x.dtype.kind == "u" else np.int64)
        x = cast(x, wide) if wide.itemsize > x.dtype.itemsize or x.dtype.kind == "b" else x
    if x.dtype.kind == "b":  # whether the sum of the numbers 0 and 1 is not 0
        return op(cast(x, np.dtype(np.int32)), axis=axis) != 0
    # `lax` accumulates in the dtype of the operand.
    y = op(x, axis=axis)
    return cast(y, y.dtype)


@_static
def cumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    """Cumulative sum along an axis, or of the flattened array.

    Args:
      a: array or scalar.
      axis: the axis; None flattens the array first.
      dtype: dtype of the computation and of the result; booleans are summed as integers by default.
      out: must be None; arrays are immutable.

    Returns:
      An array of the shape of `a`; a vector if `axis` is None.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.cumsum(jnp.array([1, 2, 3])).tolist()
      [1, 3, 6]
    """
    return _cumulative("cumsum", a, axis, dtype, out, lax.cumsum)


@_static
def cumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    """Cumulative product along an axis, or of the flattened array.

    Args:
      a, axis, dtype, out: as in `cumsum`.

    Returns:
      An array of the shape of `a`; a vector if `axis` is None.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.cumprod(jnp.array([1, 2, 3])).tolist()
      [1, 2, 6]
    """
    return _cumulative("cumprod", a, axis, dtype, out, lax.cumprod)


@eager_jit(static_argnames=("axis", "dtype", "include_initial"))
def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Cumulative sum along an axis, optionally preceded by 0.

    Args:
      x: array of rank 1 or more.
      axis: the axis; optional for a vector.
      dtype: dtype of the computation and of the result; small integers use the default integer dtype by default.
      include_initial: prepend 0 along the axis.

    Returns:
      An array of the shape of `x`; one element longer along the axis with `include_initial`.

    Raises:
      ArgumentError: `axis` is None and the rank is not 1.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.cumulative_sum(jnp.array([1, 2]), include_initial=True).tolist()
      [0, 1, 3]
    """
    return _with_initial("cumulative_sum", x, axis, dtype, include_initial, lax.cumsum, 0)


@eager_jit(static_argnames=("axis", "dtype", "include_initial"))
def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Cumulative product along an axis, optionally preceded by 1.

    Args:
      x, axis, dtype: as in `cumulative_sum`.
      include_initial: prepend 1 along the axis.

    Returns:
      An array of the shape of `x`; one element longer along the axis with `include_initial`.

    Raises:
      ArgumentError: `axis` is None and the rank is not 1.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.cumulative_prod(jnp.array([2, 3]), include_initial=True).tolist()
      [1, 2, 6]
    """
    return _with_initial("cumulative_prod", x, axis, dtype, include_initial, lax.cumprod, 1)


def _with_initial(
    name: str, x: Array, axis: int | None, dtype: np.dtype, include: bool, op: Callable, first: int
) -> Any:
    x = to_operand(x, name)
    if axis is None and x.ndim != 1:
        raise ArgumentError(
            f"{name}, argument axis",
            expected="an axis, since the rank is not 1",
            got=None,
            fix="pass axis=, or flatten the array",
        )
    axis = canonical_axis(0 if axis is None else axis, x.ndim, name)
    y = _cumulative(name, x, axis, dtype, None, op, promote=True)
    # The initial element is the neutral element, so that the result has one element more.
    if include:
        dims = (*y.shape[:axis], 1, *y.shape[axis + 1 :])
        y = lax.concatenate([lax.full(dims, first, y.dtype), y], axis)
    return y
