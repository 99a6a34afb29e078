"""Floating numbers as integers in the same order, NaN at the end that the extreme is taken from.

Where devices join the extremes of their parts, XLA on a CPU drops NaN: the largest of [NaN, 1] is 1 if they lie apart,
and NaN if they do not. Integers have no such number. Used by the lowering of reductions, scatters
and collectives to extremes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core.aval import aval_of
from phalanx.lax.convert import bitcast_convert_type_p
from phalanx.lax.elementwise import and_p, like, max_p, min_p, ne_p, shift_right_arithmetic_p, xor_p
from phalanx.lax.family import kind_of
from phalanx.lax.select import select_n_p

_INTEGERS: dict[int, Any] = {2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def loses_nans(ctx: Any, dtype: Any) -> bool:
    """Whether devices would drop NaN where they join extremes of a dtype."""
    return ctx.platform == "cpu" and kind_of(dtype) == "float" and dtype.itemsize in _INTEGERS


def by_bits(extreme: Callable, is_max: bool, *xs: Any) -> Any:
    """What `extreme`, a reduction to the largest or smallest, makes of the `xs` of one dtype, done on integers."""
    dtype = aval_of(xs[0]).dtype
    limits = np.iinfo(_INTEGERS[dtype.itemsize])

    def keys(x: Any) -> Any:
        bits = bitcast_convert_type_p(x, dtype=limits.dtype)
        return select_n_p(ne_p(x, x), _swapped(bits), like(bits, limits.max if is_max else limits.min))

    found = extreme(*map(keys, xs))
    # Of nothing at all the extreme is an infinity, which is an integer further in than the last one.
    empty = _swapped(np.array(-np.inf if is_max else np.inf, dtype).view(limits.dtype))
    found = (max_p if is_max else min_p)(found, like(found, empty))
    return bitcast_convert_type_p(_swapped(found), dtype=dtype)


def _swapped(bits: Any) -> Any:
    """The bits of negative numbers, whose order runs backwards, turned over but for the sign; done twice, nothing."""
    if isinstance(bits, np.ndarray | np.generic):
        return bits ^ ((bits >> (bits.itemsize * 8 - 1)) & np.iinfo(bits.dtype).max)
    dtype = aval_of(bits).dtype
    sign = shift_right_arithmetic_p(bits, like(bits, dtype.itemsize * 8 - 1))
    return xor_p(bits, and_p(sign, like(bits, np.iinfo(dtype).max)))
