"""Arrays of devices for meshes under their old module name: of one slice, and of several.

Builds on `sharding.device_mesh`, which lays out the devices of one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from phalanx.core.errors import ShardingError
from phalanx.engine.client import devices as all_devices
from phalanx.engine.frames import guard as _guard
from phalanx.sharding.device_mesh import create_device_mesh as create_device_mesh
from phalanx.sharding.mesh import Device


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray[Any, Any]:
    """Devices of several slices, each slice a box of the result.

    Args:
      mesh_shape: shape of the box of one slice: what its fast links connect.
      dcn_mesh_shape: number of slices along each axis: what the slow network connects.
      devices: the devices, all of the default platform if not given.
      process_is_granule: take each process, not each slice, as a box.
      should_sort_granules_by_key: order the slices by their index; otherwise by first appearance.
      allow_split_physical_axes: as in `create_device_mesh`.

    Returns:
      The array of devices, of the shape that is the product of both shapes, axis by axis.

    Raises:
      ShardingError: the shapes differ in length, or do not fit the number of slices and devices.

    Examples:
      >>> import phalanx
      >>> one = phalanx.devices("cpu")[:1]
      >>> create_hybrid_device_mesh((1, 1), (1, 1), one, process_is_granule=True).shape
      (1, 1)
    """
    inner, outer = tuple(mesh_shape), tuple(dcn_mesh_shape)
    granules: dict[Hashable, list[Device]] = defaultdict(list)
    for device in all_devices() if devices is None else devices:
        granules[device.process_index if process_is_granule else getattr(device, "slice_index", 0)].append(device)
    keys = sorted(granules) if should_sort_granules_by_key else list(granules)  # type: ignore[type-var]
    if len(inner) != len(outer) or math.prod(outer) != len(keys):
        unit = "process" if process_is_granule else "slice"
        raise ShardingError(
            "create_hybrid_device_mesh",
            expected=f"a dcn_mesh_shape of {len(inner)} axes whose product is {len(keys)}, one {unit} each",
            got=outer,
            mend="change the shapes, or pass process_is_granule=True to count processes instead of slices",
        )
    boxes = np.empty(outer, dtype=object)
    for position, key in zip(np.ndindex(outer), keys, strict=True):
        boxes[position] = create_device_mesh(inner, granules[key], _where="create_hybrid_device_mesh")
    return np.block(boxes.tolist())


_guard(globals())
