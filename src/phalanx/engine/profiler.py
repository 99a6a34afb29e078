"""Profiles: recording what the host and the devices do, and naming a stretch of host code in the record.

Builds on jaxlib's profiler; `phalanx.profiler` calls it. The files are those that TensorBoard and XProf read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from jaxlib import _profiler


@contextlib.contextmanager
def trace(directory: str, *, python: bool = False) -> Iterator[None]:
    """Record a profile while the block runs.

    Args:
      directory: where the files go, in a folder for each recording.
      python: whether each call of a Python function is recorded too, which slows the host down.
    """
    options = _profiler.ProfileOptions()
    options.python_tracer_level = int(python)
    session = _profiler.ProfilerSession(options)
    try:
        yield
    finally:
        session.stop_and_export(str(directory))


def annotate(name: str, **facts: Any) -> Any:
    """Give a context manager that shows its block in profiles under `name`; it costs next to nothing outside of one."""
    return _profiler.TraceMe(name, **facts)
