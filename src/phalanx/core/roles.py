"""Roles of programs: which dimensions of its inputs and results a whole program treats alike, read off its equations.

Two dimensions are the same where an equation says so; they cannot be split where one equation says that, or where a
partial result would have to be whole before the next operation reads it. The primitives that hold programs (calls,
loops, branches) say their own roles with this; `spmd.manual_roles` reads on for per-device programs. Builds on
`core.primitive`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from phalanx.core.errors import RuleError
from phalanx.core.jaxpr import Eqn, Jaxpr, derivation
from phalanx.core.primitive import LINEAR, Roles

Value = tuple[Hashable, int]  # something with dimensions, and how many


@derivation
def program_roles(jaxpr: Jaxpr) -> Roles:
    """The roles of the dimensions of a program, as if it were one operation.

    A reduced dimension stays one where every result that lacks it is a partial one, combined alike; else it is whole.
    """
    return ProgramWalk(jaxpr).roles()


def equation_roles(eqn: Eqn) -> Roles:
    """The roles of one equation; every dimension is whole where its primitive does not tell."""
    avals = [v.aval for v in eqn.invars]
    try:
        return eqn.primitive.roles(*[a.unsharded() for a in avals], **eqn.params)
    except RuleError:
        names = [[(i, d) for d in range(v.aval.ndim)] for i, v in enumerate((*eqn.invars, *eqn.outvars))]
        count = len(eqn.invars)
        return Roles(names[:count], names[count:], whole={name for value in names for name in value})


class Classes:
    """The dimensions of values, in classes that are the same index; an operation's roles are one part of it."""

    def __init__(self) -> None:
        self._parents: dict[tuple, tuple] = {}
        self._whole: list[tuple] = []
        self._parts: list[tuple[Roles, dict]] = []

    def find(self, dim: tuple) -> tuple:
        """What stands for the class of a dimension."""
        while (parent := self._parents.get(dim)) is not None:
            dim = parent
        return dim

    def of(self, value: Value) -> list[tuple]:
        """The classes of a value's dimensions."""
        return [self.find((value[0], d)) for d in range(value[1])]

    def unite(self, a: tuple, b: tuple) -> None:
        """Say that two dimensions are the same."""
        a, b = self.find(a), self.find(b)
        if a != b:
            self._parents[b] = a

    def same(self, a: Value, b: Value) -> None:
        """Say that two values have the same dimensions."""
        for x, y in zip(self.of(a), self.of(b), strict=True):
            self.unite(x, y)

    def keep_whole(self, value: Value) -> None:
        """Say that no dimension of a value can be split."""
        self._whole.extend((value[0], d) for d in range(value[1]))

    def add(self, roles: Roles, operands: Iterable[Hashable], results: Iterable[Hashable]) -> dict:
        """Take in what an operation says of its operands and results; None for one without dimensions.

        Gives for each of the operation's own names one dimension that it stands for, except for the whole ones.
        """
        named: dict = {}
        told = {*roles.reduced, *(name for names in roles.results for name in names)}
        for value, names in zip((*operands, *results), (*roles.operands, *roles.results), strict=True):
            for d, name in enumerate(names):
                if name in roles.whole:
                    self._whole.append((value, d))
                elif name in told:  # else nothing reads it
                    self.unite(named.setdefault(name, (value, d)), (value, d))
        self._parts.append((roles, named))
        return named

    def whole(self) -> set:
        """The classes that cannot be split: some operation says so, or has two dimensions of its own in one class."""
        found = {self.find(dim) for dim in self._whole}
        for _, named in self._parts:
            met = Counter(map(self.find, named.values()))
            found.update(c for c, count in met.items() if count > 1)
        return found

    def agreed(self, allowed: Callable[[tuple], bool]) -> tuple[dict, set]:
        """The classes that every part reduces, in one way, and those that only some do."""
        ways: dict[tuple, list[str]] = {}
        for roles, named in self._parts:
            for name, way in roles.reduced.items():
                if name in named:
                    ways.setdefault(self.find(named[name]), []).append(way)
        count = len(self._parts)
        reduced = {c: w[0] for c, w in ways.items() if len(w) == count and len(set(w)) == 1 and allowed(c)}
        return reduced, ways.keys() - reduced.keys()

    def roles(self, operands: Sequence[Value], results: Sequence[Value], reduced: dict, whole: set) -> Roles:
        """The roles of an operation with these operands and results.

        Args:
          operands, results: its values.
          reduced: how the partial results along a class combine.
          whole: the classes that cannot be split.
        """
        numbers: dict[tuple, int] = {}
        ins, outs = (
            [[numbers.setdefault(c, len(numbers)) for c in self.of(v)] for v in vs] for vs in (operands, results)
        )
        read, written = ({n for names in side for n in names} for side in (ins, outs))
        ways: dict[Hashable, str] = {numbers[c]: way for c, way in reduced.items() if c in numbers and c not in whole}
        held = {numbers[c] for c in whole if c in numbers}
        # A dimension that is read and goes nowhere is needed whole; one that nothing reads may be split as it likes.
        met = {numbers.get(self.find(dim)) for _, named in self._parts for dim in named.values()}
        axes: dict = {axis: None for roles, _ in self._parts for axis in roles.axes}
        return Roles(ins, outs, ways, held | ((read & met) - written - ways.keys()), axes=axes)


def joined_roles(
    operands: Sequence[Any],
    results: Sequence[Any],
    parts: Iterable[tuple[Roles, Iterable[int], Iterable[int]]],
    *,
    carried: Sequence[tuple[int, int]] = (),
    reduces: bool = True,
) -> Roles:
    """The roles of an operation that runs several programs on its operands.

    Args:
      operands, results: the types of its operands and results, which are numbered together.
      parts: for each program its roles, and the numbers of what it reads and gives.
      carried: pairs of an operand and the result that comes in its place the next time round.
      reduces: whether a dimension that every program reduces may be split; no carried result may lack it.
    """
    values = [(i, a.ndim) for i, a in enumerate((*operands, *results))]
    classes = Classes()
    for roles, reads, gives in parts:
        classes.add(roles, reads, gives)
    for i, j in carried:
        classes.same(values[i], values[j])
    reduced, torn = classes.agreed(lambda c: reduces and all(c in classes.of(values[j]) for _, j in carried))
    count = len(operands)
    return classes.roles(values[:count], values[count:], reduced, classes.whole() | torn)


class ProgramWalk:
    """What the equations of a program say of the dimensions of its values.

    classes: the dimensions that are the same.
    steps: for each equation its roles, and what `Classes.add` gave for it.
    reads, gives: the program's inputs and results.
    reduced, torn: what `_partial_results` found.
    """

    def __init__(self, jaxpr: Jaxpr):
        self.classes = Classes()
        for v in jaxpr.constvars:
            self.classes.keep_whole((v, v.aval.ndim))
        self.steps = []
        for eqn in jaxpr.eqns:
            roles = equation_roles(eqn)
            self.steps.append((eqn, roles, self.classes.add(roles, eqn.invars, eqn.outvars)))
        self.reads, self.gives = ([(v, v.aval.ndim) for v in side] for side in (jaxpr.invars, jaxpr.outvars))
        self.reduced, self.torn = _partial_results(self.classes, self.steps, self.gives)

    def roles(self, whole: Iterable = ()) -> Roles:
        """The roles of the program, some more classes of which cannot be split."""
        held = self.classes.whole() | self.torn | set(whole)
        return self.classes.roles(self.reads, self.gives, self.reduced, held)


def _partial_results(classes: Classes, steps: Iterable[tuple], outs: Sequence[Value]) -> tuple[dict, set]:
    """Follow the partial results that splitting a reduced dimension leaves.

    Returns:
      How they combine, for the classes of which all results that lack them are partial; and the classes of the others.
    """
    partial: dict[Any, dict] = {}  # by variable: how to combine its parts along which classes
    torn: set = set()
    for eqn, roles, named in steps:
        torn |= _passed_on(eqn, partial)
        for name in roles.reduced.keys() & named.keys():
            for v, names in zip(eqn.outvars, roles.results, strict=True):
                if name not in names:
                    partial.setdefault(v, {})[classes.find(named[name])] = roles.reduced[name]
    reduced: dict = {}
    for c in {c for held in partial.values() for c in held} - torn:
        ways = {partial.get(v, {}).get(c) for v, ndim in outs if c not in classes.of((v, ndim))}
        if len(ways) == 1 and None not in ways:
            reduced[c] = ways.pop()
        elif ways - {None}:
            torn.add(c)
    return reduced, torn


def _passed_on(eqn: Eqn, partial: dict) -> set:
    """Mark the results of an operation on partial results; give the classes of those that it needs as a whole."""
    operands = [partial.get(v, {}) for v in eqn.invars]
    needed = set()
    for c in {c for held in operands for c in held}:
        # A sum passes through what is linear in all its operands together.
        if type(eqn.primitive).jvp is LINEAR and all(held.get(c) == "sum" for held in operands):
            for v in eqn.outvars:
                partial.setdefault(v, {})[c] = "sum"
        else:
            needed.add(c)
    return needed
