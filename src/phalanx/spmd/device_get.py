"""`device_get`, `copy_to_host_async` and `live_arrays`: read arrays on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import Tracer, dtypes, physical_aval
from phalanx.engine import buffers, client, explicit_transfer
from phalanx.runtime import transfer
from phalanx.runtime.array import Array, ArrayType, BufferAval, wrap_buffer
from phalanx.runtime.layout import Layout
from phalanx.sharding import Sharding
from phalanx.tree import tree_leaves, tree_map
from phalanx.typing import PyTree


def device_get(x: PyTree) -> Any:
    """Transfer a pytree of arrays to the host. All transfers run concurrently.

    Args:
      x: a pytree of arrays and host values.

    Returns:
      The pytree with a read-only NumPy array in place of each array. Host values, tracers and random keys, which NumPy
      has no dtype for, are unchanged.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> device_get({"step": 7, "x": jnp.arange(3)})
      {'step': 7, 'x': array([0, 1, 2], dtype=int32)}
    """
    with explicit_transfer():
        return tree_map(_to_host, copy_to_host_async(x))


def _to_host(x: object) -> Any:
    if type(x) is Array:
        return x if dtypes.is_extended(x.dtype) else x._value
    return np.asarray(x) if hasattr(x, "__array__") and not isinstance(x, Tracer) else x


def copy_to_host_async(x: PyTree) -> Any:
    """Start transferring a pytree of arrays to the host, without waiting for the transfers.

    Args:
      x: a pytree of arrays and other values.

    Returns:
      The same pytree. Reading an array later waits only for the rest of its transfer.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> x = copy_to_host_async(jnp.arange(3))
      >>> np.asarray(x).tolist()
      [0, 1, 2]
    """
    for leaf in tree_leaves(x):
        if type(leaf) is Array:
            _start_transfer(leaf)
        elif hasattr(leaf, "copy_to_host_async"):  # an array of another library
            leaf.copy_to_host_async()
    return x


def _start_transfer(x: Array) -> None:
    """Start the transfer of one replica of each shard."""
    if x._live().platform() == "cpu":
        return  # Reading an array of a CPU device needs no transfer.
    shards = buffers.shards(x._buffer)
    local = x.sharding.addressable_devices
    replicas = [s.replica_id for s in x.sharding.shards(physical_aval(x.aval).shape) if s.device in local]
    for replica, shard in zip(replicas, shards, strict=True):
        # The first replica of a fully replicated array may belong to another process.
        if replica == 0 or (x.is_fully_replicated and shard is shards[0]):
            buffers.copy_to_host_async(shard)


def live_arrays(platform: str | None = None) -> list[Array]:
    """List all arrays whose buffers are alive on the devices of a platform, without the scalars that Phalanx caches.

    Args:
      platform: a platform such as `"cpu"`; the default platform if not given.

    Returns:
      New array objects that share the buffers.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> x = jnp.full((17, 13), 5)
      >>> any(y.shape == (17, 13) for y in live_arrays())
      True
    """
    cached = transfer.scalar_buffer_ids()
    return [
        wrap_buffer(x, ArrayType(_aval_of(x), sharding, committed, _layout_of(x)))
        for x, sharding, committed in buffers.live(client.client(platform))
        if isinstance(sharding, Sharding) and id(x) not in cached
    ]


def _aval_of(buffer: Any) -> Any:
    return buffer.aval.array_aval if type(buffer.aval) is BufferAval else buffer.aval


def _layout_of(buffer: Any) -> Layout | None:
    layout = Layout.of_engine(buffers.layout(buffer))
    return None if layout.is_default else layout
