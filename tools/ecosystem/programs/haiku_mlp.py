"""A network written as functions, transformed to pure ones, with dropout."""

import haiku as hk
import jax
import jax.numpy as jnp


def forward(x, is_training):
    x = hk.nets.MLP([16, 16], activation=jnp.tanh, activate_final=True)(x)
    x = hk.dropout(hk.next_rng_key(), 0.1, x) if is_training else x
    return hk.Linear(1)(x)[:, 0]


net = hk.transform(forward)
x = jax.random.normal(jax.random.PRNGKey(0), (64, 2))
y = x[:, 0] * x[:, 1]
params = net.init(jax.random.PRNGKey(1), x, True)
loss = lambda params, rng: jnp.mean((net.apply(params, rng, x, True) - y) ** 2)
step = jax.jit(lambda p, rng: jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(loss)(p, rng)))
for i in range(100):
    params = step(params, jax.random.PRNGKey(i))
print(f"{jnp.mean((net.apply(params, None, x, False) - y) ** 2):.3f}")
print(sorted(params)[:2], hk.data_structures.tree_size(params))
