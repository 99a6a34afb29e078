"""A parser of compiled HLO: its collectives with their source lines, device groups and enclosing loops.

XLA provides the operations of a compiled program only as text. This module parses the forms of all supported versions;
`spmd.communication` translates device groups to mesh axes.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

KINDS = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)


class Communication(NamedTuple):
    """One collective of a compiled program.

    Args:
      kind: its name in HLO, such as "all-gather"; an asynchronous pair of start and done operations is one collective.
      bytes: the size of its operands or of its results on one device, whichever is larger.
      groups: the groups of partitions; empty for a group of all, and for permutations.
      pairs: for a permutation, the source and target partitions.
      file, line: the user's source line; "" and 0 if it is unknown.
      name: the operation's name in the program, with its scopes.
      loops: for each enclosing loop, outermost first, its number of iterations, or None if it is unknown.
    """

    kind: str
    bytes: int
    groups: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]
    file: str
    line: int
    name: str
    loops: tuple[int | None, ...]


class _Instruction(NamedTuple):
    type: str
    opcode: str
    rest: str  # operands and attributes


_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\(.*)?\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_LAYOUT = re.compile(r"(?<=\])\{[^{}]*\}")  # removed, since tilings in layouts look like operations
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\]")
_CALLED = re.compile(r"\b(?:calls|to_apply|true_computation|false_computation|called_computations)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\b(?:branch_computations|called_computations|calls)=\{([^}]*)\}")
_BODY = re.compile(r"\bbody=%?([\w.\-]+)")
_CONDITION = re.compile(r"\bcondition=%?([\w.\-]+)")
_TRIPS = re.compile(r'"?known_trip_count"?[=:]\{"?n"?[=:]"?(\d+)"?\}')
_QUOTED = r'="((?:[^"\\]|\\.)*)"'
_NESTED = r"\((?:[^()]|\([^()]*\))*\)"
_GROUPS = re.compile(
    r"\breplica_groups=(mesh\[[^\]]*\](?:, device_ids=" + _NESTED + r")? \{[^}]*\}|\{(?:[^{}]|\{[^{}]*\})*\}|\[[^ ]*)"
)
_PAIRS = re.compile(r"\bsource_target_pairs=(\{(?:[^{}]|\{[^{}]*\})*\})")
_AXIS_SIZE = re.compile(r"'([^']*)'=(\d+)")
_AXIS_USED = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")
_TABLE_ROW = re.compile(r'^(\d+) (?:"((?:[^"\\]|\\.)*)"|\{(.*)\})$')


def communications(text: str) -> list[Communication]:
    """List the collectives that a compiled program runs.

    Args:
      text: the program, from `compiler.hlo_text`.

    Returns:
      The collectives in program order; one in a function that is called twice is listed twice.
    """
    entry, computations = _computations(text)
    return list(_walk(entry, computations, _Places(text), (), ("", 0, "")))


def _computations(text: str) -> tuple[str, dict[str, dict[str, _Instruction]]]:
    """The instructions of each computation by name, and the name of the entry computation."""
    entry, found, current = "", {}, None
    for line in text.splitlines():
        if (head := _COMPUTATION.match(line)) and not line.startswith((" ", "HloModule")):
            current = found[head[2]] = {}
            entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (match := _INSTRUCTION.match(line)):
            plain = " " + _LAYOUT.sub("", match[2])
            if (opcode := _OPCODE.search(plain)) is not None:
                current[match[1]] = _Instruction(plain[: opcode.start()], opcode[1], match[2])
    return entry, found


def _walk(
    name: str,
    computations: dict[str, dict[str, _Instruction]],
    places: _Places,
    loops: tuple[int | None, ...],
    around: tuple[str, int, str],
) -> Iterator[Communication]:
    """List the collectives of a computation inside `loops`; `around` is the source of the innermost loop."""
    instructions = computations.get(name, {})
    for instruction in instructions.values():
        # An asynchronous collective is a pair of -start and -done operations; only the first is counted.
        kind, _, half = instruction.opcode.partition("-start")
        if kind in KINDS and not half:
            where = places.of(instruction.rest)
            yield _communication(kind, instruction, instructions, where if any(where) else around, loops)
            continue
        # The trip count is in the operation's backend config, if XLA could determine it.
        if instruction.opcode == "while":
            trips = _TRIPS.search(instruction.rest)
            inside = (*loops, int(trips[1]) if trips else None)
            for which in (_CONDITION, _BODY):
                if part := which.search(instruction.rest):
                    yield from _walk(part[1], computations, places, inside, places.of(instruction.rest))
            continue
        for called in _callees(instruction):
            yield from _walk(called, computations, places, loops, around)


def _callees(instruction: _Instruction) -> list[str]:
    if instruction.opcode in ("reduce", "reduce-window", "scatter", "sort", "map", "select-and-scatter"):
        return []  # they call functions of scalars
    return [*_CALLED.findall(instruction.rest), *re.findall(r"[\w.\-]+", ",".join(_BRANCHES.findall(instruction.rest)))]


def _communication(
    kind: str,
    of: _Instruction,
    instructions: dict[str, _Instruction],
    where: tuple[str, int, str],
    loops: tuple[int | None, ...],
) -> Communication:
    operands = of.rest[of.rest.index(f"{of.opcode}(") + len(of.opcode) :]
    operands = operands[: operands.find(")") + 1]
    names = re.findall(r"%?([\w.\-]+)", operands)
    received = _bytes(of.type)
    if of.opcode.endswith("-start") and kind != "all-reduce":  # (operands, results, context of the runtime)
        received = _bytes(_elements(of.type)[1])
    groups, pairs = _GROUPS.search(of.rest), _PAIRS.search(of.rest)
    return Communication(
        kind,
        max(sum(_bytes(instructions[name].type) for name in names if name in instructions), received),
        parse_groups(groups[1].rstrip(",")) if groups else (),
        tuple([(a, b) for a, b in parse_groups(pairs[1])]) if pairs else (),
        *where,
        loops,
    )


def _elements(type: str) -> list[str]:
    """Split a tuple type into its elements."""
    depth, parts = 0, [""]
    for c in type.strip()[1:-1]:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def _bytes(type: str) -> int:
    bits = sum(_bits(name) * math.prod(_numbers(dims)) for name, dims in _ARRAY.findall(type))
    return -(-bits // 8)  # rounded up, since elements of less than a byte are packed


def _bits(name: str) -> int:
    """The width in bits of an element type, such as `f32`, `bf16`, `f8e4m3fn`, `s4`, `pred`, `c64`."""
    width = re.match(r"[a-z]+(\d+)", name)
    return 8 if name == "pred" else int(width[1]) if width else 0


def parse_groups(text: str) -> tuple[tuple[int, ...], ...]:
    """Parse device groups.

    Args:
      text: a list such as `{{0,1},{2,3}}`; or an iota such as `[4,2]<=[2,4]T(1,0)`, which counts in the shape [2,4],
        transposes, and reshapes to [4,2]; or axes of a mesh along which each group runs, such as
        `mesh['x'=4,'y'=2] {'x':(2)2}`, where `(2)2` is the sub-axis of size 2 after a part of size 2.

    Returns:
      The groups; empty for `{}`, which means a group of all devices.

    Examples:
      >>> (
      ...     parse_groups("{{0,1},{2,3}}"),
      ...     parse_groups("[2,2]<=[2,2]T(1,0)"),
      ...     parse_groups("mesh['x'=2,'y'=2] {'x'}"),
      ... )
      (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 2), (1, 3)))
    """
    if text.startswith("{"):
        return tuple([tuple(map(int, g.split(","))) for g in re.findall(r"\{([\d,]+)\}", text)])
    if text.startswith("mesh"):
        return _groups_along(text)
    tiles, source = text.split("<=")
    return _as_tuples(_count(source).reshape(_numbers(tiles)[0], -1))


def _as_tuples(rows: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, rows.tolist()))


def _count(text: str) -> np.ndarray:
    """The numbers of an iota such as `[2,4]T(1,0)`, in its shape."""
    shape, _, order = text.partition("T")
    sizes = _numbers(shape)
    devices = np.arange(math.prod(sizes)).reshape(sizes)
    return devices.transpose(_numbers(order)) if order else devices


def _groups_along(text: str) -> tuple[tuple[int, ...], ...]:
    """The groups along some axes or sub-axes of a mesh."""
    mesh, _, rest = text.partition("]")
    sizes = {name: int(size) for name, size in _AXIS_SIZE.findall(mesh)}
    ids, _, used = rest.rpartition("{")
    refs = [(name, int(before or 1), int(size or sizes[name])) for name, before, size in _AXIS_USED.findall(used)]
    devices = np.arange(math.prod(sizes.values()))
    if "device_ids" in ids:
        listed = ids[ids.index("(") + 1 : ids.rindex(")")]
        devices = _count(listed) if listed.startswith("[") else np.array(_numbers(listed))
    shape: list[int] = []
    place: dict[tuple[str, int], int] = {}  # the dimension of a sub-axis, by the size of the part before it
    for name, size in sizes.items():
        cuts = sorted({1, size, *(c for n, before, part in refs if n == name for c in (before, before * part))})
        for before, after in itertools.pairwise(cuts if size > 1 else [1, 1]):
            place[name, before] = len(shape)
            shape.append(after // before)
    along = []
    for name, before, size in refs:
        while size > 1:
            along.append(place[name, before])
            before, size = before * shape[along[-1]], size // shape[along[-1]]
    others = [d for d in range(len(shape)) if d not in along]
    ordered = devices.reshape(shape).transpose([*others, *along])
    return _as_tuples(ordered.reshape(-1, math.prod(shape[d] for d in along)))


def _numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


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
