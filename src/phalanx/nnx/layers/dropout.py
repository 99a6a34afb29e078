"""`Dropout`, and functions that draw random keys for layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx import numpy as jnp, random
from phalanx.core import ArgumentError, ArgumentTypeError
from phalanx.nnx.layers.parameter_init import Layer
from phalanx.nnx.rngs import Rngs, RngStream
from phalanx.nnx.trace_level import describe
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import ArrayLike


@eager_jit(static_argnames=("rate", "broadcast_dims"))
def drop_elements(key: Any, x: Any, rate: float, broadcast_dims: tuple) -> Any:
    """Set a random fraction of the elements to 0, and scale the others up.

    Args:
      key: the random key.
      x: the array.
      rate: the fraction of elements to drop.
      broadcast_dims: dimensions along which all elements are dropped or kept together.

    Returns:
      The array.
    """
    shape = tuple(1 if d in broadcast_dims else n for d, n in enumerate(x.shape))
    stays = random.bernoulli(key, 1.0 - rate, shape)
    # `where` instead of a product: a dropped element may be infinite or NaN.
    return jnp.where(stays, x / (1.0 - rate), jnp.zeros_like(x))


def fork_stream(where: str, rngs: Any, name: str) -> RngStream | None:
    """Return an independent random stream for a layer.

    Raises:
      ArgumentTypeError: `rngs` is neither an `Rngs` nor a stream.
    """
    if isinstance(rngs, Rngs):
        # A forked stream per layer: the draws of a layer do not depend on how often other layers draw.
        return rngs[name].fork()
    if isinstance(rngs, RngStream):
        return rngs.fork()
    if rngs is None:
        return None
    raise ArgumentTypeError(
        f"{where}, argument rngs",
        expected="nnx.Rngs, a stream, or None",
        got=f"{rngs!r} of type {type(rngs).__name__}",
        fix="pass random streams such as rngs=nnx.Rngs(0)",
    )


def draw_key(layer: Any, rngs: Any, name: str) -> Any:
    """Return the next key of random streams or of a stream, or a given key.

    Args:
      layer: the layer, or the name of a function, for error messages.
      rngs: an `Rngs`, a stream, or a key.
      name: the name of the stream.

    Raises:
      ArgumentError: `rngs` is None.
    """
    if rngs is None:
        where = layer if isinstance(layer, str) else describe(layer)
        raise ArgumentError(
            f"nnx.{where}, argument rngs",
            expected=f"random streams with {name!r}, since deterministic is False",
            got=None,
            fix="pass rngs to the layer or to the call, or call model.eval()",
        )
    if isinstance(rngs, Rngs):
        return rngs[name]()
    return rngs() if isinstance(rngs, RngStream) else rngs


class Dropout(Layer):
    """Set a random fraction of the elements to 0, and scale the others up to preserve the expected sum.

    Args:
      rate: the fraction of elements to drop.
      broadcast_dims: dimensions along which all elements are dropped or kept together.
      deterministic: whether to return the input unchanged, as in evaluation.
      rng_collection: the name of the random stream.
      rngs: random streams; if omitted, they are passed in each call.

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
            raise ArgumentError(
                "nnx.Dropout, argument rate",
                expected="a number between 0 and 1",
                got=rate,
                fix="pass a fraction, such as 0.1 to drop one element in ten",
            )
        broadcast_dims = tuple(broadcast_dims)
        self._store_options(locals(), "rate broadcast_dims deterministic rng_collection")
        self.rngs = fork_stream("nnx.Dropout", rngs, rng_collection)

    def __call__(self, inputs: ArrayLike, *, deterministic: bool | None = None, rngs: Any = None) -> Any:
        """Drop a random fraction of the elements.

        Args:
          inputs: the array.
          deterministic: whether to return the input unchanged; None for the setting of the layer.
          rngs: random streams, a stream or a key; None to use the layer's.

        Returns:
          An array of the same shape and dtype.

        Raises:
          ArgumentError: there are no random streams.
        """
        if (self.deterministic if deterministic is None else deterministic) or self.rate == 0:
            return inputs
        inputs = jnp.asarray(inputs)
        # The factor 1 / (1 - rate) of the elements that are kept would be infinite.
        if self.rate == 1:
            return jnp.zeros_like(inputs)
        key = draw_key(self, self.rngs if rngs is None else rngs, self.rng_collection)
        return drop_elements(key, inputs, self.rate, tuple(d % inputs.ndim for d in self.broadcast_dims))

    def set_view(self, deterministic: bool | None = None) -> None:
        """Set the options that `nnx.view` can change.

        Args:
          deterministic: whether to return the input unchanged.
        """
        self._set_options(deterministic=deterministic)
