"""Covariance and correlation matrices."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import DTypeError, ShapeError, dtypes
from phalanx.numpy.operands import cast, promote_inexact, to_operand
from phalanx.numpy.products.matrix_products import dot
from phalanx.numpy.reductions.array_reductions import sum
from phalanx.numpy.reductions.moments import mean
from phalanx.numpy.shapes.joining import concatenate
from phalanx.numpy.shapes.transposition import squeeze
from phalanx.numpy.ufuncs.rounding import clip
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, DTypeLike

_eager = eager_jit(static_argnames=("rowvar", "bias", "ddof"))


@_eager
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Covariance matrix of variables.

    Args:
      m: variables in rows, observations in columns.
      y: additional variables, in the same layout.
      rowvar: whether variables are rows; False if they are columns.
      bias: divide by the number n of observations instead of n - 1.
      ddof: delta degrees of freedom: divide by n - ddof; overrides `bias`.
      fweights: integer frequency of each observation.
      aweights: relative weights of the observations.
      dtype: dtype of the computation and of the result.

    Returns:
      num[n, n] for n variables, num[] for one.

    Raises:
      DTypeError: `dtype` is not inexact.
      ShapeError: the rank of an operand is above 2, or the number of weights is wrong.

    Examples:
      >>> jnp.cov(jnp.array([[0.0, 1.0], [1.0, 0.0]])).tolist()
      [[0.5, -0.5], [-0.5, 0.5]]
    """
    x = _join_variables([to_operand(v, "cov") for v in (m, y) if v is not None], rowvar, dtype)
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights = [_check_weights(w, x.shape[1]) for w in (fweights, aweights) if w is not None]
    if not weights:
        divisor: Any = x.shape[1] - ddof
        # With fewer observations than `ddof` the covariance is undefined: dividing 0 by 0 gives NaN.
        divisor = 0.0 if isinstance(divisor, int | float) and divisor < 0 else divisor
        centered = x - mean(x, axis=1)[:, None]
        weighted = centered
    else:
        w = functools.reduce(operator.mul, weights)
        total = sum(w)
        divisor = total - ddof
        if ddof and aweights is not None:
            # Reliability weights: ddof counts effective observations, sum(w a) / sum(w).
            divisor = total - ddof * sum(w * weights[-1]) / total
        centered = x - (sum(x * w, axis=1) / total)[:, None]
        weighted = centered * w
    product = dot(weighted, lax.conj(centered.T) if x.dtype.kind == "c" else centered.T)
    return squeeze(product / divisor)


def _join_variables(parts: list, rowvar: bool, dtype: DTypeLike | None) -> Array:
    """The variables of all operands as rows, num[variables, observations]."""
    if dtype is not None:
        dtype = dtypes.requested_dtype(dtype, "cov")
        if not dtypes.issubdtype(dtype, np.inexact):
            raise DTypeError(
                "cov, argument dtype",
                expected="an inexact dtype",
                got=str(dtype),
                fix="pass dtype='float32', or leave dtype out",
            )
        parts = [cast(v, dtype) for v in parts]
    rows = []
    for v in promote_inexact("cov", *parts):
        if v.ndim > 2:
            raise ShapeError(
                "cov", expected="a matrix of observations", got=v.shape, fix="reshape it to [variables, observations]"
            )
        v = v if v.ndim == 2 else lax.reshape(v, (1, math.prod(v.shape)))
        # A single row is one variable in either layout, as in NumPy.
        rows.append(v if rowvar or v.shape[0] == 1 else v.T)
    return concatenate(rows, 0) if len(rows) > 1 else rows[0]


def _check_weights(w: ArrayLike, num_observations: int) -> Array:
    w = to_operand(w, "cov")
    if w.ndim != 1 or w.shape[0] != num_observations:
        raise ShapeError(
            "cov, argument weights",
            expected=f"a vector of {num_observations}",
            got=w.shape,
            fix=f"pass one weight for each of the {num_observations} observations",
        )
    return lax.abs(w)


@_eager
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: DTypeLike | None = None) -> Array:
    """Matrix of Pearson correlation coefficients.

    Args:
      x, y, rowvar: as `m`, `y` and `rowvar` in `cov`.
      dtype: inexact dtype of the result; by default promoted from `x` and `y`.

    Returns:
      num[n, n] for n variables, num[] for one, from -1 to 1.

    Raises:
      DTypeError: `dtype` is not inexact.
      ShapeError: the rank of an operand is above 2.

    Examples:
      >>> round(jnp.corrcoef(jnp.array([[0.0, 1.0], [1.0, 0.0]]))[0, 1].item(), 5)
      -1.0
    """
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return c / c
    d = lax.sqrt(lax.real(c.diagonal()) if c.dtype.kind == "c" else c.diagonal())
    c = c / d[:, None] / d[None, :]
    if c.dtype.kind == "c":
        return lax.complex(clip(lax.real(c), -1, 1), clip(lax.imag(c), -1, 1))
    return clip(c, -1, 1)
