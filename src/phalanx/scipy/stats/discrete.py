"""Discrete distributions, a row each; those of vectors are in files of their own.

Builds on `families`, which makes the functions, and on `scipy.special`; `stats` shows them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.numpy.bodies import choose
from phalanx.numpy.operands import broadcast_operands, operand, promote_inexact
from phalanx.numpy.reductions import sum
from phalanx.runtime.dispatch import eager_program
from phalanx.scipy.special import betaln, gammaincc, gammaln, xlog1py, xlogy
from phalanx.scipy.stats.families import Family


def _log_choices(n: Any, k: Any) -> Any:
    """The logarithm of the number of ways to choose k of n things."""
    return -betaln(n - k + 1, k + 1) - lax.log1p(n)


def _log_pascal(k: Any, n: Any, p: Any) -> Any:
    return gammaln(k + n) - gammaln(n) - gammaln(k + 1) + n * lax.log(p) + xlog1py(k, -p)


def _log_mixed(k: Any, n: Any, a: Any, b: Any) -> Any:
    return _log_choices(n, k) + betaln(k + a, n - k + b) - betaln(a, b)


# Each: the row; where its functions are shown; and what they give there.
# fmt: off
DISCRETE = (
    (Family("bernoulli", "the Bernoulli distribution", "p", lambda k, p: xlogy(k, p) + xlog1py(1 - k, -p), 0.0, 1.0,
            cdf=lambda k, p: 1 - p, ppf=lambda q, p: choose(q <= 1 - p, 0.0, 1.0), discrete=True),
     "0, 0.3", dict(logpmf=-0.3567, pmf=0.7, cdf=0.7, ppf=0.0)),
    (Family("betabinom", "the beta-binomial distribution", "n a b", _log_mixed, 0.0, lambda n, a, b: n, discrete=True),
     "2, 5, 2.0, 3.0", dict(logpmf=-1.4351, pmf=0.2381)),
    (Family("binom", "the binomial distribution", "n p",
            lambda k, n, p: _log_choices(n, k) + xlogy(k, p) + xlog1py(n - k, -p), 0.0, lambda n, p: n, discrete=True),
     "2, 5, 0.3", dict(logpmf=-1.1754, pmf=0.3087)),
    (Family("geom", "the geometric distribution", "p", lambda k, p: xlog1py(k - 1, -p) + lax.log(p), 1.0,
            discrete=True),
     "2, 0.3", dict(logpmf=-1.5606, pmf=0.21)),
    (Family("nbinom", "the negative binomial distribution", "n p", _log_pascal, 0.0, discrete=True),
     "2, 5.0, 0.3", dict(logpmf=-4.0252, pmf=0.0179)),
    (Family("poisson", "the Poisson distribution", "mu", lambda k, mu: xlogy(k, mu) - gammaln(k + 1) - mu, 0.0,
            cdf=lambda k, mu: gammaincc(k + 1, mu), discrete=True),
     "2, 1.5", dict(logpmf=-1.3822, pmf=0.251, cdf=0.8088)),
)
# fmt: on

_TERMS = 100  # of the series of the entropy, for means up to `_LARGE`
_LARGE = 25.0


@eager_program
def entropy(mu: Any, loc: Any = 0) -> Any:
    """The entropy of the Poisson distribution, in nats.

    Args:
      mu: the mean.
      loc: how far it is shifted, which changes nothing.

    Returns:
      The entropy for each element, in the broadcast shape; NaN where `mu` is negative.

    Examples:
      >>> from phalanx.scipy.stats import poisson
      >>> round(poisson.entropy(1.5).item(), 4)
      1.5394
    """
    mu, loc = promote_inexact("stats.poisson.entropy", *(operand(v, "stats.poisson.entropy") for v in (mu, loc)))
    mu, _ = broadcast_operands("stats.poisson.entropy", mu, loc)
    large = mu >= _LARGE
    small = choose(large | (mu <= 0), 1.0, mu)
    shape = (*np.shape(small), _TERMS)
    k = lax.broadcasted_iota(mu.dtype, shape, len(shape) - 1)
    wide = lax.broadcast_in_dim(small, shape, tuple(range(len(shape) - 1)))
    log_of = xlogy(k, wide) - gammaln(k + 1) - wide
    series = -sum(lax.exp(log_of) * log_of, axis=-1)
    far = choose(large, mu, _LARGE)
    asymptotic = 0.5 * (1 + math.log(2 * math.pi) + lax.log(far)) - (1 / 12 + (1 / 24 + 19 / (360 * far)) / far) / far
    return choose(mu < 0, np.nan, choose(mu == 0, 0.0, choose(large, asymptotic, series)))
