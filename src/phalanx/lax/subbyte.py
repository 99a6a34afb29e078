"""Integers of 2 and 4 bits, converted to bytes for operations of which XLA's CPU kernels are defective.

On CPU devices XLA ends the process when it concatenates 2-bit integers, sorts sub-byte integers wrongly, and rejects
their `top_k`, `argmax` and products. Host functions receive them as bytes. Called by the lowering rules of these
operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from phalanx.core import ShapedArray
from phalanx.engine.mlir import hlo
from phalanx.runtime.lowering import LoweringContext

_WIDE = {
    np.dtype(tiny): np.dtype(wide)
    for tiny, wide in (
        (ml_dtypes.int2, np.int8),
        (ml_dtypes.int4, np.int8),
        (ml_dtypes.uint2, np.uint8),
        (ml_dtypes.uint4, np.uint8),
    )
}


def is_two_bits(dtype: np.dtype) -> bool:
    """Whether a dtype is one of integers of 2 bits, which CPU devices cannot combine."""
    return dtype == ml_dtypes.int2 or dtype == ml_dtypes.uint2


def byte_aval(aval: ShapedArray) -> ShapedArray:
    """The type with bytes in place of integers of 2 or 4 bits."""
    # Types are interned, so an unchanged type is the same object, which callers test by `is`.
    dtype = _WIDE.get(aval.dtype)
    return aval if dtype is None else aval.with_dtype(dtype)


def widen_to_bytes(
    ctx: LoweringContext, xs: Sequence[Any], avals: Sequence[ShapedArray]
) -> tuple[list, list[ShapedArray]]:
    """Convert integers of 2 or 4 bits to bytes; returns the values and their types."""
    types = list(map(byte_aval, avals))
    return [x if t is a else hlo.convert(ctx.type(t), x) for x, a, t in zip(xs, avals, types, strict=True)], types


def narrow_from_bytes(ctx: LoweringContext, xs: Sequence[Any], avals: Sequence[ShapedArray]) -> list:
    """Convert bytes back to the integers of 2 or 4 bits that the types `avals` require."""
    return [x if byte_aval(a) is a else hlo.convert(ctx.type(a), x) for x, a in zip(xs, avals, strict=True)]
