"""Curve fitting by Levenberg-Marquardt."""

import jax
import jax.numpy as jnp
import optimistix as optx

t = jnp.linspace(0, 4, 40)
data = 2.5 * jnp.exp(-0.7 * t) + 0.3 + 0.01 * jax.random.normal(jax.random.key(0), t.shape)


def residuals(params, _):
    return params["scale"] * jnp.exp(-params["rate"] * t) + params["offset"] - data


start = {"scale": 1.0, "rate": 1.0, "offset": 0.0}
start = jax.tree.map(jnp.asarray, start)
found = optx.least_squares(residuals, optx.LevenbergMarquardt(1e-6, 1e-6), start)
print({name: f"{value:.3f}" for name, value in found.value.items()})
print(found.result == optx.RESULTS.successful)
