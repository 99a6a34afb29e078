"""`make_mesh`, `create_device_mesh`, `create_hybrid_device_mesh`: arrange devices so that neighbours have fast links.

The engine lists the devices and knows the physical topology; this file adds axis names and checks the sizes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ShardingError
from phalanx.engine.client import Device, devices as all_devices
from phalanx.engine.topology import arrange_by_topology
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.sharding.mesh import AxisType, Mesh
from phalanx.sharding.partition_spec import AxisName


def make_mesh(
    axis_sizes: Sequence[int] = (),
    axis_names: AxisName | Sequence[AxisName] = (),
    axis_types: AxisType | Sequence[AxisType] | None = None,
    *,
    devices: Sequence[Device] | None = None,
    axis_shapes: Sequence[int] = (),
) -> Mesh:
    """Create a mesh whose devices are arranged for fast communication between neighbours on each axis.

    Args:
      axis_sizes: size of each axis.
      axis_names: name of each axis; a string alone is the name of one.
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
      Mesh(axis_sizes=(1, 1), axis_names=('data', 'model'), axis_types=(Explicit, Explicit))
    """
    axis_sizes = axis_sizes or axis_shapes
    if devices is None:
        devices = all_devices()
        # Without an explicit list a mesh may use the first devices only; a list must match exactly.
        if (wanted := math.prod(axis_sizes)) < len(devices):
            devices = devices[:wanted]
    box = create_device_mesh(axis_sizes, devices, _where="make_mesh")
    return Mesh(box, axis_names, AxisType.Explicit if axis_types is None else axis_types)


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


@api_boundary
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
      process_is_granule: treat the devices of each process, instead of each slice, as one sub-array.
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
