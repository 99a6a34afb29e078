"""The table of continuous distributions, in standard form.

Builds on `distribution`, which makes the public functions, and on `scipy.special`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.numpy.ufuncs import ufunc_table
from phalanx.numpy.ufuncs.ufunc_implementations import select_where
from phalanx.scipy import special
from phalanx.scipy.special import betainc, betaln, gammainc, gammaincc, gammaln, log_ndtr, ndtr, ndtri, xlog1py, xlogy
from phalanx.scipy.stats.distribution import Distribution
from phalanx.typing import Array

_LOG_2PI = math.log(2 * math.pi)


def _log1mexp(x: Array) -> Any:
    """log(1 - exp(x)) for x <= 0."""
    # log(-expm1(x)) is accurate for x near 0, and log1p(-exp(x)) for large negative x.
    near = x > -math.log(2)
    return select_where(
        near, lax.log(-lax.expm1(select_where(near, x, -1))), lax.log1p(-lax.exp(select_where(near, -1, x)))
    )


def _softplus(x: Array) -> Any:
    return ufunc_table.logaddexp(x, 0)


def _log_mass(a: Array, b: Array) -> Any:
    """The log probability that a standard normal number is between a and b.

    In a tail both distribution functions are close to 0 or 1, and their difference cancels. An interval to the right of
    0 is mirrored to the left, where the difference of logarithms is accurate.
    """
    right = a > 0
    low, high = select_where(right, -b, a), select_where(right, -a, b)
    below = high <= 0
    tail_high, tail_low = log_ndtr(select_where(below, high, -1.0)), log_ndtr(select_where(below, low, -2.0))
    is_none = (low >= high) | (tail_high == -np.inf)
    tails = tail_high + _log1mexp(select_where(is_none, -1.0, lax.min(tail_low - tail_high, lax.full_like(low, 0))))
    middle = lax.log1p(-ndtr(select_where(below, -1.0, low)) - ndtr(-select_where(below, 1.0, high)))
    return select_where(is_none, -np.inf, select_where(below, tails, middle))


def _truncnorm_logpdf(y: Array, a: Array, b: Array) -> Any:
    return -0.5 * (_LOG_2PI + y * y) - _log_mass(a, b)


# Written with min(q, 1 - q), so that both tails have full accuracy.
def _cauchy_ppf(q: Array) -> Any:
    return lax.sign(q - 0.5) / lax.tan(math.pi * lax.min(q, 1 - q))


def _laplace_cdf(y: Array) -> Any:
    return select_where(y < 0, 0.5 * lax.exp(lax.min(y, -y)), 1 - 0.5 * lax.exp(-lax.abs(y)))


def _laplace_ppf(q: Array) -> Any:
    return select_where(q < 0.5, lax.log(2 * q), -lax.log(2 * (1 - q)))


def _gennorm_cdf(y: Array, beta: Array) -> Any:
    return 0.5 * (1 + lax.sign(y) * gammainc(1 / beta, lax.abs(y) ** beta))


def _student_logpdf(y: Array, df: Array) -> Any:
    half = df / 2  # `betaln` avoids the cancellation of two large values of `gammaln`
    return -betaln(half, lax.full_like(half, 0.5)) - 0.5 * lax.log(df) - (half + 0.5) * lax.log1p(y * y / df)


def _wrapcauchy_logpdf(y: Array, c: Array) -> Any:
    return lax.log(1 - c * c) - _LOG_2PI - lax.log(1 + c * c - 2 * c * lax.cos(y))


# Each entry: the distribution, the arguments of the examples in docstrings, and the functions with their results there.
# fmt: off
CONTINUOUS = (
    (Distribution("beta", "the beta distribution", "a b",
            lambda y, a, b: xlogy(a - 1, y) + xlog1py(b - 1, -y) - betaln(a, b), 0.0, 1.0,
            cdf=lambda y, a, b: betainc(a, b, y), sf=lambda y, a, b: betainc(b, a, 1 - y)),
     "0.5, 2.0, 3.0", dict(logpdf=0.4055, pdf=1.5, cdf=0.6875, logcdf=-0.3747, sf=0.3125, logsf=-1.1632)),
    (Distribution("cauchy", "the Cauchy distribution", "", lambda y: -math.log(math.pi) - lax.log1p(y * y),
            cdf=lambda y: ufunc_table.arctan2(1, -y) / math.pi, sf=lambda y: ufunc_table.arctan2(1, y) / math.pi,
            ppf=_cauchy_ppf, isf=lambda q: -_cauchy_ppf(q)),
     "0.5", dict(logpdf=-1.3679, pdf=0.2546, cdf=0.6476, logcdf=-0.4345, sf=0.3524, logsf=-1.0429, ppf=-1.0, isf=1.0)),
    (Distribution("chi2", "the chi-squared distribution", "df",
            lambda y, df: xlogy(df / 2 - 1, y) - y / 2 - gammaln(df / 2) - df * (math.log(2) / 2), 0.0,
            cdf=lambda y, df: gammainc(df / 2, y / 2), sf=lambda y, df: gammaincc(df / 2, y / 2)),
     "0.5, 3.0", dict(logpdf=-1.5155, pdf=0.2197, cdf=0.0811, logcdf=-2.512, sf=0.9189, logsf=-0.0846)),
    (Distribution("expon", "the exponential distribution", "", lambda y: -y, 0.0,
            cdf=lambda y: -lax.expm1(-y), sf=lambda y: lax.exp(-y), logcdf=lambda y: _log1mexp(-y), logsf=lambda y: -y,
            ppf=lambda q: -lax.log1p(-q), isf=lambda q: -lax.log(q)),
     "0.5", dict(logpdf=-0.5, pdf=0.6065, cdf=0.3935, logcdf=-0.9328, sf=0.6065, logsf=-0.5, ppf=0.2877, isf=1.3863)),
    (Distribution("gamma", "the gamma distribution", "a", lambda y, a: xlogy(a - 1, y) - y - gammaln(a), 0.0,
            cdf=lambda y, a: gammainc(a, y), sf=lambda y, a: gammaincc(a, y)),
     "0.5, 2.0", dict(logpdf=-1.1931, pdf=0.3033, cdf=0.0902, logcdf=-2.4057, sf=0.9098, logsf=-0.0945)),
    (Distribution("gennorm", "the generalized normal distribution", "beta",
            lambda y, beta: lax.log(beta / 2) - gammaln(1 / beta) - lax.abs(y) ** beta, cdf=_gennorm_cdf),
     "0.5, 2.0", dict(logpdf=-0.8224, pdf=0.4394, cdf=0.7602)),
    (Distribution("gumbel_l", "the left-skewed Gumbel distribution", "", lambda y: y - lax.exp(y),
            cdf=lambda y: -lax.expm1(-lax.exp(y)), sf=lambda y: lax.exp(-lax.exp(y)),
            logcdf=lambda y: _log1mexp(-lax.exp(y)), logsf=lambda y: -lax.exp(y),
            ppf=lambda q: lax.log(-lax.log1p(-q)), isf=lambda q: lax.log(-lax.log(q))),
     "0.5", dict(logpdf=-1.1487, pdf=0.317, cdf=0.8077, logcdf=-0.2136, sf=0.1923, logsf=-1.6487, ppf=-1.2459,
                 isf=0.3266)),
    (Distribution("gumbel_r", "the right-skewed Gumbel distribution", "", lambda y: -y - lax.exp(-y),
            cdf=lambda y: lax.exp(-lax.exp(-y)), sf=lambda y: -lax.expm1(-lax.exp(-y)),
            logcdf=lambda y: -lax.exp(-y), logsf=lambda y: _log1mexp(-lax.exp(-y)),
            ppf=lambda q: -lax.log(-lax.log(q)), isf=lambda q: -lax.log(-lax.log1p(-q))),
     "0.5", dict(logpdf=-1.1065, pdf=0.3307, cdf=0.5452, logcdf=-0.6065, sf=0.4548, logsf=-0.788, ppf=-0.3266,
                 isf=1.2459)),
    (Distribution("laplace", "the Laplace distribution", "", lambda y: -lax.abs(y) - math.log(2),
            cdf=_laplace_cdf, sf=lambda y: _laplace_cdf(-y), ppf=_laplace_ppf, isf=lambda q: -_laplace_ppf(q)),
     "0.5", dict(logpdf=-1.1931, pdf=0.3033, cdf=0.6967, sf=0.3033, ppf=-0.6931, isf=0.6931)),
    (Distribution("logistic", "the logistic distribution", "", lambda y: -lax.abs(y) - 2 * lax.log1p(lax.exp(-lax.abs(y))),  # noqa: E501
            cdf=special.expit, sf=lambda y: special.expit(-y), logcdf=lambda y: -_softplus(-y),
            logsf=lambda y: -_softplus(y), ppf=special.logit, isf=lambda q: -special.logit(q)),
     "0.5", dict(logpdf=-1.4482, pdf=0.235, cdf=0.6225, logcdf=-0.4741, sf=0.3775, logsf=-0.9741, ppf=-1.0986,
                 isf=1.0986)),
    (Distribution("norm", "the normal distribution", "", lambda y: -0.5 * (_LOG_2PI + y * y), cdf=ndtr,
            sf=lambda y: ndtr(-y), logcdf=log_ndtr, logsf=lambda y: log_ndtr(-y), ppf=ndtri, isf=lambda q: -ndtri(q)),
     "0.5", dict(logpdf=-1.0439, pdf=0.3521, cdf=0.6915, logcdf=-0.3689, sf=0.3085, logsf=-1.1759, ppf=-0.6745,
                 isf=0.6745)),
    (Distribution("pareto", "the Pareto distribution", "b", lambda y, b: lax.log(b) - (b + 1) * lax.log(y), 1.0,
            cdf=lambda y, b: -lax.expm1(-b * lax.log(y)), sf=lambda y, b: lax.exp(-b * lax.log(y)),
            logcdf=lambda y, b: _log1mexp(-b * lax.log(y)), logsf=lambda y, b: -b * lax.log(y),
            ppf=lambda q, b: lax.exp(-lax.log1p(-q) / b), isf=lambda q, b: lax.exp(-lax.log(q) / b)),
     "2.0, 3.0", dict(logpdf=-1.674, pdf=0.1875, cdf=0.875, logcdf=-0.1335, sf=0.125, logsf=-2.0794, ppf=1.1006,
                      isf=1.5874)),
    (Distribution("t", "Student's t distribution", "df", _student_logpdf), "0.5, 3.0", dict(logpdf=-1.161, pdf=0.3132)),
    (Distribution("truncnorm", "the standard normal distribution truncated to [a, b]", "a b", _truncnorm_logpdf,
            lambda a, b: a, lambda a, b: b,
            logcdf=lambda y, a, b: _log_mass(a, y) - _log_mass(a, b),
            logsf=lambda y, a, b: _log_mass(y, b) - _log_mass(a, b)),
     "0.5, -1.0, 2.0", dict(logpdf=-0.8438, pdf=0.4301, cdf=0.6509, logcdf=-0.4294, sf=0.3491, logsf=-1.0523)),
    (Distribution("uniform", "the uniform distribution", "", lambda y: y * 0, 0.0, 1.0, cdf=lambda y: y, sf=lambda y: 1 - y,  # noqa: E501
            ppf=lambda q: q, isf=lambda q: 1 - q),
     "0.5", dict(logpdf=0.0, pdf=1.0, cdf=0.5, sf=0.5, ppf=0.25, isf=0.75)),
    (Distribution("vonmises", "the von Mises distribution", "kappa",
            lambda y, kappa: kappa * (lax.cos(y) - 1) - _LOG_2PI - lax.log(special.i0e(kappa))),
     "0.5, 2.0", dict(logpdf=-0.9067, pdf=0.4039)),
    (Distribution("wrapcauchy", "the wrapped Cauchy distribution", "c", _wrapcauchy_logpdf, 0.0, 2 * np.pi),
     "0.5, 0.3", dict(logpdf=-1.3585, pdf=0.257)),
)
# fmt: on
