"""Deletion of buffers that other threads read.

A view of a buffer's memory on the host keeps the memory alive. But while jaxlib makes the view, and has released the
lock of the interpreter, a deletion in another thread frees what it reads: the process ends. So reads and deletions are
recorded while they last. A deletion waits for the reads that began before it, a read for the deletions. A lock around
each read would take a tenth of its time. `buffers` and `runtime.array` call this module. (Small results are read in
place, and not deleted: see `Array.delete`.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeVar

from phalanx.engine.forked_processes import in_forked_process

R = TypeVar("R")

# The `id` of each buffer that is read. Calls of these methods of lists are atomic.
_reads: list[int] = []
begin_read, end_read = _reads.append, _reads.remove
deletions: list[int] = []  # the threads that delete

# Both take microseconds, unless the garbage collector or a signal runs other code in the midst of one. Then a deletion
# leaves the memory to the read, and a read goes on, for the deletion hardly does in the same moment.
_LONGEST_READ, _LONGEST_DELETION = 0.1, 1.0  # seconds
_POLL = 1e-5


def read(make_view: Callable[[Any], R], buffer: Any) -> R:
    """Call a function that makes a view of a buffer on the host, while no other thread deletes one.

    Args:
      make_view: the function.
      buffer: the buffer, which is ready.

    Returns:
      The view.
    """
    key, deadline = id(buffer), 0.0
    while True:
        try:
            begin_read(key)
            if not deletions or (deadline and (deadline < time.monotonic() or {*deletions} == {get_ident()})):
                return make_view(buffer)
        finally:
            end_read(key)
        deadline = deadline or time.monotonic() + _LONGEST_DELETION
        time.sleep(_POLL)


def delete(alias: Any) -> bool:
    """Delete a buffer, unless reads go on for long.

    Args:
      alias: another one of the same memory, through which it is deleted: jaxlib destroys that one, even where another
        thread waits for it, and this ends the process.

    Returns:
      Whether it was deleted. If not, its memory is freed when nothing refers to it any more.
    """
    thread = get_ident()
    try:
        deletions.append(thread)
        deadline = time.monotonic() + _LONGEST_READ
        before = {*_reads}
        while not before.isdisjoint(_reads):
            if deadline < time.monotonic():
                return False
            time.sleep(_POLL)
        alias.delete()
        return True
    finally:
        deletions.remove(thread)


@in_forked_process
def _forget_threads_of_parent() -> None:
    for threads_or_buffers in (_reads, deletions):
        threads_or_buffers.clear()
