"""Rank, pseudo-inverse and least-squares solutions, from the singular value decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, dtypes
from phalanx.custom_rules import custom_jvp
from phalanx.numpy.creation.array_creation import eye
from phalanx.numpy.indexing.where import where
from phalanx.numpy.linalg.matrix_decompositions import _static, svd
from phalanx.numpy.linalg.norms import _max_or_zero
from phalanx.numpy.linalg.square_matrices import adjoint, check_matrix
from phalanx.numpy.operands import cast, promote_inexact, to_operand
from phalanx.numpy.products.matrix_products import matmul as _matmul
from phalanx.numpy.reductions.array_reductions import sum as _sum
from phalanx.numpy.ufuncs.ufunc_implementations import squared_magnitudes
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import max_dim
from phalanx.typing import Array, ArrayLike


@_static
def matrix_rank(
    M: ArrayLike, rtol: ArrayLike | None = None, *, hermitian: bool = False, tol: ArrayLike | None = None
) -> Array:
    """Rank of matrices: the number of singular values above a tolerance.

    Args:
      M: matrices num[*batch, m, n]; for a vector or scalar the rank is 1 unless all elements are 0.
      rtol: the absolute tolerance (the name follows JAX); by default max(S) * max(m, n) * eps.
      hermitian: promise that `M` is Hermitian, which allows a cheaper algorithm.
      tol: NumPy's name for the same tolerance.

    Returns:
      int[*batch].

    Raises:
      ArgumentError: both tolerances are given.

    Examples:
      >>> jnp.linalg.matrix_rank(jnp.eye(3)).item()
      3
    """
    if rtol is not None and tol is not None:
        raise ArgumentError("linalg.matrix_rank", expected="rtol or tol", got="both", fix="pass rtol or tol, not both")
    x = to_operand(M, "linalg.matrix_rank")
    if x.ndim < 2:
        return lax.reduce_or(lax.ne(x, x.dtype.type(0)), tuple(range(x.ndim))).astype(int)
    tol = tol if rtol is None else rtol
    s = svd(x, compute_uv=False, hermitian=hermitian)
    if tol is None:
        tol = _max_or_zero(s, axis=-1) * (max_dim(*x.shape[-2:]) * float(dtypes.finfo(s.dtype).eps))
    return _sum((s > lax.expand_dims(to_operand(tol, "linalg.matrix_rank"), (-1,))).astype(int), axis=-1)


@_static
def pinv(
    a: ArrayLike, rtol: ArrayLike | None = None, hermitian: bool = False, *, rcond: ArrayLike | None = None
) -> Array:
    """Moore-Penrose pseudo-inverse of matrices.

    Args:
      a: num[*batch, m, n].
      rtol, rcond: new and old name of the relative cutoff: singular values below it times the largest count as 0.
      hermitian: promise that `a` is Hermitian, which allows a cheaper algorithm.

    Returns:
      num[*batch, n, m].

    Raises:
      ArgumentError: both `rtol` and `rcond` are given.
      ShapeError: the rank is below 2.

    Examples:
      >>> jnp.linalg.pinv(jnp.array([[2.0]])).tolist()
      [[0.5]]
    """
    x = check_matrix(a, "pinv")
    if rtol is not None and rcond is not None:
        raise ArgumentError(
            "linalg.pinv", expected="rtol or its older name rcond", got="both", fix="pass rtol or rcond, not both"
        )
    rtol = rcond if rtol is None else rtol
    if rtol is None:
        rtol = 10.0 * max_dim(*x.shape[-2:]) * float(dtypes.finfo(x.dtype).eps)

    @custom_jvp
    def inverse(x: Array) -> Any:
        u, s, vh = svd(x, full_matrices=False, hermitian=hermitian)
        bound = cast(to_operand(rtol, "linalg.pinv"), s.dtype) * s[..., :1]
        # Dividing by infinity drops a singular value without a division by 0, also in the gradient.
        s = where(s > bound, s, np.inf).astype(s.dtype)
        return _matmul(adjoint(vh), cast(1 / s, x.dtype)[..., :, None] * adjoint(u))

    @inverse.defjvp
    def inverse_jvp(primals: tuple, tangents: tuple) -> tuple:
        # Golub & Pereyra (1973): the derivative where the rank does not change.
        (x,), (x_dot,) = primals, tangents
        p = inverse(x)
        m, n = x.shape[-2:]
        left = eye(n, dtype=x.dtype) - _matmul(p, x)
        right = eye(m, dtype=x.dtype) - _matmul(x, p)
        # dp = -p dx p + p p^H dx^H (1 - x p) + (1 - p x) dx^H p^H p.
        ph = adjoint(p)
        p_dot = -_matmul(_matmul(p, x_dot), p)
        p_dot = p_dot + _matmul(_matmul(_matmul(p, ph), adjoint(x_dot)), right)
        return p, p_dot + _matmul(left, _matmul(adjoint(x_dot), _matmul(ph, p)))

    return inverse(x)


def lstsq(a: ArrayLike, b: ArrayLike, rcond: float | None = None, *, numpy_resid: bool = False) -> tuple:
    """Least-squares solution of a linear system.

    Args:
      a: num[m, n].
      b: right-hand sides, num[m] or num[m, k].
      rcond: relative cutoff: singular values below it times the largest count as 0.
      numpy_resid: return an empty array of residuals where NumPy does.

    Returns:
      A tuple: solution [n] or [n, k], sums of squared residuals [k], rank, and singular values in descending order.

    Raises:
      ShapeError: `a` is not a matrix, or `b` has another number of rows.

    Examples:
      >>> round(jnp.linalg.lstsq(jnp.array([[1.0], [1.0]]), jnp.array([1.0, 3.0]))[0].item(), 5)
      2.0
    """
    x, residuals, rank, s = _lstsq(a, b, rcond)
    if numpy_resid and (int(rank) < np.shape(a)[1] or np.shape(a)[0] <= np.shape(a)[1]):
        residuals = residuals[:0]
    return x, residuals, rank, s


@eager_jit
def _lstsq(a: Array, b: Array, rcond: ArrayLike | None) -> tuple:
    x, y = promote_inexact("linalg.lstsq", to_operand(a, "linalg.lstsq"), to_operand(b, "linalg.lstsq"))
    if x.ndim != 2 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        raise ShapeError(
            "linalg.lstsq",
            expected="a matrix and right-hand sides of as many rows",
            got=f"{x.shape} and {y.shape}",
            fix="give b as many rows as a, for example with b[:, None]",
        )
    vector = y.ndim == 1
    y = y[:, None] if vector else y
    m, n = x.shape
    rcond = float(dtypes.finfo(x.dtype).eps) * max_dim(m, n) if rcond is None else rcond
    u, s, vh = svd(x, full_matrices=False)
    # Singular values below the cutoff do not contribute to the solution.
    mask = (s > 0) & (s >= cast(to_operand(rcond, "linalg.lstsq"), s.dtype) * s[:1])
    rank = _sum(mask.astype(int))
    # The divisor is replaced before the division: otherwise the gradient of the unselected branch is NaN.
    safe = where(mask, s, 1).astype(s.dtype)
    inverse = where(mask, 1 / safe, 0).astype(x.dtype)[:, None]
    solution = _matmul(adjoint(vh), inverse * _matmul(adjoint(u), y))
    residuals = _sum(squared_magnitudes(y - _matmul(x, solution)), axis=0)
    return (solution[:, 0] if vector else solution), residuals, rank, s
