"""Targets of reinforcement learning over a batch of trajectories."""

import jax
import jax.numpy as jnp
import rlax

rewards = jax.random.normal(jax.random.key(0), (2, 5))
values = jax.random.normal(jax.random.key(1), (2, 6))
discounts = jnp.full((2, 5), 0.9)
returns = jax.vmap(rlax.lambda_returns, in_axes=(0, 0, 0, None))(rewards, discounts, values[:, 1:], 0.8)
print(returns.round(3))
advantages = jax.vmap(rlax.truncated_generalized_advantage_estimation, in_axes=(0, 0, None, 0))(
    rewards, discounts, 0.8, values
)
print(advantages.round(3))
trace = jax.vmap(rlax.vtrace_td_error_and_advantage)(
    values[:, :-1], values[:, 1:], rewards, discounts, jnp.full((2, 5), 1.2)
)
print(trace.pg_advantage.round(3))
