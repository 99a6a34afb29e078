"""Runs under way: how far the host may run ahead of the devices, and the effects that somebody may have to wait for.

A call of a compiled program returns before its work is done. What tells that effects have happened is kept here until
somebody waits for it, or too many have gathered; the order of effects across calls is kept by waiting, so that order
tokens exist only inside a program. `dispatch` runs programs through this; users wait with `effects_barrier`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from phalanx.engine.failures import XlaRuntimeError, raise_late_failure, user_error

_exchanging_runs = itertools.count(1)
_MAX_EXCHANGING_RUNS = 16


def pausing(run: Callable) -> Callable:
    """The execution of a program whose CPU devices wait for each other, kept from running too far ahead.

    Each device of a run that waits holds a thread of the engine's pool. Between 40 and 100 runs that were started and
    are not done, the pool has none left for the device that the others wait for, and the process ends after a minute.
    """

    def paused(arguments: list) -> Any:
        if next(_exchanging_runs) % _MAX_EXCHANGING_RUNS:
            return run(arguments)
        results = run(arguments, with_tokens=True)
        results.consume_token().block_until_ready()
        return results

    return paused


_pending: list[Any] = []
_pending_lock = threading.Lock()
_MAX_PENDING = 64


def remember(token: Any) -> None:
    """Keep what tells that a program's effects have happened, and wait for the oldest where there are many."""
    with _pending_lock:
        _pending.append(token)
        oldest = _pending.pop(0) if len(_pending) > _MAX_PENDING else None
    if oldest is not None:
        _wait(oldest)


def _wait(token: Any) -> None:
    try:
        token.block_until_ready()
    except XlaRuntimeError as error:
        raise user_error(error) from None


def effects_barrier() -> None:
    """Wait until the effects of all programs started so far have happened.

    Raises:
      Whatever a callback of theirs raised.

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
