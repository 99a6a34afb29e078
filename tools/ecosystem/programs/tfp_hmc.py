"""Hamiltonian Monte Carlo of TensorFlow Probability on JAX."""

import jax
import jax.numpy as jnp
import tensorflow_probability.substrates.jax as tfp

kernel = tfp.mcmc.HamiltonianMonteCarlo(
    lambda x: -0.5 * jnp.sum((x - jnp.array([1.0, -1.0])) ** 2), step_size=0.4, num_leapfrog_steps=4
)
samples, accepted = jax.jit(
    lambda key: tfp.mcmc.sample_chain(
        200, jnp.zeros(2), kernel=kernel, num_burnin_steps=50, trace_fn=lambda _, r: r.is_accepted, seed=key
    )
)(jax.random.PRNGKey(0))
print(samples.shape, f"accepted {accepted.mean():.2f}")
print("mean within 0.5:", bool(jnp.all(jnp.abs(samples.mean(0) - jnp.array([1.0, -1.0])) < 0.5)))
