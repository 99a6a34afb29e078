"""Updating by index: `x.at[...].set(y)` and its like, which give a new array.

Windows with static bounds become a dynamic-update-slice, everything else a scatter. Plans are made once for each
expression, as for reading (`indexing.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.config import state
from phalanx.core.errors import ShapeError
from phalanx.core.source import user_level
from phalanx.engine.frames import boundaries, boundary
from phalanx.lax.explicit import laid_out, open_type
from phalanx.numpy import indexing
from phalanx.numpy.counting import aligned, with_counts
from phalanx.numpy.index_expression import NonConcreteBooleanIndexError, Slice, expanded, parse, slice_of
from phalanx.numpy.operands import (
    SCALAR_KINDS,
    as_array,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    operand,
    unwrapped,
)
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import bounds, is_symbolic

INT32 = np.dtype(np.int32)
_modes = lax.GatherScatterMode
WRITE_MODES = {
    None: _modes.FILL_OR_DROP, "drop": _modes.FILL_OR_DROP, "fill": _modes.FILL_OR_DROP, "clip": _modes.CLIP,
    "promise_in_bounds": _modes.PROMISE_IN_BOUNDS,
}  # fmt: skip


@boundaries
class At:
    """What `x.at` is: index it to choose elements, then call the update."""

    __slots__ = ("array",)

    def __init__(self, array: Any):
        self.array = array

    def __getitem__(self, index: Any) -> AtIndex:
        return AtIndex(self.array, index)

    def __repr__(self) -> str:
        return f"{self.array!r}.at"


_OPTIONS = """

        Args:
          {argument}: {what}.
          mode: what becomes of indices out of bounds: "drop" (the default), "clip" or "promise_in_bounds".
          indices_are_sorted: a promise that makes the update faster.
          unique_indices: a promise that makes the update faster.
          wrap_negative_indices: whether negative indices count from the end.

        Returns:
          The updated copy.

        Examples:
          >>> {example}
          {result}
        """


@boundaries
class AtIndex:
    """Chosen elements of an array, to be read or updated."""

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Any):
        self.array, self.index = array, index

    def __repr__(self) -> str:
        return f"{self.array!r}.at[{self.index!r}]"

    def get(
        self, *, mode: Any = None, fill_value: Any = None, indices_are_sorted: bool = False,
        unique_indices: bool = False, wrap_negative_indices: bool = True, out_sharding: Any = None,
    ) -> Any:  # fmt: skip
        """The chosen elements.

        Args:
          mode: what an index out of bounds gives: the nearest element ("clip", the default), or "fill".
          fill_value: the value for "fill"; NaN, or the lowest or largest integer, by default.
          indices_are_sorted: a promise that makes reading faster.
          unique_indices: a promise that makes the derivative faster.
          wrap_negative_indices: whether negative indices count from the end.
          out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

        Examples:
          >>> jnp.arange(3.0).at[5].get(mode="fill").item()
          nan
        """
        index = self.index if wrap_negative_indices else _unwrapped_index(self.index, mode)
        read = lambda x, index: indexing.get(x, index, mode, fill_value, indices_are_sorted, unique_indices)
        if out_sharding is not None:
            return _laid_out(read, self.array, index, (), out_sharding, "x.at[...].get, out_sharding")
        return read(self.array, index)

    def apply(
        self, func: Callable, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:  # fmt: skip
        """Replace the chosen elements by a function of them.

        Examples:
          >>> jnp.arange(3.0).at[1].apply(jnp.exp2).tolist()
          [0.0, 2.0, 2.0]
        """
        return update(self.array, self.index, func, "apply", mode, indices_are_sorted, unique_indices,
                      wrap_negative_indices)  # fmt: skip


def _laid_out(fun: Callable, x: Any, index: Any, values: tuple, out_sharding: Any, where: str) -> Any:
    """A read or write by index whose result lies as the user says."""
    parts = index if isinstance(index, tuple) else (index,)
    opened = [open_type(i) if hasattr(i, "aval") else i for i in parts]
    return laid_out(
        lambda x, *values: fun(x, tuple(opened), *values), (as_array(x), *map(as_array, values)), out_sharding, where
    )


def _method(name: str, how: str, doc: str, example: str, result: str) -> None:
    @boundary
    def method(
        self: AtIndex, values: Any, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None,
        wrap_negative_indices: bool = True, out_sharding: Any = None,
    ) -> Any:  # fmt: skip
        options = (how, mode, indices_are_sorted, unique_indices, wrap_negative_indices)
        if out_sharding is not None:
            write = lambda x, index, values: update(x, index, values, *options)
            where = f"x.at[...].{name}, out_sharding"
            return _laid_out(write, self.array, self.index, (values,), out_sharding, where)
        return update(self.array, self.index, values, *options)

    method.__name__, method.__qualname__ = name, f"AtIndex.{name}"
    method.__doc__ = doc + _OPTIONS.format(argument="values", what="the values", example=example, result=result)
    setattr(AtIndex, name, method)


# fmt: off
_method(
    "set", "set", "Replace the chosen elements.",
    "jnp.zeros(2).at[1].set(5).tolist()", "[0.0, 5.0]",
)
_method(
    "add", "add", "Add to the chosen elements; repeated indices add up.",
    "jnp.ones(2).at[1].add(5).tolist()", "[1.0, 6.0]",
)
_method(
    "subtract", "sub", "Subtract from the chosen elements.",
    "jnp.ones(2).at[1].subtract(5).tolist()", "[1.0, -4.0]",
)
_method(
    "multiply", "mul", "Multiply the chosen elements.",
    "jnp.ones(2).at[1].multiply(5).tolist()", "[1.0, 5.0]",
)
_method(
    "mul", "mul", "Multiply the chosen elements.",
    "jnp.ones(2).at[1].mul(5).tolist()", "[1.0, 5.0]",
)
_method(
    "divide", "div", "Divide the chosen elements.",
    "jnp.ones(2).at[1].divide(4).tolist()", "[1.0, 0.25]",
)
_method(
    "power", "pow", "Raise the chosen elements to a power.",
    "jnp.full(2, 3.0).at[1].power(2).tolist()", "[3.0, 9.0]",
)
_method(
    "min", "min", "Lower the chosen elements to at most the values.",
    "jnp.ones(2).at[1].min(0).tolist()", "[1.0, 0.0]",
)
_method(
    "max", "max", "Raise the chosen elements to at least the values.",
    "jnp.ones(2).at[1].max(5).tolist()", "[1.0, 5.0]",
)
# fmt: on

_SCATTERS = {
    "set": lax.scatter, "add": lax.scatter_add, "sub": lax.scatter_sub, "mul": lax.scatter_mul, "min": lax.scatter_min,
    "max": lax.scatter_max,
}  # fmt: skip
_COMBINE = {"add": lax.add_p, "sub": lax.sub_p, "mul": lax.mul_p, "min": lax.min_p, "max": lax.max_p}


def _unwrapped_index(index: Any, mode: Any) -> Any:
    """Integers such that negative ones are out of bounds: the nearest is then the first, and others are huge."""
    return tuple(not_wrapped(e, mode) for e in (index if type(index) is tuple else (index,)))


def not_wrapped(e: Any, mode: Any) -> Any:
    """One index such that negative numbers are out of bounds, as `mode` treats them."""
    clips = mode in ("clip", _modes.CLIP)
    if isinstance(e, int) and not isinstance(e, bool) and e < 0:
        return 0 if clips else np.iinfo(np.int32).max
    if getattr(e, "dtype", None) is None or e.dtype.kind != "i":
        return e
    if clips:
        return lax.max(e, np.zeros((), e.dtype)[()])
    return lax.convert_element_type(e, np.dtype(np.uint32 if e.dtype.itemsize <= 4 else np.uint64))


_plans: dict[tuple, Any] = {}


def update(
    x: Any, index: Any, values: Any, how: str, mode: Any = None, indices_are_sorted: bool = False,
    unique_indices: bool = False, wrap_negative_indices: bool = True,
) -> Any:  # fmt: skip
    """A copy of `x` with the chosen elements updated.

    Raises:
      ShapeError: the values do not broadcast to the chosen elements.
    """
    if not wrap_negative_indices:
        index = _unwrapped_index(index, mode)
    mode = indexing.MODE_NAMES.get(mode, mode)
    try:
        y, key, arrays = parse(x, index)
    except NonConcreteBooleanIndexError:
        return _masked_update(x, index, values, how)
    if y is not x:
        from phalanx.numpy.shapes import reshape

        return reshape(update(y, _without_scalars(key, arrays), values, how, mode), x.shape)
    if arrays and state.trace is None:
        key, arrays = indexing.with_integers_as_arrays(x.shape, key, arrays)
    else:
        key = with_counts(x.shape, key, arrays)
    plan_key = (x.aval, key, mode, indices_are_sorted, unique_indices)
    plan = _plans.get(plan_key)
    if plan is None:
        from phalanx.numpy.taking import check_mode

        check_mode(mode, "at[]")
        plan = _plans[plan_key] = plan_write(x.shape, key, mode, indices_are_sorted, unique_indices)
    if how == "apply":
        return plan.apply(x, arrays, values)
    x, values = _operands(x, values, how)
    if state.trace is not None:
        return plan(x, arrays, values, how)
    if type(plan) is WindowPlan and plan.sizes and plan.shared.places.are_many(plan.starts):
        return _update(x, [np.array(plan.starts, np.int32)], values, plan.shared, how)
    return _update(x, arrays, values, plan, how)


def _operands(x: Any, values: Any, how: str) -> tuple:
    """The array and the values as an update takes them; a warning where the array's dtype does not hold the values."""
    if how == "div":
        x = cast(x, dtypes.to_inexact_dtype(x.dtype))
    is_scalar = type(values) in SCALAR_KINDS
    if not is_scalar and getattr(values, "aval", None) is None:
        values = operand(np.asarray(values) if isinstance(values, list | tuple) else unwrapped(values), "at[]")
    dtype = x.dtype
    if is_scalar:
        key = dtype, type(values), state.context
        if key not in _held and _holds(dtype, values):
            _held.add(key)
    elif values.dtype is not dtype:
        _holds(dtype, values)
    return x, values


_held: set[tuple] = set()  # pairs of dtypes and types of scalars that they hold


def _holds(dtype: Any, values: Any) -> bool:
    """Whether a dtype holds the values as they are; a warning where it does not."""
    given, is_weak = dtypes.dtype_and_weakness(values)
    if given == dtype or dtypes.is_extended(dtype) or promotion.promote_pair(dtype, False, given, is_weak)[0] == dtype:
        return True
    short = dtypes.short_name
    warnings.warn(
        f"x.at[...]: values of {short(given)} are cast to the {short(dtype)} of the array, which loses what that "
        "cannot hold; this will be an error.\n"
        "  To mend: cast the values with values.astype(x.dtype), or the array first.",
        FutureWarning,
        stacklevel=user_level(),
    )
    return False


def _without_scalars(key: tuple, arrays: list) -> tuple:
    found = iter(arrays)
    out = []
    for e in key:
        out.append(slice(*e) if type(e) is tuple else next(found) if indexing.is_array(e) else e)
    return tuple(out)


def _masked_update(x: Any, mask: Any, values: Any, how: str) -> Any:
    """An update under a traced mask: possible where each value belongs to one element whatever the mask."""
    is_mask = getattr(mask, "dtype", None) == np.bool_ and mask.ndim <= x.ndim and mask.shape == x.shape[: mask.ndim]
    if not is_mask or np.ndim(values) > x.ndim - getattr(mask, "ndim", 0):
        raise NonConcreteBooleanIndexError.of(
            mask.describe() if hasattr(mask, "describe") else repr(mask),
            mask.origin() if hasattr(mask, "origin") else None,
        )
    from phalanx.numpy.mapping import where

    mask = lax.broadcast_in_dim(mask, x.shape, tuple(range(mask.ndim)))
    if how == "apply":
        return where(mask, values(x), x)
    return where(mask, cast(_combined(x, values, how), x.dtype), x)


def _combined(x: Any, values: Any, how: str) -> Any:
    from phalanx.numpy import ufuncs

    table = {
        "add": ufuncs.add, "sub": ufuncs.subtract, "mul": ufuncs.multiply, "div": ufuncs.divide, "pow": ufuncs.power,
        "min": ufuncs.minimum, "max": ufuncs.maximum,
    }  # fmt: skip
    return values if how == "set" else table[how](x, values)


@eager_program(static_argnames=("plan", "how"))
def _update(x: Any, arrays: list, values: Any, plan: Any, how: str) -> Any:
    return plan(x, arrays, values, how)


class WritePlan:
    """The update of chosen elements.

    Args:
      result: the shape of the chosen elements, new dimensions included.
      added: positions of the new dimensions in it.
    """

    __slots__ = ("added", "plain", "result")

    def __init__(self, result: tuple, added: tuple):
        self.result, self.added = result, added
        self.plain = tuple(n for i, n in enumerate(result) if i not in added)

    def fitted(self, values: Any, dtype: Any) -> Any:
        """The values in the dtype of the array and the shape of the update, without the new dimensions."""
        values = cast(values, dtype)
        own = np.shape(values)
        if own == self.plain and not self.added:
            return values
        if broadcast_shapes(own, self.result, where="at[], argument values") != self.result:
            raise ShapeError(
                "at[], argument values", expected=f"values that broadcast to the chosen elements, {self.result}",
                got=own, mend="reshape the values, or choose other elements",
            )  # fmt: skip
        if not self.added or not own:
            return broadcast_to_shape(values, self.plain)
        lead = len(self.result) - len(own)
        kept = tuple(n for i, n in enumerate(own) if i + lead not in self.added)
        return broadcast_to_shape(lax.reshape(values, kept) if kept != own else values, self.plain)

    def apply(self, x: Any, arrays: list, func: Callable) -> Any:
        """Replace the chosen elements by a function of them."""
        raise NotImplementedError  # each kind of plan defines it


class Unchanged(WritePlan):
    """An index out of bounds, or no elements: nothing happens."""

    __slots__ = ()

    def __call__(self, x: Any, arrays: list, values: Any, how: str) -> Any:
        return x

    def apply(self, x: Any, arrays: list, func: Callable) -> Any:
        return x


class WindowPlan(WritePlan):
    """A window with static bounds. Called eagerly, windows that differ only in their place soon share one program."""

    __slots__ = ("limits", "shared", "sizes", "starts", "whole")

    def __init__(self, result: tuple, added: tuple, starts: tuple, sizes: tuple, shape: tuple):
        super().__init__(result, added)
        self.starts, self.sizes = starts, sizes
        self.limits = tuple(a + n for a, n in zip(starts, sizes))
        self.whole = sizes == shape
        self.shared = SharedWindow.of(self, shape)

    def __call__(self, x: Any, arrays: list, values: Any, how: str) -> Any:
        if how in ("div", "pow"):
            return self._replace(x, arrays, lambda old: cast(_combined(old, self._window(values, x), how), x.dtype))
        new = self._window(values, x)
        if how == "set":
            return new if self.whole else self._write(x, new, arrays)
        return self._replace(x, arrays, lambda old: _COMBINE[how](old, new))

    def apply(self, x: Any, arrays: list, func: Callable) -> Any:
        return self._replace(x, arrays, func)

    def _window(self, values: Any, x: Any) -> Any:
        new = self.fitted(values, x.dtype)
        return new if np.shape(new) == self.sizes and hasattr(new, "aval") else _in_shape(new, self.sizes)

    def _replace(self, x: Any, arrays: list, func: Callable) -> Any:
        return func(x) if self.whole else self._write(x, func(self._read(x, arrays)), arrays)

    def _read(self, x: Any, arrays: list) -> Any:
        return lax.slice(x, self.starts, self.limits)

    def _write(self, x: Any, new: Any, arrays: list) -> Any:
        starts = [np.int32(a) for a in self.starts]
        return lax.dynamic_update_slice_p(x, new, *starts, wrap=(False,) * len(starts))


class SharedWindow(WindowPlan):
    """All windows of one size into arrays of one shape; the starts come as an array."""

    __slots__ = ("places",)
    _made: dict[tuple, SharedWindow] = {}

    def __init__(self, plan: WindowPlan):
        self.result, self.added, self.plain = plan.result, plan.added, plan.plain
        self.sizes, self.whole, self.places = plan.sizes, plan.whole, indexing.Places()

    @classmethod
    def of(cls, plan: WindowPlan, shape: tuple) -> SharedWindow:
        """The one for a window."""
        key = (shape, plan.sizes, plan.result, plan.added)
        if (found := cls._made.get(key)) is None:
            found = cls._made[key] = cls(plan)
        return found

    def _starts(self, arrays: list) -> list:
        (starts,) = arrays
        return [lax.squeeze(lax.slice(starts, (i,), (i + 1,)), (0,)) for i in range(len(self.sizes))]

    def _read(self, x: Any, arrays: list) -> Any:
        starts = self._starts(arrays)
        return lax.dynamic_slice_p(x, *starts, sizes=self.sizes, wrap=(False,) * len(starts))

    def _write(self, x: Any, new: Any, arrays: list) -> Any:
        starts = self._starts(arrays)
        return lax.dynamic_update_slice_p(x, new, *starts, wrap=(False,) * len(starts))


def _in_shape(new: Any, sizes: tuple) -> Any:
    if np.shape(new) == sizes:
        return new if hasattr(new, "aval") else as_array(new)
    return lax.reshape(new, sizes)


class ScatterPlan(WritePlan):
    """Everything else: a scatter.

    Args:
      arrays: for each component of the index vectors, an array known now, or None for the next one given.
      kept: the numbers of the components that are not batches.
      shapes: for each component, the dimensions of the batch that it varies along.
      sizes: of the dimensions that the components are about.
      known: whether each component is counted from 0 already.
    """

    __slots__ = ("arrays", "batch_shape", "kept", "known", "numbers", "options", "places", "sizes")

    def __init__(self, result: tuple, added: tuple, components: list, kept: list, batch_shape: tuple, numbers: Any,
                 options: dict):  # fmt: skip
        super().__init__(result, added)
        self.arrays, self.kept = tuple(a for a, *_ in components), kept
        self.places, self.sizes, self.known = map(tuple, zip(*[components[i][1:] for i in kept]))
        self.batch_shape, self.numbers, self.options = batch_shape, numbers, options

    def indices(self, arrays: list) -> Any:
        """The index vectors."""
        given = iter(arrays)
        wide = (*self.batch_shape, 1)
        found = [next(given) if a is None else _made(a) for a in self.arrays]
        found = [found[i] for i in self.kept]
        if all(isinstance(a, np.ndarray) for a in found):
            parts = [_host_spread(a, p, self.batch_shape) for a, p in zip(found, self.places)]
            return np.stack(parts, axis=-1).astype(indexing._widest(found))
        found = [indexing.normalized(a, n, k) for a, n, k in zip(found, self.sizes, self.known)]
        if len(found) > 1:
            dtype = indexing._widest([a for a in found if not isinstance(a, np.ndarray)])
            found = [a.astype(dtype) if isinstance(a, np.ndarray) else indexing._as(a, dtype) for a in found]
        found = [lax.broadcast_in_dim(a, wide, p) for a, p in zip(found, self.places)]
        return found[0] if len(found) == 1 else lax.concatenate(found, len(self.batch_shape))

    def __call__(self, x: Any, arrays: list, values: Any, how: str) -> Any:
        indices = self.indices(arrays)
        if how in ("div", "pow"):
            from phalanx.numpy import ufuncs

            values = self.fitted(values, x.dtype)
            factors = lax.scatter_mul(lax.full(x.shape, 1, x.dtype), indices, values, self.numbers, **self.options)
            return cast(_combined(x, factors, how), x.dtype) if ufuncs else x
        new = self.fitted(values, x.dtype)
        new = new if hasattr(new, "aval") or isinstance(new, np.ndarray) else broadcast_to_shape(new, self.plain)
        return _SCATTERS[how](x, indices, new, self.numbers, **self.options)

    def apply(self, x: Any, arrays: list, func: Callable) -> Any:
        return lax.scatter_apply(x, self.indices(arrays), func, self.numbers, update_shape=self.plain, **self.options)


def _host_spread(a: np.ndarray, places: tuple, batch_shape: tuple) -> np.ndarray:
    shape = [1] * len(batch_shape)
    for n, p in zip(a.shape, places):
        shape[p] = n
    return np.broadcast_to(a.reshape(shape), batch_shape)


def plan_write(shape: tuple, key: tuple, mode: Any, is_sorted: bool, unique: bool) -> WritePlan:
    """Plan the update of an array of this shape at an expression with this key."""
    entries = expanded(key, len(shape), shape)
    has_arrays = any(indexing.is_array(e) for e in entries)
    items: list[tuple[Any, Any]] = []
    out_of_bounds, dim = False, 0
    for e in entries:
        if e is None:
            items.append((None, None))
            continue
        n = shape[dim]
        if type(e) is tuple:
            e = slice_of(e, n)
        elif type(e) is int:
            if type(n) is int and not -n <= e < n:
                out_of_bounds = True
            if type(n) is int or mode == "clip":
                e = indexing.clamped(e, n) if n != 0 else 0
            elif e < 0:  # one out of bounds stays so: the scatter drops it
                e = n + e
        items.append((e, dim))
        dim += 1
    if not has_arrays:
        return _plan_static(shape, items, mode, out_of_bounds, is_sorted, unique)
    result, added, _, _ = _result_layout(shape, items, entries, indexing.are_together(key))
    empty = {d for d, n in enumerate(shape) if type(n) is int and n == 0}
    nothing = any(d in empty for e, d in items if indexing.is_array(e))
    if nothing or (out_of_bounds and mode not in ("clip", "promise_in_bounds")):
        return Unchanged(result, added)
    return _plan_scatter(shape, items, entries, mode, is_sorted, unique, indexing.are_together(key))


def _plan_static(shape: tuple, items: list, mode: Any, out_of_bounds: bool, is_sorted: bool, unique: bool) -> WritePlan:
    result, added, starts, sizes = [], [], [], []
    strided = False
    for e, dim in items:
        if dim is None:
            added.append(len(result))
            result.append(1)
        elif type(e) is int or not hasattr(e, "count"):
            starts.append(e)
            sizes.append(1)
        else:
            result.append(e.count)
            starts.append(e.start)
            sizes.append(e.count)
            strided |= e.step != 1 and not (type(e.count) is int and e.count <= 1)
    empty = any(type(n) is int and n == 0 for n in sizes)
    if (out_of_bounds and mode not in ("clip", "promise_in_bounds")) or empty:
        return Unchanged(tuple(result), tuple(added))
    if strided or not all(_fits(s, size, n) for s, size, n in zip(starts, sizes, shape)):
        return _plan_scatter(shape, items, (), mode, True if not strided else is_sorted, True)
    return WindowPlan(tuple(result), tuple(added), tuple(starts), tuple(sizes), shape)


def _result_layout(shape: tuple, items: list, entries: tuple, together: bool) -> tuple:
    """The shape of the chosen elements, its new dimensions, the shape of index arrays and where that begins."""
    arrays = [e for e, _ in items if indexing.is_array(e)]
    batch = broadcast_shapes(*[e.shape for e in arrays], where="index expression") if arrays else ()
    advanced = [i for i, e in enumerate(entries) if indexing.is_array(e) or type(e) is int] if arrays else []
    together = together and bool(advanced)
    result: list = [] if together or not arrays else list(batch)
    position = 0
    added = []
    for i, (e, dim) in enumerate(items):
        if together and i == advanced[0]:
            position = len(result)
            result.extend(batch)
        if dim is None:
            added.append(len(result))
            result.append(1)
        elif hasattr(e, "count"):
            result.append(e.count)
    return tuple(result), tuple(added), batch, position


def _plan_scatter(
    shape: tuple, items: list, entries: tuple, mode: Any, is_sorted: bool, unique: bool, together: bool = False
) -> WritePlan:
    result, added, batch, position = _result_layout(shape, items, entries, together)
    # Positions in the update, which has no new dimensions.
    position -= sum(i < position for i in added)
    batch_places = range(position, position + len(batch))
    free = iter([i for i in range(len(result) - len(added)) if i not in batch_places])
    plain = tuple(n for i, n in enumerate(result) if i not in added)
    window, inserted, operand_dims, components = [], [], [], []
    for e, dim in items:
        if dim is None:
            continue
        n = shape[dim]
        if hasattr(e, "count"):
            place = next(free)
            if e.step == 1 or (type(e.count) is int and e.count <= 1):
                window.append(place)
                if type(e.start) is not int or e.start != 0:
                    components.append((_start(e.start), (), n, True))
                    operand_dims.append(dim)
                continue
            is_known = type(e.start) is int and type(e.count) is int
            values = np.asarray(e.start + e.step * np.arange(e.count), INT32) if is_known else e
            components.append((values, (place,), n, True))
        elif indexing.is_array(e):
            lead = len(batch) - len(e.shape)
            components.append((None, tuple(batch_places)[lead:], n, indexing.is_known(e)))
        else:
            components.append((_start(e), (), n, True))
        inserted.append(dim)
        operand_dims.append(dim)
    if not components:
        components, operand_dims = [(_start(0), (), shape[0], True)], [0]
    batch_dims = [i for i in range(len(plain)) if i not in window]
    order = {p: i for i, p in enumerate(batch_dims)}
    components = [(a, tuple(order[p] for p in places), n, k) for a, places, n, k in components]
    of_dim = {dim: e for e, dim in items}
    batches = aligned([of_dim[d] for d in operand_dims], [shape[d] for d in operand_dims], [c[1] for c in components])
    pairs = sorted((operand_dims[i], b) for i, b in batches.items())
    gone = {d for d, _ in pairs}
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(window), inserted_window_dims=tuple(sorted({*inserted} - gone)),
        scatter_dims_to_operand_dims=tuple(d for d in operand_dims if d not in gone),
        operand_batching_dims=tuple(d for d, _ in pairs), scatter_indices_batching_dims=tuple(b for _, b in pairs),
    )  # fmt: skip
    is_sorted = is_sorted and not batches
    options = {"indices_are_sorted": is_sorted, "unique_indices": unique, "mode": WRITE_MODES.get(mode, mode)}
    if not any(indexing.is_array(e) for e, _ in items):
        options["unique_indices"] = True
    kept = [i for i in range(len(components)) if i not in batches]
    return ScatterPlan(result, added, components, kept, tuple(plain[i] for i in batch_dims), numbers, options)


def _start(start: Any) -> Any:
    return np.asarray(start, INT32) if type(start) is int else start


def _fits(start: Any, size: Any, n: Any) -> bool:
    """Whether a window is known to lie inside a dimension and to begin at a number, as an update in place needs it."""
    return type(start) is int and bounds(n - start - size)[0] >= 0


def _made(component: Any) -> Any:
    """A component of index vectors that depends on symbolic sizes, as an array: a place or a slice."""
    if type(component) is Slice:
        counted = lax.iota(INT32, component.count)
        return lax.add(lax.mul(counted, INT32.type(component.step)), cast(component.start, INT32))
    return cast(component, INT32) if is_symbolic(component) else component
