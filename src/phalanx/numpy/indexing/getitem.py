"""Reads by index, `x[...]` and `x.at[...].get(...)`, and iteration.

An expression is parsed into a key and arrays (`index_expression`); the plan (`read_plans`) is cached by the type of the
array and the key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import state
from phalanx.engine.cache import Cache
from phalanx.numpy.indexing.index_expression import HostIntegers, Index, check_mode, parse_index
from phalanx.numpy.indexing.iota_indices import mark_iota_indices
from phalanx.numpy.indexing.read_plans import MODE_NAMES, is_array, plan_read
from phalanx.numpy.operands import canonical_axis
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike

_plans: Cache[tuple, Any] = Cache("numpy.index_plans", 4096)


def getitem(x: ArrayLike, index: Index) -> Array:
    """`x[index]`."""
    x, key, arrays = parse_index(x, index)
    if arrays and state.trace is None:
        key, arrays = integers_to_arrays(x.shape, key, arrays)
    else:
        key = mark_iota_indices(x.shape, key, arrays)
    # Types are interned objects, so hashing the key takes time proportional to its number of entries only.
    plan_key = (x.aval, key)
    plan = _plans.get(plan_key)
    if plan is None:
        plan = _plans[plan_key] = plan_read(x.shape, key, None, None, False, False)
    return plan(x, arrays)


def get(
    x: ArrayLike,
    index: Index,
    mode: str | lax.GatherScatterMode | None = None,
    fill_value: ArrayLike | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Array:
    """`x.at[index].get(...)`: a read with a mode for out-of-bounds indices."""
    mode = MODE_NAMES.get(mode, mode)
    if isinstance(mode, str) or mode is None:
        check_mode(mode, "at[].get")
    x, key, arrays = parse_index(x, index)
    key = mark_iota_indices(x.shape, key, arrays)
    # `repr`, since the fill value may be NaN, which is not equal to itself, or an unhashable array.
    plan_key = (x.aval, key, mode, repr(fill_value), indices_are_sorted, unique_indices)
    plan = _plans.get(plan_key)
    if plan is None:
        plan = plan_read(x.shape, key, mode, fill_value, indices_are_sorted, unique_indices)
        _plans[plan_key] = plan
    return plan(x, arrays)


def integers_to_arrays(shape: tuple, key: tuple, arrays: list) -> tuple[tuple, list]:
    """Turn integers beside index arrays into arrays of rank 0, so that eager calls share one program."""
    if not any(type(e) is int for e in key) or not any(a.ndim for a in arrays):
        return key, arrays
    ellipsis = next((i for i, e in enumerate(key) if e is Ellipsis), len(key))
    given = iter(arrays)
    found = []
    for i, e in enumerate(key):
        if type(e) is int:
            around = key[:i] if i < ellipsis else key[i:]
            dim = sum(v is not None for v in around)
            found.append(np.asarray(e + shape[dim if i < ellipsis else len(shape) - dim] if e < 0 else e, np.int32))
        elif is_array(e):
            found.append(next(given))
    return tuple(HostIntegers(()) if type(e) is int else e for e in key), found


@eager_jit(static_argnames=("axis",))
def unstack_dim(x: ArrayLike, axis: int) -> list:
    """The slices of `x` along a dimension, as one compiled program when called eagerly."""
    axis = canonical_axis(axis, x.ndim, "unstack")
    return [lax.squeeze(lax.slice_in_dim(x, i, i + 1, axis=axis), (axis,)) for i in range(x.shape[axis])]


_CHUNK = 32


def iterate(x: ArrayLike) -> Iterator[Any]:
    """Iterate over the first dimension.

    Eagerly, 32 elements are read by one program: one call per element would be slower, one for all would compile a
    program as long as the array.
    """
    if x.ndim == 0:
        raise TypeError("iteration over an array of rank 0")
    if state.trace is not None:
        return iter([getitem(x, i) for i in range(x.shape[0])])
    return _iterate_eagerly(x)


def _iterate_eagerly(x: Array) -> Iterator[Any]:
    n = x.shape[0]
    if n <= _CHUNK:
        yield from unstack_dim(x, 0)
        return
    for i in range(0, n, _CHUNK):
        yield from unstack_dim(getitem(x, slice(i, min(i + _CHUNK, n))), 0)
