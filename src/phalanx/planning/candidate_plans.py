"""Compile and plan the candidates of AUTO, several at once where the compiler is in separate processes.

XLA for GPUs and XLA for TPUs take many times as long for a program as XLA for CPUs in their place. So XLA for CPUs
plans all candidates first, and the compiler of the target only those that come close to the fastest of them.
"""

from __future__ import annotations

import contextvars
import functools
import os
import subprocess
import threading
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from phalanx.core import PhalanxError, ShardingError
from phalanx.engine import compiler
from phalanx.engine.compile_only_devices import MAX_CPU_DEVICES
from phalanx.engine.offline_compiler import OfflineCompileError, OfflineProgram
from phalanx.planning.chosen_shardings import AutoChoice
from phalanx.planning.machines import HOST, Machine
from phalanx.planning.plan_record import Plan
from phalanx.planning.planner import choose_platform, choose_topology, read_plan, stands_in
from phalanx.sharding import AbstractMesh, Mesh
from phalanx.spmd.stages import Lowered, Traced

_MOST_PROCESSES = 4  # each takes up to 1 GB
_LONGEST_WAIT = 0.5  # in seconds
# By the plans of XLA for CPUs, candidates are close to the fastest up to 1.25 times its time, and may fit into 0.8
# times the memory that they need. At most so many are compiled again, and as many once more if none of them fits.
_CLOSE, _MOST_CLOSE = 1.25, 4


class CandidatePlans:
    """The plans of candidates for the shardings of one program.

    Args:
      traced: the program.
      mesh: the mesh.
      machine: the devices to plan for.
      limit: the bytes that a device may need; None for no limit.

    Attributes:
      plans: the plan of each candidate that can be compiled, by its name.
      found: these candidates, by their names.
      rough: the names of those that only XLA for CPUs has planned, in the place of the compiler of the target.
      failure: why the first other candidate cannot be compiled.
    """

    def __init__(self, traced: Traced, mesh: Mesh | AbstractMesh, machine: Machine, limit: float | None) -> None:
        self._traced, self._mesh, self._machine, self._limit = traced, mesh, machine, limit
        self.plans: dict[str, Plan] = {}
        self.found: dict[str, AutoChoice] = {}
        self.rough: set[str] = set()
        self.failure: PhalanxError | None = None
        self._platform = choose_platform(None if machine is HOST else machine, None)
        if isinstance(mesh, Mesh):
            self._platform = mesh.flat_devices[0].platform
        self._is_attached = isinstance(mesh, Mesh) and not stands_in(machine, self._platform)

    def fits(self, name: str, tolerance: float = 1.0) -> bool:
        """Whether a candidate fits into that multiple of the memory."""
        return self._limit is None or self.plans[name].memory.peak <= tolerance * self._limit

    def decided(self) -> list[str]:
        """The candidates whose plans are those of the compiler of the target."""
        return [name for name in self.plans if name not in self.rough]

    def cost(self, name: str) -> tuple[float, int]:
        """The time and then the memory of a candidate."""
        plan = self.plans[name]
        return (plan.time.step if plan.time is not None else 0.0), plan.memory.peak

    def add(self, candidates: Sequence[AutoChoice]) -> None:
        """Plan candidates; those with the shardings and the program of another have its plan."""
        names = {_key(c): name for name, c in reversed(self.found.items())}
        new = [c for c in candidates if names.setdefault(_key(c), c.name) == c.name]
        is_rough = not (self._is_attached or self._platform == "cpu" or self._mesh.size > MAX_CPU_DEVICES)
        planned = self._plan(new, "cpu" if is_rough else self._platform)
        for c in candidates:
            twin = names[_key(c)]
            if (plan := planned.get(twin) or self.plans.get(twin)) is not None:
                self.plans[c.name], self.found[c.name] = plan, c
                if is_rough:
                    self.rough.add(c.name)
        if is_rough:
            self._decide()

    def _decide(self) -> None:
        """Let the compiler of the target plan the candidates that come close to the fastest, until one of them fits."""
        for _ in range(2):
            close = self._list_close()
            planned = self._plan([self.found[name] for name in close], self._platform)
            self.rough.difference_update(close)
            for name in close:
                self.plans.pop(name)
                if name in planned:
                    self.plans[name] = planned[name]
            if any(map(self.fits, self.decided())):
                return

    def _list_close(self) -> list[str]:
        """The rough candidates that come close to the fastest of them, one of those whose plans have equal figures."""
        ranks = {name: (not self.fits(name, _CLOSE), *self.cost(name)) for name in self.plans if name in self.rough}
        distinct: dict[Any, str] = {}
        for name in sorted(ranks, key=ranks.__getitem__):
            distinct.setdefault((*ranks[name], self.plans[name].collectives.bytes), name)
        found = list(distinct.values())[:_MOST_CLOSE]
        return [n for n in found if ranks[n][:2] <= (ranks[found[0]][0], ranks[found[0]][1] * _CLOSE)]

    def _plan(self, candidates: Sequence[AutoChoice], platform: str) -> dict[str, Plan]:
        """The plans of the candidates that the compiler of a platform compiles, by name."""
        lowered: dict[str, Lowered] = {}
        options: dict[str, Any] = {}
        if not self._is_attached:
            topology = functools.partial(choose_topology, self._machine, platform)
            options = {"lowering_platforms": (platform,), "_topology": topology}
        for c in candidates:
            try:
                lowered[c.name] = self._traced.with_shardings(c).lower(**options)
            except (ShardingError, OfflineCompileError) as error:  # one that does not fit the program's own constraints
                self.failure = self.failure or error
        compile_all = self._compile_here if self._is_attached else self._compile_offline
        plans = {}
        answers = compile_all(list(lowered.values()), platform)
        for (name, program), answer in zip(lowered.items(), answers, strict=True):
            if isinstance(answer, PhalanxError):
                self.failure = self.failure or answer
            else:
                plans[name] = read_plan(program, answer, self._machine, platform)
        return plans

    def _compile_here(self, stages: Sequence[Lowered], _: str) -> Iterator[OfflineProgram | PhalanxError]:
        for lowered in stages:
            try:
                executable = lowered.program.compile_to_read(self._traced.compiler_options)
            except ShardingError as error:
                yield error
                continue
            stats = compiler.memory_stats(executable)
            memory = {n: getattr(stats, n) for n in dir(stats) if n.endswith("_in_bytes")}
            yield OfflineProgram(compiler.hlo_text(executable), memory, "the compiler of the attached devices")

    def _compile_offline(self, stages: Sequence[Lowered], platform: str) -> list[OfflineProgram | PhalanxError]:
        topology = choose_topology(self._machine, platform, self._mesh.size)
        children: list[subprocess.Popen[bytes]] = []
        is_stopped = threading.Event()

        def register(child: subprocess.Popen[bytes]) -> None:
            children.append(child)
            if is_stopped.is_set():
                child.kill()

        def compile_one(lowered: Lowered) -> OfflineProgram | PhalanxError:
            try:
                return lowered.compile_offline(topology, register)
            except (ShardingError, OfflineCompileError) as error:
                return error

        contexts = [contextvars.copy_context() for _ in stages]  # one is entered by one thread at a time
        with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_PROCESSES)) as pool:
            try:
                futures = [
                    pool.submit(c.run, compile_one, lowered) for c, lowered in zip(contexts, stages, strict=True)
                ]
                # CPython may begin to wait without having seen a signal that came just before, hence the limit.
                while wait(futures, _LONGEST_WAIT).not_done:
                    pass
                return [future.result() for future in futures]
            except BaseException:  # such as an interrupt by the user, who should not wait for the compilers
                pool.shutdown(wait=False, cancel_futures=True)
                is_stopped.set()
                for child in list(children):
                    child.kill()
                raise


def _key(candidate: AutoChoice) -> Hashable:
    return candidate.in_shardings, candidate.out_shardings, id(candidate.program)
