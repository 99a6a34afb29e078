"""What XLA for CPUs does otherwise than XLA for accelerators, where it plans a program in their place.

It widens values of 16 bits to 32 before it sends or multiplies them, and it has no reduce-scatter: it reduces the
complete value and takes a slice. A plan for another target counts such values at 16 bits, and such pairs as one
reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from phalanx.engine.hlo_collectives import Communication
from phalanx.engine.hlo_instructions import Computation, Instruction, element_index, find_root_name, num_bytes
from phalanx.engine.hlo_parser import Execution, HloModule
from phalanx.planning.traffic import ELEMENTWISE, Traffic

_NARROW = ("bf16", "f16")
_FORWARDING = ("all-gather", "all-to-all", "bitcast", "broadcast", "collective-permute", "copy", "reshape", "transpose")
# XLA's name for the reduction of an all-reduce of 16 bits that it has widened.
_WIDENED_REDUCTION = "_promoted"


class _Place(NamedTuple):
    """An instruction of a fusion, and the fusion; without one, of the computation around it."""

    name: str
    computation: Computation
    fusion: Instruction | None = None
    around: Computation | None = None


class AsCompiled:
    """A module whose compiler is the one that answers for its devices.

    Args:
      module: the module.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._traffic = Traffic(module)

    def operand_bits(self, of: Instruction, computation: Computation) -> int:
        """The bits of the operands of a product."""
        return type_bits(computation[of.operands[0]].type)

    def communications(self, run: Execution, found: Communication) -> Iterator[Communication]:
        """The collectives that the devices run for one that an instruction starts."""
        yield found


class CompiledForCpus(AsCompiled):
    """A module compiled for CPUs in place of other devices."""

    def operand_bits(self, of: Instruction, computation: Computation) -> int:
        """The bits of the operands of a product, before they were widened."""
        widened = all(self._is_widened(_Place(x, computation)) for x in of.operands[:2])
        return 16 if widened else super().operand_bits(of, computation)

    def communications(self, run: Execution, found: Communication) -> Iterator[Communication]:
        """The collectives that an accelerator would run in place of one that an instruction starts."""
        operands = [x for x in run.instruction.operands if x in run.computation]
        sizes = [num_bytes(run.computation[x].type) for x in operands]
        reduction = run.instruction.callee("to_apply")
        scattered = rest = 0
        for leaf, (x, nbytes) in enumerate(zip(operands, sizes, strict=True)):
            is_wide = _WIDENED_REDUCTION in reduction or self._is_widened(_Place(x, run.computation))
            sent = found.bytes * nbytes // sum(sizes) // (2 if is_wide else 1)
            if found.kind == "all-reduce" and found.groups and self._is_sliced(run, leaf, len(found.groups[0])):
                scattered += sent
            else:
                rest += sent
        if rest:
            yield found._replace(bytes=rest)
        if scattered:
            yield found._replace(kind="reduce-scatter", bytes=scattered)

    def _is_widened(self, at: _Place) -> bool:
        """Whether a value is one of 16 bits that was converted to 32."""
        of = at.computation.get(at.name)
        if of is None:
            return False
        if of.opcode == "convert":
            return at.computation[of.operands[0]].type.startswith(_NARROW) and not of.type.startswith(_NARROW)
        if of.opcode in _FORWARDING:
            return self._is_widened(at._replace(name=of.operands[0]))
        if of.opcode == "fusion" and at.fusion is None:
            fused = self._module.computations[of.callees[0]]
            return self._is_widened(_Place(find_root_name(fused), fused, of, at.computation))
        if of.opcode == "parameter" and at.fusion is not None and at.around is not None:
            return self._is_widened(_Place(at.fusion.operands[int(of.operands[0])], at.around))
        return False

    def _is_sliced(self, run: Execution, leaf: int, parts: int) -> bool:
        """Whether all that is read of an array of a result is one device's part."""
        if not run.instruction.type.startswith("("):
            return self._reads_are_parts(run.name, run.computation, parts)
        elements = [
            name
            for name, i in run.computation.items()
            if i.opcode == "get-tuple-element" and i.operands[0] == run.name and element_index(i) == leaf
        ]
        return bool(elements) and all(self._reads_are_parts(x, run.computation, parts) for x in elements)

    def _reads_are_parts(self, name: str, computation: Computation, parts: int) -> bool:
        """Whether each instruction that uses a value reads the same fraction of it."""
        users = [(own, i) for own, i in computation.items() if name in i.operands]
        whole = num_bytes(computation[name].type)
        return bool(users) and all(
            self._reads_are_parts(own, computation, parts)
            if self._is_conversion(user)
            else all(
                self._traffic.read_bytes(user, n, computation) * parts == whole
                for n, x in enumerate(user.operands)
                if x == name
            )
            for own, user in users
        )

    def _is_conversion(self, of: Instruction) -> bool:
        """Whether the result has the elements of the operand, in another dtype or layout."""
        if of.opcode != "fusion":
            return of.opcode in ELEMENTWISE
        fused = self._module.computations[of.callees[0]].values()
        return all(i.opcode in ELEMENTWISE or i.opcode == "parameter" for i in fused)


def type_bits(type: str) -> int:
    """The width of the elements of an array type."""
    return 8 * num_bytes(type.partition("[")[0] + "[]")
