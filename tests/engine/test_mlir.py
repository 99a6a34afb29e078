import ml_dtypes
import numpy as np
import pytest
from tests.processes import run_python

from phalanx.engine import mlir

FLOAT0 = np.dtype([("float0", np.void, 0)])


@pytest.mark.parametrize(
    "dtype, text",
    [
        ("bool", "i1"), ("int8", "i8"), ("int64", "i64"), ("uint32", "ui32"), ("float16", "f16"),
        ("float64", "f64"), ("complex64", "complex<f32>"), (ml_dtypes.bfloat16, "bf16"), (ml_dtypes.int4, "i4"),
        (ml_dtypes.uint2, "ui2"), (ml_dtypes.float8_e4m3fn, "f8E4M3FN"), (ml_dtypes.float8_e8m0fnu, "f8E8M0FNU"),
        (ml_dtypes.float4_e2m1fn, "f4E2M1FN"), (FLOAT0, "i1"),
    ],
)  # fmt: skip
def test_every_dtype_has_its_element_type(dtype, text):
    with mlir.make_context():
        assert str(mlir.dtype_to_ir(np.dtype(dtype))) == text


def test_a_dtype_without_an_element_type_is_named():
    with mlir.make_context(), pytest.raises(TypeError, match=r"XLA has no element type for the dtype dtype\('O'\)"):
        mlir.dtype_to_ir(np.dtype(object))


@pytest.mark.parametrize(
    "value, text",
    [
        (np.array([True, False, True]), "dense<[true, false, true]> : tensor<3xi1>"),
        (np.ones((2, 3), bool), "dense<true> : tensor<2x3xi1>"),
        (np.full((4,), 3, "f4"), "dense<3.000000e+00> : tensor<4xf32>"),
        (np.broadcast_to(np.float32(3), (4, 5)), "dense<3.000000e+00> : tensor<4x5xf32>"),
        (np.array(7, "u1"), "dense<7> : tensor<ui8>"),
        (np.zeros((0, 3), "f4"), "dense<> : tensor<0x3xf32>"),
        (np.arange(6, dtype="i4").reshape(2, 3).T, "dense<[[0, 3], [1, 4], [2, 5]]> : tensor<3x2xi32>"),
        (np.arange(3).astype(ml_dtypes.bfloat16), "dense<[0.000000e+00, 1.000000e+00, 2.000000e+00]> : tensor<3xbf16>"),
        (np.arange(-2, 2).astype(ml_dtypes.int4), "dense<[-2, -1, 0, 1]> : tensor<4xi4>"),
        (np.array([1, 2j], "c8"), "dense<[(1.000000e+00,0.000000e+00), (0.000000e+00,2.000000e+00)]> : tensor<2xcomplex<f32>>"),
        (np.array([0.0, -0.0], "f4"), "dense<[0.000000e+00, -0.000000e+00]> : tensor<2xf32>"),
        (np.array([np.nan, np.nan], "f4"), "dense<0x7FC00000> : tensor<2xf32>"),
        (np.zeros(2, FLOAT0), "dense<false> : tensor<2xi1>"),
    ],
)  # fmt: skip
def test_constants_hold_the_elements(value, text):
    with mlir.make_context():
        assert str(mlir.dense_constant(value)) == text


def test_locations_name_the_users_line_and_the_operation():
    context = mlir.make_context()
    locations = mlir.Locations(context)
    text = str(locations(mlir.current_traceback(), "jit(f)/sin"))
    assert text.startswith('loc("jit(f)/sin"(callsite("test_locations_name_the_users_line_and_the_operation"("')
    assert "test_mlir.py" in text and "/phalanx/engine/" not in text
    assert str(locations(None, "sin")) == 'loc("sin")'
    assert str(locations(None)) == "loc(unknown)"


def test_user_frames_are_innermost_first():
    def inner():
        return mlir.user_frames(mlir.current_traceback())

    names = [frame.function_name.rpartition(".")[2] for frame in inner()[:2]]
    assert names == ["inner", "test_user_frames_are_innermost_first"]
    assert mlir.user_frames(None) == []


def test_contexts_are_independent():
    first, second = mlir.make_context(), mlir.make_context()
    with first:
        first_type = mlir.dtype_to_ir(np.dtype("f4"))
    assert first_type.context != second


def test_what_is_remembered_belongs_to_one_context():
    @mlir.cached_per_context
    def attribute(value):
        return mlir.ir.IntegerAttr.get(mlir.ir.IntegerType.get_signless(32), value)

    with mlir.make_context() as first:
        kept = attribute(3)
        assert attribute(3) is kept and kept.context is first
    with mlir.make_context() as second:
        assert attribute(3) is not kept and attribute(3).context is second
    mlir.clear_context_caches()
    with second:
        assert attribute(3).context is second


def test_no_dialect_is_imported_by_cpp_where_an_interrupt_would_end_the_process():
    text = run_python(
        """
        import sys, threading
        import phalanx, phalanx.numpy as jnp
        from phalanx import lax

        class Interrupt:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name.startswith("jaxlib.mlir.dialects.") and threading.current_thread() is threading.main_thread():
                    raise KeyboardInterrupt(name)

        sys.meta_path.insert(0, Interrupt)
        mesh = phalanx.sharding.Mesh(phalanx.devices(), ("a",))
        x = phalanx.device_put(jnp.arange(8.0), phalanx.NamedSharding(mesh, phalanx.P("a")))
        psum = phalanx.shard_map(lambda x: lax.psum(x, "a"), mesh=mesh, in_specs=phalanx.P("a"), out_specs=phalanx.P())
        print(phalanx.jit(lambda x: (x @ x, psum(x), lax.lgamma(x).sum()))(x))
        """
    )
    assert text.startswith("(Array(140., dtype=float32), Array([28.], dtype=float32), Array(")
