"""Grids and arrays in index notation: mgrid, ogrid, r_, c_, s_; and how arrays are printed."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.numpy.creation import arange, array, linspace, meshgrid
from phalanx.numpy.joining import concatenate
from phalanx.numpy.operands import operand

s_ = np.s_
index_exp = np.index_exp


def _axis_of(s: slice) -> Any:
    start, stop, step = 0 if s.start is None else s.start, s.stop, 1 if s.step is None else s.step
    if isinstance(step, complex):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, step)


class _Grid:
    """Coordinates of the points that slices name; a complex step is a number of points."""

    def __init__(self, sparse: bool, name: str):
        self.sparse, self.name = sparse, name

    def __getitem__(self, key: Any) -> Any:
        from phalanx.numpy.joining import stack

        if isinstance(key, slice):
            return _axis_of(key)
        axes = [_axis_of(s) for s in key]
        from phalanx.core import dtypes

        dtype = dtypes.result_type(*axes)
        grid = meshgrid(*[a.astype(dtype) for a in axes], indexing="ij", sparse=self.sparse)
        return grid if self.sparse else stack(grid)

    def __repr__(self) -> str:
        return f"phalanx.numpy.{self.name}"


mgrid = _Grid(False, "mgrid")
ogrid = _Grid(True, "ogrid")


class _Joiner:
    """Arrays, numbers and slices between brackets joined along an axis, as NumPy's `r_` and `c_`."""

    def __init__(self, axis: int, ndmin: int, first: int, name: str):
        self.axis, self.ndmin, self.first, self.name = axis, ndmin, first, name

    def __getitem__(self, key: Any) -> Any:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, first = self.axis, self.ndmin, self.first
        if items and isinstance(items[0], str):
            axis, ndmin, first = self._directive(items.pop(0))
        parts = []
        for item in items:
            x = (
                _axis_of(item)
                if isinstance(item, slice)
                else array(item)
                if isinstance(item, list)
                else operand(item, self.name)
            )
            x = x if hasattr(x, "aval") else array(x)
            rank = x.ndim
            if isinstance(item, slice) or rank < ndmin:
                add = ndmin - rank
                if add > 0:
                    where = add + rank if first < 0 else first
                    order = [1] * max(0, min(where, add)) if first >= 0 else [1] * add
                    lead = len(order) if first != -1 else add
                    x = x.reshape((1,) * lead + tuple(x.shape) + (1,) * (add - lead))
            parts.append(x)
        return concatenate(parts, axis)

    def _directive(self, text: str) -> tuple[int, int, int]:
        if text in ("r", "c"):
            return -1, 2, -1 if text == "r" else 0
        numbers = [int(n) for n in text.split(",")]
        return (
            numbers[0],
            numbers[1] if len(numbers) > 1 else self.ndmin,
            numbers[2] if len(numbers) > 2 else self.first,
        )

    def __repr__(self) -> str:
        return f"phalanx.numpy.{self.name}"


r_ = _Joiner(0, 1, -1, "r_")
c_ = _Joiner(-1, 2, 0, "c_")


def array_repr(
    arr: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The array as text that names its type.

    Examples:
      >>> jnp.array_repr(jnp.arange(2))
      'Array([0, 1], dtype=int32)'
    """
    with np.printoptions(**_options(max_line_width, precision, suppress_small)):
        return repr(arr)


def array_str(
    a: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The elements of the array as text.

    Examples:
      >>> jnp.array_str(jnp.arange(2))
      '[0 1]'
    """
    return np.array_str(np.asarray(a), max_line_width, precision, suppress_small)


def _options(width: int | None, precision: int | None, suppress: bool | None) -> dict:
    found = {"linewidth": width, "precision": precision, "suppress": suppress}
    return {k: v for k, v in found.items() if v is not None}
