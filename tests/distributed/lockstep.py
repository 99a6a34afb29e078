"""A plugin of pytest by which several processes run the same tests together, over the devices of all.

`phalanx launch -n 2 --devices 4 -- -m pytest -p tests.distributed.lockstep FILES`. Each process runs every test, in the same
order, and Hypothesis draws the same examples in each. Tests for one process hold here, too:

- devices are listed by turns, so that a mesh over the first two or four of them spans the processes;
- NumPy arguments are the same in all processes, so that programs may split them;
- reading an array over several processes gathers it first;
- meshes that a test draws have two devices or more, since one of a single device is in one of the processes only.
"""

import math
import os
import sys
from collections import defaultdict

from phalanx.experimental import multihost_utils

import phalanx
from phalanx.engine import client
from phalanx.runtime import Array, compiled_program, transfer
from phalanx.runtime.array import ArrayType

os.environ["CI"] = "1"  # Read by conftest.py, which is imported later: examples are not drawn at random.


def pytest_configure() -> None:
    phalanx.distributed.initialize(heartbeat_timeout_seconds=60)
    _list_devices_by_turns()
    _accept_host_arguments()
    _gather_what_is_read()


def pytest_collection_modifyitems(items: list) -> None:
    for module in {item.module for item in items}:
        if isinstance(sizes := getattr(module, "SIZES", None), list):
            sizes[:] = [shape for shape in sizes if math.prod(shape) > 1]


def _list_devices_by_turns() -> None:
    listed = client.devices

    def devices(backend=None):
        of_process = defaultdict(list)
        for device in listed(backend):
            of_process[device.process_index].append(device)
        return [device for turn in zip(*of_process.values(), strict=True) for device in turn]

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "phalanx":
            for attribute in [a for a, value in vars(module).items() if value is listed]:
                setattr(module, attribute, devices)


def _accept_host_arguments() -> None:
    plan = compiled_program.plan_transfers

    def plan_transfers(types, lowered, name_of):
        here = transfer.single_device_sharding(phalanx.local_devices()[0])
        needed = zip(types, lowered.in_shardings, strict=True)
        split = [t.sharding is None and not s.is_fully_addressable for t, s in needed]
        types = [ArrayType(t.aval, here) if is_split else t for t, is_split in zip(types, split, strict=True)]
        return plan(types, lowered, name_of)

    compiled_program.plan_transfers = plan_transfers


def _gather_what_is_read() -> None:
    assemble = Array._assemble

    def gather(x: Array):
        is_readable = x.is_fully_addressable or x.is_fully_replicated
        return assemble(x) if is_readable else multihost_utils.process_allgather(x, tiled=True)

    Array._assemble = gather
