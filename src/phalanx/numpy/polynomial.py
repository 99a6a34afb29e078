"""Polynomials as vectors of coefficients, the highest power first."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.numpy.contraction import convolve
from phalanx.numpy.creation import array
from phalanx.numpy.diagonals import diag
from phalanx.numpy.joining import concatenate
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import as_array, cast, concrete, operand, promote, promote_inexact
from phalanx.numpy.ranges import arange
from phalanx.numpy.reductions import argmax, sum
from phalanx.numpy.shapes import atleast_1d, roll
from phalanx.numpy.sorting import argsort
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_symbolic


def _vector(x: Any, name: str, max_rank: int = 1) -> Any:
    x = atleast_1d(array(x) if isinstance(x, list | tuple) else operand(x, name))
    if x.ndim > max_rank:
        raise ShapeError(name, expected="a vector of coefficients", got=x.shape, mend="ravel it, or map over rows")
    return x


@eager_program(static_argnames=("unroll",))
def _horner(p: Any, x: Any, unroll: int) -> Any:
    p, x = promote("polyval", p, x)
    shape = x.shape
    y = lax.full(shape, 0, p.dtype)
    if not is_symbolic(p.shape[0]) and p.shape[0] <= 2 * unroll:
        for i in range(p.shape[0]):
            y = y * x + p[i]
        return y
    return lax.scan(lambda y, c: (y * x + c, None), y, p, unroll=unroll)[0]


def polyval(p: Any, x: Any, *, unroll: int = 16) -> Any:
    """The value of a polynomial.

    Args:
      p: coefficients along the first dimension; further ones broadcast with `x`.
      x: where.
      unroll: how many steps to unroll; twice as many coefficients need no loop.

    Returns:
      The value for each element of `x`.

    Examples:
      >>> jnp.polyval(jnp.array([1, 2, 3]), 2).item()
      11
    """
    return _horner(_vector(p, "polyval", 64), operand(x, "polyval"), unroll)


@eager_program
def polyadd(a1: Any, a2: Any) -> Any:
    """The sum of two polynomials.

    Args:
      a1, a2: vectors of coefficients.

    Returns:
      A vector as long as the longer one.

    Raises:
      ShapeError: an operand is no vector.

    Examples:
      >>> jnp.polyadd(jnp.array([1, 2]), jnp.array([3])).tolist()
      [1, 5]
    """
    x, y = _aligned("polyadd", a1, a2)
    return x + y


@eager_program
def polysub(a1: Any, a2: Any) -> Any:
    """The difference of two polynomials.

    Args:
      a1, a2: vectors of coefficients.

    Returns:
      A vector as long as the longer one.

    Raises:
      ShapeError: an operand is no vector.

    Examples:
      >>> jnp.polysub(jnp.array([1, 2]), jnp.array([3])).tolist()
      [1, -1]
    """
    x, y = _aligned("polysub", a1, a2)
    return x - y


def _aligned(name: str, a1: Any, a2: Any) -> list:
    parts = promote(name, _vector(a1, name), _vector(a2, name))
    n = max(v.shape[0] for v in parts)
    return [lax.pad(v, v.dtype.type(0), [(n - v.shape[0], 0, 0)]) if v.shape[0] < n else v for v in parts]


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Any:
    """The product of two polynomials.

    Args:
      a1, a2: vectors of coefficients, m and n of them.
      trim_leading_zeros: leave them out first; the values must then be known.

    Returns:
      A vector of m + n - 1 coefficients, in floating point.

    Raises:
      ShapeError: an operand is no vector, or is empty.

    Examples:
      >>> jnp.polymul(jnp.array([1.0, 1.0]), jnp.array([1.0, -1.0])).tolist()
      [1.0, 0.0, -1.0]
    """
    x, y = _vector(a1, "polymul"), _vector(a2, "polymul")
    if trim_leading_zeros:
        from phalanx.numpy.shapes import trim_zeros

        x, y = (trim_zeros(v, "f") if np.any(np.asarray(v)) else v[-1:] for v in (x, y))
    x, y = promote_inexact("polymul", x, y)
    return convolve(x, y)


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple:
    """The quotient and the remainder of two polynomials.

    Args:
      u: coefficients of the dividend.
      v: coefficients of the divisor, the first other than 0.
      trim_leading_zeros: leave them out of the remainder; the values must then be known.

    Returns:
      The quotient, and the remainder in as many coefficients as `u` has; both in floating point.

    Raises:
      ShapeError: an operand is no vector.

    Examples:
      >>> [a.tolist() for a in jnp.polydiv(jnp.array([1.0, 0.0, -1.0]), jnp.array([1.0, 1.0]))]
      [[1.0, -1.0], [0.0, 0.0, 0.0]]
    """
    q, r = _polydiv(_vector(u, "polydiv"), _vector(v, "polydiv"))
    if trim_leading_zeros:
        from phalanx.numpy.shapes import trim_zeros

        r = trim_zeros(r, "f")
    return q, r


@eager_program
def _polydiv(u: Any, v: Any) -> tuple:
    u, v = promote_inexact("polydiv", u, v)
    m, n = u.shape[0] - 1, v.shape[0] - 1
    parts = []
    for k in range(max(m - n + 1, 1) if m >= n else 0):
        factor = u[k] / v[0]
        parts.append(factor)
        u = u.at[k : k + n + 1].add(-factor * v)
    q = concatenate([lax.reshape(p, (1,)) for p in parts]) if parts else lax.full((1,), 0, u.dtype)
    return q, as_array(u)


@eager_program(static_argnames=("m",))
def polyder(p: Any, m: int = 1) -> Any:
    """The m-th derivative of a polynomial.

    Args:
      p: a vector of coefficients.
      m: how often to differentiate, 0 or more.

    Returns:
      A vector of m coefficients fewer, in floating point.

    Raises:
      ArgumentError: `m` is negative.
      ShapeError: `p` is no vector.

    Examples:
      >>> jnp.polyder(jnp.array([1.0, 2.0, 3.0])).tolist()
      [2.0, 2.0]
    """
    if m < 0:
        raise ArgumentError("polyder, argument m", expected="a number >= 0", got=m, mend="use polyint")
    x = _vector(p, "polyder")
    if m == 0:
        return as_array(x)
    (x,) = promote_inexact("polyder", x)
    n = x.shape[0]
    if n <= m:
        return lax.full((0,), 0, x.dtype)
    powers = np.arange(n - 1, -1, -1)
    factors = np.prod([powers - i for i in range(m)], axis=0)[: n - m]
    return x[: n - m] * factors.astype(x.dtype)


@eager_program(static_argnames=("m",))
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """The m-th antiderivative of a polynomial.

    Args:
      p: a vector of coefficients.
      m: how often to integrate, 0 or more.
      k: the constants, one for each time or one for all; 0 by default.

    Returns:
      A vector of m coefficients more, in floating point.

    Raises:
      ArgumentError: `m` is negative, or the number of constants wrong.
      ShapeError: `p` or `k` is no vector.

    Examples:
      >>> jnp.polyint(jnp.array([2.0, 2.0])).tolist()
      [1.0, 2.0, 0.0]
    """
    if m < 0:
        raise ArgumentError("polyint, argument m", expected="a number >= 0", got=m, mend="use polyder")
    x = _vector(p, "polyint")
    k = [0] * m if k is None else k
    k = _vector(k, "polyint")
    if k.shape[0] == 1 and m > 1:
        k = lax.broadcast_in_dim(k, (m,), (0,))
    if k.shape[0] != m:
        raise ArgumentError("polyint, argument k", expected=f"{m} constants", got=k.shape[0], mend="give one for each")
    x, k = promote_inexact("polyint", x, k)
    for i in range(m):
        n = x.shape[0]
        x = concatenate([x / np.arange(n, 0, -1).astype(x.dtype), k[i : i + 1]])
    return x


@eager_program
def poly(seq_of_zeros: Any) -> Any:
    """The polynomial with given roots, or the characteristic one of a matrix.

    Args:
      seq_of_zeros: a vector of n roots, or a matrix num[n, n].

    Returns:
      A vector of n + 1 coefficients, the first of them 1; a scalar 1 where there are no roots.

    Raises:
      ShapeError: a matrix is not square, or the rank is above 2.

    Examples:
      >>> jnp.poly(jnp.array([1.0, 2.0])).tolist()
      [1.0, -3.0, 2.0]
    """
    (x,) = promote_inexact("poly", _vector(seq_of_zeros, "poly", 2))
    if x.ndim == 2:
        from phalanx.numpy.linalg import eigvals

        if x.shape[0] != x.shape[1]:
            raise ShapeError("poly", expected="a vector or a square matrix", got=x.shape, mend="give the roots")
        x = eigvals(x)
    out = lax.full((1,), 1, x.dtype)
    for i in range(x.shape[0]):
        # The first stays 1, also beside roots that are no numbers.
        out = concatenate([out[:1], concatenate([out[1:], lax.full((1,), 0, x.dtype)]) - x[i] * out])
    return out if x.shape[0] else out[0]


def roots(p: Any, *, strip_zeros: bool = True) -> Any:
    """The roots of a polynomial.

    Args:
      p: its coefficients.
      strip_zeros: leave out leading and trailing zeros, whose number must then be known; if not, a leading zero leaves
        NaN at the end.

    Returns:
      A complex vector; without `strip_zeros` one shorter than `p`.

    Raises:
      ArgumentError: `p` is traced and `strip_zeros` is True.
      ShapeError: `p` is no vector.

    Examples:
      >>> sorted(jnp.roots(jnp.array([1.0, 0.0, -1.0])).real.tolist())
      [-1.0, 1.0]
    """
    x = _vector(p, "roots")
    zeros = None
    if strip_zeros:
        known = concrete(p if isinstance(p, np.ndarray) else x)
        if known is None:
            raise ArgumentError("roots, argument strip_zeros", expected="False for a traced polynomial", got=True,
                                mend="give strip_zeros=False")  # fmt: skip
        found = np.flatnonzero(known)
        if not len(found):
            return array(np.zeros(0, np.complex64))
        zeros = len(known) - 1 - int(found[-1])
        x = x[int(found[0]) : int(found[-1]) + 1]
    return _roots(x, zeros)


@eager_program(static_argnames=("zeros",))
def _roots(x: Any, zeros: int | None) -> Any:
    from phalanx.numpy.linalg import eigvals

    (x,) = promote_inexact("roots", x)
    n = x.shape[0]
    out_dtype = promotion.result_type(x, np.complex64)
    if n < 2:
        return lax.full((zeros or 0,), 0, out_dtype)
    leading = 0 if zeros is not None else argmax(lax.ne(x, x.dtype.type(0)))
    x = x if zeros is not None else roll(x, -leading)
    below = diag(lax.full((n - 2,), 1, x.dtype), -1)
    found = cast(eigvals(below.at[0, :].set(-x[1:] / x[0])), out_dtype)
    if zeros is None:  # what leading zeros became at the end are roots at 0, which there are not
        return where(arange(n - 1) < n - 1 - leading, found[argsort(-lax.abs(found))], complex(np.nan, np.nan))
    return concatenate([found, lax.full((zeros,), 0, out_dtype)]) if zeros else found


def polyfit(
    x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """The polynomial that fits points best in the sense of least squares.

    Args:
      x: the coordinates of the points.
      y: their values; columns are fitted each by itself.
      deg: the degree.
      rcond: singular values below this times the largest count as 0.
      full: give residuals, rank, singular values and `rcond` too.
      w: weights.
      cov: give the covariance matrix too; `"unscaled"` for that of known errors.

    Returns:
      The coefficients, num[deg + 1] or num[deg + 1, k] for k columns; in a tuple with what `full` or `cov` asks for.

    Raises:
      ArgumentError: the degree is negative.
      ShapeError: the points are no vectors of one length, or for `cov` not more than coefficients.

    Examples:
      >>> [
      ...     round(v, 3)
      ...     for v in jnp.polyfit(jnp.array([0.0, 1.0, 2.0]), jnp.array([1.0, 3.0, 5.0]), 1).tolist()
      ... ]
      [2.0, 1.0]
    """
    from phalanx.numpy.contraction import outer
    from phalanx.numpy.linalg import inv, lstsq

    if deg < 0:
        raise ArgumentError("polyfit, argument deg", expected="a number >= 0", got=deg, mend="give 0 or more")
    x, y = promote_inexact("polyfit", _vector(x, "polyfit"), _vector(y, "polyfit", 2))
    if x.ndim != 1 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0] or not x.shape[0]:
        raise ShapeError(
            "polyfit", expected="vectors of one length, not empty", got=f"{x.shape} and {y.shape}", mend="ravel"
        )
    rcond = x.shape[0] * float(dtypes.finfo(x.dtype).eps) if rcond is None else rcond
    left, right = vander(x, deg + 1), y
    if w is not None:
        (w,) = promote_inexact("polyfit", _vector(w, "polyfit"))
        left = left * w[:, None]
        right = right * (w if y.ndim == 1 else w[:, None])
    scale = lax.sqrt(sum(left * left, axis=0))
    c, residuals, rank, s = lstsq(left / scale, right, rcond)
    c = c / (scale if c.ndim == 1 else scale[:, None])
    if full:
        return c, residuals, rank, s, rcond
    if not cov:
        return c
    base = inv(left.T @ left / outer(scale, scale)) / outer(scale, scale)
    if cov == "unscaled":
        factor: Any = 1
    else:
        if x.shape[0] <= deg + 1:
            raise ShapeError(
                "polyfit, argument cov", expected=f"more than {deg + 1} points", got=x.shape[0], mend="give more"
            )
        factor = residuals / (x.shape[0] - (deg + 1))
        factor = factor[0] if y.ndim == 1 else factor
    return c, (base * factor if y.ndim == 1 else base[:, :, None] * factor)


@eager_program(static_argnames=("N", "increasing"))
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The matrix whose columns are powers of a vector.

    Args:
      x: a vector of n numbers.
      N: the number of columns, n by default.
      increasing: power 0 in the first column rather than in the last.

    Returns:
      num[n, N].

    Raises:
      ArgumentError: `N` is negative.
      ShapeError: `x` is no vector.

    Examples:
      >>> jnp.vander(jnp.array([2, 3])).tolist()
      [[2, 1], [3, 1]]
    """
    x = operand(x, "vander")
    if x.ndim != 1:
        raise ShapeError("vander", expected="a vector", got=x.shape, mend="ravel it")
    n = x.shape[0] if N is None else operator.index(N)
    if n < 0:
        raise ArgumentError("vander, argument N", expected="a number >= 0", got=n, mend="leave it out")
    from phalanx.numpy.ufuncs import power

    powers = arange(n) if increasing else arange(n - 1, -1, -1)
    return power(x[:, None], cast(powers, x.dtype)) if n else lax.full((x.shape[0], 0), 0, x.dtype)
