"""A multilayer perceptron learns a function; Adam is written out over pytrees."""

import functools

import jax
import jax.numpy as jnp
from jax import random


def init(key, sizes):
    keys = random.split(key, len(sizes) - 1)
    return [
        {"w": jax.nn.initializers.glorot_normal()(k, (m, n)), "b": jnp.zeros(n)}
        for k, m, n in zip(keys, sizes[:-1], sizes[1:])
    ]


def predict(params, x):
    for layer in params[:-1]:
        x = jax.nn.gelu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


@functools.partial(jax.jit, static_argnames="rate", donate_argnums=(0, 1))
def step(params, moments, i, x, y, *, rate=1e-2):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, moments[1], grads)
    scale = jnp.sqrt(1 - 0.99**i) / (1 - 0.9**i)
    params = jax.tree.map(lambda p, m, v: p - rate * scale * m / (jnp.sqrt(v) + 1e-8), params, m, v)
    return params, (m, v), value


key_params, key_x = random.split(random.PRNGKey(0))
params = init(key_params, [2, 32, 32, 1])
moments = (jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))
x = random.uniform(key_x, (256, 2), minval=-1, maxval=1)
y = jnp.sin(3 * x[:, :1]) * x[:, 1:]
for i in range(1, 201):
    params, moments, value = step(params, moments, i, x, y)
    if i % 50 == 0:
        print(i, f"{value:.3f}")
print(jax.tree.map(jnp.shape, params))
