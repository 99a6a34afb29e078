"""`phalanx demo`: run `examples/train_lm.py` as a user would run the file itself.

The example is a single script without imports from here, so this module only locates it: next to this file in an
installed wheel (the build copies it there), or in `examples/` in a checkout. Called by `phalanx.cli`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from phalanx.core import ArgumentError

_PLACES = (Path(__file__).with_name("train_lm.py"), Path(__file__).parents[3] / "examples" / "train_lm.py")


def find_example() -> Path:
    """Find the example's file.

    Returns:
      The path of `train_lm.py`.

    Raises:
      ArgumentError: the installation does not contain the file.
    """
    for path in _PLACES:
        if path.exists():
            return path
    raise ArgumentError(
        "phalanx demo",
        expected="the example train_lm.py in the installation",
        got="no file at " + " or ".join(map(str, _PLACES)),
        fix="install phalanx from its wheel or its repository, or run examples/train_lm.py from a clone",
    )


def run(argv: Sequence[str]) -> None:
    """Run the example with the given arguments.

    Args:
      argv: the command-line arguments after `phalanx demo`.
    """
    spec = importlib.util.spec_from_file_location("train_lm", find_example())
    assert spec is not None and spec.loader is not None, "a .py file always has a loader"
    example = sys.modules["train_lm"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.main(list(argv))
