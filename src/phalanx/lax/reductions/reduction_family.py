"""Reductions by one StableHLO operation: `reduce_max`, `reduce_min`, `reduce_and`, `reduce_or`, `reduce_xor`.

Each primitive is one row: the name, the operation, the dtypes, the all-reduce that joins partial results of devices,
the neutral element, and the derivative. `reduce_sum` and `reduce_prod` are in files of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ZERO, Primitive, ShapedArray, ShardingRule, dtypes, get_aval
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise import (
    ANY,
    BITS,
    DtypeKinds,
    Rule,
    check_dtype_kind,
    convert_element_type_p,
    declare_primitive,
    div_p,
    dtype_kind,
    eq_p,
    max_p,
    min_p,
    mul_p,
    set_name_and_doc,
)
from phalanx.lax.reductions.reduce_sum import reduce_sum_p
from phalanx.lax.shape import (
    batch_dim_after_removal,
    broadcast_in_dim_p,
    canonicalize_dims,
    check_dims,
    dim_names,
    drop_dims,
    shift_past_batch,
)
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.runtime.lowering import LoweringContext
from phalanx.sharding import UnreducedKind
from phalanx.typing import Array, DTypeLike, ShardingLike


class Reduction(Primitive):
    """Base of the reductions by one StableHLO operation."""

    operation: Any = None
    of_complex: Any = None  # the primitive of two complex numbers, for which StableHLO has no operation
    kinds: DtypeKinds = ANY
    combines: str | None = None
    initial: Callable = staticmethod(lambda dtype: 0)

    def abstract_eval(self, x: ShapedArray, *, dims: tuple) -> Any:
        check_dtype_kind(f"lax.{self.name}", x, self.kinds)
        check_dims(f"lax.{self.name} axes", dims, x.ndim)
        return x.with_shape(drop_dims(x.shape, dims))

    def sharding_rule(self, x: ShapedArray, *, dims: tuple) -> ShardingRule:
        names = dim_names(x.ndim)
        reduced = [names[d] for d in dims]
        if self.combines is None:
            # XLA has no all-reduce by exclusive or.
            return ShardingRule([names], [drop_dims(names, dims)], whole=reduced)
        return ShardingRule([names], [drop_dims(names, dims)], reduced=dict.fromkeys(reduced, self.combines))

    def lower(self, ctx: LoweringContext, x: ir.Value, *, dims: tuple) -> Any:
        initial = self.initial(ctx.aval_out.dtype)
        if not (self.of_complex and dtype_kind(ctx.aval_out.dtype) == "complex"):
            return ctx.reduce(self.operation, x, init=initial, dims=dims)
        # StableHLO's maximum and minimum are not defined for complex numbers: the region has the comparison of parts.
        pair = [ShapedArray((), ctx.aval_out.dtype)] * 2
        op = hlo.ReduceOp([ctx.type(ctx.aval_out)], [x], [ctx.constant(initial, pair[0])], list(dims))
        ctx.region(pair, op, lambda *values: ctx.inline(self.of_complex, *values, avals=pair))
        return op.results[0]

    def batch(self, x: Array, b: int, *, dims: tuple) -> tuple:
        dims = shift_past_batch(dims, b)
        return self(x, dims=dims), batch_dim_after_removal(dims, b)


def extreme_jvp(self: Primitive, primals: Sequence, tangents: Sequence, *, dims: tuple) -> tuple:
    """The derivative of an extreme: the mean of the tangents of all elements that attain it."""
    (x,), (t,) = primals, tangents
    y = self(x, dims=dims)
    shape, kept = get_aval(x).shape, drop_dims(range(get_aval(x).ndim), dims)
    # With several extreme elements, each contributes an equal share: a subgradient that respects their symmetry.
    hit = eq_p(x, broadcast_in_dim_p(y, shape=shape, dims=kept))
    hit = convert_element_type_p(hit, dtype=t.dtype, weak_type=False)
    return y, div_p(reduce_sum_p(mul_p(t, hit), dims=dims), reduce_sum_p(hit, dims=dims))


def reduction(
    name: str,
    operation: Callable[..., Any],
    kinds: DtypeKinds,
    combines: str | None,
    initial: Callable[[np.dtype], Any],
    jvp: Rule,
    of_complex: Primitive | None = None,
) -> Any:
    """Declare a reduction.

    Args:
      name: the name of the primitive.
      operation: the StableHLO operation of two elements.
      kinds: the dtypes of the operand.
      combines: the all-reduce of partial results, as named by `ShardingRule`; None if XLA has none.
      initial: from a dtype to the neutral element.
      jvp: the derivative rule.
      of_complex: the primitive of two complex numbers, if StableHLO's operation has none.
    """
    words = f"The reduction {name}: any[*kept, *reduced] -> any[*kept]."
    return declare_primitive(
        name,
        Reduction,
        words,
        operation=operation,
        of_complex=of_complex,
        kinds=kinds,
        combines=combines,
        initial=staticmethod(initial),
        jvp=jvp,
    )


def all_bits(dtype: DTypeLike) -> Any:
    """Return the neutral element of bitwise and."""
    return True if dtype == np.bool_ else np.array(-1).astype(dtype)


reduce_max_p = reduction("reduce_max", hlo.MaxOp, ANY, "max", dtypes.lowest, extreme_jvp, max_p)


reduce_min_p = reduction("reduce_min", hlo.MinOp, ANY, "min", dtypes.highest, extreme_jvp, min_p)


reduce_and_p = reduction("reduce_and", hlo.AndOp, BITS, "and", all_bits, ZERO)


reduce_or_p = reduction("reduce_or", hlo.OrOp, BITS, "or", lambda dtype: 0, ZERO)


reduce_xor_p = reduction("reduce_xor", hlo.XorOp, BITS, None, lambda dtype: 0, ZERO)


_REDUCTION = """{words} over dimensions: any[*kept, *reduced] -> any[*kept].

Args:
  operand: array of {kinds}.
  axes: the dimensions to reduce over.
  out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

Returns:
  The reduced array, in the dtype of `operand`.

Raises:
  AxisError: an axis is out of bounds or repeated.
  DTypeError: `operand` is of another dtype.

Examples:
  >>> from phalanx import lax, numpy as jnp
  >>> lax.{name}(jnp.array([6, 5]), (0,)).item()
  {value}
"""


def _over_dims(primitive: Reduction, words: str, value: int) -> Any:
    """Make the public function of a reduction; `value` is its result for [6, 5]."""

    name = primitive.name
    kind = getattr(UnreducedKind, name.removeprefix("reduce_"), UnreducedKind.sum)

    def function(operand: Array, axes: Sequence[int], *, out_sharding: ShardingLike | None = None) -> Any:
        dims = canonicalize_dims(axes)
        if out_sharding is None:
            return primitive(operand, dims=dims)
        reduce = lambda x: primitive(x, dims=dims)
        return call_with_out_sharding(reduce, (operand,), out_sharding, f"lax.{name}, out_sharding", kind)

    return set_name_and_doc(
        function, name, _REDUCTION.format(words=words, kinds=primitive.kinds.words, name=name, value=value)
    )


reduce_max = _over_dims(reduce_max_p, "The maximum, lexicographical for complex numbers,", 6)


reduce_min = _over_dims(reduce_min_p, "The minimum, lexicographical for complex numbers,", 5)


reduce_and = _over_dims(reduce_and_p, "Bitwise and", 4)


reduce_or = _over_dims(reduce_or_p, "Bitwise or", 7)


reduce_xor = _over_dims(reduce_xor_p, "Bitwise exclusive or", 3)
