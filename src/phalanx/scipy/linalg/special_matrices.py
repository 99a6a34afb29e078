"""Matrices of a known pattern: of constant diagonals, of polynomials, of transforms, and those named after someone.

Builds on `numpy`; `scipy.linalg` shows them. What depends on sizes alone is made on the host.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.numpy.creation import array
from phalanx.numpy.operands import (
    as_array,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    integer,
    operand,
    promote,
    promote_inexact,
)
from phalanx.runtime.dispatch import eager_program
from phalanx.scipy.linalg.decompositions import refused


def _vectors(name: str, *xs: Any) -> list:
    """Stacks of vectors, of one dtype."""
    xs = promote(f"linalg.{name}", *(operand(x, f"linalg.{name}") for x in xs))
    return [lax.reshape(x, (1,)) if not x.ndim else as_array(x) for x in xs]


def _floating(x: np.ndarray) -> Any:
    return array(x.astype(dtypes.canonicalize_dtype(np.float64)))


@eager_program
def block_diag(*arrs: Any) -> Any:
    """A matrix with given matrices along its diagonal.

    Args:
      arrs: matrices, vectors (as rows) or scalars.

    Returns:
      num[m, n], as many rows and columns as all together.

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
    parts = promote("linalg.block_diag", *(array(a) if isinstance(a, list | tuple) else a for a in arrs))
    for i, p in enumerate(parts):
        if np.ndim(p) > 2:
            raise ShapeError(f"linalg.block_diag, argument {i}", expected="rank 2 or less", got=p.shape, mend="cut it")
    parts = [lax.reshape(p, ((1, 1), (1, *np.shape(p)), np.shape(p))[np.ndim(p)]) for p in parts]
    width, before, rows = sum(p.shape[1] for p in parts), 0, []
    for p in parts:
        rows.append(lax.pad(p, p.dtype.type(0), [(0, 0, 0), (before, width - before - p.shape[1], 0)]))
        before += p.shape[1]
    return lax.concatenate(rows, 0)


def _read(x: Any, places: np.ndarray) -> Any:
    """The elements of the last dimension at these places."""
    return x[..., places]


@eager_program
def toeplitz(c: Any, r: Any = None) -> Any:
    """Matrices of constant diagonals.

    Args:
      c: the first columns, num[*batch, m].
      r: the first rows, num[*batch, n], of which the first element is not read; the conjugate of `c` by default.

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
    lead = broadcast_shapes(c.shape[:-1], r.shape[:-1], where="linalg.toeplitz")
    c, r = (broadcast_to_shape(v, (*lead, v.shape[-1])) for v in (c, r))
    m, n = c.shape[-1], r.shape[-1]
    if not m or not n:
        return lax.full((*lead, m, n), 0, c.dtype)
    line = lax.concatenate([lax.rev(c, (c.ndim - 1,)), r[..., 1:]], c.ndim - 1)
    return _read(line, m - 1 - np.arange(m)[:, None] + np.arange(n))


def circulant(c: Any) -> Any:
    """Matrices whose columns are the first one turned round.

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
    return _read(c, (np.arange(n)[:, None] - np.arange(n)) % max(n, 1))


@eager_program
def hankel(c: Any, r: Any = None) -> Any:
    """Matrices of constant antidiagonals.

    Args:
      c: the first columns, num[*batch, m].
      r: the last rows, num[*batch, n], of which the first element is not read; zeros by default.

    Returns:
      num[*batch, m, n].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.hankel(jnp.array([1, 2]), jnp.array([2, 3])).tolist()
      [[1, 2], [2, 3]]
    """
    (c,) = _vectors("hankel", c)
    c, r = (c, c * 0) if r is None else _vectors("hankel", c, r)
    lead = broadcast_shapes(c.shape[:-1], r.shape[:-1], where="linalg.hankel")
    c, r = (broadcast_to_shape(v, (*lead, v.shape[-1])) for v in (c, r))
    m, n = c.shape[-1], r.shape[-1]
    if not m or not n:
        return lax.full((*lead, m, n), 0, c.dtype)
    line = lax.concatenate([c, r[..., 1:]], c.ndim - 1)
    return _read(line, np.arange(m)[:, None] + np.arange(n))


@eager_program(static_argnames=("n", "mode"))
def convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    """The matrix by which a vector is convolved with `a`.

    Args:
      a: num[*batch, m], of one element or more.
      n: the length of the vector.
      mode: which part of the convolution, as in `numpy.convolve`: `"full"`, `"same"` or `"valid"`.

    Returns:
      num[*batch, k, n]; k is n + m - 1, max(m, n), or max(m, n) - min(m, n) + 1.

    Raises:
      ArgumentError: there is no such mode, or `n` is below 1.
      ShapeError: `a` is empty or a scalar.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.convolution_matrix(jnp.array([1, 2]), 2).tolist()
      [[1, 0], [2, 1], [0, 2]]
    """
    if mode not in ("full", "same", "valid"):
        raise refused("convolution_matrix", "mode", ("full", "same", "valid"), mode)
    n = integer(n, "linalg.convolution_matrix, argument n")
    if n < 1:
        raise ArgumentError("linalg.convolution_matrix, argument n", expected="1 or more", got=n, mend="give a length")
    x = as_array(operand(a, "linalg.convolution_matrix"))
    if not x.size or not x.ndim:
        raise ShapeError("linalg.convolution_matrix", expected="a vector of elements", got=x.shape, mend="give some")
    m = x.shape[-1]
    longest, least = max(m, n), min(m, n)
    rows = {"full": n + m - 1, "same": longest, "valid": longest - least + 1}[mode]
    first = {"full": 0, "same": (least - 1) // 2, "valid": least - 1}[mode]
    edge = [(0, 0, 0)] * (x.ndim - 1)
    wide = lax.pad(x, x.dtype.type(0), [*edge, (n - 1, n - 1, 0)])
    return _read(wide, n - 1 + first + np.arange(rows)[:, None] - np.arange(n))


@eager_program
def companion(a: Any) -> Any:
    """The matrices whose eigenvalues are the roots of polynomials.

    Args:
      a: coefficients from the highest, num[*batch, n] with n >= 2.

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
    (x,) = promote_inexact("linalg.companion", operand(a, "linalg.companion"))
    if not x.ndim or x.shape[-1] < 2:
        raise ShapeError("linalg.companion", expected="two coefficients or more", got=x.shape, mend="give a polynomial")
    n = x.shape[-1] - 1
    top = -x[..., 1:] / x[..., :1]
    below = broadcast_to_shape(np.eye(n - 1, n, dtype=x.dtype), (*x.shape[:-1], n - 1, n))
    return lax.concatenate([lax.expand_dims(top, (top.ndim - 1,)), below], top.ndim - 1)


@eager_program
def fiedler(a: Any) -> Any:
    """The matrices of the distances |a_i - a_j|.

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


@eager_program
def fiedler_companion(a: Any) -> Any:
    """The matrices of five diagonals whose eigenvalues are the roots of polynomials.

    Args:
      a: coefficients from the highest, num[*batch, n].

    Returns:
      num[*batch, n - 1, n - 1], in floating point.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.fiedler_companion(jnp.array([1.0, 2.0, 3.0])).tolist()
      [[-2.0, -3.0], [1.0, 0.0]]
    """
    (x,) = promote_inexact("linalg.fiedler_companion", operand(a, "linalg.fiedler_companion"))
    if not x.ndim or not x.shape[-1]:
        raise ShapeError("linalg.fiedler_companion", expected="coefficients", got=x.shape, mend="give a polynomial")
    n = x.shape[-1] - 1
    x = x / x[..., :1]
    out = lax.full((*x.shape[:-1], n, n), 0, x.dtype)
    if n == 0:
        return out
    if n == 1:
        return out.at[..., 0, 0].set(-x[..., 1])
    for i in range(0, n, 2):  # -a_(i+1) in rows of even number, with its neighbour to the right
        out = out.at[..., i, max(i - 1, 0)].set(-x[..., i + 1])
        if i + 1 < n:
            out = out.at[..., i, i + 1].set(-x[..., i + 2])
        if i + 2 < n:
            out = out.at[..., i, i + 2].set(1)
    for i in range(1, n, 2):
        out = out.at[..., i, max(i - 2, 0)].set(1)
    return out


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Any:
    """The matrix of the discrete Fourier transform.

    Args:
      n: how many elements are transformed.
      scale: `"sqrtn"` to divide by the root of n, `"n"` to divide by n.
      dtype: a complex dtype for the result.

    Returns:
      complex[n, n].

    Raises:
      ArgumentError: there is no such scale.
      DTypeError: `dtype` is not complex.

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.dft(2).real.tolist()
      [[1.0, 1.0], [1.0, -1.0]]
    """
    if scale not in (None, "sqrtn", "n"):
        raise refused("dft", "scale", (None, "sqrtn", "n"), scale)
    dtype = dtypes.requested_dtype(complex if dtype is None else dtype, "linalg.dft")
    if dtype.kind != "c":
        raise DTypeError("linalg.dft, argument dtype", expected="a complex dtype", got=str(dtype), mend="leave it out")
    turns = np.outer(np.arange(n), np.arange(n)) % max(n, 1) / max(n, 1)
    values = np.exp(-2j * np.pi * turns) / {None: 1, "sqrtn": math.sqrt(max(n, 1)), "n": max(n, 1)}[scale]
    return array(values.astype(dtype))


def hadamard(n: int, dtype: Any = int) -> Any:
    """Sylvester's matrix of 1 and -1 with orthogonal rows.

    Args:
      n: a power of 2.
      dtype: that of the result.

    Returns:
      dtype[n, n].

    Raises:
      ArgumentError: `n` is no power of 2.

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.hadamard(2).tolist()
      [[1, 1], [1, -1]]
    """
    n = integer(n, "linalg.hadamard, argument n")
    if n < 1 or n & (n - 1):
        raise ArgumentError("linalg.hadamard, argument n", expected="a power of 2", got=n, mend="round it")
    dtype = dtypes.requested_dtype(dtype, "linalg.hadamard")
    both = np.arange(n)[:, None] & np.arange(n)
    parity = sum((both >> k) & 1 for k in range(max(n.bit_length(), 1)))
    return array((1 - 2 * (parity % 2)).astype(dtype))


def helmert(n: int, full: bool = False) -> Any:
    """Helmert's matrix of orthonormal contrasts.

    Args:
      n: its order.
      full: keep the first row, of equal elements.

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
    return _floating(h if full else h[1:])


def hilbert(n: int) -> Any:
    """Hilbert's matrix, 1 / (i + j + 1).

    Args:
      n: its order.

    Returns:
      float[n, n].

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.hilbert(2)[0].tolist()
      [1.0, 0.5]
    """
    return _floating(1.0 / (1 + np.arange(n)[:, None] + np.arange(n)))


def invhilbert(n: int) -> Any:
    """The inverse of Hilbert's matrix, whose elements are integers.

    Args:
      n: its order.

    Returns:
      float[n, n].

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.invhilbert(2).tolist()
      [[4.0, -6.0], [-6.0, 12.0]]
    """
    c = math.comb
    rows = [
        [(-1) ** (i + j) * (i + j + 1) * c(n + i, n - j - 1) * c(n + j, n - i - 1) * c(i + j, i) ** 2 for j in range(n)]
        for i in range(n)
    ]
    return _floating(np.array(rows, np.float64).reshape(n, n))


def pascal(n: int, kind: str | None = None) -> Any:
    """Pascal's matrix of binomial coefficients.

    Args:
      n: its order.
      kind: `"symmetric"` (also None), `"lower"` or `"upper"`.

    Returns:
      float[n, n].

    Raises:
      ArgumentError: there is no such kind.

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.pascal(3).tolist()
      [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 6.0]]
    """
    return _floating(_pascal(n, kind, "pascal", 1))


def invpascal(n: int, kind: str | None = None) -> Any:
    """The inverse of Pascal's matrix.

    Args:
      n, kind: as in `pascal`.

    Returns:
      float[n, n].

    Raises:
      ArgumentError: there is no such kind.

    Examples:
      >>> from phalanx.scipy import linalg
      >>> linalg.invpascal(2).tolist()
      [[2.0, -1.0], [-1.0, 1.0]]
    """
    return _floating(_pascal(n, kind, "invpascal", -1))


def _pascal(n: int, kind: str | None, name: str, sign: int) -> np.ndarray:
    if kind not in (None, "symmetric", "lower", "upper"):
        raise refused(name, "kind", ("symmetric", "lower", "upper"), kind)
    lower = np.array([[sign ** (i + j) * math.comb(i, j) for j in range(n)] for i in range(n)], np.float64)
    lower = lower.reshape(n, n)
    if kind in ("lower", "upper"):
        return lower if kind == "lower" else lower.T
    return lower @ lower.T if sign > 0 else lower.T @ lower


@eager_program
def leslie(f: Any, s: Any) -> Any:
    """Leslie's matrices of how populations change.

    Args:
      f: how many each age class bears, num[*batch, n].
      s: how many of each age class but the last survive, num[*batch, n - 1].

    Returns:
      num[*batch, n, n].

    Raises:
      ShapeError: there is not one number less in `s`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import linalg
      >>> linalg.leslie(jnp.array([0.5, 2.0]), jnp.array([0.25])).tolist()
      [[0.5, 2.0], [0.25, 0.0]]
    """
    f, s = _vectors("leslie", f, s)
    n = f.shape[-1]
    if s.shape[-1] != n - 1:
        raise ShapeError("linalg.leslie, argument s", expected=f"{n - 1} numbers", got=s.shape, mend="drop the last")
    lead = broadcast_shapes(f.shape[:-1], s.shape[:-1], where="linalg.leslie")
    f, s = broadcast_to_shape(f, (*lead, n)), broadcast_to_shape(s, (*lead, n - 1))
    below = lax.expand_dims(s, (s.ndim,)) * cast(np.eye(n - 1, n), s.dtype)
    return lax.concatenate([lax.expand_dims(f, (f.ndim - 1,)), below], f.ndim - 1)
