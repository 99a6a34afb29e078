"""Caches: the one kind of table in which the library remembers results.

Every cache has a name and a bound (a capacity, or the lifetime of the objects that it is about) and is registered
under its name, so that `clear_caches` empties all of them and `cache_sizes` shows how much they hold. The module is in
the lowest layer because every package has caches.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from phalanx.engine.forked_processes import in_forked_process

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])


class CacheSize(NamedTuple):
    """How much the caches of one name hold, summed over them.

    Args:
      entries: the number of results held now.
      misses: the number of results computed and stored since the process started.
      capacity: the largest number of results in one cache of this name; None where the lifetime of the keys or of the
        values is the bound.
      caches: the number of caches of this name, such as one for each compiled function.

    Examples:
      >>> CacheSize(entries=2, misses=5, capacity=10, caches=1).misses
      5
    """

    entries: int
    misses: int
    capacity: int | None
    caches: int


class _Entries(dict):
    """A dictionary that may compute missing values; the look-up of present ones stays that of `dict`, in C."""

    __slots__ = ("make",)
    make: Callable[[Any], Any]

    def __missing__(self, key: Any) -> Any:
        return self.make(key)


_TABLES: dict[str | None, Callable[[], Any]] = {
    None: _Entries,
    "keys": weakref.WeakKeyDictionary,
    "values": weakref.WeakValueDictionary,
}


class Cache(Generic[K, V]):
    """A named table of results, bounded by a capacity or by the lifetime of its keys or values.

    A hit costs what it costs with a `dict`, because `get` is the bound method of the dictionary inside. When a cache
    with a capacity is full, the older half of its entries is dropped at once: an insertion takes constant time on
    average, and a hit needs no bookkeeping. (Dropping only the oldest entry each time would leave a run of deleted
    slots at the head of the dictionary, which the next search for the oldest entry has to skip; the total time would
    be quadratic.)

    Args:
      name: the subject, as `package.results`; several caches may share a name.
      capacity: the largest number of entries, unless `weak` is given.
      weak: "keys" drops an entry when its key is freed, "values" when its value is. The latter makes an intern table,
        in which equal keys have one identical value for as long as anything refers to it. `clear` leaves intern tables
        alone, since an object that is in use must not get a second copy.
      make: computes the value of a key on a miss, so that `get` always finds one.

    Examples:
      >>> squares = Cache("example.squares", capacity=100)
      >>> squares[3] = 9
      >>> squares.get(3), squares.get(4), len(squares)
      (9, None, 1)
    """

    __slots__ = ("__weakref__", "_entries", "_lock", "_make", "capacity", "get", "misses", "name", "weak")

    def __init__(
        self,
        name: str,
        capacity: int | None = None,
        *,
        weak: Literal["keys", "values"] | None = None,
        make: Callable[[K], V] | None = None,
    ):
        assert (capacity is None) == (weak is not None), "a cache is bounded by a capacity or by lifetimes"
        self.name = name
        self.capacity = capacity
        self.weak = weak
        self.misses = 0
        self._lock = threading.RLock()
        self._entries: Any = _TABLES[weak]()
        self._make = make
        if make is not None:
            self._entries.make = self._on_miss
        self.get: Callable[[K], Any] = self._entries.get if make is None else self._entries.__getitem__
        with _registry_lock:
            known = _caches.setdefault(name, [])
            known.append(weakref.ref(self, known.remove))

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle of a cache, in the closure of a function, holds no results.
        return functools.partial(Cache, self.name, self.capacity, weak=self.weak, make=self._make), ()

    def __setitem__(self, key: K, value: V) -> None:
        if self.capacity is not None and len(self._entries) >= self.capacity:
            self._drop_older_half()
        self.misses += 1
        self._entries[key] = value

    def _on_miss(self, key: K) -> V:
        assert self._make is not None, "only caches that make their values come here"
        value = self[key] = self._make(key)
        return value

    def _drop_older_half(self) -> None:
        with self._lock:
            for key in list(self._entries)[: (len(self._entries) + 1) // 2]:
                self._entries.pop(key, None)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of `key`, made by `make` where there is none.

        Threads that ask for one key at the same time get one identical value, since it is made under a lock. A hot path
        calls `get` first.
        """
        with self._lock:
            found = self.get(key)
            if found is None:
                found = self[key] = make()
            return found

    def get_reference(self, key: K) -> weakref.ref[V] | None:
        """Of an intern table, the weak reference to a value: half the time of `get`, for the hottest paths."""
        found: weakref.ref[V] | None = self._entries.data.get(key)
        return found

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._entries))

    def values(self) -> list[V]:
        """The values held now."""
        return list(self._entries.values())

    def clear(self) -> None:
        """Drop all entries, except in an intern table, whose entries live as long as their values."""
        if self.weak != "values":
            self._entries.clear()

    def __repr__(self) -> str:
        bound = f"weak {self.weak}" if self.weak else f"capacity {self.capacity}"
        return f"<cache {self.name}: {len(self)} entries, {bound}>"


_registry_lock = threading.RLock()  # reentrant: a cache may be freed, and so unregistered, while another one is made
_caches: dict[str, list[weakref.ref[Any]]] = {}
_memos: dict[str, Any] = {}  # functions with the methods of `functools.lru_cache`
_on_clear: list[Callable[[], object]] = []


def memoize(name: str, capacity: int) -> Callable[[F], F]:
    """Return a decorator that remembers the results of a function of hashable arguments.

    The least recently used results are dropped first. This is `functools.lru_cache`, whose hit in C is faster than any
    table with a Python wrapper, registered under a name.

    Args:
      name: the subject, as `package.results`.
      capacity: the largest number of results held.

    Examples:
      >>> @memoize("example.cubes", capacity=10)
      ... def cube(x):
      ...     return x**3
      >>> cube(2), cube(2), cache_sizes()["example.cubes"].entries
      (8, 8, 1)
    """

    def decorate(fun: F) -> F:
        memo: Any = functools.lru_cache(maxsize=capacity)(fun)
        _memos[name] = memo
        return memo

    return decorate


def on_clear(forget: Callable[[], object]) -> None:
    """Let `clear_caches` call `forget`, for a single remembered value that is not in a table."""
    _on_clear.append(forget)


def clear_caches() -> None:
    """Empty all caches of the library; intern tables keep the objects that are in use."""
    for cache in _live_caches():
        cache.clear()
    for memo in list(_memos.values()):
        memo.cache_clear()
    for forget in list(_on_clear):
        forget()


@in_forked_process
def _renew_locks() -> None:
    """In a forked process, which lacks the threads that may have held them."""
    global _registry_lock
    _registry_lock = threading.RLock()
    for cache in _live_caches():
        cache._lock = threading.RLock()


def cache_sizes() -> dict[str, CacheSize]:
    """How much the caches hold.

    Returns:
      For each name, in alphabetical order, the entries, the misses, the capacity and the number of caches.

    Examples:
      >>> print(cache_sizes()["core.avals"].capacity)
      None
    """
    sizes: dict[str, CacheSize] = {}
    for cache in _live_caches():
        entries, misses, _, caches = sizes.get(cache.name, (0, 0, None, 0))
        sizes[cache.name] = CacheSize(entries + len(cache), misses + cache.misses, cache.capacity, caches + 1)
    for name, memo in _memos.items():
        info = memo.cache_info()
        sizes[name] = CacheSize(info.currsize, info.misses, info.maxsize, 1)
    return dict(sorted(sizes.items()))


def _live_caches() -> list[Cache[Any, Any]]:
    found = [reference() for known in list(_caches.values()) for reference in list(known)]
    return [cache for cache in found if cache is not None]
