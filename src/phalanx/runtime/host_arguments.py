"""Arguments from the host in repeated calls: NumPy arrays and Python scalars, which each call sends to the device.

A transfer takes as long as the run of a small program. So a small NumPy array is copied into staging memory that the
program reads in place, where the device is the CPU. The generated code of `fast_path` takes such memory before a run
and gives it back after the run, if the run is over by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core import ShapedArray, get_aval
from phalanx.engine import buffers, transfer_guard
from phalanx.runtime import transfer
from phalanx.runtime.array import ArrayType

_HOST_LEAVES = transfer.HOST_SCALARS | {np.ndarray}  # classes that are never nodes of a pytree
_MAX_STAGED_BYTES = 1 << 14  # Copying more takes longer than the rest of a transfer.
_MAX_STAGED = 8  # per argument; programs whose runs outlast their calls do not give any back
Staged = tuple[np.ndarray, buffers.Buffer]


class HostArgument:
    """Sends an argument from the host, in calls like an earlier one.

    Args:
      aval: its type in the earlier call.
      type: the type of the array on the devices.
      place: the function of `plan_transfers` that transfers it.

    `take` is a function of the argument. It returns its buffer or, if `is_staged`, a pair of staging memory (or None)
    and the buffer, to be given back after the run. It raises ValueError for a value of another type, or one that is not
    on the host, and the engine's error where a guard forbids the transfer.
    """

    def __init__(self, aval: ShapedArray, type: ArrayType, place: Callable):
        self.type, self.place, self.aval = type, place, aval
        self.is_shared = place is transfer.put_shared  # A donated argument gets a buffer of its own at each call.
        sharding = type.sharding
        is_plain = type.has_plain_buffer and type.layout is None and sharding.non_default_memory_kind is None
        if is_plain and sharding.is_fully_addressable and type.aval.dtype == aval.dtype:
            device = sharding._device_assignment[0]
            self.send = buffers.make_argument_sender(type.buffer_aval, device)
            nbytes = aval.size * aval.dtype.itemsize
            is_small = device.platform == "cpu" and 0 < nbytes <= _MAX_STAGED_BYTES
            self.is_staged = self.is_shared and is_small and not aval.weak_type  # No NumPy array is weakly typed.
        else:
            self.send, self.is_staged = transfer.make_host_sender(type), False
        self.last: tuple[Any, Any] = object(), None  # a scalar and its buffer: calls are often repeated with the same
        self.staged: list[Staged] = []
        self.num_made = 0
        self.take: Callable[[Any], Any] = self._make_taker() if self.is_staged else self._make_sender()

    def _make_sender(self) -> Callable[[Any], Any]:
        shape, dtype, send, place = self.aval.shape, self.aval.dtype, self.send, self._place
        if self.aval.weak_type:
            return place

        def take(x: Any) -> Any:
            if x.__class__ is np.ndarray and x.shape == shape and x.dtype == dtype:
                return send(x)
            return place(x)

        return take

    def _make_taker(self) -> Callable[[Any], tuple[np.ndarray | None, buffers.Buffer]]:
        shape, dtype, staged, guarded = self.aval.shape, self.aval.dtype, self.staged, transfer_guard.guarded

        def take(x: Any) -> tuple[np.ndarray | None, buffers.Buffer]:
            if x.__class__ is np.ndarray and x.shape == shape and x.dtype == dtype:
                if not guarded:
                    try:
                        found: Staged | None = staged.pop()
                    except IndexError:
                        found = self._stage()
                    if found is not None:
                        memory, buffer = found
                        memory[...] = x
                        return memory, buffer
                return None, self.send(x)
            return None, self._place(x)

        return take

    def _place(self, x: Any) -> buffers.Buffer:
        """The less frequent cases: scalars, whose abstract value is interned and compared by identity."""
        scalar, buffer = self.last
        if x is scalar and not buffer.is_deleted():
            return buffer
        if x.__class__ not in _HOST_LEAVES or get_aval(x) is not self.aval:
            raise ValueError("an argument of another type")
        buffer = self.place(x, self.type)._buffer
        if self.is_shared and x.__class__ is not np.ndarray:
            self.last = x, buffer
        return buffer

    def _stage(self) -> Staged | None:
        """New staging memory and its buffer; None if there was enough, or if the device does not share memory."""
        if self.num_made >= _MAX_STAGED:
            return None
        self.num_made += 1
        memory = buffers.aligned(self.aval.shape, self.aval.dtype)
        buffer = buffers.lend_argument(memory, self.type.buffer_aval, self.type.sharding._device_assignment[0])
        if buffer is None:
            self.num_made = _MAX_STAGED
            return None
        return memory, buffer

    def give_back(self, taken: tuple[np.ndarray | None, buffers.Buffer], results: list[buffers.Buffer]) -> None:
        """Keep staging memory for the next call, unless the program may still read it."""
        memory, buffer = taken
        # All results of a run become ready when it ends. Without any, its end is unknown.
        if memory is not None and results and results[0].is_ready():
            self.staged.append((memory, buffer))
