"""Placeholder devices, used to lower a program for an `AbstractMesh` whose hardware is not attached.

Builds on meshes and shardings. Stages of compiled functions, exports and lowering use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.sharding import AbstractMesh, NamedSharding


@dataclass(frozen=True, order=True)
class PlaceholderDevice:
    """A placeholder for a device of an `AbstractMesh`: its number, and the attributes that lowering reads."""

    id: int
    process_index: int = 0
    platform: str = "stand-in"
    device_kind: str = "stand-in"


def is_abstract(sharding: Any) -> bool:
    """Whether an object is a sharding over an `AbstractMesh`, which names no devices."""
    return isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)


def on_devices(sharding: Any, devices: Sequence[Any]) -> Any:
    """A sharding over an `AbstractMesh`, placed on devices in partition order; any other object unchanged."""
    return NamedSharding(sharding.mesh.on(devices), sharding.spec) if is_abstract(sharding) else sharding


def on_abstract_devices(sharding: Any, platform: str = "stand-in") -> Any:
    """A sharding over an `AbstractMesh`, placed on placeholder devices of a platform; any other object unchanged."""
    if not is_abstract(sharding):
        return sharding
    return on_devices(sharding, [PlaceholderDevice(i, platform=platform) for i in range(sharding.mesh.size)])
