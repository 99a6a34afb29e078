"""Hypergeometric functions, Bessel functions of whole order, and spherical harmonics: by series and recurrences.

All are loops of a fixed length, so that derivatives by every argument follow. Builds on `elementwise`; `special` shows
them.

Source: DLMF 13.2, 13.7 (confluent), 15.8 (transformations), 10.74 (Miller), 14.30 (harmonics).
"""

from __future__ import annotations

import fractions
import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, ConcretizationTypeError, DTypeError
from phalanx.numpy.creation import array
from phalanx.numpy.joining import stack
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import as_array, broadcast_operands, cast, concrete, integer, operand, promote_inexact
from phalanx.runtime.dispatch import eager_program
from phalanx.scipy.elementwise import elementwise, times

_LARGE = 40.0  # from which the confluent function is found from its expansion at infinity


def _sign_of_gamma(x: Any) -> Any:
    """The sign of the gamma function; 0 at its poles, where its inverse is 0."""
    down = lax.floor(x)
    odd = lax.rem(lax.abs(down), lax.full_like(down, 2)) == 1
    return where((x <= 0) & (x == down), 0, where((x < 0) & odd, -1, 1))


def _gamma_ratio(above: tuple, below: tuple) -> Any:
    """A product of gamma functions over another one."""
    log: Any = 0
    sign: Any = 1
    for x in below:
        s = _sign_of_gamma(x)
        log, sign = log - lax.lgamma(where(s == 0, 1, x)), sign * s
    for x in above:
        log, sign = log + lax.lgamma(x), sign * _sign_of_gamma(x)
    return sign * lax.exp(log)


@elementwise("1.0, 2.0, 1.0", "1.7183", b="real numbers, but no whole ones up to 0")
def hyp1f1(a: Any, b: Any, x: Any) -> Any:
    """Kummer's confluent hypergeometric function 1F1."""
    left = x < 0  # then exp(x) 1F1(b - a, b, -x), whose terms do not cancel
    p, size = where(left, b - a, a), lax.abs(x)
    front = where(left, lax.exp(where(left, x, 0)), 1)
    small = size < _LARGE
    u, v = where(small, size, 1), where(small, _LARGE, size)

    one = lax.full_like(u, 1)
    _, near = times(160, lambda k, state: _confluent(p, b, u, k, state), (one, one))

    def expand(k: Any, state: tuple) -> tuple:
        power = state[0] * (b - p + k - 1) * (k - p) / (k * v)
        return power, state[1] + power

    _, tail = times(18, expand, (one, one))
    # Of a polynomial nothing is left of this expansion, and its own few terms are exact.
    finite = (p <= 0) & (p == lax.floor(p))
    far = _gamma_ratio((b,), (where(finite, 1, p),)) * lax.exp(where(left, 0, v) + (p - b) * lax.log(v)) * tail
    _, short = times(160, lambda k, state: _confluent(p, b, v, k, state), (one, one))
    far = where(finite, front * short, far)
    return where(x == 0, 1, where(small, front * near, far))


def _confluent(p: Any, b: Any, v: Any, k: Any, state: tuple) -> tuple:
    """One more term of the confluent series."""
    power = state[0] * (p + k - 1) / (b + k - 1) * v / k
    return power, state[1] + power


def _gauss(a: Any, b: Any, c: Any, x: Any) -> Any:
    one = lax.full_like(x, 1)

    def term(k: Any, state: tuple) -> tuple:
        power = state[0] * (a + k - 1) * (b + k - 1) / ((c + k - 1) * k) * x
        return power, state[1] + power

    return times(500, term, (one, one))[1]


@elementwise(
    "1.0, 1.0, 2.0, 0.5",
    "1.3863",
    c="real numbers, but no whole ones up to 0",
    x="real numbers up to 1; less exact where they are above 0.95 and c - a - b is nearly whole",
    outside="infinite beyond 1, where it is no polynomial",
)
def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Any:
    """Gauss's hypergeometric function 2F1."""
    whole = lambda v: (v <= 0) & (v == lax.floor(v))
    finite = whole(a) | whole(b)
    left = (x < 0) & ~finite  # then (1 - x)^-a 2F1(a, c - b, c, x / (x - 1))
    inside = (x < 1) & ~finite
    safe = where(inside, x, 0.25)
    b_in, y = where(left, c - b, b), where(left, safe / (safe - 1), safe)
    front = where(left, lax.exp(-a * lax.log1p(-where(left, safe, 0))), 1)
    s = c - a - b_in
    turned = (s < 0) & ~finite  # then (1 - y)^s 2F1(c - a, c - b, c, y), which converges faster
    p, q = where(turned, c - a, a), where(turned, c - b_in, b_in)
    front = front * where(turned, lax.exp(s * lax.log1p(-y)), 1)
    s = lax.abs(s)
    close = (y > 0.9) & (lax.abs(s - lax.round(s)) > 0.02) & inside
    direct = _gauss(p, q, c, where(finite, x, where(close, 0.5, y)))
    rest = where(close, 1 - y, 0.25)
    s = where(close, s, 0.5)
    p_in, q_in, c_in = (where(close, v, d) for v, d in ((p, 0.25), (q, 0.5), (c, 1.25)))
    around = _gamma_ratio((c_in, s), (c_in - p_in, c_in - q_in)) * _gauss(p_in, q_in, 1 - s, rest)
    around = around + _gamma_ratio((c_in, -s), (p_in, q_in)) * lax.exp(s * lax.log(rest)) * _gauss(
        c_in - p_in, c_in - q_in, 1 + s, rest
    )
    value = where(finite, direct, front * where(close, around, direct))
    excess = c - a - b
    at_one = where(excess > 0, _gamma_ratio((c, where(excess > 0, excess, 1)), (c - a, c - b)), np.inf)
    value = where((x == 1) & ~finite, at_one, where((x > 1) & ~finite, np.inf, value))
    return where((x != x) | whole(c), np.nan, value)


def bernoulli(n: int) -> Any:
    """The first of Bernoulli's numbers.

    Args:
      n: up to which index.

    Returns:
      B_0 to B_n, float[n + 1].

    Raises:
      ArgumentError: `n` is negative.

    Examples:
      >>> from phalanx.scipy import special
      >>> special.bernoulli(2)[:2].tolist()
      [1.0, -0.5]
    """
    n = integer(n, "bernoulli, argument n")
    if n < 0:
        raise ArgumentError("bernoulli, argument n", expected="0 or more", got=n, mend="give an index")
    found: list[fractions.Fraction] = []
    for m in range(n + 1):
        odd = m > 1 and m % 2
        total = fractions.Fraction(0) if odd else sum((math.comb(m + 1, k) * b for k, b in enumerate(found)),
                                                      fractions.Fraction(0))  # fmt: skip
        found.append(fractions.Fraction(1) if m == 0 else -total / (m + 1))
    return array(np.array([float(b) for b in found]).astype(dtypes.canonicalize_dtype(np.float64)))


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Any:
    """Bessel functions of the first kind, of orders 0 to v.

    Args:
      z: real numbers; for large ones `n_iter` must exceed them.
      v: the highest order.
      n_iter: at which order the recurrence begins, downwards.

    Returns:
      float[v + 1, *s], a row for each order.

    Raises:
      ArgumentError: `v` is negative, or not below `n_iter`.
      DTypeError: `z` is complex.

    Examples:
      >>> from phalanx.scipy import special
      >>> special.bessel_jn(0.0, v=1).tolist()
      [1.0, 0.0]
    """
    v, n_iter = integer(v, "bessel_jn, argument v"), integer(n_iter, "bessel_jn, argument n_iter")
    if not 0 <= v < n_iter:
        raise ArgumentError("bessel_jn, argument v", expected=f"an order from 0 to {n_iter - 1}", got=v,
                            mend="raise n_iter")  # fmt: skip
    return _bessel(z, v, n_iter)


@eager_program(static_argnames=("v", "n_iter"))
def _bessel(z: Any, v: int, n_iter: int) -> Any:
    (x,) = promote_inexact("bessel_jn", as_array(operand(z, "bessel_jn")))
    if x.dtype.kind == "c":
        raise DTypeError("bessel_jn", expected="real numbers", got=str(x.dtype), mend="take the real part")
    own = x.dtype
    x = cast(x, np.dtype(np.float32)) if own.itemsize < 4 else x
    u = where(x == 0, 1, x)
    step = 2.0**-30
    # Each value with the number of times that those after it were made smaller.
    after, now, count, norm = x * 0, lax.full_like(x, 1e-20), x * 0, x * 0
    kept: list = []
    for k in range(n_iter, 0, -1):
        norm = norm + where(k % 2 == 0, 2 * now, 0)
        if k <= v:
            kept.append((now, count))
        after, now = now, 2 * k / u * now - after
        large = lax.abs(now) > 2.0**30
        after, now, norm = (where(large, w * step, w) for w in (after, now, norm))
        count = count + cast(large, x.dtype)
    kept.append((now, count))
    norm = norm + now
    rows = [w * lax.exp2(30 * (c - count)) / norm for w, c in kept[::-1]]
    rows = [where(x == 0, 1 if k == 0 else 0, w) for k, w in enumerate(rows)]
    return cast(stack(rows), own)


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None, n_max: int | None = None) -> Any:
    """Spherical harmonics.

    Args:
      n: the degree, whole numbers from 0.
      m: the order, whole numbers from -n to n.
      theta: the polar angle, from 0 to pi.
      phi: the azimuth.
      diff_n: must be None; derivatives are had by differentiating.
      n_max: the largest of `n`, needed where these are traced.

    Returns:
      Complex numbers, in the broadcast shape; 0 where `m` is beyond `n`.

    Raises:
      ArgumentError: `diff_n` is given.
      ConcretizationTypeError: `n` is traced and `n_max` is not given.

    Examples:
      >>> from phalanx.scipy import special
      >>> round(special.sph_harm_y(1, 0, 0.0, 0.0).real.item(), 4)
      0.4886
    """
    if diff_n:
        raise ArgumentError("sph_harm_y, argument diff_n", expected="None", got=diff_n, mend="differentiate it")
    if n_max is None:
        known = concrete(operand(n, "sph_harm_y"))
        if known is None:
            raise ConcretizationTypeError("sph_harm_y, argument n", expected="degrees that are known while tracing",
                                          got="a tracer", mend="give n_max=")  # fmt: skip
        n_max = int(known.max()) if known.size else 0
    return _harmonics(n, m, theta, phi, integer(n_max, "sph_harm_y, argument n_max"))


@eager_program(static_argnames=("n_max",))
def _harmonics(n: Any, m: Any, theta: Any, phi: Any, n_max: int) -> Any:
    theta, phi = promote_inexact("sph_harm_y", operand(theta, "sph_harm_y"), operand(phi, "sph_harm_y"))
    n, m = (cast(operand(v, "sph_harm_y"), theta.dtype) for v in (n, m))
    n, m, theta, phi = (as_array(v) for v in broadcast_operands("sph_harm_y", n, m, theta, phi))
    order = lax.abs(m)
    x, y = lax.cos(theta), lax.sin(theta)
    # Of degree m: (-1)^m sqrt((2m + 1) / (4 pi (2m)!)) (2m - 1)!! sin(theta)^m
    log = 0.5 * (lax.log((2 * order + 1) / (4 * math.pi)) + lax.lgamma(2 * order + 1)) - order * math.log(2)
    odd = lax.rem(order, lax.full_like(order, 2)) == 1
    power = where(order == 0, 1, where(y == 0, 0, lax.exp(order * lax.log(lax.abs(where(y == 0, 1, y))))))
    start = where(odd & (y > 0), -1, 1) * lax.exp(log - lax.lgamma(order + 1)) * power

    def degree(k: Any, state: tuple) -> tuple:
        """From degree k - 1 to k, above the order and up to n."""
        before, now = state
        active = (k > order) & (k <= n)
        span = where(active, k * k - order * order, 1)
        a = lax.sqrt((4 * k * k - 1) / span)
        last = where(active, (k - 1) * (k - 1) - order * order, 0)
        b = lax.sqrt(where(last > 0, last, 1) / lax.max(4 * (k - 1) * (k - 1) - 1, k * 0 + 1))
        new = a * (x * now - where(last > 0, b, 0) * before)
        return where(active, now, before), where(active, new, now)

    _, value = times(n_max, degree, (start * 0, start)) if n_max else (start, start)
    value = where(order > n, 0, value)
    value = where((m < 0) & odd, -value, value)
    return lax.complex(value * lax.cos(m * phi), value * lax.sin(m * phi))
