"""Small arrays that a compiled function closes over are part of its program; others are passed at each call."""

import ml_dtypes
import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import config, random
from phalanx.runtime.program_constants import INLINE_CONSTANT_SIZE


def constants_of(f, *args):
    """The arrays that are passed to the program of a compiled function at each call."""
    f(*args)
    (entry,) = f._jit._calls.values()
    return entry.compiled.lowered.constants


def test_a_small_array_is_not_passed_at_each_call():
    c = jnp.arange(3.0)
    f = phalanx.jit(lambda x: x + c)
    assert constants_of(f, c) == []
    assert "dense<[0.000000e+00, 1.000000e+00, 2.000000e+00]>" in f.lower(c).as_text()
    assert f(c).tolist() == [0, 2, 4]


def test_a_large_array_and_random_keys_are_passed_at_each_call():
    c, key = jnp.ones(INLINE_CONSTANT_SIZE + 1), random.key(0)
    assert len(constants_of(phalanx.jit(lambda x: x + c), 1.0)) == 1
    assert len(constants_of(phalanx.jit(lambda x: x + random.uniform(key)), 1.0)) == 1


def test_an_array_is_passed_where_the_cache_on_disk_would_need_an_entry_for_each_value(tmp_path):
    c = jnp.arange(3.0)
    config.update("compilation_cache_dir", str(tmp_path))
    try:
        assert len(constants_of(phalanx.jit(lambda x: x + c), c)) == 1
    finally:
        config.update("compilation_cache_dir", None)


def test_a_sharded_array_is_passed_at_each_call():
    sharding = phalanx.sharding.NamedSharding(phalanx.make_mesh((4,), ("rows",)), phalanx.P("rows"))
    c = phalanx.device_put(np.arange(8.0, dtype=np.float32), sharding)
    f = phalanx.jit(lambda x: x + c)
    assert len(constants_of(f, c)) == 1
    assert f(c).tolist() == [0, 2, 4, 6, 8, 10, 12, 14]


def test_the_value_is_read_under_a_transfer_guard():
    c = jnp.arange(3.0) + 1
    x = c * 2
    with phalanx.transfer_guard("disallow"):
        assert (phalanx.jit(lambda x: x + c)(x) is not None) and constants_of(phalanx.jit(lambda x: x - c), x) == []


@pytest.mark.parametrize(
    "values",
    [
        np.array([0x7FC00001, 0x80000000, 0xFF800000, 1], np.uint32).view(np.float32),  # NaN, -0.0, -inf, subnormal
        np.array([1, -2.5, -0.0], ml_dtypes.bfloat16),
        np.array([1, -2.5, -0.0], ml_dtypes.float8_e4m3fn),
        np.array([1, -8, 7], ml_dtypes.int4),
        np.array([True, False]),
        np.array([1 - 2j, -0.0 + 3j], np.complex64),
        np.array([], np.int32),
        np.array(-(2**31), np.int32),
    ],
    ids=lambda values: f"{values.dtype}{list(values.shape)}",
)
def test_the_program_has_every_bit_of_the_array(values):
    c = jnp.asarray(values)
    f = phalanx.jit(lambda: c)
    assert constants_of(f) == []
    assert np.asarray(f()).tobytes() == values.tobytes()
