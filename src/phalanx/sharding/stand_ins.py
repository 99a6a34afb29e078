"""Devices that nobody has to have: what programs over an `AbstractMesh` are lowered for.

Builds on meshes and shardings. Called by the stages of compiled functions and by exports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.sharding.mesh import AbstractMesh
from phalanx.sharding.shardings import NamedSharding


@dataclass(frozen=True, order=True)
class StandIn:
    """One of as many devices as an `AbstractMesh` says."""

    id: int
    process_index: int = 0
    platform: str = "stand-in"
    device_kind: str = "stand-in"


def stand_ins(count: int, platform: str = "stand-in") -> tuple[StandIn, ...]:
    """Devices of some platform that stand for ones that are not here."""
    return tuple([StandIn(i, platform=platform) for i in range(count)])


def is_abstract(sharding: Any) -> bool:
    """Whether a sharding names no devices."""
    return isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)


def on_stand_ins(sharding: Any, platform: str = "stand-in") -> Any:
    """A sharding that names no devices over ones that stand for them; any other as it is."""
    return on_devices(sharding, stand_ins(sharding.mesh.size, platform)) if is_abstract(sharding) else sharding


def on_devices(sharding: Any, devices: Sequence[Any]) -> Any:
    """A sharding that names no devices over these, in partition order; any other as it is."""
    return NamedSharding(sharding.mesh.on(devices), sharding.spec) if is_abstract(sharding) else sharding
