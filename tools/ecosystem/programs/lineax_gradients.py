"""Least squares with a rectangular operator given as a function, and gradients through the solve."""

import jax
import jax.numpy as jnp
import lineax as lx

x = jnp.linspace(0, 1, 8)
y = jnp.exp(x)


def fit(y):
    features = lambda w: w[0] + w[1] * x + w[2] * x**2
    operator = lx.FunctionLinearOperator(features, jax.ShapeDtypeStruct((3,), jnp.float32))
    return lx.linear_solve(operator, y, lx.QR()).value


w = fit(y)
print(w.round(3))
print(jax.jacobian(fit)(y)[0].round(3))
print(jax.vmap(fit)(jnp.stack([y, 2 * y]))[1].round(3))
