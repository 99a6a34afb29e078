"""`device_put` and its variants: transfer pytrees of values to devices.

`runtime.transfer` copies host values, `array_resharding` moves arrays that are on devices already, and the `device_put`
primitive represents the transfer inside programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    ShapeError,
    ShardingError,
    get_aval,
    get_aval_of_argument,
    state,
)
from phalanx.engine.transfer_guard import explicit_transfer
from phalanx.lax.sharding_constraint import (
    apply_layouts,
    broadcast_layouts,
    broadcast_shardings,
    check_not_manual,
    device_put_p,
)
from phalanx.runtime import Array, ArrayType, transfer
from phalanx.runtime.process_comparison import compare_transferred
from phalanx.sharding import Mesh, NamedSharding, P, Sharding
from phalanx.spmd.array_resharding import reshard
from phalanx.spmd.make_array import assemble_array
from phalanx.transforms.offload import Space, to_memory_p
from phalanx.tree import broadcast_prefix, tree_flatten, tree_map, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import ArrayLike, PyTree


def device_put(
    x: PyTree, device: PyTree = None, *, src: object = None, donate: PyTree = False, may_alias: PyTree = None
) -> Any:
    """Transfer a pytree of values to devices. All transfers of the tree are issued together.

    Args:
      x: a pytree of arrays, NumPy arrays and Python scalars.
      device: a device or sharding for all values, or a tree prefix of `x` with devices and shardings. A `PartitionSpec`
        refers to the current mesh, a `memory.Space` to another memory of the devices of each value. None keeps arrays
        in place and transfers host values to the default device.
      src: accepted for compatibility and ignored.
      donate: whether the buffers of `x` may be reused; a bool or a tree prefix of bools.
      may_alias: whether the result may share memory with `x`; a bool, None, or a tree prefix of them. True allows
        sharing the memory of NumPy arrays, None that of arrays only, False forces a copy.

    Returns:
      The pytree with an array in place of each value. On CPU devices, the shards of a large NumPy array share one copy
      of it. Reading the array does not copy again, and donating it costs one more copy.

    Raises:
      ShardingError: a sharding does not fit its value, or there is no current mesh for a bare spec.
      ArgumentError: an array is deleted or donated already, or `donate` and `may_alias` are both set for it.
      TreeError: an argument is not a tree prefix of `x`.

    Examples:
      >>> from phalanx.sharding import P, make_mesh, NamedSharding
      >>> mesh = make_mesh((1,), ("data",))
      >>> placed = device_put({"w": np.ones((4, 2), np.float32)}, NamedSharding(mesh, P("data")))
      >>> placed["w"].sharding.spec
      P('data',)
    """
    if isinstance(device, Space):
        source = Space.Host if device is Space.Device else Space.Device
        return tree_map(lambda leaf: to_memory_p(leaf, src=source.value, dst=device.value), x)
    leaves, tree = tree_flatten(x)
    shardings, layouts = (
        _broadcast_shardings(device, x, len(leaves)),
        broadcast_layouts(device, x, "device_put, device"),
    )
    if state.trace is not None:
        bound = [_bind(leaf, s) for leaf, s in zip(leaves, shardings, strict=True)]
        return tree_unflatten(tree, apply_layouts(bound, layouts))
    donated = _broadcast_flags(donate, x, len(leaves), "device_put, donate")
    may_share = _broadcast_flags(may_alias, x, len(leaves), "device_put, may_alias")
    # All leaves are checked before the first transfer, so that an error leaves every array as it was.
    for i, (leaf, s) in enumerate(zip(leaves, shardings, strict=True)):
        if donated[i] and may_share[i]:
            raise ArgumentError(
                f"device_put, x{leaf_path(x, i)}",
                expected="donate or may_alias, not both",
                got="donate=True and may_alias=True",
                fix="set donate=False if x is used again, may_alias=None otherwise",
            )
        if s is not None:
            _check_fits(leaf, s, x, i)
    if state.context.debug_compare_host_values:
        compare_transferred(
            "device_put", leaves, dict(enumerate(shardings)), lambda i: f"device_put, x{leaf_path(x, i)}"
        )
    try:
        with explicit_transfer():
            return tree_unflatten(tree, apply_layouts(put(leaves, shardings, donated, may_share), layouts))
    except ArgumentTypeError:
        for i, leaf in enumerate(leaves):
            get_aval_of_argument(leaf, lambda i=i: f"device_put, x{leaf_path(x, i)}")
        raise


def put(
    values: Sequence[Any],
    shardings: Sequence[Any],
    donate: Sequence[bool | None] | None = None,
    may_alias: Sequence[bool | None] | None = None,
) -> list[Array]:
    """Transfer values to devices; arrays that are on devices already are resharded by as few programs as possible.

    Args:
      values: arrays and host values.
      shardings: the target sharding of each value. None keeps an array in place, and transfers a host value to the
        default device.
      donate: for each value whether its buffer may be reused; defaults to False.
      may_alias: for each value as in `device_put`; defaults to None.

    Returns:
      An array for each value.
    """
    donate, may_alias = donate or [False] * len(values), may_alias or [None] * len(values)
    out = [_put_one(*each) for each in zip(values, shardings, may_alias, strict=True)]
    moving = [i for i, x in enumerate(values) if type(x) is Array and shardings[i] is not None]
    if moving:
        moved = reshard([out[i] for i in moving], [shardings[i] for i in moving], [bool(donate[i]) for i in moving])
        for i, x in zip(moving, moved, strict=True):
            out[i] = x
    return out


def _put_one(x: ArrayLike, sharding: Sharding | None, shares: bool | None) -> Array:
    """Transfer a host value. An array stays where it is; may_alias=False promises a copy even then."""
    if type(x) is Array:
        return transfer.copy_array(x) if shares is False else x
    # Only NumPy arrays have memory to share; scalars are copied in any case.
    if not (shares and isinstance(x, np.ndarray)):
        return transfer.put(x, sharding)
    placed = ArrayType(get_aval(x), sharding or transfer.default_sharding(), sharding is not None)
    return transfer.from_numpy(x, placed, lent=True)


def _bind(x: ArrayLike, sharding: Sharding | None) -> Any:
    """Bind the `device_put` primitive for one value while a transformation is tracing."""
    check_not_manual(sharding)
    source = getattr(x, "sharding", None)
    return device_put_p(x, sharding=sharding, source=source if isinstance(source, Sharding) else None)


def _broadcast_shardings(device: PyTree, x: PyTree, count: int) -> list[Sharding | None]:
    """Broadcast the argument `device` to a sharding, or None, for each leaf of `x`."""
    if device is None or isinstance(device, Sharding):
        return [device] * count
    if hasattr(device, "device_kind"):
        return [transfer.single_device_sharding(device)] * count
    return broadcast_shardings(device, x, "device_put, device")


def _check_fits(leaf: ArrayLike, sharding: Sharding, x: PyTree, i: int) -> None:
    """Raise an error with the path of leaf `i` of `x` if its shape does not fit the sharding.

    The path is only computed on failure, because `leaf_path` flattens the tree again.
    """
    shape = np.shape(leaf)
    try:
        sharding.shard_shape(shape)
    except ShardingError:
        sharding.shard_shape(shape, where=f"device_put, x{leaf_path(x, i)}")


def _broadcast_flags(flags: PyTree, x: PyTree, count: int, what: str) -> list:
    if flags is None or isinstance(flags, bool):
        return [flags] * count
    return broadcast_prefix(flags, x, what=what, is_leaf=lambda flag: flag is None)


def device_put_replicated(x: PyTree, devices: Sequence[Any]) -> Any:
    """Transfer a copy of each array to every device.

    Args:
      x: a pytree of arrays.
      devices: the devices.

    Returns:
      The pytree with arrays that have an additional leading dimension, which is split over the devices.

    Raises:
      ArgumentError: there is no device.

    Examples:
      >>> import phalanx
      >>> device_put_replicated(np.arange(2), phalanx.devices()[:1]).tolist()
      [[0, 1]]
    """
    return _stack([x] * len(devices), devices, "device_put_replicated")


def device_put_sharded(shards: Sequence[Any], devices: Sequence[Any]) -> Any:
    """Transfer one shard to each device and stack the shards to one array.

    Args:
      shards: a pytree of arrays for each device; all have the same structure, shapes and dtypes.
      devices: the devices.

    Returns:
      The pytree with arrays that have an additional leading dimension, which is split over the devices.

    Raises:
      ArgumentError: the numbers of shards and devices differ.
      ShapeError: shards of one array differ in shape or dtype.

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
            fix=f"pass a list of {len(devices)} shards, or fewer devices",
        )
    return _stack(shards, devices, "device_put_sharded")


def _stack(shards: Sequence[Any], devices: Sequence[Any], where: str) -> Any:
    """Transfer one pytree to each device and stack their leaves."""
    if not len(devices):
        raise ArgumentError(where, expected="at least one device", got="none", fix="pass phalanx.local_devices()")
    sharding = NamedSharding(Mesh(np.array(devices, dtype=object), "devices"), P("devices"))

    def stack(*leaves: Any) -> Array:
        first = get_aval(leaves[0])
        for i, aval in enumerate(map(get_aval, leaves)):
            if (aval.shape, aval.dtype) != (first.shape, first.dtype):
                raise ShapeError(
                    f"device_put_sharded, shards[{i}]",
                    expected=f"an array like shards[0], {first.str_short()}",
                    got=aval.str_short(),
                    fix=f"reshape or convert shards[{i}] to {first.str_short()}",
                )
        rows = [transfer.put(_expand(x), transfer.single_device_sharding(d)) for x, d in zip(leaves, devices)]
        whole = rows[0].aval.update(shape=(len(rows), *first.shape), weak_type=False)
        return assemble_array(rows, ArrayType(whole, sharding, True))

    with explicit_transfer():
        return tree_map(stack, *shards)


def _expand(x: ArrayLike) -> Any:
    """Add a leading dimension of size 1."""
    return lax.expand_dims(x, (0,)) if type(x) is Array else np.asarray(x, get_aval(x).dtype)[np.newaxis]


transfer.general_transfers.provide(put=put)
