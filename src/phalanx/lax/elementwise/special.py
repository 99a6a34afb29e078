"""Special functions: error function, gamma and zeta functions, modified Bessel functions.

Functions that are CHLO operations have their primitives in `elementwise_primitives`; `bessel_i0e` is a Chebyshev
approximation. The incomplete gamma and beta functions are in `incomplete_gamma_beta`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from phalanx.core import dtypes
from phalanx.engine.mlir import chlo
from phalanx.lax.elementwise.convert_element_type import in_full_precision
from phalanx.lax.elementwise.elementwise_builders import FLOATING, unary
from phalanx.lax.elementwise.elementwise_primitives import (
    abs_p,
    add_number,
    constant_like,
    digamma_p,
    div_p,
    eq_p,
    erf_inv_p,
    erf_p,
    erfc_p,
    le_p,
    lgamma_p,
    mul_p,
    polygamma_p,
    rsqrt_p,
    scale_by,
    sign_p,
    sub_p,
    zeta_p,
)
from phalanx.lax.elementwise.select import select_n_p
from phalanx.lax.elementwise.wrappers import binary_wrapper, unary_wrapper
from phalanx.typing import Array, ArrayLike

# Chebyshev coefficients of exp(-x) I0(x) in the variable x/4 - 1 for x in [0, 8], and of sqrt(x) exp(-x) I0(x) in
# 16/x - 1 for x >= 8. They interpolate 60-digit values of the power and asymptotic series (DLMF 10.25.2, 10.40.1) at
# Chebyshev points, with an error below 1e-15.
_NEAR = (
    0.33839763720473814,
    -0.30468267234319851,
    0.17162090152220877,
    -0.094901097048047625,
    0.049305284239670705,
    -0.023737414805899474,
    0.010546460394595015,
    -0.0043243099950505681,
    0.0016394756169413208,
    -0.00057637557453857845,
    0.00018850288509584661,
    -5.7541950100829483e-05,
    1.6448448070732592e-05,
    -4.4167383584521742e-06,
    1.1173875391031624e-06,
    -2.6707938537371996e-07,
    6.0469950210230694e-08,
    -1.3000250085528218e-08,
    2.6598237070081967e-09,
    -5.1897954213691867e-10,
    9.6758073582811507e-11,
    -1.7268258424963007e-11,
    2.9550563999788553e-12,
    -4.8563782567417522e-13,
    7.6760035982197302e-14,
    -1.1696927493843426e-14,
    1.726903850276746e-15,
    -2.4689807359816634e-16,
    2.221417053953194e-17,
)
_FAR = (
    0.40224520550705434,
    0.0033691164782556991,
    6.8897583469170536e-05,
    2.8913705208334709e-06,
    2.0489185894650759e-07,
    2.2666689903342828e-08,
    3.3962320209700569e-09,
    4.9406024546180512e-10,
    1.1889145087192341e-11,
    -3.1499166889765367e-11,
    -1.3215806463246419e-11,
    -1.7941784774947723e-12,
    7.1800609599363891e-13,
    3.852786840806067e-13,
    1.5402934132441799e-14,
    -4.1502904632004908e-14,
    -9.5545971684800907e-15,
    3.8189878972628733e-15,
    1.7747042775154856e-15,
    -3.4262198965045733e-16,
    -2.8177089577017652e-16,
    3.7659212202124019e-17,
)


def clenshaw(coefficients: Sequence[float], x: ArrayLike) -> Any:
    """Evaluate a Chebyshev series by Clenshaw's recurrence, without the terms below the precision of the dtype.

    Source: Clenshaw (1955); DLMF 3.11.15.
    """
    eps = float(dtypes.finfo(x.dtype).eps) / 8
    last = max(i for i, c in enumerate(coefficients) if math.fabs(c) > eps)
    twice = scale_by(x, 2)
    # Clenshaw: b_k = 2 x b_(k+1) - b_(k+2) + c_k; the sum is x b_1 - b_2 + c_0.
    b1, b2 = constant_like(x, coefficients[last]), constant_like(x, 0)
    for c in coefficients[last - 1 : 0 : -1]:
        b1, b2 = add_number(sub_p(mul_p(twice, b1), b2), c), b1
    return add_number(sub_p(mul_p(x, b1), b2), coefficients[0])


def bessel_i0e_value(x: ArrayLike) -> Any:
    """exp(-|x|) I0(x) by two Chebyshev series."""
    size = abs_p(x)
    is_near = le_p(size, constant_like(x, 8))
    # Each series is evaluated at 8 where the other one applies, so that neither is evaluated outside its interval.
    near = clenshaw(_NEAR, add_number(scale_by(select_n_p(is_near, constant_like(x, 8), size), 0.25), -1))
    outside = select_n_p(is_near, size, constant_like(x, 8))
    far = mul_p(clenshaw(_FAR, add_number(div_p(constant_like(x, 16), outside), -1)), rsqrt_p(outside))
    return select_n_p(is_near, far, near)


def _i1e_slope(t: Array, x: Array, y: Array) -> Any:
    """I0(x) exp(-|x|) - y (sign(x) + 1/x); y / x tends to 1/2 at 0."""
    is_zero = eq_p(x, constant_like(x, 0))
    ratio = select_n_p(is_zero, div_p(y, select_n_p(is_zero, x, constant_like(x, 1))), constant_like(x, 0.5))
    return mul_p(t, sub_p(sub_p(bessel_i0e_p(x), mul_p(sign_p(x), y)), ratio))


bessel_i0e_p = unary(
    "bessel_i0e",
    None,
    FLOATING,
    lambda t, x, y: mul_p(t, sub_p(bessel_i1e_p(x), mul_p(sign_p(x), y))),
    lower=lambda self, ctx, x: ctx.inline(in_full_precision(bessel_i0e_value), x)[0],
)
bessel_i1e_p = unary("bessel_i1e", chlo.BesselI1eOp, FLOATING, _i1e_slope)


erf = unary_wrapper(erf_p, "Error function, 2/sqrt(pi) times the integral of exp(-u^2) from 0 to x", "0.0", "0.0")
erfc = unary_wrapper(erfc_p, "1 - erf(x), accurate also for large x", "0.0", "1.0")
erf_inv = unary_wrapper(erf_inv_p, "Inverse of the error function", "0.0", "0.0")
lgamma = unary_wrapper(lgamma_p, "Logarithm of |gamma(x)|", "4.0", "1.7917...")
digamma = unary_wrapper(digamma_p, "Derivative of the logarithm of gamma(x)", "1.0", "-0.577...")
bessel_i0e = unary_wrapper(bessel_i0e_p, "exp(-|x|) times the modified Bessel function of order 0", "0.0", "1.0...")
bessel_i1e = unary_wrapper(bessel_i1e_p, "exp(-|x|) times the modified Bessel function of order 1", "0.0", "0.0")


polygamma = binary_wrapper(
    polygamma_p,
    "The m-th derivative of the digamma function",
    "1.0, 1.0",
    "1.6449...",
    m="the order, a non-negative integer",
    x="the argument",
)
zeta = binary_wrapper(
    zeta_p,
    "Hurwitz zeta function, the sum of (k + q)^-x over k >= 0",
    "2.0, 1.0",
    "1.6449...",
    x="the exponent",
    q="the offset of the terms",
)
