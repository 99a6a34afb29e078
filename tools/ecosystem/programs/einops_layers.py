"""Packing of ragged groups, and gradients through rearrangements."""

import einops
import jax
import jax.numpy as jnp

parts = [jnp.ones((2, 3)), jnp.zeros((2, 4, 3)), jnp.full((2, 3), 2.0)]
packed, shapes = einops.pack(parts, "b * c")
print(packed.shape, shapes)
print([part.shape for part in einops.unpack(packed, shapes, "b * c")])
gradient = jax.grad(lambda x: (einops.rearrange(x, "(a b) -> b a", a=2) * jnp.arange(6).reshape(3, 2)).sum())
print(gradient(jnp.ones(6)))
print(jax.vmap(lambda x: einops.reduce(x, "(a b) -> a", "max", b=2))(jnp.arange(8.0).reshape(2, 4)))
