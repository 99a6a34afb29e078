"""Random numbers from a generator with state, in the style of `numpy.random.Generator`.

A `StatefulPRNG` is a key and a counter in a mutable array. Each draw folds the counter into the key and increments it,
so that a generator can be used in compiled functions and loops like any other reference.
`phalanx.experimental.random` exports it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, Ref, TraceError, dtypes, new_ref, state
from phalanx.core.mutable_arrays import addupdate
from phalanx.numpy import asarray, zeros
from phalanx.random.continuous_distributions import normal
from phalanx.random.prng_keys import fold_in, key as make_key, split
from phalanx.random.uniform import randint, uniform
from phalanx.tree import register_pytree_node
from phalanx.typing import Array, ArrayLike, DTypeLike


def _shape(size: int | Sequence[int] | None, *parameters: ArrayLike) -> tuple[int, ...]:
    """The shape of a sample: `size`, or else that of the parameters, broadcast."""
    if size is None:
        return np.broadcast_shapes(*[np.shape(x) for x in parameters])
    sizes = size if isinstance(size, Sequence) else (size,)
    return tuple([operator.index(n) for n in sizes])


@dataclass(frozen=True, slots=True, repr=False)
class StatefulPRNG:
    """A random generator with state, made by `stateful_rng`; a pytree of its key and its counter.

    Args:
      _base_key: a typed key.
      _counter: a reference to the number of keys drawn so far.

    Raises:
      ArgumentError: the key is not typed, or the counter is no reference.

    Examples:
      >>> from phalanx.experimental import random
      >>> rng = random.stateful_rng(42)
      >>> rng.integers(0, 10, size=3).shape
      (3,)
      >>> bool((rng.uniform(size=3) == rng.uniform(size=3)).any())
      False
    """

    _base_key: Any
    _counter: Any

    def __post_init__(self) -> None:
        dtype = getattr(self._base_key, "dtype", None)
        if dtype is None or not dtypes.issubdtype(dtype, dtypes.prng_key):
            raise ArgumentError(
                "StatefulPRNG, argument base_key",
                expected="a typed PRNG key",
                got=repr(self._base_key),
                fix="make it with random.key(seed), or call stateful_rng(seed)",
            )
        if not isinstance(self._counter, Ref) or not dtypes.issubdtype(self._counter.dtype, np.integer):
            raise ArgumentError(
                "StatefulPRNG, argument counter",
                expected="a scalar integer ref",
                got=repr(self._counter),
                fix="make it with new_ref(0), or call stateful_rng(seed)",
            )

    def key(self, shape: int | Sequence[int] = ()) -> Array:
        """Draw a new key, and count it.

        Args:
          shape: the shape of an array of keys; one key by default.

        Returns:
          The key or keys, of the same generator as the key of this object.

        Raises:
          ArgumentError: the generator was split, and belongs under `vmap`.
        """
        if self._base_key.shape:
            raise ArgumentError(
                "StatefulPRNG.key",
                expected="one generator",
                got=f"{self._base_key.shape} generators, made by split",
                fix="pass it to a function under vmap, or make a list of generators with spawn",
            )
        drawn = fold_in(self._base_key, self._counter[...])
        addupdate(self._counter, ..., 1)
        sizes = _shape(shape)
        return split(drawn, sizes) if sizes else drawn

    def random(self, size: int | Sequence[int] | None = None, dtype: DTypeLike = float) -> Array:
        """Uniform samples in [0, 1).

        Args:
          size: the shape of the result.
          dtype: its floating-point dtype.

        Returns:
          An array of that shape.
        """
        return uniform(self.key(), _shape(size), dtype)

    def uniform(
        self,
        low: ArrayLike = 0,
        high: ArrayLike = 1,
        size: int | Sequence[int] | None = None,
        *,
        dtype: DTypeLike = float,
    ) -> Array:
        """Uniform samples in [low, high).

        Args:
          low, high: the bounds, which broadcast.
          size: the shape of the result; that of the bounds by default.
          dtype: its floating-point dtype.

        Returns:
          An array of that shape.
        """
        return uniform(self.key(), _shape(size, low, high), dtype, low, high)

    def normal(
        self,
        loc: ArrayLike = 0,
        scale: ArrayLike = 1,
        size: int | Sequence[int] | None = None,
        *,
        dtype: DTypeLike = float,
    ) -> Array:
        """Normal samples.

        Args:
          loc, scale: mean and standard deviation, which broadcast.
          size: the shape of the result; that of the parameters by default.
          dtype: its floating-point dtype.

        Returns:
          An array of that shape.
        """
        sample = normal(self.key(), _shape(size, loc, scale), dtype)
        return asarray(loc).astype(sample.dtype) + asarray(scale).astype(sample.dtype) * sample

    def integers(
        self,
        low: ArrayLike,
        high: ArrayLike | None = None,
        size: int | Sequence[int] | None = None,
        *,
        dtype: DTypeLike = int,
    ) -> Array:
        """Uniform integers in [low, high), or in [0, low) without `high`.

        Args:
          low, high: the bounds, which broadcast.
          size: the shape of the result; that of the bounds by default.
          dtype: its integer dtype.

        Returns:
          An array of that shape.
        """
        if high is None:
            low, high = 0, low
        return randint(self.key(), _shape(size, low, high), low, high, dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """Make independent generators as one object, to be mapped over with `vmap`.

        Args:
          num: the number of generators, or the shape of an array of them.

        Returns:
          The generators.

        Examples:
          >>> import phalanx, phalanx.numpy as jnp
          >>> from phalanx.experimental import random
          >>> rng = random.stateful_rng(123)
          >>> phalanx.vmap(lambda rng, x: x + rng.uniform())(rng.split(3), jnp.zeros(3)).shape
          (3,)
        """
        return StatefulPRNG(self.key(num), new_ref(zeros(_shape(num), int)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """Make a list of independent generators.

        Args:
          n_children: their number.

        Returns:
          The generators.
        """
        return [StatefulPRNG(child, new_ref(0)) for child in self.key(n_children)]

    def __repr__(self) -> str:
        return f"StatefulPRNG(_base_key={self._base_key!r}, _counter={self._counter!r})"


def _rebuild(_: None, parts: Sequence[Any]) -> StatefulPRNG:
    """A generator of any two leaves, without the checks: transformations put placeholders in their place."""
    rng = object.__new__(StatefulPRNG)
    for name, part in zip(("_base_key", "_counter"), parts, strict=True):
        object.__setattr__(rng, name, part)
    return rng


register_pytree_node(StatefulPRNG, lambda rng: ((rng._base_key, rng._counter), None), _rebuild)


def stateful_rng(seed: ArrayLike | None = None, *, impl: Any = None) -> StatefulPRNG:
    """Make a random generator with state.

    Args:
      seed: an integer; without it, one is taken from the operating system.
      impl: the generator behind the keys, as in `random.key`.

    Returns:
      The generator. It is a pytree that holds a mutable array: pass it to compiled functions, close over it, but do not
      return it.

    Raises:
      TraceError: there is no seed inside of a transformed function, where each call would draw the same numbers.

    Examples:
      >>> import phalanx
      >>> from phalanx.experimental import random
      >>> rng = random.stateful_rng(0)
      >>> draw = phalanx.jit(lambda: rng.normal())
      >>> bool(draw() == draw())
      False
    """
    if seed is None:
        if state.trace is not None:
            raise TraceError(
                "stateful_rng, argument seed",
                expected="a seed. When used within transformed code, a generator without one would repeat its numbers",
                got="None",
                fix="pass a seed, or make the generator outside of the transformed function",
            )
        seed = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    return StatefulPRNG(make_key(seed, impl=impl), new_ref(0))
