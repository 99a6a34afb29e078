"""Functions that are traced and not run accept any object with a shape and a dtype; arrays are made on specs and devices."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx.core import ShapedArray
from phalanx.core.error_classes import TreeError
from phalanx.sharding import NamedSharding, P

DUCK = SimpleNamespace(shape=(3,), dtype=np.dtype("float32"))
STRUCT = phalanx.ShapeDtypeStruct((3,), "float32")


@pytest.mark.parametrize("like", [DUCK, ShapedArray((3,), np.dtype("float32"))])
def test_objects_with_a_shape_and_a_dtype_are_types(like):
    double = lambda x: 2 * x
    assert phalanx.eval_shape(double, like) == STRUCT
    assert str(phalanx.make_jaxpr(double)(like)) == str(phalanx.make_jaxpr(double)(STRUCT))
    assert phalanx.jit(double).lower(like).as_text() == phalanx.jit(double).lower(STRUCT).as_text()
    assert phalanx.jit(double).eval_shape(like) == STRUCT
    np.testing.assert_array_equal(phalanx.linear_transpose(double, like)(np.ones(3, np.float32))[0], [2, 2, 2])


def test_arrays_are_made_on_specs_and_devices():
    mesh, data = auto_mesh((2,), ("x",)), np.arange(4.0, dtype=np.float32)
    with phalanx.set_mesh(mesh):
        made = phalanx.make_array_from_process_local_data(P("x"), data)
        called = phalanx.make_array_from_callback((4,), P("x"), lambda index: data[index])
    assert made.sharding == called.sharding == NamedSharding(mesh, P("x"))
    np.testing.assert_array_equal(made, data)
    single = phalanx.make_array_from_process_local_data(phalanx.devices()[1], {"a": data})
    assert single["a"].devices() == {phalanx.devices()[1]}


def test_shard_map_over_an_abstract_mesh_runs_on_the_mesh_of_its_arguments():
    mesh = auto_mesh((2, 2), ("x", "y"))
    x = phalanx.device_put(np.arange(16.0, dtype=np.float32).reshape(8, 2), NamedSharding(mesh, P("x", "y")))
    f = lambda mesh: phalanx.shard_map(lambda x: 2 * x, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x)
    got = f(mesh.abstract_mesh)
    np.testing.assert_array_equal(got, f(mesh))
    assert got.sharding == NamedSharding(mesh, P("x"))


def test_zeros_of_tangents_of_integers():
    zero = jnp.zeros((2,), phalanx.float0)
    assert zero.dtype == phalanx.float0 and zero.shape == (2,)
    tangents = phalanx.jvp(lambda x, n: (x * 2, n), (1.0, np.arange(2)), (1.0, zero))[1]
    assert float(tangents[0]) == 2.0 and tangents[1].dtype == phalanx.float0


def test_a_jvp_rule_must_return_the_structure_of_the_function_inside_loops_too():
    @phalanx.custom_jvp
    def f(x):
        return x

    @f.defjvp
    def f_jvp(primals, tangents):
        return (primals * 2, tangents * 2)

    loop = lambda x: phalanx.lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]
    with pytest.raises(
        TreeError, match="jvp rule f_jvp .* of f, result: expected a leaf, as in the result of the function"
    ):
        phalanx.jvp(loop, (1.0,), (1.0,))
