"""Decompositions with the names and arguments of SciPy.

Builds on `lax.linalg` and `numpy.linalg`; `scipy.linalg` shows them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import promotion
from phalanx.core.errors import ArgumentError, ConcretizationTypeError, ShapeError
from phalanx.lax import linalg as decompositions
from phalanx.numpy import linalg
from phalanx.numpy.contraction import matmul
from phalanx.numpy.creation import eye
from phalanx.numpy.diagonals import diag, tril, triu
from phalanx.numpy.joining import concatenate
from phalanx.numpy.operands import cast, concrete, operand, promote_inexact
from phalanx.numpy.padding import pad
from phalanx.numpy.square_matrices import adjoint, matrix
from phalanx.runtime.dispatch import eager_program

_static = functools.partial(
    eager_program,
    static_argnames=(
        "lower", "overwrite_a", "overwrite_b", "check_finite", "permute_l", "mode", "pivoting", "calc_q", "output",
        "side", "method", "eps", "max_iterations", "type", "eigvals_only",
    ),
)  # fmt: skip


def refused(name: str, argument: str, known: tuple, got: Any) -> ArgumentError:
    """The error of an argument that is none of those known."""
    return ArgumentError(
        f"linalg.{name}, argument {argument}", expected=" or ".join(map(repr, known)), got=repr(got), mend="use one"
    )


def as_complex(x: Any) -> Any:
    """`x` in the complex dtype of its precision."""
    return x if x.dtype.kind == "c" else cast(x, promotion.result_type(x, np.complex64))


@_static()
def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The Cholesky factor of positive definite matrices.

    Args:
      a: positive definite matrices, num[*batch, n, n], of which one triangle is read.
      lower: whether to give, and to read, the lower triangle.
      overwrite_a, check_finite: permissions that change nothing.

    Returns:
      Upper triangular R with R^H R = a, or lower triangular L with L L^H = a; NaN where there is none.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
      [[2.0, 1.0], [0.0, 2.0]]
    """
    del overwrite_a, check_finite
    x = matrix(a, "cholesky", square=True)
    factor = decompositions.cholesky(x if lower else adjoint(x), symmetrize_input=False)
    return factor if lower else adjoint(factor)


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False, check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:  # fmt: skip
    """The singular value decomposition a = U diag(s) Vh.

    Args:
      a: matrices, num[*batch, m, n].
      full_matrices: give square U and Vh.
      compute_uv: give U and Vh at all.
      overwrite_a, check_finite: permissions that change nothing.
      lapack_driver: `"gesdd"` or `"gesvd"`.

    Returns:
      (U, s, Vh), or s.

    Raises:
      ArgumentError: there is no such driver.
      ShapeError: the rank is below 2.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.svd(jnp.diag(jnp.array([3.0, 4.0])), compute_uv=False).tolist()
      [4.0, 3.0]
    """
    del overwrite_a, check_finite
    algorithms = {"gesdd": decompositions.SvdAlgorithm.DEFAULT, "gesvd": decompositions.SvdAlgorithm.QR}
    if lapack_driver not in algorithms:
        raise refused("svd", "lapack_driver", tuple(algorithms), lapack_driver)
    out = _svd(a, full_matrices, compute_uv, algorithms[lapack_driver])
    return (out[0], out[1], out[2]) if compute_uv else out


@eager_program(static_argnames=("full_matrices", "compute_uv", "algorithm"))
def _svd(a: Any, full_matrices: bool, compute_uv: bool, algorithm: Any) -> Any:
    out = decompositions.svd(matrix(a, "svd"), full_matrices=full_matrices, compute_uv=compute_uv, algorithm=algorithm)
    return out if compute_uv or not isinstance(out, tuple | list) else out[0]


def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple:
    """The LU decomposition with partial pivoting, a = P L U.

    Args:
      a: matrices, num[*batch, m, n].
      permute_l: give P L in place of P and L.
      overwrite_a, check_finite: permissions that change nothing.

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
    del overwrite_a, check_finite
    return tuple(_lu(a, permute_l))


@_static()
def _lu(a: Any, permute_l: bool) -> tuple:
    x = matrix(a, "lu")
    packed, _, order = decompositions.lu(x)
    m, n = x.shape[-2:]
    k = min(m, n)
    lower = tril(packed[..., :, :k], -1) + eye(m, k, dtype=x.dtype)
    upper = triu(packed[..., :k, :])
    places = lax.broadcasted_iota(order.dtype, (*order.shape[:-1], m, m), order.ndim - 1)
    p = cast(lax.eq(places, lax.broadcast_in_dim(order, places.shape, (*range(order.ndim - 1), order.ndim))), x.dtype)
    return (matmul(p, lower), upper) if permute_l else (p, lower, upper)


def qr(
    a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full", pivoting: bool = False,
    check_finite: bool = True,
) -> tuple:  # fmt: skip
    """The QR decomposition a = Q R, or a P = Q R.

    Args:
      a: matrices, num[*batch, m, n].
      overwrite_a, check_finite: permissions that change nothing.
      lwork: must be None, since the compiler finds the memory.
      mode: `"full"`, `"economic"`, or `"r"` for R alone.
      pivoting: order columns so that the diagonal of R decreases.

    Returns:
      (Q, R), or (R,); with `pivoting` the order of the columns last.

    Raises:
      ArgumentError: there is no such mode, or `lwork` is given.
      ShapeError: the rank is below 2.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> abs(linalg.qr(jnp.array([[3.0], [4.0]]), mode="r")[0][0, 0]).item()
      5.0
    """
    del overwrite_a, check_finite
    if lwork is not None:
        raise ArgumentError("linalg.qr, argument lwork", expected="None", got=lwork, mend="leave it out")
    if mode not in ("full", "r", "economic"):
        raise refused("qr", "mode", ("full", "r", "economic"), mode)
    q, r, *order = _qr(a, mode, pivoting)
    return (r, *order) if mode == "r" else (q, r, *order)


@_static()
def _qr(a: Any, mode: str, pivoting: bool) -> tuple:
    return tuple(decompositions.qr(matrix(a, "qr"), pivoting=pivoting, full_matrices=mode != "economic"))


@eager_program(static_argnames=("mode", "pivoting", "conjugate", "overwrite_a", "overwrite_c"))
def qr_multiply(
    a: Any, c: Any, mode: str = "right", pivoting: bool = False, conjugate: bool = False, overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple:  # fmt: skip
    """The product of a matrix with the Q of a QR decomposition, and R.

    Args:
      a: a matrix, num[m, n], to be decomposed.
      c: a matrix or a vector; as many columns as `a` has rows, or, from the right of Q, min(m, n) rows.
      mode: `"right"` for c Q, `"left"` for Q c.
      pivoting: order columns so that the diagonal of R decreases.
      conjugate: take the conjugate of Q.
      overwrite_a, overwrite_c: permissions that change nothing.

    Returns:
      (c Q or Q c, R), and with `pivoting` the order of the columns.

    Raises:
      ArgumentError: there is no such mode.
      ShapeError: the shapes do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> abs(linalg.qr_multiply(jnp.array([[3.0], [4.0]]), jnp.array([3.0, 4.0]))[0]).tolist()
      [5.0]
    """
    del overwrite_a, overwrite_c
    if mode not in ("left", "right"):
        raise refused("qr_multiply", "mode", ("left", "right"), mode)
    x, y = promote_inexact("linalg.qr_multiply", operand(a, "linalg.qr_multiply"), operand(c, "linalg.qr_multiply"))
    q, r, *order = decompositions.qr(matrix(x, "qr_multiply"), pivoting=pivoting, full_matrices=False)
    q = lax.conj(q) if conjugate and q.dtype.kind == "c" else q
    meets = y.shape[-1] == q.shape[0] if mode == "right" else y.shape[0] == q.shape[1]
    if y.ndim not in (1, 2) or not meets:
        raise ShapeError("linalg.qr_multiply, argument c", expected=f"what can be multiplied with Q of {q.shape}",
                         got=y.shape, mend="choose the other mode, or transpose it")  # fmt: skip
    return (matmul(y, q) if mode == "right" else matmul(q, y), r, *order)


@eager_program(static_argnames=("lower", "eigvals_only", "type"))
def _eigh(a: Any, b: Any, lower: bool, eigvals_only: bool, type: int) -> Any:
    x = matrix(a, "eigh", square=True)
    if b is None:
        vectors, values = decompositions.eigh(_hermitian(x, lower), lower=lower)
        return values if eigvals_only else (values, vectors)
    x, y = promote_inexact("linalg.eigh", x, matrix(b, "eigh", square=True))
    factor = decompositions.cholesky(_hermitian(y, lower))
    x = _hermitian(x, lower)
    solve = functools.partial(decompositions.triangular_solve, factor, left_side=True, lower=True)
    if type == 1:  # a v = w b v is (L^-1 a L^-H) u = w u, v = L^-H u
        x = adjoint(solve(adjoint(solve(x))))
    else:  # a b v = w v and b a v = w v are (L^H a L) u = w u
        x = matmul(adjoint(factor), matmul(x, factor))
    vectors, values = decompositions.eigh(x)
    if eigvals_only:
        return values
    if type == 3:
        return values, matmul(factor, vectors)
    return values, solve(vectors, transpose_a=True, conjugate_a=True)


def _hermitian(x: Any, lower: bool) -> Any:
    """The Hermitian matrices of which one triangle is given."""
    half = tril(x, -1) if lower else triu(x, 1)
    middle = x - tril(x, -1) - triu(x, 1)
    middle = cast(lax.real(middle), x.dtype) if x.dtype.kind == "c" else middle
    return half + adjoint(half) + middle


def eigh(
    a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False, overwrite_a: bool = False,
    overwrite_b: bool = False, turbo: bool = True, eigvals: None = None, type: int = 1, check_finite: bool = True,
) -> Any:  # fmt: skip
    """The eigenvalues, ascending, and eigenvectors of Hermitian matrices, or of pairs of them.

    Args:
      a: Hermitian matrices, num[*batch, n, n], of which one triangle is read.
      b: positive definite matrices alike, for the generalised problem.
      lower: which triangle is read.
      eigvals_only: give the eigenvalues alone.
      overwrite_a, overwrite_b, turbo, check_finite: permissions that change nothing.
      eigvals: must be None.
      type: the generalised problem: 1: a v = w b v; 2: a b v = w v; 3: b a v = w v.

    Returns:
      (w[*batch, n], v[*batch, n, n]), the vectors being columns; or w.

    Raises:
      ArgumentError: there is no such type, or `eigvals` is given.
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.eigh(jnp.diag(jnp.array([2.0, 1.0])), eigvals_only=True).tolist()
      [1.0, 2.0]
    """
    del overwrite_a, overwrite_b, turbo, check_finite
    if eigvals is not None:
        raise ArgumentError("linalg.eigh, argument eigvals", expected="None", got=eigvals, mend="index the result")
    if type not in (1, 2, 3):
        raise refused("eigh", "type", (1, 2, 3), type)
    out = _eigh(a, b, lower, eigvals_only, type)
    return out if eigvals_only else tuple(out)


def eigh_tridiagonal(
    d: Any, e: Any, *, eigvals_only: bool = False, select: str = "a", select_range: Any = None,
    tol: float | None = None, key: Any = None,
) -> Any:  # fmt: skip
    """The eigenvalues, ascending, and eigenvectors of a Hermitian tridiagonal matrix.

    Args:
      d: the diagonal, real[n].
      e: the diagonal beside it, num[n - 1].
      eigvals_only: give the eigenvalues alone.
      select: `"a"` for all, `"i"` for those of a range of places, `"v"` for those in an interval.
      select_range: the first and the last place, or the ends of the interval, of which the upper one belongs to it.
      tol, key: permissions that change nothing: results are as exact as the dtype, and need no random start.

    Returns:
      (w, v), the vectors being columns; or w.

    Raises:
      ArgumentError: there is no such selection, or it lacks its range.
      ConcretizationTypeError: the eigenvalues are traced and `select` is `"v"`.
      ShapeError: the diagonals do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.eigh_tridiagonal(jnp.array([2.0, 1.0]), jnp.zeros(1), eigvals_only=True).tolist()
      [1.0, 2.0]
    """
    del tol, key
    if select not in ("a", "i", "v"):
        raise refused("eigh_tridiagonal", "select", ("a", "i", "v"), select)
    if select != "a" and select_range is None:
        raise ArgumentError("linalg.eigh_tridiagonal, argument select_range", expected="a pair of numbers", got=None,
                            mend="give the range, or select='a'")  # fmt: skip
    values, vectors = _tridiagonal(d, e)
    if select == "i":
        chosen: Any = slice(select_range[0], select_range[1] + 1)
    elif select == "v":
        known = concrete(values)
        if known is None:
            raise ConcretizationTypeError(
                "linalg.eigh_tridiagonal, argument select", expected="'a' or 'i', as eigenvalues decide the shape",
                got="'v'", mend="select by place",
            )  # fmt: skip
        chosen = np.flatnonzero((known > select_range[0]) & (known <= select_range[1]))
    else:
        chosen = slice(None)
    return values[chosen] if eigvals_only else (values[chosen], vectors[:, chosen])


@eager_program
def _tridiagonal(d: Any, e: Any) -> tuple:
    d, e = promote_inexact("linalg.eigh_tridiagonal", *(operand(v, "linalg.eigh_tridiagonal") for v in (d, e)))
    if d.ndim != 1 or e.shape != (d.shape[0] - 1,):
        raise ShapeError("linalg.eigh_tridiagonal", expected="diagonals of n and n - 1", got=f"{d.shape} and {e.shape}",
                         mend="drop what is not needed")  # fmt: skip
    beside = diag(e, -1)
    vectors, values = decompositions.eigh(diag(d) + beside + adjoint(beside), symmetrize_input=False)
    return values, vectors


def hessenberg(a: Any, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The Hessenberg form of square matrices, a = Q H Q^H.

    Args:
      a: num[*batch, n, n].
      calc_q: give Q too.
      overwrite_a, check_finite: permissions that change nothing.

    Returns:
      H, which is 0 below its first subdiagonal; or (H, Q).

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.hessenberg(jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
      [[1.0, 2.0], [3.0, 4.0]]
    """
    del overwrite_a, check_finite
    return _hessenberg(a, calc_q)


@_static()
def _hessenberg(a: Any, calc_q: bool) -> Any:
    packed, factors = decompositions.hessenberg(matrix(a, "hessenberg", square=True))
    h = triu(packed, -1)
    if not calc_q:
        return h
    n = packed.shape[-1]
    if n < 2:
        return h, lax.full_like(h, 1)
    inner = decompositions.householder_product(packed[..., 1:, :-1], factors)
    wide = [(0, 0)] * (packed.ndim - 2) + [(1, 0), (1, 0)]
    return h, pad(inner, wide) + diag(lax.full((n,), 0, h.dtype).at[0].set(1))


def schur(a: Any, output: str = "real") -> tuple:
    """The Schur decomposition a = Z T Z^H.

    Args:
      a: num[*batch, n, n].
      output: `"real"`, where a real matrix has a real T with 2 by 2 blocks for complex pairs; or `"complex"`.

    Returns:
      (T, Z), T upper triangular and Z unitary.

    Raises:
      ArgumentError: there is no such output.
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.schur(jnp.array([[2.0, 1.0], [0.0, 3.0]]))[0].tolist()
      [[2.0, 1.0], [0.0, 3.0]]
    """
    if output not in ("real", "complex"):
        raise refused("schur", "output", ("real", "complex"), output)
    return tuple(_schur(a, output))


@_static()
def _schur(a: Any, output: str) -> tuple:
    x = matrix(a, "schur", square=True)
    return tuple(decompositions.schur(as_complex(x) if output == "complex" else x))


@eager_program(static_argnames=("check_finite",))
def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple:
    """A real Schur decomposition as a complex one.

    Args:
      T, Z: real or complex matrices, num[n, n]: the result of `schur`.
      check_finite: a permission that changes nothing.

    Returns:
      Upper triangular T and unitary Z of the same matrix.

    Raises:
      ShapeError: a matrix is not square, or they differ.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> t, z = linalg.rsf2csf(jnp.array([[0.0, 1.0], [-1.0, 0.0]]), jnp.eye(2))
      >>> sorted(jnp.diag(t).imag.round(4).tolist())
      [-1.0, 1.0]
    """
    del check_finite
    t, z = (matrix(v, "rsf2csf", square=True) for v in (T, Z))
    if t.ndim != 2 or t.shape != z.shape:
        raise ShapeError("linalg.rsf2csf", expected="two matrices alike", got=f"{t.shape} and {z.shape}",
                         mend="give both results of schur")  # fmt: skip
    t, z = (as_complex(v) for v in promote_inexact("linalg.rsf2csf", t, z))
    n = t.shape[0]
    rows = lax.iota(np.dtype(np.int32), n)

    def turn(i: Any, state: tuple) -> tuple:
        """Make the entry left of the diagonal in row m = n - 1 - i zero by a rotation of rows and columns."""
        t, z = state
        m = n - 1 - i
        block = lax.dynamic_slice(t, (m - 1, m - 1), (2, 2))
        half = (block[0, 0] - block[1, 1]) / 2
        root = lax.sqrt(half * half + block[0, 1] * block[1, 0])
        mu, low = half + root, block[1, 0]
        size = lax.sqrt(lax.square(lax.abs(mu)) + lax.square(lax.abs(low)))
        idle = size == 0
        size = cast(lax.select(idle, lax.full_like(size, 1), size), t.dtype)
        c, s = (lax.select(idle, lax.full_like(mu, e), v / size) for v, e in ((mu, 1), (low, 0)))
        turned = lax.dynamic_update_slice(
            lax.full((n, n), 0, t.dtype), _square(lax.conj(c), lax.conj(s), -s, c), (m - 1, m - 1)
        )
        others = cast((rows != m) & (rows != m - 1), t.dtype)
        g = turned + diag(others)
        t = matmul(matmul(g, t), adjoint(g))
        t = t.at[m, m - 1].set(0)
        return t, matmul(z, adjoint(g))

    return lax.fori_loop(0, n - 1, turn, (t, z)) if n > 1 else (t, z)


def _square(a: Any, b: Any, c: Any, d: Any) -> Any:
    return lax.reshape(concatenate([lax.reshape(v, (1,)) for v in (a, b, c, d)], 0), (2, 2))


def polar(
    a: Any, side: str = "right", *, method: str = "qdwh", eps: float | None = None, max_iterations: int | None = None
) -> tuple:
    """The polar decomposition a = U P, or a = P U.

    Args:
      a: a matrix, num[m, n]; for `"qdwh"` with m >= n, and from the left with m <= n.
      side: on which side P stands, `"right"` or `"left"`.
      method: `"qdwh"` (iterations), or `"svd"`.
      eps: where the iterations end; the rounding of the dtype by default.
      max_iterations: how many there may be, 10 by default.

    Returns:
      (U, P): U with orthonormal columns or rows, P Hermitian and positive semidefinite.

    Raises:
      ArgumentError: there is no such side or method.
      ShapeError: `a` is no matrix of such a shape.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> jnp.round(linalg.polar(jnp.array([[0.0, -2.0], [2.0, 0.0]]))[1], 4).tolist()
      [[2.0, 0.0], [0.0, 2.0]]
    """
    if side not in ("right", "left"):
        raise refused("polar", "side", ("right", "left"), side)
    if method not in ("qdwh", "svd"):
        raise refused("polar", "method", ("qdwh", "svd"), method)
    return tuple(_polar(a, side, method, eps, max_iterations))


@_static()
def _polar(a: Any, side: str, method: str, eps: Any, max_iterations: Any) -> tuple:
    x = matrix(a, "polar")
    m, n = x.shape[-2:]
    if x.ndim != 2 or (method == "qdwh" and (m < n if side == "right" else m > n)):
        shape = {"right": "m >= n", "left": "m <= n"}[side]
        raise ShapeError("linalg.polar", expected=f"a matrix of m rows and n columns, {shape}", got=x.shape,
                         mend="use method='svd', or the other side")  # fmt: skip
    if method == "svd":
        u, s, vh = linalg.svd(x, full_matrices=False)
        s = cast(s, x.dtype)
        p = matmul(adjoint(vh) * s, vh) if side == "right" else matmul(u * s, adjoint(u))
        return matmul(u, vh), p
    u, p, _, _ = decompositions.qdwh(x if side == "right" else adjoint(x), eps=eps, max_iterations=max_iterations)
    return (u, p) if side == "right" else (adjoint(u), p)
