"""Waits for the devices from which a thread can be called away.

A wait inside jaxlib ends only when the devices are done. In a program of several processes that may be never: where
Gloo has given up a collective, nothing wakes the threads in it. There, another thread waits inside jaxlib, and the one
that wants the results waits for that thread. `failure_watch` provides an `Interrupter`; a process alone has none.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

interrupters: list[Interrupter] = []  # of the distributed program of this process; at most one

_INTERRUPTED = object()
_WAKE = b"!"
_POLL = 0.01
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
        self._own = threading.local()  # the helper of each thread; helpers call functions themselves
        self._helpers: weakref.WeakSet[_Helper] = weakref.WeakSet()

    def wait(self, block: Callable[[], Any]) -> Any:
        """As the function of that name."""
        helper = getattr(self._own, "helper", None)
        if helper is None or self._is_interrupted:
            helper = self._own.helper = _Helper(self._own)
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
            helper.interrupt()

    @property
    def has_left(self) -> bool:
        """Whether waits go on that were left, as by Ctrl-C."""
        return any(helper.has_left for helper in list(self._helpers))

    def join(self, seconds: float) -> None:
        """Give these waits some time to end: a thread that returns from jaxlib while Python ends aborts the process."""
        deadline = time.monotonic() + seconds
        while self.has_left and time.monotonic() < deadline:
            time.sleep(_POLL)


class _Helper:
    """A thread that calls functions in the place of another one, in order.

    The two wake each other through pipes. As its writer is expected to sleep soon, the reader of a pipe is started at
    once on the core of the writer: a call takes 5 us. A thread that is woken by a lock or a queue takes 12 to 28 us.

    Args:
      own: the helpers of the threads, among which the thread enters itself.
    """

    def __init__(self, own: threading.local):
        self.number, self.is_calling = 0, False
        self._left = 0  # the number of a call that was left before its end
        self._is_interrupted = False
        self._requests: collections.deque[tuple[int, Callable[[], Any]]] = collections.deque()
        self._outcomes: collections.deque[tuple[int, Any]] = collections.deque()
        reader, self._requested = os.pipe()
        self._done, self._writer = os.pipe()
        arguments = (own, reader, self._writer, self._requests, self._outcomes)
        threading.Thread(target=_serve, args=arguments, daemon=True, name="phalanx-wait").start()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._requested)  # The thread ends, and closes the other ends.
        close(self._done)

    def call(self, block: Callable[[], Any], seconds: float | None) -> Any:
        """The result of a function and its exception, or `_INTERRUPTED`, also when it does not end in time."""
        self.number, self.is_calling = self.number + 1, True
        try:
            self._requests.append((self.number, block))
            os.write(self._requested, _WAKE)
            return self._wait_for_outcome(None if seconds is None else time.monotonic() + seconds)
        except BaseException:
            self._left = self.number
            raise
        finally:
            self.is_calling = False

    def _wait_for_outcome(self, deadline: float | None) -> Any:
        while True:
            while self._outcomes:
                number, outcome = self._outcomes.popleft()
                if number == self.number:  # A smaller one is that of a call that was left.
                    return outcome
            if self._is_interrupted or (deadline is not None and time.monotonic() > deadline):
                return _INTERRUPTED
            if deadline is None:
                os.read(self._done, 64)  # It may find what an earlier call has not read.
            else:
                time.sleep(_POLL)

    def interrupt(self) -> None:
        """End the wait for the outcome of a call."""
        self._is_interrupted = True
        os.write(self._writer, _WAKE)

    @property
    def has_left(self) -> bool:
        """Whether a call goes on that was left."""
        outcomes = list(self._outcomes)
        return self._left == self.number > 0 and not (outcomes and outcomes[-1][0] == self._left)


class _Direct:
    """In the place of a helper, on the thread of a helper: it calls functions itself."""

    @staticmethod
    def call(block: Callable[[], Any], _: float | None) -> Any:
        return block(), None


def _serve(
    own: threading.local, reader: int, writer: int, requests: collections.deque, outcomes: collections.deque
) -> None:
    own.helper = _Direct
    while os.read(reader, 64):
        while requests:
            number, block = requests.popleft()
            outcome: tuple[Any, BaseException | None]
            try:
                outcome = block(), None
            except BaseException as error:
                outcome = None, error
            outcomes.append((number, outcome))
            del block, outcome  # with the arrays that they hold
            with contextlib.suppress(BrokenPipeError):  # The other thread has ended.
                os.write(writer, _WAKE)
    os.close(reader)
    os.close(writer)
