"""Cumulative operations: every prefix of an array along a dimension, reduced.

Lowered to windowed reductions, which the compiler turns into blocks; differentiated through the same prefixes written
as a logarithmic number of whole-array operations.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray
from phalanx.core.primitive import LINEAR, Primitive, Roles
from phalanx.core.trace import stage
from phalanx.engine.mlir import hlo, ir
from phalanx.engine.seat import Seat
from phalanx.lax.broadcast import check_dims, dim_names, skip_batch
from phalanx.lax.elementwise import add_p, exp_p, is_finite_p, like, log1p_p, max_p, min_p, mul_p, real_p, sub_p
from phalanx.lax.faces import named
from phalanx.lax.family import ANY, INEXACT, NUMBER, Kinds, check_kind, declare, kind_of
from phalanx.lax.select import select_n_p
from phalanx.lax.shape import concatenate_p, rev_p
from phalanx.lax.slicing import pad_p, slice_p
from phalanx.lax.windows import emit_symbolic_windows
from phalanx.symbolic import is_symbolic, max_dim
from phalanx.transforms.forward import jvp_flat

# one_by_one(combine, arrays, dim): prefixes in as many steps as there are elements.
sequences = Seat(taken_by="phalanx.lax.associative")


def log_add(x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y)), exact where one is far larger, and where the larger one is infinite."""
    larger = max_p(x, y)
    finite = is_finite_p(real_p(larger) if kind_of(larger.dtype) == "complex" else larger)
    gap = select_n_p(finite, like(larger, 0), sub_p(min_p(x, y), larger))
    return add_p(larger, log1p_p(exp_p(gap)))


def take(x: Any, dim: int, start: int, stop: int, stride: int = 1) -> Any:
    """The range `start:stop:stride` of one dimension."""
    shape = x.shape
    return slice_p(
        x, starts=tuple([start if d == dim else 0 for d in range(x.ndim)]),
        stops=tuple([stop if d == dim else n for d, n in enumerate(shape)]),
        strides=tuple([stride if d == dim else 1 for d in range(x.ndim)]) if stride != 1 else None,
    )  # fmt: skip


def prefixes(operation: Callable, x: Any, dim: int) -> Any:
    """All prefixes along `dim` reduced by an associative operation, in a logarithmic number of steps.

    Source: Blelloch (1990), Prefix sums and their applications: pairs are reduced, their prefixes are every second
    result, and the others are one operation away.
    """
    size = x.shape[dim]
    if is_symbolic(size):  # halving it has no end
        return sequences.one_by_one(lambda a, b: [operation(a[0], b[0])], [x], dim)[0]
    if size < 2:
        return x
    pairs = operation(take(x, dim, 0, size - 1, 2), take(x, dim, 1, size, 2))
    odd = prefixes(operation, pairs, dim)
    count = odd.shape[dim]
    before = odd if size % 2 else take(odd, dim, 0, count - 1)
    even = operation(before, take(x, dim, 2, size, 2)) if size > 2 else None
    first = take(x, dim, 0, 1)
    even = first if even is None else concatenate_p(first, even, dim=dim)
    return interleave(even, odd, dim)


def interleave(even: Any, odd: Any, dim: int) -> Any:
    """Elements of two arrays in turn along `dim`; the first may have one more."""
    n, m = even.shape[dim], odd.shape[dim]

    def spread(x: Any, low: int, high: int) -> Any:
        config = tuple((low, high, 1) if d == dim else (0, 0, 0) for d in range(x.ndim))
        return pad_p(x, like(x, 0), config=config)

    first, second = spread(even, 0, 1 if n == m else 0), spread(odd, 1, 1 if n > m else 0)
    # Padding with zeros and adding keeps this linear; infinities meet only zeros.
    return add_p(first, second)


class Cumulative(Primitive):
    """What all cumulative operations share."""

    operation: Any = None  # takes two arrays
    kinds: Kinds = NUMBER
    initial: Callable = staticmethod(lambda dtype: 0)

    def result(self, x: Any, *, dim: int, reverse: bool) -> Any:
        check_kind(f"lax.{self.name}", x, self.kinds)
        check_dims(f"lax.{self.name} axis", (dim,), x.ndim)
        return x

    def roles(self, x: Any, *, dim: int, reverse: bool) -> Roles:
        names = dim_names(x.ndim)
        return Roles([names], [names], whole=[names[dim]])

    def lower(self, ctx: Any, x: Any, *, dim: int, reverse: bool) -> Any:
        aval = ctx.aval_out
        size = aval.shape[dim]
        if not is_symbolic(size) and size < 2:
            return x
        scalar = ShapedArray((), aval.dtype)
        initial = ctx.constant(np.asarray(type(self).initial(aval.dtype)).astype(aval.dtype), scalar)
        width = max_dim(size, 1)  # StableHLO knows no empty windows
        window = [width if d == dim else 1 for d in range(aval.ndim)]
        if is_symbolic(size):
            pads = [((0, width - 1) if reverse else (width - 1, 0)) if d == dim else (0, 0) for d in range(aval.ndim)]
            program = stage(lambda a, b: [type(self).operation(a, b)], [scalar, scalar], self.name)
            windows = {"window_dimensions": window, "window_strides": (1,) * aval.ndim, "padding": pads}
            return emit_symbolic_windows(ctx, [x], [initial], windows, program, [aval])[0]
        padding = np.zeros((aval.ndim, 2), np.int64)
        padding[dim, 1 if reverse else 0] = size - 1
        op = hlo.ReduceWindowOp([ctx.type(aval)], [x], [initial], window, padding=padding_attribute(padding))
        program = stage(lambda a, b: [type(self).operation(a, b)], [scalar, scalar], self.name)
        ctx.region([scalar, scalar], op, lambda a, b: ctx.emit(program, [a, b]))
        return op.results[0]

    def jvp(self, primals: Any, tangents: Any, *, dim: int, reverse: bool) -> tuple:
        def fun(x: Any) -> list:
            x = rev_p(x, dims=(dim,)) if reverse else x
            y = prefixes(type(self).operation, x, dim)
            return [rev_p(y, dims=(dim,)) if reverse else y]

        (y,), (y_dot,) = jvp_flat(fun, primals, tangents)
        return y, y_dot

    def batch(self, x: Any, b: int, *, dim: int, reverse: bool) -> tuple:
        return self(x, dim=skip_batch((dim,), b)[0], reverse=reverse), b


def padding_attribute(padding: np.ndarray) -> Any:
    """The MLIR form of (low, high) for each dimension."""
    return ir.DenseIntElementsAttr.get(padding)


def cumulative(name: str, operation: Callable, kinds: Kinds, initial: Callable, **rules: Any) -> Any:
    """Declare a cumulative operation.

    Args:
      name: what programs call it.
      operation: takes two arrays.
      kinds: the dtypes it takes.
      initial: the neutral element of a dtype.
      rules: `jvp` and `transpose`, where they are not those of all.
    """
    return declare(name, Cumulative, f"The cumulative operation {name} along a dimension.", kinds=kinds,
                   operation=staticmethod(operation), initial=staticmethod(initial), **rules)  # fmt: skip


def cumsum_transpose(self: Any, y_bar: Any, x: Any, *, dim: int, reverse: bool) -> tuple:
    """Sums from the other end."""
    return (self(y_bar, dim=dim, reverse=not reverse),)


cumsum_p = cumulative("cumsum", add_p, NUMBER, lambda dtype: 0, jvp=LINEAR, transpose=cumsum_transpose)
cumprod_p = cumulative("cumprod", mul_p, NUMBER, lambda dtype: 1)
cummax_p = cumulative("cummax", max_p, ANY, dtypes.lowest)
cummin_p = cumulative("cummin", min_p, ANY, dtypes.highest)
cumlogsumexp_p = cumulative("cumlogsumexp", log_add, INEXACT, dtypes.lowest)


_CUMULATIVE = """{words} of all prefixes along a dimension: any[*s] -> any[*s].

Args:
  operand: array of {kinds}.
  axis: the dimension.
  reverse: start from its end.

Returns:
  An array of the shape and dtype of `operand`.

Raises:
  AxisError: there is no such dimension.
  DTypeError: `operand` is of another dtype.

Examples:
  >>> from phalanx import lax, numpy as jnp
  >>> lax.{name}(jnp.array([2.0, 1.0, 3.0])).tolist()
  {value}
"""


def _over_prefixes(primitive: Any, words: str, value: str) -> Any:
    """Make the public function of a cumulative primitive; `value` is what [2, 1, 3] gives."""

    def function(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
        return primitive(operand, dim=operator.index(axis), reverse=bool(reverse))

    name = primitive.name
    return named(function, name, _CUMULATIVE.format(words=words, kinds=primitive.kinds.words, name=name, value=value))


cumsum = _over_prefixes(cumsum_p, "Sums", "[2.0, 3.0, 6.0]")
cumprod = _over_prefixes(cumprod_p, "Products", "[2.0, 2.0, 6.0]")
cummax = _over_prefixes(cummax_p, "Largest elements, of complex ones the lexicographically largest,", "[2.0, 2.0, 3.0]")
cummin = _over_prefixes(
    cummin_p, "Smallest elements, of complex ones the lexicographically smallest,", "[2.0, 1.0, 1.0]"
)
cumlogsumexp = _over_prefixes(cumlogsumexp_p, "log(sum(exp))", "[2.0, 2.313..., 3.407...]")
