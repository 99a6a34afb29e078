"""Sizes as numbers: the primitive that makes an array of a symbolic dimension.

Where arithmetic mixes dimensions and arrays, as in `x.sum(0) / x.shape[0]`, the dimension becomes a scalar of the
program, computed from the dimension variables that the program is called with. Takes its seat in `phalanx.symbolic`.
"""

from __future__ import annotations

from typing import Any

from phalanx.core.aval import ShapedArray, scalar_aval
from phalanx.core.primitive import ZERO, Primitive, Roles, Undefined
from phalanx.symbolic import Dim, arrays


class DimensionSize(Primitive, name="dimension_size"):
    """The size `dim` as a scalar: () -> int[]."""

    def result(self, *, dim: Dim) -> ShapedArray:
        return scalar_aval(int)

    def roles(self, *, dim: Dim) -> Roles:
        return Roles([], [()])

    def lower(self, ctx: Any, *, dim: Dim) -> Any:
        return ctx.size(dim, ctx.aval_out)

    jvp = ZERO
    batch = Undefined("it has no operands, so no mapped one")


dimension_size_p = DimensionSize()


def size(dim: Any) -> Any:
    """A dimension as a scalar array; an int as it is.

    Args:
      dim: an int or a symbolic dimension.

    Examples:
      >>> size(3)
      3
    """
    return dimension_size_p(dim=dim) if type(dim) is Dim else dim


arrays.take(value=size)
