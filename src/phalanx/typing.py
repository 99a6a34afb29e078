"""Types for annotations: what functions of `phalanx.numpy` take as an array and as an element type."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np

from phalanx.runtime.array import Array


class SupportsDType(Protocol):
    """Anything with a `dtype`, which stands for that element type.

    Examples:
      >>> import phalanx
      >>> x: SupportsDType = phalanx.ShapeDtypeStruct((2,), "float64")
      >>> phalanx.dtypes.canonicalize_dtype(x)
      dtype('float32')
    """

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""


ArrayLike: TypeAlias = Array | np.ndarray[Any, Any] | np.bool_ | np.number[Any] | bool | int | float | complex
DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any] | SupportsDType
