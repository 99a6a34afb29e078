"""Raw tracebacks: the stacks of Python calls, which jaxlib takes for operations that are traced, and for allocations.

By default jaxlib also takes one at each call of a program, for profiles of the memory of devices. That takes a
fourteenth of a short call, and a quarter of one that 60 others surround. So they are on while programs are traced, and
otherwise if an option asks for it. The setting is one for the process: with jax in it, they stay on.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from jaxlib import _jax

take_traceback, _enable = _jax.Traceback.get_traceback, _jax.set_tracebacks_enabled
_lock = threading.Lock()


class _Wanted:
    """What needs tracebacks: the number of traces under way, and whether allocations are to be recorded."""

    traces = 0
    for_allocations = False


def _update() -> None:
    _enable(_Wanted.traces > 0 or _Wanted.for_allocations or "jax" in sys.modules)


def record_allocations(is_on: bool) -> None:
    """Let jaxlib take a traceback for each array and program that is made from now on, or not.

    Args:
      is_on: whether it does.
    """
    _Wanted.for_allocations = is_on
    _update()


@contextlib.contextmanager
def while_tracing() -> Iterator[None]:
    """Have tracebacks on, so that `take_traceback` finds one."""
    with _lock:
        _Wanted.traces += 1
        _update()
    try:
        yield
    finally:
        with _lock:
            _Wanted.traces -= 1
            _update()


def current_traceback() -> Any:
    """The calling thread's stack, as code objects and offsets: 0.1 to 0.5 us, nothing is formatted."""
    if (traceback := take_traceback()) is None:
        while (traceback := take_traceback()) is None:  # Another thread may turn it off in between.
            _enable(True)
        _update()
    return traceback


record_allocations(False)
