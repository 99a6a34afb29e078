"""Partitioned lowering of reductions to an extreme, which devices combine by an all-reduce of their partial results."""

from __future__ import annotations

from typing import Any

from phalanx.engine.mlir import ir
from phalanx.lax.elementwise import complex_p, constant_like, dtype_kind, eq_p, imag_p, ne_p, or_p, real_p, select_n_p
from phalanx.lax.reductions.float_total_order import drops_nans, reduce_as_integers
from phalanx.lax.reductions.reduction_family import Reduction
from phalanx.lax.shape import broadcast_in_dim_p, drop_dims
from phalanx.partitioner.workarounds import is_active
from phalanx.runtime import Array, LoweringContext


def lower_extreme(ctx: LoweringContext, primitive: Reduction, x: ir.Value, *, dims: tuple) -> ir.Value | list[ir.Value]:
    """Lower `reduce_max` or `reduce_min` for several devices: on integers for floats, in two steps for complex."""
    dtype = ctx.aval_out.dtype
    # The integer reduction is an equation of its own, so this rule is applied to it again, and does nothing for
    # integers.
    if drops_nans(ctx, dtype) and is_active("all_reduce_nan"):
        is_max = primitive.combines == "max"
        return ctx.inline(lambda v: reduce_as_integers(lambda u: primitive(u, dims=dims), is_max, v), x)
    if dtype_kind(dtype) == "complex" and is_active("all_reduce_complex"):
        return ctx.inline(lambda v: _extreme_of_complex(primitive, v, dims), x)
    return primitive.lower(ctx, x, dims=dims)


def _extreme_of_complex(primitive: Reduction, x: Array, dims: tuple) -> Any:
    """The lexicographic extreme: of the real parts, then of the imaginary parts of the elements that attain it."""
    real, imag = real_p(x), imag_p(x)
    kept, first = drop_dims(range(real.ndim), dims), constant_like(real, primitive.initial(real.dtype))
    y = primitive(real, dims=dims)
    attains = or_p(eq_p(real, broadcast_in_dim_p(y, shape=real.shape, dims=kept)), ne_p(real, real))
    candidates = select_n_p(attains, broadcast_in_dim_p(first, shape=real.shape, dims=()), imag)
    z = primitive(candidates, dims=dims)
    # Where no real part is beyond the initial value, the reduction returns the initial value, which is first + 0j.
    return complex_p(y, select_n_p(eq_p(y, first), z, primitive.of_complex(z, constant_like(z, 0))))
