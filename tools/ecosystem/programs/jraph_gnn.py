"""Message passing over a batch of graphs, with padding, and gradients through it."""

import jax
import jax.numpy as jnp
import jraph

graph = jraph.GraphsTuple(
    nodes=jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    edges=jnp.array([[0.5], [1.0], [-1.0]]),
    senders=jnp.array([0, 1, 2]),
    receivers=jnp.array([1, 2, 0]),
    n_node=jnp.array([3]),
    n_edge=jnp.array([3]),
    globals=jnp.zeros((1, 1)),
)
batch = jraph.pad_with_graphs(jraph.batch([graph, graph]), n_node=8, n_edge=8, n_graph=3)


def run(w):
    net = jraph.GraphNetwork(
        update_edge_fn=lambda e, s, r, g: jnp.tanh(e + (s - r) @ w),
        update_node_fn=lambda n, s, r, g: n + r,
        update_global_fn=lambda n, e, g: g + n.sum(-1, keepdims=True),
    )
    return net(batch)


w = jnp.array([[0.3], [-0.2]])
out = jax.jit(run)(w)
print(out.globals[:, 0].round(3), out.edges[:3, 0].round(3))
print(jax.grad(lambda w: run(w).globals.sum())(w).round(3))
