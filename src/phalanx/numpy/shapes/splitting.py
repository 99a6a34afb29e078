"""Splitting arrays into parts along an axis: `split` and its variants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx import lax
from phalanx.core import ArgumentError
from phalanx.numpy.operands import canonical_axis, to_operand, to_static_int
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import max_dim
from phalanx.typing import ArrayLike


def array_split(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike, axis: int = 0) -> list:
    """Split an array along an axis into parts of nearly equal size, or at given indices.

    Args:
      ary: array of rank 1 or more.
      indices_or_sections: number of parts, or sorted indices before which to split.
      axis: the axis to split along.

    Returns:
      A list of arrays; if the parts cannot be equal, the first ones have one element more.

    Raises:
      ArgumentError: the number of parts is below 1.
      AxisError: an axis is out of range.

    Examples:
      >>> [a.tolist() for a in jnp.array_split(jnp.arange(5), 2)]
      [[0, 1, 2], [3, 4]]
    """
    return _split("array_split", ary, indices_or_sections, axis)


def split(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike, axis: int = 0) -> list:
    """Split an array along an axis into equal parts, or at given indices.

    Args:
      ary: array of rank 1 or more.
      indices_or_sections: number of parts, or sorted indices before which to split.
      axis: the axis to split along.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the number of parts is below 1 or does not divide the size of the axis.
      AxisError: an axis is out of range.

    Examples:
      >>> [a.tolist() for a in jnp.split(jnp.arange(4), 2)]
      [[0, 1], [2, 3]]
    """
    return _split("split", ary, indices_or_sections, axis)


def vsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list:
    """Split an array along its first axis.

    Args:
      ary: array of rank 1 or more.
      indices_or_sections: number of parts, or sorted indices before which to split.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the number of parts is below 1 or does not divide the size of the axis.

    Examples:
      >>> len(jnp.vsplit(jnp.zeros((4, 2)), 2))
      2
    """
    return _split("vsplit", ary, indices_or_sections, 0)


def hsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list:
    """Split an array along its second axis, or the first for a vector.

    Args:
      ary: array of rank 1 or more.
      indices_or_sections: number of parts, or sorted indices before which to split.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the number of parts is below 1 or does not divide the size of the axis.

    Examples:
      >>> len(jnp.hsplit(jnp.zeros((2, 4)), 2))
      2
    """
    ary = to_operand(ary, "hsplit")
    return _split("hsplit", ary, indices_or_sections, 1 if ary.ndim > 1 else 0)


def dsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list:
    """Split an array along its third axis.

    Args:
      ary: array of rank 3 or more.
      indices_or_sections: number of parts, or sorted indices before which to split.

    Returns:
      A list of arrays.

    Raises:
      ArgumentError: the number of parts is below 1 or does not divide the size of the axis.
      AxisError: the rank is below 3.

    Examples:
      >>> len(jnp.dsplit(jnp.zeros((1, 2, 4)), 2))
      2
    """
    return _split("dsplit", ary, indices_or_sections, 2)


def _split(where: str, ary: Any, indices_or_sections: int | Sequence[int] | ArrayLike, axis: int) -> list:
    ary = to_operand(ary, where)
    axis = canonical_axis(axis, ary.ndim, where)
    size = ary.shape[axis]
    given = indices_or_sections
    if isinstance(given, list | tuple) or getattr(given, "ndim", 0):
        cuts = [int(i) for i in given]
        cuts = [max(0, min(i + size if i < 0 else i, size)) for i in cuts]
        bounds = [0, *cuts, size]
    else:
        n = to_static_int(given, f"{where}, argument indices_or_sections")
        if n <= 0:
            raise ArgumentError(
                f"{where}, argument indices_or_sections",
                expected="1 or more",
                got=n,
                fix="pass a positive number of parts, or a list of indices",
            )
        # The first `more` parts are one element longer.
        each, more = size // n, size % n
        if more != 0 and where != "array_split":
            raise ArgumentError(
                f"{where}, argument indices_or_sections",
                expected=f"a divisor of {size}, the size of axis {axis}",
                got=n,
                fix="use array_split for pieces of unequal size",
            )
        bounds = [0]
        for i in range(n):
            bounds.append(bounds[-1] + each + (i < more))
    return split_at_bounds(ary, tuple(bounds), axis)


@eager_jit(static_argnames=("bounds", "axis"))
def split_at_bounds(x: ArrayLike, bounds: tuple, axis: int) -> list:
    """The slices of `x` between successive bounds along an axis."""
    pieces = list(zip(bounds[:-1], bounds[1:], strict=True))
    return [lax.slice_in_dim(x, a, max_dim(a, b), axis=axis) for a, b in pieces]
