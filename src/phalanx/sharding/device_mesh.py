"""Laying out devices: `make_mesh`, and arrays of devices that are near each other.

Builds on `mesh.py`, and on the engine, which knows the devices and where they stand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.errors import ShardingError
from phalanx.engine.client import devices as all_devices
from phalanx.engine.topology import near_each_other
from phalanx.sharding.mesh import AxisType, Device, Mesh
from phalanx.sharding.spec import AxisName


def make_mesh(
    axis_sizes: Sequence[int] = (),
    axis_names: Sequence[AxisName] = (),
    axis_types: AxisType | Sequence[AxisType] | None = None,
    *,
    devices: Sequence[Device] | None = None,
    axis_shapes: Sequence[int] = (),
) -> Mesh:
    """A mesh of the shape asked for, devices laid out so that neighbours on an axis are near each other.

    Args:
      axis_sizes: size of each axis.
      axis_names: name of each axis.
      axis_types: type of each axis, all `AxisType.Explicit` if not given: how arrays are split is part of their types.
      devices: the devices to use; if not given, the first ones of the default platform.
      axis_shapes: the older name of `axis_sizes`.

    Returns:
      The mesh.

    Raises:
      ShardingError: there are too few devices, or not as many as were given.

    Examples:
      >>> make_mesh((1, 1), ("data", "model"))
      Mesh('data': 1, 'model': 1, axis_types=(Explicit, Explicit))
    """
    axis_sizes = axis_sizes or axis_shapes
    if devices is None:
        devices = all_devices()
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
    """Devices in an array of that shape, near ones near each other.

    Devices with coordinates in a torus are laid out so that each axis of the result is made of whole physical axes
    where the sizes allow it; others in the order given.

    Args:
      mesh_shape: shape of the result.
      devices: the devices, all of the default platform if not given.
      contiguous_submeshes: accepted for compatibility; boxes of the result are boxes of the torus in any case.
      allow_split_physical_axes: accepted for compatibility; physical axes are split wherever sizes ask for it.

    Returns:
      The array of devices.

    Raises:
      ShardingError: the shape does not hold as many devices as there are.

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
            mend=f"change the shape, or {few if wanted > len(chosen) else many}",
        )
    return near_each_other(chosen, shape)
