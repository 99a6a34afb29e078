"""Linear regression by Adam with a warm-up schedule and clipped gradients."""

import jax
import jax.numpy as jnp
import optax

x = jax.random.normal(jax.random.key(0), (64, 3))
y = x @ jnp.array([1.0, -2.0, 0.5]) + 0.3
params = {"w": jnp.zeros(3), "b": jnp.zeros(())}
schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 20, 200)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))


def loss(params):
    return optax.l2_loss(x @ params["w"] + params["b"], y).mean()


@jax.jit
def step(params, state):
    value, grads = jax.value_and_grad(loss)(params)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value


state = optimizer.init(params)
for _ in range(200):
    params, state, value = step(params, state)
print(f"loss {value:.4f}, w {params['w'].round(2)}, b {params['b']:.2f}")
