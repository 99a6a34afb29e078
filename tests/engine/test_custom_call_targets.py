import subprocess
import sys

import numpy as np
import pytest
from tests.engine.programs import Aval, compiled, put, run

from phalanx.engine import buffers, custom_call_targets

CHOLESKY = """
module @cholesky {
  func.func public @main(%x: tensor<2x2xf64>) -> tensor<2x2xf64> {
    %y:2 = stablehlo.custom_call @lapack_dpotrf_ffi(%x) {
      api_version = 4 : i32, backend_config = {uplo = 76 : ui8},
      operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
      result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]
    } : (tensor<2x2xf64>) -> (tensor<2x2xf64>, tensor<i32>)
    return %y#0 : tensor<2x2xf64>
  }
}
"""


def test_lapack_can_be_called():
    custom_call_targets.require("lapack_dpotrf_ffi", "cpu")
    custom_call_targets.require("lapack_dpotrf_ffi", "cpu")
    matrix = np.array([[4.0, 2.0], [2.0, 5.0]])
    (factor,) = run(compiled(CHOLESKY), [put(matrix)], [Aval((2, 2), "f8")])
    np.testing.assert_allclose(np.tril(buffers.to_host(factor)), np.linalg.cholesky(matrix))


AT_ANY_DEPTH = """
import sys
import phalanx, phalanx.numpy as jnp

def deep(levels, function):
    return function() if levels == 0 else deep(levels - 1, function)

x, found = jnp.eye(2) + 1, 0
for levels in range(sys.getrecursionlimit() - 15, 0, -5):
    phalanx.clear_caches()
    try:
        deep(levels, lambda: jnp.linalg.svd(x))
    except RecursionError:
        found += 1
    else:
        break
print(found > 5, jnp.linalg.svd(x)[1].round().tolist())
"""


def test_kernels_are_loaded_at_any_depth_of_recursion():
    done = subprocess.run([sys.executable, "-c", AT_ANY_DEPTH], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True [3.0, 1.0]\n"), done.stderr[-2000:]


def test_the_kernels_for_linear_algebra_are_known():
    known = custom_call_targets.known_targets("cpu")
    assert {f"lapack_{p}{k}_ffi" for p in "sdcz" for k in ("potrf", "getrf", "geqrf", "gesdd", "geev")} <= set(known)


def test_a_kernel_that_is_not_there_is_named():
    count = len(custom_call_targets.known_targets("cpu"))
    with pytest.raises(custom_call_targets.TargetError) as error:
        custom_call_targets.require("lapack_miracle", "cpu")
    assert str(error.value) == (
        f"the kernel lapack_miracle: expected one of the {count} kernels for cpu that are installed, "
        "got no kernel of that name.\n  Fix: use another algorithm, or a newer jaxlib."
    )
