"""The array class, which is the same for one device and for many.

An `Array` is a buffer of the engine and an interned `ArrayType`: the abstract value, the sharding, and whether the user
chose the sharding. A compiled call therefore compares its arguments with earlier ones by address. The value on the host
is assembled from one replica, at most once, and kept.

The shards of a buffer have one size. If the sharding does not divide a dimension evenly, the buffer is padded at the
end of that dimension: `buffer_aval` is its type. Padding is added where a buffer is made (`transfer`,
`spmd.make_array`, the results of compiled programs) and removed where it is read (here, the start of such programs).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol, cast

import numpy as np
from numpy import asarray

from phalanx.core import (
    UNVARYING,
    ArgumentError,
    ArgumentTypeError,
    DeletedArrayError,
    DLPackError,
    ShapedArray,
    ShardingError,
    Tracer,
    dtypes,
    physical_aval,
)
from phalanx.core.array_operators import Operators
from phalanx.engine import (
    Cache,
    Device,
    Hook,
    XlaRuntimeError,
    buffer_deletion,
    buffers,
    client,
    explicit_transfer,
    memoize,
    traceback_filtering,
    unwrap_callback_error,
)
from phalanx.engine.interruptible_wait import interrupters
from phalanx.engine.pytree import flatten
from phalanx.engine.runtime_errors import late_failures
from phalanx.runtime import in_flight
from phalanx.runtime.layout import Format, Layout
from phalanx.sharding import SingleDeviceSharding
from phalanx.tree import tree_leaves

# A larger array is shown by its shape, without a transfer from its devices.
_MAX_PRINTED_BYTES = 1 << 20


class GeneralTransfers(Protocol):
    """Transfers that `spmd` implements."""

    def move(self, x: Array, wanted: ArrayType) -> Array:
        """Reshard an array between several devices."""

    def put(self, values: Sequence[Any], shardings: Sequence[Any]) -> list[Array]:
        """Transfer values of any kind to shardings, as `device_put` does."""

    def resize(self, x: Array, shape: Sequence[int]) -> Array:
        """Cut an array on one device, or pad it with zeros, at the end of each dimension."""

    def lay_out(self, x: Array, layout: Layout | None) -> Array:
        """Copy an array into another memory layout, None for the default one, unless it has that."""


general_transfers = Hook[GeneralTransfers]("phalanx.spmd.array_resharding", "phalanx.spmd.device_put")
_types: Cache[tuple, ArrayType] = Cache("runtime.array_types", weak="values")
_find_reference = _types.get_reference


class ArrayType:
    """The properties of an argument on which a compiled call depends, interned.

    Args:
      aval: the abstract value.
      sharding: its sharding; None for data on the host.
      committed: whether the user chose the sharding, so that computations must stay on its devices.
      layout: the memory layout; None for the default one.

    `has_plain_buffer` says whether the engine's buffer is on one device and has the elements of the array.
    """

    __slots__ = ("__weakref__", "aval", "committed", "has_plain_buffer", "layout", "sharding")

    aval: ShapedArray
    has_plain_buffer: bool
    sharding: Any
    committed: bool
    layout: Layout | None

    def __new__(
        cls, aval: ShapedArray, sharding: Any, committed: bool = False, layout: Layout | None = None
    ) -> ArrayType:
        key = (aval, sharding, committed, layout)
        if (reference := _find_reference(key)) is not None and (found := reference()) is not None:
            return found
        return _types.get_or_make(key, lambda: cls._make(*key))

    @classmethod
    def _make(cls, aval: ShapedArray, sharding: Any, committed: bool, layout: Layout | None) -> ArrayType:
        # Over Explicit axes, the sharding in the abstract value is the one that the array has.
        in_type = aval.type_sharding if sharding is None else sharding.type_sharding(aval.ndim)
        if in_type is not aval.type_sharding:
            return cls(aval.update(sharding=in_type), sharding, committed, layout)
        self = object.__new__(cls)
        self.aval, self.sharding, self.committed, self.layout = aval, sharding, committed, layout
        is_number = not isinstance(aval.dtype, dtypes.KeyDtype) and aval.dtype != dtypes.float0
        self.has_plain_buffer = is_number and sharding is not None and sharding.num_devices == 1
        return self

    @property
    def buffer_aval(self) -> ShapedArray:
        """The type of the engine's buffer."""
        return buffer_aval(self.aval, self.sharding)

    def __repr__(self) -> str:
        return f"ArrayType({self.aval.str_short()}, {self.sharding}{', committed' if self.committed else ''})"


def buffer_aval(aval: ShapedArray, sharding: Any) -> ShapedArray:
    """The type of the buffer of an array: random keys as words, and padded where shards would differ in size."""
    physical = physical_aval(aval)
    shape = sharding.padded_shape(physical.shape)
    return aval if physical is aval and shape == aval.shape else BufferAval.of(shape, physical.dtype, aval)


class BufferAval(ShapedArray):
    """The type of a buffer that is not that of its array, which it names, so that a buffer can be read as the array."""

    __slots__ = ("array_aval",)
    array_aval: ShapedArray

    @classmethod
    def of(cls, shape: tuple[int, ...], dtype: Any, array_aval: ShapedArray) -> BufferAval:
        """The type of the buffer of an array of type `array_aval`."""
        self = cast(BufferAval, cls._make(shape, dtype, False, None, UNVARYING))
        self.array_aval = array_aval
        return self


# Stands for the value of an array that NumPy may read from its buffer. NumPy waits for the result, and makes an array
# of one object of a failed one. But jaxlib ends the process where the memory of a result could not be allocated. So
# only the results of programs whose results are all small are read like this.
IN_PLACE: Any = object()
_MAX_IN_PLACE_BYTES = 1 << 16
_UNREADABLE = np.empty((), object)


def initial_host_value(types: Sequence[ArrayType]) -> Any:
    """The value of `Array._host` for new results of a program: `IN_PLACE` or None.

    Args:
      types: the types of all results of the program.
    """
    is_readable = all(t.has_plain_buffer and t.aval.dtype.isbuiltin == 1 for t in types)
    if not is_readable or interrupters or any(t.sharding._device_assignment[0].platform != "cpu" for t in types):
        return None
    return IN_PLACE if sum([t.aval.size * t.aval.dtype.itemsize for t in types]) <= _MAX_IN_PLACE_BYTES else None


class _ArrayMeta(type):
    """Makes tracers pass `isinstance(x, Array)`, so that type checks in user code work inside transformations."""

    def __instancecheck__(cls, x: Any) -> bool:
        return type(x) is cls or isinstance(x, Tracer)


class Shard:
    """The part of an array on one device.

    Args:
      device: the device.
      index: the position in the array, as a tuple of slices.
      replica_id: the number of this copy of the elements, counted from 0.
      data: the shard as an array on that device; None if the device belongs to another process.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> shard = jnp.arange(3.0).addressable_shards[0]
      >>> shard.index, shard.replica_id, shard.data.tolist()
      ((slice(None, None, None),), 0, [0.0, 1.0, 2.0])
    """

    __slots__ = ("data", "device", "index", "replica_id")

    def __init__(self, device: Any, index: tuple, replica_id: int, data: Any):
        self.device, self.index, self.replica_id, self.data = device, index, replica_id, data

    def __repr__(self) -> str:
        return f"Shard(device={self.device}, index={self.index}, replica_id={self.replica_id})"


class Array(Operators, metaclass=_ArrayMeta):
    """An array on one device, or sharded over several.

    Arrays are made by functions (`phalanx.numpy.asarray`, `phalanx.device_put`, any operation), not with this class.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> x = jnp.arange(3.0)
      >>> x.shape, x.dtype.name, bool(x.is_fully_replicated)
      ((3,), 'float32', True)
    """

    # No `__init__`, since a call of one would take half of the time of making an array: see `wrap_buffer`.
    __slots__ = ("__weakref__", "_buffer", "_host", "_is_read_in_place", "_shards", "_type")
    _buffer: Any  # the engine's buffer
    _type: ArrayType
    _host: Any  # the value, once it was read; None or `IN_PLACE` before
    _is_read_in_place: bool  # set when NumPy first reads the buffer

    # `attrgetter` runs in C, which halves the time of these hot properties.
    aval = property(attrgetter("_type.aval"))
    shape = property(attrgetter("_type.aval.shape"))
    dtype = property(attrgetter("_type.aval.dtype"))
    ndim = property(attrgetter("_type.aval.ndim"))
    size = property(attrgetter("_type.aval.size"))
    weak_type = property(attrgetter("_type.aval.weak_type"))
    sharding = property(attrgetter("_type.sharding"))
    committed = property(attrgetter("_type.committed"))
    itemsize = property(lambda self: self._type.aval.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.dtype.itemsize)
    is_fully_replicated = property(lambda self: self._type.sharding.is_fully_replicated)
    is_fully_addressable = property(lambda self: self._type.sharding.is_fully_addressable)

    # Placement

    def devices(self) -> set:
        """The devices that hold shards of this array.

        Returns:
          A set of device objects.
        """
        return set(self.sharding.device_set)

    @property
    def device(self) -> Any:
        """The device that holds this array, or its sharding if there are several devices."""
        devices = self.sharding.device_set
        return next(iter(devices)) if len(devices) == 1 else self.sharding

    @property
    def addressable_shards(self) -> list[Shard]:
        """The shards on this process's devices; their arrays share memory with this one, unless they are padded in it.

        Where a dimension is not split evenly, the last shards are smaller, or empty.
        """
        self._live()
        if hasattr(self, "_shards"):
            return [*self._shards]
        buffer = self._share()
        here = self.sharding.addressable_shards(self.shape)
        aval = self.aval.with_shape(self.sharding.shard_shape(self.shape))
        self._shards = []
        for s, piece in zip(here, buffers.shards(buffer, exposed=True), strict=True):
            shard = wrap_buffer(piece, ArrayType(aval, single_device_sharding(s.device), True, self._type.layout))
            data = shard if s.shape == aval.shape else general_transfers.resize(shard, s.shape)
            self._shards.append(Shard(s.device, s.index, s.replica_id, data))
        return [*self._shards]

    @property
    def global_shards(self) -> list[Shard]:
        """All shards; those on devices of other processes have no data."""
        here = {shard.device: shard for shard in self.addressable_shards}
        return [
            here.get(s.device) or Shard(s.device, s.index, s.replica_id, None) for s in self.sharding.shards(self.shape)
        ]

    def addressable_data(self, index: int) -> Array:
        """The shard on this process's device number `index`.

        Args:
          index: the number among this process's devices, from 0.

        Returns:
          An array on that device.
        """
        return self.addressable_shards[index].data

    @property
    def format(self) -> Any:
        """The memory layout and the sharding, as a `Format`."""
        return Format(Layout.of_engine(buffers.layout(self._live())), self.sharding)

    # Lifetime

    def _live(self) -> Any:
        buffer = self._buffer  # Read once, since a deletion in another thread may replace it.
        if buffers.is_deleted(buffer):
            raise deleted_error(self)
        return buffer

    def delete(self) -> None:
        """Free the buffers now; using the array afterwards is an error."""
        # While jaxlib makes a view of a buffer, deleting the buffer ends the process. So a small one, which other
        # threads may read in place, is left to them.
        may_be_read = self._host is IN_PLACE or hasattr(self, "_is_read_in_place")
        if (may_be_read and not client.is_forked()) or not _delete(self):
            self._give_up()
        self._host = None
        if hasattr(self, "_shards"):
            del self._shards

    def _share(self) -> Any:
        """The buffer, for another array of the same memory, whose deletion does not see reads in place of this one."""
        if self._host is IN_PLACE:
            self._host = None
        return self._buffer

    def _give_up(self) -> None:
        """Make this array unusable, but leave its buffers to the arrays and readers that have them."""
        self._buffer = _dead_buffer()

    def is_deleted(self) -> bool:
        """Whether the buffers were freed or donated.

        Returns:
          A bool.
        """
        return buffers.is_deleted(self._buffer)

    def is_ready(self) -> bool:
        """Whether the value has been computed.

        Returns:
          A bool.
        """
        return self._live().is_ready()

    def block_until_ready(self) -> Array:
        """Wait until the value has been computed.

        Returns:
          This array.
        """
        buffers.block_until_ready([self._live()])
        return self

    def on_device_size_in_bytes(self) -> int:
        """The memory in bytes that this array takes on its devices, summed over devices.

        Returns:
          The number of bytes.
        """
        return self._live().on_device_size_in_bytes()

    def unsafe_buffer_pointer(self) -> int:
        """The memory address of an array on one device.

        Returns:
          The address; it is valid as long as the array is.
        """
        return self._live().unsafe_buffer_pointer()

    # Host values

    def copy_to_host_async(self) -> None:
        """Start copying the value to the host, so that a later read does not wait for the transfer."""
        for piece in buffers.shards(self._live()):
            buffers.copy_to_host_async(piece)

    @property
    def _value(self) -> np.ndarray:
        """The value on the host: assembled from one replica, kept, read-only."""
        host = self._host
        return self._read() if host is None or host is IN_PLACE else host

    def _read(self) -> np.ndarray:
        """Read the value, and keep it."""
        if _ignored_interrupts:
            _raise_ignored_interrupt(self, 2)
        try:
            if self._type.has_plain_buffer:
                host = self._host = buffers.to_host(self._buffer)
                return host
            if isinstance(self.dtype, dtypes.KeyDtype):
                raise ArgumentTypeError(
                    "conversion to a NumPy array",
                    expected="an array of numbers",
                    got=f"random keys, {self.aval.str_short()}",
                    fix="convert phalanx.random.key_data(keys), the words of the keys",
                )
            if self.dtype == dtypes.float0:
                return np.zeros(self.shape, dtypes.float0)
            host = self._host = self._assemble()
        except XlaRuntimeError as error:
            self._live()  # jaxlib itself notices that a plain buffer was deleted.
            self._check_readable()
            raise unwrap_callback_error(error) from None
        return host

    @property
    def _is_readable(self) -> bool:
        """Whether this process has all shards of the array, or a replica of it."""
        sharding = self.sharding
        return sharding.is_fully_addressable or bool(sharding.is_fully_replicated and sharding.addressable_devices)

    def _check_readable(self) -> None:
        if not self._is_readable:
            raise ArgumentError(
                "conversion to a NumPy array",
                expected="an array whose shards are all on this process's devices",
                got=f"{self.aval.str_short()} with {self.sharding}",
                fix="gather it with multihost_utils.process_allgather, or read x.addressable_shards",
            )

    def _assemble(self) -> np.ndarray:
        buffer = self._live()
        sharding = self.sharding
        if sharding.num_devices == 1:
            return buffers.to_host(buffer)
        if sharding.unreduced_over:
            raise ShardingError(
                "conversion to a NumPy array",
                expected="an array that is not unreduced",
                got=f"{self.aval.str_short()} with {sharding}",
                fix="reshard it to a spec without unreduced axes: phalanx.reshard(x, P())",
            )
        self._check_readable()
        if sharding.is_fully_replicated:
            return buffers.to_host(buffers.replica(buffer))
        # One replica of each shard: reading all replicas would transfer the same data several times.
        padded = sharding.padded_shape(self.shape)
        pairs = zip(sharding.shards(padded), buffers.shards(buffer), strict=True)
        first = [(s.index, piece) for s, piece in pairs if s.replica_id == 0]
        # All transfers are started before the first is awaited, so that they overlap.
        for _, piece in first:
            buffers.copy_to_host_async(piece)
        parts = [buffers.to_host(piece) for _, piece in first]
        words = parts[0]  # An element of a key dtype is an array of words.
        shape = (*padded, *words.shape[self.ndim :])
        order = sharding.contiguous_order(padded) if words.nbytes >= buffers.WORTH_SHARING else None
        whole = None if order is None else buffers.side_by_side([parts[i] for i in order], shape)
        if whole is None:
            whole = np.empty(shape, words.dtype)
            for (index, _), part in zip(first, parts, strict=True):
                whole[index] = part
        if padded != self.shape:
            whole = np.ascontiguousarray(whole[tuple(map(slice, self.shape))])
        # The value is cached on the array, so a user who wrote to it would change later reads.
        whole.flags.writeable = False
        return whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        # A boundary of the API without the call of `api_boundary`, which takes a tenth of the time of a read.
        try:
            value = self._host
            if value is IN_PLACE:
                self._is_read_in_place = True
                try:
                    value = asarray(self._buffer)
                except Exception:
                    value = _UNREADABLE
                if value.base is None or late_failures:
                    value = self._read()
                else:
                    self._host = value
            elif value is None:
                value = self._read()
            if dtype is not None and value.dtype != dtype:
                if copy is False:
                    raise ArgumentError(
                        "conversion to a NumPy array, argument copy",
                        expected=f"None or True, since {value.dtype} becomes {np.dtype(dtype)}",
                        got="False",
                        fix="call numpy.asarray(x), which copies if it must",
                    )
                return value.astype(dtype)
            return value.copy() if copy else value
        except Exception as error:
            traceback_filtering.hide_frames(error)
            raise

    def item(self, *args: int) -> Any:
        """The only element as a Python scalar, or the element at a position.

        Args:
          *args: the position, as an index for each dimension or an index into the flattened array.

        Returns:
          A bool, an int, a float or a complex.
        """
        return self._value.item(*args)

    def tolist(self) -> Any:
        """The elements as nested lists of Python scalars.

        Returns:
          The lists; a scalar for an array of rank 0.
        """
        return self._value.tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The elements as bytes.

        Args:
          order: "C" for row-major order, "F" for column-major order.

        Returns:
          The bytes.
        """
        return self._value.tobytes(order)

    def __buffer__(self, flags: int) -> memoryview:
        """The elements on the host as a read-only buffer (from Python 3.12 on: `memoryview(x)`, `numpy.frombuffer`)."""
        try:
            return memoryview(self._value)  # type: ignore[arg-type]  # arrays of NumPy have it before 3.12, too
        except Exception:
            raise
        except BaseException as interrupt:
            # `numpy.asarray` ignores it and calls `__array__`, which must not wait again.
            self._host = None  # so that it calls `_read`
            _ignored_interrupts[:] = [(_call_of(self, 1), interrupt)]
            raise

    def clone(self) -> Array:
        """Another array object with the same buffers.

        Returns:
          The array.
        """
        self._live()
        return wrap_buffer(self._share(), self._type)

    def platform(self) -> str:
        """The name of the platform of its devices, such as "cpu".

        Returns:
          The name.
        """
        return str(next(iter(self.sharding.device_set)).platform)

    # The origin of an array is not recorded, since reading the stack would cost more than most operations.
    traceback = property(lambda self: None)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __int__(self) -> int:
        return self._scalar("int").__int__()

    def __float__(self) -> float:
        return self._scalar("float").__float__()

    def __complex__(self) -> complex:
        return self._scalar("complex").__complex__()

    def __index__(self) -> int:
        # As in NumPy: `__index__` of a float or of a one-element vector would hide mistakes.
        if self.ndim or self.dtype.kind not in "iu":
            raise TypeError(f"only integer arrays of rank 0 can be used as an index, got {self.aval.str_short()}")
        return int(self._value)

    def _scalar(self, kind: str) -> np.ndarray:
        if self.size != 1 or self.ndim:
            raise TypeError(f"only arrays of rank 0 can be converted to {kind}, got {self.aval.str_short()}")
        return self._value

    def __format__(self, spec: str) -> str:
        if isinstance(self.dtype, dtypes.KeyDtype) or not (spec or self._is_readable):
            return format(str(self), spec)
        return format(self._value[()] if self.ndim == 0 else self._value, spec)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        if len(self.sharding.device_set) > 1:
            raise DLPackError(
                "export through DLPack",
                expected="an array on one device",
                got=f"{self.aval.str_short()} with {self.sharding}",
                fix="export numpy.asarray(x), or a single shard, x.addressable_shards[i].data",
            )
        return buffers.to_dlpack((copy_array(self) if copy else self)._live(), stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return buffers.dlpack_device(next(iter(self.sharding.device_set)))

    def __hash__(self) -> int:
        raise TypeError("unhashable type: Array; use its value (x.item()) or its id")

    def __deepcopy__(self, memo: Any = None) -> Array:
        return copy_array(self)

    __copy__ = __deepcopy__

    def __repr__(self) -> str:
        if self.is_deleted():
            return f"Array({self.aval.str_short()}, deleted)"
        if not self._is_readable:
            return f"Array({self.aval.str_short()}, sharding={self.sharding})"
        if isinstance(self.dtype, dtypes.KeyDtype):
            return f"Array({self.shape}, dtype={self.dtype.name}) overlaying:\n{self._assemble()}"
        weak = ", weak_type=True" if self.weak_type else ""
        if self.sharding.unreduced_over:
            return f"Array(shape={self.shape}, dtype={self.dtype.name}{weak}, sharding={self.sharding})"
        shape = f"shape={self.shape}"
        if self.nbytes >= _MAX_PRINTED_BYTES:
            return f"Array({shape}, dtype={self.dtype.name}{weak})"
        body = np.array2string(self._value, prefix="Array(", suffix=",", separator=", ", threshold=1000)
        shape = "" if self.size else f", {shape}"
        last = f"dtype={self.dtype.name}{weak}"
        # As in JAX and NumPy, the dtype stands apart where it does not fit into the line.
        is_long = len(body) - body.rfind("\n") + len(last) + 3 > np.get_printoptions()["linewidth"]
        return f"Array({body}{shape},{' ' * (6 if is_long else 1)}{last})"

    def __str__(self) -> str:
        is_key = isinstance(self.dtype, dtypes.KeyDtype)
        if self.is_deleted() or not self._is_readable or is_key or self.sharding.unreduced_over:
            return repr(self)
        return str(self._value)


traceback_filtering.mark_api_boundary(vars(Array)["__array__"])
traceback_filtering.guard_methods(
    Array,
    "__bool__ __int__ __float__ __complex__ __index__ __format__ __repr__ __str__ item tolist tobytes "
    "__hash__ __copy__ __deepcopy__ __dlpack__ block_until_ready copy_to_host_async addressable_data "
    "addressable_shards global_shards format unsafe_buffer_pointer is_ready on_device_size_in_bytes",
)


def _call_of(array: Array, depth: int) -> tuple[int, ...]:
    """The identity of an array, and of the call `depth` frames above the caller."""
    frame = sys._getframe(depth + 1)
    return id(array), id(frame), frame.f_lasti


_ignored_interrupts: list[tuple[tuple[int, ...], BaseException]] = []  # at most one


def _raise_ignored_interrupt(array: Array, depth: int) -> None:
    """Raise the exception of Ctrl-C that `__buffer__` has raised in the same call, which goes on."""
    call, interrupt = _ignored_interrupts.pop()
    if call == _call_of(array, depth + 1):
        raise interrupt


def wrap_buffer(buffer: Any, type: ArrayType) -> Array:
    """Make the array of a buffer of the engine. The hottest paths do the same without this function.

    Args:
      buffer: the buffer.
      type: the shape, dtype and sharding, and whether the user chose the sharding.

    Returns:
      The array.
    """
    array = Array()
    array._buffer = buffer
    array._type = type
    array._host = None
    return array


@memoize("runtime.single_device_shardings", 65536)
def single_device_sharding(device: Device) -> SingleDeviceSharding:
    """The sharding of an array on one device."""
    return SingleDeviceSharding(device)


def copy_array(x: Array) -> Array:
    """A new array with the same value and sharding, in new buffers."""
    if (layout := x._type.layout) is not None:  # The engine's copy may have the default layout.
        return general_transfers.lay_out(general_transfers.lay_out(x, None), layout)
    always = buffers.CopySemantics.ALWAYS_COPY
    if x.is_fully_addressable:
        (copied,) = buffers.copy_to_devices([x._live()], [x.sharding], semantics=always)
        return wrap_buffer(copied, x._type)
    # jaxlib copies an array over several processes in the first of them only.
    own = buffers.shards(x._live())
    places = [single_device_sharding(d) for d in x.sharding._addressable_device_assignment]
    copies = buffers.copy_to_devices(own, places, semantics=always)
    return wrap_buffer(buffers.from_shards(x._type.buffer_aval, x.sharding, copies, x.committed), x._type)


@in_flight.in_turn
def _delete(array: Array) -> bool:
    buffer = array._buffer
    return buffer_deletion.delete(buffers.with_sharding(buffer, array._type.buffer_aval, array.sharding))


@memoize("runtime.dead_buffer", 1)
def _dead_buffer() -> buffers.Buffer:
    device = client.local_devices()[0]
    aval, sharding = ShapedArray((), np.dtype(bool)), single_device_sharding(device)
    with explicit_transfer():
        dead = buffers.put_array(np.zeros((), bool), aval, sharding, device)
    # Through another one of the same memory: jaxlib ends the process where it clones one that was deleted itself.
    buffers.with_sharding(dead, aval, sharding).delete()
    return dead


def deleted_error(array: Array, where: str = "use of an array") -> DeletedArrayError:
    """Build the error for the use of an array that was deleted or donated."""
    return DeletedArrayError(
        where,
        expected="an array with live buffers",
        got=f"{array.aval.str_short()}, deleted or donated",
        fix="use the result of the call to which it was donated, or remove the argument from donate_argnums",
    )


def donated_twice_error() -> DeletedArrayError:
    """Build the error for a donated argument that is also passed as another argument."""
    return DeletedArrayError(
        "call of a compiled function",
        expected="a donated array to be passed once",
        got="one that is another argument too",
        fix="copy it with x.copy(), or remove it from donate_argnums",
    )


def block_until_ready(x: Any) -> Any:
    """Wait until all arrays of a pytree have been computed.

    Args:
      x: a pytree; leaves that are not arrays are ignored.

    Returns:
      `x`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.block_until_ready({"a": jnp.ones(2)})["a"].shape
      (2,)
    """
    try:
        leaves = flatten(x)[0]
    except (SystemError, RecursionError):
        leaves = tree_leaves(x)  # which explains why the tree has no end
    try:
        buffers.block_until_ready([leaf._buffer for leaf in leaves if type(leaf) is Array])
    except XlaRuntimeError:
        for leaf in leaves:
            if type(leaf) is Array:
                leaf._live()
        raise
    return x
