"""Minimisation by the method of Broyden, Fletcher, Goldfarb and Shanno, as one loop of the compiled program.

Builds on `transforms` and `lax.while_loop`; `optimize` shows it.

Source: Nocedal & Wright (2006), Numerical Optimization, algorithms 3.5 (line search) and 6.1 (BFGS).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.numpy import linalg
from phalanx.numpy.contraction import dot, outer
from phalanx.numpy.creation import eye
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import as_array, cast, operand, promote_inexact
from phalanx.transforms import value_and_grad

_OPTIONS = {"norm": np.inf, "gtol": 1e-5, "maxiter": None, "line_search_maxiter": 10}
_SUFFICIENT, _FLAT = 1e-4, 0.9  # of the conditions of Wolfe


class OptimizeResults(NamedTuple):
    """Where a minimum was found, and how.

    `status` is 0 where the gradient became small enough, 1 where `maxiter` was reached, and 5 where the line search
    found no lower point.
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


def minimize(
    fun: Callable, x0: Any, args: tuple = (), *, method: str, tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:  # fmt: skip
    """A local minimum of a function of a vector.

    Args:
      fun: the function, `fun(x, *args)`, which gives a real number.
      x0: where to begin, a vector.
      args: further arguments of the function.
      method: `"BFGS"`.
      tol: how small the gradient must become; `gtol` of the options.
      options: `gtol`, `norm` (of the gradient, the largest element by default), `maxiter` (200 for each element) and
        `line_search_maxiter`.

    Returns:
      The results; `success` tells whether the gradient became small enough.

    Raises:
      ArgumentError: there is no such method or option.
      ShapeError: `x0` is no vector.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import optimize
      >>> found = optimize.minimize(lambda x: ((x - 3) ** 2).sum(), jnp.zeros(2), method="BFGS")
      >>> bool(found.success), round(found.x[0].item(), 3)
      (True, 3.0)
    """
    if method.lower() != "bfgs":
        raise ArgumentError("optimize.minimize, argument method", expected="'BFGS'", got=repr(method), mend="use it")
    unknown = set(options or {}) - set(_OPTIONS)
    if unknown:
        raise ArgumentError("optimize.minimize, argument options", expected=", ".join(map(repr, _OPTIONS)),
                            got=sorted(unknown), mend="leave out what is not known")  # fmt: skip
    chosen = _OPTIONS | ({} if tol is None else {"gtol": tol}) | dict(options or {})
    (x,) = promote_inexact("optimize.minimize", as_array(operand(x0, "optimize.minimize")))
    if x.ndim != 1:
        raise ShapeError("optimize.minimize, argument x0", expected="a vector", got=x.shape,
                         mend="use flatten_util.ravel_pytree")  # fmt: skip
    return _bfgs(value_and_grad(lambda x: fun(x, *args)), cast(x, x.dtype), **chosen)


def _bfgs(evaluate: Callable, x: Any, norm: Any, gtol: float, maxiter: int | None, line_search_maxiter: int) -> Any:
    n = x.shape[0]
    limit = 200 * n if maxiter is None else maxiter
    identity = eye(n, dtype=x.dtype)

    def goes_on(state: tuple) -> Any:
        _, _, g, _, k, _, failed = state
        return (linalg.norm(g, norm) > gtol) & (k < limit) & lax.bitwise_not(failed)

    def advance(state: tuple) -> tuple:
        x, f, g, h, k, count, _ = state
        p = -dot(h, g, precision="highest")
        down = dot(p, g) < 0
        p = where(down, p, -g)
        t, f_new, g_new, tried, found = _line_search(evaluate, x, f, g, p, line_search_maxiter)
        s, y = t * p, g_new - g
        curvature = dot(y, s)
        safe = where(curvature > 0, curvature, 1)
        left = identity - outer(s, y) / safe
        turned = dot(dot(left, h, precision="highest"), left.T, precision="highest") + outer(s, s) / safe

        h = where(curvature > 0, turned, h)
        return x + s, f_new, g_new, h, k + 1, count + tried, lax.bitwise_not(found)

    f, g = evaluate(x)
    zero, no = cast(0, np.dtype(np.int32)), as_array(np.False_)
    start = (x, f, g, identity, as_array(zero), as_array(zero + 1), no)
    x, f, g, h, k, count, failed = lax.while_loop(goes_on, advance, start)
    done = linalg.norm(g, norm) <= gtol
    status = where(done, 0, where(failed, 5, 1))
    return OptimizeResults(x, done, status, f, g, h, count, count, k)


def _line_search(evaluate: Callable, x: Any, f: Any, g: Any, p: Any, limit: int) -> tuple:
    """A step along `p` that fulfils the strong conditions of Wolfe: it, the value, the gradient, tries, and whether.

    `low` is a step that is not long enough, `high` one that is too long; between them a cubic is minimised.
    """
    slope = dot(p, g)

    def goes_on(state: tuple) -> Any:
        return lax.bitwise_not(state[-1]) & (state[-2] < limit)

    def attempt(state: tuple) -> tuple:
        low, f_low, d_low, high, f_high, d_high, t, _, _, _, tried, _ = state
        f_t, g_t = evaluate(x + t * p)
        d_t = dot(g_t, p)
        good = f_t <= f + _SUFFICIENT * t * slope
        found = good & (lax.abs(d_t) <= -_FLAT * slope)
        long = lax.bitwise_not(good) | (f_t > f_low) | (d_t >= 0)
        low, f_low, d_low = (where(long, a, b) for a, b in ((low, t), (f_low, f_t), (d_low, d_t)))
        high, f_high, d_high = (where(long, b, a) for a, b in ((high, t), (f_high, f_t), (d_high, d_t)))
        new = where(high == np.inf, 4 * t, _cubic_minimum(low, f_low, d_low, high, f_high, d_high))
        new = where(found, t, new)
        return low, f_low, d_low, high, f_high, d_high, new, t, f_t, g_t, tried + 1, found

    nothing = f * 0
    first = lax.full_like(f, 1)
    state = (
        nothing, f, slope, nothing + np.inf, nothing, nothing, first, nothing, f, g,
        as_array(cast(0, np.dtype(np.int32))), as_array(np.False_),
    )  # fmt: skip
    out = lax.while_loop(goes_on, attempt, state)
    t, f_t, g_t, tried, found = out[7:]
    # A step that is at least lower serves where none is as flat as it should be.
    lower = (f_t < f) | found
    return where(lower, t, 0), where(lower, f_t, f), where(lower, g_t, g), tried, lower


def _cubic_minimum(a: Any, f_a: Any, d_a: Any, b: Any, f_b: Any, d_b: Any) -> Any:
    """The minimum of the cubic through two points with their slopes, kept from both ends (Nocedal & Wright, 3.59)."""
    width = where(b == np.inf, 1, b - a)
    one = d_a + d_b - 3 * (f_b - f_a) / width
    square = one * one - d_a * d_b
    two = lax.sqrt(where(square > 0, square, 0))
    bottom = d_b - d_a + 2 * two
    t = b - width * (d_b + two - one) / where(bottom == 0, 1, bottom)
    t = where((square >= 0) & (bottom != 0) & (t == t), t, a + width / 2)
    return lax.clamp(a + 0.1 * width, t, a + 0.9 * width)
