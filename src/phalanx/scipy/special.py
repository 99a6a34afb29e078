"""Special functions with the names of `scipy.special`.

Elementwise ones are rows of a table, as in `numpy/ufuncs.py`: name, classes of dtypes, body, documentation, an example
and its result. Builds on `lax`, whose primitives many of them are, and on `numpy`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, DTypeError
from phalanx.lax.named_axes import apart
from phalanx.numpy import ufuncs
from phalanx.numpy.bodies import choose, dtype_of, isnan
from phalanx.numpy.operands import (
    as_array,
    broadcast_operands,
    canonical_axes,
    cast,
    operand,
    promote_inexact,
    scalar_of,
)
from phalanx.numpy.reductions import max as _max
from phalanx.numpy.reductions import sum as _sum
from phalanx.numpy.ufunc import Rule, elementwise, inexact
from phalanx.runtime.dispatch import eager_program
from phalanx.scipy.error_functions import dawsn as dawsn
from phalanx.scipy.error_functions import erfcx as erfcx
from phalanx.scipy.error_functions import fresnel as fresnel
from phalanx.scipy.error_functions import owens_t as owens_t
from phalanx.scipy.error_functions import wofz as wofz
from phalanx.scipy.exponential_integrals import exp1 as exp1
from phalanx.scipy.exponential_integrals import expi as expi
from phalanx.scipy.exponential_integrals import expn as expn
from phalanx.scipy.exponential_integrals import sici as sici
from phalanx.scipy.exponential_integrals import spence as spence
from phalanx.scipy.hypergeometric import bernoulli as bernoulli
from phalanx.scipy.hypergeometric import bessel_jn as bessel_jn
from phalanx.scipy.hypergeometric import hyp1f1 as hyp1f1
from phalanx.scipy.hypergeometric import hyp2f1 as hyp2f1
from phalanx.scipy.hypergeometric import sph_harm_y as sph_harm_y

# As in the peer; it decides what these give together with a narrower array.
_STRONG = {"beta", "gamma", "gammasgn", "kl_div", "log_ndtr", "ndtr", "ndtri", "rel_entr"}


def _unary(name: str, body: Any, doc: str, example: str, result: str, classes: str = "bif", names: str = "x") -> Any:
    text = (
        f">>> from phalanx.scipy import special\n      >>> round(special.{name}({example}).item(), 4)\n      {result}"
    )
    return elementwise(Rule(name, classes, inexact, {"": body}, name in _STRONG), names, __name__, doc, text)


_binary = functools.partial(_unary, names="x y")


# Bodies


def _one(x: Any) -> Any:
    return scalar_of(1, dtype_of(x))


def _zero(x: Any) -> Any:
    return scalar_of(0, dtype_of(x))


def _logit(x: Any) -> Any:
    return lax.log_p(lax.div_p(x, lax.sub_p(_one(x), x)))


def _entr(x: Any) -> Any:
    inside = lax.gt_p(x, _zero(x))
    value = lax.neg_p(lax.mul_p(x, lax.log_p(choose(inside, x, 1))))
    value = choose(inside, value, choose(lax.lt_p(x, _zero(x)), scalar_of(-np.inf, dtype_of(x)), _zero(x)))
    return choose(isnan(x), x, value)


def _xlogy(x: Any, y: Any) -> Any:
    # 0 where x is 0, whatever y; the inner choice keeps the derivative finite there.
    # NaN is chosen, not left to a product with 0, of which XLA makes 0 where x was a boolean.
    safe = lax.ne_p(x, _zero(x))
    return choose(safe, lax.mul_p(x, lax.log_p(choose(safe, y, 1))), choose(isnan(y), y, 0))


def _xlog1py(x: Any, y: Any) -> Any:
    safe = lax.ne_p(x, _zero(x))
    return choose(safe, lax.mul_p(x, lax.log1p_p(choose(safe, y, 0))), choose(isnan(y), y, 0))


def _kl_div(p: Any, q: Any) -> Any:
    return lax.add_p(lax.sub_p(_rel_entr(p, q), p), q)


def _rel_entr(p: Any, q: Any) -> Any:
    both = lax.gt_p(p, _zero(p)) & lax.gt_p(q, _zero(q))
    safe_p, safe_q = choose(both, p, 1), choose(both, q, 1)
    value = lax.mul_p(safe_p, lax.log_p(lax.div_p(safe_p, safe_q)))
    empty = lax.eq_p(p, _zero(p)) & lax.ge_p(q, _zero(q))
    value = choose(both, value, choose(empty, _zero(value), scalar_of(np.inf, value.dtype)))
    return choose(isnan(p) | isnan(q), np.nan, value)


def _ndtr(x: Any) -> Any:
    half, root = scalar_of(0.5, dtype_of(x)), scalar_of(math.sqrt(0.5), dtype_of(x))
    w = lax.mul_p(x, root)
    tail = lax.mul_p(half, lax.erfc_p(lax.abs_p(w)))
    near = lax.add_p(half, lax.mul_p(half, lax.erf_p(w)))
    far = choose(lax.gt_p(w, _zero(x)), lax.sub_p(_one(x), tail), tail)
    return choose(lax.lt_p(lax.abs_p(w), root), near, far)


# Coefficients of the fractions of PPND16 in Wichura (1988), Algorithm AS 241, doi:10.2307/2347330: near the middle,
# towards the ends, and at them.
_MIDDLE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_OUTER = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
_END = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def _fraction(coefficients: tuple, x: Any) -> Any:
    upper, lower = (functools.reduce(lambda y, c: y * x + c, row[1:], row[0]) for row in coefficients)
    return upper / lower


def _ndtri(p: Any) -> Any:
    dtype = dtype_of(p)
    p = cast(p, np.dtype(np.float32)) if dtype.itemsize < 4 else p
    q = p - 0.5
    central = abs(q) <= 0.425
    near = _near_quantile(choose(central, q, 0))
    far = _far_quantile(-lax.log(choose(central, 0.25, lax.min(p, 1 - p))))
    return cast(choose(central, near, choose(q < 0, -far, far)), dtype)


def _near_quantile(q: Any) -> Any:
    """Below which a normal number lies with probability 1/2 + q, for at most 0.425 either way."""
    return q * _fraction(_MIDDLE, 0.180625 - q * q)


def _far_quantile(surprise: Any) -> Any:
    """Beyond which a normal number lies with probability exp(-surprise) on one side, for at most 0.075."""
    r = lax.sqrt(surprise)
    far = choose(r <= 5, _fraction(_OUTER, r - 1.6), _fraction(_END, choose(r < np.inf, r, 5) - 5))
    return choose(r < np.inf, far, r)  # also NaN, of what is no probability


def _erfcinv(y: Any) -> Any:
    dtype = dtype_of(y)
    y = cast(y, np.dtype(np.float32)) if dtype.itemsize < 4 else y
    central = abs(y - 1) <= 0.85
    near = _near_quantile(choose(central, 0.5 - y / 2, 0))
    # The logarithm is halved by a sum, since half of y may be too small a number.
    far = _far_quantile(math.log(2) - lax.log(choose(central, 0.1, lax.min(y, 2 - y))))
    return cast(choose(central, near, choose(y < 1, far, -far)) * math.sqrt(0.5), dtype)


def _log_ndtr(x: Any) -> Any:
    # log(erfc(-x / sqrt 2) / 2) for most x; far below 0 by the asymptotic series of Mills' ratio, whose terms are
    # 1, -1, 3, -15, ... times 1 / x^2k.
    low = -10.0 if dtype_of(x).itemsize <= 4 else -20.0
    far = lax.lt_p(x, scalar_of(low, dtype_of(x)))
    high = lax.gt_p(x, scalar_of(5.0 if dtype_of(x).itemsize <= 4 else 8.0, dtype_of(x)))
    plain = lax.log_p(_ndtr(choose(far | high, 0, x)))
    t = choose(far, x, low)
    inverse = 1 / lax.square(t)
    series = 1 + inverse * (-1 + inverse * (3 + inverse * (-15 + inverse * (105 - inverse * 945))))
    asymptotic = -0.5 * lax.square(t) - lax.log_p(lax.neg_p(t)) - 0.5 * math.log(2 * math.pi) + lax.log_p(series)
    above = lax.neg_p(_ndtr(lax.neg_p(choose(high, x, 0))))
    return choose(far, asymptotic, choose(high, above, plain))


def _i0(x: Any) -> Any:
    return lax.mul_p(lax.exp_p(lax.abs_p(x)), lax.bessel_i0e_p(x))


def _i1(x: Any) -> Any:
    return lax.mul_p(lax.exp_p(lax.abs_p(x)), lax.bessel_i1e_p(x))


def _gammasgn(x: Any) -> Any:
    down = lax.floor_p(x)
    odd = lax.ne_p(lax.rem_p(lax.abs_p(down), scalar_of(2, dtype_of(x))), _zero(x))
    negative = lax.lt_p(x, _zero(x))
    below = lax.lt_p(lax.div_p(_one(x), x), _zero(x))  # -0.0 too
    sign = choose(below & (odd | lax.eq_p(x, _zero(x))), scalar_of(-1, dtype_of(x)), _one(x))
    pole = negative & lax.eq_p(x, down)
    return choose(pole | isnan(x), np.nan, sign)


def _gamma(x: Any) -> Any:
    if dtype_of(x).kind == "c":
        return lax.exp_p(_loggamma(x))
    return lax.mul_p(_gammasgn(x), lax.exp_p(lax.lgamma_p(x)))


def _loggamma(x: Any) -> Any:
    if dtype_of(x).kind != "c":
        return choose(x < 0, np.nan, lax.lgamma_p(x))
    below = lax.imag(x) < 0
    z = choose(below, lax.conj(x), x)
    # Left of 1/2 by reflection, on the branch that is continuous in the upper half-plane.
    left = lax.real(z) < 0.5
    right = _stirling(choose(left, 1 - z, z))
    waves = math.pi * (0.5 - z) * 1j - math.log(2) + lax.log1p(-lax.exp(2j * math.pi * z))
    value = choose(left, math.log(math.pi) - waves - right, right)
    return choose(below, lax.conj(value), value)


def _stirling(z: Any) -> Any:
    """log(gamma(z)) right of 1/2, by Stirling's series ten steps further right."""
    steps = 10
    passed = functools.reduce(lambda total, k: total + lax.log(z + k), range(1, steps), lax.log(z))
    z = z + steps
    coefficients = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
    series = functools.reduce(lambda total, c: total / (z * z) + c, coefficients)
    return (z - 0.5) * lax.log(z) - z + 0.5 * math.log(2 * math.pi) + series / z - passed


def _rise(z: Any, m: Any) -> Any:
    """log|gamma(z + m) / gamma(z)|, by Stirling's series where z is so large that the difference would cancel."""
    bound = 10.0 if dtype_of(z).itemsize <= 4 else 100.0
    large = (z >= bound) & (z + m >= bound)
    x, step = choose(large, z, bound), choose(large, m, 0)
    y = x + step
    rest = [(1 / 12 - (1 / 360 - 1 / (1260 * t * t)) / (t * t)) / t for t in (x, y)]
    far = (x - 0.5) * lax.log1p(step / x) + step * (lax.log(y) - 1) + rest[1] - rest[0]
    return choose(large, far, lax.lgamma_p(z + m) - lax.lgamma_p(z))


def _is_pole(x: Any) -> Any:
    """Whether the gamma function has a pole there: 0, -1, -2, ..."""
    return (x <= 0) & (x == lax.floor_p(x)) & (x > -np.inf)


def _beta_parts(a: Any, b: Any) -> tuple:
    """The sign of the beta function, and the logarithm of its magnitude."""
    a, b = lax.min_p(a, b), lax.max_p(a, b)
    # With an integer b below 1 - a, the pole of a is one of a + b too: gamma(a) / gamma(a + b) by reflection.
    turned = _is_pole(a) & (b > 0) & (b == lax.floor_p(b)) & (b < 1 - a)
    odd = lax.rem_p(choose(turned, b, 0), scalar_of(2, dtype_of(b))) != 0
    a = choose(turned, 1 - a - b, a)
    diverges = _is_pole(a) | _is_pole(b) | ((b == np.inf) & (a <= 0))
    vanishes = ((b == np.inf) & (a > 0) & (a < np.inf)) | (_is_pole(a + b) & ~diverges)
    x, y = (choose(diverges | vanishes, 1, v) for v in (lax.min_p(a, b), lax.max_p(a, b)))
    log = choose(diverges, np.inf, choose(vanishes, -np.inf, lax.lgamma_p(x) - _rise(y, x)))
    sign = choose(turned & odd, -1, _gammasgn(x) * _gammasgn(y) * _gammasgn(x + y))
    return choose(diverges & (b == np.inf) & ~_is_pole(a), _gammasgn(a), sign), log


def _betaln(a: Any, b: Any) -> Any:
    return _beta_parts(a, b)[1]


def _beta(a: Any, b: Any) -> Any:
    sign, log = _beta_parts(a, b)
    return sign * lax.exp_p(log)


def _boxcox(x: Any, power: Any) -> Any:
    at_zero = lax.eq_p(power, _zero(x))
    safe = choose(at_zero, 1, power)
    return choose(at_zero, lax.log_p(x), lax.div_p(lax.expm1_p(lax.mul_p(safe, lax.log_p(x))), safe))


def _boxcox1p(x: Any, power: Any) -> Any:
    at_zero = lax.eq_p(power, _zero(x))
    safe = choose(at_zero, 1, power)
    return choose(at_zero, lax.log1p_p(x), lax.div_p(lax.expm1_p(lax.mul_p(safe, lax.log1p_p(x))), safe))


# fmt: off
erf = _unary("erf", lax.erf_p, "The error function.", "0.5", "0.5205")
erfc = _unary("erfc", lax.erfc_p, "1 - erf(x), exact where that is small.", "0.5", "0.4795")
erfinv = _unary("erfinv", lax.erf_inv_p, "The inverse of the error function.", "0.5", "0.4769")
expit = _unary("expit", lax.logistic_p, "The logistic function 1 / (1 + exp(-x)).", "0.0", "0.5", "bifc")
logit = _unary("logit", _logit, "The inverse of the logistic function, log(p / (1 - p)).", "0.5", "0.0", "bifc")
gammaln = _unary("gammaln", lax.lgamma_p, "The logarithm of the magnitude of the gamma function.", "5.0", "3.1781")
loggamma = _unary("loggamma", _loggamma, "The logarithm of the gamma function; of a real number below 0, NaN.", "5.0",
                  "3.1781", "bifc")
gamma = _unary("gamma", _gamma, "The gamma function.", "4.5", "11.6317", "bifc")
gammasgn = _unary("gammasgn", _gammasgn, "The sign of the gamma function.", "-0.5", "-1.0")
digamma = _unary("digamma", lax.digamma_p, "The derivative of the logarithm of the gamma function.", "1.0", "-0.5772")
ndtr = _unary("ndtr", _ndtr, "The cumulative distribution function of the standard normal.", "0.0", "0.5")
erfcinv = _unary("erfcinv", _erfcinv, "The inverse of `erfc`, exact also for small values.", "0.5", "0.4769", names="y")
ndtri = _unary("ndtri", _ndtri, "The inverse of `ndtr`.", "0.975", "1.96", names="p")
log_ndtr = _unary("log_ndtr", _log_ndtr, "The logarithm of `ndtr`, exact far below 0.", "-30.0", "-454.3212")
entr = _unary("entr", _entr, "The entropy -x log(x).", "0.5", "0.3466")
i0 = _unary("i0", _i0, "The modified Bessel function of order 0.", "1.0", "1.2661")
i0e = _unary("i0e", lax.bessel_i0e_p, "exp(-|x|) times `i0`.", "1.0", "0.4658")
i1 = _unary("i1", _i1, "The modified Bessel function of order 1.", "1.0", "0.5652")
i1e = _unary("i1e", lax.bessel_i1e_p, "exp(-|x|) times `i1`.", "1.0", "0.2079")
xlogy = _binary("xlogy", _xlogy, "x log(y), 0 where x is 0.", "2.0, 3.0", "2.1972", "bifc")
xlog1py = _binary("xlog1py", _xlog1py, "x log(1 + y), 0 where x is 0.", "2.0, 2.0", "2.1972", "bifc")
rel_entr = _binary("rel_entr", _rel_entr, "The relative entropy p log(p / q).", "2.0, 1.0", "1.3863", names="p q")
kl_div = _binary("kl_div", _kl_div, "p log(p / q) - p + q.", "2.0, 1.0", "0.3863", names="p q")
betaln = _binary("betaln", _betaln, "The logarithm of the magnitude of the beta function.", "2.0, 3.0", "-2.4849",
                 names="a b")
beta = _binary("beta", _beta, "The beta function.", "2.0, 3.0", "0.0833", names="a b")
gammainc = _binary("gammainc", lax.igamma_p, "The regularised lower incomplete gamma function P(a, x).",
                   "1.0, 1.0", "0.6321", names="a x")
gammaincc = _binary("gammaincc", lax.igammac_p, "The regularised upper incomplete gamma function.",
                    "1.0, 1.0", "0.3679", names="a x")
_zeta = _binary("zeta", lax.zeta_p, "The Hurwitz zeta function.", "2.0, 1.0", "1.6449", names="x q")
boxcox = _binary("boxcox", _boxcox, "The Box-Cox transformation (x**lmbda - 1) / lmbda.", "2.0, 2.0", "1.5",
                 classes="bifc", names="x lmbda")
boxcox1p = _binary("boxcox1p", _boxcox1p, "The Box-Cox transformation of 1 + x.", "1.0, 2.0", "1.5",
                   classes="bifc", names="x lmbda")
# fmt: on


def zeta(x: Any, q: Any = None) -> Any:
    """The Hurwitz zeta function, the sum of (k + q)**-x over k >= 0; Riemann's where `q` is not given.

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


@eager_program
def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularised incomplete beta function.

    Args:
      a, b: the parameters.
      x: the upper end of the integral, from 0 to 1.

    Returns:
      The value for each element, in the broadcast shape.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.betainc(2.0, 3.0, 0.5).item(), 4)
      0.6875
    """
    a, b, x = promote_inexact("betainc", *(operand(v, "betainc") for v in (a, b, x)))
    a, b, x = broadcast_operands("betainc", a, b, x)
    # In the limit all weight is at 1, or at 0.
    at_one, at_zero = (b == 0) | (a == np.inf), (a == 0) | (b == np.inf)
    inside = ~(at_one | at_zero) & (x >= 0) & (x <= 1)
    value = lax.betainc(*(choose(inside, v, 0.5) for v in (a, b, x)))
    step = cast(choose(at_one, x >= 1, x > 0), value.dtype)
    return choose(inside, value, choose((at_one & at_zero) | ~((x >= 0) & (x <= 1)), np.nan, step))


@eager_program
def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of the digamma function.

    Args:
      n: which derivative.
      x: where.

    Returns:
      The value for each element, in the broadcast shape.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.polygamma(1, 1.0).item(), 4)
      1.6449
    """
    n, x = promote_inexact("polygamma", operand(n, "polygamma"), operand(x, "polygamma"))
    n, x = broadcast_operands("polygamma", cast(n, x.dtype), x)
    return lax.polygamma(n, x)


@eager_program(static_argnames=("exact",))
def factorial(n: Any, exact: bool = False) -> Any:
    """The factorial, 0 for negative numbers.

    Args:
      n: the numbers.
      exact: must be False.

    Returns:
      The value for each element, in floating point.

    Raises:
      ArgumentError: `exact` is True.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.factorial(5).item())
      120
    """
    if exact:
        raise ArgumentError("factorial, argument exact", expected="False", got=True, mend="use math.factorial")
    (x,) = promote_inexact("factorial", operand(n, "factorial"))
    return choose(x < 0, 0, lax.exp(lax.lgamma(choose(x < 0, 0, x) + 1)))


@eager_program(static_argnames=("repetition", "exact"))
def comb(N: Any, k: Any, *, exact: bool = False, repetition: bool = False) -> Any:
    """How many ways there are to choose k of N things.

    Args:
      N: how many things there are.
      k: how many are chosen.
      exact: must be False.
      repetition: each thing may be chosen more than once.

    Returns:
      The number for each element, in floating point.

    Raises:
      ArgumentError: `exact` is True.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.comb(5, 2).item(), 3)
      10.0
    """
    if exact:
        raise ArgumentError("comb, argument exact", expected="False", got=True, mend="use math.comb")
    n, k = promote_inexact("comb", operand(N, "comb"), operand(k, "comb"))
    n = n + k - 1 if repetition else n
    inside = (k >= 0) & (n >= k) & (n >= 0)
    n, k = choose(inside, n, 1), choose(inside, k, 0)
    value = lax.exp(-_betaln(n - k + 1, k + 1) - lax.log1p(n))
    return choose(inside, value, 0)


@eager_program(static_argnames=("d",))
def multigammaln(a: Any, d: int) -> Any:
    """The logarithm of the multivariate gamma function.

    Args:
      a: where.
      d: the dimension.

    Returns:
      The value for each element.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.multigammaln(3.0, 2).item(), 4)
      1.5502
    """
    (a,) = promote_inexact("multigammaln", operand(a, "multigammaln"))
    halves = (np.arange(d) / 2).astype(a.dtype)
    terms = lax.lgamma(ufuncs.subtract(lax.expand_dims(a, (a.ndim,)), halves))
    return _sum(terms, axis=-1) + a.dtype.type(0.25 * d * (d - 1) * math.log(math.pi))


@eager_program(static_argnames=("axis", "keepdims", "return_sign"))
def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False, where: Any = None
) -> Any:
    """log(sum(exp(a))) along axes, without overflow.

    Args:
      a: the exponents.
      axis: an axis, a tuple of them, or None for all; names of axes in scope may be among them.
      b: factors of the exponentials.
      keepdims: keep the reduced dimensions, of size 1.
      return_sign: give the logarithm of the magnitude, and the sign, of the sum.
      where: which elements take part.

    Returns:
      The logarithm of the sum; with `return_sign` also its sign.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import special
      >>> round(special.logsumexp(jnp.array([1000.0, 1000.0])).item(), 3)
      1000.693
    """
    given = [operand(v, "logsumexp") for v in (a, b) if v is not None]
    x, *factors = promote_inexact("logsumexp", *given)
    if factors:
        x, factor = broadcast_operands("logsumexp", x, factors[0])
        # A factor of 0 takes its element out, infinite or not.
        x = choose(lax.eq(factor, _zero(factor)), -np.inf, x)
    axis, names = apart(axis)
    axes = canonical_axes(axis, x.ndim, "logsumexp")
    over = (*axes, *names)
    real = lax.real(x) if x.dtype.kind == "c" else x
    initial = -np.inf if where is not None or not x.size else None
    largest = _max(lax.stop_gradient(real), axis=over, keepdims=True, where=where, initial=initial)
    shift = choose(lax.is_finite(largest), largest, 0)
    exponentials = lax.exp(ufuncs.subtract(x, cast(shift, x.dtype)))
    exponentials = exponentials * factor if factors else exponentials
    total = _sum(exponentials, axis=over, keepdims=True, where=where)
    sign = None
    if return_sign:
        sign, total = ufuncs.sign(total), cast(lax.abs(total), total.dtype)
    elif factors and x.dtype.kind != "c":
        total = choose(total < 0, np.nan, total)
    out = lax.log(total) + cast(shift, x.dtype)
    out = lax.real(out) if return_sign and out.dtype.kind == "c" else out
    results = [v if keepdims or not axes else lax.squeeze(v, axes) for v in (out, sign) if v is not None]
    return tuple(results) if return_sign else results[0]


@eager_program(static_argnames=("axis",))
def softmax(x: Any, axis: Any = None) -> Any:
    """The exponentials along axes, divided by their sum.

    Args:
      x: the exponents.
      axis: an axis, a tuple of them, or None for all.

    Returns:
      An array of the shape of `x` whose sum along the axes is 1.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import special
      >>> special.softmax(jnp.zeros(2)).tolist()
      [0.5, 0.5]
    """
    shifted = _shifted(x, axis, "softmax")
    e = lax.exp(shifted)
    return e / _sum(e, axis=canonical_axes(axis, e.ndim, "softmax"), keepdims=True)


@eager_program(static_argnames=("axis",))
def log_softmax(x: Any, axis: Any = None) -> Any:
    """The logarithm of `softmax`.

    Args:
      x: the exponents.
      axis: an axis, a tuple of them, or None for all.

    Returns:
      An array of the shape of `x`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import special
      >>> round(special.log_softmax(jnp.zeros(2))[0].item(), 4)
      -0.6931
    """
    shifted = _shifted(x, axis, "log_softmax")
    axes = canonical_axes(axis, shifted.ndim, "log_softmax")
    return shifted - lax.log(_sum(lax.exp(shifted), axis=axes, keepdims=True))


def _shifted(x: Any, axis: Any, name: str) -> Any:
    (x,) = promote_inexact(name, operand(x, name))
    x = as_array(x)
    real = lax.real(x) if x.dtype.kind == "c" else x
    largest = _max(real, axis=canonical_axes(axis, x.ndim, name), keepdims=True, initial=-np.inf)
    return x - lax.stop_gradient(cast(choose(lax.is_finite(largest), largest, 0), x.dtype))


@eager_program
def poch(z: Any, m: Any) -> Any:
    """The rising factorial gamma(z + m) / gamma(z).

    Args:
      z, m: arrays or scalars that broadcast to one shape.

    Returns:
      The value for each element.

    Raises:
      DTypeError: an operand is complex.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.poch(2.0, 3.0).item(), 3)
      24.0
    """
    z, m = promote_inexact("poch", operand(z, "poch"), operand(m, "poch"))
    if dtypes.issubdtype(z.dtype, np.complexfloating):
        raise DTypeError("poch", expected="real operands", got=str(z.dtype), mend="take the real part")
    start, end = _is_pole(z), _is_pole(z + m)
    turned = start & end
    odd = lax.rem(choose(turned, lax.abs(m), 0), scalar_of(2, m.dtype)) != 0
    x = choose(turned, 1 - z - m, choose(start | end, 1, z))
    sign = choose(turned, choose(odd, -1, scalar_of(1, x.dtype)), _gammasgn(x + m) * _gammasgn(x))
    value = sign * lax.exp(_rise(x, m))
    return choose(m == 0, 1, choose(start & ~end, 0, choose(end & ~start, np.inf, value)))
