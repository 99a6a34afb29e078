"""Checkpoint policies that offload: residuals wait in another memory, and no value or derivative changes."""

import numpy as np
import pytest
from phalanx.ad_checkpoint import Offloadable, Recompute, Saveable, checkpoint_name

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError
from phalanx.sharding import NamedSharding, P, SingleDeviceSharding

HOST = "pinned_host"
names = phalanx.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=["a"], names_which_can_be_offloaded=["b"], offload_src="device", offload_dst=HOST
)
dots = phalanx.checkpoint_policies.offload_dot_with_no_batch_dims("device", HOST)


def layer(x, w):
    a = checkpoint_name(jnp.sin(x @ w), "a")
    b = checkpoint_name(jnp.tanh(a @ w), "b")
    return jnp.cos(b) * a


def loss(policy):
    block = phalanx.checkpoint(layer, policy=policy) if policy is not None else layer
    return lambda x, w: jnp.sum(block(block(x, w), w) ** 2)


def scanned(policy):
    block = phalanx.checkpoint(layer, policy=policy) if policy is not None else layer
    return lambda x, ws: jnp.sum(phalanx.lax.scan(lambda c, w: (block(c, w), jnp.sum(c)), x, ws)[0])


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


@pytest.mark.parametrize("policy", [names, dots], ids=["names", "dots"])
@pytest.mark.parametrize("wrap", [lambda f: f, phalanx.jit], ids=["eager", "jit"])
def test_offloading_does_not_change_gradients(policy, wrap):
    got = wrap(phalanx.value_and_grad(loss(policy), (0, 1)))(X, W)
    want = phalanx.value_and_grad(loss(None), (0, 1))(X, W)
    for g, w in zip(phalanx.tree.leaves(got), phalanx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


def test_gradient_of_a_jitted_function_offloads():
    got = phalanx.grad(phalanx.jit(loss(names)), (0, 1))(X, W)
    for g, w in zip(got, phalanx.grad(loss(None), (0, 1))(X, W), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


def test_offloading_works_in_scan_and_vmap():
    ws = np.stack([W, W / 2, W / 3])
    want = phalanx.grad(scanned(None), (0, 1))(X, ws)
    for f in (phalanx.grad(scanned(names), (0, 1)), phalanx.jit(phalanx.grad(phalanx.jit(scanned(names)), (0, 1)))):
        for g, w in zip(f(X, ws), want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
    mapped = phalanx.vmap(phalanx.grad(scanned(names)), (0, None))(np.stack([X, 2 * X]), ws)
    np.testing.assert_allclose(mapped[0], want[0], rtol=1e-5, atol=1e-6)


def test_offloading_works_in_second_derivatives():
    f, g = (lambda x, p=p: loss(p)(x, W) for p in (names, None))
    np.testing.assert_allclose(phalanx.hessian(f)(X), phalanx.hessian(g)(X), rtol=1e-4, atol=1e-4)


def test_offloaded_residuals_are_in_host_memory():
    f = phalanx.checkpoint(lambda x: jnp.sin(checkpoint_name(jnp.sin(x), "b")), policy=names)
    _, pullback = phalanx.vjp(f, jnp.ones(4))
    held = [x.sharding.memory_kind for x in phalanx.tree.leaves(pullback) if x.shape == (4,)]
    assert HOST in held
    text = str(phalanx.make_jaxpr(phalanx.grad(lambda x: f(x).sum()))(jnp.ones(4)))
    assert text.count("to_memory[dst=pinned_host src=device]") == 1
    assert text.count("to_memory[dst=device src=pinned_host]") == 1


def test_jitted_function_returns_offloaded_residuals_in_host_memory():
    f = phalanx.checkpoint(lambda x: jnp.sin(checkpoint_name(jnp.sin(x), "b")), policy=names)
    _, pullback = phalanx.vjp(phalanx.jit(f), jnp.ones(4))
    assert HOST in [x.sharding.memory_kind for x in phalanx.tree.leaves(pullback)]
    (x_bar,) = pullback(jnp.ones(4))
    np.testing.assert_allclose(x_bar, np.cos(np.sin(1.0)) * np.cos(1.0) * np.ones(4), rtol=1e-5)


def test_offloading_works_with_sharded_gradients():
    mesh = phalanx.make_mesh((4, 2), ("x", "y"))
    x = phalanx.device_put(np.tile(X, (4, 1)), NamedSharding(mesh, P("x")))
    w = phalanx.device_put(W, NamedSharding(mesh, P(None, "y")))
    auto = phalanx.sharding.Mesh(mesh.devices, mesh.axis_names)
    x, w = (phalanx.device_put(v, NamedSharding(auto, v.sharding.spec)) for v in (x, w))
    got = phalanx.jit(phalanx.grad(loss(names), (0, 1)))(x, w)
    for g, e in zip(got, phalanx.grad(loss(None), (0, 1))(np.tile(X, (4, 1)), W), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-5)
    _, pullback = phalanx.vjp(phalanx.jit(loss(names)), x, w)
    assert HOST in [v.sharding.memory_kind for v in phalanx.tree.leaves(pullback)]


def test_policies_may_return_saveable_and_recompute():
    def policy(primitive, *_, **params):
        if primitive.name == "sin":
            return Offloadable("device", HOST)
        return Saveable if primitive.name == "tanh" else Recompute

    for p in (policy, phalanx.checkpoint_policies.save_from_both_policies(policy, names)):
        np.testing.assert_allclose(phalanx.grad(loss(p))(X, W), phalanx.grad(loss(None))(X, W), rtol=1e-5, atol=1e-6)


def test_names_may_not_be_both_saved_and_offloaded():
    with pytest.raises(ArgumentError) as caught:
        phalanx.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["a"], names_which_can_be_offloaded=["a"], offload_src="device", offload_dst=HOST
        )
    assert str(caught.value) == (
        "save_and_offload_only_these_names: expected each name in only one of names_which_can_be_saved and "
        "names_which_can_be_offloaded, got 'a' in both.\n  Fix: remove 'a' from one of the two arguments."
    )


def test_values_move_between_memories_inside_programs():
    space = phalanx.memory.Space
    far = SingleDeviceSharding(phalanx.devices()[0], memory_kind=HOST)
    x = jnp.arange(4.0)
    for put in (lambda v: phalanx.device_put(v, far), lambda v: phalanx.device_put(v, space.Host)):
        for f in (put, phalanx.jit(put), phalanx.jit(phalanx.jit(put)), phalanx.vmap(put)):
            assert f(x).sharding.memory_kind == HOST
            np.testing.assert_array_equal(f(x), np.arange(4.0))
    back = phalanx.jit(lambda v: phalanx.device_put(v, space.Device) + 1)(phalanx.device_put(x, far))
    assert back.sharding.memory_kind != HOST
    np.testing.assert_array_equal(back, np.arange(4.0) + 1)
    np.testing.assert_array_equal(phalanx.grad(lambda v: phalanx.device_put(v, space.Host).sum())(x), np.ones(4))


def test_out_shardings_choose_the_memory_of_results():
    far = SingleDeviceSharding(phalanx.devices()[0], memory_kind=HOST)
    y = phalanx.jit(lambda x: x + 1, out_shardings=far)(jnp.arange(4.0))
    assert y.sharding is far
    assert phalanx.jit(lambda x: x, in_shardings=far)(y).sharding.memory_kind == HOST
    np.testing.assert_array_equal(y + y, 2 * (np.arange(4.0) + 1))
    assert (y + y).sharding.memory_kind != HOST
    mesh = phalanx.sharding.Mesh(np.array(phalanx.devices()), ("x",))
    split = NamedSharding(mesh, P("x"), memory_kind=HOST)
    z = phalanx.jit(lambda x: x + 1, out_shardings=split)(jnp.arange(8.0))
    assert z.sharding is split
    np.testing.assert_array_equal(phalanx.jit(lambda x: x * 2)(z), 2 * (np.arange(8.0) + 1))
    np.testing.assert_array_equal(z + z, 2 * (np.arange(8.0) + 1))
