"""The memory of one device that a compiled program needs, and the buffers that make up its peak."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.engine.hlo_instructions import flatten_type, num_bytes
from phalanx.engine.hlo_parser import HloModule, format_line
from phalanx.engine.offline_compiler import OfflineProgram
from phalanx.planning.liveness import Liveness, Written

_ALIASED = re.compile(r"\{(\d*)\}: \(\d+, ")


@dataclass(frozen=True)
class PlannedBuffer:
    """A buffer of one device that is live at the peak of memory.

    Args:
      bytes: its size.
      kind: "argument", "result" or "temporary".
      type: its dtype and shape on the device, such as "f32[8,128]".
      name: the path of an argument; otherwise the operation that writes the buffer.
      source: the user's line that causes it, as `file:line`; "" for arguments, and if XLA lost it.

    Examples:
      >>> PlannedBuffer(4096, "argument", "f32[8,128]", "params['w']", "").kind
      'argument'
    """

    bytes: int
    kind: str
    type: str
    name: str
    source: str


@dataclass(frozen=True)
class PlannedMemory:
    """The memory of one device, in bytes.

    Args:
      arguments: of the arguments and large constants.
      results: of the results.
      aliased: of results that take the memory of donated arguments, which count in both.
      temporaries: of everything in between at its peak, as the compiler lays it out.
      capacity: the memory of a device of the target; None if there is no target.
      largest: the buffers at the peak, the largest first.
      timeline: the bytes while each instruction of the program runs, in order.
      source: the user's line at the peak.

    Examples:
      >>> PlannedMemory(8, 4, 4, 16, None, (), (), "").peak
      24
    """

    arguments: int
    results: int
    aliased: int
    temporaries: int
    capacity: int | None
    largest: tuple[PlannedBuffer, ...]
    timeline: tuple[int, ...]
    source: str

    @property
    def peak(self) -> int:
        """The memory that a device needs."""
        return self.arguments + self.results - self.aliased + self.temporaries

    @property
    def excess(self) -> int:
        """The bytes that do not fit into the target's memory; 0 if all do."""
        return 0 if self.capacity is None else max(self.peak - self.capacity, 0)


def measure_memory(
    module: HloModule,
    answer: OfflineProgram,
    argument_names: Sequence[str],
    capacity: int | None,
    *,
    is_modeled: bool = False,
) -> PlannedMemory:
    """Explain the memory of a compiled program.

    Args:
      module: the parsed program.
      answer: the compiler's answer.
      argument_names: for the last parameters of the program; the first ones are constants.
      capacity: the memory of a device.
      is_modeled: whether the program is not the compiler's own, so that its temporaries are those that are live at its
        peak. Otherwise they take as much as the compiler says.

    Returns:
      The memory.
    """
    sizes = {name: answer.memory[f"{name}_size_in_bytes"] for name in ("argument", "output", "alias", "temp")}
    liveness = Liveness(module)
    usage = liveness.usage()
    kept = sizes["argument"] + sizes["output"] - sizes["alias"]

    def describe(buffer: Written, kind: str) -> PlannedBuffer:
        computation = module.computations[buffer.computation]
        instruction = computation[buffer.name]
        type = flatten_type(instruction.type)[buffer.leaf]
        source = module.trace_source(buffer.name, computation)
        return PlannedBuffer(num_bytes(type), kind, type, source[2] or instruction.opcode, format_line(source))

    arguments = [i for i in module.computations[module.entry].values() if i.opcode == "parameter"]
    arguments.sort(key=lambda i: int(i.operands[0]))
    num_constants = len(arguments) - len(argument_names)
    names = [*(f"constant {i}" for i in range(num_constants)), *argument_names]
    aliased = set(map(int, (n or "0" for n in _ALIASED.findall(module.text.partition("\n")[0]))))
    buffers = [
        *(PlannedBuffer(num_bytes(i.type), "argument", i.type, n, "") for i, n in zip(arguments, names, strict=True)),
        *(describe(b, "result") for n, leaf in enumerate(liveness.results()) if n not in aliased for b in leaf),
        *(describe(b, "temporary") for b, _ in usage.buffers),
    ]
    return PlannedMemory(
        arguments=sizes["argument"],
        results=sizes["output"],
        aliased=sizes["alias"],
        temporaries=usage.peak if is_modeled else sizes["temp"],
        capacity=capacity,
        largest=tuple(sorted((b for b in buffers if b.bytes), key=lambda b: -b.bytes)),
        timeline=tuple(kept + n for n in usage.timeline),
        source="" if usage.at is None else describe(usage.at, "temporary").source,
    )
