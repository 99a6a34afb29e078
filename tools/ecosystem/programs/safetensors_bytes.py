"""A state of a training run as bytes, restored into a tree, and training resumed."""

import jax
import jax.numpy as jnp
from safetensors.flax import load, save

params = {"layer": {"w": jnp.ones((2, 2)), "b": jnp.zeros(2)}}
flat, tree = jax.tree_util.tree_flatten_with_path(params)
data = save({jax.tree_util.keystr(path): leaf for path, leaf in flat})
found = load(data)
restored = jax.tree.unflatten(tree, [found[jax.tree_util.keystr(path)] for path, _ in flat])
loss = lambda p: jnp.sum((jnp.array([1.0, 2.0]) @ p["layer"]["w"] + p["layer"]["b"]) ** 2)
print(len(data), jax.grad(loss)(restored)["layer"]["w"].tolist())
