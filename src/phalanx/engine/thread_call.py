"""Calls in a thread of their own, which no Ctrl-C reaches and which has the whole stack.

Native modules that are loaded, and C++ that imports Python modules, end the process at an exception such as
KeyboardInterrupt or RecursionError. `mlir` and `custom_call_targets` load them through `call_in_thread`. `compiler`
compiles there, so that the main thread can receive signals.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def call_in_thread(function: Callable[[], Result]) -> Result:
    """Call a function in a new thread, and wait for it.

    Args:
      function: takes its own locks, since it goes on if Ctrl-C interrupts the wait.

    Returns:
      Its result.

    Raises:
      BaseException: the exception of the function.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # raised by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="phalanx-call", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        if isinstance(error, RecursionError):
            raise
        run()  # The interpreter is shutting down and starts no more threads.
    else:
        thread.join()
    if errors:
        raise errors.pop()
    return results[0]
