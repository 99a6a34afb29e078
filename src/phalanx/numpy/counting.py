"""Indices that merely count: what `arange(b)[:, None]` is in `x[arange(b)[:, None], i]`.

Such an index takes from each example its own part. Said by a number it would mix the examples, and gather them where
several devices have them; so the plans of `indexing` and `at` make a batch of what it is about. What made a traced one
tells it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.jaxpr import Literal
from phalanx.core.trace import StagedTracer
from phalanx.numpy.index_expression import Integers


@dataclass(frozen=True, slots=True)
class Counting:
    """In a key: an array of integers that counts 0, 1, 2, ... along one dimension, and is the same along the others.

    Args:
      shape, dtype: of the array.
      dim: the dimension.
    """

    shape: tuple
    dtype: Any
    dim: int


def with_counts(shape: tuple, key: tuple, arrays: Sequence[Any]) -> tuple:
    """The key of an index expression with those of its arrays told that count along a dimension of size in `shape`."""
    if len(arrays) < 2:  # One alone says where.
        return key
    given = iter(arrays)
    found = []
    for e in key:
        if type(e) is Integers or hasattr(e, "dtype"):
            x = next(given)
            dims = [d for d, n in enumerate(x.shape) if type(n) is int and n > 1 and n in shape]
            dim = counted_dim(x) if dims else None
            e = e if dim not in dims else Counting(e.shape, x.dtype, dim)
        found.append(e)
    return tuple(found)


def counted_dim(x: Any) -> int | None:
    """The dimension along which `x` is known to count, constant along the others."""
    if isinstance(x, np.ndarray):
        dims = (d for d, n in enumerate(x.shape) if n > 1)
        return next((d for d in dims if np.array_equal(x, _count(x.shape, d))), None)
    return _made_counting(x._trace, x._var) if isinstance(x, StagedTracer) else None


def _count(shape: tuple, dim: int) -> np.ndarray:
    return np.broadcast_to(np.arange(shape[dim]).reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape)


def _made_counting(trace: Any, x: Any) -> int | None:
    eqn = None if type(x) is Literal else trace.equation_of(x)
    if eqn is None:
        return None
    if eqn.primitive is lax.iota_p:
        dim = eqn.params["dim"]
        return dim if _can_count(x.aval, x.aval.shape[dim]) else None
    carried = _CARRIED.get(eqn.primitive)
    dim = carried and _made_counting(trace, eqn.invars[0])
    return None if dim is None else carried(eqn, dim, eqn.invars[0].aval.shape, x.aval)


def _broadcast(eqn: Any, dim: int, before: tuple, after: Any) -> int | None:
    to = eqn.params["dims"][dim]
    return to if after.shape[to] == before[dim] else None


def _reshaped(eqn: Any, dim: int, before: tuple, after: Any) -> int | None:
    slower = math.prod(before[:dim])
    same = (d for d, n in enumerate(after.shape) if n == before[dim] and math.prod(after.shape[:d]) == slower)
    return next(same, None)


def _converted(eqn: Any, dim: int, before: tuple, after: Any) -> int | None:
    return dim if _can_count(after, before[dim]) else None


def _can_count(aval: Any, n: Any) -> bool:
    """Whether arrays of this type hold 0, ..., n - 1: in a narrow type these would wrap around."""
    return aval.dtype.kind in "iu" and type(n) is int and n <= np.iinfo(aval.dtype).max


_CARRIED = {
    lax.broadcast_in_dim_p: _broadcast,
    lax.reshape_p: _reshaped,
    lax.squeeze_p: _reshaped,
    lax.convert_element_type_p: _converted,
}


def aligned(entries: Sequence[Any], sizes: Sequence[Any], places: Sequence[Sequence[int]]) -> dict[int, int]:
    """Which arrays of an index expression count along the batch as far as what they are about reaches.

    Args:
      entries: of a key, those that are arrays.
      sizes: of the dimensions that they are about.
      places: for each, the dimension of the batch of index vectors that each dimension stands for.

    Returns:
      The dimension of the batch by the number of the array. One array at least is not among them.
    """
    found: dict[int, int] = {}
    for i, (e, n, where) in enumerate(zip(entries, sizes, places, strict=True)):
        if type(e) is Counting and e.shape[e.dim] == n and where[e.dim] not in found.values():
            found[i] = where[e.dim]
    if len(found) == len(entries):
        found.popitem()
    return found
