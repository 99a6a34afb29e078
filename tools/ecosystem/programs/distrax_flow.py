"""A normalizing flow of masked coupling layers."""

import distrax
import jax
import jax.numpy as jnp


def flow(params):
    layers = []
    for i, (w, b) in enumerate(params):
        layers.append(
            distrax.MaskedCoupling(
                mask=jnp.arange(2) % 2 == i % 2,
                bijector=lambda p: distrax.ScalarAffine(shift=p[..., 0], log_scale=jnp.tanh(p[..., 1])),
                conditioner=lambda x, w=w, b=b: (x @ w + b).reshape(*x.shape, 2),
            )
        )
    base = distrax.MultivariateNormalDiag(jnp.zeros(2), jnp.ones(2))
    return distrax.Transformed(base, distrax.Chain(layers))


keys = jax.random.split(jax.random.key(0), 3)
params = [(0.1 * jax.random.normal(k, (2, 4)), jnp.zeros(4)) for k in keys]
x = jax.random.normal(jax.random.key(1), (64, 2)) * jnp.array([2.0, 0.5]) + 1
loss = jax.jit(lambda p: -flow(p).log_prob(x).mean())
print(f"{loss(params):.3f}")
for _ in range(40):
    params = jax.tree.map(lambda p, g: p - 0.05 * g, params, jax.grad(loss)(params))
print(f"{loss(params):.3f}")
