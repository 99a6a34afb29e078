"""Scalar types, promotion with scalars, and x64 mode."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp


def test_a_scalar_type_equals_its_dtype_and_makes_arrays():
    assert jnp.float32 == np.dtype("float32") and np.dtype("float32") == jnp.float32
    assert np.dtype(jnp.bfloat16).name == "bfloat16"
    assert jnp.zeros(2, jnp.bfloat16).dtype == jnp.bfloat16
    assert jnp.float32(2).dtype == np.float32 and jnp.int8(3).item() == 3
    assert {jnp.float32: 1}[jnp.float32] == 1
    assert isinstance(np.float32(1), jnp.float32)
    assert jnp.issubdtype(jnp.bfloat16, jnp.floating)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "uint32", "float8_e4m3fn"])
def test_python_scalars_adopt_the_dtype_of_the_array(dtype):
    x = jnp.ones(2, dtype)
    assert (x + 1).dtype == dtype and (x * 2).dtype == dtype
    assert (1 - x).dtype == dtype
    if jnp.issubdtype(dtype, jnp.floating):
        assert (x * 0.5).dtype == dtype


def test_integers_wrap_in_narrow_dtypes_and_raise_beyond_the_default_dtype():
    assert (jnp.ones(1, "uint8") * 300).tolist() == [44]
    assert (jnp.ones(1, "uint32") & 0x7FFFFFFF).tolist() == [1]
    with pytest.raises(OverflowError):
        jnp.ones(1, "int8") + 2**40


def test_x64_mode_keeps_64_bits():
    with phalanx.enable_x64(True):
        assert jnp.arange(3).dtype == np.int64 and jnp.zeros(2).dtype == np.float64
        assert (jnp.ones(2, "float32") + 1.0).dtype == np.float32
        assert jnp.sum(jnp.ones(2, "int32")).dtype == np.int64
    assert jnp.arange(3).dtype == np.int32 and jnp.zeros(2).dtype == np.float32


WIDE = {
    "jnp.tril_indices(3)[0]": "int64",
    "jnp.linalg.solve(jnp.eye(2, dtype='int32'), jnp.arange(2))": "float64",
    "jnp.fft.hfft(jnp.arange(3))": "float64",
}


@pytest.mark.parametrize("expression", WIDE)
def test_promotion_in_x64_mode(expression):
    with phalanx.enable_x64(True):
        assert eval(expression, {"jnp": jnp}).dtype == WIDE[expression]


def test_strict_promotion_rejects_mixed_dtypes():
    with (
        phalanx.numpy_dtype_promotion("strict")
        if hasattr(phalanx, "numpy_dtype_promotion")
        else pytest.skip("not there")
    ):
        with pytest.raises(TypeError):
            jnp.ones(2) + jnp.ones(2, int)
        assert (jnp.ones(2) + 1).dtype == np.float32


def test_kinds_of_dtypes():
    assert jnp.isdtype("float32", "real floating") and jnp.isdtype("int8", ("bool", "integral"))
    assert not jnp.isdtype("int8", "complex floating")
    assert jnp.can_cast("int8", "int32") and jnp.promote_types("int8", "uint8") == np.int16
    assert jnp.finfo("bfloat16").bits == 16 and jnp.iinfo("int8").max == 127


WEAK = "floor_divide remainder fmod power hypot logaddexp heaviside".split()


@pytest.mark.parametrize("name", WEAK)
def test_composite_functions_of_weak_operands_are_weak(name):
    function = getattr(jnp, name)
    x, y = jnp.asarray(7), jnp.asarray(2)
    assert function(x, y).weak_type and function(7, 2).weak_type and phalanx.jit(function)(7, 2).weak_type
    assert not function(x, jnp.int32(2)).weak_type
    assert (x // 2 * jnp.int8(1)).dtype == "int8" and (x % 2 * jnp.int8(1)).dtype == "int8"


def test_composite_functions_of_a_strong_and_a_weak_operand_are_strong():
    assert not jnp.gcd(jnp.arange(3), 2).weak_type and not jnp.gcd(2, jnp.arange(3)).weak_type
    assert [v.weak_type for v in jnp.modf(2.5)] == [True, True]


@pytest.mark.parametrize("name", "deg2rad rad2deg sinc reciprocal imag".split())
def test_composite_functions_of_one_weak_operand_are_weak(name):
    out = getattr(jnp, name)(jnp.asarray(3.5))
    assert out.weak_type and (out * jnp.bfloat16(1)).dtype == "bfloat16"
    assert all(z.weak_type for z in jnp.divmod(7.5, 2.0)) and jnp.round(jnp.asarray(3.14), 1).weak_type


def test_dtype_arguments_accept_names():
    assert jnp.argsort(jnp.array([3, 1, 2]), dtype="int8").dtype == "int8"
    assert jnp.cov(jnp.eye(2), dtype="float16").dtype == "float16"
    assert jnp.ravel_multi_index((jnp.array([1]), jnp.array([2])), (3, 4), dtype="int16").dtype == "int16"
    assert jnp.linalg.matrix_rank(jnp.diag(jnp.array([2.0, 0.0])), hermitian=True).item() == 1
    assert jnp.empty_like(prototype=jnp.arange(3)).shape == (3,)


def test_zeros_like_keys_are_keys():
    keys = phalanx.random.split(phalanx.random.key(1), 3)
    zeros = jnp.zeros_like(keys)
    assert zeros.dtype == keys.dtype and phalanx.random.key_data(zeros).tolist() == [[0, 0]] * 3


def test_take_along_axis_without_wrapping_of_negative_indices():
    x = jnp.arange(3.0)
    index = jnp.array([0, -1])
    assert jnp.take_along_axis(x, index, 0).tolist() == [0.0, 2.0]
    assert jnp.take_along_axis(x, index, 0, mode="clip", wrap_negative_indices=False).tolist() == [0.0, 0.0]
    assert jnp.isnan(jnp.take_along_axis(x, index, 0, wrap_negative_indices=False)).tolist() == [False, True]


@pytest.mark.parametrize("name", ["max", "min", "ptp"])
def test_extrema_of_complex_numbers_order_by_real_then_imaginary_part(name):
    z = np.array([[1 + 2j, 1 - 1j, 0.5 + 9j], [-1j, 2, 2 + 1j]], np.complex64)
    for axis in (None, 0, 1):
        np.testing.assert_allclose(getattr(jnp, name)(z, axis=axis), getattr(np, name)(z, axis=axis))


@pytest.mark.parametrize("x", [1.5, 2, 2j, True])
def test_full_like_of_python_numbers_has_their_dtype(x):
    """Zeros like a weak float were integers once."""
    for like in (jnp.zeros_like(x), jnp.ones_like(jnp.asarray(x)), jnp.full_like(x, 3), jnp.zeros_like(x, shape=(2,))):
        assert (like.dtype, like.weak_type) == (jnp.asarray(x).dtype, jnp.asarray(x).weak_type)
    assert jnp.full_like(2, 3.5) == 3


def test_an_array_made_of_weak_elements_is_strong():
    w = jnp.asarray(1)
    for make in (lambda w: jnp.array([w, w]), lambda w: jnp.asarray([[1.0], [w]]), lambda w: jnp.array((w + 1.0,))):
        assert w.weak_type and not make(w).weak_type and not phalanx.jit(make)(w).weak_type


@pytest.mark.parametrize("name", "sum prod max min mean var std median ptp cumsum cumprod nansum log10".split())
def test_reductions_of_weak_operands_are_strong(name):
    for x in (2.5, jnp.full(3, 2.5), 2):
        assert not getattr(jnp, name)(x).weak_type


@pytest.mark.parametrize("name", ["log2", "exp2", "log1p"])
def test_operations_on_weak_elements_are_weak(name):
    function = getattr(jnp, name)
    for x in (2.5, 2, jnp.asarray(1.5)):
        assert function(x).weak_type and phalanx.jit(function)(x).weak_type


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "bfloat16"])
def test_extrema_of_floats_with_and_without_infinities(dtype):
    x = jnp.array([-3.0, 2.0, 1.0], dtype)
    assert [float(f(x)) for f in (jnp.max, jnp.min, jnp.nanmax, jnp.nanmin, jnp.ptp)] == [2, -3, 2, -3, 5]
    assert phalanx.lax.cummax(x).astype(float).tolist() == [-3, 2, 2]
    assert phalanx.ops.segment_max(x, jnp.array([0, 0, 1])).astype(float).tolist() == [2, 1]


@pytest.mark.parametrize("exponents", ["int8", "uint8", "int32", "bool"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int4", "bool"])
def test_ldexp_accepts_all_integers(dtype, exponents):
    x, n = jnp.array([1, -3, 2]).astype(dtype), jnp.array([0, 1, 3]).astype(exponents)
    want = np.ldexp(np.asarray(x.astype("float32")), np.asarray(n.astype("int32")))
    np.testing.assert_array_equal(jnp.ldexp(x, n).astype("float32"), want)


@pytest.mark.parametrize(
    "name, make",
    [
        ("zeros", lambda dtype: jnp.zeros(2, dtype)),
        ("ones", lambda dtype: jnp.ones(2, dtype)),
        ("full", lambda dtype: jnp.full(2, 3, dtype)),
        ("full_like", lambda dtype: jnp.full_like(jnp.ones(2), 3, dtype)),
        ("array", lambda dtype: jnp.array([1.0, 2.0], dtype)),
        ("arange", lambda dtype: jnp.arange(2, dtype=dtype)),
        ("linspace", lambda dtype: jnp.linspace(0, 1, 2, dtype=dtype)),
        ("eye", lambda dtype: jnp.eye(2, dtype=dtype)),
        ("astype", lambda dtype: jnp.ones(2).astype(dtype)),
        ("sum", lambda dtype: jnp.sum(jnp.ones(2), dtype=dtype)),
        ("concatenate", lambda dtype: jnp.concatenate([jnp.ones(2)], dtype=dtype)),
        ("fftfreq", lambda dtype: jnp.fft.fftfreq(4, dtype=dtype)),
        ("rfftfreq", lambda dtype: jnp.fft.rfftfreq(4, dtype=dtype)),
        ("add.reduce", lambda dtype: jnp.add.reduce(jnp.ones(2), dtype=dtype)),
        ("add.accumulate", lambda dtype: jnp.add.accumulate(jnp.ones(2), dtype=dtype)),
        ("add.reduceat", lambda dtype: jnp.add.reduceat(jnp.arange(2), jnp.array([0]), dtype=dtype)),
        ("indices", lambda dtype: jnp.indices((2,), dtype)),
        ("cov", lambda dtype: jnp.cov(jnp.eye(2), dtype=dtype)),
    ],
)
def test_a_requested_64_bit_dtype_that_is_truncated_warns(name, make):
    with pytest.warns(UserWarning, match=f"^Explicitly requested dtype float64 requested in {name} is not") as caught:
        assert make("float64").dtype == np.float32
    assert caught[0].filename == __file__
    assert make(float).dtype == np.float32  # Python's own types mean the width in force, without a warning
    with phalanx.enable_x64(True):
        assert make("float64").dtype == np.float64


def test_joining_arrays_with_python_dtypes_does_not_warn():
    for join in (jnp.concatenate, jnp.stack, jnp.hstack):
        assert join([jnp.ones(7, "int8")], dtype=float).dtype == np.float32


@pytest.mark.parametrize(("data", "dtype"), [("int8", "float32"), ("float16", "float16"), ("bfloat16", "bfloat16")])
@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histograms_have_the_inexact_dtype_of_the_data(data, dtype, density, weighted):
    x = jnp.array([1, 2, 3], data)
    for result in jnp.histogram(x, np.array([0, 2, 4]), weights=x if weighted else None, density=density):
        assert result.dtype == dtype


@pytest.mark.parametrize("mode", ["constant", "linear_ramp", "mean", "edge", "wrap"])
@pytest.mark.parametrize("width", [0, 2])
def test_padding_keeps_a_weak_type(mode, width):
    assert jnp.pad(jnp.array(1.0)[None], width, mode=mode).weak_type
    assert not jnp.pad(jnp.ones(1), width, mode=mode).weak_type


def test_powers_of_narrow_integers_wrap_around():
    x, exponents = np.array([3, 5, 2, 0], np.uint8), np.arange(60, dtype=np.uint8)[:, None]
    np.testing.assert_array_equal(jnp.power(jnp.array(x), jnp.array(exponents)), np.power(x, exponents))
    np.testing.assert_array_equal(jnp.vander(x, 20)[:2, 0], np.array([3, 5], np.uint8) ** np.uint8(19))


def test_strict_promotion_accepts_python_booleans_as_updates():
    x = jnp.arange(4)
    with phalanx.numpy_dtype_promotion("strict"):
        assert x.at[1].set(False).tolist() == [0, 0, 2, 3]
        assert x.at[1].set(False, out_sharding=x.sharding).tolist() == [0, 0, 2, 3]
        assert phalanx.jit(lambda x: x.at[1:].add(True))(x).tolist() == [0, 2, 3, 4]
        with pytest.raises(TypeError):
            x.at[1].set(np.bool_(True))


def test_scalars_in_a_jaxpr_are_weak_when_it_is_evaluated():
    x = jnp.asarray(0)
    choices = [
        lambda x: jnp.where(x > 0, 1, 2),
        lambda x: jnp.where(x > 0, 1.5, 2),
        lambda x: x + jnp.where(x > 0, 1, 2),
    ]
    for f in choices:
        program = phalanx.make_jaxpr(f)(x)
        (value,) = phalanx.core.eval_jaxpr(program.jaxpr, program.consts, x)
        assert (value.dtype, value.weak_type) == (f(x).dtype, True)
