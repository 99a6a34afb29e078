"""Attention over the edges of a graph by segment operations, and the gradient through it."""

import jax
import jax.numpy as jnp
import jraph

senders, receivers = jnp.array([0, 1, 2, 2]), jnp.array([1, 2, 0, 1])
scores = jnp.array([0.1, 0.5, -0.3, 0.9])
nodes = jnp.arange(6.0).reshape(3, 2)
print(jraph.segment_mean(scores, receivers, 3).round(3))
print(jraph.segment_max_or_constant(scores, receivers, 4, constant=-1.0).round(3))


@jax.jit
def attend(scores):
    weights = jraph.segment_softmax(scores, receivers, 3)
    return jraph.segment_sum(weights[:, None] * nodes[senders], receivers, 3)


print(attend(scores).round(3))
print(jax.grad(lambda s: (attend(s) ** 2).sum())(scores).round(3))
