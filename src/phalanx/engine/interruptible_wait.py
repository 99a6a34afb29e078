"""Waits for the devices from which a thread can be called away.

A wait inside jaxlib ends only when the devices are done. In a program of several processes that may be never: where
Gloo has given up a collective, nothing wakes the threads in it. There, another thread waits inside jaxlib, and the one
that wants the results waits for that thread. `failure_watch` provides an `Interrupter`; a process alone has none.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

interrupters: list[Interrupter] = []  # of the distributed program of this process; at most one

_INTERRUPTED = object()
_LAST_SECONDS = 1.0  # of a wait that begins after the interrupt, for results that do not depend on other processes


def wait(block: Callable[[], Any]) -> Any:
    """Call a function that may wait inside jaxlib.

    Args:
      block: the function.

    Returns:
      Its result.

    Raises:
      Exception: the exception of the function, or the one for which it was interrupted.
    """
    return interrupters[0].wait(block) if interrupters else block()


class Interrupter:
    """The threads of one distributed program that wait in the place of others.

    Args:
      make_error: returns the exception to raise in interrupted waits.
    """

    def __init__(self, make_error: Callable[[], BaseException]):
        self.make_error = make_error
        self._is_interrupted = False
        self._own = threading.local()  # the helper of each thread
        self._helpers: weakref.WeakSet[_Helper] = weakref.WeakSet()

    def wait(self, block: Callable[[], Any]) -> Any:
        """As the function of that name."""
        helper = getattr(self._own, "helper", None)
        if helper is None or self._is_interrupted:
            helper = self._own.helper = _Helper()
            self._helpers.add(helper)
        outcome = helper.call(block, _LAST_SECONDS if self._is_interrupted else None)
        if outcome is _INTERRUPTED:
            raise self.make_error()
        result, error = outcome
        if error is not None:
            raise error
        return result

    @property
    def is_interrupted(self) -> bool:
        """Whether threads have been called away from waits, which may go on for ever."""
        return self._is_interrupted

    def calls(self) -> set[tuple[Any, int]]:
        """The calls that are being made."""
        return {(helper, helper.number) for helper in list(self._helpers) if helper.is_calling}

    def interrupt(self) -> None:
        """End all waits, and those that are still to come."""
        self._is_interrupted = True
        for helper in list(self._helpers):
            helper.outcomes.put(_INTERRUPTED)

    @property
    def has_left(self) -> bool:
        """Whether waits go on that were left, as by Ctrl-C."""
        return any(helper.num_left for helper in list(self._helpers))

    def join(self, seconds: float) -> None:
        """Give these waits some time to end: a thread that returns from jaxlib while Python ends aborts the process."""
        deadline = time.monotonic() + seconds
        for helper in list(self._helpers):
            helper.skip_left(deadline)


class _Helper:
    """A thread that calls functions in the place of another one, in order."""

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.number, self.is_calling = 0, False
        self.num_left = 0  # calls that were left before their end
        arguments = (self.requests, self.outcomes)
        threading.Thread(target=_serve, args=arguments, daemon=True, name="phalanx-wait").start()

    def __del__(self) -> None:
        self.requests.put(None)

    def call(self, block: Callable[[], Any], seconds: float | None) -> Any:
        """The result of a function and its exception, or `_INTERRUPTED`, also when it does not end in time."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self.number, self.is_calling = self.number + 1, True
        self.requests.put(block)
        try:
            return _INTERRUPTED if self.skip_left(deadline) else self.outcomes.get(timeout=seconds)
        except queue.Empty:
            return _INTERRUPTED
        except BaseException:
            self.num_left += 1
            raise
        finally:
            self.is_calling = False

    def skip_left(self, deadline: float | None) -> bool:
        """Wait for the calls that were left; returns whether the wait was interrupted."""
        while self.num_left:
            seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                if self.outcomes.get(timeout=seconds) is _INTERRUPTED:
                    return True
            except queue.Empty:
                return True
            self.num_left -= 1
        return False


def _serve(requests: queue.SimpleQueue, outcomes: queue.SimpleQueue) -> None:
    while (block := requests.get()) is not None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = block(), None
        except BaseException as error:
            outcome = None, error
        outcomes.put(outcome)
        del block, outcome  # with the arrays that they hold
