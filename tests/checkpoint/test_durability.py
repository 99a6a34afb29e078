"""A crash at any moment, damaged files, full disks, two savers at once: what was saved before is loaded, or an error says why."""

import _thread
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.checkpoint.damaged_files import check_damaged_copies

from phalanx import checkpoint
from phalanx.checkpoint import saving, step_folders
from phalanx.errors import ArgumentError, CheckpointError, CheckpointNotFoundError, CheckpointSaveError

pytest.importorskip("tensorstore")

ROOT = Path(__file__).parents[2]


def run_program(*words, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, env=environment, **options
    )


class StartIsInterrupted(threading.Thread):
    """A thread whose start is interrupted when it has begun, but before its number is known."""

    def start(self):
        _thread.start_new_thread(self.run, ())
        raise KeyboardInterrupt


def tree_of(step):
    return {"w": np.arange(1000.0) + step, "b": {"c": np.full((3, 4), step, np.int8)}, "step": step}


def assert_is_step(folder, step):
    loaded = checkpoint.load(folder, step=step)
    np.testing.assert_array_equal(loaded["w"], tree_of(step)["w"])
    assert loaded["step"] == step and (loaded["b"]["c"] == step).all()


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_process_killed_at_any_point_of_the_protocol_loses_no_committed_step(stride, tmp_path):
    killed = run_program(Path(__file__).parent / "save_until_killed.py", tmp_path, stride)
    assert killed.returncode == 0, killed.stderr
    points = [line.split() for line in killed.stdout.splitlines()]
    assert len(points) >= 35 / stride
    if stride == 1:
        assert {name for _, name in points} >= {
            "mkdir",
            "create_array",
            "merge_databases",
            "to_json",
            "fsync",
            "rename",
        }
    found = set()
    for n, name in points:
        folder = tmp_path / n
        steps = tuple(checkpoint.steps(folder))
        found.add(steps)
        assert steps in {(1,), (1, 2), (2,)}, name
        for step in steps:
            assert_is_step(folder, step)
    assert found >= {(1,), (2,)}
    for n, _ in random.Random(0).sample(points, 2):
        checkpoint.save(tmp_path / n, tree_of(3), step=3, wait=True)
        assert_is_step(tmp_path / n, 3)
        assert all(p.name.isdigit() or p.name == ".lock" for p in (tmp_path / n).iterdir())


def test_a_process_that_is_killed_while_it_writes_releases_the_folder(tmp_path):
    program = """
import os, sys, signal, threading
import numpy as np
from phalanx.checkpoint import saving
saving.merge_databases = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
saving.save(sys.argv[1], {"w": np.zeros(10)}, step=5)
threading.Event().wait()
"""
    checkpoint.save(tmp_path, tree_of(4), step=4, wait=True)
    assert run_program("-c", program, tmp_path).returncode == -9
    assert (tmp_path / "5.partial").is_dir() and checkpoint.steps(tmp_path) == [4]
    checkpoint.save(tmp_path, tree_of(5), step=5, wait=True)
    assert_is_step(tmp_path, 5)


def test_the_end_of_a_program_waits_for_the_last_save_and_reports_its_error(tmp_path):
    program = """
import sys, time
import numpy as np
from phalanx.checkpoint import saving
merge = saving.merge_databases
saving.merge_databases = lambda *args: (time.sleep(0.2), merge(*args))
saving.save(sys.argv[1], {"w": np.arange(1000.0) + 1, "b": {"c": np.full((3, 4), 1, np.int8)}, "step": 1}, step=1)
"""
    assert run_program("-c", program, tmp_path).returncode == 0
    assert_is_step(tmp_path, 1)
    failing = program.replace("merge(*args))", "1 / 0)").replace("step=1)", "step=2)")
    done = run_program("-c", failing, tmp_path)
    assert "ZeroDivisionError: division by zero" in done.stderr and checkpoint.steps(tmp_path) == [1]


def test_ctrl_c_while_a_save_is_waited_for_does_not_end_it(tmp_path):
    """The next save waits for it, and so does the end of the program."""
    program = """
import os, signal, sys, threading, time, traceback
import numpy as np
from phalanx.checkpoint import saving
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell starts programs in the background without it.
merge, main, interrupted = saving.merge_databases, threading.main_thread().ident, threading.Event()

def is_waited_for():
    return any(frame.f_code.co_name == "result" for frame, _ in traceback.walk_stack(sys._current_frames()[main]))

def interrupt_and_merge(*args):
    while not is_waited_for():
        time.sleep(0.01)
    os.kill(os.getpid(), 2)
    assert interrupted.wait(60)
    interrupted.clear()
    return merge(*args)

saving.merge_databases = interrupt_and_merge
for step in range(3):
    try:
        saving.save(sys.argv[1], {"w": np.arange(1000.0) + step, "b": {"c": np.full((3, 4), step, np.int8)}, "step": step}).result()
    except KeyboardInterrupt:
        print("interrupted")
        interrupted.set()
"""
    done = run_program("-c", program, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n" * 3, "")
    for step in range(3):
        assert_is_step(tmp_path, step)


def test_a_save_at_exit_is_committed_or_an_error(tmp_path):
    program = """
import atexit, sys
from phalanx import checkpoint
checkpoint.save(sys.argv[1], {"n": 1}, step=1)
atexit.register(lambda: checkpoint.save(sys.argv[1], {"n": 2}, step=2))
"""
    done = run_program("-c", program, tmp_path)
    assert done.returncode == 0
    # Python 3.12 cannot start a thread then.
    is_error = "expected to start a thread that writes the files" in done.stderr
    assert checkpoint.steps(tmp_path) == ([1] if is_error else [1, 2])
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("count", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_damaged_files_give_an_error_or_the_right_values(count, tmp_path):
    tree = {f"leaf{i}": np.random.default_rng(i).normal(size=(20, 30)) for i in range(4)}
    tree |= {"n": 3, "zeros": np.zeros(99)}
    whole = checkpoint.save(tmp_path / "whole", tree, step=0).result()
    check_damaged_copies(whole, tree, count, tmp_path / "damaged")


def test_a_lost_file_is_named_with_its_leaf(tmp_path):
    # One leaf, since tensorstore may write several into one file.
    folder = checkpoint.save(tmp_path, {"v": np.arange(100_000.0)}, step=3).result()
    for path in (folder / "process_0" / "d").iterdir():
        if path.stat().st_size > 100_000:
            path.unlink()
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path)
    assert str(caught.value).startswith(
        f"checkpoint.load, leaf 'v' of '{folder}': expected elements that match their checksums, got "
    )
    (folder / "tree.json").unlink()
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path)
    assert str(caught.value) == (
        f"checkpoint.load, path: expected a folder that checkpoint.save or Orbax wrote, got '{folder}' without the file tree.json.\n"
        "  Fix: check the path; if the file is lost, restore it from a copy or load another step."
    )


@pytest.mark.parametrize("text", ["", "[1]", "null", "3", '"x"', "[" * 100_000, "{}", '{"format": 1}'])
def test_a_description_that_is_none_is_an_error(text, tmp_path):
    document = checkpoint.save(tmp_path, {"n": 1}).result() / "tree.json"
    document.write_text(text)
    with pytest.raises(
        CheckpointError, match=r"tree\.json': expected a complete description of a checkpoint, got no such"
    ):
        checkpoint.load(tmp_path)


def test_another_version_of_the_format_is_an_error(tmp_path):
    document = checkpoint.save(tmp_path, {"n": 1}).result() / "tree.json"
    document.write_text(document.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path)
    assert str(caught.value) == (
        f"checkpoint.load, '{document}': expected phalanx.checkpoint of version 1, got phalanx.checkpoint of version 2.\n"
        "  Fix: read it with the version of Phalanx that wrote it."
    )


def test_a_disk_that_is_full_is_an_error_and_the_steps_before_stay(tmp_path):
    program = """
import resource, signal, sys
import numpy as np
from phalanx import checkpoint
checkpoint.save(sys.argv[1], {"w": np.zeros(10)}, step=0, wait=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
saving = checkpoint.save(sys.argv[1], {"w": np.random.default_rng(0).normal(size=1_000_000)}, step=1)
try:
    saving.result()
except OSError as error:
    print(error.errno, type(error).__name__, error)
print(checkpoint.steps(sys.argv[1]), len(checkpoint.load(sys.argv[1])["w"]))
"""
    done = run_program("-c", program, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"27 CheckpointSaveError checkpoint.save, step 1: expected to write to '{tmp_path}', got " in done.stdout
    assert "File too large" in done.stdout and done.stdout.endswith("[0] 10\n")


def test_an_error_appears_at_result_or_at_the_next_save(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(saving, "merge_databases", fail)
        first = checkpoint.save(tmp_path, {"n": np.ones(1)}, step=1)
        with pytest.raises(CheckpointSaveError) as caught:
            first.result()
        assert caught.value.errno == 28 and first.done()
        assert str(caught.value) == (
            f"checkpoint.save, step 1: expected to write to '{tmp_path}', got OSError: [Errno 28] No space left on device.\n"
            "  Fix: free some space, or save to a folder that can be written; the steps saved before can still be loaded."
        )
        checkpoint.save(tmp_path, {"n": np.ones(1)}, step=2)
        with pytest.raises(CheckpointSaveError, match="step 2"):
            checkpoint.save(tmp_path, {"n": np.ones(1)}, step=3)
    checkpoint.save(tmp_path, {"n": np.ones(1)}, step=3, wait=True)
    assert checkpoint.steps(tmp_path) == [3]


def test_a_folder_that_vanishes_during_a_save_is_an_error(tmp_path, monkeypatch):
    merge = saving.merge_databases
    monkeypatch.setattr(saving, "merge_databases", lambda *args: (merge(*args), shutil.rmtree(tmp_path / "run")))
    with pytest.raises(CheckpointSaveError):
        checkpoint.save(tmp_path / "run", {"n": np.ones(1)}, wait=True)
    monkeypatch.undo()
    checkpoint.save(tmp_path / "run", {"n": np.ones(1)}, wait=True)


def test_a_folder_that_vanishes_before_the_first_write_is_an_error(tmp_path, monkeypatch):
    write, run = saving._write_arrays, tmp_path / "run"
    checkpoint.save(run, {"n": np.ones(1)}, step=1, wait=True)
    monkeypatch.setattr(saving, "_write_arrays", lambda *args: (shutil.rmtree(run), write(*args)))
    with pytest.raises(CheckpointSaveError) as caught:
        checkpoint.save(run, {"n": np.ones(1)}, step=2, wait=True)
    assert str(caught.value) == (
        f"checkpoint.save, step 2: expected '{run / '2.partial'}' to stay until the step is committed, got a folder that was "
        "deleted or moved while the step was written.\n"
        "  Fix: save again; checkpoint.steps(path) lists the steps that are left."
    )
    assert checkpoint.steps(run) == []


def test_a_remainder_that_cannot_be_removed_is_a_warning(tmp_path, monkeypatch):
    (tmp_path / "7.deleted").mkdir()

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.warns(UserWarning) as caught:
        checkpoint.save(tmp_path, {"n": np.ones(1)}, step=8, wait=True)
    assert [(str(each.message), each.filename) for each in caught] == [
        (
            f"checkpoint.save, path: expected to remove '7.deleted', left in '{tmp_path}' by an interrupted save or deletion, "
            f"got PermissionError: [Errno 13] Permission denied: '{tmp_path / '7.deleted'}'.\n"
            "  Fix: delete '7.deleted' by hand; other steps can be saved and loaded meanwhile.",
            __file__,
        )
    ]
    assert checkpoint.steps(tmp_path) == [8]


def test_a_path_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointSaveError, match="expected to write to"):
        checkpoint.save(tmp_path / "file" / "run", {"n": 1})


def test_two_savers_at_once_are_an_error(tmp_path):
    with step_folders.RunFolder(tmp_path).lock("test"):
        with pytest.raises(CheckpointSaveError) as caught:
            checkpoint.save(tmp_path, {"n": 1})
    assert str(caught.value) == (
        f"checkpoint.save, path: expected a folder to which no one else saves, got '{tmp_path}', locked by another save.\n"
        "  Fix: save to another folder, or wait until the other save has ended."
    )


def test_a_process_that_was_forked_during_a_save_does_not_keep_the_folder_locked(tmp_path):
    """The child lives on after the save has ended, and after its parent has been killed during one."""
    program = """
import os, sys, signal, time
import numpy as np
from phalanx.checkpoint import saving
folder = sys.argv[1]

def fork(*_):
    forked, child = os.pipe()
    if not os.fork():
        os.write(child, b"1")
        time.sleep(30)
        os._exit(0)
    os.read(forked, 1)

merge = saving.merge_databases
saving.merge_databases = lambda *args: (fork(), merge(*args))
saving.save(folder, {"w": np.ones(3)}, wait=True)
saving.save(folder, {"w": np.ones(3)}, wait=True)
saving.merge_databases = lambda *args: (fork(), os.kill(os.getpid(), signal.SIGKILL))
saving.save(folder, {"w": np.ones(3)}, wait=True)
"""
    started = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        start_new_session=True,
    )
    try:
        assert started.wait() == -9
        checkpoint.save(tmp_path, {"w": np.ones(3)}, wait=True)
        assert checkpoint.steps(tmp_path) == [0, 1, 2]
    finally:
        os.killpg(started.pid, 9)


def test_a_thread_that_cannot_start_is_an_error_that_releases_the_folder(tmp_path, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(CheckpointSaveError) as caught:
            checkpoint.save(tmp_path, {"n": np.ones(1)})
    assert str(caught.value) == (
        "checkpoint.save, step 0: expected to start a thread that writes the files, got RuntimeError: can't start new thread.\n"
        "  Fix: let the program have fewer threads, and save before it ends."
    )
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    checkpoint.save(tmp_path, {"n": np.ones(1)}, wait=True)
    assert checkpoint.steps(tmp_path) == [0]


def test_every_folder_that_was_created_is_forced_to_the_disk(tmp_path, monkeypatch):
    forced, force = [], step_folders.force_to_disk
    monkeypatch.setattr(step_folders, "force_to_disk", lambda path: (forced.append(str(path)), force(path)))
    checkpoint.save(tmp_path / "a" / "b" / "run", {"n": np.ones(1)}, wait=True)
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b"), str(tmp_path / "a" / "b" / "run")} <= {
        *forced
    }
    assert str(tmp_path.parent) not in forced


def test_a_step_is_deleted_beside_the_remainder_of_an_interrupted_deletion(tmp_path):
    checkpoint.save(tmp_path, {"n": 5}, step=5, wait=True)
    (tmp_path / "5.deleted" / "process_0").mkdir(parents=True)
    checkpoint.delete(tmp_path, 5)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_step_that_is_a_link_is_deleted_without_its_files(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    checkpoint.save(other, {"n": 0}, step=0, wait=True)
    checkpoint.save(run, {"n": 1}, step=1, wait=True)
    (run / "0").symlink_to(other / "0")
    assert checkpoint.load(run, step=0) == {"n": 0}
    checkpoint.save(run, {"n": 2}, step=2, keep=1, wait=True)
    assert checkpoint.steps(run) == [2] and checkpoint.load(other) == {"n": 0}


def test_a_save_in_progress_can_be_asked_and_waited_for(tmp_path, monkeypatch):
    go, merge = threading.Event(), saving.merge_databases
    monkeypatch.setattr(saving, "merge_databases", lambda *args: (go.wait(), merge(*args)))
    running = checkpoint.save(tmp_path, {"n": np.ones(2)}, step=4)
    assert not running.done() and checkpoint.steps(tmp_path) == []
    with pytest.raises(TimeoutError, match=r"expected step 4 to be committed within 0\.01 s"):
        running.result(timeout=0.01)
    go.set()
    assert running.result() == tmp_path / "4" and running.done()


def test_a_step_is_saved_once(tmp_path):
    checkpoint.save(tmp_path, {"n": 1}, step=2, wait=True)
    with pytest.raises(ArgumentError) as caught:
        checkpoint.save(tmp_path, {"n": 2}, step=2)
    assert str(caught.value) == (
        f"checkpoint.save, step: expected a step that is not saved yet, got 2, which '{tmp_path}' has.\n"
        "  Fix: pass another step, or call checkpoint.delete(path, 2) first."
    )
    checkpoint.delete(tmp_path, 2)
    checkpoint.save(tmp_path, {"n": 2}, step=2, wait=True)
    assert checkpoint.load(tmp_path) == {"n": 2}


def test_an_absent_checkpoint_is_an_error_that_lists_the_steps(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        checkpoint.load(tmp_path / "nowhere")
    assert str(caught.value) == (
        f"checkpoint.load, path: expected a folder with a checkpoint, got '{tmp_path / 'nowhere'}' with no checkpoint.\n"
        "  Fix: check the path, or save a checkpoint first."
    )
    for step in range(12):
        checkpoint.save(tmp_path, {"n": 1}, step=step)
    checkpoint.save(tmp_path, {"n": 1}, wait=True)
    with pytest.raises(CheckpointNotFoundError) as caught:
        checkpoint.delete(tmp_path, 77)
    assert str(caught.value) == (
        f"checkpoint.delete, path: expected a checkpoint of step 77, got '{tmp_path}' with the steps "
        "[0, 1, 2, ..., 9, 10, 11, 12].\n  Fix: choose one of these steps."
    )


def test_an_interrupt_while_the_thread_starts_leaves_the_folder_unlocked(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, {"w": np.zeros(4)}, wait=True)
    for _ in range(20):
        with monkeypatch.context() as patch:
            patch.setattr(threading, "Thread", StartIsInterrupted)
            with pytest.raises(KeyboardInterrupt):
                checkpoint.save(tmp_path, {"w": np.zeros(1 << 20)}, keep=2)
        checkpoint.save(tmp_path, {"w": np.ones(4)}, keep=2, wait=True)
    assert checkpoint.load(tmp_path)["w"].sum() == 4
