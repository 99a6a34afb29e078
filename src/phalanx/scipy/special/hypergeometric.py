"""Hypergeometric functions, Bessel functions of integer order, and spherical harmonics, by series and recurrences.

All loops have a fixed number of steps, so the derivatives with respect to all arguments follow. Builds on
`elementwise_algorithm`.

Source: DLMF 13.2, 13.7 (confluent), 15.8 (transformations), 10.74 (Miller), 14.30 (harmonics).
"""

from __future__ import annotations

import fractions
import math
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, ConcretizationTypeError, dtypes
from phalanx.numpy.operands import as_array, broadcast_operands, cast, concrete_or_none, to_operand, to_static_int
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_real, to_inexact_array, to_inexact_operands
from phalanx.scipy.special.elementwise_algorithm import elementwise, repeat, sum_terms
from phalanx.typing import Array, ArrayLike

_LARGE = 40.0  # beyond it `hyp1f1` uses the asymptotic expansion


def _sign_of_gamma(x: Array) -> Array:
    """The sign of the gamma function; 0 at its poles, where its reciprocal is 0."""
    down = lax.floor(x)
    odd = lax.rem(lax.abs(down), lax.full_like(down, 2)) == 1
    return jnp.where((x <= 0) & (x == down), 0, jnp.where((x < 0) & odd, -1, 1))


def _gamma_ratio(above: tuple, below: tuple) -> Any:
    """The quotient of two products of gamma functions, with the arguments `above` and `below`."""
    log: Any = 0
    sign: Any = 1
    for x in below:
        s = _sign_of_gamma(x)
        log, sign = log - lax.lgamma(jnp.where(s == 0, 1, x)), sign * s
    for x in above:
        log, sign = log + lax.lgamma(x), sign * _sign_of_gamma(x)
    return sign * lax.exp(log)


@elementwise("1.0, 2.0, 1.0", "1.7183", b="real numbers except nonpositive integers")
def hyp1f1(a: Array, b: Array, x: Array) -> Array:
    """Kummer's confluent hypergeometric function 1F1."""
    left = x < 0  # 1F1(a, b, x) = exp(x) 1F1(b - a, b, -x), whose terms do not cancel
    p, size = jnp.where(left, b - a, a), lax.abs(x)
    front = jnp.where(left, lax.exp(jnp.where(left, x, 0)), 1)
    small = size < _LARGE
    u, v = jnp.where(small, size, 1), jnp.where(small, _LARGE, size)

    one = lax.full_like(u, 1)

    def confluent(x: Array) -> Array:
        """The series of 1F1(p, b, x)."""
        return sum_terms(160, lambda k: (p + k - 1) / (b + k - 1) * x / k, one)

    tail = sum_terms(18, lambda k: (b - p + k - 1) * (k - p) / (k * v), one)
    # For a polynomial the factor 1 / gamma(a) of the asymptotic expansion is 0; its finitely many terms are summed.
    finite = (p <= 0) & (p == lax.floor(p))
    far = _gamma_ratio((b,), (jnp.where(finite, 1, p),)) * lax.exp(jnp.where(left, 0, v) + (p - b) * lax.log(v)) * tail
    far = jnp.where(finite, front * confluent(v), far)
    return jnp.where(x == 0, 1, jnp.where(small, front * confluent(u), far))


def _gauss(a: Array, b: Array, c: Array, x: Array) -> Array:
    """The series of 2F1(a, b, c, x)."""
    # Where c is a nonpositive integer, the numerator must reach 0 before the denominator does.
    safe = lambda v: jnp.where(v == 0, 1, v)
    return sum_terms(500, lambda k: (a + k - 1) * (b + k - 1) / (safe(c + k - 1) * k) * x, lax.full_like(x, 1))


@elementwise(
    "1.0, 1.0, 2.0, 0.5",
    "1.3863",
    c="real numbers",
    x="real numbers up to 1; less accurate above 0.95 if c - a - b is close to an integer",
    outside="infinite beyond 1 and for nonpositive integers c, unless it is a polynomial",
)
def hyp2f1(a: Array, b: Array, c: Array, x: Array) -> Array:
    """Gauss's hypergeometric function 2F1."""
    whole = lambda v: (v <= 0) & (v == lax.floor(v))
    finite = whole(a) | whole(b)
    left = (x < 0) & ~finite  # 2F1(a, b, c, x) = (1 - x)^-a 2F1(a, c - b, c, x / (x - 1))
    inside = (x < 1) & ~finite
    safe = jnp.where(inside, x, 0.25)
    b_in, y = jnp.where(left, c - b, b), jnp.where(left, safe / (safe - 1), safe)
    front = jnp.where(left, lax.exp(-a * lax.log1p(-jnp.where(left, safe, 0))), 1)
    # Near y = 1 the function behaves like (1 - y)^exponent, so the series converges there only if it is positive.
    s = c - a - b_in
    turned = (s < 0) & ~finite  # 2F1(a, b, c, y) = (1 - y)^s 2F1(c - a, c - b, c, y), which converges faster
    p, q = jnp.where(turned, c - a, a), jnp.where(turned, c - b_in, b_in)
    front = front * jnp.where(turned, lax.exp(s * lax.log1p(-y)), 1)
    # The transformed series may be a polynomial, too, which has values also beyond 1.
    beyond = turned & (x > 1) & (s == lax.round(s)) & (whole(p) | whole(q))
    power = lax.pow(*(jnp.where(beyond, v, 1) for v in (1 - x, s)))
    s = lax.abs(s)
    # Near 1 the series converges slowly, so it is expanded around 1; the expansion is singular for integer s.
    close = (y > 0.9) & (lax.abs(s - lax.round(s)) > 0.02) & inside
    # 500 terms suffice for y up to 0.9, and up to about 0.95 where the expansion around 1 is not available.
    direct = _gauss(p, q, c, jnp.where(finite | beyond, x, jnp.where(close, 0.5, y)))
    rest = jnp.where(close, 1 - y, 0.25)
    s = jnp.where(close, s, 0.5)
    p_in, q_in, c_in = (jnp.where(close, v, d) for v, d in ((p, 0.25), (q, 0.5), (c, 1.25)))
    around = _gamma_ratio((c_in, s), (c_in - p_in, c_in - q_in)) * _gauss(p_in, q_in, 1 - s, rest)
    around = around + _gamma_ratio((c_in, -s), (p_in, q_in)) * lax.exp(s * lax.log(rest)) * _gauss(
        c_in - p_in, c_in - q_in, 1 + s, rest
    )
    value = jnp.where(finite, direct, front * jnp.where(close, around, direct))
    excess = c - a - b
    at_one = jnp.where(excess > 0, _gamma_ratio((c, jnp.where(excess > 0, excess, 1)), (c - a, c - b)), np.inf)
    at_one = jnp.where(excess == excess, at_one, np.nan)
    value = jnp.where((x == 1) & ~finite, at_one, jnp.where((x > 1) & ~finite, np.inf, value))
    value = jnp.where(x != x, np.nan, jnp.where(beyond, power * direct, value))
    # As in SciPy, a series of one term is 1 whatever the other arguments are. Other series that end before the terms
    # become infinite have their values, and all others a pole.
    has_pole = whole(c) & ~(whole(a) & (a > c)) & ~(whole(b) & (b > c))
    value = jnp.where(has_pole, np.inf, value)
    return jnp.where((x == 0) | (((a == 0) | (b == 0)) & (c != 0)), 1, value)


def bernoulli(n: int) -> Array:
    """The first Bernoulli numbers.

    Args:
      n: the largest index.

    Returns:
      B_0 to B_n, float[n + 1].

    Raises:
      ArgumentError: `n` is negative.

    Examples:
      >>> from phalanx.scipy import special
      >>> special.bernoulli(2)[:2].tolist()
      [1.0, -0.5]
    """
    n = to_static_int(n, "bernoulli, argument n")
    if n < 0:
        raise ArgumentError(
            "bernoulli, argument n", expected="0 or more", got=n, fix="pass the largest index, 0 or more"
        )
    found = [fractions.Fraction(1)]
    # B_0 + ... + B_m, weighted with the binomial coefficients of m + 1, is 0. Fractions keep the cancellation exact.
    for m in range(1, n + 1):
        found.append(-sum(math.comb(m + 1, k) * b for k, b in enumerate(found)) / (m + 1))
    return jnp.array(np.array([float(b) for b in found]).astype(dtypes.canonicalize_dtype(np.float64)))


def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """Bessel functions of the first kind of orders 0 to v, by Miller's downward recurrence.

    Args:
      z: real numbers, smaller than `n_iter`.
      v: the highest order.
      n_iter: the order at which the recurrence starts.

    Returns:
      float[v + 1, *s], one row for each order.

    Raises:
      ArgumentError: `v` is negative, or not below `n_iter`.
      DTypeError: `z` is complex.

    Examples:
      >>> from phalanx.scipy import special
      >>> special.bessel_jn(0.0, v=1).tolist()
      [1.0, 0.0]
    """
    v, n_iter = to_static_int(v, "bessel_jn, argument v"), to_static_int(n_iter, "bessel_jn, argument n_iter")
    if not 0 <= v < n_iter:
        raise ArgumentError(
            "bessel_jn, argument v",
            expected=f"an order from 0 to {n_iter - 1}",
            got=v,
            fix=f"pass n_iter={2 * v}, or a smaller v",
        )
    return _bessel(z, v, n_iter)


@eager_jit(static_argnames=("v", "n_iter"))
def _bessel(z: ArrayLike, v: int, n_iter: int) -> Array:
    x = to_inexact_array("bessel_jn", z)
    check_real("bessel_jn", x)
    dtype = x.dtype
    x = cast(x, np.dtype(np.float32)) if dtype.itemsize < 4 else x
    safe_x = jnp.where(x == 0, 1, x)
    step = 2.0**-30
    # Values are scaled down by `step` before they overflow; `scalings` counts how often, to undo it for each order.
    # Downwards the recurrence is stable for J, while upwards it amplifies the other solution, Y.
    next_order, current, scalings, normalization = x * 0, lax.full_like(x, 1e-20), x * 0, x * 0
    kept: list = []
    for k in range(n_iter, 0, -1):
        # J_0 + 2 J_2 + 2 J_4 + ... = 1 fixes the unknown factor of the recurrence.
        normalization = normalization + jnp.where(k % 2 == 0, 2 * current, 0)
        if k <= v:
            kept.append((current, scalings))
        next_order, current = current, 2 * k / safe_x * current - next_order
        is_large = lax.abs(current) > 2.0**30
        next_order, current, normalization = (
            jnp.where(is_large, value * step, value) for value in (next_order, current, normalization)
        )
        scalings = scalings + cast(is_large, x.dtype)
    kept.append((current, scalings))
    normalization = normalization + current
    rows = [value * lax.exp2(30 * (c - scalings)) / normalization for value, c in kept[::-1]]
    rows = [jnp.where(x == 0, 1 if k == 0 else 0, value) for k, value in enumerate(rows)]
    return cast(jnp.stack(rows), dtype)


def sph_harm_y(
    n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: ArrayLike, diff_n: int | None = None, n_max: int | None = None
) -> Array:
    """Spherical harmonics.

    Args:
      n: the degree, nonnegative integers.
      m: the order, integers from -n to n.
      theta: the polar angle in radians, from 0 to pi.
      phi: the azimuth in radians.
      diff_n: must be None; differentiate the function instead.
      n_max: the largest degree; required if `n` is traced.

    Returns:
      Complex numbers in the broadcast shape; 0 where |m| > n.

    Raises:
      ArgumentError: `diff_n` is given.
      ConcretizationTypeError: `n` is traced and `n_max` is not given.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.sph_harm_y(1, 0, 0.0, 0.0).real.item(), 4)
      0.4886
    """
    if diff_n:
        raise ArgumentError(
            "sph_harm_y, argument diff_n",
            expected="None",
            got=diff_n,
            fix="use phalanx.grad or phalanx.jvp on the function",
        )
    if n_max is None:
        known = concrete_or_none(to_operand(n, "sph_harm_y"))
        if known is None:
            raise ConcretizationTypeError(
                "sph_harm_y, argument n",
                expected="degrees that are known while tracing",
                got="a tracer",
                fix="pass the largest degree as n_max",
            )
        n_max = int(known.max()) if known.size else 0
    return _harmonics(n, m, theta, phi, to_static_int(n_max, "sph_harm_y, argument n_max"))


@eager_jit(static_argnames=("n_max",))
def _harmonics(n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: ArrayLike, n_max: int) -> Array:
    theta, phi = to_inexact_operands("sph_harm_y", theta, phi)
    n, m = (cast(to_operand(v, "sph_harm_y"), theta.dtype) for v in (n, m))
    n, m, theta, phi = (as_array(v) for v in broadcast_operands("sph_harm_y", n, m, theta, phi))
    order = lax.abs(m)
    cos_theta, sin_theta = lax.cos(theta), lax.sin(theta)
    # The recurrence starts at degree m, with the value (-1)^m sqrt((2m + 1) / (4 pi (2m)!)) (2m - 1)!! sin(theta)^m.
    # By logarithms, since the factorials overflow for large orders. As in SciPy, sin(theta) counts without its sign
    # outside of [0, pi].
    log = 0.5 * (lax.log((2 * order + 1) / (4 * math.pi)) + lax.lgamma(2 * order + 1)) - order * math.log(2)
    is_odd = lax.rem(order, lax.full_like(order, 2)) == 1
    sin_power = jnp.where(
        order == 0,
        1,
        jnp.where(sin_theta == 0, 0, lax.exp(order * lax.log(lax.abs(jnp.where(sin_theta == 0, 1, sin_theta))))),
    )
    initial = jnp.where(is_odd, -1, 1) * lax.exp(log - lax.lgamma(order + 1)) * sin_power

    def advance_degree(k: Array, state: tuple) -> tuple:
        """The recurrence from degree k - 1 to k, which leaves the elements unchanged for which k > n or k <= order."""
        previous, current = state
        is_active = (k > order) & (k <= n)
        denominator = jnp.where(is_active, k * k - order * order, 1)
        factor = lax.sqrt((4 * k * k - 1) / denominator)
        previous_numerator = jnp.where(is_active, (k - 1) * (k - 1) - order * order, 0)
        previous_factor = lax.sqrt(
            jnp.where(previous_numerator > 0, previous_numerator, 1) / lax.max(4 * (k - 1) * (k - 1) - 1, k * 0 + 1)
        )
        advanced = factor * (cos_theta * current - jnp.where(previous_numerator > 0, previous_factor, 0) * previous)
        return jnp.where(is_active, current, previous), jnp.where(is_active, advanced, current)

    _, value = repeat(n_max, advance_degree, (initial * 0, initial)) if n_max else (initial, initial)
    value = jnp.where(order > n, 0, value)
    value = jnp.where((m < 0) & is_odd, -value, value)
    return lax.complex(value * lax.cos(m * phi), value * lax.sin(m * phi))
