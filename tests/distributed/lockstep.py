"""A plugin of pytest by which several processes run the same tests together, over the devices of all.

`phalanx launch -n 2 --devices 4 -- -m pytest -p tests.distributed.lockstep FILES`. Each process runs every test, in the same
order; with CI=1 in the environment, Hypothesis draws the same examples in each. Reading an array over several processes
gathers it first, so that tests for one process see whole values.
"""

from phalanx.experimental import multihost_utils

import phalanx
from phalanx.runtime import Array


def pytest_configure() -> None:
    phalanx.distributed.initialize(heartbeat_timeout_seconds=60)
    assemble = Array._assemble

    def gather(x: Array):
        is_readable = x.is_fully_addressable or x.is_fully_replicated
        return assemble(x) if is_readable else multihost_utils.process_allgather(x, tiled=True)

    Array._assemble = gather
