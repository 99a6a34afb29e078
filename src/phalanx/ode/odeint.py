"""`odeint`: initial value problems of ordinary differential equations, with derivatives by the adjoint equation.

The method is by Dormand and Prince: six new slopes give a solution of order five, and the difference to an
embedded one of order four is the estimated error, which decides about the step and about the size of the next one. The
solution at the requested times is read off a polynomial through the step that contains them.

Backpropagation through the steps would keep all of them. Instead `odeint` solves the adjoint equation backwards in
time: the cotangent a(t) of the state satisfies da/dt = -a df/dy, the cotangent of a parameter is the integral of
a df/dp, and the state itself is recomputed along the way. Since this is again a call of `odeint`, derivatives of any
order exist.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core import ArgumentTypeError, default_matmul_precision, get_aval_of_argument
from phalanx.custom_rules import closure_convert, custom_vjp
from phalanx.numpy.ravel_pytree import ravel_pytree
from phalanx.spmd.jit import jit
from phalanx.transforms import vjp, vmap
from phalanx.tree import tree_flatten, tree_map, tree_unflatten
from phalanx.typing import ArrayLike, PyTree

# The tableau of Dormand & Prince: times and weights of the slopes 2 to 7, of which the last is that of the solution.
_NODES: Final = np.array([1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])
_STAGES: Final = np.array(
    [
        [1 / 5, 0, 0, 0, 0, 0, 0],
        [3 / 40, 9 / 40, 0, 0, 0, 0, 0],
        [44 / 45, -56 / 15, 32 / 9, 0, 0, 0, 0],
        [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729, 0, 0, 0],
        [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656, 0, 0],
        [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0],
    ]
)
_SOLUTION: Final = _STAGES[-1]
# A fourth-order solution with a small error constant: that of Shampine's codes.
_EMBEDDED: Final = np.array([1951 / 21600, 0, 22642 / 50085, 451 / 720, -12231 / 42400, 649 / 6300, 1 / 60])
# The solution in the middle of a step.
_MIDDLE: Final = 0.5 * np.array(
    [
        6025192743 / 30085553152,
        0,
        51252292925 / 65400821598,
        -2691868925 / 45128329728,
        187940372067 / 1594534317056,
        -1776094331 / 19743644256,
        11237099 / 235043384,
    ]
)
_ORDER: Final = 5


class _Options(NamedTuple):
    """Tolerances and limits of a solution, as in `odeint`."""

    rtol: Any
    atol: Any
    mxstep: Any
    hmax: Any


class _State(NamedTuple):
    """The solution after a step.

    Args:
      steps: the number of steps since the last requested time.
      y, slope: the state and its derivative.
      t, dt: the time and the size of the next step.
      begin: the time before the last step.
      coefficients: the polynomial of the last step in the fraction of the step, highest power first: [5, n].
    """

    steps: Any
    y: Any
    slope: Any
    t: Any
    dt: Any
    begin: Any
    coefficients: Any


def odeint(
    func: Callable,
    y0: PyTree,
    t: ArrayLike,
    *args: PyTree,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = np.inf,
    hmax: float = np.inf,
) -> PyTree:
    """Solve the initial value problem dy/dt = func(y, t, *args), y(t[0]) = y0.

    Args:
      func: `func(y, t, *args)` returns the time derivative of the state, with the structure and shapes of `y0`.
      y0: the state at the first time: a pytree of arrays.
      t: the times at which the solution is wanted, strictly increasing: float[n].
      args: further arguments of `func`: pytrees of arrays.
      rtol, atol: the relative and the absolute error allowed in each step.
      mxstep: the largest number of steps between two times.
      hmax: the largest step.

    Returns:
      The states at all times, with the structure of `y0`; each array has a leading dimension of size n. It can be
      differentiated in reverse mode with respect to `y0`, `t`, `args` and the values that `func` closes over.

    Raises:
      ArgumentTypeError: the times are not floating-point numbers, or an argument is no array.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.experimental.ode import odeint
      >>> decay = lambda y, t, rate: -rate * y
      >>> [round(float(y), 4) for y in odeint(decay, 1.0, jnp.array([0.0, 1.0, 2.0]), 0.5)]
      [1.0, 0.6065, 0.3679]
      >>> round(float(phalanx.grad(lambda rate: odeint(decay, 1.0, jnp.array([0.0, 1.0]), rate)[1])(0.5)), 4)
      -0.6065

    Source: Dormand & Prince (1980), doi:10.1016/0771-050X(80)90013-3. Chen et al. (2018), arXiv:1806.07366, appendix C.
    """
    leaves, tree = tree_flatten(args)
    for i, x in enumerate(leaves):
        get_aval_of_argument(x, lambda i=i: f"odeint, leaf {i} of args")
    aval = get_aval_of_argument(t, lambda: "odeint, argument t")
    if not jnp.issubdtype(aval.dtype, jnp.floating) or aval.ndim != 1:
        raise ArgumentTypeError(
            "odeint, argument t",
            expected="a vector of floating-point numbers",
            got=aval.str_short(),
            fix="pass times such as jnp.linspace(0.0, 1.0, 11)",
        )
    t = jnp.asarray(t)
    flat, unravel = ravel_pytree(tree_map(jnp.asarray, y0))

    def raveled(y: Any, t: Any, *leaves: Any) -> Any:
        return ravel_pytree(func(unravel(y), t, *tree_unflatten(tree, leaves)))[0].astype(y.dtype)

    converted, consts = closure_convert(raveled, flat, t[0], *leaves)
    solve = jit(_solver(converted, _Options(rtol, atol, mxstep, hmax)))
    return vmap(unravel)(solve(flat, t, *leaves, *consts))


def _solver(func: Callable, options: _Options) -> Callable:
    """The solution as a function of (first state, times, *arguments), with its derivative rule."""

    @custom_vjp
    def solve(y0: Any, ts: Any, *args: Any) -> Any:
        with default_matmul_precision("highest"):
            return _integrate(lambda y, t: func(y, t, *args), y0, ts, options)

    def fwd(y0: Any, ts: Any, *args: Any) -> tuple:
        ys = solve(y0, ts, *args)
        return ys, (ys, ts, args)

    def bwd(residuals: tuple, ys_bar: Any) -> tuple:
        with default_matmul_precision("highest"):
            ys, ts, args = residuals
            return _solve_adjoint(func, options, ys, ts, args, ys_bar)

    solve.defvjp(fwd, bwd)
    return solve


def _solve_adjoint(func: Callable, options: _Options, ys: Any, ts: Any, args: tuple, ys_bar: Any) -> tuple:
    """The cotangents of the first state, of the times and of the arguments, given the cotangents of the states."""
    # Integers have no derivative; they are constants of the adjoint equation.
    is_real = [jnp.issubdtype(jnp.result_type(x), jnp.inexact) for x in args]
    parameters = [x for x, real in zip(args, is_real, strict=True) if real]

    def on_parameters(y: Any, t: Any, *values: Any) -> Any:
        rest = iter(values)
        return func(y, t, *[next(rest) if real else x for x, real in zip(args, is_real, strict=True)])

    def dynamics(state: tuple, reversed_time: Any, *values: Any) -> tuple:
        """The state and its cotangent in reversed time, and the integrals of the cotangents of time and parameters."""
        y, y_bar, _, _ = state
        y_dot, pull_back = vjp(on_parameters, y, -reversed_time, *values)
        y_bar_dot, t_bar_dot, *parameters_bar_dot = pull_back(y_bar)
        return -y_dot, y_bar_dot, t_bar_dot, parameters_bar_dot

    def interval(carry: tuple, i: Any) -> tuple:
        y_bar, t0_bar, parameters_bar = carry
        y_bar = y_bar + ys_bar[i]
        # A later time moves this state along its slope, and lengthens the interval that ends there.
        t_bar = jnp.dot(on_parameters(ys[i], ts[i], *parameters), ys_bar[i]).real.astype(ts.dtype)
        state = ys[i], y_bar, t0_bar - t_bar, parameters_bar
        times = jnp.stack([-ts[i], -ts[i - 1]])
        after = tree_map(lambda x: x[1], odeint(dynamics, state, times, *parameters, **options._asdict()))
        return after[1:], t_bar

    init = jnp.zeros_like(ys[0]), jnp.zeros((), ts.dtype), list(map(jnp.zeros_like, parameters))
    (y_bar, t0_bar, parameters_bar), ts_bar = lax.scan(interval, init, jnp.arange(len(ts) - 1, 0, -1))
    found = iter(parameters_bar)
    args_bar = [next(found) if real else None for real in is_real]
    return y_bar + ys_bar[0], jnp.concatenate([t0_bar[None], ts_bar[::-1]]), *args_bar


def _integrate(func: Callable, y0: Any, ts: Any, options: _Options) -> Any:
    """The states at the times `ts`: [len(ts), n]."""

    def advance(state: _State, target: Any) -> tuple[_State, Any]:
        is_before = lambda s: (s.t < target) & (s.steps.astype("float32") < options.mxstep) & (s.dt > 0)
        step = functools.partial(_adaptive_step, func, options)
        state = lax.while_loop(is_before, step, state._replace(steps=jnp.zeros_like(state.steps)))
        fraction = ((target - state.begin) / (state.t - state.begin)).astype(y0.dtype)
        return state, jnp.polyval(state.coefficients, fraction)

    slope = func(y0, ts[0])
    dt = jnp.clip(_first_step(func, ts[0], y0, slope, options), 0.0, options.hmax).astype(ts.dtype)
    init = _State(jnp.zeros((), "int32"), y0, slope, ts[0], dt, ts[0], jnp.stack([y0] * 5))
    _, ys = lax.scan(advance, init, ts[1:])
    return jnp.concatenate([y0[None], ys])


def _first_step(func: Callable, t0: Any, y0: Any, slope: Any, options: _Options) -> Any:
    """A size for the first step.

    Source: Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, section II.4.
    """
    scale = (options.atol + jnp.abs(y0) * options.rtol).astype(y0.dtype)
    size, speed = jnp.linalg.norm(y0 / scale), jnp.linalg.norm(slope / scale)
    trial = jnp.where((size < 1e-5) | (speed < 1e-5), 1e-6, 0.01 * size / speed)
    after = func(y0 + trial.astype(y0.dtype) * slope, t0 + trial.astype(t0.dtype))
    curvature = jnp.linalg.norm((after - slope) / scale) / trial
    is_flat = (speed <= 1e-15) & (curvature <= 1e-15)
    bound = (0.01 / jnp.maximum(speed, curvature)) ** (1 / _ORDER)
    return jnp.minimum(100 * trial, jnp.where(is_flat, jnp.maximum(1e-6, trial * 1e-3), bound))


def _adaptive_step(func: Callable, options: _Options, state: _State) -> _State:
    """One step, which is repeated with a smaller size if its estimated error is too large."""
    y, dt = state.y, state.dt.astype(state.y.dtype)
    slopes = _slopes(func, state)
    combine = lambda weights: y + dt * (weights.astype(slopes.dtype) @ slopes)
    end, middle = combine(_SOLUTION), combine(_MIDDLE)
    error = dt * ((_SOLUTION - _EMBEDDED).astype(slopes.dtype) @ slopes)
    ratio = error / (options.atol + options.rtol * jnp.maximum(jnp.abs(y), jnp.abs(end))).astype(error.dtype)
    mean_ratio = jnp.sqrt(jnp.mean(jnp.real(ratio * jnp.conj(ratio))))
    # The next step, by the error's order, without shrinking after a success and within limits.
    least = jnp.where(mean_ratio < 1, 1.0, 0.2)
    factor = jnp.clip(0.9 * mean_ratio ** (-1 / _ORDER), least, 10.0)
    factor = jnp.where(mean_ratio == 0, 10.0, factor).astype(state.dt.dtype)
    size = jnp.clip(state.dt * factor, 0.0, options.hmax).astype(state.dt.dtype)
    polynomial = _interpolate(y, middle, end, dt * slopes[0], dt * slopes[-1])
    accepted = state._replace(y=end, slope=slopes[-1], t=state.t + state.dt, begin=state.t, coefficients=polynomial)
    kept = tree_map(lambda new, old: jnp.where(mean_ratio <= 1, new, old), accepted, state)
    return kept._replace(steps=state.steps + 1, dt=size)


def _slopes(func: Callable, state: _State) -> Any:
    """The seven slopes of a step: [7, n]."""
    y, dt = state.y, state.dt.astype(state.y.dtype)

    def stage(slopes: Any, row: tuple) -> tuple:
        i, node, weights = row
        return slopes.at[i].set(func(y + dt * (weights @ slopes), state.t + state.dt * node)), None

    first = jnp.zeros((7, *y.shape), y.dtype).at[0].set(state.slope)
    rows = jnp.arange(1, 7), jnp.asarray(_NODES, state.dt.dtype), jnp.asarray(_STAGES, y.dtype)
    return lax.scan(stage, first, rows)[0]


def _interpolate(y0: Any, y_mid: Any, y1: Any, dy0: Any, dy1: Any) -> Any:
    """Coefficients of the quartic on [0, 1] with these values at 0, 1/2 and 1, and these slopes at 0 and 1."""
    return jnp.stack(
        [
            -2 * dy0 + 2 * dy1 - 8 * y0 - 8 * y1 + 16 * y_mid,
            5 * dy0 - 3 * dy1 + 18 * y0 + 14 * y1 - 32 * y_mid,
            -4 * dy0 + dy1 - 11 * y0 - 5 * y1 + 16 * y_mid,
            dy0,
            y0,
        ]
    )
