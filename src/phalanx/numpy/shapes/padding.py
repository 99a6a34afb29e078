"""`pad`: constants are one `lax.pad`; the other modes extend one axis after the other.

The modes "wrap", "reflect" and "symmetric" map each position of the padded axis to a position of the original. Where
these run evenly they become slices and reversals, otherwise one gather.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ArgumentTypeError, dtypes, get_aval
from phalanx.lax.elementwise import as_type
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.creation.ranges import arange, linspace
from phalanx.numpy.indexing.index_expression import Index
from phalanx.numpy.indexing.take import take
from phalanx.numpy.indexing.where import where
from phalanx.numpy.operands import as_array, broadcast_to_shape, cast, to_operand
from phalanx.numpy.reductions import array_reductions, moments
from phalanx.numpy.reductions.quantiles import median
from phalanx.numpy.shapes.joining import concatenate
from phalanx.numpy.shapes.reshaping import moveaxis
from phalanx.numpy.ufuncs.ufunc_table import rint
from phalanx.numpy.ufuncs.vectorize import apply_along_axis
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_constant_shape, is_symbolic, max_dim, min_dim
from phalanx.tree import tree_leaves
from phalanx.typing import Array, ArrayLike, DimSize

_OPTIONS = {
    "constant": {"constant_values"},
    "edge": set(),
    "linear_ramp": {"end_values"},
    "maximum": {"stat_length"},
    "mean": {"stat_length"},
    "median": {"stat_length"},
    "minimum": {"stat_length"},
    "reflect": {"reflect_type"},
    "symmetric": {"reflect_type"},
    "wrap": set(),
    "empty": set(),
}


def pad(
    array: ArrayLike,
    pad_width: int | Sequence[object] | Mapping[int, object],
    mode: str | Callable = "constant",
    **kwargs: Any,
) -> Array:
    """Pad an array.

    Args:
      array: an array or a scalar.
      pad_width: elements to add before and after: an int, a pair, one pair per dimension, or a dict from axes to these.
      mode: `"constant"`, `"edge"`, `"linear_ramp"`, `"maximum"`, `"mean"`, `"median"`, `"minimum"`, `"reflect"`,
        `"symmetric"`, `"wrap"`, `"empty"`, or a function with the signature that NumPy documents.
      kwargs: `constant_values`, `end_values`, `stat_length` or `reflect_type`, depending on the mode.

    Returns:
      The padded array, in the dtype of `array`.

    Raises:
      ArgumentError: `mode` is unknown or does not take a keyword argument, or a width is negative.
      ArgumentTypeError: a width is not an integer.

    Examples:
      >>> jnp.pad(jnp.array([1, 2]), 1).tolist()
      [0, 1, 2, 0]
    """
    x = to_operand(array, "pad")
    widths = _normalize_pairs(pad_width, x.ndim, "pad_width", integers=True)
    if any(n < 0 for pair in widths for n in pair):
        raise ArgumentError(
            "pad, argument pad_width",
            expected="numbers >= 0",
            got=pad_width,
            fix="remove elements by slicing instead of a negative width",
        )
    if callable(mode):
        return _pad_by_function(x, widths, mode, kwargs)
    if mode not in _OPTIONS:
        raise ArgumentError(
            "pad, argument mode",
            expected=" or ".join(map(repr, _OPTIONS)),
            got=repr(mode),
            fix="pass one of the listed modes, for example mode='edge'",
        )
    unknown = set(kwargs) - _OPTIONS[mode]
    if unknown:
        raise ArgumentError(
            f"pad, mode {mode!r}",
            expected=" or ".join(_OPTIONS[mode]) or "no more arguments",
            got=", ".join(sorted(unknown)),
            fix=f"remove {', '.join(sorted(unknown))} from the call",
        )
    out = _pad_by_mode(x, widths, mode, kwargs)
    return as_type(out, x.dtype, weak_type=True) if get_aval(x).weak_type else out


def _pad_by_mode(x: Array, widths: list, mode: str, kwargs: dict) -> Any:
    if mode in ("constant", "empty"):
        values = kwargs.get("constant_values", 0)
        if isinstance(values, int | float | complex):
            return _pad_constant(x, values, tuple(widths))
        return _pad_constants(x, _pairs_to_array(values, x.ndim), tuple(widths))
    if mode == "linear_ramp":
        return _pad_ramp(x, _pairs_to_array(kwargs.get("end_values", 0), x.ndim), tuple(widths))
    lengths = kwargs.get("stat_length")
    lengths = None if lengths is None else tuple(_normalize_pairs(lengths, x.ndim, "stat_length", integers=True))
    return _pad_along(x, tuple(widths), mode, lengths, kwargs.get("reflect_type", "even"))


def _normalize_pairs(value: Any, ndim: int, name: str, integers: bool = False) -> list[tuple]:
    """Normalize a number, a pair, a list of pairs or a dict to one pair per dimension."""
    if isinstance(value, dict):
        out = [(0, 0)] * ndim
        for axis, w in value.items():
            out[axis] = (w, w) if isinstance(w, int) else tuple(w)
        return out
    if integers and any(is_symbolic(n) for n in tree_leaves(value)):
        return _normalize_symbolic_pairs(value, ndim)
    try:
        full = np.broadcast_to(np.asarray(value), (ndim, 2))
    except ValueError:
        raise ArgumentError(
            f"pad, argument {name}",
            expected=f"a number, a pair, or {ndim} pairs",
            got=value,
            fix="give a pair for each dimension",
        ) from None
    if integers and full.dtype.kind not in "iu":
        raise ArgumentTypeError(
            f"pad, argument {name}", expected="integers", got=value, fix="convert the widths to Python ints"
        )
    return [(a.item(), b.item()) for a, b in full]


def _normalize_symbolic_pairs(value: Any, ndim: int) -> list[tuple]:
    """`_normalize_pairs` for symbolic dimensions, which NumPy cannot broadcast."""
    if not isinstance(value, tuple | list):
        value = (value, value)
    if not isinstance(value[0], tuple | list):
        value = [value] * ndim
    return [tuple(pair) * 2 if len(pair) == 1 else tuple(pair) for pair in value]


def _pairs_to_array(value: Any, ndim: int) -> Any:
    value = array(value) if isinstance(value, list | tuple) else to_operand(value, "pad")
    return broadcast_to_shape(value, (ndim, 2))


@eager_jit(static_argnames=("widths",))
def _pad_constant(x: Array, value: Any, widths: tuple) -> Any:
    value = cast(value, x.dtype)
    if all(a == b == 0 for a, b in widths):
        return as_array(x)
    return lax.pad(x, value, [(a, b, 0) for a, b in widths])


@eager_jit(static_argnames=("widths",))
def _pad_constants(x: Array, values: Array, widths: tuple) -> Any:
    values = cast(values, x.dtype)
    for i, (before, after) in enumerate(widths):
        for side, amount in ((0, (before, 0, 0)), (1, (0, after, 0))):
            if any(n != 0 for n in amount):
                x = lax.pad(x, values[i, side], [amount if d == i else (0, 0, 0) for d in range(x.ndim)])
    return as_array(x)


@eager_jit(static_argnames=("widths",))
def _pad_ramp(x: Array, ends: Array, widths: tuple) -> Any:
    own = x.dtype
    for i, (before, after) in enumerate(widths):
        first, last = (lax.index_in_dim(x, j, i, keepdims=False) for j in (0, x.shape[i] - 1))
        parts = []
        for amount, edge, side in ((before, first, 0), (after, last, 1)):
            end = broadcast_to_shape(cast(ends[i, side], own), edge.shape)
            ramp = linspace(end, edge, amount, endpoint=False, dtype=own, axis=i)
            parts.append(lax.rev(ramp, (i,)) if side else ramp)
        x = concatenate([parts[0], x, parts[1]], i)
    return x


@eager_jit(static_argnames=("widths", "mode", "lengths", "reflect_type"))
def _pad_along(x: Array, widths: tuple, mode: str, lengths: tuple | None, reflect_type: str) -> Any:
    for i, (before, after) in enumerate(widths):
        if before == 0 and after == 0:
            continue
        if mode in ("maximum", "mean", "median", "minimum"):
            x = _pad_statistic(x, i, before, after, mode, None if lengths is None else lengths[i])
        elif mode == "edge":
            x = _pad_edges(x, i, before, after)
        elif mode == "wrap":
            x = _take_positions(x, i, _positions(x.shape[i], before, after) % max_dim(x.shape[i], 1))
        elif reflect_type == "even":
            x = _take_positions(x, i, _reflect_positions(x.shape[i], before, after, mode))
        else:
            x = _reflect_odd(x, i, before, after, mode)
    return as_array(x)


def _slice(x: Array, axis: int, a: int, b: int) -> Any:
    return lax.slice_in_dim(x, a, b, axis=axis)


def _pad_edges(x: Array, axis: int, before: int, after: int) -> Any:
    n = x.shape[axis]
    first, last = (
        [] if amount == 0 else [broadcast_to_shape(edge, (*x.shape[:axis], amount, *x.shape[axis + 1 :]))]
        for amount, edge in ((before, _slice(x, axis, 0, 1)), (after, _slice(x, axis, n - 1, n)))
    )
    return concatenate([*first, x, *last], axis)


def _pad_statistic(x: Array, axis: int, before: int, after: int, mode: str, lengths: tuple | None) -> Any:
    find = {"maximum": array_reductions.max, "minimum": array_reductions.min, "mean": moments.mean, "median": median}[
        mode
    ]
    n = x.shape[axis]
    first, last = (n, n) if lengths is None else (min_dim(lengths[0], n), min_dim(lengths[1], n))
    parts = []
    for amount, piece in ((before, _slice(x, axis, 0, first)), (after, _slice(x, axis, n - last, n))):
        value = find(piece, axis=axis, keepdims=True)
        # Means and medians of integers are rounded, as in NumPy.
        if dtypes.issubdtype(x.dtype, np.integer) and value.dtype != x.dtype:
            value = rint(value)
        parts.append(broadcast_to_shape(cast(value, x.dtype), (*x.shape[:axis], amount, *x.shape[axis + 1 :])))
    return concatenate([parts[0], x, parts[1]], axis)


def _positions(n: DimSize, before: Any, after: Any) -> Any:
    """Positions of the padded axis relative to the start of the original: on the host unless a size is symbolic."""
    if is_constant_shape((n, before, after)):
        return np.arange(-before, n + after)
    return arange(-before, n + after, dtype=np.int32)


def _reflect_positions(n: DimSize, before: Any, after: Any, mode: str) -> Any:
    """For each position of the padded axis, the position of the original that it mirrors."""
    # A reflected axis is periodic; "reflect" does not repeat the edge, "symmetric" does.
    period = max_dim(2 * (n - 1) if mode == "reflect" else 2 * n, 1)
    i = _positions(n, before, after) % period
    choose = np.where if isinstance(i, np.ndarray) else where
    return choose(i < n, i, (period if mode == "reflect" else period - 1) - i)


def _take_positions(x: Array, axis: int, index: Index) -> Any:
    """Take positions along an axis: a few slices and reversals where the positions are consecutive, else a gather."""
    if not isinstance(index, np.ndarray):
        return take(x, index, axis, mode="clip")
    # Split the positions into runs that increase or decrease by 1.
    runs, start = [], 0
    while start < len(index):
        stop = start + 1
        if stop < len(index) and abs(index[stop] - index[start]) == 1:
            step = index[stop] - index[start]
            while stop < len(index) and index[stop] - index[stop - 1] == step:
                stop += 1
        runs.append((int(index[start]), int(index[stop - 1])))
        start = stop
    # Many short runs would make a long program: gather instead.
    if len(runs) > 8 and np.count_nonzero(np.diff(index, 2)) > 4:
        return take(x, index.astype(np.int32), axis, mode="clip")
    parts = [_slice(x, axis, a, b + 1) if b >= a else lax.rev(_slice(x, axis, b, a + 1), (axis,)) for a, b in runs]
    return concatenate(parts, axis)


def _reflect_odd(x: Array, axis: int, before: int, after: int, mode: str) -> Any:
    """Pad by reflections of odd symmetry, `2 * edge - x`, one reflection at a time."""
    n = x.shape[axis]
    if n == 1:
        return _pad_edges(x, axis, before, after)
    if not is_constant_shape((n, before, after)):
        return _reflect_odd_at_once(x, axis, before, after, mode)
    # A reflection copies at most the whole array, so wide padding repeats it on the array padded so far.
    for side, amount in ((0, before), (1, after)):
        while amount > 0:
            n = x.shape[axis]
            skip = 1 if mode == "reflect" else 0
            step = min(amount, n - skip)
            edge, begin = (0, skip) if side == 0 else (n - 1, n - skip - step)
            mirrored = lax.rev(_slice(x, axis, begin, begin + step), (axis,))
            new = 2 * _slice(x, axis, edge, edge + 1) - mirrored
            x = concatenate([new, x] if side == 0 else [x, new], axis)
            amount -= step
    return x


def _reflect_odd_at_once(x: Array, axis: int, before: Any, after: Any, mode: str) -> Any:
    """`_reflect_odd` in closed form, for symbolic sizes.

    Continued with odd symmetry, the sequence alternates between the original and its mirror image; each period adds
    twice the rise from the first element to the last.
    """
    n = x.shape[axis]
    # One period is the original or its mirror image; `turns` counts the periods before the position.
    period = max_dim(n - 1, 1) if mode == "reflect" else n
    places = _positions(n, before, after)
    turns, rest = places // period, places % period
    is_mirrored = turns % 2 == 1
    found = _take_positions(x, axis, where(is_mirrored, n - 1 - rest, rest))
    first, last = _slice(x, axis, 0, 1), _slice(x, axis, n - 1, n)
    wide = tuple(-1 if i == axis else 1 for i in range(x.ndim))
    turns, is_mirrored = cast(turns, x.dtype).reshape(wide), is_mirrored.reshape(wide)
    return where(is_mirrored, (turns + 1) * last - (turns - 1) * first - found, found + turns * (last - first))


def _pad_by_function(x: Array, widths: list, function: Callable, kwargs: dict) -> Any:
    # As in NumPy, the function receives vectors that are already extended by zeros, and fills in their ends.
    x = _pad_constant(x, 0, tuple(widths))
    for i, pair in enumerate(widths):
        x = apply_along_axis(function, i, x, pair, i, kwargs)
    return moveaxis(x, 0, 0)


def pad_or_truncate(x: Array, lengths: Sequence[int]) -> Array:
    """Truncate the trailing dimensions to given lengths, or pad them with zeros."""
    lead = x.ndim - len(lengths)
    own = x.shape[lead:]
    if any(n < m for n, m in zip(lengths, own, strict=True)):
        limits = (*x.shape[:lead], *(min(n, m) for n, m in zip(lengths, own, strict=True)))
        x = lax.slice(x, (0,) * x.ndim, limits)
    grow = [max(n - m, 0) for n, m in zip(lengths, own, strict=True)]
    if any(grow):
        x = lax.pad(x, x.dtype.type(0), [(0, 0, 0)] * lead + [(0, g, 0) for g in grow])
    return x
