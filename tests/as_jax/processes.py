"""Fresh Python processes, since serving `import jax` changes the process it is done in."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def run(
    *words: str, cwd: Path | None = None, paths: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python` with these words after it, these directories on its path, and these environment variables."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, str(SOURCE)]), **variables}
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, timeout=120)
