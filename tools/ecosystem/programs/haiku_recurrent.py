"""A recurrent core unrolled over time, with batch normalization as state."""

import haiku as hk
import jax
import jax.numpy as jnp


def forward(sequence, is_training):
    core = hk.LSTM(8)
    outputs, _ = hk.dynamic_unroll(core, sequence, core.initial_state(sequence.shape[1]))
    normalized = hk.BatchNorm(True, True, 0.9)(outputs[-1], is_training)
    return hk.Linear(1)(normalized)


net = hk.transform_with_state(forward)
sequence = jax.random.normal(jax.random.PRNGKey(0), (5, 4, 3))
params, state = net.init(jax.random.PRNGKey(1), sequence, True)
out, state = jax.jit(net.apply, static_argnums=4)(params, state, None, sequence, True)
print(out[:, 0].round(3))
print(jax.tree.map(lambda x: x.shape, state)["batch_norm/~/mean_ema"])
grads = jax.grad(lambda p: net.apply(p, state, None, sequence, True)[0].sum())(params)
print(f"{sum(jnp.abs(g).sum() for g in jax.tree.leaves(grads)):.2f}")
