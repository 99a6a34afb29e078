"""Topology: arranging devices so that neighbours in a mesh are neighbours in the machine.

Reads the coordinates that PJRT gives to devices in a torus; `sharding.device_mesh` makes meshes with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.engine.client import Device


def arrange_by_topology(devices: Sequence[Device], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Arrange devices in an array of a shape whose axes consist of whole physical axes, if the sizes allow it.

    Devices without coordinates, or that do not fill a box, are arranged in the given order.
    """
    torus = _torus_of(devices)
    if torus is None:
        array = np.empty(len(devices), dtype=object)
        array[:] = devices
        return array.reshape(shape)
    order = _physical_axes(torus.shape, shape)
    return (torus if order is None else torus.transpose(order)).reshape(shape)


def _torus_of(devices: Sequence[Device]) -> np.ndarray[Any, Any] | None:
    """The devices at their physical coordinates, with cores as the last axis; None if they do not fill a box."""
    if any(getattr(device, "coords", None) is None for device in devices):
        return None
    places = [(*device.coords, getattr(device, "core_on_chip", 0)) for device in devices]
    low = np.min(places, axis=0)
    shape = tuple((np.max(places, axis=0) - low + 1).tolist())
    if math.prod(shape) != len(devices) or len(set(places)) != len(places):
        return None
    torus = np.empty(shape, dtype=object)
    for device, place in zip(devices, places, strict=True):
        torus[tuple(place - low)] = device
    return torus


def _physical_axes(physical: tuple[int, ...], logical: tuple[int, ...]) -> list[int] | None:
    """An order of the physical axes in which consecutive axes multiply to the logical sizes; None if there is none."""

    def extend(free: tuple[int, ...], want: tuple[int, ...]) -> list[int] | None:
        if not want:
            return [] if not free else None
        # A logical axis of size 1 may take no physical axis at all; this is tried first, since it leaves all axes to
        # the others.
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
