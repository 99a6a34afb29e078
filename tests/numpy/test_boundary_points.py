"""Values and derivatives at boundary points: ties, zeros, integers, empty arrays, and numbers out of range."""

import io

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.errors import ShapeError
from phalanx.scipy import special


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("bins", [[3.0, 2.0, 2.0, 0.0], [0.0, 1.0, 1.0, 4.0], [2.0, 2.0], [1.0]])
def test_digitize_puts_values_on_an_edge_where_numpy_does(bins, right):
    x = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0], np.float32)
    np.testing.assert_array_equal(jnp.digitize(x, np.array(bins), right=right), np.digitize(x, bins, right=right))


@pytest.mark.parametrize("size", range(7))
def test_unique_counts_each_group_whatever_the_size(size):
    x = np.array([3, 1, 2, 2, 5, 3, 3])
    values, counts = np.unique(x, return_counts=True)
    found = phalanx.jit(lambda x: jnp.unique(x, size=size, return_counts=True))(x)
    kept = min(size, len(values))
    np.testing.assert_array_equal(found[0][:kept], values[:kept])
    np.testing.assert_array_equal(found[1], [*counts[:kept], *[0] * (size - kept)])


@pytest.mark.parametrize("x", [-1.0, -2.5, 0.0, -0.0, 3.0, np.inf, -np.inf, np.nan])
def test_modf_has_signed_zeros_and_slopes_one_and_zero(x):
    for got, want in zip(jnp.modf(x), np.modf(np.float32(x)), strict=True):
        np.testing.assert_array_equal(got, want)
        assert np.signbit(got) == np.signbit(want)
    if np.isfinite(x):
        assert [float(d) for d in phalanx.jacfwd(jnp.modf)(x)] == [1, 0]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_frexp_is_exact_and_its_mantissa_has_a_slope(dtype):
    limits = jnp.finfo(dtype)
    for x in (0.0, -6.0, 3.0, float(limits.max), float(limits.tiny), 1.5 * float(limits.tiny), np.inf):
        mantissa, exponent = jnp.frexp(jnp.asarray(x, dtype))
        wanted = np.frexp(np.float64(jnp.asarray(x, dtype)))
        assert (float(mantissa), int(exponent)) == tuple(map(float, wanted))
    assert phalanx.grad(lambda x: jnp.frexp(x)[0])(jnp.asarray(6.0, dtype)) == 1 / 8
    assert phalanx.grad(jnp.spacing)(jnp.asarray(3.0, dtype)) == 0


def test_elements_left_out_of_a_variance_do_not_reach_its_derivative():
    x = jnp.array([1.0, np.nan, 3.0])
    np.testing.assert_allclose(phalanx.grad(jnp.nanstd)(x), [-0.5, 0, 0.5])
    np.testing.assert_allclose(phalanx.grad(lambda x: jnp.var(x, where=jnp.isfinite(x)))(x), [-1, 0, 1])


@pytest.mark.parametrize(
    ("function", "y", "slope"), [(special.xlogy, 3.0, np.log(3.0)), (special.xlog1py, 0.5, np.log1p(0.5))]
)
def test_products_with_a_logarithm_have_their_derivatives_where_the_factor_is_zero(function, y, slope):
    for derivative in (phalanx.grad, phalanx.jacfwd):
        np.testing.assert_allclose(derivative(function)(0.0, y), slope, rtol=1e-6)
        assert derivative(function, 1)(0.0, y) == 0
    assert phalanx.grad(special.xlogy, 1)(0.0, 0.0) == 0


def test_entropy_is_infinitely_steep_at_zero():
    assert phalanx.grad(special.entr)(0.0) == phalanx.jacfwd(special.entr)(0.0) == np.inf
    np.testing.assert_allclose(phalanx.grad(special.entr)(2.0), -np.log(2) - 1, rtol=1e-6)
    assert special.entr(0.0) == 0 and special.entr(-1.0) == -np.inf


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([2**31], None), ([[0, -(2**31) - 1]], None), ([2**70], None), ([-1], "uint32"), ([300], "int8")],
)
def test_lists_of_integers_out_of_range_raise_instead_of_wrapping_around(values, dtype):
    for make in (jnp.array, jnp.asarray):
        with pytest.raises(OverflowError):
            make(values, dtype)


def test_lists_of_large_integers_may_become_other_numbers():
    assert jnp.array([2**31], "uint32")[0] == 2**31
    assert jnp.array([2**70], "float32")[0] == 2.0**70
    assert jnp.array([2**31, 0.5]).dtype == "float32"


def test_unsigned_indices_of_64_bits():
    with phalanx.enable_x64(True):
        indices = np.array([1, 7], np.uint64)
        assert jnp.take(jnp.arange(5), indices, fill_value=-1).tolist() == [1, -1]
        assert jnp.take_along_axis(jnp.arange(5), indices, 0, fill_value=-1).tolist() == [1, -1]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.sort(x),
        lambda x: jnp.take_along_axis(x, jnp.argsort(x), -1),
        lambda x: lax.sort((x, x), num_keys=2)[0],
        lambda x: lax.top_k(x, 0)[0],
    ],
    ids=["sort", "take_along_axis", "sort of pairs", "top_k"],
)
def test_sorting_nothing_has_an_empty_derivative(function, shape):
    x = jnp.zeros(shape)
    assert phalanx.grad(lambda x: jnp.sum(function(x)))(x).shape == shape
    assert phalanx.jacfwd(function)(x).size == 0


def test_an_empty_dimension_has_no_slice_of_one_element():
    numbers = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    with pytest.raises(ShapeError) as error:
        lax.gather(jnp.zeros(0), jnp.zeros((0, 1), int), numbers, (1,))
    assert str(error.value) == (
        "lax.gather slice size of dimension 0: expected a size in [0, 0], got 1.\n  Fix: choose slice_sizes[0] <= 0."
    )


def test_bfloat16_is_read_from_a_file_as_it_was_written():
    file = io.BytesIO()
    jnp.save(file, jnp.array([1.5, -2.0], jnp.bfloat16))
    file.seek(0)
    found = jnp.load(file)
    assert found.dtype == jnp.bfloat16 and found.tolist() == [1.5, -2.0]


@pytest.mark.parametrize("f", [jnp.logaddexp, jnp.logaddexp2])
def test_derivative_of_logaddexp_is_nan_for_nan_and_shared_by_equal_operands(f):
    slopes = phalanx.grad(f, (0, 1))
    assert np.isnan(slopes(np.nan, 1.0)).all()
    assert np.isnan(slopes(1.0, np.nan)).all()
    for x in (0.0, np.inf, -np.inf):
        np.testing.assert_allclose(slopes(x, x), [0.5, 0.5])


def test_fmax_and_fmin_order_complex_numbers_and_ignore_nan():
    x, y = np.array([1 + 2j, 2 + 1j, np.nan]), np.array([1 + 1j, 3 + 1j, 1j])
    np.testing.assert_array_equal(jnp.fmax(x, y), np.fmax(x, y))
    np.testing.assert_array_equal(jnp.fmin(x, y), np.fmin(x, y))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_unwrap_of_nothing_is_empty(shape):
    assert jnp.unwrap(jnp.zeros(shape)).shape == shape


def test_derivative_of_a_complete_qr_is_that_of_a_turning_basis():
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    x_dot = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)
    (q, r), (q_dot, r_dot) = phalanx.jvp(lambda x: tuple(jnp.linalg.qr(x, mode="complete")), (x,), (x_dot,))
    np.testing.assert_allclose(q_dot @ r + q @ r_dot, x_dot, atol=1e-5)
    np.testing.assert_allclose(q.T @ q_dot + q_dot.T @ q, np.zeros((4, 4)), atol=1e-5)
    np.testing.assert_allclose(q[:, 2:].T @ q_dot[:, 2:], np.zeros((2, 2)), atol=1e-5)


def test_spacing_of_half_precision_is_the_distance_to_the_next_greater_number():
    x = np.array([-4, -4.004, 4, -0.0, 0, -6e-8, -6.104e-5, -np.inf, 65504, -65504, 1], np.float16)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(jnp.spacing(x), np.spacing(x))


def test_derivative_of_expm1_is_exp_where_the_result_rounds_to_minus_one():
    slope = phalanx.grad(jnp.expm1)(-40.0)
    np.testing.assert_allclose(slope, np.exp(np.float32(-40)), rtol=1e-6)
