"""`ShardingSpec`: shardings over a mesh without axis names, the API of JAX before `NamedSharding`.

A spec converts to and from current shardings by way of their tilings. Older programs import it from
`phalanx.interpreters.pxla`; `Array.sharding_spec` returns the spec of an array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from phalanx.core import ArgumentTypeError, ShardingError
from phalanx.engine import HloSharding, OpSharding, api_boundary_class
from phalanx.sharding.base_sharding import Sharding
from phalanx.sharding.hlo_conversion import hlo_to_tiling, tiling_to_hlo, tiling_to_spec
from phalanx.sharding.mesh import Mesh
from phalanx.sharding.named_sharding import NamedSharding
from phalanx.sharding.partition_spec import PartitionSpec
from phalanx.sharding.tiling import Tiling, mixed_radix, prime_factors, shard_size

Index: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class NoSharding:
    """A dimension that is not split.

    Examples:
      >>> spec_to_indices((4,), ShardingSpec([NoSharding()], [Replicated(2)]))
      ((slice(None, None, None),), (slice(None, None, None),))
    """


@api_boundary_class
@dataclass(frozen=True)
class Chunked:
    """A dimension split into equal slices.

    Args:
      chunks: number of slices; several numbers for a dimension that is split over several mesh axes, from major to
        minor.

    Examples:
      >>> spec_to_indices((4,), ShardingSpec([Chunked([2])], [ShardedAxis(0)]))
      ((slice(0, 2, None),), (slice(2, 4, None),))
    """

    chunks: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "chunks", tuple(self.chunks))


@api_boundary_class
@dataclass(frozen=True)
class Unstacked:
    """A dimension of which each device holds one element, in shards that lack the dimension.

    Args:
      size: size of the dimension.

    Examples:
      >>> spec_to_indices((2,), ShardingSpec([Unstacked(2)], [ShardedAxis(0)]))
      ((0,), (1,))
    """

    size: int


@api_boundary_class
@dataclass(frozen=True)
class ShardedAxis:
    """A mesh axis that splits a dimension.

    Args:
      axis: index of the split; the splits are the numbers in all `Chunked` and `Unstacked` entries, in order.

    Examples:
      >>> spec_to_indices(
      ...     (2, 2), ShardingSpec([Unstacked(2), Unstacked(2)], [ShardedAxis(1), ShardedAxis(0)])
      ... )
      ((0, 0), (1, 0), (0, 1), (1, 1))
    """

    axis: int


@api_boundary_class
@dataclass(frozen=True)
class Replicated:
    """A mesh axis along which the array is replicated.

    Args:
      replicas: size of the axis.

    Examples:
      >>> spec_to_indices((2,), ShardingSpec([Unstacked(2)], [Replicated(2), ShardedAxis(0)]))
      ((0,), (1,), (0,), (1,))
    """

    replicas: int


@api_boundary_class
@dataclass(frozen=True)
class ShardingSpec:
    """The splits of an array's dimensions, and their assignment to the axes of a mesh without names.

    Args:
      sharding: a `NoSharding`, `Chunked` or `Unstacked` for each dimension.
      mesh_mapping: a `ShardedAxis` or `Replicated` for each mesh axis, from major to minor. Every split appears once.
        Defaults to the splits in order.

    Raises:
      ArgumentTypeError: an entry has another type.
      ShardingError: a split is assigned to no mesh axis, or to several.

    Examples:
      >>> spec = ShardingSpec([Chunked([2]), NoSharding()], [ShardedAxis(0), Replicated(2)])
      >>> spec_to_indices((4, 3), spec)[1:3]
      ((slice(0, 2, None), slice(None, None, None)), (slice(2, 4, None), slice(None, None, None)))
    """

    sharding: tuple[NoSharding | Chunked | Unstacked, ...]
    mesh_mapping: tuple[ShardedAxis | Replicated, ...]

    def __init__(
        self,
        sharding: Sequence[NoSharding | Chunked | Unstacked],
        mesh_mapping: Sequence[ShardedAxis | Replicated] | None = None,
    ) -> None:
        object.__setattr__(self, "sharding", tuple(sharding))
        _check_kinds("sharding", self.sharding, (NoSharding, Chunked, Unstacked))
        if mesh_mapping is None:
            mesh_mapping = tuple([ShardedAxis(number) for number in range(len(self._splits))])
        object.__setattr__(self, "mesh_mapping", tuple(mesh_mapping))
        _check_kinds("mesh_mapping", self.mesh_mapping, (ShardedAxis, Replicated))
        assigned = [axis.axis for axis in self.mesh_mapping if isinstance(axis, ShardedAxis)]
        if sorted(assigned) != list(range(len(self._splits))):
            raise ShardingError(
                "ShardingSpec, mesh_mapping",
                expected=f"each of the {len(self._splits)} splits of the dimensions once, as ShardedAxis(0) and so on",
                got=list(self.mesh_mapping),
                fix="list every split once, and add Replicated(n) for mesh axes that split no dimension",
            )

    @property
    def _splits(self) -> list[int]:
        """Number of shards of each split, in the order of the indices of `ShardedAxis`."""
        return [size for entry in self.sharding for size in _splits_of(entry)]

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """Sizes of the mesh axes."""
        splits = self._splits
        return tuple([splits[a.axis] if isinstance(a, ShardedAxis) else a.replicas for a in self.mesh_mapping])

    @property
    def num_devices(self) -> int:
        """Number of devices of the mesh."""
        return math.prod(self.mesh_shape)

    @property
    def tiling(self) -> Tiling:
        """The shard of each device, devices in row-major order; an unstacked dimension counts as split."""
        shape, count, positions = self.mesh_shape, self.num_devices, {}
        for axis, position in zip(self.mesh_mapping, np.indices(shape).reshape(len(shape), count), strict=True):
            if isinstance(axis, ShardedAxis):
                positions[axis.axis] = position
        numbers = itertools.count()
        columns, parts = [], []
        for entry in self.sharding:
            splits = _splits_of(entry)
            parts.append(math.prod(splits))
            columns.append(mixed_radix([positions[next(numbers)] for _ in splits], splits) + np.zeros(count, int))
        coordinates = np.stack(columns, 1) if columns else np.zeros((count, 0))
        return Tiling(tuple(parts), coordinates.astype(np.int64))

    def indices(self, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """The index of the shard of each device.

        Args:
          shape: shape of the unsharded array, unstacked dimensions included.

        Returns:
          An array of shape `mesh_shape`. Each element is a tuple with a slice for each dimension, or an int for an
          unstacked dimension.

        Raises:
          ShardingError: the array has another rank, or a dimension cannot be split evenly.
        """
        result = np.empty(self.num_devices, dtype=object)
        sizes = self._shard_sizes(tuple(shape))
        for device, coordinates in enumerate(self.tiling.coordinates.tolist()):
            result[device] = tuple(itertools.starmap(_index, zip(self.sharding, coordinates, sizes, strict=True)))
        return result.reshape(self.mesh_shape)

    def _shard_sizes(self, shape: tuple[int, ...]) -> list[int]:
        if len(shape) != len(self.sharding):
            raise ShardingError(
                "ShardingSpec",
                expected=f"an array of {len(self.sharding)} dimensions, one for each entry of {list(self.sharding)}",
                got=f"shape {shape}",
                fix="add NoSharding() for each dimension that is not split",
            )
        sizes = []
        for dim, (size, entry) in enumerate(zip(shape, self.sharding, strict=True)):
            parts = math.prod(_splits_of(entry))
            if isinstance(entry, Unstacked) and size != entry.size:
                raise ShardingError(
                    "ShardingSpec",
                    expected=f"dimension {dim} of size {entry.size}, since {entry} holds one element on each device",
                    got=f"size {size}",
                    fix="use Chunked for a dimension of which a device holds more than one element",
                )
            sizes.append(shard_size(size, parts, dim, by=f"{entry} splits it", where="ShardingSpec"))
        return sizes

    def hlo_sharding(self) -> HloSharding:
        """XLA's form: a tile dimension for each dimension, followed by one for the replicas."""
        return tiling_to_hlo(self.tiling)

    def sharding_proto(self) -> OpSharding:
        """XLA's form as a protocol buffer message."""
        return self.hlo_sharding().to_proto()

    def named(self, mesh: Mesh | Sequence[Any]) -> NamedSharding:
        """Convert to a `NamedSharding`.

        Args:
          mesh: a mesh that lists the devices in row-major order; or these devices, which are then arranged in a mesh
            of shape `mesh_shape`.

        Returns:
          A sharding that splits an unstacked dimension into shards of size 1.

        Raises:
          ShardingError: the number of devices differs, or no spec over the mesh is equivalent.
        """
        if not isinstance(mesh, Mesh):
            devices = np.array(mesh, dtype=object)
            self._check_devices(devices.size, mesh)
            names = tuple([f"axis{number}" for number in range(len(self.mesh_shape))]) or ("axis0",)
            mesh = Mesh(devices.reshape(self.mesh_shape or (1,)), names)
        self._check_devices(mesh.size, mesh)
        spec = tiling_to_spec(self.tiling, mesh.axis_names, mesh.axis_sizes)
        if spec is None:
            raise ShardingError(
                "ShardingSpec.named",
                expected=f"a mesh over which some PartitionSpec is equivalent to {self}",
                got=str(mesh),
                fix=f"use a mesh of shape {self.mesh_shape}, or pass a list of the devices",
            )
        return NamedSharding(mesh, spec)

    def _check_devices(self, count: int, given: object) -> None:
        if count != self.num_devices:
            raise ShardingError(
                "ShardingSpec.named",
                expected=f"{self.num_devices} devices, for a mesh of shape {self.mesh_shape}",
                got=f"{count} devices" if not isinstance(given, Mesh) else given,
                fix=f"pass {self.num_devices} devices, or a mesh of that size",
            )

    @classmethod
    def of(cls, sharding: Sharding | HloSharding, ndim: int, num_devices: int | None = None) -> ShardingSpec:
        """Convert a sharding to a spec.

        Args:
          sharding: a sharding, or XLA's form of one.
          ndim: number of dimensions of the array.
          num_devices: number of devices; needed with XLA's form.

        Returns:
          The spec. It keeps the mesh axes of a `NamedSharding`, and has the fewest possible axes otherwise.

        Raises:
          ShardingError: the order of the shards does not follow from any mesh.
        """
        if isinstance(sharding, NamedSharding):
            return _spec_over_axes(list(sharding.mesh.shape.items()), sharding.axes(ndim))
        if isinstance(sharding, Sharding):
            tiling = sharding.tiling(ndim)
        else:
            tiling = hlo_to_tiling(sharding, num_devices or max(sharding.num_devices(), 1), ndim)
        # Any mesh is a merge of neighbouring axes of prime size, in some order. Device counts have few prime factors,
        # so there are few orders.
        for factors in sorted(set(itertools.permutations(prime_factors(len(tiling.coordinates))))):
            spec = tiling_to_spec(tiling, range(len(factors)), factors)
            if spec is not None:
                return _spec_over_axes(*_merge_axes(factors, spec, ndim))
        raise ShardingError(
            "ShardingSpec.of",
            expected="shards in the row-major order of some mesh",
            got=sharding,
            fix="use the sharding itself, or reshard the array to a NamedSharding first",
        )

    def __repr__(self) -> str:
        return f"ShardingSpec({list(self.sharding)}, {list(self.mesh_mapping)})"


def spec_to_indices(shape: Sequence[int], spec: ShardingSpec) -> tuple[Index, ...]:
    """The index of the shard of each device, devices in row-major order of the mesh.

    Args:
      shape: shape of the unsharded array, unstacked dimensions included.
      spec: the sharding.

    Returns:
      A tuple for each device, with a slice for each dimension, or an int for an unstacked dimension. Replicas have the
      same index; they are adjacent if the last mesh axis is `Replicated`.

    Raises:
      ShardingError: the array has another rank, or a dimension cannot be split evenly.

    Examples:
      >>> spec_to_indices((4,), ShardingSpec([Chunked([2])], [ShardedAxis(0)]))
      ((slice(0, 2, None),), (slice(2, 4, None),))
    """
    return tuple(spec.indices(shape).flat)


def _splits_of(entry: NoSharding | Chunked | Unstacked) -> tuple[int, ...]:
    if isinstance(entry, Chunked):
        return tuple(entry.chunks)
    return (entry.size,) if isinstance(entry, Unstacked) else ()


def _index(entry: NoSharding | Chunked | Unstacked, at: int, size: int) -> slice | int:
    if isinstance(entry, Unstacked):
        return at
    return slice(None) if math.prod(_splits_of(entry)) == 1 else slice(at * size, (at + 1) * size)


def _check_kinds(name: str, entries: tuple[Any, ...], kinds: tuple[type, ...]) -> None:
    for entry in entries:
        if not isinstance(entry, kinds):
            raise ArgumentTypeError(
                f"ShardingSpec, {name}",
                expected=f"entries of type {' or '.join(kind.__name__ for kind in kinds)}",
                got=repr(entry),
                fix="write NoSharding() for a dimension that is not split, Replicated(n) for a replicated mesh axis",
            )


def _spec_over_axes(axes: Sequence[tuple[Hashable, int]], dims: Sequence[Sequence[Hashable]]) -> ShardingSpec:
    """Build a spec from pairs of axis name and size, and the names of the axes that split each dimension."""
    sizes = dict(axes)
    order = {axis: number for number, axis in enumerate(axis for names in dims for axis in names)}
    return ShardingSpec(
        [Chunked([sizes[axis] for axis in names]) if names else NoSharding() for names in dims],
        [ShardedAxis(order[axis]) if axis in order else Replicated(size) for axis, size in axes],
    )


def _merge_axes(
    factors: Sequence[int], spec: PartitionSpec, ndim: int
) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Merge neighbouring axes that split the same dimension consecutively, or that split no dimension.

    Args:
      factors: sizes of the axes, whose names are 0, 1 and so on.
      spec: the dimensions that they split.
      ndim: number of dimensions of the array.

    Returns:
      Pairs of axis name and size after merging, and the names of the axes that split each dimension.
    """
    dims = spec.axes_per_dim(ndim)
    # Consecutive axes of one dimension, from major to minor, act as one axis if they are neighbours on the mesh, too.
    follows = {minor: major for names in dims for major, minor in itertools.pairwise(names)}
    used = set(spec.axes)
    axes: list[tuple[int, int]] = []
    for position, size in enumerate(factors):
        is_unused = position not in used and position - 1 not in used
        if axes and (follows.get(position) == position - 1 or is_unused):
            axes[-1] = (axes[-1][0], axes[-1][1] * size)
        else:
            axes.append((position, size))
    kept = {position for position, _ in axes}
    return axes, [[axis for axis in names if axis in kept] for names in dims]
