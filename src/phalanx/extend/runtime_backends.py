"""The clients of the platforms, in JAX's names."""

from __future__ import annotations

from typing import Any

from phalanx.core import default_device
from phalanx.engine import Device
from phalanx.engine.client import client, default_backend, devices


def get_backend(platform: str | None = None) -> Any:
    """The client of a platform, which is started if necessary.

    Args:
      platform: "cpu" or "gpu"; None for the default one.

    Returns:
      jaxlib's client.

    Examples:
      >>> get_backend("cpu").platform
      'cpu'
    """
    return client(platform)


def backends() -> dict[str, Any]:
    """The client of the default platform and that of the CPU, by platform.

    Returns:
      jaxlib's clients.

    Examples:
      >>> "cpu" in backends()
      True
    """
    return {platform: client(platform) for platform in dict.fromkeys([default_backend(), "cpu"])}


def get_default_device() -> Device:
    """The device on which uncommitted results are computed.

    Returns:
      The device.

    Examples:
      >>> get_default_device().id
      0
    """
    chosen = default_device.value
    return chosen if isinstance(chosen, Device) else devices(chosen)[0]
