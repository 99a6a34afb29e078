"""Cumulative reductions along a dimension: `cumsum`, `cumprod`, `cummax`, `cummin`, `cumlogsumexp`.

They are lowered to windowed reductions, which XLA rewrites to a blocked scan, and differentiated through an equivalent
parallel scan of whole-array operations (`reduce_prefixes`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import LINEAR, Primitive, ShapedArray, ShardingRule, dtypes, trace_to_jaxpr
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.control_flow.associative_scan import sequential_scan
from phalanx.lax.elementwise import (
    ANY,
    INEXACT,
    NUMBER,
    DtypeKinds,
    add_p,
    check_dtype_kind,
    constant_like,
    declare_primitive,
    dtype_kind,
    exp_p,
    is_finite_p,
    log1p_p,
    max_p,
    min_p,
    mul_p,
    real_p,
    select_n_p,
    set_name_and_doc,
    sub_p,
)
from phalanx.lax.indexing.static_slice import pad_p, slice_p
from phalanx.lax.shape import check_dims, dim_names, rev_p, shift_past_batch
from phalanx.lax.shape.concatenate import concatenate_p
from phalanx.lax.windows.symbolic_windows import emit_symbolic_windows
from phalanx.runtime.lowering import LoweringContext
from phalanx.symbolic import is_symbolic, max_dim
from phalanx.transforms.jvp_trace import jvp_flat
from phalanx.typing import Array, ArrayLike


def log_add(x: ArrayLike, y: ArrayLike) -> Any:
    """log(exp(x) + exp(y)) without overflow; the difference of equal infinities is replaced by 0."""
    larger = max_p(x, y)
    # Both operands may be the same infinity, whose difference is NaN.
    finite = is_finite_p(real_p(larger) if dtype_kind(larger.dtype) == "complex" else larger)
    gap = select_n_p(finite, constant_like(larger, 0), sub_p(min_p(x, y), larger))
    return add_p(larger, log1p_p(exp_p(gap)))


def slice_dim(x: ArrayLike, dim: int, start: int, stop: int, stride: int = 1) -> Any:
    """Slice one dimension by `start:stop:stride`."""
    shape = x.shape
    return slice_p(
        x,
        starts=tuple([start if d == dim else 0 for d in range(x.ndim)]),
        stops=tuple([stop if d == dim else n for d, n in enumerate(shape)]),
        strides=tuple([stride if d == dim else 1 for d in range(x.ndim)]) if stride != 1 else None,
    )


def reduce_prefixes(operation: Callable, x: ArrayLike, dim: int) -> Any:
    """Reduce all prefixes along `dim` by an associative operation, in a logarithmic number of steps.

    Neighbouring pairs are reduced first. The prefixes of the pairs are the odd elements of the result; an even element
    is the odd element before it combined with one element of `x`.

    Source: Blelloch (1990), Prefix sums and their applications.
    """
    size = x.shape[dim]
    if is_symbolic(size):  # the recursion would not end
        return sequential_scan(lambda a, b: [operation(a[0], b[0])], [x], dim)[0]
    if size < 2:
        return x
    pairs = operation(slice_dim(x, dim, 0, size - 1, 2), slice_dim(x, dim, 1, size, 2))
    odd = reduce_prefixes(operation, pairs, dim)
    before = odd if size % 2 else slice_dim(odd, dim, 0, odd.shape[dim] - 1)
    even = operation(before, slice_dim(x, dim, 2, size, 2)) if size > 2 else None
    first = slice_dim(x, dim, 0, 1)
    even = first if even is None else concatenate_p(first, even, dim=dim)
    return interleave(even, odd, dim)


def interleave(even: ArrayLike, odd: ArrayLike, dim: int) -> Any:
    """Interleave two arrays along `dim`; the first may have one more element."""
    n, m = even.shape[dim], odd.shape[dim]

    def spread(x: Array, low: int, high: int) -> Any:
        config = tuple((low, high, 1) if d == dim else (0, 0, 0) for d in range(x.ndim))
        return pad_p(x, constant_like(x, 0), config=config)

    first, second = spread(even, 0, 1 if n == m else 0), spread(odd, 1, 1 if n > m else 0)
    # Padding with zeros and adding is linear, and infinities are only added to zeros.
    return add_p(first, second)


class Cumulative(Primitive):
    """Base of the cumulative reductions."""

    operation: Any = None  # takes two arrays
    kinds: DtypeKinds = NUMBER
    initial: Callable = staticmethod(lambda dtype: 0)

    def abstract_eval(self, x: ShapedArray, *, dim: int, reverse: bool) -> Any:
        check_dtype_kind(f"lax.{self.name}", x, self.kinds)
        check_dims(f"lax.{self.name} axis", (dim,), x.ndim)
        return x

    def sharding_rule(self, x: ShapedArray, *, dim: int, reverse: bool) -> ShardingRule:
        names = dim_names(x.ndim)
        return ShardingRule([names], [names], whole=[names[dim]])

    def lower(self, ctx: LoweringContext, x: ir.Value, *, dim: int, reverse: bool) -> Any:
        aval = ctx.aval_out
        size = aval.shape[dim]
        if not is_symbolic(size) and size < 2:
            return x
        scalar = ShapedArray((), aval.dtype)
        initial = ctx.constant(np.asarray(type(self).initial(aval.dtype)).astype(aval.dtype), scalar)
        # A window of the full size at every position, cut off by padding with the neutral element.
        width = max_dim(size, 1)  # StableHLO requires windows of size 1 or more
        window = [width if d == dim else 1 for d in range(aval.ndim)]
        if is_symbolic(size):
            pads = [((0, width - 1) if reverse else (width - 1, 0)) if d == dim else (0, 0) for d in range(aval.ndim)]
            program = trace_to_jaxpr(lambda a, b: [type(self).operation(a, b)], [scalar, scalar], self.name)
            windows = {"window_dimensions": window, "window_strides": (1,) * aval.ndim, "padding": pads}
            return emit_symbolic_windows(ctx, [x], [initial], windows, program, [aval])[0]
        # Each output reduces a window of the full size that ends (or starts, if reversed) at its position; the padding
        # on the other side is filled with the neutral element.
        padding = np.zeros((aval.ndim, 2), np.int64)
        padding[dim, 1 if reverse else 0] = size - 1
        op = hlo.ReduceWindowOp([ctx.type(aval)], [x], [initial], window, padding=padding_attribute(padding))
        program = trace_to_jaxpr(lambda a, b: [type(self).operation(a, b)], [scalar, scalar], self.name)
        ctx.region([scalar, scalar], op, lambda a, b: ctx.emit(program, [a, b]))
        return op.results[0]

    def jvp(self, primals: Sequence[Array], tangents: Sequence[Array], *, dim: int, reverse: bool) -> tuple:
        def fun(x: Array) -> list:
            x = rev_p(x, dims=(dim,)) if reverse else x
            y = reduce_prefixes(type(self).operation, x, dim)
            return [rev_p(y, dims=(dim,)) if reverse else y]

        (y,), (y_dot,) = jvp_flat(fun, primals, tangents)
        return y, y_dot

    def batch(self, x: Array, b: int, *, dim: int, reverse: bool) -> tuple:
        return self(x, dim=shift_past_batch((dim,), b)[0], reverse=reverse), b


def padding_attribute(padding: np.ndarray) -> Any:
    """Convert (low, high) for each dimension to an MLIR attribute."""
    return ir.DenseIntElementsAttr.get(padding)


def cumulative(name: str, operation: Callable, kinds: DtypeKinds, initial: Callable, **rules: Any) -> Any:
    """Declare a cumulative operation.

    Args:
      name: the name of the primitive.
      operation: the associative primitive of two arrays.
      kinds: the dtypes of the operand.
      initial: from a dtype to the neutral element.
      rules: `jvp` and `transpose`, to override the rules of the base class.
    """
    return declare_primitive(
        name,
        Cumulative,
        f"The cumulative operation {name} along a dimension.",
        kinds=kinds,
        operation=staticmethod(operation),
        initial=staticmethod(initial),
        **rules,
    )


def cumsum_transpose(self: Primitive, y_bar: Array, x: Array, *, dim: int, reverse: bool) -> tuple:
    """The transpose of a cumulative sum is the cumulative sum from the other end."""
    return (self(y_bar, dim=dim, reverse=not reverse),)


cumsum_p = cumulative("cumsum", add_p, NUMBER, lambda dtype: 0, jvp=LINEAR, transpose=cumsum_transpose)
cumprod_p = cumulative("cumprod", mul_p, NUMBER, lambda dtype: 1)
cummax_p = cumulative("cummax", max_p, ANY, dtypes.lowest)
cummin_p = cumulative("cummin", min_p, ANY, dtypes.highest)
cumlogsumexp_p = cumulative("cumlogsumexp", log_add, INEXACT, dtypes.lowest)


_CUMULATIVE = """{words} along a dimension: any[*s] -> any[*s].

Args:
  operand: array of {kinds}.
  axis: the dimension.
  reverse: whether to accumulate from the end of the dimension.

Returns:
  An array of the shape and dtype of `operand`.

Raises:
  AxisError: the dimension is out of bounds.
  DTypeError: `operand` is of another dtype.

Examples:
  >>> from phalanx import lax, numpy as jnp
  >>> lax.{name}(jnp.array([2.0, 1.0, 3.0])).tolist()
  {value}
"""


def _over_prefixes(primitive: Cumulative, words: str, value: str) -> Any:
    """Make the public function of a cumulative primitive; `value` is its result for [2, 1, 3]."""

    def function(operand: Array, axis: int = 0, reverse: bool = False) -> Any:
        return primitive(operand, dim=operator.index(axis), reverse=bool(reverse))

    name = primitive.name
    return set_name_and_doc(
        function, name, _CUMULATIVE.format(words=words, kinds=primitive.kinds.words, name=name, value=value)
    )


cumsum = _over_prefixes(cumsum_p, "Cumulative sums", "[2.0, 3.0, 6.0]")
cumprod = _over_prefixes(cumprod_p, "Cumulative products", "[2.0, 2.0, 6.0]")
cummax = _over_prefixes(cummax_p, "Cumulative maxima, lexicographical for complex numbers,", "[2.0, 2.0, 3.0]")
cummin = _over_prefixes(cummin_p, "Cumulative minima, lexicographical for complex numbers,", "[2.0, 1.0, 1.0]")
cumlogsumexp = _over_prefixes(cumlogsumexp_p, "Cumulative log-sum-exp", "[2.0, 2.313..., 3.407...]")
