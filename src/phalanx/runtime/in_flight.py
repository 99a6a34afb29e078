"""In-flight programs: how far the host may run ahead of the devices, and the effects of runs that have not finished.

A call of a compiled program returns before the devices finish. Runs with effects return a runtime token, which is kept
until it is awaited or too many have gathered. Runs with ordered effects wait for earlier tokens before they start, so
that order tokens are needed only inside a module. `compiled_program` calls this module, users call `effects_barrier`.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from phalanx.engine.callbacks import in_callback
from phalanx.engine.interruptible_wait import wait
from phalanx.engine.runtime_errors import XlaRuntimeError, raise_late_failure, unwrap_callback_error

_MAX_UNFINISHED = 16
_unfinished: collections.deque[Any] = collections.deque()  # the tokens of runs, in the order of their start
_start_lock = threading.Lock()


def limit_in_flight(run: Callable, has_effects: bool, watch: Callable[[Callable], Callable]) -> Callable:
    """Limit the runs in flight of programs whose CPU devices wait for each other or for Python.

    Each device that waits occupies a thread of the engine's pool. With 40 to 100 unfinished runs, no thread is left for
    the device that the others wait for, and XLA ends the process after a minute. All Python threads share the limit,
    because they share the pool: a run that would exceed it waits for the older half of them.

    Args:
      run: the execution of the program.
      has_effects: whether the token of a run is kept for `effects_barrier`.
      watch: wraps functions that execute the program; over several processes, another thread may call them.
    """

    def start(arguments: list) -> tuple[Any, Any]:
        results = run(arguments, True)
        token = results.consume_token()
        _unfinished.append(token)
        return results, token

    def make_room_and_start(arguments: list) -> tuple[Any, Any]:
        if len(_unfinished) >= _MAX_UNFINISHED:
            wait(_make_room)
        return start(arguments)

    start_at_once, start_when_possible = watch(start), watch(make_room_and_start)

    def run_limited(arguments: list) -> Any:
        if in_callback():  # which must not wait here: one of the oldest runs may be the one that waits for it
            results, token = start_at_once(arguments)
        else:
            with _start_lock:
                results, token = start_when_possible(arguments)
        if has_effects:
            add_token(token)
        return results

    return run_limited


def _make_room() -> None:
    """Wait for the older half of the unfinished runs, so that only one call in many has to wait."""
    for token in list(_unfinished)[: _MAX_UNFINISHED // 2]:
        # The failure of a run is raised where its results are read, or by `effects_barrier`.
        with contextlib.suppress(XlaRuntimeError):
            token.block_until_ready()
        # Removed after the wait, so that an interrupt leaves the run counted. A thread whose wait was left goes on.
        with contextlib.suppress(ValueError):
            _unfinished.remove(token)


def abandon() -> None:
    """Forget the runs of a distributed program that has failed, some of which may never end."""
    _unfinished.clear()


def keep_tokens(run: Callable) -> Callable:
    """The execution of a program with effects, whose tokens are kept for `effects_barrier`."""

    def run_and_keep(arguments: list) -> Any:
        results = run(arguments, True)
        add_token(results.consume_token())
        return results

    return run_and_keep


_pending: list[Any] = []
_pending_lock = threading.Lock()
_MAX_PENDING = 64


def add_token(token: Any) -> None:
    """Keep the token of a run with effects; waits for the oldest token if there are many."""
    with _pending_lock:
        _pending.append(token)
        # The lock is released before waiting, since a callback of the awaited run may start further runs.
        oldest = _pending.pop(0) if len(_pending) > _MAX_PENDING else None
    if oldest is not None:
        _wait(oldest)


def _wait(token: Any) -> None:
    try:
        wait(token.block_until_ready)
    except XlaRuntimeError as error:
        raise unwrap_callback_error(error) from None


def effects_barrier() -> None:
    """Wait until the effects of all programs started so far have happened.

    Raises:
      Exception: the first exception of a callback in these programs.

    Examples:
      >>> import phalanx
      >>> seen = []
      >>> f = phalanx.jit(lambda x: phalanx.debug.callback(lambda v: seen.append(int(v)), x))
      >>> f(3)
      >>> effects_barrier()
      >>> seen
      [3]
    """
    with _pending_lock:
        waiting, _pending[:] = list(_pending), []
    first: Exception | None = None
    for token in waiting:
        try:
            _wait(token)
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
    raise_late_failure()
