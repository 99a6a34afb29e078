"""Comparisons and clamping: the public functions over the tables of `elementwise`, and `clamp` with its rules."""

from __future__ import annotations

from typing import Any

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ShapeError
from phalanx.core.primitive import Primitive, Roles
from phalanx.core.tangent import Zero, add_tangents
from phalanx.engine.mlir import hlo
from phalanx.lax import elementwise as p
from phalanx.lax.broadcast import add_dim, broadcast_in_dim_p, dim_names, move_dim
from phalanx.lax.elementwise import and_p, gt_p, like, lt_p
from phalanx.lax.faces import one, two
from phalanx.lax.family import ORDERED, check_kind, check_same_dtypes, match
from phalanx.lax.select import select_n_p

eq = two(p.eq_p, "Whether x == y, element by element", "1, 2", "False", result="bool")
ne = two(p.ne_p, "Whether x != y, element by element", "1, 2", "True", result="bool")
lt = two(p.lt_p, "Whether x < y, element by element", "1, 2", "True", result="bool")
le = two(p.le_p, "Whether x <= y, element by element", "1, 2", "True", result="bool")
gt = two(p.gt_p, "Whether x > y, element by element", "1, 2", "False", result="bool")
ge = two(p.ge_p, "Whether x >= y, element by element", "1, 2", "False", result="bool")
is_finite = one(
    p.is_finite_p, "Whether each element is neither infinite nor NaN", "float('inf')", "False", result="bool"
)


class Clamp(Primitive, name="clamp"):
    """`x` limited to [low, high]: any[*s]; the limits have the shape of `x` or rank 0."""

    def result(self, low: Any, x: Any, high: Any) -> Any:
        check_same_dtypes("lax.clamp", (low, x, high))
        check_kind("lax.clamp", x, ORDERED)
        for name, limit in (("min", low), ("max", high)):
            if limit.shape and limit.shape != x.shape:
                raise ShapeError(
                    f"lax.clamp {name}",
                    expected=f"rank 0, or the shape of {x.str_short()}",
                    got=limit.str_short(),
                    mend="broadcast it with lax.broadcast_in_dim",
                )
        return ShapedArray(x.shape, x.dtype, low.weak_type and x.weak_type and high.weak_type)

    def roles(self, low: Any, x: Any, high: Any) -> Roles:
        names = dim_names(x.ndim)
        return Roles([names if a.ndim else [] for a in (low, x, high)], [names])

    def lower(self, ctx: Any, low: Any, x: Any, high: Any) -> Any:
        return hlo.clamp(low, x, high)

    def jvp(self, primals: Any, tangents: Any) -> tuple:
        low, x, high = primals
        y = self(low, x, high)
        inside = and_p(gt_p(x, low), lt_p(x, high))
        masks = [(lt_p, x, low), None, (gt_p, x, high)]
        y_dot: Any = Zero.like(y)
        for t, mask in zip(tangents, masks, strict=True):
            if type(t) is not Zero:
                here = inside if mask is None else mask[0](*mask[1:])
                y_dot = add_tangents(y_dot, select_n_p(here, like(t, 0), t))
        return y, y_dot

    def batch(self, *args: Any) -> tuple:
        (low, x, high), mapped = args[:3], args[3:]
        if mapped[0] is None and mapped[2] is None and not aval_of(low).ndim and not aval_of(high).ndim:
            return self(low, x, high), mapped[1]
        limits = [[v, d] for v, d in ((low, mapped[0]), (high, mapped[2]))]
        size = next(v.shape[d] for v, d in zip(args[:3], mapped, strict=True) if d is not None)
        if mapped[1] is None:
            x, b = add_dim(x, 0, size), 0
        else:
            b = mapped[1]
        shape = aval_of(x).shape
        low, high = (_aligned(v, d, b, shape) for v, d in limits)
        return self(low, x, high), b


def _aligned(limit: Any, mapped: int | None, b: int, shape: tuple) -> Any:
    """A limit of `clamp` beside an `x` of `shape` that is mapped at `b`."""
    ndim = aval_of(limit).ndim
    if mapped is None:
        return add_dim(limit, b, shape[b]) if ndim else limit
    return broadcast_in_dim_p(limit, shape=shape, dims=(b,)) if ndim == 1 < len(shape) else move_dim(limit, mapped, b)


clamp_p = Clamp()


def clamp(min: Any, x: Any, max: Any) -> Any:
    """Limit an array to an interval: any[*s] -> any[*s].

    Args:
      min: the lower limit: an array of the shape of `x`, or of rank 0.
      x: the array.
      max: the upper limit, likewise; it wins where the limits cross.

    Returns:
      `x` with elements below `min` or above `max` replaced by these.

    Raises:
      DTypeError: the dtypes differ.
      ShapeError: a limit has another shape.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.clamp(0, jnp.array([-1, 1, 5]), 3).tolist()
      [0, 1, 3]
    """
    return clamp_p(*match(min, x, max))
