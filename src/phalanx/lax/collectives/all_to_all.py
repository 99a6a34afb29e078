"""`all_to_all` and `pswapaxes`: exchange of slices between all members of named axes."""

from __future__ import annotations

from typing import Any

from phalanx.core import LINEAR, ShapedArray, ShardingRule, get_aval
from phalanx.lax.collectives.named_axes import (
    AxisGroups,
    Collective,
    check_divisible_by_members,
    divide_dim,
    drop_axis,
    merge_dims,
    num_members_around,
    resolve_even_axes,
)
from phalanx.lax.collectives.replica_groups import ReplicaGroups
from phalanx.lax.shape import dim_names, drop_dims, insert_dim, move_dim, resolve_dims
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
        # With the members in dimension 0, the exchange of a single axis is a transposition.
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
