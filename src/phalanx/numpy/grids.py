"""Grids: coordinates of points, functions of indices, index notation (mgrid, r_, ...); and how arrays are printed.

Built on `ranges` and `joining`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import promotion
from phalanx.core.errors import ArgumentError
from phalanx.numpy.creation import array
from phalanx.numpy.joining import concatenate, stack
from phalanx.numpy.operands import canonical_shape, operand
from phalanx.numpy.ranges import arange, linspace
from phalanx.runtime.dispatch import eager_program
from phalanx.transforms import vmap

s_ = np.s_
index_exp = np.index_exp


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list:
    """Coordinate matrices of coordinate vectors.

    Args:
      xi: vectors or scalars.
      copy: only True is supported.
      sparse: leave each with size 1 along the dimensions of the others.
      indexing: `"xy"` for Cartesian order, `"ij"` for that of matrices.

    Returns:
      A list of one array for each vector, with as many dimensions as there are vectors: its coordinates vary along its
      own, the others repeating them (or of size 1, where `sparse`).

    Raises:
      ArgumentError: `indexing` or `copy` has another value, or an array has rank 2 or more.

    Examples:
      >>> [a.tolist() for a in jnp.meshgrid(jnp.arange(2), jnp.arange(2))]
      [[[0, 1], [0, 1]], [[0, 0], [1, 1]]]
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError("meshgrid, argument indexing", expected="'xy' or 'ij'", got=repr(indexing), mend="use one")
    if not copy:
        raise ArgumentError("meshgrid, argument copy", expected="True", got=copy, mend="leave it out")
    vectors = [array(x) if isinstance(x, list | tuple) else operand(x, "meshgrid") for x in xi]
    for i, x in enumerate(vectors):
        if x.ndim > 1:
            raise ArgumentError(
                f"meshgrid, argument {i}", expected="a vector or a scalar", got=f"an array of shape {x.shape}",
                mend="ravel it",
            )  # fmt: skip
    return _meshgrid(vectors, bool(sparse), indexing)


@eager_program(static_argnames=("sparse", "indexing"))
def _meshgrid(vectors: list, sparse: bool, indexing: str) -> list:
    n = len(vectors)
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


def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """An array whose elements are a function of their indices.

    Args:
      function: takes one integer or number for each dimension, all scalars.
      shape: an int or a tuple of them.
      dtype: the dtype of the indices.
      kwargs: passed to the function.

    Returns:
      What the function gives, with the dimensions `shape` in front.

    Raises:
      ArgumentTypeError: an entry of `shape` is no integer.

    Examples:
      >>> jnp.fromfunction(lambda i, j: i + j, (2, 2), dtype=int).tolist()
      [[0, 1], [1, 2]]
    """
    shape = canonical_shape(shape, "fromfunction")
    n = len(shape)
    function = functools.partial(function, **kwargs)
    for i in reversed(range(n)):
        function = vmap(function, in_axes=tuple(0 if i == j else None for j in range(n)))
    return function(*[arange(s, dtype=dtype) for s in shape])


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

    Args:
      arr: an array.
      max_line_width: in characters; what NumPy's print options say if None, as for the others.
      precision: digits after the point.
      suppress_small: write numbers close to 0 without exponents.

    Returns:
      The text.

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

    Args:
      a: an array.
      max_line_width, precision, suppress_small: as in `array_repr`.

    Returns:
      The text.

    Examples:
      >>> jnp.array_str(jnp.arange(2))
      '[0 1]'
    """
    return np.array_str(np.asarray(a), max_line_width, precision, suppress_small)


def _options(width: int | None, precision: int | None, suppress: bool | None) -> dict:
    found = {"linewidth": width, "precision": precision, "suppress": suppress}
    return {k: v for k, v in found.items() if v is not None}
