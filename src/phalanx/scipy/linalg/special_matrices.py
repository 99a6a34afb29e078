"""Structured matrices: Toeplitz, Hankel, companion and others.

Matrices that depend on sizes alone are computed on the host. Builds on `numpy`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, DTypeError, ShapeError, dtypes
from phalanx.numpy.operands import (
    as_array,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    promote,
    to_operand,
    to_static_int,
)
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_choice, to_inexact_operands
from phalanx.typing import Array, ArrayLike, DTypeLike


def _vectors(name: str, *xs: Any) -> list:
    """Convert operands to batches of vectors of one dtype."""
    xs = promote(f"linalg.{name}", *(to_operand(x, f"linalg.{name}") for x in xs))
    return [lax.reshape(x, (1,)) if not x.ndim else as_array(x) for x in xs]


def _broadcast_batch(name: str, *xs: Array) -> list:
    """Broadcast all dimensions of vectors except the last."""
    batch = broadcast_shapes(*(x.shape[:-1] for x in xs), where=f"linalg.{name}")
    return [broadcast_to_shape(x, (*batch, x.shape[-1])) for x in xs]


def _to_float_array(x: np.ndarray) -> Any:
    return jnp.array(x.astype(dtypes.canonicalize_dtype(np.float64)))


@eager_jit
def block_diag(*arrs: Any) -> Array:
    """A block-diagonal matrix.

    Args:
      arrs: the blocks: matrices, vectors (as rows) or scalars.

    Returns:
      num[m, n] with the total numbers of rows and columns of the blocks.

    Raises:
      ShapeError: an operand has a rank above 2.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.block_diag(1, jnp.array([2, 3])).tolist()
      [[1, 0, 0], [0, 2, 3]]
    """
    if not arrs:
        return lax.full((1, 0), 0, dtypes.canonicalize_dtype(np.float64))
    parts = promote("linalg.block_diag", *(jnp.array(a) if isinstance(a, list | tuple) else a for a in arrs))
    for i, p in enumerate(parts):
        if np.ndim(p) > 2:
            raise ShapeError(
                f"linalg.block_diag, argument {i}",
                expected="rank 2 or less",
                got=p.shape,
                fix="pass matrices, vectors or scalars",
            )
    parts = [jnp.atleast_2d(p) for p in parts]
    *starts, width = np.cumsum([0, *(p.shape[1] for p in parts)]).tolist()
    edges = [(start, width - start - p.shape[1], 0) for start, p in zip(starts, parts)]
    return lax.concatenate([lax.pad(p, p.dtype.type(0), [(0, 0, 0), edge]) for p, edge in zip(parts, edges)], 0)


@eager_jit
def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Toeplitz matrices, which are constant along diagonals.

    Args:
      c: the first columns, num[*batch, m].
      r: the first rows, num[*batch, n]; the first element is ignored. The conjugate of `c` by default.

    Returns:
      num[*batch, m, n].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.toeplitz(jnp.array([1, 2]), jnp.array([1, 3])).tolist()
      [[1, 3], [2, 1]]
    """
    (c,) = _vectors("toeplitz", c)
    c, r = (c, lax.conj(c) if c.dtype.kind == "c" else c) if r is None else _vectors("toeplitz", c, r)
    return _along_diagonals("toeplitz", jnp.flip(c, -1), r)[..., ::-1, :]


def _along_diagonals(name: str, c: Array, r: Array) -> Any:
    """Hankel matrices with the first columns `c` and the last rows `r`, whose first element is ignored."""
    c, r = _broadcast_batch(name, c, r)
    m, n = c.shape[-1], r.shape[-1]
    # There is nothing to gather from where both are empty.
    if not m or not n:
        return lax.full((*c.shape[:-1], m, n), 0, c.dtype)
    return lax.concatenate([c, r[..., 1:]], c.ndim - 1)[..., np.arange(m)[:, None] + np.arange(n)]


def circulant(c: ArrayLike) -> Any:
    """Circulant matrices, whose columns are rotations of the first one.

    Args:
      c: the first columns, num[*batch, n].

    Returns:
      num[*batch, n, n].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.circulant(jnp.array([1, 2, 3])).tolist()
      [[1, 3, 2], [2, 1, 3], [3, 2, 1]]
    """
    (c,) = _vectors("circulant", c)
    n = c.shape[-1]
    return c[..., (np.arange(n)[:, None] - np.arange(n)) % max(n, 1)]


@eager_jit
def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Hankel matrices, which are constant along antidiagonals.

    Args:
      c: the first columns, num[*batch, m].
      r: the last rows, num[*batch, n]; the first element is ignored. Zeros by default.

    Returns:
      num[*batch, m, n].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.hankel(jnp.array([1, 2]), jnp.array([2, 3])).tolist()
      [[1, 2], [2, 3]]
    """
    (c,) = _vectors("hankel", c)
    return _along_diagonals("hankel", *((c, c * 0) if r is None else _vectors("hankel", c, r)))


@eager_jit(static_argnames=("n", "mode"))
def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """The matrix that convolves a vector with `a`.

    Args:
      a: num[*batch, m] with m >= 1.
      n: the length of the vector.
      mode: the part of the convolution, as in `numpy.convolve`: `"full"`, `"same"` or `"valid"`.

    Returns:
      num[*batch, k, n]; k is n + m - 1, max(m, n), or max(m, n) - min(m, n) + 1.

    Raises:
      ArgumentError: `mode` is unknown, or `n` is below 1.
      ShapeError: `a` is empty or a scalar.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.convolution_matrix(jnp.array([1, 2]), 2).tolist()
      [[1, 0], [2, 1], [0, 2]]
    """
    check_choice("linalg.convolution_matrix", "mode", mode, ("full", "same", "valid"))
    n = to_static_int(n, "linalg.convolution_matrix, argument n")
    if n < 1:
        raise ArgumentError(
            "linalg.convolution_matrix, argument n", expected="1 or more", got=n, fix="pass the length of the vector"
        )
    x = as_array(to_operand(a, "linalg.convolution_matrix"))
    if not x.size or not x.ndim:
        raise ShapeError(
            "linalg.convolution_matrix",
            expected="a vector of elements",
            got=x.shape,
            fix="pass at least one coefficient",
        )
    m = x.shape[-1]
    longest, least = max(m, n), min(m, n)
    rows = {"full": n + m - 1, "same": longest, "valid": longest - least + 1}[mode]
    first = {"full": 0, "same": (least - 1) // 2, "valid": least - 1}[mode]
    wide = lax.pad(x, x.dtype.type(0), [*[(0, 0, 0)] * (x.ndim - 1), (n - 1, n - 1, 0)])
    return wide[..., n - 1 + first + np.arange(rows)[:, None] - np.arange(n)]


@eager_jit
def companion(a: ArrayLike) -> Array:
    """Companion matrices, whose eigenvalues are the roots of polynomials.

    Args:
      a: coefficients, highest power first, num[*batch, n] with n >= 2.

    Returns:
      num[*batch, n - 1, n - 1], in floating point.

    Raises:
      ShapeError: there are fewer than two coefficients.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.companion(jnp.array([1.0, 2.0, 3.0])).tolist()
      [[-2.0, -3.0], [1.0, 0.0]]
    """
    (x,) = to_inexact_operands("linalg.companion", a)
    if not x.ndim or x.shape[-1] < 2:
        raise ShapeError(
            "linalg.companion",
            expected="two coefficients or more",
            got=x.shape,
            fix="pass the coefficients of a polynomial",
        )
    n = x.shape[-1] - 1
    top = lax.expand_dims(-x[..., 1:] / x[..., :1], (x.ndim - 1,))
    below = broadcast_to_shape(np.eye(n - 1, n, dtype=x.dtype), (*x.shape[:-1], n - 1, n))
    return lax.concatenate([top, below], x.ndim - 1)


@eager_jit
def fiedler(a: ArrayLike) -> Array:
    """Fiedler matrices of the distances |a_i - a_j|.

    Args:
      a: num[*batch, n].

    Returns:
      num[*batch, n, n].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.fiedler(jnp.array([1, 4])).tolist()
      [[0, 3], [3, 0]]
    """
    (x,) = _vectors("fiedler", a)
    return lax.abs(lax.expand_dims(x, (x.ndim,)) - lax.expand_dims(x, (x.ndim - 1,)))


@eager_jit
def fiedler_companion(a: ArrayLike) -> Array:
    """Pentadiagonal matrices whose eigenvalues are the roots of polynomials.

    Args:
      a: coefficients, highest power first, num[*batch, n].

    Returns:
      num[*batch, n - 1, n - 1], in floating point.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.fiedler_companion(jnp.array([1.0, 2.0, 3.0])).tolist()
      [[-2.0, -3.0], [1.0, 0.0]]
    """
    (x,) = to_inexact_operands("linalg.fiedler_companion", a)
    if not x.ndim or not x.shape[-1]:
        raise ShapeError(
            "linalg.fiedler_companion",
            expected="coefficients",
            got=x.shape,
            fix="pass the coefficients of a polynomial",
        )
    n = x.shape[-1] - 1
    x = x / x[..., :1]
    even, odd = np.arange(0, n, 2), np.arange(1, n, 2)
    # Even rows have -a_(i+1), its right neighbor, and a 1 next to that; odd rows a 1 two columns before the diagonal.
    near, far = even[even + 1 < n], even[even + 2 < n]
    out = lax.full((*x.shape[:-1], n, n), 0, x.dtype)
    out = out.at[..., even, np.maximum(even - 1, 0)].set(-x[..., even + 1])
    out = out.at[..., near, near + 1].set(-x[..., near + 2]).at[..., far, far + 2].set(1)
    return out.at[..., odd, np.maximum(odd - 2, 0)].set(1)


def dft(n: int, scale: str | None = None, *, dtype: DTypeLike | None = None) -> Array:
    """The matrix of the discrete Fourier transform.

    Args:
      n: the length of the transform.
      scale: `"sqrtn"` to divide by the root of n, `"n"` to divide by n.
      dtype: the complex dtype of the result.

    Returns:
      complex[n, n].

    Raises:
      ArgumentError: `scale` is unknown.
      DTypeError: `dtype` is not complex.

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.dft(2).real.tolist()
      [[1.0, 1.0], [1.0, -1.0]]
    """
    check_choice("linalg.dft", "scale", scale, (None, "sqrtn", "n"))
    dtype = dtypes.requested_dtype(complex if dtype is None else dtype, "linalg.dft")
    if dtype.kind != "c":
        raise DTypeError(
            "linalg.dft, argument dtype",
            expected="a complex dtype",
            got=str(dtype),
            fix="pass dtype='complex64', or omit it",
        )
    # Reduced modulo n before the exponential, which is inaccurate for large arguments.
    turns = np.outer(np.arange(n), np.arange(n)) % max(n, 1) / max(n, 1)
    values = np.exp(-2j * np.pi * turns) / {None: 1, "sqrtn": math.sqrt(max(n, 1)), "n": max(n, 1)}[scale]
    return jnp.array(values.astype(dtype))


def hadamard(n: int, dtype: DTypeLike = int) -> Array:
    """The Hadamard matrix of 1 and -1 with orthogonal rows, by Sylvester's construction.

    Args:
      n: a power of 2.
      dtype: the dtype of the result.

    Returns:
      dtype[n, n].

    Raises:
      ArgumentError: `n` is not a power of 2.

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.hadamard(2).tolist()
      [[1, 1], [1, -1]]
    """
    n = to_static_int(n, "linalg.hadamard, argument n")
    if n < 1 or n & (n - 1):
        raise ArgumentError(
            "linalg.hadamard, argument n",
            expected="a power of 2",
            got=n,
            fix=f"pass {1 << max(n, 1).bit_length()}, or another power of 2",
        )
    dtype = dtypes.requested_dtype(dtype, "linalg.hadamard")
    # Element (i, j) is (-1)^popcount(i & j).
    both = np.arange(n)[:, None] & np.arange(n)
    parity = sum((both >> k) & 1 for k in range(max(n.bit_length(), 1)))
    return jnp.array((1 - 2 * (parity % 2)).astype(dtype))


def helmert(n: int, full: bool = False) -> Array:
    """The Helmert matrix of orthonormal contrasts.

    Args:
      n: its order.
      full: whether to include the first row, which is constant.

    Returns:
      float[n - 1, n], or float[n, n].

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.helmert(2).round(4).tolist()
      [[0.7070..., -0.7070...]]
    """
    h = np.tril(np.ones((n, n)), -1) - np.diag(np.arange(n))
    d = np.arange(n) * np.arange(1, n + 1)
    h[:1], d[:1] = 1, n
    h = h / np.sqrt(d)[:, None]
    return _to_float_array(h if full else h[1:])


def hilbert(n: int) -> Array:
    """The Hilbert matrix with elements 1 / (i + j + 1).

    Args:
      n: its order.

    Returns:
      float[n, n].

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.hilbert(2)[0].tolist()
      [1.0, 0.5]
    """
    return _to_float_array(1.0 / (1 + np.arange(n)[:, None] + np.arange(n)))


def invhilbert(n: int) -> Array:
    """The inverse of the Hilbert matrix, whose elements are integers.

    Args:
      n: its order.

    Returns:
      float[n, n].

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.invhilbert(2).tolist()
      [[4.0, -6.0], [-6.0, 12.0]]
    """
    # Python integers are exact, while products of binomial coefficients soon overflow 64 bits.
    c = math.comb
    rows = [
        [(-1) ** (i + j) * (i + j + 1) * c(n + i, n - j - 1) * c(n + j, n - i - 1) * c(i + j, i) ** 2 for j in range(n)]
        for i in range(n)
    ]
    return _to_float_array(np.array(rows, np.float64).reshape(n, n))


def pascal(n: int, kind: str | None = None) -> Array:
    """The Pascal matrix of binomial coefficients.

    Args:
      n: its order.
      kind: `"symmetric"` (also None), `"lower"` or `"upper"`.

    Returns:
      float[n, n].

    Raises:
      ArgumentError: `kind` is unknown.

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.pascal(3).tolist()
      [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 6.0]]
    """
    return _to_float_array(_pascal(n, kind, "pascal", 1))


def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of the Pascal matrix.

    Args:
      n, kind: as in `pascal`.

    Returns:
      float[n, n].

    Raises:
      ArgumentError: `kind` is unknown.

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.invpascal(2).tolist()
      [[2.0, -1.0], [-1.0, 1.0]]
    """
    return _to_float_array(_pascal(n, kind, "invpascal", -1))


def _pascal(n: int, kind: str | None, name: str, sign: int) -> np.ndarray:
    check_choice(f"linalg.{name}", "kind", kind, (None, "symmetric", "lower", "upper"))
    rows = [[sign ** (i + j) * math.comb(i, j) for j in range(n)] for i in range(n)]
    lower = np.array(rows, np.float64).reshape(n, n)
    if kind in ("lower", "upper"):
        return lower if kind == "lower" else lower.T
    return lower @ lower.T if sign > 0 else lower.T @ lower


@eager_jit
def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """Leslie matrices of population dynamics.

    Args:
      f: the fecundity of each age class, num[*batch, n].
      s: the survival rate of each age class except the last, num[*batch, n - 1].

    Returns:
      num[*batch, n, n].

    Raises:
      ShapeError: the length of `s` is not one less than the length of `f`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.leslie(jnp.array([0.5, 2.0]), jnp.array([0.25])).tolist()
      [[0.5, 2.0], [0.25, 0.0]]
    """
    f, s = _vectors("leslie", f, s)
    n = f.shape[-1]
    if s.shape[-1] != n - 1:
        raise ShapeError(
            "linalg.leslie, argument s",
            expected=f"{n - 1} numbers",
            got=s.shape,
            fix="omit the survival rate of the last age class",
        )
    f, s = _broadcast_batch("leslie", f, s)
    below = lax.expand_dims(s, (s.ndim,)) * cast(np.eye(n - 1, n), s.dtype)
    return lax.concatenate([lax.expand_dims(f, (f.ndim - 1,)), below], f.ndim - 1)
