"""Numerical calculus along an axis: finite differences, gradients, integration and interpolation."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, dtypes, promotion
from phalanx.numpy.indexing.where import where
from phalanx.numpy.operands import (
    as_array,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    cast,
    promote_inexact,
    to_operand,
)
from phalanx.numpy.reductions.array_reductions import cumsum, sum
from phalanx.numpy.shapes.joining import concatenate
from phalanx.numpy.shapes.reshaping import moveaxis, ravel
from phalanx.numpy.sorting.sort_and_search import searchsorted
from phalanx.numpy.ufuncs.ufunc_table import absolute, divide, mod
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import max_dim
from phalanx.typing import Array, ArrayLike, Axis


@eager_jit(static_argnames=("n", "axis"))
def diff(
    a: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Array:
    """The n-th finite difference along an axis: `x[i + 1] - x[i]`, applied n times.

    Args:
      a: array of rank 1 or more; the difference of booleans is `!=`.
      n: number of times to take the difference, 0 or more.
      axis: the axis to take differences along.
      prepend, append: values added along the axis before and after `a` before differencing.

    Returns:
      The shape of `a` with `prepend` and `append`, and n elements fewer along the axis.

    Raises:
      ArgumentError: `n` is negative, or `a` is a scalar.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.diff(jnp.array([1, 4, 9])).tolist()
      [3, 5]
    """
    x = to_operand(a, "diff")
    if n < 0 or not x.ndim:
        raise ArgumentError(
            "diff",
            expected="n >= 0 and an array of rank 1 or more",
            got=f"n = {n}",
            fix="pass n=1 or more, and at least a vector",
        )
    axis = canonical_axis(axis, x.ndim, "diff")
    if n == 0:  # nothing is prepended or appended, as in NumPy
        return as_array(x)
    edge = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    parts = [to_operand(v, "diff") for v in (prepend, x, append) if v is not None]
    parts = [v if v.ndim else broadcast_to_shape(v, edge) for v in parts]
    x = concatenate(parts, axis) if len(parts) > 1 else as_array(x)
    for _ in range(n):
        size = x.shape[axis]
        high = lax.slice_in_dim(x, min(1, size), size, axis=axis)
        low = lax.slice_in_dim(x, 0, max(size - 1, 0), axis=axis)
        # NumPy defines the difference of booleans as exclusive or.
        x = lax.ne(high, low) if x.dtype == np.bool_ else lax.sub(high, low)
    return x


@eager_jit
def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Array:
    """Differences of consecutive elements of the flattened array, with optional values at both ends.

    Args:
      ary: array of any shape; it is flattened.
      to_end, to_begin: values appended and prepended to the differences, cast to their dtype.

    Returns:
      A vector: `to_begin`, then the `ary.size - 1` differences, then `to_end`.

    Examples:
      >>> jnp.ediff1d(jnp.array([1, 4, 9]), to_begin=0).tolist()
      [0, 3, 5]
    """
    out = diff(ravel(ary))
    before, after = (v if v is None else cast(ravel(v), out.dtype) for v in (to_begin, to_end))
    return concatenate([v for v in (before, out, after) if v is not None], 0)


@eager_jit(static_argnames=("axis", "edge_order"))
def gradient(f: ArrayLike, *varargs: Any, axis: Axis = None, edge_order: int | None = None) -> Any:
    """Gradient by second-order central differences in the interior and one-sided differences at the ends.

    Args:
      f: samples of a function, at least two along each differentiated axis.
      varargs: spacing of the samples: none (1.0), one scalar for all axes, or per axis a scalar or a coordinate vector.
      axis: the axis or axes; all by default.
      edge_order: must be 1 or None.

    Returns:
      A floating-point array of the shape of `f`; a list with one array per axis when there are several.

    Raises:
      ArgumentError: `edge_order` is 2, or the number of distances is wrong.
      ShapeError: an axis has fewer than two samples, or a coordinate vector has the wrong length.

    Examples:
      >>> jnp.gradient(jnp.array([1.0, 4.0, 9.0])).tolist()
      [3.0, 4.0, 5.0]
    """
    if edge_order not in (None, 1):
        raise ArgumentError(
            "gradient, argument edge_order",
            expected="1",
            got=edge_order,
            fix="leave edge_order out; differences at the ends are of first order",
        )
    # The differences are divided by the spacing, so that integers are computed in floating point.
    (x,) = promote_inexact("gradient", to_operand(f, "gradient"))
    axes = canonical_axes(axis, x.ndim, "gradient")
    if len(varargs) not in (0, 1, len(axes)):
        raise ArgumentTypeError(
            "gradient",
            expected=f"no distance, one, or {len(axes)}",
            got=len(varargs),
            fix="pass one spacing per axis, or a single one for all",
        )
    # One spacing applies to all axes.
    spacings = varargs if len(varargs) > 1 else (varargs or (1.0,)) * len(axes)
    out = [_gradient_along(x, h, i) for h, i in zip(spacings, axes, strict=True)]
    return out[0] if len(out) == 1 else out


def _gradient_along(x: Array, h: Array, axis: int) -> Any:
    n = x.shape[axis]
    if n < 2:
        raise ShapeError(
            "gradient",
            expected="two points or more along each axis",
            got=x.shape,
            fix="leave out axes of size 1 with axis=, or pass more samples",
        )

    part = functools.partial(lax.slice_in_dim, x, axis=axis)
    # Even spacing: one difference formula, divided by the spacing at the end.
    if np.ndim(h) == 0:
        inner = (part(2, n) - part(0, n - 2)) * 0.5
        # The spacing is divided out once, after the concatenation.
        return concatenate([part(1, 2) - part(0, 1), inner, part(n - 1, n) - part(n - 2, n - 1)], axis) / h
    if np.shape(h) != (n,):
        raise ShapeError(
            "gradient",
            expected=f"coordinates of the {n} points along axis {axis}",
            got=np.shape(h),
            fix="give a vector of that length, or a number",
        )
    steps = cast(diff(to_operand(h, "gradient")), x.dtype)
    steps = steps.reshape(tuple(-1 if i == axis else 1 for i in range(x.ndim)))

    step = functools.partial(lax.slice_in_dim, steps, axis=axis)

    # Second-order formula for uneven spacing: the weights come from the parabola through three neighbours.
    before, after = step(0, n - 2), step(1, n - 1)
    inner = (
        -after / (before * (before + after)) * part(0, n - 2)
        + (after - before) / (before * after) * part(1, n - 1)
        + before / (after * (before + after)) * part(2, n)
    )
    first = (part(1, 2) - part(0, 1)) / step(0, 1)
    last = (part(n - 1, n) - part(n - 2, n - 1)) / step(n - 2, n - 1)
    return concatenate([first, inner, last], axis)


@eager_jit(static_argnames=("axis",))
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """Integrate along an axis with the composite trapezoidal rule.

    Args:
      y: samples of the integrand.
      x: sample coordinates, a vector or an array that broadcasts with `y`; None for even spacing `dx`.
      dx: spacing of the samples when `x` is None.
      axis: the axis of `y` to integrate along.

    Returns:
      A floating-point array of the shape of `y` without the axis.

    Examples:
      >>> jnp.trapezoid(jnp.array([1.0, 2.0, 3.0])).item()
      4.0
    """
    if x is None:
        (y,) = promote_inexact("trapezoid", to_operand(y, "trapezoid"))
    else:
        y, x = promote_inexact("trapezoid", to_operand(y, "trapezoid"), to_operand(x, "trapezoid"))
        dx = diff(x) if x.ndim == 1 else moveaxis(diff(x, axis=axis), axis, -1)
    y = moveaxis(y, axis, -1)
    # Each interval contributes its width times the mean of the values at its ends.
    return sum(dx * (y[..., 1:] + y[..., :-1]), axis=-1) * 0.5


@eager_jit
def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: ArrayLike | None = None,
) -> Array:
    """Evaluate the piecewise linear function through the points (xp, fp) at `x`.

    Args:
      x: points at which to evaluate.
      xp: coordinates of the data points, in increasing order unless `period` is given.
      fp: values at the data points.
      left: value for `x < xp[0]`, `fp[0]` by default; `"extrapolate"` continues the end segments.
      right: value for `x > xp[-1]`, `fp[-1]` by default.
      period: period of the coordinates; `left` and `right` are then ignored.

    Returns:
      A floating-point array of the shape of `x`.

    Raises:
      DTypeError: coordinates are complex.
      ShapeError: `xp` and `fp` are not vectors of equal length.

    Examples:
      >>> jnp.interp(1.5, jnp.array([1.0, 2.0]), jnp.array([10.0, 20.0])).item()
      15.0
    """
    x, xp = promote_inexact("interp", to_operand(x, "interp"), to_operand(xp, "interp"))
    if x.dtype.kind == "c":
        raise DTypeError("interp", expected="real coordinates", got=str(x.dtype), fix="pass x.real and xp.real")
    (fp,) = promote_inexact("interp", to_operand(fp, "interp"))
    if xp.ndim != 1 or fp.ndim != 1 or xp.shape != fp.shape:
        raise ShapeError(
            "interp",
            expected="vectors xp and fp of one size",
            got=f"{xp.shape} and {fp.shape}",
            fix="flatten both, or map over rows with phalanx.vmap",
        )
    if period is not None:
        period = lax.abs(cast(to_operand(period, "interp"), xp.dtype))
        # One period is sorted and extended by one point at each end, so that every x lies between two points.
        x, xp = x % period, xp % period
        xp, fp = lax.sort((xp, fp), num_keys=1)
        xp = concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = concatenate([fp[-1:], fp, fp[:1]])
    last = cast(max_dim(xp.shape[0] - 1, 1), np.dtype(np.int32))
    # The index of the segment: clamping extends the first and the last segment beyond the data.
    i = lax.clamp(np.int32(1), searchsorted(xp, x, side="right"), last)
    low, high = (fp.at[i - 1].get(mode="clip"), fp.at[i].get(mode="clip"))
    start, end = xp.at[i - 1].get(mode="clip"), xp.at[i].get(mode="clip")
    width = end - start
    # Repeated coordinates would divide by 0, and its NaN would enter the gradient through the unselected branch of
    # `where`: the divisor is replaced first.
    flat = lax.abs(width) <= np.spacing(np.finfo(np.float32).eps) if width.dtype != np.float64 else width == 0
    f = where(flat, low, low + (x - start) / where(flat, 1, width) * (high - low))
    # The end segments are extended by leaving out the comparison with the first and the last point.
    if period is None and not isinstance(left, str):
        f = where(x < xp[0], fp[0] if left is None else left, f)
    if period is None and not isinstance(right, str):
        f = where(x > xp[-1], fp[-1] if right is None else right, f)
    return f


@eager_jit(static_argnames=("axis",))
def unwrap(p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, period: ArrayLike = 2 * np.pi) -> Array:
    """Unwrap angles: replace jumps larger than half a period by their complement modulo the period.

    Args:
      p: angles.
      discont: smallest jump that is corrected, at least half a period, which is the default.
      axis: the axis to unwrap along.
      period: size of the range over which the input wraps, in the unit of `p`.

    Returns:
      The angles in the shape of `p`, the first along the axis unchanged.

    Raises:
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.unwrap(jnp.array([0.0, 4.0]), period=4).tolist()
      [0.0, 0.0]
    """
    x = to_operand(p, "unwrap")
    x = cast(x, promotion.result_type(x, period))
    integers = not dtypes.issubdtype(promotion.result_type(x, period), np.inexact)
    half = period // 2 if integers else divide(period, 2)
    axis = canonical_axis(axis, x.ndim, "unwrap")
    if 0 in x.shape:
        return x
    step = diff(x, axis=axis)
    turned = mod(step + half, period) - half
    # A jump of exactly half a period keeps its sign, as in NumPy.
    turned = where((turned == -half) & (step > 0), half, turned)
    correction = where(absolute(step) < (half if discont is None else discont), 0, turned - step)
    # Each jump shifts all following angles: the corrections are summed cumulatively.
    rest = lax.slice_in_dim(x, 1, x.shape[axis], axis=axis) + cumsum(correction, axis=axis)
    return concatenate([lax.slice_in_dim(x, 0, 1, axis=axis), rest], axis)
