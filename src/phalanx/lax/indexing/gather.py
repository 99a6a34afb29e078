"""Slices at computed indices: the primitive, `gather` and `index_take`, and the modes for out-of-bounds indices.

Called by `phalanx.numpy` indexing and by the derivative rules of sorting and windows. `scatter` builds on this module,
and adds the transpose rule of `gather_p`, which binds `scatter_add_p`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import ArgumentError, DTypeError, Primitive, ShapedArray, ShapeError, ShardingRule, dtypes, get_aval
from phalanx.engine.mlir import cached_per_context, hlo, ir
from phalanx.lax.elementwise import add, emit_compare, lt, select
from phalanx.lax.shape import insert_dim, move_dim, reshape, shift_past_batch
from phalanx.lax.shape.concatenate import concatenate
from phalanx.runtime import LoweringContext, dynamic_shapes
from phalanx.symbolic import is_constant_shape
from phalanx.typing import Array, ArrayLike


class GatherDimensionNumbers(NamedTuple):
    """The correspondence of dimensions of operand, indices and result in a `gather`, as in XLA.

    Args:
      offset_dims: dimensions of the result that index into a slice, in increasing order.
      collapsed_slice_dims: dimensions of the operand with slice size 1 that are dropped from the result.
      start_index_map: for each component of an index vector, the dimension of the operand it addresses.
      operand_batching_dims: dimensions of the operand with slice size 1 that are batch dimensions.
      start_indices_batching_dims: the corresponding batch dimensions of the indices.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> numbers = GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
      >>> rows = jnp.array([[2], [0]])
      >>> lax.gather(jnp.arange(6).reshape(3, 2), rows, numbers, slice_sizes=(1, 2)).tolist()
      [[4, 5], [0, 1]]
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class GatherScatterMode(enum.Enum):
    """The treatment of out-of-bounds indices.

    `CLIP` moves the slice into bounds. `FILL_OR_DROP` reads a fill value, and drops updates. `PROMISE_IN_BOUNDS`
    promises that all indices are in bounds; if they are not, any element may be read or written.

    Examples:
      >>> from phalanx import numpy as jnp
      >>> x, outside = jnp.arange(3.0), jnp.array([7])
      >>> [x.at[outside].get(mode=mode).tolist() for mode in ("clip", "fill")]
      [[2.0], [nan]]
    """

    CLIP = 0
    FILL_OR_DROP = 1
    PROMISE_IN_BOUNDS = 2

    @staticmethod
    def from_any(mode: str | GatherScatterMode | None) -> GatherScatterMode:
        """Convert a name to a mode: `"clip"`, `"fill"`, `"drop"` or `"promise_in_bounds"`; None is FILL_OR_DROP.

        Args:
          mode: a name, a mode, or None.

        Returns:
          The mode.

        Raises:
          ArgumentError: `mode` is none of these.

        Examples:
          >>> from phalanx import lax
          >>> lax.GatherScatterMode.from_any("clip").name
          'CLIP'
        """
        if type(mode) is GatherScatterMode:
            return mode
        try:
            return _MODES[mode]
        except (KeyError, TypeError):
            raise ArgumentError(
                "gather or scatter mode",
                expected="'clip', 'fill', 'drop', 'promise_in_bounds' or a GatherScatterMode",
                got=repr(mode),
                fix="pass mode='clip' to move slices into bounds, or mode='fill' to read a fill value",
            ) from None


CLIP, FILL_OR_DROP, PROMISE_IN_BOUNDS = GatherScatterMode
_MODES: dict[Any, GatherScatterMode] = {
    None: FILL_OR_DROP,
    "fill": FILL_OR_DROP,
    "drop": FILL_OR_DROP,
    "clip": CLIP,
    "promise_in_bounds": PROMISE_IN_BOUNDS,
}


def check_indices(where: str, indices: ShapedArray) -> None:
    """Raise an error for indices that are not integers or have no dimension for the index vectors."""
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise DTypeError(
            f"{where} indices",
            expected="integers",
            got=indices.str_short(),
            fix="convert them with lax.convert_element_type",
        )
    if not indices.ndim:
        raise ShapeError(
            f"{where} indices",
            expected="a last dimension that holds the index vectors",
            got=indices.str_short(),
            fix="reshape the index to (1,)",
        )


def check_window_dims(
    where: str,
    x: ShapedArray,
    indices: ShapedArray,
    removed: tuple,
    batching: tuple,
    indices_batching: tuple,
    index_map: tuple,
    sizes: Sequence,
) -> None:
    """Check the dimension numbers of a gather or scatter against its operand and indices."""
    # Dimensions that the slices lack, because they are removed or are batch dimensions: their slice size must be 1.
    gone = (*removed, *batching)
    for name, dims, bound in (
        ("dimensions without a window", gone, x.ndim),
        ("addressed dimensions", (*index_map, *batching), x.ndim),
        ("batching dimensions of the indices", indices_batching, indices.ndim - 1),
    ):
        if len(set(dims)) != len(dims) or not all(0 <= d < bound for d in dims):
            raise ShapeError(
                f"{where} {name}",
                expected=f"different dimensions in [0, {bound})",
                got=dims,
                fix="name each dimension once, counted from the front",
            )
    if indices.shape[-1] != len(index_map):
        raise ShapeError(
            f"{where} indices",
            expected=f"a last dimension of size {len(index_map)}, one component for each addressed dimension",
            got=indices.str_short(),
            fix=f"concatenate {len(index_map)} index arrays along a new last dimension",
        )
    if [x.shape[d] for d in batching] != [indices.shape[d] for d in indices_batching]:
        raise ShapeError(
            f"{where} batching dimensions",
            expected="equal sizes in operand and indices",
            got=f"{batching} of {x.str_short()} and {indices_batching} of {indices.str_short()}",
            fix="pair batching dimensions of equal size",
        )
    if len(sizes) != x.ndim:
        raise ShapeError(
            f"{where} slice sizes",
            expected=f"one for each of the {x.ndim} dimensions of {x.str_short()}",
            got=tuple(sizes),
            fix="give the size of the slice along every dimension",
        )
    for d, (n, size) in enumerate(zip(x.shape, sizes, strict=True)):
        # Equality is the common case, and decides for symbolic sizes, which may not be comparable.
        if size is not n and size != n and (size > n or size < 0 or (d in gone and size > 1)):
            raise ShapeError(
                f"{where} slice size of dimension {d}",
                expected="1" if d in gone and size != 1 else f"a size in [0, {n}]",
                got=size,
                fix=f"choose slice_sizes[{d}] = 1" if d in gone and size != 1 else f"choose slice_sizes[{d}] <= {n}",
            )


class WindowDimNames(NamedTuple):
    """Names of dimensions in the sharding rules of gather and scatter; those in `whole` cannot be sharded."""

    operand: list
    indices: list
    outside: list  # of the result of a gather, or the updates of a scatter
    whole: set


def name_window_dims(
    x: ShapedArray,
    indices: ShapedArray,
    ndim: int,
    window_dims: tuple,
    removed: tuple,
    batching: tuple,
    indices_batching: tuple,
    sizes: Sequence,
) -> WindowDimNames:
    """Name the dimensions: a slice that spans a dimension of the operand shares its name, as do batch dimensions."""
    batch = [f"i{d}" for d in range(indices.ndim - 1)]
    operand = [f"x{d}" for d in range(x.ndim)]
    # A batch dimension of the operand is the same dimension as that of the indices, so one name shards both.
    for d, i in zip(batching, indices_batching, strict=True):
        operand[d] = batch[i]
    kept = [d for d in range(x.ndim) if d not in removed and d not in batching]
    inside = {o: operand[d] if sizes[d] == x.shape[d] else f"w{d}" for o, d in zip(window_dims, kept, strict=True)}
    # The dimensions outside of the slices are the batch dimensions of the indices, in their order.
    names = iter(batch)
    outside = [inside[o] if o in inside else next(names) for o in range(ndim)]
    # An index may address any element along a dimension that slices do not span, and a window may be on two shards.
    unspanned = {name for name in operand if name not in outside and name not in batch}
    windows = {name for name in outside if name[0] == "w"}
    return WindowDimNames(operand, [*batch, "vector"], outside, {*unspanned, *windows, "vector"})


def widen_indices(indices: ir.Value, aval: ShapedArray, largest: int, ctx: LoweringContext) -> tuple[Any, Any]:
    """Convert indices to a type that can represent `largest` and negative numbers; returns that type as well."""
    # The bounds are compared in this type: int8 cannot represent the size of a dimension with 1000 elements. It must
    # also represent -1, which callers use for an index that is out of bounds.
    signed = dtypes.issubdtype(aval.dtype, np.signedinteger)
    if signed and np.iinfo(aval.dtype).max >= largest and aval.dtype.itemsize >= 4:
        return indices, aval
    if aval.dtype.itemsize >= 8:
        return indices, aval  # there is no wider type, and comparing uint64 with a representable bound is correct
    wide = aval.with_dtype(np.dtype(np.int64 if aval.dtype == np.uint32 or largest > 2**31 - 1 else np.int32))
    return hlo.convert(ctx.type(wide), indices), wide


def largest_indexed_size(x: ShapedArray, index_map: tuple) -> int:
    """The largest size of an indexed dimension; symbolic sizes are assumed to be below 2**31."""
    return max([n if type(n) is int else 2**31 - 1 for n in (x.shape[d] for d in index_map)], default=0)


def max_start_indices(x: ShapedArray, index_map: tuple, sizes: Sequence) -> list:
    """The largest in-bounds start of a slice, for each component of the index vectors."""
    return [x.shape[d] - sizes[d] for d in index_map]


class Gather(Primitive, name="gather"):
    """Slices of `x` that start at the given indices: any[*x], int[*batch, k] -> any[*batch and *offset]."""

    def abstract_eval(self, x, indices, *, dimension_numbers, slice_sizes, **_):
        offset, collapsed, index_map, batching, indices_batching = dimension_numbers
        check_indices("lax.gather", indices)
        check_window_dims("lax.gather", x, indices, collapsed, batching, indices_batching, index_map, slice_sizes)
        sizes = [n for d, n in enumerate(slice_sizes) if d not in collapsed and d not in batching]
        ndim = len(sizes) + indices.ndim - 1
        if len(offset) != len(sizes) or list(offset) != sorted(set(offset)) or any(not 0 <= d < ndim for d in offset):
            raise ShapeError(
                "lax.gather offset_dims",
                expected=f"{len(sizes)} increasing dimensions in [0, {ndim})",
                got=offset,
                fix="name a dimension of the result for each dimension of a slice that is not collapsed",
            )
        inside, outside = iter(sizes), iter(indices.shape[:-1])
        return x.with_shape(tuple([next(inside) if d in offset else next(outside) for d in range(ndim)]))

    def sharding_rule(self, x, indices, *, dimension_numbers, slice_sizes, **_):
        offset, collapsed, _, batching, indices_batching = dimension_numbers
        ndim = len(offset) + indices.ndim - 1
        names = name_window_dims(x, indices, ndim, offset, collapsed, batching, indices_batching, slice_sizes)
        return ShardingRule([names.operand, names.indices], [names.outside], whole=names.whole)

    def lower(
        self, ctx, x, indices, *, dimension_numbers, slice_sizes, indices_are_sorted, unique_indices, mode, fill_value
    ):
        offset, collapsed, index_map, batching, indices_batching = dimension_numbers
        x_aval, i_aval = ctx.avals_in
        indices, i_aval = widen_indices(indices, i_aval, largest_indexed_size(x_aval, index_map), ctx)
        numbers = _dimension_numbers(dimension_numbers, i_aval.ndim - 1)
        if is_constant_shape(slice_sizes):
            # StableHLO's gather has static slice sizes; symbolic ones need its dynamic form.
            slices = hlo.gather(
                x, indices, numbers, ir.DenseI64ArrayAttr.get(list(slice_sizes)), indices_are_sorted=indices_are_sorted
            )
        else:
            attributes = {"dimension_numbers": numbers, "indices_are_sorted": ir.BoolAttr.get(indices_are_sorted)}
            slices = ctx.op(hlo.DynamicGatherOp, x, indices, dynamic_shapes.sizes(ctx, slice_sizes), **attributes)
        if mode is not FILL_OR_DROP or not index_map:
            return slices  # StableHLO clips indices
        # StableHLO clips out-of-bounds indices. In mode FILL_OR_DROP the slices at such indices are replaced
        # afterwards; the mask has one entry for each index vector, which is broadcast over the slice.
        valid = _in_bounds(ctx, indices, i_aval, max_start_indices(x_aval, index_map, slice_sizes))
        out = ctx.aval_out
        if offset:
            outside = [d for d in range(out.ndim) if d not in offset]
            valid = ctx.broadcast(valid, ShapedArray(out.shape, np.dtype(bool)), outside)
        return hlo.select(valid, slices, ctx.constant(default_fill_value(out.dtype, fill_value), out))

    def jvp(self, primals, tangents, *, fill_value, **params):
        x, indices = primals
        # The tangent of a constant fill value is zero.
        return self(x, indices, **params, fill_value=fill_value), self(tangents[0], indices, **params, fill_value=0)

    def batch(
        self, x, indices, bx, bi, *, dimension_numbers, slice_sizes, indices_are_sorted, unique_indices, **params
    ):
        offset, collapsed, index_map, batching, indices_batching = dimension_numbers
        # The index vectors must remain the last dimension, so a mapped dimension behind them moves to the front.
        if bi is not None and bi == np.ndim(indices) - 1:
            indices, bi = move_dim(indices, bi, 0), 0
        # With a mapped operand, an unmapped index addresses the same elements in every example: the mapped dimension
        # becomes part of the slice. With both mapped it is a batch dimension.
        if bx is not None:
            collapsed, index_map, batching = (shift_past_batch(d, bx) for d in (collapsed, index_map, batching))
            size = np.shape(x)[bx]
            slice_sizes = insert_dim(slice_sizes, bx, size if bi is None or size == 0 else 1)
        num_batch = np.ndim(indices) - 1 - (bi is not None)
        if bi is not None:
            indices_batching = shift_past_batch(indices_batching, bi)
            ndim = len(offset) + num_batch
            # The mapped dimension comes to the position of the result's batch dimension `bi`, or behind the last one.
            out = [*(d for d in range(ndim) if d not in offset), ndim][bi]
            offset = shift_past_batch(offset, out)
            # Indices of different examples are not sorted relative to each other.
            indices_are_sorted = False
            if bx is not None:
                batching, indices_batching = sort_batching_dims((*batching, bx), (*indices_batching, bi))
            else:
                # Different examples may read the same element of the unmapped operand.
                unique_indices = False
        else:
            # The mapped dimension is part of the slice: it comes before the dimensions of the slice that follow it in
            # the operand.
            kept = sum(d < bx for d in range(np.ndim(x)) if d not in collapsed and d not in batching)
            out = offset[kept] if kept < len(offset) else len(offset) + num_batch
            offset = insert_dim(shift_past_batch(offset, out), kept, out)
        return self(
            x,
            indices,
            dimension_numbers=GatherDimensionNumbers(offset, collapsed, index_map, batching, indices_batching),
            slice_sizes=slice_sizes,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            **params,
        ), out


gather_p = Gather()


@cached_per_context
def _dimension_numbers(numbers: GatherDimensionNumbers, index_vector_dim: int) -> Any:
    offset, collapsed, index_map, batching, indices_batching = map(list, numbers)
    return hlo.GatherDimensionNumbers.get(
        offset_dims=offset,
        collapsed_slice_dims=collapsed,
        operand_batching_dims=batching,
        start_indices_batching_dims=indices_batching,
        start_index_map=index_map,
        index_vector_dim=index_vector_dim,
    )


def sort_batching_dims(dims: tuple, others: tuple) -> tuple[tuple, tuple]:
    """Sort two parallel tuples by the first, as StableHLO requires."""
    order = sorted(zip(dims, others, strict=True))
    return tuple(d for d, _ in order), tuple(o for _, o in order)


def default_fill_value(dtype: np.dtype, fill_value: ArrayLike | None) -> Any:
    """The value that is read out of bounds: `fill_value`, by default NaN, the smallest (signed) or largest integer."""
    if fill_value is not None:
        return fill_value
    if dtypes.issubdtype(dtype, np.inexact):
        return np.nan
    if dtypes.issubdtype(dtype, np.signedinteger):
        return dtypes.iinfo(dtype).min
    return True if dtype == np.dtype(bool) else dtypes.iinfo(dtype).max


def broadcast_max_starts(ctx: LoweringContext, aval: ShapedArray, last: Sequence) -> Any:
    """The largest in-bounds starts, broadcast to the shape of the indices."""
    dims = [aval.ndim - 1]
    if not is_constant_shape(last):
        vector = ctx.type(ShapedArray((len(last),), aval.dtype))
        return ctx.broadcast(hlo.convert(vector, dynamic_shapes.sizes(ctx, last)), aval, dims)
    # A limit beyond the largest index cannot be exceeded, so it may be rounded down to the index type.
    known = np.asarray([min(v, np.iinfo(aval.dtype).max) for v in last], aval.dtype)
    return ctx.constant(known[0], aval) if len(set(known)) == 1 else ctx.broadcast(ctx.constant(known), aval, dims)


def _in_bounds(ctx: LoweringContext, indices: ir.Value, aval: ShapedArray, last: Sequence) -> Any:
    """For each index vector, whether all its components are in [0, last]."""
    valid = emit_compare(indices, broadcast_max_starts(ctx, aval, last), "LE", aval.dtype)
    if dtypes.issubdtype(aval.dtype, np.signedinteger):
        valid = hlo.and_(emit_compare(indices, ctx.constant(0, aval), "GE", aval.dtype), valid)
    vector = ShapedArray(aval.shape[:-1], np.dtype(bool))
    if len(last) == 1:
        return ctx.reshape(valid, vector)
    return ctx.reduce(hlo.AndOp, valid, True, [aval.ndim - 1], aval=vector)


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """Gather slices of an array that start at the given indices: the general form of indexing.

    Args:
      operand: the array to read.
      start_indices: `int[*batch, k]`, index vectors of `k` components in the last dimension.
      dimension_numbers: a `GatherDimensionNumbers`.
      slice_sizes: the size of a slice along each dimension of `operand`.
      unique_indices: promise that no two slices overlap, which makes the derivative cheaper.
      indices_are_sorted: promise that the index vectors are in increasing order.
      mode: the treatment of slices that are out of bounds, see `GatherScatterMode`; `"clip"` by default.
      fill_value: the value of elements out of bounds in mode `"fill"`; by default NaN, or the smallest (signed) or
        largest (unsigned) integer.

    Returns:
      An array with the batch dimensions of the indices, and the dimensions of a slice at `offset_dims`.

    Raises:
      ShapeError: the dimension numbers do not match the operands.
      DTypeError: the indices are not integers.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> rows = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
      >>> lax.gather(np.arange(6).reshape(3, 2), np.array([[2], [0]]), rows, (1, 2)).tolist()
      [[4, 5], [0, 1]]
    """
    if type(dimension_numbers) is not GatherDimensionNumbers or type(dimension_numbers.offset_dims) is not tuple:
        dimension_numbers = GatherDimensionNumbers(*(tuple(map(int, dims)) for dims in dimension_numbers))
    return gather_p(
        operand,
        start_indices,
        dimension_numbers=dimension_numbers,
        slice_sizes=tuple(slice_sizes),
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        mode=CLIP if mode is None else GatherScatterMode.from_any(mode),
        fill_value=None if fill_value is None else np.asarray(fill_value).item(),
    )


def index_take(src: ArrayLike, idxs: Sequence[ArrayLike], axes: Sequence[int]) -> Array:
    """Take elements, or slices, at positions given by an index array for each of several dimensions.

    Args:
      src: the array to read.
      idxs: integer arrays `int[n]`, one for each entry of `axes`; negative indices count from the end.
      axes: the indexed dimensions.

    Returns:
      An array whose first dimension has size `n`, followed by the dimensions of `src` that are not in `axes`.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.index_take(np.arange(6).reshape(3, 2), [np.array([2, -3])], (0,)).tolist()
      [[4, 5], [0, 1]]
    """
    aval = get_aval(src)
    axes = tuple(axes)
    columns = []
    for index, axis in zip(idxs, axes, strict=True):
        if dtypes.issubdtype(get_aval(index).dtype, np.signedinteger):
            index = select(lt(index, 0), add(index, aval.shape[axis]), index)
        columns.append(reshape(index, (*get_aval(index).shape, 1)))
    indices = columns[0] if len(columns) == 1 else concatenate(columns, 1)
    numbers = GatherDimensionNumbers(tuple(range(1, aval.ndim - len(axes) + 1)), tuple(sorted(axes)), axes)
    return gather(src, indices, numbers, [1 if d in axes else n for d, n in enumerate(aval.shape)])
