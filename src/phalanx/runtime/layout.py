"""Memory layouts of arrays, and `Format`, a layout with a sharding.

The compiler chooses layouts; arrays and the stages of `jit` report them. Builds on `sharding`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from phalanx.core import ArgumentError
from phalanx.sharding import Sharding


@dataclasses.dataclass(frozen=True)
class Layout:
    """The order of dimensions in memory.

    Args:
      major_to_minor: the dimensions, from the one with the largest stride to the one with the smallest.
      tiling: the sizes of nested tiles, from the outermost; None for the device's default.
      sub_byte_element_size_in_bits: bits of an element of which several share a byte, else 0.

    Examples:
      >>> Layout((1, 0))
      Layout(major_to_minor=(1, 0), tiling=None, sub_byte_element_size_in_bits=0)
    """

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0

    AUTO: ClassVar[Any]

    @classmethod
    def of_engine(cls, layout: Any) -> Layout:
        """Convert a layout of the engine."""
        found = layout._xla_layout()
        return cls(
            tuple(reversed(found.minor_to_major())),
            tuple(tuple(tile) for tile in found.tiling()),
            found.element_size_in_bits(),
        )

    @classmethod
    def for_array(cls, x: Any) -> Layout:
        """The layout of an array on its devices, or the row-major layout for data on the host.

        Args:
          x: an array, or data that NumPy accepts.

        Returns:
          The layout.

        Examples:
          >>> import numpy as np
          >>> Layout.for_array(np.ones((2, 3))).major_to_minor
          (0, 1)
        """
        found = getattr(x, "format", None)
        return found.layout if isinstance(found, Format) else cls(tuple(range(np.ndim(x))), ())


class _Auto:
    """The type of `Layout.AUTO`, which leaves the layout to the compiler."""

    def __repr__(self) -> str:
        return "Layout.AUTO"


Layout.AUTO = _Auto()


@dataclasses.dataclass(frozen=True)
class Format:
    """The layout and the sharding of an array.

    Args:
      layout: the layout; None or `Layout.AUTO` leaves it to the compiler.
      sharding: the sharding; None leaves it unspecified.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> jnp.ones((2, 3)).format.layout.major_to_minor
      (0, 1)
    """

    layout: Layout | Any = None
    sharding: Sharding | Any = None

    def placed(self, where: str) -> Any:
        """The sharding, for a function that supports only the default layout.

        Raises:
          ArgumentError: the format has another layout.
        """
        order = getattr(self.layout, "major_to_minor", None)
        if order is not None and tuple(order) != tuple(range(len(order))):
            raise ArgumentError(
                where,
                expected="the row-major layout, or one that is left to the compiler",
                got=repr(self.layout),
                fix="leave the layout out, and transpose the array if you need another order of dimensions",
            )
        return self.sharding
