"""The small things the rest of Phalanx takes from jaxlib by name: tracebacks, weak caches, error and sharding classes.

Builds on `jaxlib` alone; every room above may import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib import _hlo, _jax
from jaxlib import weakref_lru_cache as _weakref

Traceback = _jax.Traceback
get_traceback: Callable[[], Any] = _jax.Traceback.get_traceback
"""The calling thread's stack, as code objects and offsets: 0.1 to 0.4 us, nothing is formatted."""

XlaRuntimeError = _jax.JaxRuntimeError
HloSharding = _hlo.HloSharding
HloModule = _hlo.HloModule
OpSharding = _hlo.OpSharding
OpShardingType = _hlo.OpSharding_Type
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
