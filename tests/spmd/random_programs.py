"""Random programs of one member of a mesh: operations and collectives inside loops, branches, derivatives, remat and calls.

Every style of parallelism must compute the same values and gradients, whichever nests in which. `check` compares them
for the program of one seed. `make fuzz`, or `python -m tests.spmd.random_programs SECONDS [SEED]`, does so for one seed
after another, and prints the smallest part of a program that still fails.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import sys
import time
import traceback

import numpy as np
from phalanx.experimental.maps import xmap
from tests.lax import structured_cases
from tests.lax.cases import CASES

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, random as random_bits
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec as P

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


def operation(apply, args, is_differentiated):
    """A step that applies an operation near the arguments of one of its cases."""

    def step(v, a, f):
        # Rounding must not decide between branches of a derivative that is not checked.
        u = v if is_differentiated else lax.stop_gradient(v)
        out = apply(*[near(x, u) for x in args])
        results = [y for y in (out if isinstance(out, list | tuple) else [out]) if y.dtype.kind in "biufc"]
        return jnp.tanh(v + sum([jnp.real(y).astype(v.dtype).mean() for y in results if y.size]))

    return step


def near(x, v):
    """An argument that depends on `v`, and differs little if it is inexact, else not at all."""
    x, v = jnp.asarray(x), jnp.tanh(jnp.resize(v, np.shape(x)))
    if x.dtype.kind in "fc":
        return x + (1e-3 * v).astype(x.dtype)
    return x ^ (v > 2) if x.dtype.kind == "b" else x + (v > 2).astype(x.dtype)


# Every operation of the tables that the laws walk.
OPERATIONS = {
    f"operation {case.id}": operation(functools.partial(case.primitive, **case.params), case.args, case.order > 0)
    for case in CASES
    if not any(getattr(p, "itemsize", 0) > 4 for p in case.params.values())  # dtypes that programs do not have
} | {f"operation {case.name}": operation(case.flat(), case.args, bool(case.varied)) for case in structured_cases.CASES}


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of a vector of four numbers, for a member of the axes `x` and `y`: steps with axes and smaller programs."""

    steps: tuple[tuple[str, str, Program], ...] = ()

    def __call__(self, v):
        if not self.steps:
            return jnp.sin(v)
        for name, axis, smaller in self.steps:
            v = (STEPS.get(name) or OPERATIONS[name])(v, axis, smaller)
        return v

    def smaller(self):
        """Programs with one part less."""
        for i, (name, axis, inner) in enumerate(self.steps):
            before, after = self.steps[:i], self.steps[i + 1 :]
            yield Program((*before, *after))
            yield from (Program((*before, (name, axis, less), *after)) for less in inner.smaller())


def draw(rng, depth):
    """A random program with this many levels."""
    if depth == 0:
        return Program()
    names = [rng.choice(list(rng.choice([STEPS, OPERATIONS]))) for _ in range(rng.randint(2, 4))]
    return Program(tuple([(name, rng.choice(AXES), draw(rng, depth - 1)) for name in names]))


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


def plain(f):
    """All members by vmap alone."""
    return phalanx.vmap(phalanx.vmap(f, axis_name="y"), axis_name="x")


def over_mesh(f):
    """All members, partitioned by XLA."""
    split = NamedSharding(Mesh(devices(8, 4, 2), AXES), P(*AXES))
    return phalanx.jit(plain(f), in_shardings=split, out_shardings=split)


STYLES = {
    "shard_map": lambda f: on_mesh(f, Mesh(devices(8, 4, 2), AXES), P("x", "y"), 2),
    "vmap of shard_map": lambda f: phalanx.vmap(on_mesh(f, Mesh(devices(2, 2), "y"), P("y"), 1), axis_name="x"),
    "shard_map of shard_map": nested,
    "pmap of vmap": lambda f: phalanx.pmap(phalanx.vmap(f, axis_name="y"), axis_name="x"),
    "pmap of pmap": lambda f: phalanx.pmap(phalanx.pmap(f, axis_name="y"), axis_name="x"),
    "xmap": by_xmap,
    "jit over a mesh": over_mesh,
}


def compare(f, styles):
    """Raise an AssertionError unless the styles compute the same values and gradients as `vmap` on one device."""
    loss = lambda g: lambda v: (jnp.cos(g(v)) ** 2).sum()
    value, grad = phalanx.jit(plain(f))(X), phalanx.jit(phalanx.grad(loss(plain(f))))(X)
    for name in styles:
        mapped = STYLES[name](f)
        np.testing.assert_allclose(mapped(X), value, rtol=1e-3, atol=1e-4, err_msg=name)
        np.testing.assert_allclose(phalanx.grad(loss(mapped))(X), grad, rtol=1e-2, atol=1e-3, err_msg=name)


def check(seed, depth=2, styles=3):
    """Compare the first program of one seed that needs no waived rule, in some styles."""
    rng = random.Random(seed)
    while True:
        try:
            return compare(draw(rng, depth), rng.sample(list(STYLES), styles))
        except phalanx.errors.RuleError:
            phalanx.clear_caches()


def failure(f, style):
    """The error of a program in a style, or None, also where a rule is waived."""
    try:
        compare(f, [style])
    except phalanx.errors.RuleError:
        return None
    except Exception as error:
        return error
    return None


def shrink(f, style):
    """The smallest part of a program that still fails with an error of the same class, and the error."""
    error, is_smaller = failure(f, style), True
    while is_smaller:
        is_smaller = False
        for less in f.smaller():
            found = failure(less, style)
            if type(found) is type(error):
                f, error, is_smaller = less, found, True
                break
    return f, error


def main(seconds, seed):
    """Check one seed after another for so many seconds; 1 if there were findings."""
    end, tried, findings = time.monotonic() + seconds, 0, 0
    while not tried or time.monotonic() < end:
        rng = random.Random(seed + tried)
        f, style = draw(rng, rng.choice([1, 1, 2])), rng.choice(list(STYLES))
        if failure(f, style) is not None:
            findings += 1
            least, error = shrink(f, style)
            print(
                f"seed {seed + tried}, {style}: {least}", *traceback.format_exception(error)[-3:], sep="\n", flush=True
            )
        tried += 1
        phalanx.clear_caches()
    print(f"programs: {tried:,} in {seconds:.0f} s, {findings} findings, from seed {seed}", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 2**32))
