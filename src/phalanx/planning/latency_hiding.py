"""The order in which XLA for GPUs runs the kernels of a computation, with collectives behind other kernels.

XLA's `LatencyHidingScheduler` goes through the computation from its end. Of the instructions whose readers have their
places it takes the one that waits least for these, then the one with most collectives in a row before it, then the one
that lets most others follow, then the last one of the given order. A collective ends as late, and starts as early, as
hides its latency, with one under way at a time; one that depends on no other starts as early as possible.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from phalanx.engine.hlo_collectives import KINDS
from phalanx.engine.hlo_instructions import Computation

_WITHOUT_KERNEL = frozenset("bitcast constant get-tuple-element parameter tuple".split())
_STEP = 1e-6  # between the ends of a kernel and of one that reads its result, in seconds


def schedule(computation: Computation, seconds: Callable[[str, Computation], float]) -> Computation:
    """Order a computation.

    Args:
      computation: its instructions in an order that needs little memory.
      seconds: the time of an instruction.

    Returns:
      The instructions, with a start and an end in the place of each collective.
    """
    return _Schedule(computation, seconds).run()


class _Schedule:
    """The state of the scheduler: what has its place, from the end of the computation."""

    def __init__(self, computation: Computation, seconds: Callable[[str, Computation], float]) -> None:
        self._computation, self._seconds = computation, seconds
        self._position = {name: n for n, name in enumerate(computation)}
        self._operands: dict[str, list[str]] = {}
        self._depth: dict[str, int] = {}  # the collectives in a row before each instruction
        self._readers: dict[str, set[str]] = {name: set() for name in computation}
        for name, of in computation.items():
            operands = () if of.opcode in ("constant", "parameter") else dict.fromkeys(of.operands)
            self._operands[name] = [x for x in operands if x in computation]
            for x in self._operands[name]:
                self._readers[x].add(name)
            before = (self._depth[x] + (computation[x].opcode in KINDS) for x in self._operands[name])
            self._depth[name] = max(before, default=0)
        self._follow = {n: sum(len(self._readers[x]) == 1 for x in own) for n, own in self._operands.items()}
        self._kernels: list[tuple[int, int, int, str]] = []
        self._collectives: list[tuple[int, int, int, str]] = []
        self._waiting: deque[tuple[float, str]] = deque()
        self._placed: Computation = {}
        self._time = 0.0
        for name, readers in self._readers.items():
            if not readers:
                self._make_ready(name)

    def run(self) -> Computation:
        """Place all instructions."""
        under_way, due = "", 0.0
        while self._kernels or self._collectives or self._waiting or under_way:
            if not self._kernels and self._waiting and not (under_way and due < self._waiting[0][0]):
                self._time = max(self._time, self._waiting[0][0])
            while self._waiting and self._waiting[0][0] <= self._time:
                heapq.heappush(self._kernels, self._rank(self._waiting.popleft()[1]))
            if self._collectives and not under_way:
                under_way = heapq.heappop(self._collectives)[-1]
                due = self._time + self._seconds(under_way, self._computation)
                self._end(under_way)
            elif under_way and (not self._kernels or (due <= self._time and self._starts_next(under_way))):
                self._time = max(self._time, due)
                self._start(under_way)
                under_way = ""
            elif self._kernels and (name := heapq.heappop(self._kernels)[-1]) in self._readers:
                self._placed[name] = self._computation[name]
                self._release(name)
        return dict(reversed(self._placed.items()))

    def _starts_next(self, collective: str) -> bool:
        """Whether a collective whose latency is hidden starts now rather than before the next kernel."""
        return bool(self._collectives) or (self._depth[collective] > 0 and self._rank(collective) < self._kernels[0])

    def _rank(self, name: str) -> tuple[int, int, int, str]:
        return -self._depth[name], -self._follow[name], -self._position[name], name

    def _end(self, collective: str) -> None:
        of = self._computation[collective]
        self._placed[collective] = of._replace(opcode=f"{of.opcode}-done", operand_text=f"{collective}.start")

    def _start(self, collective: str) -> None:
        of = self._computation[collective]
        sent = ", ".join(self._computation[x].type for x in of.operands)
        start = of._replace(opcode=f"{of.opcode}-start", type=f"(({sent}), {of.type})", is_root=False)
        self._placed[f"{collective}.start"] = start
        self._release(collective)

    def _release(self, name: str) -> None:
        """Note that an instruction has its place, before which its operands can have theirs."""
        of = self._computation[name]
        if of.opcode not in _WITHOUT_KERNEL and of.opcode not in KINDS:
            self._time += self._seconds(name, self._computation)
        del self._readers[name]
        for x in self._operands[name]:
            self._readers[x].discard(name)
            if not self._readers[x]:
                self._make_ready(x)
            elif len(self._readers[x]) == 1:
                (last,) = self._readers[x]
                self._follow[last] += 1
                if not self._readers[last] and self._computation[last].opcode not in KINDS:
                    heapq.heappush(self._kernels, self._rank(last))  # once more, before its former rank

    def _make_ready(self, name: str) -> None:
        if self._computation[name].opcode in KINDS:
            heapq.heappush(self._collectives, self._rank(name))
        else:
            self._waiting.append((self._time + _STEP, name))
