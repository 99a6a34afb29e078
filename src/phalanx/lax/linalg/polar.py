"""The polar decomposition by dynamically weighted Halley iterations: `qdwh`.

Builds on QR and Cholesky factorisations; `scipy.linalg.polar` may call it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx.core.aval import aval_of
from phalanx.core.errors import ShapeError
from phalanx.lax.arithmetic import abs as magnitude
from phalanx.lax.arithmetic import add, div, max, mul, sub
from phalanx.lax.bits import bitwise_and, bitwise_not
from phalanx.lax.branches import cond
from phalanx.lax.broadcast import broadcast_in_dim, reduce_sum
from phalanx.lax.comparison import gt, le, lt
from phalanx.lax.convert import convert_element_type
from phalanx.lax.creation import broadcasted_iota
from phalanx.lax.dynamic_slice import dynamic_index_in_dim
from phalanx.lax.linalg.matrices import (
    adjoint,
    check_matrices,
    eye_like,
    masked,
    matmul,
    real_of,
    require_inexact,
    symmetrized,
)
from phalanx.lax.linalg.qr import qr
from phalanx.lax.linalg.triangular import cholesky, triangular_solve
from phalanx.lax.loops import while_loop
from phalanx.lax.reductions import reduce_max
from phalanx.lax.select import select
from phalanx.lax.shape import concatenate
from phalanx.lax.slicing import slice_in_dim
from phalanx.lax.transcendental import sqrt

# From this weight on a step by Cholesky factorisation would lose accuracy; the bound of the paper.
_QR_FROM = 100.0


def qdwh(
    x: Any,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[Any, Any] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Polar decomposition x = U H, with U of orthonormal columns and H Hermitian positive semi-definite.

    Args:
      x: num[m, n] with m >= n.
      is_hermitian: whether `x` is Hermitian, so that U is too.
      max_iterations: the iteration stops there, 10 if not given.
      eps: the precision to stop at; that of the dtype if not given.
      dynamic_shape: how many rows and columns of `x` count; the rest is taken as zero. Integers, traced or not.

    Returns:
      U num[m, n], H num[n, n], the number of iterations i32[], and whether they converged bool[].

    Raises:
      ShapeError: `x` is no matrix, or has more columns than rows.
      DTypeError: its dtype is not one that LAPACK has.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.lax import linalg
      >>> u, h, iterations, converged = linalg.qdwh(jnp.array([[0.0, -2.0], [3.0, 0.0]]))
      >>> [[f"{value:.3f}" for value in row] for row in u + h], bool(converged)
      ([['3.000', '-1.000'], ['1.000', '2.000']], True)

    Source: Nakatsukasa, Bai and Gygi (2010), doi:10.1137/090774999; Nakatsukasa and Higham (2013),
    doi:10.1137/120876605.
    """
    x = require_inexact(x)
    aval = aval_of(x)
    check_matrices("lax.linalg.qdwh", aval)
    if aval.ndim != 2 or aval.shape[0] < aval.shape[1]:
        raise ShapeError(
            "lax.linalg.qdwh",
            expected="a matrix of at least as many rows as columns",
            got=aval.str_short(),
            mend="decompose the adjoint, whose U is the adjoint of this one's; or vmap over a stack",
        )
    if dynamic_shape is not None:
        x = masked(x, bitwise_and(*[_below(aval.shape, dim, size) for dim, size in enumerate(dynamic_shape)]))
    dtype = real_of(aval.dtype)
    precision = float(np.finfo(dtype).eps) if eps is None else eps
    limit = 10 if max_iterations is None else max_iterations
    table = _weights(float(np.finfo(dtype).eps), limit).astype(dtype)
    tolerance = dtype.type((4 * precision) ** (1 / 3))

    def goes_on(state: tuple) -> Any:
        number, _, _, is_done = state
        return bitwise_and(lt(number, np.int32(limit)), bitwise_not(is_done))

    def step(state: tuple) -> tuple:
        number, u, _, _ = state
        a, b, c = [dynamic_index_in_dim(table[row], number, keepdims=False) for row in range(3)]
        new = cond(gt(c, dtype.type(_QR_FROM)), _step_by_qr, _step_by_cholesky, u, a, b, c)
        change, size = _frobenius(sub(new, u)), _frobenius(new)
        # The weights must have reached the plain iteration too: before, a small change says nothing.
        is_done = bitwise_and(le(change, mul(tolerance, size)), lt(c, dtype.type(3.1)))
        return add(number, np.int32(1)), new, change, is_done

    start = div(x, convert_element_type(_above_norm(x), aval.dtype))
    count, u, _, converged = while_loop(goes_on, step, (np.int32(0), start, dtype.type(0), np.bool_(False)))
    # One step of Newton and Schulz takes away what the last iteration left of the rounding errors.
    u = sub(mul(u, aval.dtype.type(1.5)), mul(matmul(u, matmul(adjoint(u), u)), aval.dtype.type(0.5)))
    if is_hermitian:
        u = symmetrized(u)
    return u, symmetrized(matmul(adjoint(u), x)), count, converged


def _weights(lower: float, count: int) -> np.ndarray:
    """The weights a, b, c of each iteration, given a lower bound of the singular values: f64[3, count]."""
    weights = []
    for _ in range(count):
        square = lower * lower
        root = math.sqrt(1 + (4 * (1 - square) / square**2) ** (1 / 3)) if square < 1 else 1.0
        inner = 8 - 4 * (root**2 - 1) + 8 * (2 - square) / (square * root)
        a = root + math.sqrt(inner) / 2
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        weights.append((a, b, c))
        lower = min(lower * (a + b * square) / (1 + c * square), 1.0)
    return np.array(weights).reshape(-1, 3).T


def _step_by_qr(u: Any, a: Any, b: Any, c: Any) -> Any:
    m, n = aval_of(u).shape
    dtype = aval_of(u).dtype
    stacked = concatenate([mul(u, _scalar(sqrt(c), dtype)), eye_like(u, n)], 0)
    q, _ = qr(stacked, full_matrices=False)
    upper, lower = slice_in_dim(q, 0, m), slice_in_dim(q, m, m + n)
    return _combined(u, matmul(upper, adjoint(lower)), div(b, c), div(sub(a, div(b, c)), sqrt(c)))


def _step_by_cholesky(u: Any, a: Any, b: Any, c: Any) -> Any:
    n, dtype = aval_of(u).shape[1], aval_of(u).dtype
    factor = cholesky(add(eye_like(u, n), mul(matmul(adjoint(u), u), _scalar(c, dtype))), symmetrize_input=False)
    solved = triangular_solve(factor, u, lower=True, transpose_a=True, conjugate_a=True)
    solved = triangular_solve(factor, solved, lower=True)
    return _combined(u, solved, div(b, c), sub(a, div(b, c)))


def _combined(u: Any, v: Any, s: Any, t: Any) -> Any:
    dtype = aval_of(u).dtype
    return add(mul(u, _scalar(s, dtype)), mul(v, _scalar(t, dtype)))


def _scalar(x: Any, dtype: Any) -> Any:
    return convert_element_type(x, dtype)


def _above_norm(x: Any) -> Any:
    """An upper bound of the largest singular value, 1 for a matrix of zeros."""
    sizes = magnitude(x)
    columns, rows = reduce_max(reduce_sum(sizes, (0,)), (0,)), reduce_max(reduce_sum(sizes, (1,)), (0,))
    bound = sqrt(mul(columns, rows))
    one = bound.dtype.type(1)
    return select(gt(bound, bound.dtype.type(0)), bound, one)


def _frobenius(x: Any) -> Any:
    """The Frobenius norm, scaled so that squares neither overflow nor vanish."""
    sizes = magnitude(x)
    dtype = aval_of(sizes).dtype
    largest = max(reduce_max(sizes, (0, 1)), np.finfo(dtype).tiny)
    scaled = div(sizes, broadcast_in_dim(largest, aval_of(sizes).shape, ()))
    return mul(largest, sqrt(reduce_sum(mul(scaled, scaled), (0, 1))))


def _below(shape: tuple, dim: int, size: Any) -> Any:
    """Whether the position along a dimension is below a size: bool[*shape]."""
    return lt(broadcasted_iota(np.int32, shape, dim), convert_element_type(size, np.dtype("int32")))
