"""The time of a compiled program on a machine, by roofline.

An instruction takes as long as its arithmetic or its memory traffic, whichever takes longer, at the machine's peak; a
collective as long as its bytes take on the slowest link that it needs. An asynchronous collective overlaps with what is
run between its start and its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phalanx.engine.hlo_parser import HloModule, format_line
from phalanx.planning.machines import Machine
from phalanx.planning.traffic import Traffic


@dataclass(frozen=True)
class OperationTime:
    """The time of one instruction of the compiled program in all of its executions.

    Args:
      operation: the HLO instruction, such as "fusion".
      source: the user's line, as `file:line`; "" if XLA lost it.
      executions: how often it is run.
      flops: operations of the matrix products of one execution.
      bytes: read and written by one execution.
      seconds: of all executions.

    Examples:
      >>> OperationTime("fusion", "train.py:7", 2, 100, 64, 1e-6).executions
      2
    """

    operation: str
    source: str
    executions: int
    flops: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class TimeEstimate:
    """The time of one run of the program, in seconds.

    Args:
      compute: of all operations on the device, one after the other.
      communication: of all collectives.
      exposed: of the collectives, as far as nothing overlaps with them in the compiled program.
      operations: the ones that take time, in program order.

    Examples:
      >>> TimeEstimate(2.0, 1.0, 0.5, ()).step
      2.5
    """

    compute: float
    communication: float
    exposed: float
    operations: tuple[OperationTime, ...]

    @property
    def step(self) -> float:
        """The time of one run."""
        return self.compute + self.exposed

    @property
    def step_at_best(self) -> float:
        """The time of one run if all communication overlapped that can."""
        return max(self.compute, self.communication)

    def by_source(self) -> dict[str, float]:
        """Seconds of the operations of each line, the longest first."""
        lines: dict[str, float] = {}
        for operation in self.operations:
            lines[operation.source] = lines.get(operation.source, 0.0) + operation.seconds
        return dict(sorted(lines.items(), key=lambda line: -line[1]))


def estimate_time(module: HloModule, machine: Machine, collective_seconds: Mapping[str, float]) -> TimeEstimate:
    """Estimate the time of a program.

    Args:
      module: the program.
      machine: the machine.
      collective_seconds: of all executions of each collective, by the name of its instruction.

    Returns:
      The estimate.
    """
    traffic = Traffic(module)
    operations = []
    hidden = dict.fromkeys(collective_seconds, 0.0)
    under_way: set[str] = set()
    for run in module.walk():
        of = run.instruction
        if run.fusion is not None:
            continue
        if run.name in collective_seconds:
            under_way |= {run.name} if of.opcode.endswith("-start") else set()
            continue
        if of.opcode.endswith("-done"):
            under_way.discard(of.operands[0])
            continue
        flops, width = traffic.contraction(of, run.computation)
        moved = traffic.moved_bytes(of, run.computation)
        if not moved:
            continue
        executions = run.executions
        seconds = executions * max(machine.contraction_seconds(flops, width), moved / machine.bandwidth)
        line = format_line(module.trace_source(run.name, run.computation)) or run.line
        operations.append(OperationTime(of.opcode, line, executions, flops, moved, seconds))
        for name in under_way:
            hidden[name] += seconds
    return TimeEstimate(
        compute=sum(o.seconds for o in operations),
        communication=sum(collective_seconds.values()),
        exposed=sum(max(seconds - hidden[name], 0.0) for name, seconds in collective_seconds.items()),
        operations=tuple(operations),
    )
