"""Random number generators that users define, and the parts of the built-in ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError
from phalanx.lax.prng.threefry2x32 import threefry2x32_p
from phalanx.random.prng_implementations import Generator
from phalanx.random.prng_keys import key, key_dtype, random_seed_p
from phalanx.typing import Array, ArrayLike


def define_prng_impl(
    *,
    key_shape: tuple[int, ...],
    seed: Callable[..., Any],
    split: Callable[..., Any],
    random_bits: Callable[..., Any],
    fold_in: Callable[..., Any],
    name: str = "<unnamed>",
    tag: str = "?",
) -> Generator:
    """Define a random number generator, for the argument `impl` of `random.key`.

    Args:
      key_shape: the shape of the uint32 words of one key; of rank 1.
      seed: from an integer scalar to the words of a key.
      split: from the words of a key and a shape to the words of an array of keys.
      random_bits: from the words of a key, a width in bits and a shape to unsigned integers.
      fold_in: from the words of a key and a uint32 scalar to the words of another key.
      name: the name in printed keys.
      tag: the short name in printed types, as in `key<fry>`.

    Returns:
      The generator.

    Raises:
      ArgumentError: `key_shape` is not of rank 1.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> counter = define_prng_impl(
      ...     key_shape=(1,),
      ...     seed=lambda s: jnp.uint32(s)[None],
      ...     split=lambda key, shape: key + jnp.arange(np.prod(shape), dtype="uint32").reshape(*shape, 1),
      ...     random_bits=lambda key, width, shape: jnp.full(shape, key[0], f"uint{width}"),
      ...     fold_in=lambda key, data: key + data,
      ...     name="counter",
      ... )
      >>> phalanx.random.bits(phalanx.random.key(7, impl=counter), (2,)).tolist()
      [7, 7]
    """
    if len(key_shape) != 1:
        raise ArgumentError(
            "define_prng_impl, argument key_shape",
            expected="a shape of rank 1, such as (4,)",
            got=repr(key_shape),
            fix="keep the words of a key in one dimension, and reshape them in the rules",
        )
    return Generator(
        name,
        tag,
        tuple(key_shape),
        seed=lambda high, low: seed(_join(high, low)),
        split=split,
        bits=random_bits,
        fold_in=lambda words, high, low: fold_in(words, low),
    )


def _join(high: Any, low: Any) -> Any:
    """The seed whose words these are; one of 32 bits if the high word is known to be zero."""
    if isinstance(high, np.generic) and not high:
        return low
    wide = [lax.convert_element_type(x, np.dtype("uint64")) for x in (high, low)]
    return lax.bitwise_or(lax.shift_left(wide[0], np.uint64(32)), wide[1])


def seed_with_impl(impl: Generator, seed: ArrayLike) -> Array:
    """Make a key of a generator.

    Args:
      impl: the generator.
      seed: an integer.

    Returns:
      key[]

    Examples:
      >>> from phalanx.extend.random import threefry_prng_impl
      >>> seed_with_impl(threefry_prng_impl, 0).dtype
      key<fry>
    """
    return key(seed, impl=impl)


def random_seed(seeds: ArrayLike, impl: Generator) -> Array:
    """Make a key of a generator from each of several seeds.

    Args:
      seeds: int[*s].
      impl: the generator.

    Returns:
      key[*s]

    Examples:
      >>> from phalanx.extend.random import rbg_prng_impl
      >>> random_seed(np.arange(3), rbg_prng_impl).shape
      (3,)
    """
    return random_seed_p(seeds, dtype=key_dtype(impl))


def threefry_2x32(keypair: tuple[ArrayLike, ArrayLike], count: Array) -> Array:
    """Hash counters with Threefry, the first half of which are paired with the second.

    Args:
      keypair: the two words of a key, uint32[].
      count: uint32[*s].

    Returns:
      uint32[*s]

    Examples:
      >>> threefry_2x32((np.uint32(1), np.uint32(2)), np.arange(3, dtype=np.uint32)).shape
      (3,)
    """
    flat = lax.reshape(count, (count.size,))
    half = -(-count.size // 2)
    first, second = lax.slice_in_dim(flat, 0, half), lax.slice_in_dim(flat, half, count.size)
    if count.size % 2:
        second = lax.concatenate([second, lax.full((1,), 0, np.dtype("uint32"))], 0)
    hashed = lax.concatenate(threefry2x32_p(*keypair, first, second, is_key=False), 0)
    return lax.reshape(lax.slice_in_dim(hashed, 0, count.size), count.shape)
