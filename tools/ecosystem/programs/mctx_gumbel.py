"""The Gumbel variant of the search, with invalid actions."""

import jax
import jax.numpy as jnp
import mctx

gains = jax.random.normal(jax.random.key(1), (4, 4))


def recurrent(params, rng, action, state):
    output = mctx.RecurrentFnOutput(
        reward=gains[state, action],
        discount=jnp.full(state.shape, 0.8),
        prior_logits=gains[action],
        value=gains[action, 0],
    )
    return output, action


root = mctx.RootFnOutput(prior_logits=gains[:2], value=jnp.zeros(2), embedding=jnp.array([0, 1]))
invalid = jnp.array([[0, 0, 0, 1], [1, 0, 0, 0]])
output = mctx.gumbel_muzero_policy((), jax.random.key(0), root, recurrent, 24, invalid_actions=invalid)
print(output.action, output.action_weights.round(3))
print(output.search_tree.summary().visit_counts)
