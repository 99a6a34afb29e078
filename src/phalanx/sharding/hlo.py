"""Between shardings over a mesh and XLA's own form, the tile assignment, both ways.

Builds on `mesh.py` and the engine's HloSharding. `shardings.py` calls it to speak to the engine and to read what a
compiled program chose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.errors import ShardingError
from phalanx.engine.partitioner import HloSharding, OpShardingType
from phalanx.sharding.mesh import AbstractMesh, Mesh
from phalanx.sharding.spec import AxisName, PartitionSpec
from phalanx.sharding.tiling import Tiling, mixed_radix, prime_factors


def hlo_of_axes(mesh: Mesh | AbstractMesh, dims: Sequence[Sequence[AxisName]]) -> HloSharding:
    """XLA's form of an array whose dimensions are each cut by some mesh axes, from major to minor.

    The devices of the mesh in row-major order are the partitions. Axes that cut nothing are replicated, or manual where
    the mesh says so.
    """
    used = [axis for axes in dims for axis in axes]
    manual = [axis for axis in mesh.manual_axes if axis not in used]
    rest = [axis for axis in mesh.axis_names if axis not in used and axis not in manual]
    parts = [mesh.num_parts(axes) for axes in dims]
    if manual and not used and not rest:
        return HloSharding.manual()
    if not manual and math.prod(parts) == 1:
        return HloSharding.replicate()
    groups = [(rest, OpShardingType.REPLICATED), (manual, OpShardingType.MANUAL)]
    groups = [(axes, kind) for axes, kind in groups if axes]
    return HloSharding.iota_tile(
        [*parts, *[mesh.num_parts(axes) for axes, _ in groups]],
        reshape_dims=list(mesh.axis_sizes),
        transpose_perm=[mesh.axis_names.index(axis) for axis in [*used, *rest, *manual]],
        subgroup_types=[kind for _, kind in groups],
    )


def tiling_of_hlo(hlo: HloSharding, num_devices: int, ndim: int) -> Tiling:
    """Which part of an array of `ndim` dimensions each partition holds, by a replicated or tiled sharding of XLA's.

    Args:
      hlo: the sharding.
      num_devices: how many partitions there are.
      ndim: the rank of the array.

    Returns:
      The `Tiling`.

    Raises:
      ShardingError: the sharding has another rank, or places no array (it is manual or unknown).

    Examples:
      >>> tiling_of_hlo(HloSharding.replicate(), num_devices=2, ndim=1).parts
      (1,)
    """
    if hlo.is_replicated() or num_devices == 1:
        return Tiling((1,) * ndim, np.zeros((num_devices, ndim), np.int64))
    tiles = hlo.tile_assignment_dimensions() if hlo.is_tiled() else []
    groups = len(hlo.subgroup_types()) + bool(hlo.replicate_on_last_tile_dim())
    if len(tiles) - groups != ndim:
        raise ShardingError(
            "sharding of a compiled program",
            expected=f"a tile assignment for {ndim} dimensions",
            got=str(hlo),
            mend="use it for arrays of the rank it was made for",
        )
    partitions = np.array(hlo.tile_assignment_devices(), np.int64)
    coordinates = np.empty((num_devices, ndim), np.int64)
    coordinates[partitions] = np.indices(tiles).reshape(len(tiles), -1)[:ndim].T
    return Tiling(tuple(tiles[:ndim]), coordinates)


def manual_place(hlo: HloSharding, num_devices: int) -> np.ndarray | None:
    """Where each partition stands along the axes that the program handles itself; None where there are none."""
    kinds = hlo.subgroup_types() if hlo.is_tiled() else []
    if OpShardingType.MANUAL not in kinds:
        return None
    tiles = hlo.tile_assignment_dimensions()
    place = np.empty(num_devices, np.int64)
    dim = len(tiles) - len(kinds) + list(kinds).index(OpShardingType.MANUAL)
    place[np.array(hlo.tile_assignment_devices(), np.int64)] = np.indices(tiles).reshape(len(tiles), -1)[dim]
    return place


def hlo_of_tiling(tiling: Tiling, manual: np.ndarray | None = None) -> HloSharding:
    """XLA's form of any tiling each part of which is held equally often.

    Args:
      tiling: which part each device holds.
      manual: i64[devices], where each partition stands along axes that the program handles itself, if there are any.

    Returns:
      The sharding.

    Examples:
      >>> hlo_of_tiling(Tiling((1,), np.zeros((2, 1), np.int64))).is_replicated()
      True
    """
    count = len(tiling.coordinates)
    if manual is not None:
        # Partitions sorted by the part they hold, then by their manual place; replicas innermost.
        order = np.lexsort((manual, *tiling.coordinates.T[::-1]))
        groups = order.reshape(*tiling.parts, int(manual.max()) + 1, -1).swapaxes(-1, -2)
        kinds = [OpShardingType.REPLICATED, OpShardingType.MANUAL]
        return HloSharding.subgroup_with_device_ordering(np.ascontiguousarray(groups, np.int64), subgroup_types=kinds)
    if math.prod(tiling.parts) == 1:
        return HloSharding.replicate()
    sizes = prime_factors(count)
    spec = spec_of_tiling(tiling, range(len(sizes)), sizes)
    if spec is not None:  # Transposed counting, which XLA compares and moves between more cleverly than lists.
        axes: Any = [*spec.axes, *(axis for axis in range(len(sizes)) if axis not in spec.axes)]
        tiles = [*tiling.parts, count // math.prod(tiling.parts)]
        return HloSharding.iota_tile(tiles, sizes, axes, [OpShardingType.REPLICATED])
    # Partitions sorted by the part they hold are the tile assignment.
    return HloSharding.subgroup_with_device_ordering(
        tiling.order.reshape(*tiling.parts, -1).astype(np.int64), subgroup_types=[OpShardingType.REPLICATED]
    )


def spec_of_tiling(tiling: Tiling, axis_names: Sequence[AxisName], axis_sizes: Sequence[int]) -> PartitionSpec | None:
    """Recover the shortest spec that cuts an array this way over a mesh; None where no spec over this mesh says it.

    The part a device holds must be a sum over axes of its position times a stride. One step along an axis from the
    first device shows which dimension the axis cuts, and its stride there; axes sorted by falling stride must be the
    digits of one number. So the order in which XLA lists, merges, splits or transposes the axes does not matter.

    Args:
      tiling: which part each device of the mesh holds, devices in row-major order.
      axis_names, axis_sizes: of the mesh.

    Returns:
      The spec, or None.

    Examples:
      >>> spec_of_tiling(Tiling((2,), np.array([[0], [1]])), ("x",), (2,))
      PartitionSpec('x')
    """
    ndim = len(tiling.parts)
    held = tiling.coordinates.reshape(*axis_sizes, ndim)
    origin = held[(0,) * len(axis_sizes)]
    cuts: list[list[tuple[int, int]]] = [[] for _ in range(ndim)]
    for position, size in enumerate(axis_sizes):
        if size == 1:
            continue
        step = held[tuple([int(other == position) for other in range(len(axis_sizes))])] - origin
        for dim in np.nonzero(step)[0].tolist():
            cuts[dim].append((-int(step[dim]), position))
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
