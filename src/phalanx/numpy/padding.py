"""Padding: the border of an array filled in many ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError
from phalanx.numpy import reductions
from phalanx.numpy.creation import array
from phalanx.numpy.joining import concatenate
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import as_array, broadcast_to_shape, cast, operand
from phalanx.numpy.ranges import arange, linspace
from phalanx.numpy.shapes import moveaxis
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_constant_shape, is_symbolic, max_dim, min_dim
from phalanx.tree import tree_leaves

_OPTIONS = {
    "constant": {"constant_values"}, "edge": set(), "linear_ramp": {"end_values"}, "maximum": {"stat_length"},
    "mean": {"stat_length"}, "median": {"stat_length"}, "minimum": {"stat_length"}, "reflect": {"reflect_type"},
    "symmetric": {"reflect_type"}, "wrap": set(), "empty": set(),
}  # fmt: skip


def pad(array: Any, pad_width: Any, mode: str | Callable = "constant", **kwargs: Any) -> Any:
    """The array with a border.

    Args:
      array: an array or a scalar.
      pad_width: how much before and after: a number, a pair, a pair for each dimension, or a dict from axes to these.
      mode: `"constant"`, `"edge"`, `"linear_ramp"`, `"maximum"`, `"mean"`, `"median"`, `"minimum"`, `"reflect"`,
        `"symmetric"`, `"wrap"`, `"empty"`, or a function of a padded vector as NumPy takes it.
      kwargs: `constant_values`, `end_values`, `stat_length` or `reflect_type`, as the mode needs.

    Returns:
      An array of the dtype of `array`, each dimension longer by both widths.

    Raises:
      ArgumentError: there is no such mode, or it takes no such argument, or a width is negative or no integer.

    Examples:
      >>> jnp.pad(jnp.array([1, 2]), 1).tolist()
      [0, 1, 2, 0]
    """
    x = operand(array, "pad")
    widths = _pairs(pad_width, x.ndim, "pad_width", integers=True)
    if any(n < 0 for pair in widths for n in pair):
        raise ArgumentError("pad, argument pad_width", expected="numbers >= 0", got=pad_width, mend="slice instead")
    if callable(mode):
        return _pad_by_function(x, widths, mode, kwargs)
    if mode not in _OPTIONS:
        raise ArgumentError(
            "pad, argument mode", expected=" or ".join(map(repr, _OPTIONS)), got=repr(mode), mend="use one"
        )
    unknown = set(kwargs) - _OPTIONS[mode]
    if unknown:
        raise ArgumentError(f"pad, mode {mode!r}", expected=" or ".join(_OPTIONS[mode]) or "no more arguments",
                            got=", ".join(sorted(unknown)), mend="leave it out")  # fmt: skip
    if mode in ("constant", "empty"):
        values = kwargs.get("constant_values", 0)
        if isinstance(values, int | float | complex):
            return _pad_constant(x, values, tuple(widths))
        return _pad_constants(x, _flat_pairs(values, x.ndim), tuple(widths))
    if mode == "linear_ramp":
        return _pad_ramp(x, _flat_pairs(kwargs.get("end_values", 0), x.ndim), tuple(widths))
    lengths = kwargs.get("stat_length")
    lengths = None if lengths is None else tuple(_pairs(lengths, x.ndim, "stat_length", integers=True))
    return _pad_along(x, tuple(widths), mode, lengths, kwargs.get("reflect_type", "even"))


def _pairs(value: Any, ndim: int, name: str, integers: bool = False) -> list[tuple]:
    """A number, a pair or a pair for each dimension, as the last."""
    if isinstance(value, dict):
        out = [(0, 0)] * ndim
        for axis, w in value.items():
            out[axis] = (w, w) if isinstance(w, int) else tuple(w)
        return out
    if integers and any(is_symbolic(n) for n in tree_leaves(value)):
        return _symbolic_pairs(value, ndim)
    try:
        full = np.broadcast_to(np.asarray(value), (ndim, 2))
    except ValueError:
        raise ArgumentError(f"pad, argument {name}", expected=f"a number, a pair, or {ndim} pairs", got=value,
                            mend="give a pair for each dimension") from None  # fmt: skip
    if integers and full.dtype.kind not in "iu":
        raise ArgumentError(f"pad, argument {name}", expected="integers", got=value, mend="convert them")
    return [(a.item(), b.item()) for a, b in full]


def _symbolic_pairs(value: Any, ndim: int) -> list[tuple]:
    """`_pairs` of sizes of which some are symbolic, which NumPy knows nothing of."""
    if not isinstance(value, tuple | list):
        value = (value, value)
    if not isinstance(value[0], tuple | list):
        value = [value] * ndim
    return [tuple(pair) * 2 if len(pair) == 1 else tuple(pair) for pair in value]


def _flat_pairs(value: Any, ndim: int) -> Any:
    value = array(value) if isinstance(value, list | tuple) else operand(value, "pad")
    return broadcast_to_shape(value, (ndim, 2))


@eager_program(static_argnames=("widths",))
def _pad_constant(x: Any, value: Any, widths: tuple) -> Any:
    value = cast(value, x.dtype)
    if all(a == b == 0 for a, b in widths):
        return as_array(x)
    return lax.pad(x, value, [(a, b, 0) for a, b in widths])


@eager_program(static_argnames=("widths",))
def _pad_constants(x: Any, values: Any, widths: tuple) -> Any:
    values = cast(values, x.dtype)
    for i, (before, after) in enumerate(widths):
        for side, amount in ((0, (before, 0, 0)), (1, (0, after, 0))):
            if any(n != 0 for n in amount):
                config = [(0, 0, 0)] * x.ndim
                config[i] = amount
                x = lax.pad(x, values[i, side], config)
    return as_array(x)


@eager_program(static_argnames=("widths",))
def _pad_ramp(x: Any, ends: Any, widths: tuple) -> Any:
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


@eager_program(static_argnames=("widths", "mode", "lengths", "reflect_type"))
def _pad_along(x: Any, widths: tuple, mode: str, lengths: tuple | None, reflect_type: str) -> Any:
    for i, (before, after) in enumerate(widths):
        if before == 0 and after == 0:
            continue
        if mode in ("maximum", "mean", "median", "minimum"):
            x = _with_statistic(x, i, before, after, mode, None if lengths is None else lengths[i])
        elif mode == "edge":
            x = _with_edges(x, i, before, after)
        elif mode == "wrap":
            x = _by_index(x, i, _places(x.shape[i], before, after) % max_dim(x.shape[i], 1))
        elif reflect_type == "even":
            x = _by_index(x, i, _reflected(x.shape[i], before, after, mode))
        else:
            x = _reflect_odd(x, i, before, after, mode)
    return as_array(x)


def _part(x: Any, axis: int, a: int, b: int) -> Any:
    return lax.slice_in_dim(x, a, b, axis=axis)


def _with_edges(x: Any, axis: int, before: int, after: int) -> Any:
    n = x.shape[axis]
    parts = [x]
    for amount, piece, at in ((before, _part(x, axis, 0, 1), 0), (after, _part(x, axis, n - 1, n), len(parts))):
        if amount != 0:
            wide = broadcast_to_shape(piece, (*x.shape[:axis], amount, *x.shape[axis + 1 :]))
            parts.insert(at if at == 0 else len(parts), wide)
    return concatenate(parts, axis)


def _with_statistic(x: Any, axis: int, before: int, after: int, mode: str, lengths: tuple | None) -> Any:
    from phalanx.numpy.statistics import median
    from phalanx.numpy.ufuncs import rint

    find = {"maximum": reductions.max, "minimum": reductions.min, "mean": reductions.mean, "median": median}[mode]
    n = x.shape[axis]
    first, last = (n, n) if lengths is None else (min_dim(lengths[0], n), min_dim(lengths[1], n))
    parts = []
    for amount, piece in ((before, _part(x, axis, 0, first)), (after, _part(x, axis, n - last, n))):
        value = find(piece, axis=axis, keepdims=True)
        if dtypes.issubdtype(x.dtype, np.integer) and value.dtype != x.dtype:
            value = rint(value)
        value = cast(value, x.dtype)
        parts.append(broadcast_to_shape(value, (*x.shape[:axis], amount, *x.shape[axis + 1 :])))
    return concatenate([parts[0], x, parts[1]], axis)


def _places(n: Any, before: Any, after: Any) -> Any:
    """The places of the padded axis, counted from where the original begins: known on the host unless symbolic."""
    if is_constant_shape((n, before, after)):
        return np.arange(-before, n + after)
    return arange(-before, n + after, dtype=np.int32)


def _reflected(n: Any, before: Any, after: Any, mode: str) -> Any:
    """For each place of the padded axis, the place of the original it mirrors."""
    period = max_dim(2 * (n - 1) if mode == "reflect" else 2 * n, 1)
    i = _places(n, before, after) % period
    choose = np.where if isinstance(i, np.ndarray) else where
    return choose(i < n, i, (period if mode == "reflect" else period - 1) - i)


def _by_index(x: Any, axis: int, index: Any) -> Any:
    """The pieces of an axis that an index names, as few slices where it runs evenly, else by a gather."""
    if not isinstance(index, np.ndarray):
        from phalanx.numpy.taking import take

        return take(x, index, axis, mode="clip")
    turns = np.flatnonzero(np.diff(np.diff(index)) != 0) + 1 if len(index) > 2 else np.array([], int)
    runs, start = [], 0
    while start < len(index):
        stop = start + 1
        if stop < len(index) and abs(index[stop] - index[start]) == 1:
            step = index[stop] - index[start]
            while stop < len(index) and index[stop] - index[stop - 1] == step:
                stop += 1
        runs.append((int(index[start]), int(index[stop - 1])))
        start = stop
    if len(runs) > 8 and len(turns) > 4:
        from phalanx.numpy.taking import take

        return take(x, index.astype(np.int32), axis, mode="clip")
    parts = [_part(x, axis, a, b + 1) if b >= a else lax.rev(_part(x, axis, b, a + 1), (axis,)) for a, b in runs]
    return concatenate(parts, axis)


def _reflect_odd(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    """Mirrored about the value at the edge, piece by piece."""
    n = x.shape[axis]
    if n == 1:
        return _with_edges(x, axis, before, after)
    if not is_constant_shape((n, before, after)):
        return _reflect_odd_at_once(x, axis, before, after, mode)
    for side, amount in ((0, before), (1, after)):
        while amount > 0:
            n = x.shape[axis]
            step = min(amount, n - 1 if mode == "reflect" else n)
            skip = 1 if mode == "reflect" else 0
            if side == 0:
                edge, piece = _part(x, axis, 0, 1), _part(x, axis, skip, skip + step)
                x = concatenate([2 * edge - lax.rev(piece, (axis,)), x], axis)
            else:
                edge, piece = _part(x, axis, n - 1, n), _part(x, axis, n - skip - step, n - skip)
                x = concatenate([x, 2 * edge - lax.rev(piece, (axis,))], axis)
            amount -= step
    return x


def _reflect_odd_at_once(x: Any, axis: int, before: Any, after: Any, mode: str) -> Any:
    """The same for symbolic sizes: each turn adds twice the rise from the first element to the last, or mirrors."""
    n = x.shape[axis]
    period = max_dim(n - 1, 1) if mode == "reflect" else n
    places = _places(n, before, after)
    turns, rest = places // period, places % period
    is_mirrored = turns % 2 == 1
    found = _by_index(x, axis, where(is_mirrored, n - 1 - rest, rest))
    first, last = _part(x, axis, 0, 1), _part(x, axis, n - 1, n)
    wide = tuple(-1 if i == axis else 1 for i in range(x.ndim))
    turns, is_mirrored = cast(turns, x.dtype).reshape(wide), is_mirrored.reshape(wide)
    return where(is_mirrored, (turns + 1) * last - (turns - 1) * first - found, found + turns * (last - first))


def _pad_by_function(x: Any, widths: list, function: Callable, kwargs: dict) -> Any:
    from phalanx.numpy.mapping import apply_along_axis

    x = _pad_constant(x, 0, tuple(widths))
    for i, pair in enumerate(widths):
        x = apply_along_axis(function, i, x, pair, i, kwargs)
    return moveaxis(x, 0, 0)


def resized(x: Any, lengths: Sequence[int]) -> Any:
    """The trailing dimensions cut or filled with zeros to given lengths."""
    lead = x.ndim - len(lengths)
    own = x.shape[lead:]
    if any(n < m for n, m in zip(lengths, own, strict=True)):
        limits = (*x.shape[:lead], *(min(n, m) for n, m in zip(lengths, own, strict=True)))
        x = lax.slice(x, (0,) * x.ndim, limits)
    grow = [max(n - m, 0) for n, m in zip(lengths, own, strict=True)]
    if any(grow):
        x = lax.pad(x, x.dtype.type(0), [(0, 0, 0)] * lead + [(0, g, 0) for g in grow])
    return x
