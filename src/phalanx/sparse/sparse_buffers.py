"""`SparsifyEnv` and its references: sparse arrays as positions of buffers in a list, which several arrays may share.

JAX evaluates sparse programs on such references, and programs that call its evaluation directly pass them. Here
`sparsify` works on the arrays themselves; these functions convert between both. Builds on `sparsify`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from phalanx import numpy as jnp
from phalanx.core import ArgumentError
from phalanx.sparse.bcoo import BCOO
from phalanx.sparse.bcsr import BCSR
from phalanx.sparse.sparsify import is_sparse, sparsify
from phalanx.tree import tree_flatten, tree_map
from phalanx.typing import Array, ArrayLike, PyTree, Shape


class SparsifyValue(NamedTuple):
    """A reference to an array: its shape, and the positions of its buffers in a `SparsifyEnv`.

    Args:
      shape: the shape of the array.
      data_ref: the position of its elements; all of them for a dense array.
      indices_ref: the position of the indices; None for a dense array.
      indptr_ref: the position of the row pointers; None for a dense array and a `BCOO`.
      indices_sorted, unique_indices: as in `BCOO`.

    Examples:
      >>> SparsifyValue((3,), 0).is_dense()
      True
    """

    shape: Shape
    data_ref: int | None
    indices_ref: int | None = None
    indptr_ref: int | None = None
    indices_sorted: bool | None = False
    unique_indices: bool | None = False

    @property
    def ndim(self) -> int:
        """The rank of the array."""
        return len(self.shape)

    def is_dense(self) -> bool:
        """Whether the array is dense."""
        return self.indices_ref is None

    def is_sparse(self) -> bool:
        """Whether the array is a `BCOO` or a `BCSR`."""
        return not self.is_dense()

    def is_bcoo(self) -> bool:
        """Whether the array is a `BCOO`."""
        return self.is_sparse() and self.indptr_ref is None

    def is_bcsr(self) -> bool:
        """Whether the array is a `BCSR`."""
        return self.is_sparse() and self.indptr_ref is not None


class SparsifyEnv:
    """The buffers of sparse and dense arrays.

    Args:
      bufs: the first buffers.

    Examples:
      >>> env = SparsifyEnv([jnp.arange(3)])
      >>> env.dense(jnp.ones(2)).data_ref
      1
    """

    def __init__(self, bufs: Iterable[Array] = ()):
        self._buffers = list(bufs)

    def _add(self, buffer: ArrayLike | None, position: int | None, name: str) -> int | None:
        """The position of a buffer that is either given, and appended, or referred to."""
        if buffer is not None:
            self._buffers.append(jnp.asarray(buffer))
            return len(self._buffers) - 1
        if position is not None and not 0 <= position < len(self._buffers):
            raise ArgumentError(
                f"SparsifyEnv.sparse, argument {name}_ref",
                expected=f"a position among the {len(self._buffers)} buffers",
                got=position,
                fix=f"pass the buffer itself as {name}=",
            )
        return position

    def _buffer(self, position: int | None, name: str) -> Array:
        if position is None:
            raise ArgumentError(
                f"SparsifyEnv.{name}",
                expected="a reference to an array that has this buffer",
                got="None",
                fix="call is_sparse or is_bcsr of the reference first",
            )
        return self._buffers[position]

    def data(self, spvalue: SparsifyValue) -> Array:
        """The elements of an array."""
        return self._buffer(spvalue.data_ref, "data")

    def indices(self, spvalue: SparsifyValue) -> Array:
        """The indices of a sparse array."""
        return self._buffer(spvalue.indices_ref, "indices")

    def indptr(self, spvalue: SparsifyValue) -> Array:
        """The row pointers of a `BCSR`."""
        return self._buffer(spvalue.indptr_ref, "indptr")

    def dense(self, data: ArrayLike) -> SparsifyValue:
        """Add a dense array."""
        return SparsifyValue(np.shape(data), self._add(data, None, "data"))

    def sparse(
        self,
        shape: Shape,
        data: ArrayLike | None = None,
        indices: ArrayLike | None = None,
        indptr: ArrayLike | None = None,
        *,
        data_ref: int | None = None,
        indices_ref: int | None = None,
        indptr_ref: int | None = None,
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> SparsifyValue:
        """Add a sparse array.

        Args:
          shape: its shape.
          data, indices, indptr: its buffers, which are appended; `indptr` only for a `BCSR`.
          data_ref, indices_ref, indptr_ref: the positions of buffers that are not given, but there already.
          indices_sorted, unique_indices: as in `BCOO`.

        Returns:
          The reference.

        Raises:
          ArgumentError: a position is that of no buffer.
        """
        buffers = ((data, data_ref, "data"), (indices, indices_ref, "indices"), (indptr, indptr_ref, "indptr"))
        places = [self._add(*buffer) for buffer in buffers]
        return SparsifyValue(shape, *places, indices_sorted=indices_sorted, unique_indices=unique_indices)


def arrays_to_spvalues(spenv: SparsifyEnv, args: PyTree) -> PyTree:
    """Add the arrays of a tree to the buffers.

    Args:
      spenv: the buffers.
      args: a tree of dense and sparse arrays.

    Returns:
      The tree of references.

    Examples:
      >>> arrays_to_spvalues(SparsifyEnv(), (jnp.ones(2), BCOO.fromdense(jnp.ones(2))))[1].indices_ref
      2
    """

    def add(x: Any) -> SparsifyValue:
        if not is_sparse(x):
            return spenv.dense(x)
        flags = {"indices_sorted": x.indices_sorted, "unique_indices": x.unique_indices}
        return spenv.sparse(x.shape, x.data, x.indices, getattr(x, "indptr", None), **flags)

    return tree_map(add, args, is_leaf=is_sparse)


def spvalues_to_arrays(spenv: SparsifyEnv, spvalues: PyTree) -> PyTree:
    """The arrays of a tree of references.

    Args:
      spenv: the buffers.
      spvalues: a tree of references to them.

    Returns:
      The tree of dense and sparse arrays.

    Examples:
      >>> env = SparsifyEnv([jnp.ones(2)])
      >>> spvalues_to_arrays(env, [SparsifyValue((2,), 0)])[0].tolist()
      [1.0, 1.0]
    """

    def read(value: SparsifyValue) -> Any:
        if value.is_dense():
            return spenv.data(value)
        flags = {"indices_sorted": bool(value.indices_sorted), "unique_indices": bool(value.unique_indices)}
        if value.is_bcoo():
            return BCOO((spenv.data(value), spenv.indices(value)), shape=value.shape, **flags)
        buffers = spenv.data(value), spenv.indices(value), spenv.indptr(value)
        return BCSR(buffers, shape=value.shape, **flags)

    return tree_map(read, spvalues, is_leaf=lambda x: isinstance(x, SparsifyValue))


def sparsify_raw(f: Callable) -> Callable:
    """Transform a function of dense arrays into one of references to sparse arrays.

    Args:
      f: as in `sparsify`.

    Returns:
      A function of a `SparsifyEnv` and references to it, and of keyword arguments of `f`. It returns the references to
      the results and the structure of the result.

    Examples:
      >>> env = SparsifyEnv([jnp.arange(2), jnp.array([[0], [3]])])
      >>> (y,), _ = sparsify_raw(lambda x: 2 * x)(env, env.sparse((4,), data_ref=0, indices_ref=1))
      >>> spvalues_to_arrays(env, y).todense().tolist()
      [0, 0, 0, 2]
    """

    @functools.wraps(f)
    def wrapped(spenv: SparsifyEnv, *spvalues: SparsifyValue, **params: Any) -> tuple:
        out = sparsify(functools.partial(f, **params))(*spvalues_to_arrays(spenv, spvalues))
        leaves, tree = tree_flatten(out, is_leaf=is_sparse)
        return arrays_to_spvalues(spenv, leaves), tree

    return wrapped
