"""`AUTO`: solve for shardings, plan them and the usual ones, and choose the fastest plan that fits into the memory.

`choose_shardings` is called when a stage of `jit` is lowered (see `spmd.auto_resolution`). The solver's model knows
neither fusion nor the compiler's choices, so every candidate is compiled, and its plan decides: the choice is
never worse by plan than the usual shardings, or than the ones that the given arguments have.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from phalanx.core import Eqn, Jaxpr, Literal, ShardingError, Var
from phalanx.lax.sharding_constraint import result_sharding_p, sharding_constraint_p
from phalanx.planning.auto_candidates import Spec, list_candidates, match_state, split_dim
from phalanx.planning.auto_solver import Solution, Solver, measure_axes
from phalanx.planning.candidate_plans import CandidatePlans
from phalanx.planning.chosen_shardings import AutoChoice
from phalanx.planning.machines import HOST, Machine, find_machine, find_machine_of
from phalanx.runtime import named_sharding
from phalanx.sharding import AbstractMesh, AutoSharding, Mesh, NamedSharding, PartitionSpec
from phalanx.spmd.auto_resolution import sharding_choices
from phalanx.spmd.program_graph import build_graph
from phalanx.spmd.stages import Traced
from phalanx.tree import tree_flatten_with_path

# Solutions for a smaller and smaller part of the memory are planned until one fits.
_MEMORY_ATTEMPTS = 4
_TIGHTER = 0.9
_MOST_DIMS = 4  # of the model that are split alone


def choose_shardings(traced: Traced, mark: AutoSharding, mesh: Mesh | AbstractMesh, given: Sequence[Any]) -> AutoChoice:
    """Choose shardings in the place of AUTO; see `spmd.auto_resolution`.

    Raises:
      ShardingError: no candidate can be compiled, or none fits into the memory.
    """
    return Search(traced, mark, mesh, given).choose()


sharding_choices.provide(choose_shardings=choose_shardings)


def _find_machine(mark: AutoSharding, mesh: Mesh | AbstractMesh) -> Machine:
    if (machine := find_machine(mark.target, "AUTO, argument target")) is not None:
        return machine
    device = mesh.flat_devices[0] if isinstance(mesh, Mesh) else mesh.abstract_device
    return HOST if device is None or mark.target == "cpu" else find_machine_of(device.device_kind)


class Search:
    """The choice for one program.

    Args:
      traced, mark, mesh, given: as in `choose_shardings`.

    Attributes:
      plans: the plans of the candidates.
    """

    def __init__(self, traced: Traced, mark: AutoSharding, mesh: Mesh | AbstractMesh, given: Sequence[Any]) -> None:
        self._traced, self._mark, self._mesh = traced, mark, mesh
        self._machine = _find_machine(mark, mesh)
        limit = self._machine.memory if mark.memory is None else mark.memory
        self._limit = None if limit == float("inf") else limit
        options, program = traced.options, traced.program
        self._given = [
            None if isinstance(s, AutoSharding) else s or g for s, g in zip(options.in_shardings, given, strict=True)
        ]
        self._own = given
        self._is_auto = [isinstance(s, AutoSharding) for s in options.in_shardings]
        args, kwargs = traced._call.dynamic()
        self._paths = traced._call.paths()
        self._inputs = [(p[1:], a) for (p, _), a in zip(_paths((args, kwargs)), program.in_avals, strict=True)]
        outputs = [(p, a) for (p, _), a in zip(_paths(traced.out_info), program.out_avals, strict=True)]
        pairs = match_state(self._inputs, outputs, options.donated)
        # A result is tied to its argument unless both shardings are given.
        self._state = {
            j: i for j, i in pairs.items() if self._is_auto[i] or isinstance(options.out_shardings[j], AutoSharding)
        }
        self._demanded = {
            i: _dims_of(s, program.in_avals[i].ndim)
            for j, i in self._state.items()
            if isinstance(s := options.out_shardings[j], NamedSharding)
        }
        self.plans = CandidatePlans(traced, mesh, self._machine, self._limit)
        self._constrained: dict[Hashable, Jaxpr] = {frozenset(): traced.program}

    def choose(self) -> AutoChoice:
        solvers = [self._make_solver(grouping) for grouping in self._group_axes()]
        solutions: list[tuple[Solver, Solution]] = []
        candidates: list[AutoChoice] = []
        for solver in solvers:
            solver.deadline = time.monotonic() + self._mark.time_limit / len(solvers)
            # The order of the axes decides at which point the search ends.
            for order in dict.fromkeys((tuple(solver.axes), tuple(reversed(solver.axes)))):
                solutions.append((solver, solver.solve(order)))
                axes = " and ".join("x".join(map(str, a.name)) for a in order)
                candidates += self._make_solved(*solutions[-1], f"solved over {axes}" if axes else "solved")
        candidates += self._solve_tensor_parallel()
        self.plans.add([*candidates, *self._usual()])
        self._fit(solutions)
        return self._best()

    def _group_axes(self) -> list[list[tuple[Hashable, ...]]]:
        """Ways to solve for several axes as one, which find other solutions, and find them faster: at most two."""
        names = [name for name, size in self._mesh.shape.items() if size > 1]
        ways: list[list[tuple[Hashable, ...]]] = [
            [tuple(names)],
            [group for group in (tuple(names[:-1]), tuple(names[-1:])) if group],
            [(name,) for name in names],
        ]
        given = [*self._given, *self._traced.options.out_shardings, named_sharding(self._traced.program)]
        split = [set(axes) for s in given if isinstance(s, NamedSharding) for axes in _dims_of(s, len(s.spec))]
        # A given sharding may split by one axis of a group only.
        fitting = [way for way in ways if all(axes.isdisjoint(g) or axes.issuperset(g) for axes in split for g in way)]
        chosen = [*fitting, ways[-1]]
        return [way for n, way in enumerate(chosen) if way not in chosen[:n]][:2] if names else [[]]

    def _make_solver(self, grouping: Sequence[tuple[Hashable, ...]]) -> Solver:
        graph, options = build_graph(self._traced.program), self._traced.options
        graph.outputs = [graph.copy(v, 1) for v in graph.outputs]
        fixed: dict[Any, Any] = {}
        for v, s, is_auto in zip(graph.inputs, self._given, self._is_auto, strict=True):
            if not is_auto:
                fixed[v] = _dims_of(s, len(v.shape))
        for j, (v, s) in enumerate(zip(graph.outputs, options.out_shardings, strict=True)):
            if j in self._state:
                graph.tie(graph.inputs[self._state[j]], v)
            if s is not None and not isinstance(s, AutoSharding):
                fixed.setdefault(v, _dims_of(s, len(v.shape)))
        for o in graph.operations:
            if o.eqn is not None and o.eqn.primitive is sharding_constraint_p:
                fixed.setdefault(o.results[0], _dims_of(o.eqn.params["sharding"], len(o.results[0].shape)))
        axes = measure_axes(self._mesh.shape, self._machine, grouping)
        return Solver(graph, self._machine, axes, fixed, None, time.monotonic() + self._mark.time_limit)

    def _solve_tensor_parallel(self) -> list[AutoChoice]:
        """Solve with batch dimensions alone over the outer axes, and all others over the innermost one.

        The solver knows neither what XLA fuses nor where it combines collectives, and so may prefer to split weights
        over slow links where that does not pay.
        """
        names = [name for name, size in self._mesh.shape.items() if size > 1]
        state, (outer, inner) = set(self._state.values()), (tuple(names[:-1]), tuple(names[-1:]))
        parts = math.prod(self._mesh.shape[name] for name in outer)
        data = [i for i, (_, a) in enumerate(self._inputs) if i not in state and self._is_auto[i] and a.ndim]
        shapes = [self._inputs[i][1].shape for i in data]
        if not (names and state and data) or any(shape[0] % parts for shape in shapes):
            return []
        solver = self._make_solver([group for group in (outer, inner) if group])
        values = [solver.graph.inputs[i] for i in data]
        solver.fixed |= {v: (outer, *((),) * (len(v.shape) - 1)) for v in values}
        batch = solver.list_batch_dims(values)
        solver.forbidden = {inner: batch, outer: solver.list_dims() - batch}
        order = sorted(solver.axes, key=lambda axis: axis.name == inner)
        solved = self._make_solved(solver, solver.solve(order), f"solved tensor parallel over {inner[0]}")
        return [*solved, *self._split_one_dim(solver, data, outer, inner)]

    def _split_one_dim(
        self, solver: Solver, data: Sequence[int], outer: tuple[Hashable, ...], inner: tuple[Hashable, ...]
    ) -> Iterator[AutoChoice]:
        """Split the batch over the outer axes, and one dimension of the model over the innermost where weights have it.

        Such a dimension is the width of a model, or its heads. XLA propagates the split through the activations, and
        all communication is one sum for each product that contracts the dimension.
        """
        graph, avals, sizes = solver.graph, [a for _, a in self._inputs], self._mesh.shape
        batch = {solver.link(graph.inputs[i], 0) for i in data}
        state = sorted(set(self._state.values()))
        split: dict[Hashable, dict[int, int]] = {}  # for each dimension of the model, its place in the weights
        for i in state:
            for d, n in enumerate(avals[i].shape):
                if n and n % sizes[inner[0]] == 0 and (linked := solver.link(graph.inputs[i], d)) not in batch:
                    split.setdefault(linked, {}).setdefault(i, d)
        rest = {i: split_dim(a, 0, outer if i in data else (), sizes) for i, a in enumerate(avals)}
        for places in sorted(split.values(), key=lambda p: -sum(graph.inputs[i].bytes for i in p))[:_MOST_DIMS]:
            largest = max(places, key=lambda i: graph.inputs[i].bytes)
            name = f"dimension {places[largest]} of {self._paths[largest]} over {inner[0]}"
            yield self.make_candidate(name, rest | {i: split_dim(avals[i], d, inner, sizes) for i, d in places.items()})

    def _make_solved(self, solver: Solver, solution: Solution, name: str) -> list[AutoChoice]:
        """A solution without its shardings inside the program, where the compiler propagates its own, and with them."""
        graph = solver.graph
        specs = {i: self._order(solver.spec(v, solution)) for i, v in enumerate(graph.inputs)}
        outs = {j: self._order(solver.spec(v, solution)) for j, v in enumerate(graph.outputs)}
        plain = self.make_candidate(name, specs, outs)
        chosen = self._choose_inside(solver, solution)
        # Solutions that are alike have one program, which is compiled once.
        inside = self._constrained.setdefault(frozenset(chosen.items()), _constrain(self._traced.program, chosen))
        return [plain, replace(plain, name=f"{name}, constrained", program=inside, num_constraints=len(chosen))]

    def _choose_inside(self, solver: Solver, solution: Solution) -> dict[Var, NamedSharding]:
        """Shardings for the results of products and for what loops carry, from which the compiler propagates."""
        graph, chosen = solver.graph, {}
        marked = {v for o in graph.operations if o.trips > 1 and o.eqn is None for v in o.results}
        marked |= {v for o in graph.operations if o.eqn is not None and o.rule.reduced for v in o.results}
        for variable, values in graph.bound.items():
            specs = {tuple(self._order(solver.spec(v, solution))) for v in values}
            if len(specs) == 1 and not marked.isdisjoint(values) and values[0].shape:
                chosen[variable] = self._sharding(specs.pop())
        return chosen

    def _usual(self) -> Iterator[AutoChoice]:
        """The usual shardings, and those that the arguments have."""
        auto = [i for i, is_auto in enumerate(self._is_auto) if is_auto]
        groups: dict[Hashable, list[int]] = {}
        for i in auto:
            groups.setdefault(self._inputs[i][0][0], []).append(i)
        avals = [a for _, a in self._inputs]
        own = {i: _dims_of(s, avals[i].ndim) for i, s in enumerate(self._own) if isinstance(s, NamedSharding)}
        if own.keys() & set(auto):
            whole = {i: ((),) * a.ndim for i, a in enumerate(avals)}
            yield self.make_candidate("as given", whole | own)
        if auto and any(n > 1 for n in self._mesh.shape.values()):
            state = set(self._state.values())
            for name, specs in list_candidates(avals, state, list(groups.values()), self._mesh.shape):
                yield self.make_candidate(name, specs)

    def _fit(self, solutions: Sequence[tuple[Solver, Solution]]) -> None:
        """Solve for less and less memory until a plan fits, if the best one does not."""
        plans = self.plans
        decided = plans.decided()
        if self._limit is None or not decided or plans.fits(min(decided, key=plans.cost)):
            return
        # The solver counts values that the compiler fuses, so its limit is the real one in proportion.
        solver = solutions[-1][0]
        peak = min(plan.memory.peak for name, plan in plans.plans.items() if name.startswith("solved"))
        estimate = min(s.estimate_memory(solution) for s, solution in solutions)
        for attempt in range(_MEMORY_ATTEMPTS):
            solver.memory = estimate * min(self._limit / peak, 1.0) * _TIGHTER**attempt
            solver.deadline = time.monotonic() + self._mark.time_limit / 2
            name = f"solved for {_TIGHTER**attempt:.0%} of the memory"
            plans.add(self._make_solved(solver, solver.solve(solver.axes), name))
            if any(plans.fits(found) for found in plans.decided() if found.startswith(name)):
                return

    def _best(self) -> AutoChoice:
        plans = self.plans
        decided = plans.decided()
        if not decided:
            assert plans.failure is not None, "there is a candidate for every program"
            raise plans.failure
        fitting = list(filter(plans.fits, decided))
        if not fitting:
            least = min(decided, key=lambda name: plans.plans[name].memory.peak)
            peak = plans.plans[least].memory.peak
            raise ShardingError(
                self._traced._call.signature.what,
                expected=f"shardings for which a device needs at most {self._limit:,.0f} bytes",
                got=f"at best {peak:,} bytes ({least}), which are {peak - int(self._limit or 0):,} too many",
                fix="use a larger mesh, phalanx.checkpoint, or donated arguments, or raise AUTO(memory=...)",
            )
        named = {name: replace(plan, name=f"{plan.name} (AUTO: {name})") for name, plan in plans.plans.items()}
        return replace(plans.found[min(fitting, key=plans.cost)], plans=named, limit=self._limit)

    def make_candidate(self, name: str, specs: Mapping[int, Any], outs: Mapping[int, Any] | None = None) -> AutoChoice:
        """Shardings with these specs in the place of AUTO; results without a spec are left to the compiler."""
        options = self._traced.options
        ins = tuple(
            self._sharding(self._demanded.get(i) or specs[i]) if is_auto else s
            for i, (s, is_auto) in enumerate(zip(options.in_shardings, self._is_auto, strict=True))
        )
        results = []
        for j, s in enumerate(options.out_shardings):
            if isinstance(s, AutoSharding):
                tied = self._state.get(j)
                if tied is not None:
                    s = ins[tied] or self._given[tied]
                else:
                    s = None if outs is None else self._sharding(outs[j])
            results.append(s)
        traced = self._traced
        return AutoChoice(name, traced.program, ins, tuple(results), traced.in_tree, traced.out_tree)

    def _order(self, spec: Sequence[tuple[Hashable, ...]]) -> Spec:
        """A spec with the axes of each dimension in the order of the mesh."""
        names = list(self._mesh.shape)
        return tuple(tuple(sorted(axes, key=names.index)) for axes in spec)

    def _sharding(self, spec: Spec) -> NamedSharding:
        return NamedSharding(self._mesh, PartitionSpec.of_dims(spec).canonical)


def _paths(tree: Any) -> list[tuple[Any, Any]]:
    return tree_flatten_with_path(tree)[0]


def _dims_of(sharding: Any, ndim: int) -> Spec:
    """The axes of each dimension; shardings that are not named have none that are known."""
    if not isinstance(sharding, NamedSharding):
        return ((),) * ndim
    return tuple(axes if isinstance(axes, tuple) else () for axes in sharding.spec.axes_per_dim(ndim))


def _constrain(jaxpr: Jaxpr, shardings: Mapping[Var, NamedSharding]) -> Jaxpr:
    """A jaxpr with constraints on variables, also on those of jaxprs in its equations."""

    def rewrite(value: Any) -> Any:
        if type(value) is Jaxpr:
            return _constrain(value, shardings)
        return tuple(map(rewrite, value)) if type(value) is tuple and any(type(v) is Jaxpr for v in value) else value

    renamed: dict[Any, Var] = {}
    eqns: list[Eqn] = []

    def constrain(variables: Sequence[Var], source: Any) -> None:
        for v in variables:
            if v in shardings:
                renamed[v] = Var(v.aval)
                eqns.append(Eqn(result_sharding_p, [v], [renamed[v]], {"sharding": shardings[v]}, source))

    def read(atoms: Sequence[Any]) -> list[Any]:
        return [x if type(x) is Literal else renamed.get(x, x) for x in atoms]

    constrain(jaxpr.invars, None)
    for eqn in jaxpr.eqns:
        params = {name: rewrite(value) for name, value in eqn.params.items()}
        eqns.append(eqn.replace(invars=read(eqn.invars), params=params))
        constrain(eqn.outvars, eqn.source)
    return jaxpr.replace(eqns=eqns, outvars=read(jaxpr.outvars))
