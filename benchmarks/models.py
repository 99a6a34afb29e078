"""The programs that the training and start workloads trace, lower, compile and run, written as a user would.

Every function takes its module from `xp`, so one text serves both systems. Parameters are NumPy arrays: nothing of
either system runs before the clock starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

WIDTH, HEADS, HIDDEN, VOCABULARY, LENGTH, BATCH = 64, 4, 256, 256, 64, 8


@dataclass(frozen=True)
class Model:
    """A loss of parameters and a batch, with example values of both, and a whole training step."""

    loss: Callable[[Any, Any], Any]
    params: Any
    step: Callable[[Any, Any], Any]

    def state(self, xp):
        """Parameters and the two moments of Adam."""
        mean, square = (xp.tree.map(np.zeros_like, self.params) for _ in range(2))
        return {"params": self.params, "mean": mean, "square": square}

    def batch(self):
        """Random windows of tokens."""
        return np.random.default_rng(0).integers(VOCABULARY, size=(BATCH, LENGTH + 1)).astype(np.int32)


def adam_step(xp, loss):
    """A training step with Adam around a loss: `(state, batch) -> (state, loss)`."""
    jnp = xp.numpy

    def step(state, batch):
        value, grads = xp.value_and_grad(loss)(state["params"], batch)
        mean = xp.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], grads)
        square = xp.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["square"], grads)
        params = xp.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), state["params"], mean, square)
        return {"params": params, "mean": mean, "square": square}, value

    return step


def _layer_params(rng) -> dict[str, np.ndarray]:
    """The parameters of one transformer layer."""
    shapes = {
        "norm1": (WIDTH,),
        "qkv": (WIDTH, 3, HEADS, WIDTH // HEADS),
        "out": (HEADS, WIDTH // HEADS, WIDTH),
        "norm2": (WIDTH,),
        "up": (WIDTH, HIDDEN),
        "up_bias": (HIDDEN,),
        "down": (HIDDEN, WIDTH),
        "down_bias": (WIDTH,),
    }
    return {name: rng.normal(0.0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}


def transformer(xp, *, layers: int, scan: bool) -> Model:
    """A decoder-only transformer, its layers in a `scan` or one after the other."""
    jnp, lax, nn = xp.numpy, xp.lax, xp.nn
    rng = np.random.default_rng(0)

    def norm(x, scale):
        return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * (1.0 + scale)

    def layer(x, p):
        q, k, v = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", norm(x, p["norm1"]), p["qkv"]), 2, 0)
        scores = jnp.einsum("bqhk,bthk->bhqt", q, k) / np.sqrt(WIDTH // HEADS)
        scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), dtype=bool)), scores, -1e9)
        x = x + jnp.einsum("bhqt,bthk,hkd->bqd", nn.softmax(scores, axis=-1), v, p["out"])
        hidden = nn.gelu(norm(x, p["norm2"]) @ p["up"] + p["up_bias"])
        return x + hidden @ p["down"] + p["down_bias"]

    def loss(params, tokens):
        x = params["embed"][tokens[:, :-1]] + params["positions"]
        if scan:
            x, _ = lax.scan(lambda x, p: (layer(x, p), None), x, params["layers"])
        else:
            for p in params["layers"]:
                x = layer(x, p)
        logits = norm(x, params["norm"]) @ params["embed"].T
        picked = jnp.take_along_axis(nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
        return -jnp.mean(picked)

    every = [_layer_params(rng) for _ in range(layers)]
    params = {
        "embed": rng.normal(0.0, 0.05, (VOCABULARY, WIDTH)).astype(np.float32),
        "positions": rng.normal(0.0, 0.05, (LENGTH, WIDTH)).astype(np.float32),
        "layers": {name: np.stack([p[name] for p in every]) for name in every[0]} if scan else every,
        "norm": np.zeros(WIDTH, np.float32),
    }
    return Model(loss, params, adam_step(xp, loss))


def mlp(xp, *, layers: int) -> Model:
    """A deep multi-layer perceptron on the first bytes of each window, its layers one after the other."""
    jnp = xp.numpy
    rng = np.random.default_rng(0)

    def loss(params, tokens):
        x = tokens[:, :WIDTH].astype(jnp.float32) / VOCABULARY
        for weights, bias in params:
            x = x + jnp.tanh(x @ weights + bias)
        return jnp.mean((x - 1.0) ** 2)

    shapes = ((WIDTH, WIDTH), (WIDTH,))
    params = [tuple(rng.normal(0.0, 0.05, shape).astype(np.float32) for shape in shapes) for _ in range(layers)]
    return Model(loss, params, adam_step(xp, loss))
