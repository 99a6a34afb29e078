"""A training loop in which one process fails, under `phalanx launch`.

`failing_program.py SCENARIO VICTIM HEARTBEAT ADDRESS`, where the address is that of a second program.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.sharding import Mesh, NamedSharding, P


def load_batch():
    time.sleep(1e6)


def coordination_service():
    """The number of the process that the launcher has started for it."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            words = file.read_bytes().decode(errors="replace").split("\0")
            if os.environ["PHALANX_COORDINATOR_ADDRESS"] in words:
                return int(file.parent.name)
    raise ProcessLookupError


def fail(scenario, x, step, other_step):
    print(f"failing {time.time()}", flush=True)
    if scenario == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if scenario == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if scenario == "stuck":
        load_batch()
    if scenario == "raising":
        raise ValueError("bad batch")
    if scenario == "leaving":
        sys.exit(0)
    if scenario == "coordinator":
        os.kill(coordination_service(), signal.SIGKILL)
    if scenario == "reordering":
        other_step(x).block_until_ready()
    if scenario.startswith("colliding"):
        step(x[:, :1])
    if scenario == "different":
        phalanx.jit(lambda x: jnp.cos(x).sum())(x).block_until_ready()
    if scenario == "constants":
        own = np.array([phalanx.process_index(), 7], np.float32)
        phalanx.jit(lambda x: x[:, :2].sum() + own)(x).block_until_ready()
    if scenario == "callback-of-integers":  # whose result is 0, not NaN
        apply = lambda x: lax.psum(phalanx.pure_callback(broken, phalanx.typeof(x), x, vmap_method="sequential"), "x")
        options = dict(mesh=x.sharding.mesh, in_specs=P("x"), out_specs=P(), check_vma=False)
        ones = phalanx.device_put(np.ones(2 * phalanx.device_count(), np.int32), x.sharding)
        y = phalanx.jit(phalanx.shard_map(apply, **options))(ones)
        print(f"received {np.asarray(y)}", flush=True)
    if scenario == "callback":
        phalanx.jit(lambda x: phalanx.pure_callback(broken, phalanx.typeof(x), x))(x).block_until_ready()


def broken(x):
    if phalanx.process_index() == VICTIM:
        raise ValueError("bad callback")
    return x


def main(scenario):
    phalanx.distributed.initialize(heartbeat_timeout_seconds=HEARTBEAT, stuck_timeout_seconds=3)
    mesh = Mesh(np.array(phalanx.devices()), ("x",))
    x = phalanx.device_put(np.ones((2 * phalanx.device_count(), 16), np.float32), NamedSharding(mesh, P("x")))

    def average(x):
        if scenario == "colliding-longer":  # so that XLA does not run it inside its launch
            ones = jnp.ones((64, 64), np.float32)
            x = x + 0 * ((ones * x[0, 0]) @ ones).sum()
        return lax.psum(x, "x") / 8

    @phalanx.jit
    def step(x):
        return phalanx.shard_map(average, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x)

    @phalanx.jit
    def other_step(x):
        return x @ x.T

    other_step(x)
    if scenario.startswith("colliding"):
        step(x[:, :1])
    # No process waits for the coordinator, so they go on until they notice its end.
    for i in range(20_000 if scenario == "coordinator" else 8):
        if i == 4:
            if scenario.startswith("callback") or scenario == "constants" or phalanx.process_index() == VICTIM:
                fail(scenario, x, step, other_step)
            elif scenario == "different":
                phalanx.jit(lambda x: jnp.sin(x).sum())(x).block_until_ready()
        x = step(x)
        x.block_until_ready()


def initialize_again():
    """After the loss of the coordination service, over which the processes would find each other."""
    number, count = phalanx.process_index(), phalanx.process_count()
    try:
        phalanx.distributed.initialize()
    except phalanx.errors.ArgumentError as error:
        print(f"refused {error}".replace("\n", " "), flush=True)
    phalanx.distributed.initialize(sys.argv[4], count, number)
    mesh = Mesh(np.array(phalanx.devices()), ("x",))
    x = phalanx.device_put(np.ones(phalanx.device_count(), np.float32), NamedSharding(mesh, P("x")))
    print(f"again {float(phalanx.jit(jnp.sum)(x))}", flush=True)
    phalanx.distributed.shutdown()


if __name__ == "__main__":
    VICTIM, HEARTBEAT = int(sys.argv[2]), float(sys.argv[3])
    try:
        main(sys.argv[1])
    except phalanx.errors.ProcessFailure as error:
        print(f"noticed {time.time()} {error.kind} {error.process}", flush=True)
        if error.kind == "coordinator":
            initialize_again()
        raise
