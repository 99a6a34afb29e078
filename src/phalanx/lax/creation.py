"""Arrays from nothing: `iota`, `full` and their relatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import DTypeError, ShapeError
from phalanx.core.primitive import ZERO, Primitive, Roles
from phalanx.lax.broadcast import broadcast_in_dim_p, check_dims, dim_names, static_shape
from phalanx.lax.convert import convert_element_type, convert_element_type_p
from phalanx.lax.explicit import placed
from phalanx.lax.family import NUMBER, SCALARS, kind_of, scalar_like


class Iota(Primitive, name="iota"):
    """0, 1, 2, ... along dimension `dim` of an array of the given shape."""

    def result(self, *, dtype: Any, shape: tuple, dim: int) -> Any:
        check_dims("lax.broadcasted_iota dimension", (dim,), len(shape))
        if kind_of(dtype) not in NUMBER.members:
            raise DTypeError("lax.iota dtype", expected=NUMBER.words, got=dtype, mend="count in integers and convert")
        return ShapedArray(shape, dtype)

    def roles(self, *, dtype: Any, shape: tuple, dim: int) -> Roles:
        names = dim_names(len(shape))
        return Roles([], [names], whole=[names[dim]])

    def lower(self, ctx: Any, *, dtype: Any, shape: tuple, dim: int) -> Any:
        return ctx.iota(ctx.aval_out, dim)

    jvp = ZERO

    def batch(self, **params: Any) -> tuple:
        return self(**params), None


iota_p = Iota()


def iota(dtype: Any, size: int) -> Any:
    """The numbers 0, 1, ... size - 1.

    Args:
      dtype: the dtype of the result.
      size: how many.

    Returns:
      An array of shape `(size,)`.

    Raises:
      DTypeError: `dtype` is not numeric.

    Examples:
      >>> from phalanx import lax
      >>> lax.iota("int32", 3).tolist()
      [0, 1, 2]
    """
    return iota_p(dtype=dtypes.canonicalize_dtype(dtype), shape=(size,), dim=0)


def broadcasted_iota(dtype: Any, shape: Any, dimension: int, *, out_sharding: Any = None) -> Any:
    """The index of each element along one dimension.

    Args:
      dtype: the dtype of the result.
      shape: its shape.
      dimension: the dimension that is counted along.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of shape `shape`.

    Raises:
      AxisError: there is no such dimension.
      DTypeError: `dtype` is not numeric.

    Examples:
      >>> from phalanx import lax
      >>> lax.broadcasted_iota("int32", (2, 2), 1).tolist()
      [[0, 1], [0, 1]]
    """
    count = iota_p(dtype=dtypes.canonicalize_dtype(dtype), shape=static_shape(shape), dim=int(dimension))
    return placed(count, out_sharding, "lax.broadcasted_iota, out_sharding")


def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding: Any = None) -> Any:
    """An array with one value everywhere.

    Args:
      shape: its shape.
      fill_value: the value, of rank 0.
      dtype: its dtype; that of `fill_value` when left out.
      sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of shape `shape`.

    Raises:
      ShapeError: `fill_value` is not of rank 0.

    Examples:
      >>> from phalanx import lax
      >>> lax.full((2,), 7).tolist()
      [7, 7]
    """
    if sharding is not None:
        return placed(full(shape, fill_value, dtype), sharding, "lax.full, sharding")
    shape = static_shape(shape)
    if type(fill_value) in SCALARS and shape:
        value = fill_value if dtype is None else as_dtype(fill_value, dtypes.canonicalize_dtype(dtype))
        return broadcast_in_dim_p(value, shape=shape, dims=())
    aval = aval_of(fill_value)
    if aval.shape:
        raise ShapeError(
            "lax.full fill_value",
            expected="rank 0",
            got=aval.str_short(),
            mend="broadcast an array with lax.broadcast_in_dim",
        )
    if dtype is not None:
        fill_value = as_dtype(fill_value, dtypes.canonicalize_dtype(dtype))
    elif not shape:
        return convert_element_type_p(fill_value, dtype=aval.dtype, weak_type=aval.weak_type)
    return broadcast_in_dim_p(fill_value, shape=shape, dims=())


def as_dtype(value: Any, dtype: Any) -> Any:
    """A scalar of a dtype; one from the host stays on the host, so that programs hold it as a literal."""
    if type(value) in SCALARS and (type(value) is not complex or dtype.kind == "c"):
        return dtype.type(value)
    if isinstance(value, bool | int | float | complex | np.generic | np.ndarray):
        value = np.asarray(value)
        return (value.real if value.dtype.kind == "c" and kind_of(dtype) != "complex" else value).astype(dtype)[()]
    return convert_element_type(value, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, sharding: Any = None) -> Any:
    """An array like another, with one value everywhere.

    Args:
      x: the array whose shape and dtype count, or anything that has these two.
      fill_value: the value, of rank 0.
      dtype: the dtype, in place of that of `x`.
      shape: the shape, in place of that of `x`.
      sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      The array.

    Raises:
      ShapeError: `fill_value` is not of rank 0.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.full_like(jnp.ones(2), 7).tolist()
      [7.0, 7.0]
    """
    aval = aval_of(x)
    shape = aval.shape if shape is None else static_shape(shape)
    if dtype is not None or not aval.weak_type:
        return full(shape, fill_value, aval.dtype if dtype is None else dtype, sharding=sharding)
    weak = scalar_like(fill_value, aval) if type(fill_value) in SCALARS else fill_value
    return full(shape, weak, None if aval_of(weak).dtype == aval.dtype else aval.dtype, sharding=sharding)


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Any:
    """An array whose elements do not matter.

    Args:
      shape: its shape.
      dtype: its dtype.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of shape `shape`; all zeros, as it happens.

    Examples:
      >>> from phalanx import lax
      >>> lax.empty((2, 3), "float32").shape
      (2, 3)
    """
    return full(shape, 0, dtype, sharding=out_sharding)


def dtype(x: Any) -> Any:
    """The dtype that a value has as an array.

    Args:
      x: an array or a scalar.

    Returns:
      Its dtype.

    Examples:
      >>> from phalanx import lax
      >>> lax.dtype(1.0)
      dtype('float32')
    """
    return aval_of(x).dtype


def shape_as_value(shape: Any) -> Any:
    """A shape as an array of its sizes.

    Args:
      shape: a tuple of integers.

    Returns:
      An int32 array of shape `(len(shape),)`.

    Examples:
      >>> from phalanx import lax
      >>> lax.shape_as_value((2, 3)).tolist()
      [2, 3]
    """
    return convert_element_type_p(np.asarray(shape, np.int32), dtype=np.dtype("int32"), weak_type=False)
