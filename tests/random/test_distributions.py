"""Distributions: the peer's numbers where the algorithm is public, and the right distribution everywhere."""

import numpy as np
import pytest
import scipy.stats

import phalanx
from phalanx import random
from phalanx.core.error_classes import (
    ArgumentError,
    ArgumentTypeError,
    AxisError,
    ConversionError,
    PhalanxError,
    ShapeError,
)

KEY = random.key(20)
SIZE = 20_000


def passes(samples, distribution):
    """Whether a Kolmogorov-Smirnov test accepts the samples; the keys are fixed, so this never flickers."""
    return scipy.stats.kstest(np.asarray(samples, np.float64).ravel(), distribution.cdf).pvalue > 0.001


PEERS = {
    "uniform": ((), {}),
    "uniform_between": ((), {"minval": -1.0, "maxval": 3.0}),
    "normal": ((), {}),
    "exponential": ((), {}),
    "gumbel": ((), {}),
    "laplace": ((), {}),
    "logistic": ((), {}),
    "cauchy": ((), {}),
    "maxwell": ((), {}),
    "rademacher": ((), {}),
    "truncated_normal": ((-1.0, 2.0), {}),
    "double_sided_maxwell": ((1.0, 2.0), {}),
    "weibull_min": ((1.0, 2.0), {}),
    "pareto": ((2.0,), {}),
    "rayleigh": ((2.0,), {}),
    "wald": ((2.0,), {}),
    "triangular": ((0.0, 1.0, 4.0), {}),
    "lognormal": ((2.0,), {}),
    "geometric": ((0.3,), {}),
}


@pytest.mark.parametrize("name", PEERS)
def test_samples_equal_jax(name):
    jax = pytest.importorskip("jax")
    args, kwargs = PEERS[name]
    name = name.partition("_between")[0]
    ours = np.asarray(getattr(random, name)(KEY, *args, shape=(40, 5), **kwargs))
    theirs = np.asarray(getattr(jax.random, name)(jax.random.key(20), *args, shape=(40, 5), **kwargs))
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


ALPHA = np.array([0.1, 0.5, 1.0, 2.0, 50.0], np.float32)
LOOPS = {
    "gamma": lambda r, key: r.gamma(key, ALPHA, (3, 5)),
    "loggamma": lambda r, key: r.loggamma(key, ALPHA, (3, 5)),
    "beta": lambda r, key: r.beta(key, 2.0, ALPHA),
    "dirichlet": lambda r, key: r.dirichlet(key, ALPHA[:3], (4,)),
    "chisquare": lambda r, key: r.chisquare(key, 3.0, shape=(9,)),
    "f": lambda r, key: r.f(key, 3.0, 5.0, shape=(9,)),
    "t": lambda r, key: r.t(key, 3.0, (9,)),
    "generalized_normal": lambda r, key: r.generalized_normal(key, 1.5, (9,)),
    "ball": lambda r, key: r.ball(key, 3, shape=(4,)),
    "poisson": lambda r, key: r.poisson(key, np.array([0.0, 0.1, 3.0, 9.9], np.float32)),
    "poisson_from_10": lambda r, key: r.poisson(key, 50.0),
    "binomial": lambda r, key: r.binomial(key, 10.0, np.array([0.1, 0.3, 0.5, 0.9], np.float32)),
    "binomial_from_10": lambda r, key: r.binomial(key, 1000.0, 0.3),
    "multinomial": lambda r, key: r.multinomial(key, 20.0, np.array([0.2, 0.3, 0.5], np.float32), shape=(3, 3)),
    "gumbel_high": lambda r, key: r.gumbel(key, (9,), mode="high"),
    "bernoulli_high": lambda r, key: r.bernoulli(key, 0.3, (20,), mode="high"),
    "categorical": lambda r, key: r.categorical(key, np.log(ALPHA), shape=(9,)),
    "categorical_high": lambda r, key: r.categorical(key, np.log(ALPHA), shape=(9,), mode="high"),
    "choice": lambda r, key: r.choice(key, 10, (7,), replace=False),
    "choice_weighted": lambda r, key: r.choice(key, 5, (7,), p=ALPHA / 53.6),
    "permutation": lambda r, key: r.permutation(key, 10),
    "multivariate_normal": lambda r, key: r.multivariate_normal(key, np.zeros(2), np.diag([2.0, 1.0]), (3,)),
    "orthogonal": lambda r, key: r.orthogonal(key, 3),
}


@pytest.mark.one_is_quick(group=lambda name: "a kind")
@pytest.mark.parametrize("name", LOOPS)
def test_samples_drawn_by_rejection_or_from_pairs_equal_jax(name):
    jax = pytest.importorskip("jax")
    ours, theirs = (np.asarray(LOOPS[name](r, r.key(42))) for r in (random, jax.random))
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "complex64"])
def test_uniform_and_normal_equal_jax_in_every_dtype(dtype):
    jax = pytest.importorskip("jax")
    with phalanx.enable_x64(True), jax.enable_x64(True):
        for name in ("uniform", "normal")[dtype == "complex64" :]:
            ours = getattr(random, name)(KEY, (100,), dtype)
            theirs = getattr(jax.random, name)(jax.random.key(20), (100,), dtype)
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_randint_equals_jax(dtype):
    jax = pytest.importorskip("jax")
    info = np.iinfo(dtype)
    with phalanx.enable_x64(True), jax.enable_x64(True):
        for low, high in ((3, 100), (5, 5), (0, 3), (int(info.min), int(info.max))):
            ours = np.asarray(random.randint(KEY, (50,), low, high, dtype))
            if high < 2**63:
                theirs = np.asarray(jax.random.randint(jax.random.key(20), (50,), low, high, dtype))
                np.testing.assert_array_equal(ours, theirs)
            assert (ours >= low).all() and ((ours < high) | (low == high)).all()
        whole = np.asarray(random.randint(KEY, (500,), int(info.min), int(info.max) + 1, dtype))
        assert whole.dtype == dtype and len(set((whole >> (info.bits - 4)).tolist())) == 16


def test_randint_between_arrays():
    drawn = np.asarray(random.randint(KEY, (100, 3), np.array([0, 10, 20]), np.array([1, 12, 23])))
    assert [sorted(set(column)) for column in drawn.T.tolist()] == [[0], [10, 11], [20, 21, 22]]
    drawn = np.asarray(random.randint(KEY, (100,), np.array(-500), np.array(500), "int8"))
    assert drawn.min() < -100 and drawn.max() > 100


CONTINUOUS = {
    "uniform": ((), scipy.stats.uniform()),
    "normal": ((), scipy.stats.norm()),
    "truncated_normal": ((-0.5, 2.0), scipy.stats.truncnorm(-0.5, 2.0)),
    "exponential": ((), scipy.stats.expon()),
    "gumbel": ((), scipy.stats.gumbel_r()),
    "laplace": ((), scipy.stats.laplace()),
    "logistic": ((), scipy.stats.logistic()),
    "cauchy": ((), scipy.stats.cauchy()),
    "maxwell": ((), scipy.stats.maxwell()),
    "weibull_min": ((2.0, 3.0), scipy.stats.weibull_min(3.0, scale=2.0)),
    "pareto": ((3.0,), scipy.stats.pareto(3.0)),
    "rayleigh": ((3.0,), scipy.stats.rayleigh(scale=3.0)),
    "wald": ((3.0,), scipy.stats.invgauss(3.0)),
    "triangular": ((1.0, 2.0, 5.0), scipy.stats.triang(0.25, 1.0, 4.0)),
    "lognormal": ((0.7,), scipy.stats.lognorm(0.7)),
    "gamma": ((2.5,), scipy.stats.gamma(2.5)),
    "beta": ((0.5, 3.0), scipy.stats.beta(0.5, 3.0)),
    "chisquare": ((3.0,), scipy.stats.chi2(3.0)),
    "f": ((3.0, 8.0), scipy.stats.f(3.0, 8.0)),
    "t": ((3.0,), scipy.stats.t(3.0)),
    "generalized_normal": ((4.0,), scipy.stats.gennorm(4.0)),
    "loggamma": ((0.7,), scipy.stats.loggamma(0.7)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "impl"),
    [*((name, "threefry2x32") for name in CONTINUOUS), ("normal", "rbg"), ("gamma", "rbg"), ("normal", "unsafe_rbg")],
)
def test_continuous_distributions(name, impl):
    args, expected = CONTINUOUS[name]
    samples = getattr(random, name)(random.key(3, impl=impl), *args, shape=(SIZE,))
    assert samples.shape == (SIZE,) and samples.dtype == np.float32
    assert passes(samples, expected)


@pytest.mark.parametrize("a", [1e-3, 0.1, 0.9, 1.0, 1.1, 30.0, 1e4])
def test_gamma_has_the_right_distribution_for_each_shape_parameter(a):
    logs = np.asarray(random.loggamma(KEY, a, (SIZE,)), np.float64)
    assert np.isfinite(logs).all()
    assert scipy.stats.kstest(logs, scipy.stats.loggamma(a).cdf).pvalue > 0.001
    np.testing.assert_allclose(np.asarray(random.gamma(KEY, a, (SIZE,))), np.exp(logs), rtol=1e-4, atol=1e-37)


def test_gamma_with_extreme_shape_parameters():
    out = np.asarray(random.gamma(KEY, np.array([-1.0, 0.0, np.nan, np.inf, 2.0])))
    assert np.isnan(out[[0, 2]]).all() and out[1] == 0 and out[3] == np.inf and 0 < out[4] < 20


@pytest.mark.parametrize("a", [0.05, 0.7, 2.0, 15.0])
def test_the_derivative_of_gamma_follows_its_distribution_function(a):
    samples = np.asarray(random.gamma(KEY, a, (50,)), np.float64)
    slopes = np.asarray(
        phalanx.vmap(phalanx.grad(lambda a, i: random.gamma(KEY, a, (50,))[i]), (None, 0))(a, np.arange(50))
    )
    step = 1e-5 * a
    rank = scipy.stats.gamma(a).cdf(samples)
    expected = (scipy.stats.gamma(a + step).ppf(rank) - scipy.stats.gamma(a - step).ppf(rank)) / (2 * step)
    is_known = (samples > 1e-30) & (rank < 0.999)
    np.testing.assert_allclose(slopes[is_known], expected[is_known], rtol=2e-2, atol=1e-6)


def test_reparametrised_derivatives():
    slope = phalanx.grad(lambda s: random.lognormal(KEY, s))(0.5)
    normal = float(random.normal(KEY))
    np.testing.assert_allclose(slope, normal * np.exp(0.5 * normal), rtol=1e-5)
    assert float(phalanx.grad(lambda b: random.uniform(KEY, (), None, 0.0, b))(2.0)) == float(random.uniform(KEY))


DISCRETE = {
    "poisson_small": ("poisson", (3.5,), scipy.stats.poisson(3.5)),
    "poisson_tiny": ("poisson", (0.01,), scipy.stats.poisson(0.01)),
    "poisson_middle": ("poisson", (10.0,), scipy.stats.poisson(10.0)),
    "poisson_large": ("poisson", (200.0,), scipy.stats.poisson(200.0)),
    "geometric": ("geometric", (0.3,), scipy.stats.geom(0.3)),
    "binomial_few": ("binomial", (10.0, 0.3), scipy.stats.binom(10, 0.3)),
    "binomial_many": ("binomial", (100.0, 0.4), scipy.stats.binom(100, 0.4)),
    "binomial_flipped": ("binomial", (100.0, 0.8), scipy.stats.binom(100, 0.8)),
    "binomial_huge": ("binomial", (100_000.0, 0.5), scipy.stats.binom(100_000, 0.5)),
    "binomial_rare": ("binomial", (1000.0, 0.999), scipy.stats.binom(1000, 0.999)),
    "bernoulli": ("bernoulli", (0.3,), scipy.stats.bernoulli(0.3)),
}


@pytest.mark.parametrize("case", DISCRETE)
def test_discrete_distributions(case):
    name, args, expected = DISCRETE[case]
    samples = np.asarray(getattr(random, name)(KEY, *args, shape=(SIZE,))).astype(np.int64)
    low, high = int(expected.ppf(0.001)), int(expected.ppf(0.999))
    edges = np.unique(np.linspace(low, high + 1, min(high - low + 2, 30)).astype(int))
    edges = np.concatenate([[-1], edges, [2**60]])
    counts = np.array([((samples > a) & (samples <= b)).sum() for a, b in zip(edges, edges[1:], strict=False)])
    chances = np.diff(expected.cdf(edges))
    kept = chances * SIZE >= 5
    observed = [*counts[kept], counts[~kept].sum() + 1e-9]
    wanted = [*chances[kept] * SIZE, chances[~kept].sum() * SIZE + 1e-9]
    assert scipy.stats.chisquare(observed, np.array(wanted) * sum(observed) / sum(wanted)).pvalue > 0.001


def test_discrete_edges():
    assert random.poisson(KEY, np.array([0.0, -1.0, np.nan, np.inf])).tolist() == [0, -1, -1, -1]
    assert random.binomial(KEY, np.array([0.0, 5.0, 5.0]), np.array([0.5, 0.0, 1.0])).tolist() == [0, 0, 5]
    assert np.isnan(np.asarray(random.binomial(KEY, np.array([-1.0, 3.0, np.inf]), np.array([0.5, 1.5, 0.5])))).all()
    assert random.geometric(KEY, 1.0, (3,)).tolist() == [1, 1, 1]
    assert abs(float(random.bernoulli(KEY, 0.25, (SIZE,), mode="high").astype("float32").mean()) - 0.25) < 0.01


def test_gumbel_in_high_resolution():
    assert passes(random.gumbel(KEY, (SIZE,), mode="high"), scipy.stats.gumbel_r())
    assert len(set(np.asarray(random.gumbel(KEY, (SIZE,), "float16", mode="high")).tolist())) > 1000


def test_rademacher_and_double_sided_maxwell():
    signs = np.asarray(random.rademacher(KEY, (SIZE,)))
    assert set(signs.tolist()) == {-1, 1} and abs(signs.mean()) < 0.03
    drawn = (np.asarray(random.double_sided_maxwell(KEY, 1.0, 2.0, (SIZE,))) - 1) / 2
    assert abs((drawn > 0).mean() - 0.5) < 0.02 and passes(np.abs(drawn), scipy.stats.maxwell())


def test_vectors():
    drawn = np.asarray(random.dirichlet(KEY, np.array([0.5, 1.0, 2.0]), (SIZE,)))
    np.testing.assert_allclose(drawn.sum(-1), 1, rtol=1e-5)
    assert passes(drawn[:, 0], scipy.stats.beta(0.5, 3.0)) and passes(drawn[:, 2], scipy.stats.beta(2.0, 1.5))
    points = np.asarray(random.ball(KEY, 3, 2, (SIZE,)))
    assert passes((points**2).sum(-1) ** 1.5, scipy.stats.uniform()) and abs(points.mean(0)).max() < 0.02
    counts = np.asarray(random.multinomial(KEY, 50.0, np.array([0.2, 0.3, 0.5]), shape=(4000, 3)))
    assert (counts.sum(-1) == 50).all()
    np.testing.assert_allclose(counts.mean(0), [10, 15, 25], atol=0.3)
    np.testing.assert_allclose(counts.var(0), [8, 10.5, 12.5], rtol=0.1)


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_multivariate_normal(method):
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 0.5]])
    drawn = np.asarray(random.multivariate_normal(KEY, mean, cov, (SIZE,), method=method))
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(drawn.T), cov, atol=0.06)
    many = random.multivariate_normal(KEY, np.zeros((3, 1, 2)), np.stack([cov] * 4), method=method)
    assert many.shape == (3, 4, 2)


@pytest.mark.parametrize(("n", "m"), [(3, None), (5, 2), (2, 5)])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_orthogonal(n, m, dtype):
    q = np.asarray(random.orthogonal(KEY, n, (4,), dtype, m))
    assert q.shape == (4, n, m or n)
    product = q @ q.conj().swapaxes(-1, -2) if n <= (m or n) else q.conj().swapaxes(-1, -2) @ q
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(product.shape[-1]), product.shape), atol=1e-5)


def test_permutation():
    jax = pytest.importorskip("jax")
    theirs = jax.random.key(20)
    assert random.permutation(KEY, 30).tolist() == jax.random.permutation(theirs, 30).tolist()
    x = np.arange(12.0).reshape(4, 3)
    for axis in (0, 1, -1):
        assert random.permutation(KEY, x, axis).tolist() == jax.random.permutation(theirs, x, axis).tolist()
    each = np.asarray(random.permutation(KEY, np.tile(np.arange(50), (4, 1)), axis=1, independent=True))
    assert (np.sort(each, 1) == np.arange(50)).all() and (each[0] != each[1]).any()
    assert random.permutation(KEY, 0).shape == (0,)


def test_numbers_that_the_dtype_cannot_hold_are_refused():
    assert text(lambda: random.randint(KEY, (3,), 0, 2**33)) == (
        ArgumentError,
        "random.randint, maxval: expected a bound from -2147483648 to 2147483648, got 8589934592.\n"
        "  Fix: pass dtype='int64' under enable_x64, or bounds that the dtype of the result holds.",
    )
    assert "minval" in text(lambda: random.randint(KEY, (3,), -(2**31) - 1, 0))[1]
    assert text(lambda: random.choice(KEY, 2**31 + 1, (3,))) == (
        ArgumentError,
        "random.choice, a: expected at most 2147483648 numbers, which the default integer dtype holds, got 2147483649.\n"
        "  Fix: call it under enable_x64.",
    )
    assert "random.permutation, x" in text(lambda: random.permutation(KEY, 2**33))[1]
    assert int(random.randint(KEY, (500,), -300, 300, "int8").max()) == 127
    assert int(random.randint(KEY, (500,), 0, 2**32, "uint32").max()) > 2**31
    with phalanx.enable_x64(True):
        assert int(random.randint(KEY, (100,), 0, 2**40).max()) > 2**33
        assert int(random.choice(KEY, 2**40, (100,)).max()) > 2**33


def test_choice():
    x = np.arange(12.0).reshape(4, 3)
    assert random.choice(KEY, x, (5, 2), axis=1).shape == (4, 5, 2)
    drawn = np.asarray(random.choice(KEY, 5, (5,), replace=False))
    assert sorted(drawn.tolist()) == [0, 1, 2, 3, 4]
    p = np.array([0.1, 0.0, 0.6, 0.3])
    for replace, shape in ((True, (SIZE,)), (False, (3,))):
        drawn = np.asarray(random.choice(KEY, 4, shape, replace=replace, p=p))
        assert 1 not in drawn
    counts = np.bincount(np.asarray(random.choice(KEY, 4, (SIZE,), p=p)), minlength=4) / SIZE
    np.testing.assert_allclose(counts, p, atol=0.015)


def test_categorical():
    jax = pytest.importorskip("jax")
    logits = np.log(np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]], np.float32))
    theirs = jax.random.key(20)
    assert random.categorical(KEY, logits).tolist() == jax.random.categorical(theirs, logits).tolist()
    assert random.categorical(KEY, logits, axis=0).tolist() == jax.random.categorical(theirs, logits, axis=0).tolist()
    drawn = random.categorical(KEY, logits, shape=(500, 2))
    assert drawn.tolist() == jax.random.categorical(theirs, logits, shape=(500, 2)).tolist()
    once = np.asarray(random.categorical(KEY, logits, shape=(3, 2), replace=False))
    assert (np.sort(once, 0) == np.arange(3)[:, None]).all()


@pytest.mark.one_is_quick(group=lambda draw: "a draw")
@pytest.mark.parametrize(
    "draw",
    [
        lambda k, a: random.uniform(k, (3,), minval=a),
        lambda k, a: random.gamma(k, a, (3,)),
        lambda k, a: random.poisson(k, a * 20, (3,)),
        lambda k, a: random.binomial(k, 40.0, a / 10, (3,)),
        lambda k, a: random.permutation(k, 5),
        lambda k, a: random.categorical(k, phalanx.lax.broadcast(a, (4,))),
    ],
)
def test_mapped_samples_equal_single_samples(draw):
    keys, a = random.split(KEY, 4), np.array([0.5, 1.5, 2.5, 3.5], np.float32)
    batched = phalanx.jit(phalanx.vmap(draw))(keys, a)
    for i in range(4):
        key = phalanx.lax.index_in_dim(keys, i, keepdims=False)
        np.testing.assert_allclose(np.asarray(batched)[i], np.asarray(draw(key, a[i])), rtol=1e-5)


def text(fun):
    with pytest.raises(PhalanxError) as error:
        fun()
    return type(error.value), str(error.value)


def test_errors():
    assert text(lambda: random.uniform(KEY, (3,), int)) == (
        ConversionError,
        "random.uniform, dtype: expected a floating dtype, got int32.\n  Fix: pass a dtype such as 'float32'.",
    )
    assert text(lambda: random.randint(KEY, (3,), 0, 10, "float32")) == (
        ConversionError,
        "random.randint, dtype: expected an integer dtype, got float32.\n  Fix: pass a dtype such as 'int32'.",
    )
    assert text(lambda: random.randint(KEY, (3,), 0, 10j)) == (
        ArgumentTypeError,
        "random.randint: expected bounds that are real numbers, got ~c64[].\n  Fix: convert the bounds with .astype('int32').",
    )
    assert text(lambda: random.gamma(KEY, np.ones(3), (2,))) == (
        ShapeError,
        "random.gamma, a: expected a shape that broadcasts to (2,), got (3,).\n"
        "  Fix: give a shape that ends in the shape of a, or leave shape out.",
    )
    assert text(lambda: random.bernoulli(KEY, 0.5, mode="middle")) == (
        ArgumentError,
        "random.bernoulli, mode: expected 'low' or 'high', got 'middle'.\n"
        "  Fix: pass mode='low', or mode='high' for full resolution of the tail.",
    )
    assert text(lambda: random.choice(KEY, 3, (4,), replace=False)) == (
        ArgumentError,
        "random.choice without replacement: expected at most 3 draws, got 4.\n  Fix: draw fewer, or pass replace=True.",
    )
    assert text(lambda: random.choice(KEY, 3, p=np.ones(2))) == (
        ShapeError,
        "random.choice, p: expected one probability for each of the 3 elements, got f32[2].\n"
        "  Fix: pass a vector as long as a along axis.",
    )
    assert text(lambda: random.choice(KEY, np.zeros((0,)), (2,))) == (
        ArgumentError,
        "random.choice, a: expected at least one element to choose from, got size 0.\n"
        "  Fix: pass a non-empty array, or shape=(0,).",
    )
    assert text(lambda: random.permutation(KEY, np.ones((2, 2)), axis=2)) == (
        AxisError,
        "random.permutation, axis: expected a dimension of f32[2,2], got 2.\n"
        "  Fix: pass an axis from -2 to 1, the dimension to draw along.",
    )
    assert text(lambda: random.permutation(KEY, 2.5)) == (
        ConversionError,
        "random.permutation, x: expected an array or an int, got 2.5.\n  Fix: pass an array of rank 1 or more.",
    )
    assert text(lambda: random.categorical(KEY, np.ones((2, 3)), shape=(3,))) == (
        ShapeError,
        "random.categorical, shape: expected a shape that ends in (2,), that of logits without axis, got (3,).\n"
        "  Fix: prepend dimensions for more draws.",
    )
    assert text(lambda: random.categorical(KEY, np.ones(3), axis=1)) == (
        AxisError,
        "random.categorical, axis: expected a dimension of f32[3], got 1.\n"
        "  Fix: pass the dimension of the categories.",
    )
    assert text(lambda: random.dirichlet(KEY, 1.0)) == (
        ShapeError,
        "random.dirichlet, alpha: expected an array of rank 1 or more, got a scalar.\n"
        "  Fix: pass a vector with a concentration for each component.",
    )
    assert text(lambda: random.multivariate_normal(KEY, np.zeros(2), np.eye(3))) == (
        ShapeError,
        "random.multivariate_normal: expected a mean of shape (*batch, n) and a cov of shape (*batch, n, n), got "
        "mean of shape (2,), cov of shape (3, 3).\n  Fix: give one mean and one row and column of cov for each component.",
    )
    assert text(lambda: random.multivariate_normal(KEY, np.zeros(2), np.eye(2), method="lu")) == (
        ArgumentError,
        "random.multivariate_normal, method: expected 'cholesky', 'eigh' or 'svd', got 'lu'.\n"
        "  Fix: pass method='cholesky', or 'eigh' for a singular covariance.",
    )


def test_student_t_takes_the_shape_of_its_degrees_of_freedom():
    assert random.t(random.key(0), np.array([1.0, 2.0, 3.0])).shape == (3,)


def test_key_data_are_wrapped_by_dtype():
    keys = random.split(random.key(0, impl="rbg"), 2)
    assert random.wrap_key_data(random.key_data(keys), dtype=keys.dtype).dtype == random.key_dtype(impl_spec="rbg")


@pytest.mark.parametrize("x64", [False, True])
def test_rademacher_equals_bernoulli(x64):
    with phalanx.enable_x64(x64):
        key = random.key(3)
        np.testing.assert_array_equal(
            random.rademacher(key, (64,)), 2 * np.asarray(random.bernoulli(key, 0.5, (64,))) - 1
        )


@pytest.mark.parametrize("bounds", [(0.0, 5.7), (-2.7, 3.2), (np.float32(-2.7), np.float32(3.2))])
def test_the_fraction_of_bounds_of_integers_is_dropped(bounds):
    want = random.randint(KEY, (8,), *map(int, bounds))
    np.testing.assert_array_equal(random.randint(KEY, (8,), *bounds), want)
    assert random.key_data(random.fold_in(KEY, 2.5)).tolist() == random.key_data(random.fold_in(KEY, 2)).tolist()
