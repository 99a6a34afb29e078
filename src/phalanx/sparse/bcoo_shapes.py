"""Operations on the shapes of `BCOO` arrays, reductions, and indexing: the sparse forms of functions of `lax`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, ArgumentTypeError, RuleError, ShapeDtypeStruct
from phalanx.lax import GatherDimensionNumbers, GatherScatterMode
from phalanx.runtime.eager_jit import eager_jit
from phalanx.sparse.bcoo import (
    BCOO,
    bcoo_sum_duplicates,
    bcoo_transpose,
    bcoo_update_layout,
    index_grid,
    materialize_batch,
    set_nse,
    split_permutation,
)
from phalanx.sparse.sparse_layout import bounds, columns, is_stored, mask_data, move_padding
from phalanx.spmd import eval_shape
from phalanx.transforms import vmap
from phalanx.typing import Array, ArrayLike, Shape


def dense_shape(function: Callable, *operands: Any) -> Shape:
    """Apply a function to dense arrays of the operands' types, which checks its arguments; the shape of the result."""
    return eval_shape(function, *[ShapeDtypeStruct(x.shape, x.dtype) for x in operands]).shape


def _check_no_sharding(where: str, sharding: Any) -> None:
    if sharding is not None:
        raise ArgumentError(
            f"{where}, argument sharding",
            expected="None, since a sparse array has no single sharding",
            got=repr(sharding),
            fix="shard the buffers mat.data and mat.indices instead",
        )


@eager_jit(static_argnames=("shape", "broadcast_dimensions", "sharding"))
def bcoo_broadcast_in_dim(
    mat: BCOO, *, shape: Shape, broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCOO:
    """Broadcast a sparse array, as `lax.broadcast_in_dim` does.

    New dimensions before the first sparse or dense one are batch dimensions, and those after the first dense one are
    dense. Elements are repeated along sparse dimensions that grow.

    Args:
      mat: sparse[*old].
      shape: the shape of the result.
      broadcast_dimensions: for each dimension of `mat`, in increasing order, its position in the result.
      sharding: None; shardings of sparse arrays are not supported.

    Returns:
      sparse[*shape].

    Raises:
      ShapeError: `broadcast_dimensions` does not fit the shapes.
      ArgumentError: `sharding` is given.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.eye(2))
      >>> sparse.bcoo_broadcast_in_dim(x, shape=(3, 2, 2), broadcast_dimensions=(1, 2))
      BCOO(float32[3, 2, 2], nse=2, n_batch=1)
    """
    _check_no_sharding("bcoo_broadcast_in_dim", sharding)
    layout, dims = mat.layout, [operator.index(d) for d in broadcast_dimensions]
    shape = dense_shape(lambda x: lax.broadcast_in_dim(x, shape, tuple(dims)), mat)
    batch_dims, sparse_dims, dense_dims = layout.split(dims)
    n_batch, first_dense = min(sparse_dims + dense_dims, default=len(shape)), min(dense_dims, default=len(shape))
    batch, sparse, dense = shape[:n_batch], shape[n_batch:first_dense], shape[first_dense:]
    at = (*batch_dims, n_batch, *[n_batch + 1 + d - first_dense for d in dense_dims])
    data = lax.broadcast_in_dim(mat.data, (*batch, mat.nse, *dense), at)
    # The indices keep size 1 along new batch dimensions, where they are equal.
    sizes = [mat.indices.shape[batch_dims.index(d)] if d in batch_dims else 1 for d in range(n_batch)]
    indices = mat.indices.reshape(*sizes, mat.nse, mat.n_sparse)
    old = [d - n_batch for d in sparse_dims]
    grown = [n if d not in old or layout.sparse[old.index(d)] != n else 1 for d, n in enumerate(sparse)]
    grid = index_grid(grown, indices.dtype)
    place = jnp.zeros((*indices.shape[:-1], len(sparse)), indices.dtype).at[..., np.array(old, int)].set(indices)
    keep = is_stored(indices, layout.sparse)[..., None]
    repeated = place[..., None, :] + grid.reshape((1,) * (n_batch + 1) + grid.shape)
    indices = move_padding(repeated, keep, sparse).reshape(*sizes, mat.nse * len(grid), len(sparse))
    data = jnp.broadcast_to(lax.expand_dims(data, (n_batch + 1,)), (*batch, mat.nse, len(grid), *dense))
    return BCOO((data.reshape(*batch, mat.nse * len(grid), *dense), indices), shape=shape)


@eager_jit(static_argnames=("dimension",))
def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """Concatenate sparse arrays along a batch or sparse dimension.

    Args:
      operands: sparse arrays with equal numbers of batch and dense dimensions, and equal sizes of other dimensions.
      dimension: the dimension to concatenate along.

    Returns:
      The concatenated array.

    Raises:
      ArgumentTypeError: an operand is not a `BCOO` array.
      ArgumentError: the operands have different layouts.
      RuleError: `dimension` is a dense dimension.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.eye(2))
      >>> sparse.bcoo_concatenate([x, x], dimension=0)
      BCOO(float32[4, 2], nse=4)
    """
    operands, dimension = list(operands), operator.index(dimension)
    for i, x in enumerate(operands):
        if not isinstance(x, BCOO):
            raise ArgumentTypeError(
                f"bcoo_concatenate, operands[{i}]",
                expected="a BCOO array",
                got=f"a {type(x).__name__}",
                fix="convert it with BCOO.fromdense or to_bcoo",
            )
    shape = dense_shape(lambda *xs: lax.concatenate(xs, dimension), *operands)
    operands = _align_batch(operands)
    n, n_sparse = operands[0].n_batch, operands[0].n_sparse
    if dimension >= n + n_sparse:
        raise RuleError(
            "bcoo_concatenate, argument dimension",
            expected=f"a batch or sparse dimension, one of the first {n + n_sparse}",
            got=str(dimension),
            fix="make the dense dimensions sparse, with mat.update_layout(n_dense=0)",
        )
    if dimension < n:
        nse = max(x.nse for x in operands)
        operands = [materialize_batch(set_nse(x, nse), range(n)) for x in operands]
        data, indices = ([getattr(x, name) for x in operands] for name in ("data", "indices"))
        return BCOO((jnp.concatenate(data, dimension), jnp.concatenate(indices, dimension)), shape=shape)
    operands = [materialize_batch(x, range(n)) for x in operands]
    offset, moved = 0, []
    for x in operands:
        shift = np.zeros(n_sparse, x.indices.dtype)
        shift[dimension - n] = offset
        keep = is_stored(x.indices, x.layout.sparse)
        moved.append(move_padding(x.indices + shift.reshape((1,) * (n + 1) + (-1,)), keep, shape[n : n + n_sparse]))
        offset += x.shape[dimension]
    return BCOO((jnp.concatenate([x.data for x in operands], n), jnp.concatenate(moved, n)), shape=shape)


def _align_batch(operands: list[BCOO]) -> list[BCOO]:
    """Give the operands of a concatenation one layout, if only a first dimension of size 1 is stored differently."""
    if {x.n_batch for x in operands} == {0, 1}:
        for n_batch in (1, 0):
            if all(x.shape[0] == 1 for x in operands if x.n_batch != n_batch):
                operands = [bcoo_update_layout(x, n_batch=n_batch) for x in operands]
    layouts = sorted({(x.n_batch, x.n_dense) for x in operands})
    if len(layouts) > 1:
        raise ArgumentError(
            "bcoo_concatenate, argument operands",
            expected="operands of one layout",
            got=" and ".join(f"n_batch={b}, n_dense={d}" for b, d in layouts),
            fix=f"convert all with mat.update_layout(n_batch={layouts[0][0]}, n_dense={layouts[0][1]})",
        )
    return operands


@eager_jit(static_argnames=("new_sizes", "dimensions", "sharding"))
def bcoo_reshape(
    mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, sharding: Any = None
) -> BCOO:
    """Reshape a sparse array, as `lax.reshape` does.

    Args:
      mat: sparse[*shape].
      new_sizes: the new shape, in which batch, sparse and dense dimensions stay apart.
      dimensions: a permutation that is applied first, of batch, sparse and dense dimensions among themselves.
      sharding: None; shardings of sparse arrays are not supported.

    Returns:
      sparse[*new_sizes].

    Raises:
      ArgumentError: the new shape merges batch, sparse and dense dimensions.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcoo_reshape(sparse.BCOO.fromdense(jnp.eye(2)), new_sizes=(4,)).indices.tolist()
      [[0], [3]]
    """
    _check_no_sharding("bcoo_reshape", sharding)
    new = dense_shape(lambda x: lax.reshape(x, new_sizes, dimensions), mat)
    if dimensions is not None:
        split_permutation("bcoo_reshape", mat.layout, dimensions)
        mat = bcoo_transpose(mat, permutation=dimensions)
    layout, n = mat.layout, mat.n_batch
    batch, sparse, dense = _split_new_shape(mat, new)
    if batch != layout.batch:
        mat = materialize_batch(mat, range(n))
    data_batch, index_batch = (batch if batch != layout.batch else x.shape[:n] for x in (mat.data, mat.indices))
    data = mat.data.reshape(*data_batch, mat.nse, *dense)
    indices = mat.indices.reshape(*index_batch, mat.nse, layout.n_sparse)
    if sparse != layout.sparse:
        indices = _renumber(indices, layout.sparse, sparse)
    return BCOO((data, indices), shape=new, unique_indices=mat.unique_indices, indices_sorted=mat.indices_sorted)


def _renumber(indices: Array, old: Shape, new: Shape) -> Array:
    """The indices of the same elements of an array that is reshaped from `old` to `new`."""
    if math.prod(old) > np.iinfo(indices.dtype).max:
        raise ArgumentError(
            "bcoo_reshape",
            expected=f"sparse dimensions of fewer than {np.iinfo(indices.dtype).max + 1} elements, the range of "
            f"{indices.dtype} indices",
            got=f"sizes {list(old)}",
            fix="convert the indices to int64 with enable_x64",
        )
    keep = is_stored(indices, old)
    strides = [math.prod(old[i + 1 :]) for i in range(len(old))]
    flat = sum((c * s for c, s in zip(columns(indices), strides, strict=True)), jnp.zeros_like(keep, indices.dtype))
    strides = [math.prod(new[i + 1 :]) for i in range(len(new))]
    found = [(flat // s) % n if n else flat for s, n in zip(strides, new, strict=True)]
    stacked = jnp.stack(found, axis=-1) if new else jnp.zeros((*indices.shape[:-1], 0), indices.dtype)
    return move_padding(stacked, keep, new)


def _split_new_shape(mat: BCOO, new: Shape) -> tuple[Shape, Shape, Shape]:
    """Divide a new shape into batch, sparse and dense sizes, each with as many elements as before."""
    parts: list[Shape] = []
    rest = new
    for old in (mat.layout.batch, mat.layout.sparse):
        ends = [i for i in range(len(rest) + 1) if math.prod(rest[:i]) == math.prod(old)]
        # Sizes of 1 between two parts belong to the first of them that has dimensions at all.
        end = 0 if not old else ends[-1] if ends and math.prod(old) else ends[0] if ends else 0
        if old is mat.layout.sparse and not mat.n_dense:
            end = len(rest)
        parts.append(rest[:end])
        rest = rest[end:]
    if [math.prod(p) for p in (*parts, rest)] != [math.prod(p) for p in mat.layout[:3]]:
        raise ArgumentError(
            "bcoo_reshape, argument new_sizes",
            expected=f"sizes that keep the batch {list(mat.layout.batch)}, sparse {list(mat.layout.sparse)} and dense "
            f"{list(mat.layout.dense)} dimensions apart",
            got=f"{list(new)}: it cannot mix batch and sparse dimensions",
            fix="change the layout first, with mat.update_layout(n_batch=0, n_dense=0)",
        )
    return parts[0], parts[1], rest


@eager_jit(static_argnames=("dimensions",))
def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """Reverse a sparse array along dimensions.

    Args:
      operand: sparse[*shape].
      dimensions: the dimensions to reverse.

    Returns:
      sparse[*shape].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcoo_rev(sparse.BCOO(([5], [[0]]), shape=(3,)), (0,)).indices.tolist()
      [[2]]
    """
    layout, n = operand.layout, operand.n_batch
    dense_shape(lambda x: lax.rev(x, dimensions), operand)
    flags = [d in {operator.index(d) % operand.ndim for d in dimensions} for d in range(operand.ndim)]
    batch, sparse, dense = layout.split(flags)
    reversed_batch = [d for d in range(n) if batch[d]]
    # A dimension of size 1 is broadcast, and equal in both directions.
    data = lax.rev(operand.data, [*reversed_batch, *[n + 1 + d for d in range(layout.n_dense) if dense[d]]])
    indices = lax.rev(operand.indices, reversed_batch)
    if any(sparse):
        flip = np.array(sparse).reshape((1,) * (n + 1) + (-1,))
        turned = jnp.where(flip, bounds(indices, layout.sparse) - 1 - indices, indices)
        indices = move_padding(turned, is_stored(indices, layout.sparse), layout.sparse)
    return BCOO((data, indices), shape=operand.shape, unique_indices=operand.unique_indices)


@eager_jit(static_argnames=("dimensions",))
def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """Remove dimensions of size 1 of a sparse array.

    Args:
      arr: sparse[*shape].
      dimensions: the dimensions to remove.

    Returns:
      The array without these dimensions.

    Raises:
      ShapeError: a dimension has another size than 1.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcoo_squeeze(sparse.BCOO.fromdense(jnp.ones((1, 3))), dimensions=(0,))
      BCOO(float32[3], nse=3)
    """
    shape = dense_shape(lambda x: lax.squeeze(x, dimensions), arr)
    gone = {operator.index(d) % arr.ndim for d in dimensions}
    n, layout = arr.n_batch, arr.layout
    batch = [d for d in range(n) if d in gone]
    kept = [i for i in range(layout.n_sparse) if i + n not in gone]
    data = lax.squeeze(arr.data, [*batch, *[d - layout.n_sparse + 1 for d in gone if d >= n + layout.n_sparse]])
    data, indices = _drop_columns(arr.indices, data, kept, layout.sparse)
    indices = lax.squeeze(indices, batch)
    return BCOO(
        (data, indices),
        shape=shape,
        indices_sorted=arr.indices_sorted,
        unique_indices=arr.unique_indices and bool(kept),
    )


def _drop_columns(indices: Array, data: Array, kept: Sequence[int], sparse: Shape) -> tuple[Array, Array]:
    """Keep some columns of the indices, and zero the padding that is known by the other ones only."""
    if len(kept) == len(sparse):
        return data, indices
    keep = is_stored(indices, sparse)
    # The mask has a batch of its own, which broadcasts against that of the data.
    masked = jnp.where(lax.expand_dims(keep, range(keep.ndim, data.ndim)), data, jnp.zeros((), data.dtype))
    return masked, indices[..., np.array(kept, int)]


@eager_jit(static_argnames=("start_indices", "limit_indices", "strides"))
def bcoo_slice(
    mat: BCOO, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> BCOO:
    """Slice a sparse array, as `lax.slice` does.

    Args:
      mat: sparse[*shape].
      start_indices, limit_indices: the first index of the slice in each dimension, and the first one after it.
      strides: the steps between indices, at least 1; all 1 if None.

    Returns:
      The slice, which stores at most as many elements as it has.

    Raises:
      ArgumentTypeError: `mat` is not a `BCOO` array.
      ArgumentError: the indices do not fit the array.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.arange(5))
      >>> sparse.bcoo_slice(x, start_indices=(1,), limit_indices=(4,)).todense().tolist()
      [1, 2, 3]
    """
    _check_bcoo("bcoo_slice", mat)
    steps = [1] * mat.ndim if strides is None else strides
    starts, limits, steps = ([operator.index(i) for i in x] for x in (start_indices, limit_indices, steps))
    shape = dense_shape(lambda x: lax.slice(x, starts, limits, steps), mat)
    layout = mat.layout
    batch, sparse, dense = layout.split([slice(*each) for each in zip(starts, limits, steps, strict=True)])
    data = mat.data[(*_unless_broadcast(mat.data, batch, layout.batch), slice(None), *dense)]
    indices = mat.indices[_unless_broadcast(mat.indices, batch, layout.batch)]
    first, last, step = (np.array([getattr(s, at) for s in sparse], indices.dtype) for at in ("start", "stop", "step"))
    return (
        _crop(data, indices, shape, mat, first, last, step) if layout.n_sparse else BCOO((data, indices), shape=shape)
    )


def _check_bcoo(where: str, mat: Any) -> None:
    if not isinstance(mat, BCOO):
        raise ArgumentTypeError(
            f"{where}, argument mat",
            expected="a BCOO array",
            got=f"a {type(mat).__name__}",
            fix="convert it with BCOO.fromdense or to_bcoo",
        )


def _unless_broadcast(buffer: Array, slices: Sequence[slice], batch: Shape) -> tuple:
    """The slices of batch dimensions, except along dimensions in which the buffer is broadcast."""
    return tuple(s if buffer.shape[d] == n else slice(None) for d, (s, n) in enumerate(zip(slices, batch, strict=True)))


def _crop(data: Array, indices: Array, shape: Shape, mat: BCOO, first: Any, last: Any, step: Any) -> BCOO:
    """Keep the elements whose sparse indices are in `range(first, last, step)`, and renumber them from 0."""
    sparse = shape[mat.n_batch : mat.n_batch + mat.n_sparse]
    first, last, step = (
        lax.expand_dims(jnp.asarray(x, indices.dtype), range(indices.ndim - 1)) for x in (first, last, step)
    )
    keep = ((indices >= first) & (indices < last) & ((indices - first) % step == 0)).all(-1)
    moved = move_padding((indices - first) // step, keep, sparse)
    found = BCOO((mask_data(data, keep), moved), shape=shape, unique_indices=mat.unique_indices)
    size = math.prod(sparse)
    return bcoo_sum_duplicates(found, nse=size) if mat.nse > size else found


@eager_jit(static_argnames=("slice_sizes",))
def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[ArrayLike], slice_sizes: Sequence[int]) -> BCOO:
    """Slice a sparse array at computed indices, as `lax.dynamic_slice` does.

    Args:
      mat: sparse[*shape].
      start_indices: the first index of the slice in each dimension, an integer scalar; moved into bounds.
      slice_sizes: the sizes of the slice.

    Returns:
      sparse[*slice_sizes], which stores at most as many elements as it has.

    Raises:
      ArgumentTypeError: `mat` is not a `BCOO` array.
      ShapeError: a size exceeds that of the dimension.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.arange(5))
      >>> sparse.bcoo_dynamic_slice(x, (jnp.array(3),), (3,)).todense().tolist()
      [2, 3, 4]
    """
    _check_bcoo("bcoo_dynamic_slice", mat)
    starts = [jnp.asarray(i) for i in start_indices]
    sizes = [operator.index(i) for i in slice_sizes]
    shape = dense_shape(lambda x: lax.dynamic_slice(x, [np.int32(0)] * len(starts), sizes), mat)
    layout, n = mat.layout, mat.n_batch
    # Negative indices count from the end, and the slice is moved into bounds.
    clamped = [
        jnp.clip(jnp.where(i < 0, i + size, i), 0, size - width)
        for i, size, width in zip(starts, mat.shape, sizes, strict=True)
    ]
    batch, sparse, dense = layout.split(clamped)
    batch_sizes, sparse_sizes, dense_sizes = layout.split(sizes)

    def cut(x: Array, trailing: Sequence[Any], trailing_sizes: Sequence[int]) -> Array:
        own = [x.shape[d] == layout.batch[d] for d in range(n)]
        at = [i if o else 0 for i, o in zip(batch, own, strict=True)]
        widths = [w if o else 1 for w, o in zip(batch_sizes, own, strict=True)]
        return lax.dynamic_slice(x, [*at, *trailing], [*widths, *trailing_sizes])

    data = cut(mat.data, [0, *dense], [mat.nse, *dense_sizes])
    indices = cut(mat.indices, [0, 0], mat.indices.shape[n:])
    first = jnp.stack([i.astype(indices.dtype) for i in sparse]) if sparse else np.zeros(0, indices.dtype)
    width = np.array(sparse_sizes, indices.dtype)
    return _crop(data, indices, shape, mat, first, first + width, np.ones_like(width))


@eager_jit(
    static_argnames=("dimension_numbers", "slice_sizes", "unique_indices", "indices_are_sorted", "mode", "fill_value")
)
def bcoo_gather(
    operand: BCOO,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Shape,
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
) -> BCOO:
    """Gather slices of a sparse array, as `lax.gather` does.

    Args:
      operand: sparse[*shape].
      start_indices: int[*n, k], the positions of the slices.
      dimension_numbers, slice_sizes: as in `lax.gather`.
      unique_indices, indices_are_sorted: promises, which are not used.
      mode: None or "promise_in_bounds", or "clip".
      fill_value: not used by these modes.

    Returns:
      The gathered slices; its batch dimensions begin with the ones of `start_indices`, if they come first.

    Raises:
      RuleError: another mode, or batch dimensions in `dimension_numbers`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.eye(3))
      >>> x[jnp.array([2, 0])].todense().tolist()
      [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    parsed = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else GatherScatterMode.from_any(mode)
    numbers = dimension_numbers
    if parsed is GatherScatterMode.FILL_OR_DROP or numbers.operand_batching_dims:
        raise RuleError(
            "bcoo_gather",
            expected="indices in bounds, and no batching dimensions",
            got=f"mode={mode!r} and operand_batching_dims={numbers.operand_batching_dims}",
            fix="index with x.at[...].get(mode='clip'), or convert with sparse.todense(x)",
        )
    start_indices = jnp.asarray(start_indices)
    shape = dense_shape(lambda x, i: lax.gather(x, i, numbers, tuple(slice_sizes), mode="clip"), operand, start_indices)
    vectors = start_indices.reshape(math.prod(start_indices.shape[:-1]), start_indices.shape[-1])

    def slice_at(vector: Array) -> BCOO:
        at: list[Any] = [np.int32(0)] * operand.ndim
        for k, d in enumerate(numbers.start_index_map):
            at[d] = vector[k]
        return bcoo_squeeze(bcoo_dynamic_slice(operand, at, slice_sizes), dimensions=numbers.collapsed_slice_dims)

    slices = vmap(slice_at)(vectors)
    result = (
        bcoo_reshape(slices, new_sizes=(*start_indices.shape[:-1], *slices.shape[1:]))
        if start_indices.ndim != 2
        else slices
    )
    others = [d for d in range(len(shape)) if d not in numbers.offset_dims]
    permutation = np.argsort([*others, *numbers.offset_dims]).tolist()
    if permutation == sorted(permutation):
        return result
    if sorted(permutation[: result.n_batch]) != list(range(result.n_batch)):
        result = bcoo_update_layout(result, n_batch=0)
    return bcoo_transpose(result, permutation=permutation)


@eager_jit(static_argnames=("axes",))
def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """Sum a sparse array over dimensions.

    Args:
      mat: sparse[*shape].
      axes: the dimensions to sum over.

    Returns:
      The sums, as a sparse array in which indices may recur.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcoo_reduce_sum(sparse.BCOO.fromdense(jnp.eye(3)), axes=(0,)).todense().tolist()
      [1.0, 1.0, 1.0]
    """
    gone = {operator.index(d) % mat.ndim for d in axes}
    layout, n = mat.layout, mat.n_batch
    batch_axes = [d for d in range(n) if d in gone]
    kept_batch = [d for d in range(n) if d not in gone]
    kept = [i for i in range(layout.n_sparse) if i + n not in gone]
    data = mat.data.sum(tuple(d - layout.n_sparse + 1 for d in gone if d >= n + layout.n_sparse), dtype=mat.dtype)
    data, indices = _drop_columns(mat.indices, data, kept, layout.sparse)
    summed = BCOO((data, indices), shape=[s for d, s in enumerate(mat.shape) if d < n or d not in gone])
    if batch_axes:
        # The elements of the batch are put side by side, where equal indices are added.
        full = materialize_batch(summed, batch_axes)
        nse = mat.nse * math.prod(layout.batch[d] for d in batch_axes)

        def merge(x: Array) -> Array:
            moved = x.transpose([*kept_batch, *batch_axes, *range(n, x.ndim)])
            return moved.reshape(*moved.shape[: len(kept_batch)], nse, *x.shape[n + 1 :])

        data, indices = merge(full.data), merge(full.indices)
    return BCOO((data, indices), shape=[s for d, s in enumerate(mat.shape) if d not in gone])
