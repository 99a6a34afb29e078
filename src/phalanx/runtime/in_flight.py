"""In-flight programs: how far the host may run ahead of the devices, and the effects of runs that have not finished.

A call of a compiled program returns before the devices finish. Runs with effects return a runtime token, which is kept
until it is awaited or too many have gathered. Runs with ordered effects wait for earlier tokens before they start, so
that order tokens are needed only inside a module. `compiled_program` calls this module, users call `effects_barrier`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from phalanx.engine.runtime_errors import XlaRuntimeError, raise_late_failure, unwrap_callback_error

_exchanging_runs = itertools.count(1)
_MAX_EXCHANGING_RUNS = 16


def limit_in_flight(run: Callable) -> Callable:
    """Limit the runs in flight of a program whose CPU devices wait for each other in collectives.

    Each device that waits occupies a thread of the engine's pool. With 40 to 100 unfinished runs, no thread is left for
    the device that the others wait for, and XLA ends the process after a minute. Waiting for every 16th run avoids
    that.
    """

    def run_and_wait(arguments: list) -> Any:
        if next(_exchanging_runs) % _MAX_EXCHANGING_RUNS:
            return run(arguments)
        results = run(arguments, with_tokens=True)
        results.consume_token().block_until_ready()
        return results

    return run_and_wait


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
        token.block_until_ready()
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
