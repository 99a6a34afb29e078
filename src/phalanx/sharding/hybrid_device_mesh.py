"""`create_hybrid_device_mesh`: arrange the devices of several TPU slices, or processes, in one array for a mesh."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ShardingError
from phalanx.engine.client import Device, devices as all_devices
from phalanx.engine.traceback_filtering import guard_namespace as _guard
from phalanx.sharding.device_mesh import create_device_mesh as create_device_mesh


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray[Any, Any]:
    """Arrange the devices of several slices so that each slice is a contiguous sub-array of the result.

    Args:
      mesh_shape: shape of the sub-array of one slice, whose devices are connected by fast links.
      dcn_mesh_shape: number of slices along each axis; slices are connected by the data center network.
      devices: the devices; all devices of the default platform if not given.
      process_is_granule: treat the devices of each process, instead of those of each slice, as one sub-array.
      should_sort_granules_by_key: order the slices by their index instead of by first appearance in `devices`.
      allow_split_physical_axes: see `create_device_mesh`.

    Returns:
      An array of devices, whose shape is the elementwise product of both shapes.

    Raises:
      ShardingError: the shapes have different lengths, or do not match the number of slices or devices.

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
            fix="change dcn_mesh_shape, or pass process_is_granule=True to count processes instead of slices",
        )
    blocks = np.empty(outer, dtype=object)
    for position, key in zip(np.ndindex(outer), keys, strict=True):
        blocks[position] = create_device_mesh(inner, granules[key], _where="create_hybrid_device_mesh")
    # Nested lists of arrays become one array in which each block is contiguous along every axis.
    return np.block(blocks.tolist())


_guard(globals())
