"""Floors: the calls of jaxlib that a workload comes down to, prepared by Phalanx and then called without it.

Each function returns a call for the argument `floor` of `bench`. It works on buffers of the engine and returns such.
What a library must do besides is left out: find the program for the arguments, check them, and make objects for users.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def execution(f: Callable, *args: Any, **kwargs: Any) -> Callable[[], list]:
    """The run of the program of a compiled function for these arguments.

    NumPy arrays are transferred at each call. Phalanx writes small ones to memory that the program reads in place, so a
    workload with such arguments can take less time than its floor.
    """
    from phalanx.runtime import compiled_program

    leaves = f._jit._signature.split(args, kwargs).leaves
    entry = f._jit.entry(args, kwargs)
    arrays, program = compiled_program.transfer_arguments(leaves, entry.moves), entry.compiled
    buffers = [*program.lowered.constants, *(arrays[i]._buffer for i in program.parameters)]
    execute, handlers = program.executable.execute_sharded, program._handlers
    places = range(len(program.lowered.constants), len(buffers))
    sent = [(n, transfer(leaves[i])) for n, i in zip(places, program.parameters, strict=True) if _is_host(leaves[i])]

    def call():
        for n, send in sent:
            buffers[n] = send()
        return execute(buffers).consume_with_handlers(handlers)

    return call if sent else lambda: execute(buffers).consume_with_handlers(handlers)


def _is_host(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def transfer(x: np.ndarray) -> Callable[[], Any]:
    """The transfer of a NumPy array to the first device, which copies it before it returns."""
    from jaxlib import _jax

    import phalanx

    (device, *_), semantics = phalanx.devices(), _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    # Of jaxlib's own class, whose attributes its C++ reads without Python.
    sharding, aval = _jax.SingleDeviceSharding(device), phalanx.core.get_aval(x)
    return functools.partial(_jax.batched_device_put, aval, sharding, [x], [device], True, False, semantics, True)


def read(f: Callable, *args: Any) -> Callable[[], None]:
    """The run of a program, and a NumPy array of its first result."""
    run = execution(f, *args)

    def call():
        (result,) = run()
        result.block_until_ready()  # Reading a result that has failed would end the process.
        np.asarray(memoryview(result))

    return call


def assembly(shape: tuple, sharding: Any, data_callback: Callable) -> Callable[[], list]:
    """The values of a callback for the shard of each device, transferred in one call."""
    from jaxlib import _jax

    import phalanx

    aval = phalanx.core.get_aval(np.empty(shape, np.float32))
    places = sharding.addressable_devices_indices_map(shape)
    devices, indices, semantics = [*places], [*places.values()], _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL

    def call():
        pieces = [data_callback(index) for index in indices]
        return [_jax.batched_device_put(aval, sharding, pieces, devices, True, False, semantics, True)]

    return call
