"""Polynomials represented by vectors of coefficients, highest power first."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, dtypes
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.creation.ranges import arange
from phalanx.numpy.indexing.where import where
from phalanx.numpy.linalg import eigvals, inv, lstsq
from phalanx.numpy.operands import (
    as_array,
    cast,
    check_vector,
    complex_result_dtype,
    concrete_or_none,
    promote,
    promote_inexact,
    to_operand,
    to_static_int,
)
from phalanx.numpy.products.convolve import convolve
from phalanx.numpy.products.matrix_products import outer
from phalanx.numpy.reductions.array_reductions import argmax, sum
from phalanx.numpy.shapes.diagonals import diag
from phalanx.numpy.shapes.joining import concatenate
from phalanx.numpy.shapes.rearranging import roll, trim_zeros
from phalanx.numpy.shapes.reshaping import atleast_1d
from phalanx.numpy.sorting.sort_and_search import argsort
from phalanx.numpy.ufuncs.ufunc_table import power
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic
from phalanx.typing import Array, ArrayLike


def _vector(x: Array, name: str, max_rank: int = 1) -> Any:
    x = atleast_1d(array(x) if isinstance(x, list | tuple) else to_operand(x, name))
    if x.ndim > max_rank:
        raise ShapeError(name, expected="a vector of coefficients", got=x.shape, fix="ravel it, or map over rows")
    return x


@eager_jit(static_argnames=("unroll",))
def _horner(p: ArrayLike, x: Array, unroll: int) -> Any:
    p, x = promote("polyval", p, x)
    y = lax.full(x.shape, 0, p.dtype)
    # A short Horner scheme is faster without a loop.
    if not is_symbolic(p.shape[0]) and p.shape[0] <= 2 * unroll:
        for i in range(p.shape[0]):
            y = y * x + p[i]
        return y
    return lax.scan(lambda y, c: (y * x + c, None), y, p, unroll=unroll)[0]


def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """Evaluate a polynomial by Horner's method.

    Args:
      p: coefficients along the first dimension; other dimensions broadcast with `x`.
      x: points at which to evaluate.
      unroll: loop iterations to unroll; up to twice as many coefficients are evaluated without a loop.

    Returns:
      The values of the polynomial, in the shape of `x`.

    Examples:
      >>> jnp.polyval(jnp.array([1, 2, 3]), 2).item()
      11
    """
    return _horner(_vector(p, "polyval", 64), to_operand(x, "polyval"), unroll)


@eager_jit
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Sum of two polynomials.

    Args:
      a1, a2: vectors of coefficients.

    Returns:
      A vector of coefficients, as long as the longer operand.

    Raises:
      ShapeError: an operand is not a vector.

    Examples:
      >>> jnp.polyadd(jnp.array([1, 2]), jnp.array([3])).tolist()
      [1, 5]
    """
    x, y = _pad_to_equal_length("polyadd", a1, a2)
    return x + y


@eager_jit
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Difference of two polynomials.

    Args:
      a1, a2: vectors of coefficients.

    Returns:
      A vector of coefficients, as long as the longer operand.

    Raises:
      ShapeError: an operand is not a vector.

    Examples:
      >>> jnp.polysub(jnp.array([1, 2]), jnp.array([3])).tolist()
      [1, -1]
    """
    x, y = _pad_to_equal_length("polysub", a1, a2)
    return x - y


def _pad_to_equal_length(name: str, a1: Any, a2: Any) -> list:
    parts = promote(name, _vector(a1, name), _vector(a2, name))
    n = max(v.shape[0] for v in parts)
    return [lax.pad(v, v.dtype.type(0), [(n - v.shape[0], 0, 0)]) if v.shape[0] < n else v for v in parts]


def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """Product of two polynomials.

    Args:
      a1, a2: vectors of m and n coefficients.
      trim_leading_zeros: strip leading zeros of the operands first, which requires concrete values.

    Returns:
      A vector of m + n - 1 coefficients, in floating point.

    Raises:
      ShapeError: an operand is not a vector, or is empty.

    Examples:
      >>> jnp.polymul(jnp.array([1.0, 1.0]), jnp.array([1.0, -1.0])).tolist()
      [1.0, 0.0, -1.0]
    """
    x, y = _vector(a1, "polymul"), _vector(a2, "polymul")
    if trim_leading_zeros:
        x, y = (trim_zeros(v, "f") if np.any(np.asarray(v)) else v[-1:] for v in (x, y))
    return convolve(*promote_inexact("polymul", x, y))


def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False) -> tuple:
    """Quotient and remainder of a polynomial division.

    Args:
      u: coefficients of the dividend.
      v: coefficients of the divisor; the first must be nonzero.
      trim_leading_zeros: strip leading zeros of the remainder, which requires concrete values.

    Returns:
      The quotient, and the remainder with as many coefficients as `u`; both in floating point.

    Raises:
      ShapeError: an operand is not a vector.

    Examples:
      >>> [a.tolist() for a in jnp.polydiv(jnp.array([1.0, 0.0, -1.0]), jnp.array([1.0, 1.0]))]
      [[1.0, -1.0], [0.0, 0.0, 0.0]]
    """
    q, r = _polydiv(_vector(u, "polydiv"), _vector(v, "polydiv"))
    return q, trim_zeros(r, "f") if trim_leading_zeros else r


@eager_jit
def _polydiv(u: Array, v: Array) -> tuple:
    u, v = promote_inexact("polydiv", u, v)
    m, n = u.shape[0] - 1, v.shape[0] - 1
    parts = []
    # Schoolbook division: each step eliminates the leading coefficient of the remainder.
    for k in range(max(m - n + 1, 1) if m >= n else 0):
        factor = u[k] / v[0]
        parts.append(factor)
        u = u.at[k : k + n + 1].add(-factor * v)
    q = concatenate([lax.reshape(p, (1,)) for p in parts]) if parts else lax.full((1,), 0, u.dtype)
    return q, as_array(u)


@eager_jit(static_argnames=("m",))
def polyder(p: ArrayLike, m: int = 1) -> Array:
    """Derivative of order m of a polynomial.

    Args:
      p: a vector of coefficients.
      m: order of the derivative, 0 or more.

    Returns:
      A vector with m fewer coefficients, in floating point.

    Raises:
      ArgumentError: `m` is negative.
      ShapeError: `p` is not a vector.

    Examples:
      >>> jnp.polyder(jnp.array([1.0, 2.0, 3.0])).tolist()
      [2.0, 2.0]
    """
    m = to_static_int(m, "polyder, argument m")
    if m < 0:
        raise ArgumentError(
            "polyder, argument m", expected="a number >= 0", got=m, fix="use polyint(p, -m) for antiderivatives"
        )
    x = _vector(p, "polyder")
    if m == 0:
        return as_array(x)
    (x,) = promote_inexact("polyder", x)
    n = x.shape[0]
    if n <= m:
        return lax.full((0,), 0, x.dtype)
    powers = np.arange(n - 1, -1, -1)
    # The m-th derivative of x**k is k (k - 1) ... (k - m + 1) x**(k - m).
    factors = np.prod([powers - i for i in range(m)], axis=0)[: n - m]
    return x[: n - m] * factors.astype(x.dtype)


@eager_jit(static_argnames=("m",))
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Array:
    """Antiderivative of order m of a polynomial.

    Args:
      p: a vector of coefficients.
      m: order of the antiderivative, 0 or more.
      k: integration constants, one per order or one for all; 0 by default.

    Returns:
      A vector with m more coefficients, in floating point.

    Raises:
      ArgumentError: `m` is negative, or the number of constants is wrong.
      ShapeError: `p` or `k` is not a vector.

    Examples:
      >>> jnp.polyint(jnp.array([2.0, 2.0])).tolist()
      [1.0, 2.0, 0.0]
    """
    m = to_static_int(m, "polyint, argument m")
    if m < 0:
        raise ArgumentError(
            "polyint, argument m", expected="a number >= 0", got=m, fix="use polyder(p, -m) for derivatives"
        )
    x = _vector(p, "polyint")
    k = _vector(np.zeros(m, x.dtype) if k is None else k, "polyint")
    # One constant is used for every integration.
    if k.shape[0] == 1 and m > 1:
        k = lax.broadcast_in_dim(k, (m,), (0,))
    if k.shape[0] != m:
        raise ArgumentError(
            "polyint, argument k",
            expected=f"{m} constants",
            got=k.shape[0],
            fix=f"pass {m} constants in k, or one for all",
        )
    x, k = promote_inexact("polyint", x, k)
    for i in range(m):
        # The coefficient of x**j is divided by j + 1 and moves up; the constant becomes the last coefficient.
        x = concatenate([x / np.arange(x.shape[0], 0, -1).astype(x.dtype), k[i : i + 1]])
    return x


@eager_jit
def poly(seq_of_zeros: ArrayLike) -> Array:
    """Polynomial with given roots, or the characteristic polynomial of a matrix.

    Args:
      seq_of_zeros: a vector of n roots, or a matrix num[n, n].

    Returns:
      A vector of n + 1 coefficients, the first of which is 1; the scalar 1 for no roots.

    Raises:
      ShapeError: a matrix is not square, or the rank is above 2.

    Examples:
      >>> jnp.poly(jnp.array([1.0, 2.0])).tolist()
      [1.0, -3.0, 2.0]
    """
    (x,) = promote_inexact("poly", _vector(seq_of_zeros, "poly", 2))
    if x.ndim == 2:
        if x.shape[0] != x.shape[1]:
            raise ShapeError(
                "poly",
                expected="a vector or a square matrix",
                got=x.shape,
                fix="pass a vector of roots, or a square matrix",
            )
        x = eigvals(x)
    out = lax.full((1,), 1, x.dtype)
    for i in range(x.shape[0]):
        # The leading coefficient is not recomputed, so that it stays 1 even if a root is NaN or infinite.
        out = concatenate([out[:1], concatenate([out[1:], lax.full((1,), 0, x.dtype)]) - x[i] * out])
    return out if x.shape[0] else out[0]


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """Roots of a polynomial, as eigenvalues of its companion matrix.

    Args:
      p: vector of coefficients.
      strip_zeros: strip leading and trailing zeros first, which requires concrete values; if False, each leading zero
        adds a NaN at the end of the result.

    Returns:
      A complex vector; if `strip_zeros` is False, its length is one less than that of `p`.

    Raises:
      ArgumentError: `p` is traced and `strip_zeros` is True.
      ShapeError: `p` is not a vector.

    Examples:
      >>> sorted(jnp.roots(jnp.array([1.0, 0.0, -1.0])).real.tolist())
      [-1.0, 1.0]
    """
    x = _vector(p, "roots")
    zeros = None
    if strip_zeros:
        known = concrete_or_none(p if isinstance(p, np.ndarray) else x)
        if known is None:
            raise ArgumentError(
                "roots, argument strip_zeros",
                expected="False for a traced polynomial",
                got=True,
                fix="pass strip_zeros=False, which needs no concrete values",
            )
        found = np.flatnonzero(known)
        if not len(found):
            return array(np.zeros(0, np.complex64))
        zeros = len(known) - 1 - int(found[-1])
        x = x[int(found[0]) : int(found[-1]) + 1]
    return _roots(x, zeros)


@eager_jit(static_argnames=("zeros",))
def _roots(x: Array, zeros: int | None) -> Any:
    (x,) = promote_inexact("roots", x)
    n = x.shape[0]
    out_dtype = complex_result_dtype(x.dtype)
    if n < 2:
        return lax.full((zeros or 0,), 0, out_dtype)
    # Traced leading zeros cannot be stripped. Rolling moves them to the end, where they act as roots at 0.
    leading = 0 if zeros is not None else argmax(lax.ne(x, x.dtype.type(0)))
    x = x if zeros is not None else roll(x, -leading)
    # The companion matrix: its characteristic polynomial is p / p[0].
    below = diag(lax.full((n - 2,), 1, x.dtype), -1)
    found = cast(eigvals(below.at[0, :].set(-x[1:] / x[0])), out_dtype)
    if zeros is None:  # the zeros that were rolled to the end added roots at 0, which the polynomial does not have
        return where(arange(n - 1) < n - 1 - leading, found[argsort(-lax.abs(found))], complex(np.nan, np.nan))
    return concatenate([found, lax.full((zeros,), 0, out_dtype)]) if zeros else found


def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Any:
    """Least-squares fit of a polynomial to data points.

    Args:
      x: the coordinates of the points.
      y: values at the points, a vector or a matrix whose columns are fitted independently.
      deg: degree of the polynomial.
      rcond: relative cutoff: singular values below it times the largest count as 0.
      full: also return residuals, rank, singular values and `rcond`.
      w: weights of the points.
      cov: also return the covariance matrix of the coefficients; `"unscaled"` if `w` are inverse standard errors.

    Returns:
      The coefficients, num[deg + 1], or num[deg + 1, k] for k columns; with `full` or `cov`, a tuple that begins with
      them.

    Raises:
      ArgumentError: the degree is negative.
      ShapeError: `x` and `y` differ in length, or there are too few points for `cov`.

    Examples:
      >>> [
      ...     round(v, 3)
      ...     for v in jnp.polyfit(jnp.array([0.0, 1.0, 2.0]), jnp.array([1.0, 3.0, 5.0]), 1).tolist()
      ... ]
      [2.0, 1.0]
    """
    deg = to_static_int(deg, "polyfit, argument deg")
    if deg < 0:
        raise ArgumentError("polyfit, argument deg", expected="a number >= 0", got=deg, fix="pass deg=0 or more")
    x, y = promote_inexact("polyfit", _vector(x, "polyfit"), _vector(y, "polyfit", 2))
    if x.ndim != 1 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0] or not x.shape[0]:
        raise ShapeError(
            "polyfit",
            expected="vectors of one length, not empty",
            got=f"{x.shape} and {y.shape}",
            fix="pass x.ravel() and one value, or one row of values, per point",
        )
    rcond = x.shape[0] * float(dtypes.finfo(x.dtype).eps) if rcond is None else rcond
    left, right = vander(x, deg + 1), y
    if w is not None:
        (w,) = promote_inexact("polyfit", _vector(w, "polyfit"))
        left = left * w[:, None]
        right = right * (w if y.ndim == 1 else w[:, None])
    # Columns of the Vandermonde matrix are scaled to length 1, which improves the condition of the system.
    scale = lax.sqrt(sum(left * left, axis=0))
    c, residuals, rank, s = lstsq(left / scale[None], right, rcond)
    c = c / (scale if c.ndim == 1 else scale[:, None])
    if full:
        return c, residuals, rank, s, rcond
    if not cov:
        return c
    # The covariance of the coefficients is (V^T V)^-1 up to the variance of the residuals; scaling keeps it regular.
    base = inv(left.T @ left / outer(scale, scale)) / outer(scale, scale)
    if cov == "unscaled":
        factor: Any = 1
    else:
        if x.shape[0] <= deg + 1:
            raise ShapeError(
                "polyfit, argument cov",
                expected=f"more than {deg + 1} points",
                got=x.shape[0],
                fix=f"pass more than {deg + 1} points, or cov=False",
            )
        factor = (residuals[0] if y.ndim == 1 else residuals) / (x.shape[0] - (deg + 1))
    return c, (base * factor if y.ndim == 1 else base[:, :, None] * factor)


@eager_jit(static_argnames=("N", "increasing"))
def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """Vandermonde matrix: its columns are powers of a vector.

    Args:
      x: a vector of n numbers.
      N: number of columns, n by default.
      increasing: order the powers from left to right, starting with 0.

    Returns:
      num[n, N].

    Raises:
      ArgumentError: `N` is negative.
      ShapeError: `x` is not a vector.

    Examples:
      >>> jnp.vander(jnp.array([2, 3])).tolist()
      [[2, 1], [3, 1]]
    """
    x = to_operand(x, "vander")
    check_vector("vander", x)
    n = x.shape[0] if N is None else operator.index(N)
    if n < 0:
        raise ArgumentError(
            "vander, argument N",
            expected="a number >= 0",
            got=n,
            fix="pass N=0 or more, or leave it out for a square matrix",
        )
    powers = arange(n) if increasing else arange(n - 1, -1, -1)
    return power(x[:, None], cast(powers, x.dtype)[None]) if n else lax.full((x.shape[0], 0), 0, x.dtype)
