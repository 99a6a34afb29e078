"""A convolutional network that reads handwritten digits, data parallel over 8 devices.

    python examples/digits_cnn.py --epochs 30

Each device holds all parameters and an eighth of each batch; the gradients' sum over devices is put in by the compiler.
"""

from __future__ import annotations

import sys

import digits

import phalanx
from phalanx import nnx
from phalanx.sharding import NamedSharding, PartitionSpec as P


class CNN(nnx.Module):
    """Two convolutions with normalisation and pooling, then two linear layers."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(1, 32, (3, 3), rngs=rngs)
        self.norm1 = nnx.BatchNorm(32, momentum=0.9, rngs=rngs)
        self.conv2 = nnx.Conv(32, 64, (3, 3), rngs=rngs)
        self.norm2 = nnx.BatchNorm(64, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)
        self.hidden = nnx.Linear(64 * 4, 128, rngs=rngs)
        self.out = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.norm1(self.conv1(x))), (2, 2), strides=(2, 2))
        x = nnx.max_pool(nnx.relu(self.norm2(self.conv2(x))), (2, 2), strides=(2, 2))
        x = self.dropout(x.reshape(x.shape[0], -1))
        return self.out(nnx.relu(self.hidden(x)))


def main(argv: list[str] | None = None, data: digits.Digits | None = None) -> float:
    """Train over all devices: 8 virtual ones where there is one CPU."""
    args = digits.arguments(__doc__, argv, epochs=30, rate=3e-3)
    mesh = phalanx.make_mesh((len(phalanx.devices()),), ("data",), phalanx.sharding.AxisType.Auto)
    print(f"{len(phalanx.devices())} devices, each with 1/{len(phalanx.devices())} of a batch")
    return digits.run("Digits CNN", CNN, args, sharding=NamedSharding(mesh, P("data")), data=data)


if __name__ == "__main__":
    phalanx.config.update("jax_num_cpu_devices", 8)
    main(sys.argv[1:])
