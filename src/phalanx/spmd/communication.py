"""What a compiled program communicates: each operation among devices with its bytes, mesh axes and the user's line.

Builds on `engine.hlo_text`, which reads the compiled program, and says its groups of partitions as axes of the
program's mesh. Called by `phalanx.testing` and by whoever must know what the partitioner added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core.config import state
from phalanx.core.errors import ShardingError
from phalanx.core.jaxpr import Jaxpr, subprograms
from phalanx.engine import compiler, hlo_text
from phalanx.runtime import dispatch
from phalanx.sharding import Mesh, NamedSharding


class Collective(NamedTuple):
    """One operation among the devices of a compiled program.

    Args:
      kind: its name in XLA: "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all",
        "collective-permute" or "collective-broadcast". One that runs in two halves, started and awaited, is one.
      bytes: of its operands or its results on one device, whichever are more.
      axes: the mesh axes along which devices exchange data; None where the program has no mesh, or its groups are not
        made of whole axes.
      source: the user's line that asked for the operation, as `file:line`; "" where XLA lost it.
      groups: ids of the devices that take part, group by group; for a permutation its pairs of source and target.
      loops: for each loop around it, outermost first, how often it runs, or None where that is not known.

    Examples:
      >>> Collective("all-reduce", 128, ("data",), "train.py:7", ((0, 1),), ()).kind
      'all-reduce'
    """

    kind: str
    bytes: int
    axes: tuple[Any, ...] | None
    source: str
    groups: tuple[tuple[int, ...], ...]
    loops: tuple[int | None, ...]

    def __str__(self) -> str:
        over = "devices " + str(self.groups) if self.axes is None else ", ".join(map(repr, self.axes))
        often = "".join(f", in a loop of {n}" if n is not None else ", in a loop" for n in self.loops)
        where = f", at {self.source}" if self.source else ""
        return f"{self.kind} of {self.bytes:,} bytes over {over}{often}{where}"


class Collectives(tuple[Collective, ...]):
    """The collectives of a program, in the order in which they stand; it prints as one line for each.

    Args:
      collectives: the records.

    Examples:
      >>> found = Collectives([Collective("all-reduce", 128, ("data",), "train.py:7", ((0, 1),), (3,))])
      >>> found.kinds, found.bytes
      (('all-reduce',), 384)
    """

    __slots__ = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each."""
        return tuple([c.kind for c in self])

    @property
    def bytes(self) -> int:
        """The bytes of all, those in loops as often as they are known to run."""
        return sum(c.bytes * math.prod(n or 1 for n in c.loops) for c in self)

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or "no collectives"


def collectives_of(program: dispatch.CompiledProgram) -> Collectives:
    """List what a compiled program communicates.

    Args:
      program: what a `Compiled` stage holds.

    Returns:
      Its collectives; groups of one device, which exchange nothing, are left out.

    Examples:
      >>> import phalanx
      >>> len(collectives_of(phalanx.jit(lambda x: x + 1).lower(1.0).compile().program))
      0
    """
    return Collectives([found for found, _ in _found(program)])


def refuse(program: dispatch.CompiledProgram, forbidden: frozenset[Any]) -> None:
    """Do what the option `no_collectives` asks for.

    Raises:
      ShardingError: the program sends along one of the mesh axes that are forbidden.
    """
    sent = [found for found, axes in _found(program) if not forbidden.isdisjoint(axes)]
    if sent:
        raise ShardingError(
            "no_collectives",
            expected=f"a program that sends nothing along {', '.join(sorted(map(repr, forbidden)))}",
            got="; ".join(map(str, sent)),
            mend="split operands so that each device has what it needs, or leave the axis out of no_collectives",
        )


def _found(program: dispatch.CompiledProgram) -> Iterator[tuple[Collective, tuple[Any, ...]]]:
    """Each collective, and all mesh axes along which the members of its groups differ."""
    lowered = program.lowered
    if len(lowered.devices) == 1:
        return
    mesh = _mesh_of(lowered)
    for c in hlo_text.communications(compiler.hlo_text(program.executable)):
        groups = c.pairs or c.groups or (tuple(range(len(lowered.devices))),)
        if all(len(set(group)) == 1 for group in groups):
            continue
        axes, whole = ((), False) if mesh is None else _axes(mesh, lowered.devices, groups)
        ids = tuple([tuple([lowered.devices[p].id for p in group]) for group in groups])
        said = axes if whole or (c.pairs and mesh is not None) else None
        yield Collective(c.kind, c.bytes, said, f"{c.file}:{c.line}" if c.file else "", ids, c.loops), axes


def _axes(mesh: Mesh, devices: Sequence[Any], groups: Iterable[Sequence[int]]) -> tuple[tuple[Any, ...], bool]:
    """The axes along which the members of the groups differ, and whether the groups are made of whole axes."""
    place = {device: at for at, device in enumerate(mesh.flat_devices)}
    varied: set[int] = set()
    whole = True
    for group in groups:
        at = np.stack(np.unravel_index([place[devices[p]] for p in group], mesh.axis_sizes))
        here = np.nonzero((at != at[:, :1]).any(axis=1))[0].tolist()
        whole = whole and math.prod(mesh.axis_sizes[a] for a in here) == len(group)
        varied.update(here)
    return tuple([mesh.axis_names[a] for a in sorted(varied)]), whole


def _mesh_of(lowered: dispatch.LoweredProgram) -> Mesh | None:
    """The mesh that the program speaks of: of its arguments and results, then of what stands inside, then in force."""
    named = (*lowered.in_shardings, *lowered.out_shardings)
    meshes = [*_meshes(named), *_inner_meshes(lowered.program), state.context.mesh]
    devices = set(lowered.devices)
    return next((m for m in meshes if isinstance(m, Mesh) and m.device_set == devices), None)


def _meshes(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, NamedSharding | Mesh):
            found.append(value.mesh if isinstance(value, NamedSharding) else value)
        elif isinstance(value, tuple):
            found += _meshes(value)
    return found


def _inner_meshes(program: Jaxpr) -> list[Any]:
    found = []
    for eqn in program.eqns:
        found += _meshes(eqn.params.values())
        for inner in subprograms(eqn.params):
            found += _inner_meshes(inner)
    return found


dispatch.communication.take(refuse=refuse)
