"""Linear algebra: `numpy.linalg`, on stacks of matrices.

Built on the decompositions of `lax.linalg`, on `square_matrices` and on `contraction`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.engine.frames import guard as _guard
from phalanx.lax import linalg as decompositions
from phalanx.lax.linalg.qr import geqrf_p
from phalanx.numpy import contraction, ufuncs
from phalanx.numpy.contraction import cross as _cross
from phalanx.numpy.contraction import matmul as _matmul
from phalanx.numpy.contraction import tensordot as _tensordot
from phalanx.numpy.contraction import vecdot as _vecdot
from phalanx.numpy.creation import eye
from phalanx.numpy.diagonals import diagonal as _diagonal
from phalanx.numpy.diagonals import trace as _trace
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import canonical_axes, cast, operand, promote_inexact
from phalanx.numpy.reductions import max as _max
from phalanx.numpy.reductions import min as _min
from phalanx.numpy.reductions import sum as _sum
from phalanx.numpy.shapes import matrix_transpose as _matrix_transpose
from phalanx.numpy.shapes import moveaxis, reshape
from phalanx.numpy.square_matrices import adjoint, matrix, signs_and_logs, squares
from phalanx.numpy.square_matrices import det as det
from phalanx.numpy.square_matrices import inv as inv
from phalanx.numpy.square_matrices import matrix_power as matrix_power
from phalanx.numpy.square_matrices import solve as solve
from phalanx.numpy.square_matrices import tensorinv as tensorinv
from phalanx.numpy.square_matrices import tensorsolve as tensorsolve
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import max_dim

_static = eager_program(
    static_argnames=(
        "full_matrices", "compute_uv", "hermitian", "subset_by_index", "mode", "UPLO", "symmetrize_input", "upper",
        "ord", "axis", "keepdims", "p",
    )
)  # fmt: skip


class EighResult(NamedTuple):
    """What `eigh` gives."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """What `eig` gives."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """What `qr` gives."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """What `svd` gives."""

    U: Any
    S: Any
    Vh: Any


class SlogdetResult(NamedTuple):
    """What `slogdet` gives."""

    sign: Any
    logabsdet: Any


@_static
def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """The Cholesky factor of positive definite matrices.

    Args:
      a: positive definite matrices, num[*batch, n, n].
      upper: give the upper triangular factor.
      symmetrize_input: take the Hermitian part of `a` first.

    Returns:
      Lower triangular L with L L^H = a, or upper triangular U with U^H U = a; NaN where there is none.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.cholesky(jnp.array([[4.0, 0.0], [0.0, 9.0]])).tolist()
      [[2.0, 0.0], [0.0, 3.0]]
    """
    x = matrix(a, "cholesky", square=True)
    factor = decompositions.cholesky(
        adjoint(x) if upper and not symmetrize_input else x, symmetrize_input=symmetrize_input
    )
    return adjoint(factor) if upper else factor


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:  # fmt: skip
    """The singular value decomposition, a = U diag(S) Vh.

    Args:
      a: matrices, num[*batch, m, n].
      full_matrices: make U and Vh square.
      compute_uv: give U and Vh too.
      hermitian: `a` is Hermitian, which allows a cheaper way.
      subset_by_index: from which singular value, counted from the largest, to which to give.

    Returns:
      An SVDResult (U, S, Vh), where S holds the singular values in descending order; or S alone.

    Raises:
      ShapeError: the rank is below 2.

    Examples:
      >>> jnp.linalg.svd(jnp.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False).tolist()
      [4.0, 3.0]
    """
    out = _svd(a, full_matrices, compute_uv, hermitian, subset_by_index)
    return SVDResult(*out) if compute_uv else out


@_static
def _svd(a: Any, full_matrices: bool, compute_uv: bool, hermitian: bool, subset_by_index: Any) -> Any:
    x = matrix(a, "svd")
    if hermitian:
        w, v = decompositions.eigh(x)[::-1]
        order = ufuncs.negative(ufuncs.absolute(w))
        from phalanx.numpy.sorting import argsort
        from phalanx.numpy.taking import take_along_axis

        places = argsort(order)
        s = take_along_axis(w, places, -1)
        if not compute_uv:
            return ufuncs.absolute(s)
        u = take_along_axis(v, places[..., None, :], -1)
        signs = where(s < 0, -1, 1).astype(s.dtype)
        return u, ufuncs.absolute(s), adjoint(u * signs[..., None, :])
    if not compute_uv:
        return _only(
            decompositions.svd(x, full_matrices=full_matrices, compute_uv=False, subset_by_index=subset_by_index)
        )
    return tuple(decompositions.svd(x, full_matrices=full_matrices, subset_by_index=subset_by_index))


def _only(x: Any) -> Any:
    return x[0] if isinstance(x, tuple | list) else x


def svdvals(x: Any, /) -> Any:
    """The singular values.

    Args:
      x: matrices, num[*batch, m, n].

    Returns:
      float[*batch, min(m, n)], descending.

    Examples:
      >>> jnp.linalg.svdvals(jnp.array([[3.0, 0.0], [0.0, 4.0]])).tolist()
      [4.0, 3.0]
    """
    return svd(x, compute_uv=False)


def qr(a: Any, mode: str = "reduced") -> Any:
    """The QR decomposition.

    Args:
      a: matrices, num[*batch, m, n].
      mode: `"reduced"` (or `"full"`), `"complete"`, `"r"` for R alone, `"raw"` for Householder vectors and their
        factors.

    Returns:
      A QRResult (Q, R) with orthonormal columns in Q and upper triangular R: a = Q R; or what the mode says.

    Raises:
      ArgumentError: there is no such mode.
      ShapeError: the rank is below 2.

    Examples:
      >>> abs(jnp.linalg.qr(jnp.array([[3.0], [4.0]])).R[0, 0]).item()
      5.0
    """
    if mode not in ("reduced", "complete", "r", "raw", "full"):
        raise ArgumentError("linalg.qr, argument mode", expected="'reduced', 'complete', 'r', 'raw' or 'full'",
                            got=repr(mode), mend="use one")  # fmt: skip
    q, r = _qr(a, mode)
    return r if mode == "r" else QRResult(q, r)


@_static
def _qr(a: Any, mode: str) -> tuple:
    x = matrix(a, "qr")
    if mode == "raw":
        packed, factors = geqrf_p(x)
        return _matrix_transpose(packed), factors
    return tuple(decompositions.qr(x, full_matrices=mode == "complete"))


def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """The eigenvalues, ascending, and eigenvectors of Hermitian matrices.

    Args:
      a: Hermitian matrices, num[*batch, n, n].
      UPLO: which triangle to read, `"L"` or `"U"`.
      symmetrize_input: take the Hermitian part of `a` first.

    Returns:
      An EighResult (eigenvalues[*batch, n], eigenvectors[*batch, n, n]), the eigenvectors being columns.

    Raises:
      ArgumentError: there is no such `UPLO`.
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
      [1.0, 2.0]
    """
    if UPLO not in (None, "L", "U"):
        raise ArgumentError("linalg.eigh, argument UPLO", expected="'L' or 'U'", got=repr(UPLO), mend="leave it out")
    v, w = _eigh(a, UPLO, symmetrize_input)
    return EighResult(w, v)


@_static
def _eigh(a: Any, UPLO: str | None, symmetrize_input: bool) -> tuple:
    x = matrix(a, "eigh", square=True)
    return tuple(decompositions.eigh(x, lower=UPLO != "U", symmetrize_input=symmetrize_input))


def eigvalsh(a: Any, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Any:
    """The eigenvalues of Hermitian matrices, ascending.

    Args:
      a, UPLO, symmetrize_input: as in `eigh`.

    Returns:
      float[*batch, n].

    Examples:
      >>> jnp.linalg.eigvalsh(jnp.array([[2.0, 0.0], [0.0, 1.0]])).tolist()
      [1.0, 2.0]
    """
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def eig(a: Any) -> EigResult:
    """The eigenvalues and right eigenvectors of square matrices.

    Args:
      a: num[*batch, n, n].

    Returns:
      An EigResult (eigenvalues[*batch, n], eigenvectors[*batch, n, n]) of complex numbers, the vectors being columns.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.eig(jnp.array([[2.0]])).eigenvalues.tolist()
      [(2+0j)]
    """
    return EigResult(*_eig(a))


@eager_program
def _eig(a: Any) -> tuple:
    return tuple(decompositions.eig(matrix(a, "eig", square=True), compute_left_eigenvectors=False))


@eager_program
def eigvals(a: Any) -> Any:
    """The eigenvalues of square matrices.

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
    x = matrix(a, "eigvals", square=True)
    return _only(decompositions.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False))


def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """The sign and the logarithm of the magnitude of determinants.

    Args:
      a: num[*batch, n, n].
      method: the decomposition to read them from, `"lu"` (the default) or `"qr"`.

    Returns:
      A SlogdetResult (sign[*batch], logabsdet[*batch]), det = sign exp(logabsdet); 0 and -inf where it is 0.

    Raises:
      ArgumentError: there is no such method.
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.slogdet(jnp.array([[1.0]])).logabsdet.item()
      0.0
    """
    if method not in (None, "lu", "qr"):
        raise ArgumentError(
            "linalg.slogdet, argument method", expected="'lu' or 'qr'", got=repr(method), mend="use one"
        )
    return SlogdetResult(*signs_and_logs(a, method or "lu"))


@_static
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of vectors or matrices.

    Args:
      x: an array or a scalar.
      ord: a number or ±inf; of matrices ±1, ±2, ±inf, `"fro"` or `"nuc"`; None for the root of the sum of squares.
      axis: the axis of vectors, or two axes of matrices; None for all.
      keepdims: keep the reduced dimensions, of size 1.

    Returns:
      Real numbers of the shape of `x` without the axes.

    Raises:
      ArgumentError: there is no such norm, or it is asked for along more than two axes.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.linalg.norm(jnp.array([3.0, 4.0])).item()
      5.0
    """
    (x,) = promote_inexact("linalg.norm", operand(x, "linalg.norm"))
    if axis is None:
        if ord is None:
            out = _length(x, tuple(range(x.ndim)))
            return reshape(out, (1,) * x.ndim) if keepdims else out
        axes = tuple(range(x.ndim))
    else:
        axes = canonical_axes(axis, x.ndim, "linalg.norm")
    if len(axes) == 1:
        return _vector_norm(x, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise ArgumentError("linalg.norm, argument axis", expected="one axis or two", got=axis, mend="ravel the array")


def _largest(magnitudes: Any, axis: Any, keepdims: bool = False) -> Any:
    """The largest of what is nowhere negative: 0 for none."""
    return _max(magnitudes, axis=axis, keepdims=keepdims, initial=0)


def _length(x: Any, axes: tuple, keepdims: bool = False) -> Any:
    return ufuncs.sqrt(_sum(squares(x), axis=axes, keepdims=keepdims))


def _vector_norm(x: Any, ord: Any, axes: tuple, keepdims: bool) -> Any:
    if ord is None or ord == 2:
        return _length(x, axes, keepdims)
    if isinstance(ord, str):
        raise ArgumentError(
            "linalg.norm, argument ord", expected="a number for vectors", got=repr(ord), mend="leave it out"
        )
    if ord == np.inf:
        return _largest(ufuncs.absolute(x), axis=axes, keepdims=keepdims)
    if ord == -np.inf:
        return _min(ufuncs.absolute(x), axis=axes, keepdims=keepdims)
    if ord == 0:
        return _sum((x != 0).astype(ufuncs.absolute(x).dtype), axis=axes, keepdims=keepdims)
    if ord == 1:
        return _sum(ufuncs.absolute(x), axis=axes, keepdims=keepdims)
    return _sum(ufuncs.absolute(x) ** ord, axis=axes, keepdims=keepdims) ** (1.0 / ord)


def _matrix_norm(x: Any, ord: Any, axes: tuple, keepdims: bool) -> Any:
    if ord in (None, "f", "fro"):
        return _length(x, axes, keepdims)
    if ord in ("nuc", 2, -2):
        s = svd(moveaxis(x, axes, (-2, -1)), compute_uv=False)
        out = _sum(s, axis=-1) if ord == "nuc" else (_largest if ord == 2 else _min)(s, axis=-1)
        return lax.expand_dims(out, tuple(sorted(axes))) if keepdims else out
    if ord not in (1, -1, np.inf, -np.inf):
        raise ArgumentError("linalg.norm, argument ord", expected="None, 'fro', 'nuc', 1, 2, inf or their negatives",
                            got=repr(ord), mend="use one")  # fmt: skip
    first, second = axes if abs(ord) == 1 else axes[::-1]
    sums = _sum(ufuncs.absolute(x), axis=first, keepdims=True)
    out = (_largest if ord > 0 else _min)(sums, axis=second, keepdims=True)
    return out if keepdims else lax.squeeze(out, tuple(sorted(axes)))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norm of the matrices along the last two axes.

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
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The norm of the vectors along axes, of all elements by default.

    Args:
      x: an array or a scalar.
      axis: an axis, a tuple of them, or None for all.
      keepdims, ord: as in `norm` of vectors.

    Returns:
      Real numbers of the shape of `x` without the axes.

    Examples:
      >>> jnp.linalg.vector_norm(jnp.array([3.0, 4.0])).item()
      5.0
    """
    (x,) = promote_inexact("linalg.vector_norm", operand(x, "linalg.vector_norm"))
    return _vector_norm(x, ord, canonical_axes(axis, x.ndim, "linalg.vector_norm"), keepdims)


@_static
def cond(x: Any, p: Any = None) -> Any:
    """The condition number of matrices.

    Args:
      x: matrices, num[*batch, m, n].
      p: 2 (or None) or -2 for the ratio of singular values, else a norm of matrices as in `norm`.

    Returns:
      float[*batch].

    Raises:
      ShapeError: the rank is below 2, a matrix is empty, or for other norms not square.

    Examples:
      >>> jnp.linalg.cond(jnp.array([[4.0, 0.0], [0.0, 2.0]])).item()
      2.0
    """
    by_svd = p in (None, 2, -2)
    x = matrix(x, "cond", square=not by_svd)
    if 0 in x.shape[-2:]:
        raise ShapeError("linalg.cond", expected="matrices with elements", got=x.shape, mend="leave empty ones out")
    if by_svd:
        s = svd(x, compute_uv=False)
        r = s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0]
    else:
        r = norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))
    nan = lax.reduce_or(lax.ne(x, x), (x.ndim - 2, x.ndim - 1))
    return where(lax.ne(r, r) & ~nan, np.inf, r)


@_static
def _rank(m: Any, tol: Any, hermitian: bool) -> Any:
    x = operand(m, "linalg.matrix_rank")
    if x.ndim < 2:
        return lax.reduce_or(lax.ne(x, x.dtype.type(0)), tuple(range(x.ndim))).astype(int)
    s = svd(x, compute_uv=False, hermitian=hermitian)
    if tol is None:
        tol = _largest(s, axis=-1) * (max_dim(*x.shape[-2:]) * float(dtypes.finfo(s.dtype).eps))
    return _sum((s > lax.expand_dims(operand(tol, "linalg.matrix_rank"), (-1,))).astype(int), axis=-1)


def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Any:
    """The number of singular values above a tolerance.

    Args:
      M: matrices num[*batch, m, n]; of a vector or a number, whether one is not 0.
      rtol: the tolerance, not relative; by default the largest singular value times max(m, n) and the spacing at 1.
      hermitian: `M` is Hermitian, so that eigenvalues do.
      tol: NumPy's name of the same.

    Returns:
      int[*batch].

    Raises:
      ArgumentError: both tolerances are given.

    Examples:
      >>> jnp.linalg.matrix_rank(jnp.eye(3)).item()
      3
    """
    if rtol is not None and tol is not None:
        raise ArgumentError("linalg.matrix_rank", expected="rtol or tol", got="both", mend="give one")
    return _rank(M, tol if rtol is None else rtol, hermitian)


@_static
def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Any:
    """The pseudo-inverse.

    Args:
      a: num[*batch, m, n].
      rtol, rcond: newer and older name of the part of the largest singular value below which others count as 0.
      hermitian: `a` is Hermitian, which allows a cheaper way.

    Returns:
      num[*batch, n, m].

    Raises:
      ArgumentError: both `rtol` and `rcond` are given.
      ShapeError: the rank is below 2.

    Examples:
      >>> jnp.linalg.pinv(jnp.array([[2.0]])).tolist()
      [[0.5]]
    """
    x = matrix(a, "pinv")
    if rtol is not None and rcond is not None:
        raise ArgumentError("linalg.pinv", expected="rtol or its older name rcond", got="both", mend="give one")
    rtol = rcond if rtol is None else rtol
    if rtol is None:
        rtol = 10.0 * max_dim(*x.shape[-2:]) * float(dtypes.finfo(x.dtype).eps)
    return _pinv(x, rtol, hermitian)


def _pinv(x: Any, rtol: Any, hermitian: bool) -> Any:
    from phalanx.custom_derivatives import custom_jvp

    @functools.partial(custom_jvp)
    def inverse(x: Any) -> Any:
        u, s, vh = svd(x, full_matrices=False, hermitian=hermitian)
        bound = cast(operand(rtol, "linalg.pinv"), s.dtype) * s[..., :1]
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
        ph = adjoint(p)
        p_dot = -_matmul(_matmul(p, x_dot), p)
        p_dot = p_dot + _matmul(_matmul(_matmul(p, ph), adjoint(x_dot)), right)
        p_dot = p_dot + _matmul(left, _matmul(adjoint(x_dot), _matmul(ph, p)))
        return p, p_dot

    return inverse(x)


def lstsq(a: Any, b: Any, rcond: float | None = None, *, numpy_resid: bool = False) -> tuple:
    """The least-squares solution, residuals, rank and singular values.

    Args:
      a: num[m, n].
      b: right-hand sides, num[m] or num[m, k].
      rcond: singular values below this times the largest count as 0.
      numpy_resid: give no residuals where NumPy gives none.

    Returns:
      The solution [n] or [n, k], the sums of squared residuals [k], the rank, and the singular values, descending.

    Raises:
      ShapeError: `a` is no matrix, or `b` has another number of rows.

    Examples:
      >>> round(jnp.linalg.lstsq(jnp.array([[1.0], [1.0]]), jnp.array([1.0, 3.0]))[0].item(), 5)
      2.0
    """
    x, residuals, rank, s = _lstsq(a, b, rcond)
    if numpy_resid and (int(rank) < np.shape(a)[1] or np.shape(a)[0] <= np.shape(a)[1]):
        residuals = residuals[:0]
    return x, residuals, rank, s


@eager_program
def _lstsq(a: Any, b: Any, rcond: Any) -> tuple:
    x, y = promote_inexact("linalg.lstsq", operand(a, "linalg.lstsq"), operand(b, "linalg.lstsq"))
    if x.ndim != 2 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        raise ShapeError("linalg.lstsq", expected="a matrix and right-hand sides of as many rows",
                         got=f"{x.shape} and {y.shape}", mend="reshape them")  # fmt: skip
    vector = y.ndim == 1
    y = y[:, None] if vector else y
    m, n = x.shape
    rcond = float(dtypes.finfo(x.dtype).eps) * max_dim(m, n) if rcond is None else rcond
    u, s, vh = svd(x, full_matrices=False)
    mask = (s > 0) & (s >= cast(operand(rcond, "linalg.lstsq"), s.dtype) * s[:1])
    rank = _sum(mask.astype(int))
    safe = where(mask, s, 1).astype(s.dtype)
    inverse = where(mask, 1 / safe, 0).astype(x.dtype)[:, None]
    solution = _matmul(adjoint(vh), inverse * _matmul(adjoint(u), y))
    residuals = _sum(squares(y - _matmul(x, solution)), axis=0)
    return (solution[:, 0] if vector else solution), residuals, rank, s


@eager_program
def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Any:
    """The product of several matrices, in the cheapest order.

    Args:
      arrays: matrices; the first and the last may be vectors, a row and a column.
      precision: of the computation, as in `lax.dot`.

    Returns:
      The product: a matrix, or a vector or number where vectors are at the ends.

    Raises:
      ArgumentError: there are fewer than two arrays.

    Examples:
      >>> jnp.linalg.multi_dot([jnp.eye(2), jnp.eye(2), jnp.ones(2)]).tolist()
      [1.0, 1.0]
    """
    from phalanx.numpy.einsums import einsum

    xs = [operand(x, "linalg.multi_dot") for x in arrays]
    if len(xs) < 2:
        raise ArgumentError("linalg.multi_dot", expected="two arrays or more", got=len(xs), mend="give more")
    letters = "abcdefghijklmnopqrstuvwxyz"
    terms = [letters[i : i + 2] for i in range(len(xs))]
    terms[0] = terms[0] if xs[0].ndim == 2 else terms[0][1]
    terms[-1] = terms[-1] if xs[-1].ndim == 2 else terms[-1][0]
    result = (terms[0][0] if xs[0].ndim == 2 else "") + (terms[-1][-1] if xs[-1].ndim == 2 else "")
    return einsum(",".join(terms) + "->" + result, *xs, precision=precision, optimize="auto")


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The cross product of vectors of 3 elements.

    Args:
      x1, x2: vectors of 3 along the axis, the other dimensions broadcasting.
      axis: along which the vectors lie, also in the result.

    Returns:
      Vectors of 3, in the broadcast shape.

    Raises:
      ShapeError: the vectors have another size, or shapes do not broadcast.

    Examples:
      >>> jnp.linalg.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0])).tolist()
      [0, 0, 1]
    """
    x, y = operand(x1, "linalg.cross"), operand(x2, "linalg.cross")
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise ShapeError(
            "linalg.cross", expected="vectors of 3 elements", got=f"{x.shape} and {y.shape}", mend="give axis="
        )
    return _cross(x, y, axis=axis)


def outer(x1: Any, x2: Any, /) -> Any:
    """All products of an element of one vector and one of another.

    Args:
      x1, x2: num[m] and num[n].

    Returns:
      num[m, n].

    Raises:
      ShapeError: an operand is no vector.

    Examples:
      >>> jnp.linalg.outer(jnp.array([1, 2]), jnp.array([3, 4])).tolist()
      [[3, 4], [6, 8]]
    """
    x, y = operand(x1, "linalg.outer"), operand(x2, "linalg.outer")
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError("linalg.outer", expected="two vectors", got=f"{x.shape} and {y.shape}", mend="use numpy.outer")
    return contraction.outer(x, y)


def matmul(x1: Any, x2: Any, /, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The product of matrices.

    Args:
      x1, x2, precision, preferred_element_type: as for `phalanx.numpy.matmul`, of which this is another name.

    Returns:
      The products, as there.

    Examples:
      >>> jnp.linalg.matmul(jnp.eye(2), jnp.ones(2)).tolist()
      [1.0, 1.0]
    """
    return _matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(
    x1: Any, x2: Any, /, *, axes: Any = 2, precision: Any = None, preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """The product over given dimensions.

    Args:
      x1, x2, axes, precision, preferred_element_type, out_sharding: as for `phalanx.numpy.tensordot`.

    Returns:
      The product, as there.

    Examples:
      >>> jnp.linalg.tensordot(jnp.eye(2), jnp.ones(2), axes=1).tolist()
      [1.0, 1.0]
    """
    options = {"precision": precision, "preferred_element_type": preferred_element_type, "out_sharding": out_sharding}
    return _tensordot(x1, x2, axes, **options)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The sums of products along an axis.

    Args:
      x1, x2, axis, precision, preferred_element_type: as for `phalanx.numpy.vecdot`, of which this is another name.

    Returns:
      The sums, as there.

    Examples:
      >>> jnp.linalg.vecdot(jnp.ones(2), jnp.ones(2)).item()
      2.0
    """
    return _vecdot(x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type)


def matrix_transpose(x: Any, /) -> Any:
    """The last two dimensions exchanged.

    Args:
      x: num[*batch, m, n].

    Returns:
      num[*batch, n, m].

    Examples:
      >>> jnp.linalg.matrix_transpose(jnp.ones((2, 3))).shape
      (3, 2)
    """
    return _matrix_transpose(x)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonals of the matrices along the last two axes.

    Args:
      x: num[*batch, m, n].
      offset: which diagonal: 0 the main one, above it positive.

    Returns:
      num[*batch, k] with the k elements of the diagonal.

    Examples:
      >>> jnp.linalg.diagonal(jnp.eye(2)).tolist()
      [1.0, 1.0]
    """
    return _diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sums of the diagonals of the matrices along the last two axes.

    Args:
      x, offset: as in `diagonal`.
      dtype: of the sums, as in `phalanx.numpy.sum`.

    Returns:
      num[*batch].

    Examples:
      >>> jnp.linalg.trace(jnp.eye(2)).item()
      2.0
    """
    return _trace(x, offset, -2, -1, dtype)


_guard(globals())
