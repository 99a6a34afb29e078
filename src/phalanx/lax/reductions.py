"""Reductions: of numbers, of order, of bits, the position of an extreme element, and by any associative function.

`reduce_sum` is in `broadcast`, beside its transpose.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import DTypeError, ShapeError, TraceError
from phalanx.core.jaxpr import Jaxpr, Literal, run_program
from phalanx.core.primitive import ZERO, Primitive, Roles, Undefined, joint_varying
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
    skip_batch,
    static_dims,
    transpose_p,
)
from phalanx.lax.convert import convert_element_type_p
from phalanx.lax.cumulative import cumprod_p
from phalanx.lax.elementwise import complex_p, div_p, eq_p, imag_p, like, max_p, min_p, mul_p, ne_p, or_p, real_p
from phalanx.lax.explicit import laid_out, mesh_of, open_type, placed
from phalanx.lax.faces import named
from phalanx.lax.family import ANY, BITS, NUMBER, ORDERED, Kinds, check_kind, declare, emit_compare, kind_of, match
from phalanx.lax.ordered_bits import by_bits, loses_nans
from phalanx.lax.select import select_n_p
from phalanx.lax.shape import concatenate_p, reshape_p
from phalanx.lax.slicing import one_dim, pad_p, slice_p
from phalanx.lax.tiny import widened
from phalanx.transforms.batching import Axis, to_dim, vmap_flat
from phalanx.transforms.forward import jvp_flat
from phalanx.tree import tree_flatten, tree_unflatten


class Reduction(Primitive):
    """What all reductions by one StableHLO operation share."""

    operation: Any = None
    of_complex: Any = None  # of two complex numbers, where StableHLO's operation takes none
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
        dtype = ctx.aval_out.dtype
        initial = self.initial(dtype)
        is_split = ctx.module.is_split
        if self.of_complex and is_split and loses_nans(ctx, dtype):
            extreme = functools.partial(self, dims=dims)
            return ctx.inline(lambda v: by_bits(extreme, self.combines == "max", v), x)[0]
        if not (self.of_complex and kind_of(dtype) == "complex"):
            return ctx.reduce(self.operation, x, init=initial, dims=dims)
        if is_split:  # XLA joins what devices have by operations of real numbers only.
            return ctx.inline(self._by_parts, x, dims=dims)[0]
        pair = [ShapedArray((), ctx.aval_out.dtype)] * 2
        op = hlo.ReduceOp([ctx.type(ctx.aval_out)], [x], [ctx.constant(initial, pair[0])], list(dims))
        ctx.region(pair, op, lambda *values: ctx.inline(self.of_complex, *values, avals=pair))
        return op.results[0]

    def _by_parts(self, x: Any, *, dims: tuple) -> Any:
        """The extreme of complex numbers: that of the real parts, and of the imaginary parts that go with it."""
        real, imag = real_p(x), imag_p(x)
        kept, first = keep(range(real.ndim), dims), like(real, self.initial(real.dtype))
        y = self(real, dims=dims)
        hit = or_p(eq_p(real, broadcast_in_dim_p(y, shape=real.shape, dims=kept)), ne_p(real, real))
        z = self(select_n_p(hit, broadcast_in_dim_p(first, shape=real.shape, dims=()), imag), dims=dims)
        return complex_p(y, select_n_p(eq_p(y, first), z, self.of_complex(z, like(z, 0))))

    def batch(self, x: Any, b: int, *, dims: tuple) -> tuple:
        dims = skip_batch(dims, b)
        return self(x, dims=dims), batch_of_kept(dims, b)


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


def reduction(
    name: str, operation: Any, kinds: Kinds, combines: str | None, initial: Callable, jvp: Any, of_complex: Any = None
) -> Any:
    """Declare a reduction.

    Args:
      name: what programs call it.
      operation: the StableHLO operation of two elements.
      kinds: the dtypes it takes.
      combines: how partial results combine, in the words of `Roles`; None if devices cannot combine theirs.
      initial: the neutral element of a dtype.
      jvp: the rule.
      of_complex: the primitive of two complex numbers, where StableHLO's operation takes none.
    """
    words = f"The reduction {name}: any[*kept, *reduced] -> any[*kept]."
    return declare(name, Reduction, words, operation=operation, of_complex=of_complex, kinds=kinds, combines=combines,
                   initial=staticmethod(initial), jvp=jvp, by_pieces=combines is None)  # fmt: skip


def all_bits(dtype: Any) -> Any:
    """The neutral element of and."""
    return True if dtype == np.bool_ else np.array(-1).astype(dtype)


#                             name          StableHLO op    dtypes   pieces  neutral element   derivative
reduce_prod_p = reduction("reduce_prod", hlo.MulOp, NUMBER, "prod", lambda dtype: 1, product_jvp)
reduce_max_p = reduction("reduce_max", hlo.MaxOp, ANY, "max", dtypes.lowest, extreme_jvp, max_p)
reduce_min_p = reduction("reduce_min", hlo.MinOp, ANY, "min", dtypes.highest, extreme_jvp, min_p)
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
            raise ShapeError(
                where,
                expected=f"at least one element along dimension {dim}",
                got=x.str_short(),
                mend="there is no extreme of nothing",
            )
        return ShapedArray(keep(x.shape, (dim,)), dtype)

    def roles(self, x: Any, *, dim: int, dtype: Any) -> Roles:
        names = dim_names(x.ndim)
        return Roles([names], [keep(names, (dim,))], whole=[names[dim]], resized={names[dim]: ()})

    def lower(self, ctx: Any, x: Any, *, dim: int, dtype: Any) -> Any:
        (x,), (aval,) = widened(ctx, [x], [ctx.avals_in[0].strengthened()])
        counts = aval.with_dtype(dtype)
        value, index = ShapedArray((), aval.dtype), ShapedArray((), dtype)
        start = dtypes.lowest(aval.dtype) if self.is_max else dtypes.highest(aval.dtype)
        initial = [ctx.constant(np.asarray(start).astype(aval.dtype), value), ctx.constant(0, index)]
        out = ctx.aval_out
        types = [ctx.type(out.with_dtype(aval.dtype)), ctx.type(out)]
        op = hlo.ReduceOp(types, [x, ctx.iota(counts, dim)], initial, [dim])
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


def tree_reduce(program: Jaxpr, xs: Sequence, dims: tuple) -> list:
    """Reduce at least one element with a scalar program by combining halves, in operations that have all rules."""
    whole = aval_of(xs[0]).shape
    kept = keep(range(len(whole)), dims)
    shape = tuple([whole[d] for d in kept])
    size = math.prod(whole[d] for d in dims)
    xs = [reshape_p(transpose_p(x, permutation=(*dims, *kept)), shape=(size, *shape)) for x in xs]
    zeros = (0,) * len(shape)
    while size > 1:
        half = size // 2
        left, right, odd = (
            [slice_p(x, starts=(start, *zeros), stops=(stop, *shape), strides=None) for x in xs]
            for start, stop in ((0, half), (half, 2 * half), (2 * half, size))
        )
        xs = combine(program, left, right)
        if size % 2:
            xs = [concatenate_p(x, o, dim=0) for x, o in zip(xs, odd, strict=True)]
        size = half + size % 2
    return [reshape_p(x, shape=shape) for x in xs]


def reduce_by_halves(program: Jaxpr, dims: tuple, xs: Sequence, inits: Sequence) -> list:
    """A reduction from initial values, in operations that have all rules."""
    shape = aval_of(xs[0]).shape
    kept = keep(shape, dims)
    if kept:
        inits = [broadcast_in_dim_p(v, shape=kept, dims=()) for v in inits]
    if any(shape[d] == 0 for d in dims):
        return list(inits)
    return combine(program, inits, tree_reduce(program, xs, dims))


def combine(program: Jaxpr, xs: Sequence, ys: Sequence) -> list:
    """Apply a scalar program of (x, y) to all elements of arrays of one shape."""
    shape = aval_of(xs[0]).shape
    if not shape:
        return run_program(program, *xs, *ys)
    size = math.prod(shape)
    flat = [reshape_p(v, shape=(size,)) for v in (*xs, *ys)]
    outs, mapped = vmap_flat(lambda *v: run_program(program, *v), flat, [0] * len(flat), Axis(size))
    return [reshape_p(to_dim(o, d, size, 0), shape=shape) for o, d in zip(outs, mapped, strict=True)]


class Reduce(Primitive, name="reduce", multiple=True):
    """Arrays reduced together over `dims` by an associative scalar program, from initial values.

    Operands are the arrays, then the initial values; the program takes the partial results of two pieces.
    """

    holds_program = True

    def by_pieces(self, *avals: Any, **_: Any) -> bool:
        return len(avals) == 2  # XLA would have devices join what they have by the program, which the CPU's cannot

    def result(self, *avals: Any, program: Jaxpr, dims: tuple) -> list:
        xs, inits = avals[: len(avals) // 2], avals[len(avals) // 2 :]
        where = "lax.reduce"
        check_dims(f"{where} dimensions", dims, xs[0].ndim)
        for x, init in zip(xs, inits, strict=True):
            if x.shape != xs[0].shape or init.shape:
                raise ShapeError(
                    where,
                    expected="operands of one shape and initial values of rank 0",
                    got=", ".join(a.str_short() for a in avals),
                    mend="broadcast the operands",
                )
            if x.dtype != init.dtype:
                raise DTypeError(
                    where,
                    expected=f"an initial value of dtype {x.dtype}",
                    got=init.str_short(),
                    mend="convert it with lax.convert_element_type",
                )
        axes = joint_varying(avals)
        return [x.with_shape(keep(x.shape, dims)).strengthened().with_varying(axes) for x in xs]

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
        n = len(primals) // 2
        return jvp_flat(lambda *v: reduce_by_halves(program, dims, v[:n], v[n:]), primals, tangents)

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
        # Each example starts from its own value, which joins last.
        inits = [add_dim(v, 0, size) if d is None else v for v, d in zip(operands[n:], mapped[n:], strict=True)]
        shape = aval_of(xs[0]).shape
        inits = [broadcast_in_dim_p(v, shape=keep(shape, dims), dims=(0,)) for v in inits]
        if any(shape[d] == 0 for d in dims):
            return inits, [0] * n
        return combine(program, inits, tree_reduce(program, xs, dims)), [0] * n


reduce_p = Reduce()


def monoid_of(program: Jaxpr) -> str | None:
    """The name of the primitive, if that is all a reducing program of two values does."""
    if len(program.eqns) != 1 or len(program.outvars) != 1 or len(program.invars) != 2:
        return None
    (eqn,) = program.eqns
    same = set(eqn.invars) == set(program.invars) and not any(type(v) is Literal for v in eqn.invars)
    return eqn.primitive.name if same and program.outvars[0] is eqn.outvars[0] else None


# For each reducing operation: the primitive that does it, and the neutral element.
_monoids = {
    "add": (reduce_sum_p, lambda dtype: 0), "mul": (reduce_prod_p, lambda dtype: 1),
    "max": (reduce_max_p, dtypes.lowest), "min": (reduce_min_p, dtypes.highest), "and": (reduce_and_p, all_bits),
    "or": (reduce_or_p, lambda dtype: 0), "xor": (reduce_xor_p, lambda dtype: 0),
}  # fmt: skip


def reduce(operands: Any, init_values: Any, computation: Callable, dimensions: Any, out_sharding: Any = None) -> Any:
    """Reduce arrays by any associative function.

    Args:
      operands: an array, or a tree of arrays of one shape.
      init_values: for each array a value of rank 0 that leaves the others as they are, in the same tree.
      computation: takes two trees of values of rank 0, and gives one.
      dimensions: the dimensions to reduce over.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      The reduced arrays, in the same tree.

    Raises:
      ShapeError: the operands differ in shape, or an initial value is not of rank 0.
      DTypeError: an initial value has another dtype than its array.
      TraceError: `computation` gives another tree than its arguments.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.reduce(jnp.arange(1, 5), 1, lax.mul, (0,)).tolist()
      24
    """
    flat, tree = tree_flatten(operands)
    flat_inits, init_tree = tree_flatten(init_values)
    if out_sharding is not None:
        opened = tree_unflatten(tree, [open_type(x) for x in flat])
        out = tree_flatten(reduce(opened, init_values, computation, dimensions))[0]
        return tree_unflatten(tree, [placed(y, out_sharding, "lax.reduce, out_sharding", mesh_of(flat)) for y in out])
    if tree != init_tree:
        raise TraceError(
            "lax.reduce init_values",
            expected=f"the tree of the operands, {tree}",
            got=init_tree,
            mend="give one initial value for each operand",
        )
    inits = [match(x, v)[1] for x, v in zip(flat, flat_inits, strict=True)]
    scalars = [ShapedArray((), aval_of(v).dtype) for v in inits]
    n = len(flat)

    def flat_computation(*pair: Any) -> list:
        out, out_tree = tree_flatten(computation(tree_unflatten(tree, pair[:n]), tree_unflatten(tree, pair[n:])))
        if out_tree != tree:
            raise TraceError(
                "lax.reduce computation",
                expected=f"a result like its arguments, {tree}",
                got=out_tree,
                mend="return one value for each operand",
            )
        return out

    program = stage(flat_computation, [*scalars, *scalars], "reduce")
    dims = static_dims(dimensions)
    name = monoid_of(program)
    if name in _monoids and _is_neutral(inits[0], _monoids[name][1]):
        return tree_unflatten(tree, [_monoids[name][0](flat[0], dims=dims)])
    return tree_unflatten(tree, reduce_p(*flat, *inits, program=program, dims=dims))


def _is_neutral(init: Any, neutral: Callable) -> bool:
    """Whether an initial value is a host scalar equal to the neutral element."""
    if not isinstance(init, bool | int | float | complex | np.generic):
        return False
    dtype = aval_of(init).dtype
    if dtype == np.bool_ and neutral(dtype) not in (True, False):
        return False
    return bool(np.asarray(init).astype(dtype) == np.asarray(neutral(dtype)).astype(dtype))


_REDUCTION = """{words} over some dimensions: any[*kept, *reduced] -> any[*kept].

Args:
  operand: array of {kinds}.
  axes: the dimensions to reduce over.
  out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

Returns:
  The reduced array, in the dtype of `operand`.

Raises:
  AxisError: an axis is out of bounds or given twice.
  DTypeError: `operand` is of another dtype.

Examples:
  >>> from phalanx import lax, numpy as jnp
  >>> lax.{name}(jnp.array([6, 5]), (0,)).item()
  {value}
"""


def _over_dims(primitive: Any, words: str, value: int) -> Any:
    """Make the public function of a reduction; `value` is what [6, 5] gives."""

    name = primitive.name

    def function(operand: Any, axes: Any, *, out_sharding: Any = None) -> Any:
        dims = static_dims(axes)
        if out_sharding is None:
            return primitive(operand, dims=dims)
        return laid_out(lambda x: primitive(x, dims=dims), (operand,), out_sharding, f"lax.{name}, out_sharding")

    return named(function, name, _REDUCTION.format(words=words, kinds=primitive.kinds.words, name=name, value=value))


reduce_prod = _over_dims(reduce_prod_p, "Product", 30)
reduce_max = _over_dims(reduce_max_p, "The largest element, of complex ones the lexicographically largest,", 6)
reduce_min = _over_dims(reduce_min_p, "The smallest element, of complex ones the lexicographically smallest,", 5)
reduce_and = _over_dims(reduce_and_p, "Bits set in all elements", 4)
reduce_or = _over_dims(reduce_or_p, "Bits set in any element", 7)
reduce_xor = _over_dims(reduce_xor_p, "Bits set in an odd number of elements", 3)


def argmax(operand: Any, axis: int, index_dtype: Any) -> Any:
    """The position of the first largest element along a dimension; a NaN counts as largest.

    Args:
      operand: boolean, integer or floating array.
      axis: the dimension; a negative one counts from the end.
      index_dtype: the integer dtype of the result.

    Returns:
      Positions, in an array without that dimension.

    Raises:
      AxisError: there is no such dimension.
      DTypeError: `index_dtype` is not an integer dtype.
      ShapeError: the dimension has size 0.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> int(lax.argmax(jnp.array([2, 3]), 0, "int32"))
      1
    """
    dim = one_dim("lax.argmax axis", axis, aval_of(operand).ndim)
    return argmax_p(operand, dim=dim, dtype=dtypes.canonicalize_dtype(index_dtype))


def argmin(operand: Any, axis: int, index_dtype: Any) -> Any:
    """The position of the first smallest element along a dimension; a NaN counts as smallest.

    Args:
      operand, axis, index_dtype: as in `argmax`, as are the result and the errors.

    Returns:
      The positions, of dtype `index_dtype` and without the dimension `axis`.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> int(lax.argmin(jnp.array([2, 3]), 0, "int32"))
      0
    """
    dim = one_dim("lax.argmin axis", axis, aval_of(operand).ndim)
    return argmin_p(operand, dim=dim, dtype=dtypes.canonicalize_dtype(index_dtype))
