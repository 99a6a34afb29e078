"""Shape changes that keep the elements in order: `reshape`, `squeeze`, `expand_dims`, `collapse`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from phalanx.core import (
    LINEAR,
    AxisError,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingError,
    ShardingRule,
    Tracer,
    get_aval,
)
from phalanx.engine import hlo, ir, memoize
from phalanx.lax.shape.broadcast import broadcast_in_dim_p
from phalanx.lax.shape.dims import (
    batch_dim_after_removal,
    canonicalize_dims,
    canonicalize_shape,
    check_dims,
    dim_names,
    drop_dims,
    insert_dim,
    resolve_dims,
    shift_past_batch,
)
from phalanx.lax.shape.transpose import move_dim, transpose_p
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.runtime import Array, LoweringContext
from phalanx.sharding import AbstractMesh, PartitionSpec
from phalanx.symbolic import is_symbolic
from phalanx.typing import ArrayLike, Shape, ShardingLike


def find_unchanged_dims(old: Sequence, new: Sequence) -> list[tuple[int, int]]:
    """Find the dimensions that a reshape does not change: pairs of positions in the old and the new shape.

    A dimension is unchanged if its size is equal, and the dimensions before it have equally many elements in both.
    """
    pairs, i, j = [], 0, 0
    before_old, before_new = 1, 1
    while i < len(old) and j < len(new):
        # Symbolic sizes are compared for equality only; products are ordered only if they are integers.
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


def shard_after_reshape(old: Sequence, new: Sequence, dims: Sequence[tuple], mesh: AbstractMesh) -> list[tuple] | None:
    """Infer the mesh axes over which each dimension of a reshaped array is sharded; None if shards do not stay shards.

    The old and the new dimensions are partitioned into groups with equally many elements. Within a group, only leading
    dimensions may be sharded (apart from dimensions of size 1). Their axes are assigned to the leading new dimensions,
    as many to each dimension as divide its size. A dimension that no axes divide keeps them if it remains one, or the
    major part of one.
    """
    # `remaining` is the size of the current new dimension divided by the axes that are already assigned to it.
    out: list[tuple] = [()] * len(new)
    for sources, targets in group_reshaped_dims(old, new):
        # Axes are assigned to dimensions of size 1 only if there is no other.
        places = [j for j in targets if new[j] != 1] or targets
        at, remaining, is_leading = 0, new[places[0]] if places else 1, True
        for i in sources:
            if dims[i] and not is_leading:
                return None
            is_leading = is_leading and (bool(dims[i]) or old[i] == 1)
            if places and (rest := _rest_of_whole(remaining, old[i], mesh.num_parts(dims[i]))) is not None:
                out[places[at]] += tuple(dims[i])
                remaining = rest
                continue
            for axis in dims[i] if places else ():
                size = mesh.shape[axis]
                while remaining == 1 and size > 1 and at + 1 < len(places):
                    at, remaining = at + 1, new[places[at + 1]]
                if is_symbolic(rest := remaining % size) or rest:
                    return None
                remaining //= size
                out[places[at]] += (axis,)
    return out


def _rest_of_whole(size: Any, old: Any, parts: int) -> Any:
    """The number by which a dimension of `old` elements was multiplied to `size`; None if axes are to divide `size`."""
    if size == old:
        return 1
    is_merged = isinstance(size, int) and isinstance(old, int) and old > 0 and size % old == 0
    return size // old if is_merged and size % parts else None


def group_reshaped_dims(old: Sequence, new: Sequence) -> Iterator[tuple[range, range]]:
    """Partition the dimensions of two shapes into the smallest groups with equally many elements."""
    i = j = 0
    while i < len(old) or j < len(new):
        start = i, j
        have, want = math.prod(old[i : i + 1]), math.prod(new[j : j + 1])
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while have != want and (i < len(old) or j < len(new)):
            # Products of symbolic sizes cannot be ordered: all remaining dimensions form one group.
            if not (isinstance(have, int) and isinstance(want, int)):  # symbolic: all the rest is one group
                i, j, have, want = len(old), len(new), 1, 1
            elif (have < want and i < len(old)) or j == len(new):
                have, i = have * old[i], i + 1
            else:
                want, j = want * new[j], j + 1
        yield range(start[0], i), range(start[1], j)


class Reshape(Primitive, name="reshape"):
    """Rearrange the elements of `x` in row-major order to another shape."""

    typed_sharding_rule = True

    def abstract_eval(self, x: ShapedArray, *, shape: tuple) -> Any:
        if any(isinstance(n, int) and n < 0 for n in shape):
            raise ShapeError(
                "lax.reshape new_sizes",
                expected="sizes of at least 0",
                got=shape,
                fix="compute the size instead of -1, or call phalanx.numpy.reshape, which infers it",
            )
        if math.prod(shape) != x.size:
            raise ShapeError(
                "lax.reshape new_sizes",
                expected=f"{x.size} elements, as in {x.str_short()}",
                got=f"{shape} with {math.prod(shape)}",
                fix=f"pass sizes whose product is {x.size}",
            )
        if x.type_sharding is None:
            return x.with_shape(shape)
        mesh = x.type_sharding.mesh
        dims = shard_after_reshape(x.shape, shape, x.type_sharding.spec.dims, mesh)
        if dims is None:
            raise ShardingError(
                "reshape",
                expected="a reshape that keeps each shard on its device, or out_sharding",
                got=f"{x.str_short()} to {shape}",
                fix="pass out_sharding to lax.reshape, or reshard the operand with phalanx.reshard",
            )
        spec = PartitionSpec.of_dims(dims, **x.type_sharding.spec.reductions)
        return x.with_shape(shape).update(sharding=x.type_sharding.with_spec(spec))

    def sharding_rule(self, x: ShapedArray, *, shape: tuple) -> ShardingRule:
        # Unchanged dimensions are the same factor on both sides; all others need the whole dimension.
        old, new = [f"old{i}" for i in range(x.ndim)], [f"new{i}" for i in range(len(shape))]
        for i, j in find_unchanged_dims(x.shape, shape):
            old[i] = new[j] = f"d{i}"
        return ShardingRule([old], [new], whole=set(old) ^ set(new))

    def lower(self, ctx: LoweringContext, x: ir.Value, *, shape: tuple) -> Any:
        return ctx.op(hlo.ReshapeOp, x)

    jvp = LINEAR

    def transpose(self, y_bar: Array, x: Array, *, shape: tuple) -> tuple:
        held, wanted = get_aval(y_bar).type_sharding, get_aval(x).type_sharding
        # The axes of a dimension that they do not divide cannot be inferred from the result it was merged into.
        if held is not None and wanted is not None:
            dims = wanted.spec.dims
            if shard_after_reshape(shape, x.shape, held.spec.dims, held.mesh) != list(dims):
                spec = PartitionSpec.of_dims(dims, **held.spec.reductions)
                return (reshape(y_bar, x.shape, out_sharding=held.with_spec(spec)),)
        return (self(y_bar, shape=x.shape),)

    def batch(self, x: Array, b: int, *, shape: tuple) -> tuple:
        size, inner = x.shape[b], drop_dims(x.shape, (b,))
        # The mapped dimension keeps its place where the reshape does not change the dimensions before it.
        # The mapped dimension can be inserted at position j if the first j sizes are unchanged by the reshape.
        for j in range(len(shape) + 1):
            if inner[:b] == shape[:j] or (b == 0 and j == 0):
                return self(x, shape=insert_dim(shape, j, size)), j
        return self(move_dim(x, b, 0), shape=(size, *shape)), 0


reshape_p = Reshape()


class Squeeze(Primitive, name="squeeze"):
    """Remove the dimensions `dims` of size 1."""

    def abstract_eval(self, x: ShapedArray, *, dims: tuple) -> Any:
        check_dims("lax.squeeze dimensions", dims, x.ndim)
        if any(x.shape[d] != 1 for d in dims):
            raise ShapeError(
                "lax.squeeze",
                expected=f"a size of 1 in dimensions {dims}",
                got=x.str_short(),
                fix="squeeze dimensions of size 1, or select an index with lax.index_in_dim",
            )
        return x.with_shape(drop_dims(x.shape, dims))

    def sharding_rule(self, x: ShapedArray, *, dims: tuple) -> ShardingRule:
        names = dim_names(x.ndim)
        return ShardingRule([names], [drop_dims(names, dims)], whole=[names[d] for d in dims])

    def lower(self, ctx: LoweringContext, x: ir.Value, *, dims: tuple) -> Any:
        return ctx.op(hlo.ReshapeOp, x)

    jvp = LINEAR

    def transpose(self, y_bar: Array, x: Array, *, dims: tuple) -> tuple:
        return (reshape_p(y_bar, shape=x.shape),)

    def batch(self, x: Array, b: int, *, dims: tuple) -> tuple:
        return self(x, dims=shift_past_batch(dims, b)), batch_dim_after_removal(shift_past_batch(dims, b), b)


squeeze_p = Squeeze()


def reshape(
    operand: ArrayLike,
    new_sizes: Shape,
    dimensions: Sequence[int] | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Any:
    """Change the shape of an array, with its elements in row-major order.

    Args:
      operand: the array.
      new_sizes: the new shape, with the same number of elements.
      dimensions: a permutation of the dimensions of `operand` to apply first.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

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
        return call_with_out_sharding(change, (operand,), out_sharding, "lax.reshape, out_sharding")
    shape = canonicalize_shape(new_sizes)
    if dimensions is not None and (order := canonicalize_dims(dimensions)) != tuple(range(len(order))):
        operand = transpose_p(operand, permutation=order)
    if isinstance(operand, Array | Tracer) and operand.shape == shape:
        return operand
    return reshape_p(operand, shape=shape)


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Any:
    """Remove dimensions of size 1.

    Args:
      array: the array.
      dimensions: the dimensions to remove; negative ones count from the end.

    Returns:
      The array without these dimensions.

    Raises:
      ShapeError: a dimension has another size.
      AxisError: a dimension is out of bounds or repeated.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.squeeze(jnp.ones((1, 3)), (0,)).shape
      (3,)
    """
    dims = resolve_dims("lax.squeeze dimensions", dimensions, get_aval(array).ndim)
    return squeeze_p(array, dims=dims) if dims or not hasattr(array, "aval") else array


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Any:
    """Insert dimensions of size 1.

    Args:
      array: the array.
      dimensions: their positions in the result; negative ones count from its end.

    Returns:
      The array with these dimensions.

    Raises:
      AxisError: a position is out of bounds or repeated.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.expand_dims(jnp.ones(3), (0,)).shape
      (1, 3)
    """
    shape, dims = _expand_shape(get_aval(array).shape, tuple(dimensions))
    return broadcast_in_dim_p(array, shape=shape, dims=dims) if dimensions else array


@memoize("lax.expanded_dims", 4096)
def _expand_shape(shape: tuple, dimensions: tuple) -> tuple[tuple, tuple]:
    """Return the shape with dimensions of size 1 inserted, and the positions of the old dimensions in it."""
    ndim = len(shape) + len(dimensions)
    new = resolve_dims("lax.expand_dims dimensions", dimensions, ndim)
    check_dims("lax.expand_dims dimensions", new, ndim)
    sizes = iter(shape)
    return tuple([1 if d in new else next(sizes) for d in range(ndim)]), drop_dims(range(ndim), new)


def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """Merge consecutive dimensions into one.

    Args:
      operand: the array.
      start_dimension: the first dimension; a negative one counts from the end.
      stop_dimension: the dimension after the last; the rank if None.

    Returns:
      The array with the dimensions merged.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.collapse(jnp.ones((2, 3, 4)), 0, 2).shape
      (6, 4)
    """
    shape = get_aval(operand).shape
    start, stop, _ = slice(start_dimension, stop_dimension).indices(len(shape))
    if stop < start:
        raise AxisError(
            "lax.collapse",
            expected="start_dimension up to stop_dimension",
            got=(start_dimension, stop_dimension),
            fix="pass start_dimension <= stop_dimension",
        )
    return reshape(operand, (*shape[:start], math.prod(shape[start:stop]), *shape[stop:]))
