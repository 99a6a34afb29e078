"""Univariate distributions as rows of a table, and the modules made of them, such as `phalanx.scipy.stats.norm`.

A row (`Distribution`) holds the log density of the standard form, its support, and the formulas of cumulative functions
that are known. The functions of a module add location and scale, the values outside of the support, missing cumulative
functions, and docstrings. Builds on `numpy` and `scipy.special`; the `__init__` of this package adds the modules to its
namespace.
"""

from __future__ import annotations

import inspect
import math
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.numpy.operands import broadcast_operands, promote_inexact, to_operand
from phalanx.numpy.ufuncs.ufunc_implementations import isnan, select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy import special
from phalanx.scipy.argument_checks import to_inexact_operands
from phalanx.scipy.special import betainc, betaln, gammainc, gammaincc, gammaln, log_ndtr, ndtr, ndtri, xlog1py, xlogy
from phalanx.typing import Array, ArrayLike


class Distribution(NamedTuple):
    """A family of distributions in standard form; functions take a standardized point and the shape parameters."""

    name: str
    words: str  # the name in docstrings
    shapes: str  # the names of the shape parameters
    log_density: Callable
    low: Any = -np.inf  # the support, including both ends; a function if it depends on the shape parameters
    high: Any = np.inf
    cdf: Callable | None = None
    sf: Callable | None = None
    logcdf: Callable | None = None
    logsf: Callable | None = None
    ppf: Callable | None = None
    isf: Callable | None = None
    discrete: bool = False


_DEFAULTS = {"loc": 0, "scale": 1}
_DOC = """{what} of {words}.

    Args:
      {first}: {points}.
      {others}

    Returns:
      The value for each element, in the broadcast shape.

    Examples:
      >>> from phalanx.scipy.stats import {family}
      >>> round({family}.{name}({example}).item(), 4)
      {value}
    """


def _distribution_module(row: Distribution, example: str, values: Mapping[str, float]) -> types.ModuleType:
    """Make the module of the functions of a distribution, such as `phalanx.scipy.stats.norm`.

    Args:
      row: the distribution.
      example: the arguments of the examples in docstrings.
      values: for each function of the module, the result that its example shows.
    """
    module = types.ModuleType(f"phalanx.scipy.stats.{row.name}", f"Functions of {row.words}.")
    shapes = row.shapes.split()
    parameters = [*shapes, "loc"] if row.discrete else [*shapes, "loc", "scale"]
    last = "loc: the location." if row.discrete else "loc, scale: the location and the scale."
    for name, value in values.items():
        is_inverse = name in ("ppf", "isf")
        first = "q" if is_inverse else "k" if row.discrete else "x"
        doc = _DOC.format(
            what=_FUNCTIONS[name][0],
            words=row.words,
            first=first,
            name=name,
            family=row.name,
            example=", ".join(["0.25", *example.split(", ")[1:]]) if is_inverse else example,
            value=value,
            points="probabilities" if is_inverse else "integers" if row.discrete else "the points",
            others="\n      ".join([f"{', '.join(shapes)}: the shape parameters.", last] if shapes else [last]),
        )
        setattr(module, name, _public(row, name, (first, *parameters), module.__name__, doc))
    sys.modules[module.__name__] = module  # for `from phalanx.scipy.stats.norm import pdf`
    return module


def _public(row: Distribution, name: str, names: tuple, home: str, doc: str) -> Callable:
    where = f"stats.{row.name}.{name}"
    _, body = _FUNCTIONS[name]
    # Parameters have the names of SciPy, which differ between distributions, so the signature is made at run time.
    signature = inspect.Signature(
        [
            inspect.Parameter(
                n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=_DEFAULTS.get(n, inspect.Parameter.empty)
            )
            for n in names
        ]
    )

    @eager_jit
    def run(*values: Any) -> Any:
        return body(row, *broadcast_operands(where, *promote_inexact(where, *(to_operand(v, where) for v in values))))

    def function(*args: Any, **given: Any) -> Any:
        if given or len(args) < len(names):
            bound = signature.bind(*args, **given)
            bound.apply_defaults()
            args = bound.args
        return run(*args)

    # For `help`, and for tools that read signatures.
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = home, doc
    return api_boundary(function)


def _standard(row: Distribution, x: Array, parameters: tuple) -> tuple:
    """The standardized point, the shape parameters, the scale, and the ends of the support."""
    if row.discrete:
        *shapes, loc = parameters
        y, scale = x - loc, None
    else:
        *shapes, loc, scale = parameters
        y = (x - loc) / scale
    low, high = (end(*shapes) if callable(end) else end for end in (row.low, row.high))
    return y, shapes, scale, low, high


def _log_density(row: Distribution, x: Array, *parameters: Any) -> Any:
    y, shapes, scale, low, high = _standard(row, x, parameters)
    inside = (y >= low) & (y <= high)
    # A discrete distribution has no mass between integers.
    if row.discrete:
        inside = inside & (y == lax.floor(y))
    # Points outside of the support are replaced by one inside, so that the derivative is 0 and not NaN.
    safe_y = select_where(inside, y, low if row.discrete else _between(low, high))
    value = row.log_density(safe_y, *shapes)
    value = value if scale is None else value - lax.log(scale)
    value = select_where(isnan(y), np.nan, select_where(inside, value, -np.inf))
    return value if scale is None else select_where(scale > 0, value, np.nan)


def _between(low: Any, high: Any) -> Any:
    """A point inside of the support."""
    # Constant ends that are finite are below 8, and infinite ones must not reach the midpoint.
    if isinstance(low, float):
        return (max(low, -8.0) + min(high, 8.0)) / 2
    # An end that is a parameter may be infinite too, so the midpoint could be NaN.
    return lax.clamp(low, lax.full_like(low, 0), high)


def _cumulative(formula: str, below: float, above: float, derive: Callable) -> Callable:
    """Make a cumulative function from the formula of a row, or else from another cumulative function.

    Args:
      formula: the field of the row.
      below, above: the values below and above the support.
      derive: computes the function from another one, if the row has no formula.
    """

    def body(row: Distribution, x: Array, *parameters: Any) -> Any:
        function = getattr(row, formula)
        if function is None:
            return derive(row, x, *parameters)
        y, shapes, scale, low, high = _standard(row, lax.floor(x) if row.discrete else x, parameters)
        is_below, is_above = y < low, y >= high
        y_in = select_where(is_below | is_above, low if row.discrete else _between(low, high), y)
        value = select_where(is_below, below, select_where(is_above, above, function(y_in, *shapes)))
        value = select_where(isnan(y), np.nan, value)
        return value if scale is None else select_where(scale > 0, value, np.nan)

    return body


# Each function is derived from another one if the row has no formula; every row that has one of these functions defines
# cdf or logcdf, and sf or logsf.
_cdf = _cumulative("cdf", 0.0, 1.0, lambda *a: lax.exp(_logcdf(*a)))
_sf = _cumulative("sf", 1.0, 0.0, lambda *a: lax.exp(_logsf(*a)))
_logcdf = _cumulative("logcdf", -np.inf, 0.0, lambda *a: lax.log(_cdf(*a)))
_logsf = _cumulative("logsf", 0.0, -np.inf, lambda *a: lax.log(_sf(*a)))


def _inverse(function: Any, row: Distribution, q: Array, *parameters: Any) -> Any:
    inside = (q >= 0) & (q <= 1)
    *shapes, loc = parameters if row.discrete else parameters[:-1]
    y = function(select_where(inside, q, 0.5), *shapes)
    if row.discrete:
        return select_where(inside, y + loc, np.nan)
    return select_where(inside & (parameters[-1] > 0), loc + parameters[-1] * y, np.nan)


def _density(row: Distribution, x: Array, *parameters: Any) -> Any:
    return lax.exp(_log_density(row, x, *parameters))


# The first line of the docstring of each function, and its implementation.
_FUNCTIONS = {
    "logpdf": ("The logarithm of the density", _log_density),
    "pdf": ("The density", _density),
    "logpmf": ("The logarithm of the probability", _log_density),
    "pmf": ("The probability", _density),
    "cdf": ("The cumulative distribution function", _cdf),
    "logcdf": ("The logarithm of the cumulative distribution function", _logcdf),
    "sf": ("The survival function, 1 - cdf", _sf),
    "logsf": ("The logarithm of the survival function", _logsf),
    "ppf": ("The inverse of the cumulative distribution function", lambda row, *a: _inverse(row.ppf, row, *a)),
    "isf": ("The inverse of the survival function", lambda row, *a: _inverse(row.isf, row, *a)),
}


_LOG_2PI = math.log(2 * math.pi)


def _log1mexp(x: Array) -> Any:
    """log(1 - exp(x)) for x <= 0."""
    # log(-expm1(x)) is accurate for x near 0, and log1p(-exp(x)) for large negative x.
    near = x > -math.log(2)
    return select_where(
        near, lax.log(-lax.expm1(select_where(near, x, -1))), lax.log1p(-lax.exp(select_where(near, -1, x)))
    )


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


# Written with min(q, 1 - q), so that both tails have full accuracy.
def _cauchy_ppf(q: Array) -> Any:
    return lax.sign(q - 0.5) / lax.tan(math.pi * lax.min(q, 1 - q))


def _laplace_cdf(y: Array) -> Any:
    return select_where(y < 0, 0.5 * lax.exp(lax.min(y, -y)), 1 - 0.5 * lax.exp(-lax.abs(y)))


def _laplace_ppf(q: Array) -> Any:
    return select_where(q < 0.5, lax.log(2 * q), -lax.log(2 * (1 - q)))


def _student_logpdf(y: Array, df: Array) -> Any:
    half = df / 2  # `betaln` avoids the cancellation of two large values of `gammaln`
    return -betaln(half, lax.full_like(half, 0.5)) - 0.5 * lax.log(df) - (half + 0.5) * lax.log1p(y * y / df)


def _log_binomial(n: Array, k: Array) -> Any:
    """The logarithm of the binomial coefficient n over k."""
    return -betaln(n - k + 1, k + 1) - lax.log1p(n)


# Each entry: the distribution, the arguments of the examples in docstrings, and the functions with their results there.
# fmt: off
_TABLE = (
    (Distribution("beta", "the beta distribution", "a b",
            lambda y, a, b: xlogy(a - 1, y) + xlog1py(b - 1, -y) - betaln(a, b), 0.0, 1.0,
            cdf=lambda y, a, b: betainc(a, b, y), sf=lambda y, a, b: betainc(b, a, 1 - y)),
     "0.5, 2.0, 3.0", dict(logpdf=0.4055, pdf=1.5, cdf=0.6875, logcdf=-0.3747, sf=0.3125, logsf=-1.1632)),
    (Distribution("cauchy", "the Cauchy distribution", "", lambda y: -math.log(math.pi) - lax.log1p(y * y),
            cdf=lambda y: jnp.arctan2(1, -y) / math.pi, sf=lambda y: jnp.arctan2(1, y) / math.pi,
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
            lambda y, beta: lax.log(beta / 2) - gammaln(1 / beta) - lax.abs(y) ** beta,
            cdf=lambda y, beta: 0.5 * (1 + lax.sign(y) * gammainc(1 / beta, lax.abs(y) ** beta))),
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
            cdf=special.expit, sf=lambda y: special.expit(-y), logcdf=lambda y: -jnp.logaddexp(-y, 0),
            logsf=lambda y: -jnp.logaddexp(y, 0), ppf=special.logit, isf=lambda q: -special.logit(q)),
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
    (Distribution("truncnorm", "the standard normal distribution truncated to [a, b]", "a b",
            lambda y, a, b: -0.5 * (_LOG_2PI + y * y) - _log_mass(a, b), lambda a, b: a, lambda a, b: b,
            logcdf=lambda y, a, b: _log_mass(a, y) - _log_mass(a, b),
            logsf=lambda y, a, b: _log_mass(y, b) - _log_mass(a, b)),
     "0.5, -1.0, 2.0", dict(logpdf=-0.8438, pdf=0.4301, cdf=0.6509, logcdf=-0.4294, sf=0.3491, logsf=-1.0523)),
    (Distribution("uniform", "the uniform distribution", "", lambda y: y * 0, 0.0, 1.0, cdf=lambda y: y, sf=lambda y: 1 - y,  # noqa: E501
            ppf=lambda q: q, isf=lambda q: 1 - q),
     "0.5", dict(logpdf=0.0, pdf=1.0, cdf=0.5, sf=0.5, ppf=0.25, isf=0.75)),
    (Distribution("vonmises", "the von Mises distribution", "kappa",
            lambda y, kappa: kappa * (lax.cos(y) - 1) - _LOG_2PI - lax.log(special.i0e(kappa))),
     "0.5, 2.0", dict(logpdf=-0.9067, pdf=0.4039)),
    (Distribution("wrapcauchy", "the wrapped Cauchy distribution", "c",
            lambda y, c: lax.log(1 - c * c) - _LOG_2PI - lax.log(1 + c * c - 2 * c * lax.cos(y)), 0.0, 2 * np.pi),
     "0.5, 0.3", dict(logpdf=-1.3585, pdf=0.257)),
    (Distribution("bernoulli", "the Bernoulli distribution", "p", lambda k, p: xlogy(k, p) + xlog1py(1 - k, -p), 0.0, 1.0,  # noqa: E501
            cdf=lambda k, p: 1 - p, ppf=lambda q, p: select_where(q <= 1 - p, 0.0, 1.0), discrete=True),
     "0, 0.3", dict(logpmf=-0.3567, pmf=0.7, cdf=0.7, ppf=0.0)),
    (Distribution("betabinom", "the beta-binomial distribution", "n a b",
            lambda k, n, a, b: _log_binomial(n, k) + betaln(k + a, n - k + b) - betaln(a, b), 0.0, lambda n, a, b: n,
            discrete=True),
     "2, 5, 2.0, 3.0", dict(logpmf=-1.4351, pmf=0.2381)),
    (Distribution("binom", "the binomial distribution", "n p",
            lambda k, n, p: _log_binomial(n, k) + xlogy(k, p) + xlog1py(n - k, -p), 0.0, lambda n, p: n, discrete=True),
     "2, 5, 0.3", dict(logpmf=-1.1754, pmf=0.3087)),
    (Distribution("geom", "the geometric distribution", "p", lambda k, p: xlog1py(k - 1, -p) + lax.log(p), 1.0,
            discrete=True),
     "2, 0.3", dict(logpmf=-1.5606, pmf=0.21)),
    (Distribution("nbinom", "the negative binomial distribution", "n p",
            lambda k, n, p: gammaln(k + n) - gammaln(n) - gammaln(k + 1) + n * lax.log(p) + xlog1py(k, -p), 0.0,
            discrete=True),
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
    mu, _ = broadcast_operands("stats.poisson.entropy", *to_inexact_operands("stats.poisson.entropy", mu, loc))
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


DISTRIBUTIONS: dict[str, Any] = {
    row.name: _distribution_module(row, example, values) for row, example, values in _TABLE
}
DISTRIBUTIONS["poisson"].entropy = entropy
