"""The buffers that are live while a compiled program runs, and which of them make up its peak.

The instructions of a scheduled HLO module are in the order in which they run. A buffer is live from the instruction
that writes it to the last one that reads it. Most instructions write a buffer for each array of their result. The
others forward buffers of their operands, as tuples do, or write into them, as loops do to their state. A called
computation is at its own peak while its caller waits for it; its results are buffers of the caller.

XLA's own assignment knows more, such as the gaps between buffers, so that `Plan` takes the total from XLA and only its
composition from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from phalanx.engine.hlo_instructions import (
    Computation,
    Instruction,
    element_index,
    find_root_name,
    flatten_type,
    num_bytes,
    split_tuple_type,
)
from phalanx.engine.hlo_parser import HloModule


class Written(NamedTuple):
    """A buffer: one array of the result of the instruction that writes it.

    Args:
      computation: the name of the computation.
      name: the name of the instruction.
      leaf: the number of the array in its result.
    """

    computation: str
    name: str
    leaf: int


class Usage(NamedTuple):
    """The temporary memory of a computation.

    Args:
      peak: the bytes of the buffers that are live at its peak.
      buffers: these buffers with their bytes.
      timeline: for each instruction, the bytes while it runs.
      at: the first result of the instruction at the peak, in the innermost computation.
    """

    peak: int
    buffers: tuple[tuple[Written, int], ...]
    timeline: tuple[int, ...]
    at: Written | None


Leaf: TypeAlias = frozenset[Written]
"""The buffers in which an array may be: several after a conditional."""

# Instructions whose result is their operand.
_FORWARDING = frozenset({"add-dependency", "bitcast", "domain", "opt-barrier", "tuple", "while"})
# Instructions whose buffers exist before the program starts, or that need none.
_STATIC = frozenset({"parameter", "constant", "after-all", "partition-id", "replica-id"})
_IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})
# Instructions that may write their result into an operand of the same size that nothing reads later.
_REUSING = frozenset(
    "add and convert copy divide exponential fusion maximum minimum multiply negate or select subtract tanh xor".split()
)


class Liveness:
    """The live buffers of a module.

    Args:
      module: the scheduled module.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._usages: dict[str, Usage] = {}

    def results(self) -> list[Leaf]:
        """The buffers of the results of the program."""
        return self._place(self._module.entry)[find_root_name(self._module.computations[self._module.entry])]

    def usage(self, name: str = "") -> Usage:
        """The temporary memory of a computation, by default of the program, without that of its results."""
        name = name or self._module.entry
        if name not in self._usages:
            self._usages[name] = self._measure(name)
        return self._usages[name]

    def size(self, buffer: Written) -> int:
        """The bytes of a buffer."""
        return num_bytes(flatten_type(self._module.computations[buffer.computation][buffer.name].type)[buffer.leaf])

    def _measure(self, name: str) -> Usage:
        computation = self._module.computations[name]
        leaves = self._place(name)
        returned = set().union(*leaves[find_root_name(computation)])
        last_use = self._last_uses(computation, leaves)
        sizes: dict[Written, int] = {}
        peak = Usage(-1, (), (), None)
        timeline = []
        for number, (own, instruction) in enumerate(computation.items()):
            new = {b for leaf in leaves[own] for b in leaf if b[:2] == (name, own) and b not in returned}
            dying = {b for b in sizes if last_use.get(b, -1) <= number}
            if instruction.opcode in _REUSING:
                self._reuse(sizes, new, dying)
            sizes |= {b: self.size(b) for b in new}
            inner = self._inner_usage(instruction)
            timeline.append(sum(sizes.values()) + inner.peak)
            if timeline[-1] > peak.peak:
                live = (*((b, n) for b, n in sizes.items() if n), *inner.buffers)
                peak = Usage(timeline[-1], live, (), inner.at if inner.peak else Written(name, own, 0))
            for b in [b for b in sizes if last_use.get(b, -1) <= number]:
                del sizes[b]
        return peak._replace(peak=max(peak.peak, 0), timeline=tuple(timeline))

    def _reuse(self, sizes: dict[Written, int], new: Iterable[Written], dying: set[Written]) -> None:
        """Free operands that are read for the last time, and whose memory takes new buffers of the same size."""
        wanted = Counter(map(self.size, new))
        for b in dying:
            if wanted[sizes[b]] > 0:
                wanted[sizes[b]] -= 1
                del sizes[b]

    def _inner_usage(self, instruction: Instruction) -> Usage:
        """The largest usage among the computations that an instruction calls."""
        called = [instruction.callee(role) for role in ("condition", "body")] if instruction.opcode == "while" else []
        called += [] if instruction.opcode == "fusion" else instruction.callees
        usages = [self.usage(c) for c in called if c in self._module.computations]
        return max(usages, key=lambda u: u.peak, default=Usage(0, (), (), None))

    def _last_uses(self, computation: Computation, leaves: dict[str, list[Leaf]]) -> dict[Written, int]:
        found = {}
        for number, instruction in enumerate(computation.values()):
            if instruction.opcode not in ("tuple", "get-tuple-element", "bitcast"):  # they read nothing
                found |= {b: number for x in instruction.operands for leaf in leaves.get(x, ()) for b in leaf}
        return found

    def _place(self, name: str) -> dict[str, list[Leaf]]:
        """The buffers of each instruction of a computation."""
        leaves: dict[str, list[Leaf]] = {}
        computation = self._module.computations[name]
        for own, instruction in computation.items():
            new = [frozenset({Written(name, own, i)}) for i in range(len(flatten_type(instruction.type)))]
            operands = [leaves[x] for x in instruction.operands if x in leaves]
            given = [leaf for x in operands for leaf in x]
            if instruction.opcode in _STATIC:
                leaves[own] = [frozenset()] * len(new)
            elif instruction.opcode in _FORWARDING:
                leaves[own] = given[: len(new)]
            elif instruction.opcode == "get-tuple-element":
                before = _types_before(instruction, computation)
                leaves[own] = given[before : before + len(new)]
            elif instruction.opcode.endswith("-done"):
                start = computation[instruction.operands[0]]
                leaves[own] = given[(skipped := _num_sent(start, computation)) : skipped + len(new)]
            elif instruction.opcode.endswith("-start"):
                # (operands, results, context of the runtime), where XLA prints the operands at all
                leaves[own] = [*given, *new[len(given) :]] if _num_sent(instruction, computation) else new
            else:
                leaves[own] = [
                    given[at] if (at := self._overwritten(instruction, i)) is not None and at < len(given) else leaf
                    for i, leaf in enumerate(new)
                ]
        return leaves

    def _overwritten(self, of: Instruction, leaf: int) -> int | None:
        """The number of the operand into whose buffer an instruction writes an array of its result, if there is one."""
        if of.opcode in _IN_PLACE:
            return 0
        if of.opcode != "fusion":
            return None
        fused = self._module.computations[of.callees[0]]
        inside = fused[find_root_name(fused)]
        if inside.opcode == "tuple":
            inside = fused[inside.operands[leaf]]
        writes = False
        while inside.opcode in _IN_PLACE or inside.opcode == "bitcast":
            writes |= inside.opcode != "bitcast"
            inside = fused[inside.operands[0]]
        return int(inside.operands[0]) if writes and inside.opcode == "parameter" else None


def _types_before(of: Instruction, computation: Computation) -> int:
    """The number of arrays in a tuple before the element that an instruction reads."""
    elements = split_tuple_type(computation[of.operands[0]].type)
    return sum(len(flatten_type(t)) for t in elements[: element_index(of)])


def _num_sent(start: Instruction, computation: Computation) -> int:
    """The number of operands before the results in the result of an asynchronous operation."""
    sent = sum(len(flatten_type(computation[x].type)) for x in start.operands)
    is_listed = start.opcode != "copy-start" and len(flatten_type(start.type)) > sent
    return sent if is_listed else 0
