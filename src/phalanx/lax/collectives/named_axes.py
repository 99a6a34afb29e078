"""Named axes and the base class of collectives.

`resolve_axis_names` looks up names in the axis environment, in which `vmap` and `shard_map` bind them. `Collective`
holds the batching rule that all collectives share; lowering among devices uses `replica_groups`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from phalanx.core import (
    UNVARYING,
    ZERO,
    ArgumentError,
    Jaxpr,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    TraceError,
    UnboundAxisError,
    cached_on_jaxpr,
    current_scope,
    get_aval,
    inner_jaxprs,
    state,
)
from phalanx.engine.mlir import ir
from phalanx.lax.collectives.replica_groups import ReplicaGroups, axis_index_of_device
from phalanx.lax.elementwise import add_p, clamp, mul_p
from phalanx.lax.indexing.gather import GatherDimensionNumbers, GatherScatterMode, gather
from phalanx.lax.indexing.static_slice import slice_in_dim
from phalanx.lax.shape import add_dim, drop_dims, reshape_p
from phalanx.lax.shape.concatenate import concatenate_p
from phalanx.lax.shape.iota_and_full import full, iota
from phalanx.runtime.lowering import LoweringContext
from phalanx.transforms.batching import AxisData, move_mapped_dim, vmap_flat
from phalanx.typing import ArrayLike, AxisName


def split_axis_names(axis: Any) -> tuple[Any, tuple]:
    """Split an `axis` argument into dimensions, and names of axes bound by `vmap`, `xmap` or a mesh."""
    if isinstance(axis, str):
        return (), (axis,)
    if isinstance(axis, tuple | list) and (names := tuple(a for a in axis if isinstance(a, str))):
        return tuple(a for a in axis if not isinstance(a, str)), names
    return axis, ()


# The argument `axis_index_groups`: groups of positions along an axis, or None for one group of all.
AxisGroups: TypeAlias = Sequence[Sequence[int]] | None


class AxisScope:
    """The mesh axes or mapped axes that a collective runs over.

    Args:
      axes: the names of the axes.
      sizes: their sizes.
      groups: a partition of the members, numbered in row-major order; None if all members form one group.
      tracked: the mesh axes among them whose varying values are tracked in types (see `core.varying_manual_axes`).
    """

    __slots__ = ("axes", "groups", "sizes", "tracked")

    def __init__(self, axes: tuple, sizes: tuple, groups: tuple | None = None, tracked: frozenset = UNVARYING):
        self.axes, self.sizes, self.groups, self.tracked = axes, sizes, groups, tracked

    @property
    def params(self) -> dict:
        """The parameters that all collectives share."""
        return {"axes": self.axes, "sizes": self.sizes, "groups": self.groups, "tracked": self.tracked}

    @property
    def is_even(self) -> bool:
        """Whether all groups are of one size."""
        return self.groups is None or len({len(g) for g in self.groups}) == 1

    @property
    def count(self) -> Any:
        """The number of members of a group."""
        return num_members(self.sizes, self.groups)


def num_members(sizes: tuple, groups: tuple | None) -> Any:
    """The number of members of a group, if all groups have one size."""
    return math.prod(sizes) if groups is None else len(groups[0])


def resolve_axis_names(where: str, axis_name: AxisName, groups: AxisGroups = None, *, even: bool = False) -> AxisScope:
    """Look up named axes in the current axis environment.

    Args:
      where: the public function, for errors.
      axis_name: a name or a sequence of names.
      groups: the user's `axis_index_groups`.
      even: whether the groups must have one size.

    Raises:
      UnboundAxisError: a name is not in scope.
      ArgumentError: a name is given twice, or the groups are not a partition of the members.
    """
    axes = tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)
    known = {name: (size, is_tracked) for name, size, is_tracked in current_scope().context.axes or ()}
    for name in axes:
        if name not in known:
            raise UnboundAxisError(
                f"{where} axis_name",
                expected=f"the name of an axis in scope ({', '.join(map(repr, known)) or 'none is in scope'})",
                got=repr(name),
                fix=f"call the function under vmap or pmap with axis_name={name!r}, or under a shard_map over a mesh "
                f"with this axis{', or use a name in scope' if known else ''}",
            )
    if len(set(axes)) != len(axes):
        raise ArgumentError(
            f"{where} axis_name", expected="each name once", got=repr(axes), fix="remove the repeated name"
        )
    sizes = tuple(known[name][0] for name in axes)
    tracked = frozenset(name for name in axes if known[name][1])
    return AxisScope(axes, sizes, None if groups is None else _partition(where, sizes, groups, even), tracked)


def _partition(where: str, sizes: tuple, groups: tuple | None, even: bool) -> tuple:
    where, count = f"{where} axis_index_groups", math.prod(sizes)
    given = tuple(tuple(int(i) for i in g) for g in groups)
    if sorted(i for g in given for i in g) != list(range(count)) or not all(given):
        raise ArgumentError(
            where,
            expected=f"groups that contain each of the {count} positions along the axis once",
            got=repr(groups),
            fix=f"list each of the positions 0 to {count - 1} in exactly one group",
        )
    if even and len({len(g) for g in given}) != 1:
        raise ArgumentError(
            where,
            expected="groups of one size, since it determines the shape of the result",
            got=f"sizes {', '.join(str(len(g)) for g in given)}",
            fix=f"divide the {count} positions evenly among the groups",
        )
    return given


class Collective(Primitive):
    """Base class of collectives: operations among the members of named axes, with one operand and one result.

    All have the parameters `axes`, `sizes`, `groups` and `tracked`. A `vmap` that binds one of the axes provides its
    members as a mapped dimension: the collective becomes an ordinary operation on this dimension, or a collective over
    the remaining axes. Any other `vmap` adds a batch dimension. A subclass defines the rules for these cases and the
    lowering among devices: `batch_collective_axis`, `batch_other_axis` if it changes the rank, `lower_collective`.
    """

    synchronizes = True  # whether devices wait for each other

    def batch_collective_axis(
        self, x: ArrayLike, b: int, at: int, *, axes: tuple, sizes: tuple, groups: None, **params: Any
    ) -> tuple:
        """The result, and its mapped dimension, if dimension `b` of `x` holds the members of `axes[at]`."""
        raise NotImplementedError  # defined by each collective

    def batch_other_axis(self, x: ArrayLike, b: int, **params: Any) -> tuple:
        """The result, and its mapped dimension, if dimension `b` of `x` belongs to a `vmap` over another axis."""
        return self(x, **params), b

    def batch_unmapped(self, x: ArrayLike, axis: AxisData, at: int, **params: Any) -> tuple:
        """The result, and its mapped dimension, if `x` is the same for all members of `axes[at]`."""
        return self.batch_collective_axis(add_dim(x, 0, axis.size), 0, at, **params)

    def batch_axis(
        self,
        axis: AxisData,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        axes: tuple,
        groups: tuple | None,
        **params: Any,
    ) -> Any:
        (x,), (b,) = args, dims
        params = {"axes": axes, "groups": groups, **params}
        # The `vmap` binds an axis that this collective does not run over: the mapped dimension is a batch dimension.
        if axis.name is None or axis.name not in axes:
            return (self(x, **params), None) if b is None else self.batch_other_axis(x, b, **params)
        if groups is not None:
            if len(axes) > 1:
                raise ArgumentError(
                    f"vmap of lax.{self.name} over one of several axes, axis_index_groups",
                    expected="one named axis to divide into groups",
                    got=f"{len(axes)} axes",
                    fix="pass one axis name, or drop axis_index_groups",
                )
            return self._in_groups(axis.to_front(x, b), **params), 0
        at = axes.index(axis.name)
        return (
            self.batch_unmapped(x, axis, at, **params) if b is None else self.batch_collective_axis(x, b, at, **params)
        )

    def _in_groups(self, x: ArrayLike, *, axes: tuple, sizes: tuple, groups: tuple, **params: Any) -> Any:
        """The result if dimension 0 of `x` holds the members: one collective per group, over an axis of its size."""
        count = len(groups[0])
        # Members are sorted by group, so that each group is a block of rows; `back` restores the original order.
        order = np.concatenate([np.asarray(g, np.int32) for g in groups])
        back = np.argsort(order).astype(np.int32)
        x = take_rows(x, order)

        def one(part: Any, size: int) -> Any:
            y, d = self.batch_collective_axis(part, 0, 0, axes=axes, sizes=(size,), groups=None, **params)
            return move_mapped_dim(y, d, size, 0)

        if all(len(g) == count for g in groups):
            stacked = divide_dim(x, 0, (len(groups), count))
            (y,), (d,) = vmap_flat(lambda part: [one(part, count)], [stacked], [0], AxisData(len(groups)), self.name)
            y = move_mapped_dim(y, d, len(groups), 0)
            return take_rows(merge_dims(y, 0), back)
        # Groups of different sizes cannot be stacked into one mapped dimension.
        starts = np.cumsum([0, *map(len, groups)])
        parts = [one(take_rows(x, np.arange(s, s + len(g), dtype=np.int32)), len(g)) for s, g in zip(starts, groups)]
        return take_rows(concatenate_p(*parts, dim=0), back)

    def varying(self, held: frozenset, *, tracked: frozenset, **_: Any) -> frozenset:
        """The mesh axes that results vary over; by default each member has a different result."""
        return held | tracked

    def lower(
        self,
        ctx: LoweringContext,
        x: ir.Value,
        *,
        axes: tuple,
        groups: tuple | None,
        sizes: tuple,
        tracked: frozenset,
        **params: Any,
    ) -> Any:
        return self.lower_collective(ctx, x, ReplicaGroups.of(ctx, self.name, axes, groups), **params)

    def lower_collective(self, ctx: LoweringContext, x: ArrayLike, replicas: ReplicaGroups, **params: Any) -> Any:
        """The StableHLO operation among the devices of the replica groups."""
        raise NotImplementedError  # defined by each collective


@cached_on_jaxpr
def synchronized_axes(jaxpr: Jaxpr) -> frozenset:
    """The axes over which a jaxpr, or an inner jaxpr of it, synchronizes devices."""
    names: set = set()
    for eqn in jaxpr.eqns:
        if getattr(eqn.primitive, "synchronizes", False):
            names.update(eqn.params["axes"])
        names.update(*map(synchronized_axes, inner_jaxprs(eqn.params)))
    return frozenset(names)


def check_no_divergence(where: str, axes: frozenset, programs: Sequence[Jaxpr]) -> None:
    """Refuse jaxprs that only some devices run, if they synchronize devices: the program would wait forever.

    Args:
      where: the value that decides which devices run them, for the error.
      axes: the mesh axes over which this value varies.
      programs: the jaxprs.

    Raises:
      TraceError: a collective in them runs over one of these axes.
    """
    # A collective over other axes is harmless: the devices along those axes agree on whether it runs.
    shared = axes & frozenset().union(*map(synchronized_axes, programs)) if axes else axes
    if shared:
        names = ", ".join(sorted(map(repr, shared)))
        raise TraceError(
            where,
            expected=f"a value that all devices along {names} share, since a collective over {names} depends on it",
            got=f"one that varies over {names}",
            fix="make it the same for all, for example with lax.pmax, or move the collective out of the loop or branch",
        )


def num_members_around(at: int, sizes: tuple) -> tuple:
    """The number of members before, along and after the axis `at` in row-major order."""
    return math.prod(sizes[:at]), sizes[at], math.prod(sizes[at + 1 :])


def resolve_even_axes(where: str, axis_name: AxisName, groups: AxisGroups = None) -> AxisScope:
    """`resolve_axis_names` for at least one axis, with groups of one size."""
    scope = resolve_axis_names(where, axis_name, groups, even=True)
    if not scope.axes:
        raise ArgumentError(
            f"{where} axis_name", expected="at least one name", got=repr(axis_name), fix="name the axis to run over"
        )
    return scope


def check_divisible_by_members(where: str, x: ShapedArray, dim: int, scope: AxisScope, tiled: bool | None) -> None:
    """Refuse a dimension that cannot be divided among the members.

    Args:
      where: the public function, for errors.
      x: the type of the operand.
      dim: the dimension.
      scope: the axes.
      tiled: the argument `tiled`; None if the public function has no such argument.
    """
    size, count = x.shape[dim], scope.count
    if size % count == 0 if tiled else size == count:
        return
    raise ShapeError(
        where,
        expected=f"dimension {dim} of a size {'divisible by' if tiled else 'equal to'} the number of members, {count}",
        got=x.str_short(),
        fix=f"pad or reshape the operand{', or give tiled=True to send more than one slice' * (tiled is False)}",
    )


def take_rows(x: ArrayLike, table: np.ndarray) -> Any:
    """Take rows of `x`, its slices along dimension 0, by a constant table of indices; negative ones give zeros."""
    shape = get_aval(x).shape
    # The identity permutation is frequent: groups in order, and a single group.
    if np.array_equal(table, np.arange(shape[0])):
        return x
    missing = bool((table < 0).any())
    # A shift is a concatenation of a few slices. The partitioner sends these to their devices, whereas it would gather
    # the whole operand of a general gather.
    follows = np.where(table[:-1] < 0, table[1:] < 0, table[1:] == table[:-1] + 1)
    starts = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(table)]
    if len(starts) <= 5 and (isinstance(get_aval(x).dtype, np.dtype) or not missing):  # key dtypes have no zeros
        slices = [
            slice_in_dim(x, int(table[a]), int(table[a]) + b - a)
            if table[a] >= 0
            else full((b - a, *shape[1:]), 0, get_aval(x).dtype)
            for a, b in itertools.pairwise(starts)
        ]
        return concatenate_p(*slices, dim=0)
    places = np.where(table < 0, shape[0], table).astype(np.int32)
    return gather(
        x,
        places[:, None],
        GatherDimensionNumbers(tuple(range(1, len(shape))), (0,), (0,)),
        (1, *shape[1:]),
        unique_indices=not missing and len(set(table.tolist())) == len(table),
        mode=GatherScatterMode.FILL_OR_DROP if missing else GatherScatterMode.PROMISE_IN_BOUNDS,
        fill_value=0 if missing else None,
    )


def merge_dims(x: ArrayLike, dim: int) -> Any:
    """Merge dimensions `dim` and `dim + 1` of `x` into one."""
    shape = get_aval(x).shape
    return reshape_p(x, shape=(*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]))


def divide_dim(x: ArrayLike, dim: int, sizes: Sequence) -> Any:
    """Divide dimension `dim` of `x` into several dimensions."""
    shape = get_aval(x).shape
    return reshape_p(x, shape=(*shape[:dim], *sizes, *shape[dim + 1 :]))


def drop_axis(at: int, axes: tuple, sizes: tuple, tracked: frozenset) -> dict:
    """The parameters of a collective over all axes but `axes[at]`."""
    return {"axes": drop_dims(axes, (at,)), "sizes": drop_dims(sizes, (at,)), "groups": None, "tracked": tracked}


class AxisIndex(Primitive, name="axis_index"):
    """The index along one named axis: -> i32[]."""

    def abstract_eval(self, *, axes: tuple, sizes: tuple, tracked: frozenset) -> ShapedArray:
        return ShapedArray((), np.dtype(np.int32))

    def varying(self, held: frozenset, *, tracked: frozenset, **_: Any) -> frozenset:
        return tracked

    def sharding_rule(self, *, axes: tuple, **_: Any) -> ShardingRule:
        return ShardingRule([], [()], axes=dict.fromkeys(axes))

    def lower(self, ctx: LoweringContext, *, axes: tuple, sizes: tuple, tracked: frozenset) -> Any:
        return axis_index_of_device(ctx, self.name, axes[0])

    jvp = ZERO

    def batch_axis(self, axis: AxisData, args: Sequence[Any], dims: Sequence[int | None], **_: Any) -> tuple:
        return iota(np.int32, axis.size), 0


axis_index_p = AxisIndex()


def linear_axis_index(axes: tuple, sizes: tuple, tracked: frozenset = UNVARYING) -> Any:
    """The index among the members of several axes, in row-major order."""
    indices = [axis_index_p(axes=(a,), sizes=(n,), tracked=tracked & {a}) for a, n in zip(axes, sizes, strict=True)]
    total = indices[0] if indices else np.int32(0)
    # Horner's scheme, in which the last axis is the minor one.
    for size, index in zip(sizes[1:], indices[1:], strict=True):
        total = add_p(mul_p(total, np.int32(size)), index)
    return total


def axis_index(axis_name: AxisName) -> Any:
    """The index of this member along a named axis.

    Args:
      axis_name: the name of an axis in scope; several names give the index in row-major order.

    Returns:
      The index, `i32[]`, which differs between members.

    Raises:
      UnboundAxisError: no such axis is in scope.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: x * lax.axis_index("i"), axis_name="i")(phalanx.numpy.ones(3, int)).tolist()
      [0, 1, 2]
    """
    scope = resolve_axis_names("lax.axis_index", axis_name)
    return linear_axis_index(scope.axes, scope.sizes, scope.tracked)


def axis_size(axis_name: AxisName) -> Any:
    """The size of a named axis, a static integer.

    Args:
      axis_name: the name of an axis in scope; several names give the product of the sizes.

    Returns:
      The number of members.

    Raises:
      UnboundAxisError: no such axis is in scope.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: x / lax.axis_size("i"), axis_name="i")(phalanx.numpy.ones(4)).tolist()
      [0.25, 0.25, 0.25, 0.25]
    """
    return resolve_axis_names("lax.axis_size", axis_name).count


def valid_size(axis_name: AxisName, size: int | None = None) -> Any:
    """The number of elements of this member along a dimension that a named axis splits, padding not counted.

    A dimension of `size` elements over `n` members is split into blocks of `ceil(size / n)`. The last blocks may have
    fewer elements, or none; `shard_map(..., uneven="pad")` fills them with zeros.

    Args:
      axis_name: the name of an axis in scope, or the names of several that split the dimension together.
      size: the size of the whole dimension; by default that of the arguments of `shard_map(..., uneven="pad")`.

    Returns:
      The number, `i32[]`, which differs between members.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ArgumentError: `size` is not given, and the axis splits no dimension of an argument, or dimensions of several
        sizes.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.valid_size("i", 5), axis_name="i")(phalanx.numpy.ones(4)).tolist()
      [2, 2, 1, 0]
    """
    scope = resolve_axis_names("lax.valid_size", axis_name)
    names = axis_name if isinstance(axis_name, tuple | list) else (axis_name,)
    sizes = {n for axes, n in state.context.split_sizes if axes == tuple(names)} if size is None else {size}
    if len(sizes) != 1:
        raise ArgumentError(
            "lax.valid_size, argument size",
            expected="the size of a dimension, unless arguments of shard_map(uneven='pad') are split over "
            f"{axis_name!r} and all of them have one size",
            got=f"arguments of the sizes {', '.join(map(str, sorted(sizes)))}" if sizes else "no such argument",
            fix=f"pass the size without padding, as in lax.valid_size({axis_name!r}, 17)",
        )
    block = -(-max(sizes) // scope.count)
    return clamp(0, max(sizes) - axis_index(axis_name) * block, block)
