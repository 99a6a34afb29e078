"""Real launchers start the same training run in two processes, which has the losses of one process: `make processes`.

Not collected with the other tests, since Slurm, Open MPI and Ray have to be installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launchers import train
from tests.launchers.slurm_cluster import slurm_cluster

import phalanx

PROGRAM = [sys.executable, train.__file__]
SECONDS = 300.0  # only bounds a hang
DEVICES = 4  # in all processes together
ENVIRON = {name: text for name, text in os.environ.items() if not name.startswith("PHALANX_")} | {
    "PYTHONPATH": os.pathsep.join(sys.path),
    "PHALANX_NUM_CPU_DEVICES": str(DEVICES // 2),
}


@pytest.fixture(scope="module")
def losses() -> list[float]:
    """The losses of one process."""
    assert phalanx.device_count() >= DEVICES
    return train.train()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="phx") as name:  # of a short path
        yield Path(name)


def require(command: str, package: str) -> None:
    if shutil.which(command) is None:
        pytest.fail(f"{command} is not installed: run `make processes` as root on Debian, or install {package}")


def run(command: list, environ: dict[str, str]) -> None:
    done = subprocess.run(list(map(str, command)), env=environ, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def check_outcomes(folder: Path, losses: list[float]) -> None:
    """Each process knows its own number and all devices, and has the losses of one process."""
    for process in range(2):
        found = json.loads((folder / f"{process}.json").read_text())
        assert found.pop("losses") == pytest.approx(losses, abs=1e-5)
        assert found == {"process": process, "processes": 2, "devices": DEVICES}


def test_srun_starts_the_processes_of_a_job_step(folder, losses):
    require("srun", "slurmctld, slurmd, slurm-client and munge")
    (folder / "slurm").mkdir()
    with slurm_cluster(folder / "slurm") as environ:
        run(["srun", "-n", 2, "--overcommit", *PROGRAM, folder], ENVIRON | {"SLURM_CONF": environ["SLURM_CONF"]})
    check_outcomes(folder, losses)


def test_mpirun_starts_the_processes(folder, losses):
    require("mpirun", "openmpi-bin")
    run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", 2, *PROGRAM, folder], ENVIRON)
    check_outcomes(folder, losses)


def test_actors_of_ray_form_a_program(folder, losses):
    if importlib.util.find_spec("ray") is None:
        pytest.fail("Ray is not installed: run `make processes`, or `pip install ray`")
    run([sys.executable, Path(__file__).with_name("ray_actors.py"), folder], ENVIRON)
    check_outcomes(folder, losses)
