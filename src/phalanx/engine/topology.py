"""Topology: where devices stand in the machine, and boxes of them whose neighbours are near each other.

Reads the coordinates that PJRT gives devices in a torus; `sharding.device_mesh` lays out meshes with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.engine.client import Device


def near_each_other(devices: Sequence[Device], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """As many devices as the shape holds, in an array: each axis made of whole physical ones where the sizes allow it.

    Those without coordinates, or that fill no box, stand in the order given.
    """
    torus = _torus_of(devices)
    if torus is None:
        array = np.empty(len(devices), dtype=object)
        array[:] = devices
        return array.reshape(shape)
    order = _physical_axes(torus.shape, shape)
    return (torus if order is None else torus.transpose(order)).reshape(shape)


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
