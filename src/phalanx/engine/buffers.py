"""Data on devices: from the host, to the host, between devices, and arrays put together from per-device pieces.

Builds on jaxlib's array type, called *buffer* here: one per logical array, over all its devices. `runtime` wraps it in
`Array`; `sharding` derives its classes from `ShardingBase`. An `aval_like` has `shape`, `dtype`, `weak_type`, `ndim`
and `size`, a sharding the few attributes that jaxlib's C++ reads.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from jaxlib import _jax

from phalanx.engine.client import Device
from phalanx.engine.client import DeviceList as DeviceList
from phalanx.engine.failures import XlaRuntimeError, raise_late_failure, user_error
from phalanx.engine.guards import refusal

Buffer: TypeAlias = _jax.ArrayImpl
ShardingBase: TypeAlias = _jax.Sharding
CopySemantics: TypeAlias = _jax.ArrayCopySemantics

_device_put = _jax.batched_device_put
_COPY = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_ALIAS = _jax.HostBufferSemantics.ZERO_COPY

_DLPACK_CPU, _DLPACK_CUDA = 1, 2

ALIGNMENT = 64  # in bytes, of memory that XLA's CPU devices share with the host
WORTH_SHARING = 1 << 17  # bytes of a piece from which sharing costs less than copying

_result_handler = _jax.array_result_handler
_HANDLER_OPTIONS: dict[str, bool] = (
    {} if "_skip_checks" not in (_result_handler.__doc__ or "") else {"_skip_checks": True}
)


def put_array(
    value: Any, aval: Any, sharding: Any, device: Device, *, committed: bool = True, may_alias: bool = False
) -> Buffer:
    """Put one host value on one device.

    Args:
      value: a NumPy array or scalar, already of the dtype of `aval`.
      aval: shape and dtype.
      sharding: the single-device sharding of the result.
      device: where it goes.
      committed: whether the user asked for this device.
      may_alias: whether the buffer may share the value's memory; nobody may then write to it again.

    Returns:
      The buffer; the transfer may still be under way.
    """
    semantics = _ALIAS if may_alias else _COPY
    try:
        return _device_put(
            aval, sharding, [value], [device], committed, host_buffer_semantics=semantics, enable_x64=True
        )
    except XlaRuntimeError as error:
        raise refusal(error) from None


def put_shards(
    aval: Any,
    sharding: Any,
    pieces: Sequence[Any],
    devices: Sequence[Device],
    committed: bool = True,
    may_alias: bool = False,
    apart: bool = False,
) -> Buffer:
    """Put one piece on each device and give them as one array.

    Args:
      aval: shape and dtype of the whole.
      sharding: how the pieces lie in it.
      pieces: per device a NumPy array, or a buffer that is on that device already; dtypes as in `aval`.
      devices: this process's devices of the sharding, in its order.
      committed: whether the user asked for these devices.
      may_alias: whether the buffer may share the memory of NumPy arrays; nobody may then write to it again.
      apart: whether it is known that no two pieces start at one address.

    Returns:
      The buffer; the transfers may still be under way.
    """
    if not may_alias and not apart:
        pieces = _with_own_memory(pieces)
    semantics = _ALIAS if may_alias else _COPY
    try:
        return _device_put(aval, sharding, pieces, devices, committed, host_buffer_semantics=semantics, enable_x64=True)
    except XlaRuntimeError as error:
        raise refusal(error) from None


def _with_own_memory(pieces: Sequence[Any]) -> list[Any]:
    """Copy the pieces that start where another one does: jaxlib takes each address once per call only."""
    seen: set[int] = set()
    result = []
    for piece in pieces:
        if isinstance(piece, np.ndarray):
            address = piece.__array_interface__["data"][0]
            if address in seen:
                piece = piece.copy()
            seen.add(address)
        result.append(piece)
    return result


def aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """New host memory that starts where XLA's CPU devices want it, so that they take it as it is."""
    # What a buffer borrowed, jaxlib gives back at its next call only: a block freed just now is the one to take again.
    _jax.collect_garbage()
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def side_by_side(parts: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray | None:
    """Give arrays that lie one after another in memory as one array, which shares it; None where they do not.

    Args:
      parts: arrays of one type, contiguous in row-major order.
      shape: of all of them as one array.

    Returns:
      The array, which cannot be written to.
    """
    first, step = parts[0].__array_interface__["data"][0], parts[0].nbytes
    if any(part.__array_interface__["data"][0] != first + i * step for i, part in enumerate(parts)):
        return None
    whole = _at_address(first, len(parts) * step, parts[0].dtype, owner=parts).reshape(shape)
    whole.flags.writeable = False
    return whole


def _at_address(address: int, size: int, dtype: np.dtype, owner: Any) -> np.ndarray:
    """The elements in `size` bytes of memory, which lives as long as its owner: the array keeps that alive."""
    memory: Any = (ctypes.c_byte * size).from_address(address)
    memory.owner = owner
    return np.frombuffer(memory, dtype)


def from_shards(aval: Any, sharding: Any, buffers: Sequence[Buffer], committed: bool = True) -> Buffer:
    """Give single-device buffers, in the sharding's order, as one array; nothing is copied."""
    return Buffer(aval, sharding, list(buffers), committed=committed, _skip_checks=True)


def result_handler(aval: Any, sharding: Any, committed: bool = True) -> Any:
    """Make the handler that turns one result of an execution into a buffer.

    Args:
      aval: shape and dtype of the result.
      sharding: its sharding.
      committed: whether it is bound to these devices.

    Returns:
      An element of the list that `executable.execute_sharded(buffers).consume_with_handlers(handlers)` takes.
    """
    return _result_handler(aval, sharding, committed=committed, **_HANDLER_OPTIONS)


def live(client: Any) -> list[tuple[Buffer, Any, bool]]:
    """List the arrays that hold memory on a client's devices, each with its sharding and whether it is committed."""
    return [(b, b._sharding, b._committed) for b in client.live_arrays() if not b.is_deleted()]


def layout(buffer: Buffer) -> Any:
    """How the elements of each piece lie in memory, as jaxlib's `PjRtLayout`."""
    return buffer._pjrt_layout


def with_sharding(buffer: Buffer, aval: Any, sharding: Any) -> Buffer:
    """Give the same data under another aval and sharding that mean the same pieces on the same devices."""
    return buffer._rewrap_with_aval_and_sharding(aval, sharding)


def replica(buffer: Buffer) -> Buffer:
    """Give the single-device buffer of one of the devices that hold all of an array; nothing is copied."""
    return buffer._fully_replicated_shard()


def shards(buffer: Buffer) -> list[Buffer]:
    """List this process's single-device buffers of an array, in its sharding's order; nothing is copied.

    jaxlib looks for jax once per shard on the way, and imports it where it is installed. Where it is not, the search
    through all folders of `sys.path` is cut short.
    """
    if "jax" in sys.modules or _is_installed("jax"):
        return buffer._arrays
    sys.meta_path.insert(0, _NoJax)
    try:
        return buffer._arrays
    finally:
        sys.meta_path.remove(_NoJax)


@functools.cache
def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


class _NoJax:
    """An import hook that knows at once what a search would find out."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "jax":
            raise ModuleNotFoundError("No module named 'jax'", name=name)


def to_host(buffer: Buffer) -> np.ndarray:
    """Give the values of a single-device buffer as a read-only NumPy array, waiting for them.

    On the CPU the array shares the buffer's memory where NumPy knows the element type; it stays valid after the
    buffer is deleted.

    Args:
      buffer: an array on one device.

    Returns:
      The values.
    """
    try:
        value = np.asarray(memoryview(buffer))
    except BufferError:
        block_until_ready([buffer])  # Tells a failed computation apart from memory that NumPy cannot read.
        value = _beyond_buffer_protocol(buffer)
    raise_late_failure()
    value.flags.writeable = False
    return value


def _beyond_buffer_protocol(buffer: Buffer) -> np.ndarray:
    """Read what the buffer protocol does not know: the types of ml_dtypes, and other memories than the host's."""
    aval = buffer.aval
    # A piece of a larger array has no abstract value where jax is not installed; jaxlib's conversion needs neither.
    dtype = np.dtype(np.bool_) if aval is None else np.dtype(aval.dtype)
    if "jax" in sys.modules or dtype not in _WHOLE_BYTES or buffer.platform() != "cpu" or not aval.size:
        try:
            return buffer._single_device_array_to_np_array_did_copy()[0]
        except XlaRuntimeError as error:
            raise refusal(error) from None
    # jaxlib's own conversion imports jax where it is installed, which costs a third of a second.
    capsule = to_dlpack(buffer)
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    address, size = tensor.data + tensor.byte_offset, aval.size * dtype.itemsize
    return _at_address(address, size, dtype, owner=capsule).reshape(aval.shape)


class _DLTensor(ctypes.Structure):
    """The head of a DLPack tensor, as its specification lays it out."""

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

# The element types of ml_dtypes that DLPack and NumPy hold alike; XLA packs the narrower ones.
_WHOLE_BYTES = {np.dtype(t) for t in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)}


def copy_to_devices(
    buffers: Sequence[Buffer], shardings: Sequence[Any], *, semantics: Any = CopySemantics.REUSE_INPUT
) -> list[Buffer]:
    """Copy arrays piece by piece to other devices: the first piece to the first device of the new sharding, and so on.

    Args:
      buffers: the arrays.
      shardings: one per array, over as many devices as the array has, with the same pieces in the same order.
      semantics: `CopySemantics.REUSE_INPUT` shares a piece that is there already, `ALWAYS_COPY` does not,
        `DONATE_INPUT` gives the input's memory up.

    Returns:
      One buffer per array.
    """
    lists = [sharding._internal_device_list for sharding in shardings]
    try:
        return _jax.batched_copy_array_to_devices_with_sharding(
            list(buffers), lists, list(shardings), [semantics] * len(lists)
        )
    except XlaRuntimeError as error:
        raise refusal(error) from None


def reorder_shards(buffer: Buffer, sharding: Any) -> Buffer:
    """Give the same pieces in another order of the same devices, as `sharding` has it; nothing is copied."""
    return _jax.reorder_shards(buffer, sharding, CopySemantics.REUSE_INPUT)


def delete(buffer: Buffer) -> None:
    """Free an array's memory now; values already read stay valid, every other use is an error."""
    buffer.delete()


def is_deleted(buffer: Buffer) -> bool:
    """Whether the memory was given up, by `delete` or by donation."""
    return buffer.is_deleted()


def is_ready(buffer: Buffer) -> bool:
    """Whether the values are there already, so that reading them would not wait."""
    return buffer.is_ready()


def block_until_ready(buffers: Sequence[Buffer]) -> None:
    """Wait until all arrays have their values, and raise what went wrong on the way to them."""
    try:
        _jax.batched_block_until_ready(buffers)
    except XlaRuntimeError as error:
        raise user_error(error) from None
    raise_late_failure()


def copy_to_host_async(buffer: Buffer) -> None:
    """Start bringing a single-device buffer to the host, so that `to_host` waits less; on the CPU it is there."""
    if buffer.platform() != "cpu":
        buffer._copy_single_device_array_to_host_async()


def to_dlpack(buffer: Buffer, stream: int | None = None) -> Any:
    """Give a single-device buffer as a DLPack capsule that shares its memory.

    Args:
      buffer: an array on one device.
      stream: the consumer's CUDA stream, which will wait for the values; None on the CPU.

    Returns:
      The capsule; it keeps the memory alive after the buffer is deleted.
    """
    # jaxlib aborts the process where a buffer is deleted that a capsule refers to. A clone is never deleted.
    return _jax.buffer_to_dlpack_managed_tensor(buffer.clone(), stream=stream)


def dlpack_device(device: Device) -> tuple[int, int]:
    """Give a device's kind and number as DLPack has them: (1, 0) for any CPU device, (2, n) for the n-th GPU."""
    if device.platform == "cpu":
        return _DLPACK_CPU, 0
    return _DLPACK_CUDA, device.local_hardware_id


def from_dlpack(source: Any, aval: Any, sharding: Any, device: Device, *, copy: bool | None = None) -> Buffer:
    """Take an array of another library through the DLPack protocol.

    Args:
      source: an object with `__dlpack__` and `__dlpack_device__`, on `device`.
      aval: its shape and dtype.
      sharding: the single-device sharding of the result.
      device: the device that holds it.
      copy: True copies, None shares the memory where that can be done.

    Returns:
      The buffer.
    """
    if device.platform == "cpu":
        # Through NumPy: jaxlib's own way in imports jax where it is installed.
        return put_array(np.from_dlpack(source), aval, sharding, device, may_alias=copy is not True)
    stream = device.get_stream_for_external_ready_events()
    capsule = source.__dlpack__(stream=stream)
    buffer = _jax.dlpack_managed_tensor_to_buffer(capsule, device, stream, copy)
    return with_sharding(buffer, aval, sharding)
