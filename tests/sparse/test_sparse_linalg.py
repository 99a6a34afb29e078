"""Direct solutions of sparse systems, and the largest eigenvalues by LOBPCG."""

import numpy as np
import pytest
from phalanx.experimental import sparse
from tests.sparse_arrays import make_dense

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError, DTypeError, ShapeError


def make_system(dtype=np.float32):
    a = (make_dense((6, 6)) + 20 * np.eye(6)).astype(dtype)
    return (a + 1j * a.T).astype(dtype) if dtype == np.complex64 else a


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_spsolve_solves_the_system_and_its_derivatives_the_equation(dtype):
    a, b = make_system(dtype), np.arange(6).astype(dtype)
    m = sparse.CSR.fromdense(a)
    solve = lambda data, b: sparse.linalg.spsolve(data, m.indices, m.indptr, b)
    np.testing.assert_allclose(a @ solve(m.data, b), b, atol=1e-4)
    np.testing.assert_allclose(phalanx.jit(solve)(m.data, b), solve(m.data, b), rtol=1e-5)
    dense = lambda data, b: jnp.linalg.solve(sparse.CSR((data, m.indices, m.indptr), shape=a.shape).todense(), b)
    total = lambda f: lambda data, b: (abs(f(data, b)) ** 2).sum()
    for i in (0, 1):
        found, wanted = (phalanx.grad(total(f), i)(m.data, jnp.asarray(b)) for f in (solve, dense))
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


def test_spsolve_is_mapped_over_right_hand_sides():
    a = make_system()
    m, b = sparse.CSR.fromdense(a), make_dense((3, 6))
    found = phalanx.vmap(lambda b: sparse.linalg.spsolve(m.data, m.indices, m.indptr, b))(b)
    np.testing.assert_allclose(found @ a.T, b, atol=1e-4)


def test_spsolve_checks_its_arguments():
    m = sparse.CSR.fromdense(make_system())
    with pytest.raises(ShapeError) as error:
        sparse.linalg.spsolve(m.data, m.indices, m.indptr, jnp.ones(5))
    assert str(error.value) == (
        "spsolve, arguments (data, indices, indptr, b): expected shapes [nse], [nse], [n + 1] and [n], got "
        f"[{m.nse}], [{m.nse}], [7], [5].\n"
        "  Fix: pass the buffers of a square CSR matrix, and one right-hand side; map over others with vmap."
    )
    with pytest.raises(DTypeError, match="float32 and int32"):
        sparse.linalg.spsolve(m.data, m.indices, m.indptr, jnp.ones(6, int))
    with pytest.raises(ArgumentError, match="0, 1, 2 or 3"):
        sparse.linalg.spsolve(m.data, m.indices, m.indptr, jnp.ones(6), reorder=4)


def make_symmetric(values):
    n = len(values)
    q, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))
    return ((q * values) @ q.T).astype(np.float32)


@pytest.mark.parametrize(
    "values",
    [np.arange(40.0), np.logspace(0, 3, 40), np.linspace(-50.0, -1.0, 40), np.ones(40)],
    ids=["even", "geometric", "negative", "equal"],
)
def test_lobpcg_finds_the_largest_eigenvalues(values):
    a = make_symmetric(values)
    start = np.random.default_rng(1).standard_normal((40, 3)).astype(np.float32)
    with phalanx.numpy_rank_promotion("raise"):
        found, vectors, _ = sparse.linalg.lobpcg_standard(a, start, m=100, tol=1e-6)
    np.testing.assert_allclose(found, np.sort(values)[::-1][:3], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-4)
    np.testing.assert_allclose(a @ vectors, vectors * found, atol=2e-3 * abs(values).max())


@pytest.mark.slow
def test_lobpcg_takes_sparse_matrices_and_functions():
    a = np.diag(np.arange(20.0)).astype(np.float32)
    start = np.ones((20, 1), np.float32)
    wanted = sparse.linalg.lobpcg_standard(a, start)[0]
    for operand in (sparse.BCOO.fromdense(a), lambda x: a @ x):
        np.testing.assert_allclose(sparse.linalg.lobpcg_standard(operand, start)[0], wanted, rtol=1e-5)


def test_lobpcg_checks_its_arguments():
    a = jnp.eye(20)
    with pytest.raises(ArgumentError) as error:
        sparse.linalg.lobpcg_standard(a, jnp.ones((20, 4)))
    assert str(error.value) == (
        "lobpcg_standard, argument X: expected search dim > 0 and search dim * 5 < matrix dim, 20, got 4 vectors.\n"
        "  Fix: pass fewer vectors, or use numpy.linalg.eigh."
    )
    with pytest.raises(ShapeError, match=r"A must be \(20, 20\)"):
        sparse.linalg.lobpcg_standard(a[:10], jnp.ones((20, 1)))
    with pytest.raises(DTypeError, match="A, X must have same dtypes"):
        sparse.linalg.lobpcg_standard(lambda x: x.astype("bfloat16"), jnp.ones((20, 1)))
