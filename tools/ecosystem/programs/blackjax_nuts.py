"""The No-U-Turn sampler with window adaptation."""

import blackjax
import jax
import jax.numpy as jnp


def log_density(x):
    return -0.5 * jnp.sum((x - jnp.array([1.0, -1.0])) ** 2 / jnp.array([1.0, 4.0]))


key = jax.random.key(0)
adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
(state, parameters), _ = adaptation.run(key, jnp.zeros(2), 200)
kernel = jax.jit(blackjax.nuts(log_density, **parameters).step)


def step(state, key):
    state, info = kernel(key, state)
    return state, (state.position, info.acceptance_rate)


_, (positions, rates) = jax.lax.scan(step, state, jax.random.split(jax.random.key(1), 300))
print(positions.shape, f"acceptance {rates.mean():.1f}")
print("mean within 0.5:", bool(jnp.all(jnp.abs(positions.mean(0) - jnp.array([1.0, -1.0])) < 0.5)))
