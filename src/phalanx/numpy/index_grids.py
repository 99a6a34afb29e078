"""Index arrays of regular places: diagonals, triangles, grids, and positions in raveled arrays.

Builds on `taking` and `joining`; users call it.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.numpy.bodies import choose
from phalanx.numpy.creation import array
from phalanx.numpy.joining import stack
from phalanx.numpy.operands import canonical_shape, cast, host_operand, operand
from phalanx.numpy.ranges import arange
from phalanx.numpy.rounding import clip
from phalanx.numpy.taking import known_mask, nonzero
from phalanx.numpy.ufuncs import divmod
from phalanx.runtime.dispatch import eager_program


def diag_indices(n: int, ndim: int = 2) -> tuple:
    """The index arrays of a main diagonal.

    Args:
      n: the length of the diagonal.
      ndim: the number of dimensions.

    Returns:
      A tuple of `ndim` vectors int[n].

    Examples:
      >>> [i.tolist() for i in jnp.diag_indices(2)]
      [[0, 1], [0, 1]]
    """
    return (arange(n),) * ndim


def diag_indices_from(arr: Any) -> tuple:
    """The index arrays of the main diagonal of a square array.

    Args:
      arr: of rank 2 or more, all dimensions equal.

    Returns:
      A tuple of a vector for each dimension.

    Raises:
      ShapeError: the dimensions differ.

    Examples:
      >>> [i.tolist() for i in jnp.diag_indices_from(jnp.zeros((2, 2)))]
      [[0, 1], [0, 1]]
    """
    x = operand(arr, "diag_indices_from")
    if x.ndim < 2 or len(set(x.shape)) != 1:
        raise ShapeError("diag_indices_from", expected="an array of rank 2 or more with equal dimensions", got=x.shape,
                         mend="use diag_indices")  # fmt: skip
    return diag_indices(x.shape[0], x.ndim)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """The index arrays of a lower triangle.

    Args:
      n, m: the numbers of rows and columns; m is n by default.
      k: the last diagonal to take: 0 the main one, above it positive.

    Returns:
      A tuple of rows and columns, two vectors of integers.

    Examples:
      >>> [i.tolist() for i in jnp.tril_indices(2)]
      [[0, 1, 1], [0, 0, 1]]
    """
    return tuple(map(array, np.tril_indices(n, k, m)))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """The index arrays of an upper triangle.

    Args:
      n, m: the numbers of rows and columns; m is n by default.
      k: the first diagonal to take: 0 the main one, above it positive.

    Returns:
      A tuple of rows and columns, two vectors of integers.

    Examples:
      >>> [i.tolist() for i in jnp.triu_indices(2)]
      [[0, 0, 1], [0, 1, 1]]
    """
    return tuple(map(array, np.triu_indices(n, k, m)))


def tril_indices_from(arr: Any, k: int = 0) -> tuple:
    """The index arrays of the lower triangle of a matrix.

    Args:
      arr: a matrix, of which the shape counts.
      k: as in `tril_indices`.

    Returns:
      A tuple of rows and columns, two vectors of integers.

    Raises:
      ShapeError: `arr` is no matrix.

    Examples:
      >>> len(jnp.tril_indices_from(jnp.zeros((2, 2)))[0])
      3
    """
    return tril_indices(_matrix_shape(arr, "tril_indices_from")[0], k, arr.shape[1])


def triu_indices_from(arr: Any, k: int = 0) -> tuple:
    """The index arrays of the upper triangle of a matrix.

    Args:
      arr: a matrix, of which the shape counts.
      k: as in `triu_indices`.

    Returns:
      A tuple of rows and columns, two vectors of integers.

    Raises:
      ShapeError: `arr` is no matrix.

    Examples:
      >>> len(jnp.triu_indices_from(jnp.zeros((2, 2)))[0])
      3
    """
    return triu_indices(_matrix_shape(arr, "triu_indices_from")[0], k, arr.shape[1])


def _matrix_shape(arr: Any, name: str) -> tuple:
    if arr.ndim != 2:
        raise ShapeError(name, expected="a matrix", got=arr.shape, mend="give an array of rank 2")
    return arr.shape


def mask_indices(n: int, mask_func: Any, k: int = 0, *, size: int | None = None) -> tuple:
    """The index arrays of what a mask function leaves of a matrix of ones.

    Args:
      n: the number of rows and of columns.
      mask_func: takes the matrix and `k`, such as `triu`.
      k: passed to the function.
      size: how many to give; needed under tracing.

    Returns:
      A tuple of rows and columns, two vectors of integers.

    Examples:
      >>> [i.tolist() for i in jnp.mask_indices(2, jnp.triu)]
      [[0, 0, 1], [0, 1, 1]]
    """
    return nonzero(mask_func(lax.full((n, n), 1, np.dtype(np.float32)), k), size=size)


def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """The index of each place of an array of a shape, one array for each dimension.

    Args:
      dimensions: the shape, an int or a tuple of them.
      dtype: of the indices, the default integer one if None.
      sparse: leave each with size 1 along the other dimensions.

    Returns:
      dtype[rank, *dimensions], or with `sparse` a tuple of arrays.

    Raises:
      ArgumentTypeError: a dimension is no integer.

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


def ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C", *, dtype: Any = None) -> Any:
    """Positions in the raveled array of index tuples.

    Args:
      multi_index: one array for each dimension.
      dims: the shape.
      mode: for indices out of bounds, `"wrap"` or `"clip"`; `"raise"` needs values that are known.
      order: `"C"` or `"F"`.
      dtype: an integer dtype for the positions.

    Returns:
      Integers in the shape of the index arrays.

    Raises:
      ArgumentError: an index is out of bounds and `mode` is `"raise"`.
      ConcretizationTypeError: an index is traced and `mode` is `"raise"`.
      ShapeError: there are not as many index arrays as dimensions.

    Examples:
      >>> jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([1, 1])), (2, 2)).tolist()
      [1, 3]
    """
    parts = [host_operand(i, "ravel_multi_index") for i in multi_index]
    dims = canonical_shape(dims, "ravel_multi_index")
    if len(parts) != len(dims):
        raise ShapeError(
            "ravel_multi_index", expected=f"{len(dims)} index arrays", got=len(parts), mend="give one each"
        )
    if mode == "raise":
        for p, d in zip(parts, dims, strict=True):
            known = known_mask(p, "ravel_multi_index")
            if np.any((known < 0) | (known >= d)):
                raise ArgumentError(
                    "ravel_multi_index", expected=f"indices from 0 to {d - 1}", got=known.tolist(),
                    mend="give mode='clip' or mode='wrap'",
                )  # fmt: skip
    elif mode == "clip":
        parts = [clip(p, 0, d - 1) for p, d in zip(parts, dims, strict=True)]
    else:
        parts = [p % d for p, d in zip(parts, dims, strict=True)]
    pairs = list(zip(parts, dims, strict=True))
    pairs = pairs if order == "C" else pairs[::-1]
    out: Any = None
    for p, d in pairs:
        out = p if out is None else out * d + p
    return out if hasattr(out, "aval") and dtype is None else array(out, dtype)


def unravel_index(indices: Any, shape: Any) -> tuple:
    """Index tuples of positions in a raveled array.

    Args:
      indices: integers; negative ones count from the end, those out of bounds stand for the nearest place.
      shape: of the array, an int or a tuple of them.

    Returns:
      A tuple of an array for each dimension, in the shape of `indices`.

    Raises:
      DTypeError: the indices are no integers.

    Examples:
      >>> [i.tolist() for i in jnp.unravel_index(jnp.array([1, 3]), (2, 2))]
      [[0, 1], [1, 1]]
    """
    shape = canonical_shape(shape, "unravel_index")
    return tuple(_unravel(operand(indices, "unravel_index"), shape))


@eager_program(static_argnames=("shape",))
def _unravel(indices: Any, shape: tuple) -> list:
    total = math.prod(shape)
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise DTypeError("unravel_index, argument indices", expected="integers", got=str(indices.dtype), mend="convert")
    one = functools.partial(cast, dtype=indices.dtype)
    # Out of bounds on either side gives the nearest place, as for reading.
    indices = lax.clamp(one(-total), indices, one(total - 1))
    indices = choose(lax.lt(indices, one(0)), indices + one(total), indices)
    out: list = []
    for d in reversed(shape):
        indices, rest = divmod(indices, one(d))
        out.append(rest)
    return out[::-1]


def ix_(*args: Any) -> tuple:
    """Index arrays that choose the product of given positions.

    Args:
      args: vectors of integers, or of booleans that are to be known.

    Returns:
      A tuple of integer arrays, each along its own dimension of as many as there are vectors.

    Raises:
      ShapeError: an operand is no vector.

    Examples:
      >>> [i.shape for i in jnp.ix_(jnp.array([0, 1]), jnp.array([2]))]
      [(2, 1), (1, 1)]
    """
    out = []
    for i, a in enumerate(args):
        x = array(a) if isinstance(a, list | tuple) else operand(a, "ix_")
        if x.ndim != 1:
            raise ShapeError(f"ix_, argument {i}", expected="a vector", got=x.shape, mend="ravel it")
        x = nonzero(x)[0] if x.dtype == np.bool_ else x if x.size else x.astype(int)
        out.append(lax.reshape(x, (1,) * i + (x.shape[0],) + (1,) * (len(args) - i - 1)))
    return tuple(out)
