"""`make_array_from_*`: assemble an array over several devices from its shards."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import (
    DTypeError,
    ShapedArray,
    ShapeError,
    ShardingError,
    dtypes,
    ensure_compile_time_eval,
    get_aval,
    physical_aval,
)
from phalanx.engine import buffers, client, explicit_transfer, memoize
from phalanx.runtime import Array, ArrayType, Format, to_default_memory, transfer, wrap_buffer
from phalanx.sharding import ShardIndex, Sharding, to_sharding
from phalanx.spmd.array_resharding import reshard
from phalanx.tree import broadcast_prefix, tree_flatten, tree_unflatten
from phalanx.typing import ArrayLike, DTypeLike, PyTree


def assemble_array(shards: Sequence[Array], type: ArrayType) -> Array:
    """Assemble an array from its shards without copying.

    Args:
      shards: the shard on each device of this process, in the order of the sharding's devices.
      type: type of the array, with its sharding.

    Returns:
      The array, which shares the buffers of the shards.
    """
    shape = type.sharding.shard_shape(type.aval.shape)
    held = [
        (x if x._type.layout is None and x._type.aval.shape == shape else resize(x, shape))._share() for x in shards
    ]
    return wrap_buffer(buffers.from_shards(type.buffer_aval, type.sharding, held, type.committed), type)


def resize(x: Array, shape: Sequence[int]) -> Array:
    """Cut an array on one device, or pad it with zeros, at the end of each dimension."""
    x = transfer.general_transfers.lay_out(x, None)
    if x.shape == tuple(shape):
        return x
    wanted = ArrayType(x.aval.with_shape(tuple(shape)), x.sharding, x.committed)
    before, after = physical_aval(x.aval), physical_aval(wanted.aval)
    if not after.size:
        return transfer.from_numpy(np.zeros(after.shape, after.dtype), wanted)
    widths = [(0, n - held, 0) for n, held in zip(after.shape, before.shape, strict=True)]
    with ensure_compile_time_eval():
        resized = lax.pad(
            wrap_buffer(x._buffer, ArrayType(before, x.sharding, True)), np.zeros((), before.dtype), widths
        )
    return wrap_buffer(resized._buffer, wanted)


transfer.general_transfers.provide(resize=resize)


def make_array_from_callback(
    shape: Sequence[int], sharding: Sharding, data_callback: Callable[[Any], Any], dtype: DTypeLike | None = None
) -> Array:
    """Create an array from a function that computes its shards.

    Args:
      shape: shape of the unsharded array.
      sharding: the sharding of the array, a device, or a `PartitionSpec` over the mesh in context.
      data_callback: a function from a tuple of slices of the unsharded array to the values in it. It is called once for
        each distinct shard on the devices of this process.
      dtype: the dtype of the array; required in a process without shards, defaults to the dtype of the values.

    Returns:
      The array.

    Raises:
      ShapeError: the function returned a value with another shape than the shard.
      DTypeError: the dtypes of the values differ from each other or from `dtype`, or there are neither.

    Examples:
      >>> from phalanx.sharding import NamedSharding, P, make_mesh
      >>> here = NamedSharding(make_mesh((1,), ("x",)), P("x"))
      >>> make_array_from_callback((3,), here, lambda index: np.arange(3.0)[index]).tolist()
      [0.0, 1.0, 2.0]
    """
    shape = tuple(shape)
    sharding = _as_sharding(sharding, "make_array_from_callback, sharding")
    devices, distinct, shapes, numbers = _distinct_shards(sharding, shape, "make_array_from_callback, sharding")
    made = [data_callback(shard.index) for shard in distinct]
    wanted = None if dtype is None else dtypes.canonicalize_dtype(dtype)
    is_plain = _are_plain(made, shapes, wanted)
    if is_plain:
        wanted = made[0].dtype
    for shard, data in () if is_plain else zip(distinct, made, strict=True):
        held = get_aval(data)
        if held.shape != shard.shape:
            raise ShapeError(
                "make_array_from_callback, data_callback",
                expected=f"values of shape {shard.shape} for {shard.index}",
                got=f"shape {held.shape}",
                fix="return array[index] for the index that data_callback receives",
            )
        wanted = wanted or held.dtype
        if held.dtype != wanted:
            raise DTypeError(
                "make_array_from_callback, data_callback",
                expected=f"values of one dtype, {dtypes.short_name(wanted)}",
                got=dtypes.short_name(held.dtype),
                fix=f"convert the values that data_callback returns to {dtypes.short_name(wanted)}",
            )
    if wanted is None:
        raise DTypeError(
            "make_array_from_callback, dtype",
            expected="a dtype, since this process has no shard of the array",
            got="None",
            fix="pass dtype=... in all processes",
        )
    # The shards are in the default memory of their devices; the assembled array moves to the sharding's memory.
    array_type, aval = _assembled_type(shape, wanted, to_default_memory(sharding))
    with explicit_transfer():
        if not is_plain and Array in map(type, made):
            pairs = zip(numbers, devices, strict=True)
            shards = [transfer.put(made[i], transfer.single_device_sharding(device)) for i, device in pairs]
            joined = assemble_array(shards, array_type)
        else:
            hosted = made if is_plain else [np.asarray(data, wanted) for data in made]
            if aval.shape != shape:
                hosted = [transfer.pad_to(x, array_type.sharding.shard_shape(shape)) for x in hosted]
            pieces = [hosted[i] for i in numbers]
            joined = wrap_buffer(buffers.put_shards(aval, array_type.sharding, pieces, devices), array_type)
        return joined if array_type.sharding is sharding else reshard([joined], [sharding], [True])[0]


def _are_plain(values: list, shapes: list[tuple[int, ...]], wanted: Any) -> bool:
    """Whether the values of shards are NumPy arrays of their shapes and of one dtype, which is `wanted` if not None.

    Separate passes that hardly leave C take half the time of one over all values.
    """
    if {*map(type, values)} != {np.ndarray} or [x.shape for x in values] != shapes:
        return False
    held = get_aval(values[0]).dtype
    return (wanted is None or wanted == held) and {x.dtype for x in values} == {held}


@memoize("spmd.distinct_shards", 1024)
def _distinct_shards(
    sharding: Sharding, shape: tuple[int, ...], where: str
) -> tuple[list, list[ShardIndex], list, list]:
    """The devices of this process, the distinct shards on them, their shapes, and the number of each device's shard."""
    shards = _local_shards(sharding, shape, where)
    # Slices are unhashable in Python 3.11.
    keys = [tuple([(s.start, s.stop) for s in shard.index]) for shard in shards]
    distinct = dict(zip(keys, shards, strict=True))
    number = {key: i for i, key in enumerate(distinct)}
    shapes = [shard.shape for shard in distinct.values()]
    return [shard.device for shard in shards], [*distinct.values()], shapes, [number[key] for key in keys]


@memoize("spmd.local_shards", 1024)
def _local_shards(sharding: Sharding, shape: tuple[int, ...], where: str) -> tuple[ShardIndex, ...]:
    """The shards of an array on the devices of this process; an error names the argument `where`."""
    sharding.shard_shape(shape, where=where)  # raises for too few dimensions
    return sharding.addressable_shards(shape)


@memoize("spmd.assembled_types", 1024)
def _assembled_type(shape: tuple[int, ...], dtype: np.dtype, sharding: Sharding) -> tuple[ArrayType, ShapedArray]:
    """The type of an array, and that of its buffer."""
    type = ArrayType(ShapedArray(shape, dtype), sharding, True)
    return type, type.buffer_aval


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Array], *, dtype: DTypeLike | None = None
) -> Array:
    """Create an array from its shards, which are on their devices already, without copying.

    Args:
      shape: shape of the unsharded array.
      sharding: the sharding of the array, a device, or a `PartitionSpec` over the mesh in context.
      arrays: the shard on each device of the sharding that belongs to this process, in any order.
      dtype: the dtype of the array; required in a process without shards, defaults to that of the shards.

    Returns:
      The array, which shares the buffers of `arrays`.

    Raises:
      ShardingError: `arrays` are not on the devices of the sharding, one on each.
      ShapeError: a shard has another shape than the sharding determines.
      DTypeError: the dtypes of the shards differ.

    Examples:
      >>> import phalanx
      >>> from phalanx.sharding import NamedSharding, P, make_mesh
      >>> shard = phalanx.device_put(np.arange(3), phalanx.devices()[0])
      >>> mesh = make_mesh((1,), ("x",), devices=phalanx.devices()[:1])
      >>> make_array_from_single_device_arrays((3,), NamedSharding(mesh, P("x")), [shard]).tolist()
      [0, 1, 2]
    """
    shape, where = tuple(shape), "make_array_from_single_device_arrays, arrays"
    sharding = _as_sharding(sharding, "make_array_from_single_device_arrays, sharding")
    local = _local_shards(sharding, shape, "make_array_from_single_device_arrays, sharding")
    # Keyed by device, since users may pass the shards in any order.
    by_device = {x.sharding._device_assignment[0]: x for x in arrays if x.sharding.num_devices == 1}
    if len(arrays) != len(local) or any(shard.device not in by_device for shard in local):
        raise ShardingError(
            where,
            expected=f"one array on each of the devices {[shard.device.id for shard in local]}",
            got=f"arrays on {[sorted(d.id for d in x.sharding.device_set) for x in arrays]}",
            fix="transfer each shard to its device with device_put(shard, device)",
        )
    shards = [by_device[shard.device] for shard in local]
    wanted = dtypes.canonicalize_dtype(dtype) if dtype is not None else shards[0].dtype
    for x, shard in zip(shards, local, strict=True):
        if x.shape != shard.shape:
            raise ShapeError(
                where,
                expected=f"shards of shape {shard.shape}, for an array of shape {shape} with {sharding}",
                got=f"shape {x.shape} on device {x.device.id}",
                fix="pass for each device the slice in sharding.devices_indices_map(shape)",
            )
        if x.dtype != wanted:
            raise DTypeError(
                where,
                expected=f"shards of dtype {dtypes.short_name(wanted)}",
                got=f"{dtypes.short_name(x.dtype)} on device {x.device.id}",
                fix=f"convert all shards to one dtype, such as {dtypes.short_name(wanted)}",
            )
    return assemble_array(shards, _assembled_type(shape, wanted, sharding)[0])


def make_array_from_process_local_data(sharding: PyTree, local_data: PyTree, global_shape: PyTree = None) -> Any:
    """Create an array from the data that each process holds.

    Args:
      sharding: the sharding of the array, or a tree prefix of shardings.
      local_data: the slice of the array on this process's devices, or the unsharded array if `global_shape` is its
        shape. A pytree of such values creates a pytree of arrays.
      global_shape: shape of the unsharded array, or a tree prefix of shapes. A size of None is inferred from the sizes
        of the local data; None infers all sizes. Where processes hold different parts of a dimension of this kind, they
        tell each other its size in their data, so all of them must make the call. Passing the shape saves that.

    Returns:
      The array, or the pytree of arrays.

    Raises:
      ShardingError: the shards of this process do not form a contiguous slice of the array.
      ShapeError: `local_data` is neither the unsharded array nor the slice of this process.
      TreeError: `sharding` or `global_shape` is not a tree prefix of `local_data`.

    Examples:
      >>> from phalanx.sharding import NamedSharding, P, make_mesh
      >>> rows = NamedSharding(make_mesh((1,), ("x",)), P("x"))
      >>> make_array_from_process_local_data(rows, np.ones((2, 3), np.float32)).shape
      (2, 3)
    """
    leaves, tree = tree_flatten(local_data)
    what = "make_array_from_process_local_data"
    shardings = broadcast_prefix(sharding, local_data, what=f"{what}, sharding")
    shapes = broadcast_prefix(global_shape, local_data, what=f"{what}, global_shape", is_leaf=_is_shape)
    return tree_unflatten(tree, list(map(_make_array_from_local_data, shardings, leaves, shapes)))


def _as_sharding(sharding: Any, where: str) -> Sharding:
    """A sharding, also from a device, a format, or a spec over the mesh in context."""
    if isinstance(sharding, Sharding):
        return sharding
    if isinstance(sharding, Format):
        return sharding.placed(where)
    if hasattr(sharding, "device_kind"):
        return transfer.single_device_sharding(sharding)
    return to_sharding(sharding, where=where)


def _is_shape(x: object) -> bool:
    return x is None or (isinstance(x, tuple | list) and all(d is None or isinstance(d, int | np.integer) for d in x))


def _add_up_sizes(sharding: Sharding, local: dict[int, tuple[int, int]]) -> dict[int, int]:
    """The global sizes of dimensions: the sums of the sizes that the processes hold.

    Args:
      sharding: the sharding of the array.
      local: by dimension, the number of the first shard of this process, and the size of its part.
    """
    coordinator = client.coordinator()
    if not local or coordinator is None:
        return {}
    processes = sorted({device.process_index for device in sharding.device_set})
    # A sequence of its own, since the thread that loads data runs beside the one that computes.
    label = "make_array_from_process_local_data"
    sequence = "-".join([label, *map(str, processes)])
    texts = coordinator.exchange(label, json.dumps([*local.items()]), among=processes, sequence=sequence)
    # Processes with the same shards of a dimension count once.
    held = {(d, first): size for text in texts for d, (first, size) in json.loads(text)}
    return {d: sum(size for (other, _), size in held.items() if other == d) for d in local}


def _make_array_from_local_data(
    sharding: Sharding, local_data: ArrayLike, global_shape: Sequence[int | None] | None
) -> Array:
    """Create one array from the local data of this process.

    The coordinates of the process's shards along each dimension must be consecutive, and their product must be exactly
    the set of shards, so that the local data is one contiguous slice of the array.
    """
    data = np.asarray(local_data)
    sharding = _as_sharding(sharding, "make_array_from_process_local_data, sharding")
    tiling = sharding.tiling(data.ndim)
    held = tiling.coordinates[[device in sharding.addressable_devices for device in sharding._device_assignment]]
    spans = [sorted(set(held[:, dim].tolist())) for dim in range(data.ndim)]
    if any(span != list(range(span[0], span[-1] + 1)) for span in spans) or len(
        {tuple(row) for row in held.tolist()}
    ) != math.prod(map(len, spans)):
        raise ShardingError(
            "make_array_from_process_local_data, sharding",
            expected="a sharding under which the shards of this process form a contiguous slice of the array",
            got=sharding,
            fix="arrange the mesh with mesh_utils.create_device_mesh",
        )
    asked = (None,) * data.ndim if global_shape is None else tuple(global_shape)
    dims = enumerate(zip(data.shape, tiling.parts, spans, asked, strict=True))
    split = {d: (span[0], size) for d, (size, parts, span, want) in dims if want is None and len(span) < parts}
    sizes = dict(enumerate(data.shape)) | _add_up_sizes(sharding, split)
    shape = tuple([sizes[d] if want is None else want for d, want in enumerate(asked)])
    shard_shape = sharding.shard_shape(shape, where="make_array_from_process_local_data, sharding")
    bounds = list(zip(spans, shard_shape, shape, strict=True))
    starts = [min(span[0] * part, n) for span, part, n in bounds]
    box = tuple([min((span[-1] + 1) * part, n) - start for (span, part, n), start in zip(bounds, starts, strict=True)])
    if data.shape == shape:
        return make_array_from_callback(shape, sharding, lambda index: data[index])
    if data.shape != box:
        raise ShapeError(
            "make_array_from_process_local_data, local_data",
            expected=f"the slice of this process, of shape {box}, or the unsharded array, of shape {shape}",
            got=f"shape {data.shape}",
            fix=f"pass the slice of shape {box}, or global_shape={data.shape} if local_data is the unsharded array",
        )

    def part(index: tuple[slice, ...]) -> np.ndarray:
        bounds = [s.indices(size) for s, size in zip(index, shape, strict=True)]
        return data[tuple([slice(a - first, b - first) for (a, b, _), first in zip(bounds, starts, strict=True)])]

    return make_array_from_callback(shape, sharding, part)
