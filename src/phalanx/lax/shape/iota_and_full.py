"""Array creation: `iota`, `full`, and the functions written with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import ZERO, DTypeError, Primitive, ShapedArray, ShapeError, ShardingRule, dtypes, get_aval
from phalanx.lax.elementwise import (
    NUMBER,
    SCALARS,
    convert_element_type,
    convert_element_type_p,
    dtype_kind,
    scalar_like,
)
from phalanx.lax.shape.broadcast import broadcast_in_dim_p
from phalanx.lax.shape.concatenate import concatenate
from phalanx.lax.shape.dimension_size import dimension_size
from phalanx.lax.shape.dims import canonicalize_shape, check_dims, dim_names
from phalanx.lax.shape.reshape import reshape
from phalanx.lax.sharding.out_sharding import apply_out_sharding, sharding_for_array_like
from phalanx.runtime.lowering import LoweringContext
from phalanx.symbolic import is_constant_shape
from phalanx.typing import ArrayLike, DTypeLike, Shape, ShardingLike


class Iota(Primitive, name="iota"):
    """Create an array that counts 0, 1, 2, ... along dimension `dim`."""

    def abstract_eval(self, *, dtype: np.dtype, shape: tuple, dim: int) -> Any:
        check_dims("lax.broadcasted_iota dimension", (dim,), len(shape))
        if dtype_kind(dtype) not in NUMBER.members:
            raise DTypeError(
                "lax.iota dtype",
                expected=NUMBER.words,
                got=dtype,
                fix="pass a numeric dtype such as 'int32', and convert the result",
            )
        return ShapedArray(shape, dtype)

    def sharding_rule(self, *, dtype: np.dtype, shape: tuple, dim: int) -> ShardingRule:
        names = dim_names(len(shape))
        return ShardingRule([], [names], whole=[names[dim]])

    def lower(self, ctx: LoweringContext, *, dtype: np.dtype, shape: tuple, dim: int) -> Any:
        return ctx.iota(ctx.aval_out, dim)

    jvp = ZERO

    def batch(self, **params: Any) -> tuple:
        return self(**params), None


iota_p = Iota()


def iota(dtype: DTypeLike, size: int) -> Any:
    """The numbers 0, 1, ... size - 1.

    Args:
      dtype: the dtype of the result.
      size: the number of elements.

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


def broadcasted_iota(
    dtype: DTypeLike, shape: Shape, dimension: int, *, out_sharding: ShardingLike | None = None
) -> Any:
    """The index of each element along one dimension.

    Args:
      dtype: the dtype of the result.
      shape: the shape of the array.
      dimension: the dimension along which to count.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

    Returns:
      An array of shape `shape`.

    Raises:
      AxisError: the dimension is out of bounds.
      DTypeError: `dtype` is not numeric.

    Examples:
      >>> from phalanx import lax
      >>> lax.broadcasted_iota("int32", (2, 2), 1).tolist()
      [[0, 1], [0, 1]]
    """
    count = iota_p(dtype=dtypes.canonicalize_dtype(dtype), shape=canonicalize_shape(shape), dim=int(dimension))
    return apply_out_sharding(count, out_sharding, "lax.broadcasted_iota, out_sharding")


def full(
    shape: Shape, fill_value: ArrayLike, dtype: DTypeLike | None = None, *, sharding: ShardingLike | None = None
) -> Any:
    """Create an array filled with one value.

    Args:
      shape: the shape of the array.
      fill_value: the value, of rank 0.
      dtype: its dtype; the dtype of `fill_value` if None.
      sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

    Returns:
      An array of shape `shape`.

    Raises:
      ShapeError: `fill_value` is not of rank 0.

    Examples:
      >>> from phalanx import lax
      >>> lax.full((2,), 7).tolist()
      [7, 7]
    """
    # The filled array has no operands to infer a sharding from.
    if sharding is not None:
        return apply_out_sharding(full(shape, fill_value, dtype), sharding, "lax.full, sharding")
    shape = canonicalize_shape(shape)
    # A Python scalar becomes a literal of the program, without a conversion.
    if type(fill_value) in SCALARS and shape:
        value = fill_value if dtype is None else as_dtype(fill_value, dtypes.canonicalize_dtype(dtype))
        return broadcast_in_dim_p(value, shape=shape, dims=())
    aval = get_aval(fill_value)
    if aval.shape:
        raise ShapeError(
            "lax.full fill_value",
            expected="rank 0",
            got=aval.str_short(),
            fix="pass a scalar, or broadcast the array with lax.broadcast_in_dim",
        )
    if dtype is not None:
        fill_value = as_dtype(fill_value, dtypes.canonicalize_dtype(dtype))
    elif not shape:
        return convert_element_type_p(fill_value, dtype=aval.dtype, weak_type=aval.weak_type)
    return broadcast_in_dim_p(fill_value, shape=shape, dims=())


def as_dtype(value: ArrayLike, dtype: DTypeLike) -> Any:
    """Convert a scalar to a dtype. A host scalar stays on the host, so that programs contain it as a literal."""
    if type(value) in SCALARS and (type(value) is not complex or dtype.kind == "c"):
        return dtype.type(value)
    if isinstance(value, bool | int | float | complex | np.generic | np.ndarray):
        dtypes.check_conversion(value, dtypes.dtype_and_weakness(value)[0], dtype)
        value = np.asarray(value)
        return (value.real if value.dtype.kind == "c" and dtype_kind(dtype) != "complex" else value).astype(dtype)[()]
    return convert_element_type(value, dtype)


def full_like(
    x: ArrayLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Shape | None = None,
    sharding: ShardingLike | None = None,
) -> Any:
    """Create an array like another, filled with one value.

    Args:
      x: an array, or another value with a shape and a dtype.
      fill_value: the value, of rank 0.
      dtype: the dtype of the result; the dtype of `x` if None.
      shape: the shape of the result; the shape of `x` if None.
      sharding: the sharding of the result, as a sharding or a `PartitionSpec`; that of `x` if None and `x` was placed.

    Returns:
      The array.

    Raises:
      ShapeError: `fill_value` is not of rank 0.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.full_like(jnp.ones(2), 7).tolist()
      [7.0, 7.0]
    """
    aval = get_aval(x)
    shape = aval.shape if shape is None else canonicalize_shape(shape)
    if sharding is None:
        sharding = sharding_for_array_like(x, shape)
    if dtype is not None or not aval.weak_type:
        return full(shape, fill_value, aval.dtype if dtype is None else dtype, sharding=sharding)
    # A weakly typed array stays weakly typed.
    weak = scalar_like(fill_value, aval) if type(fill_value) in SCALARS else fill_value
    return full(shape, weak, None if get_aval(weak).dtype == aval.dtype else aval.dtype, sharding=sharding)


def empty(shape: Shape, dtype: DTypeLike, *, out_sharding: ShardingLike | None = None) -> Any:
    """Create an array whose elements are unspecified.

    Args:
      shape: the shape of the array.
      dtype: its dtype.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

    Returns:
      An array of shape `shape`; currently zeros.

    Examples:
      >>> from phalanx import lax
      >>> lax.empty((2, 3), "float32").shape
      (2, 3)
    """
    return full(shape, 0, dtype, sharding=out_sharding)


def dtype(x: ArrayLike) -> Any:
    """Return the dtype of a value as an array, or of arrays made with a dtype.

    Args:
      x: an array, a scalar, or a dtype, its name or its scalar type.

    Returns:
      Its dtype; 64-bit types become 32-bit ones unless `enable_x64` is on.

    Raises:
      DTypeError: XLA has no such element type.

    Examples:
      >>> from phalanx import lax
      >>> lax.dtype(1.0)
      dtype('float32')
    """
    return dtypes.canonicalize_dtype(x) if isinstance(x, type | str | np.dtype) else get_aval(x).dtype


def shape_as_value(shape: Shape) -> Any:
    """Convert a shape to an array of its sizes.

    Args:
      shape: a tuple of integers and symbolic dimensions.

    Returns:
      An int32 array of shape `(len(shape),)`.

    Examples:
      >>> from phalanx import lax
      >>> lax.shape_as_value((2, 3)).tolist()
      [2, 3]
    """
    int32 = np.dtype("int32")
    if is_constant_shape(shape):
        return convert_element_type_p(np.asarray(shape, int32), dtype=int32, weak_type=False)
    sizes = [np.int32(n) if type(n) is int else convert_element_type(dimension_size(n), int32) for n in shape]
    return concatenate([reshape(n, (1,)) for n in sizes], 0)
