"""Law: a collective program gives the same values and gradients under vmap and shard_map, over any number of devices."""

import functools

import numpy as np
import pytest
from phalanx.experimental.maps import xmap

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.jaxpr_checker import check_jaxpr
from phalanx.sharding import AxisType, PartitionSpec as P

pytestmark = pytest.mark.lengthy

N = 8
RNG = np.random.default_rng(0)
W = RNG.normal(size=(8, 3)).astype("float32")  # shared by all members
X = RNG.normal(size=(N, 8)).astype("float32")  # one row for each member


def ring(n):
    return [(i, (i + 1) % n) for i in range(n)]


def halves(n):
    return [list(range(n // 2)), list(range(n // 2, n))] if n > 1 else [[0]]


def mean_of_squares(w, x, a):
    return lax.pmean((jnp.sin(x) @ w) ** 2, a)


def scan_with_a_shared_carry(w, x, a):
    def step(c, xi):
        c = jnp.tanh(c + lax.psum(xi, a) * w.sum(0))
        return c, c * xi

    return lax.scan(step, jnp.zeros(3), x)


def scan_whose_carry_starts_shared(w, x, a):
    return lax.scan(lambda c, wi: (jnp.sin(c * wi.sum() + x[:3]), lax.pmean(c, a)), jnp.ones(3), w)


def branch_of_each_member(w, x, a):
    return lax.cond(lax.axis_index(a) % 2 == 0, lambda v: v @ w, lambda v: jnp.sin(v)[:3] * w[0], x)


def branch_that_all_take(w, x, a):
    return lax.cond(lax.psum(1, a) > 2, lambda v: lax.psum(v, a) @ w, lambda v: v @ w, x)


def switch_with_residuals(w, x, a):
    branches = [lambda v: jnp.exp(v).sum() * w, lambda v: w * v[:, None], lambda v: jnp.cos(w)]
    return lax.switch(lax.axis_index(a) % 3, branches, x)


def loop_in_a_loop(w, x, a):
    inner = lambda c, wi: lax.scan(lambda d, xi: (d * wi.sum() + lax.pmean(xi * d, a), None), c, x)[0]
    return lax.scan(lambda c, wi: (inner(c, wi), c), 0.1, w * 0.3)


def branches_in_a_loop(w, x, a):
    step = lambda c, xi: lax.cond(xi > 0, lambda c: c * w.sum(), jnp.sin, c)
    return lax.scan(lambda c, xi: (step(c, xi), lax.psum(c, a)), x[0], x)[1]


def gradients_in_a_loop(w, x, a):
    return lax.scan(lambda c, xi: (c - 0.1 * phalanx.grad(lambda c: ((xi * c) ** 2).sum())(c), c), x[:3], x)[0] * w


def solution(w, x, a):
    matrix = w.T @ w + 3 * jnp.eye(3)
    solve = lambda _, b: jnp.linalg.solve(matrix, b)
    return lax.custom_linear_solve(lambda v: matrix @ v, x @ w, solve, symmetric=True)


@phalanx.custom_vjp
def halved(w, x):
    return w.sum() * x


halved.defvjp(lambda w, x: (halved(w, x), (w, x)), lambda r, ct: (jnp.ones_like(r[0]) * (ct * r[1]).sum() / 2, ct / 2))


def ragged(w, x, a):
    """Each member sends as many rows as its position says, and one more, to the next; what arrives ends the output."""
    n = lax.axis_size(a)
    place = lax.axis_index(a)
    to = jnp.arange(n) == (place + 1) % n
    size = jnp.minimum(place + 1, 4)
    arriving = jnp.where(jnp.arange(n) == (place - 1) % n, jnp.minimum((place - 1) % n + 1, 4), 0)
    rows = jnp.sin(x)[:, None] * w.sum(0)
    return lax.ragged_all_to_all(
        rows, w[:5] * 2, jnp.where(to, 1, 0), jnp.where(to, size, 0), jnp.where(to, 5 - size, 0), arriving, axis_name=a
    )


PROGRAMS = {
    "psum": lambda w, x, a: lax.psum(jnp.sin(x), a) * w.sum() + x,
    "psum of a shared value": lambda w, x, a: lax.psum(w * 2, a) + x.sum(),
    "psum of a sum": lambda w, x, a: lax.psum(w.sum() + x, a),
    "pmean": mean_of_squares,
    "pmax, pmin": lambda w, x, a: (lax.pmax(jnp.sin(x), a) * w.sum(), lax.pmin(x * x, a)),
    "groups": lambda w, x, a: lax.psum(x * w.sum(), a, axis_index_groups=halves(lax.axis_size(a))) ** 2,
    "all_gather": lambda w, x, a: jnp.sin(lax.all_gather(x, a)).sum(0) @ w,
    "all_gather, tiled": lambda w, x, a: lax.all_gather(x @ w, a, axis=0, tiled=True) * x[0],
    "all_gather_invariant": lambda w, x, a: jnp.sin(lax.all_gather_invariant(x, a)).sum(0) @ w,
    "psum_scatter": lambda w, x, a: lax.psum_scatter(jnp.sin(x) * w[:, 0], a, tiled=True) ** 2,
    "all_to_all": lambda w, x, a: lax.all_to_all(x * w[:, 1], a, 0, 0, tiled=True) ** 2,
    "ppermute": lambda w, x, a: lax.ppermute(x, a, ring(lax.axis_size(a))) @ w,
    "ppermute, some": lambda w, x, a: lax.ppermute(x, a, [(0, lax.axis_size(a) - 1)]) @ w,
    "pbroadcast": lambda w, x, a: lax.pbroadcast(jnp.sin(x), a, lax.axis_size(a) - 1) @ w + x[0],
    "pshuffle": lambda w, x, a: lax.pshuffle(x @ w, a, [*range(1, lax.axis_size(a)), 0]) * w[0],
    "pdot": lambda w, x, a: lax.pdot(w, x * x, a, ((0,), (0,))) * x[:3],
    "ragged_all_to_all": ragged,
    "axis_index": lambda w, x, a: (x @ w) * lax.axis_index(a),
    "scan_with_a_shared_carry": scan_with_a_shared_carry,
    "scan_whose_carry_starts_shared": scan_whose_carry_starts_shared,
    "branch_of_each_member": branch_of_each_member,
    "branch_that_all_take": branch_that_all_take,
    "switch_with_residuals": switch_with_residuals,
    "loop_in_a_loop": loop_in_a_loop,
    "branches_in_a_loop": branches_in_a_loop,
    "gradients_in_a_loop": gradients_in_a_loop,
    "solution": solution,
    "two psums": lambda w, x, a: lax.psum(lax.psum(x, a) * w[:, 0] * x, a),
    "custom_vjp": lambda w, x, a: halved(w, x) * lax.psum(x, a),
    "inner jit": lambda w, x, a: phalanx.jit(lambda v: lax.psum(v @ w, a))(x) * x[0],
    "inner jit of shared values": lambda w, x, a: phalanx.jit(lambda v: jnp.sin(v) * 2)(w).sum() * x,
    "checkpoint": lambda w, x, a: phalanx.checkpoint(lambda v: jnp.sin(lax.psum(jnp.sin(v) @ w, a)))(x) + x[0],
    "vmap inside": lambda w, x, a: phalanx.vmap(lambda v: lax.psum(v * w.sum(), a) * v)(x),
    "jvp inside": lambda w, x, a: phalanx.jvp(lambda v: lax.psum(jnp.sin(v) @ w, a), (x,), (x * 2,)),
}


def loss(fun, w, x):
    """A scalar that weighs every element of every member's results differently."""
    leaves = phalanx.tree.leaves(fun(w, x))
    return sum((jnp.cos(jnp.arange(v.size)).reshape(v.shape) * v).sum() for v in leaves), leaves


def all_of(run, w, x, but=()):
    """Losses, results and gradients of all programs, compiled as one."""
    one = lambda f, w, x: phalanx.value_and_grad(lambda w, x: loss(lambda *a: run(f, *a), w, x), (0, 1), has_aux=True)(
        w, x
    )
    return phalanx.jit(lambda w, x: {name: one(f, w, x) for name, f in PROGRAMS.items() if name not in but})(w, x)


@functools.cache
def by_vmap(n):
    return all_of(lambda f, w, x: phalanx.vmap(lambda v: f(w, v, "x"), axis_name="x")(x), W, X[:n])


def by_shard_map(n, mesh, axes, but=(), **options):
    def run(f, w, x):
        one = lambda w, v: phalanx.tree.map(lambda y: y[None], f(w, v.reshape(v.shape[-1:]), axes))
        return phalanx.shard_map(one, mesh=mesh, in_specs=(P(), P(axes)), out_specs=P(axes), **options)(w, x)

    return all_of(run, W, X[:n], but)


def assert_same(got, want):
    for name in got:
        reference = want[name]
        for a, b in zip(phalanx.tree.leaves(got[name]), phalanx.tree.leaves(reference), strict=True):
            np.testing.assert_allclose(a, np.reshape(b, np.shape(a)), rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("n", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 4)), 8])
def test_collectives_of_shard_map_equal_those_of_vmap(n):
    assert_same(by_shard_map(n, phalanx.make_mesh((n,), ("x",)), "x"), by_vmap(n))


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 8])
def test_collectives_of_shard_map_without_check_vma_equal_those_of_vmap(n):
    assert_same(by_shard_map(n, phalanx.make_mesh((n,), ("x",)), "x", check_vma=False), by_vmap(n))


@pytest.mark.slow
def test_collectives_over_two_axes_treat_the_last_one_as_minor():
    mesh = phalanx.make_mesh((4, 2), ("x", "y"))
    want = by_vmap(8)
    assert_same(by_shard_map(8, mesh, ("x", "y"), but=["groups"]), want)


@pytest.mark.slow
def test_collectives_of_pmap_and_soft_pmap_equal_those_of_vmap():
    want = by_vmap(8)
    for over_rows in (phalanx.pmap, phalanx.soft_pmap):
        run = lambda f, w, x, over=over_rows: over(lambda w, v: f(w, v, "x"), "x", in_axes=(None, 0))(w, x)
        assert_same(all_of(run, W, X), want)


@pytest.mark.slow
def test_collectives_of_xmap_equal_those_of_vmap():
    run = lambda f, w, x: xmap(
        lambda w, v: f(w, v, "x"), in_axes=({}, {0: "x"}), out_axes={0: "x"}, axis_resources={"x": "devices"}
    )(w, x)
    with phalanx.make_mesh((4,), ("devices",), axis_types=(AxisType.Auto,)):
        assert_same(all_of(run, W, X), by_vmap(8))


def test_every_derived_program_has_correct_varying_axes():
    mesh = phalanx.make_mesh((2,), ("x",))

    def run(f, w, x):
        one = lambda w, v: phalanx.tree.map(lambda y: y[None], f(w, v[0], "x"))
        return phalanx.shard_map(one, mesh=mesh, in_specs=(P(), P("x")), out_specs=P("x"))(w, x)

    for name, f in PROGRAMS.items():
        gradient = phalanx.grad(lambda w, f=f: loss(lambda w, x: run(f, w, x), w, X[:2])[0])
        for derived in (gradient, lambda w, g=gradient: phalanx.vmap(g)(jnp.stack([w, w]))):
            program = phalanx.make_jaxpr(derived)(W)
            check_jaxpr(program)
            for eqn in program.eqns:
                if eqn.primitive.name == "shard_map":
                    specs = zip(eqn.params["jaxpr"].out_avals, eqn.params["out_specs"], strict=True)
                    assert all(a.varying == set(s.axes) for a, s in specs), name


def inside(xp):
    """Gradients that each device takes itself: of (shared, own) to a row."""
    lax, jnp = xp.lax, xp.numpy
    loss = lambda w, x: (jnp.sin(x @ w) ** 2).mean()
    return {
        "by a shared value": lambda w, x: xp.grad(loss)(w, x),
        "of a mean": lambda w, x: xp.grad(lambda w: lax.pmean(loss(w, x), "x"))(w),
        "of a sum": lambda w, x: xp.grad(lambda x: lax.psum(loss(w, x), "x"))(x),
        "of what is gathered": lambda w, x: xp.grad(lambda x: loss(w, lax.all_gather(x, "x", tiled=True)))(x),
        "of what is sent": lambda w, x: xp.grad(lambda x: (lax.ppermute(x, "x", [(0, 1), (1, 2)]) * x).sum())(x),
        "of what is scattered": lambda w, x: xp.grad(
            lambda w: (lax.psum_scatter(w[:, 0] * x.sum(), "x", tiled=True) ** 2).sum()
        )(w),
    }


def rows_of(xp, mesh, check):
    """What each device gives, one row each, all compiled as one."""
    spec = xp.sharding.PartitionSpec

    def row(f):
        one = lambda w, x: f(w, x)[None]
        return xp.shard_map(one, mesh=mesh, in_specs=(spec(), spec("x")), out_specs=spec("x"), check_vma=check)

    maps = {name: row(f) for name, f in inside(xp).items()}
    return xp.jit(lambda w, x: {name: f(w, x) for name, f in maps.items()})(W, X)


@pytest.mark.parametrize("check", [True, False])
def test_gradients_inside_shard_map_equal_those_of_jax(check):
    jax = pytest.importorskip("jax")
    want = rows_of(jax, jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",)), check)
    for name, got in rows_of(phalanx, phalanx.make_mesh((4,), ("x",)), check).items():
        np.testing.assert_allclose(got, want[name], rtol=1e-4, atol=1e-5, err_msg=name)
