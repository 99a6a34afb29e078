"""Functions of `jax.experimental.multihost_utils`: operations on host values that all processes take part in.

Every process must call them, in the same order. Small values go through the coordination service, by which the
processes also compare what they are about to do; arrays go through the devices, one of each process. A program of one
process may call them, too.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    PhalanxError,
    ShapeError,
    ShardingError,
    TraceError,
    Tracer,
    is_extended,
    state,
)
from phalanx.engine import Device, buffers, client, guard_namespace as _guard
from phalanx.lax.prng.key_words import random_wrap_p
from phalanx.runtime import Array, ArrayType, transfer
from phalanx.runtime.process_comparison import compare_over_processes, host_value
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.spmd import device_put
from phalanx.spmd.jit import jit
from phalanx.spmd.make_array import assemble_array
from phalanx.tree import broadcast_prefix, keystr, tree_flatten_with_path, tree_unflatten
from phalanx.typing import ArrayLike, PyTree


def process_allgather(in_tree: PyTree, tiled: bool = False) -> Any:
    """Gather the values of all processes on every host.

    Args:
      in_tree: a pytree of host values or arrays, of the same shapes and dtypes in all processes. An array over several
        processes is gathered whole.
      tiled: whether to concatenate the values of the processes along dimension 0 instead of stacking them.

    Returns:
      The pytree with NumPy arrays, and with arrays of keys for those. Unless `tiled`, they have a leading dimension for
      the processes.

    Raises:
      ShapeError: the structures, shapes or dtypes differ between processes.
      ArgumentTypeError: a leaf is no value that bytes can represent.
      ShardingError: an array over several processes is to be stacked.

    Examples:
      >>> process_allgather({"loss": 0.5, "counts": [1, 2]}, tiled=True)
      {'counts': [array(1), array(2)], 'loss': array(0.5)}
      >>> process_allgather(np.ones((4, 2))).shape
      (1, 4, 2)
    """
    pairs, tree = tree_flatten_with_path(in_tree)
    leaves = [x for _, x in pairs]
    what, coordinator = "process_allgather", client.coordinator()
    values = [host_value(_replicate(x, tiled)) if _is_global(x) else _host_value(x, what) for x in leaves]
    local = [i for i, x in enumerate(leaves) if not _is_global(x)]
    _compare_types(what, [(keystr(pairs[i][0]), leaves[i]) for i in local], [values[i] for i in local])
    for i in local:
        value = values[i]
        if coordinator is None:
            values[i] = value if tiled else value[None]
            continue
        rows = np.asarray(device_put(_stack_bytes(value), _over_processes(PartitionSpec())))
        parts = rows.view(value.dtype).reshape(len(rows), *value.shape)
        values[i] = parts.reshape(-1, *parts.shape[2:]) if tiled and np.ndim(leaves[i]) else parts
    return tree_unflatten(tree, [_wrap_as(x, value) for x, value in zip(leaves, values, strict=True)])


def broadcast_one_to_all(in_tree: PyTree, is_source: bool | None = None) -> Any:
    """Broadcast the values of one process to every host.

    Args:
      in_tree: a pytree of host values or arrays, of the same shapes and dtypes in all processes.
      is_source: whether this process is the source; by default the first process is.

    Returns:
      The pytree with NumPy arrays, and with arrays of keys for those.

    Raises:
      ArgumentTypeError: no process is the source, or several are; a leaf is no value that bytes can represent.
      ShapeError: the structures, shapes or dtypes differ between processes.

    Examples:
      >>> broadcast_one_to_all({"seed": 7})
      {'seed': array(7)}
    """
    pairs, tree = tree_flatten_with_path(in_tree)
    leaves = [x for _, x in pairs]
    values = [_host_value(x, "broadcast_one_to_all") for x in leaves]
    coordinator = client.coordinator()
    is_first = coordinator is None or coordinator.process_id == 0
    claim = is_first if is_source is None else bool(is_source)
    # Every process has to learn the source, and that it is the only one, before any of them waits for data.
    claims = [str(claim)] if coordinator is None else coordinator.exchange("broadcast_one_to_all", str(claim))
    sources = [process for process, text in enumerate(claims) if text == "True"]
    if len(sources) != 1:
        raise ArgumentTypeError(
            "broadcast_one_to_all, argument is_source",
            expected="True in one process, which is the source",
            got="True in processes " + ", ".join(map(str, sources)) if sources else "False in every process",
            fix="leave is_source out, or pass is_source=process_index() == 0",
        )
    if coordinator is not None:
        _compare_types("broadcast_one_to_all", [(keystr(path), x) for path, x in pairs], values)
        select = jit(
            lambda stacks: [rows[sources[0]] for rows in stacks], out_shardings=_over_processes(PartitionSpec())
        )
        found = map(np.asarray, select(list(map(_stack_bytes, values))))
        values = [row.view(x.dtype).reshape(x.shape) for row, x in zip(found, values, strict=True)]
    return tree_unflatten(tree, [_wrap_as(x, value) for x, value in zip(leaves, values, strict=True)])


def sync_global_devices(name: str) -> None:
    """Wait until all processes have called this function, and their devices have finished what was started before.

    Args:
      name: name of the synchronization point.

    Raises:
      ProgramMismatchError: another process is at another synchronization point.

    Examples:
      >>> sync_global_devices("after the checkpoint")
    """
    coordinator = client.coordinator()
    if coordinator is not None:
        # Programs run asynchronously: a process that arrives may still have work on its devices.
        buffers.block_until_ready([buffer for buffer, *_ in buffers.live(client.client())])
        coordinator.exchange(f"sync_global_devices({name!r})", "")


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes should save and exit at this step, because one of them will be preempted.

    A scheduler announces this by sending SIGTERM to a process. All processes must start with the same step and call
    this function in each. From the first call on, SIGTERM does not end the process any more.

    Args:
      step_id: the index of the step.

    Returns:
      True in all processes at one step, which is the same in all. False in a program of one process.

    Examples:
      >>> reached_preemption_sync_point(100)
      False
    """
    coordinator = client.coordinator()
    return coordinator is not None and coordinator.reached_preemption_sync_point(step_id)


def assert_equal(in_tree: PyTree, fail_message: str = "") -> None:
    """Check that host values are equal in all processes, which is always true for a single process.

    Args:
      in_tree: a pytree of host values or arrays.
      fail_message: the message of the error.

    Raises:
      TraceError: a value is traced.
      ProcessesDifferError: a value differs between processes.

    Examples:
      >>> assert_equal({"seed": 7}, "seeds differ")
    """
    pairs, _ = tree_flatten_with_path(in_tree)
    named = [(keystr(path), _host_value(x, "assert_equal")) for path, x in pairs]
    coordinator = client.coordinator()
    if coordinator is not None:
        where = f"assert_equal{f', {fail_message}' if fail_message else ''}"
        compare_over_processes(coordinator, "assert_equal", where, named)


class ProcessFailureError(PhalanxError, RuntimeError):
    """A process was lost, or raised, in a block of `live_devices`.

    Its attribute `failed_devices` is the set of the devices of such processes.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(ProcessFailureError, RuntimeError)
      True
    """

    failed_devices: set[Device]


@contextlib.contextmanager
def live_devices(devices: Sequence[Device]) -> Iterator[list[Device]]:
    """Run a block on those devices whose processes are alive, in all of these processes or in none.

    All processes with such devices must enter the block. Each waits, at its begin and at its end, until the others have
    come, or are lost by the limits of `distributed.initialize`. If one is lost or raises meanwhile, the block raises in
    all of them; the next block then runs on the devices that are left. From then on, whatever takes part with a lost
    process raises `errors.ProcessFailure`. On CPUs, groups of devices that have communicated before the loss cannot
    communicate any more, while other groups can.

    Args:
      devices: the devices, at least one of which belongs to this process.

    Yields:
      The devices whose processes are alive, ordered by their ids; the same in all processes.

    Raises:
      ArgumentError: there are no devices, or none of this process.
      ProcessFailureError: another process was lost, or raised in the block.
      CoordinationError: the other processes have taken this one for lost.

    Examples:
      >>> import phalanx
      >>> with live_devices(phalanx.devices()[:1]) as devices:
      ...     mesh = Mesh(np.array(devices), ("x",))
      >>> mesh.size
      1
    """
    where, coordinator = "live_devices", client.coordinator()
    processes, own = sorted({device.process_index for device in devices}), client.process_index()
    if own not in processes:
        raise ArgumentError(
            f"{where}, devices",
            expected=f"at least one device of this process ({own})",
            got=f"devices of processes {processes}" if processes else "no devices",
            fix="pass phalanx.devices()",
        )
    in_order = sorted(devices, key=lambda device: device.id)
    if coordinator is None or coordinator.watch is None:
        yield in_order
        return
    among = None if len(processes) == coordinator.num_processes else processes
    live = coordinator.meet(f"{where}, begin", "", among=among)
    coordinator.watch.exclude(set(processes) - set(live))
    error = None
    try:
        yield [device for device in in_order if device.process_index in live]
    except Exception as caught:
        error = caught
    # The others report the error by its first line, which names its type.
    text = "" if error is None else f"{type(error).__name__}: {error}".partition("\n")[0]
    ends = coordinator.meet(f"{where}, end", text, among=among)
    lost = {process: "lost" for process in live if process not in ends}
    coordinator.watch.exclude(lost)
    # The own error says more than a report of it; after a loss, the failure names the lost process as well.
    if error is not None and not lost:
        raise error
    if failed := lost or {process: text for process, text in ends.items() if text}:
        failure = ProcessFailureError(
            where,
            expected="all processes to come to the end of the block",
            got="; ".join(f"process {process}: {text}" for process, text in failed.items()),
            fix="restore the state from before the block, and enter another block",
        )
        failure.failed_devices = {device for device in in_order if device.process_index in failed}
        raise failure from error


def host_local_array_to_global_array(local_inputs: PyTree, global_mesh: Mesh, pspecs: PyTree) -> Any:
    """Create arrays over a mesh from the data of each process; a single process has the full arrays.

    Args:
      local_inputs: a pytree of host values, arrays or tracers. Arrays over several processes are returned as they are.
      global_mesh: the mesh, of which the devices of this process form a contiguous sub-array.
      pspecs: the specs of the arrays, as a tree prefix of `local_inputs`.

    Returns:
      The pytree with arrays over the mesh. Differentiable, if there is one process: the cotangent passes through
      unchanged.

    Raises:
      ShardingError: a spec does not fit the mesh or its array.
      ArgumentTypeError: a leaf of `pspecs` is not a `PartitionSpec`.

    Examples:
      >>> import phalanx
      >>> mesh = phalanx.make_mesh((1,), ("x",))
      >>> host_local_array_to_global_array(np.arange(3), mesh, PartitionSpec("x")).sharding.spec
      P('x',)
    """

    def convert(x: Any, sharding: NamedSharding, where: str) -> Any:
        # The same spec over the devices of this process cuts its part as the whole mesh cuts the whole.
        local, scale = _local_sharding(sharding, np.ndim(x))
        local.shard_shape(np.shape(x), where=where)
        if _is_global(x) or not global_mesh.is_multi_process:
            return x if _is_global(x) else device_put(x, sharding)
        local.check_even(np.shape(x), where)  # the part of this process becomes a part of the whole
        _check_concrete(x, "host_local_array_to_global_array")
        return _reinterpret(device_put(x, local), sharding, tuple(np.multiply(np.shape(x), scale).tolist()))

    return _convert("host_local_array_to_global_array", convert, local_inputs, global_mesh, pspecs)


def global_array_to_host_local_array(global_inputs: PyTree, global_mesh: Mesh, pspecs: PyTree) -> Any:
    """Extract the data of this process from arrays over a mesh; a single process has the full arrays.

    Args:
      global_inputs: a pytree of arrays. Arrays of this process alone are returned as they are.
      global_mesh: the mesh of the arrays, of which the devices of this process form a contiguous sub-array.
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

    def convert(x: Any, sharding: NamedSharding, where: str) -> Any:
        sharding.shard_shape(np.shape(x), where=where)
        if not _is_global(x):
            return x
        sharding.check_even(np.shape(x), where)
        local, scale = _local_sharding(sharding, x.ndim)
        return _reinterpret(device_put(x, sharding), local, tuple(np.floor_divide(x.shape, scale).tolist()))

    return _convert("global_array_to_host_local_array", convert, global_inputs, global_mesh, pspecs)


def _convert(what: str, convert: Any, values: PyTree, mesh: Mesh, pspecs: PyTree) -> Any:
    """Apply a conversion to each leaf, with its sharding over the mesh."""
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
        out.append(convert(x, NamedSharding(mesh, spec, where=where), where))
    return tree_unflatten(tree, out)


def _local_sharding(sharding: NamedSharding, ndim: int) -> tuple[NamedSharding, np.ndarray]:
    """The same spec over this process's devices, and the number of such parts along each dimension of the whole."""
    assert isinstance(sharding.mesh, Mesh)
    local = NamedSharding(sharding.mesh.local_mesh, sharding.spec)
    return local, np.floor_divide(sharding.tiling(ndim).parts, local.tiling(ndim).parts)


def _reinterpret(x: Array, sharding: NamedSharding, shape: tuple[int, ...]) -> Array:
    """The shards of this process as the shards of another array."""
    aval = x.aval.update(shape=shape, sharding=None)
    return assemble_array([shard.data for shard in x.addressable_shards], ArrayType(aval, sharding, True))


def _is_global(x: Any) -> bool:
    return type(x) is Array and not x.is_fully_addressable


def _replicate(x: Array, tiled: bool) -> Any:
    if not tiled:
        raise ShardingError(
            "process_allgather, argument tiled",
            expected="True, since the parts of an array over several processes are not stacked",
            got="False",
            fix="pass tiled=True",
        )
    return device_put(x, transfer.replicated_sharding(x.sharding._device_assignment, [x.sharding]))


def _over_processes(spec: PartitionSpec) -> NamedSharding:
    """A sharding over the first device of each process."""
    # In reverse, so that the first device of a process overwrites its other ones.
    first = {device.process_index: device for device in reversed(client.devices())}
    return NamedSharding(Mesh(np.array([first[p] for p in sorted(first)], dtype=object), ("processes",)), spec)


def _stack_bytes(value: np.ndarray) -> Array:
    """The bytes of the values of all processes as the rows of an array: u8[processes, bytes].

    Values of 64 bits would not survive the way through the devices as numbers.
    """
    # As bytes, values of any dtype arrive as they were sent, strings included.
    sharding, row = _over_processes(PartitionSpec("processes")), np.frombuffer(value.tobytes(), np.uint8)[None]
    placed = device_put(row, transfer.single_device_sharding(next(iter(sharding.addressable_devices))))
    return assemble_array([placed], ArrayType(placed.aval.with_shape((sharding.num_devices, row.size)), sharding, True))


def _compare_types(what: str, pairs: Sequence[tuple[str, Any]], values: Sequence[np.ndarray]) -> None:
    """Compare structures, shapes and dtypes, before a program with other ones could end the process in its collectives.

    Args:
      what: the operation.
      pairs: the names of the leaves, and the leaves.
      values: their values on the host.
    """
    coordinator = client.coordinator()
    if coordinator is None:
        return
    ours = [
        f"{name or 'a value'} of {_describe(leaf if _holds_keys(leaf) else value)}"
        for (name, leaf), value in zip(pairs, values, strict=True)
    ]
    for process, text in enumerate(coordinator.exchange(what, json.dumps(ours))):
        # A tree with another number of leaves differs from this one at the first leaf that only one of them has.
        for mine, theirs in zip([*ours, "no further leaf"], [*json.loads(text), "no further leaf"], strict=False):
            if mine != theirs:
                raise ShapeError(
                    what,
                    expected=f"pytrees of the same structure, shapes and dtypes in all processes, here {mine}",
                    got=f"{theirs} in process {process}",
                    fix="pad the values to one shape, and give the pytrees the same leaves",
                )


def _describe(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}"


def _host_value(x: ArrayLike, what: str) -> np.ndarray:
    _check_concrete(x, what)
    value = host_value(x)
    if value.dtype.hasobject:
        raise ArgumentTypeError(
            what,
            expected="numbers, strings or arrays of them",
            got=repr(x),
            fix="pass pickle.dumps(x) as a NumPy array",
        )
    return value


def _holds_keys(x: Any) -> bool:
    return type(x) is Array and is_extended(x.dtype)


def _wrap_as(leaf: Any, value: np.ndarray) -> Any:
    """A value of the host as the kind of the leaf it comes from: NumPy cannot hold random keys."""
    return random_wrap_p(value, dtype=leaf.dtype) if _holds_keys(leaf) else value


def _check_concrete(x: object, what: str) -> None:
    if isinstance(x, Tracer) or state.trace is not None:
        raise TraceError(
            what, expected="concrete values", got=f"{x!r} while tracing", fix=f"call {what} outside of transformations"
        )


_guard(globals())
