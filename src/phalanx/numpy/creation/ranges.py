"""Evenly spaced numbers: `arange`, `linspace`, `logspace`, `geomspace`.

The length of `arange` must be static. Ranges that count 0, 1, 2, ... are an `iota` on the device; other short
floating-point ranges are computed by NumPy on the host, so that their rounding agrees with NumPy's.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, DTypeError, dtypes, promotion, state
from phalanx.numpy.creation.array_creation import array, iota, place_output
from phalanx.numpy.operands import (
    as_array,
    aval_or_scalar_type,
    broadcast_operands,
    canonical_axis,
    cast,
    concrete_or_none,
    promote_inexact,
    to_static_int,
)
from phalanx.numpy.shapes.reshaping import moveaxis
from phalanx.numpy.ufuncs.ufunc_table import log, power, sign
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic, max_dim, non_negative
from phalanx.typing import Array, ArrayLike, DTypeLike, ShardingLike


def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    device: ShardingLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Evenly spaced numbers in the half-open interval [start, stop).

    Args:
      start: first number; if it is the only argument, it is `stop` and the sequence starts at 0.
      stop: the end.
      step: spacing of the numbers, 1 by default.
      dtype: dtype of the result; promoted from the arguments by default.
      device: device or sharding on which to place the result.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      A vector of ceil((stop - start) / step) numbers.

    Raises:
      ArgumentError: `step` is 0, or an argument is not a scalar.
      ConcretizationTypeError: an argument is traced, so the length is unknown.
      DTypeError: an argument is complex.

    Examples:
      >>> jnp.arange(2, 10, 3).tolist()
      [2, 5, 8]
    """
    where = device if device is not None else out_sharding
    if stop is None:
        start, stop = 0, start
    if any(map(is_symbolic, (start, stop, step))):
        return place_output(_symbolic_range(start, stop, 1 if step is None else step, dtype), where)
    # The length must be known while tracing, and so must all three numbers.
    numbers = ((start, "start"), (stop, "stop"), (1 if step is None else step, "step"))
    first, last, distance = (_concretize(x, name) for x, name in numbers)
    given = [x for x in (start, stop, step) if x is not None]
    dtype = promotion.result_type(*given) if dtype is None else dtypes.requested_dtype(dtype, "arange")
    if distance == 0:
        raise ArgumentError(
            "arange, argument step",
            expected="a step other than 0",
            got=distance,
            fix="pass a nonzero step, or leave it out for steps of 1",
        )
    # As in NumPy, the length is computed in double precision.
    size = max(0, math.ceil((last - first) / distance))
    if (first, distance) == (0, 1) and (dtype.kind in "iu" or _holds_integers(dtype, size)):
        out = iota(size, dtype)
    elif dtype.kind in "iu":
        out = _progression(size, int(first), int(distance), dtype)
    elif state.trace is not None and size > 64:
        # A long range would be a large constant in the program. Short ones keep the rounding of NumPy.
        out = _progression(size, first, distance, dtype)
    else:
        value = np.arange(first, last, distance)
        # NumPy may round to another length than the formula above; the formula decides.
        value = value if len(value) == size else first + distance * np.arange(size)
        out = as_array(np.asarray(value).astype(dtype))
    return place_output(out, where)


def _holds_integers(dtype: np.dtype, size: int) -> bool:
    """Whether a floating-point dtype represents 0, 1, ... size - 1 exactly."""
    return dtypes.issubdtype(dtype, np.floating) and size <= 2 << dtypes.finfo(dtype).nmant


def _concretize(x: Array, name: str) -> Any:
    if type(x) in (int, float):
        return x
    if type(x) is complex:
        raise DTypeError(
            f"arange, argument {name}",
            expected="a real number",
            got=x,
            fix="use phalanx.numpy.linspace for complex numbers",
        )
    aval_or_scalar_type(x, f"arange, argument {name}")
    value = concrete_or_none(x)
    if value is None:
        return x.__index__() if x.dtype.kind in "iu" else float(x)  # raises, naming the tracer
    if value.ndim:
        raise ArgumentError(
            f"arange, argument {name}",
            expected="a scalar",
            got=f"an array of shape {value.shape}",
            fix="index the array, or take its .item()",
        )
    return value.item()


_FINEST = (
    1 << 20
)  # the largest common denominator of symbolic ranges; it refuses 0.1, whose exact value has denominator 2**55


@eager_jit(static_argnames=("size", "start", "step", "dtype"))
def _symbolic_range(start: Any, stop: ArrayLike | None, step: ArrayLike | None, dtype: np.dtype) -> Any:
    """`arange` of numbers and symbolic dimensions."""
    if not all(is_symbolic(x) or isinstance(x, int | float | np.integer | np.floating) for x in (start, stop, step)):
        raise ArgumentError(
            "arange with symbolic dimensions",
            expected="numbers and dimensions",
            got=f"({start}, {stop}, {step})",
            fix="pass start, stop and step as Python numbers or symbolic dimensions",
        )
    if step == 0:
        raise ArgumentError(
            "arange with symbolic dimensions",
            expected="a step other than 0",
            got=f"({start}, {stop}, {step}), which has step == 0",
            fix="pass a nonzero step, or leave it out for steps of 1",
        )
    # The number of steps must be an exact expression of the symbolic sizes, so that the arithmetic is rational.
    given = [x if is_symbolic(x) else Fraction(x.item() if hasattr(x, "item") else x) for x in (start, stop, step)]
    scale = math.lcm(*(x.denominator for x in given if isinstance(x, Fraction)))
    if scale > _FINEST:
        raise ArgumentError(
            "arange with symbolic dimensions",
            expected="steps whose number follows from the size, as with 0.5",
            got=f"({start}, {stop}, {step})",
            fix="count in whole steps and scale the result",
        )
    whole = [int(x * scale) if isinstance(x, Fraction) else x * scale for x in given]
    has_fractions = any(isinstance(x, float | np.floating) for x in (start, stop, step))
    dtype = dtypes.canonicalize_dtype(dtype or (float if has_fractions else int))
    # ceil((stop - start) / step) in integer arithmetic, where floor division of the negated numerator rounds up.
    counted = lax.iota(dtype, non_negative(-((whole[0] - whole[1]) // whole[2])))
    return lax.add(lax.mul(counted, cast(step, dtype)), cast(start, dtype)) if start != 0 or step != 1 else counted


def _progression(size: int, start: Any, step: ArrayLike | None, dtype: np.dtype) -> Any:
    x = lax.iota(dtype, size)
    # Unsigned integers count down by wrapping.
    x = lax.mul_p(x, np.asarray(step).astype(dtype)[()]) if step != 1 else x
    return lax.add_p(x, dtype.type(start)) if start != 0 else x


def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: ShardingLike | None = None,
) -> Any:
    """`num` evenly spaced numbers from `start` to `stop`.

    Args:
      start, stop: end points; broadcastable arrays give one sequence per element.
      num: number of samples, 0 or more.
      endpoint: whether `stop` is the last sample.
      retstep: also return the spacing.
      dtype: dtype of the result, by default the inexact dtype of the arguments; integers are rounded down.
      axis: position of the new axis in the result.
      device: device or sharding on which to place the result.

    Returns:
      An array with `num` elements along the axis; with `retstep`, a pair of it and the spacing.

    Raises:
      ArgumentError: `num` is negative.
      AxisError: the axis is out of range.
      ShapeError: the shapes of `start` and `stop` do not broadcast.

    Examples:
      >>> jnp.linspace(0, 1, 5).tolist()
      [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    num = _count(num, "linspace")
    dtype = dtypes.requested_dtype(dtype, "linspace") if dtype is not None else None
    start, stop = (array(x) if isinstance(x, list | tuple) or is_symbolic(x) else x for x in (start, stop))
    aval_or_scalar_type(start, "linspace"), aval_or_scalar_type(stop, "linspace")
    out, step = _linspace(start, stop, num, bool(endpoint), dtype, axis)
    out = place_output(out, device)
    return (out, step) if retstep else out


def _count(num: Any, where: str) -> int:
    num = to_static_int(num, f"{where}, argument num")
    if not is_symbolic(num) and num < 0:
        raise ArgumentError(f"{where}, argument num", expected="a number >= 0", got=num, fix="pass num=0 or more")
    return num


@eager_jit(static_argnames=("num", "endpoint", "dtype", "axis"))
def _linspace(start: Any, stop: ArrayLike | None, num: int, endpoint: bool, dtype: np.dtype, axis: int) -> tuple:
    start, stop = promote_inexact("linspace", start, stop)
    compute = start.dtype
    start, stop = broadcast_operands("linspace", cast(start, compute), cast(stop, compute))
    shape = start.shape
    parts = num - 1 if endpoint else num
    out_dtype = compute if dtype is None else dtype
    axis = canonical_axis(axis, len(shape) + 1, "linspace")
    if num == 0:
        return lax.full((*shape[:axis], 0, *shape[axis:]), 0, out_dtype), lax.full((), np.nan, compute)
    full_shape = (num, *shape)
    a, b = (lax.broadcast_in_dim(x, full_shape, tuple(range(1, len(full_shape)))) for x in (start, stop))
    if is_symbolic(parts):
        parts = cast(max_dim(parts, 1), compute)  # the one number of a single step is the start
    step = (stop - start) / parts if is_symbolic(num) or parts else lax.full((), np.nan, compute)
    if not is_symbolic(num) and num == 1:
        out = a
    else:
        # A convex combination, and not start + i * step: its error does not grow with i, and the last sample is near
        # `stop`.
        fraction = lax.broadcasted_iota(compute, full_shape, 0) / parts
        out = a * (1 - fraction) + b * fraction
        if endpoint and is_symbolic(num):
            last = lax.broadcasted_iota(np.int32, full_shape, 0) == cast(max_dim(num - 1, 1), np.int32)
            out = lax.select(last, b, out)
        elif endpoint:
            # The last sample is `stop` exactly; the formula above may round to a neighbouring number.
            out = lax.concatenate([lax.slice_in_dim(out, 0, num - 1, axis=0), lax.slice_in_dim(b, 0, 1, axis=0)], 0)
    # The computation is done along a leading dimension, where broadcasting of the end points is simplest.
    if axis:
        out = lax.transpose(out, (*range(1, axis + 1), 0, *range(axis + 1, len(full_shape))))
    if dtypes.issubdtype(out_dtype, np.integer):
        out = lax.floor(lax.real(out) if out.dtype.kind == "c" else out)
    return cast(out, out_dtype), step


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """Numbers evenly spaced on a log scale: powers of `base` with exponents from `start` to `stop`.

    Args:
      start, stop: the first and the last exponent.
      base: the base, a number or an array that broadcasts with the result.
      num, endpoint, dtype, axis: as in `linspace`.

    Returns:
      An array with `num` elements along the axis.

    Raises:
      ArgumentError: `num` is negative.

    Examples:
      >>> jnp.logspace(0, 3, 4, base=2.0).tolist()
      [1.0, 2.0, 4.0, 8.0]
    """
    num = _count(num, "logspace")
    dtype = dtypes.requested_dtype(dtype, "logspace") if dtype is not None else None
    return _logspace(start, stop, base, num, bool(endpoint), dtype, axis)


@eager_jit(static_argnames=("num", "endpoint", "dtype", "axis"))
def _logspace(
    start: Any, stop: ArrayLike | None, base: Any, num: int, endpoint: bool, dtype: np.dtype, axis: int
) -> Any:
    out = power(base, linspace(start, stop, num, endpoint, axis=axis))
    return out if dtype is None else cast(out, dtype)


def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """Numbers in geometric progression from `start` to `stop`.

    Args:
      start, stop: end points, nonzero and of equal sign.
      num, endpoint, dtype, axis: as in `linspace`.

    Returns:
      An array with `num` elements along the axis.

    Raises:
      ArgumentError: `num` is negative.

    Examples:
      >>> [round(v) for v in jnp.geomspace(1, 1000, 4).tolist()]
      [1, 10, 100, 1000]
    """
    num = _count(num, "geomspace")
    dtype = dtypes.requested_dtype(dtype, "geomspace") if dtype is not None else None
    return _geomspace(start, stop, num, bool(endpoint), dtype, axis)


@eager_jit(static_argnames=("num", "endpoint", "dtype", "axis"))
def _geomspace(start: Any, stop: ArrayLike | None, num: int, endpoint: bool, dtype: np.dtype, axis: int) -> Any:
    start, stop = promote_inexact("geomspace", start, stop)
    signs = sign(start)
    # Logarithms of magnitudes are evenly spaced; the common sign is restored afterwards.
    out = power(np.e, linspace(log(start / signs), log(stop / signs), num, endpoint, axis=axis))
    out = (signs if not getattr(signs, "ndim", 0) else lax.expand_dims(signs, (axis,))) * out
    # Exponentiation rounds: the end points are set exactly.
    if num > 0:
        out = moveaxis(out, axis, 0).at[0].set(start)
        if endpoint and (is_symbolic(num) or num > 1):
            out = out.at[max_dim(num - 1, 1)].set(stop)  # out of bounds where there is one number: the first stays
        out = moveaxis(out, 0, axis)
    return out if dtype is None else cast(out, dtype)
