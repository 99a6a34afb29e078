"""Elementwise special functions that are ufuncs: a table of names, implementations, docstrings and examples.

Many implementations are primitives of `lax`. Builds on the ufuncs of `numpy`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.numpy.operands import to_numpy_scalar
from phalanx.numpy.ufuncs.ufunc_dispatch import UfuncRule, make_ufunc, to_inexact
from phalanx.numpy.ufuncs.ufunc_implementations import common_dtype, isnan, select_where
from phalanx.scipy.special import error_functions as normals, gamma_functions as gammas
from phalanx.scipy.special.elementwise_algorithm import with_derivatives
from phalanx.typing import Array, ArrayLike

# Functions whose result has a strong dtype even where all operands are Python scalars, as in JAX. A strong result
# decides the dtype of a later operation with a narrower array.
_STRONG = {"beta", "gamma", "gammasgn", "kl_div", "log_ndtr", "ndtr", "ndtri", "rel_entr"}


def _unary(
    name: str, body: Callable[..., Any], doc: str, example: str, result: str, classes: str = "bif", names: str = "x"
) -> Callable[..., Any]:
    """One row of the table below: a ufunc with its documentation.

    Args:
      name: the name of the function.
      body: its implementation, or a primitive.
      doc: the first line of its docstring.
      example, result: the arguments and the rounded result of the example.
      classes: the classes of dtypes it accepts: b(ool), i(nteger), f(loating point), c(omplex).
      names: the names of its parameters.
    """
    text = (
        f">>> from phalanx.scipy import special\n      >>> round(special.{name}({example}).item(), 4)\n      {result}"
    )
    return make_ufunc(UfuncRule(name, classes, to_inexact, {"": body}, name in _STRONG), names, __name__, doc, text)


_binary = functools.partial(_unary, names="x y")


def _zero(x: Array) -> Array:
    return to_numpy_scalar(0, common_dtype(x))


def _times_log(log: Callable[[Array], Array], offset: int) -> Callable[[Array, Array], Array]:
    """Make x log(y + offset), with the value 0 where x is 0, unless y is NaN."""

    # The derivatives, of any order, hold where x is 0 too; there the derivative with respect to y is 0 for all y.
    @with_derivatives(
        lambda x_dot, _, x, y: log(y) * x_dot,
        lambda y_dot, _, x, y: x / select_where((x == 0) & (y + offset == 0), 1, y + offset) * y_dot,
    )
    def product(x: Array, y: Array) -> Array:
        # NaN is selected, since XLA simplifies the product of NaN with a 0 that was converted from a boolean to 0.
        return select_where(lax.ne_p(x, _zero(x)), lax.mul_p(x, log(y)), select_where(isnan(y), y, 0))

    return product


_xlogy, _xlog1py = _times_log(lax.log_p, 0), _times_log(lax.log1p_p, 1)


def _entr(x: Array) -> Array:
    negative = lax.lt_p(x, _zero(x))
    inside = select_where(negative, 1, x)
    return select_where(negative, -np.inf, lax.neg_p(_xlogy(inside, inside)))


def _rel_entr(p: Array, q: Array) -> Array:
    both = lax.gt_p(p, _zero(p)) & lax.gt_p(q, _zero(q))
    safe_p, safe_q = select_where(both, p, 1), select_where(both, q, 1)
    value = lax.mul_p(safe_p, lax.log_p(lax.div_p(safe_p, safe_q)))
    empty = lax.eq_p(p, _zero(p)) & lax.ge_p(q, _zero(q))
    value = select_where(both, value, select_where(empty, _zero(value), to_numpy_scalar(np.inf, value.dtype)))
    return select_where(isnan(p) | isnan(q), np.nan, value)


def _box_cox(log: Array, power: Array) -> Array:
    """(exp(power log) - 1) / power, whose limit for the power 0 is `log`."""
    at_zero = lax.eq_p(power, _zero(log))
    safe = select_where(at_zero, 1, power)
    return select_where(at_zero, log, lax.div_p(lax.expm1_p(lax.mul_p(safe, log)), safe))


erf = _unary("erf", lax.erf_p, "The error function.", "0.5", "0.5205")
erfc = _unary("erfc", lax.erfc_p, "1 - erf(x), accurate where it is small.", "0.5", "0.4795")
erfinv = _unary("erfinv", lax.erf_inv_p, "The inverse of the error function.", "0.5", "0.4769")
expit = _unary("expit", lax.logistic_p, "The logistic function 1 / (1 + exp(-x)).", "0.0", "0.5", "bifc")
logit = _unary(
    "logit",
    lambda x: lax.log_p(lax.div_p(x, lax.sub_p(to_numpy_scalar(1, common_dtype(x)), x))),
    "The inverse of the logistic function, log(p / (1 - p)).",
    "0.5",
    "0.0",
    "bifc",
)
gammaln = _unary("gammaln", lax.lgamma_p, "The logarithm of the magnitude of the gamma function.", "5.0", "3.1781")
loggamma = _unary(
    "loggamma",
    gammas.loggamma,
    "The logarithm of the gamma function; NaN for negative real numbers.",
    "5.0",
    "3.1781",
    "bifc",
)
gamma = _unary("gamma", gammas.gamma, "The gamma function.", "4.5", "11.6317", "bifc")
gammasgn = _unary("gammasgn", gammas.gammasgn, "The sign of the gamma function.", "-0.5", "-1.0")
digamma = _unary("digamma", lax.digamma_p, "The derivative of the logarithm of the gamma function.", "1.0", "-0.5772")
ndtr = _unary("ndtr", normals.ndtr, "The cumulative distribution function of the standard normal.", "0.0", "0.5")
erfcinv = _unary(
    "erfcinv", normals.erfcinv, "The inverse of `erfc`, accurate for small values.", "0.5", "0.4769", names="y"
)
ndtri = _unary("ndtri", normals.ndtri, "The inverse of `ndtr`.", "0.975", "1.96", names="p")
log_ndtr = _unary("log_ndtr", normals.log_ndtr, "The logarithm of `ndtr`, accurate far below 0.", "-30.0", "-454.3212")
entr = _unary("entr", _entr, "The entropy -x log(x).", "0.5", "0.3466")
i0 = _unary(
    "i0",
    lambda x: lax.mul_p(lax.exp_p(lax.abs_p(x)), lax.bessel_i0e_p(x)),
    "The modified Bessel function of order 0.",
    "1.0",
    "1.2661",
)
i0e = _unary("i0e", lax.bessel_i0e_p, "exp(-|x|) times `i0`.", "1.0", "0.4658")
i1 = _unary(
    "i1",
    lambda x: lax.mul_p(lax.exp_p(lax.abs_p(x)), lax.bessel_i1e_p(x)),
    "The modified Bessel function of order 1.",
    "1.0",
    "0.5652",
)
i1e = _unary("i1e", lax.bessel_i1e_p, "exp(-|x|) times `i1`.", "1.0", "0.2079")
xlogy = _binary("xlogy", _xlogy, "x log(y), with the value 0 where x is 0.", "2.0, 3.0", "2.1972", "bifc")
xlog1py = _binary("xlog1py", _xlog1py, "x log(1 + y), with the value 0 where x is 0.", "2.0, 2.0", "2.1972", "bifc")
rel_entr = _binary("rel_entr", _rel_entr, "The relative entropy p log(p / q).", "2.0, 1.0", "1.3863", names="p q")
kl_div = _binary(
    "kl_div",
    lambda p, q: lax.add_p(lax.sub_p(_rel_entr(p, q), p), q),
    "p log(p / q) - p + q.",
    "2.0, 1.0",
    "0.3863",
    names="p q",
)
betaln = _binary(
    "betaln", gammas.betaln, "The logarithm of the magnitude of the beta function.", "2.0, 3.0", "-2.4849", names="a b"
)
beta = _binary("beta", gammas.beta, "The beta function.", "2.0, 3.0", "0.0833", names="a b")
gammainc = _binary(
    "gammainc",
    lax.igamma_p,
    "The regularised lower incomplete gamma function P(a, x).",
    "1.0, 1.0",
    "0.6321",
    names="a x",
)
gammaincc = _binary(
    "gammaincc", lax.igammac_p, "The regularised upper incomplete gamma function.", "1.0, 1.0", "0.3679", names="a x"
)
_zeta = _binary("zeta", lax.zeta_p, "The Hurwitz zeta function.", "2.0, 1.0", "1.6449", names="x q")
boxcox = _binary(
    "boxcox",
    lambda x, power: _box_cox(lax.log_p(x), power),
    "The Box-Cox transformation (x**lmbda - 1) / lmbda.",
    "2.0, 2.0",
    "1.5",
    classes="bifc",
    names="x lmbda",
)
boxcox1p = _binary(
    "boxcox1p",
    lambda x, power: _box_cox(lax.log1p_p(x), power),
    "The Box-Cox transformation of 1 + x.",
    "1.0, 2.0",
    "1.5",
    classes="bifc",
    names="x lmbda",
)


def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """The Hurwitz zeta function, the sum of (k + q)**-x over k >= 0; the Riemann zeta function if `q` is omitted.

    Args:
      x, q: arrays or scalars that broadcast to one shape.

    Returns:
      The value for each element, in the broadcast shape.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.zeta(2.0).item(), 4)
      1.6449
    """
    return _zeta(x, 1 if q is None else q)
