"""Random programs of one member, with collectives inside loops, branches, derivatives and calls: every style runs them
alike, values and gradients, whichever nests in which."""

import random

import numpy as np
import pytest
from phalanx.experimental.maps import xmap

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, random as random_bits
from phalanx.sharding import Mesh, PartitionSpec as P

AXES = ("x", "y")
KEY = random_bits.key(0)
X = np.random.default_rng(0).normal(size=(4, 2, 4)).astype(np.float32)


def shift(v, a):
    n = lax.axis_size(a)
    return v * 0.5 + lax.ppermute(v, a, [(i, (i + 1) % n) for i in range(n)])


def scattered(v, a):
    part = lax.psum_scatter(jnp.tile(v, lax.axis_size(a)), a, tiled=True)
    return jnp.tanh(v) + jnp.resize(part, (4,))


def chosen(v, a, f):
    return lax.cond(lax.psum(v.sum(), AXES) > 0, f, lambda u: u * 0.3, v)


def in_groups(v, a):
    n = lax.axis_size(a)
    pairs = [[i, n - 1 - i] for i in range(n // 2)]
    return v * 0.5 + lax.psum(v, a, axis_index_groups=pairs) + lax.all_gather(v, a, axis_index_groups=pairs)[1]


def several_times(v, a):
    """Each member goes round the loop as often as its position says."""
    k, u = lax.axis_index(a), lax.stop_gradient(v)
    return v + lax.while_loop(lambda c: c[0] < k, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, u))[1]


def own_rule(v, a):
    """A rotation that brings its own derivative, which holds a collective."""
    n = lax.axis_size(a)
    turn = lambda u: lax.ppermute(u, a, [(i, (i + 1) % n) for i in range(n)])
    f = phalanx.custom_jvp(lambda u: 2 * turn(jnp.sin(u)))
    f.defjvp(lambda primals, tangents: (f(*primals), 2 * turn(jnp.cos(*primals) * tangents[0])))
    return f(v)


def mapped_and_named(v, a, f):
    """A mapped axis inside, in one sum with that of the mesh."""
    row = lambda s: lax.psum(f(v * s), (a, "z")) * lax.axis_index("z")
    return jnp.tanh(phalanx.vmap(row, axis_name="z")(jnp.array([0.1, 0.2, 0.3])).sum(0))


# What a step of a program may do, from a vector, an axis and a smaller program.
STEPS = {
    "psum": lambda v, a, f: jnp.tanh(v + 0.3 * lax.psum(v, a)),
    "pmean": lambda v, a, f: v - lax.pmean(jnp.sin(v), AXES),
    "pmax": lambda v, a, f: v + lax.stop_gradient(lax.pmax(v, a)),
    "ppermute": lambda v, a, f: shift(v, a),
    "all_gather": lambda v, a, f: jnp.tanh(
        (lax.all_gather(v, a) * jnp.arange(1.0, lax.axis_size(a) + 1)[:, None]).sum(0)
    ),
    "psum_scatter": lambda v, a, f: scattered(v, a),
    "all_to_all": lambda v, a, f: lax.all_to_all(v.reshape(lax.axis_size(a), -1), a, 0, 0).reshape(4),
    "axis_index": lambda v, a, f: v * (1 + 0.1 * lax.axis_index(a)),
    "groups": lambda v, a, f: in_groups(v, a),
    "pshuffle": lambda v, a, f: lax.pshuffle(v, AXES, [3, 1, 4, 0, 5, 7, 2, 6]),
    "while": lambda v, a, f: several_times(v, a),
    "switch": lambda v, a, f: lax.switch(lax.axis_index(a) % 3, [jnp.sin, jnp.cos, lambda u: u * u], v),
    "random": lambda v, a, f: v * random_bits.uniform(random_bits.fold_in(KEY, lax.axis_index(a)), (4,)),
    "custom_jvp": lambda v, a, f: own_rule(v, a),
    "jvp": lambda v, a, f: phalanx.jvp(f, (v,), (jnp.cos(v),))[1],
    "named vmap": mapped_and_named,
    "scan": lambda v, a, f: lax.scan(lambda c, t: (jnp.tanh(f(c) * t), c.sum()), v, jnp.array([0.5, 0.7]))[0],
    "fori_loop": lambda v, a, f: lax.fori_loop(0, 2, lambda i, c: jnp.sin(f(c)), v),
    "cond": chosen,
    "grad": lambda v, a, f: v + 0.1 * phalanx.grad(lambda u: (jnp.sin(f(u)) ** 2).sum())(v),
    "jit": lambda v, a, f: phalanx.jit(f)(v),
    "checkpoint": lambda v, a, f: phalanx.checkpoint(f)(v),
    "vmap": lambda v, a, f: phalanx.vmap(lambda s: f(v * s).sum())(jnp.array([0.1, 0.2, 0.3, 0.4])),
}


def program(rng, depth):
    """A random function of a vector of four numbers, for a member of the axes `x` and `y`."""
    if depth == 0:
        return jnp.sin
    steps = [
        (STEPS[rng.choice(list(STEPS))], rng.choice(AXES), program(rng, depth - 1)) for _ in range(rng.randint(2, 4))
    ]

    def run(v):
        for step, axis, smaller in steps:
            v = step(v, axis, smaller)
        return v

    return run


def devices(count, *shape):
    return np.array(phalanx.devices()[:count]).reshape(shape)


def on_mesh(f, mesh, spec, dims):
    """A function of one member as one of its piece of a shard_map, which has as many dimensions of size 1 before it."""
    piece = lambda v: f(v.reshape(4)).reshape((1,) * dims + (4,))
    return phalanx.shard_map(piece, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)


def nested(f):
    spec = P(None, "y")
    piece = lambda v: f(v.reshape(4)).reshape(1, 1, 4)
    inner = phalanx.shard_map(piece, in_specs=spec, out_specs=spec, axis_names={"y"}, check_vma=False)
    outer = dict(mesh=Mesh(devices(8, 4, 2), AXES), in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    return phalanx.jit(phalanx.shard_map(inner, **outer, check_vma=False))


def by_xmap(f):
    axes = ["x", "y", ...]
    mapped = xmap(f, axes, axes, axis_resources={"x": "x", "y": "y"})

    def run(v):
        with Mesh(devices(8, 4, 2), AXES):
            return mapped(v)

    return run


STYLES = {
    "shard_map": lambda f: on_mesh(f, Mesh(devices(8, 4, 2), AXES), P("x", "y"), 2),
    "vmap of shard_map": lambda f: phalanx.vmap(on_mesh(f, Mesh(devices(2, 2), "y"), P("y"), 1), axis_name="x"),
    "shard_map of shard_map": nested,
    "pmap of vmap": lambda f: phalanx.pmap(phalanx.vmap(f, axis_name="y"), axis_name="x"),
    "pmap of pmap": lambda f: phalanx.pmap(phalanx.pmap(f, axis_name="y"), axis_name="x"),
    "xmap": by_xmap,
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_transformation_computes_the_same_random_program(seed):
    rng = random.Random(seed)
    f = program(rng, 2)
    loss = lambda g: lambda v: (jnp.cos(g(v)) ** 2).sum()
    plain = phalanx.vmap(phalanx.vmap(f, axis_name="y"), axis_name="x")
    value, grad = phalanx.jit(plain)(X), phalanx.jit(phalanx.grad(loss(plain)))(X)
    for name in rng.sample(list(STYLES), 3):
        mapped = STYLES[name](f)
        np.testing.assert_allclose(mapped(X), value, rtol=1e-3, atol=1e-4, err_msg=name)
        np.testing.assert_allclose(phalanx.grad(loss(mapped))(X), grad, rtol=1e-2, atol=1e-3, err_msg=name)
