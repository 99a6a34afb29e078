"""A multi-layer perceptron, trained with filtered transformations."""

import equinox as eqx
import jax
import jax.numpy as jnp

model = eqx.nn.MLP(2, "scalar", 16, 2, activation=jnp.tanh, key=jax.random.key(1))
x = jax.random.normal(jax.random.key(2), (64, 2))
y = jnp.sin(x[:, 0]) * x[:, 1]


@eqx.filter_jit
@eqx.filter_value_and_grad
def loss(model):
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


for i in range(101):
    value, grads = loss(model)
    model = eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, grads))
    if i % 50 == 0:
        print(i, f"{value:.4f}")
