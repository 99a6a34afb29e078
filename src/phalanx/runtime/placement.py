"""Placement: how values get onto devices, one array and one sharding at a time.

`put` takes host data or an array to a sharding; trees of them, conversions between processes and the traced form are in
`spmd.placement`, which builds on this file. `dispatch` uses it to bring arguments where a program wants them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of, host_scalar
from phalanx.core.config import state
from phalanx.engine import buffers, client
from phalanx.engine.seat import Seat
from phalanx.runtime.array import Array, ArrayType, deleted_error
from phalanx.runtime.array import placement as seat
from phalanx.runtime.layout import Format, Layout
from phalanx.runtime.lowering import physical_aval
from phalanx.runtime.memories import near
from phalanx.sharding import GSPMDSharding, NamedSharding, SingleDeviceSharding

# move(array, type): an array that is spread over devices, brought to another sharding.
mover = Seat(taken_by="phalanx.spmd.reshard")

_single: dict[Any, SingleDeviceSharding] = {}


def on_device(device: Any) -> SingleDeviceSharding:
    """The sharding that is one device."""
    try:
        return _single[device]
    except KeyError:
        return _single.setdefault(device, SingleDeviceSharding(device))


def everywhere(devices: Sequence[Any], shardings: Sequence[Any] = ()) -> Any:
    """The sharding that keeps all on each of these devices, over the mesh of one of the others where it is theirs."""
    if len(devices) == 1:
        return on_device(devices[0])
    named = next((s for s in shardings if isinstance(s, NamedSharding) and s._device_assignment == devices), None)
    return GSPMDSharding.replicated(devices) if named is None else near(named.replicated)


def default_sharding() -> SingleDeviceSharding:
    """Where uncommitted values go."""
    chosen = state.context.default_device
    if chosen is None or isinstance(chosen, str):
        chosen = client.local_devices(backend=chosen)[0]
    return on_device(chosen)


def single_device_type(aval: ShapedArray, device: Any) -> ArrayType:
    """The type of a committed array on one device."""
    return ArrayType(aval, on_device(device), True)


def put(x: Any, sharding: Any = None, aval: ShapedArray | None = None, committed: bool | None = None) -> Array:
    """Place a value: an array (itself, where it is there already), NumPy data or a Python scalar.

    Args:
      x: the value.
      sharding: where to; the default device, uncommitted, when left out.
      aval: the type it is to have, when that is not its own.
      committed: whether the placement counts as asked for; by default exactly when `sharding` is given.
    """
    if committed is None:
        committed = sharding is not None
    if sharding is None:
        sharding = default_sharding()
    if type(x) is Array:
        return move(x, sharding, committed)
    return put_as(x, ArrayType(aval or aval_of(x), sharding, committed))


def put_as(x: Any, type: ArrayType) -> Array:
    """Place a value whose type is known already; host data in a buffer of its own, which may be given up."""
    if x.__class__ is Array:
        return move(x, type.sharding, type.committed)
    return from_numpy(host_scalar(x, type.aval.dtype) if _is_scalar(x) else np.asarray(x), type)


def lend_as(x: Any, type: ArrayType) -> Array:
    """As `put_as`, for a call that only reads it: a scalar may be the array that it became before."""
    return scalar_array(x, type) if _is_scalar(x) else put_as(x, type)


def from_numpy(x: np.ndarray, type: ArrayType) -> Array:
    """An array of the given type from host data, each device getting its own slice only."""
    return placing(type)(x)


@functools.lru_cache(maxsize=4096)
def placing(type: ArrayType, lent: bool = False) -> Callable[[np.ndarray], Array]:
    """What `from_numpy` does for one type, with all that does not depend on the data found out.

    Devices may share the memory of data that is `lent`; nobody may then write to it again.
    """
    aval, sharding, committed = physical_aval(type.aval), type.sharding, type.committed
    if sharding.num_devices == 1:
        (device,) = sharding.device_set

        def place(x: np.ndarray) -> Array:
            x = x if x.dtype == aval.dtype else x.astype(aval.dtype)
            return Array(buffers.put_array(x, aval, sharding, device, committed=committed, may_alias=lent), type)

        return place
    places = sharding.addressable_devices_indices_map(aval.shape)
    devices, indices = list(places), list(places.values())
    put = functools.partial(buffers.put_shards, aval, sharding, devices=devices, committed=committed)
    is_in_runs = aval.size > 0 and sharding.runs(aval.shape) is not None
    shares = is_in_runs and not lent and _is_worth_sharing(aval, sharding)

    def place_pieces(x: np.ndarray) -> Array:
        if shares:
            own = buffers.aligned(aval.shape, aval.dtype)
            own[...] = x
            x = own
        elif x.dtype != aval.dtype:
            x = x.astype(aval.dtype)
        apart = is_in_runs and x.flags.c_contiguous
        return Array(put([x[index] for index in indices], may_alias=shares or lent, apart=apart), type)

    return place_pieces


def _is_worth_sharing(aval: ShapedArray, sharding: Any) -> bool:
    """Whether devices had better hold parts of one copy of host data, which is then one array when it is read back."""
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
_scalars: dict[tuple, Array] = {}
_MAX_SCALARS = 4096


def _is_scalar(x: Any) -> bool:
    return x.__class__ in HOST_SCALARS or (not isinstance(x, (np.ndarray, Array)) and np.ndim(x) == 0)


def scalar_array(x: Any, type: ArrayType | None = None) -> Any:
    """A scalar as the array that it became before, since programs use the same few again and again.

    Without a type it is of its own, on the default device; what is no scalar is then given back as it is. Nobody may
    give up or hold what this gives, for it is not theirs.
    """
    if type is None and x.__class__ not in HOST_SCALARS and not isinstance(x, np.generic):
        return x
    # Zeros of both signs are equal, in complex numbers too; their texts differ.
    key = (x.__class__, repr(x) if not x or isinstance(x, _COMPLEX) else x, type or state.context)
    found = _scalars.get(key)
    if found is None or found._buffer.is_deleted():
        if len(_scalars) >= _MAX_SCALARS:
            _scalars.clear()
        type = type or ArrayType(aval_of(x), default_sharding())
        found = _scalars[key] = from_numpy(host_scalar(x, type.aval.dtype), type)
    return found


def move(x: Array, sharding: Any, committed: bool) -> Array:
    """An array under another sharding; no copy where the buffers are already right."""
    held = x._type
    wanted = ArrayType(held.aval, sharding, committed)
    if held is wanted:
        return x
    if x._buffer.is_deleted():
        raise deleted_error(x)
    aval = physical_aval(held.aval)
    if held.sharding == sharding or held.sharding.is_equivalent_to(sharding, aval.ndim):
        return Array(buffers.with_sharding(x._buffer, aval, sharding), wanted)
    if len(held.sharding.device_set) == 1 and len(sharding.device_set) == 1:
        return Array(buffers.copy_to_devices([x._buffer], [sharding])[0], wanted)
    return resharding(x, wanted)


def resharding(x: Array, wanted: ArrayType) -> Array:
    """The general move: from one set of pieces to another."""
    if wanted.sharding.is_fully_replicated and len(x._type.sharding.device_set) == 1:
        aval = physical_aval(wanted.aval)
        devices = list(wanted.sharding.addressable_devices_indices_map(aval.shape))
        targets = [on_device(d) for d in devices]
        copies = buffers.copy_to_devices([x._buffer] * len(targets), targets)
        return Array(buffers.from_shards(aval, wanted.sharding, copies, wanted.committed), wanted)
    return mover.move(x, wanted)


def from_host(value: np.ndarray, weak_type: bool = False, keys: dtypes.KeyDtype | None = None) -> Array:
    """The array that a pickle or a copy of host data stands for; with `keys`, of random keys with these words."""
    if keys is not None:
        shape = value.shape[: value.ndim - len(keys.key_shape)]
        return put(value, aval=ShapedArray(shape, keys))
    return put(value, aval=aval_of(value).update(weak_type=weak_type))


def copy(x: Array) -> Array:
    """A new array with the same value and placement in buffers of its own."""
    (copied,) = buffers.copy_to_devices([x._live()], [x.sharding], semantics=buffers.CopySemantics.ALWAYS_COPY)
    return Array(copied, x._type)


def format_of(buffer: Any, sharding: Any) -> Format:
    """How and where a buffer lies."""
    return Format(Layout.of_engine(buffers.layout(buffer)), sharding)


seat.take(format_of=format_of, single_device_type=single_device_type, from_host=from_host, copy=copy)
