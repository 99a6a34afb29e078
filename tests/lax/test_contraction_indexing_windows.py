"""What the laws do not say of contractions, indexing, windows, transforms and linear algebra: dtypes, failures, errors."""

import ml_dtypes
import numpy as np
import pytest
from tests.lax.structured_checks import numbers

import phalanx
from phalanx import lax
from phalanx.core.error_classes import ArgumentError, DTypeError, RuleError, ShapeError
from phalanx.export import symbolic_shape

F32 = np.float32
ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))
POINTS = lax.ScatterDimensionNumbers((), (0,), (0,))


def text(fun, *args):
    return phalanx.jit(fun).lower(*args).as_text()


@pytest.mark.parametrize(
    "lhs, rhs, preferred, want",
    [
        ("bfloat16", "bfloat16", None, "bfloat16"),
        ("bfloat16", "bfloat16", "float32", "float32"),
        ("bfloat16", "float32", None, "float32"),
        ("float8_e4m3fn", "float8_e5m2", "float32", "float32"),
        ("int8", "int8", "int32", "int32"),
        ("bool", "bool", None, "bool"),
    ],
)
def test_dtypes_of_a_product(lhs, rhs, preferred, want):
    x, y = (np.ones((2, 3), getattr(ml_dtypes, d, d)) for d in (lhs, rhs))
    z = lax.dot_general(x, y, (((1,), (1,)), ((), ())), preferred_element_type=preferred)
    assert z.dtype == want
    assert np.asarray(z).astype(F32).max() == (1 if want == "bool" else 3)


def test_cotangents_of_a_product_have_the_dtypes_of_its_operands():
    x, y = np.ones((2, 3), ml_dtypes.bfloat16), np.ones((3, 4), F32)
    _, pull = phalanx.vjp(lambda a, b: lax.dot(a, b, preferred_element_type=F32), x, y)
    x_bar, y_bar = pull(np.ones((2, 4), F32))
    assert (x_bar.dtype, y_bar.dtype) == ("bfloat16", "float32")


@pytest.mark.parametrize(
    "precision, words",
    [
        ("highest", "precision = [HIGHEST, HIGHEST]"),
        (("high", lax.Precision.DEFAULT), "precision = [HIGH, DEFAULT]"),
        ("BF16_BF16_F32_X3", "algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, "
         "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3"),
        (lax.DotAlgorithmPreset.TF32_TF32_F32, "lhs_precision_type = tf32"),
        (lax.DotAlgorithm(F32, F32, F32, allow_imprecise_accumulation=True), "allow_imprecise_accumulation = true"),
    ],
)  # fmt: skip
def test_a_precision_reaches_the_program(precision, words):
    f = phalanx.jit(lambda x: lax.dot(x, x, precision=precision))
    # The CPU has only some of the algorithms.
    assert words in f.trace(np.ones((2, 2), F32)).lower(lowering_platforms=("cuda",)).as_text()


def test_the_default_precision_is_an_option():
    with phalanx.default_matmul_precision("float32"):
        assert "HIGHEST" in text(lambda x: lax.dot(x, x), np.ones((2, 2), F32))


def test_a_batched_decomposition_is_one_kernel_call():
    x = numbers(0, 5, 3, 3).astype(F32)
    stacked = phalanx.vmap(lambda m: lax.linalg.eigh(m)[1])
    program = text(stacked, x)
    assert program.count("lapack_ssyevd_ffi") == 1 and "while" not in program
    want = np.linalg.eigvalsh((x + np.swapaxes(x, 1, 2)) / 2)
    np.testing.assert_allclose(phalanx.jit(stacked)(x), want, atol=1e-5)


@pytest.mark.parametrize("fun", [lax.linalg.cholesky, lax.linalg.eigh, lax.linalg.eig, lax.linalg.svd])
def test_only_matrices_that_fail_become_nan(fun):
    x = np.stack([np.eye(3, dtype=F32), np.full((3, 3), np.nan, F32)])
    for y in map(np.asarray, phalanx.tree.leaves(fun(x))):
        assert np.isfinite(y[0]).all() and np.isnan(np.tril(y[1]) if y.ndim == 3 else y[1]).any()


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0), (0, 2, 2)])
def test_decompositions_of_empty_matrices(shape):
    x = np.zeros(shape, F32)
    for fun in (lax.linalg.qr, lax.linalg.svd, lax.linalg.lu):
        for got, want in zip(fun(x), phalanx.eval_shape(fun, x), strict=True):
            assert got.shape == want.shape
    u, s, vh = lax.linalg.svd(x)
    np.testing.assert_array_equal(u, np.broadcast_to(np.eye(shape[-2]), u.shape))


def test_unique_indices_need_no_position_counts():
    def gradient(x, u):
        return phalanx.vjp(lambda x, u: lax.scatter(x, np.array([[1]]), u, POINTS), x, u)[1](x)

    assert text(gradient, np.ones(3, F32), np.ones(1, F32)).count('"stablehlo.scatter"') == 1


def test_repeated_scatter_updates_keep_one_value_and_its_derivative():
    x, u = np.zeros(3, F32), np.array([5, 7], F32)
    y, y_dot = phalanx.jvp(lambda u: lax.scatter(x, np.array([[1], [1]]), u, POINTS), (u,), (np.array([1, 2], F32),))
    assert (np.asarray(y)[1], np.asarray(y_dot)[1]) in ((5.0, 1.0), (7.0, 2.0))


def test_generated_bits_fill_their_type():
    state, bits = lax.rng_bit_generator(np.arange(4, dtype=np.uint32), (1000,), np.uint8)
    assert (state.shape, state.dtype, bits.dtype) == ((4,), "uint32", "uint8")
    assert len(set(np.asarray(bits).tolist())) > 200


def test_mapped_generators_equal_single_generators():
    keys = np.arange(8, dtype=np.uint32).reshape(2, 4)
    _, bits = phalanx.vmap(lambda k: lax.rng_bit_generator(k, (3,)))(keys)
    for key, drawn in zip(keys, np.asarray(bits), strict=True):
        np.testing.assert_array_equal(lax.rng_bit_generator(key, (3,))[1], drawn)


def ones(*shape):
    return np.ones(shape, F32)


ERRORS = [
    (
        lambda: lax.dot_general(ones(2, 3), ones(4, 5), (((1,), (0,)), ((), ()))),
        ShapeError,
        "dot_general contracting dimensions 1 of lhs and 0 of rhs: expected equal sizes, got 3 of f32[2,3] and 4 of "
        "f32[4,5].\n  Fix: transpose or reshape one operand, or pass other dimension_numbers.",
    ),
    (
        lambda: lax.conv(ones(1, 3, 8), np.ones((4, 3, 3), np.int32), (1,), "SAME"),
        DTypeError,
        "convolution operands: expected equal dtypes, or two floating ones, got f32[1,3,8] and i32[4,3,3].\n"
        "  Fix: convert one operand with lax.convert_element_type.",
    ),
    (
        lambda: lax.dot(ones(2, 2), ones(2, 2), precision="exact"),
        ArgumentError,
        "precision: expected a Precision, a pair of them, a DotAlgorithm, a DotAlgorithmPreset, or the name of one, got "
        "'exact'.\n  Fix: pass precision='highest' or lax.Precision.HIGHEST.",
    ),
    (
        lambda: lax.dot(ones(2, 2), ones(2, 2), precision="TF32_TF32_F32"),
        ArgumentError,
        "precision: expected an algorithm of the CPU: BF16_BF16_F32, BF16_BF16_F32_X3, BF16_BF16_F32_X6, DEFAULT, "
        "F16_F16_F16, F32_F32_F32, F64_F64_F64, got TF32_TF32_F32.\n"
        "  Fix: leave precision out, or lower the program for a platform that has the algorithm.",
    ),
    (
        lambda: lax.conv(ones(1, 3, 8), ones(4, 2, 3), (1,), "SAME"),
        ShapeError,
        "convolution features: expected an input with 2 features in each of 1 groups, as the kernel has, got 3 features "
        "of f32[1,3,8], kernel f32[4,2,3].\n  Fix: check dimension_numbers and feature_group_count.",
    ),
    (
        lambda: lax.conv(ones(1, 3, 8), ones(4, 3, 3), (1,), "FULL"),
        ArgumentError,
        "padding: expected 'SAME', 'SAME_LOWER', 'VALID' or a sequence of pairs, got 'FULL'.\n"
        "  Fix: pass 'SAME' or 'VALID', or a pair (low, high) for each spatial dimension.",
    ),
    (
        lambda: lax.gather(ones(3, 2), ones(1, 1), ROWS, (1, 2)),
        DTypeError,
        "lax.gather indices: expected integers, got f32[1,1].\n  Fix: convert them with lax.convert_element_type.",
    ),
    (
        lambda: lax.gather(ones(3, 2), np.zeros((1, 1), np.int32), ROWS, (1, 3)),
        ShapeError,
        "lax.gather slice size of dimension 1: expected a size in [0, 2], got 3.\n  Fix: choose slice_sizes[1] <= 2.",
    ),
    (
        lambda: lax.gather(ones(3, 2), np.zeros((1, 1), np.int32), ROWS, (1, 2), mode="wrap"),
        ArgumentError,
        "gather or scatter mode: expected 'clip', 'fill', 'drop', 'promise_in_bounds' or a GatherScatterMode, got "
        "'wrap'.\n  Fix: pass mode='clip' to move slices into bounds, or mode='fill' to read a fill value.",
    ),
    (
        lambda: lax.scatter_add(ones(3), np.zeros((1, 1), np.int32), np.ones(1, np.int32), POINTS),
        DTypeError,
        "lax.scatter_add updates: expected the operand's dtype, that of f32[3], got i32[1].\n"
        "  Fix: convert them with lax.convert_element_type.",
    ),
    (
        lambda: phalanx.jvp(
            lambda u: lax.scatter_mul(ones(3), np.zeros((2, 1), np.int32), u, POINTS), (ones(2),), (ones(2),)
        ),
        RuleError,
        "derivative of lax.scatter_mul with respect to the updates: expected unique_indices=True, got indices that may "
        "repeat.\n  Fix: promise unique_indices=True if no index vector repeats.",
    ),
    (
        lambda: lax.dynamic_slice(ones(3, 4), (0,), (1, 1)),
        ShapeError,
        "lax.dynamic_slice start_indices: expected one for each of the 2 dimensions of the operand, got 1 starts.\n"
        "  Fix: pass 2 starts, 0 for dimensions that are not sliced.",
    ),
    (
        lambda: lax.reduce_window(ones(3, 4), 0.0, lax.add, (2,)),
        ShapeError,
        "lax.reduce_window window_dimensions: expected one entry for each of the 2 dimensions of f32[3,4], got (2,).\n"
        "  Fix: use 1 (no padding: (0, 0)) for dimensions without a window.",
    ),
    (
        lambda: lax.fft(ones(4).astype(np.complex64), "RFFT", (4,)),
        DTypeError,
        "lax.fft operand: expected f32 or f64 for RFFT, got c64[4].\n  Fix: convert the operand to f32 or f64 with lax.convert_element_type.",
    ),
    (
        lambda: lax.linalg.cholesky(ones(2, 3)),
        ShapeError,
        "lax.linalg.cholesky: expected a square matrix, or a stack of them, got f32[2,3].\n"
        "  Fix: transpose or reshape so that the last two dimensions are the matrix.",
    ),
    (
        lambda: lax.linalg.svd(np.ones((2, 3), np.int32)),
        DTypeError,
        "lax.linalg.svd: expected a matrix of float32, float64, complex64 or complex128, got i32[2,3].\n"
        "  Fix: convert it with lax.convert_element_type.",
    ),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors_have_a_text_and_a_fix(case):
    call, kind, message = ERRORS[case]
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message


LOCAL = {
    "cholesky": lax.linalg.cholesky,
    "eigh": lax.linalg.eigh,
    "eig": lax.linalg.eig,
    "qr": lax.linalg.qr,
    "lu": lax.linalg.lu,
    "svd": lax.linalg.svd,
    "triangular_solve": lambda x: lax.linalg.triangular_solve(x, x, left_side=True),
    "derivative of cholesky": phalanx.grad(lambda x: lax.reduce_sum(lax.linalg.cholesky(x), (0, 1, 2))),
    "windows": lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2)),
    "mapped slices": phalanx.vmap(lambda x: lax.dynamic_index_in_dim(x, lax.convert_element_type(x[0, 0], "int32"))),
}


@pytest.mark.parametrize("name", LOCAL)
def test_a_sharded_batch_of_matrices_needs_no_communication(name):
    mesh = phalanx.make_mesh((8,), ("batch",))
    split = phalanx.NamedSharding(mesh, phalanx.P("batch"))
    x = numbers(0, 16, 3, 3).astype(F32)
    x = x @ np.swapaxes(x, 1, 2) + 3 * np.eye(3, dtype=F32)
    program = phalanx.jit(LOCAL[name]).lower(phalanx.device_put(x, split)).compile()
    for collective in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert collective not in program.as_text()
    got = phalanx.tree.leaves(program(phalanx.device_put(x, split)))
    for y, want in zip(got, phalanx.tree.leaves(LOCAL[name](x)), strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


def test_shapes_may_be_symbolic():
    (b,) = symbolic_shape("b")

    def shape(fun, *shapes):
        avals = [phalanx.ShapeDtypeStruct(s, np.int32 if s[-1:] == (1,) or s == () else F32) for s in shapes]
        return [y.shape for y in phalanx.tree.leaves(phalanx.eval_shape(fun, *avals))]

    assert shape(lax.dot, (b, 3), (3, 4)) == [(b, 4)]
    assert shape(lambda x, w: lax.conv(x, w, (2, 1), "VALID"), (b, 3, 2 * b + 3, b), (4, 3, 3, 2)) == [
        (b, 4, b + 1, b - 1)
    ]
    assert shape(lambda x, i: lax.gather(x, i, ROWS, (1, b)), (4, b), (5, 1)) == [(5, b)]
    assert shape(lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, 1), (b, 5), ()) == [(b, 2)]
    assert shape(lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2)), (b, 6)) == [(b, 5)]
    assert shape(lax.linalg.svd, (b, 3, 4)) == [(b, 3, 3), (b, 3), (b, 4, 4)]
    assert shape(
        phalanx.grad(lambda x, w: lax.reduce_sum(lax.conv(x, w, (1,), "SAME"), (0, 1, 2))), (b, 3, b), (4, 3, 3)
    ) == [(b, 3, b)]


def test_narrow_index_dtypes_are_widened():
    rows = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    x, updates = numbers(0, 200, 2).astype(F32), numbers(1, 3, 2).astype(F32)
    want = x.copy()
    want[[100, 127]] += updates[[0, 2]]
    got = lax.scatter_add(x, np.array([[100], [-1], [127]], np.int8), updates, rows)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_gradients_of_windows_by_any_function_take_empty_arrays():
    function = lambda x: lax.reduce_window(x, np.float32(1), lambda a, b: a * b * 1, (2,), (1,), "VALID")
    for size in (0, 1):  # no window in either
        x = np.ones(size, np.float32)
        y, pull = phalanx.vjp(function, x)
        assert y.shape == (0,) and pull(y)[0].shape == x.shape


def test_gradients_of_dilated_maxima_take_empty_arrays():
    window = {"padding": [(0, 1), (2, 2)], "base_dilation": (2, 1), "window_dilation": (1, 2)}
    x = np.ones((4, 0), np.float32)
    y, pull = phalanx.vjp(lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 3), (1, 1), **window), x)
    assert y.shape == (7, 0) and pull(y)[0].shape == x.shape
