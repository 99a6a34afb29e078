"""`nnx.bridge`: modules of Linen as NNX modules, and the functional style."""

import subprocess
import sys

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.errors import ArgumentError, ArgumentTypeError, MissingExtraError
from phalanx.nnx.bridge.to_linen import make_to_linen


class Box:
    """A value with the names of its dimensions, as in Linen."""

    def __init__(self, value, names):
        self.value, self.names = value, names

    def unbox(self):
        return self.value


class Affine:
    """A module with the interface of a Linen module: parameters, a counter of calls and a method."""

    def __init__(self, features):
        self.features = features

    def init_with_output(self, rngs, x, method=None):
        kernel = phalanx.random.normal(rngs["params"], (x.shape[-1], self.features))
        variables = {
            "params": {"dense": {"kernel": Box(kernel, ("in", None))}, "shift": jnp.ones(self.features)},
            "counts": {"calls": jnp.array(0)},
        }
        return self.apply(variables, x, method=method), variables

    def apply(self, variables, x, rngs=None, method=None, mutable=False):
        kernel = variables["params"]["dense"]["kernel"]
        assert type(kernel) is Box and kernel.names == ("in", None)
        result = (method or type(self).__call__)(self, x @ kernel.value, variables["params"]["shift"])
        changes = {"counts": {"calls": variables["counts"]["calls"] + 1}}
        return (result, changes) if mutable else result

    def __call__(self, x, shift):
        return x + shift

    def negate(self, x, shift):
        return -x - shift


def test_a_linen_module_is_a_module_whose_variables_are_attributes():
    x = jnp.ones((1, 2))
    model = nnx.bridge.ToNNX(Affine(3), rngs=nnx.Rngs(0)).lazy_init(x)
    assert {".".join(path): type(v).__name__ for path, v in nnx.to_flat_state(nnx.state(model, nnx.Not(nnx.RngState)))} == {
        "calls": "counts", "dense.kernel": "Param", "shift": "Param"
    }  # fmt: skip
    assert model.dense["kernel"].names == ("in", None)
    expected = x @ model.dense["kernel"] + 1
    assert (model(x) == expected).all() and (model.negate(x) == -expected).all()
    calls = model.calls
    assert (model(x, mutable=["counts"]) == expected).all() and model.calls is calls and int(calls.value) == 1
    gradient = nnx.grad(lambda m: m(x).sum())(model)
    assert gradient["shift"].value.tolist() == [1.0] * 3
    with pytest.raises(AttributeError, match="^'ToNNX' object has no attribute 'divide'$"):
        model.divide


def test_linen_modules_inside_of_others_are_initialized_with_them():
    class Outer(nnx.Module):
        def __init__(self, rngs):
            self.inner, self.scale = nnx.bridge.ToNNX(Affine(3), rngs=rngs), nnx.Param(jnp.array(2.0))

        def __call__(self, x):
            return self.scale * nnx.jit(lambda m, x: m(x))(self.inner, x)

    model, x = Outer(nnx.Rngs(params=0)), jnp.ones((1, 2))
    assert nnx.bridge.lazy_init(model, x) is model
    assert (model(x) == 2.0 * (x @ model.inner.dense["kernel"] + 1)).all()
    with pytest.raises(
        ArgumentTypeError, match="^nnx.bridge.lazy_init, argument fn: expected a module, or a bound method of one"
    ):
        nnx.bridge.lazy_init(len, [])


def test_variables_of_two_collections_need_two_paths():
    class Twice:
        def init_with_output(self, rngs, method=None):
            return None, {"params": {"a": {"b": 1.0}}, "counts": {"a": {"b": 2.0}}}

    with pytest.raises(ArgumentError) as error:
        nnx.bridge.ToNNX(Twice()).lazy_init()
    assert str(error.value) == (
        "nnx.bridge.ToNNX, the variables of the Linen module: expected a path for each variable, since attributes have no "
        "collections, got a.b in the collection 'counts' and in another one.\n  Fix: rename one of the variables."
    )


def test_the_functional_style_needs_init_before_apply():
    layer = nnx.bridge.functional(nnx.Linear)(2, out_features=3)
    with pytest.raises(ArgumentError, match="^Functional.apply: expected a structure, which init sets, got None"):
        layer.apply({})
    state = layer.init(rngs=nnx.Rngs(0))
    y, (_, new) = layer.apply(state)(jnp.ones((1, 2)))
    assert y.shape == (1, 3) and new["kernel"].shape == (2, 3)


def test_linen_itself_is_bridged_in_a_program_that_phalanx_runs():
    pytest.importorskip("flax")
    program = """
import jax, jax.numpy as jnp
from flax import linen as nn, nnx
from flax.nnx import bridge
kernel_init = nn.with_partitioning(nn.initializers.lecun_normal(), ("in", "out"))
x = jnp.ones((4, 2))
model = bridge.ToNNX(nn.Sequential([nn.Dense(3, kernel_init=kernel_init), nn.BatchNorm(use_running_average=False)]), nnx.Rngs(0))
model.lazy_init(x)
y = model(x, mutable=["batch_stats"])
print(model.layers_0["kernel"].out_sharding, type(model.layers_1["mean"]).__name__, y.shape)
print(bool((model.layers_1["mean"][...] != 0).any()), nnx.Param.__module__)

class Counting(nnx.Module):
    def __init__(self, din, dout, rngs):
        self.w = nnx.Param(nnx.initializers.ones(None, (din, dout)), unit="m")
        self.calls = nnx.Cache(jnp.array(0))
    def __call__(self, x):
        self.calls[...] += 1
        return x @ self.w
    def twice(self, x):
        return 2 * (x @ self.w)

class Outer(nn.Module):
    @nn.compact
    def __call__(self, x):
        return bridge.to_linen(Counting, x.shape[-1], dout=3)(x) + self.param("b", nn.initializers.ones, (3,))

variables = Outer().init(jax.random.key(0), x)
print(jax.tree.map(jnp.shape, nn.unbox(variables)), type(variables["params"]["ToLinen_0"]["w"]).__name__)
y, new = Outer().apply(variables, x, mutable=["cache"])
print(y[0].tolist(), int(variables["cache"]["ToLinen_0"]["calls"]), int(new["cache"]["ToLinen_0"]["calls"]))
layer = bridge.ToLinen(Counting, (2, 3))
print(layer.apply(layer.init(jax.random.key(0), x), x, nnx_method="twice")[0].tolist())
mapped = nn.vmap(bridge.ToLinen, variable_axes={"params": 0}, split_rngs={"params": True})(nnx.Linear, args=(2, 3))
print(mapped.init(jax.random.key(0), x)["params"]["kernel"].shape)
"""
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", "run", "--nnx", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        "('in', 'out') BatchStat (4, 3)",
        "True phalanx.nnx",
        "{'cache': {'ToLinen_0': {'calls': ()}}, 'params': {'ToLinen_0': {'w': (2, 3)}, 'b': (3,)}} NNXMeta",
        "[3.0, 3.0, 3.0] 0 1",
        "[4.0, 4.0, 4.0]",
        "(4, 2, 3)",
    ], done.stderr


def test_linen_is_needed_for_nnx_modules_in_linen(monkeypatch):
    monkeypatch.delitem(sys.modules, "flax.linen", raising=False)
    make_to_linen.cache_clear()
    for use in (lambda: nnx.bridge.ToLinen, lambda: nnx.bridge.to_linen(nnx.Linear, 2, 3)):
        with pytest.raises(MissingExtraError) as error:
            use()
        assert str(error.value) == (
            "nnx.bridge.ToLinen: expected a program that has imported flax.linen, got none.\n"
            "  Fix: run the program with phalanx run --nnx, and import flax.linen before nnx.bridge.ToLinen is used."
        )
    assert "ToLinen" in dir(nnx.bridge)
