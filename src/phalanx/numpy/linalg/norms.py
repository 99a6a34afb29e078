"""Norms of vectors and matrices, and condition numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError
from phalanx.numpy.indexing.where import where
from phalanx.numpy.linalg.matrix_decompositions import _static, svd
from phalanx.numpy.linalg.square_matrices import check_matrix, inv
from phalanx.numpy.operands import canonical_axes, promote_inexact, to_operand
from phalanx.numpy.reductions.array_reductions import max as _max, min as _min, sum as _sum
from phalanx.numpy.shapes.reshaping import moveaxis
from phalanx.numpy.ufuncs import ufunc_table
from phalanx.numpy.ufuncs.ufunc_implementations import squared_magnitudes
from phalanx.typing import Array, ArrayLike, Axis


@_static
def norm(x: ArrayLike, ord: int | float | str | None = None, axis: Axis = None, keepdims: bool = False) -> Array:
    """Norm of vectors or matrices.

    Args:
      x: array or scalar.
      ord: a number or ±inf; for matrices ±1, ±2, ±inf, `"fro"` or `"nuc"`; None for the 2-norm of the elements.
      axis: the axis of the vectors, or the two axes of the matrices; None for all axes.
      keepdims: keep the reduced dimensions with size 1.

    Returns:
      A real array of the shape of `x` without the axes.

    Raises:
      ArgumentError: `ord` is unknown, or more than two axes are given.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.linalg.norm(jnp.array([3.0, 4.0])).item()
      5.0
    """
    (x,) = promote_inexact("linalg.norm", to_operand(x, "linalg.norm"))
    axes = canonical_axes(axis, x.ndim, "linalg.norm")
    if axis is None and ord is None:
        return _two_norm(x, axes, keepdims)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise ArgumentError(
        "linalg.norm, argument axis",
        expected="one axis or two",
        got=axis,
        fix="flatten the array, or use linalg.vector_norm, which takes any number of axes",
    )


def _max_or_zero(magnitudes: Array, axis: Axis, keepdims: bool = False) -> Any:
    """The maximum of non-negative numbers, which is 0 for an empty axis."""
    return _max(magnitudes, axis=axis, keepdims=keepdims, initial=0)


def _two_norm(x: Array, axes: tuple, keepdims: bool = False) -> Any:
    return ufunc_table.sqrt(_sum(squared_magnitudes(x), axis=axes, keepdims=keepdims))


def _vector_norm(x: Array, ord: int | float | str | None, axes: tuple, keepdims: bool) -> Any:
    if ord is None or ord == 2:
        return _two_norm(x, axes, keepdims)
    if isinstance(ord, str | list | tuple):
        raise ArgumentError(
            "linalg.norm, argument ord",
            expected="a number for vectors",
            got=repr(ord),
            fix="pass a number, for example ord=2, or leave ord out",
        )
    if ord == np.inf:
        return _max_or_zero(ufunc_table.absolute(x), axis=axes, keepdims=keepdims)
    if ord == -np.inf:
        return _min(ufunc_table.absolute(x), axis=axes, keepdims=keepdims)
    if ord == 0:
        return _sum((x != 0).astype(ufunc_table.absolute(x).dtype), axis=axes, keepdims=keepdims)
    if ord == 1:
        return _sum(ufunc_table.absolute(x), axis=axes, keepdims=keepdims)
    return _sum(ufunc_table.absolute(x) ** ord, axis=axes, keepdims=keepdims) ** (1.0 / ord)


def _matrix_norm(x: Array, ord: int | float | str | None, axes: tuple, keepdims: bool) -> Any:
    if ord in (None, "f", "fro"):
        return _two_norm(x, axes, keepdims)
    if ord in ("nuc", 2, -2):
        # The nuclear norm is the sum of the singular values, the 2-norm the largest, the -2-norm the smallest.
        s = svd(moveaxis(x, axes, (-2, -1)), compute_uv=False)
        out = _sum(s, axis=-1) if ord == "nuc" else (_max_or_zero if ord == 2 else _min)(s, axis=-1)
        return lax.expand_dims(out, tuple(sorted(axes))) if keepdims else out
    if ord not in (1, -1, np.inf, -np.inf):
        raise ArgumentError(
            "linalg.norm, argument ord",
            expected="None, 'fro', 'nuc', 1, 2, inf or their negatives",
            got=repr(ord),
            fix="pass one of the listed orders",
        )
    # ord = 1 is the largest column sum, ord = inf the largest row sum; negative orders take the smallest.
    first, second = axes if abs(ord) == 1 else axes[::-1]
    sums = _sum(ufunc_table.absolute(x), axis=first, keepdims=True)
    out = (_max_or_zero if ord > 0 else _min)(sums, axis=second, keepdims=True)
    return out if keepdims else lax.squeeze(out, tuple(sorted(axes)))


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: int | float | str = "fro") -> Array:
    """Norm of the matrices along the last two axes.

    Args:
      x: matrices, num[*batch, m, n].
      keepdims, ord: as in `norm`.

    Returns:
      float[*batch].

    Examples:
      >>> jnp.linalg.matrix_norm(jnp.array([[3.0, 4.0]])).item()
      5.0
    """
    return norm(x, ord, (-2, -1), keepdims)


@_static
def vector_norm(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False, ord: int | float | str = 2) -> Array:
    """Norm of vectors along axes, by default of the flattened array.

    Args:
      x: array or scalar.
      axis: axis or tuple of axes; None for all.
      keepdims, ord: as in `norm` for vectors.

    Returns:
      A real array of the shape of `x` without the axes.

    Examples:
      >>> jnp.linalg.vector_norm(jnp.array([3.0, 4.0])).item()
      5.0
    """
    (x,) = promote_inexact("linalg.vector_norm", to_operand(x, "linalg.vector_norm"))
    return _vector_norm(x, ord, canonical_axes(axis, x.ndim, "linalg.vector_norm"), keepdims)


@_static
def cond(x: ArrayLike, p: ArrayLike | None = None) -> Array:
    """Condition number of matrices.

    Args:
      x: matrices, num[*batch, m, n].
      p: 2 (or None) or -2 for a ratio of singular values, otherwise a matrix norm as in `norm`.

    Returns:
      float[*batch].

    Raises:
      ShapeError: the rank is below 2, a matrix is empty, or is not square when another norm is used.

    Examples:
      >>> jnp.linalg.cond(jnp.array([[4.0, 0.0], [0.0, 2.0]])).item()
      2.0
    """
    by_svd = p in (None, 2, -2)
    x = check_matrix(x, "cond", square=not by_svd)
    if 0 in x.shape[-2:]:
        raise ShapeError(
            "linalg.cond", expected="matrices with elements", got=x.shape, fix="handle empty matrices separately"
        )
    if by_svd:
        s = svd(x, compute_uv=False)
        r = s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0]
    else:
        r = norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))
    # A singular matrix gives 0 / 0 or inf * 0: the condition number is then infinite, unless the input has NaNs.
    return where(lax.ne(r, r) & ~lax.reduce_or(lax.ne(x, x), (x.ndim - 2, x.ndim - 1)), np.inf, r)
