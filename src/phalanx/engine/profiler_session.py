"""Profiler sessions: recording the activity of the host and the devices, and naming blocks of host code.

Builds on jaxlib's profiler; `phalanx.profiler` is the public module. TensorBoard and XProf read the files.
"""

from __future__ import annotations

from typing import Any

from jaxlib._profile_data import ProfileData as ProfileData, ProfileEvent as ProfileEvent, ProfilePlane as ProfilePlane
from jaxlib._profiler import (
    ProfileOptions as ProfileOptions,
    ProfilerSession as ProfilerSession,
    TraceMe as TraceMe,
    start_server as _start_server,
)

from phalanx.engine import client


def start(options: Any | None = None) -> Any:
    """Start a recording; the session has `stop_and_export(directory)`."""
    # A plugin adds the activity of its devices when it is loaded, which must happen before the recording starts.
    client.devices()
    return ProfilerSession(options) if options is not None else ProfilerSession()


def start_server(port: int) -> Any:
    """Start a server that records on request of a viewer; it runs for as long as the object lives."""
    return _start_server(port)


def heap_profile(platform: str | None) -> bytes:
    """A profile of the memory on the devices of a platform, as a gzipped pprof protocol buffer."""
    import gzip

    return gzip.compress(client.devices(platform)[0].client.heap_profile())
