"""The incomplete gamma and beta functions, and the derivative of the former by its shape parameter.

Power series and continued fractions, iterated for all elements at once until each has converged. The derivative by the
parameter is the forward derivative of the same iterations. All have a front factor such as x^a exp(-x) / gamma(a + 1),
taken from Stirling's series where `a` is large, since its logarithms would cancel.

Source: DLMF 8.11.4 (series), 8.9.2 and 8.17.22 (continued fractions), 5.11.1 (Stirling); Lentz's method as modified by
Thompson & Barnett (1986), doi:10.1016/0021-9991(86)90046-X.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.primitive import Undefined
from phalanx.lax.elementwise import (
    abs_p,
    add_p,
    and_p,
    digamma_p,
    div_p,
    eq_p,
    exp_p,
    expm1_p,
    ge_p,
    gt_p,
    le_p,
    lgamma_p,
    like,
    log1p_p,
    log_p,
    lt_p,
    mul_p,
    ne_p,
    neg_p,
    not_p,
    one_minus,
    or_p,
    plus,
    rsqrt_p,
    scaled,
    square_p,
    sub_p,
)
from phalanx.lax.faces import two
from phalanx.lax.family import FLOATING, Elementwise, binary, derived_jvp, match
from phalanx.lax.loops import while_loop
from phalanx.lax.precision import in_full_precision
from phalanx.lax.reductions import reduce_or_p
from phalanx.lax.select import select_n_p
from phalanx.transforms.forward import jvp_flat

MAX_ITERATIONS = 5000

# Riemann's zeta function at 2, 3, ...
_ZETAS = (
    1.6449340668482264, 1.2020569031595942, 1.0823232337111381, 1.03692775514337, 1.0173430619844492,
    1.008349277381923, 1.0040773561979444, 1.0020083928260821, 1.000994575127818, 1.0004941886041194,
    1.000246086553308, 1.0001227133475785, 1.0000612481350588, 1.000030588236307,
)  # fmt: skip


def converge(step: Callable, active: Any, lanes: Sequence) -> tuple:
    """Iterate `step`: (n, lanes) -> (lanes, is_converged), with n = 1, 2, ... as a floating scalar.

    Each lane stays as it is once it has converged; those not `active` at the start never move.
    """

    def goes_on(state: tuple) -> Any:
        active, n, _ = state
        return and_p(reduce_or_p(active, dims=tuple(range(active.ndim))), lt_p(n, like(n, MAX_ITERATIONS)))

    def advance(state: tuple) -> tuple:
        active, n, old = state
        new, is_converged = step(n, old)
        kept = tuple(select_n_p(active, o, v) for o, v in zip(old, new, strict=True))
        return and_p(active, not_p(is_converged)), plus(n, 1), kept

    return while_loop(goes_on, advance, (active, like(lanes[0], 1), tuple(lanes)))[2]


def tiny(x: Any) -> Any:
    """What stands for 0 in a denominator."""
    return like(x, float(dtypes.finfo(x.dtype).tiny) * 1e3)


def eps(x: Any) -> Any:
    """The relative accuracy that ends an iteration."""
    return like(x, float(dtypes.finfo(x.dtype).eps))


def no_zero(x: Any) -> Any:
    """`x`, or something tiny where it is 0."""
    return select_n_p(lt_p(abs_p(x), tiny(x)), x, tiny(x))


# The two iterations of the incomplete gamma function.


def series_step(a: Any, x: Any, n: Any, lanes: Sequence) -> tuple:
    """S = sum of x^n / ((a+1) ... (a+n)): DLMF 8.11.4."""
    term, total = lanes
    term = mul_p(term, div_p(x, add_p(a, n)))
    total = add_p(total, term)
    return (term, total), le_p(abs_p(term), mul_p(abs_p(total), eps(total)))


def fraction_step(a: Any, x: Any, n: Any, lanes: Sequence) -> tuple:
    """h = 1/(x+1-a- 1(1-a)/(x+3-a- 2(2-a)/(x+5-a- ...))): the even part of DLMF 8.9.2."""
    c, d, h = lanes
    top = mul_p(n, sub_p(a, n))
    bottom = add_p(sub_p(x, a), plus(scaled(n, 2), 1))
    d = div_p(like(d, 1), no_zero(add_p(mul_p(top, d), bottom)))
    c = no_zero(add_p(bottom, div_p(top, c)))
    ratio = mul_p(c, d)
    return (c, d, mul_p(h, ratio)), le_p(abs_p(plus(ratio, -1)), eps(ratio))


def with_derivative(step: Callable, a: Any, x: Any) -> Callable:
    """A step that carries the derivatives of its lanes by `a` beside them, and waits for that of the last lane too."""
    one = div_p(a, a)

    def both(n: Any, lanes: Sequence) -> tuple:
        half = len(lanes) // 2

        def flat(a: Any, *values: Any) -> tuple:
            new, is_converged = step(a, x, n, values)
            return (*new, is_converged)

        out, dots = jvp_flat(flat, [a, *lanes[:half]], [one, *lanes[half:]])
        change = abs_p(sub_p(dots[half - 1], lanes[-1]))
        is_settled = le_p(change, mul_p(abs_p(dots[half - 1]), eps(change)))
        return (*out[:half], *dots[:half]), and_p(out[half], is_settled)

    return both


class GammaIterations:
    """What both iterations give at (a, x): `S` and `h`, their derivatives by `a` where asked for, and where each holds.

    Args:
      a: the parameter.
      x: the limit of the integral.
      derivative: whether to carry derivatives by `a`.
    """

    def __init__(self, a: Any, x: Any, derivative: bool = False):
        is_inside = and_p(and_p(gt_p(a, like(a, 0)), gt_p(x, like(x, 0))), lt_p(x, like(x, math.inf)))
        is_inside = and_p(is_inside, lt_p(a, like(a, math.inf)))
        self.is_small = lt_p(x, plus(a, 1))
        self.a = a = select_n_p(is_inside, like(a, 1), a)
        self.x = x = select_n_p(is_inside, like(x, 1), x)
        one = div_p(x, x)
        d = div_p(one, no_zero(plus(sub_p(x, a), 1)))
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


def gamma_front(a: Any, x: Any) -> Any:
    """x^a exp(-x) / gamma(a + 1), by Stirling's series where `a` is large."""
    bound = 10.0 if x.dtype == np.float32 else 30.0
    is_large = ge_p(a, like(a, bound))
    plain = exp_p(sub_p(sub_p(mul_p(a, log_p(x)), x), lgamma_p(plus(a, 1))))
    big = select_n_p(is_large, like(a, bound), a)
    inverse = div_p(like(a, 1), big)
    square = square_p(inverse)
    series = like(a, 0)
    for c in (-1 / 1680, 1 / 1260, -1 / 360, 1 / 12):  # DLMF 5.11.1
        series = plus(mul_p(series, square), c)
    delta = div_p(sub_p(x, big), big)
    exponent = sub_p(mul_p(big, sub_p(log1p_p(delta), delta)), mul_p(series, inverse))
    stirling = mul_p(exp_p(exponent), rsqrt_p(scaled(big, 2 * math.pi)))
    return select_n_p(is_large, plain, stirling)


def gamma_edges(a: Any, x: Any, inside: Any, at_zero: float, at_infinity: float) -> Any:
    """A value completed by its limits: for x = 0, for x infinite or a = 0, NaN outside the domain."""
    out = select_n_p(or_p(eq_p(x, like(x, math.inf)), eq_p(a, like(a, 0))), inside, like(x, at_infinity))
    out = select_n_p(or_p(eq_p(x, like(x, 0)), eq_p(a, like(a, math.inf))), out, like(x, at_zero))
    both = or_p(
        and_p(eq_p(x, like(x, 0)), eq_p(a, like(a, 0))), and_p(eq_p(x, like(x, math.inf)), eq_p(a, like(a, math.inf)))
    )
    outside = or_p(or_p(lt_p(x, like(x, 0)), lt_p(a, like(a, 0))), or_p(ne_p(x, x), ne_p(a, a)))
    return select_n_p(or_p(outside, both), out, like(x, math.nan))


def igamma_value(a: Any, x: Any) -> Any:
    """P(a, x)."""
    found = GammaIterations(a, x)
    front = gamma_front(found.a, found.x)
    upper = mul_p(mul_p(front, found.a), found.h)
    return gamma_edges(a, x, select_n_p(found.is_small, one_minus(upper), mul_p(front, found.S)), 0.0, 1.0)


def igammac_value(a: Any, x: Any) -> Any:
    """Q(a, x)."""
    found = GammaIterations(a, x)
    front = gamma_front(found.a, found.x)
    upper = mul_p(mul_p(front, found.a), found.h)
    lower = select_n_p(is_nearly_one(found.a, found.x), one_minus(mul_p(front, found.S)), small_upper(found.a, found.x))
    return gamma_edges(a, x, select_n_p(found.is_small, upper, lower), 1.0, 0.0)


def is_nearly_one(a: Any, x: Any) -> Any:
    """Whether P(a, x) is so near to 1, for x below a + 1, that Q must not be found from it."""
    bound = select_n_p(lt_p(x, like(x, 0.5)), scaled(x, 1.1), div_p(like(x, -0.4), log_p(x)))
    return and_p(lt_p(a, bound), lt_p(x, like(x, 1.1)))


def small_upper(a: Any, x: Any) -> Any:
    """Q(a, x) for small a and x, P(a, x) being x^a / gamma(a + 1) (1 + a sum of (-x)^n / (n! (a + n))): DLMF 8.7.1."""
    w = sub_p(mul_p(a, log_p(x)), lgamma1p(a))
    total = like(x, 0)
    for n in range(20, 0, -1):  # Horner, x being below 1.1
        total = scaled(mul_p(add_p(div_p(like(x, 1), plus(a, n)), total), neg_p(x)), 1 / n)
    return neg_p(add_p(expm1_p(w), mul_p(exp_p(w), mul_p(a, total))))


def lgamma1p(a: Any) -> Any:
    """log gamma(1 + a) for a >= 0, exact near 0: DLMF 5.7.3."""
    is_tiny = lt_p(a, like(a, 0.1))
    small = select_n_p(is_tiny, like(a, 0), a)
    total = like(a, 0)
    for k, c in reversed(list(enumerate(_ZETAS, start=2))):
        total = mul_p(plus(total, c / k), neg_p(small))
    return select_n_p(is_tiny, lgamma_p(plus(a, 1)), mul_p(neg_p(small), plus(total, np.euler_gamma)))


def gamma_turn(a: Any, x: Any) -> tuple:
    """(dP/da) / (x^a exp(-x) / gamma(a + 1)), in which the front factor cancels, and the operands made safe."""
    found = GammaIterations(a, x, derivative=True)
    a, x = found.a, found.x
    log_x = log_p(x)
    low = add_p(mul_p(sub_p(log_x, digamma_p(plus(a, 1))), found.S), found.S_dot)
    high = mul_p(a, add_p(mul_p(sub_p(log_x, digamma_p(a)), found.h), found.h_dot))
    return select_n_p(found.is_small, neg_p(high), low), a, x


def igamma_grad_a_value(a: Any, x: Any) -> Any:
    """dP/da."""
    turn, safe_a, safe_x = gamma_turn(a, x)
    return gamma_edges(a, x, mul_p(turn, gamma_front(safe_a, safe_x)), 0.0, 0.0)


def random_gamma_grad_value(a: Any, x: Any) -> Any:
    """dx/da at constant P(a, x): -(dP/da) / (dP/dx), the latter being the front factor times a/x."""
    turn, safe_a, safe_x = gamma_turn(a, x)
    return gamma_edges(a, x, neg_p(mul_p(turn, div_p(safe_x, safe_a))), 0.0, math.nan)


def beta_step(a: Any, b: Any, x: Any, m: Any, lanes: Sequence) -> tuple:
    """Two terms of the continued fraction of the incomplete beta function: DLMF 8.17.22."""
    c, d, h = lanes
    one = like(x, 1)
    a_2m = add_p(a, scaled(m, 2))
    even = div_p(mul_p(mul_p(m, sub_p(b, m)), x), mul_p(plus(a_2m, -1), a_2m))
    odd = neg_p(div_p(mul_p(mul_p(add_p(a, m), add_p(add_p(a, b), m)), x), mul_p(a_2m, plus(a_2m, 1))))
    for top in (even, odd):
        d = div_p(one, no_zero(add_p(mul_p(top, d), one)))
        c = no_zero(add_p(one, div_p(top, c)))
        ratio = mul_p(c, d)
        h = mul_p(h, ratio)
    return (c, d, h), le_p(abs_p(plus(ratio, -1)), eps(ratio))


def betainc_value(a: Any, b: Any, x: Any) -> Any:
    """I_x(a, b), by the fraction at (a, b, x) or at (b, a, 1 - x), whichever converges fast."""
    zero, one, inf = like(x, 0), like(x, 1), like(x, math.inf)
    is_inside = and_p(and_p(gt_p(a, zero), gt_p(b, zero)), and_p(gt_p(x, zero), lt_p(x, one)))
    is_inside = and_p(is_inside, and_p(lt_p(a, inf), lt_p(b, inf)))
    safe_a, safe_b, safe_x = (select_n_p(is_inside, like(x, s), v) for v, s in ((a, 1), (b, 1), (x, 0.5)))
    mirrored = gt_p(safe_x, div_p(plus(safe_a, 1), plus(add_p(safe_a, safe_b), 2)))
    p, q = select_n_p(mirrored, safe_a, safe_b), select_n_p(mirrored, safe_b, safe_a)
    u = select_n_p(mirrored, safe_x, one_minus(safe_x))
    d = div_p(one, no_zero(one_minus(div_p(mul_p(add_p(p, q), u), plus(p, 1)))))
    h = converge(functools.partial(beta_step, p, q, u), is_inside, [div_p(d, d), d, d])[2]
    log_beta = sub_p(add_p(lgamma_p(p), lgamma_p(q)), lgamma_p(add_p(p, q)))
    logs = add_p(mul_p(safe_a, log_p(safe_x)), mul_p(safe_b, log1p_p(neg_p(safe_x))))
    value = div_p(mul_p(exp_p(sub_p(logs, log_beta)), h), p)
    value = select_n_p(mirrored, value, one_minus(value))
    value = select_n_p(eq_p(x, one), select_n_p(eq_p(x, zero), value, zero), one)
    bad = or_p(or_p(le_p(a, zero), le_p(b, zero)), or_p(lt_p(x, zero), gt_p(x, one)))
    bad = or_p(bad, or_p(ne_p(a, a), or_p(ne_p(b, b), ne_p(x, x))))
    return select_n_p(bad, value, like(x, math.nan))


# The primitives. Only the derivatives that have a closed form, and dP/da, are defined.

NO_SECOND = Undefined(
    "its derivative by the shape parameter has no closed form; use igamma, whose first derivative is there"
)
NO_SHAPE = Undefined("the derivative of betainc by its parameters has no closed form; stop the gradient at a and b")


def gamma_density(a: Any, x: Any) -> Any:
    """x^(a-1) exp(-x) / gamma(a), the derivative of P(a, x) by x."""
    power = mul_p(plus(a, -1), log_p(x))
    return exp_p(sub_p(sub_p(power, x), lgamma_p(a)))


def beta_density(a: Any, b: Any, x: Any) -> Any:
    """x^(a-1) (1-x)^(b-1) / B(a, b), the derivative of I_x(a, b) by x."""
    log_beta = sub_p(add_p(lgamma_p(a), lgamma_p(b)), lgamma_p(add_p(a, b)))
    powers = add_p(mul_p(plus(b, -1), log1p_p(neg_p(x))), mul_p(plus(a, -1), log_p(x)))
    return exp_p(sub_p(powers, log_beta))


def lowered(value: Callable) -> Callable:
    """The `lower` rule of an operation that is an algorithm of our own operations."""
    return lambda self, ctx, *operands: ctx.inline(in_full_precision(value), *operands, avals=splat_avals(ctx))[0]


def splat_avals(ctx: Any) -> list:
    """The types of the operands once those of rank 0 were broadcast."""
    return [ctx.aval_out.with_dtype(a.dtype) for a in ctx.avals_in]


igamma_p = binary("igamma", None, FLOATING, lambda t, a, x, y: mul_p(t, igamma_grad_a_p(a, x)),
                  lambda t, a, x, y: mul_p(t, gamma_density(a, x)), lower=lowered(igamma_value),
                  by_pieces=True)  # fmt: skip
igammac_p = binary("igammac", None, FLOATING, lambda t, a, x, y: neg_p(mul_p(t, igamma_grad_a_p(a, x))),
                   lambda t, a, x, y: neg_p(mul_p(t, gamma_density(a, x))), lower=lowered(igammac_value),
                   by_pieces=True)  # fmt: skip
igamma_grad_a_p = binary(
    "igamma_grad_a", None, FLOATING, NO_SECOND, NO_SECOND, lower=lowered(igamma_grad_a_value), by_pieces=True
)
random_gamma_grad_p = binary("random_gamma_grad", None, FLOATING, NO_SECOND, NO_SECOND,
                             lower=lowered(random_gamma_grad_value), by_pieces=True)  # fmt: skip


class RegularizedIncompleteBeta(Elementwise, name="regularized_incomplete_beta"):
    """I_x(a, b): float[*s], float[*s], float[*s] -> float[*s]."""

    by_pieces = True
    kinds = FLOATING
    lower = lowered(betainc_value)
    jvp = derived_jvp(NO_SHAPE, NO_SHAPE, lambda t, a, b, x, y: mul_p(t, beta_density(a, b, x)))


regularized_incomplete_beta_p = RegularizedIncompleteBeta()


igamma = two(igamma_p, "Regularized lower incomplete gamma function P(a, x)", "1.0, 2.0", "0.86466...",
             a="the shape parameter, positive", x="the upper limit, not negative")  # fmt: skip
igammac = two(igammac_p, "Regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x)", "1.0, 2.0", "0.13533...",
              a="the shape parameter, positive", x="the lower limit, not negative")  # fmt: skip
igamma_grad_a = two(igamma_grad_a_p, "Derivative of P(a, x) by a", "1.0, 2.0", "-0.2208...",
                    a="the shape parameter, positive", x="the upper limit, not negative")  # fmt: skip
random_gamma_grad = two(random_gamma_grad_p, "How a sample x of the gamma distribution moves with its parameter a",
                        "1.0, 2.0", "1.631...", a="that parameter, positive", x="the sample, positive")  # fmt: skip


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Regularized incomplete beta function I_x(a, b): float[*s], float[*s], float[*s] -> float[*s].

    Args:
      a: the first parameter, positive: a floating array, or one of rank 0.
      b: the second parameter, likewise.
      x: the upper limit in [0, 1], likewise.

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
    return regularized_incomplete_beta_p(*match(a, b, x))
