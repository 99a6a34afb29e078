"""Asking the compiler how a value lies on devices."""

from __future__ import annotations

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import RuleError
from phalanx.debug import inspect_array_sharding, visualize_array_sharding
from phalanx.sharding import NamedSharding, P, SingleDeviceSharding, make_mesh


@pytest.fixture
def mesh():
    return make_mesh((4, 2), ("x", "y"))


@pytest.fixture
def matrix(mesh):
    return phalanx.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P("x", "y")))


def test_inspect_array_sharding_reports_the_sharding_chosen_by_xla(mesh, matrix):
    seen = []

    @phalanx.jit
    def f(x):
        inspect_array_sharding(x.T, callback=seen.append)
        inspect_array_sharding(jnp.sin(x).sum(1), callback=seen.append)
        return x * 2

    f(matrix)
    f(matrix)  # the program is there already, and nobody is asked again
    assert sorted(seen, key=str) == [NamedSharding(mesh, P("x")), NamedSharding(mesh, P("y", "x"))]


def test_the_inspected_sharding_is_equivalent_to_that_of_the_result(mesh, matrix):
    seen = []
    f = phalanx.jit(
        lambda x: (inspect_array_sharding(y := jnp.tanh(x) @ jnp.ones((16, 8)), callback=seen.append), y)[1]
    )
    result = f(matrix)
    (found,) = seen
    assert found.is_equivalent_to(result.sharding, result.ndim)


def test_values_in_loops_and_derivatives_can_be_inspected(mesh, matrix):
    seen = []

    def body(carry, _):
        inspect_array_sharding(carry, callback=seen.append)
        return carry * 2, None

    phalanx.jit(lambda x: lax.scan(body, x, None, length=3)[0])(matrix)
    assert seen == [NamedSharding(mesh, P("x", "y"))]
    phalanx.jit(phalanx.grad(lambda x: body(x, None)[0].sum()))(matrix)
    assert len(seen) == 2
    phalanx.jit(phalanx.vmap(lambda x: body(x, None)[0]))(matrix)
    assert len(seen) == 3


def test_inspecting_a_concrete_array_calls_back_immediately(mesh, matrix):
    seen = []
    inspect_array_sharding(matrix, callback=seen.append)
    inspect_array_sharding(1.0, callback=seen.append)
    assert seen == [NamedSharding(mesh, P("x", "y")), SingleDeviceSharding(phalanx.devices()[0])]
    phalanx.jit(lambda x: inspect_array_sharding(x, callback=seen.append))(jnp.ones(3))
    assert seen[2:] == [SingleDeviceSharding(phalanx.devices()[0])]


def test_an_exception_of_the_callback_reaches_the_caller(matrix):
    def fail(sharding):
        raise KeyError("from the callback")

    with pytest.raises(KeyError, match="from the callback"):
        phalanx.jit(lambda x: inspect_array_sharding(x, callback=fail))(matrix)


@pytest.mark.parametrize("check_vma", [True, False])
def test_a_shard_inside_shard_map_is_complete_on_its_device(mesh, matrix, check_vma, capsys):
    seen = []

    def f(x):
        inspect_array_sharding(x, callback=seen.append)
        visualize_array_sharding(x, plain=True)
        return x

    f = phalanx.shard_map(f, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=check_vma)
    phalanx.jit(f)(matrix)
    assert seen == [NamedSharding(mesh, P())]
    assert "CPU 0,1,2,3,4,5,6,7" in capsys.readouterr().out


def test_inspecting_a_shard_over_some_axes_is_an_error(mesh, matrix):
    f = lambda x: inspect_array_sharding(x, callback=print)
    f = phalanx.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P(), axis_names={"x"})
    with pytest.raises(RuleError) as error:
        phalanx.jit(f)(phalanx.device_put(matrix, NamedSharding(mesh, P("x"))))
    assert str(error.value) == (
        "inspect_array_sharding inside a shard_map over some of the axes: expected a value that the compiler partitions over all axes of the mesh, "
        "or over none, got the shard of one device along x, f32[2,16]{V:x}.\n"
        "  Fix: inspect the arguments and results of the shard_map."
    )


@pytest.fixture
def disk_cache(tmp_path):
    phalanx.config.update("compilation_cache_dir", str(tmp_path))
    phalanx.config.update("persistent_cache_min_compile_time_secs", 0.0)
    yield
    phalanx.config.update("compilation_cache_dir", None)
    phalanx.config.update("persistent_cache_min_compile_time_secs", 1.0)


def test_a_program_with_an_inspection_is_not_cached_on_disk(disk_cache, matrix):
    seen = []
    for _ in range(2):
        phalanx.jit(lambda x: inspect_array_sharding(x * 3, callback=seen.append))(matrix)
    assert len(seen) == 2


def test_a_drawing_inside_jit_shows_the_sharding_chosen_by_xla(matrix, capsys):
    visualize_array_sharding(matrix.T, plain=True)
    outside = capsys.readouterr().out
    phalanx.jit(lambda x: visualize_array_sharding(x.T, plain=True))(matrix)
    assert capsys.readouterr().out == outside
    assert "CPU 7" in outside
