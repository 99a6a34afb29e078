"""Partitioned lowering of `gather`, the scatter family, `dynamic_slice` and `dynamic_update_slice`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import Primitive, ShapedArray, Var, dtypes
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise import add
from phalanx.lax.indexing.dynamic_slice import emit_starts
from phalanx.lax.indexing.gather import (
    GatherDimensionNumbers,
    GatherScatterMode,
    gather,
    largest_indexed_size,
    widen_indices,
)
from phalanx.lax.indexing.scatter import ScatterDimensionNumbers, clip_indices, scatter
from phalanx.lax.indexing.static_slice import pad, slice_p
from phalanx.lax.reductions.float_total_order import drops_nans, reduce_as_integers
from phalanx.lax.shape.broadcast import broadcast
from phalanx.lax.shape.concatenate import concatenate
from phalanx.lax.shape.iota_and_full import broadcasted_iota
from phalanx.partitioner.dim_sharding import find_dim_sharding, materialize, replicate_dims
from phalanx.partitioner.workarounds import is_active
from phalanx.runtime import Array, LoweringContext
from phalanx.symbolic import is_constant_shape
from phalanx.typing import ArrayLike

# For each scatter whose updates commute, the element that leaves any other unchanged, and how the operand is combined
# with the updates that were scattered into such elements.
_COMMUTATIVE: dict[str, tuple[Callable[[Any], Any], Callable[..., ir.Value]]] = {
    "scatter_add": (lambda dtype: 0, hlo.add),
    "scatter_sub": (lambda dtype: 0, hlo.add),
    "scatter_mul": (lambda dtype: 1, hlo.multiply),
    "scatter_min": (dtypes.highest, hlo.minimum),
    "scatter_max": (dtypes.lowest, hlo.maximum),
}
_INDEX_FILL = -1  # out of bounds, so that updates there are dropped


def _lower_as(
    ctx: LoweringContext,
    primitive: Primitive,
    operands: Sequence[ir.Value],
    avals: Sequence[ShapedArray],
    params: dict[str, Any],
) -> ir.Value:
    """Lower the current equation by its primitive's own rule, with operands of other types."""
    outer = ctx.eqn
    ctx.eqn = outer.replace(invars=[Var(a) for a in avals])
    try:
        return primitive.lower(ctx, *operands, **params)
    finally:
        ctx.eqn = outer


def _replicate_index_vectors(ctx: LoweringContext, indices: ir.Value, aval: ShapedArray) -> ir.Value:
    """Constrain index vectors to be held whole; avoids "sharded_index_vectors"."""
    last = aval.ndim - 1
    # A single index that is split, too: all devices but one hold padding of it.
    is_split = ctx.module.has_uneven and find_dim_sharding(ctx.module, indices, last) is not None
    if (aval.shape[last] > 1 or is_split) and is_active("sharded_index_vectors"):
        return replicate_dims(ctx, indices, [last])
    return indices


def lower_gather(ctx: LoweringContext, primitive: Primitive, x: ir.Value, indices: ir.Value, **params: Any) -> ir.Value:
    """Lower `gather` for several devices; avoids "sharded_index_vectors"."""
    x_aval, i_aval = ctx.avals_in
    index_map = params["dimension_numbers"].start_index_map
    indices, i_aval = widen_indices(indices, i_aval, largest_indexed_size(x_aval, index_map), ctx)
    indices = _replicate_index_vectors(ctx, indices, i_aval)
    return _lower_as(ctx, primitive, (x, indices), (x_aval, i_aval), params)


def lower_scatter(
    ctx: LoweringContext,
    primitive: Primitive,
    x: ir.Value,
    indices: ir.Value,
    updates: ir.Value,
    *,
    dimension_numbers: ScatterDimensionNumbers,
    mode: GatherScatterMode,
    **params: Any,
) -> ir.Value:
    """Lower a primitive of the scatter family for several devices."""
    x_aval, i_aval, u_aval = ctx.avals_in
    padding = _batch_padding(ctx, (x, indices, updates), dimension_numbers) if ctx.module.has_uneven else []
    if padding and is_active("uneven_scatter_batch"):

        def scatter_padded(*operands: Array) -> Array:
            filled = [pad(v, np.zeros((), v.dtype), widths) for v, widths in zip(operands, padding, strict=True)]
            y = primitive(*filled, dimension_numbers=dimension_numbers, mode=mode, **params)
            return pad(y, np.zeros((), y.dtype), [(0, -high, 0) for _, high, _ in padding[0]])

        return ctx.inline(scatter_padded, x, indices, updates)  # this rule is applied again, and finds nothing to pad
    # Clip first, since the padding below adds indices that must stay out of bounds. FILL_OR_DROP then keeps the
    # primitive's own rule from clipping again.
    indices, i_aval = clip_indices(ctx, indices, dimension_numbers, mode)
    params |= {"dimension_numbers": dimension_numbers, "mode": GatherScatterMode.FILL_OR_DROP}
    identity, combine = _COMMUTATIVE.get(primitive.name, (None, None))
    if identity is not None and is_active("uneven_scatter_updates"):
        indices, i_aval, updates, u_aval = _pad_updates(
            ctx, (indices, i_aval), (updates, u_aval), dimension_numbers, identity(u_aval.dtype)
        )
    if is_constant_shape(i_aval.shape):
        indices = _replicate_index_vectors(ctx, indices, i_aval)
        # With fewer index vectors than devices, a device may have a single one.
        if math.prod(i_aval.shape[:-1]) <= ctx.module.num_partitions and is_active("single_element_update"):
            x = materialize(ctx, x)
    avals = (x_aval, i_aval, u_aval)
    if not (identity and combine and dimension_numbers.operand_batching_dims and is_active("batched_scatter_operand")):
        return _lower_as(ctx, primitive, (x, indices, updates), avals, params)
    # A constant is the same on every device, whichever device XLA takes the operand from.
    identities = ctx.constant(identity(x_aval.dtype), ctx.aval_out)
    return combine(x, _lower_as(ctx, primitive, (identities, indices, updates), avals, params))


def _batch_padding(
    ctx: LoweringContext, operands: Sequence[ir.Value], numbers: ScatterDimensionNumbers
) -> list[list[tuple[int, int, int]]]:
    """The padding of operand, indices and updates by which batch dimensions divide among devices; avoids
    "uneven_scatter_batch". Empty if there is nothing to pad."""
    shapes = [aval.shape for aval in ctx.avals_in]
    high = [[0] * len(shape) for shape in shapes]
    scattered = [d for d in range(len(shapes[2])) if d not in numbers.update_window_dims]
    for d, i in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
        dims = (d, i, scattered[i])
        places = zip(operands, dims, strict=True)
        found = next((s for x, dim in places if (s := find_dim_sharding(ctx.module, x, dim)) is not None), None)
        if found is not None and is_constant_shape((shapes[0][d],)):
            for widths, dim in zip(high, dims, strict=True):
                widths[dim] = -shapes[0][d] % found.parts
    return [[(0, h, 0) for h in widths] for widths in high] if any(map(any, high)) else []


def lower_scatter_extreme(
    ctx: LoweringContext, primitive: Primitive, x: ir.Value, indices: ir.Value, updates: ir.Value, **params: Any
) -> ir.Value | list[ir.Value]:
    """Lower `scatter_min` or `scatter_max` for several devices; on integers where an all-reduce would drop NaN."""
    if not (drops_nans(ctx, ctx.aval_out.dtype) and is_active("all_reduce_nan")):
        return lower_scatter(ctx, primitive, x, indices, updates, **params)

    def scatter_integers(x: Array, indices: Array, updates: Array) -> Any:
        scatter = lambda x, updates: primitive(x, indices, updates, **params)
        return reduce_as_integers(scatter, primitive.name == "scatter_max", x, updates)

    return ctx.inline(scatter_integers, x, indices, updates)


def _pad_updates(
    ctx: LoweringContext,
    indices: tuple[ir.Value, ShapedArray],
    updates: tuple[ir.Value, ShapedArray],
    numbers: ScatterDimensionNumbers,
    identity: ArrayLike,
) -> tuple[ir.Value, ShapedArray, ir.Value, ShapedArray]:
    """Pad indices and updates along unbatched dimensions to a multiple of the number of devices.

    The added indices are out of bounds and the added updates are identity elements, so neither changes the result.
    Where a dimension is split over some of the axes only, each shard is padded, so that no element changes device.
    """
    i_aval, u_aval = indices[1], updates[1]
    count = ctx.module.num_partitions
    smallest = 1 if ctx.module.has_uneven else 2  # of the sizes that may be split
    scattered = [d for d in range(u_aval.ndim) if d not in numbers.update_window_dims]
    for i, d in enumerate(scattered):
        n = i_aval.shape[i]
        if i in numbers.scatter_indices_batching_dims or not isinstance(n, int) or n < smallest or n % count == 0:
            continue
        places = (indices[0], i), (updates[0], d)
        found = next((s for x, dim in places if (s := find_dim_sharding(ctx.module, x, dim)) is not None), None)
        parts = 1 if found is None or count % found.parts else found.parts
        indices = _pad_parts(ctx, *indices, i, parts, _INDEX_FILL)
        updates = _pad_parts(ctx, *updates, d, parts, identity)
    return *indices, *updates


def _pad_parts(
    ctx: LoweringContext, x: ir.Value, aval: ShapedArray, dim: int, parts: int, fill: ArrayLike
) -> tuple[ir.Value, ShapedArray]:
    """Pad each of the parts of a dimension, so that their sizes add up to a multiple of the number of devices."""
    value, count = ctx.constant(fill, ShapedArray((), aval.dtype)), ctx.module.num_partitions
    before, (n, *after) = aval.shape[:dim], aval.shape[dim:]
    size, padded = -(-n // parts), -(-n // count) * count // parts

    def extend(x: ir.Value, ndim: int, dim: int, more: int) -> ir.Value:
        none, high = [0] * ndim, [more if d == dim else 0 for d in range(ndim)]
        return hlo.pad(x, value, none, high, none) if more else x

    if parts > 1 and padded > size:
        x = extend(x, aval.ndim, dim, size * parts - n)
        x = ctx.reshape(x, aval.with_shape((*before, parts, size, *after)))
        x = extend(x, aval.ndim + 1, dim + 1, padded - size)
        aval = aval.with_shape((*before, parts * padded, *after))
        return ctx.reshape(x, aval), aval
    aval = aval.with_shape((*before, parts * padded, *after))
    return extend(x, aval.ndim, dim, parts * padded - n), aval


def _split_slices(ctx: LoweringContext, x: ir.Value, aval: ShapedArray, sizes: Sequence[Any]) -> tuple[int, ...]:
    """The split dimensions of which a slice of some sizes is a part, in uneven programs; XLA gathers these."""
    shape = aval.shape
    is_planned = ctx.module.has_uneven and is_active("uneven_slices")
    if not is_planned or not is_constant_shape((*shape, *sizes)) or 0 in (*shape, *sizes):
        return ()
    found = [d for d, n in enumerate(shape) if sizes[d] < n and find_dim_sharding(ctx.module, x, d) is not None]
    return tuple(found)


def _sliced_dims(aval: ShapedArray, sizes: Sequence[int], split: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The dimensions of which a slice is a part, and those that are not split."""
    sliced = tuple([d for d, n in enumerate(aval.shape) if sizes[d] < n])
    return sliced, tuple([d for d in range(aval.ndim) if d not in split])


def _index_vectors(starts: Sequence[Array], sizes: Sequence[int], sliced: Sequence[int], split: Sequence[int]) -> Any:
    """The positions of the elements of a slice along split dimensions, and where it begins along others."""
    grid = tuple([sizes[d] for d in split])
    columns = []
    for d in sliced:
        at = broadcast(starts[d], (*grid, 1))
        if d in split:
            at = add(at, broadcasted_iota(at.dtype, (*grid, 1), split.index(d)))
        columns.append(at)
    return concatenate(columns, len(grid))


def _constant_starts(
    starts: Sequence[ir.Value], shape: Sequence[int], sizes: Sequence[int], wrap: Sequence[bool]
) -> dict:
    """Where a slice begins along dimensions for which this is a constant: the position in bounds, by dimension."""
    found = {}
    for d, (start, n) in enumerate(zip(starts, shape, strict=True)):
        op = start.owner
        if not isinstance(op, ir.Block) and op.name == "stablehlo.constant":
            at = int(ir.DenseIntElementsAttr(op.attributes["value"])[0])
            found[d] = min(max(at + n * (wrap[d] and at < 0), 0), n - sizes[d])
    return found


def lower_dynamic_slice(
    ctx: LoweringContext, primitive: Primitive, x: ir.Value, *starts: ir.Value, sizes: tuple, wrap: tuple
) -> ir.Value:
    """Lower `dynamic_slice` for several devices; avoids "dynamic_slice_start"."""
    x_aval, *avals = ctx.avals_in
    split = _split_slices(ctx, x, x_aval, sizes)
    lows = _constant_starts(starts, x_aval.shape, sizes, wrap) if split else {}
    if not lows.keys().isdisjoint(split):  # a static slice is a move, which is planned

        def cut(x: Array, *starts: Array) -> Any:
            first = tuple([lows.get(d, 0) for d in range(x.ndim)])
            stop = tuple([lows[d] + sizes[d] if d in lows else n for d, n in enumerate(x.shape)])
            x = slice_p(x, starts=first, stops=stop, strides=None)
            return primitive(x, *[0 if d in lows else at for d, at in enumerate(starts)], sizes=sizes, wrap=wrap)

        return ctx.inline(cut, x, *starts)[0]
    starts, avals = _clamp_starts(ctx, "dynamic_slice_start", starts, avals, x_aval.shape, sizes, wrap)
    # The slice is added up among devices, each of which sends as much again as it receives.
    if split and 2 * math.prod(sizes[d] for d in split) <= math.prod(x_aval.shape[d] for d in split):
        sliced, kept = _sliced_dims(x_aval, sizes, split)

        def gather_slice(x: Array, *starts: Array) -> Any:
            slice_sizes = [1 if d in split else n for d, n in enumerate(sizes)]
            numbers = GatherDimensionNumbers(kept, split, sliced)
            return gather(
                x, _index_vectors(starts, sizes, sliced, split), numbers, slice_sizes, mode="promise_in_bounds"
            )

        return ctx.inline(gather_slice, x, *starts, avals=[x_aval, *avals])[0]
    # Negative starts are already counted from the end, so nothing wraps.
    return _lower_as(ctx, primitive, (x, *starts), (x_aval, *avals), {"sizes": sizes, "wrap": (False,) * len(wrap)})


def lower_dynamic_update_slice(
    ctx: LoweringContext, primitive: Primitive, x: ir.Value, update: ir.Value, *starts: ir.Value, wrap: tuple
) -> ir.Value:
    """Lower `dynamic_update_slice` for several devices; avoids "dynamic_update_slice_start"."""
    x_aval, u_aval, *avals = ctx.avals_in
    is_single = starts and any(u == 1 != n for u, n in zip(u_aval.shape, x_aval.shape, strict=True))
    if is_single and is_active("single_element_update"):
        x = materialize(ctx, x)
    starts, avals = _clamp_starts(ctx, "dynamic_update_slice_start", starts, avals, x_aval.shape, u_aval.shape, wrap)
    if split := _split_slices(ctx, x, x_aval, u_aval.shape):
        sliced, kept = _sliced_dims(x_aval, u_aval.shape, split)

        def scatter_slice(x: Array, update: Array, *starts: Array) -> Any:
            places = _index_vectors(starts, update.shape, sliced, split)
            numbers = ScatterDimensionNumbers(kept, split, sliced)
            return scatter(x, places, update, numbers, unique_indices=True, mode="promise_in_bounds")

        return ctx.inline(scatter_slice, x, update, *starts, avals=[x_aval, u_aval, *avals])[0]
    return _lower_as(ctx, primitive, (x, update, *starts), (x_aval, u_aval, *avals), {"wrap": (False,) * len(wrap)})


def _clamp_starts(
    ctx: LoweringContext,
    workaround: str,
    starts: Sequence[ir.Value],
    avals: Sequence[ShapedArray],
    shape: tuple,
    sizes: tuple,
    wrap: tuple,
) -> tuple[tuple[ir.Value, ...], list[ShapedArray]]:
    """Convert starts to one integer type and clamp them so that the slice is in bounds; returns their types as well."""
    if not starts:
        return (), []
    emitted, scalar = emit_starts(ctx, starts, avals, shape, wrap)
    if is_constant_shape((*shape, *sizes)) and is_active(workaround):
        zero = ctx.constant(0, scalar)
        limits = [ctx.constant(n - size, scalar) for n, size in zip(shape, sizes, strict=True)]
        emitted = [hlo.clamp(zero, v, limit) for v, limit in zip(emitted, limits, strict=True)]
    return tuple(emitted), [scalar] * len(emitted)
