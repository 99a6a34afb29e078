"""`BCOO`, the batched coordinate format, and what all of its operations build on: conversions, sorting, layouts.

Operations are compositions of dense ones on the two buffers, so that every transformation applies to them.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, ConcretizationTypeError, ShapeError
from phalanx.runtime.eager_jit import eager_jit
from phalanx.sparse.sparse_array import JAXSparse
from phalanx.sparse.sparse_layout import (
    Layout,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    SparseInfo,
    bounds,
    columns,
    is_first_occurrence,
    is_stored,
    map_batch,
    mask_data,
    move_padding,
    sort_lexically,
)
from phalanx.tree import GetAttrKey, register_pytree_with_keys_class
from phalanx.typing import Array, ArrayLike, DTypeLike, Shape


@register_pytree_with_keys_class
class BCOO(JAXSparse):
    """A sparse array in the batched coordinate format.

    The array has the shape `(*batch, *sparse, *dense)`. Elements with equal indices are added. An element with an index
    out of bounds is padding. A batch dimension of `data` or `indices` may have size 1, and is broadcast.

    The batch and dense dimensions have the sizes of the buffers, so `vmap` and `scan` map over leading batch
    dimensions.

    Args:
      args: the pair (data, indices): num[*batch, nse, *dense] and int[*batch, nse, n_sparse].
      shape: the shape of the array.
      indices_sorted: a promise that the indices are in lexicographical order.
      unique_indices: a promise that no index is stored twice.

    Raises:
      ArgumentTypeError: the indices are not integers.
      ShapeError: the shapes of the buffers do not fit `shape`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0, 0.0], [1.0, 0.0, 4.0]]))
      >>> x
      BCOO(float32[2, 3], nse=3)
      >>> x.indices.tolist()
      [[0, 1], [1, 0], [1, 2]]
      >>> (x @ jnp.ones(3)).tolist()
      [2.0, 5.0]
    """

    data: Array
    indices: Array
    indices_sorted: bool
    unique_indices: bool

    def __init__(
        self,
        args: tuple[ArrayLike, ArrayLike],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ):
        self.data, self.indices = map(jnp.asarray, args)
        self.indices_sorted, self.unique_indices = bool(indices_sorted), bool(unique_indices)
        shape = tuple(map(operator.index, shape))
        self.indices = expand_batch(self.data, self.indices, shape, self.indices.ndim - 2)
        n_batch = self.indices.ndim - 2
        self._sparse = shape[n_batch : n_batch + self.indices.shape[-1]]
        check_buffers("BCOO", self.data.shape, self.indices.shape, shape)

    @property
    def layout(self) -> Layout:
        """The sizes of the batch, sparse and dense dimensions."""
        n_batch, data, indices = self.indices.ndim - 2, self.data.shape, self.indices.shape
        if n_batch < 0:
            raise ShapeError(
                "BCOO array inside of vmap or scan",
                expected="a mapped batch dimension",
                got=f"a mapped dimension of the stored elements, which leaves indices of shape {list(indices)}",
                fix="add a batch dimension with update_layout(n_batch=1, on_inefficient=None), and map over that",
            )
        batch = lax.broadcast_shapes(data[:n_batch], indices[:n_batch])
        return Layout(batch, self._sparse, data[n_batch + 1 :], indices[-2])

    shape = property(lambda self: self.layout.shape)
    nse = property(lambda self: self.indices.shape[-2])
    n_batch = property(lambda self: self.indices.ndim - 2)
    n_sparse = property(lambda self: self.indices.shape[-1])
    n_dense = property(lambda self: self.data.ndim - 1 - self.n_batch)

    @property
    def info(self) -> SparseInfo:
        """The static description of the array."""
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    def with_data(self, data: Array) -> BCOO:
        """The array with other elements at the same indices."""
        return self._replace(data, self.indices)

    def _replace(self, data: Any, indices: Any) -> BCOO:
        return self.tree_unflatten(self.tree_flatten()[1], (data, indices))

    def tree_flatten_with_keys(self) -> tuple:
        (data, indices), static = self.tree_flatten()
        return ((GetAttrKey("data"), data), (GetAttrKey("indices"), indices)), static

    def tree_flatten(self) -> tuple:
        return (self.data, self.indices), (self._sparse, self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, static: tuple, buffers: Sequence[Any]) -> BCOO:
        """Rebuild an array; its buffers may be anything that a transformation puts in place of arrays."""
        self = object.__new__(cls)
        self.data, self.indices = buffers
        self._sparse, self.indices_sorted, self.unique_indices = static
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
    ) -> BCOO:
        """Convert a dense array; see `bcoo_fromdense`."""
        return bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: DTypeLike | None = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """Convert a matrix of `scipy.sparse`, with the given layout."""
        mat = mat.tocoo()
        indices = np.stack([mat.row, mat.col], axis=-1).astype(index_dtype or np.int32)
        found = cls((mat.data, indices), shape=mat.shape)
        return found.update_layout(n_batch=n_batch, n_dense=n_dense, on_inefficient=None)

    def to_bcoo(self) -> BCOO:
        return self

    def todense(self) -> Array:
        return bcoo_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """The array with its dimensions permuted, or reversed without `axes`; see `bcoo_transpose`."""
        return bcoo_transpose(self, permutation=tuple(range(self.ndim))[::-1] if axes is None else axes)

    def sort_indices(self) -> BCOO:
        """The array with its indices in lexicographical order."""
        return bcoo_sort_indices(self)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """The array with equal indices merged, sorted, and without stored zeros unless `remove_zeros` is False.

        Args:
          nse: the number of stored elements of the result; surplus ones are padding, missing ones are dropped. It is
            counted if it is None, which needs concrete indices.
          remove_zeros: whether elements that are zero are dropped; the choice of these has no derivative.
        """
        return bcoo_eliminate_zeros(self, nse) if remove_zeros else bcoo_sum_duplicates(self, nse)

    def update_layout(
        self, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
    ) -> BCOO:
        """The array with other numbers of batch and dense dimensions; see `bcoo_update_layout`."""
        return bcoo_update_layout(self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient)

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
    ) -> BCOO:
        batch, sparse, dense = split_shape("sparse.empty", shape, n_batch, n_dense)
        data = jnp.zeros((*batch, nse, *dense), dtype)
        # Indices out of bounds denote padding.
        indices = jnp.broadcast_to(jnp.asarray(sparse, index_dtype).reshape(len(sparse)), (*batch, nse, len(sparse)))
        return cls((data, indices), shape=shape, indices_sorted=True, unique_indices=True)

    @classmethod
    def _eye(
        cls,
        N: int,
        M: int,
        k: int,
        *,
        dtype: DTypeLike | None = None,
        index_dtype: DTypeLike = "int32",
        n_batch: int = 0,
        n_dense: int = 0,
    ) -> BCOO:
        split_shape("sparse.eye", (N, M), n_batch, n_dense)
        rows = np.arange(max(0, -k), min(N, M - k), dtype=np.dtype(index_dtype))
        if n_dense == 0 and n_batch == 0:
            diagonal = jnp.ones(len(rows), dtype), np.stack([rows, rows + k], axis=-1)
            return cls(diagonal, shape=(N, M), indices_sorted=True, unique_indices=True)
        # With batch or dense dimensions the zeros of rows beside the diagonal are stored, too.
        nse = bool(len(rows)) * (len(rows) if (n_batch, n_dense) == (0, 1) else 1)
        return bcoo_fromdense(
            jnp.eye(N, M, k, dtype), nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype
        )


def split_shape(where: str, shape: Sequence[int], n_batch: int, n_dense: int) -> tuple[Shape, Shape, Shape]:
    """The sizes of the batch, sparse and dense dimensions of an array."""
    shape = tuple(map(operator.index, shape))
    n_batch, n_dense = operator.index(n_batch), operator.index(n_dense)
    n_sparse = len(shape) - n_batch - n_dense
    if min(n_batch, n_sparse, n_dense) < 0:
        raise ArgumentError(
            f"{where}, arguments n_batch and n_dense",
            expected=f"numbers from 0 that add up to at most {len(shape)}, the rank of the array",
            got=f"n_batch={n_batch}, n_dense={n_dense}",
            fix="reduce n_batch or n_dense",
        )
    return shape[:n_batch], shape[n_batch : n_batch + n_sparse], shape[n_batch + n_sparse :]


def expand_batch(data: Array, indices: Array, shape: Shape, n_batch: int) -> Array:
    """Broadcast the indices along batch dimensions in which both buffers have size 1, but the array has not."""
    sizes = zip(data.shape[:n_batch], indices.shape[:n_batch], shape, strict=False)
    wanted = tuple(n if d == i == 1 else i for d, i, n in sizes)
    if wanted == indices.shape[: len(wanted)]:
        return indices
    return jnp.broadcast_to(indices, (*wanted, *indices.shape[len(wanted) :]))


def check_buffers(where: str, data: Shape, indices: Shape, shape: Shape) -> None:
    """Check that the shapes of the buffers of a `BCOO` array fit its shape."""
    n_batch, n_sparse = len(indices) - 2, indices[-1] if indices else 0
    batch, dense = shape[: max(n_batch, 0)], shape[max(n_batch, 0) + n_sparse :]
    fits = 0 <= n_batch <= len(shape) - n_sparse and len(data) == n_batch + 1 + len(dense)
    if fits:
        fits = data[n_batch:] == (indices[-2], *dense) and all(
            x in (1, n) for buffer in (data, indices) for x, n in zip(buffer, batch, strict=False)
        )
    if not fits:
        raise ShapeError(
            f"{where}, the pair (data, indices) of an array of shape {list(shape)}",
            expected="shapes [*batch, nse, *dense] and [*batch, nse, n_sparse]",
            got=f"{list(data)} and {list(indices)}",
            fix="make both buffers agree with the shape; only batch dimensions may have size 1 instead",
        )


@eager_jit
def bcoo_todense(mat: BCOO) -> Array:
    """Convert a sparse array to a dense one.

    Args:
      mat: sparse[*shape].

    Returns:
      num[*shape].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcoo_todense(sparse.BCOO(([1.0, 2.0], [[0], [2]]), shape=(3,))).tolist()
      [1.0, 0.0, 2.0]
    """
    layout = mat.layout

    def scatter(data: Array, indices: Array) -> Array:
        if not layout.n_sparse:
            # Without sparse dimensions all elements are at the same index, so they add up.
            return data.sum(0, dtype=data.dtype)
        return jnp.zeros((*layout.sparse, *layout.dense), data.dtype).at[columns(indices)].add(data, mode="drop")

    return map_batch(scatter, layout.n_batch, mat.data, mat.indices)


def count_stored(mat: Array, n_batch: int = 0, n_dense: int = 0) -> int:
    """The number of elements to store for each element of the batch of a dense array, which must be concrete."""
    mask = (mat != 0).any(tuple(range(mat.ndim - n_dense, mat.ndim)))
    return count_concretely("sparse conversion", mask.sum(tuple(range(n_batch, mask.ndim))))


def count_concretely(where: str, counts: Array) -> int:
    """The largest of the numbers of stored elements of a batch, as a Python integer."""
    largest = counts.max(initial=0)
    try:
        return int(largest)
    except ConcretizationTypeError:
        raise ConcretizationTypeError(
            f"{where}, argument nse",
            expected="a number, since the number of stored elements is unknown while a function is traced",
            got="None",
            fix="pass nse=, the largest number of elements that are to be stored",
        ) from None


def bcoo_fromdense(
    mat: ArrayLike, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: DTypeLike = np.int32
) -> BCOO:
    """Convert a dense array to a sparse one.

    Args:
      mat: num[*shape].
      nse: the number of stored elements of each element of the batch; counted if None, which needs a concrete array.
      n_batch: the number of leading dimensions that are batch dimensions.
      n_dense: the number of trailing dimensions that are dense.
      index_dtype: the dtype of the indices.

    Returns:
      sparse[*shape].

    Raises:
      ArgumentError: `n_batch` and `n_dense` exceed the rank of the array.
      ConcretizationTypeError: `nse` is None, and the array is traced.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcoo_fromdense(jnp.eye(3), nse=4)
      BCOO(float32[3, 3], nse=4)
    """
    mat = jnp.asarray(mat)
    _, sparse, _ = split_shape("bcoo_fromdense", mat.shape, n_batch, n_dense)
    nse = count_stored(mat, n_batch, n_dense) if nse is None else operator.index(nse)
    # Examples of fewer than nse elements are filled up with zeros at indices out of bounds.
    indices = _find_nonzero(mat, sparse, nse, n_batch, n_dense, np.dtype(index_dtype))
    # Without sparse dimensions all stored elements have the same index, and the first one holds the value.
    data = extract(indices, mat, assume_unique=bool(sparse) or nse == 1)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


@eager_jit(static_argnames=("sparse", "nse", "n_batch", "n_dense"))
def _find_nonzero(mat: Array, sparse: Shape, nse: int, n_batch: int, n_dense: int, index_dtype: np.dtype) -> Array:
    """The indices of the first `nse` elements that are not zero in all dense dimensions."""

    def find(mask: Array) -> Array:
        if not sparse:
            return jnp.zeros((nse, 0), index_dtype)
        return jnp.stack(jnp.nonzero(mask, size=nse, fill_value=sparse), axis=-1).astype(index_dtype)

    return map_batch(find, n_batch, (mat != 0).any(tuple(range(mat.ndim - n_dense, mat.ndim))))


@eager_jit(static_argnames=("assume_unique",))
def extract(indices: Array, arr: Array, *, assume_unique: bool = True) -> Array:
    """The elements of a dense array at indices; zero at padding, and where an index recurs unless it is assumed not to.

    Args:
      indices: int[*batch, nse, n_sparse].
      arr: num[*batch, *sparse, *dense].
      assume_unique: whether recurring indices are ignored, and all of them get the element.

    Returns:
      num[*batch, nse, *dense].
    """
    n_batch, (nse, n_sparse) = indices.ndim - 2, indices.shape[-2:]

    def gather(indices: Array, arr: Array) -> Array:
        if n_sparse:
            found = arr.at[columns(indices)].get(mode="fill", fill_value=0)
        else:
            found = jnp.broadcast_to(arr[None], (nse, *arr.shape))
        return found if assume_unique else mask_data(found, is_first_occurrence(indices))

    return map_batch(gather, n_batch, indices, arr)


def bcoo_extract(sparr: BCOO, arr: ArrayLike, *, assume_unique: bool | None = None) -> BCOO:
    """Read the elements of a dense array at the indices of a sparse one.

    Args:
      sparr: sparse[*shape].
      arr: num[*shape].
      assume_unique: whether the indices are taken to be unique. Otherwise an element whose index recurs is stored at
        its first occurrence only. Defaults to `sparr.unique_indices`.

    Returns:
      sparse[*shape], with the indices of `sparr`.

    Raises:
      ShapeError: the shapes differ.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.eye(2))
      >>> sparse.bcoo_extract(x, jnp.arange(4.0).reshape(2, 2)).data.tolist()
      [0.0, 3.0]
    """
    arr = jnp.asarray(arr)
    if arr.shape != sparr.shape:
        raise ShapeError(
            "bcoo_extract, argument arr",
            expected=f"the shape {list(sparr.shape)} of the sparse array",
            got=str(list(arr.shape)),
            fix="pass an array of that shape",
        )
    unique = sparr.unique_indices if assume_unique is None else assume_unique
    return sparr.with_data(extract(sparr.indices, arr, assume_unique=unique))


@eager_jit(static_argnames=("permutation",))
def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """Permute the dimensions of a sparse array.

    Args:
      mat: sparse[*shape].
      permutation: the new order of the dimensions; batch, sparse and dense dimensions are permuted among themselves.

    Returns:
      The transposed array.

    Raises:
      ArgumentError: the permutation mixes batch, sparse and dense dimensions.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcoo_transpose(
      ...     sparse.BCOO(([5], [[0, 2]]), shape=(2, 3)), permutation=(1, 0)
      ... ).indices.tolist()
      [[2, 0]]
    """
    layout = mat.layout
    batch, sparse, dense = split_permutation("bcoo_transpose", layout, permutation)
    n = layout.n_batch
    data = mat.data.transpose([*batch, n, *[d + n + 1 for d in dense]])
    indices = mat.indices.transpose([*batch, n, n + 1])[..., np.array(sparse, int)]
    shape = [mat.shape[operator.index(d)] for d in permutation]
    # Indices stay in lexicographical order if the sparse dimensions keep their order.
    is_sorted = mat.indices_sorted and sparse == sorted(sparse)
    return BCOO((data, indices), shape=shape, indices_sorted=is_sorted, unique_indices=mat.unique_indices)


def split_permutation(where: str, layout: Layout, permutation: Sequence[int]) -> tuple[list, list, list]:
    """A permutation of all dimensions as permutations of the batch, the sparse and the dense dimensions."""
    dims = [operator.index(d) for d in permutation]
    parts, groups = layout.split(dims), layout.split(range(len(layout.shape)))
    if [sorted(p) for p in parts] != list(groups):
        raise ArgumentError(
            f"{where}, argument permutation",
            expected=f"a permutation of the dimensions within the batch {groups[0]}, sparse {groups[1]} and dense "
            f"{groups[2]} ones",
            got=str(dims),
            fix="change the layout first, with mat.update_layout(n_batch=0, n_dense=0)",
        )
    firsts = (0, layout.n_batch, layout.n_batch + layout.n_sparse)
    batch, sparse, dense = ([d - first for d in part] for part, first in zip(parts, firsts, strict=True))
    return batch, sparse, dense


@eager_jit
def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """Sort the stored elements by their indices, in lexicographical order.

    Args:
      mat: sparse[*shape].

    Returns:
      The same array with sorted indices.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcoo_sort_indices(sparse.BCOO(([5, 6], [[2], [0]]), shape=(3,))).data.tolist()
      [6, 5]
    """
    n_batch = mat.layout.n_batch
    order, indices, _ = map_batch(sort_lexically, n_batch, mat.indices)
    data = map_batch(lambda data, order: data[order], n_batch, mat.data, order)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=mat.unique_indices)


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """Add stored elements with equal indices, so that indices are unique and sorted.

    Args:
      mat: sparse[*shape].
      nse: the number of stored elements of the result. Surplus ones are padding, and elements beyond it are dropped. It
        is counted if None, which needs concrete indices.

    Returns:
      The same array with unique, sorted indices.

    Raises:
      ConcretizationTypeError: `nse` is None, and the indices are traced.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcoo_sum_duplicates(sparse.BCOO(([5, 6, 7], [[2], [0], [2]]), shape=(3,))).data.tolist()
      [6, 12]
    """
    count = count_concretely("sum_duplicates", _count_distinct(mat)) if nse is None else operator.index(nse)
    return _merge_equal(mat, count)


@eager_jit(static_argnames=("nse",))
def _merge_equal(mat: BCOO, nse: int) -> BCOO:
    """Add stored elements with equal indices; `nse` elements are stored."""
    layout = mat.layout
    sparse = layout.sparse

    def merge(data: Array, indices: Array) -> tuple[Array, Array]:
        keep = is_stored(indices, sparse)
        order, ordered, first = sort_lexically(move_padding(indices, keep, sparse))
        # The position in the result of each sorted element: that of its index among the distinct ones.
        target = jnp.cumsum(first, dtype=order.dtype) - 1
        merged = jnp.zeros((nse, *data.shape[1:]), data.dtype).at[target].add(mask_data(data, keep)[order], mode="drop")
        found = jnp.broadcast_to(bounds(indices, sparse), (nse, len(sparse))).astype(indices.dtype)
        return merged, found.at[target].set(ordered, mode="drop")

    data, indices = map_batch(merge, layout.n_batch, mat.data, mat.indices)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


@eager_jit
def _count_distinct(mat: BCOO) -> Array:
    """The number of distinct indices of each element of the batch."""
    sparse = mat.layout.sparse

    def count(indices: Array) -> Array:
        _, ordered, first = sort_lexically(indices)
        return (first & is_stored(ordered, sparse)).sum(dtype="int32")

    return map_batch(count, mat.n_batch, mat.indices)


def bcoo_eliminate_zeros(mat: BCOO, nse: int | None = None) -> BCOO:
    """Drop stored zeros, and add stored elements with equal indices.

    Args:
      mat: sparse[*shape].
      nse: the number of stored elements of the result, as in `bcoo_sum_duplicates`.

    Returns:
      The same array with unique, sorted indices.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental.sparse import bcoo
      >>> bcoo.bcoo_eliminate_zeros(bcoo.BCOO(([0, 6], [[2], [0]]), shape=(3,))).indices.tolist()
      [[0]]
    """
    layout = mat.layout
    nonzero = (mat.data != 0).any(tuple(range(layout.n_batch + 1, mat.data.ndim)))
    if not layout.n_sparse:  # There is one index, which always stays, and no index out of bounds for padding.
        return bcoo_sum_duplicates(mat, nse)
    keep = nonzero & is_stored(mat.indices, layout.sparse)
    indices = jnp.broadcast_to(mat.indices, (*keep.shape, layout.n_sparse))
    return bcoo_sum_duplicates(mat._replace(mat.data, move_padding(indices, keep, layout.sparse)), nse)


def set_nse(mat: BCOO, nse: int) -> BCOO:
    """Pad a sparse array to `nse` stored elements, of which it has at most as many."""
    layout, extra = mat.layout, nse - mat.nse
    if not extra:
        return mat
    n, n_sparse = layout.n_batch, layout.n_sparse
    data = jnp.zeros((*mat.data.shape[:n], extra, *layout.dense), mat.dtype)
    indices = jnp.broadcast_to(bounds(mat.indices, layout.sparse), (*mat.indices.shape[:n], extra, n_sparse))
    return BCOO(
        (jnp.concatenate([mat.data, data], axis=n), jnp.concatenate([mat.indices, indices], axis=n)),
        shape=mat.shape,
        indices_sorted=mat.indices_sorted,
        # A padded array without sparse dimensions stores its only index more than once.
        unique_indices=mat.unique_indices and n_sparse > 0,
    )


def materialize_batch(mat: BCOO, dims: Sequence[int]) -> BCOO:
    """Broadcast both buffers along some batch dimensions in which one of them has size 1."""
    batch, n = mat.layout.batch, mat.n_batch

    def expand(x: Array) -> Array:
        sizes = [batch[d] if d in dims else x.shape[d] for d in range(n)]
        return jnp.broadcast_to(x, (*sizes, *x.shape[n:]))

    return mat._replace(expand(mat.data), expand(mat.indices))


def bcoo_update_layout(
    mat: BCOO, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
) -> BCOO:
    """Change the numbers of batch and dense dimensions of a sparse array.

    A sparse dimension that becomes a batch or dense dimension needs storage for its zeros, unless its size is 0 or 1.

    Args:
      mat: sparse[*shape].
      n_batch, n_dense: the new numbers of batch and dense dimensions; unchanged if None.
      on_inefficient: "error" or "warn" if zeros would be stored, or None to store them.

    Returns:
      The same array with the new layout.

    Raises:
      SparseEfficiencyError: the new layout stores zeros, and `on_inefficient` is "error".
      ArgumentError: the numbers exceed the rank of the array, or `on_inefficient` is none of the above.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.eye(3), n_batch=1)
      >>> sparse.bcoo_update_layout(x, n_batch=0)
      BCOO(float32[3, 3], nse=3)
    """
    old = mat.layout
    n_batch = old.n_batch if n_batch is None else operator.index(n_batch)
    n_dense = old.n_dense if n_dense is None else operator.index(n_dense)
    split_shape("bcoo_update_layout", mat.shape, n_batch, n_dense)
    if on_inefficient not in ("error", "warn", None):
        raise ArgumentError(
            "bcoo_update_layout, argument on_inefficient",
            expected="'error', 'warn' or None",
            got=repr(on_inefficient),
            fix="pass on_inefficient='error'",
        )
    if (n_batch, n_dense) == (old.n_batch, old.n_dense):
        return mat
    new_dims = (*mat.shape[old.n_batch : n_batch], *mat.shape[mat.ndim - n_dense : mat.ndim - old.n_dense])
    if any(n > 1 for n in new_dims):
        _report_inefficient(on_inefficient, f"n_batch={n_batch}, n_dense={n_dense}", old)
    return _change_layout(mat, n_batch, n_dense)


@eager_jit(static_argnames=("n_batch", "n_dense"))
def _change_layout(mat: BCOO, n_batch: int, n_dense: int) -> BCOO:
    """Change the numbers of batch and dense dimensions; dimensions become sparse before others cease to be."""
    shape = mat.shape
    if n_dense < mat.n_dense:
        mat = _dense_to_sparse(mat, mat.n_dense - n_dense)
    if n_batch < mat.n_batch:
        mat = _batch_to_sparse(mat, mat.n_batch - n_batch)
    if n_dense > mat.n_dense:
        mat = _sparse_to_dense(mat, shape[mat.ndim - n_dense : mat.ndim - mat.n_dense])
    if n_batch > mat.n_batch:
        mat = _sparse_to_batch(mat, shape[mat.n_batch : n_batch])
    return BCOO((mat.data, mat.indices), shape=shape)


def _report_inefficient(on_inefficient: str | None, wanted: str, old: Layout) -> None:
    record = SparseEfficiencyError(
        "bcoo_update_layout",
        expected=f"a layout that stores no zeros, as n_batch={old.n_batch}, n_dense={old.n_dense} does",
        got=wanted,
        fix="pass on_inefficient=None to store the zeros, or keep the layout",
    )
    if on_inefficient == "error":
        raise record
    if on_inefficient == "warn":
        warnings.warn(str(record), SparseEfficiencyWarning, stacklevel=4)


def index_grid(sizes: Sequence[int], dtype: Any) -> np.ndarray:
    """All indices into dimensions of these sizes: int[prod(sizes), len(sizes)]."""
    return np.indices(sizes, dtype=np.dtype(dtype)).reshape(len(sizes), math.prod(sizes)).T


def _dense_to_sparse(mat: BCOO, count: int) -> BCOO:
    """Make the first `count` dense dimensions sparse: each element becomes one per index into them."""
    n, nse, sizes = mat.n_batch, mat.nse, mat.layout.dense[:count]
    grid = index_grid(sizes, mat.indices.dtype)
    data = mat.data.reshape(*mat.data.shape[:n], nse * len(grid), *mat.data.shape[n + 1 + count :])
    batch = mat.indices.shape[:n]
    old = jnp.broadcast_to(mat.indices[..., None, :], (*batch, nse, len(grid), mat.n_sparse))
    new = jnp.broadcast_to(grid, (*batch, nse, len(grid), count))
    indices = jnp.concatenate([old, new], axis=-1).reshape(*batch, nse * len(grid), mat.n_sparse + count)
    return BCOO((data, indices), shape=mat.shape)


def _batch_to_sparse(mat: BCOO, count: int) -> BCOO:
    """Make the last `count` batch dimensions sparse: the elements of the batch become one list."""
    n = mat.n_batch - count
    mat = materialize_batch(mat, range(n, mat.n_batch))
    sizes, nse = mat.layout.batch[n:], mat.nse
    grid = index_grid(sizes, mat.indices.dtype)
    batch = mat.indices.shape[:n]
    new = jnp.broadcast_to(grid[:, None], (*batch, len(grid), nse, count))
    old = mat.indices.reshape(*batch, len(grid), nse, mat.n_sparse)
    indices = jnp.concatenate([new, old], axis=-1).reshape(*batch, len(grid) * nse, count + mat.n_sparse)
    data = mat.data.reshape(*mat.data.shape[:n], len(grid) * nse, *mat.layout.dense)
    return BCOO((data, indices), shape=mat.shape)


def _sparse_to_dense(mat: BCOO, sizes: Shape) -> BCOO:
    """Make the last sparse dimensions, of these sizes, dense: each element is padded with zeros along them."""
    left = mat.n_sparse - len(sizes)

    def expand(data: Array, indices: Array) -> Array:
        at = (lax.iota("int32", mat.nse), *columns(indices[:, left:]))
        return jnp.zeros((mat.nse, *sizes, *data.shape[1:]), data.dtype).at[at].set(data, mode="drop")

    data = map_batch(expand, mat.n_batch, mat.data, mat.indices)
    return BCOO((data, mat.indices[..., :left]), shape=mat.shape)


def _sparse_to_batch(mat: BCOO, sizes: Shape) -> BCOO:
    """Make the first sparse dimensions, of these sizes, batch dimensions, each with all elements, most of them zero."""
    n, count = mat.n_batch, len(sizes)
    grid = index_grid(sizes, mat.indices.dtype).reshape(*sizes, 1, count)
    ones = (1,) * count
    place = mat.indices.reshape(*mat.indices.shape[:n], *ones, mat.nse, mat.n_sparse)
    here = (place[..., :count] == grid.reshape((1,) * n + grid.shape)).all(-1)
    data = mat.data.reshape(*mat.data.shape[:n], *ones, *mat.data.shape[n:])
    rest = place[..., count:]
    return BCOO((mask_data(data, here), rest), shape=mat.shape)
