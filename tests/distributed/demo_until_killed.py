"""The demo with a small model, one process of which may be killed: `demo_until_killed.py STEP ARGUMENTS`.

The losses of a run that ends go to `losses.json` in the working directory.
"""

import json
import os
import signal
import sys
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

import numpy as np
from tests.source_files import load_file

from phalanx.cli.demo import find_example

lm = load_file(find_example())


@dataclass(frozen=True)
class Small(lm.Config):
    layers: int = 2
    width: int = 32
    heads: int = 2
    hidden: int = 64
    window: int = 32
    batch: int = 8


def text() -> tuple:
    data = np.frombuffer(b"def f(x):\n    return x\n\n" * 400, np.uint8)
    return data, data, 1


def main(step: str, *arguments: str) -> None:
    draw, train = lm.training_batch, lm.train

    def draw_or_die(data, config, seed, number):
        is_first_start = os.environ["PHALANX_RESTART_COUNT"] == "0"
        if number == int(step) and os.environ["PHALANX_PROCESS_ID"] == "1" and is_first_start:
            os.kill(os.getpid(), signal.SIGKILL)
        return draw(data, config, seed, number)

    @wraps(train)
    def train_and_report(*args, **options):
        state, losses = train(*args, **options)
        if options.get("out") and os.environ["PHALANX_PROCESS_ID"] == "0":
            Path("losses.json").write_text(json.dumps(losses))
        return state, losses

    lm.Config, lm.read_library, lm.training_batch, lm.train = Small, text, draw_or_die, train_and_report
    lm.main(list(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
