"""Reading slices at computed places: `gather`, its modes, and `index_take`.

Builds on the primitive core and the shape operations; `scatter` is its transpose. Called by `phalanx.numpy` indexing
and by the derivative rules of sorting and windows.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.core.primitive import Primitive, Roles
from phalanx.core.tangent import is_linear
from phalanx.engine.mlir import hlo, ir, per_context
from phalanx.lax.broadcast import insert, move_dim, skip_batch, zeros
from phalanx.lax.cuts import whole
from phalanx.runtime import dynamic
from phalanx.symbolic import is_constant_shape


class GatherDimensionNumbers(NamedTuple):
    """Which dimensions of operand, indices and result a `gather` connects, as in XLA.

    Args:
      offset_dims: dimensions of the result that run within a slice, increasing.
      collapsed_slice_dims: dimensions of the operand, of slice size 1, that the result does not have.
      start_index_map: for each component of an index vector, the dimension of the operand it addresses.
      operand_batching_dims: dimensions of the operand, of slice size 1, that go in step with dimensions of the indices.
      start_indices_batching_dims: the dimensions of the indices that they go in step with.

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
    """What happens where an index is out of bounds.

    `CLIP` moves the slice into bounds. `FILL_OR_DROP` reads a fill value there, and drops what is written there.
    `PROMISE_IN_BOUNDS` says that it never happens; a broken promise reads or writes somewhere in bounds, or nowhere.

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
    def from_any(mode: Any) -> GatherScatterMode:
        """The mode of that name: `"clip"`, `"fill"` or `"drop"`, `"promise_in_bounds"`; None means to fill or drop.

        Args:
          mode: a name, a mode, or None.

        Returns:
          The mode.

        Raises:
          ArgumentError: there is no such mode.

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
                mend="use one of these",
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
    """Refuse indices that are no integers or have no dimension for the index vectors."""
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise DTypeError(
            f"{where} indices",
            expected="integers",
            got=indices.str_short(),
            mend="convert them with lax.convert_element_type",
        )
    if not indices.ndim:
        raise ShapeError(
            f"{where} indices",
            expected="a last dimension that holds the index vectors",
            got=indices.str_short(),
            mend="reshape the index to (1,)",
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
    """The checks that gather and scatter share: dimension numbers against operand and indices."""
    gone = (*removed, *batching)
    addressed = (*index_map, *batching)
    for name, dims, bound in (
        ("dimensions without a window", gone, x.ndim),
        ("addressed dimensions", addressed, x.ndim),
        ("batching dimensions of the indices", indices_batching, indices.ndim - 1),
    ):
        if len(set(dims)) != len(dims) or not all(0 <= d < bound for d in dims):
            raise ShapeError(
                f"{where} {name}",
                expected=f"different dimensions in [0, {bound})",
                got=dims,
                mend="name each dimension once, counted from the front",
            )
    if indices.shape[-1] != len(index_map):
        raise ShapeError(
            f"{where} indices",
            expected=f"a last dimension of size {len(index_map)}, one component for each addressed dimension",
            got=indices.str_short(),
            mend="reshape or concatenate the indices",
        )
    if [x.shape[d] for d in batching] != [indices.shape[d] for d in indices_batching]:
        raise ShapeError(
            f"{where} batching dimensions",
            expected="equal sizes in operand and indices",
            got=f"{batching} of {x.str_short()} and {indices_batching} of {indices.str_short()}",
            mend="name dimensions that go in step",
        )
    if len(sizes) != x.ndim:
        raise ShapeError(
            f"{where} slice sizes",
            expected=f"one for each of the {x.ndim} dimensions of {x.str_short()}",
            got=tuple(sizes),
            mend="give the size of the slice along every dimension",
        )
    for d, (n, size) in enumerate(zip(x.shape, sizes, strict=True)):
        if size is n or size == n:
            continue
        if size > n or size < 0 or (d in gone and size > 1):
            raise ShapeError(
                f"{where} slice size of dimension {d}",
                expected="1" if d in gone else f"a size in [0, {n}]",
                got=size,
                mend="slices are no larger than the operand",
            )


class WindowNames(NamedTuple):
    """Names of dimensions for the roles of gather and scatter."""

    operand: list
    indices: list
    outside: list  # of the result of a gather, or the updates of a scatter
    whole: set


def window_names(
    x: ShapedArray,
    indices: ShapedArray,
    ndim: int,
    window_dims: tuple,
    removed: tuple,
    batching: tuple,
    indices_batching: tuple,
    sizes: Sequence,
) -> WindowNames:
    """Dimensions of windows that span the operand are one index with it; batch dimensions are one with the indices'."""
    batch = [f"i{d}" for d in range(indices.ndim - 1)]
    operand = [f"x{d}" for d in range(x.ndim)]
    for d, i in zip(batching, indices_batching, strict=True):
        operand[d] = batch[i]
    outside: list = [None] * ndim
    spanned = set()
    kept = [d for d in range(x.ndim) if d not in removed and d not in batching]
    for o, d in zip(window_dims, kept, strict=True):
        outside[o] = operand[d] if sizes[d] == x.shape[d] else f"w{d}"
        spanned.add(outside[o])
    names = iter(batch)
    outside = [next(names) if name is None else name for name in outside]
    whole = {name for name in operand if name not in spanned and name not in batch}
    whole |= {name for name in outside if name[0] == "w"}
    return WindowNames(operand, [*batch, "vector"], outside, whole | {"vector"})


def wide_indices(indices: Any, aval: ShapedArray, largest: Any, ctx: Any) -> tuple[Any, Any]:
    """Indices in a type that can hold `largest` and negative numbers, and that type."""
    signed = dtypes.issubdtype(aval.dtype, np.signedinteger)
    if signed and np.iinfo(aval.dtype).max >= largest and aval.dtype.itemsize >= 4:
        return indices, aval
    if aval.dtype.itemsize >= 8:
        return indices, aval  # no wider type; unsigned comparison with a bound that fits is right
    wide = aval.with_dtype(np.dtype(np.int64 if aval.dtype == np.uint32 or largest > 2**31 - 1 else np.int32))
    return hlo.convert(ctx.type(wide), indices), wide


def largest_size(x: ShapedArray, index_map: tuple) -> int:
    """The greatest number that indices have to reach; symbolic sizes are taken to be below 2**31."""
    return max([n if type(n) is int else 2**31 - 1 for n in (x.shape[d] for d in index_map)], default=0)


def last_starts(x: ShapedArray, index_map: tuple, sizes: Sequence) -> list:
    """The largest start of a slice that is in bounds, for each component of the index vectors."""
    return [x.shape[d] - sizes[d] for d in index_map]


class Gather(Primitive, name="gather"):
    """Slices of `x` that start at the given indices: any[*x], int[*batch, k] -> any[*batch and *offset]."""

    def result(self, x, indices, *, dimension_numbers, slice_sizes, **_):
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
                mend="name a dimension of the result for each dimension of a slice that is not collapsed",
            )
        inside, outside = iter(sizes), iter(indices.shape[:-1])
        return x.with_shape(tuple([next(inside) if d in offset else next(outside) for d in range(ndim)]))

    def roles(self, x, indices, *, dimension_numbers, slice_sizes, **_):
        offset, collapsed, _, batching, indices_batching = dimension_numbers
        ndim = len(offset) + indices.ndim - 1
        names = window_names(x, indices, ndim, offset, collapsed, batching, indices_batching, slice_sizes)
        return Roles([names.operand, names.indices], [names.outside], whole=names.whole)

    def lower(
        self, ctx, x, indices, *, dimension_numbers, slice_sizes, indices_are_sorted, unique_indices, mode, fill_value
    ):
        offset, collapsed, index_map, batching, indices_batching = dimension_numbers
        x_aval, i_aval = ctx.avals_in
        largest = largest_size(x_aval, index_map)
        indices, i_aval = wide_indices(indices, i_aval, largest, ctx)
        numbers = _dimension_numbers(dimension_numbers, i_aval.ndim - 1)
        if len(index_map) > 1:  # XLA takes the parts of an index for as many as there are.
            indices = whole(ctx, indices, [i_aval.ndim - 1])
        if is_constant_shape(slice_sizes):
            slices = hlo.gather(
                x, indices, numbers, ir.DenseI64ArrayAttr.get(list(slice_sizes)), indices_are_sorted=indices_are_sorted
            )
        else:
            attributes = {"dimension_numbers": numbers, "indices_are_sorted": ir.BoolAttr.get(indices_are_sorted)}
            slices = ctx.op(hlo.DynamicGatherOp, x, indices, dynamic.sizes(ctx, slice_sizes), **attributes)
        if mode is not FILL_OR_DROP or not index_map:
            return slices  # StableHLO clips by itself
        valid = _in_bounds(ctx, indices, i_aval, last_starts(x_aval, index_map, slice_sizes))
        out = ctx.aval_out
        outside = [d for d in range(out.ndim) if d not in offset]
        if offset:
            valid = ctx.broadcast(valid, ShapedArray(out.shape, np.dtype(bool)), outside)
        return hlo.select(valid, slices, ctx.constant(fill_for(out.dtype, fill_value), out))

    def jvp(self, primals, tangents, *, fill_value, **params):
        x, indices = primals
        return self(x, indices, **params, fill_value=fill_value), self(tangents[0], indices, **params, fill_value=0)

    def transpose(self, y_bar, x, indices, *, dimension_numbers, slice_sizes, fill_value, **params):
        from phalanx.lax.scatter import ScatterDimensionNumbers, scatter_add_p

        if not is_linear(x):
            return None, None
        numbers = ScatterDimensionNumbers(*dimension_numbers)
        return scatter_add_p(zeros(x.aval), indices, y_bar, dimension_numbers=numbers, **params), None

    def batch(
        self, x, indices, bx, bi, *, dimension_numbers, slice_sizes, indices_are_sorted, unique_indices, **params
    ):
        offset, collapsed, index_map, batching, indices_batching = dimension_numbers
        if bi is not None and bi == np.ndim(indices) - 1:
            indices, bi = move_dim(indices, bi, 0), 0
        if bx is not None:
            collapsed, index_map, batching = (skip_batch(d, bx) for d in (collapsed, index_map, batching))
            slice_sizes = insert(slice_sizes, bx, np.shape(x)[bx] if bi is None else 1)
        num_batch = np.ndim(indices) - 1 - (bi is not None)
        if bi is not None:
            indices_batching = skip_batch(indices_batching, bi)
            ndim = len(offset) + num_batch
            out = [d for d in [*(d for d in range(ndim) if d not in offset), ndim]][bi]
            offset = skip_batch(offset, out)
            indices_are_sorted = False
            if bx is not None:
                batching, indices_batching = paired((*batching, bx), (*indices_batching, bi))
            else:
                unique_indices = False
        else:
            kept = sum(d < bx for d in range(np.ndim(x)) if d not in collapsed and d not in batching)
            out = offset[kept] if kept < len(offset) else len(offset) + num_batch
            offset = (*skip_batch(offset, out)[:kept], out, *skip_batch(offset, out)[kept:])
        y = self(
            x,
            indices,
            dimension_numbers=GatherDimensionNumbers(offset, collapsed, index_map, batching, indices_batching),
            slice_sizes=slice_sizes,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            **params,
        )
        return y, out


gather_p = Gather()


@per_context
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


def paired(dims: tuple, others: tuple) -> tuple[tuple, tuple]:
    """Two tuples that belong together, both in increasing order of the first, as StableHLO wants them."""
    order = sorted(zip(dims, others, strict=True))
    return tuple(d for d, _ in order), tuple(o for _, o in order)


def fill_for(dtype: Any, fill_value: Any) -> Any:
    """The value read out of bounds: the one given, else the largest or smallest number, or NaN."""
    if fill_value is not None:
        return fill_value
    if dtypes.issubdtype(dtype, np.inexact):
        return np.nan
    if dtypes.issubdtype(dtype, np.signedinteger):
        return dtypes.iinfo(dtype).min
    return True if dtype == np.dtype(bool) else dtypes.iinfo(dtype).max


def limits(ctx: Any, aval: ShapedArray, last: Sequence) -> Any:
    """The largest valid starts, spread over all index vectors."""
    dims = [aval.ndim - 1]
    if not is_constant_shape(last):
        vector = ShapedArray((len(last),), aval.dtype)
        return ctx.broadcast(hlo.convert(ctx.type(vector), dynamic.sizes(ctx, last)), aval, dims)
    known = np.minimum(np.asarray(last, np.int64), np.iinfo(aval.dtype).max).astype(aval.dtype)
    same = len(set(known.tolist())) == 1
    return ctx.constant(known[0], aval) if same else ctx.broadcast(ctx.constant(known), aval, dims)


def _in_bounds(ctx: Any, indices: Any, aval: ShapedArray, last: Sequence) -> Any:
    """For each index vector, whether all its components are in [0, last]."""
    high, dims = limits(ctx, aval, last), [aval.ndim - 1]
    signed = dtypes.issubdtype(aval.dtype, np.signedinteger)
    kind = hlo.ComparisonTypeAttr.get("SIGNED" if signed else "UNSIGNED")
    valid = hlo.compare(indices, high, hlo.ComparisonDirectionAttr.get("LE"), compare_type=kind)
    if signed:
        above = hlo.compare(indices, ctx.constant(0, aval), hlo.ComparisonDirectionAttr.get("GE"), compare_type=kind)
        valid = hlo.and_(above, valid)
    vector = ShapedArray(aval.shape[:-1], np.dtype(bool))
    if len(last) == 1:
        return ctx.reshape(valid, vector)
    return ctx.reduce(hlo.AndOp, valid, True, dims, aval=vector)


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
) -> Any:
    """Collect slices of an array that start at the given places: the general form of indexing.

    Args:
      operand: the array that is read.
      start_indices: `int[*batch, k]`, index vectors of `k` components in the last dimension.
      dimension_numbers: a `GatherDimensionNumbers`.
      slice_sizes: the size of a slice along each dimension of `operand`.
      unique_indices: the promise that no two slices overlap, which makes the derivative cheaper.
      indices_are_sorted: the promise that index vectors increase.
      mode: what happens where a slice is out of bounds, as in `GatherScatterMode`; `"clip"` when left out.
      fill_value: what is read there; NaN, or the smallest (signed) or largest (unsigned) integer, when left out.

    Returns:
      An array with the batch dimensions of the indices and, at `offset_dims`, the dimensions of a slice.

    Raises:
      ShapeError: the dimension numbers do not fit the operands.
      DTypeError: the indices are no integers.

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


def index_take(src: Any, idxs: Any, axes: Sequence[int]) -> Any:
    """The elements, or slices, at places given by one index array for each of some dimensions.

    Args:
      src: the array that is read.
      idxs: integer arrays `int[n]`, one for each entry of `axes`; a negative index counts from the end.
      axes: the dimensions they address.

    Returns:
      An array whose first dimension runs over the `n` places, followed by the dimensions of `src` not in `axes`.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.index_take(np.arange(6).reshape(3, 2), [np.array([2, -3])], (0,)).tolist()
      [[4, 5], [0, 1]]
    """
    from phalanx.lax.arithmetic import add
    from phalanx.lax.comparison import lt
    from phalanx.lax.select import select
    from phalanx.lax.shape import concatenate, reshape

    aval = aval_of(src)
    axes = tuple(axes)
    columns = []
    for index, axis in zip(idxs, axes, strict=True):
        if dtypes.issubdtype(aval_of(index).dtype, np.signedinteger):
            index = select(lt(index, 0), add(index, aval.shape[axis]), index)
        columns.append(reshape(index, (*aval_of(index).shape, 1)))
    indices = columns[0] if len(columns) == 1 else concatenate(columns, 1)
    numbers = GatherDimensionNumbers(tuple(range(1, aval.ndim - len(axes) + 1)), tuple(sorted(axes)), axes)
    sizes = tuple(1 if d in axes else n for d, n in enumerate(aval.shape))
    return gather(src, indices, numbers, sizes)
