"""Paths in `like` that have other names in the checkpoint, and paths that neither has."""

import numpy as np
import pytest

from phalanx import checkpoint
from phalanx.errors import ArgumentError, ArgumentTypeError, CheckpointError

pytest.importorskip("tensorstore")

TREE = {"encoder": {"w": np.ones(2), "b": np.zeros(2)}, "step": 3}
ZEROS = {"w": np.full(2, 9.0), "b": np.full(2, 9.0)}


@pytest.fixture
def folder(tmp_path):
    checkpoint.save(tmp_path, TREE, wait=True)
    return tmp_path


def test_the_whole_tree_is_read_from_below_a_path(folder):
    loaded = checkpoint.load(folder, ZEROS, partial=True, rename={"": "encoder"})
    assert loaded["w"].tolist() == [1, 1] and loaded["b"].tolist() == [0, 0]
    assert checkpoint.load(folder, 0, partial=True, rename={"": "step"}) == 3
    assert checkpoint.load(folder, 0, partial=True, rename=lambda name: "step") == 3


def test_a_part_is_read_from_the_top(folder):
    like = {"model": {"encoder": ZEROS, "step": 0}}
    loaded = checkpoint.load(folder, like, rename={"model": ""})
    assert loaded["model"]["encoder"]["w"].tolist() == [1, 1] and loaded["model"]["step"] == 3


def test_the_longest_path_counts(folder):
    like = {"a": ZEROS, "n": 0}
    rename = {"a": "encoder", "a/w": "encoder/b", "a/b": "encoder/w", "n": "step"}
    with pytest.raises(ArgumentError, match=r"rename: expected paths of leaves in like, or above them, got 'a'\."):
        checkpoint.load(folder, like, rename=rename)  # which stands for no leaf any more
    del rename["a"]
    loaded = checkpoint.load(folder, like, rename=rename)
    assert loaded["a"]["w"].tolist() == [0, 0] and loaded["a"]["b"].tolist() == [1, 1] and loaded["n"] == 3


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(
    "rename, text",
    [
        ({"modle": "encoder"}, "expected paths of leaves in like, or above them, got 'modle'.\n  Fix: write 'model'"),
        ({"model/": "encoder"}, "expected paths of leaves in like, or above them, got 'model/'.\n  Fix: write 'model"),
        ({"model": "encodr"}, "expected paths in the checkpoint '{0}', got 'encodr'.\n  Fix: write 'encoder'"),
        (
            {"model": "x"},
            "expected paths in the checkpoint '{0}', got 'x'.\n  Fix: choose from 'encoder/b', 'encoder/w', 'step'.",
        ),
    ],
)
def test_a_path_that_is_not_there_is_an_error_with_near_matches(folder, rename, text, partial):
    with pytest.raises(ArgumentError) as caught:
        checkpoint.load(folder, {"model": ZEROS, "step": 0}, rename=rename, partial=partial)
    assert str(caught.value).startswith("checkpoint.load, rename: " + text.format(folder / "0"))


@pytest.mark.parametrize("rename", [{"model": None}, {1: "encoder"}])
def test_a_path_is_text(folder, rename):
    with pytest.raises(ArgumentTypeError) as caught:
        checkpoint.load(folder, {"model": ZEROS}, rename=rename)
    wrong = next(path for pair in rename.items() for path in pair if not isinstance(path, str))
    assert str(caught.value) == (
        f"checkpoint.load, rename: expected paths such as 'layers/0/kernel', got {wrong!r}.\n  Fix: pass strs."
    )


def test_a_partial_load_that_finds_nothing_is_an_error(folder):
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(folder, {"encodr": ZEROS}, partial=True)
    assert str(caught.value) == (
        f"checkpoint.load, like, leaf 'encodr/b': expected a leaf that the checkpoint '{folder / '0'}' has, which has "
        "'encoder/b', 'encoder/w', 'step', got 2 that it does not have: 'encodr/b', 'encodr/w'.\n"
        "  Fix: name its path in the checkpoint with rename={'path in like': 'path in the checkpoint'}."
    )
    assert checkpoint.load(folder, {}, partial=True) == {}
