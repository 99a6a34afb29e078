"""Copies and pickles of modules, states, structures and optimizers."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx, optim

SRC = str(Path(phalanx.__file__).parents[1])
LAYERS = {
    "Linear": lambda rngs: nnx.Linear(2, 3, kernel_init=nnx.initializers.normal(0.1), rngs=rngs),
    "partitioned": lambda rngs: nnx.Linear(
        2, 3, kernel_init=nnx.with_partitioning(nnx.initializers.he_normal(), (None, "x")), rngs=rngs
    ),
    "Conv": lambda rngs: nnx.Conv(2, 3, (3,), rngs=rngs),
    "Embed": lambda rngs: nnx.Embed(3, 4, rngs=rngs),
    "BatchNorm": lambda rngs: nnx.BatchNorm(3, rngs=rngs),
    "Dropout": lambda rngs: nnx.Dropout(0.5, rngs=rngs),
    "MultiHeadAttention": lambda rngs: nnx.MultiHeadAttention(2, 4, rngs=rngs),
    "RNN": lambda rngs: nnx.RNN(nnx.LSTMCell(2, 3, rngs=rngs), rngs=rngs),
    "Sequential": lambda rngs: nnx.Sequential(nnx.Linear(2, 2, rngs=rngs), nnx.relu, nnx.PReLU()),
    "List": lambda rngs: nnx.List([nnx.data(1.0), nnx.static("name"), nnx.Param(2.0)]),
}


def values(module):
    leaves = nnx.state(module).flat_state()
    arrays = [x.raw_value if isinstance(x, nnx.Variable) else x for _, x in leaves]
    is_key = lambda x: jnp.issubdtype(jnp.result_type(x), phalanx.dtypes.prng_key)
    return [(phalanx.random.key_data(x) if is_key(x) else jnp.asarray(x)).tolist() for x in arrays]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_layers_are_copied_with_their_values(name, duplicate):
    layer = LAYERS[name](nnx.Rngs(0))
    made = duplicate(layer)
    assert type(made) is type(layer) and values(made) == values(layer)
    if name != "partitioned":  # its initializer is compared by identity
        assert nnx.graphdef(made) is nnx.graphdef(layer)
    own = {id(v) for v in phalanx.tree.leaves(layer, is_leaf=nnx.is_data)}
    assert not any(id(v) in own for v in phalanx.tree.leaves(made, is_leaf=nnx.is_data) if isinstance(v, nnx.Variable))


def test_shared_references_and_cycles_are_preserved():
    model = nnx.Dict(w=nnx.Param(jnp.ones(2)))
    model.again, model.itself = model.w, model
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert made.again is made.w is not model.w and made.itself is made


def test_states_and_structures_are_copied():
    model = nnx.Sequential(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.relu)
    graphdef, state = nnx.split(model)
    for made in (copy.deepcopy(state), pickle.loads(pickle.dumps(state)), pickle.loads(pickle.dumps(state.layers))):
        assert isinstance(made, nnx.State) and made.flat_state().paths[-1][-1] == "kernel"
    assert copy.deepcopy(graphdef) is graphdef and pickle.loads(pickle.dumps(graphdef)) is graphdef
    assert copy.deepcopy(state) is not state and copy.copy(state).layers[0].kernel is state.layers[0].kernel


def test_optimizers_continue_from_a_copy():
    tx = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(0.1))
    model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    grads = nnx.map_state(lambda path, v: v.replace(jnp.ones(v.shape)), nnx.state(model))
    optimizer.update(model, grads)
    for made, twin in pickle.loads(pickle.dumps((optimizer, model))), copy.deepcopy((optimizer, model)):
        made.update(twin, grads)
        assert int(made.step) == 2
        kernel = twin.kernel.value
    optimizer.update(model, grads)
    assert model.kernel.tolist() == kernel.tolist()


def test_a_class_defined_in_a_program_is_pickled_by_value():
    cloudpickle = pytest.importorskip("cloudpickle")

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(2, 3, rngs=rngs)

        def __call__(self, x):
            return nnx.relu(self.linear(x))

    model = Model(nnx.Rngs(0))
    made = pickle.loads(cloudpickle.dumps(model))
    assert made(jnp.ones((1, 2))).tolist() == model(jnp.ones((1, 2))).tolist()


def test_another_process_reads_a_pickle(tmp_path):
    model = LAYERS["Sequential"](nnx.Rngs(0))
    graphdef, state = nnx.split(model)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps((model, graphdef, state)))
    program = (
        "import pickle, sys; from phalanx import nnx\n"
        f"model, graphdef, state = pickle.load(open({str(tmp_path / 'model.pkl')!r}, 'rb'))\n"
        "assert nnx.graphdef(model) is graphdef, 'hashes of text differ between processes'\n"
        "print(nnx.merge(graphdef, state).layers[0].kernel.tolist())"
    )
    environment = {**os.environ, "PYTHONPATH": SRC}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(model.layers[0].kernel.tolist())


def test_initializers_made_alike_are_equal():
    normal = nnx.initializers.normal
    assert normal(0.1) == normal(0.1) != normal(0.2) and hash(normal(0.1)) == hash(normal(0.1))
    assert nnx.initializers.lecun_normal() == nnx.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
    assert repr(normal(0.1)) == "normal(stddev=0.1)" and normal(0.1).__name__ == "init"
    array = jnp.ones(2)
    constant = nnx.initializers.constant(array)
    assert constant == constant and constant != nnx.initializers.constant(array)
