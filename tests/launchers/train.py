"""A small training run over the devices of all processes: `train.py FOLDER`.

Each process writes to FOLDER what it is, by what `initialize` has found, and the losses.
"""

import json
import sys
from pathlib import Path

import numpy as np

import phalanx
import phalanx.numpy as jnp
from phalanx.sharding import Mesh, NamedSharding, P

STEPS, ROWS, FEATURES = 5, 16, 4


def train() -> list[float]:
    """The losses of a linear regression by gradient descent, the rows of which are split over the devices."""
    rows = NamedSharding(Mesh(np.array(phalanx.devices()), ("data",)), P("data"))
    draws = np.random.default_rng(0).normal(size=(ROWS, FEATURES + 1)).astype(np.float32)
    x, y = phalanx.device_put((draws[:, 1:], draws[:, 0]), rows)
    step = phalanx.jit(phalanx.value_and_grad(lambda w, x, y: jnp.mean((x @ w - y) ** 2)))
    w, losses = jnp.zeros(FEATURES), []
    for _ in range(STEPS):
        loss, w_bar = step(w, x, y)
        w -= 0.1 * w_bar
        losses.append(float(loss))
    return losses


def main(folder: str, *arguments: str | int) -> None:
    """Train as one process of a program.

    Args:
      folder: where the outcome goes.
      *arguments: those of `initialize`; found in the environment by default.
    """
    phalanx.distributed.initialize(*arguments)
    found = {
        "process": phalanx.process_index(),
        "processes": phalanx.process_count(),
        "devices": phalanx.device_count(),
        "losses": train(),
    }
    Path(folder, f"{found['process']}.json").write_text(json.dumps(found))
    phalanx.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
