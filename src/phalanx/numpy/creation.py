"""Array creation: from Python data and from values.

Built on `lax` and `core`; values known at once are made on the host or by one compiled program. Ranges are in
`ranges.py`, grids in `grids.py`, what is read from files in `files.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import host_scalar
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ArgumentTypeError
from phalanx.numpy import placing
from phalanx.numpy.operands import SCALAR_KINDS, as_array, broadcast_to_shape, canonical_shape, cast, operand, unwrapped
from phalanx.runtime.dispatch import eager_program


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
    _check_order(order, "array")
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


def _check_order(order: Any, where: str) -> None:
    if order not in (None, "K", "C"):
        raise ArgumentError(f"{where}, argument order", expected="'K' or 'C'", got=repr(order), mend="leave it out")


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None, device: Any = None,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Make an array of anything array-like, without a copy where it is one already.

    Args:
      a: an array, a scalar, nested sequences of them, or an object that becomes one.
      dtype: the dtype, else that of the data.
      order: `"K"` or `"C"`; arrays have no other order.
      copy: True to copy in any case.
      device: a device or sharding to place the array on.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      The array.

    Raises:
      ArgumentError: `order` is not supported.
      ArgumentTypeError: `a` holds something that is no number.

    Examples:
      >>> jnp.asarray([1.5, 2.0]).dtype.name
      'float32'
    """
    _check_order(order, "asarray")
    if dtype is None and copy is None and device is None and out_sharding is None:
        if getattr(a, "aval", None) is not None:
            return a
    return array(a, dtype, bool(copy), order, device=device, out_sharding=out_sharding)


def copy(a: Any, order: str | None = None) -> Any:
    """A copy of an array.

    Args:
      a: an array or a scalar.
      order: `"K"` or `"C"`; arrays have no other order.

    Returns:
      An array of the elements of `a` that shares no memory with it.

    Raises:
      ArgumentError: `order` is not supported.

    Examples:
      >>> jnp.copy(jnp.arange(3)).tolist()
      [0, 1, 2]
    """
    _check_order(order, "copy")
    a = operand(a, "copy")
    return lax.copy_p(a) if hasattr(a, "aval") else array(a)


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """The array with its elements converted.

    Args:
      x: an array or a scalar.
      dtype: the new dtype; None for the default floating-point one.
      copy: copy also where the dtype is the same.
      device: a device or sharding to place the result on.

    Returns:
      An array of that dtype; `x` itself where there is nothing to change and `copy` is False.

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
      shape: an int or a tuple of them.
      dtype: of the elements, the default floating-point one if None.
      device: a device or sharding to place the array on.
      out_sharding: another way to say it, a sharding or a spec.

    Returns:
      dtype[*shape].

    Raises:
      ArgumentTypeError: an entry of `shape` is no integer.

    Examples:
      >>> jnp.zeros((2, 2)).tolist()
      [[0.0, 0.0], [0.0, 0.0]]
    """
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "zeros")
    return full(shape, 0, dtype, device=device, out_sharding=out_sharding)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of ones.

    Args:
      shape, dtype, device, out_sharding: as in `zeros`.

    Returns:
      dtype[*shape].

    Raises:
      ArgumentTypeError: an entry of `shape` is no integer.

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

    Returns:
      dtype[*shape].

    Raises:
      ArgumentTypeError: an entry of `shape` is no integer, or `fill_value` holds what is no number.

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
        dtype = dtypes.canonicalize_dtype(type(fill_value)) if weak else dtype
        return placing.place(placing.filled(shape, fill_value, dtype, weak and type(fill_value) is not bool), where)
    if isinstance(fill_value, list | tuple):
        fill_value = array(fill_value)
    value = operand(fill_value, "full, argument fill_value")
    return placing.place(_spread(value, shape, dtype), where)


def _is_plain(value: Any) -> bool:
    """Whether a number may be part of a key: equal to itself, and to no other such as -0.0 to 0.0, or 1-0j to 1+0j."""
    return value == value and not isinstance(value, complex) and (value != 0 or str(value)[0] != "-")


@eager_program(static_argnames=("shape", "dtype"))
def _spread(value: Any, shape: tuple, dtype: Any) -> Any:
    value = cast(value, dtype) if dtype is not None else value
    return broadcast_to_shape(value, shape) if np.shape(value) != shape else array(value)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Any:
    """An array with one value everywhere, of the shape and dtype of another.

    Args:
      a: an array, or anything with a shape and a dtype.
      fill_value: a scalar, or an array that broadcasts to the shape.
      dtype: of the elements, that of `a` if None.
      shape: an int or a tuple of them, the shape of `a` if None.
      device: a device or sharding to place the result on.
      out_sharding: how the result lies, a sharding or a spec; like `a` over Explicit axes if not given.

    Returns:
      dtype[*shape].

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

        if getattr(fill_value, "dtype", None) == dtype:
            return placing.place(broadcast_to_shape(fill_value, shape), where)
        return wrap_key_data(full((*shape, *dtype.key_shape), fill_value, np.uint32, device=where), dtype=dtype)
    if type(fill_value) in SCALAR_KINDS and _is_plain(fill_value):
        value = placing.filled(shape, fill_value, dtypes.requested_dtype(dtype, "full_like"), weak)
        return placing.place(value, where)
    return full(shape, fill_value, dtype, device=where)


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Zeros of the shape and dtype of another array.

    Args:
      a, dtype, shape, device, out_sharding: as in `full_like`.

    Returns:
      dtype[*shape].

    Examples:
      >>> jnp.zeros_like(jnp.arange(3)).tolist()
      [0, 0, 0]
    """
    return full_like(a, 0, dtype, shape, device=device, out_sharding=out_sharding)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Ones of the shape and dtype of another array.

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
    prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Any:
    """Zeros of the shape and dtype of another array, since there are no arrays without values.

    Args:
      prototype: an array, or anything with a shape and a dtype.
      dtype, shape, device, out_sharding: as in `full_like`.

    Returns:
      dtype[*shape].

    Examples:
      >>> jnp.empty_like(jnp.arange(3)).tolist()
      [0, 0, 0]
    """
    return full_like(prototype, 0, dtype, shape, device=device, out_sharding=out_sharding)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Ones on a diagonal, zeros elsewhere.

    Args:
      N: the number of rows.
      M: the number of columns, N by default.
      k: which diagonal: 0 the main one, above it positive.
      dtype: the dtype, float by default.
      device: a device or sharding to place the array on.

    Returns:
      dtype[N, M].

    Raises:
      ArgumentTypeError: `N` or `M` is no integer.

    Examples:
      >>> jnp.eye(2).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    shape = canonical_shape((N, N if M is None else M), "eye")
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, "eye")
    return placing.place(_banded(shape, k, dtype, "eq") if type(k) is int else _banded_at(shape, k, dtype), device)


def identity(n: int, dtype: Any = None) -> Any:
    """The identity matrix.

    Args:
      n: the number of rows and of columns.
      dtype: of the elements, the default floating-point one if None.

    Returns:
      dtype[n, n].

    Raises:
      ArgumentTypeError: `n` is no integer.

    Examples:
      >>> jnp.identity(2, "int32").tolist()
      [[1, 0], [0, 1]]
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Ones at and below a diagonal, zeros above.

    Args:
      N: the number of rows.
      M: the number of columns, N by default.
      k: the last diagonal of ones: 0 the main one, above it positive.
      dtype: of the elements, the default floating-point one if None.

    Returns:
      dtype[N, M].

    Raises:
      ArgumentTypeError: `N` or `M` is no integer.

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


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array of an object that speaks DLPack, without a copy where possible.

    Args:
      x: an object with `__dlpack__` and `__dlpack_device__`.
      device: a device or sharding to place the array on.
      copy: True for a copy also of what is an array of ours already.

    Returns:
      An array of the elements of `x`.

    Raises:
      ArgumentTypeError: `x` has no `__dlpack__`.

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
    if hasattr(x, "aval"):
        return placing.place(x.copy() if copy else x, device)
    return placing.place(as_array(np.from_dlpack(x)), device)
