"""Constructors of sparse arrays: `empty`, `eye` and `random_bcoo`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import numpy as jnp, random
from phalanx.core import ArgumentError, dtypes
from phalanx.sparse.bcoo import BCOO, split_shape
from phalanx.sparse.bcsr import BCSR
from phalanx.sparse.matrix_formats import COO, CSC, CSR
from phalanx.transforms import vmap
from phalanx.typing import Array, DTypeLike

_FORMATS: dict[str, Any] = {"bcoo": BCOO, "bcsr": BCSR, "coo": COO, "csr": CSR, "csc": CSC}


def _format(where: str, name: str) -> Any:
    if name not in _FORMATS:
        raise ArgumentError(
            f"{where}, argument sparse_format",
            expected=" or ".join(map(repr, _FORMATS)),
            got=repr(name),
            fix="pass sparse_format='bcoo'",
        )
    return _FORMATS[name]


def empty(
    shape: Sequence[int],
    dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> Any:
    """A sparse array of zeros.

    Args:
      shape: the shape of the array.
      dtype: the element type; the default float if None.
      index_dtype: the dtype of the indices.
      sparse_format: "bcoo", "bcsr", "coo", "csr" or "csc".
      **kwds: `n_batch`, `n_dense` and `nse` of the batched formats.

    Returns:
      sparse[*shape].

    Raises:
      ArgumentError: the format is unknown, or does not have this layout.

    Examples:
      >>> from phalanx.experimental import sparse
      >>> sparse.empty((2, 3))
      BCOO(float32[2, 3], nse=0)
    """
    return _format("sparse.empty", sparse_format)._empty(tuple(shape), dtype=dtype, index_dtype=index_dtype, **kwds)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> Any:
    """A sparse matrix with ones on a diagonal.

    Args:
      N, M: the numbers of rows and columns; `M` is `N` if it is None.
      k: the diagonal: 0 for the main one, positive above it, negative below it.
      dtype: the element type; the default float if None.
      index_dtype: the dtype of the indices.
      sparse_format: "bcoo", "bcsr", "coo", "csr" or "csc".
      **kwds: `n_batch` and `n_dense` of the batched formats.

    Returns:
      sparse[N, M].

    Raises:
      ArgumentError: the format is unknown, or does not have this layout.

    Examples:
      >>> from phalanx.experimental import sparse
      >>> sparse.eye(2, k=1).todense().tolist()
      [[0.0, 1.0], [0.0, 0.0]]
    """
    rows, columns, diagonal = (operator.index(n) for n in (N, N if M is None else M, k))
    options = {"dtype": dtype, "index_dtype": index_dtype, **kwds}
    return _format("sparse.eye", sparse_format)._eye(rows, columns, diagonal, **options)


def random_bcoo(
    key: Array,
    shape: Sequence[int],
    *,
    dtype: DTypeLike | None = None,
    indices_dtype: DTypeLike | None = None,
    nse: float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Callable[..., Array] = random.uniform,
    **kwds: Any,
) -> BCOO:
    """A sparse array with random elements at random indices.

    Args:
      key: a random key.
      shape: the shape of the array.
      dtype: the element type; the default float if None.
      indices_dtype: the dtype of the indices; the default integer if None.
      nse: the number of stored elements of each element of the batch, or, below 1, their fraction of all.
      n_batch, n_dense: the numbers of batch and dense dimensions.
      unique_indices: whether no index recurs.
      sorted_indices: whether the indices are sorted.
      generator: draws the elements; a function of `key`, `shape=` and `dtype=`.
      **kwds: further arguments of `generator`.

    Returns:
      sparse[*shape].

    Raises:
      ArgumentError: `nse` is out of range, or `n_batch` and `n_dense` exceed the rank, or `indices_dtype` is too small.

    Examples:
      >>> from phalanx import random
      >>> from phalanx.experimental import sparse
      >>> sparse.random_bcoo(random.key(0), (10, 10))
      BCOO(float32[10, 10], nse=20)
    """
    batch, sparse, dense = split_shape("random_bcoo", shape, n_batch, n_dense)
    size = math.prod(sparse)
    if not 0 <= nse < max(size, 1) and nse != size:
        raise ArgumentError(
            "random_bcoo, argument nse",
            expected=f"a number of elements from 0 to {size}, or a fraction",
            got=repr(nse),
            fix="pass nse=0.2 to store a fifth of the elements",
        )
    count = math.ceil(nse * size) if 0 < nse < 1 else operator.index(nse)
    index_dtype = np.dtype(dtypes.canonicalize_dtype(int if indices_dtype is None else indices_dtype))
    if size > np.iinfo(index_dtype).max:
        raise ArgumentError(
            "random_bcoo, argument indices_dtype",
            expected=f"a dtype that has the number {size} of indices",
            got=str(index_dtype),
            fix="pass indices_dtype='int64' with enable_x64",
        )

    def draw(key: Array) -> Array:
        if not sparse:
            return jnp.zeros((count, 0), index_dtype)
        flat = random.choice(key, size, shape=(count,), replace=not unique_indices).astype(index_dtype)
        return jnp.stack(jnp.unravel_index(flat, sparse), axis=-1).astype(index_dtype)

    keys = random.split(key, math.prod(batch) + 1)
    data = generator(keys[0], shape=(*batch, count, *dense), dtype=float if dtype is None else dtype, **kwds)
    indices = vmap(draw)(keys[1:]).reshape(*batch, count, len(sparse))
    found = BCOO((data, indices), shape=shape, unique_indices=unique_indices and (bool(sparse) or count == 1))
    return found.sort_indices() if sorted_indices else found
