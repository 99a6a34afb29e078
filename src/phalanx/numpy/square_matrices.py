"""Square matrices: determinants, inverses, powers, and the solution of systems.

Built on the LU decomposition of `lax.linalg`; `linalg` shows these to users and builds on them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.custom_derivatives import custom_jvp
from phalanx.engine.frames import guard as _guard
from phalanx.lax import linalg as decompositions
from phalanx.lax.linalg.qr import geqrf_p
from phalanx.numpy import ufuncs
from phalanx.numpy.contraction import matmul
from phalanx.numpy.creation import eye
from phalanx.numpy.diagonals import diagonal, trace, tril
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import broadcast_shapes, broadcast_to_shape, cast, operand, promote_inexact
from phalanx.numpy.reductions import prod, sum
from phalanx.numpy.shapes import matrix_transpose, moveaxis, reshape
from phalanx.numpy.taking import take_along_axis
from phalanx.runtime.dispatch import eager_program


def matrix(a: Any, name: str, square: bool = False) -> Any:
    """A matrix or a stack of them, in an inexact dtype.

    Raises:
      ShapeError: `a` is none, or not square where it must be.
    """
    (x,) = promote_inexact(f"linalg.{name}", operand(a, f"linalg.{name}"))
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        what = "a square matrix or a stack of them" if square else "a matrix or a stack of them"
        raise ShapeError(f"linalg.{name}", expected=what, got=f"an array of shape {x.shape}", mend="reshape it")
    return x


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return lax.conj(matrix_transpose(x)) if x.dtype.kind == "c" else matrix_transpose(x)


def squares(x: Any) -> Any:
    """The squared magnitudes."""
    return lax.square(lax.real(x)) + lax.square(lax.imag(x)) if x.dtype.kind == "c" else lax.square(x)


@eager_program(static_argnames=("method",))
def signs_and_logs(a: Any, method: str) -> tuple:
    """The signs of determinants and the logarithms of their magnitudes, by `"lu"` or `"qr"`."""
    x = matrix(a, "slogdet", square=True)
    return _signed_log(*_triangular(x)) if method == "lu" else _slogdet_by_qr(x)


def _triangular(x: Any) -> tuple:
    """The diagonal of U in P x = L U, and the determinant of P."""
    factors, pivots, _ = decompositions.lu(x)
    swaps = sum(cast(pivots != lax.iota(np.dtype(np.int32), pivots.shape[-1]), np.dtype(np.int32)), axis=-1)
    return diagonal(factors, 0, -2, -1), 1 - 2 * cast(swaps % 2, x.dtype)


def _signed_log(d: Any, turn: Any) -> tuple:
    size = ufuncs.absolute(d)
    sign = d / cast(where(size == 0, 1, size), d.dtype) if d.dtype.kind == "c" else ufuncs.sign(d)
    return prod(sign, axis=-1) * turn, sum(ufuncs.log(size), axis=-1)


def _slogdet_by_qr(x: Any) -> tuple:
    @custom_jvp
    def slogdet(x: Any) -> tuple:
        packed, factors = geqrf_p(x)
        # A reflection I - tau v v^H, where v begins with 1, has the determinant 1 - tau |v|^2.
        lengths = 1 + sum(squares(tril(packed, -1)), axis=-2)
        return _signed_log(diagonal(packed, 0, -2, -1), prod(1 - factors * cast(lengths, x.dtype), axis=-1))

    @slogdet.defjvp
    def slogdet_jvp(primals: tuple, tangents: tuple) -> tuple:
        (x,), (x_dot,) = primals, tangents
        sign, log = slogdet(x)
        log_dot = trace(solve(x, x_dot), 0, -2, -1)
        if x.dtype.kind != "c":
            return (sign, log), (sign * 0, log_dot)
        return (sign, log), (sign * lax.complex(lax.imag(log_dot) * 0, lax.imag(log_dot)), lax.real(log_dot))

    return slogdet(x)


@eager_program
def det(a: Any) -> Any:
    """The determinant.

    Args:
      a: num[*batch, n, n].

    Returns:
      num[*batch], in floating point.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]])).item()
      -2.0
    """
    x = matrix(a, "det", square=True)
    n = x.shape[-1]
    if n == 1:
        return x[..., 0, 0]
    if n == 2:
        return x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]
    if n == 3:
        return _det3(x)
    d, turn = _triangular(x)
    return prod(d, axis=-1) * turn


def _det3(x: Any) -> Any:
    (a, b, c), (d, e, f), (g, h, i) = ([x[..., r, k] for k in range(3)] for r in range(3))
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


@eager_program
def inv(a: Any) -> Any:
    """The inverse of square matrices.

    Args:
      a: num[*batch, n, n].

    Returns:
      num[*batch, n, n], in floating point; not finite where a matrix is singular.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
      [[0.5, 0.0], [0.0, 0.25]]
    """
    x = matrix(a, "inv", square=True)
    return _solve(x, broadcast_to_shape(eye(x.shape[-1], dtype=x.dtype), x.shape))


@eager_program
def solve(a: Any, b: Any) -> Any:
    """The solution x of a x = b.

    Args:
      a: num[*batch, n, n].
      b: a vector num[n], or matrices of right-hand sides, num[*batch, n, k].

    Returns:
      num[*batch, n] for a vector, else num[*batch, n, k]; the leading dimensions broadcast.

    Raises:
      ShapeError: a matrix is not square, or `b` has another number of rows.

    Examples:
      >>> jnp.linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 4.0])).tolist()
      [1.0, 1.0]
    """
    x, y = promote_inexact("linalg.solve", a, b)
    x = matrix(x, "solve", square=True)
    vector = y.ndim == 1
    if not y.ndim or y.shape[-1 if vector else -2] != x.shape[-1]:
        raise ShapeError("linalg.solve, argument b", expected=f"{x.shape[-1]} rows", got=y.shape, mend="transpose it")
    return _solve(x, y[:, None])[..., 0] if vector else _solve(x, y)


def _solve(x: Any, y: Any) -> Any:
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2], where="linalg.solve")
    factors, _, order = decompositions.lu(x)
    y = broadcast_to_shape(y, (*lead, *y.shape[-2:]))
    factors = broadcast_to_shape(factors, (*lead, *factors.shape[-2:]))
    order = broadcast_to_shape(order, (*lead, order.shape[-1]))
    y = take_along_axis(y, order[..., None], -2, mode="promise_in_bounds")
    y = decompositions.triangular_solve(factors, y, left_side=True, lower=True, unit_diagonal=True)
    return decompositions.triangular_solve(factors, y, left_side=True, lower=False)


@eager_program(static_argnames=("n",))
def matrix_power(a: Any, n: int) -> Any:
    """The n-th power of square matrices.

    Args:
      a: num[*batch, n, n].
      n: an integer; the inverse is taken for a negative one.

    Returns:
      num[*batch, n, n]; the identity for n = 0.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.matrix_power(jnp.array([[2.0]]), 3).tolist()
      [[8.0]]
    """
    x = operand(a, "linalg.matrix_power")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError("linalg.matrix_power", expected="square matrices", got=x.shape, mend="reshape it")
    if n == 0:
        return broadcast_to_shape(eye(x.shape[-1], dtype=x.dtype), x.shape)
    x, n = (inv(x), -n) if n < 0 else (x, n)
    out = None
    while n:
        if n & 1:
            out = x if out is None else matmul(out, x)
        n >>= 1
        x = matmul(x, x) if n else x
    return out


@eager_program(static_argnames=("ind",))
def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse of the map that an array is as a tensor.

    Args:
      a: the product of its first `ind` dimensions is that of the others.
      ind: how many leading dimensions are the result of the map, 1 or more.

    Returns:
      An array of the last dimensions of `a`, then the first `ind`.

    Raises:
      ArgumentError: `ind` is below 1.
      ShapeError: the two products differ.

    Examples:
      >>> jnp.linalg.tensorinv(jnp.eye(4).reshape(2, 2, 2, 2)).shape
      (2, 2, 2, 2)
    """
    x = operand(a, "linalg.tensorinv")
    if ind <= 0:
        raise ArgumentError("linalg.tensorinv, argument ind", expected="a number above 0", got=ind, mend="give 1")
    n = math.prod(x.shape[:ind])
    return reshape(inv(reshape(x, (n, -1))), (*x.shape[ind:], *x.shape[:ind]))


@eager_program(static_argnames=("axes",))
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """The solution x of tensordot(a, x, x.ndim) = b.

    Args:
      a: the dimensions of `b`, then those of the solution, which have the same product.
      b: the right-hand side.
      axes: dimensions of `a` to move to its end first, for the solution.

    Returns:
      The solution, of the last dimensions of `a`.

    Raises:
      ShapeError: `a` does not begin with the dimensions of `b`, or the products differ.

    Examples:
      >>> jnp.linalg.tensorsolve(jnp.eye(4).reshape(2, 2, 2, 2), jnp.ones((2, 2))).shape
      (2, 2)
    """
    x, y = operand(a, "linalg.tensorsolve"), operand(b, "linalg.tensorsolve")
    if axes is not None:
        x = moveaxis(x, tuple(axes), tuple(range(x.ndim - len(axes), x.ndim)))
    rest = x.shape[y.ndim :]
    n = math.prod(rest)
    if x.shape[: y.ndim] != y.shape:
        raise ShapeError("linalg.tensorsolve", expected=f"leading dimensions {y.shape} of a, as of b", got=x.shape,
                         mend="name the axes of a that are those of the solution")  # fmt: skip
    return reshape(solve(reshape(x, (-1, n)), reshape(y, (-1,))), rest)


_guard(globals())
