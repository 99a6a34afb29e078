"""Public functions of comparison, and the primitive `clamp`. The comparisons are in `elementwise_primitives`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import Primitive, ShapedArray, ShapeError, Zero, add_tangents
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise import elementwise_primitives as p
from phalanx.lax.elementwise.elementwise_builders import (
    ORDERED,
    Elementwise,
    check_dtype_kind,
    check_same_dtypes,
    match_scalars,
)
from phalanx.lax.elementwise.elementwise_primitives import and_p, constant_like, gt_p, lt_p
from phalanx.lax.elementwise.select import select_n_p
from phalanx.lax.elementwise.wrappers import binary_wrapper, unary_wrapper
from phalanx.lax.shape import ELEMENTWISE, add_dim
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike

eq = binary_wrapper(p.eq_p, "Whether x == y, element by element", "1, 2", "False", result="bool")
ne = binary_wrapper(p.ne_p, "Whether x != y, element by element", "1, 2", "True", result="bool")
lt = binary_wrapper(p.lt_p, "Whether x < y, element by element", "1, 2", "True", result="bool")
le = binary_wrapper(p.le_p, "Whether x <= y, element by element", "1, 2", "True", result="bool")
gt = binary_wrapper(p.gt_p, "Whether x > y, element by element", "1, 2", "False", result="bool")
ge = binary_wrapper(p.ge_p, "Whether x >= y, element by element", "1, 2", "False", result="bool")
is_finite = unary_wrapper(
    p.is_finite_p, "Whether each element is neither infinite nor NaN", "float('inf')", "False", result="bool"
)


class Clamp(Primitive, name="clamp"):
    """Clip `x` to [low, high]: any[*s]; the limits have the shape of `x` or rank 0."""

    def abstract_eval(self, low: ShapedArray, x: ShapedArray, high: ShapedArray) -> Any:
        check_same_dtypes("lax.clamp", (low, x, high))
        check_dtype_kind("lax.clamp", x, ORDERED)
        for name, limit in (("min", low), ("max", high)):
            if limit.shape and limit.shape != x.shape:
                raise ShapeError(
                    f"lax.clamp {name}",
                    expected=f"rank 0, or the shape of {x.str_short()}",
                    got=limit.str_short(),
                    fix=f"broadcast the limit to {x.shape} with lax.broadcast_in_dim",
                )
        return ShapedArray(x.shape, x.dtype, low.weak_type and x.weak_type and high.weak_type)

    sharding_rule = Elementwise.sharding_rule

    def lower(self, ctx: LoweringContext, low: ir.Value, x: ir.Value, high: ir.Value) -> Any:
        return hlo.clamp(low, x, high)

    def jvp(self, primals: Sequence[Array], tangents: Sequence[Array]) -> tuple:
        low, x, high = primals
        y = self(low, x, high)
        inside = and_p(gt_p(x, low), lt_p(x, high))
        # A limit has a tangent where `x` is beyond it, `x` strictly between the limits; at a limit neither has one.
        masks = [(lt_p, x, low), None, (gt_p, x, high)]
        y_dot: Any = Zero.like(y)
        for t, mask in zip(tangents, masks, strict=True):
            if type(t) is not Zero:
                is_active = inside if mask is None else mask[0](*mask[1:])
                y_dot = add_tangents(y_dot, select_n_p(is_active, constant_like(t, 0), t))
        return y, y_dot

    def batch(self, low: Array, x: Array, high: Array, *mapped: Any) -> tuple:
        if mapped[1] is None:  # the shape of the result is that of `x`, also where only a limit is mapped
            size = next(v.shape[d] for v, d in zip((low, high), mapped[::2], strict=True) if d is not None)
            x, mapped = add_dim(x, 0, size), (mapped[0], 0, mapped[2])
        return ELEMENTWISE(self, low, x, high, *mapped)


clamp_p = Clamp()


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Any:
    """Clip an array to an interval: any[*s] -> any[*s].

    Args:
      min: the lower limit: an array of the shape of `x`, or of rank 0.
      x: the array.
      max: the upper limit, likewise; it takes precedence where it is below the lower limit.

    Returns:
      `x` with elements below `min` or above `max` replaced by the limit.

    Raises:
      DTypeError: the dtypes differ.
      ShapeError: a limit has another shape.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.clamp(0, jnp.array([-1, 1, 5]), 3).tolist()
      [0, 1, 3]
    """
    return clamp_p(*match_scalars(min, x, max))
