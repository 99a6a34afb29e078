"""Reductions and cumulative operations: sum, max, mean, argmax, cumsum and their like.

Built on the reductions of `lax`. Half-precision sums are computed in float32. What ignores NaN is in
`nan_reductions.py`, quantiles and histograms in `statistics.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.lax.named_axes import apart
from phalanx.numpy.bodies import to_bool
from phalanx.numpy.operands import (
    as_array,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    cast,
    operand,
    refuse_out,
    scalar_of,
)
from phalanx.runtime.dispatch import eager_program

_static = eager_program(static_argnames=("axis", "dtype", "out", "keepdims", "promote_integers", "ddof", "correction"))
_FLOAT32 = np.dtype(np.float32)


def is_half(dtype: Any) -> bool:
    """Whether sums in a dtype are better computed in float32."""
    return dtype.itemsize <= 2 and dtype.kind in "fV" and dtypes.issubdtype(dtype, np.floating)


def with_dims(x: Any, shape: tuple, axes: tuple) -> Any:
    """A reduced array with its reduced dimensions back, of size 1."""
    return lax.reshape(x, tuple(1 if i in axes else d for i, d in enumerate(shape)))


def masked(x: Any, where: Any, fill: Any, name: str) -> Any:
    """`x` where the mask holds, else a value that does not change the result."""
    if where is None:
        return x
    mask = operand(where, f"{name}, argument where")
    mask = mask if mask.dtype == np.bool_ else to_bool(mask)
    shape = x.shape
    return lax.select_n_p(broadcast_to_shape(mask, shape), scalar_of(fill, x.dtype), x)


_OVER_NAMES = {"sum": lax.psum, "max": lax.pmax, "min": lax.pmin, "any": lax.pmax, "all": lax.pmin}


def _reduce(
    name: str, a: Any, axis: Any, dtype: Any, out: Any, keepdims: bool, initial: Any, where: Any, op: Callable,
    neutral: Callable, combine: Callable | None, promote: bool = False,
) -> Any:  # fmt: skip
    """One reduction: prepare the operand, reduce, bring back dimensions, take in the initial value."""
    refuse_out(out, name)
    x = operand(a, name)
    own = x.dtype
    if dtype is not None:
        dtype = dtypes.requested_dtype(dtype, name)
        x = cast(x, dtype)
    elif promote and own.kind in "biu":
        wide = np.dtype(np.uint64 if own.kind == "u" else np.int64)
        wide = dtypes.canonicalize_dtype(wide)
        x = cast(x, wide) if wide.itemsize > own.itemsize or own.kind == "b" else x
    result = x.dtype
    if combine is not None and is_half(result) and name in ("sum", "prod"):
        x = cast(x, _FLOAT32)
    x = masked(x, where, neutral(x.dtype), name)
    axis, names = apart(axis) if name in _OVER_NAMES else (axis, ())
    axes = canonical_axes(axis, x.ndim, name)
    if initial is None and name in ("max", "min"):
        _refuse_empty(name, x.shape, axes)
    y = op(x, axes) if axes else (as_array(x))
    y = _OVER_NAMES[name](y, names) if names else y
    if keepdims and axes:
        y = with_dims(y, x.shape, axes)
    if initial is not None:
        y = combine(y, cast(initial, y.dtype) if hasattr(initial, "dtype") else scalar_of(initial, y.dtype))
    return cast(y, result)


def _refuse_empty(name: str, shape: tuple, axes: tuple) -> None:
    for i in axes:
        if type(shape[i]) is int and shape[i] == 0:
            raise ShapeError(
                name, expected="at least one element along the reduced dimensions", got=f"an array of shape {shape}",
                mend="give initial=, the result for no elements",
            )  # fmt: skip


def _by_dtype(numbers: Callable, booleans: Callable) -> Callable:
    """An operation that booleans, which one asks for by `dtype=bool`, have under another name."""
    return lambda x, *rest: (booleans if x.dtype == np.bool_ else numbers)(x, *rest)


_sum, _add = _by_dtype(lax.reduce_sum, lax.reduce_or), _by_dtype(lax.add, lax.bitwise_or)
_prod, _mul = _by_dtype(lax.reduce_prod, lax.reduce_and), _by_dtype(lax.mul, lax.bitwise_and)


@_static
def sum(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None, promote_integers: bool = True,
) -> Any:  # fmt: skip
    """The sum along axes.

    Args:
      a: an array or a scalar.
      axis: an axis, a tuple of them, names of axes in scope among them, or None for all.
      dtype: the dtype of the result, and of the computation.
      out: must be None.
      keepdims: keep the reduced dimensions, of size 1.
      initial: a value to start from.
      where: which elements take part, booleans that broadcast to the shape of `a`.
      promote_integers: sum small integers in the default integer dtype.

    Returns:
      The sums, without the axes.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.sum(jnp.array([[1, 2], [3, 4]]), axis=0).tolist()
      [4, 6]
    """
    op, neutral = _sum, lambda d: 0
    return _reduce("sum", a, axis, dtype, out, keepdims, initial, where, op, neutral, _add, promote_integers)


@_static
def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None, promote_integers: bool = True,
) -> Any:  # fmt: skip
    """The product along axes.

    Args:
      a, dtype, out, keepdims, initial, where, promote_integers: as in `sum`.
      axis: an axis, a tuple of them, or None for all.

    Returns:
      The products, without the axes.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.prod(jnp.array([2, 3, 4])).item()
      24
    """
    op, neutral = _prod, lambda d: 1
    return _reduce("prod", a, axis, dtype, out, keepdims, initial, where, op, neutral, _mul, promote_integers)


@_static
def max(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The largest element along axes.

    Args:
      a, axis, out, keepdims, where: as in `sum`.
      initial: a lower bound of the result, which it is where no element takes part.

    Returns:
      The largest elements, without the axes; NaN where one is.

    Raises:
      ArgumentError: `where` is given without `initial`, or `out` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements and no `initial`.

    Examples:
      >>> jnp.max(jnp.array([[1, 5], [3, 4]]), axis=1).tolist()
      [5, 4]
    """
    _want_initial("max", where, initial)
    op = _by_dtype(lax.reduce_max, lax.reduce_or)
    return _reduce("max", a, axis, None, out, keepdims, initial, where, op, dtypes.lowest, lax.max)


@_static
def min(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The smallest element along axes.

    Args:
      a, axis, out, keepdims, where: as in `sum`.
      initial: an upper bound of the result, which it is where no element takes part.

    Returns:
      The smallest elements, without the axes; NaN where one is.

    Raises:
      ArgumentError: `where` is given without `initial`, or `out` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements and no `initial`.

    Examples:
      >>> jnp.min(jnp.array([[1, 5], [3, 4]]), axis=1).tolist()
      [1, 3]
    """
    _want_initial("min", where, initial)
    op = _by_dtype(lax.reduce_min, lax.reduce_and)
    return _reduce("min", a, axis, None, out, keepdims, initial, where, op, dtypes.highest, lax.min)


amax, amin = max, min


@_static
def minmax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> tuple:
    """The smallest and the largest element along axes.

    Args:
      a, axis, out, keepdims, where: as in `sum`.
      initial: a value that takes part, or one for each of the two.

    Returns:
      The smallest and the largest elements, without the axes; NaN where one is.

    Raises:
      ArgumentError: `where` is given without `initial`, or `out` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements and no `initial`.

    Examples:
      >>> [x.tolist() for x in jnp.minmax(jnp.array([[1, 5], [3, 4]]), axis=1)]
      [[1, 3], [5, 4]]
    """
    refuse_out(out, "minmax")
    _want_initial("minmax", where, initial)
    low, high = initial if isinstance(initial, tuple) else (initial, initial)
    return min(a, axis, None, keepdims, low, where), max(a, axis, None, keepdims, high, where)


def _want_initial(name: str, where: Any, initial: Any) -> None:
    if where is not None and initial is None:
        raise ArgumentError(
            f"{name}, argument initial", expected="a value where no element takes part, since where is given",
            got="None", mend="give initial=",
        )  # fmt: skip


@_static
def all(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Any:
    """Whether all elements along axes are not 0.

    Args:
      a, axis, out, keepdims, where: as in `sum`.

    Returns:
      Booleans, without the axes; True for no elements.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.all(jnp.array([True, False])).item()
      False
    """
    x = to_bool(operand(a, "all"))
    return _reduce("all", x, axis, None, out, keepdims, None, where, lax.reduce_and, lambda d: True, None)


@_static
def any(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Any:
    """Whether an element along axes is not 0.

    Args:
      a, axis, out, keepdims, where: as in `sum`.

    Returns:
      Booleans, without the axes; False for no elements.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.any(jnp.array([True, False])).item()
      True
    """
    x = to_bool(operand(a, "any"))
    return _reduce("any", x, axis, None, out, keepdims, None, where, lax.reduce_or, lambda d: False, None)


def count(shape: tuple, axes: tuple) -> Any:
    """The number of elements that a reduction sees."""
    return math.prod(shape[i] for i in axes)


def _inexact_result(x: Any, dtype: Any, name: str) -> tuple[Any, Any]:
    """The dtype to compute a mean in, and that of the result."""
    if dtype is None:
        result = dtypes.to_inexact_dtype(x.dtype)
    else:
        result = dtypes.requested_dtype(dtype, name)
    if not dtypes.issubdtype(result, np.inexact):
        return dtypes.to_inexact_dtype(result), result
    return (_FLOAT32 if is_half(result) else result), result


def _counted(where: Any, shape: tuple, axes: tuple, names: tuple, dtype: Any, keepdims: bool, name: str) -> Any:
    """The number of elements that take part, over named axes too; a number or an array."""
    if where is None:
        n = count(shape, axes) * math.prod(map(lax.axis_size, names))
        return float(n) if type(n) is int else n
    mask = broadcast_to_shape(to_bool(operand(where, name)), shape)
    return sum(cast(mask, dtype), axis=(*axes, *names), keepdims=keepdims)


@_static
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Any:
    """The mean along axes.

    Args:
      a, axis, dtype, out, keepdims, where: as in `sum`.

    Returns:
      The means, without the axes, in floating point unless `dtype` says another; NaN for no elements.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.mean(jnp.array([1.0, 2.0, 6.0])).item()
      3.0
    """
    refuse_out(out, "mean")
    x = operand(a, "mean")
    axis, names = apart(axis)
    axes = canonical_axes(axis, x.ndim, "mean")
    compute, result = _inexact_result(x, dtype, "mean")
    x = cast(x, compute) if x.dtype != compute else x
    n = _counted(where, x.shape, axes, names, compute, keepdims, "mean")
    y = sum(x, axis=(*axes, *names), keepdims=keepdims, where=where) / n
    return y if y.dtype == result else cast(y, result)


@_static
def var(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: bool = False, *,
    where: Any = None, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    """The variance along axes.

    Args:
      a: an array or a scalar.
      axis: an axis, a tuple of them, names of axes in scope among them, or None for all.
      dtype: the dtype of the result, and of the computation.
      out: must be None.
      ddof: what is subtracted from the number of elements in the divisor.
      keepdims: keep the reduced dimensions, of size 1.
      where: which elements take part, booleans that broadcast to the shape of `a`.
      mean: the mean, with its dimensions kept, if it is known.
      correction: another name of `ddof`.

    Returns:
      Real numbers, without the axes.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.var(jnp.array([1.0, 3.0])).item()
      1.0
    """
    return _variance("var", a, axis, dtype, out, ddof if correction is None else correction, keepdims, where, mean)


def _variance(
    name: str, a: Any, axis: Any, dtype: Any, out: Any, ddof: Any, keepdims: bool, where: Any, mean: Any
) -> Any:
    refuse_out(out, name)
    x = operand(a, name)
    axis, names = apart(axis)
    axes = canonical_axes(axis, x.ndim, name)
    over = (*axes, *names)
    if dtype is not None and dtypes.issubdtype(x.dtype, np.complexfloating) and np.dtype(dtype).kind != "c":
        dtype = None if dtypes.issubdtype(dtype, np.inexact) else dtype
    compute, result = _inexact_result(x, dtype, name)
    if x.dtype.kind == "c" and compute.kind != "c":
        compute = x.dtype
    x = cast(x, compute) if x.dtype != compute else x
    n = _counted(where, x.shape, axes, names, _real_dtype(compute), keepdims, name)
    if mean is None:
        n_kept = n if where is None else _counted(where, x.shape, axes, names, _real_dtype(compute), True, name)
        mean = sum(x, axis=over, keepdims=True, where=where) / n_kept
    centered = x - mean
    if compute.kind == "c":
        squares = lax.square(lax.real(centered)) + lax.square(lax.imag(centered))
    else:
        squares = lax.square(centered)
    divisor = n - ddof if ddof else n
    if type(divisor) is float and divisor < 0:
        divisor = 0.0
    elif ddof and type(divisor) is not float and hasattr(divisor, "aval"):
        divisor = lax.max(divisor, scalar_of(0, divisor.dtype))
    y = sum(squares, axis=over, keepdims=keepdims, where=where) / divisor
    result = _real_dtype(result)
    return y if y.dtype == result else cast(y, result)


def _real_dtype(dtype: Any) -> Any:
    return np.dtype(f"float{4 * dtype.itemsize}") if dtype.kind == "c" else dtype


@_static
def std(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: bool = False, *,
    where: Any = None, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    """The standard deviation along axes.

    Args:
      a, axis, dtype, out, ddof, keepdims, where, mean, correction: as in `var`.

    Returns:
      Real numbers, without the axes.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.
      DTypeError: `dtype` is of integers or booleans.

    Examples:
      >>> jnp.std(jnp.array([1.0, 3.0])).item()
      1.0
    """
    if dtype is not None and not dtypes.issubdtype(dtype, np.inexact):
        raise DTypeError("std, argument dtype", expected="an inexact dtype", got=dtype, mend="leave it out")
    ddof = ddof if correction is None else correction
    return lax.sqrt(_variance("std", a, axis, dtype, out, ddof, keepdims, where, mean))


@_static
def ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
    """The largest minus the smallest element along axes.

    Args:
      a, axis, out, keepdims: as in `max`.

    Returns:
      The differences, without the axes.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements.

    Examples:
      >>> jnp.ptp(jnp.array([3, 7, 5])).item()
      4
    """
    refuse_out(out, "ptp")
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)


@_static
def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The number of elements along axes that are not 0.

    Args:
      a, axis, keepdims: as in `sum`.

    Returns:
      The numbers in the default integer dtype, without the axes.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> jnp.count_nonzero(jnp.array([0, 1, 2])).item()
      2
    """
    x = to_bool(operand(a, "count_nonzero"))
    return sum(x, axis=axis, dtype=dtypes.canonicalize_dtype(int), keepdims=keepdims)


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """The weighted mean along axes.

    Args:
      a: an array or a scalar.
      axis: an axis, a tuple of them, or None for all.
      weights: of the shape of `a`, or of that of the axes; all alike by default.
      returned: give the sums of weights too.
      keepdims: keep the reduced dimensions, of size 1.

    Returns:
      The means, without the axes; with `returned` a pair of them and the sums of weights.

    Raises:
      AxisError: there is no such axis.
      ShapeError: the weights have another shape.

    Examples:
      >>> jnp.average(jnp.array([1.0, 2.0]), weights=jnp.array([3.0, 1.0])).item()
      1.25
    """
    out = _average(a, weights, axis, keepdims)
    return out if returned else out[0]


@eager_program(static_argnames=("axis", "keepdims"))
def _average(a: Any, weights: Any, axis: Any, keepdims: bool) -> tuple:
    x = operand(a, "average")
    axes = canonical_axes(axis, x.ndim, "average")
    if weights is None:
        y = mean(x, axis=axes, keepdims=keepdims)
        return y, lax.full(y.shape, count(x.shape, axes), y.dtype)
    w = operand(weights, "average")
    if w.shape != x.shape:
        wanted = tuple(x.shape[i] for i in axes)
        if w.shape != wanted or axis is None:
            raise ShapeError(
                "average, argument weights", expected=f"the shape {x.shape}, or that of the axes, {wanted}",
                got=w.shape, mend="broadcast the weights",
            )  # fmt: skip
        w = lax.broadcast_in_dim(w, tuple(x.shape[i] if i in axes else 1 for i in range(x.ndim)), axes)
        w = broadcast_to_shape(w, x.shape)
    dtype = dtypes.to_inexact_dtype(promotion.result_type(x, w))
    w = cast(w, dtype)
    total = sum(w, axis=axes, keepdims=keepdims)
    return sum(cast(x, dtype) * w, axis=axes, keepdims=keepdims) / total, total


# Where the extreme element is


@_static
def argmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """The position of the largest element along an axis, the first of equal ones.

    Args:
      a: an array or a scalar.
      axis: the axis; None for the position in the raveled array.
      out: must be None.
      keepdims: keep the reduced dimension, of size 1.

    Returns:
      Positions in the default integer dtype, without the axis.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements.

    Examples:
      >>> jnp.argmax(jnp.array([3, 9, 5])).item()
      1
    """
    return _arg_extreme("argmax", a, axis, out, keepdims, lax.argmax)


@_static
def argmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """The position of the smallest element along an axis, the first of equal ones.

    Args:
      a, axis, out, keepdims: as in `argmax`.

    Returns:
      Positions in the default integer dtype, without the axis.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements.

    Examples:
      >>> jnp.argmin(jnp.array([3, 9, 5])).item()
      0
    """
    return _arg_extreme("argmin", a, axis, out, keepdims, lax.argmin)


def _arg_extreme(name: str, a: Any, axis: int | None, out: Any, keepdims: bool | None, op: Callable) -> Any:
    refuse_out(out, name)
    x = operand(a, name)
    dims = x.shape
    if axis is None:
        x = lax.reshape(x, (math.prod(dims),)) if x.ndim != 1 else x
        position = 0
    else:
        position = canonical_axis(axis, x.ndim, name)
    if type(x.shape[position]) is int and x.shape[position] == 0:
        raise ShapeError(name, expected="at least one element", got=f"an array of shape {dims}", mend="check the size")
    y = op(x, position, dtypes.canonicalize_dtype(np.int64))
    if keepdims:
        y = with_dims(y, dims, tuple(range(len(dims))) if axis is None else (position,))
    return y


# Cumulative operations


def _cumulative(name: str, a: Any, axis: int | None, dtype: Any, out: Any, op: Callable, promote: bool = False) -> Any:
    refuse_out(out, name)
    x = operand(a, name)
    if axis is None:
        x, axis = (lax.reshape(x, (math.prod(x.shape),)) if x.ndim != 1 else x), 0
    axis = canonical_axis(axis, x.ndim, name)
    if dtype is not None:
        x = cast(x, dtypes.requested_dtype(dtype, name))
    elif x.dtype.kind == "b" or (x.dtype.kind in "iu" and promote):
        wide = dtypes.canonicalize_dtype(np.uint64 if x.dtype.kind == "u" else np.int64)
        x = cast(x, wide) if wide.itemsize > x.dtype.itemsize or x.dtype.kind == "b" else x
    y = op(x, axis=axis)
    return cast(y, y.dtype)


@_static
def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """The sums of all elements up to each, along an axis or raveled.

    Args:
      a: an array or a scalar.
      axis: the axis; None to ravel first.
      dtype: of the result and of the computation; booleans count as integers by default.
      out: must be None.

    Returns:
      An array of the shape of `a`, or a vector where no axis is given.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.cumsum(jnp.array([1, 2, 3])).tolist()
      [1, 3, 6]
    """
    return _cumulative("cumsum", a, axis, dtype, out, lax.cumsum)


@_static
def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """The products of all elements up to each, along an axis or raveled.

    Args:
      a, axis, dtype, out: as in `cumsum`.

    Returns:
      An array of the shape of `a`, or a vector where no axis is given.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.cumprod(jnp.array([1, 2, 3])).tolist()
      [1, 2, 6]
    """
    return _cumulative("cumprod", a, axis, dtype, out, lax.cumprod)


@eager_program(static_argnames=("axis", "dtype", "include_initial"))
def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The sums of all elements up to each, with a leading 0 on request.

    Args:
      x: of rank 1 or more.
      axis: the axis; may be left out for a vector.
      dtype: of the result and of the computation; by default small integers become the default integer.
      include_initial: put a 0 before the first.

    Returns:
      An array of the shape of `x`, one longer along the axis with `include_initial`.

    Raises:
      ArgumentError: no axis is given and the rank is not 1.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.cumulative_sum(jnp.array([1, 2]), include_initial=True).tolist()
      [0, 1, 3]
    """
    return _with_initial("cumulative_sum", x, axis, dtype, include_initial, lax.cumsum, 0)


@eager_program(static_argnames=("axis", "dtype", "include_initial"))
def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The products of all elements up to each, with a leading 1 on request.

    Args:
      x, axis, dtype: as in `cumulative_sum`.
      include_initial: put a 1 before the first.

    Returns:
      An array of the shape of `x`, one longer along the axis with `include_initial`.

    Raises:
      ArgumentError: no axis is given and the rank is not 1.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.cumulative_prod(jnp.array([2, 3]), include_initial=True).tolist()
      [1, 2, 6]
    """
    return _with_initial("cumulative_prod", x, axis, dtype, include_initial, lax.cumprod, 1)


def _with_initial(name: str, x: Any, axis: int | None, dtype: Any, include: bool, op: Callable, first: int) -> Any:
    x = operand(x, name)
    if axis is None and x.ndim != 1:
        raise ArgumentError(
            f"{name}, argument axis", expected="an axis, since the rank is not 1", got=None, mend="give one"
        )
    axis = canonical_axis(0 if axis is None else axis, x.ndim, name)
    y = _cumulative(name, x, axis, dtype, None, op, promote=True)
    if include:
        dims = (*y.shape[:axis], 1, *y.shape[axis + 1 :])
        y = lax.concatenate([lax.full(dims, first, y.dtype), y], axis)
    return y
