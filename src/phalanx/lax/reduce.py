"""Reductions: of numbers, of order, of bits, the position of an extreme element, and by any associative function.

`reduce_sum` is in `broadcast`, beside its transpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import AxisError, DTypeError, ShapeError, TraceError
from phalanx.core.jaxpr import Jaxpr, Literal, run_program
from phalanx.core.primitive import ZERO, Primitive, Roles, Undefined
from phalanx.core.tangent import Zero
from phalanx.core.trace import stage
from phalanx.engine.mlir import hlo
from phalanx.lax.broadcast import (
    add_dim,
    batch_of_kept,
    broadcast_in_dim_p,
    check_dims,
    dim_names,
    keep,
    move_dim,
    reduce_sum_p,
    refuse_sharding,
    skip_batch,
    static_dims,
    transpose_p,
)
from phalanx.lax.cumulative import cumprod_p
from phalanx.lax.elementwise import div_p, eq_p, like, mul_p
from phalanx.lax.family import ANY, BITS, NUMBER, ORDERED, Kinds, check_kind, declare, emit_compare, kind_of, match
from phalanx.lax.convert import convert_element_type_p
from phalanx.lax.select import select_n_p
from phalanx.lax.shape import concatenate_p, rev_p, reshape_p
from phalanx.lax.slicing import pad_p, slice_p
from phalanx.transforms.forward import jvp_flat
from phalanx.tree import tree_flatten, tree_unflatten


class Reduction(Primitive):
    """What all reductions by one StableHLO operation share."""

    operation: Any = None
    kinds: Kinds = ANY
    combines: str | None = None
    initial: Callable = staticmethod(lambda dtype: 0)

    def result(self, x: Any, *, dims: tuple) -> Any:
        check_kind(f"lax.{self.name}", x, self.kinds)
        check_dims(f"lax.{self.name} axes", dims, x.ndim)
        return x.with_shape(keep(x.shape, dims))

    def roles(self, x: Any, *, dims: tuple) -> Roles:
        names = dim_names(x.ndim)
        reduced = [names[d] for d in dims]
        if self.combines is None:
            return Roles([names], [keep(names, dims)], whole=reduced)
        return Roles([names], [keep(names, dims)], reduced=dict.fromkeys(reduced, self.combines))

    def lower(self, ctx: Any, x: Any, *, dims: tuple) -> Any:
        return ctx.reduce(self.operation, x, init=self.initial(ctx.aval_out.dtype), dims=dims)

    def batch(self, x: Any, b: int, *, dims: tuple) -> tuple:
        dims = skip_batch(dims, b)
        return self(x, dims=dims), batch_of_kept(dims, b)


def lowest(dtype: Any) -> Any:
    """The neutral element of max."""
    kind = kind_of(dtype)
    if kind == "bool":
        return False
    return dtypes.iinfo(dtype).min if kind in ("signed", "unsigned") else -math.inf


def highest(dtype: Any) -> Any:
    """The neutral element of min."""
    kind = kind_of(dtype)
    if kind == "bool":
        return True
    return dtypes.iinfo(dtype).max if kind in ("signed", "unsigned") else math.inf


def extreme_jvp(self: Primitive, primals: Sequence, tangents: Sequence, *, dims: tuple) -> tuple:
    """The mean of the tangents of all elements that attain the extreme."""
    (x,), (t,) = primals, tangents
    y = self(x, dims=dims)
    shape, kept = aval_of(x).shape, keep(range(aval_of(x).ndim), dims)
    hit = eq_p(x, broadcast_in_dim_p(y, shape=shape, dims=kept))
    hit = convert_element_type_p(hit, dtype=t.dtype, weak_type=False)
    return y, div_p(reduce_sum_p(mul_p(t, hit), dims=dims), reduce_sum_p(hit, dims=dims))


def product_jvp(self: Primitive, primals: Sequence, tangents: Sequence, *, dims: tuple) -> tuple:
    """Each tangent times the product of all other elements, which no division finds where there are zeros.

    That product is one of what stands before and one of what stands behind.
    """
    (x,), (t,) = primals, tangents
    y = self(x, dims=dims)
    aval = aval_of(x)
    kept = keep(range(aval.ndim), dims)
    shape = (*(aval.shape[d] for d in kept), math.prod(aval.shape[d] for d in dims))
    x, t = (reshape_p(transpose_p(v, permutation=(*kept, *dims)), shape=shape) for v in (x, t))
    last = len(shape) - 1
    config = [(0, 0, 0)] * last
    one = like(x, 1)
    before = pad_p(cumprod_p(x, dim=last, reverse=False), one, config=(*config, (1, -1, 0)))
    behind = pad_p(cumprod_p(x, dim=last, reverse=True), one, config=(*config, (-1, 1, 0)))
    return y, reduce_sum_p(mul_p(t, mul_p(before, behind)), dims=(last,))


def reduction(name: str, operation: Any, kinds: Kinds, combines: str | None, initial: Callable, jvp: Any) -> Any:
    """Declare a reduction.

    Args:
      name: what programs call it.
      operation: the StableHLO operation of two elements.
      kinds: the dtypes it takes.
      combines: how partial results combine, in the words of `Roles`; None if they cannot.
      initial: the neutral element of a dtype.
      jvp: the rule.
    """
    return declare(name, Reduction, f"The reduction {name}: any[*kept, *reduced] -> any[*kept].", operation=operation,
                   kinds=kinds, combines=combines, initial=staticmethod(initial), jvp=jvp)  # fmt: skip


def all_bits(dtype: Any) -> Any:
    """The neutral element of and."""
    return True if dtype == bool else np.array(-1).astype(dtype)


#                             name          StableHLO op    dtypes   pieces  neutral element   derivative
reduce_prod_p = reduction("reduce_prod", hlo.MulOp, NUMBER, "prod", lambda dtype: 1, product_jvp)
reduce_max_p = reduction("reduce_max", hlo.MaxOp, ORDERED, "max", lowest, extreme_jvp)
reduce_min_p = reduction("reduce_min", hlo.MinOp, ORDERED, "min", highest, extreme_jvp)
reduce_and_p = reduction("reduce_and", hlo.AndOp, BITS, "and", all_bits, ZERO)
reduce_or_p = reduction("reduce_or", hlo.OrOp, BITS, "or", lambda dtype: 0, ZERO)
reduce_xor_p = reduction("reduce_xor", hlo.XorOp, BITS, None, lambda dtype: 0, ZERO)


class ArgExtreme(Primitive):
    """The position of the first extreme element along `dim`; a NaN counts as extreme."""

    is_max = True

    def result(self, x: Any, *, dim: int, dtype: Any) -> Any:
        where = f"lax.{self.name}"
        check_kind(where, x, ORDERED)
        check_dims(f"{where} axis", (dim,), x.ndim)
        if kind_of(dtype) not in ("signed", "unsigned"):
            raise DTypeError(f"{where} index_dtype", expected="an integer dtype", got=dtype, mend="use int32")
        if isinstance(x.shape[dim], int) and x.shape[dim] < 1:
            raise ShapeError(where, expected=f"at least one element along dimension {dim}", got=x.str_short(),
                             mend="there is no extreme of nothing")  # fmt: skip
        return ShapedArray(keep(x.shape, (dim,)), dtype)

    def roles(self, x: Any, *, dim: int, dtype: Any) -> Roles:
        names = dim_names(x.ndim)
        return Roles([names], [keep(names, (dim,))], whole=[names[dim]])

    def lower(self, ctx: Any, x: Any, *, dim: int, dtype: Any) -> Any:
        aval = ctx.avals_in[0].strengthened()
        counts = aval.with_dtype(dtype)
        value, index = ShapedArray((), aval.dtype), ShapedArray((), dtype)
        start = lowest(aval.dtype) if self.is_max else highest(aval.dtype)
        initial = [ctx.constant(np.asarray(start).astype(aval.dtype), value), ctx.constant(0, index)]
        out = ctx.aval_out
        types = [ctx.type(out.with_dtype(aval.dtype)), ctx.type(out)]
        op = hlo.ReduceOp(types, [x, hlo.iota(ctx.type(counts), dim)], initial, [dim])
        ctx.region([value, index, value, index], op, lambda *pair: self._better(aval.dtype, dtype, *pair))
        return op.results[1]

    def _better(self, dtype: Any, index_dtype: Any, x: Any, i: Any, y: Any, j: Any) -> list:
        """The better of two (element, index) pairs: a NaN first, then the extreme, then the lower index."""
        wins = emit_compare(x, y, "GT" if self.is_max else "LT", dtype)
        if kind_of(dtype) == "float":
            wins = hlo.or_(wins, emit_compare(x, x, "NE", dtype))
        ties = hlo.and_(emit_compare(x, y, "EQ", dtype), emit_compare(i, j, "LT", index_dtype))
        return [hlo.select(wins, x, y), hlo.select(hlo.or_(wins, ties), i, j)]

    jvp = ZERO

    def batch(self, x: Any, b: int, *, dim: int, dtype: Any) -> tuple:
        (dim,) = skip_batch((dim,), b)
        return self(x, dim=dim, dtype=dtype), b - (dim < b)


class Argmax(ArgExtreme, name="argmax"):
    """The position of the first largest element along `dim`."""


class Argmin(ArgExtreme, name="argmin"):
    """The position of the first smallest element along `dim`."""

    is_max = False


argmax_p = Argmax()
argmin_p = Argmin()


def reduce_by_halves(program: Jaxpr, xs: Sequence, inits: Sequence, dims: tuple) -> list:
    """Reduce with a scalar program by combining halves, in operations that have all rules."""
    ndim = aval_of(xs[0]).ndim
    kept = keep(range(ndim), dims)
    shape = [aval_of(xs[0]).shape[d] for d in kept]
    size = math.prod(aval_of(xs[0]).shape[d] for d in dims)
    xs = [reshape_p(transpose_p(x, permutation=(*dims, *kept)), shape=(size, *shape)) for x in xs]

    def cut(x: Any, start: int, stop: int) -> Any:
        rest = x.shape[1:]
        return slice_p(x, starts=(start, *[0] * len(rest)), stops=(stop, *rest), strides=None)

    while size > 1:
        half = size // 2
        merged = combine(program, [cut(x, 0, half) for x in xs], [cut(x, half, 2 * half) for x in xs])
        odd = [cut(x, 2 * half, size) for x in xs] if size % 2 else None
        xs = merged if odd is None else [concatenate_p(m, o, dim=0) for m, o in zip(merged, odd, strict=True)]
        size = half + size % 2
    inits = [broadcast_in_dim_p(v, shape=tuple(shape), dims=()) if shape else v for v in inits]
    return combine(program, inits, [reshape_p(x, shape=tuple(shape)) for x in xs]) if size else inits


def combine(program: Jaxpr, xs: Sequence, ys: Sequence) -> list:
    """Apply a scalar program of (x, y) to all elements of arrays of one shape."""
    from phalanx.transforms.vmap import Axis, to_front, vmap_flat

    shape = aval_of(xs[0]).shape
    if not shape:
        return run_program(program, *xs, *ys)
    size = math.prod(shape)
    flat = [reshape_p(v, shape=(size,)) for v in (*xs, *ys)]
    outs, mapped = vmap_flat(lambda *v: run_program(program, *v), flat, [0] * len(flat), Axis(size))
    return [reshape_p(to_front(o, d, size), shape=shape) for o, d in zip(outs, mapped, strict=True)]


class Reduce(Primitive, name="reduce", multiple=True):
    """Arrays reduced together over `dims` by an associative scalar program, from initial values.

    Operands are the arrays, then the initial values; the program takes the partial results of two pieces.
    """

    holds_program = True

    def result(self, *avals: Any, program: Jaxpr, dims: tuple) -> list:
        xs, inits = avals[: len(avals) // 2], avals[len(avals) // 2 :]
        where = "lax.reduce"
        check_dims(f"{where} dimensions", dims, xs[0].ndim)
        for x, init in zip(xs, inits, strict=True):
            if x.shape != xs[0].shape or init.shape:
                raise ShapeError(where, expected="operands of one shape and initial values of rank 0",
                                 got=", ".join(a.str_short() for a in avals), mend="broadcast the operands")  # fmt: skip
            if x.dtype != init.dtype:
                raise DTypeError(where, expected=f"an initial value of dtype {x.dtype}", got=init.str_short(),
                                 mend="convert it with lax.convert_element_type")  # fmt: skip
        return [x.with_shape(keep(x.shape, dims)).strengthened() for x in xs]

    def roles(self, *avals: Any, program: Jaxpr, dims: tuple) -> Roles:
        n = len(avals) // 2
        names = dim_names(avals[0].ndim)
        return Roles([names] * n + [[]] * n, [keep(names, dims)] * n, whole=[names[d] for d in dims])

    def lower(self, ctx: Any, *operands: Any, program: Jaxpr, dims: tuple) -> Any:
        n = len(operands) // 2
        types = [ctx.type(a) for a in ctx.avals_out]
        op = hlo.ReduceOp(types, list(operands[:n]), list(operands[n:]), list(dims))
        scalars = [ShapedArray((), a.dtype) for a in ctx.avals_out]
        ctx.region([*scalars, *scalars], op, lambda *pair: ctx.emit(program, pair))
        return list(op.results)

    def jvp(self, primals: Any, tangents: Any, *, program: Jaxpr, dims: tuple) -> tuple:
        return jvp_flat(self._by_halves(program, dims), primals, tangents)

    transpose = Undefined("its derivative is made of other operations, which have theirs")

    def batch(self, *args: Any, program: Jaxpr, dims: tuple) -> tuple:
        operands, mapped = args[: len(args) // 2], args[len(args) // 2 :]
        n = len(operands) // 2
        size = next(x.shape[d] for x, d in zip(operands, mapped, strict=True) if d is not None)
        xs = [add_dim(x, 0, size) if d is None else move_dim(x, d, 0)
              for x, d in zip(operands[:n], mapped[:n], strict=True)]  # fmt: skip
        dims = tuple(d + 1 for d in dims)
        if all(d is None for d in mapped[n:]):
            return self(*xs, *operands[n:], program=program, dims=dims), [0] * n
        # Each example starts from its own value, so that value joins as one more element.
        inits = [add_dim(v, 0, size) if d is None else v for v, d in zip(operands[n:], mapped[n:], strict=True)]
        shape = keep(aval_of(xs[0]).shape, dims)
        inits = [broadcast_in_dim_p(v, shape=shape, dims=(0,)) for v in inits]
        if any(aval_of(xs[0]).shape[d] == 0 for d in dims):
            return inits, [0] * n
        firsts = [self._without_init(x_all, program, dims, i) for i, x_all in enumerate([xs] * n)]
        return combine(program, inits, firsts), [0] * n

    def _without_init(self, xs: list, program: Jaxpr, dims: tuple, i: int) -> Any:
        return tree_reduce(program, xs, dims)[i]

    def _by_halves(self, program: Jaxpr, dims: tuple) -> Callable:
        def fun(*operands: Any) -> list:
            n = len(operands) // 2
            return reduce_by_halves(program, operands[:n], operands[n:], dims)

        return fun


reduce_p = Reduce()
