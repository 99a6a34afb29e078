"""One instance for each row: `pmap` and `soft_pmap`, alone, nested and under transformations, and their errors."""

import numpy as np
import pytest
from phalanx.experimental.maps import xmap
from phalanx.experimental.pjit import pjit
from phalanx.interpreters.sharded_jit import sharded_jit
from tests.error_texts import without_positions
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, pmap, soft_pmap
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, AxisError, ShardingError, TreeError
from phalanx.sharding import Mesh, PartitionSpec as P
from phalanx.testing import collectives

X = np.arange(16, dtype=np.float32).reshape(8, 2) / 8


def share(x):
    return x / (1 + lax.psum(x, "i"))


def test_each_row_runs_on_a_separate_device():
    y = pmap(share, "i")(X)
    np.testing.assert_allclose(y, X / (1 + X.sum(0)), rtol=1e-6)
    assert [s.data.shape for s in y.addressable_shards] == [(1, 2)] * 8
    assert len({s.device for s in y.addressable_shards}) == 8
    assert pmap(lambda x: x + 1)(X[:3]).sharding.device_set == set(phalanx.devices()[:3])


def test_in_axes_and_out_axes_are_tree_prefixes():
    @pmap
    def plain(tree, *, scale):
        return {"sum": tree["a"] + tree["b"][0], "scale": scale}

    out = plain({"a": X, "b": (X,)}, scale=np.arange(8.0))
    np.testing.assert_allclose(out["sum"], 2 * X)
    assert out["scale"].tolist() == list(range(8))

    f = pmap(
        lambda t, y, z: (t["a"] + y, t["b"] * z, lax.pmean(t["a"], "i")),
        "i",
        in_axes=({"a": 1, "b": None}, 0, None),
        out_axes=(1, -1, None),
    )
    a, b, c = f({"a": X.T, "b": X}, X, 2.0)
    np.testing.assert_allclose(a, (2 * X).T)
    np.testing.assert_allclose(b, np.repeat(2 * X[:, :, None], 8, 2))
    np.testing.assert_allclose(c, X.mean(0))
    assert a.sharding.spec == P(None, "i")
    assert c.is_fully_replicated


def test_static_and_donated_arguments():
    f = pmap(lambda x, n, y: x**n + y, static_broadcasted_argnums=1, donate_argnums=0)
    x = pmap(lambda x: x)(X)
    np.testing.assert_allclose(f(x, 2, X), X**2 + X, rtol=1e-6)
    assert x.is_deleted()
    g = pmap(lambda x, n, y: x * n + y, in_axes=(0, None, None), static_broadcasted_argnums=(1,))
    np.testing.assert_allclose(g(X, 3, 1.0), 3 * X + 1)


def test_rows_use_the_given_devices_in_order():
    chosen = phalanx.devices()[::-1][:4]
    y = pmap(lambda x: x + lax.axis_index("i"), "i", devices=chosen)(np.zeros(4))
    assert y.tolist() == [0, 1, 2, 3]
    assert [s.device for s in sorted(y.addressable_shards, key=lambda s: s.index[0].start)] == chosen
    ones = pmap(lambda: lax.psum(1.0, "i"), "i", axis_size=8)()
    assert ones.tolist() == [8.0] * 8


def test_a_cache_hit_accepts_arguments_with_any_placement():
    count = []
    f = pmap(lambda x: (count.append(1), x + 1)[1])
    y = f(X)
    for x in (y, f(y), X, jnp.asarray(X), phalanx.device_put(X, phalanx.devices()[5])):
        np.testing.assert_allclose(f(x), np.asarray(x) + 1)
    assert len(count) == 1


def test_a_row_of_a_result_is_one_shard():
    y = pmap(lambda x: x * 2)(X)
    row = y[3]
    assert row.tolist() == (2 * X[3]).tolist()
    assert row.devices() == {phalanx.devices()[3]}
    assert [float(r.sum()) for r in y] == (2 * X).sum(1).tolist()
    np.testing.assert_allclose(row + y, 2 * X[3] + 2 * X)


def test_pmap_equals_vmap_under_every_transformation():
    f, g = pmap(share, "i"), phalanx.vmap(share, axis_name="i")
    W = np.stack([X, X + 1, X * 2])
    np.testing.assert_allclose(phalanx.jit(f)(X), g(X), rtol=1e-6)
    np.testing.assert_allclose(phalanx.vmap(f)(W), phalanx.vmap(g)(W), rtol=1e-6)
    np.testing.assert_allclose(
        phalanx.vmap(f, in_axes=1, out_axes=2)(W.swapaxes(0, 1)), phalanx.vmap(g, 1, 2)(W.swapaxes(0, 1)), rtol=1e-6
    )
    for loss in (lambda h: lambda x: (h(x) ** 3).sum(),):
        np.testing.assert_allclose(phalanx.grad(loss(f))(X), phalanx.grad(loss(g))(X), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        pmap(phalanx.grad(lambda x: share(x).sum()), "i")(X),
        phalanx.vmap(phalanx.grad(lambda x: share(x).sum()), axis_name="i")(X),
        rtol=1e-4,
    )
    np.testing.assert_allclose(phalanx.jvp(f, (X,), (X,))[1], phalanx.jvp(g, (X,), (X,))[1], rtol=1e-4)
    with phalanx.disable_jit():
        np.testing.assert_allclose(f(X), g(X), rtol=1e-6)
    stacked = lax.scan(lambda c, _: (f(c), None), jnp.asarray(X), length=3)[0]
    np.testing.assert_allclose(stacked, g(g(g(X))), rtol=1e-5)


def test_a_step_of_data_parallel_training_reduces_gradients_once():
    def step(w, x, y):
        grads = phalanx.grad(lambda w: ((x @ w - y) ** 2).mean())(w)
        return w - 0.1 * lax.pmean(grads, "batch")

    w, x = jnp.ones(4), np.random.default_rng(0).normal(size=(8, 3, 4)).astype(np.float32)
    y = x.sum(-1) + 1
    f = pmap(step, "batch", in_axes=(None, 0, 0), out_axes=None)
    want = w - 0.1 * phalanx.grad(lambda w: ((x.reshape(-1, 4) @ w - y.reshape(-1)) ** 2).mean())(w)
    np.testing.assert_allclose(f(w, x, y), want, rtol=1e-5)
    assert [c.kind for c in collectives(f, w, x, y)] == ["all-reduce"]


def test_a_nested_pmap_uses_further_devices():
    inner = pmap(lambda y: y - lax.pmean(y, ("a", "b")) + lax.psum(y, "b"), "b")
    f = pmap(lambda x: inner(x) * 2, "a")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    want = 2 * (x - x.mean() + x.sum(1, keepdims=True))
    y = f(x)
    np.testing.assert_allclose(y, want)
    assert len(y.sharding.device_set) == 8
    assert y.sharding.spec == P("a", "b")
    np.testing.assert_allclose(phalanx.jit(f)(x), want)
    np.testing.assert_allclose(pmap(phalanx.jit(lambda x: inner(x) * 2), "a")(x), want)
    unnamed = pmap(lambda x: pmap(lambda y: y + 1)(x))
    np.testing.assert_allclose(unnamed(x), x + 1)
    assert len(unnamed(x).sharding.device_set) == 8
    three = pmap(lambda x: pmap(lambda y: pmap(lambda z: z + lax.psum(z, ("p", "q", "r")), "r")(y), "q")(x), "p")
    np.testing.assert_allclose(three(x.reshape(2, 2, 2)), x.reshape(2, 2, 2) + x.sum())


def test_a_pmap_inside_a_shard_map_is_vectorised():
    mesh = Mesh(np.array(phalanx.devices()), ("x",))
    f = phalanx.shard_map(
        lambda x: pmap(lambda y: y + lax.psum(y, "b"), "b")(x), mesh=mesh, in_specs=P("x"), out_specs=P("x")
    )
    np.testing.assert_allclose(f(np.arange(16.0)), np.arange(16.0) + np.arange(16.0).reshape(8, 2).sum(1).repeat(2))


@pytest.mark.parametrize("rows", [1, 3, 8, 13, 16])
def test_soft_pmap_accepts_any_number_of_rows(rows):
    x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)

    def f(x):
        shifted = lax.ppermute(x, "i", [(k, (k + 1) % rows) for k in range(rows)])
        return shifted - lax.pmean(x, "i"), lax.axis_index("i"), lax.all_gather(x, "i").sum()

    a, b, c = soft_pmap(f, "i")(x)
    np.testing.assert_allclose(a, np.roll(x, 1, 0) - x.mean(0), rtol=1e-6, atol=1e-5)
    assert b.tolist() == list(range(rows))
    np.testing.assert_allclose(c, np.full(rows, x.sum()))
    np.testing.assert_allclose(
        phalanx.grad(lambda x: (soft_pmap(lambda x: x**2 * lax.psum(x, "i"), "i")(x)).sum())(x),
        2 * x * x.sum(0) + (x**2).sum(0),
        rtol=1e-4,
    )


def test_soft_pmap_distributes_rows_over_all_devices():
    y = soft_pmap(lambda x: x + 1)(np.zeros((13, 3), np.float32))
    assert [s.data.shape[0] for s in y.addressable_shards] == [2, 2, 2, 2, 2, 2, 1, 0]
    y = soft_pmap(lambda x: x + 1)(np.zeros((16, 3), np.float32))
    assert [s.data.shape for s in y.addressable_shards] == [(2, 3)] * 8
    assert not collectives(soft_pmap(lambda x: x + 1), np.zeros((16, 3), np.float32))


def test_functions_inside_soft_pmap_can_use_the_current_mesh():
    mesh = auto_mesh((4, 2), ("x", "y"))
    inside = {
        "xmap": xmap(lambda v: v * lax.psum(v, ("i", "j")), ["j"], ["j"], axis_resources={"j": "x"}),
        "shard_map": phalanx.shard_map(lambda v: v * lax.psum(v.sum(), ("i", "x")), in_specs=P("x"), out_specs=P("x")),
        "pjit": pjit(lambda v: v * lax.psum(v.sum(), "i"), in_axis_resources=P("y"), out_axis_resources=P("x")),
    }
    with mesh:
        for rows in (2, 8):
            x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
            for name, f in inside.items():
                np.testing.assert_allclose(soft_pmap(f, "i")(x), x * x.sum(), rtol=1e-6, err_msg=name)


def test_a_shift_of_rows_exchanges_only_boundary_rows():
    ring = lambda x: lax.ppermute(x, "i", [(i, (i + 1) % 16) for i in range(16)])
    x = np.arange(64, dtype=np.float32).reshape(16, 4)
    sent = collectives(soft_pmap(ring, "i"), x)
    assert [(c.kind, c.bytes) for c in sent] == [("collective-permute", 16)]
    np.testing.assert_array_equal(soft_pmap(ring, "i")(x), np.roll(x, 1, 0))
    line = lambda x: lax.ppermute(x, "i", [(i, i + 1) for i in range(15)])
    np.testing.assert_array_equal(soft_pmap(line, "i")(x)[:, 0], [0, *range(0, 60, 4)])


def test_errors_show_the_required_and_available_numbers_of_devices():
    with pytest.raises(ArgumentError) as e:
        pmap(share, "i")(np.zeros((9, 2)))
    assert without_positions(e.value) == (
        "pmap of share: expected at most 8 rows in total, one for each device, got 9.\n"
        "  Fix: use soft_pmap or vmap for more rows, or set config.num_cpu_devices before the first operation."
    )
    with pytest.raises(ArgumentError, match="pmap of <lambda> at .*: expected at most 8 rows in total.*got 16"):
        pmap(lambda x: pmap(lambda y: y)(x))(np.zeros((4, 4)))


def test_nested_pmaps_use_the_devices_of_the_outermost():
    f = pmap(lambda x: pmap(lambda y: y)(x), devices=phalanx.devices()[4:])
    assert f(np.zeros((2, 2))).devices() == set(phalanx.devices()[4:])
    with pytest.raises(ArgumentError, match="expected at most 4 rows in total.*got 8"):
        f(np.zeros((2, 4)))


def test_misfits_of_axes_name_the_argument():
    with pytest.raises(
        ArgumentError,
        match=r"pmap of share at .*: expected mapped dimensions of one size, got 8 \(dimension 0 of argument x\), 4",
    ):
        pmap(_two, "i")(X, X[:4])
    with pytest.raises(
        AxisError, match=r"pmap of share at .*, in_axes for argument x: expected a dimension of an array of rank 2"
    ):
        pmap(share, "i", in_axes=2)(X)
    with pytest.raises(
        AxisError,
        match=r"pmap of <lambda> at .*, out_axes for result\[1\]: expected a dimension of an array of rank 2, got 2",
    ):
        pmap(lambda x: (x, x), out_axes=(0, 2))(X)
    with pytest.raises(
        AxisError, match="^soft_pmap of <lambda> at .*, out_axes for result: expected a dimension of an array of"
    ):
        soft_pmap(lambda x: x, out_axes=2)(X)
    with pytest.raises(ArgumentTypeError, match="^pmap of share at .*, static argument x: expected a hashable value"):
        pmap(share, "i", static_broadcasted_argnums=0)(X)
    with pytest.raises(
        ArgumentError, match="^pmap of share at .*, static_broadcasted_argnums: expected positions below 1"
    ):
        pmap(share, "i", static_broadcasted_argnums=3)
    with pytest.raises(TreeError, match="pmap of share at .*, in_axes"):
        pmap(share, "i", in_axes=(0, 0))(X)
    with pytest.raises(ArgumentError, match="at least one argument to map over"):
        pmap(share, "i", in_axes=None)(X)


def _two(x, y):
    return share(x) + y


_two.__name__ = "share"


def test_zero_rows_and_invalid_axis_names_are_errors():
    with pytest.raises(
        ArgumentError, match="pmap of <lambda> at .*: expected mapped dimensions of size at least 1, got size 0"
    ):
        phalanx.pmap(lambda x: x)(np.ones((0, 3)))
    with pytest.raises(
        ArgumentTypeError, match=r"pmap of <lambda> at .*, axis_name: expected one name, .* got \['i'\]"
    ):
        phalanx.pmap(lambda x: x, axis_name=["i"])
    with pytest.raises(ArgumentTypeError) as error:
        phalanx.vmap(lambda x: x, axis_name=["i"])
    assert (
        without_positions(error.value)
        == "vmap, axis_name: expected one name, such as 'batch', got ['i'].\n  Fix: pass a string or another hashable value."
    )


def test_a_soft_pmap_inside_another_is_vectorised():
    inner = soft_pmap(lambda x: x - lax.pmean(x, ("i", "j")), "j")
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    y = soft_pmap(inner, "i")(x)
    np.testing.assert_allclose(y, x - x.mean(), rtol=1e-6)
    assert len(y.sharding.device_set) == 8
    np.testing.assert_allclose(soft_pmap(phalanx.pmap(lambda x: 2 * x))(x), 2 * x)


def test_a_shard_map_inside_pmap_is_an_error_with_a_fix():
    mesh = auto_mesh((4,), ("x",))
    x = np.arange(16.0).reshape(2, 8)
    spread = lambda row: row * lax.psum(row.sum(), "x")
    split = phalanx.shard_map(spread, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    helps = "inside a pmap, replace the pmap by vmap, or this shard_map by pmap."
    for inner, text in (
        (split, "leave mesh out inside another shard_map; "),
        (
            phalanx.shard_map(spread, in_specs=P("x"), out_specs=P("x")),
            "list fewer axes in axis_names of the surrounding shard_map; ",
        ),
    ):
        with pytest.raises(ShardingError) as e:
            pmap(inner)(x)
        assert without_positions(e.value).endswith(f"\n  Fix: {text}{helps}")
    want = x * x.sum(1, keepdims=True)
    np.testing.assert_allclose(phalanx.vmap(split)(x), want)
    np.testing.assert_allclose(pmap(lambda row: pmap(spread, axis_name="x")(row.reshape(4, 2)).reshape(8))(x), want)


@pytest.mark.parametrize("style", ["pmap", "soft_pmap", "xmap", "sharded_jit"])
def test_former_transformations_move_committed_arguments(style):
    """Also where derivatives and batches are taken, and where another style has put the argument."""
    mesh = auto_mesh((4, 2), ("x", "y"))
    named = xmap(jnp.sin, in_axes={0: "i"}, out_axes={0: "i"}, axis_resources={"i": "x"})

    def by_names(x):
        with mesh:
            return named(x)

    counted = sharded_jit(jnp.sin, in_parts=P(1, 2), out_parts=P(2, 1))
    f = {"pmap": pmap(jnp.sin), "soft_pmap": soft_pmap(jnp.sin), "xmap": by_names, "sharded_jit": counted}[style]
    places = [phalanx.devices()[5], phalanx.NamedSharding(mesh, P("y")), pmap(jnp.cos)(X).sharding]
    for x in [phalanx.device_put(X, place) for place in places]:
        np.testing.assert_allclose(f(x), np.sin(X), rtol=1e-6)
        np.testing.assert_allclose(phalanx.grad(lambda x: f(x).sum())(x), np.cos(X), rtol=1e-6)
        np.testing.assert_allclose(phalanx.jvp(f, (x,), (x,))[1], X * np.cos(X), rtol=1e-6)
        np.testing.assert_allclose(phalanx.vmap(f)(x[None]), np.sin(X)[None], rtol=1e-6)


def test_programs_inside_and_outside_soft_pmap_are_cached_separately():
    x = np.arange(48, dtype=np.float32).reshape(8, 2, 3)
    total = lambda x: x * lax.psum(x, "j")
    for first_alone in (True, False):
        f = phalanx.jit(pmap(total, axis_name="j"))
        uses = [lambda f=f: f(x[0]), lambda f=f: soft_pmap(f)(x)]
        alone, inside = [use() for use in (uses if first_alone else uses[::-1])][:: 1 if first_alone else -1]
        np.testing.assert_allclose(inside, x * x.sum(1, keepdims=True))
        assert len(alone.sharding.device_set) == 2


@pytest.mark.parametrize("transform", [phalanx.pmap, phalanx.soft_pmap], ids=["pmap", "soft_pmap"])
def test_keyword_arguments_are_mapped_over_their_first_dimension(transform):
    f = transform(lambda x, y, *, z: x + y + lax.psum(z["a"], "i"), axis_name="i")
    x = jnp.arange(8.0)
    np.testing.assert_array_equal(f(x, y=10 * x, z={"a": x}), 11 * x + 28)
    np.testing.assert_array_equal(f(x=x, y=10 * x, z={"a": x}), 11 * x + 28)
    np.testing.assert_array_equal(phalanx.grad(lambda y: f(x, y=y, z={"a": x}).sum())(x), np.ones(8))


def test_keyword_arguments_of_another_length_are_named():
    with pytest.raises(ArgumentError, match=r"got 8 \(dimension 0 of argument x\), 7 \(dimension 0 of argument y\)"):
        phalanx.pmap(lambda x, y: x + y)(jnp.arange(8.0), y=jnp.ones(7))
