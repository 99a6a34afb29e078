"""What fails while a program runs: the error in which XLA reports it, and the callback's own exception behind that.

Builds on `jaxlib` alone. `callbacks` keeps the exceptions; whoever executes a program, or waits for it, asks for them.
"""

from __future__ import annotations

import collections
import itertools
import re
import threading
from typing import TypeAlias

from jaxlib import _jax

XlaRuntimeError: TypeAlias = _jax.JaxRuntimeError

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
