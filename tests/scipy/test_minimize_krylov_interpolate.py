"""Minima, systems solved by iteration, and values between points of a grid."""

import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize

import phalanx
import phalanx.numpy as jnp
from phalanx.errors import ArgumentError, ConcretizationTypeError, ShapeError
from phalanx.scipy import interpolate, optimize
from phalanx.scipy.sparse import linalg

rng = np.random.default_rng(0)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def himmelblau(p):
    x, y = p
    return (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2


def matyas(p):
    return 0.26 * (p**2).sum() - 0.48 * p[0] * p[1]


def bowl(x, scale):
    return jnp.logaddexp(x, -2 * x).sum() + (scale * x**2).sum()


@pytest.mark.parametrize(
    "fun, start, args",
    [(rosenbrock, np.zeros(2), ()), (rosenbrock, np.full(6, -1.2), ()), (himmelblau, np.ones(2), ()),
     (matyas, np.array([9.0, -4.0]), ()), (bowl, np.array([30.0, -9, 1]), (np.array([1e-3, 1, 20]),))],
)  # fmt: skip
def test_minimize_finds_the_minimum(fun, start, args):
    with phalanx.enable_x64(True):
        found = phalanx.jit(lambda x: optimize.minimize(fun, x, args, method="BFGS"))(start)
        slope = phalanx.jit(phalanx.value_and_grad(lambda x: fun(x, *args)))
        wanted = scipy.optimize.minimize(lambda x: [np.asarray(v) for v in slope(x)], start, method="BFGS", jac=True)
    assert bool(found.success) and found.status.item() == 0
    np.testing.assert_allclose(np.asarray(found.x), wanted.x, atol=1e-3)
    assert abs(np.asarray(found.jac)).max() <= 1e-5
    assert found.nfev.item() <= 2 * wanted.nfev + 10
    assert found.hess_inv.shape == (len(start),) * 2


def test_minimize_in_single_precision_and_under_vmap():
    starts = rng.normal(size=(5, 2)).astype(np.float32)
    found = phalanx.vmap(lambda x: optimize.minimize(matyas, x, method="bfgs", tol=1e-3))(starts)
    assert found.x.dtype == np.float32 and np.asarray(found.success).all()
    np.testing.assert_allclose(np.asarray(found.x), 0, atol=0.1)


def test_minimize_reports_failure():
    stopped = optimize.minimize(rosenbrock, np.zeros(2, np.float32), method="BFGS", options={"maxiter": 3})
    assert (bool(stopped.success), stopped.status.item(), stopped.nit.item()) == (False, 1, 3)
    flat = optimize.minimize(lambda x: -x.sum(), np.zeros(1, np.float32), method="BFGS", options={"maxiter": 5})
    assert not bool(flat.success)


N = 6
GENERAL = rng.normal(size=(N, N)) + 4 * np.eye(N)
SOLVERS = {"cg": GENERAL @ GENERAL.T, "bicgstab": GENERAL, "gmres": GENERAL}


@pytest.mark.parametrize("kind", [np.float64, np.complex128])
@pytest.mark.parametrize("name", SOLVERS)
def test_krylov_solvers_and_their_derivatives(name, kind):
    turn = np.exp(1j * rng.uniform(size=N)) if kind is np.complex128 else np.ones(N)
    a = (turn[:, None] * SOLVERS[name] * turn.conj()).astype(kind)
    b = (rng.normal(size=N) * turn).astype(kind)
    wanted = np.linalg.solve(a, b)

    def multiply(x):
        y = a @ jnp.concatenate([x["p"], x["q"]])
        return {"p": y[:4], "q": y[4:]}

    solve = getattr(linalg, name)
    with phalanx.enable_x64(True):
        for options in ({}, {"M": np.diag(1 / np.diag(a))}, {"x0": b}):
            np.testing.assert_allclose(np.asarray(solve(a, b, tol=1e-12, **options)[0]), wanted, rtol=1e-8)
        found, _ = solve(multiply, {"p": b[:4], "q": b[4:]}, tol=1e-12)
        np.testing.assert_allclose(np.asarray(found["q"]), wanted[4:], rtol=1e-8)
        if kind is np.float64:
            given = lambda a, b: solve((a + a.T) / 2 if name == "cg" else a, b, tol=1e-13)[0]
            phalanx.test_util.check_grads(given, (a, b), 1, rtol=1e-5)
        many = phalanx.vmap(lambda b: solve(a, b, tol=1e-12)[0])(np.stack([b, 2 * b]))
        np.testing.assert_allclose(np.asarray(many), np.stack([wanted, 2 * wanted]), rtol=1e-8)


def test_gmres_restarts_and_stops():
    with phalanx.enable_x64(True):
        b = np.ones(N)
        found = linalg.gmres(GENERAL, b, restart=3, tol=1e-10, solve_method="incremental")[0]
        np.testing.assert_allclose(np.asarray(found), np.linalg.solve(GENERAL, b), rtol=1e-6)
        assert np.asarray(linalg.cg(SOLVERS["cg"], b, maxiter=0)[0]).tolist() == [0.0] * N
        assert np.asarray(linalg.gmres(np.eye(N), b * 0)[0]).tolist() == [0.0] * N
    assert linalg.cg(2 * np.eye(2, dtype=np.float32), np.array([1, 2]))[0].tolist() == [0.5, 1.0]


POINTS = (np.array([0.0, 1, 3, 4]), np.array([-1.0, 0.5, 2]))
VALUES = rng.normal(size=(4, 3, 2))
PLACES = rng.uniform([-0.5, -1.5], [4.5, 2.5], size=(5, 7, 2))


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill_value", [np.nan, -1.0, None])
def test_regular_grid_interpolator(method, fill_value):
    with phalanx.enable_x64(True):
        ours = interpolate.RegularGridInterpolator(POINTS, VALUES, method, fill_value=fill_value)
        theirs = scipy.interpolate.RegularGridInterpolator(POINTS, VALUES, method, False, fill_value)
        np.testing.assert_allclose(np.asarray(ours(PLACES)), theirs(PLACES), rtol=1e-11)
        on_points = np.stack(np.meshgrid(*POINTS, indexing="ij"), -1)
        np.testing.assert_allclose(np.asarray(phalanx.jit(lambda f, x: f(x))(ours, on_points)), VALUES, rtol=1e-11)
        np.testing.assert_allclose(np.asarray(ours((PLACES[..., 0], PLACES[..., 1]))), theirs(PLACES), rtol=1e-11)


def test_interpolator_derivatives_and_bounds_errors():
    grid = (np.float32([0, 1, 3]),), np.float32([0, 2, 10])
    slope = phalanx.grad(lambda x: interpolate.RegularGridInterpolator(*grid)(x)[0])
    assert slope(np.float32([[2.0]])).tolist() == [[4.0]]
    function = interpolate.RegularGridInterpolator(*grid, bounds_error=True)
    with pytest.raises(ArgumentError, match="expected points inside of the grid, got 1 outside"):
        function(np.float32([[1], [4]]))
    with pytest.raises(ConcretizationTypeError, match="argument bounds_error: expected False under tracing"):
        phalanx.jit(function)(np.float32([[1], [4]]))


REFUSED = {
    "optimize.minimize(F, np.zeros(2), method='newton')": (ArgumentError, "argument method: expected 'BFGS', got 'newton'"),
    "optimize.minimize(F, np.zeros(2), method='BFGS', options={'x': 1})": (ArgumentError, "argument options: expected 'norm'"),
    "optimize.minimize(F, np.zeros((2, 2)), method='BFGS')": (ShapeError, "argument x0: expected a vector"),
    "linalg.cg(np.ones((2, 3)), np.ones(3))": (ShapeError, "sparse.linalg.cg, argument A: expected a square matrix"),
    "linalg.gmres(np.eye(2), np.ones(2), x0=np.ones(3))": (ShapeError, "sparse.linalg.gmres, argument x0: expected 2"),
    "linalg.gmres(np.eye(2), np.ones(2), solve_method='x')": (ArgumentError, "sparse.linalg.gmres, argument solve_method"),
    "interpolate.RegularGridInterpolator(([0, 1],), [1, 2], 'cubic')": (ArgumentError, "argument method"),
    "interpolate.RegularGridInterpolator(([0, 1],), [1, 2, 3])": (ShapeError, "argument values: expected a grid of"),
    "interpolate.RegularGridInterpolator(([0, 1],), [1, 2])(np.ones((3, 2)))": (ShapeError, "argument xi: expected 1"),
}  # fmt: skip


@pytest.mark.parametrize("expression", REFUSED)
def test_invalid_arguments_are_errors(expression):
    kind, text = REFUSED[expression]
    with pytest.raises(kind, match=text):
        eval(
            expression, {"optimize": optimize, "linalg": linalg, "interpolate": interpolate, "np": np, "F": rosenbrock}
        )


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_krylov_solvers_keep_weak_types(name):
    solution, _ = getattr(phalanx.scipy.sparse.linalg, name)(lambda b: b, {"x": 1.0, "y": jnp.ones(2)})
    assert (solution["x"].weak_type, solution["y"].weak_type) == (True, False)
