"""Exported programs over devices: shardings by the names of axes, for meshes that need not be there, called on others."""

import re

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import export, lax
from phalanx.export import deserialize
from phalanx.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec as P

F32 = np.dtype("float32")
X = np.arange(64, dtype="f4").reshape(8, 8) / 8


def shape(*dims, dtype="float32", sharding=None):
    return phalanx.ShapeDtypeStruct(dims, dtype, sharding=sharding)


def raises(error, text):
    return pytest.raises(error, match=f"^{re.escape(text)}$")


@pytest.fixture
def mesh():
    return auto_mesh((4, 2), ("data", "model"))


def test_shardings_are_stored_by_axis_name(mesh):
    rows, columns = NamedSharding(mesh, P("data", "model")), NamedSharding(mesh, P(None, "data"))
    product = phalanx.jit(lambda x, y: x @ y, in_shardings=(rows, columns), out_shardings=rows)
    x = np.arange(64, dtype="f4").reshape(8, 8)
    found = deserialize(export.export(product)(x, x).serialize(1))
    assert found.nr_devices == 8 and found.in_shardings_jax(mesh) == (rows, columns)
    assert str(found.out_shardings_hlo[0]) == "{devices=[4,2]<=[8]}" and found.out_shardings_jax(mesh) == (rows,)
    a, b = phalanx.device_put(x, rows), phalanx.device_put(x, columns)
    out = phalanx.jit(found.call)(a, b)
    np.testing.assert_allclose(out, x @ x)
    assert out.sharding.is_equivalent_to(rows, 2)
    derivative = found.vjp()
    assert derivative.in_shardings_jax(mesh) == (rows, columns, rows) and derivative.out_shardings_jax(mesh) == (
        rows,
        columns,
    )
    grad = phalanx.jit(phalanx.grad(lambda a, b: found.call(a, b).sum()))(a, b)
    np.testing.assert_allclose(grad, np.broadcast_to(x.sum(1), (8, 8)))


def test_calling_on_a_mesh_without_the_axes_of_the_program_is_an_error(mesh):
    rows = NamedSharding(mesh, P("data"))
    found = export.export(phalanx.jit(jnp.sin, in_shardings=rows))(shape(8))
    other = auto_mesh((2,), ("x",))
    text = (
        "expected arguments over 8 devices, as it was exported for, or over a mesh with the axes data (the sharding of "
        "argument x), model, got a program for 2 over x=2.\n"
        "  Fix: place the arguments with device_put(x, NamedSharding(mesh, spec)) on such a mesh."
    )
    with raises(ValueError, f"call of exported sin: {text}"):
        found.call(phalanx.device_put(np.zeros(8, F32), NamedSharding(other, P("x"))))
    with raises(ValueError, f"shardings of exported sin, argument mesh: {text}"):
        found.in_shardings_jax(other)


def reversed_mesh():
    return Mesh(np.array(phalanx.devices())[::-1].reshape(4, 2), ("data", "model"))


EXPLICIT = (AxisType.Explicit, AxisType.Explicit)
OTHERS = {
    "the same": lambda: auto_mesh((4, 2), ("data", "model")),
    "other names": lambda: auto_mesh((4, 2), ("a", "b")),
    "other sizes": lambda: auto_mesh((2, 4), ("data", "model")),
    "other rank": lambda: auto_mesh((8,), ("all",)),
    "other order of devices": reversed_mesh,
    "explicit": lambda: phalanx.make_mesh((4, 2), ("data", "model"), axis_types=EXPLICIT),
    "explicit of other names": lambda: phalanx.make_mesh(
        (2, 2, 2), ("x", "y", "z"), axis_types=(*EXPLICIT, EXPLICIT[0])
    ),
}


@pytest.mark.one_is_quick(group=lambda name, explicit: (explicit, name == "the same"))
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("explicit", [False, True], ids=["exported auto", "exported explicit"])
def test_an_artifact_is_called_on_another_mesh_of_as_many_devices(name, explicit):
    types = EXPLICIT if explicit else (AxisType.Auto,) * 2
    mesh = AbstractMesh((4, 2), ("data", "model"), types)
    rows, columns = NamedSharding(mesh, P("data", "model")), NamedSharding(mesh, P(None, "data"))

    def product(x, y):
        return jnp.matmul(x, y, out_sharding=rows.spec) if explicit else x @ y

    found = export.export(phalanx.jit(product, in_shardings=(rows, columns), out_shardings=rows))(X, X)
    found = deserialize(found.serialize(2))
    other = OTHERS[name]()
    places = found.in_shardings_jax(other)
    a, b = (phalanx.device_put(X, s) for s in places)
    out = phalanx.jit(found.call)(a, b)
    np.testing.assert_allclose(out, X @ X, rtol=1e-5)
    assert out.sharding.is_equivalent_to(found.out_shardings_jax(other)[0], 2)

    def slope(a, b):
        return phalanx.grad(lambda a, b: (found.call(a, b) ** 2).sum() / 2, argnums=1)(a, b)

    got = phalanx.jit(slope)(a, b)
    np.testing.assert_allclose(got, X.T @ X @ X, rtol=1e-4)
    assert got.sharding.is_equivalent_to(places[1], 2)
    twice = phalanx.grad(lambda b: slope(a, b).sum())(b)
    np.testing.assert_allclose(twice, X.T @ X @ np.ones((8, 8)), rtol=1e-4)


def test_results_over_explicit_axes_have_the_exported_sharding_in_their_type():
    mesh = phalanx.make_mesh((4, 2), ("data", "model"), axis_types=EXPLICIT)
    x = phalanx.device_put(X, NamedSharding(mesh, P("data", "model")))
    found = deserialize(export.export(phalanx.jit(jnp.sin))(x).serialize(1))
    assert [str(a) for a in (*found.in_avals, *found.out_avals)] == ["float32[8,8]"] * 2
    assert found.out_shardings_jax(mesh) == found.in_shardings_jax(mesh) == (x.sharding,)
    types = []
    phalanx.jit(lambda x: types.append(phalanx.typeof(found.call(x))))(x)
    assert str(types[0]) == "float32[8@data,8@model]"
    assert str(phalanx.typeof(phalanx.grad(lambda x: found.call(x).sum())(x))) == "float32[8@data,8@model]"


def test_a_program_for_one_device_accepts_arguments_sharded_over_explicit_axes():
    mesh = phalanx.make_mesh((8,), ("data",), axis_types=(AxisType.Explicit,))
    x = phalanx.device_put(X, NamedSharding(mesh, P("data")))
    found = export.export(phalanx.jit(lambda x: jnp.sin(x) @ x))(X)
    np.testing.assert_allclose(phalanx.jit(found.call)(x), np.sin(X) @ X, rtol=1e-4, atol=1e-4)
    grad = phalanx.jit(phalanx.grad(lambda x: found.call(x).sum()))(x)
    np.testing.assert_allclose(grad, phalanx.grad(lambda x: (jnp.sin(x) @ x).sum())(X), rtol=1e-4, atol=1e-4)
    assert grad.sharding.is_equivalent_to(x.sharding, 2)


def test_an_exported_sum_of_terms_is_unreduced_after_a_call():
    mesh = phalanx.make_mesh((2,), ("data",), axis_types=(AxisType.Explicit,))
    x, y = (phalanx.device_put(X, NamedSharding(mesh, spec)) for spec in (P(None, "data"), P("data", None)))
    spec = P(None, None, unreduced={"data"})
    found = export.export(phalanx.jit(lambda x, y: jnp.einsum("ab,bc->ac", x, y, out_sharding=spec)))(x, y)
    out = found.call(x, y)
    assert out.sharding == NamedSharding(mesh, spec)
    half = X.shape[1] // 2  # Each device has the term of its part of the contracted dimension.
    np.testing.assert_allclose(out.addressable_shards[1].data, X[:, half:] @ X[half:], rtol=1e-5)
    np.testing.assert_allclose(phalanx.reshard(out, P(None, None)), X @ X, rtol=1e-5)


def test_exporting_for_devices_that_are_not_attached():
    pod = AbstractMesh((16, 4), ("data", "model"))
    rows, columns = NamedSharding(pod, P("data")), NamedSharding(pod, P(None, "model"))

    def layer(x, w):
        return lax.with_sharding_constraint(jnp.tanh(x @ w), NamedSharding(pod, P("data", "model")))

    found = export.export(phalanx.jit(layer, in_shardings=(rows, columns)), platforms=["tpu"])(
        shape(64, 8), shape(8, 16)
    )
    found = deserialize(found.serialize(1))
    assert found.nr_devices == 64 and found.platforms == ("tpu",)
    text = found.mlir_module()
    assert 'sdy.mesh @mesh = <["data"=16, "model"=4]>' in text and "num_partitions = 64" in text
    assert [str(s) for s in found.vjp().out_shardings_hlo] == [
        "{devices=[16,1,4]<=[64] last_tile_dim_replicate}",
        "{devices=[1,4,16]<=[16,4]T(1,0) last_tile_dim_replicate}",
    ]


def test_exporting_a_shard_map_over_devices_that_are_not_attached():
    mesh = AbstractMesh((8,), ("i",))
    split = NamedSharding(mesh, P("i"))
    total = phalanx.jit(phalanx.shard_map(lambda x: lax.psum(x * x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
    found = deserialize(export.export(total)(shape(8, 8, sharding=split)).serialize(1))
    other = auto_mesh((8,), ("j",))
    x = phalanx.device_put(X, NamedSharding(other, P("j")))
    np.testing.assert_allclose(phalanx.jit(found.call)(x)[0], (X * X).sum(0), rtol=1e-5)
    np.testing.assert_allclose(phalanx.grad(lambda x: found.call(x).sum())(x), 2 * X, rtol=1e-5)


def test_mixing_attached_and_abstract_devices_is_an_error():
    there, here = AbstractMesh((8,), ("i",)), auto_mesh((8,), ("i",))
    both = tuple(NamedSharding(mesh, P("i")) for mesh in (there, here))
    with pytest.raises(
        ValueError, match=r"^export of <lambda>, argument y: expected the devices of the computation, placeholder 0, 1"
    ):
        export.export(phalanx.jit(lambda x, y: x + y, in_shardings=both))(X, X)
