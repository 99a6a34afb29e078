"""The attributes and makers of old array classes, on the one `Array`."""

from __future__ import annotations

import numpy as np
import pytest
from phalanx.experimental.global_device_array import GlobalDeviceArray, get_shard_indices, get_shard_shape
from phalanx.experimental.pjit import FROM_GDA, pjit
from phalanx.interpreters import pxla
from phalanx.interpreters.pxla import Chunked, NoSharding, Replicated, ShardedAxis, ShardingSpec, Unstacked

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ShardingError
from phalanx.sharding import NamedSharding, P, make_mesh

WHOLE = np.arange(32, dtype=np.float32).reshape(8, 4)


@pytest.fixture
def mesh():
    return make_mesh((4, 2), ("x", "y"))


@pytest.fixture
def array(mesh):
    return phalanx.device_put(WHOLE, NamedSharding(mesh, P("x")))


def test_a_sharded_device_array_is_an_array(array):
    assert isinstance(array, pxla.ShardedDeviceArray)
    assert array.sharding_spec == ShardingSpec([Chunked([4]), NoSharding()], [ShardedAxis(0), Replicated(2)])
    assert array.indices == pxla.spec_to_indices(array.shape, array.sharding_spec)
    assert array.one_replica_buffer_indices == [0, 2, 4, 6]
    buffers = array.device_buffers
    assert [b.devices() for b in buffers] == [{d} for d in phalanx.devices()]
    for buffer, index in zip(buffers, array.indices, strict=True):
        np.testing.assert_array_equal(buffer, WHOLE[index])
    pieces = [np.asarray(buffers[i]) for i in array.one_replica_buffer_indices]
    np.testing.assert_array_equal(np.concatenate(pieces), WHOLE)


def test_results_of_compiled_functions_have_sharding_specs(array):
    y = phalanx.jit(jnp.sin)(array)
    assert y.sharding_spec == array.sharding_spec
    assert jnp.ones(3).sharding_spec == ShardingSpec([NoSharding()])
    assert jnp.ones(3).one_replica_buffer_indices == [0]


def test_rows_of_a_pmap_are_unstacked():
    """Programs of 2020 took the first device's buffer for the values that all rows share."""
    y = phalanx.pmap(lambda x: 2 * x)(WHOLE)
    assert y.sharding_spec == ShardingSpec([Unstacked(8), NoSharding()], [ShardedAxis(0)])
    assert y.indices == pxla.spec_to_indices(y.shape, y.sharding_spec)
    assert [b.devices() for b in y.device_buffers] == [{d} for d in phalanx.devices()]
    for i, buffer in enumerate(y.device_buffers):
        np.testing.assert_array_equal(buffer, 2 * WHOLE[i])
    one = phalanx.pmap(lambda x: 2 * x)(WHOLE[:1])
    assert one.device_buffer.shape == one.device_buffers[0].shape == (4,)
    nested = phalanx.pmap(phalanx.pmap(lambda x: x, out_axes=1))(WHOLE.reshape(2, 4, 4))
    assert nested.sharding_spec.sharding == (Unstacked(2), NoSharding(), Unstacked(4))
    np.testing.assert_array_equal(nested.device_buffers[5], nested[nested.indices[5]])
    copies = phalanx.device_put_replicated(WHOLE, phalanx.devices())
    np.testing.assert_array_equal(copies.device_buffers[3], WHOLE)


def test_a_global_device_array_is_made_of_callbacks(mesh):
    made = []

    def one(index):
        made.append(index)
        return WHOLE[index]

    gda = GlobalDeviceArray.from_callback((8, 4), mesh, P("x"), one)
    np.testing.assert_array_equal(gda, WHOLE)
    assert len(made) == 4  # replicas share a part
    assert isinstance(gda, GlobalDeviceArray) and type(gda) is phalanx.Array
    assert (gda.mesh, gda.mesh_axes) == (mesh, P("x"))
    assert [s.replica_id for s in gda.local_shards] == [0, 1] * 4
    np.testing.assert_array_equal(gda.local_data(2), WHOLE[2:4])

    batched = GlobalDeviceArray.from_batched_callback(
        (8, 4), mesh, ["x", "y"], lambda places: [WHOLE[i] for i in places]
    )
    np.testing.assert_array_equal(batched, WHOLE)
    assert batched.local_data(0).shape == (2, 2)

    def on_devices(places):
        return [phalanx.device_put(WHOLE[index], d) for index, devices in places for d in devices]

    placed = GlobalDeviceArray.from_batched_callback_with_devices((8, 4), mesh, [None, "y"], on_devices)
    np.testing.assert_array_equal(placed, WHOLE)
    again = GlobalDeviceArray((8, 4), mesh, ["x"], gda.device_buffers)
    np.testing.assert_array_equal(again, WHOLE)


def test_former_options_are_accepted(array):
    phalanx.config.update("jax_parallel_functions_output_gda", True)
    phalanx.config.update("jax_array", True)
    assert isinstance(pjit(lambda x: x, in_axis_resources=FROM_GDA)(array), GlobalDeviceArray)


def test_shard_shapes_and_indices_need_no_data(mesh):
    assert get_shard_shape((8, 4), mesh, ["x", "y"]) == (2, 2)
    assert get_shard_indices((8, 4), mesh, P("x"))[phalanx.devices()[7]] == (slice(6, 8), slice(None))


def test_an_argument_marked_from_gda_keeps_its_sharding(array):
    double = pjit(lambda x, w: x * w, in_axis_resources=(FROM_GDA, None), out_axis_resources=P("x"))
    with array.mesh:
        y = double(array, np.float32(2))
        compiled = double.lower(array, np.float32(2)).compile()
    np.testing.assert_array_equal(y, WHOLE * 2)
    assert compiled.input_shardings[0][0].spec == P("x")


def test_an_array_on_one_device_has_no_mesh():
    with pytest.raises(ShardingError) as error:
        jnp.ones(3).mesh
    assert str(error.value) == (
        "mesh of an array: expected an array that is sharded over a mesh, got SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device).\n"
        "  Fix: place it with device_put(x, NamedSharding(mesh, spec)), or read x.sharding."
    )


def test_thread_resources_has_the_current_mesh(mesh):
    assert pxla.thread_resources.env.physical_mesh.empty
    with mesh:
        assert pxla.thread_resources.env.physical_mesh is mesh


def test_an_array_on_one_device_is_its_own_buffer():
    x = phalanx.device_put(np.arange(3), phalanx.devices()[2])
    assert x.device_buffer.devices() == x.devices() and x.device_buffer.tolist() == [0, 1, 2]
