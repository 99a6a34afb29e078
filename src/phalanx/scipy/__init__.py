"""Functions with the names of SciPy, on arrays.

Each part is loaded at its first use. Builds on `numpy` and `lax`.
"""

import importlib
from typing import Any

_ROOMS = frozenset(
    "cluster fft integrate interpolate linalg ndimage optimize signal sparse spatial special stats".split()
)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"phalanx.scipy.{name}")
    raise AttributeError(f"module 'phalanx.scipy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
