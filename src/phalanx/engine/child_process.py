"""Child processes that run a function of this package, with pipes to this process.

`isolated_parser` parses programs of unknown origin in one; `offline_compiler` compiles for devices that are not
attached; `coordination_service` serves the processes of a distributed program.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


def start_child(
    module: str,
    *arguments: str,
    environ: Mapping[str, str] = MappingProxyType({}),
    new_session: bool = False,
    stderr: Any = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start a process that runs the function `main` of a module.

    Args:
      module: the module's name.
      *arguments: the arguments of `main`.
      environ: environment variables, added to this process's.
      new_session: whether the process gets no signals of the terminal.
      stderr: as in `subprocess.Popen`.

    Returns:
      The process, with pipes for its standard input and output.
    """
    # The child must import this package from the same place as this process.
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys; from {module} import main; main(*sys.argv[1:])", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": path, **environ},
        start_new_session=new_session,
    )
