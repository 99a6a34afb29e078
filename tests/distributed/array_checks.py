"""Checks of arrays and programs over the devices of several processes; each runs in all of them."""

from __future__ import annotations

import numpy as np

import phalanx
import phalanx.numpy as jnp
from phalanx.sharding import Mesh, NamedSharding, P

DEVICES = phalanx.devices()
N = len(DEVICES)
MESH = Mesh(np.array(DEVICES), ("x",))
MESH2 = Mesh(np.array(DEVICES).reshape(N // 2, 2), ("a", "b"))
X, R = NamedSharding(MESH, P("x")), NamedSharding(MESH, P())
A = np.arange(64, dtype=np.float32).reshape(8, 8)


def put(value, sharding=X):
    return phalanx.make_array_from_callback(value.shape, sharding, lambda index: value[index])


def same(x, truth):
    truth = np.asarray(truth)
    assert x.shape == truth.shape
    for shard in x.addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), truth[shard.index], rtol=1e-4, atol=1e-4)


def devices_of_all_processes():
    assert phalanx.process_count() > 1 and N == 8
    assert len(phalanx.local_devices()) == N // phalanx.process_count()
    assert phalanx.process_index() == phalanx.local_devices()[0].process_index
    same(put(A) + 1, A + 1)
