"""The incomplete gamma and beta functions, and the derivative of the former with respect to its shape parameter.

P(a, x) is a power series where x < a + 1, and 1 minus a continued fraction elsewhere. Both are iterated for all
elements at once until each element has converged; the derivative with respect to `a` is the forward-mode derivative of
the same iterations. The prefactor x^a exp(-x) / gamma(a + 1) is computed by Stirling's series for large `a`, where the
logarithms of its factors would cancel.

Source: DLMF 8.11.4 (series), 8.9.2 and 8.17.22 (continued fractions), 5.11.1 (Stirling); Lentz's method as modified by
Thompson & Barnett (1986), doi:10.1016/0021-9991(86)90046-X.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ShapeError, Undefined, dtypes
from phalanx.lax.control_flow.while_loop import while_loop
from phalanx.lax.elementwise.convert_element_type import in_full_precision
from phalanx.lax.elementwise.elementwise_builders import (
    FLOATING,
    Elementwise,
    apply_broadcast,
    binary,
    declare_primitive,
    derive_jvp,
    match_scalars,
)
from phalanx.lax.elementwise.elementwise_primitives import (
    abs_p,
    add_number,
    add_p,
    and_p,
    constant_like,
    digamma_p,
    div_p,
    eq_p,
    exp_p,
    expm1_p,
    ge_p,
    gt_p,
    le_p,
    lgamma_p,
    log1p_p,
    log_p,
    lt_p,
    mul_p,
    ne_p,
    neg_p,
    not_p,
    one_minus,
    or_p,
    rsqrt_p,
    scale_by,
    square_p,
    sub_p,
)
from phalanx.lax.elementwise.select import select_n_p
from phalanx.lax.elementwise.wrappers import binary_wrapper
from phalanx.lax.reductions.reduction_family import reduce_or_p
from phalanx.runtime.lowering import LoweringContext
from phalanx.transforms.jvp_trace import jvp_flat
from phalanx.typing import Array, ArrayLike

# Near x = a the series needs a multiple of sqrt(a) terms: enough for a up to a million, and an end for NaN.
MAX_ITERATIONS = 5000

# The Riemann zeta function at 2, 3, ...
_ZETAS = (
    1.6449340668482264,
    1.2020569031595942,
    1.0823232337111381,
    1.03692775514337,
    1.0173430619844492,
    1.008349277381923,
    1.0040773561979444,
    1.0020083928260821,
    1.000994575127818,
    1.0004941886041194,
    1.000246086553308,
    1.0001227133475785,
    1.0000612481350588,
    1.000030588236307,
)


def converge(step: Callable, active: ArrayLike, lanes: Sequence) -> tuple:
    """Iterate `step` until every element has converged, or MAX_ITERATIONS.

    Args:
      step: from (n, lanes) to (lanes, is_converged), with n = 1, 2, ... as a floating-point scalar.
      active: the elements to iterate; all others keep their initial value.
      lanes: the arrays that the iteration updates.

    Returns:
      The lanes, where each element has the value of the iteration at which it converged.
    """

    def is_running(state: tuple) -> Any:
        active, n, _ = state
        return and_p(reduce_or_p(active, dims=tuple(range(active.ndim))), lt_p(n, constant_like(n, MAX_ITERATIONS)))

    def advance(state: tuple) -> tuple:
        active, n, old = state
        new, is_converged = step(n, old)
        kept = tuple(select_n_p(active, o, v) for o, v in zip(old, new, strict=True))
        return and_p(active, not_p(is_converged)), add_number(n, 1), kept

    return while_loop(is_running, advance, (active, constant_like(lanes[0], 1), tuple(lanes)))[2]


def tiny(x: ArrayLike) -> Any:
    """The replacement of 0 in a denominator."""
    # Above the least normal number, so that products with numbers below 1 are not flushed to 0.
    return constant_like(x, float(dtypes.finfo(x.dtype).tiny) * 1e3)


def eps(x: ArrayLike) -> Any:
    """The relative change at which an iteration has converged."""
    return constant_like(x, float(dtypes.finfo(x.dtype).eps))


def no_zero(x: ArrayLike) -> Any:
    """Replace values of `x` near 0 by a tiny number, as modified Lentz's method requires."""
    return select_n_p(lt_p(abs_p(x), tiny(x)), x, tiny(x))


# The two iterations of the incomplete gamma function.


def series_step(a: ArrayLike, x: ArrayLike, n: Array, lanes: Sequence) -> tuple:
    """S = sum of x^n / ((a+1) ... (a+n)): DLMF 8.11.4."""
    term, total = lanes
    term = mul_p(term, div_p(x, add_p(a, n)))
    total = add_p(total, term)
    return (term, total), le_p(abs_p(term), mul_p(abs_p(total), eps(total)))


def fraction_step(a: ArrayLike, x: ArrayLike, n: Array, lanes: Sequence) -> tuple:
    """h = 1/(x+1-a- 1(1-a)/(x+3-a- 2(2-a)/(x+5-a- ...))): the even part of DLMF 8.9.2."""
    c, d, h = lanes
    # One step of modified Lentz: c and d are ratios of successive convergents, kept away from 0.
    top = mul_p(n, sub_p(a, n))
    bottom = add_p(sub_p(x, a), add_number(scale_by(n, 2), 1))
    d = div_p(constant_like(d, 1), no_zero(add_p(mul_p(top, d), bottom)))
    c = no_zero(add_p(bottom, div_p(top, c)))
    ratio = mul_p(c, d)
    return (c, d, mul_p(h, ratio)), le_p(abs_p(add_number(ratio, -1)), eps(ratio))


def with_derivative(step: Callable, a: ArrayLike, x: ArrayLike) -> Callable:
    """Extend a step by the derivatives of its lanes with respect to `a`, the last of which must converge too."""
    one = div_p(a, a)

    def both(n: Array, lanes: Sequence) -> tuple:
        half = len(lanes) // 2

        def flat(a: Array, *values: Any) -> tuple:
            new, is_converged = step(a, x, n, values)
            return (*new, is_converged)

        out, dots = jvp_flat(flat, [a, *lanes[:half]], [one, *lanes[half:]])
        change = abs_p(sub_p(dots[half - 1], lanes[-1]))
        is_settled = le_p(change, mul_p(abs_p(dots[half - 1]), eps(change)))
        return (*out[:half], *dots[:half]), and_p(out[half], is_settled)

    return both


class GammaIterations:
    """The series `S` and the continued fraction `h` at (a, x), each where `is_small` selects it.

    Elements outside the domain are replaced by 1, so that the iterations stay finite; `a` and `x` hold the replaced
    values.

    Args:
      a: the shape parameter.
      x: the limit of the integral.
      derivative: whether to compute the derivatives `S_dot` and `h_dot` with respect to `a`.
    """

    def __init__(self, a: Array, x: Array, derivative: bool = False):
        is_inside = and_p(
            and_p(gt_p(a, constant_like(a, 0)), gt_p(x, constant_like(x, 0))), lt_p(x, constant_like(x, math.inf))
        )
        is_inside = and_p(is_inside, lt_p(a, constant_like(a, math.inf)))
        self.is_small = lt_p(x, add_number(a, 1))
        self.a = a = select_n_p(is_inside, constant_like(a, 1), a)
        self.x = x = select_n_p(is_inside, constant_like(x, 1), x)
        one = div_p(x, x)
        d = div_p(one, no_zero(add_number(sub_p(x, a), 1)))
        # The series starts with S = 1, the fraction with its first convergent h = d = 1 / (x - a + 1).
        series, fraction = [one, one], [div_p(one, tiny(one)), d, d]
        if derivative:
            none, d_dot = sub_p(one, one), square_p(d)
            steps = with_derivative(series_step, a, x), with_derivative(fraction_step, a, x)
            series, fraction = [*series, none, none], [*fraction, none, d_dot, d_dot]
        else:
            steps = functools.partial(series_step, a, x), functools.partial(fraction_step, a, x)
        series = converge(steps[0], and_p(is_inside, self.is_small), series)
        fraction = converge(steps[1], and_p(is_inside, not_p(self.is_small)), fraction)
        self.S, self.h, self.S_dot, self.h_dot = series[1], fraction[2], series[-1], fraction[-1]


def gamma_prefactor(a: ArrayLike, x: ArrayLike) -> Any:
    """The prefactor x^a exp(-x) / gamma(a + 1), by Stirling's series for large `a`."""
    bound = 10.0 if x.dtype == np.float32 else 30.0
    is_large = ge_p(a, constant_like(a, bound))
    plain = exp_p(sub_p(sub_p(mul_p(a, log_p(x)), x), lgamma_p(add_number(a, 1))))
    big = select_n_p(is_large, constant_like(a, bound), a)
    inverse = div_p(constant_like(a, 1), big)
    square = square_p(inverse)
    series = constant_like(a, 0)
    for c in (-1 / 1680, 1 / 1260, -1 / 360, 1 / 12):  # DLMF 5.11.1
        series = add_number(mul_p(series, square), c)
    # With x = a (1 + delta): a (log(1 + delta) - delta) is the exponent of both factors, without cancellation.
    delta = div_p(sub_p(x, big), big)
    exponent = sub_p(mul_p(big, sub_p(log1p_p(delta), delta)), mul_p(series, inverse))
    stirling = mul_p(exp_p(exponent), rsqrt_p(scale_by(big, 2 * math.pi)))
    return select_n_p(is_large, plain, stirling)


def gamma_edges(a: ArrayLike, x: ArrayLike, inside: ArrayLike, at_zero: float, at_infinity: float) -> Any:
    """Complete a function of (a, x) at the edges: x = 0 or a infinite, x infinite or a = 0, NaN outside the domain."""
    out = select_n_p(
        or_p(eq_p(x, constant_like(x, math.inf)), eq_p(a, constant_like(a, 0))), inside, constant_like(x, at_infinity)
    )
    out = select_n_p(
        or_p(eq_p(x, constant_like(x, 0)), eq_p(a, constant_like(a, math.inf))), out, constant_like(x, at_zero)
    )
    both = or_p(
        and_p(eq_p(x, constant_like(x, 0)), eq_p(a, constant_like(a, 0))),
        and_p(eq_p(x, constant_like(x, math.inf)), eq_p(a, constant_like(a, math.inf))),
    )
    outside = or_p(or_p(lt_p(x, constant_like(x, 0)), lt_p(a, constant_like(a, 0))), or_p(ne_p(x, x), ne_p(a, a)))
    return select_n_p(or_p(outside, both), out, constant_like(x, math.nan))


def igamma_value(a: ArrayLike, x: ArrayLike) -> Any:
    """P(a, x)."""
    found = GammaIterations(a, x)
    front = gamma_prefactor(found.a, found.x)
    upper = mul_p(mul_p(front, found.a), found.h)
    return gamma_edges(a, x, select_n_p(found.is_small, one_minus(upper), mul_p(front, found.S)), 0.0, 1.0)


def igammac_value(a: ArrayLike, x: ArrayLike) -> Any:
    """Q(a, x)."""
    found = GammaIterations(a, x)
    front = gamma_prefactor(found.a, found.x)
    upper = mul_p(mul_p(front, found.a), found.h)
    lower = select_n_p(is_nearly_one(found.a, found.x), one_minus(mul_p(front, found.S)), small_upper(found.a, found.x))
    return gamma_edges(a, x, select_n_p(found.is_small, upper, lower), 1.0, 0.0)


def is_nearly_one(a: ArrayLike, x: ArrayLike) -> Any:
    """Whether P(a, x) is so close to 1, for x < a + 1, that 1 - P would cancel."""
    bound = select_n_p(lt_p(x, constant_like(x, 0.5)), scale_by(x, 1.1), div_p(constant_like(x, -0.4), log_p(x)))
    return and_p(lt_p(a, bound), lt_p(x, constant_like(x, 1.1)))


def small_upper(a: ArrayLike, x: ArrayLike) -> Any:
    """Q(a, x) for small a and x, from P(a, x) = x^a / gamma(a + 1) (1 + a sum of (-x)^n / (n! (a + n))): DLMF 8.7.1."""
    w = sub_p(mul_p(a, log_p(x)), lgamma1p(a))
    total = constant_like(x, 0)
    for n in range(20, 0, -1):  # Horner's rule; 20 terms are enough for x < 1.1
        total = scale_by(mul_p(add_p(div_p(constant_like(x, 1), add_number(a, n)), total), neg_p(x)), 1 / n)
    return neg_p(add_p(expm1_p(w), mul_p(exp_p(w), mul_p(a, total))))


def lgamma1p(a: ArrayLike) -> Any:
    """log gamma(1 + a) for a >= 0, accurate near 0: DLMF 5.7.3."""
    is_tiny = lt_p(a, constant_like(a, 0.1))
    small = select_n_p(is_tiny, constant_like(a, 0), a)
    total = constant_like(a, 0)
    for k, c in reversed(list(enumerate(_ZETAS, start=2))):
        total = mul_p(add_number(total, c / k), neg_p(small))
    return select_n_p(is_tiny, lgamma_p(add_number(a, 1)), mul_p(neg_p(small), add_number(total, np.euler_gamma)))


def gamma_log_slope(a: ArrayLike, x: ArrayLike) -> tuple:
    """Return (dP/da) divided by the prefactor, and the operands with elements outside the domain replaced."""
    found = GammaIterations(a, x, derivative=True)
    a, x = found.a, found.x
    log_x = log_p(x)
    # P is the prefactor times S below a + 1, and 1 minus a times the prefactor times h above. The logarithmic
    # derivatives of the two factors are log x - digamma(a + 1) and log x - digamma(a).
    low = add_p(mul_p(sub_p(log_x, digamma_p(add_number(a, 1))), found.S), found.S_dot)
    high = mul_p(a, add_p(mul_p(sub_p(log_x, digamma_p(a)), found.h), found.h_dot))
    return select_n_p(found.is_small, neg_p(high), low), a, x


def igamma_grad_a_value(a: ArrayLike, x: ArrayLike) -> Any:
    """dP/da."""
    slope, safe_a, safe_x = gamma_log_slope(a, x)
    return gamma_edges(a, x, mul_p(slope, gamma_prefactor(safe_a, safe_x)), 0.0, 0.0)


def random_gamma_grad_value(a: ArrayLike, x: ArrayLike) -> Any:
    """dx/da at constant P(a, x), which is -(dP/da) / (dP/dx) with dP/dx = the prefactor times a/x."""
    slope, safe_a, safe_x = gamma_log_slope(a, x)
    return gamma_edges(a, x, neg_p(mul_p(slope, div_p(safe_x, safe_a))), 0.0, math.nan)


def beta_step(a: ArrayLike, b: ArrayLike, x: ArrayLike, m: Array, lanes: Sequence) -> tuple:
    """Two terms of the continued fraction of the incomplete beta function: DLMF 8.17.22."""
    c, d, h = lanes
    one = constant_like(x, 1)
    a_2m = add_p(a, scale_by(m, 2))
    even = div_p(mul_p(mul_p(m, sub_p(b, m)), x), mul_p(add_number(a_2m, -1), a_2m))
    odd = neg_p(div_p(mul_p(mul_p(add_p(a, m), add_p(add_p(a, b), m)), x), mul_p(a_2m, add_number(a_2m, 1))))
    for top in (even, odd):
        d = div_p(one, no_zero(add_p(mul_p(top, d), one)))
        c = no_zero(add_p(one, div_p(top, c)))
        ratio = mul_p(c, d)
        h = mul_p(h, ratio)
    return (c, d, h), le_p(abs_p(add_number(ratio, -1)), eps(ratio))


def betainc_value(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Any:
    """I_x(a, b), by the continued fraction at (a, b, x), or at (b, a, 1 - x) where that converges faster."""
    zero, one, inf = constant_like(x, 0), constant_like(x, 1), constant_like(x, math.inf)
    is_inside = and_p(and_p(gt_p(a, zero), gt_p(b, zero)), and_p(gt_p(x, zero), lt_p(x, one)))
    # Elements outside the domain are computed at an interior point, and replaced at the end.
    is_inside = and_p(is_inside, and_p(lt_p(a, inf), lt_p(b, inf)))
    safe_a, safe_b, safe_x = (select_n_p(is_inside, constant_like(x, s), v) for v, s in ((a, 1), (b, 1), (x, 0.5)))
    # The fraction converges fast for x < (a + 1) / (a + b + 2); I_x(a, b) = 1 - I_{1-x}(b, a) maps all other x there.
    mirrored = gt_p(safe_x, div_p(add_number(safe_a, 1), add_number(add_p(safe_a, safe_b), 2)))
    p, q = select_n_p(mirrored, safe_a, safe_b), select_n_p(mirrored, safe_b, safe_a)
    u = select_n_p(mirrored, safe_x, one_minus(safe_x))
    d = div_p(one, no_zero(one_minus(div_p(mul_p(add_p(p, q), u), add_number(p, 1)))))
    h = converge(functools.partial(beta_step, p, q, u), is_inside, [div_p(d, d), d, d])[2]
    # The prefactor x^a (1 - x)^b / (p B(p, q)) in logarithms, whose factors overflow separately.
    log_beta = sub_p(add_p(lgamma_p(p), lgamma_p(q)), lgamma_p(add_p(p, q)))
    logs = add_p(mul_p(safe_a, log_p(safe_x)), mul_p(safe_b, log1p_p(neg_p(safe_x))))
    value = div_p(mul_p(exp_p(sub_p(logs, log_beta)), h), p)
    value = select_n_p(mirrored, value, one_minus(value))
    value = select_n_p(eq_p(x, one), select_n_p(eq_p(x, zero), value, zero), one)
    # Outside the domain, and for NaN, the result is NaN.
    bad = or_p(or_p(le_p(a, zero), le_p(b, zero)), or_p(lt_p(x, zero), gt_p(x, one)))
    bad = or_p(bad, or_p(ne_p(a, a), or_p(ne_p(b, b), ne_p(x, x))))
    return select_n_p(bad, value, constant_like(x, math.nan))


# The primitives. Derivatives without a closed form are undefined, except dP/da.

NO_SECOND = Undefined("its derivatives have no closed form; only igamma and igammac can be differentiated, and once")
NO_SHAPE = Undefined(
    "the derivative of betainc with respect to a and b has no closed form; apply lax.stop_gradient to them"
)


def gamma_density(a: ArrayLike, x: ArrayLike) -> Any:
    """x^(a-1) exp(-x) / gamma(a), the derivative of P(a, x) with respect to x."""
    return exp_p(sub_p(sub_p(mul_p(add_number(a, -1), log_p(x)), x), lgamma_p(a)))


def beta_density(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Any:
    """x^(a-1) (1-x)^(b-1) / B(a, b), the derivative of I_x(a, b) with respect to x."""
    log_beta = sub_p(add_p(lgamma_p(a), lgamma_p(b)), lgamma_p(add_p(a, b)))
    powers = add_p(mul_p(add_number(b, -1), log1p_p(neg_p(x))), mul_p(add_number(a, -1), log_p(x)))
    return exp_p(sub_p(powers, log_beta))


def lower_algorithm(value: Callable) -> Callable:
    """Make the `lower` rule of a primitive that is an algorithm of other primitives, inlined in float32 at least."""
    return lambda self, ctx, *operands: ctx.inline(in_full_precision(value), *operands, avals=splat_avals(ctx))[0]


def splat_avals(ctx: LoweringContext) -> list:
    """The types of the operands after broadcasting to the shape of the result."""
    return [ctx.aval_out.with_dtype(a.dtype) for a in ctx.avals_in]


igamma_p = binary(
    "igamma",
    None,
    FLOATING,
    lambda t, a, x, y: mul_p(t, igamma_grad_a_p(a, x)),
    lambda t, a, x, y: mul_p(t, gamma_density(a, x)),
    lower=lower_algorithm(igamma_value),
)
igammac_p = binary(
    "igammac",
    None,
    FLOATING,
    lambda t, a, x, y: neg_p(mul_p(t, igamma_grad_a_p(a, x))),
    lambda t, a, x, y: neg_p(mul_p(t, gamma_density(a, x))),
    lower=lower_algorithm(igammac_value),
)
igamma_grad_a_p = binary(
    "igamma_grad_a", None, FLOATING, NO_SECOND, NO_SECOND, lower=lower_algorithm(igamma_grad_a_value)
)
random_gamma_grad_p = binary(
    "random_gamma_grad", None, FLOATING, NO_SECOND, NO_SECOND, lower=lower_algorithm(random_gamma_grad_value)
)


regularized_incomplete_beta_p = declare_primitive(
    "regularized_incomplete_beta",
    Elementwise,
    "I_x(a, b): float[*s], float[*s], float[*s] -> float[*s].",
    __module__=__name__,
    kinds=FLOATING,
    lower=lower_algorithm(betainc_value),
    jvp=derive_jvp(NO_SHAPE, NO_SHAPE, lambda t, a, b, x, y: mul_p(t, beta_density(a, b, x))),
)

igamma = binary_wrapper(
    igamma_p,
    "Regularized lower incomplete gamma function P(a, x)",
    "1.0, 2.0",
    "0.86466...",
    a="the shape parameter, positive",
    x="the upper limit, not negative",
)
igammac = binary_wrapper(
    igammac_p,
    "Regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x)",
    "1.0, 2.0",
    "0.13533...",
    a="the shape parameter, positive",
    x="the lower limit, not negative",
)
igamma_grad_a = binary_wrapper(
    igamma_grad_a_p,
    "Derivative of P(a, x) with respect to a",
    "1.0, 2.0",
    "-0.2208...",
    a="the shape parameter, positive",
    x="the upper limit, not negative",
)
random_gamma_grad = binary_wrapper(
    random_gamma_grad_p,
    "Derivative of a sample x of the gamma distribution with respect to its parameter a",
    "1.0, 2.0",
    "1.631...",
    a="the shape parameter, positive",
    x="the sample, positive",
)


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Any:
    """Regularized incomplete beta function I_x(a, b): float[*s], float[*s], float[*s] -> float[*s].

    Args:
      a: the first parameter, positive: a floating array, or one of rank 0.
      b: the second parameter, like the first.
      x: the upper limit in [0, 1]: a floating array, or one of rank 0.

    Returns:
      An array of the common shape and dtype.

    Raises:
      DTypeError: the dtypes differ, or are not floating.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax
      >>> round(float(lax.betainc(1.0, 2.0, 0.5)), 5)
      0.75
    """
    operands = match_scalars(a, b, x)
    try:
        return regularized_incomplete_beta_p(*operands)
    except ShapeError:
        return apply_broadcast(regularized_incomplete_beta_p, *operands)
