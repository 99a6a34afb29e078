"""Parsing of index expressions: the contents of the brackets of `x[...]`, split into a hashable key and arrays.

The key has one entry per index: an int, a slice as a triple, None, Ellipsis, or the type of an index array. Plans of
reads (`read_plans`) and updates (`update_plans`) are cached by the key, so that the second use of an expression costs
only the parsing.

Index arrays that count 0, 1, 2, ... along one dimension (iotas), such as `arange(b)[:, None]`, are marked in the key.
`x[arange(b)[:, None], i]` reads row k of `x` with row k of `i`. If the iota stayed an ordinary component of the index
vectors, XLA would see a gather over all rows, and would communicate wherever the rows are sharded. The plans therefore
turn the indexed dimension into a batching dimension of the gather or scatter, which needs no communication
(`tests/numpy/test_iota_indices.py` reads this off compiled programs). A host array is compared with the iota. A traced
index is recognised from the equations that produced it: an `iota`, followed by broadcasts, reshapes and casts.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from phalanx import lax
from phalanx.core import (
    ArgumentError,
    Eqn,
    Literal,
    PhalanxError,
    ShapedArray,
    StagedTracer,
    StagingTrace,
    TracedValueError,
    Var,
    dtypes,
    example,
    get_aval,
    result_type,
)
from phalanx.engine.cache import Cache
from phalanx.numpy.operands import concrete_or_none
from phalanx.symbolic import max_dim, min_dim
from phalanx.typing import Array, ArrayLike, DimSize

_Entry: TypeAlias = ArrayLike | slice | EllipsisType | None
Index: TypeAlias = _Entry | tuple[_Entry, ...]
"""The expression between the brackets of `x[...]`."""


class IndexingError(PhalanxError, IndexError, TypeError, ValueError):
    """An index expression does not fit the array."""


@example("phalanx.jit(lambda x: x[x > 0])(jnp.ones(2))", where="indexing with a boolean mask")
class NonConcreteBooleanIndexError(TracedValueError, IndexError):
    """An array was indexed by a traced boolean mask, so that the shape of the result would depend on values."""

    _where = "indexing with a boolean mask"
    _expected = "a mask that is known while tracing, since the result's shape depends on its values"
    _fix = "use phalanx.numpy.where(mask, x, other), or phalanx.numpy.nonzero(mask, size=...)"


class HostIntegers:
    """Entry of a key: an integer array on the host, with negative indices already resolved. Interned by shape.

    Args:
      shape: shape of the array.
    """

    __slots__ = ("__weakref__", "shape")

    shape: tuple
    _made: Cache[tuple, HostIntegers] = Cache("numpy.host_indices", weak="values")

    def __new__(cls, shape: tuple) -> HostIntegers:
        found = cls._made.get(shape)
        if found is None:
            found = object.__new__(cls)
            found.shape = shape
            cls._made[shape] = found
        return found


class Slice:
    """A resolved slice: the `count` elements start, start + step, ... of a dimension."""

    __slots__ = ("count", "start", "step")

    def __init__(self, start: DimSize, step: int, count: DimSize):
        self.start, self.step, self.count = start, step, count


def parse_index(x: ArrayLike, index: Index) -> tuple[Any, tuple, list]:
    """Split an index expression into a hashable key and its arrays.

    Args:
      x: the indexed array.
      index: the expression.

    Returns:
      A tuple: the array, with an added dimension for each True or False in the expression; the key; the arrays.

    Raises:
      IndexingError: an entry is not a valid index.
      NonConcreteBooleanIndexError: a boolean mask is traced.
    """
    entries = index if type(index) is tuple else (index,)
    key: list = []
    arrays: list = []
    for i, e in enumerate(entries):
        kind = type(e)
        if kind is int or e is None or e is Ellipsis:
            key.append(e)
        elif kind is slice:
            key.append((_bound(e.start), _bound(e.stop), _bound(e.step)))
        elif (aval := getattr(e, "aval", None)) is not None and aval.dtype.kind in "iu":
            key.append(aval)
            arrays.append(e)
        else:
            if type(index) is tuple:
                entries = tuple([_sequence_as_array(e) if isinstance(e, list | tuple) else e for e in entries])
            return _parse_rest(x, entries, i, key, arrays)
    return x, tuple(key), arrays


def _sequence_as_array(e: Sequence) -> Any:
    """A sequence inside of an index tuple as an index array; its entries may be traced."""
    rows = [_sequence_as_array(v) if isinstance(v, list | tuple) else v for v in e]
    if not any(hasattr(v, "aval") for v in rows):
        return np.asarray(rows) if rows else np.zeros(0, np.int32)
    dtype = result_type(*rows)
    return lax.concatenate([lax.expand_dims(lax.convert_element_type(v, dtype), (0,)) for v in rows], 0)


def _bound(b: object) -> Any:
    if b is None or type(b) is int or getattr(b, "is_symbolic_dim", False):
        return b
    if getattr(b, "aval", None) is not None and concrete_or_none(b) is None:
        raise IndexingError(
            "index expression",
            expected="slice bounds that are known while tracing, since they decide the shape",
            got=f"{b!r}",
            fix="use lax.dynamic_slice, whose size is static, or mark the bound's argument as static",
        )
    try:
        return operator.index(b)
    except TypeError:
        raise IndexingError(
            "index expression",
            expected="integers or None as slice bounds",
            got=f"{b!r}",
            fix="convert the bound with int()",
        ) from None


def _parse_rest(x: Array, entries: tuple, begin: int, key: list, arrays: list) -> tuple[Any, tuple, list]:
    """Continue `parse_index` at an entry that is a mask, a NumPy array or not a valid index."""
    for i in range(begin, len(entries)):
        e = entries[i]
        if isinstance(e, bool | np.bool_):
            x, e = _new_dimension(x, entries, i, key), np.zeros(int(e), np.int32)
            key.append(HostIntegers(e.shape))
            arrays.append(e)
        elif isinstance(e, np.integer | int):
            key.append(int(e))
        elif isinstance(e, np.ndarray):
            _add_host_array(x, e, entries, i, key, arrays)
        elif getattr(e, "aval", None) is not None and e.dtype == np.bool_:
            known = _concretize_mask(e)
            x = x if known.ndim else _new_dimension(x, entries, i, key)
            _add_host_array(x, np.atleast_1d(known), entries, i, key, arrays)
        elif e is None or e is Ellipsis or type(e) is slice:
            key.append((_bound(e.start), _bound(e.stop), _bound(e.step)) if type(e) is slice else e)
        elif getattr(e, "aval", None) is not None and dtypes.issubdtype(e.dtype, np.integer):
            key.append(e.aval)
            arrays.append(e)
        elif hasattr(e, "__phalanx_array__"):
            entries = (*entries[:i], e.__phalanx_array__(), *entries[i + 1 :])
            return _parse_rest(x, entries, i, key, arrays)
        else:
            raise _not_an_index(e)
    return x, tuple(key), arrays


def _concretize_mask(e: Any) -> np.ndarray:
    """The concrete value of a mask.

    Raises:
      NonConcreteBooleanIndexError: the mask is traced.
    """
    known = concrete_or_none(e)
    if known is None:
        raise NonConcreteBooleanIndexError.of(
            e.describe() if hasattr(e, "describe") else repr(e), e.origin() if hasattr(e, "origin") else None
        )
    return known


def _not_an_index(e: Any) -> IndexingError:
    if isinstance(e, list | tuple):
        return IndexingError(
            "index expression",
            expected="integers, slices, arrays, None or Ellipsis",
            got=f"the sequence {e!r}",
            fix=f"index with an array: x[jnp.array({e!r})]",
        )
    what = e.aval.str_short() if hasattr(getattr(e, "aval", None), "str_short") else f"{e!r} of type {type(e).__name__}"
    return IndexingError(
        "index expression",
        expected="integers, slices, arrays of integers or booleans, None or Ellipsis",
        got=what,
        fix="convert the index to an integer with .astype(int)",
    )


def _num_indexed_dims(e: Any) -> int:
    """Number of dimensions of the array that an entry indexes."""
    if e is None or e is Ellipsis or isinstance(e, bool | np.bool_):
        return 0
    return e.ndim if getattr(e, "dtype", None) == np.bool_ else 1


def _new_dimension(x: Array, entries: tuple, i: int, key: list) -> Any:
    # Earlier True and False entries have added one dimension each.
    added = sum(
        isinstance(e, bool | np.bool_) or (getattr(e, "ndim", 1) == 0 and e.dtype == np.bool_) for e in entries[:i]
    )
    before = sum(_num_indexed_dims(e) for e in entries[:i]) + added
    if any(e is Ellipsis for e in entries[:i]):
        before = x.ndim - sum(_num_indexed_dims(e) for e in entries[i:])
    return lax.expand_dims(x, (before,))


def _add_host_array(x: Array, e: np.ndarray, entries: tuple, i: int, key: list, arrays: list) -> None:
    """Append a host array to `key` and `arrays`: a mask as its nonzero indices, integers with negatives resolved."""
    dim = len([k for k in key if k is not None and k is not Ellipsis])
    if any(v is Ellipsis for v in entries[:i]):
        dim = x.ndim - sum(_num_indexed_dims(v) for v in entries[i:])
    if e.dtype == np.bool_:
        # A mask is equivalent to one array of indices per dimension.
        dims = x.shape[dim : dim + e.ndim]
        # NumPy accepts sizes of 0 in place of others: such a mask selects nothing.
        is_empty = e.size == 0 and len(dims) == e.ndim and all(m in (0, n) for m, n in zip(e.shape, dims, strict=True))
        if e.shape != dims and not is_empty:
            raise IndexingError(
                "index expression",
                expected=f"a mask of the shape {dims} of the dimensions that it indexes",
                got=e.shape,
                fix="broadcast the mask to these dimensions with phalanx.numpy.broadcast_to",
            )
        for found in np.nonzero(e):
            key.append(HostIntegers(found.shape))
            arrays.append(found.astype(np.int32))
        return
    if e.dtype.kind not in "iu" and not (e.size == 0 and e.dtype == np.float64):
        raise _not_an_index(e)
    n = x.shape[dim] if 0 <= dim < x.ndim else 0
    if type(n) is not int:
        key.append(get_aval(e))
        arrays.append(e)
        return
    limits = np.iinfo(np.int32 if n < 2**31 else np.int64)
    e = e.astype(np.int64)
    e = np.where(e < 0, e + n, e)
    # An index below -n must stay below 0, and must not be taken for one counted from the end again.
    e = np.where(e < 0, limits.min, np.minimum(e, limits.max))
    key.append(HostIntegers(e.shape))
    arrays.append(e.astype(limits.dtype))


def resolve_slice(bounds: tuple, n: DimSize) -> Slice:
    """Resolve the bounds of a slice of a dimension of size `n`, which may be symbolic.

    Raises:
      IndexingError: the step is 0.
    """
    start, stop, step = bounds
    step = 1 if step is None else step
    if step == 0:
        raise IndexingError(
            "index expression",
            expected="a slice step other than 0",
            got=0,
            fix="leave the step out, or pass a nonzero integer",
        )
    # Python resolves static bounds, including negative ones and those beyond the ends.
    if type(n) is int and not any(getattr(b, "is_symbolic_dim", False) for b in (start, stop)):
        first, last, step = slice(start, stop, step).indices(n)
        return Slice(first, step, len(range(first, last, step)))
    if step > 0:
        first, last = _within(start, 0, n, n, 0), _within(stop, 0, n, n, n)
    else:
        first, last = _within(start, -1, n - 1, n, n - 1), _within(stop, -1, n - 1, n, -1)
    # ceil(distance / |step|), and 0 if the distance is negative.
    count = last - first if step > 0 else first - last
    return Slice(first, step, max_dim(0, -(-count // abs(step))))


def _within(b: Array, low: Array, high: Array, n: DimSize, missing: Any) -> Any:
    """A bound of a slice, counted from 0 and clamped to [low, high]."""
    if b is None:
        return missing
    return max_dim(low, min_dim(n + b if b < 0 else b, high))


def expand_ellipsis(key: tuple, ndim: int, shape: tuple) -> tuple:
    """Replace the Ellipsis of a key by full slices, so that every dimension has an entry.

    Raises:
      IndexingError: there are too many indices, or several Ellipses.
    """
    consumed = sum(e is not None and e is not Ellipsis for e in key)
    ellipses = sum(e is Ellipsis for e in key)
    if ellipses > 1:
        raise IndexingError(
            "index expression",
            expected="at most one Ellipsis",
            got=ellipses,
            fix="keep one '...' and write the other dimensions as ':'",
        )
    if consumed > ndim:
        raise IndexingError(
            "index expression",
            expected=f"at most {ndim} indices for an array of shape {shape}",
            got=consumed,
            fix="leave out the last ones",
        )
    whole = ((None, None, None),) * (ndim - consumed)
    if not ellipses:
        return (*key, *whole)
    at = next(i for i, e in enumerate(key) if e is Ellipsis)
    return (*key[:at], *whole, *key[at + 1 :])


def check_mode(mode: str | lax.GatherScatterMode | None, where: str) -> None:
    """Check the `mode` argument of an indexing function.

    Raises:
      ArgumentError: `mode` is unknown.
    """
    if mode not in ("fill", "clip", "drop", "promise_in_bounds", None) and not isinstance(mode, lax.GatherScatterMode):
        raise ArgumentError(
            f"{where}, argument mode",
            expected="'fill', 'drop', 'clip' or 'promise_in_bounds'",
            got=repr(mode),
            fix="pass one of these modes, or a lax.GatherScatterMode",
        )


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
