"""Artifacts of every released version are read and give what they gave."""

import numpy as np
import pytest
from tests.export.corpus import DATA, place

import phalanx
from phalanx.export import deserialize


@pytest.mark.parametrize("path", sorted(DATA.glob("*.phalanx")), ids=lambda path: path.stem)
def test_an_artifact_of_a_released_version_runs(path):
    found = deserialize(path.read_bytes())
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        leaves = [arrays[f"in{i}"] for i in range(len(found.in_avals))]
        want = [arrays[f"out{i}"] for i in range(len(found.out_avals))]
    args, kwargs = phalanx.tree.unflatten(found.in_tree, place(found, leaves))
    for got, expected in zip(phalanx.tree.leaves(found.call(*args, **kwargs)), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    if found.has_vjp():
        assert list(map(str, found.vjp().in_avals[: len(leaves)])) == list(map(str, found.in_avals))


def test_the_corpus_is_not_empty():
    assert {path.stem for path in DATA.glob("*.phalanx")} >= {
        "v1-trees",
        "v1-shapes",
        "v1-platforms",
        "v1-random",
        "v1-mesh",
    }
