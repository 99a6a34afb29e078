"""jax may be imported before phalanx, after it, or not at all; each works, and phalanx never imports it."""

import os
import subprocess
import sys

import pytest

PHALANX = """
import numpy as np, ml_dtypes
from phalanx.engine import buffers, client, custom_call_targets
from tests.engine.programs import *
from tests.engine.test_custom_call_targets import CHOLESKY
for dtype in ("f4", "i4", "bool", "c8", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
    value = np.arange(8).astype(dtype)
    buffer = put(value)
    np.testing.assert_array_equal(buffers.to_host(buffer), value)
    buffers.copy_to_host_async(buffer)
    buffers.block_until_ready([buffer])
(result,) = run(compiled(ADD_ONE), [put(np.zeros(8, "f4"))], [Aval((8,), "f4")])
assert buffers.to_host(result)[0] == 1
device = client.devices("cpu")[0]
buffers.from_dlpack(np.ones(3), Aval((3,), "f8"), Along([device]), device)
buffers.to_dlpack(result)
result.delete()
custom_call_targets.require("lapack_dpotrf_ffi", "cpu")
run(compiled(CHOLESKY), [put(np.eye(2))], [Aval((2, 2), "f8")])
for dtype in ("f4", "bool", "f2", "c8", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.int4):
    memory = buffers.aligned((8,), np.dtype(dtype))
    lent = buffers.lend_argument(memory, Aval((8,), dtype), device)
    assert (lent is None) == (dtype in (ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.int4))
"""

SHARDED = """
devices = client.devices("cpu")[:4]
whole = buffers.put_shards(Aval((8,), "f4"), Along(devices), [np.full(2, i, "f4") for i in range(4)], devices)
assert [buffers.to_host(piece)[0] for piece in buffers.shards(whole)] == [0, 1, 2, 3]
"""

JAX = """
import jax, jax.numpy as jnp
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", True)
assert float(jax.jit(lambda x: jnp.sin(x).sum())(jnp.zeros(8))) == 0
jnp.linalg.cholesky(jnp.eye(2))
mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
y = jax.device_put(jnp.arange(8.0), jax.NamedSharding(mesh, jax.P("x")))
assert [float(s.data[1]) for s in y.addressable_shards] == [1, 3, 5, 7]
assert (y + 1).sum() == 36
assert jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P()))(y)[0] == 12
"""

WHOLE = """
import importlib
from phalanx.engine import mlir
for name in ("chlo", "sdy", "stablehlo"):
    given = vars(importlib.import_module(f"jaxlib.mlir._mlir_libs._{name}"))
    held = vars(importlib.import_module(f"jaxlib.mlir.dialects.{name}"))
    assert not [n for n in given if n not in held and not n.startswith("_")]
"""


def runs(code):
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "PHALANX_NUM_CPU_DEVICES": "8"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_jaxlibs_modules_of_dialects_are_whole_for_others():
    runs(WHOLE)


def test_phalanx_does_not_import_jax():
    runs(PHALANX + "\nimport sys; assert 'jax' not in sys.modules, 'jax was imported'")


@pytest.mark.parametrize(
    "order",
    [(PHALANX, SHARDED, JAX), (JAX, PHALANX, SHARDED), (PHALANX, JAX, SHARDED), (JAX, PHALANX, JAX, SHARDED, PHALANX)],
    ids=["after", "before", "between", "in turns"],
)
def test_jax_works_beside_phalanx(order):
    pytest.importorskip("jax")
    runs("\n".join(order))
