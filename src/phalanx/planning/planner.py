"""`plan`: what a function will need and send on a mesh, from the compiler, without the devices of the mesh.

The function is traced and lowered in this process, and compiled in another (`engine.offline_compiler`). The compiled
program is text, from which the other files of this package read its memory, communication and time.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, ArgumentTypeError, MissingExtraError, PhalanxError, ShapeDtypeStruct
from phalanx.engine.compile_only_devices import MAX_CPU_DEVICES, Topology, is_installed
from phalanx.engine.hlo_collectives import find_communication
from phalanx.engine.hlo_parser import HloModule
from phalanx.engine.offline_compiler import OfflineCompileError, OfflineProgram
from phalanx.planning.accelerator_program import model_program
from phalanx.planning.machines import HOST, Machine, find_machine
from phalanx.planning.plan_record import Plan
from phalanx.planning.planned_arrays import list_arrays
from phalanx.planning.planned_memory import measure_memory
from phalanx.planning.timing import TimeEstimate, estimate_time
from phalanx.runtime import Array
from phalanx.runtime.compiled_program import LoweredProgram
from phalanx.sharding import AbstractMesh, Mesh, NamedSharding, use_mesh
from phalanx.spmd.communication import Collective, Collectives, find_mesh, name_axes
from phalanx.spmd.communication_causes import CauseFinder
from phalanx.spmd.jit import jit
from phalanx.spmd.sharding_resolution import resolve_prefix_shardings
from phalanx.spmd.stages import Lowered
from phalanx.tree import tree_flatten, tree_map, tree_unflatten

_TOO_LARGE = "RESOURCE_EXHAUSTED"
_EXTRAS = {"cuda": "plan-gpu", "tpu": "plan-tpu"}
_NOTES = {
    "cuda": ("Kernels are chosen without measuring them, and NCCL's own buffers are not counted.",),
    "tpu": ("Single buffers are shown without the padding of their tiles, which the total includes.",),
}
_MODELED = (
    "XLA for CPUs answered for {name}, with float16 for bfloat16. It partitioned the program; a model of XLA for GPUs "
    "has what is fused, computed in parts and run at the same time."
)
_ACCURACY = (
    " XLA for CUDA needs memory within 20 % of this for most programs that were measured, and between 0.7 and 1.6 "
    "times as much for some of a few MB."
)


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
    compiler: str | None = None,
    **kwargs: Any,
) -> Plan:
    """Plan a function on a mesh whose devices need not exist here: memory, communication and time of each device.

    The function is compiled for as many devices as the mesh has, in a separate process. Nothing is run, and no array
    is placed.

    Args:
      fun: the function; one of `jit` keeps its options, such as donated arguments and shardings of results.
      *args: its arguments: `ShapeDtypeStruct`s, or arrays, of which only types and shardings are used.
      mesh: the mesh over which the specs of the arguments are laid; by default that of the arguments' shardings.
      in_shardings: a tree prefix of the arguments with a spec or sharding for each; None keeps that of the argument.
      target: the machine, such as "h100" or "v5p", or a `phalanx.planning.Machine`; it adds times and the check that
        the program fits. None and "cpu" plan for CPU devices.
      compiler: "cuda" or "tpu" for the compiler of the target, or "cpu" for XLA for CPUs in its place; by default the
        first of them that is installed.
      **kwargs: keyword arguments of the function, which keep their own shardings. `functools.partial` passes one that
        has the name of a parameter of `plan`.

    Returns:
      The plan.

    Raises:
      PlanError: the mesh has more devices than the compiler takes.
      OfflineCompileError: the compiler failed.
      ArgumentError: the target or the compiler is unknown.
      ArgumentTypeError: `mesh` is not a mesh.
      MissingExtraError: the compiler is not installed.

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
    if mesh is not None and not isinstance(mesh, Mesh | AbstractMesh):
        raise ArgumentTypeError(
            "plan, argument mesh",
            expected="a Mesh or an AbstractMesh",
            got=mesh,
            fix='write AbstractMesh((1024, 8), ("data", "model")), with the sizes and the names of the axes',
        )
    machine = find_machine(target)
    platform = choose_platform(machine, compiler)
    lowered = _lower(fun, args, kwargs, mesh, in_shardings, machine, platform)
    num_devices = len(lowered.program.devices)
    if platform == "cpu" and num_devices > MAX_CPU_DEVICES:
        raise PlanError(
            "plan, argument mesh",
            expected=f"at most {MAX_CPU_DEVICES} devices, which XLA for CPUs takes",
            got=f"{num_devices} devices",
            fix="plan a smaller mesh with the same shards, since what a device needs depends on these; or install the "
            "compiler of the target with pip install phalanx[plan-gpu] or phalanx[plan-tpu]",
        )
    topology = choose_topology(machine, platform, num_devices)
    try:
        answer = lowered.compile_offline(topology)
    except OfflineCompileError as error:
        # XLA for TPUs compiles no program that does not fit, of which a plan says by how much.
        if platform == "cpu" or _TOO_LARGE not in str(error.got) or num_devices > MAX_CPU_DEVICES:
            raise
        found = plan(fun, *args, mesh=mesh, in_shardings=in_shardings, target=target, compiler="cpu", **kwargs)
        reason = str(error.got).partition(_TOO_LARGE)[2].lstrip(": ")
        refused = f"The compiler of {found.target} refused the program: {reason}"
        return replace(found, notes=(refused, *found.notes))
    return read_plan(lowered, answer, machine, platform)


def read_plan(lowered: Lowered, answer: OfflineProgram, machine: Machine | None, platform: str) -> Plan:
    """The plan of a program that a compiler has compiled.

    Args:
      lowered: the program.
      answer: the compiler's answer.
      machine: the devices to plan for; None for CPU devices without estimates of time.
      platform: that of the compiler.

    Returns:
      The plan.
    """
    module, num_devices = HloModule(answer.text), len(lowered.program.devices)
    kept, names = lowered.program.kept, lowered.input_paths
    program_mesh = find_mesh(lowered.program)
    is_modeled = stands_in(machine, platform)
    if machine is not None and is_modeled:
        module = model_program(module, machine, num_devices)
    collectives, time = _read_communication(module, lowered.program, program_mesh, machine)
    memory = measure_memory(
        module,
        answer,
        names if kept is None else [names[i] for i in kept],
        int(machine.memory) if machine is not None and math.isfinite(machine.memory) else None,
        is_modeled=is_modeled,
    )
    notes = _NOTES.get(platform, ())
    if machine is not None and is_modeled:
        notes = (_MODELED.format(name=machine.name) + ("" if machine.gpu is None else _ACCURACY),)
    return Plan(
        name=lowered.fun_name,
        mesh=dict(program_mesh.shape) if program_mesh is not None else {},
        arrays=list_arrays(lowered, module),
        num_devices=num_devices,
        target=machine.name if machine is not None else None,
        compiler=answer.compiler,
        notes=notes,
        memory=memory,
        collectives=collectives,
        time=time,
    )


def choose_platform(machine: Machine | None, compiler: str | None) -> str:
    """The platform whose compiler answers."""
    own = "cpu" if machine is None else machine.platform
    if compiler is None:
        return own if is_installed(own) else "cpu"
    if compiler not in {own, "cpu"}:
        raise ArgumentError(
            "plan, argument compiler",
            expected=" or ".join(sorted({own, "cpu"})) + f" for the target {machine.name if machine else 'cpu'}",
            got=repr(compiler),
            fix="leave it out",
        )
    if not is_installed(compiler):
        raise MissingExtraError(
            "plan, argument compiler",
            expected=f"the compiler for {compiler} to be installed",
            got="no package with it",
            fix=f"pip install 'phalanx[{_EXTRAS[compiler]}]'",
        )
    return compiler


def stands_in(machine: Machine | None, platform: str) -> bool:
    """Whether XLA for CPUs answers in the place of a machine's compiler."""
    return machine is not None and machine is not HOST and platform == "cpu"


def choose_topology(machine: Machine | None, platform: str, num_devices: int) -> Topology:
    """The devices for which a platform's compiler compiles a program for a machine."""
    if machine is None or platform == "cpu":
        return Topology("cpu", stands_in=stands_in(machine, platform))
    return machine.topology(num_devices)


def _lower(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    mesh: Mesh | AbstractMesh | None,
    specs: Any,
    machine: Machine | None,
    platform: str,
) -> Lowered:
    """Lower a function for a platform, with shardings of its arguments over a mesh."""
    leaves, tree = tree_flatten(args)
    with use_mesh(mesh) if mesh is not None else contextlib.nullcontext():
        declared = resolve_prefix_shardings(specs, args, "plan, in_shardings")
        shapes = [_place(x, sharding, mesh) for x, sharding in zip(leaves, declared, strict=True)]
        named = tree_map(lambda x: _place(x, None, mesh), kwargs)
        traced = (fun if hasattr(fun, "trace") else jit(fun)).trace(*tree_unflatten(tree, shapes), **named)
        return traced.lower(
            lowering_platforms=(platform,), _topology=functools.partial(choose_topology, machine, platform)
        )


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
    module: HloModule, lowered: LoweredProgram, mesh: Mesh | None, machine: Machine | None
) -> tuple[Collectives, TimeEstimate | None]:
    """The collectives and the time of a program on a machine."""
    devices, causes = lowered.devices, CauseFinder(lowered, lowered.program)
    found: list[Collective] = []
    seconds: dict[str, float] = {}
    for run in module.walk() if len(devices) > 1 else ():
        c = find_communication(module, run)
        if c is None or (named := name_axes(c, devices, mesh, causes)) is None:
            continue
        collective = named[0]
        if machine is not None:
            each = machine.collective_seconds(c.kind, c.bytes, collective.groups)
            collective = collective._replace(seconds=each)
            seconds[run.name] = seconds.get(run.name, 0.0) + each * collective.executions
        found.append(collective)
    time = None if machine is None else estimate_time(module, machine, seconds)
    return Collectives(found), time
