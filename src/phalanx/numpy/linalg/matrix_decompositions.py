"""Matrix decompositions of `numpy.linalg`: Cholesky, QR, singular values, eigenvalues. Builds on `lax.linalg`."""

from __future__ import annotations

from typing import Any, NamedTuple

from phalanx.lax import linalg as decompositions
from phalanx.lax.linalg.qr import geqrf_p
from phalanx.numpy.indexing.take import take_along_axis
from phalanx.numpy.indexing.where import where
from phalanx.numpy.linalg.square_matrices import adjoint, check_matrix
from phalanx.numpy.operands import check_choice
from phalanx.numpy.shapes.reshaping import matrix_transpose as _matrix_transpose
from phalanx.numpy.sorting.sort_and_search import argsort
from phalanx.numpy.ufuncs import ufunc_table
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike

_static = eager_jit(
    static_argnames=(
        "full_matrices",
        "compute_uv",
        "hermitian",
        "subset_by_index",
        "mode",
        "UPLO",
        "symmetrize_input",
        "upper",
        "ord",
        "axis",
        "keepdims",
        "p",
    )
)


class EighResult(NamedTuple):
    """Result of `eigh`."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """Result of `eig`."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """Result of `qr`."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """Result of `svd`."""

    U: Any
    S: Any
    Vh: Any


@_static
def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """Cholesky decomposition of positive definite matrices.

    Args:
      a: positive definite matrices, num[*batch, n, n].
      upper: return the upper triangular factor.
      symmetrize_input: replace `a` by its Hermitian part first.

    Returns:
      Lower triangular L with L L^H = a, or upper triangular U with U^H U = a; NaN for a matrix that has none.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.cholesky(jnp.array([[4.0, 0.0], [0.0, 9.0]])).tolist()
      [[2.0, 0.0], [0.0, 3.0]]
    """
    x = check_matrix(a, "cholesky", square=True)
    factor = decompositions.cholesky(
        adjoint(x) if upper and not symmetrize_input else x, symmetrize_input=symmetrize_input
    )
    return adjoint(factor) if upper else factor


@_static
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """Singular value decomposition a = U diag(S) Vh.

    Args:
      a: matrices, num[*batch, m, n].
      full_matrices: return square U and Vh.
      compute_uv: whether to return U and Vh.
      hermitian: promise that `a` is Hermitian, which allows a cheaper algorithm.
      subset_by_index: pair (begin, end) that selects singular values, numbered in descending order.

    Returns:
      An SVDResult (U, S, Vh) with S in descending order; S alone if `compute_uv` is False.

    Raises:
      ShapeError: the rank is below 2.

    Examples:
      >>> jnp.linalg.svd(jnp.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False).tolist()
      [4.0, 3.0]
    """
    x = check_matrix(a, "svd")
    if hermitian:
        # The singular values of a Hermitian matrix are the absolute eigenvalues; U and Vh differ by their signs.
        w, v = decompositions.eigh(x)[::-1]
        places = argsort(ufunc_table.negative(ufunc_table.absolute(w)))
        s = take_along_axis(w, places, -1)
        if not compute_uv:
            return ufunc_table.absolute(s)
        u = take_along_axis(v, places[..., None, :], -1)
        signs = where(s < 0, -1, 1).astype(s.dtype)
        return SVDResult(u, ufunc_table.absolute(s), adjoint(u * signs[..., None, :]))
    out = decompositions.svd(x, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index)
    return SVDResult(*out) if compute_uv else out


def svdvals(x: ArrayLike, /) -> Array:
    """Singular values of matrices.

    Args:
      x: matrices, num[*batch, m, n].

    Returns:
      float[*batch, min(m, n)], in descending order.

    Examples:
      >>> jnp.linalg.svdvals(jnp.array([[3.0, 0.0], [0.0, 4.0]])).tolist()
      [4.0, 3.0]
    """
    return svd(x, compute_uv=False)


@_static
def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """QR decomposition a = Q R.

    Args:
      a: matrices, num[*batch, m, n].
      mode: `"reduced"` (alias `"full"`), `"complete"`, `"r"` for R alone, `"raw"` for the Householder reflectors
        and their coefficients.

    Returns:
      A QRResult (Q, R) with orthonormal columns in Q and upper triangular R; R alone for mode `"r"`.

    Raises:
      ArgumentError: `mode` is unknown.
      ShapeError: the rank is below 2.

    Examples:
      >>> abs(jnp.linalg.qr(jnp.array([[3.0], [4.0]])).R[0, 0]).item()
      5.0
    """
    check_choice("linalg.qr, argument mode", mode, ("reduced", "complete", "r", "raw", "full"))
    x = check_matrix(a, "qr")
    if mode == "raw":
        # LAPACK's packed form: R above the diagonal, Householder vectors below; NumPy documents its transpose.
        packed, factors = geqrf_p(x)
        return QRResult(_matrix_transpose(packed), factors)
    q, r = decompositions.qr(x, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


@_static
def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues, in ascending order, and eigenvectors of Hermitian matrices.

    Args:
      a: Hermitian matrices, num[*batch, n, n].
      UPLO: the triangle to read, `"L"` or `"U"`.
      symmetrize_input: replace `a` by its Hermitian part first.

    Returns:
      An EighResult (eigenvalues[*batch, n], eigenvectors[*batch, n, n]); eigenvectors are columns.

    Raises:
      ArgumentError: `UPLO` is unknown.
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
      [1.0, 2.0]
    """
    check_choice("linalg.eigh, argument UPLO", UPLO, (None, "L", "U"))
    x = check_matrix(a, "eigh", square=True)
    v, w = decompositions.eigh(x, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(w, v)


def eigvalsh(a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """Eigenvalues of Hermitian matrices, in ascending order.

    Args:
      a, UPLO, symmetrize_input: as in `eigh`.

    Returns:
      float[*batch, n].

    Examples:
      >>> jnp.linalg.eigvalsh(jnp.array([[2.0, 0.0], [0.0, 1.0]])).tolist()
      [1.0, 2.0]
    """
    return eigh(a, UPLO, symmetrize_input).eigenvalues


@eager_jit
def eig(a: ArrayLike) -> EigResult:
    """Eigenvalues and right eigenvectors of square matrices.

    Args:
      a: num[*batch, n, n].

    Returns:
      An EigResult (eigenvalues[*batch, n], eigenvectors[*batch, n, n]), complex; eigenvectors are columns.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.eig(jnp.array([[2.0]])).eigenvalues.tolist()
      [(2+0j)]
    """
    return EigResult(*decompositions.eig(check_matrix(a, "eig", square=True), compute_left_eigenvectors=False))


@eager_jit
def eigvals(a: ArrayLike) -> Array:
    """Eigenvalues of square matrices.

    Args:
      a: num[*batch, n, n].

    Returns:
      complex[*batch, n], in no particular order.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.eigvals(jnp.array([[2.0]])).tolist()
      [(2+0j)]
    """
    x = check_matrix(a, "eigvals", square=True)
    return decompositions.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]
