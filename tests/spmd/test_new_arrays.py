"""Arrays that are created eagerly under `set_mesh` are replicated over the mesh, and committed to its devices."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, random
from phalanx.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding, make_mesh

ROW = np.arange(8, dtype=np.float32)
KEY = random.key(1)
MAKERS = {
    "ones": lambda: jnp.ones(8),
    "arange": lambda: jnp.arange(8),
    "array of NumPy values": lambda: jnp.array(ROW),
    "array of a list": lambda: jnp.asarray([1, 2]),
    "reference": lambda: phalanx.new_ref(ROW),
    "Python scalar": lambda: jnp.asarray(3),
    "typed scalar": lambda: jnp.float32(3),
    "NumPy operand": lambda: jnp.sin(ROW),
    "scalar operands": lambda: jnp.add(1, 2.0),
    "lax operation": lambda: lax.add(ROW, ROW),
    "key": lambda: random.key(0),
    "words of a key": lambda: random.PRNGKey(0),
    "split of an earlier key": lambda: random.split(KEY),
    "random numbers": lambda: random.normal(KEY, (3,)),
    "index": lambda: OLD[0],
    "gradient": lambda: phalanx.grad(lambda x: jnp.sum(x**2))(OLD),
    "loop": lambda: lax.fori_loop(0, 3, lambda i, x: x + i, OLD),
    "compiled function": lambda: phalanx.jit(lambda x: x * 2)(OLD),
}
OLD = jnp.ones(8)


@pytest.mark.parametrize("name", MAKERS)
def test_new_arrays_are_replicated_over_the_auto_mesh_of_set_mesh(name):
    mesh = make_mesh((2, 2), ("x", "y"), AxisType.Auto)
    with phalanx.set_mesh(mesh):
        made = MAKERS[name]()
        assert made.sharding.mesh is mesh and made.sharding.is_fully_replicated and made.committed
    assert len(MAKERS[name]().sharding.device_set) == 1


@pytest.mark.parametrize("kinds", [AxisType.Explicit, (AxisType.Explicit, AxisType.Auto)])
def test_new_arrays_are_committed_to_a_mesh_with_explicit_axes(kinds):
    mesh = make_mesh((2, 2), ("x", "y"), kinds)
    with phalanx.set_mesh(mesh):
        for name in ("ones", "array of NumPy values", "key", "split of an earlier key", "loop"):
            made = MAKERS[name]()
            assert made.sharding.mesh is mesh and made.sharding.is_fully_replicated and made.committed, name


def test_new_arrays_compute_with_sharded_ones():
    mesh = make_mesh((4,), ("x",), AxisType.Auto)
    with phalanx.set_mesh(mesh):
        x = phalanx.device_put(ROW, P("x"))
        assert (x + jnp.ones(8)).sharding == x.sharding
        assert (x + OLD).tolist() == (ROW + 1).tolist()
        assert random.key_data(random.key(7)).tolist() == [0, 7]


def test_a_transfer_without_a_target_ignores_the_mesh():
    with phalanx.set_mesh(make_mesh((2,), ("x",), AxisType.Auto)):
        made = phalanx.device_put(ROW)
        assert isinstance(made.sharding, SingleDeviceSharding) and not made.committed


def test_a_mesh_block_over_auto_axes_leaves_new_arrays_on_one_device():
    with make_mesh((2,), ("x",), AxisType.Auto):
        assert isinstance(jnp.ones(8).sharding, SingleDeviceSharding)
        assert not jnp.asarray(ROW).committed and not random.key(0).committed


def test_an_abstract_mesh_renames_the_axes_of_set_mesh():
    mesh = make_mesh((4,), ("x",), AxisType.Auto)
    named = Mesh(mesh.devices.reshape(2, 2), ("a", "b"), (AxisType.Explicit,) * 2)
    with phalanx.set_mesh(mesh), phalanx.sharding.use_abstract_mesh(named.abstract_mesh):
        assert jnp.ones(8).sharding is NamedSharding(named, P(None))
        assert random.key(0).sharding is NamedSharding(named, P())


def test_a_committed_array_elsewhere_does_not_combine_with_new_ones():
    far = phalanx.device_put(ROW, phalanx.devices()[5])
    with phalanx.set_mesh(make_mesh((2,), ("x",), AxisType.Auto)), pytest.raises(ValueError) as error:
        far + jnp.ones(8)
    assert str(error.value) == (
        "add, argument 1: expected an array on the devices of add, argument 0, cpu 5, got f32[8] on cpu 0, 1.\n"
        "  Fix: move both to the same devices with device_put, or pass in_shardings."
    )
