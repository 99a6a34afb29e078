"""A parser of compiled HLO: computations, their instructions in scheduled order, loops and source lines.

XLA provides the operations of a compiled program only as text. This module parses the forms of all supported versions.
`engine.hlo_collectives` finds the collectives, `phalanx.planning` the memory and the time that a program needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

from phalanx.engine.hlo_instructions import Computation, Instruction
from phalanx.engine.hlo_loops import trip_count

Source: TypeAlias = tuple[str, int, str]
"""File, line and name of an operation in the user's program; "", 0 and "" if they are unknown."""


class Execution(NamedTuple):
    """An instruction as it is run.

    Args:
      instruction: the instruction.
      computation: the computation that it is in.
      source: its source; that of the innermost loop around it if it has none.
      loops: for each enclosing loop, outermost first, its number of iterations, or None if it is unknown.
      fusion: the fusion that it is a part of, if any.
    """

    instruction: Instruction
    computation: Computation
    source: Source
    loops: tuple[int | None, ...]
    fusion: Instruction | None


_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\(.*)?\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_LAYOUT = re.compile(r"(?<=\])\{[^{}]*\}")  # removed, since tilings in layouts look like operations
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_NESTED = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
_PARENTHESIZED = re.compile(_NESTED)
_QUOTED = r'="((?:[^"\\]|\\.)*)"'
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
                plain = " " + _LAYOUT.sub("", match[3])
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

    def walk(self) -> Iterator[Execution]:
        """Yield the instructions that the program runs, in its order; of a function that is called twice, twice."""
        return self._walk(self.entry, ("", 0, ""), (), None)

    def _walk(
        self, name: str, around: Source, loops: tuple[int | None, ...], fusion: Instruction | None
    ) -> Iterator[Execution]:
        computation = self.computations.get(name, {})
        for instruction in computation.values():
            stated = self.source(instruction)
            source = stated if any(stated) else around
            yield Execution(instruction, computation, source, loops, fusion)
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
