"""Lowering a jaxpr for devices, compiling it, and running the executable on buffers.

`lower` resolves what the MLIR module does not: constants become leading parameters, unread inputs are dropped, and each
parameter and result has a sharding and a kind of memory. `CompiledProgram` runs on buffers that are where the program
needs them; `jit`, eager operations and `eager_jit` call it through a `CompiledCall`, which first transfers arguments to
the devices and shardings of the program. Builds on `lowering` and the engine's compiler.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from phalanx.core import (
    DeletedArrayError,
    Jaxpr,
    ShardingError,
    config,
    dce_jaxpr,
    effects,
    physical_aval,
    preserve_wide_types,
    select_flagged,
    state,
)
from phalanx.engine import (
    Device,
    Hook,
    XlaRuntimeError,
    buffers,
    client,
    compilation_cache,
    compiler,
    custom_call_partitioner,
    explicit_transfer,
    monitoring,
    unfinished_runs,
    unwrap_callback_error,
)
from phalanx.engine.compile_only_devices import Topology
from phalanx.engine.execution import execute_again, get_execution, make_execution
from phalanx.engine.traceback_filtering import is_internal
from phalanx.runtime import (
    engine_options as engine_options,  # declares the options that concern the engine
    in_flight,
    process_comparison,
    transfer,
)
from phalanx.runtime.array import Array, ArrayType, deleted_error, donated_twice_error, initial_host_value, wrap_buffer
from phalanx.runtime.custom_partitioning_calls import partitioned_targets, split_call
from phalanx.runtime.device_assignment import PlaceholderDevice, common_devices, named_sharding
from phalanx.runtime.layout import Layout
from phalanx.runtime.lowering import lower_jaxpr_to_module
from phalanx.runtime.memory_kinds import non_default_memory_kind, result_memories, to_default_memory
from phalanx.runtime.module_context import Inspection, ResultsChosen
from phalanx.runtime.program_constants import hoist_constants, is_inlined, warn_of_large_constants
from phalanx.runtime.reshard_lowering import SLICED_FROM
from phalanx.runtime.result_shardings import ResultShardings, apply_typed_shardings, as_input
from phalanx.sharding import Sharding, from_hlo_sharding, get_placement_mesh, reorder_devices

if TYPE_CHECKING:
    from phalanx.engine.offline_compiler import OfflineProgram


class RunChecks(Protocol):
    """The checks of programs that debugging options ask for."""

    def check_communication(
        self, compiled: CompiledProgram, allowed: str, forbidden: frozenset, input_name: Callable[[int], str] | None
    ) -> None:
        """Raise for collectives that the options `communication` and `no_collectives` do not allow."""

    def use_keys(self, program: Jaxpr, args: Sequence[Any]) -> None:
        """Record the random keys that a call consumes; raise if one was consumed before (`debug_key_reuse`)."""


run_checks = Hook[RunChecks]("phalanx.spmd.communication", "phalanx.random.key_reuse")

# XLA's options under `disable_most_optimizations`. XLA for CPUs makes the same HLO with them, in half the time.
_QUICK: dict[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@dataclasses.dataclass(frozen=True, eq=False)
class LoweredProgram:
    """A program lowered for a set of devices, not yet compiled.

    Args:
      program: the jaxpr as traced, its constants included; None once it is compiled.
      module: the MLIR module with its context; None once it is compiled.
      kept: numbers of the inputs that are parameters of the module; None for all.
      constants: values that are passed as leading arguments at each call.
      devices: in partition order.
      in_shardings, out_shardings: one for each input and output; None where the partitioner chooses.
      out_memories: the kind of memory of each output; None for the default memory.
      donated: numbers of the inputs whose buffers may be reused.
      committed: whether the results are committed to these devices.
      is_attached: whether the devices are ones of this process's clients, on which the program can run.
      communication: the collectives that it may have, as in the option `communication`; None for those that the option
        allows when it is compiled.
      names_requests: whether the collectives for shardings that the program asks for have its name.
      declares_results: whether an output's sharding is declared, rather than chosen before it was padded.
      layouts: the memory layouts of the inputs and of the outputs; None for the default one.
    """

    program: Any
    module: Any
    kept: list[int] | None
    constants: list[Any]
    devices: tuple[Device, ...]
    in_shardings: Sequence[Any]
    out_shardings: Sequence[Any]
    out_memories: Sequence[str | None]
    donated: tuple[int, ...]
    committed: bool
    is_attached: bool
    communication: str | None
    names_requests: bool
    declares_results: bool
    layouts: tuple[Sequence[Any], Sequence[Any]]

    def compile(self, options: dict | None = None, input_name: Callable[[int], str] | None = None) -> CompiledProgram:
        """Compile for the devices that the program was lowered for.

        Args:
          options: options of XLA.
          input_name: returns the user's name of input `i`, for messages.

        Raises:
          ShardingError: these are not attached, or the program has collectives that the options `communication` and
            `no_collectives` do not allow.
        """
        if not self.is_attached:
            raise ShardingError(
                "compile",
                expected="a program for devices that are attached",
                got=f"one for {len(self.devices)} devices of platform {self.module.platform!r} that are not",
                fix="pass device_assignment=devices, lower it over a Mesh, or write it to a file with phalanx.export",
            )
        executable = self._compile((_QUICK if config.disable_most_optimizations else {}) | (options or {}))
        for inspection in self.module.inspections:
            self._report(inspection)
        compiled = CompiledProgram(self, executable)
        forbidden, allowed = state.context.no_collectives, self.communication or state.context.communication
        if (forbidden or allowed != "any") and len(self.devices) > 1:
            run_checks.check_communication(compiled, allowed, forbidden, input_name)
        return compiled

    def compile_to_read(self, options: dict | None = None) -> Any:
        """The engine's executable for programs that are read, but not run: XLA for CPUs makes the same HLO faster."""
        return self._compile((_QUICK if self.module.platform == "cpu" else {}) | (options or {}))

    def _compile(self, options: dict) -> Any:
        module = self.module
        return compiler.compile_module(
            module.module,
            self.devices,
            propagate_to_outputs=[s is None for s in self.out_shardings],
            host_callbacks=module.host_callbacks,
            options=options,
            levels=(config.optimization_level, config.memory_fitting_level),
            is_cacheable=module.is_self_contained and not module.inspections,
        )

    def compile_offline(
        self, topology: Topology, options: dict | None = None, on_start: Callable[[Any], object] | None = None
    ) -> OfflineProgram:
        """Compile in another process for devices that need not be attached, of the platform it is lowered for.

        `on_start` is called with that process.

        Raises:
          ShardingError: the program calls back into this process with the shardings that the compiler chooses.
          OfflineCompileError: the compiler failed.
        """
        from phalanx.engine import offline_compiler  # noqa: PLC0415 - few programs are planned

        module = self.module
        if module.inspections:
            raise ShardingError(
                "compiling for devices that are not attached",
                expected="a function without inspect_array_sharding, which needs a compiler in this process",
                got=f"{len(module.inspections)} such call(s)",
                fix="remove the calls, or compile the function for attached devices",
            )
        return offline_compiler.compile_offline(
            module.module,
            topology,
            len(self.devices),
            split_call,
            partitioned_targets(),
            propagate_to_outputs=[s is None for s in self.out_shardings],
            num_callbacks=len(module.host_callbacks),
            options=(_QUICK if topology.platform == "cpu" else {}) | (options or {}),
            on_start=on_start,
            on_inspection=module.report_nth_result,
        )

    def result_shardings(self) -> ResultShardings:
        """Finds the shardings of the results that are not declared."""
        return ResultShardings(self.program, self.devices, self.in_shardings, self.out_shardings)

    def _report(self, inspection: Inspection) -> None:
        """Pass the sharding that the compiler chose for a value to its observer."""
        for found in inspection.found if len(self.devices) > 1 else [None]:
            sharding = (
                transfer.single_device_sharding(self.devices[0])  # the partitioner does not run
                if found is None
                else from_hlo_sharding(found, self.devices, self.result_shardings().mesh, len(inspection.shape))
            )
            inspection.observer(inspection.shape, sharding)


def lower(
    program: Jaxpr,
    devices: tuple,
    in_shardings: Sequence[Sharding],
    out_shardings: Sequence[Sharding | None] | None = None,
    *,
    donated: Sequence[int] = (),
    keep_unused: bool = False,
    name: str = "fn",
    committed: bool = False,
    platform: str | None = None,
    slice_threshold: int = SLICED_FROM,
    chooses_results: bool = True,
    communication: str | None = None,
    layouts: tuple[Sequence[Any], Sequence[Any]] | None = None,
    topology: Callable[[int], Topology] | None = None,
    declares_results: bool | None = None,
) -> LoweredProgram:
    """Lower a jaxpr for devices.

    Args:
      program: the jaxpr.
      devices: in partition order.
      in_shardings: a sharding for each input.
      out_shardings: for each output a sharding, or None to leave it to the partitioner.
      donated: numbers of the inputs whose buffers may be reused.
      keep_unused: keep parameters that nothing reads.
      name: the name that profilers show.
      committed: whether the results are committed to these devices.
      platform: another platform than that of the devices, to inspect the module for it.
      slice_threshold: size in bytes of a device's shard from which resharding inside the program works in slices.
      chooses_results: whether to ask the partitioner for the shardings of results that may be uneven.
      communication: the collectives that the program may have; None for the option `communication`.
      layouts: the memory layouts of the inputs and of the outputs: a `Layout`, None for the default one, or
        `Layout.AUTO` to leave it to the compiler.
      topology: for devices that are not attached, takes their number and returns those for which another process
        compiles the program; None if it will not be compiled for them.
      declares_results: as in `LoweredProgram`; by default whether `out_shardings` has any.
    """
    layouts = layouts or ((None,) * len(program.invars), (None,) * len(program.outvars))
    if communication is None and state.context.communication != "any":
        communication = state.context.communication  # It applies wherever the program is compiled.
    device_platform = client.platform_name(devices[0].platform)
    is_attached = platform in (None, device_platform) and not isinstance(devices[0], PlaceholderDevice)
    out_shardings = out_shardings or [None] * len(program.outvars)
    out_shardings = apply_typed_shardings(program, in_shardings, out_shardings, devices)
    if declares_results is None:
        declares_results = any(s is not None for s in out_shardings)
    # The engine takes buffers in the order in which it numbers partitions, whatever order a mesh lists its devices in.
    in_shardings = [
        reorder_devices(s, devices, physical_aval(v.aval).ndim)
        for s, v in zip(in_shardings, program.invars, strict=True)
    ]
    closed, constants = hoist_constants(program)
    kept = None
    if not keep_unused:
        closed, used = dce_jaxpr(closed, [True] * len(closed.outvars))
        used_constants, used_inputs = used[: len(constants)], used[len(constants) :]
        kept = None if all(used_inputs) else [i for i, u in enumerate(used_inputs) if u]
        constants = select_flagged(constants, used_constants)
    is_partitioned = len(devices) > 1
    platform = platform or device_platform
    # Constants are the same on every device.
    replicated = transfer.replicated_sharding(devices, in_shardings)
    # From the number of an input to its position among the parameters, constants not counted.
    position = {i: n for n, i in enumerate(kept if kept is not None else range(len(in_shardings)))}
    inputs = [replicated] * len(constants) + [in_shardings[i] for i in position]
    in_memories = [*map(non_default_memory_kind, inputs)]
    out_memories = [
        non_default_memory_kind(s) or m
        for s, m in zip(out_shardings, result_memories(closed, in_memories), strict=True)
    ]
    is_portable = platform not in custom_call_partitioner.PLATFORMS
    chooses_results &= is_attached or (topology is not None and not is_portable)
    names_requests = communication not in (None, "any") and not is_portable
    with monitoring.timed(monitoring.LOWER, fun_name=name):
        module = lower_jaxpr_to_module(
            closed,
            platform,
            num_partitions=len(devices),
            devices=devices,
            name=name,
            in_shardings=inputs if is_partitioned else None,
            out_shardings=out_shardings if is_partitioned else None,
            donated=[len(constants) + position[i] for i in donated if i in position],
            memories=(in_memories, out_memories),
            layouts=([*[None] * len(constants), *(layouts[0][i] for i in position)], layouts[1]),
            is_portable=is_portable,
            is_attached=is_attached,
            slice_threshold=slice_threshold,
            chooses_results=chooses_results,
            names_requests=names_requests,
        )
    if module.split_results:
        given = dict.fromkeys((s, v.aval.ndim) for v, s in zip(program.invars, in_shardings, strict=True))
        out_shardings = [
            reorder_devices(as_input(given, module.split_results[i], v.aval.ndim), devices, v.aval.ndim)
            if i in module.split_results
            else s
            for i, (v, s) in enumerate(zip(program.outvars, out_shardings, strict=True))
        ]
    if config.dump_ir_to:
        _dump(module, config.dump_ir_to, name)
    warn_of_large_constants(constants, name)
    # The user's function closes over these values, so a transfer guard must not refuse them.
    with explicit_transfer(), preserve_wide_types(program):
        placed = [transfer.put(c, replicated)._buffer for c in constants] if is_attached else []
    lowered = LoweredProgram(
        program=program,
        module=module,
        kept=kept,
        constants=placed,
        devices=devices,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        out_memories=out_memories,
        donated=tuple(donated),
        committed=committed,
        is_attached=is_attached,
        communication=communication,
        # XLA itself reshards what is split unevenly.
        names_requests=names_requests and not module.has_uneven,
        declares_results=declares_results,
        layouts=layouts,
    )
    if not module.chosen_results:
        return lowered
    return lower(
        program,
        devices,
        in_shardings,
        _choose_results(lowered, topology),
        donated=donated,
        keep_unused=keep_unused,
        name=name,
        committed=committed,
        platform=platform,
        slice_threshold=slice_threshold,
        chooses_results=False,
        communication=communication,
        layouts=layouts,
        declares_results=declares_results,
    )


def _choose_results(lowered: LoweredProgram, topology: Callable[[int], Topology] | None) -> list:
    """The shardings of outputs, completed by those that the partitioner chooses.

    `module.chosen_results` names the outputs for which it chooses; compiling ends when it has.
    """
    module = lowered.module
    try:
        if lowered.is_attached:
            compiler.compile_module(
                module.module,
                lowered.devices,
                propagate_to_outputs=[s is None for s in lowered.out_shardings],
                host_callbacks=module.host_callbacks,
                options=_QUICK,
                is_cacheable=False,
            )
        else:
            assert topology is not None, "the program is compiled for devices that are not attached"
            lowered.compile_offline(topology(len(lowered.devices)))
    except (XlaRuntimeError, ResultsChosen):
        if None in module.chosen_results.values():
            raise
    found = [module.chosen_results.get(i) for i in range(len(lowered.out_shardings))]
    chosen = lowered.result_shardings().complete(found)
    return [
        s if declared is not None or (s is not None and not s.is_fully_replicated) else module.split_results.get(i)
        for i, (s, declared) in enumerate(zip(chosen, lowered.out_shardings, strict=True))
    ]


def _dump(module: Any, folder: str, name: str) -> None:
    """Write a module to the folder of `dump_ir_to`."""
    os.makedirs(folder, exist_ok=True)
    count = len(os.listdir(folder))
    with open(os.path.join(folder, f"{count:04}_{re.sub(r'[^A-Za-z0-9_]', '_', name)}.mlir"), "w") as file:
        file.write(str(module.module))


class CompiledProgram:
    """A compiled program that runs on buffers and returns arrays.

    Args:
      lowered: the program as lowered.
      executable: the engine's executable.

    `execute` runs it on the buffers of its inputs, and returns those of its results. `launch` is the function and the
    handlers of the engine that do it, None if there is more to do.
    """

    __slots__ = (
        "_handlers",
        "_program",
        "executable",
        "execute",
        "has_effects",
        "has_ordered_effects",
        "launch",
        "lowered",
        "out_types",
    )

    def __init__(self, lowered: LoweredProgram, executable: Any):
        # The jaxpr is held weakly, because it may hold this compiled form (`Jaxpr.derive`): a cycle would keep both,
        # and the memory of the executable, until the garbage collector runs. The module is not needed any more.
        self._program = weakref.ref(lowered.program)
        self.executable = executable
        # A program read from a file has no module, and calls no Python.
        calls_python = lowered.module is not None and bool(lowered.module.host_callbacks)
        self.lowered = dataclasses.replace(lowered, program=None, module=None)
        if any(layout is not None for side in lowered.layouts for layout in side):
            self.lowered = dataclasses.replace(self.lowered, layouts=self._chosen_layouts())
        self.has_effects = bool(lowered.program.effects)
        self.has_ordered_effects = bool(effects.ordered(lowered.program.effects))
        outputs = zip(
            lowered.program.outvars, _output_shardings(lowered, executable), lowered.out_memories, strict=True
        )
        self.out_types = [
            ArrayType(
                v.aval, s if m == non_default_memory_kind(s) else s.with_memory_kind(m), lowered.committed, layout
            )
            for (v, s, m), layout in zip(outputs, self.lowered.layouts[1], strict=True)
        ]
        self._handlers = [_make_result_handler(t) for t in self.out_types]
        # Devices wait for each other in collectives, which have channels, and for Python in effects and callbacks.
        waits = (
            lowered.devices[0].platform == "cpu"
            and len(lowered.devices) > 1
            and (self.has_effects or calls_python or "channel_id=" in compiler.hlo_text(executable))
        )
        coordinator = client.coordinator()
        own = 0 if coordinator is None else coordinator.process_id
        has_several = sum(device.process_index == own for device in lowered.devices) > 1  # in this process
        run, watch = executable.execute_sharded, _make_watch(lowered, waits, has_several)
        if lowered.kept is not None or lowered.constants:
            run = _select_arguments(run, lowered.kept, lowered.constants)
        if waits:
            # XLA makes no elements of an empty result, which is therefore ready at once.
            number = next((i for i, t in enumerate(self.out_types) if 0 not in t.buffer_aval.shape), None)
            execute = in_flight.limit_in_flight(run, self._handlers, self.has_effects, calls_python, number, watch)
        else:
            run = in_flight.keep_tokens(watch(run)) if self.has_effects else watch(run)
            execute = make_execution(run, self._handlers)
        # At exit, no other thread may start a program that calls Python.
        self.launch = None if has_several or waits else (run, self._handlers)
        if has_several or (waits and calls_python):
            execute = in_flight.in_turn(_check_buffers(execute, lowered.donated))
        self.execute = execute

    @property
    def program(self) -> Jaxpr | None:
        """The jaxpr that was compiled, as long as anything else holds it."""
        return self._program()

    @property
    def parameters(self) -> list[int]:
        """The numbers of the inputs that are parameters of the program, in its order; they follow the constants."""
        lowered = self.lowered
        return list(range(len(lowered.in_shardings))) if lowered.kept is None else list(lowered.kept)

    def reused(self) -> set[int]:
        """The numbers of the inputs whose buffers the compiler reuses."""
        count, numbers = len(self.lowered.constants), self.parameters
        return {numbers[p - count] for p in compiler.aliased_parameters(self.executable) if p >= count}

    def layouts(self) -> tuple[dict[int, Any], list]:
        """The memory layouts of the parameters, by the numbers of the inputs, and of the results."""
        ins, outs = compiler.executable_layouts(self.executable)
        return dict(zip(self.parameters, ins[len(self.lowered.constants) :], strict=True)), outs

    def _chosen_layouts(self) -> tuple[Sequence[Any], Sequence[Any]]:
        """The layouts of the inputs and of the outputs, those that were left to the compiler included."""
        ins, outs = self.layouts()
        named = lambda found: None if (layout := Layout.of_engine(found)).is_default else layout
        held = self.lowered.layouts[0]
        return [named(ins[i]) if i in ins else None for i in range(len(held))], [named(found) for found in outs]

    def __call__(self, arguments: list) -> list[Array]:
        """Run on the buffers of all inputs and wrap the results."""
        client.check_not_forked()
        if self.has_ordered_effects:
            in_flight.effects_barrier()
        return list(map(wrap_buffer, self.execute(arguments), self.out_types))


def _make_watch(lowered: LoweredProgram, waits: bool, has_several: bool) -> Callable[..., Callable]:
    """Make the wrapper of a program's execution that watches its launches, if it runs on several processes.

    Args:
      lowered: the program.
      waits: whether devices wait for each other, and its runs are counted.
      has_several: whether it runs on several devices of this process.
    """
    coordinator = client.coordinator()
    processes = () if coordinator is None else sorted({device.process_index for device in lowered.devices})
    if coordinator is None or coordinator.watch is None or len(processes) < 2:
        return lambda run, may_block=False: run
    if not waits and lowered.devices[0].platform != "cpu":
        unfinished_runs.start_others()
    program, name = lowered.program, lowered.program.debug_name
    shardings = [
        f"{kind} {i}: {sharding}"
        for kind, each in (("argument", lowered.in_shardings), ("result", lowered.out_shardings))
        for i, sharding in enumerate(each)
    ]
    fingerprint = compilation_cache.make_fingerprint(lowered.module.module, lowered.devices)

    def describe() -> list[str]:
        values = [c for c in program.consts if is_inlined(c, inlines_arrays=False)]
        constants = [f"constant {i}: {process_comparison.format_value(c)}" for i, c in enumerate(values)]
        return [*program.pretty_print(source_info=True, width=math.inf).splitlines(), *constants, *shardings]

    watch = functools.partial(
        coordinator.watch.watch_launches, name=name, fingerprint=fingerprint, processes=processes, lines=describe
    )
    # A launch on a single device of this process waits for the others in any case, but is so fast that another thread
    # would show.
    return lambda run, may_block=False: watch(run, may_block=may_block and has_several)


def _make_result_handler(t: ArrayType) -> Any:
    """The engine's handler that makes the buffer of a result."""
    aval = t.buffer_aval
    if 0 not in aval.shape or t.sharding.is_fully_replicated or not t.sharding.is_fully_addressable:
        return buffers.result_handler(aval, t.sharding, t.committed)
    # XLA replicates a result without elements, whatever sharding was requested.
    shape, devices = t.sharding.shard_shape(aval.shape), [s.device for s in t.sharding.shards(aval.shape)]
    shards = [np.empty(shape, aval.dtype) for _ in devices]
    return lambda _: buffers.put_shards(aval, t.sharding, shards, devices, t.committed)


def _select_arguments(run: Callable, kept: Sequence[int] | None, constants: list) -> Callable:
    """The execution of a program that does not read all its inputs, or that takes constants before them."""

    def run_selected(arguments: list, with_tokens: bool = False) -> Any:
        return run([*constants, *(arguments if kept is None else [arguments[i] for i in kept])], with_tokens)

    return run_selected


def _check_buffers(execute: Callable, donated: Sequence[int]) -> Callable:
    """The execution on several devices of this process, behind checks for deleted and doubly used buffers.

    For a single device, jaxlib raises an error on these; for several, it ends the process.
    """

    def execute_live(arguments: list) -> list:
        if buffers.any_is_deleted(arguments):
            raise DeletedArrayError(
                "call of a compiled function",
                expected="arrays with live buffers",
                got="one that was deleted or donated",
                fix="use the result of the call to which it was donated",
            )
        results: list = execute(arguments)
        return results

    def execute_distinct(arguments: list) -> list:
        if len(set(map(id, arguments))) < len(arguments):
            seen = list(map(id, arguments))
            if any(seen.count(seen[i]) > 1 for i in donated):
                raise donated_twice_error()
        return execute_live(arguments)

    return execute_distinct if donated else execute_live


def _output_shardings(lowered: LoweredProgram, executable: Any) -> list:
    if not lowered.program.outvars:
        return []  # jaxlib reports one sharding even if there are no results.
    if len(lowered.devices) > 1:
        found: Any = compiler.executable_shardings(executable)[1]
        return lowered.result_shardings().complete(found)
    return lowered.result_shardings().on_one_device()  # XLA reports no shardings for one device.


class CompiledCall:
    """A compiled program with the transfers of arguments that a call must do before it.

    Args:
      compiled: the program.
      moves: for each argument to transfer its number, the type it must have, and the function that transfers it.

    `run_one` runs it on the buffers of its arguments, and returns its only result.
    """

    __slots__ = (
        *("checked_program", "compared", "compiled", "execute", "is_direct", "is_plain", "moves", "name"),
        *("out_types", "run_one"),
    )

    def __init__(self, compiled: CompiledProgram, moves: list):
        self.compiled = compiled
        self.moves = moves
        self.execute = compiled.execute
        self.run_one = _make_run_one(compiled)
        self.out_types = compiled.out_types
        context = state.context
        # The program whose use of random keys is checked at each call, under the option `debug_key_reuse`.
        self.checked_program = compiled.program if context.debug_key_reuse else None
        # The shardings of arguments whose values are compared at each call, under `debug_compare_host_values`.
        self.compared = {i: type.sharding for i, type, _ in moves} if context.debug_compare_host_values else {}
        program = compiled.program if self.compared else None
        self.name = "program" if program is None else program.debug_name
        # A plain call has nothing to do but transfers and the execution, which hot paths do without another call.
        debugs = context.debug_nans or context.debug_infs or context.debug_key_reuse or self.compared
        self.is_plain = not (compiled.has_effects or debugs)
        self.is_direct = self.is_plain and not moves

    def __call__(self, args: Sequence[Any], name_of: Callable[[int], str] | None = None) -> list[Array]:
        if self.checked_program is not None:
            run_checks.use_keys(self.checked_program, args)
        if self.compared:
            names = name_of or (lambda i: f"{self.name}, argument {i}")
            process_comparison.compare_transferred(self.name, args, self.compared, names)
        try:
            return self.compiled([x._buffer for x in (transfer_arguments(args, self.moves) if self.moves else args)])
        except Exception as error:
            explain_failure(error, args, name_of)
            raise


def _make_run_one(program: CompiledProgram) -> Any:
    """The function that runs a program on buffers and returns its result, if there is one: all eager operations do."""
    if len(program.out_types) != 1:
        return None
    (out_type,), host = program.out_types, initial_host_value(program.out_types)
    if program.launch is None:
        return lambda buffers: wrap_buffer(program.execute(buffers)[0], out_type)
    run, handlers = program.launch

    def run_one(buffers: list) -> Array:
        array = Array()
        try:
            (array._buffer,) = get_execution()((run, buffers, handlers))
        except Exception as error:
            (array._buffer,) = execute_again(error, run, buffers, handlers)
        array._type = out_type
        array._host = host
        return array

    return run_one


def plan_transfers(types: Sequence[ArrayType], lowered: LoweredProgram, name_of: Callable[[int], str]) -> list:
    """Find the arguments whose sharding differs from the one that a program needs.

    Args:
      types: the types of the arguments.
      lowered: the program.
      name_of: the user's name for argument `i`.

    Returns:
      For each such argument its number, the type it must have, and the function that transfers it. A donated argument
      is copied to a new buffer; an argument that is only read may share a cached buffer.

    Raises:
      ShardingError: an argument on the host is to be split over the devices of several processes.
    """
    check_split_values(types, lowered, name_of)
    return [
        (i, ArrayType(t.aval, s, True, layout), transfer.put_typed if i in lowered.donated else transfer.put_shared)
        for i, (t, s, layout) in enumerate(zip(types, lowered.in_shardings, lowered.layouts[0], strict=True))
        if (t.sharding is not s and (t.sharding is None or t.sharding.canonical is not s.canonical))
        or t.layout != layout
    ]


def check_split_values(types: Sequence[ArrayType], lowered: LoweredProgram, name_of: Callable[[int], str]) -> None:
    """Refuse host values whose sharding splits them over the devices of several processes.

    Each process may have its own part of the value, or the whole: the program cannot know.

    Args:
      types: the types of the arguments.
      lowered: the program.
      name_of: the user's name for argument `i`.

    Raises:
      ShardingError: an argument is such a value.
    """
    for i, (t, s) in enumerate(zip(types, lowered.in_shardings, strict=True)):
        if t.sharding is None and not (s.is_fully_addressable or s.is_fully_replicated):
            raise ShardingError(
                name_of(i),
                expected="an array, since its sharding splits it over the devices of several processes",
                got="a NumPy array",
                fix="make the array with phalanx.device_put (from the whole value), make_array_from_process_local_data "
                "(from the part of this process) or make_array_from_callback",
            )


def transfer_arguments(args: Sequence[Any], moves: list) -> list[Array]:
    """The arguments of a call, some of them transferred as `plan_transfers` says."""
    args = list(args)
    for i, type, place in moves:
        args[i] = place(args[i], type)
    return args


def explain_failure(error: Exception, args: Sequence[Any], name_of: Callable[[int], str] | None = None) -> None:
    """Raise the cause of a failed call where the engine reports it less clearly: a deleted argument, a failed callback.

    Args:
      error: the engine's error.
      args: the arguments of the call.
      name_of: the user's name for argument `i`, if it is known.
    """
    if not _is_ours(error):
        return  # A signal handler has raised it, after the run perhaps, which an argument was donated to.
    for i, x in enumerate(args):
        if type(x) is Array and x.is_deleted():
            raise (deleted_error(x, name_of(i)) if name_of else deleted_error(x)) from None
    # jaxlib raises a general exception class for a buffer that is donated twice; only the text identifies it.
    if "previously donated in the same call" in str(error) or "donate the same buffer twice" in str(error):
        raise donated_twice_error() from None
    if isinstance(error, XlaRuntimeError):
        raise unwrap_callback_error(error) from None


def _is_ours(error: Exception) -> bool:
    """Whether the library or the engine has raised an error."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is None or is_internal(last.tb_frame.f_code)


def compile_call(
    program: Jaxpr, types: Sequence[ArrayType], name: str, names: Callable[[int], str] | None = None
) -> CompiledCall:
    """Compile a jaxpr for arguments of these types, with as few transfers as possible."""
    names = names or (lambda i: f"{name}, argument {i}")
    devices, committed = common_devices(types, names)
    if devices is None and (named := named_sharding(program)) is not None:
        devices, committed = tuple(named._device_assignment), True
    if devices is None and (mesh := get_placement_mesh()) is not None:
        devices, committed = mesh.flat_devices, True
    if devices is None:
        devices = tuple(transfer.default_sharding().device_set)
    replicated = transfer.replicated_sharding(devices, [t.sharding for t in types])
    device_set = set(devices)
    in_shardings = [
        to_default_memory(t.sharding) if t.sharding is not None and t.sharding.device_set == device_set else replicated
        for t in types
    ]
    lowered = lower(program, devices, in_shardings, name=name, committed=committed)
    return CompiledCall(lowered.compile(), plan_transfers(types, lowered, names))
