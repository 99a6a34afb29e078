"""One process of a distributed program that runs the checks it is told: `python worker.py ADDRESS COUNT NUMBER CHECKS PIPES`.

It reads the name of a check from one pipe, runs that function of the file CHECKS, and writes its outcome to the other.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback


def main(address: str, count: str, number: str, checks: str, commands: str, outcomes: str) -> None:
    import phalanx

    phalanx.distributed.initialize(address, int(count), int(number), heartbeat_timeout_seconds=120)
    spec = importlib.util.spec_from_file_location("checks", checks)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with open(int(commands)) as lines, open(int(outcomes), "w", buffering=1) as results:
        for line in lines:
            try:
                getattr(module, json.loads(line))()
                failure = None
            except BaseException:
                failure = traceback.format_exc()
            results.write(json.dumps(failure) + "\n")
    phalanx.distributed.shutdown()


if __name__ == "__main__":
    # As the tests in one process: programs that run once are not worth optimizing.
    sys.path[:0] = json.loads(os.environ["WORKER_PATH"])
    main(*sys.argv[1:])
