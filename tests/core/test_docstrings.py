"""Docstrings that are completed by decorators."""

import os
import subprocess
import sys


def test_the_library_works_without_docstrings():
    code = "import phalanx; print(float(phalanx.random.normal(phalanx.random.key(0))), phalanx.random.normal.__doc__)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-OO", "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("None\n"), done.stderr[-2000:]
