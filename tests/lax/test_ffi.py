"""Kernels that users bring: the call as an operation, under `vmap` and over a mesh, and what is refused."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from phalanx.experimental.layout import Layout
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, RuleError, ShapeError
from phalanx.testing import collectives

LOWER = np.uint8(ord("L"))
MATRIX, INFO = phalanx.ShapeDtypeStruct((3, 3), np.float32), phalanx.ShapeDtypeStruct((), np.int32)


def cholesky(x, **options):
    """LAPACK's, through its kernel; the upper half keeps what was there."""
    options = {"input_layouts": [(1, 0)], "output_layouts": [(1, 0), ()], **options}
    root, info = phalanx.ffi.ffi_call("lapack_spotrf_ffi", (MATRIX, INFO), **options)(x, uplo=LOWER)
    return jnp.tril(root), info


def positive(*shape):
    x = np.random.default_rng(0).normal(size=(*shape, 3, 3)).astype(np.float32)
    return x @ np.swapaxes(x, -1, -2) + 3 * np.eye(3, dtype=np.float32)


def test_a_kernel_is_an_operation():
    x = positive()
    for f in (cholesky, phalanx.jit(cholesky)):
        root, info = f(x)
        np.testing.assert_allclose(np.asarray(root), np.linalg.cholesky(x), rtol=1e-5)
        assert info.dtype == np.int32 and int(info) == 0


def test_the_custom_call_has_the_given_attributes():
    f = phalanx.ffi.ffi_call(
        "my.kernel", [MATRIX], has_side_effect=True, output_layouts=[Layout((1, 0))], input_output_aliases={1: 0}
    )

    def program(x, y):
        return f(x, y, text="t", flag=True, n=np.int32(2), many=[1, 2.0], table={"a": np.arange(2)})

    traced = phalanx.jit(program).trace(INFO, MATRIX)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    for part in (
        "custom_call @my.kernel(%arg0, %arg1)",
        "api_version = 4",
        "flag = true",
        "many = [1, 2.000000e+00]",
        "n = 2 : i32",
        'text = "t"',
        "table = {a = dense<[0, 1]> : tensor<2xi64>}",
        "has_side_effect = true",
        "operand_index = 1",
        "operand_layouts = [dense<> : tensor<0xindex>, dense<[1, 0]> : tensor<2xindex>]",
        "result_layouts = [dense<[0, 1]> : tensor<2xindex>]",
    ):
        assert part in text, part
    assert isinstance(phalanx.eval_shape(program, INFO, MATRIX), list)


@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled", "broadcast_all", "expand_dims"])
def test_vmap_follows_the_vmap_method(method):
    x = positive(2, 4)
    f = lambda x: cholesky(x, vmap_method=method)
    root, info = phalanx.jit(phalanx.vmap(phalanx.vmap(f)))(x)
    np.testing.assert_allclose(np.asarray(root), np.linalg.cholesky(x), rtol=1e-5)
    assert info.shape == (2, 4)
    text = phalanx.jit(phalanx.vmap(f)).lower(x[0]).as_text()
    assert text.count("@lapack_spotrf_ffi") == (4 if method == "sequential_unrolled" else 1)
    assert ("stablehlo.while" in text) == (method == "sequential")


def test_unmapped_operands_are_broadcast_or_of_size_one():
    shape = phalanx.ShapeDtypeStruct((3,), np.float32)

    def text(method):
        f = phalanx.ffi.ffi_call("my.kernel", shape, vmap_method=method)
        mapped = phalanx.vmap(f, in_axes=(0, None))
        return phalanx.jit(mapped).trace(jnp.ones((5, 3)), jnp.ones(2)).lower(lowering_platforms=("cuda",)).as_text()

    assert "(tensor<5x3xf32>, tensor<5x2xf32>) -> tensor<5x3xf32>" in text("broadcast_all")
    assert "(tensor<5x3xf32>, tensor<1x2xf32>) -> tensor<5x3xf32>" in text("expand_dims")


def test_nested_vmaps_over_different_operands():
    """The result was taken to have the batch dimensions of one operand."""
    f = phalanx.ffi.ffi_call("my.kernel", phalanx.ShapeDtypeStruct((2,), np.float32), vmap_method="expand_dims")
    both = phalanx.vmap(phalanx.vmap(f, in_axes=(0, None)), in_axes=(None, 0))
    traced = phalanx.jit(both).trace(jnp.ones((3, 2)), jnp.ones((4, 2)))
    assert traced.out_info.shape == (4, 3, 2)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "(tensor<1x3x2xf32>, tensor<4x1x2xf32>) -> tensor<4x3x2xf32>" in text


def test_a_sharded_batch_of_calls_needs_no_communication():
    mesh = auto_mesh((8,), ("x",))
    x = phalanx.device_put(positive(16), phalanx.NamedSharding(mesh, phalanx.P("x")))
    f = phalanx.jit(phalanx.vmap(lambda x: cholesky(x, vmap_method="broadcast_all")))
    root, _ = f(x)
    np.testing.assert_allclose(np.asarray(root), np.linalg.cholesky(np.asarray(x)), rtol=1e-5)
    assert not collectives(f, x) and root.sharding.spec == phalanx.P("x")


SOURCE = """
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
static ffi::Error Scale(float by, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = by * x.typed_data()[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Handler, Scale,
    ffi::Ffi::Bind().Attr<float>("by").Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
"""


@pytest.mark.slow
def test_a_compiled_kernel_is_registered_and_called(tmp_path):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    (tmp_path / "kernel.cc").write_text(SOURCE)
    command = [compiler, "-std=c++17", "-O0", "-shared", "-fPIC", f"-I{phalanx.ffi.include_dir()}"]
    subprocess.run([*command, "-o", tmp_path / "kernel.so", tmp_path / "kernel.cc"], check=True, timeout=300)
    handler = ctypes.cdll.LoadLibrary(str(tmp_path / "kernel.so")).Handler
    phalanx.ffi.register_ffi_target("phalanx_test_scale", phalanx.ffi.pycapsule(handler))
    x = jnp.arange(6.0).reshape(2, 3)
    scale = phalanx.ffi.ffi_call("phalanx_test_scale", x, vmap_method="broadcast_all")
    assert phalanx.jit(lambda x: scale(x, by=np.float32(3)))(x).tolist() == [[0, 3, 6], [9, 12, 15]]


def message(error, call):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_invalid_calls_and_registrations_raise():
    x = jnp.asarray(positive())
    assert message(RuleError, lambda: phalanx.vmap(cholesky)(x[None])) == (
        "vmap of ffi_call 'lapack_spotrf_ffi': expected a vmap_method, got None.\n"
        '  Fix: pass vmap_method="sequential", or "expand_dims"/"broadcast_all" if the kernel takes batches.'
    )
    assert "wrap the call in a custom_jvp" in message(
        RuleError, lambda: phalanx.grad(lambda x: cholesky(x)[0].sum())(x)
    )
    assert message(ArgumentError, lambda: cholesky(x, vmap_method="some")).startswith(
        "ffi_call 'lapack_spotrf_ffi', argument vmap_method: expected one of None, 'sequential', 'sequential_unrolled',"
    )
    assert "got 'legacy_vectorized'" in message(ArgumentError, lambda: cholesky(x, vmap_method="legacy_vectorized"))
    assert message(ArgumentError, lambda: cholesky(x, input_layouts=[])) == (
        "ffi_call 'lapack_spotrf_ffi', argument input_layouts: expected 1 layouts, got 0.\n"
        "  Fix: pass one layout for each array; None for row-major."
    )
    assert message(ShapeError, lambda: cholesky(x, input_layouts=[(0, 0)])) == (
        "ffi_call 'lapack_spotrf_ffi', argument input_layouts[0]: expected the 2 dimensions of f32[3,3] in some "
        "order, got (0, 0).\n  Fix: list each dimension once, the major one first."
    )
    assert message(ArgumentError, lambda: cholesky(x, input_output_aliases={0: 1})) == (
        "ffi_call 'lapack_spotrf_ffi', argument input_output_aliases: expected the positions of an argument and of a "
        "result of the same type, got 0: 1.\n  Fix: pass the positions of an argument and a result of equal shape and dtype."
    )
    with pytest.raises(ArgumentTypeError, match="argument fn: expected a capsule with the address of a handler"):
        phalanx.ffi.register_ffi_target("name", print)
    with pytest.raises(ArgumentTypeError, match="attribute by: expected a number, a string, a dtype, a NumPy array"):
        phalanx.ffi.ffi_call("some", INFO)(x, by=object())
    with pytest.raises(
        phalanx.ffi.TargetError, match="the kernel nobody_knows: expected one of the .* kernels for cpu"
    ):
        phalanx.ffi.ffi_call("nobody_knows", INFO)(x)
