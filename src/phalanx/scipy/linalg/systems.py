"""Linear systems: general, triangular, by given factors, and of Sylvester's kind; inverses and determinants.

Builds on `lax.linalg` and `decompositions`; `scipy.linalg` shows them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.errors import ShapeError
from phalanx.custom_derivatives import custom_jvp
from phalanx.lax import linalg as decompositions
from phalanx.numpy import linalg
from phalanx.numpy.contraction import matmul
from phalanx.numpy.creation import eye
from phalanx.numpy.diagonals import diagonal
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import as_array, broadcast_shapes, broadcast_to_shape, cast, operand, promote_inexact
from phalanx.numpy.sorting import argsort
from phalanx.numpy.square_matrices import adjoint, matrix
from phalanx.numpy.taking import take_along_axis
from phalanx.runtime.dispatch import eager_program
from phalanx.scipy.linalg.decompositions import as_complex, refused
from phalanx.scipy.linalg.decompositions import cholesky as _cholesky


def _columns(a: Any, b: Any, name: str) -> tuple:
    """A stack of square matrices and right-hand sides as columns for each, and whether `b` was a vector."""
    x, y = promote_inexact(f"linalg.{name}", matrix(a, name, square=True), operand(b, f"linalg.{name}"))
    is_vector = y.ndim == 1
    y = lax.expand_dims(y, (1,)) if is_vector else y
    n = x.shape[-1]
    if y.ndim < 2 or y.shape[-2] != n:
        raise ShapeError(f"linalg.{name}, argument b", expected=f"{n} rows, or a vector of {n}", got=np.shape(b),
                         mend="transpose it")  # fmt: skip
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2], where=f"linalg.{name}")
    x, y = broadcast_to_shape(x, (*lead, n, n)), broadcast_to_shape(y, (*lead, *y.shape[-2:]))
    return x, y, is_vector


def _given(y: Any, is_vector: bool) -> Any:
    return lax.squeeze(y, (y.ndim - 1,)) if is_vector else y


@eager_program(static_argnames=("overwrite_a", "check_finite"))
def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The determinant of square matrices.

    Args:
      a: num[*batch, n, n].
      overwrite_a, check_finite: permissions that change nothing.

    Returns:
      num[*batch].

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]])).item()
      -2.0
    """
    del overwrite_a, check_finite
    return linalg.det(a)


@eager_program(static_argnames=("overwrite_a", "check_finite"))
def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The inverse of square matrices.

    Args:
      a: num[*batch, n, n].
      overwrite_a, check_finite: permissions that change nothing.

    Returns:
      num[*batch, n, n].

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
      [[0.5, 0.0], [0.0, 0.25]]
    """
    del overwrite_a, check_finite
    return linalg.inv(a)


@eager_program(static_argnames=("lower", "overwrite_a", "overwrite_b", "debug", "check_finite", "assume_a"))
def solve(
    a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False, debug: bool = False,
    check_finite: bool = True, assume_a: str = "gen",
) -> Any:  # fmt: skip
    """The solution of a x = b.

    Args:
      a: square matrices, num[*batch, n, n].
      b: num[n] or num[*batch, n, k].
      lower: for `"pos"`, whether the lower triangle is read.
      overwrite_a, overwrite_b, debug, check_finite: permissions that change nothing.
      assume_a: what `a` is: `"gen"` (anything), `"sym"`, `"her"`, or `"pos"`, which takes half the time.

    Returns:
      x, in the shape of `b`.

    Raises:
      ArgumentError: there is no such assumption.
      ShapeError: a matrix is not square, or `b` does not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.ones(2)).tolist()
      [0.5, 0.25]
    """
    del overwrite_a, overwrite_b, debug, check_finite
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise refused("solve", "assume_a", ("gen", "sym", "her", "pos"), assume_a)
    x, y, is_vector = _columns(a, b, "solve")
    if assume_a != "pos":
        return _given(linalg.solve(x, y), is_vector)

    return _given(_cho_solve(_cholesky(x, lower), y, lower), is_vector)


@eager_program(static_argnames=("trans", "lower", "unit_diagonal", "overwrite_b", "debug", "check_finite"))
def solve_triangular(
    a: Any, b: Any, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False, overwrite_b: bool = False,
    debug: Any = None, check_finite: bool = True,
) -> Any:  # fmt: skip
    """The solution of op(a) x = b for triangular matrices.

    Args:
      a: num[*batch, n, n], of which one triangle is read.
      b: num[n] or num[*batch, n, k].
      trans: op: 0 or `"N"` for `a` itself, 1 or `"T"` for its transpose, 2 or `"C"` for its conjugate transpose.
      lower: which triangle is read.
      unit_diagonal: take the diagonal to be ones.
      overwrite_b, debug, check_finite: permissions that change nothing.

    Returns:
      x, in the shape of `b`.

    Raises:
      ArgumentError: there is no such `trans`.
      ShapeError: a matrix is not square, or `b` does not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.solve_triangular(jnp.array([[2.0, 2.0], [0.0, 4.0]]), jnp.ones(2)).tolist()
      [0.25, 0.25]
    """
    del overwrite_b, debug, check_finite
    kinds = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}
    if trans not in kinds:
        raise refused("solve_triangular", "trans", tuple(kinds), trans)
    x, y, is_vector = _columns(a, b, "solve_triangular")
    out = decompositions.triangular_solve(
        x, y, left_side=True, lower=lower, transpose_a=kinds[trans] > 0, conjugate_a=kinds[trans] == 2,
        unit_diagonal=unit_diagonal,
    )  # fmt: skip
    return _given(out, is_vector)


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple:
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


def cho_solve(c_and_lower: tuple, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """The solution of a x = b by the Cholesky factor of `a`.

    Args:
      c_and_lower: what `cho_factor` gives.
      b: num[n] or num[*batch, n, k].
      overwrite_b, check_finite: permissions that change nothing.

    Returns:
      x, in the shape of `b`.

    Raises:
      ShapeError: the factor is not square, or `b` does not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.cho_solve((2 * jnp.eye(2), True), jnp.ones(2)).tolist()
      [0.25, 0.25]
    """
    del overwrite_b, check_finite
    c, lower = c_and_lower
    return _cho_solved(c, b, bool(lower))


@eager_program(static_argnames=("lower",))
def _cho_solved(c: Any, b: Any, lower: bool) -> Any:
    x, y, is_vector = _columns(c, b, "cho_solve")
    return _given(_cho_solve(x, y, lower), is_vector)


def _cho_solve(factor: Any, y: Any, lower: bool) -> Any:
    options = dict(left_side=True, lower=lower)
    turned = dict(transpose_a=True, conjugate_a=True)
    y = decompositions.triangular_solve(factor, y, **options, **({} if lower else turned))
    return decompositions.triangular_solve(factor, y, **options, **(turned if lower else {}))


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple:
    """The LU decomposition for `lu_solve`.

    Args:
      a: num[*batch, n, n].
      overwrite_a, check_finite: permissions that change nothing.

    Returns:
      L (without its diagonal of ones) and U in one matrix, and the row exchanged with each row, int32[*batch, n].

    Raises:
      ShapeError: the rank is below 2.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.lu_factor(jnp.array([[1.0, 2.0], [2.0, 2.0]]))[1].tolist()
      [1, 1]
    """
    del overwrite_a, check_finite
    return tuple(_lu_factor(a))


@eager_program
def _lu_factor(a: Any) -> tuple:
    return tuple(decompositions.lu(matrix(a, "lu_factor")))[:2]


def lu_solve(lu_and_piv: tuple, b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """The solution of op(a) x = b by the LU decomposition of `a`.

    Args:
      lu_and_piv: what `lu_factor` gives.
      b: num[n] or num[*batch, n, k].
      trans: op: 0 for `a` itself, 1 for its transpose, 2 for its conjugate transpose.
      overwrite_b, check_finite: permissions that change nothing.

    Returns:
      x, in the shape of `b`.

    Raises:
      ArgumentError: there is no such `trans`.
      ShapeError: the decomposition is not square, or `b` does not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.lu_solve(linalg.lu_factor(2 * jnp.eye(2)), jnp.ones(2)).tolist()
      [0.5, 0.5]
    """
    del overwrite_b, check_finite
    if trans not in (0, 1, 2):
        raise refused("lu_solve", "trans", (0, 1, 2), trans)
    return _lu_solved(*lu_and_piv, b, trans)


@eager_program(static_argnames=("trans",))
def _lu_solved(packed: Any, pivots: Any, b: Any, trans: int) -> Any:
    x, y, is_vector = _columns(packed, b, "lu_solve")
    order = decompositions.lu_pivots_to_permutation(as_array(pivots), x.shape[-1])
    order = broadcast_to_shape(order, x.shape[:-1])
    rows = lambda v, places: take_along_axis(v, lax.expand_dims(places, (places.ndim,)), -2)
    turned = dict(transpose_a=True, conjugate_a=trans == 2)
    solved = decompositions.triangular_solve
    if trans == 0:
        y = solved(x, rows(y, order), left_side=True, lower=True, unit_diagonal=True)
        y = solved(x, y, left_side=True, lower=False)
    else:
        y = solved(x, y, left_side=True, lower=False, **turned)
        y = solved(x, y, left_side=True, lower=True, unit_diagonal=True, **turned)
        y = rows(y, argsort(order, axis=-1))
    return _given(y, is_vector)


@eager_program(static_argnames=("method", "tol"))
def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Any:
    """The solution of A X + X B = C.

    Args:
      A: num[m, m].
      B: num[n, n].
      C: num[m, n].
      method: `"schur"`, or `"eigen"`, which is faster and less exact.
      tol: how near to 0 a sum of eigenvalues of `A` and `B` may come; nearer than that the result is NaN.

    Returns:
      X, num[m, n].

    Raises:
      ArgumentError: there is no such method.
      ShapeError: the shapes do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.solve_sylvester(2 * jnp.eye(2), 2 * jnp.eye(2), jnp.ones((2, 2))).tolist()
      [[0.25, 0.25], [0.25, 0.25]]
    """
    if method not in ("schur", "eigen"):
        raise refused("solve_sylvester", "method", ("schur", "eigen"), method)
    name = "linalg.solve_sylvester"
    a, b, c = promote_inexact(name, *(operand(v, name) for v in (A, B, C)))
    a, b, c = (matrix(v, "solve_sylvester", square=s) for v, s in ((a, True), (b, True), (c, False)))
    if not a.ndim == b.ndim == c.ndim == 2 or c.shape != (a.shape[0], b.shape[0]):
        raise ShapeError(name, expected="matrices [m, m], [n, n] and [m, n]",
                         got=f"{a.shape}, {b.shape} and {c.shape}", mend="reshape the third")  # fmt: skip

    @custom_jvp
    def solution(a: Any, b: Any, c: Any) -> Any:
        return sylvester(a, b, method, tol)(c)

    @solution.defjvp
    def solution_jvp(primals: tuple, tangents: tuple) -> tuple:
        (a, b, c), (a_dot, b_dot, c_dot) = primals, tangents
        solve = sylvester(a, b, method, tol)
        x = solve(c)
        return x, solve(c_dot - matmul(a_dot, x) - matmul(x, b_dot))

    return solution(a, b, c)


def sylvester(a: Any, b: Any, method: str, tol: float) -> Any:
    """The solution of a x + x b = c as a linear function of c."""
    is_real = a.dtype.kind != "c"
    a, b = as_complex(a), as_complex(b)
    if method == "schur":
        (t, u), (s, v) = decompositions.schur(a), decompositions.schur(b)
        p, q = diagonal(t), diagonal(s)
        u_inverse, v_inverse = adjoint(u), adjoint(v)
    else:
        (p, u), (q, v) = linalg.eig(a), linalg.eig(b)
        u_inverse, v_inverse = linalg.inv(u), linalg.inv(v)
    sums = lax.expand_dims(p, (1,)) + lax.expand_dims(q, (0,))
    singular = lax.reduce_or(lax.abs(sums) < tol, (0, 1))
    identity = eye(a.shape[0], dtype=a.dtype)

    def solve(c: Any) -> Any:
        f = matmul(matmul(u_inverse, as_complex(c)), v)
        if method == "eigen":
            y = f / sums
        else:
            # Column by column: (t + s_kk) y_k = f_k - (the columns before) s_k.
            def column(k: Any, y: Any) -> Any:
                rhs = lax.dynamic_slice_in_dim(f - matmul(y, s), k, 1, 1)
                shifted = t + lax.dynamic_index_in_dim(q, k, 0, keepdims=False) * identity
                found = decompositions.triangular_solve(shifted, rhs, left_side=True)
                return lax.dynamic_update_slice_in_dim(y, found, k, 1)

            y = lax.fori_loop(0, s.shape[0], column, f * 0)
        x = matmul(matmul(u, y), v_inverse)
        x = lax.real(x) if is_real else x
        return where(singular, cast(np.nan, x.dtype), x)

    return solve
