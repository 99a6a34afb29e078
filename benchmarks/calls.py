"""Calls of a function that is compiled already: flatten, look up, execute, wrap."""

from __future__ import annotations

import numpy as np

from benchmarks import floors
from benchmarks.harness import Row, bench

ONE_DEVICE = Row("compiled call with a dict of 1 / 10 / 100 / 1000 leaves in and out")
EIGHT_DEVICES = Row("the same over 8 devices")
THERE_AND_BACK = Row("device_put of a NumPy array to 8 devices and back")
PMAP = Row("pmap call with 1 / 10 / 100 leaves")


def _increment(xp, compile):
    return compile(lambda tree: xp.tree.map(lambda x: x + 1, tree))


def _leaves(xp, size):
    return {f"leaf{i}": xp.device_put(np.ones(4, np.float32)) for i in range(size)}


def _sharded_leaves(xp, size):
    mesh = xp.sharding.Mesh(np.array(xp.devices()[:8]), ("rows",))
    sharding = xp.sharding.NamedSharding(mesh, xp.sharding.PartitionSpec("rows"))
    return {f"leaf{i}": xp.device_put(np.ones((8, 4), np.float32), sharding) for i in range(size)}


def _rows(size):
    return {f"leaf{i}": np.ones((8, 4), np.float32) for i in range(size)}


def chained_call(increment, arrays):
    """Call a compiled function on its own last result, as a training loop does."""
    tree = [increment(arrays)]

    def call():
        tree[0] = increment(tree[0])
        return tree[0]

    return call


@bench(
    unit="us",
    row=ONE_DEVICE,
    at_most=(1.2, 1.1, 1.05, 1.05),
    sizes=(1, 10, 100, 1000),
    floor=lambda xp, size: floors.execution(_increment(xp, xp.jit), _leaves(xp, size)),
)
def dict_of_leaves(xp, size):
    """One device."""
    return chained_call(_increment(xp, xp.jit), _leaves(xp, size))


@bench(
    unit="us",
    row=EIGHT_DEVICES,
    at_most=1.05,
    sizes=(1, 10, 100),
    processes=7,
    floor=lambda xp, size: floors.execution(_increment(xp, xp.jit), _sharded_leaves(xp, size)),
)
def dict_of_sharded_leaves(xp, size):
    """Eight devices, each with a row of every leaf."""
    return chained_call(_increment(xp, xp.jit), _sharded_leaves(xp, size))


@bench(
    unit="us",
    row=Row("compiled call with scalars and NumPy arrays from the host"),
    at_most=1.1,
    floor=lambda xp: floors.execution(xp.jit(lambda x, y: x + y), np.ones(4, np.float32), 2.0),
)
def host_arguments(xp):
    """Arguments that have to be sent to the device first."""
    f, host = xp.jit(lambda x, y: x + y), np.ones(4, np.float32)
    return lambda: f(host, 2.0)


def _floor_of_pmap(xp, size):
    increment = _increment(xp, xp.pmap)
    return floors.execution(increment, increment(_rows(size)))


@bench(unit="us", row=PMAP, at_most=0.95, sizes=(1, 10, 100), processes=7, floor=_floor_of_pmap)
def pmapped_dict_of_leaves(xp, size):
    """Eight rows, one on each device."""
    return chained_call(_increment(xp, xp.pmap), _rows(size))


@bench(unit="us", row=THERE_AND_BACK, at_most=1.0, sizes=(1 << 6, 1 << 16), processes=5)
def there_and_back(xp, size):
    """A row for each device. We copy what we are given, the peer reads the memory of larger arrays; both copy once."""
    mesh = xp.sharding.Mesh(np.array(xp.devices()[:8]), ("rows",))
    sharding = xp.sharding.NamedSharding(mesh, xp.sharding.PartitionSpec("rows"))
    host = np.ones((8, size), np.float32)

    def call():
        np.asarray(xp.device_put(host, sharding))

    return call
