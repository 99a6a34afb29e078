"""How a sparse array stores its dimensions, and functions over stored elements that are shared by all formats.

A batched sparse array has the dimensions `(*batch, *sparse, *dense)`. Every element of the batch stores `nse` elements,
each of which is an array with the dense dimensions at an index into the sparse dimensions. An index out of bounds marks
padding, which is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError
from phalanx.transforms import vmap
from phalanx.typing import Array, Shape


class SparseEfficiencyError(ArgumentError):
    """A conversion between layouts would store many zeros.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> try:
      ...     sparse.BCOO.fromdense(jnp.eye(3)).update_layout(n_batch=1)
      ... except sparse.SparseEfficiencyError as error:
      ...     print(error.got)
      n_batch=1, n_dense=0
    """


class SparseEfficiencyWarning(UserWarning):
    """A sparse operation stores many zeros.

    Examples:
      >>> issubclass(SparseEfficiencyWarning, UserWarning)
      True
    """


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """A sparse operation does not use a kernel of cuSPARSE. No operation of Phalanx gives this warning.

    Examples:
      >>> issubclass(CuSparseEfficiencyWarning, SparseEfficiencyWarning)
      True
    """


class SparseInfo(NamedTuple):
    """The static description of a sparse array.

    Attributes:
      shape: the shape of the array.
      indices_sorted: whether the stored indices are known to be sorted.
      unique_indices: whether the stored indices are known to be unique.
    """

    shape: Shape
    indices_sorted: bool = False
    unique_indices: bool = False


class Layout(NamedTuple):
    """The dimensions of a sparse array, by how they are stored.

    Attributes:
      batch, sparse, dense: the sizes of the batch, sparse and dense dimensions, in the order of the array.
      nse: the number of elements that each element of the batch stores.
    """

    batch: Shape
    sparse: Shape
    dense: Shape
    nse: int

    @property
    def shape(self) -> Shape:
        """The shape of the array."""
        return (*self.batch, *self.sparse, *self.dense)

    @property
    def n_batch(self) -> int:
        """The number of batch dimensions."""
        return len(self.batch)

    @property
    def n_sparse(self) -> int:
        """The number of sparse dimensions."""
        return len(self.sparse)

    @property
    def n_dense(self) -> int:
        """The number of dense dimensions."""
        return len(self.dense)

    def split(self, items: Sequence[Any]) -> tuple[list, list, list]:
        """Divide one item per dimension into items of the batch, the sparse and the dense dimensions."""
        b, s = self.n_batch, self.n_batch + self.n_sparse
        return list(items[:b]), list(items[b:s]), list(items[s:])


def map_batch(fun: Callable, n_batch: int, *operands: Any) -> Any:
    """Apply a function to each element of a batch; batch dimensions of size 1 are broadcast.

    Args:
      fun: a function of arrays without batch dimensions; its result may be a pytree.
      n_batch: the number of leading batch dimensions of all operands.
      *operands: arrays.
    """
    if n_batch == 0:
        return fun(*operands)
    one_size = next((x.shape[0] for x in operands if x.shape[0] != 1), 1) == 1
    in_axes = tuple(0 if one_size or x.shape[0] != 1 else None for x in operands)
    operands = tuple(x if d == 0 else lax.squeeze(x, (0,)) for x, d in zip(operands, in_axes, strict=True))
    return vmap(lambda *xs: map_batch(fun, n_batch - 1, *xs), in_axes=in_axes)(*operands)


def columns(indices: Array) -> tuple:
    """The indices into each sparse dimension: int[*batch, nse, n_sparse] -> n_sparse arrays int[*batch, nse]."""
    return tuple(indices[..., i] for i in range(indices.shape[-1]))


def bounds(indices: Array, sparse: Shape) -> np.ndarray:
    """The sizes of the sparse dimensions, which are the first indices out of bounds, to compare with `indices`."""
    return np.asarray(sparse, indices.dtype).reshape((1,) * (indices.ndim - 1) + (len(sparse),))


def is_stored(indices: Array, sparse: Shape) -> Array:
    """Whether each index is within bounds, and not padding: int[..., n_sparse] -> bool[...]."""
    return (indices < bounds(indices, sparse)).all(-1)


def move_padding(indices: Array, keep: Array, sparse: Shape) -> Array:
    """Set the indices of elements that are not to be kept to the first index out of bounds."""
    return jnp.where(keep[..., None], indices, bounds(indices, sparse))


def mask_data(data: Array, keep: Array) -> Array:
    """Set the elements that are not to be kept to zero; `keep` lacks the trailing dimensions of `data`."""
    return jnp.where(lax.expand_dims(keep, range(keep.ndim, data.ndim)), data, jnp.zeros((), data.dtype))


def sort_lexically(indices: Array) -> tuple[Array, Array, Array]:
    """Sort indices in lexicographical order; the sort is stable.

    Args:
      indices: int[nse, n_sparse].

    Returns:
      The permutation, int[nse], the sorted indices, and for each of these whether it differs from the one before it.
    """
    position = lax.iota("int32", indices.shape[0])
    order = lax.sort((*columns(indices), position), num_keys=max(indices.shape[1], 1), is_stable=True)[-1]
    ordered = indices[order]
    changes = (ordered[1:] != ordered[:-1]).any(-1)
    return order, ordered, jnp.concatenate([jnp.ones(indices.shape[:1], bool)[:1], changes])


def is_first_occurrence(indices: Array) -> Array:
    """Whether no earlier element has the same index: int[nse, n_sparse] -> bool[nse]."""
    order, _, first = sort_lexically(indices)
    return jnp.zeros_like(first).at[order].set(first)
