"""Rematerialization: checkpoint with policies, and what is computed twice."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name


def block(w, x):
    h = checkpoint_name(jnp.tanh(x @ w), "hidden")
    return jnp.sin(h) + x


def loss(f, w, x):
    for _ in range(3):
        x = f(w, x)
    return jnp.sum(x**2)


w, x = 0.1 * jnp.arange(9.0).reshape(3, 3), jnp.linspace(-1, 1, 6).reshape(2, 3)
plain = jax.grad(lambda w: loss(block, w, x))(w)
for policy in (
    None,
    jax.checkpoint_policies.everything_saveable,
    jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    jax.checkpoint_policies.save_only_these_names("hidden"),
):
    other = jax.jit(jax.grad(loss, argnums=1), static_argnums=0)(jax.checkpoint(block, policy=policy), w, x)
    print(bool(jnp.allclose(plain, other, rtol=1e-5)))


calls = []
f = jax.checkpoint(lambda x: (calls.append(None), jnp.sin(jnp.sin(x)))[1])
print(jax.grad(f)(1.0), len(calls))
print(jax.jit(jax.grad(jax.remat(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=5)[0])))(1.0))
