"""The arguments and results of a planned program, and how they are split over the mesh."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.core import ShapedArray, float0
from phalanx.engine.hlo_instructions import find_root_name, flatten_type, num_bytes, numbers
from phalanx.engine.hlo_parser import HloModule
from phalanx.sharding import NamedSharding
from phalanx.spmd.stages import Lowered
from phalanx.tree import keystr, tree_flatten_with_path


@dataclass(frozen=True)
class PlannedArray:
    """An argument or a result of a planned program.

    Args:
      kind: "argument" or "result".
      name: its path.
      type: its dtype and shape, such as "float32[64,128]".
      parts: the number of parts of each dimension.
      axes: the mesh axes that split each dimension; None if the compiler chose its sharding.
      shard: the dtype and shape of one device's part, as the compiler prints them, such as "f32[8,128]".
      bytes: of one device's part.

    Examples:
      >>> PlannedArray("argument", "w", "float32[64,128]", (8, 1), (("x",), ()), "f32[8,128]", 4096).parts
      (8, 1)
    """

    kind: str
    name: str
    type: str
    parts: tuple[int, ...]
    axes: tuple[tuple[str, ...], ...] | None
    shard: str
    bytes: int


def list_arrays(lowered: Lowered, module: HloModule) -> tuple[PlannedArray, ...]:
    """The arguments that a program reads, and its results.

    Args:
      lowered: the program.
      module: the compiled program, whose last parameters are the arguments.

    Returns:
      The arguments, then the results.
    """
    program, entry = lowered.program, module.computations[module.entry]
    jaxpr, paths = program.program, lowered.input_paths
    parameters = sorted((i for i in entry.values() if i.opcode == "parameter"), key=lambda i: int(i.operands[0]))
    kept = range(len(paths)) if program.kept is None else program.kept
    inputs = zip(
        [paths[i] for i in kept],
        [jaxpr.in_avals[i] for i in kept],
        [program.in_shardings[i] for i in kept],
        [i.type for i in parameters[len(parameters) - len(kept) :]],
        strict=True,
    )
    results = flatten_type(entry[find_root_name(entry)].type)
    returned = [f"result{keystr(path)}" for path, _ in tree_flatten_with_path(lowered.out_info)[0]]
    # What the program writes into mutable references comes after the results of the function.
    names = itertools.chain(returned, itertools.repeat("(value of a reference)"))
    outputs = zip(names, jaxpr.out_avals, program.out_shardings, results, strict=False)
    return (*_describe("argument", inputs), *_describe("result", outputs))


def _describe(kind: str, arrays: Iterator[tuple[str, ShapedArray, Any, str]]) -> Iterator[PlannedArray]:
    for name, aval, sharding, shard in arrays:
        shape, axes = aval.shape, None
        parts = _count_parts(shape, numbers(shard.partition("[")[2].partition("]")[0]))
        if isinstance(sharding, NamedSharding):
            axes = tuple(tuple(map(str, names)) for names in sharding.axes(len(shape)))
            parts = tuple(map(sharding.mesh.num_parts, sharding.axes(len(shape))))
        dtype = "float0" if aval.dtype == float0 else aval.dtype  # which NumPy prints as a record
        type = f"{dtype}[{','.join(map(str, shape))}]"
        yield PlannedArray(kind, name, type, parts, axes, shard.partition("{")[0], num_bytes(shard))


def _count_parts(shape: Sequence[int], shard: Sequence[int]) -> tuple[int, ...]:
    """The number of parts of each dimension, from the sizes of one part, which may have more dimensions."""
    return tuple(math.ceil(n / max(m, 1)) if n else 1 for n, m in zip(shape, shard, strict=False))
