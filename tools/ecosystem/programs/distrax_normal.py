"""Maximum likelihood of a Gaussian mixture, and samples of a transformed distribution."""

import distrax
import jax
import jax.numpy as jnp

data = jnp.concatenate(
    [jax.random.normal(jax.random.key(0), (60,)) - 2, jax.random.normal(jax.random.key(1), (40,)) + 2]
)


def loss(params):
    mixture = distrax.MixtureSameFamily(
        distrax.Categorical(logits=params["logits"]), distrax.Normal(params["loc"], jnp.exp(params["scale"]))
    )
    return -mixture.log_prob(data).mean()


params = {"logits": jnp.zeros(2), "loc": jnp.array([-1.0, 1.0]), "scale": jnp.zeros(2)}
step = jax.jit(lambda p: jax.tree.map(lambda x, g: x - 0.2 * g, p, jax.grad(loss)(p)))
for _ in range(100):
    params = step(params)
print(f"{loss(params):.3f}", params["loc"].round(2))
squashed = distrax.Transformed(distrax.Normal(jnp.zeros(2), 1.0), distrax.Tanh())
sample, log_prob = squashed.sample_and_log_prob(seed=jax.random.key(2), sample_shape=(3,))
print(sample.round(3), log_prob.sum().round(3))
