"""The `@bench` decorator, and the clock that runs both systems in alternation.

A workload is a function of the module under test and, if it has sizes, of a size. It does its preparation and returns
the object to measure: a callable or a `Timed` (a time), a `Script` (a fresh process), a `Clocked`, or a `Value`. Each
round measures both systems in alternating order. A ratio is the median of the rounds' ratios, so that a machine that
becomes slower or faster during the run affects both sides. Properties that a process settles by chance (heap layout,
placement of threads) are measured in several processes, one per round. While the rounds do not decide whether a bound
holds, more are measured.

Some workloads also have a floor, which the same rounds measure: what jaxlib's functions take for the same work, called
without any Python of a library around them. No implementation in Python over them can be faster.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

DEFAULT_BOUND = 1.05  # of a workload for which neither it nor its row declares one
ENGINE = "jaxlib"  # the system whose samples are floors
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6}  # of a measured time in seconds


@dataclass(frozen=True)
class Timed:
    """A call to be timed: `run()`, or `run(make())` where `make` prepares each call off the clock; `ops` divide it."""

    run: Callable[..., Any]
    make: Callable[[], Any] | None = None
    ops: int = 1


@dataclass(frozen=True)
class Script:
    """A program for a fresh interpreter: its wall time, its peak memory in MB, or the seconds that it prints last."""

    source: str
    memory: bool = False
    prints: bool = False


@dataclass(frozen=True)
class Value:
    """A number that needs no clock, such as a count of operations."""

    number: float


@dataclass(frozen=True)
class Clocked:
    """A function that measures by itself, such as in other processes, and returns seconds."""

    measure: Callable[[], float]


@dataclass(frozen=True)
class Row:
    """A line of the table that the benchmarks defend: bounds on the geometric mean and on each of its workloads."""

    measure: str
    at_most: float | None = None
    none_above: float | None = None


@dataclass(frozen=True)
class Workload:
    """A registered workload; `at_most` holds one bound per size."""

    name: str
    build: Callable[..., Any]
    unit: str
    row: Row
    sizes: tuple[int | None, ...]
    at_most: tuple[float | None, ...]
    linear: bool = False
    processes: int = 1
    floor: Callable[..., Any] | None = None


@dataclass
class Result:
    """The samples of both systems and of the floor for one workload and size, or the reason why there are none."""

    name: str
    unit: str
    row: Row
    at_most: float | None
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    engine: list[float] = field(default_factory=list)
    error: str | None = None

    @property
    def ratio(self) -> float:
        """Ours ÷ the peer's: the median over the rounds (NaN where something failed)."""
        return _median_ratio(self.ours, self.peer)

    @property
    def floor(self) -> float:
        """The engine's part alone ÷ the peer's, likewise (NaN where no floor was measured)."""
        return _median_ratio(self.engine, self.peer)

    @property
    def bound(self) -> float:
        """The upper bound of its ratio."""
        declared = [bound for bound in (self.at_most, self.row.none_above) if bound is not None]
        return min(declared, default=DEFAULT_BOUND)

    @property
    def is_above(self) -> bool:
        """Whether its ratio exceeds its bound."""
        return not math.isnan(self.ratio) and self.ratio > self.bound

    @property
    def holds(self) -> bool:
        """Whether it ran and is within its bound, or within its floor where even that exceeds the bound."""
        return self.error is None and (self.ratio <= self.bound or self.ratio <= self.floor)

    @property
    def interval(self) -> tuple[float, float]:
        """A 95 % confidence interval of the median ratio, by order statistics."""
        ratios = sorted(a / b for a, b in zip(self.ours, self.peer, strict=False))
        out = max(0, math.floor(len(ratios) / 2 - 0.98 * math.sqrt(len(ratios))))  # samples outside at each end
        return ratios[out], ratios[-1 - out]

    @property
    def is_open(self) -> bool:
        """Whether the rounds so far leave undecided if a bound holds."""
        if not (self.ours and self.peer):
            return False
        low, high = self.interval
        return low < self.bound < high


def _median_ratio(samples: list[float], peer: list[float]) -> float:
    ratios = [a / b for a, b in zip(samples, peer, strict=False)]
    return statistics.median(ratios) if ratios else math.nan


WORKLOADS: list[Workload] = []


def bench(
    *,
    unit: str,
    row: Row | None = None,
    at_most: float | tuple[float | None, ...] | None = None,
    sizes: tuple[int | None, ...] = (None,),
    peer: str = "jax",
    linear: bool = False,
    processes: int = 1,
    name: str | None = None,
    floor: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a workload.

    Args:
      unit: unit of the results: "us", "ms", "s" (with "/op", divided by the number of operations), or free text.
      row: the line of the table it belongs to; a row of its own by default.
      at_most: the largest ratio to the peer that passes, for all sizes or one for each; `DEFAULT_BOUND` if neither this
        nor the row says.
      sizes: the sizes to run, each given to the workload as its second argument.
      peer: the system it is measured beside.
      linear: also require that the largest size costs at most 1.3 times as much per operation as the smallest.
      processes: in how many processes it is measured at least, each of which counts as one round; 1 is this one.
      name: what to call it where the function's name would not do.
      floor: prepares the same work by calls of jaxlib alone, from the same arguments as the workload.

    Returns:
      The decorator, which gives the function back unchanged.
    """
    assert peer == "jax", "this issue knows one peer"

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        room = build.__module__.rpartition(".")[2]
        bounds = at_most if isinstance(at_most, tuple) else (at_most,) * len(sizes)
        assert len(bounds) == len(sizes), "one bound per size"
        full_name = f"{room}.{name or build.__name__}"
        WORKLOADS.append(
            Workload(full_name, build, unit, row or Row(full_name), sizes, bounds, linear, processes, floor)
        )
        return build

    return register


@dataclass(frozen=True)
class Effort:
    """How long to measure: seconds of one sample, seconds of each system, bounds on the rounds, sizes per workload.

    `patience` is how many seconds to go on where the rounds leave open whether a bound holds; `here` measures in this
    process what asks for several.
    """

    sample: float = 0.004
    budget: float = 1.0
    rounds: tuple[int, int] = (5, 25)
    sizes: int | None = None
    patience: float = 20.0
    here: bool = False


QUICK = Effort(sample=0.002, budget=0.3, rounds=(2, 7), sizes=2, patience=0.0, here=True)
ONE_OF_SEVERAL = Effort(budget=0.5, patience=0.0, here=True)


class Sampler:
    """One system's side of a workload: built and warmed up once, then sampled again and again."""

    def __init__(self, system: str, subject: Any, unit: str, effort: Effort) -> None:
        self.system, self.unit = system, unit
        self.subject = subject if isinstance(subject, Timed | Script | Value | Clocked) else Timed(subject)
        self.loops, self.seconds = 1, 0.0
        if isinstance(self.subject, Timed):
            self._calibrate(effort)
        if isinstance(self.subject, Script):
            run_script(self.subject.source)
        if isinstance(self.subject, Clocked):
            self.subject.measure()

    def _calibrate(self, effort: Effort) -> None:
        """Warm up, then choose how many calls make one sample."""
        self._time()
        self.seconds = self._time()
        if self.seconds < 0.1:  # A second call may still fill caches.
            self._time()
            self.seconds = min(self.seconds, self._time())
        self.loops = max(1, round(effort.sample / self.seconds))

    def _time(self) -> float:
        """Time one sample of `loops` calls: seconds per call."""
        timed, clock, result, total = self.subject, time.perf_counter, None, 0.0
        if timed.make is None:
            start = clock()
            for _ in range(self.loops):
                result = timed.run()
            _wait(self.system, result)
            return (clock() - start) / self.loops
        for _ in range(self.loops):
            made = timed.make()
            start = clock()
            result = timed.run(made)
            _wait(self.system, result)
            total += clock() - start
        return total / self.loops

    def sample(self) -> float:
        """Measure once, in the workload's unit."""
        if isinstance(self.subject, Value):
            return float(self.subject.number)
        if isinstance(self.subject, Clocked):
            return self.subject.measure() * UNITS[self.unit]
        if isinstance(self.subject, Script):
            if self.subject.memory:
                return float(run_script(self.subject.source + _PEAK_MEMORY)[1].split()[-1]) / 1024
            seconds, output = run_script(self.subject.source)
            return (float(output.split()[-1]) if self.subject.prints else seconds) * UNITS[self.unit]
        gc.collect()
        return self._time() / self.subject.ops * UNITS[self.unit.partition("/")[0]]


def _wait(system: str, result: Any) -> None:
    """Wait until arrays in `result` are computed; other results need no waiting."""
    if result is None:
        return
    if system == ENGINE:
        from jaxlib import _jax  # here, since both systems have to set up the engine first

        _jax.batched_block_until_ready(result)
    else:
        sys.modules[system].block_until_ready(result)


def run_script(source: str) -> tuple[float, str]:
    """Run a program in a fresh interpreter: wall time in seconds, and what it printed.

    Raises:
      RuntimeError: the program failed; the message is the end of what it wrote.
    """
    # An installed package has its bytecode; a checkout must be allowed to write it, or it is compiled at each start.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=env)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"the script ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return seconds, done.stdout


# The kernel's high-water mark since exec. (`ru_maxrss` would count the parent that was forked.)
_PEAK_MEMORY = "\nprint([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])\n"


def measure(workload: Workload, systems: tuple[str, str], effort: Effort) -> Iterator[Result]:
    """Run a workload at each of its sizes, then check that it is linear where it says so."""
    results = []
    for size, bound in list(zip(workload.sizes, workload.at_most, strict=True))[: effort.sizes]:
        label = workload.name if size is None else f"{workload.name}[{size}]"
        results.append(Result(label, workload.unit, workload.row, bound))
    if workload.processes > 1 and not effort.here:
        with _reporting(results):
            _measure_apart(workload, results, systems, effort)
        yield from results
    else:
        for size, result in zip(workload.sizes, results, strict=False):
            with _reporting([result]):
                _measure_case(workload, size, result, systems, effort)
            yield result
    if workload.linear and len(results) > 1 and not any(result.error for result in results):
        yield _growth(workload, results[0], results[-1])


@contextlib.contextmanager
def _reporting(results: list[Result]) -> Iterator[None]:
    """Record an exception in these results, so that the other workloads still run."""
    try:
        yield
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        for result in results:
            result.error = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"


def _measure_case(
    workload: Workload, size: int | None, result: Result, systems: tuple[str, str], effort: Effort
) -> None:
    """Fill in the samples of one size."""
    arguments = () if size is None else (size,)
    builds = [(system, system, workload.build) for system in systems]
    if workload.floor is not None and systems[0] != systems[1]:
        builds.append((ENGINE, systems[0], workload.floor))
    samplers = []
    for system, module, build in builds:
        xp: ModuleType = importlib.import_module(module)
        samplers.append(Sampler(system, build(xp, *arguments), workload.unit, effort))
    gc.collect()
    gc.freeze()  # Existing objects must not cost the collector time during a measurement.
    try:
        slowest = max(sampler.seconds * sampler.loops for sampler in samplers)
        low, high = effort.rounds
        rounds = min(high, max(low, int(effort.budget / slowest))) if slowest else low * 2
        if isinstance(samplers[0].subject, Value):
            rounds = 1
        elif isinstance(samplers[0].subject, Script) and samplers[0].subject.memory:
            rounds = low  # which differ by less than a hundredth
        sides = list(zip(samplers, (result.ours, result.peer, result.engine), strict=False))
        turn, deadline = 0, math.inf
        while turn < rounds or (result.is_open and time.monotonic() < deadline):
            if turn == rounds:
                deadline = time.monotonic() + effort.patience
            for sampler, samples in sides if turn % 2 else reversed(sides):
                samples.append(sampler.sample())
            turn += 1
    finally:
        gc.unfreeze()


def _measure_apart(workload: Workload, results: list[Result], systems: tuple[str, str], effort: Effort) -> None:
    """Fill in the samples of several processes: for each our median, and the others by their ratios to it."""
    this = [sys.executable, "-m", "benchmarks", "--here", "--subject", systems[0]]
    turn, deadline = 0, math.inf
    while turn < workload.processes or (any(r.is_open for r in results) and time.monotonic() < deadline):
        if turn == workload.processes:
            deadline = time.monotonic() + effort.patience * len(results)
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder, "found.json")
            command = [*this, "--only", f"^{re.escape(workload.name)}$", "--json", str(found)]
            subprocess.run(command, check=True, capture_output=True)
            rows = json.loads(found.read_text())["workloads"]
        for result, row in zip(results, rows, strict=True):
            result.error = result.error or row["error"]
            if result.error is None:
                ours = statistics.median(row["ours"])
                result.ours.append(ours)
                result.peer.append(ours / row["ratio"])
                if row["floor"] is not None:
                    result.engine.append(result.peer[-1] * row["floor"])
        turn += 1


def _growth(workload: Workload, small: Result, large: Result) -> Result:
    """Compare the cost per operation of the largest size with that of the smallest, for ourselves."""
    growth = [
        statistics.median(b) / statistics.median(a) for a, b in ((small.ours, large.ours), (small.peer, large.peer))
    ]
    row = Row(f"linear in size: {workload.name}")
    result = Result(f"{workload.name}: growth", "x", row, 1.3, [growth[0]], [1.0])
    return result
