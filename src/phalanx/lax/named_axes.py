"""Named axes: which are in scope, a member's place along them, and what all collectives share.

A collective names its axes in the parameter `axes` and carries their `sizes`, so that its rules never look at the
scope; only the public functions do, while tracing. `tracked` are those of its axes that a mesh has and along which
types say whether a value varies (see `core.varying`). `Collective` holds the batching rule: a `vmap` that gives one of
the axes its members takes it out of the collective, any other one passes by. Used by `collectives` and `exchanges`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.aval import UNVARYING, ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, TraceError, UnboundAxisError
from phalanx.core.jaxpr import Jaxpr, derivation, subprograms
from phalanx.core.primitive import ZERO, Primitive, Roles
from phalanx.lax.broadcast import add_dim, keep
from phalanx.lax.creation import full, iota
from phalanx.lax.elementwise import add_p, mul_p
from phalanx.lax.gather import GatherDimensionNumbers, GatherScatterMode, gather
from phalanx.lax.replicas import Replicas, place_of_device
from phalanx.lax.shape import concatenate_p, reshape_p
from phalanx.lax.slicing import slice_in_dim
from phalanx.transforms.batching import Axis, to_dim, vmap_flat


def apart(axis: Any) -> tuple[Any, tuple]:
    """The dimensions of `axis`, and the names of axes among them, which belong to a `vmap`, an `xmap` or a mesh."""
    if isinstance(axis, str):
        return (), (axis,)
    if isinstance(axis, tuple | list) and (names := tuple(a for a in axis if isinstance(a, str))):
        return tuple(a for a in axis if not isinstance(a, str)), names
    return axis, ()


class Scope:
    """The axes a collective runs over.

    Args:
      axes: their names.
      sizes: their sizes.
      groups: a partition of the members of the one axis, or None where all take part together.
      tracked: those of the axes along which types say whether a value varies.
    """

    __slots__ = ("axes", "groups", "sizes", "tracked")

    def __init__(self, axes: tuple, sizes: tuple, groups: tuple | None = None, tracked: frozenset = UNVARYING):
        self.axes, self.sizes, self.groups, self.tracked = axes, sizes, groups, tracked

    @property
    def params(self) -> dict:
        """The parameters that every collective has."""
        return {"axes": self.axes, "sizes": self.sizes, "groups": self.groups, "tracked": self.tracked}

    @property
    def is_even(self) -> bool:
        """Whether all groups are of one size."""
        return self.groups is None or len({len(g) for g in self.groups}) == 1

    @property
    def count(self) -> Any:
        """How many members take part together."""
        return member_count(self.sizes, self.groups)


def member_count(sizes: tuple, groups: tuple | None) -> Any:
    """How many members take part together, in groups of one size."""
    return math.prod(sizes) if groups is None else len(groups[0])


def scope_of(where: str, axis_name: Any, groups: Any = None, *, even: bool = False) -> Scope:
    """Find named axes in the scope at hand.

    Args:
      where: the function that asks, for messages.
      axis_name: a name or a sequence of names.
      groups: `axis_index_groups` as the user gave it.
      even: whether the groups must be of one size.

    Raises:
      UnboundAxisError: a name is not in scope.
      ArgumentError: a name is given twice, or the groups are no partition of the members.
    """
    axes = tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)
    known = {name: (size, is_tracked) for name, size, is_tracked in state.context.axes or ()}
    for name in axes:
        if name not in known:
            raise _unbound(where, name, known)
    if len(set(axes)) != len(axes):
        raise ArgumentError(
            f"{where} axis_name", expected="different names", got=repr(axes), mend="name each axis once"
        )
    sizes = tuple(known[name][0] for name in axes)
    tracked = frozenset(name for name in axes if known[name][1])
    return Scope(axes, sizes, None if groups is None else _partition(where, sizes, groups, even), tracked)


def _unbound(where: str, name: Any, known: dict) -> UnboundAxisError:
    return UnboundAxisError(
        f"{where} axis_name",
        expected=f"the name of an axis in scope ({', '.join(map(repr, known)) or 'there is none'})",
        got=repr(name),
        mend=f"call the function under vmap or pmap with axis_name={name!r}, or under a shard_map over a mesh with "
        f"this axis{', or use a name in scope' if known else ''}",
    )


def _partition(where: str, sizes: tuple, groups: Any, even: bool) -> tuple:
    where = f"{where} axis_index_groups"
    if len(sizes) != 1:
        raise ArgumentError(
            where,
            expected="one named axis to divide into groups",
            got=f"{len(sizes)} axes",
            mend="use the collective over fewer axes in place of groups",
        )
    given = tuple(tuple(int(i) for i in g) for g in groups)
    if sorted(i for g in given for i in g) != list(range(sizes[0])) or not all(given):
        raise ArgumentError(
            where,
            expected=f"groups that hold each of the {sizes[0]} positions along the axis once",
            got=repr(groups),
            mend="put each position into one group",
        )
    if even and len({len(g) for g in given}) != 1:
        raise ArgumentError(
            where,
            expected="groups of one size, since the shape of the result depends on it",
            got=f"sizes {', '.join(str(len(g)) for g in given)}",
            mend="divide the axis evenly",
        )
    return given


class Collective(Primitive):
    """An operation among the members of named axes: one operand, one result, and `axes`, `sizes`, `groups`, `tracked`.

    A subclass writes `within`, where it changes the rank `beside`, and `exchange`, which lowers it.
    """

    is_exchange = True  # whether members wait for each other in it

    batch = None

    def within(self, x: Any, b: int, at: int, *, axes: tuple, sizes: tuple, groups: None, **params: Any) -> tuple:
        """The result where the members of `axes[at]` stand along dimension `b` of `x`, and its mapped dimension."""
        raise NotImplementedError  # each collective defines it

    def beside(self, x: Any, b: int, **params: Any) -> tuple:
        """The result where dimension `b` of `x` has nothing to do with the axes, and its mapped dimension."""
        return self(x, **params), b

    def same(self, x: Any, axis: Axis, at: int, **params: Any) -> tuple:
        """The result where `x` is the same for all members of `axes[at]`, and its mapped dimension."""
        return self.within(add_dim(x, 0, axis.size), 0, at, **params)

    def batch_axis(self, axis: Axis, args: Any, dims: Any, *, axes: tuple, groups: tuple | None, **params: Any) -> Any:
        (x,), (b,) = args, dims
        params = {"axes": axes, "groups": groups, **params}
        if axis.name is None or axis.name not in axes:
            return (self(x, **params), None) if b is None else self.beside(x, b, **params)
        if groups is not None:
            return self._in_groups(axis.to_front(x, b), **params), 0
        at = axes.index(axis.name)
        return self.same(x, axis, at, **params) if b is None else self.within(x, b, at, **params)

    def _in_groups(self, x: Any, *, axes: tuple, sizes: tuple, groups: tuple, **params: Any) -> Any:
        """The result for members in front of `x`: each group runs over an axis of its own size."""
        count = len(groups[0])
        order = np.concatenate([np.asarray(g, np.int32) for g in groups])
        back = np.argsort(order).astype(np.int32)
        x = rows(x, order)

        def one(part: Any, size: int) -> Any:
            y, d = self.within(part, 0, 0, axes=axes, sizes=(size,), groups=None, **params)
            return to_dim(y, d, size, 0)

        if all(len(g) == count for g in groups):
            shape = aval_of(x).shape[1:]
            stacked = reshape_p(x, shape=(len(groups), count, *shape))
            (y,), (d,) = vmap_flat(lambda part: [one(part, count)], [stacked], [0], Axis(len(groups)), self.name)
            y = to_dim(y, d, len(groups), 0)
            return rows(merge(y, 0), back)
        starts = np.cumsum([0, *map(len, groups)])
        parts = [one(rows(x, np.arange(s, s + len(g), dtype=np.int32)), len(g)) for s, g in zip(starts, groups)]
        return rows(concatenate_p(*parts, dim=0), back)

    def varying(self, held: frozenset, *, tracked: frozenset, **_: Any) -> frozenset:
        """Each member gets a result of its own, unless a subclass says otherwise."""
        return held | tracked

    def lower(
        self, ctx: Any, x: Any, *, axes: tuple, groups: tuple | None, sizes: tuple, tracked: frozenset, **params: Any
    ) -> Any:
        return self.exchange(ctx, x, Replicas.of(ctx, self.name, axes, groups), **params)

    def exchange(self, ctx: Any, x: Any, replicas: Replicas, **params: Any) -> Any:
        """The operation in StableHLO, among these devices."""
        raise NotImplementedError  # each collective defines it


@derivation
def exchanged_axes(jaxpr: Jaxpr) -> frozenset:
    """The axes over which a program, or one that it holds, makes members wait for each other."""
    names: set = set()
    for eqn in jaxpr.eqns:
        if getattr(eqn.primitive, "is_exchange", False):
            names.update(eqn.params["axes"])
        names.update(*map(exchanged_axes, subprograms(eqn.params)))
    return frozenset(names)


def refuse_divergence(where: str, axes: frozenset, programs: Sequence[Jaxpr]) -> None:
    """Refuse programs that some devices run and others do not, if members wait for each other in them.

    Args:
      where: what decides, in words.
      axes: the mesh axes over which the decision varies.
      programs: what is run or not.

    Raises:
      TraceError: a collective in them runs over one of these axes: devices that skip it would be waited for forever.
    """
    shared = axes & frozenset().union(*map(exchanged_axes, programs)) if axes else axes
    if shared:
        names = ", ".join(sorted(map(repr, shared)))
        raise TraceError(
            where,
            expected=f"a value that all devices along {names} share, since a collective over {names} depends on it",
            got=f"one that varies over {names}",
            mend="make it the same for all, as with lax.pmax, or move the collective out",
        )


def rows(x: Any, table: np.ndarray) -> Any:
    """The slices of `x` along its first dimension at the given places; zeros where a place is negative."""
    shape = aval_of(x).shape
    if np.array_equal(table, np.arange(shape[0])):
        return x
    missing = bool((table < 0).any())
    # A shift is a few stretches side by side: the partitioner sends them on, where it would gather all the rest.
    follows = np.where(table[:-1] < 0, table[1:] < 0, table[1:] == table[:-1] + 1)
    starts = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(table)]
    if len(starts) <= 5 and (isinstance(aval_of(x).dtype, np.dtype) or not missing):  # of keys there are no zeros
        stretches = [
            slice_in_dim(x, int(table[a]), int(table[a]) + b - a)
            if table[a] >= 0
            else full((b - a, *shape[1:]), 0, aval_of(x).dtype)
            for a, b in itertools.pairwise(starts)
        ]
        return concatenate_p(*stretches, dim=0)
    numbers = GatherDimensionNumbers(tuple(range(1, len(shape))), (0,), (0,))
    places = np.where(table < 0, shape[0], table).astype(np.int32)
    return gather(
        x,
        places[:, None],
        numbers,
        (1, *shape[1:]),
        unique_indices=not missing and len(set(table.tolist())) == len(table),
        mode=GatherScatterMode.FILL_OR_DROP if missing else GatherScatterMode.PROMISE_IN_BOUNDS,
        fill_value=0 if missing else None,
    )


def merge(x: Any, dim: int) -> Any:
    """`x` with dimensions `dim` and `dim + 1` as one."""
    shape = aval_of(x).shape
    return reshape_p(x, shape=(*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]))


def divide(x: Any, dim: int, sizes: Sequence) -> Any:
    """`x` with dimension `dim` as several ones."""
    shape = aval_of(x).shape
    return reshape_p(x, shape=(*shape[:dim], *sizes, *shape[dim + 1 :]))


def without(at: int, axes: tuple, sizes: tuple, tracked: frozenset) -> dict:
    """The parameters of a collective over the other axes."""
    return {"axes": keep(axes, (at,)), "sizes": keep(sizes, (at,)), "groups": None, "tracked": tracked}


class AxisIndex(Primitive, name="axis_index"):
    """The position along one named axis: -> i32[]."""

    batch = None

    def result(self, *, axes: tuple, sizes: tuple, tracked: frozenset) -> ShapedArray:
        return ShapedArray((), np.dtype(np.int32))

    def varying(self, held: frozenset, *, tracked: frozenset, **_: Any) -> frozenset:
        return tracked

    def roles(self, *, axes: tuple, **_: Any) -> Roles:
        return Roles([], [()], axes=dict.fromkeys(axes))

    def lower(self, ctx: Any, *, axes: tuple, sizes: tuple, tracked: frozenset) -> Any:
        return place_of_device(ctx, self.name, axes[0])

    jvp = ZERO

    def batch_axis(self, axis: Axis, args: Any, dims: Any, **_: Any) -> tuple:
        return iota(np.int32, axis.size), 0


axis_index_p = AxisIndex()


def position(axes: tuple, sizes: tuple, tracked: frozenset = UNVARYING) -> Any:
    """The position among the members of several axes, the last of which runs fastest."""
    place = None
    for name, size in zip(axes, sizes, strict=True):
        here = axis_index_p(axes=(name,), sizes=(size,), tracked=tracked & {name})
        place = here if place is None else add_p(mul_p(place, np.int32(size)), here)
    return np.int32(0) if place is None else place


def axis_index(axis_name: Any) -> Any:
    """The position along a named axis.

    Args:
      axis_name: the name of an axis in scope, or several, the last of which runs fastest.

    Returns:
      `i32[]`, different for each member.

    Raises:
      UnboundAxisError: no such axis is in scope.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: x * lax.axis_index("i"), axis_name="i")(phalanx.numpy.ones(3, int)).tolist()
      [0, 1, 2]
    """
    scope = scope_of("lax.axis_index", axis_name)
    return position(scope.axes, scope.sizes, scope.tracked)


def axis_size(axis_name: Any) -> Any:
    """The size of a named axis, known while tracing.

    Args:
      axis_name: the name of an axis in scope, or several.

    Returns:
      The number of members, as an int.

    Raises:
      UnboundAxisError: no such axis is in scope.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: x / lax.axis_size("i"), axis_name="i")(phalanx.numpy.ones(4)).tolist()
      [0.25, 0.25, 0.25, 0.25]
    """
    return scope_of("lax.axis_size", axis_name).count
