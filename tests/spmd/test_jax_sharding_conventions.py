"""Conventions of JAX about shardings that programs written for it rely on."""

from __future__ import annotations

import numpy as np
import pytest
from phalanx.experimental.pjit import pjit
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentError, ShardingError
from phalanx.sharding import Mesh, NamedSharding, P, make_mesh, use_mesh

X = np.arange(16, dtype=np.float32).reshape(8, 2)


def test_one_name_may_have_several_letters():
    assert make_mesh((2,), "data").axis_names == ("data",)


def test_none_of_the_former_pjit_means_replicated_over_the_mesh_in_context():
    double = pjit(lambda x: 2 * x, in_shardings=P("x"), out_shardings=None)
    with auto_mesh((4,), ("x",)):
        assert double(X).is_fully_replicated
        assert not phalanx.jit(lambda x: 2 * x, in_shardings=P("x"), out_shardings=None)(X).is_fully_replicated


def test_a_result_has_the_sharding_of_an_argument_that_is_placed_alike():
    for mesh in (auto_mesh((4,), ("x",)), Mesh(phalanx.devices()[:1], "x")):
        sharding = NamedSharding(mesh, P("x", None))
        assert phalanx.jit(lambda x: 2 * x)(phalanx.device_put(X, sharding)).sharding is sharding


def test_jit_on_a_device_takes_arrays_of_other_devices():
    x = phalanx.device_put(X, NamedSharding(auto_mesh((4,), ("x",)), P("x")))
    y = phalanx.jit(lambda x: 2 * x, device=phalanx.devices()[1])(x)
    assert y.devices() == {phalanx.devices()[1]}
    np.testing.assert_array_equal(y, 2 * X)


def test_a_shape_struct_takes_a_spec_over_the_mesh_in_context():
    struct = phalanx.ShapeDtypeStruct((8, 2), np.float32, sharding=P("x"))
    assert repr(struct) == "ShapeDtypeStruct(shape=(8, 2), dtype=float32, sharding=P('x',))"
    assert struct.update(shape=(4, 2)) == phalanx.ShapeDtypeStruct((4, 2), np.float32, sharding=P("x"))
    with use_mesh(make_mesh((4,), "x")) as mesh:
        assert struct.sharding is NamedSharding(mesh, P("x")) and struct.aval.str_short() == "f32[8@x,2]"
        compiled = phalanx.jit(lambda x: 2 * x).lower(struct).compile()
        np.testing.assert_array_equal(compiled(phalanx.device_put(X, P("x"))), 2 * X)
    with pytest.raises(ShardingError, match="ShapeDtypeStruct, sharding: expected a sharding, or a current mesh"):
        struct.sharding


def test_an_eager_constraint_over_an_abstract_mesh_is_over_the_mesh_of_the_array():
    mesh = auto_mesh((2, 2), ("x", "y"))
    wanted = NamedSharding(mesh.abstract_mesh, P("x"))
    y = lax.with_sharding_constraint(phalanx.device_put(X, NamedSharding(mesh, P("y"))), wanted)
    assert y.sharding is NamedSharding(mesh, P("x"))
    with pytest.raises(ShardingError, match="expected a sharding over a mesh of devices, or over the abstract mesh of"):
        lax.with_sharding_constraint(jnp.asarray(X), wanted)


def test_a_shard_map_without_results_needs_no_out_specs():
    cell = phalanx.new_ref(jnp.zeros(4))

    def add_position(cell):
        cell[...] += lax.axis_index("x").astype(np.float32)

    mesh = make_mesh((2,), "x")
    phalanx.jit(phalanx.shard_map(add_position, mesh=mesh, in_specs=P("x"), out_specs=None))(cell)
    assert cell[...].tolist() == [0, 0, 1, 1]
    with pytest.raises(ArgumentError, match="out_specs: expected a PartitionSpec for each result, since the function"):
        phalanx.shard_map(lambda x: x, mesh=mesh, in_specs=P("x"), out_specs=None)(X)
