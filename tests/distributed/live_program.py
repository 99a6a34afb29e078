"""Blocks of `live_devices`, in which a process raises and another one is killed; under `phalanx launch` with 3 processes."""

import os
import signal

import numpy as np
from phalanx.experimental import multihost_utils

import phalanx
from phalanx import lax
from phalanx.sharding import Mesh, NamedSharding, P


def total(devices: list) -> float:
    mesh = Mesh(np.array(devices), ("x",))
    x = phalanx.device_put(np.arange(len(devices), dtype=np.float32), NamedSharding(mesh, P("x")))
    add = phalanx.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    return float(phalanx.jit(add)(x)[0])


def run_block(number: int, own: int) -> str:
    with multihost_utils.live_devices(phalanx.devices()) as devices:
        if number == 1 and own == 1:
            raise ValueError("bad batch")
        if number == 2 and own == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"sum {total(devices) if number != 1 else 0} on {[device.process_index for device in devices]}"


def main() -> None:
    phalanx.distributed.initialize(heartbeat_timeout_seconds=5)
    own = phalanx.process_index()
    for number in range(4):
        try:
            outcome = run_block(number, own)
        except ValueError as error:
            outcome = type(error).__name__
        except multihost_utils.ProcessFailureError as error:
            outcome = f"ProcessFailureError of {sorted(device.process_index for device in error.failed_devices)}"
            print(str(error).partition("\n")[0], flush=True)
        print(f"block {number} {outcome}", flush=True)
    try:
        total(phalanx.devices())
    except phalanx.errors.ProcessFailure as error:
        print(f"outside: ProcessFailure of process {error.process}", flush=True)


if __name__ == "__main__":
    main()
