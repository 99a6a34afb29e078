"""Placement: trees of values onto devices, and arrays put together from pieces.

Builds on `runtime.placement` for host data, on `reshard` for arrays that are on devices already, and on `constraint`
for `device_put` inside programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_at, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, ShardingError
from phalanx.engine import buffers, client
from phalanx.engine.guards import explicit
from phalanx.lax import constraint
from phalanx.lax.constraint import check_kept, device_put_p, sharding_prefix
from phalanx.runtime import placement
from phalanx.runtime.array import Array, ArrayType
from phalanx.runtime.lowering import physical_aval
from phalanx.runtime.memories import far_kind, near
from phalanx.sharding import Mesh, NamedSharding, P, Sharding
from phalanx.spmd.reshard import reshard
from phalanx.transforms.offload import Space, to_memory_p
from phalanx.tree import broadcast_prefix, tree_flatten, tree_leaves, tree_map, tree_unflatten
from phalanx.tree.paths import leaf_path


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None) -> Any:
    """Place a tree of values on devices, all of it at once.

    Args:
      x: a tree of arrays, NumPy arrays and Python scalars.
      device: a device or a sharding for all of it, or a tree of them that is a prefix of `x`. A `PartitionSpec` is over
        the mesh in force, a `memory.Space` the memory of the devices where a value is. None leaves arrays where they
        are and puts host data on the default device.
      src: accepted for compatibility; arrays know where they are.
      donate: whether the buffers of `x` may be given up: a bool, or a prefix tree of them.
      may_alias: whether the result may share memory with `x`: True lets it share a NumPy array's memory too, None
        only that of arrays, False copies. A bool, or a prefix tree of them.

    Returns:
      The tree with arrays in place of the values. Over CPU devices, the rows of a large NumPy array are held in one
      copy of it, which reading the array back does not copy again, and a call that it is donated to copies once.

    Raises:
      ShardingError: a sharding does not fit its value, or a bare spec has no mesh.
      ArgumentError: an array was deleted or donated, or is to be donated and aliased at once.
      TreeError: a prefix does not fit `x`.

    Examples:
      >>> from phalanx.sharding import P, make_mesh, NamedSharding
      >>> mesh = make_mesh((1,), ("data",))
      >>> placed = device_put({"w": np.ones((4, 2), np.float32)}, NamedSharding(mesh, P("data")))
      >>> placed["w"].sharding.spec
      PartitionSpec('data')
    """
    if isinstance(device, Space):
        src = Space.Host if device is Space.Device else Space.Device
        return tree_map(lambda leaf: to_memory_p(leaf, src=src.value, dst=device.value), x)
    leaves, tree = tree_flatten(x)
    shardings = _targets(device, x, len(leaves))
    if state.trace is not None:
        return tree_unflatten(tree, [_bind(leaf, s) for leaf, s in zip(leaves, shardings, strict=True)])
    given_up = _flags(donate, x, len(leaves), "device_put, donate")
    aliased = _flags(may_alias, x, len(leaves), "device_put, may_alias")
    for i, (leaf, s) in enumerate(zip(leaves, shardings, strict=True)):
        if given_up[i] and aliased[i]:
            raise ArgumentError(
                f"device_put, x{leaf_path(x, i)}",
                expected="donate or may_alias, not both",
                got="donate=True and may_alias=True",
                mend="donate where x is not used again, alias where it is",
            )
        if s is not None:
            _check_fits(leaf, s, x, i)
    try:
        with explicit():
            return tree_unflatten(tree, put(leaves, shardings, given_up, aliased))
    except ArgumentTypeError:
        for i, leaf in enumerate(leaves):
            aval_at(leaf, lambda i=i: f"device_put, x{leaf_path(x, i)}")
        raise


def put(values: Sequence[Any], shardings: Sequence[Any], donate: Any = None, may_alias: Any = None) -> list[Array]:
    """Place values, those on devices already by as few programs and transfers as possible.

    Args:
      values: arrays and host data.
      shardings: where each is to be; None for where it is, or the default device.
      donate: whether each one's buffers may be given up; no if not given.
      may_alias: for each as in `device_put`; None if not given.

    Returns:
      One array for each value.
    """
    out: list[Any] = [None] * len(values)
    moving = []
    for i, (x, sharding) in enumerate(zip(values, shardings, strict=True)):
        shares = may_alias[i] if may_alias is not None else None
        if type(x) is not Array:
            out[i] = _put_host(x, sharding, shares)
            continue
        if shares is False:
            x = placement.copy(x)
        out[i] = x
        if sharding is not None:
            moving.append(i)
    if moving:
        given_up = [bool(donate[i]) if donate is not None else False for i in moving]
        moved = reshard([out[i] for i in moving], [shardings[i] for i in moving], given_up)
        for i, x in zip(moving, moved, strict=True):
            out[i] = x
    return out


def _put_host(x: Any, sharding: Sharding | None, shares: bool | None) -> Array:
    if not (shares and isinstance(x, np.ndarray)):
        return placement.put(x, sharding)
    type = ArrayType(aval_of(x), sharding or placement.default_sharding(), sharding is not None)
    return placement.placing(type, lent=True)(x)


def _bind(x: Any, sharding: Sharding | None) -> Any:
    """`device_put` of one value while something is traced."""
    check_kept(sharding)
    source = getattr(x, "sharding", None)
    return device_put_p(x, sharding=sharding, source=source if isinstance(source, Sharding) else None)


def _targets(device: Any, x: Any, count: int) -> list[Sharding | None]:
    """A sharding or None for each leaf of `x`."""
    if device is None or isinstance(device, Sharding):
        return [device] * count
    if hasattr(device, "device_kind"):
        return [placement.on_device(device)] * count
    return sharding_prefix(device, x, "device_put, device")


def _check_fits(leaf: Any, sharding: Sharding, x: Any, i: int) -> None:
    """Refuse a value that its sharding cannot place, naming it by its path."""
    shape = np.shape(leaf)
    try:
        sharding.shard_shape(shape)
    except ShardingError:
        sharding.shard_shape(shape, where=f"device_put, x{leaf_path(x, i)}")


def _flags(flags: Any, x: Any, count: int, what: str) -> list:
    if flags is None or isinstance(flags, bool):
        return [flags] * count
    return broadcast_prefix(flags, x, what=what, is_leaf=lambda flag: flag is None)


def device_put_replicated(x: Any, devices: Sequence[Any]) -> Any:
    """Stack a copy of each array for every device, and put each copy on its device.

    Args:
      x: a tree of arrays.
      devices: the devices.

    Returns:
      Arrays with one more dimension in front, of which each device holds one position.

    Raises:
      ArgumentError: there is no device.

    Examples:
      >>> import phalanx
      >>> device_put_replicated(np.arange(2), phalanx.devices()[:1]).tolist()
      [[0, 1]]
    """
    sharding = _over(devices, "device_put_replicated")

    def stack(leaf: Any) -> Array:
        row = _row(leaf)
        return _stacked([placement.put(row, placement.on_device(device)) for device in devices], sharding)

    with explicit():
        return tree_map(stack, x)


def device_put_sharded(shards: Sequence[Any], devices: Sequence[Any]) -> Any:
    """Stack arrays, each on its own device.

    Args:
      shards: for each device a tree of arrays, all alike.
      devices: the devices.

    Returns:
      Arrays with one more dimension in front, of which each device holds one position.

    Raises:
      ArgumentError: there are not as many shards as devices.
      ShapeError: arrays to be stacked differ in shape or dtype.

    Examples:
      >>> import phalanx
      >>> device_put_sharded([np.arange(2)], phalanx.devices()[:1]).shape
      (1, 2)
    """
    if len(shards) != len(devices):
        raise ArgumentError(
            "device_put_sharded, shards",
            expected=f"one for each of the {len(devices)} devices",
            got=f"{len(shards)}",
            mend="pass as many shards as devices",
        )
    sharding = _over(devices, "device_put_sharded")

    def stack(*leaves: Any) -> Array:
        first = aval_of(leaves[0])
        for i, aval in enumerate(map(aval_of, leaves)):
            if (aval.shape, aval.dtype) != (first.shape, first.dtype):
                raise ShapeError(
                    f"device_put_sharded, shards[{i}]",
                    expected=f"an array like shards[0], {first.str_short()}",
                    got=aval.str_short(),
                    mend="give all shards one shape and dtype",
                )
        pairs = zip(leaves, devices, strict=True)
        return _stacked([placement.put(_row(x), placement.on_device(d)) for x, d in pairs], sharding)

    with explicit():
        return tree_map(stack, *shards)


def _over(devices: Sequence[Any], where: str) -> NamedSharding:
    if not len(devices):
        raise ArgumentError(where, expected="at least one device", got="none", mend="pass phalanx.local_devices()")
    return NamedSharding(Mesh(np.array(devices, dtype=object), "devices"), P("devices"))


def _row(x: Any) -> Any:
    """A value with a dimension of size 1 in front."""
    return lax.expand_dims(x, (0,)) if type(x) is Array else np.asarray(x, aval_of(x).dtype)[np.newaxis]


def _stacked(rows: Sequence[Array], sharding: NamedSharding) -> Array:
    aval = rows[0].aval
    whole = aval.update(shape=(len(rows), *aval.shape[1:]), weak_type=False)
    return _joined(rows, ArrayType(whole, sharding, True))


def _joined(pieces: Sequence[Array], type: ArrayType) -> Array:
    """Pieces that are on their devices, in the sharding's order, as one array; nothing is copied."""
    buffer = buffers.from_shards(physical_aval(type.aval), type.sharding, [p._buffer for p in pieces], type.committed)
    return Array(buffer, type)


def device_get(x: Any) -> Any:
    """Bring a tree of arrays to the host.

    Args:
      x: a tree of arrays and host values.

    Returns:
      The tree with NumPy arrays, not writable, in place of the arrays; what is no array stays what it is. All transfers
      run at once.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> device_get({"step": 7, "x": jnp.arange(3)})
      {'step': 7, 'x': array([0, 1, 2], dtype=int32)}
    """
    with explicit():
        leaves, tree = tree_flatten(copy_to_host_async(x))
        return tree_unflatten(tree, [_on_host(leaf) for leaf in leaves])


def _on_host(x: Any) -> Any:
    if type(x) is Array:
        return x._value
    return np.asarray(x) if hasattr(x, "__array__") else x


def copy_to_host_async(x: Any) -> Any:
    """Start bringing a tree of arrays to the host, so that reading them later waits less.

    Args:
      x: a tree of arrays and other values.

    Returns:
      The same tree.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> x = copy_to_host_async(jnp.arange(3))
      >>> np.asarray(x).tolist()
      [0, 1, 2]
    """
    for leaf in tree_leaves(x):
        if type(leaf) is Array:
            _start_copy(leaf)
    return x


def _start_copy(x: Array) -> None:
    """Start the transfer of each piece that the host's copy will be assembled from."""
    if x._live().platform() == "cpu":
        return  # It is there already.
    pieces = buffers.shards(x._buffer)
    local = x.sharding.addressable_devices
    replicas = [s.replica_id for s in x.sharding.shards(physical_aval(x.aval).shape) if s.device in local]
    for replica, piece in zip(replicas, pieces, strict=True):
        if replica == 0 or (x.is_fully_replicated and piece is pieces[0]):
            buffers.copy_to_host_async(piece)


def live_arrays(platform: str | None = None) -> list[Array]:
    """List all arrays that hold memory on the devices of a platform.

    Args:
      platform: such as `"cpu"`; the default one if not given.

    Returns:
      Arrays that share the memory of those; random keys are among them as their numbers.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> x = jnp.full((17, 13), 5)
      >>> any(y.shape == (17, 13) for y in live_arrays())
      True
    """
    found = buffers.live(client.client(platform))
    return [Array(x, ArrayType(x.aval, s, c)) for x, s, c in found if isinstance(s, Sharding)]


def make_array_from_callback(
    shape: Sequence[int], sharding: Sharding, data_callback: Callable[[Any], Any], dtype: Any = None
) -> Array:
    """Make an array whose parts a function gives.

    Args:
      shape: shape of the whole array.
      sharding: how it is to lie.
      data_callback: called once for each part that a device of this process holds, with a tuple of slices of the whole
        array; gives the values.
      dtype: of the result; that of the values if not given.

    Returns:
      The array.

    Raises:
      ShapeError: the function gave a part of another shape than asked for.
      DTypeError: its parts differ in dtype, or from `dtype`.

    Examples:
      >>> from phalanx.sharding import make_mesh
      >>> here = NamedSharding(make_mesh((1,), ("x",)), P("x"))
      >>> make_array_from_callback((3,), here, lambda index: np.arange(3.0)[index]).tolist()
      [0.0, 1.0, 2.0]
    """
    shape = tuple(shape)
    part_shape = sharding.shard_shape(shape, where="make_array_from_callback, sharding")
    places = sharding.addressable_devices_indices_map(shape)
    made: dict[Any, Any] = {}
    for index in places.values():
        key = _key(index)
        if key not in made:
            made[key] = data = data_callback(index)
            _check_part(data, index, part_shape)
    wanted = None if dtype is None else dtypes.canonicalize_dtype(dtype)
    for data in made.values():
        found = aval_of(data).dtype
        wanted = wanted or found
        if found != wanted:
            raise DTypeError(
                "make_array_from_callback, data_callback",
                expected=f"values of one dtype, {dtypes.short_name(wanted)}",
                got=dtypes.short_name(found),
                mend="convert the values to one dtype, and pass it as dtype",
            )
    whole = ShapedArray(shape, wanted)
    with explicit():
        pieces = [placement.put(made[_key(index)], placement.on_device(d)) for d, index in places.items()]
        return _in_memory(pieces, ArrayType(whole, sharding, True))


def _key(index: tuple[slice, ...]) -> tuple:
    return tuple([(s.start, s.stop) for s in index])


def _check_part(data: Any, index: Any, part_shape: tuple[int, ...]) -> None:
    if np.shape(data) != part_shape:
        raise ShapeError(
            "make_array_from_callback, data_callback",
            expected=f"values of shape {part_shape} for {index}",
            got=f"shape {np.shape(data)}",
            mend="return the part of the whole array that the index selects",
        )


def _in_memory(pieces: Sequence[Array], type: ArrayType) -> Array:
    """Pieces in the default memory of their devices as one array, brought to the sharding's own memory if need be."""
    if far_kind(type.sharding) is None:
        return _joined(pieces, type)
    joined = _joined(pieces, ArrayType(type.aval, near(type.sharding), True))
    return reshard([joined], [type.sharding], [True])[0]


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Array], *, dtype: Any = None
) -> Array:
    """Make one array of arrays on single devices, without copying.

    Args:
      shape: shape of the whole array.
      sharding: how the pieces lie in it.
      arrays: for each device of this process that the sharding names, the piece on it, in any order.
      dtype: accepted for processes without pieces; that of the pieces if not given.

    Returns:
      The array.

    Raises:
      ShardingError: the pieces are not on the sharding's devices, one on each.
      ShapeError: a piece has another shape than the sharding gives it.
      DTypeError: the pieces differ in dtype.

    Examples:
      >>> import phalanx
      >>> from phalanx.sharding import make_mesh
      >>> piece = device_put(np.arange(3), phalanx.devices()[0])
      >>> mesh = make_mesh((1,), ("x",), devices=phalanx.devices()[:1])
      >>> make_array_from_single_device_arrays((3,), NamedSharding(mesh, P("x")), [piece]).tolist()
      [0, 1, 2]
    """
    shape, where = tuple(shape), "make_array_from_single_device_arrays, arrays"
    part_shape = sharding.shard_shape(shape, where="make_array_from_single_device_arrays, sharding")
    places = sharding.addressable_devices_indices_map(shape)
    by_device = {x.device: x for x in arrays if len(x.sharding.device_set) == 1}
    if len(arrays) != len(places) or by_device.keys() != places.keys():
        raise ShardingError(
            where,
            expected=f"one array on each of the devices {[d.id for d in places]}",
            got=f"arrays on {[sorted(d.id for d in x.sharding.device_set) for x in arrays]}",
            mend="put each piece on its device with device_put",
        )
    pieces = [by_device[device] for device in places]
    wanted = dtypes.canonicalize_dtype(dtype) if dtype is not None else pieces[0].dtype
    for x in pieces:
        if x.shape != part_shape:
            raise ShapeError(
                where,
                expected=f"pieces of shape {part_shape}, for an array of shape {shape} with {sharding}",
                got=f"shape {x.shape} on device {x.device.id}",
                mend="give each device the part that sharding.devices_indices_map(shape) names",
            )
        if x.dtype != wanted:
            raise DTypeError(
                where,
                expected=f"pieces of dtype {dtypes.short_name(wanted)}",
                got=f"{dtypes.short_name(x.dtype)} on device {x.device.id}",
                mend="convert the pieces to one dtype",
            )
    return _joined(pieces, ArrayType(ShapedArray(shape, wanted), sharding, True))


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """Make an array of which each process gives the part that its devices hold.

    Args:
      sharding: how the array is to lie.
      local_data: this process's part; or the whole array in every process, where `global_shape` is its shape. A tree of
        arrays makes a tree of them.
      global_shape: shape of the whole array; sizes that are None, or all, are found from the part. For trees, this and
        `sharding` may be prefix trees.

    Returns:
      The array, or the tree of them.

    Raises:
      ShardingError: the parts of this process's devices make no box.
      ShapeError: `local_data` is neither the whole array nor this process's part of it.
      TreeError: `sharding` or `global_shape` is no prefix of `local_data`.

    Examples:
      >>> from phalanx.sharding import make_mesh
      >>> rows = NamedSharding(make_mesh((1,), ("x",)), P("x"))
      >>> make_array_from_process_local_data(rows, np.ones((2, 3), np.float32)).shape
      (2, 3)
    """
    leaves, tree = tree_flatten(local_data)
    what = "make_array_from_process_local_data, "
    shardings = broadcast_prefix(sharding, local_data, what=f"{what}sharding")
    shapes = broadcast_prefix(global_shape, local_data, what=f"{what}global_shape", is_leaf=_is_shape)
    return tree_unflatten(tree, list(map(_from_local_data, shardings, leaves, shapes)))


def _is_shape(x: Any) -> bool:
    return x is None or (isinstance(x, tuple | list) and all(d is None or isinstance(d, int | np.integer) for d in x))


def _from_local_data(sharding: Sharding, local_data: Any, global_shape: Sequence[int | None] | None) -> Array:
    """One array of which this process gives its part."""
    data = np.asarray(local_data)
    tiling = sharding.tiling(data.ndim)
    local = sharding.addressable_devices
    mine = np.array([device in local for device in sharding._device_assignment])
    held = tiling.coordinates[mine]
    spans = [sorted(set(held[:, dim].tolist())) for dim in range(data.ndim)]
    if any(span != list(range(span[0], span[-1] + 1)) for span in spans) or len(
        {tuple(row) for row in held.tolist()}
    ) != math.prod(map(len, spans)):
        raise ShardingError(
            "make_array_from_process_local_data, sharding",
            expected="a sharding under which this process's parts make a box",
            got=sharding,
            mend="lay out the mesh with mesh_utils.create_device_mesh",
        )
    asked = (None,) * data.ndim if global_shape is None else tuple(global_shape)
    sizes = zip(data.shape, tiling.parts, spans, asked, strict=True)
    shape = tuple([size * parts // len(span) if want is None else want for size, parts, span, want in sizes])
    part_shape = sharding.shard_shape(shape, where="make_array_from_process_local_data, sharding")
    box = tuple([len(span) * part for span, part in zip(spans, part_shape, strict=True)])
    if data.shape == shape:
        return make_array_from_callback(shape, sharding, lambda index: data[index])
    if data.shape != box:
        raise ShapeError(
            "make_array_from_process_local_data, local_data",
            expected=f"this process's part, of shape {box}, or the whole array, of shape {shape}",
            got=f"shape {data.shape}",
            mend="pass global_shape, or the part that this process's devices hold",
        )
    starts = [span[0] * part for span, part in zip(spans, part_shape, strict=True)]

    def part(index: tuple[slice, ...]) -> np.ndarray:
        bounds = [s.indices(size) for s, size in zip(index, shape, strict=True)]
        return data[tuple([slice(a - first, b - first) for (a, b, _), first in zip(bounds, starts, strict=True)])]

    return make_array_from_callback(shape, sharding, part)


constraint.eager.take(put=put)
