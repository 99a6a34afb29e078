"""A convolutional network with batch normalization and dropout, serialized and read back."""

import io

import equinox as eqx
import jax
import jax.numpy as jnp


class Net(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    head: eqx.nn.Linear

    def __init__(self, key):
        k1, k2 = jax.random.split(key)
        self.conv = eqx.nn.Conv2d(1, 4, 3, key=k1)
        self.norm = eqx.nn.BatchNorm(4, axis_name="batch", mode="ema")
        self.dropout = eqx.nn.Dropout(0.2)
        self.head = eqx.nn.Linear(4, 2, key=k2)

    def __call__(self, x, state, key):
        x, state = self.norm(jax.nn.relu(self.conv(x)), state)
        return self.head(self.dropout(x.mean((1, 2)), key=key)), state


net, state = eqx.nn.make_with_state(Net)(jax.random.key(0))
images = jax.random.normal(jax.random.key(1), (8, 1, 6, 6))


@eqx.filter_jit
def run(net, state, keys):
    return jax.vmap(net, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))(images, state, keys)


for step in range(3):
    out, state = run(net, state, jax.random.split(jax.random.key(step), 8))
print(out[0].round(3), f"{jnp.abs(out).sum():.3f}")
file = io.BytesIO()
eqx.tree_serialise_leaves(file, net)
file.seek(0)
again = eqx.tree_deserialise_leaves(file, net)
print(eqx.tree_equal(net, again), len(jax.tree.leaves(eqx.filter(again, eqx.is_array))))
