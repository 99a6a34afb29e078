"""Programs of `tools/ecosystem` for libraries that import jax print on Phalanx what they print on JAX.

They run where the library is installed; CI installs optax and equinox without jax. `make ecosystem` runs all programs.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "tools" / "ecosystem" / "programs"

NUMBER = r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?"

# The text that each program prints on JAX 0.12.
PRINTED = {
    "optax_adam": "loss 0.0000, w [ 1.  -2.   0.5], b 0.30\n",
    "optax_lbfgs": "minimum at [1. 1. 1.]\n",
    "orbax_save": "66.0 bfloat16 7\nndarray [4. 5. 6. 7.]\n",
    "equinox_mlp": "0 0.4472\n50 0.1893\n100 0.0244\n",
    "equinox_stateful": "[-0.39200002 -0.104     ] 4.756\nTrue 6\n",
}


@pytest.mark.parametrize(
    "program", [pytest.param(p, marks=[] if p == "equinox_mlp" else pytest.mark.slow) for p in PRINTED]
)
def test_a_program_prints_what_it_prints_on_jax(program):
    library = program.partition("_")[0]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", "run", PROGRAMS / f"{program}.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Numbers are compared approximately, since another processor may round their last digits otherwise.
    printed, expected = (re.split(f"({NUMBER})", text) for text in (done.stdout, PRINTED[program]))
    assert printed[::2] == expected[::2]
    np.testing.assert_allclose(list(map(float, printed[1::2])), list(map(float, expected[1::2])), atol=2e-3)


def test_every_library_has_two_programs():
    from tools.ecosystem.libraries import LIBRARIES, PREFIXES

    names = [p.stem.partition("_")[0] for p in PROGRAMS.glob("*.py")]
    found = sorted(PREFIXES.get(name, name) for name in names)
    assert found == sorted([library.name for library in LIBRARIES] * 2)
