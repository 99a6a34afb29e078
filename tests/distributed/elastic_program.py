"""A program that goes on with fewer processes: `elastic_program.py FOLDER VICTIMS`, under `phalanx launch`.

The processes with the numbers VICTIMS are killed at step 5. The others form another program, in the same Python processes.
"""

import os
import signal
import sys
from collections.abc import Collection

import numpy as np
from phalanx.experimental import multihost_utils

import phalanx
import phalanx.numpy as jnp
from phalanx import checkpoint, lax
from phalanx.sharding import Mesh, NamedSharding, P

STEPS = 8


@phalanx.jit
def step(x, y):
    return jnp.cos(x + y.sum()), y * 1.01


def train(folder: str, victims: Collection[int] = ()) -> None:
    mesh = Mesh(np.array(phalanx.devices()), ("x",))
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    state = {"x": np.arange(96, dtype=np.float32).reshape(24, 4) / 96, "y": np.ones(3, np.float32), "step": 0}
    state |= {"x": phalanx.device_put(state["x"], rows), "y": phalanx.device_put(state["y"], whole)}
    total = phalanx.jit(phalanx.shard_map(lambda x: lax.psum(x.sum(), "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
    if checkpoint.steps(folder):
        state = checkpoint.load(folder, state)
    for i in range(state["step"], STEPS):
        if i == 5 and phalanx.process_index() in victims:
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = step(state["x"], state["y"])
        state = {"x": x, "y": y, "step": i + 1}
        float(total(x))
        if i % 2:
            checkpoint.save(folder, state, step=i + 1)
    multihost_utils.sync_global_devices("the end")
    print(f"total {float(total(x)):.6f} from step {i + 1} with {phalanx.device_count()} devices", flush=True)


def main(folder: str, *victims: str) -> None:
    phalanx.distributed.initialize(heartbeat_timeout_seconds=5)
    while True:
        try:
            train(folder, [int(victim) for victim in victims])
            break
        except phalanx.errors.ProcessFailure:
            victims = ()
            phalanx.distributed.initialize(heartbeat_timeout_seconds=5)


if __name__ == "__main__":
    main(*sys.argv[1:])
