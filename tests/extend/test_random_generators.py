"""Random number generators that users define, with the names of `extend.random`; clients by `extend.backend`."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import random
from phalanx.engine import HloSharding
from phalanx.extend import backend, random as jex_random, sharding as jex_sharding


def counter():
    """A generator whose key is a counter, so that each result can be foretold."""
    return jex_random.define_prng_impl(
        key_shape=(2,),
        seed=lambda s: jnp.stack([jnp.uint32(s), jnp.uint32(0)]),
        split=lambda key, shape: key + jnp.arange(np.prod(shape), dtype="uint32").reshape(*shape, 1),
        random_bits=lambda key, width, shape: jnp.full(shape, key[0] + key[1], f"uint{width}"),
        fold_in=lambda key, data: key.at[1].add(data),
        name="counter",
        tag="cnt",
    )


def test_a_generator_of_a_user_makes_keys_and_numbers():
    impl = counter()
    key = random.key(40, impl=impl)
    assert str(key.dtype) == "key<cnt>" and key.dtype == random.key_dtype(impl)
    assert random.key_data(random.split(key, 3))[:, 0].tolist() == [40, 41, 42]
    draw = lambda key: random.bits(random.fold_in(key, 2), (2,))
    assert draw(key).tolist() == phalanx.jit(draw)(key).tolist() == [42, 42]
    assert phalanx.vmap(draw)(random.split(key, 2)).tolist() == [[42, 42], [44, 44]]
    assert random.uniform(key, (3,)).shape == (3,)
    wrapped = random.wrap_key_data(jnp.array([7, 1], "uint32"), impl=impl)
    assert random.bits(wrapped).tolist() == 8
    assert random.bits(random.key(40, dtype=key.dtype)).tolist() == 40


def test_words_of_a_key_are_one_dimension():
    with pytest.raises(ValueError, match="argument key_shape: expected a shape of rank 1"):
        jex_random.define_prng_impl(
            key_shape=(2, 2), seed=None, split=None, random_bits=None, fold_in=None, name="square"
        )


def test_the_parts_of_threefry_are_those_of_keys():
    key = jex_random.seed_with_impl(jex_random.threefry_prng_impl, 5)
    assert (random.key_data(key) == random.key_data(random.key(5, impl="threefry2x32"))).all()
    keys = jex_random.random_seed(np.arange(3), jex_random.rbg_prng_impl)
    assert (random.key_data(keys[2]) == random.key_data(random.key(2, impl="rbg"))).all()
    with phalanx.threefry_partitionable(False):
        words = random.key_data(key)
        hashed = jex_random.threefry_2x32((words[0], words[1]), jnp.arange(5, dtype="uint32"))
        assert hashed.tolist() == random.bits(key, (5,)).tolist()


def test_backends_are_the_clients_of_devices():
    assert backend.get_backend() is phalanx.devices()[0].client
    assert backend.backends()["cpu"] is backend.get_backend("cpu")
    with phalanx.default_device(phalanx.devices()[1]):
        assert backend.get_default_device() == phalanx.devices()[1]
    assert backend.get_default_device() == phalanx.devices()[0]


def test_shardings_are_serialized():
    replicated = HloSharding.replicate()
    data = jex_sharding.get_serialized_proto_from_hlo_sharding(replicated)
    assert isinstance(data, bytes) and jex_sharding.get_hlo_sharding_from_serialized_proto(data) == replicated
