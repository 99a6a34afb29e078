"""Conversions between specs over a mesh, tilings and XLA's `HloSharding`.

An `HloSharding` is a tile assignment: an array of partition numbers with one dimension per array dimension, followed by
dimensions for subgroups of partitions that hold the same tile (replicated) or that the program addresses itself
(manual). The subclasses of `Sharding` use these conversions to pass shardings to XLA and to read the shardings of
compiled programs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from phalanx.core import ShardingError
from phalanx.engine.custom_call_partitioner import HloSharding, OpShardingType
from phalanx.sharding.mesh import AbstractMesh, Mesh
from phalanx.sharding.partition_spec import AxisName, PartitionSpec
from phalanx.sharding.tiling import Tiling, mixed_radix, prime_factors


def axes_to_hlo(
    mesh: Mesh | AbstractMesh, dims: Sequence[Sequence[AxisName]], unreduced: Collection[AxisName] = ()
) -> HloSharding:
    """Convert the mesh axes that split each dimension of an array to XLA's form.

    The devices of the mesh in row-major order are the partitions. Axes that split no dimension become an unreduced
    subgroup if they are among `unreduced`, a manual one if their type is Manual, and a replicated one otherwise.

    Args:
      mesh: the mesh.
      dims: for each dimension the names of the axes that split it, from major to minor.
      unreduced: the axes along which the devices hold terms of the array.

    Returns:
      The sharding.
    """
    # Tile assignment = iota(mesh shape), transposed so that the axes that split dimensions come first, in the order of
    # the dimensions, and reshaped to (shards per dimension..., replicas, manual positions).
    used = [axis for axes in dims for axis in axes]
    terms = [axis for axis in mesh.axis_names if axis in unreduced]
    manual = [axis for axis in mesh.manual_axes if axis not in used and axis not in terms]
    rest = [axis for axis in mesh.axis_names if axis not in used and axis not in manual and axis not in terms]
    parts = [mesh.num_parts(axes) for axes in dims]
    # XLA has separate forms for arrays that are fully manual or fully replicated.
    if manual and not used and not rest and not terms:
        return HloSharding.manual()
    if not manual and math.prod(parts) * mesh.num_parts(terms) == 1:
        return HloSharding.replicate()
    groups = [(rest, OpShardingType.REPLICATED), (terms, OpShardingType.UNREDUCED), (manual, OpShardingType.MANUAL)]
    groups = [(axes, kind) for axes, kind in groups if axes]
    return HloSharding.iota_tile(
        [*parts, *[mesh.num_parts(axes) for axes, _ in groups]],
        reshape_dims=list(mesh.axis_sizes),
        transpose_perm=[mesh.axis_names.index(axis) for axis in [*used, *rest, *terms, *manual]],
        subgroup_types=[kind for _, kind in groups],
    )


def hlo_to_tiling(hlo: HloSharding, num_devices: int, ndim: int) -> Tiling:
    """Convert a replicated or tiled sharding of XLA to a tiling.

    Args:
      hlo: the sharding.
      num_devices: number of partitions.
      ndim: number of dimensions of the array.

    Returns:
      The `Tiling`.

    Raises:
      ShardingError: the sharding has another rank, or does not place an array (it is manual or unknown).

    Examples:
      >>> hlo_to_tiling(HloSharding.replicate(), num_devices=2, ndim=1).parts
      (1,)
    """
    # On one device every form of sharding denotes the full array.
    if hlo.is_replicated() or num_devices == 1:
        return Tiling((1,) * ndim, np.zeros((num_devices, ndim), np.int64))
    tiles = hlo.tile_assignment_dimensions() if hlo.is_tiled() else []
    groups = len(hlo.subgroup_types()) + bool(hlo.replicate_on_last_tile_dim())
    if len(tiles) - groups != ndim:
        raise ShardingError(
            "sharding of a compiled program",
            expected=f"a tile assignment for {ndim} dimensions",
            got=str(hlo),
            fix=f"apply the sharding to arrays of rank {max(len(tiles) - groups, 0)}",
        )
    # The tile assignment maps a tile to a partition; invert it.
    partitions = np.array(hlo.tile_assignment_devices(), np.int64)
    coordinates = np.empty((num_devices, ndim), np.int64)
    coordinates[partitions] = np.indices(tiles).reshape(len(tiles), -1)[:ndim].T
    return Tiling(tuple(tiles[:ndim]), coordinates)


def manual_coordinates(hlo: HloSharding, num_devices: int) -> np.ndarray | None:
    """The position of each partition in its manual subgroup (i64[num_devices]); None if there is no such subgroup."""
    kinds = hlo.subgroup_types() if hlo.is_tiled() else []
    if OpShardingType.MANUAL not in kinds:
        return None
    tiles = hlo.tile_assignment_dimensions()
    place = np.empty(num_devices, np.int64)
    dim = len(tiles) - len(kinds) + list(kinds).index(OpShardingType.MANUAL)
    place[np.array(hlo.tile_assignment_devices(), np.int64)] = np.indices(tiles).reshape(len(tiles), -1)[dim]
    return place


def tiling_to_hlo(tiling: Tiling, manual: np.ndarray | None = None) -> HloSharding:
    """Convert a tiling to XLA's form. All shards must have the same number of replicas.

    Args:
      tiling: the shard of each device.
      manual: i64[devices], position of each partition in its manual subgroup, if there is one.

    Returns:
      The sharding.

    Examples:
      >>> tiling_to_hlo(Tiling((1,), np.zeros((2, 1), np.int64))).is_replicated()
      True
    """
    count = len(tiling.coordinates)
    if manual is not None:
        # Sorted by shard, then by manual position, replicas next to each other; XLA wants the manual subgroup last.
        order = np.lexsort((manual, *tiling.coordinates.T[::-1]))
        groups = order.reshape(*tiling.parts, int(manual.max()) + 1, -1).swapaxes(-1, -2)
        kinds = [OpShardingType.REPLICATED, OpShardingType.MANUAL]
        return HloSharding.subgroup_with_device_ordering(np.ascontiguousarray(groups, np.int64), subgroup_types=kinds)
    if math.prod(tiling.parts) == 1:
        return HloSharding.replicate()
    sizes = prime_factors(count)
    spec = tiling_to_spec(tiling, range(len(sizes)), sizes)
    if spec is not None:  # XLA compares iota tile assignments, and reshards between them, better than explicit lists.
        axes: Any = [*spec.axes, *(axis for axis in range(len(sizes)) if axis not in spec.axes)]
        tiles = [*tiling.parts, count // math.prod(tiling.parts)]
        return HloSharding.iota_tile(tiles, sizes, axes, [OpShardingType.REPLICATED])
    # In general: the tile assignment lists the partitions sorted by the shard they hold.
    return HloSharding.subgroup_with_device_ordering(
        tiling.order.reshape(*tiling.parts, -1).astype(np.int64), subgroup_types=[OpShardingType.REPLICATED]
    )


def tiling_to_spec(tiling: Tiling, axis_names: Sequence[AxisName], axis_sizes: Sequence[int]) -> PartitionSpec | None:
    """Find the shortest spec over a mesh that is equivalent to a tiling.

    If there is such a spec, the shard index of a device along a dimension is a sum over mesh axes of (position along
    the axis) x (stride). Comparing the first device with its neighbour along each axis gives the dimension that the
    axis splits, and the stride. The axes of a dimension in order of descending stride must then be the digits of a
    mixed-radix number that equals the shard index of every device. The result does not depend on how XLA orders,
    merges, splits or transposes the axes of its tile assignment.

    Args:
      tiling: the shard of each device, devices in row-major order of the mesh.
      axis_names, axis_sizes: names and sizes of the mesh axes.

    Returns:
      The spec, or None if no spec over this mesh is equivalent to the tiling.

    Examples:
      >>> tiling_to_spec(Tiling((2,), np.array([[0], [1]])), ("x",), (2,))
      P('x',)
    """
    ndim = len(tiling.parts)
    held = tiling.coordinates.reshape(*axis_sizes, ndim)  # shard coordinates, by position on the mesh
    origin = held[(0,) * len(axis_sizes)]
    cuts: list[list[tuple[int, int]]] = [[] for _ in range(ndim)]
    for position, size in enumerate(axis_sizes):
        if size == 1:
            continue
        step = held[tuple([int(other == position) for other in range(len(axis_sizes))])] - origin
        # Negated, so that sorting in ascending order puts the major axes, with the largest strides, first.
        for dim in np.nonzero(step)[0].tolist():
            cuts[dim].append((-int(step[dim]), position))
    # Steps along single axes do not prove that the tiling is linear in all axes: verify every device.
    where = np.indices(axis_sizes)
    entries: list[Any] = []
    for dim, cut in enumerate(cuts):
        order = [position for _, position in sorted(cut)]
        sizes = [axis_sizes[position] for position in order]
        number = mixed_radix([where[position] for position in order], sizes)
        if math.prod(sizes) != tiling.parts[dim] or not np.array_equal(held[..., dim], number + np.zeros(axis_sizes)):
            return None
        entries.append(tuple([axis_names[position] for position in order]))
    return PartitionSpec(*entries).canonical
