"""What programs of many processes do together, as it is in one: gathering, spreading and comparing host values.

Programs written for pods import these. Where one process holds all devices each has a plain meaning, which is what
stands here; with several processes they are refused. Builds on placement.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core.config import state
from phalanx.core.errors import ArgumentTypeError, ShardingError, TraceError
from phalanx.core.trace import Tracer
from phalanx.engine import client
from phalanx.engine.frames import guard as _guard
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.spmd import device_put
from phalanx.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_map, tree_unflatten


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """What every process holds, on the host of every process.

    Args:
      in_tree: a tree of host values or arrays.
      tiled: join the parts of the processes along dimension 0, instead of stacking them along a new one.

    Returns:
      A tree of NumPy arrays: whole arrays, with a first dimension for the processes, of which there is one, unless
      `tiled`.

    Examples:
      >>> process_allgather({"loss": 0.5, "counts": [1, 2]}, tiled=True)
      {'counts': [array(1), array(2)], 'loss': array(0.5)}
      >>> process_allgather(np.ones((4, 2))).shape
      (1, 4, 2)
    """
    _alone("process_allgather")
    whole = lambda x: _host_value(x, "process_allgather")
    return tree_map(whole if tiled else lambda x: whole(x)[None], in_tree)


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The values of one process, on the host of every process.

    Args:
      in_tree: a tree of host values or arrays.
      is_source: whether this is the process whose values count; the first one if left out.

    Returns:
      A tree of NumPy arrays: with one process, its own values.

    Raises:
      ArgumentTypeError: no process is the source.

    Examples:
      >>> broadcast_one_to_all({"seed": 7})
      {'seed': array(7)}
    """
    _alone("broadcast_one_to_all")
    if is_source is not None and not is_source:
        raise ArgumentTypeError(
            "broadcast_one_to_all, argument is_source",
            expected="a process whose values count",
            got="False in the only process",
            mend="leave it out, or pass process_index() == 0",
        )
    return tree_map(lambda x: _host_value(x, "broadcast_one_to_all"), in_tree)


def sync_global_devices(name: str) -> None:
    """Wait until all processes are here, which one is at once.

    Args:
      name: where, for messages.

    Raises:
      ShardingError: there are several processes.

    Examples:
      >>> sync_global_devices("after the checkpoint")
    """
    _alone("sync_global_devices")


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes are to save and stop at this step: never, since nobody watches over one process.

    Args:
      step_id: the number of the step.

    Returns:
      False.

    Raises:
      ShardingError: there are several processes.

    Examples:
      >>> reached_preemption_sync_point(100)
      False
    """
    _alone("reached_preemption_sync_point")
    return False


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Refuse host values that are not the same in all processes; those of one are.

    Args:
      in_tree: a tree of host values or arrays.
      fail_message: what the error says.

    Raises:
      TraceError: a value is traced.
      ShardingError: there are several processes.

    Examples:
      >>> assert_equal({"seed": 7}, "seeds differ")
    """
    _alone("assert_equal")
    tree_map(lambda x: _host_value(x, "assert_equal"), in_tree)


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Arrays over a mesh, of which each process gives the part that its devices hold: with one process, all of it.

    Args:
      local_inputs: a tree of host values or arrays, traced ones among them.
      global_mesh: the mesh.
      pspecs: how each array lies over it, as a prefix of the tree.

    Returns:
      The tree of arrays. A gradient comes back as the cotangent of the same values.

    Raises:
      ShardingError: a spec does not fit the mesh or its array.
      ArgumentTypeError: a leaf of `pspecs` is no spec.

    Examples:
      >>> import phalanx
      >>> mesh = phalanx.make_mesh((1,), ("x",))
      >>> host_local_array_to_global_array(np.arange(3), mesh, PartitionSpec("x")).sharding.spec
      PartitionSpec('x')
    """
    return _placed("host_local_array_to_global_array", local_inputs, global_mesh, pspecs, moved=True)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """The part of arrays over a mesh that this process's devices hold, as an array: with one process, the array.

    Args:
      global_inputs: a tree of arrays.
      global_mesh: the mesh that they lie over.
      pspecs: how each array lies over it, as a prefix of the tree.

    Returns:
      The tree of arrays.

    Raises:
      ShardingError: a spec does not fit the mesh or its array.
      ArgumentTypeError: a leaf of `pspecs` is no spec.

    Examples:
      >>> import phalanx
      >>> mesh = phalanx.make_mesh((1,), ("x",))
      >>> whole = host_local_array_to_global_array(np.arange(3), mesh, PartitionSpec("x"))
      >>> global_array_to_host_local_array(whole, mesh, PartitionSpec("x")).tolist()
      [0, 1, 2]
    """
    return _placed("global_array_to_host_local_array", global_inputs, global_mesh, pspecs, moved=False)


def _placed(what: str, values: Any, mesh: Mesh, pspecs: Any, moved: bool) -> Any:
    _alone(what)
    tree = tree_flatten(values)[1]
    is_leaf = lambda s: s is None or isinstance(s, PartitionSpec)
    specs = broadcast_prefix(pspecs, values, what=f"{what}, pspecs", is_leaf=is_leaf)
    out = []
    for (path, x), spec in zip(tree_flatten_with_path(values)[0], specs, strict=True):
        where = f"{what}, pspecs{keystr(path)}"
        if not isinstance(spec, PartitionSpec):
            raise ArgumentTypeError(
                where, expected="a PartitionSpec", got=repr(spec), mend="write PartitionSpec() for a whole array"
            )
        sharding = NamedSharding(mesh, spec, where=where)
        sharding.shard_shape(np.shape(x), where=where)
        out.append(device_put(x, sharding) if moved else x)
    return tree_unflatten(tree, out)


def _host_value(x: Any, what: str) -> np.ndarray:
    if isinstance(x, Tracer) or state.trace is not None:
        raise TraceError(
            what, expected="values on the host", got=f"{x!r} while tracing", mend="call it outside of transformations"
        )
    return np.asarray(x)


def _alone(what: str) -> None:
    """Refuse several processes, of which this file knows nothing."""
    count = client.process_count()
    if count > 1:
        raise ShardingError(
            what,
            expected="one process that holds all devices",
            got=f"{count} processes",
            mend="use shard_map and its collectives over a mesh of all devices",
        )


_guard(globals())
