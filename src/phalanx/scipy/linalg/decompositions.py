"""Matrix decompositions with the names and arguments of SciPy.

Builds on `lax.linalg` and `numpy.linalg`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, ConcretizationTypeError, ShapeError
from phalanx.lax import linalg as decompositions
from phalanx.numpy.linalg.square_matrices import adjoint, check_matrix
from phalanx.numpy.operands import align_ranks, cast, concrete_or_none, promote_inexact
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_choice, to_complex, to_inexact_operands
from phalanx.typing import Array, ArrayLike, PRNGKey

# Every option that decides shapes or the algorithm is static. A function has some of these options.
_static = functools.partial(
    eager_jit,
    static_argnames=(
        "lower",
        "lwork",
        "overwrite_a",
        "overwrite_b",
        "check_finite",
        "full_matrices",
        "compute_uv",
        "permute_l",
        "mode",
        "pivoting",
        "calc_q",
        "output",
        "side",
        "method",
        "eps",
        "max_iterations",
        "type",
        "eigvals_only",
        "turbo",
        "eigvals",
    ),
)


@_static()
def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The Cholesky decomposition of positive definite matrices.

    Args:
      a: positive definite matrices, num[*batch, n, n]; only one triangle is read.
      lower: whether to read and return the lower triangle.
      overwrite_a, check_finite: accepted for compatibility with SciPy, and ignored.

    Returns:
      Upper triangular R with R^H R = a, or lower triangular L with L L^H = a; NaN if a matrix is not positive definite.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
      [[2.0, 1.0], [0.0, 2.0]]
    """
    x = check_matrix(a, "cholesky", square=True)
    # An upper factor of x is the adjoint of the lower factor of x^H, which reads the same triangle.
    factor = decompositions.cholesky(x if lower else adjoint(x), symmetrize_input=False)
    return factor if lower else adjoint(factor)


@_static()
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """The singular value decomposition a = U diag(s) Vh.

    Args:
      a: matrices, num[*batch, m, n].
      full_matrices: whether U and Vh are square.
      compute_uv: whether to compute U and Vh.
      overwrite_a, check_finite: accepted for compatibility with SciPy, and ignored.
      lapack_driver: `"gesdd"` or `"gesvd"`.

    Returns:
      (U, s, Vh), or s alone.

    Raises:
      ArgumentError: `lapack_driver` is unknown.
      ShapeError: the rank is below 2.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.svd(jnp.diag(jnp.array([3.0, 4.0])), compute_uv=False).tolist()
      [4.0, 3.0]
    """
    # The drivers of LAPACK that SciPy offers, as algorithms of `lax.linalg.svd`.
    algorithms = {"gesdd": decompositions.SvdAlgorithm.DEFAULT, "gesvd": decompositions.SvdAlgorithm.QR}
    check_choice("linalg.svd", "lapack_driver", lapack_driver, tuple(algorithms))
    return decompositions.svd(
        check_matrix(a, "svd"), full_matrices=full_matrices, compute_uv=compute_uv, algorithm=algorithms[lapack_driver]
    )


@_static()
def lu(a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple:
    """The LU decomposition with partial pivoting, a = P L U.

    Args:
      a: matrices, num[*batch, m, n].
      permute_l: whether to return P L instead of P and L.
      overwrite_a, check_finite: accepted for compatibility with SciPy, and ignored.

    Returns:
      (P, L, U) with the permutation matrix P, unit lower triangular L and upper triangular U; or (P L, U).

    Raises:
      ShapeError: the rank is below 2.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.lu(jnp.array([[1.0, 2.0], [2.0, 2.0]]))[2].tolist()
      [[2.0, 2.0], [0.0, 1.0]]
    """
    x = check_matrix(a, "lu")
    # L and U share one matrix: U with the diagonal, and L below it with a unit diagonal.
    packed, _, order = decompositions.lu(x)
    m, n = x.shape[-2:]
    k = min(m, n)
    lower = jnp.add(*align_ranks(jnp.tril(packed[..., :, :k], -1), jnp.eye(m, k, dtype=x.dtype)))
    upper = jnp.triu(packed[..., :k, :])
    # Column j of P has its 1 in row order[j]; comparing indices builds the matrix without a scatter.
    places = lax.broadcasted_iota(order.dtype, (*order.shape[:-1], m, m), order.ndim - 1)
    p = cast(lax.eq(places, lax.broadcast_in_dim(order, places.shape, (*range(order.ndim - 1), order.ndim))), x.dtype)
    return (jnp.matmul(p, lower), upper) if permute_l else (p, lower, upper)


@_static()
def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: int | None = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple:
    """The QR decomposition a = Q R, or a P = Q R.

    Args:
      a: matrices, num[*batch, m, n].
      overwrite_a, check_finite: accepted for compatibility with SciPy, and ignored.
      lwork: must be None, since the compiler allocates the workspace.
      mode: `"full"`, `"economic"`, or `"r"` for R alone.
      pivoting: whether to permute columns, so that the diagonal of R decreases.

    Returns:
      (Q, R), or (R,); with `pivoting` the permutation of the columns last.

    Raises:
      ArgumentError: `mode` is unknown, or `lwork` is given.
      ShapeError: the rank is below 2.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> abs(linalg.qr(jnp.array([[3.0], [4.0]]), mode="r")[0][0, 0]).item()
      5.0
    """
    check_choice("linalg.qr", "lwork", lwork, (None,))
    check_choice("linalg.qr", "mode", mode, ("full", "r", "economic"))
    q, r, *order = decompositions.qr(check_matrix(a, "qr"), pivoting=pivoting, full_matrices=mode != "economic")
    return (r, *order) if mode == "r" else (q, r, *order)


@eager_jit(static_argnames=("mode", "pivoting", "conjugate", "overwrite_a", "overwrite_c"))
def qr_multiply(
    a: ArrayLike,
    c: ArrayLike,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple:
    """Multiply a matrix by the Q of a QR decomposition.

    Args:
      a: the matrix to decompose, num[m, n].
      c: a matrix or vector with m columns for `"right"`, or min(m, n) rows for `"left"`.
      mode: `"right"` for c Q, `"left"` for Q c.
      pivoting: whether to permute columns, so that the diagonal of R decreases.
      conjugate: whether to use the conjugate of Q.
      overwrite_a, overwrite_c: accepted for compatibility with SciPy, and ignored.

    Returns:
      (c Q or Q c, R), and with `pivoting` the permutation of the columns.

    Raises:
      ArgumentError: `mode` is unknown.
      ShapeError: the shapes do not match.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> abs(linalg.qr_multiply(jnp.array([[3.0], [4.0]]), jnp.array([3.0, 4.0]))[0]).tolist()
      [5.0]
    """
    check_choice("linalg.qr_multiply", "mode", mode, ("left", "right"))
    x, y = to_inexact_operands("linalg.qr_multiply", a, c)
    q, r, *order = decompositions.qr(check_matrix(x, "qr_multiply"), pivoting=pivoting, full_matrices=False)
    q = lax.conj(q) if conjugate and q.dtype.kind == "c" else q
    is_compatible = y.shape[-1] == q.shape[0] if mode == "right" else y.shape[0] == q.shape[1]
    if y.ndim not in (1, 2) or not is_compatible:
        raise ShapeError(
            "linalg.qr_multiply, argument c",
            expected=f"an operand that can be multiplied by Q of shape {q.shape}",
            got=y.shape,
            fix="pass the other mode, or transpose c",
        )
    return (jnp.matmul(y, q) if mode == "right" else jnp.matmul(q, y), r, *order)


def _hermitian(x: Array, lower: bool) -> Any:
    """Hermitian matrices from one of their triangles."""
    half = jnp.tril(x, -1) if lower else jnp.triu(x, 1)
    # The diagonal of a Hermitian matrix is real; rounding errors in its imaginary part are dropped.
    middle = x - jnp.tril(x, -1) - jnp.triu(x, 1)
    middle = cast(lax.real(middle), x.dtype) if x.dtype.kind == "c" else middle
    return half + adjoint(half) + middle


@_static()
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """The eigenvalues in ascending order and the eigenvectors of Hermitian matrices, or of a generalized problem.

    Args:
      a: Hermitian matrices, num[*batch, n, n]; only one triangle is read.
      b: positive definite matrices of the same shape, for the generalized problem.
      lower: whether the lower triangle is read.
      eigvals_only: whether to return only the eigenvalues.
      overwrite_a, overwrite_b, turbo, check_finite: accepted for compatibility with SciPy, and ignored.
      eigvals: must be None.
      type: the generalized problem; 1: a v = w b v; 2: a b v = w v; 3: b a v = w v.

    Returns:
      (w[*batch, n], v[*batch, n, n]) with eigenvectors in columns, or w alone.

    Raises:
      ArgumentError: `type` is unknown, or `eigvals` is given.
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.eigh(jnp.diag(jnp.array([2.0, 1.0])), eigvals_only=True).tolist()
      [1.0, 2.0]
    """
    if eigvals is not None:
        raise ArgumentError(
            "linalg.eigh, argument eigvals",
            expected="None",
            got=eigvals,
            fix="omit it, and index the returned eigenvalues",
        )
    check_choice("linalg.eigh", "type", type, (1, 2, 3))
    x = check_matrix(a, "eigh", square=True)
    if b is None:
        vectors, values = decompositions.eigh(_hermitian(x, lower), lower=lower)
        return values if eigvals_only else (values, vectors)
    x, y = promote_inexact("linalg.eigh", x, check_matrix(b, "eigh", square=True))
    factor = decompositions.cholesky(_hermitian(y, lower))
    x = _hermitian(x, lower)
    solve = functools.partial(decompositions.triangular_solve, factor, left_side=True, lower=True)
    if type == 1:  # a v = w b v is equivalent to (L^-1 a L^-H) u = w u with v = L^-H u
        x = adjoint(solve(adjoint(solve(x))))
    else:  # a b v = w v and b a v = w v are equivalent to (L^H a L) u = w u
        x = jnp.matmul(adjoint(factor), jnp.matmul(x, factor))
    vectors, values = decompositions.eigh(x)
    if eigvals_only:
        return values
    if type == 3:
        return values, jnp.matmul(factor, vectors)
    return values, solve(vectors, transpose_a=True, conjugate_a=True)


def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: PRNGKey | None = None,
) -> Any:
    """The eigenvalues in ascending order and the eigenvectors of a Hermitian tridiagonal matrix.

    Args:
      d: the diagonal, real[n].
      e: the subdiagonal, num[n - 1].
      eigvals_only: whether to return only the eigenvalues.
      select: the eigenvalues to return: `"a"` for all, `"i"` for a range of indices, `"v"` for an interval.
      select_range: the first and the last index, or the bounds of the half-open interval (low, high].
      tol, key: ignored, since the result has full precision and no random initialization.

    Returns:
      (w, v) with eigenvectors in columns, or w alone.

    Raises:
      ArgumentError: `select` is unknown, or `select_range` is missing.
      ConcretizationTypeError: the eigenvalues are traced and `select` is `"v"`.
      ShapeError: the lengths of the diagonals do not match.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.eigh_tridiagonal(jnp.array([2.0, 1.0]), jnp.zeros(1), eigvals_only=True).tolist()
      [1.0, 2.0]
    """
    check_choice("linalg.eigh_tridiagonal", "select", select, ("a", "i", "v"))
    if select != "a" and select_range is None:
        raise ArgumentError(
            "linalg.eigh_tridiagonal, argument select_range",
            expected="a pair of numbers",
            got=None,
            fix="pass select_range=(low, high), or select='a'",
        )
    values, vectors = _tridiagonal(d, e)
    if select == "i":
        selected: Any = slice(select_range[0], select_range[1] + 1)
    elif select == "v":
        # The number of eigenvalues in an interval is the shape of the result, so it must be known while tracing.
        known = concrete_or_none(values)
        if known is None:
            raise ConcretizationTypeError(
                "linalg.eigh_tridiagonal, argument select",
                expected="'a' or 'i', as eigenvalues decide the shape",
                got="'v'",
                fix="pass select='i' and a range of indices",
            )
        selected = np.flatnonzero((known > select_range[0]) & (known <= select_range[1]))
    else:
        selected = slice(None)
    return values[selected] if eigvals_only else (values[selected], vectors[:, selected])


@eager_jit
def _tridiagonal(d: ArrayLike, e: ArrayLike) -> tuple:
    d, e = to_inexact_operands("linalg.eigh_tridiagonal", d, e)
    if d.ndim != 1 or e.shape != (d.shape[0] - 1,):
        raise ShapeError(
            "linalg.eigh_tridiagonal",
            expected="diagonals of n and n - 1",
            got=f"{d.shape} and {e.shape}",
            fix="pass d of length n and e of length n - 1",
        )
    subdiagonal = jnp.diag(e, -1)
    vectors, values = decompositions.eigh(jnp.diag(d) + subdiagonal + adjoint(subdiagonal), symmetrize_input=False)
    return values, vectors


@_static()
def hessenberg(a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The Hessenberg form of square matrices, a = Q H Q^H.

    Args:
      a: num[*batch, n, n].
      calc_q: whether to return Q too.
      overwrite_a, check_finite: accepted for compatibility with SciPy, and ignored.

    Returns:
      H, which is 0 below the first subdiagonal, or (H, Q).

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.hessenberg(jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
      [[1.0, 2.0], [3.0, 4.0]]
    """
    packed, factors = decompositions.hessenberg(check_matrix(a, "hessenberg", square=True))
    h = jnp.triu(packed, -1)
    if not calc_q:
        return h
    n = packed.shape[-1]
    if n < 2:
        return h, lax.full_like(h, 1)
    # The Householder reflectors leave the first row unchanged, so Q has the first row and column of the
    # identity.
    inner = decompositions.householder_product(packed[..., 1:, :-1], factors)
    return h, jnp.pad(inner, [(0, 0)] * (packed.ndim - 2) + [(1, 0), (1, 0)]) + jnp.diag(
        lax.full((n,), 0, h.dtype).at[0].set(1)
    )


@_static()
def schur(a: ArrayLike, output: str = "real") -> tuple:
    """The Schur decomposition a = Z T Z^H.

    Args:
      a: num[*batch, n, n].
      output: `"complex"`, or `"real"` for a real T with 2 by 2 blocks for conjugate pairs of eigenvalues.

    Returns:
      (T, Z) with T upper triangular and Z unitary.

    Raises:
      ArgumentError: `output` is unknown.
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.schur(jnp.array([[2.0, 1.0], [0.0, 3.0]]))[0].tolist()
      [[2.0, 1.0], [0.0, 3.0]]
    """
    check_choice("linalg.schur", "output", output, ("real", "complex"))
    x = check_matrix(a, "schur", square=True)
    return tuple(decompositions.schur(to_complex(x) if output == "complex" else x))


@eager_jit(static_argnames=("check_finite",))
def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple:
    """Convert a real Schur decomposition to a complex one.

    Args:
      T, Z: the result of `schur`, num[*batch, n, n].
      check_finite: accepted for compatibility with SciPy, and ignored.

    Returns:
      (T, Z) with T upper triangular and Z unitary.

    Raises:
      ShapeError: a matrix is not square, or their shapes differ.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> t, z = linalg.rsf2csf(jnp.array([[0.0, 1.0], [-1.0, 0.0]]), jnp.eye(2))
      >>> sorted(jnp.diag(t).imag.round(4).tolist())
      [-1.0, 1.0]
    """
    t, z = (check_matrix(v, "rsf2csf", square=True) for v in (T, Z))
    if t.shape[-2:] != z.shape[-2:]:
        raise ShapeError(
            "linalg.rsf2csf",
            expected="matrices of one shape",
            got=f"{t.shape} and {z.shape}",
            fix="pass both results of linalg.schur",
        )
    t, z = (to_complex(v) for v in promote_inexact("linalg.rsf2csf", t, z))
    return jnp.vectorize(_to_complex_schur, signature="(n,n),(n,n)->(n,n),(n,n)")(t, z)


def _to_complex_schur(t: Array, z: Array) -> tuple:
    n = t.shape[0]
    places = lax.iota(np.dtype(np.int32), n)

    def turn_columns(x: Array, m: Array, rotation: Array, rows: ArrayLike) -> Array:
        """Multiply columns m - 1 and m by the adjoint of a rotation, in the rows of a mask."""
        columns = lax.dynamic_slice(x, (0, m - 1), (n, 2))
        columns = jnp.where(rows, jnp.matmul(columns, adjoint(rotation)), columns)
        return lax.dynamic_update_slice(x, columns, (0, m - 1))

    def turn(i: Array, state: tuple) -> tuple:
        """Zero the subdiagonal entry in row m = n - 1 - i by a Givens rotation of rows and columns m - 1 and m."""
        t, z = state
        m = n - 1 - i
        block = lax.dynamic_slice(t, (m - 1, m - 1), (2, 2))
        # SciPy's choice among the two eigenvalues: LAPACK's first.
        mu, low = jnp.linalg.eigvals(block)[0] - block[1, 1], block[1, 0]
        size = lax.sqrt(lax.square(lax.abs(mu)) + lax.square(lax.abs(low)))
        # A negligible entry needs no rotation; one would change phases only.
        eps = float(jnp.finfo(t.dtype).eps)
        idle = lax.abs(low) <= eps * (lax.abs(block[0, 0]) + lax.abs(block[1, 1]))
        size = cast(lax.select(idle, lax.full_like(size, 1), size), t.dtype)
        c, s = (lax.select(idle, lax.full_like(mu, e), v / size) for v, e in ((mu, 1), (low, 0)))
        # SciPy's rotation for a real subdiagonal, which every real Schur form has.
        rotation = lax.reshape(jnp.stack([lax.conj(c), s, -s, c]), (2, 2))
        # Entries left of the two columns and below the two rows are 0 in a Schur form, and are not read.
        upper = lax.dynamic_slice(t, (m - 1, 0), (2, n))
        upper = jnp.where(places >= m - 1, jnp.matmul(rotation, upper), upper)
        t = turn_columns(lax.dynamic_update_slice(t, upper, (m - 1, 0)), m, rotation, places[:, None] <= m)
        # The rotation zeroes the entry up to rounding only.
        return t.at[m, m - 1].set(0), turn_columns(z, m, rotation, True)

    return lax.fori_loop(0, n - 1, turn, (t, z)) if n > 1 else (t, z)


@_static()
def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple:
    """The polar decomposition a = U P, or a = P U.

    Args:
      a: matrices, num[*batch, m, n]; for `"qdwh"` with m >= n, and from the left with m <= n.
      side: the side of P, `"right"` or `"left"`.
      method: `"qdwh"` for iterations, or `"svd"`.
      eps: the tolerance of the iterations; by default the machine epsilon of the dtype.
      max_iterations: the maximum number of iterations, 10 by default.

    Returns:
      (U, P): U with orthonormal columns or rows, P Hermitian and positive semidefinite.

    Raises:
      ArgumentError: `side` or `method` is unknown.
      ShapeError: `a` is not a matrix, or `method="qdwh"` does not support its shape.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> jnp.round(linalg.polar(jnp.array([[0.0, -2.0], [2.0, 0.0]]))[1], 4).tolist()
      [[2.0, 0.0], [0.0, 2.0]]
    """
    check_choice("linalg.polar", "side", side, ("right", "left"))
    check_choice("linalg.polar", "method", method, ("qdwh", "svd"))
    x = check_matrix(a, "polar")
    m, n = x.shape[-2:]
    if method == "qdwh" and (m < n if side == "right" else m > n):
        raise ShapeError(
            "linalg.polar",
            expected=f"a matrix of m rows and n columns, m {'>=' if side == 'right' else '<='} n",
            got=x.shape,
            fix="use method='svd', or the other side",
        )
    if method == "svd":
        u, s, vh = jnp.linalg.svd(x, full_matrices=False)
        s = lax.expand_dims(cast(s, x.dtype), (s.ndim - 1,))  # one row, which scales columns
        p = jnp.matmul(adjoint(vh) * s, vh) if side == "right" else jnp.matmul(u * s, adjoint(u))
        return jnp.matmul(u, vh), p

    def decompose(x: Array) -> tuple:
        u, p, _, _ = decompositions.qdwh(x, eps=eps, max_iterations=max_iterations)
        return u, p

    u, p = jnp.vectorize(decompose, signature="(m,n)->(m,n),(n,n)")(x if side == "right" else adjoint(x))
    return (u, p) if side == "right" else (adjoint(u), p)
