"""Reading by index: `x[...]` as a slice, a dynamic slice or a gather, planned once for each expression.

A plan is made from the array's type and the hashable part of the expression (`index_expression`). Static indices become
one slice and one reshape; traced scalars a dynamic slice; arrays a gather whose result needs no transposition.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.config import state
from phalanx.numpy.counting import Counting, aligned, with_counts
from phalanx.numpy.index_expression import IndexingError, Integers, Slice, expanded, parse, slice_of
from phalanx.numpy.operands import broadcast_shapes
from phalanx.runtime.array import Array, ArrayType
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_symbolic, max_dim, min_dim

INT32 = np.dtype(np.int32)
_modes = lax.GatherScatterMode
READ_MODES = {
    None: _modes.PROMISE_IN_BOUNDS, "promise_in_bounds": _modes.PROMISE_IN_BOUNDS, "clip": _modes.CLIP,
    "fill": _modes.FILL_OR_DROP, "drop": _modes.FILL_OR_DROP,
}  # fmt: skip
MODE_NAMES = {mode: name for name, mode in READ_MODES.items() if name not in (None, "drop")}


class View:
    """A slice, a reversal and a change of shape: what static indices do.

    Args:
      starts, limits, strides: of the slice; `starts` is None where nothing is cut.
      reversed_dims: dimensions to reverse after it.
      shape: the final shape.
      dropped: dimensions of size 1 that go.
      added: positions in the final shape of new dimensions of size 1.
    """

    __slots__ = ("added", "dropped", "limits", "reversed_dims", "shape", "starts", "strides")

    def __init__(self, shape: tuple, slices: Sequence[Slice], dropped: tuple, added: tuple):
        starts = tuple(map(_lowest, slices))
        cut = any(s.count is not n and s.count != n for s, n in zip(slices, shape))
        starts = tuple(a if s.count != 0 else 0 for a, s in zip(starts, slices))
        self.starts = starts if cut else None
        self.limits = tuple(map(_limit, starts, slices))
        strides = tuple(abs(s.step) if s.count not in (0, 1) else 1 for s in slices)
        self.strides = strides if any(s != 1 for s in strides) else None
        self.reversed_dims = tuple(i for i, s in enumerate(slices) if s.step < 0 and s.count not in (0, 1))
        self.dropped, self.added = dropped, added
        kept = [s.count for i, s in enumerate(slices) if i not in dropped]
        for i in added:
            kept.insert(i, 1)
        self.shape = tuple(kept)

    def __call__(self, x: Any) -> Any:
        if self.starts is not None:
            x = lax.slice(x, self.starts, self.limits, self.strides)
        if self.reversed_dims:
            x = lax.rev(x, self.reversed_dims)
        return self.reshape(x)

    def reshape(self, x: Any) -> Any:
        """The part that comes after the slice."""
        if self.dropped and self.added:
            return lax.reshape(x, self.shape)
        if self.dropped:
            return lax.squeeze(x, self.dropped)
        return lax.expand_dims(x, self.added) if self.added else x

    @property
    def num_operations(self) -> int:
        """How many operations the view takes."""
        return (self.starts is not None) + bool(self.reversed_dims) + bool(self.dropped or self.added)


def _lowest(s: Slice) -> Any:
    """Where a slice begins, counted upwards."""
    if s.step > 0:
        return s.start
    if is_symbolic(s.count):  # which may be 0
        return max_dim(0, s.start + (max_dim(s.count, 1) - 1) * s.step)
    return s.start + (s.count - 1) * s.step


def _limit(start: Any, s: Slice) -> Any:
    """Where a slice that begins at `start` ends, counted upwards."""
    if s.step in (1, -1) or s.count == 0:
        return start + s.count
    return max_dim(start, start + (s.count - 1) * abs(s.step) + 1)


class ViewPlan:
    """A view alone. Called eagerly, windows that differ only in their place soon share one program."""

    __slots__ = ("view", "window")

    def __init__(self, view: View, shape: tuple):
        self.view = view
        self.window = None
        if view.starts is not None and view.strides is None and not view.reversed_dims:
            moved = tuple(i for i, (a, b, n) in enumerate(zip(view.starts, view.limits, shape)) if b - a != n)
            if all(type(n) is int for n in shape):
                self.window = _window_of(shape, moved, view)

    def __call__(self, x: Any, arrays: list) -> Any:
        view = self.view
        if state.trace is not None:
            return view(x)
        if self.window is not None:
            if len(x.sharding.device_set) == 1:
                if self.window.places.are_many(view.starts):
                    return _read_window(x, np.array([view.starts[i] for i in self.window.moved], np.int32), self.window)
            elif (piece := _whole_shard(x, view)) is not None:
                return piece
        if view.num_operations == 1:
            return view(x)
        return _read(x, arrays, self) if view.num_operations else x


def _whole_shard(x: Any, view: View) -> Any:
    """What a view shows of an array, where that is just one device's piece: the piece, where it is."""
    sizes = tuple([b - a for a, b in zip(view.starts, view.limits)])
    if x.aval.sharding is not None or x.sharding.shard_shape(x.shape) != sizes:
        return None
    for shard in x.addressable_shards:
        if tuple([s.start or 0 for s in shard.index]) == view.starts:
            piece = view.reshape(shard.data)
            # It is there by chance: later operations may bring it elsewhere.
            return Array(piece._buffer, ArrayType(piece.aval, piece.sharding, False))
    return None


class Places(set):
    """Where windows of one size are, as long as these are so few that each has a program of its own."""

    def are_many(self, starts: tuple) -> bool:
        """Whether a window here is one of so many that they should share a program."""
        if starts in self:
            return False
        if len(self) < 2:
            self.add(starts)
            return False
        return True


class Window:
    """All windows of one size into arrays of one shape.

    Args:
      moved: the dimensions along which the window is smaller than the array.
      sizes: the size of the window.
      view: a view of that size, for the reshape after it.
    """

    __slots__ = ("moved", "places", "sizes", "view")

    def __init__(self, moved: tuple, sizes: tuple, view: View):
        self.moved, self.sizes, self.view, self.places = moved, sizes, view, Places()


_windows: dict[tuple, Window] = {}


def _window_of(shape: tuple, moved: tuple, view: View) -> Window:
    sizes = tuple(b - a for a, b in zip(view.starts, view.limits))
    key = (shape, sizes, view.dropped, view.added)
    if (found := _windows.get(key)) is None:
        found = _windows[key] = Window(moved, sizes, view)
    return found


@eager_program(static_argnames=("window",))
def _read_window(x: Any, starts: Any, window: Window) -> Any:
    places = [np.int32(0)] * len(window.sizes)
    for i, d in enumerate(window.moved):
        places[d] = lax.squeeze(lax.slice(starts, (i,), (i + 1,)), (0,))
    sizes = window.sizes
    return window.view.reshape(lax.dynamic_slice_p(x, *places, sizes=sizes, wrap=(False,) * len(sizes)))


def normalized(index: Any, n: Any, known: bool) -> Any:
    """A traced index counted from 0, as int32 unless it is wider."""
    if known:
        return index
    dtype = index.dtype
    if dtype.itemsize < 4:
        index, dtype = lax.convert_element_type(index, INT32), INT32
    if dtype.kind == "u":
        return index
    if type(n) is int:
        n = dtype.type(n)
    else:
        n = lax.convert_element_type(n, dtype)
    return lax.select_n(lax.lt(index, dtype.type(0)), index, lax.add(index, n))


class ScalarsPlan:
    """Scalar arrays, integers and slices: a dynamic slice."""

    __slots__ = ("sizes", "starts", "view", "wrap")

    def __init__(self, starts: list, sizes: tuple, view: View):
        # `starts` holds, for each dimension, a static start, or None for the next array.
        self.starts = [s if s is None or type(s) is not int else np.int32(s) for s in starts]
        self.wrap = tuple(s is None for s in starts)
        self.sizes, self.view = sizes, view

    def __call__(self, x: Any, arrays: list) -> Any:
        if state.trace is None:
            return _read(x, arrays, self)
        found = iter(arrays)
        starts = [next(found) if s is None else s for s in self.starts]
        return self.view.reshape(lax.dynamic_slice_p(x, *starts, sizes=self.sizes, wrap=self.wrap))


def _as(x: Any, dtype: Any) -> Any:
    return x if x.dtype == dtype else lax.convert_element_type(x, dtype)


class GatherPlan:
    """Arrays of integers among slices: a view, a gather, and new dimensions.

    Args:
      view: applied to the array first.
      dims: the dimensions of the view that arrays are about.
      entries: what the key has for the arrays.
      batch_shape: what the arrays broadcast to.
      numbers: the gather's dimension numbers.
      slice_sizes: its slice sizes.
      added: positions of new dimensions in the result.
      options: mode, fill value and flags, as keywords of lax.gather.
    """

    __slots__ = ("added", "batch_shape", "kept", "known", "numbers", "options", "sizes", "slice_sizes", "view")

    def __init__(self, view: Any, dims: tuple, entries: Sequence[Any], batch_shape: tuple, position: int,
                 added: tuple, options: dict):  # fmt: skip
        shape, lead = view.shape, len(batch_shape)
        places = [range(lead - len(e.shape), lead) for e in entries]
        batches = aligned(entries, [shape[d] for d in dims], places)
        self.kept = [i for i in range(len(dims)) if i not in batches]
        about = tuple(dims[i] for i in self.kept)
        pairs = sorted((dims[i], b) for i, b in batches.items())
        self.view, self.batch_shape, self.added = view, batch_shape, added
        self.sizes = tuple(shape[d] for d in about)
        self.known = tuple(is_known(entries[i]) for i in self.kept)
        self.options = options if not batches else {**options, "indices_are_sorted": False}
        rank = len(batch_shape) + len(shape) - len(dims)
        batch = range(position, position + len(batch_shape))
        self.numbers = lax.GatherDimensionNumbers(
            offset_dims=tuple(i for i in range(rank) if i not in batch), collapsed_slice_dims=tuple(sorted(about)),
            start_index_map=about, operand_batching_dims=tuple(d for d, _ in pairs),
            start_indices_batching_dims=tuple(b for _, b in pairs),
        )  # fmt: skip
        self.slice_sizes = tuple(1 if i in dims else n for i, n in enumerate(shape))

    def __call__(self, x: Any, arrays: list) -> Any:
        if state.trace is None:
            return _read(x, arrays, self)
        if self.view.num_operations:
            x = self.view(x)
        indices = index_vectors([arrays[i] for i in self.kept], self.sizes, self.known, self.batch_shape)
        y = gathered(x, indices, self.numbers, self.slice_sizes, **self.options)
        return lax.expand_dims(y, self.added) if self.added else y


def gathered(x: Any, indices: Any, numbers: Any, slice_sizes: tuple, **options: Any) -> Any:
    """`lax.gather` where windows may lie along dimensions of size 0, of which nothing can be taken but nothing.

    Raises:
      IndexingError: something is taken from them.
    """
    empty = [d for d, (n, size) in enumerate(zip(x.shape, slice_sizes)) if type(n) is int and n < size]
    if not empty:
        return lax.gather(x, indices, numbers, slice_sizes, **options)
    rank = len(numbers.offset_dims) + indices.ndim - 1
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window, batch = iter(n for d, n in enumerate(slice_sizes) if d not in gone), iter(indices.shape[:-1])
    shape = tuple(next(window if i in numbers.offset_dims else batch) for i in range(rank))
    if 0 not in shape:
        raise _nothing_to_take("an array")
    return lax.full(shape, 0, x.dtype)


def _nothing_to_take(index: Any) -> IndexingError:
    return IndexingError(
        "index expression", expected="no index into a dimension of size 0", got=index, mend="check the size first"
    )


def index_vectors(arrays: Sequence[Any], sizes: tuple, known: tuple, batch_shape: tuple) -> Any:
    """Index arrays as one array of index vectors, along its last dimension."""
    wide = (*batch_shape, 1)
    if all(isinstance(a, np.ndarray) for a in arrays):
        return np.stack([np.broadcast_to(a, batch_shape) for a in arrays], axis=-1).astype(_widest(arrays))
    found = [normalized(a, n, k) for a, n, k in zip(arrays, sizes, known)]
    if len(found) > 1:
        dtype = _widest(found)
        found = [a.astype(dtype) if isinstance(a, np.ndarray) else _as(a, dtype) for a in found]
    lead = len(batch_shape)
    found = [lax.broadcast_in_dim(a, wide, tuple(range(lead - a.ndim, lead))) for a in found]
    return found[0] if len(found) == 1 else lax.concatenate(found, lead)


def _widest(arrays: Sequence[Any]) -> Any:
    kinds = {a.dtype for a in arrays}
    if len(kinds) == 1:
        return kinds.pop()
    return np.dtype(np.int64) if any(k.itemsize > 4 for k in kinds) else INT32


@eager_program(static_argnames=("plan",))
def _read(x: Any, arrays: list, plan: Any) -> Any:
    return plan(x, arrays)


_plans: dict[tuple, Any] = {}


def getitem(x: Any, index: Any) -> Any:
    """`x[index]`."""
    x, key, arrays = parse(x, index)
    if arrays and state.trace is None:
        key, arrays = with_integers_as_arrays(x.shape, key, arrays)
    else:
        key = with_counts(x.shape, key, arrays)
    plan_key = (x.aval, key)
    plan = _plans.get(plan_key)
    if plan is None:
        plan = _plans[plan_key] = plan_read(x.shape, key, None, None, False, False)
    return plan(x, arrays)


def get(
    x: Any, index: Any, mode: Any = None, fill_value: Any = None, indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Any:  # fmt: skip
    """`x.at[index].get(...)`: indexing with the treatment of indices out of bounds that `mode` names."""
    mode = MODE_NAMES.get(mode, mode)
    if isinstance(mode, str) or mode is None:
        from phalanx.numpy.taking import check_mode

        check_mode(mode, "at[].get")
    x, key, arrays = parse(x, index)
    key = with_counts(x.shape, key, arrays)
    plan_key = (x.aval, key, mode, repr(fill_value), indices_are_sorted, unique_indices)
    plan = _plans.get(plan_key)
    if plan is None:
        plan = plan_read(x.shape, key, mode, fill_value, indices_are_sorted, unique_indices)
        _plans[plan_key] = plan
    return plan(x, arrays)


def with_integers_as_arrays(shape: tuple, key: tuple, arrays: list) -> tuple[tuple, list]:
    """Integers beside arrays as arrays of rank 0, so that eager calls which differ in them share one program."""
    if not any(type(e) is int for e in key) or not any(a.ndim for a in arrays):
        return key, arrays
    ellipsis = next((i for i, e in enumerate(key) if e is Ellipsis), len(key))
    given = iter(arrays)
    found = []
    for i, e in enumerate(key):
        if type(e) is int:
            around = key[:i] if i < ellipsis else key[i:]
            dim = sum(v is not None for v in around)
            found.append(np.asarray(e + shape[dim if i < ellipsis else len(shape) - dim] if e < 0 else e, np.int32))
        elif is_array(e):
            found.append(next(given))
    return tuple(Integers(()) if type(e) is int else e for e in key), found


def is_array(e: Any) -> bool:
    """Whether an entry of a key stands for an array."""
    return type(e) is Integers or hasattr(e, "dtype")


def is_known(e: Any) -> bool:
    """Whether an entry of a key stands for an array that is counted from 0 already."""
    return type(e) is Integers or type(e) is Counting


def are_together(key: tuple) -> bool:
    """Whether nothing stands between the arrays and integers of a key, not even an Ellipsis that is about nothing."""
    advanced = [i for i, e in enumerate(key) if is_array(e) or type(e) is int]
    return bool(advanced) and advanced[-1] - advanced[0] + 1 == len(advanced)


def plan_read(
    shape: tuple, key: tuple, mode: Any, fill_value: Any, is_sorted: bool, unique: bool, together: bool | None = None
) -> Any:
    """Plan the reading of an array of this shape by an expression with this key."""
    together = are_together(key) if together is None else together
    fills = mode in ("fill", "drop")
    entries = expanded(key, len(shape), shape)
    if fills:
        entries, known_ints = _ints_as_arrays(entries, shape)
        if known_ints:
            inner = plan_read(shape, entries, mode, fill_value, is_sorted, unique, together)
            return functools.partial(_with_ints, inner, known_ints)
    has_arrays = any(is_array(e) for e in entries)
    # Traced scalars beside slices make a dynamic slice; where out of bounds means "fill" only a gather can do that.
    scalars = all(hasattr(e, "dtype") and not e.shape for e in entries if is_array(e))
    steps = all(type(e) is not tuple or e[2] in (None, 1) for e in entries)
    if has_arrays and scalars and steps and not fills:
        return _plan_scalars(shape, entries)
    slices, dropped, dims = _sliced(entries, shape)
    array_entries = [e for e in entries if is_array(e)]
    if not has_arrays:
        added, place = [], 0
        for e in entries:
            if e is None:
                added.append(place)
            place += e is None or type(e) is tuple
        return ViewPlan(View(shape, slices, tuple(dropped), tuple(added)), shape)
    view = View(shape, slices, tuple(dropped), ())
    shift = [i - sum(d < i for d in dropped) for i in dims]
    batch_shape = broadcast_shapes(*[e.shape for e in array_entries], where="index expression")
    position, added = _layout(entries, len(batch_shape), together)
    options = {"mode": READ_MODES.get(mode, mode), "indices_are_sorted": is_sorted, "unique_indices": unique}
    if fills:
        options["fill_value"] = fill_value
    return GatherPlan(view, tuple(shift), array_entries, batch_shape, position, added, options)


def _sliced(entries: tuple, shape: tuple) -> tuple[list, list, list]:
    """What static indices do: a slice of each dimension, those that integers drop, those that arrays are about."""
    slices, dropped, dims = [], [], []
    dim = 0
    for e in entries:
        if e is None:
            continue
        n = shape[dim]
        if type(e) is tuple:
            slices.append(slice_of(e, n))
        elif is_array(e):
            slices.append(Slice(0, 1, n))
            dims.append(dim)
        else:
            slices.append(Slice(clamped(e, n), 1, 1))
            dropped.append(dim)
        dim += 1
    return slices, dropped, dims


def _ints_as_arrays(entries: tuple, shape: tuple) -> tuple[tuple, list]:
    """Integers out of bounds as arrays, which a gather that fills can take; and where to put which."""
    out, known, dim, count = [], [], 0, 0
    for e in entries:
        if type(e) is int and type(shape[dim]) is int and not -shape[dim] <= e < shape[dim]:
            known.append((count, np.asarray(np.iinfo(np.int32).max, np.int32)))
            e = Integers(())
        count += is_array(e)
        dim += e is not None
        out.append(e)
    return tuple(out), known


def _with_ints(plan: Any, known: list, x: Any, arrays: list) -> Any:
    arrays = list(arrays)
    for i, a in known:
        arrays.insert(i, a)
    return plan(x, arrays)


def _plan_scalars(shape: tuple, entries: tuple) -> ScalarsPlan:
    starts, sizes, dropped, added, dim, place = [], [], [], [], 0, 0
    for e in entries:
        if e is None:
            added.append(place)
            place += 1
            continue
        if type(e) is tuple:
            s = slice_of(e, shape[dim])
            starts.append(s.start if s.count else 0)
            sizes.append(s.count)
            place += 1
        else:
            starts.append(None if is_array(e) else clamped(e, shape[dim]))
            sizes.append(1)
            dropped.append(dim)
        dim += 1
    slices = [Slice(0, 1, n) for n in sizes]
    return ScalarsPlan(starts, tuple(sizes), View(tuple(sizes), slices, tuple(dropped), tuple(added)))


def clamped(i: int, n: Any) -> Any:
    """A static index counted from 0; one out of bounds means the nearest element."""
    if type(n) is not int:
        return max_dim(0, min_dim(i, n - 1)) if i >= 0 else max_dim(0, n + i)
    if not n:
        raise _nothing_to_take(i)
    i = i + n if i < 0 else i
    return 0 if i < 0 else n - 1 if i >= n and n else i


def _layout(entries: tuple, batch_ndim: int, together: bool) -> tuple[int, tuple]:
    """Where NumPy puts the dimensions of the index arrays: the first one's place, and that of new dimensions.

    The place counts without the new dimensions, which are inserted into the final result.
    """
    advanced = [i for i, e in enumerate(entries) if is_array(e) or type(e) is int]
    first = advanced[0] if together else 0
    before = entries[:first]
    position = sum(type(e) is tuple for e in before)
    added, place = [], 0
    if not together:
        place = batch_ndim
    for i, e in enumerate(entries):
        if together and i == first:
            place += batch_ndim
        if e is None:
            added.append(place)
        place += e is None or type(e) is tuple
    return position, tuple(added)


# Iteration

_CHUNK = 32


def iterate(x: Any) -> Iterator[Any]:
    """The pieces along the first dimension, read many at a time."""
    if x.ndim == 0:
        raise TypeError("iteration over an array of rank 0")
    if state.trace is not None:
        return iter([getitem(x, i) for i in range(x.shape[0])])
    return _iterate_eagerly(x)


def _iterate_eagerly(x: Any) -> Iterator[Any]:
    from phalanx.numpy.joining import _unstack

    n = x.shape[0]
    if n <= _CHUNK:
        yield from _unstack(x, 0)
        return
    for i in range(0, n, _CHUNK):
        yield from _unstack(getitem(x, slice(i, min(i + _CHUNK, n))), 0)
