"""A program whose second save is interrupted: `save_until_killed.py FOLDER VICTIM FUNCTION`, under `phalanx launch`.

The process with the number VICTIM is killed when it calls FUNCTION, a step of the protocol.
"""

import os
import signal
import sys

import numpy as np

import phalanx
from phalanx import checkpoint
from phalanx.checkpoint import leaf_records, saving, step_folders
from phalanx.sharding import Mesh, NamedSharding, P

OWNERS = {
    "begin": step_folders.RunFolder,
    "checksum": saving._Pieces,
    "to_json": leaf_records.StepDocument,
    "rename": os,
}


def tree_of(step: int) -> dict:
    return {"w": np.arange(4000.0).reshape(8, 500) + step, "local": np.full(3, step), "step": step}


def main(folder: str, victim: str, function: str) -> None:
    phalanx.distributed.initialize(heartbeat_timeout_seconds=5)
    rows = NamedSharding(Mesh(np.array(phalanx.devices()), ("x",)), P("x"))

    def save(step: int) -> None:
        tree = tree_of(step)
        checkpoint.save(folder, tree | {"w": phalanx.device_put(tree["w"], rows)}, step=step, keep=1, wait=True)

    save(1)
    if phalanx.process_index() == int(victim):
        setattr(OWNERS.get(function, saving), function, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    save(2)


if __name__ == "__main__":
    main(*sys.argv[1:])
