"""`lobpcg_standard`: the largest eigenvalues of a symmetric matrix, by a locally optimal block method.

Each iteration solves the eigenproblem restricted to the space of three blocks of k vectors (Rayleigh-Ritz): the current
approximations X, the directions P of the last step, and the residuals R. The blocks are kept orthonormal. A vector that
depends on others, up to rounding, is replaced by a column of zeros, so that the space may shrink near convergence.

Source: Duersch, Shao, Yang and Gu (2018), "A robust and efficient implementation of LOBPCG", arXiv:1704.07458.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax, numpy as jnp, random
from phalanx.core import ArgumentError, DTypeError, ShapeError, Tracer
from phalanx.runtime import Array as ConcreteArray
from phalanx.sparse.sparse_array import JAXSparse
from phalanx.spmd import jit
from phalanx.typing import Array, ArrayLike


def lobpcg_standard(A: Any, X: ArrayLike, m: int = 100, tol: ArrayLike | None = None) -> tuple[Array, Array, Array]:
    """The largest eigenvalues of a symmetric matrix and their eigenvectors.

    Args:
      A: float[n, n], dense or sparse, or a function that multiplies float[n, j] by the matrix.
      X: float[n, k], linearly independent vectors to start from, with 0 < 5 k < n.
      m: the largest number of iterations.
      tol: an eigenpair has converged if the norm of `A v - λ v` is below `10 n tol (λ + |A v|)`; the spacing of the
        dtype at 1 if None.

    Returns:
      The eigenvalues, float[k], in decreasing order, their orthonormal eigenvectors, float[n, k], and the number of
      iterations.

    Raises:
      ArgumentError: k is out of range.
      ShapeError: `A` is not a square matrix of size n.
      DTypeError: the dtypes of `A` and `X` differ.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> values, vectors, steps = sparse.linalg.lobpcg_standard(
      ...     jnp.diag(jnp.arange(20.0)), jnp.ones((20, 1)), m=50
      ... )
      >>> round(float(values[0]), 3)
      19.0

    Source: Duersch, Shao, Yang and Gu (2018), arXiv:1704.07458.
    """
    X = jnp.asarray(X)
    if isinstance(A, JAXSparse | ConcreteArray | Tracer | np.ndarray):
        return _of_matrix(A, X, m, tol)
    return _of_function(A, X, m, tol)


@functools.partial(jit, static_argnames=("m",))
def _of_matrix(A: Any, X: Array, m: int, tol: Any) -> tuple:
    return _lobpcg((lambda x: A @ x) if isinstance(A, JAXSparse) else functools.partial(_dot, A), X, m, tol)


@functools.partial(jit, static_argnames=("A", "m"))
def _of_function(A: Callable, X: Array, m: int, tol: Any) -> tuple:
    return _lobpcg(A, X, m, tol)


class _State(NamedTuple):
    """The state of the iteration: its number, the three blocks, the eigenvalues, and how many pairs have converged."""

    step: Any
    X: Any
    P: Any
    R: Any
    values: Any
    converged: Any


def _lobpcg(A: Callable, X: Array, m: int, tol: Any) -> tuple:
    _check(A, X)
    n, k = X.shape
    tol = float(jnp.finfo(X.dtype).eps) if tol is None else tol

    def step(state: _State) -> _State:
        R = _project_out(jnp.concatenate([state.X, state.P], axis=1), state.R)
        basis = jnp.concatenate([state.X, state.P, R], axis=1)
        values, Q = _rayleigh_ritz(A, basis)
        X = _normalize_columns(_dot(basis, _normalize_columns(Q[:, :k])))
        # The new directions span, with X, the new and the old approximations. They are found in the coordinates of the
        # basis, where the eigenvectors Q are orthonormal: the combinations of the other eigenvectors that have the
        # components of the old approximations.
        mixed, _ = jnp.linalg.qr(Q[:k, k:].T)
        P = _normalize_columns(_dot(basis, _dot(Q[:, k:], mixed)))
        AX = A(X)
        R = AX - values[None, :k] * X
        bound = tol * 10 * n * (jnp.linalg.norm(AX, axis=0) + values[:k])
        converged = (jnp.linalg.norm(R, axis=0) < bound).sum(dtype="int32")
        return _State(state.step + 1, X, P, R, values[:k], converged)

    X = _orthonormalize(X)
    start = random.normal(random.key(0), (n, k), X.dtype)
    AX = A(X)
    values = (X * AX).sum(0)
    zero = np.int32(0)
    init = _State(zero, X, _project_out(X, start), AX - values[None] * X, values, zero)
    last = lax.while_loop(lambda s: (s.step < m) & (s.converged < k), step, init)
    return last.values, last.X, last.step


def _check(A: Callable, X: Array) -> None:
    n, k = X.shape
    if not 0 < 5 * k < n:
        raise ArgumentError(
            "lobpcg_standard, argument X",
            expected=f"search dim > 0 and search dim * 5 < matrix dim, {n}",
            got=f"{k} vectors",
            fix="pass fewer vectors, or use numpy.linalg.eigh",
        )
    y = A(jnp.zeros((n, 1), X.dtype))
    if y.shape != (n, 1):
        raise ShapeError(
            "lobpcg_standard, argument A",
            expected=f"a matrix: A must be ({n}, {n})",
            got=f"a product of shape {y.shape} with a vector",
            fix="pass a square matrix with as many rows as X",
        )
    if y.dtype != X.dtype:
        raise DTypeError(
            "lobpcg_standard",
            expected="that A, X must have same dtypes",
            got=f"{y.dtype} and {X.dtype}",
            fix=f"convert the matrix to {X.dtype}",
        )


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")


def _normalize_columns(x: Array) -> Array:
    """Scale columns to length 1; columns of zeros stay."""
    norm = jnp.linalg.norm(x, axis=0, keepdims=True)
    return x / jnp.where(norm == 0, jnp.ones_like(norm), norm)


def _eigh_descending(x: Array) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(x)
    return values[::-1], vectors[:, ::-1]


def _rayleigh_ritz(A: Callable, basis: Array) -> tuple[Array, Array]:
    """The eigenvalues of the matrix in an orthonormal basis, decreasing, and their vectors in its coordinates.

    Columns of zeros in the basis are given an eigenvalue below all others, so that they are never chosen.
    """
    projected = _dot(basis.T, A(basis))
    lowest = -(1 + 2 * jnp.linalg.norm(projected))
    is_zero = (basis == 0).all(0)
    return _eigh_descending(projected + jnp.diag(jnp.where(is_zero, lowest, jnp.zeros_like(lowest))))


def _orthonormalize(x: Array) -> Array:
    """An orthonormal basis of the columns of `x`; dependent ones become zeros. A second pass removes rounding."""
    return _orthonormalize_once(_orthonormalize_once(x))


def _orthonormalize_once(x: Array) -> Array:
    """Orthonormalize by the eigenvectors of the matrix of inner products.

    Source: Stathopoulos and Wu (2002), "A block orthogonalization procedure with constant synchronization
    requirements", doi:10.1137/S1064827500370883.
    """
    x = _normalize_columns(x)
    products = _dot(x.T, x)
    values, vectors = _eigh_descending(products)
    # Directions below this eigenvalue are rounding errors.
    smallest = jnp.finfo(x.dtype).eps * values[0]
    scale = jnp.where(smallest > 0, jnp.maximum(values, smallest), jnp.ones_like(values)) ** -0.5
    keep = (values > smallest).astype(x.dtype)
    return _normalize_columns(_dot(x, vectors * scale[None]) * keep[None])


def _project_out(basis: Array, x: Array) -> Array:
    """An orthonormal basis of the part of `x` that is orthogonal to an orthonormal basis.

    Normalizing a small remainder magnifies its component along `basis`, hence the second pass, and the last
    subtraction. Columns that this one shortens lay in the basis up to rounding, and become zeros.

    Source: Parlett (1998), "The Symmetric Eigenvalue Problem", section 6.9.
    """
    for _ in range(2):
        x = _orthonormalize(x - _dot(basis, _dot(basis.T, x)))
    for _ in range(2):
        x = x - _dot(basis, _dot(basis.T, x))
    return x * (jnp.linalg.norm(x, axis=0, keepdims=True) >= 0.99).astype(x.dtype)
