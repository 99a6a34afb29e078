"""Find the layers of a program that are alike, such as those of a loop in Python, so that they are sharded alike.

Without this, each layer would have separate variables in the solver, whose time grows much faster than their number.
"""

from __future__ import annotations

from collections.abc import Hashable

from phalanx.spmd.program_graph import ProgramGraph, Value

# How far from a value operations are compared. Layers at both ends of the program differ from the others up to there.
_DISTANCE = 4


def tie_repeated_layers(graph: ProgramGraph) -> None:
    """Tie the dimensions of values that operations of the same kinds surround.

    Values are numbered by their types, then again and again by the numbers around them, as Weisfeiler and Leman (1968)
    refine the colours of a graph. Values that have equal numbers after several rounds are tied.

    Args:
      graph: the graph.
    """
    colours: dict[Value, int] = {}
    keys: dict[Value, Hashable] = {v: (v.shape, str(v.aval.dtype), v.trips) for v in graph.values}
    names = [(o.eqn and o.eqn.primitive.name, repr(o.rule)) for o in graph.operations]
    for _ in range(_DISTANCE):
        numbers: dict[Hashable, int] = {}
        colours = {v: numbers.setdefault(key, len(numbers)) for v, key in keys.items()}
        made: dict[Value, Hashable] = {}
        read: dict[Value, list[Hashable]] = {v: [] for v in graph.values}
        for o, name in zip(graph.operations, names, strict=True):
            around = (name, *(v and colours[v] for v in o.operands), *(colours[v] for v in o.results))
            for n, v in enumerate(o.results):
                made[v] = (n, around)
            for n, operand in enumerate(o.operands):
                if operand is not None:
                    read[operand].append((n, around))
        keys = {v: (colours[v], made.get(v), tuple(sorted(read[v], key=repr))) for v in graph.values}
    first: dict[int, Value] = {}
    for v, colour in colours.items():
        if (alike := first.setdefault(colour, v)) is not v:
            graph.tie(alike, v)
