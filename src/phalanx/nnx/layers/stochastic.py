"""Dropout. Builds on `rngs`; attention and models call it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx import numpy as jnp
from phalanx import random
from phalanx.core.errors import ArgumentError, ArgumentTypeError
from phalanx.nnx.levels import described
from phalanx.nnx.module import Module
from phalanx.nnx.rngs import Rngs, RngStream
from phalanx.runtime.dispatch import eager_program


@eager_program(static_argnames=("rate", "broadcast_dims"))
def dropped(key: Any, x: Any, rate: float, broadcast_dims: tuple) -> Any:
    """`x` with a part of its elements set to 0 and the others scaled up.

    Args:
      key: the random key.
      x: the array.
      rate: the part that goes.
      broadcast_dims: dimensions along which all goes or stays.

    Returns:
      The array.
    """
    shape = tuple(1 if d in broadcast_dims else n for d, n in enumerate(x.shape))
    stays = random.bernoulli(key, 1.0 - rate, shape)
    return jnp.where(stays, x / (1.0 - rate), jnp.zeros_like(x))


def stream_of(where: str, rngs: Any, name: str) -> RngStream | None:
    """A stream of its own for a layer that was given random streams.

    Raises:
      ArgumentTypeError: `rngs` is none.
    """
    if isinstance(rngs, Rngs):
        return rngs[name].fork()
    if isinstance(rngs, RngStream):
        return rngs.fork()
    if rngs is None:
        return None
    raise ArgumentTypeError(f"{where}, argument rngs", expected="nnx.Rngs, a stream, or None",
                            got=f"{rngs!r} of type {type(rngs).__name__}", mend="pass nnx.Rngs(0)")  # fmt: skip


def key_from(layer: Any, rngs: Any, name: str) -> Any:
    """The next key of random streams, of a stream, or a key as it is; for a layer, or a function by name.

    Raises:
      ArgumentError: there is none.
    """
    if rngs is None:
        where = layer if isinstance(layer, str) else described(layer)
        raise ArgumentError(
            f"nnx.{where}, argument rngs", expected=f"random streams with {name!r}, since deterministic is False",
            got=None, mend="pass rngs to the layer or to the call, or call model.eval()",
        )  # fmt: skip
    if isinstance(rngs, Rngs):
        return rngs[name]()
    return rngs() if isinstance(rngs, RngStream) else rngs


class Dropout(Module):
    """Set a random part of the elements to 0, and scale the others up so that sums stay.

    Args:
      rate: the part that goes.
      broadcast_dims: dimensions along which all goes or stays.
      deterministic: do nothing, as at evaluation.
      rng_collection: the name of the stream that keys come from.
      rngs: random streams; without, each call gives them.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
      >>> sorted(set(layer(jnp.ones(100)).tolist())), layer(jnp.ones(2), deterministic=True).tolist()
      ([0.0, 2.0], [1.0, 1.0])

    Source: N. Srivastava et al., Journal of Machine Learning Research 15 (2014).
    """

    def __init__(
        self,
        rate: float,
        *,
        broadcast_dims: Sequence[int] = (),
        deterministic: bool = False,
        rng_collection: str = "dropout",
        rngs: Rngs | RngStream | None = None,
    ):
        if not 0 <= rate <= 1:
            raise ArgumentError("nnx.Dropout, argument rate", expected="a part between 0 and 1", got=rate,
                                mend="0.1 drops one element in ten")  # fmt: skip
        self.rate = rate
        self.broadcast_dims = tuple(broadcast_dims)
        self.deterministic = deterministic
        self.rng_collection = rng_collection
        self.rngs = stream_of("nnx.Dropout", rngs, rng_collection)

    def __call__(self, inputs: Any, *, deterministic: bool | None = None, rngs: Any = None) -> Any:
        """Drop elements.

        Args:
          inputs: the array.
          deterministic: do nothing; None for the layer's own setting.
          rngs: random streams, a stream or a key, in the place of the layer's own.

        Returns:
          An array of the same shape and dtype; what is kept is scaled up.

        Raises:
          ArgumentError: there is nowhere to draw from.
        """
        if deterministic is None:
            deterministic = self.deterministic
        if deterministic or self.rate == 0:
            return inputs
        inputs = jnp.asarray(inputs)
        if self.rate == 1:
            return jnp.zeros_like(inputs)
        key = key_from(self, self.rngs if rngs is None else rngs, self.rng_collection)
        return dropped(key, inputs, self.rate, tuple(d % inputs.ndim for d in self.broadcast_dims))
