"""Array creation: from Python data, from values, and ranges and grids.

Built on `lax` and `core`; values known at once are made on the host or by one compiled program. Grids of index notation
(`mgrid`, `r_`, ...) are in `grids.py`.
"""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import host_scalar
from phalanx.core.config import state
from phalanx.core.dispatch import eager_program
from phalanx.core.errors import ArgumentError, ArgumentTypeError, DTypeError
from phalanx.numpy import placing
from phalanx.numpy.operands import (
    SCALAR_KINDS,
    as_array,
    broadcast_to_shape,
    canonical_axis,
    canonical_shape,
    cast,
    concrete,
    kind_of,
    operand,
    promote_inexact,
    unwrapped,
)
from phalanx.symbolic import is_symbolic, max_dim, non_negative


def array(
    object: Any, dtype: Any = None, copy: bool = True, order: str | None = "K", ndmin: int = 0, *, device: Any = None,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Make an array of anything array-like.

    Args:
      object: an array, a scalar, nested sequences of them, or an object that becomes one.
      dtype: the dtype, else that of the data.
      copy: whether the result must not share memory with `object`.
      order: `"K"` or `"C"`; arrays have no other order.
      ndmin: the least rank, reached by leading dimensions of size 1.
      device: a device or sharding to place the array on.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      The array.

    Raises:
      ArgumentError: `order` is not supported.
      ArgumentTypeError: `object` holds something that is no number.

    Examples:
      >>> jnp.array([[1, 2], [3, 4]]).tolist()
      [[1, 2], [3, 4]]
    """
    if order not in (None, "K", "C"):
        raise ArgumentError("array, argument order", expected="'K' or 'C'", got=repr(order), mend="leave it out")
    dtype = dtypes.requested_dtype(dtype, "array") if dtype is not None else None
    x = unwrapped(object) if not hasattr(object, "aval") else object
    if getattr(x, "aval", None) is None:
        out = _from_host(x, dtype)
    elif dtype is None:
        out = lax.copy_p(x) if copy and state.trace is None else x
    else:
        out = cast(x, dtype)
        out = lax.copy_p(out) if out is x and copy and state.trace is None else out
    if out.ndim < ndmin:
        out = lax.reshape(out, (1,) * (ndmin - out.ndim) + out.shape)
    return placing.place(out, device if device is not None else out_sharding)


def _from_host(x: Any, dtype: Any) -> Any:
    """An array of host data: a scalar, NumPy data or nested sequences, which may hold arrays."""
    if type(x) in SCALAR_KINDS:
        if dtype is None:
            return as_array(x)
        if type(x) is int:
            return as_array(host_scalar(x, dtype))
        return as_array(np.asarray(_refuse_lost_part(np.asarray(x), dtype)).astype(dtype))
    if isinstance(x, tuple | list | range):
        if any_array(x):
            out = _stacked(x, dtype)
            return lax.convert_element_type(out, out.dtype) if out.aval.weak_type else out
        value, dtype = _from_sequence(x, dtype)
    elif hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        return from_dlpack(x) if dtype is None else cast(from_dlpack(x), dtype)
    elif hasattr(x, "__array__") or isinstance(x, memoryview | bytes | bytearray | bool | int | float | complex):
        value = np.asarray(x)
    elif hasattr(x, "__iter__") and not isinstance(x, str):
        return _from_host(list(x), dtype)
    else:
        raise _not_numeric(x)
    if value.dtype.kind in "OSUMm":
        raise _not_numeric(x)
    dtype = dtypes.canonicalize_dtype(value.dtype) if dtype is None else dtype
    return as_array(_refuse_lost_part(value, dtype).astype(dtype, copy=True))


def _from_sequence(x: Any, dtype: Any) -> tuple[np.ndarray, Any]:
    """The value of nested sequences and the dtype it takes: Python's numbers take the default one of their kind."""
    value = np.array(x)
    if value.dtype.kind not in "biufcV":
        raise _not_numeric(x)
    if dtype is None:
        weak = _is_weak(x)
        kind = {"i": np.int64, "f": np.float64, "c": np.complex128, "u": np.uint64}.get(value.dtype.kind)
        if (weak and kind is not None) or not value.size:
            dtype = dtypes.canonicalize_dtype(kind if weak else np.float64)
    return value, dtype


def _refuse_lost_part(value: np.ndarray, dtype: Any) -> np.ndarray:
    return value.real if value.dtype.kind == "c" and dtype.kind not in "cb" else value


def _not_numeric(x: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        "array, argument object", expected="numbers, or nested sequences of them of one shape",
        got=f"{x!r} of type {type(x).__name__}", mend="leave data that is not numeric outside of arrays",
    )  # fmt: skip


def any_array(x: Any) -> bool:
    """Whether nested sequences hold an array or a tracer."""
    if isinstance(x, tuple | list):
        return any(any_array(v) for v in x)
    return hasattr(x, "aval") or hasattr(x, "__phalanx_array__")


def _is_weak(x: Any) -> bool:
    """Whether nested sequences hold Python scalars only."""
    while isinstance(x, tuple | list):
        if not x:
            return False
        if isinstance(x[0], tuple | list):
            x = x[0]
            continue
        return all(type(v) in SCALAR_KINDS for v in x)
    return isinstance(x, range)


def _stacked(x: Any, dtype: Any) -> Any:
    from phalanx.numpy.joining import stack

    parts = [_stacked(v, dtype) if any_array(v) and isinstance(v, tuple | list) else v for v in x]
    parts = [v if hasattr(v, "aval") or type(v) in SCALAR_KINDS else array(v) for v in parts]
    return stack(parts, dtype=dtype)


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None, device: Any = None,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Make an array of anything array-like, without a copy where it is one already.

    Args:
      a: an array, a scalar, nested sequences of them, or an object that becomes one.
      dtype: the dtype, else that of the data.
      order: `"K"` or `"C"`.
      copy: True to copy in any case.
      device: a device or sharding to place the array on.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      The array.

    Examples:
      >>> jnp.asarray([1.5, 2.0]).dtype.name
      'float32'
    """
    if dtype is None and copy is None and device is None and out_sharding is None:
        if getattr(a, "aval", None) is not None:
            return a
    return array(a, dtype, bool(copy), order, device=device, out_sharding=out_sharding)


def copy(a: Any, order: str | None = None) -> Any:
    """A copy of an array.

    Examples:
      >>> jnp.copy(jnp.arange(3)).tolist()
      [0, 1, 2]
    """
    a = operand(a, "copy")
    return lax.copy_p(a) if hasattr(a, "aval") else array(a)


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """The array with its elements converted.

    Args:
      x: an array.
      dtype: the new dtype; None for the default floating-point one.
      copy: copy also where the dtype is the same.
      device: where to place the result.

    Examples:
      >>> jnp.astype(jnp.array([1.7, -1.7]), "int32").tolist()
      [1, -1]
    """
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "astype")
    aval = getattr(x, "aval", None)
    if aval is None:
        x = operand(x, "astype")
        aval = getattr(x, "aval", None) or x
    if aval.dtype == dtype and not getattr(aval, "weak_type", False):
        out = array(x) if copy or not hasattr(x, "aval") else x
    else:
        out = lax.convert_element_type_p(x, dtype=dtype, weak_type=False)
    return placing.place(out, device)


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of zeros.

    Args:
      shape: an int or a tuple.
      dtype: the dtype, float by default.
      device: a device or sharding to place it on.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Examples:
      >>> jnp.zeros((2, 2)).tolist()
      [[0.0, 0.0], [0.0, 0.0]]
    """
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "zeros")
    return full(shape, 0, dtype, device=device, out_sharding=out_sharding)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of ones; arguments as in `zeros`.

    Examples:
      >>> jnp.ones(2, "int32").tolist()
      [1, 1]
    """
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "ones")
    return full(shape, 1, dtype, device=device, out_sharding=out_sharding)


empty = zeros


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array with one value everywhere.

    Args:
      shape: an int or a tuple.
      fill_value: a scalar, or an array that broadcasts to the shape.
      dtype: the dtype, else that of the value.
      device: a device or sharding to place it on.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Examples:
      >>> jnp.full((2,), 7).tolist()
      [7, 7]
    """
    shape = canonical_shape(shape, "full")
    if dtype is not None:
        dtype = dtypes.requested_dtype(dtype, "full")
    where = device if device is not None else out_sharding
    if type(fill_value) in SCALAR_KINDS and _is_plain(fill_value):
        weak = dtype is None
        dtype = dtypes.scalar_dtype(type(fill_value)) if weak else dtype
        return placing.place(placing.filled(shape, fill_value, dtype, weak and type(fill_value) is not bool), where)
    if isinstance(fill_value, list | tuple):
        fill_value = array(fill_value)
    value = operand(fill_value, "full, argument fill_value")
    return placing.place(_spread(value, shape, dtype), where)


def _is_plain(value: Any) -> bool:
    """Whether a number may be part of a key: equal to itself, and to no other such as -0.0 to 0.0."""
    return value == value and (value != 0 or str(value)[0] != "-")


@eager_program(static_argnames=("shape", "dtype"))
def _spread(value: Any, shape: tuple, dtype: Any) -> Any:
    value = cast(value, dtype) if dtype is not None else value
    return broadcast_to_shape(value, shape) if np.shape(value) != shape else array(value)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Any:
    """An array with one value everywhere, of the shape and dtype of another.

    Args:
      a: the array to be like, or anything with a shape and a dtype.
      fill_value: the value.
      dtype: another dtype.
      shape: another shape.
      device: where to place it.
      out_sharding: how the result lies, a sharding or a spec; like `a` over Explicit axes if not given.

    Examples:
      >>> jnp.full_like(jnp.arange(3), 9).tolist()
      [9, 9, 9]
    """
    if not (hasattr(a, "shape") and hasattr(a, "dtype")):
        a = operand(array(a) if isinstance(a, list | tuple) else a, "full_like")
    where = device if device is not None else out_sharding
    if where is None and shape is None and getattr(getattr(a, "aval", None), "sharding", None) is not None:
        where = a.sharding
    weak = dtype is None and getattr(a, "weak_type", False)
    dtype = a.dtype if dtype is None else dtype
    shape = a.shape if shape is None else canonical_shape(shape, "full_like")
    if dtypes.issubdtype(dtype, dtypes.extended):
        from phalanx.random import wrap_key_data

        return wrap_key_data(full((*shape, *dtype.key_shape), fill_value, np.uint32, device=where), dtype=dtype)
    if type(fill_value) in SCALAR_KINDS and _is_plain(fill_value):
        value = placing.filled(shape, fill_value, dtypes.requested_dtype(dtype, "full_like"), weak)
        return placing.place(value, where)
    return full(shape, fill_value, dtype, device=where)


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Zeros of the shape and dtype of another array; arguments as in `full_like`.

    Examples:
      >>> jnp.zeros_like(jnp.arange(3)).tolist()
      [0, 0, 0]
    """
    return full_like(a, 0, dtype, shape, device=device, out_sharding=out_sharding)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Ones of the shape and dtype of another array; arguments as in `full_like`.

    Examples:
      >>> jnp.ones_like(jnp.arange(3)).tolist()
      [1, 1, 1]
    """
    return full_like(a, 1, dtype, shape, device=device, out_sharding=out_sharding)


def empty_like(
    prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Any:
    """Zeros of the shape and dtype of another array, since there are no arrays without values.

    Examples:
      >>> jnp.empty_like(jnp.arange(3)).tolist()
      [0, 0, 0]
    """
    return full_like(prototype, 0, dtype, shape, device=device, out_sharding=out_sharding)


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

    Raises:
      ConcretizationTypeError: an argument is traced, so that the length is not known.

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
        dtype = dtypes.result_type(*[x for x in (start, stop, step) if x is not None])
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
      start, stop: the ends; arrays give one sequence for each element.
      num: how many.
      endpoint: whether `stop` is the last.
      retstep: give the distance too.
      dtype: the dtype, else the inexact one of the arguments.
      axis: where the new dimension goes.
      device: where to place it.

    Raises:
      ArgumentError: `num` is negative.

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
    if is_symbolic(num):
        return num
    num = operator.index(num)
    if num < 0:
        raise ArgumentError(f"{where}, argument num", expected="a number >= 0", got=num, mend="give 0 or more")
    return num


@eager_program(static_argnames=("num", "endpoint", "dtype", "axis"))
def _linspace(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> tuple:
    from phalanx.numpy.operands import broadcast_operands
    from phalanx.numpy.ufuncs import floor

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
        out = floor(out)
    return cast(out, out_dtype), step


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    """Powers of `base` with evenly spaced exponents from `start` to `stop`; arguments as in `linspace`.

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
    """Numbers with a constant ratio from `start` to `stop`; arguments as in `linspace`.

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


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Ones on a diagonal, zeros elsewhere.

    Args:
      N: the number of rows.
      M: the number of columns, N by default.
      k: which diagonal: 0 the main one, above it positive.
      dtype: the dtype, float by default.
      device: where to place it.

    Examples:
      >>> jnp.eye(2).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    shape = canonical_shape((N, N if M is None else M), "eye")
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "eye")
    return placing.place(_banded(shape, k, dtype, "eq") if type(k) is int else _banded_at(shape, k, dtype), device)


def identity(n: int, dtype: Any = None) -> Any:
    """The identity matrix.

    Examples:
      >>> jnp.identity(2, "int32").tolist()
      [[1, 0], [0, 1]]
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Ones at and below a diagonal, zeros above.

    Examples:
      >>> jnp.tri(2).tolist()
      [[1.0, 0.0], [1.0, 1.0]]
    """
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "tri")
    return _banded(canonical_shape((N, N if M is None else M), "tri"), int(k), dtype, "ge")


@eager_program(static_argnames=("shape", "k", "dtype", "how"))
def _banded(shape: tuple, k: int, dtype: Any, how: str) -> Any:
    return cast(band_mask(shape, k, how), dtype)


@eager_program(static_argnames=("shape", "dtype"))
def _banded_at(shape: tuple, k: Any, dtype: Any) -> Any:
    rows, columns = (lax.broadcasted_iota(np.dtype(np.int32), shape, i) for i in (0, 1))
    return cast(rows + k == columns, dtype)


def band_mask(shape: tuple, k: int, how: str) -> Any:
    """Whether row + k compares with column as `how` says, over the matrix of that shape."""
    rows, columns = (lax.broadcasted_iota(np.dtype(np.int32), shape, i) for i in (0, 1))
    rows = lax.add_p(rows, np.int32(k)) if k else rows
    return {"eq": lax.eq_p, "ge": lax.ge_p, "lt": lax.lt_p}[how](rows, columns)


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list:
    """Coordinate matrices of coordinate vectors.

    Args:
      xi: vectors or scalars.
      copy: only True is supported.
      sparse: leave each with size 1 along the dimensions of the others.
      indexing: `"xy"` for Cartesian order, `"ij"` for that of matrices.

    Raises:
      ArgumentError: an argument has another value.

    Examples:
      >>> [a.tolist() for a in jnp.meshgrid(jnp.arange(2), jnp.arange(2))]
      [[[0, 1], [0, 1]], [[0, 0], [1, 1]]]
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError("meshgrid, argument indexing", expected="'xy' or 'ij'", got=repr(indexing), mend="use one")
    if not copy:
        raise ArgumentError("meshgrid, argument copy", expected="True", got=copy, mend="leave it out")
    vectors = [array(x) if isinstance(x, list | tuple) else operand(x, "meshgrid") for x in xi]
    for i, x in enumerate(vectors):
        if x.ndim > 1:
            raise ArgumentError(
                f"meshgrid, argument {i}", expected="a vector or a scalar", got=f"an array of shape {x.shape}",
                mend="ravel it",
            )  # fmt: skip
    return _meshgrid(vectors, bool(sparse), indexing)


@eager_program(static_argnames=("sparse", "indexing"))
def _meshgrid(vectors: list, sparse: bool, indexing: str) -> list:
    n = len(vectors)
    place = list(range(n))
    if indexing == "xy" and n >= 2:
        place[:2] = [1, 0]
    sizes = [1] * n
    for p, x in zip(place, vectors, strict=True):
        sizes[p] = x.shape[0] if x.ndim else 1
    out = []
    for p, x in zip(place, vectors, strict=True):
        x = x if x.ndim else lax.reshape(x, (1,))
        shape = tuple(s if (not sparse or i == p) else 1 for i, s in enumerate(sizes))
        out.append(lax.broadcast_in_dim(x, shape, (p,)))
    return out


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array of an object that speaks DLPack, without a copy where possible.

    Examples:
      >>> import numpy as np
      >>> jnp.from_dlpack(np.arange(3.0, dtype="float32")).tolist()
      [0.0, 1.0, 2.0]
    """
    if hasattr(x, "aval") and not copy and device is None:
        return x
    if not hasattr(x, "__dlpack__"):
        raise ArgumentTypeError(
            "from_dlpack",
            expected="an object with __dlpack__ and __dlpack_device__",
            got=f"{x!r} of type {type(x).__name__}",
            mend="use phalanx.numpy.asarray",
        )
    return placing.place(as_array(np.from_dlpack(x)), device)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """An array of the bytes of a buffer.

    Examples:
      >>> jnp.frombuffer(b"ab", "uint8").tolist()
      [97, 98]
    """
    return array(np.frombuffer(buffer, np.dtype(dtype), count, offset))


def fromfile(*args: Any, **kwargs: Any) -> Any:
    """Refused: read the file with NumPy and convert it.

    Raises:
      ArgumentError: always, since the result would depend on the file's content.

    Examples:
      >>> import numpy as np
      >>> jnp.asarray(np.arange(2)).tolist()
      [0, 1]
    """
    raise ArgumentError(
        "fromfile", expected="no side effects", got="a file", mend="use phalanx.numpy.asarray(numpy.fromfile(...))"
    )


def fromiter(*args: Any, **kwargs: Any) -> Any:
    """Refused: make a NumPy array of the iterator and convert it.

    Raises:
      ArgumentError: always, since iterators have side effects.

    Examples:
      >>> jnp.asarray(list(range(2))).tolist()
      [0, 1]
    """
    raise ArgumentError(
        "fromiter", expected="no side effects", got="an iterator", mend="use phalanx.numpy.asarray(list(iterator))"
    )


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    """An array of the numbers written in a text.

    Examples:
      >>> jnp.fromstring("1 2 3", "int32", sep=" ").tolist()
      [1, 2, 3]
    """
    return array(np.fromstring(string, np.dtype(dtype), count, sep=sep))


def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """An array whose elements are a function of their indices.

    Args:
      function: takes one scalar for each dimension.
      shape: the shape.
      dtype: the dtype of the indices.
      kwargs: passed to the function.

    Examples:
      >>> jnp.fromfunction(lambda i, j: i + j, (2, 2), dtype=int).tolist()
      [[0, 1], [1, 2]]
    """
    from phalanx.transforms import vmap

    shape = canonical_shape(shape, "fromfunction")
    for i in range(len(shape)):
        in_axes = [0 if i == j else None for j in range(len(shape))]
        function = vmap(function, in_axes=tuple(in_axes[::-1])) if not kwargs else _mapped(function, in_axes, kwargs)
        kwargs = {}
    return function(*[arange(s, dtype=dtype) for s in shape])


def _mapped(function: Any, in_axes: list, kwargs: dict) -> Any:
    from phalanx.transforms import vmap

    return vmap(lambda *args: function(*args, **kwargs), in_axes=tuple(in_axes[::-1]))


def load(*args: Any, **kwargs: Any) -> Any:
    """Read an array from a `.npy` or `.npz` file; pickled objects are refused.

    Raises:
      ArgumentError: `allow_pickle` is given.

    Examples:
      >>> import io
      >>> file = io.BytesIO()
      >>> jnp.save(file, jnp.arange(2))
      >>> _ = file.seek(0)
      >>> jnp.load(file).tolist()
      [0, 1]
    """
    if kwargs.pop("allow_pickle", False):
        raise ArgumentError(
            "load, argument allow_pickle", expected="False, since reading a pickle executes it", got=True,
            mend="save the arrays as numbers",
        )  # fmt: skip
    out = np.load(*args, allow_pickle=False, **kwargs)
    return array(out) if isinstance(out, np.ndarray) else out


def save(file: Any, arr: Any, allow_pickle: bool = False) -> None:
    """Write an array to a `.npy` file.

    Examples:
      >>> import io
      >>> jnp.save(io.BytesIO(), jnp.arange(2))
    """
    np.save(file, np.asarray(arr), allow_pickle=False)


def savez(file: Any, *args: Any, **kwargs: Any) -> None:
    """Write several arrays to a `.npz` file.

    Examples:
      >>> import io
      >>> jnp.savez(io.BytesIO(), x=jnp.arange(2))
    """
    np.savez(file, *[np.asarray(x) for x in args], **{k: np.asarray(v) for k, v in kwargs.items()})
