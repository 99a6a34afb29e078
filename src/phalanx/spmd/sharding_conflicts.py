"""Conflicts between the shardings of operands, which XLA resolves by communication that nobody asked for.

The sharding rules of operations propagate the shardings of the inputs of a jaxpr through its graph. Two operands
conflict if they split dimensions of one name over different axes, or dimensions of two names over the same axis; an
operand alone does if it splits a dimension that the operation needs as a whole. XLA decides which operand keeps its
sharding; for the equations that follow, the largest one does here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from phalanx.core import Eqn, Jaxpr, ShapedArray, ShardingRule, Var, iterate_jaxprs
from phalanx.core.sharding_rules import DimClasses
from phalanx.core.source_info import find_user_frame
from phalanx.lax import scan_p
from phalanx.runtime import fill_unconstrained
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec, Sharding
from phalanx.spmd.program_graph import Operation, ProgramGraph, Value, build_graph


class Entry(NamedTuple):
    """The equation in which the sharding of an argument meets other operands.

    Args:
      eqn: the equation.
      aval: the type of its result.
      sharding: of the result.
    """

    eqn: Eqn
    aval: ShapedArray
    sharding: NamedSharding


class Origin(NamedTuple):
    """Where an axis in the sharding of a value comes from.

    Args:
      argument: the number of the input that is split over the axis; None for a sharding inside the program.
      entry: the first equation that reads it with other operands; None before it.
    """

    argument: int | None
    entry: Entry | None


class PlacedValue(NamedTuple):
    """The sharding of a value.

    Args:
      sharding: the sharding.
      origins: of each axis.
    """

    sharding: NamedSharding
    origins: dict[Any, Origin]


class Conflict(NamedTuple):
    """An operand that an equation cannot read by the sharding that it has.

    Args:
      eqn: the equation.
      operand: the number of the operand.
      held: its sharding.
      wanted: a sharding by which the equation needs no communication that is not a reduction.
      origins: where the axes of its sharding come from.
    """

    eqn: Eqn
    operand: int
    held: NamedSharding
    wanted: NamedSharding
    origins: dict[Any, Origin]

    @property
    def aval(self) -> ShapedArray:
        """The type of the operand."""
        return self.eqn.invars[self.operand].aval

    @property
    def axes(self) -> set[Any]:
        """The axes that no longer split the dimension that they split."""
        pairs = zip(self.held.axes(self.aval.ndim), self.wanted.axes(self.aval.ndim), strict=True)
        return {axis for held, wanted in pairs for axis in held if axis not in wanted}

    @property
    def line(self) -> str:
        """The user's line of the equation."""
        return format_line(self.eqn)

    def may_reshard(self, kind: str, nbytes: int) -> bool:
        """Whether a collective of this kind and size may reshard the operand."""
        before, after = [math.prod(map(s.mesh.num_parts, s.axes(self.aval.ndim))) for s in (self.held, self.wanted)]
        is_gather = after < before
        # A permutation sends the shards as they are.
        parts = before if kind == "collective-permute" else min(before, after)
        size = self.aval.size * self.aval.dtype.itemsize // parts
        return size == nbytes and (kind not in ("all-gather", "all-to-all") or is_gather == (kind == "all-gather"))


def format_line(eqn: Eqn) -> str:
    """The user's line of an equation as `file:line`; "" if it is unknown."""
    frame = find_user_frame(eqn.source)
    return "" if frame is None else f"{frame.file_name}:{frame.line_num}"


class ShardedOperation(NamedTuple):
    """An operation with the shardings of its operands, as far as they are known."""

    operation: Operation
    held: list[PlacedValue | None]

    @property
    def eqn(self) -> Eqn:
        """The equation."""
        assert self.operation.eqn is not None, "an assignment reads any sharding"
        return self.operation.eqn

    @property
    def rule(self) -> ShardingRule:
        """The sharding rule of the equation."""
        return self.operation.rule

    @property
    def reduced(self) -> set[Hashable]:
        """The names of dimensions of which each device reduces its part."""
        return {*self.rule.reduced, *self.rule.partial}

    def conflicts(self) -> list[Conflict]:
        """The operands that XLA may reshard, if large operands keep their shardings or if small ones do."""
        orders = (self._by_size(), self._by_size()[::-1])
        found = [k for order in orders for excluded in ((), self._one_sided()) for k in self.resolve(order, excluded)]
        return list({(k.operand, k.wanted.spec): k for k in found}.values())

    def resolve(self, order: Sequence[int] | None = None, excluded: Collection[Hashable] = ()) -> Iterator[Conflict]:
        """The operands that have to be resharded if others keep their shardings.

        Args:
          order: the numbers of the operands, those that rather keep theirs first; by default the largest ones.
          excluded: names of dimensions that no operand may split.
        """
        assigned = self._assign_axes(order or self._by_size())
        for i, (names, held) in enumerate(zip(self.rule.operands, self.held, strict=True)):
            wanted = [() if name in excluded else assigned.get(name, ()) for name in names]
            if held is not None:
                pairs = zip(held.sharding.axes(len(names)), wanted, strict=True)
                if any(has and has != wants for has, wants in pairs):
                    yield self.reshard_operand(i, wanted)

    def _one_sided(self) -> set[Hashable]:
        """The names of dimensions that are reduced and that an operand has as a whole.

        XLA may gather the other operand instead of slicing this one.
        """
        known = ((names, h) for names, h in zip(self.rule.operands, self.held, strict=True) if h is not None)
        dims = (zip(names, h.sharding.axes(len(names)), strict=True) for names, h in known)
        return {name for pairs in dims for name, axes in pairs if name in self.reduced and not axes}

    def reshard_operand(self, i: int, wanted: Sequence[tuple[Any, ...]]) -> Conflict:
        """The conflict that is resolved by resharding an operand."""
        held = self.held[i]
        assert held is not None, "only an operand with a known sharding is resharded"
        return Conflict(self.eqn, i, held.sharding, _with_dims(held.sharding, wanted), held.origins)

    def gather_operand(self, axes: Collection[Any]) -> Conflict | None:
        """The largest operand that is split over some of these axes, gathered along them."""
        for i in self._by_size():
            held = self.held[i]
            if held is not None and not set(axes).isdisjoint(held.sharding.spec.axes):
                dims = held.sharding.axes(len(self.rule.operands[i]))
                return self.reshard_operand(i, [tuple([a for a in d if a not in axes]) for d in dims])
        return None

    def _assign_axes(self, order: Sequence[int]) -> dict[Any, tuple[Any, ...]]:
        """The axes that split each name of the sharding rule if operands keep their shardings in this order."""
        assigned: dict[Any, tuple[Any, ...]] = {}
        used: set[Any] = set()
        for i in order:
            held = self.held[i]
            if held is None:
                continue
            for name, axes in zip(self.rule.operands[i], held.sharding.axes(len(self.rule.operands[i])), strict=True):
                is_split = axes and (name not in self.rule.whole or name in self.rule.partial)
                if is_split and name not in assigned and used.isdisjoint(axes):
                    assigned[name] = axes
                    used.update(axes)
        return assigned

    def results(self) -> list[PlacedValue | None]:
        """The shardings of the results once the operands agree."""
        if self.operation.eqn is None:
            return self.held
        if self.eqn.params.get("manual"):  # In a `shard_map` values are shards.
            mesh, specs = self.eqn.params["mesh"], self.eqn.params["out_specs"]
            return [PlacedValue(NamedSharding(mesh, s), {}) if isinstance(mesh, Mesh) else None for s in specs]
        avals = [v.aval for v in self.eqn.outvars]
        if (target := self.eqn.primitive.target_shardings) is not None:
            named = target(**self.eqn.params)
            return [_constrain(a, s, self.held[0]) for a, s in zip(avals, named, strict=True)]
        first = next((h for h in self.held if h is not None), None)
        if first is None:
            return [None] * len(avals)
        assigned = self._assign_axes(self._by_size())
        return [
            self._result(a, [assigned.get(n, ()) for n in names], first.sharding)
            for a, names in zip(avals, self.rule.results, strict=True)
        ]

    @property
    def names_shardings(self) -> bool:
        """Whether the program declares the shardings of the operands or results, rather than needs them."""
        of = self.operation.eqn
        return of is None or of.primitive.target_shardings is not None or bool(of.params.get("manual"))

    def _result(self, aval: ShapedArray, dims: Sequence[tuple[Any, ...]], like: NamedSharding) -> PlacedValue:
        sharding = _with_dims(like, dims)
        given = [h for h in self.held if h is not None]
        meets = sum(isinstance(v, Var) for v in self.eqn.invars) > 1
        origins: dict[Any, Origin] = {}
        for axis in sharding.spec.axes:
            found = next((h.origins[axis] for h in given if axis in h.origins), Origin(None, None))
            origins[axis] = found._replace(entry=found.entry or (Entry(self.eqn, aval, sharding) if meets else None))
        return PlacedValue(sharding, origins)

    def _by_size(self) -> list[int]:
        return sorted(range(len(self.rule.operands)), key=lambda i: -self.eqn.invars[i].aval.size)


def _with_dims(like: NamedSharding, dims: Sequence[tuple[Any, ...]]) -> NamedSharding:
    return like.with_spec(PartitionSpec.of_dims(dims))


class _Shardings:
    """The shardings of the values of a graph, as far as they are known.

    The values that a loop stacks or slices, and those of branches, have the shardings of the values to which they are
    tied.
    """

    def __init__(self, dims: DimClasses) -> None:
        self._dims = dims
        self._held: dict[Value, PlacedValue] = {}
        self._tied: dict[Hashable, tuple[PlacedValue, tuple[Any, ...]]] = {}  # by class of dimensions

    def assign(self, value: Value, held: PlacedValue | None) -> None:
        """Set the sharding of a value."""
        if held is not None:
            self._held[value] = held
            for d, axes in enumerate(held.sharding.axes(len(value.shape))):
                self._tied.setdefault(self._dims.find((value, d)), (held, axes))

    def find(self, value: Value | None) -> PlacedValue | None:
        """The sharding of a value; the one in its type, over Explicit axes."""
        if value is None:
            return None
        found = self._held.get(value) or self._find_tied(value)
        stated = value.aval.type_sharding
        return found if stated is None else PlacedValue(stated, {} if found is None else found.origins)

    def _find_tied(self, value: Value) -> PlacedValue | None:
        dims = [self._tied.get(self._dims.find((value, d))) for d in range(len(value.shape))]
        first = next((known[0] for known in dims if known is not None), None)
        if first is None:
            return None
        axes = [known[1] if known is not None and known[0] is first else () for known in dims]
        return first._replace(sharding=_with_dims(first.sharding, axes))


def propagate_shardings(program: Jaxpr, in_shardings: Sequence[Sharding | None]) -> list[ShardedOperation]:
    """Propagate the shardings of the inputs of a jaxpr to the operands of its operations.

    Args:
      program: the jaxpr.
      in_shardings: of its inputs; None where they are unknown, or in the types.

    Returns:
      The operations in order, inner jaxprs included, except for those that name shardings.
    """
    graph = build_graph(program)
    shardings = _Shardings(graph.dims)
    for i, (value, given) in enumerate(zip(graph.inputs, in_shardings, strict=True)):
        sharding = value.aval.type_sharding or given
        if isinstance(sharding, NamedSharding):
            shardings.assign(value, PlacedValue(sharding, {axis: Origin(i, None) for axis in sharding.spec.axes}))
    found = []
    for operation in graph.operations:
        found.append(ShardedOperation(operation, [*map(shardings.find, operation.operands)]))
        for value, held in zip(operation.results, found[-1].results(), strict=True):
            shardings.assign(value, held)
    found += [ShardedOperation(o, [*map(shardings.find, o.operands)]) for o in _slice_operands(graph, program)]
    return [o for o in found if not o.names_shardings]


def _slice_operands(graph: ProgramGraph, program: Jaxpr) -> Iterator[Operation]:
    """For each loop over slices of its operands the operation that needs these as a whole along the first dimension."""
    for eqn in itertools.chain.from_iterable(jaxpr.eqns for jaxpr in iterate_jaxprs(program)):
        if eqn.primitive is scan_p:
            names = [[(i, d) for d in range(v.aval.ndim)] for i, v in enumerate(eqn.invars)]
            stacked = eqn.params["layout"].split(names)[2]
            operands = [graph.bound[v][-1] if isinstance(v, Var) else None for v in eqn.invars]
            yield Operation(eqn, ShardingRule(names, [], whole=[dims[0] for dims in stacked]), operands, [], 1)


def _constrain(aval: ShapedArray, sharding: Any, held: PlacedValue | None) -> PlacedValue | None:
    """The sharding that a constraint names, with dimensions that it leaves open as they are."""
    if not isinstance(sharding, NamedSharding):
        return held
    filled = fill_unconstrained(sharding, held and held.sharding, aval.ndim)
    return PlacedValue(filled, {}) if isinstance(filled, NamedSharding) else None
