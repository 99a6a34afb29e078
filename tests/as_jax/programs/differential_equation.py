"""An ODE solver with derivatives by its parameters, and optimization of them."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.optimize import minimize


def rk4(f, y, ts, *args):
    def step(y, t):
        t0, t1 = t
        h = t1 - t0
        k1 = f(y, t0, *args)
        k2 = f(y + h * k1 / 2, t0 + h / 2, *args)
        k3 = f(y + h * k2 / 2, t0 + h / 2, *args)
        k4 = f(y + h * k3, t1, *args)
        y = y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        return y, y

    return lax.scan(step, y, (ts[:-1], ts[1:]))[1]


def pendulum(y, t, params):
    return jnp.array([y[1], -params[0] * jnp.sin(y[0]) - params[1] * y[1]])


ts = jnp.linspace(0.0, 4.0, 81)
observed = rk4(pendulum, jnp.array([1.0, 0.0]), ts, jnp.array([2.0, 0.1]))
print(observed[::20].round(3))
misfit = lambda params: jnp.mean((rk4(pendulum, jnp.array([1.0, 0.0]), ts, params) - observed) ** 2)
print(jax.jit(jax.grad(misfit))(jnp.array([1.5, 0.3])).round(3))
found = minimize(misfit, jnp.array([1.5, 0.3]), method="BFGS")
print(found.x.round(2), bool(found.fun < 1e-6))
