"""What programs of many processes do together, in one process."""

import numpy as np
import pytest
from phalanx.experimental import multihost_utils

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentTypeError, ShardingError, TraceError
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec as P

X = np.arange(8.0, dtype=np.float32).reshape(4, 2)


@pytest.fixture
def mesh():
    return Mesh(np.array(phalanx.devices()).reshape(4, 2), ("x", "y"))


def test_process_allgather_returns_the_values_of_the_process(mesh):
    split = phalanx.device_put(X, NamedSharding(mesh, P("x")))
    stacked = multihost_utils.process_allgather({"a": X, "b": split, "c": 3.0})
    assert {name: type(value) for name, value in stacked.items()} == dict.fromkeys("abc", np.ndarray)
    assert [stacked[name].shape for name in "abc"] == [(1, 4, 2), (1, 4, 2), (1,)]
    np.testing.assert_array_equal(stacked["b"][0], X)
    joined = multihost_utils.process_allgather((split, 3.0), tiled=True)
    np.testing.assert_array_equal(joined[0], X)
    assert joined[1].shape == ()


def test_the_only_process_is_the_source_of_a_broadcast(mesh):
    out = multihost_utils.broadcast_one_to_all({"a": phalanx.device_put(X, NamedSharding(mesh, P("y"))), "b": 2}, True)
    np.testing.assert_array_equal(out["a"], X)
    assert out["b"] == 2
    with pytest.raises(ArgumentTypeError) as error:
        multihost_utils.broadcast_one_to_all(X, is_source=False)
    assert str(error.value) == (
        "broadcast_one_to_all, argument is_source: expected True in one process, which is the source, got False in every "
        "process.\n  Fix: leave is_source out, or pass is_source=process_index() == 0."
    )


def test_random_keys_stay_random_keys():
    key = phalanx.random.key(7)
    words = phalanx.random.key_data(key)
    for found, shape in (
        (multihost_utils.process_allgather(key), (1,)),
        (multihost_utils.process_allgather(key, tiled=True), ()),
        (multihost_utils.broadcast_one_to_all(key), ()),
    ):
        assert (found.shape, found.dtype) == (shape, key.dtype)
        np.testing.assert_array_equal(phalanx.random.key_data(found).reshape(-1), words)


def test_objects_are_refused():
    for name in ("process_allgather", "broadcast_one_to_all", "assert_equal"):
        with pytest.raises(ArgumentTypeError) as error:
            getattr(multihost_utils, name)({"a": 1, "b": slice(3)})
        assert str(error.value) == (
            f"{name}: expected numbers, strings or arrays of them, got slice(None, 3, None).\n"
            "  Fix: pass pickle.dumps(x) as a NumPy array."
        )


def test_synchronization_of_one_process_succeeds():
    assert multihost_utils.sync_global_devices("init") is None
    assert multihost_utils.assert_equal({"config": X}, "configurations differ") is None
    assert multihost_utils.reached_preemption_sync_point(3) is False


def test_host_local_arrays_round_trip_over_a_mesh(mesh):
    out = multihost_utils.host_local_array_to_global_array({"w": X, "b": X[0]}, mesh, {"w": P("x", "y"), "b": P()})
    assert out["w"].sharding == NamedSharding(mesh, P("x", "y"))
    assert out["b"].is_fully_replicated
    back = multihost_utils.global_array_to_host_local_array(out, mesh, {"w": P("x", "y"), "b": P()})
    np.testing.assert_array_equal(back["w"], X)
    both = multihost_utils.host_local_array_to_global_array((X, out["w"]), mesh, P("y"))
    assert [x.sharding.spec for x in both] == [P("y"), P("y")]


def test_host_local_array_to_global_array_is_differentiable_and_compilable(mesh):
    lay = lambda x: multihost_utils.host_local_array_to_global_array(x, mesh, P("x"))
    grad = phalanx.grad(lambda x: (lay(x) ** 2).sum())(jnp.asarray(X))
    np.testing.assert_array_equal(grad, 2 * X)
    on_mesh = phalanx.device_put(X, NamedSharding(mesh, P()))
    assert phalanx.jit(lay)(on_mesh).sharding.spec == P("x")


def test_specs_that_do_not_fit_are_errors(mesh):
    lay = multihost_utils.host_local_array_to_global_array
    with pytest.raises(ShardingError) as error:
        lay({"w": X}, mesh, {"w": P("q")})
    assert str(error.value).startswith(
        "host_local_array_to_global_array, pspecs['w']: expected a spec over the axes of the mesh ('x', 'y')"
    )
    assert lay(np.ones(3), mesh, P("x")).tolist() == [1.0] * 3
    with pytest.raises(ArgumentTypeError) as error:
        lay(X, mesh, None)
    assert str(error.value) == (
        "host_local_array_to_global_array, pspecs: expected a PartitionSpec, got None.\n"
        "  Fix: write PartitionSpec() for a replicated array."
    )


def test_gathering_traced_values_is_an_error():
    with pytest.raises(TraceError, match="process_allgather: expected concrete values, got .* while tracing"):
        phalanx.jit(multihost_utils.process_allgather)(X)


def test_the_devices_of_a_process_alone_are_live():
    devices = phalanx.devices()
    with multihost_utils.live_devices(devices[::-1]) as live:
        assert live == devices
    with pytest.raises(KeyError), multihost_utils.live_devices(devices):
        raise KeyError
    with pytest.raises(ValueError) as error, multihost_utils.live_devices([]):
        pass
    assert str(error.value) == (
        "live_devices, devices: expected at least one device of this process (0), got no devices.\n"
        "  Fix: pass phalanx.devices()."
    )
