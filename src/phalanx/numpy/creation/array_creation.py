"""Array creation from data (`array`, `asarray`, `copy`, `from_dlpack`) and constants (`zeros`, `full`, `eye`, `tri`).

Host data are converted by NumPy and transferred once. Constants are created on the device by one compiled program,
which is cached by shape, value and dtype. Nested sequences that contain arrays are stacked. `place_output`, which
implements the `device` arguments, and `iota` serve `ranges` too.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import (
    ArgumentTypeError,
    ConversionError,
    ShapeError,
    Tracer,
    WrappingTracer,
    check_is_unmasked,
    dtypes,
    host_scalar,
    promotion,
    state,
)
from phalanx.lax.prng.key_words import random_wrap_p
from phalanx.lax.sharding.out_sharding import apply_out_sharding, is_over_no_mesh, sharding_for_array_like
from phalanx.numpy.operands import (
    SCALAR_KINDS,
    as_array,
    broadcast_to_shape,
    canonical_axis,
    canonical_shape,
    cast,
    check_choice,
    promote,
    to_operand,
    to_static_int,
    unwrap_array_like,
)
from phalanx.runtime import eager_jit, transfer
from phalanx.sharding import NamedSharding, PartitionSpec, to_sharding
from phalanx.symbolic import is_symbolic
from phalanx.tree import tree_leaves
from phalanx.typing import Array, ArrayLike, DTypeLike, Shape, ShardingLike


def array(
    object: object,
    dtype: DTypeLike | None = None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: ShardingLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Create an array from array-like data.

    Args:
      object: an array, a scalar, nested sequences of these, or an object that implements `__array__`,
        `__array_interface__` or DLPack, such as an image of Pillow.
      dtype: dtype of the result; inferred from the data by default.
      copy: whether to copy when `object` is already an array.
      order: `"K"` or `"C"`; other memory layouts do not exist.
      ndmin: minimum rank; leading dimensions of size 1 are added to reach it.
      device: device or sharding on which to place the result.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      The array.

    Raises:
      ArgumentError: `order` is not supported.
      ConversionError: `object` contains data that is not numeric.

    Examples:
      >>> jnp.array([[1, 2], [3, 4]]).tolist()
      [[1, 2], [3, 4]]
    """
    _check_order(order, "array")
    dtype = dtypes.requested_dtype(dtype, "array") if dtype is not None else None
    x = unwrap_array_like(object) if not hasattr(object, "aval") else object
    if getattr(x, "aval", None) is None:
        out = _from_host(x, dtype)
    elif dtype is None:
        out = lax.copy_p(x) if copy and _has_buffer(x) else x
    else:
        out = cast(x, dtype)
        out = lax.copy_p(out) if out is x and copy and _has_buffer(x) else out
    if out.ndim < ndmin:
        out = lax.reshape(out, (1,) * (ndmin - out.ndim) + out.shape)
    return place_output(out, device if device is not None else out_sharding)


def _has_buffer(x: Any) -> bool:
    """Whether `x` holds data, also under an eager `jvp` or `vmap`; values of jaxprs are immutable, and need no copy."""
    return state.trace is None or (isinstance(x, WrappingTracer) and isinstance(x.concrete, Array))


def _from_host(x: Array, dtype: np.dtype) -> Any:
    """Convert a scalar, NumPy data or nested sequences, which may contain arrays."""
    if type(x) in SCALAR_KINDS:
        if dtype is None:
            return as_array(x)
        if type(x) is int:
            return as_array(host_scalar(x, dtype))
        return _cast_host_data(x, np.asarray(x), dtype)
    # Sequences that contain arrays or tracers cannot be converted by NumPy: it would concretize them.
    if isinstance(x, tuple | list | range):
        if contains_array(x):
            out = _stack_nested(x, dtype)
            return lax.convert_element_type(out, out.dtype) if out.aval.weak_type else out
        value, dtype = _from_sequence(x, dtype)
    elif hasattr(x, "__dlpack__") and not _is_array_like(x):
        return from_dlpack(x) if dtype is None else cast(from_dlpack(x), dtype)
    elif _is_array_like(x) or isinstance(x, memoryview | bytes | bytearray | bool | int | float | complex):
        check_is_unmasked(x)
        value = np.asarray(x)
    elif hasattr(x, "__iter__") and not isinstance(x, str | Set | Mapping):
        return _from_host(list(x), dtype)
    else:
        raise _not_numeric(x)
    if value.dtype.kind in "OSUMm":
        raise _not_numeric(x)
    # 64-bit host data become 32-bit unless x64 is enabled.
    dtype = dtypes.canonicalize_dtype(value.dtype) if dtype is None else dtype
    return _cast_host_data(value, value, dtype)


def _is_array_like(x: object) -> bool:
    """Whether NumPy makes an array of `x` by one of its protocols."""
    return hasattr(x, "__array__") or hasattr(x, "__array_interface__") or hasattr(x, "__array_struct__")


def _cast_host_data(x: Any, value: np.ndarray, dtype: np.dtype) -> Any:
    """The NumPy data `value` of a user's `x` as an array of a dtype."""
    dtypes.check_conversion(x, value.dtype, dtype)
    if value.dtype.kind == "c" and dtype.kind not in "cb":
        value = value.real
    return as_array(value.astype(dtype, copy=True))


def _from_sequence(x: Array, dtype: np.dtype) -> tuple[np.ndarray, Any]:
    """The value of nested sequences, and its dtype: the default dtype of a kind if all are Python scalars."""
    value, weak = np.array(x), _is_weak(x)
    if not weak:
        for element in tree_leaves(x):
            check_is_unmasked(element)
    # Python integers beyond 64 bits make an array of objects.
    kind = "i" if weak and value.dtype.kind == "O" else value.dtype.kind
    if kind not in "biufcV":
        raise _not_numeric(x)
    if dtype is None:
        # A list of Python numbers has the default dtype of its kind, not the dtype NumPy chooses by value.
        default = {"i": np.int64, "f": np.float64, "c": np.complex128, "u": np.uint64}.get(kind)
        if (weak and default is not None) or not value.size:
            dtype = dtypes.canonicalize_dtype(default if weak else np.float64)
        elif not weak and not SCALAR_KINDS.isdisjoint({type(v) for v in tree_leaves(x)}):
            dtype = promotion.result_type(*tree_leaves(x))  # Python scalars among NumPy's are weakly typed
    if weak and kind == "c" and dtype is not None:
        dtypes.check_conversion(complex(value.flat[0]), value.dtype, dtype)
    if weak and kind in "iu":
        value = np.array(x, dtype)  # raises OverflowError for integers out of range, where `astype` wraps around
    return value, dtype


def _not_numeric(x: Array) -> ConversionError:
    return ConversionError(
        "array, argument object",
        expected="numbers, or nested sequences of them of one shape",
        got=f"{x!r} of type {type(x).__name__}",
        fix="leave data that is not numeric outside of arrays",
    )


_MAX_NESTING = 64  # the largest rank of a NumPy array


def contains_array(x: ArrayLike, depth: int = _MAX_NESTING) -> bool:
    """Whether nested sequences, at most `depth` deep, contain an array or a tracer."""
    if isinstance(x, tuple | list):
        return any(contains_array(v, _inner(depth)) for v in x)
    return hasattr(x, "aval") or hasattr(x, "__phalanx_array__")


def _inner(depth: int) -> int:
    """The depth that is left for the elements of a sequence."""
    if depth:
        return depth - 1
    raise ConversionError(
        "array, argument object",
        expected=f"sequences nested at most {_MAX_NESTING} deep",
        got="deeper ones, or a sequence that contains itself",
        fix="take the outer sequence out of the inner one",
    )


def _is_weak(x: Array) -> bool:
    """Whether nested sequences contain Python scalars only."""
    while isinstance(x, tuple | list) and x and isinstance(x[0], tuple | list):
        x = x[0]
    return isinstance(x, range) or (isinstance(x, tuple | list) and bool(x) and all(type(v) in SCALAR_KINDS for v in x))


def _stack_nested(x: Array, dtype: np.dtype, depth: int = _MAX_NESTING) -> Any:
    inner = _inner(depth)
    parts = [_stack_nested(v, dtype, inner) if contains_array(v) and isinstance(v, tuple | list) else v for v in x]
    parts = [v if hasattr(v, "aval") or type(v) in SCALAR_KINDS else array(v) for v in parts]
    return stack_operands(parts, 0, dtype)


def promote_parts(parts: list, dtype: DTypeLike, where: str) -> list:
    """Arrays in one dtype: the requested one, or the one that they promote to."""
    parts = promote(where, *parts)
    return parts if dtype is None else [cast(x, dtype) for x in parts]


@eager_jit(static_argnames=("axis", "dtype"))
def stack_operands(parts: list, axis: int, dtype: DTypeLike) -> Array:
    """Arrays of one shape along a new axis, as one compiled program when called eagerly."""
    parts = promote_parts(parts, dtype, "stack")
    dims = np.shape(parts[0])
    for i, x in enumerate(parts):
        if np.shape(x) != dims:
            raise ShapeError(
                f"stack, array {i}",
                expected=f"the shape {dims} of array 0",
                got=np.shape(x),
                fix="make the shapes equal with phalanx.numpy.broadcast_arrays",
            )
    axis = canonical_axis(axis, len(dims) + 1, "stack")
    parts = [lax.reshape(to_operand(x, "stack"), (*dims[:axis], 1, *dims[axis:])) for x in parts]
    return lax.concatenate(parts, axis) if len(parts) > 1 else parts[0]


def _check_order(order: Array, where: str) -> None:
    check_choice(f"{where}, argument order", order, (None, "K", "C"))


def asarray(
    a: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: ShardingLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Convert array-like data to an array, without a copy if it is one already.

    Args:
      a: an array, a scalar, nested sequences of these, or an object that implements `__array__`,
        `__array_interface__` or DLPack, such as an image of Pillow.
      dtype: dtype of the result; inferred from the data by default.
      order: `"K"` or `"C"`; other memory layouts do not exist.
      copy: True to copy in any case.
      device: device or sharding on which to place the result.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      The array.

    Raises:
      ArgumentError: `order` is not supported.
      ConversionError: `a` contains data that is not numeric.

    Examples:
      >>> jnp.asarray([1.5, 2.0]).dtype.name
      'float32'
    """
    _check_order(order, "asarray")
    if dtype is None and copy is None and device is None and out_sharding is None:
        if getattr(a, "aval", None) is not None:
            # A transformed Python number is not an array yet.
            if isinstance(a, WrappingTracer) and isinstance(a.concrete, int | float | complex):
                a = lax.convert_element_type_p(a, dtype=a.dtype, weak_type=a.weak_type)
            return a  # type: ignore[return-value]
    return array(a, dtype, bool(copy), order, device=device, out_sharding=out_sharding)


def copy(a: ArrayLike, order: str | None = None) -> Array:
    """A copy of an array.

    Args:
      a: array or scalar.
      order: `"K"` or `"C"`; other memory layouts do not exist.

    Returns:
      An array equal to `a` that shares no memory with it.

    Raises:
      ArgumentError: `order` is not supported.

    Examples:
      >>> jnp.copy(jnp.arange(3)).tolist()
      [0, 1, 2]
    """
    _check_order(order, "copy")
    a = to_operand(a, "copy")
    return lax.copy_p(a) if hasattr(a, "aval") else array(a)


def astype(x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = False, device: ShardingLike | None = None) -> Array:
    """Cast an array to another dtype.

    Args:
      x: array or scalar.
      dtype: the new dtype; the default floating-point dtype if None.
      copy: copy even if the dtype is the same.
      device: device or sharding on which to place the result.

    Returns:
      An array of that dtype; `x` itself if nothing changes and `copy` is False.

    Examples:
      >>> jnp.astype(jnp.array([1.7, -1.7]), "int32").tolist()
      [1, -1]
    """
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "astype")
    aval = getattr(x, "aval", None)
    if aval is None:
        x = to_operand(x, "astype")
        aval = getattr(x, "aval", None) or x
    if aval.dtype == dtype and not getattr(aval, "weak_type", False):
        out = array(x) if copy or not hasattr(x, "aval") else x
    else:
        dtypes.check_conversion(x, aval.dtype, dtype)
        out = lax.convert_element_type_p(x, dtype=dtype, weak_type=False)
    return place_output(out, device)


def zeros(
    shape: Shape | int,
    dtype: DTypeLike | None = None,
    *,
    device: ShardingLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array of zeros.

    Args:
      shape: an int or a tuple of ints.
      dtype: dtype of the elements; the default floating-point dtype if None.
      device: device or sharding on which to place the result.
      out_sharding: alternative to `device`: a sharding or a `PartitionSpec`.

    Returns:
      dtype[*shape].

    Raises:
      ArgumentTypeError: an entry of `shape` is not an integer.

    Examples:
      >>> jnp.zeros((2, 2)).tolist()
      [[0.0, 0.0], [0.0, 0.0]]
    """
    if dtype is dtypes.float0:  # the dtype of tangents of integers, which hold nothing to compute with
        return np.zeros(canonical_shape(shape, "zeros"), dtypes.float0)  # type: ignore[return-value]
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "zeros")
    return full(shape, 0, dtype, device=device, out_sharding=out_sharding)


def ones(
    shape: Shape | int,
    dtype: DTypeLike | None = None,
    *,
    device: ShardingLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array of ones.

    Args:
      shape, dtype, device, out_sharding: as in `zeros`.

    Returns:
      dtype[*shape].

    Raises:
      ArgumentTypeError: an entry of `shape` is not an integer.

    Examples:
      >>> jnp.ones(2, "int32").tolist()
      [1, 1]
    """
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "ones")
    return full(shape, 1, dtype, device=device, out_sharding=out_sharding)


empty = zeros


def full(
    shape: Shape | int,
    fill_value: ArrayLike | None,
    dtype: DTypeLike | None = None,
    *,
    device: ShardingLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array filled with one value.

    Args:
      shape: an int or a tuple of ints.
      fill_value: a scalar, or an array that broadcasts to the shape.
      dtype: dtype of the result; that of `fill_value` by default.
      device: device or sharding on which to place the result.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      dtype[*shape].

    Raises:
      ArgumentTypeError: an entry of `shape` is not an integer, or `fill_value` is not numeric.

    Examples:
      >>> jnp.full((2,), 7).tolist()
      [7, 7]
    """
    shape = canonical_shape(shape, "full")
    dtype = None if dtype is None else dtypes.requested_dtype(dtype, "full")
    if dtype is dtypes.float0:  # zeros without data, which devices do not hold
        return np.zeros(shape, dtype)  # type: ignore[return-value]
    if type(fill_value) is complex and dtype is not None:
        dtypes.check_conversion(fill_value, np.dtype(complex), dtype)
    where = device if device is not None else out_sharding
    if dtype is not None and dtypes.is_extended(dtype):
        # The words of a key are uint32, and `random_wrap_p` reinterprets them.
        return random_wrap_p(full((*shape, *dtype.key_shape), fill_value, np.uint32, device=where), dtype=dtype)
    if type(fill_value) in SCALAR_KINDS and _is_plain(fill_value):
        weak = dtype is None
        dtype = dtypes.canonicalize_dtype(type(fill_value)) if weak else dtype
        return place_output(fill(shape, fill_value, dtype, weak and type(fill_value) is not bool), where)
    is_nested = isinstance(fill_value, list | tuple)
    value = array(fill_value) if is_nested else to_operand(fill_value, "full, argument fill_value")
    return place_output(_spread(value, shape, dtype), where)


def _is_plain(value: Any) -> bool:
    """Whether equality identifies a number: it does not for NaN, for -0.0 and 0.0, and for complex numbers."""
    # The value is part of a cache key, which compares by ==.
    return value == value and not isinstance(value, complex) and (value != 0 or str(value)[0] != "-")


@eager_jit(static_argnames=("shape", "dtype"))
def _spread(value: Any, shape: tuple, dtype: np.dtype) -> Any:
    value = cast(value, dtype) if dtype is not None else value
    return broadcast_to_shape(value, shape) if np.shape(value) != shape else array(value)


def full_like(
    a: ArrayLike,
    fill_value: ArrayLike | None,
    dtype: DTypeLike | None = None,
    shape: Shape | None = None,
    *,
    device: ShardingLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array filled with one value, with the shape and dtype of another array.

    Args:
      a: an array, or any object with `shape` and `dtype`.
      fill_value: a scalar, or an array that broadcasts to the shape.
      dtype: dtype of the elements; that of `a` if None.
      shape: an int or a tuple of ints; the shape of `a` if None.
      device: device or sharding on which to place the result.
      out_sharding: sharding of the result; that of `a` over Explicit axes by default.

    Returns:
      dtype[*shape].

    Examples:
      >>> jnp.full_like(jnp.arange(3), 9).tolist()
      [9, 9, 9]
    """
    if not (hasattr(a, "shape") and hasattr(a, "dtype")):
        a = to_operand(array(a) if isinstance(a, list | tuple) else a, "full_like")
    where = device if device is not None else out_sharding
    weak = dtype is None and getattr(a, "weak_type", False)
    dtype = a.dtype if dtype is None else dtype
    shape = a.shape if shape is None else canonical_shape(shape, "full_like")
    if where is None:
        where = sharding_for_array_like(a, shape)
    if dtypes.issubdtype(dtype, dtypes.extended):
        if getattr(fill_value, "dtype", None) == dtype:
            return place_output(broadcast_to_shape(fill_value, shape), where)
        return full(shape, fill_value, dtype, device=where)
    if type(fill_value) in SCALAR_KINDS and _is_plain(fill_value):
        return place_output(fill(shape, fill_value, dtypes.requested_dtype(dtype, "full_like"), weak), where)
    return full(shape, fill_value, dtype, device=where)


def zeros_like(
    a: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Shape | None = None,
    *,
    device: ShardingLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array of zeros with the shape and dtype of another.

    Args:
      a, dtype, shape, device, out_sharding: as in `full_like`.

    Returns:
      dtype[*shape].

    Examples:
      >>> jnp.zeros_like(jnp.arange(3)).tolist()
      [0, 0, 0]
    """
    return full_like(a, 0, dtype, shape, device=device, out_sharding=out_sharding)


def ones_like(
    a: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Shape | None = None,
    *,
    device: ShardingLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array of ones with the shape and dtype of another.

    Args:
      a, dtype, shape, device, out_sharding: as in `full_like`.

    Returns:
      dtype[*shape].

    Examples:
      >>> jnp.ones_like(jnp.arange(3)).tolist()
      [1, 1, 1]
    """
    return full_like(a, 1, dtype, shape, device=device, out_sharding=out_sharding)


def empty_like(
    prototype: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Shape | None = None,
    *,
    device: ShardingLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array of zeros with the shape and dtype of another: uninitialized arrays do not exist.

    Args:
      prototype: an array, or any object with `shape` and `dtype`.
      dtype, shape, device, out_sharding: as in `full_like`.

    Returns:
      dtype[*shape].

    Examples:
      >>> jnp.empty_like(jnp.arange(3)).tolist()
      [0, 0, 0]
    """
    return full_like(prototype, 0, dtype, shape, device=device, out_sharding=out_sharding)


def eye(
    N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None, *, device: ShardingLike | None = None
) -> Array:
    """A matrix with ones on a diagonal and zeros elsewhere.

    Args:
      N: the number of rows.
      M: the number of columns, N by default.
      k: index of the diagonal: 0 for the main one, positive above it.
      dtype: dtype of the elements; the default floating-point dtype if None.
      device: device or sharding on which to place the result.

    Returns:
      dtype[N, M].

    Raises:
      ArgumentTypeError: `N` or `M` is not an integer.

    Examples:
      >>> jnp.eye(2).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    shape = canonical_shape((N, N if M is None else M), "eye")
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "eye")
    return place_output(_band(shape, k, dtype, "eq") if type(k) is int else _diagonal_at(shape, k, dtype), device)


def identity(n: int, dtype: DTypeLike | None = None) -> Any:
    """The identity matrix.

    Args:
      n: number of rows and columns.
      dtype: dtype of the elements; the default floating-point dtype if None.

    Returns:
      dtype[n, n].

    Raises:
      ArgumentTypeError: `n` is not an integer.

    Examples:
      >>> jnp.identity(2, "int32").tolist()
      [[1, 0], [0, 1]]
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Array:
    """A matrix with ones at and below a diagonal, and zeros above it.

    Args:
      N: the number of rows.
      M: the number of columns, N by default.
      k: the uppermost diagonal of ones: 0 for the main one, positive above it.
      dtype: dtype of the elements; the default floating-point dtype if None.

    Returns:
      dtype[N, M].

    Raises:
      ArgumentTypeError: `N` or `M` is not an integer.

    Examples:
      >>> jnp.tri(2).tolist()
      [[1.0, 0.0], [1.0, 1.0]]
    """
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "tri")
    shape = canonical_shape((N, N if M is None else M), "tri")
    if isinstance(k, Tracer) or is_symbolic(k):
        rows, columns = (lax.broadcasted_iota(np.dtype(np.int32), shape, i) for i in (0, 1))
        return cast(rows + k >= columns, dtype)
    # Beyond the corners of the matrix all diagonals are the same.
    k = to_static_int(k, "tri, argument k")
    return _band(shape, k if any(map(is_symbolic, shape)) else max(-shape[0], min(k, shape[1])), dtype, "ge")


@eager_jit(static_argnames=("shape", "k", "dtype", "how"))
def _band(shape: tuple, k: int, dtype: np.dtype, how: str) -> Any:
    return cast(band_mask(shape, k, how), dtype)


@eager_jit(static_argnames=("shape", "dtype"))
def _diagonal_at(shape: tuple, k: Any, dtype: np.dtype) -> Any:
    rows, columns = (lax.broadcasted_iota(np.dtype(np.int32), shape, i) for i in (0, 1))
    return cast(rows + k == columns, dtype)


def band_mask(shape: tuple, k: int, how: str) -> Array:
    """The mask `row + k OP column` of a matrix, where `how` names the comparison OP."""
    rows, columns = (lax.broadcasted_iota(np.dtype(np.int32), shape, i) for i in (0, 1))
    # Comparing two iotas needs no memory: XLA fuses them into the consumer.
    rows = lax.add_p(rows, np.int32(k)) if k else rows
    return {"eq": lax.eq_p, "ge": lax.ge_p, "lt": lax.lt_p}[how](rows, columns)


def is_supported_dtype(dtype: DTypeLike) -> bool:
    """Whether arrays of a dtype can be exchanged through DLPack: bool, and numbers of 8 bits or more but float8.

    Args:
      dtype: the dtype.

    Returns:
      The answer.

    Examples:
      >>> import phalanx
      >>> phalanx.dlpack.is_supported_dtype("bfloat16"), phalanx.dlpack.is_supported_dtype("int4")
      (True, False)
    """
    dtype = np.dtype(dtype)
    return dtype.kind in "biufc" or dtype == dtypes.bfloat16


def from_dlpack(external_array: ArrayLike, device: ShardingLike | None = None, copy: bool | None = None) -> Array:
    """Convert an object that implements the DLPack protocol, without a copy where possible.

    Args:
      external_array: an object with `__dlpack__` and `__dlpack_device__`.
      device: device or sharding on which to place the result.
      copy: True to copy even if it is a Phalanx array.

    Returns:
      An array with its elements.

    Raises:
      ArgumentTypeError: it has no `__dlpack__`.

    Examples:
      >>> import numpy as np
      >>> jnp.from_dlpack(np.arange(3.0, dtype="float32")).tolist()
      [0.0, 1.0, 2.0]
    """
    if hasattr(external_array, "aval") and not copy and device is None:
        return external_array  # type: ignore[return-value]
    if not hasattr(external_array, "__dlpack__"):
        raise ArgumentTypeError(
            "from_dlpack",
            expected="an object with __dlpack__ and __dlpack_device__",
            got=f"{external_array!r} of type {type(external_array).__name__}",
            fix="convert it with phalanx.numpy.asarray",
        )
    if hasattr(external_array, "aval"):
        return place_output(external_array.copy() if copy else external_array, device)
    return place_output(as_array(np.from_dlpack(external_array)), device)


def place_output(x: Array, where: ArrayLike | None) -> Array:
    """Place `x` on a device or with a sharding, if one is given."""
    if where is None or is_over_no_mesh(where):
        return x

    is_named = isinstance(where, PartitionSpec | NamedSharding)
    # Inside a traced function the placement is a property of the type (Explicit axes) or a constraint on the
    # compiler.
    if state.trace is not None:
        return apply_out_sharding(x, where, "out_sharding") if is_named else lax.with_sharding_constraint(x, where)
    if is_named:
        where = to_sharding(where, where="out_sharding")
        if where.type_sharding(x.ndim) is not None:  # A sharding in a type has an entry for each dimension.
            where = where.complete(x.ndim)
    elif not hasattr(where, "device_set"):
        where = transfer.single_device_sharding(where)
    return transfer.put(x, where)


@eager_jit(static_argnames=("shape", "value", "dtype", "weak"))
def fill(shape: tuple, value: ArrayLike, dtype: DTypeLike, weak: bool) -> Array:
    """An array filled with a Python scalar, by one operation."""
    # `lax.full` creates a strong type. Broadcasting a Python scalar keeps the weak type.
    if not weak or dtypes.canonicalize_dtype(type(value)) != dtype:
        return cast(lax.full(shape, value, dtype), dtype, weak)
    return lax.broadcast_in_dim(value, shape, ()) if shape else as_array(value)


@eager_jit(static_argnames=("size", "dtype"))
def iota(size: int, dtype: DTypeLike) -> Array:
    """The vector 0, 1, ..., size - 1."""
    return lax.iota(dtype, size)
