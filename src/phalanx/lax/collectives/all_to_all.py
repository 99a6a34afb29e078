"""`all_to_all`, `pswapaxes` and `ragged_all_to_all`: exchange of slices between all members of named axes.

The ragged exchange has slices whose sizes are computed by the program. It is composed of a gather, an `all_to_all` of
slices padded to the length of the operand, and a scatter. It therefore has their derivatives and batching rules, and
runs on every platform.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import LINEAR, DTypeError, ShapedArray, ShapeError, ShardingRule, dtypes, get_aval
from phalanx.lax.collectives.named_axes import (
    AxisGroups,
    AxisScope,
    Collective,
    check_divisible_by_members,
    divide_dim,
    drop_axis,
    merge_dims,
    num_members_around,
    resolve_axis_names,
    resolve_even_axes,
)
from phalanx.lax.collectives.replica_groups import ReplicaGroups
from phalanx.lax.elementwise import add, lt, select
from phalanx.lax.indexing.gather import GatherDimensionNumbers, GatherScatterMode, gather
from phalanx.lax.indexing.scatter import ScatterDimensionNumbers, scatter
from phalanx.lax.shape import broadcast_in_dim, dim_names, drop_dims, insert_dim, move_dim, reshape, resolve_dims
from phalanx.lax.shape.iota_and_full import broadcasted_iota, full
from phalanx.runtime.lowering import LoweringContext
from phalanx.tree import tree_map
from phalanx.typing import ArrayLike, AxisName, PyTree


class AllToAll(Collective, name="all_to_all"):
    """Sends slice `j` along `split` to member `j`; slice `i` of the result along `concat` comes from member `i`.

    any[*dims[:split], members, *dims[split:]] -> any[*dims[:concat], members, *dims[concat:]]
    """

    def abstract_eval(self, x: ShapedArray, *, split: int, concat: int, **_: Any) -> ShapedArray:
        return x.with_shape(insert_dim(drop_dims(x.shape, (split,)), concat, x.shape[split]))

    def sharding_rule(self, x: ShapedArray, *, axes: tuple, split: int, concat: int, **_: Any) -> ShardingRule:
        names = dim_names(x.ndim)
        result = insert_dim(drop_dims(names, (split,)), concat, "members")
        return ShardingRule([names], [result], whole=[names[split], "members"], axes=dict.fromkeys(axes))

    def lower_collective(
        self, ctx: LoweringContext, x: ArrayLike, replicas: ReplicaGroups, *, split: int, concat: int
    ) -> Any:
        return replicas.all_to_all(ctx, x, split, concat)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: ArrayLike, *, split: int, concat: int, **params: Any) -> tuple:
        return (self(y_bar, split=concat, concat=split, **params),)

    def batch_other_axis(self, x: ArrayLike, b: int, *, split: int, concat: int, **params: Any) -> tuple:
        # Positions are adjusted for one change at a time: the mapped dimension is inserted, `split` removed, `concat`
        # inserted.
        split = split + (b <= split)
        b -= split < b
        concat = concat + (b <= concat)
        return self(x, split=split, concat=concat, **params), b + (concat <= b)

    def batch_collective_axis(
        self,
        x: ArrayLike,
        b: int,
        at: int,
        *,
        axes: tuple,
        sizes: tuple,
        groups: None,
        tracked: frozenset,
        split: int,
        concat: int,
    ) -> tuple:
        x = move_dim(x, b, 0)
        if len(axes) == 1:
            # With all members in one array the exchange is a transposition: [from, ..., to, ...] becomes [to, ...,
            # from, ...].
            return move_dim(move_dim(x, split + 1, 0), 1, concat + 1), 0
        before, size, after = num_members_around(at, sizes)
        # [to, from, *dims[:split], others, *dims[split:]]
        sent = merge_dims(move_dim(divide_dim(x, split + 1, (before, size, after)), split + 2, 0), split + 2)
        got = self(sent, split=split + 2, concat=concat + 2, **drop_axis(at, axes, sizes, tracked))
        apart = move_dim(divide_dim(got, concat + 2, (before, after)), 1, concat + 2)
        return merge_dims(merge_dims(apart, concat + 1), concat + 1), 0


all_to_all_p = AllToAll()


def all_to_all(
    x: PyTree,
    axis_name: AxisName,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: AxisGroups = None,
    tiled: bool = False,
) -> PyTree:
    """Send one slice to each member of named axes, and receive one slice from each.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several, in row-major order.
      split_axis: the dimension that is divided into slices.
      concat_axis: the dimension of the result along which the received slices are stacked.
      axis_index_groups: lists of positions along the axis, of one size; each group exchanges separately.
      tiled: keep both dimensions: divide `split_axis` by the number of members, and concatenate along `concat_axis`.

    Returns:
      A pytree of the received slices.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ShapeError: the size of `split_axis` does not match the number of members.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> swap = phalanx.vmap(lambda x: lax.all_to_all(x, "i", 0, 0), axis_name="i")
      >>> swap(phalanx.numpy.array([[1, 2], [3, 4]])).tolist()
      [[1, 3], [2, 4]]
    """
    where = "lax.all_to_all"
    scope = resolve_even_axes(where, axis_name, axis_index_groups)

    def one(leaf: ArrayLike) -> Any:
        aval = get_aval(leaf)
        (split,) = resolve_dims(f"{where} split_axis", (split_axis,), aval.ndim)
        (concat,) = resolve_dims(f"{where} concat_axis", (concat_axis,), aval.ndim)
        check_divisible_by_members(where, aval, split, scope, tiled)
        if not tiled:
            return all_to_all_p(leaf, **scope.params, split=split, concat=concat)
        leaf = divide_dim(leaf, split, (scope.count, aval.shape[split] // scope.count))
        return merge_dims(all_to_all_p(leaf, **scope.params, split=split, concat=concat), concat)

    return tree_map(one, x)


def pswapaxes(x: PyTree, axis_name: AxisName, axis: int, *, axis_index_groups: AxisGroups = None) -> PyTree:
    """Exchange a named axis with a dimension of the operand.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several.
      axis: the dimension, whose size is that of the named axis.
      axis_index_groups: lists of positions along the axis, of one size; each group exchanges separately.

    Returns:
      A pytree of the received slices.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ShapeError: the dimension and the axis have different sizes.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pswapaxes(x, "i", 0), axis_name="i")(phalanx.numpy.eye(2)).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    where = "lax.pswapaxes"
    scope = resolve_even_axes(where, axis_name, axis_index_groups)

    def one(leaf: ArrayLike) -> Any:
        aval = get_aval(leaf)
        (dim,) = resolve_dims(f"{where} axis", (axis,), aval.ndim)
        check_divisible_by_members(where, aval, dim, scope, tiled=None)
        return all_to_all_p(leaf, **scope.params, split=dim, concat=dim)

    return tree_map(one, x)


def ragged_all_to_all(
    operand: ArrayLike,
    output: ArrayLike,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: AxisName,
    axis_index_groups: AxisGroups = None,
) -> Any:
    """Send a slice of rows, of a size computed by the program, to each member of named axes.

    Args:
      operand: the rows to send, `any[rows, *dims]`.
      output: the array to receive into, `any[out_rows, *dims]`; rows that no member sends keep their values.
      input_offsets: the first row of the slice of `operand` for each member, `int[members]`.
      send_sizes: the number of rows to send to each member, `int[members]`.
      output_offsets: the first row, in each member's `output`, of the slice that this member sends, `int[members]`.
      recv_sizes: the number of rows to receive from each member, `int[members]`.
      axis_name: the name of an axis in scope, or several, in row-major order.
      axis_index_groups: lists of positions along the axis, of one size; each group exchanges separately.

    Returns:
      `output`, updated with the received rows. Rows beyond its end are dropped; rows beyond the end of the sender's
      operand are zero. Every slice is padded to the length of `operand`, so each member sends and stores `members`
      times that length.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ShapeError: the operands do not match, or offsets and sizes do not have one entry for each member.
      DTypeError: offsets or sizes are not integers of one dtype.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx import lax
      >>> def send(x, starts, sizes, places, arriving):
      ...     return lax.ragged_all_to_all(
      ...         x, jnp.zeros(3, int), starts, sizes, places, arriving, axis_name="i"
      ...     )
      >>> x, starts, sizes = (
      ...     jnp.array([[1, 2], [3, 4]]),
      ...     jnp.array([[0, 1], [0, 0]]),
      ...     jnp.array([[1, 1], [0, 2]]),
      ... )
      >>> phalanx.vmap(send, axis_name="i")(x, starts, sizes, jnp.array([[0, 0], [0, 1]]), sizes.T).tolist()
      [[1, 0, 0], [2, 3, 4]]
    """
    where = "lax.ragged_all_to_all"
    scope = resolve_axis_names(where, axis_name, axis_index_groups, even=True)
    counts = {
        "input_offsets": input_offsets,
        "send_sizes": send_sizes,
        "output_offsets": output_offsets,
        "recv_sizes": recv_sizes,
    }
    _check(where, operand, output, counts, scope)
    rows, *dims = get_aval(operand).shape
    shape = (scope.count, rows)
    window = tuple(range(2, 2 + len(dims)))
    # One slice of `rows` rows per member; padded entries index beyond the operand and are filled with zeros.
    sent = gather(
        operand,
        _column(_row_indices(input_offsets, send_sizes, shape, rows)),
        GatherDimensionNumbers(window, (0,), (0,)),
        (1, *dims),
        mode=GatherScatterMode.FILL_OR_DROP,
        fill_value=0,
    )
    groups = {"axis_index_groups": axis_index_groups}
    got = all_to_all(sent, axis_name, 0, 0, **groups)
    # Each receiver needs the offsets at which its senders want their slices written.
    starts = all_to_all(output_offsets, axis_name, 0, 0, **groups)
    return scatter(
        output,
        _column(_row_indices(starts, recv_sizes, shape, get_aval(output).shape[0])),
        got,
        ScatterDimensionNumbers(window, (0,), (0,)),
        mode=GatherScatterMode.FILL_OR_DROP,
    )


def _row_indices(starts: Any, sizes: Any, shape: tuple, beyond: int) -> Any:
    """The row indices of the slice for each member, padded with the index `beyond`: int[members, length]."""
    dtype = get_aval(starts).dtype
    number = broadcasted_iota(dtype, shape, 1)
    is_sent = lt(number, broadcast_in_dim(sizes, shape, (0,)))
    # Unsent rows get the index `beyond`, which a gather fills with zeros and a scatter drops.
    return select(is_sent, add(broadcast_in_dim(starts, shape, (0,)), number), full(shape, beyond, dtype))


def _column(x: ArrayLike) -> Any:
    return reshape(x, (*get_aval(x).shape, 1))


def _check(where: str, operand: ArrayLike, output: ArrayLike, counts: dict, scope: AxisScope) -> None:
    x, y = get_aval(operand), get_aval(output)
    if not x.ndim or x.shape[1:] != y.shape[1:] or x.dtype != y.dtype:
        raise ShapeError(
            where,
            expected="an operand and an output of at least one dimension that differ in the first one only",
            got=f"{x.str_short()} and {y.str_short()}",
            fix="give both the dtype of the operand, and equal shapes from the second dimension on",
        )
    for name, value in counts.items():
        aval = get_aval(value)
        if aval.shape != (scope.count,):
            raise ShapeError(
                f"{where} {name}",
                expected=f"one number for each of the {scope.count} members",
                got=aval.str_short(),
                fix=f"pass a vector of length {scope.count}",
            )
        if not dtypes.issubdtype(aval.dtype, np.integer) or aval.dtype != get_aval(counts["send_sizes"]).dtype:
            raise DTypeError(
                f"{where} {name}",
                expected="integers, of one dtype for all offsets and sizes",
                got=aval.str_short(),
                fix="convert them with .astype",
            )
