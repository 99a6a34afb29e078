"""Artifacts of every released version are read and give what they gave."""

import numpy as np
import pytest
from tests.export.corpus import DATA, place
from tests.meshes import auto_mesh

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


# What the header of the first artifacts lacks came in steps: the axes of the mesh, equations as text in the program, and
# what names the axes.
STEPS = {"v1-mesh_axes": (False, False), "v1-equations": (True, False), "v1-named": (True, True)}


@pytest.mark.parametrize("name", STEPS)
def test_an_artifact_of_each_step_of_the_format_runs_on_other_meshes(name):
    data = (DATA / f"{name}.phalanx").read_bytes()
    found = deserialize(data)
    has_equations, has_names = STEPS[name]
    assert (b"phalanx.equation" in data, found.mesh_axes[0].named_by is not None) == (has_equations, has_names)
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
        x, want = arrays["in0"], [arrays[f"out{i}"] for i in range(len(found.out_avals))]
    grads = None
    for sizes in ((1, 1), (2, 1), (8, 1), (2, 4)):
        mesh = auto_mesh(sizes, ("data", "model"), devices=phalanx.devices()[: np.prod(sizes)])
        placed = phalanx.device_put(x, found.in_shardings_jax(mesh)[0])
        for got, expected in zip(phalanx.tree.leaves(found.call(placed)), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
        (x_bar,) = found.vjp().call(placed, *[y if y.dtype == np.float32 else np.zeros(y.shape, bool) for y in want])
        grads = x_bar if grads is None else grads
        np.testing.assert_allclose(x_bar, grads, rtol=1e-5, atol=1e-4)


def test_the_corpus_is_not_empty():
    first = {"v1-trees", "v1-shapes", "v1-platforms", "v1-random", "v1-mesh"}
    assert {path.stem for path in DATA.glob("*.phalanx")} >= first | STEPS.keys()
