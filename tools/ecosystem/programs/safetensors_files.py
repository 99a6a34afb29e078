"""Arrays of a model written to a file and read back."""

import os
import tempfile

import jax
import jax.numpy as jnp
from safetensors.flax import load_file, save_file

tensors = {
    "w": jax.random.normal(jax.random.key(0), (3, 2)),
    "b": jnp.arange(4, dtype=jnp.bfloat16),
    "n": jnp.array([1, -2], jnp.int8),
}
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "model.safetensors")
    save_file(tensors, file, metadata={"step": "3"})
    found = load_file(file)
print({name: (x.dtype.name, x.shape) for name, x in sorted(found.items())})
print(all(bool((found[name] == x).all()) for name, x in tensors.items()), isinstance(found["w"], jax.Array))
