"""What a forked process does at its start: it has the memory of its parent, but none of the other threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[[], None])


def in_forked_process(function: F) -> F:
    """Call a function at the start of each process that is forked from this one; a decorator."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=function)
    return function
