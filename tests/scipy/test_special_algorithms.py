"""Special functions that are algorithms, against SciPy, in 32 and 64 bits, with their derivatives."""

import numpy as np
import pytest
import scipy.special

import phalanx
from phalanx.errors import ArgumentError, ConcretizationTypeError, DTypeError
from phalanx.scipy import special

X = np.array(
    [-60, -9.3, -3.9, -1.6, -1, -0.3, 0, 1e-6, 0.2, 0.3725, 0.5, 0.9, 1, 1.4, 1.6, 2, 3.3, 4.2, 6.4, 8.8, 30, 45, 80]
)
P = X[X > 0]
A, B = np.array([0.3, 1.0, 2.5, -2.0, -0.7, 4.0]), np.array([1.2, 3.4, 0.6])
GRID = [v.ravel() for v in np.meshgrid(A, B, X[(X > -50) & (X < 60)])]
GAUSS = [
    v.ravel()
    for v in np.meshgrid(A, [0.4, 1.7, -1.3], [1.25, 3.1], [-8, -0.95, -0.4, 0, 0.3, 0.6, 0.85, 0.93, 0.99, 1, 1.5])
]

CASES = [
    ("erfcx", (X[X > -9],)), ("dawsn", (X,)), ("fresnel", (X,)), ("exp1", (X,)), ("expi", (X,)), ("spence", (X,)),
    ("sici", (X,)), ("expn", (np.array([[0.0], [1], [2], [3], [7], [30]]), np.append(P, 0.0))),
    ("owens_t", (X[X > -10][:, None], np.array([-3, -1, -0.4, 0, 1e-3, 0.7, 1, 1.3, 5, 40, np.inf]))),
    ("hyp1f1", tuple(GRID)), ("hyp2f1", tuple(GAUSS)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name, args", CASES, ids=[c[0] for c in CASES])
def test_values(name, args, dtype):
    args = [a.astype(dtype) for a in args]
    with phalanx.enable_x64(dtype is np.float64), np.errstate(all="ignore"):
        got = getattr(special, name)(*args)
        wanted = getattr(scipy.special, name)(*(a.astype(np.float64) for a in args))
    tol = 3e-4 if dtype is np.float32 else 2e-9 if name.startswith("hyp") else 2e-12
    for g, w in zip(got, wanted) if isinstance(got, tuple) else ((got, wanted),):
        assert g.dtype == dtype
        w = np.where(abs(w) > np.finfo(dtype).max, np.copysign(np.inf, w), w)
        np.testing.assert_allclose(np.asarray(g), w, rtol=tol, atol=1e-37 if name == "erfcx" else tol / 100)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_wofz(dtype):
    z = (np.linspace(-11, 11, 23)[:, None] + 1j * np.array([-3, -0.7, 0, 1e-3, 0.4, 2, 9, 60])).astype(dtype)
    z = z[(z * z).real > -60]
    with phalanx.enable_x64(dtype is np.complex128):
        got = np.asarray(special.wofz(z))
    wanted = scipy.special.wofz(z)
    np.testing.assert_allclose(got, wanted, rtol=5e-4 if dtype is np.complex64 else 1e-10)
    assert special.wofz(0.5).dtype == np.complex64


@pytest.mark.one_is_quick(group=lambda name, args: name)
@pytest.mark.parametrize(
    "name, args",
    [("erfcx", (0.7,)), ("erfcx", (-0.7,)), ("dawsn", (1.2,)), ("exp1", (0.4,)), ("expi", (2.1,)), ("expi", (-0.4,)),
     ("spence", (0.3,)), ("spence", (3.0,)), ("owens_t", (0.6, 1.7)), ("hyp1f1", (0.7, 1.6, 2.3)),
     ("hyp1f1", (0.7, 1.6, -2.3)), ("hyp1f1", (0.7, 1.6, 47.0)), ("hyp2f1", (0.7, 1.3, 2.9, 0.4)),
     ("hyp2f1", (0.7, 1.3, 2.95, -3.4)), ("hyp2f1", (0.7, 1.3, 2.6, 0.94))],
)  # fmt: skip
def test_derivatives(name, args):
    with phalanx.enable_x64(True):
        function = getattr(special, name)
        for i in range(len(args)):
            got = phalanx.grad(function, i)(*args).item()
            step = 1e-6 * max(1, abs(args[i]))
            low, high = (
                getattr(scipy.special, name)(*(v + (j == i) * s for j, v in enumerate(args))) for s in (-step, step)
            )
            assert got == pytest.approx((high - low) / (2 * step), rel=2e-5)


def test_derivatives_of_pairs_and_of_whole_orders():
    with phalanx.enable_x64(True):
        for name in ("sici", "fresnel"):
            for x in (0.6, 2.7, 5.1, -0.8):
                got = phalanx.jacfwd(getattr(special, name))(x)
                pairs = [getattr(scipy.special, name)(x + s) for s in (-1e-6, 1e-6)]
                np.testing.assert_allclose([float(g) for g in got], (np.array(pairs[1]) - pairs[0]) / 2e-6, rtol=1e-6)
        assert phalanx.grad(special.expn, 1)(3, 0.8).item() == pytest.approx(-scipy.special.expn(2, 0.8))
        assert phalanx.grad(special.expn, 1)(1, 0.8).item() == pytest.approx(-np.exp(-0.8) / 0.8)
        slope = phalanx.grad(lambda z: special.wofz(z + 0.3j).real)(0.4).item()
        assert slope == pytest.approx(
            (scipy.special.wofz(0.400001 + 0.3j) - scipy.special.wofz(0.399999 + 0.3j)).real / 2e-6
        )


@pytest.mark.parametrize("dtype, tol", [(np.float32, 2e-4), (np.float64, 1e-11)])
def test_bessel_jn(dtype, tol):
    z = np.array([-7.5, -1, 0, 1e-3, 0.5, 2.404825557695773, 8.3, 20]).astype(dtype)
    with phalanx.enable_x64(dtype is np.float64):
        got = np.asarray(special.bessel_jn(z, v=12, n_iter=60))
        assert phalanx.grad(lambda x: special.bessel_jn(x, v=1)[0])(0.7).item() == pytest.approx(
            -scipy.special.jv(1, 0.7)
        )
    assert got.shape == (13, 8)
    np.testing.assert_allclose(got, scipy.special.jv(np.arange(13)[:, None], z.astype(float)), atol=tol, rtol=tol)


@pytest.mark.parametrize("dtype, tol", [(np.float32, 3e-4), (np.float64, 1e-10)])
def test_spherical_harmonics(dtype, tol):
    n, m = (v.ravel() for v in np.meshgrid(np.arange(12), np.arange(-12, 13)))
    theta, phi = np.array([0, 0.3, 1.6, 3.0]).astype(dtype), np.array([0.2, -1, 4, 7]).astype(dtype)
    with phalanx.enable_x64(dtype is np.float64):
        got = np.asarray(special.sph_harm_y(n[:, None], m[:, None], theta, phi))
    wanted = scipy.special.sph_harm_y(n[:, None], m[:, None], theta.astype(float), phi.astype(float))
    np.testing.assert_allclose(got, np.nan_to_num(wanted), atol=tol)
    inside = phalanx.jit(lambda n: special.sph_harm_y(n, 1, 0.3, 0.2, n_max=4))(np.int32(4))
    assert inside.item() == pytest.approx(scipy.special.sph_harm_y(4, 1, 0.3, 0.2), rel=1e-4)


def test_bernoulli_numbers():
    np.testing.assert_allclose(np.asarray(special.bernoulli(30)), scipy.special.bernoulli(30), rtol=1e-6, atol=1e-12)


REFUSED = {
    "special.dawsn(1j)": (DTypeError, "dawsn: expected real numbers, got complex64"),
    "special.bernoulli(-1)": (ArgumentError, "bernoulli, argument n: expected 0 or more, got -1"),
    "special.bessel_jn(1.0, v=50)": (ArgumentError, "bessel_jn, argument v: expected an order from 0 to 49, got 50"),
    "special.bessel_jn(1j, v=1)": (DTypeError, "bessel_jn: expected real numbers"),
    "special.sph_harm_y(1, 0, 0.1, 0.1, 1)": (ArgumentError, "sph_harm_y, argument diff_n: expected None, got 1"),
    "phalanx.jit(lambda n: special.sph_harm_y(n, 0, 0.1, 0.1))(1)": (ConcretizationTypeError, "pass the largest degree as n_max"),
}  # fmt: skip


@pytest.mark.parametrize("expression", REFUSED)
def test_invalid_arguments_are_errors(expression):
    kind, text = REFUSED[expression]
    with pytest.raises(kind, match=text):
        eval(expression, {"special": special, "phalanx": phalanx})
