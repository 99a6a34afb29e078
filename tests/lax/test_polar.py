"""The polar decomposition by Halley iterations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ShapeError
from phalanx.lax.linalg import qdwh


def matrix(shape, dtype, condition, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda *s: rng.standard_normal(s) + (1j * rng.standard_normal(s) if np.issubdtype(dtype, complex) else 0)
    m, n = shape
    u, v = np.linalg.qr(draw(m, n))[0], np.linalg.qr(draw(n, n))[0]
    return ((u * np.geomspace(1, 1 / condition, n)) @ v.conj().T).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape, condition", [((4, 4), 10.0), ((7, 3), 10.0), ((5, 5), 1e5)])
def test_factors_agree_with_scipy(dtype, shape, condition):
    with phalanx.enable_x64(True):
        x = 3 * matrix(shape, dtype, condition)
        u, h, iterations, converged = phalanx.jit(qdwh)(x)
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(np.asarray(u).conj().T @ u, np.eye(shape[1]), atol=50 * eps)
        np.testing.assert_allclose(np.asarray(u) @ h, x, atol=100 * eps)
        np.testing.assert_array_equal(h, np.asarray(h).conj().T)
        assert np.linalg.eigvalsh(h).min() > -50 * eps
        assert bool(converged) and 1 < int(iterations) < 10
        if condition < 100:
            wanted = scipy.linalg.polar(x)
            np.testing.assert_allclose(u, wanted[0], atol=500 * eps)
            np.testing.assert_allclose(h, wanted[1], atol=500 * eps)


def test_a_hermitian_matrix_has_a_hermitian_factor():
    a = matrix((5, 5), "float32", 5.0)
    x = a + a.T
    u, h, _, converged = qdwh(x, is_hermitian=True)
    np.testing.assert_array_equal(u, np.asarray(u).T)
    np.testing.assert_allclose(np.asarray(u) @ h, x, atol=1e-5)
    assert bool(converged)


def test_rows_and_columns_beyond_the_dynamic_shape_are_zero():
    x = matrix((6, 4), "float32", 5.0)
    f = phalanx.jit(lambda x, m, n: qdwh(x, dynamic_shape=(m, n)))
    u, h, _, converged = f(x, 5, 3)
    part, small, _, _ = qdwh(x[:5, :3])
    np.testing.assert_allclose(u[:5, :3], part, atol=1e-5)
    np.testing.assert_allclose(h[:3, :3], small, atol=1e-5)
    assert bool(converged) and not np.asarray(u)[5:].any() and not np.asarray(u)[:, 3:].any()


def test_max_iterations_limits_the_iteration_count():
    _, _, iterations, converged = qdwh(matrix((5, 5), "float32", 1e4), max_iterations=2)
    assert int(iterations) == 2 and not bool(converged)


def test_vmap_of_qdwh():
    x = np.stack([matrix((4, 4), "float32", 10.0, seed) for seed in range(3)])
    u, h, _, converged = phalanx.vmap(qdwh)(x)
    np.testing.assert_allclose(u @ h, x, atol=1e-5)
    assert bool(jnp.all(converged))


def test_a_wide_matrix_raises():
    with pytest.raises(ShapeError) as error:
        qdwh(np.ones((3, 4), np.float32))
    assert str(error.value) == (
        "lax.linalg.qdwh: expected a matrix of at least as many rows as columns, got f32[3,4].\n"
        "  Fix: decompose the adjoint, whose U is the adjoint of U; use vmap for batched matrices."
    )
