"""Pauses of Python's cyclic garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def pause_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector while a jaxpr or a module grows, or while modules are imported.

    All that is made then stays alive, but the collector would traverse it again and again: a third of the tracing time
    at 16,000 operations, a fifth of the time of imports.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def import_without_collecting() -> Iterator[None]:
    """Pause the collector while modules are imported, and move what they made to its oldest generation.

    Otherwise the next two collections of young objects would traverse it: a twentieth of the time until a first
    training step is imported. Moving takes no time, and a full collection still finds what nothing refers to.
    """
    with pause_collector():
        yield
        if not gc.get_freeze_count():  # else this would undo what a program froze itself
            gc.freeze()
            gc.unfreeze()
