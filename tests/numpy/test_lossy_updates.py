"""Updates with values that the dtype of the array cannot represent warn at the user's line."""

import warnings

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import TypePromotionError

TEXT = (
    "x.at[...]: values of f32 are cast to the i32 of the array, which loses what that cannot hold; this will be an "
    "error.\n  Fix: cast the values with values.astype(x.dtype), or the array first."
)


@pytest.mark.parametrize("value", [1.5, np.float32(1.5), [1.5], np.full(1, 1.5)], ids=["float", "f32", "list", "array"])
@pytest.mark.parametrize("wrap", [lambda f: f, phalanx.jit], ids=["eager", "jit"])
def test_a_lossy_update_warns_at_the_users_line(value, wrap):
    with pytest.warns(FutureWarning) as caught:
        y = wrap(lambda x: x.at[1].set(value if np.ndim(value) == 0 else value[0]))(jnp.arange(3))
    assert y.tolist() == [0, 1, 2]
    assert [str(w.message) for w in caught] == [TEXT]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int8", np.int32(1)), ("uint8", np.int8(1)), ("bool", 1), ("float32", 1j), ("bfloat16", np.float16(1))],
)
def test_values_of_a_wider_dtype_are_lossy(dtype, value):
    with pytest.warns(FutureWarning, match="which loses what that"):
        jnp.zeros(2, dtype).at[jnp.array([0])].set(value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int8", 1),
        ("float32", 1),
        ("float32", np.int64(1)),
        ("complex64", 1.5),
        ("int32", np.int8(1)),
        ("bfloat16", 1.5),
    ],
)
def test_values_that_the_dtype_represents_do_not_warn(dtype, value):
    for how in ("set", "add", "max"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if not (how == "max" and dtype == "complex64"):
                getattr(jnp.zeros(2, dtype).at[0], how)(value)


def test_dtypes_without_a_common_dtype_raise():
    with pytest.raises(TypePromotionError, match="expected dtypes with a common one"):
        jnp.zeros(2, "float8_e4m3fn").at[0].set(np.float32(1))


def test_division_of_integer_arrays_gives_quotients():
    for index in (slice(1, 3), np.array([1, 2])):
        y = jnp.arange(4).at[index].divide(2)
        assert y.dtype == np.float32
        assert y.tolist() == [0.0, 0.5, 1.0, 3.0]


def test_a_boolean_is_written_without_promotion():
    with phalanx.numpy_dtype_promotion("strict"):
        assert jnp.ones(2, "int32").at[0].set(False).tolist() == [0, 1]
