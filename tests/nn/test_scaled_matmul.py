"""Products in few bits: scales block by block, rounding to a format, and derivatives."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, nn
from phalanx.core.error_classes import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 64)).astype(ml_dtypes.float8_e4m3fn)
Y = RNG.standard_normal((2, 6, 64)).astype(ml_dtypes.float8_e4m3fn)
SX = (2.0 ** RNG.integers(-3, 3, (2, 4, 2))).astype(ml_dtypes.float8_e8m0fnu)
SY = (2.0 ** RNG.integers(-3, 3, (2, 6, 4))).astype(ml_dtypes.float8_e8m0fnu)


def whole(x, scale):
    repeats = x.shape[-1] // scale.shape[-1]
    return x.astype(np.float64) * np.repeat(scale.astype(np.float64), repeats, -1)


WANTED = whole(X, SX) @ whole(Y, SY).swapaxes(1, 2)


def test_scaled_matmul_multiplies_each_block_by_its_scale():
    out = phalanx.jit(nn.scaled_matmul)(X, Y, SX, SY)
    np.testing.assert_allclose(out, WANTED, rtol=1e-5)
    half = nn.scaled_matmul(X, Y, SX, SY, preferred_element_type=jnp.bfloat16)
    assert half.dtype == jnp.bfloat16
    np.testing.assert_allclose(half.astype(np.float32), WANTED, rtol=1e-2, atol=1e-2)


def test_scaled_dot_takes_any_dimensions():
    numbers = (((2,), (2,)), ((0,), (0,)))
    out = lax.scaled_dot(X, Y, lhs_scale=SX, rhs_scale=SY, dimension_numbers=numbers, preferred_element_type=np.float32)
    np.testing.assert_allclose(out, WANTED, rtol=1e-5)
    plain = lax.scaled_dot(X[0], Y[0].T, preferred_element_type=np.float32)
    np.testing.assert_allclose(plain, X[0].astype(np.float32) @ Y[0].astype(np.float32).T, rtol=1e-5)
    assert lax.scaled_dot(X[0], Y[0].T).dtype == jnp.bfloat16
    stacked = lax.scaled_dot(X, Y.swapaxes(1, 2), rhs_scale=SY.swapaxes(1, 2), preferred_element_type=np.float32)
    np.testing.assert_allclose(stacked, X.astype(np.float64) @ whole(Y, SY).swapaxes(1, 2), rtol=1e-5)


def test_scaled_dot_equals_jax():
    jax = pytest.importorskip("jax")
    ours = lax.scaled_dot(X, Y.swapaxes(1, 2), lhs_scale=SX, preferred_element_type=np.float32)
    theirs = jax.lax.scaled_dot(
        *map(jax.numpy.asarray, (X, Y.swapaxes(1, 2))),
        lhs_scale=jax.numpy.asarray(SX),
        preferred_element_type=np.float32,
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def relative_error(a, b):
    return np.abs(np.asarray(a, np.float64) - b).max() / np.abs(b).max()


@pytest.mark.parametrize("mode, error", [("mxfp8", 0.13), ("nvfp4", 0.4)])
def test_scaled_dot_general_is_near_the_product_and_its_derivatives(mode, error):
    a, b = RNG.standard_normal((3, 5, 40)).astype(np.float32), RNG.standard_normal((40, 3, 6)).astype(np.float32)
    numbers = (((2,), (0,)), ((0,), (1,)))
    configs = [nn.get_scaled_dot_general_config(mode)] * 3
    rounded = lambda a, b: nn.scaled_dot_general(a, b, numbers, configs=configs)
    exact = lambda a, b: nn.scaled_dot_general(a, b, numbers)
    out, wanted = phalanx.jit(rounded)(a, b), exact(a, b)
    assert 0 < relative_error(out, wanted) < error
    y_bar = RNG.standard_normal(wanted.shape).astype(np.float32)
    pulled = lambda f: phalanx.jit(lambda a, b: phalanx.vjp(f, a, b)[1](y_bar))(a, b)
    for ours, theirs in zip(pulled(rounded), pulled(exact), strict=True):
        assert 0 < relative_error(ours, np.asarray(theirs)) < error
    assert relative_error(phalanx.jit(phalanx.vmap(rounded))(a[None], b[None])[0], np.asarray(out)) < 1e-6


def test_representable_numbers_are_not_rounded():
    numbers = (((1,), (1,)), ((), ()))
    x = np.array([[1.0, -2.0, 0.0, 448.0] * 8 + [2.0**-20, 0.0, 2.0**-20, 2.0**-21] * 8], np.float32)
    for mode, y in (("mxfp8", x), ("nvfp4", np.array([[1.0, -2.0, 0.0, 6.0] * 4], np.float32)), ("mxfp8", 0 * x)):
        configs = [nn.get_scaled_dot_general_config(mode)] * 3
        np.testing.assert_array_equal(nn.scaled_dot_general(y, y, numbers, configs=configs), y @ y.T)
    large = nn.get_scaled_dot_general_config("nvfp4", np.full(1, 1e6, np.float32))
    y = np.full((1, 16), 6e8, np.float32)
    np.testing.assert_allclose(nn.scaled_dot_general(y, y, numbers, configs=[large] * 3), y @ y.T, rtol=0.1)


def test_invalid_arguments_raise():
    with pytest.raises(ShapeError) as error:
        nn.scaled_matmul(X, Y, SX, SX)
    assert str(error.value) == (
        "scaled_matmul: expected lhs [b, m, k], rhs [b, n, k], lhs_scales [b, m, blocks] and rhs_scales [b, n, blocks], "
        "got [2, 4, 64], [2, 6, 64], [2, 4, 2], [2, 4, 2].\n"
        "  Fix: transpose rhs, and give one scale for each block along the last dimension."
    )
    with pytest.raises(ShapeError) as error:
        lax.scaled_dot(X, Y, lhs_scale=SX[:, :3])
    assert str(error.value) == (
        "lax.scaled_dot, lhs_scale: expected a scale whose sizes divide the sizes of f8_e4m3fn[2,4,64], got f8_e8m0fnu[2,3,2].\n"
        "  Fix: pass one scale for each block, and size 1 along dimensions that share a scale."
    )
    with pytest.raises(ArgumentError) as error:
        nn.get_scaled_dot_general_config("fp8")
    assert str(error.value) == (
        'get_scaled_dot_general_config: expected the mode "mxfp8", which has no global scale, or "nvfp4", got \'fp8\'.\n'
        "  Fix: pass mode='mxfp8' without global_scale, or mode='nvfp4'."
    )
    with pytest.raises(ArgumentError, match="implementation='cudnn'"):
        nn.scaled_dot_general(X, Y, (((2,), (2,)), ((0,), (0,))), implementation="cudnn")
