"""`AUTO`: solve for shardings, plan them and the usual ones, and choose the fastest plan that fits into the memory.

`choose_shardings` is called when a stage of `jit` is lowered (see `spmd.auto_resolution`). The solver's model knows
neither fusion nor the compiler's own choices, so every candidate is compiled, and its plan decides: the choice is
never worse by plan than the usual shardings, or than those of the given arguments.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.core import Eqn, Jaxpr, Literal, ShardingError, Var
from phalanx.engine import compiler
from phalanx.engine.offline_compiler import OfflineProgram
from phalanx.lax.sharding_constraint import result_sharding_p, sharding_constraint_p
from phalanx.planning.auto_candidates import Spec, list_candidates, match_state
from phalanx.planning.auto_solver import Solution, Solver, measure_axes
from phalanx.planning.machines import HOST, Machine, find_machine, find_machine_of
from phalanx.planning.plan_record import Plan
from phalanx.planning.planner import choose_platform, choose_topology, read_plan, stands_in
from phalanx.runtime import named_sharding
from phalanx.sharding import AbstractMesh, AutoSharding, Mesh, NamedSharding, PartitionSpec
from phalanx.spmd.auto_resolution import sharding_choices
from phalanx.spmd.program_graph import build_graph
from phalanx.spmd.stages import Traced
from phalanx.tree import tree_flatten_with_path, tree_unflatten

# Solutions for a smaller and smaller part of the memory are planned until one fits.
_MEMORY_ATTEMPTS = 4
_TIGHTER = 0.9


@dataclass(frozen=True, eq=False)
class Candidate:
    """Shardings of a program, by name. Attributes as in `AutoChoice`."""

    name: str
    program: Jaxpr
    in_shardings: tuple[Any, ...]
    out_shardings: tuple[Any, ...]
    num_constraints: int = 0


@dataclass(frozen=True, eq=False)
class AutoChoice:
    """The shardings that AUTO stands for in one program. The printed form is a table of the candidates.

    Args:
      name: the name of the candidate that was chosen.
      plans: the plan of each candidate; the time of a run decides among those that fit into the memory.
      limit: the bytes that a device may need; None for no limit.
      in_specs, out_specs: the specs of the arguments and of the results, as trees. None is left to the compiler.
      program: the jaxpr, with constraints on values inside it.
      in_shardings, out_shardings: the sharding of each leaf.
      num_constraints: how many values inside the program have a constraint.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AUTO, Mesh
      >>> mesh = Mesh(phalanx.devices()[:2], ("x",))
      >>> x = phalanx.ShapeDtypeStruct((4096, 3), "float32")
      >>> choice = phalanx.jit(jnp.tanh, in_shardings=AUTO(mesh)).lower(x).auto
      >>> choice.in_specs, choice.plan.collectives
      ((P('x',),), no collectives)
    """

    name: str
    plans: Mapping[str, Plan]
    limit: float | None
    in_specs: Any
    out_specs: Any
    program: Jaxpr = field(repr=False)
    in_shardings: tuple[Any, ...] = field(repr=False)
    out_shardings: tuple[Any, ...] = field(repr=False)
    num_constraints: int = 0

    @property
    def plan(self) -> Plan:
        """The plan of the chosen shardings."""
        return self.plans[self.name]

    def to_code(self) -> str:
        """The chosen shardings as options of `jit`, to paste in the place of AUTO under the same mesh.

        Returns:
          The text. Its last line is a comment if values inside the program have constraints, which these options lack:
          with them alone the compiler chooses the shardings inside, and the plan may be another one.

        Examples:
          >>> import phalanx, phalanx.numpy as jnp
          >>> from phalanx.sharding import AUTO, Mesh
          >>> mesh = Mesh(phalanx.devices()[:2], ("x",))
          >>> x = phalanx.ShapeDtypeStruct((4096, 3), "float32")
          >>> print(
          ...     phalanx.jit(jnp.tanh, in_shardings=AUTO(mesh), out_shardings=AUTO(mesh)).lower(x).auto.to_code()
          ... )
          in_shardings=(P('x',),),
          out_shardings=P('x',),
        """
        pairs = (("in_shardings", self.in_specs), ("out_shardings", self.out_specs))
        lines = [f"{name}={specs!r}," for name, specs in pairs]
        if self.num_constraints:
            lines.append(f"# and constraints on {self.num_constraints} values inside, which only AUTO adds")
        return "\n".join(lines)

    def __str__(self) -> str:
        rows = [("candidate", "ms", "sent", "memory")]
        for name, plan in self.plans.items():
            cost = f"{plan.time.step * 1e3:.3f}" if plan.time else "-"
            mark = " *" if name == self.name else ""
            rows.append((name + mark, cost, f"{plan.collectives.bytes:,}", f"{plan.memory.peak:,}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"{first:<{widths[0]}}" + "".join(f"  {x:>{n}}" for x, n in zip(rest, widths[1:], strict=True))
            for first, *rest in rows
        ]
        return "\n".join([*lines, self.to_code()])


def choose_shardings(traced: Traced, mark: AutoSharding, mesh: Mesh | AbstractMesh, given: Sequence[Any]) -> AutoChoice:
    """Choose shardings in the place of AUTO; see `spmd.auto_resolution`.

    Raises:
      ShardingError: no candidate can be compiled, or none fits into the memory.
    """
    return _Search(traced, mark, mesh, given).choose()


sharding_choices.provide(choose_shardings=choose_shardings)


def _find_machine(mark: AutoSharding, mesh: Mesh | AbstractMesh) -> Machine:
    if (machine := find_machine(mark.target, "AUTO, argument target")) is not None:
        return machine
    device = mesh.flat_devices[0] if isinstance(mesh, Mesh) else mesh.abstract_device
    return HOST if device is None or mark.target == "cpu" else find_machine_of(device.device_kind)


class _Search:
    """The choice for one program."""

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
        self._plans: dict[str, Plan] = {}
        self._found: dict[str, Candidate] = {}
        self._failure: ShardingError | None = None

    def choose(self) -> AutoChoice:
        solvers = [self._make_solver(grouping) for grouping in self._group_axes()]
        solutions: list[tuple[Solver, Solution]] = []
        for solver in solvers:
            solver.deadline = time.monotonic() + self._mark.time_limit / len(solvers)
            # The order of the axes decides at which point the search ends.
            for order in dict.fromkeys((tuple(solver.axes), tuple(reversed(solver.axes)))):
                solutions.append((solver, solver.solve(order)))
                axes = " and ".join("x".join(map(str, a.name)) for a in order)
                self._plan_solution(*solutions[-1], f"solved over {axes}" if axes else "solved")
        for candidate in self._usual():
            self._plan(candidate)
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

    def _plan_solution(self, solver: Solver, solution: Solution, name: str) -> None:
        """Plan a solution with its shardings inside the program, and without, where the compiler propagates its own."""
        graph = solver.graph
        specs = {i: self._order(solver.spec(v, solution)) for i, v in enumerate(graph.inputs)}
        outs = {j: self._order(solver.spec(v, solution)) for j, v in enumerate(graph.outputs)}
        plain = self._make_candidate(name, specs, outs)
        self._plan(plain)
        chosen = self._choose_inside(solver, solution)
        inside = _constrain(self._traced.program, chosen)
        self._plan(Candidate(f"{name}, constrained", inside, plain.in_shardings, plain.out_shardings, len(chosen)))

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

    def _usual(self) -> Iterator[Candidate]:
        """The usual shardings, and those that the arguments have."""
        auto = [i for i, is_auto in enumerate(self._is_auto) if is_auto]
        groups: dict[Hashable, list[int]] = {}
        for i in auto:
            groups.setdefault(self._inputs[i][0][0], []).append(i)
        avals = [a for _, a in self._inputs]
        own = {i: _dims_of(s, avals[i].ndim) for i, s in enumerate(self._own) if isinstance(s, NamedSharding)}
        if own.keys() & set(auto):
            whole = {i: ((),) * a.ndim for i, a in enumerate(avals)}
            yield self._make_candidate("as given", whole | own)
        if auto and any(n > 1 for n in self._mesh.shape.values()):
            state = set(self._state.values())
            for name, specs in list_candidates(avals, state, list(groups.values()), self._mesh.shape):
                yield self._make_candidate(name, specs)

    def _fit(self, solutions: Sequence[tuple[Solver, Solution]]) -> None:
        """Solve for less and less memory until a plan fits, if the best one does not."""
        if self._limit is None or not self._plans or self._fits(self._fastest(self._plans)):
            return
        # The solver counts values that the compiler fuses, so its limit is the real one in proportion.
        solver = solutions[-1][0]
        peak = min(plan.memory.peak for name, plan in self._plans.items() if name.startswith("solved"))
        estimate = min(s.estimate_memory(solution) for s, solution in solutions)
        for attempt in range(_MEMORY_ATTEMPTS):
            solver.memory = estimate * min(self._limit / peak, 1.0) * _TIGHTER**attempt
            solver.deadline = time.monotonic() + self._mark.time_limit / 2
            name = f"solved for {_TIGHTER**attempt:.0%} of the memory"
            self._plan_solution(solver, solver.solve(solver.axes), name)
            if any(self._fits(found) for found in self._plans if found.startswith(name)):
                return

    def _best(self) -> AutoChoice:
        if not self._plans:
            assert self._failure is not None, "there is a candidate for every program"
            raise self._failure
        fitting = [name for name in self._plans if self._fits(name)]
        if not fitting:
            least = min(self._plans, key=lambda name: self._plans[name].memory.peak)
            peak = self._plans[least].memory.peak
            raise ShardingError(
                self._traced._call.signature.what,
                expected=f"shardings for which a device needs at most {self._limit:,.0f} bytes",
                got=f"at best {peak:,} bytes ({least}), which are {peak - int(self._limit or 0):,} too many",
                fix="use a larger mesh, phalanx.checkpoint, or donated arguments, or raise AUTO(memory=...)",
            )
        chosen = self._found[self._fastest(fitting)]
        args = tree_unflatten(self._traced.in_tree, [_spec_of(s) for s in chosen.in_shardings])[0]
        outs = tree_unflatten(self._traced.out_tree, [_spec_of(s) for s in chosen.out_shardings])
        return AutoChoice(
            chosen.name,
            self._plans,
            self._limit,
            args,
            outs,
            chosen.program,
            chosen.in_shardings,
            chosen.out_shardings,
            chosen.num_constraints,
        )

    def _fits(self, name: str) -> bool:
        return self._limit is None or self._plans[name].memory.peak <= self._limit

    def _fastest(self, names: Any) -> str:
        """The candidate with the least time, then with the least memory, then the first."""

        def cost(name: str) -> tuple[float, int]:
            plan = self._plans[name]
            return (plan.time.step if plan.time is not None else 0.0), plan.memory.peak

        return min(names, key=cost)

    def _make_candidate(self, name: str, specs: Mapping[int, Any], outs: Mapping[int, Any] | None = None) -> Candidate:
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
        return Candidate(name, self._traced.program, ins, tuple(results))

    def _plan(self, candidate: Candidate) -> None:
        """Compile a candidate and plan it, unless one that is the same has a plan."""
        key = (candidate.in_shardings, candidate.out_shardings)
        for name, c in self._found.items():
            if (c.in_shardings, c.out_shardings) == key and c.program is candidate.program:
                self._plans[candidate.name], self._found[candidate.name] = self._plans[name], candidate
                return
        machine = self._machine
        if isinstance(self._mesh, Mesh):
            platform = self._mesh.flat_devices[0].platform
        else:
            platform = choose_platform(None if machine is HOST else machine, None)
        stage = self._traced.with_shardings(candidate)
        try:
            if isinstance(self._mesh, Mesh) and not stands_in(machine, platform):
                lowered = stage.lower()
                executable = lowered.program.compile_to_read(self._traced.compiler_options)
                stats = compiler.memory_stats(executable)
                memory = {n: getattr(stats, n) for n in dir(stats) if n.endswith("_in_bytes")}
                answer = OfflineProgram(compiler.hlo_text(executable), memory, "the compiler of the attached devices")
            else:
                lowered = stage.lower(lowering_platforms=(platform,))
                answer = lowered.compile_offline(choose_topology(machine, platform, self._mesh.size))
        except ShardingError as error:  # one that does not fit the program's own constraints
            self._failure = self._failure or error
            return
        self._plans[candidate.name] = read_plan(lowered, answer, machine, platform)
        self._found[candidate.name] = candidate

    def _order(self, spec: Sequence[tuple[Hashable, ...]]) -> Spec:
        """A spec with the axes of each dimension in the order of the mesh."""
        names = list(self._mesh.shape)
        return tuple(tuple(sorted(axes, key=names.index)) for axes in spec)

    def _sharding(self, spec: Spec) -> NamedSharding:
        return NamedSharding(self._mesh, PartitionSpec.of_dims(spec).canonical)


def _paths(tree: Any) -> list[tuple[Any, Any]]:
    return tree_flatten_with_path(tree)[0]


def _dims_of(sharding: Any, ndim: int) -> Spec:
    """The axes of each dimension; those of other shardings than named ones are not known, and count as none."""
    if not isinstance(sharding, NamedSharding):
        return ((),) * ndim
    return tuple(axes if isinstance(axes, tuple) else () for axes in sharding.spec.axes_per_dim(ndim))


def _spec_of(sharding: Any) -> Any:
    return sharding.spec if isinstance(sharding, NamedSharding) else sharding


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
