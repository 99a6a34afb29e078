"""Equality of values that are part of the key of a compiled program, where Python's own is too coarse or too fine.

`1 == True`, `1 == 1.0` and `0.0 == -0.0`, but programs with them differ; and NaN differs from itself. Static arguments
of `jit` and of eager functions, and static attributes of `nnx` modules are compared by `is_same_static`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

_FLOATS = frozenset({float, complex, np.float16, np.float32, np.float64, np.complex64, np.complex128})


def is_same_static(x: Any, y: Any) -> bool:
    """Whether two static values give the same program: equal values of one type, also inside tuples and dataclasses.

    Args:
      x, y: the values.

    Returns:
      Whether they are the same.

    Examples:
      >>> is_same_static((1, 0.0), (1, 0.0)), is_same_static((1,), (True,)), is_same_static(0.0, -0.0)
      (True, False, False)
    """
    if x is y:
        return True
    kind = type(x)
    if kind is not type(y):
        return False
    if kind in _FLOATS:
        return repr(x) == repr(y)
    if kind is tuple:
        return len(x) == len(y) and all(map(is_same_static, x, y))
    if not x == y:
        return False
    # Equal by methods of their class, which compare the elements as Python does.
    if isinstance(x, tuple):
        return all(map(is_same_static, x, y))
    if kind is frozenset:
        others = {element: element for element in y}
        return all(is_same_static(element, others[element]) for element in x)
    if dataclasses.is_dataclass(x):
        names = [field.name for field in dataclasses.fields(x) if field.compare]
        return all(is_same_static(getattr(x, name), getattr(y, name)) for name in names)
    return True
