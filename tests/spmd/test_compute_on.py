"""`compute_on`: the metadata of calls, the memories of results, derivatives, refusals."""

import pytest
from phalanx.experimental.compute_on import compute_on
from phalanx.memory import Space

import phalanx
import phalanx.numpy as jnp


def test_the_call_names_the_processor_and_its_derivative_too():
    f = compute_on(compute_type="device_host", out_memory_spaces=Space.Device)(lambda x: x * x)
    g = phalanx.jit(phalanx.grad(lambda x: f(x) * 3))
    assert g.lower(2.0).as_text("hlo").count("call(") == g.lower(2.0).as_text("hlo").count('_xla_compute_type="host"')
    assert float(g(2.0)) == 12.0
    assert phalanx.vmap(f)(jnp.arange(3.0)).tolist() == [0.0, 1.0, 4.0]


def test_results_are_placed_in_memories():
    @compute_on(compute_type="device_host", out_memory_spaces=(Space.Host, None))
    def f(x, *, y):
        return x * y, (x, {"sum": x + y})

    a, (b, c) = phalanx.jit(lambda x: f(x, y=2.0))(jnp.arange(3.0))
    assert a.sharding.memory_kind == "pinned_host"
    assert b.sharding.memory_kind != "pinned_host"
    assert (a.tolist(), c["sum"].tolist()) == ([0.0, 2.0, 4.0], [2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    "compute_type, options, expected",
    [
        ("gpu_stream:2", None, '_xla_stream_annotation="2",inlineable="false"'),
        ("device", None, '_xla_compute_type="device",inlineable="false"'),
        ("tpu_sparsecore", {"a": 1}, '_xla_compute_type="sparse"}, backend_config={"a": 1}'),
    ],
)
def test_other_processors(compute_type, options, expected):
    f = compute_on(jnp.sin, compute_type=compute_type, compiler_options=options)
    assert expected in phalanx.jit(f).lower(1.0).as_text("hlo")


def test_refusals():
    with pytest.raises(ValueError) as error:
        compute_on(jnp.sin, compute_type="host")
    assert str(error.value) == (
        "compute_on, argument compute_type: expected 'device_host', 'device', 'tpu_sparsecore' or 'gpu_stream:N', got "
        "'host'.\n  Fix: pass 'device_host' to compute on the host of the device."
    )
    with pytest.raises(TypeError, match="compute_on, argument f"):
        compute_on(3, compute_type="device")
