"""Memory layouts of arrays, and `Format`, a layout with a sharding.

Arrays are row-major unless a `Format` asks for another order; then the layout is part of their `ArrayType`, since the
engine does not check the layouts of buffers. Builds on `sharding`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from phalanx.core import ArgumentError, ArgumentTypeError, AxisError, ShapedArray
from phalanx.engine.mlir import ir
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

    @property
    def is_default(self) -> bool:
        """Whether it is the layout of arrays that nobody asked another one for."""
        return tuple(self.major_to_minor) == tuple(range(len(self.major_to_minor))) and not self.tiling

    def to_engine(self) -> str:
        """The layout in the engine's notation, such as `{1,0:T(8,128)}`."""
        tiles = "".join(f"({','.join(map(str, tile))})" for tile in self.tiling or ())
        bits = f"E({self.sub_byte_element_size_in_bits})" if self.sub_byte_element_size_in_bits else ""
        suffix = f":{'T' + tiles if tiles else ''}{bits}" if tiles or bits else ""
        return f"{{{','.join(map(str, reversed(self.major_to_minor)))}{suffix}}}"

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

    def resolve_layout(self, aval: ShapedArray, where: str) -> Any:
        """The layout of an array of this type, None for the default one, or `Layout.AUTO`.

        Raises:
          ArgumentTypeError, AxisError: the layout does not fit the array.
        """
        if self.layout is None or self.layout is Layout.AUTO:
            return self.layout
        check_layout(where, self.layout, aval)
        return None if self.layout.is_default else dataclasses.replace(self.layout, tiling=self.layout.tiling or ())

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


def check_layout(where: str, layout: Any, aval: ShapedArray) -> None:
    """Check that a layout is an order of the dimensions of an array.

    Raises:
      ArgumentTypeError: it is no `Layout` with an order of dimensions.
      AxisError: the order is not a permutation of the dimensions.
    """
    fix = f"pass Layout({tuple(range(aval.ndim))}) for the row-major layout"
    if not isinstance(layout, Layout):
        raise ArgumentTypeError(where, expected="a Layout with an order of dimensions", got=repr(layout), fix=fix)
    if sorted(layout.major_to_minor) != list(range(aval.ndim)):
        expected = f"a permutation of the dimensions of {aval.str_short()}"
        raise AxisError(where, expected=expected, got=repr(layout.major_to_minor), fix=fix)


def annotate_layouts(attributes: Sequence[dict], layouts: Sequence[Any]) -> Sequence[dict]:
    """Add layouts to the attributes of parameters or results."""
    for found, layout in zip(attributes, layouts, strict=True):
        mode = "default" if layout is None else "auto" if layout is Layout.AUTO else layout.to_engine()
        found["mhlo.layout_mode"] = ir.StringAttr.get(mode)
    return attributes
