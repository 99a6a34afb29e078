"""Transfers: moving host data and arrays to devices and shardings, one array at a time.

`spmd.device_put` extends it to pytrees, several processes and traced values; calls of compiled programs transfer their
arguments with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ShapedArray, current_scope, dtypes, get_aval, host_scalar, physical_aval, unwrap_array_like
from phalanx.engine import Cache, api_boundary, buffers, client, memoize
from phalanx.runtime.array import (
    Array,
    ArrayType,
    copy_array as copy_array,
    deleted_error,
    general_transfers as general_transfers,
    single_device_sharding as single_device_sharding,
    wrap_buffer as wrap_buffer,
)
from phalanx.runtime.layout import Layout
from phalanx.runtime.memory_kinds import to_default_memory
from phalanx.sharding import GSPMDSharding, NamedSharding, PartitionSpec, SingleDeviceSharding, get_placement_mesh


def replicated_sharding(devices: Sequence[Any], shardings: Sequence[Any] = ()) -> Any:
    """The sharding that replicates an array on all these devices, over the mesh of one of `shardings` if that fits."""
    if len(devices) == 1:
        return single_device_sharding(devices[0])
    named = next((s for s in shardings if isinstance(s, NamedSharding) and s._device_assignment == devices), None)
    return GSPMDSharding.replicated(devices) if named is None else to_default_memory(named.replicated)


def default_sharding() -> SingleDeviceSharding:
    """The sharding of uncommitted values."""
    chosen = current_scope().context.default_device
    if chosen is None or isinstance(chosen, str):
        chosen = client.local_devices(backend=chosen)[0]
    return single_device_sharding(chosen)


def default_placement() -> tuple[Any, bool]:
    """The sharding of values that an operation creates or reads from the host, and whether they are committed to it."""
    mesh = get_placement_mesh()
    return (default_sharding(), False) if mesh is None else (NamedSharding(mesh, PartitionSpec()), True)


def put(x: Any, sharding: Any = None, aval: ShapedArray | None = None, committed: bool | None = None) -> Array:
    """Transfer a value: an array (unchanged if its sharding is right), NumPy data or a Python scalar.

    Args:
      x: the value.
      sharding: the target; the default device if left out.
      aval: the type of the result, if it is not that of the value.
      committed: whether the result is committed to its devices; by default, whether `sharding` is given.
    """
    if committed is None:
        committed = sharding is not None
    if sharding is None:
        sharding = default_sharding()
    return put_typed(x, ArrayType(aval or get_aval(x), sharding, committed))


def put_typed(x: Any, type: ArrayType) -> Array:
    """Transfer a value whose type is known; host data gets a new buffer, which may be donated."""
    if x.__class__ is Array:
        return move(x, type.sharding, type.committed, type.layout)
    if _is_scalar(x):
        return from_numpy(host_scalar(x, type.aval.dtype), type)
    if isinstance(x, np.ndarray) or (array := unwrap_array_like(x)) is x:
        return from_numpy(np.asarray(x), type)
    return put_typed(array, type)


def put_shared(x: Any, type: ArrayType) -> Array:
    """As `put_typed`, for a call that only reads the value: a scalar may become a cached array."""
    return scalar_array(x, type) if _is_scalar(x) else put_typed(x, type)


def from_numpy(x: np.ndarray, type: ArrayType, lent: bool = False) -> Array:
    """An array of the given type from host data, which may be lent; each device receives only its shard."""
    return wrap_buffer(make_host_sender(type, lent)(x), type)


@memoize("runtime.host_senders", 4096)
def make_host_sender(type: ArrayType, lent: bool = False) -> Callable[[np.ndarray], buffers.Buffer]:
    """Prepare the transfer of host data to buffers of one type: only what depends on the data is left for each call.

    With `lent`, devices may share the memory of the data, which must not be written to again.
    """
    aval, sharding, committed = type.buffer_aval, type.sharding, type.committed
    dtype = aval.dtype
    if type.layout is not None:
        plain = ArrayType(type.aval, sharding, committed)
        rows = make_host_sender(plain, lent)
        return lambda x: general_transfers.lay_out(wrap_buffer(rows(x), plain), type.layout)._buffer
    # The common case has its own function without loops: it runs for each scalar and host argument.
    if sharding.num_devices == 1 and sharding.is_fully_addressable:
        (device,) = sharding.device_set

        def send(x: np.ndarray) -> buffers.Buffer:
            x = x if x.dtype == dtype else x.astype(dtype)
            return buffers.put_array(x, aval, sharding, device, committed, lent)

        return send
    if sharding.unreduced_over:
        values = ArrayType(type.aval, sharding.summed, committed)
        return lambda x: reshard(wrap_buffer(make_host_sender(values, lent)(x), values), type)._buffer
    devices = sharding._addressable_device_assignment
    put = functools.partial(buffers.put_shards, aval, sharding, devices=devices, committed=committed)
    runs = _runs(aval, sharding)
    shares = runs is not None and not lent and _is_worth_sharing(aval, sharding)
    is_padded = aval.shape != physical_aval(type.aval).shape

    def send_pieces(x: np.ndarray) -> buffers.Buffer:
        if is_padded:
            x = pad_to(x, aval.shape)
        if shares:
            own = buffers.aligned(aval.shape, dtype)
            own[...] = x
            x = own
        elif x.dtype != dtype:
            x = x.astype(dtype)
        if runs is None or not x.flags.c_contiguous:
            pieces = [x[shard.index] for shard in sharding.addressable_shards(aval.shape)]
            return put(pieces, may_alias=shares or lent)
        rows = x.reshape(sharding.num_devices, *sharding.shard_shape(aval.shape))
        return put([rows[run] for run in runs], may_alias=shares or lent, apart=True)

    return send_pieces


def _runs(aval: ShapedArray, sharding: Any) -> list[int] | None:
    """For each device of this process, the number of its shard in the row-major array; None if not all are contiguous.

    Slices need not be computed then, which takes most of the time of the first transfer to hundreds of devices.
    """
    order = sharding.contiguous_order(aval.shape) if aval.size > 0 else None
    if order is None:
        return None
    local, runs = sharding.addressable_devices, np.argsort(order).tolist()
    return [run for run, device in zip(runs, sharding._device_assignment, strict=True) if device in local]


def pad_to(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Host data padded with zeros at the end of each dimension; the same data if they have that shape."""
    if x.shape == tuple(shape):
        return x
    return np.pad(x, [(0, padded - size) for padded, size in zip(shape, x.shape, strict=True)])


def _is_worth_sharing(aval: ShapedArray, sharding: Any) -> bool:
    """Whether sharing one copy of host data among devices pays: reading it back then takes no assembly."""
    size = aval.size * aval.dtype.itemsize // sharding.num_devices
    return (
        size >= buffers.WORTH_SHARING
        and size % buffers.ALIGNMENT == 0
        and sharding.is_fully_addressable
        and sharding._device_assignment[0].platform == "cpu"
    )


HOST_SCALARS = frozenset(
    {int, float, complex, bool, np.float32, np.int32, np.bool_, np.float64, np.int64, np.complex64}
)
_COMPLEX = (complex, np.complexfloating)
_scalars: Cache[tuple, Array] = Cache("runtime.scalar_arrays", 4096)


def _is_scalar(x: Any) -> bool:
    return x.__class__ in HOST_SCALARS or isinstance(x, (np.generic, int, float, complex))


def scalar_array(x: Any, type: ArrayType | None = None) -> Any:
    """A scalar as a cached array, since programs use the same few scalars again and again.

    Without a type, the array is on the default device, and a value that is not a scalar is returned unchanged. The
    array belongs to the cache: it must not be donated or deleted.
    """
    if type is None and x.__class__ not in HOST_SCALARS and not isinstance(x, np.generic):
        return x
    # 0.0 == -0.0, also in complex numbers, but their texts differ.
    key = (x.__class__, repr(x) if not x or isinstance(x, _COMPLEX) else x, type or current_scope().context)
    found = _scalars.get(key)
    if found is None or found._buffer.is_deleted():
        type = type or ArrayType(get_aval(x), default_sharding())
        found = _scalars[key] = from_numpy(host_scalar(x, type.aval.dtype), type)
    return found


def scalar_buffer_ids() -> set[int]:
    """The ids of the buffers of cached scalars."""
    return {id(x._buffer) for x in _scalars.values()}


def move(x: Array, sharding: Any, committed: bool, layout: Layout | None = None) -> Array:
    """An array under another sharding; buffers are shared if they are in the right place already."""
    held = x._type
    wanted = ArrayType(held.aval, sharding, committed, layout)
    # Array types are interned, so that one comparison by address covers shape, dtype, sharding and commitment.
    if held is wanted:
        return x
    if buffers.is_deleted(x._buffer):
        raise deleted_error(x)
    if held.layout is not None or layout is not None:
        rows = move(general_transfers.lay_out(x, None), sharding, committed)
        return general_transfers.lay_out(rows, layout)
    if held.sharding == sharding or held.sharding.is_equivalent_to(sharding, physical_aval(held.aval).ndim):
        return wrap_buffer(buffers.with_sharding(x._share(), wanted.buffer_aval, sharding), wanted)
    if len(held.sharding.device_set) == 1 and len(sharding.device_set) == 1 and sharding.is_fully_addressable:
        return wrap_buffer(buffers.copy_to_devices([x._share()], [sharding])[0], wanted)
    return reshard(x, wanted)


def reshard(x: Array, wanted: ArrayType) -> Array:
    """The general transfer, from one set of shards to another."""
    if wanted.sharding.is_fully_replicated and len(x._type.sharding.device_set) == 1:
        aval = physical_aval(wanted.aval)
        targets = [single_device_sharding(d) for d in wanted.sharding.addressable_devices_indices_map(aval.shape)]
        copies = buffers.copy_to_devices([x._share()] * len(targets), targets)
        return wrap_buffer(buffers.from_shards(aval, wanted.sharding, copies, wanted.committed), wanted)
    return general_transfers.move(x, wanted)


def from_host(value: np.ndarray, weak_type: bool = False, keys: dtypes.KeyDtype | None = None) -> Array:
    """Rebuild an array from pickled or copied host data; with `keys`, an array of random keys from its uint32 words."""
    if keys is None:
        return put(value, aval=get_aval(value).update(weak_type=weak_type))
    return put(value, aval=ShapedArray(value.shape[: value.ndim - len(keys.key_shape)], keys))


def _reduce(x: Array) -> tuple:
    if isinstance(x.dtype, dtypes.KeyDtype):
        return from_host, (x._assemble(), False, x.dtype)
    return from_host, (np.asarray(x._value), x.weak_type)


# Arrays pickle by their values. The method is set here, because the class is in a module that this one imports.
Array.__reduce__ = api_boundary(_reduce)  # type: ignore[method-assign]
