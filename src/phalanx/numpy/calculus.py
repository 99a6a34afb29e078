"""Differences, gradients, integrals and interpolation along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.numpy.joining import concatenate
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import (
    as_array,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    cast,
    operand,
    promote_inexact,
)
from phalanx.numpy.reductions import sum
from phalanx.numpy.shapes import moveaxis, ravel
from phalanx.numpy.sorting import searchsorted
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import max_dim


@eager_program(static_argnames=("n", "axis"))
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """The differences of neighbours along an axis, taken n times.

    Args:
      a: of rank 1 or more; of booleans, each difference says whether two differ.
      n: how often to take differences, 0 or more.
      axis: along which neighbours stand.
      prepend, append: scalars or arrays joined before the first element and after the last.

    Returns:
      An array of the shape of `a`, extended as asked, with n elements fewer along the axis.

    Raises:
      ArgumentError: `n` is negative, or `a` is a scalar.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.diff(jnp.array([1, 4, 9])).tolist()
      [3, 5]
    """
    x = operand(a, "diff")
    if n < 0 or not x.ndim:
        raise ArgumentError("diff", expected="n >= 0 and an array of rank 1 or more", got=f"n = {n}", mend="check both")
    axis = canonical_axis(axis, x.ndim, "diff")
    parts = []
    for v in (prepend, x, append):
        if v is None:
            continue
        v = operand(v, "diff")
        if not v.ndim:
            v = broadcast_to_shape(v, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
        parts.append(v)
    x = concatenate(parts, axis) if len(parts) > 1 else as_array(x)
    for _ in range(n):
        size = x.shape[axis]
        high = lax.slice_in_dim(x, min(1, size), size, axis=axis)
        low = lax.slice_in_dim(x, 0, max(size - 1, 0), axis=axis)
        x = lax.ne(high, low) if x.dtype == np.bool_ else lax.sub(high, low)
    return x


@eager_program
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """The differences of neighbours of the raveled array, with values before and after.

    Args:
      ary: of any shape, raveled.
      to_end, to_begin: values to put after and before the differences, converted to their dtype.

    Returns:
      A vector of the values of `to_begin`, one difference fewer than `ary` has elements, and those of `to_end`.

    Examples:
      >>> jnp.ediff1d(jnp.array([1, 4, 9]), to_begin=0).tolist()
      [0, 3, 5]
    """
    out = diff(ravel(ary))
    parts = [v if v is None else cast(ravel(v), out.dtype) for v in (to_begin, to_end)]
    before, after = parts
    return concatenate([v for v in (before, out, after) if v is not None], 0)


@eager_program(static_argnames=("axis", "edge_order"))
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """The derivative along axes by central differences, one-sided at the ends.

    Args:
      f: numbers, two or more along each of the axes.
      varargs: the distance of points, or one for each axis; a vector of coordinates may stand for a distance.
      axis: an axis or several, all by default.
      edge_order: must be 1, or None.

    Returns:
      An array of the shape of `f`, in floating point; for several axes the list of one for each.

    Raises:
      ArgumentError: `edge_order` is 2, or the number of distances is wrong.
      ShapeError: an axis has fewer than two points, or coordinates are not as many as points.

    Examples:
      >>> jnp.gradient(jnp.array([1.0, 4.0, 9.0])).tolist()
      [3.0, 4.0, 5.0]
    """
    if edge_order not in (None, 1):
        raise ArgumentError("gradient, argument edge_order", expected="1", got=edge_order, mend="leave it out")
    (x,) = promote_inexact("gradient", operand(f, "gradient"))
    axes = canonical_axes(axis, x.ndim, "gradient")
    if len(varargs) not in (0, 1, len(axes)):
        raise ArgumentError(
            "gradient", expected=f"no distance, one, or {len(axes)}", got=len(varargs), mend="give one each"
        )
    spacings = list(varargs) or [1.0]
    spacings = spacings * len(axes) if len(spacings) == 1 else spacings
    out = [_gradient_along(x, h, i) for h, i in zip(spacings, axes, strict=True)]
    return out[0] if len(out) == 1 else out


def _gradient_along(x: Any, h: Any, axis: int) -> Any:
    n = x.shape[axis]
    if n < 2:
        raise ShapeError("gradient", expected="two points or more along each axis", got=x.shape, mend="give other axes")

    def part(a: int, b: int) -> Any:
        return lax.slice_in_dim(x, a, b, axis=axis)

    if np.ndim(h) == 0:
        ends = [part(1, 2) - part(0, 1), part(n - 1, n) - part(n - 2, n - 1)]
        inner = (part(2, n) - part(0, n - 2)) * 0.5
        return concatenate([ends[0], inner, ends[1]], axis) / h
    if np.shape(h) != (n,):
        raise ShapeError("gradient", expected=f"coordinates of the {n} points along axis {axis}", got=np.shape(h),
                         mend="give a vector of that length, or a number")  # fmt: skip
    steps = diff(operand(h, "gradient"))
    shape = tuple(-1 if i == axis else 1 for i in range(x.ndim))
    steps = steps.reshape(shape)

    def step(a: int, b: int) -> Any:
        return lax.slice_in_dim(steps, a, b, axis=axis)

    before, after = step(0, n - 2), step(1, n - 1)
    inner = (
        -after / (before * (before + after)) * part(0, n - 2)
        + (after - before) / (before * after) * part(1, n - 1)
        + before / (after * (before + after)) * part(2, n)
    )
    first = (part(1, 2) - part(0, 1)) / step(0, 1)
    last = (part(n - 1, n) - part(n - 2, n - 1)) / step(n - 2, n - 1)
    return concatenate([first, inner, last], axis)


@eager_program(static_argnames=("axis",))
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The integral along an axis by the trapezoidal rule.

    Args:
      y: the values of the function.
      x: the coordinates: a vector, or an array that broadcasts with `y`; None for even spacing.
      dx: the distance of points, where `x` is not given.
      axis: the axis of `y` to integrate along.

    Returns:
      Floating-point numbers of the shape of `y` without the axis.

    Examples:
      >>> jnp.trapezoid(jnp.array([1.0, 2.0, 3.0])).item()
      4.0
    """
    if x is None:
        (y,) = promote_inexact("trapezoid", operand(y, "trapezoid"))
        y = moveaxis(y, axis, -1)
    else:
        y, x = promote_inexact("trapezoid", operand(y, "trapezoid"), operand(x, "trapezoid"))
        y = moveaxis(y, axis, -1)
        dx = diff(x) if x.ndim == 1 else moveaxis(diff(x, axis=axis), axis, -1)
    return sum(dx * (y[..., 1:] + y[..., :-1]), axis=-1) * 0.5


@eager_program(static_argnames=("left_kind", "period_kind"))
def _interp(x: Any, xp: Any, fp: Any, left: Any, right: Any, period: Any, left_kind: Any, period_kind: Any) -> Any:
    x, xp = promote_inexact("interp", operand(x, "interp"), operand(xp, "interp"))
    if x.dtype.kind == "c":
        raise DTypeError("interp", expected="real coordinates", got=str(x.dtype), mend="take the real part")
    (fp,) = promote_inexact("interp", operand(fp, "interp"))
    if xp.ndim != 1 or fp.ndim != 1 or xp.shape != fp.shape:
        raise ShapeError(
            "interp", expected="vectors xp and fp of one size", got=f"{xp.shape} and {fp.shape}", mend="ravel"
        )
    if period_kind:
        period = lax.abs(cast(operand(period, "interp"), xp.dtype))
        x, xp = x % period, xp % period
        xp, fp = lax.sort((xp, fp), num_keys=1)
        xp = concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = concatenate([fp[-1:], fp, fp[:1]])
    n = xp.shape[0]
    i = lax.clamp(np.int32(1), searchsorted(xp, x, side="right"), cast(max_dim(n - 1, 1), np.dtype(np.int32)))
    low, high = (fp.at[i - 1].get(mode="clip"), fp.at[i].get(mode="clip"))
    start, end = xp.at[i - 1].get(mode="clip"), xp.at[i].get(mode="clip")
    width = end - start
    flat = lax.abs(width) <= np.spacing(np.finfo(np.float32).eps) if width.dtype != np.float64 else width == 0
    f = where(flat, low, low + (x - start) / where(flat, 1, width) * (high - low))
    if left_kind == "extrapolate":
        return f
    if not period_kind:
        f = where(x < xp[0], fp[0] if left is None else left, f)
        f = where(x > xp[-1], fp[-1] if right is None else right, f)
    return f


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """The values at `x` of the line through points (xp, fp).

    Args:
      x: where to interpolate.
      xp: the coordinates of the points, increasing.
      fp: the values of the points.
      left: the value before the first point, its own by default; `"extrapolate"` goes on along the line.
      right: the value after the last point.
      period: the period of the coordinates.

    Returns:
      Floating-point numbers of the shape of `x`.

    Raises:
      DTypeError: coordinates are complex.
      ShapeError: `xp` and `fp` are no vectors of one size.

    Examples:
      >>> jnp.interp(1.5, jnp.array([1.0, 2.0]), jnp.array([10.0, 20.0])).item()
      15.0
    """
    extrapolate = isinstance(left, str) or isinstance(right, str)
    bounds = (None, None) if extrapolate else (left, right)
    return _interp(
        x, xp, fp, *bounds, period, left_kind="extrapolate" if extrapolate else "", period_kind=period is not None
    )


@eager_program(static_argnames=("axis",))
def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * np.pi) -> Any:
    """Angles along an axis with jumps of more than half a period taken out.

    Args:
      p: angles.
      discont: smaller jumps stay; half a period by default.
      axis: along which jumps are sought.
      period: what is added or taken away, as often as needed; in the unit of `p`.

    Returns:
      The angles in the shape of `p`, the first along the axis unchanged.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> jnp.unwrap(jnp.array([0.0, 4.0]), period=4).tolist()
      [0.0, 0.0]
    """
    from phalanx.numpy.reductions import cumsum
    from phalanx.numpy.ufuncs import absolute, divide, mod

    x = operand(p, "unwrap")
    x = cast(x, promotion.result_type(x, period))
    integers = not dtypes.issubdtype(promotion.result_type(x, period), np.inexact)
    half = period // 2 if integers else divide(period, 2)
    discont = half if discont is None else discont
    axis = canonical_axis(axis, x.ndim, "unwrap")
    step = diff(x, axis=axis)
    turned = mod(step + half, period) - half
    turned = where((turned == -half) & (step > 0), half, turned)
    correction = where(absolute(step) < discont, 0, turned - step)
    rest = lax.slice_in_dim(x, 1, x.shape[axis], axis=axis) + cumsum(correction, axis=axis)
    return concatenate([lax.slice_in_dim(x, 0, 1, axis=axis), rest], axis)
