"""Plans of updates by index, `x.at[...].set(y)`: the operations and their parameters, without the arrays.

Three kinds of plan: `Unchanged` (no element is selected), `WindowPlan` (static bounds: a dynamic-update-slice) and
`ScatterPlan` (everything else). For a scatter, each indexed dimension is one of:

- a window dimension, where the expression selects a contiguous slice. It needs a component of the index vectors only if
  the slice does not begin at 0;
- a batching dimension, indexed by an iota (see `index_expression`). It needs no component;
- an inserted dimension, with one component of the index vectors: an index array, an integer, or a strided slice.

Source: the semantics of StableHLO's `scatter`, https://openxla.org/stablehlo/spec#scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.core import ShapeError
from phalanx.engine.cache import Cache
from phalanx.numpy.indexing.index_expression import Slice, expand_ellipsis, find_batching_dims, resolve_slice
from phalanx.numpy.indexing.read_plans import (
    INT32,
    WindowStarts,
    are_adjacent,
    as_dtype,
    clamp_static_index,
    is_array,
    is_known,
    normalize_index,
    widest_index_dtype,
)
from phalanx.numpy.operands import as_array, broadcast_shapes, broadcast_to_shape, cast
from phalanx.numpy.ufuncs import ufunc_table
from phalanx.symbolic import bounds, is_symbolic
from phalanx.typing import Array, DimSize

WRITE_MODES = {
    None: lax.GatherScatterMode.FILL_OR_DROP,
    "drop": lax.GatherScatterMode.FILL_OR_DROP,
    "fill": lax.GatherScatterMode.FILL_OR_DROP,
    "clip": lax.GatherScatterMode.CLIP,
    "promise_in_bounds": lax.GatherScatterMode.PROMISE_IN_BOUNDS,
}
_SCATTERS = {
    "set": lax.scatter,
    "add": lax.scatter_add,
    "sub": lax.scatter_sub,
    "mul": lax.scatter_mul,
    "min": lax.scatter_min,
    "max": lax.scatter_max,
}
_COMBINE = {"add": lax.add_p, "sub": lax.sub_p, "mul": lax.mul_p, "min": lax.min_p, "max": lax.max_p}
_UFUNCS = {
    "add": ufunc_table.add,
    "sub": ufunc_table.subtract,
    "mul": ufunc_table.multiply,
    "div": ufunc_table.divide,
    "pow": ufunc_table.power,
    "min": ufunc_table.minimum,
    "max": ufunc_table.maximum,
}


def combine(x: Array, values: Array, how: str) -> Array:
    """The result of an update of whole arrays: `values`, or the ufunc `how` of `x` and `values`."""
    return values if how == "set" else _UFUNCS[how](x, values)


class WritePlan:
    """A plan of an update; called with the array, the index arrays, the values and the kind of update.

    Args:
      result: shape of the selected elements, as the user sees it: new dimensions (None) included.
      added: positions of the new dimensions in `result`.
    """

    __slots__ = ("added", "plain", "result")

    def __init__(self, result: tuple, added: tuple):
        self.result, self.added = result, added
        self.plain = tuple(n for i, n in enumerate(result) if i not in added)

    def fit(self, values: Array, dtype: np.dtype) -> Any:
        """Cast the values to the dtype of the array, and broadcast them to the update without its new dimensions."""
        values = cast(values, dtype)
        own = np.shape(values)
        if own == self.plain and not self.added:
            return values
        if broadcast_shapes(own, self.result, where="at[], argument values") != self.result:
            raise ShapeError(
                "at[], argument values",
                expected=f"values that broadcast to the selected elements, {self.result}",
                got=own,
                fix="reshape the values, or select other elements",
            )
        if not self.added or not own:
            return broadcast_to_shape(values, self.plain)
        # The values broadcast against the shape with new dimensions; these are removed by a reshape.
        lead = len(self.result) - len(own)
        kept = tuple(n for i, n in enumerate(own) if i + lead not in self.added)
        return broadcast_to_shape(lax.reshape(values, kept) if kept != own else values, self.plain)

    def apply(self, x: Array, arrays: list, func: Callable) -> Any:
        """Replace the selected elements by a function of them."""
        raise NotImplementedError


class Unchanged(WritePlan):
    """No element is selected, or the index is out of bounds: the array is returned unchanged."""

    __slots__ = ()

    def __call__(self, x: Array, arrays: list, values: Array, how: str) -> Any:
        return x

    def apply(self, x: Array, arrays: list, func: Callable) -> Any:
        return x


class WindowPlan(WritePlan):
    """A window with static bounds. Eager updates whose windows differ only in position share one program (`shared`)."""

    __slots__ = ("limits", "shared", "sizes", "starts", "whole")

    def __init__(self, result: tuple, added: tuple, starts: tuple, sizes: tuple, shape: tuple):
        super().__init__(result, added)
        self.starts, self.sizes = starts, sizes
        self.limits = tuple(a + n for a, n in zip(starts, sizes))
        self.whole = sizes == shape
        self.shared = SharedWindow.of(self, shape)

    def __call__(self, x: Array, arrays: list, values: Array, how: str) -> Any:
        # Division and power may compute in a wider dtype than that of the array.
        if how in ("div", "pow"):
            return self._replace(x, arrays, lambda old: cast(combine(old, self._window(values, x), how), x.dtype))
        new = self._window(values, x)
        # Replacing the whole array needs no operation besides the broadcast of the values.
        if how == "set":
            return new if self.whole else self._write(x, new, arrays)
        return self._replace(x, arrays, lambda old: _COMBINE[how](old, new))

    def apply(self, x: Array, arrays: list, func: Callable) -> Any:
        return self._replace(x, arrays, func)

    def _window(self, values: Array, x: Array) -> Any:
        new = self.fit(values, x.dtype)
        return as_array(new) if np.shape(new) == self.sizes else lax.reshape(new, self.sizes)

    def _replace(self, x: Array, arrays: list, func: Callable) -> Any:
        return func(x) if self.whole else self._write(x, func(self._read(x, arrays)), arrays)

    def _read(self, x: Array, arrays: list) -> Any:
        return lax.slice(x, self.starts, self.limits)

    def _write(self, x: Array, new: Array, arrays: list) -> Any:
        starts = [np.int32(a) for a in self.starts]
        return lax.dynamic_update_slice_p(x, new, *starts, wrap=(False,) * len(starts))


class SharedWindow(WindowPlan):
    """The updates of all windows of one size in arrays of one shape; the starts are an argument of the program."""

    __slots__ = ("places",)
    _made: Cache[tuple, SharedWindow] = Cache("numpy.scatter_windows", 4096)

    def __init__(self, plan: WindowPlan):
        self.result, self.added, self.plain = plan.result, plan.added, plan.plain
        self.sizes, self.whole, self.places = plan.sizes, plan.whole, WindowStarts()

    @classmethod
    def of(cls, plan: WindowPlan, shape: tuple) -> SharedWindow:
        """The shared plan of a window."""
        return cls._made.get_or_make((shape, plan.sizes, plan.result, plan.added), lambda: cls(plan))

    def _starts(self, arrays: list) -> list:
        (starts,) = arrays
        return [lax.squeeze(lax.slice(starts, (i,), (i + 1,)), (0,)) for i in range(len(self.sizes))]

    def _read(self, x: Array, arrays: list) -> Any:
        starts = self._starts(arrays)
        return lax.dynamic_slice_p(x, *starts, sizes=self.sizes, wrap=(False,) * len(starts))

    def _write(self, x: Array, new: Array, arrays: list) -> Any:
        starts = self._starts(arrays)
        return lax.dynamic_update_slice_p(x, new, *starts, wrap=(False,) * len(starts))


class Component(NamedTuple):
    """One component of the index vectors of a scatter: the index into dimension `dim` of the array.

    Args:
      dim: the indexed dimension.
      values: the index, if it is part of the plan: a host array, a symbolic dimension or a slice. None for the next
        index array of the expression.
      batch_dims: the dimension of the batch of index vectors along which each dimension of `values` varies.
      size: size of the indexed dimension.
      known: whether negative indices are resolved already.
    """

    dim: int
    values: Any
    batch_dims: tuple[int, ...]
    size: DimSize
    known: bool


class ScatterPlan(WritePlan):
    """The general update: a scatter.

    Args:
      result, added: as in `WritePlan`.
      components: all components, including the ones that became batching dimensions.
      kept: numbers of the components that remain in the index vectors.
      batch_shape: shape of the batch of index vectors.
      numbers: dimension numbers of the scatter.
      options: its flags and its mode.
    """

    __slots__ = ("batch_shape", "components", "kept", "numbers", "options")

    def __init__(
        self,
        result: tuple,
        added: tuple,
        components: Sequence[Component],
        kept: Sequence[int],
        batch_shape: tuple,
        numbers: lax.ScatterDimensionNumbers,
        options: dict,
    ):
        super().__init__(result, added)
        self.components, self.kept = components, kept
        self.batch_shape, self.numbers, self.options = batch_shape, numbers, options

    def indices(self, arrays: list) -> Any:
        """The index vectors, int[*batch, len(kept)]; on the host if all components are."""
        given = iter(arrays)
        values = [next(given) if c.values is None else _materialize(c.values) for c in self.components]
        # Constant index vectors are built by NumPy: one constant of the program instead of several operations.
        found = [(values[i], self.components[i]) for i in self.kept]
        if all(isinstance(a, np.ndarray) for a, _ in found):
            parts = [_broadcast_on_host(a, c.batch_dims, self.batch_shape) for a, c in found]
            return np.stack(parts, axis=-1).astype(widest_index_dtype([a for a, _ in found]))
        parts = [normalize_index(a, c.size, c.known) for a, c in found]
        if len(parts) > 1:
            dtype = widest_index_dtype([a for a in parts if not isinstance(a, np.ndarray)])
            parts = [a.astype(dtype) if isinstance(a, np.ndarray) else as_dtype(a, dtype) for a in parts]
        wide = (*self.batch_shape, 1)
        parts = [lax.broadcast_in_dim(a, wide, c.batch_dims) for a, (_, c) in zip(parts, found)]
        return parts[0] if len(parts) == 1 else lax.concatenate(parts, len(self.batch_shape))

    def __call__(self, x: Array, arrays: list, values: Array, how: str) -> Any:
        indices = self.indices(arrays)
        new = self.fit(values, x.dtype)
        if how in ("div", "pow"):
            # StableHLO has no such scatter. For repeated indices, x / a / b is x / (a b) and (x ** a) ** b is
            # x ** (a b): the values are multiplied into an array of ones, which is then applied once.
            factors = lax.scatter_mul(lax.full(x.shape, 1, x.dtype), indices, new, self.numbers, **self.options)
            return cast(combine(x, factors, how), x.dtype)
        new = new if hasattr(new, "aval") or isinstance(new, np.ndarray) else broadcast_to_shape(new, self.plain)
        return _SCATTERS[how](x, indices, new, self.numbers, **self.options)

    def apply(self, x: Array, arrays: list, func: Callable) -> Any:
        return lax.scatter_apply(x, self.indices(arrays), func, self.numbers, update_shape=self.plain, **self.options)


def _broadcast_on_host(a: np.ndarray, batch_dims: tuple, batch_shape: tuple) -> np.ndarray:
    shape = [a.shape[batch_dims.index(d)] if d in batch_dims else 1 for d in range(len(batch_shape))]
    return np.broadcast_to(a.reshape(shape), batch_shape)


def plan_write(
    shape: tuple, key: tuple, mode: str | lax.GatherScatterMode | None, is_sorted: bool, unique: bool
) -> WritePlan:
    """Plan the update of an array of this shape at an index expression with this key."""
    entries = expand_ellipsis(key, len(shape), shape)
    items = _resolve_static_entries(shape, entries, mode)
    # Without index arrays the elements form a strided window, which may not need a scatter.
    if not any(is_array(e) for e in entries):
        return _plan_static(shape, items, mode, is_sorted)
    adjacent = are_adjacent(key)
    result, added, _, _ = _result_layout(items, entries, adjacent)
    if _indexes_empty_dim(shape, items):
        return Unchanged(result, added)
    return _plan_scatter(shape, items, entries, mode, is_sorted, unique, adjacent)


def _indexes_empty_dim(shape: tuple, items: list[tuple[Any, Any]]) -> bool:
    """Whether an integer or an array indexes an empty dimension: every such update is out of bounds, and dropped."""
    return any(
        type(e) is not Slice and dim is not None and type(shape[dim]) is int and not shape[dim] for e, dim in items
    )


def _resolve_static_entries(shape: tuple, entries: tuple, mode: object) -> list[tuple[Any, Any]]:
    """Pairs of an entry, with slices and integers resolved, and its dimension.

    A new dimension (None) has the dimension None.
    """
    items: list[tuple[Any, Any]] = []
    dim = 0
    for e in entries:
        if e is None:
            items.append((None, None))
            continue
        n = shape[dim]
        if type(e) is tuple:
            e = resolve_slice(e, n)
        elif type(e) is int and n != 0:
            if mode == "clip" or (type(n) is int and (-n <= e < n or mode == "promise_in_bounds")):
                e = clamp_static_index(e, n)
            elif e < 0:  # Out of bounds, or perhaps so for a symbolic size: the scatter itself drops the update.
                e = n + e
        items.append((e, dim))
        dim += 1
    return items


def _plan_static(shape: tuple, items: list, mode: object, is_sorted: bool) -> WritePlan:
    """Plan an update at integers and slices only."""
    result, added, _, _ = _result_layout(items, (), False)
    # Integers select windows of size 1.
    slices = [e if type(e) is Slice else Slice(e, 1, 1) for e, dim in items if dim is not None]
    starts, sizes = tuple(s.start for s in slices), tuple(s.count for s in slices)
    strided = not all(map(_is_contiguous, slices))
    if _indexes_empty_dim(shape, items) or any(type(n) is int and n == 0 for n in sizes):
        return Unchanged(result, added)
    if strided or not all(_fits(s, size, n) for s, size, n in zip(starts, sizes, shape)):
        return _plan_scatter(shape, items, (), mode, is_sorted or not strided, True)
    return WindowPlan(result, added, starts, sizes, shape)


def _result_layout(items: list, entries: tuple, adjacent: bool) -> tuple[tuple, tuple, tuple, int]:
    """The shape of the selected elements, the positions of its new dimensions, the shape of the batch of index vectors,
    and the position where the batch begins.

    As in NumPy, the batch takes the place of the index arrays if these are adjacent, and comes first otherwise.
    """
    arrays = [e for e, _ in items if is_array(e)]
    batch = broadcast_shapes(*[e.shape for e in arrays], where="index expression") if arrays else ()
    advanced = [i for i, e in enumerate(entries) if is_array(e) or type(e) is int] if arrays else []
    adjacent = adjacent and bool(advanced)
    result: list = [] if adjacent or not arrays else list(batch)
    position, added = 0, []
    for i, (e, dim) in enumerate(items):
        if adjacent and i == advanced[0]:
            position = len(result)
            result.extend(batch)
        if dim is None:
            added.append(len(result))
            result.append(1)
        elif type(e) is Slice:
            result.append(e.count)
    return tuple(result), tuple(added), batch, position


def _plan_scatter(
    shape: tuple, items: list, entries: tuple, mode: Any, is_sorted: bool, unique: bool, adjacent: bool = False
) -> WritePlan:
    result, added, batch, position = _result_layout(items, entries, adjacent)
    # From here on, positions are dimensions of the update, which has no new dimensions.
    position -= sum(i < position for i in added)
    update = tuple(n for i, n in enumerate(result) if i not in added)
    window, inserted, components = _classify_dims(shape, items, len(update), range(position, position + len(batch)))
    # All dimensions of the update that are not windows enumerate index vectors.
    batch_dims = [i for i in range(len(update)) if i not in window]
    order = {p: i for i, p in enumerate(batch_dims)}
    components = [c._replace(batch_dims=tuple(order[p] for p in c.batch_dims)) for c in components]
    entry_of = {dim: e for e, dim in items}
    batches = find_batching_dims(
        [entry_of[c.dim] for c in components], [c.size for c in components], [c.batch_dims for c in components]
    )
    kept = [i for i in range(len(components)) if i not in batches]
    pairs = sorted((components[i].dim, b) for i, b in batches.items())
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(window),
        inserted_window_dims=tuple(sorted({*inserted} - {d for d, _ in pairs})),
        scatter_dims_to_operand_dims=tuple(components[i].dim for i in kept),
        operand_batching_dims=tuple(d for d, _ in pairs),
        scatter_indices_batching_dims=tuple(b for _, b in pairs),
    )
    options = {
        "indices_are_sorted": is_sorted and not batches,
        # Without index arrays of several elements, every element is selected once.
        "unique_indices": unique or not any(is_array(e) and len(e.shape) for e, _ in items),
        "mode": WRITE_MODES.get(mode, mode),
    }
    return ScatterPlan(result, added, components, kept, tuple(update[i] for i in batch_dims), numbers, options)


def _classify_dims(shape: tuple, items: list, rank: int, batch: range) -> tuple[list, list, list[Component]]:
    """The window dimensions of an update of rank `rank`, the inserted dimensions, and the components.

    Args:
      shape: shape of the array.
      items: entries and their dimensions, from `_resolve_static_entries`.
      rank: rank of the update without new dimensions.
      batch: dimensions of the update that belong to the index arrays.
    """
    free: Iterator[int] = iter([i for i in range(rank) if i not in batch])
    window, inserted, components = [], [], []
    for e, dim in items:
        if dim is None:
            continue
        n = shape[dim]
        if is_array(e):
            components.append(Component(dim, None, tuple(batch)[len(batch) - len(e.shape) :], n, is_known(e)))
        elif type(e) is not Slice:
            components.append(Component(dim, _as_index(e), (), n, True))
        elif _is_contiguous(e):
            window.append(next(free))
            if type(e.start) is not int or e.start != 0:
                components.append(Component(dim, _as_index(e.start), (), n, True))
            continue
        else:
            is_static = type(e.start) is int and type(e.count) is int
            values: Any = np.asarray(e.start + e.step * np.arange(e.count), INT32) if is_static else e
            components.append(Component(dim, values, (next(free),), n, True))
        inserted.append(dim)
    # A scatter needs at least one component.
    return window, inserted, components or [Component(0, _as_index(0), (), shape[0], True)]


def _is_contiguous(s: Slice) -> bool:
    return s.step == 1 or (type(s.count) is int and s.count <= 1)


def _as_index(start: DimSize) -> Any:
    return np.asarray(start, INT32) if type(start) is int else start


def _fits(start: DimSize, size: DimSize, n: DimSize) -> bool:
    """Whether a window begins at a constant and provably ends within the dimension, as a dynamic update requires."""
    return type(start) is int and start >= 0 and bounds(n - start - size)[0] >= 0


def _materialize(values: Any) -> Any:
    """The values of a component as an array; slices and symbolic dimensions depend on sizes that are known only now."""
    if type(values) is Slice:
        positions = lax.iota(INT32, values.count)
        return lax.add(lax.mul(positions, INT32.type(values.step)), cast(values.start, INT32))
    return cast(values, INT32) if is_symbolic(values) else values
