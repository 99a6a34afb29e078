"""A process waits in a sequence of exchanges, beside its launches, for one that fails: `failing_sequence.py SCENARIO FOLDER`.

The sequence is that of a checkpoint that is being saved while the program shuts down. Runs under `phalanx launch`.
"""

import os
import signal
import sys
import threading
import time

import numpy as np

import phalanx
from phalanx import checkpoint
from phalanx.checkpoint import saving
from phalanx.engine import client
from phalanx.sharding import Mesh, NamedSharding, P

DEAD_AFTER, STUCK_AFTER = {"killed": 5}, {"stuck": 3}
PATIENT = 60  # more than any process of a busy machine needs


def fail(scenario: str, is_shutting_down: threading.Event) -> None:
    is_shutting_down.wait()
    if scenario == "stuck":
        time.sleep(1e6)
    time.sleep(2)  # until process 0 waits, too
    os.kill(os.getpid(), signal.SIGKILL)


def save_and_shut_down(scenario: str, folder: str) -> None:
    is_shutting_down = threading.Event()
    if phalanx.process_index() == 1:
        saving._write_arrays = lambda *_: fail(scenario, is_shutting_down)
    rows = NamedSharding(Mesh(np.array(phalanx.devices()), ("x",)), P("x"))
    saved = checkpoint.save(folder, {"w": phalanx.device_put(np.zeros(4), rows)})
    is_shutting_down.set()
    phalanx.distributed.shutdown()
    saved.result()


def main(scenario: str, folder: str) -> None:
    phalanx.distributed.initialize(
        heartbeat_timeout_seconds=DEAD_AFTER.get(scenario, PATIENT),
        stuck_timeout_seconds=STUCK_AFTER.get(scenario, PATIENT),
    )
    try:
        if scenario != "leaving":
            save_and_shut_down(scenario, folder)
        elif phalanx.process_index() == 0:
            client.coordinator().exchange("the write", "", sequence="checkpoint")
    except phalanx.errors.ProcessFailure as error:
        print(f"noticed {error.kind} {error.process} in {error}", flush=True)
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
