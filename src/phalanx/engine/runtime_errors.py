"""Errors of running programs: XLA's error, and the exception of a Python callback behind it.

`callbacks` stores the exceptions; functions that run a program or wait for its results retrieve them.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import itertools
import os
import re
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxlib._jax import JaxRuntimeError as XlaRuntimeError

from phalanx.engine.cache import memoize

_MARK = "phalanx-callback-failure-"
_FIND_MARK = re.compile(_MARK + r"(\d+)")
_FAILURES_KEPT = 256
_FAILURES_WITH_LOCALS = 4
_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR  # clearing their frames ends them

_numbers = itertools.count(1)
_kept: collections.OrderedDict[int, BaseException] = collections.OrderedDict()  # raised in callbacks, by number
_last: collections.deque[_Raised] = collections.deque()  # the last of these
late_failures: list[BaseException] = []  # the failures that were not raised into XLA
_lock = threading.Lock()

# Filled in programs of several processes: functions that find the failed process behind an error, and functions to call
# with an exception of a callback that is raised later.
explain_process_failure: list[Callable[[XlaRuntimeError], BaseException]] = []
on_late_failure: list[Callable[[BaseException], None]] = []


def keep_failure(error: BaseException) -> RuntimeError:
    """Store a callback's exception, and return the one to raise into XLA in its place.

    XLA reports a failed callback as text only, so the exception is found again by the number in that text. The local
    variables of its frames, such as the operands, are kept for a debugger, but of the last few failures only.
    """
    with _lock:
        number = next(_numbers)
        _kept[number] = error
        while len(_kept) > _FAILURES_KEPT:
            _kept.popitem(last=False)
        _last.append(_Raised(error, error.__traceback__, error.__context__))
        older = _last.popleft() if len(_last) > _FAILURES_WITH_LOCALS else None
    if older is not None:
        older.forget_locals()
    return RuntimeError(f"{_MARK}{number}")


class _Raised(NamedTuple):
    """An exception as a callback raised it, before its readers raised it again."""

    error: BaseException
    traceback: types.TracebackType | None
    context: BaseException | None

    def forget_locals(self) -> None:
        """Free the operands in the frames of the callback and its callers, and the results in those of readers."""
        # A program that runs in the thread of its call has its callers' frames behind that of the callback.
        callers = traceback.walk_stack(self.traceback.tb_frame.f_back) if self.traceback else ()
        for frame, _ in [*traceback.walk_tb(self.traceback), *callers]:
            if frame.f_code.co_flags & _RESUMED:
                continue
            with contextlib.suppress(RuntimeError):  # It is still running.
                frame.clear()
        # The frames of readers are not ours to clear, so the exception lets go of them.
        self.error.__traceback__, self.error.__context__ = self.traceback, self.context


def keep_late_failure(error: BaseException) -> None:
    """Store a callback's exception that cannot be raised into XLA; the next wait for an array raises it.

    A device that stops while others wait for it in a collective would make XLA end the process after a minute.
    """
    if not late_failures:  # The others are not raised, and would hold their operands.
        late_failures.append(error)
    for notify in on_late_failure:
        notify(error)


def raise_late_failure() -> None:
    """Raise the stored exception, if there is one."""
    if not late_failures:  # This runs at each wait for an array, which should not take the lock.
        return
    with _lock:
        late, late_failures[:] = list(late_failures), []
    if late:
        raise to_reported(late[0])


def unwrap_callback_error(error: XlaRuntimeError) -> BaseException:
    """Find the exception of a Python callback, or the failure of another process, behind XLA's error.

    Args:
      error: the error of compiling or running a program, or of waiting for its results.

    Returns:
      The exception behind it, or `error` itself if there is none.
    """
    mark = _FIND_MARK.search(str(error))
    if mark is not None:
        return to_reported(_kept.get(int(mark[1]), error))
    return explain_process_failure[0](error) if explain_process_failure else error


def to_reported(error: BaseException) -> BaseException:
    """The exception to raise for that of a callback: XLA's error, and the class that the callback raised as well.

    Programs written for JAX, under `phalanx.as_jax`, catch XLA's error with its text.
    """
    if isinstance(error, XlaRuntimeError) or not isinstance(error, Exception):
        return error
    if "PHALANX_AS_JAX" in os.environ:
        return XlaRuntimeError(f"INTERNAL: Python callback failed: {''.join(traceback.format_exception(error))}")
    both = _class_of_both(type(error))
    if both is None:
        return error
    with contextlib.suppress(TypeError):  # The classes of Python itself cannot be replaced.
        error.__class__ = both
        return error
    reported = both.__new__(both, *error.args)
    reported.args = error.args
    vars(reported).update(vars(error))
    reported.__cause__, reported.__context__ = error.__cause__, error.__context__
    reported.__suppress_context__ = error.__suppress_context__
    return reported.with_traceback(error.__traceback__)


@memoize("engine.callback_error_classes", 256)
def _class_of_both(error_class: type[Exception]) -> type[Exception] | None:
    """A subclass of an exception class and of XLA's error; None if Python cannot combine them."""
    names: dict[str, Any] = {name: getattr(error_class, name) for name in ("__module__", "__qualname__", "__str__")}
    try:
        return type(error_class.__name__, (error_class, XlaRuntimeError), names)
    except TypeError:  # such as OSError, whose instances have fields of their own in C
        return None
