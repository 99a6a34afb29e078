"""Conflicts between the shardings of operands, which XLA resolves by communication that nobody asked for.

The shardings of the inputs of a jaxpr are propagated through its equations by their sharding rules. Two operands
conflict if they split dimensions of one name over different axes, or dimensions of two names over the same axis; an
operand alone does if it splits a dimension that the operation needs as a whole. XLA decides which operand keeps its
sharding; for the equations that follow, the largest one does here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from phalanx.core import Eqn, Jaxpr, ShapedArray, ShardingRule, Var, equation_sharding_rule, inner_jaxprs
from phalanx.core.source_info import find_user_frame
from phalanx.runtime import fill_unconstrained
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec, Sharding


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
        size = self.aval.size * self.aval.dtype.itemsize // min(before, after)
        return size == nbytes and (kind not in ("all-gather", "all-to-all") or is_gather == (kind == "all-gather"))


def format_line(eqn: Eqn) -> str:
    """The user's line of an equation as `file:line`; "" if it is unknown."""
    frame = find_user_frame(eqn.source)
    return "" if frame is None else f"{frame.file_name}:{frame.line_num}"


class Operation(NamedTuple):
    """An equation with the shardings of its operands, as far as they are known."""

    eqn: Eqn
    held: list[PlacedValue | None]
    rule: ShardingRule

    def conflicts(self) -> list[Conflict]:
        """The operands that XLA may reshard, if large operands keep their shardings or if small ones do."""
        orders = (self._by_size(), self._by_size()[::-1])
        found = [k for order in orders for excluded in ((), self._one_sided()) for k in self.resolve(order, excluded)]
        return list({(k.operand, k.wanted.spec): k for k in found[::-1]}.values())[::-1]

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
        return {name for pairs in dims for name, axes in pairs if name in self.rule.reduced and not axes}

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
                if axes and name not in assigned and name not in self.rule.whole and used.isdisjoint(axes):
                    assigned[name] = axes
                    used.update(axes)
        return assigned

    def results(self) -> list[PlacedValue | None]:
        """The shardings of the results once the operands agree."""
        first = next((h for h in self.held if h is not None), None)
        if first is None:
            return [None] * len(self.eqn.outvars)
        assigned = self._assign_axes(self._by_size())
        return [
            self._result(v.aval, [assigned.get(n, ()) for n in names], first.sharding) for v, names in self._named()
        ]

    def _named(self) -> Iterator[tuple[Var, tuple[Any, ...]]]:
        return zip(self.eqn.outvars, self.rule.results, strict=True)

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


def find_operations(program: Jaxpr, in_shardings: Sequence[Sharding | None]) -> list[Operation]:
    """Propagate the shardings of the inputs of a jaxpr to the operands of its equations.

    Args:
      program: the jaxpr.
      in_shardings: of its inputs; None where they are unknown, or in the types.

    Returns:
      The equations in order, inner jaxprs included, except for those that call jaxprs or name shardings.
    """
    found: list[Operation] = []
    held = [
        None if s is None else PlacedValue(s, {axis: Origin(i, None) for axis in s.spec.axes})
        for i, s in enumerate(_named(s, v) for s, v in zip(in_shardings, program.invars, strict=True))
    ]
    _walk(program, held, found)
    return found


def _named(sharding: Any, v: Any) -> NamedSharding | None:
    sharding = v.aval.type_sharding or sharding
    return sharding if isinstance(sharding, NamedSharding) else None


def _walk(program: Jaxpr, inputs: Sequence[PlacedValue | None], found: list[Operation]) -> list[PlacedValue | None]:
    """Propagate through a jaxpr and return the shardings of its outputs."""
    env: dict[Any, PlacedValue | None] = dict(zip(program.invars, inputs, strict=True))
    read = lambda v: env.get(v) if isinstance(v, Var) else None
    for eqn in program.eqns:
        held = [read(v) for v in eqn.invars]
        if eqn.primitive.call_like:
            results = _walk_call(eqn, held, found)
        elif eqn.primitive.target_shardings is not None:
            results = [_constrain(eqn, s, held[0]) for s in eqn.primitive.target_shardings(**eqn.params)]
        else:
            operation = Operation(eqn, held, equation_sharding_rule(eqn))
            found.append(operation)
            results = operation.results()
        for v, h in zip(eqn.outvars, results, strict=True):
            stated = v.aval.type_sharding
            env[v] = h if stated is None else PlacedValue(stated, {} if h is None else h.origins)
    return [read(v) for v in program.outvars]


def _constrain(eqn: Eqn, sharding: Any, held: PlacedValue | None) -> PlacedValue | None:
    """The sharding that a constraint names, with dimensions that it leaves open as they are."""
    if not isinstance(sharding, NamedSharding):
        return held
    ndim = eqn.outvars[0].aval.ndim
    filled = fill_unconstrained(sharding, held and held.sharding, ndim)
    return PlacedValue(filled, {}) if isinstance(filled, NamedSharding) else None


def _walk_call(eqn: Eqn, held: list[PlacedValue | None], found: list[Operation]) -> list[PlacedValue | None]:
    """Propagate through the jaxprs of an equation.

    Their inputs are the last operands of the equation, in all primitives that call jaxprs. A loop over slices of an
    operand drops its first dimension, and stacks results along a first dimension.
    """
    results: list[PlacedValue | None] = [None] * len(eqn.outvars)
    if eqn.params.get("manual"):  # In a `shard_map` values are shards.
        mesh, specs = eqn.params["mesh"], eqn.params["out_specs"]
        return [PlacedValue(NamedSharding(mesh, spec), {}) for spec in specs] if isinstance(mesh, Mesh) else results
    for inner in inner_jaxprs(eqn.params):
        count = min(len(inner.invars), len(eqn.invars))
        skipped: list[PlacedValue | None] = [None] * (len(inner.invars) - count)
        pairs = zip(eqn.invars[-count:], held[-count:], inner.invars[-count:], strict=True) if count else ()
        outs = _walk(inner, [*skipped, *(_fit(h, a.aval.ndim, v.aval.ndim) for a, h, v in pairs)], found)
        if len(outs) == len(results):
            ranks = zip(outs, inner.outvars, eqn.outvars, strict=True)
            results = [a or _fit(h, v.aval.ndim, y.aval.ndim) for a, (h, v, y) in zip(results, ranks, strict=True)]
    return results


def _fit(held: PlacedValue | None, ndim: int, wanted: int) -> PlacedValue | None:
    """The sharding of a slice along the first dimension, or of a stack of slices."""
    if held is None or ndim == wanted:
        return held
    dims = held.sharding.axes(ndim)
    dims = ((),) * (wanted - ndim) + dims[max(ndim - wanted, 0) :]
    return held._replace(sharding=_with_dims(held.sharding, dims))
