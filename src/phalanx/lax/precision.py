"""Running an algorithm in at least single precision, whatever the dtype of its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.lax.convert import bits_of, convert_element_type_p


def in_full_precision(fun: Callable) -> Callable:
    """`fun` with operands of fewer than 32 bits converted to float32 and its result converted back."""

    def wide(*operands: Any) -> Any:
        dtype = operands[0].dtype
        if bits_of(dtype) >= 32:
            return fun(*operands)
        single = np.dtype("float32")
        out = fun(*(convert_element_type_p(x, dtype=single, weak_type=False) for x in operands))
        return convert_element_type_p(out, dtype=dtype, weak_type=False)

    return wide
