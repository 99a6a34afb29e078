"""Functions of matrices: the exponential, the square root, and any function by the Schur decomposition.

Builds on `decompositions` and `systems`; `scipy.linalg` shows them.

Source: Higham (2005), doi:10.1137/04061101X (exponential); Higham (2008), Functions of Matrices (root, Parlett).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ShapeError
from phalanx.custom_derivatives import custom_jvp
from phalanx.lax import linalg as decompositions
from phalanx.numpy import linalg
from phalanx.numpy.contraction import matmul
from phalanx.numpy.creation import eye
from phalanx.numpy.diagonals import diag, diagonal, triu
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import cast, operand, promote_inexact
from phalanx.numpy.square_matrices import adjoint, matrix
from phalanx.runtime.dispatch import eager_program
from phalanx.scipy.linalg.decompositions import as_complex, refused
from phalanx.scipy.linalg.systems import sylvester
from phalanx.transforms import jvp

# By itemsize of a real number: coefficients of the Pade approximant, and up to which norm it is exact.
_PADE = {
    4: ((17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1), 3.925724783138660),
    8: ((64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
         670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1), 5.371920351148152),
}  # fmt: skip


@eager_program(static_argnames=("upper_triangular", "max_squarings"))
def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Any:
    """The exponential of square matrices.

    Args:
      A: num[*batch, n, n].
      upper_triangular: whether the matrices are, which saves time.
      max_squarings: how often the result may be squared; for matrices of a larger norm it is NaN.

    Returns:
      num[*batch, n, n].

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.expm(jnp.array([[0.0, 1.0], [0.0, 0.0]])).round(4).tolist()
      [[1.0, 1.0], [0.0, 1.0]]
    """
    x = matrix(A, "expm", square=True)
    size = x.dtype.itemsize // (2 if x.dtype.kind == "c" else 1)
    given = x.dtype
    x = cast(x, np.dtype(np.float32)) if size < 4 else x
    coefficients, bound = _PADE[max(size, 4)]
    norms = lax.stop_gradient(linalg.norm(x, 1, (-2, -1)))
    count = lax.max(lax.ceil(lax.log(lax.max(norms, norms.dtype.type(bound)) / bound) / math.log(2)), norms * 0)
    too_large = lax.bitwise_not(count <= max_squarings)  # also NaN
    count = where(too_large, 0, count)
    wide = lambda v: lax.expand_dims(v, (v.ndim, v.ndim + 1))
    over, under = _fraction(coefficients, x * cast(wide(lax.exp2(-count)), x.dtype))
    if upper_triangular:
        y = decompositions.triangular_solve(under, over, left_side=True)
    else:
        y = linalg.solve(under, over)

    def square(i: Any, y: Any) -> Any:
        needed = cast(i, count.dtype) < count
        twice = lambda y: where(wide(needed), matmul(y, y), y)
        return lax.cond(lax.reduce_or(needed, tuple(range(needed.ndim))), twice, lambda y: y, y)

    y = lax.fori_loop(0, max_squarings, square, y)
    return cast(where(wide(too_large), cast(np.nan, y.dtype), y), given)


def _fraction(c: tuple, x: Any) -> tuple:
    """Numerator and denominator of the Pade approximant of exp."""
    one = eye(x.shape[-1], dtype=x.dtype)
    square = matmul(x, x)
    powers = [one, square]
    while 2 * len(powers) < len(c):
        powers.append(matmul(powers[-1], square))
    odd, even = (sum(float(k) * p for k, p in zip(c[start::2], powers, strict=False)) for start in (1, 0))
    odd = matmul(x, odd)
    scale = 1.0 / float(c[0])  # so that nothing overflows
    return (even + odd) * scale, (even - odd) * scale


def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """The derivative of the exponential of a matrix in a direction.

    Args:
      A: num[*batch, n, n].
      E: the direction, of the same shape.
      method: `"SPS"` (also None) or `"blockEnlarge"`, the exponential of a matrix of blocks.
      compute_expm: give the exponential too.

    Returns:
      (the exponential, its derivative), or the derivative.

    Raises:
      ArgumentError: there is no such method.
      ShapeError: the shapes differ, or a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.expm_frechet(jnp.zeros((2, 2)), jnp.eye(2), compute_expm=False).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    if method not in (None, "SPS", "blockEnlarge"):
        raise refused("expm_frechet", "method", ("SPS", "blockEnlarge"), method)
    out = _expm_frechet(A, E, method or "SPS")
    return tuple(out) if compute_expm else out[1]


@eager_program(static_argnames=("method",))
def _expm_frechet(a: Any, e: Any, method: str) -> tuple:
    a, e = promote_inexact("linalg.expm_frechet", *(operand(v, "linalg.expm_frechet") for v in (a, e)))
    a, e = (matrix(v, "expm_frechet", square=True) for v in (a, e))
    if a.shape != e.shape:
        raise ShapeError("linalg.expm_frechet, argument E", expected=f"shape {a.shape}, that of A", got=e.shape,
                         mend="give a direction for each element")  # fmt: skip
    if method == "SPS":
        return tuple(jvp(expm, (a,), (e,)))
    n = a.shape[-1]
    upper = lax.concatenate([a, e], a.ndim - 1)
    whole = expm(lax.concatenate([upper, lax.concatenate([a * 0, a], a.ndim - 1)], a.ndim - 2))
    return whole[..., :n, :n], whole[..., :n, n:]


@eager_program(static_argnames=("blocksize",))
def sqrtm(A: Any, blocksize: int = 1) -> Any:
    """The principal square root of a matrix.

    Args:
      A: num[n, n].
      blocksize: must be 1.

    Returns:
      complex[n, n], whose square is `A`.

    Raises:
      ArgumentError: `blocksize` is another number.
      ShapeError: `A` is no square matrix.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.sqrtm(jnp.array([[4.0, 0.0], [0.0, 9.0]])).real.tolist()
      [[2.0, 0.0], [0.0, 3.0]]
    """
    if blocksize != 1:
        raise refused("sqrtm", "blocksize", (1,), blocksize)
    x = as_complex(_single(A, "sqrtm"))
    return _root(x) if np.size(x) else x


def _single(a: Any, name: str) -> Any:
    x = matrix(a, name, square=True)
    if x.ndim != 2:
        raise ShapeError(f"linalg.{name}", expected="a square matrix", got=x.shape, mend="map it with vmap")
    return x


@custom_jvp
def _root(x: Any) -> Any:
    t, z = decompositions.schur(x)
    n = x.shape[0]
    roots = lax.sqrt(diagonal(t))
    places = lax.iota(np.dtype(np.int32), n)
    identity = eye(n, dtype=x.dtype)

    def column(j: Any, r: Any) -> Any:
        """(R + r_jj) r_j = t_j above the diagonal, by the columns before, which are roots already."""
        above = places < j
        left = where(lax.expand_dims(above, (0,)) & lax.expand_dims(above, (1,)), r, 0)
        root = lax.dynamic_index_in_dim(roots, j, 0, keepdims=False)
        rhs = where(lax.expand_dims(above, (1,)), lax.dynamic_slice_in_dim(t, j, 1, 1), 0)
        found = decompositions.triangular_solve(left + diag(where(above, root, 1)), rhs, left_side=True)
        found = where(lax.expand_dims(above, (1,)), found, 0) + identity[:, j][:, None] * root
        return lax.dynamic_update_slice_in_dim(r, found, j, 1)

    r = lax.fori_loop(0, n, column, t * 0)
    return matmul(matmul(z, r), adjoint(z))


@_root.defjvp
def _root_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    root = _root(x)
    return root, sylvester(root, root, "schur", 0.0)(x_dot)


def funm(A: Any, func: Callable, disp: bool = True) -> Any:
    """Any function of a matrix, by the recurrence of Parlett.

    Args:
      A: num[n, n]; the result is exact where its eigenvalues lie apart.
      func: the function of one number, applied to a vector of complex ones.
      disp: give the result alone.

    Returns:
      complex[n, n]; without `disp`, with an estimate of the relative error.

    Raises:
      ShapeError: `A` is no square matrix.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.funm(jnp.array([[2.0, 0.0], [0.0, 3.0]]), lambda x: x * x).real.tolist()
      [[4.0, 0.0], [0.0, 9.0]]
    """
    t, z = decompositions.schur(as_complex(_single(A, "funm")))
    n = t.shape[0]
    d = diagonal(t)
    gaps = lax.expand_dims(d, (0,)) - lax.expand_dims(d, (1,))
    places = lax.iota(np.dtype(np.int32), n)
    offsets = lax.expand_dims(places, (0,)) - lax.expand_dims(places, (1,))
    safe = where(gaps == 0, 1, gaps)

    def superdiagonal(p: Any, f: Any) -> Any:
        change = (matmul(t, f) - matmul(f, t)) / safe
        return where(offsets == p, change, f)

    f = lax.fori_loop(1, n, superdiagonal, diag(func(d)))
    out = matmul(matmul(z, f), adjoint(z))
    if disp:
        return out
    eps = float(dtypes.finfo(t.dtype).eps)
    distances = lax.abs(gaps)
    nearest = lax.reduce_min(where(offsets > 0, distances, np.inf), (0, 1))
    nearest = where(nearest == 0, eps, nearest)
    error = lax.min(1.0, lax.max(eps, eps / nearest * linalg.norm(triu(t, 1), 1)))
    broken = lax.reduce_or(lax.bitwise_not(lax.is_finite(lax.abs(f))), (0, 1))
    return out, where(broken, np.inf, error)
