"""Events for monitoring: programs register listeners, and Phalanx and programs record events.

Phalanx records how long tracing, lowering and compiling take, and hits and misses of the compilation cache on disk,
under the names that JAX uses. All of them happen on the first call of a compiled function, never on later ones; without
a listener a record is a look at an empty list.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from phalanx.engine.error_record import ArgumentError

Listener = Callable[..., Any]

TRACE = "/jax/core/compile/jaxpr_trace_duration"
LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILE = "/jax/core/compile/backend_compile_duration"
CACHE_REQUEST = "/jax/compilation_cache/compile_requests_use_cache"
CACHE_HIT = "/jax/compilation_cache/cache_hits"
CACHE_MISS = "/jax/compilation_cache/cache_misses"
CACHE_READ = "/jax/compilation_cache/cache_retrieval_time_sec"

_events: list[Listener] = []
_durations: list[Listener] = []
_time_spans: list[Listener] = []
_scalars: list[Listener] = []


def record_event(event: str, **metadata: str | int) -> None:
    """Tell the listeners that an event happened.

    Args:
      event: its name.
      **metadata: passed to the listeners.

    Examples:
      >>> seen = []
      >>> register_event_listener(seen.append)
      >>> record_event("/app/started")
      >>> unregister_event_listener(seen.append)
      >>> seen
      ['/app/started']
    """
    for listener in _events:
        listener(event, **metadata)


def record_event_duration_secs(event: str, duration: float, **metadata: str | int) -> None:
    """Tell the listeners how long an event took.

    Args:
      event: its name.
      duration: the time in seconds.
      **metadata: passed to the listeners.
    """
    for listener in _durations:
        listener(event, duration, **metadata)


def record_event_time_span(event: str, start_time: float, end_time: float, **metadata: str | int) -> None:
    """Tell the listeners when an event began and ended.

    Args:
      event: its name.
      start_time, end_time: as of `time.time`, in seconds.
      **metadata: passed to the listeners.
    """
    for listener in _time_spans:
        listener(event, start_time, end_time, **metadata)


def record_scalar(event: str, value: float, **metadata: str | int) -> None:
    """Tell the listeners a number.

    Args:
      event: its name.
      value: the number.
      **metadata: passed to the listeners.
    """
    for listener in _scalars:
        listener(event, value, **metadata)


def register_event_listener(callback: Listener) -> None:
    """Register a listener of `record_event`.

    Args:
      callback: `(event, **metadata)`.
    """
    _events.append(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Register a listener of `record_event_duration_secs`.

    Args:
      callback: `(event, duration, **metadata)`.

    Examples:
      >>> import phalanx
      >>> seen = set()
      >>> listener = lambda event, duration, **_: seen.add(event.rpartition("/")[2])
      >>> register_event_duration_secs_listener(listener)
      >>> _ = phalanx.jit(lambda x: x * 3 + 1)(2)
      >>> unregister_event_duration_listener(listener)
      >>> sorted(seen)
      ['backend_compile_duration', 'jaxpr_to_mlir_module_duration', 'jaxpr_trace_duration']
    """
    _durations.append(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Register a listener of `record_event_time_span`.

    Args:
      callback: `(event, start_time, end_time, **metadata)`.
    """
    _time_spans.append(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Register a listener of `record_scalar`.

    Args:
      callback: `(event, value, **metadata)`.
    """
    _scalars.append(callback)


def unregister_event_listener(callback: Listener) -> None:
    """Unregister a listener of `record_event`.

    Args:
      callback: the listener.
    """
    _unregister(_events, callback)


def unregister_event_duration_listener(callback: Listener) -> None:
    """Unregister a listener of `record_event_duration_secs`.

    Args:
      callback: the listener.
    """
    _unregister(_durations, callback)


def unregister_event_time_span_listener(callback: Listener) -> None:
    """Unregister a listener of `record_event_time_span`.

    Args:
      callback: the listener.
    """
    _unregister(_time_spans, callback)


def unregister_scalar_listener(callback: Listener) -> None:
    """Unregister a listener of `record_scalar`.

    Args:
      callback: the listener.
    """
    _unregister(_scalars, callback)


def _unregister(listeners: list[Listener], callback: Listener) -> None:
    if callback not in listeners:
        raise UnknownListenerError(
            "argument callback",
            expected="a registered listener",
            got=repr(callback),
            fix="pass the object that was registered, and each only once",
        )
    listeners.remove(callback)


class UnknownListenerError(ArgumentError, AssertionError):
    """A listener was to be unregistered that is not registered."""


def clear_event_listeners() -> None:
    """Unregister all listeners."""
    for listeners in (_events, _durations, _time_spans, _scalars):
        listeners.clear()


_UNHEARD = contextlib.nullcontext()


def timed(event: str, **metadata: str | int) -> contextlib.AbstractContextManager[None]:
    """Record the time of a block as a scalar (its start), a duration and a time span, if there is a listener."""
    return _record_time(event, metadata) if _durations or _time_spans or _scalars else _UNHEARD


@contextlib.contextmanager
def _record_time(event: str, metadata: dict[str, str | int]) -> Iterator[None]:
    start = time.time()
    record_scalar(event, start, **metadata)
    yield
    end = time.time()
    record_event_duration_secs(event, end - start, **metadata)
    record_event_time_span(event, start, end, **metadata)
