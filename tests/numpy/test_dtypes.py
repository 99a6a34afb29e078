"""Dtype names, promotion with scalars, and the wide mode."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp


def test_a_dtype_name_is_equal_to_its_dtype_and_makes_arrays():
    assert jnp.float32 == np.dtype("float32") and np.dtype("float32") == jnp.float32
    assert np.dtype(jnp.bfloat16).name == "bfloat16"
    assert jnp.zeros(2, jnp.bfloat16).dtype == jnp.bfloat16
    assert jnp.float32(2).dtype == np.float32 and jnp.int8(3).item() == 3
    assert {jnp.float32: 1}[jnp.float32] == 1
    assert isinstance(np.float32(1), jnp.float32)
    assert jnp.issubdtype(jnp.bfloat16, jnp.floating)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "uint32", "float8_e4m3fn"])
def test_scalars_of_python_take_the_dtype_of_the_array(dtype):
    x = jnp.ones(2, dtype)
    assert (x + 1).dtype == dtype and (x * 2).dtype == dtype
    assert (1 - x).dtype == dtype
    if jnp.issubdtype(dtype, jnp.floating):
        assert (x * 0.5).dtype == dtype


def test_integers_wrap_in_narrow_dtypes_and_are_refused_beyond_the_default_one():
    assert (jnp.ones(1, "uint8") * 300).tolist() == [44]
    assert (jnp.ones(1, "uint32") & 0x7FFFFFFF).tolist() == [1]
    with pytest.raises(OverflowError):
        jnp.ones(1, "int8") + 2**40


def test_the_wide_mode_keeps_64_bits():
    with phalanx.enable_x64(True):
        assert jnp.arange(3).dtype == np.int64 and jnp.zeros(2).dtype == np.float64
        assert (jnp.ones(2, "float32") + 1.0).dtype == np.float32
        assert jnp.sum(jnp.ones(2, "int32")).dtype == np.int64
    assert jnp.arange(3).dtype == np.int32 and jnp.zeros(2).dtype == np.float32


def test_strict_promotion_refuses_to_mix():
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
