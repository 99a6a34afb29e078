"""The demo over two processes: the losses of one process, and going on from a checkpoint when one was killed."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from tests.distributed import demo_until_killed
from tests.distributed.demo_until_killed import Small, lm
from tests.distributed.process_group import launch

import phalanx
from phalanx import checkpoint

STEPS = 8


@pytest.fixture(scope="module")
def losses():
    """The losses of one process."""
    trainer = lm.Trainer(lm.make_mesh((4, 2)), Small(), STEPS)
    return lm.train(
        trainer, trainer.init(phalanx.random.key(0)), demo_until_killed.text()[0], Small(), seed=0, until=STEPS
    )[1]


def run(folder, step, *options):
    arguments = ["--steps", STEPS, "--save-every", 2, "--compare", 2, "--length", 4, "--out", folder / "out"]
    return launch(["-n", 2, "--devices", 4, *options], [demo_until_killed.__file__, step, *arguments], cwd=folder)


def test_two_processes_have_the_losses_of_one(losses, tmp_path):
    done = run(tmp_path, STEPS)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads((tmp_path / "losses.json").read_text()), losses, atol=1e-4)
    assert re.search(r"^\[0\] first 2 losses on 8 devices and on one: equal", done.stdout, re.M)
    assert "[0] a second process, from that file alone:" in done.stdout
    # Gloo prints from several threads, so lines of its own may be empty or mixed.
    assert not re.search(r"^\[1\] .*(step|loss|model|data:)", done.stdout, re.M)
    assert checkpoint.steps(tmp_path / "out") == [STEPS - 2, STEPS]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--min-processes", 1)])
def test_the_launcher_goes_on_from_the_checkpoint_when_a_process_was_killed(options, losses, tmp_path):
    done = run(tmp_path, 5, "--restarts", 1, "--grace", 60, *options)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\[0\] \S+ProcessFailure: .*expected process 1 to be alive", done.stderr, re.M)
    assert "phalanx launch: start again, 1 of 1" in done.stderr
    assert "[0] training from step 4 to 8" in done.stdout
    np.testing.assert_allclose(json.loads((tmp_path / "losses.json").read_text()), losses[4:], atol=1e-4)


@pytest.mark.slow
def test_the_command_runs_in_two_processes(tmp_path):
    done = launch(["-n", 2, "--devices", 4, "--"], ["-m", "phalanx", "demo", "--steps", 3, "--length", 4], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mesh: {'data': 4, 'model': 2}" in done.stdout
    assert re.search(r"^\[0\] first 3 losses on 8 devices and on one: equal", done.stdout, re.M)
    resumed = subprocess.run(
        [sys.executable, "-m", "phalanx", "demo", "--steps", "4", "--length", "4", "--resume", "runs/demo"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert "training from step 3 to 4" in resumed.stdout, resumed.stderr
