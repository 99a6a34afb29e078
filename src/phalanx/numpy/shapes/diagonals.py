"""Diagonals and triangles of matrices: `diag`, `diagonal`, `trace`, `tril`, `triu`, `fill_diagonal`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError
from phalanx.numpy.creation.array_creation import array, band_mask
from phalanx.numpy.operands import broadcast_to_shape, refuse_inplace, refuse_out, to_operand, to_static_int
from phalanx.numpy.reductions.array_reductions import sum
from phalanx.numpy.shapes.rearranging import tile
from phalanx.numpy.shapes.reshaping import moveaxis, ravel
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic, max_dim, min_dim
from phalanx.typing import Array, ArrayLike, DTypeLike


@eager_jit(static_argnames=("k",))
def tril(m: ArrayLike, k: int = 0) -> Array:
    """Lower triangle of a matrix: elements above the k-th diagonal are zeroed.

    Args:
      m: num[*batch, m, n]; a vector is repeated as the rows of a square matrix.
      k: uppermost diagonal to keep: 0 for the main one, positive above it.

    Returns:
      An array of the same shape.

    Raises:
      ShapeError: `m` is a scalar.

    Examples:
      >>> jnp.tril(jnp.ones((2, 2))).tolist()
      [[1.0, 0.0], [1.0, 1.0]]
    """
    return _triangle(m, to_static_int(k, "tril, argument k"), "ge", "tril")


@eager_jit(static_argnames=("k",))
def triu(m: ArrayLike, k: int = 0) -> Array:
    """Upper triangle of a matrix: elements below the k-th diagonal are zeroed.

    Args:
      m: num[*batch, m, n]; a vector is repeated as the rows of a square matrix.
      k: lowermost diagonal to keep: 0 for the main one, positive above it.

    Returns:
      An array of the same shape.

    Raises:
      ShapeError: `m` is a scalar.

    Examples:
      >>> jnp.triu(jnp.ones((2, 2))).tolist()
      [[1.0, 1.0], [0.0, 1.0]]
    """
    return _triangle(m, to_static_int(k, "triu, argument k") - 1, "lt", "triu")


def _triangle(m: Array, k: int, how: str, name: str) -> Any:
    m = to_operand(m, name)
    if m.ndim < 2:
        if m.ndim == 0:
            raise ShapeError(name, expected="an array of rank 1 or more", got="a scalar", fix="reshape it to (1, 1)")
        # As in NumPy, a vector is repeated as the rows of a square matrix.
        m = lax.broadcast_in_dim(m, (m.shape[0], m.shape[0]), (1,))
    mask = broadcast_to_shape(band_mask(m.shape[-2:], k, how), m.shape)
    return lax.select_n_p(mask, m.dtype.type(0), m)


@eager_jit(static_argnames=("k",))
def diag(v: ArrayLike, k: int = 0) -> Array:
    """Extract the diagonal of a matrix, or build a matrix from a diagonal.

    Args:
      v: a matrix or a vector.
      k: index of the diagonal: 0 for the main one, positive above it.

    Returns:
      A vector, or a square matrix with zeros off the diagonal.

    Raises:
      ShapeError: the rank is neither 1 nor 2.

    Examples:
      >>> jnp.diag(jnp.array([1, 2])).tolist()
      [[1, 0], [0, 2]]
    """
    v, k = to_operand(v, "diag"), to_static_int(k, "diag, argument k")
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ShapeError(
            "diag",
            expected="a vector or a matrix",
            got=f"an array of shape {v.shape}",
            fix="flatten it with v.ravel(), or use phalanx.numpy.diagonal for stacks of matrices",
        )
    n = v.shape[0] + abs(k)
    if k:
        v = lax.pad(v, v.dtype.type(0), ((max(0, k), max(0, -k), 0),))
    # A select over a broadcast: a scatter would be slower and harder to shard.
    wide = lax.broadcast_in_dim(v, (n, n), (1,))
    return lax.select_n_p(band_mask((n, n), k, "eq"), v.dtype.type(0), wide)


def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """A matrix with the flattened input as a diagonal.

    Args:
      v: an array or a scalar, raveled.
      k: index of the diagonal: 0 for the main one, positive above it.

    Returns:
      A square matrix.

    Examples:
      >>> jnp.diagflat(jnp.ones((1, 2))).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    return diag(ravel(v), k)


@eager_jit(static_argnames=("offset", "axis1", "axis2"))
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Diagonals of the matrices along two axes.

    Args:
      a: array of rank 2 or more.
      offset: index of the diagonal: 0 for the main one, positive above it.
      axis1, axis2: axes that hold the rows and the columns.

    Returns:
      The other dimensions, followed by the diagonal.

    Raises:
      ShapeError: the rank is below 2.

    Examples:
      >>> jnp.diagonal(jnp.array([[1, 2], [3, 4]])).tolist()
      [1, 4]
    """
    a = to_operand(a, "diagonal")
    if a.ndim < 2:
        raise ShapeError(
            "diagonal",
            expected="an array of rank 2 or more",
            got=f"an array of shape {a.shape}",
            fix="give the array two dimensions, for example with a[:, None]",
        )
    a, offset = moveaxis(a, (axis1, axis2), (-2, -1)), to_static_int(offset, "diagonal, argument offset")
    rows, columns = a.shape[-2:]
    first_row, first_column = max(0, -offset), max(0, offset)
    n = max_dim(0, min_dim(rows - first_row, columns - first_column))
    if n == 0:
        return lax.full((*a.shape[:-2], 0), 0, a.dtype)
    # Cut to whole rows of the flat matrix: there the diagonal has a constant stride, so no gather is needed.
    flat = lax.reshape(a, (*a.shape[:-2], rows * columns))
    start = first_row * columns + first_column
    return lax.slice_in_dim(flat, start, start + (n - 1) * (columns + 1) + 1, columns + 1, axis=flat.ndim - 1)


@eager_jit(static_argnames=("offset", "axis1", "axis2", "dtype"))
def trace(
    a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Sum along a diagonal.

    Args:
      a: array of rank 2 or more.
      offset, axis1, axis2: as in `diagonal`.
      dtype: as in `sum`.
      out: must be None; arrays are immutable.

    Returns:
      An array without the two axes.

    Raises:
      UnsupportedArgumentError: `out` is given.
      ShapeError: the rank is below 2.

    Examples:
      >>> jnp.trace(jnp.array([[1, 2], [3, 4]])).item()
      5
    """
    refuse_out(out, "trace")
    return sum(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = True) -> Array:
    """A copy of an array with its main diagonal filled.

    Args:
      a: a matrix, or an array whose dimensions are equal.
      val: scalar or array of values, repeated along the diagonal.
      wrap: must be False.
      inplace: must be False; arrays are immutable.

    Returns:
      An array of the shape and dtype of `a`.

    Raises:
      ArgumentError: `inplace` is True, or `wrap` is.
      ShapeError: `a` is not a matrix, and its dimensions differ.

    Examples:
      >>> jnp.fill_diagonal(jnp.zeros((2, 2)), 1.0, inplace=False).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    refuse_inplace(inplace, "fill_diagonal")
    if wrap:
        raise ArgumentError(
            "fill_diagonal, argument wrap",
            expected="False",
            got=True,
            fix="leave wrap out, and fill the blocks of a tall matrix one by one",
        )
    x, val = (
        to_operand(a, "fill_diagonal"),
        array(val) if isinstance(val, list | tuple) else to_operand(val, "fill_diagonal"),
    )
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) != 1):
        raise ShapeError(
            "fill_diagonal",
            expected="a matrix, or an array with equal dimensions",
            got=x.shape,
            fix="pass a matrix, or slice the array to equal dimensions",
        )
    n = functools.reduce(min_dim, x.shape)
    i = lax.iota(np.dtype(np.int32), n) if is_symbolic(n) else np.arange(n)
    if val.ndim:
        val = ravel(val)
        val = (tile(val, -(-n // val.shape[0])) if val.shape[0] < n else val)[:n]
    return x.at[(i,) * x.ndim].set(val) if hasattr(x, "at") else array(x).at[(i,) * x.ndim].set(val)
