"""A MuZero search over a small known game."""

import jax
import jax.numpy as jnp
import mctx


def recurrent(params, rng, action, state):
    state = state + action
    output = mctx.RecurrentFnOutput(
        reward=(state == 3).astype(jnp.float32),
        discount=jnp.full(state.shape, 0.9),
        prior_logits=jnp.zeros((*state.shape, 3)),
        value=jnp.zeros(state.shape),
    )
    return output, state


root = mctx.RootFnOutput(prior_logits=jnp.zeros((2, 3)), value=jnp.zeros(2), embedding=jnp.array([0, 1]))
search = jax.jit(lambda key: mctx.muzero_policy((), key, root, recurrent, num_simulations=32, max_depth=4))
output = search(jax.random.key(0))
print(output.action, output.action_weights.round(3))
