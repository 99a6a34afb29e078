"""Generators: how a key of some words is made, split and turned into bits.

Each generator is a record of functions on the words of one key; `primitives` maps them over arrays of keys. With
`threefry2x32`, the default, every bit depends on its key and its position in the result only, so that values are the
same for every sharding, and equal those of JAX (with `jax_threefry_partitionable`, its default). `rbg` draws bits
from XLA's generator, which is faster on accelerators and not the same on all of them; `unsafe_rbg` also splits keys
with it. `register` adds others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.core.errors import ArgumentError
from phalanx.lax.rng import rng_bit_generator_p
from phalanx.lax.threefry import threefry2x32_p
from phalanx.symbolic import is_constant_shape, is_symbolic, size_of

_UINT32 = np.dtype(np.uint32)
_UINT64 = np.dtype(np.uint64)


class Generator(NamedTuple):
    """A random number generator, as functions on the words of one key.

    Args:
      name: what users call it.
      tag: how programs print its keys, as in `key<fry>`.
      key_shape: the shape of the words of one key.
      seed: from the high and low half of a 64-bit seed, uint32 scalars, to a key; also called with NumPy's.
      split: from a key and a shape to an array of keys of that shape.
      bits: from a key, a width in bits (8, 16, 32 or 64) and a shape to unsigned integers.
      fold_in: from a key and two uint32 words to another key.
      bits_at: from a key, a width and the high and low words of positions to what `bits` gives there, where bits depend
        on nothing else.
    """

    name: str
    tag: str
    key_shape: tuple[int, ...]
    seed: Callable
    split: Callable
    bits: Callable
    fold_in: Callable
    bits_at: Callable | None = None

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __reduce__(self) -> tuple:
        return generator_of, (self.name,)

    def __repr__(self) -> str:
        return self.name


generators: dict[str, Generator] = {}


def register(generator: Generator) -> Generator:
    """Make a generator known under its name."""
    return generators.setdefault(generator.name, generator)


def generator_of(name: str) -> Generator:
    """Return the generator that is called `name`.

    Raises:
      ArgumentError: there is none.
    """
    if name not in generators:
        raise ArgumentError(
            "random key, impl",
            expected=f"one of {', '.join(map(repr, generators))}",
            got=repr(name),
            mend="pass one of these, or set the option default_prng_impl",
        )
    return generators[name]


def _word(key: Any, i: int) -> Any:
    return lax.index_in_dim(key, i, 0, keepdims=False)


def counters(shape: tuple) -> tuple[Any, Any]:
    """Return the row-major position of each element as high and low words; no communication, however it is split."""
    if is_constant_shape(shape) and size_of(shape) <= 2**32:
        dtype: Any = _UINT32
    else:
        dtype = _UINT64
    total, stride = None, 1
    for dim in reversed(range(len(shape))):
        if shape[dim] != 1:
            step = lax.broadcasted_iota(dtype, shape, dim)
            if stride != 1:
                wide = lax.convert_element_type(stride, dtype) if is_symbolic(stride) else dtype.type(stride)
                step = lax.mul(step, wide)
            total = step if total is None else lax.add(total, step)
        stride = stride * shape[dim]
    if total is None:
        total = lax.full(shape, 0, dtype)
    if dtype == _UINT32:
        return _UINT32.type(0), total
    high = lax.shift_right_logical(total, _UINT64.type(32))
    return lax.convert_element_type(high, _UINT32), lax.convert_element_type(total, _UINT32)


def _threefry_words(key: Any, positions: tuple, is_key: bool) -> tuple[Any, Any]:
    out0, out1 = threefry2x32_p(_word(key, 0), _word(key, 1), *positions, is_key=is_key)
    return out0, out1


def _threefry_seed(high: Any, low: Any) -> Any:
    if isinstance(low, np.generic):
        return np.stack([high, low])
    return lax.stack([high, low], 0)


def _threefry_split(key: Any, shape: tuple) -> Any:
    return lax.stack(list(_threefry_words(key, counters(shape), True)), len(shape))


def _threefry_bits(key: Any, width: int, shape: tuple) -> Any:
    return _threefry_bits_at(key, width, counters(shape))


def _threefry_bits_at(key: Any, width: int, positions: tuple) -> Any:
    out0, out1 = _threefry_words(key, positions, False)
    if width == 64:
        out0, out1 = (lax.convert_element_type(x, _UINT64) for x in (out0, out1))
        return lax.bitwise_or(lax.shift_left(out0, _UINT64.type(32)), out1)
    out = lax.bitwise_xor(out0, out1)
    return out if width == 32 else lax.convert_element_type(out, np.dtype(f"uint{width}"))


def _threefry_fold_in(key: Any, high: Any, low: Any) -> Any:
    return lax.stack(threefry2x32_p(_word(key, 0), _word(key, 1), high, low, is_key=True), 0)


def _halves(key: Any) -> tuple[Any, Any]:
    return lax.slice_in_dim(key, 0, 2), lax.slice_in_dim(key, 2, 4)


def _rbg_seed(high: Any, low: Any) -> Any:
    words = _threefry_seed(high, low)
    return np.concatenate([words, words]) if isinstance(words, np.ndarray) else lax.concatenate([words, words], 0)


def _rbg_split(key: Any, shape: tuple) -> Any:
    return lax.concatenate([_threefry_split(half, shape) for half in _halves(key)], len(shape))


def _rbg_fold_in(key: Any, high: Any, low: Any) -> Any:
    return lax.concatenate([_threefry_fold_in(half, high, low) for half in _halves(key)], 0)


def _rbg_bits(key: Any, width: int, shape: tuple) -> Any:
    return _drawn(key, shape, np.dtype(f"uint{width}"))


def _drawn(key: Any, shape: tuple, dtype: Any = _UINT32) -> Any:
    return rng_bit_generator_p(key, shape=shape, dtype=dtype, algorithm=0)[1]


_APART = 10  # blocks from one drawn key to the next, as in JAX, so that both give the same values


def _unsafe_rbg_split(key: Any, shape: tuple) -> Any:
    count = size_of(shape)
    drawn = _drawn(key, (count, _APART, 4))
    return lax.reshape(lax.index_in_dim(drawn, 0, 1, keepdims=False), (*shape, 4))


def _unsafe_rbg_fold_in(key: Any, high: Any, low: Any) -> Any:
    drawn = _drawn(_rbg_seed(high, low), (_APART, 4))
    return lax.bitwise_xor(key, lax.index_in_dim(drawn, _APART - 1, 0, keepdims=False))


threefry2x32 = register(
    Generator(
        "threefry2x32", "fry", (2,), _threefry_seed, _threefry_split, _threefry_bits, _threefry_fold_in,
        _threefry_bits_at,
    )
)  # fmt: skip
rbg = register(Generator("rbg", "rbg", (4,), _rbg_seed, _rbg_split, _rbg_bits, _rbg_fold_in))
unsafe_rbg = register(
    Generator("unsafe_rbg", "urbg", (4,), _rbg_seed, _unsafe_rbg_split, _rbg_bits, _unsafe_rbg_fold_in)
)
