"""What is parallel over a dimension runs without communication where that dimension is sharded: read off the program.

The law walks all cases of all primitives by their roles; the functions below it are those that users call. A loss of
locality is silent otherwise: the values stay right.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from tests.lax import cases, structured_cases
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import ShapeDtypeStruct, lax, scipy
from phalanx.core.aval import get_aval
from phalanx.core.primitive import Undefined
from phalanx.core.trace import trace_to_jaxpr
from phalanx.errors import KeyReuseError, RuleError
from phalanx.partitioner.partitioned_lowering import PER_SHARD
from phalanx.partitioner.workarounds import without
from phalanx.sharding import NamedSharding, P
from phalanx.testing import CommunicationError, assert_collectives, collectives

pytestmark = pytest.mark.lengthy


@pytest.fixture(scope="module")
def mesh():
    return auto_mesh((4, 2), ("x", "y"))


def shape(mesh, sizes, spec, dtype=np.float32):
    return ShapeDtypeStruct(sizes, np.dtype(dtype), sharding=NamedSharding(mesh, P(*spec)))


# --- the law ---


def flat(fun):
    def call(*args):
        out = fun(*args)
        return list(out) if isinstance(out, list | tuple) else [out]

    return call


def programs():
    """A program for each case of each table."""
    for case in cases.CASES:
        if case.name != "low":
            yield trace_to_jaxpr(
                flat(functools.partial(case.primitive, **case.params)), [get_aval(a) for a in case.args], case.id
            )
    for case in structured_cases.CASES:
        yield trace_to_jaxpr(case.flat(), [get_aval(a) for a in case.args], case.name)


def splits():
    """Each primitive of the cases with types and parameters, and a parallel dimension of even size that it has."""
    seen = set()
    for program in programs():
        for eqn in program.eqns:
            primitive = eqn.primitive
            avals = [a.aval for a in eqn.invars]
            if primitive.call_like or isinstance(getattr(type(primitive), "sharding_rule", None), Undefined):
                continue
            roles = primitive.sharding_rule(*avals, **eqn.params)
            sizes = {n: size for names, a in zip(roles.operands, avals, strict=True) for n, size in zip(names, a.shape)}
            for name, size in sizes.items():
                # One case of a dimension stands for all that differ in dtype, or in parameters that only say how.
                key = primitive.name, str(roles), str(name), primitive.name in PER_SHARD
                if name not in roles.whole | roles.reduced.keys() and size and size % 2 == 0 and key not in seen:
                    seen.add(key)
                    yield eqn, avals, roles, name


def check_split(eqn, avals, roles, name):
    mesh = auto_mesh((2,), ("x",))
    args = [
        shape(mesh, a.shape, ["x" if n == name else None for n in names], a.dtype)
        for a, names in zip(avals, roles.operands, strict=True)
    ]
    return assert_collectives(lambda *xs: eqn.primitive(*xs, **eqn.params), *args)


@pytest.mark.slow
def test_every_primitive_stays_local_along_its_parallel_dimensions():
    with phalanx.enable_x64():
        found = list(splits())
        assert len(found) > 150
        lost = []
        for split in found:
            try:
                check_split(*split)
            except CommunicationError as error:
                lost.append(f"{split[0]} along {split[3]!r} of {split[2]}: {error}")
    assert not lost, "\n".join(lost)


def test_the_law_sees_what_is_gathered():
    eqn = phalanx.make_jaxpr(lambda x: lax.top_k(x, 2))(np.zeros((4, 8), np.float32)).eqns[0]
    roles = eqn.primitive.sharding_rule(eqn.invars[0].aval, **eqn.params)
    with (
        without("gathered_top_k"),
        pytest.raises(CommunicationError, match="got unasked all-gather of 128 bytes over 'x'"),
    ):
        check_split(eqn, [eqn.invars[0].aval], roles, roles.operands[0][0])


# --- what users call ---

BATCH = ("x", "y")  # Both axes cut leading dimensions; what is done stands in the others.


def matrices(mesh, *sizes):
    return shape(mesh, (8, 4, *sizes), BATCH)


@pytest.mark.parametrize(
    "fun",
    [
        jnp.fft.fft, jnp.fft.ifft, jnp.fft.rfft, jnp.fft.fft2, lambda x: jnp.fft.irfft(jnp.fft.rfft(x)),
        functools.partial(jnp.sort, axis=-1), functools.partial(jnp.argsort, axis=-1),
        lambda x: lax.top_k(x, 2), lambda x: jnp.argmax(x, axis=-1),
        functools.partial(jnp.cumsum, axis=-1), functools.partial(jnp.cumprod, axis=2), lambda x: lax.cummax(x, axis=3),
        lambda x: jnp.flip(x, -1), lambda x: jnp.roll(x, 1, -1), lambda x: jnp.pad(x, [(0, 0)] * 3 + [(1, 2)]),
        lambda x: jnp.take_along_axis(x, jnp.argsort(x, axis=-1), axis=-1),
        lambda x: jnp.linalg.cholesky(x @ jnp.swapaxes(x, -1, -2)), jnp.linalg.qr, jnp.linalg.eigh, jnp.linalg.svd,
        jnp.linalg.det, jnp.linalg.inv, lambda x: jnp.linalg.solve(x, x), lambda x: lax.linalg.lu(x),
        lambda x: lax.linalg.triangular_solve(x, x, left_side=True), jnp.linalg.eig,
        phalanx.nn.gelu, functools.partial(phalanx.nn.gelu, approximate=False), phalanx.nn.softmax,
        lambda x: lax.igamma(x, x), lambda x: lax.betainc(x, x, x), lambda x: jnp.median(x, axis=-1),
        jnp.linalg.pinv, jnp.linalg.slogdet, jnp.linalg.matrix_rank, lambda x: jnp.linalg.matrix_power(x, 5),
        lambda x: jnp.linalg.norm(x, 2, axis=(-2, -1)), scipy.linalg.lu_factor, lax.linalg.hessenberg,
        lambda x: lax.linalg.householder_product(x, x[..., 0]), lambda x: lax.linalg.tridiagonal_solve(*[x[..., 0]] * 3, x),
        phalanx.vmap(phalanx.vmap(scipy.linalg.schur)),
        lambda x: jnp.percentile(x, 30, axis=-1), lambda x: jnp.cross(x[..., :3], x[..., 1:]),
        lambda x: lax.associative_scan(jnp.add, x, axis=-1), lambda x: jnp.lexsort((x, -x)),
        phalanx.vmap(phalanx.vmap(lambda x: jnp.histogram(x, bins=4, range=(0, 1))[0])),
    ],
)  # fmt: skip
def test_functions_of_the_last_dimensions_stay_local(mesh, fun):
    assert_collectives(fun, matrices(mesh, 4, 4))


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: jnp.fft.fft(x, axis=0), lambda x: jnp.sort(x, axis=0), lambda x: jnp.cumsum(x, axis=0),
        lambda x: lax.top_k(x, 2, axis=0), lambda x: lax.cumlogsumexp(x, axis=0),
    ],
)  # fmt: skip
def test_functions_of_the_first_dimension_stay_local_along_others(mesh, fun):
    assert_collectives(fun, shape(mesh, (6, 8, 4), (None, "x", "y")))


def test_gathers_and_scatters_with_batched_indices_stay_local(mesh):
    x, i = shape(mesh, (8, 16, 4), ("x",)), shape(mesh, (8, 5), ("x",), np.int32)
    assert_collectives(phalanx.vmap(lambda x, i: x[i]), x, i)
    assert_collectives(phalanx.vmap(lambda x, i: x.at[i].add(1.0)), x, i)
    assert_collectives(phalanx.vmap(lambda x, i: x.at[i].set(0.0)), x, i)
    assert_collectives(lambda x, i: jnp.take_along_axis(x, i[..., None], axis=1), x, i)
    assert_collectives(phalanx.vmap(lambda x, i: lax.dynamic_slice(x, (i[0], 0), (3, 4))), x, i)
    assert_collectives(phalanx.grad(lambda x, i: jnp.sum(phalanx.vmap(lambda x, i: x[i])(x, i) ** 2)), x, i)


def test_convolutions_stay_local_along_the_batch(mesh):
    def conv(groups):
        return lambda x, w: lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
        )

    def loss(f):
        return lambda x, w: jnp.sum(f(x, w) ** 2)

    x = shape(mesh, (8, 6, 6, 8), (("x", "y"),))
    for groups in (1, 2, 8):
        w = shape(mesh, (3, 3, 8 // groups, 16), ())
        assert_collectives(conv(groups), x, w)
        assert_collectives(phalanx.grad(loss(conv(groups))), x, w)
    # The gradient of a kernel is a sum over the batch, and nothing else.
    (c,) = assert_collectives(
        phalanx.grad(loss(conv(1)), 1), x, shape(mesh, (3, 3, 8, 16), ()), allowed=("all-reduce",)
    )
    assert set(c.axes) == {"x", "y"} and c.bytes == 3 * 3 * 8 * 16 * 4


def conv_in_groups(groups):
    return lambda x, w: lax.conv_general_dilated(
        x, w, (2, 1), [(1, 0), (0, 2)], dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


@pytest.mark.parametrize("groups", [2, 4, 8])
def test_convolutions_in_groups_stay_local_along_the_groups(mesh, groups):
    def parts(x, w):
        f = conv_in_groups(groups)
        return f(x, w), phalanx.grad(lambda x, w: jnp.sum(f(x, w) ** 2), (0, 1))(x, w)

    numbers = np.random.default_rng(groups)
    x = numbers.normal(size=(4, 5, 4, 16)).astype(np.float32)
    w = numbers.normal(size=(2, 3, 16 // groups, 8)).astype(np.float32)
    placed = [phalanx.device_put(v, NamedSharding(mesh, P(None, None, None, "y"))) for v in (x, w)]
    assert_collectives(phalanx.jit(parts), *placed)
    for got, want in zip(
        phalanx.tree.leaves(phalanx.jit(parts)(*placed)), phalanx.tree.leaves(parts(x, w)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    both = phalanx.device_put(x, NamedSharding(mesh, P("x", None, None, "y")))
    assert_collectives(conv_in_groups(groups), both, placed[1])


# What vmap maps over, and how input and kernel lie: leading dimensions are those of the map, then the batch.
MAPPED = {
    "inputs, batch split": ((0, None), (3, 8, 5, 4, 4), (None, "x"), (), ()),
    "inputs, map split": ((0, None), (4, 3, 5, 4, 4), ("x",), (), ()),
    "inputs, both split": ((0, None), (4, 4, 5, 4, 4), ("x", "y"), (), ()),
    "kernels, batch split": ((None, 0), (4, 5, 4, 4), ("x",), (3,), ()),
    "kernels, map split": ((None, 0), (2, 5, 4, 4), (), (4,), ("x",)),
    "both, map split": ((0, 0), (8, 2, 5, 4, 4), (("x", "y"),), (8,), (("x", "y"),)),
    "both, batch split": ((0, 0), (3, 8, 5, 4, 4), (None, ("y", "x")), (3,), ()),
    "both, both split": ((0, 0), (4, 2, 5, 4, 4), ("x", "y"), (4,), ("x",)),
}


@pytest.mark.one_is_quick(group=lambda name, **_: name)
@pytest.mark.parametrize("name", MAPPED)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_mapped_convolutions_stay_local_along_map_and_batch(mesh, groups, name):
    dims, sizes, spec, kernels, kernel_spec = MAPPED[name]
    numbers = np.random.default_rng(groups)
    x = numbers.normal(size=sizes).astype(np.float32)
    w = numbers.normal(size=(*kernels, 2, 3, 4 // groups, 8)).astype(np.float32)
    placed = [phalanx.device_put(v, NamedSharding(mesh, P(*s))) for v, s in ((x, spec), (w, kernel_spec))]
    f = phalanx.vmap(conv_in_groups(groups), dims)
    loss = lambda x, w: jnp.sum(jnp.sin(f(x, w)))
    of_x, of_w = phalanx.grad(loss), phalanx.grad(loss, 1)
    used = [{a for s in specs for a in ([s] if isinstance(s, str) else s or ())} for specs in (spec, kernel_spec)]
    assert_collectives(f, *placed)
    # A gradient is a sum over what its value lacks, and nothing else is sent.
    for value, g, (own, other) in ((x, of_x, used), (w, of_w, used[::-1])):
        lacks, kept = other - own, math.prod(mesh.shape[a] for a in own)
        sent = assert_collectives(g, *placed, allowed=("all-reduce",))
        assert [(set(c.axes), c.bytes) for c in sent] == ([(lacks, value.nbytes // kept)] if lacks else [])
    for g in (f, of_x, of_w):
        np.testing.assert_allclose(phalanx.jit(g)(*placed), g(x, w), rtol=1e-4, atol=1e-4)


def layers(ws, x):
    for w in ws:
        x = phalanx.nn.gelu(conv_in_groups(4 // w.shape[2])(x, w))
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 1, 1), (1, 2, 1, 1), "SAME")


def layers_in_a_loop(ws, x):
    numbers = ("NHWC", "HWIO", "NHWC")
    step = lambda x, w: (jnp.tanh(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)), None)
    return lax.scan(step, x, jnp.stack(ws))[0]


@pytest.mark.parametrize("net, groups", [(layers, 1), (layers, 2), (layers_in_a_loop, 1)], ids=["1", "2", "loop"])
def test_mapped_convolutions_over_stretches_of_space_fetch_what_windows_reach(net, groups):
    """No more than the same convolutions do without a map, which XLA splits; with replicas, cotangents of kernels do."""
    mesh = auto_mesh((4,), ("x",))
    numbers = np.random.default_rng(0)
    ws = [0.1 * numbers.normal(size=(2, 3, 4 // groups, 4)).astype(np.float32) for _ in range(2)]
    x = numbers.normal(size=(3, 2, 16, 4, 4)).astype(np.float32)
    plain, mapped = (
        phalanx.device_put(v, NamedSharding(mesh, P(*spec)))
        for v, spec in ((x[0], (None, "x")), (x, (None, None, "x")))
    )
    f = phalanx.vmap(net, (None, 0))
    for derive in (lambda f: f, lambda f: phalanx.grad(lambda ws, x: jnp.sum(f(ws, x) ** 2), (0, 1))):
        sent, wanted = (collectives(derive(g), ws, v) for g, v in ((f, mapped), (net, plain)))
        assert {c.kind for c in sent} <= {c.kind for c in wanted} and len(sent) <= len(wanted)
        assert "collective-permute" in {c.kind for c in sent}
    np.testing.assert_allclose(phalanx.jit(f)(ws, mapped), f(ws, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("of", ["products", "rows", "calls"])
def test_convolutions_over_stretches_of_what_others_made_fetch_what_windows_reach(of):
    mesh, r = auto_mesh((4,), ("x",)), np.random.default_rng(0)
    x, w = (r.normal(size=s, scale=1 / 4).astype(np.float32) for s in ((2, 16, 8), (3, 8, 8)))
    make = {
        "products": lambda x: x @ w[0],
        "rows": lambda x: jnp.asarray(w[0])[x[..., 0].astype(np.int32) % 8],
        "calls": lambda x: lax.erf(x),
    }[of]

    def loss(w, x):
        step = lambda x, _: (lax.conv_general_dilated(make(x), w, (1,), "SAME", dimension_numbers=numbers), None)
        return jnp.sum(jnp.sin(lax.scan(step, x, None, 2)[0]))

    numbers = ("NHC", "HIO", "NHC")
    placed = phalanx.device_put(x, NamedSharding(mesh, P(None, "x")))
    sent = collectives(phalanx.value_and_grad(loss), w, placed)
    assert {c.kind for c in sent} <= {"collective-permute", "all-reduce"}
    for got, want in zip(phalanx.jit(phalanx.value_and_grad(loss))(w, placed), phalanx.value_and_grad(loss)(w, x)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.one_is_quick(group=lambda spec, **_: spec)
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("kernel", [(), (None, None, "x"), (None, None, None, "x")], ids=["whole", "i", "o"])
@pytest.mark.parametrize("spec", [(None, "x"), (None, "y"), (None, "x", "y"), ("y", "x")], ids=str)
def test_convolutions_add_up_each_stretch_of_space_once(mesh, spec, kernel, mapped):
    """XLA adds up what all devices have where both operands are split, whether or not some have the same."""
    f = lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(*(3,) * mapped, 2, 8, 8, 4)).astype(np.float32)
    w = numbers.normal(size=(2, 3, 4, 4)).astype(np.float32)
    f = phalanx.vmap(f, (0, None)) if mapped else f
    both = phalanx.jit(lambda x, w: (f(x, w), phalanx.grad(lambda x, w: jnp.sum(jnp.sin(f(x, w))), (0, 1))(x, w)))
    placed = [
        phalanx.device_put(v, NamedSharding(mesh, P(*s))) for v, s in ((x, ((None,) * mapped + spec)), (w, kernel))
    ]
    for got, want in zip(phalanx.tree.leaves(both(*placed)), phalanx.tree.leaves(both(x, w)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spec", [("x",), ("y",), ("y", "x"), (None, "x")], ids=str)
def test_gradients_of_depthwise_kernels_count_each_batch_once(spec):
    """XLA adds up what all devices have, whether or not some have the same."""

    def f(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=2)

    mesh, numbers = auto_mesh((2, 2, 2), ("x", "y", "z")), np.random.default_rng(0)
    x, w = (numbers.normal(size=n).astype(np.float32) for n in ((2, 2, 4, 4), (2, 1, 3, 3)))
    of_w = phalanx.jit(phalanx.grad(lambda w, x: jnp.sum(f(x, w) ** 2)))
    spec = (spec[0], None, *spec[1:])
    placed = phalanx.device_put(x, NamedSharding(mesh, P(*spec)))
    np.testing.assert_allclose(of_w(w, placed), of_w(w, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0)])
def test_convolutions_mapped_over_no_examples_are_of_no_elements(mesh, dims, groups):
    x = jnp.ones((4, 5, 4, 4) if dims[0] is None else (0, 4, 5, 4, 4))
    w = jnp.ones((2, 3, 4 // groups, 8) if dims[1] is None else (0, 2, 3, 4 // groups, 8))
    x = phalanx.device_put(x, NamedSharding(mesh, P(None, "x") if dims[0] == 0 else P("x")))
    f = phalanx.jit(phalanx.vmap(conv_in_groups(groups), dims))
    assert f(x, w).shape == (0, 4, 3, 4, 8)
    # A sum over no examples is zero, not nothing.
    of_x, of_w = phalanx.grad(lambda x, w: jnp.sum(f(x, w)), (0, 1))(x, w)
    np.testing.assert_array_equal(of_x, np.zeros(x.shape))
    np.testing.assert_array_equal(of_w, np.zeros(w.shape))


def test_mapped_convolutions_stay_local_where_some_axes_are_manual(mesh):
    f = phalanx.shard_map(
        phalanx.vmap(conv_in_groups(1), (0, None)), mesh=mesh, in_specs=(P(None, "y"), P()), out_specs=P(None, "y"),
        axis_names={"y"},
    )  # fmt: skip
    numbers = np.random.default_rng(0)
    x, w = numbers.normal(size=(3, 8, 5, 4, 4)), numbers.normal(size=(2, 3, 4, 8))
    x, w = (
        phalanx.device_put(a.astype(np.float32), NamedSharding(mesh, P(*spec)))
        for a, spec in ((x, (None, ("y", "x"))), (w, ()))
    )
    of_w = phalanx.grad(lambda x, w: jnp.sum(jnp.sin(f(x, w))), 1)
    assert_collectives(f, x, w)
    mapped = phalanx.device_put(np.ones((4, 2, 5, 4, 4), np.float32), NamedSharding(mesh, P("x", "y")))
    assert_collectives(of_w, mapped, w, allowed=("all-reduce",))
    whole = phalanx.grad(lambda x, w: jnp.sum(jnp.sin(phalanx.vmap(conv_in_groups(1), (0, None))(x, w))), 1)
    np.testing.assert_allclose(phalanx.jit(of_w)(x, w), whole(np.asarray(x), np.asarray(w)), rtol=1e-4, atol=1e-4)


SAMPLERS = {
    "bits": lambda r, k, p: r.bits(k, p.shape),
    "uniform": lambda r, k, p: r.uniform(k, p.shape),
    "normal": lambda r, k, p: r.normal(k, p.shape),
    "randint": lambda r, k, p: r.randint(k, p.shape, 0, 10),
    "gamma": lambda r, k, p: r.gamma(k, p),
    "loggamma": lambda r, k, p: r.loggamma(k, p / 100),
    "beta": lambda r, k, p: r.beta(k, p, 2 * p),
    "t": lambda r, k, p: r.t(k, p, p.shape),
    "dirichlet": lambda r, k, p: r.dirichlet(k, jnp.ones(3), p.shape),
    "generalized_normal": lambda r, k, p: r.generalized_normal(k, 2.0, p.shape),
    "ball": lambda r, k, p: r.ball(k, 3, 2.0, p.shape),
    "poisson": lambda r, k, p: r.poisson(k, p),
    "binomial": lambda r, k, p: r.binomial(k, jnp.round(10 * p), 0.3),
    "multinomial": lambda r, k, p: r.multinomial(k, 20.0, jnp.stack([p, 2 * p, p], -1)),
    "geometric": lambda r, k, p: r.geometric(k, p / 100),
    "categorical": lambda r, k, p: r.categorical(k, jnp.stack([p, 2 * p], -1)),
    "choice": lambda r, k, p: r.choice(k, 10, p.shape, p=jnp.ones(10) / 10),
    "truncated_normal": lambda r, k, p: r.truncated_normal(k, -p, p, p.shape),
    "multivariate_normal": lambda r, k, p: r.multivariate_normal(k, jnp.zeros(3), jnp.eye(3), p.shape),
    "orthogonal": lambda r, k, p: r.orthogonal(k, 3, p.shape),
}


QUICK = {"bits", "normal", "gamma", "poisson", "binomial"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in SAMPLERS])
def test_random_numbers_are_drawn_where_they_are_wanted(mesh, name):
    """Also where elements are drawn again and again until they are accepted: no device waits for the others."""
    draw = functools.partial(SAMPLERS[name], phalanx.random)
    p = np.linspace(0.5, 40, 32, dtype=np.float32).reshape(8, 4)
    placed = phalanx.device_put(p, NamedSharding(mesh, P("x", "y")))
    compiled = phalanx.jit(draw, out_shardings=NamedSharding(mesh, P("x", "y")))
    key = phalanx.random.key(3)
    assert_collectives(compiled, key, placed)
    np.testing.assert_allclose(compiled(key, placed), draw(key, p), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["bits", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gamma", "poisson", "binomial"))]
)
def test_generators_of_whole_arrays_send_nothing_either(mesh, name):
    draw = functools.partial(SAMPLERS[name], phalanx.random)
    key = phalanx.random.key(3, impl="rbg")
    p = np.linspace(0.5, 40, 32, dtype=np.float32).reshape(8, 4)
    for spec in (P("x", "y"), P(("y", "x"))):
        placed = phalanx.device_put(p, NamedSharding(mesh, spec))
        compiled = phalanx.jit(draw, out_shardings=NamedSharding(mesh, spec))
        assert_collectives(compiled, key, placed)
        np.testing.assert_allclose(compiled(key, placed), draw(key, p), rtol=2e-5, atol=1e-6)
    keys = phalanx.random.split(key, 2)
    each = phalanx.jit(phalanx.vmap(lambda k, p: draw(k, p)))
    placed = [phalanx.device_put(v, NamedSharding(mesh, P("y"))) for v in (keys, p[:2])]
    assert_collectives(each, *placed)
    np.testing.assert_allclose(each(*placed), each(keys, p[:2]), rtol=2e-5, atol=1e-6)


def test_each_key_draws_where_it_is(mesh):
    keys = phalanx.device_put(phalanx.random.split(phalanx.random.key(0), 8), NamedSharding(mesh, P("x")))
    for draw in (phalanx.random.normal, lambda k, shape: phalanx.random.gamma(k, 2.0, shape)):
        assert_collectives(phalanx.vmap(lambda k, draw=draw: draw(k, (3,))), keys)


def rounds_until(x, y):
    """Rounds of a loop of scalars, of which each element has its own number, and what they end with."""
    return lax.while_loop(lambda c: c[1] < y, lambda c: (c[0] + 1, 1.3 * c[1] + jnp.sin(c[1]) ** 2 + 0.1), (0, x))


def test_each_element_of_a_mapped_loop_ends_by_itself(mesh):
    """A `vmap` of a loop of scalars, over any dimensions and with its derivative, asks nobody."""
    x, y = np.linspace(0, 1, 32, dtype=np.float32).reshape(8, 4), np.linspace(1, 30, 8, dtype=np.float32)
    f = phalanx.vmap(phalanx.vmap(rounds_until, (0, None)))
    want = [np.array([[rounds_until(a, b)[k] for a in row] for row, b in zip(x, y)]) for k in range(2)]
    assert len(np.unique(want[0])) > 5
    slope = lambda x, y: phalanx.jvp(lambda x: f(x, y)[1], (x,), (jnp.cos(x),))
    for kind in (mesh, phalanx.make_mesh((4, 2), ("x", "y"))):  # Explicit axes too: the types tell the result's
        placed = [phalanx.device_put(v, NamedSharding(kind, P(*s))) for v, s in ((x, ("x", "y")), (y, ("x",)))]
        assert_collectives(f, *placed)
        assert_collectives(slope, *placed)
        for got, wanted in zip(phalanx.jit(f)(*placed), want, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
            assert got.sharding.is_equivalent_to(NamedSharding(kind, P("x", "y")), 2)
        for got, wanted in zip(phalanx.jit(slope)(*placed), slope(x, y), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
    y_lin, pushed = phalanx.linearize(lambda x: f(x, y)[1], x)
    for got, wanted in zip((y_lin, pushed(jnp.cos(x))), slope(x, y), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    remat = phalanx.checkpoint(lambda x: f(jnp.sin(x), y)[1])
    np.testing.assert_allclose(phalanx.jit(lambda x: phalanx.linearize(remat, x)[0])(x), f(jnp.sin(x), y)[1], rtol=1e-5)
    with pytest.raises(RuleError, match="reverse-mode differentiation of while_loop"):
        phalanx.grad(lambda x: f(x, y)[1].sum())(x)
    h = 1e-3  # where no element is about to take another round
    np.testing.assert_allclose(slope(x, y)[1][0], (f(x + h * np.cos(x), y)[1] - f(x, y)[1])[0] / h, rtol=2e-2)
    assert_collectives(
        phalanx.vmap(phalanx.vmap(lambda x: lax.fori_loop(0, (9 * x).astype(int), lambda i, c: c * 2, x))), placed[0]
    )
    assert_collectives(lambda x: jnp.gcd((9 * x).astype(int), 6), placed[0])


def test_each_example_of_a_mapped_loop_of_arrays_ends_by_itself(mesh):
    """Arrays that are mapped and shared, random keys and inner loops, with derivatives: nobody is asked."""
    w = np.eye(4, dtype=np.float32)[::-1] * 1.1
    fixed = lambda v: lax.while_loop(
        lambda c: (c[0] < 9).any() & (c[1] < 50), lambda c: (w @ c[0] + 1, c[1] + 1), (v, 0)
    )

    def drawn(key):
        again = lambda c: (phalanx.random.split(c[0])[0], phalanx.random.uniform(c[0], (3,)))
        return lax.while_loop(lambda c: c[1].sum() > 0.9, again, (key, jnp.ones(3)))[1]

    nested = lambda v: lax.while_loop(
        lambda c: c.sum() < 9, lambda c: c + lax.while_loop(lambda d: d < 1, lambda d: d + 0.3, c[0]), v
    )
    slope = lambda v: phalanx.jvp(lambda v: fixed(v)[0], (v,), (jnp.sin(v),))[1]
    x = np.linspace(0, 5, 64, dtype=np.float32).reshape(16, 4)
    keys = phalanx.random.split(phalanx.random.key(0), 16)
    for f, values in ((fixed, x), (nested, x), (slope, x), (drawn, keys)):
        want = [f(v) for v in values]
        for kind in (mesh, phalanx.make_mesh((4, 2), ("x", "y"))):
            placed = phalanx.device_put(values, NamedSharding(kind, P(("x", "y"))))
            assert_collectives(phalanx.vmap(f), placed)
            got = phalanx.jit(phalanx.vmap(f))(placed)
            for g, *each in zip(*map(phalanx.tree.leaves, (got, *want)), strict=True):
                np.testing.assert_allclose(g, np.stack(each), rtol=1e-5)
                assert g.sharding.is_equivalent_to(NamedSharding(kind, P(("x", "y"))), g.ndim)
    assert len(np.unique(phalanx.vmap(fixed)(x)[1])) > 3
    with phalanx.debug_key_reuse(True), pytest.raises(KeyReuseError):
        stuck = lambda k: lax.while_loop(
            lambda c: c[1].sum() > 0.9, lambda c: (c[0], phalanx.random.uniform(c[0], (3,))), (k, jnp.ones(3))
        )
        phalanx.jit(phalanx.vmap(stuck))(keys)


def test_loops_of_large_arrays_and_of_what_text_does_not_tell_stay_one_loop(mesh):
    rows = phalanx.vmap(lambda v: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, v))
    asked = lambda x: phalanx.pure_callback(
        np.sin, phalanx.ShapeDtypeStruct((), np.float32), x, vmap_method="sequential"
    )
    called = phalanx.vmap(lambda x: lax.while_loop(lambda c: c < 2, lambda c: c + asked(c) + 1, x))
    x = np.linspace(0, 1, 8, dtype=np.float32)
    large = phalanx.ShapeDtypeStruct((8, 8192), "float32")
    assert "while_each" not in str(phalanx.make_jaxpr(rows)(large)) + str(phalanx.make_jaxpr(called)(x))
    (c, *_) = collectives(rows, shape(mesh, (8, 8192), ("x",)))
    assert c.kind == "all-reduce" and c.bytes <= 2
    np.testing.assert_allclose(
        called(x), [functools.reduce(lambda c, _: c + np.sin(c) + 1 if c < 2 else c, range(3), v) for v in x]
    )


def test_pieces_are_found_inside_programs_and_derivatives(mesh):
    x = matrices(mesh, 4, 4)
    assert_collectives(lambda x: lax.fori_loop(0, 3, lambda i, v: jnp.real(jnp.fft.fft(lax.erf(v))), x), x)
    assert_collectives(lambda x: phalanx.jit(jnp.fft.fft)(jnp.tanh(x)), x)
    assert_collectives(phalanx.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.fft(lax.erf(x))) ** 2)), x)
    assert_collectives(phalanx.vmap(phalanx.vmap(lambda m: lax.top_k(m, 2))), x)
    # Nothing says here how the operand lies but a result far away.
    out = NamedSharding(mesh, P("x", "y"))
    f = phalanx.jit(lambda x: jnp.abs(jnp.fft.fft(x * 2)) + 1, out_shardings=out)
    assert_collectives(f, np.zeros((8, 4, 16), np.complex64))


@pytest.mark.parametrize("manual", [{"x", "y"}, {"x"}], ids=["all axes", "one axis"])
def test_pieces_are_found_inside_shard_map(mesh, manual):
    spec = P("x", "y" if "y" in manual else None)
    f = phalanx.shard_map(
        lambda x: jnp.abs(jnp.fft.fft(lax.erf(x))), mesh=mesh, in_specs=spec, out_specs=spec, axis_names=manual
    )
    value = np.linspace(-1, 1, 8 * 4 * 16, dtype=np.float32).reshape(8, 4, 16)
    x = phalanx.device_put(value, NamedSharding(mesh, P("x", "y")))
    assert_collectives(phalanx.jit(f), x)
    np.testing.assert_allclose(phalanx.jit(f)(x), np.abs(np.fft.fft(np.asarray(lax.erf(value)))), rtol=1e-4, atol=1e-4)


def test_pieces_that_lie_differently_are_brought_together(mesh):
    """Operands and results that disagree move as little as must be, and the values are those of one device."""
    a, b = (
        np.linspace(0.1, 2, 32, dtype=np.float32).reshape(8, 4),
        np.linspace(3, 1, 32, dtype=np.float32).reshape(8, 4),
    )
    want = lax.igamma(a, b)
    for one, other in [(("x",), (None, "x")), (("x", "y"), ("y", "x")), (("x",), (None, "y")), ((), (None, "y"))]:
        placed = [phalanx.device_put(v, NamedSharding(mesh, P(*s))) for v, s in ((a, one), (b, other))]
        np.testing.assert_allclose(lax.igamma(*placed), want, rtol=1e-5)
    assert collectives(lax.igamma, *[shape(mesh, (8, 4), s) for s in (("x",), (None, "y"))]) == ()
    x = np.random.default_rng(0).normal(size=(6, 4, 5)).astype(np.float32)
    values, places = phalanx.jit(lambda x: lax.top_k(x[:6], 3))(
        phalanx.device_put(np.concatenate([x, x])[:8], NamedSharding(mesh, P("x", "y")))
    )
    np.testing.assert_array_equal(values, lax.top_k(x, 3)[0])
    np.testing.assert_array_equal(places, lax.top_k(x, 3)[1])
