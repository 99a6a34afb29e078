"""The collectives of a compiled program, with bytes, source lines, groups of partitions and enclosing loops.

Builds on `engine.hlo_parser`; `spmd.communication` translates the groups to mesh axes.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import NamedTuple

import numpy as np

from phalanx.engine.hlo_instructions import Instruction, num_bytes, numbers, split_tuple_type
from phalanx.engine.hlo_parser import Execution, HloModule

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
      generated: whether the compiler says that its partitioner made it, as XLA of jaxlib 0.12 does.
    """

    kind: str
    bytes: int
    groups: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]
    file: str
    line: int
    name: str
    loops: tuple[int | None, ...]
    generated: bool


_NESTED = r"\((?:[^()]|\([^()]*\))*\)"
_GROUPS = re.compile(
    r"\breplica_groups=(mesh\[[^\]]*\](?:, device_ids=" + _NESTED + r")? \{[^}]*\}|\{(?:[^{}]|\{[^{}]*\})*\}|\[[^ ]*)"
)
_PAIRS = re.compile(r"\bsource_target_pairs=(\{(?:[^{}]|\{[^{}]*\})*\})")
_AXIS_SIZE = re.compile(r"'([^']*)'=(\d+)")
_AXIS_USED = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")


def communications(module: HloModule) -> list[Communication]:
    """List the collectives that a compiled program runs.

    Args:
      module: the program.

    Returns:
      The collectives in program order; one in a function that is called twice is listed twice.
    """
    return [found for run in module.walk() if (found := find_communication(module, run)) is not None]


def find_communication(module: HloModule, run: Execution) -> Communication | None:
    """The collective that an instruction of a module starts, if it starts one."""
    of = run.instruction
    # An asynchronous collective is a pair of -start and -done operations; only the first is counted.
    kind, _, half = of.opcode.partition("-start")
    if kind not in KINDS or half:
        return None
    received = of.type
    if of.opcode.endswith("-start"):
        # The result of an asynchronous start is a tuple (operands, results, context of the runtime), but for an
        # all-reduce some versions of XLA leave out the operands. They are a tuple of their own if they are there.
        parts = split_tuple_type(of.type)
        received = parts[1] if kind != "all-reduce" or parts[0].startswith("(") else of.type
    sent = sum(num_bytes(run.computation[name].type) for name in of.operands if name in run.computation)
    pairs = _PAIRS.search(of.rest)
    return Communication(
        kind,
        max(sent, num_bytes(received)),
        find_groups(of),
        tuple([(a, b) for a, b in parse_groups(pairs[1])]) if pairs else (),
        *(run.source if run.source[0] else (*module.trace_source(run.name, run.computation)[:2], run.source[2])),
        run.loops,
        'is_spmd_generated="true"' in of.rest,
    )


def find_groups(of: Instruction) -> tuple[tuple[int, ...], ...]:
    """The groups of partitions of a collective; empty for a group of all."""
    groups = _GROUPS.search(of.rest)
    return parse_groups(groups[1].rstrip(",")) if groups else ()


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
    return _as_tuples(_count(source).reshape(numbers(tiles)[0], -1))


def _as_tuples(rows: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, rows.tolist()))


def _count(text: str) -> np.ndarray:
    """The numbers of an iota such as `[2,4]T(1,0)`, in its shape."""
    shape, _, order = text.partition("T")
    sizes = numbers(shape)
    devices = np.arange(math.prod(sizes)).reshape(sizes)
    return devices.transpose(numbers(order)) if order else devices


def _groups_along(text: str) -> tuple[tuple[int, ...], ...]:
    """The groups along some axes or sub-axes of a mesh."""
    mesh, _, rest = text.partition("]")
    sizes = {name: int(size) for name, size in _AXIS_SIZE.findall(mesh)}
    ids, _, used = rest.rpartition("{")
    refs = [(name, int(before or 1), int(size or sizes[name])) for name, before, size in _AXIS_USED.findall(used)]
    devices = np.arange(math.prod(sizes.values()))
    if "device_ids" in ids:
        listed = ids[ids.index("(") + 1 : ids.rindex(")")]
        devices = _count(listed) if listed.startswith("[") else np.array(numbers(listed))
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
