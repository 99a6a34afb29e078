"""Profiles of a program as it runs: traces of host and devices, named stretches in them, and what holds memory.

The face of `engine.profiler`. Traces are read by XProf, TensorBoard and, with `create_perfetto_trace`, by Perfetto;
memory profiles by pprof.
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

from phalanx.core.errors import ArgumentError, check_function
from phalanx.engine import profiler
from phalanx.engine.profiler import Options as ProfileOptions
from phalanx.engine.profiler import ProfileData as ProfileData
from phalanx.engine.profiler import ProfileEvent as ProfileEvent
from phalanx.engine.profiler import ProfilePlane as ProfilePlane


class TraceAnnotation(profiler.Annotation):
    """A context manager whose block shows in traces of the host under a name; it costs next to nothing outside of one.

    Args:
      name: the name.
      kwargs: facts that are shown with it.

    Examples:
      >>> with TraceAnnotation("load the batch", epoch=3):
      ...     sum(range(10))
      45
    """


class StepTraceAnnotation(TraceAnnotation):
    """A `TraceAnnotation` of one training step, by which viewers group what happens.

    Args:
      name: the name, such as `"train"`.
      kwargs: facts that are shown with it; viewers read the number of the step from `step_num`.

    Examples:
      >>> with StepTraceAnnotation("train", step_num=7):
      ...     sum(range(10))
      45
    """

    def __init__(self, name: str, **kwargs: Any):
        super().__init__(name, _r=1, **kwargs)


def annotate_function(func: Callable | None = None, name: str | None = None, **kwargs: Any) -> Any:
    """A function whose calls show in traces of the host.

    Args:
      func: the function. Left out, this gives a decorator.
      name: the name to show; that of the function if not given.
      kwargs: facts that are shown with it.

    Returns:
      A function that does the same.

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
    """The one recording, and the one server, that a process may have at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: Any = None
        self.directory = Path()
        self.has_perfetto = False
        self.server: Any = None


_recorder = _Recorder()


def start_trace(
    log_dir: os.PathLike | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> None:
    """Start to record what host and devices do, until `stop_trace`.

    Args:
      log_dir: where the files go, in a folder for each recording.
      create_perfetto_link: not supported; `create_perfetto_trace` takes its place.
      create_perfetto_trace: whether a file `perfetto_trace.json.gz` for ui.perfetto.dev is written too.
      profiler_options: a `ProfileOptions`; its defaults if not given.

    Raises:
      ArgumentError: a recording is under way, or a link was asked for.

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
            mend="pass create_perfetto_trace=True and open the file at ui.perfetto.dev",
        )
    with _recorder.lock:
        if _recorder.session is not None:
            raise ArgumentError(
                "start_trace",
                expected="no recording under way, since there can be one",
                got=f"one that goes to {_recorder.directory}",
                mend="call stop_trace first",
            )
        _recorder.session = profiler.start(profiler_options)
        _recorder.directory, _recorder.has_perfetto = Path(log_dir), create_perfetto_trace


def stop_trace() -> None:
    """End the recording and write its files.

    Raises:
      ArgumentError: no recording is under way.

    Examples:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     start_trace(folder)
      ...     stop_trace()
    """
    with _recorder.lock:
        session, _recorder.session = _recorder.session, None
        if session is None:
            raise ArgumentError("stop_trace", expected="a recording", got="none", mend="call start_trace first")
        session.stop_and_export(str(_recorder.directory))
        if _recorder.has_perfetto:
            made = _recorder.directory.glob("plugins/profile/*/*.trace.json.gz")
            newest = max(made, key=lambda path: path.stat().st_mtime)
            shutil.copyfile(newest, newest.parent / "perfetto_trace.json.gz")


@contextlib.contextmanager
def trace(
    log_dir: os.PathLike | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> Iterator[None]:
    """Record what host and devices do while the block runs.

    Args:
      log_dir, create_perfetto_link, create_perfetto_trace, profiler_options: as for `start_trace`.

    Returns:
      A context manager.

    Raises:
      ArgumentError: a recording is under way, or a link was asked for.

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
    """Start a server by which viewers record this process when they are asked to.

    Args:
      port: where it listens.

    Returns:
      The server; it runs until `stop_server`.

    Raises:
      ArgumentError: a server runs already.

    Examples:
      >>> import socket
      >>> with socket.socket() as free:
      ...     free.bind(("localhost", 0))
      ...     port = free.getsockname()[1]
      >>> server = start_server(port)
      >>> stop_server()
    """
    with _recorder.lock:
        if _recorder.server is not None:
            raise ArgumentError("start_server", expected="no server", got="one", mend="call stop_server first")
        _recorder.server = profiler.start_server(port)
        return _recorder.server


def stop_server() -> None:
    """Stop the server that `start_server` started.

    Raises:
      ArgumentError: there is none.

    Examples:
      >>> try:
      ...     stop_server()
      ... except ArgumentError as error:
      ...     print(error.mend)
      call start_server first
    """
    with _recorder.lock:
        if _recorder.server is None:
            raise ArgumentError("stop_server", expected="a server", got="none", mend="call start_server first")
        _recorder.server = None


def device_memory_profile(backend: str | None = None) -> bytes:
    """What holds memory on devices: arrays and compiled programs, with the lines that made them.

    Args:
      backend: the platform, such as `"cpu"`; the default one if not given.

    Returns:
      A gzipped protocol buffer that pprof reads.

    Raises:
      ArgumentError: there is no such platform.

    Examples:
      >>> device_memory_profile()[:2]  # as gzip begins
      b'\\x1f\\x8b'
    """
    return profiler.heap_profile(backend)


def save_device_memory_profile(filename: os.PathLike | str, backend: str | None = None) -> None:
    """Write `device_memory_profile` to a file.

    Args:
      filename: where to.
      backend: the platform; the default one if not given.

    Raises:
      ArgumentError: there is no such platform.

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
