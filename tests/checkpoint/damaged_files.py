"""Copies of a step with one damaged file each: loading gives the right values, or an error that names the leaf."""

import random
import shutil
from pathlib import Path

import numpy as np

from phalanx import checkpoint
from phalanx.errors import CheckpointError


def damage(path: Path, rng: random.Random) -> str:
    """Flip a bit of a file or cut it off; describe it."""
    data = bytearray(path.read_bytes())
    if rng.random() < 0.2:
        end = rng.randrange(len(data))
        path.write_bytes(data[:end])
        return f"{path.name} cut off after {end} of {len(data)} bytes"
    place, bit = rng.randrange(len(data)), rng.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place} of {path.name}"


def check_damaged_copies(step: Path, tree: dict, count: int, scratch: Path) -> None:
    """Load `count` damaged copies of a step.

    Args:
      step: the folder of the step, which stays as it is.
      tree: a dict of the arrays and Python values that were saved, or of some of them.
      count: the number of copies.
      scratch: a folder for the copies.
    """
    rng = random.Random(count)
    names = checkpoint.metadata(step).leaves
    wrong, errors = [], 0
    for _ in range(count):
        copied = scratch / "0"
        shutil.copytree(step, copied)
        what = damage(rng.choice(sorted(p for p in copied.rglob("*") if p.is_file())), rng)
        try:
            loaded = checkpoint.load(scratch)
            wrong += [what for name in tree if not np.array_equal(loaded[name], tree[name])]
        except CheckpointError as error:
            errors += 1
            if not any(f"leaf {name!r}" in str(error) for name in names) and "tree.json" not in str(error):
                wrong.append(f"{what}: {error}")
        shutil.rmtree(copied)
    assert not wrong, wrong
    assert errors  # Many bits are of no use: the sizes of the files, and so which are hit, differ between runs.
