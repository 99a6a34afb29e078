"""Values between the points of a grid, with the names of `scipy.interpolate`.

Builds on `numpy.searchsorted`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.errors import ArgumentError, ConcretizationTypeError, ShapeError
from phalanx.engine.frames import guard as _guard
from phalanx.numpy.creation import asarray
from phalanx.numpy.joining import stack
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import broadcast_operands, concrete, promote_inexact
from phalanx.numpy.sorting import searchsorted
from phalanx.tree_util import register_pytree_node_class


@register_pytree_node_class
class RegularGridInterpolator:
    """A function known on a grid, continued between its points.

    Args:
      points: for each dimension the ascending coordinates of the grid.
      values: the values, whose first dimensions are those of the grid.
      method: `"linear"` or `"nearest"`.
      bounds_error: whether a place outside of the grid is an error.
      fill_value: the value outside; None to continue the cells at the border.

    Raises:
      ArgumentError: there is no such method.
      ShapeError: the values do not fit the coordinates.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.interpolate import RegularGridInterpolator
      >>> f = RegularGridInterpolator((jnp.array([0.0, 2.0]),), jnp.array([0.0, 10.0]))
      >>> f(jnp.array([[0.5], [1.0]])).tolist()
      [2.5, 5.0]
    """

    def __init__(
        self, points: Sequence[Any], values: Any, method: str = "linear", bounds_error: bool = False,
        fill_value: Any = np.nan,
    ) -> None:  # fmt: skip
        self.method, self.bounds_error, self.fill_value = _known(method), bounds_error, fill_value
        self.grid = tuple(promote_inexact("RegularGridInterpolator", asarray(p))[0] for p in points)
        (self.values,) = promote_inexact("RegularGridInterpolator", asarray(values))
        shape = tuple(g.shape[0] if g.ndim == 1 else -1 for g in self.grid)
        if self.values.shape[: len(shape)] != shape or any(n < 2 for n in shape):
            raise ShapeError("RegularGridInterpolator, argument values", expected=f"a grid of {shape}, at least 2 each",
                             got=self.values.shape, mend="give a value for each point")  # fmt: skip

    def tree_flatten(self) -> tuple:
        """The arrays, and what is told by words."""
        return (self.grid, self.values, self.fill_value), (self.method, self.bounds_error)

    @classmethod
    def tree_unflatten(cls, aux: tuple, children: Any) -> RegularGridInterpolator:
        """The function of these arrays."""
        self = object.__new__(cls)
        self.grid, self.values, self.fill_value = children
        self.method, self.bounds_error = aux
        return self

    def __call__(self, xi: Any, method: str | None = None) -> Any:
        """The values at places, num[*s, dims] (or a tuple of arrays that broadcast) -> num[*s, ...]."""
        method = self.method if method is None else _known(method)
        xi = stack(broadcast_operands("RegularGridInterpolator", *map(asarray, xi)), -1) if type(xi) is tuple else xi
        (places,) = promote_inexact("RegularGridInterpolator", asarray(xi))
        if places.shape[-1:] != (len(self.grid),):
            raise ShapeError("RegularGridInterpolator, argument xi", expected=f"{len(self.grid)} coordinates, last",
                             got=places.shape, mend="stack them along the last dimension")  # fmt: skip
        outside: Any = False
        cells = []
        for d, grid in enumerate(self.grid):
            x = places[..., d]
            outside = outside | (x < grid[0]) | (x > grid[-1])
            i = lax.clamp(
                np.int32(0), searchsorted(grid, x, side="right").astype(np.int32) - 1, np.int32(len(grid) - 2)
            )
            cells.append((i, (x - grid[i]) / (grid[i + 1] - grid[i])))
        if self.bounds_error:
            _refuse_outside(outside)
        if method == "nearest":
            value = self.values[tuple(where(share <= 0.5, i, i + 1) for i, share in cells)]
        else:
            value = self._linear(cells)
        if self.fill_value is None:
            return value
        extra = value.ndim - outside.ndim
        return where(lax.expand_dims(outside, tuple(range(outside.ndim, value.ndim))) if extra else outside,
                     self.fill_value, value)  # fmt: skip

    def _linear(self, cells: list) -> Any:
        total: Any = 0
        extra = self.values.ndim - len(cells)
        for corner in itertools.product((0, 1), repeat=len(cells)):
            weight: Any = 1
            for up, (_, share) in zip(corner, cells):
                weight = weight * (share if up else 1 - share)
            weight = lax.expand_dims(weight, tuple(range(weight.ndim, weight.ndim + extra)))
            total = total + weight * self.values[tuple(i + up for up, (i, _) in zip(corner, cells))]
        return total


def _known(method: str) -> str:
    if method not in ("linear", "nearest"):
        raise ArgumentError("RegularGridInterpolator, argument method", expected="'linear' or 'nearest'",
                            got=repr(method), mend="use one")  # fmt: skip
    return method


def _refuse_outside(outside: Any) -> None:
    known = concrete(outside)
    if known is None:
        raise ConcretizationTypeError("RegularGridInterpolator, argument bounds_error", expected="False under tracing",
                                      got=True, mend="give fill_value")  # fmt: skip
    if known.any():
        raise ArgumentError("RegularGridInterpolator, argument xi", expected="places inside of the grid",
                            got=f"{int(known.sum())} outside", mend="give bounds_error=False")  # fmt: skip


_guard(globals())
