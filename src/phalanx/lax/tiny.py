"""Integers of less than a byte, emitted as wider ones where XLA's kernels for them fail.

On a CPU, XLA ends the process when it joins numbers of two bits, sorts tiny integers wrongly, and refuses their
`top_k`, `argmax` and products; host functions get them as bytes. Used by the lowering rules of these operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from phalanx.core.aval import ShapedArray
from phalanx.engine.mlir import hlo

_WIDE = {
    np.dtype(tiny): np.dtype(wide)
    for tiny, wide in (
        (ml_dtypes.int2, np.int8),
        (ml_dtypes.int4, np.int8),
        (ml_dtypes.uint2, np.uint8),
        (ml_dtypes.uint4, np.uint8),
    )
}


def wide(aval: ShapedArray) -> ShapedArray:
    """The type with bytes in place of tiny integers."""
    dtype = _WIDE.get(aval.dtype)
    return aval if dtype is None else aval.with_dtype(dtype)


def widened(ctx: Any, xs: Sequence[Any], avals: Sequence[ShapedArray]) -> tuple[list, list[ShapedArray]]:
    """The values and their types, tiny integers as bytes."""
    types = list(map(wide, avals))
    return [x if t is a else hlo.convert(ctx.type(t), x) for x, a, t in zip(xs, avals, types, strict=True)], types


def narrowed(ctx: Any, xs: Sequence[Any], avals: Sequence[ShapedArray]) -> list:
    """The values that are bytes in place of tiny integers, as the types say."""
    return [x if wide(a) is a else hlo.convert(ctx.type(a), x) for x, a in zip(xs, avals, strict=True)]
