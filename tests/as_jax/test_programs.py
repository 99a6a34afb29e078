"""Typical programs for JAX run unmodified, and print what they print on the real one."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from tests.as_jax.processes import run

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?")

pytestmark = pytest.mark.slow


def split_numbers(text: str) -> tuple[list[str], list[float]]:
    """The text around the floating-point numbers, without differences in spaces, and the numbers."""
    around = [re.sub(r"\s+", "", part) for part in NUMBER.split(text)]
    return around, [float(number) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_prints_what_it_prints_on_jax(program):
    served = run("-m", "phalanx", "run", str(program), JAX_NUM_CPU_DEVICES="8")
    assert served.returncode == 0 and served.stdout, served.stderr
    if importlib.util.find_spec("jax") is None:
        pytest.skip("ran; there is no jax to compare with")
    real = run(str(program), JAX_NUM_CPU_DEVICES="8")
    assert real.returncode == 0, real.stderr
    (text, numbers), (expected_text, expected_numbers) = split_numbers(served.stdout), split_numbers(real.stdout)
    assert text == expected_text
    # The programs print three decimals or more, so that rounding alone may change the last one.
    np.testing.assert_allclose(numbers, expected_numbers, rtol=2e-3, atol=1e-3)
