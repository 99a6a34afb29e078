"""Functions of one dtype and rank work where promotion is forbidden, and with objects that convert themselves."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp

X = jnp.array([3.0, 1.0, 2.0])
Y = jnp.array([3, 1, 2], "int8")


class Wrapped:
    """An object that only converts itself to an array."""

    def __init__(self, x):
        self.x = x

    def __jax_array__(self):
        return jnp.asarray(self.x)


@pytest.mark.parametrize(
    "compute, expected",
    [
        (lambda: jnp.roots(jnp.array([1.0, -3.0, 2.0])), [2, 1]),
        (lambda: jnp.polyint(jnp.array([2.0, 1.0])), [1, 1, 0]),
        (lambda: jnp.unpackbits(jnp.array([[3], [128]], "uint8"), axis=1), [[0] * 6 + [1, 1], [1] + [0] * 7]),
        (lambda: jnp.polyfit(X, 2 * X + 1, 1), [2, 1]),
        (lambda: jnp.fft.ifft(jnp.fft.fft(X)), [3, 1, 2]),
        (lambda: jnp.unique(X), [1, 2, 3]),
        (lambda: jnp.cross(X, X), [0, 0, 0]),
        (lambda: jnp.histogram(X, bins=jnp.array([0.0, 1.5, 4.0]))[0], [1, 2]),
        (lambda: jnp.histogram(Y, bins=np.array([0, 2, 4]), weights=Y, density=True)[0], [1 / 12, 5 / 12]),
        (lambda: jnp.gradient(Y, Y), [1, 1, 1]),
        (lambda: jnp.linalg.det(jnp.stack([jnp.eye(2), 2 * jnp.eye(2)])), [1, 4]),
        (lambda: jnp.broadcast_arrays(X, jnp.ones((1, 3)))[0], [[3, 1, 2]]),
        (lambda: X[jnp.array([0, 2])], [3, 2]),
        (lambda: X[jnp.array(1)], 1),
        (lambda: jnp.convolve(X.astype("int32"), jnp.ones(1, "int32"), preferred_element_type="int32"), [3, 1, 2]),
        (lambda: jnp.nanvar(jnp.array([1j, 3j, jnp.nan])), 1),
        (lambda: phalanx.scipy.linalg.sqrtm(4 * jnp.eye(2)), [[2, 0], [0, 2]]),
        (lambda: phalanx.scipy.linalg.rsf2csf(jnp.eye(2), jnp.eye(2))[0], [[1, 0], [0, 1]]),
        (lambda: phalanx.scipy.linalg.solve_sylvester(jnp.eye(2), jnp.eye(2), jnp.eye(2)), [[0.5, 0], [0, 0.5]]),
        (lambda: phalanx.scipy.linalg.polar(2 * jnp.eye(2), method="svd")[1], [[2, 0], [0, 2]]),
    ],
)
@pytest.mark.parametrize("disable_jit", [False, True])
def test_strict_promotion(compute, expected, disable_jit):
    with phalanx.numpy_rank_promotion("raise"), phalanx.numpy_dtype_promotion("strict"):
        with phalanx.disable_jit(disable_jit):
            np.testing.assert_allclose(compute(), expected, atol=1e-5)


@pytest.mark.parametrize(
    "compute, expected",
    [
        (lambda: jnp.roll(X, Wrapped(1)), [2, 3, 1]),
        (lambda: jnp.delete(X, Wrapped(1)), [3, 2]),
        (lambda: jnp.isscalar(Wrapped(1.0)), True),
        (lambda: jnp.isscalar(Wrapped([1.0])), False),
        (lambda: jnp.iscomplexobj(Wrapped([1j])), True),
        (lambda: jnp.tril_indices_from(Wrapped(np.ones((2, 2))))[0], [0, 1, 1]),
        (lambda: jnp.triu_indices_from(Wrapped(np.ones((2, 2))))[0], [0, 0, 1]),
    ],
)
def test_objects_that_convert_themselves(compute, expected):
    np.testing.assert_array_equal(compute(), expected)


def test_a_second_name_of_a_function_is_its_own():
    assert jnp.abs.__name__ == "abs"
    assert jnp.absolute.__name__ == "absolute"
    assert jnp.permute_dims.__qualname__ == "permute_dims"
    assert float(jnp.pow(2.0, 3.0)) == 8.0
