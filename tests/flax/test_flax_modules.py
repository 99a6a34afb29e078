"""`phalanx.flax`: dataclasses as pytrees, nested dictionaries, state dicts, msgpack and helpers for pmap."""

import collections
import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from phalanx.flax.core import FrozenDict, freeze, unfreeze
from phalanx.flax.training.train_state import TrainState

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx, optim
from phalanx.errors import ArgumentError, DTypeError, ShapeError, TreeError
from phalanx.flax import jax_utils, msgpack_format, serialization, struct, traverse_util


class Scaled(struct.PyTreeNode):
    x: float
    unit: str = struct.field(pytree_node=False, default="m")


@struct.dataclass
class Mean:
    total: object
    count: int = 0


Pair = collections.namedtuple("Pair", "first second")


def test_dataclasses_are_immutable_pytrees():
    doubled = phalanx.jit(lambda s: s.replace(x=2 * s.x))(Scaled(1.5))
    assert float(doubled.x) == 3.0 and doubled.unit == "m" and phalanx.tree.leaves(Scaled(1.5)) == [1.5]
    with pytest.raises(AttributeError, match="cannot assign to field 'x'"):
        doubled.x = 1.0
    assert phalanx.grad(lambda m: m.total**2)(Mean(3.0, 1.0)).total == 6.0

    @struct.dataclass(kw_only=True)
    class Named:
        x: int

    assert Named(x=1).replace(x=2).x == 2 and struct.dataclass(Named) is Named


def test_frozen_dicts():
    frozen = freeze({"b": {"c": 1.0}, "a": 2.0})
    assert frozen == {"a": 2.0, "b": {"c": 1.0}} and hash(frozen) == hash(freeze(unfreeze(frozen)))
    assert isinstance(frozen["b"], FrozenDict) and phalanx.tree.leaves(frozen) == [2.0, 1.0]
    with pytest.raises(ValueError, match="immutable"):
        frozen["a"] = 1
    rest, popped = frozen.pop("a")
    assert popped == 2.0 and rest == {"b": {"c": 1.0}} and frozen.copy({"a": 3.0})["a"] == 3.0
    assert type(phalanx.tree.map(lambda x: x, frozen)) is FrozenDict
    for made in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert made == frozen and type(made) is FrozenDict
    assert frozen.pretty_repr(2) == "FrozenDict({\n  'b': {\n    'c': 1.0,\n  },\n  'a': 2.0,\n})"


def test_nested_dictionaries_are_flattened_by_path():
    nested = {"foo": 1, "bar": {"a": 2, "b": {}}}
    assert traverse_util.flatten_dict(nested) == {("foo",): 1, ("bar", "a"): 2}
    flat = traverse_util.flatten_dict(freeze(nested), keep_empty_nodes=True, sep="/")
    assert traverse_util.unflatten_dict(flat, sep="/") == nested and phalanx.tree.leaves(flat) == [2, 1]
    mapped = traverse_util.path_aware_map(lambda path, x: (path[-1], x), freeze(nested))
    assert mapped == {"foo": ("foo", 1), "bar": {"a": ("a", 2), "b": {}}} and type(mapped) is FrozenDict


def test_state_dicts_have_text_keys_and_restore_the_structure():
    tree = {
        "l": [1.0, (2.0,)],
        "p": Pair(3.0, Scaled(4.0)),
        "f": freeze({"x": 5.0}),
        "g": phalanx.tree_util.Partial(max, 6.0),
    }
    state = serialization.to_state_dict(tree)
    assert state == {
        "l": {"0": 1.0, "1": {"0": 2.0}},
        "p": {"first": 3.0, "second": {"x": 4.0}},
        "f": {"x": 5.0},
        "g": {"args": {"0": 6.0}, "keywords": {}},
    }
    zeros = phalanx.tree.map(lambda x: 0.0, tree)
    restored = serialization.from_state_dict(zeros, state)
    assert restored["p"] == tree["p"] and restored["l"] == tree["l"] and restored["f"] == tree["f"]
    with pytest.raises(TreeError) as error:
        serialization.from_state_dict({"a": [0, 0]}, {"a": {"0": 1}})
    assert str(error.value) == (
        "from_state_dict, at ./a: expected the keys ['0', '1'], got ['0'].\n"
        "  Fix: pass a target of the structure that was converted."
    )
    assert serialization.from_state_dict({1: 0, "b": 0}, {"1": 2, "b": 3, "more": 4}) == {1: 2, "b": 3}
    with pytest.raises(TreeError, match="keys that differ as text"):
        serialization.to_state_dict({1: 0, "1": 0})
    with pytest.raises(ArgumentError, match="a class that is not registered, got dict"):
        serialization.register_serialization_state(dict, None, None)


def test_trees_are_written_as_msgpack():
    pytest.importorskip("msgpack")
    tree = {
        "w": jnp.arange(6.0).reshape(2, 3),
        "half": jnp.ones(2, "bfloat16"),
        "scalar": np.float32(1.5),
        "complex": 1 + 2j,
        "list": [1, "text", None, True, b"bytes"],
    }
    restored = serialization.msgpack_restore(serialization.msgpack_serialize(tree))
    assert restored["w"].tolist() == tree["w"].tolist() and restored["half"].dtype == jnp.bfloat16
    assert restored["scalar"] == np.float32(1.5) and type(restored["scalar"]) is np.float32
    assert restored["complex"] == 1 + 2j and restored["list"] == tree["list"]
    with pytest.raises(DTypeError, match="arrays of numbers"):
        serialization.to_bytes({"a": np.array([object()])})


def test_large_arrays_are_written_in_parts(monkeypatch):
    pytest.importorskip("msgpack")
    monkeypatch.setattr(msgpack_format, "MAX_CHUNK_SIZE", 40)
    x = np.arange(33, dtype="float32").reshape(3, 11)
    data = serialization.to_bytes({"a": {"x": x}})
    assert (
        data.count(b"float32") == 4 and serialization.from_bytes({"a": {"x": 0}}, data)["a"]["x"].tolist() == x.tolist()
    )


def test_flax_reads_the_bytes_and_the_other_way_round():
    flax_serialization = pytest.importorskip("flax.serialization")
    tree = {"w": np.arange(6.0, dtype="float32").reshape(2, 3), "n": np.int32(3), "z": 1j, "l": [1, {"a": 2.0}]}
    data = serialization.to_bytes(tree)
    assert data == flax_serialization.to_bytes(tree)
    assert flax_serialization.from_bytes(tree, data)["w"].tolist() == tree["w"].tolist()


def test_training_continues_from_bytes():
    pytest.importorskip("msgpack")
    loss = lambda p, x: ((x @ p["w"]) ** 2).mean()
    state = TrainState.create(apply_fn=loss, params={"w": jnp.ones(3)}, tx=optim.adam(0.1))
    x = jnp.eye(3)
    step = phalanx.jit(lambda s: s.apply_gradients(grads=phalanx.grad(s.apply_fn)(s.params, x)))
    state = step(state)
    fresh = TrainState.create(apply_fn=loss, params={"w": jnp.zeros(3)}, tx=state.tx)
    restored = serialization.from_bytes(fresh, serialization.to_bytes(state))
    assert step(restored).params["w"].tolist() == step(state).params["w"].tolist() and int(restored.step) == 1


def test_modules_are_restored_from_bytes():
    pytest.importorskip("msgpack")
    model, other = (nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(seed)), nnx.relu) for seed in (0, 1))
    data = serialization.to_bytes(nnx.state(model))
    nnx.update(other, serialization.from_bytes(nnx.state(other), data))
    assert other.layers[0].kernel.tolist() == model.layers[0].kernel.tolist()


def test_arrays_are_replicated_over_devices():
    n = phalanx.local_device_count()
    tree = jax_utils.replicate({"w": np.arange(2.0), "s": 1.0})
    assert tree["w"].shape == (n, 2) and len(tree["w"].sharding.device_set) == n
    assert jax_utils.unreplicate(tree)["w"].tolist() == [0.0, 1.0]
    assert [x.shape for x in jax_utils.prefetch_to_device(iter([np.ones((n, 3))] * 3), 2)] == [(n, 3)] * 3


def test_scans_along_several_dimensions():
    x = jnp.arange(24.0).reshape(2, 3, 4)
    body = lambda c, a: (c + a.sum(), a * 2)
    for keepdims in (False, True):
        total, ys = jax_utils.scan_in_dim(body, 0.0, x, axis=(2, 0), unroll=2, keepdims=keepdims)
        assert float(total) == 276.0 and ys.tolist() == (2 * x).tolist()
    order = jax_utils.scan_in_dim(lambda c, a: (c + 1, c + 0 * a), 0.0, x[..., 0], axis=1)[1]
    assert order.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_batches_are_padded_to_the_number_of_devices():
    f = jax_utils.pad_shard_unpad(phalanx.pmap(lambda w, x: w * x, in_axes=(None, 0)))
    x = np.arange(11.0, dtype="float32")
    assert f(2.0, x).tolist() == (2 * x).tolist() == f(2.0, x, min_device_batch=4).tolist()
    with pytest.raises(ShapeError, match="arguments of one batch size"):
        jax_utils.pad_shard_unpad(lambda w, x, y: x)(0, x, x[:3])


def test_modules_have_the_names_of_flax():
    program = (
        "import phalanx.flax, sys; from phalanx.flax import serialization, struct, core, nnx, traverse_util, training\n"
        "from phalanx.flax.core.frozen_dict import freeze; import phalanx.flax.training.train_state\n"
        "print(nnx.__name__, 'jax' in sys.modules, sorted(dir(phalanx.flax))[0])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["phalanx.nnx", "False", "core"], run.stderr
    with pytest.raises(AttributeError, match="no attribute 'linen'"):
        phalanx.flax.linen
