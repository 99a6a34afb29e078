"""Updates of slices at computed indices: the scatter family.

The base class `ScatterPrimitive` has the type rule, sharding rule, lowering and batching of all scatters; each
primitive adds the operation that combines old and new elements, and its derivative. Called by the `at[...]` updates of
`phalanx.numpy`; over several devices, `phalanx.partitioner.indexing_rules` takes the place of the `lower` rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import (
    DTypeError,
    Primitive,
    RuleError,
    ShapedArray,
    ShapeError,
    ShardingRule,
    Zero,
    dtypes,
    get_aval,
    instantiate,
    is_linear,
    run_jaxpr,
    trace_to_jaxpr,
)
from phalanx.engine import cached_per_context, hlo, ir, memoize
from phalanx.lax.elementwise import add, convert_element_type, div, eq, mul, neg, select, set_name_and_doc
from phalanx.lax.indexing.gather import (
    CLIP,
    Gather,
    GatherDimensionNumbers,
    GatherScatterMode,
    broadcast_max_starts,
    check_indices,
    check_window_dims,
    gather_p,
    largest_indexed_size,
    max_start_indices,
    name_window_dims,
    sort_batching_dims,
    widen_indices,
)
from phalanx.lax.shape import add_dim, drop_dims, insert_dim, move_dim, reshape, shift_past_batch, zeros
from phalanx.lax.shape.iota_and_full import full, iota
from phalanx.runtime import Array, LoweringContext
from phalanx.transforms import jvp, vmap
from phalanx.typing import ArrayLike


class ScatterDimensionNumbers(NamedTuple):
    """The correspondence of dimensions of operand, indices and updates in a scatter, as in XLA.

    Args:
      update_window_dims: dimensions of the updates that index into a slice, in increasing order.
      inserted_window_dims: dimensions of the operand with slice size 1 that the updates lack.
      scatter_dims_to_operand_dims: for each component of an index vector, the dimension of the operand it addresses.
      operand_batching_dims: batch dimensions of the operand.
      scatter_indices_batching_dims: the corresponding batch dimensions of the indices.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> numbers = ScatterDimensionNumbers((), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
      >>> lax.scatter_add(jnp.zeros(3), jnp.array([[2], [2]]), jnp.ones(2), numbers).tolist()
      [0.0, 0.0, 2.0]
    """

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


def window_sizes(ndim: int, updates_shape: Sequence, numbers: ScatterDimensionNumbers) -> tuple:
    """The size of an update's slice along each dimension of the operand."""
    window, inserted, _, batching, _ = numbers
    sizes = iter([updates_shape[d] for d in window])
    return tuple([1 if d in inserted or d in batching else next(sizes) for d in range(ndim)])


class ScatterPrimitive(Primitive):
    """Base of the scatter family: any[*x], int[*batch, k], any[*batch and *window] -> any[*x]."""

    operation: Any = None  # combines old and new element in the body; None to take the new one

    @property
    def combines_updates(self) -> bool:
        """Whether elements of the result are sums, or other reductions, of several updates."""
        return self.operation is not None

    def abstract_eval(self, x, indices, updates, *, dimension_numbers, **_):
        window, inserted, index_map, batching, indices_batching = dimension_numbers
        where = f"lax.{self.name.replace('-', '_')}"
        check_indices(where, indices)
        if updates.dtype != x.dtype:
            raise DTypeError(
                f"{where} updates",
                expected=f"the operand's dtype, that of {x.str_short()}",
                got=updates.str_short(),
                fix="convert them with lax.convert_element_type",
            )
        ndim = len(window) + indices.ndim - 1
        if updates.ndim != ndim or list(window) != sorted(set(window)) or any(not 0 <= d < ndim for d in window):
            raise ShapeError(
                f"{where} update_window_dims",
                expected=f"increasing dimensions of updates of rank {ndim}: those of a slice beside the "
                f"{indices.ndim - 1} of the indices",
                got=f"{tuple(window)} for updates {updates.str_short()}",
                fix="name a dimension of the updates for each dimension of a slice that is not inserted",
            )
        if len(window) + len(inserted) + len(batching) != x.ndim:
            raise ShapeError(
                f"{where} dimension numbers",
                expected=f"each of the {x.ndim} dimensions of {x.str_short()} in a window, inserted, or batching",
                got=dimension_numbers,
                fix="name every dimension of the operand once",
            )
        sizes = window_sizes(x.ndim, updates.shape, dimension_numbers)
        check_window_dims(where, x, indices, inserted, batching, indices_batching, index_map, sizes)
        if drop_dims(updates.shape, window) != indices.shape[:-1]:
            raise ShapeError(
                f"{where} updates",
                expected=f"dimensions {indices.shape[:-1]} outside the windows, as the indices have",
                got=updates.str_short(),
                fix=f"broadcast the updates to dimensions {indices.shape[:-1]} outside the windows",
            )
        return x.update(weak_type=x.weak_type and updates.weak_type)

    def sharding_rule(self, x, indices, updates, *, dimension_numbers, **_):
        window, inserted, _, batching, indices_batching = dimension_numbers
        sizes = window_sizes(x.ndim, updates.shape, dimension_numbers)
        names = name_window_dims(x, indices, updates.ndim, window, inserted, batching, indices_batching, sizes)
        # Index vectors along an unbatched dimension may address any element, so they need the whole operand.
        unpaired = {n for i, n in enumerate(names.indices[:-1]) if i not in indices_batching}
        return ShardingRule(
            [names.operand, names.indices, names.outside], [names.operand], whole=names.whole | unpaired
        )

    def combine(self, ctx, old, new):
        """Emit the combination of an element of the operand with an element of the updates."""
        return new if self.operation is None else self.operation(old, new).result

    def lower(self, ctx, x, indices, updates, *, dimension_numbers, indices_are_sorted, unique_indices, mode, **params):
        indices, i_aval = clip_indices(ctx, indices, dimension_numbers, mode)
        op = hlo.ScatterOp(
            [ctx.type(ctx.aval_out)],
            [x],
            indices,
            [updates],
            _dimension_numbers(dimension_numbers, i_aval.ndim - 1),
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
        )
        scalar = ShapedArray((), ctx.aval_out.dtype)
        ctx.region([scalar, scalar], op, lambda old, new: self.combine(ctx, old, new, **params))
        return op.result

    def batch(self, x, indices, updates, bx, bi, bu, *, dimension_numbers, indices_are_sorted, **params):
        window, inserted, index_map, batching, indices_batching = dimension_numbers
        size = next(np.shape(v)[b] for v, b in ((x, bx), (indices, bi), (updates, bu)) if b is not None)
        # The result is mapped in any case, so an unmapped operand is broadcast.
        if bx is None:
            x, bx = add_dim(x, 0, size), 0
        inserted, index_map, batching = (shift_past_batch(d, bx) for d in (inserted, index_map, batching))
        if bi is None:
            # The indices are the same for all examples, so the mapped dimension becomes part of the slice, before the
            # dimensions of the slice that follow it in the operand.
            if bu is None:
                updates, bu = add_dim(updates, 0, size), 0
            kept = sum(d < bx for d in range(np.ndim(x)) if d not in inserted and d not in batching)
            out = window[kept] if kept < len(window) else np.ndim(updates) - 1
            window = insert_dim(shift_past_batch(window, out), kept, out)
        else:
            if bi == np.ndim(indices) - 1:
                indices, bi = move_dim(indices, bi, 0), 0
            # The mapped dimension of the indices is a batch dimension, and its position in the updates is that of the
            # batch dimensions outside the window.
            ndim = len(window) + np.ndim(indices) - 2
            out = [*(d for d in range(ndim) if d not in window), ndim][bi]
            window = shift_past_batch(window, out)
            batching, indices_batching = sort_batching_dims(
                (*batching, bx), (*shift_past_batch(indices_batching, bi), bi)
            )
            # Indices of different examples are not sorted relative to each other.
            indices_are_sorted = False
        updates = add_dim(updates, out, size) if bu is None else move_dim(updates, bu, out)
        return self(
            x,
            indices,
            updates,
            dimension_numbers=ScatterDimensionNumbers(window, inserted, index_map, batching, indices_batching),
            indices_are_sorted=indices_are_sorted,
            **params,
        ), bx


def clip_indices(
    ctx: LoweringContext, indices: ir.Value, dimension_numbers: ScatterDimensionNumbers, mode: GatherScatterMode
) -> tuple[ir.Value, ShapedArray]:
    """Convert indices to an integer type that is wide enough, and clamp them in mode CLIP; returns their type as well.

    In the other modes StableHLO drops updates that are out of bounds.
    """
    x_aval, i_aval, u_aval = ctx.avals_in
    index_map = dimension_numbers.scatter_dims_to_operand_dims
    indices, i_aval = widen_indices(indices, i_aval, largest_indexed_size(x_aval, index_map), ctx)
    if mode is CLIP and index_map:
        last = max_start_indices(x_aval, index_map, window_sizes(x_aval.ndim, u_aval.shape, dimension_numbers))
        indices = hlo.clamp(ctx.constant(0, i_aval), indices, broadcast_max_starts(ctx, i_aval, last))
    return indices, i_aval


@cached_per_context
def _dimension_numbers(numbers: ScatterDimensionNumbers, index_vector_dim: int) -> Any:
    window, inserted, index_map, batching, indices_batching = map(list, numbers)
    return hlo.ScatterDimensionNumbers.get(
        update_window_dims=window,
        inserted_window_dims=inserted,
        input_batching_dims=batching,
        scatter_indices_batching_dims=indices_batching,
        scattered_dims_to_operand_dims=index_map,
        index_vector_dim=index_vector_dim,
    )


def _gathered(
    x: ArrayLike, indices: ArrayLike, updates: ArrayLike, *, dimension_numbers: ScatterDimensionNumbers, **params: Any
) -> Any:
    """Gather the elements of `x` that the updates address; zeros where updates are dropped."""
    return gather_p(
        x,
        indices,
        dimension_numbers=GatherDimensionNumbers(*map(tuple, dimension_numbers)),
        slice_sizes=window_sizes(np.ndim(x), np.shape(updates), dimension_numbers),
        **params,
        fill_value=0,
    )


def _is_unique(indices: ArrayLike, unique_indices: bool) -> bool:
    """Whether no two index vectors are equal, by promise or because there is only one."""
    return unique_indices or all(n == 1 for n in np.shape(indices)[:-1])


def _last_write(x: ArrayLike, indices: ArrayLike, updates: ArrayLike, **params: Any) -> tuple[Any, Any]:
    """Masks of the operand's elements without an update, and of the updates that are not overwritten by others.

    The updates are numbered, and the numbers are scattered. An update was not overwritten if its number is gathered
    back from its index.
    """
    # Numbers start at 1, so that 0 in the result marks elements without an update.
    shape = np.shape(updates)
    numbers = add(reshape(iota(np.int32, int(np.prod(shape))), shape), np.int32(1))
    written = scatter_p(full(np.shape(x), 0, np.int32), indices, numbers, **params)
    return eq(written, np.int32(0)), eq(_gathered(written, indices, updates, **params), numbers)


class Scatter(ScatterPrimitive, name="scatter"):
    """Replace elements by updates; of several updates of one element, any one remains."""

    def jvp(self, primals, tangents, **params):
        x, indices, updates = primals
        x_dot, _, u_dot = map(instantiate, tangents)
        # Without repeated indices the operation is linear in operand and updates together.
        if _is_unique(indices, params["unique_indices"]):
            return self(x, indices, updates, **params), self(x_dot, indices, u_dot, **params)
        # Value and tangent must come from the same one of several updates of an element.
        untouched, stays = _last_write(x, indices, updates, **params)

        def write(x: ArrayLike, updates: ArrayLike) -> Any:
            # Elements with an update are cleared, and the one remaining update is added to zero.
            kept = select(untouched, x, zeros(get_aval(x)))
            return scatter_add_p(kept, indices, select(stays, updates, zeros(get_aval(updates))), **params)

        return write(x, updates), write(x_dot, u_dot)

    def transpose(self, y_bar, x, indices, updates, **params):
        x_bar = u_bar = None
        if is_linear(x):
            # An element with an update does not depend on the operand, so its cotangent is zero.
            x_bar = self(y_bar, indices, full(np.shape(updates), 0, y_bar.dtype), **params)
        if is_linear(updates):
            u_bar = _gathered(y_bar, indices, updates, **params)
            if not _is_unique(indices, params["unique_indices"]):
                _, stays = _last_write(x, indices, updates, **params)
                u_bar = select(stays, u_bar, zeros(get_aval(u_bar)))
        return x_bar, None, u_bar


scatter_p = Scatter()


class _LinearScatter(ScatterPrimitive):
    linear_in = ((0, 2),)

    def jvp(self, primals, tangents, **params):
        # The operation is linear in operand and updates together.
        x, indices, updates = primals
        x_dot, _, u_dot = tangents
        y = self(x, indices, updates, **params)
        # Without a tangent of the updates the tangent of the operand passes through.
        return y, x_dot if type(u_dot) is Zero else self(instantiate(x_dot), indices, u_dot, **params)

    def transpose(self, y_bar, x, indices, updates, **params):
        u_bar = _gathered(y_bar, indices, updates, **params) if is_linear(updates) else None
        return (y_bar if is_linear(x) else None), None, u_bar


class ScatterAdd(_LinearScatter, name="scatter_add"):
    """Add updates to elements; all updates of an element are added."""

    operation = hlo.AddOp


scatter_add_p = ScatterAdd()


def _transpose_gather(
    self: Primitive,
    y_bar: Array,
    x: ArrayLike,
    indices: ArrayLike,
    *,
    dimension_numbers: GatherDimensionNumbers,
    **params: Any,
) -> tuple:
    """Add the cotangents of slices to the elements from which the slices were gathered."""
    if not is_linear(x):
        return None, None
    # The fill value is a constant: out of bounds nothing was read, so nothing is added.
    del params["fill_value"], params["slice_sizes"]
    numbers = ScatterDimensionNumbers(*dimension_numbers)
    return scatter_add_p(zeros(x.aval), indices, y_bar, dimension_numbers=numbers, **params), None


# Gather and scatter-add are transposes of each other. The rule is set here, since this module builds on `gather`.
Gather.transpose = _transpose_gather


class ScatterSub(_LinearScatter, name="scatter_sub"):
    """Subtract updates from elements; all updates of an element are subtracted."""

    operation = hlo.SubtractOp

    def transpose(self, y_bar, x, indices, updates, **params):
        x_bar, _, u_bar = super().transpose(y_bar, x, indices, updates, **params)
        return x_bar, None, None if u_bar is None else neg(u_bar)


scatter_sub_p = ScatterSub()


class ScatterMul(ScatterPrimitive, name="scatter_mul"):
    """Multiply elements by updates; an element is multiplied by all its updates."""

    operation = hlo.MulOp

    def jvp(self, primals, tangents, **params):
        x, indices, updates = primals
        x_dot, _, u_dot = tangents
        y = self(x, indices, updates, **params)
        y_dot = x_dot if type(x_dot) is Zero else self(x_dot, indices, updates, **params)
        if type(u_dot) is not Zero:
            # With two updates the derivative with respect to one is x times the other, and a scatter cannot compute for
            # each update the product of the others.
            _require_unique("scatter_mul", indices, params)
            from_updates = mul(u_dot, _gathered(x, indices, updates, **params))
            y_dot = scatter_add_p(instantiate(y_dot), indices, from_updates, **params)
        return y, y_dot

    def transpose(self, y_bar, x, indices, updates, **params):
        if is_linear(x):
            return self(y_bar, indices, updates, **params), None, None
        _require_unique("scatter_mul", indices, params)
        return None, None, _gathered(mul(y_bar, x), indices, updates, **params)


scatter_mul_p = ScatterMul()


def _require_unique(name: str, indices: ArrayLike, params: dict) -> None:
    if not _is_unique(indices, params["unique_indices"]):
        raise RuleError(
            f"derivative of lax.{name} with respect to the updates",
            expected="unique_indices=True",
            got="indices that may repeat",
            fix="promise unique_indices=True if no index vector repeats",
        )


class _ScatterExtremum(ScatterPrimitive):
    def jvp(self, primals, tangents, **params):
        x, indices, updates = primals
        x_dot, _, u_dot = map(instantiate, tangents)
        y = self(x, indices, updates, **params)
        # The tangent is the mean of the tangents of the element and the updates that equal the extremum. If that is
        # NaN, none equals it, and the quotient below is 0 / 0, hence NaN. The extremum is gathered to compare it with
        # each update.
        x_wins, u_wins = eq(x, y), eq(updates, _gathered(y, indices, updates, **params))
        of_x, of_u = (convert_element_type(wins, get_aval(x).dtype) for wins in (x_wins, u_wins))
        # The number of values that equal the extremum.
        winners = scatter_add_p(of_x, indices, of_u, **params)
        x_dot, u_dot = (select(wins, t, zeros(get_aval(t))) for wins, t in ((x_wins, x_dot), (u_wins, u_dot)))
        return y, div(scatter_add_p(x_dot, indices, u_dot, **params), winners)


class ScatterMin(_ScatterExtremum, name="scatter_min"):
    """The minimum of each element and its updates."""

    operation = hlo.MinOp


class ScatterMax(_ScatterExtremum, name="scatter_max"):
    """The maximum of each element and its updates."""

    operation = hlo.MaxOp


scatter_min_p = ScatterMin()
scatter_max_p = ScatterMax()


class ScatterApply(ScatterPrimitive, name="scatter_apply"):
    """Apply a scalar function to elements, once for each update; the values of the updates are not read."""

    def combine(self, ctx, old, new, *, program):
        return ctx.emit(program, [old])[0]

    def jvp(self, primals, tangents, *, program, **params):
        x, indices, updates = primals
        y = self(x, indices, updates, program=program, **params)
        x_dot = tangents[0]
        if type(x_dot) is Zero:
            return y, x_dot
        # With two updates an element becomes f(f(x)), and the derivative f'(f(x)) f'(x) needs the intermediate value
        # f(x), which a scatter does not return.
        _require_unique("scatter_apply", indices, params)
        here, here_dot = (_gathered(v, indices, updates, **params) for v in (x, x_dot))
        # The scalar derivative is mapped over a flat array, which is one batch dimension instead of several.
        derivative = vmap(lambda v, t: jvp(lambda v: run_jaxpr(program, v)[0], (v,), (t,))[1])
        flat = (int(np.prod(np.shape(here))),)
        new_dot = derivative(reshape(here, flat), reshape(here_dot, flat))
        return y, scatter_p(x_dot, indices, reshape(new_dot, np.shape(here)), **params)


scatter_apply_p = ScatterApply()


def _params(
    numbers: ScatterDimensionNumbers,
    indices_are_sorted: bool,
    unique_indices: bool,
    mode: str | GatherScatterMode | None,
) -> dict:
    if type(numbers) is not ScatterDimensionNumbers or type(numbers.update_window_dims) is not tuple:
        numbers = ScatterDimensionNumbers(*(tuple(map(int, dims)) for dims in numbers))
    return {
        "dimension_numbers": numbers,
        "indices_are_sorted": bool(indices_are_sorted),
        "unique_indices": bool(unique_indices),
        "mode": GatherScatterMode.from_any(mode),
    }


_SCATTER = """{words}

Args:
  operand: the array to update.
  scatter_indices: `int[*batch, k]`, index vectors of `k` components in the last dimension.
  updates: the slices, with the dtype of `operand`.
  dimension_numbers: a `ScatterDimensionNumbers`.
  indices_are_sorted: promise that the index vectors are in increasing order.
  unique_indices: promise that no two slices overlap.
  mode: the treatment of slices that are out of bounds, see `GatherScatterMode`; `"drop"` by default.

Returns:
  The updated array.

Raises:
  ShapeError: the dimension numbers do not match the operands.
  DTypeError: the indices are not integers, or the dtypes of updates and operand differ.

Examples:
  >>> import numpy as np
  >>> from phalanx import lax
  >>> points = lax.ScatterDimensionNumbers((), (0,), (0,))
  >>> lax.{name}(np.ones(3, int), np.array([[2], [2]]), np.array([7, 7]), points).tolist()
  {value}
"""


def _scattering(primitive: Primitive, words: str, value: str) -> Any:
    """Make the public function of a scatter primitive; `value` is the result of its example."""

    def function(
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
    ) -> Any:
        params = _params(dimension_numbers, indices_are_sorted, unique_indices, mode)
        return primitive(operand, scatter_indices, updates, **params)

    name = primitive.name
    return set_name_and_doc(function, name, _SCATTER.format(words=words, name=name, value=value))


scatter = _scattering(
    scatter_p,
    "Replace slices of an array at the given indices; where slices overlap, any of them remains.",
    "[1, 1, 7]",
)
scatter_add = _scattering(
    scatter_add_p, "Add to slices of an array at the given indices; overlapping updates are all added.", "[1, 1, 15]"
)
scatter_sub = _scattering(
    scatter_sub_p,
    "Subtract from slices of an array at the given indices; overlapping updates are all subtracted.",
    "[1, 1, -13]",
)
scatter_mul = _scattering(
    scatter_mul_p,
    "Multiply slices of an array at the given indices; differentiation in the updates needs `unique_indices`.",
    "[1, 1, 49]",
)
scatter_min = _scattering(
    scatter_min_p, "Take the minimum of slices of an array and updates at the given indices.", "[1, 1, 1]"
)
scatter_max = _scattering(
    scatter_max_p, "Take the maximum of slices of an array and updates at the given indices.", "[1, 1, 7]"
)


@memoize("lax.scatter_combiners", 512)
def _program_of(func: Callable, dtype: np.dtype) -> Any:
    return trace_to_jaxpr(lambda x: [func(x)], [ShapedArray((), dtype)], "scatter_apply")


def scatter_apply(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    func: Callable,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Any:
    """Apply a function to the elements of an array at the given indices.

    Args:
      operand: the array to update.
      scatter_indices, dimension_numbers, indices_are_sorted, unique_indices, mode: as in `scatter`.
      func: maps a scalar to a scalar of the same dtype; applied to an element once for each index vector.
      update_shape: the shape of the corresponding updates of the other scatters.

    Returns:
      The updated array. Differentiation needs `unique_indices`.

    Raises:
      DTypeError: `func` changes the dtype.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> points = lax.ScatterDimensionNumbers((), (0,), (0,))
      >>> lax.scatter_apply(np.ones(3), np.array([[2], [0]]), lax.neg, points, update_shape=(2,)).tolist()
      [-1.0, 1.0, -1.0]
    """
    aval = get_aval(operand)
    program = _program_of(func, aval.dtype)
    if program.out_avals[0].dtype != aval.dtype:
        raise DTypeError(
            "lax.scatter_apply func",
            expected=f"a result of dtype {dtypes.short_name(aval.dtype)}",
            got=program.out_avals[0].str_short(),
            fix=f"convert the result of func with lax.convert_element_type(y, {dtypes.short_name(aval.dtype)!r})",
        )
    params = _params(dimension_numbers, indices_are_sorted, unique_indices, mode)
    return scatter_apply_p(
        operand, scatter_indices, full(tuple(update_shape), 0, aval.dtype), **params, program=program
    )
