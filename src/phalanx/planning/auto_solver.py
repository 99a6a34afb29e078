"""Choose how the values of a program are sharded: one mixed-integer linear program per mesh axis, the axes in turn.

For one axis of size k, a binary variable `s` says for each class of dimensions whether the axis splits it, and a binary
`t` for each operation with partial results and each name of its sharding rule whether the axis splits the work over
that name. The work of other operations is split as their results are, and the results of elementwise ones as those
operands that the program computes, so that only arguments, results, constraints, loops and reductions change a
sharding. Operations of the same kind on the same classes share their variables: the time of a solution hardly grows
with the number of layers. The objective is the time of one run. Splitting work saves (k - 1) / k of its time, or less
where k does not divide the size, since the device with the largest share decides. An operand that is split otherwise
than the work costs an all-gather or an all-to-all, once for all readers of the value. Work that is split over a reduced
name costs an all-reduce, or half of it where the result is split (a reduce-scatter). The axes that are not being solved
divide the sizes, and where this axis splits a value as well, what they send shrinks: with that term coordinate descent
over the axes reaches the same point from either order in most programs.

The formulation follows Zheng et al., "Alpa" (OSDI 2022), with one variable per name instead of one per strategy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from phalanx.core.sharding_rules import DimClasses
from phalanx.planning.machines import Machine
from phalanx.planning.repeated_layers import tie_repeated_layers
from phalanx.spmd.program_graph import Operation, ProgramGraph, Value

_COMBINED = frozenset({"sum", "max", "min", "prod", "and", "or"})
_CONTRACTIONS = frozenset({"dot_general", "conv_general_dilated"})
# A split that saves no time still saves memory: it counts as this part of the time that reading the bytes takes.
_PREFER_SMALL = 1e-4
_MAX_ROUNDS = 3
_MANY_OPERATIONS = 500  # Beyond, layers that are alike are sharded alike.
_MAX_NODES = 30
_GAP = 5e-3  # The plans of the candidates decide, so that a proof of the optimum is worth little.

AxisNames = tuple[Hashable, ...]  # of mesh axes that count as one
DimClass = Any  # the representative of a class of dimensions


class Axis(NamedTuple):
    """A mesh axis, or several as one, and the cost of a ring along it: seconds of a message, and seconds per byte."""

    name: AxisNames
    size: int
    latency: float
    per_byte: float


def measure_axes(shape: Mapping[Hashable, int], machine: Machine, grouping: Sequence[AxisNames]) -> list[Axis]:
    """The axes of a mesh whose devices are numbered in order, on a machine; those with the fastest links come first.

    Args:
      shape: the sizes of the axes by name.
      machine: the devices.
      grouping: the names of the axes that count as one.
    """
    ids = np.arange(math.prod(shape.values())).reshape(tuple(shape.values()))
    axes = []
    for name in grouping:
        size = math.prod(shape[n] for n in name)
        places = [list(shape).index(n) for n in name]
        groups = np.moveaxis(ids, places, range(-len(places), 0)).reshape(-1, size).tolist()
        latency, total = (machine.collective_seconds("all-gather", nbytes, groups) for nbytes in (0, 1 << 30))
        # `collective_seconds` counts the (k - 1) / k of the bytes that are sent.
        axes.append(Axis(name, size, latency, (total - latency) / (1 << 30)))
    return sorted((a for a in axes if a.size > 1), key=lambda a: a.per_byte)


class _Milp:
    """A mixed-integer linear program under construction: variables between 0 and 1, and rows between bounds.

    Args:
      solved: the points that were found for other programs. Coordinate descent comes to the same program again.
    """

    def __init__(self, solved: dict[Hashable, np.ndarray]) -> None:
        self.costs: list[float] = []
        self.is_integer: list[bool] = []
        self.upper: list[float] = []
        self._rows: dict[tuple[Sequence[tuple[int, float]], float, float], None] = {}  # without duplicates
        self._solved = solved

    def add_variable(self, cost: float = 0.0, is_integer: bool = True, upper: float = 1.0) -> int:
        self.costs.append(cost)
        self.is_integer.append(is_integer)
        self.upper.append(upper)
        return len(self.costs) - 1

    def fix_variable(self, cost: float) -> None:
        """Add a cost that does not depend on the variables, so that the gap is a part of the complete time."""
        self.add_row([(self.add_variable(cost, is_integer=False), 1.0)], 1.0, 1.0)

    def add_row(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        """Require low <= sum of coefficient x variable <= high."""
        self._rows[tuple(terms), low, high] = None

    def solve(self, seconds: float) -> np.ndarray | None:
        """The best point that is found in that time; None if there is none."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_matrix

        if not self.costs:
            return np.zeros(0)
        known = tuple(self.costs), tuple(self.upper), tuple(self.is_integer), tuple(self._rows)
        if known in self._solved:
            return self._solved[known]
        entries = [(c, n, variable) for n, (terms, _, _) in enumerate(self._rows) for variable, c in terms]
        values, rows, columns = np.array(entries).reshape(-1, 3).T
        matrix = coo_matrix((values, (rows.astype(int), columns.astype(int))), (len(self._rows), len(self.costs)))
        bounds = np.array([(low, high) for _, low, high in self._rows]).reshape(-1, 2)
        costs = np.array(self.costs)
        found = milp(
            costs * (1e3 / max(np.abs(costs).max(), 1e-30)),  # HiGHS has absolute tolerances
            constraints=LinearConstraint(matrix.tocsr(), *bounds.T),
            integrality=np.array(self.is_integer, int),
            bounds=Bounds(0, np.array(self.upper)),
            # The limit of nodes, unlike that of time, is the same on every machine.
            options={"time_limit": max(seconds, 0.1), "mip_rel_gap": _GAP, "node_limit": _MAX_NODES},
        )
        if found.x is not None:
            self._solved[known] = found.x
        return found.x

    def solve_with_slack(self, slack: int, seconds: float) -> np.ndarray | None:
        """As `solve`, with the variable `slack` as small as possible."""
        deadline = time.monotonic() + seconds
        self.upper[slack] = 0.0
        if (x := self.solve(seconds)) is not None:
            return x
        costs, self.upper[slack] = self.costs, np.inf
        self.costs = [float(i == slack) for i in range(len(costs))]
        least = self.solve(deadline - time.monotonic())
        self.costs = costs
        if least is None:
            return None
        self.upper[slack] = least[slack] * (1 + 1e-4) + 1e-6
        x = self.solve(deadline - time.monotonic())
        return least if x is None else x


@dataclass(eq=False)
class Solution:
    """Which axes split which classes of dimensions, and the time of a run by the solver's model.

    Attributes:
      split: for each axis the classes that it splits.
      seconds: of all operations and all communication.
    """

    split: dict[AxisNames, set[DimClass]]
    seconds: float


@dataclass(eq=False)
class Solver:
    """The search for shardings of one program.

    Args:
      graph: the program; the solver ties the dimensions of elementwise operations and of layers that are alike.
      machine: the devices.
      axes: the mesh axes.
      fixed: values whose shardings are given.
      memory: the bytes that a device has; None for no limit.
      deadline: until when to search, on the clock of `time.monotonic`.
      forbidden: for an axis, classes of dimensions that it does not split, nor work over them.
    """

    graph: ProgramGraph
    machine: Machine
    axes: Sequence[Axis]
    fixed: dict[Value, Sequence[AxisNames]]
    memory: float | None
    deadline: float
    forbidden: Mapping[AxisNames, Set[DimClass]] = field(default_factory=dict)
    _sent: dict[AxisNames, list[tuple[Value, float, float]]] = field(default_factory=dict)
    _solved: dict[Hashable, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.graph
        if len(graph.operations) > _MANY_OPERATIONS:
            tie_repeated_layers(graph)
        # The readers of other values, such as arguments, may be split otherwise than these, at a cost.
        made = {v for o in graph.operations if not _is_whole_result(o) for v in o.results} - self.fixed.keys()
        self._others = [o for o in graph.operations if not self._tie_elementwise(o, made)]
        others = {id(o) for o in self._others}
        self._plain = [o for o in graph.operations if id(o) not in others]
        self._classes = {v: tuple(map(graph.dims.find, ((v, d) for d in range(len(v.shape))))) for v in graph.values}
        alike: dict[Any, list[Operation]] = {}
        for o in self._others:
            values = [v and (self._classes[v], v.bytes) for v in (*o.operands, *o.results)]
            alike.setdefault((repr(o.rule), o.trips, *values), []).append(o)
        self._alike = list(alike.values())
        unsplit = {graph.dims.find(dim) for dim in graph.unsplit}
        self._sizes: dict[DimClass, set[int]] = {}
        for v, classes in self._classes.items():
            for c, size in zip(classes, v.shape, strict=True):
                if c not in unsplit:
                    self._sizes.setdefault(c, set()).add(size)
        self._live = _find_peaks(graph)

    def _tie_elementwise(self, o: Operation, made: Set[Value]) -> bool:
        """Tie the results of an operation without partial results to its operands; whether that is all it needs."""
        if o.eqn is None or o.rule.reduced or len(o.results) != 1 or o.results[0] in self.fixed:
            return False
        find, is_tied = self.graph.dims.find, not _is_whole_result(o)
        places = {name: (o.results[0], d) for d, name in enumerate(o.rule.results[0])}
        for v, names in zip(o.operands, o.rule.operands, strict=True):
            if v is None:
                continue
            is_tied &= v in made and places.keys() >= set(names)
            for d, name in enumerate(names):
                if v in made and name in places and name not in o.rule.whole:
                    dim, others = find((v, d)), {find(place) for n, place in places.items() if n != name}
                    is_tied &= dim not in others  # as in x + x.T
                    if dim not in others:
                        self.graph.dims.unite(dim, places[name])
        return is_tied

    def solve(self, order: Sequence[Axis]) -> Solution:
        """Solve for the axes in this order, again and again until the time stops falling."""
        best = Solution({a.name: set() for a in order}, math.inf)
        current: dict[AxisNames, set[DimClass]] = {a.name: set() for a in order}
        self._sent.clear()
        for _ in range(1 if len(order) == 1 else _MAX_ROUNDS):
            seconds = 0.0
            for axis in order:
                found = self._solve_axis(axis, current)
                if found is None:  # out of time
                    return best if math.isfinite(best.seconds) else Solution(current, 0.0)
                current[axis.name], seconds = found
            if seconds >= best.seconds * (1 - 1e-6):
                break
            best = Solution({name: set(split) for name, split in current.items()}, seconds)
        return best

    def spec(self, value: Value, solution: Solution) -> list[tuple[Hashable, ...]]:
        """The axes that split each dimension of a value."""
        chosen = solution.split.items()
        return [tuple(n for name, split in chosen if c in split for n in name) for c in self._classes[value]]

    def list_dims(self) -> set[DimClass]:
        """The classes of dimensions of all values."""
        return {c for classes in self._classes.values() for c in classes}

    def link(self, value: Value, d: int) -> DimClass:
        """The representative of all dimensions that operations split together with dimension `d`, as of the batch."""
        return self._linked_dims.find(self._classes[value][d])

    def list_batch_dims(self, values: Sequence[Value]) -> set[DimClass]:
        """The first dimensions of values, and those that operations split with them, such as those of activations."""
        linked = {self.link(v, 0) for v in values if v.shape}
        return {c for c in self.list_dims() if self._linked_dims.find(c) in linked}

    @cached_property
    def _linked_dims(self) -> DimClasses:
        linked = DimClasses()
        for o in self.graph.operations:
            first: dict[Hashable, DimClass] = {}
            for v, d, name in o.named_dims():
                c = self._classes[v][d]
                linked.unite(first.setdefault(name, c), c)
        return linked

    def estimate_memory(self, solution: Solution) -> float:
        """The bytes of a device at the peak, by the solver's model."""
        return max((sum(self._held_bytes(v, solution.split) for v in live) for live in self._live), default=0.0)

    def _held_bytes(
        self, value: Value, split: Mapping[AxisNames, set[DimClass]], without: Set[AxisNames] = frozenset()
    ) -> float:
        """The bytes of a value on one device if the axes, except for some, split it."""
        sizes = {a.name: a.size for a in self.axes}
        held = float(value.bytes)
        for c, size in zip(self._classes[value], value.shape, strict=True):
            parts = math.prod(sizes[n] for n, chosen in split.items() if n not in without and c in chosen)
            held *= math.ceil(size / parts) / max(size, 1)
        return held

    def _solve_axis(self, axis: Axis, current: dict[AxisNames, set[DimClass]]) -> tuple[set[DimClass], float] | None:
        """The classes that one axis splits, the other axes being as they are, and the seconds of that."""
        others = {name: split for name, split in current.items() if name != axis.name}
        # The axes that have not been solved yet will make all values smaller.
        pending = math.prod(a.size for a in self.axes if a is not axis and a.name not in self._sent)
        memory = None if self.memory is None else self.memory * pending
        problem = _AxisProblem(self, axis, others, memory)
        x = problem.solve(self.deadline - time.monotonic())
        if x is None:
            return None
        self._sent[axis.name] = problem.find_sent(x)
        return {c for c, i in problem.split.items() if x[i] > 0.5}, float(np.dot(problem.milp.costs, x))


class _AxisProblem:
    """The linear program of one axis."""

    def __init__(
        self, solver: Solver, axis: Axis, others: Mapping[AxisNames, set[DimClass]], memory: float | None
    ) -> None:
        self._solver, self._axis, self.milp = solver, axis, _Milp(solver._solved)
        sizes = {a.name: a.size for a in solver.axes}
        parts: dict[DimClass, int] = {}
        for name, split in others.items():
            for c in split:
                parts[c] = parts.get(c, 1) * sizes[name]
        self._class_parts = parts
        self._before = 0.0  # the seconds of a run if this axis splits nothing
        self._local = {v: solver._held_bytes(v, others) for v in solver.graph.values}
        self._saved: dict[int, float] = {}  # the part of the work, or of a value, that a variable saves
        self._forbidden = solver.forbidden.get(axis.name, frozenset())
        sizes_of = {c: sizes for c, sizes in solver._sizes.items() if c not in self._forbidden}
        found = {c: self._measure_split(sizes, parts.get(c, 1)) for c, sizes in sizes_of.items()}
        self.split = {c: self._add_split(saved) for c, saved in found.items() if saved}
        # A value, the seconds per byte and of the messages, and the variable that sends it.
        self._collectives: list[tuple[Value, float, float, int]] = []
        self._gathers: dict[tuple[tuple[Value, ...], int], tuple[int, int]] = {}
        for v in solver.graph.values:
            self._split_once(v)
        self._fix()
        self._count_costs(others)
        self.milp.fix_variable(self._before)
        self._excess = None if memory is None else self._limit_memory(memory)

    def _count_costs(self, others: Mapping[AxisNames, set[DimClass]]) -> None:
        solver = self._solver
        for o in solver._plain:
            self._save(o, self._variables(o.results[0]))
        for alike in solver._alike:
            self._add_operations(alike)
        for v in solver.graph.inputs:
            self._lower_cost(v, _PREFER_SMALL * self._local[v] / solver.machine.bandwidth)
        for name, sent in solver._sent.items():
            if name != self._axis.name:
                for v, per_byte, latency in sent:
                    seconds = per_byte * solver._held_bytes(v, others, {name})
                    self._before += seconds + latency
                    self._lower_cost(v, seconds)

    def solve(self, seconds: float) -> np.ndarray | None:
        """The best point that is found in that time; None if there is none."""
        return self.milp.solve(seconds) if self._excess is None else self.milp.solve_with_slack(self._excess, seconds)

    def find_sent(self, x: np.ndarray) -> list[tuple[Value, float, float]]:
        """The values that this axis communicates, with the seconds per byte and for the messages."""
        return [(v, per_byte * x[i], latency * x[i]) for v, per_byte, latency, i in self._collectives if x[i]]

    def _measure_split(self, sizes: Set[int], parts: int) -> float:
        """Which part of dimensions of these sizes, split into parts, the axis takes from a device; 0 if it cannot.

        An axis that does not divide a dimension splits it unevenly: the largest shares count.
        """
        k, least = self._axis.size, min(sizes)
        if least == 0 or (any(n % (parts * k) for n in sizes) and (len(sizes) > 1 or least < parts * k)):
            return 0.0
        return 1 - math.ceil(least / (parts * k)) / math.ceil(least / parts)

    def _add_split(self, saved: float) -> int:
        variable = self.milp.add_variable()
        self._saved[variable] = saved
        return variable

    def _variable(self, value: Value, d: int) -> int | None:
        return self.split.get(self._solver._classes[value][d])

    def _variables(self, value: Value) -> list[int]:
        return [i for c in self._solver._classes[value] if (i := self.split.get(c)) is not None]

    def _split_once(self, value: Value) -> None:
        """An axis splits at most one dimension; one that a value has twice, as x @ x.T may, it splits never."""
        if len(found := self._variables(value)) > 1:
            self.milp.add_row([(i, found.count(i)) for i in sorted(set(found))], 0, 1)

    def _fix(self) -> None:
        known: dict[int, bool] = {}
        for value, spec in self._solver.fixed.items():
            for d, axes in enumerate(spec):
                if (i := self._variable(value, d)) is not None and i not in known:
                    known[i] = set(self._axis.name) <= set(axes)
                    self.milp.add_row([(i, 1.0)], *[float(known[i])] * 2)

    def _lower_cost(self, value: Value, seconds: float) -> None:
        """Count the seconds that splitting a value saves."""
        for i in self._variables(value):
            self.milp.costs[i] -= seconds * self._saved[i]

    def _save(self, o: Operation, chosen: Sequence[int]) -> None:
        """Count the seconds that splitting the work of an operation saves."""
        machine = self._solver.machine
        moved = sum(self._local[v] for v in (*o.operands, *o.results) if v is not None)
        flops, bits = _count_flops(o)
        sizes = {name: v.shape[d] for v, d, name in o.named_dims()}
        shares = math.prod(max(n, 1) / math.ceil(max(n, 1) / self._name_parts(o, name)) for name, n in sizes.items())
        seconds = o.trips * max(machine.contraction_seconds(flops / shares, bits), moved / machine.bandwidth)
        self._before += seconds
        for i in chosen:
            self.milp.costs[i] -= seconds * self._saved[i]

    def _name_parts(self, o: Operation, name: Hashable) -> int:
        classes = self._solver._classes
        return max((self._class_parts.get(classes[v][d], 1) for v, d, n in o.named_dims() if n == name), default=1)

    def _can_split(self, o: Operation, name: Hashable) -> bool:
        """Whether the axis can split the work of an operation over a name."""
        rule = o.rule
        if name in rule.whole or rule.reduced.get(name, "sum") not in _COMBINED:
            return False
        if any(self._solver._classes[v][d] in self._forbidden for v, d, n in o.named_dims() if n == name):
            return False
        # Results that are not partial must be split as the work is.
        for v, names in zip(o.results, rule.results, strict=True):
            if name in names:
                if self._variable(v, names.index(name)) is None:
                    return False
            elif name not in rule.reduced:
                return False
        return True

    def _add_operations(self, alike: Sequence[Operation]) -> None:
        """Add operations whose dimensions have the same classes, and which therefore share all variables."""
        o = alike[0]
        rule = o.rule
        sizes: dict[Hashable, set[int]] = {}
        for v, d, name in o.named_dims():
            sizes.setdefault(name, set()).add(v.shape[d])
        found = {name: self._measure_split(n, self._name_parts(o, name)) for name, n in sizes.items()}
        names = [name for name, saved in found.items() if saved and self._can_split(o, name)]
        if any(name in rule.reduced for name in names):
            work = {name: self._add_split(found[name]) for name in names}
            self.milp.add_row([(i, 1.0) for i in work.values()], 0, 1)
            reducing = [work[name] for name in rule.reduced if name in work]
            for n, names_of_result in enumerate(rule.results):
                self._reduce([o.results[n] for o in alike], names_of_result, work, reducing, o.trips)
        else:
            work = self._work_of_results(o, names)
        for o in alike:
            self._save(o, list(work.values()))
        for n, names_of_operand in enumerate(rule.operands):
            if o.operands[n] is not None:
                self._read([o.operands[n] for o in alike], names_of_operand, work, o.trips)

    def _work_of_results(self, o: Operation, names: Sequence[Hashable]) -> dict[Hashable, int]:
        """For work without partial results, which is split as the results are: their variables, by name."""
        work: dict[Hashable, int] = {}
        for v, result in zip(o.results, o.rule.results, strict=True):
            for d, name in enumerate(result):
                if (s := self._variable(v, d)) is None:
                    continue
                if name not in names:
                    self.milp.add_row([(s, 1.0)], 0, 0)
                elif (first := work.setdefault(name, s)) != s:
                    self.milp.add_row([(s, 1.0), (first, -1.0)], 0, 0)
        return work

    def _read(
        self, values: Sequence[Value], names: Sequence[Hashable], work: Mapping[Hashable, int], trips: int
    ) -> None:
        """The cost of operands: an all-gather where they are split and the work is not, an all-to-all otherwise."""
        row = self.milp.add_row
        own = [(work[n], -1.0) for n in dict.fromkeys(names) if n in work]
        for d, name in enumerate(names):
            if (s := self._variable(values[0], d)) is None or work.get(name) == s:
                continue
            gather, exchange = self._gather(tuple(dict.fromkeys(values)), trips)
            row([(gather, -1.0), (s, 1.0), *own], -np.inf, 0)
            row([(exchange, -1.0), (s, 1.0), *([(work[name], -1.0)] if name in work else ())], -np.inf, 0)

    def _gather(self, values: tuple[Value, ...], trips: int) -> tuple[int, int]:
        """The variables of all-gathers of values for all readers: what they cost beyond all-to-alls, and these."""
        if (values, trips) not in self._gathers:
            gather, exchange = (self.milp.add_variable(is_integer=False) for _ in range(2))
            per_byte, part = self._axis.per_byte * trips, 1 / self._axis.size
            for v in values:
                self._send(v, gather, (1 - part) * per_byte, 0.0)
                self._send(v, exchange, part * per_byte, self._axis.latency * trips)
            self._gathers[values, trips] = gather, exchange
        return self._gathers[values, trips]

    def _send(self, v: Value, variable: int, per_byte: float, latency: float) -> None:
        """Count the seconds that a variable costs, since a value is sent."""
        self.milp.costs[variable] += per_byte * self._local[v] + latency
        self._collectives.append((v, per_byte, latency, variable))

    def _reduce(
        self, values: Sequence[Value], names: Sequence[Hashable], work: Mapping[Hashable, int], reducing: Sequence[int],
        trips: int,
    ) -> None:  # fmt: skip
        """The cost of results that may be partial: an all-reduce where they are, half of it where they are split."""
        row = self.milp.add_row
        for d, name in enumerate(names):
            if (s := self._variable(values[0], d)) is None:
                continue
            split = [(work[name], -1.0)] if name in work else []
            if split:
                row([(s, 1.0), *split], 0, np.inf)
            row([(s, 1.0), *split, *((r, -1.0) for r in reducing)], -np.inf, 0)
        per_byte, latency = self._axis.per_byte * trips, self._axis.latency * trips
        for v in values:
            for r in reducing:
                self._send(v, r, 2 * per_byte, 2 * latency)
        if own := self._variables(values[0]):
            scattered = self.milp.add_variable(is_integer=False)
            for v in values:
                self._send(v, scattered, -per_byte, -latency)
            for chosen in (reducing, own):
                row([(scattered, 1.0), *((i, -1.0) for i in dict.fromkeys(chosen))], -np.inf, 0)

    def _limit_memory(self, limit: float) -> int:
        """Keep the live values within the limit; returns the variable by whose multiple of the limit they exceed it."""
        excess = self.milp.add_variable(is_integer=False)
        for live in self._solver._live:
            terms: dict[int, float] = {}
            for v in live:
                for i in self._variables(v):
                    terms[i] = terms.get(i, 0.0) - self._local[v] * self._saved[i] / limit
            total = sum(self._local[v] for v in live) / limit
            # HiGHS drops coefficients below 1e-9.
            self.milp.add_row([*((i, c) for i, c in terms.items() if c < -1e-8), (excess, -1.0)], -np.inf, 1 - total)
        return excess


def _is_whole_result(o: Operation) -> bool:
    """Whether a result of an operation on operands has a dimension that cannot be split."""
    given = any(v is not None for v in o.operands)
    return given and any(name in o.rule.whole for names in o.rule.results for name in names)


def _count_flops(o: Operation) -> tuple[int, int]:
    """The arithmetic of a matrix product or convolution, and the bits of its operands; 0 for other operations."""
    if o.eqn is None or o.eqn.primitive.name not in _CONTRACTIONS or o.operands[1] is None:
        return 0, 0
    rhs, out = o.operands[1], o.results[0]
    contracted = [n for n, name in zip(rhs.shape, o.rule.operands[1], strict=True) if name not in o.rule.results[0]]
    return 2 * math.prod(out.shape) * math.prod(contracted), 8 * rhs.aval.dtype.itemsize


def _find_peaks(graph: ProgramGraph, segments: int = 4) -> list[list[Value]]:
    """The values that are live where most bytes are, in each of several stretches of the program."""
    start: dict[Value, int] = dict.fromkeys(graph.inputs, 0)
    end: dict[Value, int] = {}
    for n, o in enumerate(graph.operations):
        for v in (*o.operands, *o.results):
            if v is not None:
                start.setdefault(v, n)
                end[v] = n
    last = len(graph.operations)
    for v, n in graph.stacks:
        start[v] = min(start.get(v, n), n)
        end[v] = max(end.get(v, n), n)
    end.update(dict.fromkeys((*graph.inputs, *graph.outputs), last))
    change = np.zeros(last + 2)
    for v, n in start.items():
        change[n] += v.bytes
        change[end[v] + 1] -= v.bytes
    live = np.cumsum(change)[: last + 1]
    edges = sorted({round(i * (last + 1) / segments) for i in range(segments + 1)})
    points = [a + int(np.argmax(live[a:b])) for a, b in zip(edges, edges[1:], strict=False)]
    return [[v for v, n in start.items() if n <= point <= end[v]] for point in dict.fromkeys(points)]
