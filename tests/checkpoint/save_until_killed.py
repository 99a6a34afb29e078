"""A program that saves a step and is killed at the n-th call of a function of the commit protocol, for every k-th n.

`python save_until_killed.py FOLDER K` forks a process for each n, which uses `FOLDER/<n>`, until one is not killed; the name
of the function at which each process was killed is printed. numpy arrays only, so that no client of XLA is started.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

from phalanx.checkpoint import array_store, leaf_records, loading, saving, step_folders  # noqa: F401
from phalanx.checkpoint.saving import save

array_store.import_tensorstore("")


def tree_of(step: int) -> dict:
    return {"w": np.arange(1000.0) + step, "b": {"c": np.full((3, 4), step, np.int8)}, "step": step}


def kill_at(n: int, report: int) -> None:
    """Kill this process at the n-th of the calls that change something on the disk."""
    count = 0

    def wrap(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def call(*args, **kwargs):
            nonlocal count
            count += 1
            if count == n:
                os.write(report, name.encode())
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        setattr(owner, name, call)

    for owner, names in [
        (os, ["mkdir", "rename", "fsync", "unlink", "rmdir"]),
        (saving, ["create_array", "merge_databases", "apply_retention"]),
        (step_folders, ["file_url"]),
        (leaf_records.StepDocument, ["to_json"]),
        (shutil, ["rmtree"]),
    ]:
        for name in names:
            wrap(owner, name)


def main(root: Path, stride: int) -> None:
    for n in range(1, 200, stride):
        folder, (read, write) = root / str(n), os.pipe()
        if not (process := os.fork()):
            save(folder, tree_of(1), step=1, wait=True)
            (folder / "7.partial").mkdir()
            (folder / "7.partial" / "x").write_text("left by a save that was killed")
            kill_at(n, write)
            save(folder, tree_of(2), step=2, keep=1, wait=True)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            name = pipe.read()
        _, status = os.waitpid(process, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0 and not name
            shutil.rmtree(folder)
            return
        print(n, name, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
