"""The memory traffic and the arithmetic of single HLO instructions, those inside fusions included.

A fusion reads its operands and writes its result once. It reads only a part of an operand of which it takes slices, as
the body of a scan does with stacked parameters, and writes only a part of a result that it updates in place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from phalanx.engine.hlo_instructions import Computation, Instruction, find_parameter_name, find_root, num_bytes, numbers
from phalanx.engine.hlo_parser import HloModule

ELEMENTWISE = ("bitcast", "convert", "copy", "transpose")
# Instructions that move nothing: they name buffers, or are counted through what they call.
_FREE = frozenset(
    "add-dependency after-all bitcast call conditional constant domain get-tuple-element opt-barrier parameter "
    "partition-id replica-id tuple while".split()
)
_LHS_CONTRACTED = re.compile(r"\blhs_contracting_dim(?:s=\{|ensions\":\[)([^\]}]*)")
_DIM_LABELS = re.compile(r"\bdim_labels=\w+_(\w+)->")


class Traffic:
    """The work of the instructions of a module.

    Args:
      module: the module.
    """

    def __init__(self, module: HloModule) -> None:
        self._computations = module.computations

    def moved_bytes(self, of: Instruction, computation: Computation) -> int:
        """The bytes that an instruction reads and writes."""
        if of.opcode in _FREE or of.opcode.endswith(("-start", "-done")):
            return 0
        written = self._updated(of, computation)
        read = sum(self.read_bytes(of, i, computation) for i, x in enumerate(of.operands) if x in computation)
        return read + (num_bytes(of.type) if written is None else written)

    def read_bytes(self, of: Instruction, operand: int, computation: Computation) -> int:
        """The bytes that an instruction reads of one of its operands."""
        whole = num_bytes(computation[of.operands[operand]].type)
        if of.opcode in ("dynamic-slice", "slice", "gather") and operand == 0:
            return num_bytes(of.type)
        if of.opcode in ("dynamic-update-slice", "scatter") and operand == 0:
            return 0
        if of.opcode != "fusion":
            return whole
        fused = self._computations[of.callees[0]]
        return min(whole, sum(self._read_inside(find_parameter_name(fused, operand), fused)))

    def _read_inside(self, name: str, fused: Computation) -> list[int]:
        """The bytes of a value in a fusion that each of the instructions that use it reads."""
        found = []
        for own, user in fused.items():
            if name not in user.operands:
                continue
            if user.opcode in ELEMENTWISE:  # computed for the elements that are read of its result
                ratio = num_bytes(fused[name].type) / num_bytes(user.type)
                found += [int(n * ratio) for n in self._read_inside(own, fused)]
            else:
                found += [self.read_bytes(user, i, fused) for i, x in enumerate(user.operands) if x == name]
        return found

    def _updated(self, of: Instruction, computation: Computation) -> int | None:
        """The bytes that an instruction writes into its operand in place; None if it writes its complete result."""
        if of.opcode == "fusion":
            computation = self._computations[of.callees[0]]
            inside = find_root(computation)
            while inside is not None and inside.opcode == "bitcast":
                inside = computation[inside.operands[0]]
            return None if inside is None else self._updated(inside, computation)
        if of.opcode == "dynamic-update-slice":
            return num_bytes(computation[of.operands[1]].type)
        return num_bytes(computation[of.operands[-1]].type) if of.opcode == "scatter" else None

    def contraction(self, of: Instruction, computation: Computation) -> tuple[int, int]:
        """The operations of the matrix products and convolutions of an instruction.

        Args:
          of: the instruction.
          computation: where it is.

        Returns:
          The operations, and the bits of the operands of the largest product.
        """
        if of.opcode == "fusion":
            fused = self._computations[of.callees[0]]
            parts = [self.contraction(i, fused) for i in fused.values()]
            return sum(flops for flops, _ in parts), max(parts, default=(0, 0))[1]
        flops = _count_flops(of, computation)
        return flops, type_bits(computation[of.operands[0]].type) if flops else 0


def _count_flops(of: Instruction, computation: Mapping[str, Instruction]) -> int:
    contracted, labels = _LHS_CONTRACTED.search(of.rest), _DIM_LABELS.search(of.rest)
    if of.opcode == "convolution" and labels is not None:
        kernel = numbers(computation[of.operands[1]].type.partition("[")[2])
        return 2 * _size(of.type) * math.prod(kernel) // kernel[labels[1].index("o")]
    if of.opcode in ("dot", "custom-call") and contracted is not None:
        lhs = numbers(computation[of.operands[0]].type.partition("[")[2])
        return 2 * _size(of.type) * math.prod(lhs[d] for d in numbers(contracted[1]))
    return 0


def type_bits(type: str) -> int:
    """The width of the elements of an array type."""
    return 8 * num_bytes(type.partition("[")[0] + "[]")


def _size(type: str) -> int:
    """The number of elements of an array type, or of the first array of a tuple."""
    return math.prod(numbers(type.partition("[")[2].partition("]")[0]))
