"""Distributions and statistics against SciPy."""

import numpy as np
import pytest
import scipy.stats

import phalanx
import phalanx.numpy as jnp
from phalanx.errors import ArgumentError, ShapeError
from phalanx.scipy import stats
from phalanx.scipy.stats.univariate_distributions import DISTRIBUTIONS

X = np.float32([-30, -5.5, -1.2, 0, 0.3, 0.5, 0.9, 1, 1.7, 2.6, 6.1, 12, 40])
K = np.float32([-2, -1, 0, 1, 2, 3, 4, 5, 6, 12, 1.5])
Q = np.float32([0, 0.001, 0.25, 0.5, 0.9, 1, 1.5])
SHAPES = {
    "beta": (2.5, 0.8), "chi2": (3.0,), "gamma": (0.7,), "gennorm": (1.4,), "pareto": (2.2,), "t": (3.5,),
    "truncnorm": (-0.5, 1.5), "vonmises": (2.0,), "wrapcauchy": (0.4,), "bernoulli": (0.3,), "betabinom": (5, 1.5, 2.0),
    "binom": (5, 0.3), "geom": (0.3,), "nbinom": (4.5, 0.3), "poisson": (2.5,),
}  # fmt: skip
DISCRETE = ("bernoulli", "betabinom", "binom", "geom", "nbinom", "poisson")
FUNCTIONS = "pdf logpdf pmf logpmf cdf logcdf sf logsf ppf isf".split()
CASES = [
    (family, name)
    for family, module in DISTRIBUTIONS.items()
    for name in FUNCTIONS
    if hasattr(module, name)
]  # fmt: skip


def arguments(family, name):
    where = Q if name in ("ppf", "isf") else K if family in DISCRETE else X
    if family == "bernoulli" and name == "ppf":
        where = Q[1:]  # of 0, where SciPy gives -1
    moved = (1,) if family in DISCRETE else (0.25, 1.5)
    return [where, *SHAPES.get(family, ()), *moved]


@pytest.mark.one_is_quick(group=lambda family, name: family)
@pytest.mark.parametrize("family, name", CASES)
def test_functions_of_distributions(family, name):
    args = arguments(family, name)
    wanted = getattr(getattr(scipy.stats, family), name)(*(np.asarray(a, np.float64) for a in args))
    if family == "wrapcauchy":  # of which SciPy goes round beyond the support
        inside = (args[0] >= 0.25) & (args[0] <= 0.25 + 1.5 * 2 * np.pi)
        wanted = np.where(inside, wanted, -np.inf if name == "logpdf" else 0)
    got = np.asarray(getattr(getattr(stats, family), name)(*args))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=2e-3 if name.startswith("log") else 5e-4, atol=1e-5)


def test_far_tails_of_the_truncated_normal_distribution():
    for a, b in ((8.0, 9.0), (-9.0, -8.0), (-20.0, 20.0), (5.0, np.inf)):
        x = np.float32(np.linspace(max(a, -20), min(b, 12), 5))
        for name in ("logpdf", "logcdf", "logsf"):
            wanted = getattr(scipy.stats.truncnorm, name)(x.astype(np.float64), a, b)
            np.testing.assert_allclose(
                np.asarray(getattr(stats.truncnorm, name)(x, a, b)), wanted, rtol=2e-3, atol=1e-4
            )


@pytest.mark.one_is_quick(group=lambda family: family in SHAPES)
@pytest.mark.parametrize("family", [f for f in DISTRIBUTIONS if f not in DISCRETE])
def test_log_densities_have_finite_derivatives_even_outside_of_the_support(family):
    args = [np.asarray(a, np.float32) for a in arguments(family, "logpdf")]
    function = getattr(stats, family).logpdf
    inside = np.isfinite(np.asarray(function(*args)))
    gradients = phalanx.jacrev(lambda *args: jnp.where(inside, function(*args), 0).sum(), tuple(range(len(args))))(
        *args
    )
    step = 1e-5
    for i, got in enumerate(gradients):
        assert np.isfinite(np.asarray(got)).all()
        if i == 0:
            continue
        shifted = [[np.float64(a) + (j == i) * s for j, a in enumerate(args)] for s in (-step, step)]
        low, high = (getattr(scipy.stats, family).logpdf(*a)[inside] for a in shifted)
        kept = np.isfinite(low) & np.isfinite(high)
        if kept.all():
            np.testing.assert_allclose(np.asarray(got), ((high - low) / (2 * step)).sum(), rtol=5e-3, atol=5e-3)


def test_arguments_by_name_and_modules():
    from phalanx.scipy.stats.norm import logpdf

    assert stats.norm.pdf(x=0.0, scale=2.0).item() == pytest.approx(0.19947, rel=1e-4)
    assert logpdf is stats.norm.logpdf
    assert phalanx.jit(lambda: stats.norm.cdf(0.0))().item() == 0.5
    assert np.isnan(stats.norm.pdf(0.0, 0.0, -1.0).item())
    assert np.isnan(stats.expon.cdf(np.nan).item())
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        stats.norm.pdf(loc=0.0)


def test_the_entropy_of_the_poisson_distribution():
    mu = np.float32([0, 0.1, 3, 24, 26, 1000])
    wanted = [float(scipy.stats.poisson.entropy(m)) for m in mu.astype(float)]
    np.testing.assert_allclose(np.asarray(stats.poisson.entropy(mu)), wanted, rtol=1e-4, atol=1e-6)


def test_dirichlet_and_multinomial():
    shares, alpha = np.float32([[0.25, 0.5], [0.75, 0.5]]), np.float32([2, 3])
    wanted = scipy.stats.dirichlet.logpdf(shares.astype(float), alpha.astype(float))
    np.testing.assert_allclose(np.asarray(stats.dirichlet.logpdf(shares, alpha)), wanted, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(stats.dirichlet.logpdf(shares[:1], alpha)), wanted, rtol=1e-4)
    assert stats.dirichlet.pdf(np.float32([0.5, 0.6]), alpha).item() == 0
    with pytest.raises(ShapeError, match=r"stats.dirichlet: expected concentrations \[k\] and shares of"):
        stats.dirichlet.pdf(np.ones(4), alpha)

    counts = np.array([[1, 2, 0], [3, 0, 0], [1, 1, 0]])
    p = np.float32([0.5, 0.25, 0.25])
    np.testing.assert_allclose(
        np.asarray(stats.multinomial.pmf(counts, 3, p)), scipy.stats.multinomial.pmf(counts, 3, p), rtol=1e-4
    )


def test_multivariate_normal():
    rng = np.random.default_rng(0)
    a, x, mean = rng.normal(size=(3, 3)), rng.normal(size=(4, 3)), rng.normal(size=3)
    cov = a @ a.T + np.eye(3)
    ours, theirs = stats.multivariate_normal, scipy.stats.multivariate_normal
    np.testing.assert_allclose(
        np.asarray(ours.logpdf(*map(np.float32, (x, mean, cov)))), theirs.logpdf(x, mean, cov), rtol=1e-4
    )
    np.testing.assert_allclose(
        np.asarray(ours.pdf(np.float32(x), np.float32(mean), 2.0)), theirs.pdf(x, mean, 2.0), rtol=1e-4
    )
    np.testing.assert_allclose(ours.logpdf(0.5, 1.0, 4.0), scipy.stats.norm.logpdf(0.5, 1, 2), rtol=1e-5)
    flat = np.diag([1.0, 0.0, 2.0])
    on, off = np.float32([0.5, 0, 1]), np.float32([0.5, 0.1, 1])
    np.testing.assert_allclose(
        np.asarray(ours.logpdf(np.stack([on, off]), np.zeros(3, np.float32), np.float32(flat), allow_singular=True)),
        [theirs.logpdf(on, np.zeros(3), flat, allow_singular=True), -np.inf], rtol=1e-5,
    )  # fmt: skip
    with pytest.raises(ShapeError, match=r"stats.multivariate_normal: expected covariances of shape \[..., 3, 3\]"):
        ours.pdf(x, mean, np.eye(2))


A = np.array([[3, 1, 3, 2], [2, 2, 1, 1], [5, 5, 5, 0]])


@pytest.mark.parametrize("axis, keepdims", [(0, False), (1, True), (None, False), (None, True)])
def test_mode(axis, keepdims):
    for x in (A, A.astype(np.float32), np.where(A == 0, np.nan, A).astype(np.float32)):
        for policy in ("propagate", "omit"):
            got = stats.mode(x, axis, policy, keepdims)
            wanted = scipy.stats.mode(x, axis=axis, nan_policy=policy, keepdims=keepdims)
            np.testing.assert_allclose(np.asarray(got.mode), wanted.mode)
            kept = ~np.isnan(wanted.mode)
            np.testing.assert_array_equal(np.asarray(got.count)[kept], np.asarray(wanted.count)[kept])


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_rankdata(method, axis):
    for x in (A, np.where(A == 0, np.nan, A).astype(np.float32)):
        wanted = scipy.stats.rankdata(x, method, axis=axis)
        np.testing.assert_allclose(np.asarray(stats.rankdata(x, method, axis=axis)).reshape(wanted.shape), wanted)


def test_sem_and_invalid_arguments():
    x = np.float32([[1, 2, np.nan], [2, 5, 7], [3, 0, 8]])
    for axis in (0, 1, None):
        for policy in ("propagate", "omit"):
            wanted = np.asarray(scipy.stats.sem(x, axis=axis, nan_policy=policy), np.float64)
            got = np.asarray(stats.sem(x, axis, nan_policy=policy))
            np.testing.assert_allclose(got[~np.isnan(wanted)], wanted[~np.isnan(wanted)], rtol=1e-5)
    with pytest.raises(
        ArgumentError, match="stats.sem, argument nan_policy: expected 'propagate' or 'omit', got 'raise'"
    ):
        stats.sem(x, nan_policy="raise")
    with pytest.raises(ArgumentError, match="stats.rankdata, argument method"):
        stats.rankdata(x, "best")


@pytest.mark.parametrize("method", [None, "silverman", 0.4, lambda kde: kde.neff**-0.3])
@pytest.mark.parametrize("dims", [1, 2])
def test_gaussian_kde(method, dims):
    rng = np.random.default_rng(1)
    data, points, weights = rng.normal(size=(dims, 9)), rng.normal(size=(dims, 4)), rng.uniform(0.5, 1, size=9)
    theirs = scipy.stats.gaussian_kde(data, method if not callable(method) else lambda k: k.neff**-0.3, weights)
    ours = stats.gaussian_kde(np.float32(data), method, np.float32(weights))
    close = lambda a, b: np.testing.assert_allclose(np.asarray(a), b, rtol=2e-4)
    close(ours.covariance, theirs.covariance)
    close(ours(np.float32(points)), theirs(points))
    close(phalanx.jit(lambda kde, x: kde.logpdf(x))(ours, np.float32(points)), theirs.logpdf(points))
    close(ours.integrate_gaussian(np.zeros(dims, np.float32), np.eye(dims, dtype=np.float32)),
          theirs.integrate_gaussian(np.zeros(dims), np.eye(dims)))  # fmt: skip
    close(ours.integrate_kde(ours), theirs.integrate_kde(theirs))
    if dims == 1:
        close(ours.integrate_box_1d(-1.0, 0.5), theirs.integrate_box_1d(-1.0, 0.5))
    drawn = np.asarray(ours.resample(phalanx.random.key(0), (4000,)))
    assert drawn.shape == (dims, 4000)
    np.testing.assert_allclose(np.cov(drawn), np.cov(data, aweights=weights, bias=True) + theirs.covariance, atol=0.25)


def test_invalid_arguments_of_gaussian_kde():
    kde = stats.gaussian_kde(np.float32([[0, 1, 2], [1, 0, 3]]))
    with pytest.raises(ArgumentError, match="expected bw_method= when it is made"):
        kde.set_bandwidth("scott")
    with pytest.raises(ShapeError, match="expected points of 2 dimensions"):
        kde.pdf(np.ones((3, 4)))
    with pytest.raises(ShapeError, match="expected samples of 1 dimension, got 2"):
        kde.integrate_box_1d(0, 1)
    with pytest.raises(ArgumentError, match="bw_method: expected 'scott', 'silverman', a number or a function"):
        stats.gaussian_kde(np.ones(3), "wide")


def test_the_truncated_normal_distribution_with_an_end_that_is_infinite():
    x = np.float32([-np.inf, -1e15, -0.5, 0.5, 1, 3, 1e15, np.inf])
    for a, b in ((-np.inf, 1.0), (-0.5, np.inf), (-np.inf, np.inf)):
        for name in ("logpdf", "cdf", "logcdf", "sf", "logsf"):
            wanted = getattr(scipy.stats.truncnorm, name)(x.astype(np.float64), a, b)
            np.testing.assert_allclose(getattr(stats.truncnorm, name)(x, a, b), wanted, rtol=1e-4, atol=1e-6)
    assert phalanx.grad(stats.truncnorm.logpdf)(2.0, -np.inf, 1.0) == 0


def test_the_t_distribution_of_many_degrees_of_freedom():
    x = np.float32([-3, 0, 0.5, 6])
    np.testing.assert_allclose(stats.t.logpdf(x, 1e5), scipy.stats.t.logpdf(x, 1e5), rtol=1e-5)
