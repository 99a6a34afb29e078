"""The multivariate normal distribution. Builds on `numpy.linalg`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ShapeError, dtypes
from phalanx.numpy.operands import align_ranks, broadcast_shapes, broadcast_to_shape
from phalanx.numpy.ufuncs.ufunc_implementations import select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import to_inexact_operands
from phalanx.typing import Array, ArrayLike

_LOG_2PI = math.log(2 * math.pi)


@eager_jit(static_argnames=("allow_singular",))
def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: bool | None = None) -> Array:
    """The log density of the multivariate normal distribution.

    Args:
      x: the points, num[*batch, n], or num[*batch] for a scalar `mean`.
      mean: num[*batch, n], or a scalar.
      cov: the covariances, num[*batch, n, n], or a variance.
      allow_singular: whether to support singular covariances, for which the density is that on their range. Otherwise
        the result for a covariance that is not positive definite is NaN.

    Returns:
      num[*batch].

    Raises:
      ShapeError: `cov` is neither a scalar nor [..., n, n].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.stats import multivariate_normal
      >>> round(multivariate_normal.logpdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2)).item(), 4)
      -1.8379
    """
    name = "stats.multivariate_normal"
    x, mean, cov = to_inexact_operands(name, x, mean, cov)
    y = jnp.subtract(*align_ranks(x, mean))
    if not mean.ndim:
        return -0.5 * (lax.square(y) / cov + _LOG_2PI + lax.log(cov))
    n = mean.shape[-1]
    if not cov.ndim:
        return -0.5 * (jnp.sum(y * y, axis=-1) / cov + n * (_LOG_2PI + lax.log(cov)))
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ShapeError(
            name,
            expected=f"covariances of shape [..., {n}, {n}]",
            got=cov.shape,
            fix=f"pass cov of shape [{n}, {n}], or a scalar variance",
        )
    if allow_singular:
        return _singular_logpdf(y, cov)
    factor = jnp.linalg.cholesky(cov)
    batch_shape = broadcast_shapes(y.shape[:-1], cov.shape[:-2])
    y, factors = broadcast_to_shape(y, (*batch_shape, n)), broadcast_to_shape(factor, (*batch_shape, n, n))
    # (x - mean)^T cov^-1 (x - mean) is the squared norm of L^-1 (x - mean), without an explicit inverse.
    whitened = lax.linalg.triangular_solve(factors, lax.expand_dims(y, (y.ndim,)), left_side=True, lower=True)
    log_diagonal = jnp.sum(lax.log(jnp.real(factor.diagonal(0, -2, -1))), axis=-1)
    return -0.5 * (jnp.sum(lax.square(whitened), axis=(-2, -1)) + n * _LOG_2PI) - log_diagonal


def _singular_logpdf(y: Array, cov: Array) -> Any:
    """The density on the range of the covariance, from its eigenvalues; -inf for points outside of the range."""
    values, vectors = jnp.linalg.eigh(cov)
    eps = float(dtypes.finfo(y.dtype).eps) * (1e3 if y.dtype.itemsize == 4 else 1e6)
    smallest = eps * jnp.max(lax.abs(values), axis=-1, keepdims=True)
    in_range = values > smallest
    coordinates = jnp.squeeze(jnp.matmul(lax.expand_dims(y, (y.ndim - 1,)), vectors), -2)
    inside = jnp.all((lax.abs(coordinates) <= jnp.sqrt(smallest)) | in_range, axis=-1)
    safe_values = select_where(in_range, values, 1.0)
    squared_norm = jnp.sum(jnp.where(in_range, coordinates * coordinates / safe_values, 0), axis=-1)
    log_determinant = jnp.sum(select_where(in_range, lax.log(safe_values) + _LOG_2PI, 0.0), axis=-1)
    return jnp.where(inside, -0.5 * (squared_norm + log_determinant), -np.inf)


def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """The density of the multivariate normal distribution.

    Args:
      x, mean, cov: as in `logpdf`.

    Returns:
      num[*batch].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.stats import multivariate_normal
      >>> round(multivariate_normal.pdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2)).item(), 4)
      0.1592
    """
    return lax.exp(logpdf(x, mean, cov))
