"""The polar decomposition by QR-based dynamically weighted Halley iterations: `qdwh`.

Builds on the QR and Cholesky factorizations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx.core import ShapeError, get_aval
from phalanx.lax.control_flow.cond import cond
from phalanx.lax.control_flow.while_loop import while_loop
from phalanx.lax.elementwise import (
    abs as magnitude,
    add,
    bitwise_and,
    bitwise_not,
    convert_element_type,
    div,
    gt,
    le,
    lt,
    max,
    mul,
    select,
    sqrt,
    sub,
)
from phalanx.lax.indexing.dynamic_slice import dynamic_index_in_dim
from phalanx.lax.indexing.static_slice import slice_in_dim
from phalanx.lax.linalg.cholesky import cholesky
from phalanx.lax.linalg.matrix_stacks import (
    adjoint,
    check_matrices,
    eye_like,
    mask_matrices,
    matmul,
    real_of,
    require_inexact,
    symmetrize,
)
from phalanx.lax.linalg.qr import qr
from phalanx.lax.linalg.triangular_solve import triangular_solve
from phalanx.lax.reductions.reduce_sum import reduce_sum
from phalanx.lax.reductions.reduction_family import reduce_max
from phalanx.lax.shape import broadcast_in_dim
from phalanx.lax.shape.concatenate import concatenate
from phalanx.lax.shape.iota_and_full import broadcasted_iota
from phalanx.typing import Array, ArrayLike, DimSize

# Above this weight, a step by Cholesky factorization would lose accuracy; the bound is that of Nakatsukasa and Higham.
_QR_FROM = 100.0


def qdwh(
    x: ArrayLike,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[Any, Any] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Polar decomposition x = U H, with U of orthonormal columns and H Hermitian positive semi-definite.

    Args:
      x: num[m, n] with m >= n.
      is_hermitian: whether `x` is Hermitian, so that U is Hermitian as well.
      max_iterations: the maximal number of iterations; 10 if None.
      eps: the precision at which the iteration stops; the precision of the dtype if None.
      dynamic_shape: the numbers of rows and columns of `x` to use, as integers or traced scalars; the rest is set to
        zero. None for all.

    Returns:
      U num[m, n], H num[n, n], the number of iterations i32[], and whether the iteration converged bool[].

    Raises:
      ShapeError: `x` is not a matrix, or has more columns than rows.
      DTypeError: its dtype is not float32, float64, complex64 or complex128.

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
    aval = get_aval(x)
    check_matrices("lax.linalg.qdwh", aval)
    if aval.ndim != 2 or aval.shape[0] < aval.shape[1]:
        raise ShapeError(
            "lax.linalg.qdwh",
            expected="a matrix of at least as many rows as columns",
            got=aval.str_short(),
            fix="decompose the adjoint, whose U is the adjoint of U; use vmap for batched matrices",
        )
    if dynamic_shape is not None:
        x = mask_matrices(x, bitwise_and(*[_below(aval.shape, dim, size) for dim, size in enumerate(dynamic_shape)]))
    dtype = real_of(aval.dtype)
    precision = float(np.finfo(dtype).eps) if eps is None else eps
    limit = 10 if max_iterations is None else max_iterations
    table = _weights(float(np.finfo(dtype).eps), limit).astype(dtype)
    tolerance = dtype.type((4 * precision) ** (1 / 3))

    def is_running(state: tuple) -> Any:
        number, _, _, is_done = state
        return bitwise_and(lt(number, np.int32(limit)), bitwise_not(is_done))

    def step(state: tuple) -> tuple:
        number, u, _, _ = state
        a, b, c = [dynamic_index_in_dim(table[row], number, keepdims=False) for row in range(3)]
        new = cond(gt(c, dtype.type(_QR_FROM)), _step_by_qr, _step_by_cholesky, u, a, b, c)
        change, size = _frobenius(sub(new, u)), _frobenius(new)
        # A small change means convergence only after the weights have reached the plain Halley iteration's (3).
        is_done = bitwise_and(le(change, mul(tolerance, size)), lt(c, dtype.type(3.1)))
        return add(number, np.int32(1)), new, change, is_done

    start = div(x, convert_element_type(_above_norm(x), aval.dtype))
    count, u, _, converged = while_loop(is_running, step, (np.int32(0), start, dtype.type(0), np.bool_(False)))
    # A Newton-Schulz step removes the rounding errors of the iteration.
    u = sub(mul(u, aval.dtype.type(1.5)), mul(matmul(u, matmul(adjoint(u), u)), aval.dtype.type(0.5)))
    u = symmetrize(u) if is_hermitian else u
    return u, symmetrize(matmul(adjoint(u), x)), count, converged


def _weights(lower: float, count: int) -> np.ndarray:
    """Compute the weights a, b, c of each iteration from a lower bound of the singular values: f64[3, count]."""
    weights = []
    for _ in range(count):
        square = lower * lower
        # The best rational function of type (3, 2) on [lower, 1]: Nakatsukasa, Bai and Gygi (2010).
        root = math.sqrt(1 + (4 * (1 - square) / square**2) ** (1 / 3)) if square < 1 else 1.0
        a = root + math.sqrt(8 - 4 * (root**2 - 1) + 8 * (2 - square) / (square * root)) / 2
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        weights.append((a, b, c))
        lower = min(lower * (a + b * square) / (1 + c * square), 1.0)
    return np.array(weights).reshape(-1, 3).T


def _step_by_qr(u: Array, a: Array, b: Array, c: Array) -> Any:
    m, n = get_aval(u).shape
    dtype = get_aval(u).dtype
    # The weighted Halley step b/c U + (a - b/c)/sqrt(c) Q1 Q2^H from the QR factorization of [sqrt(c) U; I], which is
    # backward stable for every condition number.
    q, _ = qr(concatenate([mul(u, convert_element_type(sqrt(c), dtype)), eye_like(u, n)], 0), full_matrices=False)
    upper, lower = slice_in_dim(q, 0, m), slice_in_dim(q, m, m + n)
    return _combine(u, matmul(upper, adjoint(lower)), div(b, c), div(sub(a, div(b, c)), sqrt(c)))


def _step_by_cholesky(u: Array, a: Array, b: Array, c: Array) -> Any:
    n, dtype = get_aval(u).shape[1], get_aval(u).dtype
    # The same step as b/c U + (a - b/c) U (I + c U^H U)^-1: cheaper, but accurate only for a moderate weight c.
    factor = cholesky(
        add(eye_like(u, n), mul(matmul(adjoint(u), u), convert_element_type(c, dtype))), symmetrize_input=False
    )
    solved = triangular_solve(factor, u, lower=True, transpose_a=True, conjugate_a=True)
    solved = triangular_solve(factor, solved, lower=True)
    return _combine(u, solved, div(b, c), sub(a, div(b, c)))


def _combine(u: Array, v: Array, s: Array, t: Array) -> Any:
    dtype = get_aval(u).dtype
    return add(mul(u, convert_element_type(s, dtype)), mul(v, convert_element_type(t, dtype)))


def _above_norm(x: Array) -> Any:
    """Return an upper bound of the largest singular value; 1 for a zero matrix."""
    sizes = magnitude(x)
    columns, rows = reduce_max(reduce_sum(sizes, (0,)), (0,)), reduce_max(reduce_sum(sizes, (1,)), (0,))
    bound = sqrt(mul(columns, rows))
    return select(gt(bound, bound.dtype.type(0)), bound, bound.dtype.type(1))


def _frobenius(x: Array) -> Any:
    """Return the Frobenius norm, scaled so that squares neither overflow nor underflow."""
    sizes = magnitude(x)
    largest = max(reduce_max(sizes, (0, 1)), np.finfo(get_aval(sizes).dtype).tiny)
    scaled = div(sizes, broadcast_in_dim(largest, get_aval(sizes).shape, ()))
    return mul(largest, sqrt(reduce_sum(mul(scaled, scaled), (0, 1))))


def _below(shape: tuple, dim: int, size: DimSize | Array) -> Any:
    """Return the mask of the positions along a dimension that are below a size: bool[*shape]."""
    return lt(broadcasted_iota(np.int32, shape, dim), convert_element_type(size, np.dtype("int32")))
