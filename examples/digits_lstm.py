"""A recurrent network that reads handwritten digits row by row, from above and from below.

    python examples/digits_lstm.py --epochs 30

Each image is a sequence of 8 rows of 8 pixels. The cells run in `lax.scan`, so that the compiled program is as small
for long sequences as for short ones; the batch is spread over all devices.
"""

from __future__ import annotations

import sys

import digits

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.sharding import NamedSharding, PartitionSpec as P


class LSTM(nnx.Module):
    """Two LSTMs over the rows, one in each direction, and a linear layer on the mean and the last of their outputs."""

    def __init__(self, rngs: nnx.Rngs):
        self.rows = nnx.Linear(8, 32, rngs=rngs)
        forward, backward = (nnx.RNN(nnx.OptimizedLSTMCell(32, 64, rngs=rngs)) for _ in range(2))
        self.lstm = nnx.Bidirectional(forward, backward)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(3 * 128, 10, rngs=rngs)

    def __call__(self, x):
        y = self.lstm(nnx.relu(self.rows(x[..., 0])))
        y = jnp.concatenate([y.mean(axis=1), y[:, 0], y[:, -1]], axis=-1)
        return self.out(self.dropout(y))


def main(argv: list[str] | None = None, data: digits.Digits | None = None) -> float:
    """Train over all devices."""
    args = digits.arguments(__doc__, argv, epochs=30, rate=5e-3)
    mesh = phalanx.make_mesh((len(phalanx.devices()),), ("data",), phalanx.sharding.AxisType.Auto)
    return digits.run("Digits LSTM", LSTM, args, sharding=NamedSharding(mesh, P("data")), data=data)


if __name__ == "__main__":
    phalanx.config.update("jax_num_cpu_devices", 8)
    main(sys.argv[1:])
