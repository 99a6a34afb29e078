"""Distributions and bijectors of TensorFlow Probability on JAX, fitted by gradients."""

import jax
import jax.numpy as jnp
import tensorflow_probability.substrates.jax as tfp

tfd, tfb = tfp.distributions, tfp.bijectors
x = jnp.linspace(0.1, 0.9, 5)
print(tfd.Beta(2.0, 3.0).log_prob(x).round(3))
print(tfd.MultivariateNormalTriL(jnp.zeros(2), jnp.array([[1.0, 0], [0.5, 2]])).log_prob(jnp.ones((3, 2))).round(3))
joint = tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), tfb.Chain([tfb.Exp(), tfb.Scale(0.5)]))
print(joint.log_prob(x).round(3), joint.sample(2, seed=jax.random.PRNGKey(0)).round(3))
loss = lambda p: -tfd.Gamma(jnp.exp(p[0]), jnp.exp(p[1])).log_prob(x).mean()
p = jnp.zeros(2)
for _ in range(100):
    p = p - 0.2 * jax.jit(jax.grad(loss))(p)
print(jnp.exp(p).round(2))
print(tfd.kl_divergence(tfd.Normal(0.0, 1.0), tfd.Normal(1.0, 2.0)).round(4))
