"""Distributions as rows: what a family of distributions is in its standard form, and the functions that follow.

A row gives the logarithm of the density, where it lives, and of the cumulative function and its kin what is known;
location, scale, edges and documentation are added here. Builds on `numpy` and `scipy.special`; `continuous.py` and
`discrete.py` hold the rows.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.engine.frames import boundary
from phalanx.numpy.bodies import choose, isnan
from phalanx.numpy.operands import broadcast_operands, operand, promote_inexact
from phalanx.runtime.dispatch import eager_program


class Family(NamedTuple):
    """Distributions that differ in their parameters, each function taking a standardised point and the shapes."""

    name: str
    words: str  # what it is called in documentation
    shapes: str  # names of the parameters beside location and scale
    log_density: Callable
    low: Any = -np.inf  # the support, both ends belonging to it; a function of the shapes where it depends on them
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


def family_module(home: str, row: Family, example: str, **values: float) -> types.ModuleType:
    """The module of the functions of a family.

    Args:
      home: the name of the package that shows it.
      row: the family.
      example: arguments at which the functions are shown in their documentation.
      values: what each function gives there; those named are the functions that the module has.
    """
    module = types.ModuleType(f"{home}.{row.name}", f"Functions of {row.words}.")
    shapes = row.shapes.split()
    others = [*shapes, "loc"] if row.discrete else [*shapes, "loc", "scale"]
    for name, value in values.items():
        inverse = name in ("ppf", "isf")
        first = "q" if inverse else "k" if row.discrete else "x"
        shown = example if not inverse else ", ".join(["0.25", *example.split(", ")[1:]])
        lines = [f"{', '.join(shapes)}: the parameters."] if shapes else []
        lines.append(
            "loc: how far it is shifted." if row.discrete else "loc, scale: where it lies, and how wide it is."
        )
        doc = _DOC.format(
            what=_DOCS[name], words=row.words, first=first, name=name, family=row.name, example=shown, value=value,
            points="probabilities" if inverse else "integers" if row.discrete else "where",
            others="\n      ".join(lines),
        )  # fmt: skip
        setattr(module, name, _public(row, name, (first, *others), module.__name__, doc))
    sys.modules[module.__name__] = module  # so that `from phalanx.scipy.stats.norm import pdf` finds it
    return module


def _public(row: Family, name: str, names: tuple, home: str, doc: str) -> Callable:
    where = f"stats.{row.name}.{name}"
    defaults = {"loc": 0, "scale": 1}
    body = _BODIES[name]
    signature = inspect.Signature([_parameter(n, defaults) for n in names])

    @eager_program
    def run(*values: Any) -> Any:
        return body(row, *broadcast_operands(where, *promote_inexact(where, *(operand(v, where) for v in values))))

    def function(*args: Any, **given: Any) -> Any:
        if given or len(args) < len(names):
            bound = signature.bind(*args, **given)
            bound.apply_defaults()
            args = bound.args
        return run(*args)

    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = home, doc
    return boundary(function)


def _parameter(name: str, defaults: dict) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=defaults.get(name, inspect.Parameter.empty)
    )


def _standard(row: Family, x: Any, parameters: tuple) -> tuple:
    """The standardised point, the shapes, the scale, and the ends of the support."""
    if row.discrete:
        *shapes, loc = parameters
        y, scale = x - loc, None
    else:
        *shapes, loc, scale = parameters
        y = (x - loc) / scale
    low, high = (end(*shapes) if callable(end) else end for end in (row.low, row.high))
    return y, shapes, scale, low, high


def _log_density(row: Family, x: Any, *parameters: Any) -> Any:
    y, shapes, scale, low, high = _standard(row, x, parameters)
    inside = (y >= low) & (y <= high)
    if row.discrete:
        inside = inside & (y == lax.floor(y))
    # What lies outside is computed at a harmless place, so that its derivative is 0 and not NaN.
    y_in = choose(inside, y, low if row.discrete else _between(low, high))
    value = row.log_density(y_in, *shapes)
    value = value if scale is None else value - lax.log(scale)
    value = choose(isnan(y), np.nan, choose(inside, value, -np.inf))
    return value if scale is None else choose(scale > 0, value, np.nan)


def _is_infinite(end: Any) -> bool:
    return isinstance(end, float | int) and abs(end) == np.inf


def _between(low: Any, high: Any) -> Any:
    """A place inside the support."""
    if _is_infinite(low):
        return high - 1.0 if not _is_infinite(high) else 0.0
    if _is_infinite(high):
        return low + 1.0
    # Ends that are parameters may be infinite too.
    return (low + high) / 2 if isinstance(low, float) else lax.clamp(low, lax.full_like(low, 0), high)


def _cumulative(formula: str, below: float, above: float, derive: Callable) -> Callable:
    """A function of the cumulative kind: by its own formula, or derived from another one, and constant outside."""

    def body(row: Family, x: Any, *parameters: Any) -> Any:
        function = getattr(row, formula)
        if function is None:
            return derive(row, x, *parameters)
        y, shapes, scale, low, high = _standard(row, lax.floor(x) if row.discrete else x, parameters)
        under, over = y < low, y >= high
        y_in = choose(under | over, low if row.discrete else _between(low, high), y)
        value = choose(under, below, choose(over, above, function(y_in, *shapes)))
        value = choose(isnan(y), np.nan, value)
        return value if scale is None else choose(scale > 0, value, np.nan)

    return body


_cdf = _cumulative("cdf", 0.0, 1.0, lambda *a: lax.exp(_logcdf(*a)))
_sf = _cumulative("sf", 1.0, 0.0, lambda row, *a: 1 - _cdf(row, *a) if row.cdf else lax.exp(_logsf(row, *a)))
_logcdf = _cumulative("logcdf", -np.inf, 0.0, lambda *a: lax.log(_cdf(*a)))
_logsf = _cumulative("logsf", 0.0, -np.inf, lambda *a: lax.log(_sf(*a)))


def _ppf(row: Family, q: Any, *parameters: Any) -> Any:
    return _inverse(row.ppf, row, q, parameters)


def _isf(row: Family, q: Any, *parameters: Any) -> Any:
    return _ppf(row, 1 - q, *parameters) if row.isf is None else _inverse(row.isf, row, q, parameters)


def _inverse(function: Any, row: Family, q: Any, parameters: tuple) -> Any:
    inside = (q >= 0) & (q <= 1)
    *shapes, loc = parameters if row.discrete else parameters[:-1]
    y = function(choose(inside, q, 0.5), *shapes)
    value = y + loc if row.discrete else loc + parameters[-1] * y
    inside = inside if row.discrete else inside & (parameters[-1] > 0)
    return choose(inside, value, np.nan)


def _density(row: Family, x: Any, *parameters: Any) -> Any:
    return lax.exp(_log_density(row, x, *parameters))


_BODIES = {
    "logpdf": _log_density, "pdf": _density, "logpmf": _log_density, "pmf": _density, "cdf": _cdf, "sf": _sf,
    "logcdf": _logcdf, "logsf": _logsf, "ppf": _ppf, "isf": _isf,
}  # fmt: skip
