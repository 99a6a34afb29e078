"""Layouts: in which order the elements of an array, or of a piece of it, lie in memory; with a sharding, its `Format`.

Descriptions only, which the stages of `jit` and arrays give; the compiler chooses layouts. Builds on `sharding`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from phalanx.core.errors import ArgumentError
from phalanx.sharding.shardings import Sharding


@dataclasses.dataclass(frozen=True)
class Layout:
    """The order of dimensions in memory.

    Args:
      major_to_minor: the dimensions, the one whose neighbours lie farthest apart first.
      tiling: the sizes of tiles within tiles, from the outermost; None for the device's own.
      sub_byte_element_size_in_bits: bits of an element that shares a byte with others, else 0.

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
        """Read a layout of the engine's."""
        found = layout._xla_layout()
        tiling = tuple(tuple(tile) for tile in found.tiling())
        return cls(tuple(reversed(found.minor_to_major())), tiling, found.element_size_in_bits())

    @classmethod
    def for_array(cls, x: Any) -> Layout:
        """The layout of an array: as it lies on its devices, or row by row for data on the host.

        Args:
          x: an array, or data that NumPy takes.

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
    """How and where an array lies: a layout and a sharding.

    Args:
      layout: the layout; None or `Layout.AUTO` leaves it to the compiler.
      sharding: the sharding; None leaves it open.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> jnp.ones((2, 3)).format.layout.major_to_minor
      (0, 1)
    """

    layout: Layout | Any = None
    sharding: Sharding | Any = None

    def placed(self, where: str) -> Any:
        """The sharding, for a place that takes no layout but the usual one.

        Raises:
          ArgumentError: another layout is asked for.
        """
        order = getattr(self.layout, "major_to_minor", None)
        if order is not None and tuple(order) != tuple(range(len(order))):
            raise ArgumentError(
                where,
                expected="a layout that is left to the compiler, or the usual one, row by row",
                got=repr(self.layout),
                mend="leave the layout out; transpose the array where another order matters",
            )
        return self.sharding
