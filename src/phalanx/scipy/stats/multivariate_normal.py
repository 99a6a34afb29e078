"""The normal distribution of vectors. Builds on `numpy.linalg`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ShapeError
from phalanx.numpy import ufuncs
from phalanx.numpy.bodies import choose
from phalanx.numpy.contraction import matmul
from phalanx.numpy.linalg import cholesky, eigh
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import broadcast_shapes, broadcast_to_shape, operand, promote_inexact
from phalanx.numpy.reductions import all, max, sum
from phalanx.runtime.dispatch import eager_program

_LOG_2PI = math.log(2 * math.pi)


@eager_program(static_argnames=("allow_singular",))
def logpdf(x: Any, mean: Any, cov: Any, allow_singular: bool | None = None) -> Any:
    """The logarithm of the density of the normal distribution of vectors.

    Args:
      x: the points, num[*batch, n]; with a scalar `mean`, numbers.
      mean: num[*batch, n], or a scalar.
      cov: the covariances, num[*batch, n, n], or a variance.
      allow_singular: take covariances that are not positive definite; the density is then that on the subspace where
        there is one. NaN comes of such covariances otherwise.

    Returns:
      num[*batch].

    Raises:
      ShapeError: `cov` is neither a scalar nor as large as `mean`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.stats import multivariate_normal
      >>> round(multivariate_normal.logpdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2)).item(), 4)
      -1.8379
    """
    name = "stats.multivariate_normal"
    x, mean, cov = promote_inexact(name, *(operand(v, name) for v in (x, mean, cov)))
    if not mean.ndim:
        return -0.5 * (lax.square(ufuncs.subtract(x, mean)) / cov + _LOG_2PI + lax.log(cov))
    n = mean.shape[-1]
    y = ufuncs.subtract(x, mean)
    if not cov.ndim:
        return -0.5 * (sum(y * y, axis=-1) / cov + n * (_LOG_2PI + lax.log(cov)))
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ShapeError(name, expected=f"covariances of shape [..., {n}, {n}]", got=cov.shape, mend="give a matrix")
    if allow_singular:
        return _on_subspace(y, cov)
    factor = cholesky(cov)
    lead = broadcast_shapes(y.shape[:-1], cov.shape[:-2])
    y, wide = broadcast_to_shape(y, (*lead, n)), broadcast_to_shape(factor, (*lead, n, n))
    whitened = lax.linalg.triangular_solve(wide, lax.expand_dims(y, (y.ndim,)), left_side=True, lower=True)
    logs = sum(lax.log(ufuncs.real(factor.diagonal(0, -2, -1))), axis=-1)
    return -0.5 * (sum(lax.square(whitened), axis=(-2, -1)) + n * _LOG_2PI) - logs


def _on_subspace(y: Any, cov: Any) -> Any:
    """By eigenvalues; -inf beside the subspace that the covariance spans."""
    values, vectors = eigh(cov)
    eps = float(dtypes.finfo(y.dtype).eps) * (1e3 if y.dtype.itemsize == 4 else 1e6)
    bound = eps * max(lax.abs(values), axis=-1, keepdims=True)
    kept = values > bound
    z = matmul(lax.expand_dims(y, (y.ndim - 1,)), vectors)
    z = lax.squeeze(z, (z.ndim - 2,))
    inside = all((lax.abs(z) <= ufuncs.sqrt(bound)) | kept, axis=-1)
    safe = choose(kept, values, 1.0)
    total = sum(where(kept, z * z / safe, 0), axis=-1)
    rest = sum(choose(kept, lax.log(safe) + _LOG_2PI, 0.0), axis=-1)
    return where(inside, -0.5 * (total + rest), -np.inf)


def pdf(x: Any, mean: Any, cov: Any) -> Any:
    """The density of the normal distribution of vectors.

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
