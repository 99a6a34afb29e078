"""Matrices against SciPy."""

import numpy as np
import pytest
import scipy.linalg

import phalanx
import phalanx.numpy as jnp
from phalanx.errors import ArgumentError, ConcretizationTypeError, DTypeError, ShapeError
from phalanx.scipy import linalg

rng = np.random.default_rng(0)


def random(*shape, kind=np.float32):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(kind).kind == "c" else x).astype(kind)


def close(a, b, tol=3e-4):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tol, atol=tol)


def spd(n, kind=np.float32):
    x = random(n, n, kind=kind)
    return x @ x.conj().T + n * np.eye(n, dtype=kind)


V, W = np.float32([1, 2, 4]), np.float32([1, 5, 6, 7])
PATTERNS = {
    "block_diag": (V.reshape(1, 3), np.eye(2, dtype=np.float32), 3.0, V), "toeplitz": (V, W), "circulant": (V,),
    "hankel": (V, W), "companion": (W,), "fiedler": (V,), "fiedler_companion": (np.float32([2, 5, 6, 7, 8, 9]),),
    "dft": (5,), "hadamard": (8,), "helmert": (4,), "hilbert": (4,), "invhilbert": (5,), "pascal": (5,),
    "invpascal": (5,), "leslie": (W, V),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_special_matrices(name):
    args = PATTERNS[name]
    close(getattr(linalg, name)(*args), getattr(scipy.linalg, name)(*args), 1e-5)


def test_rare_arguments_of_special_matrices():
    close(linalg.toeplitz(V + 1j * V), scipy.linalg.toeplitz(V + 1j * V))
    close(linalg.hankel(V), scipy.linalg.hankel(V))
    close(linalg.helmert(3, full=True), scipy.linalg.helmert(3, full=True))
    for scale in ("sqrtn", "n"):
        close(linalg.dft(6, scale), scipy.linalg.dft(6, scale))
    for kind in ("lower", "upper"):
        close(linalg.pascal(4, kind), scipy.linalg.pascal(4, kind))
        close(linalg.invpascal(4, kind), scipy.linalg.invpascal(4, kind))
    for n in (2, 3, 6):
        for mode in ("full", "same", "valid"):
            close(linalg.convolution_matrix(W, n, mode), scipy.linalg.convolution_matrix(W, n, mode))
    for n in range(2, 8):
        close(linalg.fiedler_companion(np.arange(1.0, n + 1)), scipy.linalg.fiedler_companion(np.arange(1.0, n + 1)))
    assert linalg.toeplitz(np.ones((2, 3)), np.ones((2, 4))).shape == (2, 3, 4)
    assert linalg.leslie(np.ones((2, 3)), np.ones((2, 2))).shape == (2, 3, 3)
    assert linalg.hadamard(4, "float16").dtype == np.float16
    assert linalg.block_diag().shape == (1, 0)
    assert linalg.toeplitz(np.zeros(0)).shape == (0, 0)


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
def test_decompositions_multiply_to_the_matrix(kind):
    a = random(4, 3, kind=kind)
    p, lower, upper = linalg.lu(a)
    close(p @ lower @ upper, a)
    for ours, theirs in zip(linalg.lu(a), scipy.linalg.lu(a)):
        close(ours, theirs)
    for ours, theirs in zip(linalg.lu(a, permute_l=True), scipy.linalg.lu(a, permute_l=True)):
        close(ours, theirs)
    for mode in ("full", "economic"):
        q, r, order = linalg.qr(a, mode=mode, pivoting=True)
        close(q @ r, a[:, np.asarray(order)])
        assert [v.shape for v in (q, r, order)] == [v.shape for v in scipy.linalg.qr(a, mode=mode, pivoting=True)]
    close(abs(linalg.qr(a, mode="r")[0]), abs(scipy.linalg.qr(a, mode="r")[0]))
    close(linalg.svd(a, compute_uv=False, lapack_driver="gesvd"), scipy.linalg.svdvals(a))
    u, s, vh = linalg.svd(a, full_matrices=False)
    close(u * s.astype(kind) @ vh, a)
    square = random(4, 4, kind=kind)
    h, q = linalg.hessenberg(square, calc_q=True)
    close(q @ h @ q.conj().T, square)
    close(q.conj().T @ q, np.eye(4))
    close(h, scipy.linalg.hessenberg(square))
    for output in ("real", "complex"):
        t, z = linalg.schur(square, output)
        close(z @ t @ z.conj().T, square)
    if kind == "float32":
        for got, wanted in zip(linalg.rsf2csf(square, square), scipy.linalg.rsf2csf(square, square)):
            np.testing.assert_allclose(got, wanted, atol=1e-5)
    t, z = linalg.rsf2csf(*linalg.schur(square))
    close(z @ t @ z.conj().T, square, 1e-3)
    close(np.tril(np.asarray(t), -1), 0, 1e-5)


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
@pytest.mark.parametrize("method", ["qdwh", "svd"])
def test_polar_decompositions(kind, method):
    a = random(4, 3, kind=kind)
    for side, x in (("right", a), ("left", a.conj().T)):
        for ours, theirs in zip(linalg.polar(x, side, method=method), scipy.linalg.polar(x, side)):
            close(ours, theirs, 1e-3)
    with pytest.raises(ShapeError, match="linalg.polar: expected a matrix of m rows and n columns, m >= n"):
        linalg.polar(a.T)


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
def test_qr_multiply(kind):
    a, c, v = random(4, 3, kind=kind), random(2, 4, kind=kind), random(4, kind=kind)
    q, r = scipy.linalg.qr(a, mode="economic")
    sign = np.diag(np.asarray(linalg.qr(a, mode="economic")[1]) / np.where(r == 0, 1, r))
    for conjugate in (False, True):
        turned = q.conj() if conjugate else q
        close(linalg.qr_multiply(a, c, conjugate=conjugate)[0] * sign, c @ turned)
        close(linalg.qr_multiply(a, v, conjugate=conjugate)[0] * sign, v @ turned)
    close(
        linalg.qr_multiply(a, random(3, 2, kind=kind) * 0 + 1, "left")[0],
        np.asarray(linalg.qr(a, mode="economic")[0]) @ np.ones((3, 2)),
    )


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
@pytest.mark.parametrize("lower", [False, True])
def test_eigh_of_generalized_problems(kind, lower):
    a, b = spd(4, kind), spd(4, kind)
    half = np.tril(a) if lower else np.triu(a)
    close(linalg.cholesky(half, lower), scipy.linalg.cholesky(a, lower))
    w, v = linalg.eigh(half, lower=lower)
    close(a @ np.asarray(v), np.asarray(v) * np.asarray(w), 3e-3)
    for problem in (1, 2, 3):
        w, v = (np.asarray(x) for x in linalg.eigh(a, b, lower, type=problem))
        close(w, scipy.linalg.eigh(a, b, eigvals_only=True, type=problem), 2e-3)
        left, right = {1: (a @ v, b @ v * w), 2: (a @ b @ v, v * w), 3: (b @ a @ v, v * w)}[problem]
        np.testing.assert_allclose(left, right, atol=2e-3 * abs(left).max())


@pytest.mark.parametrize("select, select_range", [("a", None), ("i", (1, 2)), ("v", (-0.5, 1.2))])
def test_eigh_tridiagonal(select, select_range):
    d, e = random(5), random(4)
    got = linalg.eigh_tridiagonal(d, e, select=select, select_range=select_range)
    wanted = scipy.linalg.eigh_tridiagonal(d, e, select=select, select_range=select_range)
    close(got[0], wanted[0])
    close(abs(got[1]), abs(wanted[1]), 1e-3)
    close(linalg.eigh_tridiagonal(d, e, eigvals_only=True), scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True))


@pytest.mark.one_is_quick(group=lambda kind, shape: kind)
@pytest.mark.parametrize("kind", [np.float32, np.complex64])
@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_solvers_of_linear_systems(kind, shape):
    a, b = spd(3, kind), random(*shape, kind=kind)
    general = random(3, 3, kind=kind) + 3 * np.eye(3, dtype=kind)
    wanted = np.linalg.solve(a.astype(np.complex128), b)
    for assume in ("gen", "sym", "her", "pos"):
        close(linalg.solve(a, b, assume_a=assume), wanted)
    close(linalg.solve(np.tril(a), b, lower=True, assume_a="pos"), wanted)
    for lower in (False, True):
        close(linalg.cho_solve(linalg.cho_factor(a, lower), b), wanted)
        for trans in (0, 1, 2, "N", "T", "C"):
            for unit in (False, True):
                close(linalg.solve_triangular(general, b, trans, lower, unit),
                      scipy.linalg.solve_triangular(general, b, trans, lower, unit), 2e-3)  # fmt: skip
    factors = linalg.lu_factor(general)
    for ours, theirs in zip(factors, scipy.linalg.lu_factor(general)):
        close(ours, theirs)
    for trans in (0, 1, 2):
        close(
            linalg.lu_solve(factors, b, trans), scipy.linalg.lu_solve(scipy.linalg.lu_factor(general), b, trans), 1e-3
        )
    close(linalg.inv(general), np.linalg.inv(general))
    close(linalg.det(general), np.linalg.det(general), 1e-3)


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
@pytest.mark.parametrize("method", ["schur", "eigen"])
def test_sylvester_equations_and_their_derivatives(kind, method):
    a, b, c = (random(*s, kind=kind) for s in ((3, 3), (2, 2), (3, 2)))
    a = a + 3 * np.eye(3, dtype=kind)
    close(linalg.solve_sylvester(a, b, c, method=method), scipy.linalg.solve_sylvester(a, b, c), 1e-3)
    singular = linalg.solve_sylvester(
        np.eye(2, dtype=kind), -np.eye(2, dtype=kind), np.ones((2, 2), kind), method=method
    )
    assert np.isnan(np.asarray(singular)).all()
    if kind == np.float32:
        with phalanx.enable_x64(True):
            wide = [v.astype(np.float64) for v in (a, b, c)]
            phalanx.test_util.check_grads(lambda *v: linalg.solve_sylvester(*v, method=method), wide, 1, rtol=1e-5)


@pytest.mark.parametrize("kind, tol", [(np.float32, 1e-4), (np.complex64, 1e-4), (np.float64, 1e-12)])
@pytest.mark.parametrize("size", [0.01, 1.0, 8.0])
def test_expm(kind, tol, size):
    with phalanx.enable_x64(kind == np.float64):
        a = random(2, 4, 4, kind=kind) * size
        wanted = np.stack([scipy.linalg.expm(m.astype(np.complex128)) for m in a])
        got = np.asarray(linalg.expm(a))
        assert got.dtype == kind
        np.testing.assert_allclose(got, wanted, atol=tol * max(1, abs(wanted).max()))
        upper = np.triu(a[0])
        got = np.asarray(linalg.expm(upper, upper_triangular=True))
        np.testing.assert_allclose(got, scipy.linalg.expm(upper), atol=tol * max(1, abs(got).max()))


def test_expm_of_a_large_matrix_is_nan():
    a = np.stack([np.eye(2), 1e9 * np.eye(2)]).astype(np.float32)
    got = np.asarray(linalg.expm(a))
    close(got[0], np.e * np.eye(2))
    assert np.isnan(got[1]).all()


def test_expm_frechet():
    a, e = random(3, 3), random(3, 3)
    for method in (None, "SPS", "blockEnlarge"):
        for ours, theirs in zip(linalg.expm_frechet(a, e, method=method), scipy.linalg.expm_frechet(a, e)):
            close(ours, theirs, 1e-3)
    close(linalg.expm_frechet(a, e, compute_expm=False), scipy.linalg.expm_frechet(a, e, compute_expm=False), 1e-3)
    with phalanx.enable_x64(True):
        phalanx.test_util.check_grads(linalg.expm, (a.astype(np.float64),), 2, rtol=1e-4)


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
def test_sqrtm_and_funm(kind):
    a = spd(4, kind) + random(4, 4, kind=kind)
    root = linalg.sqrtm(a)
    assert root.dtype == np.complex64
    close(root @ root, a, 1e-3)
    close(root, scipy.linalg.sqrtm(a), 1e-3)
    negative = np.diag(np.float32([-4, 9]))
    close(linalg.sqrtm(negative), np.diag([2j, 3]))
    assert linalg.sqrtm(np.zeros((0, 0), kind)).shape == (0, 0)
    close(linalg.funm(a, jnp.sqrt), scipy.linalg.sqrtm(a), 3e-3)
    value, error = linalg.funm(a, jnp.exp, disp=False)
    wanted = scipy.linalg.expm(a.astype(np.complex128))
    np.testing.assert_allclose(np.asarray(value), wanted, atol=1e-3 * abs(wanted).max())
    assert 0 < error.item() < 1


def test_derivative_of_sqrtm():
    with phalanx.enable_x64(True):
        a = (spd(3) + random(3, 3)).astype(np.float64)
        phalanx.test_util.check_grads(lambda x: linalg.sqrtm(x).real, (a,), 1, rtol=1e-5)
        phalanx.test_util.check_grads(lambda x, y: linalg.solve(x @ x.T, y, assume_a="pos"), (a, a[:, 0]), 1, rtol=1e-4)


REFUSED = {
    "linalg.eigh(A, type=4)": (ArgumentError, "linalg.eigh, argument type: expected 1 or 2 or 3, got 4"),
    "linalg.eigh(A, eigvals=(0, 1))": (ArgumentError, "linalg.eigh, argument eigvals: expected None"),
    "linalg.solve(A, A, assume_a='banded')": (ArgumentError, "linalg.solve, argument assume_a"),
    "linalg.solve(A, A[0, :1])": (ShapeError, "linalg.solve, argument b: expected 2 rows, or a vector of 2"),
    "linalg.schur(A, 'x')": (ArgumentError, "linalg.schur, argument output: expected 'real' or 'complex', got 'x'"),
    "linalg.qr(A, lwork=3)": (ArgumentError, "linalg.qr, argument lwork: expected None, got 3"),
    "linalg.qr(A, mode='raw')": (ArgumentError, "linalg.qr, argument mode"),
    "linalg.sqrtm(A, 2)": (ArgumentError, "linalg.sqrtm, argument blocksize: expected 1, got 2"),
    "linalg.sqrtm(A[None])": (ShapeError, "linalg.sqrtm: expected a square matrix"),
    "linalg.inv(A[:1])": (ShapeError, "linalg.inv: expected a square matrix or a stack of them"),
    "linalg.hadamard(3)": (ArgumentError, "linalg.hadamard, argument n: expected a power of 2, got 3"),
    "linalg.dft(3, dtype='float32')": (DTypeError, "linalg.dft, argument dtype: expected a complex dtype, got float32"),
    "linalg.leslie(A[0], A[0])": (ShapeError, "linalg.leslie, argument s: expected 1 numbers"),
    "linalg.companion(A[0, :1])": (ShapeError, "linalg.companion: expected two coefficients or more"),
    "linalg.eigh_tridiagonal(A[0], A[0])": (ShapeError, "linalg.eigh_tridiagonal: expected diagonals of n and n - 1"),
    "linalg.eigh_tridiagonal(A[0], A[0, :1], select='i')": (ArgumentError, "argument select_range"),
    "phalanx.jit(lambda d: linalg.eigh_tridiagonal(d, d[:1], select='v', select_range=(0, 1)))(A[0])":
        (ConcretizationTypeError, "linalg.eigh_tridiagonal, argument select"),
    "linalg.solve_sylvester(A, A, A[:1])": (ShapeError, "linalg.solve_sylvester: expected matrices"),
    "linalg.expm_frechet(A, A[None])": (ShapeError, "linalg.expm_frechet, argument E"),
    "linalg.convolution_matrix(A, 0)": (ArgumentError, "linalg.convolution_matrix, argument n: expected 1 or more"),
    "linalg.qr_multiply(A, np.ones((3, 3)))": (ShapeError, "linalg.qr_multiply, argument c"),
}  # fmt: skip


@pytest.mark.parametrize("expression", REFUSED)
def test_invalid_arguments_are_errors(expression):
    kind, text = REFUSED[expression]
    with pytest.raises(kind, match=text):
        eval(expression, {"linalg": linalg, "np": np, "phalanx": phalanx, "A": np.eye(2, dtype=np.float32)})
