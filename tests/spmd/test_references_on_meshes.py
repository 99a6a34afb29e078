"""Mutable arrays over meshes: shardings are kept, and `shard_map` gives each device its shard as a reference."""

import numpy as np
import pytest

import phalanx as jax
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core import RefError
from phalanx.sharding import AxisType, NamedSharding, P

MESH = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
SPLIT = NamedSharding(MESH, P("x"))


def sharded_ref(values):
    return jax.new_ref(jax.device_put(jnp.asarray(values), SPLIT))


def test_references_keep_their_sharding():
    ref = sharded_ref(np.arange(8.0, dtype=np.float32))

    @jax.jit
    def update(ref):
        ref[...] += 1.0
        ref[0] += 1
        ref[1] += 5

    update(ref)
    update.lower(ref).compile()(ref)
    expected = np.arange(8.0) + 2
    expected[:2] += 2, 10
    np.testing.assert_allclose(ref[...], expected)
    assert ref.sharding == SPLIT and ref[...].sharding == SPLIT


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_shard_map_updates_the_shards_of_its_reference_arguments(wrap):
    ref, total = sharded_ref(np.arange(8.0, dtype=np.float32)), jax.new_ref(0.0)

    def step(part, total, x):
        part[...] += lax.axis_index("x") * x
        total[...] += lax.psum(part[...].sum(), "x")
        return part[...].max(keepdims=True)

    mapped = wrap(jax.shard_map(step, mesh=MESH, in_specs=(P("x"), P(), P()), out_specs=P("x")))
    np.testing.assert_allclose(mapped(ref, total, 10.0), [1, 13, 25, 37])
    np.testing.assert_allclose(ref[...], [0, 1, 12, 13, 24, 25, 36, 37])
    assert float(total[...]) == 148


def test_references_through_shard_map_are_differentiated():
    def loss(x):
        acc = jax.new_ref(jnp.zeros_like(x))

        def body(acc, x):
            acc[...] += jnp.sin(x)
            acc[...] *= x

        jax.shard_map(body, mesh=MESH, in_specs=P("x"), out_specs=P())(acc, x)
        return (jax.freeze(acc) ** 2).sum()

    x = jnp.arange(8.0) / 8
    expected = jax.grad(lambda x: ((jnp.sin(x) * x) ** 2).sum())(x)
    for gradient in (jax.grad(loss), jax.jit(jax.grad(loss))):
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-5)


def test_shard_map_does_not_close_over_references():
    ref = jax.new_ref(0.0)
    f = jax.shard_map(lambda x: x + ref[...], mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    with pytest.raises(RefError, match="a function that does not close over mutable array references"):
        f(jnp.arange(4.0))


def test_backward_writes_that_would_be_lost_are_refused():
    @jax.custom_vjp
    def stash(ref, x):
        return x

    stash.defvjp(lambda ref, x: (x, ref), lambda ref, g: (ref.set(g), (None, g))[1])
    ref = jax.new_ref(jnp.zeros(3))
    with pytest.raises(RefError, match="which would be lost"):
        jax.grad(lambda x: jax.vmap(jax.jit(stash))(ref, x).sum())(jnp.arange(3.0))
