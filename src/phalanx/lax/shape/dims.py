"""Dimensions and shapes in the rules of primitives: names for sharding rules, positions, checks.

Builds on `core` only; nearly every file of `lax` imports it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.core import AxisError, ShapedArray, ShardingRule
from phalanx.typing import DimSize, Shape


def dim_names(ndim: int, prefix: str = "d") -> list[str]:
    """Return a name for each dimension of an array, the same for the same position."""
    return [f"{prefix}{i}" for i in range(ndim)]


def drop_dims(items: Sequence, dims: Sequence[int]) -> tuple:
    """Return the items at all positions except `dims`."""
    return tuple(item for i, item in enumerate(items) if i not in dims)


def insert_dim(shape: Sequence, dim: int, size: DimSize) -> tuple:
    """Insert a dimension at position `dim` of a shape."""
    return (*shape[:dim], size, *shape[dim:])


def canonicalize_dims(dims: Sequence[int]) -> tuple[int, ...]:
    """Convert positions to a tuple of ints."""
    return dims if type(dims) is tuple else tuple(int(d) for d in dims)


def canonicalize_shape(shape: Shape | DimSize) -> tuple:
    """Convert a shape, or a single size, to a tuple.

    Args:
      shape: integers or symbolic dimensions, or one of them.

    Returns:
      The tuple.

    Examples:
      >>> canonicalize_shape([2, 3]), canonicalize_shape(4)
      ((2, 3), (4,))
    """
    if type(shape) is tuple:
        return shape
    # One size is a shape of rank 1, as in NumPy.
    if isinstance(shape, int | np.integer) or getattr(shape, "is_symbolic_dim", False):
        return (shape,)
    return tuple(shape)


def check_dims(where: str, dims: Sequence[int], ndim: int) -> None:
    """Check that positions are in `[0, ndim)` and not repeated."""
    if len(set(dims)) == len(dims) and all(0 <= d < ndim for d in dims):
        return
    raise AxisError(
        where,
        expected=f"different dimensions in [0, {ndim})",
        got=tuple(dims),
        fix="list each dimension once, counted from 0",
    )


def shift_past_batch(dims: tuple, b: int) -> tuple:
    """Convert positions in an array without the mapped dimension `b` to positions in the array with it."""
    return tuple(d + (d >= b) for d in dims)


def batch_dim_after_removal(dims: tuple, b: int) -> int:
    """Return the position of the mapped dimension `b` after the removal of `dims`, which are counted without it."""
    # Each removed dimension before it moves it one position to the front.
    return b - sum(d < b for d in dims)


def resolve_dims(where: str, dims: Sequence[int], ndim: int) -> tuple:
    """Resolve negative positions.

    Raises:
      AxisError: a position is out of range.
    """
    dims = tuple(int(d) for d in dims)
    for d in dims:
        if not -ndim <= d < ndim:
            raise AxisError(
                where,
                expected=f"dimensions in [{-ndim}, {ndim})",
                got=d,
                fix=f"pass a dimension from {-ndim} to {ndim - 1}",
            )
    return tuple(d + ndim if d < 0 else d for d in dims)


def batched_sharding_rule(operands: Sequence[ShapedArray], results: Sequence[int], num_batch: int = 0) -> ShardingRule:
    """Return the rule of an operation whose leading batch dimensions are parallel, and that needs all others whole.

    Args:
      operands: the types of the operands.
      results: the ranks of the results.
      num_batch: the number of batch dimensions.
    """
    batch = dim_names(num_batch, "batch ")
    inner = [dim_names(a.ndim - num_batch, f"operand {i} dim ") for i, a in enumerate(operands)]
    inner += [dim_names(rank - num_batch, f"result {i} dim ") for i, rank in enumerate(results)]
    sides, n = [[*batch, *names] for names in inner], len(operands)
    return ShardingRule(sides[:n], sides[n:], whole={name for names in inner for name in names})
