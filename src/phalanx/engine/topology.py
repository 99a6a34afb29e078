"""Topology: arranging devices so that neighbours in a mesh are neighbours in the machine.

Reads the coordinates that PJRT gives to devices in a torus; `sharding.device_mesh` makes meshes with it.
"""

from __future__ import annotations

import itertools
import math
import operator
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

    real = [axis for axis, size in enumerate(physical) if size > 1]
    # Sizes match where each logical axis ends at the end of a physical one. A machine has at most four physical axes
    # (three dimensions of a torus, and cores), so that trying all orders takes no time.
    ends = set(itertools.accumulate(logical, operator.mul))
    for order in itertools.permutations(real):
        if ends <= {1, *itertools.accumulate((physical[axis] for axis in order), operator.mul)}:
            return [*order, *(axis for axis in range(len(physical)) if axis not in real)]
    return None
