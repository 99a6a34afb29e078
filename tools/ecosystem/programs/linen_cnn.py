"""A convolutional network of Flax Linen with batch normalization, trained with optax."""

import flax.linen as nn
import jax
import optax


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.avg_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        return nn.Dense(2)(nn.Dropout(0.1, deterministic=not train)(x))


net = Net()
images = jax.random.normal(jax.random.key(0), (16, 6, 6, 1))
labels = (images.mean((1, 2, 3)) > 0).astype(int)
variables = net.init(jax.random.key(1), images, False)
optimizer = optax.sgd(0.1, momentum=0.9)
params, stats, state = variables["params"], variables["batch_stats"], optimizer.init(variables["params"])


@jax.jit
def step(params, stats, state, key):
    def loss(params):
        logits, updated = net.apply(
            {"params": params, "batch_stats": stats}, images, True, mutable=["batch_stats"], rngs={"dropout": key}
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), updated["batch_stats"]

    (value, stats_), grads = jax.value_and_grad(loss, has_aux=True)(params)
    updates, state_ = optimizer.update(grads, state)
    return optax.apply_updates(params, updates), stats_, state_, value


for i in range(20):
    params, stats, state, value = step(params, stats, state, jax.random.key(i))
print(f"{value:.3f}")
