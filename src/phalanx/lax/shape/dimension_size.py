"""The size of a symbolic dimension as an array: the primitive `dimension_size`.

Where an expression mixes dimensions and arrays, as in `x.sum(0) / x.shape[0]`, the dimension is converted to a scalar
array, which is computed from the dimension variables when the program is called.
"""

from __future__ import annotations

from typing import Any

from phalanx.core import ZERO, Primitive, ShapedArray, ShardingRule, Undefined, make_scalar_aval
from phalanx.runtime.lowering import LoweringContext
from phalanx.symbolic import Dim, arrays
from phalanx.typing import DimSize


class DimensionSize(Primitive, name="dimension_size"):
    """The size `dim` as a scalar: () -> int[]."""

    def abstract_eval(self, *, dim: Dim) -> ShapedArray:
        return make_scalar_aval(int)

    def sharding_rule(self, *, dim: Dim) -> ShardingRule:
        return ShardingRule([], [()])

    def lower(self, ctx: LoweringContext, *, dim: Dim) -> Any:
        return ctx.size(dim, ctx.aval_out)

    jvp = ZERO
    batch = Undefined("the primitive has no operands, so that none is mapped")


dimension_size_p = DimensionSize()


def dimension_size(dim: DimSize) -> Any:
    """Convert a symbolic dimension to a scalar array; return an int unchanged.

    Args:
      dim: an int or a symbolic dimension.

    Examples:
      >>> dimension_size(3)
      3
    """
    return dimension_size_p(dim=dim) if type(dim) is Dim else dim


arrays.provide(value=dimension_size)
