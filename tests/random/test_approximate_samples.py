"""`method="approximate"`: samples without a loop follow the distribution."""

import numpy as np
import pytest
import scipy.stats

from phalanx import random
from phalanx.core.error_classes import ArgumentError


@pytest.mark.parametrize("a", [0.01, 0.3, 1.0, 30.0])
def test_approximate_gamma_samples_follow_the_distribution(a):
    key = random.key(1)
    samples = np.asarray(random.loggamma(key, a, (20_000,), method="approximate"), float)
    exact = scipy.stats.gamma(a).cdf
    assert scipy.stats.kstest(samples, lambda y: exact(np.exp(y))).pvalue > 1e-3
    chi = random.chisquare(key, 2 * a, (9,), method="approximate")
    np.testing.assert_allclose(chi, 2 * random.gamma(key, a, (9,), method="approximate"), rtol=1e-5)


@pytest.mark.parametrize("lam", [0.5, 9.9, 10.0, 50.0])
def test_approximate_poisson_samples_have_the_probabilities(lam):
    samples = np.asarray(random.poisson(random.key(2), lam, (50_000,), method="approximate"))
    found = np.bincount(samples) / samples.size
    assert np.abs(found - scipy.stats.poisson(lam).pmf(np.arange(len(found)))).sum() / 2 < 0.012


def test_approximate_samples_at_the_edges_of_the_parameters():
    key = random.key(0)
    edges = np.array([-1, 0, np.nan, np.inf])
    np.testing.assert_array_equal(random.poisson(key, edges, method="approximate"), [-1, 0, -1, -1])
    np.testing.assert_array_equal(random.gamma(key, edges, method="approximate"), [np.nan, 0, np.nan, np.inf])
    assert set(np.round(random.beta(key, 1e-4, 2e-4, (99,), method="approximate"), 3).tolist()) == {0.0, 1.0}
    with pytest.raises(ArgumentError, match="random.poisson, method: expected 'exact' or 'approximate', got 'fast'"):
        random.poisson(key, 1.0, method="fast")
