"""Fresh Python processes, for programs that ended or hung the process before they were mended."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def run_python(code: str, *, seconds: float = 60.0, num_devices: int = 8, **variables: str) -> str:
    """Run a program in a fresh process with CPU devices; returns its output, and fails unless it ends well in time."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PHALANX_NUM_CPU_DEVICES": str(num_devices),
        "PYTHONWARNINGS": "default",
        **variables,
    }
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=seconds)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout
