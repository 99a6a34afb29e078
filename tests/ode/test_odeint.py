"""`odeint` solves known equations, and its derivatives are those of the exact solutions."""

import numpy as np
import pytest
from phalanx.experimental.ode import odeint

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentTypeError

TIMES = jnp.linspace(0.0, 2.0, 5)


def pendulum(y, t, friction, gravity):
    angle, speed = y
    return speed, -friction * speed - gravity * jnp.sin(angle)


def test_exact_solutions():
    states = odeint(
        lambda y, t: {"a": -y["a"], "b": jnp.stack([y["b"][1], -y["b"][0]])},
        {"a": 1.0, "b": jnp.array([0.0, 1.0])},
        TIMES,
    )
    np.testing.assert_allclose(states["a"], np.exp(-TIMES), rtol=1e-5)
    np.testing.assert_allclose(states["b"], np.stack([np.sin(TIMES), np.cos(TIMES)], 1), atol=1e-5)
    rotation = odeint(lambda y, t: 1j * y, jnp.array(1.0 + 0j), TIMES)
    np.testing.assert_allclose(rotation, np.exp(1j * np.asarray(TIMES)), atol=1e-5)


def test_it_agrees_with_the_peer():
    ode = pytest.importorskip("jax.experimental.ode")
    import jax
    import jax.numpy

    def dynamics(xp):
        return lambda y, t, a: [y[1] * -t + a, -y[1] - 9.8 * xp.sin(y[0])]

    ours = odeint(dynamics(jnp), [3.0, 0.0], TIMES, 0.1)
    theirs = ode.odeint(dynamics(jax.numpy), [3.0, 0.0], jax.numpy.asarray(TIMES), 0.1)
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


def test_derivatives_with_respect_to_everything():
    times = jnp.array([0.0, 0.5, 1.0])
    solve = lambda y0, times, friction, gravity: odeint(pendulum, y0, times, friction, gravity)
    total = lambda *args: sum(map(jnp.sum, solve(*args)))
    args = ((3.0, 0.0), times, 0.25, 9.8)
    slopes = phalanx.grad(total, argnums=(0, 1, 2, 3))(*args)
    with phalanx.enable_x64(True):  # differences need more digits
        leaves, tree = phalanx.tree.flatten(args)
        directions = [np.random.default_rng(i).normal(size=np.shape(x)) for i, x in enumerate(leaves)]
        moved = [tree.unflatten([np.float64(x) + s * 1e-6 * d for x, d in zip(leaves, directions)]) for s in (1, -1)]
        difference = (total(*moved[0]) - total(*moved[1])) / 2e-6
    along = sum(np.vdot(g, d) for g, d in zip(phalanx.tree.leaves(slopes), directions))
    np.testing.assert_allclose(along, difference, rtol=1e-3)
    decay = lambda rate, y0, time: odeint(lambda y, t: -rate * y, y0, jnp.stack([jnp.float32(0.0), time]))[1]
    slopes = phalanx.jit(phalanx.grad(decay, argnums=(0, 1, 2)))(0.5, 2.0, 1.5)
    exact = np.exp(-0.75)
    np.testing.assert_allclose(slopes, [-1.5 * 2 * exact, exact, -0.5 * 2 * exact], rtol=1e-4)
    second = phalanx.grad(phalanx.grad(decay))(0.5, 2.0, 1.5)
    np.testing.assert_allclose(second, 1.5**2 * 2 * exact, rtol=1e-3)
    # An integer argument has no derivative.
    power = lambda y0, n: odeint(lambda y, t, n: -y / n, y0, times, n)[-1]
    np.testing.assert_allclose(phalanx.grad(power)(1.0, 2), np.exp(-0.5), rtol=1e-4)


def test_batches_of_problems():
    solve = lambda y0, rate: odeint(lambda y, t, r: -r * y, y0, TIMES, rate)
    rates = jnp.array([0.5, 1.0, 2.0])
    states = phalanx.vmap(solve, (None, 0))(1.0, rates)
    np.testing.assert_allclose(states, np.exp(-np.outer(rates, TIMES)), rtol=1e-4)
    slopes = phalanx.vmap(phalanx.grad(lambda y0, rate: solve(y0, rate)[-1]), (None, 0))(1.0, rates)
    np.testing.assert_allclose(slopes, np.exp(-2 * rates), rtol=1e-3)


def test_limits_and_errors():
    few = odeint(lambda y, t: -y, 1.0, jnp.array([0.0, 50.0]), mxstep=2)
    assert abs(float(few[1]) - np.exp(-50)) > 1e-3 or not np.isfinite(few[1])
    with pytest.raises(ArgumentTypeError) as e:
        odeint(lambda y, t: -y, 1.0, jnp.arange(3))
    assert str(e.value) == (
        "odeint, argument t: expected a vector of floating-point numbers, got i32[3].\n"
        "  Fix: pass times such as jnp.linspace(0.0, 1.0, 11)."
    )
    with pytest.raises(TypeError, match="odeint, leaf 0 of args"):
        odeint(lambda y, t, s: -y, 1.0, TIMES, "text")


def test_it_solves_and_differentiates_under_strict_promotion():
    decay = lambda y, t, rate: -rate * y
    end = lambda rate: odeint(decay, jnp.ones(()), TIMES, rate)[-1]
    with phalanx.numpy_dtype_promotion("strict"), phalanx.numpy_rank_promotion("raise"):
        value, slope = phalanx.value_and_grad(end)(0.5)
    np.testing.assert_allclose([value, slope], [np.exp(-1), -2 * np.exp(-1)], rtol=1e-5)
