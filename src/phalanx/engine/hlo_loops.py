"""The number of iterations of a loop in compiled HLO.

XLA for CPUs and GPUs states it in the loop's backend config. XLA for TPUs does not: there it is computed from the first
value of the loop's counter, its step, and the bound in the loop's condition. Called by `engine.hlo_parser`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from phalanx.engine.hlo_instructions import Computation, Instruction, element_index, find_root

_TRIPS = re.compile(r'"?known_trip_count"?[=:]\{"?n"?[=:]"?(\d+)"?\}')
_DIRECTION = re.compile(r"\bdirection=([A-Z]+)")
_FORWARDING = ("copy", "convert", "bitcast")


class _Scalar(NamedTuple):
    """An integer: an element of a loop's state, or zero if it is None, plus a constant."""

    element: int | None
    offset: int


_Inputs: TypeAlias = Sequence[_Scalar | None] | None  # values of parameters; None if the only one is the loop's state


def trip_count(loop: Instruction, computation: Computation, computations: Mapping[str, Computation]) -> int | None:
    """The number of iterations of a loop.

    Args:
      loop: the "while" instruction.
      computation: where it is.
      computations: the computations of the module by name.

    Returns:
      The number; None if the text does not determine it.
    """
    if stated := _TRIPS.search(loop.rest):
        return int(stated[1])
    initial, condition, body = (
        computation.get(loop.operands[0]),
        *(computations.get(loop.callee(role), {}) for role in ("condition", "body")),
    )
    after = find_root(body)
    if initial is None or initial.opcode != "tuple" or after is None or after.opcode != "tuple":
        return None
    read = _Reader(computations)
    progress = []
    for side in read.compared(condition):
        if side is None:
            return None
        if side.element is None:
            progress.append((side.offset, 0))
            continue
        start = read.scalar(initial.operands[side.element], computation, ())
        end = read.scalar(after.operands[side.element], body, None)
        if start is None or start.element is not None or end is None or end.element != side.element:
            return None
        progress.append((start.offset + side.offset, end.offset))
    (counter, step), (bound, change) = progress
    return max(-(-(bound - counter) // step), 0) if step > 0 and change == 0 else None


class _Reader:
    """Evaluates the integers of a loop's computations."""

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self._computations = computations

    def compared(self, condition: Computation) -> tuple[_Scalar | None, _Scalar | None]:
        """The sides a and b of a condition of the form a < b; None for a side of another form."""
        inputs: _Inputs = None
        test = find_root(condition)
        if test is not None and test.opcode == "fusion":
            inputs = [self.scalar(x, condition, None) for x in test.operands]
            condition = self._computations[test.callees[0]]
            test = find_root(condition)
        direction = _DIRECTION.search(test.rest) if test is not None else None
        if test is None or direction is None or direction[1] not in ("LT", "GT", "LE", "GE"):
            return None, None
        a, b = (self.scalar(x, condition, inputs) for x in test.operands)
        if direction[1].startswith("G"):
            a, b = b, a
        if b is not None and direction[1].endswith("E"):
            b = _Scalar(b.element, b.offset + 1)
        return a, b

    def scalar(self, name: str, computation: Computation, inputs: _Inputs) -> _Scalar | None:
        """The value of an instruction; None if it has another form."""
        of = computation.get(name)
        if of is None:
            return None
        operands = of.operands
        if of.opcode == "constant":
            return _Scalar(None, int(operands[0])) if re.fullmatch(r"-?\d+", operands[0]) else None
        if of.opcode == "parameter":
            return inputs[int(operands[0])] if inputs else None
        if of.opcode == "get-tuple-element":
            is_state = inputs is None and computation[operands[0]].opcode == "parameter"
            return _Scalar(element_index(of), 0) if is_state else None
        return self._compute(of, [self.scalar(x, computation, inputs) for x in operands])

    def _compute(self, of: Instruction, operands: Sequence[_Scalar | None]) -> _Scalar | None:
        """The result of an instruction for the values of its operands."""
        if of.opcode in _FORWARDING:
            return operands[0]
        if of.opcode == "fusion":
            inside = self._computations[of.callees[0]]
            return next((self.scalar(name, inside, operands) for name, i in inside.items() if i.is_root), None)
        if of.opcode not in ("add", "subtract"):
            return None
        a, b = operands
        if a is None or b is None:
            return None
        if of.opcode == "add" and a.element is None:
            a, b = b, a
        sign = 1 if of.opcode == "add" else -1
        return _Scalar(a.element, a.offset + sign * b.offset) if b.element is None else None
