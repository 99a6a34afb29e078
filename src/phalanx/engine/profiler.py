"""Profiles: recording what the host and the devices do, and naming a stretch of host code in the record.

Builds on jaxlib's profiler; `phalanx.profiler` is its face. The files are those that TensorBoard and XProf read.
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
    """Start to record, as the options say; the session has `stop_and_export(directory)`."""
    # Plugins add what devices do to the record when they are loaded, so that they must be by then.
    client.devices()
    return Session(options) if options is not None else Session()


def start_server(port: int) -> Any:
    """A server that records when a viewer asks; it lives as long as the object."""
    return _profiler.start_server(port)


def heap_profile(platform: str | None) -> bytes:
    """What holds memory on the devices of a platform, as a gzipped pprof protocol buffer."""
    import gzip

    return gzip.compress(client.devices(platform)[0].client.heap_profile())
