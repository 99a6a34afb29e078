"""Padding of values whose dimensions do not divide among devices, inside programs.

`lowering` cuts the padded parameters of a program and pads its results; `reshard_lowering` pads a value while it is
resharded. XLA masks the padding where an operation would read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ShapedArray
from phalanx.engine import hlo, ir


def add_padding(ctx: Any, x: ir.Value, shape: Sequence[int], padded: ShapedArray) -> Any:
    """Pad a value of this shape with zeros at the end of each dimension."""
    high = [n - size for n, size in zip(padded.shape, shape, strict=True)]
    zero = ctx.constant(np.zeros((), padded.dtype), ShapedArray((), padded.dtype))
    return hlo.pad(x, zero, [0] * len(high), high, [0] * len(high))


def remove_padding(x: ir.Value, shape: Sequence[int]) -> Any:
    """Cut a value of this shape out of a padded one."""
    return hlo.slice(x, [0] * len(shape), shape, [1] * len(shape))
