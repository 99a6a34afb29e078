"""jaxlib's compiler waits for ever in a sub-interpreter, so the use of devices is refused there."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import _xxsubinterpreters as interpreters
interpreters.run_string(interpreters.create(), f'''
import sys, warnings
warnings.simplefilter("ignore")
sys.path[:0] = {sys.path!r}
import phalanx
try:
    phalanx.devices()
except RuntimeError as error:
    print(error)
''')
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from 3.12 on, sub-interpreters refuse to import jaxlib")
def test_devices_are_refused_in_a_subinterpreter():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.stdout == (
        "use of devices in a sub-interpreter: expected the main interpreter of the process, the only one that jaxlib "
        "supports, got another interpreter of the same process.\n"
        "  Fix: use threads, or processes from multiprocessing.get_context('spawn').\n"
    ), done.stderr
