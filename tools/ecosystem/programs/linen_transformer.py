"""A scanned stack of attention blocks of Flax Linen, with rematerialization."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x))
        return x + nn.Dense(8)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(x)))), None


class Stack(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 8)(tokens)
        scanned = nn.scan(nn.remat(Block), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = scanned()(x, None)
        return nn.Dense(11)(x)


tokens = jnp.arange(12).reshape(2, 6) % 11
net = Stack()
params = net.init(jax.random.key(0), tokens)
print({name: layer for name, layer in sorted(jax.tree.map(jnp.shape, params)["params"].items()) if "Block" not in name})
loss = jax.jit(lambda p: -jax.nn.log_softmax(net.apply(p, tokens))[..., 0].mean())
for _ in range(5):
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))
print(f"{loss(params):.4f}")
