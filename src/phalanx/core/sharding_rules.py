"""Sharding rules of whole jaxprs, derived from the rules of their equations.

Two dimensions belong to one class if some equation gives them the same name, directly or through other dimensions
(`DimClasses` is a union-find structure). A class needs replication if some equation requires it, or if an equation
would read a partial result, such as a sum over one shard, before the partial results are combined. Call-like primitives
(calls, loops, branches) derive their own sharding rules with this module; `spmd.shard_map_sharding_rule` extends it to
per-device jaxprs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from phalanx.core.error_classes import RuleError
from phalanx.core.jaxpr import Eqn, Jaxpr, cached_on_jaxpr
from phalanx.core.primitive import LINEAR, ShardingRule

Value = tuple[Hashable, int]  # an identifier and the number of dimensions


@cached_on_jaxpr
def program_sharding_rule(jaxpr: Jaxpr) -> ShardingRule:
    """The sharding rule of a jaxpr as if it were one operation.

    A dimension is reduced if every result without it is a partial result, and all are combined by the same reduction.
    If only some are, the dimension needs replication.
    """
    return JaxprDims(jaxpr).sharding_rule()


def equation_sharding_rule(eqn: Eqn) -> ShardingRule:
    """The sharding rule of an equation; without a rule of its primitive, every dimension needs replication."""
    avals = [v.aval for v in eqn.invars]
    try:
        return eqn.primitive.sharding_rule(*[a.drop_sharding() for a in avals], **eqn.params)
    except RuleError:
        names = [[(i, d) for d in range(v.aval.ndim)] for i, v in enumerate((*eqn.invars, *eqn.outvars))]
        count = len(eqn.invars)
        return ShardingRule(names[:count], names[count:], whole={name for value in names for name in value})


class DimClasses:
    """Equivalence classes of the dimensions of values, built from the sharding rules of operations."""

    def __init__(self) -> None:
        self._parents: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._whole: list[tuple[Any, ...]] = []
        self._parts: list[tuple[ShardingRule, dict[Any, Any]]] = []

    def find(self, dim: tuple[Any, ...]) -> tuple[Any, ...]:
        """The representative of a dimension's class."""
        while (parent := self._parents.get(dim)) is not None:
            dim = parent
        return dim

    def of(self, value: Value) -> list[tuple[Any, ...]]:
        """The classes of a value's dimensions."""
        return [self.find((value[0], d)) for d in range(value[1])]

    def unite(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
        """Merge the classes of two dimensions."""
        a, b = self.find(a), self.find(b)
        if a != b:
            self._parents[b] = a

    def same(self, a: Value, b: Value) -> None:
        """Merge the classes of corresponding dimensions of two values."""
        for x, y in zip(self.of(a), self.of(b), strict=True):
            self.unite(x, y)

    def keep_whole(self, value: Value) -> None:
        """Record that all dimensions of a value need replication."""
        self._whole.extend((value[0], d) for d in range(value[1]))

    def add(self, rule: ShardingRule, operands: Iterable[Hashable], results: Iterable[Hashable]) -> dict[Any, Any]:
        """Add the sharding rule of an operation with these operands and results.

        Returns one dimension for each name of the rule, except for the names that need replication.
        """
        named: dict[Any, Any] = {}
        used = {*rule.reduced, *(name for names in rule.results for name in names)}
        for value, names in zip((*operands, *results), (*rule.operands, *rule.results), strict=True):
            for d, name in enumerate(names):
                if name in rule.whole:
                    self._whole.append((value, d))
                elif name in used:  # other names do not matter, since no result depends on them
                    self.unite(named.setdefault(name, (value, d)), (value, d))
        # Kept for `whole` and `find_reduced`, which need the classes after all merges.
        self._parts.append((rule, named))
        return named

    def whole(self) -> set[Any]:
        """The classes that need replication: by a rule, or because one operation has two of its names in the class."""
        # Sharding a class that one operation has twice would shard both dimensions over the same axis, so that each
        # device would hold a diagonal block only.
        met = [Counter(map(self.find, named.values())) for _, named in self._parts]
        return {self.find(dim) for dim in self._whole}.union(c for m in met for c, count in m.items() if count > 1)

    def find_reduced(
        self, allowed: Callable[[tuple[Any, ...]], bool]
    ) -> tuple[dict[tuple[Any, ...], str], set[tuple[Any, ...]]]:
        """The classes that all operations reduce in the same way, and the classes that only some of them reduce."""
        ways: dict[tuple[Any, ...], list[str]] = {}
        for rule, named in self._parts:
            for name, way in rule.reduced.items():
                if name in named:
                    ways.setdefault(self.find(named[name]), []).append(way)
        # A jaxpr that ignores the dimension would return its complete result on every device, which a sum would
        # multiply.
        count = len(self._parts)
        reduced = {c: w[0] for c, w in ways.items() if len(w) == count and len(set(w)) == 1 and allowed(c)}
        return reduced, ways.keys() - reduced.keys()

    def sharding_rule(
        self, operands: Sequence[Value], results: Sequence[Value], reduced: dict[Any, Any], whole: set[Any]
    ) -> ShardingRule:
        """The sharding rule of an operation with these operands and results.

        Args:
          operands, results: the values.
          reduced: by class, the reduction that combines partial results.
          whole: the classes that need replication.
        """
        # Classes are numbered in order of appearance, so that rules of equal jaxprs are equal.
        numbers: dict[tuple[Any, ...], int] = {}
        ins, outs = (
            [[numbers.setdefault(c, len(numbers)) for c in self.of(v)] for v in vs] for vs in (operands, results)
        )
        # Class numbers that appear in operands and in results.
        read, written = ({n for names in side for n in names} for side in (ins, outs))
        ways: dict[Hashable, str] = {numbers[c]: way for c, way in reduced.items() if c in numbers and c not in whole}
        held = {numbers[c] for c in whole if c in numbers}
        # An input dimension that is used, but is in no result, needs replication. An unused one does not.
        met = {numbers.get(self.find(dim)) for _, named in self._parts for dim in named.values()}
        axes: dict[Any, Any] = {axis: None for rule, _ in self._parts for axis in rule.axes}
        return ShardingRule(ins, outs, ways, held | ((read & met) - written - ways.keys()), axes=axes)


def join_sharding_rules(
    operands: Sequence[Any],
    results: Sequence[Any],
    parts: Iterable[tuple[ShardingRule, Iterable[int], Iterable[int]]],
    *,
    carried: Sequence[tuple[int, int]] = (),
    reduces: bool = True,
) -> ShardingRule:
    """The sharding rule of an operation that applies several jaxprs to its operands.

    Args:
      operands, results: the types of its operands and results, which are numbered together.
      parts: for each jaxpr its sharding rule, and the numbers of its inputs and results.
      carried: pairs of an operand and a result that becomes this operand in the next iteration.
      reduces: whether a dimension that every jaxpr reduces may be sharded; every carried result must have it.
    """
    values = [(i, a.ndim) for i, a in enumerate((*operands, *results))]
    classes = DimClasses()
    for part in parts:
        classes.add(*part)
    for i, j in carried:
        classes.same(values[i], values[j])
    # A carried result without the dimension would be a partial result that the next iteration reads.
    reduced, torn = classes.find_reduced(lambda c: reduces and all(c in classes.of(values[j]) for _, j in carried))
    count = len(operands)
    return classes.sharding_rule(values[:count], values[count:], reduced, classes.whole() | torn)


class JaxprDims:
    """The dimension classes of a jaxpr.

    Args:
      classes: the equivalence classes of dimensions.
      steps: each equation with its sharding rule and the result of `DimClasses.add`.
      reads, gives: the inputs and results of the jaxpr.
      reduced, torn: the results of `_find_partial_results`: classes that may be sharded although the results lack them,
        and classes that need replication because not all partial results could be combined at the end.
    """

    def __init__(self, jaxpr: Jaxpr):
        self.classes = DimClasses()
        # Constants are embedded in the program, and every device has all of them.
        for v in jaxpr.constvars:
            self.classes.keep_whole((v, v.aval.ndim))
        rules = [(eqn, equation_sharding_rule(eqn)) for eqn in jaxpr.eqns]
        self.steps = [(eqn, rule, self.classes.add(rule, eqn.invars, eqn.outvars)) for eqn, rule in rules]
        self.reads, self.gives = ([(v, v.aval.ndim) for v in side] for side in (jaxpr.invars, jaxpr.outvars))
        self.reduced, self.torn = _find_partial_results(self.classes, self.steps, self.gives)

    def sharding_rule(self, whole: Iterable[Any] = ()) -> ShardingRule:
        """The sharding rule of the jaxpr; the classes `whole` need replication as well."""
        held = self.classes.whole() | self.torn | set(whole)
        return self.classes.sharding_rule(self.reads, self.gives, self.reduced, held)


def _find_partial_results(
    classes: DimClasses, steps: Iterable[tuple[Any, ...]], outs: Sequence[Value]
) -> tuple[dict[tuple[Any, ...], str], set[tuple[Any, ...]]]:
    """Follow the partial results of sharded reductions through the equations.

    Returns:
      By class, the reduction that combines partial results, if all results without the class are partial; and the
      classes for which only some are, or whose partial results an equation reads.
    """
    # By variable and class, the reduction that combines the partial results.
    partial: dict[Any, dict[Any, Any]] = {}
    torn: set[Any] = set()
    for eqn, rule, named in steps:
        torn |= _propagate_partial(eqn, partial)
        for name in rule.reduced.keys() & named.keys():
            for v, names in zip(eqn.outvars, rule.results, strict=True):
                if name not in names:
                    partial.setdefault(v, {})[classes.find(named[name])] = rule.reduced[name]
    reduced: dict[Any, Any] = {}
    for c in set().union(*partial.values()) - torn:
        # None stands for a result without the class that is complete on every device.
        ways = {partial.get(v, {}).get(c) for v, ndim in outs if c not in classes.of((v, ndim))}
        if len(ways) == 1 and None not in ways:
            reduced[c] = ways.pop()
        elif ways - {None}:
            torn.add(c)
    return reduced, torn


def _propagate_partial(eqn: Eqn, partial: dict[Any, Any]) -> set[Any]:
    """Mark the results of an equation that are partial; returns the classes of operands that must be combined first."""
    operands = [partial.get(v, {}) for v in eqn.invars]
    needed = set()
    for c in set().union(*operands):
        # An operation that is linear in all operands together maps partial sums to partial sums, so that they may be
        # added after it. No operation does that for maxima: max(a) + max(b) is not max(a + b).
        if type(eqn.primitive).jvp is LINEAR and all(held.get(c) == "sum" for held in operands):
            for v in eqn.outvars:
                partial.setdefault(v, {})[c] = "sum"
        else:
            needed.add(c)
    return needed
