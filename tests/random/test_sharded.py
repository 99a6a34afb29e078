"""Random values depend on their key and position only: the same for every mesh, and drawn without communication."""

import numpy as np
import pytest

import phalanx
from phalanx import random
from phalanx.sharding import NamedSharding, P

KEY = random.key(11)
MESHES = [((8,), ("x",)), ((4, 2), ("x", "y")), ((2, 4), ("x", "y"))]
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")

LOCAL = {
    "bits": lambda k: random.bits(k, (16, 24)),
    "bits8": lambda k: random.bits(k, (16, 24), "uint8"),
    "uniform": lambda k: random.uniform(k, (16, 24)),
    "normal": lambda k: random.normal(k, (16, 24)),
    "truncated_normal": lambda k: random.truncated_normal(k, -1.0, 1.0, (16, 24)),
    "randint": lambda k: random.randint(k, (16, 24), 0, 1000),
    "bernoulli": lambda k: random.bernoulli(k, 0.3, (16, 24)),
    "split": lambda k: random.key_data(random.split(k, (16, 24))),
}
LOOPING = {
    "gamma": lambda k: random.gamma(k, 0.7, (16, 24)),
    "poisson": lambda k: random.poisson(k, 20.0, (16, 24)),
    "permutation": lambda k: random.permutation(k, np.arange(384).reshape(16, 24), independent=True),
    "multivariate_normal": lambda k: random.multivariate_normal(k, np.zeros(24), np.eye(24), (16,)),
}


def specs(axes):
    return [P("x"), P(None, "x"), *([P("x", "y"), P(("y", "x"))] if len(axes) == 2 else [])]


@pytest.mark.one_is_quick(group=lambda name: name in LOCAL)
@pytest.mark.parametrize("name", [*LOCAL, *LOOPING])
def test_a_value_is_the_same_on_every_mesh(name):
    draw = {**LOCAL, **LOOPING}[name]
    expected = np.asarray(phalanx.jit(draw)(KEY))
    np.testing.assert_allclose(np.asarray(draw(KEY)), expected, rtol=1e-5)
    for shape, axes in MESHES if name in LOCAL else MESHES[1:2]:
        mesh = phalanx.make_mesh(shape, axes)
        for spec in specs(axes)[:: 1 if name in LOCAL else 2]:
            sharded = phalanx.jit(draw, out_shardings=NamedSharding(mesh, spec))(KEY)
            np.testing.assert_allclose(np.asarray(sharded), expected, rtol=1e-5)


@pytest.mark.parametrize("name", LOCAL)
def test_drawing_needs_no_communication(name):
    mesh = phalanx.make_mesh((4, 2), ("x", "y"))
    compiled = phalanx.jit(LOCAL[name], out_shardings=NamedSharding(mesh, P("x", "y"))).lower(KEY).compile()
    text = compiled.as_text()
    assert not [c for c in COLLECTIVES if c in text]
    assert "24]" not in text.replace("u32[24]", "") or name == "split"


def test_sharded_keys():
    mesh = phalanx.make_mesh((4, 2), ("x", "y"))
    keys = random.split(KEY, 8)
    placed = phalanx.device_put(keys, NamedSharding(mesh, P("x")))
    assert placed.shape == (8,) and placed.dtype == keys.dtype
    np.testing.assert_array_equal(np.asarray(random.key_data(placed)), np.asarray(random.key_data(keys)))
    again = random.wrap_key_data(random.key_data(placed))
    bits = phalanx.jit(phalanx.vmap(lambda k: random.bits(k, (3,))))
    draw = phalanx.jit(phalanx.vmap(lambda k: random.normal(k, (3,))))
    for version in (placed, again):
        np.testing.assert_array_equal(np.asarray(bits(version)), np.asarray(bits(keys)))
        # The last bit of a logarithm may depend on how XLA vectorises a shard of this size.
        np.testing.assert_allclose(np.asarray(draw(version)), np.asarray(draw(keys)), rtol=1e-6)


def test_out_sharding_of_an_eager_draw():
    mesh = phalanx.make_mesh((4, 2), ("x", "y"))
    sharding = NamedSharding(mesh, P("x", "y"))
    drawn = random.normal(KEY, (8, 8), out_sharding=sharding)
    assert drawn.sharding.is_equivalent_to(sharding, 2)
    np.testing.assert_array_equal(np.asarray(drawn), np.asarray(random.normal(KEY, (8, 8))))
