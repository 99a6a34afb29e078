"""Tests of shardings that are written for one process, run again by two processes with the same devices in all."""

import re
from pathlib import Path

from tests.distributed.process_group import launch

ROOT = Path(__file__).parents[2]
# They move arrays to single devices, or use half of the devices.
ONE_PROCESS = ["test_the_transpose_of_device_put", "test_a_mesh_block_inside_a_compiled_function"]


def test_constraints_hold_over_two_processes():
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-k", " and ".join(f"not {name}" for name in ONE_PROCESS)]
    program = ["-m", "pytest", "-p", "tests.distributed.lockstep", *options, "tests/spmd/test_constraint.py"]
    done = launch(["-n", 2, "--devices", 4, "--"], program, cwd=ROOT)
    assert done.returncode == 0, done.stdout
    for process in range(2):
        assert int(re.search(rf"^\[{process}\] (\d+) passed", done.stdout, re.M)[1]) >= 12, done.stdout
