"""Which steps stay: the last, every k-th, the best by a metric."""

import numpy as np
import pytest

from phalanx import checkpoint
from phalanx.checkpoint import Keep, step_folders
from phalanx.errors import ArgumentError, ArgumentTypeError, CheckpointError, CheckpointSaveError

pytest.importorskip("tensorstore")


def save_all(folder, losses, keep):
    for step, loss in enumerate(losses):
        checkpoint.save(folder, {"w": np.full(2, step)}, step=step, keep=keep, metadata={"loss": loss})
    checkpoint.save(folder, {"w": np.zeros(2)}, step=len(losses), keep=keep, wait=True)
    return checkpoint.steps(folder)


@pytest.mark.parametrize(
    "keep, want",
    [
        (None, [0, 1, 2, 3, 4, 5, 6]),
        (2, [5, 6]),
        (Keep(last=1, every=3), [0, 3, 6]),
        (Keep(best=2, metric="loss"), [1, 4, 6]),
        (Keep(best=1, metric="loss", mode="max"), [2, 6]),
    ],
)
def test_steps_that_no_rule_keeps_are_removed(keep, want, tmp_path):
    assert save_all(tmp_path, [0.5, 0.1, 0.9, float("nan"), 0.2, 0.3], keep) == want
    assert checkpoint.load(tmp_path, step=want[-2])["w"].tolist() == [want[-2]] * 2
    assert {p.name for p in tmp_path.iterdir()} == {".lock", *map(str, want)}


def test_a_step_that_is_older_than_others_stays_when_it_is_the_newest_save(tmp_path):
    save_all(tmp_path, [0.0, 0.0], None)
    checkpoint.delete(tmp_path, 0)
    checkpoint.save(tmp_path, {"w": np.zeros(2)}, step=0, keep=1, wait=True)
    assert checkpoint.steps(tmp_path) == [0, 2]


@pytest.mark.parametrize(
    "options, text",
    [
        ({"last": 0}, "Keep, last: expected an int of at least 1, got 0.\n  Fix: pass last=1."),
        ({"last": True}, "Keep, last: expected an int of at least 1, got True.\n  Fix: pass last=1."),
        ({"every": 0}, "Keep, every: expected an int of at least 1, got 0.\n  Fix: pass every=1."),
        (
            {"best": 2},
            "Keep, metric: expected best and metric together, got best=2, metric=None.\n"
            "  Fix: pass Keep(best=1, metric='loss') and save(..., metadata={'loss': loss}).",
        ),
        (
            {"best": 1, "metric": "x", "mode": "low"},
            "Keep, mode: expected 'min' or 'max', got 'low'.\n  Fix: pass mode='min'.",
        ),
    ],
)
def test_rules_that_make_no_sense_are_errors(options, text):
    with pytest.raises(ArgumentError) as caught:
        Keep(**options)
    assert str(caught.value) == text


def test_keep_is_a_number_or_rules(tmp_path):
    with pytest.raises(ArgumentTypeError) as caught:
        checkpoint.save(tmp_path, {"n": 1}, keep="all")
    assert str(caught.value) == (
        "checkpoint.save, keep: expected a Keep, an int or None, got 'all'.\n"
        "  Fix: pass keep=3 for the last three steps."
    )


def test_folders_that_save_did_not_write_stay(tmp_path):
    for name, file in [("3", "_METADATA"), ("a_4", "_METADATA"), ("b_4", "_METADATA"), ("2024", "holiday.txt")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    for step in (5, 6):
        checkpoint.save(tmp_path, {"n": 1}, step=step, keep=1, wait=True)
    assert checkpoint.steps(tmp_path) == [3, 4, 6, 2024]
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "3", "a_4", "b_4", "6", "2024"}
    for call in (lambda: checkpoint.load(tmp_path, step=4), lambda: checkpoint.delete(tmp_path, 4)):
        with pytest.raises(CheckpointError) as caught:
            call()
        assert str(caught.value).endswith(
            f"path: expected one checkpoint of step 4, got '{tmp_path}' with ['a_4', 'b_4'].\n"
            f"  Fix: pass the folder of one of them, such as '{tmp_path / 'a_4'}'."
        )


def test_an_old_step_that_cannot_be_deleted_is_an_error_that_says_that_the_new_one_is_saved(tmp_path, monkeypatch):
    for step in range(3):
        checkpoint.save(tmp_path, {"n": step}, step=step)
    remove = step_folders.RunFolder.remove

    def fail_at_1(run, step):
        if step == 1:
            raise PermissionError(13, "Permission denied")
        remove(run, step)

    monkeypatch.setattr(step_folders.RunFolder, "remove", fail_at_1)
    saving = checkpoint.save(tmp_path, {"n": 3}, step=3, keep=1)
    with pytest.raises(CheckpointSaveError) as caught:
        saving.result()
    assert str(caught.value) == (
        f"checkpoint.save, step 3, keep: expected to delete from '{tmp_path}' the steps that are not kept, after step 3 was "
        "committed, got PermissionError: [Errno 13] Permission denied, for [1].\n"
        "  Fix: delete [1] by hand; step 3 is saved and can be loaded."
    )
    assert checkpoint.steps(tmp_path) == [1, 3] and checkpoint.load(tmp_path) == {"n": 3}
