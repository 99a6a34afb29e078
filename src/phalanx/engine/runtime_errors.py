"""Errors of running programs: XLA's error, and the exception of a Python callback behind it.

`callbacks` stores the exceptions; functions that run a program or wait for its results retrieve them.
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
    """The latest exceptions raised in callbacks, by number, and those that were not raised into XLA."""

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
    """Store a callback's exception, and return the one to raise into XLA in its place."""
    return RuntimeError(f"{_MARK}{_failures.keep(error)}")


def keep_late_failure(error: BaseException) -> None:
    """Store a callback's exception that cannot be raised into XLA; the next wait for an array raises it.

    A device that stops while others wait for it in a collective would make XLA end the process after a minute.
    """
    _failures.late.append(error)


def raise_late_failure() -> None:
    """Raise the first stored exception, if there is one, and forget the others."""
    if not _failures.late:
        return
    with _failures.lock:
        late, _failures.late = _failures.late, []
    if late:
        raise late[0]


def unwrap_callback_error(error: XlaRuntimeError) -> BaseException:
    """Find the exception of a Python callback behind XLA's error.

    Args:
      error: the error of running a program or waiting for its results.

    Returns:
      The callback's own exception, or `error` itself if no callback caused it.
    """
    mark = _FIND_MARK.search(str(error))
    return error if mark is None else _failures.kept.get(int(mark[1]), error)
