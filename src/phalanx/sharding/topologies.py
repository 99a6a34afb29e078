"""Descriptions of hardware topologies and meshes over them. Public as `phalanx.experimental.topologies`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core import RuleError
from phalanx.engine.client import Device, devices as all_devices
from phalanx.sharding.device_mesh import create_device_mesh
from phalanx.sharding.mesh import Mesh
from phalanx.sharding.partition_spec import AxisName


class TopologyDescription(NamedTuple):
    """The devices of a system.

    Args:
      devices: the devices.

    Examples:
      >>> len(get_attached_topology().devices) >= 1
      True
    """

    devices: list[Device]


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """Describe the devices of this system.

    Args:
      platform: "cpu", "cuda" (or "gpu"); None for the default platform.

    Returns:
      The description.

    Examples:
      >>> get_attached_topology("cpu").devices[0].platform
      'cpu'
    """
    return TopologyDescription(all_devices(platform))


def get_topology_desc(topology_name: str = "", platform: str | None = None, **kwargs: Any) -> TopologyDescription:
    """Describe a system that is not attached; not supported.

    Args:
      topology_name: the name of the system, such as "v5p:8x16x16".
      platform: its platform; "tpu" by default.
      **kwargs: options of the platform.

    Raises:
      RuleError: always. Programs are lowered for hardware that is not attached over an `AbstractMesh`.

    Examples:
      >>> get_topology_desc("v5e:2x2", "tpu")
      Traceback (most recent call last):
      ...
      phalanx.errors.RuleError: get_topology_desc: expected a system that is attached...
    """
    raise RuleError(
        "get_topology_desc",
        expected="a system that is attached to this process",
        got=f"the topology {topology_name!r} of platform {platform or 'tpu'!r}",
        fix="lower the program for arguments with shardings over an AbstractMesh, which needs no devices",
    )


def make_mesh(
    topo: TopologyDescription,
    mesh_shape: Sequence[int],
    axis_names: tuple[AxisName, ...],
    *,
    contiguous_submeshes: bool = False,
) -> Mesh:
    """Make a mesh of all devices of a topology, with neighbours next to each other.

    Args:
      topo: the topology.
      mesh_shape: size of each axis.
      axis_names: name of each axis.
      contiguous_submeshes: as in `create_device_mesh`.

    Returns:
      The mesh; its axes are Auto.

    Raises:
      ShardingError: the product of the sizes is not the number of devices.

    Examples:
      >>> topo = get_attached_topology("cpu")
      >>> make_mesh(topo, (len(topo.devices),), ("x",)).axis_names
      ('x',)
    """
    box = create_device_mesh(mesh_shape, topo.devices, contiguous_submeshes=contiguous_submeshes)
    return Mesh(box, axis_names)
