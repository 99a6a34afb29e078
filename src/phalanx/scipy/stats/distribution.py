"""Univariate distributions as table rows, and the functions that are derived from a row.

A row (`Distribution`) holds the log density of the standard form, its support, and the formulas of cumulative functions
that are known. This file adds location and scale, the values outside of the support, missing cumulative functions, and
docstrings. Builds on `numpy` and `scipy.special`; `continuous_distributions` and `discrete_distributions` hold the
rows.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.numpy.operands.operand_conversion import promote_inexact, to_operand
from phalanx.numpy.operands.shape_rules import broadcast_operands
from phalanx.numpy.ufuncs.ufunc_implementations import isnan, select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array


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


_DOCS = {
    "logpdf": "The logarithm of the density",
    "pdf": "The density",
    "logpmf": "The logarithm of the probability",
    "pmf": "The probability",
    "cdf": "The cumulative distribution function",
    "logcdf": "The logarithm of the cumulative distribution function",
    "sf": "The survival function, 1 - cdf",
    "logsf": "The logarithm of the survival function",
    "ppf": "The inverse of the cumulative distribution function",
    "isf": "The inverse of the survival function",
}
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


def distribution_module(home: str, row: Distribution, example: str, **values: float) -> types.ModuleType:
    """Make the module of the functions of a distribution, such as `phalanx.scipy.stats.norm`.

    Args:
      home: the name of the package that contains the module.
      row: the distribution.
      example: the arguments of the examples in docstrings.
      values: for each function of the module, the result that its example shows.
    """
    module = types.ModuleType(f"{home}.{row.name}", f"Functions of {row.words}.")
    shapes = row.shapes.split()
    parameters = [*shapes, "loc"] if row.discrete else [*shapes, "loc", "scale"]
    for name, value in values.items():
        is_inverse = name in ("ppf", "isf")
        first = "q" if is_inverse else "k" if row.discrete else "x"
        call_args = example if not is_inverse else ", ".join(["0.25", *example.split(", ")[1:]])
        lines = [f"{', '.join(shapes)}: the shape parameters."] if shapes else []
        lines.append("loc: the location." if row.discrete else "loc, scale: the location and the scale.")
        doc = _DOC.format(
            what=_DOCS[name],
            words=row.words,
            first=first,
            name=name,
            family=row.name,
            example=call_args,
            value=value,
            points="probabilities" if is_inverse else "integers" if row.discrete else "the points",
            others="\n      ".join(lines),
        )
        setattr(module, name, _public(row, name, (first, *parameters), module.__name__, doc))
    sys.modules[module.__name__] = module  # for `from phalanx.scipy.stats.norm import pdf`
    return module


def _public(row: Distribution, name: str, names: tuple, home: str, doc: str) -> Callable:
    where = f"stats.{row.name}.{name}"
    defaults = {"loc": 0, "scale": 1}
    body = _BODIES[name]
    # Parameters have the names of SciPy, which differ between distributions, so the signature is made at run time.
    signature = inspect.Signature([_parameter(n, defaults) for n in names])

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


def _parameter(name: str, defaults: dict) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=defaults.get(name, inspect.Parameter.empty)
    )


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


def _is_infinite(end: Any) -> bool:
    return isinstance(end, float | int) and abs(end) == np.inf


def _between(low: Array, high: Array) -> Any:
    """A point inside of the support."""
    if _is_infinite(low):
        return high - 1.0 if not _is_infinite(high) else 0.0
    if _is_infinite(high):
        return low + 1.0
    # An end that is a parameter may be infinite too, so the midpoint could be NaN.
    return (low + high) / 2 if isinstance(low, float) else lax.clamp(low, lax.full_like(low, 0), high)


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


# Each function is derived from another one if the row has no formula; every row defines cdf or logcdf, or neither.
_cdf = _cumulative("cdf", 0.0, 1.0, lambda *a: lax.exp(_logcdf(*a)))
_sf = _cumulative("sf", 1.0, 0.0, lambda row, *a: 1 - _cdf(row, *a) if row.cdf else lax.exp(_logsf(row, *a)))
_logcdf = _cumulative("logcdf", -np.inf, 0.0, lambda *a: lax.log(_cdf(*a)))
_logsf = _cumulative("logsf", 0.0, -np.inf, lambda *a: lax.log(_sf(*a)))


def _ppf(row: Distribution, q: Array, *parameters: Any) -> Any:
    return _inverse(row.ppf, row, q, parameters)


def _isf(row: Distribution, q: Array, *parameters: Any) -> Any:
    return _ppf(row, 1 - q, *parameters) if row.isf is None else _inverse(row.isf, row, q, parameters)


def _inverse(function: Any, row: Distribution, q: Array, parameters: tuple) -> Any:
    inside = (q >= 0) & (q <= 1)
    *shapes, loc = parameters if row.discrete else parameters[:-1]
    y = function(select_where(inside, q, 0.5), *shapes)
    value = y + loc if row.discrete else loc + parameters[-1] * y
    inside = inside if row.discrete else inside & (parameters[-1] > 0)
    return select_where(inside, value, np.nan)


def _density(row: Distribution, x: Array, *parameters: Any) -> Any:
    return lax.exp(_log_density(row, x, *parameters))


_BODIES = {
    "logpdf": _log_density,
    "pdf": _density,
    "logpmf": _log_density,
    "pmf": _density,
    "cdf": _cdf,
    "sf": _sf,
    "logcdf": _logcdf,
    "logsf": _logsf,
    "ppf": _ppf,
    "isf": _isf,
}
