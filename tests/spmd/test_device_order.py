"""Meshes that list the same devices in different orders, in one program."""

from __future__ import annotations

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx as ph
from phalanx import lax
from phalanx.sharding import GSPMDSharding, NamedSharding, P
from phalanx.sharding.gspmd_sharding import reorder_devices
from phalanx.spmd import device_put

X = np.arange(16, dtype=np.float32)


@pytest.fixture
def forth():
    return NamedSharding(auto_mesh((4, 2), ("x", "y")), P("x"))


@pytest.fixture
def back(forth):
    return NamedSharding(auto_mesh((4, 2), ("p", "q"), devices=forth.mesh.flat_devices[::-1]), P("p"))


def f(x, y):
    return lax.add(x, lax.mul(y, np.float32(2)))


def is_right(y, sharding=None):
    np.testing.assert_array_equal(np.asarray(y), 3 * X)
    places = y.sharding.devices_indices_map(y.shape)
    for shard in y.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), 3 * X[places[shard.device]])
    return sharding is None or places == sharding.devices_indices_map(y.shape)


def test_arguments_and_results_may_differ_in_order(forth, back):
    assert is_right(ph.jit(f, in_shardings=(forth, back))(X, X))
    assert is_right(ph.jit(f, in_shardings=(forth, forth), out_shardings=back)(X, X), back)
    a, b = device_put(X, forth), device_put(X, back)
    assert is_right(ph.jit(f)(a, b)) and is_right(ph.jit(f)(b, a)) and is_right(f(a, b))
    assert is_right(ph.jit(f, out_shardings=back)(a, a), back)
    assert is_right(ph.jit(lambda x, y: ph.jit(f, in_shardings=(forth, back))(x, y))(a, b))


def test_a_constraint_may_differ_in_order(forth, back):
    a = device_put(X, forth)
    y = ph.jit(lambda x, y: lax.with_sharding_constraint(f(x, y), back))(a, a)
    assert is_right(y, back) and y.sharding == back


def test_captured_arrays_may_differ_in_order(forth, back):
    a, b = device_put(X, forth), device_put(X, back)
    assert is_right(ph.jit(lambda x: f(x, b))(a)) and is_right(ph.jit(lambda x: f(x, a))(b))


def test_an_array_keeps_its_buffers_when_only_the_order_changes(forth, back):
    a = device_put(X, forth)
    same = NamedSharding(back.mesh, P(("p", "q"))), NamedSharding(forth.mesh, P(("x", "y")))
    tiles = reorder_devices(same[1], back._device_assignment, 1)
    assert isinstance(tiles, GSPMDSharding) and tiles._device_assignment == back._device_assignment
    assert tiles.devices_indices_map((16,)) == same[1].devices_indices_map((16,))
    x = device_put(X, same[1])
    moved = device_put(x, tiles)
    mine = {s.device: s.data.unsafe_buffer_pointer() for s in x.addressable_shards}
    assert {s.device: s.data.unsafe_buffer_pointer() for s in moved.addressable_shards} == mine
    assert reorder_devices(a.sharding, forth._device_assignment, 1) is forth


def test_using_a_deleted_sharded_array_is_an_error(forth):
    x = device_put(X, forth)
    ph.jit(lambda v: lax.neg(v), donate_argnums=0)(x)
    for use in (lax.neg, ph.jit(lax.neg), ph.jit(lambda v: lax.add(v, device_put(X, forth)))):
        with pytest.raises(ph.errors.ArgumentError, match=r"got f32\[16\], deleted or donated"):
            use(x)
