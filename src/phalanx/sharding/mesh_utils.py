"""Laying out devices: `make_mesh`, and arrays of devices that are near each other.

Builds on `mesh.py` and the engine's list of devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.errors import ShardingError
from phalanx.engine.client import devices as all_devices
from phalanx.sharding.mesh import AxisType, Device, Mesh
from phalanx.sharding.spec import AxisName


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[AxisName],
    axis_types: AxisType | Sequence[AxisType] | None = None,
    *,
    devices: Sequence[Device] | None = None,
) -> Mesh:
    """A mesh of the shape asked for, devices laid out so that neighbours on an axis are near each other.

    Args:
      axis_shapes: size of each axis.
      axis_names: name of each axis.
      axis_types: type of each axis, all `AxisType.Explicit` if not given: how arrays are split is part of their types.
      devices: the devices to use; if not given, the first ones of the default platform.

    Returns:
      The mesh.

    Raises:
      ShardingError: there are too few devices, or not as many as were given.

    Examples:
      >>> make_mesh((1, 1), ("data", "model"))
      Mesh('data': 1, 'model': 1, axis_types=(Explicit, Explicit))
    """
    if devices is None:
        devices = all_devices()
        if (wanted := math.prod(axis_shapes)) < len(devices):
            devices = devices[:wanted]
    box = create_device_mesh(axis_shapes, devices, _where="make_mesh")
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
    torus = _torus_of(chosen)
    if torus is None:
        return _object_array(chosen).reshape(shape)
    order = _physical_axes(torus.shape, shape)
    return (torus if order is None else torus.transpose(order)).reshape(shape)


def _object_array(items: Sequence[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def _torus_of(devices: Sequence[Device]) -> np.ndarray[Any, Any] | None:
    """The devices at their physical coordinates (cores as the last axis), if they fill a box."""
    places = []
    for device in devices:
        coords = getattr(device, "coords", None)
        if coords is None:
            return None
        places.append((*coords, getattr(device, "core_on_chip", 0)))
    low = np.min(places, axis=0)
    shape = tuple((np.max(places, axis=0) - low + 1).tolist())
    if math.prod(shape) != len(devices) or len(set(places)) != len(places):
        return None
    torus = np.empty(shape, dtype=object)
    for device, place in zip(devices, places, strict=True):
        torus[tuple(place - low)] = device
    return torus


def _physical_axes(physical: tuple[int, ...], logical: tuple[int, ...]) -> list[int] | None:
    """An order of the physical axes in which consecutive ones multiply to the logical sizes, if there is one."""

    def extend(free: tuple[int, ...], want: tuple[int, ...]) -> list[int] | None:
        if not want:
            return [] if not free else None
        if want[0] == 1 and (rest := extend(free, want[1:])) is not None:
            return rest
        for axis in free:
            if want[0] % physical[axis] == 0 and physical[axis] > 1:
                left = tuple([other for other in free if other != axis])
                if (rest := extend(left, (want[0] // physical[axis], *want[1:]))) is not None:
                    return [axis, *rest]
        return None

    real = tuple([axis for axis, size in enumerate(physical) if size > 1])
    found = extend(real, logical)
    return None if found is None else [*found, *[axis for axis in range(len(physical)) if axis not in real]]
