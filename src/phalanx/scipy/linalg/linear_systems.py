"""Solvers of linear systems and of the Sylvester equation; inverses and determinants.

Builds on `lax.linalg` and `decompositions`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ShapeError
from phalanx.custom_rules import custom_jvp
from phalanx.lax import linalg as decompositions
from phalanx.numpy.linalg.square_matrices import adjoint, check_matrix
from phalanx.numpy.operands import as_array, broadcast_shapes, broadcast_to_shape, cast, promote_inexact, to_operand
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_choice, to_complex, to_inexact_operands
from phalanx.scipy.linalg.decompositions import cholesky as _cholesky
from phalanx.typing import Array, ArrayLike


def _columns(a: Array, b: Array, name: str) -> tuple:
    """Broadcast square matrices and right-hand sides; return also whether `b` was a vector."""
    x, y = promote_inexact(f"linalg.{name}", check_matrix(a, name, square=True), to_operand(b, f"linalg.{name}"))
    is_vector = y.ndim == 1
    y = lax.expand_dims(y, (1,)) if is_vector else y
    n = x.shape[-1]
    if y.ndim < 2 or y.shape[-2] != n:
        raise ShapeError(
            f"linalg.{name}, argument b",
            expected=f"{n} rows, or a vector of {n}",
            got=np.shape(b),
            fix=f"pass b with {n} rows",
        )
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2], where=f"linalg.{name}")
    x, y = broadcast_to_shape(x, (*lead, n, n)), broadcast_to_shape(y, (*lead, *y.shape[-2:]))
    return x, y, is_vector


def _restore_vector(y: Array, is_vector: bool) -> Any:
    return lax.squeeze(y, (y.ndim - 1,)) if is_vector else y


@eager_jit(static_argnames=("overwrite_a", "check_finite"))
def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The determinant of square matrices.

    Args:
      a: num[*batch, n, n].
      overwrite_a, check_finite: accepted for compatibility with SciPy, and ignored.

    Returns:
      num[*batch].

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> jnp.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]])).item()
      -2.0
    """
    return jnp.linalg.det(a)


@eager_jit(static_argnames=("overwrite_a", "check_finite"))
def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverse of square matrices.

    Args:
      a: num[*batch, n, n].
      overwrite_a, check_finite: accepted for compatibility with SciPy, and ignored.

    Returns:
      num[*batch, n, n].

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
      [[0.5, 0.0], [0.0, 0.25]]
    """
    return jnp.linalg.inv(a)


@eager_jit(static_argnames=("lower", "overwrite_a", "overwrite_b", "debug", "check_finite", "assume_a"))
def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """The solution of a x = b.

    Args:
      a: square matrices, num[*batch, n, n].
      b: the right-hand side, num[n] or num[*batch, n, k].
      lower: whether the lower triangle is read, for `"pos"`.
      overwrite_a, overwrite_b, debug, check_finite: accepted for compatibility with SciPy, and ignored.
      assume_a: the kind of `a`: `"gen"` (general), `"sym"`, `"her"`, or `"pos"` (positive definite), which uses
        `cholesky`.

    Returns:
      x, with the shape of `b`.

    Raises:
      ArgumentError: `assume_a` is unknown.
      ShapeError: a matrix is not square, or the shape of `b` does not match.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> jnp.linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.ones(2)).tolist()
      [0.5, 0.25]
    """
    check_choice("linalg.solve", "assume_a", assume_a, ("gen", "sym", "her", "pos"))
    x, y, is_vector = _columns(a, b, "solve")
    out = _cho_solve(_cholesky(x, lower), y, lower) if assume_a == "pos" else jnp.linalg.solve(x, y)
    return _restore_vector(out, is_vector)


@eager_jit(static_argnames=("trans", "lower", "unit_diagonal", "overwrite_b", "debug", "check_finite"))
def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Array:
    """The solution of op(a) x = b for triangular matrices.

    Args:
      a: num[*batch, n, n]; only one triangle is read.
      b: num[n] or num[*batch, n, k].
      trans: op: 0 or `"N"` for `a` itself, 1 or `"T"` for its transpose, 2 or `"C"` for its conjugate transpose.
      lower: whether the lower triangle is read.
      unit_diagonal: whether to assume a diagonal of ones.
      overwrite_b, debug, check_finite: accepted for compatibility with SciPy, and ignored.

    Returns:
      x, with the shape of `b`.

    Raises:
      ArgumentError: `trans` is unknown.
      ShapeError: a matrix is not square, or the shape of `b` does not match.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.solve_triangular(jnp.array([[2.0, 2.0], [0.0, 4.0]]), jnp.ones(2)).tolist()
      [0.25, 0.25]
    """
    kinds = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}
    check_choice("linalg.solve_triangular", "trans", trans, tuple(kinds))
    x, y, is_vector = _columns(a, b, "solve_triangular")
    out = decompositions.triangular_solve(
        x,
        y,
        left_side=True,
        lower=lower,
        transpose_a=kinds[trans] > 0,
        conjugate_a=kinds[trans] == 2,
        unit_diagonal=unit_diagonal,
    )
    return _restore_vector(out, is_vector)


def cho_factor(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple:
    """The Cholesky factor for `cho_solve`.

    Args:
      a, lower, overwrite_a, check_finite: as in `cholesky`.

    Returns:
      (the factor, `lower`).

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.cho_solve(linalg.cho_factor(2 * jnp.eye(2)), jnp.ones(2)).round(4).tolist()
      [0.5, 0.5]
    """
    return _cholesky(a, lower, overwrite_a, check_finite), lower


def cho_solve(c_and_lower: tuple, b: ArrayLike, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """The solution of a x = b by the Cholesky factor of `a`.

    Args:
      c_and_lower: the result of `cho_factor`.
      b: num[n] or num[*batch, n, k].
      overwrite_b, check_finite: accepted for compatibility with SciPy, and ignored.

    Returns:
      x, with the shape of `b`.

    Raises:
      ShapeError: the factor is not square, or the shape of `b` does not match.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.cho_solve((2 * jnp.eye(2), True), jnp.ones(2)).tolist()
      [0.25, 0.25]
    """
    c, lower = c_and_lower
    return _cho_solved(c, b, bool(lower))


@eager_jit(static_argnames=("lower",))
def _cho_solved(c: ArrayLike, b: ArrayLike, lower: bool) -> Any:
    x, y, is_vector = _columns(c, b, "cho_solve")
    return _restore_vector(_cho_solve(x, y, lower), is_vector)


def _cho_solve(factor: Array, y: Array, lower: bool) -> Any:
    options = dict(left_side=True, lower=lower)
    turned = dict(transpose_a=True, conjugate_a=True)
    # a x = L L^H x = b: solve with L first and with L^H second, or with R^H and R for an upper factor.
    y = decompositions.triangular_solve(factor, y, **options, **({} if lower else turned))
    return decompositions.triangular_solve(factor, y, **options, **(turned if lower else {}))


@eager_jit(static_argnames=("overwrite_a", "check_finite"))
def lu_factor(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> tuple:
    """The LU decomposition for `lu_solve`.

    Args:
      a: num[*batch, n, n].
      overwrite_a, check_finite: accepted for compatibility with SciPy, and ignored.

    Returns:
      L (without its unit diagonal) and U in one matrix, and the pivot of each row, int32[*batch, n].

    Raises:
      ShapeError: the rank is below 2.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.lu_factor(jnp.array([[1.0, 2.0], [2.0, 2.0]]))[1].tolist()
      [1, 1]
    """
    return tuple(decompositions.lu(check_matrix(a, "lu_factor")))[:2]


@eager_jit(static_argnames=("trans", "overwrite_b", "check_finite"))
def lu_solve(
    lu_and_piv: tuple, b: ArrayLike, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """The solution of op(a) x = b by the LU decomposition of `a`.

    Args:
      lu_and_piv: the result of `lu_factor`.
      b: num[n] or num[*batch, n, k].
      trans: op: 0 for `a` itself, 1 for its transpose, 2 for its conjugate transpose.
      overwrite_b, check_finite: accepted for compatibility with SciPy, and ignored.

    Returns:
      x, with the shape of `b`.

    Raises:
      ArgumentError: `trans` is unknown.
      ShapeError: the decomposition is not square, or the shape of `b` does not match.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.lu_solve(linalg.lu_factor(2 * jnp.eye(2)), jnp.ones(2)).tolist()
      [0.5, 0.5]
    """
    check_choice("linalg.lu_solve", "trans", trans, (0, 1, 2))
    packed, pivots = lu_and_piv
    x, y, is_vector = _columns(packed, b, "lu_solve")
    # LAPACK stores successive row exchanges; the solve needs the permutation that they compose to.
    order = decompositions.lu_pivots_to_permutation(as_array(pivots), x.shape[-1])
    order = broadcast_to_shape(order, x.shape[:-1])
    rows = lambda v, places: jnp.take_along_axis(v, lax.expand_dims(places, (places.ndim,)), -2)
    turned = dict(transpose_a=True, conjugate_a=trans == 2)
    solved = decompositions.triangular_solve
    # P a = L U. For a transposed system the factors are applied in the opposite order, and the permutation last.
    if trans == 0:
        y = solved(x, rows(y, order), left_side=True, lower=True, unit_diagonal=True)
        y = solved(x, y, left_side=True, lower=False)
    else:
        y = solved(x, y, left_side=True, lower=False, **turned)
        y = solved(x, y, left_side=True, lower=True, unit_diagonal=True, **turned)
        y = rows(y, jnp.argsort(order, axis=-1))
    return _restore_vector(y, is_vector)


@eager_jit(static_argnames=("method", "tol"))
def solve_sylvester(A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """The solution of A X + X B = C.

    Args:
      A: num[*batch, m, m].
      B: num[*batch, n, n].
      C: num[*batch, m, n].
      method: `"schur"`, or `"eigen"`, which is faster and less accurate.
      tol: the result is NaN if the magnitude of a sum of eigenvalues of `A` and `B` is smaller.

    Returns:
      X, num[*batch, m, n], in the broadcast batch dimensions.

    Raises:
      ArgumentError: the method is unknown.
      ShapeError: the shapes do not match.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.solve_sylvester(2 * jnp.eye(2), 2 * jnp.eye(2), jnp.ones((2, 2))).tolist()
      [[0.25, 0.25], [0.25, 0.25]]
    """
    check_choice("linalg.solve_sylvester", "method", method, ("schur", "eigen"))
    a, b, c = to_inexact_operands("linalg.solve_sylvester", A, B, C)
    a, b, c = (check_matrix(v, "solve_sylvester", square=s) for v, s in ((a, True), (b, True), (c, False)))
    if c.shape[-2:] != (a.shape[-1], b.shape[-1]):
        raise ShapeError(
            "linalg.solve_sylvester",
            expected="matrices [m, m], [n, n] and [m, n]",
            got=f"{a.shape}, {b.shape} and {c.shape}",
            fix="pass C with as many rows as A and as many columns as B",
        )

    @custom_jvp
    def solution(a: Array, b: Array, c: Array) -> Any:
        return sylvester(a, b, method, tol)(c)

    @solution.defjvp
    def solution_jvp(primals: tuple, tangents: tuple) -> tuple:
        (a, b, c), (a_dot, b_dot, c_dot) = primals, tangents
        solve = sylvester(a, b, method, tol)
        x = solve(c)
        # Differentiating A X + X B = C gives an equation of the same form for the tangent, with the same factors.
        return x, solve(c_dot - jnp.matmul(a_dot, x) - jnp.matmul(x, b_dot))

    return jnp.vectorize(solution, signature="(m,m),(n,n),(m,n)->(m,n)")(a, b, c)


def sylvester(a: ArrayLike, b: ArrayLike, method: str, tol: float) -> Any:
    """The solution of a x + x b = c as a linear function of c."""
    is_real = a.dtype.kind != "c"
    a, b = to_complex(a), to_complex(b)
    if method == "schur":
        (t, u), (s, v) = decompositions.schur(a), decompositions.schur(b)
        a_eigenvalues, b_eigenvalues = jnp.diagonal(t), jnp.diagonal(s)
        u_inverse, v_inverse = adjoint(u), adjoint(v)
    else:
        (a_eigenvalues, u), (b_eigenvalues, v) = jnp.linalg.eig(a), jnp.linalg.eig(b)
        u_inverse, v_inverse = jnp.linalg.inv(u), jnp.linalg.inv(v)
    sums = lax.expand_dims(a_eigenvalues, (1,)) + lax.expand_dims(b_eigenvalues, (0,))
    # The equation has a unique solution if and only if no eigenvalue of A is the negative of one of B.
    is_singular = lax.reduce_or(lax.abs(sums) < tol, (0, 1))
    identity = jnp.eye(a.shape[0], dtype=a.dtype)

    def solve(c: Array) -> Any:
        transformed = jnp.matmul(jnp.matmul(u_inverse, to_complex(c)), v)
        if method == "eigen":
            y = transformed / sums
        else:
            # Bartels-Stewart: column k solves (t + s_kk) y_k = f_k - (the previous columns of y) s_k.
            def column(k: Array, y: Array) -> Any:
                rhs = lax.dynamic_slice_in_dim(transformed - jnp.matmul(y, s), k, 1, 1)
                shifted = t + lax.dynamic_index_in_dim(b_eigenvalues, k, 0, keepdims=False) * identity
                new_column = decompositions.triangular_solve(shifted, rhs, left_side=True)
                return lax.dynamic_update_slice_in_dim(y, new_column, k, 1)

            y = lax.fori_loop(0, s.shape[0], column, transformed * 0)
        x = jnp.matmul(jnp.matmul(u, y), v_inverse)
        # The decompositions are complex even for real operands, whose solution is real up to rounding.
        x = lax.real(x) if is_real else x
        return jnp.where(is_singular, cast(np.nan, x.dtype), x)

    return solve
