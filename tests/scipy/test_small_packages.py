"""The cosine transform, places between points, codes and integrals, against SciPy."""

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.fft
import scipy.integrate
import scipy.ndimage

import phalanx
import phalanx.numpy as jnp
from phalanx.errors import ArgumentError, AxisError, DTypeError, ShapeError
from phalanx.scipy import cluster, fft, integrate, linalg, ndimage, signal, spatial, special, stats

rng = np.random.default_rng(0)
X = rng.normal(size=(4, 5)).astype(np.float32)


@pytest.mark.one_is_quick(group=lambda kind, norm: kind)
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("kind", [2, 3])
def test_dct_and_its_inverse(kind, norm):
    for n, axis in ((None, -1), (1, 0), (3, 0), (8, 1), (7, -2)):
        for name in ("dct", "idct"):
            wanted = getattr(scipy.fft, name)(X, kind, n, axis, norm)
            np.testing.assert_allclose(np.asarray(getattr(fft, name)(X, kind, n, axis, norm)), wanted, atol=1e-5)
    for s, axes in ((None, None), ((3, 8), None), ((6,), (0,)), (None, (1, 0))):
        for name in ("dctn", "idctn"):
            wanted = getattr(scipy.fft, name)(X, kind, s, axes, norm)
            np.testing.assert_allclose(np.asarray(getattr(fft, name)(X, kind, s, axes, norm)), wanted, atol=3e-5)


def test_dct_has_derivatives_and_keeps_dtypes():
    phalanx.test_util.check_grads(lambda x: fft.idct(fft.dct(x) ** 2), (X,), 1, rtol=2e-2, atol=2e-2)
    assert fft.dct(X.astype(np.float16)).dtype == np.float16
    assert fft.dct(np.arange(3)).dtype == np.float32
    with phalanx.enable_x64(True):
        wide = X.astype(np.float64)
        np.testing.assert_allclose(np.asarray(fft.idct(fft.dct(wide))), wide, rtol=1e-12)


@pytest.mark.parametrize("mode", ["constant", "nearest", "mirror", "reflect", "wrap"])
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates(mode, order):
    places = [rng.uniform(-6, 10, size=(3, 7)).astype(np.float32) for _ in range(2)]
    # SciPy's names of what is meant: the constant and the other side are there at whole places only.
    theirs = {"constant": "grid-constant", "wrap": "grid-wrap"}.get(mode, mode)
    for x in (X, (X * 10).astype(np.int32)):
        wanted = scipy.ndimage.map_coordinates(x, places, order=order, mode=theirs, cval=2.0)
        got = ndimage.map_coordinates(x, places, order, mode, 2.0)
        assert got.dtype == x.dtype
        np.testing.assert_allclose(np.asarray(got), wanted, atol=1e-4 if x.dtype == np.float32 else 1)


def test_derivatives_of_map_coordinates():
    place = np.float32([0.4, 2.3])
    slope = phalanx.jacfwd(lambda p: ndimage.map_coordinates(jnp.array([0.0, 1.0, 4.0, 9.0]), [p], 1))(place)
    np.testing.assert_allclose(np.asarray(slope), [[1, 0], [0, 5]], rtol=1e-6)


def test_vq_finds_the_nearest_codes():
    for obs, codes in ((X, X[:2] + 1), (X[0], X[1, :2])):
        for ours, theirs in zip(cluster.vq.vq(obs, codes), scipy.cluster.vq.vq(obs, codes)):
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5)


def test_trapezoid():
    wanted = scipy.integrate.trapezoid(X, dx=0.5)
    np.testing.assert_allclose(np.asarray(integrate.trapezoid(X, dx=0.5)), wanted, rtol=1e-5)


REFUSED = {
    "fft.dct(X, 1)": (ArgumentError, "fft.dct, argument type: expected 2 or 3, got 1"),
    "fft.idct(X, norm='x')": (ArgumentError, "fft.idct, argument norm"),
    "fft.dct(X, n=0)": (ArgumentError, "fft.dct, argument s: expected 1 lengths of 1 or more"),
    "fft.dct(X, axis=2)": (AxisError, "fft.dct, argument axis: expected an axis of an array of rank 2, got 2"),
    "fft.dctn(X, s=(2,), axes=(0, 1))": (ArgumentError, "fft.dctn, argument s: expected 2 lengths"),
    "fft.dct(X + 1j)": (DTypeError, "fft.dct: expected real numbers, got complex64"),
    "ndimage.map_coordinates(X, [X, X], 3)": (ArgumentError, "ndimage.map_coordinates, argument order: expected 0 or 1"),
    "ndimage.map_coordinates(X, [X, X], 1, 'x')": (ArgumentError, "ndimage.map_coordinates, argument mode"),
    "ndimage.map_coordinates(X, [X], 1)": (ShapeError, "ndimage.map_coordinates, argument coordinates: expected 2"),
    "cluster.vq.vq(X, X[0])": (ShapeError, "cluster.vq: expected two vectors, or matrices with as many columns"),
}  # fmt: skip


@pytest.mark.parametrize("expression", REFUSED)
def test_invalid_arguments_are_errors(expression):
    kind, text = REFUSED[expression]
    with pytest.raises(kind, match=text):
        eval(expression, {"fft": fft, "ndimage": ndimage, "cluster": cluster, "X": X})


_BATCH = np.random.default_rng(5).uniform(0.1, 1.0, (2, 4, 4)).astype(np.float32)
_ROTATIONS = "spatial.transform.Rotation.from_quat(x[0])"


@pytest.mark.parametrize("expression", [
    "fft.dct(x)", "fft.idctn(x, norm='ortho')", "fft.dct(x, norm='ortho')", "linalg.expm(x)", "linalg.lu(x)[1]",
    "signal.stft(x, nperseg=2)[2]", "signal.welch(x, nperseg=2)[1]", "special.multigammaln(x + 2, 2)",
    "special.comb(x[0] + 3, x)", "special.comb(x, x[0])",
    "stats.multivariate_normal.logpdf(x, x[0, 0], jnp.eye(4))", "stats.gaussian_kde(x[0, :2])(x[0, :2])",
    "stats.multinomial.logpmf(jnp.ones((2, 4)), 4.0, jnp.ones(4) / 4)", f"{_ROTATIONS}.inv().as_quat()",
    f"({_ROTATIONS} * {_ROTATIONS}[0]).as_quat()", f"{_ROTATIONS}[0].apply(x[0, :, :3])",
])  # fmt: skip
def test_functions_that_broadcast_do_so_where_operators_must_not(expression):
    def compute():
        packages = {
            "fft": fft,
            "linalg": linalg,
            "signal": signal,
            "spatial": spatial,
            "special": special,
            "stats": stats,
        }
        return eval(expression, {"x": _BATCH, "jnp": jnp, **packages})

    with phalanx.numpy_rank_promotion("raise"), phalanx.numpy_dtype_promotion("strict"):
        strict = compute()
    np.testing.assert_array_equal(strict, compute())
