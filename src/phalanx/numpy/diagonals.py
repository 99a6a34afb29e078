"""Diagonals and triangles of matrices: taken out, summed, filled, and made into matrices.

Builds on `shapes` and `lax`; `linalg`, `square_matrices` and `polynomial` call it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.numpy.creation import array, band_mask
from phalanx.numpy.operands import broadcast_to_shape, operand, refuse_out
from phalanx.numpy.reductions import sum
from phalanx.numpy.shapes import moveaxis, ravel, tile
from phalanx.numpy.taking import refuse_inplace
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_symbolic, max_dim, min_dim


@eager_program(static_argnames=("k",))
def tril(m: Any, k: int = 0) -> Any:
    """The matrix with zeros above a diagonal.

    Args:
      m: num[*batch, m, n]; a vector becomes each row of a square matrix.
      k: the last diagonal to keep: 0 the main one, above it positive.

    Returns:
      An array of that shape.

    Raises:
      ShapeError: `m` is a scalar.

    Examples:
      >>> jnp.tril(jnp.ones((2, 2))).tolist()
      [[1.0, 0.0], [1.0, 1.0]]
    """
    return _triangle(m, k, "ge", "tril")


@eager_program(static_argnames=("k",))
def triu(m: Any, k: int = 0) -> Any:
    """The matrix with zeros below a diagonal.

    Args:
      m: num[*batch, m, n]; a vector becomes each row of a square matrix.
      k: the first diagonal to keep: 0 the main one, above it positive.

    Returns:
      An array of that shape.

    Raises:
      ShapeError: `m` is a scalar.

    Examples:
      >>> jnp.triu(jnp.ones((2, 2))).tolist()
      [[1.0, 1.0], [0.0, 1.0]]
    """
    return _triangle(m, k - 1, "lt", "triu")


def _triangle(m: Any, k: int, how: str, name: str) -> Any:
    m = operand(m, name)
    if m.ndim < 2:
        if m.ndim == 0:
            raise ShapeError(name, expected="an array of rank 1 or more", got="a scalar", mend="reshape it to (1, 1)")
        m = lax.broadcast_in_dim(m, (m.shape[0], m.shape[0]), (1,))
    mask = band_mask(m.shape[-2:], k, how)
    mask = broadcast_to_shape(mask, m.shape)
    return lax.select_n_p(mask, m.dtype.type(0), m)


@eager_program(static_argnames=("k",))
def diag(v: Any, k: int = 0) -> Any:
    """The diagonal of a matrix, or the matrix with a given diagonal.

    Args:
      v: a matrix or a vector.
      k: which diagonal: 0 the main one, above it positive.

    Returns:
      A vector, or a square matrix with zeros off the diagonal.

    Raises:
      ShapeError: the rank is neither 1 nor 2.

    Examples:
      >>> jnp.diag(jnp.array([1, 2])).tolist()
      [[1, 0], [0, 2]]
    """
    v = operand(v, "diag")
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ShapeError("diag", expected="a vector or a matrix", got=f"an array of shape {v.shape}", mend="ravel it")
    n = v.shape[0] + abs(k)
    if k:
        v = lax.pad(v, v.dtype.type(0), ((max(0, k), max(0, -k), 0),))
    wide = lax.broadcast_in_dim(v, (n, n), (1,))
    return lax.select_n_p(band_mask((n, n), k, "eq"), v.dtype.type(0), wide)


def diagflat(v: Any, k: int = 0) -> Any:
    """The matrix with all elements of an array as its diagonal.

    Args:
      v: an array or a scalar, raveled.
      k: which diagonal: 0 the main one, above it positive.

    Returns:
      A square matrix.

    Examples:
      >>> jnp.diagflat(jnp.ones((1, 2))).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    return diag(ravel(v), k)


@eager_program(static_argnames=("offset", "axis1", "axis2"))
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonals of the matrices along two axes, as the last dimension.

    Args:
      a: of rank 2 or more.
      offset: which diagonal: 0 the main one, above it positive.
      axis1, axis2: along which the matrices lie.

    Returns:
      An array of one rank less.

    Raises:
      ShapeError: the rank is below 2.

    Examples:
      >>> jnp.diagonal(jnp.array([[1, 2], [3, 4]])).tolist()
      [1, 4]
    """
    a = operand(a, "diagonal")
    if a.ndim < 2:
        raise ShapeError(
            "diagonal", expected="an array of rank 2 or more", got=f"an array of shape {a.shape}", mend="reshape it"
        )
    a = moveaxis(a, (axis1, axis2), (-2, -1))
    rows, columns = a.shape[-2:]
    first_row, first_column = max(0, -offset), max(0, offset)
    n = max_dim(0, min_dim(rows - first_row, columns - first_column))
    if n == 0:
        return lax.full((*a.shape[:-2], 0), 0, a.dtype)
    # Cut to whole rows of the flat matrix: there the diagonal has a constant stride, so no gather is needed.
    flat = lax.reshape(a, (*a.shape[:-2], rows * columns))
    start = first_row * columns + first_column
    stop = start + (n - 1) * (columns + 1) + 1
    return lax.slice_in_dim(flat, start, stop, columns + 1, axis=flat.ndim - 1)


@eager_program(static_argnames=("offset", "axis1", "axis2", "dtype"))
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    """The sum of a diagonal.

    Args:
      a: of rank 2 or more.
      offset, axis1, axis2: as in `diagonal`.
      dtype: as in `sum`.
      out: must be None.

    Returns:
      An array without the two axes.

    Raises:
      ArgumentError: `out` is given.
      ShapeError: the rank is below 2.

    Examples:
      >>> jnp.trace(jnp.array([[1, 2], [3, 4]])).item()
      5
    """
    refuse_out(out, "trace")
    return sum(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Any:
    """A copy of a matrix with its main diagonal replaced.

    Args:
      a: a matrix, or an array whose dimensions are equal.
      val: a scalar, or values to repeat along the diagonal.
      wrap: must be False.
      inplace: must be False, since arrays do not change.

    Returns:
      An array of the shape and dtype of `a`.

    Raises:
      ArgumentError: `inplace` is True, or `wrap` is.
      ShapeError: `a` is neither.

    Examples:
      >>> jnp.fill_diagonal(jnp.zeros((2, 2)), 1.0, inplace=False).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    refuse_inplace(inplace, "fill_diagonal")
    if wrap:
        raise ArgumentError("fill_diagonal, argument wrap", expected="False", got=True, mend="leave it out")
    x, val = operand(a, "fill_diagonal"), array(val) if isinstance(val, list | tuple) else operand(val, "fill_diagonal")
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) != 1):
        raise ShapeError(
            "fill_diagonal", expected="a matrix, or an array with equal dimensions", got=x.shape, mend="cut it"
        )
    n = functools.reduce(min_dim, x.shape)
    i = lax.iota(np.dtype(np.int32), n) if is_symbolic(n) else np.arange(n)
    if val.ndim:
        val = ravel(val)
        val = (tile(val, -(-n // val.shape[0])) if val.shape[0] < n else val)[:n]
    return x.at[(i,) * x.ndim].set(val) if hasattr(x, "at") else array(x).at[(i,) * x.ndim].set(val)
