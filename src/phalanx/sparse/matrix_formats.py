"""`COO`, `CSR` and `CSC`: sparse matrices without batch or dense dimensions.

They have the operations of `BCOO`, on whose buffers they are views.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from phalanx import numpy as jnp
from phalanx.core import ArgumentError, ShapeError
from phalanx.sparse.bcoo import BCOO, bcoo_fromdense
from phalanx.sparse.bcoo_products import bcoo_dot_general
from phalanx.sparse.bcsr import bcoo_to_bcsr, bcsr_to_bcoo
from phalanx.sparse.sparse_array import JAXSparse
from phalanx.tree import GetAttrKey, register_pytree_with_keys_class
from phalanx.typing import Array, ArrayLike, DTypeLike, Shape

M = TypeVar("M", bound="SparseMatrix")


class SparseMatrix(JAXSparse):
    """Base of the formats of sparse matrices.

    Args:
      args: the buffers of the format.
      shape: the shape of the matrix.
    """

    # The names of the buffers, of which `data` is the first.
    buffers: ClassVar[tuple[str, ...]]

    shape: Shape

    def __init__(self, args: Sequence[ArrayLike], *, shape: Sequence[int]):
        for name, buffer in zip(self.buffers, args, strict=True):
            setattr(self, name, jnp.asarray(buffer))
        self.shape = check_matrix_shape(type(self).__name__, shape)

    nse = property(lambda self: self.data.size)

    @classmethod
    def from_bcoo(cls: type[M], mat: BCOO) -> M:
        """Convert a `BCOO` matrix, whose indices are sorted."""
        raise NotImplementedError  # defined by each format

    @classmethod
    def fromdense(cls: type[M], mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32) -> M:
        """Convert a dense matrix; `nse` is the number of stored elements, counted if it is None."""
        return cls.from_bcoo(bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype))

    @classmethod
    def _empty(cls: type[M], shape: Shape, **options: Any) -> M:
        return cls.from_bcoo(BCOO._empty(check_matrix_shape(cls.__name__, shape), **options))

    @classmethod
    def _eye(cls: type[M], N: int, M: int, k: int, **options: Any) -> M:
        return cls.from_bcoo(BCOO._eye(N, M, k, **options))

    def todense(self) -> Array:
        return self.to_bcoo().todense()

    def tree_flatten(self) -> tuple:
        return tuple(getattr(self, name) for name in self.buffers), self.shape

    def tree_flatten_with_keys(self) -> tuple:
        buffers, shape = self.tree_flatten()
        return tuple(zip(map(GetAttrKey, self.buffers), buffers, strict=True)), shape

    @classmethod
    def tree_unflatten(cls: type[M], shape: Shape, buffers: Sequence[Any]) -> M:
        """Rebuild a matrix; its buffers may be anything that a transformation puts in place of arrays."""
        self = object.__new__(cls)
        for name, buffer in zip(cls.buffers, buffers, strict=True):
            setattr(self, name, buffer)
        self.shape = shape
        return self


def check_matrix_shape(where: str, shape: Sequence[int]) -> Shape:
    """The shape of a matrix as a tuple; an error if it has another rank."""
    sizes = tuple(map(operator.index, shape))
    if len(sizes) != 2:
        raise ArgumentError(
            f"{where}, argument shape", expected="two sizes", got=str(sizes), fix="use BCOO for other ranks"
        )
    return sizes


def _swap(matrix: SparseMatrix, to: type[M], axes: Sequence[int] | None) -> M:
    """The buffers read as the matrix of the format `to` with exchanged dimensions."""
    if axes is not None and [operator.index(d) % 2 for d in axes] != [1, 0]:
        raise ArgumentError(
            "transpose of a sparse matrix, argument axes", expected="(1, 0)", got=str(axes), fix="leave axes out"
        )
    return to(matrix.tree_flatten()[0], shape=matrix.shape[::-1])


@register_pytree_with_keys_class
class COO(SparseMatrix):
    """A sparse matrix in the coordinate format; `BCOO` has more operations.

    Args:
      args: (data, row, col): num[nse], int[nse] and int[nse].
      shape: the shape of the matrix.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.COO.fromdense(jnp.eye(2)).row.tolist()
      [0, 1]
    """

    buffers = "data", "row", "col"
    row: Array
    col: Array

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> COO:
        return cls((mat.data, mat.indices[:, 0], mat.indices[:, 1]), shape=mat.shape)

    def to_bcoo(self) -> BCOO:
        return BCOO((self.data, jnp.stack([self.row, self.col], axis=-1)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> COO:
        _swap(self, COO, axes)
        return COO((self.data, self.col, self.row), shape=self.shape[::-1])


@register_pytree_with_keys_class
class CSR(SparseMatrix):
    """A sparse matrix in the compressed row format; `BCSR` has more operations.

    Args:
      args: (data, indices, indptr): num[nse], the columns int[nse], and the row offsets int[rows + 1].
      shape: the shape of the matrix.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.CSR.fromdense(jnp.eye(2)).indptr.tolist()
      [0, 1, 2]
    """

    buffers = "data", "indices", "indptr"
    indices: Array
    indptr: Array

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> CSR:
        return cls((mat.data, *bcoo_to_bcsr(mat.indices, shape=mat.shape)), shape=mat.shape)

    def to_bcoo(self) -> BCOO:
        return BCOO((self.data, bcsr_to_bcoo(self.indices, self.indptr, shape=self.shape)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> CSC:
        return _swap(self, CSC, axes)


@register_pytree_with_keys_class
class CSC(SparseMatrix):
    """A sparse matrix in the compressed column format.

    Args:
      args: (data, indices, indptr): num[nse], the rows int[nse], and the column offsets int[columns + 1].
      shape: the shape of the matrix.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.CSC.fromdense(jnp.array([[0, 5], [0, 6]])).indptr.tolist()
      [0, 0, 2]
    """

    buffers = "data", "indices", "indptr"
    indices: Array
    indptr: Array

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> CSC:
        return CSR.from_bcoo(mat.T.sort_indices()).T

    def to_bcoo(self) -> BCOO:
        return self.T.to_bcoo().T

    def transpose(self, axes: Sequence[int] | None = None) -> CSR:
        return _swap(self, CSR, axes)


def coo_todense(mat: COO) -> Array:
    """Convert a matrix in the coordinate format to a dense one.

    Args:
      mat: sparse[m, k].

    Returns:
      num[m, k].

    Examples:
      >>> from phalanx.experimental import sparse
      >>> sparse.coo_todense(sparse.COO(([5], [0], [1]), shape=(1, 2))).tolist()
      [[0, 5]]
    """
    return mat.todense()


def coo_fromdense(mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32) -> COO:
    """Convert a dense matrix to the coordinate format.

    Args:
      mat: num[m, k].
      nse: the number of stored elements; counted if None, which needs a concrete matrix.
      index_dtype: the dtype of the indices.

    Returns:
      sparse[m, k].

    Raises:
      ConcretizationTypeError: `nse` is None, and the matrix is traced.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.coo_fromdense(jnp.array([[0, 5]])).col.tolist()
      [1]
    """
    return COO.fromdense(mat, nse=nse, index_dtype=index_dtype)


def coo_matvec(mat: COO, v: ArrayLike, transpose: bool = False) -> Array:
    """Multiply a matrix in the coordinate format by a vector.

    Args:
      mat: sparse[m, k].
      v: num[k], or num[m] with `transpose`.
      transpose: whether to multiply by the transpose of `mat`.

    Returns:
      num[m], or num[k] with `transpose`.

    Raises:
      ShapeError: the sizes do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.coo_matvec(sparse.COO.fromdense(jnp.array([[0, 5]])), jnp.array([1, 2])).tolist()
      [10]
    """
    return _multiply("coo_matvec", mat, v, 1, transpose)


def coo_matmat(mat: COO, B: ArrayLike, *, transpose: bool = False) -> Array:
    """Multiply a matrix in the coordinate format by a dense matrix.

    Args:
      mat: sparse[m, k].
      B: num[k, n], or num[m, n] with `transpose`.
      transpose: whether to multiply by the transpose of `mat`.

    Returns:
      num[m, n], or num[k, n] with `transpose`.

    Raises:
      ShapeError: the sizes do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.coo_matmat(sparse.COO.fromdense(jnp.array([[0, 5]])), jnp.eye(2, dtype=int)).tolist()
      [[0, 5]]
    """
    return _multiply("coo_matmat", mat, B, 2, transpose)


def csr_todense(mat: CSR) -> Array:
    """Convert a matrix in the compressed row format to a dense one.

    Args:
      mat: sparse[m, k].

    Returns:
      num[m, k].

    Examples:
      >>> from phalanx.experimental import sparse
      >>> sparse.csr_todense(sparse.CSR(([5], [1], [0, 1]), shape=(1, 2))).tolist()
      [[0, 5]]
    """
    return mat.todense()


def csr_fromdense(mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32) -> CSR:
    """Convert a dense matrix to the compressed row format.

    Args:
      mat: num[m, k].
      nse: the number of stored elements; counted if None, which needs a concrete matrix.
      index_dtype: the dtype of the indices.

    Returns:
      sparse[m, k].

    Raises:
      ConcretizationTypeError: `nse` is None, and the matrix is traced.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.csr_fromdense(jnp.array([[0, 5]])).indptr.tolist()
      [0, 1]
    """
    return CSR.fromdense(mat, nse=nse, index_dtype=index_dtype)


def csr_matvec(mat: CSR, v: ArrayLike, transpose: bool = False) -> Array:
    """Multiply a matrix in the compressed row format by a vector.

    Args:
      mat: sparse[m, k].
      v: num[k], or num[m] with `transpose`.
      transpose: whether to multiply by the transpose of `mat`.

    Returns:
      num[m], or num[k] with `transpose`.

    Raises:
      ShapeError: the sizes do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.csr_matvec(sparse.CSR.fromdense(jnp.array([[0, 5]])), jnp.array([1, 2])).tolist()
      [10]
    """
    return _multiply("csr_matvec", mat, v, 1, transpose)


def csr_matmat(mat: CSR, B: ArrayLike, *, transpose: bool = False) -> Array:
    """Multiply a matrix in the compressed row format by a dense matrix.

    Args:
      mat: sparse[m, k].
      B: num[k, n], or num[m, n] with `transpose`.
      transpose: whether to multiply by the transpose of `mat`.

    Returns:
      num[m, n], or num[k, n] with `transpose`.

    Raises:
      ShapeError: the sizes do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.csr_matmat(sparse.CSR.fromdense(jnp.array([[0, 5]])), jnp.eye(2, dtype=int)).tolist()
      [[0, 5]]
    """
    return _multiply("csr_matmat", mat, B, 2, transpose)


def _multiply(where: str, mat: SparseMatrix, other: ArrayLike, ndim: int, transpose: bool) -> Array:
    """The product of a sparse matrix, or of its transpose, and a dense array of rank `ndim`."""
    other, dim = jnp.asarray(other), 0 if transpose else 1
    if other.ndim != ndim or other.shape[0] != mat.shape[dim]:
        raise ShapeError(
            f"{where}, the dense operand",
            expected=f"rank {ndim} and the first size {mat.shape[dim]}",
            got=f"the shape {list(other.shape)}",
            fix=f"pass transpose={not transpose}, or another operand",
        )
    return bcoo_dot_general(mat.to_bcoo(), other, dimension_numbers=(([dim], [0]), ([], [])))
