"""Placement of created arrays: the `device` and `out_sharding` arguments of array creation."""

from __future__ import annotations

from phalanx import lax
from phalanx.core import dtypes, state
from phalanx.lax.sharding.out_sharding import apply_out_sharding
from phalanx.numpy.operands import as_array, cast
from phalanx.runtime import transfer
from phalanx.runtime.eager_jit import eager_jit
from phalanx.sharding import NamedSharding, PartitionSpec, to_sharding
from phalanx.typing import Array, ArrayLike, DTypeLike


def place_output(x: Array, where: ArrayLike | None) -> Array:
    """Place `x` on a device or with a sharding, if one is given."""
    if where is None:
        return x

    is_named = isinstance(where, PartitionSpec | NamedSharding)
    # Inside a traced function the placement is a property of the type (Explicit axes) or a constraint on the
    # compiler.
    if state.trace is not None:
        return apply_out_sharding(x, where, "out_sharding") if is_named else lax.with_sharding_constraint(x, where)
    if is_named:
        where = to_sharding(where, where="out_sharding")
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
