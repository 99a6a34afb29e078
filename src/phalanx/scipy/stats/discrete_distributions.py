"""The table of univariate discrete distributions, and the entropy of the Poisson distribution.

Builds on `distribution`, which makes the public functions, and on `scipy.special`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.numpy.operands.shape_rules import broadcast_operands
from phalanx.numpy.ufuncs.ufunc_implementations import select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import to_inexact_operands
from phalanx.scipy.special import betaln, gammaincc, gammaln, xlog1py, xlogy
from phalanx.scipy.stats.distribution import Distribution
from phalanx.typing import Array, ArrayLike


def _log_binomial(n: Array, k: Array) -> Any:
    """The logarithm of the binomial coefficient n over k."""
    return -betaln(n - k + 1, k + 1) - lax.log1p(n)


def _nbinom_logpmf(k: Array, n: Array, p: Array) -> Any:
    return gammaln(k + n) - gammaln(n) - gammaln(k + 1) + n * lax.log(p) + xlog1py(k, -p)


def _betabinom_logpmf(k: Array, n: Array, a: Array, b: Array) -> Any:
    return _log_binomial(n, k) + betaln(k + a, n - k + b) - betaln(a, b)


# Each entry: the distribution, the arguments of the examples in docstrings, and the functions with their results there.
# fmt: off
DISCRETE = (
    (Distribution("bernoulli", "the Bernoulli distribution", "p", lambda k, p: xlogy(k, p) + xlog1py(1 - k, -p), 0.0, 1.0,  # noqa: E501
            cdf=lambda k, p: 1 - p, ppf=lambda q, p: select_where(q <= 1 - p, 0.0, 1.0), discrete=True),
     "0, 0.3", dict(logpmf=-0.3567, pmf=0.7, cdf=0.7, ppf=0.0)),
    (Distribution("betabinom", "the beta-binomial distribution", "n a b", _betabinom_logpmf, 0.0, lambda n, a, b: n, discrete=True),  # noqa: E501
     "2, 5, 2.0, 3.0", dict(logpmf=-1.4351, pmf=0.2381)),
    (Distribution("binom", "the binomial distribution", "n p",
            lambda k, n, p: _log_binomial(n, k) + xlogy(k, p) + xlog1py(n - k, -p), 0.0, lambda n, p: n, discrete=True),
     "2, 5, 0.3", dict(logpmf=-1.1754, pmf=0.3087)),
    (Distribution("geom", "the geometric distribution", "p", lambda k, p: xlog1py(k - 1, -p) + lax.log(p), 1.0,
            discrete=True),
     "2, 0.3", dict(logpmf=-1.5606, pmf=0.21)),
    (Distribution("nbinom", "the negative binomial distribution", "n p", _nbinom_logpmf, 0.0, discrete=True),
     "2, 5.0, 0.3", dict(logpmf=-4.0252, pmf=0.0179)),
    (Distribution("poisson", "the Poisson distribution", "mu", lambda k, mu: xlogy(k, mu) - gammaln(k + 1) - mu, 0.0,
            cdf=lambda k, mu: gammaincc(k + 1, mu), discrete=True),
     "2, 1.5", dict(logpmf=-1.3822, pmf=0.251, cdf=0.8088)),
)
# fmt: on

_TERMS = 100  # the number of terms of the series for the entropy at means below `_LARGE`
_LARGE = 25.0


@eager_jit
def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The entropy of the Poisson distribution, in nats.

    Args:
      mu: the mean.
      loc: the location, which does not affect the entropy.

    Returns:
      The entropy for each element, in the broadcast shape; NaN for negative `mu`.

    Examples:
      >>> from phalanx.scipy.stats import poisson
      >>> round(poisson.entropy(1.5).item(), 4)
      1.5394
    """
    mu, loc = to_inexact_operands("stats.poisson.entropy", mu, loc)
    mu, _ = broadcast_operands("stats.poisson.entropy", mu, loc)
    large = mu >= _LARGE
    small = select_where(large | (mu <= 0), 1.0, mu)
    shape = (*np.shape(small), _TERMS)
    k = lax.broadcasted_iota(mu.dtype, shape, len(shape) - 1)
    wide = lax.broadcast_in_dim(small, shape, tuple(range(len(shape) - 1)))
    log_of = xlogy(k, wide) - gammaln(k + 1) - wide
    series = -jnp.sum(lax.exp(log_of) * log_of, axis=-1)
    far = select_where(large, mu, _LARGE)
    # The entropy of the normal distribution of the same variance, with corrections in powers of 1 / mu.
    asymptotic = 0.5 * (1 + math.log(2 * math.pi) + lax.log(far)) - (1 / 12 + (1 / 24 + 19 / (360 * far)) / far) / far
    return select_where(mu < 0, np.nan, select_where(mu == 0, 0.0, select_where(large, asymptotic, series)))
