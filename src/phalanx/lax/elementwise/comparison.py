"""Public functions of comparison, and the primitive `clamp`. The comparisons are in `elementwise_primitives`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import Primitive, ShapedArray, ShapeError, ShardingRule, Zero, add_tangents, get_aval
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise import elementwise_primitives as p
from phalanx.lax.elementwise.elementwise_builders import ORDERED, check_dtype_kind, check_same_dtypes, match_scalars
from phalanx.lax.elementwise.elementwise_primitives import and_p, constant_like, gt_p, lt_p
from phalanx.lax.elementwise.select import select_n_p
from phalanx.lax.elementwise.wrappers import binary_wrapper, unary_wrapper
from phalanx.lax.shape import add_dim, broadcast_in_dim_p, dim_names, move_dim
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

    def sharding_rule(self, low: ShapedArray, x: ShapedArray, high: ShapedArray) -> ShardingRule:
        names = dim_names(x.ndim)
        return ShardingRule([names if a.ndim else [] for a in (low, x, high)], [names])

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

    def batch(self, *args: Any) -> tuple:
        (low, x, high), mapped = args[:3], args[3:]
        # Scalar limits, the usual case, need no alignment.
        if mapped[0] is None and mapped[2] is None and not get_aval(low).ndim and not get_aval(high).ndim:
            return self(low, x, high), mapped[1]
        limits = [[v, d] for v, d in ((low, mapped[0]), (high, mapped[2]))]
        size = next(v.shape[d] for v, d in zip(args[:3], mapped, strict=True) if d is not None)
        if mapped[1] is None:
            x, b = add_dim(x, 0, size), 0
        else:
            b = mapped[1]
        shape = get_aval(x).shape
        low, high = (_align_limit(v, d, b, shape) for v, d in limits)
        return self(low, x, high), b


def _align_limit(limit: Array, mapped: int | None, b: int, shape: tuple) -> Any:
    """Align a limit of `clamp` with an `x` of shape `shape` whose mapped dimension is `b`."""
    ndim = get_aval(limit).ndim
    if mapped is None:
        return add_dim(limit, b, shape[b]) if ndim else limit
    # A mapped limit of rank 0 has rank 1 here, and is broadcast along all other dimensions.
    return broadcast_in_dim_p(limit, shape=shape, dims=(b,)) if ndim == 1 < len(shape) else move_dim(limit, mapped, b)


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
