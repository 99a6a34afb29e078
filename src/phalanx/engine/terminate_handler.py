"""The handler that C++ calls before it ends the process because of an exception that nothing catches.

jaxlib's wheels for Linux load libstdc++ as a shared library, so the handler can be set here. The thread that raised
the exception calls it and cannot go on, but the process can report the cause and end as after a Python exception.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator

_Handler = ctypes.CFUNCTYPE(None)


@contextlib.contextmanager
def terminate_handler(handle: Callable[[], None]) -> Iterator[None]:
    """Call a function before C++ ends the process; elsewhere than on Linux, do nothing.

    Args:
      handle: the function. If it returns, the process ends as it would have without it.
    """
    if sys.platform != "linux":
        yield
        return
    set_terminate = ctypes.CDLL("libstdc++.so.6")["_ZSt13set_terminatePFvvE"]
    set_terminate.restype, set_terminate.argtypes = _Handler, [_Handler]

    @_Handler
    def report() -> None:
        handle()
        previous()

    previous = set_terminate(report)
    try:
        yield
    finally:
        set_terminate(previous)
