"""ShardingSpec: how the parts of an array lie on a box of devices that has no names, as programs of 2021 said it.

Builds on tilings and on the shardings of today, into and from which a spec converts. `pxla` is where old programs
import it from, and `Array.sharding_spec` gives the one of an array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from phalanx.core.errors import ArgumentTypeError, ShardingError
from phalanx.engine.frames import boundaries
from phalanx.engine.partitioner import HloSharding, OpSharding
from phalanx.sharding.hlo import hlo_of_tiling, spec_of_tiling, tiling_of_hlo
from phalanx.sharding.mesh import Mesh
from phalanx.sharding.shardings import NamedSharding, Sharding
from phalanx.sharding.spec import PartitionSpec
from phalanx.sharding.tiling import Tiling, mixed_radix, part_size, prime_factors

Index: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class NoSharding:
    """A dimension that is whole on every device.

    Examples:
      >>> spec_to_indices((4,), ShardingSpec([NoSharding()], [Replicated(2)]))
      ((slice(None, None, None),), (slice(None, None, None),))
    """


@boundaries
@dataclass(frozen=True)
class Chunked:
    """A dimension in equal slices.

    Args:
      chunks: number of slices; several numbers cut it by several axes of the box, from major to minor.

    Examples:
      >>> spec_to_indices((4,), ShardingSpec([Chunked([2])], [ShardedAxis(0)]))
      ((slice(0, 2, None),), (slice(2, 4, None),))
    """

    chunks: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "chunks", tuple(self.chunks))


@boundaries
@dataclass(frozen=True)
class Unstacked:
    """A dimension of which each device holds one element, without that dimension.

    Args:
      size: size of the dimension.

    Examples:
      >>> spec_to_indices((2,), ShardingSpec([Unstacked(2)], [ShardedAxis(0)]))
      ((0,), (1,))
    """

    size: int


@boundaries
@dataclass(frozen=True)
class ShardedAxis:
    """An axis of the box of devices that cuts the array.

    Args:
      axis: which cut it is, counted from 0 over all numbers in `Chunked` and `Unstacked` entries in order.

    Examples:
      >>> spec_to_indices(
      ...     (2, 2), ShardingSpec([Unstacked(2), Unstacked(2)], [ShardedAxis(1), ShardedAxis(0)])
      ... )
      ((0, 0), (1, 0), (0, 1), (1, 1))
    """

    axis: int


@boundaries
@dataclass(frozen=True)
class Replicated:
    """An axis of the box of devices along which all hold the same.

    Args:
      replicas: length of the axis.

    Examples:
      >>> spec_to_indices((2,), ShardingSpec([Unstacked(2)], [Replicated(2), ShardedAxis(0)]))
      ((0,), (1,), (0,), (1,))
    """

    replicas: int


@boundaries
@dataclass(frozen=True)
class ShardingSpec:
    """How an array is cut, and how the parts lie on a box of devices.

    Args:
      sharding: for each dimension a `NoSharding`, `Chunked` or `Unstacked`.
      mesh_mapping: for each axis of the box, from major to minor, a `ShardedAxis` or `Replicated`; each cut once. Left
        out, the cuts in order.

    Raises:
      ArgumentTypeError: an entry is something else.
      ShardingError: a cut is not mapped to an axis of the box, or to two.

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
            mesh_mapping = tuple([ShardedAxis(number) for number in range(len(self._cuts))])
        object.__setattr__(self, "mesh_mapping", tuple(mesh_mapping))
        _check_kinds("mesh_mapping", self.mesh_mapping, (ShardedAxis, Replicated))
        named = [axis.axis for axis in self.mesh_mapping if isinstance(axis, ShardedAxis)]
        if sorted(named) != list(range(len(self._cuts))):
            raise ShardingError(
                "ShardingSpec, mesh_mapping",
                expected=f"each of the {len(self._cuts)} cuts of the dimensions once, as ShardedAxis(0) and so on",
                got=list(self.mesh_mapping),
                mend="name every cut once, and add Replicated(n) for axes that cut nothing",
            )

    @property
    def _cuts(self) -> list[int]:
        """Number of parts of each cut, in the order in which `ShardedAxis` counts them."""
        return [size for entry in self.sharding for size in _cuts_of(entry)]

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """Lengths of the axes of the box of devices."""
        cuts = self._cuts
        return tuple([cuts[a.axis] if isinstance(a, ShardedAxis) else a.replicas for a in self.mesh_mapping])

    @property
    def num_devices(self) -> int:
        """Number of devices of the box."""
        return math.prod(self.mesh_shape)

    @property
    def tiling(self) -> Tiling:
        """Which part each device holds, devices in row-major order; an unstacked dimension counts as cut."""
        shape, count, where = self.mesh_shape, self.num_devices, {}
        for axis, at in zip(self.mesh_mapping, np.indices(shape).reshape(len(shape), count), strict=True):
            if isinstance(axis, ShardedAxis):
                where[axis.axis] = at
        numbers = itertools.count()
        columns, parts = [], []
        for entry in self.sharding:
            cuts = _cuts_of(entry)
            parts.append(math.prod(cuts))
            columns.append(mixed_radix([where[next(numbers)] for _ in cuts], cuts) + np.zeros(count, int))
        coordinates = np.stack(columns, 1) if columns else np.zeros((count, 0))
        return Tiling(tuple(parts), coordinates.astype(np.int64))

    def indices(self, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """What each device holds.

        Args:
          shape: shape of the whole array, unstacked dimensions included.

        Returns:
          An array of shape `mesh_shape`, each element a tuple with a slice for a dimension, or a number for an
          unstacked one.

        Raises:
          ShardingError: the array has another rank, or a dimension cannot be cut evenly.
        """
        found = np.empty(self.num_devices, dtype=object)
        sizes = self._part_sizes(tuple(shape))
        for device, at in enumerate(self.tiling.coordinates.tolist()):
            found[device] = tuple(itertools.starmap(_index, zip(self.sharding, at, sizes, strict=True)))
        return found.reshape(self.mesh_shape)

    def _part_sizes(self, shape: tuple[int, ...]) -> list[int]:
        if len(shape) != len(self.sharding):
            raise ShardingError(
                "ShardingSpec",
                expected=f"an array of {len(self.sharding)} dimensions, one for each entry of {list(self.sharding)}",
                got=f"shape {shape}",
                mend="add NoSharding() for each dimension that is whole",
            )
        sizes = []
        for dim, (size, entry) in enumerate(zip(shape, self.sharding, strict=True)):
            parts = math.prod(_cuts_of(entry))
            if isinstance(entry, Unstacked) and size != entry.size:
                raise ShardingError(
                    "ShardingSpec",
                    expected=f"dimension {dim} of size {entry.size}, since {entry} holds one element on each device",
                    got=f"size {size}",
                    mend="use Chunked for a dimension of which a device holds more than one element",
                )
            sizes.append(part_size(size, parts, dim, by=f"{entry} cuts it", where="ShardingSpec"))
        return sizes

    def hlo_sharding(self) -> HloSharding:
        """XLA's form: one tile dimension for each dimension, replicas in an extra innermost one."""
        return hlo_of_tiling(self.tiling)

    def sharding_proto(self) -> OpSharding:
        """XLA's form as the message that programs carry."""
        return self.hlo_sharding().to_proto()

    def named(self, mesh: Mesh | Sequence[Any]) -> NamedSharding:
        """The same placement over a mesh.

        Args:
          mesh: a mesh with the devices of the box in row-major order; or these devices, of which a mesh is made with
            the axes of the box.

        Returns:
          A sharding; an unstacked dimension is one that is cut into single elements.

        Raises:
          ShardingError: the number of devices differs, or no spec over this mesh says it.
        """
        if not isinstance(mesh, Mesh):
            devices = np.array(mesh, dtype=object)
            self._check_devices(devices.size, mesh)
            names = tuple([f"axis{number}" for number in range(len(self.mesh_shape))]) or ("axis0",)
            mesh = Mesh(devices.reshape(self.mesh_shape or (1,)), names)
        self._check_devices(mesh.size, mesh)
        spec = spec_of_tiling(self.tiling, mesh.axis_names, mesh.axis_sizes)
        if spec is None:
            raise ShardingError(
                "ShardingSpec.named",
                expected=f"a mesh over whose axes {self} can be written",
                got=mesh,
                mend=f"use a mesh of shape {self.mesh_shape}, or pass the devices",
            )
        return NamedSharding(mesh, spec)

    def _check_devices(self, count: int, given: Any) -> None:
        if count != self.num_devices:
            raise ShardingError(
                "ShardingSpec.named",
                expected=f"{self.num_devices} devices, a box of {self.mesh_shape}",
                got=f"{count} devices" if not isinstance(given, Mesh) else given,
                mend="pass as many devices as the spec has",
            )

    @classmethod
    def of(cls, sharding: Sharding | HloSharding, ndim: int, num_devices: int | None = None) -> ShardingSpec:
        """Say a sharding as such a spec.

        Args:
          sharding: a sharding, or XLA's form of one.
          ndim: number of dimensions of the array.
          num_devices: number of devices, where XLA's form is given.

        Returns:
          The spec, over the axes of the mesh of a `NamedSharding`, and over as few axes as will do for others.

        Raises:
          ShardingError: the parts lie in an order that no box of devices has.
        """
        if isinstance(sharding, NamedSharding):
            return _of_axes(list(sharding.mesh.shape.items()), sharding.axes(ndim))
        if isinstance(sharding, Sharding):
            tiling = sharding.tiling(ndim)
        else:
            count = num_devices or max(sharding.num_devices(), 1)
            tiling = tiling_of_hlo(sharding, count, ndim)
        for factors in sorted(set(itertools.permutations(prime_factors(len(tiling.coordinates))))):
            spec = spec_of_tiling(tiling, range(len(factors)), factors)
            if spec is not None:
                return _of_axes(*_merged(factors, spec, ndim))
        raise ShardingError(
            "ShardingSpec.of",
            expected="parts in an order that a box of devices has",
            got=sharding,
            mend="use the sharding itself, or lay the array out over a mesh first",
        )

    def __repr__(self) -> str:
        return f"ShardingSpec({list(self.sharding)}, {list(self.mesh_mapping)})"


def spec_to_indices(shape: Sequence[int], spec: ShardingSpec) -> tuple[Index, ...]:
    """What each device holds, devices in row-major order of the box.

    Args:
      shape: shape of the whole array, unstacked dimensions included.
      spec: how it is cut.

    Returns:
      One tuple for each device, with a slice for each dimension, or a number for an unstacked one. Replicas repeat an
      index; an innermost `Replicated` axis puts them side by side.

    Raises:
      ShardingError: the array has another rank, or a dimension cannot be cut evenly.

    Examples:
      >>> spec_to_indices((4,), ShardingSpec([Chunked([2])], [ShardedAxis(0)]))
      ((slice(0, 2, None),), (slice(2, 4, None),))
    """
    return tuple(spec.indices(shape).flat)


def _cuts_of(entry: NoSharding | Chunked | Unstacked) -> tuple[int, ...]:
    if isinstance(entry, Chunked):
        return tuple(entry.chunks)
    return (entry.size,) if isinstance(entry, Unstacked) else ()


def _index(entry: NoSharding | Chunked | Unstacked, at: int, size: int) -> slice | int:
    if isinstance(entry, Unstacked):
        return at
    return slice(None) if math.prod(_cuts_of(entry)) == 1 else slice(at * size, (at + 1) * size)


def _check_kinds(name: str, entries: tuple[Any, ...], kinds: tuple[type, ...]) -> None:
    for entry in entries:
        if not isinstance(entry, kinds):
            raise ArgumentTypeError(
                f"ShardingSpec, {name}",
                expected=f"entries of the kinds {', '.join(kind.__name__ for kind in kinds)}",
                got=repr(entry),
                mend="write NoSharding() for a dimension that is whole, Replicated(n) for devices that hold the same",
            )


def _of_axes(axes: Sequence[tuple[Any, int]], dims: Sequence[Sequence[Any]]) -> ShardingSpec:
    """The spec over named axes with sizes, given the axes that cut each dimension."""
    sizes = dict(axes)
    order = {axis: number for number, axis in enumerate(axis for cut in dims for axis in cut)}
    return ShardingSpec(
        [Chunked([sizes[axis] for axis in cut]) if cut else NoSharding() for cut in dims],
        [ShardedAxis(order[axis]) if axis in order else Replicated(size) for axis, size in axes],
    )


def _merged(factors: Sequence[int], spec: PartitionSpec, ndim: int) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Neighbouring axes that cut as one, or not at all, as one: the axes with sizes, and those of each dimension."""
    dims = spec.padded(ndim)
    follows = {minor: major for cut in dims for major, minor in itertools.pairwise(cut)}
    used = set(spec.axes)
    axes: list[tuple[int, int]] = []
    for position, size in enumerate(factors):
        alike = axes and (follows.get(position) == position - 1 or (position not in used and position - 1 not in used))
        if alike:
            axes[-1] = (axes[-1][0], axes[-1][1] * size)
        else:
            axes.append((position, size))
    kept = {position for position, _ in axes}
    return axes, [[axis for axis in cut if axis in kept] for cut in dims]
