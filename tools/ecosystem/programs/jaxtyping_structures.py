"""Dtype classes, variadic dimensions, and trees of arrays in a dataclass."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Float32, Key, Scalar, Shaped

print(isinstance(jnp.ones((2, 3, 4)), Float32[Array, "... 4"]), isinstance(jnp.ones(3), Float32[Array, "2"]))
print(isinstance(jnp.ones(3, jnp.bfloat16), Float[Array, "3"]), isinstance(True, Bool[ArrayLike, ""]))
print(isinstance(jax.random.key(0), Key[Array, ""]), isinstance(jnp.array(1), Scalar))


@dataclasses.dataclass
class Batch:
    images: Float[Array, "b h w"]
    labels: Shaped[Array, "b"]


batch = Batch(jnp.ones((2, 3, 3)), jnp.arange(2))
print({f.name: f.type.dim_str for f in dataclasses.fields(Batch)}, batch.labels.tolist())
