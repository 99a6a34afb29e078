"""`minimize`: the BFGS method (Broyden, Fletcher, Goldfarb, Shanno) as one compiled loop.

Builds on `transforms` and `lax.while_loop`.

Source: Nocedal & Wright (2006), Numerical Optimization, algorithms 3.5 (line search) and 6.1 (BFGS).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, ShapeError
from phalanx.numpy.operands import as_array, cast
from phalanx.scipy.argument_checks import int32_zero, to_inexact_array
from phalanx.transforms import value_and_grad
from phalanx.typing import Array, ArrayLike

_OPTIONS = {"norm": np.inf, "gtol": 1e-5, "maxiter": None, "line_search_maxiter": 10}
# c1 and c2 of the Wolfe conditions, with the values that Nocedal & Wright recommend for quasi-Newton methods.
_SUFFICIENT, _FLAT = 1e-4, 0.9


class OptimizeResults(NamedTuple):
    """The result of `minimize`.

    `status` is 0 if the gradient became small enough, 1 if `maxiter` was reached, and 5 if the line search found no
    lower point.
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
    fun: Callable,
    x0: ArrayLike,
    args: tuple = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """Minimize a function of a vector.

    Args:
      fun: the function, `fun(x, *args)`, which returns a real number.
      x0: the initial point, num[n].
      args: further arguments of `fun`.
      method: `"BFGS"`.
      tol: the tolerance of the norm of the gradient, the same as the option `gtol`.
      options: `gtol`, `norm` (of the gradient, the largest element by default), `maxiter` (200 for each element) and
        `line_search_maxiter`.

    Returns:
      The results; `success` is whether the gradient became small enough.

    Raises:
      ArgumentError: `method` or an option is unknown.
      ShapeError: `x0` is not a vector.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import optimize
      >>> found = optimize.minimize(lambda x: ((x - 3) ** 2).sum(), jnp.zeros(2), method="BFGS")
      >>> bool(found.success), round(found.x[0].item(), 3)
      (True, 3.0)
    """
    if method.lower() != "bfgs":
        raise ArgumentError(
            "optimize.minimize, argument method", expected="'BFGS'", got=repr(method), fix="pass method='BFGS'"
        )
    unknown = set(options or {}) - set(_OPTIONS)
    if unknown:
        raise ArgumentError(
            "optimize.minimize, argument options",
            expected=", ".join(map(repr, _OPTIONS)),
            got=sorted(unknown),
            fix=f"remove {sorted(unknown)[0]!r} from the options",
        )
    chosen = _OPTIONS | ({} if tol is None else {"gtol": tol}) | dict(options or {})
    x = to_inexact_array("optimize.minimize", x0)
    if x.ndim != 1:
        raise ShapeError(
            "optimize.minimize, argument x0",
            expected="a vector",
            got=x.shape,
            fix="flatten x0 with phalanx.flatten_util.ravel_pytree",
        )
    return _bfgs(value_and_grad(lambda x: fun(x, *args)), cast(x, x.dtype), **chosen)


def _bfgs(
    evaluate: Callable, x: Array, norm: float | Array, gtol: float, maxiter: int | None, line_search_maxiter: int
) -> Any:
    # The default of SciPy.
    limit = 200 * x.shape[0] if maxiter is None else maxiter
    identity = jnp.eye(x.shape[0], dtype=x.dtype)

    def should_continue(state: tuple) -> Any:
        _, _, g, _, k, _, failed = state
        return (jnp.linalg.norm(g, norm) > gtol) & (k < limit) & lax.bitwise_not(failed)

    def advance(state: tuple) -> tuple:
        x, f, g, h, k, count, _ = state
        p = -jnp.dot(h, g, precision="highest")
        # Rounding can make the approximate inverse Hessian indefinite; steepest descent is always a descent direction.
        p = jnp.where(jnp.dot(p, g) < 0, p, -g)
        t, f_new, g_new, tried, found = _line_search(evaluate, x, f, g, p, line_search_maxiter)
        # The step and the change of the gradient, with the names of Nocedal & Wright.
        s, y = t * p, g_new - g
        curvature = jnp.dot(y, s)
        safe = jnp.where(curvature > 0, curvature, 1)
        # The update keeps `h` positive definite only for a positive curvature y^T s, and is skipped otherwise.
        left = identity - jnp.outer(s, y) / safe
        turned = jnp.dot(jnp.dot(left, h, precision="highest"), left.T, precision="highest") + jnp.outer(s, s) / safe

        return x + s, f_new, g_new, jnp.where(curvature > 0, turned, h), k + 1, count + tried, lax.bitwise_not(found)

    f, g = evaluate(x)
    start = (x, f, g, identity, int32_zero(), int32_zero() + 1, as_array(np.False_))
    x, f, g, h, k, count, failed = lax.while_loop(should_continue, advance, start)
    done = jnp.linalg.norm(g, norm) <= gtol
    # The status codes of `jax.scipy.optimize`, so that programs that compare them keep working.
    status = jnp.where(done, 0, jnp.where(failed, 5, 1))
    return OptimizeResults(x, done, status, f, g, h, count, count, k)


def _line_search(evaluate: Callable, x: Array, f: Array, g: Array, p: Array, limit: int) -> tuple:
    """Find a step along `p` that satisfies the strong Wolfe conditions.

    `low` is the best step so far that is too short, and `high` one that is too long. The next trial step minimizes the
    cubic through both with their slopes; without an upper bound the step grows by a factor of 4.

    Returns:
      The step, the value and the gradient there, the number of evaluations, and whether a lower point was found.
    """
    slope = jnp.dot(p, g)

    def attempt(state: tuple) -> tuple:
        low, f_low, d_low, high, f_high, d_high, t, _, _, _, tried, _ = state
        f_t, g_t = evaluate(x + t * p)
        d_t = jnp.dot(g_t, p)
        # The first Wolfe condition (sufficient decrease) and the second one (a slope close to 0).
        good = f_t <= f + _SUFFICIENT * t * slope
        found = good & (lax.abs(d_t) <= -_FLAT * slope)
        # The step is too long if the function has not decreased enough, exceeds the best value, or increases again.
        long = lax.bitwise_not(good) | (f_t > f_low) | (d_t >= 0)
        low, f_low, d_low = (jnp.where(long, a, b) for a, b in ((low, t), (f_low, f_t), (d_low, d_t)))
        high, f_high, d_high = (jnp.where(long, b, a) for a, b in ((high, t), (f_high, f_t), (d_high, d_t)))
        new = jnp.where(high == np.inf, 4 * t, _cubic_minimum(low, f_low, d_low, high, f_high, d_high))
        return low, f_low, d_low, high, f_high, d_high, jnp.where(found, t, new), t, f_t, g_t, tried + 1, found

    nothing = f * 0
    state = (
        nothing,
        f,
        slope,
        nothing + np.inf,
        nothing,
        nothing,
        lax.full_like(f, 1),
        nothing,
        f,
        g,
        int32_zero(),
        as_array(np.False_),
    )
    out = lax.while_loop(lambda state: lax.bitwise_not(state[-1]) & (state[-2] < limit), attempt, state)
    t, f_t, g_t, tried, found = out[7:]
    # If no step satisfies both conditions, any step that decreases the function is used.
    lower = (f_t < f) | found
    return jnp.where(lower, t, 0), jnp.where(lower, f_t, f), jnp.where(lower, g_t, g), tried, lower


def _cubic_minimum(a: Array, f_a: Array, d_a: Array, b: Array, f_b: Array, d_b: Array) -> Any:
    """The minimizer of the cubic through two points with their slopes, at least a tenth of the interval from both ends.

    Source: Nocedal & Wright (2006), equation 3.59.
    """
    width = jnp.where(b == np.inf, 1, b - a)
    one = d_a + d_b - 3 * (f_b - f_a) / width
    square = one * one - d_a * d_b
    two = lax.sqrt(jnp.where(square > 0, square, 0))
    bottom = d_b - d_a + 2 * two
    t = b - width * (d_b + two - one) / jnp.where(bottom == 0, 1, bottom)
    t = jnp.where((square >= 0) & (bottom != 0) & (t == t), t, a + width / 2)
    return lax.clamp(a + 0.1 * width, t, a + 0.9 * width)
