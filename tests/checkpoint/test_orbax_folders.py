"""Folders that Orbax wrote, as users of JAX and Flax have them, are loaded; the peer writes them here."""

import subprocess
import sys

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import checkpoint, nnx, random
from phalanx.errors import CheckpointError
from phalanx.sharding import NamedSharding, PartitionSpec as P, make_mesh

pytest.importorskip("tensorstore")
pytest.importorskip("orbax.checkpoint")

MODEL = """
class Model(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(4, 8, rngs=rngs)
        self.blocks = nnx.List([nnx.Linear(8, 8, rngs=rngs) for _ in range(2)])
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        x = self.linear(x)
        for block in self.blocks:
            x = x + nnx.relu(block(x))
        return self.dropout(x)
"""

WRITER = f"""
import sys
import jax, jax.numpy as jnp, numpy as np
import orbax.checkpoint as ocp
from flax import nnx
{MODEL}
root = sys.argv[1]
model = Model(nnx.Rngs(0))
tree = {{"a": [jnp.arange(6.0).reshape(2, 3), np.ones(3, np.int8)], "b.c": jnp.ones(4, jnp.bfloat16), "n": 3, "s": "adam",
        "none": None, "empty": {{}}, "pair": (), "keys": jax.random.split(jax.random.key(1, impl="rbg"), 3)}}
ocp.PyTreeCheckpointer().save(root + "/model", nnx.state(model))
ocp.PyTreeCheckpointer().save(root + "/pure", nnx.to_pure_dict(nnx.state(model)))
ocp.PyTreeCheckpointer().save(root + "/tree", tree)
np.save(root + "/outputs.npy", model(jnp.linspace(-1, 1, 8).reshape(2, 4)))
ocp.PyTreeCheckpointer(use_ocdbt=False).save(root + "/folders", {{"x": {{"y": jnp.arange(5.0)}}}})
ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_zarr3=True)).save(root + "/zarr3", {{"x": {{"y": jnp.arange(5.0)}}}})
names = {{"plain": {{}}, "prefix": {{"step_prefix": "ckpt"}}, "fixed": {{"step_format_fixed_length": 4}}}}
for name, options in names.items():
    with ocp.CheckpointManager(f"{{root}}/{{name}}", options=ocp.CheckpointManagerOptions(**options)) as manager:
        for step in (2, 5):
            items = {{"state": ocp.args.StandardSave({{"x": jnp.full(3, step)}}), "about": ocp.args.JsonSave({{"a": 1}})}}
            manager.save(step, args=ocp.args.Composite(**items))
        manager.wait_until_finished()
with ocp.CheckpointManager(root + "/several") as manager:
    items = {{name: ocp.args.StandardSave({{"x": jnp.ones(2)}}) for name in ("state", "ema")}}
    manager.save(1, args=ocp.args.Composite(**items))
    manager.wait_until_finished()
"""

exec(MODEL)  # the same class on the modules of phalanx


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("orbax")
    done = subprocess.run([sys.executable, "-c", WRITER, str(root)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return root


@pytest.mark.parametrize("name", ["model", "pure"])
def test_a_model_of_flax_nnx_is_loaded_into_the_same_model(written, name):
    model = globals()["Model"](nnx.Rngs(7))
    checkpoint.load(written / name, model)
    outputs = model(jnp.linspace(-1, 1, 8).reshape(2, 4))  # with a dropout mask from the key that was saved
    np.testing.assert_allclose(outputs, np.load(written / "outputs.npy"), rtol=1e-6)


def test_every_kind_of_leaf_is_read(written):
    tree = checkpoint.load(written / "tree")
    np.testing.assert_array_equal(tree["a"][0], np.arange(6.0).reshape(2, 3))
    assert tree["a"][1].dtype == np.int8 and tree["b.c"].dtype == jnp.bfloat16
    assert tree["n"] == 3 and tree["s"] == "adam" and tree["none"] is None and tree["empty"] == {}
    assert tree["pair"] == ()
    np.testing.assert_array_equal(
        random.key_data(tree["keys"]), random.key_data(random.split(random.key(1, impl="rbg"), 3))
    )


@pytest.mark.parametrize("name", ["folders", "zarr3"])
def test_other_layouts_are_read_onto_a_mesh(written, name):
    mesh = make_mesh((5,), ("x",), devices=phalanx.devices()[:5])
    rows = NamedSharding(mesh, P("x"))
    loaded = checkpoint.load(written / name, shardings=rows)
    assert loaded["x"]["y"].sharding == rows and loaded["x"]["y"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["plain", "prefix", "fixed"])
def test_steps_of_a_manager_are_found(written, name):
    assert checkpoint.steps(written / name) == [2, 5] and checkpoint.metadata(written / name).step == 5
    assert checkpoint.load(written / name)["x"].tolist() == [5, 5, 5]
    assert checkpoint.load(written / name, step=2)["x"].tolist() == [2, 2, 2]


def test_one_of_several_trees_of_a_step_must_be_named(written):
    step = written / "several" / "1"
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(written / "several")
    assert str(caught.value) == (
        f"checkpoint.load, path: expected the folder of one tree that Orbax wrote, got '{step}' with the trees "
        f"['ema', 'state'].\n  Fix: pass '{step / 'ema'}'."
    )
    assert checkpoint.load(step / "state")["x"].tolist() == [1, 1]


def test_a_damaged_description_is_an_error(written, tmp_path):
    (tmp_path / "_METADATA").write_text('{"tree_metadata": {"x": {}}}')
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path)
    assert str(caught.value) == (
        f"checkpoint.load, '{tmp_path / '_METADATA'}': expected the description of a tree by Orbax, got KeyError: "
        "'key_metadata'.\n  Fix: the file is damaged or of a version that is not known; restore it, or load another step."
    )
