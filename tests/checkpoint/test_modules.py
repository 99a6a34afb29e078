"""Modules, optimisers and states: saved whole, updated in place, loaded in part and under other names."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import checkpoint, nnx, optim
from phalanx.errors import CheckpointError
from phalanx.sharding import NamedSharding, PartitionSpec as P, make_mesh

pytest.importorskip("tensorstore")


class Model(nnx.Module):
    def __init__(self, rngs, width=8):
        self.linear = nnx.Linear(4, width, rngs=rngs)
        self.blocks = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(2)])
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)

    def __call__(self, x):
        x = self.norm(self.linear(x))
        for block in self.blocks:
            x = x + nnx.relu(block(x))
        return self.dropout(x)


@nnx.jit
def train_step(model, optimizer, x):
    loss, grads = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
    optimizer.update(model, grads)
    return loss


def make(seed):
    model = Model(nnx.Rngs(seed))
    return {"model": model, "optimizer": nnx.Optimizer(model, optim.adam(1e-2), wrt=nnx.Param), "step": 0}


def run(training, n):
    x = jnp.linspace(-1, 1, 12).reshape(3, 4)
    training["step"] += n
    return [float(train_step(training["model"], training["optimizer"], x)) for _ in range(n)]


def test_a_resumed_training_equals_one_that_was_not_interrupted(tmp_path):
    training = make(0)
    run(training, 3)
    checkpoint.save(tmp_path, training)
    want = run(training, 3)
    other = make(1)
    resumed = checkpoint.load(tmp_path, other)
    assert resumed["model"] is other["model"] and resumed["step"] == 3
    assert run(resumed, 3) == want


def test_a_module_its_state_and_a_dict_have_the_same_names(tmp_path):
    model = Model(nnx.Rngs(0))
    checkpoint.save(tmp_path, model, wait=True)
    names = checkpoint.metadata(tmp_path).leaves
    assert {"linear/kernel", "blocks/0/bias", "dropout/rngs/key", "norm/mean"} <= names.keys()
    kernel = names["linear/kernel"]
    assert kernel.variable == "Param" and names["dropout/rngs/count"].variable_metadata == {"tag": "default"}
    state = checkpoint.load(tmp_path, nnx.state(Model(nnx.Rngs(1))))
    assert isinstance(state, nnx.State) and isinstance(state["linear"]["kernel"], nnx.Param)
    np.testing.assert_array_equal(state["linear"]["kernel"].value, model.linear.kernel.value)
    plain = checkpoint.load(tmp_path)
    np.testing.assert_array_equal(plain["blocks"][0]["kernel"], model.blocks[0].kernel.value)


def test_an_abstract_module_is_loaded_onto_a_mesh(tmp_path):
    model = Model(nnx.Rngs(0))
    checkpoint.save(tmp_path, model, wait=True)
    mesh = make_mesh((8,), ("x",))
    abstract = nnx.eval_shape(lambda: Model(nnx.Rngs(0)))
    rows, whole = NamedSharding(mesh, P(None, "x")), NamedSharding(mesh, P())
    placed = {"linear": {"kernel": rows, "bias": whole}, "blocks": whole, "dropout": whole, "norm": whole}
    loaded = checkpoint.load(tmp_path, abstract, shardings=placed)
    assert loaded is abstract
    assert loaded.linear.kernel.value.sharding == rows and loaded.norm.mean.value.sharding == whole
    loaded.eval(), model.eval()
    x = jnp.ones((2, 4))
    np.testing.assert_allclose(loaded(x), model(x), rtol=1e-6)


def test_shardings_may_be_a_state_of_the_model(tmp_path):
    model = Model(nnx.Rngs(0))
    checkpoint.save(tmp_path, model, wait=True)
    mesh = make_mesh((8,), ("x",))
    state = nnx.state(model)
    shardings = phalanx.tree.map(lambda x: NamedSharding(mesh, P()), state)
    checkpoint.load(tmp_path, model, shardings=shardings)
    assert model.linear.kernel.value.sharding == NamedSharding(mesh, P())
    with pytest.raises(TypeError) as caught:
        checkpoint.load(tmp_path, model, shardings={"linaer": NamedSharding(mesh, P())})
    assert str(caught.value) == (
        "checkpoint.load, shardings: expected paths of the tree that is loaded, got a sharding for 'linaer'.\n"
        "  Fix: give shardings a tree prefix of like."
    )


def test_a_part_is_loaded_and_the_rest_stays(tmp_path):
    model = Model(nnx.Rngs(0))
    checkpoint.save(tmp_path, {"encoder": model.linear, "step": 3}, wait=True)
    other = Model(nnx.Rngs(1))
    before = other.blocks[0].kernel.value
    checkpoint.load(tmp_path, other, partial=True, rename={"linear": "encoder"})
    np.testing.assert_array_equal(other.linear.kernel.value, model.linear.kernel.value)
    assert other.blocks[0].kernel.value is before
    kernel = checkpoint.load(
        tmp_path, {"w": np.zeros((4, 8), np.float32)}, partial=True, rename=lambda _: "encoder/kernel"
    )
    np.testing.assert_array_equal(kernel["w"], model.linear.kernel.value)


def test_a_failed_load_leaves_a_module_as_it_was(tmp_path):
    checkpoint.save(tmp_path, Model(nnx.Rngs(0), width=16), wait=True)
    model = Model(nnx.Rngs(1))
    before = phalanx.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path, model)
    assert str(caught.value) == (
        "checkpoint.load, leaf 'blocks/0/bias': expected shape (8,), that of like, got float32[16] in the checkpoint.\n"
        "  Fix: build like with the sizes that the checkpoint was saved with."
    )
    after = phalanx.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    assert all(phalanx.tree.leaves(phalanx.tree.map(np.array_equal, before, after)))
