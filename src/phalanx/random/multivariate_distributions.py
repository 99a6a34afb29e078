"""Random vectors and matrices: normal vectors with a covariance, orthogonal matrices.

Builds on `continuous_distributions`, and on `phalanx.lax.linalg` for the factorizations.
"""

from __future__ import annotations

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, get_aval
from phalanx.lax import linalg
from phalanx.lax.shape import broadcast_to_shape
from phalanx.random.continuous_distributions import standard_normal
from phalanx.random.distribution_parameters import as_dtype, distribution, float_dtype, inexact_dtype
from phalanx.typing import Array, ArrayLike, DTypeLike, PRNGKey, Shape, ShardingLike


@distribution("method", dtype=float_dtype)
def multivariate_normal(
    key: PRNGKey,
    mean: ArrayLike,
    cov: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    method: str = "cholesky",
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the multivariate normal distribution.

    Args:
      key: the random key.
      mean: the means, float[*batch, n].
      cov: the covariances, float[*batch, n, n], symmetric and positive (semi)definite.
      shape: the shape of the batch of vectors; the common batch of the parameters if None.
      dtype: a floating dtype; the default floating dtype if None.
      method: the factorization of the covariance: "cholesky", or "eigh" or "svd", which also take singular matrices.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of shape `(*shape, n)`.

    Raises:
      ArgumentError: `dtype` is not floating, or `method` is unknown.
      ShapeError: the parameters do not fit each other or the shape.

    Examples:
      >>> import numpy as np
      >>> from phalanx import random
      >>> random.multivariate_normal(random.key(0), np.zeros(2), np.eye(2), (5,)).shape
      (5, 2)
    """
    mean, cov = as_dtype(mean, dtype), as_dtype(cov, dtype)
    means, covs = get_aval(mean).shape, get_aval(cov).shape
    if not means or covs[-2:] != (means[-1], means[-1]):
        raise ShapeError(
            "random.multivariate_normal",
            expected="a mean of shape (*batch, n) and a cov of shape (*batch, n, n)",
            got=f"mean of shape {means}, cov of shape {covs}",
            fix="give one mean and one row and column of cov for each component",
        )
    if shape is None:
        shape = lax.broadcast_shapes(means[:-1], covs[:-2])
    drawn = standard_normal(key, (*shape, means[-1]), dtype)
    return lax.add(broadcast_to_shape(mean, drawn.shape), _product(_square_root(cov, method), drawn))


def _square_root(cov: Array, method: str) -> Array:
    """Factor `cov` as A A^T."""
    if method == "cholesky":
        return linalg.cholesky(cov)
    last = cov.ndim - 1
    if method == "eigh":
        vectors, values = linalg.eigh(cov)
    elif method == "svd":
        vectors, values, _ = linalg.svd(cov)
    else:
        raise ArgumentError(
            "random.multivariate_normal, method",
            expected="'cholesky', 'eigh' or 'svd'",
            got=repr(method),
            fix="pass method='cholesky', or 'eigh' for a singular covariance",
        )
    # Scaling the columns of V by sqrt(values) makes A A^T = V diag(values) V^T, which is the covariance.
    # Rounding may make the zero eigenvalues of a singular covariance negative.
    scale = lax.sqrt(lax.max(values, values.dtype.type(0)))
    return lax.mul(vectors, lax.broadcast_in_dim(scale, cov.shape, (*range(last - 1), last)))


def _product(matrix: Array, vectors: Array) -> Array:
    """Matrix-vector products; the batch of `matrix` is broadcast to the batch of `vectors`."""
    batch = vectors.ndim - 1
    # One matrix for all vectors: a single matrix product, without a copy of the matrix for each vector.
    if matrix.ndim == 2:
        return lax.dot_general(vectors, matrix, (((batch,), (1,)), ((), ())))
    matrix, dims = broadcast_to_shape(matrix, (*vectors.shape, vectors.shape[-1])), tuple(range(batch))
    return lax.dot_general(matrix, vectors, (((batch + 1,), (batch,)), (dims, dims)))


@distribution("n", "m", dtype=inexact_dtype)
def orthogonal(
    key: PRNGKey,
    n: int,
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    m: int | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Uniformly distributed orthogonal (unitary) matrices, or matrices with orthonormal rows or columns.

    Args:
      key: the random key.
      n: the number of rows.
      shape: the shape of the batch of matrices.
      dtype: a floating or complex dtype; the default floating dtype if None.
      m: the number of columns; n if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of shape `(*shape, n, m)`.

    Raises:
      ArgumentError: `dtype` is neither floating nor complex.

    Examples:
      >>> from phalanx import random
      >>> random.orthogonal(random.key(0), 3, (5,)).shape
      (5, 3, 3)

    Source: Mezzadri (2007), arXiv:math-ph/0609050.
    """
    m = n if m is None else m
    tall, thin = max(n, m), min(n, m)
    q, r = linalg.qr(standard_normal(key, (*shape, tall, thin), dtype), full_matrices=False)
    # QR alone is not uniform: the phases of the diagonal of r, which LAPACK fixes, must be moved into q (Mezzadri).
    is_diagonal = broadcast_to_shape(np.eye(thin, dtype=bool), r.shape)
    diagonal = lax.reduce_sum(lax.select(is_diagonal, r, lax.full_like(r, 0)), (r.ndim - 1,))
    q = lax.mul(q, lax.broadcast_in_dim(lax.sign(diagonal), q.shape, (*range(q.ndim - 2), q.ndim - 1)))
    return lax.transpose(q, (*range(q.ndim - 2), q.ndim - 1, q.ndim - 2)) if n < m else q
