"""Checkpoints over several processes: the checks of `checkpoint_checks.py`, and what is saved and loaded elsewhere."""

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.checkpoint.damaged_files import check_damaged_copies
from tests.distributed import checkpoint_checks, save_until_killed
from tests.distributed.process_group import ProcessGroup, launch

from phalanx import checkpoint

CHECKS = Path(__file__).with_name("checkpoint_checks.py")
FIRST = ["save_a_step", "load_what_all_have_saved"]
NAMES = [
    node.name
    for node in ast.parse(CHECKS.read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name not in FIRST
][2:]
COUNTS = [2, pytest.param(4, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def saved(root):
    """A step that this process has saved, which is one of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHECKPOINT_FOLDER", str(root))
        checkpoint_checks.save_a_step()
        yield


@pytest.fixture(scope="module", params=COUNTS)
def group(request, saved):
    started = ProcessGroup(CHECKS, request.param, 8 // request.param)
    yield started
    started.close()


@pytest.fixture(scope="module")
def step(group, root):
    """The folder of a step that the group has saved."""
    group.run("save_a_step")
    return root / str(group.arguments[1]) / "1"


def test_steps_go_from_any_number_of_processes_to_any_other(step, group, root):
    assert {path.name for path in root.glob("[0-9]")} >= {"1", str(group.arguments[1])}
    group.run("load_what_all_have_saved")
    checkpoint_checks.load_what_all_have_saved()


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_damaged_files_of_several_processes_give_an_error_or_the_right_values(count, step, tmp_path):
    truth = {name: value for name, value in checkpoint.load(step).items() if name != "keys"}
    check_damaged_copies(step, truth, count, tmp_path)


@pytest.mark.parametrize("check", NAMES)
def test_over_processes(group, check):
    group.run(check)


# Where each process is killed, and the steps that are there afterwards
POINTS = {
    "0 begin": [1],
    "0 _write_arrays": [1],
    "0 checksum": [1],
    "0 check_equal": [1],
    "0 merge_databases": [1],
    "0 to_json": [1],
    "0 rename": [1],
    "0 apply_retention": [1, 2],
    "1 _check_arguments": [1],
    "1 _write_arrays": [1],
    "1 checksum": [1],
    "1 check_equal": [2],  # all have written
}
QUICK = ["0 rename", "0 apply_retention", "1 checksum"]


def kill(folder, point):
    return launch(["-n", 2, "--devices", 2, "--grace", 60], [save_until_killed.__file__, folder, *point.split()])


@pytest.fixture(scope="module")
def killed(root, request):
    tests = [item for item in request.session.items if item.name.startswith("test_a_process_killed_at_any_point_loses")]
    with ThreadPoolExecutor(3) as pool:
        points = [item.callspec.params["point"] for item in tests]
        yield {point: pool.submit(kill, root / point, point) for point in points}


@pytest.mark.parametrize("point", [pytest.param(p, marks=[pytest.mark.slow] * (p not in QUICK)) for p in POINTS])
def test_a_process_killed_at_any_point_loses_no_committed_step(point, killed, root):
    done = killed[point].result()
    assert done.returncode == 137, done.stderr
    victim = int(point[0])
    assert f"[{1 - victim}] phalanx.errors.ProcessFailure: " in done.stderr
    assert f"expected process {victim} to be alive" in done.stderr and "terminate called" not in done.stderr
    assert checkpoint.steps(root / point) == POINTS[point]
    checkpoint.save(root / point, save_until_killed.tree_of(3), step=3, wait=True)
    for step in (*POINTS[point], 3):
        loaded, truth = checkpoint.load(root / point, step=step), save_until_killed.tree_of(step)
        assert all(np.array_equal(loaded[name], truth[name]) for name in truth | loaded)
    assert all(path.name.isdigit() or path.name == ".lock" for path in (root / point).iterdir())
