"""Where values become arrays: constants of the program being traced, or buffers on a device.

Built on `runtime.placement`; `creation.py` calls it.
"""

from __future__ import annotations

from typing import Any

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.config import state
from phalanx.lax.explicit import placed
from phalanx.numpy.operands import as_array, cast
from phalanx.runtime import placement
from phalanx.runtime.dispatch import eager_program
from phalanx.sharding import NamedSharding, PartitionSpec, to_sharding


def place(x: Any, where: Any) -> Any:
    """`x` on a device or with a sharding, if one is given."""
    if where is None:
        return x

    is_named = isinstance(where, PartitionSpec | NamedSharding)
    if state.trace is not None:
        return placed(x, where, "out_sharding") if is_named else lax.with_sharding_constraint(x, where)
    if is_named:
        where = to_sharding(where, where="out_sharding")
    elif not hasattr(where, "device_set"):
        where = placement.on_device(where)
    return placement.put(x, where)


@eager_program(static_argnames=("shape", "value", "dtype", "weak"))
def filled(shape: tuple, value: Any, dtype: Any, weak: bool) -> Any:
    """One value everywhere, in one operation."""
    if not weak or dtypes.canonicalize_dtype(type(value)) != dtype:
        return cast(lax.full(shape, value, dtype), dtype, weak)
    return lax.broadcast_in_dim(value, shape, ()) if shape else as_array(value)


@eager_program(static_argnames=("size", "dtype"))
def iota(size: Any, dtype: Any) -> Any:
    """0, 1, 2, ..."""
    return lax.iota(dtype, size)
