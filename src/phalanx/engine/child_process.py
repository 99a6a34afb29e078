"""Child processes that run a function of this package, with pipes to this process.

`isolated_parser` parses programs of unknown origin in one; `offline_compiler` compiles for devices that are not
attached.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any


def start_child(module: str, *, stderr: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """Start a process that runs the function `main` of a module.

    Args:
      module: the module's name.
      stderr: as in `subprocess.Popen`.

    Returns:
      The process, with pipes for its standard input and output.
    """
    # The child must import this package from the same place as this process.
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    return subprocess.Popen(
        [sys.executable, "-c", f"from {module} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": path},
    )
