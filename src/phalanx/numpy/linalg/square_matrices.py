"""Square matrices: determinants, inverses, powers and linear systems, from the LU decomposition of `lax.linalg`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError
from phalanx.custom_rules import custom_jvp
from phalanx.lax import linalg as decompositions
from phalanx.lax.linalg.qr import geqrf_p
from phalanx.numpy.creation.array_creation import eye
from phalanx.numpy.indexing.take import take_along_axis
from phalanx.numpy.indexing.where import where
from phalanx.numpy.operands import broadcast_shapes, broadcast_to_shape, cast, check_choice, promote_inexact, to_operand
from phalanx.numpy.products.matrix_products import matmul
from phalanx.numpy.reductions.array_reductions import prod, sum
from phalanx.numpy.shapes.diagonals import diagonal, trace, tril
from phalanx.numpy.shapes.reshaping import matrix_transpose, moveaxis, reshape
from phalanx.numpy.ufuncs import ufunc_table
from phalanx.numpy.ufuncs.ufunc_implementations import squared_magnitudes
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, Axis


def check_matrix(a: ArrayLike, name: str, square: bool = False) -> Array:
    """Convert the operand of a function of `linalg` to matrices of an inexact dtype.

    Raises:
      ShapeError: the rank is below 2, or a matrix is not square although `square` is True.
    """
    (x,) = promote_inexact(f"linalg.{name}", to_operand(a, f"linalg.{name}"))
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ShapeError(
            f"linalg.{name}",
            expected="a square matrix or a stack of them" if square else "a matrix or a stack of them",
            got=f"an array of shape {x.shape}",
            fix="pass arrays of shape [..., n, n]" if square else "pass arrays of shape [..., m, n]",
        )
    return x


def adjoint(x: ArrayLike) -> Array:
    """Conjugate transpose."""
    return lax.conj(matrix_transpose(x)) if x.dtype.kind == "c" else matrix_transpose(x)


def _lu_diagonal(x: Array) -> tuple:
    """The diagonal of U and the determinant of P in the decomposition P x = L U."""
    factors, pivots, _ = decompositions.lu(x)
    # Each pivot that is not its own row is one transposition, which changes the sign.
    rows = lax.broadcasted_iota(np.dtype(np.int32), pivots.shape, pivots.ndim - 1)
    swaps = sum(cast(pivots != rows, np.dtype(np.int32)), axis=-1)
    return diagonal(factors, 0, -2, -1), 1 - 2 * cast(swaps % 2, x.dtype)


def _sign_and_log(d: Array, turn: Array) -> tuple:
    size = ufunc_table.absolute(d)
    sign = d / cast(where(size == 0, 1, size), d.dtype) if d.dtype.kind == "c" else ufunc_table.sign(d)
    return prod(sign, axis=-1) * turn, sum(ufunc_table.log(size), axis=-1)


def _slogdet_by_qr(x: Array) -> tuple:
    @custom_jvp
    def slogdet(x: Array) -> tuple:
        packed, factors = geqrf_p(x)
        # Q is a product of Householder reflections I - tau v v^H with v[0] = 1, whose determinants are 1 - tau |v|^2.
        lengths = 1 + sum(squared_magnitudes(tril(packed, -1)), axis=-2)
        return _sign_and_log(diagonal(packed, 0, -2, -1), prod(1 - factors * cast(lengths, x.dtype), axis=-1))

    @slogdet.defjvp
    def slogdet_jvp(primals: tuple, tangents: tuple) -> tuple:
        # Jacobi's formula: d log|det x| = trace(x^-1 dx); for complex x its imaginary part turns the sign.
        (x,), (x_dot,) = primals, tangents
        sign, log = slogdet(x)
        log_dot = trace(solve(x, x_dot), 0, -2, -1)
        if x.dtype.kind != "c":
            return (sign, log), (sign * 0, log_dot)
        return (sign, log), (sign * lax.complex(lax.imag(log_dot) * 0, lax.imag(log_dot)), lax.real(log_dot))

    return slogdet(x)


@eager_jit
def det(a: ArrayLike) -> Array:
    """Determinant of square matrices.

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
    x = check_matrix(a, "det", square=True)
    n = x.shape[-1]
    # Closed forms up to 3 x 3: no pivoting, and derivatives that are polynomials.
    if n == 1:
        return x[..., 0, 0]
    if n == 2:
        return x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]
    if n == 3:
        (a, b, c), (d, e, f), (g, h, i) = ([x[..., r, k] for k in range(3)] for r in range(3))
        return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
    diagonal, turn = _lu_diagonal(x)
    return prod(diagonal, axis=-1) * turn


@eager_jit
def inv(a: ArrayLike) -> Array:
    """Inverse of square matrices.

    Args:
      a: num[*batch, n, n].

    Returns:
      num[*batch, n, n], in floating point; not finite for a singular matrix.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
      [[0.5, 0.0], [0.0, 0.25]]
    """
    x = check_matrix(a, "inv", square=True)
    return _solve(x, broadcast_to_shape(eye(x.shape[-1], dtype=x.dtype), x.shape))


@eager_jit
def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """Solve the linear system a x = b.

    Args:
      a: num[*batch, n, n].
      b: a vector num[n], or matrices of right-hand sides, num[*batch, n, k].

    Returns:
      num[*batch, n] for a vector `b`, otherwise num[*batch, n, k]; leading dimensions broadcast.

    Raises:
      ShapeError: a matrix is not square, or `b` has another number of rows.

    Examples:
      >>> jnp.linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 4.0])).tolist()
      [1.0, 1.0]
    """
    x, y = promote_inexact("linalg.solve", a, b)
    x = check_matrix(x, "solve", square=True)
    vector = y.ndim == 1
    if not y.ndim or y.shape[-1 if vector else -2] != x.shape[-1]:
        raise ShapeError(
            "linalg.solve, argument b",
            expected=f"{x.shape[-1]} rows",
            got=y.shape,
            fix=f"give b {x.shape[-1]} rows, for example by transposing it",
        )
    return _solve(x, y[:, None])[..., 0] if vector else _solve(x, y)


def _solve(x: Array, y: Array) -> Any:
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2], where="linalg.solve")
    # P x = L U: permute the right-hand sides, then solve two triangular systems.
    factors, _, order = decompositions.lu(x)
    y = broadcast_to_shape(y, (*lead, *y.shape[-2:]))
    factors = broadcast_to_shape(factors, (*lead, *factors.shape[-2:]))
    order = broadcast_to_shape(order, (*lead, order.shape[-1]))
    y = take_along_axis(y, order[..., None], -2, mode="promise_in_bounds")
    y = decompositions.triangular_solve(factors, y, left_side=True, lower=True, unit_diagonal=True)
    return decompositions.triangular_solve(factors, y, left_side=True, lower=False)


@eager_jit(static_argnames=("n",))
def matrix_power(a: ArrayLike, n: int) -> Array:
    """Integer power of square matrices, by repeated squaring.

    Args:
      a: num[*batch, n, n].
      n: the exponent; a negative one applies to the inverse.

    Returns:
      num[*batch, n, n]; the identity for n = 0.

    Raises:
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.matrix_power(jnp.array([[2.0]]), 3).tolist()
      [[8.0]]
    """
    x = to_operand(a, "linalg.matrix_power")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(
            "linalg.matrix_power", expected="square matrices", got=x.shape, fix="pass arrays of shape [..., n, n]"
        )
    if n == 0:
        return broadcast_to_shape(eye(x.shape[-1], dtype=x.dtype), x.shape)
    x, n = (inv(x), -n) if n < 0 else (x, n)
    out = None
    # From the lowest bit of the exponent on, `x` runs through the powers with exponents 1, 2, 4, 8, ...
    while n:
        if n & 1:
            out = x if out is None else matmul(out, x)
        n >>= 1
        x = matmul(x, x) if n else x
    return out  # type: ignore[return-value]


@eager_jit(static_argnames=("ind",))
def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """Inverse of an array as a linear map between tensors.

    Args:
      a: array whose first `ind` dimensions have the same product as the others.
      ind: number of leading dimensions that index the output of the map, 1 or more.

    Returns:
      The inverse: the last dimensions of `a`, followed by the first `ind`.

    Raises:
      ArgumentError: `ind` is below 1.
      ShapeError: the two products differ.

    Examples:
      >>> jnp.linalg.tensorinv(jnp.eye(4).reshape(2, 2, 2, 2)).shape
      (2, 2, 2, 2)
    """
    x = to_operand(a, "linalg.tensorinv")
    if ind <= 0:
        raise ArgumentError(
            "linalg.tensorinv, argument ind", expected="a number above 0", got=ind, fix="pass ind=1 or more"
        )
    return reshape(inv(reshape(x, (math.prod(x.shape[:ind]), -1))), (*x.shape[ind:], *x.shape[:ind]))


@eager_jit(static_argnames=("axes",))
def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Axis = None) -> Array:
    """Solve the tensor equation tensordot(a, x, x.ndim) = b.

    Args:
      a: array whose leading dimensions equal the shape of `b`; the others are the shape of the solution.
      b: the right-hand side.
      axes: axes of `a` to move to its end first.

    Returns:
      The solution, with the last dimensions of `a`.

    Raises:
      ShapeError: `a` does not begin with the dimensions of `b`, or the products differ.

    Examples:
      >>> jnp.linalg.tensorsolve(jnp.eye(4).reshape(2, 2, 2, 2), jnp.ones((2, 2))).shape
      (2, 2)
    """
    x, y = to_operand(a, "linalg.tensorsolve"), to_operand(b, "linalg.tensorsolve")
    if axes is not None:
        x = moveaxis(x, tuple(axes), tuple(range(x.ndim - len(axes), x.ndim)))
    rest = x.shape[y.ndim :]
    if x.shape[: y.ndim] != y.shape:
        raise ShapeError(
            "linalg.tensorsolve",
            expected=f"leading dimensions {y.shape} of a, as of b",
            got=x.shape,
            fix="name the axes of a that the solution has",
        )
    return reshape(solve(reshape(x, (-1, math.prod(rest))), reshape(y, (-1,))), rest)


class SlogdetResult(NamedTuple):
    """Result of `slogdet`."""

    sign: Any
    logabsdet: Any


@eager_jit
def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """Sign and logarithm of the absolute value of determinants.

    Args:
      a: num[*batch, n, n].
      method: the decomposition to use, `"lu"` (the default) or `"qr"`.

    Returns:
      A SlogdetResult (sign[*batch], logabsdet[*batch]) with det = sign * exp(logabsdet); (0, -inf) if det is 0.

    Raises:
      ArgumentError: `method` is unknown.
      ShapeError: a matrix is not square.

    Examples:
      >>> jnp.linalg.slogdet(jnp.array([[1.0]])).logabsdet.item()
      0.0
    """
    check_choice("linalg.slogdet, argument method", method, (None, "lu", "qr"))
    x = check_matrix(a, "slogdet", square=True)
    return SlogdetResult(*(_slogdet_by_qr(x) if method == "qr" else _sign_and_log(*_lu_diagonal(x))))
