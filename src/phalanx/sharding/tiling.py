"""`Tiling`: the number of shards along each dimension, and the shard that each device holds.

Every kind of sharding can be converted to a tiling, so all index arithmetic (slices, shard shapes, replica ids) is
written once, in this file. Depends on NumPy and the error classes. Used by `base_sharding.py`, by the conversions in
`hlo_conversion.py` and by the resharding planner in `reshard_plan.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from phalanx.core import ShardingError

Index: TypeAlias = tuple[slice, ...]


class Tiling(NamedTuple):
    """The assignment of the shards of an array to devices.

    Devices are identified by their position in the sharding's device order. Several devices may hold the same shard
    (replicas).

    Args:
      parts: number of shards along each dimension.
      coordinates: i64[devices, ndim], the index of each device's shard along each dimension.

    Examples:
      >>> halves = Tiling((2,), np.array([[0], [1]]))
      >>> halves.is_equal(Tiling((2,), np.array([[1], [0]])))
      False
    """

    parts: tuple[int, ...]
    coordinates: np.ndarray[Any, Any]

    @property
    def order(self) -> np.ndarray[Any, Any]:
        """Positions of the devices sorted by the shard they hold (row-major), replicas next to each other."""
        # lexsort takes the major key last.
        return np.lexsort(self.coordinates.T[::-1])

    def is_equal(self, other: Tiling) -> bool:
        """Whether each device holds the same shard under both tilings."""
        return self.parts == other.parts and np.array_equal(self.coordinates, other.coordinates)


def mixed_radix(digits: Sequence[np.ndarray[Any, Any]], sizes: Sequence[int]) -> Any:
    """Combine digits of a mixed-radix number, from the most to the least significant.

    Args:
      digits: int[*s] each, or ints.
      sizes: the radix of each digit.

    Returns:
      int[*s], the numbers.

    Examples:
      >>> mixed_radix([1, 2], [4, 3])
      5
    """
    number: Any = 0
    for digit, size in zip(digits, sizes, strict=True):
        number = number * size + digit
    return number


def prime_factors(number: int) -> list[int]:
    """The prime factors of a number of devices: the axis sizes of the finest mesh over these devices.

    Args:
      number: at least 1.

    Returns:
      The factors with multiplicity, in ascending order.

    Examples:
      >>> prime_factors(12)
      [2, 2, 3]
    """
    factors, factor = [], 2
    while number > 1:
        while number % factor:
            factor += 1
        factors.append(factor)
        number //= factor
    return factors


def shard_size(size: int, parts: int, dim: int, *, by: str, where: str) -> int:
    """Size of one shard of a dimension.

    Args:
      size: size of the unsharded dimension.
      parts: number of shards.
      dim: position of the dimension, for the error message.
      by: the reason why the dimension has this many shards, as a clause for the error message.
      where: path of the argument, or name of the operation, for the error message.

    Returns:
      The size.

    Raises:
      ShardingError: `parts` does not divide `size`.

    Examples:
      >>> shard_size(8, 2, 0, by="'x' has 2 devices", where="x")
      4
    """
    if size % parts == 0:
        return size // parts
    raise ShardingError(
        where,
        expected=f"dimension {dim} to be a multiple of {parts}, since {by}",
        got=f"size {size}",
        fix=f"pad the dimension to {-(-size // parts) * parts}, or use None for it in the spec",
    )


def indices(tiling: Tiling, shape: Sequence[int], part_shape: Sequence[int]) -> tuple[Index, ...]:
    """The slices of the unsharded array that each device holds; `slice(None)` for dimensions that are not split.

    Sizes need not be multiples of the number of shards: the last shards are then shorter, or empty.
    """
    columns = []
    for dim, (size, part) in enumerate(zip(shape, part_shape, strict=True)):
        if tiling.parts[dim] == 1:
            columns.append([slice(None)] * len(tiling.coordinates))
            continue
        bounds = [*range(0, size, part or 1), *[size] * (tiling.parts[dim] + 1)]
        cuts = [*map(slice, bounds, bounds[1 : tiling.parts[dim] + 1])]
        columns.append([cuts[at] for at in tiling.coordinates[:, dim].tolist()])
    return tuple(zip(*columns, strict=True)) if columns else ((),) * len(tiling.coordinates)


def index_shape(index: Index, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the slice of an array that an index selects.

    Args:
      index: a slice for each dimension.
      shape: the shape of the array.

    Returns:
      The shape.

    Examples:
      >>> index_shape((slice(8, 10), slice(None)), (10, 3))
      (2, 3)
    """
    return tuple([len(range(*part.indices(size))) for part, size in zip(index, shape, strict=True)])


def replica_ids(tiling: Tiling) -> tuple[int, ...]:
    """For each device, the number of preceding devices that hold the same shard."""
    if math.prod(tiling.parts) == len(tiling.coordinates):
        return (0,) * len(tiling.coordinates)
    seen: dict[int, int] = {}
    ids = []
    # Number the shards. For an array of rank 0, `mixed_radix` returns a scalar, which adding zeros makes an array.
    numbers = mixed_radix(list(tiling.coordinates.T), tiling.parts) + np.zeros(len(tiling.coordinates), np.int64)
    for part in numbers.tolist():
        ids.append(seen.get(part, 0))
        seen[part] = ids[-1] + 1
    return tuple(ids)
