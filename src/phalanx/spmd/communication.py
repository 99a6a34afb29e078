"""List the collectives of a compiled program, with bytes, mesh axes and source lines.

`engine.hlo_collectives` finds them in the optimized HLO. This file translates the groups of partitions of each
collective into axes of the program's mesh. Used by `phalanx.testing`, `phalanx.planning` and `debug.check_sharded`, and
by the options `communication` and `no_collectives`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import Jaxpr, ShardingError, state
from phalanx.engine import compiler, hlo_collectives
from phalanx.engine.hlo_parser import HloModule
from phalanx.runtime import compiled_program
from phalanx.sharding import Mesh, NamedSharding
from phalanx.spmd.communication_causes import ALLOWED, UNASKED, CauseFinder
from phalanx.spmd.refused_collectives import refuse_collectives


class Collective(NamedTuple):
    """One collective of a compiled program.

    Args:
      kind: its name in XLA: "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all",
        "collective-permute" or "collective-broadcast". A pair of asynchronous start and done operations is one
        collective.
      bytes: size of its operands or of its results on one device, whichever is larger.
      axes: the mesh axes along which devices exchange data; None if the program has no mesh, or if the groups of
        devices do not correspond to complete axes.
      source: the line of the user's program that caused the collective, as `file:line`; "" if XLA lost it.
      groups: ids of the devices in each group; for a permutation its (source, target) pairs.
      loops: trip count of each loop around the collective, outermost first; None if unknown.
      cause: "asked" for a named collective, such as `psum`, and for resharding to a sharding that the program declares;
        "implied" for the reduction of partial results, such as the sum over a split dimension; "unasked" for any other.
      seconds: the estimated time of one execution, in a plan for a known machine; None otherwise.

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
    cause: str = UNASKED
    seconds: float | None = None

    @property
    def executions(self) -> int:
        """How often it is executed; loops of unknown length count as one iteration."""
        return math.prod(n or 1 for n in self.loops)

    def __str__(self) -> str:
        over = "devices " + str(self.groups) if self.axes is None else ", ".join(map(repr, self.axes))
        often = "".join(f", in a loop of {n}" if n is not None else ", in a loop" for n in self.loops)
        where = f", at {self.source}" if self.source else ""
        return f"{self.cause} {self.kind} of {self.bytes:,} bytes over {over}{often}{where}"


class Collectives(tuple[Collective, ...]):
    """The collectives of a program in program order. The printed form has one line per collective.

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
        """The kind of each collective."""
        return tuple([c.kind for c in self])

    @property
    def bytes(self) -> int:
        """Total bytes; collectives in loops are multiplied by the trip counts that are known."""
        return sum(c.bytes * c.executions for c in self)

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or "no collectives"


def list_collectives(program: compiled_program.CompiledProgram) -> Collectives:
    """List the collectives of a compiled program.

    Args:
      program: the `program` of a `Compiled` stage.

    Returns:
      The collectives, except for those with one device per group, which exchange nothing.

    Examples:
      >>> import phalanx
      >>> len(list_collectives(phalanx.jit(lambda x: x + 1).lower(1.0).compile().program))
      0
    """
    return Collectives([found for found, _ in _iter_collectives(program)])


def check_communication(
    program: compiled_program.CompiledProgram,
    allowed: str,
    forbidden: frozenset[Any],
    input_name: Callable[[int], str] | None,
) -> None:
    """Enforce the options `communication` and `no_collectives`.

    Args:
      program: the compiled program.
      allowed: the value of `communication`.
      forbidden: the mesh axes along which it must not communicate.
      input_name: returns the user's name of input `i`.

    Raises:
      ShardingError: the program has a collective along one of these axes, or of a cause that is not allowed.
    """
    found = list(_iter_collectives(program))
    if sent := [c for c, axes in found if not forbidden.isdisjoint(axes)]:
        raise ShardingError(
            "no_collectives",
            expected=f"a program without collectives along {', '.join(sorted(map(repr, forbidden)))}",
            got="; ".join(map(str, sent)),
            fix="shard the operands of these lines along dimensions that need no communication, or remove the axis "
            "from no_collectives",
        )
    if refused := [c for c, _ in found if c.cause not in ALLOWED[allowed]]:
        raise refuse_collectives(program, refused, allowed, input_name)


def _iter_collectives(program: compiled_program.CompiledProgram) -> Iterator[tuple[Collective, tuple[Any, ...]]]:
    """Yield each collective of a compiled program and all mesh axes along which the devices of its groups differ."""
    devices = program.lowered.devices
    if len(devices) > 1:
        mesh, causes = find_mesh(program), CauseFinder(program.lowered, program.program)
        for c in hlo_collectives.communications(HloModule(compiler.hlo_text(program.executable))):
            if (found := name_axes(c, devices, mesh, causes)) is not None:
                yield found


def name_axes(
    c: hlo_collectives.Communication, devices: Sequence[Any], mesh: Mesh | None, causes: CauseFinder
) -> tuple[Collective, tuple[Any, ...]] | None:
    """Translate the groups of partitions of a collective into mesh axes.

    Args:
      c: the collective.
      devices: of the program, in partition order.
      mesh: a mesh of these devices, if the program has one.
      causes: finds the cause.

    Returns:
      The collective and all axes along which the devices of its groups differ; None if each device communicates with
      itself only.
    """
    # No groups in the HLO means that all devices form one group.
    groups = c.pairs or c.groups or (tuple(range(len(devices))),)
    if all(len(set(group)) == 1 for group in groups):
        return None
    axes, whole = ((), False) if mesh is None else _axes(mesh, devices, groups)
    ids = tuple([tuple([devices[p].id for p in group]) for group in groups])
    known = axes if whole or (c.pairs and mesh is not None) else None
    line = f"{c.file}:{c.line}" if c.file else ""
    return Collective(c.kind, c.bytes, known, line, ids, c.loops, causes.find(c, axes)), axes


def _axes(mesh: Mesh, devices: Sequence[Any], groups: Iterable[Sequence[int]]) -> tuple[tuple[Any, ...], bool]:
    """The axes along which the devices of a group differ, and whether each group consists of complete axes."""
    place = {device: at for at, device in enumerate(mesh.flat_devices)}
    # Mesh coordinates of the devices of each group, one column per device.
    coordinates = [np.stack(np.unravel_index([place[devices[p]] for p in g], mesh.axis_sizes)) for g in groups]
    varied = [(at != at[:, :1]).any(axis=1) for at in coordinates]
    # A group of complete axes has as many devices as these axes have positions together.
    whole = all(math.prod(itertools.compress(mesh.axis_sizes, v)) == at.shape[1] for v, at in zip(varied, coordinates))
    return tuple(itertools.compress(mesh.axis_names, np.any(varied, axis=0))), whole


def find_mesh(program: compiled_program.CompiledProgram | compiled_program.LoweredProgram) -> Mesh | None:
    """The mesh of a program: of its arguments and results, else of its equations, else the current mesh."""
    lowered = program if isinstance(program, compiled_program.LoweredProgram) else program.lowered
    values = (*lowered.in_shardings, *lowered.out_shardings, program.program, state.context.mesh)
    # A mesh over other devices, such as a sub-mesh, does not number the partitions of this program.
    devices = set(lowered.devices)
    return next((m for m in _iter_meshes(values) if m.device_set == devices), None)


def _iter_meshes(values: Iterable[Any]) -> Iterator[Mesh]:
    """Yield the meshes among values, which may be meshes, shardings, jaxprs, or tuples of these."""
    for value in values:
        mesh = value.mesh if isinstance(value, NamedSharding) else value
        if isinstance(mesh, Mesh):
            yield mesh
        elif isinstance(value, tuple):
            yield from _iter_meshes(value)
        elif isinstance(value, Jaxpr):
            for eqn in value.eqns:  # The mesh of an equation comes before those in its jaxpr.
                yield from _iter_meshes(sorted(eqn.params.values(), key=lambda v: isinstance(v, Jaxpr)))


compiled_program.run_checks.provide(check_communication=check_communication)
