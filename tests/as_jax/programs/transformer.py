"""One block of a transformer, its loss and gradient, with vmap over the batch and scan over layers."""

import jax
import jax.numpy as jnp
from jax import lax, random


def init(key, layers, dim, heads, vocabulary):
    keys = random.split(key, 4)
    scale = dim**-0.5
    return {
        "embed": random.normal(keys[0], (vocabulary, dim)) * scale,
        "blocks": {
            "qkv": random.normal(keys[1], (layers, 3, heads, dim, dim // heads)) * scale,
            "out": random.normal(keys[2], (layers, heads, dim // heads, dim)) * scale,
            "mlp": random.normal(keys[3], (layers, 2, dim, dim)) * scale,
        },
    }


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def block(x, p):
    q, k, v = jnp.einsum("td,chde->chte", norm(x), p["qkv"])
    scores = jnp.einsum("hte,hse->hts", q, k) / jnp.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[1:], bool)), scores, -1e9)
    x = x + jnp.einsum("hts,hse,hed->td", jax.nn.softmax(scores), v, p["out"])
    return x + jax.nn.gelu(norm(x) @ p["mlp"][0]) @ p["mlp"][1], None


def loss(params, tokens):
    def one(tokens):
        x, _ = lax.scan(jax.checkpoint(block), params["embed"][tokens[:-1]], params["blocks"])
        log_probabilities = jax.nn.log_softmax(norm(x) @ params["embed"].T)
        return -jnp.take_along_axis(log_probabilities, tokens[1:, None], axis=1).mean()

    return jax.vmap(one)(tokens).mean()


params = init(random.PRNGKey(0), 2, 16, 4, 20)
tokens = random.randint(random.PRNGKey(1), (4, 9), 0, 20)
step = jax.jit(jax.value_and_grad(loss))
value, grads = step(params, tokens)
print(f"{value:.4f}", jax.tree.map(lambda g: f"{jnp.linalg.norm(g):.3f}", grads))
for _ in range(20):
    value, grads = step(params, tokens)
    params = jax.tree.map(lambda p, g: p - 0.5 * g, params, grads)
print(f"{value:.3f}")
