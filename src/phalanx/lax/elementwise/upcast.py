"""Evaluation of an algorithm in float32 at least, for operands of narrower dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.lax.elementwise.convert_element_type import bit_width, convert_element_type_p


def in_full_precision(fun: Callable) -> Callable:
    """Wrap `fun` to compute operands of fewer than 32 bits in float32; its iterations need that precision."""

    def wide(*operands: Any) -> Any:
        dtype = operands[0].dtype
        if bit_width(dtype) >= 32:
            return fun(*operands)
        single = np.dtype("float32")
        out = fun(*(convert_element_type_p(x, dtype=single, weak_type=False) for x in operands))
        return convert_element_type_p(out, dtype=dtype, weak_type=False)

    return wide
