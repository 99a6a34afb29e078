"""`plan`: what a function will need and send on a mesh, from the compiler, without the devices of the mesh.

The function is traced and lowered in this process, and compiled in another (`engine.offline_compiler`). The compiled
program is text, from which the other files of this package read its memory, communication and time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import PhalanxError, ShapeDtypeStruct
from phalanx.engine import offline_compiler
from phalanx.engine.hlo_collectives import find_communication
from phalanx.engine.hlo_parser import HloModule
from phalanx.planning.cpu_deviations import Deviations
from phalanx.planning.machines import Machine, find_machine
from phalanx.planning.plan_record import Plan
from phalanx.planning.planned_memory import measure_memory
from phalanx.planning.timing import TimeEstimate, estimate_time
from phalanx.runtime import Array
from phalanx.sharding import AbstractMesh, Mesh, NamedSharding, use_mesh
from phalanx.spmd.communication import Collective, Collectives, find_mesh, name_axes
from phalanx.spmd.jit import jit
from phalanx.spmd.sharding_resolution import resolve_prefix_shardings
from phalanx.spmd.stages import Lowered
from phalanx.tree import tree_flatten, tree_unflatten


class PlanError(PhalanxError, ValueError):
    """A program cannot be planned.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(PlanError, ValueError)
      True
    """


def plan(
    fun: Callable[..., Any],
    *args: Any,
    mesh: Mesh | AbstractMesh | None = None,
    in_shardings: Any = None,
    target: str | Machine | None = None,
) -> Plan:
    """Plan a function on a mesh whose devices need not exist here: memory, communication and time of each device.

    The function is compiled for as many devices as the mesh has, in a process of its own. Nothing is run, and no array
    is placed.

    Args:
      fun: the function; one of `jit` keeps its options, such as donated arguments and shardings of results.
      *args: its arguments: `ShapeDtypeStruct`s, or arrays, of which only types and shardings are used.
      mesh: the mesh over which the specs of the arguments are laid; by default the one of their own shardings.
      in_shardings: a tree prefix of the arguments with a spec or sharding for each; None keeps the argument's own.
      target: the machine, such as "h100" or "v5p", or a `phalanx.planning.Machine`; it adds times and the check that
        the program fits. None and "cpu" plan for the CPU devices for which the compiler answers.

    Returns:
      The plan.

    Raises:
      PlanError: the mesh has more devices than the compiler takes.
      OfflineCompileError: the compiler failed.
      ArgumentError: the target is unknown.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AbstractMesh, P
      >>> mesh = AbstractMesh((32, 2), ("data", "model"))
      >>> x = phalanx.ShapeDtypeStruct((4096, 512), "float32")
      >>> w = phalanx.ShapeDtypeStruct((512, 128), "float32")
      >>> found = phalanx.plan(jnp.matmul, x, w, mesh=mesh, in_shardings=(P("data", "model"), P("model")))
      >>> found.memory.arguments, [(c.kind, c.bytes, c.axes) for c in found.collectives]
      (262144, [('all-reduce', 65536, ('model',))])
    """
    machine = find_machine(target)
    lowered = _lower(fun, args, mesh, in_shardings)
    num_devices = len(lowered.program.devices)
    if num_devices > offline_compiler.MAX_CPU_DEVICES:
        raise PlanError(
            "plan, argument mesh",
            expected=f"at most {offline_compiler.MAX_CPU_DEVICES} devices, which XLA for CPUs takes",
            got=f"{num_devices} devices",
            fix="plan a smaller mesh with the same shards: what a device needs depends on these",
        )
    answer = lowered.compile_offline()
    module = HloModule(answer.text)
    kept, names = lowered.program.kept, lowered.input_paths
    program_mesh = find_mesh(lowered.program)
    collectives, time, notes = _read_communication(module, lowered.program.devices, program_mesh, machine)
    return Plan(
        name=lowered.fun_name,
        mesh=dict(program_mesh.shape) if program_mesh is not None else {},
        num_devices=num_devices,
        target=machine.name if machine is not None else None,
        compiler=answer.compiler,
        notes=notes,
        memory=measure_memory(
            module,
            answer,
            names if kept is None else [names[i] for i in kept],
            int(machine.memory) if machine is not None else None,
        ),
        collectives=collectives,
        time=time,
    )


def _lower(fun: Callable[..., Any], args: tuple[Any, ...], mesh: Mesh | AbstractMesh | None, specs: Any) -> Lowered:
    """Lower a function for CPUs, with shardings of its arguments over a mesh."""
    leaves, tree = tree_flatten(args)
    with use_mesh(mesh) if mesh is not None else contextlib.nullcontext():
        declared = resolve_prefix_shardings(specs, args, "plan, in_shardings")
        shapes = [_place(x, sharding, mesh) for x, sharding in zip(leaves, declared, strict=True)]
        traced = (fun if hasattr(fun, "trace") else jit(fun)).trace(*tree_unflatten(tree, shapes))
        return traced.lower(lowering_platforms=("cpu",))


def _place(x: Any, declared: Any, mesh: Mesh | AbstractMesh | None) -> Any:
    """The shape of an argument with its sharding; leaves that are not arrays, such as numbers, stay as they are."""
    if not isinstance(x, ShapeDtypeStruct | Array | np.ndarray):
        return x
    own = getattr(x, "sharding", None)
    if isinstance(own, NamedSharding):
        own = NamedSharding(mesh, own.spec) if mesh is not None else own
    elif isinstance(x, Array):
        own = None  # on a device of this process
    return ShapeDtypeStruct(x.shape, x.dtype, sharding=declared or own, weak_type=getattr(x, "weak_type", False))


def _read_communication(
    module: HloModule, devices: Sequence[Any], mesh: Mesh | None, machine: Machine | None
) -> tuple[Collectives, TimeEstimate | None, tuple[str, ...]]:
    """The collectives, the time, and the corrections of the compiler's answer for a machine."""
    deviations = Deviations(module)
    found: list[Collective] = []
    seconds: dict[str, float] = {}
    as_compiled = corrected = 0
    for run in module.walk() if len(devices) > 1 else ():
        compiled = find_communication(module, run)
        if compiled is None or name_axes(compiled, devices, mesh) is None:
            continue
        for c in deviations.communications(run, compiled) if machine is not None else (compiled,):
            collective, _ = name_axes(c, devices, mesh)  # type: ignore[misc]  # its groups are those of `compiled`
            if machine is not None:
                each = machine.collective_seconds(c.kind, c.bytes, collective.groups)
                collective = collective._replace(seconds=each)
                seconds[run.name] = seconds.get(run.name, 0.0) + each * collective.executions
            found.append(collective)
            corrected += c.bytes * run.executions
        as_compiled += compiled.bytes * run.executions
    if machine is None:
        return Collectives(found), None, ()
    notes = (
        f"XLA for CPUs answered for {machine.name}. It sends values of 16 bits as 32 and has no reduce-scatter: "
        f"{as_compiled:,} bytes of collectives are counted as {corrected:,}. Temporaries of 16 bits may "
        "be counted as 32.",
    )
    return Collectives(found), estimate_time(module, machine, seconds, deviations.operand_bits), notes
