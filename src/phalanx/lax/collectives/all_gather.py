"""`all_gather` and `psum_scatter`, which are each other's transposes, and `all_gather_invariant`.

The primitives take the members as one dimension of the operand or result; the tiled forms reshape around them.
"""

from __future__ import annotations

from typing import Any

from phalanx.core import LINEAR, ArgumentError, ShapedArray, ShardingRule, get_aval
from phalanx.lax.collectives.named_axes import (
    AxisGroups,
    AxisScope,
    Collective,
    check_divisible_by_members,
    divide_dim,
    drop_axis,
    linear_axis_index,
    merge_dims,
    num_members,
    num_members_around,
    resolve_even_axes,
)
from phalanx.lax.collectives.pvary import assert_reduced
from phalanx.lax.collectives.replica_groups import ReplicaGroups
from phalanx.lax.elementwise import NUMBER, check_dtype_kind
from phalanx.lax.indexing.dynamic_slice import dynamic_index_in_dim
from phalanx.lax.reductions.reduce_sum import reduce_sum_p
from phalanx.lax.shape import dim_names, drop_dims, insert_dim, move_dim, resolve_dims
from phalanx.runtime.lowering import LoweringContext
from phalanx.tree import tree_map
from phalanx.typing import ArrayLike, AxisName, PyTree


class AllGather(Collective, name="all_gather"):
    """The operands of all members, stacked along a new `dim`: any[*dims] -> any[*dims[:dim], members, *dims[dim:]]."""

    def abstract_eval(self, x: ShapedArray, *, sizes: tuple, groups: tuple | None, dim: int, **_: Any) -> ShapedArray:
        return x.with_shape(insert_dim(x.shape, dim, num_members(sizes, groups)))

    def sharding_rule(self, x: ShapedArray, *, axes: tuple, dim: int, **_: Any) -> ShardingRule:
        names = dim_names(x.ndim)
        return ShardingRule([names], [insert_dim(names, dim, "members")], whole=["members"], axes=dict.fromkeys(axes))

    def lower_collective(self, ctx: LoweringContext, x: ArrayLike, replicas: ReplicaGroups, *, dim: int) -> Any:
        return replicas.all_gather(ctx, x, dim)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: ArrayLike, **params: Any) -> tuple:
        return (psum_scatter_p(y_bar, **params),)

    def batch_other_axis(self, x: ArrayLike, b: int, *, dim: int, **params: Any) -> tuple:
        # The mapped dimension may shift the new dimension, and the new one the mapped dimension.
        new = dim + (b <= dim)
        return self(x, dim=new, **params), b + (new <= b)

    def batch_collective_axis(
        self, x: ArrayLike, b: int, at: int, *, axes: tuple, sizes: tuple, groups: None, tracked: frozenset, dim: int
    ) -> tuple:
        if len(axes) == 1:
            return move_dim(x, b, dim), None
        # Gather over the other axes, and insert the members of the mapped axis at their place in row-major order.
        before, _, after = num_members_around(at, sizes)
        others = self(move_dim(x, b, 0), dim=dim + 1, **drop_axis(at, axes, sizes, tracked))
        apart = move_dim(divide_dim(others, dim + 1, (before, after)), 0, dim + 1)
        return merge_dims(merge_dims(apart, dim), dim), None


class PSumScatter(Collective, name="psum_scatter"):
    """Each member's slice, along `dim`, of the sum over all: num[*dims[:dim], members, *dims[dim:]] -> num[*dims]."""

    combines = "sum"

    def abstract_eval(self, x: ShapedArray, *, sizes: tuple, groups: tuple | None, dim: int, **_: Any) -> ShapedArray:
        check_dtype_kind("lax.psum_scatter", x, NUMBER)
        return x.with_shape(drop_dims(x.shape, (dim,)))

    def sharding_rule(self, x: ShapedArray, *, axes: tuple, dim: int, **_: Any) -> ShardingRule:
        names = dim_names(x.ndim)
        return ShardingRule([names], [drop_dims(names, (dim,))], whole=[names[dim]], axes=dict.fromkeys(axes))

    def lower_collective(self, ctx: LoweringContext, x: ArrayLike, replicas: ReplicaGroups, *, dim: int) -> Any:
        return replicas.reduce_scatter(ctx, x, dim)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: ArrayLike, **params: Any) -> tuple:
        x_bar = all_gather_p(y_bar, **params)
        # The cotangent of an unreduced operand is the same on all devices.
        shared = x.aval.mat.reduced.intersection(params["axes"])
        return (assert_reduced(x_bar, shared) if shared else x_bar,)

    def batch_other_axis(self, x: ArrayLike, b: int, *, dim: int, **params: Any) -> tuple:
        gone = dim + (b <= dim)
        return self(x, dim=gone, **params), b - (gone < b)

    def batch_collective_axis(
        self, x: ArrayLike, b: int, at: int, *, axes: tuple, sizes: tuple, groups: None, tracked: frozenset, dim: int
    ) -> tuple:
        # The sum over the mapped members is local; only the other axes still need communication.
        total = reduce_sum_p(x, dims=(b,))
        if len(axes) == 1:
            return total, dim
        # The slices along `dim` are in row-major order of all axes: those of the mapped axis become the mapped
        # dimension of the result, and the other axes scatter what remains.
        mine = merge_dims(move_dim(divide_dim(total, dim, num_members_around(at, sizes)), dim + 1, 0), dim + 1)
        return self(mine, dim=dim + 1, **drop_axis(at, axes, sizes, tracked)), 0


class AllGatherInvariant(AllGather, name="all_gather_invariant"):
    """`all_gather` whose result and cotangent have the same value on all devices, by type, along tracked axes."""

    def varying(self, held: frozenset, *, tracked: frozenset, **_: Any) -> frozenset:
        return held - tracked

    def transpose(self, y_bar: Any, x: ArrayLike, *, axes: tuple, sizes: tuple, tracked: frozenset, dim: int, **_: Any):
        # The cotangent is the same on all devices, so each device takes the slice of its own operand. The
        # reduce-scatter of `all_gather` would count that cotangent once for each device.
        return (dynamic_index_in_dim(y_bar, linear_axis_index(axes, sizes, tracked), dim, keepdims=False),)


all_gather_p = AllGather()
all_gather_invariant_p = AllGatherInvariant()
psum_scatter_p = PSumScatter()


def all_gather(
    x: PyTree,
    axis_name: AxisName,
    *,
    axis_index_groups: AxisGroups = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> PyTree:
    """Gather the operands of all members of named axes.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several, in row-major order.
      axis_index_groups: lists of positions along the axis, of one size; each group gathers separately.
      axis: the dimension of the result along which they are stacked.
      tiled: concatenate them along an existing dimension instead.
      to: "varying" to type the result as varying between devices inside a `shard_map`, "invarying" to type it as
        shared, as `all_gather_invariant` does, or "reduced" to type it as shared with an unreduced cotangent, so that
        the derivative of the gather is one reduce-scatter.

    Returns:
      A pytree of the gathered arrays, the same for all members.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      AxisError: the result has no such dimension.
      ArgumentError: `to` has another value, or is "invarying" with groups, whose results differ.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(phalanx.numpy.arange(2)).tolist()
      [[0, 1], [0, 1]]
    """
    if to == "reduced" and axis_index_groups is None:
        gathered = all_gather(x, axis_name, axis=axis, tiled=tiled)
        axes = resolve_even_axes("lax.all_gather", axis_name, None).tracked
        return tree_map(lambda leaf: assert_reduced(leaf, axes), gathered)
    if to == "invarying" and axis_index_groups is None:
        return all_gather_invariant(x, axis_name, axis=axis, tiled=tiled)
    if to != "varying":
        raise ArgumentError(
            "lax.all_gather, to",
            expected="'varying', or without groups 'invarying' or 'reduced'",
            got=repr(to),
            fix="drop the argument `to`, or drop axis_index_groups",
        )
    scope = resolve_even_axes("lax.all_gather", axis_name, axis_index_groups)
    return tree_map(lambda leaf: _gather("lax.all_gather", all_gather_p, leaf, scope, axis, tiled), x)


def _gather(where: str, primitive: AllGather, x: ArrayLike, scope: AxisScope, axis: int, tiled: bool) -> Any:
    (dim,) = resolve_dims(f"{where} axis", (axis,), get_aval(x).ndim + (not tiled))
    y = primitive(x, **scope.params, dim=dim)
    return merge_dims(y, dim) if tiled else y


def all_gather_invariant(x: PyTree, axis_name: AxisName, *, axis: int = 0, tiled: bool = False) -> PyTree:
    """Gather the operands of all members of named axes, as a value typed as shared by all devices.

    Inside a `shard_map` with `check_vma`, the result of `all_gather` is typed as varying, and its transpose is a
    reduce-scatter. The result of this function is typed as shared: `out_specs` may leave out the axis, and the
    transpose is a slice.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several, in row-major order.
      axis: the dimension of the result along which they are stacked.
      tiled: concatenate them along an existing dimension instead.

    Returns:
      A pytree of the gathered arrays, the same for all members.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      AxisError: the result has no such dimension.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.all_gather_invariant(x, "i"), axis_name="i")(
      ...     phalanx.numpy.arange(2)
      ... ).tolist()
      [[0, 1], [0, 1]]
    """
    where = "lax.all_gather_invariant"
    scope = resolve_even_axes(where, axis_name)
    # Only mesh axes of a `shard_map` with `check_vma` are tracked; elsewhere both primitives mean the same.
    primitive = all_gather_invariant_p if len(scope.tracked) == len(scope.axes) else all_gather_p
    return tree_map(lambda leaf: _gather(where, primitive, leaf, scope, axis, tiled), x)


def psum_scatter(
    x: PyTree,
    axis_name: AxisName,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: AxisGroups = None,
    tiled: bool = False,
) -> PyTree:
    """Sum over the members of named axes and scatter the result: each member receives one slice.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several, in row-major order.
      scatter_dimension: the dimension along which the sum is divided.
      axis_index_groups: lists of positions along the axis, of one size; each group is summed separately.
      tiled: keep the dimension, divided by the number of members, instead of removing it.

    Returns:
      A pytree of the slices.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ShapeError: the size of the dimension does not match the number of members.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> scatter = phalanx.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")
      >>> scatter(phalanx.numpy.array([[1, 2], [10, 20]])).tolist()
      [11, 22]
    """
    where = "lax.psum_scatter"
    scope = resolve_even_axes(where, axis_name, axis_index_groups)

    def one(leaf: ArrayLike) -> Any:
        aval = get_aval(leaf)
        (dim,) = resolve_dims(f"{where} scatter_dimension", (scatter_dimension,), aval.ndim)
        check_divisible_by_members(where, aval, dim, scope, tiled)
        if tiled:
            leaf = divide_dim(leaf, dim, (scope.count, aval.shape[dim] // scope.count))
        return psum_scatter_p(leaf, **scope.params, dim=dim)

    return tree_map(one, x)
