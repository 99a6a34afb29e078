"""Devices that nobody has to have: what programs over an `AbstractMesh` are lowered for.

Builds on meshes and shardings. Called by the stages of compiled functions, by exports and by lowering.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.sharding import AbstractMesh, NamedSharding


@dataclass(frozen=True, order=True)
class StandIn:
    """One of as many devices as an `AbstractMesh` says, with its number, and what else is read of devices."""

    id: int
    process_index: int = 0
    platform: str = "stand-in"
    device_kind: str = "stand-in"


def is_abstract(sharding: Any) -> bool:
    """Whether this is a sharding, and one that names no devices."""
    return isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)


def on_devices(sharding: Any, devices: Sequence[Any]) -> Any:
    """A sharding that names no devices over these, in partition order; any other, or None, as it is."""
    return NamedSharding(sharding.mesh.on(devices), sharding.spec) if is_abstract(sharding) else sharding


def on_stand_ins(sharding: Any, platform: str = "stand-in") -> Any:
    """A sharding that names no devices over ones of a platform that stand for them; any other, or None, as it is."""
    if not is_abstract(sharding):
        return sharding
    return on_devices(sharding, [StandIn(i, platform=platform) for i in range(sharding.mesh.size)])
