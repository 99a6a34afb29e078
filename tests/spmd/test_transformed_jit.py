"""Compiled functions inside transformations, over a mesh: shardings travel with the values they were asked for."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ShardingError
from phalanx.lax.sharding_constraint import with_sharding_constraint
from phalanx.sharding import NamedSharding, P
from phalanx.testing import assert_collectives

X = np.linspace(-1, 1, 8 * 8, dtype=np.float32).reshape(8, 8)
W = np.linspace(0, 1, 8 * 4, dtype=np.float32).reshape(8, 4)
OPEN = P.UNCONSTRAINED


@pytest.fixture
def mesh():
    return auto_mesh((4, 2), ("x", "y"))


def on(mesh, *spec):
    return NamedSharding(mesh, P(*spec))


def put(value, mesh, *spec):
    return phalanx.device_put(value, on(mesh, *spec))


def spec_of(array):
    return array.sharding.spec.canonical


def arrays_made_by(call):
    """What a call returns, and the arrays that live on devices because of it."""
    before = {id(a._buffer): a for a in phalanx.live_arrays()}  # held, so that no new one is found at their places
    out = call()
    return out, [a for a in phalanx.live_arrays() if id(a._buffer) not in before]


# --- vmap ---


def test_vmap_shards_the_new_dimension_over_spmd_axis_name(mesh):
    f = phalanx.jit(jnp.tanh, in_shardings=on(mesh, "x"), out_shardings=on(mesh, "x"))
    batch = np.stack([X, X + 1])
    y = phalanx.vmap(f, spmd_axis_name="y")(batch)
    assert spec_of(y) == P("y", "x")
    np.testing.assert_allclose(y, np.tanh(batch), rtol=1e-6)
    y = phalanx.vmap(f, in_axes=1, out_axes=2, spmd_axis_name="y")(np.stack([X, X + 1], 1))
    assert spec_of(y) == P("x", None, "y")
    np.testing.assert_allclose(y, np.tanh(np.stack([X, X + 1], 2)), rtol=1e-6)
    both = phalanx.jit(jnp.tanh, in_shardings=on(mesh), out_shardings=on(mesh))
    y = phalanx.vmap(both, spmd_axis_name=("x", "y"))(np.stack([X] * 8))
    assert spec_of(y) == P(("x", "y"))
    nested = phalanx.vmap(phalanx.vmap(both, spmd_axis_name="x"), spmd_axis_name="y")
    assert spec_of(nested(np.ones((2, 4, 8, 8), np.float32))) == P("y", "x")
    assert_collectives(phalanx.jit(phalanx.vmap(f, spmd_axis_name="y")), put(batch, mesh, "y", "x"))


def test_vmap_without_spmd_axis_name_replicates_the_new_dimension(mesh):
    f = phalanx.jit(lambda x, w: x @ w, in_shardings=(on(mesh, "x"), on(mesh)), out_shardings=on(mesh, "x"))
    y = phalanx.vmap(f, in_axes=(0, None))(np.stack([X, X]), W)
    assert spec_of(y) == P(None, "x")
    np.testing.assert_allclose(y[0], X @ W, rtol=1e-5)


def test_spmd_axis_name_that_is_already_used_is_an_error(mesh):
    f = phalanx.jit(jnp.tanh, in_shardings=on(mesh, "x"))
    with pytest.raises(ShardingError) as error:
        phalanx.vmap(f, spmd_axis_name="x")(np.stack([X] * 4))
    assert str(error.value) == (
        "spmd_axis_name of a vmap, or axis_resources of an xmap: expected mesh axes that no sharding inside the mapped function uses, "
        "got 'x' for the mapped dimension and in P('x',).\n"
        "  Fix: split the mapped dimension over another mesh axis, or remove 'x' from the spec."
    )


# --- derivatives ---


def model(x, w):
    return jnp.tanh(x @ w)


def test_derivatives_are_sharded_like_their_functions(mesh):
    shardings = dict(in_shardings=(on(mesh, "x"), on(mesh, None, "y")), out_shardings=on(mesh, "x", "y"))
    f = phalanx.jit(model, **shardings)
    y, y_dot = phalanx.jvp(f, (X, W), (X, W))
    assert spec_of(y) == P("x", "y") and spec_of(y_dot) == P("x", "y")
    y, pull = phalanx.vjp(f, X, W)
    x_bar, w_bar = pull(put(np.ones((8, 4), np.float32), mesh, "x", "y"))
    assert spec_of(x_bar) == P("x") and spec_of(w_bar) == P(None, "y")
    want = phalanx.vjp(model, X, W)[1](np.ones((8, 4), np.float32))
    np.testing.assert_allclose(x_bar, want[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(w_bar, want[1], rtol=1e-5, atol=1e-6)


def test_residuals_of_a_compiled_function_stay_sharded(mesh):
    """Nothing declares how residuals lie: they keep what the compiler chose, and none becomes whole on a device."""
    x, w = put(X, mesh, "x"), put(W, mesh, None, "y")
    (y, pull), made = arrays_made_by(lambda: phalanx.vjp(phalanx.jit(model), x, w))
    residuals = [a for a in made if a.shape == y.shape]
    assert residuals and all(spec_of(a) == P("x", "y") for a in residuals)
    assert not any(a.is_fully_replicated and a.size > 1 for a in made)
    x_bar, w_bar = pull(jnp.ones_like(y))
    want = phalanx.vjp(model, X, W)[1](np.ones((8, 4), np.float32))
    np.testing.assert_allclose(x_bar, want[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(w_bar, want[1], rtol=1e-5, atol=1e-6)
    assert spec_of(w_bar) == P(None, "y")


def test_linearize_splits_compiled_functions(mesh):
    x, w = put(X, mesh, "x"), put(W, mesh, None, "y")
    traced = []

    @phalanx.jit
    def f(w):
        traced.append(1)
        return jnp.sin(model(x, w))

    y, linear = phalanx.linearize(f, w)
    dots = [linear(put(W * k, mesh, None, "y")) for k in (1, 2)]
    assert len(traced) == 1 and spec_of(y) == P("x", "y") and spec_of(dots[0]) == P("x", "y")
    np.testing.assert_allclose(dots[1], 2 * dots[0], rtol=1e-5)
    np.testing.assert_allclose(
        dots[0], phalanx.jvp(lambda w: jnp.sin(model(X, w)), (W,), (W,))[1], rtol=1e-5, atol=1e-6
    )


def test_the_transpose_of_a_compiled_function_swaps_its_shardings(mesh):
    f = phalanx.jit(lambda x: x @ W, in_shardings=on(mesh, "x", None), out_shardings=on(mesh, "x", "y"))
    transposed = phalanx.linear_transpose(f, X)
    (x_bar,) = transposed(put(np.ones((8, 4), np.float32), mesh, "x", "y"))
    assert spec_of(x_bar) == P("x")
    np.testing.assert_allclose(x_bar, np.ones((8, 4)) @ W.T, rtol=1e-5)


def test_rematerialised_and_nested_functions_keep_shardings(mesh):
    inner = phalanx.jit(model, out_shardings=on(mesh, "x", "y"))

    @phalanx.jit
    def loss(x, w):
        return jnp.sum(phalanx.checkpoint(inner)(x, w) ** 2)

    x, w = put(X, mesh, "x"), put(W, mesh, None, "y")
    g = phalanx.jit(phalanx.grad(loss, 1))(x, w)
    want = phalanx.grad(lambda w: jnp.sum(model(X, w) ** 2))(W)
    np.testing.assert_allclose(g, want, rtol=1e-5, atol=1e-6)
    assert spec_of(g) == P(None, "y")
    batched = phalanx.vmap(phalanx.grad(loss, 1), in_axes=(0, None))(np.stack([X, X]), W)
    np.testing.assert_allclose(batched[1], want, rtol=1e-5, atol=1e-6)


# --- effects ---


def test_effects_happen_once_and_in_order_over_a_mesh(mesh):
    seen = []

    @functools.partial(phalanx.jit, in_shardings=on(mesh, "x"))
    def f(x):
        phalanx.debug.callback(lambda s, v: seen.append((s, float(v))), "first", jnp.sum(x), ordered=True)
        phalanx.debug.callback(lambda s, v: seen.append((s, float(v))), "second", jnp.max(x), ordered=True)
        return x * 2

    f(X + 1)
    phalanx.effects_barrier()
    assert [s for s, _ in seen] == ["first", "second"]
    np.testing.assert_allclose([v for _, v in seen], [np.sum(X + 1), 2.0], rtol=1e-5)
    seen.clear()
    g = phalanx.grad(lambda x: f(x).sum())(X + 1)
    phalanx.effects_barrier()
    assert [s for s, _ in seen] == ["first", "second"]
    np.testing.assert_allclose(g, np.full((8, 8), 2.0))


# --- with_sharding_constraint ---


@pytest.mark.parametrize("spec", [P("x", OPEN), P(OPEN, "y"), P(OPEN, OPEN), P(OPEN), P(("x", "y"))], ids=str)
def test_a_constraint_with_open_dimensions_is_its_own_derivative(mesh, spec):
    sharding = NamedSharding(mesh, spec)

    def f(x):
        return with_sharding_constraint(jnp.sin(x), sharding)

    for call in (f, phalanx.jit(f)):
        y, y_dot = phalanx.jvp(call, (X,), (X,))
        np.testing.assert_allclose(y, np.sin(X), rtol=1e-5)
        np.testing.assert_allclose(y_dot, np.cos(X) * X, rtol=1e-5, atol=1e-7)
        g = phalanx.grad(lambda x, call=call: call(x).sum())(X)
        np.testing.assert_allclose(g, np.cos(X), rtol=1e-5, atol=1e-7)
        stacked = phalanx.vmap(call)(np.stack([X, X]))
        np.testing.assert_allclose(stacked[1], np.sin(X), rtol=1e-5)
        (back,) = phalanx.linear_transpose(lambda x: with_sharding_constraint(x, sharding), X)(X)
        np.testing.assert_array_equal(back, X)
    entries = [e for e in spec if e is not OPEN]
    y = phalanx.jit(f)(X)
    assert all(entry in y.sharding.spec.canonical for entry in entries)


def test_an_open_dimension_keeps_the_sharding_of_its_operand(mesh):
    x = put(X, mesh, None, "y")
    f = lambda x: with_sharding_constraint(x * 2, on(mesh, "x", OPEN))
    assert spec_of(phalanx.jit(f)(x)) == P("x", "y")
    assert spec_of(f(x)) == P("x", "y")
    assert_collectives(phalanx.jit(f), x)
    g = phalanx.jit(phalanx.grad(lambda x: jnp.sum(f(x) ** 2)))(x)
    np.testing.assert_allclose(g, 8 * X, rtol=1e-5)
    inside = phalanx.vmap(lambda row: with_sharding_constraint(row, on(mesh, OPEN)), spmd_axis_name="x")
    assert spec_of(phalanx.jit(inside)(x)) == P("x", "y")
