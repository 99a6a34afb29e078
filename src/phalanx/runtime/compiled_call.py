"""Calls of compiled programs: transferring arguments to the devices and shardings that a program needs, and running it.

Builds on `compiled_program`; `jit`, eager operations and `eager_jit` call programs through `CompiledCall`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import Jaxpr, state
from phalanx.engine.runtime_errors import XlaRuntimeError, unwrap_callback_error
from phalanx.runtime import transfer
from phalanx.runtime.array import Array, ArrayType, deleted_error, donated_twice_error
from phalanx.runtime.compiled_program import CompiledProgram, LoweredProgram, lower, run_checks
from phalanx.runtime.device_assignment import common_devices, named_sharding
from phalanx.runtime.memory_kinds import to_default_memory


class CompiledCall:
    """A compiled program with the transfers of arguments that a call must do before it.

    Args:
      compiled: the program.
      moves: for each argument to transfer its number, the type it must have, and the function that transfers it.
    """

    __slots__ = ("checked_program", "compiled", "handlers", "is_direct", "is_plain", "moves", "out_types", "run")

    def __init__(self, compiled: CompiledProgram, moves: list):
        self.compiled = compiled
        self.moves = moves
        self.run = compiled._run
        self.handlers = compiled._handlers
        self.out_types = compiled.out_types
        context = state.context
        # The program whose use of random keys is checked at each call, under the option `debug_key_reuse`.
        self.checked_program = compiled.program if context.debug_key_reuse else None
        # A plain call has nothing to do but transfers and the execution, which hot paths do without another call.
        self.is_plain = not (
            compiled.has_effects or context.debug_nans or context.debug_infs or context.debug_key_reuse
        )
        self.is_direct = self.is_plain and not moves

    def __call__(self, args: Sequence[Any], name_of: Callable[[int], str] | None = None) -> list[Array]:
        if self.checked_program is not None:
            run_checks.use_keys(self.checked_program, args)
        try:
            return self.compiled([x._buffer for x in (transfer_arguments(args, self.moves) if self.moves else args)])
        except Exception as error:
            explain_failure(error, args, name_of)
            raise


def plan_transfers(types: Sequence[ArrayType], lowered: LoweredProgram) -> list:
    """Find the arguments whose sharding differs from the one that a program needs.

    Args:
      types: the types of the arguments.
      lowered: the program.

    Returns:
      For each such argument its number, the type it must have, and the function that transfers it. A donated argument
      is copied to a new buffer; an argument that is only read may share a cached buffer.
    """
    return [
        (i, ArrayType(t.aval, s, True), transfer.put_typed if i in lowered.donated else transfer.put_shared)
        for i, (t, s) in enumerate(zip(types, lowered.in_shardings, strict=True))
        if t.sharding is not s and (t.sharding is None or t.sharding.canonical is not s.canonical)
    ]


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
    for i, x in enumerate(args):
        if type(x) is Array and x._buffer.is_deleted():
            raise (deleted_error(x, name_of(i)) if name_of else deleted_error(x)) from None
    # jaxlib raises a general exception class for a buffer that is donated twice; only the text identifies it.
    if "previously donated in the same call" in str(error) or "donate the same buffer twice" in str(error):
        raise donated_twice_error() from None
    if isinstance(error, XlaRuntimeError):
        raise unwrap_callback_error(error) from None


def compile_call(
    program: Jaxpr, types: Sequence[ArrayType], name: str, names: Callable[[int], str] | None = None
) -> CompiledCall:
    """Compile a jaxpr for arguments of these types, with as few transfers as possible."""
    names = names or (lambda i: f"{name}, argument {i}")
    devices, committed = common_devices(types, names)
    if devices is None and (named := named_sharding(program)) is not None:
        devices, committed = tuple(named._device_assignment), True
    if devices is None:
        devices = tuple(transfer.default_sharding().device_set)
    replicated = transfer.replicated_sharding(devices, [t.sharding for t in types])
    device_set = set(devices)
    in_shardings = [
        to_default_memory(t.sharding) if t.sharding is not None and t.sharding.device_set == device_set else replicated
        for t in types
    ]
    lowered = lower(program, devices, in_shardings, name=name, committed=committed)
    return CompiledCall(lowered.compile(), plan_transfers(types, lowered))
