"""Random-walk Metropolis and stochastic gradient Langevin dynamics."""

import blackjax
import jax
import jax.numpy as jnp

log_density = lambda x: -0.5 * jnp.sum(x**2)
walk = blackjax.additive_step_random_walk(log_density, blackjax.mcmc.random_walk.normal(jnp.full(3, 0.5)))
state = walk.init(jnp.ones(3))
step = jax.jit(walk.step)
for i in range(50):
    state, info = step(jax.random.key(i), state)
print(state.position.round(3), bool(info.is_accepted))
langevin = blackjax.sgld(jax.grad(lambda x, batch: -0.5 * jnp.sum((x - batch.mean(0)) ** 2)))
position = langevin.init(jnp.zeros(2))
batch = jnp.ones((4, 2))
for i in range(50):
    position = jax.jit(langevin.step)(jax.random.key(i), position, batch, 0.05)
print(position.round(3))
