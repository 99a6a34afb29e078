"""Iota indices: index arrays that count 0, 1, 2, ... along one dimension, such as `arange(b)[:, None]`.

`x[arange(b)[:, None], i]` reads row k of `x` with row k of `i`. If the iota stayed an ordinary component of the index
vectors, XLA would see a gather over all rows, and would communicate wherever the rows are sharded. The plans therefore
turn the indexed dimension into a batching dimension of the gather or scatter, which needs no communication
(`tests/numpy/test_iota_indices.py` reads this off compiled programs).

A host array is compared with the iota. A traced index is recognised from the equations that produced it: an `iota`,
followed by broadcasts, reshapes and casts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import Eqn, Literal, ShapedArray, StagedTracer, StagingTrace, Var
from phalanx.numpy.indexing.index_expression import HostIntegers
from phalanx.typing import ArrayLike, DimSize


@dataclass(frozen=True, slots=True)
class IotaIndex:
    """Entry of an index key: an integer array that equals an iota along one dimension and is constant along the others.

    Args:
      shape, dtype: shape and dtype of the array.
      dim: dimension along which it counts.
    """

    shape: tuple
    dtype: Any
    dim: int


def mark_iota_indices(shape: tuple, key: tuple, arrays: Sequence[Any]) -> tuple:
    """Replace the entries of a key whose arrays are iotas by `IotaIndex`.

    Args:
      shape: shape of the indexed array. Only iotas as long as one of its dimensions can become batching dimensions.
      key: hashable part of the index expression.
      arrays: the arrays of the expression, in order.

    Returns:
      The new key.
    """
    if len(arrays) < 2:  # A single index array has no other index to be batched with.
        return key
    given = iter(arrays)
    found = []
    for e in key:
        if type(e) is HostIntegers or hasattr(e, "dtype"):
            x = next(given)
            dims = [d for d, n in enumerate(x.shape) if type(n) is int and n > 1 and n in shape]
            dim = find_iota_dim(x) if dims else None
            e = e if dim not in dims else IotaIndex(e.shape, x.dtype, dim)
        found.append(e)
    return tuple(found)


def find_iota_dim(x: ArrayLike) -> int | None:
    """The dimension along which `x` is known to be an iota, or None."""
    if isinstance(x, np.ndarray):
        dims = (d for d, n in enumerate(x.shape) if n > 1)
        return next((d for d in dims if np.array_equal(x, _count(x.shape, d))), None)
    return _find_traced_iota_dim(x._trace, x._var) if isinstance(x, StagedTracer) else None


def _count(shape: tuple, dim: int) -> np.ndarray:
    return np.broadcast_to(np.arange(shape[dim]).reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape)


def _find_traced_iota_dim(trace: StagingTrace, x: Var | Literal) -> int | None:
    eqn = None if type(x) is Literal else trace.equation_of(x)
    if eqn is None:
        return None
    if eqn.primitive is lax.iota_p:
        dim = eqn.params["dim"]
        return dim if _can_count(x.aval, x.aval.shape[dim]) else None
    propagate = _PROPAGATION.get(eqn.primitive)
    dim = propagate and _find_traced_iota_dim(trace, eqn.invars[0])
    return None if dim is None else propagate(eqn, dim, eqn.invars[0].aval.shape, x.aval)


def _through_broadcast(eqn: Eqn, dim: int, before: tuple, after: Any) -> int | None:
    to = eqn.params["dims"][dim]
    return to if after.shape[to] == before[dim] else None


def _through_reshape(eqn: Eqn, dim: int, before: tuple, after: Any) -> int | None:
    slower = math.prod(before[:dim])
    same = (d for d, n in enumerate(after.shape) if n == before[dim] and math.prod(after.shape[:d]) == slower)
    return next(same, None)


def _through_cast(eqn: Eqn, dim: int, before: tuple, after: Any) -> int | None:
    return dim if _can_count(after, before[dim]) else None


def _can_count(aval: ShapedArray, n: DimSize) -> bool:
    """Whether the dtype represents 0, ..., n - 1 without wrapping around."""
    return aval.dtype.kind in "iu" and type(n) is int and n <= np.iinfo(aval.dtype).max


# Primitives that preserve an iota -> the function that maps its dimension in the operand to that in the result.
_PROPAGATION = {
    lax.broadcast_in_dim_p: _through_broadcast,
    lax.reshape_p: _through_reshape,
    lax.squeeze_p: _through_reshape,
    lax.convert_element_type_p: _through_cast,
}


def find_batching_dims(entries: Sequence[Any], sizes: Sequence[Any], places: Sequence[Sequence[int]]) -> dict[int, int]:
    """Find the index arrays whose iota covers a whole indexed dimension, so that both become batching dimensions.

    Args:
      entries: the key's entries for the index arrays.
      sizes: sizes of the indexed dimensions, one per array.
      places: for each array, the dimension of the batch of index vectors that each of its dimensions maps to.

    Returns:
      A dict from the number of the array to the dimension of the batch. At least one array is left out, since a gather
      needs a component in its index vectors.
    """
    found: dict[int, int] = {}
    for i, (e, n, where) in enumerate(zip(entries, sizes, places, strict=True)):
        if type(e) is IotaIndex and e.shape[e.dim] == n and where[e.dim] not in found.values():
            found[i] = where[e.dim]
    if len(found) == len(entries):
        found.popitem()
    return found
