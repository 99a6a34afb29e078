"""A program that goes on with fewer processes: `elastic_program.py FOLDER ADDRESS VICTIM`, under `phalanx launch`.

The process with the number VICTIM is killed at step 5. The others form a new program at ADDRESS, in the same Python processes.
"""

import os
import signal
import sys

import numpy as np
import pytest
from phalanx.experimental import multihost_utils

import phalanx
import phalanx.numpy as jnp
from phalanx import checkpoint, lax
from phalanx.sharding import Mesh, NamedSharding, P

STEPS = 8


@phalanx.jit
def step(x, y):
    return jnp.cos(x + y.sum()), y * 1.01


def train(folder: str, victim: int | None) -> None:
    mesh = Mesh(np.array(phalanx.devices()), ("x",))
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    state = {"x": np.arange(96, dtype=np.float32).reshape(24, 4) / 96, "y": np.ones(3, np.float32), "step": 0}
    state |= {"x": phalanx.device_put(state["x"], rows), "y": phalanx.device_put(state["y"], whole)}
    total = phalanx.jit(phalanx.shard_map(lambda x: lax.psum(x.sum(), "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
    if checkpoint.steps(folder):
        state = checkpoint.load(folder, state)
    for i in range(state["step"], STEPS):
        if i == 5 and phalanx.process_index() == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = step(state["x"], state["y"])
        state = {"x": x, "y": y, "step": i + 1}
        float(total(x))
        if i % 2:
            checkpoint.save(folder, state, step=i + 1)
    multihost_utils.sync_global_devices("the end")
    print(f"total {float(total(x)):.6f} from step {i + 1} with {phalanx.device_count()} devices", flush=True)


def main(folder: str, address: str, victim: str) -> None:
    phalanx.distributed.initialize(heartbeat_timeout_seconds=5)
    number, count = phalanx.process_index(), phalanx.process_count()
    try:
        train(folder, int(victim))
    except phalanx.errors.ProcessFailure as error:
        survivors = [i for i in range(count) if i != error.process]
    if number == survivors[0]:
        phalanx.distributed.shutdown()
    for arguments in ((), (address, len(survivors))):
        with pytest.raises(
            phalanx.errors.ArgumentError, match="process_id of the program that the remaining processes"
        ):
            phalanx.distributed.initialize(*arguments)
    phalanx.distributed.initialize(address, len(survivors), survivors.index(number), heartbeat_timeout_seconds=5)
    train(folder, None)


if __name__ == "__main__":
    main(*sys.argv[1:])
