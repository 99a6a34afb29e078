"""Special functions against SciPy."""

import numpy as np
import pytest
import scipy.special

import phalanx
import phalanx.numpy as jnp
from phalanx.scipy import special

X = np.linspace(-4.3, 4.1, 25).astype(np.float32)
P = np.linspace(0.05, 5.1, 25).astype(np.float32)
U = np.linspace(0.01, 0.99, 25).astype(np.float32)

CASES = [
    *((f, (X,)) for f in "erf erfc expit ndtr log_ndtr i0 i0e i1 i1e gammasgn".split()),
    *((f, (P,)) for f in "gammaln gamma digamma entr factorial".split()),
    *((f, (U,)) for f in "erfinv erfcinv logit ndtri".split()),
    *((f, (P, P[::-1])) for f in "xlogy xlog1py rel_entr kl_div betaln beta gammainc gammaincc boxcox boxcox1p poch".split()),
    ("xlogy", (np.float32([0, 0, 0]), np.float32([0, np.inf, 1]))), ("entr", (np.float32([0, -1, 2]),)),
    ("zeta", (P + 1.1, P)), ("betainc", (P, P[::-1], U)), ("polygamma", (2, P)), ("multigammaln", (P + 1, 3)),
    ("comb", (np.float32([5, 6, 3]), np.float32([2, 6, 4]))), ("logsumexp", (X.reshape(5, 5),)),
    ("log_ndtr", (np.float32([-100.0, -12.0, 9.0]),)), ("softmax", (X,)), ("log_softmax", (X,)),
    # ends of ranges, and numbers so large that differences of logarithms of gamma functions cancel
    ("ndtri", (np.float32([1e-30, 1e-10, 1e-3, 0.08, 0.5, 0.9, 0.999, 1, 0, -1]),)), ("ndtri", (U,)),
    ("erfcinv", (np.float32([2e-38, 1e-30, 1e-3, 0.1, 0.2, 1, 1.7, 1.9, 1.9999999, 0, 2, -1, 3]),)),
    ("gammasgn", (np.float32([-0.0, 0.0]),)), ("loggamma", (np.float32([3.0, -0.5, -1.0]),)), ("zeta", (P + 1.1,)),
    *((f, (np.float32([1e10, 1e3, 3, 0.5]), np.float32([2, 0.5, 1e3, 1e4]))) for f in ("betaln", "beta", "poch")),
    ("comb", (np.float32([1e3, 1e10, 1e10]), np.float32([2, 2, 3.7]))),
    ("xlogy", (np.array([False, True]), np.float32([np.nan, np.nan]))),
    ("xlog1py", (np.array([False, True]), np.float32([np.nan, np.nan]))),
    ("rel_entr", (np.float32([np.nan, 1]), np.float32([1, np.nan]))),
    ("betainc", (np.float32([0, 0, 2, 2, np.inf, 2, 0]), np.float32([2, 2, 0, 0, 2, np.inf, 0]), np.float32([0, 0.5, 0.5, 1, 0.5, 0.5, 0.5]))),
]  # fmt: skip


@pytest.mark.parametrize("name, args", CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_values_equal_scipy(name, args):
    wanted = getattr(scipy.special, name)(*(a.astype(np.float64) if isinstance(a, np.ndarray) else a for a in args))
    np.testing.assert_allclose(np.asarray(getattr(special, name)(*args)), wanted, rtol=2e-4, atol=1e-5)


def test_functions_of_complex_numbers():
    z = (U + 1j * X).astype(np.complex64)
    for name in ("softmax", "log_softmax", "logsumexp"):
        np.testing.assert_allclose(np.asarray(getattr(special, name)(z)), getattr(scipy.special, name)(z), rtol=1e-4)
    plane = (X[:, None] + 1j * np.float32([-3, -0.5, 0, 1e-3, 2, 30])).astype(np.complex64)
    for name in ("gamma", "loggamma"):
        wanted = getattr(scipy.special, name)(plane.astype(np.complex128))
        np.testing.assert_allclose(np.asarray(getattr(special, name)(plane)), wanted, rtol=3e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(special.boxcox(z, 2.0)), (z**2 - 1) / 2, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(special.boxcox1p(z, 2.0)), ((1 + z) ** 2 - 1) / 2, rtol=1e-4)


def test_derivative_of_ndtri():
    x = scipy.special.ndtri(U.astype(np.float64))
    wanted = np.sqrt(2 * np.pi) * np.exp(x * x / 2)
    np.testing.assert_allclose(np.asarray(phalanx.vmap(phalanx.grad(special.ndtri))(U)), wanted, rtol=1e-4)


def test_erfcinv_is_accurate_for_small_values_and_differentiable():
    y = np.concatenate([10.0 ** -np.arange(0.2, 300, 7.3), 2 - U, 2 - 10.0 ** -np.arange(2, 15)])
    x = scipy.special.erfcinv(y)
    with phalanx.enable_x64():
        np.testing.assert_allclose(np.asarray(special.erfcinv(y)), x, rtol=3e-15)
        slopes = np.asarray(phalanx.vmap(phalanx.grad(special.erfcinv))(y))
    np.testing.assert_allclose(slopes, -np.sqrt(np.pi) / 2 * np.exp(x * x), rtol=1e-11)


@pytest.mark.parametrize("axis, keepdims", [(None, False), (0, True), ((0, 1), False), (-1, False)])
def test_logsumexp_takes_axes_factors_and_signs(axis, keepdims):
    x, b = X.reshape(5, 5), np.cos(X).reshape(5, 5)
    got = special.logsumexp(x, axis=axis, b=b, keepdims=keepdims, return_sign=True)
    wanted = scipy.special.logsumexp(x.astype(np.float64), axis=axis, b=b, keepdims=keepdims, return_sign=True)
    for a, w in zip(got, wanted):
        np.testing.assert_allclose(np.asarray(a), w, rtol=1e-4, atol=1e-4)


def test_logsumexp_of_infinities():
    assert special.logsumexp(jnp.array([-jnp.inf, -jnp.inf])).item() == -np.inf
    assert special.logsumexp(jnp.array([jnp.inf, 0.0])).item() == np.inf
    assert special.logsumexp(jnp.array([1.0, 2.0]), where=jnp.array([True, False])).item() == pytest.approx(1.0)


def test_derivatives_are_finite_at_the_edge():
    assert phalanx.grad(special.xlogy, argnums=1)(0.0, 0.0).item() == 0.0
    assert phalanx.grad(lambda x: special.logsumexp(x))(jnp.zeros(2)).tolist() == [0.5, 0.5]
    np.testing.assert_allclose(
        np.asarray(phalanx.vmap(phalanx.grad(special.ndtr))(X)), np.exp(-X * X / 2) / np.sqrt(2 * np.pi), atol=1e-6
    )
    np.testing.assert_allclose(np.asarray(phalanx.grad(special.log_ndtr)(-30.0)), 30.03, rtol=1e-3)


EDGES = [1.0, -1.0, -2.0, -3.0, -0.5, 0.5, 2.0, 3.0, -1.5, 170.0, 0.0, -0.0, np.inf]


@pytest.mark.parametrize("name", ["beta", "betaln", "poch"])
def test_poles_and_infinities_of_the_gamma_function_cancel(name):
    a, b = (v.ravel().astype(np.float32) for v in np.meshgrid(EDGES, EDGES))
    kept = ~(np.isinf(a) & np.isinf(b)) & ((a < np.inf) | (name != "poch"))
    wanted = getattr(scipy.special, name)(a[kept].astype(np.float64), b[kept].astype(np.float64))
    poles = (
        (a[kept] <= 0) & (b[kept] <= 0) & (b[kept] == np.floor(b[kept]))
    )  # where the sign of what is infinite says nothing
    wanted = np.where(abs(wanted) > 3e38, np.where(poles, np.inf, np.copysign(np.inf, wanted)), wanted)
    np.testing.assert_allclose(np.asarray(getattr(special, name)(a[kept], b[kept])), wanted, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("dtype, rtol", [(np.float32, 2e-5), (np.float64, 5e-12)])
def test_the_upper_incomplete_gamma_function_is_exact_for_small_parameters(dtype, rtol):
    parameters = [1e-30, 1e-12, 1e-7, 1e-5, 1e-3, 0.01, 0.0999, 0.1, 0.2, 0.4, 0.6, 1, 1.2]
    a, x = np.meshgrid(parameters, [1e-20, 1e-5, 0.01, 0.3, 0.5, 0.8, 1.05, 1.2, 2, 20])
    with phalanx.enable_x64(dtype is np.float64):
        got = np.asarray(special.gammaincc(a.astype(dtype), x.astype(dtype)))
    wanted = scipy.special.gammaincc(a.astype(dtype).astype(np.float64), x.astype(dtype).astype(np.float64))
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-38)
