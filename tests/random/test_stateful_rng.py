"""The random generator with state: each draw differs, also in compiled functions, loops and under `vmap`."""

import numpy as np
import pytest
from phalanx.experimental import random as exp_random

import phalanx as jax
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core import ArgumentError, TraceError


def test_draws_are_those_of_the_key_with_the_counter_folded_in():
    rng, key = exp_random.stateful_rng(7), jax.random.key(7)
    for i in range(3):
        expected = jax.random.uniform(jax.random.fold_in(key, i), (2,))
        np.testing.assert_array_equal(rng.uniform(size=2), expected)
    assert rng.key(5).shape == (5,) and rng.key((2, 3)).shape == (2, 3)


def test_parameters_broadcast():
    rng = exp_random.stateful_rng(1)
    assert rng.uniform(np.array([0.0, 5.0]), 10.0).shape == (2,)
    assert rng.normal(np.zeros((3, 1)), np.ones(2), dtype="bfloat16").shape == (3, 2)
    low, high = np.array([0, 10]), np.array([5, 20])
    drawn = rng.integers(low, high, (100, 2))
    assert drawn.dtype == np.int32 and bool(((drawn >= low) & (drawn < high)).all())
    assert int(rng.integers(1)) == 0 and rng.random((2, 2)).shape == (2, 2)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_loops_and_compiled_functions_count_their_draws(wrap):
    def in_scan(rng):
        return lax.scan(lambda c, _: (c, rng.uniform()), None, length=4)[1]

    rng = exp_random.stateful_rng(3)
    expected = [float(rng.uniform()) for _ in range(8)]
    rng = exp_random.stateful_rng(3)
    run = wrap(in_scan)
    np.testing.assert_array_equal(np.concatenate([run(rng), run(rng)]), np.float32(expected))


def test_split_generators_are_mapped_and_equal_spawned_ones():
    x = jnp.arange(4.0)
    rng = exp_random.stateful_rng(5)
    expected = [float(child.uniform()) for child in rng.spawn(4)]
    rng = exp_random.stateful_rng(5)
    np.testing.assert_allclose(jax.vmap(lambda rng, x: x + rng.uniform())(rng.split(4), x), expected + np.arange(4))
    with pytest.raises(ArgumentError, match="4,. generators, made by split"):
        rng.split(4).key()


def test_generators_need_a_seed_in_transformed_functions_and_typed_parts():
    assert exp_random.stateful_rng().uniform(size=2).shape == (2,)
    with pytest.raises(TraceError, match="When used within transformed code"):
        jax.jit(lambda: exp_random.stateful_rng().uniform())()
    with pytest.raises(ValueError, match="a typed PRNG key"):
        exp_random.StatefulPRNG(jnp.zeros(2, "uint32"), jax.new_ref(0))
    with pytest.raises(ValueError, match="a scalar integer ref"):
        exp_random.StatefulPRNG(jax.random.key(0), 0)
