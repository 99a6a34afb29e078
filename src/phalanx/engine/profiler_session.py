"""Profiler sessions: recording the activity of the host and the devices, and naming blocks of host code.

Builds on jaxlib's profiler; `phalanx.profiler` is the public module. TensorBoard and XProf read the files.
"""

from __future__ import annotations

from typing import Any

from jaxlib import _profile_data, _profiler

from phalanx.engine import client

Options = _profiler.ProfileOptions
Session = _profiler.ProfilerSession
Annotation = _profiler.TraceMe
ProfileData = _profile_data.ProfileData
ProfileEvent = _profile_data.ProfileEvent
ProfilePlane = _profile_data.ProfilePlane


def start(options: Any | None = None) -> Any:
    """Start a recording; the session has `stop_and_export(directory)`."""
    # A plugin adds the activity of its devices when it is loaded, which must happen before the recording starts.
    client.devices()
    return Session(options) if options is not None else Session()


def start_server(port: int) -> Any:
    """Start a server that records on request of a viewer; it runs for as long as the object lives."""
    return _profiler.start_server(port)


def heap_profile(platform: str | None) -> bytes:
    """A profile of the memory on the devices of a platform, as a gzipped pprof protocol buffer."""
    import gzip

    return gzip.compress(client.devices(platform)[0].client.heap_profile())
