"""Evenly spaced numbers: ranges, and sequences of a given length.

Built on `creation`; grids, padding and windows call it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, DTypeError
from phalanx.numpy import placing
from phalanx.numpy.creation import array
from phalanx.numpy.operands import (
    as_array,
    broadcast_operands,
    canonical_axis,
    cast,
    concrete,
    integer,
    kind_of,
    promote_inexact,
)
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_symbolic, max_dim, non_negative


def arange(
    start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Any:
    """Evenly spaced numbers from `start` up to, not including, `stop`.

    Args:
      start: the first number; alone, it is `stop` and 0 is the first.
      stop: the end.
      step: the distance, 1 by default.
      dtype: the dtype, else that of the arguments.
      device: a device or sharding to place it on.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      A vector of ceil((stop - start) / step) numbers.

    Raises:
      ArgumentError: `step` is 0, or an argument is no scalar.
      ConcretizationTypeError: an argument is traced, so that the length is not known.
      DTypeError: an argument is complex.

    Examples:
      >>> jnp.arange(2, 10, 3).tolist()
      [2, 5, 8]
    """
    where = device if device is not None else out_sharding
    if stop is None:
        start, stop = 0, start
    if any(map(is_symbolic, (start, stop, step))):
        return placing.place(_symbolic_range(start, stop, 1 if step is None else step, dtype), where)
    given = [_known(x, n) for x, n in ((start, "start"), (stop, "stop"), (1 if step is None else step, "step"))]
    if dtype is None:
        dtype = promotion.result_type(*[x for x in (start, stop, step) if x is not None])
    else:
        dtype = dtypes.requested_dtype(dtype, "arange")
    first, last, distance = given
    if distance == 0:
        raise ArgumentError("arange, argument step", expected="a step other than 0", got=distance, mend="leave it out")
    size = max(0, math.ceil((last - first) / distance))
    if dtype.kind in "iu":
        first, distance = int(first), int(distance)
        if first == 0 and distance == 1:
            return placing.place(placing.iota(size, dtype), where)
        return placing.place(_progression(size, first, distance, dtype), where)
    value = np.arange(first, last, distance)
    value = value if len(value) == size else first + distance * np.arange(size)
    if state.trace is not None and size > 64:
        return placing.place(_progression(size, first, distance, dtype), where)
    return placing.place(as_array(np.asarray(value).astype(dtype)), where)


def _known(x: Any, name: str) -> Any:
    if type(x) in (int, float):
        return x
    if type(x) is complex:
        raise DTypeError(f"arange, argument {name}", expected="a real number", got=x, mend="use linspace")
    kind_of(x, f"arange, argument {name}")
    value = concrete(x)
    if value is None:
        return x.__index__() if x.dtype.kind in "iu" else float(x)  # raises, naming the tracer
    if value.ndim:
        raise ArgumentError(
            f"arange, argument {name}", expected="a scalar", got=f"an array of shape {value.shape}", mend="index it"
        )
    return value.item()


_FINEST = 1 << 20  # by which a step or an end of a symbolic range may be divided


@eager_program(static_argnames=("size", "start", "step", "dtype"))
def _symbolic_range(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    """`arange` of ints and symbolic dimensions."""
    if not all(is_symbolic(x) or isinstance(x, int | float | np.integer | np.floating) for x in (start, stop, step)):
        raise ArgumentError(
            "arange with symbolic dimensions", expected="numbers and dimensions", got=f"({start}, {stop}, {step})",
            mend="convert them",
        )  # fmt: skip
    given = [x if is_symbolic(x) else Fraction(x.item() if hasattr(x, "item") else x) for x in (start, stop, step)]
    scale = math.lcm(*(x.denominator for x in given if isinstance(x, Fraction)))
    if scale > _FINEST:
        raise ArgumentError(
            "arange with symbolic dimensions", expected="steps whose number follows from the size, as with 0.5",
            got=f"({start}, {stop}, {step})", mend="count in whole steps and scale the result",
        )  # fmt: skip
    whole = [int(x * scale) if isinstance(x, Fraction) else x * scale for x in given]
    has_fractions = any(isinstance(x, float | np.floating) for x in (start, stop, step))
    dtype = dtypes.canonicalize_dtype(dtype or (float if has_fractions else int))
    counted = lax.iota(dtype, non_negative(-((whole[0] - whole[1]) // whole[2])))
    return lax.add(lax.mul(counted, cast(step, dtype)), cast(start, dtype)) if start != 0 or step != 1 else counted


def _progression(size: int, start: Any, step: Any, dtype: Any) -> Any:
    x = lax.iota(dtype, size)
    x = lax.mul_p(x, dtype.type(step)) if step != 1 else x
    return lax.add_p(x, dtype.type(start)) if start != 0 else x


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
    axis: int = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    """`num` evenly spaced numbers from `start` to `stop`.

    Args:
      start, stop: the ends; arrays, which broadcast, give one sequence for each element.
      num: how many, 0 or more.
      endpoint: whether `stop` is the last.
      retstep: give the distance too.
      dtype: the dtype, else the inexact one of the arguments; integers are rounded down.
      axis: where the new dimension stands in the result.
      device: a device or sharding to place the result on.

    Returns:
      An array of `num` along the axis; with `retstep` a pair of it and the distance.

    Raises:
      ArgumentError: `num` is negative.
      AxisError: there is no such place.
      ShapeError: the shapes of the ends do not broadcast.

    Examples:
      >>> jnp.linspace(0, 1, 5).tolist()
      [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    num = _count(num, "linspace")
    dtype = dtypes.requested_dtype(dtype, "linspace") if dtype is not None else None
    start, stop = (array(x) if isinstance(x, list | tuple) or is_symbolic(x) else x for x in (start, stop))
    kind_of(start, "linspace"), kind_of(stop, "linspace")
    out, step = _linspace(start, stop, num, bool(endpoint), dtype, axis)
    out = placing.place(out, device)
    return (out, step) if retstep else out


def _count(num: Any, where: str) -> int:
    num = integer(num, f"{where}, argument num")
    if not is_symbolic(num) and num < 0:
        raise ArgumentError(f"{where}, argument num", expected="a number >= 0", got=num, mend="give 0 or more")
    return num


@eager_program(static_argnames=("num", "endpoint", "dtype", "axis"))
def _linspace(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> tuple:
    start, stop = promote_inexact("linspace", start, stop)
    compute = start.dtype
    start, stop = cast(start, compute), cast(stop, compute)
    start, stop = broadcast_operands("linspace", start, stop)
    shape = start.shape
    parts = num - 1 if endpoint else num
    out_dtype = compute if dtype is None else dtype
    axis = canonical_axis(axis, len(shape) + 1, "linspace")
    if num == 0:
        return lax.full((*shape[:axis], 0, *shape[axis:]), 0, out_dtype), lax.full(shape, np.nan, compute)
    full_shape = (num, *shape)
    inner = tuple(range(1, len(full_shape)))
    a, b = (lax.broadcast_in_dim(x, full_shape, inner) for x in (start, stop))
    if is_symbolic(parts):
        parts = cast(max_dim(parts, 1), compute)  # the one number of a single step is the start
    step = (stop - start) / parts if is_symbolic(num) or parts else lax.full(shape, np.nan, compute)
    if not is_symbolic(num) and num == 1:
        out = a
    else:
        fraction = lax.broadcasted_iota(compute, full_shape, 0) / parts
        out = a * (1 - fraction) + b * fraction
        if endpoint and is_symbolic(num):
            last = lax.broadcasted_iota(np.int32, full_shape, 0) == cast(max_dim(num - 1, 1), np.int32)
            out = lax.select(last, b, out)
        elif endpoint:
            # The last is `stop` exactly, whatever the rounding.
            out = lax.concatenate([lax.slice_in_dim(out, 0, num - 1, axis=0), lax.slice_in_dim(b, 0, 1, axis=0)], 0)
    if axis:
        out = lax.transpose(out, (*range(1, axis + 1), 0, *range(axis + 1, len(full_shape))))
    if dtypes.issubdtype(out_dtype, np.integer):
        out = lax.floor(lax.real(out) if out.dtype.kind == "c" else out)
    return cast(out, out_dtype), step


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    """Powers of `base` with evenly spaced exponents from `start` to `stop`.

    Args:
      start, stop: the first and the last exponent.
      base: the base, a number or an array that broadcasts with the result.
      num, endpoint, dtype, axis: as in `linspace`.

    Returns:
      An array of `num` along the axis.

    Raises:
      ArgumentError: `num` is negative.

    Examples:
      >>> jnp.logspace(0, 3, 4, base=2.0).tolist()
      [1.0, 2.0, 4.0, 8.0]
    """
    num = _count(num, "logspace")
    dtype = dtypes.requested_dtype(dtype, "logspace") if dtype is not None else None
    return _logspace(start, stop, base, num, bool(endpoint), dtype, axis)


@eager_program(static_argnames=("num", "endpoint", "dtype", "axis"))
def _logspace(start: Any, stop: Any, base: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> Any:
    from phalanx.numpy.ufuncs import power

    out = power(base, linspace(start, stop, num, endpoint, axis=axis))
    return out if dtype is None else cast(out, dtype)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """Numbers with a constant ratio from `start` to `stop`.

    Args:
      start, stop: the ends, other than 0 and of one sign.
      num, endpoint, dtype, axis: as in `linspace`.

    Returns:
      An array of `num` along the axis.

    Raises:
      ArgumentError: `num` is negative.

    Examples:
      >>> [round(v) for v in jnp.geomspace(1, 1000, 4).tolist()]
      [1, 10, 100, 1000]
    """
    num = _count(num, "geomspace")
    dtype = dtypes.requested_dtype(dtype, "geomspace") if dtype is not None else None
    return _geomspace(start, stop, num, bool(endpoint), dtype, axis)


@eager_program(static_argnames=("num", "endpoint", "dtype", "axis"))
def _geomspace(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> Any:
    from phalanx.numpy.ufuncs import log, power, sign

    start, stop = promote_inexact("geomspace", start, stop)
    signs = sign(start)
    fractions = linspace(log(start / signs), log(stop / signs), num, endpoint, axis=axis)
    out = power(np.e, fractions)
    out = (signs if not getattr(signs, "ndim", 0) else lax.expand_dims(signs, (axis,))) * out
    if num > 0:
        from phalanx.numpy.shapes import moveaxis

        out = moveaxis(out, axis, 0).at[0].set(start)
        if endpoint and (is_symbolic(num) or num > 1):
            out = out.at[max_dim(num - 1, 1)].set(stop)  # out of bounds where there is one number: the first stays
        out = moveaxis(out, 0, axis)
    return out if dtype is None else cast(out, dtype)
