"""A training loop of which one process receives SIGTERM: `preempted_program.py`, under `phalanx launch`."""

import os
import signal

import numpy as np
from phalanx.experimental import multihost_utils

import phalanx
from phalanx.sharding import Mesh, NamedSharding, P


def main():
    phalanx.distributed.initialize(heartbeat_timeout_seconds=60)
    mesh = Mesh(np.array(phalanx.devices()), ("x",))
    x = phalanx.device_put(np.zeros(phalanx.device_count(), np.float32), NamedSharding(mesh, P("x")))
    advance = phalanx.jit(lambda x: x + 1 + 0 * x.sum())
    for step in range(2000):
        if multihost_utils.reached_preemption_sync_point(step):
            print(f"saves step {step} with {x.addressable_shards[0].data.tolist()}", flush=True)
            return
        if step == 3 and phalanx.process_index() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        x = advance(x)


if __name__ == "__main__":
    main()
