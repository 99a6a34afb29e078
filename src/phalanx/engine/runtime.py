"""The small things the rest of Phalanx takes from jaxlib by name: tracebacks, weak caches, error and sharding classes.

Builds on `jaxlib` alone; every room above may import it.
"""

from __future__ import annotations

import collections
import itertools
import re
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from jaxlib import _hlo, _jax
from jaxlib import weakref_lru_cache as _weakref

Traceback: TypeAlias = _jax.Traceback
get_traceback: Callable[[], Any] = _jax.Traceback.get_traceback
"""The calling thread's stack, as code objects and offsets: 0.1 to 0.4 us, nothing is formatted."""

XlaRuntimeError: TypeAlias = _jax.JaxRuntimeError
HloSharding: TypeAlias = _hlo.HloSharding
HloModule: TypeAlias = _hlo.HloModule
OpSharding: TypeAlias = _hlo.OpSharding
OpShardingType: TypeAlias = _hlo.OpSharding_Type
"""Kinds of an `OpSharding`: `REPLICATED`, `OTHER` (tiled), `MAXIMAL`, `MANUAL`, `TUPLE`, ..."""


def weakref_lru_cache(cache_context: Callable[[], Any], call: Callable[..., Any], maxsize: int = 2048) -> Any:
    """Cache `call(weak, *args, **kwargs)`, holding the first argument weakly.

    Args:
      cache_context: called at each look-up; its result is part of the key, so it must be hashable and cheap.
      call: the function whose results are kept; its first argument must allow weak references.
      maxsize: number of entries, over all first arguments, before the least recently used one is dropped.

    Returns:
      A callable with the signature of `call`, plus `cache_clear()` and `cache_info()`.
    """
    return _weakref.weakref_lru_cache(cache_context, call, maxsize)


def collect_garbage() -> None:
    """Release buffers whose last reference went away on a thread without the GIL."""
    _jax.collect_garbage()


_MARK = "phalanx-callback-failure-"
_FIND_MARK = re.compile(_MARK + r"(\d+)")
_FAILURES_KEPT = 256


class _Failures:
    """The last exceptions raised inside callbacks, by number, and those that XLA was not told of."""

    def __init__(self) -> None:
        self.late: list[BaseException] = []
        self.numbers = itertools.count(1)
        self.kept: collections.OrderedDict[int, BaseException] = collections.OrderedDict()
        self.lock = threading.Lock()

    def keep(self, error: BaseException) -> int:
        with self.lock:
            number = next(self.numbers)
            self.kept[number] = error
            while len(self.kept) > _FAILURES_KEPT:
                self.kept.popitem(last=False)
            return number


_failures = _Failures()


def keep_failure(error: BaseException) -> RuntimeError:
    """Make the exception that a Python callback raises into XLA in place of `error`, which is kept for the caller."""
    return RuntimeError(f"{_MARK}{_failures.keep(error)}")


def keep_late_failure(error: BaseException) -> None:
    """Keep a callback's exception that cannot be raised into XLA; whoever waits next gets it.

    A device that stops while others wait for it in a collective ends the process after a minute.
    """
    _failures.late.append(error)


def raise_late_failure() -> None:
    """Raise the first exception that was kept for whoever waits, if there is one, and forget the others."""
    if not _failures.late:
        return
    with _failures.lock:
        late, _failures.late = _failures.late, []
    if late:
        raise late[0]


def user_error(error: XlaRuntimeError) -> BaseException:
    """Find the exception that a Python callback raised, given the error in which XLA reports it.

    Args:
      error: what executing a program, or waiting for its results, raised.

    Returns:
      The callback's own exception, or `error` itself if no callback caused it.
    """
    mark = _FIND_MARK.search(str(error))
    return error if mark is None else _failures.kept.get(int(mark[1]), error)
