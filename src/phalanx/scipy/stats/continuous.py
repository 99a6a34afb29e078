"""Continuous distributions, a row each: what they are in their standard form.

Builds on `families`, which makes the functions, and on `scipy.special`; `stats` shows them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.numpy import ufuncs
from phalanx.numpy.bodies import choose
from phalanx.scipy import special
from phalanx.scipy.special import betainc, betaln, gammainc, gammaincc, gammaln, log_ndtr, ndtr, ndtri, xlog1py, xlogy
from phalanx.scipy.stats.families import Family

_LOG_2PI = math.log(2 * math.pi)


def _log1mexp(x: Any) -> Any:
    """log(1 - exp(x)) for x <= 0."""
    near = x > -math.log(2)
    return choose(near, lax.log(-lax.expm1(choose(near, x, -1))), lax.log1p(-lax.exp(choose(near, -1, x))))


def _softplus(x: Any) -> Any:
    return ufuncs.logaddexp(x, 0)


def _log_mass(a: Any, b: Any) -> Any:
    """The logarithm of the probability that a standard normal number lies from a to b."""
    right = a > 0  # then from the other side, where the two functions are not both near 1
    low, high = choose(right, -b, a), choose(right, -a, b)
    below = high <= 0
    tail_high, tail_low = log_ndtr(choose(below, high, -1.0)), log_ndtr(choose(below, low, -2.0))
    is_none = (low >= high) | (tail_high == -np.inf)
    tails = tail_high + _log1mexp(choose(is_none, -1.0, lax.min(tail_low - tail_high, lax.full_like(low, 0))))
    middle = lax.log1p(-ndtr(choose(below, -1.0, low)) - ndtr(-choose(below, 1.0, high)))
    return choose(is_none, -np.inf, choose(below, tails, middle))


def _bulge(y: Any, a: Any, b: Any) -> Any:
    return -0.5 * (_LOG_2PI + y * y) - _log_mass(a, b)


def _cauchy_ppf(q: Any) -> Any:
    return lax.sign(q - 0.5) / lax.tan(math.pi * lax.min(q, 1 - q))


def _laplace_cdf(y: Any) -> Any:
    return choose(y < 0, 0.5 * lax.exp(lax.min(y, -y)), 1 - 0.5 * lax.exp(-lax.abs(y)))


def _laplace_ppf(q: Any) -> Any:
    return choose(q < 0.5, lax.log(2 * q), -lax.log(2 * (1 - q)))


def _general_cdf(y: Any, beta: Any) -> Any:
    return 0.5 * (1 + lax.sign(y) * gammainc(1 / beta, lax.abs(y) ** beta))


def _student(y: Any, df: Any) -> Any:
    half = df / 2  # The two logarithms of the gamma function are large and nearly the same: betaln is their difference.
    return -betaln(half, lax.full_like(half, 0.5)) - 0.5 * lax.log(df) - (half + 0.5) * lax.log1p(y * y / df)


def _wrapped(y: Any, c: Any) -> Any:
    return lax.log(1 - c * c) - _LOG_2PI - lax.log(1 + c * c - 2 * c * lax.cos(y))


# Each: the row; where its functions are shown; and what they give there.
# fmt: off
CONTINUOUS = (
    (Family("beta", "the beta distribution", "a b",
            lambda y, a, b: xlogy(a - 1, y) + xlog1py(b - 1, -y) - betaln(a, b), 0.0, 1.0,
            cdf=lambda y, a, b: betainc(a, b, y), sf=lambda y, a, b: betainc(b, a, 1 - y)),
     "0.5, 2.0, 3.0", dict(logpdf=0.4055, pdf=1.5, cdf=0.6875, logcdf=-0.3747, sf=0.3125, logsf=-1.1632)),
    (Family("cauchy", "the Cauchy distribution", "", lambda y: -math.log(math.pi) - lax.log1p(y * y),
            cdf=lambda y: ufuncs.arctan2(1, -y) / math.pi, sf=lambda y: ufuncs.arctan2(1, y) / math.pi,
            ppf=_cauchy_ppf, isf=lambda q: -_cauchy_ppf(q)),
     "0.5", dict(logpdf=-1.3679, pdf=0.2546, cdf=0.6476, logcdf=-0.4345, sf=0.3524, logsf=-1.0429, ppf=-1.0, isf=1.0)),
    (Family("chi2", "the chi-squared distribution", "df",
            lambda y, df: xlogy(df / 2 - 1, y) - y / 2 - gammaln(df / 2) - df * (math.log(2) / 2), 0.0,
            cdf=lambda y, df: gammainc(df / 2, y / 2), sf=lambda y, df: gammaincc(df / 2, y / 2)),
     "0.5, 3.0", dict(logpdf=-1.5155, pdf=0.2197, cdf=0.0811, logcdf=-2.512, sf=0.9189, logsf=-0.0846)),
    (Family("expon", "the exponential distribution", "", lambda y: -y, 0.0,
            cdf=lambda y: -lax.expm1(-y), sf=lambda y: lax.exp(-y), logcdf=lambda y: _log1mexp(-y), logsf=lambda y: -y,
            ppf=lambda q: -lax.log1p(-q), isf=lambda q: -lax.log(q)),
     "0.5", dict(logpdf=-0.5, pdf=0.6065, cdf=0.3935, logcdf=-0.9328, sf=0.6065, logsf=-0.5, ppf=0.2877, isf=1.3863)),
    (Family("gamma", "the gamma distribution", "a", lambda y, a: xlogy(a - 1, y) - y - gammaln(a), 0.0,
            cdf=lambda y, a: gammainc(a, y), sf=lambda y, a: gammaincc(a, y)),
     "0.5, 2.0", dict(logpdf=-1.1931, pdf=0.3033, cdf=0.0902, logcdf=-2.4057, sf=0.9098, logsf=-0.0945)),
    (Family("gennorm", "the generalised normal distribution", "beta",
            lambda y, beta: lax.log(beta / 2) - gammaln(1 / beta) - lax.abs(y) ** beta, cdf=_general_cdf),
     "0.5, 2.0", dict(logpdf=-0.8224, pdf=0.4394, cdf=0.7602)),
    (Family("gumbel_l", "the left-skewed Gumbel distribution", "", lambda y: y - lax.exp(y),
            cdf=lambda y: -lax.expm1(-lax.exp(y)), sf=lambda y: lax.exp(-lax.exp(y)),
            logcdf=lambda y: _log1mexp(-lax.exp(y)), logsf=lambda y: -lax.exp(y),
            ppf=lambda q: lax.log(-lax.log1p(-q)), isf=lambda q: lax.log(-lax.log(q))),
     "0.5", dict(logpdf=-1.1487, pdf=0.317, cdf=0.8077, logcdf=-0.2136, sf=0.1923, logsf=-1.6487, ppf=-1.2459,
                 isf=0.3266)),
    (Family("gumbel_r", "the right-skewed Gumbel distribution", "", lambda y: -y - lax.exp(-y),
            cdf=lambda y: lax.exp(-lax.exp(-y)), sf=lambda y: -lax.expm1(-lax.exp(-y)),
            logcdf=lambda y: -lax.exp(-y), logsf=lambda y: _log1mexp(-lax.exp(-y)),
            ppf=lambda q: -lax.log(-lax.log(q)), isf=lambda q: -lax.log(-lax.log1p(-q))),
     "0.5", dict(logpdf=-1.1065, pdf=0.3307, cdf=0.5452, logcdf=-0.6065, sf=0.4548, logsf=-0.788, ppf=-0.3266,
                 isf=1.2459)),
    (Family("laplace", "the Laplace distribution", "", lambda y: -lax.abs(y) - math.log(2),
            cdf=_laplace_cdf, sf=lambda y: _laplace_cdf(-y), ppf=_laplace_ppf, isf=lambda q: -_laplace_ppf(q)),
     "0.5", dict(logpdf=-1.1931, pdf=0.3033, cdf=0.6967, sf=0.3033, ppf=-0.6931, isf=0.6931)),
    (Family("logistic", "the logistic distribution", "", lambda y: -lax.abs(y) - 2 * lax.log1p(lax.exp(-lax.abs(y))),
            cdf=special.expit, sf=lambda y: special.expit(-y), logcdf=lambda y: -_softplus(-y),
            logsf=lambda y: -_softplus(y), ppf=special.logit, isf=lambda q: -special.logit(q)),
     "0.5", dict(logpdf=-1.4482, pdf=0.235, cdf=0.6225, logcdf=-0.4741, sf=0.3775, logsf=-0.9741, ppf=-1.0986,
                 isf=1.0986)),
    (Family("norm", "the normal distribution", "", lambda y: -0.5 * (_LOG_2PI + y * y), cdf=ndtr,
            sf=lambda y: ndtr(-y), logcdf=log_ndtr, logsf=lambda y: log_ndtr(-y), ppf=ndtri, isf=lambda q: -ndtri(q)),
     "0.5", dict(logpdf=-1.0439, pdf=0.3521, cdf=0.6915, logcdf=-0.3689, sf=0.3085, logsf=-1.1759, ppf=-0.6745,
                 isf=0.6745)),
    (Family("pareto", "the Pareto distribution", "b", lambda y, b: lax.log(b) - (b + 1) * lax.log(y), 1.0,
            cdf=lambda y, b: -lax.expm1(-b * lax.log(y)), sf=lambda y, b: lax.exp(-b * lax.log(y)),
            logcdf=lambda y, b: _log1mexp(-b * lax.log(y)), logsf=lambda y, b: -b * lax.log(y),
            ppf=lambda q, b: lax.exp(-lax.log1p(-q) / b), isf=lambda q, b: lax.exp(-lax.log(q) / b)),
     "2.0, 3.0", dict(logpdf=-1.674, pdf=0.1875, cdf=0.875, logcdf=-0.1335, sf=0.125, logsf=-2.0794, ppf=1.1006,
                      isf=1.5874)),
    (Family("t", "Student's t distribution", "df", _student), "0.5, 3.0", dict(logpdf=-1.161, pdf=0.3132)),
    (Family("truncnorm", "the normal distribution cut off at a and b, in its standard form", "a b", _bulge,
            lambda a, b: a, lambda a, b: b,
            logcdf=lambda y, a, b: _log_mass(a, y) - _log_mass(a, b),
            logsf=lambda y, a, b: _log_mass(y, b) - _log_mass(a, b)),
     "0.5, -1.0, 2.0", dict(logpdf=-0.8438, pdf=0.4301, cdf=0.6509, logcdf=-0.4294, sf=0.3491, logsf=-1.0523)),
    (Family("uniform", "the uniform distribution", "", lambda y: y * 0, 0.0, 1.0, cdf=lambda y: y, sf=lambda y: 1 - y,
            ppf=lambda q: q, isf=lambda q: 1 - q),
     "0.5", dict(logpdf=0.0, pdf=1.0, cdf=0.5, sf=0.5, ppf=0.25, isf=0.75)),
    (Family("vonmises", "the von Mises distribution", "kappa",
            lambda y, kappa: kappa * (lax.cos(y) - 1) - _LOG_2PI - lax.log(special.i0e(kappa))),
     "0.5, 2.0", dict(logpdf=-0.9067, pdf=0.4039)),
    (Family("wrapcauchy", "the wrapped Cauchy distribution", "c", _wrapped, 0.0, 2 * np.pi),
     "0.5, 0.3", dict(logpdf=-1.3585, pdf=0.257)),
)
# fmt: on
