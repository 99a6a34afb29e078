"""Maxima and minima of floating-point numbers as maxima and minima of integers, which propagate NaN.

XLA's all-reduce on the CPU drops NaN from maxima and minima: the maximum of [NaN, 1] is 1 if the elements are on
different devices. The bits of floating-point numbers, with the bits of negative numbers below the sign inverted, are
integers in the same order; NaN is mapped to the extreme integer. Used by the lowering of reductions, scatters and
collectives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core import get_aval
from phalanx.lax.elementwise import (
    and_p,
    bitcast_convert_type_p,
    constant_like,
    dtype_kind,
    max_p,
    min_p,
    ne_p,
    select_n_p,
    shift_right_arithmetic_p,
    xor_p,
)
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, DTypeLike

_INTEGERS: dict[int, Any] = {2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def drops_nans(ctx: LoweringContext, dtype: DTypeLike) -> bool:
    """Whether an all-reduce to the maximum or minimum drops NaN on this platform."""
    return ctx.platform == "cpu" and dtype_kind(dtype) == "float" and dtype.itemsize in _INTEGERS


def reduce_as_integers(extreme: Callable, is_max: bool, *xs: Any) -> Any:
    """Apply `extreme`, a reduction to the maximum or minimum, to the integers of the same order as the floats `xs`."""
    dtype = get_aval(xs[0]).dtype
    # NaN maps to the integer beyond all others in the direction of the extreme, so that it wins.
    limits = np.iinfo(_INTEGERS[dtype.itemsize])

    def keys(x: Array) -> Any:
        bits = bitcast_convert_type_p(x, dtype=limits.dtype)
        return select_n_p(ne_p(x, x), _flip_negative(bits), constant_like(bits, limits.max if is_max else limits.min))

    found = extreme(*map(keys, xs))
    # The integers of an empty reduction are the extreme of the dtype, which is not the integer of an infinity.
    empty = _flip_negative(np.array(-np.inf if is_max else np.inf, dtype).view(limits.dtype))
    found = (max_p if is_max else min_p)(found, constant_like(found, empty))
    return bitcast_convert_type_p(_flip_negative(found), dtype=dtype)


def _flip_negative(bits: Array) -> Any:
    """Invert all bits but the sign of negative numbers, whose order is reversed; an involution."""
    if isinstance(bits, np.ndarray | np.generic):
        return bits ^ ((bits >> (bits.itemsize * 8 - 1)) & np.iinfo(bits.dtype).max)
    dtype = get_aval(bits).dtype
    sign = shift_right_arithmetic_p(bits, constant_like(bits, dtype.itemsize * 8 - 1))
    return xor_p(bits, and_p(sign, constant_like(bits, np.iinfo(dtype).max)))
