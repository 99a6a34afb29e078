"""Where host values become arrays: constants of the program being traced, or buffers on the default device.

Built on `core.placement`; `creation.py` calls it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.config import state
from phalanx.core.dispatch import eager_program


def constant(value: Any) -> Any:
    """A host value as an array: a Python scalar stays weak."""
    if isinstance(value, np.ndarray):
        return lax.asarray(value)
    return lax.asarray(value)


def place(x: Any, where: Any) -> Any:
    """`x` on a device or with a sharding, if one is given."""
    if where is None:
        return x
    if state.trace is not None:
        from phalanx.core.seats import constrain

        return constrain(x, where)
    from phalanx.core import placement

    return placement.put(x, where)


@eager_program(static_argnames=("shape", "value", "dtype", "weak"))
def filled(shape: tuple, value: Any, dtype: Any, weak: bool) -> Any:
    """One value everywhere, in one operation."""
    if weak:
        return lax.broadcast_in_dim(value, shape, ()) if shape else lax.asarray(value)
    return lax.full(shape, value, dtype)


@eager_program(static_argnames=("size", "dtype"))
def iota(size: Any, dtype: Any) -> Any:
    """0, 1, 2, ..."""
    return lax.iota(dtype, size)
