"""Plans of reads by index, `x[...]`: the operations and their parameters, without the arrays.

Three kinds of plan: `ViewPlan` (static indices only: a slice, a reversal and a reshape), `ScalarsPlan` (traced scalar
indices beside integers and slices: a dynamic slice) and `GatherPlan` (index arrays). Slices beside index arrays are
applied first as a view, so that the gather reads full slices only and its result needs no transposition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import Tracer, state
from phalanx.engine.cache import Cache
from phalanx.numpy.indexing.index_expression import (
    HostIntegers,
    Index,
    IndexingError,
    IotaIndex,
    Slice,
    expand_ellipsis,
    find_batching_dims,
    resolve_slice,
)
from phalanx.numpy.operands import broadcast_shapes
from phalanx.runtime import Array, ArrayType, eager_jit, wrap_buffer
from phalanx.symbolic import is_symbolic, max_dim, min_dim
from phalanx.typing import ArrayLike, DTypeLike

INT32 = np.dtype(np.int32)


READ_MODES = {
    None: lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    "promise_in_bounds": lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    "clip": lax.GatherScatterMode.CLIP,
    "fill": lax.GatherScatterMode.FILL_OR_DROP,
    "drop": lax.GatherScatterMode.FILL_OR_DROP,
}


MODE_NAMES = {mode: name for name, mode in READ_MODES.items() if name not in (None, "drop")}


class View:
    """The effect of static indices: a slice, a reversal and a reshape.

    Args:
      shape: shape of the array.
      slices: one resolved slice per dimension; an integer index is a slice of one element.
      dropped: dimensions of size 1 to remove afterwards, one for each integer index.
      added: positions of new dimensions of size 1 in the result.

    Attributes:
      starts, limits, strides: operands of `lax.slice`; `starts` is None if the slice selects everything.
      reversed_dims: dimensions to reverse after the slice.
      shape: shape of the result.
    """

    __slots__ = ("added", "dropped", "limits", "reversed_dims", "shape", "starts", "strides")

    def __init__(self, shape: tuple, slices: Sequence[Slice], dropped: tuple, added: tuple):
        starts = tuple(map(_lowest, slices))
        # `is not` first: comparing symbolic dimensions is expensive, and an untouched dimension is the same object.
        cut = any(s.count is not n and s.count != n for s, n in zip(slices, shape))
        # An empty slice begins at 0, so that the bounds passed to `lax.slice` are valid.
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

    def __call__(self, x: Array) -> Any:
        if self.starts is not None:
            x = lax.slice(x, self.starts, self.limits, self.strides)
        if self.reversed_dims:
            x = lax.rev(x, self.reversed_dims)
        return self.reshape(x)

    def reshape(self, x: Array) -> Any:
        """Drop and add dimensions of size 1, after the slice."""
        # One reshape replaces a squeeze and an expand_dims.
        if self.dropped and self.added:
            return lax.reshape(x, self.shape)
        if self.dropped:
            return lax.squeeze(x, self.dropped)
        return lax.expand_dims(x, self.added) if self.added else x

    @property
    def num_operations(self) -> int:
        """Number of operations that the view takes."""
        return (self.starts is not None) + bool(self.reversed_dims) + bool(self.dropped or self.added)


def _lowest(s: Slice) -> Any:
    """The smallest index that a slice selects."""
    if s.step > 0:
        return s.start
    if is_symbolic(s.count):  # The count may be 0.
        return max_dim(0, s.start + (max_dim(s.count, 1) - 1) * s.step)
    return s.start + (s.count - 1) * s.step


def _limit(start: Any, s: Slice) -> Any:
    """The exclusive upper bound of a slice whose smallest index is `start`."""
    # A contiguous slice ends `count` elements after its start; a strided one ends one past its last element.
    if s.step in (1, -1) or s.count == 0:
        return start + s.count
    return max_dim(start, start + (s.count - 1) * abs(s.step) + 1)


class ReadPlan:
    """Base of plans: a call reads an array; eagerly, `read` is compiled as one program."""

    __slots__ = ()

    def __call__(self, x: Array, arrays: list) -> Any:
        return getitem(x, arrays, self) if state.trace is None else self.read(x, arrays)

    def read(self, x: Array, arrays: list) -> Any:
        """Apply the operations of the plan."""
        raise NotImplementedError


class ViewPlan(ReadPlan):
    """A view without index arrays. Eager reads of windows that differ only in position share one program."""

    __slots__ = ("view", "window")

    def __init__(self, view: View, shape: tuple):
        self.view = view
        self.window = None
        # Only a contiguous window of static shape can be read by a dynamic slice.
        if view.starts is not None and view.strides is None and not view.reversed_dims:
            if all(type(n) is int for n in shape):
                self.window = _window_of(shape, view)

    def __call__(self, x: Array, arrays: list) -> Any:
        view = self.view
        # Under tracing, the operations of the view are recorded; the shared program below is for eager reads. The
        # operations refuse a tracer that has leaked.
        if state.trace is not None or isinstance(x, Tracer):
            return self.read(x, arrays)
        if self.window is not None:
            # A dynamic slice of a sharded array would gather it; a static one may select exactly one shard.
            if len(x.sharding.device_set) == 1:
                if self.window.places.are_many(view.starts):
                    return _read_window(x, np.array([view.starts[i] for i in self.window.moved], np.int32), self.window)
            elif (piece := _find_whole_shard(x, view)) is not None:
                return piece
        # One operation is compiled on its own; several are compiled together as one program.
        if view.num_operations == 1:
            return view(x)
        return super().__call__(x, arrays) if view.num_operations else x

    def read(self, x: Array, arrays: list) -> Any:
        return self.view(x)


def _find_whole_shard(x: Array, view: View) -> Any:
    """The shard that a view selects, left on its device; None if the view is not exactly one shard.

    Of an array over several processes, only one would find the shard, and the others would wait for it in a collective.
    """
    if not x.is_fully_addressable:
        return None
    sizes = tuple([b - a for a, b in zip(view.starts, view.limits)])
    # With Explicit axes, the type of the result must say how it is sharded: leave that to the compiled program.
    if x.aval.type_sharding is not None or x.sharding.shard_shape(x.shape) != sizes:
        return None
    for shard in x.addressable_shards:
        if tuple([s.start or 0 for s in shard.index]) == view.starts:
            piece = view.reshape(shard.data)
            # The user did not ask for this device, so the result is uncommitted: later operations may move it.
            return wrap_buffer(piece._buffer, ArrayType(piece.aval, piece.sharding, False, piece._type.layout))
    return None


class WindowStarts(set):
    """The starts of the first windows of one size, each of which is compiled with constant starts.

    A constant start compiles to the fastest program, but a loop over positions would compile one per iteration. From
    the third different position on, windows share a program that takes the starts as an argument.
    """

    def are_many(self, starts: tuple) -> bool:
        """Whether a window with these starts should use the shared program."""
        if starts in self:
            return False
        if len(self) < 2:
            self.add(starts)
        return starts not in self


class Window:
    """The reads of all windows of one size in arrays of one shape, as one program.

    Args:
      moved: dimensions along which the window is smaller than the array; only these have a start.
      sizes: sizes of the window.
      view: a view with these sizes, for the reshape after the slice.
    """

    __slots__ = ("moved", "places", "sizes", "view")

    def __init__(self, moved: tuple, sizes: tuple, view: View):
        self.moved, self.sizes, self.view, self.places = moved, sizes, view, WindowStarts()


_windows: Cache[tuple, Window] = Cache("numpy.index_windows", 4096)


def _window_of(shape: tuple, view: View) -> Window:
    sizes = tuple(b - a for a, b in zip(view.starts, view.limits))
    moved = tuple(i for i, (size, n) in enumerate(zip(sizes, shape)) if size != n)
    # Views with equal sizes and equal reshapes share the program.
    return _windows.get_or_make((shape, sizes, view.dropped, view.added), lambda: Window(moved, sizes, view))


@eager_jit(static_argnames=("window",))
def _read_window(x: Array, starts: Array, window: Window) -> Any:
    places = [np.int32(0)] * len(window.sizes)
    for i, d in enumerate(window.moved):
        places[d] = lax.squeeze(lax.slice(starts, (i,), (i + 1,)), (0,))
    sizes = window.sizes
    return window.view.reshape(lax.dynamic_slice_p(x, *places, sizes=sizes, wrap=(False,) * len(sizes)))


def normalize_index(index: Index, n: int, known: bool) -> Any:
    """Resolve the negative entries of an index array, and cast it to int32 unless it is wider.

    Args:
      index: the index array.
      n: size of the indexed dimension.
      known: whether the array contains no negative entries.
    """
    # Host indices were resolved when the expression was parsed.
    if known:
        return index
    dtype = index.dtype
    # Adding the size to a negative index could overflow a narrow dtype.
    if dtype.itemsize < 4:
        index, dtype = lax.convert_element_type(index, INT32), INT32
    if dtype.kind == "u":
        return index
    n = dtype.type(n) if type(n) is int else lax.convert_element_type(n, dtype)
    # A select, not a remainder: indices below -n stay out of bounds.
    return lax.select_n(lax.lt(index, dtype.type(0)), index, lax.add(index, n))


class ScalarsPlan(ReadPlan):
    """Scalar index arrays, integers and slices: a dynamic slice."""

    __slots__ = ("sizes", "starts", "view", "wrap")

    def __init__(self, starts: list, sizes: tuple, view: View):
        # One entry per dimension: a static start, or None for the next scalar array, which `wrap` lets be negative.
        self.starts = [s if s is None or type(s) is not int else np.int32(s) for s in starts]
        # Static starts are resolved; traced ones may be negative.
        self.wrap = tuple(s is None for s in starts)
        self.sizes, self.view = sizes, view

    def read(self, x: Array, arrays: list) -> Any:
        found = iter(arrays)
        starts = [next(found) if s is None else s for s in self.starts]
        return self.view.reshape(lax.dynamic_slice_p(x, *starts, sizes=self.sizes, wrap=self.wrap))


def as_dtype(x: Array, dtype: DTypeLike) -> Array:
    """`x` converted to a dtype, without an operation if it has it already."""
    return x if x.dtype == dtype else lax.convert_element_type(x, dtype)


class GatherPlan(ReadPlan):
    """Index arrays, possibly beside slices: a view, a gather, then new dimensions.

    Args:
      view: static part of the expression, applied to the array first.
      dims: dimensions of the view that are indexed by arrays.
      entries: the key's entries for these arrays.
      batch_shape: broadcast shape of the arrays.
      position: dimension of the result where the batch begins.
      added: positions of new dimensions in the result.
      options: mode, fill value and flags, as keywords of `lax.gather`.
    """

    __slots__ = ("added", "batch_shape", "kept", "known", "numbers", "options", "sizes", "slice_sizes", "view")

    def __init__(
        self,
        view: Any,
        dims: tuple,
        entries: Sequence[Any],
        batch_shape: tuple,
        position: int,
        added: tuple,
        options: dict,
    ):
        shape, lead = view.shape, len(batch_shape)
        # Index arrays of lower rank broadcast: their dimensions map to the last ones of the batch.
        places = [range(lead - len(e.shape), lead) for e in entries]
        batches = find_batching_dims(entries, [shape[d] for d in dims], places)
        self.kept = [i for i in range(len(dims)) if i not in batches]
        # The dimensions that keep a component in the index vectors.
        about = tuple(dims[i] for i in self.kept)
        # StableHLO requires operand_batching_dims in increasing order.
        pairs = sorted((dims[i], b) for i, b in batches.items())
        self.view, self.batch_shape, self.added = view, batch_shape, added
        self.sizes = tuple(shape[d] for d in about)
        self.known = tuple(is_known(entries[i]) for i in self.kept)
        # Without the components of the batching dimensions, the index vectors need not be sorted any more.
        self.options = options if not batches else {**options, "indices_are_sorted": False}
        # The result has the batch of index vectors at `position`, and the full slices around it.
        rank = len(batch_shape) + len(shape) - len(dims)
        batch = range(position, position + len(batch_shape))
        self.numbers = lax.GatherDimensionNumbers(
            offset_dims=tuple(i for i in range(rank) if i not in batch),
            collapsed_slice_dims=tuple(sorted(about)),
            start_index_map=about,
            operand_batching_dims=tuple(d for d, _ in pairs),
            start_indices_batching_dims=tuple(b for _, b in pairs),
        )
        self.slice_sizes = tuple(1 if i in dims else n for i, n in enumerate(shape))

    def read(self, x: Array, arrays: list) -> Any:
        if self.view.num_operations:
            x = self.view(x)
        indices = stack_index_vectors([arrays[i] for i in self.kept], self.sizes, self.known, self.batch_shape)
        y = gather_or_empty(x, indices, self.numbers, self.slice_sizes, **self.options)
        return lax.expand_dims(y, self.added) if self.added else y


def gather_or_empty(
    x: ArrayLike, indices: ArrayLike, numbers: lax.GatherDimensionNumbers, slice_sizes: tuple, **options: Any
) -> Array:
    """`lax.gather`, extended to operands that are empty along an indexed dimension.

    `lax.gather` requires that a slice fits into the operand. With no index vectors the result is empty anyway.

    Raises:
      IndexingError: the result is not empty.
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


def _nothing_to_take(index: Index) -> IndexingError:
    return IndexingError(
        "index expression",
        expected="no index into a dimension of size 0",
        got=index,
        fix="check x.size before indexing",
    )


def stack_index_vectors(arrays: Sequence[Any], sizes: tuple, known: tuple, batch_shape: tuple) -> Any:
    """Broadcast index arrays and stack them as index vectors, int[*batch_shape, len(arrays)]."""
    wide = (*batch_shape, 1)
    if all(isinstance(a, np.ndarray) for a in arrays):
        return np.stack([np.broadcast_to(a, batch_shape) for a in arrays], axis=-1).astype(widest_index_dtype(arrays))
    found = [normalize_index(a, n, k) for a, n, k in zip(arrays, sizes, known)]
    if len(found) > 1:
        dtype = widest_index_dtype(found)
        found = [a.astype(dtype) if isinstance(a, np.ndarray) else as_dtype(a, dtype) for a in found]
    lead = len(batch_shape)
    # Index arrays broadcast against each other by NumPy's rules.
    found = [lax.broadcast_in_dim(a, wide, tuple(range(lead - a.ndim, lead))) for a in found]
    return found[0] if len(found) == 1 else lax.concatenate(found, lead)


def widest_index_dtype(arrays: Sequence[Any]) -> np.dtype:
    """The dtype of index vectors made of these arrays: their common one, otherwise int32, or int64 if one is wider."""
    kinds = {a.dtype for a in arrays}
    if len(kinds) == 1:
        return kinds.pop()
    return np.dtype(np.int64) if any(k.itemsize > 4 for k in kinds) else INT32


@eager_jit(static_argnames=("plan",))
def getitem(x: Array, arrays: list, plan: ReadPlan) -> Any:
    """Read the elements that a plan selects, as one compiled program."""
    return plan.read(x, arrays)


def is_array(e: object) -> bool:
    """Whether an entry of a key is that of an index array."""
    return type(e) is HostIntegers or hasattr(e, "dtype")


def is_known(e: object) -> bool:
    """Whether an entry of a key is that of an index array without negative entries."""
    return type(e) is HostIntegers or type(e) is IotaIndex


def are_adjacent(key: tuple) -> bool:
    """Whether the index arrays and integers of a key are adjacent: NumPy then leaves the batch at their position.

    An Ellipsis between two of them separates them even if it expands to no dimension.
    """
    advanced = [i for i, e in enumerate(key) if is_array(e) or type(e) is int]
    return bool(advanced) and advanced[-1] - advanced[0] + 1 == len(advanced)


def plan_read(
    shape: tuple,
    key: tuple,
    mode: str | lax.GatherScatterMode | None,
    fill_value: ArrayLike | None,
    is_sorted: bool,
    unique: bool,
    adjacent: bool | None = None,
) -> Any:
    """Plan the read of an array of this shape at an index expression with this key.

    Args:
      shape: shape of the array.
      key: key of the expression.
      mode, fill_value, is_sorted, unique: as in `x.at[...].get`.
      adjacent: `are_adjacent` of the original key, when `key` has been rewritten.
    """
    adjacent = are_adjacent(key) if adjacent is None else adjacent
    fills = mode in ("fill", "drop")
    entries = expand_ellipsis(key, len(shape), shape)
    entries, known_ints = _ints_as_arrays(entries, shape, fills)
    if known_ints:
        inner = plan_read(shape, entries, mode or "clip", fill_value, is_sorted, unique, adjacent)
        return functools.partial(_with_ints, inner, known_ints)
    has_arrays = any(is_array(e) for e in entries)
    # A dynamic slice clamps its starts, so that mode "fill" needs a gather even for scalar indices.
    scalars = all(hasattr(e, "dtype") and not e.shape for e in entries if is_array(e))
    # A dynamic slice has no strides.
    steps = all(type(e) is not tuple or e[2] in (None, 1) for e in entries)
    slices, dropped, dims = _slice_dims(entries, shape)
    if has_arrays and scalars and steps and not fills:
        return _plan_scalars(slices, dropped, dims, _layout(entries, 0, False)[1])
    if not has_arrays:
        return ViewPlan(View(shape, slices, tuple(dropped), _layout(entries, 0, False)[1]), shape)
    array_entries = [e for e in entries if is_array(e)]
    view = View(shape, slices, tuple(dropped), ())
    # Dimensions of the view, without the dropped dimensions of integers.
    shift = [i - sum(d < i for d in dropped) for i in dims]
    batch_shape = broadcast_shapes(*[e.shape for e in array_entries], where="index expression")
    position, added = _layout(entries, len(batch_shape), adjacent)
    options = {"mode": READ_MODES.get(mode, mode), "indices_are_sorted": is_sorted, "unique_indices": unique}
    if fills:
        options["fill_value"] = fill_value
    return GatherPlan(view, tuple(shift), array_entries, batch_shape, position, added, options)


def check_static_indices(shape: tuple, key: tuple) -> None:
    """Check that the Python integers of an index expression are within bounds, for the option `check_static_indices`.

    Raises:
      IndexingError: one is not.
    """
    entries = [e for e in expand_ellipsis(key, len(shape), shape) if e is not None]
    for dim, (e, n) in enumerate(zip(entries, shape, strict=True)):
        if type(e) is int and type(n) is int and not -n <= e < n:
            raise IndexingError(
                "index expression",
                expected=f"an index from {-n} to {n - 1} for dimension {dim}, since check_static_indices is on",
                got=e,
                fix="correct the index, or pass a mode to x.at[...].get",
            )


def _slice_dims(entries: tuple, shape: tuple) -> tuple[list, list, list]:
    """The static part of an expression: a slice per dimension, the dimensions of integers, the dimensions of arrays."""
    slices, dropped, dims = [], [], []
    dim = 0
    for e in entries:
        if e is None:
            continue
        n = shape[dim]
        if type(e) is tuple:
            slices.append(resolve_slice(e, n))
        elif is_array(e):
            slices.append(Slice(0, 1, n))
            dims.append(dim)
        else:
            slices.append(Slice(clamp_static_index(e, n), 1, 1))
            dropped.append(dim)
        dim += 1
    return slices, dropped, dims


def _ints_as_arrays(entries: tuple, shape: tuple, fills: bool) -> tuple[tuple, list]:
    """Replace integers by index arrays if one of them is out of bounds.

    A slice cannot express the fill value that such an integer selects if `fills` is set. In the other modes the index
    stays in the program for `checkify` to find.

    Returns:
      The entries, and pairs of a position among the arrays of the expression and the array to insert there.
    """
    out, known, dim, count, is_outside = [], [], 0, 0, False
    limits = np.iinfo(np.int32)
    for e in entries:
        n = shape[dim] if type(e) is int else None
        if type(n) is int and (fills or n):
            is_inside = -n <= e < n
            is_outside |= not is_inside
            index = limits.max if fills and not is_inside else max(limits.min, min(e + n * (e < 0), limits.max))
            known.append((count, np.asarray(index, np.int32)))
            e = HostIntegers(())
        count += is_array(e)
        dim += e is not None
        out.append(e)
    return (tuple(out), known) if is_outside else (entries, [])


def _with_ints(plan: Callable[..., Array], known: list, x: Array, arrays: list) -> Any:
    arrays = list(arrays)
    for i, a in known:
        arrays.insert(i, a)
    return plan(x, arrays)


def _plan_scalars(slices: list, dropped: list, dims: list, added: tuple) -> ScalarsPlan:
    # An index array of rank 0 selects one element, and its dimension is dropped like that of an integer.
    sizes = tuple(1 if d in dims else s.count for d, s in enumerate(slices))
    starts = [s.start if s.count else 0 for s in slices]
    for d in dims:
        starts[d] = None
    view = View(sizes, [Slice(0, 1, n) for n in sizes], tuple(sorted(dropped + dims)), added)
    return ScalarsPlan(starts, sizes, view)


def clamp_static_index(i: int, n: int) -> Any:
    """A static index counted from 0 and clamped to the dimension, as an eager read of a single element does.

    Raises:
      IndexingError: the dimension has size 0.
    """
    if type(n) is not int:
        return max_dim(0, min_dim(i, n - 1)) if i >= 0 else max_dim(0, n + i)
    if not n:
        raise _nothing_to_take(i)
    i = i + n if i < 0 else i
    return 0 if i < 0 else n - 1 if i >= n and n else i


def _layout(entries: tuple, batch_ndim: int, adjacent: bool) -> tuple[int, tuple]:
    """The position of the batch of index arrays in the result, by NumPy's rule, and those of new dimensions.

    The first counts without new dimensions; these are inserted into the final result.
    """
    first = next(i for i, e in enumerate(entries) if is_array(e) or type(e) is int) if adjacent else 0
    position = sum(type(e) is tuple for e in entries[:first])
    added, place = [], 0 if adjacent else batch_ndim
    for i, e in enumerate(entries):
        if adjacent and i == first:
            place += batch_ndim
        if e is None:
            added.append(place)
        place += e is None or type(e) is tuple
    return position, tuple(added)
