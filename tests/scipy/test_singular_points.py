"""Special functions, batches of matrices, and operators, at arguments that a formula excludes."""

import numpy as np
import pytest
import scipy.linalg
import scipy.special

import phalanx
import phalanx.numpy as jnp
from phalanx import nn
from phalanx.scipy import linalg, special
from phalanx.scipy.sparse import linalg as solvers


def test_polar_rsf2csf_and_sylvester_broadcast_batches():
    rng = np.random.RandomState(0)
    x = rng.randn(3, 5, 3).astype("float32")
    for method in ("qdwh", "svd"):
        u, p = linalg.polar(x, method=method)
        np.testing.assert_allclose(np.asarray(u) @ np.asarray(p), x, atol=1e-5)
    a, b, c = (rng.randn(*s).astype("float32") for s in ((3, 3), (2, 4, 4), (2, 3, 4)))
    y = np.asarray(linalg.solve_sylvester(a, b, c))
    np.testing.assert_allclose(a @ y + y @ b, c, atol=1e-3)
    t, z = scipy.linalg.schur(rng.randn(4, 4).astype("float32"))
    np.testing.assert_allclose(linalg.rsf2csf(np.stack([t, t]), z)[0][1], scipy.linalg.rsf2csf(t, z)[0], atol=1e-4)


def test_special_functions_at_points_where_a_formula_is_singular():
    # The mixed derivative of x log1p(y) is 1 / (1 + y), also at x = 0.
    hessian = phalanx.hessian(lambda v: special.xlog1py(v[0], v[1]))(np.array([0.0, 3.0]))
    np.testing.assert_allclose(hessian, [[0, 0.25], [0.25, 0]])
    # SciPy takes the magnitude of sin(theta) outside of [0, pi].
    wanted = scipy.special.sph_harm_y([1, 1, 3], [1, -1, 1], -0.7, 0.2)
    np.testing.assert_allclose(
        special.sph_harm_y(np.array([1, 1, 3]), np.array([1, -1, 1]), -0.7, 0.2), wanted, rtol=1e-5
    )
    # An excluded element that overflows does not reach the derivative.
    gradient = phalanx.grad(lambda x: special.logsumexp(x, where=np.arange(3) < 2))(np.array([0.0, 0.0, 200.0]))
    np.testing.assert_allclose(gradient, [0.5, 0.5, 0])


def test_krylov_solvers_take_objects_that_multiply_and_matrices_of_right_hand_sides():
    class Double:
        def __matmul__(self, x):
            return 2 * x

    b = jnp.arange(9.0).reshape(3, 3)
    np.testing.assert_allclose(solvers.gmres(Double(), b)[0], b / 2, atol=1e-5)
    np.testing.assert_allclose(solvers.cg(2 * jnp.eye(3), b)[0], b / 2, atol=1e-5)


def test_standardize_of_equal_elements_is_finite():
    assert np.isfinite(nn.standardize(np.full(3, -11.0 + 3e-6, "float32"))).all()


def test_rsf2csf_rotates_as_scipy_does_where_a_matrix_is_no_schur_form():
    t, z = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32).view(np.complex64)
    for got, wanted in zip(linalg.rsf2csf(t, z), scipy.linalg.rsf2csf(t, z), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_hyp2f1_at_poles_and_polynomials():
    nan = np.nan
    points = np.array([
        (1, 2, 3, 0), (nan, 1, 0, 0), (0, nan, 1, 0.5), (2, 0, -1, 2), (0.5, 2, 0, 0.5), (2, nan, -1, 1), (1, nan, 0, nan),
        (nan, 0.5, 2, 1), (1, 2, nan, 1), (-1, 0.5, -2, 0.5), (0.5, -2, -3, 3), (1, -1.5, -1.5, 2), (1, 0.5, -1.5, 2),
        (2, 2, 2, 2), (1, 1, 2, 2), (0.5, 1, 1.5, -0.5),
    ], np.float32).T  # fmt: skip
    np.testing.assert_allclose(special.hyp2f1(*points), scipy.special.hyp2f1(*points.astype(np.float64)), rtol=1e-5)
    slope = phalanx.grad(special.hyp2f1, 3)(0.5, 1.0, 1.5, 0.3)
    np.testing.assert_allclose(slope, 0.5 / 1.5 * scipy.special.hyp2f1(1.5, 2, 2.5, 0.3), rtol=1e-5)


def test_betainc_of_invalid_parameters_is_nan():
    a, b = np.array([(0, -1), (-1, 0), (np.nan, np.inf), (np.inf, np.nan), (np.inf, -0.5), (0, 0)], np.float32).T[
        :, None
    ]
    assert np.isnan(special.betainc(a, b, np.float32([[0], [0.5], [1]]))).all()


@pytest.mark.parametrize(
    "function, at, expected",
    [
        (jnp.logaddexp, (0.5, 0.5), [[0.25, -0.25], [-0.25, 0.25]]),
        (jnp.logaddexp2, (0.0, 0.0), [[0.173287, -0.173287], [-0.173287, 0.173287]]),
        (special.betaln, (0.5, 0.5), [[3.289868, -1.644934], [-1.644934, 3.289868]]),
        (lambda x, y: x**y, (2.0, 0.0), [[0.0, 0.5], [0.5, 0.480453]]),
        (special.poch, (1.0, 0.0), [[0.0, 1.644934], [1.644934, 1.978112]]),
    ],
)
def test_second_derivatives_where_an_implementation_selects(function, at, expected):
    # Of the formulas: p(1-p) of the logistic function, trigamma, and x^(-1) and log(x)^2 for powers.
    np.testing.assert_allclose(phalanx.hessian(function, (0, 1))(*at), expected, rtol=1e-4, atol=1e-5)


def test_third_derivatives_of_a_power_at_the_exponent_zero():
    third = phalanx.jacfwd(phalanx.hessian(lambda v: v[0] ** v[1]))(jnp.array([1.0, 0.0]))
    # d^3/dx^2 dy = (2y - 1) x^(y - 2) + ... = -1, whatever the order; the others vanish.
    np.testing.assert_allclose(third, [[[0, -1], [-1, 0]], [[-1, 0], [0, 0]]], atol=1e-5)


@pytest.mark.parametrize("function", [nn.softplus, nn.mish])
def test_rules_of_activations_take_python_numbers(function):
    np.testing.assert_allclose(phalanx.jvp(function, (0.5,), (1.0,))[1], phalanx.grad(function)(0.5), rtol=1e-6)
