"""Programs over an `AbstractMesh`: traced and lowered for devices that nobody has to have."""

import pickle

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentError, ShardingError
from phalanx.sharding import AbstractDevice, AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

WIDE = AbstractMesh((64, 8), ("x", "y"))
TYPED = AbstractMesh((64, 8), ("x", "y"), (AxisType.Explicit,) * 2)


def shape(dims, spec, mesh=WIDE):
    return phalanx.ShapeDtypeStruct(dims, "float32", sharding=NamedSharding(mesh, spec))


@phalanx.jit
def product(a, b):
    return a @ b


@pytest.mark.parametrize("mesh", (WIDE, TYPED))
def test_a_program_is_lowered_for_all_devices_of_an_abstract_mesh(mesh):
    args = shape((128, 16), P("x"), mesh), shape((16, 8), P(None, "y"), mesh)
    lowered = product.trace(*args).lower(lowering_platforms=("tpu",))
    text = lowered.as_text()
    assert "mhlo.num_partitions = 512" in text
    assert 'sdy.mesh @mesh = <["x"=64, "y"=8]>' in text
    assert '%arg0: tensor<128x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}' in text
    assert lowered.out_info.shape == (128, 8)
    with pytest.raises(ShardingError) as error:
        lowered.compile()
    assert str(error.value) == (
        "compile: expected a program for devices that are attached, got one for 512 devices of platform 'tpu' that are "
        "not.\n  Fix: pass device_assignment=devices, lower it over a Mesh, or write it to a file with phalanx.export."
    )


@pytest.mark.parametrize("types", ((AxisType.Auto,), (AxisType.Explicit,)))
def test_a_program_over_an_abstract_mesh_compiles_for_given_devices(types):
    devices = tuple(phalanx.devices()[2:4])
    lowered = phalanx.jit(lambda x: 2 * x).lower(shape((4, 3), P("x"), AbstractMesh((2,), ("x",), types)))
    compiled = lowered.compile(device_assignment=devices)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    y = compiled(phalanx.device_put(x, NamedSharding(phalanx.sharding.Mesh(devices, "x", types), P("x"))))
    np.testing.assert_array_equal(y, 2 * x)
    assert y.sharding._device_assignment == devices and y.sharding.spec.axes == ("x",)
    alone = phalanx.jit(lambda x: x + 1).lower(1.0).compile(device_assignment=devices[:1])
    assert alone(2.0).devices() == {devices[0]}
    for program in (lowered, product.lower(y, np.ones((3, 4), np.float32))):
        with pytest.raises(ShardingError, match=r"device_assignment: expected 2 devices, as of the shardings, \w+ "):
            program.compile(device_assignment=phalanx.devices()[:1])


def test_the_platform_defaults_to_that_of_the_mesh_then_to_that_of_the_process():
    pick = phalanx.jit(lambda x: lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos))
    assert "stablehlo.sine" in pick.lower(shape((64,), P("x"))).as_text()
    tpus = AbstractMesh((64,), ("x",), abstract_device=AbstractDevice("TPU v5e", num_cores=1, platform="tpu"))
    assert "stablehlo.cosine" in pick.lower(shape((64,), P("x"), tpus)).as_text()
    here = pick.trace(jnp.ones(4))
    assert "stablehlo.cosine" in here.lower(lowering_platforms=("tpu",)).as_text()
    assert "stablehlo.sine" in here.lower().as_text()
    with pytest.raises(ShardingError, match="1 devices of platform 'tpu' that are not"):
        here.lower(lowering_platforms=("tpu",)).compile()
    with pytest.raises(ArgumentError) as error:
        here.lower(lowering_platforms=("tpu", "cpu"))
    assert str(error.value) == (
        "lower, argument lowering_platforms: expected one platform, got ('tpu', 'cpu').\n"
        "  Fix: use phalanx.export.export(f, platforms=...) for a multi-platform program."
    )


def test_an_abstract_mesh_is_taken_from_the_program_or_the_context():
    x = phalanx.ShapeDtypeStruct((128,), "float32")
    total = lambda x: lax.psum(x.sum(), "x")
    mapped = phalanx.shard_map(total, mesh=WIDE, in_specs=P("x"), out_specs=P())
    assert "mhlo.num_partitions = 512" in phalanx.jit(mapped).lower(x).as_text()
    held = phalanx.jit(lambda x: lax.with_sharding_constraint(x, NamedSharding(WIDE, P("y"))))
    assert "mhlo.num_partitions = 512" in held.lower(x).as_text()
    with phalanx.sharding.use_abstract_mesh(WIDE):
        text = phalanx.jit(phalanx.shard_map(total, in_specs=P("x"), out_specs=P())).lower(x).as_text()
    assert "mhlo.num_partitions = 512" in text


def test_large_constants_can_be_lowered_for_an_abstract_mesh():
    weights = jnp.asarray(np.ones((128, 128), np.float32))
    lowered = phalanx.jit(lambda x: x @ weights).lower(shape((64, 128), P("x")))
    assert "mhlo.num_partitions = 512" in lowered.as_text()


def test_types_of_results_have_shardings_over_an_abstract_mesh():
    args = shape((128, 16), P("x"), TYPED), shape((16, 8), P(None, "y"), TYPED)
    expected = NamedSharding(TYPED, P("x", "y"))
    assert product.trace(*args).out_info.sharding is expected
    assert product.eval_shape(*args).sharding is expected
    assert phalanx.eval_shape(lambda a, b: a @ b, *args).sharding is expected


def test_an_abstract_mesh_keeps_its_abstract_device():
    device = AbstractDevice("TPU v5e", num_cores=1, platform="tpu")
    mesh = AbstractMesh((4,), ("x",), abstract_device=device)
    assert mesh.abstract_device == device
    assert mesh is not AbstractMesh((4,), ("x",))
    assert mesh.update(axis_sizes=(8,)).abstract_device == device
    assert pickle.loads(pickle.dumps(mesh)) is mesh
    assert repr(mesh) == ("AbstractMesh('x': 4, axis_types=(Auto,), device_kind=TPU v5e, num_cores=1, platform=tpu)")
    assert WIDE.abstract_device is None
    assert WIDE.update_axis_types({"x": AxisType.Explicit}).explicit_axes == ("x",)
    found = phalanx.make_mesh((2, 4), ("rows", "columns"))
    assert found.abstract_mesh.abstract_device.platform == "cpu"


def test_a_program_for_a_platform_whose_partitioner_cannot_call_back_leaves_resharding_to_it():
    def swapped(x):
        x = jnp.sin(x)
        return lax.with_sharding_constraint(x, NamedSharding(WIDE, P("y", "x")))

    traced = phalanx.jit(swapped).trace(shape((512, 64), P("x", "y")))
    texts = {p: traced.lower(lowering_platforms=(p,)).as_text() for p in ("cpu", "cuda", "tpu")}
    assert {p: "custom_call" in text for p, text in texts.items()} == {"cpu": True, "cuda": True, "tpu": False}
    assert '[{"y"}, {"x"}]' in texts["tpu"]


def test_a_function_that_closes_over_a_reference_is_lowered():
    total = phalanx.new_ref(jnp.zeros(16))

    @phalanx.jit
    def add(x):
        total[...] += jnp.sum(x, axis=0)
        return x

    lowered = add.lower(shape((128, 16), P("x")))
    assert lowered.input_paths == ["(reference 0 in the closure)", "x"]
    assert "tensor<16xf32>" in lowered.as_text() and "tensor<128x16xf32>" in lowered.as_text()
