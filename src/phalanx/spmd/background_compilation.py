"""Compilation in the background, for `jit(f).warm`: XLA compiles in a thread, without Python, while the caller goes on.

`jit` looks here, through `Traced.compiling`, before it compiles a program itself.
"""

from __future__ import annotations

import contextvars
import os
import threading
from concurrent.futures import Future

from phalanx.spmd.stages import Compiled, Lowered

# Each program is compiled by several threads of XLA; more programs at once than cores would only take memory.
_running = threading.BoundedSemaphore(os.cpu_count() or 1)


def compile_in_background(lowered: Lowered) -> Future[Compiled]:
    """Start to compile a program.

    Args:
      lowered: the program, which the caller no longer uses.

    Returns:
      A future of the compiled stage, whose `result` waits for it and raises its errors.
    """
    future: Future[Compiled] = Future()
    options = contextvars.copy_context()  # The options and the mesh of the caller, which a thread does not inherit.

    def run() -> None:
        with _running:
            try:
                future.set_result(options.run(lowered.compile))
            except BaseException as error:  # whatever it is, it belongs to the call that waits
                future.set_exception(error)

    threading.Thread(target=run, name=f"compile {lowered}").start()
    return future
