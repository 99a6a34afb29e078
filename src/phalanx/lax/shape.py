"""Changing shapes: `reshape`, `squeeze`, `expand_dims`, `rev`, `concatenate`, `stack`, `unstack`, `split`, `tile`.

`broadcast_in_dim` and `transpose` are in `broadcast`, `slice` and `pad` in `slicing`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, AxisError, ShapeError, ShardingError
from phalanx.core.explicit import with_axes
from phalanx.core.primitive import LINEAR, Primitive, Roles
from phalanx.core.tangent import instantiate, is_linear
from phalanx.core.trace import Tracer
from phalanx.engine.mlir import hlo
from phalanx.lax.broadcast import (
    add_dim,
    batch_of_kept,
    broadcast_in_dim_p,
    check_dims,
    dim_names,
    insert,
    keep,
    move_dim,
    reduce_sum_p,
    skip_batch,
    static_dims,
    static_shape,
    transpose_p,
)
from phalanx.lax.explicit import laid_out
from phalanx.lax.family import check_same_dtypes, match
from phalanx.lax.slicing import one_dim, slice_in_dim, slice_p
from phalanx.lax.tiny import narrowed, widened
from phalanx.runtime.array import Array
from phalanx.symbolic import static_size


def same_runs(old: Sequence, new: Sequence) -> list[tuple[int, int]]:
    """Pairs of dimensions that a reshape leaves as they are: (position in old, position in new).

    A dimension is left alone where everything before it holds equally many elements in both shapes.
    """
    pairs, i, j = [], 0, 0
    before_old, before_new = 1, 1
    while i < len(old) and j < len(new):
        if before_old == before_new and old[i] == new[j]:
            pairs.append((i, j))
            before_old, before_new = before_old * old[i], before_new * new[j]
            i, j = i + 1, j + 1
        elif isinstance(before_old, int) and isinstance(before_new, int) and before_old > before_new:
            before_new, j = before_new * new[j], j + 1
        elif isinstance(before_old, int) and isinstance(before_new, int) and before_old < before_new:
            before_old, i = before_old * old[i], i + 1
        elif old[i] == 1:
            i += 1
        elif new[j] == 1:
            j += 1
        else:
            before_old, before_new = before_old * old[i], before_new * new[j]
            i, j = i + 1, j + 1
    return pairs


def split_after_reshape(old: Sequence, new: Sequence, dims: Sequence[tuple], mesh: Any) -> list[tuple] | None:
    """The axes that split each dimension of a reshaped array, or None where the pieces do not tell.

    Dimensions that become others are taken in groups with equally many elements. In a group only leading dimensions
    may be split (but for those of size 1), and their axes go to the leading new dimensions, one filled up after the
    other.
    """
    out: list[tuple] = [()] * len(new)
    for sources, targets in _groups(old, new):
        places = [j for j in targets if new[j] != 1] or targets
        at, room, is_leading = 0, new[places[0]] if places else 1, True
        for i in sources:
            if dims[i] and not is_leading:
                return None
            is_leading = is_leading and (bool(dims[i]) or old[i] == 1)
            for axis in dims[i] if places else ():
                size = mesh.shape[axis]
                while room == 1 and size > 1 and at + 1 < len(places):
                    at, room = at + 1, new[places[at + 1]]
                if not isinstance(room, int) or room % size:
                    return None
                room //= size
                out[places[at]] += (axis,)
    return out


def _groups(old: Sequence, new: Sequence) -> Iterator[tuple[range, range]]:
    """The smallest runs of dimensions of both shapes that hold equally many elements."""
    i = j = 0
    while i < len(old) or j < len(new):
        start = i, j
        have, want = math.prod(old[i : i + 1]), math.prod(new[j : j + 1])
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while have != want and (i < len(old) or j < len(new)):
            if not (isinstance(have, int) and isinstance(want, int)):  # symbolic: all the rest is one group
                i, j, have, want = len(old), len(new), 1, 1
            elif (have < want and i < len(old)) or j == len(new):
                have, i = have * old[i], i + 1
            else:
                want, j = want * new[j], j + 1
        yield range(start[0], i), range(start[1], j)


class Reshape(Primitive, name="reshape"):
    """The elements of `x` in row-major order, in another shape."""

    says_shardings = True

    def result(self, x: Any, *, shape: tuple) -> Any:
        if any(isinstance(n, int) and n < 0 for n in shape):
            raise ShapeError(
                "lax.reshape new_sizes",
                expected="sizes of at least 0",
                got=shape,
                mend="compute the size in place of -1, or call phalanx.numpy.reshape, which does",
            )
        if math.prod(shape) != x.size:
            raise ShapeError(
                "lax.reshape new_sizes",
                expected=f"{x.size} elements, as {x.str_short()} has",
                got=f"{shape} with {math.prod(shape)}",
                mend="choose sizes with the same product",
            )
        if x.sharding is None:
            return x.with_shape(shape)
        mesh = x.sharding.mesh
        dims = split_after_reshape(x.shape, shape, x.sharding.spec.dims, mesh)
        if dims is None:
            raise ShardingError(
                "reshape",
                expected="pieces that stay pieces, or to be told how the result lies",
                got=f"{x.str_short()} to {shape}",
                mend="give lax.reshape out_sharding=, or reshard the operand with phalanx.reshard",
            )
        return with_axes(x.with_shape(shape), mesh, dims)

    def roles(self, x: Any, *, shape: tuple) -> Roles:
        old, new = [f"old{i}" for i in range(x.ndim)], [f"new{i}" for i in range(len(shape))]
        for i, j in same_runs(x.shape, shape):
            old[i] = new[j] = f"d{i}"
        return Roles([old], [new], whole=set(old) ^ set(new))

    def lower(self, ctx: Any, x: Any, *, shape: tuple) -> Any:
        return ctx.op(hlo.ReshapeOp, x)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, shape: tuple) -> tuple:
        return (self(y_bar, shape=x.shape),)

    def batch(self, x: Any, b: int, *, shape: tuple) -> tuple:
        size, inner = x.shape[b], keep(x.shape, (b,))
        # The mapped dimension may stay inside where the reshape does not touch what is around it.
        for j in range(len(shape) + 1):
            if inner[:b] == shape[:j] or (b == 0 and j == 0):
                return self(x, shape=insert(shape, j, size)), j
        return self(move_dim(x, b, 0), shape=(size, *shape)), 0


reshape_p = Reshape()


class Squeeze(Primitive, name="squeeze"):
    """`x` without the dimensions `dims`, whose size is 1."""

    def result(self, x: Any, *, dims: tuple) -> Any:
        check_dims("lax.squeeze dimensions", dims, x.ndim)
        if any(x.shape[d] != 1 for d in dims):
            raise ShapeError(
                "lax.squeeze",
                expected=f"a size of 1 in dimensions {dims}",
                got=x.str_short(),
                mend="squeeze other dimensions, or take an index with lax.index_in_dim",
            )
        return x.with_shape(keep(x.shape, dims))

    def roles(self, x: Any, *, dims: tuple) -> Roles:
        names = dim_names(x.ndim)
        return Roles([names], [keep(names, dims)], whole=[names[d] for d in dims])

    def lower(self, ctx: Any, x: Any, *, dims: tuple) -> Any:
        return ctx.op(hlo.ReshapeOp, x)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, dims: tuple) -> tuple:
        return (reshape_p(y_bar, shape=x.shape),)

    def batch(self, x: Any, b: int, *, dims: tuple) -> tuple:
        return self(x, dims=skip_batch(dims, b)), batch_of_kept(skip_batch(dims, b), b)


squeeze_p = Squeeze()


class Rev(Primitive, name="rev"):
    """`x` with the order of its elements reversed along `dims`."""

    def result(self, x: Any, *, dims: tuple) -> Any:
        check_dims("lax.rev dimensions", dims, x.ndim)
        return x

    def roles(self, x: Any, *, dims: tuple) -> Roles:
        names = dim_names(x.ndim)
        turned = [names[d] for d in dims]
        return Roles([names], [names], whole=turned, resized={n: (n,) for n in turned})

    def lower(self, ctx: Any, x: Any, *, dims: tuple) -> Any:
        return hlo.reverse(x, list(dims))

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, dims: tuple) -> tuple:
        return (self(y_bar, dims=dims),)

    def batch(self, x: Any, b: int, *, dims: tuple) -> tuple:
        return self(x, dims=skip_batch(dims, b)), b


rev_p = Rev()


def join_operands(operands: Sequence, mapped: Sequence, dim: int) -> tuple[list, int, int]:
    """Operands of a joining along `dim`, all with the mapped dimension in one place; that place, and the new `dim`."""
    b, size = next((d, x.shape[d]) for x, d in zip(operands, mapped, strict=True) if d is not None)
    aligned = [add_dim(x, b, size) if d is None else move_dim(x, d, b) for x, d in zip(operands, mapped, strict=True)]
    return aligned, b, dim + (dim >= b)


class Concatenate(Primitive, name="concatenate"):
    """Arrays joined along dimension `dim`."""

    def result(self, *xs: Any, dim: int) -> Any:
        where = "lax.concatenate"
        if not xs:
            raise ArgumentError(
                f"{where} operands", expected="at least one array", got="none", mend="pass the arrays to join"
            )
        check_same_dtypes(where, xs)
        first = xs[0]
        check_dims(f"{where} dimension", (dim,), first.ndim)
        rest = keep(first.shape, (dim,))
        for x in xs:
            if x.ndim != first.ndim or keep(x.shape, (dim,)) != rest:
                raise ShapeError(
                    where,
                    expected=f"operands that differ only in dimension {dim}",
                    got=", ".join(x.str_short() for x in xs),
                    mend="pad, slice or reshape them first",
                )
        total = sum(x.shape[dim] for x in xs)
        return ShapedArray(
            (*first.shape[:dim], total, *first.shape[dim + 1 :]), first.dtype, all(x.weak_type for x in xs)
        )

    def roles(self, *xs: Any, dim: int) -> Roles:
        names = dim_names(xs[0].ndim)
        operands = [[*names[:dim], f"part{i}", *names[dim + 1 :]] for i in range(len(xs))]
        parts = [f"part{i}" for i in range(len(xs))]
        return Roles(operands, [names], whole=[names[dim], *parts], resized=dict.fromkeys(parts, (names[dim],)))

    def lower(self, ctx: Any, *xs: Any, dim: int) -> Any:
        return _joined(ctx, xs, ctx.avals_in, dim)

    jvp = LINEAR

    def transpose(self, y_bar: Any, *xs: Any, dim: int) -> tuple:
        bars, start = [], 0
        for x in xs:
            stop = start + aval_of(x).shape[dim] if not is_linear(x) else start + x.shape[dim]
            if is_linear(x):
                starts = tuple(start if d == dim else 0 for d in range(y_bar.ndim))
                stops = tuple(stop if d == dim else n for d, n in enumerate(y_bar.shape))
                bars.append(slice_p(y_bar, starts=starts, stops=stops, strides=None))
            else:
                bars.append(None)
            start = stop
        return tuple(bars)

    def batch(self, *args: Any, dim: int) -> tuple:
        n = len(args) // 2
        operands, b, dim = join_operands(args[:n], args[n:], dim)
        return self(*operands, dim=dim), b


def _joined(ctx: Any, xs: Sequence[Any], avals: Sequence[ShapedArray], dim: int) -> Any:
    """Emit a concatenation."""
    wide, _ = widened(ctx, xs, avals)
    return narrowed(ctx, [hlo.concatenate(wide, dim)], ctx.avals_out)[0]


concatenate_p = Concatenate()


class Stack(Primitive, name="stack"):
    """Arrays of one shape joined along a new dimension `dim`."""

    def result(self, *xs: Any, dim: int) -> Any:
        where = "lax.stack"
        if not xs:
            raise ArgumentError(
                f"{where} operands", expected="at least one array", got="none", mend="pass the arrays to join"
            )
        check_same_dtypes(where, xs)
        first = xs[0]
        check_dims(f"{where} axis", (dim,), first.ndim + 1)
        if any(x.shape != first.shape for x in xs):
            raise ShapeError(
                where,
                expected="operands of equal shapes",
                got=", ".join(x.str_short() for x in xs),
                mend="broadcast them with lax.broadcast_in_dim",
            )
        return ShapedArray(insert(first.shape, dim, len(xs)), first.dtype, all(x.weak_type for x in xs))

    def roles(self, *xs: Any, dim: int) -> Roles:
        names = dim_names(xs[0].ndim)
        return Roles([names] * len(xs), [insert(names, dim, "new")], whole=["new"])

    def lower(self, ctx: Any, *xs: Any, dim: int) -> Any:
        avals = [a.with_shape(insert(a.shape, dim, 1)) for a in ctx.avals_in]
        parts = [ctx.reshape(x, a) for x, a in zip(xs, avals, strict=True)]
        return parts[0] if len(parts) == 1 else _joined(ctx, parts, avals, dim)

    jvp = LINEAR

    def transpose(self, y_bar: Any, *xs: Any, dim: int) -> tuple:
        bars = unstack_p(y_bar, dim=dim)
        return tuple(bar if is_linear(x) else None for bar, x in zip(bars, xs, strict=True))

    def batch(self, *args: Any, dim: int) -> tuple:
        n = len(args) // 2
        operands, b, _ = join_operands(args[:n], args[n:], dim)
        # The mapped dimension stays in front of the new one where it can.
        return (self(*operands, dim=dim + 1), b) if b <= dim else (self(*operands, dim=dim), b + 1)


stack_p = Stack()


class Unstack(Primitive, name="unstack", multiple=True):
    """The pieces of `x` at each position of dimension `dim`, without that dimension."""

    def result(self, x: Any, *, dim: int) -> list:
        check_dims("lax.unstack axis", (dim,), x.ndim)
        return [x.with_shape(keep(x.shape, (dim,)))] * x.shape[dim]

    def roles(self, x: Any, *, dim: int) -> Roles:
        names = dim_names(x.ndim)
        return Roles([names], [keep(names, (dim,))] * x.shape[dim], whole=[names[dim]])

    def lower(self, ctx: Any, x: Any, *, dim: int) -> list:
        aval = ctx.avals_in[0]
        starts, stops = [0] * aval.ndim, list(aval.shape)
        pieces = []
        for i, out in enumerate(ctx.avals_out):
            starts[dim], stops[dim] = i, i + 1
            piece = ctx.slice(x, starts, stops, [1] * aval.ndim, out.with_shape(insert(out.shape, dim, 1)))
            pieces.append(ctx.reshape(piece, out))
        return pieces

    jvp = LINEAR

    def transpose(self, y_bars: Any, x: Any, *, dim: int) -> tuple:
        return (stack_p(*map(instantiate, y_bars), dim=dim),)

    def batch(self, x: Any, b: int, *, dim: int) -> tuple:
        (inner,) = skip_batch((dim,), b)
        ys = self(x, dim=inner)
        return ys, [b - (inner < b)] * len(ys)


unstack_p = Unstack()


class Split(Primitive, name="split", multiple=True):
    """Consecutive pieces of `x` along dimension `dim`, of the given sizes."""

    def result(self, x: Any, *, sizes: tuple, dim: int) -> list:
        check_dims("lax.split axis", (dim,), x.ndim)
        if sum(sizes) != x.shape[dim] or any(isinstance(n, int) and n < 0 for n in sizes):
            raise ShapeError(
                "lax.split sizes",
                expected=f"sizes that add up to {x.shape[dim]}, dimension {dim} of {x.str_short()}",
                got=sizes,
                mend="give the size of every piece",
            )
        return [x.with_shape((*x.shape[:dim], n, *x.shape[dim + 1 :])) for n in sizes]

    def roles(self, x: Any, *, sizes: tuple, dim: int) -> Roles:
        names = dim_names(x.ndim)
        results = [[*names[:dim], f"part{i}", *names[dim + 1 :]] for i in range(len(sizes))]
        parts = tuple([f"part{i}" for i in range(len(sizes))])
        return Roles([names], results, whole=[names[dim], *parts], resized={names[dim]: parts})

    def lower(self, ctx: Any, x: Any, *, sizes: tuple, dim: int) -> list:
        aval = ctx.avals_in[0]
        starts, stops = [0] * aval.ndim, list(aval.shape)
        pieces, start = [], 0
        for n in sizes:
            starts[dim], stops[dim] = start, start + n
            out = aval.with_shape((*aval.shape[:dim], n, *aval.shape[dim + 1 :]))
            pieces.append(ctx.slice(x, starts, stops, [1] * aval.ndim, out))
            start += n
        return pieces

    jvp = LINEAR

    def transpose(self, y_bars: Any, x: Any, *, sizes: tuple, dim: int) -> tuple:
        return (concatenate_p(*map(instantiate, y_bars), dim=dim),)

    def batch(self, x: Any, b: int, *, sizes: tuple, dim: int) -> tuple:
        ys = self(x, sizes=sizes, dim=dim + (dim >= b))
        return ys, [b] * len(ys)


split_p = Split()


class Tile(Primitive, name="tile"):
    """`x` repeated `reps[i]` times along dimension `i`."""

    def result(self, x: Any, *, reps: tuple) -> Any:
        if len(reps) != x.ndim:
            raise ShapeError(
                "lax.tile reps",
                expected=f"a count for each of the {x.ndim} dimensions of {x.str_short()}",
                got=reps,
                mend="give one count for each dimension",
            )
        return x.with_shape(tuple([n * r for n, r in zip(x.shape, reps, strict=True)]))

    def roles(self, x: Any, *, reps: tuple) -> Roles:
        old = [f"d{i}" if r == 1 else f"old{i}" for i, r in enumerate(reps)]
        new = [f"d{i}" if r == 1 else f"new{i}" for i, r in enumerate(reps)]
        return Roles([old], [new], whole=set(old) ^ set(new))

    def lower(self, ctx: Any, x: Any, *, reps: tuple) -> Any:
        aval = ctx.avals_in[0]
        pairs = tuple(n for pair in zip(reps, aval.shape, strict=True) for n in pair)
        wide = ctx.broadcast(x, aval.with_shape(pairs), tuple(range(1, 2 * aval.ndim, 2)))
        return ctx.reshape(wide, ctx.aval_out)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, reps: tuple) -> tuple:
        pairs = tuple(n for pair in zip(reps, x.shape, strict=True) for n in pair)
        return (reduce_sum_p(reshape_p(y_bar, shape=pairs), dims=tuple(range(0, 2 * x.ndim, 2))),)

    def batch(self, x: Any, b: int, *, reps: tuple) -> tuple:
        return self(x, reps=insert(reps, b, 1)), b


tile_p = Tile()


def reshape(operand: Any, new_sizes: Any, dimensions: Any = None, *, out_sharding: Any = None) -> Any:
    """Give the elements of an array, in row-major order, another shape.

    Args:
      operand: the array.
      new_sizes: the new shape, with as many elements.
      dimensions: the order in which to read the dimensions of `operand`, where that is not the usual one.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of shape `new_sizes`.

    Raises:
      ShapeError: the numbers of elements differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.reshape(jnp.ones((2, 3)), (6,)).shape
      (6,)
    """
    if out_sharding is not None:
        change = functools.partial(reshape, new_sizes=new_sizes, dimensions=dimensions)
        return laid_out(change, (operand,), out_sharding, "lax.reshape, out_sharding")
    shape = static_shape(new_sizes)
    if dimensions is not None and (order := static_dims(dimensions)) != tuple(range(len(order))):
        operand = transpose_p(operand, permutation=order)
    if isinstance(operand, Array | Tracer) and operand.shape == shape:
        return operand
    return reshape_p(operand, shape=shape)


def squeeze(array: Any, dimensions: Any) -> Any:
    """Drop dimensions of size 1.

    Args:
      array: the array.
      dimensions: those to drop; negative ones count from the end.

    Returns:
      The array without them.

    Raises:
      ShapeError: one of them has another size.
      AxisError: one of them does not exist, or is given twice.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.squeeze(jnp.ones((1, 3)), (0,)).shape
      (3,)
    """
    ndim = aval_of(array).ndim
    dims = counted_from_front("lax.squeeze dimensions", dimensions, ndim)
    return squeeze_p(array, dims=dims) if dims else array


def counted_from_front(where: str, dims: Any, ndim: int) -> tuple:
    """Positions with negative ones resolved.

    Raises:
      AxisError: one is out of range.
    """
    dims = tuple(int(d) for d in dims)
    for d in dims:
        if not -ndim <= d < ndim:
            raise AxisError(
                where, expected=f"dimensions in [{-ndim}, {ndim})", got=d, mend="name a dimension that exists"
            )
    return tuple(d + ndim if d < 0 else d for d in dims)


def expand_dims(array: Any, dimensions: Any) -> Any:
    """Insert dimensions of size 1.

    Args:
      array: the array.
      dimensions: where they are in the result; negative ones count from its end.

    Returns:
      The array with them.

    Raises:
      AxisError: a position is out of range or given twice.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.expand_dims(jnp.ones(3), (0,)).shape
      (1, 3)
    """
    shape, dims = _expanded(aval_of(array).shape, tuple(dimensions))
    return broadcast_in_dim_p(array, shape=shape, dims=dims) if dimensions else array


@functools.lru_cache(maxsize=4096)
def _expanded(shape: tuple, dimensions: tuple) -> tuple[tuple, tuple]:
    """The shape with dimensions of size 1 at some positions of the result, and where the old ones went."""
    ndim = len(shape) + len(dimensions)
    new = counted_from_front("lax.expand_dims dimensions", dimensions, ndim)
    check_dims("lax.expand_dims dimensions", new, ndim)
    sizes = iter(shape)
    return tuple([1 if d in new else next(sizes) for d in range(ndim)]), keep(range(ndim), new)


def rev(operand: Any, dimensions: Any) -> Any:
    """Reverse the order of the elements along some dimensions.

    Args:
      operand: the array.
      dimensions: along which.

    Returns:
      An array of the same shape.

    Raises:
      AxisError: a dimension does not exist, or is given twice.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.rev(jnp.arange(3), (0,)).tolist()
      [2, 1, 0]
    """
    return rev_p(operand, dims=static_dims(dimensions))


def concatenate(operands: Any, dimension: int) -> Any:
    """Join arrays along a dimension.

    Args:
      operands: arrays of one dtype that differ at most in the size of that dimension.
      dimension: along which.

    Returns:
      The joined array.

    Raises:
      ShapeError: other sizes differ.
      DTypeError: the dtypes differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.concatenate([jnp.arange(2), jnp.arange(3)], 0).tolist()
      [0, 1, 0, 1, 2]
    """
    operands = tuple(operands)
    if len(operands) == 1 and isinstance(operands[0], Array | Tracer):
        check_dims("lax.concatenate dimension", (dimension,), operands[0].ndim)
        return operands[0]
    return concatenate_p(*operands, dim=int(dimension))


def stack(operands: Any, axis: int = 0) -> Any:
    """Join arrays of one shape along a new dimension.

    Args:
      operands: arrays of one shape and dtype.
      axis: where the new dimension is in the result; a negative one counts from its end.

    Returns:
      An array of one more dimension.

    Raises:
      ShapeError: the shapes differ.
      DTypeError: the dtypes differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.stack([jnp.arange(2), jnp.arange(2)]).tolist()
      [[0, 1], [0, 1]]
    """
    operands = match(*operands)
    if not operands:
        return stack_p(dim=0)
    (dim,) = counted_from_front("lax.stack axis", (axis,), aval_of(operands[0]).ndim + 1)
    return stack_p(*operands, dim=dim)


def unstack(x: Any, axis: int = 0) -> tuple:
    """The pieces of an array at each position of a dimension.

    Args:
      x: the array.
      axis: the dimension to take apart; a negative one counts from the end.

    Returns:
      A tuple of arrays without that dimension.

    Raises:
      AxisError: there is no such dimension.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> [int(y) for y in lax.unstack(jnp.arange(3))]
      [0, 1, 2]
    """
    (dim,) = counted_from_front("lax.unstack axis", (axis,), aval_of(x).ndim)
    return tuple(unstack_p(x, dim=dim))


def split(operand: Any, sizes: Any, axis: int = 0) -> list:
    """Cut an array into consecutive pieces along a dimension.

    Args:
      operand: the array.
      sizes: the sizes of the pieces, which add up to that of the dimension.
      axis: the dimension; a negative one counts from the end.

    Returns:
      A list of arrays.

    Raises:
      ShapeError: the sizes do not add up.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> [y.tolist() for y in lax.split(jnp.arange(3), (1, 2))]
      [[0], [1, 2]]
    """
    (dim,) = counted_from_front("lax.split axis", (axis,), aval_of(operand).ndim)
    return split_p(operand, sizes=static_shape(sizes), dim=dim)


def tile(operand: Any, reps: Any) -> Any:
    """Repeat an array as a whole along each dimension.

    Args:
      operand: the array.
      reps: how often, for each dimension.

    Returns:
      An array of shape `operand.shape[i] * reps[i]`.

    Raises:
      ShapeError: there is not one count for each dimension.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.tile(jnp.arange(2), (2,)).tolist()
      [0, 1, 0, 1]
    """
    return tile_p(operand, reps=static_shape(reps))


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """Merge consecutive dimensions into one.

    Args:
      operand: the array.
      start_dimension: the first of them; a negative one counts from the end.
      stop_dimension: the one after the last; the rank when left out.

    Returns:
      The array with these dimensions as one.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.collapse(jnp.ones((2, 3, 4)), 0, 2).shape
      (6, 4)
    """
    shape = aval_of(operand).shape
    start, stop, _ = slice(start_dimension, stop_dimension).indices(len(shape))
    if stop < start:
        raise AxisError(
            "lax.collapse",
            expected="start_dimension up to stop_dimension",
            got=(start_dimension, stop_dimension),
            mend="give the first dimension first",
        )
    return reshape(operand, (*shape[:start], math.prod(shape[start:stop]), *shape[stop:]))


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """One position of an array along a dimension, known while tracing.

    Args:
      operand: the array.
      index: the position; a negative one counts from the end.
      axis: the dimension; a negative one counts from the end.
      keepdims: whether the dimension stays, with size 1.

    Returns:
      The piece at that position.

    Raises:
      ShapeError: the position is outside the array.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> int(lax.index_in_dim(jnp.arange(5), -1, keepdims=False))
      4
    """
    shape = aval_of(operand).shape
    dim = one_dim("lax.index_in_dim axis", axis, len(shape))
    n, index = shape[dim], static_size(index)
    if isinstance(n, int) and isinstance(index, int) and not -n <= index < n:
        raise ShapeError(
            "lax.index_in_dim index", expected=f"an index in [{-n}, {n})", got=index, mend="stay inside the array"
        )
    index = index + n if isinstance(index, int) and index < 0 else index
    piece = slice_in_dim(operand, index, index + 1, axis=dim)
    return piece if keepdims else squeeze_p(piece, dims=(dim,))
