"""Q-learning on a chain of states with an epsilon-greedy policy."""

import jax
import jax.numpy as jnp
import rlax

states, key = 6, jax.random.key(0)
q = jnp.zeros((states, 2))


@jax.jit
def step(q, state, key):
    action = rlax.epsilon_greedy(0.3).sample(key, q[state])
    following = jnp.clip(state + 2 * action - 1, 0, states - 1)
    reward = (following == states - 1).astype(jnp.float32)
    error = rlax.q_learning(q[state], action, reward, 0.9 * (1 - reward), q[following])
    return q.at[state, action].add(0.5 * error), jnp.where(reward > 0, 0, following)


state = jnp.array(0)
for i in range(300):
    q, state = step(q, state, jax.random.fold_in(key, i))
print(q.round(2))
print(rlax.categorical_l2_project(jnp.arange(3.0), jnp.array([0.2, 0.5, 0.3]), jnp.arange(0.5, 3)).round(2))
