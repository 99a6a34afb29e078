"""Interpolation on grids, with the names of `scipy.interpolate`.

Builds on `numpy.searchsorted`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, ConcretizationTypeError, ShapeError
from phalanx.engine.public_namespace import publish as _publish
from phalanx.numpy.operands import broadcast_operands, concrete_or_none, promote_inexact
from phalanx.scipy.argument_checks import check_choice
from phalanx.tree import register_pytree_node_class
from phalanx.typing import Array, ArrayLike


@register_pytree_node_class
class RegularGridInterpolator:
    """Interpolation of values on a regular grid.

    Args:
      points: the coordinates of the grid along each dimension, in ascending order.
      values: the values at the grid points; the leading dimensions are the dimensions of the grid.
      method: `"linear"` or `"nearest"`.
      bounds_error: whether a point outside of the grid is an error.
      fill_value: the value for points outside of the grid; None to extrapolate.

    Raises:
      ArgumentError: the method is unknown.
      ShapeError: the shape of the values does not match the grid.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.interpolate import RegularGridInterpolator
      >>> f = RegularGridInterpolator((jnp.array([0.0, 2.0]),), jnp.array([0.0, 10.0]))
      >>> f(jnp.array([[0.5], [1.0]])).tolist()
      [2.5, 5.0]
    """

    def __init__(
        self,
        points: Sequence[Any],
        values: ArrayLike,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: ArrayLike | None = np.nan,
    ) -> None:
        check_choice("RegularGridInterpolator", "method", method, ("linear", "nearest"))
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value
        self.grid = tuple(promote_inexact("RegularGridInterpolator", jnp.asarray(p))[0] for p in points)
        (self.values,) = promote_inexact("RegularGridInterpolator", jnp.asarray(values))
        shape = tuple(g.shape[0] if g.ndim == 1 else -1 for g in self.grid)
        if self.values.shape[: len(shape)] != shape or any(n < 2 for n in shape):
            raise ShapeError(
                "RegularGridInterpolator, argument values",
                expected=f"a grid of {shape}, at least 2 each",
                got=self.values.shape,
                fix="pass one value for each grid point, and at least 2 points along each dimension",
            )

    def tree_flatten(self) -> tuple:
        """The children and the auxiliary data of the pytree node."""
        return (self.grid, self.values, self.fill_value), (self.method, self.bounds_error)

    @classmethod
    def tree_unflatten(cls, aux: tuple, children: Any) -> RegularGridInterpolator:
        """Rebuild the interpolator from children and auxiliary data."""
        self = object.__new__(cls)
        self.grid, self.values, self.fill_value = children
        self.method, self.bounds_error = aux
        return self

    def __call__(self, xi: ArrayLike, method: str | None = None) -> Any:
        """Interpolate at points, num[*s, dims] (or a tuple of arrays that broadcast) -> num[*s, ...].

        Args:
          xi: the points.
          method: `"linear"` or `"nearest"`; by default the method of the interpolator.

        Returns:
          The interpolated values.
        """
        method = self.method if method is None else method
        check_choice("RegularGridInterpolator", "method", method, ("linear", "nearest"))
        if type(xi) is tuple:
            xi = jnp.stack(broadcast_operands("RegularGridInterpolator", *map(jnp.asarray, xi)), -1)
        (points,) = promote_inexact("RegularGridInterpolator", jnp.asarray(xi))
        if points.shape[-1:] != (len(self.grid),):
            raise ShapeError(
                "RegularGridInterpolator, argument xi",
                expected=f"{len(self.grid)} coordinates, last",
                got=points.shape,
                fix="stack the coordinates along the last dimension",
            )
        is_outside: Any = False
        cells = []
        for dim, grid in enumerate(self.grid):
            x = points[..., dim]
            is_outside = is_outside | (x < grid[0]) | (x > grid[-1])
            # The index of the cell's lower corner. Points outside of the grid use the first or last cell, which
            # extrapolates.
            i = lax.clamp(
                np.int32(0), jnp.searchsorted(grid, x, side="right").astype(np.int32) - 1, np.int32(len(grid) - 2)
            )
            cells.append((i, (x - grid[i]) / (grid[i + 1] - grid[i])))
        # The values must be known for this check, so it is an error under `jit`.
        if self.bounds_error:
            _check_inside(is_outside)
        if method == "nearest":
            # A point in the middle of a cell belongs to the lower neighbor, as in SciPy.
            value = self.values[tuple(jnp.where(fraction <= 0.5, i, i + 1) for i, fraction in cells)]
        else:
            value = self._linear(cells)
        if self.fill_value is None:
            return value
        is_outside = lax.expand_dims(is_outside, tuple(range(is_outside.ndim, value.ndim)))
        return jnp.where(is_outside, self.fill_value, value)

    def _linear(self, cells: list) -> Any:
        total: Any = 0
        value_rank = self.values.ndim - len(cells)
        for corner in itertools.product((0, 1), repeat=len(cells)):
            weight: Any = math.prod(f if offset else 1 - f for offset, (_, f) in zip(corner, cells))
            weight = lax.expand_dims(weight, tuple(range(weight.ndim, weight.ndim + value_rank)))
            total = total + weight * self.values[tuple(i + offset for offset, (i, _) in zip(corner, cells))]
        return total


def _check_inside(outside: Array) -> None:
    known = concrete_or_none(outside)
    if known is None:
        raise ConcretizationTypeError(
            "RegularGridInterpolator, argument bounds_error",
            expected="False under tracing",
            got=True,
            fix="pass bounds_error=False and a fill_value",
        )
    if known.any():
        raise ArgumentError(
            "RegularGridInterpolator, argument xi",
            expected="points inside of the grid",
            got=f"{int(known.sum())} outside",
            fix="pass bounds_error=False to get fill_value there",
        )


__getattr__, __dir__ = _publish(globals())
