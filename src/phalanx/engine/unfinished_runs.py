"""Unfinished runs of programs whose CPU devices wait for each other or for Python, and which may still go on.

While there is none, a launch of such a program does not block, and no wait for results depends on another process.
jaxlib tells whether an array is ready, but not whether the token of a run is: the last run counts as finished when one
of its results is ready, the others when their tokens have been awaited. `runtime.in_flight` adds the runs that are not
finished when their launch returns; most of those that take one device of each process are.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.engine.interruptible_wait import wait
from phalanx.engine.runtime_errors import XlaRuntimeError

_MAX_UNFINISHED = 16


class Run:
    """A run that was not finished when its launch returned.

    Args:
      token: jaxlib's token of it.
      result: a result that is ready only when the run is finished; None if there is none.
      calls_python: whether the program calls Python functions.
    """

    __slots__ = ("_result", "calls_python", "token")

    def __init__(self, token: Any, result: Any, calls_python: bool = False):
        self.token, self.calls_python = token, calls_python
        self._result: Callable[[], Any] = _no_result if result is None else weakref.ref(result)

    @property
    def is_finished(self) -> bool:
        """Whether the run is known to be finished."""
        result = self._result()
        return result is not None and not result.is_deleted() and result.is_ready()


def _no_result() -> None:
    return None


class _Runs:
    """The runs in the order of their start, and whether all are among them."""

    unfinished: collections.deque[Run] = collections.deque()
    has_others = False


def add(run: Run) -> None:
    """Count a run, the last one so far."""
    _Runs.unfinished.append(run)


def start_others() -> None:
    """Record that programs are run whose devices wait for each other, but whose runs are not added."""
    _Runs.has_others = True


def all_added_finished() -> bool:
    """Whether all runs that were added are known to be finished."""
    while (runs := _Runs.unfinished) and (last := runs[-1]).is_finished:
        _remove(last)
    return not runs


def all_finished() -> bool:
    """Whether all runs are known to be finished."""
    return not (_Runs.unfinished and not all_added_finished()) and not _Runs.has_others


def make_room() -> None:
    """If there are many unfinished runs, wait for the older half of them, so that only one call in many has to wait."""
    if len(_Runs.unfinished) >= _MAX_UNFINISHED:
        wait(functools.partial(_wait_for, list(_Runs.unfinished)[: _MAX_UNFINISHED // 2]))


def wait_for_callers() -> None:
    """Wait for the runs that call Python, and for those that their callbacks start."""
    while callers := [run for run in list(_Runs.unfinished) if run.calls_python]:
        wait(functools.partial(_wait_for, callers))


def _wait_for(runs: Sequence[Run]) -> None:
    for run in runs:
        # The failure of a run is raised where its results are read, or by `effects_barrier`.
        with contextlib.suppress(XlaRuntimeError):
            run.token.block_until_ready()
        # Removed after the wait, so that an interrupt leaves the run counted. A thread whose wait was left goes on.
        _remove(run)


def _remove(run: Run) -> None:
    try:  # A call over processes pays for each step here, and `contextlib.suppress` takes more.
        _Runs.unfinished.remove(run)
    except ValueError:  # another thread has removed it
        pass


def abandon() -> None:
    """Forget the runs of a distributed program that has failed, some of which may never end."""
    _Runs.unfinished.clear()
    _Runs.has_others = False
