"""Patches of images, multi-head splits and einsum by expressions."""

import einops
import jax
import jax.numpy as jnp

images = jnp.arange(2 * 4 * 4 * 3.0).reshape(2, 4, 4, 3)
patches = einops.rearrange(images, "b (h p) (w q) c -> b (h w) (p q c)", p=2, q=2)
print(patches.shape, patches[0, 0, :4])
print(einops.reduce(images, "b h w c -> b c", "mean"))
print(einops.repeat(jnp.arange(2), "n -> n k", k=3).tolist())
scores = jax.jit(lambda q, k: einops.einsum(q, k, "b i d, b j d -> b i j"))(patches, patches)
print(scores.shape, float(scores[1, 0, 0]))
