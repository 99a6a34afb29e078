"""Type aliases for annotations of programs that use Phalanx, and of the library itself.

Nothing is imported at run time, so every package may use the aliases, whatever its layer; aliases of `Array` are made
at first use, and packages below `runtime` import them for type checkers only.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias, Union

import numpy as np

if TYPE_CHECKING:
    from phalanx.engine.client import Device
    from phalanx.runtime.array import Array as Array
    from phalanx.runtime.layout import Format
    from phalanx.sharding import PartitionSpec, Sharding
    from phalanx.symbolic import Dim

    ArrayLike: TypeAlias = Array | np.ndarray[Any, Any] | np.bool_ | np.number[Any] | bool | int | float | complex
    """A value that functions of `phalanx.numpy` accept as an array: an array, or a scalar of Python or NumPy."""


class SupportsDType(Protocol):
    """Anything with a `dtype` attribute, which stands for that element type.

    Examples:
      >>> import phalanx
      >>> x: SupportsDType = phalanx.ShapeDtypeStruct((2,), "float64")
      >>> phalanx.dtypes.canonicalize_dtype(x)
      dtype('float32')
    """

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""


DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any] | SupportsDType
"""A value that names an element type: `"float32"`, `float`, `jnp.float32`, a NumPy dtype."""

DimSize: TypeAlias = Union[int, "Dim"]
"""The size of a dimension: an integer, or a symbolic dimension of an exported program."""

Shape: TypeAlias = Sequence[DimSize]
"""The sizes of all dimensions of an array."""

Axis: TypeAlias = int | Sequence[int] | None
"""The `axis` argument of a reduction: one dimension, several, or None for all."""

AxisName: TypeAlias = Hashable
"""The name of a mesh axis or of a mapped axis: any hashable value, usually a string."""

PRNGKey: TypeAlias = Union["Array", np.ndarray[Any, Any]]
"""A random key: a scalar array with a key dtype, or a raw uint32 array."""

ShardingLike: TypeAlias = Union["Sharding", "PartitionSpec", "Format", "Device"]
"""A value that places an array: a sharding, a spec over the mesh in context, a format, or a device."""

PyTree: TypeAlias = Any
"""A nested container of leaves: tuples, lists, dicts, registered classes, or a single leaf."""

StaticInt: TypeAlias = SupportsIndex
"""An integer that must be known while a program is traced."""


@functools.cache
def __getattr__(name: str) -> Any:
    if name not in _OF_ARRAYS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    array = sys.modules["phalanx"].Array  # defined in a higher layer, and loaded only when it is used at run time
    # Classes without parameters, which isinstance accepts.
    return array | np.ndarray | np.bool_ | np.number | bool | int | float | complex if name == "ArrayLike" else array


_OF_ARRAYS = ("Array", "ArrayLike")


def __dir__() -> list[str]:
    return sorted([*_OF_ARRAYS, "SupportsDType", *(n for n in __annotations__ if n not in _OF_ARRAYS)])
