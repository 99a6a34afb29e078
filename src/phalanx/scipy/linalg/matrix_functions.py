"""Functions of matrices: the exponential, the square root, and general functions by the Schur decomposition.

Builds on the decompositions of `lax.linalg` and on `linear_systems`.

Source: Higham (2005), doi:10.1137/04061101X (exponential); Higham (2008), Functions of Matrices (root, Parlett).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ShapeError, dtypes
from phalanx.custom_rules import custom_jvp
from phalanx.lax import linalg as decompositions
from phalanx.numpy.linalg.square_matrices import adjoint, check_matrix
from phalanx.numpy.operands import cast
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_choice, to_complex, to_inexact_operands
from phalanx.scipy.linalg.linear_systems import sylvester
from phalanx.transforms import jvp
from phalanx.typing import Array, ArrayLike

# By the itemsize of the real dtype: the coefficients of the Pade approximant, and the norm up to which it is accurate.
_PADE = {
    4: ((17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1), 3.925724783138660),
    8: ((64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
         670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1), 5.371920351148152),
}  # fmt: skip


@eager_jit(static_argnames=("upper_triangular", "max_squarings"))
def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """The exponential of square matrices.

    Args:
      A: num[*batch, n, n].
      upper_triangular: whether the matrices are upper triangular, which saves time.
      max_squarings: the maximum number of squarings; the result is NaN for matrices that need more.

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
    x = check_matrix(A, "expm", square=True)
    size = x.dtype.itemsize // (2 if x.dtype.kind == "c" else 1)
    given = x.dtype
    x = cast(x, np.dtype(np.float32)) if size < 4 else x
    coefficients, bound = _PADE[max(size, 4)]
    norms = lax.stop_gradient(jnp.linalg.norm(x, 1, (-2, -1)))
    # Scaling and squaring: exp(x) = exp(x / 2^count)^(2^count), with count such that the Pade approximant is accurate.
    count = lax.max(lax.ceil(lax.log(lax.max(norms, norms.dtype.type(bound)) / bound) / math.log(2)), norms * 0)
    # The negated comparison is true for NaN as well.
    too_large = lax.bitwise_not(count <= max_squarings)
    count = jnp.where(too_large, 0, count)
    wide = lambda v: lax.expand_dims(v, (v.ndim, v.ndim + 1))
    over, under = _fraction(coefficients, x * cast(wide(lax.exp2(-count)), x.dtype))
    solve = functools.partial(decompositions.triangular_solve, left_side=True) if upper_triangular else jnp.linalg.solve

    def square(i: Array, y: Array) -> Any:
        # The loop has the length `max_squarings`; the product is skipped once no matrix of the batch needs it.
        needed = cast(i, count.dtype) < count
        twice = lambda y: jnp.where(wide(needed), jnp.matmul(y, y), y)
        return lax.cond(lax.reduce_or(needed, tuple(range(needed.ndim))), twice, lambda y: y, y)

    # A fixed number of steps, of which a batch element uses the first `count`, keeps the loop differentiable.
    y = lax.fori_loop(0, max_squarings, square, solve(under, over))
    return cast(jnp.where(wide(too_large), cast(np.nan, y.dtype), y), given)


def _fraction(c: tuple, x: Array) -> tuple:
    """Numerator and denominator of the Pade approximant of exp."""
    one = jnp.broadcast_to(jnp.eye(x.shape[-1], dtype=x.dtype), x.shape)
    square = jnp.matmul(x, x)
    powers = [one, square]
    while 2 * len(powers) < len(c):
        powers.append(jnp.matmul(powers[-1], square))
    even, odd = (sum(float(k) * p for k, p in zip(c[start::2], powers, strict=False)) for start in (0, 1))
    odd = jnp.matmul(x, odd)
    scale = 1.0 / float(c[0])  # avoids overflow
    return (even + odd) * scale, (even - odd) * scale


@eager_jit(static_argnames=("compute_expm",))
def expm_frechet(A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """The Frechet derivative of the matrix exponential.

    Args:
      A: num[*batch, n, n].
      E: the direction, of the same shape.
      method: `"SPS"` (also None) or `"blockEnlarge"`, the exponential of a matrix of blocks.
      compute_expm: whether to return the exponential too.

    Returns:
      (the exponential, its derivative), or the derivative alone.

    Raises:
      ArgumentError: the method is unknown.
      ShapeError: the shapes differ, or a matrix is not square.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.expm_frechet(jnp.zeros((2, 2)), jnp.eye(2), compute_expm=False).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    check_choice("linalg.expm_frechet", "method", method, (None, "SPS", "blockEnlarge"))
    a, e = (check_matrix(v, "expm_frechet", square=True) for v in to_inexact_operands("linalg.expm_frechet", A, E))
    if a.shape != e.shape:
        raise ShapeError(
            "linalg.expm_frechet, argument E",
            expected=f"shape {a.shape}, that of A",
            got=e.shape,
            fix="pass E with the shape of A",
        )
    if method == "blockEnlarge":
        n = a.shape[-1]
        whole = expm(jnp.concatenate([jnp.concatenate([a, e], -1), jnp.concatenate([a * 0, a], -1)], -2))
        value, derivative = whole[..., :n, :n], whole[..., :n, n:]
    else:
        value, derivative = jvp(expm, (a,), (e,))
    return (value, derivative) if compute_expm else derivative


@eager_jit(static_argnames=("blocksize",))
def sqrtm(A: ArrayLike, blocksize: int = 1) -> Any:
    """The principal square root of a matrix.

    Args:
      A: num[n, n].
      blocksize: must be 1.

    Returns:
      complex[n, n], whose square is `A`.

    Raises:
      ArgumentError: `blocksize` is another number.
      ShapeError: `A` is not a square matrix.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.sqrtm(jnp.array([[4.0, 0.0], [0.0, 9.0]])).real.tolist()
      [[2.0, 0.0], [0.0, 3.0]]
    """
    check_choice("linalg.sqrtm", "blocksize", blocksize, (1,))
    x = to_complex(_check_single_matrix(A, "sqrtm"))
    return _root(x) if np.size(x) else x


def _check_single_matrix(a: Array, name: str) -> Any:
    x = check_matrix(a, name, square=True)
    if x.ndim != 2:
        raise ShapeError(
            f"linalg.{name}",
            expected="a square matrix",
            got=x.shape,
            fix="pass one matrix [n, n], and use phalanx.vmap for a batch",
        )
    return x


@custom_jvp
def _root(x: Array) -> Any:
    t, z = decompositions.schur(x)
    n = x.shape[0]
    roots = lax.sqrt(jnp.diagonal(t))
    places = lax.iota(np.dtype(np.int32), n)
    identity = jnp.eye(n, dtype=x.dtype)

    def column(j: Any, r: ArrayLike | None) -> Any:
        """Column j of the root R of T: its part x above the diagonal solves (R_j + r_jj I) x = t_j.

        R_j is the leading j by j block, which the previous iterations computed.
        """
        above = places < j
        left = jnp.where(lax.expand_dims(above, (0,)) & lax.expand_dims(above, (1,)), r, 0)
        root = lax.dynamic_index_in_dim(roots, j, 0, keepdims=False)
        rhs = jnp.where(lax.expand_dims(above, (1,)), lax.dynamic_slice_in_dim(t, j, 1, 1), 0)
        found = decompositions.triangular_solve(left + jnp.diag(jnp.where(above, root, 1)), rhs, left_side=True)
        found = jnp.where(lax.expand_dims(above, (1,)), found, 0) + identity[:, j][:, None] * root
        return lax.dynamic_update_slice_in_dim(r, found, j, 1)

    r = lax.fori_loop(0, n, column, t * 0)
    return jnp.matmul(jnp.matmul(z, r), adjoint(z))


@_root.defjvp
def _root_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    root = _root(x)
    return root, sylvester(root, root, "schur", 0.0)(x_dot)


def funm(A: ArrayLike, func: Callable, disp: bool = True) -> Any:
    """Any function of a matrix, by Parlett's recurrence.

    Args:
      A: num[n, n]; the result is accurate if its eigenvalues are well separated.
      func: a scalar function, which is applied to the vector of complex eigenvalues.
      disp: False to return an estimate of the error too.

    Returns:
      complex[n, n]; with `disp=False` a pair of it and an estimate of the relative error.

    Raises:
      ShapeError: `A` is not a square matrix.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.funm(jnp.array([[2.0, 0.0], [0.0, 3.0]]), lambda x: x * x).real.tolist()
      [[4.0, 0.0], [0.0, 9.0]]
    """
    t, z = decompositions.schur(to_complex(_check_single_matrix(A, "funm")))
    d = jnp.diagonal(t)
    gaps = lax.expand_dims(d, (0,)) - lax.expand_dims(d, (1,))
    n = t.shape[0]
    offsets = np.arange(n, dtype=np.int32) - np.arange(n, dtype=np.int32)[:, None]
    safe = jnp.where(gaps == 0, 1, gaps)

    # f commutes with t. For superdiagonal p this is an equation for the elements of f on it, in terms of those on the
    # superdiagonals before it (Parlett's recurrence).
    def superdiagonal(p: Array, f: Array) -> Any:
        change = (jnp.matmul(t, f) - jnp.matmul(f, t)) / safe
        return jnp.where(offsets == p, change, f)

    f = lax.fori_loop(1, n, superdiagonal, jnp.diag(func(d)))
    out = jnp.matmul(jnp.matmul(z, f), adjoint(z))
    if disp:
        return out
    eps = float(dtypes.finfo(t.dtype).eps)
    nearest = lax.reduce_min(jnp.where(offsets > 0, lax.abs(gaps), np.inf), (0, 1))
    nearest = jnp.where(nearest == 0, eps, nearest)
    error = lax.min(1.0, lax.max(eps, eps / nearest * jnp.linalg.norm(jnp.triu(t, 1), 1)))
    broken = lax.reduce_or(lax.bitwise_not(lax.is_finite(lax.abs(f))), (0, 1))
    return out, jnp.where(broken, np.inf, error)
