"""`BCSR`, the batched compressed row format: a `BCOO` with two sparse dimensions whose rows are stored as offsets.

Apart from conversions, it has the operations of `BCOO`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, ShapeError
from phalanx.sparse.bcoo import (
    BCOO,
    bcoo_eliminate_zeros,
    bcoo_fromdense,
    bcoo_sort_indices,
    bcoo_sum_duplicates,
    bcoo_transpose,
    expand_batch,
    extract,
)
from phalanx.sparse.bcoo_products import DimensionNumbers, bcoo_dot_general
from phalanx.sparse.bcoo_shapes import bcoo_broadcast_in_dim, bcoo_concatenate
from phalanx.sparse.sparse_array import JAXSparse
from phalanx.sparse.sparse_layout import Layout, SparseInfo, map_batch
from phalanx.tree import GetAttrKey, register_pytree_with_keys_class
from phalanx.typing import Array, ArrayLike, DTypeLike, Shape


@register_pytree_with_keys_class
class BCSR(JAXSparse):
    """A sparse array in the batched compressed row format.

    The array has the shape `(*batch, rows, columns, *dense)`. The elements of row i of an element of the batch are
    those from `indptr[i]` up to `indptr[i + 1]`; elements from `indptr[-1]` on are padding.

    Args:
      args: (data, indices, indptr): num[*batch, nse, *dense], the columns int[*batch, nse], and int[*batch, rows + 1].
      shape: the shape of the array.
      indices_sorted: a promise that the columns of each row are in increasing order.
      unique_indices: a promise that no index is stored twice.

    Raises:
      ShapeError: the shapes of the buffers do not fit `shape`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCSR.fromdense(jnp.array([[0.0, 2.0, 0.0], [1.0, 0.0, 4.0]]))
      >>> x
      BCSR(float32[2, 3], nse=3)
      >>> x.indptr.tolist()
      [0, 1, 3]
    """

    data: Array
    indices: Array
    indptr: Array
    indices_sorted: bool
    unique_indices: bool

    def __init__(
        self,
        args: tuple[ArrayLike, ArrayLike, ArrayLike],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ):
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        self.indices_sorted, self.unique_indices = bool(indices_sorted), bool(unique_indices)
        shape = tuple(map(operator.index, shape))
        n = self.indices.ndim - 1
        data, indices, indptr = self.data.shape, self.indices.shape, self.indptr.shape
        fits = 0 <= n <= len(shape) - 2 and indptr[n:] == (shape[n] + 1,) and data[n:] == (indices[-1], *shape[n + 2 :])
        if not fits or any(
            x not in (1, s) for b in (data, indices, indptr) for x, s in zip(b, shape[:n], strict=False)
        ):
            raise ShapeError(
                f"BCSR, the triple (data, indices, indptr) of an array of shape {list(shape)}",
                expected="shapes [*batch, nse, *dense], [*batch, nse] and [*batch, rows + 1]",
                got=f"{list(data)}, {list(indices)} and {list(indptr)}",
                fix="make the buffers agree with the shape; only batch dimensions may have size 1 instead",
            )
        self.indices = expand_batch(self.data, self.indices, shape, n)
        self._columns = shape[n + 1]

    @property
    def layout(self) -> Layout:
        """The sizes of the batch, sparse and dense dimensions."""
        n, data, indices, indptr = self.n_batch, self.data.shape, self.indices.shape, self.indptr.shape
        if n < 0:
            raise ShapeError(
                "BCSR array inside of vmap or scan",
                expected="a mapped batch dimension",
                got="a mapped dimension of the stored elements",
                fix="convert a BCOO array with n_batch=1 to BCSR, and map over that",
            )
        batch = lax.broadcast_shapes(data[:n], indices[:n], indptr[:n])
        return Layout(batch, (indptr[-1] - 1, self._columns), data[n + 1 :], indices[-1])

    shape = property(lambda self: self.layout.shape)
    nse = property(lambda self: self.indices.shape[-1])
    n_batch = property(lambda self: self.indices.ndim - 1)
    n_sparse = 2
    n_dense = property(lambda self: self.data.ndim - 1 - self.n_batch)

    @property
    def info(self) -> SparseInfo:
        """The static description of the array."""
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    def with_data(self, data: Array) -> BCSR:
        """The array with other elements at the same indices."""
        return self.tree_unflatten(self.tree_flatten()[1], (data, self.indices, self.indptr))

    def tree_flatten_with_keys(self) -> tuple:
        buffers, static = self.tree_flatten()
        return tuple(zip(map(GetAttrKey, ("data", "indices", "indptr")), buffers, strict=True)), static

    def tree_flatten(self) -> tuple:
        return (self.data, self.indices, self.indptr), (self._columns, self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, static: tuple, buffers: Sequence[Any]) -> BCSR:
        """Rebuild an array; its buffers may be anything that a transformation puts in place of arrays."""
        self = object.__new__(cls)
        self.data, self.indices, self.indptr = buffers
        self._columns, self.indices_sorted, self.unique_indices = static
        return self

    @classmethod
    def fromdense(
        cls,
        mat: ArrayLike,
        *,
        nse: int | None = None,
        index_dtype: DTypeLike = np.int32,
        n_dense: int = 0,
        n_batch: int = 0,
    ) -> BCSR:
        """Convert a dense array; see `bcsr_fromdense`."""
        return bcsr_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: DTypeLike | None = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """Convert a matrix of `scipy.sparse`, which has neither batch nor dense dimensions."""
        return cls.from_bcoo(BCOO.from_scipy_sparse(mat, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch))

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """Convert a `BCOO` array with two sparse dimensions."""
        if arr.n_sparse != 2:
            raise ArgumentError(
                "BCSR.from_bcoo",
                expected="an array with two sparse dimensions",
                got=f"{arr!r} with {arr.n_sparse}",
                fix="change the layout with arr.update_layout(n_batch=..., n_dense=...)",
            )
        # Row offsets can point into the columns only if the elements of a row are neighbours.
        arr = arr if arr.indices_sorted else bcoo_sort_indices(arr)
        columns, indptr = bcoo_to_bcsr(arr.indices, shape=arr.shape)
        return cls((arr.data, columns, indptr), shape=arr.shape, indices_sorted=True, unique_indices=arr.unique_indices)

    def to_bcoo(self) -> BCOO:
        indices = bcsr_to_bcoo(self.indices, self.indptr, shape=self.shape)
        return BCOO(
            (self.data, indices),
            shape=self.shape,
            indices_sorted=self.indices_sorted,
            unique_indices=self.unique_indices,
        )

    def todense(self) -> Array:
        return self.to_bcoo().todense()

    def transpose(self, axes: Sequence[int] | None = None) -> BCSR:
        permutation = tuple(range(self.ndim))[::-1] if axes is None else axes
        return BCSR.from_bcoo(bcoo_transpose(self.to_bcoo(), permutation=permutation))

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """The array with equal indices merged; see `BCOO.sum_duplicates`."""
        return bcsr_eliminate_zeros(self, nse) if remove_zeros else bcsr_sum_duplicates(self, nse)

    @classmethod
    def _empty(
        cls,
        shape: Shape,
        *,
        dtype: DTypeLike | None = None,
        index_dtype: DTypeLike = "int32",
        n_dense: int = 0,
        n_batch: int = 0,
        nse: int = 0,
    ) -> BCSR:
        empty = BCOO._empty(shape, dtype=dtype, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch, nse=nse)
        return cls.from_bcoo(empty)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, **options: Any) -> BCSR:
        return cls.from_bcoo(BCOO._eye(N, M, k, **options))


def bcoo_to_bcsr(indices: Array, *, shape: Shape) -> tuple[Array, Array]:
    """The columns int[*batch, nse] and row offsets int[*batch, rows + 1] of sorted indices int[*batch, nse, 2]."""
    n_batch = indices.ndim - 2
    limits = np.arange(shape[n_batch] + 1, dtype=indices.dtype)
    # A row begins at the first element whose row is not smaller; padding is behind the last row.
    indptr = map_batch(lambda i: jnp.searchsorted(i[:, 0], limits).astype(indices.dtype), n_batch, indices)
    return indices[..., 1], indptr


def bcsr_to_bcoo(indices: Array, indptr: Array, *, shape: Shape) -> Array:
    """The inverse of `bcoo_to_bcsr`; elements after the last row get indices out of bounds."""
    nse = indices.shape[-1]

    def expand(indices: Array, indptr: Array) -> Array:
        # The row of element k is the last one that begins at k or before, so that empty rows are passed over.
        rows = jnp.searchsorted(indptr, np.arange(nse, dtype=indptr.dtype), side="right") - 1
        return jnp.stack([rows.astype(indices.dtype), indices], axis=-1)

    return map_batch(expand, indices.ndim - 1, indices, indptr)


def bcsr_todense(mat: BCSR) -> Array:
    """Convert a sparse array to a dense one.

    Args:
      mat: sparse[*shape].

    Returns:
      num[*shape].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcsr_todense(sparse.BCSR(([5, 6], [1, 0], [0, 1, 2]), shape=(2, 2))).tolist()
      [[0, 5], [6, 0]]
    """
    return mat.todense()


def bcsr_fromdense(
    mat: ArrayLike, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: DTypeLike = np.int32
) -> BCSR:
    """Convert a dense array to a sparse one, which has two sparse dimensions.

    Args:
      mat: num[*shape].
      nse, n_batch, n_dense, index_dtype: as in `bcoo_fromdense`.

    Returns:
      sparse[*shape].

    Raises:
      ArgumentError: `n_batch` and `n_dense` do not leave two sparse dimensions.
      ConcretizationTypeError: `nse` is None, and the array is traced.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcsr_fromdense(jnp.eye(3)).indices.tolist()
      [0, 1, 2]
    """
    return BCSR.from_bcoo(bcoo_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype))


def bcsr_extract(indices: ArrayLike, indptr: ArrayLike, mat: ArrayLike) -> Array:
    """Read the elements of a dense array at the indices of a sparse one.

    Args:
      indices: int[*batch, nse], the columns.
      indptr: int[*batch, rows + 1], the row offsets.
      mat: num[*batch, rows, columns, *dense].

    Returns:
      num[*batch, nse, *dense].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcsr_extract(jnp.array([1, 0]), jnp.array([0, 1, 2]), jnp.arange(4).reshape(2, 2)).tolist()
      [1, 2]
    """
    indices, indptr, mat = map(jnp.asarray, (indices, indptr, mat))
    return extract(bcsr_to_bcoo(indices, indptr, shape=mat.shape), mat)


def bcsr_dot_general(
    lhs: BCSR | ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: DimensionNumbers,
    precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Any:
    """Contract two arrays, of which at least one is sparse, as `lax.dot_general` does.

    Args:
      lhs, rhs: sparse or dense arrays.
      dimension_numbers, precision, preferred_element_type, out_sharding: as in `bcoo_dot_general`.

    Returns:
      A sparse array in the format `BCOO` if both operands are sparse, else a dense one.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCSR.fromdense(jnp.eye(2))
      >>> sparse.bcsr_dot_general(x, jnp.arange(2.0), dimension_numbers=(([1], [0]), ([], []))).tolist()
      [0.0, 1.0]
    """
    # A product reads each element with its row, which this format would have to look up in any case.
    operands = [x.to_bcoo() if isinstance(x, JAXSparse) else x for x in (lhs, rhs)]
    return bcoo_dot_general(
        *operands,
        dimension_numbers=dimension_numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )


def bcsr_broadcast_in_dim(
    mat: BCSR, *, shape: Shape, broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCSR:
    """Broadcast a sparse array, as `lax.broadcast_in_dim` does.

    Args:
      mat: sparse[*old].
      shape, broadcast_dimensions, sharding: as in `bcoo_broadcast_in_dim`.

    Returns:
      sparse[*shape].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCSR.fromdense(jnp.eye(2))
      >>> sparse.bcsr_broadcast_in_dim(x, shape=(3, 2, 2), broadcast_dimensions=(1, 2))
      BCSR(float32[3, 2, 2], nse=2, n_batch=1)
    """
    options = {"shape": shape, "broadcast_dimensions": broadcast_dimensions, "sharding": sharding}
    return BCSR.from_bcoo(bcoo_broadcast_in_dim(mat.to_bcoo(), **options))


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """Concatenate sparse arrays along a batch or sparse dimension.

    Args:
      operands, dimension: as in `bcoo_concatenate`.

    Returns:
      The concatenated array.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCSR.fromdense(jnp.eye(2))
      >>> sparse.bcsr_concatenate([x, x], dimension=0).indptr.tolist()
      [0, 1, 2, 3, 4]
    """
    return BCSR.from_bcoo(bcoo_concatenate([x.to_bcoo() for x in operands], dimension=dimension))


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """Add stored elements with equal indices, so that indices are unique and sorted.

    Args:
      mat, nse: as in `bcoo_sum_duplicates`.

    Returns:
      The same array with unique, sorted indices.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcsr_sum_duplicates(sparse.BCSR(([5, 6], [1, 1], [0, 2, 2]), shape=(2, 2))).data.tolist()
      [11]
    """
    return BCSR.from_bcoo(bcoo_sum_duplicates(mat.to_bcoo(), nse))


def bcsr_eliminate_zeros(mat: BCSR, nse: int | None = None) -> BCSR:
    """Drop stored zeros, and add stored elements with equal indices.

    Args:
      mat, nse: as in `bcoo_eliminate_zeros`.

    Returns:
      The same array with unique, sorted indices.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental.sparse import bcsr
      >>> bcsr.bcsr_eliminate_zeros(bcsr.BCSR(([5, 0], [1, 1], [0, 1, 2]), shape=(2, 2))).data.tolist()
      [5]
    """
    return BCSR.from_bcoo(bcoo_eliminate_zeros(mat.to_bcoo(), nse))
