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
    """One of as many devices as an `AbstractMesh` says.

    Args:
      id, process_index: its number, and that of its process.
      platform, device_kind: as of a device.

    Examples:
      >>> StandIn(3).platform
      'stand-in'
    """

    id: int
    process_index: int = 0
    platform: str = "stand-in"
    device_kind: str = "stand-in"


def stand_ins(count: int, platform: str = "stand-in") -> tuple[StandIn, ...]:
    """Devices of some platform that stand for ones that are not here.

    Args:
      count: how many.
      platform: their platform.

    Returns:
      The devices, numbered from 0.

    Examples:
      >>> [device.id for device in stand_ins(2)]
      [0, 1]
    """
    return tuple([StandIn(i, platform=platform) for i in range(count)])


def is_abstract(sharding: Any) -> bool:
    """Whether a sharding names no devices.

    Args:
      sharding: a sharding, or anything else.

    Returns:
      A bool; False for what is no sharding.

    Examples:
      >>> from phalanx.sharding import P
      >>> is_abstract(NamedSharding(AbstractMesh((2,), ("x",)), P("x"))), is_abstract(None)
      (True, False)
    """
    return isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)


def on_stand_ins(sharding: Any, platform: str = "stand-in") -> Any:
    """A sharding that names no devices over ones that stand for them; any other as it is.

    Args:
      sharding: a sharding, or anything else.
      platform: of the devices that stand in.

    Returns:
      The sharding.

    Examples:
      >>> from phalanx.sharding import P
      >>> there = on_stand_ins(NamedSharding(AbstractMesh((2,), ("x",)), P("x")), "tpu")
      >>> sorted((device.id, device.platform) for device in there.device_set)
      [(0, 'tpu'), (1, 'tpu')]
    """
    return on_devices(sharding, stand_ins(sharding.mesh.size, platform)) if is_abstract(sharding) else sharding


def on_devices(sharding: Any, devices: Sequence[Any]) -> Any:
    """A sharding that names no devices over these, in partition order; any other as it is.

    Args:
      sharding: a sharding, or anything else.
      devices: as many as the mesh of the sharding says.

    Returns:
      The sharding.

    Examples:
      >>> from phalanx.sharding import P
      >>> there = on_devices(NamedSharding(AbstractMesh((2,), ("x",)), P("x")), stand_ins(2))
      >>> is_abstract(there)
      False
    """
    return NamedSharding(sharding.mesh.on(devices), sharding.spec) if is_abstract(sharding) else sharding
