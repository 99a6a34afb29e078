"""Arrays of indices and coordinates: of diagonals, triangles and grids, and from flat indices; `mgrid`, `r_`, `c_`."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, dtypes, promotion
from phalanx.numpy.creation.array_creation import array, tri
from phalanx.numpy.creation.ranges import arange, linspace
from phalanx.numpy.indexing.where import concrete_mask, nonzero
from phalanx.numpy.operands import (
    canonical_shape,
    cast,
    check_choice,
    check_integers,
    check_vector,
    to_host_operand,
    to_operand,
    to_static_int,
    widen_indices,
)
from phalanx.numpy.shapes.array_properties import shape
from phalanx.numpy.shapes.joining import concatenate, stack
from phalanx.numpy.ufuncs.rounding import clip
from phalanx.numpy.ufuncs.ufunc_implementations import select_where
from phalanx.numpy.ufuncs.ufunc_table import divmod
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic, max_dim, min_dim, non_negative
from phalanx.transforms import vmap
from phalanx.typing import Array, ArrayLike, DimSize, DTypeLike, Shape


def diag_indices(n: int, ndim: int = 2) -> tuple:
    """Index arrays for the main diagonal of an array.

    Args:
      n: length of the diagonal.
      ndim: the number of dimensions.

    Returns:
      A tuple of `ndim` vectors int[n].

    Examples:
      >>> [i.tolist() for i in jnp.diag_indices(2)]
      [[0, 1], [0, 1]]
    """
    return (arange(n),) * ndim


def diag_indices_from(arr: ArrayLike) -> tuple:
    """Index arrays for the main diagonal of a square array.

    Args:
      arr: array of rank 2 or more with equal dimensions.

    Returns:
      A tuple with one index vector per dimension.

    Raises:
      ShapeError: the dimensions differ.

    Examples:
      >>> [i.tolist() for i in jnp.diag_indices_from(jnp.zeros((2, 2)))]
      [[0, 1], [0, 1]]
    """
    x = to_operand(arr, "diag_indices_from")
    if x.ndim < 2 or len(set(x.shape)) != 1:
        raise ShapeError(
            "diag_indices_from",
            expected="an array of rank 2 or more with equal dimensions",
            got=x.shape,
            fix="use diag_indices(n, ndim) with the length and the rank",
        )
    return diag_indices(x.shape[0], x.ndim)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """Index arrays for the lower triangle of a matrix.

    Args:
      n, m: numbers of rows and columns; m defaults to n.
      k: uppermost diagonal to include: 0 for the main one, positive above it.

    Returns:
      A pair of integer vectors: row indices and column indices.

    Examples:
      >>> [i.tolist() for i in jnp.tril_indices(2)]
      [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle_indices(n, k, m, lower=True)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """Index arrays for the upper triangle of a matrix.

    Args:
      n, m: numbers of rows and columns; m defaults to n.
      k: lowermost diagonal to include: 0 for the main one, positive above it.

    Returns:
      A pair of integer vectors: row indices and column indices.

    Examples:
      >>> [i.tolist() for i in jnp.triu_indices(2)]
      [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle_indices(n, k, m, lower=False)


def _triangle_indices(n: int, k: int, m: int | None, *, lower: bool) -> tuple:
    m = n if m is None else m
    n, k, m = (to_static_int(d, f"{'tril' if lower else 'triu'}_indices") for d in (n, k, m))
    # The size depends on n, k and m only, which are static: NumPy computes the indices once on the host.
    if not any(map(is_symbolic, (n, k, m))):
        return tuple(map(array, (np.tril_indices if lower else np.triu_indices)(n, k, m)))
    if lower:
        return nonzero(tri(n, m, k, dtype=bool), size=non_negative(n * m - _upper_size(n, k + 1, m)))
    return nonzero(~tri(n, m, k - 1, dtype=bool), size=non_negative(_upper_size(n, k, m)))


def _upper_size(n: DimSize, k: DimSize, m: DimSize) -> DimSize:
    """The number of elements on and above diagonal `k` of an n by m matrix, which form a trapezoid."""
    if k < 0:
        return n * m - _upper_size(m, 1 - k, n)
    longest = max_dim(m - k, 0)
    rows = min_dim(n, longest)
    return rows * longest - rows * (rows - 1) // 2


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple:
    """Index arrays for the lower triangle of a given matrix.

    Args:
      arr: a matrix; only its shape is used.
      k: as in `tril_indices`.

    Returns:
      A pair of integer vectors: row indices and column indices.

    Raises:
      ShapeError: `arr` is not a matrix.

    Examples:
      >>> len(jnp.tril_indices_from(jnp.zeros((2, 2)))[0])
      3
    """
    rows, columns = _matrix_shape(arr, "tril_indices_from")
    return tril_indices(rows, k, columns)


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple:
    """Index arrays for the upper triangle of a given matrix.

    Args:
      arr: a matrix; only its shape is used.
      k: as in `triu_indices`.

    Returns:
      A pair of integer vectors: row indices and column indices.

    Raises:
      ShapeError: `arr` is not a matrix.

    Examples:
      >>> len(jnp.triu_indices_from(jnp.zeros((2, 2)))[0])
      3
    """
    rows, columns = _matrix_shape(arr, "triu_indices_from")
    return triu_indices(rows, k, columns)


def _matrix_shape(arr: ArrayLike, name: str) -> tuple:
    found = shape(arr)
    if len(found) != 2:
        raise ShapeError(name, expected="a matrix", got=found, fix="give an array of rank 2")
    return found


def mask_indices(n: int, mask_func: Callable[..., ArrayLike], k: int = 0, *, size: int | None = None) -> tuple:
    """Index arrays of the elements of a square matrix selected by a masking function.

    Args:
      n: number of rows and columns.
      mask_func: function of a matrix and `k`, such as `triu`.
      k: passed to `mask_func`.
      size: static length of the result, which is truncated or padded; required under tracing.

    Returns:
      A pair of integer vectors: row indices and column indices.

    Examples:
      >>> [i.tolist() for i in jnp.mask_indices(2, jnp.triu)]
      [[0, 0, 1], [0, 1, 1]]
    """
    n = n if is_symbolic(n) else operator.index(n)
    return nonzero(mask_func(lax.full((n, n), 1, np.dtype(np.float32)), k), size=size)


def indices(dimensions: Shape, dtype: DTypeLike | None = None, sparse: bool = False) -> Any:
    """Indices of a grid: one array per dimension that holds the index along it.

    Args:
      dimensions: shape of the grid, an int or a tuple of ints.
      dtype: dtype of the indices; the default integer dtype if None.
      sparse: return open grids, of size 1 along the other dimensions.

    Returns:
      dtype[rank, *dimensions], or with `sparse` a tuple of arrays.

    Raises:
      ArgumentTypeError: a dimension is not an integer.

    Examples:
      >>> jnp.indices((2, 2)).tolist()
      [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
    """
    dims = canonical_shape(dimensions, "indices")
    dtype = dtypes.requested_dtype(int if dtype is None else dtype, "indices")
    out = [
        lax.broadcasted_iota(dtype, tuple(d if not sparse or i == j else 1 for j, d in enumerate(dims)), i)
        for i in range(len(dims))
    ]
    if sparse:
        return tuple(out)
    return stack(out) if out else lax.full((0,), 0, dtype)


def ravel_multi_index(
    multi_index: Sequence[ArrayLike],
    dims: Shape,
    mode: str = "raise",
    order: str = "C",
    *,
    dtype: DTypeLike | None = None,
) -> Any:
    """Convert multi-dimensional indices to indices into the flattened array.

    Args:
      multi_index: one integer array per dimension.
      dims: shape of the array.
      mode: handling of out-of-bounds indices: `"wrap"`, `"clip"`, or `"raise"`, which requires concrete indices.
      order: `"C"` or `"F"`.
      dtype: integer dtype of the result.

    Returns:
      Integers with the shape of the index arrays.

    Raises:
      ArgumentError: an index is out of bounds and `mode` is `"raise"`.
      ConcretizationTypeError: an index is traced and `mode` is `"raise"`.
      ShapeError: the number of index arrays differs from the number of dimensions.

    Examples:
      >>> jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([1, 1])), (2, 2)).tolist()
      [1, 3]
    """
    dims = canonical_shape(dims, "ravel_multi_index")
    parts = [widen_indices(to_host_operand(i, "ravel_multi_index"), math.prod(dims)) for i in multi_index]
    if len(parts) != len(dims):
        raise ShapeError(
            "ravel_multi_index",
            expected=f"{len(dims)} index arrays",
            got=len(parts),
            fix=f"pass one index array for each of the {len(dims)} dimensions",
        )
    if mode == "raise":
        for p, d in zip(parts, dims, strict=True):
            known = concrete_mask(p, "ravel_multi_index")
            if np.any((known < 0) | (known >= d)):
                raise ArgumentError(
                    "ravel_multi_index",
                    expected=f"indices from 0 to {d - 1}",
                    got=known.tolist(),
                    fix="give mode='clip' or mode='wrap'",
                )
    elif mode == "clip":
        # Out-of-bounds indices move to the nearest element of their dimension.
        parts = [clip(p, 0, d - 1) for p, d in zip(parts, dims, strict=True)]
    else:
        parts = [p % d for p, d in zip(parts, dims, strict=True)]
    pairs = list(zip(parts, dims, strict=True))[:: 1 if order == "C" else -1]
    out: Any = None
    for p, d in pairs:
        # Horner's rule over the dimensions, slowest first.
        out = p if out is None else out * d + p
    return out if hasattr(out, "aval") and dtype is None else array(out, dtype)


def unravel_index(indices: ArrayLike, shape: Shape) -> tuple:
    """Convert indices into a flattened array to multi-dimensional indices.

    Args:
      indices: integers; negative ones count from the end, out-of-bounds ones are clipped.
      shape: shape of the array, an int or a tuple of ints.

    Returns:
      A tuple with one array per dimension, of the shape of `indices`.

    Raises:
      DTypeError: the indices are not integers.

    Examples:
      >>> [i.tolist() for i in jnp.unravel_index(jnp.array([1, 3]), (2, 2))]
      [[0, 1], [1, 1]]
    """
    shape = canonical_shape(shape, "unravel_index")
    return tuple(_unravel(to_operand(indices, "unravel_index"), shape))


@eager_jit(static_argnames=("shape",))
def _unravel(indices: Array, shape: tuple) -> list:
    total, given = math.prod(shape), indices.dtype
    check_integers("unravel_index, argument indices", indices)
    indices = widen_indices(indices, total)
    one = functools.partial(cast, dtype=indices.dtype)
    # An index out of bounds on either side selects the nearest element, as in a read. Clamping to [-total, total - 1]
    # comes first, so that negative indices are within bounds after `total` is added to them.
    is_signed = indices.dtype.kind == "i"
    indices = lax.clamp(one(-total if is_signed else 0), indices, one(total - 1))
    if is_signed:
        indices = select_where(lax.lt(indices, one(0)), indices + one(total), indices)
    out: list = []
    for d in reversed(shape):
        indices, rest = divmod(indices, one(d))
        out.append(cast(rest, given))
    return out[::-1]


def ix_(*args: Any) -> tuple:
    """Open mesh: index arrays that select the Cartesian product of given indices.

    Args:
      args: vectors of integers, or of booleans that are to be known.

    Returns:
      A tuple of integer arrays; array i has rank len(args) and varies along dimension i only.

    Raises:
      ShapeError: an operand is not a vector.

    Examples:
      >>> [i.shape for i in jnp.ix_(jnp.array([0, 1]), jnp.array([2]))]
      [(2, 1), (1, 1)]
    """
    out = []
    for i, a in enumerate(args):
        x = array(a) if isinstance(a, list | tuple) else to_operand(a, "ix_")
        check_vector(f"ix_, argument {i}", x)
        x = nonzero(x)[0] if x.dtype == np.bool_ else x if x.size else x.astype(int)
        out.append(lax.reshape(x, (1,) * i + (x.shape[0],) + (1,) * (len(args) - i - 1)))
    return tuple(out)


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
    vectors = [x if x.ndim else lax.reshape(x, (1,)) for x in vectors]
    # Cartesian indexing exchanges the first two dimensions of the result.
    places = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) >= 2:
        places[:2] = [1, 0]
    # The exchange is its own inverse: dimension d of the result belongs to vector places[d].
    sizes = [vectors[d].shape[0] for d in places]
    shapes = [tuple(n if not sparse or d == p else 1 for d, n in enumerate(sizes)) for p in places]
    return [lax.broadcast_in_dim(x, s, (p,)) for x, s, p in zip(vectors, shapes, places, strict=True)]


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
