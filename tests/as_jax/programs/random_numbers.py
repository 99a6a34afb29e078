"""Random numbers from keys, old and new: the same numbers for the same key."""

import jax
import jax.numpy as jnp
from jax import random

key = random.key(42)
a, b, c = random.split(key, 3)
print(random.normal(a, (3,)), random.uniform(b, (2,)), random.randint(c, (4,), 0, 100))
print(random.key_data(random.fold_in(key, 7)), random.PRNGKey(3))
print(random.permutation(a, 8), random.choice(b, jnp.arange(10), (3,), replace=False))
print(random.bernoulli(c, 0.3, (6,)), random.categorical(a, jnp.log(jnp.array([0.1, 0.2, 0.7])), shape=(5,)))
print(random.exponential(a, (2,)), random.truncated_normal(b, -1.0, 1.0, (2,)), random.laplace(c, (2,)))
print(random.multivariate_normal(a, jnp.zeros(2), jnp.array([[2.0, 0.5], [0.5, 1.0]])))
print(jax.vmap(lambda k: random.normal(k))(random.split(key, 4)))
print(random.bits(a, (2,)), random.rademacher(b, (5,)), random.gumbel(c, (2,)))
print(random.orthogonal(a, 2), random.ball(b, 3))
