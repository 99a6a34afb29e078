"""Derivatives of array functions match finite differences, transposes match tangents, vmap matches a loop."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp

_r = np.random.default_rng(1)
A, B, V = _r.normal(size=(3, 4)), _r.normal(size=(4, 3)), _r.normal(size=4)
S = (lambda m: m @ m.T + 4 * np.eye(4))(_r.normal(size=(4, 4)))
K = np.array([2, 0, 1, 1])

CASES = {
    "sum": (lambda x: jnp.sum(x * x, axis=0), A),
    "mean with a mask": (lambda x: jnp.mean(x, axis=1, where=x > -0.5), A),
    "var": (lambda x: jnp.var(x, axis=1, ddof=1), A),
    "std": (lambda x: jnp.std(x), A),
    "max": (lambda x: jnp.max(x, axis=1), A),
    "prod": (lambda x: jnp.prod(x, axis=0), A),
    "cumsum": (lambda x: jnp.cumsum(x, axis=1), A),
    "cumprod": (lambda x: jnp.cumprod(x, axis=1), A),
    "sort": (lambda x: jnp.sort(x, axis=1) * V, A),
    "median": (lambda x: jnp.median(x, axis=1), A),
    "quantile": (lambda x: jnp.quantile(x, 0.3, axis=1), A),
    "sinc": (lambda x: jnp.sinc(x), np.array([0.0, 1e-4, 0.3, -2.0])),
    "logaddexp": (lambda x: jnp.logaddexp(x, V), A),
    "hypot": (lambda x: jnp.hypot(x, V), A),
    "where": (lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), x), A),
    "clip": (lambda x: jnp.clip(x, -0.5, 0.5), A),
    "power": (lambda x: jnp.abs(x) ** 1.5 + x**3, A),
    "remainder": (lambda x: x % 0.7, A),
    "concatenate": (lambda x: jnp.concatenate([x, 2 * x], axis=1), A),
    "stack": (lambda x: jnp.stack([x, x * x], axis=1), A),
    "pad": (lambda x: jnp.pad(x, 2, mode="reflect"), A),
    "roll": (lambda x: jnp.roll(x, 2, axis=1) * V, A),
    "repeat": (lambda x: jnp.repeat(x, np.array([1, 0, 2]), axis=0), A),
    "tile": (lambda x: jnp.tile(x, (2, 1)), A),
    "diagonal": (lambda x: jnp.diagonal(x, 1), A),
    "tril": (lambda x: jnp.tril(x), A),
    "take": (lambda x: jnp.take(x, K, axis=1), A),
    "take_along_axis": (lambda x: jnp.take_along_axis(x, jnp.argsort(x, axis=1), 1) * V, A),
    "einsum": (lambda x: jnp.einsum("ij,jk,k->i", x, B, V[:3]), A),
    "einsum diagonal": (lambda x: jnp.einsum("ii->i", x), S),
    "matmul": (lambda x: x @ B, A),
    "tensordot": (lambda x: jnp.tensordot(x, B, ((0, 1), (1, 0))), A),
    "kron": (lambda x: jnp.kron(x, B[:2]), A),
    "convolve": (lambda x: jnp.convolve(x, V[:3], "same"), A[0]),
    "interp": (lambda x: jnp.interp(x, np.array([-2.0, 0.0, 2.0]), np.array([1.0, 5.0, 2.0])), A),
    "gradient": (lambda x: jnp.gradient(x, axis=1), A),
    "linspace": (lambda x: jnp.linspace(x, 2 * x, 3), V),
    "solve": (lambda x: jnp.linalg.solve(x, V), S),
    "inv": (lambda x: jnp.linalg.inv(x), S),
    "det": (lambda x: jnp.linalg.det(x), S),
    "slogdet": (lambda x: jnp.linalg.slogdet(x)[1], S),
    "cholesky": (lambda x: jnp.linalg.cholesky(x), S),
    "pinv": (lambda x: jnp.linalg.pinv(x), A),
    "norm": (lambda x: jnp.linalg.norm(x, axis=1), A),
    "singular values": (lambda x: jnp.linalg.svd(x, compute_uv=False), A),
    "eigenvalues": (lambda x: jnp.linalg.eigvalsh(x), S),
    "fft": (lambda x: jnp.abs(jnp.fft.rfft(x, axis=1)), A),
    "polyval": (lambda x: jnp.polyval(x, 1.3), V),
    "cov": (lambda x: jnp.cov(x), A),
    "cross": (lambda x: jnp.cross(x[:, :3], B[:3].T[:, :3]), A),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_tangents_match_finite_differences_and_cotangents_are_their_adjoint(name):
    function, x = CASES[name]
    with phalanx.enable_x64(True):
        t = np.random.default_rng(2).normal(size=x.shape)
        y, y_dot = phalanx.jit(lambda x, t: phalanx.jvp(function, (x,), (t,)))(x, t)
        h = 1e-6
        differences = (np.asarray(function(x + h * t)) - np.asarray(function(x - h * t))) / (2 * h)
        np.testing.assert_allclose(np.asarray(y_dot), differences, rtol=1e-5, atol=1e-6)
        y_bar = np.random.default_rng(3).normal(size=y.shape)
        (x_bar,) = phalanx.jit(lambda x, y_bar: phalanx.vjp(function, x)[1](y_bar))(x, y_bar)
        np.testing.assert_allclose(
            np.sum(np.asarray(x_bar) * t), np.sum(y_bar * np.asarray(y_dot)), rtol=1e-8, atol=1e-9
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_eager_gradients_equal_compiled_gradients(name):
    function, x = CASES[name]
    with phalanx.enable_x64(True):
        gradient = phalanx.grad(lambda x: jnp.sum(function(x)))
        np.testing.assert_allclose(np.asarray(gradient(x)), np.asarray(phalanx.jit(gradient)(x)), rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_vmap_equals_a_loop(name):
    function, x = CASES[name]
    xs = np.stack([x, x * 1.1, x * 0.9]).astype(np.float32)
    wanted = np.stack([np.asarray(function(jnp.asarray(v))) for v in xs])
    np.testing.assert_allclose(np.asarray(phalanx.vmap(function)(xs)), wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", CASES)
def test_compiled_equals_eager(name):
    function, x = CASES[name]
    x = x.astype(np.float32)
    np.testing.assert_allclose(
        np.asarray(phalanx.jit(function)(x)), np.asarray(function(jnp.asarray(x))), rtol=1e-4, atol=1e-4
    )


def test_second_derivative_of_sinc_at_zero():
    assert phalanx.grad(phalanx.grad(jnp.sinc))(0.0).item() == pytest.approx(-(np.pi**2) / 3, rel=1e-4)


def test_the_derivative_of_logaddexp_at_equal_infinities_is_finite():
    assert phalanx.grad(jnp.logaddexp)(-jnp.inf, -jnp.inf).item() in (0.5, 0.0)
