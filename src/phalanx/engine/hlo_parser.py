"""A parser of compiled HLO: computations, their instructions in scheduled order, loops and source lines.

XLA provides the operations of a compiled program only as text. This module parses the forms of all supported versions.
`engine.hlo_collectives` finds the collectives, `phalanx.planning` the memory and the time that a program needs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

from phalanx.engine.hlo_instructions import Computation, Instruction, element_index, find_root_name
from phalanx.engine.hlo_loops import trip_count

Source: TypeAlias = tuple[str, int, str]
"""File, line and name of an operation in the user's program; "", 0 and "" if they are unknown."""


class Execution(NamedTuple):
    """An instruction as it is run.

    Args:
      name: the name of the instruction.
      instruction: the instruction.
      computation: the computation that it is in.
      source: its source; that of the innermost loop around it if it has none.
      loops: for each enclosing loop, outermost first, its number of iterations, or None if it is unknown.
      fusion: the fusion that it is a part of, if any.
    """

    name: str
    instruction: Instruction
    computation: Computation
    source: Source
    loops: tuple[int | None, ...]
    fusion: Instruction | None

    @property
    def executions(self) -> int:
        """How often it is run; loops of unknown length count as one iteration."""
        return math.prod(n or 1 for n in self.loops)

    @property
    def line(self) -> str:
        """Its source as `file:line`; "" if it is unknown."""
        return format_line(self.source)


def format_line(source: Source) -> str:
    """The file and line of a source as `file:line`; "" if they are unknown."""
    return f"{source[0]}:{source[1]}" if source[0] else ""


_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\(.*)?\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
# Layouts, since their tilings look like operations, and comments that number the operands and elements of long lists.
_REMOVED = re.compile(r"(?<=\])\{[^{}]*\}|/\*[^*]*\*/")
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_NESTED = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
_PARENTHESIZED = re.compile(_NESTED)
_QUOTED = r'="((?:[^"\\]|\\.)*)"'
_UNKNOWN: Source = ("", 0, "")
# Instructions that hold values of others, which have sources of their own.
_HOLDING = ("bitcast", "copy", "dynamic-update-slice", "fusion", "tuple", "while")
_MAX_STEPS = 100  # from an instruction without a source to one that has one
_TABLE_ROW = re.compile(r'^(\d+) (?:"((?:[^"\\]|\\.)*)"|\{(.*)\})$')


class HloModule:
    """A compiled program.

    Args:
      text: the program, from `compiler.hlo_text`.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.entry = ""
        self.computations: dict[str, Computation] = {}
        current = None
        for line in text.splitlines():
            if (head := _COMPUTATION.match(line)) and not line.startswith((" ", "HloModule")):
                current = self.computations[head[2]] = {}
                self.entry = head[2] if head[1] else self.entry
            elif line.startswith("}"):
                current = None
            elif current is not None and (match := _INSTRUCTION.match(line)):
                plain = " " + _REMOVED.sub("", match[3])
                if (opcode := _OPCODE.search(plain)) is not None:
                    inside = _PARENTHESIZED.match(plain, opcode.end())
                    assert inside is not None, "the pattern matches the empty text"
                    current[match[2]] = Instruction(
                        plain[: opcode.start()].strip(), opcode[1], inside[0], match[3], bool(match[1])
                    )

    @cached_property
    def _places(self) -> _Places:
        return _Places(self.text)

    def source(self, instruction: Instruction) -> Source:
        """The source of an instruction."""
        return self._places.of(instruction.rest)

    def trace_source(self, name: str, computation: Computation) -> Source:
        """The source of the value of an instruction: its own, or that of an instruction which it serves.

        A first value of a loop's state is memory for what the loop writes into it. XLA inserts copies, conversions and
        gathers of arguments without a source.
        """
        for own, user in computation.items():
            if user.opcode == "tuple" and name in user.operands:
                loop = next((i for i in computation.values() if i.opcode == "while" and i.operands == [own]), None)
                body = self.computations[loop.callee("body")] if loop is not None else {}
                if body and (found := self._trace_back(find_root_name(body), body, user.operands.index(name)))[0]:
                    return found
        found = self._trace_back(name, computation, 0)
        return found if found[0] else self._trace_forward(name, computation)

    def _trace_forward(self, name: str, computation: Computation) -> Source:
        """The source of the first instruction that has one and depends on a value."""
        dependent = {name}
        for own, user in computation.items():
            if not dependent.isdisjoint(user.operands):
                if (found := self.source(user))[0]:
                    return found
                dependent.add(own)
        return _UNKNOWN

    def _trace_back(self, name: str, computation: Computation, index: int) -> Source:
        """The source of element `index` of a value, from the instructions that lead to it."""
        found = _UNKNOWN
        for _ in range(_MAX_STEPS):
            if (of := computation.get(name)) is None:
                break
            found = stated if (stated := self.source(of))[0] else found
            if stated[0] and of.opcode not in _HOLDING:
                break
            if of.opcode == "get-tuple-element":
                index = element_index(of)
            if of.opcode in ("while", "fusion"):
                inside = self.computations[of.callee("body") or of.callees[0]]
                if (inner := self._trace_back(find_root_name(inside), inside, index))[0]:
                    return inner
            if of.operands:
                which = {"tuple": index, "dynamic-update-slice": 1}.get(of.opcode, 0)
                name = of.operands[which]
        return found

    def walk(self) -> Iterator[Execution]:
        """Yield the instructions that the program runs, in its order; of a function that is called twice, twice."""
        return self._walk(self.entry, _UNKNOWN, (), None)

    def _walk(
        self, name: str, around: Source, loops: tuple[int | None, ...], fusion: Instruction | None
    ) -> Iterator[Execution]:
        computation = self.computations.get(name, {})
        for own, instruction in computation.items():
            stated = self.source(instruction)
            source = stated if any(stated) else around
            yield Execution(own, instruction, computation, source, loops, fusion)
            if instruction.opcode == "while":
                inside = (*loops, trip_count(instruction, computation, self.computations))
                for role in ("condition", "body"):
                    yield from self._walk(instruction.callee(role), source, inside, fusion)
            for callee in instruction.callees:
                part_of = fusion or (instruction if instruction.opcode == "fusion" else None)
                yield from self._walk(callee, around, loops, part_of)


class _Places:
    """The source lines of instructions, from their metadata or from tables at the head of the program."""

    def __init__(self, text: str) -> None:
        self._tables: dict[str, dict[str, str]] = {}
        table = None
        for line in text.splitlines():
            if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
                table = self._tables[line] = {}
            elif table is not None and (row := _TABLE_ROW.match(line)):
                table[row[1]] = row[2] if row[2] is not None else row[3]
            elif line.startswith(("%", "ENTRY")):
                break

    def of(self, rest: str) -> tuple[str, int, str]:
        """File, line and name of an instruction; empty if it has none."""
        name = re.search("op_name" + _QUOTED, rest)
        return (*self._line(rest), name[1] if name else "")

    def _line(self, rest: str) -> tuple[str, int]:
        file, line = re.search("source_file" + _QUOTED, rest), re.search(r"source_line=(\d+)", rest)
        if file and line:
            return file[1], int(line[1])
        frame = re.search(r"stack_frame_id=(\d+)", rest)
        # Newer versions of XLA write a table of stack frames at the head of the module instead of a file and line per
        # operation.
        if frame is None or frame[1] not in self._tables.get("StackFrames", {}):
            return "", 0
        location = re.search(r"file_location_id=(\d+)", self._tables["StackFrames"][frame[1]])
        where = self._tables["FileLocations"].get(location[1], "") if location else ""
        name, number = re.search(r"file_name_id=(\d+)", where), re.search(r"\bline=(\d+)", where)
        return (self._tables["FileNames"][name[1]], int(number[1])) if name and number else ("", 0)
