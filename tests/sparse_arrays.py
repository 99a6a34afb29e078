"""Arrays for tests of sparse arrays."""

import numpy as np
from phalanx.experimental import sparse


def make_dense(shape, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < 0.5, rng.integers(1, 9, shape), 0).astype(np.float32)


def make_bcoo(shape, n_batch=0, n_dense=0, seed=0):
    """A random array in which indices recur, and the last element of each batch is padding."""
    rng = np.random.default_rng(seed)
    sparse_shape = shape[n_batch : len(shape) - n_dense]
    nse = 4
    data = rng.integers(1, 9, (*shape[:n_batch], nse, *shape[len(shape) - n_dense :])).astype(np.float32)
    indices = rng.integers(0, sparse_shape, (*shape[:n_batch], nse, len(sparse_shape))).astype(np.int32)
    if sparse_shape:
        indices[..., -1, :] = sparse_shape
    return sparse.BCOO((data, indices), shape=shape)
