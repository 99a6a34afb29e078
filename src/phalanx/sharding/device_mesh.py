"""`make_mesh` and `create_device_mesh`: arrange devices in an array so that neighbours have fast links.

The engine lists the devices and knows the physical topology; this file adds axis names and checks the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ShardingError
from phalanx.engine.client import Device, devices as all_devices
from phalanx.engine.topology import arrange_by_topology
from phalanx.sharding.mesh import AxisType, Mesh
from phalanx.sharding.spec import AxisName


def make_mesh(
    axis_sizes: Sequence[int] = (),
    axis_names: Sequence[AxisName] = (),
    axis_types: AxisType | Sequence[AxisType] | None = None,
    *,
    devices: Sequence[Device] | None = None,
    axis_shapes: Sequence[int] = (),
) -> Mesh:
    """Create a mesh whose devices are arranged for fast communication between neighbours on each axis.

    Args:
      axis_sizes: size of each axis.
      axis_names: name of each axis.
      axis_types: type of each axis; `AxisType.Explicit` for all of them by default, which makes shardings part of the
        types of arrays.
      devices: the devices to use; the first ones of the default platform if not given.
      axis_shapes: former name of `axis_sizes`.

    Returns:
      The mesh.

    Raises:
      ShardingError: the product of the sizes is larger than the number of devices, or differs from `len(devices)`.

    Examples:
      >>> make_mesh((1, 1), ("data", "model"))
      Mesh('data': 1, 'model': 1, axis_types=(Explicit, Explicit))
    """
    axis_sizes = axis_sizes or axis_shapes
    if devices is None:
        devices = all_devices()
        # Without an explicit list a mesh may use the first devices only; a list must match exactly.
        if (wanted := math.prod(axis_sizes)) < len(devices):
            devices = devices[:wanted]
    box = create_device_mesh(axis_sizes, devices, _where="make_mesh")
    return Mesh(box, tuple(axis_names), AxisType.Explicit if axis_types is None else axis_types)


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
    _where: str = "create_device_mesh",
) -> np.ndarray[Any, Any]:
    """Arrange devices in an array so that neighbours have fast links.

    Devices with coordinates in a torus are arranged so that each axis of the result consists of complete physical axes
    where the sizes allow it. Other devices keep their order.

    Args:
      mesh_shape: shape of the result.
      devices: the devices; all devices of the default platform if not given.
      contiguous_submeshes: accepted for compatibility; sub-arrays of the result are contiguous in the torus anyway.
      allow_split_physical_axes: accepted for compatibility; physical axes are always split if the sizes require it.

    Returns:
      An array of devices of shape `mesh_shape`.

    Raises:
      ShardingError: the number of devices is not the product of `mesh_shape`.

    Examples:
      >>> import phalanx
      >>> create_device_mesh((1, 1), phalanx.devices()[:1]).shape
      (1, 1)
    """
    shape = tuple(mesh_shape)
    chosen = list(all_devices() if devices is None else devices)
    if (wanted := math.prod(shape)) != len(chosen):
        few = f"start with more devices (on CPU: PHALANX_NUM_CPU_DEVICES={wanted})"
        many = f"pass as many of them, devices=phalanx.devices()[:{wanted}]"
        raise ShardingError(
            _where,
            expected=f"{wanted} devices for a mesh of shape {shape}",
            got=f"{len(chosen)} device{'s' if len(chosen) != 1 else ''}",
            fix=f"change the shape, or {few if wanted > len(chosen) else many}",
        )
    return arrange_by_topology(chosen, shape)
