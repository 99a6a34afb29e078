"""In-flight programs: how far the host may run ahead of the devices, and the effects of runs that have not finished.

A call of a compiled program returns before the devices finish. Runs with effects return a runtime token, which is kept
until it is awaited or too many have gathered. Runs with ordered effects wait for earlier tokens before they start, so
that order tokens are needed only inside a module. `compiled_program` calls this module, users call `effects_barrier`.
"""

from __future__ import annotations

import atexit
import functools
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from phalanx.engine import client, hide_frames, unfinished_runs
from phalanx.engine.callbacks import calling_threads, in_callback
from phalanx.engine.client import BackendError
from phalanx.engine.forked_processes import in_forked_process
from phalanx.engine.interruptible_wait import wait
from phalanx.engine.runtime_errors import XlaRuntimeError, raise_late_failure, unwrap_callback_error
from phalanx.engine.threads_at_exit import keep_threads_at_exit

R = TypeVar("R")

_is_ending = False
_start_lock = threading.RLock()  # functions that run at exit start programs while it is held


def in_turn(function: Callable[[Any], R]) -> Callable[[Any], R]:
    """A function that starts a program on several devices of this process or deletes an array, one thread at a time.

    No other thread can then donate or delete an argument after a program has checked it, for which jaxlib would end the
    process.
    """

    def call_in_turn(argument: Any) -> R:
        # A callback must not wait here: the thread whose turn it is may wait for its run.
        if calling_threads and in_callback():
            return function(argument)
        with _start_lock:
            return function(argument)

    return call_in_turn


def limit_in_flight(
    run: Callable,
    handlers: Sequence[Any],
    has_effects: bool,
    calls_python: bool,
    number: int | None,
    watch: Callable[..., Callable],
) -> Callable[[list], list]:
    """Make the function that executes a program whose CPU devices wait for each other or for Python.

    It limits the runs in flight. Each device that waits occupies a thread of the engine's pool. With 40 to 100
    unfinished runs, no thread is left for the device that the others wait for, and XLA ends the process after a minute.
    All Python threads share the limit, because they share the pool: a run that would exceed it waits for the older half
    of them.

    Args:
      run: the execution of the program.
      handlers: the engine's handlers that make its results.
      has_effects: whether the token of a run is kept for `effects_barrier`.
      calls_python: whether the program calls Python functions.
      number: the number of a result that is ready only when the run is finished; None if there is none.
      watch: wraps functions that execute the program. A launch may block while others occupy the threads of the engine;
        over several processes, another Python thread then makes it.
    """

    count = functools.partial(_count, has_effects=has_effects, calls_python=calls_python, number=number)

    def start(arguments: list, with_tokens: bool) -> list:
        results = run(arguments, with_tokens)
        found = results.consume_with_handlers(handlers)
        count(results, found)
        return found

    def make_room_and_start(arguments: list, with_tokens: bool) -> list:
        unfinished_runs.make_room()
        return start(arguments, with_tokens)

    launch = watch(run)
    start_when_possible = watch(make_room_and_start, may_block=True)
    start_in_callback = watch(start, may_block=True)

    def execute(arguments: list) -> list:
        # A callback must not wait here: one of the oldest runs may be the one that waits for it.
        if calling_threads and in_callback():
            found: list = start_in_callback(arguments, True)
        elif calls_python and sys.is_finalizing():
            raise _make_late_error()
        elif unfinished_runs.all_finished():
            results = launch(arguments, True)
            found = results.consume_with_handlers(handlers)
            if has_effects or number is None or not found[number].is_ready():
                count(results, found)
        else:
            found = start_when_possible(arguments, True)
        if _is_ending:
            unfinished_runs.wait_for_callers()
        return found

    return execute


def _count(results: Any, found: list, *, has_effects: bool, calls_python: bool, number: int | None) -> None:
    """Count a run among the unfinished ones, and keep its token."""
    token = results.consume_token()
    unfinished_runs.add(unfinished_runs.Run(token, None if number is None else found[number], calls_python))
    if has_effects:
        add_token(token)


def _make_late_error() -> BackendError:
    return BackendError(
        "call of a compiled function",
        expected="Python to go on, since the program calls Python functions on several devices",
        got="a call while Python ends, as from __del__ of an object that still exists then",
        fix="call it before, or in a function that atexit.register registers",
    )


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


@in_forked_process
def _renew_locks() -> None:
    """In a forked process, which lacks the threads that may have held them."""
    global _start_lock, _pending_lock
    _start_lock, _pending_lock = threading.RLock(), threading.Lock()


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


def finish_runs() -> None:
    """Wait for all runs with effects or calls of Python, and show exceptions of callbacks as uncaught ones."""
    try:
        effects_barrier()
    except Exception as error:
        hide_frames(error)
        sys.excepthook(type(error), error, error.__traceback__)
    unfinished_runs.wait_for_callers()


@atexit.register
def _finish_runs_at_exit() -> None:
    """Wait for runs that call Python, and let no other thread start one: they abort the process while Python ends."""
    global _is_ending
    if not client.is_forked():  # which has the runs, but not the threads that finish them
        _start_lock.acquire()
        _is_ending = True  # Functions that were registered before this one are still to come.
        finish_runs()
        keep_threads_at_exit()
