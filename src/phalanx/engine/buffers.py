"""Buffers: data on devices, transfers from and to the host and between devices, and assembly from shards.

A buffer is jaxlib's array object, one for each logical array over all its devices. `runtime` wraps it in `Array`, and
the shardings of `sharding` derive from `ShardingBase`. jaxlib's C++ reads `shape`, `dtype`, `weak_type`, `ndim` and
`size` of an abstract value, and a few attributes of a sharding.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib.util
import math
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from jaxlib import _jax
from jaxlib._jax import (
    ArrayCopySemantics as CopySemantics,
    ArrayImpl as Buffer,
    array_result_handler as _result_handler,
    batched_device_put as _device_put,
)
from jaxlib.xla_client import HloSharding

from phalanx.engine.buffer_deletion import read
from phalanx.engine.cache import memoize
from phalanx.engine.client import Device, DeviceList as DeviceList
from phalanx.engine.interruptible_wait import interrupters, wait
from phalanx.engine.runtime_errors import XlaRuntimeError, late_failures, raise_late_failure, unwrap_callback_error
from phalanx.engine.transfer_guard import to_transfer_error
from phalanx.engine.unfinished_runs import all_finished

ShardingBase: TypeAlias = _jax.Sharding
_COPY = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_ALIAS = _jax.HostBufferSemantics.ZERO_COPY

_DLPACK_CPU, _DLPACK_CUDA = 1, 2

ALIGNMENT = 64  # bytes; XLA's CPU devices share host memory only at addresses that are multiples of this
_CHEAP_TO_COPY = 1 << 12  # bytes
WORTH_SHARING = 1 << 17  # bytes of a shard from which sharing host memory takes less time than copying it

_HANDLER_OPTIONS: dict[str, bool] = (
    {} if "_skip_checks" not in (_result_handler.__doc__ or "") else {"_skip_checks": True}
)


def put_array(
    value: Any, aval: Any, sharding: Any, device: Device, committed: bool = True, may_alias: bool = False
) -> Buffer:
    """Transfer a host value to one device.

    Args:
      value: a NumPy array or scalar of the dtype of `aval`.
      aval: shape and dtype.
      sharding: the single-device sharding of the result.
      device: the device.
      committed: whether the user chose the device.
      may_alias: whether the buffer may share the value's memory, which must not be written to again.

    Returns:
      The buffer; the transfer may still be running.
    """
    try:
        return _device_put(aval, sharding, [value], [device], committed, False, _ALIAS if may_alias else _COPY, True)
    except XlaRuntimeError as error:
        raise to_transfer_error(error) from None


def make_argument_sender(aval: Any, device: Device) -> Callable[[np.ndarray], Buffer]:
    """Make the function that transfers a NumPy array to one device as the argument of a program.

    The buffer has a sharding of jaxlib's own class, whose attributes jaxlib reads without Python, which takes a quarter
    less time. It must not reach users.

    Args:
      aval: shape and dtype of the array.
      device: the device, into whose default memory it goes.

    Returns:
      The function, which raises XlaRuntimeError where a guard forbids the transfer.
    """
    sharding, devices = _argument_sharding(device), [device]
    return lambda value: _device_put(aval, sharding, [value], devices, True, False, _COPY, True)


def lend_argument(memory: np.ndarray, aval: Any, device: Device) -> Buffer | None:
    """A buffer that shares host memory, for arguments that are written there; None if the device cannot share it."""
    if memory.dtype.isbuiltin != 1 and memory.dtype not in _WHOLE_BYTES:
        return None
    buffer = _device_put(aval, _argument_sharding(device), [memory], [device], True, False, _ALIAS, True)
    # With a sharding of jaxlib's class, `unsafe_buffer_pointer` would import jax if it is installed.
    return buffer if to_host(buffer).ctypes.data == memory.ctypes.data else None


_argument_sharding = memoize("engine.argument_shardings", 4096)(_jax.SingleDeviceSharding)
if not hasattr(_jax.SingleDeviceSharding, "_to_xla_hlo_sharding"):
    # jaxlib 0.10 calls this method where it meets a type for the first time, but leaves it to jax to add it.
    _jax.SingleDeviceSharding._to_xla_hlo_sharding = lambda self, num_dimensions: HloSharding.replicate()


def put_shards(
    aval: Any,
    sharding: Any,
    pieces: Sequence[Any],
    devices: Sequence[Device],
    committed: bool = True,
    may_alias: bool = False,
    apart: bool = False,
) -> Buffer:
    """Transfer one shard to each device, and return the shards as one array.

    Args:
      aval: shape and dtype of the array.
      sharding: its sharding.
      pieces: for each device a NumPy array, or a buffer on that device; dtypes as in `aval`.
      devices: this process's devices of the sharding, in its order.
      committed: whether the user chose these devices.
      may_alias: whether the buffer may share the memory of NumPy arrays, which must not be written to again.
      apart: whether no two shards are known to start at one address.

    Returns:
      The buffer; the transfers may still be running.
    """
    if not may_alias and not apart:
        pieces = _with_own_memory(pieces)
    try:
        return _device_put(aval, sharding, pieces, devices, committed, False, _ALIAS if may_alias else _COPY, True)
    except XlaRuntimeError as error:
        raise to_transfer_error(error) from None


def _with_own_memory(pieces: Sequence[Any]) -> list[Any]:
    """Copy shards that start at the same address as another one, which jaxlib would transfer only once per call."""
    # Copying small shards takes less time than reading their addresses. All shards have one size.
    if {*map(type, pieces)} == {np.ndarray} and pieces[0].nbytes <= _CHEAP_TO_COPY:
        return list(map(np.ndarray.copy, pieces))
    addresses = [p.__array_interface__["data"][0] if isinstance(p, np.ndarray) else object() for p in pieces]
    # An object that equals no other stands for the address of a value that is no NumPy array.
    last = {address: i for i, address in enumerate(addresses)}
    return [p if last[address] == i else p.copy() for i, (p, address) in enumerate(zip(pieces, addresses, strict=True))]


def aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """New host memory at an address that XLA's CPU devices can share without a copy."""
    # jaxlib releases borrowed host memory at its next call only. Collecting first lets NumPy reuse the block that the
    # previous buffer of this size held, so that repeated transfers do not touch fresh pages.
    _jax.collect_garbage()
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def _release_host_memory(phase: str, info: dict) -> None:
    """Release borrowed host memory whenever Python collects garbage, so that data that nobody uses is freed."""
    if phase == "stop":
        _jax.collect_garbage()


gc.callbacks.append(_release_host_memory)


def side_by_side(parts: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray | None:
    """Join arrays that are adjacent in memory into one array that shares the memory; None if they are not adjacent.

    Args:
      parts: arrays of one dtype, contiguous in row-major order.
      shape: the shape of the joined array.

    Returns:
      The array, which is read-only.
    """
    first, step = parts[0].__array_interface__["data"][0], parts[0].nbytes
    if any(part.__array_interface__["data"][0] != first + i * step for i, part in enumerate(parts)):
        return None
    whole = _at_address(first, len(parts) * step, parts[0].dtype, owner=parts).reshape(shape)
    whole.flags.writeable = False
    return whole


def _at_address(address: int, size: int, dtype: np.dtype, owner: Any) -> np.ndarray:
    """The elements in `size` bytes of memory as an array, which keeps the owner of the memory alive."""
    memory: Any = (ctypes.c_byte * size).from_address(address)
    memory.owner = owner
    return np.frombuffer(memory, dtype)


def from_shards(aval: Any, sharding: Any, buffers: Sequence[Buffer], committed: bool = True) -> Buffer:
    """Join single-device buffers, in the sharding's order, into one array without copying."""
    return _record_parts(Buffer(aval, sharding, list(buffers), committed=committed, _skip_checks=True), buffers)


_parts: dict[int, tuple[weakref.ref[Buffer], Sequence[Buffer]]] = {}


def _record_parts(buffer: Buffer, parts: Sequence[Buffer]) -> Buffer:
    """Record that users hold the shards of a buffer, and may delete or donate one of them."""
    if len(parts) > 1:
        key = id(buffer)
        _parts[key] = weakref.ref(buffer, lambda _: _parts.pop(key, None)), parts
    return buffer


# The C++ methods themselves: they run for each argument of each call, and for each array of a wait.
_is_deleted, _is_ready = Buffer.is_deleted, Buffer.is_ready


def is_deleted(buffer: Buffer) -> bool:
    """Whether an array or one of its shards was deleted or donated.

    jaxlib looks at the first shard only, and ends the process if a program reads another one.
    """
    return _is_deleted(buffer) or (id(buffer) in _parts and any(map(_is_deleted, _parts[id(buffer)][1])))


def any_is_deleted(buffers: Sequence[Buffer]) -> bool:
    """Whether one of the arrays, or one of its shards, was deleted or donated."""
    if any(map(_is_deleted, buffers)):
        return True
    # All tests run in C, so that shards of other arrays that users hold cost a call next to nothing.
    return bool(_parts) and not _parts.keys().isdisjoint(map(id, buffers)) and any(map(is_deleted, buffers))


def result_handler(aval: Any, sharding: Any, committed: bool = True) -> Any:
    """Make the handler that turns one result of an execution into a buffer.

    Args:
      aval: shape and dtype of the result.
      sharding: its sharding.
      committed: whether it is committed to these devices.

    Returns:
      A handler for the list that `executable.execute_sharded(buffers).consume_with_handlers(handlers)` takes.
    """
    return _result_handler(aval, sharding, committed=committed, **_HANDLER_OPTIONS)


def live(client: Any) -> list[tuple[Buffer, Any, bool]]:
    """List the arrays with memory on a client's devices, each with its sharding and whether it is committed."""
    return [(b, b._sharding, b._committed) for b in client.live_arrays() if not b.is_deleted()]


def layout(buffer: Buffer) -> Any:
    """The memory layout of each shard, as jaxlib's `PjRtLayout`."""
    return buffer._pjrt_layout


def with_sharding(buffer: Buffer, aval: Any, sharding: Any) -> Buffer:
    """Give a buffer another abstract value and sharding that describe the same shards on the same devices."""
    return buffer._rewrap_with_aval_and_sharding(aval, sharding)


def replica(buffer: Buffer) -> Buffer:
    """The single-device buffer of one replica of a fully replicated array, without copying."""
    return buffer._fully_replicated_shard()


def shards(buffer: Buffer, *, exposed: bool = False) -> list[Buffer]:
    """List this process's single-device buffers of an array, in its sharding's order, without copying.

    jaxlib tries to import jax for each shard on the way. If jax is not installed, each attempt searches all folders of
    `sys.path`; an import hook ends the search early. Where jax is installed, the first attempt has to succeed: jaxlib
    keeps its result, and a program that imports jax later would have arrays without an abstract value.

    Args:
      buffer: the array.
      exposed: whether users receive the shards, and may delete or donate them.

    Returns:
      The buffers.
    """
    if "jax" in sys.modules or _is_installed("jax"):
        parts = buffer._arrays
    else:
        sys.meta_path.insert(0, _NoJax)
        try:
            parts = buffer._arrays
        finally:
            sys.meta_path.remove(_NoJax)
    if exposed:
        _record_parts(buffer, parts)
    return parts


@memoize("engine.is_installed", 256)
def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


class _NoJax:
    """An import hook that reports at once that jax is not installed."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "jax":
            raise ModuleNotFoundError("No module named 'jax'", name=name)


def to_host(buffer: Buffer) -> np.ndarray:
    """Read the values of a single-device buffer as a read-only NumPy array; waits for them.

    On the CPU the array shares the buffer's memory if NumPy supports the element type. It stays valid after the buffer
    is deleted.

    Args:
      buffer: an array on one device.

    Returns:
      The values.
    """
    try:
        if interrupters and not buffer.is_ready():
            wait(buffer.block_until_ready)
            all_finished()
        buffer.block_until_ready()  # jaxlib's buffer protocol aborts where the memory could not be allocated.
        value = np.asarray(read(_view, buffer))  # jaxlib's buffers are read-only.
    except BufferError:  # NumPy cannot read this memory.
        value = _beyond_buffer_protocol(buffer)
        value.flags.writeable = False
    except XlaRuntimeError as error:
        raise unwrap_callback_error(error) from None
    raise_late_failure()
    return value


_view: Callable[[Any], memoryview] = memoryview


def _beyond_buffer_protocol(buffer: Buffer) -> np.ndarray:
    """Read values that the buffer protocol cannot describe: ml_dtypes types, and memory that is not the host's."""
    aval = buffer.aval
    # Without jax, a shard of a larger array has no abstract value; jaxlib's conversion needs neither jax nor one.
    dtype = np.dtype(np.bool_) if aval is None else np.dtype(aval.dtype)
    if "jax" in sys.modules or dtype not in _WHOLE_BYTES or buffer.platform() != "cpu" or not aval.size:
        try:
            return read(Buffer._single_device_array_to_np_array_did_copy, buffer)[0]
        except XlaRuntimeError as error:
            raise to_transfer_error(error) from None
    # jaxlib's conversion would import jax if it is installed, which takes a third of a second.
    capsule = to_dlpack(buffer)
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    address, size = tensor.data + tensor.byte_offset, aval.size * dtype.itemsize
    return _at_address(address, size, dtype, owner=capsule).reshape(aval.shape)


class _DLTensor(ctypes.Structure):
    """The first fields of a DLPack tensor, as in `dlpack.h`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

# The element types of ml_dtypes with the same representation in DLPack and NumPy; XLA packs narrower ones.
_WHOLE_BYTES = {np.dtype(t) for t in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)}


def copy_to_devices(
    buffers: Sequence[Buffer], shardings: Sequence[Any], *, semantics: Any = CopySemantics.REUSE_INPUT
) -> list[Buffer]:
    """Copy arrays to other devices shard by shard, the first shard to the first device of the new sharding.

    Args:
      buffers: the arrays.
      shardings: for each array, one over as many devices as the array has, with the same shards in the same order.
      semantics: `CopySemantics.REUSE_INPUT` shares shards that are on the right device, `ALWAYS_COPY` does not, and
        `DONATE_INPUT` gives up the input's memory.

    Returns:
      One buffer per array.
    """
    lists = [sharding._internal_device_list for sharding in shardings]
    try:
        return _jax.batched_copy_array_to_devices_with_sharding(
            list(buffers), lists, list(shardings), [semantics] * len(lists)
        )
    except XlaRuntimeError as error:
        raise to_transfer_error(error) from None


def reorder_shards(buffer: Buffer, sharding: Any) -> Buffer:
    """Reorder the shards of a buffer to the device order of `sharding`, without copying."""
    return _jax.reorder_shards(buffer, sharding, CopySemantics.REUSE_INPUT)


def block_until_ready(buffers: Sequence[Buffer]) -> None:
    """Wait until all arrays are computed; raises the error of the first computation that failed."""
    try:
        if interrupters and not all_finished() and not all(map(_is_ready, buffers)):
            wait(lambda: _jax.batched_block_until_ready(buffers))
            all_finished()  # which these results tell as long as they are alive
        else:
            _jax.batched_block_until_ready(buffers)
    except XlaRuntimeError as error:
        raise unwrap_callback_error(error) from None
    if late_failures:
        raise_late_failure()


def copy_to_host_async(buffer: Buffer) -> None:
    """Start transferring a single-device buffer to the host; on the CPU there is nothing to transfer."""
    if buffer.platform() != "cpu":
        buffer._copy_single_device_array_to_host_async()


def to_dlpack(buffer: Buffer, stream: int | None = None) -> Any:
    """Export a single-device buffer as a DLPack capsule that shares its memory.

    Args:
      buffer: an array on one device.
      stream: the consumer's CUDA stream, which waits for the values; None on the CPU.

    Returns:
      The capsule; it keeps the memory alive after the buffer is deleted.
    """
    # jaxlib aborts the process when a buffer is deleted that a capsule refers to. The clone is never deleted.
    return read(functools.partial(_jax.buffer_to_dlpack_managed_tensor, stream=stream), buffer.clone())


def dlpack_device(device: Device) -> tuple[int, int]:
    """A device's kind and number in DLPack: (1, 0) for any CPU device, (2, n) for the n-th GPU."""
    return (_DLPACK_CPU, 0) if device.platform == "cpu" else (_DLPACK_CUDA, device.local_hardware_id)


def from_dlpack(source: Any, aval: Any, sharding: Any, device: Device, *, copy: bool | None = None) -> Buffer:
    """Import an array of another library through the DLPack protocol.

    Args:
      source: an object with `__dlpack__` and `__dlpack_device__`, on `device`.
      aval: its shape and dtype.
      sharding: the single-device sharding of the result.
      device: the device that holds it.
      copy: True copies; None shares the memory if possible.

    Returns:
      The buffer.
    """
    if device.platform == "cpu":
        # Through NumPy, because jaxlib's import function imports jax if it is installed.
        return put_array(np.from_dlpack(source), aval, sharding, device, may_alias=copy is not True)
    stream = device.get_stream_for_external_ready_events()
    buffer = _jax.dlpack_managed_tensor_to_buffer(source.__dlpack__(stream=stream), device, stream, copy)
    return with_sharding(buffer, aval, sharding)
