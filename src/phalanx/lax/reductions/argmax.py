"""Indices of extreme elements: `argmax` and `argmin`."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import ZERO, DTypeError, Primitive, ShapedArray, ShapeError, ShardingRule, dtypes, get_aval
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise import ORDERED, check_dtype_kind, declare_primitive, dtype_kind, emit_compare
from phalanx.lax.indexing.static_slice import canonicalize_dim
from phalanx.lax.shape import check_dims, dim_names, drop_dims, shift_past_batch
from phalanx.lax.subbyte import widen_to_bytes
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike, DTypeLike


class ArgExtreme(Primitive):
    """The index of the first extreme element along `dim`; NaN is more extreme than any number."""

    is_max: bool

    def abstract_eval(self, x: ShapedArray, *, dim: int, dtype: np.dtype) -> Any:
        where = f"lax.{self.name}"
        check_dtype_kind(where, x, ORDERED)
        check_dims(f"{where} axis", (dim,), x.ndim)
        if dtype_kind(dtype) not in ("signed", "unsigned"):
            raise DTypeError(
                f"{where} index_dtype", expected="an integer dtype", got=dtype, fix="pass index_dtype='int32'"
            )
        if isinstance(x.shape[dim], int) and x.shape[dim] < 1:
            raise ShapeError(
                where,
                expected=f"at least one element along dimension {dim}",
                got=x.str_short(),
                fix="check for a size of 0 before the call",
            )
        return ShapedArray(drop_dims(x.shape, (dim,)), dtype)

    def sharding_rule(self, x: ShapedArray, *, dim: int, dtype: np.dtype) -> ShardingRule:
        names = dim_names(x.ndim)
        along = names[dim]
        return ShardingRule([names], [drop_dims(names, (dim,))], whole=[along], resized={along: ()}, partial=[along])

    def lower(self, ctx: LoweringContext, x: ir.Value, *, dim: int, dtype: np.dtype) -> Any:
        (x,), (aval,) = widen_to_bytes(ctx, [x], [ctx.avals_in[0].strip_weak_type()])
        # One variadic reduction of (element, index) pairs, which returns the index.
        counts = aval.with_dtype(dtype)
        value, index = ShapedArray((), aval.dtype), ShapedArray((), dtype)
        # Reduction starts from the least extreme value; index 0 is the result if all elements equal it.
        start = dtypes.lowest(aval.dtype) if self.is_max else dtypes.highest(aval.dtype)
        initial = [ctx.constant(np.asarray(start).astype(aval.dtype), value), ctx.constant(0, index)]
        out = ctx.aval_out
        types = [ctx.type(out.with_dtype(aval.dtype)), ctx.type(out)]
        op = hlo.ReduceOp(types, [x, ctx.iota(counts, dim)], initial, [dim])
        ctx.region([value, index, value, index], op, lambda *pair: self._emit_better(aval.dtype, dtype, *pair))
        return op.results[1]

    def _emit_better(
        self, dtype: ir.Value, index_dtype: ir.Value, x: ir.Value, i: ir.Value, y: ir.Value, j: ir.Value
    ) -> list:
        """Select one of two (element, index) pairs: by NaN, then by the extreme, then by the lower index."""
        wins = emit_compare(x, y, "GT" if self.is_max else "LT", dtype)
        if dtype_kind(dtype) == "float":
            # Only NaN differs from itself, and it wins over every number.
            wins = hlo.or_(wins, emit_compare(x, x, "NE", dtype))
        # XLA may combine the pairs in any order, so the first of equal elements is found by comparing the indices.
        ties = hlo.and_(emit_compare(x, y, "EQ", dtype), emit_compare(i, j, "LT", index_dtype))
        return [hlo.select(wins, x, y), hlo.select(hlo.or_(wins, ties), i, j)]

    jvp = ZERO

    def batch(self, x: Array, b: int, *, dim: int, dtype: np.dtype) -> tuple:
        (dim,) = shift_past_batch((dim,), b)
        return self(x, dim=dim, dtype=dtype), b - (dim < b)


argmax_p = declare_primitive(
    "argmax", ArgExtreme, "The index of the first maximum along `dim`.", is_max=True, __module__=__name__
)
argmin_p = declare_primitive(
    "argmin", ArgExtreme, "The index of the first minimum along `dim`.", is_max=False, __module__=__name__
)


def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Any:
    """Return the index of the first maximum along a dimension; NaN is larger than any number.

    Args:
      operand: boolean, integer or floating array.
      axis: the dimension; a negative one counts from the end.
      index_dtype: the integer dtype of the result.

    Returns:
      The indices, in an array without that dimension.

    Raises:
      AxisError: the dimension is out of bounds.
      DTypeError: `index_dtype` is not an integer dtype.
      ShapeError: the dimension has size 0.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> int(lax.argmax(jnp.array([2, 3]), 0, "int32"))
      1
    """
    dim = canonicalize_dim("lax.argmax axis", axis, get_aval(operand).ndim)
    return argmax_p(operand, dim=dim, dtype=dtypes.canonicalize_dtype(index_dtype))


def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Any:
    """Return the index of the first minimum along a dimension; NaN is smaller than any number.

    Args:
      operand, axis, index_dtype: as in `argmax`, as are the errors.

    Returns:
      The indices, of dtype `index_dtype` and without the dimension `axis`.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> int(lax.argmin(jnp.array([2, 3]), 0, "int32"))
      0
    """
    dim = canonicalize_dim("lax.argmin axis", axis, get_aval(operand).ndim)
    return argmin_p(operand, dim=dim, dtype=dtypes.canonicalize_dtype(index_dtype))
