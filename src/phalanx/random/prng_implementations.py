"""Random number generators: how the words of a key are made from a seed, split, and turned into random bits.

A `Generator` is a record of functions on the words of one key; `prng_keys` maps them over arrays of keys. With
`threefry2x32`, the default, each bit depends only on the key and on its position in the result. Values are therefore
the same for every sharding. With the option `threefry_partitionable` off, two positions half the array apart share a
hash instead, as in programs for JAX before 0.5. Either way the values are equal to the values in JAX. `rbg` draws
bits from XLA's generator, which is faster on accelerators but differs between them; `unsafe_rbg` also splits keys with
it. `register` adds generators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, get_aval, state
from phalanx.lax.prng.rng_bit_generator import rng_bit_generator_p
from phalanx.lax.prng.threefry2x32 import threefry2x32_p
from phalanx.symbolic import is_constant_shape, is_symbolic, size_of
from phalanx.typing import Array, PRNGKey

_UINT32 = np.dtype(np.uint32)
_UINT64 = np.dtype(np.uint64)


class Generator(NamedTuple):
    """A random number generator, as functions on the words of one key.

    Args:
      name: the name that users pass as `impl`.
      tag: the short name in the printed dtype, as in `key<fry>`.
      key_shape: the shape of the words of one key.
      seed: from the high and low word of a 64-bit seed, uint32 scalars of Phalanx or NumPy, to a key.
      split: from a key and a shape to an array of keys of that shape.
      bits: from a key, a width in bits (8, 16, 32 or 64) and a shape to unsigned integers.
      fold_in: from a key and two uint32 words to another key.
      bits_at: from a key, a width and the high and low words of positions to the elements of `bits` at these positions;
        None for a generator whose bits depend on more than the position.
      split_at: from a key and the high and low words of positions to the keys of `split` at these positions; None for a
        generator without `bits_at`.
      paired: this generator with `threefry_partitionable` off; None if the option makes no difference.
    """

    name: str
    tag: str
    key_shape: tuple[int, ...]
    seed: Callable
    split: Callable
    bits: Callable
    fold_in: Callable
    bits_at: Callable | None = None
    split_at: Callable | None = None
    paired: Generator | None = None

    @property
    def in_context(self) -> Generator:
        """This generator under the options of the thread."""
        return self.under(state.context.threefry_partitionable)

    def under(self, partitionable: bool) -> Generator:
        """This generator under a value of the option `threefry_partitionable`."""
        return self if self.paired is None or partitionable else self.paired

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __reduce__(self) -> tuple:
        return find_generator, (self.name,)

    def __repr__(self) -> str:
        return self.name


generators: dict[str, Generator] = {}


def register(generator: Generator) -> Generator:
    """Register a generator under its name."""
    return generators.setdefault(generator.name, generator)


def find_generator(name: str) -> Generator:
    """Return the generator of a name.

    Raises:
      ArgumentError: no generator has this name.
    """
    if name not in generators:
        raise ArgumentError(
            "random key, impl",
            expected=f"one of {', '.join(map(repr, generators))}",
            got=repr(name),
            fix="pass impl='threefry2x32', or leave it out for the option default_prng_impl",
        )
    return generators[name]


def _word(key: PRNGKey, i: int) -> Array:
    return lax.index_in_dim(key, i, 0, keepdims=False)


def position_counters(shape: tuple) -> tuple[Any, Any]:
    """Return the row-major position of each element as high and low words.

    They are computed from iotas, so that each device computes the positions of its shard without communication.
    """
    dtype = _UINT32 if is_constant_shape(shape) and size_of(shape) <= 2**32 else _UINT64
    # Row-major position = sum of index times stride, over the dimensions from last to first.
    total, stride = None, 1
    for dim in reversed(range(len(shape))):
        if shape[dim] != 1:
            step = lax.broadcasted_iota(dtype, shape, dim)
            if stride != 1:
                is_static = not is_symbolic(stride)
                step = lax.mul(step, dtype.type(stride) if is_static else lax.convert_element_type(stride, dtype))
            total = step if total is None else lax.add(total, step)
        stride = stride * shape[dim]
    if total is None:
        total = lax.full(shape, 0, dtype)
    if dtype == _UINT32:
        return _UINT32.type(0), total
    # The hash takes the 64-bit position as two 32-bit words.
    high = lax.shift_right_logical(total, _UINT64.type(32))
    return lax.convert_element_type(high, _UINT32), lax.convert_element_type(total, _UINT32)


def _threefry_words(key: PRNGKey, positions: tuple, is_key: bool) -> Sequence[Any]:
    return threefry2x32_p(_word(key, 0), _word(key, 1), *positions, is_key=is_key)


def _threefry_seed(high: Array, low: Array) -> Array:
    return np.stack([high, low]) if isinstance(low, np.generic) else lax.stack([high, low], 0)


def _threefry_split_at(key: PRNGKey, positions: tuple) -> Array:
    return lax.stack(_threefry_words(key, positions, True), get_aval(positions[1]).ndim)


def _threefry_split(key: PRNGKey, shape: tuple) -> Array:
    return _threefry_split_at(key, position_counters(shape))


def _threefry_bits_at(key: PRNGKey, width: int, positions: tuple) -> Array:
    out0, out1 = _threefry_words(key, positions, False)
    if width == 64:
        out0, out1 = (lax.convert_element_type(x, _UINT64) for x in (out0, out1))
        return lax.bitwise_or(lax.shift_left(out0, _UINT64.type(32)), out1)
    # Both words of the hash are combined to one, so that each position costs one hash for every width up to 32.
    out = lax.bitwise_xor(out0, out1)
    return out if width == 32 else lax.convert_element_type(out, np.dtype(f"uint{width}"))


def _threefry_fold_in(key: PRNGKey, high: Array, low: Array) -> Array:
    return lax.stack(_threefry_words(key, (high, low), True), 0)


def _paired_words(key: PRNGKey, size: int) -> Array:
    """Hash the counters 0 to `size - 1`, the first half of which is paired with the second: uint32[size]."""
    is_static = is_constant_shape((size,))
    if is_static and size >= 2**32:
        raise ArgumentError(
            "random bits without threefry_partitionable",
            expected="fewer than 2**32 words",
            got=f"{size} words",
            fix="leave the option threefry_partitionable on, which numbers each element by its position",
        )
    half = -(-size // 2)
    as_word = _UINT32.type if is_static else lambda n: lax.convert_element_type(n, _UINT32)
    first = lax.iota(_UINT32, half)
    second = lax.add(first, as_word(half))
    if not is_static or size % 2:  # the last counter of an odd number is paired with 0
        zeros = lax.full((half,), 0, _UINT32)
        second = lax.select(lax.lt(second, lax.broadcast(as_word(size), (half,))), second, zeros)
    return lax.slice_in_dim(lax.concatenate(_threefry_words(key, (first, second), False), 0), 0, size)


def _paired_split(key: PRNGKey, shape: tuple) -> Array:
    return lax.reshape(_paired_words(key, 2 * size_of(shape)), (*shape, 2))


def _paired_bits(key: PRNGKey, width: int, shape: tuple) -> Array:
    size, dtype = size_of(shape), np.dtype(f"uint{width}")
    if width == 64:
        high, low = lax.split(lax.convert_element_type(_paired_words(key, 2 * size), dtype), (size, size))
        out = lax.bitwise_or(lax.shift_left(high, dtype.type(32)), low)
    else:
        # A word holds several narrow elements, the first in its lowest bits.
        words = _paired_words(key, -(-size * width // 32))
        shape_of_parts = (*words.shape, 32 // width)
        shifts = lax.mul(lax.broadcasted_iota(_UINT32, shape_of_parts, 1), _UINT32.type(width % 32))
        parts = lax.shift_right_logical(lax.broadcast_in_dim(words, shape_of_parts, (0,)), shifts)
        flat = lax.reshape(lax.convert_element_type(parts, dtype), (size_of(shape_of_parts),))
        out = lax.slice_in_dim(flat, 0, size)
    return lax.reshape(out, shape)


def _halves(key: PRNGKey) -> tuple[Any, Any]:
    return lax.slice_in_dim(key, 0, 2), lax.slice_in_dim(key, 2, 4)


def _rbg_seed(high: Array, low: Array) -> Array:
    # An rbg key is a Threefry key, repeated to the four words of XLA's generator, as in JAX.
    words = _threefry_seed(high, low)
    return np.concatenate([words, words]) if isinstance(words, np.ndarray) else lax.concatenate([words, words], 0)


def _rbg_split(key: PRNGKey, shape: tuple) -> Array:
    split = threefry2x32.in_context.split
    return lax.concatenate([split(half, shape) for half in _halves(key)], len(shape))


def _rbg_fold_in(key: PRNGKey, high: Array, low: Array) -> Array:
    return lax.concatenate([_threefry_fold_in(half, high, low) for half in _halves(key)], 0)


def _rbg_bits(key: PRNGKey, width: int, shape: tuple) -> Array:
    return rng_bit_generator_p(key, shape=shape, dtype=np.dtype(f"uint{width}"), algorithm=0)[1]


_APART = 10  # JAX draws 10 blocks for each key and uses one; equal values need the same stride


def _unsafe_rbg_split(key: PRNGKey, shape: tuple) -> Array:
    drawn = _rbg_bits(key, 32, (size_of(shape), _APART, 4))
    return lax.reshape(lax.index_in_dim(drawn, 0, 1, keepdims=False), (*shape, 4))


def _unsafe_rbg_fold_in(key: PRNGKey, high: Array, low: Array) -> Array:
    drawn = _rbg_bits(_rbg_seed(high, low), 32, (_APART, 4))
    return lax.bitwise_xor(key, lax.index_in_dim(drawn, _APART - 1, 0, keepdims=False))


threefry2x32 = register(
    Generator(
        "threefry2x32",
        "fry",
        (2,),
        _threefry_seed,
        _threefry_split,
        lambda key, width, shape: _threefry_bits_at(key, width, position_counters(shape)),
        _threefry_fold_in,
        _threefry_bits_at,
        _threefry_split_at,
        Generator("threefry2x32", "fry", (2,), _threefry_seed, _paired_split, _paired_bits, _threefry_fold_in),
    )
)
rbg = register(Generator("rbg", "rbg", (4,), _rbg_seed, _rbg_split, _rbg_bits, _rbg_fold_in))
unsafe_rbg = register(
    Generator("unsafe_rbg", "urbg", (4,), _rbg_seed, _unsafe_rbg_split, _rbg_bits, _unsafe_rbg_fold_in)
)
