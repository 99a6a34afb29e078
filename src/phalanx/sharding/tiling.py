"""Tilings: into how many parts each dimension is cut, and which part each device holds.

The one form all shardings have in common, and the place of all index arithmetic. Builds on NumPy and the error
records; `shardings.py` is the only caller outside tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from phalanx.core.errors import ShardingError

Index: TypeAlias = tuple[slice, ...]


class Tiling(NamedTuple):
    """Where the parts of an array stand.

    Args:
      parts: number of parts of each dimension.
      coordinates: i64[devices, ndim], which part of each dimension the device at each position holds.

    Examples:
      >>> halves = Tiling((2,), np.array([[0], [1]]))
      >>> halves.is_equal(Tiling((2,), np.array([[1], [0]])))
      False
    """

    parts: tuple[int, ...]
    coordinates: np.ndarray[Any, Any]

    @property
    def order(self) -> np.ndarray[Any, Any]:
        """The positions of the devices, sorted by the part they hold, row-major; replicas innermost."""
        return np.lexsort(self.coordinates.T[::-1])

    def is_equal(self, other: Tiling) -> bool:
        """Whether each device holds the same part."""
        return self.parts == other.parts and np.array_equal(self.coordinates, other.coordinates)


def mixed_radix(digits: Sequence[np.ndarray[Any, Any]], sizes: Sequence[int]) -> Any:
    """The numbers whose digits, from major to minor, are given with the size of each.

    Args:
      digits: int[*s] each, or ints.
      sizes: how many values each digit has.

    Returns:
      int[*s].

    Examples:
      >>> mixed_radix([1, 2], [4, 3])
      5
    """
    number: Any = 0
    for digit, size in zip(digits, sizes, strict=True):
        number = number * size + digit
    return number


def prime_factors(number: int) -> list[int]:
    """The prime factors, smallest first: the sizes of the finest axes that so many devices have.

    Args:
      number: at least 1.

    Returns:
      The factors, as often as each divides.

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


def part_size(size: int, parts: int, dim: int, *, by: str, where: str) -> int:
    """Size of one part of a dimension; the one place that says what an uneven dimension means.

    Args:
      size, parts: of the whole dimension, and the number of parts.
      dim, by, where: its position, how it is cut, and the argument or operation, for the error.

    Returns:
      The size.

    Raises:
      ShardingError: `parts` does not divide `size`.

    Examples:
      >>> part_size(8, 2, 0, by="'x' has 2 devices", where="x")
      4
    """
    if size % parts == 0:
        return size // parts
    raise ShardingError(
        where,
        expected=f"dimension {dim} to be a multiple of {parts}, since {by}",
        got=f"size {size}",
        mend=f"pad the dimension to {-(-size // parts) * parts}, or leave it whole in the spec",
    )


def indices(tiling: Tiling, shape: Sequence[int], part_shape: Sequence[int]) -> tuple[Index, ...]:
    """The slices of the whole array that each device holds; a dimension that is not cut has `slice(None)`."""
    columns = []
    for dim, (size, part) in enumerate(zip(shape, part_shape, strict=True)):
        if tiling.parts[dim] == 1:
            columns.append([slice(None)] * len(tiling.coordinates))
            continue
        cuts = [slice(start, min(start + part, size)) for start in range(0, part * tiling.parts[dim], part or 1)]
        cuts = cuts or [slice(0, 0)] * tiling.parts[dim]
        columns.append([cuts[at] for at in tiling.coordinates[:, dim].tolist()])
    if not columns:
        return ((),) * len(tiling.coordinates)
    return tuple(zip(*columns, strict=True))


def replica_ids(tiling: Tiling) -> tuple[int, ...]:
    """For each device, how many devices before it hold the same part."""
    seen: dict[int, int] = {}
    ids = []
    numbers = mixed_radix(list(tiling.coordinates.T), tiling.parts) + np.zeros(len(tiling.coordinates), np.int64)
    for part in numbers.tolist():
        ids.append(seen.get(part, 0))
        seen[part] = ids[-1] + 1
    return tuple(ids)
