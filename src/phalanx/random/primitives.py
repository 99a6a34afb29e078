"""The primitives of random keys: make, split, fold, draw, and go to and from their words.

A primitive takes an array of keys of any shape and acts on each; its program is traced once for each type and called
as a function, so that a model that draws many arrays of one shape holds the generator once. Builds on `generators`;
`keys` and the distributions call it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.dtypes import KeyDtype
from phalanx.core.errors import ArgumentTypeError, DTypeError, ShapeError
from phalanx.core.primitive import ZERO, Primitive, Roles
from phalanx.core.trace import stage
from phalanx.lax.broadcast import dim_names, move_dim
from phalanx.runtime import placement
from phalanx.runtime.array import Array, ArrayType
from phalanx.runtime.dispatch import prepare_operation
from phalanx.runtime.lowering import physical_aval
from phalanx.transforms import vmap
from phalanx.transforms.batching import to_dim

_UINT32 = np.dtype(np.uint32)


def check_keys(where: str, keys: Any) -> None:
    """Refuse operands that are no typed keys."""
    if not isinstance(keys.dtype, KeyDtype):
        raise DTypeError(
            where,
            expected="typed keys",
            got=keys.str_short(),
            mend="make them with phalanx.random.key or wrap_key_data",
        )


def _mapped(fun: Any, ndim: int) -> Any:
    """A function of one key as one of an array of keys."""
    for _ in range(ndim):
        fun = vmap(fun)
    return fun


@functools.lru_cache(maxsize=4096)
def _program(primitive: KeyPrimitive, avals: tuple, params: tuple) -> Any:
    """The program by which a primitive acts on the words of its operands."""
    fun = primitive.on_words(*avals, **dict(params))
    words = [physical_aval(a) for a in avals]
    return stage(lambda *xs: [_mapped(fun, avals[0].ndim)(*xs)], words, primitive.name)


class KeyPrimitive(Primitive):
    """What the primitives on keys share: a subclass says what happens to the words of one key, in `on_words`."""

    takes_keys = True
    key_use = "used up"

    def on_words(self, *avals: Any, **params: Any) -> Any:
        """The function of the words of one element of each operand."""
        raise NotImplementedError

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        program = _program(self, tuple(ctx.avals_in), tuple(params.items()))
        return ctx.call(program, operands)[0]

    jvp = ZERO

    def batch(self, *args: Any, **params: Any) -> Any:
        # Each operand is mapped over its own leading dimensions, and these stay in front.
        operands, mapped = args[: len(args) // 2], args[len(args) // 2 :]
        if len(operands) == 1:
            return self(*operands, **params), mapped[0]
        size = next(x.shape[d] for x, d in zip(operands, mapped, strict=True) if d is not None)
        front = [to_dim(x, d, size, 0) for x, d in zip(operands, mapped, strict=True)]
        return self(*front, **params), 0


class RandomSeed(KeyPrimitive, name="random_seed"):
    """Keys from integer seeds: int[*s] -> key[*s]."""

    def result(self, seeds: Any, *, dtype: KeyDtype) -> Any:
        if not dtypes.issubdtype(seeds.dtype, np.integer):
            raise ArgumentTypeError("random.key seed", expected="an integer", got=seeds.str_short(),
                                    mend="pass an int or an integer array of rank 0")  # fmt: skip
        return ShapedArray(seeds.shape, dtype)

    def roles(self, seeds: Any, *, dtype: KeyDtype) -> Roles:
        names = dim_names(seeds.ndim)
        return Roles([names], [names])

    def on_words(self, seeds: Any, *, dtype: KeyDtype) -> Any:
        return lambda seed: dtype.impl.seed(*seed_words(seed))


class RandomSplit(KeyPrimitive, name="random_split"):
    """New keys, `shape` of them, from each key: key[*k] -> key[*k, *shape]."""

    def result(self, keys: Any, *, shape: tuple) -> Any:
        check_keys("random.split", keys)
        return keys.with_shape((*keys.shape, *shape))

    def roles(self, keys: Any, *, shape: tuple) -> Roles:
        names = dim_names(keys.ndim + len(shape))
        return Roles([names[: keys.ndim]], [names], whole=names[keys.ndim :])

    def on_words(self, keys: Any, *, shape: tuple) -> Any:
        return lambda key: keys.dtype.impl.split(key, shape)


class RandomFoldIn(KeyPrimitive, name="random_fold_in"):
    """A new key from each key and an integer: key[*k], uint32[*k] -> key[*k]."""

    key_use = "read"

    def result(self, keys: Any, data: Any) -> Any:
        check_keys("random.fold_in", keys)
        if keys.shape != data.shape:
            raise ShapeError("random.fold_in", expected="one integer for each key",
                             got=f"{keys.str_short()}, {data.str_short()}", mend="use vmap")  # fmt: skip
        return keys

    def roles(self, keys: Any, data: Any) -> Roles:
        names = dim_names(keys.ndim)
        return Roles([names, names], [names])

    def on_words(self, keys: Any, data: Any) -> Any:
        return lambda key, value: keys.dtype.impl.fold_in(key, *seed_words(value))


class RandomBits(KeyPrimitive, name="random_bits"):
    """Random bits from each key: key[*k] -> uint[*k, *shape]."""

    def result(self, keys: Any, *, width: int, shape: tuple) -> Any:
        check_keys("random.bits", keys)
        return ShapedArray((*keys.shape, *shape), np.dtype(f"uint{width}"))

    def roles(self, keys: Any, *, width: int, shape: tuple) -> Roles:
        names = dim_names(keys.ndim + len(shape))
        return Roles([names[: keys.ndim]], [names], whole=names[keys.ndim :])

    def on_words(self, keys: Any, *, width: int, shape: tuple) -> Any:
        return lambda key: keys.dtype.impl.bits(key, width, shape)


class RandomWrap(Primitive, name="random_wrap"):
    """Words as typed keys: uint32[*k, *key_shape] -> key[*k]."""

    takes_keys = True

    def result(self, words: Any, *, dtype: KeyDtype) -> Any:
        rank = len(dtype.key_shape)
        if words.dtype != _UINT32 or words.shape[words.ndim - rank :] != dtype.key_shape:
            expected = f"uint32 data whose last dimensions are {dtype.key_shape}, the words of a {dtype.impl.name} key"
            raise ShapeError("random.wrap_key_data", expected=expected, got=words.str_short(),
                             mend="pass key_data of such keys, or name their generator with impl")  # fmt: skip
        return ShapedArray(words.shape[: words.ndim - rank], dtype)

    def roles(self, words: Any, *, dtype: KeyDtype) -> Roles:
        names = dim_names(words.ndim)
        kept = names[: words.ndim - len(dtype.key_shape)]
        return Roles([names], [kept], whole=names[len(kept) :])

    def lower(self, ctx: Any, words: Any, *, dtype: KeyDtype) -> Any:
        return words

    jvp = ZERO

    def batch(self, words: Any, b: int, *, dtype: KeyDtype) -> Any:
        return self(move_dim(words, b, 0), dtype=dtype), 0

    def run(self, words: Any, *, dtype: KeyDtype) -> Any:
        words = placement.put(words) if type(words) is not Array else words
        return _retyped(self, words, self.result(words.aval, dtype=dtype), dtype=dtype)


class RandomUnwrap(Primitive, name="random_unwrap"):
    """The words of typed keys: key[*k] -> uint32[*k, *key_shape]."""

    takes_keys = True

    def result(self, keys: Any) -> Any:
        check_keys("random.key_data", keys)
        return physical_aval(keys)

    def roles(self, keys: Any) -> Roles:
        names = dim_names(keys.ndim)
        return Roles([names], [[*names, *dim_names(len(keys.dtype.key_shape), "word")]],
                     whole=dim_names(len(keys.dtype.key_shape), "word"))  # fmt: skip

    def lower(self, ctx: Any, keys: Any) -> Any:
        return keys

    jvp = ZERO

    def batch(self, keys: Any, b: int) -> Any:
        return self(keys), b

    def run(self, keys: Any) -> Any:
        return _retyped(self, keys, self.result(aval_of(keys)))


def _retyped(primitive: Primitive, x: Array, aval: ShapedArray, **params: Any) -> Array:
    """An array with another type over the same buffer; compiled where it is spread over devices."""
    held = x._type
    if len(held.sharding.device_set) == 1:
        return Array(x._live(), ArrayType(aval, held.sharding, held.committed))
    key = (primitive, held, *params.values())
    if (call := _calls.get(key)) is None:
        call = _calls[key] = prepare_operation(primitive, (held,), params)
    return call((x,))[0]


_calls: dict[Any, Any] = {}


def seed_words(seed: Any) -> tuple[Any, Any]:
    """The high and low 32 bits of an integer that is traced."""
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
random_wrap_p = RandomWrap()
random_unwrap_p = RandomUnwrap()
