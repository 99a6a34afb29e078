"""`shard_alike`: two arrays that the compiler shards alike."""

import numpy as np
import pytest
from phalanx.experimental.shard_alike import shard_alike

import phalanx
import phalanx.numpy as jnp
from phalanx.sharding import NamedSharding, P


@pytest.fixture
def sharded():
    mesh = phalanx.sharding.Mesh(np.array(phalanx.devices()[:4]).reshape(2, 2), ("x", "y"))
    return phalanx.device_put(np.arange(16.0, dtype=np.float32).reshape(8, 2), NamedSharding(mesh, P("x", "y")))


def test_a_new_array_takes_the_sharding_of_an_argument(sharded):
    f = phalanx.jit(lambda x: shard_alike(x, jnp.arange(16.0).reshape(8, 2))[1])
    out = f(sharded)
    assert out.sharding == sharded.sharding
    np.testing.assert_array_equal(out, sharded)
    assert phalanx.jit(lambda x: jnp.arange(16.0).reshape(8, 2))(sharded).sharding != sharded.sharding


def test_trees_are_matched_leaf_by_leaf(sharded):
    f = phalanx.jit(lambda x: shard_alike({"a": x, "b": x.T}, {"a": jnp.ones((8, 2)), "b": jnp.ones((2, 8))})[1])
    out = f(sharded)
    assert out["a"].sharding.spec == P("x", "y")
    assert out["b"].sharding.spec == P("y", "x")


@pytest.mark.parametrize("transform", [lambda f: f, phalanx.jit, phalanx.checkpoint])
def test_transformations(sharded, transform):
    def f(x):
        x, y = shard_alike(x, x * 2)
        return (x * y).sum()

    f = transform(f)
    np.testing.assert_allclose(phalanx.grad(f)(sharded), 4 * np.asarray(sharded))
    np.testing.assert_allclose(phalanx.jvp(f, (sharded,), (sharded,))[1], (4 * np.asarray(sharded) ** 2).sum())
    np.testing.assert_allclose(phalanx.vmap(f)(sharded), (2 * np.asarray(sharded) ** 2).sum(1))


def test_an_unmapped_counterpart_is_broadcast():
    out = phalanx.vmap(lambda x: shard_alike(x, jnp.ones(2))[1], in_axes=1, out_axes=1)(jnp.zeros((2, 3)))
    np.testing.assert_array_equal(out, np.ones((2, 3)))


def test_refusals(sharded):
    with pytest.raises(ValueError) as error:
        shard_alike({"a": sharded}, {"a": sharded.T})
    assert str(error.value) == (
        "shard_alike, y['a']: expected the shape of its counterpart in x, f32[8,2], got f32[2,8].\n"
        "  Fix: reshape or slice y['a'] to (8, 2)."
    )
    with pytest.raises(phalanx.errors.TreeError, match="shard_alike, y: expected the structure of x"):
        shard_alike({"a": sharded}, [sharded])
