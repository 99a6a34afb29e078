"""Primitives of random keys: seed, split, fold in, draw bits, and convert to and from raw words.

A primitive acts on each key of an array. It is lowered to a function that is emitted once for each type, so that a
model that draws many arrays of one shape contains the generator once. Called by `prng_keys` and the distributions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import (
    ZERO,
    ArgumentTypeError,
    KeyDtype,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    dtypes,
    physical_aval,
    trace_to_jaxpr,
)
from phalanx.engine.cache import memoize
from phalanx.lax.prng.key_words import check_keys
from phalanx.lax.shape import dim_names
from phalanx.runtime.lowering import LoweringContext
from phalanx.transforms import vmap
from phalanx.transforms.batching import move_mapped_dim
from phalanx.typing import ArrayLike

_UINT32 = np.dtype(np.uint32)


def _mapped(fun: Callable[..., Any], ndim: int) -> Any:
    """Map a function of one key over an array of keys of rank `ndim`."""
    for _ in range(ndim):
        fun = vmap(fun)
    return fun


@memoize("random.generator_programs", 4096)
def _program(primitive: KeyPrimitive, avals: tuple, params: tuple) -> Any:
    """Trace the function that a primitive computes on the words of its operands."""
    # Keys are lowered as arrays of words with hidden last dimensions; the function of one key is mapped over all keys.
    fun = primitive.on_words(*avals, **dict(params))
    words = [physical_aval(a) for a in avals]
    return trace_to_jaxpr(lambda *xs: [_mapped(fun, avals[0].ndim)(*xs)], words, primitive.name)


class KeyPrimitive(Primitive):
    """Base of the primitives that act on each key; a subclass defines `on_words`, a function of one key."""

    takes_keys = True
    consumes_keys = True

    def on_words(self, *avals: Any, **params: Any) -> Any:
        """Return the function of the words of one element of each operand."""
        raise NotImplementedError

    def lower(self, ctx: LoweringContext, *operands: Any, **params: Any) -> Any:
        return ctx.call(_program(self, tuple(ctx.avals_in), tuple(params.items())), operands)[0]

    jvp = ZERO

    def batch(self, *args: Any, **params: Any) -> Any:
        # All operands have the same leading dimensions, which map elementwise: the new one is put in front.
        operands, mapped = args[: len(args) // 2], args[len(args) // 2 :]
        if len(operands) == 1:
            return self(*operands, **params), mapped[0]
        size = next(x.shape[d] for x, d in zip(operands, mapped, strict=True) if d is not None)
        front = [move_mapped_dim(x, d, size, 0) for x, d in zip(operands, mapped, strict=True)]
        return self(*front, **params), 0


class RandomSeed(KeyPrimitive, name="random_seed"):
    """Make keys from integer seeds: int[*s] -> key[*s]."""

    def abstract_eval(self, seeds: ShapedArray, *, dtype: KeyDtype) -> Any:
        if not dtypes.issubdtype(seeds.dtype, np.integer):
            raise ArgumentTypeError(
                "random.key seed",
                expected="an integer",
                got=seeds.str_short(),
                fix="pass an int or an integer array of rank 0",
            )
        return ShapedArray(seeds.shape, dtype)

    def sharding_rule(self, seeds: ShapedArray, *, dtype: KeyDtype) -> ShardingRule:
        names = dim_names(seeds.ndim)
        return ShardingRule([names], [names])

    def on_words(self, seeds: ShapedArray, *, dtype: KeyDtype) -> Any:
        return lambda seed: dtype.impl.seed(*seed_words(seed))


class RandomSplit(KeyPrimitive, name="random_split"):
    """Split each key into an array of keys of shape `shape`: key[*k] -> key[*k, *shape]."""

    def abstract_eval(self, keys: ShapedArray, *, shape: tuple) -> Any:
        check_keys("random.split", keys)
        return keys.with_shape((*keys.shape, *shape))

    def sharding_rule(self, keys: ShapedArray, *, shape: tuple) -> ShardingRule:
        names = dim_names(keys.ndim + len(shape))
        return ShardingRule([names[: keys.ndim]], [names], whole=names[keys.ndim :])

    def on_words(self, keys: ShapedArray, *, shape: tuple) -> Any:
        return lambda key: keys.dtype.impl.split(key, shape)


class RandomFoldIn(KeyPrimitive, name="random_fold_in"):
    """Make a new key from each key and an integer: key[*k], uint32[*k] -> key[*k]."""

    consumes_keys = False

    def abstract_eval(self, keys: ShapedArray, data: ShapedArray) -> Any:
        check_keys("random.fold_in", keys)
        if keys.shape != data.shape:
            raise ShapeError(
                "random.fold_in",
                expected="one integer for each key",
                got=f"{keys.str_short()}, {data.str_short()}",
                fix="map over several keys and integers with phalanx.vmap",
            )
        return keys

    def sharding_rule(self, keys: ShapedArray, data: ShapedArray) -> ShardingRule:
        names = dim_names(keys.ndim)
        return ShardingRule([names, names], [names])

    def on_words(self, keys: ShapedArray, data: ShapedArray) -> Any:
        return lambda key, value: keys.dtype.impl.fold_in(key, *seed_words(value))


class RandomBits(KeyPrimitive, name="random_bits"):
    """Draw random bits from each key: key[*k] -> uint[*k, *shape]."""

    def abstract_eval(self, keys: ShapedArray, *, width: int, shape: tuple) -> Any:
        check_keys("random.bits", keys)
        return ShapedArray((*keys.shape, *shape), np.dtype(f"uint{width}"))

    def sharding_rule(self, keys: ShapedArray, *, width: int, shape: tuple) -> ShardingRule:
        names = dim_names(keys.ndim + len(shape))
        return ShardingRule([names[: keys.ndim]], [names], whole=names[keys.ndim :])

    def on_words(self, keys: ShapedArray, *, width: int, shape: tuple) -> Any:
        return lambda key: keys.dtype.impl.bits(key, width, shape)


def seed_words(seed: ArrayLike) -> tuple[Any, Any]:
    """Split an integer array into its high and low 32 bits."""
    # A seed of 32 bits or less has a high word of 0, as in JAX.
    if dtypes.itemsize_bits(seed.dtype) == 64:
        seed = lax.convert_element_type(seed, np.dtype(np.uint64))
        high = lax.convert_element_type(lax.shift_right_logical(seed, np.uint64(32)), _UINT32)
    else:
        high = np.uint32(0)
    return high, lax.convert_element_type(seed, _UINT32)


random_seed_p = RandomSeed()
random_split_p = RandomSplit()
random_fold_in_p = RandomFoldIn()
random_bits_p = RandomBits()
