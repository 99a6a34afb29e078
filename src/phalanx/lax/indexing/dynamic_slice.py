"""Slices with computed starts: `dynamic_slice`, `dynamic_update_slice`, and their forms for one dimension.

Both clip each start so that the slice is in bounds. Under `vmap` with mapped starts they become `gather` and `scatter`.
Called by `phalanx.numpy` indexing and by loops that read and write stacked values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    AxisError,
    DTypeError,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    dtypes,
    get_aval,
    instantiate,
    is_linear,
    promotion,
)
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise import add, convert_element_type, emit_compare, lt, select
from phalanx.lax.indexing.gather import CLIP, GatherDimensionNumbers, gather_p
from phalanx.lax.indexing.scatter import ScatterDimensionNumbers, scatter_p
from phalanx.lax.indexing.static_slice import slice as static_slice
from phalanx.lax.shape import (
    add_dim,
    broadcast_in_dim,
    dim_names,
    drop_dims,
    insert_dim,
    move_dim,
    reshape,
    shift_past_batch,
    zeros,
)
from phalanx.lax.shape.concatenate import concatenate
from phalanx.runtime import LoweringContext, eager_jit
from phalanx.symbolic import static_size
from phalanx.typing import ArrayLike, DimSize, Shape


def _check_starts(where: str, x: ShapedArray, starts: Sequence[ShapedArray], sizes: Sequence) -> None:
    if len(starts) != x.ndim or len(sizes) != x.ndim:
        raise ShapeError(
            f"{where} starts and sizes",
            expected=f"one for each of the {x.ndim} dimensions of {x.str_short()}",
            got=f"{len(starts)} starts and sizes {tuple(sizes)}",
            fix="pass start 0 and the full size for dimensions that are not sliced",
        )
    for i, s in enumerate(starts):
        if s.ndim or not dtypes.issubdtype(s.dtype, np.integer):
            raise DTypeError(
                f"{where} start {i}",
                expected="an integer scalar",
                got=s.str_short(),
                fix=f"convert start {i} to an integer scalar, for example lax.convert_element_type(start, 'int32')",
            )
    for d, (n, size) in enumerate(zip(x.shape, sizes, strict=True)):
        if size is not n and size != n and (size > n or size < 0):
            raise ShapeError(
                f"{where} size of dimension {d}",
                expected=f"a size in [0, {n}]",
                got=size,
                fix=f"choose a size of at most {n}",
            )


def emit_starts(
    ctx: LoweringContext, starts: Sequence[ir.Value], avals: Sequence[ShapedArray], shape: Shape, wrap: Sequence[bool]
) -> tuple[list[ir.Value], ShapedArray]:
    """Convert starts to one integer type, counting negative ones from the end where `wrap` is True.

    Returns the starts and their type.
    """
    # StableHLO requires one integer type for all starts. Types below 32 bits cannot represent every valid start, and
    # uint32 needs 64 signed bits.
    found = {a.dtype for a in avals}
    if len(found) == 1 and next(iter(found)).itemsize >= 4:
        dtype = next(iter(found))
    else:
        dtype = np.dtype(np.int64 if any(d.itemsize == 8 or d == np.uint32 for d in found) else np.int32)
    scalar = ShapedArray((), dtype)
    emitted = []
    for v, aval, size, may_wrap in zip(starts, avals, shape, wrap, strict=True):
        if aval.dtype != dtype:
            v = hlo.convert(ctx.type(scalar), v)
        # Only signed starts can be negative. After this, negative ones are clipped to 0 by the operation itself.
        if may_wrap and dtypes.issubdtype(aval.dtype, np.signedinteger):
            negative = emit_compare(v, ctx.constant(0, scalar), "LT", dtype)
            v = hlo.select(negative, hlo.add(v, ctx.size(size, scalar)), v)
        emitted.append(v)
    return emitted, scalar


def _batched_starts(starts: Sequence, mapped: Sequence, shape: tuple, wrap: tuple, dims: Sequence[int]) -> Any:
    """Stack the starts along `dims` to index vectors: int[batch, len(dims)]."""
    size = next(np.shape(s)[0] for s, b in zip(starts, mapped, strict=True) if b is not None)
    dtype = promotion.result_type(*[get_aval(starts[d]).dtype for d in dims]) if dims else np.dtype(np.int32)
    if dtype.itemsize < 4 or not dtypes.issubdtype(dtype, np.integer):
        dtype = np.dtype(np.int32)
    columns = []
    for d in dims:
        v = convert_element_type(starts[d], dtype)
        if wrap[d] and dtypes.issubdtype(get_aval(starts[d]).dtype, np.signedinteger):
            v = select(lt(v, dtype.type(0)), add(v, convert_element_type(shape[d], dtype)), v)
        columns.append(broadcast_in_dim(v, (size, 1), () if mapped[d] is None else (0,)))
    if not columns:
        return zeros(ShapedArray((size, 0), dtype))
    return columns[0] if len(columns) == 1 else concatenate(columns, 1)


def _slice_names(x: ShapedArray, sizes: Sequence) -> tuple[list, list, set]:
    """Names for the dimensions of operand and slice, equal where the slice spans the operand, and the unequal ones."""
    names = dim_names(x.ndim)
    inner = [n if size == full else f"slice {n}" for n, size, full in zip(names, sizes, x.shape, strict=True)]
    return names, inner, {n for pair in zip(names, inner, strict=True) if pair[0] != pair[1] for n in pair}


class DynamicSlice(Primitive, name="dynamic_slice"):
    """The slice of `x` with the given starts, moved into bounds: any[*x] -> any[*sizes]."""

    linear_in = ((0,),)

    def abstract_eval(self, x, *starts, sizes, wrap):
        _check_starts("lax.dynamic_slice", x, starts, sizes)
        return x.with_shape(sizes)

    def sharding_rule(self, x, *starts, sizes, wrap):
        names, inner, whole = _slice_names(x, sizes)
        cut = {n: (s,) for n, s in zip(names, inner, strict=True) if n != s}
        return ShardingRule([names, *[()] * len(starts)], [inner], whole=whole, resized=cut)

    def lower(self, ctx, x, *starts, sizes, wrap):
        x_aval, *s_avals = ctx.avals_in
        if not starts:
            return x
        emitted, _ = emit_starts(ctx, starts, s_avals, x_aval.shape, wrap)
        return ctx.dynamic_slice(x, x_aval.shape, emitted, ctx.aval_out)

    def jvp(self, primals, tangents, **params):
        return self(*primals, **params), self(tangents[0], *primals[1:], **params)

    def transpose(self, y_bar, x, *starts, sizes, wrap):
        # Out-of-bounds starts are clipped in the same way in both directions, so the update goes to the elements that
        # were read.
        return (dynamic_update_slice_p(zeros(x.aval), y_bar, *starts, wrap=wrap), *[None] * len(starts))

    def batch(self, x, *rest, sizes, wrap):
        starts, (bx, *mapped) = rest[: len(sizes)], rest[len(sizes) :]
        # With the same starts for all examples this remains a dynamic slice, which costs less than a gather: the mapped
        # dimension is sliced in full.
        if all(b is None for b in mapped):
            sizes, wrap = insert_dim(sizes, bx, np.shape(x)[bx]), insert_dim(wrap, bx, False)
            return self(x, *insert_dim(starts, bx, np.int32(0)), sizes=sizes, wrap=wrap), bx
        shape = [n for d, n in enumerate(np.shape(x)) if d != bx]
        # Starts of dimensions that are sliced in full are always clipped to 0, so the index vectors leave them out.
        dims = tuple([d for d, n in enumerate(shape) if sizes[d] != n])
        numbers = GatherDimensionNumbers(tuple(range(1, len(sizes) + 1)), (), dims)
        if bx is not None:
            numbers = GatherDimensionNumbers(numbers.offset_dims, (), shift_past_batch(dims, bx), (bx,), (0,))
            sizes = insert_dim(sizes, bx, 1)
        return gather_p(
            x,
            _batched_starts(starts, mapped, shape, wrap, dims),
            dimension_numbers=numbers,
            slice_sizes=sizes,
            indices_are_sorted=False,
            # If the operand is mapped, each example reads from its own part of it, so no two slices overlap.
            unique_indices=bx is not None,
            # A dynamic slice clips its starts, and so must the gather.
            mode=CLIP,
            fill_value=None,
        ), 0


dynamic_slice_p = DynamicSlice()


class DynamicUpdateSlice(Primitive, name="dynamic_update_slice"):
    """`x` with the slice at the given starts, moved into bounds, replaced by `update`."""

    linear_in = ((0, 1),)

    def abstract_eval(self, x, update, *starts, wrap):
        where = "lax.dynamic_update_slice"
        if update.dtype != x.dtype or update.ndim != x.ndim:
            kind = DTypeError if update.dtype != x.dtype else ShapeError
            raise kind(
                f"{where} update",
                expected=f"the rank and dtype of the operand {x.str_short()}",
                got=update.str_short(),
                fix=f"convert the update to {x.dtype.name} and reshape it to rank {x.ndim}",
            )
        _check_starts(where, x, starts, update.shape)
        return x.update(weak_type=x.weak_type and update.weak_type)

    def sharding_rule(self, x, update, *starts, wrap):
        names, inner, whole = _slice_names(x, update.shape)
        written = {m: (n,) for n, s in zip(names, inner, strict=True) if n != s for m in (n, s)}
        return ShardingRule([names, inner, *[()] * len(starts)], [names], whole=whole, resized=written)

    def lower(self, ctx, x, update, *starts, wrap):
        x_aval, _, *s_avals = ctx.avals_in
        if not starts:
            return update
        emitted, _ = emit_starts(ctx, starts, s_avals, x_aval.shape, wrap)
        return hlo.dynamic_update_slice(x, update, emitted)

    def jvp(self, primals, tangents, *, wrap):
        x_dot, u_dot = map(instantiate, tangents[:2])
        return self(*primals, wrap=wrap), self(x_dot, u_dot, *primals[2:], wrap=wrap)

    def transpose(self, y_bar, x, update, *starts, wrap):
        shape = np.shape(update)
        x_bar = u_bar = None
        if is_linear(x):
            # Elements that were replaced do not depend on the operand.
            x_bar = self(y_bar, zeros(ShapedArray(shape, y_bar.dtype)), *starts, wrap=wrap)
        if is_linear(update):
            u_bar = dynamic_slice_p(y_bar, *starts, sizes=shape, wrap=wrap)
        return (x_bar, u_bar, *[None] * len(starts))

    def batch(self, x, update, *rest, wrap):
        n = len(wrap)
        starts, (bx, bu, *mapped) = rest[:n], rest[n:]
        operands = zip((x, update, *starts), (bx, bu, *mapped), strict=True)
        size = next(np.shape(v)[b] for v, b in operands if b is not None)
        if bx is None:
            x, bx = add_dim(x, 0, size), 0
        if all(b is None for b in mapped):
            update = add_dim(update, bx, size) if bu is None else move_dim(update, bu, bx)
            return self(x, update, *insert_dim(starts, bx, np.int32(0)), wrap=insert_dim(wrap, bx, False)), bx
        update = add_dim(update, 0, size) if bu is None else move_dim(update, bu, 0)
        shape = [n for d, n in enumerate(np.shape(x)) if d != bx]
        dims = tuple([d for d in range(n) if np.shape(update)[1 + d] != shape[d]])
        # Every example has its own start, and each slice lies in its own example, so the indices are unique and sorted.
        return scatter_p(
            x,
            _batched_starts(starts, mapped, shape, wrap, dims),
            update,
            dimension_numbers=ScatterDimensionNumbers(
                tuple(range(1, n + 1)), (), shift_past_batch(dims, bx), (bx,), (0,)
            ),
            indices_are_sorted=True,
            unique_indices=True,
            mode=CLIP,
        ), bx


dynamic_update_slice_p = DynamicUpdateSlice()


def _starts(
    where: str,
    operand: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    allow_negative_indices: bool | Sequence[bool],
) -> tuple[Sequence, tuple]:
    """Convert starts to one scalar for each dimension; returns also whether each may count from the end."""
    ndim = get_aval(operand).ndim
    if not isinstance(start_indices, tuple | list):
        aval = get_aval(start_indices)
        if aval.ndim != 1:
            raise ShapeError(
                f"{where} start_indices",
                expected="a sequence of integers, or a vector",
                got=aval.str_short(),
                fix=f"pass a sequence of {ndim} integers",
            )
        # Known starts stay Python integers, so that negative ones are resolved while tracing.
        if isinstance(start_indices, np.ndarray):
            start_indices = start_indices.tolist()
        else:
            start_indices = [reshape(static_slice(start_indices, (i,), (i + 1,)), ()) for i in range(aval.shape[0])]
    if type(allow_negative_indices) is bool:
        allow_negative_indices = (allow_negative_indices,) * ndim
    if len(allow_negative_indices) != ndim or len(start_indices) != ndim:
        raise ShapeError(
            f"{where} start_indices",
            expected=f"one for each of the {ndim} dimensions of the operand",
            got=f"{len(start_indices)} starts",
            fix=f"pass {ndim} starts, 0 for dimensions that are not sliced",
        )
    dims = list(zip(start_indices, get_aval(operand).shape, allow_negative_indices, strict=True))
    starts = [_static_start(s, n, negative) if isinstance(s, int | np.integer) else s for s, n, negative in dims]
    return starts, tuple([bool(negative) and not isinstance(s, int | np.integer) for s, _, negative in dims])


def _static_start(start: int | np.integer, size: DimSize, negative: bool) -> Any:
    start = int(start)
    if start < 0 and negative and isinstance(size, int):
        start += size
    # Only the lower bound is applied here: the upper one may depend on a symbolic size.
    start = max(start, 0)
    return np.int32(start) if start < 2**31 else np.int64(start)


def dynamic_slice(
    operand: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Any:
    """A slice of an array with computed starts, moved into bounds.

    Args:
      operand: the array to read.
      start_indices: integers, one for each dimension, or a vector of them.
      slice_sizes: the size of the slice along each dimension.
      allow_negative_indices: whether negative starts count from the end, for all dimensions or for each; otherwise
        they are clipped to 0.

    Returns:
      An array of shape `slice_sizes`.

    Raises:
      ShapeError: the slice is larger than the operand, or the number of starts or sizes is not the rank of `operand`.
      DTypeError: a start is not an integer.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.dynamic_slice(np.arange(5), (np.int32(4),), (2,)).tolist()
      [3, 4]
    """
    starts, wrap = _starts("lax.dynamic_slice", operand, start_indices, allow_negative_indices)
    sizes = slice_sizes.tolist() if hasattr(slice_sizes, "tolist") else slice_sizes
    return dynamic_slice_p(operand, *starts, sizes=tuple(sizes), wrap=wrap)


def dynamic_update_slice(
    operand: ArrayLike,
    update: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Any:
    """Replace a slice of an array with computed starts, moved into bounds.

    Args:
      operand: the array to update.
      update: the new slice, with the rank and dtype of `operand`.
      start_indices, allow_negative_indices: as in `dynamic_slice`.

    Returns:
      The updated array.

    Raises:
      ShapeError: the update is larger than the operand, or has another rank.
      DTypeError: the update has another dtype than the operand, or a start is not an integer.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.dynamic_update_slice(np.zeros(4, int), np.array([7, 8]), (np.int32(1),)).tolist()
      [0, 7, 8, 0]
    """
    starts, wrap = _starts("lax.dynamic_update_slice", operand, start_indices, allow_negative_indices)
    return dynamic_update_slice_p(operand, update, *starts, wrap=wrap)


def _dim(where: str, axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise AxisError(
            f"{where} axis",
            expected=f"an axis in [-{ndim}, {ndim})",
            got=axis,
            fix=f"choose one of {-ndim} ... {ndim - 1}",
        )
    return int(axis) % ndim


def _start_along(index: ArrayLike, ndim: int, dim: int) -> list:
    return [index if d == dim else 0 for d in range(ndim)]


def dynamic_slice_in_dim(
    operand: ArrayLike, start_index: ArrayLike, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True
) -> Any:
    """`dynamic_slice` along one dimension, with the other dimensions in full.

    Args:
      operand: the array to read.
      start_index: the start of the slice, an integer.
      slice_size: the size of the slice.
      axis: the dimension.
      allow_negative_indices: as in `dynamic_slice`.

    Returns:
      The slice.

    Raises:
      AxisError: there is no such dimension.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.dynamic_slice_in_dim(np.arange(6).reshape(2, 3), np.int32(1), 2, axis=1).tolist()
      [[1, 2], [4, 5]]
    """
    shape = get_aval(operand).shape
    dim = _dim("lax.dynamic_slice_in_dim", axis, len(shape))
    sizes = (*shape[:dim], static_size(slice_size), *shape[dim + 1 :])
    starts = _start_along(start_index, len(shape), dim)
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=allow_negative_indices)


@eager_jit(static_argnames=("axis", "keepdims", "allow_negative_indices"))
def dynamic_index_in_dim(
    operand: ArrayLike, index: ArrayLike, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True
) -> Any:
    """The slice of size 1 at a computed index along one dimension.

    Args:
      operand: the array to read.
      index: an integer.
      axis: the dimension.
      keepdims: whether the result keeps the dimension, with size 1.
      allow_negative_indices: as in `dynamic_slice`.

    Returns:
      The slice.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.dynamic_index_in_dim(np.arange(6).reshape(2, 3), np.int32(-1), axis=1, keepdims=False).tolist()
      [2, 5]
    """
    out = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    if keepdims:
        return out
    shape = get_aval(out).shape
    return reshape(out, drop_dims(shape, (axis % len(shape),)))


def dynamic_update_slice_in_dim(
    operand: ArrayLike, update: ArrayLike, start_index: ArrayLike, axis: int, *, allow_negative_indices: bool = True
) -> Any:
    """`dynamic_update_slice` along one dimension.

    Args:
      operand: the array to update.
      update: the new slice, with the sizes of `operand` along the other dimensions.
      start_index: the start of the slice, an integer.
      axis: the dimension.
      allow_negative_indices: as in `dynamic_slice`.

    Returns:
      The updated array.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.dynamic_update_slice_in_dim(np.zeros(4, int), np.array([7, 8]), np.int32(2), 0).tolist()
      [0, 0, 7, 8]
    """
    ndim = get_aval(operand).ndim
    starts = _start_along(start_index, ndim, _dim("lax.dynamic_update_slice_in_dim", axis, ndim))
    return dynamic_update_slice(operand, update, starts, allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(
    operand: ArrayLike, update: ArrayLike, index: ArrayLike, axis: int, *, allow_negative_indices: bool = True
) -> Any:
    """Replace the slice of size 1 at a computed index along one dimension.

    Args:
      operand: the array to update.
      update: the new slice, with or without the dimension of size 1.
      index: an integer.
      axis: the dimension.
      allow_negative_indices: as in `dynamic_slice`.

    Returns:
      The updated array.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.dynamic_update_index_in_dim(np.zeros(4, int), 7, np.int32(2), 0).tolist()
      [0, 0, 7, 0]
    """
    aval, new = get_aval(operand), get_aval(update)
    dim = _dim("lax.dynamic_update_index_in_dim", axis, aval.ndim)
    if type(update) in (int, float, complex, bool):
        update = aval.dtype.type(update)
    if new.ndim == aval.ndim - 1:
        update = reshape(update, insert_dim(new.shape, dim, 1))
    return dynamic_update_slice_in_dim(operand, update, index, dim, allow_negative_indices=allow_negative_indices)
