"""Arrays that are unreduced over Explicit axes, and reduced ones, whose cotangents are unreduced."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import RuleError, ShardingError
from phalanx.sharding import AxisType, NamedSharding, P, UnreducedKind, auto_axes, make_mesh, reshard, use_mesh

X = np.arange(16, dtype=np.float32).reshape(8, 2)
W = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture(autouse=True)
def mesh():
    with use_mesh(make_mesh((2, 4), ("x", "y"), AxisType.Explicit)) as mesh:
        yield mesh


@pytest.fixture
def product():
    """X @ X.T over a contracted dimension that is split over x, as terms."""
    left, right = phalanx.device_put(X, P(None, "x")), phalanx.device_put(X.T, P("x"))
    return jnp.dot(left, right, out_sharding=P(unreduced={"x"}))


def type_of(x):
    """The type of an array, which agrees with its sharding."""
    assert x.aval.type_sharding.spec.unreduced == x.sharding.spec.unreduced
    return phalanx.typeof(x).str_short()


def index_along_x(shard, mesh):
    return np.argwhere(mesh.devices == shard.device)[0, 0]


def jaxlib_version():
    return tuple(map(int, version("jaxlib").split(".")[:2]))


def refusal(fun, *args):
    with pytest.raises(ShardingError) as caught:
        fun(*args)
    return str(caught.value)


def test_a_contraction_leaves_its_terms_on_the_devices(product):
    assert type_of(product) == "f32[8,8]{U:x}"
    terms = [np.asarray(s.data) for s in product.addressable_shards]
    np.testing.assert_array_equal(terms[0], X[:, :1] @ X.T[:1])
    np.testing.assert_array_equal(terms[4], X[:, 1:] @ X.T[1:])
    assert type_of(reshard(product, P("y", "x"))) == "f32[8@y,8@x]"
    np.testing.assert_array_equal(reshard(product, P()), X @ X.T)


def test_an_unreduced_result_costs_no_communication():
    fun = phalanx.jit(lambda x: lax.reduce_sum(x, (0,), out_sharding=P(None, unreduced={"x"})))
    x = phalanx.device_put(W, P("x"))
    assert "all-reduce" not in fun.lower(x).compile().as_text()
    np.testing.assert_array_equal(reshard(fun(x), P()), W.sum(0))


@pytest.mark.parametrize(
    "spec", [P(unreduced={"x"}), P("y", unreduced={"x"}), P(None, "x", unreduced={"y"}), P(unreduced={"x", "y"})]
)
def test_any_array_is_the_sum_of_terms(spec):
    for source in (W, phalanx.device_put(W, P("y")), phalanx.device_put(W, P("x", "y"))):
        unreduced = phalanx.device_put(source, spec)
        assert unreduced.sharding.spec.unreduced == spec.unreduced and not unreduced.is_fully_replicated
        np.testing.assert_array_equal(reshard(unreduced, P("x")), W)
        np.testing.assert_array_equal(phalanx.jit(lambda x: reshard(x, P("y")))(unreduced), W)


def test_linear_operations_run_on_terms(product):
    value = X @ X.T
    scale = phalanx.device_put(W, P(reduced={"x"}))
    cases = [
        (lambda p: p + p, 2 * value),
        (lambda p: p - 3 * p, -2 * value),
        (lambda p: p * scale, value * W),
        (lambda p: scale * p, value * W),
        (lambda p: p / (1 + scale), value / (1 + W)),
        (lambda p: p.T.reshape(4, 16), value.T.reshape(4, 16)),
        (lambda p: p[2:5, ::2], value[2:5, ::2]),
        (lambda p: jnp.concatenate([p, p]), np.concatenate([value, value])),
        (lambda p: lax.select(np.eye(8, dtype=bool), p, p), value),
        (lambda p: lax.cumsum(p), value.cumsum(0)),
        (lambda p: p.sum(1), value.sum(1)),
        (lambda p: p.astype("float16"), value),
    ]
    for fun, expected in cases:
        for call in (fun, phalanx.jit(fun)):
            y = call(product)
            assert type_of(y).endswith("{U:x}")
            np.testing.assert_allclose(reshard(y, P()), expected, rtol=1e-5)


def test_operations_that_are_not_linear_are_refused(product):
    assert refusal(jnp.sin, product) == (
        "sin: expected operands that are not unreduced, since it is not linear in them, got f32[8,8]{U:x}.\n"
        "  Fix: reshard an operand with phalanx.reshard, or pass out_sharding= if the operation has that argument."
    )
    assert "expected operands that are not unreduced" in refusal(lax.mul, product, product)
    plain = phalanx.device_put(W, P())
    assert "expected operands that are unreduced over the same axes" in refusal(lax.add, product, plain)
    assert "expected another operand that is reduced over 'x'" in refusal(lax.mul, product, plain)
    reduced = phalanx.device_put(W, P(reduced={"y"}))
    assert "expected operands that are reduced over the same axes" in refusal(lax.mul, reduced, plain)
    assert "expected an array that is not unreduced" in refusal(np.asarray, product)
    assert repr(product).startswith("Array(shape=(8, 8), dtype=float32, sharding=NamedSharding(") == (
        str(product) == repr(product)
    )


def test_the_terms_are_summed_where_axes_become_auto(product):
    fun = phalanx.jit(auto_axes(jnp.sin, out_sharding=P()))
    np.testing.assert_allclose(fun(product), np.sin(X @ X.T), rtol=1e-4, atol=1e-5)


def test_the_cotangent_of_a_reduced_array_is_unreduced(mesh):
    weights, inputs = phalanx.device_put(W[:2], P(reduced={"x"})), phalanx.device_put(X, P("x"))

    def loss(w, x):
        w = jnp.concatenate([jnp.sin(w[:, :4]), 2 * w[:, 4:]], axis=1)
        return ((x @ w) ** 2).sum()

    gradient = phalanx.jit(phalanx.grad(loss))
    bar = gradient(weights, inputs)
    assert type_of(bar) == "f32[2,8]{U:x}"
    assert "all-reduce" not in gradient.lower(weights, inputs).compile().as_text()
    with use_mesh(None):
        expected = phalanx.grad(loss)(W[:2], X)
    np.testing.assert_allclose(reshard(bar, P()), expected, rtol=1e-4)


def test_the_cotangent_of_an_unreduced_array_is_reduced(product):
    bar = phalanx.grad(lambda p: reshard(p * 2, P("x")).sum())(product)
    assert type_of(bar) == "f32[8,8]{R:x}"
    np.testing.assert_array_equal(bar, np.full((8, 8), 2, np.float32))
    _, f_vjp = phalanx.vjp(lambda x: x, phalanx.device_put(W, P(reduced={"x"})))
    assert type_of(f_vjp(reshard(W, P(unreduced={"x"})))[0]) == "f32[8,8]{U:x}"


def test_gathers_and_updates_of_reduced_arrays():
    table, ids = phalanx.device_put(W, P(reduced={"x"})), phalanx.device_put(np.array([1, 1, 5]), P())
    bar = phalanx.grad(lambda t: t[ids].sum())(table)
    assert type_of(bar) == "f32[8,8]{U:x}"
    np.testing.assert_array_equal(reshard(bar, P())[:, 0], [0, 2, 0, 0, 0, 1, 0, 0])


def test_gradients_accumulate_in_a_loop_without_communication():
    weights = phalanx.device_put(W[:2], P(reduced={"x"}))
    batches = phalanx.device_put(np.stack([X, X + 1]), P(None, "x"))

    def accumulate(w, batches):
        def step(total, x):
            return total + phalanx.grad(lambda w: ((x @ w) ** 2).sum())(w), None

        return lax.scan(step, reshard(jnp.zeros_like(w), P(unreduced={"x"})), batches)[0]

    total = phalanx.jit(accumulate)(weights, batches)
    assert type_of(total) == "f32[2,8]{U:x}"
    expected = sum(2 * x.T @ (x @ W[:2]) for x in (X, X + 1))
    np.testing.assert_allclose(reshard(total, P()), expected, rtol=1e-5)


def test_a_constant_of_another_sharding_does_not_break_a_contraction():
    # Shardy would abort the process: a closed-over array is passed as a replicated parameter.
    x, w = phalanx.device_put(X, P("x")), phalanx.device_put(W[0, :2], P(reduced={"x"}))
    bar = phalanx.jit(phalanx.grad(lambda w: (x @ w).sum()))(w)
    np.testing.assert_array_equal(reshard(bar, P()), X.sum(0))
    plain = phalanx.jit(lambda y: jnp.dot(X.T, y, out_sharding=P(unreduced={"x"})))(phalanx.device_put(X, P("y")))
    np.testing.assert_array_equal(reshard(plain, P()), X.T @ X)


def test_terms_move_to_other_devices_as_a_sum(product, mesh):
    other = make_mesh((2,), ("x",), AxisType.Explicit, devices=mesh.flat_devices[:2])
    moved = phalanx.device_put(product, NamedSharding(other, P(unreduced={"x"})))
    np.testing.assert_array_equal(phalanx.device_put(moved, NamedSharding(other, P())), X @ X.T)


def test_terms_of_a_maximum_come_from_a_reduction():
    kind = P(unreduced={"x"}, unreduced_kind=UnreducedKind.max)
    assert refusal(reshard, W, kind) == (
        "reshard, out_shardings: expected an unreduced_kind of sum, that of the terms, got P("
        "unreduced={'x'}, unreduced_kind=max) for f32[8,8].\n"
        "  Fix: pass that kind, or leave the unreduced axes out; lax.reduce_max and reduce_min make the others."
    )
    x = phalanx.device_put(W.astype(int), P("x"))
    reduce = lambda x: lax.reduce_max(x, (0,), out_sharding=kind)
    assert "expected a compiled function around an operation" in refusal(reduce, x)
    if jaxlib_version() < (0, 11):
        assert "other kinds need jaxlib 0.11 or later" in refusal(phalanx.jit(reduce), x)
        return
    y = phalanx.jit(reduce)(x)
    assert "expected operands that are not unreduced" in refusal(lax.add, y, y)
    np.testing.assert_array_equal([np.asarray(y.addressable_shards[i].data) for i in (0, 4)], [W[3], W[7]])
    np.testing.assert_array_equal(reshard(y, P()), W[7])


def test_a_compiled_function_may_declare_an_unreduced_result():
    fun = phalanx.jit(lambda x, y: x @ y, out_shardings=P("y", unreduced={"x"}))
    y = fun(phalanx.device_put(X, P("y")), phalanx.device_put(X.T, P()))
    assert type_of(y) == "f32[8@y,8]{U:x}"
    np.testing.assert_array_equal(reshard(y, P()), X @ X.T)


# --- inside a shard_map


def mapped(in_specs, out_specs, **options):
    return lambda fun: phalanx.jit(phalanx.shard_map(fun, in_specs=in_specs, out_specs=out_specs, **options))


def test_a_shard_map_returns_its_terms():
    @mapped((P(None, "x"), P("x")), P("y", unreduced={"x"}), axis_names={"x", "y"})
    def product(a, b):
        terms = lax.pcast(a @ b, "x", to="unreduced")
        assert terms.aval.mat.unreduced == {"x"} and not terms.aval.varying
        position = lax.axis_index("y")
        return lax.dynamic_slice_in_dim(lax.pcast(terms, "y", to="varying"), 2 * position, 2)

    y = product(phalanx.device_put(X, P(None, "x")), phalanx.device_put(X.T, P("x")))
    assert type_of(y) == "f32[8@y,8]{U:x}"
    np.testing.assert_array_equal(reshard(y, P()), X @ X.T)


def test_psum_adds_up_the_terms_and_its_cotangent_is_reduced(product):
    seen = []

    @mapped(P(unreduced={"x"}), P())
    def add_up(p):
        seen.append(p.aval.str_short())
        return lax.psum(p, "x")

    np.testing.assert_array_equal(add_up(product), X @ X.T)
    assert seen == ["f32[8,8]{U:x}"]
    bar = phalanx.jit(phalanx.grad(lambda p: (add_up(p) * W).sum()))(product)
    assert type_of(bar) == "f32[8,8]{R:x}"
    np.testing.assert_array_equal(bar, W)


def test_a_reduced_operand_mixes_with_varying_ones_and_gets_the_terms_of_its_cotangent():
    @mapped((P("x"), P(reduced={"x"})), P("x"))
    def product(x, w):
        assert w.aval.mat.reduced == {"x"}
        y = x @ jnp.sin(w)
        assert y.aval.varying == {"x"} and not y.aval.mat.reduced
        return y

    x, w = phalanx.device_put(X, P("x")), phalanx.device_put(W[:2], P(reduced={"x"}))
    bar = phalanx.jit(phalanx.grad(lambda w: product(x, w).sum()))(w)
    assert type_of(bar) == "f32[2,8]{U:x}"
    np.testing.assert_allclose(reshard(bar, P()), np.cos(W[:2]) * X.sum(0)[:, None], rtol=1e-4)


def test_a_gather_to_a_reduced_array_is_transposed_to_a_reduce_scatter():
    @mapped(P("x"), P(reduced={"x"}))
    def gather(w):
        whole = lax.all_gather(w, "x", tiled=True, to="reduced")
        assert whole.aval.mat.reduced == {"x"} and not whole.aval.varying
        return whole

    @mapped(P(unreduced={"x"}), P("x"))
    def scatter(p):
        return lax.psum_scatter(p, "x", tiled=True)

    x, w = phalanx.device_put(X, P("x")), phalanx.device_put(X, P("x"))
    loss = lambda w: (x @ gather(w).T).sum()
    assert type_of(gather(w)) == "f32[8,2]{R:x}"
    np.testing.assert_array_equal(phalanx.jit(phalanx.grad(loss))(w), np.tile(X.sum(0), (8, 1)))
    terms = reshard(W, P(unreduced={"x"}))
    np.testing.assert_array_equal(scatter(terms), W)
    bar = phalanx.jit(phalanx.grad(lambda p: (scatter(p) * phalanx.device_put(W, P("x"))).sum()))(terms)
    assert type_of(bar) == "f32[8,8]{R:x}"
    np.testing.assert_array_equal(bar, W)


def test_a_shared_value_becomes_reduced():
    @mapped(P(), P(reduced={"x"}))
    def reduce(w):
        return lax.pcast(w, "x", to="reduced")

    x, w = phalanx.device_put(X, P("x")), phalanx.device_put(W[:2], P())
    bar = phalanx.jit(phalanx.grad(lambda w: (x @ reduce(w)).sum()))(w)
    assert type_of(bar) == "f32[2,8]"
    np.testing.assert_array_equal(bar, np.tile(X.sum(0)[:, None], (1, 8)))


def test_without_the_check_of_types_terms_are_plain_values(product):
    @mapped(P(unreduced={"x"}), P("x"), check_vma=False)
    def stack(p):
        assert not p.aval.mat.unreduced
        return p

    stacked = stack(product)
    assert stacked.shape == (16, 8)
    np.testing.assert_array_equal(stacked[:8] + stacked[8:], X @ X.T)


def test_the_types_of_terms_are_checked_in_a_shard_map(product):
    identity = mapped(P(unreduced={"x"}), P())(lambda p: p)
    assert "expected a value of the unreduced and reduced axes that P() names" in refusal(identity, product)
    with pytest.raises(ValueError, match="a value that varies over"):
        mapped(P(), P(unreduced={"x"}))(lambda x: lax.pcast(x, "x", to="unreduced"))(phalanx.device_put(W, P()))
    with pytest.raises(ValueError, match="a value that is shared along"):
        mapped(P("x"), P(reduced={"x"}))(lambda x: lax.pcast(x, "x", to="reduced"))(phalanx.device_put(W, P("x")))
    gathered = mapped(P(unreduced={"x"}), P("x"))(lambda p: lax.all_gather(p, "x"))
    assert "expected operands that are not unreduced" in refusal(gathered, product)


# --- steps on which Shardy would abort the process


def test_terms_over_one_axis_become_terms_over_another(product):
    other = phalanx.jit(lambda p: reshard(p, P(unreduced={"y"})))(product)
    assert type_of(other) == "f32[8,8]{U:y}"
    np.testing.assert_array_equal(reshard(other, P()), X @ X.T)
    rows = jnp.dot(
        phalanx.device_put(X, P("y", "x")), phalanx.device_put(X.T, P("x")), out_sharding=P("y", unreduced={"x"})
    )
    total = phalanx.jit(lambda p: lax.reduce_sum(p, (0,), out_sharding=P(unreduced={"y"})))(rows)
    assert type_of(total) == "f32[8]{U:y}"
    np.testing.assert_array_equal(reshard(total, P()), (X @ X.T).sum(0))


def test_a_sharded_array_becomes_terms_without_communication():
    fun = phalanx.jit(lambda x: reshard(x, P(unreduced={"x"})))
    x = phalanx.device_put(W, P("x"))
    assert not {"all-gather", "all-reduce"} & set(fun.lower(x).compile().as_text().replace("(", " ").split())
    assert not np.asarray(fun(x).addressable_shards[0].data)[4:].any()


def test_no_transfer_makes_terms_of_a_maximum():
    with pytest.raises(RuleError, match="expected an array that is unreduced by max over these axes already"):
        phalanx.device_put(W, P(unreduced={"x"}, unreduced_kind=UnreducedKind.max))


def test_a_shard_becomes_its_devices_term_also_inside_a_nested_jit(mesh):
    # The parameter of the inner function is sharded by its type only.
    to_terms = phalanx.jit(lambda x: reshard(x, P(None, unreduced={"x"})))
    fun = phalanx.jit(lambda x: to_terms(2 * x))
    x = phalanx.device_put(np.arange(4.0, dtype=np.float32), P("x"))
    assert "all-gather" not in fun.lower(x).compile().as_text()
    for shard in fun(x).addressable_shards:
        np.testing.assert_array_equal(shard.data, [[0, 2, 0, 0], [0, 0, 4, 6]][index_along_x(shard, mesh)])


@pytest.mark.parametrize("spec", [P(unreduced={"x"}), P(None, "y", unreduced={"x"})])
def test_each_device_sums_the_segments_of_its_own_elements(spec, mesh):
    ids = np.array([0, 2, 2, 1, 0, 3, 3, 3])
    data, segments = phalanx.device_put(W, P("x", *spec.partitions[1:])), phalanx.device_put(ids, P("x"))
    fun = phalanx.jit(lambda x, ids: phalanx.ops.segment_sum(x, ids, 4, out_sharding=spec))
    assert "all-reduce" not in fun.lower(data, segments).compile().as_text()
    out = fun(data, segments)
    want = np.zeros((2, 4, 8), np.float32)
    np.add.at(want, (np.arange(8) // 4, ids), W)
    for shard in out.addressable_shards:
        np.testing.assert_array_equal(shard.data, want[index_along_x(shard, mesh)][shard.index])
    np.testing.assert_array_equal(reshard(out, P()), want.sum(0))


def test_each_device_counts_its_own_elements(mesh):
    ids = np.array([0, 2, 2, 1, 0, 3, 3, 3])
    count = phalanx.jit(lambda x: phalanx.numpy.bincount(x, length=4, out_sharding=P(None, unreduced={"x"})))
    x = phalanx.device_put(ids, P("x"))
    assert "all-reduce" not in count.lower(x).compile().as_text()
    out = count(x)
    for shard in out.addressable_shards:
        np.testing.assert_array_equal(shard.data, [[1, 1, 2, 0], [1, 0, 0, 3]][index_along_x(shard, mesh)])
    np.testing.assert_array_equal(reshard(out, P()), np.bincount(ids))
