"""Random vectors and matrices: normal vectors with a covariance, orthogonal matrices.

Builds on `continuous`, and on `phalanx.lax.linalg` for the factorisations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.lax import linalg
from phalanx.random.continuous import standard_normal
from phalanx.random.keys import static_shape
from phalanx.random.parameters import as_dtype, broadcast_to, distribution, float_dtype, key_of, placed


@distribution("method")
def multivariate_normal(
    key: Any,
    mean: Any,
    cov: Any,
    shape: Any = None,
    dtype: Any = None,
    method: str = "cholesky",
    *,
    out_sharding: Any = None,
) -> Any:
    """Normal vectors with a mean and a covariance.

    Args:
      key: a key.
      mean: the means, float[*batch, n].
      cov: the covariances, float[*batch, n, n], symmetric and positive (semi)definite.
      shape: the shape of the batch of vectors; that of the parameters if None.
      dtype: a floating dtype; the default one if None.
      method: how the covariance is factored: "cholesky", or "eigh" or "svd", which also take singular ones.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of shape `(*shape, n)`.

    Raises:
      ArgumentError: `method` or `dtype` is none of those.
      ShapeError: the parameters do not fit each other or the shape.

    Examples:
      >>> import numpy as np
      >>> from phalanx import random
      >>> random.multivariate_normal(random.key(0), np.zeros(2), np.eye(2), (5,)).shape
      (5, 2)
    """
    key = key_of("multivariate_normal", key)
    dtype = float_dtype("multivariate_normal", dtype)
    mean, cov = as_dtype(mean, dtype), as_dtype(cov, dtype)
    means, covs = aval_of(mean).shape, aval_of(cov).shape
    if not means or covs[-2:] != (means[-1], means[-1]):
        raise ShapeError(
            "random.multivariate_normal", expected="a mean of shape (*batch, n) and a cov of shape (*batch, n, n)",
            got=f"mean of shape {means}, cov of shape {covs}", mend="make them fit",
        )  # fmt: skip
    if shape is None:
        shape = lax.broadcast_shapes(means[:-1], covs[:-2])
    else:
        shape = static_shape("multivariate_normal", shape)
    size = means[-1]
    factor = _square_root(cov, method)
    drawn = standard_normal(key, (*shape, size), dtype)
    return placed(lax.add(broadcast_to(mean, drawn.shape), _product(factor, drawn)), out_sharding)


def _square_root(cov: Any, method: str) -> Any:
    """A matrix whose product with its transpose is `cov`."""
    if method == "cholesky":
        return linalg.cholesky(cov)
    last = cov.ndim - 1
    if method == "eigh":
        vectors, values = linalg.eigh(cov)
    elif method == "svd":
        vectors, values, _ = linalg.svd(cov)
    else:
        raise ArgumentError(
            "random.multivariate_normal, method", expected="'cholesky', 'eigh' or 'svd'", got=repr(method),
            mend="pass one of these",
        )  # fmt: skip
    columns = (*range(last - 1), last)
    scale = lax.sqrt(lax.max(values, values.dtype.type(0)))
    return lax.mul(vectors, lax.broadcast_in_dim(scale, cov.shape, columns))


def _product(matrix: Any, vectors: Any) -> Any:
    """Matrices times vectors, the batch of the matrices repeated to that of the vectors."""
    batch = vectors.ndim - 1
    if matrix.ndim == 2:
        return lax.dot_general(vectors, matrix, (((batch,), (1,)), ((), ())))
    matrix = broadcast_to(matrix, (*vectors.shape, vectors.shape[-1]))
    dims = tuple(range(batch))
    return lax.dot_general(matrix, vectors, (((batch + 1,), (batch,)), (dims, dims)))


@distribution("n", "m")
def orthogonal(
    key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None, *, out_sharding: Any = None
) -> Any:
    """Matrices with orthonormal rows or columns, each as likely as any other.

    Args:
      key: a key.
      n: the number of rows.
      shape: the shape of the batch of matrices.
      dtype: a floating or complex dtype; the default floating one if None.
      m: the number of columns; n if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

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
    key = key_of("orthogonal", key)
    dtype = float_dtype("orthogonal", dtype, allow_complex=True)
    shape = static_shape("orthogonal", shape)
    m = n if m is None else m
    tall, thin = max(n, m), min(n, m)
    q, r = linalg.qr(standard_normal(key, (*shape, tall, thin), dtype), full_matrices=False)
    # Without the phases of the diagonal of r, QR would prefer some matrices.
    eye = np.eye(thin, dtype=bool)
    diagonal = lax.reduce_sum(lax.select(broadcast_to(eye, r.shape), r, lax.full_like(r, 0)), (r.ndim - 1,))
    phase = lax.sign(diagonal)
    phase = lax.broadcast_in_dim(phase, q.shape, (*range(q.ndim - 2), q.ndim - 1))
    q = lax.mul(q, phase)
    if n < m:
        q = lax.transpose(q, (*range(q.ndim - 2), q.ndim - 1, q.ndim - 2))
    return placed(q, out_sharding)
