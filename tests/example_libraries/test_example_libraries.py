"""`stax` and `optimizers` train as their documentation says; the updates are those of the published formulas."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import random
from phalanx.core.error_classes import ArgumentError, TreeError
from phalanx.example_libraries import optimizers, stax

OPTIMIZERS = {
    "sgd": optimizers.sgd(0.05),
    "momentum": optimizers.momentum(0.02, 0.8),
    "nesterov": optimizers.nesterov(optimizers.constant(0.02), mass=0.8),
    "adagrad": optimizers.adagrad(0.5),
    "rmsprop": optimizers.rmsprop(optimizers.exponential_decay(0.1, 20, 0.5)),
    "rmsprop_momentum": optimizers.rmsprop_momentum(optimizers.inverse_time_decay(0.05, 5, 1.0)),
    "adam": optimizers.adam(optimizers.polynomial_decay(0.3, 100, 0.01)),
    "adamax": optimizers.adamax(optimizers.piecewise_constant([30, 60], [0.3, 0.1, 0.03])),
    "sm3": optimizers.sm3(0.5),
}


def loss(params):
    return jnp.sum((params["w"] - jnp.arange(6.0).reshape(2, 3)) ** 2) + jnp.abs(params["b"] - 2.0) ** 2


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_descend_and_agree_with_the_peer(name):
    peer = pytest.importorskip("jax.example_libraries.optimizers")
    import jax

    make = {
        "sgd": lambda o: o.sgd(0.05),
        "momentum": lambda o: o.momentum(0.02, 0.8),
        "nesterov": lambda o: o.nesterov(o.constant(0.02), mass=0.8),
        "adagrad": lambda o: o.adagrad(0.5),
        "rmsprop": lambda o: o.rmsprop(o.exponential_decay(0.1, 20, 0.5)),
        "rmsprop_momentum": lambda o: o.rmsprop_momentum(o.inverse_time_decay(0.05, 5, 1.0)),
        "adam": lambda o: o.adam(o.polynomial_decay(0.3, 100, 0.01)),
        "adamax": lambda o: o.adamax(o.piecewise_constant([30, 60], [0.3, 0.1, 0.03])),
        "sm3": lambda o: o.sm3(0.5),
    }[name]
    gradients = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    results = []
    for o, jit in ((optimizers, phalanx.jit), (peer, jax.jit)):
        init, update, get_params = make(o)
        state = init({"w": np.ones((2, 3), np.float32), "b": np.float32(1.0)})
        for i, g in enumerate(gradients):
            # A compiled update, whose state has the same structure.
            state = jit(update)(i, {"w": g, "b": g[0, 0]}, state)
        results.append(get_params(state))
    for key in ("w", "b"):
        np.testing.assert_allclose(results[0][key], results[1][key], rtol=2e-5)


def test_a_compiled_step_descends():
    init, update, get_params = optimizers.adam(0.3)
    state = init({"w": jnp.zeros((2, 3)), "b": 0.0})
    step = phalanx.jit(lambda i, state: update(i, phalanx.grad(loss)(get_params(state)), state))
    before = loss(get_params(state))
    for i in range(60):
        state = step(i, state)
    assert loss(get_params(state)) < 0.01 * before
    assert optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(state)).tree_def == state.tree_def


def test_structure_errors():
    init, update, _ = optimizers.sgd(0.1)
    with pytest.raises(TreeError) as e:
        update(0, (1.0,), init([1.0]))
    assert str(e.value) == (
        "optimizer update, gradients: expected the structure that the state was made with, PyTreeDef([*]), got "
        "PyTreeDef((*,)).\n  Fix: pass gradients of the parameters, and return a state of the same structure."
    )
    with pytest.raises(ArgumentError, match="one value more than boundaries"):
        optimizers.piecewise_constant([1], [1.0])
    with pytest.raises(ArgumentError, match=r"argument rng of apply_fun: expected a random key, got None"):
        stax.Dropout(0.5)[1]((), jnp.ones(2))


NETWORK = stax.serial(
    stax.Conv(4, (3, 3), padding="SAME"),
    stax.BatchNorm(),
    stax.Relu,
    stax.MaxPool((2, 2), strides=(2, 2)),
    stax.ConvTranspose(3, (2, 2), strides=(2, 2)),
    stax.AvgPool((3, 3), padding="SAME"),
    stax.FanOut(2),
    stax.parallel(stax.Tanh, stax.Identity),
    stax.FanInSum,
    stax.Flatten,
    stax.shape_dependent(lambda shape: stax.Dense(shape[-1] // 8)),
    stax.Dropout(0.9, mode="test"),
    stax.FanOut(2),
    stax.parallel(stax.Dense(3), stax.Softplus),
    stax.FanInConcat(),
    stax.LogSoftmax,
)


def test_a_network_has_the_shape_that_its_layers_declare_and_trains():
    init, apply = NETWORK
    shape, params = init(random.key(0), (5, 8, 8, 2))
    x = random.normal(random.key(1), (5, 8, 8, 2))
    target = jnp.arange(5)

    def nll(params):
        return -jnp.mean(apply(params, x, rng=random.key(2))[jnp.arange(5), target])

    assert apply(params, x, rng=random.key(2)).shape == shape
    opt_init, update, get_params = optimizers.adam(0.01)
    state = opt_init(params)
    step = phalanx.jit(lambda i, state: update(i, phalanx.grad(nll)(get_params(state)), state))
    before = nll(params)
    for i in range(30):
        state = step(i, state)
    assert nll(get_params(state)) < 0.5 * before


def test_mean_pooling_counts_the_elements_inside():
    _, apply = stax.AvgPool((3, 3), padding="SAME")
    np.testing.assert_allclose(apply((), jnp.ones((1, 4, 4, 2))), np.ones((1, 4, 4, 2)), rtol=1e-6)
    _, apply = stax.SumPool((2, 1), spec="NCHW")
    np.testing.assert_allclose(apply((), jnp.ones((1, 2, 4, 4))), np.full((1, 2, 3, 4), 2.0))
