"""Profiling: traces of host and devices, annotations in traces, and profiles of device memory.

`phalanx.profiler` has these functions as its public API. Builds on `engine.profiler_session`. XProf and TensorBoard
read the traces, Perfetto too if they are recorded with `create_perfetto_trace`; pprof reads the memory profiles.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from phalanx.core import ArgumentError, check_function
from phalanx.engine import profiler_session
from phalanx.engine.profiler_session import (
    ProfileData as ProfileData,
    ProfileEvent as ProfileEvent,
    ProfileOptions as ProfileOptions,
    ProfilePlane as ProfilePlane,
)


class TraceAnnotation(profiler_session.TraceMe):
    """A context manager that adds a named span to traces of the host. It costs almost nothing while no trace is
    recorded.

    Args:
      name: the name of the span.
      kwargs: metadata to attach to the span.

    Examples:
      >>> with TraceAnnotation("load the batch", epoch=3):
      ...     sum(range(10))
      45
    """


class StepTraceAnnotation(TraceAnnotation):
    """A `TraceAnnotation` of one training step, by which viewers group events.

    Args:
      name: the name of the span, such as `"train"`.
      kwargs: metadata to attach to the span; viewers read the index of the step from `step_num`.

    Examples:
      >>> with StepTraceAnnotation("train", step_num=7):
      ...     sum(range(10))
      45
    """

    def __init__(self, name: str, **kwargs: Any):
        super().__init__(name, _r=1, **kwargs)


def annotate_function(func: Callable | None = None, name: str | None = None, **kwargs: Any) -> Any:
    """Add a named span to traces of the host for each call of a function.

    Args:
      func: the function. If omitted, `annotate_function` returns a decorator.
      name: the name of the span; defaults to the name of the function.
      kwargs: metadata to attach to the span.

    Returns:
      A function with the same behaviour.

    Raises:
      ArgumentTypeError: `func` is not callable.

    Examples:
      >>> @annotate_function
      ... def double(x):
      ...     return 2 * x
      >>> double(4)
      8
    """
    if func is None:
        return functools.partial(annotate_function, name=name, **kwargs)
    check_function("annotate_function, argument func", func)
    function, shown = func, name or getattr(func, "__qualname__", None) or type(func).__name__

    @functools.wraps(function)
    def annotated(*args: Any, **named: Any) -> Any:
        with TraceAnnotation(shown, **kwargs):
            return function(*args, **named)

    return annotated


class _Recorder:
    """State of the trace being recorded and of the profiler server; a process has at most one of each."""

    lock = threading.Lock()
    session: Any = None
    directory = Path()
    has_perfetto = False
    server: Any = None


def start_trace(
    log_dir: os.PathLike | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> None:
    """Start recording a trace of host and devices, until `stop_trace`.

    Args:
      log_dir: the directory for the files; each trace gets its own subdirectory.
      create_perfetto_link: not supported; use `create_perfetto_trace`.
      create_perfetto_trace: whether to also write a file `perfetto_trace.json.gz` for ui.perfetto.dev.
      profiler_options: options of the profiler; defaults to `ProfileOptions()`.

    Raises:
      ArgumentError: a trace is being recorded already, or `create_perfetto_link` is set.

    Examples:
      >>> import pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     start_trace(folder)
      ...     stop_trace()
      ...     len(list(pathlib.Path(folder).glob("plugins/profile/*/*.xplane.pb")))
      1
    """
    if create_perfetto_link:
        raise ArgumentError(
            "start_trace, argument create_perfetto_link",
            expected="False",
            got="True",
            fix="pass create_perfetto_trace=True and open the file at ui.perfetto.dev",
        )
    with _Recorder.lock:
        if _Recorder.session is not None:
            raise ArgumentError(
                "start_trace",
                expected="no other trace being recorded, since a process can record one at a time",
                got=f"a trace being recorded to {_Recorder.directory}",
                fix="call phalanx.profiler.stop_trace() first",
            )
        _Recorder.session = profiler_session.start(profiler_options)
        _Recorder.directory, _Recorder.has_perfetto = Path(log_dir), create_perfetto_trace


def stop_trace() -> None:
    """Stop recording the trace and write its files.

    Raises:
      ArgumentError: no trace is being recorded.

    Examples:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     start_trace(folder)
      ...     stop_trace()
    """
    with _Recorder.lock:
        # Cleared before exporting, so that a failure to write files does not block the next trace.
        session, _Recorder.session = _Recorder.session, None
        if session is None:
            raise ArgumentError(
                "stop_trace", expected="a trace being recorded", got="none", fix="call start_trace(log_dir) first"
            )
        session.stop_and_export(str(_Recorder.directory))
        if _Recorder.has_perfetto:
            made = _Recorder.directory.glob("plugins/profile/*/*.trace.json.gz")
            # The profiler chooses the name of the subdirectory from the time, so the newest file is that of this trace.
            newest = max(made, key=lambda path: path.stat().st_mtime)
            shutil.copyfile(newest, newest.parent / "perfetto_trace.json.gz")


@contextlib.contextmanager
def trace(
    log_dir: os.PathLike | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> Iterator[None]:
    """Record a trace of host and devices for the duration of a `with` block.

    Args:
      log_dir, create_perfetto_link, create_perfetto_trace, profiler_options: as for `start_trace`.

    Returns:
      A context manager.

    Raises:
      ArgumentError: a trace is being recorded already, or `create_perfetto_link` is set.

    Examples:
      >>> import phalanx.numpy as jnp, pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     with trace(folder):
      ...         _ = jnp.sin(1.0).block_until_ready()
      ...     len(list(pathlib.Path(folder).glob("plugins/profile/*/*.xplane.pb")))
      1
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


def start_server(port: int) -> Any:
    """Start a profiler server, through which viewers can record traces of this process on demand.

    Args:
      port: the port to listen on.

    Returns:
      The server, which runs until `stop_server`.

    Raises:
      ArgumentError: a server is running already.

    Examples:
      >>> import socket
      >>> with socket.socket() as free:
      ...     free.bind(("localhost", 0))
      ...     port = free.getsockname()[1]
      >>> server = start_server(port)
      >>> stop_server()
    """
    with _Recorder.lock:
        if _Recorder.server is not None:
            raise ArgumentError(
                "start_server", expected="no running server", got="one", fix="call phalanx.profiler.stop_server() first"
            )
        _Recorder.server = profiler_session.start_server(port)
        return _Recorder.server


def stop_server() -> None:
    """Stop the server that `start_server` started.

    Raises:
      ArgumentError: no server is running.

    Examples:
      >>> try:
      ...     stop_server()
      ... except ArgumentError as error:
      ...     print(error.fix)
      call start_server(port) first
    """
    with _Recorder.lock:
        if _Recorder.server is None:
            raise ArgumentError(
                "stop_server", expected="a running server", got="none", fix="call start_server(port) first"
            )
        _Recorder.server = None


def device_memory_profile(backend: str | None = None) -> bytes:
    """Profile the memory of devices: arrays and executables, with the tracebacks of their allocation.

    Results of programs have them only if the option `allocation_tracebacks` was on when they were made.

    Args:
      backend: the platform, such as `"cpu"`; the default platform if not given.

    Returns:
      A gzipped protocol buffer in the format of pprof.

    Raises:
      ArgumentError: the platform does not exist.

    Examples:
      >>> device_memory_profile()[:2]  # as gzip begins
      b'\\x1f\\x8b'
    """
    return profiler_session.heap_profile(backend)


def save_device_memory_profile(filename: os.PathLike | str, backend: str | None = None) -> None:
    """Write `device_memory_profile` to a file.

    Args:
      filename: path of the file.
      backend: the platform; the default platform if not given.

    Raises:
      ArgumentError: the platform does not exist.

    Examples:
      >>> import pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save_device_memory_profile(f"{folder}/memory.prof")
      ...     pathlib.Path(f"{folder}/memory.prof").stat().st_size > 0
      True
    """
    Path(filename).write_bytes(device_memory_profile(backend))


__all__ = [
    "ProfileData",
    "ProfileEvent",
    "ProfileOptions",
    "ProfilePlane",
    "StepTraceAnnotation",
    "TraceAnnotation",
    "annotate_function",
    "device_memory_profile",
    "save_device_memory_profile",
    "start_server",
    "start_trace",
    "stop_server",
    "stop_trace",
    "trace",
]
