"""Helpers for `pmap` and input pipelines: replication, prefetching, padded batches, and scans along any dimension."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ShapeError
from phalanx.engine.client import Device, local_device_count, local_devices
from phalanx.engine.public_namespace import publish as _publish
from phalanx.runtime.array import Array
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.spmd.device_get import device_get
from phalanx.spmd.device_put import device_put
from phalanx.tree import tree_leaves, tree_map
from phalanx.typing import PyTree


def _stack_over_devices(rows: Sequence[Any], devices: Sequence[Device], axis_name: str) -> Any:
    """An array of one row for each device, on that device."""
    sharding = NamedSharding(Mesh(np.array(devices), (axis_name,)), PartitionSpec(axis_name))
    return device_put((jnp if isinstance(rows[0], Array) else np).stack(rows), sharding)


def replicate(tree: PyTree, devices: Sequence[Device] | None = None, axis_name: str = "_device_put_sharded") -> PyTree:
    """Copy arrays to each device, along a new first dimension, as arguments of `pmap`.

    Args:
      tree: a tree of arrays.
      devices: the devices; all local ones if None.
      axis_name: the name of the mesh axis.

    Returns:
      The tree of arrays.

    Examples:
      >>> import phalanx
      >>> from phalanx.flax import jax_utils
      >>> state = jax_utils.replicate({"w": 1.5})
      >>> state["w"].shape == (phalanx.local_device_count(),), jax_utils.unreplicate(state)["w"].item()
      (True, 1.5)
    """
    devices = list(devices or local_devices())
    return tree_map(lambda x: _stack_over_devices([x] * len(devices), devices, axis_name), tree)


def unreplicate(tree: PyTree) -> PyTree:
    """Return the first copy of replicated arrays, without its first dimension.

    Args:
      tree: a tree of arrays, as `replicate` and `pmap` return them.

    Returns:
      The tree of arrays.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.flax import jax_utils
      >>> jax_utils.unreplicate({"w": jnp.ones((8, 2))})["w"].shape
      (2,)
    """
    return tree_map(lambda x: x[0] if np.ndim(x) else x, tree)


def prefetch_to_device(
    iterator: Iterable[PyTree],
    size: int,
    devices: Sequence[Device] | None = None,
    axis_name: str = "_device_put_sharded",
) -> Iterator[PyTree]:
    """Transfer the next elements of an iterator while the program works on the current one.

    Args:
      iterator: yields trees of arrays whose first dimension is the number of devices.
      size: the number of elements on the devices ahead of their use.
      devices: the devices; all local ones if None.
      axis_name: the name of the mesh axis.

    Yields:
      The elements, with each row on its device.

    Examples:
      >>> import numpy as np, phalanx
      >>> from phalanx.flax import jax_utils
      >>> batches = (np.full((phalanx.local_device_count(), 2), i) for i in range(3))
      >>> [int(x[0, 0]) for x in jax_utils.prefetch_to_device(batches, size=2)]
      [0, 1, 2]
    """
    devices = list(devices or local_devices())
    source, queue = iter(iterator), collections.deque[PyTree]()

    def enqueue(count: int) -> None:
        for element in itertools.islice(source, count):
            queue.append(tree_map(lambda x: _stack_over_devices(list(x), devices, axis_name), element))

    enqueue(size)
    while queue:
        yield queue.popleft()
        enqueue(1)


def scan_in_dim(
    body_fn: Callable[[Any, Any], tuple[Any, Any]],
    init: PyTree,
    xs: PyTree,
    axis: int | Sequence[int] = (0,),
    unroll: int | Sequence[int] = (1,),
    keepdims: bool = False,
) -> tuple[PyTree, PyTree]:
    """Scan along one or several dimensions, the last of them in the innermost loop.

    Args:
      body_fn: `(carry, x) -> (carry, y)`.
      init: the initial carry.
      xs: a tree of arrays.
      axis: the dimensions.
      unroll: the number of iterations to unroll for each of the innermost dimensions.
      keepdims: whether `x` and `y` have the dimensions, with size 1.

    Returns:
      The last carry, and the results with the dimensions in their places.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.flax import jax_utils
      >>> total, sums = jax_utils.scan_in_dim(lambda c, x: (c + x, c + x), 0.0, jnp.ones((2, 3)), axis=(0, 1))
      >>> sums.tolist()
      [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    """
    axes = tuple(axis) if isinstance(axis, Iterable) else (axis,)
    unrolls = tuple(unroll) if isinstance(unroll, Iterable) else (unroll,)
    unrolls = (1,) * (len(axes) - len(unrolls)) + unrolls
    front = tuple(range(len(axes)))
    to_front = lambda x: jnp.moveaxis(x, axes, front)
    to_place = lambda x: jnp.moveaxis(x, front, axes)

    def body(carry: Any, x: Any) -> tuple[Any, Any]:
        if not keepdims:
            return body_fn(carry, x)
        carry, y = body_fn(carry, tree_map(lambda a: to_place(a[(None,) * len(axes)]), x))
        return carry, tree_map(lambda a: to_front(a).reshape(np.shape(to_front(a))[len(axes) :]), y)

    loop = body
    for count in reversed(unrolls):
        loop = functools.partial(lax.scan, loop, unroll=count)  # type: ignore[assignment]
    carry, ys = loop(init, tree_map(to_front, xs))
    return carry, tree_map(to_place, ys)


def pad_shard_unpad(
    wrapped: Callable,
    static_argnums: Collection[int] = (0,),
    static_argnames: Collection[str] = (),
    static_return: bool = False,
) -> Callable:
    """Let a function over `pmap` take batches of any size: pad with zeros, split over the devices, and undo both.

    Args:
      wrapped: the function; its batched arguments have the dimensions devices and rows.
      static_argnums, static_argnames: the arguments that are passed on unchanged, such as parameters.
      static_return: whether the result is returned unchanged, without its padding removed.

    Returns:
      A function of arrays whose first dimension is the batch. Its argument `min_device_batch` is the least number of
      rows for each device.

    Raises:
      ShapeError: the arguments of a call have different batch sizes.

    Examples:
      >>> import numpy as np, phalanx
      >>> from phalanx.flax import jax_utils
      >>> scale = jax_utils.pad_shard_unpad(phalanx.pmap(lambda w, x: w * x, in_axes=(None, 0)))
      >>> scale(2.0, np.arange(3.0, dtype="float32")).tolist()
      [0.0, 2.0, 4.0]
    """

    @functools.wraps(wrapped)
    def call(*args: Any, min_device_batch: int | None = None, **kwargs: Any) -> Any:
        num_devices = local_device_count()
        batched = [a for i, a in enumerate(args) if i not in static_argnums]
        batched += [v for k, v in kwargs.items() if k not in static_argnames]
        sizes = {x.shape[0] for x in tree_leaves(batched)}
        if len(sizes) != 1:
            raise ShapeError(
                "pad_shard_unpad",
                expected="arguments of one batch size",
                got=f"the sizes {sorted(sizes)}",
                fix="list arguments that have no batch in static_argnums or static_argnames",
            )
        (size,) = sizes
        rows = max(-(-size // num_devices), min_device_batch or 0)

        def pad(x: Any) -> Any:
            missing = np.zeros((num_devices * rows - size, *x.shape[1:]), x.dtype)
            return np.concatenate([np.asarray(x), missing]).reshape(num_devices, rows, *x.shape[1:])

        args = tuple(a if i in static_argnums else tree_map(pad, a) for i, a in enumerate(args))
        kwargs = {k: v if k in static_argnames else tree_map(pad, v) for k, v in kwargs.items()}
        out = wrapped(*args, **kwargs)
        if static_return:
            return out
        return tree_map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:])[:size], device_get(out))

    return call


__getattr__, __dir__ = _publish(globals())
