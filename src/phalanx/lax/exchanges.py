"""Collective exchanges: data moved among the members of named axes without being combined, and the summing scatter.

`all_gather` and `psum_scatter` are each other's transposes; `all_to_all` and `ppermute` are transposed by going back.
The primitives take the members as one dimension of their own; the tiled forms are reshapes around them, which cost
nothing. Builds on `named_axes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, RuleError, ShapeError
from phalanx.core.primitive import LINEAR, Roles
from phalanx.lax.broadcast import dim_names, insert, keep, move_dim, reduce_sum_p
from phalanx.lax.dynamic_slice import dynamic_index_in_dim
from phalanx.lax.family import NUMBER, check_kind
from phalanx.lax.named_axes import Collective, Scope, divide, member_count, merge, position, rows, scope_of, without
from phalanx.lax.replicas import Replicas
from phalanx.lax.shape import counted_from_front
from phalanx.symbolic import is_constant_shape
from phalanx.transforms.batching import Axis
from phalanx.tree import tree_map


def around(at: int, sizes: tuple) -> tuple:
    """The number of members before, along and after the axis `at`, where all axes stand as one dimension."""
    return math.prod(sizes[:at]), sizes[at], math.prod(sizes[at + 1 :])


class AllGather(Collective, name="all_gather"):
    """The operands of all members, as a new dimension `dim`: any[*dims] -> any[*dims[:dim], members, *dims[dim:]]."""

    def result(self, x: Any, *, sizes: tuple, groups: tuple | None, dim: int, **_: Any) -> ShapedArray:
        return x.with_shape(insert(x.shape, dim, member_count(sizes, groups)))

    def roles(self, x: Any, *, axes: tuple, dim: int, **_: Any) -> Roles:
        names = dim_names(x.ndim)
        return Roles([names], [insert(names, dim, "members")], whole=["members"], axes=dict.fromkeys(axes))

    def exchange(self, ctx: Any, x: Any, replicas: Replicas, *, dim: int) -> Any:
        return replicas.all_gather(ctx, x, dim)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, **params: Any) -> tuple:
        return (psum_scatter_p(y_bar, **params),)

    def beside(self, x: Any, b: int, *, dim: int, **params: Any) -> tuple:
        new = dim + (b <= dim)
        return self(x, dim=new, **params), b + (new <= b)

    def within(
        self, x: Any, b: int, at: int, *, axes: tuple, sizes: tuple, groups: None, tracked: frozenset, dim: int
    ) -> tuple:
        if len(axes) == 1:
            return move_dim(x, b, dim), None
        before, _, after = around(at, sizes)
        others = self(move_dim(x, b, 0), dim=dim + 1, **without(at, axes, sizes, tracked))
        apart = move_dim(divide(others, dim + 1, (before, after)), 0, dim + 1)
        return merge(merge(apart, dim), dim), None


class PSumScatter(Collective, name="psum_scatter"):
    """Each member's slice, along `dim`, of the sum over all: num[*dims[:dim], members, *dims[dim:]] -> num[*dims]."""

    def result(self, x: Any, *, sizes: tuple, groups: tuple | None, dim: int, **_: Any) -> ShapedArray:
        check_kind("lax.psum_scatter", x, NUMBER)
        return x.with_shape(keep(x.shape, (dim,)))

    def roles(self, x: Any, *, axes: tuple, dim: int, **_: Any) -> Roles:
        names = dim_names(x.ndim)
        return Roles([names], [keep(names, (dim,))], whole=[names[dim]], axes=dict.fromkeys(axes))

    def exchange(self, ctx: Any, x: Any, replicas: Replicas, *, dim: int) -> Any:
        return replicas.reduce_scatter(ctx, x, dim)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, **params: Any) -> tuple:
        return (all_gather_p(y_bar, **params),)

    def beside(self, x: Any, b: int, *, dim: int, **params: Any) -> tuple:
        gone = dim + (b <= dim)
        return self(x, dim=gone, **params), b - (gone < b)

    def within(
        self, x: Any, b: int, at: int, *, axes: tuple, sizes: tuple, groups: None, tracked: frozenset, dim: int
    ) -> tuple:
        total = reduce_sum_p(x, dims=(b,))
        if len(axes) == 1:
            return total, dim
        mine = merge(move_dim(divide(total, dim, around(at, sizes)), dim + 1, 0), dim + 1)
        return self(mine, dim=dim + 1, **without(at, axes, sizes, tracked)), 0


class AllToAll(Collective, name="all_to_all"):
    """Slice `j` along `split` goes to member `j`; what comes from member `i` is slice `i` along `concat` of the result.

    any[*dims[:split], members, *dims[split:]] -> any[*dims[:concat], members, *dims[concat:]]
    """

    def result(self, x: Any, *, split: int, concat: int, **_: Any) -> ShapedArray:
        return x.with_shape(insert(keep(x.shape, (split,)), concat, x.shape[split]))

    def roles(self, x: Any, *, axes: tuple, split: int, concat: int, **_: Any) -> Roles:
        names = dim_names(x.ndim)
        result = insert(keep(names, (split,)), concat, "members")
        return Roles([names], [result], whole=[names[split], "members"], axes=dict.fromkeys(axes))

    def exchange(self, ctx: Any, x: Any, replicas: Replicas, *, split: int, concat: int) -> Any:
        return replicas.all_to_all(ctx, x, split, concat)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, split: int, concat: int, **params: Any) -> tuple:
        return (self(y_bar, split=concat, concat=split, **params),)

    def beside(self, x: Any, b: int, *, split: int, concat: int, **params: Any) -> tuple:
        split = split + (b <= split)
        b -= split < b
        concat = concat + (b <= concat)
        return self(x, split=split, concat=concat, **params), b + (concat <= b)

    def within(
        self,
        x: Any,
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
            return move_dim(move_dim(x, split + 1, 0), 1, concat + 1), 0
        before, size, after = around(at, sizes)
        # [to, from, *dims[:split], others, *dims[split:]]
        sent = merge(move_dim(divide(x, split + 1, (before, size, after)), split + 2, 0), split + 2)
        got = self(sent, split=split + 2, concat=concat + 2, **without(at, axes, sizes, tracked))
        apart = move_dim(divide(got, concat + 2, (before, after)), 1, concat + 2)
        return merge(merge(apart, concat + 1), concat + 1), 0


class PPermute(Collective, name="ppermute"):
    """What the member that `perm` pairs with this one sends: any[*dims] -> any[*dims]; zeros where none does."""

    def result(self, x: Any, **_: Any) -> ShapedArray:
        return x

    def roles(self, x: Any, *, axes: tuple, **_: Any) -> Roles:
        return Roles([dim_names(x.ndim)], [dim_names(x.ndim)], axes=dict.fromkeys(axes))

    def exchange(self, ctx: Any, x: Any, replicas: Replicas, *, perm: tuple) -> Any:
        return replicas.permute(ctx, x, perm)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, perm: tuple, **params: Any) -> tuple:
        return (self(y_bar, perm=tuple((there, here) for here, there in perm), **params),)

    def same(self, x: Any, axis: Axis, at: int, *, axes: tuple, perm: tuple, **params: Any) -> tuple:
        if len(axes) == 1 and len(perm) == axis.size:
            return x, None
        return super().same(x, axis, at, axes=axes, perm=perm, **params)

    def within(
        self, x: Any, b: int, at: int, *, axes: tuple, sizes: tuple, groups: None, tracked: frozenset, perm: tuple
    ) -> tuple:
        if not is_constant_shape(sizes):
            raise RuleError(
                "lax.ppermute under vmap", expected="an axis of a known size, as the permutation lists its members",
                got=f"size {math.prod(sizes)}", mend="index the array with a rolled jnp.arange",
            )  # fmt: skip
        table = np.full(math.prod(sizes), -1, np.int32)
        for source, target in perm:
            table[target] = source
        x = move_dim(x, b, 0)
        if len(axes) == 1:
            return rows(x, table), 0
        # A pair may change every coordinate, so all members are gathered and each takes what it is sent.
        before, size, after = around(at, sizes)
        others = without(at, axes, sizes, tracked)
        everyone = divide(all_gather_p(x, dim=1, **others), 1, (before, after))
        sent = rows(merge(merge(move_dim(everyone, 0, 1), 0), 0), table)
        mine = merge(move_dim(divide(sent, 0, (before, size, after)), 1, 0), 1)
        return dynamic_index_in_dim(mine, position(others["axes"], others["sizes"], tracked), 1, keepdims=False), 0


class AllGatherInvariant(AllGather, name="all_gather_invariant"):
    """`all_gather` whose result is one value that all devices share along tracked axes, and so is its cotangent."""

    def varying(self, held: frozenset, *, tracked: frozenset, **_: Any) -> frozenset:
        return held - tracked

    def transpose(self, y_bar: Any, x: Any, *, axes: tuple, sizes: tuple, tracked: frozenset, dim: int, **_: Any):
        place = position(axes, sizes, tracked)
        return (dynamic_index_in_dim(y_bar, place, dim, keepdims=False),)


all_gather_p = AllGather()
all_gather_invariant_p = AllGatherInvariant()
psum_scatter_p = PSumScatter()
all_to_all_p = AllToAll()
ppermute_p = PPermute()


def _scope(where: str, axis_name: Any, groups: Any = None) -> Scope:
    scope = scope_of(where, axis_name, groups, even=True)
    if not scope.axes:
        raise ArgumentError(
            f"{where} axis_name", expected="at least one name", got=repr(axis_name), mend="name the axis to run over"
        )
    return scope


def _check_members(where: str, x: ShapedArray, dim: int, scope: Scope, tiled: bool | None) -> None:
    """Refuse a dimension that cannot be dealt out to the members; `tiled` is None where users cannot ask for it."""
    size, count = x.shape[dim], scope.count
    if size % count == 0 if tiled else size == count:
        return
    raise ShapeError(
        where,
        expected=f"dimension {dim} of a size {'divisible by' if tiled else 'equal to'} the number of members, {count}",
        got=x.str_short(),
        mend=f"pad or reshape the operand{', or give tiled=True to send more than one slice' * (tiled is False)}",
    )


def all_gather(
    x: Any, axis_name: Any, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False, to: str = "varying"
) -> Any:
    """Collect the operands of all members of named axes.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several, the last of which runs fastest.
      axis_index_groups: lists of positions along the axis, of one size; each list gathers by itself.
      axis: the dimension along which they stand in the result.
      tiled: join them along an existing dimension instead of a new one.
      to: "varying" for a value that counts as each device's own inside a `shard_map`, "invarying" for one that counts
        as shared, as from `all_gather_invariant`.

    Returns:
      The same tree, the same for all members.

    Raises:
      UnboundAxisError: no such axis is in scope.
      AxisError: the result has no such dimension.
      ArgumentError: `to` is neither, or "invarying" is asked of groups, each of which has a value of its own.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(phalanx.numpy.arange(2)).tolist()
      [[0, 1], [0, 1]]
    """
    if to == "invarying" and axis_index_groups is None:
        return all_gather_invariant(x, axis_name, axis=axis, tiled=tiled)
    if to != "varying":
        raise ArgumentError(
            "lax.all_gather, to",
            expected="'varying', or 'invarying' without groups",
            got=repr(to),
            mend="leave it out, or gather over whole axes",
        )
    scope = _scope("lax.all_gather", axis_name, axis_index_groups)
    return tree_map(lambda leaf: _gather("lax.all_gather", all_gather_p, leaf, scope, axis, tiled), x)


def _gather(where: str, primitive: AllGather, x: Any, scope: Scope, axis: int, tiled: bool) -> Any:
    (dim,) = counted_from_front(f"{where} axis", (axis,), aval_of(x).ndim + (not tiled))
    y = primitive(x, **scope.params, dim=dim)
    return merge(y, dim) if tiled else y


def all_gather_invariant(x: Any, axis_name: Any, *, axis: int = 0, tiled: bool = False) -> Any:
    """Collect the operands of all members of named axes, as one value that all share from then on.

    Inside a `shard_map` that checks what varies, the result of `all_gather` counts as one of each device's own, so that
    its cotangents are scattered as they are summed. This one counts as shared: it may be returned where `out_specs`
    joins nothing.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several, the last of which runs fastest.
      axis: the dimension along which they stand in the result.
      tiled: join them along an existing dimension instead of a new one.

    Returns:
      The same tree, the same for all members.

    Raises:
      UnboundAxisError: no such axis is in scope.
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
    scope = _scope(where, axis_name)
    primitive = all_gather_invariant_p if len(scope.tracked) == len(scope.axes) else all_gather_p
    return tree_map(lambda leaf: _gather(where, primitive, leaf, scope, axis, tiled), x)


def psum_scatter(
    x: Any, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Sum over the members of named axes, of which each keeps its own slice.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several, the last of which runs fastest.
      scatter_dimension: the dimension that is dealt out.
      axis_index_groups: lists of positions along the axis, of one size; each list sums by itself.
      tiled: keep the dimension, with an equal share for each member, instead of dropping it.

    Returns:
      The same tree, of slices.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ShapeError: the dimension cannot be dealt out to the members.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> scatter = phalanx.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")
      >>> scatter(phalanx.numpy.array([[1, 2], [10, 20]])).tolist()
      [11, 22]
    """
    where = "lax.psum_scatter"
    scope = _scope(where, axis_name, axis_index_groups)

    def one(leaf: Any) -> Any:
        aval = aval_of(leaf)
        (dim,) = counted_from_front(f"{where} scatter_dimension", (scatter_dimension,), aval.ndim)
        _check_members(where, aval, dim, scope, tiled)
        if tiled:
            leaf = divide(leaf, dim, (scope.count, aval.shape[dim] // scope.count))
        return psum_scatter_p(leaf, **scope.params, dim=dim)

    return tree_map(one, x)


def all_to_all(
    x: Any, axis_name: Any, split_axis: int, concat_axis: int, *, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Send a slice to each member of named axes and collect what all send here.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several, the last of which runs fastest.
      split_axis: the dimension whose slices are sent.
      concat_axis: the dimension of the result along which what arrives stands.
      axis_index_groups: lists of positions along the axis, of one size; each list exchanges by itself.
      tiled: send an equal share of the dimension to each, and join what arrives along an existing dimension.

    Returns:
      The same tree.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ShapeError: the dimension cannot be dealt out to the members.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> swap = phalanx.vmap(lambda x: lax.all_to_all(x, "i", 0, 0), axis_name="i")
      >>> swap(phalanx.numpy.array([[1, 2], [3, 4]])).tolist()
      [[1, 3], [2, 4]]
    """
    where = "lax.all_to_all"
    scope = _scope(where, axis_name, axis_index_groups)

    def one(leaf: Any) -> Any:
        aval = aval_of(leaf)
        (split,) = counted_from_front(f"{where} split_axis", (split_axis,), aval.ndim)
        (concat,) = counted_from_front(f"{where} concat_axis", (concat_axis,), aval.ndim)
        _check_members(where, aval, split, scope, tiled)
        if not tiled:
            return all_to_all_p(leaf, **scope.params, split=split, concat=concat)
        leaf = divide(leaf, split, (scope.count, aval.shape[split] // scope.count))
        return merge(all_to_all_p(leaf, **scope.params, split=split, concat=concat), concat)

    return tree_map(one, x)


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Exchange a named axis with a dimension of the operand.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several.
      axis: the dimension, of the size of the named axis.
      axis_index_groups: lists of positions along the axis, of one size; each list exchanges by itself.

    Returns:
      The same tree.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ShapeError: the dimension and the axis have different sizes.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pswapaxes(x, "i", 0), axis_name="i")(phalanx.numpy.eye(2)).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    where = "lax.pswapaxes"
    scope = _scope(where, axis_name, axis_index_groups)

    def one(leaf: Any) -> Any:
        aval = aval_of(leaf)
        (dim,) = counted_from_front(f"{where} axis", (axis,), aval.ndim)
        _check_members(where, aval, dim, scope, tiled=None)
        return all_to_all_p(leaf, **scope.params, split=dim, concat=dim)

    return tree_map(one, x)


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Send the operand of each member of named axes to another one.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several, the last of which runs fastest.
      perm: pairs (source, destination) of positions; no position is a source twice, or a destination twice.

    Returns:
      The same tree, of what this member is sent; zeros where it is sent nothing.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ArgumentError: the pairs are none of positions along the axis, or a position recurs.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> shift = phalanx.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")
      >>> shift(phalanx.numpy.array([5, 6, 7])).tolist()
      [0, 5, 6]
    """
    scope = _scope("lax.ppermute", axis_name)
    given = list(perm)
    is_paired = all(np.shape(pair) == (2,) for pair in given)
    pairs = tuple((int(source), int(target)) for source, target in given) if is_paired else ()
    sides = list(zip(*pairs, strict=True))
    if not is_paired or any(len(set(s)) != len(s) or not all(0 <= i < scope.count for i in s) for s in sides):
        raise ArgumentError(
            "lax.ppermute perm",
            expected=f"pairs of different sources and different destinations in [0, {scope.count})",
            got=repr(perm),
            mend="send from each position once and to each position once"
            + ("" if is_paired else "; a list of positions is for pshuffle"),
        )
    return tree_map(lambda leaf: ppermute_p(leaf, **scope.params, perm=pairs), x)


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Give each member of named axes the operand of another one.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several, the last of which runs fastest.
      perm: for each member the position of the one whose operand it gets; each position once.

    Returns:
      The same tree.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ArgumentError: `perm` is no permutation of the positions.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> shuffle = phalanx.vmap(lambda x: lax.pshuffle(x, "i", [2, 0, 1]), axis_name="i")
      >>> shuffle(phalanx.numpy.array([5, 6, 7])).tolist()
      [7, 5, 6]
    """
    scope = _scope("lax.pshuffle", axis_name)
    if sorted(perm) != list(range(scope.count)):
        raise ArgumentError(
            "lax.pshuffle perm",
            expected=f"a permutation of the {scope.count} positions",
            got=repr(perm),
            mend="name each position once, or use ppermute",
        )
    return ppermute(x, axis_name, [(source, target) for target, source in enumerate(perm)])
