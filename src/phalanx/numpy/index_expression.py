"""Index expressions: what stands between the brackets of `x[...]`, split into a hashable part and the arrays.

Plans for reading (`indexing.py`) and updating (`at.py`) are made for the hashable part and remembered, so that parsing
is all that happens on the second use of an expression alike.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.errors import PhalanxError, TracedValueError, met_by
from phalanx.numpy.operands import concrete
from phalanx.symbolic import max_dim, min_dim


class IndexingError(PhalanxError, IndexError, TypeError):
    """An index expression does not fit the array."""


@met_by("phalanx.jit(lambda x: x[x > 0])(jnp.ones(2))", where="indexing with a boolean mask")
class NonConcreteBooleanIndexError(TracedValueError, IndexError):
    """An array was indexed by a traced boolean mask, so that the shape of the result would depend on values."""

    _where = "indexing with a boolean mask"
    _expected = "a mask that is known while tracing, since the result's shape depends on its values"
    _mend = "use phalanx.numpy.where(mask, x, other), or phalanx.numpy.nonzero(mask, size=...)"


class Integers:
    """In a key: an array of integers known on the host, already counted from 0.

    Args:
      shape: the shape of the array.
    """

    __slots__ = ("shape",)

    shape: tuple
    _made: dict[tuple, Integers] = {}

    def __new__(cls, shape: tuple) -> Integers:
        found = cls._made.get(shape)
        if found is None:
            found = object.__new__(cls)
            found.shape = shape
            cls._made[shape] = found
        return found


class Slice:
    """In a plan: the elements start, start + step, ... of a dimension, `count` of them."""

    __slots__ = ("count", "start", "step")

    def __init__(self, start: Any, step: int, count: Any):
        self.start, self.step, self.count = start, step, count


def parse(x: Any, index: Any) -> tuple[Any, tuple, list]:
    """Split an index expression.

    Args:
      x: the array that is indexed.
      index: the expression.

    Returns:
      The array (with a new dimension for each True or False in the expression), the hashable key, the arrays.

    Raises:
      IndexingError: an entry is no index.
      NonConcreteBooleanIndexError: a mask is traced.
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
            return _parse_rest(x, entries, i, key, arrays)
    return x, tuple(key), arrays


def _bound(b: Any) -> Any:
    if b is None or type(b) is int or getattr(b, "is_symbolic_dim", False):
        return b
    if getattr(b, "aval", None) is not None and concrete(b) is None:
        raise IndexingError(
            "index expression", expected="slice bounds that are known while tracing, since they decide the shape",
            got=f"{b!r}", mend="use lax.dynamic_slice, whose size is static, or mark the bound's argument as static",
        )  # fmt: skip
    try:
        return operator.index(b)
    except TypeError:
        raise IndexingError(
            "index expression", expected="integers or None as slice bounds", got=f"{b!r}", mend="convert with int()"
        ) from None


def _parse_rest(x: Any, entries: tuple, begin: int, key: list, arrays: list) -> tuple[Any, tuple, list]:
    """Go on with an expression that holds masks, NumPy arrays or something that is no index."""
    for i in range(begin, len(entries)):
        e = entries[i]
        if isinstance(e, bool | np.bool_):
            x, e = _new_dimension(x, entries, i, key), np.zeros(int(e), np.int32)
            key.append(Integers(e.shape))
            arrays.append(e)
        elif isinstance(e, np.integer | int):
            key.append(int(e))
        elif isinstance(e, np.ndarray):
            _add_host_array(x, e, entries, i, key, arrays)
        elif getattr(e, "aval", None) is not None and e.dtype == np.bool_:
            known = _known_mask(e)
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


def _known_mask(e: Any) -> np.ndarray:
    """The value of a mask.

    Raises:
      NonConcreteBooleanIndexError: it is traced.
    """
    known = concrete(e)
    if known is None:
        described = e.describe() if hasattr(e, "describe") else repr(e)
        raise NonConcreteBooleanIndexError.of(described, e.origin() if hasattr(e, "origin") else None)
    return known


def _not_an_index(e: Any) -> IndexingError:
    if isinstance(e, list | tuple):
        return IndexingError(
            "index expression", expected="integers, slices, arrays, None or Ellipsis", got=f"the sequence {e!r}",
            mend=f"index with an array: x[jnp.array({e!r})]",
        )  # fmt: skip
    what = e.aval.str_short() if hasattr(getattr(e, "aval", None), "str_short") else f"{e!r} of type {type(e).__name__}"
    return IndexingError(
        "index expression", expected="integers, slices, arrays of integers or booleans, None or Ellipsis", got=what,
        mend="convert the index to an integer with .astype(int)",
    )  # fmt: skip


def _consumed(e: Any) -> int:
    """How many dimensions an entry is about."""
    if e is None or e is Ellipsis or isinstance(e, bool | np.bool_):
        return 0
    if getattr(e, "dtype", None) == np.bool_:
        return e.ndim
    return 1


def _new_dimension(x: Any, entries: tuple, i: int, key: list) -> Any:
    from phalanx import lax

    # Those added for earlier True and False entries are counted by `key`, which has an entry for each.
    added = sum(
        isinstance(e, bool | np.bool_) or (getattr(e, "ndim", 1) == 0 and e.dtype == np.bool_) for e in entries[:i]
    )
    before = sum(_consumed(e) for e in entries[:i]) + added
    if any(e is Ellipsis for e in entries[:i]):
        before = x.ndim - sum(_consumed(e) for e in entries[i:])
    return lax.expand_dims(x, (before,))


def _add_host_array(x: Any, e: np.ndarray, entries: tuple, i: int, key: list, arrays: list) -> None:
    if e.dtype == np.bool_:
        place = len([k for k in key if k is not None and k is not Ellipsis])
        if any(v is Ellipsis for v in entries[:i]):
            place = x.ndim - sum(_consumed(v) for v in entries[i:])
        dims = x.shape[place : place + e.ndim]
        if e.shape != dims:
            raise IndexingError(
                "index expression", expected=f"a mask of the shape {dims} of the dimensions it is about", got=e.shape,
                mend="broadcast the mask",
            )  # fmt: skip
        for found in np.nonzero(e):
            key.append(Integers(found.shape))
            arrays.append(found.astype(np.int32))
        return
    if e.dtype.kind not in "iu" and not (e.size == 0 and e.dtype == np.float64):
        raise _not_an_index(e)
    place = len([k for k in key if k is not None and k is not Ellipsis])
    if any(v is Ellipsis for v in entries[:i]):
        place = x.ndim - sum(_consumed(v) for v in entries[i:])
    n = x.shape[place] if 0 <= place < x.ndim else 0
    if type(n) is int:
        e = e.astype(np.int64)
        e = np.where(e < 0, e + n, e)
        # What was out of bounds below must stay so, and not become an index counted from the end.
        e = np.where(e < 0, np.iinfo(np.int32).max, e)
        e = np.minimum(e, np.iinfo(np.int32).max).astype(np.int32) if n < 2**31 else e
        key.append(Integers(e.shape))
        arrays.append(e)
    else:
        from phalanx.core.aval import aval_of

        key.append(aval_of(e))
        arrays.append(e)


def slice_of(bounds: tuple, n: Any) -> Slice:
    """A slice of a dimension of size `n`, with its number of elements."""
    start, stop, step = bounds
    step = 1 if step is None else step
    if step == 0:
        raise IndexingError("index expression", expected="a slice step other than 0", got=0, mend="leave it out")
    if type(n) is int and not any(getattr(b, "is_symbolic_dim", False) for b in (start, stop)):
        first, last, step = slice(start, stop, step).indices(n)
        return Slice(first, step, len(range(first, last, step)))
    return _symbolic_slice(start, stop, step, n)


def _symbolic_slice(start: Any, stop: Any, step: int, n: Any) -> Slice:
    if step > 0:
        first, last = _within(start, 0, n, n, 0), _within(stop, 0, n, n, n)
    else:
        first, last = _within(start, -1, n - 1, n, n - 1), _within(stop, -1, n - 1, n, -1)
    count = last - first if step > 0 else first - last
    return Slice(first, step, max_dim(0, -(-count // abs(step))))


def _within(b: Any, low: Any, high: Any, n: Any, missing: Any) -> Any:
    """A bound of a slice counted from 0 and moved between `low` and `high`."""
    if b is None:
        return missing
    return max_dim(low, min_dim(n + b if b < 0 else b, high))


def expanded(key: tuple, ndim: int, shape: tuple) -> tuple:
    """The key with its Ellipsis spelled out: one entry for each dimension, and the Nones.

    Raises:
      IndexingError: there are more indices than dimensions, or two Ellipses.
    """
    consumed = sum(e is not None and e is not Ellipsis for e in key)
    ellipses = sum(e is Ellipsis for e in key)
    if ellipses > 1:
        raise IndexingError("index expression", expected="at most one Ellipsis", got=ellipses, mend="leave one out")
    if consumed > ndim:
        raise IndexingError(
            "index expression", expected=f"at most {ndim} indices for an array of shape {shape}", got=consumed,
            mend="leave out the last ones",
        )  # fmt: skip
    whole = ((None, None, None),) * (ndim - consumed)
    if not ellipses:
        return (*key, *whole)
    at = next(i for i, e in enumerate(key) if e is Ellipsis)
    return (*key[:at], *whole, *key[at + 1 :])
