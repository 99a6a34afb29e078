"""A small vision transformer that reads handwritten digits, with tensor parallelism over a mesh of 2 x 4 devices.

    python examples/digits_vit.py --epochs 40

Attention heads and hidden units are spread over the mesh axis "model", the batch over "data". The model says so where
it makes its parameters (`out_sharding`), so that each is drawn in place, and nowhere else.
"""

from __future__ import annotations

import sys

import digits

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.sharding import NamedSharding, PartitionSpec as P, set_mesh

WIDTH, HEADS, HIDDEN, LAYERS = 64, 4, 128, 3


def over(*names):
    """Metadata of a parameter: the mesh axis that each of its dimensions is spread over."""
    return {"out_sharding": names}


class Block(nnx.Module):
    """Attention, then an MLP, each on normalised features and added to the input."""

    def __init__(self, rngs: nnx.Rngs):
        self.norm1 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            HEADS, WIDTH, decode=False, kernel_metadata=over(None, "model", None), bias_metadata=over("model", None),
            out_kernel_metadata=over("model", None, None), rngs=rngs,
        )  # fmt: skip
        self.norm2 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, HIDDEN, kernel_metadata=over(None, "model"), bias_metadata=over("model"), rngs=rngs)
        self.down = nnx.Linear(HIDDEN, WIDTH, kernel_metadata=over("model", None), rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


class ViT(nnx.Module):
    """Patches of 2 by 2 pixels as tokens, blocks, and a linear layer on the mean token."""

    def __init__(self, rngs: nnx.Rngs):
        self.patches = nnx.Conv(1, WIDTH, (2, 2), strides=2, padding="VALID", rngs=rngs)
        self.positions = nnx.Param(rngs.params.normal((16, WIDTH)) * 0.5)
        self.blocks = [Block(rngs) for _ in range(LAYERS)]
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.out = nnx.Linear(WIDTH, 10, rngs=rngs)

    def __call__(self, x):
        x = self.patches(x).reshape(x.shape[0], 16, WIDTH) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.out(jnp.mean(self.norm(x), axis=1))


def main(argv: list[str] | None = None, data: digits.Digits | None = None) -> float:
    """Train over a mesh of 2 x 4 devices."""
    args = digits.arguments(__doc__, argv, epochs=40, rate=2e-3)
    mesh = phalanx.make_mesh((2, 4), ("data", "model"), phalanx.sharding.AxisType.Auto)
    with set_mesh(mesh):
        model = ViT(nnx.Rngs(0))
        for name, array in {"up": model.blocks[0].up.kernel.value, "down": model.blocks[0].down.kernel.value}.items():
            print(f"\nhow {name}, {array.dtype}{list(array.shape)}, lies on the devices:")
            phalanx.debug.visualize_array_sharding(array, plain=True)
        return digits.run("Digits ViT", ViT, args, sharding=NamedSharding(mesh, P("data")), data=data)


if __name__ == "__main__":
    phalanx.config.update("jax_num_cpu_devices", 8)
    main(sys.argv[1:])
