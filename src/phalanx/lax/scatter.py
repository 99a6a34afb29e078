"""Writing slices at computed places: the scatter family.

One base class holds what setting, adding, multiplying, taking the minimum or maximum, and applying a function share;
each primitive adds its combination and its derivative. Builds on `gather`, whose transpose is here. Called by the
`at[...]` updates of `phalanx.numpy`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import DTypeError, RuleError, ShapeError
from phalanx.core.primitive import Primitive, Roles
from phalanx.core.tangent import Zero, instantiate, is_linear
from phalanx.core.trace import stage
from phalanx.engine.mlir import hlo, per_context
from phalanx.lax.arithmetic import add, div, mul, neg
from phalanx.lax.broadcast import add_dim, move_dim, skip_batch, zeros
from phalanx.lax.comparison import eq
from phalanx.lax.convert import convert_element_type
from phalanx.lax.creation import full, iota
from phalanx.lax.cuts import set_apart, whole
from phalanx.lax.faces import named
from phalanx.lax.gather import (
    CLIP,
    GatherDimensionNumbers,
    GatherScatterMode,
    check_indices,
    check_window_dims,
    gather_p,
    largest_size,
    last_starts,
    limits,
    paired,
    wide_indices,
    window_names,
)
from phalanx.lax.ordered_bits import by_bits, loses_nans
from phalanx.lax.select import select
from phalanx.lax.shape import reshape
from phalanx.symbolic import is_constant_shape


class ScatterDimensionNumbers(NamedTuple):
    """Which dimensions of operand, indices and updates a scatter connects, as in XLA.

    Args:
      update_window_dims: dimensions of the updates that run within a slice, increasing.
      inserted_window_dims: dimensions of the operand, of slice size 1, that the updates do not have.
      scatter_dims_to_operand_dims: for each component of an index vector, the dimension of the operand it addresses.
      operand_batching_dims: dimensions of the operand that go in step with dimensions of the indices.
      scatter_indices_batching_dims: the dimensions of the indices that they go in step with.

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
    """What all scatters share: any[*x], int[*batch, k], any[*batch and *window] -> any[*x]."""

    operation: Any = None  # combines old and new element in the body; None to take the new one
    neutral: Callable | None = None  # of a dtype: what the operation changes nothing from, whatever the order

    def result(self, x, indices, updates, *, dimension_numbers, **_):
        window, inserted, index_map, batching, indices_batching = dimension_numbers
        where = f"lax.{self.name.replace('-', '_')}"
        check_indices(where, indices)
        if updates.dtype != x.dtype:
            raise DTypeError(
                f"{where} updates",
                expected=f"the operand's dtype, that of {x.str_short()}",
                got=updates.str_short(),
                mend="convert them with lax.convert_element_type",
            )
        ndim = len(window) + indices.ndim - 1
        if updates.ndim != ndim or list(window) != sorted(set(window)) or any(not 0 <= d < ndim for d in window):
            raise ShapeError(
                f"{where} update_window_dims",
                expected=f"increasing dimensions of updates of rank {ndim}: those of a slice beside the "
                f"{indices.ndim - 1} of the indices",
                got=f"{tuple(window)} for updates {updates.str_short()}",
                mend="name a dimension of the updates for each dimension of a slice that is not inserted",
            )
        if len(window) + len(inserted) + len(batching) != x.ndim:
            raise ShapeError(
                f"{where} dimension numbers",
                expected=f"each of the {x.ndim} dimensions of {x.str_short()} in a window, inserted, or batching",
                got=dimension_numbers,
                mend="name every dimension of the operand once",
            )
        sizes = window_sizes(x.ndim, updates.shape, dimension_numbers)
        check_window_dims(where, x, indices, inserted, batching, indices_batching, index_map, sizes)
        outer = [n for d, n in enumerate(updates.shape) if d not in window]
        if outer != list(indices.shape[:-1]):
            raise ShapeError(
                f"{where} updates",
                expected=f"dimensions {indices.shape[:-1]} outside the windows, as the indices have",
                got=updates.str_short(),
                mend="broadcast the updates",
            )
        return x.update(weak_type=x.weak_type and updates.weak_type)

    def roles(self, x, indices, updates, *, dimension_numbers, **_):
        window, inserted, _, batching, indices_batching = dimension_numbers
        sizes = window_sizes(x.ndim, updates.shape, dimension_numbers)
        names = window_names(x, indices, updates.ndim, window, inserted, batching, indices_batching, sizes)
        # A dimension of the indices that does not go in step with the operand's meets the whole operand.
        unpaired = {n for i, n in enumerate(names.indices[:-1]) if i not in indices_batching}
        return Roles([names.operand, names.indices, names.outside], [names.operand], whole=names.whole | unpaired)

    def combine(self, ctx, old, new, **params):
        """The body's result for an element of the operand and one of the updates."""
        return new if self.operation is None else self.operation(old, new).result

    def lower(self, ctx, x, indices, updates, *, dimension_numbers, indices_are_sorted, unique_indices, mode, **params):
        window, inserted, index_map, batching, indices_batching = dimension_numbers
        x_aval, i_aval, u_aval = ctx.avals_in
        largest = largest_size(x_aval, index_map)
        indices, i_aval = wide_indices(indices, i_aval, largest, ctx)
        if mode is CLIP and index_map:
            last = last_starts(x_aval, index_map, window_sizes(x_aval.ndim, u_aval.shape, dimension_numbers))
            indices = hlo.clamp(ctx.constant(0, i_aval), indices, limits(ctx, i_aval, last))
        numbers = _dimension_numbers(dimension_numbers, i_aval.ndim - 1)
        if self.neutral is not None and ctx.module.is_split:
            nothing = type(self).neutral(u_aval.dtype)
            indices, updates = _evenly(ctx, (indices, i_aval, -1), (updates, u_aval, nothing), dimension_numbers)
        if is_constant_shape(i_aval.shape):
            indices = whole(ctx, indices, [i_aval.ndim - 1]) if i_aval.shape[-1] > 1 else indices
            if np.prod(i_aval.shape[:-1], dtype=int) <= ctx.module.num_partitions:  # A device may have one only.
                x = set_apart(ctx, x)
        kept = None
        if batching and self.neutral is not None and ctx.module.is_split:
            # XLA, where updates that meet are on several devices, may take the operand from the first of all devices
            # only, though others have other examples.
            kept, x = x, ctx.constant(type(self).neutral(x_aval.dtype), ctx.aval_out)
        op = hlo.ScatterOp(
            [ctx.type(ctx.aval_out)],
            [x],
            indices,
            [updates],
            numbers,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
        )
        scalar = ShapedArray((), x_aval.dtype)
        ctx.region([scalar, scalar], op, lambda old, new: self.combine(ctx, old, new, **params))
        return op.result if kept is None else self.joined(kept, op.result)

    def joined(self, x: Any, scattered: Any) -> Any:
        """The operand with what was scattered into neutral elements."""
        return self.operation(x, scattered).result

    def batch(self, x, indices, updates, bx, bi, bu, *, dimension_numbers, indices_are_sorted, **params):
        window, inserted, index_map, batching, indices_batching = dimension_numbers
        size = next(np.shape(v)[b] for v, b in ((x, bx), (indices, bi), (updates, bu)) if b is not None)
        if bx is None:
            x, bx = add_dim(x, 0, size), 0
        inserted, index_map, batching = (skip_batch(d, bx) for d in (inserted, index_map, batching))
        if bi is None:
            # The same places in each example: the mapped dimension lies within the window.
            if bu is None:
                updates, bu = add_dim(updates, 0, size), 0
            kept = sum(d < bx for d in range(np.ndim(x)) if d not in inserted and d not in batching)
            out = window[kept] if kept < len(window) else np.ndim(updates) - 1
            window = (*skip_batch(window, out)[:kept], out, *skip_batch(window, out)[kept:])
        else:
            if bi == np.ndim(indices) - 1:
                indices, bi = move_dim(indices, bi, 0), 0
            ndim = len(window) + np.ndim(indices) - 2
            out = [*(d for d in range(ndim) if d not in window), ndim][bi]
            window = skip_batch(window, out)
            batching, indices_batching = paired((*batching, bx), (*skip_batch(indices_batching, bi), bi))
            indices_are_sorted = False
        updates = add_dim(updates, out, size) if bu is None else move_dim(updates, bu, out)
        y = self(
            x,
            indices,
            updates,
            dimension_numbers=ScatterDimensionNumbers(window, inserted, index_map, batching, indices_batching),
            indices_are_sorted=indices_are_sorted,
            **params,
        )
        return y, bx


def _evenly(ctx: Any, indices: tuple, updates: tuple, numbers: Any) -> list:
    """Indices and updates, each with its type, filled up with values of no effect until devices have equally many.

    Where they lie unevenly, and not alike, XLA would scatter what it fills them up with.
    """
    shape, ndim = indices[1].shape, updates[1].ndim
    missing = [
        -n % ctx.module.num_partitions if d not in numbers.scatter_indices_batching_dims and static and n > 1 else 0
        for d, n in enumerate(shape[:-1])
        for static in [isinstance(n, int)]
    ]
    outside = [d for d in range(ndim) if d not in numbers.update_window_dims]
    after = dict(zip(outside, missing, strict=True))
    found = []
    for (x, aval, filling), more in zip((indices, updates), ([*missing, 0], [after.get(d, 0) for d in range(ndim)])):
        if any(missing):
            none = [0] * aval.ndim
            x = hlo.pad(x, ctx.constant(filling, ShapedArray((), aval.dtype)), none, more, none)
        found.append(x)
    return found


@per_context
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


def _gathered(x: Any, indices: Any, updates: Any, *, dimension_numbers: Any, **params: Any) -> Any:
    """What is in `x` at the places where `updates` go; zeros where they are dropped."""
    return gather_p(
        x,
        indices,
        dimension_numbers=GatherDimensionNumbers(*map(tuple, dimension_numbers)),
        slice_sizes=window_sizes(np.ndim(x), np.shape(updates), dimension_numbers),
        **params,
        fill_value=0,
    )


def _is_unique(indices: Any, unique_indices: bool) -> bool:
    """Whether no two index vectors are equal, as promised or because there is only one."""
    return unique_indices or all(n == 1 for n in np.shape(indices)[:-1])


def _last_write(x: Any, indices: Any, updates: Any, **params: Any) -> tuple[Any, Any]:
    """Where several updates meet, which one stays: masks of the untouched operand and of the updates that stay.

    Each update is numbered and the numbers are scattered; an update stays where its own number is found again.
    """
    shape = np.shape(updates)
    numbers = add(reshape(iota(np.int32, int(np.prod(shape))), shape), np.int32(1))
    written = scatter_p(full(np.shape(x), 0, np.int32), indices, numbers, **params)
    return eq(written, np.int32(0)), eq(_gathered(written, indices, updates, **params), numbers)


def _nothing(dtype: Any) -> Any:
    return 0


def _one(dtype: Any) -> Any:
    return 1


class Scatter(ScatterPrimitive, name="scatter"):
    """Elements replaced by updates; where updates meet, one of them stays."""

    def jvp(self, primals, tangents, **params):
        x, indices, updates = primals
        x_dot, _, u_dot = map(instantiate, tangents)
        if _is_unique(indices, params["unique_indices"]):
            return self(x, indices, updates, **params), self(x_dot, indices, u_dot, **params)
        # Value and tangent are made from one and the same choice among updates that meet.
        untouched, stays = _last_write(x, indices, updates, **params)

        def write(x: Any, updates: Any) -> Any:
            kept = select(untouched, x, zeros(aval_of(x)))
            return scatter_add_p(kept, indices, select(stays, updates, zeros(aval_of(updates))), **params)

        return write(x, updates), write(x_dot, u_dot)

    def transpose(self, y_bar, x, indices, updates, **params):
        x_bar = u_bar = None
        if is_linear(x):
            x_bar = self(y_bar, indices, full(np.shape(updates), 0, y_bar.dtype), **params)
        if is_linear(updates):
            u_bar = _gathered(y_bar, indices, updates, **params)
            if not _is_unique(indices, params["unique_indices"]):
                _, stays = _last_write(x, indices, updates, **params)
                u_bar = select(stays, u_bar, zeros(aval_of(u_bar)))
        return x_bar, None, u_bar


scatter_p = Scatter()


class ScatterAdd(ScatterPrimitive, name="scatter_add"):
    """Updates added to elements; where updates meet, all are added."""

    operation = hlo.AddOp
    neutral = _nothing

    def jvp(self, primals, tangents, **params):
        return _linear_jvp(self, primals, tangents, params)

    def transpose(self, y_bar, x, indices, updates, **params):
        u_bar = _gathered(y_bar, indices, updates, **params) if is_linear(updates) else None
        return (y_bar if is_linear(x) else None), None, u_bar


scatter_add_p = ScatterAdd()


class ScatterSub(ScatterPrimitive, name="scatter_sub"):
    """Updates subtracted from elements; where updates meet, all are subtracted."""

    operation = hlo.SubtractOp
    neutral = _nothing

    def joined(self, x, scattered):
        return hlo.add(x, scattered)

    def jvp(self, primals, tangents, **params):
        return _linear_jvp(self, primals, tangents, params)

    def transpose(self, y_bar, x, indices, updates, **params):
        u_bar = neg(_gathered(y_bar, indices, updates, **params)) if is_linear(updates) else None
        return (y_bar if is_linear(x) else None), None, u_bar


scatter_sub_p = ScatterSub()


def _linear_jvp(self: Primitive, primals: Sequence, tangents: Sequence, params: dict) -> tuple:
    """The derivative of a scatter that is linear jointly in operand and updates."""
    x, indices, updates = primals
    x_dot, _, u_dot = tangents
    y = self(x, indices, updates, **params)
    if type(u_dot) is Zero:
        return y, x_dot
    return y, self(instantiate(x_dot), indices, u_dot, **params)


class ScatterMul(ScatterPrimitive, name="scatter_mul"):
    """Elements multiplied by updates; where updates meet, by all of them."""

    operation = hlo.MulOp
    neutral = _one

    def jvp(self, primals, tangents, **params):
        x, indices, updates = primals
        x_dot, _, u_dot = tangents
        y = self(x, indices, updates, **params)
        y_dot = x_dot if type(x_dot) is Zero else self(x_dot, indices, updates, **params)
        if type(u_dot) is not Zero:
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


def _require_unique(name: str, indices: Any, params: dict) -> None:
    if not _is_unique(indices, params["unique_indices"]):
        raise RuleError(
            f"derivative of lax.{name} with respect to the updates",
            expected="unique_indices=True",
            got="indices that may repeat",
            mend="promise unique_indices=True if no index vector repeats",
        )


class _ScatterExtremum(ScatterPrimitive):
    def lower(self, ctx, x, indices, updates, **params):
        if not (ctx.module.is_split and loses_nans(ctx, ctx.aval_out.dtype)):
            return super().lower(ctx, x, indices, updates, **params)

        def on_integers(x: Any, indices: Any, updates: Any) -> Any:
            scattered = lambda x, updates: self(x, indices, updates, **params)
            return by_bits(scattered, self.operation is hlo.MaxOp, x, updates)

        return ctx.inline(on_integers, x, indices, updates)[0]

    def jvp(self, primals, tangents, **params):
        x, indices, updates = primals
        x_dot, _, u_dot = map(instantiate, tangents)
        y = self(x, indices, updates, **params)
        # The tangent is the mean of those of the elements that reach the extremum, and NaN for NaN, which none reaches.
        x_wins, u_wins = eq(x, y), eq(updates, _gathered(y, indices, updates, **params))
        of_x, of_u = (convert_element_type(wins, aval_of(x).dtype) for wins in (x_wins, u_wins))
        winners = scatter_add_p(of_x, indices, of_u, **params)
        x_dot, u_dot = (select(wins, t, zeros(aval_of(t))) for wins, t in ((x_wins, x_dot), (u_wins, u_dot)))
        y_dot = scatter_add_p(x_dot, indices, u_dot, **params)
        return y, div(y_dot, winners)


class ScatterMin(_ScatterExtremum, name="scatter_min"):
    """The smaller one of element and updates."""

    operation, neutral = hlo.MinOp, dtypes.highest


class ScatterMax(_ScatterExtremum, name="scatter_max"):
    """The larger one of element and updates."""

    operation, neutral = hlo.MaxOp, dtypes.lowest


scatter_min_p = ScatterMin()
scatter_max_p = ScatterMax()


class ScatterApply(ScatterPrimitive, name="scatter_apply"):
    """A function of one number applied to elements, as often as the updates name them; their values are not read."""

    def combine(self, ctx, old, new, *, program):
        return ctx.emit(program, [old])[0]

    def jvp(self, primals, tangents, *, program, **params):
        from phalanx.core.jaxpr import run_program
        from phalanx.transforms import jvp, vmap

        x, indices, updates = primals
        y = self(x, indices, updates, program=program, **params)
        x_dot = tangents[0]
        if type(x_dot) is Zero:
            return y, x_dot
        _require_unique("scatter_apply", indices, params)
        here, here_dot = (_gathered(v, indices, updates, **params) for v in (x, x_dot))
        shape = np.shape(here)

        def apply(v: Any) -> Any:
            return run_program(program, v)[0]

        size = int(np.prod(shape))
        _, new_dot = vmap(lambda v, t: jvp(apply, (v,), (t,)))(reshape(here, (size,)), reshape(here_dot, (size,)))
        return y, scatter_p(x_dot, indices, reshape(new_dot, shape), **params)


scatter_apply_p = ScatterApply()


def _params(numbers: Any, indices_are_sorted: bool, unique_indices: bool, mode: Any) -> dict:
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
  operand: the array that is updated.
  scatter_indices: `int[*batch, k]`, index vectors of `k` components in the last dimension.
  updates: the slices, of the operand's dtype.
  dimension_numbers: a `ScatterDimensionNumbers`.
  indices_are_sorted: the promise that index vectors increase.
  unique_indices: the promise that no two slices overlap.
  mode: what happens where a slice is out of bounds, as in `GatherScatterMode`; `"drop"` when left out.

Returns:
  The updated array.

Raises:
  ShapeError: the dimension numbers do not fit the operands.
  DTypeError: the indices are no integers, or the updates' dtype is not the operand's.

Examples:
  >>> import numpy as np
  >>> from phalanx import lax
  >>> points = lax.ScatterDimensionNumbers((), (0,), (0,))
  >>> lax.{name}(np.ones(3, int), np.array([[2], [2]]), np.array([7, 7]), points).tolist()
  {value}
"""


def _scattering(primitive: Any, words: str, value: str) -> Any:
    """Make the public function of a scatter primitive; `value` is what updating ones with 7 and 7 gives."""

    def function(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
    ) -> Any:
        params = _params(dimension_numbers, indices_are_sorted, unique_indices, mode)
        return primitive(operand, scatter_indices, updates, **params)

    name = primitive.name
    return named(function, name, _SCATTER.format(words=words, name=name, value=value))


scatter = _scattering(
    scatter_p,
    "Replace slices of an array at the given places; which one stays where slices overlap is not defined.",
    "[1, 1, 7]",
)
scatter_add = _scattering(
    scatter_add_p, "Add slices to those of an array at the given places; all that overlap are added.", "[1, 1, 15]"
)
scatter_sub = _scattering(
    scatter_sub_p, "Subtract slices from those of an array at the given places; all that overlap are.", "[1, 1, -13]"
)
scatter_mul = _scattering(
    scatter_mul_p,
    "Multiply slices of an array at the given places; the derivative in the updates needs `unique_indices`.",
    "[1, 1, 49]",
)
scatter_min = _scattering(scatter_min_p, "Take the minimum with slices of an array at the given places.", "[1, 1, 1]")
scatter_max = _scattering(scatter_max_p, "Take the maximum with slices of an array at the given places.", "[1, 1, 7]")


@functools.lru_cache(512)
def _program_of(func: Callable, dtype: Any) -> Any:
    return stage(lambda x: [func(x)], [ShapedArray((), dtype)], "scatter_apply")


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Callable,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Any:
    """Apply a function to the elements of an array at the given places.

    Args:
      operand: the array that is updated.
      scatter_indices, dimension_numbers, indices_are_sorted, unique_indices, mode: as in `scatter`.
      func: takes a number and gives one of the same dtype; applied once for each time that an element is named.
      update_shape: the shape that updates would have.

    Returns:
      The updated array. The derivative needs `unique_indices`.

    Raises:
      DTypeError: `func` changes the dtype.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> points = lax.ScatterDimensionNumbers((), (0,), (0,))
      >>> lax.scatter_apply(np.ones(3), np.array([[2], [0]]), lax.neg, points, update_shape=(2,)).tolist()
      [-1.0, 1.0, -1.0]
    """
    aval = aval_of(operand)
    program = _program_of(func, aval.dtype)
    if program.out_avals[0].dtype != aval.dtype:
        raise DTypeError(
            "lax.scatter_apply func",
            expected=f"a result of dtype {dtypes.short_name(aval.dtype)}",
            got=program.out_avals[0].str_short(),
            mend="convert its result",
        )
    params = _params(dimension_numbers, indices_are_sorted, unique_indices, mode)
    updates = full(tuple(update_shape), 0, aval.dtype)
    return scatter_apply_p(operand, scatter_indices, updates, **params, program=program)
