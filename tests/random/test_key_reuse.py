"""With `debug_key_reuse`, a typed random key that is used twice is an error, wherever it is used."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, random
from phalanx.errors import KeyReuseError


@pytest.fixture(autouse=True)
def watching():
    with phalanx.debug_key_reuse(True):
        yield


def twice(key):
    return random.normal(key) + random.uniform(key)


def carried(key):
    return lax.scan(lambda k, x: (k, x + random.normal(k)), key, jnp.zeros(2))


def drawn_in_each(key):
    return lax.while_loop(lambda x: x < 3, lambda x: x + 1 + random.normal(key), 0.0)


REUSED = {
    "at once": lambda: twice(random.key(0)),
    "drawn and split": lambda: (lambda k: (random.normal(k), random.split(k)))(random.key(0)),
    "in jit": lambda: phalanx.jit(twice)(random.key(0)),
    "in two calls": lambda: (lambda k, f: (f(k), f(k)))(random.key(0), phalanx.jit(random.normal)),
    "in an inner call": lambda: phalanx.jit(lambda k: random.normal(k) + phalanx.jit(random.normal)(k))(random.key(0)),
    "a part of a used one": lambda: phalanx.jit(lambda k: (random.normal(k), random.normal(k.reshape(1)[0])))(
        random.key(0)
    ),
    "in each iteration": lambda: lax.scan(lambda c, x: (c + random.normal(KEY), x), 0.0, jnp.zeros(2)),
    "carried on": lambda: carried(random.key(0)),
    "in a while loop": lambda: drawn_in_each(random.key(0)),
    "after a branch": lambda: phalanx.jit(lambda k: random.normal(k) + lax.cond(True, random.normal, lambda k: 0.0, k))(
        random.key(0)
    ),
    "under grad": lambda: phalanx.grad(lambda x: x * phalanx.jit(twice)(random.key(0)))(1.0),
}
KEY = random.key(7)


@pytest.mark.parametrize("name", REUSED)
def test_a_key_used_twice_is_an_error(name):
    with pytest.raises(KeyReuseError):
        REUSED[name]()


def test_the_error_names_both_uses():
    with pytest.raises(KeyReuseError) as e:
        phalanx.jit(twice)(random.key(0))
    line = twice.__code__.co_firstlineno + 1
    first, second = [f"{__file__}:{line}:{column} (twice)" for column in (11, 32)]
    assert str(e.value) == (
        "random key: expected a key that is drawn from or split once, got a key that random_bits uses at "
        f"{second}; it was used before by {first}.\n  Fix: split it first, `key, subkey = random.split(key)`, and use "
        "each of the new keys once."
    )
    key = random.key(0)
    random.normal(key)
    with pytest.raises(
        KeyReuseError, match="got an argument of uniform, which consumes it; it was used before by normal"
    ):
        random.uniform(key)


def test_new_and_cloned_keys_may_be_used():
    a, b = random.split(random.key(0))
    np.testing.assert_array_equal(random.normal(a), random.normal(random.clone(random.split(random.key(0))[0])))
    random.normal(b)
    root = random.key(1)
    assert float(random.normal(random.fold_in(root, 1))) != float(random.normal(random.fold_in(root, 2)))
    phalanx.jit(lambda k: lax.scan(lambda k, _: (lambda n: (n[0], random.normal(n[1])))(random.split(k)), k, length=3))(
        random.key(2)
    )
    lax.cond(True, random.normal, random.uniform, random.key(3))
    phalanx.vmap(random.normal)(random.split(random.key(4), 3))


SAMPLERS = {
    "normal": (), "bits": (), "gamma": (2.0,), "categorical": (np.zeros(3),), "choice": (np.arange(5),),
    "permutation": (np.arange(5),), "randint": ((3,), 0, 9), "dirichlet": (np.ones(3),),
    "poisson": (2.0,), "binomial": (9.0, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_uses_its_key_once(name):
    key = random.key(0)
    getattr(random, name)(key, *SAMPLERS[name])
    with pytest.raises(KeyReuseError):
        getattr(random, name)(key, *SAMPLERS[name])


def test_without_the_option_keys_may_be_reused():
    with phalanx.debug_key_reuse(False):
        key = random.key(0)
        assert float(random.normal(key)) == float(random.normal(key))
