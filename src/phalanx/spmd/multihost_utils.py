"""Functions of `jax.experimental.multihost_utils` for programs with a single process.

Programs written for several processes call these functions to gather, broadcast and compare host values. With one
process, which owns all devices, each of them is simple. With several processes they raise an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import ArgumentTypeError, ShardingError, TraceError, Tracer, state
from phalanx.engine import client, guard_namespace as _guard
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.spmd import device_put
from phalanx.tree import broadcast_prefix, keystr, tree_flatten_with_path, tree_map, tree_unflatten
from phalanx.typing import ArrayLike, PyTree


def process_allgather(in_tree: PyTree, tiled: bool = False) -> Any:
    """Gather the values of all processes on every host.

    Args:
      in_tree: a pytree of host values or arrays.
      tiled: whether to concatenate the values of the processes along dimension 0 instead of stacking them.

    Returns:
      The pytree with NumPy arrays. Unless `tiled`, they have a leading dimension for the processes, of size 1.

    Examples:
      >>> process_allgather({"loss": 0.5, "counts": [1, 2]}, tiled=True)
      {'counts': [array(1), array(2)], 'loss': array(0.5)}
      >>> process_allgather(np.ones((4, 2))).shape
      (1, 4, 2)
    """
    _check_single_process("process_allgather")
    # The stacked dimension is that of the processes.
    whole = lambda x: _host_value(x, "process_allgather")
    return tree_map(whole if tiled else lambda x: whole(x)[None], in_tree)


def broadcast_one_to_all(in_tree: PyTree, is_source: bool | None = None) -> Any:
    """Broadcast the values of one process to every host.

    Args:
      in_tree: a pytree of host values or arrays.
      is_source: whether this process is the source; by default the first process is.

    Returns:
      The pytree with NumPy arrays.

    Raises:
      ArgumentTypeError: no process is the source.

    Examples:
      >>> broadcast_one_to_all({"seed": 7})
      {'seed': array(7)}
    """
    _check_single_process("broadcast_one_to_all")
    if is_source is not None and not is_source:
        raise ArgumentTypeError(
            "broadcast_one_to_all, argument is_source",
            expected="True in one process, which is the source",
            got="False in the only process",
            fix="leave is_source out, or pass is_source=process_index() == 0",
        )
    return tree_map(lambda x: _host_value(x, "broadcast_one_to_all"), in_tree)


def sync_global_devices(name: str) -> None:
    """Wait until all processes have called this function; a single process does not wait.

    Args:
      name: name of the synchronization point.

    Raises:
      ShardingError: there are several processes.

    Examples:
      >>> sync_global_devices("after the checkpoint")
    """
    _check_single_process("sync_global_devices")


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes should save and exit at this step, because one of them will be preempted.

    Args:
      step_id: the index of the step.

    Returns:
      False: preemption notices of a single process are not supported.

    Raises:
      ShardingError: there are several processes.

    Examples:
      >>> reached_preemption_sync_point(100)
      False
    """
    _check_single_process("reached_preemption_sync_point")
    return False


def assert_equal(in_tree: PyTree, fail_message: str = "") -> None:
    """Check that host values are equal in all processes, which is always true for a single process.

    Args:
      in_tree: a pytree of host values or arrays.
      fail_message: the message of the error.

    Raises:
      TraceError: a value is traced.
      ShardingError: there are several processes.

    Examples:
      >>> assert_equal({"seed": 7}, "seeds differ")
    """
    _check_single_process("assert_equal")
    tree_map(lambda x: _host_value(x, "assert_equal"), in_tree)


def host_local_array_to_global_array(local_inputs: PyTree, global_mesh: Mesh, pspecs: PyTree) -> Any:
    """Create arrays over a mesh from the data of each process; a single process has the full arrays.

    Args:
      local_inputs: a pytree of host values, arrays or tracers.
      global_mesh: the mesh.
      pspecs: the specs of the arrays, as a tree prefix of `local_inputs`.

    Returns:
      The pytree with arrays over the mesh. Differentiable: the cotangent passes through unchanged.

    Raises:
      ShardingError: a spec does not fit the mesh or its array.
      ArgumentTypeError: a leaf of `pspecs` is not a `PartitionSpec`.

    Examples:
      >>> import phalanx
      >>> mesh = phalanx.make_mesh((1,), ("x",))
      >>> host_local_array_to_global_array(np.arange(3), mesh, PartitionSpec("x")).sharding.spec
      PartitionSpec('x')
    """
    return _shard_values("host_local_array_to_global_array", local_inputs, global_mesh, pspecs, transfer=True)


def global_array_to_host_local_array(global_inputs: PyTree, global_mesh: Mesh, pspecs: PyTree) -> Any:
    """Extract the data of this process from arrays over a mesh; a single process has the full arrays.

    Args:
      global_inputs: a pytree of arrays.
      global_mesh: the mesh of the arrays.
      pspecs: the specs of the arrays, as a tree prefix of `global_inputs`.

    Returns:
      The pytree of arrays.

    Raises:
      ShardingError: a spec does not fit the mesh or its array.
      ArgumentTypeError: a leaf of `pspecs` is not a `PartitionSpec`.

    Examples:
      >>> import phalanx
      >>> mesh = phalanx.make_mesh((1,), ("x",))
      >>> whole = host_local_array_to_global_array(np.arange(3), mesh, PartitionSpec("x"))
      >>> global_array_to_host_local_array(whole, mesh, PartitionSpec("x")).tolist()
      [0, 1, 2]
    """
    return _shard_values("global_array_to_host_local_array", global_inputs, global_mesh, pspecs, transfer=False)


def _shard_values(what: str, values: PyTree, mesh: Mesh, pspecs: PyTree, transfer: bool) -> Any:
    _check_single_process(what)
    pairs, tree = tree_flatten_with_path(values)
    specs = broadcast_prefix(
        pspecs, values, what=f"{what}, pspecs", is_leaf=lambda s: s is None or isinstance(s, PartitionSpec)
    )
    out = []
    for (path, x), spec in zip(pairs, specs, strict=True):
        where = f"{what}, pspecs{keystr(path)}"
        if not isinstance(spec, PartitionSpec):
            raise ArgumentTypeError(
                where, expected="a PartitionSpec", got=repr(spec), fix="write PartitionSpec() for a replicated array"
            )
        sharding = NamedSharding(mesh, spec, where=where)
        sharding.shard_shape(np.shape(x), where=where)
        # A single process holds all shards, so its part of an array over the mesh is the array itself.
        out.append(device_put(x, sharding) if transfer else x)
    return tree_unflatten(tree, out)


def _host_value(x: ArrayLike, what: str) -> np.ndarray:
    if isinstance(x, Tracer) or state.trace is not None:
        raise TraceError(
            what, expected="concrete values", got=f"{x!r} while tracing", fix=f"call {what} outside of transformations"
        )
    return np.asarray(x)


def _check_single_process(what: str) -> None:
    """Raise an error if there are several processes, which these functions do not support."""
    count = client.process_count()
    if count > 1:
        raise ShardingError(
            what,
            expected="one process that owns all devices",
            got=f"{count} processes",
            fix="use shard_map and collectives over a mesh of all devices instead",
        )


_guard(globals())
