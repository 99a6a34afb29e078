"""Instructions of compiled HLO, their operands and callees, and the sizes of their types.

Used by `engine.hlo_parser`, which makes them, and by everything that reads compiled programs.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple, TypeAlias

_NAME = re.compile(r"%?([\w.\-]+)")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\]")
_INDEX = re.compile(r"\bindex=(\d+)")
_CALLED = re.compile(r"\b(?:calls|to_apply|true_computation|false_computation|called_computations)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\b(?:branch_computations|called_computations|calls)=\{([^}]*)\}")


class Instruction(NamedTuple):
    """One instruction of a computation.

    Args:
      type: the type of its result, without layouts.
      opcode: such as "fusion" or "all-gather-start".
      operand_text: the text in parentheses after the opcode, without layouts.
      rest: the complete line after "=", with attributes and metadata.
      is_root: whether its result is that of the computation.
    """

    type: str
    opcode: str
    operand_text: str
    rest: str
    is_root: bool

    @property
    def operands(self) -> list[str]:
        """The names of the operands; for a constant or a parameter its value or number."""
        return _NAME.findall(_ARRAY.sub("", self.operand_text))

    def callee(self, role: str) -> str:
        """The name of the computation that the instruction calls in a role, such as "body"; "" if there is none."""
        found = re.search(rf"\b{role}=%?([\w.\-]+)", self.rest)
        return found[1] if found else ""

    @property
    def callees(self) -> list[str]:
        """The computations that it calls, without loops and functions of scalars."""
        if self.opcode in ("while", "reduce", "reduce-window", "scatter", "sort", "map", "select-and-scatter"):
            return []
        return [*_CALLED.findall(self.rest), *re.findall(r"[\w.\-]+", ",".join(_BRANCHES.findall(self.rest)))]


Computation: TypeAlias = dict[str, Instruction]
"""The instructions of a computation by name, in the order in which they run if the module is scheduled."""


def find_root(computation: Computation) -> Instruction | None:
    """The instruction whose result is that of the computation."""
    return next((i for i in computation.values() if i.is_root), None)


def find_root_name(computation: Computation) -> str:
    """The name of the instruction whose result is that of the computation."""
    return next(name for name, i in computation.items() if i.is_root)


def find_parameter_name(computation: Computation, number: int) -> str:
    """The name of a parameter; "" if nothing reads it."""
    wanted = [str(number)]
    return next((name for name, i in computation.items() if i.opcode == "parameter" and i.operands == wanted), "")


def element_index(of: Instruction) -> int:
    """The number of the element that a get-tuple-element reads."""
    return int(_INDEX.search(of.rest)[1])  # type: ignore[index]  # each has one


def flatten_type(type: str) -> list[str]:
    """The types of the arrays in a type, of nested tuples in order.

    Args:
      type: such as `(f32[2], (s32[], f32[4]))`.

    Returns:
      The types.

    Examples:
      >>> flatten_type("(f32[2,4], (s32[], f32[4]))"), flatten_type("()")
      (['f32[2,4]', 's32[]', 'f32[4]'], [])
    """
    return [match[0] for match in _ARRAY.finditer(type)]


def split_tuple_type(type: str) -> list[str]:
    """Split the type of a tuple into the types of its elements.

    Args:
      type: such as `(f32[2], (s32[], f32[4]))`.

    Returns:
      The types of the elements.

    Examples:
      >>> split_tuple_type("(f32[2,4], (s32[], f32[4]))")
      ['f32[2,4]', '(s32[], f32[4])']
    """
    depth, parts = 0, [""]
    for c in type.strip()[1:-1]:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def num_bytes(type: str) -> int:
    """The bytes of a value of some type, of all arrays of a tuple together.

    Args:
      type: such as `f32[2,4]` or `(s4[3], pred[])`.

    Returns:
      The bytes; elements of less than a byte are packed.

    Examples:
      >>> num_bytes("bf16[2,4]"), num_bytes("(s4[3], pred[])")
      (16, 3)
    """
    bits = sum(_bits(name) * math.prod(numbers(dims)) for name, dims in _ARRAY.findall(type))
    return -(-bits // 8)


def _bits(name: str) -> int:
    """The width in bits of an element type, such as `f32`, `bf16`, `f8e4m3fn`, `s4`, `pred`, `c64`."""
    width = re.match(r"[a-z]+(\d+)", name)
    return 8 if name == "pred" else int(width[1]) if width else 0


def numbers(text: str) -> list[int]:
    """The integers in a text."""
    return [int(n) for n in re.findall(r"\d+", text)]
