"""A multi-layer perceptron of named axes, trained by gradient descent."""

import jax
import jax.numpy as jnp
from penzai import pz
from penzai.models import simple_mlp

mlp = simple_mlp.MLP.from_config(
    name="mlp", init_base_rng=jax.random.key(0), feature_sizes=[2, 16, 1], activation_fn=jnp.tanh
)
frozen, variables = pz.unbind_variables(mlp, freeze=True)
x = jax.random.normal(jax.random.key(1), (32, 2))
y = jnp.sin(x[:, 0])


def loss(variables):
    inputs = pz.nx.wrap(x).tag("batch", "features")
    out = pz.bind_variables(frozen, variables)(inputs).unwrap("batch", "features")
    return jnp.mean((out[:, 0] - y) ** 2)


step = jax.jit(lambda v: jax.tree.map(lambda a, g: a - 0.1 * g, v, jax.grad(loss)(v)))
print(f"{loss(variables):.3f}")
for _ in range(50):
    variables = step(variables)
print(f"{loss(variables):.3f}")
