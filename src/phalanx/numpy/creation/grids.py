"""Grids of coordinates: `meshgrid`, `fromfunction`, and the index notation of `mgrid`, `ogrid`, `r_` and `c_`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, promotion
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.creation.ranges import arange, linspace
from phalanx.numpy.operands import canonical_shape, check_choice, to_operand
from phalanx.numpy.shapes.joining import concatenate, stack
from phalanx.runtime.eager_jit import eager_jit
from phalanx.transforms import vmap
from phalanx.typing import Array, DTypeLike, Shape

s_ = np.s_
index_exp = np.index_exp


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list:
    """Coordinate grids from coordinate vectors.

    Args:
      xi: vectors or scalars.
      copy: must be True.
      sparse: return open grids, of size 1 along the other vectors' dimensions.
      indexing: `"xy"` for Cartesian or `"ij"` for matrix indexing.

    Returns:
      A list with one array per vector, whose rank is the number of vectors; array i repeats vector i along all other
      dimensions, or has size 1 there if `sparse`.

    Raises:
      ArgumentError: `indexing` or `copy` has another value, or an array has rank 2 or more.

    Examples:
      >>> [a.tolist() for a in jnp.meshgrid(jnp.arange(2), jnp.arange(2))]
      [[[0, 1], [0, 1]], [[0, 0], [1, 1]]]
    """
    check_choice("meshgrid, argument indexing", indexing, ("xy", "ij"))
    if not copy:
        raise ArgumentError(
            "meshgrid, argument copy", expected="True", got=copy, fix="leave copy out; the grids are always new arrays"
        )
    vectors = [array(x) if isinstance(x, list | tuple) else to_operand(x, "meshgrid") for x in xi]
    for i, x in enumerate(vectors):
        if x.ndim > 1:
            raise ArgumentError(
                f"meshgrid, argument {i}",
                expected="a vector or a scalar",
                got=f"an array of shape {x.shape}",
                fix="flatten it with .ravel()",
            )
    return _meshgrid(vectors, bool(sparse), indexing)


@eager_jit(static_argnames=("sparse", "indexing"))
def _meshgrid(vectors: list, sparse: bool, indexing: str) -> list:
    n = len(vectors)
    # Cartesian indexing exchanges the first two dimensions of the result.
    place = list(range(n))
    if indexing == "xy" and n >= 2:
        place[:2] = [1, 0]
    sizes = [1] * n
    for p, x in zip(place, vectors, strict=True):
        sizes[p] = x.shape[0] if x.ndim else 1
    out = []
    for p, x in zip(place, vectors, strict=True):
        x = x if x.ndim else lax.reshape(x, (1,))
        shape = tuple(s if (not sparse or i == p) else 1 for i, s in enumerate(sizes))
        out.append(lax.broadcast_in_dim(x, shape, (p,)))
    return out


def fromfunction(
    function: Callable[..., Array], shape: Shape, *, dtype: DTypeLike | None = float, **kwargs: Any
) -> Array:
    """An array whose elements are computed from their indices.

    Args:
      function: a function of one scalar index per dimension; it is vectorized with `vmap`.
      shape: an int or a tuple of ints.
      dtype: the dtype of the indices.
      kwargs: passed to the function.

    Returns:
      The results of the function, with the dimensions `shape` in front.

    Raises:
      ArgumentTypeError: an entry of `shape` is not an integer.

    Examples:
      >>> jnp.fromfunction(lambda i, j: i + j, (2, 2), dtype=int).tolist()
      [[0, 1], [1, 2]]
    """
    shape = canonical_shape(shape, "fromfunction")
    n = len(shape)
    function = functools.partial(function, **kwargs)
    # The innermost `vmap` maps the last index, so that the dimensions of the result are in order.
    for i in reversed(range(n)):
        function = vmap(function, in_axes=tuple(0 if i == j else None for j in range(n)))
    return function(*[arange(s, dtype=dtype) for s in shape])


def _axis_of(s: slice) -> Any:
    start, stop, step = 0 if s.start is None else s.start, s.stop, 1 if s.step is None else s.step
    if isinstance(step, complex):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, step)


class _Grid:
    """The type of `mgrid` and `ogrid`: indexing with slices returns grids. A complex step is a number of points."""

    def __init__(self, sparse: bool, name: str):
        self.sparse, self.name = sparse, name

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _axis_of(key)
        axes = [_axis_of(s) for s in key]
        dtype = promotion.result_type(*axes)
        grid = meshgrid(*[a.astype(dtype) for a in axes], indexing="ij", sparse=self.sparse)
        return grid if self.sparse else stack(grid)

    def __repr__(self) -> str:
        return f"phalanx.numpy.{self.name}"


mgrid = _Grid(False, "mgrid")
ogrid = _Grid(True, "ogrid")


class _Joiner:
    """The type of `r_` and `c_`: indexing concatenates arrays, numbers and ranges along an axis."""

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
                else to_operand(item, self.name)
            )
            x = x if hasattr(x, "aval") else array(x)
            missing = max(0, ndmin - x.ndim)
            # The dimensions of the item begin at position `first` of the result; -1 puts them last.
            lead = missing if first < 0 else min(first, missing)
            parts.append(x.reshape((1,) * lead + x.shape + (1,) * (missing - lead)) if missing else x)
        return concatenate(parts, axis)

    def _directive(self, text: str) -> tuple[int, int, int]:
        """Parse a directive such as "0,2,-1": the axis to join along, the minimum rank, and `first`."""
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
